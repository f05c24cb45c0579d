"""Messages put and got over HTTP: what the interface answers, who may do what, and that it meets AMQP on the same queues."""

import base64
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.parse

import pytest
from proton import Message

import tokens
from manager import BULLA, DEADLINE, wait_until
from people import People
from sites import INTEGRITY, PRIVACY, Site, clear

TEXT = "text/plain;charset=utf-8"
MIB = 1 << 20


class Web:
    """One connection to a queue manager's HTTP port, over TLS or not. It stays open between requests."""

    def __init__(self, qm, tls=False, authorization=None, certificate=None):
        self.qm, self.authorization = qm, authorization
        if tls:
            context = ssl.create_default_context(cafile=qm.ca)
            if certificate:
                context.load_cert_chain(*certificate)
            self.connection = http.client.HTTPSConnection("localhost", port(qm, "https"), timeout=DEADLINE, context=context)
        else:
            self.connection = http.client.HTTPConnection("127.0.0.1", port(qm, "http"), timeout=DEADLINE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def send(self, method, path, body=None, headers=()):
        said = {"ibm-mq-rest-csrf-token": "", **dict(headers)}
        if self.authorization:
            said.setdefault("Authorization", self.authorization)
        self.connection.request(method, path, body=body, headers=said)

    def answer(self):
        response = self.connection.getresponse()
        return response, response.read()

    def ask(self, method, path, body=None, **headers):
        self.send(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return self.answer()

    def put(self, queue, body, version="v3", **headers):
        return self.ask("POST", path(queue, version), body, **{"Content_Type": TEXT, **headers})

    def get(self, queue, query="", version="v3", **headers):
        return self.ask("DELETE", path(queue, version) + query, **headers)

    def browse(self, queue, query="", version="v3"):
        return self.ask("GET", path(queue, version) + query)


def port(qm, scheme):
    return qm.port(scheme)


def path(queue, version="v3", what="message", sort="queue"):
    return f"/ibmmq/rest/{version}/messaging/qmgr/BULLA/{sort}/{urllib.parse.quote(queue, safe='')}/{what}"


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def error(answer, status):
    """The reason and the cause of an answer with that status."""
    response, body = answer
    assert response.status == status, (response.status, body)
    assert response.getheader("Content-Type") == "application/json;charset=utf-8"
    said = json.loads(body)["error"]
    assert said["message"]
    return said.get("reason"), said.get("cause")


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("http", name="BULLA", options=["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"])
    manager.mqsc("DEFINE QLOCAL(Q); DEFINE QLOCAL('A/b.c%')")
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


@pytest.fixture
def web(qm):
    with Web(qm) as connection:
        yield connection
        while connection.get("Q")[0].status == 200:
            pass


@pytest.fixture(scope="module")
def guarded(managers):
    """`orders` may use ORDERS, and nobody anything else."""
    manager = managers("http-guarded", name="BULLA", grants=None, options=["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"])
    manager.mqsc(
        "DEFINE QLOCAL(ORDERS)\nDEFINE QLOCAL(OTHER)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(ALL)"
    )
    manager.add_user("orders")
    manager.add_user("other")
    yield manager
    assert manager.stop() == 0


def test_a_message_is_put_shown_listed_and_got(qm, web):
    put, _ = web.put("Q", "gr\u00fcn".encode(), ibm_mq_md_persistence="persistent")
    assert put.status == 201
    message_id = put.getheader("ibm-mq-md-messageId")
    assert re.fullmatch("[0-9a-f]{48}", message_id)
    assert qm.depth("Q") == 1
    for ask, left in ((web.browse, 1), (web.get, 0)):
        response, body = ask("Q")
        assert (response.status, body.decode()) == (200, "gr\u00fcn")
        assert response.getheader("Content-Type") == TEXT
        assert response.getheader("ibm-mq-md-messageId") == message_id
        assert response.getheader("ibm-mq-md-persistence") == "persistent"
        assert response.getheader("ibm-mq-md-expiry") == "unlimited"
        if left:
            listed, rows = web.ask("GET", path("Q", what="messagelist"))
            assert listed.status == 200
            assert json.loads(rows) == {"messages": [{"messageId": message_id, "correlationId": None, "format": TEXT}]}
        qm.wait_for_depth("Q", left)
    assert web.get("Q")[0].status == 204


def test_a_list_has_as_many_as_are_asked_for(web):
    for number in range(12):
        assert web.put("Q", str(number))[0].status == 201
    def listed(query=""):
        return len(json.loads(web.ask("GET", path("Q", what="messagelist") + query)[1])["messages"])
    assert (listed(), listed("?limit=3"), listed("?limit=1000")) == (10, 3, 12)


def test_http_and_amqp_meet_on_a_queue(qm, web):
    web.put(
        "Q",
        b"\0\xff bytes",
        Content_Type="application/octet-stream",
        ibm_mq_md_replyTo="REPLIES",
        ibm_mq_md_correlationId="order 7",
        ibm_mq_md_priority="7",
        ibm_mq_md_expiry="600000",
        ibm_mq_usr='colour;"green";string, size;5;integer',
    )
    with qm.connect() as client:
        message = client.get("Q")
        assert bytes(message.body) == b"\0\xff bytes"
        assert (message.reply_to, message.correlation_id, message.priority) == ("REPLIES", "order 7", 7)
        assert message.content_type == "application/octet-stream"
        assert message.properties == {"colour": "green", "size": 5}
        assert 500 < message.ttl <= 600
        client.put("Q", Message(body="a text", id="ID:one", correlation_id=7, properties={"colour": "r\u00f6t"}))
        client.put("Q", Message(body={"a": 1}))
    response, body = web.get("Q")
    assert (body, response.getheader("Content-Type")) == (b"a text", TEXT)
    assert response.getheader("ibm-mq-md-messageId") == "ID:one"
    assert response.getheader("ibm-mq-md-correlationId") == "ID:AMQP_ULONG:7"
    assert response.getheader("ibm-mq-usr") == 'colour;"r%C3%B6t";string'
    response, body = web.get("Q")
    assert response.getheader("Content-Type") == "application/x-amqp-sections" and body.startswith(b"\0Sw")


def test_a_message_is_chosen_by_its_ids(web):
    ids = [web.put("Q", str(number), ibm_mq_md_correlationId=f"it's {number}")[0].getheader("ibm-mq-md-messageId") for number in range(3)]
    assert web.get("Q", f"?messageId={ids[1]}")[1] == b"1"
    assert web.get("Q", "?correlationId=" + urllib.parse.quote("it's 2"))[1] == b"2"
    assert web.get("Q", f"?messageId={ids[1]}")[0].status == 204
    assert web.get("Q", f"?messageId={ids[0]}&correlationId=none")[0].status == 204
    assert web.browse("Q", f"?messageId={ids[0]}")[1] == b"0"


def test_a_get_waits_for_a_message(qm, web):
    with Web(qm) as waiting:
        waiting.send("DELETE", path("Q") + "?wait=20000")
        wait_until(lambda: qm.status("Q")["IPPROCS"] == 1, "a reader waits")
        web.put("Q", "late")
        assert waiting.answer()[1] == b"late"
        assert waiting.get("Q", "?wait=300")[0].status == 204


def test_names_are_encoded_in_the_path(web):
    assert web.put("A/b.c%", "here")[0].status == 201
    assert web.get("A/b.c%")[1] == b"here"


def test_version_2_has_no_user_properties(qm, web):
    web.put("Q", "x", version="v2", ibm_mq_usr="size;5;integer", ibm_mq_md_correlationId="ab" * 24)
    response, _ = web.get("Q", version="v2")
    assert response.getheader("ibm-mq-md-correlationId") == "ab" * 24
    assert response.getheader("ibm-mq-usr") is None and response.getheader("ibm-mq-md-priority") is None


def test_a_topic_is_published_on(qm, web):
    qm.mqsc("SET AUTHREC PROFILE(**) OBJTYPE(TOPIC) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(PUB, SUB)")
    with qm.connect() as client:
        receiver = client.receiver("topic://prices/gold", credit=10)
        assert web.ask("POST", path("prices/gold", sort="topic"), "7", Content_Type=TEXT)[0].status == 201
        assert bytes(receiver.next().body) == b"7"


def test_what_is_refused_says_status_reason_and_cause(web):
    assert error(web.put("NO.SUCH", "x"), 404) == (2085, None)
    assert error(web.get("NO.SUCH"), 404)[0] == 2085
    assert error(web.ask("GET", "/"), 404) == (None, "unknown-path")
    assert error(web.ask("GET", path("Q").replace("BULLA", "OTHER")), 404) == (None, "queue-manager")
    refused = web.ask("PUT", path("Q"), "x")
    assert error(refused, 405) == (None, "method") and refused[0].getheader("Allow") == "GET, POST, DELETE"
    assert error(web.put("Q", "x", ibm_mq_md_priority="11"), 400) == (None, "header")
    assert error(web.put("Q", "x", Content_Type="text/plain;charset=latin1"), 415) == (None, "content-type")
    assert error(web.browse("Q", "?wait=soon"), 400) == (None, "query")
    web.connection.request("POST", path("Q"), "x", {"Content-Type": TEXT})
    assert error(web.answer(), 403) == (None, "csrf-token")


def test_a_full_queue_is_told_of(qm, web):
    qm.mqsc("DEFINE QLOCAL(SMALL) MAXDEPTH(1)")
    assert web.put("SMALL", "x")[0].status == 201
    refused = web.put("SMALL", "x")
    assert error(refused, 503)[0] == 2053 and refused[0].getheader("Retry-After") == "1"


def test_a_body_that_is_too_long_is_refused_before_it_is_sent(qm):
    with socket.create_connection(("127.0.0.1", port(qm, "http")), timeout=DEADLINE) as client:
        head = f"POST {path('Q')} HTTP/1.1\r\nHost: h\r\nibm-mq-rest-csrf-token:\r\nExpect: 100-continue\r\n"
        client.sendall((head + f"Content-Length: {1 << 40}\r\n\r\n").encode())
        answer = client.recv(MIB).decode()
        assert answer.startswith("HTTP/1.1 413 ") and '"reason":2030' in answer


def test_a_long_body_is_put_and_got_whole(managers):
    manager = managers("http-long", name="BULLA", options=["--http", "127.0.0.1:0"])
    manager.mqsc("ALTER QMGR MAXMSGL(104857600)\nDEFINE QLOCAL(LONG) MAXMSGL(104857600)")
    body = bytes(range(256)) * (4096 * 60)
    with Web(manager) as web:
        chunks = (body[at : at + 100_000] for at in range(0, len(body), 100_000))
        web.connection.request(
            "POST", path("LONG"), chunks, {"ibm-mq-rest-csrf-token": "", "Transfer-Encoding": "chunked"}, encode_chunked=True
        )
        assert web.answer()[0].status == 201
        response, got = web.get("LONG")
        assert response.getheader("Content-Type") == "application/octet-stream"
        assert got == body
    assert manager.stop() == 0


def test_a_message_whose_answer_was_not_taken_comes_back(managers):
    manager = managers("http-broken", name="BULLA", options=["--http", "127.0.0.1:0"])
    manager.mqsc("ALTER QMGR MAXMSGL(104857600)\nDEFINE QLOCAL(LONG) MAXMSGL(104857600)")
    body = bytes(30 * MIB)
    with Web(manager) as web:
        assert web.put("LONG", body)[0].status == 201
        with socket.create_connection(("127.0.0.1", port(manager, "http")), timeout=DEADLINE) as client:
            client.sendall(f"DELETE {path('LONG')} HTTP/1.1\r\nHost: h\r\nibm-mq-rest-csrf-token:\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200 ")
            assert web.get("LONG")[0].status == 204
        wait_until(lambda: manager.status("LONG")["IPPROCS"] == 0, "the reader is gone")
        assert manager.depth("LONG") == 1
        assert web.get("LONG")[1] == body
        manager.wait_for_depth("LONG", 0)
    assert manager.stop() == 0


def test_a_put_is_done_once_under_its_key(qm, web):
    first = web.put("Q", "once", Idempotency_Key="k-1", ibm_mq_md_persistence="persistent")[0]
    with Web(qm) as other:
        again = other.put("Q", "once", Idempotency_Key="k-1", ibm_mq_md_persistence="persistent")[0]
    assert (first.status, again.status) == (201, 201)
    assert first.getheader("ibm-mq-md-messageId") == again.getheader("ibm-mq-md-messageId")
    assert qm.depth("Q") == 1
    assert error(web.put("Q", "another", Idempotency_Key="k-1"), 400)[1] == "idempotency-key-reused"


def test_a_publication_is_done_once_under_its_key_also_after_a_kill(managers):
    manager = managers("http-published", name="BULLA", options=["--http", "127.0.0.1:0"])
    manager.mqsc("SET AUTHREC PROFILE(**) OBJTYPE(TOPIC) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(PUB)")
    for queue in ("ONE", "TWO"):
        manager.mqsc(f"DEFINE QLOCAL({queue}); DEFINE SUB({queue}) TOPICSTR('prices/#') DEST({queue})")

    def publish(body="7", topic="prices/gold", persistence="persistent"):
        headers = {"Content_Type": TEXT, "Idempotency_Key": f"key {persistence}", "ibm_mq_md_persistence": persistence}
        with Web(manager) as web:
            return web.ask("POST", path(topic, sort="topic"), body, **headers)

    def published(*more):
        response, _ = publish(*more)
        assert response.status == 201
        return response.getheader("ibm-mq-md-messageId")

    def depths():
        return [manager.depth(queue) for queue in ("ONE", "TWO")]

    first, nowhere, lost = published(), published("7", "to/nobody"), published("7", "prices/gold", "nonPersistent")
    assert len({first, nowhere, lost}) == 3
    assert (published(), published("7", "prices/gold", "nonPersistent")) == (first, lost)
    assert error(publish("8"), 400) == (2046, "idempotency-key-reused")
    assert depths() == [2, 2]
    manager.kill()
    manager.start()
    assert (published(), published("7", "to/nobody")) == (first, nowhere)
    assert depths() == [1, 1]
    assert published("7", "prices/gold", "nonPersistent") != lost
    assert depths() == [2, 2]
    assert manager.stop() == 0


def test_requests_that_come_together_are_answered_in_order(qm, web):
    put = f"POST {path('Q')} HTTP/1.1\r\nHost: h\r\nibm-mq-rest-csrf-token:\r\nContent-Length: 1\r\n\r\n"
    get = f"DELETE {path('Q')} HTTP/1.1\r\nHost: h\r\nibm-mq-rest-csrf-token:\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port(qm, "http")), timeout=DEADLINE) as client:
        client.sendall("".join(put + str(number) for number in range(5)).encode() + get.encode() * 6)
        answers = b""
        while answers.count(b"HTTP/1.1 ") < 11 or not answers.endswith(b"\r\n\r\n"):
            answers += client.recv(MIB)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"201"] * 5 + [b"200"] * 5 + [b"204"]
    assert re.findall(rb"\r\n\r\n(\d)HTTP", answers) == [b"0", b"1", b"2", b"3", b"4"]


def test_curl_puts_and_gets_over_tls(qm):
    url = f"https://localhost:{port(qm, 'https')}{path('Q')}"
    curl = [shutil.which("curl") or "curl", "-s", "-S", "-i", "--cacert", qm.ca, "-H", "ibm-mq-rest-csrf-token;"]
    put = subprocess.run([*curl, "-H", f"Content-Type: {TEXT}", "-d", "by curl", url], capture_output=True, timeout=DEADLINE)
    assert b" 201 Created" in put.stdout, put
    assert b"strict-transport-security: max-age=31536000" in put.stdout
    got = subprocess.run([*curl, "-X", "DELETE", url], capture_output=True, timeout=DEADLINE)
    assert got.stdout.endswith(b"\r\n\r\nby curl"), got


def test_http_in_clear_is_for_this_machine_alone(tmp_path):
    done = subprocess.run(
        [BULLA, "start", "--data", tmp_path / "qm", "--amqp", "none", "--amqps", "none", "--http", "0.0.0.0:0"],
        capture_output=True,
        timeout=DEADLINE,
    )
    assert done.returncode != 0
    assert b"HTTP without TLS is for clients on this machine alone" in done.stderr and b"--https" in done.stderr


@pytest.mark.parametrize("tls", [False, True])
def test_who_may_what_is_asked_for(guarded, tls):
    with Web(guarded, tls, basic("orders", guarded.passwords["orders"])) as web:
        assert web.put("ORDERS", "mine")[0].status == 201
        assert error(web.put("OTHER", "x"), 403)[0] == 2035
        assert error(web.get("NO.SUCH"), 403)[0] == 2035
        assert web.get("ORDERS")[1] == b"mine"
    with Web(guarded, tls, basic("other", guarded.passwords["other"])) as web:
        assert error(web.put("ORDERS", "x"), 403)[0] == 2035
    with Web(guarded, tls) as web:
        refused = web.put("ORDERS", "x")
        assert error(refused, 401)[0] == 2035
        assert refused[0].getheader("WWW-Authenticate").startswith("Basic ")


def test_wrong_credentials_are_refused(guarded):
    for authorization in (basic("orders", "wrong"), basic("nobody", "x"), "Basic !", "Digest x=y", "Bearer a.b.c"):
        with Web(guarded, authorization=authorization) as web:
            refused = web.get("ORDERS")
            error(refused, 401)
            assert refused[0].getheader("Connection") == "close"
    assert guarded.depth("ORDERS") == 0


def test_a_connection_has_one_user(guarded):
    with Web(guarded, authorization=basic("orders", guarded.passwords["orders"])) as web:
        assert web.get("ORDERS")[0].status == 204
        refused = web.get("ORDERS", Authorization=basic("other", guarded.passwords["other"]))
        assert error(refused, 403) == (None, "other-credentials")
        assert refused[0].getheader("Connection") == "close"


def test_a_token_signs_in(guarded, tmp_path):
    issuer = tokens.Issuer(tmp_path, "ES256", "key-1")
    guarded.mqsc(f"ALTER QMGR OAUTHISS('{tokens.ISSUER}')")
    tokens.publish(guarded, issuer)
    with Web(guarded, authorization="Bearer " + issuer.token()) as web:
        assert web.get("ORDERS")[0].status == 204
    with Web(guarded, authorization="Bearer " + issuer.token(exp=1)) as web:
        error(web.get("ORDERS"), 401)


def test_a_certificate_signs_in(guarded, authority):
    identity = authority.issue("orders")
    (guarded.data / "tls/clients.pem").write_bytes(authority.pem)
    chain = guarded.data / "orders.chain"
    chain.write_bytes(identity.pem)
    def asks():
        with Web(guarded, tls=True, certificate=(chain, identity.key)) as web:
            return web.get("ORDERS")[0].status
    wait_until(lambda: asks() == 204, "the certificate is known")


@pytest.fixture(scope="module")
def site(qm, authority):
    people = People(qm, authority)
    for name in ("orders", "billing", "stranger"):
        people.add(name)
    site = Site(qm, people)
    yield site
    for client in site.clients.values():
        client.close()


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY])
def test_a_protected_queue_is_sealed_and_opened_as_for_amqp(qm, site, policy):
    queue = site.queue(policy)
    def user(name):
        return Web(qm, tls=True, authorization=basic(name, qm.passwords[name]))
    with user("orders") as orders:
        assert orders.put(queue, "by HTTP", Content_Type="text/plain")[0].status == 201
    raw = site.raw(queue)[0]
    assert "pkcs7" in str(raw.content_type) and (policy is INTEGRITY or b"by HTTP" not in bytes(raw.body))
    got = site.billing.get(queue)
    assert (bytes(got.body), str(got.content_type)) == (b"by HTTP", "text/plain")
    site.orders.put(queue, clear(b"by AMQP"))
    if policy is PRIVACY:
        with user("stranger") as stranger:
            assert error(stranger.get(queue), 403)[0] == 2063
    with user("billing") as billing:
        response, body = billing.get(queue)
        assert (response.status, body) == (200, b"by AMQP")
    qm.wait_for_depth(queue, 0)


def test_many_requests_on_one_connection_leave_nothing_open(qm, web):
    for number in range(60):
        assert web.put("Q", str(number))[0].status == 201
        assert web.get("Q")[1] == str(number).encode()
    def left():
        status = qm.status("Q")
        return status["CURDEPTH"], status["IPPROCS"], status["OPPROCS"]
    # Connections of other tests may be closing.
    wait_until(lambda: left() == (0, 0, 1), "one link is kept to put on")


def test_clients_at_the_same_time_get_each_message_once(qm):
    got, lock = [], threading.Lock()
    def work(number):
        with Web(qm) as web:
            for turn in range(20):
                assert web.put("Q", f"{number}-{turn}")[0].status == 201
                response, body = web.get("Q", "?wait=5000")
                assert response.status == 200
                with lock:
                    got.append(body.decode())
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert sorted(got) == sorted(f"{number}-{turn}" for number in range(8) for turn in range(20))
    assert qm.depth("Q") == 0
