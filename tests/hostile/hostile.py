"""`make hostile`: a loaded queue manager under attack, and what that costs those who mean it well.

An honest client streams messages at a rate for as long as each phase takes: alone, under each attack, under all of them at once,
and alone again. Every message is checked by `bulla perf stream`, which is that client. Ends by itself; the exit code is 1 where
somebody honest kept less than the share that is promised, something was lost, or memory went beyond its limit."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "e2e"), str(Path(__file__).parents[1] / "clients/proton")]

import attacks  # noqa: E402
from manager import BULLA, Manager  # noqa: E402

# Of the rate without attacks.
SHARE_KEPT = 0.8
# Mebibytes of message bodies that the queue manager may hold, and what it may need beside them.
MEMORY_MIB, OVERHEAD_MIB = 64, 320
# Messages on the queue that slow readers read from, and their bytes.
LARGE, LARGE_BYTES = 64, 1 << 20
LIMITS = """
SET LIMIT('*ANONYMOUS') MAXCONNS(200) MAXHANDS(2000) UNACKED(8388608) MSGRATE(2000)
"""
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(HOSTILE.**) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(PUT, GET, BROWSE)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('honest') AUTHADD(ALL)
DEFINE QLOCAL(HONEST)
DEFINE QLOCAL(HOSTILE.PUTS) MAXDEPTH(5000) FULL(REJECT)
DEFINE QLOCAL(HOSTILE.FULL)
"""


class Watch:
    """The most memory that a process has had from one asking to the next, in mebibytes."""

    def __init__(self, pid):
        self.pid, self.most, self.ends = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self):
        while not self.ends.wait(0.1):
            try:
                status = Path(f"/proc/{self.pid}/status").read_text()
            except OSError:
                return
            found = re.search(r"VmRSS:\s+(\d+)", status)
            self.most = max(self.most, int(found[1]) / 1024 if found else 0)

    def take(self):
        most, self.most = self.most, 0
        return most


def fill(manager):
    """What slow readers read from."""
    client = manager.connect("honest")
    try:
        sender = client.sender("HOSTILE.FULL")
        from proton import Message

        for number in range(LARGE):
            body = number.to_bytes(4, "big") * (LARGE_BYTES // 4)
            client.put("HOSTILE.FULL", Message(body=body, inferred=True), sender)
    finally:
        client.close()


def stream(manager, seconds, rate, out):
    """The honest client's rate and latencies for so long; whatever goes wrong with a message ends it with an error."""
    command = [BULLA, "perf", "stream", "--amqp", manager.clear_address, "--queue", "HONEST", "--quality", "none"]
    command += ["--user", "honest", "--password-file", manager.password_file("honest"), "--rate", rate]
    command += ["--seconds", seconds, "--warm-up", 1, "--repeats", 1, "--out", out]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds + 120)
    # 8: the rate that was asked for was not reached, which the table says.
    if done.returncode not in (0, 8):
        return None, done.stderr[-500:]
    samples = [json.loads(line) for line in out.read_text().splitlines()]
    return next(sample for sample in samples if sample["kind"] == "sample"), None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="of all phases together")
    parser.add_argument("--rate", default="20000", help="messages a second of the honest client; max for as fast as it goes")
    parser.add_argument("--out", type=Path, help="where the table goes, too")
    args = parser.parse_args()
    phases = [("nobody", [])] + [(attack.__name__.replace("_", " "), [attack]) for attack in attacks.ATTACKS]
    phases += [("all at once", attacks.ATTACKS), ("nobody, afterwards", [])]
    seconds = max(2, int(args.seconds / (len(phases) + 1)) - 2)
    with tempfile.TemporaryDirectory() as folder:
        return attacked(Path(folder), phases, seconds, args)


def attacked(folder, phases, seconds, args):
    manager = Manager(folder / "qm", options=["--memory", MEMORY_MIB], grants=GRANTS)
    failures, rows = [], []
    try:
        manager.add_user("honest")
        manager.mqsc(LIMITS)
        fill(manager)
        target = attacks.Target(manager.ports["amqp"], manager.ports["amqps"], "HOSTILE.PUTS", "HOSTILE.FULL", "honest")
        watch, alone = Watch(manager.process.pid), None
        for number, (name, strikes) in enumerate(phases):
            # All at once is what counts: it has twice the time.
            lasts = seconds * 2 if strikes is attacks.ATTACKS else seconds
            watch.take()
            with attacks.UnderAttack(target, strikes) as under:
                sample, error = stream(manager, lasts, args.rate, folder / f"{number}.jsonl")
            failures += [f"the attack itself failed: {failure}" for failure in under.failures]
            if sample is None:
                failures.append(f"{name}: the honest client failed: {error}")
                continue
            alone = alone or sample["rate"]
            kept, memory = sample["rate"] / alone, watch.take()
            latency = sample["latency-us"]
            rows.append((name, sample["rate"], kept, latency["p50"], latency["p99"], memory))
            print(f"{name:<20} {sample['rate']:>9.0f}/s {kept:>6.0%}  p99 {latency['p99'] / 1000:>7.1f} ms  {memory:>6.0f} MiB", flush=True)
            if kept < SHARE_KEPT:
                failures.append(f"{name}: the honest client kept {kept:.0%} of its rate")
            if memory > MEMORY_MIB + OVERHEAD_MIB:
                failures.append(f"{name}: {memory:.0f} MiB are more than {MEMORY_MIB + OVERHEAD_MIB}")
            if manager.process.poll() is not None:
                failures.append(f"{name}: the queue manager ended: {''.join(manager.log[-5:])}")
                break
            if depth := manager.depth("HONEST"):
                failures.append(f"{name}: {depth} messages are left on the honest client's queue")
        if manager.stop() != 0:
            failures.append("the queue manager did not stop cleanly")
    finally:
        if manager.process.poll() is None:
            manager.kill()
    table = page(rows, args.rate, seconds)
    print(table)
    if args.out:
        args.out.write_text(table)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def page(rows, rate, seconds):
    lines = ["| attack | messages/s | of the rate alone | median µs | 99 of 100 within µs | memory at most, MiB |", "| --- | --- | --- | --- | --- | --- |"]
    for name, reached, kept, median, late, memory in rows:
        lines.append(f"| {name} | {reached:,.0f} | {kept:.0%} | {median:,.0f} | {late:,.0f} | {memory:.0f} |")
    return "\n".join([f"Asked for: {rate} messages a second; {seconds} s a phase, all at once {2 * seconds} s.", "", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
