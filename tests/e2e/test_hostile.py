"""Clients that mean it no good, all at once: the others go on being served, and nothing of theirs is lost.

The same attacks with rates and for ten minutes are `make hostile`."""

import re
import sys
import time
from pathlib import Path

import pytest
from proton import Message

from manager import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import attacks  # noqa: E402
import rights  # noqa: E402
from test_limits import body, memory  # noqa: E402

MEMORY_MIB = 32
# What the program may need beside the message bodies it was allowed to hold, with some four hundred hostile connections.
OVERHEAD_MIB = 320
# How long the attacks go on at least, seconds, and how many honest messages go to and fro meanwhile.
AT_LEAST, ROUND_TRIPS = 8, 100
LARGE = 20
# How long the loops of users with one right go on at least, seconds, and the lines of the log that all of them may give
# rise to in each second: 20 for refusals, 20 for what clients did, and some that count the rest.
LOOPS_AT_LEAST, LINES_A_SECOND = 4, 60
REFUSED = {"attach_what_is_refused": 2035, "act_as_one_after_the_other": 2035, "put_on_a_full_queue": 2053}
# Words of AUTHADD that are several rights, or none.
NO_RIGHTS = {"ALL", "ALLMQI", "ALLADM", "NONE"}
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(HOSTILE.**) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(PUT, GET, BROWSE)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('honest') AUTHADD(ALL)
DEFINE QLOCAL(HONEST); DEFINE QLOCAL(KEPT) MAXDEPTH(1000000)
DEFINE QLOCAL(HOSTILE.PUTS) MAXDEPTH(1000) FULL(REJECT); DEFINE QLOCAL(HOSTILE.FULL)
SET LIMIT('*ANONYMOUS') MAXCONNS(200) MAXHANDS(2000) UNACKED(4194304) MSGRATE(1000)
"""


@pytest.fixture(scope="module")
def qm(managers):
    options = ["--memory", MEMORY_MIB, "--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]
    manager = managers("hostile", options=options, grants=GRANTS)
    manager.add_user("honest")
    yield manager
    assert manager.process.poll() is None, "".join(manager.log[-30:])
    assert manager.stop() == 0, "".join(manager.log[-30:])


def test_honest_clients_are_served_and_lose_nothing_while_everybody_else_attacks(qm):
    ports = [qm.port(scheme) for scheme in ("amqp", "amqps", "http", "https")]
    target = attacks.Target(*ports, "HOSTILE.PUTS", "HOSTILE.FULL", "honest")
    with qm.connect("honest") as client:
        large = client.sender("HOSTILE.FULL")
        for number in range(LARGE):
            client.put("HOSTILE.FULL", Message(body=body(number), inferred=True), large)
        began, numbers = time.monotonic(), 0
        with attacks.UnderAttack(target, attacks.ATTACKS) as under:
            sender, receiver = client.sender("HONEST"), client.receiver("HONEST", credit=1)
            kept = client.sender("KEPT")
            while numbers < ROUND_TRIPS or time.monotonic() < began + AT_LEAST:
                client.put("HONEST", Message(body=numbers), sender)
                assert receiver.next().body == numbers
                receiver.flow(1)
                client.put("KEPT", Message(body=numbers, durable=True), kept)
                numbers += 1
            # Somebody new is let in, too.
            with qm.connect("honest") as another:
                another.put("HONEST", Message(body="last"))
            assert receiver.next().body == "last"
            receiver.close()
        assert not under.failures
        assert memory(qm) < MEMORY_MIB + OVERHEAD_MIB
        assert [message.body for message in client.get_all("KEPT", credit=numbers + 1)] == list(range(numbers))
    assert "panicked" not in "".join(qm.log)


def test_afterwards_nothing_of_the_attackers_is_left(qm):
    wait_until(lambda: "nothing found" in qm.mqsc("DISPLAY LIMITSTATUS('*')", code=None), "they are gone")


def words(qm, command, keyword):
    """What a keyword of a command may say, as the program's own help has it."""
    return set(re.search(rf"\b{keyword}\(([A-Z |]+)", qm.mqsc(f"HELP {command}"))[1].replace("|", " ").split())


def test_each_right_and_each_role_has_a_loop(qm):
    loops = {loop.right for loop in rights.LOOPS}
    assert loops == words(qm, "SET AUTHREC", "AUTHADD") - NO_RIGHTS | words(qm, "DEFINE ADMIN", "ROLE")


@pytest.fixture(scope="module")
def inside(managers):
    """Another queue manager, with a user for each loop."""
    manager = managers("inside", options=["--memory", MEMORY_MIB, "--http", "127.0.0.1:0"], grants=GRANTS)
    manager.add_user("honest")
    rights.prepare(manager)
    yield manager
    assert manager.process.poll() is None, "".join(manager.log[-30:])
    assert manager.stop() == 0, "".join(manager.log[-30:])


def test_honest_clients_lose_nothing_while_users_with_one_right_each_do_their_worst(inside):
    insiders = [rights.insider(inside, loop.user, reasons=set()) for loop in rights.LOOPS]
    lines, began, numbers = len(inside.log), time.monotonic(), 0
    with inside.connect("honest") as client:
        loops = [attacks.UnderAttack(insider, [loop.run]) for insider, loop in zip(insiders, rights.LOOPS)]
        for loop in loops:
            loop.__enter__()
        sender, receiver, kept = client.sender("HONEST"), client.receiver("HONEST", credit=1), client.sender("KEPT")
        while numbers < ROUND_TRIPS or time.monotonic() < began + LOOPS_AT_LEAST:
            client.put("HONEST", Message(body=numbers), sender)
            assert receiver.next().body == numbers
            receiver.flow(1)
            client.put("KEPT", Message(body=numbers, durable=True), kept)
            numbers += 1
        for loop in loops:
            loop.__exit__()
        receiver.close()
        assert not [failure for loop in loops for failure in loop.failures]
        assert [message.body for message in client.get_all("KEPT", credit=numbers + 1)] == list(range(numbers))
    lasted = time.monotonic() - began
    assert "panicked" not in "".join(inside.log)
    # What administrators did is told of line by line.
    told = ("RIGHTS.NEW", "cleared", "key rotation", rights.ROTATING)
    said = [line for line in inside.log[lines:] if not any(words in line for words in told)]
    assert len(said) < LINES_A_SECOND * (lasted + 1), "".join(said[-60:])
    found = {loop.name: insider.reasons for loop, insider in zip(rights.LOOPS, insiders)}
    # What each is refused with, who is.
    for name, reason in REFUSED.items():
        assert reason in found[name], f"{name}: {found[name]}, not {reason}"


def test_afterwards_nothing_of_the_insiders_is_left(inside):
    wait_until(lambda: "nothing found" in inside.mqsc("DISPLAY LIMITSTATUS('*')", code=None), "they are gone")


def test_where_processors_are_short_dispatchers_go_before_adapters(inside):
    names_and_niceness = []
    for thread in Path(f"/proc/{inside.process.pid}/task").iterdir():
        # Fields behind the name, which may have blanks (proc_pid_stat(5)): the state is the third, niceness the 19th.
        name, rest = (thread / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        names_and_niceness.append((name, int(rest.split()[19 - 3])))
    dispatchers = [nice for name, nice in names_and_niceness if name.startswith("dispatcher-")]
    adapters = [nice for name, nice in names_and_niceness if name.startswith("adapter-")]
    assert dispatchers and adapters
    assert min(adapters) == min(max(dispatchers) + 5, 19), names_and_niceness
