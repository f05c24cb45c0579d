"""What the README and the pages for operators tell a reader to type works, in order, from an empty directory.

A block of a page in `docs/operating` is run as it stands, unless a comment on the line before it says otherwise:
`<!-- not run: REASON -->`, `<!-- run at two -->` on the other one of two hosts, `<!-- exits with N -->`.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from channels import status, wait_for_status

from manager import BULLA, Manager

ROOT = Path(__file__).parents[2]
# The blocks are run as they stand; only the ports differ, because 5672 may be taken on the machine that runs the tests.
PRELUDE = """
set -euo pipefail
bulla() {
    case $1 in
        put|get|error) "$BULLA" "$@" --amqp "$AMQP" ;;
        *) "$BULLA" "$@" ;;
    esac
}
scp() {
    local host=${!#}
    cp -- "${@:1:$#-1}" "../${host%:}/"
}
"""
OPERATING = ROOT / "docs/operating"


def shell_blocks(page, heading):
    """The sh blocks of a section, in order."""
    section = re.split(rf"^## {heading}$", page, flags=re.MULTILINE)[1]
    section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


def test_the_readmes_day_to_day_works_as_it_is_written(tmp_path):
    start, *others = shell_blocks((ROOT / "README.md").read_text(), "Day to day")
    assert start == "bulla start\n" and len(others) == 2
    manager = Manager(tmp_path / "bulla-data", grants=None)
    try:
        script = PRELUDE + "".join(others)
        environment = os.environ | {"BULLA": BULLA, "AMQP": manager.clear_address}
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        [message] = (tmp_path / "inbox").iterdir()
        assert message.read_text() == "two tons of barley\n"
        assert "ORDERS" in done.stdout
    finally:
        assert manager.stop() == 0


class Block:
    """A block of commands in a page, and what the comment before it says."""

    PATTERN = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(sh|console|mqsc)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

    def __init__(self, page, found, line):
        self.mark, self.language, self.text = found.groups(default="")
        self.place = f"{page}:{line}"
        self.first = self.text.splitlines()[0]

    @property
    def runs(self):
        reason = re.fullmatch(r"not run: (.*)", self.mark)
        assert reason is None or len(reason[1]) > 10, f"{self.place}: no reason why it is not run"
        return reason is None

    @property
    def host(self):
        return "two" if self.mark == "run at two" else "one"

    @property
    def code(self):
        exits = re.fullmatch(r"exits with (\d+)", self.mark)
        return int(exits[1]) if exits else 0


def blocks(page):
    text = (OPERATING / page).read_text()
    return [Block(page, found, text.count("\n", 0, found.start(2)) + 1) for found in Block.PATTERN.finditer(text)]


class Host:
    """A directory to type commands in, with a queue manager whose data directory is the default one below it."""

    def __init__(self, folder, name):
        folder.mkdir()
        self.folder = folder
        self.manager = Manager(folder / "bulla-data", name=name)

    def shell(self, script, code, place):
        environment = os.environ | {"BULLA": BULLA, "AMQP": self.manager.clear_address}
        done = subprocess.run(
            ["bash", "-c", PRELUDE + script],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, f"{place}: exit {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def console(self, block):
        """Each command, and whether it printed the lines that the page has below it, whatever the numbers in them."""
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            shown = re.fullmatch(r"cat (\S+)", command)
            if shown and not (self.folder / shown[1]).exists():
                # A file that the reader writes.
                (self.folder / shown[1]).write_text(printed)
            answer = without_numbers(self.shell(command, block.code, block.place))
            for line in without_numbers(printed).splitlines():
                assert line in answer.splitlines(), f"{block.place}: `{command}` did not print {line!r} but:\n{answer}"


def without_numbers(text):
    return re.sub(r"\d+", "0", text)


class Hosts:
    """The hosts `one` with the queue manager QM1 and, where a page needs it, `two` with QM2."""

    def __init__(self, folder, *names):
        self.hosts = {}
        for name, manager in zip(names, ("QM1", "QM2"), strict=False):
            self.hosts[name] = Host(folder / name, manager)
        self.one = self.hosts["one"]
        self.two = self.hosts.get("two")

    def run(self, block):
        """Runs a block, if it is for running; whether it was."""
        if not block.runs:
            return False
        host = self.hosts[block.host]
        if block.language == "sh":
            host.shell(block.text, block.code, block.place)
        elif block.language == "console":
            host.console(block)
        else:
            text = re.sub(r"'(one|two)\((567[12])\)'", self.address, block.text)
            done = host.manager.run("mqsc", "--data", host.manager.data, "-", stdin=text.encode(), code=None)
            assert done.returncode == block.code, f"{block.place}: {done.stdout.decode()}{done.stderr.decode()}"
        return True

    def address(self, found):
        """Where the host's listener is in this test."""
        ports = self.hosts[found[1]].manager.ports
        return f"'127.0.0.1({ports['amqp' if found[2] == '5672' else 'amqps']})'"

    def end(self):
        for host in self.hosts.values():
            host.manager.kill()


@pytest.fixture
def hosts(tmp_path):
    made = []

    def make(*names):
        made.append(Hosts(tmp_path, *names))
        return made[-1]

    yield make
    for each in made:
        each.end()


def message_arrives(hosts, number):
    hosts.one.shell(f"echo {number} > {number}; bulla put BILLING {number}", 0, "a put")
    hosts.two.manager.wait_for_depth("INVOICES", number)


def test_a_channel_without_and_with_tls_works_as_the_pages_say(hosts):
    hosts = hosts("one", "two")
    one, two = hosts.one.manager, hosts.two.manager
    ran = 0
    for block in blocks("channels.md"):
        if "ALTER CHANNEL" in block.text and block.host == "one":
            message_arrives(hosts, 1)
            assert sum(hosts.run(other) for other in blocks("tls.md")) >= 5
        if block.first.startswith("START CHANNEL"):
            wait_for_status(one, "QM1.QM2", "STOPPED")
        if block.first.startswith("bulla error list"):
            wait_for_status(one, "QM1.QM2", "RUNNING")
            assert status(one, "QM1.QM2")["SSLPEER"] == "CN=QM2,O=Demo"
            message_arrives(hosts, 2)
            two.mqsc("ALTER QLOCAL(INVOICES) PUT(DISABLED); ALTER CHANNEL(QM1.QM2) MRRTY(0)")
            one.mqsc("STOP CHANNEL(QM1.QM2)")
            wait_for_status(one, "QM1.QM2", "STOPPED")
            one.mqsc("START CHANNEL(QM1.QM2)")
            hosts.one.shell("bulla put BILLING 1", 0, "a put")
            two.wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
            two.mqsc("ALTER QLOCAL(INVOICES) PUT(ENABLED)")
        ran += hosts.run(block)
    assert ran >= 6
    two.wait_for_depth("INVOICES", 3)
