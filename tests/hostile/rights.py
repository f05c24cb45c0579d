"""The worst loop for each right: what a user who has signed in, with one right alone, can do to the others.

Each loop is a function of an `Insider` and of a pace, as the attacks in attacks.py are, and has a user of its own. The
table `LOOPS` says which right each one has, and what else that right is no use without. `hostile.py --rights` measures
them, and `test_hostile.py` runs each for a moment, and compares the table with the rights that there are.

    rights.py NAME INSIDER     that loop, as fast as it can, until standard input ends"""

import base64
import itertools
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Callable

import frames
from attacks import ALL_CREDIT, KIB, MIB, PATIENCE, Pace, Peers, Target
from proton import Message
from frames import ATTACH, CLOSE, DETACH, DISPOSITION, OPEN, RECEIVER, SENDER, SOURCE, TARGET, Described, Symbol, Ubyte

COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL, ACCEPTED, MODIFIED = 0x30, 0x31, 0x32, 0x33, 0x34, 0x24, 0x27
# Links of one connection, and sessions, as the queue manager allows them.
LINKS_OF_SESSION, SESSIONS = 1_000, 4
# Messages on the queue that is looked through, and on those whose messages are given back.
DEEP, FEW = 20_000, 200
# How long a link looks for what is not there, seconds.
LOOKS_FOR = 0.02
# Messages that are sealed.
SEALED = 20
# Queues and records that an administrator's DISPLAY has to tell of.
DEFINED = 2_000
# Levels of a topic's pattern.
LEVELS = 120
# Subscriptions by which a publication is multiplied: an administrator made them.
SUBSCRIBED = 20
# A header that lets a message expire at once, and is not persistent.
GONE = (False, None, 1)
# Bytes of a message that each frame carries, and what a link may put without asking for more credit.
PIECE_BYTES, CREDIT = 64, 500
COSTLY_SELECTOR = " AND ".join(
    f"(name LIKE '%{letter}%z%y%x%' OR size * {number} > 1000000)" for number, letter in enumerate("abcdefgh")
)
# A reason code in the text of an error.
REASON = re.compile(rb"([2-4]\d{3}) (?:MQRC_|cause=)")
ADMIN_MAGIC, ADMIN_SOCKET = b"BMQ1", "admin.sock"
BULLA = os.environ.get("BULLA") or str(Path(__file__).parents[2] / "target/release/bulla")
# Messages that are sealed anew again and again, and users whose keys change.
RESEALED, ROTATING = 500, "rotating"

SETUP = f"""
DEFINE QLOCAL(RIGHTS.PUT) MAXDEPTH(5000) FULL(REJECT); DEFINE QLOCAL(RIGHTS.FULL) MAXDEPTH(1) FULL(REJECT)
DEFINE QLOCAL(RIGHTS.DEEP) MAXDEPTH(1000000); DEFINE QLOCAL(RIGHTS.EMPTY)
DEFINE QLOCAL(RIGHTS.BACKED) BACKOUT(MOVE) BOTHRESH(1000000) BOQNAME(RIGHTS.EMPTY); DEFINE QLOCAL(RIGHTS.UNITS)
DEFINE QLOCAL(RIGHTS.HELD); DEFINE QLOCAL(RIGHTS.SEALED) MAXDEPTH(5000) FULL(REJECT); DEFINE QLOCAL(RIGHTS.OTHERS)
DEFINE QLOCAL(RIGHTS.PUBLISHED) MAXDEPTH(5000) FULL(REJECT)
DEFINE QLOCAL(RIGHTS.RESEALED); DEFINE QLOCAL(RIGHTS.LONG) MAXDEPTH(1000000); DEFINE QLOCAL(RIGHTS.ROTATED)
DEFINE QLOCAL(RIGHTS.SET); DEFINE QLOCAL(RIGHTS.KEYS); DEFINE QLOCAL(RIGHTS.CHECKED); DEFINE QLOCAL(RIGHTS.XMIT) USAGE(XMITQ)
DEFINE QMODEL(RIGHTS.MODEL) DEFTYPE(PERMDYN)
DEFINE CHANNEL(RIGHTS.SERVER) CHLTYPE(SVR) XMITQ(RIGHTS.XMIT) MCAUSER('start-a-channel')
DEFINE TOPIC(RIGHTS.TOPIC) TOPICSTR('rights')
"""
SETUP += "".join(
    f"DEFINE SUB(RIGHTS.SUB{number}) TOPICSTR('rights/+/#') DEST(RIGHTS.PUBLISHED)\n" for number in range(SUBSCRIBED)
)


@dataclass
class Insider(Target):
    """A target that the attacker has signed in to."""

    password: str = ""
    # Where the administrators' socket is, and the queue manager's own directory.
    admin: str = ""
    ca: str = ""
    # Reason codes that came; none where they are not looked for.
    reasons: set | None = None

    def hears(self, said):
        super().hears(said)
        if self.reasons is not None:
            self.reasons.update(int(code) for code in REASON.findall(said))

    def hello(self, act_as="", container="insider", properties=None):
        """Signs in by PLAIN and opens; nothing is waited for."""
        response = act_as.encode() + b"\0" + self.user.encode() + b"\0" + self.password.encode()
        proof = frames.SASL_HEADER + frames.frame(frames.encoded((frames.SASL_INIT, Symbol("PLAIN"), response)), kind=1)
        fields = [container, None, 1 << 20, frames.Ushort(255), None, None, None, None, None, properties]
        return proof + frames.AMQP_HEADER + frames.performative(OPEN, *fields)

    def peers(self, stack, count, hello, **where):
        """Connections that have signed in and said `hello`."""
        return Peers(self, stack, count, self.hello() + frames.begin() + hello, **where)

    def secure(self):
        """A connection under TLS, which opens the user's key ring."""
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = False
        with self.dial(port=self.tls_port) as peer:
            return context.wrap_socket(peer)


class Talk:
    """One connection of which frames are read, as far as a loop needs them."""

    def __init__(self, insider, *said, secure=False):
        self.insider, self.rest, self.deliveries, self.declared = insider, b"", 0, []
        # Flows that came, those that are waited for, what was put, and the links to put on.
        self.flows, self.awaited, self.puts, self.links = 0, 0, 0, []
        self.peer = insider.secure() if secure else insider.dial()
        self.is_over = False
        self.send(insider.hello(), frames.begin(), *said)

    def send(self, *parts):
        data = b"".join(parts)
        try:
            self.peer.sendall(data)
            self.insider.tally.bytes_sent += len(data)
        except OSError:
            self.is_over = True

    def listen(self, patience=PATIENCE):
        """Takes in what comes within that time; whether anything did."""
        self.peer.settimeout(patience)
        try:
            said = self.peer.recv(MIB)
        except TimeoutError:
            return False
        except OSError:
            said = b""
        finally:
            self.peer.settimeout(frames.WAIT)
        self.is_over |= not said
        self.insider.hears(said)
        data, at = self.rest + said, 0
        while len(data) - at >= 8:
            if data[at : at + 4] == b"AMQP":
                at += 8
                continue
            size = int.from_bytes(data[at : at + 4], "big")
            if size > len(data) - at:
                break
            body = at + 4 * data[at + 4]
            if data[body : body + 3] == b"\x00\x53\x14":
                self.deliveries += 1
            elif data[body : body + 3] == b"\x00\x53\x13":
                self.flows += 1
            elif (place := data.find(b"\x00\x53\x33", body, at + size)) >= 0:
                place = data.index(b"\xa0", place)
                self.declared.append(data[place + 2 : place + 2 + data[place + 1]])
            at += max(size, 8)
        self.rest = data[at:]
        return bool(said)

    def close(self):
        self.peer.close()


def talking(insider, pace, *said, secure=False):
    """A conversation, begun anew whenever it is over, until it is enough."""
    while not pace.pause():
        with suppress(OSError):
            talk = Talk(insider, *said, secure=secure)
            try:
                while not talk.is_over and not pace.pause():
                    yield talk
            finally:
                talk.close()


def receiving(handle, queue, name="get", distribution=None, filters=None, settled=False, durable=0, **more):
    """Attaches a link that gets."""
    mode = Symbol(distribution) if distribution else None
    source = (SOURCE, queue, durable, None, None, None, None, mode, filters, None, None, more.get("capabilities"))
    settle = Ubyte(1) if settled else None
    return frames.performative(ATTACH, name, handle, RECEIVER, settle, None, source, (TARGET, None))


def selector(text):
    return {Symbol("filter"): Described(Symbol("apache.org:selector-filter:string"), text)}


def dynamic(handle, name, model=None, with_link=True):
    """Attaches a link that gets from a queue made for it."""
    node = {Symbol("lifetime-policy"): (0x2B,)} if with_link else {}
    node |= {Symbol("bulla:model"): model} if model else {}
    source = (SOURCE, None, None, None, None, True, node)
    return frames.performative(ATTACH, name, handle, RECEIVER, None, None, source, (TARGET, None))


def detach(handle):
    return frames.performative(DETACH, handle, True)


def message(body, header=None, properties=None, application=None):
    parts = [frames.encoded((0x70, *header))] if header else []
    parts += [frames.encoded((0x73, *properties))] if properties else []
    parts += [b"\x00\x53\x74" + frames.encoded(application)] if application else []
    return b"".join(parts) + frames.data(body)


def again_and_again(insider, pace, rounds, connections=2, hello=b""):
    """Sends round after round on each of a few connections, and takes in what is answered."""
    with ExitStack() as stack:
        peers = insider.peers(stack, connections, hello)
        while not pace.pause():
            for peer in peers.all():
                peers.send(peer, next(rounds))
            peers.listen(bytes_max=MIB)


def link_rounds(pace, attach, count=50, kept=0):
    """Rounds of links that come and go, each when so many others have come; `attach` makes one of a handle and a name
    that no other had."""
    names = itertools.count()
    while True:
        blows = []
        for number in itertools.islice(names, pace.times(count)):
            blows.append(attach(number % 200, f"link-{number}"))
            if number >= kept:
                blows.append(detach((number - kept) % 200))
        yield b"".join(blows)


def put(insider, pace, target, payloads, count, links=1, connections=2, settled=True, secure=False):
    """On each of a few connections: attaches links, puts so many messages on each when it has credit, and detaches,
    again and again. `target` is a queue or a topic, or makes one up each time."""
    talks, names = [], itertools.count()
    try:
        while not pace.pause():
            for talk in [talk for talk in talks if talk.is_over]:
                talk.close()
                talks.remove(talk)
            with suppress(OSError):
                while len(talks) < connections:
                    talks.append(Talk(insider, secure=secure))
            for talk in talks:
                # A queue that gives no credit is asked again, too.
                if talk.listen(PATIENCE / 10 if talk.flows < talk.awaited else 0.001) and talk.flows < talk.awaited:
                    continue
                talk.send(puts_and_links(talk, target, payloads, count, links, settled, names))
    finally:
        for talk in talks:
            talk.close()


def puts_and_links(talk, target, payloads, count, links, settled, names):
    """Puts on the links there are, ends them, and begins those for the next time."""
    said = []
    for handle in talk.links:
        for _ in range(count):
            said.append(frames.transfer(handle, talk.puts, next(payloads), settled))
            talk.puts += 1
        said.append(detach(handle))
    first = 0 if talk.links and talk.links[0] else links
    talk.links = range(first, first + links)
    for handle in talk.links:
        address = target if isinstance(target, str) else target()
        said.append(frames.attach(f"put-{next(names)}", handle, address, SENDER))
    talk.awaited = talk.flows + links
    return b"".join(said)


# CONNECT


def sign_in_and_leave(insider, pace):
    """Connects, signs in, opens, begins a session, closes, and comes again."""
    talk = insider.hello() + frames.begin() + frames.performative(CLOSE)
    with ExitStack() as stack:
        while not pace.pause(0.02):
            peers = Peers(insider, stack, pace.times(20), talk)
            peers.all()
            peers.listen(PATIENCE)
            peers.close()


def attach_what_is_refused(insider, pace):
    """Attaches to queues that it has no right on, one after the other."""
    names = itertools.count()
    attach = lambda handle, name: frames.attach(name, handle, f"RIGHTS.NONE{next(names)}", SENDER)  # noqa: E731
    again_and_again(insider, pace, link_rounds(pace, attach, kept=50))


def begin_and_end_sessions(insider, pace):
    """Begins as many sessions as there may be, ends them, and begins again."""
    channels = range(1, 100)
    begins = b"".join(frames.begin(channel) for channel in channels)
    ends = b"".join(frames.performative(frames.END, channel=channel) for channel in channels)
    for talk in talking(insider, pace):
        talk.send(begins + ends)
        talk.listen()


# ALTUSR


def act_as_one_after_the_other(insider, pace):
    """Signs in as itself and acts as a user that has not been used before, again and again."""
    numbers = itertools.count()
    with ExitStack() as stack:
        while not pace.pause(0.02):
            for _ in range(pace.times(20)):
                hello = insider.hello(act_as=f"other-{next(numbers)}") + frames.begin()
                peers = Peers(insider, stack, 1, hello + frames.attach("other", 0, "RIGHTS.PUT", SENDER))
                peers.all()
                peers.listen(PATIENCE if pace.paced else 0)
                peers.close()


# INQ


def ask_about_policies(insider, pace):
    """Attaches and detaches, and is told of the queue's policy each time."""

    def attach(handle, name):
        target = (TARGET, "RIGHTS.SEALED", None, None, None, None, None, Symbol("bulla:sealed"))
        return frames.performative(ATTACH, name, handle, SENDER, None, None, (SOURCE, None), target, None, None, 0)

    again_and_again(insider, pace, link_rounds(pace, attach))


# PUT


def put_on_new_links(insider, pace):
    """Attaches, puts a message of a byte, and detaches."""
    put(insider, pace, "RIGHTS.PUT", itertools.repeat(message(b"x", GONE)), 1, links=pace.times(50))


def put_on_a_full_queue(insider, pace):
    """Puts what is refused, and is told so of each message."""
    put(insider, pace, "RIGHTS.FULL", itertools.repeat(message(b"x")), pace.times(500), settled=False)


def put_many_properties(insider, pace):
    """Puts messages with ten thousand properties that expire at once."""
    payload = message(b"x", GONE, application={f"key-{number}": number for number in range(10_000)})
    put(insider, pace, "RIGHTS.PUT", itertools.repeat(payload), pace.times(10))


def put_in_small_pieces(insider, pace):
    """Puts messages of 64 KiB in frames of 64 bytes."""
    payload = message(bytes(64 * KIB), GONE)
    cuts = [payload[at : at + PIECE_BYTES] for at in range(0, len(payload), PIECE_BYTES)]
    attach = frames.attach("pieces", 0, "RIGHTS.PUT", SENDER)
    for talk in talking(insider, pace, attach):
        talk.listen()
        if talk.puts >= CREDIT or not talk.flows:
            continue
        pieces = [frames.transfer(0, talk.puts, cut, True, more=True) for cut in cuts[:-1]]
        talk.send(*pieces, frames.transfer(0, talk.puts, cuts[-1], True))
        talk.puts += 1


def put_what_is_kept(insider, pace):
    """Puts persistent messages of 64 KiB that expire at once, and has each of them confirmed."""
    payloads = itertools.repeat(message(bytes(64 * KIB), (True, None, 1)))
    put(insider, pace, "RIGHTS.PUT", payloads, pace.times(16), settled=False)


def ask_for_reports(insider, pace):
    """Puts messages that expire at once and ask for each report that there is, with their whole body."""
    asks = {f"JMS_IBM_Report_{kind}": 0x700 for kind in ("COA", "COD", "Expiration", "Exception")}
    payload = message(bytes(KIB), GONE, (None, None, None, None, "RIGHTS.PUT"), asks)
    put(insider, pace, "RIGHTS.PUT", itertools.repeat(payload), pace.times(100))


def put_to_be_sealed(insider, pace):
    """Puts on a queue whose messages are signed with RSA 4096 and encrypted."""
    put(insider, pace, "RIGHTS.SEALED", itertools.repeat(message(bytes(KIB), GONE)), pace.times(50), secure=True)


# GET


def give_back(insider, pace):
    """Gets what there is and gives it back as failed, so that it comes again."""
    said = receiving(0, "RIGHTS.BACKED") + frames.flow(0, FEW)
    settled = 0
    for talk in talking(insider, pace, said):
        talk.listen()
        if talk.deliveries > settled or talk.deliveries == 0:
            last, failed = max(talk.deliveries, 1) - 1, (MODIFIED, True, False)
            back = frames.performative(DISPOSITION, RECEIVER, settled, last, True, failed)
            settled = talk.deliveries
            talk.send(back, frames.flow(0, FEW, settled))
        else:
            settled = 0 if talk.is_over else settled


def select_what_is_not_there(insider, pace):
    """Looks through a deep queue by a selector that fits nothing, on a new link each time."""

    def attach(handle, name):
        return receiving(handle, "RIGHTS.DEEP", name, filters=selector(COSTLY_SELECTOR)) + frames.flow(handle, 10)

    look(insider, pace, attach)


def look(insider, pace, attach):
    """Three links on each of four connections, and a new one in the place of the oldest again and again."""
    rounds = [link_rounds(pace, attach, 1, kept=3) for _ in range(4)]
    with ExitStack() as stack:
        peers = insider.peers(stack, len(rounds), b"")
        while not pace.wait(LOOKS_FOR):
            for peer, blows in zip(peers.all(), rounds):
                peers.send(peer, next(blows))
            peers.listen()


def drain_many_links(insider, pace):
    """Has four thousand links on one queue that is empty, and drains one after the other."""
    begins = b"".join(frames.begin(channel) for channel in range(1, SESSIONS))
    links = [(channel, handle) for channel in range(SESSIONS) for handle in range(LINKS_OF_SESSION)]
    ends = (None, None, (SOURCE, "RIGHTS.EMPTY"), (TARGET, None))
    attaches = b"".join(
        frames.performative(ATTACH, f"drain-{channel}-{handle}", handle, RECEIVER, *ends, channel=channel)
        for channel, handle in links
    )
    turns = itertools.cycle(links)

    def drain(channel, handle):
        return frames.performative(frames.FLOW, 0, 1 << 30, 0, 1 << 30, handle, 0, 1, None, True, channel=channel)

    rounds = (b"".join(drain(*next(turns)) for _ in range(pace.times(20))) for _ in itertools.count())
    again_and_again(insider, pace, rounds, 2, begins + attaches)


def get_and_roll_back(insider, pace):
    """Gets messages in units of work that it begins and rolls back."""
    ends = ((SOURCE, None), (COORDINATOR, Symbol("amqp:local-transactions")))
    coordinator = frames.performative(ATTACH, "units", 1, SENDER, None, None, *ends, None, None, 0)
    said = receiving(0, "RIGHTS.UNITS") + frames.flow(0, FEW) + coordinator
    value = lambda *described: b"\x00\x53\x77" + frames.encoded(described)  # noqa: E731
    settled, units = 0, itertools.count()
    for talk in talking(insider, pace, said):
        asked = len(talk.declared)
        talk.send(frames.transfer(1, next(units), value(DECLARE, None)))
        for _ in range(20):
            talk.listen()
            if len(talk.declared) > asked or talk.is_over:
                break
        settled = min(settled, talk.deliveries)
        if len(talk.declared) > asked and talk.deliveries > settled:
            unit = talk.declared[-1]
            state = (TRANSACTIONAL, unit, (ACCEPTED,))
            got = frames.performative(DISPOSITION, RECEIVER, settled, talk.deliveries - 1, True, state)
            settled = talk.deliveries
            talk.send(got, frames.transfer(1, next(units), value(DISCHARGE, unit, True)), frames.flow(0, FEW, settled))


def get_everything_and_hold_it(insider, pace):
    """Gets all of a queue, settles nothing, detaches, and gets it again."""
    attach = lambda handle, name: receiving(handle, "RIGHTS.HELD", name) + frames.flow(handle, ALL_CREDIT)  # noqa: E731
    again_and_again(insider, pace, link_rounds(pace, attach, 1, kept=3), connections=1)


def open_what_is_for_others(insider, pace):
    """Gets from a queue of sealed messages that are addressed to another user, on a new link each time."""
    numbers = itertools.count()
    for talk in talking(insider, pace, secure=True):
        handle = next(numbers) % 200
        talk.send(receiving(handle, "RIGHTS.OTHERS", f"open-{handle}"), frames.flow(handle, 10))
        talk.listen(0.01)
        talk.send(detach(handle))
        talk.listen(0.001)


def ask_for_answers_again(insider, pace):
    """Gets by HTTP under ever new keys, and asks for each answer again and again, and for one that is under way."""
    proof = base64.b64encode(f"{insider.user}:{insider.password}".encode()).decode()
    path = "/ibmmq/rest/v3/messaging/qmgr/BULLA/queue/RIGHTS.KEYS/message"

    def asked(number, query=""):
        head = [f"DELETE {path}{query} HTTP/1.1", "Host: localhost", "ibm-mq-rest-csrf-token: "]
        head += [f"Authorization: Basic {proof}", f"Idempotency-Key: {number:0128}", "", ""]
        return "\r\n".join(head).encode()

    numbers = itertools.count()
    with ExitStack() as stack:
        waiting = Peers(insider, stack, 2, asked(0, "?wait=120000&messageId=none"), port=insider.http_port)
        peers = Peers(insider, stack, 2, b"", port=insider.http_port)
        while not pace.pause(0.02):
            waiting.all()
            waiting.listen()
            for peer in peers.all():
                number = next(numbers)
                peers.send(peer, asked(number) * 5 + asked(number // 2) + asked(number, "?messageId=none"))
            peers.listen(PATIENCE)


# BROWSE


def browse_everything(insider, pace):
    """Browses the deepest queue from its beginning to its end, again and again."""
    attach = receiving(0, "RIGHTS.DEEP", "browse", "copy", settled=True) + frames.flow(0, ALL_CREDIT)
    with ExitStack() as stack:
        while not pace.pause():
            peers = insider.peers(stack, 4, attach)
            peers.all()
            silent = 0
            while silent < 3 and not pace.pause():
                heard = insider.tally.bytes_heard
                peers.listen(0.01, bytes_max=MIB)
                silent = silent + 1 if heard == insider.tally.bytes_heard else 0
            peers.close()


def browse_by_selector(insider, pace):
    """Browses the deepest queue by a costly selector that fits nothing, on many links at once."""

    def attach(handle, name):
        return receiving(handle, "RIGHTS.DEEP", name, "copy", selector(COSTLY_SELECTOR)) + frames.flow(handle, 10)

    look(insider, pace, attach)


# SETID


def put_in_the_name_of_others(insider, pace):
    """Puts in the name of one user after the other, with names of 16 KiB."""
    users = (f"{number:016}".encode() * KIB for number in itertools.count())
    put(insider, pace, "RIGHTS.PUT", (message(b"x", GONE, (None, user)) for user in users), pace.times(50))


# DSP


def make_temporary_queues(insider, pace):
    """Has queues made for links that end at once."""
    again_and_again(insider, pace, link_rounds(pace, dynamic))


def make_permanent_queues(insider, pace):
    """Has permanent queues made and deleted, as often as it is let and more."""

    def attach(handle, name):
        node, nothing = {Symbol("bulla:model"): "RIGHTS.MODEL"}, [None] * 4
        source = (SOURCE, *nothing, True, node, *nothing, Symbol("bulla:delete-on-close"))
        return frames.performative(ATTACH, name, handle, RECEIVER, None, None, source, (TARGET, None))

    again_and_again(insider, pace, link_rounds(pace, attach))


# DLT


def delete_what_is_not_empty(insider, pace):
    """Closes links that ask for a queue to be deleted that is not empty, and so stays."""

    def attach(handle, name):
        return receiving(handle, "RIGHTS.DYNAMIC", name, capabilities=Symbol("bulla:delete-on-close"))

    again_and_again(insider, pace, link_rounds(pace, attach))


# CTRL


def start_a_channel(insider, pace):
    """Asks for a server channel to be started, and hangs up."""
    hello = insider.hello(properties={Symbol("bulla:request"): "RIGHTS.SERVER"}) + frames.begin()
    with ExitStack() as stack:
        while not pace.pause(0.02):
            peers = Peers(insider, stack, pace.times(10), hello)
            peers.all()
            peers.listen(PATIENCE)
            peers.close()


# PUB


def publish_to_many(insider, pace):
    """Publishes where many subscriptions are, on ever new topics."""

    numbers = itertools.count()
    topic = lambda: f"topic://rights/{next(numbers)}/" + "/".join("x" * (LEVELS // 2))  # noqa: E731
    put(insider, pace, topic, itertools.repeat(message(b"x", GONE)), pace.times(100))


def publish_under_keys(insider, pace):
    """Publishes where nobody subscribes, under ever new idempotency keys: each is noted, and confirmed."""

    def keyed(number):
        label = {Symbol("x-opt-bulla-idempotency-key"): f"{number:0128}"}
        return frames.encoded((0x70, True)) + b"\x00\x53\x72" + frames.encoded(label) + frames.data(b"x")

    put(insider, pace, "topic://rights", map(keyed, itertools.count()), pace.times(50), settled=False)


# SUB


def subscribe_and_leave(insider, pace):
    """Makes and ends subscriptions to patterns of many levels with wildcards, with selectors, while it keeps many."""
    numbers = itertools.count()

    def pattern():
        return "topic://rights/" + "/".join("+" if level % 2 else f"{next(numbers)}" for level in range(LEVELS)) + "/#"

    def attach(handle, name):
        return receiving(handle, pattern(), name, filters=selector(COSTLY_SELECTOR))

    kept = b"".join(receiving(handle, pattern(), f"kept-{handle}") for handle in range(300, 700))
    again_and_again(insider, pace, link_rounds(pace, attach), 2, kept)


def subscribe_for_good(insider, pace):
    """Makes and ends durable subscriptions, as often as it is let and more."""
    attach = lambda handle, name: receiving(handle, "topic://rights/#", name, durable=2)  # noqa: E731
    again_and_again(insider, pace, link_rounds(pace, attach))


def inhibit_and_allow(insider, pace):
    """Changes a queue by HTTP, there and back: each change is kept, and audited."""
    proof = base64.b64encode(f"{insider.user}:{insider.password}".encode()).decode()
    path = "/ibmmq/rest/v2/admin/qmgr/BULLA/queue/RIGHTS.SET"
    asked = b""
    for inhibited in ("true", "false"):
        body = f'{{"general": {{"inhibitPut": {inhibited}}}}}'
        head = [f"PATCH {path} HTTP/1.1", "Host: localhost", "ibm-mq-rest-csrf-token: ", f"Authorization: Basic {proof}"]
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        asked += "\r\n".join([*head, "", body]).encode()
    with ExitStack() as stack:
        peers = Peers(insider, stack, 2, b"", port=insider.http_port)
        while not pace.pause(0.02):
            for peer in peers.all():
                peers.send(peer, asked)
            peers.listen(PATIENCE)


def log_in_and_leave(insider, pace):
    """Logs in over HTTP and leaves the cookie, again and again: each is checked, and of each the audit log may tell."""
    said = json.dumps({"username": insider.user, "password": insider.password}).encode()
    head = ["POST /ibmmq/rest/v3/login HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    asked = "\r\n".join([*head, f"Content-Length: {len(said)}", "", ""]).encode() + said
    with ExitStack() as stack:
        peers = Peers(insider, stack, 2, b"", port=insider.http_port)
        while not pace.pause(0.02):
            for peer in peers.all():
                peers.send(peer, asked)
            peers.listen(PATIENCE)


# Roles


def command(insider, pace, text, connections=1):
    """Gives commands to the admin socket, on so many connections at once, and takes in the answers."""
    request = ADMIN_MAGIC + struct.pack("<I", len(text)) + text.encode()
    while not pace.pause(0.02):
        with suppress(OSError), ExitStack() as stack:
            peers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(connections)]
            for peer in peers:
                peer.settimeout(frames.WAIT)
                peer.connect(f"{insider.admin}/{ADMIN_SOCKET}")
                insider.tally.connections += 1
                peer.sendall(request)
                insider.tally.bytes_sent += len(request)
            for peer in peers:
                while said := peer.recv(MIB):
                    insider.hears(said)


def show_everything(insider, pace):
    """Shows all queues, what goes on there, and all records."""
    shown = ("QLOCAL(*) ALL", "QSTATUS(*) ALL", "AUTHREC", "CONN(*) ALL", "SUB(*) ALL", "KEYUSE(*)", "KEYROTATE('*')")
    shown += ("ALGUSE(*) MESSAGES(100)", "LOGIN('*')")
    command(insider, pace, "\n".join(f"DISPLAY {what}" for what in shown))


def check_policies(insider, pace):
    """Tries what a policy would do with the messages that there are, clears a queue, and looks through dead letters."""
    commands = ("CHECK POLICY(RIGHTS.CHECKED) MESSAGES(100)", "CLEAR QLOCAL(RIGHTS.EMPTY)", "REPLAY QLOCAL(RIGHTS.DEEP)")
    commands += ("STOP LOGIN('log-in-and-leave')",)
    command(insider, pace, "\n".join(commands))


def define_and_delete(insider, pace):
    """Defines a queue, changes it and deletes it."""
    command(insider, pace, "DEFINE QLOCAL(RIGHTS.NEW)\nALTER QLOCAL(RIGHTS.NEW) MAXDEPTH(7)\nDELETE QLOCAL(RIGHTS.NEW)")


def reseal_everything(insider, pace):
    """Has the same messages sealed anew, from the front again each time, without a pause and two commands at once."""
    command(insider, pace, "RESEAL QLOCAL(RIGHTS.RESEALED) SELECT(ALL) COUNT(2000)", connections=2)


def reseal_what_is_not_there(insider, pace):
    """Has a deep queue looked through for a key that opens nothing there, two commands at once."""
    command(insider, pace, "RESEAL QLOCAL(RIGHTS.LONG) NEEDS('00') COUNT(2000)", connections=2)


def change_keys(insider, pace):
    """Gives a user one key after the other, while messages for the one before lie on a queue, and takes each old key
    out of use at once: they are stranded. It takes the data directory, not the admin socket."""
    data = ["--data", insider.admin]
    while not pace.pause(0.02):
        for words in (["rotate", ROTATING, "--overlap", "0s"], ["retire", ROTATING, "--old", "--strand"]):
            said = subprocess.run([BULLA, "key", *words, *data], stdin=subprocess.DEVNULL, capture_output=True)
            insider.hears(said.stdout + said.stderr)


@dataclass(frozen=True)
class Loop:
    """A loop, the right that it uses, and the records without which the right is no use."""

    right: str
    run: Callable
    records: tuple = ()
    # It needs keys of its own.
    ring: bool = False

    @property
    def name(self):
        return self.run.__name__

    @property
    def user(self):
        return self.name.replace("_", "-")

    def grants(self):
        """What an administrator has given to that user."""
        lines = [f"SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('{self.user}') AUTHADD(CONNECT)"]
        for kind, profile, rights in self.records:
            profile = f"PROFILE({profile})" if profile else ""
            lines.append(f"SET AUTHREC {profile} OBJTYPE({kind}) PRINCIPAL('{self.user}') AUTHADD({rights})")
        return "\n".join(lines)


def queue(name, rights):
    return (("QUEUE", name, rights),)


LOOPS = [
    Loop("CONNECT", sign_in_and_leave),
    Loop("CONNECT", attach_what_is_refused),
    Loop("CONNECT", begin_and_end_sessions),
    Loop("CONNECT", log_in_and_leave),
    Loop("ALTUSR", act_as_one_after_the_other, (("QMGR", None, "ALTUSR"),)),
    # INQ answers an attach, which takes PUT.
    Loop("INQ", ask_about_policies, queue("RIGHTS.SEALED", "PUT, INQ"), ring=True),
    Loop("PUT", put_on_new_links, queue("RIGHTS.PUT", "PUT")),
    Loop("PUT", put_on_a_full_queue, queue("RIGHTS.FULL", "PUT")),
    Loop("PUT", put_many_properties, queue("RIGHTS.PUT", "PUT")),
    Loop("PUT", put_in_small_pieces, queue("RIGHTS.PUT", "PUT")),
    Loop("PUT", put_what_is_kept, queue("RIGHTS.PUT", "PUT")),
    Loop("PUT", ask_for_reports, queue("RIGHTS.PUT", "PUT")),
    Loop("PUT", put_to_be_sealed, queue("RIGHTS.SEALED", "PUT"), ring=True),
    Loop("GET", give_back, queue("RIGHTS.BACKED", "GET")),
    Loop("GET", select_what_is_not_there, queue("RIGHTS.DEEP", "GET")),
    Loop("GET", drain_many_links, queue("RIGHTS.EMPTY", "GET")),
    Loop("GET", get_and_roll_back, queue("RIGHTS.UNITS", "GET")),
    Loop("GET", get_everything_and_hold_it, queue("RIGHTS.HELD", "GET")),
    Loop("GET", open_what_is_for_others, queue("RIGHTS.OTHERS", "GET"), ring=True),
    Loop("GET", ask_for_answers_again, queue("RIGHTS.KEYS", "GET")),
    Loop("BROWSE", browse_everything, queue("RIGHTS.DEEP", "BROWSE")),
    Loop("BROWSE", browse_by_selector, queue("RIGHTS.DEEP", "BROWSE")),
    # SETID is asked of a message, which takes PUT.
    Loop("SETID", put_in_the_name_of_others, queue("RIGHTS.PUT", "PUT, SETID")),
    # DSP makes a queue for a link, which takes GET on the model.
    Loop("DSP", make_temporary_queues, queue("SYSTEM.DEFAULT.MODEL.QUEUE", "GET, DSP")),
    Loop("DSP", make_permanent_queues, queue("RIGHTS.MODEL", "GET, DSP")),
    # DLT deletes on closing, which takes a link.
    Loop("DLT", delete_what_is_not_empty, queue("RIGHTS.DYNAMIC", "GET, DLT")),
    Loop("SET", inhibit_and_allow, queue("RIGHTS.SET", "SET")),
    Loop("CTRL", start_a_channel, (("CHANNEL", "RIGHTS.SERVER", "CTRL"),)),
    Loop("PUB", publish_to_many, (("TOPIC", "RIGHTS.TOPIC", "PUB"),)),
    Loop("PUB", publish_under_keys, (("TOPIC", "RIGHTS.TOPIC", "PUB"),)),
    Loop("SUB", subscribe_and_leave, (("TOPIC", "RIGHTS.TOPIC", "SUB"),)),
    Loop("SUB", subscribe_for_good, (("TOPIC", "RIGHTS.TOPIC", "SUB"),)),
    Loop("LOOK", show_everything),
    Loop("OPERATE", check_policies),
    Loop("ALL", define_and_delete),
    Loop("ALL", reseal_everything),
    Loop("ALL", reseal_what_is_not_there),
    Loop("ALL", change_keys),
]


def prepare(manager, administrator="honest"):
    """Defines what the loops need, fills their queues as that user, who may do everything, and makes the loops'
    users."""
    defined = "\n".join(f"DEFINE QLOCAL(RIGHTS.Q{number})" for number in range(DEFINED))
    manager.mqsc(SETUP)
    manager.mqsc("BEGIN UNIT\n" + defined)
    certificate = ["cert", "create", "--data", manager.data]
    manager.run(*certificate, "--ca", "rights", "--dn", "CN=rights")
    keyed = [administrator, *(loop.user for loop in LOOPS if loop.ring)]
    for user in keyed:
        # Administrator and loops know each other's certificates.
        shares = [*keyed[1:], manager.name] if user == administrator else [administrator]
        shares = [word for other in shares for word in ("--share", other)]
        key = "rsa4096" if user == put_to_be_sealed.__name__.replace("_", "-") else "rsa2048"
        manager.run(*certificate, "--ring", user, "--dn", f"CN={user}", "--signer", "rights", "--key", key, *shares)
    # What is sealed anew is signed by the queue manager.
    own = ["--ring", manager.name, "--dn", f"CN={manager.name}", "--signer", "rights", "--share", administrator]
    manager.run(*certificate, *own)
    # Its key changes, and messages lie there that need the one before.
    whose = ("--ring", ROTATING, "--dn", f"CN={ROTATING}")
    manager.run(*certificate, *whose, "--signer", "rights", "--share", administrator)
    # A change of a key that stays under way: DISPLAY KEYROTATE counts what needs the old one.
    manager.run(*certificate, "--ring", "rotated", "--dn", "CN=rotated", "--signer", "rights")
    manager.run("key", "rotate", "rotated", "--data", manager.data)
    for loop in LOOPS:
        manager.add_user(loop.user)
    manager.mqsc("\n".join(loop.grants() for loop in LOOPS))
    recipient = f"SIGNALG(SHA256) ENCALG(AES256) RECIP('CN={administrator}')"
    for queue, signer in (("SEALED", "put-to-be-sealed"), ("OTHERS", administrator), ("CHECKED", administrator)):
        manager.mqsc(f"SET POLICY(RIGHTS.{queue}) {recipient} SIGNER('CN={signer}')")
    signers = f"SIGNER('CN={administrator}', 'CN={manager.name}')"
    manager.mqsc(f"SET POLICY(RIGHTS.RESEALED) {recipient} {signers}")
    manager.mqsc(f"SET POLICY(RIGHTS.ROTATED) SIGNALG(SHA256) ENCALG(AES256) RECIP('CN={ROTATING}')")
    fill(manager, administrator)
    # What lies there already stays in clear.
    manager.mqsc(f"SET POLICY(RIGHTS.LONG) {recipient} {signers}")


def insider(manager, user, reasons=None):
    """The queue manager as that user finds it."""
    ports, password = manager.ports, manager.passwords[user]
    queues = {"queue": "", "full_queue": "", "user": user}
    ways = {"port": ports["amqp"], "tls_port": ports["amqps"], "ca": str(manager.ca), "admin": str(manager.data)}
    ways |= {"http_port": manager.port("http"), "https_port": 0}
    return Insider(**ways, **queues, password=password, reasons=reasons)


def fill(manager, administrator):
    """Puts the messages that the loops find."""
    few = message(bytes(KIB))
    deep = message(b"x", application={"name": "abcdefgh" * 4, "size": 7})
    talk = Talk(insider(manager, administrator))
    filled = [("DEEP", deep, DEEP), ("LONG", deep, DEEP), ("FULL", few, 1)]
    filled += [(queue, few, FEW) for queue in ("BACKED", "UNITS", "HELD", "KEYS")]
    for queue, payload, count in filled:
        for _ in range(max(1, count // 500)):
            put_some(talk, f"RIGHTS.{queue}", payload, min(count, 500))
        manager.wait_for_depth(f"RIGHTS.{queue}", count)
    node = {Symbol("bulla:model"): "RIGHTS.MODEL", Symbol("bulla:name"): "RIGHTS.DYNAMIC"}
    source = (SOURCE, None, None, None, None, True, node)
    talk.send(frames.performative(ATTACH, "dynamic", 300, RECEIVER, None, None, source, (TARGET, None)))
    put_some(talk, "RIGHTS.DYNAMIC", few, 1)
    manager.wait_for_depth("RIGHTS.DYNAMIC", 1)
    talk.close()
    with manager.connect(administrator) as client:
        sealed = {"OTHERS": SEALED, "CHECKED": SEALED, "RESEALED": RESEALED, "ROTATED": SEALED}
        for queue, count in ((f"RIGHTS.{name}", count) for name, count in sealed.items()):
            sender = client.sender(queue)
            for _ in range(count):
                client.put(queue, Message(body=bytes(KIB), inferred=True), sender)


def put_some(talk, queue, payload, count):
    """Puts so many messages when there is credit."""
    seen, names = talk.flows, itertools.count()
    talk.send(puts_and_links(talk, queue, itertools.repeat(payload), 0, 1, True, names))
    while talk.flows == seen:
        assert talk.listen(frames.WAIT), f"no credit for {queue}"
    puts = (frames.transfer(talk.links[0], talk.puts + at, payload, True) for at in range(count))
    talk.send(*puts, detach(talk.links[0]))
    talk.puts, talk.links = talk.puts + count, []


def loop(name):
    (found,) = [loop for loop in LOOPS if loop.name == name]
    return found


def main():
    name, where = sys.argv[1:]
    insider, stop = Insider(**json.loads(where)), Event()
    # The process that started this ends it, also by ending itself.
    Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    print("ready", flush=True)
    loop(name).run(insider, Pace(stop, paced=False))
    print(json.dumps(asdict(insider.tally)))


if __name__ == "__main__":
    main()
