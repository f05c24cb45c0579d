"""`bulla perf trade`, tiny: what customers did over HTTPS, and what is said of it."""

import json
import subprocess

import pytest

from manager import BULLA

# A whole run, queue managers and certificates included (seconds); none of them comes near.
DEADLINE = 240
TINY = ["--self", "--repeats", "1", "--seconds", "1", "--warm-up", "0.2", "--quiet", "--clients", "4"]


def trade(*arguments, codes=(0,)):
    """Runs it: what it printed, and what it complained of."""
    done = subprocess.run(
        [BULLA, "perf", "trade", *TINY, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=DEADLINE,
        text=True,
    )
    assert done.returncode in codes, done.stderr
    return done


def samples(*arguments):
    """The samples of a run in which nothing was left out."""
    lines = [json.loads(line) for line in trade("--json", *arguments).stdout.splitlines()]
    assert lines[0]["workload"] == "trade" and not lines[0].get("left_out"), lines[0]
    return lines[1:]


def tls_jobs(sample):
    """How often devices signed, those of orders included."""
    operations = [used for device in sample["devices"] for used in device["operations"]]
    return sum(used["count"] for used in operations if used["operation"].endswith("sign"))


def test_a_connection_has_as_many_requests_as_it_was_asked_for():
    each = {}
    for sample in samples("--key", "rsa2048", "--order-key", "p256", "--devices", "cpu", "--requests", "1,10"):
        assert sample["transactions"] > 0 and sample["latency_us"]["mean"] > 0
        found = sample["found"]
        # Orders are two requests, and 8 of 100 transactions.
        assert 1.0 < found["requests"] < 1.4, found
        each[sample["configuration"]["requests"]] = found["handshakes"]
        assert found["resumed_handshakes"] == 0
        # Each handshake is a signature of the listener's key, beside those of orders.
        assert tls_jobs(sample) >= 0.9 * found["handshakes"] * sample["transactions"]
    assert each[1] == pytest.approx(1.08, abs=0.15) and each[10] == pytest.approx(0.108, abs=0.05), each


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_sessions_are_resumed_where_that_is_asked_for(version):
    whole, resumed = samples("--key", "p256", "--devices", "cpu", "--resume", "false,true", "--tls-version", version)
    assert whole["found"]["resumed_handshakes"] == 0
    # The first one of each customer is a whole one.
    assert resumed["found"]["resumed_handshakes"] > 0.8 * resumed["found"]["handshakes"] > 0


def test_modelled_cards_sign_and_are_said_to_be_modelled(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "page.html"
    arguments = ["--key", "rsa2048", "--order-key", "rsa1024", "--devices", "software,modelled:1a", "--card-carries", "3"]
    done = trade("--out", str(results), *arguments)
    assert "derived: RSA-CRT-2048=" in done.stderr
    assert "% of software" in done.stdout and "(modelled)" in done.stdout
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    card = lines[-1]["devices"][0]
    assert card["kind"] == "MODELLED" and card["busy_percent"] > 0
    subprocess.run([BULLA, "perf", "report", str(results), "-o", str(page)], check=True, timeout=DEADLINE)
    text = page.read_text()
    for title in ["Throughput against software", "Cores of the queue manager", "Cost of a transaction", "Response time"]:
        assert title in text, title


def test_each_has_a_core_where_that_is_asked_for():
    (sample,) = samples("--order-key", "p256", "--key", "p256", "--devices", "cpu", "--pin")
    assert sample["transactions"] > 0


def test_what_can_not_be_measured_is_said_at_once():
    done = trade("--devices", "1c", codes=(2,))
    assert "modelled:1c" in done.stderr
