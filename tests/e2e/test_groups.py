"""Message groups: the messages of one group go to one link at a time, in their order."""

import pytest
from proton import Delivery, Message


@pytest.fixture
def queue(qm):
    qm.mqsc("DEFINE QLOCAL(GROUPS) GROUPS(YES) REPLACE")
    with qm.connect() as client:
        client.get_all("GROUPS")
    return "GROUPS"


def put(client, queue, *bodies):
    """Each is of the group that its first letter names; `-` is of none."""
    for body in bodies:
        group = body[0] if body[0] != "-" else None
        client.put(queue, Message(body=body, group_id=group, durable=True))


def bodies(receiver):
    return [message.body for message in receiver.drain()]


def test_the_messages_of_a_group_are_one_link_s_until_it_goes(qm, queue):
    with qm.connect() as one, qm.connect() as two:
        put(one, queue, "a1", "b1", "a2", "-1", "b2", "a3")
        first, second = one.receiver(queue, credit=1), two.receiver(queue, credit=0)
        held = first.next(accept=False)
        assert held.body == "a1"
        assert bodies(second) == ["b1", "-1", "b2"]
        put(two, queue, "b3", "a4", "-2")
        assert bodies(second) == ["b3", "-2"]
        first.settle(held.delivery, Delivery.ACCEPTED)
        first.flow(1)
        assert first.next(accept=False).body == "a2"
        one.abandon()
        # What it held comes first, and the rest of its group in order.
        second.flow(4)
        got = [second.next().body for _ in range(3)]
        assert got == ["a2", "a3", "a4"]
        put(two, queue, "b4")
        assert second.next().body == "b4"


def test_a_group_of_which_a_link_will_not_have_a_message_is_the_next_one_s(qm, queue):
    with qm.connect() as one, qm.connect() as two:
        put(one, queue, "a1", "a2", "b1")
        first, second = one.receiver(queue, credit=2), two.receiver(queue, credit=0)
        held, unwanted = first.next(accept=False), first.next(accept=False)
        assert [held.body, unwanted.body] == ["a1", "a2"]
        unwanted.delivery.local.undeliverable = True
        first.settle(unwanted.delivery, Delivery.MODIFIED)
        # As long as it has another one of the group, nobody else has one.
        assert bodies(second) == ["b1"]
        first.settle(held.delivery, Delivery.ACCEPTED)
        second.flow(1)
        assert second.next().body == "a2"


def test_a_queue_without_groups_gives_them_to_whoever_asks(qm, queue):
    qm.mqsc("DEFINE QLOCAL(NO.GROUPS)")
    with qm.connect() as client:
        put(client, "NO.GROUPS", "a1", "a2")
        first, second = client.receiver("NO.GROUPS"), client.receiver("NO.GROUPS", credit=0)
        assert first.next(accept=False).body == "a1"
        assert bodies(second) == ["a2"]


def test_a_selector_and_a_browser_see_groups(qm, queue):
    with qm.connect() as client:
        put(client, queue, "a1", "b1", "a2")
        holder = client.receiver(queue, credit=1)
        assert holder.next(accept=False).body == "a1"
        assert [message.body for message in client.get_all(queue, browse=True)] == ["b1", "a2"]
        chosen = client.receiver(queue, credit=0, selector="JMSXGroupID IN ('a', 'b')")
        assert bodies(chosen) == ["b1"]
        put(client, queue, "b2", "c1")
        assert bodies(chosen) == ["b2"]
        holder.close()
        assert bodies(chosen) == ["a1", "a2"]


def test_a_subscription_has_the_groups_of_its_model(qm, queue):
    everybody = "PRINCIPAL('*', '*ANONYMOUS')"
    qm.mqsc(f"""
        DEFINE QMODEL(GROUPS.MODEL) GROUPS(YES)
        DEFINE TOPIC(GROUPED) TOPICSTR('grouped') MNDURMDL(GROUPS.MODEL)
        SET AUTHREC PROFILE(GROUPED) OBJTYPE(TOPIC) {everybody} AUTHADD(ALL)
    """)
    with qm.connect() as client:
        asks = {"asks": ["topic", "shared", "global"], "credit": 0}
        first = client.receiver("topic://grouped", name="pool|1", **asks)
        second = client.receiver("topic://grouped", name="pool|2", **asks)
        put(client, "topic://grouped", "a1", "a2")
        first.flow(1)
        assert first.next(accept=False).body == "a1"
        assert bodies(second) == []
