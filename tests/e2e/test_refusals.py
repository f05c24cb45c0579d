"""For each right and each type of rule, without and with: what is refused, by which code, and what the audit log says of it."""

import itertools
import json

import pytest
from proton import ConnectionException, Message

from manager import wait_until
from pki import Authority
from proton_driver import Refused
from test_authority import acting
from test_chlauth import CLIENTS, by_certificate
from test_queues import own_queue

MODEL = "SYSTEM.DEFAULT.MODEL.QUEUE"
TOPIC = "RATES"
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "tls")


@pytest.fixture(scope="module")
def qm(managers, authority):
    manager = managers(name="STRICT", grants=None)
    for user in ("orders", "billing"):
        manager.add_user(user)
    (manager.data / "tls/clients.pem").write_bytes(authority.pem)
    # Somebody has to be allowed something, or the queue manager says only that nobody may connect.
    manager.mqsc(f"SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('billing') AUTHADD(CONNECT)\nDEFINE TOPIC({TOPIC}) TOPICSTR('rates')")
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


@pytest.fixture
def queue(qm):
    name = f"Q{next(numbers)}"
    qm.mqsc(f"DEFINE QLOCAL({name})")
    return name


def refusals(qm):
    done = qm.run("audit", "show", "--json", "--kind", "refusal", "--data", qm.data)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Told:
    """What the audit log says of refusals from here on."""

    def __init__(self, qm):
        self.qm = qm
        seen = refusals(qm)
        self.after = seen[-1]["seq"] if seen else 0

    def since(self):
        return [entry for entry in refusals(self.qm) if entry["seq"] > self.after]

    def of(self, **wanted):
        """Waits for an entry with these fields, which come within a second, and no matter when they come."""
        fits = lambda entry: all({**entry["what"], **entry["who"]}.get(key) == value for key, value in wanted.items())
        return wait_until(lambda: [entry for entry in self.since() if fits(entry)], f"{wanted} is told of")[0]


def reason(action):
    """The code with which it is refused; none where it is not."""
    try:
        action()
    except (Refused, ConnectionException) as refused:
        # Where the connection is closed the code is in its condition.
        closed = 2035 if "2035 MQRC_NOT_AUTHORIZED" in str(refused) else str(refused)
        return getattr(refused, "reason", None) or closed
    return None


def as_orders(qm, action):
    with qm.connect("orders") as client:
        action(client)


def dynamic(client):
    client._link(lambda: client.connection.create_receiver(None, name=f"d{next(numbers)}", dynamic=True))


# Each right: the object and profile that it is on, what takes it, the action and the object of the audit log, and
# what else it takes.
RIGHTS = {
    "CONNECT": ("QMGR", None, lambda client, queue: client.get_all(queue), "connect", "STRICT", ["GET"]),
    "PUT": ("QUEUE", "{queue}", lambda client, queue: client.put(queue, Message(body="barley")), "put", "{queue}", []),
    "GET": ("QUEUE", "{queue}", lambda client, queue: client.receiver(queue, credit=0), "get", "{queue}", []),
    "BROWSE": ("QUEUE", "{queue}", lambda client, queue: client.receiver(queue, credit=0, browse=True), "browse", "{queue}", []),
    "SETID": (
        "QUEUE", "{queue}", lambda client, queue: client.put(queue, Message(body="barley", user_id=b"billing")),
        "set-user", "{queue}", ["PUT"],
    ),
    "DSP": ("QUEUE", MODEL, lambda client, queue: dynamic(client), "make-dynamic", MODEL, []),
    "PUB": ("TOPIC", TOPIC, lambda client, queue: client.sender("topic://rates"), "publish", "rates", []),
    "SUB": ("TOPIC", TOPIC, lambda client, queue: client.receiver("topic://rates", credit=0), "subscribe", "rates", []),
}  # fmt: skip


@pytest.mark.parametrize("right", RIGHTS)
def test_without_a_right_it_is_2035_and_written_down_and_with_it_neither(qm, queue, right):
    kind, profile, action, audited, audited_object, besides = RIGHTS[right]
    profile = f"PROFILE({profile.format(queue=queue)})" if profile else ""
    record = f"SET AUTHREC {profile} OBJTYPE({kind}) PRINCIPAL('orders')"
    others = "".join(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD({one})\n" for one in besides)
    if right != "CONNECT":
        others += "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(CONNECT)\n"
    if right == "DSP":
        others += f"SET AUTHREC PROFILE({MODEL}) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(GET)\n"
    if others:
        qm.mqsc(others)
    told = Told(qm)
    try:
        assert reason(lambda: as_orders(qm, lambda client: action(client, queue))) == 2035
        entry = told.of(action=audited, object=audited_object.format(queue=queue), user="orders", reason=2035)
        assert f"no {right}" in entry["what"]["detail"]
        assert entry["who"]["address"].startswith("127.0.0.1:")
        qm.mqsc(f"{record} AUTHADD({right})")
        before = told.since()
        assert reason(lambda: as_orders(qm, lambda client: action(client, queue))) is None
        assert told.since() == before
        qm.mqsc(f"{record} AUTHRMV({right})")
        assert reason(lambda: as_orders(qm, lambda client: action(client, queue))) == 2035
    finally:
        qm.mqsc(f"{record} AUTHRMV(ALL)", code=None)
        qm.mqsc("DELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders')", code=None)


def test_to_act_as_another_without_the_right_is_2035_and_written_down(qm, queue):
    qm.mqsc(
        f"""
        SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(CONNECT)
        SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(PUT)
        """
    )
    told = Told(qm)
    assert "2035" in acting(qm, "orders", "billing", queue)
    entry = told.of(action="act-as", reason=2035)
    assert "no ALTUSR" in entry["what"]["detail"]
    qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(ALTUSR)")
    assert acting(qm, "orders", "billing", queue) == "accepted"
    qm.mqsc("DELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders')")


def test_to_delete_anothers_queue_without_the_right_is_2035_and_written_down(qm):
    qm.mqsc(
        """
        DEFINE QMODEL(LASTING) DEFTYPE(PERMDYN)
        SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(CONNECT)
        SET AUTHREC PROFILE(LASTING) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET, DSP)
        """
    )
    with qm.connect("billing") as maker, qm.connect("orders") as other:
        receiver, name = own_queue(maker, model="LASTING")
        receiver.close()
        qm.mqsc(f"SET AUTHREC PROFILE('{name}') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(GET)")
        told = Told(qm)
        delete = lambda: other.receiver(name, credit=0, asks=["bulla:delete-on-close"]).close()
        assert reason(delete) == 2035
        told.of(action="delete", object=name, user="orders", reason=2035)
        qm.mqsc(f"SET AUTHREC PROFILE('{name}') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(DLT)")
        assert reason(delete) is None
        assert reason(lambda: other.receiver(name, credit=0)) == 2085
    qm.mqsc("DELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders')")


# Each type of rule that keeps somebody out, and what the audit log says that it is.
RULES = {
    "ADDRESSMAP": ("TYPE(ADDRESSMAP) ADDRESS('127.0.0.1')", "USERSRC(NOACCESS)", "TYPE(ADDRESSMAP) ADDRESS(127.0.0.1)"),
    "USERMAP": ("TYPE(USERMAP) CLNTUSER('billing')", "USERSRC(NOACCESS)", "TYPE(USERMAP) CLNTUSER(billing)"),
    "SSLPEERMAP": ("TYPE(SSLPEERMAP) SSLPEER('CN=billing*,O=Demo')", "USERSRC(NOACCESS)", "TYPE(SSLPEERMAP)"),
    "BLOCKUSER": ("TYPE(BLOCKUSER) USERLIST('billing')", "", "TYPE(BLOCKUSER)"),
}


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_that_keeps_out_is_2035_and_written_down_and_one_that_warns_is_written_down(qm, queue, authority, kind):
    which, does, said = RULES[kind]
    identity = authority.issue("billing")
    qm.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET)")

    def get():
        connect = (lambda: by_certificate(qm, identity)) if kind == "SSLPEERMAP" else (lambda: qm.connect("billing"))
        with connect() as client:
            client.get_all(queue)

    assert reason(get) is None
    told = Told(qm)
    try:
        qm.mqsc(f"SET CHLAUTH({CLIENTS}) {which} {does}")
        assert reason(get) == 2035
        entry = told.of(action="connect", reason=2035)
        assert f"kept out by CHLAUTH({CLIENTS}) {said}" in entry["what"]["detail"] and "let_in" not in entry["what"]
        qm.mqsc(f"SET CHLAUTH({CLIENTS}) {which} {does} WARN(YES) ACTION(REPLACE)")
        assert reason(get) is None
        told.of(**{"let_in": True})
    finally:
        qm.mqsc(f"SET CHLAUTH({CLIENTS}) {which} ACTION(REMOVE)")
    after = Told(qm)
    assert reason(get) is None
    assert after.since() == []


def test_an_address_that_is_not_listened_to_is_written_down_and_told_nothing(qm):
    told = Told(qm)
    qm.mqsc("SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('127.0.0.*')")
    try:
        with pytest.raises(Refused) as caught:
            qm.connect("billing", timeout=5)
        assert "2035" not in str(caught.value)
        entry = told.of(action="connect", reason=2035)
        assert "TYPE(BLOCKADDR)" in entry["what"]["detail"] and entry["who"]["user"] is None
    finally:
        qm.mqsc("SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('127.0.0.*') ACTION(REMOVE)")
    qm.connect("billing").close()


def test_whoever_has_to_sign_in_and_does_not_is_written_down(qm, queue):
    qm.mqsc(
        f"""
        SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)
        SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(GET)
        """
    )

    def get():
        with qm.connect() as client:
            client.get_all(queue)

    assert reason(get) is None
    told = Told(qm)
    qm.mqsc("ALTER QMGR CHCKCLNT(REQUIRED)")
    try:
        assert reason(get) == 2035
        assert told.of(action="connect", reason=2035)["who"]["user"] is None
    finally:
        qm.mqsc("ALTER QMGR CHCKCLNT(OPTIONAL)\nDELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS')")
