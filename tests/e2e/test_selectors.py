"""Consumers that choose: python-qpid-proton's Selector, rhea's filter.selector and Qpid JMS, on clear and on sealed queues."""

import threading

import pytest
from proton import Delivery, Described, Message, symbol, ulong
from proton.reactor import Filter

from manager import DEADLINE, wait_until
from proton_driver import Refused
from test_clients import drive, seen

SELECTOR = "apache.org:selector-filter:string"


@pytest.fixture(scope="module")
def site(qm, people):
    qm.mqsc(
        f"""
        DEFINE QLOCAL(Q) MAXDEPTH(200000)
        DEFINE QLOCAL(SEALED)
        SET POLICY(SEALED) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn("orders")}') RECIP('{people.dn("billing")}')
        """
    )
    return qm


@pytest.fixture(autouse=True)
def empty(site):
    yield
    with site.connect() as client:
        client.get_all("Q", credit=200_000)
    assert site.depth("Q") == 0


def numbered(number, **fields):
    return Message(body=number, properties={"number": number, "parity": ["even", "odd"][number % 2]}, **fields)


def bodies(messages):
    return [message.body for message in messages]


def fill(client, count, queue="Q", **fields):
    sender = client.sender(queue)
    for number in range(count):
        client.put(queue, numbered(number, **fields), sender)
    sender.close()


@pytest.mark.parametrize("client", ["proton", "rhea", "jms"])
def test_each_client_gets_what_its_selector_names(site, client):
    with site.connect() as putter:
        fill(putter, 10)
        if client == "proton":
            got = bodies(putter.get_all("Q", selector="parity = 'odd' AND number > 4"))
            assert got == [5, 7, 9]
        else:
            selector = ["--selector", "parity = 'odd' AND number > 4"]
            got = drive(site, client, "get", "Q", "--count", "3", *selector)
            assert [message["properties"]["number"] for message in got] == [5, 7, 9]
        assert bodies(putter.get_all("Q")) == [0, 1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize("client", ["rhea", "jms"])
def test_a_browser_sees_what_its_selector_names_and_takes_nothing(site, client):
    with site.connect() as putter:
        fill(putter, 6)
        browsed = drive(site, client, "browse", "Q", "--count", "2", "--wait", "2", "--selector", "number IS NOT NULL AND number >= 4")
        assert [message["properties"]["number"] for message in browsed] == [4, 5]
        assert bodies(putter.get_all("Q", browse=True, selector="number < 2")) == [0, 1]
        assert bodies(putter.get_all("Q", selector="number < 2")) == [0, 1]
        assert bodies(putter.get_all("Q")) == [2, 3, 4, 5]


def attach_with(client, filters):
    """A receiver with those filters, and what the other side says of them."""
    receiver = client.connection.create_receiver("Q", name=client._name(), options=[Filter(filters)])
    answered = receiver.link.remote_source.filter
    answered.rewind()
    echoed = answered.get_dict() if answered.next() else {}
    return receiver, echoed


def test_filters_are_echoed_where_they_are_honoured(site):
    by_name = {symbol("selector"): Described(symbol(SELECTOR), "number > 1")}
    by_number = {symbol("jms-selector"): Described(ulong(0x0000468C00000004), "number > 1")}
    other = {symbol("no-local"): Described(ulong(0x0000468C00000003), "no-local")}
    with site.connect() as client:
        for filters, honoured in [(by_name, by_name), (by_number, by_number), (other, {}), ({**other, **by_name}, by_name)]:
            receiver, echoed = attach_with(client, filters)
            assert {str(name): described.value for name, described in (echoed or {}).items()} == {
                str(name): described.value for name, described in honoured.items()
            }
            receiver.close()


@pytest.mark.parametrize(
    "selector, place",
    [("number >", 9), ("number > 'a'", 10), ("(number = 1", 12), ("number = 1 AND", 15), ("x" * 10_241, 1), ("JMSReplyTo = 'x'", 1)],
)
def test_what_is_no_selector_is_refused_with_its_place(site, selector, place):
    with site.connect() as client:
        with pytest.raises(Refused) as refused:
            client.receiver("Q", selector=selector)
        assert refused.value.condition == "amqp:invalid-field"
        assert refused.value.reason == 2067
        assert f"at character {place}:" in refused.value.description


def test_a_blank_selector_is_none(site):
    with site.connect() as client:
        fill(client, 2)
        assert bodies(client.get_all("Q", selector="  ")) == [0, 1]


def test_what_another_reader_gives_back_comes_to_the_one_whose_selector_it_fits(site):
    with site.connect() as first, site.connect() as second:
        fill(first, 3)
        holder = first.receiver("Q", credit=3)
        assert holder.wait_for(3)
        chooser = second.receiver("Q", credit=10, selector="number = 1")
        assert chooser.next(wait=0.3) is None
        for _, delivery in list(holder.handler.arrived):
            holder.settle(delivery, Delivery.RELEASED)
        assert chooser.next().body == 1
        holder.close()
        assert bodies(second.get_all("Q", selector="number <> 1")) == [0, 2]


def test_a_waiting_reader_gets_what_fits_and_others_the_rest(site):
    with site.connect() as client, site.connect() as other:
        readers = {name: client.receiver("Q", credit=10, selector=f"parity = '{name}'") for name in ("odd", "even")}
        fill(other, 10)
        assert bodies(readers["odd"].next() for _ in range(5)) == [1, 3, 5, 7, 9]
        assert bodies(readers["even"].next() for _ in range(5)) == [0, 2, 4, 6, 8]


def test_the_most_urgent_of_those_that_fit_comes_first(site):
    with site.connect() as client:
        for number, priority in enumerate([1, 9, 5, 9, 0]):
            client.put("Q", numbered(number, priority=priority))
        assert bodies(client.get_all("Q", selector="number <> 2")) == [1, 3, 0, 4]
        client.put("Q", numbered(7, priority=3))
        assert bodies(client.get_all("Q", selector="JMSPriority BETWEEN 3 AND 6")) == [2, 7]


def test_a_correlation_id_is_found_behind_everything_else_and_when_it_comes_late(site):
    with site.connect() as client, site.connect() as asking:
        sender = client.sender("Q")
        for number in range(3_000):
            client.put("Q", Message(body=number, correlation_id=f"order-{number}", id=f"id-{number}"), sender)
        for number in (2_999, 0, 1_500):
            assert bodies(asking.get_all("Q", selector=f"JMSCorrelationID = 'order-{number}'")) == [number]
            assert asking.get_all("Q", selector=f"JMSCorrelationID = 'order-{number}'") == []
        assert bodies(asking.get_all("Q", selector="JMSMessageID = 'id-77' AND body IS NULL")) == [77]
        assert bodies(asking.get_all("Q", selector="JMSMessageID = 'ID:AMQP_NO_PREFIX:id-78'")) == [78]
        waiting = asking.receiver("Q", credit=1, selector="JMSCorrelationID = 'late'")
        client.put("Q", Message(body="late", correlation_id="late"), sender)
        assert waiting.next().body == "late"


def test_one_that_finds_nothing_in_a_long_queue_does_not_keep_others_waiting(site):
    with site.connect() as client, site.connect() as choosing, site.connect() as other:
        fill(client, 6_000)
        choosers = [choosing.receiver("Q", credit=1, selector=f"number = -{number}") for number in range(1, 21)]
        got = other.receiver("Q", credit=100)
        assert bodies(got.next() for _ in range(100)) == list(range(100))
        client.put("Q", Message(body=7, properties={"number": -8}))
        assert choosers[7].next().body == 7
        for chooser in choosers:
            chooser.close()


def test_selectors_work_on_a_sealed_queue_whose_properties_travel_in_clear(site):
    with site.connect("orders") as orders, site.connect("billing") as billing:
        for number in range(6):
            message = numbered(number, durable=True)
            message.correlation_id = f"order-{number}"
            orders.put("SEALED", message)
        assert bodies(billing.get_all("SEALED", browse=True, selector="number < 2")) == [0, 1]
        assert bodies(billing.get_all("SEALED", selector="parity = 'odd'")) == [1, 3, 5]
        assert bodies(billing.get_all("SEALED", selector="JMSCorrelationID = 'order-4'")) == [4]
        assert bodies(billing.get_all("SEALED")) == [0, 2]


def test_what_is_addressed_to_others_is_passed_over_once(site):
    with site.connect("orders") as orders, site.connect("audit") as audit, site.connect("billing") as billing:
        for number in range(3):
            orders.put("SEALED", numbered(number, durable=True))
        assert audit.get_all("SEALED", selector="number >= 1") == []
        assert bodies(billing.get_all("SEALED", selector="number >= 1")) == [1, 2]
        assert bodies(billing.get_all("SEALED")) == [0]


def test_selectors_read_what_a_restart_left_on_the_disk(managers):
    qm = managers("restarted")
    qm.mqsc("DEFINE QLOCAL(Q)")
    with qm.connect() as client:
        fill(client, 100, durable=True)
        client.put("Q", Message(body="x", durable=True, correlation_id="c", properties={"pad": "y" * 9_000, "number": 500}))
    assert qm.stop() == 0
    qm.start()
    with qm.connect() as client:
        assert bodies(client.get_all("Q", selector="number IN ('a') OR number = 42")) == [42]
        assert bodies(client.get_all("Q", selector="number = 500 AND pad LIKE 'y%'")) == ["x"]
        client.put("Q", Message(body="z", durable=True, correlation_id="d"))
    assert qm.stop() == 0
    qm.start()
    with qm.connect() as client:
        assert bodies(client.get_all("Q", selector="JMSCorrelationID = 'd'")) == ["z"]
        assert len(client.get_all("Q", credit=1_000)) == 99
    assert qm.stop() == 0


def test_many_readers_with_ids_of_their_own_share_a_queue(site):
    """Request and reply the way of queue managers: one reply queue, and a selector for each answer."""
    wanted, answers = 20, {}

    def ask(number):
        with site.connect() as client:
            answers[number] = client.receiver("Q", credit=1, selector=f"JMSCorrelationID = 'r{number}'").next().body

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(wanted)]
    for thread in threads:
        thread.start()
    with site.connect() as client:
        for number in reversed(range(wanted)):
            client.put("Q", Message(body=number, correlation_id=f"r{number}"))
    for thread in threads:
        thread.join(DEADLINE)
    assert answers == {number: number for number in range(wanted)}
    wait_until(lambda: site.depth("Q") == 0, "every answer is taken")


def test_jms_and_proton_mean_the_same_by_a_message_id(site):
    put = drive(site, "jms", "put", "Q", "--count", "3")
    got = drive(site, "jms", "get", "Q", "--selector", f"JMSMessageID = '{put[1]['message_id']}'")
    assert [seen(message) for message in got] == [seen(put[1])]
    with site.connect() as client:
        selected = client.get_all("Q", selector=f"amqp.message_id = '{put[2]['message_id']}'")
        assert [message.id for message in selected] == [put[2]["message_id"]]
