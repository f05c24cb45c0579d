#!/usr/bin/env python3
"""A history of puts and gets on shared queues, while whoever keeps them fails.

    tests/shared/faults.py [--faults 100] [--seconds 3600] [--seed 1]

Three servers of the engine and three members on loopback, and a partner: a queue manager with channels of the group
from and to it. Each of five lines of clients, unmodified python-qpid-proton, has queues of its own. One client puts
numbers, one or four in a unit of work, each confirmed before the next, and puts again what was not confirmed. Another
one gets in units of work. Two lines have one queue; in a third one a client moves messages from one queue to another,
each few in one unit; a fourth one puts at the owner and gets at the partner; a fifth one puts at the partner and gets
at the owner.

Faults come one after the other, each when all lines go on: the owner or another member is killed, stopped by TERM, or
by SIGSTOP for five seconds and goes on; a server is killed, or all of them; the network is cut for some seconds
between two of them, be they clients, members, servers or the partner; the partner is killed; the owner is killed while
the partner's answers don't reach it; the disk of a server is full. Disks are tmpfs: who is not root does without that.

Each try of a put has a number of its own in the message. In the end each number that was confirmed must have come; no
try may have come twice whose get was committed, nor come at all after that; of a unit all have come, or none of one
that was not confirmed; tries of one link have come in their order, and so have all that were not repeated. Prints what
was counted; exits with 1 where that does not hold. BULLA names the program.
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from members import state  # isort: skip (it makes the next ones known)
from channels import RETRY
from engine import Engine, free_ports
from manager import Manager
from proton import Message
from proton_driver import Client
from proxy import BACK, Proxy
from units import Unit

GROUP = "FAULTS"
NAMES = ["QM1", "QM2", "QM3"]
PARTNER = "BANK"
# Messages of one unit of work; and how many puts are in one.
UNIT, IN_UNITS = 4, 0.3
# Numbers that each line puts and gets between two faults.
PROGRESS = 40
# Numbers that a line puts before they are got, at most.
AHEAD = 200
# No line may wait longer (seconds): an election of the engine, and a takeover.
STUCK = 90
PAUSED = 5
# How long a network is cut, and a disk is full (seconds): shorter than what a member waits before it turns to another
# server, or longer.
CUTS = (3, 12)
KINDS = ["kill owner", "kill owner", "kill member", "stop owner", "pause owner", "kill server", "kill all servers"]
CUT_KINDS = [
    "cut owner and server",
    "cut owner and all servers",
    "cut member and server",
    "cut two servers",
    "cut two members",
    "cut client and owner",
    "cut owner and partner",
]
CHANNEL_KINDS = ["kill partner", "kill owner in doubt"]
FULL = "fill disk"
# Bytes of a group's log, and of a server's disk.
DEPTH = "MAXDEPTH(999999999)"
LOG_BYTES, DISK_BYTES = 128 << 20, 512 << 20
# A client gives up an answer then (seconds), and asks another member.
ANSWER = 8


class Line:
    """Clients that put, move and get, and what they have seen."""

    def __init__(self, name, seed, ends, put_to, get_from, puts_at, gets_at, moves_to=None):
        """`puts_at` and `gets_at` lead to each queue manager that may take it: proxies of its own, or addresses."""
        self.name, self.random, self.ends = name, random.Random(f"{seed} {name}"), ends
        self.put_to, self.get_from, self.moves_to = put_to, get_from, moves_to
        self.puts_at, self.gets_at = puts_at, gets_at
        # Numbers that were confirmed, and those of which a try was not; numbers and links of tries.
        self.confirmed, self.repeated, self.next = set(), set(), 0
        self.tries, self.links = [], []
        # Tries of units, with whether they were confirmed.
        self.units = []
        # Tries in the order of gets that were committed; those of units whose end is not known; what came after all.
        self.got, self.unsure, self.came_back = [], set(), []
        self.is_got = set()
        # When and where each put began, and each unit of gets ended.
        self.began, self.stories = time.monotonic(), collections.defaultdict(list)
        self.moved, self.last_got = 0, time.monotonic()
        works = [self.putting, self.getting] + ([self.moving] if moves_to else [])
        self.threads = [threading.Thread(target=work, daemon=True) for work in works]

    # After how long without a word a client takes its connection for broken (seconds).
    heartbeat = 60

    def client(self, ways, at):
        way = ways[at % len(ways)]
        address = way if isinstance(way, str) else f"127.0.0.1:{way.port}"
        return Client(f"amqp://{address}", timeout=ANSWER, heartbeat=self.heartbeat)

    def message(self, number, link):
        self.stories[len(self.tries)].append(self.moment("put", link))
        self.tries.append(number)
        self.links.append(link)
        return Message(id=len(self.tries) - 1, body=number, durable=True)

    def moment(self, what, at):
        return f"{what} by way {at} at {time.monotonic() - self.began:.2f} s"

    def putting(self):
        at = 0
        while not self.ends.is_set():
            under_way = []
            try:
                with self.client(self.puts_at, at) as client:
                    sender = client.sender(self.put_to)
                    while not self.ends.is_set():
                        while len(self.confirmed) > len(self.got) + len(self.unsure) + AHEAD and not self.ends.is_set():
                            time.sleep(0.01)
                        many = self.random.random() < IN_UNITS
                        under_way = list(range(self.next, self.next + (UNIT if many else 1)))
                        messages = [self.message(number, at) for number in under_way]
                        if many:
                            self.put_unit(client, sender, messages)
                        else:
                            client.put(self.put_to, messages[0], sender=sender)
                        self.confirmed.update(under_way)
                        self.next = under_way[-1] + 1
                        under_way = []
            except Exception:
                # It may be there or not.
                self.repeated.update(under_way)
                at += 1
                time.sleep(0.05)

    def put_unit(self, client, sender, messages):
        unit = [{message.id for message in messages}, False]
        self.units.append(unit)
        work = Unit(client)
        for message in messages:
            work.put(sender, message)
        work.commit()
        unit[1] = True

    def getting(self):
        queue = self.moves_to or self.get_from
        self.take(queue, lambda client: None, lambda unit, message, to: None, self.note)

    def moving(self):
        def move(unit, message, to):
            unit.put(to, Message(id=message.id, body=message.body, durable=True))

        def note(taken, is_known, at):
            self.moved += len(taken) if is_known else 0

        self.take(self.get_from, lambda client: client.sender(self.moves_to), move, note)

    def take(self, queue, begin, each, note):
        """Gets in units, and tells of each whether it is known to be committed."""
        at = 0
        while not self.is_done():
            taken = []
            try:
                with self.client(self.gets_at, at) as client:
                    to = begin(client)
                    receiver = client.receiver(queue, credit=UNIT)
                    while not self.is_done():
                        taken = []
                        unit = Unit(client)
                        while len(taken) < UNIT and (message := receiver.next(0.2, accept=False)):
                            unit.accept(receiver, message)
                            taken.append(message.id)
                            each(unit, message, to)
                        if taken:
                            unit.commit()
                            note(taken, True, at)
                            taken = []
                            receiver.flow(UNIT - receiver.link.credit)
                        else:
                            unit.abort()
            except Exception:
                note(taken, False, at)
                at += 1
                time.sleep(0.05)

    def note(self, taken, is_known, at):
        for one in taken:
            self.stories[one].append(self.moment("got" if is_known else "perhaps got", at))
        self.came_back += [one for one in taken if one in self.is_got]
        self.last_got = time.monotonic()
        if is_known:
            self.got += taken
            self.is_got.update(taken)
        else:
            self.unsure.update(taken)

    def is_done(self):
        if not self.ends.is_set() or self.threads[0].is_alive():
            return False
        come = {self.tries[one] for one in self.is_got | self.unsure}
        return self.confirmed <= come or time.monotonic() > self.last_got + STUCK

    def faults(self, is_ordered=True):
        """What does not hold. Who gets out of reach keeps what it was sent until that is noticed: others get on."""
        come = self.is_got | self.unsure
        lost = self.confirmed - {self.tries[one] for one in come}
        twice = [one for one, count in collections.Counter(self.got).items() if count > 1]
        numbers = [self.tries[one] for one in self.got]
        once = [number for number in numbers if number not in self.repeated]
        disorder = [pair for pair in zip(once, once[1:]) if pair[0] > pair[1]]
        last, of_a_link = {}, []
        for one in self.got:
            if one < last.get(self.links[one], -1):
                of_a_link.append((last[self.links[one]], one))
            last[self.links[one]] = one
        parted = [sorted(unit) for unit, is_known in self.units if (is_known or unit & come) and not unit <= come]
        told = [
            ("numbers lost", lost),
            ("tries twice", twice),
            ("tries came back", self.came_back),
            ("numbers out of order", disorder),
            ("tries of a link out of order", of_a_link),
            ("units parted", parted),
        ]
        told = [(what, which) for what, which in told if which and (is_ordered or "order" not in what)]
        broken = [f"{self.name}: {len(which)} {what}: {list(which)[:5]}" for what, which in told]
        return broken + [f"try {one}: {', '.join(self.stories[one])}" for one in [*twice, *self.came_back][:20]]

    def told(self):
        """What was counted."""
        ends = [is_known for _, is_known in self.units]
        return (
            f"{self.name}: {len(self.confirmed)} puts confirmed, {ends.count(True)} units of {UNIT} among them, and "
            f"{ends.count(False)} whose end is not known; {len(self.tries) - len(self.confirmed)} tries not confirmed; "
            f"{len(self.got)} gets committed, {len(self.unsure)} of units whose end is not known, "
            f"{len(self.unsure - self.is_got)} of which did not come again"
            + f"; {self.moved} moved" * bool(self.moves_to)
        )


def is_done(manager, command):
    return manager.run("mqsc", "--data", manager.data, "-c", command, code=None).returncode == 0


class Site:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.disks, self.to_servers, self.to_members = [], {}, {}
        self.kinds = KINDS + CUT_KINDS + CHANNEL_KINDS
        self.seed, self.partner, self.to_partner, self.from_partner = seed, None, {}, {}
        if os.geteuid() == 0:
            self.kinds.append(FULL)
        else:
            print("no disk is filled: that needs root, for a small file system", file=sys.stderr)
        self.engine, self.members, self.lines = None, [], []
        self.ends = threading.Event()
        self.counts = collections.Counter()

    def begin(self, folder):
        for index in range(3 if FULL in self.kinds else 0):
            disk = folder / f"n{index}"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "bulla-faults", disk], check=True)
            self.disks.append(disk)
        self.engine = Engine(folder, log_bytes=LOG_BYTES, can_be_cut=True)
        for name in NAMES:
            port = free_ports(1)[0]
            member = Manager(folder / name, name=name, amqp_port=port)
            self.members.append(member)
            # Other members ask there whether it lives.
            self.to_members[name] = Proxy(lambda port=port: port)
            self.to_servers[name] = [Proxy(lambda to=to: self.engine.clients[to]) for to in range(3)]
            reached = self.engine.reached_at([way.port for way in self.to_servers[name]])
            address = f"CONNAME('127.0.0.1:{self.to_members[name].port}') REDIRECT(NO)"
            member.mqsc(f"DEFINE QSGROUP({GROUP}) {reached} {address}\nSTART QSGROUP({GROUP})")
            self.wait(lambda member=member: self.state(member) in ("OWNER", "STANDBY"), f"{name} takes part")
        self.begin_lines(folder)

    def begin_lines(self, folder):
        port = free_ports(1)[0]
        self.partner = Manager(folder / PARTNER, name=PARTNER, amqp_port=port)
        for member in self.members:
            self.to_partner[member.name] = Proxy(lambda: port)
            self.from_partner[member.name] = Proxy(lambda port=member.amqp_port: port)
            member.mqsc(
                f"""
                DEFINE QREMOTE(AT.BANK) RNAME(ARRIVED) RQMNAME({PARTNER}) XMITQ(TO.BANK)
                DEFINE CHANNEL(FROM.BANK) CHLTYPE(RCVR) QSGROUP({GROUP}) MRRTY(0)
                """
            )
        for queue in ("ONE", "TWO", "MOVED.FROM", "MOVED.TO", "FROM.BANK"):
            self.owner().mqsc(f"DEFINE QLOCAL({queue}) QSGROUP({GROUP}) {DEPTH}")
        self.owner().mqsc(f"DEFINE QLOCAL(TO.BANK) QSGROUP({GROUP}) USAGE(XMITQ) {DEPTH}")
        for member in self.members:
            # A member knows the transmission queue when it has read of it.
            channel = (
                f"DEFINE CHANNEL(TO.BANK) CHLTYPE(SDR) CONNAME('127.0.0.1({self.to_partner[member.name].port})') "
                f"XMITQ(TO.BANK) QSGROUP({GROUP}) {RETRY}"
            )
            self.wait(lambda member=member: is_done(member, channel), f"{member.name} has its channel")
        ways = ",".join(f"127.0.0.1({way.port})" for way in self.from_partner.values())
        self.partner.mqsc(
            f"""
            DEFINE QLOCAL(ARRIVED) {DEPTH}
            DEFINE CHANNEL(TO.BANK) CHLTYPE(RCVR)
            DEFINE QLOCAL(TO.GROUP) USAGE(XMITQ) TRIGGER {DEPTH}
            DEFINE QREMOTE(AT.GROUP) RNAME(FROM.BANK) RQMNAME({GROUP}) XMITQ(TO.GROUP)
            DEFINE CHANNEL(FROM.BANK) CHLTYPE(SDR) CONNAME('{ways}') XMITQ(TO.GROUP) {RETRY}
            """
        )
        self.owner().mqsc("START CHANNEL(TO.BANK)")
        for name, put_to, get_from, moves_to in (
            ("one queue", "ONE", "ONE", None),
            ("another queue", "TWO", "TWO", None),
            ("moved", "MOVED.FROM", "MOVED.FROM", "MOVED.TO"),
            ("to the partner", "AT.BANK", "ARRIVED", None),
            ("from the partner", "AT.GROUP", "FROM.BANK", None),
        ):
            here = [Proxy(lambda port=member.amqp_port: port) for member in self.members]
            there = [Proxy(lambda: port)]
            puts_at, gets_at = there if put_to == "AT.GROUP" else here, there if get_from == "ARRIVED" else here
            self.lines.append(Line(name, self.seed, self.ends, put_to, get_from, puts_at, gets_at, moves_to))
        for line in self.lines:
            for thread in line.threads:
                thread.start()

    @staticmethod
    def state(member):
        try:
            return state(member, GROUP)
        except Exception:
            return "AWAY"

    def wait(self, condition, what):
        end = time.monotonic() + STUCK
        while not (answer := condition()):
            if time.monotonic() > end:
                told = [f"{line.name} {len(line.confirmed)}/{len(line.got)}" for line in self.lines]
                print("confirmed and got:", ", ".join(told), file=sys.stderr)
                for member in [*self.members, self.partner]:
                    print(f"{member.name}:\n{''.join(member.log[-6:])}", file=sys.stderr)
                sys.exit(f"after {STUCK} s still not so: {what}")
            time.sleep(0.1)
        return answer

    def owner(self):
        return self.wait(lambda: next((one for one in self.members if self.state(one) == "OWNER"), None), "an owner")

    def fault(self):
        owner = self.owner()
        other = self.random.choice([member for member in self.members if member is not owner])
        server = self.random.randrange(3)
        kind = self.random.choice(self.kinds)
        self.counts[kind] += 1
        match kind:
            case "kill owner" | "kill member":
                who = owner if kind == "kill owner" else other
                who.kill()
                self.wait(lambda: self.owner_among(who), "another owner") if who is owner else None
                who.start()
            case "stop owner":
                owner.stop()
                owner.start()
            case "pause owner":
                owner.process.send_signal(signal.SIGSTOP)
                time.sleep(PAUSED)
                owner.process.send_signal(signal.SIGCONT)
            case "kill server":
                self.engine.kill(server)
                time.sleep(1)
                self.engine.start(server)
            case "kill all servers":
                for index in range(3):
                    self.engine.kill(index)
                for index in range(3):
                    self.engine.start(index)
            case "kill partner":
                self.partner.kill()
                self.partner.start()
            case "kill owner in doubt":
                # Messages reach the partner, and nothing that it says of them reaches the owner.
                way = self.to_partner[owner.name]
                way.hold(BACK)
                time.sleep(1)
                owner.kill()
                self.wait(lambda: self.owner_among(owner), "another owner")
                way.heal()
                owner.start()
            case "fill disk":
                self.fill(server)
            case _:
                for cut in self.cuts(kind, owner, other, server):
                    cut()
                time.sleep(self.random.uniform(*CUTS))
                self.heal()
        self.wait(self.engine.is_ready, "the engine is whole")
        before = [(len(line.confirmed), len(line.got)) for line in self.lines]
        gone_on = lambda: all(
            len(line.confirmed) >= put + PROGRESS and len(line.got) >= got + PROGRESS
            for line, (put, got) in zip(self.lines, before, strict=True)
        )
        self.wait(gone_on, f"puts and gets go on after: {kind}")

    def cuts(self, kind, owner, other, server):
        """What cuts the network as it is said."""
        match kind:
            case "cut owner and server":
                return [self.to_servers[owner.name][server].refuse]
            case "cut owner and all servers":
                return [way.refuse for way in self.to_servers[owner.name]]
            case "cut member and server":
                return [self.to_servers[other.name][server].refuse]
            case "cut two servers":
                return [lambda: self.engine.cut(server, (server + 1) % 3)]
            case "cut two members":
                # With what the engine's servers lose of one another, so that it matters.
                return [self.to_members[owner.name].refuse, lambda: self.engine.cut(server, (server + 1) % 3)]
            case "cut client and owner":
                line = self.random.choice([line for line in self.lines if len(line.puts_at) > 1])
                return [line.puts_at[self.members.index(owner)].refuse]
            case "cut owner and partner":
                return [self.to_partner[owner.name].refuse, self.from_partner[owner.name].refuse]

    def heal(self):
        ways = [*self.to_members.values(), *(way for ways in self.to_servers.values() for way in ways)]
        ways += [*self.to_partner.values(), *self.from_partner.values()]
        for way in ways + [way for line in self.lines for way in line.puts_at + line.gets_at]:
            way.heal()
        self.engine.heal()

    def fill(self, server):
        """A server's disk is full for a while. The engine does without that server until it is started again."""
        filling = self.disks[server] / "filling"
        with filling.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 20)):
                    pass
            except OSError:
                pass
        time.sleep(self.random.uniform(*CUTS))
        filling.unlink()
        self.engine.kill(server)
        self.engine.start(server)

    def owner_among(self, killed):
        return any(self.state(member) == "OWNER" for member in self.members if member is not killed)

    def end(self):
        self.ends.set()
        for line in self.lines:
            for thread in line.threads:
                thread.join()
        return [fault for line in self.lines for fault in line.faults()]

    def stop(self):
        if self.partner:
            self.partner.kill()
        for member in self.members:
            member.process.send_signal(signal.SIGCONT)
            member.kill()
        if self.engine:
            self.engine.stop()
        for disk in self.disks:
            subprocess.run(["umount", disk], check=True)


def main():
    options = argparse.ArgumentParser(description="Puts and gets on shared queues while whoever keeps them fails.")
    options.add_argument("--faults", type=int, default=100)
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin no further fault then")
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bulla-faults-"))
    site = Site(options.seed)
    began = time.monotonic()
    try:
        site.begin(folder)
        for number in range(options.faults):
            if time.monotonic() > began + options.seconds:
                break
            site.fault()
            if number % 10 == 9:
                print(f"{number + 1} faults, {time.monotonic() - began:.0f} s", flush=True)
        broken = site.end()
    finally:
        site.stop()
        shutil.rmtree(folder, ignore_errors=True)
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(site.counts.items()))
    print(f"seed {options.seed}, {site.counts.total()} faults, {time.monotonic() - began:.0f} s: {kinds}")
    for line in site.lines:
        print(line.told())
    print("\n".join(broken) or "nothing confirmed was lost, nothing committed came back, all of it in order")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
