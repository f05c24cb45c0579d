"""`make hostile`: a loaded queue manager under attack, and what that costs those who mean it well.

Honest are: two streams of `bulla perf stream`, which checks every message, at half of what they reached alone before; a client
that asks and one that answers (`round_trips.py`); and newcomers, each of which connects by TLS and SCRAM, puts a persistent
message, and leaves. They are measured alone, under each attack, and under all of them at once.

Attackers are programs of their own, as fast as they can be, on the same processors. So a part of what honest clients lose they
would lose to any busy program. Each attack is therefore followed by a *control* in which programs that do nothing take as much
processor time as each attacker took. What counts is the rate under attack over the rate in the control; both are in the table.

Ends by itself. The exit code is 1 where an honest client kept less than the share that is promised, a newcomer was not
served in time, something was lost, or memory went beyond its limit."""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "e2e"), str(Path(__file__).parents[1] / "clients/proton")]

import attacks  # noqa: E402
import rights  # noqa: E402
from manager import BULLA, DEADLINE, Manager, wait_until  # noqa: E402
from proton import Message  # noqa: E402

HERE = Path(__file__).parent
# Of what is left in the control.
SHARE_KEPT = 0.8
# Of what the streams reached alone, which is what they are paced at.
SHARE_ASKED = 0.5
# Mebibytes of message bodies that the queue manager may hold, and what it may need beside them.
MEMORY_MIB, OVERHEAD_MIB = 64, 320
# Messages on the queue that slow readers read from, and their bytes.
LARGE, LARGE_BYTES = 64, 1 << 20
# Messages that each stream has under way.
WINDOW = 4096
# Round trips a second that are asked for.
ROUND_TRIPS = 50
# A new client comes so often, and has to be served within so long (seconds).
NEWCOMER_EVERY, NEWCOMER_WITHIN = 2, 5
# How long attacks last, as multiples of one: by themselves, all at once, and the control of that.
ONE, ALL, ALL_CONTROL = 1, 10, 4
AT_ONCE = "all_at_once"
# How long each loop of a right lasts, and how often it is measured where it misses.
RIGHTS_SECONDS, TRIES = 2, 2
# What a phase takes beside the time that counts: the warm-up of the streams, and starting and ending programs (seconds).
WARM_UP, AROUND = 1, 3
CLOCK_TICKS = 100
HTTP = ["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]
LIMITS = """
SET LIMIT('*ANONYMOUS') MAXCONNS(200) MAXHANDS(2000) UNACKED(8388608) MSGRATE(2000)
"""
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(HOSTILE.**) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(PUT, GET, BROWSE)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('honest') AUTHADD(ALL)
DEFINE QLOCAL(HONEST.1); DEFINE QLOCAL(HONEST.2); DEFINE QLOCAL(HONEST.ASKED); DEFINE QLOCAL(HONEST.ANSWERS)
DEFINE QLOCAL(HONEST.KEPT) MAXDEPTH(1000000)
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


def processor_seconds(pid):
    """What a process has used, of user and system time, and those that it has started and waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15]) / CLOCK_TICKS


def machine_seconds():
    """What all processes have used together, and the kernel for them."""
    user, nice, system, _, _, interrupts, soft_interrupts = (int(field) for field in Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + interrupts + soft_interrupts) / CLOCK_TICKS


class Program:
    """A program that says when it is ready, and ends when its standard input does."""

    def __init__(self, name, *words):
        self.name, self.lines = name, []
        command = [sys.executable, *(str(word) for word in words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = threading.Event()
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        self.errors = ""
        for reader in self.readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.strip() == "ready":
                self.ready.set()
            else:
                self.lines.append(line)
        self.ready.set()

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def end(self):
        """None, or why it failed."""
        self.process.stdin.close()
        try:
            code = self.process.wait(2 * DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for reader in self.readers:
            reader.join(DEADLINE)
        return f"{self.name} failed: exit {code}: {self.errors[-500:]}" if code else None


class Company:
    """Programs that run beside the honest ones while this lasts, and what processor time they take."""

    def __init__(self, programs):
        self.make, self.programs, self.failures = programs, [], []

    def __enter__(self):
        self.programs = [Program(name, *words) for name, words in self.make.items()]
        for program in self.programs:
            program.ready.wait(DEADLINE)
        self.began, self.used = time.monotonic(), self._used()
        return self

    def _used(self):
        return {program.name: processor_seconds(program.process.pid) for program in self.programs}

    def shares(self):
        """Of a processor, each since all were ready."""
        lasted, used = time.monotonic() - self.began, self._used()
        return {name: (used[name] - self.used[name]) / lasted for name in used}

    def __exit__(self, *_):
        ended = [program.end() for program in self.programs]
        self.failures = [why for why in ended if why]

    def tallies(self):
        """What each says of what it did."""
        return {program.name: json.loads(program.lines[-1]) for program in self.programs if program.lines}


class Newcomers:
    """A new client every few seconds: TLS, SCRAM, one persistent message, and gone."""

    def __init__(self, manager, password_file):
        self.manager, self.password_file, self.ends = manager, password_file, threading.Event()
        # When each was done, how long it took, and None or why it failed.
        self.came = []
        self.thread = threading.Thread(target=self._come, daemon=True)
        self.thread.start()

    def _come(self):
        port = self.manager.ports["amqps"]
        command = [BULLA, "put", "HONEST.KEPT", "--amqp", f"localhost:{port}", "--ca", self.manager.ca]
        command += ["--user", "honest", "--password-file", self.password_file]
        while not self.ends.wait(NEWCOMER_EVERY):
            began, body = time.monotonic(), str(len(self.came))
            try:
                done = subprocess.run([str(word) for word in command], input=body, text=True, capture_output=True, timeout=2 * DEADLINE)
                why = None if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-300:]}"
            except subprocess.TimeoutExpired:
                why = f"not let in within {2 * DEADLINE} s"
            over = time.monotonic()
            self.came.append((over, over - began, why))

    def stop(self):
        self.ends.set()
        self.thread.join(3 * DEADLINE)


@dataclass
class Measured:
    """What honest clients had in a phase."""

    rate: float
    late_us: float
    round_trips: float
    round_trip_late_ms: float
    newcomers: int
    newcomer_slowest: float
    memory: float
    # Processors that were busy with the queue manager, and with what is no part of this.
    queue_manager: float
    others: float
    shares: dict = field(default_factory=dict)
    tallies: dict = field(default_factory=dict)


class Bench:
    """A queue manager with its honest clients."""

    def __init__(self, folder, args):
        self.folder, self.args, self.failures = folder, args, []
        self.manager = Manager(folder / "qm", options=["--memory", MEMORY_MIB, *HTTP], grants=GRANTS)
        self.manager.add_user("honest")
        if not args.unlimited:
            self.manager.mqsc(LIMITS)
        self._fill()
        # Written once: programs read it while others start.
        self.password_file = self.manager.password_file("honest")
        ports = self.manager.ports
        where = {"port": ports["amqp"], "tls_port": ports["amqps"]}
        where |= {"http_port": self.manager.port("http"), "https_port": self.manager.port("https")}
        where |= {"queue": "HOSTILE.PUTS", "full_queue": "HOSTILE.FULL", "user": "honest"}
        self.target = json.dumps(where)
        self.watch = Watch(self.manager.process.pid)
        sign_in = [self.manager.amqps, "honest", self.password_file, self.manager.ca]
        self.round_trips = Program("round trips", HERE / "round_trips.py", ROUND_TRIPS, *sign_in)
        self.round_trips.ready.wait(DEADLINE)
        self.newcomers = Newcomers(self.manager, self.password_file)

    def _fill(self):
        """What slow readers read from."""
        with self.manager.connect("honest") as client:
            sender = client.sender("HOSTILE.FULL")
            for number in range(LARGE):
                body = number.to_bytes(4, "big") * (LARGE_BYTES // 4)
                client.put("HOSTILE.FULL", Message(body=body, inferred=True), sender)

    def attackers(self, kinds):
        return {kind: [HERE / "attacks.py", kind, self.target] for kind in kinds}

    def stream(self, seconds, rate):
        """What the two streams had; whatever goes wrong with a message ends them with an error."""
        out = self.folder / f"{time.monotonic_ns()}.jsonl"
        command = [BULLA, "perf", "stream", "--amqp", self.manager.clear_address, "--queue", "HONEST.1,HONEST.2", "--pairs", 2]
        command += ["--user", "honest", "--password-file", self.password_file, "--quality", "none"]
        command += ["--window", WINDOW, "--rate", rate, "--seconds", seconds, "--warm-up", WARM_UP, "--repeats", 1, "--out", out]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds + 120)
        # 8: the rate that was asked for was not reached, which the table says.
        if done.returncode not in (0, 8):
            raise Failed(f"the streams: exit {done.returncode}: {done.stderr[-500:]}")
        samples = [json.loads(line) for line in out.read_text().splitlines()]
        return next(sample for sample in samples if sample["kind"] == "sample")

    def _spent(self, company):
        """Processor time that none of the programs here took."""
        own = sum(sum(resource.getrusage(whose)[:2]) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        running = sum(processor_seconds(program.process.pid) for program in [self.manager, self.round_trips, *company.programs])
        return machine_seconds() - own - running

    def phase(self, name, seconds, rate, programs):
        """Measures for so long; None where honest clients failed."""
        self.watch.take()
        pid = self.manager.process.pid
        with Company(programs) as company:
            began, used, spent = time.monotonic(), processor_seconds(pid), self._spent(company)
            try:
                sample = self.stream(seconds, rate)
            except (Failed, subprocess.TimeoutExpired) as error:
                sample = None
                self.failures.append(f"{name}: {error}")
            over = time.monotonic()
            busy = (processor_seconds(pid) - used) / (over - began)
            others = max(0, (self._spent(company) - spent) / (over - began))
            shares = company.shares()
        self.failures += [f"{name}: {why}" for why in company.failures]
        trips = [float(line.split()[1]) for line in list(self.round_trips.lines) if began <= float(line.split()[0]) <= over]
        came = [(took, why) for at, took, why in list(self.newcomers.came) if began <= at <= over]
        memory = self.watch.take()
        if self.manager.process.poll() is not None:
            raise Failed(f"{name}: the queue manager ended: {''.join(self.manager.log[-5:])}")
        if self.round_trips.process.poll() is not None:
            raise Failed(f"{name}: {self.round_trips.end()}")
        self.failures += [f"{name}: a newcomer: {why}" for _, why in came if why]
        slowest = max([took for took, _ in came], default=0)
        if slowest > NEWCOMER_WITHIN:
            self.failures.append(f"{name}: a newcomer was served after {slowest:.1f} s, not {NEWCOMER_WITHIN}")
        if memory > MEMORY_MIB + OVERHEAD_MIB:
            self.failures.append(f"{name}: {memory:.0f} MiB are more than {MEMORY_MIB + OVERHEAD_MIB}")
        if sample is None:
            return None
        late = sorted(trips)[int(len(trips) * 0.99)] * 1000 if trips else 0
        had = Measured(sample["rate"], sample["latency_us"]["p99"], len(trips) / (over - began), late, len(came), slowest, memory, busy, others)
        had.shares, had.tallies = shares, company.tallies()
        said = f"{had.rate:>9,.0f}/s  p99 {had.late_us / 1000:>7.1f} ms  {had.round_trips:>5.1f} round trips/s  new within {slowest:.2f} s"
        said += f"  {memory:>4.0f} MiB  cores: {sum(shares.values()):.2f} beside, queue manager {busy:.2f}, others {others:.2f}"
        print(f"{name:<32} {said}", flush=True)
        return had

    def end(self):
        """All that was put is there, everything hostile is gone, and the queue manager stops."""
        self.newcomers.stop()
        if why := self.round_trips.end():
            self.failures.append(why)
        for queue in ("HONEST.1", "HONEST.2", "HONEST.ASKED", "HONEST.ANSWERS"):
            if depth := self.manager.depth(queue):
                self.failures.append(f"{depth} messages are left on {queue}")
        expected = [str(number) for number, (_, _, why) in enumerate(self.newcomers.came) if why is None]
        with self.manager.connect("honest") as client:
            got = client.get_all("HONEST.KEPT", credit=len(self.newcomers.came) + 1)
        bodies = [bytes(message.body).decode() for message in got]
        if [body for body in bodies if body in set(expected)] != expected:
            self.failures.append(f"{len(expected)} were told that their message is kept, and {len(bodies)} messages are there, or in another order")
        try:
            wait_until(lambda: "nothing found" in self.manager.mqsc("DISPLAY LIMITSTATUS('*')", code=None), "they are gone")
        except AssertionError as error:
            self.failures.append(f"of the attackers something is left: {error}")
        if "panicked" in "".join(self.manager.log):
            self.failures.append("the log says panicked")
        if self.manager.stop() != 0:
            self.failures.append("the queue manager did not stop cleanly")


class RightsBench(Bench):
    """The same for users with one right each: their users, queues and keys are there."""

    def _fill(self):
        rights.prepare(self.manager)
        self.insiders = {loop.name: rights.insider(self.manager, loop.user) for loop in rights.LOOPS}

    def attackers(self, kinds):
        def where(kind):
            known = asdict(self.insiders[kind])
            return json.dumps({name: value for name, value in known.items() if name not in ("tally", "reasons")})

        return {kind: [HERE / "rights.py", kind, where(kind)] for kind in kinds}


class Failed(Exception):
    """An honest client was not served, or the queue manager is gone."""


def spread(seconds):
    """What one attack has of so many seconds in all."""
    kinds = len(attacks.ATTACKS)
    phases, units = 2 * kinds + 5, 2 * kinds * ONE + ALL + ALL_CONTROL + 3 * ONE
    return max(2, int((seconds - phases * AROUND) / units))


def attacked(bench, seconds, args):
    """Every phase; the rows of the table."""
    rows = []
    reached = bench.phase("no attack, as fast as it goes", seconds, "max", {})
    if reached is None:
        return rows, None
    rate = args.rate or str(int(reached.rate * SHARE_ASKED))
    rows.append((f"no attack, at {rate} a second", bench.phase("no attack", seconds, rate, {}), None))
    kinds = [attack.__name__ for attack in attacks.ATTACKS]
    strikes = [(kind, [kind], ONE, ONE) for kind in kinds] + [(AT_ONCE, kinds, ALL, ALL_CONTROL)]
    if args.only:
        strikes = [strike for strike in strikes if strike[0] in args.only.split(",")]
    for name, kinds, times, control_times in strikes:
        name = name.replace("_", " ")
        attack = bench.phase(name, seconds * times, rate, bench.attackers(kinds))
        if attack is None:
            continue
        burners = {kind: [HERE / "burn.py", share] for kind, share in attack.shares.items()}
        control = bench.phase("  its control", seconds * control_times, rate, burners)
        if control is None:
            continue
        rows.append((name, attack, control))
        if rate == "max":
            continue
        for what, had, left in [("streams", attack.rate, control.rate), ("round trips", attack.round_trips, control.round_trips)]:
            if had < SHARE_KEPT * left:
                bench.failures.append(f"{name}: the {what} kept {had / left:.0%} of what programs that do nothing left")
    rows.append(("no attack, afterwards", bench.phase("no attack, afterwards", seconds, rate, {}), None))
    return [row for row in rows if row[1]], rate


def page(rows, rate, seconds):
    """The table, and how much there was of each attack."""
    lines = [
        "| attack | messages/s | in the control | kept | of the rate alone | p99, ms | in the control | round trips/s | in the control "
        "| slowest newcomer, s | memory at most, MiB | cores: attackers | control | queue manager | others | verdict |",
        "| --- " * 16 + "|",
    ]
    alone = rows[0][1]
    for name, had, control in rows:
        left = control or had
        kept = min(had.rate / left.rate, had.round_trips / left.round_trips if left.round_trips else 1)
        verdict = "" if control is None else ("held" if kept >= SHARE_KEPT else "MISSED")
        cells = [name, f"{had.rate:,.0f}", f"{control.rate:,.0f}" if control else "", f"{had.rate / left.rate:.0%}" if control else ""]
        cells += [f"{had.rate / alone.rate:.0%}", f"{had.late_us / 1000:.1f}", f"{control.late_us / 1000:.1f}" if control else ""]
        cells += [f"{had.round_trips:.1f}", f"{control.round_trips:.1f}" if control else "", f"{had.newcomer_slowest:.2f}", f"{had.memory:.0f}"]
        cells += [f"{sum(had.shares.values()):.2f}", f"{sum(control.shares.values()):.2f}" if control else "", f"{had.queue_manager:.2f}", f"{had.others:.2f}", verdict]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| attack, by itself | connections/s | MB/s sent | MB/s heard | cores |", "| --- " * 5 + "|"]
    for name, had, control in rows:
        if control and len(had.tallies) == 1:
            ((kind, tally),) = had.tallies.items()
            lasted = seconds + WARM_UP
            sent, heard = tally["bytes_sent"] / lasted / 1e6, tally["bytes_heard"] / lasted / 1e6
            lines.append(f"| {name} | {tally['connections'] / lasted:,.0f} | {sent:,.1f} | {heard:,.1f} | {had.shares[kind]:.2f} |")
    asked = f"Asked for: {rate} messages a second of both streams; {seconds} s an attack and a control, all at once {seconds * ALL} s and {seconds * ALL_CONTROL} s."
    return "\n".join([asked, "", *lines, ""])


def right_after_right(bench, seconds, args):
    """Each loop and its control, and once more where it missed; the rows of the table."""
    rows = []
    reached = bench.phase("no attack, as fast as it goes", seconds, "max", {})
    if reached is None:
        return rows, None
    rate = args.rate or str(int(reached.rate * SHARE_ASKED))
    wanted = args.only.split(",") if args.only else [loop.name for loop in rights.LOOPS]
    for loop in rights.LOOPS:
        if loop.name not in wanted and loop.right not in wanted:
            continue
        missed = []
        for _ in range(TRIES):
            name = f"{loop.right} {loop.name.replace('_', ' ')}"
            attack = bench.phase(name, seconds, rate, bench.attackers([loop.name]))
            share = attack.shares[loop.name] if attack else 0
            control = bench.phase("  its control", seconds, rate, {"burn": [HERE / "burn.py", share]})
            if not attack or not control:
                break
            kept = {
                "streams": attack.rate / control.rate,
                "round trips": attack.round_trips / control.round_trips if control.round_trips else 1,
            }
            rows.append((loop, attack, control, kept))
            missed = [f"{name}: the {what} kept {part:.0%}" for what, part in kept.items() if part < SHARE_KEPT]
            if not missed:
                break
        bench.failures += missed
    return rows, rate


def rights_page(rows, rate, seconds):
    """The table of the loops."""
    measured = ["in the control", "kept", "p99, ms", "in the control"]
    heads = ["right", "loop", "messages/s", *measured, "round trips/s", *measured]
    heads += ["slowest newcomer, s", "cores: attacker", "queue manager", "in the control", "verdict"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for loop, had, control, kept in rows:
        verdict = "held" if min(kept.values()) >= SHARE_KEPT else "MISSED"
        cells = [loop.right, loop.name.replace("_", " ")]
        cells += [f"{had.rate:,.0f}", f"{control.rate:,.0f}", f"{kept['streams']:.0%}"]
        cells += [f"{one.late_us / 1000:.1f}" for one in (had, control)]
        cells += [f"{had.round_trips:.1f}", f"{control.round_trips:.1f}", f"{kept['round trips']:.0%}"]
        cells += [f"{one.round_trip_late_ms:.0f}" for one in (had, control)]
        cells += [f"{had.newcomer_slowest:.2f}", f"{sum(had.shares.values()):.2f}"]
        cells += [f"{one.queue_manager:.2f}" for one in (had, control)] + [verdict]
        lines.append("| " + " | ".join(cells) + " |")
    asked = f"Asked for: {rate} messages a second of both streams; {seconds} s a loop and a control."
    asked += " What missed was measured again."
    return "\n".join([asked, "", *lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of all phases together")
    parser.add_argument("--rate", help="messages a second of both streams; max for as fast as it goes, where only round trips and newcomers are judged")
    parser.add_argument("--only", help=f"attacks, comma separated, {AT_ONCE} among them, each with the time that it would have among all")
    parser.add_argument("--unlimited", action="store_true", help="without SET LIMIT for unauthenticated clients")
    insiders = "users who have signed in, with one right each, in the place of clients that have not"
    parser.add_argument("--rights", action="store_true", help=insiders)
    of_a_loop = f"of a loop of --rights, and of its control; without it {RIGHTS_SECONDS}"
    parser.add_argument("--loop-seconds", type=float, default=RIGHTS_SECONDS, help=of_a_loop)
    parser.add_argument("--out", type=Path, help="where the table goes, too")
    args = parser.parse_args()
    seconds = args.loop_seconds if args.rights else spread(args.seconds)
    with tempfile.TemporaryDirectory() as folder:
        bench = (RightsBench if args.rights else Bench)(Path(folder), args)
        try:
            rows, rate = (right_after_right if args.rights else attacked)(bench, seconds, args)
            bench.end()
        except Failed as error:
            rows, rate = [], None
            bench.failures.append(str(error))
        finally:
            if bench.manager.process.poll() is None:
                bench.manager.kill()
    if rows:
        table = (rights_page if args.rights else page)(rows, rate, seconds)
        print("\n" + table)
        if args.out:
            args.out.write_text(table)
    for failure in bench.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
