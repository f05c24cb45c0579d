"""`kill -9` under load: every confirmed persistent message is there once, and what was confirmed as gone never comes again."""

import http.client
import os
import random
import threading
from contextlib import suppress

import pytest
from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container, ReceiverOption

from manager import DEADLINE
from people import People

ROUNDS = int(os.environ.get("BULLA_KILL_ROUNDS", "5"))
SEED = int(os.environ.get("BULLA_KILL_SEED", random.SystemRandom().randrange(1 << 32)))
# Confirmations after which the process is killed, at most.
CONFIRMED_MAX = 3000
CREDIT = 50


class SettleSecond(ReceiverOption):
    """The queue manager settles: only then is a removal confirmed."""

    def apply(self, receiver):
        receiver.rcv_settle_mode = Link.RCV_SECOND


class Load(MessagingHandler):
    """Puts and gets at once, until the queue manager dies at a moment of our choice."""

    def __init__(self, url, first, kill_after, kill, sizes):
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.url, self.kill_after, self.kill, self.sizes = url, kill_after, kill, sizes
        self.next = first
        self.put = set()  # confirmed as there
        self.seen = []  # delivered to us
        self.gone = set()  # confirmed as removed
        self.under_way = {}
        self.events = 0
        self.dead = False
        self.connections = []

    def on_start(self, event):
        for _ in range(2):
            self.connections.append(event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS"))
        putting, getting = self.connections
        event.container.create_sender(putting, "KILL", options=AtLeastOnce())
        receiver = event.container.create_receiver(getting, "KILL", options=SettleSecond())
        receiver.flow(CREDIT)

    def on_sendable(self, event):
        while event.sender.credit and len(self.under_way) < 200 and not self.dead:
            body = bytes(self.sizes.choice((10, 300, 2048, 9000)))
            delivery = event.sender.send(Message(id=self.next, body=body, inferred=True, durable=True))
            self.under_way[delivery.tag] = self.next
            self.next += 1

    def on_accepted(self, event):
        number = self.under_way.pop(event.delivery.tag, None)
        if number is not None:
            self.put.add(number)
            event.delivery.settle()
            self.count()
            self.on_sendable(event)

    def on_message(self, event):
        event.delivery.number = event.message.id
        self.seen.append(event.message.id)
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event):
        delivery = event.delivery
        if delivery.link.is_receiver:
            self.gone.add(delivery.number)
            delivery.settle()
            delivery.link.flow(1)
            self.count()

    def count(self):
        self.events += 1
        if self.events >= self.kill_after and not self.dead:
            self.dead = True
            self.kill()

    def on_transport_error(self, event):
        assert self.dead, event.transport.condition

    def on_disconnected(self, event):
        for connection in self.connections:
            connection.close()


@pytest.fixture(scope="module")
def manager(managers):
    manager = managers("killed")
    manager.mqsc("DEFINE QLOCAL(KILL) MAXDEPTH(1000000)")
    return manager


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_no_confirmed_message_is_lost_doubled_or_raised_from_the_dead(manager, turn):
    print(f"BULLA_KILL_SEED={SEED}")
    chance = random.Random(f"{SEED}/{turn}")
    load = Load(manager.amqp, turn * 1_000_000, chance.randrange(1, CONFIRMED_MAX), manager.process.kill, chance)
    Container(load).run()
    manager.kill()
    manager.start()
    with manager.connect() as client:
        left = [message.id for message in client.get_all("KILL", credit=100_000)]
    print(f"{len(load.put)} confirmed as put, {len(load.gone)} as gone, {len(load.seen)} delivered, {len(left)} left")
    assert len(set(left)) == len(left), "a message is there twice"
    assert not set(left) & load.gone, "a message came again after its removal was confirmed"
    assert load.put <= set(left) | set(load.seen), "a confirmed message is lost"
    assert left == sorted(left), "the order changed"
    assert len(load.put) + len(load.gone) >= min(load.kill_after, 1)
    assert manager.depth("KILL") == 0


def test_a_sealed_message_survives_a_kill_too(managers, authority):
    manager = managers("sealed-killed")
    people = People(manager, authority)
    people.add("orders")
    people.add("billing")
    manager.mqsc(
        f"""
        DEFINE QLOCAL(SEALED)
        SET POLICY(SEALED) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn("orders")}') RECIP('{people.dn("billing")}')
        """
    )
    client = manager.connect("orders")
    sender = client.sender("SEALED")
    for number in range(20):
        client.put("SEALED", Message(body=number, durable=True), sender)
    manager.kill()
    manager.start()
    with manager.connect("billing") as client:
        assert [message.body for message in client.get_all("SEALED")] == list(range(20))


TOPIC = "/ibmmq/rest/v3/messaging/qmgr/BULLA/topic/killed/message"
SUBSCRIBED = ("KILLED.ONE", "KILLED.TWO")
PUBLISHERS, PUBLISHED_MAX = 3, 300


@pytest.fixture(scope="module")
def publishing(managers):
    manager = managers("killed-publishing", options=["--http", "127.0.0.1:0"])
    manager.mqsc("SET AUTHREC PROFILE(**) OBJTYPE(TOPIC) PRINCIPAL('*ANONYMOUS') AUTHADD(PUB)")
    for queue in SUBSCRIBED:
        manager.mqsc(f"DEFINE QLOCAL({queue}) MAXDEPTH(1000000); DEFINE SUB({queue}) TOPICSTR('killed') DEST({queue})")
    return manager


class Publisher:
    """A client of HTTP that publishes numbers, each under a key of its own."""

    def __init__(self, manager):
        self.connection = http.client.HTTPConnection("127.0.0.1", manager.port("http"), timeout=DEADLINE)

    def publish(self, number):
        headers = {"ibm-mq-rest-csrf-token": "", "ibm-mq-md-persistence": "persistent", "Idempotency-Key": str(number)}
        self.connection.request("POST", TOPIC, str(number), headers)
        response = self.connection.getresponse()
        assert response.status == 201, response.read()
        response.read()


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_publication_under_a_key_is_on_each_subscription_once_whenever_it_is_killed(publishing, turn):
    print(f"BULLA_KILL_SEED={SEED}")
    kill_after = random.Random(f"{SEED}/published/{turn}").randrange(1, PUBLISHED_MAX)
    tried, answered, enough = set(), set(), threading.Event()

    def work(first):
        client = Publisher(publishing)
        with suppress(OSError, http.client.HTTPException):
            for number in range(first, first + PUBLISHED_MAX):
                tried.add(number)
                client.publish(number)
                answered.add(number)
                if len(answered) >= kill_after:
                    enough.set()

    firsts = [(turn * PUBLISHERS + at) * PUBLISHED_MAX for at in range(PUBLISHERS)]
    threads = [threading.Thread(target=work, args=(first,)) for first in firsts]
    for thread in threads:
        thread.start()
    assert enough.wait(DEADLINE)
    publishing.process.kill()
    for thread in threads:
        thread.join(DEADLINE)
    publishing.kill()
    publishing.start()
    print(f"{len(answered)} answered, {len(tried) - len(answered)} not")
    again = Publisher(publishing)
    for number in tried:
        again.publish(number)
    with publishing.connect() as client:
        for queue in SUBSCRIBED:
            found = sorted(int(bytes(message.body)) for message in client.get_all(queue, credit=100_000))
            assert found == sorted(tried), queue
