"""Whatever ends a measurement, its queue managers end with it; in order, its scratch directories go too."""

import os
import signal
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from manager import BULLA, DEADLINE, wait_until

# A system of which everything that a check asks for can be predicted.
KEYS = ("rsa1024", "rsa2048", "rsa4096", "p256", "p384", "p521")
PROFILE = "\n".join(
    chain(
        ["format = 1", "name = 'some'", "source = 'a test'", "[cores]", "count = 2", "[threads]", "dispatchers = 1", "adapters = 2"],
        *([f"[cpu.{key}]", "sign = 100.0", "verify = 20.0", "wrap = 20.0", "unwrap = 100.0"] for key in KEYS),
        ["[costs.application]", "put = { message-us = 1.0 }", "get = { message-us = 1.0 }"],
        ["[costs.queue-manager]", "put = { message-us = 1.0 }", "get = { message-us = 1.0 }"],
    )
)


def status(pid):
    """A process's state, parent and start; none where it is not there any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), fields[19]


def queue_managers(parent):
    """Those that the process has started: number and start, which no other process has together."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        known = status(folder.name)
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if known and known[1] == parent and b"start" in words:
            found.append((folder.name, known[2]))
    return found


def is_gone(pid, start):
    """Nothing of it is left but what its parent has not looked at."""
    known = status(pid)
    return known is None or known[0] == "Z" or known[2] != start


@pytest.fixture
def begun(tmp_path):
    """Starts a measurement, with its scratch directories in a folder of their own and what it says in a file."""
    processes = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def begin(*arguments):
        with open(tmp_path / "said", "wb") as said:
            process = subprocess.Popen(
                [BULLA, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # Under nohup the signal would be passed on as one to ignore.
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
                env={**os.environ, "TMPDIR": str(scratch)},
            )
        processes.append(process)
        return process, scratch, lambda: (tmp_path / "said").read_text()

    yield begin
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_queue_managers_of_a_measurement_end_when_a_signal_ends_it_at_once(begun, tmp_path, how):
    out = tmp_path / "results.jsonl"
    # Two of them, with a channel between.
    process, scratch, _ = begun("perf", "stream", "--self", "--topology", "channel", "--rate", "500", "--warm-up", "0",
                                "--seconds", "0.3", "--repeats", "1000", "--quality", "none", "--out", out)  # fmt: skip
    wait_until(lambda: out.exists() and '"sample"' in out.read_text(), "a sample is written")
    managers = queue_managers(process.pid)
    assert len(managers) == 2
    process.send_signal(how)
    assert process.wait(DEADLINE) == -how
    wait_until(lambda: all(is_gone(*manager) for manager in managers), "its queue managers have ended")
    assert len(list(scratch.iterdir())) >= 2, "nobody was left to clear up"


def test_queue_managers_of_a_measurement_end_at_the_second_ctrl_c(begun, tmp_path):
    out = tmp_path / "results.jsonl"
    process, _, _ = begun("perf", "stream", "--self", "--warm-up", "0", "--seconds", "0.3", "--repeats", "1000", "--quality", "none",
                          "--out", out)  # fmt: skip
    wait_until(lambda: out.exists() and '"sample"' in out.read_text(), "a sample is written")
    managers = queue_managers(process.pid)
    assert len(managers) == 1

    def ends():
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    wait_until(ends, "it has ended")
    assert process.returncode == 130
    wait_until(lambda: all(is_gone(*manager) for manager in managers), "its queue manager has ended")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_check_of_predictions_ends_in_order_and_clears_up(begun, tmp_path, how):
    profile, out = tmp_path / "profile.toml", tmp_path / "results.jsonl"
    profile.write_text(PROFILE)
    process, scratch, said = begun("plan", "check", "--profile", profile, "--repeats", 1, "--seconds", 60, "--out", out)
    wait_until(lambda: "1 of " in said() and queue_managers(process.pid), "the first run has begun", 2 * DEADLINE)
    managers = queue_managers(process.pid)
    process.send_signal(how)
    assert process.wait(DEADLINE) == 130
    assert "interrupted" in said()
    assert all(is_gone(*manager) for manager in managers)
    assert list(scratch.iterdir()) == [] and not out.exists()


def test_a_calibration_that_is_interrupted_leaves_no_profile(begun, tmp_path):
    profile = tmp_path / "profile.toml"
    process, scratch, said = begun("plan", "calibrate", "-o", profile)
    wait_until(lambda: "round 1 of" in said(), "it has begun")
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE) == 130
    assert "interrupted" in said() and not profile.exists()
    assert list(scratch.iterdir()) == []


def test_a_queue_manager_that_is_asked_to_ends_with_its_standard_input(tmp_path):
    command = [BULLA, "start", "--data", tmp_path / "data", "--amqp", "127.0.0.1:0", "--amqps", "none", "--until-stdin-closes"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        # What is written there is read and means nothing.
        process.stdin.write(b"x" * (1 << 20))
        process.stdin.flush()
        assert process.poll() is None
        _, said = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0 and b"standard input has ended" in said
    finally:
        process.kill()
        process.wait()
