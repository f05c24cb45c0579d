"""What packages bring besides the program: what it tells a service manager, completions, manual pages, and the unit.
tests/install/ installs a whole package."""

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from manager import BULLA, DEADLINE, run

TOP = Path(__file__).parents[2]
UNIT = TOP / "packaging/bulla.service"


def test_a_service_manager_hears_that_it_is_up_and_that_it_stops(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(DEADLINE)
        process = subprocess.Popen(
            [BULLA, "start", "--data", tmp_path / "data", "--amqp", "127.0.0.1:0", "--amqps", "none", "--name", "UNIT"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        try:
            assert listener.recv(4096).splitlines() == [b"READY=1", b"STATUS=queue manager UNIT is up"]
            # It listens by then.
            assert run("mqsc", "--data", tmp_path / "data", "-c", "PING QMGR").returncode == 0
            process.send_signal(signal.SIGTERM)
            assert listener.recv(4096).splitlines() == [b"STOPPING=1"]
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, log.decode()


def test_a_service_manager_that_is_gone_is_said_and_stops_nothing(tmp_path):
    process = subprocess.Popen(
        [BULLA, "start", "--data", tmp_path / "data", "--amqp", "127.0.0.1:0", "--amqps", "none"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "nobody")},
        text=True,
    )
    said = []
    for line in process.stderr:
        said.append(line)
        if "service manager" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0 and "the service manager can't be told" in said[-1], said


@pytest.mark.parametrize("words, offered", [
    ("bulla pol", ["policy"]),
    ("bulla policy che", ["check"]),
    ("bulla perf published key", ["key-size"]),
    ("bulla start --amq", ["--amqp", "--amqps"]),
])  # fmt: skip
def test_bash_completes_commands_and_options(words, offered, tmp_path):
    (tmp_path / "bulla.bash").write_bytes(run("completions", "bash").stdout)
    # As bash calls it: the words in COMP_WORDS, the answers in COMPREPLY.
    script = """
        source "$1"
        read -ra COMP_WORDS <<<"$2"
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        function_name=$(complete -p bulla | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        "$function_name" bulla "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script, "bash", tmp_path / "bulla.bash", words], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == offered, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish", "elvish", "powershell"])
def test_other_shells_get_a_script(shell):
    script = run("completions", shell).stdout.decode()
    assert "key-size" in script and "doctor" in script


def test_there_is_a_manual_page_for_each_command(tmp_path):
    assert run("manual", tmp_path / "man").returncode == 0
    pages = {page.name for page in (tmp_path / "man").iterdir()}
    commands = re.findall(r"^  ([a-z-]+)  ", run("--help").stdout.decode(), re.M)
    assert len(commands) > 15
    for command in set(commands) - {"help"}:
        assert f"bulla-{command}.1" in pages, command
    assert {"bulla.1", "bulla-cert-create.1", "bulla-perf-published-key-size.1", "bulla-plan-predict.1"} <= pages
    assert not [page for page in pages if "token-helper" in page]
    start = (tmp_path / "man/bulla-start.1").read_text()
    assert r"\-\-amqps" in start and "Start a queue manager" in start
    if shutil.which("man"):
        shown = subprocess.run(["man", "--warnings", "-l", tmp_path / "man/bulla-start.1"], capture_output=True, text=True)
        assert shown.returncode == 0 and not shown.stderr, shown.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    unit = tmp_path / "bulla.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/bulla", BULLA).replace("man:bulla(1) man:bulla-start(1)", ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=DEADLINE
    )
    # Of other units of this machine it may say what it likes.
    assert not [line for line in done.stderr.splitlines() if "bulla.service" in line], done.stderr


def test_the_unit_keeps_secrets_in_memory():
    """What secrecy.md promises of core dumps and swap, the unit must not take away."""
    said = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"[A-Z]\w+=", line))
    assert (said["LimitCORE"], said["LimitMEMLOCK"], said["UMask"]) == ("0", "infinity", "0077")
    assert (said["Type"], said["User"], said["NoNewPrivileges"]) == ("notify", "bulla", "yes")
