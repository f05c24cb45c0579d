"""What AMQP clients rely on beyond put and get."""

import threading
import time

import pytest
from proton import Delivery, Link, Message, symbol

from manager import DEAD_LETTER_QUEUE, DEADLINE, label, wait_until
from proton_driver import Refused
from test_clients import NAMES, drive, seen


@pytest.fixture(autouse=True)
def empty(qm):
    qm.mqsc("DEFINE QLOCAL(Q) REPLACE")
    yield
    with qm.connect() as client:
        client.get_all("Q", credit=10_000)


def persistent(body, **fields):
    return Message(body=body, durable=True, **fields)


def bodies(messages):
    return [message.body for message in messages]


def test_receive_no_wait_gets_what_is_there_and_then_nothing(qm):
    put = drive(qm, "proton", "put", "Q", "--count", "3")
    got = drive(qm, "jms", "nowait", "Q", "--prefetch", "0")
    assert [seen(message) for message in got] == [seen(message) for message in put]


def test_draining_delivers_what_is_there_and_returns_the_rest_of_the_credit(qm):
    with qm.connect() as client:
        for number in range(5):
            client.put("Q", Message(body=number))
        receiver = client.receiver("Q", credit=0)
        assert bodies(receiver.drain(3)) == [0, 1, 2]
        assert bodies(receiver.drain(10)) == [3, 4]
        assert receiver.drain(10) == []
        client.put("Q", Message(body="later"))
        assert bodies(receiver.drain(10)) == ["later"]


def test_a_producer_without_a_destination_names_the_queue_in_each_message(qm):
    put = drive(qm, "jms", "relay", "Q", "--props")
    got = drive(qm, "rhea", "get", "Q")
    assert [seen(message) for message in got] == [seen(message) for message in put]


def test_an_anonymous_relay_refuses_a_message_for_no_queue(qm):
    with qm.connect() as client:
        sender = client.sender(None)
        with pytest.raises(Refused) as refused:
            client.put(None, Message(body="x", address="NO.SUCH.QUEUE"), sender)
        assert refused.value.reason == 2085
        client.put(None, Message(body="x", address="Q"), sender)
    assert qm.depth("Q") == 1


def test_request_and_reply_go_over_a_temporary_queue(qm):
    answers = []
    asking = threading.Thread(target=lambda: answers.extend(drive(qm, "jms", "request", "Q", "--count", "3")))
    asking.start()
    asked = drive(qm, "jms", "reply", "Q", "--count", "3")
    asking.join(DEADLINE)
    assert [answer["kind"] for answer in answers] == ["text"] * 3
    assert [answer["correlation_id"] for answer in answers] == [message["message_id"] for message in asked]


def test_a_dynamic_queue_ends_with_its_connection(qm):
    with qm.connect() as client:
        receiver = client.connection.create_receiver(None, dynamic=True)
        name = receiver.link.remote_source.address
        client.put(name, Message(body="to myself"))
        assert receiver.receive(timeout=DEADLINE).body == "to myself"
        receiver.accept()
        receiver.close()
        client.put(name, Message(body="it is there still"))
    wait_until(lambda: is_unknown(qm, name), "it is gone")


def is_unknown(qm, name):
    with qm.connect() as client:
        try:
            client.sender(name)
        except Refused as refused:
            return refused.reason == 2085
    return False


def test_a_transacted_session_puts_what_it_commits(qm):
    printed = drive(qm, "jms", "transacted", "Q", "--count", "3")
    assert [seen(message)["kind"] for message in printed] == ["text"] * 3
    with qm.connect() as client:
        assert len(client.get_all("Q")) == 3


def test_browsing_leaves_the_messages_and_sees_each_once(qm):
    with qm.connect() as client:
        for number in range(4):
            client.put("Q", Message(body=number))
        assert bodies(client.get_all("Q", browse=True)) == [0, 1, 2, 3]
        assert bodies(client.get_all("Q")) == [0, 1, 2, 3]
        assert client.get_all("Q") == []


def test_higher_priorities_come_first_and_equal_ones_in_order(qm):
    with qm.connect() as client:
        for number, priority in enumerate([4, 0, 9, 4, 9]):
            client.put("Q", Message(body=number, priority=priority))
        assert bodies(client.get_all("Q")) == [2, 4, 0, 3, 1]


def test_fifo_order_ignores_priority(qm):
    qm.mqsc("DEFINE QLOCAL(FIFO) MSGDLVSQ(FIFO)")
    with qm.connect() as client:
        for number, priority in enumerate([4, 0, 9]):
            client.put("FIFO", Message(body=number, priority=priority))
        assert bodies(client.get_all("FIFO")) == [0, 1, 2]


def test_an_expired_message_is_never_delivered(qm):
    with qm.connect() as client:
        client.put("Q", Message(body="gone", ttl=0.001))
        client.put("Q", Message(body="here", ttl=3600))
        end = time.monotonic() + 0.05
        wait_until(lambda: time.monotonic() > end, "fifty milliseconds have passed")
        assert bodies(client.get_all("Q")) == ["here"]
        assert client.get_all("Q") == []


def test_a_message_whose_reader_died_comes_again_and_says_so(qm):
    with qm.connect() as putter:
        putter.put("Q", persistent("again"))
    reader = qm.connect()
    receiver = reader.receiver("Q", credit=1)
    first = receiver.next(accept=False)
    assert (first.body, first.delivery_count, first.first_acquirer) == ("again", 0, False)
    reader.abandon()
    with qm.connect() as client:
        second = client.get("Q")
        assert (second.body, second.delivery_count) == ("again", 1)
    assert qm.depth("Q") == 0


def test_a_released_message_comes_again_and_a_modified_one_counts(qm):
    with qm.connect() as client:
        client.put("Q", Message(body="x"))
        receiver = client.receiver("Q", credit=1)
        message = receiver.next(accept=False)
        receiver.settle(message.delivery, Delivery.RELEASED)
        receiver.flow(1)
        message = receiver.next(accept=False)
        assert message.delivery_count == 0
        message.delivery.local.failed = True
        receiver.settle(message.delivery, Delivery.MODIFIED)
        receiver.flow(1)
        message = receiver.next()
        assert message.delivery_count == 1


def test_a_reader_that_passed_a_message_over_still_gets_what_comes_before_it(qm):
    with qm.connect() as client, qm.connect() as other:
        client.put("Q", Message(body="not here", priority=1))
        receiver = client.receiver("Q", credit=10)
        message = receiver.next(accept=False)
        message.delivery.local.undeliverable = True
        receiver.settle(message.delivery, Delivery.MODIFIED)
        for priority in (9, 5, 1):
            other.put("Q", Message(body=priority, priority=priority))
        assert sorted(receiver.next().body for _ in range(3)) == [1, 5, 9]
        receiver.close()
        assert other.get("Q").body == "not here"


def test_a_message_rejected_on_the_dead_letter_queue_stays_there(qm):
    with qm.connect() as client:
        client.put(DEAD_LETTER_QUEUE, Message(body="dead"))
        receiver = client.receiver(DEAD_LETTER_QUEUE, credit=10)
        receiver.settle(receiver.next(accept=False).delivery, Delivery.REJECTED)
        receiver.close()
        assert client.get(DEAD_LETTER_QUEUE).body == "dead"


def test_many_small_messages_at_once_fill_a_queue_that_waits_without_a_refusal(qm):
    qm.mqsc("DEFINE QLOCAL(TIGHT) MAXDEPTH(40) FULL(WAIT)")
    with qm.connect() as putter, qm.connect() as getter:
        sender = putter.sender("TIGHT")
        sent = [sender.link.send(Message(body=number)) for number in range(400)]
        got = []
        while len(got) < 400:
            putter.connection.wait(lambda: all(one.settled for one in sent[: len(got) + 40]), timeout=DEADLINE)
            got += bodies(getter.get("TIGHT") for _ in range(40))
        assert got == list(range(400))
        assert {one.remote_state for one in sent} == {Delivery.ACCEPTED}


def test_a_rejected_message_goes_to_the_dead_letter_queue_with_a_label(qm):
    with qm.connect() as client:
        client.put("Q", Message(body="bad", properties={"k": "v"}))
        receiver = client.receiver("Q", credit=1)
        message = receiver.next(accept=False)
        receiver.settle(message.delivery, Delivery.REJECTED)
        dead = client.get(DEAD_LETTER_QUEUE)
        assert (dead.body, dead.properties) == ("bad", {"k": "v"})
        assert label(dead)["queue"] == "Q"
        assert label(dead)["cause"] == "rejected"


def test_a_full_queue_that_waits_grants_no_credit_until_there_is_room(qm):
    qm.mqsc("DEFINE QLOCAL(NARROW) MAXDEPTH(2) FULL(WAIT)")
    with qm.connect() as putter, qm.connect() as getter:
        sender = putter.sender("NARROW")
        for number in range(2):
            putter.put("NARROW", Message(body=number), sender)
        third = sender.link.send(Message(body=2))
        assert sender.link.credit <= 0
        assert qm.depth("NARROW") == 2
        assert getter.get("NARROW").body == 0
        putter.connection.wait(lambda: third.settled, timeout=DEADLINE)
        assert third.remote_state == Delivery.ACCEPTED
        assert bodies(getter.get_all("NARROW")) == [1, 2]


def test_producers_that_do_not_put_keep_nobody_from_an_empty_queue(qm):
    qm.mqsc("DEFINE QLOCAL(SHARED) MAXDEPTH(50) FULL(WAIT)")
    with qm.connect() as holder, qm.connect() as other:
        idle = [holder.sender("SHARED") for _ in range(30)]
        late = other.sender("SHARED")
        for number in range(50):
            other.put("SHARED", Message(body=number), late)
        assert sum(sender.link.credit for sender in idle) > 0, "they hold what nobody can take back"
        assert bodies(other.get_all("SHARED", credit=100)) == list(range(50))
        # Whoever was idle may still put.
        holder.put("SHARED", Message(body="again"), idle[0])
        assert other.get("SHARED").body == "again"


def test_a_full_queue_that_rejects_answers_2053(qm):
    qm.mqsc("DEFINE QLOCAL(STRICT) MAXDEPTH(2) FULL(REJECT)")
    with qm.connect() as client:
        sender = client.sender("STRICT")
        for number in range(2):
            client.put("STRICT", Message(body=number), sender)
        with pytest.raises(Refused) as refused:
            client.put("STRICT", Message(body=2), sender)
        assert refused.value.reason == 2053
        assert refused.value.condition == "amqp:resource-limit-exceeded"
        assert bodies(client.get_all("STRICT")) == [0, 1]
        client.put("STRICT", Message(body=3), sender)


def test_a_message_over_maxmsgl_is_refused_with_2030(qm):
    qm.mqsc("DEFINE QLOCAL(SHORT) MAXMSGL(1000)")
    with qm.connect() as client:
        sender = client.sender("SHORT")
        with pytest.raises(Refused) as refused:
            client.put("SHORT", Message(body=b"x" * 1001, inferred=True), sender)
        assert refused.value.reason == 2030
        client.put("SHORT", Message(body=b"x" * 500, inferred=True), sender)
    assert qm.depth("SHORT") == 1


@pytest.mark.parametrize(
    "setup, queue, side, reason",
    [
        ("", "NO.SUCH.QUEUE", "put", 2085),
        ("", "NO.SUCH.QUEUE", "get", 2085),
        ("DEFINE QALIAS(DANGLING) TARGET(NOWHERE) REPLACE", "DANGLING", "put", 2082),
        ("DEFINE QLOCAL(NO.PUT) PUT(DISABLED) REPLACE", "NO.PUT", "put", 2051),
        ("DEFINE QLOCAL(NO.GET) GET(DISABLED) REPLACE", "NO.GET", "get", 2016),
    ],
)
def test_a_link_that_cannot_be_is_refused_with_its_reason(qm, setup, queue, side, reason):
    if setup:
        qm.mqsc(setup)
    with qm.connect() as client, pytest.raises(Refused) as refused:
        client.sender(queue) if side == "put" else client.receiver(queue)
    assert refused.value.reason == reason
    assert refused.value.info["reason"] == reason


def test_a_sender_and_a_receiver_may_have_one_name(qm):
    with qm.connect() as client:
        container, connection = client.connection.container, client.connection.conn
        sender = container.create_sender(connection, "Q", name="same")
        receiver = container.create_receiver(connection, "Q", name="same")
        both = lambda: sender.state & receiver.state & Link.REMOTE_ACTIVE
        client.connection.wait(both, timeout=DEADLINE)
        assert sender.remote_target.address == receiver.remote_source.address == "Q"


def test_a_refused_link_can_be_tried_again_at_once_under_its_name(qm):
    """python-proton does so, and its new attach even overtakes its answer to the refusal."""
    with qm.connect() as client:
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                client.sender("NO.SUCH.QUEUE", name="the same")
            assert refused.value.reason == 2085
        client.sender("Q", name="the same")


def test_receiver_settle_mode_second_is_settled_by_the_queue_manager(qm):
    drive(qm, "go-amqp", "put", "Q", "--count", "5")
    assert len(drive(qm, "go-amqp", "get", "Q", "--count", "5", "--second")) == 5
    assert qm.depth("Q") == 0


def test_many_readers_share_a_queue_and_each_message_goes_to_one(qm):
    with qm.connect() as putter:
        sender = putter.sender("Q")
        for number in range(200):
            putter.put("Q", Message(body=number), sender)
    clients = [qm.connect() for _ in range(4)]
    receivers = [client.receiver("Q", credit=10) for client in clients]
    got = []
    while len(got) < 200:
        for receiver in receivers:
            if receiver.wait_for(1, wait=0.05):
                got.append(receiver.next().body)
                receiver.flow(1)
    assert sorted(got) == list(range(200))
    for client in clients:
        client.close()
    assert qm.depth("Q") == 0


def test_what_a_reader_has_and_did_not_settle_nobody_else_gets(qm):
    with qm.connect() as client, qm.connect() as other:
        client.put("Q", Message(body="mine"))
        receiver = client.receiver("Q", credit=1)
        message = receiver.next(accept=False)
        assert other.get_all("Q") == []
        receiver.settle(message.delivery, Delivery.RELEASED)
        assert bodies(other.get_all("Q")) == ["mine"]


def test_a_restart_keeps_every_confirmed_persistent_message_and_drops_the_others(managers):
    manager = managers("restarted")
    manager.mqsc("DEFINE QLOCAL(Q)")
    with manager.connect() as client:
        sender = client.sender("Q")
        for number in range(200):
            client.put("Q", Message(body=number, durable=number % 2 == 0, priority=number % 3), sender)
        taken = sorted(client.get("Q").body for _ in range(20))
    assert manager.stop() == 0
    manager.start()
    with manager.connect() as client:
        left = bodies(client.get_all("Q", credit=1000))
    kept = [number for number in range(200) if number % 2 == 0 and number not in taken]
    assert sorted(left) == kept
    assert left == sorted(left, key=lambda number: (-(number % 3), number)), "in the order they had"


def test_a_message_in_clear_travels_byte_for_byte(qm):
    message = persistent(
        {"map": [1, 2.5, "ü", None, True, b"\x00\xff"]}, id="an id", subject="s", correlation_id=7, reply_to="R"
    )
    message.content_type = symbol("application/x-test")
    message.properties = {"a": 1, "b": [1, 2]}
    message.annotations = {symbol("x-opt-mine"): "kept"}
    with qm.connect() as client:
        client.put("Q", message)
        got = client.get("Q")
    assert got.encode() == message.encode()


@pytest.mark.parametrize("client", NAMES)
def test_each_client_gets_many_messages_in_order(qm, client):
    put = drive(qm, client, "put", "Q", "--count", "300")
    got = drive(qm, client, "get", "Q", "--count", "300")
    assert [message["sha256"] for message in got] == [message["sha256"] for message in put]
    assert len(got) == 300
