#!/usr/bin/env python3
"""What it costs to reach a shared queue by way of a member that does not own it.

    tests/shared/forwarding.py [--messages 20000] [--bytes 2048] [--rounds 5]

Three servers of the engine and two members on loopback. In each round a client puts and gets so many messages at the
owner, another one does the same at the other member, and each puts 200 messages one at a time. Prints the processor
time of both queue managers for a message, the rate, and the median time until a put is confirmed, and at the end the
medians of the rounds' ratios. BULLA names the program.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from members import member, state, wait_until  # isort: skip (it makes the next ones known)
from engine import Engine
from proton import Message
from proton_driver import Refused

GROUP, QUEUE = "FORWARDING", "FORWARDING.Q"
IN_FLIGHT = 500
ALONE = 200
# More is broken (seconds).
DEADLINE = 120


def is_known(manager):
    try:
        with manager.connect() as client:
            client.sender(QUEUE)
        return True
    except Refused:
        return False


def put(manager, count, encoded):
    """Puts so many, IN_FLIGHT at the same time."""
    with manager.connect(timeout=DEADLINE) as client:
        sender = client.sender(QUEUE)
        link, connection, sent, unsettled = sender.link, client.connection, 0, []
        may_send = lambda: sent < count and link.credit > 0 and len(unsettled) < IN_FLIGHT
        while sent < count or unsettled:
            while may_send():
                unsettled.append(link.delivery(str(sent)))
                link.send(encoded)
                link.advance()
                sent += 1
            connection.wait(lambda: unsettled and unsettled[0].remote_state or may_send(), timeout=DEADLINE)
            while unsettled and unsettled[0].remote_state:
                unsettled.pop(0).settle()


def get(manager, count):
    with manager.connect(timeout=DEADLINE) as client:
        receiver, got = client.receiver(QUEUE, credit=0), 0
        while got < count:
            got += len(receiver.drain(1000))


def put_alone(manager, message):
    """The median time until a put is confirmed, one at a time, in milliseconds."""
    took = []
    with manager.connect(timeout=DEADLINE) as client:
        sender = client.sender(QUEUE)
        for _ in range(ALONE):
            began = time.perf_counter()
            client.put(QUEUE, message, sender=sender)
            took.append(time.perf_counter() - began)
        client.get_all(QUEUE, credit=ALONE)
    return statistics.median(took) * 1000


def processor_seconds(manager):
    fields = Path(f"/proc/{manager.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(managers, does, count):
    """Microseconds of processor time a message, both queue managers together, and messages a second."""
    before, began = sum(map(processor_seconds, managers)), time.perf_counter()
    does()
    took = time.perf_counter() - began
    return (sum(map(processor_seconds, managers)) - before) / count * 1e6, count / took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=2_048)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bulla-forwarding-"))
    made, engine = [], None
    try:
        engine = Engine(folder)
        made.append(member(folder, engine, "QM1", GROUP))
        wait_until(lambda: state(made[0], GROUP) == "OWNER", "the group has an owner", DEADLINE)
        made[0].mqsc(f"DEFINE QLOCAL({QUEUE}) QSGROUP({GROUP}) MAXDEPTH(1000000)")
        made.append(member(folder, engine, "QM2", GROUP))
        wait_until(lambda: is_known(made[1]), "the other member forwards", DEADLINE)
        message, count = Message(body=bytes(options.bytes), durable=True), options.messages
        ratios = {"put": [], "get": [], "alone": []}
        for number in range(options.rounds):
            found = {}
            for where, manager in (("at the owner", made[0]), ("forwarded", made[1])):
                puts = measured(made, lambda: put(manager, count, message.encode()), count)
                gets = measured(made, lambda: get(manager, count), count)
                alone = put_alone(manager, message)
                found[where] = (puts[0], gets[0], alone)
                print(
                    f"{number + 1} {where:12}: put {puts[0]:.1f} us, {puts[1]:,.0f}/s; get {gets[0]:.1f} us, "
                    f"{gets[1]:,.0f}/s; a put alone {alone:.2f} ms",
                    flush=True,
                )
            for name, near, far in zip(ratios, *found.values()):
                ratios[name].append(far / near)
        for name, of in ratios.items():
            print(f"{name}: forwarded / at the owner {statistics.median(of):.2f} [{min(of):.2f}-{max(of):.2f}]")
    finally:
        for manager in made:
            manager.kill()
        if engine:
            engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
