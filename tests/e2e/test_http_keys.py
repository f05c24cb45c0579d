"""Gets over HTTP that are tried again under their idempotency keys: the same message comes, and no other one is lost."""

import socket
import threading

import pytest

from manager import DEADLINE, wait_until
from people import People
from sites import PRIVACY, Site
from test_http import MIB, Web, basic, error, path, port

GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)
"""


@pytest.fixture(scope="module")
def qm(managers):
    options = ["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]
    manager = managers("http-keys", name="BULLA", grants=GRANTS, options=options)
    manager.mqsc("DEFINE QLOCAL(Q)\nDEFINE QLOCAL(OTHER)\nALTER QMGR MAXMSGL(104857600)")
    for user in ("ann", "bob"):
        manager.add_user(user)
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


@pytest.fixture
def web(qm):
    with user(qm, "ann") as connection:
        yield connection
        for queue in ("Q", "OTHER"):
            while connection.get(queue)[0].status == 200:
                pass


def user(qm, name, tls=False):
    return Web(qm, tls, basic(name, qm.passwords[name]))


def put(web, *bodies):
    for body in bodies:
        assert web.put("Q", body)[0].status == 201


def test_a_message_that_was_got_comes_again_under_its_key(qm, web):
    put(web, "first", "second")
    first, body = web.get("Q", Idempotency_Key="same")
    assert (first.status, body) == (200, b"first")
    for version in ("v3", "v2"):
        with user(qm, "ann") as another:
            again, body = another.get("Q", "?wait=10", version, Idempotency_Key="same")
        assert (again.status, body) == (200, b"first")
        for header in ("ibm-mq-md-messageId", "Content-Type", "ibm-mq-md-expiry", "ibm-mq-md-persistence"):
            assert again.getheader(header) == first.getheader(header)
    qm.wait_for_depth("Q", 1)
    assert web.get("Q", Idempotency_Key="another")[1] == b"second"
    qm.wait_for_depth("Q", 0)
    assert web.get("Q", Idempotency_Key="same")[1] == b"first"


def test_a_key_is_one_user_s_on_one_queue(qm, web):
    put(web, "one", "two")
    web.put("OTHER", "elsewhere")
    assert web.get("Q", Idempotency_Key="mine")[1] == b"one"
    with user(qm, "bob") as bob:
        assert bob.get("Q", Idempotency_Key="mine")[1] == b"two"
    assert web.get("OTHER", Idempotency_Key="mine")[1] == b"elsewhere"


def test_a_get_that_finds_nothing_leaves_its_key_free(web):
    assert web.get("Q", Idempotency_Key="free")[0].status == 204
    put(web, "late")
    assert web.get("Q", Idempotency_Key="free")[1] == b"late"
    assert web.get("Q", Idempotency_Key="free")[1] == b"late"


def test_a_key_that_can_not_be_is_refused(qm, web):
    put(web, "stays")
    reused = path("Q") + "?messageId=" + "ab" * 24
    assert error(web.get("Q", Idempotency_Key=""), 400) == (2046, "idempotency-key")
    assert error(web.get("Q", Idempotency_Key="k" * 129), 400) == (2046, "idempotency-key")
    web.connection.putrequest("DELETE", path("Q"))
    for name, value in (("ibm-mq-rest-csrf-token", ""), ("Authorization", web.authorization), *[("Idempotency-Key", "k")] * 2):
        web.connection.putheader(name, value)
    web.connection.endheaders()
    assert error(web.answer(), 400) == (None, "header")
    with Web(qm) as unknown:
        assert error(unknown.get("Q", Idempotency_Key="k"), 401) == (None, "credentials")
    assert qm.depth("Q") == 1
    assert web.get("Q", Idempotency_Key="k" * 128)[1] == b"stays"
    assert error(web.ask("DELETE", reused, Idempotency_Key="k" * 128), 400) == (2046, "idempotency-key-reused")


def test_one_request_at_a_time_has_a_key(qm, web):
    with user(qm, "ann") as waiting:
        waiting.send("DELETE", path("Q") + "?wait=20000", headers={"Idempotency-Key": "slow"})
        wait_until(lambda: qm.status("Q")["IPPROCS"] == 1, "a reader waits")
        assert error(web.get("Q", Idempotency_Key="slow"), 409) == (2042, "idempotency-key-under-way")
        put(web, "one", "two")
        assert waiting.answer()[1] == b"one"
    assert web.get("Q", Idempotency_Key="slow")[1] == b"one"
    qm.wait_for_depth("Q", 1)
    # One that leaves while it waits has no key any more.
    web.get("Q")
    with user(qm, "ann") as waiting:
        waiting.send("DELETE", path("Q") + "?wait=20000", headers={"Idempotency-Key": "left"})
        wait_until(lambda: qm.status("Q")["IPPROCS"] == 1, "a reader waits")
    wait_until(lambda: web.get("Q", Idempotency_Key="left")[0].status == 204, "the key is free")


def test_clients_that_ask_at_the_same_time_under_one_key_get_one_message(qm, web):
    for turn in range(5):
        put(web, *(f"{turn}-{number}" for number in range(8)))
        answers, ready = [], threading.Barrier(8)

        def ask_for_it():
            with user(qm, "ann") as client:
                client.get("OTHER")  # it has signed in
                ready.wait(DEADLINE)
                response, body = client.get("Q", Idempotency_Key=f"together {turn}")
                answers.append((response.status, body if response.status == 200 else None))

        threads = [threading.Thread(target=ask_for_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert len(answers) == 8 and {status for status, _ in answers} <= {200, 409}, answers
        assert len({body for status, body in answers if status == 200}) == 1, answers
        qm.wait_for_depth("Q", 7)
        while web.get("Q")[0].status == 200:
            pass


def test_the_right_to_get_is_asked_for_again(qm, web):
    put(web, "mine")
    assert web.get("Q", Idempotency_Key="right")[1] == b"mine"
    qm.mqsc("SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*') AUTHRMV(GET)")
    try:
        assert error(web.get("Q", Idempotency_Key="right"), 403) == (2035, None)
    finally:
        qm.mqsc("SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*') AUTHADD(GET)")
    assert web.get("Q", Idempotency_Key="right")[1] == b"mine"
    qm.mqsc("ALTER QLOCAL(Q) GET(DISABLED)")
    try:
        assert error(web.get("Q", Idempotency_Key="right"), 403)[0] == 2016
    finally:
        qm.mqsc("ALTER QLOCAL(Q) GET(ENABLED)")


def test_a_message_that_is_too_long_to_be_kept_leaves_its_key(qm, web):
    put(web, b"x" * (MIB + 1), "next")
    assert len(web.get("Q", Idempotency_Key="long")[1]) == MIB + 1
    assert error(web.get("Q", Idempotency_Key="long"), 410) == (2071, "answer-not-kept")
    qm.wait_for_depth("Q", 1)


def test_a_user_s_oldest_message_goes_for_others_of_that_user_alone(qm, web):
    with user(qm, "bob") as bob:
        put(bob, "small")
        assert bob.get("Q", Idempotency_Key="bob")[1] == b"small"
        for number in range(6):
            put(web, b"x" * (MIB - 1000))
            assert len(web.get("Q", Idempotency_Key=f"much {number}")[1]) == MIB - 1000
        assert error(web.get("Q", Idempotency_Key="much 0"), 410) == (2071, "answer-not-kept")
        assert len(web.get("Q", Idempotency_Key="much 5")[1]) == MIB - 1000
        assert bob.get("Q", Idempotency_Key="bob")[1] == b"small"


def ask(qm, key, receive_bytes=None):
    """A connection of ann's that has asked for a message, and reads nothing."""
    peer = socket.socket()
    if receive_bytes:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    peer.settimeout(DEADLINE)
    peer.connect(("127.0.0.1", port(qm, "http")))
    proof = basic("ann", qm.passwords["ann"])
    lines = [f"DELETE {path('Q')} HTTP/1.1", "Host: h", "ibm-mq-rest-csrf-token:", f"Authorization: {proof}"]
    peer.sendall("\r\n".join([*lines, f"Idempotency-Key: {key}", "", ""]).encode())
    return peer


def test_an_answer_that_was_lost_on_its_way_comes_again(qm, web):
    put(web, "lost", "kept")
    with ask(qm, "lost"):
        qm.wait_for_depth("Q", 1)
    assert web.get("Q", Idempotency_Key="lost")[1] == b"lost"
    qm.wait_for_depth("Q", 1)


def test_an_answer_that_was_not_written_whole_leaves_no_trace(qm, web):
    qm.mqsc("ALTER QLOCAL(Q) MAXMSGL(104857600)")
    body = bytes(30 * MIB)
    put(web, body)
    with ask(qm, "broken", receive_bytes=4096) as broken:
        assert broken.recv(100).startswith(b"HTTP/1.1 200 ")
        assert error(web.get("Q", Idempotency_Key="broken"), 409) == (2042, "idempotency-key-under-way")
    wait_until(lambda: qm.status("Q")["IPPROCS"] == 0, "the reader is gone")
    assert web.get("Q", Idempotency_Key="broken")[1] == body


def test_a_message_that_was_opened_comes_again_to_who_may_open_it(qm, authority):
    people = People(qm, authority)
    people.add("orders")
    people.add("billing")
    site = Site(qm, people)
    queue = site.queue(PRIVACY)
    with user(qm, "orders", tls=True) as orders:
        assert orders.put(queue, "sealed", Content_Type="text/plain")[0].status == 201
    for _ in range(2):
        with user(qm, "billing", tls=True) as billing:
            assert billing.get(queue, Idempotency_Key="opened")[1] == b"sealed"
    qm.wait_for_depth(queue, 0)
    # In clear its ring is not opened.
    with user(qm, "billing") as billing:
        assert error(billing.get(queue, Idempotency_Key="opened"), 403)[0] == 2063
    for client in site.clients.values():
        client.close()


def test_answers_go_with_the_queue_manager(managers):
    manager = managers("http-keys-restarted", name="BULLA", grants=GRANTS, options=["--http", "127.0.0.1:0"])
    manager.mqsc("DEFINE QLOCAL(Q)")
    manager.add_user("ann")
    with user(manager, "ann") as web:
        put(web, "got")
        assert web.get("Q", Idempotency_Key="k")[1] == b"got"
    assert manager.stop() == 0
    manager.start()
    with user(manager, "ann") as web:
        assert web.get("Q", Idempotency_Key="k")[0].status == 204
    assert manager.stop() == 0
