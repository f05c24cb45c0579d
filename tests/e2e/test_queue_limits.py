"""MAXHANDS, UNACKED and MSGRATE of a queue: what all its links may have together, whoever they are."""

import pytest
from proton import Message

from manager import shown_rows, wait_until
from proton_driver import Refused
from sites import reason_and_cause

LARGE = 4000


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("queue-limits", options=["--metrics", "127.0.0.1:0"])
    for name in ("one", "two"):
        manager.add_user(name)
    yield manager
    assert manager.process.poll() is None, "".join(manager.log[-30:])
    assert manager.stop() == 0, "".join(manager.log[-30:])


def metrics(qm):
    lines = qm.metrics().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_one_link_too_many_on_a_queue_is_refused_with_2017_whoever_asks(qm):
    qm.mqsc("DEFINE QLOCAL(HANDS) MAXHANDS(3); DEFINE QALIAS(HANDS.ALIAS) TARGET(HANDS)")
    with qm.connect("one") as one, qm.connect("two") as two:
        links = [one.sender("HANDS"), two.receiver("HANDS"), two.receiver("HANDS", browse=True)]
        for open_link in (one.sender, two.sender, one.receiver):
            assert reason_and_cause(lambda: open_link("HANDS")) == (2017, "queue-links")
        assert reason_and_cause(lambda: one.sender("HANDS.ALIAS")) == (2017, "queue-links")
        assert qm.status("HANDS")["REFUSED"] == 4
        # Once, and not for each of the four.
        qm.says("HANDS has 3 links")
        assert sum("HANDS has 3 links" in line for line in qm.log) == 1
        links[0].close()
        one.sender("HANDS").close()
        qm.mqsc("ALTER QLOCAL(HANDS) MAXHANDS(0)")
        assert all(one.sender("HANDS") for _ in range(4))


def test_puts_beyond_a_queue_s_rate_wait_for_credit_and_nothing_is_lost(qm):
    qm.mqsc("DEFINE QLOCAL(RATE) MSGRATE(50); DEFINE QLOCAL(FREE)")
    with qm.connect("one") as one, qm.connect("two") as two:
        senders = [(client, client.sender("RATE")) for client in (one, two)]
        idle = [one.sender("RATE") for _ in range(12)]
        for number in range(60):
            client, sender = senders[number % 2]
            client.put("RATE", Message(body=number), sender)
        assert qm.status("RATE")["HELDBACK"] > 0
        assert sorted(message.body for message in one.get_all("RATE")) == list(range(60))
        for number in range(100):
            two.put("FREE", Message(body=number))
        assert len(idle) == 12 and qm.status("FREE")["HELDBACK"] == 0
    found = metrics(qm)
    assert found['bulla_queue_limit{queue="RATE",limit="messages_per_second"}'] == 50
    assert found['bulla_queue_held_back_total{queue="RATE"}'] > 0
    assert 'bulla_queue_limit{queue="FREE",limit="messages_per_second"}' not in found


def test_what_needs_no_credit_of_the_queue_is_refused_with_2053_beyond_its_rate(qm):
    qm.mqsc("DEFINE QLOCAL(RELAYED) MSGRATE(1)")
    with qm.connect("one") as one:
        relay = one.sender(None)
        put = lambda: one.put(None, Message(body="x", address="RELAYED"), relay)
        refused = None
        # One a second may pass, however long each takes: of many some come too soon.
        for _ in range(200):
            try:
                put()
            except Refused as error:
                refused = error
                break
        assert (refused.reason, refused.cause) == (2053, "queue-rate")
        assert qm.status("RELAYED")["REFUSED"] == 1
        qm.mqsc("ALTER QLOCAL(RELAYED) MSGRATE(0)")
        put()


def test_no_more_of_a_queue_is_delivered_than_may_be_unsettled_whoever_has_it(qm):
    qm.mqsc("DEFINE QLOCAL(UNACKED) UNACKED(10000)")
    with qm.connect("one") as one, qm.connect("two") as two:
        sender = one.sender("UNACKED")
        for number in range(8):
            one.put("UNACKED", Message(body=bytes([number]) * LARGE, inferred=True), sender)
        first = one.receiver("UNACKED", credit=8)
        first.flush()
        wait_until(lambda: qm.status("UNACKED")["CURUNACK"] > 10000, "three of them are delivered")
        assert qm.status("UNACKED")["CURUNACK"] < 16000
        browser = two.receiver("UNACKED", credit=8, browse=True)
        # Who browses has nothing unsettled, and is shown what nobody has.
        assert [browser.next(accept=False).body[0] for _ in range(5)] == list(range(3, 8))
        second = two.receiver("UNACKED", credit=8)
        second.flush()
        assert qm.status("UNACKED")["CURUNACK"] < 16000
        assert first.wait_for(3)
        before = qm.status("UNACKED")["GETS"]
        got = [first.next().body[0] for _ in range(3)]
        wait_until(lambda: qm.status("UNACKED")["GETS"] == before + 3, "they are settled")
        # What goes on is delivered to either of them, and what its reader keeps goes back with it.
        first.close()
        got += [second.next().body[0] for _ in range(5)]
        assert sorted(got) == list(range(8))
    wait_until(lambda: qm.status("UNACKED")["CURUNACK"] == 0, "nothing is unsettled")


def test_limits_of_queues_are_kept_exported_compared_and_copied_from_models(qm, tmp_path):
    qm.mqsc("DEFINE QLOCAL(KEPT) MAXHANDS(7) UNACKED(65536) MSGRATE(1000); DEFINE QLOCAL(LIKE) LIKE(KEPT)")
    qm.mqsc("DEFINE QMODEL(MODEL) DEFTYPE(TEMPDYN) MAXHANDS(1)")
    exported = qm.run("mqsc", "--data", qm.data, "--export").stdout.decode()
    path = tmp_path / "queues.mqsc"
    path.write_text(exported.replace("MAXHANDS(7)", "MAXHANDS(8)"))
    differs = qm.run("mqsc", "--data", qm.data, "--diff", path, code=None).stdout.decode()
    assert "MAXHANDS(8)" in differs and "UNACKED" not in differs, differs
    assert qm.stop() == 0
    qm.start()
    for queue in ("KEPT", "LIKE"):
        done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY QLOCAL({queue}) MAXHANDS UNACKED MSGRATE")
        row = shown_rows(done.stdout)[0]
        assert (row["MAXHANDS"], row["UNACKED"], row["MSGRATE"]) == (7, 65536, 1000)
