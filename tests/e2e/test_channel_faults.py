"""Channels under fire, and at each moment at which two journals could come to disagree: every message arrives once and in order."""

import os
import random
import threading
import time

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container

from channels import Route, dead_letters, freeze, restart, status, wait_for_status
from manager import wait_until
from proxy import BACK, OUT, Proxy

ROUNDS = int(os.environ.get("BULLA_FIRE_ROUNDS", "20"))
SEED = int(os.environ.get("BULLA_FIRE_SEED", random.SystemRandom().randrange(1 << 32)))
# Puts of a round.
LOAD = 400
WINDOW = 100
SIZES = (10, 300, 2048, 9000, 150_000)
QUEUES = ("ORDERS", "BILLS", "NOISE")
# Messages on it are not persistent.
NOISE = "NOISE"
COUNT = 30


class Load(MessagingHandler):
    """Puts numbered messages on the three queues until all are confirmed or the queue manager is gone."""

    def __init__(self, url, first, chance):
        super().__init__(auto_settle=False)
        self.url, self.next, self.end, self.chance = url, first, first + LOAD, chance
        self.tried = {queue: [] for queue in QUEUES}
        self.confirmed = {queue: set() for queue in QUEUES}
        self.under_way = {}
        self.bytes = 0

    def run(self):
        Container(self).run()

    def on_start(self, event):
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.senders = [
            event.container.create_sender(self.connection, queue, name=queue, options=AtLeastOnce()) for queue in QUEUES
        ]

    def on_sendable(self, event):
        if any(not sender.credit for sender in self.senders):
            return
        while self.next < self.end and len(self.under_way) < WINDOW:
            sender = self.chance.choice(self.senders)
            if not sender.credit:
                return
            body = bytes(self.chance.choices(SIZES, (10, 10, 10, 5, 1))[0])
            queue = sender.name
            delivery = sender.send(Message(id=self.next, body=body, inferred=True, durable=queue != NOISE))
            self.under_way[(queue, delivery.tag)] = self.next
            self.tried[queue].append(self.next)
            self.next += 1

    def on_accepted(self, event):
        queue = event.link.name
        self.confirmed[queue].add(self.under_way.pop((queue, event.delivery.tag)))
        event.delivery.settle()
        if self.next == self.end and not self.under_way:
            self.connection.close()
        else:
            self.on_sendable(event)

    def on_transport_error(self, event):
        pass

    def on_disconnected(self, event):
        self.connection.close()


class Islands:
    """QM1 sends, QM2 receives, and the network between them is the proxy."""

    def __init__(self, managers):
        self.near, self.far = managers(name="QM1"), managers(name="QM2")
        self.proxy = Proxy(lambda: self.far.ports.get("amqp"))
        self.killing = threading.Lock()
        queues = "".join(f"DEFINE QLOCAL({queue}) MAXDEPTH(1000000)\n" for queue in QUEUES)
        self.far.mqsc(queues + "DEFINE CHANNEL(QM1.QM2) CHLTYPE(RCVR)")
        remotes = "".join(f"DEFINE QREMOTE({queue}) RNAME({queue}) RQMNAME(QM2) XMITQ(QM2)\n" for queue in QUEUES)
        self.near.mqsc(
            f"""
            DEFINE QLOCAL(QM2) USAGE(XMITQ) TRIGGER MAXDEPTH(1000000)
            {remotes}
            DEFINE CHANNEL(QM1.QM2) CHLTYPE(SDR) CONNAME('127.0.0.1({self.proxy.port})') XMITQ(QM2) +
                BATCHSZ(20) SHORTRTY(999999999) SHORTTMR(1)
            START CHANNEL(QM1.QM2)
            """
        )

    def restart(self, *managers):
        with self.killing:
            restart(*managers)

    def faults(self):
        proxy = self.proxy
        return {
            "sender killed": lambda: self.restart(self.near),
            "receiver killed": lambda: self.restart(self.far),
            "both killed": lambda: self.restart(self.near, self.far),
            "cut": proxy.cut,
            "half closed out": lambda: proxy.half_close(OUT),
            "half closed back": lambda: proxy.half_close(BACK),
            "stalled out": lambda: proxy.hold(OUT),
            "stalled back": lambda: proxy.hold(BACK),
            "stalled both ways": lambda: proxy.hold(OUT, BACK),
            "away": proxy.refuse,
            "slow": lambda: proxy.slow(700, 0.002),
            "whole again": proxy.release,
        }


@pytest.fixture(scope="module")
def islands(managers):
    islands = Islands(managers)
    yield islands
    islands.proxy.close()


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_under_fire_each_persistent_message_arrives_once_and_in_order(islands, turn):
    print(f"BULLA_FIRE_SEED={SEED}")
    chance = random.Random(f"{SEED}/{turn}")
    load = Load(islands.near.amqp, turn * 1_000_000, chance)
    faults = islands.faults()
    said = {direction: max(islands.proxy.passed[direction] // (turn + 1), 3_000) for direction in (OUT, BACK)}
    plan = []
    for _ in range(chance.randrange(1, 5)):
        direction = chance.choice((OUT, BACK))
        plan.append((direction, chance.randrange(said[direction]), chance.choice(list(faults))))
    finale = chance.choice(["cut", "sender killed", "receiver killed", "both killed", "whole again"])
    print(f"faults: {plan}, then {finale}")
    for direction, after, fault in plan:
        islands.proxy.at(direction, after, faults[fault])
    load.run()
    faults[finale]()
    islands.proxy.heal()
    islands.near.wait_for_depth("QM2", 0)
    with islands.far.connect() as client:
        for queue in QUEUES:
            arrived = [message.id for message in client.get_all(queue, credit=1_000_000)]
            tried, confirmed = load.tried[queue], load.confirmed[queue]
            print(f"{queue}: {len(tried)} tried, {len(confirmed)} confirmed, {len(arrived)} arrived")
            assert len(set(arrived)) == len(arrived), "a message arrived twice"
            assert set(arrived) <= set(tried), "a message arrived that is of an earlier round"
            if queue != NOISE:
                assert arrived == sorted(arrived), "the order changed"
                assert confirmed <= set(arrived), "a confirmed message is lost"
    assert dead_letters(islands.far) == []


# ---- resync, moment by moment


@pytest.fixture(scope="module")
def pair(managers):
    return managers(name="QM1"), managers(name="QM2")


@pytest.fixture
def route(pair):
    """Makes routes between the two; a test may leave a queue manager dead or frozen."""
    made = []

    def make(**settings):
        made.append(Route(*pair, **settings))
        return made[-1]

    yield make
    for manager in pair:
        manager.kill()
        manager.start()
    for route in made:
        route.proxy.close()
        route.stop("FORCE")


def all_of(count=COUNT, first=0):
    return list(range(first, first + count))


@pytest.mark.parametrize("late", [False, True], ids=["lost", "late"])
def test_a_sender_that_dies_before_anything_arrived_sends_it_once_it_is_back(route, late):
    """What it had sent is lost on the way, or comes when it is back already."""
    route = route(transmission="TRIGGER")
    route.wait_for_status("RUNNING")
    route.proxy.hold(OUT)
    route.put(all_of())
    route.proxy.wait_for_held_bytes(OUT)
    restart(route.near)
    if not late:
        route.proxy.cut()
    route.proxy.heal()
    route.wait_until_sent()
    assert route.arrived() == all_of()


def test_a_sender_that_dies_after_the_partner_has_all_sends_none_of_it_again(route):
    route = route(transmission="TRIGGER")
    route.wait_for_status("RUNNING")
    route.proxy.hold(BACK)
    route.put(all_of())
    route.wait_for_arrival(COUNT)
    assert route.near.depth(route.transmission) == COUNT, "nothing was confirmed yet"
    sent = route.proxy.passed[OUT]
    restart(route.near)
    route.proxy.heal()
    route.wait_until_sent()
    assert route.arrived() == all_of()
    assert route.proxy.passed[OUT] - sent < COUNT * 40, "the messages went over the network again"


def test_a_receiver_that_dies_before_its_sync_is_sent_everything_again(route):
    route = route()
    route.wait_for_status("RUNNING")
    route.proxy.hold(OUT)
    route.put(all_of())
    route.proxy.wait_for_held_bytes(OUT)
    freeze(route.far)
    sent = route.proxy.passed[OUT]
    route.proxy.release()
    # It is with the receiver's machine, and the process has not seen it.
    route.proxy.wait_for_bytes(OUT, sent + 1_000)
    restart(route.far)
    route.wait_until_sent()
    assert route.arrived() == all_of()


def test_a_receiver_that_dies_after_its_sync_and_before_its_confirmation_takes_nothing_twice(route):
    route = route()
    route.wait_for_status("RUNNING")
    route.proxy.hold(BACK)
    route.put(all_of())
    route.wait_for_arrival(COUNT)
    restart(route.far)
    # The confirmation that is held must not arrive after all.
    route.proxy.cut()
    route.proxy.heal()
    route.wait_until_sent()
    assert route.arrived() == all_of()


def test_a_sender_that_dies_before_it_has_read_the_confirmation_sends_nothing_again(route):
    route = route(transmission="TRIGGER")
    route.wait_for_status("RUNNING")
    route.proxy.hold(BACK)
    route.put(all_of())
    route.wait_for_arrival(COUNT)
    freeze(route.near)
    back = route.proxy.passed[BACK]
    route.proxy.release()
    route.proxy.wait_for_bytes(BACK, back + 10)
    restart(route.near)
    route.wait_until_sent()
    assert route.arrived() == all_of()


@pytest.mark.parametrize("dead", ["sender", "receiver", "both"])
def test_after_the_confirmation_a_crash_changes_nothing_and_the_numbers_go_on(route, dead):
    route = route(transmission="TRIGGER")
    route.put(all_of())
    route.wait_until_sent()
    restart(*{"sender": [route.near], "receiver": [route.far], "both": [route.near, route.far]}[dead])
    route.put(all_of(first=COUNT))
    route.wait_until_sent()
    assert route.arrived() == all_of(2 * COUNT)
    assert route.status()["LSTSEQNO"] == 2 * COUNT


def test_a_batch_that_is_cut_off_in_the_middle_goes_on_where_it_stopped(route):
    route = route(sender="BATCHSZ(10)")
    route.wait_for_status("RUNNING")
    body = bytes(1_000)
    for after in (500, 1_500, 5_800):
        route.proxy.at(OUT, after, route.proxy.cut)
    route.put(all_of(), body)
    route.wait_until_sent()
    assert route.arrived() == all_of()
    assert route.proxy.connections >= 4, "the connection was cut three times"


def test_what_expires_while_it_is_in_doubt_leaves_no_gap(route):
    route = route(transmission="TRIGGER")
    route.wait_for_status("RUNNING")
    route.proxy.hold(OUT)
    route.put([0], ttl=0.5)
    over = time.monotonic() + 0.6
    route.put(all_of(first=1))
    route.proxy.wait_for_held_bytes(OUT)
    route.proxy.refuse()
    wait_until(lambda: time.monotonic() > over, "the first message has expired")
    route.proxy.heal()
    route.wait_until_sent()
    assert route.arrived() == all_of(first=1)


# ---- sequence numbers


def in_doubt(route, arrive):
    """Leaves a stopped channel in doubt, its messages at the partner or not."""
    route.wait_for_status("RUNNING")
    route.proxy.hold(BACK if arrive else OUT)
    route.put(all_of())
    if arrive:
        route.wait_for_arrival(COUNT)
    else:
        route.proxy.wait_for_held_bytes(OUT)
    route.stop("FORCE")
    route.wait_for_status("STOPPED")
    route.proxy.cut()
    route.proxy.heal()
    assert route.status()["INDOUBT"] == "YES"


def test_a_wrong_number_stops_the_channel_until_it_is_reset(route):
    route = route()
    route.put(all_of())
    route.wait_until_sent()
    route.stop()
    route.wait_for_status("STOPPED")
    route.far.mqsc(f"RESET CHANNEL({route.channel}) SEQNUM(77)")
    route.put(all_of(first=COUNT))
    route.start()
    route.wait_for_status("STOPPED")
    assert "sequence" in route.status()["REASON"]
    assert route.near.depth(route.transmission) == COUNT
    # At the sending end it is for both.
    route.near.mqsc(f"RESET CHANNEL({route.channel}) SEQNUM(1)")
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of(2 * COUNT)
    assert route.status()["LSTSEQNO"] == COUNT


def test_a_store_that_was_replaced_is_not_taken_for_the_old_one(route, managers):
    """A sender that lost its data begins at number one, and its partner must not drop that as known."""
    route = route()
    route.put(all_of())
    route.wait_until_sent()
    route.stop()
    route.wait_for_status("STOPPED")
    other = managers(name="QM1")
    try:
        other.mqsc(
            f"""
            DEFINE QLOCAL({route.transmission}) USAGE(XMITQ)
            DEFINE QREMOTE({route.remote}) RNAME({route.queue}) RQMNAME(QM2) XMITQ({route.transmission})
            DEFINE CHANNEL({route.channel}) CHLTYPE(SDR) CONNAME('127.0.0.1({route.proxy.port})') XMITQ({route.transmission})
            """
        )
        with other.connect() as client:
            client.put(route.remote, Message(id=1_000, durable=True))
        other.mqsc(f"START CHANNEL({route.channel})")
        wait_for_status(other, route.channel, "STOPPED")
        assert other.depth(route.transmission) == 1, "the message is kept"
        # A reset takes both ends: the receiving one has to agree.
        other.mqsc(f"RESET CHANNEL({route.channel}) SEQNUM(1)\nSTART CHANNEL({route.channel})")
        wait_until(lambda: "has not agreed" in status(other, route.channel)["REASON"], "the reset is refused")
        wait_until(lambda: "next message" in route.far.mqsc(f"RESET CHANNEL({route.channel})", code=None), "it is agreed to")
        other.mqsc(f"START CHANNEL({route.channel})")
        other.wait_for_depth(route.transmission, 0)
        assert route.arrived() == [*all_of(), 1_000]
    finally:
        other.stop()


def test_resolve_commit_lets_go_what_is_at_the_partner(route):
    route = route()
    in_doubt(route, arrive=True)
    route.near.mqsc(f"RESOLVE CHANNEL({route.channel}) ACTION(COMMIT)")
    assert (route.near.depth(route.transmission), route.status()["INDOUBT"]) == (0, "NO")
    route.put(all_of(first=COUNT))
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of(2 * COUNT)


def test_resolve_backout_keeps_what_did_not_reach_the_partner(route):
    route = route()
    in_doubt(route, arrive=False)
    route.near.mqsc(f"RESOLVE CHANNEL({route.channel}) ACTION(BACKOUT)")
    assert (route.near.depth(route.transmission), route.status()["INDOUBT"]) == (COUNT, "NO")
    route.start()
    route.wait_until_sent()
    assert route.arrived() == all_of()


def test_a_wrong_backout_is_a_wrong_number_and_not_a_second_copy(route):
    route = route()
    in_doubt(route, arrive=True)
    route.near.mqsc(f"RESOLVE CHANNEL({route.channel}) ACTION(BACKOUT)")
    route.start()
    route.wait_for_status("STOPPED")
    assert "sequence" in route.status()["REASON"]
    assert route.arrived() == all_of()
    assert route.near.depth(route.transmission) == COUNT


def test_numbers_wrap_around_and_a_reconnection_in_between_makes_no_difference(route):
    route = route(sender="SEQWRAP(100)", receiver="SEQWRAP(100)", transmission="TRIGGER")
    route.put(all_of(90))
    route.wait_until_sent()
    restart(route.near)
    route.put(all_of(60, first=90))
    route.wait_until_sent()
    restart(route.far)
    route.put(all_of(100, first=150))
    route.wait_until_sent()
    assert route.arrived() == all_of(250)
    assert route.status()["LSTSEQNO"] == 50


def test_two_ends_that_wrap_at_different_numbers_do_not_start(route):
    route = route(sender="SEQWRAP(100)", receiver="SEQWRAP(200)")
    route.put([1])
    assert route.near.depth(route.transmission) == 1
    said = lambda: route.status().get("REASON", "")
    wait_until(lambda: "SEQWRAP" in said(), f"it says why: {said()}")
    assert route.near.depth(route.transmission) == 1
