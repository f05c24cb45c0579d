"""The alert rules: each fires on series made for it, and on no others, by Prometheus' own tool."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

OPERATING = Path(__file__).parents[2] / "docs/operating"
RULES = OPERATING / "alerts-bulla.yml"
LABELS = {"instance": "qm", "job": "bulla"}
CERTIFICATE = {"where": "tls/server.pem", "use": "tls", "subject": "CN=localhost"}
LIST = {"where": "rings/orders/crl", "issuer": "CN=authority"}
KEY = {"subject": "CN=billing", "key": "0a"}
# Of each alert the series that set it off, and those that do not, in one way or several; a value a minute.
CASES = {
    "BullaDown": ({"up": (LABELS, "0x30")}, {"up": (LABELS, "1x30")}),
    "BullaMessageDefective": (
        {"bulla_policy_quarantined_total": (LABELS | {"policy": "P"}, "0+1x30")},
        {"bulla_policy_quarantined_total": (LABELS | {"policy": "P"}, "7x30")},
    ),
    "BullaSealsFail": (
        {"bulla_policy_failures_total": (LABELS | {"policy": "P", "cause": "crl-stale"}, "0+1x30")},
        {"bulla_policy_failures_total": (LABELS | {"policy": "P", "cause": "crl-stale"}, "7x30")},
    ),
    "BullaErrorQueueFills": (
        {"bulla_queue_depth": (LABELS | {"queue": "SYSTEM.DEAD.LETTER.QUEUE"}, "3x30")},
        {"bulla_queue_depth": (LABELS | {"queue": "ORDERS"}, "3x30")},
    ),
    "BullaMessagesStranded": (
        {"bulla_queue_stranded_messages": (LABELS | {"queue": "Q", "cause": "no-key"}, "3x30")},
        {"bulla_queue_stranded_messages": (LABELS | {"queue": "Q", "cause": "no-key"}, "0x30")},
    ),
    "BullaKeyMissing": (
        {"bulla_missing_keys": (LABELS, "1x30")},
        {"bulla_missing_keys": (LABELS, "0x30")},
    ),
    "BullaQueueStands": (
        {
            "bulla_queue_oldest_message_seconds": (LABELS | {"queue": "Q"}, "4000+60x30"),
            "bulla_queue_gets_total": (LABELS | {"queue": "Q"}, "5x30"),
        },
        {
            "bulla_queue_oldest_message_seconds": (LABELS | {"queue": "Q"}, "4000+60x30"),
            "bulla_queue_gets_total": (LABELS | {"queue": "Q"}, "5+1x30"),
        },
    ),
    "BullaChannelWaits": (
        {
            "bulla_channel_waiting_messages": (LABELS | {"channel": "A.B"}, "5x30"),
            "bulla_channel_running": (LABELS | {"channel": "A.B"}, "0x30"),
        },
        {
            "bulla_channel_waiting_messages": (LABELS | {"channel": "A.B"}, "5x30"),
            "bulla_channel_running": (LABELS | {"channel": "A.B"}, "1x30"),
        },
    ),
    "BullaDeviceDown": (
        {"bulla_device_up": (LABELS | {"device": "CARD"}, "0x30")},
        {"bulla_device_up": (LABELS | {"device": "CARD"}, "1x30")},
    ),
    "BullaDeviceTokenRefused": (
        {"bulla_device_token_refused": (LABELS | {"device": "VAULT"}, "1x30")},
        {"bulla_device_token_refused": (LABELS | {"device": "VAULT"}, "0x30")},
    ),
    "BullaCertificateNotRenewed": (
        {"bulla_enrolment_failures": (LABELS | {"place": "ring", "name": "billing"}, "5x30")},
        {"bulla_enrolment_failures": (LABELS | {"place": "ring", "name": "billing"}, "0 1 2 3 0x26")},
    ),
    # The tests' clock begins in 1970: they look at 25 minutes after it.
    "BullaCertificateEnds": (
        {"bulla_certificate_not_after_seconds": (LABELS | CERTIFICATE | {"renews": "no"}, "1200000x30")},
        {"bulla_certificate_not_after_seconds": (LABELS | CERTIFICATE | {"renews": "no"}, "1220000x30")},
        {"bulla_certificate_not_after_seconds": (LABELS | CERTIFICATE | {"renews": "yes"}, "1200000x30")},
    ),
    "BullaCertificateEnded": (
        {"bulla_certificate_not_after_seconds": (LABELS | CERTIFICATE | {"renews": "yes"}, "1000x30")},
        {"bulla_certificate_not_after_seconds": (LABELS | CERTIFICATE | {"renews": "yes"}, "2000x30")},
    ),
    "BullaRevocationListEnds": (
        {
            "bulla_crl_this_update_seconds": (LABELS | LIST, "0x30"),
            "bulla_crl_next_update_seconds": (LABELS | LIST, "1500x30"),
        },
        {
            "bulla_crl_this_update_seconds": (LABELS | LIST, "1000x30"),
            "bulla_crl_next_update_seconds": (LABELS | LIST, "87400x30"),
        },
    ),
    "BullaOldKeyNeeded": (
        {
            "bulla_key_use_messages": (LABELS | KEY, "5x30"),
            "bulla_key_use_not_after_seconds": (LABELS | KEY, "100x30"),
        },
        {
            "bulla_key_use_messages": (LABELS | KEY, "5x30"),
            "bulla_key_use_not_after_seconds": (LABELS | KEY, "9000x30"),
        },
        {
            "bulla_key_use_messages": (LABELS | KEY, "0x30"),
            "bulla_key_use_not_after_seconds": (LABELS | KEY, "100x30"),
        },
    ),
    "BullaNotReady": (
        {"bulla_unready": (LABELS | {"cause": "disk-low"}, "1x30")},
        {"bulla_unready": (LABELS | {"cause": "disk-low"}, "0x30")},
    ),
    "BullaAuditMissing": (
        {"bulla_audit_dropped_total": (LABELS, "0+1x30")},
        {"bulla_audit_dropped_total": (LABELS, "1x30"), "bulla_audit_failures_total": (LABELS, "0x30")},
    ),
}


def promtool(*arguments):
    if shutil.which("promtool") is None:
        pytest.skip("promtool of Debian's package prometheus is not there")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def series(name, labels):
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def fires(made, query):
    """A test that has the alerts of a kind counted after 25 minutes."""
    inputs = [{"series": series(name, labels), "values": values} for name, (labels, values) in made.items()]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": query}


def test_the_rules_are_rules_about_series_that_there_are():
    text = RULES.read_text()
    assert set(re.findall(r"alert: (\w+)", text)) == set(CASES)
    page = (OPERATING / "metrics.md").read_text()
    named = set(re.findall(r"\bbulla_\w+", text))
    assert len(named) > 8 and {name for name in named if f"`{name}`" not in page} == set()
    promtool("check", "rules", RULES)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_not_else(alert, tmp_path):
    fires, *others = CASES[alert]
    check(alert, [(fires, 1), *((series, 0) for series in others)], tmp_path)


def check(alert, cases, tmp_path):
    """Whether so many alerts fire with each of these series, by `promtool`."""
    tests = []
    for made, wanted in cases:
        samples = [{"labels": "{}", "value": wanted}] if wanted else []
        expression = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
        tests.append(fires(made, [{"expr": expression, "eval_time": "25m", "exp_samples": samples}]))
    file = tmp_path / "tests.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", file)
