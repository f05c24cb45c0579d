"""Triggering: a message that nobody waits for starts a program."""

import json
import subprocess
import sys

import pytest
from proton import Message

from manager import BULLA, DEADLINE, wait_until


@pytest.fixture
def triggered(qm):
    """An initiation queue that a test listens on, and a queue `T` that triggers as it is told."""

    def define(*attributes):
        qm.mqsc(
            "DEFINE QLOCAL(INIT) REPLACE\nDEFINE PROCESS(P) APPLICID('/bin/true') USERDATA('u') REPLACE\n"
            f"DEFINE QLOCAL(T) TRIGGER INITQ(INIT) PROCESS(P) TRIGDATA('NIGHT.RUN') {' '.join(attributes)} REPLACE"
        )

    yield define
    qm.mqsc("CLEAR QLOCAL(T)\nCLEAR QLOCAL(INIT)")


@pytest.fixture
def client(qm):
    with qm.connect() as client:
        yield client


def told(receiver, count):
    """Exactly so many trigger messages come."""
    messages = [receiver.next(DEADLINE) for _ in range(count)]
    # A message that the test itself puts comes behind whatever is there already.
    receiver.client.put("INIT", Message(body="end"))
    assert receiver.next(DEADLINE).body == "end"
    return [json.loads(bytes(message.body)) for message in messages]


def put(client, count, **fields):
    for number in range(count):
        client.put("T", Message(body=number, **fields))


def test_the_first_message_on_an_unserved_queue_triggers_once(triggered, client, qm):
    triggered()
    monitor = client.receiver("INIT", credit=10)
    put(client, 3, durable=True)
    (message,) = told(monitor, 1)
    del message["time"]
    assert message == {
        "qmgr": "BULLA",
        "queue": "T",
        "process": "P",
        "trigdata": "NIGHT.RUN",
        "applicid": "/bin/true",
        "userdata": "u",
        "envrdata": "",
    }
    with qm.connect() as other:
        assert len(other.get_all("T")) == 3
    put(client, 1)
    told(monitor, 1)


def test_nothing_triggers_while_somebody_gets_until_the_last_one_leaves_messages_behind(triggered, client, qm):
    triggered()
    monitor = client.receiver("INIT", credit=10)
    with qm.connect() as other:
        serving = other.receiver("T", credit=0)
        put(client, 2)
        told(monitor, 0)
        serving.close()
    told(monitor, 1)


def test_a_browser_serves_nobody(triggered, client):
    triggered()
    monitor = client.receiver("INIT", credit=10)
    browser = client.receiver("T", credit=0, browse=True)
    put(client, 1)
    told(monitor, 1)
    browser.close()


def test_what_came_while_no_monitor_waited_is_told_when_one_does(triggered, client):
    triggered()
    put(client, 2)
    monitor = client.receiver("INIT", credit=10)
    told(monitor, 1)


def test_every_message_triggers_also_while_somebody_gets(triggered, client):
    triggered("TRIGTYPE(EVERY)")
    monitor = client.receiver("INIT", credit=10)
    serving = client.receiver("T", credit=0)
    put(client, 3)
    told(monitor, 3)
    serving.close()


def test_a_depth_triggers_once_and_turns_triggering_off(triggered, client, qm):
    triggered("TRIGTYPE(DEPTH)", "TRIGDPTH(3)")
    monitor = client.receiver("INIT", credit=10)
    put(client, 2)
    told(monitor, 0)
    put(client, 3)
    told(monitor, 1)
    assert "NOTRIGGER" in qm.mqsc("DISPLAY QLOCAL(T) TRIGGER")
    qm.mqsc("PING QMGR")
    assert "NOTRIGGER" in (qm.data / "objects.mqsc").read_text()
    qm.mqsc("ALTER QLOCAL(T) TRIGGER")
    told(monitor, 1)


def test_messages_below_trigmpri_do_not_count(triggered, client):
    triggered("TRIGMPRI(5)")
    monitor = client.receiver("INIT", credit=10)
    put(client, 2, priority=4)
    told(monitor, 0)
    put(client, 1, priority=5)
    told(monitor, 1)


def test_after_trigint_a_later_message_triggers_again(triggered, client, qm):
    triggered()
    qm.mqsc("ALTER QMGR TRIGINT(0)")
    try:
        monitor = client.receiver("INIT", credit=10)
        put(client, 3)
        told(monitor, 3)
    finally:
        qm.mqsc("ALTER QMGR TRIGINT(999999999)")


def test_a_trigger_message_that_an_initiation_queue_did_not_take_comes_when_it_does(triggered, client, qm):
    triggered()
    qm.mqsc("ALTER QLOCAL(INIT) PUT(DISABLED)")
    monitor = client.receiver("INIT", credit=10)
    put(client, 2, durable=True)
    wait_until(lambda: any("did not go on INIT" in line for line in qm.log), "the log says so")
    qm.mqsc("ALTER QLOCAL(INIT) PUT(ENABLED)")
    told(monitor, 1)


def test_a_definition_that_will_start_nothing_says_so(qm):
    warned = qm.mqsc("DEFINE QLOCAL(W) TRIGGER INITQ(NONE.SUCH)")
    assert "INITQ(NONE.SUCH) is no local queue yet" in warned and "nothing without PROCESS" in warned


class Monitor:
    """`bulla trigger` as a process; its lines as they come."""

    def __init__(self, qm, *options):
        command = [BULLA, "trigger", "--queue", "INIT", "--amqp", qm.clear_address, *map(str, options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_until(lambda: qm.status("INIT")["IPPROCS"] == 1, "the monitor waits")

    def ended(self):
        output, _ = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output


def test_the_monitor_starts_the_program_with_its_arguments_and_no_shell(triggered, client, qm, tmp_path):
    program, seen = tmp_path / "programs/show", tmp_path / "seen"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys, json\njson.dump(sys.argv[1:], open({str(seen)!r}, 'w'))\nsys.exit(3)\n")
    program.chmod(0o755)
    triggered("TRIGTYPE(EVERY)")
    qm.mqsc(f"ALTER PROCESS(P) APPLICID('{program}') USERDATA('$(touch {tmp_path}/shell); a b') ENVRDATA(' ')")
    monitor = Monitor(qm, "--allow", program.parent, "--count", 2, "--at-once", 1)
    put(client, 1)
    wait_until(seen.exists, "the program has run")
    qm.mqsc("ALTER PROCESS(P) APPLICID('/bin/false')")
    put(client, 1)
    code, output = monitor.ended()
    assert code == 0
    assert json.loads(seen.read_text()) == ["T", "BULLA", "NIGHT.RUN", f"$(touch {tmp_path}/shell); a b", ""]
    assert not (tmp_path / "shell").exists()
    assert "has ended: exit status: 3" in output
    # What is not allowed starts nothing, and the trigger message says why where dead letters lie.
    assert "/bin/false is not what --allow lets start" in output
    (dead,) = client.get_all("SYSTEM.DEAD.LETTER.QUEUE")
    assert "is not what --allow lets start" in dead.annotations["x-opt-bulla-details"]


def test_a_monitor_without_anything_allowed_does_not_start(qm):
    done = qm.run("trigger", "--queue", "INIT", "--amqp", qm.clear_address, code=2)
    assert b"--allow" in done.stderr
