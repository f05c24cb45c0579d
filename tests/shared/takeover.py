#!/usr/bin/env python3
"""How long a group has no owner: puts and gets after `kill -9` of the owner, and after TERM.

    tests/shared/takeover.py [--messages 100000] [--bytes 2048] [--rounds 5]

Three servers of the engine and two members on loopback. So many messages lie on a shared queue. In each round
the owner is killed, or stopped, and two clients try the other member until a put is confirmed, and until a
message is there. Prints a line for each round, in seconds since the signal. BULLA names the program.
"""

import argparse
import shutil
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

from members import member, state, wait_until  # isort: skip (it makes the next ones known)
from engine import Engine
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

GROUP, QUEUE = "TAKEOVER", "TAKEOVER.Q"
# More is broken (seconds).
DEADLINE = 120


class Filler(MessagingHandler):
    """Puts so many messages, as fast as credit allows, and ends when all are confirmed."""

    def __init__(self, url, count, size):
        super().__init__()
        self.url, self.left, self.unconfirmed, self.body = url, count, count, bytes(size)

    def on_start(self, event):
        event.container.create_sender(event.container.connect(self.url), QUEUE)

    def on_sendable(self, event):
        while event.sender.credit and self.left:
            event.sender.send(Message(body=self.body, durable=True))
            self.left -= 1

    def on_accepted(self, event):
        self.unconfirmed -= 1
        if not self.unconfirmed:
            event.connection.close()


def first(manager, act, since, into):
    """Tries again and again, and notes when it went well."""
    while time.monotonic() < since + DEADLINE:
        try:
            with manager.connect(timeout=DEADLINE) as client:
                if act(client):
                    into.append(time.monotonic() - since)
                    return
        except Exception:
            time.sleep(0.01)


def put(client):
    client.put(QUEUE, Message(body=b"first", durable=True))
    return True


def get(client):
    return client.get(QUEUE, wait=DEADLINE) is not None


def main():
    options = argparse.ArgumentParser(description="How long a group has no owner.")
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--bytes", type=int, default=2_048)
    options.add_argument("--rounds", type=int, default=5)
    options = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bulla-takeover-"))
    managers, engine = [], None
    try:
        engine = Engine(folder, log_bytes=2 << 30)
        managers = [member(folder, engine, name, GROUP) for name in ("QM1", "QM2")]
        managers[0].mqsc(f"DEFINE QLOCAL({QUEUE}) QSGROUP({GROUP}) MAXDEPTH(999999999)")
        began = time.monotonic()
        Container(Filler(managers[0].amqp, options.messages, options.bytes)).run()
        print(f"{options.messages} messages of {options.bytes} bytes put in {time.monotonic() - began:.1f} s")
        owner, other = managers
        for name, sent in (("kill -9", signal.SIGKILL), ("TERM", signal.SIGTERM)):
            puts, gets = [], []
            for _ in range(options.rounds):
                wait_until(lambda: state(other, GROUP) == "STANDBY", "the other member stands by")
                time.sleep(2)
                since = time.monotonic()
                owner.process.send_signal(sent)
                put_after, got_after = [], []
                both = [(put, put_after), (get, got_after)]
                threads = [threading.Thread(target=first, args=(other, act, since, into)) for act, into in both]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                owner.process.wait(DEADLINE)
                print(f"{name}: first put after {put_after[0]:.2f} s, first get after {got_after[0]:.2f} s", flush=True)
                puts += put_after
                gets += got_after
                owner.start()
                owner, other = other, owner
            medians = [statistics.median(times) for times in (puts, gets)]
            print("{}, median: put {:.2f} s, get {:.2f} s".format(name, *medians), flush=True)
    finally:
        for manager in managers:
            manager.kill()
        if engine:
            engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
