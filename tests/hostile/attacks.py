"""What a client may do to a queue manager that means it no good. Each attack is a function of a target and of the moment to stop.

Each is bounded in connections, bytes and pace, and goes on through refusals: whoever is hung up on comes again."""

import itertools
import random
import struct
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Event, Thread

import frames
from frames import RECEIVER, SENDER

# Between two blows of an attack, seconds: what is tried is the queue manager, not how much processor time is left for it.
PAUSE = 0.005
KIB, MIB = 1 << 10, 1 << 20
# Where a credit can't be higher.
ALL_CREDIT = (1 << 32) - 1


@dataclass
class Target:
    """Where to strike: ports in clear and under TLS, queues that are there for it, and a user to guess the password of."""

    port: int
    tls_port: int
    queue: str
    full_queue: str
    user: str


class Peers:
    """Connections of one attack; the ones that are hung up on are made anew."""

    def __init__(self, target, stack, count, hello, receive_bytes=None, port=None):
        self.port, self.count, self.hello = port or target.port, count, hello
        self.receive_bytes, self.peers = receive_bytes, []
        stack.callback(self.close)

    def close(self):
        for peer in self.peers:
            peer.close()
        self.peers = []

    def all(self):
        """As many as there may be; one that can't be made now is made later."""
        with suppress(OSError):
            while len(self.peers) < self.count:
                peer = frames.dial(self.port, self.receive_bytes)
                self.peers.append(peer)
                peer.sendall(self.hello)
        return list(self.peers)

    def send(self, peer, data):
        """False when the other side takes no more."""
        try:
            peer.sendall(data)
            return True
        except OSError:
            self.drop(peer)
            return False

    def drop(self, peer):
        peer.close()
        with suppress(ValueError):
            self.peers.remove(peer)

    def listen(self):
        """Takes in what was said, and drops the connections that are over."""
        for peer in list(self.peers):
            if frames.heard(peer) is None:
                self.drop(peer)


def slow_reader(target, stop):
    """Asks for everything on a queue of large messages, and reads a little of it a second."""
    hello = frames.opening() + frames.begin() + frames.attach("slow", 0, target.full_queue, RECEIVER)
    with ExitStack() as stack:
        peers = Peers(target, stack, 20, hello + frames.flow(0, ALL_CREDIT), receive_bytes=4 * KIB)
        while not stop.wait(0.2):
            for peer in peers.all():
                if frames.heard(peer, 100) is None:
                    peers.drop(peer)


def credit_hoarder(target, stop):
    """Has many links to put by, takes the credit, and puts nothing."""
    links = b"".join(frames.attach(f"hoard-{number}", number, target.queue, SENDER) for number in range(100))
    with ExitStack() as stack:
        peers = Peers(target, stack, 5, frames.opening() + frames.begin() + links)
        while not stop.wait(0.2):
            peers.all()
            peers.listen()


def link_flood(target, stop):
    """Attaches and detaches without end."""
    names = itertools.count()
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, frames.opening() + frames.begin())
        while not stop.wait(PAUSE):
            for peer in peers.all():
                number = next(names)
                handle = number % 200
                link = frames.attach(f"flood-{number}", handle, target.queue, SENDER)
                peers.send(peer, link + frames.performative(frames.DETACH, handle, True))
            peers.listen()


def too_many_links(target, stop):
    """Attaches until it is told to stop, and some more."""
    links = b"".join(frames.attach(f"many-{number}", number, target.queue, SENDER) for number in range(3_000))
    with ExitStack() as stack:
        while not stop.wait(0.2):
            peers = Peers(target, stack, 1, frames.opening() + frames.begin() + links)
            peers.all()
            stop.wait(0.2)
            peers.listen()
            peers.close()


def session_flood(target, stop):
    """Begins as many sessions as there may be, more than that, and ends them."""
    sessions = b"".join(frames.begin(channel) for channel in range(256))
    ends = b"".join(frames.performative(frames.END, channel=channel) for channel in range(256))
    beyond = frames.begin(300)
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, frames.opening())
        while not stop.wait(0.05):
            for peer in peers.all():
                peers.send(peer, sessions + ends)
            peers.listen()
            for peer in peers.all():
                peers.send(peer, sessions + beyond)
            peers.listen()


def giant_maps(target, stop):
    """Puts messages with maps of very many entries, nested ones, and ones that say they are larger than they are."""
    many = frames.encoded({f"key-{number}": number for number in range(20_000)})
    named = frames.encoded({frames.Symbol(f"key-{number}"): number for number in range(20_000)})
    deep = b"".join(struct.pack(">BII", 0xD0, 9 * (2_000 - level), 1) for level in range(2_000)) + b"\x40"
    lying = struct.pack(">BII", 0xD1, 0x7FFFFFFF, 0x7FFFFFFF) + b"\x40\x40"
    odd = struct.pack(">BII", 0xD1, 5, 1) + b"\x40"
    sections = [b"\x00\x53" + bytes([code]) for code in (0x70, 0x71, 0x72, 0x73, 0x74)]
    payloads = [section + body + frames.data(b"x") for section in sections for body in (many, deep, lying, odd)]
    hello = frames.opening() + frames.begin() + frames.attach("maps", 0, target.queue, SENDER)
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, hello)
        turns = {}
        while not stop.wait(0.02):
            for peer in peers.all():
                number = turns[peer] = turns.get(peer, -1) + 1
                # In a performative, too: the open's properties, where anything may stand.
                peers.send(peer, frames.transfer(0, number, payloads[number % len(payloads)]))
            peers.listen()
            with suppress(OSError), frames.dial(target.port) as peer:
                fields = ["giant", *[None] * 8]
                opening = [frames.encoded(field) for field in fields] + [named]
                peer.sendall(frames.AMQP_HEADER + frames.frame(b"\x00\x53\x10" + frames.listed(0xD0, opening)))


def half_open(target, stop):
    """Begins to connect in each way, and says no more."""
    client_hello = bytes.fromhex("16030100c8010000c40303") + bytes(40)
    starts = [b"", b"A", frames.AMQP_HEADER, frames.AMQP_HEADER[:7], frames.SASL_HEADER, frames.opening()[:20]]
    with ExitStack() as stack:
        clear = [Peers(target, stack, 40, start) for start in starts]
        tls = [Peers(target, stack, 40, start, port=target.tls_port) for start in (b"", client_hello, client_hello[:3])]
        while not stop.wait(0.1):
            for peers in clear + tls:
                peers.all()
                peers.listen()


def password_guessing(target, stop):
    """Signs in with one wrong password after another."""
    guesses = itertools.count()
    with ExitStack() as stack:
        while not stop.wait(0.05):
            peers = Peers(target, stack, 4, frames.plain(target.user, f"guess-{next(guesses)}"))
            peers.all()
            stop.wait(0.05)
            peers.listen()
            peers.close()


def cut_frames(target, stop):
    """Ends a good conversation after each of its bytes, and sends another one byte by byte."""
    talk = frames.opening() + frames.begin() + frames.attach("cut", 0, target.queue, SENDER)
    talk += frames.transfer(0, 0, frames.data(b"x" * 20), settled=True) + frames.performative(frames.CLOSE)
    places = itertools.cycle(range(1, len(talk)))
    with ExitStack() as stack:
        slow = Peers(target, stack, 5, b"")
        said = {}
        while not stop.wait(PAUSE):
            with suppress(OSError), frames.dial(target.port) as peer:
                peer.sendall(talk[: next(places)])
            for peer in slow.all():
                at = said[peer] = said.get(peer, -1) + 1
                if at >= len(talk):
                    slow.drop(peer)
                    said.pop(peer)
                else:
                    slow.send(peer, talk[at : at + 1])
            slow.listen()


def huge_frames(target, stop):
    """Announces frames of sizes that can't be, and of the largest that may be, and sends a little of them."""
    sizes = [0, 1, 7, 8, 0x7FFFFFFF, 0xFFFFFFFF, MIB, MIB + 1, 512]
    heads = [struct.pack(">IBBH", size, offset, 0, 0) for size in sizes for offset in (0, 1, 2, 255)]
    turns = itertools.cycle(heads)
    with ExitStack() as stack:
        while not stop.wait(0.05):
            peers = Peers(target, stack, 10, frames.opening() + next(turns) + bytes(100))
            peers.all()
            stop.wait(0.02)
            peers.listen()
            peers.close()


def garbage(target, stop):
    """Sends bytes without sense: at once, after the header, and as the body of frames."""
    chance = random.Random(1)
    with ExitStack() as stack:
        while not stop.wait(0.02):
            noise = chance.randbytes(chance.randrange(1, 4 * KIB))
            starts = [noise, frames.AMQP_HEADER + noise, frames.opening() + frames.begin() + frames.frame(noise)]
            for port in (target.port, target.tls_port):
                peers = Peers(target, stack, 1, chance.choice(starts), port=port)
                peers.all()
                peers.listen()
                peers.close()


def never_settling(target, stop):
    """Gets all it can, asks for more, and settles nothing."""
    hello = frames.opening() + frames.begin() + frames.attach("never", 0, target.full_queue, RECEIVER)
    with ExitStack() as stack:
        peers = Peers(target, stack, 5, hello + frames.flow(0, ALL_CREDIT))
        while not stop.wait(PAUSE):
            for peer in peers.all():
                if frames.heard(peer, MIB) is None:
                    peers.drop(peer)


def flood(target, stop):
    """Puts as much as it is let, settled and whatever its credit, and never the end of a large message."""
    hello = frames.opening() + frames.begin() + frames.attach("flood", 0, target.queue, SENDER)
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, hello)
        unfinished = Peers(target, stack, 4, hello + frames.transfer(0, 0, frames.data(bytes(8 * MIB))[: 512 * KIB], more=True))
        turns = {}
        while not stop.wait(PAUSE):
            unfinished.all()
            unfinished.listen()
            for peer in peers.all():
                number = turns[peer] = turns.get(peer, 0) + 20
                body = frames.data(bytes(2 * KIB))
                peers.send(peer, b"".join(frames.transfer(0, number + n, body, settled=True) for n in range(20)))
            peers.listen()


ATTACKS = [
    slow_reader,
    credit_hoarder,
    link_flood,
    too_many_links,
    session_flood,
    giant_maps,
    half_open,
    password_guessing,
    cut_frames,
    huge_frames,
    garbage,
    never_settling,
    flood,
]


class UnderAttack:
    """While it lasts, so many attacks are under way."""

    def __init__(self, target, attacks):
        self.target, self.stop = target, Event()
        self.failures = []
        self.threads = [Thread(target=self._strike, args=(attack,), daemon=True) for attack in attacks]

    def _strike(self, attack):
        try:
            attack(self.target, self.stop)
        except Exception as error:  # an attack that breaks tries nothing: whoever runs it must know
            self.failures.append(f"{attack.__name__}: {error!r}")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
