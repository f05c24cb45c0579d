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

from manager import BULLA, GRANTS, Manager, shown_rows

ROOT = Path(__file__).parents[2]
# The blocks are run as they stand; only the ports differ, because 5672 may be taken on the machine that runs the tests.
PRELUDE = """
set -euo pipefail
bulla() {
    case "$1 ${2-}" in
        "error replay") "$BULLA" "$@" ;;
        "put "*|"get "*|"error "*) "$BULLA" "$@" --amqp "$AMQP" ;;
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
    init, start, *others = shell_blocks((ROOT / "README.md").read_text(), "Day to day")
    assert start == "bulla start\n" and len(others) == 1
    made = subprocess.run(
        ["bash", "-c", PRELUDE + init], cwd=tmp_path, env=os.environ | {"BULLA": BULLA}, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
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

    def __init__(self, folder, name, **settings):
        folder.mkdir()
        self.folder = folder
        self.manager = Manager(folder / "bulla-data", name=name, **settings)

    def shell(self, script, code, place):
        ports = self.manager.ports
        for name, port in (("amqp", 5672), ("amqps", 5671)):
            script = script.replace(f"localhost:{port}", f"localhost:{ports[name]}")
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
                pattern = re.sub(r"[0-9a-f]*…", ".*", re.escape(line))
                assert re.search(f"^{pattern}$", answer, re.MULTILINE), (
                    f"{block.place}: `{command}` printed no {line!r} but:\n{answer}"
                )


def without_numbers(text):
    return re.sub(r"\d+", "0", text)


class Hosts:
    """The hosts `one` with the queue manager QM1 and, where a page needs it, `two` with QM2."""

    def __init__(self, folder, *names, **settings):
        self.hosts = {}
        for name, manager in zip(names, ("QM1", "QM2"), strict=False):
            self.hosts[name] = Host(folder / name, manager, **settings)
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

    def make(*names, **settings):
        made.append(Hosts(tmp_path, *names, **settings))
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



# The page's own number of a message is another one in the test.
PRINTED_NUMBER = "1099511627778"
ORDERS_TO_BILLING = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT, INQ)
SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET, BROWSE, INQ)
SET AUTHREC PROFILE(SYSTEM.PROTECTION.ERROR.QUEUE) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)
DEFINE QLOCAL(ORDERS)
"""
PRIVACY = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Demo') RECIP('CN=billing,O=Demo')"


def channel_from_two(hosts):
    hosts.one.manager.mqsc("DEFINE CHANNEL(QM2.QM1) CHLTYPE(RCVR) MRRTY(0)")
    hosts.two.manager.mqsc(
        f"""
        DEFINE QLOCAL(QM1) USAGE(XMITQ) TRIGGER
        DEFINE QREMOTE(ORDERS) RNAME(ORDERS.EU) RQMNAME(QM1)
        DEFINE CHANNEL(QM2.QM1) CHLTYPE(SDR) CONNAME('127.0.0.1({hosts.one.manager.ports["amqp"]})') XMITQ(QM1)
        """
    )


def first_dead_letter(hosts, block):
    channel_from_two(hosts)
    next_dead_letter(hosts, block)


def next_dead_letter(hosts, block):
    """A message that the channel from QM2 can't put on ORDERS.EU, which has room again afterwards."""
    one = hosts.one.manager
    hosts.one.shell("bulla put ORDERS.EU text", 0, "a put")
    hosts.two.shell("bulla put ORDERS text", 0, "a put")
    one.wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
    one.mqsc("CLEAR QLOCAL(ORDERS.EU)")
    done = one.run("mqsc", "--data", one.data, "--json", "-c", "DISPLAY DEADMSG(SYSTEM.DEAD.LETTER.QUEUE)")
    [dead] = shown_rows(done.stdout)
    block.text = block.text.replace(PRINTED_NUMBER, str(dead["MSGNUM"]))


def private(hosts, block):
    hosts.one.manager.mqsc(f"SET POLICY(ORDERS) {PRIVACY}")


def defective_message(hosts, block):
    """A message that was put before the policy asked for encryption."""
    manager = hosts.one.manager
    manager.mqsc("DELETE POLICY(ORDERS); SET POLICY(ORDERS) SIGNALG(SHA256) SIGNER('CN=orders,O=Demo')")
    for user in ("orders", "billing"):
        manager.add_user(user)
    manager.run("put", "ORDERS", hosts.one.folder / "text", *manager.cli("orders"))
    private(hosts, block)
    manager.run("get", "ORDERS", *manager.cli("billing"), code=None)
    manager.wait_for_depth("SYSTEM.PROTECTION.ERROR.QUEUE", 1)


def people_with_keys(hosts, block):
    """`orders` signs for `billing`, as the README has it."""
    private(hosts, block)
    for user in ("orders", "billing"):
        hosts.one.manager.add_user(user)
    hosts.one.shell(
        """
        bulla cert create --ca demo --dn 'CN=Demo authority,O=Demo'
        bulla cert create --ring orders --dn 'CN=orders,O=Demo' --signer demo
        bulla cert create --ring billing --dn 'CN=billing,O=Demo' --signer demo --share orders
        """,
        0,
        "keys",
    )


def deep_queue(hosts, block):
    hosts.one.manager.mqsc("ALTER QLOCAL(ORDERS) MAXDEPTH(1)")
    hosts.one.shell("bulla put ORDERS text", 0, "a put")


def wanted_definitions(hosts, block):
    manager = hosts.one.manager
    exported = manager.run("mqsc", "--data", manager.data, "--export").stdout.decode()
    (hosts.one.folder / "wanted.mqsc").write_text(exported + "DEFINE QALIAS(ORDERS) TARGET(STOCK)\n")


def refusal_and_command(hosts, block):
    manager = hosts.one.manager
    manager.add_user("orders")
    manager.run("put", "SECRET", hosts.one.folder / "text", *manager.cli("orders"), code=None)
    manager.mqsc("SET AUTHREC PROFILE('SECRET') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT)")


def two_orders(hosts, block):
    (hosts.one.folder / "orders").mkdir()
    for name in "ab":
        (hosts.one.folder / "orders" / name).write_text(name)


class Page:
    """What a page takes for granted: commands given before, whether they are all that is granted, a second host, and
    what is done just before the block that begins with some words."""

    def __init__(self, given="", grants=GRANTS, two=False, before=()):
        self.given = given
        self.grants = grants
        self.names = ("one", "two") if two else ("one",)
        self.before = dict(before)


def passwords(hosts, block):
    """The two users can sign in."""
    manager = hosts.one.manager
    for user in ("orders", "billing"):
        manager.add_user(user)
        (hosts.one.folder / f"{user}.password").write_text(manager.passwords[user] + "\n")


def documents_beside(hosts, block):
    """The pages themselves, as in a copy of the repository: commands name results and profiles that are kept there."""
    (hosts.one.folder / "docs").symlink_to(ROOT / "docs")


def other_definitions(hosts, _):
    (hosts.one.folder / "qma.dump").write_text("DEFINE QLOCAL('ORDERS') +\n   DISTL(NO) +\n   MAXDEPTH(7) +\n   REPLACE\n")


def other_policies(hosts, _):
    exported = 'setmqspl -m QMA -p ORDERS -s SHA256 -a "CN=orders,O=Demo" -c 0 -t 0\n'
    (hosts.one.folder / "qma.policies").write_text(exported)


PAGES = {
    "algorithms.md": Page(),
    "authority.md": Page(),
    "capacity.md": Page(
        f"DEFINE QLOCAL(ORDERS); SET POLICY(ORDERS) {PRIVACY}",
        before={"$ bulla plan predict": documents_beside},
    ),
    "perf.md": Page("DEFINE QLOCAL(ORDERS)"),
    "perf-channels.md": Page(),
    "perf-published.md": Page(),
    "perf-trade.md": Page(),
    "dead-letters.md": Page(
        "DEFINE QLOCAL(ORDERS.EU) MAXDEPTH(1); DEFINE QLOCAL(REJECTED)",
        two=True,
        before={"$ bulla mqsc -c": first_dead_letter, "$ cat dlq.rules": next_dead_letter},
    ),
    "protection.md": Page(
        grants=ORDERS_TO_BILLING,
        before={"bulla policy check": private, "bulla error list": defective_message},
    ),
    "enrolment.md": Page(grants=ORDERS_TO_BILLING),
    "reseal.md": Page(grants=ORDERS_TO_BILLING),
    "key-rotation.md": Page(
        "SET AUTHREC PROFILE(SYSTEM.ADMIN.QMGR.EVENT) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(GET)",
        grants=ORDERS_TO_BILLING,
        before={"bulla cert create --ring orders": passwords},
    ),
    "doctor.md": Page(grants=ORDERS_TO_BILLING, before={"bulla doctor ORDERS": people_with_keys}),
    "queues.md": Page("DEFINE QLOCAL(ORDERS)"),
    "http.md": Page(),
    "install.md": Page(),
    "sign-in.md": Page(),
    "topics.md": Page("DEFINE QLOCAL(AUDIT.PRICES)"),
    "audit.md": Page(
        grants="SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)",
        before={"$ bulla audit show": refusal_and_command},
    ),
    "configuration.md": Page(before={"bulla mqsc --export": wanted_definitions}),
    "devices.md": Page(),
    "transit.md": Page(),
    "events.md": Page(before={"$ bulla get": deep_queue}),
    "from-ibm-mq.md": Page(
        before={"bulla mqsc --import-mq": other_definitions, "bulla policy import": other_policies}
    ),
    "limits.md": Page("DEFINE QLOCAL(ORDERS)"),
    "tasks.md": Page(),
    "triggers.md": Page(),
    "units-of-work.md": Page("DEFINE QLOCAL(ORDERS)", before={"bulla put ORDERS": two_orders}),
}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_pages_commands_work_as_they_are_written(hosts, page):
    assumed = PAGES[page]
    hosts = hosts(*assumed.names, grants=assumed.grants)
    hosts.one.manager.mqsc(assumed.given)
    for host in hosts.hosts.values():
        (host.folder / "text").write_text("two tons of barley\n")
    ran = 0
    for block in blocks(page):
        for words, prepare in assumed.before.items():
            if block.first.startswith(words):
                prepare(hosts, block)
        ran += hosts.run(block)
    assert ran > 0, f"{page}: none of its blocks was run"


def test_every_page_with_commands_is_run_or_says_why_not():
    # Those of shared-queues.md need servers on three machines: test_shared_groups.py gives the same ones.
    run = {*PAGES, "channels.md", "tls.md", "shared-queues.md"}
    commands = {page.name for page in OPERATING.glob("*.md") if blocks(page.name)}
    assert commands == run
    for page in OPERATING.glob("*.md"):
        opened = re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE)[::2]
        assert all(opened), f"{page.name}: a block does not say its language"
