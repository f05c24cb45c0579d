"""Units of work: what is put and got in one happens as a whole, or not at all."""

import os
import random
import subprocess
from types import SimpleNamespace

import pytest
from cproton import pn_data_clear, pn_disposition_data
from proton import Message

from manager import DEADLINE, DEAD_LETTER_QUEUE, label, shown_rows, wait_until
from proton_driver import Refused
from test_clients import CLIENTS
from units import Unit

ROUNDS = int(os.environ.get("BULLA_KILL_ROUNDS", "5"))
SEED = int(os.environ.get("BULLA_KILL_SEED", random.SystemRandom().randrange(1 << 32)))
QUALITIES = {
    "CLEAR": None,
    "INTEGRITY": "SIGNALG(SHA256)",
    "PRIVACY": "SIGNALG(SHA256) ENCALG(AES256)",
    "CONFIDENTIALITY": "ENCALG(AES256) KEYREUSE(UNLIMITED)",
}


def bodies(messages):
    return [message.body for message in messages]


def durable(body):
    return Message(body=body, durable=True)


def browse(qm, queue, user=None):
    with qm.connect(user) as client:
        return client.get_all(queue, browse=True)


@pytest.fixture(scope="module")
def site(qm, people):
    qm.mqsc("DEFINE QLOCAL(A)\nDEFINE QLOCAL(B)\nDEFINE QLOCAL(KEPT)")
    for name, quality in QUALITIES.items():
        qm.mqsc(f"DEFINE QLOCAL({name})")
        if quality:
            signer = f"SIGNER('{people.dn('orders')}')" if "SIGNALG" in quality else ""
            recipient = f"RECIP('{people.dn('billing')}')" if "ENCALG" in quality else ""
            qm.mqsc(f"SET POLICY({name}) {quality} {signer} {recipient}")
    return qm


@pytest.mark.parametrize("settle_first", [True, False], ids=["settled at once", "settled at the end"])
def test_a_unit_commits_as_a_whole_and_backs_out_as_a_whole(site, settle_first):
    with site.connect() as client:
        to_a, to_b = client.sender("A"), client.sender("B")
        for number in range(3):
            client.put("A", durable(number), to_a)
        from_a = client.receiver("A", credit=2)

        unit = Unit(client, settle_first)
        for number in range(5):
            unit.put(to_b, durable(number))
        got = [from_a.next(accept=False) for _ in range(2)]
        assert bodies(got) == [0, 1]
        for message in got:
            unit.accept(from_a, message)
        assert (site.depth("A"), site.depth("B")) == (3, 0)
        wait_until(lambda: site.status("A")["UNCOM"] == 2 and site.status("B")["UNCOM"] == 5, "UNCOM counts both")
        unit.abort()
        wait_until(lambda: site.status("A")["UNCOM"] == 0, "they are given back")
        assert (site.depth("A"), site.depth("B"), site.status("B")["UNCOM"]) == (3, 0, 0)
        found = browse(site, "A")
        assert [(message.body, message.delivery_count) for message in found] == [(0, 1), (1, 1), (2, 0)]

        unit = Unit(client, settle_first)
        for number in range(5):
            unit.put(to_b, durable(number))
        from_a.flow(2)
        for _ in range(2):
            unit.accept(from_a, from_a.next(accept=False))
        unit.commit()
        assert bodies(browse(site, "A")) == [2]
        assert bodies(client.get_all("B")) == list(range(5))
        from_a.close()
        assert bodies(client.get_all("A")) == [2]
        assert (site.depth("A"), site.depth("B")) == (0, 0)


def test_two_units_of_a_connection_end_each_for_itself(site):
    with site.connect() as client:
        sender = client.sender("A")
        one, two = Unit(client), Unit(client)
        assert one.id != two.id
        for number in range(4):
            (one, two)[number % 2].put(sender, durable(number))
        two.commit()
        assert bodies(browse(site, "A")) == [1, 3]
        one.commit()
        assert bodies(client.get_all("A")) == [1, 3, 0, 2]


def test_a_unit_takes_in_links_of_several_sessions(site):
    with site.connect() as client:
        blocking, senders = client.connection, []
        for name in ("A", "B"):
            session = blocking.conn.session()
            session.open()
            link = blocking.container.create_sender(session, name, name=f"of a session of its own, to {name}")
            senders.append(SimpleNamespace(link=link))
        unit = Unit(client)
        for sender in senders:
            unit.put(sender, durable("both"))
        assert (site.depth("A"), site.depth("B")) == (0, 0)
        unit.commit()
        assert bodies(client.get_all("A")) == bodies(client.get_all("B")) == ["both"]


def test_a_unit_is_over_sealed_and_clear_messages_of_each_quality(site):
    with site.connect("orders") as putter, site.connect("billing") as getter:
        senders = {name: putter.sender(name) for name in QUALITIES}
        for end in ("abort", "commit"):
            unit = Unit(putter)
            # The answers are not waited for: messages are being sealed when the discharge comes.
            sent = [unit.send(sender, durable(f"{name} {n}")) for n in range(8) for name, sender in senders.items()]
            getattr(unit, end)()
            # Those that were not ready when the unit was aborted are refused: it was over.
            for delivery in sent if end == "commit" else []:
                unit.outcome(delivery)
            depths = {site.depth(name) for name in QUALITIES}
            assert depths == ({0} if end == "abort" else {8})

        receivers = {name: getter.receiver(name, credit=8) for name in QUALITIES}
        for turn, end in enumerate(("abort", "commit")):
            unit = Unit(getter)
            for name, receiver in receivers.items():
                for number in range(8):
                    message = receiver.next(accept=False)
                    assert (message.body, message.delivery_count) == (f"{name} {number}", turn)
                    unit.accept(receiver, message)
                if end == "abort":
                    receiver.flow(8)
            getattr(unit, end)()
        assert {site.depth(name) for name in QUALITIES} == {0}


def test_a_message_that_can_not_be_sealed_is_refused_within_the_unit(site):
    with site.connect() as client:
        relay, clear = client.sender(None), client.sender("A")
        unit = Unit(client)
        unit.put(clear, durable("stays"))
        with pytest.raises(Refused) as refused:
            unit.put(relay, Message(address="PRIVACY", body="nobody signs this"))
        assert (refused.value.reason, refused.value.cause) == (2063, "no-identity")
        unit.commit()
        assert bodies(client.get_all("A")) == ["stays"]
    assert site.depth("PRIVACY") == 0


def test_what_its_sender_had_settled_can_not_be_refused_in_silence(site):
    site.mqsc("DEFINE QLOCAL(SMALL) MAXMSGL(1000)")
    with site.connect() as client:
        small, clear = client.sender("SMALL"), client.sender("A")
        unit = Unit(client)
        unit.put(clear, durable("no"))
        delivery = unit.send(small, durable(b"x" * 2000))
        delivery.settle()
        with pytest.raises(Refused) as refused:
            unit.commit()
        assert (refused.value.condition, refused.value.reason) == ("amqp:transaction:rollback", 2003)
        assert "2030 MQRC_MSG_TOO_BIG_FOR_Q" in refused.value.description
    assert (site.depth("A"), site.depth("SMALL")) == (0, 0)


def test_a_connection_that_is_gone_backs_out(site):
    with site.connect() as client:
        client.put("KEPT", durable("kept"))
    client = site.connect()
    sender, receiver = client.sender("KEPT"), client.receiver("KEPT", credit=1)
    unit = Unit(client)
    unit.put(sender, durable("never"))
    unit.accept(receiver, receiver.next(accept=False))
    wait_until(lambda: site.status("KEPT")["UNCOM"] == 2, "both are in the unit")
    client.abandon()
    wait_until(lambda: site.status("KEPT")["UNCOM"] == 0, "the unit is backed out")
    with site.connect() as client:
        found = client.get_all("KEPT")
    assert [(message.body, message.delivery_count) for message in found] == [("kept", 1)]


def test_a_coordinator_that_is_detached_backs_out_its_units(site):
    with site.connect() as client:
        sender = client.sender("A")
        unit = Unit(client)
        unit.put(sender, durable("never"))
        control = unit.transaction.txn_ctrl
        control.close()
        client.connection.wait(lambda: control.state & control.REMOTE_CLOSED, timeout=DEADLINE)
        assert (site.depth("A"), site.status("A")["UNCOM"]) == (0, 0)
        client.put("A", durable("the connection goes on"), sender)
        assert bodies(client.get_all("A")) == ["the connection goes on"]


def test_a_unit_reaches_another_queue_manager_s_queue_through_its_transmission_queue(site):
    site.mqsc("DEFINE QLOCAL(QM9) USAGE(XMITQ)\nDEFINE QREMOTE(FAR) RNAME(THERE) RQMNAME(QM9)")
    with site.connect() as client:
        far, near = client.sender("FAR"), client.sender("A")
        unit = Unit(client)
        for number in range(3):
            unit.put(far, durable(number))
        unit.put(near, durable("near"))
        assert site.depth("QM9") == 0
        unit.commit()
        assert (site.depth("QM9"), bodies(client.get_all("A"))) == (3, ["near"])


def test_limits_have_their_reason_codes(site):
    with site.connect() as client:
        sender = client.sender("A")
        site.mqsc("ALTER QMGR MAXUMSGS(4)")
        unit = Unit(client)
        for number in range(4):
            unit.put(sender, durable(number))
        with pytest.raises(Refused) as refused:
            unit.put(sender, durable("one too many"))
        assert (refused.value.reason, refused.value.cause) == (2024, "messages")
        unit.commit()
        assert bodies(client.get_all("A")) == list(range(4))

        site.mqsc("ALTER QMGR MAXUMSGS(10000) MAXUAGE(1)")
        unit = Unit(client)
        unit.put(sender, durable("too slow"))
        wait_until(lambda: site.status("A")["UNCOM"] == 0, "it is backed out")
        with pytest.raises(Refused) as refused:
            unit.commit()
        assert (refused.value.condition, refused.value.reason) == ("amqp:transaction:timeout", 2003)
        site.mqsc("ALTER QMGR MAXUAGE(600)")

        units = [Unit(client) for _ in range(256)]
        with pytest.raises(Refused) as refused:
            Unit(client)
        assert (refused.value.reason, refused.value.cause) == (2024, "units")
        for unit in units:
            unit.commit()
        assert site.depth("A") == 0


def test_a_message_that_is_backed_out_too_often_is_moved_and_still_opens(site, people):
    policy = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')"
    site.mqsc(
        f"""
        DEFINE QLOCAL(POISON.BACKOUT)
        DEFINE QLOCAL(POISON) BOTHRESH(3) BOQNAME(POISON.BACKOUT) BACKOUT(MOVE) HARDENBO
        SET POLICY(POISON) {policy}
        SET POLICY(POISON.BACKOUT) {policy}
        """
    )
    with site.connect("orders") as client:
        client.put("POISON", durable("poison"))
        client.put("POISON", durable("good"))
    with site.connect("billing") as client:
        receiver = client.receiver("POISON", credit=1)
        for turn in range(3):
            unit = Unit(client)
            message = receiver.next(accept=False)
            assert (message.body, message.delivery_count) == ("poison", turn)
            unit.accept(receiver, message)
            unit.abort()
            receiver.flow(1)
        assert receiver.next().body == "good"
        # It can be got once the journal has synced the move, which no client waits for.
        moved = client.get("POISON.BACKOUT")
        assert moved.body == "poison"
        said = label(moved)
        assert (said["reason"], said["cause"], said["queue"]) == (2362, "backout-threshold", "POISON")
    assert (site.depth("POISON"), site.depth("POISON.BACKOUT"), site.depth(DEAD_LETTER_QUEUE)) == (0, 0, 0)


def test_a_link_that_dies_with_a_delivery_counts_towards_the_threshold(site):
    site.mqsc("DEFINE QLOCAL(CRASHES) BOTHRESH(2) BACKOUT(MOVE)")
    with site.connect() as client:
        client.put("CRASHES", durable("poison"))
    for depth in (1, 0):
        client = site.connect()
        assert client.receiver("CRASHES", credit=1).next(accept=False).body == "poison"
        client.abandon()
        wait_until(lambda: site.status("CRASHES")["UNCOM"] == 0, "it is given back")
        site.wait_for_depth("CRASHES", depth)
    with site.connect() as client:
        assert client.get(DEAD_LETTER_QUEUE).body == "poison"
        assert client.get_all(DEAD_LETTER_QUEUE) == []


def test_a_delivery_that_its_client_keeps_has_failed_as_often_as_it_was_backed_out(site):
    site.mqsc("DEFINE QLOCAL(RETRIED)")
    with site.connect() as client:
        client.put("RETRIED", durable("again"))
        receiver = client.receiver("RETRIED", credit=1)
        message = receiver.next(accept=False)
        kept = Unit(client, settle_first=False)
        kept.accept(receiver, message)
        # Proton would give it back by itself, and would say the next unit after this one.
        kept.transaction._pending.clear()
        kept.abort()
        pn_data_clear(pn_disposition_data(message.delivery.local._impl))
        given_back = Unit(client)
        given_back.accept(receiver, message)
        given_back.abort()
        [found] = wait_until(lambda: browse(site, "RETRIED"), "it is back")
        assert found.delivery_count == 2


def test_a_delivery_that_its_client_keeps_can_be_part_of_the_next_unit(site):
    site.mqsc("DEFINE QLOCAL(KEPT.ON)")
    with site.connect() as client:
        client.put("KEPT.ON", durable("again"))
        receiver = client.receiver("KEPT.ON", credit=1)
        message = receiver.next(accept=False)
        for ends in (Unit.abort, Unit.commit):
            unit = Unit(client, settle_first=False)
            unit.accept(receiver, message)
            # Proton would give it back by itself after the first one, or settle it after the second.
            unit.transaction._pending.clear()
            ends(unit)
            pn_data_clear(pn_disposition_data(message.delivery.local._impl))
        assert (site.depth("KEPT.ON"), site.status("KEPT.ON")["UNCOM"]) == (0, 0)


def test_backout_attributes_are_kept(managers):
    manager = managers("attributes")
    manager.mqsc("DEFINE QLOCAL(Q) BOTHRESH(7) BOQNAME(R) HARDENBO BACKOUT(MOVE)\nALTER QMGR MAXUMSGS(77) MAXUAGE(88)")
    for _ in range(2):
        done = manager.run("mqsc", "--data", manager.data, "--json", "-c", "DISPLAY QLOCAL(Q) BOTHRESH BOQNAME HARDENBO BACKOUT")
        shown = shown_rows(done.stdout)[0]
        assert [shown[name] for name in ("BOTHRESH", "BOQNAME", "HARDENBO", "BACKOUT")] == [7, "R", "HARDENBO", "MOVE"]
        assert "MAXUMSGS(77)" in manager.mqsc("DISPLAY QMGR MAXUMSGS MAXUAGE")
        assert manager.stop() == 0
        manager.start()
    manager.stop()


def test_the_command_line_puts_and_gets_in_units(site, tmp_path):
    files = [tmp_path / f"{number}" for number in range(5)]
    for number, file in enumerate(files):
        file.write_text(f"message {number}")
    where = ["--amqp", site.clear_address]
    site.run("put", "A", *files, "--syncpoint", 2, *where)
    assert site.depth("A") == 5
    # The third is not there: the first unit is put, the second one backed out.
    site.run("put", "A", *files[:3], tmp_path / "missing", "--syncpoint", 2, *where, code=None)
    assert site.depth("A") == 7
    out = tmp_path / "out"
    site.run("get", "A", "--syncpoint", 3, "--out", out, *where)
    assert [file.read_text() for file in sorted(out.iterdir())] == [f"message {n}" for n in (0, 1, 2, 3, 4, 0, 1)]
    assert site.depth("A") == 0


def test_jms_sessions_commit_and_roll_back(site):
    line = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{CLIENTS}/jms/target/jms-driver-0.jar:{CLIENTS}/jms/target/dependency/*",
        "Units",
        f"{site.amqp}?jms.prefetchPolicy.all=10",
        "A",
        "B",
    ]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == [
        "put and rolled back: 0 on B",
        "put and committed: 5 on B",
        "got 0 1 2 3 4 redelivered false",
        "got 0 1 2 3 4 redelivered true",
        "moved and committed: 0 on B, 5 on A",
        "two sessions: 2 on B",
        "closed without commit: 2 on B",
    ]
    with site.connect() as client:
        assert bodies(client.get_all("A")) == [f"{number}" for number in range(5)]
        assert bodies(client.get_all("B")) == ["one", "two"]


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_after_a_kill_every_unit_is_there_as_a_whole_or_not_at_all(killed, turn):
    """Each unit gets one message from IN and puts two on each of two queues; the process is killed at some moment."""
    print(f"BULLA_KILL_SEED={SEED}")
    chance = random.Random(f"{SEED}/{turn}")
    length, committed, under_way = 40, [], None
    with killed.connect() as client:
        sender = client.sender("IN")
        for number in range(length):
            client.put("IN", durable(number), sender)
    client = killed.connect("orders")
    left, right, receiver = client.sender("LEFT"), client.sender("RIGHT"), client.receiver("IN", credit=length)
    last = chance.randrange(length)
    for number in range(length):
        unit = Unit(client)
        message = receiver.next(accept=False)
        unit.accept(receiver, message)
        for part in range(2):
            unit.put(left, durable([turn, number, part]))
            unit.put(right, durable([turn, number, part]))
        if number == last:
            under_way = number
            moment = chance.randrange(3)
            if moment == 1:
                # On its way: this one may be there or not, but as a whole.
                unit.transaction.commit()
                client.connection.conn.transport.pending()
                client.connection.container.process()
            elif moment == 2:
                unit.commit()
                committed.append(number)
            break
        if chance.randrange(5) == 0:
            unit.abort()
            receiver.flow(1)
            # It comes again, later: what was backed out is on the queue still.
        else:
            unit.commit()
            committed.append(message.body)
    killed.kill()
    killed.start()
    with killed.connect("billing") as client:
        on_left, on_right = bodies(client.get_all("LEFT", credit=1000)), bodies(client.get_all("RIGHT", credit=1000))
        rest = bodies(client.get_all("IN", credit=1000))
    numbers = [number for _, number, part in on_left if part == 0]
    print(f"{len(committed)} committed, {len(numbers)} found, {len(rest)} left, under way {under_way}")
    assert on_left == on_right, "a unit is on one queue and not on the other"
    assert on_left == [[turn, number, part] for number in numbers for part in range(2)], "a unit is there in part"
    assert len(numbers) + len(rest) == length, "a message was got and what was put for it is not there, or twice"
    assert len(committed) <= len(numbers) <= len(committed) + 1


@pytest.fixture(scope="module")
def killed(managers, authority):
    from people import People

    manager = managers("killed")
    people = People(manager, authority)
    people.add("orders")
    people.add("billing")
    policy = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')"
    manager.mqsc(f"DEFINE QLOCAL(IN)\nDEFINE QLOCAL(LEFT)\nDEFINE QLOCAL(RIGHT)\nSET POLICY(RIGHT) {policy}")
    return manager
