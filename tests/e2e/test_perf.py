"""`bulla perf`: a client like any other, which starts its own queue managers or is pointed at one that runs."""

import json
import os
import signal
import subprocess

import pytest
from proton import Message

import test_artemis
from manager import BULLA, DEADLINE, run, wait_until

ROLES = {
    "application",
    "queue_manager",
    "channel_initiator",
    "tls",
    "protection",
    "devices",
    "journal",
    "administration",
    "unattributed",
}
# Whether a machine on which other tests run keeps up is no matter of correctness.
HELD_OR_NOT = (0, 8)
SHORT = ("--warm-up", "0.2", "--seconds", "1", "--quiet")


def perf(*arguments, code=0, env=None):
    """Runs `bulla perf`; what it said."""
    command = [BULLA, "perf", *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, timeout=180, env={**os.environ, **(env or {})})
    codes = code if isinstance(code, tuple) else (code,)
    assert done.returncode in codes, f"{arguments}: exit {done.returncode}: {done.stderr.decode()}{done.stdout.decode()}"
    return done.stdout.decode() + done.stderr.decode()


def lines(path):
    """The run and its samples."""
    first, *samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert first["kind"] == "run" and all(sample["kind"] == "sample" for sample in samples)
    return first, samples


def check_costs(sample):
    """Every role is there, and what they own is what the processes used: their own count, which no role is part of."""
    assert set(sample["cpu_us"]) == ROLES
    owned = sum(us for role, us in sample["cpu_us"].items() if role != "unattributed")
    assert owned <= 1.02 * sample["process_cpu_us"]
    assert owned + sample["cpu_us"]["unattributed"] == pytest.approx(sample["process_cpu_us"], rel=0.02)
    assert sample["cpu_us"]["application"] > 0 and sample["cpu_us"]["queue_manager"] > 0


@pytest.fixture
def scratch(tmp_path):
    """Where queue managers of the measurement live; at the end nothing is left."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield {"TMPDIR": str(folder)}
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def asked(qm, people):
    """Queues for requests of `orders` and replies of `billing`, sealed both ways."""
    privacy = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{}') RECIP('{}')"
    for queue, signer, reader in (("ASK", "orders", "billing"), ("TELL", "billing", "orders")):
        qm.mqsc(f"DEFINE QLOCAL({queue}) MAXDEPTH(10000)")
        qm.mqsc(f"SET POLICY({queue}) {privacy.format(people.dn(signer), people.dn(reader))}")
    qm.mqsc("DEFINE QLOCAL(PLAIN) MAXDEPTH(10000)")
    return ["--user", "orders", "--password-file", qm.password_file("orders"),
            "--getter", "billing", "--getter-password-file", qm.password_file("billing")]  # fmt: skip


def test_configurations_take_turns_and_their_counts_and_costs_add_up(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    told = perf("stream", "--self", *SHORT, "--repeats", 2, "--rate", "max", "--quality", "none,integrity", "--window", 8,
                "--out", out, env=scratch)  # fmt: skip
    assert "messages/s" in told and "integrity rsa2048 2 KB 8 in flight" in told
    first, samples = lines(out)
    assert (first["workload"], first["target"], first["format"]) == ("stream", "self", 2)
    assert first["machine"]["cores"] > 0
    # Round by round, every other one in reverse.
    assert [(sample["configuration"]["quality"], sample["repeat"]) for sample in samples] == [
        ("none", 1), ("integrity", 1), ("integrity", 2), ("none", 2)]  # fmt: skip
    for sample in samples:
        assert sample["run"] == first["run"]
        assert sample["messages"] == sample["transactions"] > 0
        assert sample["rate"] == pytest.approx(sample["transactions"] / sample["seconds"])
        assert 1 <= sample["seconds"] < 5
        latency = sample["latency_us"]
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"] <= 1.07 * latency["max"]
        check_costs(sample)
        moment = sample["course"][-1]
        assert moment["rate"] > 0 and moment["depth"] >= 0 and moment["cores_busy"] > 0
    for sealed in samples[1:3]:
        jobs = [job for device in sealed["devices"] for job in device["operations"]]
        signed = sum(job["count"] for job in jobs if job["operation"] == "rsa-sign")
        # Each message is signed once; the difference is what was under way at both ends.
        assert signed == pytest.approx(sealed["messages"], rel=0.1, abs=64)


def test_a_rate_that_is_not_held_is_exit_code_8(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    one = ("stream", "--self", *SHORT, "--repeats", 1, "--rate", "500", "--quality", "none", "--out", out)
    perf(*one, "--hold", 1_000_000_000, code=8, env=scratch)
    perf(*one, "--hold", 1, env=scratch)
    text = out.read_text().splitlines()
    goals = [json.loads(line)["goal"] for line in text if '"sample"' in line]
    assert [(goal["wanted"], goal["held"]) for goal in goals] == [(1_000_000_000, False), (1, True)]
    assert 1 < goals[1]["reached"] < 600


def test_a_full_queue_makes_the_putter_wait_and_put_again(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    told = perf("stream", "--self", *SHORT, "--repeats", 1, "--rate", 10_000_000, "--max-depth", 20, "--quality", "none",
                "--out", out, code=8, env=scratch)  # fmt: skip
    assert " no " in told
    _, [sample] = lines(out)
    # That every message came, whole and once, is what the load itself checks.
    assert sample["found"]["refused_2053"] > 0 and sample["messages"] > 0
    assert sample["goal"]["held"] is False


def test_clients_that_seal_for_themselves_leave_the_queue_manager_nothing_to_seal(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    perf("stream", "--self", *SHORT, "--repeats", 1, "--rate", "max", "--quality", "privacy", "--client-seal", "--tls", "--out", out,
         env=scratch)  # fmt: skip
    _, [sample] = lines(out)
    assert sample["configuration"]["topology"] == "end-to-end"
    assert sample["messages"] > 0
    check_costs(sample)
    jobs = sum(job["count"] for device in sample["devices"] for job in device["operations"])
    assert jobs == 0
    # Two signatures' worth of RSA a message is the application's now.
    assert sample["cpu_us"]["application"] > 10 * sample["cpu_us"]["protection"]


def test_a_kind_of_key_that_there_is_not_is_refused_before_anything_is_measured(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    for key in ("rsa1000,p256", "rsa999"):
        told = perf("key-size", "--self", *SHORT, "--quality", "integrity", "--key", key, "--out", out, code=2, env=scratch)
        assert "no key of kind" in told and "rsa2048" in told
    assert not out.exists()


def test_messages_that_wait_share_a_signature_where_the_axis_says_so(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    told = perf("stream", "--self", *SHORT, "--repeats", 1, "--rate", "max", "--window", 128, "--quality", "none,integrity,confidentiality",
                "--key", "rsa2048", "--reuse", 0, "--sign-batch", "1,64", "--out", out, env=scratch)  # fmt: skip
    assert "integrity rsa2048 batch 64 2 KB" in told
    _, samples = lines(out)
    # What is not signed is measured once.
    assert [sample["configuration"]["quality"] for sample in samples] == ["none", "integrity", "integrity", "confidentiality"]
    assert [sample["configuration"].get("sign_batch", 1) for sample in samples] == [1, 1, 64, 1]
    alone, shared = samples[1:3]

    def signatures_a_message(sample):
        operations = [one for device in sample["devices"] for one in device["operations"]]
        return sum(one["count"] for one in operations if one["operation"] == "rsa-sign") / sample["messages"]

    # A short run ends with many that are signed and not got yet.
    assert signatures_a_message(alone) > 0.75
    assert signatures_a_message(shared) < 0.5
    report = tmp_path / "report.html"
    perf("report", out, "-o", report)
    assert "batch\u00a064" in report.read_text() or "batch 64" in report.read_text()


def test_modelled_cards_are_said_to_be_modelled(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    told = perf("devices", "--self", *SHORT, "--repeats", 1, "--devices", "modelled:1c", "--quality", "integrity", "--out", out,
                env=scratch)  # fmt: skip
    assert "modelled: no such card is here" in told
    _, [sample] = lines(out)
    card = next(device for device in sample["devices"] if device["name"] == "MODEL.COPROC1")
    assert card["kind"] == "MODELLED"
    signed = next(job for job in card["operations"] if job["operation"] == "rsa-sign")
    # 0.596 ms each, as the profile says, on one engine.
    assert signed["execution_us"] == pytest.approx(596, rel=0.1)
    assert sample["rate"] < 1 / 596e-6


def test_interrupted_it_ends_in_order_and_keeps_what_it_has(tmp_path, scratch):
    out = tmp_path / "results.jsonl"
    command = [BULLA, "perf", "stream", "--self", "--warm-up", "0", "--seconds", "0.3", "--repeats", "1000", "--quality", "none",
               "--out", out]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **scratch})
    try:
        wait_until(lambda: out.exists() and out.read_text().count('"sample"') >= 2, "two samples are written")
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
    assert "messages/s" in told.decode()
    _, samples = lines(out)
    assert len(samples) >= 2


def test_request_and_reply_over_tls_with_a_queue_manager_that_runs(qm, asked, tmp_path):
    out = tmp_path / "results.jsonl"
    perf("request-reply", "--amqp", qm.amqps, "--ca", qm.ca, *asked, "--queue", "ASK,TELL", "--data", qm.data, "--quality", "privacy",
         "--pid", qm.process.pid, *SHORT, "--repeats", 1, "--size", "1k,64k", "--in-flight", 4, "--out", out)  # fmt: skip
    first, samples = lines(out)
    assert first["target"] == qm.amqps
    assert [sample["configuration"]["bytes"] for sample in samples] == [1024, 65536]
    for sample in samples:
        assert sample["messages"] == pytest.approx(2 * sample["transactions"], abs=16)
        assert sample["transactions"] > 0
        check_costs(sample)
        assert sample["cpu_us"]["tls"] > 0
    for queue in ("ASK", "TELL"):
        status = qm.status(queue)
        assert status["CURDEPTH"] == 0 and status["PUTS"] == status["GETS"] >= sum(sample["transactions"] for sample in samples)


def test_counts_are_those_of_the_queue_manager(qm, asked, tmp_path):
    out = tmp_path / "results.jsonl"
    before = qm.status("PLAIN")["GETS"]
    perf("stream", "--amqp", qm.clear_address, "--queue", "PLAIN", "--rate", 1000, "--warm-up", 0, "--seconds", 1, "--repeats", 1, "-q",
         "--persistent", "--out", out, code=HELD_OR_NOT)  # fmt: skip
    _, [sample] = lines(out)
    got = qm.status("PLAIN")["GETS"] - before
    # What was put while the load ended is got, too, and in no sample.
    assert sample["messages"] <= got <= sample["messages"] + 1000
    assert 0 < sample["messages"] <= 1000 * sample["seconds"] + 100
    # Nothing tells what another broker's processor time is spent on.
    assert set(sample["cpu_us"]) == {"application"}


def test_a_message_that_was_there_before_is_not_taken_for_its_own(qm, asked):
    with qm.connect() as client:
        client.put("PLAIN", Message(body=b"not from here" * 200, inferred=True))
    told = perf("stream", "--amqp", qm.clear_address, "--queue", "PLAIN", *SHORT, "--rate", "max", code=1)
    assert "message 0 is not the one that was put" in told
    with qm.connect() as client:
        client.get_all("PLAIN")


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["stream"], 2, "--self starts a queue manager, --amqp names one that runs"),
        (["stream", "--self", "--amqp", "x:1"], 2, "cannot be used with"),
        (["stream", "--amqp", "127.0.0.1:1", "--queue", "Q"], 1, "refused"),
        (["request-reply", "--amqp", "127.0.0.1:1", "--queue", "Q"], 2, "--queue names 1 queues, and 2 are needed"),
        (["key-size", "--amqp", "127.0.0.1:1"], 2, "it takes --self alone"),
        (["devices", "--self", "--devices", "3x"], 2, "3x: expected cpu, software, or cards"),
        (["stream", "--self", "--size", "0"], 2, "expected bytes"),
        (["stream", "--self", "--sign-batch", "1025"], 2, "1025 is not in 1..=1024"),
        (["stream", "--self", "--sign-batch", "1,0"], 2, "0 is not in 1..=1024"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_explained(arguments, code, why):
    done = run("perf", *arguments)
    assert done.returncode == code and why in done.stderr.decode(), done.stderr.decode()


def test_a_queue_that_is_not_there_is_named(qm):
    told = perf("stream", "--amqp", qm.clear_address, "--queue", "NO.SUCH", *SHORT, code=1)
    assert "2085" in told


@pytest.mark.skipif(not test_artemis.HOME, reason="ARTEMIS_HOME names no installation: no other broker was measured")
def test_another_broker_is_measured_from_outside(tmp_path):
    broker = test_artemis.Artemis(tmp_path)
    try:
        out = tmp_path / "results.jsonl"
        target = ("--amqp", f"127.0.0.1:{broker.port}", *SHORT, "--repeats", 1, "--out", out)
        perf("stream", *target, "--queue", "orders", "--rate", 500, code=HELD_OR_NOT)
        perf("request-reply", *target, "--queue", "orders,invoices")
        samples = [json.loads(line) for line in out.read_text().splitlines()]
        assert [line["kind"] for line in samples] == ["run", "sample", "run", "sample"]
        assert samples[1]["transactions"] > 0 and samples[3]["transactions"] > 0
    finally:
        broker.stop()
