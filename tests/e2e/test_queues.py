"""What a queue does beside put and get: who may get from it, and what its switches do to links that are open."""

import threading

import pytest
from proton import Delivery, Described, Message, int32, symbol, ulong
from proton.reactor import DynamicNodeProperties
from proton.utils import LinkDetached

from channels import Route
from manager import DEAD_LETTER_QUEUE, DEADLINE, label, wait_until
from proton_driver import Asks, Refused
from test_clients import drive

EXCLUSIVE, SHARED = "bulla:exclusive", "bulla:shared"


@pytest.fixture
def client(qm):
    with qm.connect() as client:
        yield client


def refused(make):
    with pytest.raises(Refused) as error:
        make()
    return error.value.reason


def in_thread(work):
    """What the work returns or raises, once it is joined."""
    found = []

    def run():
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def joined():
        thread.join(DEADLINE)
        assert found, "it still waits"
        return found[0]

    return joined


def reason_of(detached):
    if isinstance(detached, Refused):
        return detached.reason
    assert isinstance(detached, LinkDetached), detached
    return Refused.from_condition(detached.link.remote_condition).reason


def test_on_a_queue_with_noshare_the_second_one_that_gets_is_refused(qm, client):
    qm.mqsc("DEFINE QLOCAL(ALONE) NOSHARE REPLACE")
    first = client.receiver("ALONE")
    assert refused(lambda: client.receiver("ALONE")) == 2042
    assert refused(lambda: client.receiver("ALONE", asks=[SHARED])) == 2042
    client.receiver("ALONE", browse=True).close()
    client.put("ALONE", Message(body="x"))
    assert first.next().body == "x"
    first.close()
    client.receiver("ALONE").close()


def test_a_link_may_ask_to_get_alone_and_nobody_joins_it(qm, client):
    qm.mqsc("DEFINE QLOCAL(SHARED) REPLACE")
    other = client.receiver("SHARED")
    assert refused(lambda: client.receiver("SHARED", asks=[EXCLUSIVE])) == 2042
    other.close()
    alone = client.receiver("SHARED", asks=[EXCLUSIVE])
    assert refused(lambda: client.receiver("SHARED")) == 2042
    alone.close()
    client.receiver("SHARED").close()
    assert refused(lambda: client.receiver("SHARED", asks=[EXCLUSIVE, SHARED])) == 2046


def test_defsopt_is_for_links_that_do_not_say(qm, client):
    qm.mqsc("DEFINE QLOCAL(MOSTLY) DEFSOPT(EXCL) REPLACE")
    alone = client.receiver("MOSTLY")
    assert refused(lambda: client.receiver("MOSTLY", asks=[SHARED])) == 2042
    alone.close()
    shared = [client.receiver("MOSTLY", asks=[SHARED]) for _ in range(2)]
    assert refused(lambda: client.receiver("MOSTLY")) == 2042
    assert qm.status("MOSTLY")["IPPROCS"] == 2
    for receiver in shared:
        receiver.close()


def test_a_connection_that_dies_leaves_the_queue_to_others(qm):
    qm.mqsc("DEFINE QLOCAL(LEFT) NOSHARE REPLACE")
    dead = qm.connect()
    dead.receiver("LEFT")
    dead.abandon()

    def taken():
        with qm.connect() as client:
            try:
                client.receiver("LEFT").close()
            except Refused as error:
                assert error.reason == 2042
                return False
            return True

    wait_until(taken, "somebody else may get")


def test_get_disabled_wakes_whoever_waits_for_a_message(qm, client):
    qm.mqsc("DEFINE QLOCAL(G) REPLACE")
    receiver = client.receiver("G", credit=1)
    waits = in_thread(lambda: receiver.next(DEADLINE))
    wait_until(lambda: qm.status("G")["IPPROCS"] == 1, "it is open")
    qm.mqsc("ALTER QLOCAL(G) GET(DISABLED)")
    assert reason_of(waits()) == 2016
    assert refused(lambda: client.receiver("G")) == 2016


def test_put_disabled_wakes_whoever_waits_for_room_and_refuses_what_is_put(qm):
    qm.mqsc("DEFINE QLOCAL(P) MAXDEPTH(2) FULL(WAIT) REPLACE")
    with qm.connect() as waiting, qm.connect() as other:
        sender = waiting.sender("P")
        for number in range(2):
            waiting.put("P", Message(body=number), sender)
        waits = in_thread(lambda: sender.send(Message(body="late"), timeout=DEADLINE))
        qm.mqsc("DEFINE QLOCAL(OPEN) REPLACE")
        known = other.sender("OPEN")
        qm.mqsc("ALTER QLOCAL(P) PUT(DISABLED)")
        assert reason_of(waits()) == 2051
        # Who has credit keeps the link, and each message is answered.
        qm.mqsc("ALTER QLOCAL(OPEN) PUT(DISABLED)")
        assert refused(lambda: other.put("OPEN", Message(body="x"), known)) == 2051
        qm.mqsc("ALTER QLOCAL(OPEN) PUT(ENABLED)")
        other.put("OPEN", Message(body="x"), known)
        assert qm.depth("OPEN") == 1


def test_whoever_waits_for_room_follows_the_alias_to_another_queue(qm):
    qm.mqsc("""
        DEFINE QLOCAL(WAS.FULL) MAXDEPTH(1) FULL(WAIT) REPLACE
        DEFINE QLOCAL(HAS.ROOM) REPLACE
        DEFINE QALIAS(TURNED) TARGET(WAS.FULL) REPLACE
    """)
    with qm.connect() as client:
        sender = client.sender("TURNED")
        client.put("TURNED", Message(body="one"), sender)
        waits = in_thread(lambda: sender.send(Message(body="two"), timeout=DEADLINE))
        qm.mqsc("ALTER QALIAS(TURNED) TARGET(HAS.ROOM)")
        assert not isinstance(waits(), Exception)
        assert (qm.depth("WAS.FULL"), qm.depth("HAS.ROOM")) == (1, 1)
        client.put("TURNED", Message(body="three"), sender)


def test_an_open_queue_is_not_deleted_and_an_emptied_one_is(qm, client):
    qm.mqsc("DEFINE QLOCAL(D)")
    client.put("D", Message(body="x"))
    receiver = client.receiver("D", credit=0)
    assert "2042" in qm.mqsc("DELETE QLOCAL(D)", code=4)
    assert "2042" in qm.mqsc("DELETE QLOCAL(D) PURGE", code=4)
    receiver.close()
    assert "2055" in qm.mqsc("DELETE QLOCAL(D)", code=4)
    qm.mqsc("DELETE QLOCAL(D) PURGE")
    assert refused(lambda: client.receiver("D")) == 2085


DELETE_ON_CLOSE = 0x2B


def own_queue(client, *options, **properties):
    """A receiver on a queue made for it that goes with it, and the queue's name."""
    given = {symbol("bulla:" + key): value for key, value in properties.items()}
    given[symbol("lifetime-policy")] = Described(ulong(DELETE_ON_CLOSE), [])
    options += (DynamicNodeProperties(given),)
    try:
        receiver = client.connection.create_receiver(None, dynamic=True, options=list(options))
    except LinkDetached as error:
        raise Refused.from_condition(error.link.remote_condition) from error
    return receiver, receiver.link.remote_source.address


def test_a_queue_made_for_a_link_is_like_its_model_and_goes_with_the_link(qm, client):
    qm.mqsc("DEFINE QMODEL(SMALL) MAXDEPTH(1) FULL(REJECT) NOSHARE REPLACE")
    receiver, name = own_queue(client, model="SMALL")
    assert name.startswith("BULLA.DYNAMIC.")
    assert refused(lambda: client.receiver(name)) == 2042
    client.put(name, Message(body="one"))
    assert receiver.receive(timeout=DEADLINE).body == "one"
    receiver.accept()
    receiver.close()
    assert refused(lambda: client.sender(name)) == 2085


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_other_links_to_a_queue_that_goes_with_its_link_are_ended_with_2052(qm, how):
    qm.mqsc("DEFINE QMODEL(NARROW) MAXDEPTH(1) FULL(WAIT) REPLACE\nDEFINE QLOCAL(BESIDE) REPLACE")
    owner = qm.connect()
    receiver, name = own_queue(owner, model="NARROW")
    with qm.connect() as other, qm.connect() as third:
        getting, browsing, idle = third.receiver(name), third.receiver(name, browse=True), third.receiver(name, credit=0)
        sender = other.sender(name)
        other.put(name, Message(body="fills it"), sender)
        assert getting.next(accept=False).body == "fills it"
        waits = in_thread(lambda: other.put(name, Message(body="one too many"), sender))
        if how == "closed":
            receiver.close()
        else:
            owner.abandon()
        assert reason_of(waits()) == 2052
        for link in getting, browsing, idle:
            assert refused(lambda link=link: link.wait_for(2, DEADLINE)) == 2052
        # Nothing else of these connections ended.
        third.put("BESIDE", Message(body="goes on"))
        assert other.get("BESIDE").body == "goes on"
    owner.close()


def test_a_name_may_be_begun_or_given_whole(qm, client):
    qm.mqsc("DEFINE QMODEL(SMALL) MAXDEPTH(1) REPLACE")
    receiver, name = own_queue(client, model="SMALL", name="REPLIES.*")
    assert name.startswith("REPLIES.") and len(name) > len("REPLIES.")
    receiver.close()
    receiver, name = own_queue(client, name="exactly.this")
    assert name == "exactly.this"
    assert refused(lambda: own_queue(client, name="exactly.this")) == 2100
    receiver.close()


def test_a_temporary_queue_s_name_is_not_given_to_another_object(qm, client):
    qm.mqsc("DEFINE QLOCAL(PAYROLL)\nDEFINE QLOCAL(PAYROLL.X) USAGE(XMITQ)")
    receiver, _ = own_queue(client, name="ADMINQ")
    for command in (
        "DEFINE QALIAS(ADMINQ) TARGET(PAYROLL)",
        "DEFINE QREMOTE(ADMINQ) RNAME(PAYROLL) RQMNAME(FAR) XMITQ(PAYROLL.X)",
        "DEFINE QLOCAL(ADMINQ)",
        "DEFINE QMODEL(ADMINQ)",
    ):
        assert "2042" in qm.mqsc(command, code=4), command
    receiver.close()
    wait_until(lambda: "defined" in qm.mqsc("DEFINE QALIAS(ADMINQ) TARGET(PAYROLL)", code=None), "the name is free")


def test_a_name_that_can_not_be_is_refused_and_leaves_nothing(qm, client):
    for name in ["A B*", "X" * 33 + "*", "*A*", "SYSTEM.X*", "SYSTEM.X", "A B"]:
        assert refused(lambda name=name: own_queue(client, name=name)) == 2011, name
    assert refused(lambda: own_queue(client, model="NONE")) == 2085
    assert refused(lambda: client.receiver("SYSTEM.DEFAULT.MODEL.QUEUE")) == 2057
    assert refused(lambda: own_queue(client, Asks(EXCLUSIVE, SHARED), name="left.over")) == 2046
    receiver, _ = own_queue(client, name="left.over")
    receiver.close()


def test_a_permanent_queue_made_for_a_link_outlives_it_and_the_queue_manager(managers):
    manager = managers()
    manager.mqsc("DEFINE QMODEL(INBOX) DEFTYPE(PERMDYN) MAXDEPTH(77) DEFPSIST(YES)")
    with manager.connect() as client:
        receiver, name = own_queue(client, model="INBOX", name="INBOX.*")
        receiver.close()
        client.put(name, Message(body="kept", durable=True))
    shown = manager.mqsc(f"DISPLAY QLOCAL('{name}') DEFTYPE MAXDEPTH")
    assert "DEFTYPE(PERMDYN)" in shown and "MAXDEPTH(77)" in shown
    manager.kill()
    manager.start()
    with manager.connect() as client:
        assert [message.body for message in client.get_all(name)] == ["kept"]
    manager.mqsc(f"DELETE QLOCAL('{name}')")
    assert manager.stop() == 0


def test_a_refused_link_leaves_no_permanent_queue(qm, client):
    qm.mqsc("DEFINE QMODEL(INBOX) DEFTYPE(PERMDYN) REPLACE")
    assert refused(lambda: own_queue(client, Asks(EXCLUSIVE, SHARED), model="INBOX", name="LEFT.OVER")) == 2046
    assert "2085" in qm.mqsc("DISPLAY QLOCAL(LEFT.OVER)", code=4)
    qm.mqsc("PING QMGR")
    assert "LEFT.OVER" not in (qm.data / "objects.mqsc").read_text()


def test_a_permanent_queue_goes_when_its_last_link_asks_for_that_on_closing(qm, client):
    qm.mqsc("DEFINE QMODEL(INBOX) DEFTYPE(PERMDYN) REPLACE")
    _, name = own_queue(client, model="INBOX")
    other = qm.connect()
    deleting = other.receiver(name, credit=0, asks=["bulla:delete-on-close"])
    client.put(name, Message(body="x"))
    deleting.close()  # it is open elsewhere, and not empty: it stays
    assert qm.depth(name) == 1
    client.close()
    wait_until(lambda: qm.status(name)["IPPROCS"] == 0, "nobody has it open")
    other.receiver(name, credit=0, asks=["bulla:delete-on-close"]).close()
    assert qm.depth(name) == 1
    # A connection that is lost says nothing of what it wanted.
    lost = qm.connect()
    lost.receiver(name, credit=0, asks=["bulla:purge-on-close"])
    lost.abandon()
    wait_until(lambda: qm.status(name)["IPPROCS"] == 0, "the lost link is gone")
    assert qm.depth(name) == 1
    other.receiver(name, credit=0, asks=["bulla:purge-on-close"]).close()
    assert refused(lambda: other.receiver(name)) == 2085
    assert "2085" in qm.mqsc(f"DISPLAY QLOCAL('{name}')", code=4)
    assert refused(lambda: other.receiver("SHARED", asks=["bulla:purge-on-close"])) == 2045
    other.close()


def test_the_default_model_is_that_of_jms_temporary_queues(qm):
    qm.mqsc("DEFINE QLOCAL(ASK) REPLACE\nALTER QMODEL(SYSTEM.DEFAULT.MODEL.QUEUE) MAXDEPTH(9)")
    answers = []
    asking = threading.Thread(target=lambda: answers.extend(drive(qm, "jms", "request", "ASK", "--count", "2")))
    asking.start()
    asked = drive(qm, "jms", "reply", "ASK", "--count", "2")
    asking.join(DEADLINE)
    assert [answer["correlation_id"] for answer in answers] == [message["message_id"] for message in asked]
    assert "2042" in qm.mqsc("DELETE QMODEL(SYSTEM.DEFAULT.MODEL.QUEUE)", code=4)


def test_capexpry_ends_what_lies_too_long_also_on_an_idle_queue(qm, client):
    qm.mqsc("DEFINE QLOCAL(CAPPED) CAPEXPRY(1) REPLACE")
    client.put("CAPPED", Message(body="capped", ttl=3600))
    client.put("CAPPED", Message(body="capped, too"))
    wait_until(lambda: qm.status("CAPPED")["CURDEPTH"] == 0, "the sweeper has been there")
    assert qm.status("CAPPED")["EXPIRED"] == 2


COA, COD, EXPIRATION, EXCEPTION = 0x100, 0x800, 0x200000, 0x1000000


def asking(body="original", **asked):
    """A message that asks for reports to `REPORTS`."""
    properties = {f"JMS_IBM_Report_{name}": int32(value) for name, value in asked.items()}
    return Message(id="ID:7", correlation_id="own", body=body, reply_to="REPORTS", properties=properties)


def reports(manager, count=1):
    """So many reports, and no more: feedback code, message id, correlation id, data."""
    manager.wait_for_depth("REPORTS", count)
    with manager.connect() as client:
        found = client.get_all("REPORTS")
    assert all(report.properties["JMS_IBM_MsgType"] == 4 for report in found)
    return [
        (report.properties["JMS_IBM_Feedback"], report.id, report.correlation_id, bytes(report.body)) for report in found
    ]


@pytest.fixture
def reporting(qm):
    qm.mqsc("DEFINE QLOCAL(R) REPLACE\nDEFINE QLOCAL(REPORTS) REPLACE")
    yield
    qm.mqsc("CLEAR QLOCAL(R)\nCLEAR QLOCAL(REPORTS)")


def test_arrival_and_delivery_are_reported_to_the_reply_queue(reporting, qm, client):
    client.put("R", asking(COA=COA, COD=COD, Pass_Correl_ID=0x40))
    (arrived,) = reports(qm)
    assert (arrived[0], arrived[2], arrived[3]) == (259, "own", b"") and arrived[1] != "ID:7"
    receiver = client.receiver("R")
    message = receiver.next(accept=False)
    assert qm.depth("REPORTS") == 0
    receiver.settle(message.delivery, Delivery.ACCEPTED)
    (delivered,) = reports(qm)
    assert delivered[0] == 260


def test_a_report_is_correlated_by_the_message_id_and_repeats_as_much_as_is_asked_for(reporting, qm, client):
    message = asking(body=b"x" * 150, COA=0x300, Pass_Msg_ID=0x80)
    message.inferred = True
    client.put("R", message)
    (arrived,) = reports(qm)
    assert arrived == (259, "ID:7", "ID:7", b"x" * 100)
    assert qm.depth("R") == 1


def test_expiry_is_reported_with_all_the_data(reporting, qm, client):
    message = asking(body=b"x" * 150, Expiration=0xE00000, COD=COD)
    message.inferred, message.ttl = True, 0.05
    client.put("R", message)
    (expired,) = reports(qm)
    assert (expired[0], expired[2], expired[3]) == (258, "ID:7", b"x" * 150)


def test_without_a_reply_queue_a_message_that_asks_for_a_report_is_refused(reporting, client):
    message = asking(COA=COA)
    message.reply_to = None
    assert refused(lambda: client.put("R", message)) == 2027


def test_a_report_that_can_not_be_put_is_a_dead_letter(reporting, qm, client):
    message = asking(COA=COA)
    message.reply_to = "NO.SUCH.QUEUE"
    client.put("R", message)
    qm.wait_for_depth(DEAD_LETTER_QUEUE, 1)
    (report,) = client.get_all(DEAD_LETTER_QUEUE)
    assert label(report)["reason"] == 2085 and report.properties["JMS_IBM_Feedback"] == 259


def test_after_a_restart_delivery_is_still_reported(managers):
    manager = managers()
    manager.mqsc("DEFINE QLOCAL(R)\nDEFINE QLOCAL(REPORTS)")
    message = asking(COD=COD)
    message.durable = True
    with manager.connect() as client:
        client.put("R", message)
        client.put("R", Message(body="silent", durable=True))
    manager.kill()
    manager.start()
    with manager.connect() as client:
        assert [found.body for found in client.get_all("R")] == ["original", "silent"]
    (delivered,) = reports(manager)
    assert delivered[0] == 260
    assert manager.stop() == 0


def test_over_a_channel_arrival_and_failure_are_reported_back(managers):
    near, far = managers("near", name="QM1"), managers("far", name="QM2")
    route, back = Route(near, far, receiver="MRRTY(0)"), Route(far, near)
    near.mqsc("DEFINE QLOCAL(REPORTS)")
    far.mqsc(f"DEFINE QREMOTE(REPORTS) RNAME(REPORTS) RQMNAME(QM1) XMITQ({back.transmission})")
    with near.connect() as client:
        client.put(route.remote, asking(COA=COA, Exception=EXCEPTION))
        assert [report[0] for report in reports(near)] == [259]
        far.mqsc(f"ALTER QLOCAL({route.queue}) PUT(DISABLED)")
        client.put(route.remote, asking(COA=COA, Exception=EXCEPTION))
    assert [report[0] for report in reports(near)] == [2051]
    far.wait_for_depth(DEAD_LETTER_QUEUE, 1)


def keyed(body, **others):
    return Message(body=body, durable=True, annotations={symbol("x-opt-bulla-idempotency-key"): "order 7"}, **others)


def test_a_message_put_again_under_its_idempotency_key_is_there_once(managers):
    manager = managers()
    manager.mqsc("DEFINE QLOCAL(ONCE)")
    with manager.connect() as client:
        client.put("ONCE", keyed("buy", id="first"))
        client.put("ONCE", keyed("buy", id="second"))
        assert refused(lambda: client.put("ONCE", keyed("sell"))) == 2046
    manager.kill()
    manager.start()
    with manager.connect() as client:
        client.put("ONCE", keyed("buy", id="third"))
        # Who wants to know hears that it was put before, and as which message.
        told = client.connection.create_sender("ONCE", name="told", options=Asks("bulla:put-before"))
        with pytest.raises(Refused) as before:
            client.put("ONCE", keyed("buy", id="fourth"), sender=told)
        assert (before.value.condition, before.value.info) == ("bulla:put-before", {"message-id": "first"})
        assert [(found.id, found.annotations) for found in client.get_all("ONCE")] == [("first", None)]
    assert manager.stop() == 0


def test_a_message_that_is_sealed_is_put_once_also_by_clients_that_try_at_the_same_time(qm, people):
    qm.mqsc(
        f"""
        DEFINE QLOCAL(SEALED.ONCE)
        SET POLICY(SEALED.ONCE) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn("orders")}') +
            RECIP('{people.dn("billing")}')
        """
    )

    def try_it():
        with qm.connect("orders") as client:
            client.put("SEALED.ONCE", keyed("buy"))

    failures = [found for found in [joined() for joined in [in_thread(try_it) for _ in range(4)]] if found]
    assert all((failure.reason, failure.cause) == (2042, "idempotency-key-under-way") for failure in failures)
    try_it()
    with qm.connect("billing") as client:
        assert [found.body for found in client.get_all("SEALED.ONCE")] == ["buy"]


def test_a_publication_that_is_sealed_is_there_once_also_by_clients_that_try_at_the_same_time(qm, people):
    qm.mqsc("SET AUTHREC PROFILE(**) OBJTYPE(TOPIC) PRINCIPAL('*') AUTHADD(PUB)")
    queues = [f"SEALED.PUBLISHED{number}" for number in range(3)]
    for queue in queues:
        qm.mqsc(
            f"""
            DEFINE QLOCAL({queue})
            SET POLICY({queue}) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn("orders")}') +
                RECIP('{people.dn("billing")}')
            DEFINE SUB({queue}) TOPICSTR('sealed/once') DEST({queue})
            """
        )

    def try_it():
        with qm.connect("orders") as client:
            client.put("topic://sealed/once", keyed("buy"))

    failures = [found for found in [joined() for joined in [in_thread(try_it) for _ in range(4)]] if found]
    assert all((failure.reason, failure.cause) == (2042, "idempotency-key-under-way") for failure in failures)
    try_it()
    with qm.connect("billing") as client:
        for queue in queues:
            assert [found.body for found in client.get_all(queue)] == ["buy"]
