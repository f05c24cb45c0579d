#!/usr/bin/env python3
"""Two members claim a group at once, again and again: one of them is the owner each time.

    tests/shared/claims.py [--rounds 100]

Three servers of the engine and two members on loopback. In each round an operator has both take the group over in
the same moment. Then one is its owner and the other one stands by, and a message is put there. In the end each
message must be there once and in order, and no number of an owner may have been given twice. Prints how often each
won; exits with 1 where that does not hold. BULLA names the program.
"""

import argparse
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from members import member, state, wait_until  # isort: skip (it makes the next ones known)
from engine import Engine
from proton import Message, ProtonException
from proton_driver import Refused

GROUP, QUEUE = "CLAIMS", "CLAIMS.Q"
# More is broken (seconds): longer than an election of the engine and two claims.
DEADLINE = 90
TRIES = 5


def epochs(manager):
    """Those that it owned the group in, as it has said."""
    return [int(found[1]) for line in list(manager.log) if (found := re.search(r"owned here, epoch (\d+)", line))]


def settled(managers):
    """The owner, once there is one and the other stands by."""

    def look():
        states = [state(manager, GROUP) for manager in managers]
        return sorted(states) == ["OWNER", "STANDBY"] and managers[states.index("OWNER")]

    return wait_until(look, "one owns the group and the other one stands by", DEADLINE)


def put(managers, number):
    """Puts at the owner; how often that was tried. The other one's claim may come just then."""
    for tries in range(1, TRIES + 1):
        try:
            with settled(managers).connect(timeout=DEADLINE) as client:
                client.put(QUEUE, Message(body=number, durable=True))
            return tries
        except (Refused, ProtonException):
            pass
    sys.exit(f"message {number} was not taken")


def main():
    options = argparse.ArgumentParser(description="Two members claim a group at once.")
    options.add_argument("--rounds", type=int, default=100)
    options = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bulla-claims-"))
    managers, engine = [], None
    wins, both, repeated = {}, 0, set()
    try:
        engine = Engine(folder)
        managers = [member(folder, engine, name, GROUP) for name in ("QM1", "QM2")]
        managers[0].mqsc(f"DEFINE QLOCAL({QUEUE}) QSGROUP({GROUP}) MAXDEPTH(999999999)")
        before = {manager.name: len(epochs(manager)) for manager in managers}
        for number in range(options.rounds):
            start = threading.Barrier(len(managers))

            def take_over(manager, start=start):
                start.wait()
                # Who owns it has what is asked for, and nothing happens there.
                manager.mqsc(f"RESET QSGROUP({GROUP}) TAKEOVER")

            # Neither owns it: both have given it up, and claim again when they start.
            for manager in managers:
                manager.mqsc(f"STOP QSGROUP({GROUP})")
            for manager in managers:
                manager.mqsc(f"START QSGROUP({GROUP})")
            threads = [threading.Thread(target=take_over, args=(manager,)) for manager in managers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            owner = settled(managers)
            wins[owner.name] = wins.get(owner.name, 0) + 1
            after = {manager.name: len(epochs(manager)) for manager in managers}
            both += all(after[name] > before[name] for name in after)
            before = after
            if put(managers, number) > 1:
                repeated.add(number)
        with settled(managers).connect(timeout=DEADLINE) as client:
            found = [message.body for message in client.get_all(QUEUE)]
            # Of a put without an answer it is not known whether it is there.
            is_new = lambda number, before: number != before or number not in repeated
            seen = [number for number, before in zip(found, [None, *found]) if is_new(number, before)]
    finally:
        for manager in managers:
            manager.kill()
        if engine:
            engine.stop()
        shutil.rmtree(folder, ignore_errors=True)
    owned = [epoch for manager in managers for epoch in epochs(manager)]
    told = ", ".join(f"{name} {count}" for name, count in sorted(wins.items()))
    print(f"{len(repeated)} puts were repeated")
    print(f"{options.rounds} rounds: {told}; in {both} both owned it, one after the other; {len(owned)} owners in all")
    broken = []
    if len(set(owned)) < len(owned):
        broken.append("a number of an owner was given twice")
    if seen != list(range(options.rounds)):
        broken.append(f"messages: {found}")
    print("\n".join(broken) or "one owner each time, and each message there once and in order")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
