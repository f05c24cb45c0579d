"""Names that lead to other queue managers: over one hop or two, by definition, by alias, by address."""

import pytest
from proton import Message

from channels import dead_letters
from manager import label
from proton_driver import Refused
from proxy import Proxy


@pytest.fixture(scope="module")
def chain(managers):
    """QM1 → QM2 → QM3, and back from QM3 to QM1."""
    chain = [managers(name=f"QM{number}") for number in (1, 2, 3)]
    for near, far in zip(chain, [*chain[1:], chain[0]], strict=True):
        # An address that stays when its queue manager is started again.
        proxy = Proxy(lambda far=far: far.ports.get("amqp"))
        channel = f"{near.name}.{far.name}"
        far.mqsc(f"DEFINE CHANNEL({channel}) CHLTYPE(RCVR)\nDEFINE QLOCAL(ORDERS)")
        near.mqsc(
            f"""
            DEFINE QLOCAL({far.name}) USAGE(XMITQ) TRIGGER
            DEFINE CHANNEL({channel}) CHLTYPE(SDR) CONNAME('127.0.0.1({proxy.port})') XMITQ({far.name})
            """
        )
    yield chain
    for manager in chain:
        assert manager.process.poll() is None, "a queue manager ended by itself:\n" + "".join(manager.log[-30:])
        assert manager.stop() == 0, "it did not stop cleanly:\n" + "".join(manager.log[-30:])


def put(manager, name, body):
    with manager.connect() as client:
        client.put(name, Message(body=body, durable=True))


def get(manager, queue="ORDERS"):
    manager.wait_for_depth(queue, 1)
    with manager.connect() as client:
        (message,) = client.get_all(queue)
    return message.body


def refused(manager, name):
    with manager.connect() as client, pytest.raises(Refused) as refused:
        client.sender(name)
    return refused.value.reason


def test_a_remote_queue_leads_to_a_queue_of_another_name(chain):
    first, second, _ = chain
    first.mqsc("DEFINE QREMOTE(FAR.ORDERS) RNAME(ORDERS) RQMNAME(QM2) XMITQ(QM2)")
    put(first, "FAR.ORDERS", "by definition")
    assert get(second) == "by definition"


def test_without_xmitq_the_transmission_queue_is_the_one_named_like_the_queue_manager(chain):
    first, second, _ = chain
    first.mqsc("DEFINE QREMOTE(SHORT) RNAME(ORDERS) RQMNAME(QM2)")
    put(first, "SHORT", "no XMITQ")
    assert get(second) == "no XMITQ"


def test_a_client_may_name_the_queue_manager_itself(chain):
    first, second, _ = chain
    put(first, "ORDERS@QM2", "by address")
    assert get(second) == "by address"
    put(first, "ORDERS@QM1", "my own")
    assert get(first) == "my own"


def test_a_queue_manager_alias_leads_on_over_a_second_hop(chain):
    first, second, third = chain
    # QM1 knows nothing of QM3 but that QM2 is the way.
    first.mqsc("DEFINE QREMOTE(QM3) RNAME(' ') RQMNAME(QM3) XMITQ(QM2)")
    put(first, "ORDERS@QM3", "two hops")
    assert get(third) == "two hops"
    assert second.depth("ORDERS") == 0


def test_a_remote_queue_at_the_second_queue_manager_leads_on(chain):
    first, second, third = chain
    second.mqsc("DEFINE QREMOTE(ONWARD) RNAME(ORDERS) RQMNAME(QM3) XMITQ(QM3)")
    first.mqsc("DEFINE QREMOTE(ONWARD) RNAME(ONWARD) RQMNAME(QM2) XMITQ(QM2)")
    put(first, "ONWARD", "by the second's definition")
    assert get(third) == "by the second's definition"


def test_the_default_transmission_queue_takes_what_no_other_way_leads_to(chain):
    first, second, third = chain
    assert refused(first, "ORDERS@ELSEWHERE") == 2087
    first.mqsc("ALTER QMGR DEFXMITQ(QM2)")
    second.mqsc("DEFINE QREMOTE(ELSEWHERE) RNAME(' ') RQMNAME(QM3) XMITQ(QM3)")
    try:
        put(first, "ORDERS@ELSEWHERE", "by default")
        # QM3 is what QM2 calls ELSEWHERE.
        assert get(third) == "by default"
    finally:
        first.mqsc("ALTER QMGR DEFXMITQ(' ')")


def test_a_message_goes_all_the_way_round(chain):
    first, second, third = chain
    third.mqsc("DEFINE QREMOTE(HOME) RNAME(ORDERS) RQMNAME(QM1) XMITQ(QM1)")
    second.mqsc("DEFINE QREMOTE(HOME) RNAME(HOME) RQMNAME(QM3) XMITQ(QM3)")
    first.mqsc("DEFINE QREMOTE(HOME) RNAME(HOME) RQMNAME(QM2) XMITQ(QM2)")
    put(first, "HOME", "round")
    assert get(first) == "round"


def test_what_leads_nowhere_at_the_second_queue_manager_is_a_dead_letter_there(chain):
    first, second, _ = chain
    first.mqsc("DEFINE QREMOTE(LOST) RNAME(ORDERS) RQMNAME(NOWHERE) XMITQ(QM2)")
    second.mqsc("ALTER CHANNEL(QM1.QM2) CHLTYPE(RCVR) MRRTY(0)")
    put(first, "LOST", "lost")
    second.wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
    (letter,) = dead_letters(second)
    assert (letter.body, label(letter)["reason"]) == ("lost", 2087)


def test_names_that_lead_nowhere_are_refused_with_their_reason(chain):
    first, _, _ = chain
    first.mqsc(
        """
        DEFINE QLOCAL(PLAIN)
        DEFINE QREMOTE(NO.XMITQ) RNAME(ORDERS) RQMNAME(QM2) XMITQ(NOT.THERE)
        DEFINE QREMOTE(WRONG.XMITQ) RNAME(ORDERS) RQMNAME(QM2) XMITQ(PLAIN)
        DEFINE QREMOTE(NO.WAY) RNAME(ORDERS) RQMNAME(NOWHERE)
        """
    )
    assert refused(first, "ORDERS@NOWHERE") == 2087
    assert refused(first, "NO.WAY") == 2087
    assert refused(first, "NO.XMITQ") == 2196
    assert refused(first, "WRONG.XMITQ") == 2092


def test_a_remote_queue_can_not_be_read(chain):
    first, _, _ = chain
    first.mqsc("DEFINE QREMOTE(FAR.ORDERS) RNAME(ORDERS) RQMNAME(QM2) XMITQ(QM2) REPLACE")
    with first.connect() as client, pytest.raises(Refused) as refused:
        client.get_all("FAR.ORDERS")
    assert refused.value.reason == 2045
