"""A process that holds keys keeps its memory to itself: from core files, and from other processes of its user."""

import os
import resource
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from manager import BULLA, DEADLINE

# Root may look into every process, so the tests become a user that no file of names has.
USER = {"user": 64005, "group": 64005, "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.fixture
def reachable():
    """A directory of the user's own."""
    with tempfile.TemporaryDirectory(prefix="bulla-secrecy-") as folder:
        if USER:
            os.chown(folder, USER["user"], USER["group"])
        yield Path(folder)


class Process:
    """The program as that user, until it has said or done what shows that it is ready."""

    def __init__(self, *arguments, limit=None, user=USER):
        program = os.open(BULLA, os.O_RDONLY)
        self.process = subprocess.Popen(
            [f"/proc/self/fd/{program}", *map(str, arguments)],
            pass_fds=[program],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            preexec_fn=limit,
            **user,
        )
        os.close(program)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE)

    def lines_until(self, text):
        said = []
        for line in self.process.stderr:
            said.append(line)
            if text in line:
                return said
        raise AssertionError("".join(said))

    def look(self, what):
        """What another process of the same user reads of it."""
        command = ["head", "-c", "1", f"/proc/{self.process.pid}/{what}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, **USER)

    def core_limit(self):
        limits = Path(f"/proc/{self.process.pid}/limits").read_text()
        [line] = [line for line in limits.splitlines() if line.startswith("Max core file size")]
        return line.split()[4]


def closed(process):
    assert process.core_limit() == "0"
    for what in ("environ", "mem", "maps"):
        looked = process.look(what)
        assert looked.returncode == 1 and "Permission denied" in looked.stderr, (what, looked)


def start(reachable, *options, limit=None, user=USER):
    settings = ("--data", reachable / "qm", "--amqp", "127.0.0.1:0", "--amqps", "none")
    return Process("start", *settings, *options, limit=limit, user=user)


def test_a_queue_manager_s_memory_is_closed_to_other_processes_of_its_user(reachable):
    with start(reachable) as process:
        process.lines_until("amqp on")
        closed(process)


def test_a_client_s_memory_is_closed_to_other_processes_of_its_user():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Process("get", "Q", "--amqp", f"127.0.0.1:{listener.getsockname()[1]}") as process:
            with listener.accept()[0]:  # it waits for an answer as long as this is open
                closed(process)


def test_dumps_are_allowed_where_that_is_asked_for_with_a_warning(reachable):
    with start(reachable, "--allow-dumps") as process:
        said = process.lines_until("amqp on")
        assert any(" warn --allow-dumps: " in line for line in said), said
        assert process.look("environ").returncode == 0


def locked_bytes(process):
    [line] = [line for line in Path(f"/proc/{process.process.pid}/status").read_text().splitlines() if "VmLck" in line]
    return int(line.split()[1]) << 10


def limited(soft):
    return lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, soft))


CAP_IPC_LOCK = 14


def may_lock():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")]
    return int(line.split()[1], 16) >> CAP_IPC_LOCK & 1


def test_private_keys_are_locked_in_memory_as_far_as_the_limit_allows(reachable):
    with start(reachable, limit=limited(8 << 20)) as process:
        said = process.lines_until("amqp on")
        assert not any("swap" in line for line in said), said
        assert locked_bytes(process) == 8 << 20
    with start(reachable, limit=limited(64 << 10)) as process:
        said = process.lines_until("amqp on")
        warned = [line for line in said if "private keys may be written to swap: RLIMIT_MEMLOCK is 64 KiB" in line]
        assert len(warned) == 1, said
        assert locked_bytes(process) == 0


def test_all_memory_is_locked_where_that_is_asked_for_and_nothing_starts_where_it_can_not_be(reachable):
    with start(reachable, "--lock-memory", limit=limited(8 << 20)) as process:
        assert "--lock-memory: RLIMIT_MEMLOCK is 8192 KiB, and must be unlimited" in process.process.stderr.read()
        assert process.process.wait(DEADLINE) == 5
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pytest.skip("this user may not lock all memory")
    try:
        with start(reachable, "--lock-memory") as process:
            process.lines_until("amqp on")
            assert locked_bytes(process) > 64 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


@pytest.mark.skipif(not may_lock(), reason="this user has no CAP_IPC_LOCK")
def test_all_memory_is_locked_with_the_capability_whatever_the_limit(tmp_path):
    with start(tmp_path, "--lock-memory", limit=limited(8 << 20), user={}) as process:
        process.lines_until("amqp on")
        assert locked_bytes(process) > 64 << 20
