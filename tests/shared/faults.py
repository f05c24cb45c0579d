#!/usr/bin/env python3
"""A history of puts and gets on shared queues, while whoever keeps them fails.

    tests/shared/faults.py [--faults 100] [--seed 1]

Three servers of the engine and three members on loopback. Each of three pairs of clients, unmodified
python-qpid-proton, has a queue of its own: one puts numbers, each confirmed before the next, and puts again
what was not confirmed; the other gets in units of work. Faults come one after the other, each when all pairs go
on: the owner or another member is killed, stopped by TERM, or by SIGSTOP for five seconds and goes on; a server
is killed, or all of them; the network is cut for some seconds between two of them, be they clients, members or
servers; the disk of a server is full. Disks are tmpfs: who is not root does without that.

Then each number that was confirmed must have come; none may have come twice whose get was committed and whose
put was not repeated; and those that were not repeated have come in their order. Prints what was counted; exits
with 1 where that does not hold. BULLA names the program.
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

sys.path[:0] = [str(Path(__file__).parents[1] / "e2e"), str(Path(__file__).parents[1] / "clients/proton")]

from engine import Engine, free_ports  # noqa: E402
from manager import Manager, run, shown_rows  # noqa: E402
from proton import Message  # noqa: E402
from proton_driver import Client  # noqa: E402
from proxy import Proxy  # noqa: E402
from units import Unit  # noqa: E402

GROUP = "FAULTS"
NAMES = ["QM1", "QM2", "QM3"]
PAIRS = 3
# Messages of one unit of work.
UNIT = 4
# Numbers that each pair puts between two faults.
PROGRESS = 40
# No pair may wait longer (seconds): an election of the engine, and a takeover.
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
]
FULL = "fill disk"
# Bytes of a group's log, and of a server's disk.
LOG_BYTES, DISK_BYTES = 128 << 20, 512 << 20
# A client gives up an answer then (seconds), and asks another member.
ANSWER = 8


class Pair:
    """A client that puts, one that gets, and what they have seen."""

    def __init__(self, index, members, ends):
        self.queue, self.ends = f"FAULTS.{index}", ends
        # Its own way to each member.
        self.ways = [Proxy(lambda member=member: member.amqp_port) for member in members]
        self.confirmed, self.repeated, self.next = set(), set(), 0
        self.got, self.unsure = [], set()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.putting, self.getting)]

    def client(self, at):
        return Client(f"amqp://127.0.0.1:{self.ways[at % len(self.ways)].port}", timeout=ANSWER)

    def putting(self):
        at = 0
        while not self.ends.is_set():
            number = self.next
            try:
                with self.client(at) as client:
                    sender = client.sender(self.queue)
                    while not self.ends.is_set():
                        number = self.next
                        client.put(self.queue, Message(body=number, durable=True), sender=sender)
                        self.confirmed.add(number)
                        self.next += 1
            except Exception:
                # It may be there or not.
                self.repeated.add(number)
                at += 1
                time.sleep(0.05)

    def getting(self):
        at = 0
        while not (self.ends.is_set() and self.is_done()):
            taken = []
            try:
                with self.client(at) as client:
                    receiver = client.receiver(self.queue, credit=UNIT)
                    while not (self.ends.is_set() and self.is_done()):
                        taken = []
                        unit = Unit(client)
                        while len(taken) < UNIT and (message := receiver.next(0.2, accept=False)):
                            unit.accept(receiver, message)
                            taken.append(message.body)
                        if taken:
                            unit.commit()
                            self.got += taken
                            taken = []
                            receiver.flow(UNIT - receiver.link.credit)
                        else:
                            unit.abort()
            except Exception:
                self.unsure.update(taken)
                at += 1
                time.sleep(0.05)

    def is_done(self):
        return self.confirmed <= set(self.got) | self.unsure or time.monotonic() > self.until

    until = float("inf")

    def faults(self):
        """What does not hold."""
        seen = collections.Counter(self.got)
        lost = self.confirmed - set(seen) - self.unsure
        twice = [number for number, count in seen.items() if count > 1 and number not in self.repeated]
        once = [number for number in self.got if number not in self.repeated]
        disorder = [pair for pair in zip(once, once[1:]) if pair[0] > pair[1]]
        told = [("lost", lost), ("twice", twice), ("out of order", disorder)]
        return [f"{self.queue}: {what}: {list(which)[:5]}" for what, which in told if which]


class Site:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.disks, self.to_servers, self.to_members = [], {}, {}
        self.kinds = KINDS + CUT_KINDS
        if os.geteuid() == 0:
            self.kinds.append(FULL)
        else:
            print("no disk is filled: that needs root, for a small file system", file=sys.stderr)
        self.engine, self.members, self.pairs = None, [], []
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
        for index in range(PAIRS):
            self.owner().mqsc(f"DEFINE QLOCAL(FAULTS.{index}) QSGROUP({GROUP}) MAXDEPTH(999999999)")
            self.pairs.append(Pair(index, self.members, self.ends))
        for pair in self.pairs:
            for thread in pair.threads:
                thread.start()

    @staticmethod
    def state(member):
        try:
            done = run("mqsc", "--data", member.data, "--json", "-c", f"DISPLAY QSGSTATUS({GROUP}) STATE")
            return shown_rows(done.stdout)[0]["STATE"]
        except Exception:
            return "AWAY"

    def wait(self, condition, what):
        end = time.monotonic() + STUCK
        while not (answer := condition()):
            if time.monotonic() > end:
                for member in self.members:
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
            case "fill disk":
                self.fill(server)
            case _:
                for cut in self.cuts(kind, owner, other, server):
                    cut()
                time.sleep(self.random.uniform(*CUTS))
                self.heal()
        self.wait(self.engine.is_ready, "the engine is whole")
        before = [(len(pair.confirmed), len(pair.got)) for pair in self.pairs]
        gone_on = lambda: all(
            len(pair.confirmed) >= put + PROGRESS and len(pair.got) >= got + PROGRESS
            for pair, (put, got) in zip(self.pairs, before, strict=True)
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
                pair = self.random.choice(self.pairs)
                return [pair.ways[self.members.index(owner)].refuse]

    def heal(self):
        ways = [*self.to_members.values(), *(way for ways in self.to_servers.values() for way in ways)]
        for way in ways + [way for pair in self.pairs for way in pair.ways]:
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
        for pair in self.pairs:
            pair.until = time.monotonic() + STUCK
        for pair in self.pairs:
            for thread in pair.threads:
                thread.join(2 * STUCK)
        return [fault for pair in self.pairs for fault in pair.faults()]

    def stop(self):
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
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bulla-faults-"))
    site = Site(options.seed)
    began = time.monotonic()
    try:
        site.begin(folder)
        for number in range(options.faults):
            site.fault()
            if number % 10 == 9:
                print(f"{number + 1} faults, {time.monotonic() - began:.0f} s", flush=True)
        broken = site.end()
    finally:
        site.stop()
        shutil.rmtree(folder, ignore_errors=True)
    sums = [
        sum(len(getattr(pair, what)) for pair in site.pairs) for what in ("confirmed", "got", "repeated", "unsure")
    ]
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(site.counts.items()))
    print(f"seed {options.seed}, {options.faults} faults: {kinds}")
    told = "{} puts confirmed, {} gets committed, {} puts repeated, {} gets of units whose end is not known"
    print(told.format(*sums))
    gone = sum(len(pair.unsure - set(pair.got)) for pair in site.pairs)
    print(f"of those gets {gone} did not come again: their units were committed")
    print("\n".join(broken) or "nothing confirmed was lost, nothing committed came back, all of it in order")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
