"""How queues and policies stood: `bulla report queues|policies --from --to`, DISPLAY QSTATUS and POLSTATUS with AT."""

import json
from datetime import datetime, timezone

import pytest

from manager import wait_until
from people import People
from sites import INTEGRITY, Site, clear

MESSAGES = 7


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers(name="remembers")
    people = People(qm, authority)
    for name in ("orders", "billing"):
        people.add(name)
    site = Site(qm, people)
    yield site
    for client in site.clients.values():
        client.close()
    assert qm.stop() == 0


def utc():
    """This second, as AT and --from take it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


@pytest.fixture(scope="module")
def kept(site):
    """A time by which something is kept: the first look is soon after the start."""

    def found():
        now = utc()
        done = site.qm.run("mqsc", "--data", site.qm.data, "-c", f"DISPLAY QSTATUS(*) AT('{now}')", code=None)
        return now if done.returncode == 0 else None

    return wait_until(found, "a minute is kept")


def report(qm, what, *options, code=0):
    done = qm.run("report", what, "--data", qm.data, "--json", *options, code=code)
    return json.loads(done.stdout) if code == 0 else done.stderr.decode()


def row(shown, what, name):
    label = {"queues": "queue", "policies": "policy"}[what]
    return next((row for row in shown[what] if row[label] == name), None)


def test_what_happened_after_a_time_is_reported_and_nothing_before_it(site, kept):
    queue = site.queue(INTEGRITY)
    for _ in range(MESSAGES):
        site.orders.put(queue, clear())
    site.billing.get(queue)
    queues, policies = (report(site.qm, what, "--from", kept) for what in ("queues", "policies"))
    found = row(queues, "queues", queue)
    assert (found["puts"], found["gets"], found["depth"]) == (MESSAGES, 1, MESSAGES - 1)
    found = row(policies, "policies", queue)
    assert (found["sealed"], found["opened"]) == (MESSAGES, 1)
    for shown in (queues, policies):
        assert shown["from"] <= kept and shown["from_ms"] < shown["to_ms"]


def test_what_was_kept_is_shown_as_it_was(site, kept):
    queue = site.queue(INTEGRITY)
    site.orders.put(queue, clear())
    then = site.qm.mqsc(f"DISPLAY QSTATUS(*) AT('{kept}')")
    assert "QUEUE(SYSTEM.DEAD.LETTER.QUEUE)" in then and f"QUEUE({queue})" not in then
    assert f"queue {queue} does not exist" in site.qm.mqsc(f"DISPLAY QSTATUS({queue}) AT('{kept}')", code=4)
    assert f"policy {queue} does not exist" in site.qm.mqsc(f"DISPLAY POLSTATUS({queue}) AT('{kept}')", code=4)
    shown = site.qm.mqsc(f"DISPLAY QSTATUS(SYSTEM.*) PUTS AT('{kept}') WHERE(PUTS EQ 0)")
    assert "PUTS(0)" in shown


def test_between_two_times_of_one_minute_nothing_is_to_be_reported(site, kept):
    assert "the end of the report is not later than its beginning" in report(
        site.qm, "queues", "--from", kept, "--to", kept, code=1
    )


@pytest.mark.parametrize("what", ["queues", "policies"])
def test_a_time_of_which_nothing_is_kept_is_refused(site, kept, what):
    assert "3200 MQRCCF_NONE_FOUND" in report(site.qm, what, "--from", "2000-01-01 00:00:00", code=4)
