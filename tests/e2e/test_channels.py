"""What an administrator sets at a channel, and what it then does: batches, retries, dead letters, stops, idleness."""

import socket
import time

import pytest
from proton import Message

from channels import Route, dead_letters, restart, wait_for_status
from manager import DEAD_LETTER_QUEUE, label, wait_until
from proton_driver import Refused
from proxy import BACK, OUT

COUNT = 12


@pytest.fixture(scope="module")
def pair(managers):
    pair = managers(name="QM1"), managers(name="QM2")
    yield pair
    for manager in pair:
        assert manager.process.poll() is None, "a queue manager ended by itself:\n" + "".join(manager.log[-30:])
        assert manager.stop() == 0, "it did not stop cleanly:\n" + "".join(manager.log[-30:])


@pytest.fixture
def route(pair):
    made = []

    def make(**settings):
        made.append(Route(*pair, **settings))
        return made[-1]

    yield make
    for route in made:
        route.proxy.close()
        route.stop("FORCE")
    dead_letters(pair[1])


@pytest.fixture
def no_dead_letter_queue(pair):
    pair[1].mqsc("ALTER QMGR DEADQ(' ')")
    yield
    pair[1].mqsc(f"ALTER QMGR DEADQ({DEAD_LETTER_QUEUE})")


def all_of(count=COUNT, first=0):
    return list(range(first, first + count))


def ids(messages):
    return [message.id for message in messages]


# ---- what arrives


def test_a_message_arrives_as_it_was_put(route):
    route = route()
    sent = Message(
        id="order 7",
        body=b"two tons of barley",
        inferred=True,
        durable=True,
        priority=7,
        subject="harvest",
        correlation_id="year 3",
        properties={"colour": "green"},
        annotations={"x-opt-mine": 1},
        ttl=3600,
    )
    with route.near.connect() as client:
        client.put(route.remote, sent)
    route.wait_until_sent()
    with route.far.connect() as client:
        (got,) = client.get_all(route.queue)
    kept = ("id", "subject", "correlation_id", "properties", "durable", "priority", "inferred")
    assert {name: getattr(got, name) for name in kept} == {name: getattr(sent, name) for name in kept}
    assert bytes(got.body) == sent.body
    assert got.annotations["x-opt-mine"] == 1
    assert 0 < got.ttl <= 3600
    assert not got.instructions, "the transmission header stays on the way"


def test_higher_priorities_overtake_on_the_transmission_queue(route):
    route = route(start=False)
    route.put([0, 1], priority=4)
    route.put([2], priority=9)
    route.start()
    route.wait_until_sent()
    assert route.arrived() == [2, 0, 1]


def test_a_message_of_many_frames_crosses_whole(route):
    route = route()
    body = bytes(range(256)) * 8_000
    with route.near.connect() as client:
        client.put(route.remote, Message(body=body, inferred=True, durable=True))
    route.wait_until_sent()
    with route.far.connect() as client:
        assert bytes(client.get(route.queue).body) == body


def test_what_is_not_persistent_crosses_too_and_both_kinds_keep_their_order(route):
    route = route(sender="NPMSPEED(NORMAL)", receiver="NPMSPEED(NORMAL)", start=False)
    for number in all_of():
        route.put([number], durable=number % 2 == 0)
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of()


def test_what_is_not_persistent_may_go_with_a_lost_connection_and_never_arrives_twice(route):
    route = route()
    route.wait_for_status("RUNNING")
    route.proxy.hold(OUT)
    route.put(all_of(), durable=False)
    route.proxy.wait_for_held_bytes(OUT)
    route.wait_until_sent()
    route.proxy.refuse()
    route.proxy.heal()
    route.put([COUNT])
    route.wait_until_sent()
    assert route.arrived() == [COUNT], "it was on its way, and was not kept"


# ---- batches


def test_a_batch_ends_at_batchsz(route):
    route = route(sender="BATCHSZ(5)", start=False)
    route.put(all_of())
    route.start()
    route.wait_until_sent()
    status = route.status()
    assert (status["MSGS"], status["BATCHES"], status["BATCHSZ"]) == (COUNT, 3, 5)


def test_the_lower_batchsz_of_both_ends_is_in_force(route):
    route = route(sender="BATCHSZ(50)", receiver="BATCHSZ(4)", start=False)
    route.put(all_of())
    route.start()
    route.wait_until_sent()
    status = route.status()
    assert (status["BATCHES"], status["BATCHSZ"]) == (3, 4)


def test_a_batch_ends_at_batchlim(route):
    route = route(sender="BATCHLIM(10)", start=False)
    route.put(all_of(6), body=bytes(6_000))
    route.start()
    route.wait_until_sent()
    assert route.status()["BATCHES"] == 3


def test_a_batch_waits_for_batchint_when_the_transmission_queue_is_empty(route):
    route = route(sender="BATCHSZ(3) BATCHINT(20000)")
    route.wait_for_status("RUNNING")
    for number in range(3):
        route.put([number])
    route.wait_until_sent()
    status = route.status()
    assert (status["MSGS"], status["BATCHES"]) == (3, 1)


# ---- a message that can't be put: again, then the dead-letter queue, then the channel


def test_a_message_for_a_full_queue_is_tried_again_and_then_put(route):
    route = route(target="MAXDEPTH(1)", receiver="MRRTY(1000) MRTMR(20)")
    route.put([0, 1])
    route.wait_for_arrival(1)
    wait_until(lambda: route.far_status()["STATUS"] == "PAUSED", "the receiver waits to try again")
    assert route.arrived() == [0]
    route.wait_until_sent()
    assert route.arrived() == [1]
    assert dead_letters(route.far) == []


def test_after_mrrty_it_goes_to_the_dead_letter_queue_with_its_reason(route):
    route = route(target="MAXDEPTH(1)", receiver="MRRTY(2) MRTMR(10)")
    route.put(all_of(3))
    route.wait_until_sent()
    letters = dead_letters(route.far)
    assert ids(letters) == [1, 2]
    assert [label(letter)["reason"] for letter in letters] == [2053, 2053]
    assert label(letters[0])["queue"] == route.queue
    assert route.arrived() == [0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [("DELETE QLOCAL({queue})", 2085), ("ALTER QLOCAL({queue}) PUT(DISABLED)", 2051), ("ALTER QLOCAL({queue}) MAXMSGL(10)", 2030)],
)
def test_what_a_queue_does_not_take_is_a_dead_letter_that_says_why(route, change, reason):
    route = route(receiver="MRRTY(0)")
    route.far.mqsc(change.format(queue=route.queue))
    route.put([7], body=bytes(100))
    route.wait_until_sent()
    (letter,) = dead_letters(route.far)
    assert (letter.id, label(letter)["reason"]) == (7, reason)


def test_only_what_can_not_be_put_is_a_dead_letter(route):
    route = route(target="MAXDEPTH(5)", receiver="MRRTY(0)", start=False)
    route.put(all_of())
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of(5)
    assert ids(dead_letters(route.far)) == all_of(COUNT - 5, first=5)


@pytest.mark.parametrize("how", ["no queue", "USEDLQ(NO)"])
def test_without_a_dead_letter_queue_the_channel_ends_and_nothing_is_lost(route, request, how):
    receiver = "MRRTY(0)"
    if how == "no queue":
        request.getfixturevalue("no_dead_letter_queue")
    else:
        receiver += " USEDLQ(NO)"
    route = route(target="MAXDEPTH(2)", receiver=receiver, start=False)
    route.put(all_of())
    route.start()
    wait_until(lambda: route.status()["STATUS"] in ("RETRYING", "STOPPED"), "the channel ends")
    assert "2053" in route.status()["REASON"]
    route.far.mqsc(f"ALTER QLOCAL({route.queue}) MAXDEPTH(1000)")
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of()


def test_what_is_not_persistent_and_fast_is_discarded_where_a_persistent_message_would_end_the_channel(
    route, no_dead_letter_queue
):
    route = route(target="MAXDEPTH(2)", receiver="MRRTY(0)", start=False)
    route.put(all_of(), durable=False)
    route.start()
    route.wait_until_sent()
    route.wait_for_status("RUNNING")
    assert route.arrived() == [0, 1]
    route.put([COUNT])
    route.wait_until_sent()
    assert route.arrived() == [COUNT]


# ---- stop and start


def test_stop_ends_the_batch_and_start_goes_on(route):
    route = route()
    route.put(all_of())
    route.wait_until_sent()
    route.stop()
    route.wait_for_status("STOPPED")
    route.put(all_of(first=COUNT))
    assert route.near.depth(route.transmission) == COUNT
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of(2 * COUNT)


def test_stop_waits_for_a_partner_that_says_nothing_and_force_does_not(route):
    route = route()
    route.wait_for_status("RUNNING")
    route.proxy.hold(BACK)
    route.put(all_of())
    route.wait_for_arrival(COUNT)
    route.stop()
    route.wait_for_status("STOPPING")
    assert route.status()["STOPREQ"] == "YES"
    route.stop("FORCE")
    route.wait_for_status("STOPPED")
    assert route.status()["INDOUBT"] == "YES"
    route.proxy.cut()
    route.proxy.heal()
    route.start()
    route.wait_until_sent()
    assert (route.status()["INDOUBT"], route.arrived()) == ("NO", all_of())


def test_a_stopped_channel_is_not_started_by_a_message(route):
    route = route(transmission="TRIGGER")
    route.wait_for_status("RUNNING")
    route.stop()
    route.wait_for_status("STOPPED")
    route.put([0])
    assert (route.status()["STATUS"], route.near.depth(route.transmission)) == ("STOPPED", 1)
    restart(route.near)
    assert (route.status()["STATUS"], route.near.depth(route.transmission)) == ("STOPPED", 1)


def test_a_receiver_that_was_stopped_takes_nobody_in(route):
    route = route(start=False)
    route.far.mqsc(f"STOP CHANNEL({route.channel})")
    route.put([0])
    route.start()
    route.wait_for_status("RETRYING")
    assert route.near.depth(route.transmission) == 1
    route.far.mqsc(f"START CHANNEL({route.channel})")
    route.wait_until_sent()
    assert route.arrived() == [0]


def test_ping_says_whether_the_partner_answers(route):
    route = route(start=False)
    route.near.mqsc(f"PING CHANNEL({route.channel})")
    route.proxy.refuse()
    route.near.mqsc(f"PING CHANNEL({route.channel})", code=None)
    assert route.near.run(
        "mqsc", "--data", route.near.data, "-c", f"PING CHANNEL({route.channel})", code=None
    ).returncode != 0


# ---- idle, and started by a message


def test_an_idle_channel_leaves_after_discint_and_a_message_starts_it_again(route):
    route = route(sender="DISCINT(1)", transmission="TRIGGER", start=False)
    for number in range(2):
        route.put([number])
        route.wait_for_arrival(number + 1)
        route.wait_for_status("INACTIVE")
    assert route.proxy.connections == 2
    assert route.arrived() == [0, 1]


def test_without_a_trigger_an_inactive_channel_waits_for_start(route):
    route = route(sender="DISCINT(1)")
    route.wait_for_status("RUNNING")
    route.wait_for_status("INACTIVE")
    route.put([0])
    assert (route.status()["STATUS"], route.near.depth(route.transmission)) == ("INACTIVE", 1)
    route.start()
    route.wait_until_sent()


# ---- retries


def test_of_two_addresses_the_one_that_answers_is_used(route):
    route = route(start=False)
    with socket.create_server(("127.0.0.1", 0)) as dead:
        port = dead.getsockname()[1]
    names = f"127.0.0.1({port}),127.0.0.1({route.proxy.port})"
    route.near.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(SDR) CONNAME('{names}')")
    route.put([0])
    route.start()
    route.wait_until_sent()
    assert route.arrived() == [0]
    assert str(route.proxy.port) in route.status()["CONNAME"]


def test_short_retries_are_counted_and_long_ones_follow(route):
    route = route(sender="SHORTRTY(2) SHORTTMR(0) LONGRTY(1) LONGTMR(0)", start=False)
    route.proxy.refuse()
    route.start()
    route.wait_for_status("STOPPED")
    status = route.status()
    assert (status["SHORTRTS"], status["LONGRTS"]) == (0, 0)
    route.proxy.heal()
    route.put([0])
    route.start()
    route.wait_until_sent()
    assert route.arrived() == [0]


def test_a_channel_comes_back_by_itself_after_either_side_was_restarted(route):
    route = route(transmission="TRIGGER")
    for number, managers in enumerate([(route.near,), (route.far,), (route.near, route.far)]):
        restart(*managers)
        route.put([number])
        route.wait_until_sent()
    assert route.arrived() == [0, 1, 2]


def test_a_partner_that_says_nothing_at_all_is_given_up(route):
    """A host that accepts and never answers must not hold the channel in BINDING for ever."""
    route = route(start=False)
    route.proxy.hold(OUT, BACK)
    route.put([0])
    route.start()
    started = time.monotonic()
    wait_until(lambda: route.status()["STATUS"] == "RETRYING", "the channel gives up", 90)
    assert time.monotonic() - started < 90
    route.proxy.heal()
    route.wait_until_sent()


def test_what_the_partner_does_not_know_is_told_by_name(route):
    route = route(start=False)
    route.far.mqsc(f"DELETE CHANNEL({route.channel})")
    route.put([0])
    route.start()
    wait_until(lambda: route.status()["STATUS"] in ("RETRYING", "STOPPED"), "the channel is refused")
    assert route.channel in route.status()["REASON"]
    assert route.near.depth(route.transmission) == 1


# ---- others keep off


def test_a_client_can_not_put_where_a_channel_does(route):
    """A link that poses as a channel's without being one does not get round the sequence."""
    route = route()
    route.wait_for_status("RUNNING")
    with route.far.connect() as client, pytest.raises(Refused):
        client.put(f"{route.queue}@NOWHERE", Message(body="x"))


def test_a_transmission_queue_has_one_channel(route):
    route = route()
    route.wait_for_status("RUNNING")
    second = f"{route.channel}.B"
    route.far.mqsc(f"DEFINE CHANNEL({second}) CHLTYPE(RCVR)")
    route.near.mqsc(
        f"DEFINE CHANNEL({second}) CHLTYPE(SDR) CONNAME('127.0.0.1({route.proxy.port})') XMITQ({route.transmission})"
    )
    route.near.mqsc(f"START CHANNEL({second})", code=None)
    route.put(all_of())
    route.wait_until_sent()
    assert route.arrived() == all_of()
    assert route.status()["MSGS"] == COUNT
    route.near.mqsc(f"STOP CHANNEL({second}) MODE(FORCE)", code=None)
