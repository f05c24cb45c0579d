"""A process that holds keys keeps its memory to itself: from core files, and from other processes of its user."""

import os
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

    def __init__(self, *arguments):
        program = os.open(BULLA, os.O_RDONLY)
        self.process = subprocess.Popen(
            [f"/proc/self/fd/{program}", *map(str, arguments)],
            pass_fds=[program],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            **USER,
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


def start(reachable, *options):
    return Process("start", "--data", reachable / "qm", "--amqp", "127.0.0.1:0", "--amqps", "none", *options)


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
