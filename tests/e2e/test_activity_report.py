"""The activity report and the metrics, against the messages that were put and got."""

import json
import re
import time
import urllib.error
import urllib.request

import pytest

from manager import wait_until
from sites import INTEGRITY, clear, peopled

MESSAGES = 30


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers("metered", options=["--metrics", "127.0.0.1:0"])
    yield from peopled(qm, authority, "orders", "billing")
    assert qm.stop() == 0


def report(qm, *options):
    return json.loads(qm.run("report", "crypto", "--data", qm.data, "--json", *options).stdout)


def jobs(report, operation):
    rows = (row for device in report["devices"] for row in device["rows"])
    return sum(entry["jobs"] for row in rows for entry in row["operations"] if entry["operation"] == operation)


def test_the_report_and_the_metrics_count_what_was_signed_and_verified(site):
    queue = site.queue(INTEGRITY)
    before = report(site.qm, "--since-start")
    sender = site.orders.sender(queue)
    for _ in range(MESSAGES):
        site.orders.put(queue, clear(), sender)
    assert len(site.billing.get_all(queue)) == MESSAGES
    after = report(site.qm, "--since-start")
    for operation in ("RSA-SIGN", "RSA-VERIFY"):
        assert jobs(after, operation) - jobs(before, operation) == MESSAGES
    with urllib.request.urlopen(site.qm.metrics_url, timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    for operation in ("RSA-SIGN", "RSA-VERIFY"):
        counts = re.findall(rf'^bulla_device_jobs_total{{.*operation="{operation}"}} (\d+)$', text, re.M)
        assert sum(map(int, counts)) == jobs(after, operation)
    assert 'bulla_device_up{device="CPU",type="CPU"} 1' in text


def test_an_interval_without_work_shows_no_rate(site):
    shown = report(site.qm, "--interval", "1s")
    assert shown["interval_seconds"] >= 1
    assert {device["rate_per_second"] for device in shown["devices"]} == {0}
    table = site.qm.run("report", "crypto", "--data", site.qm.data, "--interval", "1s").stdout.decode()
    assert table.startswith("CRYPTO HARDWARE ACTIVITY") and "CPU CPU" in table


def test_a_time_of_which_nothing_is_kept_is_refused(site):
    refused = site.qm.run("report", "crypto", "--data", site.qm.data, "--from", "2000-01-01 00:00:00", code=4)
    assert b"3200 MQRCCF_NONE_FOUND" in refused.stderr


def test_the_metrics_say_when_certificates_and_revocation_lists_end(managers, authority):
    qm = managers("ending", options=["--metrics", "127.0.0.1:0"])
    def ends(name):
        samples = [line.rsplit(" ", 1) for line in qm.metrics().splitlines() if line.startswith(name + "{")]
        return {labels.removeprefix(name): float(value) for labels, value in samples}
    certificates = lambda: ends("bulla_certificate_not_after_seconds")  # noqa: E731
    wait_until(lambda: any('where="tls/server.pem",use="tls"' in labels for labels in certificates()), "the listener's")
    day = 86_400
    assert all(day < end - time.time() < 20 * 366 * day for end in certificates().values())
    assert ends("bulla_crl_next_update_seconds") == {}
    assert qm.stop() == 0


def test_nothing_else_than_the_metrics_is_served(site):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(site.qm.metrics_url.removesuffix("metrics"), timeout=30)
    assert refused.value.code == 404
