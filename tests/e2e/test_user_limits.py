"""SET LIMIT: what one user may have at once, whatever others have."""

import time

import pytest
from proton import Message
from proton.reactor import DurableSubscription

from manager import shown_rows, wait_until
from proton_driver import Refused
from sites import reason_and_cause
from test_queues import own_queue


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("user-limits")
    manager.mqsc("DEFINE QLOCAL(Q); DEFINE QLOCAL(LARGE)")
    for name in ("app1", "app2", "other"):
        manager.add_user(name)
    yield manager
    assert manager.process.poll() is None, "".join(manager.log[-30:])
    assert manager.stop() == 0, "".join(manager.log[-30:])


@pytest.fixture(autouse=True)
def unlimited(qm):
    yield
    qm.mqsc("DELETE LIMIT('app*')", code=None)


def status(qm, user):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY LIMITSTATUS('{user}')")
    return shown_rows(done.stdout)[0]


def test_one_connection_too_many_is_refused_with_2025_and_others_are_let_in(qm):
    qm.mqsc("SET LIMIT('app*') MAXCONNS(2)")
    with qm.connect("app1"), qm.connect("app1"):
        for _ in range(3):
            with pytest.raises(Refused) as refused:
                qm.connect("app1")
            assert "2025" in refused.value.description and "user-connections" in refused.value.description
        with qm.connect("app2"), qm.connect("other"):
            assert status(qm, "app1") | {"CURHANDS": 0} == {
                "USER": "app1",
                "LIMIT": "app*",
                "CURCONNS": 2,
                "CURHANDS": 0,
                "CURUNACK": 0,
                "HELDBACK": 0,
                "REFUSED": 3,
                "SEALUSED": 0,
                "SEALHELD": 0,
                "CURSUBS": 0,
                "CURDYNQ": 0,
                "CURTMPQ": 0,
                "CURNDSUB": 0,
            }
    # Once, and not for each of the three.
    qm.says("user app1 has 2 connections")
    assert sum("user app1 has 2 connections" in line for line in qm.log) == 1
    wait_until(lambda: "does not exist" in qm.mqsc("DISPLAY LIMITSTATUS('app1')", code=None), "they are gone")
    qm.connect("app1").close()


def test_one_link_too_many_on_all_connections_together_is_refused_with_2017(qm):
    qm.mqsc("SET LIMIT('app*') MAXHANDS(3)")
    with qm.connect("app1") as one, qm.connect("app1") as two:
        links = [one.sender("Q"), one.receiver("Q"), two.sender("Q")]
        assert reason_and_cause(lambda: two.sender("Q")) == (2017, "user-links")
        assert reason_and_cause(lambda: one.receiver("Q")) == (2017, "user-links")
        links[0].close()
        two.sender("Q")
        assert status(qm, "app1")["CURHANDS"] == 3
    with qm.connect("other") as other:
        assert all(other.sender("Q") for _ in range(4))


def test_a_user_beyond_its_rate_waits_for_credit_and_loses_nothing(qm):
    qm.mqsc("SET LIMIT('app*') MSGRATE(100)")
    count, began = 250, time.monotonic()
    with qm.connect("app1") as client:
        sender = client.sender("Q")
        for number in range(count):
            client.put("Q", Message(body=number), sender)
        # A hundred at once, and the others at a hundred a second; that it is not slower nobody can promise on a busy machine.
        assert time.monotonic() - began > (count - 100) / 100 - 0.2
        assert status(qm, "app1")["HELDBACK"] > 0
        assert [message.body for message in client.get_all("Q", credit=count)] == list(range(count))


def test_no_more_is_delivered_than_may_be_unsettled_until_some_is_settled(qm):
    qm.mqsc("SET LIMIT('app*') UNACKED(10000)")
    with qm.connect("other") as other:
        sender = other.sender("LARGE")
        for number in range(8):
            other.put("LARGE", Message(body=bytes([number]) * 4000, inferred=True), sender)
    with qm.connect("app1") as client:
        receiver = client.receiver("LARGE", credit=8)
        receiver.flush()
        wait_until(lambda: status(qm, "app1")["CURUNACK"] > 10000, "three of them are delivered")
        assert status(qm, "app1")["CURUNACK"] < 16000
        assert qm.status("LARGE")["CURDEPTH"] == 8
        assert [receiver.next().body[0] for _ in range(8)] == list(range(8))
    assert qm.depth("LARGE") == 0


def test_subscriptions_and_queues_that_stay_are_bounded_by_user_also_after_their_links_and_a_restart(managers):
    qm = managers("kept")
    for name in ("app1", "app2"):
        qm.add_user(name)
    qm.mqsc("DEFINE QMODEL(INBOX) DEFTYPE(PERMDYN); SET AUTHREC OBJTYPE(TOPIC) PROFILE(**) PRINCIPAL('*') AUTHADD(ALL)")
    qm.mqsc("SET LIMIT('app*') MAXSUBS(2) MAXDYNQ(1)")

    def subscribe(client, name):
        client.receiver("topic://prices", name=name, options=[DurableSubscription()], credit=0).detach()

    for turn in range(2):
        with qm.connect("app1", container="reader") as client:
            for name in ("one", "two"):
                subscribe(client, name)  # the second time it is there already
            if turn == 0:
                own_queue(client, model="INBOX")[0].close()
            assert reason_and_cause(lambda: subscribe(client, "three")) == (2017, "user-subscriptions")
            assert reason_and_cause(lambda: own_queue(client, model="INBOX")) == (2017, "user-dynamic-queues")
            shown = status(qm, "app1")
            assert (shown["CURSUBS"], shown["CURDYNQ"], shown["REFUSED"]) == (2, 1, 2)
        with qm.connect("app2", container="other") as other:
            if turn == 0:
                subscribe(other, "theirs")
                own_queue(other, model="INBOX")[0].close()
        qm.kill()
        qm.start()
    shown = qm.mqsc("DISPLAY QLOCAL('BULLA.DYNAMIC.*') DYNUSER")
    assert "DYNUSER(app1)" in shown and "DYNUSER(app2)" in shown
    qm.mqsc("SET LIMIT('app*') MAXSUBS(0) MAXDYNQ(2)")
    with qm.connect("app1", container="reader") as client:
        subscribe(client, "three")
        own_queue(client, model="INBOX")[0].close()
        assert reason_and_cause(lambda: own_queue(client, model="INBOX")) == (2017, "user-dynamic-queues")
    assert qm.stop() == 0


def test_limits_are_kept_and_read_back_and_hold_for_who_is_connected(qm):
    with qm.connect("app1") as client:
        client.sender("Q")
        qm.mqsc("SET LIMIT('app*') MAXHANDS(1) MAXCONNS(9)")
        assert reason_and_cause(lambda: client.sender("Q")) == (2017, "user-links")
        qm.mqsc("DELETE LIMIT('app*')")
        client.sender("Q")
    qm.mqsc("SET LIMIT('app*') MAXCONNS(9)")
    assert "SET LIMIT('app*') MAXCONNS(9) MAXHANDS(20000)" in qm.run("mqsc", "--data", qm.data, "--export").stdout.decode()


def test_one_user_leaves_temporary_queues_and_subscriptions_for_the_others(qm):
    qm.mqsc("SET LIMIT('app*') MAXTMPQ(2) MAXNDSUB(1)")
    qm.mqsc("SET AUTHREC PROFILE(SYSTEM.BASE.TOPIC) OBJTYPE(TOPIC) PRINCIPAL('*') AUTHADD(SUB)")
    with qm.connect("app1") as client, qm.connect("app2") as other:
        links = [own_queue(client) for _ in range(2)]
        assert len(links) == 2
        assert reason_and_cause(lambda: own_queue(client)) == (2017, "user-temporary-queues")
        subscriber = client.receiver("topic://t")
        cause = "user-non-durable-subscriptions"
        assert reason_and_cause(lambda: client.receiver("topic://t")) == (2017, cause)
        assert {status(qm, "app1")[key] for key in ("CURTMPQ", "CURNDSUB")} == {2, 1}
        own_queue(other)
        other.receiver("topic://t")
        subscriber.close()
        client.receiver("topic://t")
    with qm.connect("app1") as client:
        wait_until(lambda: status(qm, "app1")["CURTMPQ"] == 0, "they went with their connection")
        own_queue(client)
