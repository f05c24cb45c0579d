"""Clients that mean it no good, all at once: the others go on being served, and nothing of theirs is lost.

The same attacks with rates and for ten minutes are `make hostile`."""

import sys
import time
from pathlib import Path

import pytest
from proton import Message

from manager import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import attacks  # noqa: E402
from test_limits import body, memory  # noqa: E402

MEMORY_MIB = 32
# What the program may need beside the message bodies it was allowed to hold, with some four hundred hostile connections.
OVERHEAD_MIB = 320
# How long the attacks go on at least, seconds, and how many honest messages go to and fro meanwhile.
AT_LEAST, ROUND_TRIPS = 8, 100
LARGE = 20
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
    manager = managers("hostile", options=["--memory", MEMORY_MIB], grants=GRANTS)
    manager.add_user("honest")
    yield manager
    assert manager.process.poll() is None, "".join(manager.log[-30:])
    assert manager.stop() == 0, "".join(manager.log[-30:])


def test_honest_clients_are_served_and_lose_nothing_while_everybody_else_attacks(qm):
    target = attacks.Target(qm.ports["amqp"], qm.ports["amqps"], "HOSTILE.PUTS", "HOSTILE.FULL", "honest")
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
