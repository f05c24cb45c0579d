"""The dead-letter handler: rules decide, and each message is dealt with exactly once."""

import subprocess

import pytest
from proton import Delivery, Message

from manager import BULLA, DEAD_LETTER_QUEUE, label, shown_rows, wait_until


@pytest.fixture(autouse=True)
def queues(qm):
    qm.mqsc("DEFINE QLOCAL(A) REPLACE\nDEFINE QLOCAL(B) REPLACE\nDEFINE QLOCAL(REJECTED) REPLACE")
    yield
    for queue in ("A", "B", "REJECTED", DEAD_LETTER_QUEUE):
        qm.mqsc(f"CLEAR QLOCAL({queue})")


def reject(qm, queue, body, **fields):
    """A message that its reader rejects lies on the dead-letter queue afterwards."""
    with qm.connect() as client:
        client.put(queue, Message(body=body, **fields))
        receiver = client.receiver(queue)
        message = receiver.next(accept=False)
        receiver.settle(message.delivery, Delivery.REJECTED)
        wait_until(lambda: qm.depth(queue) == 0, "it has left its queue")


def handler(qm, tmp_path, rules, *options, code=0):
    path = tmp_path / "rules"
    path.write_text(rules)
    return qm.run("dlq", "--rules", path, "--data", qm.data, *options, code=code)


def bodies(qm, queue):
    with qm.connect() as client:
        return [message.body for message in client.get_all(queue)]


def test_each_message_goes_where_the_first_fitting_rule_says(qm, tmp_path):
    for queue, body in (("A", "a"), ("B", "b"), ("A", "a2")):
        reject(qm, queue, body, durable=True, priority=7)
    rules = "WAIT(NO)\nDESTQ(A) ACTION(RETRY)\nCAUSE(rej*) ACTION(FWD) FWDQ(REJECTED)\n"
    dry = handler(qm, tmp_path, rules, "--dry-run").stdout.decode()
    assert dry.count("line 2: it is put back, up to 1 attempts") == 2 and dry.count("line 3: it goes to REJECTED") == 1
    assert qm.depth(DEAD_LETTER_QUEUE) == 3
    handler(qm, tmp_path, rules)
    assert qm.depth(DEAD_LETTER_QUEUE) == 0
    assert bodies(qm, "A") == ["a", "a2"]
    with qm.connect() as client:
        (message,) = client.get_all("REJECTED")
    assert (message.body, message.durable, message.priority) == ("b", True, 7)
    assert label(message)["queue"] == "B" and label(message)["cause"] == "rejected"


def test_a_label_comes_off_where_the_rule_says_so_and_a_discarded_message_is_gone(qm, tmp_path):
    reject(qm, "A", "moved")
    reject(qm, "B", "gone")
    handler(qm, tmp_path, "DESTQ(A) ACTION(FWD) FWDQ(REJECTED) HEADER(NO)\nACTION(DISCARD)", "--once")
    with qm.connect() as client:
        (message,) = client.get_all("REJECTED")
    assert (message.body, label(message)) == ("moved", {})
    assert qm.depth(DEAD_LETTER_QUEUE) == 0


def test_what_is_ignored_or_fits_no_rule_stays(qm, tmp_path):
    reject(qm, "A", "ignored")
    reject(qm, "B", "unknown")
    handler(qm, tmp_path, "WAIT(NO)\nDESTQ(A) ACTION(IGNORE)\nDESTQ(NOBODY) ACTION(DISCARD)")
    assert bodies(qm, DEAD_LETTER_QUEUE) == ["ignored", "unknown"]


def test_attempts_run_out_and_then_the_next_rule_counts(qm, tmp_path):
    reject(qm, "A", "x")
    qm.mqsc("ALTER QLOCAL(A) PUT(DISABLED)")
    path = tmp_path / "rules"
    path.write_text("RETRYINT(1)\nDESTQ(A) ACTION(RETRY) RETRY(2)\nACTION(FWD) FWDQ(REJECTED)\n")
    running = subprocess.Popen(
        [BULLA, "dlq", "--rules", path, "--data", qm.data], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        qm.wait_for_depth("REJECTED", 1)
    finally:
        running.terminate()
        _, said = running.communicate()
    assert said.count("not put back on A, line 2") == 2
    assert "moved to REJECTED, line 3" in said


def test_rules_that_are_wrong_do_nothing_and_say_where(qm, tmp_path):
    reject(qm, "A", "x")
    refused = handler(qm, tmp_path, "ACTION(DISCARD)\n\nACTION(BURN)\n", "--once", code=2)
    assert b"rules:3: ACTION cannot be BURN" in refused.stderr
    assert qm.depth(DEAD_LETTER_QUEUE) == 1


def test_dead_letters_are_shown_and_one_is_moved_by_its_number(qm):
    reject(qm, "A", "x")
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY DEADMSG({DEAD_LETTER_QUEUE})")
    (shown,) = shown_rows(done.stdout)
    assert (shown["CAUSE"], shown["DESTQ"], shown["PERSIST"]) == ("rejected", "A", "NO")
    number = shown["MSGNUM"]
    assert "1 left" in qm.mqsc(f"REPLAY QLOCAL({DEAD_LETTER_QUEUE}) MSGNUM({number + 1})")
    assert "1 left" in qm.mqsc(f"REPLAY QLOCAL(B) MSGNUM({number})")
    qm.mqsc(f"REPLAY QLOCAL({DEAD_LETTER_QUEUE}) MSGNUM({number}) TO(NONE)", code=4)
    qm.mqsc(f"REPLAY QLOCAL({DEAD_LETTER_QUEUE}) TO(B)", code=2)
    assert "1 message replayed" in qm.mqsc(f"REPLAY QLOCAL({DEAD_LETTER_QUEUE}) MSGNUM({number}) TO(B)")
    assert bodies(qm, "B") == ["x"]


def test_a_look_goes_on_behind_what_stays_and_a_rule_that_leads_nowhere_is_an_attempt(qm, tmp_path):
    with qm.connect() as client:
        sender = client.sender(DEAD_LETTER_QUEUE)
        # These stay, and come first for whoever gets.
        for _ in range(1000):
            client.put(DEAD_LETTER_QUEUE, Message(body="stays", priority=9), sender)
    reject(qm, "A", "behind", priority=0)
    reject(qm, "B", "nowhere", priority=0)
    done = handler(qm, tmp_path, "WAIT(NO)\nDESTQ(B) ACTION(FWD) FWDQ(NOWHERE)\nDESTQ(A) ACTION(DISCARD)\n")
    assert "NOWHERE" in done.stderr.decode() and "2085" in done.stderr.decode()
    assert qm.depth(DEAD_LETTER_QUEUE) == 1001
