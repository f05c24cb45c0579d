"""A receiver that says how long its messages may be (AMQP's `max-message-size`): what is longer ends its link with 2080
and stays for others; what was sealed counts as it was opened."""

import pytest
from proton import Delivery, Message
from proton.reactor import LinkOption

from manager import DEADLINE, wait_until
from proton_driver import Refused
from sites import CONFIDENTIALITY, INTEGRITY, PRIVACY, clear, opened

SIZE = 2048
# What a message of `clear` has beside its payload as it is got; less than this.
SECTIONS = 600


class Takes(LinkOption):
    """Messages of so many bytes at most."""

    def __init__(self, size):
        self.size = size

    def apply(self, link):
        link.max_message_size = self.size


@pytest.fixture(scope="module")
def site(qm, people):
    yield from opened(qm, people)


def receiver(client, queue, size=SIZE, **asks):
    return client.receiver(queue, options=[Takes(size)], **asks)


def refused(receiver):
    with pytest.raises(Refused) as told:
        receiver.wait_for(1, DEADLINE)
    assert told.value.condition == "amqp:link:message-size-exceeded", told.value
    return told.value.reason


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY, CONFIDENTIALITY], ids=["integrity", "privacy", "confidentiality"])
def test_what_was_sealed_counts_as_it_was_opened(site, policy):
    queue = site.queue(policy)
    payload = b"x" * (SIZE - SECTIONS)
    site.orders.put(queue, clear(payload))
    (lies_there,) = site.raw(queue)
    assert len(lies_there.encode()) > SIZE, "the sealed message is longer than the receiver takes"
    assert bytes(receiver(site.billing, queue).next(DEADLINE).body) == payload


@pytest.mark.parametrize("policy", [None, INTEGRITY, PRIVACY, CONFIDENTIALITY], ids=["clear", "int", "priv", "conf"])
def test_a_message_that_is_too_long_ends_the_link_with_2080_and_stays_for_others(site, policy):
    queue = site.queue(policy)
    for payload in (b"short", b"x" * SIZE, b"behind it"):
        site.orders.put(queue, clear(payload))
    short = receiver(site.billing, queue, credit=10)
    # What it had before is settled, and does not come again.
    assert bytes(short.next(DEADLINE).body) == b"short"
    # It is told again each time it asks.
    assert refused(short) == 2080 and refused(receiver(site.billing, queue)) == 2080
    long = receiver(site.billing, queue, 10 * SIZE, credit=10)
    got = [long.next(DEADLINE) for _ in range(2)]
    assert [bytes(message.body) for message in got] == [b"x" * SIZE, b"behind it"]
    assert not any(message.delivery_count for message in got), "nothing failed"
    long.close()
    site.qm.wait_for_depth(queue, 0)


def test_others_get_meanwhile_what_one_does_not_take(site):
    queue = site.queue(PRIVACY)
    long = receiver(site.billing, queue, 10 * SIZE, credit=100)
    short = receiver(site.billing, queue, credit=100)
    texts = [b"%d" % number + b"x" * (SIZE if number % 2 else 0) for number in range(20)]
    for text in texts:
        site.orders.put(queue, clear(text))
    # The short link gets no more than what comes before the first long message that would have been its own.
    wait_until(lambda: arrived(long) + arrived(short) == 20, "all are with one of both")
    got = [short.handler.arrived.pop(0) for _ in range(arrived(short))]
    told = [bytes(message.body) for message, _ in [*got, *long.handler.arrived]]
    assert sorted(told) == sorted(texts) and all(len(message.body) < SIZE for message, _ in got)
    for _, delivery in long.handler.arrived:
        long.settle(delivery, Delivery.ACCEPTED)
    long.close()
    # It ends when nothing of it is unsettled, so nothing comes twice.
    site.orders.put(queue, clear(b"y" * SIZE))
    for _, delivery in got:
        short.settle(delivery, Delivery.ACCEPTED)
    assert refused(short) == 2080
    assert [bytes(message.body) for message in site.billing.get_all(queue)] == [b"y" * SIZE]


def arrived(receiver):
    """Messages that have come to a receiver by now."""
    receiver.wait_for(len(receiver.handler.arrived) + 1, 0.1)
    return len(receiver.handler.arrived)


def test_a_browser_is_told_too_and_a_limit_of_none_is_none(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"x" * SIZE))
    assert refused(receiver(site.billing, queue, browse=True)) == 2080
    assert site.qm.depth(queue) == 1
    assert len(receiver(site.billing, queue, 0, browse=True).next(DEADLINE, accept=False).body) == SIZE
    assert len(receiver(site.billing, queue).client.get(queue, DEADLINE).body) == SIZE
    site.qm.wait_for_depth(queue, 0)


def test_a_client_that_opens_for_itself_gets_the_sealed_bytes_and_they_count(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"x" * (SIZE - SECTIONS)))
    assert refused(receiver(site.billing, queue, sealed=True)) == 2080
    assert len(Message.encode(receiver(site.billing, queue, 2 * SIZE, sealed=True).next(DEADLINE))) > SIZE
    site.qm.wait_for_depth(queue, 0)
