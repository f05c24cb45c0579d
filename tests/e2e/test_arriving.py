"""Messages that are still arriving are bounded in sum: who holds much takes turns, small messages pass, every large one comes to its
end, and who begins messages and never ends them is closed."""

import re
import sys
import threading
from pathlib import Path

import pytest
from proton import Message

from manager import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import frames  # noqa: E402

BOUND_MIB = 2
MIB = 1 << 20
# Of a message that never ends, in frames of this size.
BEGUN, FRAME = 900 << 10, 32 << 10
LARGE = 3 * MIB
WRITERS = 4


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("arriving", options=["--arriving", BOUND_MIB, "--metrics", "127.0.0.1:0"])
    manager.mqsc("DEFINE QLOCAL(Q); DEFINE QLOCAL(BEGUN)")
    yield manager
    assert manager.process.poll() is None, "".join(manager.log[-30:])
    assert manager.stop() == 0, "".join(manager.log[-30:])


def arriving(qm, name):
    return float(re.search(rf"^bulla_arriving_{name} (\S+)$", qm.metrics(), re.MULTILINE)[1])


def begins_a_message(qm, size):
    """A connection that sends so much of a message, and no more."""
    peer = frames.dial(qm.ports["amqp"])
    peer.sendall(frames.opening() + frames.begin() + frames.attach("l", 0, "BEGUN", frames.SENDER))
    wait_until(lambda: b"BEGUN" in (frames.heard(peer) or b""), "the link is attached")
    payload = b"\x00" * FRAME
    for _ in range(size // FRAME):
        peer.sendall(frames.transfer(0, 0, payload, more=True))
    return peer


def test_large_messages_of_many_connections_come_to_their_end_one_after_the_other(qm):
    bodies = [bytes([number]) * LARGE for number in range(WRITERS)]
    failed = []

    def write(body):
        try:
            with qm.connect() as client:
                sender = client.sender("Q")
                for _ in range(3):
                    client.put("Q", Message(body=body, inferred=True), sender)
        except Exception as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(body,), daemon=True) for body in bodies]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert not failed and not any(writer.is_alive() for writer in writers), failed
    with qm.connect() as client:
        receiver = client.receiver("Q", credit=1)
        got = []
        for _ in range(3 * WRITERS):
            got.append(receiver.next().body)
            receiver.flow(1)
    assert sorted(got) == sorted(bodies * 3)
    wait_until(lambda: arriving(qm, "bytes") == 0, "nothing is arriving any more")
    assert arriving(qm, "bytes_limit") == BOUND_MIB * MIB and arriving(qm, "closed_total") == 0


def test_who_begins_messages_and_never_ends_them_stops_nobody_and_is_closed(qm):
    before = arriving(qm, "stopped_total")
    hostile = [begins_a_message(qm, BEGUN) for _ in range(3)]
    wait_until(lambda: arriving(qm, "stopped_total") > before, "one of them is not read any more")
    with qm.connect() as client:
        sender = client.sender("Q")
        for number in range(50):
            client.put("Q", Message(body=number), sender)
        # This one, too, has its turn.
        client.put("Q", Message(body=b"large" * (LARGE // 5), inferred=True), sender)
        assert [message.body for message in client.get_all("Q")][:50] == list(range(50))
    wait_until(lambda: arriving(qm, "closed_total") > 0, "who had its turn and brought nothing is closed")
    wait_until(lambda: any("2071" in line and "arriving-bytes" in line for line in qm.log), "the log says so")
    for peer in hostile:
        peer.close()
    wait_until(lambda: arriving(qm, "bytes") == 0, "nothing is arriving any more")
