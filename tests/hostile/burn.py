"""Takes processor time and does nothing with it: what attackers take of it themselves, without the attack.

    burn.py SHARE     so much of a processor, 0 to 1, until standard input ends"""

import sys
import time
from threading import Event, Thread

# Between two looks at the clock (seconds).
STEP = 0.001


def main():
    share, stop = float(sys.argv[1]), Event()
    # The program that started this ends it, also by not being there any more.
    Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    print("ready", flush=True)
    began, used = time.monotonic(), time.process_time()
    while not stop.is_set():
        if time.process_time() - used < share * (time.monotonic() - began):
            until = time.process_time() + STEP
            while time.process_time() < until:
                pass
        else:
            stop.wait(STEP)


if __name__ == "__main__":
    main()
