"""Memory and disk stay within their limits, whatever lies on the queues."""

import pytest
from proton import Message

from manager import wait_until

MIB = 1 << 20
# What the program may need beside the message bodies it was allowed to hold: 43 to 62 were seen. Without a limit there
# would be 200 more.
OVERHEAD_MIB = 70


def memory(manager, which="VmHWM"):
    """Mebibytes held at most (VmHWM) or now (VmRSS)."""
    with open(f"/proc/{manager.process.pid}/status") as status:
        line = next(line for line in status if line.startswith(which))
    return int(line.split()[1]) / 1024


def disk(folder):
    """Mebibytes in a folder's files."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / MIB


def body(number):
    return number.to_bytes(4, "big") * (MIB // 4)


def test_an_idle_queue_manager_needs_less_than_40_mebibytes(managers):
    manager = managers("idle")
    # 33 to 37 were seen: with the client of shared logs the code and what is relocated of it came to 3 more than before.
    assert memory(manager) < 40
    assert manager.stop() == 0


@pytest.mark.parametrize("durable", [False, True])
def test_a_backlog_beyond_the_memory_limit_goes_to_disk_and_comes_back_in_order(managers, durable):
    manager = managers(f"backlog-{durable}", options=["--memory", 16])
    manager.mqsc("DEFINE QLOCAL(Q)")
    with manager.connect() as client:
        sender = client.sender("Q")
        for number in range(200):
            client.put("Q", Message(body=body(number), inferred=True, durable=durable), sender)
        assert memory(manager) < 16 + OVERHEAD_MIB
        receiver = client.receiver("Q", credit=4)
        for number in range(200):
            assert receiver.next().body == body(number)
            receiver.flow(1)
        receiver.close()
    assert memory(manager) < 16 + OVERHEAD_MIB
    assert manager.depth("Q") == 0
    assert manager.stop() == 0


def test_a_reader_that_takes_nothing_in_costs_no_second_copy_of_the_backlog(managers):
    manager = managers("stalled", options=["--memory", 16])
    manager.mqsc("DEFINE QLOCAL(Q); DEFINE QLOCAL(OTHER)")
    with manager.connect() as client, manager.connect() as stalled:
        sender = client.sender("Q")
        for number in range(200):
            client.put("Q", Message(body=body(number), inferred=True), sender)
        receiver = stalled.receiver("Q", credit=100_000)
        receiver.flush()
        # Others are served meanwhile.
        for number in range(100):
            client.put("OTHER", Message(body=number, durable=True))
        assert [message.body for message in client.get_all("OTHER")] == list(range(100))
        assert memory(manager) < 16 + OVERHEAD_MIB
        for number in range(200):
            assert receiver.next().body == body(number)
    assert manager.stop() == 0


def test_a_queue_that_is_always_drained_does_not_grow_on_disk(managers):
    manager = managers("drained")
    manager.mqsc("DEFINE QLOCAL(Q); DEFINE QLOCAL(STAYS)")
    with manager.connect() as client:
        client.put("STAYS", Message(body="an old message", durable=True))
        sender, receiver = client.sender("Q"), client.receiver("Q", credit=1)
        for number in range(600):
            client.put("Q", Message(body=body(number), inferred=True, durable=True), sender)
            assert receiver.next().body == body(number)
            receiver.flow(1)
        receiver.close()
        # 600 MiB went through; the message that stays pins at most its own segment.
        wait_until(lambda: disk(manager.data / "journal") < 300, "the journal is small again")
        assert manager.stop() == 0
    manager.start()
    with manager.connect() as client:
        assert client.get("STAYS").body == "an old message"
    assert manager.stop() == 0
