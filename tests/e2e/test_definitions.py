"""What clients define: kept from when they are told of it, and without a file being written for each."""

import time

import pytest
from proton import Message
from proton.reactor import DurableSubscription

from manager import wait_until
from test_queues import own_queue
from test_topics import DURABLE, TOPICS, queues, subscriptions

PERMANENT = "DEFINE QMODEL(INBOX) DEFTYPE(PERMDYN)"


@pytest.fixture
def qm(managers, tmp_path):
    manager = managers(data=tmp_path / "qm")
    manager.mqsc(TOPICS)
    manager.mqsc(PERMANENT)
    return manager


def subscribe(client, name):
    return client.connection.create_receiver("topic://t", name=name, options=[DurableSubscription()])


def test_subscriptions_in_a_loop_do_not_write_the_definitions_each_time(qm):
    path = qm.data / "objects.mqsc"
    written, began = set(), time.monotonic()
    with qm.connect(container="c") as client:
        for number in range(40):
            subscribe(client, f"s{number}").close()
            written.add(path.stat().st_mtime_ns)
    assert len(written) <= 2 + (time.monotonic() - began), "a write a second at most"


def test_what_clients_define_and_delete_is_so_after_a_crash(qm):
    client = qm.connect(container="c")
    for number in range(20):
        subscription = subscribe(client, f"s{number}")
        if number % 2:
            subscription.close()
    kept, inbox = own_queue(client, model="INBOX")
    qm.kill()
    qm.start()
    expected = {f"c|s{number}" for number in range(0, 20, 2)}
    assert set(subscriptions(qm)) == expected
    assert len(queues(qm)) == len(expected)
    assert qm.depth(inbox) == 0
    with qm.connect(container="c") as client:
        subscribe(client, "s0").close()
    wait_until(lambda: "'c|s0'" not in (qm.data / "objects.mqsc").read_text(), "it is written soon")
    assert qm.stop() == 0
    text = (qm.data / "objects.mqsc").read_text()
    assert all(f"'{name}'" in text for name in expected - {"c|s0"}) and "'c|s1'" not in text
    qm.start()
    assert set(subscriptions(qm)) == expected - {"c|s0"}


def test_commands_in_a_loop_are_kept_though_the_file_is_not_written_for_each(qm):
    path = qm.data / "objects.mqsc"
    written, began = set(), time.monotonic()
    for number in range(20):
        qm.mqsc(f"DEFINE QLOCAL(LOOP.{number})")
        written.add(path.stat().st_mtime_ns)
    assert len(written) <= 2 + (time.monotonic() - began), "a write a second at most"
    qm.mqsc("DELETE QLOCAL(LOOP.0)")
    qm.kill()
    qm.start()
    kept = qm.mqsc("DISPLAY QLOCAL(LOOP.*) MAXDEPTH")
    assert [f"QUEUE(LOOP.{number})" in kept for number in range(20)] == [False] + 19 * [True]
    assert "LOOP.19" in qm.run("mqsc", "--data", qm.data, "--export").stdout.decode()
    assert not list(qm.data.glob("objects.mqsc.edited-*"))


def test_an_edited_file_is_kept_aside_and_applied_by_the_command_in_the_log(qm):
    qm.mqsc("DEFINE QLOCAL(THERE) MAXDEPTH(3)")
    assert qm.stop() == 0
    path = qm.data / "objects.mqsc"
    edited = path.read_text().replace("'THERE'", "'OTHER'")
    path.write_text(edited)
    qm.start()
    qm.says("was changed since the queue manager wrote it")
    assert "MAXDEPTH(3)" in qm.mqsc("DISPLAY QLOCAL(THERE) MAXDEPTH")
    aside = qm.data / "objects.mqsc.edited-1"
    assert aside.read_text() == edited and "'THERE'" in path.read_text()
    [line] = [line for line in qm.log if "was changed since" in line]
    command = line.rsplit("to make it so: ", 1)[1].split()
    assert command[0] == "bulla" and str(aside) in command
    qm.run(*command[1:])
    assert "2085" in qm.mqsc("DISPLAY QLOCAL(THERE)", code=4)
    assert "MAXDEPTH(3)" in qm.mqsc("DISPLAY QLOCAL(OTHER) MAXDEPTH")
    assert qm.stop() == 0
    qm.start()
    assert sum("was changed since" in line for line in qm.log) == 1


def test_a_file_without_its_last_line_takes_nothing_that_clients_defined_away(qm):
    client = qm.connect(container="c")
    subscribe(client, "s").detach()
    _, inbox = own_queue(client, model="INBOX")
    for address in ("topic://t", inbox):
        client.connection.create_sender(address).send(Message(body=address, durable=True))
    assert qm.stop() == 0
    # As an older version wrote it. The journal has what is defined.
    path = qm.data / "objects.mqsc"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "copy of journal" not in line))
    for _ in range(2):
        qm.start()
        assert set(subscriptions(qm)) == {"c|s"}
        assert [qm.depth(queue) for queue in (*queues(qm), inbox)] == [1, 1]
        qm.stop()


def test_a_command_is_not_undone_by_what_was_noted_before(qm):
    client = qm.connect(container="c")
    subscribe(client, "gone").detach()
    subscribe(client, "kept").detach()
    qm.mqsc("DELETE SUB('c|gone')")
    qm.kill()
    qm.start()
    assert set(subscriptions(qm)) == {"c|kept"}
