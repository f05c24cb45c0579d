"""The report of tasks and its metrics, against the messages that were put."""

import json
import re

import pytest

from manager import shown_rows, wait_until
from people import People
from sites import INTEGRITY, Site, clear

MESSAGES = 30


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers(name="counted", options=["--metrics", "127.0.0.1:0", "--adapters", "3"])
    people = People(qm, authority)
    for name in ("orders", "billing"):
        people.add(name)
    site = Site(qm, people)
    yield site
    for client in site.clients.values():
        client.close()
    assert qm.stop() == 0


def report(qm, *options):
    return json.loads(qm.run("report", "chinit", "--data", qm.data, "--json", *options).stdout)


def requests(report, kind):
    return sum(task["requests"] for task in report["tasks"] if task["type"] == kind)


def test_the_journal_runs_before_anything_is_written(managers):
    qm = managers(name="idle")

    def is_running():
        shown = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY TASKSTATUS").stdout
        return {row["TASK"]: row["STATUS"] for row in shown_rows(shown)}["journal"] == "RUNNING"

    wait_until(is_running, "the journal's thread runs")
    assert qm.stop() == 0


def test_a_sealed_put_is_one_request_of_an_adapter_and_one_job_of_a_device(site):
    queue = site.queue(INTEGRITY)
    sender = site.orders.sender(queue)
    site.orders.put(queue, clear(), sender)
    before = report(site.qm, "--since-start")
    for _ in range(MESSAGES):
        site.orders.put(queue, clear(), sender)
    after = report(site.qm, "--since-start")
    for kind in ("ADAPTER", "DEVICE"):
        assert requests(after, kind) - requests(before, kind) == MESSAGES, kind
    # Each put comes in a turn of its own, and is confirmed in one.
    assert requests(after, "DISPATCHER") - requests(before, "DISPATCHER") >= MESSAGES
    text = site.qm.metrics()
    for kind in ("ADAPTER", "DEVICE"):
        counts = re.findall(rf'^bulla_task_requests_total{{type="{kind}",task="[^"]+"}} (\d+)$', text, re.M)
        assert sum(map(int, counts)) == requests(after, kind), kind


def test_sums_are_those_of_the_tasks_and_times_fit_into_each_other(site):
    shown = report(site.qm, "--since-start")
    for total in shown["totals"]:
        tasks = [task for task in shown["tasks"] if task["type"] == total["type"]]
        assert total["tasks"] == len(tasks)
        assert total["requests"] == sum(task["requests"] for task in tasks)
        assert total["unused_tasks"] == sum(task["unused"] for task in tasks)
        for key in ("elapsed_seconds", "cpu_seconds"):
            assert total[key] == pytest.approx(sum(task[key] for task in tasks))
    for task in shown["tasks"]:
        assert task["unused"] == (task["requests"] == 0)
        assert task["cpu_seconds"] <= task["elapsed_seconds"]
        if task["requests"]:
            # An adapter's turn is a little more than its messages: it hands them over, too.
            shortest = 0 if task["type"] == "ADAPTER" else 0.999 * task["elapsed_mean_us"]
            assert task["longest_us"] > shortest, task
            assert shown["from_ms"] <= task["longest_at_ms"] <= shown["to_ms"]
            assert task["wait_mean_us"] == pytest.approx(task["elapsed_mean_us"] - task["cpu_mean_us"], abs=0.01)
    adapters = [task["cpu_mean_us"] for task in shown["tasks"] if task["type"] == "ADAPTER" and task["requests"]]
    # An RSA 2048 signature takes some hundred microseconds on any processor.
    assert adapters and all(50 < cpu for cpu in adapters)


def test_the_table_says_what_the_json_says_and_marks_what_was_not_used(site):
    table = site.qm.run("report", "chinit", "--data", site.qm.data, "--since-start").stdout.decode()
    shown = report(site.qm, "--since-start")
    assert table.startswith("TASKS OF QUEUE MANAGER counted   ") and f"bulla {shown['version']}" in table
    for task in shown["tasks"]:
        line = re.search(rf"^{re.escape(task['task'])} .*$", table, re.M)[0]
        assert ("unused" in line) == task["unused"]
        if task["type"] in ("ADAPTER", "DEVICE"):
            assert int(line.split()[1]) == task["requests"]
    tls = [task for task in shown["tasks"] if task["type"] == "TLS"]
    assert tls and any(task["requests"] for task in tls), "users sign in over TLS"


def test_an_interval_has_only_its_own_requests(site):
    shown = report(site.qm, "--interval", "1s")
    assert shown["interval_seconds"] >= 1
    assert requests(shown, "ADAPTER") == 0 and shown["warning"] is None
    assert all(task["unused"] for task in shown["tasks"] if task["type"] in ("ADAPTER", "DEVICE"))


def test_a_pool_of_one_adapter_has_none_to_spare_and_the_report_says_so(site):
    site.qm.mqsc("ALTER QMGR CHIADAPS(1)")
    running = lambda: sum(task["running"] for task in report(site.qm, "--since-start")["tasks"] if task["type"] == "ADAPTER")
    wait_until(lambda: running() == 1, "surplus adapters end")
    queue = site.queue(INTEGRITY)
    sender = site.orders.sender(queue)
    begin = report(site.qm, "--since-start")["to_ms"]
    site.orders.put(queue, clear(), sender)
    shown = report(site.qm, "--since-start")
    assert shown["adapters"] == 1 and shown["busy_adapters_max"] >= 1
    assert "ALTER QMGR CHIADAPS(2)" in shown["warning"]
    assert shown["to_ms"] >= begin
    assert "WARNING: no adapter was unused" in site.qm.run(
        "report", "chinit", "--data", site.qm.data, "--since-start"
    ).stdout.decode()
    site.qm.mqsc("ALTER QMGR CHIADAPS(AUTO)")
    wait_until(lambda: running() == 3, "as many as at the start")


def test_a_time_of_which_nothing_is_kept_is_refused(site):
    refused = site.qm.run("report", "chinit", "--data", site.qm.data, "--from", "2000-01-01 00:00:00", code=4)
    assert b"3200 MQRCCF_NONE_FOUND" in refused.stderr
