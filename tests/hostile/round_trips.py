"""An honest client that asks, and the one that answers it: python-qpid-proton, unmodified, signed in over TLS.

    round_trips.py RATE URL USER PASSWORD-FILE CA     so many a second, until standard input ends

Each round trip is a line: when it was over (CLOCK_MONOTONIC) and how long it took, seconds. Whatever goes wrong ends it with 1."""

import sys
import time
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).parents[1] / "clients/proton"))

from proton import Message  # noqa: E402
from proton_driver import Client  # noqa: E402

# Longer than anything takes unless it is broken (seconds).
WAIT = 30


def main():
    rate, url, user, password_file, ca = sys.argv[1:]
    password, stop = Path(password_file).read_text().strip(), Event()
    Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with Client(url, user, password, ca, timeout=WAIT) as one, Client(url, user, password, ca, timeout=WAIT) as other:
        asks, answers = one.sender("HONEST.ASKED"), one.receiver("HONEST.ANSWERS", credit=2)
        asked, replies = other.receiver("HONEST.ASKED", credit=2), other.sender("HONEST.ANSWERS")
        print("ready", flush=True)
        number, due = 0, time.monotonic()
        while not stop.wait(max(0, due - time.monotonic())):
            began = time.monotonic()
            one.put("HONEST.ASKED", Message(body=number), asks)
            other.put("HONEST.ANSWERS", Message(body=asked.next(wait=WAIT).body), replies)
            answer = answers.next(wait=WAIT).body
            if answer != number:
                sys.exit(f"asked {number} and was answered {answer}")
            asked.flow(1)
            answers.flow(1)
            over = time.monotonic()
            print(over, over - began, flush=True)
            # What was late is not made up for: it counts as not done.
            number, due = number + 1, max(due + 1 / float(rate), over)


if __name__ == "__main__":
    main()
