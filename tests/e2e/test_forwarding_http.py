"""Queues of a shared group over HTTP, at a member that does not own it: requests go on to the owner, and clients need
not know."""

import json
import shutil
import threading
import urllib.parse

import pytest
from proton import Message

from groups import is_known, owner_and_member, put, wait_for_state
from manager import DEADLINE, shown_rows, wait_until
from people import People
from test_http import TEXT, Web, basic, error

LISTENERS = ["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]


class Requests(Web):
    """Requests about queues, in the name of whichever queue manager is asked."""

    def __init__(self, qm, **settings):
        super().__init__(qm, **settings)
        self.name = qm.name

    def path(self, queue, what="message"):
        return f"/ibmmq/rest/v3/messaging/qmgr/{self.name}/queue/{urllib.parse.quote(queue, safe='')}/{what}"

    def put(self, queue, body, **headers):
        """A message that outlives its owner."""
        said = {"Content_Type": TEXT, "ibm_mq_md_persistence": "persistent", **headers}
        return self.ask("POST", self.path(queue), body, **said)

    def get(self, queue, query="", **headers):
        return self.ask("DELETE", self.path(queue) + query, **headers)

    def browse(self, queue, query=""):
        return self.ask("GET", self.path(queue) + query)

    def list(self, queue):
        response, body = self.ask("GET", self.path(queue, "messagelist"))
        assert response.status == 200, body
        return json.loads(body)["messages"]


def text(answer):
    response, body = answer
    assert response.status == 200, (response.status, body)
    return body.decode()


def message_id(answer):
    response, body = answer
    assert response.status == 201, (response.status, body)
    return response.getheader("ibm-mq-md-messageId")


@pytest.fixture
def pair(managers, engine):
    """The owner of a group with the queue F, and a member that knows of it."""
    return two(managers, engine)


def two(managers, engine, more="", **settings):
    queues = {"F": "", "F.SMALL": "MAXDEPTH(1) MAXMSGL(1000) FULL(REJECT)"}
    owner, other = owner_and_member(managers, engine, queues, more, options=LISTENERS, **settings)
    if not more and not settings:
        wait_until(lambda: is_known(other, "F.SMALL"), "the member knows the queues")
    return owner, other


def connections(qm):
    return len(shown_rows(qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY CONN(*)").stdout))


def test_messages_are_put_shown_listed_and_got_by_way_of_a_member(pair):
    owner, other = pair
    with Requests(other) as web:
        before = connections(owner)
        ids = [message_id(web.put("F", f"message {number}")) for number in range(20)]
        assert owner.depth("F") == 20 and len(set(ids)) == 20
        # One connection to the owner, however many requests come.
        assert connections(owner) == before + 1
        assert text(web.browse("F")) == "message 0"
        assert text(web.browse("F", f"?messageId={ids[7]}")) == "message 7"
        assert [row["messageId"] for row in web.list("F")] == ids[:10]
        assert text(web.get("F", f"?messageId={ids[7]}")) == "message 7"
        with owner.connect() as client:
            assert client.get("F").body == b"message 0"
        assert [text(web.get("F")) for _ in range(18)] == [f"message {n}" for n in range(1, 20) if n != 7]
        assert web.get("F")[0].status == 204 and web.browse("F")[0].status == 204 and web.list("F") == []
        assert owner.depth("F") == 0
        # What is large, in both directions.
        large = "x" * (3 << 20)
        message_id(web.put("F", large))
        assert text(web.get("F")) == large
        # A get waits at the owner, and what comes there is its answer.
        got = []
        waits = threading.Thread(target=lambda: got.append(text(web.get("F", "?wait=20000"))))
        waits.start()
        wait_until(lambda: owner.status("F")["IPPROCS"] == 1, "the get waits")
        put(owner, "F", ["it comes late"])
        waits.join(DEADLINE)
        assert got == ["it comes late"]
        assert web.get("F", "?wait=300")[0].status == 204
        # Queues that are here go on as before, on the same connection.
        other.mqsc("DEFINE QLOCAL(HERE)")
        message_id(web.put("HERE", "here"))
        message_id(web.put("F", "there"))
        assert (text(web.get("HERE")), text(web.get("F"))) == ("here", "there")
    wait_until(lambda: connections(owner) == before, "the connection to the owner goes with the client's")


def test_what_the_owner_refuses_is_answered_as_it_answers_itself(pair):
    owner, other = pair
    with Requests(owner) as there, Requests(other) as web:
        message_id(web.put("F.SMALL", "1"))
        full = web.put("F.SMALL", "2")
        assert error(full, 503) == (2053, None)
        assert full[1] == there.put("F.SMALL", "2")[1]
        assert full[0].getheader("Retry-After")
        assert text(web.get("F.SMALL")) == "1"
        assert error(web.put("F.SMALL", "x" * 2000), 413)[0] == 2030
        assert error(there.put("F.SMALL", "x" * 2000), 413)[0] == 2030
        owner.mqsc("ALTER QLOCAL(F.SMALL) PUT(DISABLED) GET(DISABLED)")
        # That the client has not said who it is may be all that is missing: 401.
        assert error(web.put("F.SMALL", "1"), 401) == error(there.put("F.SMALL", "1"), 401) == (2051, None)
        assert error(web.get("F.SMALL"), 401) == error(there.get("F.SMALL"), 401) == (2016, None)
        owner.mqsc("ALTER QLOCAL(F.SMALL) PUT(ENABLED) GET(ENABLED)")
        message_id(web.put("F.SMALL", "1"))
        assert text(web.get("F.SMALL")) == "1"


def test_rights_are_the_owner_s_to_give_and_a_connection_s_next_user_has_its_own(managers, engine):
    owner, other = two(managers, engine, grants=None)
    for qm in (owner, other):
        qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)")
        for user in ("ann", "bob", "eve"):
            qm.add_user(user)
    owner.mqsc("SET AUTHREC PROFILE(F) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")
    owner.mqsc("SET AUTHREC PROFILE(F) OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(GET)")

    def as_user(user):
        return Requests(other, authorization=basic(user, other.passwords[user]))

    with as_user("ann") as ann, as_user("bob") as bob, as_user("eve") as eve:
        wait_until(lambda: ann.put("F", "ann's")[0].status == 201, "ann may put")
        assert error(ann.get("F"), 403)[0] == 2035
        assert error(bob.put("F", "bob's"), 403)[0] == 2035
        assert text(bob.get("F")) == "ann's"
        # Who has no right on it hears what it hears of any name.
        strange, none = eve.put("F", "eve's"), eve.put("NONE", "eve's")
        assert strange[0].status == none[0].status and strange[1] == none[1].replace(b"NONE", b"F")
    # A browser keeps its connection when another user logs in on it.
    with Requests(other, tls=True) as web:

        def log_in(user):
            credentials = json.dumps({"username": user, "password": other.passwords[user]})
            response, body = web.ask("POST", "/ibmmq/rest/v2/login", credentials, Content_Type="application/json")
            assert response.status == 204, body
            return response.getheader("Set-Cookie").split(";")[0]

        cookie = log_in("ann")
        for number in range(3):
            message_id(web.put("F", f"ann's {number}", Cookie=cookie))
        as_bob = log_in("bob")
        assert error(web.put("F", "bob's", Cookie=as_bob), 403)[0] == 2035
        # The message of a get has left its queue, though its user's links end right behind it.
        assert text(web.get("F", Cookie=as_bob)) == "ann's 0"
        message_id(web.put("F", "ann's 3", Cookie=cookie))
        assert error(web.get("F", Cookie=cookie), 403)[0] == 2035
        assert [text(web.get("F", Cookie=as_bob)) for _ in range(3)] == [f"ann's {number}" for number in (1, 2, 3)]
        assert web.get("F", Cookie=as_bob)[0].status == 204
    assert owner.depth("F") == 0
    # A right that is taken away is gone for links that are kept, too.
    with as_user("ann") as ann:
        message_id(ann.put("F", "still"))
        owner.mqsc("SET AUTHREC PROFILE(F) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHRMV(PUT)")
        assert error(ann.put("F", "late"), 403)[0] == 2035


def test_a_put_or_a_get_that_is_tried_again_is_done_once(managers, engine):
    owner, other = two(managers, engine)
    for qm in (owner, other):
        qm.add_user("ann")

    def at(qm):
        return Requests(qm, authorization=basic("ann", qm.passwords["ann"]))

    with at(other) as web, at(owner) as there:
        first = message_id(web.put("F", "once", Idempotency_Key="k1"))
        assert message_id(web.put("F", "once", Idempotency_Key="k1")) == first
        # The key is known to the owner: so to each member.
        assert message_id(there.put("F", "once", Idempotency_Key="k1")) == first
        assert error(web.put("F", "other", Idempotency_Key="k1"), 400) == (2046, "idempotency-key-reused")
        assert owner.depth("F") == 1
        second = message_id(there.put("F", "twice", Idempotency_Key="k2"))
        assert message_id(web.put("F", "twice", Idempotency_Key="k2")) == second
        message_id(web.put("F", "the last"))
        # The answer to a get is known to the member that gave it.
        assert [text(web.get("F", Idempotency_Key="g1")) for _ in range(3)] == ["once"] * 3
        assert text(web.get("F", Idempotency_Key="g2")) == "twice"
        assert owner.depth("F") == 1
        owner.kill()
        wait_for_state(other, other.group, "OWNER")
        assert message_id(web.put("F", "twice", Idempotency_Key="k2")) == second
        assert [text(web.get("F")), web.get("F")[0].status] == ["the last", 204]


def test_requests_go_to_the_next_owner_when_one_dies(pair):
    owner, other = pair
    with Requests(other) as web:
        message_id(web.put("F", "kept"))
        waits = []
        request = threading.Thread(target=lambda: waits.append(web.get("F.SMALL", "?wait=30000")))
        request.start()
        wait_until(lambda: owner.status("F.SMALL")["IPPROCS"] == 1, "a get waits there")
        owner.kill()
        request.join(DEADLINE)
        assert error(waits[0], 503)[0] == 2009
        # Until the group has another owner, a request can be tried again: so it says.
        answers = []

        def is_put():
            answers.append(web.put("F", "kept, too"))
            return answers[-1][0].status == 201

        wait_until(is_put, "the next owner takes it")
        assert {error(answer, 503)[0] for answer in answers[:-1]} <= {2009, 2345}
        assert all(answer[0].getheader("Retry-After") for answer in answers[:-1])
        assert [text(web.get("F")) for _ in range(2)] == ["kept", "kept, too"]
    owner.start()
    wait_for_state(owner, owner.group, "STANDBY")
    wait_until(lambda: is_known(owner, "F"), "the former owner forwards")
    with Requests(owner) as web:
        message_id(web.put("F", "the other way"))
    with Requests(other) as web:
        assert text(web.get("F")) == "the other way"


def test_a_message_whose_client_hangs_up_is_on_its_queue_again(pair):
    owner, other = pair
    large = "x" * (20 << 20)
    owner.mqsc("ALTER QLOCAL(F) MAXMSGL(104857600)")
    put(owner, "F", [large])
    web = Requests(other)
    web.send("DELETE", web.path("F"))
    # The answer has begun: no client takes all of it.
    web.connection.sock.recv(1)
    web.connection.close()
    with Requests(other) as web:
        assert text(web.get("F", "?wait=20000")) == large
    assert owner.depth("F") == 0


def test_the_owner_seals_and_opens_for_the_member_s_users(pair, authority):
    owner, other = pair
    people = People(owner, authority)
    for name in ("orders", "billing"):
        people.add(name)
    names = f"SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')"
    owner.mqsc(f"SET POLICY(F) SIGNALG(SHA256) ENCALG(AES256) {names}")
    # The member's users sign in there; their rings are the owner's.
    shutil.copy(owner.data / "users", other.data / "users")
    users = ["user", "list", "--data", other.data]
    wait_until(lambda: other.run(*users, code=None).returncode == 0, "the users are there")
    as_user = lambda user: Requests(other, tls=True, authorization=basic(user, owner.passwords[user]))
    with as_user("orders") as orders, as_user("billing") as billing:
        message_id(orders.put("F", "sealed"))
        with owner.connect("billing") as client:
            assert [message.body for message in client.get_all("F", browse=True)] == [b"sealed"]
        # Nothing is opened for who has no key to it, and it stays.
        assert error(orders.get("F"), 403)[0] == 2063
        assert text(billing.browse("F")) == "sealed"
        assert text(billing.get("F")) == "sealed"


def test_a_member_that_does_not_forward_says_where_the_queue_is(managers, engine):
    owner, other = two(managers, engine, "REDIRECT(NO)")
    with Requests(other) as web:
        wait_until(lambda: web.put("F", "x")[0].status == 503, "the member knows the queue")
        answer = web.put("F", "x")
        assert error(answer, 503) == (2345, "group-elsewhere") and b"which QM1 owns" in answer[1]
    assert owner.depth("F") == 0


def test_many_clients_at_once_lose_nothing(pair):
    owner, other = pair
    failed = []

    def run(number):
        try:
            with Requests(other) as web:
                for count in range(50):
                    message_id(web.put("F", f"{number} {count}"))
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * DEADLINE)
    assert not failed, failed
    with owner.connect() as client:
        client.put("F", Message(body="the last", durable=True))
    with Requests(other) as web:
        got = []
        while (answer := web.get("F"))[0].status == 200:
            got.append(answer[1].decode())
    assert len(got) == 401, len(got)
    assert got.pop() == "the last", (got.index("the last"), got[-12:])
    for number in range(8):
        assert [body for body in got if body.startswith(f"{number} ")] == [f"{number} {count}" for count in range(50)]
