"""Processor time by role: that it adds up to the process's own, and that nobody is charged for what it did not do."""

import json
import multiprocessing
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from proton import Message

from channels import Route
from manager import shown_rows, wait_until
from sites import INTEGRITY, PRIVACY, clear, peopled

# A load's messages come from so many clients at once.
CLIENTS = 4
CLEAR_MESSAGES = 3000
SEALED_MESSAGES = 400
TICK = 1 / os.sysconf("SC_CLK_TCK")
PROTECTION = ("protection", "devices")
# The clocks are read one after another: so much may be spent in between (seconds).
LOOK = 1e-4


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers(name="costly", options=["--metrics", "127.0.0.1:0"])
    yield from peopled(qm, authority, "orders", "billing")
    assert qm.stop() == 0


def costs(qm):
    """DISPLAY COSTSTATUS: seconds by role, and the process's row."""
    answer = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY COSTSTATUS(*) ALL").stdout
    rows = {row["COSTSTATUS"]: row for row in shown_rows(answer)}
    process = rows.pop("process")
    return {role: row["CPUTIME"] / 1e9 for role, row in rows.items()}, process


def of_the_system(qm):
    """User and system time of the process as the system counts it, in seconds: to a clock tick or two."""
    with open(f"/proc/{qm.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def threads(qm):
    """Seconds of each thread by the scheduler, which counts nanoseconds."""
    found = {}
    for task in os.listdir(f"/proc/{qm.process.pid}/task"):
        with open(f"/proc/{qm.process.pid}/task/{task}/schedstat") as file:
            found[task] = int(file.read().split()[0]) / 1e9
    return found


def waits(qm):
    """Seconds for which the threads that are there could have run and had no core, by the scheduler."""
    folder = f"/proc/{qm.process.pid}/task"
    return sum(int(open(f"{folder}/{task}/schedstat").read().split()[1]) / 1e9 for task in os.listdir(folder))


def total(found):
    """Of all threads together."""
    return sum(seconds for task, seconds in found.items() if task != "system")


class Spent:
    """What was spent between two looks."""

    def __init__(self, qm):
        self.qm = qm

    def __enter__(self):
        self.begin = self.look()
        return self

    def __exit__(self, *_):
        (before, roles, row, after), end = self.begin, self.look()
        assert end[0].keys() == after.keys(), "no thread comes or goes"
        # A look takes its time, in which the program goes on: what it counted lies between these.
        self.scheduler = total(end[0]) - total(after), total(end[3]) - total(before)
        self.system = end[0]["system"] - after["system"], end[3]["system"] - before["system"]
        self.process = (end[2]["CPUTIME"] - row["CPUTIME"]) / 1e9
        self.puts, self.gets = end[2]["PUTS"] - row["PUTS"], end[2]["GETS"] - row["GETS"]
        self.roles = {role: seconds - roles[role] for role, seconds in end[1].items()}
        self.unattributed = self.roles.pop("unattributed")
        self.sum = sum(self.roles.values())

    def look(self):
        """The system's counts, the roles and the process's row, and the system's counts again."""
        before = threads(self.qm) | {"system": of_the_system(self.qm)}
        roles, row = costs(self.qm)
        return before, roles, row, threads(self.qm) | {"system": of_the_system(self.qm)}

    def adds_up(self):
        """Roles against the process's clock, the scheduler's count and the system's."""
        assert self.sum == pytest.approx(self.process, rel=0.02, abs=LOOK), self.roles
        assert self.sum + self.unattributed == pytest.approx(self.process, abs=1e-6)
        least, most = self.scheduler
        assert 0.98 * least - 0.01 <= self.sum <= 1.02 * most + 0.01, (self.scheduler, self.roles)
        least, most = self.system
        assert 0.98 * least - 0.01 - 4 * TICK <= self.sum <= 1.02 * most + 0.01 + 4 * TICK, (self.system, self.roles)

    def of(self, *roles):
        return sum(self.roles[role] for role in roles)


def put_many(site, tmp_path, queue, count, *options):
    """Puts so many messages from each of some clients at once."""
    body = tmp_path / "m"
    body.write_bytes(b"two tons of barley; " * 100)
    sign_in = site.qm.cli("orders")
    with ThreadPoolExecutor(CLIENTS) as pool:
        put = lambda _: site.qm.run("put", queue, *[body] * count, "--no-persistent", *options, *sign_in)
        for _ in pool.map(put, range(CLIENTS)):
            pass


def get_many(site, queue, count, user="billing"):
    """Takes all of them off the queue."""
    site.qm.run("get", queue, "--count", count, "--wait", 30, *site.qm.cli(user))


def test_an_unprotected_load_is_the_queue_manager_s_and_adds_up(site, tmp_path):
    queue = site.queue(attributes="MAXDEPTH(100000)")
    # Passwords are checked and threads warmed up before.
    put_many(site, tmp_path, queue, 1)
    count = CLIENTS * CLEAR_MESSAGES
    with Spent(site.qm) as spent:
        put_many(site, tmp_path, queue, CLEAR_MESSAGES)
        get_many(site, queue, count)
    spent.adds_up()
    assert spent.puts == count and spent.gets == count
    assert spent.of("queue-manager") > 0.9 * spent.process, spent.roles
    assert spent.of(*PROTECTION) < 0.02 * spent.process, spent.roles
    assert spent.of("tls", "channel-initiator") < 0.01 * spent.process, spent.roles


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY], ids=["integrity", "privacy"])
def test_a_protected_load_is_protection_s_and_the_devices_and_adds_up(site, tmp_path, policy):
    queue = site.queue(policy)
    put_many(site, tmp_path, queue, 1)
    count = CLIENTS * SEALED_MESSAGES
    with Spent(site.qm) as spent:
        put_many(site, tmp_path, queue, SEALED_MESSAGES)
        get_many(site, queue, count)
    spent.adds_up()
    assert spent.puts == count and spent.gets == count
    # RSA 2048 is most of what such a message costs.
    assert spent.of(*PROTECTION) > 0.5 * spent.process, spent.roles
    assert spent.of("devices") > spent.of("protection") > 0, spent.roles


def test_what_is_sealed_on_the_dispatcher_is_protection_s(site, tmp_path):
    queue = site.queue("ENCALG(AES256) RECIP('{billing}') KEYREUSE(UNLIMITED)", "MAXDEPTH(100000)")
    put_many(site, tmp_path, queue, 1)
    with Spent(site.qm) as spent:
        put_many(site, tmp_path, queue, CLEAR_MESSAGES)
    spent.adds_up()
    assert 0.02 * spent.process < spent.of("protection") < 0.9 * spent.process, spent.roles


def test_persistent_messages_cost_the_journal(site, tmp_path):
    queue = site.queue(attributes="MAXDEPTH(100000)")
    body = tmp_path / "m"
    body.write_bytes(b"two tons of barley; " * 100)
    with Spent(site.qm) as spent:
        site.qm.run("put", queue, *[body] * 2000, "--persistent", *site.qm.cli("orders"))
    spent.adds_up()
    assert 0.02 * spent.process < spent.of("journal") < 0.95 * spent.process, spent.roles


def test_tls_is_openssl_s_work_and_adds_up(site):
    queue = site.queue()
    # Users sign in over TLS.
    sender = site.orders.sender(queue)
    with Spent(site.qm) as spent:
        for _ in range(40):
            site.orders.put(queue, clear(bytes(1 << 20)), sender)
            site.orders.get(queue)
    spent.adds_up()
    assert spent.of("tls") > 0.05 * spent.process, spent.roles
    assert spent.of(*PROTECTION) < 0.02 * spent.process + 0.002, spent.roles


def test_what_a_channel_does_is_the_channel_initiator_s_at_both_ends(managers, tmp_path):
    near, far = (managers(name=name, folder=name) for name in ("QM1", "QM2"))
    route = Route(near, far, start=False)
    body = tmp_path / "m"
    body.write_bytes(b"two tons of barley; " * 100)

    def put(count):
        with ThreadPoolExecutor(CLIENTS) as pool:
            to = ["--no-persistent", "--amqp", near.clear_address]
            list(pool.map(lambda _: near.run("put", route.remote, *[body] * count, *to), range(CLIENTS)))

    put(1)
    route.start()
    route.wait_for_arrival(CLIENTS)
    route.stop()
    route.wait_for_status("STOPPED")
    with Spent(near) as spent:
        put(CLEAR_MESSAGES)
    spent.adds_up()
    assert spent.of("channel-initiator") < 0.05 * spent.process + 0.002, "until the channel runs, it is the queue manager's"
    with Spent(near) as at_near, Spent(far) as at_far:
        route.start()
        route.wait_for_arrival(CLIENTS + CLIENTS * CLEAR_MESSAGES)
        route.wait_until_sent()
    for spent in (at_near, at_far):
        spent.adds_up()
        # An accelerator may still test itself: that is nobody's message.
        messages = spent.process - spent.of("devices", "administration")
        # Waking up and going to sleep are the queue manager's.
        assert spent.of("channel-initiator") > 0.25 * messages, spent.roles
        assert spent.of("channel-initiator", "queue-manager", "journal") > 0.8 * messages, spent.roles
    assert at_near.gets == at_far.puts == CLIENTS * CLEAR_MESSAGES
    route.proxy.close()
    route.stop("FORCE")
    for manager in (near, far):
        assert manager.stop() == 0


def elapsed(seconds):
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, f"{seconds} s have passed")


def test_a_process_that_is_stopped_or_has_nothing_to_do_charges_nobody(site):
    with Spent(site.qm) as idle:
        elapsed(1.5)
    # What is charged is what the scheduler counted at the same moments: nobody has the time that went by.
    idle.adds_up()
    with Spent(site.qm) as stopped:
        os.kill(site.qm.process.pid, signal.SIGSTOP)
        try:
            elapsed(1.5)
        finally:
            os.kill(site.qm.process.pid, signal.SIGCONT)
    stopped.adds_up()


def burn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_what_others_take_of_the_cores_is_charged_to_nobody(site, tmp_path):
    queue = site.queue(attributes="MAXDEPTH(100000)")
    put_many(site, tmp_path, queue, 1)

    def measured():
        with Spent(site.qm) as spent:
            put_many(site, tmp_path, queue, CLEAR_MESSAGES)
            get_many(site, queue, CLIENTS * CLEAR_MESSAGES)
        spent.adds_up()
        return spent

    get_many(site, queue, CLIENTS)
    # Twice as many as there are cores, for no longer than this.
    crowd = [multiprocessing.Process(target=burn, args=(60,), daemon=True) for _ in range(2 * os.cpu_count())]
    try:
        for process in crowd:
            process.start()
        before = waits(site.qm)
        crowded = measured()
        waited = waits(site.qm) - before
    finally:
        for process in crowd:
            process.kill()
            process.join()
    # Charged to anybody, this would be far more than what adds up.
    assert waited > 0.2 * crowded.sum, (waited, crowded.roles)
    assert crowded.of("queue-manager") > 0.9 * crowded.process, crowded.roles
    assert crowded.of(*PROTECTION) < 0.02 * crowded.process, crowded.roles


def report(qm, *options):
    return json.loads(qm.run("report", "costs", "--data", qm.data, "--json", *options).stdout)


def test_the_report_the_table_and_the_metrics_say_the_same(site):
    shown = report(site.qm, "--since-start")
    roles = {row["name"]: row["cpu_seconds"] for row in shown["roles"]}
    assert sum(roles.values()) == pytest.approx(shown["sum"]["cpu_seconds"])
    assert sum(roles.values()) == pytest.approx(shown["process"]["cpu_seconds"], rel=0.02)
    assert abs(shown["difference_percent"]) <= 2
    assert sum(row["cpu_seconds"] for row in shown["buckets"]) == pytest.approx(sum(roles.values()))
    for row in shown["roles"]:
        assert row["put_us"] == pytest.approx(1e6 * row["cpu_seconds"] / shown["puts"])
        assert row["get_us"] == pytest.approx(1e6 * row["cpu_seconds"] / shown["gets"])
    table = site.qm.run("report", "costs", "--data", site.qm.data, "--since-start").stdout.decode()
    assert table.startswith("COSTS OF QUEUE MANAGER costly   ")
    for name in [*roles, "process", "sum of the roles", "queue manager", "channel initiator"]:
        assert re.search(rf"^{name} +[0-9.]+ ", table, re.M), name
    text = site.qm.metrics()
    counted = dict(re.findall(r'^bulla_cpu_seconds_total\{role="([^"]+)"\} (\S+)$', text, re.M))
    assert counted.keys() == roles.keys() | {"unattributed"}
    process = float(re.search(r"^process_cpu_seconds_total (\S+)$", text, re.M)[1])
    assert sum(map(float, counted.values())) == pytest.approx(process, abs=1e-6)
    for role, seconds in roles.items():
        assert float(counted[role]) >= seconds, role


def test_the_metrics_tell_puts_from_gets_and_what_lies_in_scratch_files(managers, authority):
    qm = managers(name="scratched", options=["--metrics", "127.0.0.1:0", "--memory", "1"])
    for site in peopled(qm, authority, "orders", "billing"):
        queue, backlog = site.queue(PRIVACY), site.queue(attributes="MAXDEPTH(100000)")
        site.orders.put(queue, clear())
        assert site.billing.get(queue).body
        for _ in range(40):
            site.nobody.put(backlog, Message(body=bytes(100_000), inferred=True, durable=False))
        text = qm.metrics()
        answer = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY COSTSTATUS(*) ALL").stdout
        rows = {row["COSTSTATUS"]: row for row in shown_rows(answer)}
        sample = lambda name: float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])
        for direction, keyword in (("put", "SEALCPU"), ("get", "OPENCPU")):
            seconds = sample(f'bulla_protection_cpu_seconds_total{{direction="{direction}"}}')
            assert 0 < seconds <= rows["protection"][keyword] / 1e9
        process = rows["process"]
        messages = sample("bulla_scratch_messages_total")
        assert 20 < messages <= 40 and messages == process["SCRATCHMSGS"]
        assert sample("bulla_scratch_bytes_total") == process["SCRATCHBYTES"] >= messages * 100_000
        assert sample("bulla_scratch_used_bytes") == process["SCRATCHUSED"] == process["SCRATCHBYTES"]
        assert 0 < sample("bulla_scratch_wait_seconds_total") == pytest.approx(process["SCRATCHWAIT"] / 1e9)
        site.nobody.get_all(backlog)
        used = lambda: costs(qm)[1]["SCRATCHUSED"]
        wait_until(lambda: used() == 0, "nothing lies there any more")
    assert qm.stop() == 0


def test_an_interval_has_only_its_own_costs(site):
    site.nobody.put(site.queue(), clear())
    before = total(threads(site.qm))
    shown = report(site.qm, "--interval", "1s")
    spent = total(threads(site.qm)) - before
    assert shown["interval_seconds"] >= 1 and shown["puts"] == 0
    assert shown["process"]["cpu_seconds"] <= 1.02 * spent + 0.01
    assert all(row["put_us"] is None for row in shown["roles"])


def test_a_role_is_found_by_its_name_and_an_unknown_one_is_refused(site):
    shown = site.qm.mqsc("DISPLAY COSTSTATUS(PROCESS) CPUTIME PUTS GETS")
    assert "COSTSTATUS(process)" in shown and "PUTS(" in shown
    assert "does not exist" in site.qm.mqsc("DISPLAY COSTSTATUS(POSTMAN)", code=4)


def test_a_time_of_which_nothing_is_kept_is_refused(site):
    refused = site.qm.run("report", "costs", "--data", site.qm.data, "--from", "2000-01-01 00:00:00", code=4)
    assert b"3200 MQRCCF_NONE_FOUND" in refused.stderr
