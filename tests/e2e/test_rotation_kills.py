"""`kill -9` at every recorded step of a change of a key, under traffic: nothing is lost, nothing is stranded, each change ends.

`make rotation-kills` does it two hundred times."""

import collections
import ctypes
import itertools
import json
import os
import random
import select
import struct
import subprocess
import threading
import time

import pytest
from proton import Delivery, Link
from proton.reactor import ReceiverOption

from manager import BULLA, DEADLINE, ERROR_QUEUE, run, wait_until
from proton_driver import Refused
from sites import CONFIDENTIALITY, PRIVACY, Site, clear
from test_key_rotation import Users, bodies, changes, has_ended, key, own, retired, told

SEED = int(os.environ.get("BULLA_ROTATION_SEED", random.SystemRandom().randrange(1 << 32)))
COMMAND, MANAGER, BOTH = "command", "queue manager", "both"
# What is killed, and the last step in the record then.
MOMENTS = [
    *itertools.product((COMMAND, MANAGER, BOTH), ("begun", "keyed", "installed", "shared")),
    (MANAGER, "withdrawn"),
    (MANAGER, "retired"),
    (COMMAND, "cancelled"),
    (MANAGER, "cancelled"),
]
KILLS = int(os.environ.get("BULLA_ROTATION_KILLS", len(MOMENTS)))
# Until a kill lands where it was aimed at.
TRIES_MAX = 60
# Changes that wait for their last message, before messages are got for them; a user may have 16.
CHANGES_MAX = 8
IN_MOVED_TO = 0x80
EVENT_HEAD = struct.Struct("iIII")


class Records:
    """The records of changes of keys, and when one of them is replaced: inotify(7)."""

    def __init__(self, folder):
        self.folder = folder
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert self.fd >= 0 and self.libc.inotify_add_watch(self.fd, os.fsencode(folder), IN_MOVED_TO) >= 0

    def close(self):
        os.close(self.fd)

    def step(self, name):
        """The last step of a record; none where the record is gone."""
        try:
            return json.loads((self.folder / name).read_bytes())["steps"][-1]["step"]
        except FileNotFoundError:
            return None

    def forget(self):
        while self._names(0):
            pass

    def wait_for(self, step, deadline=DEADLINE):
        """The name of the next record that is replaced by one with that step, a moment ago; none where none comes."""
        until = time.monotonic() + deadline
        while (left := until - time.monotonic()) > 0:
            for name in self._names(left):
                if name.endswith(".json") and self.step(name) == step:
                    return name
        return None

    def _names(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return []
        data, names, at = os.read(self.fd, 1 << 16), [], 0
        while at < len(data):
            length = EVENT_HEAD.unpack_from(data, at)[3]
            at += EVENT_HEAD.size
            names.append(os.fsdecode(data[at : at + length].rstrip(b"\0")))
            at += length
        return names


class SettleSecond(ReceiverOption):
    """The queue manager settles: only then is a removal confirmed."""

    def apply(self, receiver):
        receiver.rcv_settle_mode = Link.RCV_SECOND


class Life:
    """The queue manager's processes, one after the other."""

    def __init__(self, qm):
        self.qm, self.count, self.runs = qm, 0, threading.Event()
        self.runs.set()

    def end(self):
        self.runs.clear()
        self.count += 1
        self.qm.process.kill()

    def begin(self):
        self.qm.kill()
        self.qm.start()
        self.runs.set()


class Traffic:
    """Puts and gets, over the deaths of the queue manager, and knows what was confirmed."""

    def __init__(self, life, queue):
        self.life, self.queue = life, queue
        self.tried, self.put, self.seen, self.gone, self.failed = 0, set(), [], set(), []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._put, self._get)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def _run(self, work):
        while not self.ends.is_set():
            self.life.runs.wait(DEADLINE)
            count = self.life.count
            try:
                work()
            except Exception as error:  # shown by the test, whose thread this is not
                if self.life.count == count or isinstance(error, Refused) and error.condition != "connection":
                    self.failed.append(repr(error))
                    return

    def _put(self):
        with self.life.qm.connect("orders") as client:
            sender = client.sender(self.queue)
            while not self.ends.is_set():
                number = self.tried
                self.tried += 1
                client.put(self.queue, clear(b"%d" % number), sender=sender)
                self.put.add(number)

    def _get(self):
        with self.life.qm.connect("billing") as client:
            receiver = client.receiver(self.queue, credit=20, options=[SettleSecond()])
            while not self.ends.is_set():
                message = receiver.next(0.2, accept=False)
                if message is None:
                    continue
                number = int(bytes(message.body))
                if number in self.gone:
                    self.failed.append(f"{number} came again after its removal was confirmed")
                self.seen.append(number)
                message.delivery.update(Delivery.ACCEPTED)
                client.connection.wait(lambda: message.delivery.settled, timeout=DEADLINE, msg="confirming a removal")
                self.gone.add(number)
                message.delivery.settle()
                receiver.flow(1)

    def check(self, left):
        """What was confirmed has come, nothing else has, and in its order; `left` is what was still there."""
        assert not self.failed, self.failed
        first = list(dict.fromkeys(self.seen + left))
        assert self.put <= set(first) <= set(range(self.tried)), sorted(self.put - set(first))
        assert first == sorted(first), "the order changed"
        assert not self.gone & set(left)


class Kills:
    """Changes of keys, each ended in its midst."""

    def __init__(self, site, chance):
        self.site, self.chance = site, chance
        self.life = Life(site.qm)
        (site.qm.data / "rotations").mkdir(mode=0o700, exist_ok=True)
        self.records = Records(site.qm.data / "rotations")
        self.lies = site.queue(PRIVACY)
        self.lying, self.landed, self.begun = [], collections.Counter(), 0

    def hit(self, whom, step):
        """Until that is killed at that step."""
        for _ in range(TRIES_MAX):
            self.put_one()
            if self.one(whom, step) == step:
                return
        raise AssertionError(f"{whom} was never killed at {step}: {self.landed}")

    def one(self, whom, step):
        """Kills once, and goes on. Returns the step at which it was; none where it came too late."""
        user = self.chance.choice(["billing", "orders"])
        waiting = changes(self.site)
        if len(waiting) > CHANGES_MAX or step == "retired":
            self.get_lying()
        if len(waiting) > CHANGES_MAX:
            wait_until(lambda: len(changes(self.site)) < 2, "changes end once nothing needs the old keys")
        words = ["rotate", user, "--overlap", "0s"]
        if step == "cancelled":
            request = self.site.qm.data / f"request-{sum(self.landed.values())}-{self.begun}.pem"
            key(self.site, *words, "--request", request)
            words = ["rotate", user, "--cancel"]
        self.begun += 1
        self.records.forget()
        process = subprocess.Popen(
            [BULLA, "key", *words, "--data", self.site.qm.data], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        name = self.records.wait_for(step)
        # At once, in the same step mostly; or somewhat later, wherever that is.
        pause = self.chance.choice([0, 0, 0.002, 0.02]) * self.chance.random()
        if pause:
            time.sleep(pause)
        if whom in (COMMAND, BOTH):
            process.kill()
        if whom in (MANAGER, BOTH):
            self.life.end()
        at = self.records.step(name) if name else None
        if whom in (MANAGER, BOTH):
            self.life.begin()
        code = process.wait(DEADLINE)
        was_there = whom == MANAGER or code == -9
        if was_there and at:
            self.landed[whom, at] += 1
        # The same command is given again.
        if any(row["STEP"] in ("BEGUN", "KEYED", "INSTALLED") for row in changes(self.site, user)):
            again = ("--cancel",) if step == "cancelled" else ()
            key(self.site, "rotate", user, *again)
        return at if was_there else None

    def put_one(self):
        """A message that is got much later, if at all before the end."""
        body = b"lies %d" % len(self.lying)
        with self.site.qm.connect("orders") as client:
            client.put(self.lies, clear(body))
        self.lying.append(body)

    def get_lying(self):
        with self.site.qm.connect("billing") as client:
            got = bodies(client.get_all(self.lies, credit=10_000))
        assert got == self.lying
        self.lying.clear()

    def shown(self):
        kills = sum(self.landed.values())
        lines = [f"{kills} kills, {self.begun} changes, {self.life.count} starts of the queue manager"]
        lines += [f"{whom:13} {step:10} {self.landed[whom, step]:4}" for whom, step in sorted(self.landed)]
        return "\n".join(lines)


@pytest.fixture(scope="module")
def site(managers):
    qm = managers(name="ROTATES")
    return Site(qm, Users(qm, "orders", "billing"))


def test_killed_at_every_step_nothing_is_lost_or_stranded_and_each_change_ends(site):
    print(f"BULLA_ROTATION_SEED={SEED}")
    chance = random.Random(SEED)
    kills = Kills(site, chance)
    queues = [site.queue(PRIVACY), site.queue(CONFIDENTIALITY + " KEYREUSE(32)")]
    with Traffic(kills.life, queues[0]) as signed, Traffic(kills.life, queues[1]) as reused:
        while sum(kills.landed.values()) < KILLS:
            for whom, step in chance.sample(MOMENTS, len(MOMENTS)):
                if sum(kills.landed.values()) < KILLS or kills.landed[whom, step] == 0:
                    kills.hit(whom, step)
                assert not signed.failed + reused.failed, (signed.failed, reused.failed)
    print(kills.shown())
    kills.records.close()
    kills.get_lying()
    for traffic in (signed, reused):
        with site.qm.connect("billing") as client:
            left = [int(body) for body in bodies(client.get_all(traffic.queue, credit=10_000))]
        traffic.check(left)
        assert len(traffic.put) > KILLS
        print(f"{len(traffic.put)} messages confirmed, {len(traffic.seen) + len(left)} deliveries")
    assert site.qm.depth(ERROR_QUEUE) == 0
    has_ended(site)
    assert [len(own(site, user)) for user in ("billing", "orders")] == [1, 1]
    assert not list((site.qm.data / "rotations").iterdir())
    assert not any("can't be opened" in line for line in site.qm.log)
    # The audit log has each step of each change, at least once and in its order, and that nothing needed the old key.
    steps = collections.defaultdict(list)
    for entry in told(site):
        what = entry["what"]
        if what["step"] not in steps[what["key"]]:
            steps[what["key"]].append(what["step"])
        assert what.get("ended_messages") in (None, 0), entry
    ends = collections.Counter(list(dict.fromkeys(reversed(of)))[0] for of in steps.values())
    assert set(ends) == {"retired"} or set(ends) == {"retired", "cancelled"}, ends
    whole = ["begun", "keyed", "installed", "shared", "withdrawn", "retired"]
    for of in steps.values():
        assert [step for step in of if step != "cancelled"] in (whole, whole[:2]), of
    assert ends["retired"] == sum(len(retired(site, user)) for user in ("billing", "orders"))
    assert all(not list((site.qm.data / "rings" / user / "pending").iterdir()) for user in ("billing", "orders"))
    done = run("audit", "verify", "--data", site.qm.data)
    assert done.returncode == 0, done.stdout
    assert site.qm.stop() == 0
