"""Who may do what: each right with and without a record for it, what is refused then and how, and what the operator reads."""

import itertools
import json
import re

import pytest
from proton import ConnectionException, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container

from channels import RETRY, dead_letters, wait_for_status
from manager import ERROR_QUEUE, GRANTS, label, wait_until
from people import People
from proton_driver import Refused
from sites import clear
from test_queues import own_queue

MODEL = "SYSTEM.DEFAULT.MODEL.QUEUE"
EVENTS = "SYSTEM.ADMIN.QMGR.EVENT"
numbers = itertools.count(1)


def stop(manager):
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


@pytest.fixture(scope="module")
def qm(managers):
    """Users may connect, and do nothing else until a test lets them."""
    manager = managers(name="GUARDED", grants=None)
    for user in ("orders", "billing"):
        manager.add_user(user)
    manager.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)")
    yield manager
    stop(manager)


@pytest.fixture
def queue(qm):
    name = f"Q{next(numbers)}"
    qm.mqsc(f"DEFINE QLOCAL({name})")
    return name


@pytest.fixture
def orders(qm):
    with qm.connect("orders") as client:
        yield client


def allow(qm, profile, *rights, user="orders", kind="QUEUE"):
    qm.mqsc(f"SET AUTHREC PROFILE({profile}) OBJTYPE({kind}) PRINCIPAL('{user}') AUTHADD({','.join(rights)})")


def forbid(qm, profile, *rights, user="orders"):
    qm.mqsc(f"SET AUTHREC PROFILE({profile}) OBJTYPE(QUEUE) PRINCIPAL('{user}') AUTHRMV({','.join(rights or ['ALL'])})")


def refused(action):
    """The refusal, which is 2035 and nothing else."""
    with pytest.raises(Refused) as caught:
        action()
    assert caught.value.reason == 2035, caught.value
    assert caught.value.condition == "amqp:unauthorized-access"
    return caught.value.description


def turned_away(qm, user=None, **options):
    """A connection that is closed with 2035."""
    with pytest.raises((Refused, ConnectionException)) as caught:
        with qm.connect(user, **options) as client:
            client.receiver("ANY")
            client.receiver("OTHER")
    assert "2035 MQRC_NOT_AUTHORIZED" in str(caught.value)


def put(client, queue, body="barley", **fields):
    client.put(queue, Message(body=body, **fields))


# ---- the beginning, and who may connect


def test_a_new_queue_manager_lets_nobody_in_and_says_how_one_user_gets_in(managers):
    manager = managers("new", grants=None)
    manager.add_user("orders")
    manager.add_user("billing")
    manager.mqsc("DEFINE QLOCAL(Q)\nDEFINE QLOCAL(SECOND)")
    turned_away(manager)
    turned_away(manager, "orders")
    line = next(line for line in manager.log if "no authority record" in line)
    assert "ANONYMOUS" not in line and "**" not in line, line
    commands = re.findall(r"SET AUTHREC [^;]*AUTHADD\([^)]*\)", line)
    assert len(commands) == 2, line
    manager.mqsc("\n".join(commands).replace("'user'", "'orders'").replace("PROFILE(QUEUE)", "PROFILE(Q)"))
    with manager.connect("orders") as client:
        put(client, "Q")
        assert client.get("Q").body == "barley"
        refused(lambda: put(client, "SECOND"))
    turned_away(manager, "billing")
    turned_away(manager)
    assert manager.stop() == 0
    manager.start()
    with manager.connect("orders") as client:
        put(client, "Q")
    assert not [line for line in manager.log[-5:] if "no authority record" in line]
    stop(manager)


def test_definitions_from_before_there_was_authority_are_read_and_allow_nothing(managers, tmp_path):
    data = tmp_path / "old"
    data.mkdir(mode=0o700)
    (data / "objects.mqsc").write_text("* bulla objects, format 3, queue manager OLD\nDEFINE QLOCAL(Q)\n")
    manager = managers(data=data, grants=None)
    manager.says("no authority record: clients can't connect")
    turned_away(manager)
    manager.mqsc(GRANTS)
    with manager.connect() as client:
        put(client, "Q")
    manager.mqsc("PING QMGR")
    assert (data / "objects.mqsc").read_text().startswith("* bulla objects, format 4, queue manager OLD\n")
    stop(manager)


def test_connect_is_asked_of_each_user_and_of_whoever_has_not_signed_in(managers):
    manager = managers("connect", grants=None)
    for user in ("orders", "billing"):
        manager.add_user(user)
    manager.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(CONNECT)")
    manager.connect("orders").close()
    turned_away(manager, "billing")
    turned_away(manager)
    manager.says("user billing: 2035 MQRC_NOT_AUTHORIZED BULLA: no CONNECT")
    manager.says("user *ANONYMOUS: 2035 MQRC_NOT_AUTHORIZED BULLA: no CONNECT")
    manager.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)")
    manager.connect("billing").close()
    turned_away(manager)
    manager.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)")
    manager.connect().close()
    with manager.connect("billing") as client:
        manager.mqsc("DELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('*')")
        with pytest.raises(ConnectionException, match="2035"):
            client.connection.wait(lambda: False, timeout=20)
    stop(manager)


# ---- queues


RIGHTS = {
    "PUT": lambda client, queue: put(client, queue),
    "GET": lambda client, queue: client.get_all(queue),
    "BROWSE": lambda client, queue: client.get_all(queue, browse=True),
}


@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_allows_one_thing(qm, queue, orders, right):
    for other in RIGHTS:
        refused(lambda: RIGHTS[other](orders, queue))
    allow(qm, queue, right)
    RIGHTS[right](orders, queue)
    for other in RIGHTS.keys() - {right}:
        assert f"{queue}: no {other}" in refused(lambda: RIGHTS[other](orders, queue))
    forbid(qm, queue, right)
    refused(lambda: RIGHTS[right](orders, queue))


@pytest.mark.parametrize("right", RIGHTS)
def test_a_queue_that_is_not_there_looks_like_one_that_is_forbidden(qm, queue, orders, right):
    there = refused(lambda: RIGHTS[right](orders, queue))
    missing = refused(lambda: RIGHTS[right](orders, "NOT.THERE"))
    assert there.replace(queue, "NOT.THERE") == missing
    allow(qm, "NOT.*", right)
    with pytest.raises(Refused) as caught:
        RIGHTS[right](orders, "NOT.THERE")
    assert caught.value.reason == 2085
    forbid(qm, "NOT.*")


def test_the_name_that_is_opened_counts(qm, queue, orders):
    alias = f"{queue}.ALIAS"
    qm.mqsc(f"DEFINE QALIAS({alias}) TARGET({queue})")
    allow(qm, alias, "PUT", "GET")
    put(orders, alias)
    assert orders.get(alias).body == "barley"
    refused(lambda: put(orders, queue))
    refused(lambda: put(orders, f"{queue}@GUARDED"))
    allow(qm, queue, "PUT")
    put(orders, f"{queue}@GUARDED")
    forbid(qm, alias)
    refused(lambda: put(orders, alias))


def test_a_remote_queue_is_a_name_like_any_other_and_another_queue_manager_is_one_too(qm, queue, orders):
    far, there = f"FAR{next(numbers)}", f"QM{next(numbers)}"
    qm.mqsc(
        f"""
        DEFINE QLOCAL({there}) USAGE(XMITQ)
        DEFINE QREMOTE({far}) RNAME(R) RQMNAME({there})
        DEFINE QREMOTE({queue}.HOME) RQMNAME(GUARDED)
        """
    )
    refused(lambda: put(orders, far))
    allow(qm, far, "PUT")
    put(orders, far)
    refused(lambda: put(orders, f"R@{there}"))
    allow(qm, there, "PUT")
    put(orders, f"R@{there}")
    assert qm.depth(there) == 2
    # An alias of this very queue manager opens its queues, and a right on the alias is none on them.
    allow(qm, f"{queue}.HOME", "PUT")
    refused(lambda: put(orders, f"{queue}@{queue}.HOME"))
    allow(qm, queue, "PUT")
    put(orders, f"{queue}@{queue}.HOME")
    assert qm.depth(queue) == 1


def test_patterns_and_groups_count_as_in_mq(qm, queue, orders):
    group = f"G{next(numbers)}"
    qm.mqsc(f"DEFINE QLOCAL({queue}.A)\nDEFINE QLOCAL({queue}.A.B)\nDEFINE GROUP({group}) MEMBERS('orders')")
    allow(qm, f"{queue}.*", "PUT")
    put(orders, f"{queue}.A")
    refused(lambda: put(orders, f"{queue}.A.B"))
    allow(qm, f"{queue}.**", "PUT")
    put(orders, f"{queue}.A.B")
    allow(qm, f"{queue}.A.B", "NONE")
    refused(lambda: put(orders, f"{queue}.A.B"))
    qm.mqsc(f"SET AUTHREC PROFILE({queue}.A.B) OBJTYPE(QUEUE) GROUP({group}) AUTHADD(PUT)")
    put(orders, f"{queue}.A.B")
    qm.mqsc(f"ALTER GROUP({group}) MEMBERS('billing')")
    refused(lambda: put(orders, f"{queue}.A.B"))
    for user in ("orders", "*"):
        forbid(qm, f"{queue}.*", user=user)
        forbid(qm, f"{queue}.**", user=user)


def test_whoever_has_not_signed_in_has_a_name_of_its_own(qm, queue):
    with qm.connect() as nobody:
        allow(qm, queue, "PUT", user="*")
        refused(lambda: put(nobody, queue))
        with qm.connect("billing") as billing:
            put(billing, queue)
        allow(qm, queue, "PUT", user="*ANONYMOUS")
        put(nobody, queue)


def test_a_relay_is_asked_for_each_message(qm, queue, orders):
    other = f"{queue}.OTHER"
    qm.mqsc(f"DEFINE QLOCAL({other})")
    allow(qm, queue, "PUT")
    relay = orders.sender(None)
    send = lambda to: orders.put(None, Message(address=to, body="barley"), relay)
    for _ in range(3):
        send(queue)
    assert f"{other}: no PUT" in refused(lambda: send(other))
    refused(lambda: send("NOT.THERE"))
    send(queue)
    forbid(qm, queue)
    refused(lambda: send(queue))
    allow(qm, other, "PUT")
    send(other)
    assert (qm.depth(queue), qm.depth(other)) == (4, 1)


def test_a_message_names_its_own_user_or_none(qm, queue, orders):
    allow(qm, queue, "PUT", "GET")
    relay = orders.sender(None)
    for user in (b"", b"orders"):
        put(orders, queue, user_id=user)
        orders.put(None, Message(address=queue, user_id=user), relay)
    for user in (b"billing", b"order", b"orders2"):
        assert "no SETID" in refused(lambda: put(orders, queue, user_id=user))
        refused(lambda: orders.put(None, Message(address=queue, user_id=user), relay))
    allow(qm, queue, "SETID")
    put(orders, queue, user_id=b"billing")
    orders.put(None, Message(address=queue, user_id=b"billing"), relay)
    assert [message.user_id for message in orders.get_all(queue)].count(b"billing") == 2
    with qm.connect() as nobody:
        allow(qm, queue, "PUT", user="*ANONYMOUS")
        put(nobody, queue)
        refused(lambda: put(nobody, queue, user_id=b"orders"))


def test_a_dynamic_queue_is_its_maker_s(qm, orders):
    make = lambda client: client.connection.create_receiver(None, name=f"d{next(numbers)}", dynamic=True)
    detached = lambda: orders._link(lambda: make(orders))
    refused(detached)
    allow(qm, MODEL, "GET")
    assert "no DSP" in refused(detached)
    allow(qm, MODEL, "DSP")
    forbid(qm, MODEL, "GET")
    assert "no GET" in refused(detached)
    allow(qm, MODEL, "GET")
    receiver = make(orders)
    name = receiver.link.remote_source.address
    put(orders, name)
    assert receiver.receive(timeout=20).body == "barley"
    receiver.accept()
    with qm.connect("orders") as again, qm.connect("billing") as billing, qm.connect() as nobody:
        put(again, name, user_id=b"anybody")
        for client in (billing, nobody):
            refused(lambda client=client: put(client, name))
        allow(qm, "BULLA.DYNAMIC.*", "PUT", user="billing")
        put(billing, name)
        # Of whoever has not signed in the connection is the owner.
        allow(qm, MODEL, "GET", "DSP", user="*ANONYMOUS")
        own = make(nobody).link.remote_source.address
        put(nobody, own)
        with qm.connect() as stranger:
            refused(lambda: put(stranger, own))


def test_a_dynamic_queue_of_a_whole_name_takes_the_right_on_that_name(qm, orders):
    allow(qm, MODEL, "GET", "DSP")
    name = f"MINE{next(numbers)}"
    qm.mqsc(f"DEFINE QLOCAL({name}.THERE)")
    for asked in (name, f"{name}.THERE"):
        # Whether there is such a queue is not to be learnt either.
        assert f"{asked}: no GET" in refused(lambda asked=asked: own_queue(orders, name=asked))
    allow(qm, name, "GET")
    # Its maker may put there, too.
    assert f"{name}: no PUT" in refused(lambda: own_queue(orders, name=name))
    allow(qm, name, "PUT")
    receiver, made = own_queue(orders, name=name)
    assert made == name
    receiver.close()


def test_the_rights_of_a_dynamic_queue_s_maker_end_with_it(qm, orders):
    allow(qm, MODEL, "GET", "DSP")
    name = f"PAYROLL{next(numbers)}"
    allow(qm, name, "GET", "PUT")
    own, _ = own_queue(orders, name=name)
    forbid(qm, name, "PUT")
    sender, relay = orders.sender(name), orders.sender(None)
    orders.put(name, Message(user_id=b"anybody"), sender)
    orders.put(None, Message(address=name, user_id=b"anybody"), relay)
    own.close()
    qm.mqsc(f"DEFINE QLOCAL({name})")
    for user in (b"orders", b"anybody"):
        refused(lambda: orders.put(name, Message(user_id=user), sender))
        refused(lambda: orders.put(None, Message(address=name, user_id=user), relay))
    assert qm.depth(name) == 0


def test_inq_is_to_be_told_of_the_policy(qm, queue, orders):
    qm.mqsc(f"SET POLICY({queue}) SIGNALG(SHA256) SEALEDAT(ANY) TOLERATE")
    allow(qm, queue, "BROWSE")
    told = lambda: {
        str(key): value for key, value in (orders.receiver(queue, credit=0, browse=True, sealed=True).link.remote_properties or {}).items()
    }
    assert "bulla:policy" not in told()
    allow(qm, queue, "INQ")
    assert told()["bulla:policy"].startswith(f"SET POLICY('{queue}')")


def test_who_opens_a_defective_message_needs_no_right_on_the_error_queue(qm, authority, queue):
    people = People(qm, authority)
    people.add("reader")
    qm.mqsc(
        f"""
        DEFINE QALIAS({queue}.RAW) TARGET({queue})
        SET POLICY({queue}) SIGNALG(SHA256)
        """
    )
    allow(qm, f"{queue}.RAW", "PUT")
    allow(qm, queue, "GET", user="reader")
    with qm.connect("orders") as orders, qm.connect("reader") as reader:
        orders.put(f"{queue}.RAW", clear())
        assert reader.get_all(queue) == []
        qm.wait_for_depth(ERROR_QUEUE, 1)
        refused(lambda: reader.get_all(ERROR_QUEUE))
        refused(lambda: reader.put(ERROR_QUEUE, clear()))


# ---- acting as somebody else


class As(MessagingHandler):
    """Signs in as one user to act as another, and puts once."""

    def __init__(self, qm, user, other, queue):
        super().__init__()
        self.qm, self.user, self.other, self.queue = qm, user, other, queue
        self.outcome = None

    def on_start(self, event):
        connection = event.container.connect(
            self.qm.amqp, user=self.user, password=self.qm.passwords[self.user], allowed_mechs="PLAIN",
            allow_insecure_mechs=True, reconnect=False,
        )  # fmt: skip
        connection.authorization = self.other
        event.container.create_sender(connection, self.queue)

    def on_sendable(self, event):
        if self.outcome is None:
            self.outcome = "sent"
            event.sender.send(Message(body="barley", user_id=self.other.encode()))

    def end(self, event, outcome):
        self.outcome = outcome
        event.connection.close()

    def on_accepted(self, event):
        self.end(event, "accepted")

    def on_rejected(self, event):
        self.end(event, event.delivery.remote.condition.description)

    def on_link_error(self, event):
        self.end(event, event.link.remote_condition.description)

    def on_connection_error(self, event):
        self.end(event, event.connection.remote_condition.description)

    def on_transport_error(self, event):
        self.end(event, str(event.transport.condition))


class Pretends(MessagingHandler):
    """Says that it has channels, and attaches none."""

    def __init__(self, qm):
        super().__init__()
        self.qm, self.told = qm, ""

    def on_start(self, event):
        self.connection = event.container.connect(self.qm.amqp, reconnect=False)
        self.connection.offered_capabilities = [symbol("bulla:channel")]
        self.deadline = event.container.schedule(60, self)

    def on_connection_error(self, event):
        self.told = event.connection.remote_condition.description
        event.connection.close()
        self.deadline.cancel()

    def on_timer_task(self, event):
        self.connection.close()


def test_whoever_says_it_has_channels_and_has_none_is_a_client_like_any_other(managers):
    manager = managers(name="SHUT", grants=None)
    manager.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(CONNECT)")
    handler = Pretends(manager)
    Container(handler).run()
    assert "2035 MQRC_NOT_AUTHORIZED" in handler.told, handler.told
    stop(manager)


def acting(qm, user, other, queue):
    handler = As(qm, user, other, queue)
    Container(handler).run()
    return handler.outcome


def test_acting_as_another_user_takes_altusr_and_then_the_other_s_rights_count(qm, queue):
    allow(qm, queue, "PUT", user="billing")
    assert "no ALTUSR" in acting(qm, "orders", "billing", queue)
    qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders') AUTHADD(ALTUSR)")
    assert acting(qm, "orders", "billing", queue) == "accepted"
    forbid(qm, queue, user="billing")
    allow(qm, queue, "PUT", user="orders")
    assert "2035" in acting(qm, "orders", "billing", queue)
    assert acting(qm, "orders", "orders", queue) == "accepted"
    qm.mqsc("DELETE AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders')")


# ---- what is open when rights change


def test_a_link_ends_when_its_right_goes(qm, queue, orders):
    allow(qm, queue, "PUT", "GET", "BROWSE")
    sender = orders.sender(queue)
    receivers = [orders.receiver(queue), orders.receiver(queue, browse=True)]
    orders.put(queue, Message(), sender)
    allow(qm, "SOMETHING.ELSE", "PUT")
    orders.put(queue, Message(), sender)
    forbid(qm, queue, "BROWSE")
    refused(lambda: receivers[1].wait_for(99))
    orders.put(queue, Message(), sender)
    forbid(qm, queue, "GET")
    refused(lambda: receivers[0].wait_for(99))
    forbid(qm, queue, "PUT")
    refused(lambda: orders.put(queue, Message(), sender))
    # What the reader had not settled is on the queue again.
    assert qm.depth(queue) == 3


def test_a_link_ends_when_an_alias_of_a_queue_manager_leads_home(qm, queue, orders):
    far, there = f"FAR{next(numbers)}", f"QM{next(numbers)}"
    qm.mqsc(f"DEFINE QLOCAL({there}) USAGE(XMITQ)\nDEFINE QREMOTE({far}) RQMNAME({there})")
    allow(qm, far, "PUT")
    sender = orders.sender(f"{queue}@{far}")
    orders.put(None, Message(body="barley"), sender)
    assert qm.depth(there) == 1
    qm.mqsc(f"ALTER QREMOTE({far}) RQMNAME(GUARDED)")
    refused(lambda: orders.put(None, Message(body="barley"), sender))
    assert qm.depth(queue) == 0


def test_the_operator_reads_who_was_refused_what_and_a_flood_is_a_few_lines(qm, queue, orders):
    refused(lambda: put(orders, queue))
    line = f"user orders: 2035 MQRC_NOT_AUTHORIZED {queue}: no PUT"
    wait_until(lambda: [found for found in qm.log if line in found], line)
    found = next(found for found in qm.log if line in found)
    assert re.search(r" warn 127\.0\.0\.1:\d+ user orders: ", found)
    before = len(qm.log)
    for _ in range(300):
        refused(lambda: orders.sender(queue))
    wait_until(lambda: any("more refusals by authority" in line for line in qm.log[before:]), "the flood is counted")
    assert len(qm.log) - before < 300


def test_a_refusal_is_an_event_where_the_administrator_wants_events(qm, queue, orders):
    allow(qm, EVENTS, "GET", user="billing")
    qm.mqsc("ALTER QMGR AUTHOREV(ENABLED)")
    refused(lambda: put(orders, queue))
    qm.wait_for_depth(EVENTS, 1)
    qm.mqsc("ALTER QMGR AUTHOREV(DISABLED)")
    with qm.connect("billing") as billing:
        event = json.loads(bytes(billing.get(EVENTS).body))
    assert (event["event"], event["reason"]) == ("NOT.AUTHORIZED", 2035)
    assert (event["user"], event["action"], event["object"]) == ("orders", "put", queue)
    assert event["address"].startswith("127.0.0.1:")


def test_a_report_goes_only_where_its_asker_may_put(qm, queue, orders):
    answers = f"{queue}.ANSWERS"
    qm.mqsc(f"DEFINE QLOCAL({answers})")
    allow(qm, queue, "PUT")
    ask = {"reply_to": answers, "properties": {"JMS_IBM_Report_COA": 256}}
    assert f"{answers}: no PUT" in refused(lambda: put(orders, queue, **ask))
    allow(qm, answers, "PUT")
    put(orders, queue, **ask)
    qm.wait_for_depth(answers, 1)


# ---- channels


@pytest.fixture(scope="module")
def pair(managers):
    pair = managers(name="QM1"), managers(name="QM2", grants=None)
    pair[1].mqsc(
        """
        SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)
        SET AUTHREC PROFILE(SYSTEM.DEAD.LETTER.QUEUE) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(GET)
        """
    )
    yield pair
    for manager in pair:
        stop(manager)


def defined(pair, receiver=""):
    near, far = pair
    number = next(numbers)
    remote, transmission, target, channel = f"R{number}", f"X{number}", f"T{number}", f"C{number}"
    far.mqsc(f"DEFINE QLOCAL({target})\nDEFINE CHANNEL({channel}) CHLTYPE(RCVR) MRRTY(0) {receiver}")
    near.mqsc(
        f"""
        DEFINE QLOCAL({transmission}) USAGE(XMITQ)
        DEFINE QREMOTE({remote}) RNAME({target}) RQMNAME(QM2) XMITQ({transmission})
        DEFINE CHANNEL({channel}) CHLTYPE(SDR) CONNAME('127.0.0.1({far.ports["amqp"]})') XMITQ({transmission}) {RETRY}
        START CHANNEL({channel})
        """
    )
    return remote, target, channel


@pytest.mark.parametrize(("receiver", "user"), [("", "QM2"), ("MCAUSER('border')", "border")])
def test_a_channel_puts_what_its_user_may_put_and_the_rest_is_a_dead_letter(pair, receiver, user):
    near, far = pair
    remote, target, channel = defined(pair, receiver)
    send = lambda **fields: near.connect().put(remote, Message(body="barley", durable=True, **fields))
    send()
    wait_until(lambda: far.depth("SYSTEM.DEAD.LETTER.QUEUE") == 1, "a dead letter")
    [dead] = dead_letters(far)
    assert (label(dead)["reason"], label(dead)["queue"]) == (2035, target)
    far.says(f"a channel's user {user}: 2035 MQRC_NOT_AUTHORIZED {target}@QM2: no PUT")
    allow(far, target, "PUT", user=user)
    send()
    far.wait_for_depth(target, 1)
    send(user_id=user.encode())
    far.wait_for_depth(target, 2)
    send(user_id=b"orders")
    wait_until(lambda: far.depth("SYSTEM.DEAD.LETTER.QUEUE") == 1, "another dead letter")
    [dead] = dead_letters(far)
    assert label(dead)["reason"] == 2035
    allow(far, target, "SETID", user=user)
    send(user_id=b"orders")
    far.wait_for_depth(target, 3)
    forbid(far, target, user=user)
    send()
    wait_until(lambda: len(dead_letters(far)) == 1, "the channel goes on, without the right")
    near.mqsc(f"STOP CHANNEL({channel})")


def test_a_partner_needs_no_connect_for_its_channel_and_gets_nothing_else(pair):
    near, far = pair
    far.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHRMV(CONNECT)")
    remote, target, channel = defined(pair)
    allow(far, target, "PUT", user="QM2")
    near.connect().put(remote, Message(body="barley"))
    far.wait_for_depth(target, 1)
    turned_away(far)
    far.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)")
    near.mqsc(f"STOP CHANNEL({channel})")


def test_a_requester_has_a_server_channel_started_where_its_user_has_ctrl(pair):
    near, far = pair
    number = next(numbers)
    channel, target = f"C{number}", f"T{number}"
    near.mqsc(f"DEFINE QLOCAL({target})")
    far.mqsc(
        f"""
        DEFINE QLOCAL(X{number}) USAGE(XMITQ)
        DEFINE QREMOTE(R{number}) RNAME({target}) RQMNAME(QM1) XMITQ(X{number})
        DEFINE CHANNEL({channel}) CHLTYPE(SVR) XMITQ(X{number})
        SET AUTHREC PROFILE(R{number}) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(PUT)
        """
    )
    with far.connect() as client:
        put(client, f"R{number}")
    near.mqsc(
        f"""
        DEFINE CHANNEL({channel}) CHLTYPE(RQSTR) CONNAME('127.0.0.1({far.ports["amqp"]})')
        START CHANNEL({channel})
        """
    )
    line = f"user QM2: 2035 MQRC_NOT_AUTHORIZED {channel}: no CTRL"
    wait_until(lambda: any(line in found for found in far.log), line)
    audited = lambda: far.run("audit", "show", "--json", "--kind", "refusal", "--data", far.data).stdout.decode()
    wait_until(lambda: f'"action":"start","object":"{channel}","reason":2035' in audited(), "the audit log has it")
    near.mqsc(f"STOP CHANNEL({channel}) STATUS(INACTIVE)", code=None)
    wait_for_status(near, channel, "INACTIVE")
    allow(far, channel, "CTRL", user="QM2", kind="CHANNEL")
    near.mqsc(f"START CHANNEL({channel})")
    near.wait_for_depth(target, 1)
    near.mqsc(f"STOP CHANNEL({channel})")
