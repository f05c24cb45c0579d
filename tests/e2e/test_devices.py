"""Crypto devices under load: whatever becomes of them, every message arrives once, none is taken for defective, and the
meters count what was done."""

import itertools
import threading
from pathlib import Path

import pytest
from proton import Message

from manager import ERROR_QUEUE, shown_rows, wait_until
from people import People
from proton_driver import Refused
from sites import CONFIDENTIALITY, INTEGRITY, PAYLOAD, PRIVACY, QUALITIES, Site, clear

# How many messages each step of the life of a device must let through before the next one comes.
MESSAGES_A_STEP = 40
# How long the accelerator must have computed before its meter is compared with its thread's clock, nanoseconds.
COMPUTED_NS = 1_200_000_000
# By how much they may differ, parts of one.
DIFFERENCE_MAX = 0.02
PRIVACY_ELLIPTIC = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{elliptic}') RECIP('{curved}')"


@pytest.fixture(scope="module")
def site(qm, people):
    people.add("elliptic", "p256")
    people.add("curved", "p256")
    site = Site(qm, people)
    yield site
    for client in site.clients.values():
        client.close()


def meters(qm):
    """What every device has done, by device and operation."""
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY DEVSTATUS(*) ALL")
    rows = [row for row in shown_rows(done.stdout) if "OPERATION" in row]
    return {(row["DEVICE"], row["OPERATION"], row["BITS"]): row for row in rows}


def jobs(before, after, operation, bits=2048):
    """How many of these all devices together have done meanwhile."""
    count = lambda rows: sum(row["JOBS"] for key, row in rows.items() if key[1:] == (operation, bits))
    return count(after) - count(before)


def device(qm, name):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY DEVICE({name}) ALL")
    return shown_rows(done.stdout)[0]


def state(qm, name):
    return device(qm, name)["STATUS"]


@pytest.mark.parametrize(
    ("policy", "operations"),
    [
        (INTEGRITY, {"RSA-SIGN": 1, "RSA-VERIFY": 1, "RSA-WRAP": 0, "RSA-UNWRAP": 0}),
        (PRIVACY, {"RSA-SIGN": 1, "RSA-VERIFY": 1, "RSA-WRAP": 1, "RSA-UNWRAP": 1}),
        (CONFIDENTIALITY + " KEYREUSE(0)", {"RSA-SIGN": 0, "RSA-VERIFY": 0, "RSA-WRAP": 1, "RSA-UNWRAP": 1}),
    ],
)
def test_the_meters_count_each_operation_once(site, policy, operations):
    count = 60
    queue = site.queue(policy)
    before = meters(site.qm)
    sender = site.orders.sender(queue)
    for _ in range(count):
        site.orders.put(queue, clear(), sender)
    assert len(site.billing.get_all(queue)) == count
    after = meters(site.qm)
    assert {name: jobs(before, after, name) for name in operations} == {
        name: each * count for name, each in operations.items()
    }


class Stream:
    """Numbered messages through a protected queue, until it is told to stop."""

    def __init__(self, site, queue, putter="orders", getter="billing"):
        self.qm, self.queue = site.qm, queue
        self.got, self.put = [], 0
        self.stopping = threading.Event()
        self.failed = []
        self.threads = [
            threading.Thread(target=self._run, args=(step, user))
            for step, user in ((self._putter, putter), (self._getter, getter))
        ]
        for thread in self.threads:
            thread.start()

    def _run(self, step, user):
        try:
            with self.qm.connect(user, timeout=60) as client:
                step(client)
        except Exception as error:  # noqa: BLE001 - it is shown by the test's own thread
            self.failed.append(error)

    def _putter(self, client):
        sender = client.sender(self.queue)
        for number in itertools.count():
            if self.stopping.is_set():
                return
            client.put(self.queue, Message(id=number, body=PAYLOAD, inferred=True, durable=True), sender)
            self.put = number + 1

    def _getter(self, client):
        receiver = client.receiver(self.queue, credit=50)
        while not (self.stopping.is_set() and len(self.got) >= self.put and not self.threads[0].is_alive()):
            for message in receiver.drain(50):
                self.got.append(message.id)

    def goes_on(self, what):
        """Waits until so many more messages are through."""
        goal = len(self.got) + MESSAGES_A_STEP
        wait_until(lambda: self.failed or len(self.got) >= goal, f"messages go on after: {what}", 60)
        assert not self.failed, f"{what}: {self.failed}"

    def end(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(90)
        assert not self.failed, self.failed
        assert self.got == list(range(self.put)), "each message once, in its order"
        assert self.qm.depth(self.queue) == 0
        assert self.qm.depth(ERROR_QUEUE) == 0, "nothing was taken for defective"


def thread_cpu_ns(qm, name):
    """The processor time of all threads whose names begin so, as the kernel has counted it."""
    tasks = Path(f"/proc/{qm.process.pid}/task").iterdir()
    threads = [task for task in tasks if (task / "comm").read_text().startswith(name)]
    assert threads, f"no thread is named {name}"
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def test_the_accelerator_says_how_long_it_was_busy_and_its_threads_clock_says_the_same(site):
    qm = site.qm
    said = device(qm, "ACCEL1")
    if said["STATUS"] != "RUNNING":
        pytest.skip(f"skipped: the accelerator's utilisation: ACCEL1 is {said['STATUS']}: {said['REASON']}")
    # Now all keys are the accelerator's, public ones too.
    qm.mqsc("STOP DEVICE(CPU)")
    clock = lambda: thread_cpu_ns(qm, "device-ACCEL1")
    rows = lambda: [row for (name, *_), row in meters(qm).items() if name == "ACCEL1"]
    busy = lambda: sum(row["BUSYTIME"] for row in rows())
    # Two operations of one shape are two rows that show the same calls.
    filled = lambda: {(row["FORM"], row["BITS"]): (row["CALLS"], row["LANES"]) for row in rows()}
    began, busy_before, filled_before = clock(), busy(), filled()
    streams = [Stream(site, site.queue(INTEGRITY)) for _ in range(3)]
    streams += [Stream(site, site.queue(PRIVACY_ELLIPTIC), "elliptic", "curved") for _ in range(3)]
    computed = lambda: any(stream.failed for stream in streams) or clock() - began > COMPUTED_NS
    wait_until(computed, "the accelerator has computed enough to tell", 120)
    for stream in streams:
        stream.end()
    cpu_ns, busy_ns = clock() - began, busy() - busy_before
    print(f"processor time of its thread {cpu_ns / 1e9:.3f} s, busy {busy_ns / 1e9:.3f} s")
    assert cpu_ns > COMPUTED_NS and abs(cpu_ns - busy_ns) <= DIFFERENCE_MAX * cpu_ns
    calls, lanes = (
        {shape: now[at] - filled_before.get(shape, (0, 0))[at] for shape, now in filled().items()} for at in (0, 1)
    )
    print({shape: (calls[shape], lanes[shape]) for shape in calls})
    assert {("RSA CRT", 2048), ("ECDSA SIGN", 256), ("ECDH", 256)} <= {shape for shape in calls if calls[shape]}
    assert sum(lanes.values()) > sum(calls.values()), "there were batches"
    qm.mqsc("START DEVICE(CPU)")


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY])
def test_devices_come_and_go_under_load(site, policy):
    qm = site.qm
    stream = Stream(site, site.queue(policy))
    steps = [
        "DEFINE DEVICE(CARD1) TYPE(MODELLED) PROFILE(COPROCESSOR)",
        "DEFINE DEVICE(CARD2) TYPE(MODELLED) PROFILE(ACCELERATOR) ENGINES(2) SERVICE('RSA-CRT-2048=900')",
        "START DEVICE(CARD1)",
        "STOP DEVICE(CPU)",
        "START DEVICE(CARD2)",
        "STOP DEVICE(CARD1)",
        "STOP DEVICE(CARD2)\nALTER DEVICE(CARD2) SERVICE('RSA-CRT-2048=5000')\nSTART DEVICE(CARD2)",
        "START DEVICE(CARD1)",
        "STOP DEVICE(CARD2)\nDELETE DEVICE(CARD2)",
        "START DEVICE(CPU)",
        "STOP DEVICE(CARD1)\nDELETE DEVICE(CARD1)",
        "STOP DEVICE(ACCEL1)",
        "START DEVICE(ACCEL1)",
    ]
    stream.goes_on("the start")
    for step in steps:
        qm.mqsc(step)
        stream.goes_on(step)
    stream.end()


def test_without_a_device_for_its_key_a_message_waits_and_is_not_lost(site):
    qm = site.qm
    queue = site.queue(INTEGRITY)
    qm.mqsc("DEFINE DEVICE(SLOW) TYPE(MODELLED) PROFILE(COPROCESSOR)\nSTOP DEVICE(CPU)\nSTOP DEVICE(ACCEL1)")
    stream = Stream(site, queue)
    # Nothing can sign now: the put waits for a device.
    wait_until(lambda: stream.threads[0].is_alive() and stream.put == 0, "the put waits")
    qm.mqsc("START DEVICE(SLOW)")
    stream.goes_on("START DEVICE(SLOW)")
    qm.mqsc("START DEVICE(CPU)\nSTART DEVICE(ACCEL1)\nSTOP DEVICE(SLOW)\nDELETE DEVICE(SLOW)")
    stream.goes_on("START DEVICE(CPU)")
    stream.end()


def test_what_a_device_may_do_holds_at_once(site):
    queue = site.queue(INTEGRITY)
    site.orders.put(queue, clear())
    checks = "OPERATIONS(VERIFY, WRAP, UNWRAP)"
    site.qm.mqsc(f"ALTER DEVICE(CPU) {checks}\nALTER DEVICE(ACCEL1) {checks}")
    try:
        with pytest.raises(Refused, match="no device may do RSA-SIGN"):
            site.orders.put(queue, clear())
    finally:
        site.qm.mqsc("ALTER DEVICE(CPU) OPERATIONS(ALL)\nALTER DEVICE(ACCEL1) OPERATIONS(ALL)")
    site.orders.put(queue, clear())
    assert len(site.raw(queue)) == 2


def test_modelled_devices_say_that_they_are(site):
    qm = site.qm
    qm.mqsc("DEFINE DEVICE(PAPER) TYPE(MODELLED) PROFILE(COPROCESSOR)\nSTART DEVICE(PAPER)\nSTOP DEVICE(CPU)\nSTOP DEVICE(ACCEL1)")
    queue = site.queue(INTEGRITY)
    before = meters(qm)
    site.orders.put(queue, clear())
    after = meters(qm)
    assert jobs(before, after, "RSA-SIGN") == 1
    row = after["PAPER", "RSA-SIGN", 2048]
    assert row["BUSYTIME"] == 596_000, "what the profile says, to the nanosecond"
    site.billing.get(queue)
    report = qm.run("report", "crypto", "--data", qm.data, "--since-start").stdout.decode()
    assert "modelled" in report.lower() and "PAPER" in report
    qm.mqsc("START DEVICE(CPU)\nSTART DEVICE(ACCEL1)\nSTOP DEVICE(PAPER)\nDELETE DEVICE(PAPER)")


def test_with_software_the_processor_has_no_instructions_for_cryptography(managers):
    qm = managers("software", options=["--allow-dumps"])  # its environment is looked at
    assert "next start" in qm.mqsc("ALTER DEVICE(CPU) TYPE(SOFTWARE)")
    assert qm.stop() == 0
    qm.start()
    with open(f"/proc/{qm.process.pid}/environ", "rb") as variables:
        assert b"OPENSSL_ia32cap=~0x200000200000000" in variables.read()
    assert state(qm, "CPU") == "RUNNING"
    qm.mqsc("ALTER DEVICE(CPU) TYPE(CPU)")
    assert qm.stop() == 0
    qm.start()
    with open(f"/proc/{qm.process.pid}/environ", "rb") as variables:
        assert b"OPENSSL_ia32cap" not in variables.read()
    assert qm.stop() == 0


def test_without_the_library_of_lanes_the_accelerator_says_so_and_the_processor_does_its_work(managers, authority):
    qm = managers("without-lanes", options=["--lanes", "/nonexistent/libbulla_lanes.so"])
    wait_until(lambda: state(qm, "ACCEL1") == "OFFLINE", "the accelerator is offline")
    has_lanes = "avx512ifma" in Path("/proc/cpuinfo").read_text()
    missing = "/nonexistent/libbulla_lanes.so" if has_lanes else "AVX-512 IFMA"
    assert missing in device(qm, "ACCEL1")["REASON"]
    people = People(qm, authority)
    for name in ("orders", "billing"):
        people.add(name)
    site = Site(qm, people)
    for policy in QUALITIES.values():
        queue = site.queue(policy)
        site.orders.put(queue, clear())
        assert bytes(site.billing.get(queue).body) == PAYLOAD
    assert {name for (name, *_), row in meters(qm).items() if row["JOBS"]} == {"CPU"}
    for client in site.clients.values():
        client.close()
    assert state(qm, "ACCEL1") == "OFFLINE"
    assert qm.stop() == 0
