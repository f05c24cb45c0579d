"""Two queue managers of which none, both or one protects its messages: what lies where is checked with `openssl cms`.

QM1's people have certificates of authority North, QM2's of authority South. A channel uses the key ring of the user who is
named like its queue manager.
"""

import itertools
import os
import subprocess
from pathlib import Path

import pytest
from proton import Message

import cms
from channels import TLS, trust_each_other
from manager import BULLA, DEAD_LETTER_QUEUE, label, wait_until
from people import People
from pki import Authority, CommandFailed, Ring
from proton_driver import Refused

SAMPLE = Path(__file__).parents[2] / "samples/islands/run"
PAYLOAD = b"two tons of barley; " * 40
QUALITIES = {
    "integrity": "SIGNALG(SHA256) SIGNER('{signer}')",
    "privacy": "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{signer}') RECIP('{reader}')",
    "privacy-cbc": "SIGNALG(SHA256) ENCALG(AES256CBC) SIGNER('{signer}') RECIP('{reader}')",
    "confidentiality": "ENCALG(AES256) RECIP('{reader}') KEYREUSE(3)",
}
OWN_DEAD_LETTER_QUEUE = "DEAD.LETTERS"


class Island:
    """A queue manager, its people, and the connections that they keep."""

    def __init__(self, qm, authority, users):
        self.qm = qm
        self.authority = authority
        self.people = People(qm, authority)
        for user in users:
            self.people.add(user)
        self.clients = {}

    def client(self, user=None):
        if user not in self.clients:
            self.clients[user] = self.qm.connect(user)
        return self.clients[user]

    def identity(self, user):
        return self.people.identities[user]

    def raw(self, queue):
        """What lies on a queue, as it lies there."""
        return self.client().get_all(f"{queue}.RAW", browse=True)

    def set_policy(self, queue, quality, signer, reader, more=""):
        names = {"signer": self.people.dn(signer), "reader": self.people.dn(reader)}
        self.qm.mqsc(f"SET POLICY({queue}) {QUALITIES[quality].format(**names)} {more}")

    def opened(self, message, quality, reader, tmp):
        """What `openssl cms` finds in a sealed message, its signer's path checked."""
        assert message.content_type.startswith(cms.SEALED)
        return opened(bytes(message.body), quality, self.identity(reader), self.authority, tmp)


def opened(body, quality, reader, authority, tmp):
    if quality != "integrity":
        body = cms.decrypt(body, reader, tmp)
    if quality != "confidentiality":
        body = cms.verify(body, authority, tmp)
    return body


class Route:
    """A channel of its own from QM1 to QM2, with a transmission queue, a queue there and a remote queue here."""

    numbers = itertools.count(1)

    def __init__(self, one, two, sender="", receiver="", target=None):
        number = next(self.numbers)
        self.one, self.two = one, two
        self.channel, self.transmission, self.queue = f"CHANNEL{number}", f"TRANSMIT{number}", f"QUEUE{number}"
        port = two.qm.ports["amqps"]
        one.qm.mqsc(f"""
            DEFINE QLOCAL({self.transmission}) USAGE(XMITQ)
            DEFINE QALIAS({self.transmission}.RAW) TARGET({self.transmission})
            DEFINE QREMOTE({self.queue}) RNAME({target or self.queue}) RQMNAME(QM2) XMITQ({self.transmission})
            DEFINE CHANNEL({self.channel}) CHLTYPE(SDR) CONNAME('127.0.0.1({port})') XMITQ({self.transmission}) +
                   SHORTTMR(1) {TLS} {sender}
        """)
        two.qm.mqsc(f"""
            DEFINE QLOCAL({self.queue})
            DEFINE QALIAS({self.queue}.RAW) TARGET({self.queue})
            DEFINE CHANNEL({self.channel}) CHLTYPE(RCVR) MRRTY(0) {TLS} {receiver}
        """)

    def put(self, user=None, payload=PAYLOAD, durable=True, **fields):
        message = Message(body=payload, inferred=True, durable=durable, properties={"colour": "green"}, **fields)
        self.one.client(user).put(self.queue, message)

    def start(self):
        self.one.qm.mqsc(f"START CHANNEL({self.channel})")

    def stop(self):
        self.one.qm.mqsc(f"STOP CHANNEL({self.channel}) STATUS(STOPPED)", code=None)

    def status(self):
        return self.one.qm.mqsc(f"DISPLAY CHSTATUS({self.channel}) ALL")

    def wait_for(self, word):
        wait_until(lambda: word in self.status(), f"{word} is in the channel's status")

    def sent(self):
        [message] = self.one.raw(self.transmission)
        return message

    def arrived(self, queue=None):
        """What lies on the target, once something is shown there: what is put counts, and is shown when synced."""
        queue, shown = queue or self.queue, []

        def is_shown():
            shown[:] = self.two.raw(queue)
            return bool(shown)

        wait_until(is_shown, f"a message is on {queue}; the channel: {self.status()}")
        [message] = shown
        return message

    def protect_at_one(self, quality, reader="QM1", more=""):
        """`orders` seals for the channel: the remote queue says how, the transmission queue that it may be opened."""
        for queue in (self.queue, self.transmission):
            self.one.set_policy(queue, quality, "orders", reader, more)

    def protect_at_two(self, quality, queue=None, more=""):
        """The channel seals for `billing`."""
        self.two.set_policy(queue or self.queue, quality, "QM2", "billing", more)


@pytest.fixture(scope="module")
def islands(managers, tmp_path_factory):
    north = Authority(tmp_path_factory.mktemp("north"), "North")
    south = Authority(tmp_path_factory.mktemp("south"), "South")
    one = Island(managers("qm1", name="QM1"), north, ["orders", "QM1"])
    two = Island(managers("qm2", name="QM2"), south, ["billing", "QM2"])
    trust_each_other(one.qm, two.qm)
    # One at QM2 whom those at QM1 know: for messages that stay sealed from end to end.
    bob = north.issue("bob")
    two.qm.add_user("bob")
    Ring(two.qm.data, "bob").own(bob).trust(north).people(one.identity("orders"))
    one.people.rings["orders"].people(bob)
    one.people.identities["bob"] = bob
    two.qm.mqsc(f"DEFINE QALIAS({DEAD_LETTER_QUEUE}.RAW) TARGET({DEAD_LETTER_QUEUE})")
    two.qm.mqsc(f"DEFINE QLOCAL({OWN_DEAD_LETTER_QUEUE})")
    two.qm.mqsc(f"DEFINE QALIAS({OWN_DEAD_LETTER_QUEUE}.RAW) TARGET({OWN_DEAD_LETTER_QUEUE})")
    one.qm.mqsc(f"DEFINE QALIAS({DEAD_LETTER_QUEUE}.RAW) TARGET({DEAD_LETTER_QUEUE})")
    yield one, two
    for island in (one, two):
        for client in island.clients.values():
            client.close()
        assert island.qm.process.poll() is None, "".join(island.qm.log[-30:])
        assert island.qm.stop() == 0, "".join(island.qm.log[-30:])


@pytest.fixture
def route(islands):
    """Makes routes; their channels end with the test, and the dead-letter queues are empty and as they were."""
    one, two = islands
    made = []

    def make(**settings):
        made.append(Route(one, two, **settings))
        return made[-1]

    yield make
    for route in made:
        route.stop()
    two.qm.mqsc(f"ALTER QMGR DEADQ({DEAD_LETTER_QUEUE})")
    two.qm.mqsc(f"DELETE POLICY({OWN_DEAD_LETTER_QUEUE})", code=None)
    for island, queue in ((one, DEAD_LETTER_QUEUE), (two, DEAD_LETTER_QUEUE), (two, OWN_DEAD_LETTER_QUEUE)):
        island.client().get_all(f"{queue}.RAW")


# What lies on the sender's transmission queue and on the receiver's queue, first of orders and then of invoices.
SEEN = {
    "unprotected": ["in clear", "in clear", "in clear", "in clear"],
    "end-to-end": ["sealed", "sealed", "sealed", "sealed"],
    "one-side": ["sealed", "in clear", "in clear", "sealed"],
    "two-authorities": ["sealed", "sealed", "sealed", "sealed"],
}
PLACES = [
    "QM1, transmission queue QM2: ",
    "QM2, queue ORDERS: ",
    "QM2, transmission queue QM1: ",
    "QM1, queue INVOICES: ",
]


@pytest.mark.parametrize("island", SEEN)
def test_the_sample_of_each_island_shows_what_lies_where(island):
    done = subprocess.run(
        [SAMPLE, island], capture_output=True, text=True, timeout=120, env={**os.environ, "BULLA": BULLA}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for place, what in zip(PLACES, SEEN[island], strict=True):
        assert f"{place}{what}" in done.stdout, done.stdout
    if island == "two-authorities":
        assert "integrity, signer CN=QM2,O=South" in done.stdout
    assert "billing gets at QM2: two tons of barley" in done.stdout
    assert "orders gets at QM1: pay twelve shekels" in done.stdout


def test_between_unprotected_islands_a_message_lies_in_clear_everywhere(route):
    route = route()
    route.put()
    assert bytes(route.sent().body) == PAYLOAD
    route.start()
    message = route.arrived()
    assert bytes(message.body) == PAYLOAD
    assert message.properties == {"colour": "green"}


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_channel_opens_what_leaves_under_remove(route, quality, tmp_path):
    route = route(sender="SPLPROT(REMOVE)")
    route.protect_at_one(quality)
    route.put("orders", id="17")
    assert route.one.opened(route.sent(), quality, "QM1", tmp_path) == PAYLOAD
    route.start()
    message = route.arrived()
    assert bytes(message.body) == PAYLOAD
    assert not str(message.content_type).startswith(cms.SEALED)
    assert (message.id, message.properties) == ("17", {"colour": "green"})
    assert message.durable


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_channel_seals_what_arrives_as_the_target_queue_asks(route, quality, tmp_path):
    route = route(receiver="SPLPROT(ASPOLICY)")
    route.protect_at_two(quality)
    route.put(id="18")
    assert bytes(route.sent().body) == PAYLOAD
    route.start()
    assert route.two.opened(route.arrived(), quality, "billing", tmp_path) == PAYLOAD
    got = route.two.client("billing").get(route.queue)
    assert (bytes(got.body), got.id, got.properties) == (PAYLOAD, "18", {"colour": "green"})


@pytest.mark.parametrize("there", QUALITIES)
@pytest.mark.parametrize("here", QUALITIES)
def test_two_islands_protect_differently_with_authorities_of_their_own(route, here, there, tmp_path):
    route = route(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    route.protect_at_one(here)
    route.protect_at_two(there)
    route.put("orders")
    sent = route.sent()
    assert route.one.opened(sent, here, "QM1", tmp_path) == PAYLOAD
    route.start()
    arrived = route.arrived()
    assert bytes(arrived.body) != bytes(sent.body)
    assert route.two.opened(arrived, there, "billing", tmp_path) == PAYLOAD
    if there != "confidentiality":
        with pytest.raises(CommandFailed):
            opened(bytes(arrived.body), there, route.two.identity("billing"), route.one.authority, tmp_path)
    assert bytes(route.two.client("billing").get(route.queue).body) == PAYLOAD


@pytest.mark.parametrize("protection", ["PASSTHRU", "ASPOLICY"])
@pytest.mark.parametrize("quality", QUALITIES)
def test_a_message_that_is_sealed_from_end_to_end_is_not_sealed_again(route, quality, protection, tmp_path):
    route = route(receiver=f"SPLPROT({protection}) MCAUSER('bob')")
    route.one.set_policy(route.queue, quality, "orders", "bob")
    names = {"signer": route.one.people.dn("orders"), "reader": route.one.people.dn("bob")}
    route.two.qm.mqsc(f"SET POLICY({route.queue}) {QUALITIES[quality].format(**names)}")
    route.put("orders")
    sent = route.sent()
    route.start()
    arrived = route.arrived()
    assert bytes(arrived.body) == bytes(sent.body)
    assert opened(bytes(arrived.body), quality, route.one.identity("bob"), route.one.authority, tmp_path) == PAYLOAD
    assert bytes(route.two.client("bob").get(route.queue).body) == PAYLOAD


def test_a_channel_that_passes_through_opens_nothing_though_the_transmission_queue_has_a_policy(route):
    route = route()
    route.protect_at_one("privacy")
    route.put("orders")
    sent = route.sent()
    route.start()
    assert bytes(route.arrived().body) == bytes(sent.body)


def test_a_channel_that_passes_through_seals_nothing_though_the_target_has_a_policy(route):
    route = route()
    route.protect_at_two("privacy")
    route.put()
    route.start()
    assert bytes(route.arrived().body) == PAYLOAD
    with pytest.raises(Refused) as refused:
        route.two.client("billing").get(route.queue)
    assert (refused.value.reason, refused.value.cause) == (2063, "unsigned")
    route.two.qm.wait_for_depth(route.queue, 0)


def test_without_a_policy_neither_remove_nor_aspolicy_changes_a_message(route):
    route = route(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    route.put()
    route.start()
    assert bytes(route.arrived().body) == PAYLOAD


# Dead letters (one test for each rule)


def dead(route, queue=DEAD_LETTER_QUEUE):
    message = route.arrived(queue)
    assert label(message)["queue"].startswith("NOWHERE"), label(message)
    assert label(message)["reason"] == 2085
    return message


def test_a_dead_letter_lies_in_clear_on_a_system_queue_which_can_have_no_policy(route):
    route = route(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)", target="NOWHERE")
    refused = route.two.qm.mqsc(f"SET POLICY({DEAD_LETTER_QUEUE}) SIGNALG(SHA256)", code=2)
    assert "carry no policy" in refused
    route.protect_at_one("privacy")
    route.put("orders")
    route.start()
    assert bytes(dead(route).body) == PAYLOAD


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_dead_letter_is_sealed_as_a_queue_asks_that_is_no_system_queue(route, quality, tmp_path):
    route = route(receiver="SPLPROT(ASPOLICY)", target="NOWHERE")
    route.two.qm.mqsc(f"ALTER QMGR DEADQ({OWN_DEAD_LETTER_QUEUE})")
    route.protect_at_two(quality, OWN_DEAD_LETTER_QUEUE)
    route.put()
    route.start()
    assert route.two.opened(dead(route, OWN_DEAD_LETTER_QUEUE), quality, "billing", tmp_path) == PAYLOAD
    assert bytes(route.two.client("billing").get(OWN_DEAD_LETTER_QUEUE).body) == PAYLOAD


def test_a_dead_letter_lies_in_clear_on_a_queue_without_a_policy(route):
    route = route(receiver="SPLPROT(ASPOLICY)", target="NOWHERE")
    route.two.qm.mqsc(f"ALTER QMGR DEADQ({OWN_DEAD_LETTER_QUEUE})")
    route.put()
    route.start()
    assert bytes(dead(route, OWN_DEAD_LETTER_QUEUE).body) == PAYLOAD


@pytest.mark.parametrize("protection", ["PASSTHRU", "ASPOLICY"])
def test_a_dead_letter_that_is_sealed_is_not_sealed_again(route, protection, tmp_path):
    route = route(receiver=f"SPLPROT({protection})", target="NOWHERE")
    route.two.qm.mqsc(f"ALTER QMGR DEADQ({OWN_DEAD_LETTER_QUEUE})")
    route.protect_at_two("privacy", OWN_DEAD_LETTER_QUEUE)
    route.one.set_policy(route.queue, "privacy", "orders", "bob")
    route.put("orders")
    sent = route.sent()
    route.start()
    assert bytes(dead(route, OWN_DEAD_LETTER_QUEUE).body) == bytes(sent.body)


def test_a_dead_letter_queue_that_tolerates_takes_clear_messages_of_a_channel_that_passes_through(route):
    route = route(target="NOWHERE")
    route.two.qm.mqsc(f"ALTER QMGR DEADQ({OWN_DEAD_LETTER_QUEUE})")
    route.protect_at_two("privacy", OWN_DEAD_LETTER_QUEUE, "TOLERATE")
    route.put()
    route.start()
    assert bytes(dead(route, OWN_DEAD_LETTER_QUEUE).body) == PAYLOAD


def refuses_dead_letters(route):
    """The dead-letter queue's policy takes no clear messages, and the channel seals none."""
    route.two.qm.mqsc(f"ALTER QMGR DEADQ({OWN_DEAD_LETTER_QUEUE})")
    route.protect_at_two("privacy", OWN_DEAD_LETTER_QUEUE, "ENFORCE")


def test_a_persistent_message_stays_with_its_sender_when_the_dead_letter_queue_refuses_it(route):
    route = route(target="NOWHERE")
    refuses_dead_letters(route)
    route.put()
    route.start()
    route.wait_for("STATUS(RETRYING)")
    assert "2063" in route.status() or "2085" in route.status(), route.status()
    assert route.one.qm.depth(route.transmission) == 1
    # Once there is a way, it arrives, and once only.
    route.two.qm.mqsc("DEFINE QLOCAL(NOWHERE) REPLACE; DEFINE QALIAS(NOWHERE.RAW) TARGET(NOWHERE) REPLACE")
    try:
        assert bytes(route.arrived("NOWHERE").body) == PAYLOAD
        route.one.qm.wait_for_depth(route.transmission, 0)
        assert route.two.qm.depth(OWN_DEAD_LETTER_QUEUE) == 0
    finally:
        route.stop()
        route.two.client().get_all("NOWHERE")
        route.two.qm.mqsc("DELETE QALIAS(NOWHERE.RAW); DELETE QLOCAL(NOWHERE)", code=None)


def test_with_npmspeed_normal_a_message_that_is_not_persistent_stays_with_its_sender_too(route):
    route = route(sender="NPMSPEED(NORMAL)", receiver="NPMSPEED(NORMAL)", target="NOWHERE")
    refuses_dead_letters(route)
    route.put(durable=False)
    route.start()
    route.wait_for("STATUS(RETRYING)")
    assert route.one.qm.depth(route.transmission) == 1


def test_with_npmspeed_fast_a_message_that_is_not_persistent_is_discarded(route):
    route = route(target="NOWHERE")
    refuses_dead_letters(route)
    route.put(durable=False)
    route.start()
    wait_until(lambda: any("NOWHERE" in line for line in route.two.qm.log), "the operator of QM2 is told")
    route.one.qm.wait_for_depth(route.transmission, 0)
    assert "STATUS(RUNNING)" in route.status()
    assert route.two.qm.depth(OWN_DEAD_LETTER_QUEUE) == 0


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_message_that_was_opened_and_is_too_long_for_the_channel_is_buried_sealed(route, quality, tmp_path):
    route = route(sender="SPLPROT(REMOVE) MAXMSGL(1000)")
    route.protect_at_one(quality)
    payload = f"too long, and {quality} besides; ".encode() * 100
    route.put("orders", payload=payload)
    route.start()
    route.one.qm.wait_for_depth(DEAD_LETTER_QUEUE, 1)
    [message] = wait_until(lambda: route.one.raw(DEAD_LETTER_QUEUE), "it can be browsed, which is after it counts")
    assert label(message)["reason"] == 2218
    assert route.one.opened(message, quality, "QM1", tmp_path) == payload
    if quality != "integrity":
        files = [path for path in route.one.qm.data.rglob("*") if path.is_file()]
        assert not [path for path in files if payload[:40] in path.read_bytes()], "no clear text comes to a disk"
    route.one.client().get_all(f"{DEAD_LETTER_QUEUE}.RAW")
    assert "STATUS(RUNNING)" in route.status()


def test_a_message_that_can_t_be_sealed_there_lies_sealed_here_and_the_next_one_arrives(route, tmp_path):
    route = route(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    route.protect_at_one("privacy")
    route.two.qm.mqsc(f"SET POLICY({route.queue}) SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=unknown,O=South')")
    payload = b"for a recipient without a certificate; " * 10
    route.put("orders", payload=payload)
    route.start()
    route.one.qm.wait_for_depth(DEAD_LETTER_QUEUE, 1)
    [message] = wait_until(lambda: route.one.raw(DEAD_LETTER_QUEUE), "it can be browsed, which is after it counts")
    assert (label(message)["reason"], label(message)["queue"]) == (2063, route.queue)
    assert route.one.opened(message, "privacy", "QM1", tmp_path) == payload
    for island in (route.one, route.two):
        files = [path for path in island.qm.data.rglob("*") if path.is_file()]
        assert not [path for path in files if payload[:30] in path.read_bytes()], "no clear text comes to a disk"
    assert route.two.qm.depth(DEAD_LETTER_QUEUE) == 0
    route.protect_at_two("privacy")
    route.put("orders")
    assert route.two.opened(route.arrived(), "privacy", "billing", tmp_path) == PAYLOAD
    assert "STATUS(RUNNING)" in route.status()


def test_a_channel_that_would_open_or_seal_is_not_started_for_a_partner_that_proves_nothing(islands, route):
    one, two = islands
    route = route(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    one.qm.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(SDR) SSLCIPH(' ') CONNAME('127.0.0.1({two.qm.ports['amqp']})')")
    for command in ("START", "PING"):
        said = one.qm.mqsc(f"{command} CHANNEL({route.channel})", code=None)
        assert "2063" in said and "SSLCIPH" in said, said
    # What the other end refuses, the status of the sender says.
    two.qm.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(RCVR) SSLCIPH(' ')")
    one.qm.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(SDR) SPLPROT(PASSTHRU)")
    route.start()
    route.wait_for("cause=partner-unproved")


def test_a_message_whose_seal_is_broken_goes_to_the_error_queue_and_the_next_one_arrives(route):
    route = route(sender="SPLPROT(REMOVE)")
    route.protect_at_one("integrity")
    route.put("orders", payload=b"first")
    good = route.one.client().get(f"{route.transmission}.RAW")
    body = bytearray(good.body)
    body[body.index(b"first")] ^= 1
    good.body, good.inferred = bytes(body), True
    # Put past the policy: what a disk or a person may do to it.
    route.one.qm.mqsc(f"DELETE POLICY({route.transmission})")
    route.one.client().put(f"{route.transmission}.RAW", good)
    route.one.set_policy(route.transmission, "integrity", "orders", "QM1")
    route.put("orders", payload=b"second")
    route.start()
    assert bytes(route.arrived().body) == b"second"
    assert any(entry["cause"] for entry in route.one.qm.errors())
    route.one.qm.clear_error_queue()
