"""SET ADDRMAP: clients keep the addresses that they have, and what these stand for is what rights are asked on."""

import pytest
from proton import Message

from manager import wait_until
from proton_driver import Refused

GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE('TEST.**') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(ALL)
SET AUTHREC PROFILE('SYSTEM.DEFAULT.MODEL.QUEUE') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(ALL)
SET AUTHREC PROFILE('old/queue') OBJTYPE(QUEUE) PRINCIPAL('mallory') AUTHADD(ALL)
DEFINE QLOCAL('TEST.QUEUE')
DEFINE QLOCAL('TEST.REPORTS')
DEFINE QLOCAL('SECRET')
DEFINE QLOCAL('test/other')
DEFINE TOPIC(MARKET) TOPICSTR('market')
SET ADDRMAP('test-queue') QUEUE('TEST.QUEUE')
SET ADDRMAP('old/queue') QUEUE('TEST.QUEUE')
SET ADDRMAP('queue://*') QUEUE('TEST.*')
SET ADDRMAP('TEST.QUEUE') QUEUE('SECRET')
SET ADDRMAP('my-secret') QUEUE('SECRET')
SET ADDRMAP('reports-of-mine') QUEUE('TEST.REPORTS')
SET ADDRMAP('secret-reports') QUEUE('SECRET')
SET ADDRMAP('prices-*') TOPIC('market/*')
SET ADDRMAP('*-queue-of-all') QUEUE('TEST.*')
"""


@pytest.fixture(scope="module")
def qm(managers):
    qm = managers(grants=GRANTS)
    for user in ("orders", "mallory"):
        qm.add_user(user)
    yield qm
    assert qm.stop() == 0


def reason(action):
    with pytest.raises(Refused) as refused:
        action()
    return refused.value.reason


def test_an_address_of_another_broker_leads_to_its_queue(qm):
    with qm.connect("orders") as client:
        client.put("test-queue", Message(b"one"))
        client.put("queue://QUEUE", Message(b"two"))
        client.put(None, Message(b"three", address="test-queue"))
        assert qm.depth("TEST.QUEUE") == 3
        got = [bytes(message.body) for message in client.get_all("test-queue")]
        assert got == [b"one", b"two", b"three"]


def test_the_answer_of_an_attach_has_the_address_that_the_client_named(qm):
    with qm.connect("orders") as client:
        receiver = client.receiver("test-queue", credit=0)
        assert receiver.link.remote_source.address == "test-queue"
        assert client.sender("test-queue").link.remote_target.address == "test-queue"


def test_rights_are_asked_on_the_queue_and_not_on_the_address(qm):
    with qm.connect("mallory") as mallory, qm.connect("orders") as orders:
        refused = [(mallory, "old/queue"), (mallory, "test-queue"), (orders, "my-secret"), (orders, "TEST.QUEUE")]
        for client, address in refused:
            attempts = (
                lambda client=client, address=address: client.put(address, Message(b"no")),
                lambda client=client, address=address: client.put(None, Message(b"no", address=address)),
                lambda client=client, address=address: client.get_all(address),
            )
            assert [reason(attempt) for attempt in attempts] == [2035] * 3, address
    assert qm.depth("SECRET") == 0


def test_a_report_goes_to_what_the_address_in_reply_to_stands_for_and_asks_its_rights(qm):
    asking = {"JMS_IBM_Report_COA": 256}
    with qm.connect("orders") as client:
        client.put("test-queue", Message(b"x", reply_to="reports-of-mine", properties=asking))
        wait_until(lambda: qm.depth("TEST.REPORTS") == 1, "the report is there")
        refused = Message(b"x", reply_to="secret-reports", properties=asking)
        assert reason(lambda: client.put("test-queue", refused)) == 2035
        client.get_all("test-queue")
    assert qm.depth("SECRET") == 0


def test_an_address_may_stand_for_a_topic(qm):
    qm.mqsc("SET AUTHREC PROFILE(MARKET) OBJTYPE(TOPIC) PRINCIPAL('orders') AUTHADD(ALL)")
    with qm.connect("orders") as client:
        readers = [client.receiver(address, credit=10) for address in ("prices-tin", "topic://market/tin")]
        client.put("prices-tin", Message(b"10"))
        client.put(None, Message(b"11", address="prices-tin"))
        for reader in readers:
            assert [bytes(reader.next().body) for _ in range(2)] == [b"10", b"11"]


def test_a_dynamic_queue_keeps_its_name_and_patterns_leave_system_queues_alone(qm):
    qm.mqsc("SET ADDRMAP('*') QUEUE('SECRET')")
    try:
        with qm.connect("orders") as client:
            temporary = client.connection.create_receiver(None, dynamic=True).link.remote_source.address
            client.put(temporary, Message(b"reply"))
            client.put(None, Message(b"again", address=temporary))
            assert [bytes(message.body) for message in client.get_all(temporary)] == [b"reply", b"again"]
            assert reason(lambda: client.put("SYSTEM.DEAD.LETTER.QUEUE", Message(b"no"))) == 2035
            assert reason(lambda: client.put("test/other", Message(b"no"))) == 2035
    finally:
        qm.mqsc("SET ADDRMAP('*') ACTION(REMOVE)")
    assert qm.depth("SECRET") == 0
