"""`bulla perf` between two queue managers: each subcommand, tiny, with the counts right."""

import json
import math
import os
import subprocess

import pytest

from manager import BULLA

# A whole run, queue managers and certificates included (seconds); none of them comes near.
DEADLINE = 120
TINY = ["--self", "--repeats", "1", "--seconds", "0.5", "--warm-up", "0.1", "--quiet", "--json"]
ROLES = {
    "application", "queue_manager", "channel_initiator", "tls", "protection", "devices", "journal", "administration",
    "unattributed",
}  # fmt: skip
TLS13 = "TLS_AES_256_GCM_SHA384"


def perf(*arguments, codes=(0,)):
    """Runs the subcommand: its run, and its samples."""
    done = subprocess.run(
        [BULLA, "perf", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE, text=True
    )
    assert done.returncode in codes, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    runs = [line for line in lines if line["kind"] == "run"]
    samples = [line for line in lines if line["kind"] == "sample"]
    assert len(runs) == 1 and len(runs) + len(samples) == len(lines)
    workload = "drain" if "--drain" in arguments else arguments[0]
    assert runs[0]["workload"] == workload and runs[0]["target"] == "self"
    assert not runs[0].get("left_out"), runs[0]
    for sample in samples:
        assert sample["run"] == runs[0]["run"] and sample["repeat"] == 1
    return samples


def check(sample, messages):
    """What holds for every sample between two queue managers: it has this many messages a transaction."""
    assert sample["transactions"] > 0
    assert sample["messages"] == pytest.approx(messages * sample["transactions"], rel=0.02, abs=200)
    assert sample["rate"] == pytest.approx(sample["transactions"] / sample["seconds"])
    assert set(sample["cpu_us"]) == ROLES
    # The looks at the roles are some microseconds apart.
    assert sum(sample["cpu_us"].values()) == pytest.approx(sample["process_cpu_us"], rel=0.02)
    managers = {task["name"].split()[0] for task in sample["tasks"]}
    assert managers == {"QM1", "QM2"}


def adapters(sample):
    return [task for task in sample["tasks"] if task["kind"] == "ADAPTER"]


def leftovers(folder):
    return [name for name in os.listdir(folder) if name.startswith("bulla-perf-")]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder for scratch directories, which is empty again at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert leftovers(tmp_path) == []


def test_round_trips_by_cipher_and_renewal(scratch):
    plain, still, renewed = perf("channel", *TINY, "--size", "8k", "--cipher", f"none,{TLS13}", "--reset", "0,32k")
    for sample in (plain, still, renewed):
        check(sample, messages=2)
        assert sample["latency_us"]["p50"] > 0
        assert sample["configuration"]["topology"] == "channel" and sample["configuration"]["bytes"] == 8192
    assert "cipher" not in plain["configuration"] and "found" not in plain
    assert still["configuration"]["client_certificates"] and still["found"]["raw_us"] > 0
    assert "added_us" in still["found"] and "resets" not in still["found"]
    assert renewed["configuration"]["reset_bytes"] == 32768
    # Each of the two channels carries 8 KB of a round trip.
    assert renewed["found"]["resets_per_round_trip"] == pytest.approx(2 * 8192 / 32768, rel=0.1)
    assert renewed["found"]["resets"] > 0


def test_renegotiation_without_a_certificate_of_the_caller(scratch):
    cipher = "ECDHE_RSA_AES_256_GCM_SHA384"
    options = ["--size", "32k", "--cipher", cipher, "--reset", "0,1m", "--client-certificate", "true,false"]
    still, both, one = perf("channel", *TINY, *options)
    for sample in (still, both, one):
        check(sample, messages=2)
    assert both["configuration"]["client_certificates"] and "client-certificates" not in one["configuration"]
    for sample in (both, one):
        assert sample["found"]["resets_per_round_trip"] == pytest.approx(2 * 32768 / (1 << 20), rel=0.15)
        # Of so few resets noise may make anything.
        assert math.isfinite(sample["found"]["reset_us"])


def test_a_transmission_queue_is_drained(scratch):
    options = ["--drain", "--messages", "5000", "--cipher", f"none,{TLS13}", "--seconds", "20"]
    clear, secret = perf("channel", "--self", "--repeats", "1", "--quiet", "--json", "--persistent", *options)
    assert "cipher" not in clear["configuration"] and secret["configuration"]["cipher"] == TLS13
    for sample in (clear, secret):
        # They waited for the sample to begin, and it for all of them.
        assert sample["messages"] == sample["transactions"] == 5000
        assert sample["seconds"] < 20 and sample["found"]["batch_size"] == 50
        assert sample["configuration"]["bytes"] == 2048 and sample["configuration"]["persistent"]


def test_clients_and_channels_start(scratch):
    options = ["--clients", "2", "--channels", "5", "--tls-version", "1.3,1.2", "--repeats", "1", "--seconds", "0.5"]
    samples = perf("handshake", "--self", "--quiet", "--json", "--warm-up", "0", *options)
    kinds = {
        (one["topology"], one["key"], one["cipher"].startswith("TLS_"), one.get("client_certificates", False))
        for one in (sample["configuration"] for sample in samples)
    }
    assert len(samples) == 16 and len(kinds) == 16
    for sample in samples:
        assert sample["transactions"] > 0 and sample["messages"] == 0
        assert set(sample["cpu_us"]) == ROLES and sample["process_cpu_us"] > 100
        if sample["configuration"]["topology"] == "channel":
            assert sample["transactions"] % 5 == 0 and sample["found"]["start_phase_rate"] > 0
        else:
            assert sample["cpu_us"]["application"] > 0 and sample["latency_us"]["p50"] > 0


def test_channels_start_without_tls(scratch):
    (sample,) = perf("handshake", *TINY, "--who", "channel", "--tls-version", "none", "--channels", "5")
    assert sample["transactions"] > 0 and "cipher" not in sample["configuration"]


def test_dispatchers_by_adapters(scratch):
    options = ["--pairs", "2", "--dispatchers", "1,2", "--adapters", "1,3", "--key", "p256", "--size", "2k"]
    samples = perf("tasks", *TINY, *options)
    numbers = [(sample["configuration"]["dispatchers"], sample["configuration"]["adapters"]) for sample in samples]
    assert numbers == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for sample in samples:
        check(sample, messages=2)
        # QM1 alone protects, and no more adapters than were asked for were ever at work.
        names = {task["name"] for task in adapters(sample)}
        assert 1 <= len(names) <= sample["configuration"]["adapters"] and all("QM1" in name for name in names)
        used = {task["name"] for task in sample["tasks"] if task["kind"] == "DISPATCHER"}
        assert len(used) == 2 * sample["configuration"]["dispatchers"]
    assert samples[0]["cpu_us"]["protection"] > 0


def test_who_protects_what(scratch):
    options = ["--pairs", "2", "--quality", "privacy", "--key", "p256", "--size", "2k"]
    samples = perf("islands", *TINY, *options)
    by_topology = {sample["configuration"]["topology"]: sample for sample in samples}
    assert list(by_topology) == ["unprotected", "end-to-end", "one-side", "two-authorities"]
    for sample in samples:
        check(sample, messages=2)
    seals = {}
    for topology, sample in by_topology.items():
        devices = {"QM1": 0, "QM2": 0}
        for device in sample["devices"]:
            signs = [use["count"] for use in device["operations"] if use["operation"] == "ecdsa-sign"]
            devices[device["name"].split()[0]] += sum(signs)
        seals[topology] = {name: count / sample["transactions"] for name, count in devices.items()}
    # Signatures of a round trip at each queue manager; the counters are looked at some milliseconds before the round trips are.
    expected = {
        "unprotected": (0, 0), "end-to-end": (1, 1), "one-side": (2, 0), "two-authorities": (2, 2),
    }  # fmt: skip
    for topology, (one, two) in expected.items():
        assert seals[topology] == pytest.approx({"QM1": one, "QM2": two}, abs=0.35), topology


def test_a_stream_is_sealed_where_it_arrives(scratch):
    options = ["--topology", "channel", "--rate", "200,max", "--quality", "none,integrity", "--key", "p256"]
    # Whether the rate is held is up to the machine.
    samples = perf("stream", *TINY, *options, codes=(0, 8))
    assert len(samples) == 4
    for sample in samples:
        check(sample, messages=1)
        assert all(moment["xqtime_us"] >= 0 for moment in sample["course"]) and sample["course"]
        targeted = "target_rate" in sample["configuration"]
        assert ("goal" in sample) == targeted
        sealing = [task for task in adapters(sample) if task["name"].startswith("QM2")]
        if sample["configuration"]["quality"] == "integrity":
            # Sealed once and opened once; what each took is there.
            requests = sum(task["requests"] for task in sealing)
            if targeted:
                assert requests == pytest.approx(2 * sample["messages"], rel=0.3)
            assert all(0 < task["cpu_us"] <= task["elapsed_us"] for task in sealing)


def test_a_goal_that_is_not_held_has_its_exit_code(scratch):
    options = ["--pairs", "1", "--island", "unprotected", "--hold", "100000000"]
    (sample,) = perf("islands", *TINY, *options, codes=(8,))
    assert not sample["goal"]["held"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["channel"],
        ["islands", "--amqp", "127.0.0.1:1"],
        ["islands", "--self", "--island", "atlantis"],
        ["tasks", "--self", "--quality", "none"],
        ["handshake", "--amqp", "127.0.0.1:1"],
        ["channel", "--self", "--reset", "-1"],
        ["stream", "--amqp", "127.0.0.1:1", "--topology", "channel"],
    ],
)
def test_what_makes_no_sense_is_a_wrong_command_line(arguments):
    done = subprocess.run([BULLA, "perf", *arguments], capture_output=True, timeout=DEADLINE, text=True)
    assert done.returncode == 2, done.stderr
