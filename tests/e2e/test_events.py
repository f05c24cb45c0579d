"""Events: messages on SYSTEM.ADMIN queues and lines of the log; none can loop, and none can fail a put."""

import json
import socket
import ssl

import pytest
from proton import Message

from channels import Route
from manager import wait_until
from proton_driver import Refused

PERFORMANCE = "SYSTEM.ADMIN.PERFM.EVENT"
CHANNEL = "SYSTEM.ADMIN.CHANNEL.EVENT"
MANAGER = "SYSTEM.ADMIN.QMGR.EVENT"


def events(manager, queue):
    """Takes the events that are there, as dictionaries, and checks what stands around them."""
    with manager.connect() as client:
        messages = client.get_all(queue)
    found = []
    for message in messages:
        event = json.loads(bytes(message.body))
        assert str(message.content_type) == "application/json"
        assert message.subject == event["event"] == message.properties["event"]
        assert message.properties["reason"] == event["reason"]
        found.append(event)
    return found


def put(manager, queue, count):
    with manager.connect() as client:
        for number in range(count):
            client.put(queue, Message(body=number))


@pytest.fixture
def watched(qm):
    qm.mqsc(
        "ALTER QMGR PERFMEV(ENABLED)\n"
        "DEFINE QLOCAL(DEEP) MAXDEPTH(10) FULL(REJECT) QDEPTHHI(50) QDEPTHLO(20) QDPHIEV(ENABLED) QDPLOEV(ENABLED) REPLACE"
    )
    yield "DEEP"
    qm.mqsc("CLEAR QLOCAL(DEEP)")
    events(qm, PERFORMANCE)
    qm.mqsc("ALTER QMGR PERFMEV(DISABLED)")


def test_a_queue_that_becomes_deep_full_and_shallow_is_told_of_once_each(qm, watched):
    put(qm, watched, 10)
    told = events(qm, PERFORMANCE)
    assert [(event["event"], event["depth"]) for event in told] == [("QUEUE.DEPTH.HIGH", 5), ("QUEUE.FULL", 10)]
    assert all(event["queue"] == watched and event["maxdepth"] == 10 and event["qmgr"] == "BULLA" for event in told)
    with qm.connect() as client:
        client.get_all(watched)
    assert [(event["event"], event["reason"], event["depth"]) for event in events(qm, PERFORMANCE)] == [
        ("QUEUE.DEPTH.LOW", 2225, 2)
    ]
    qm.says("DEEP is full: 10 messages of 10")


def test_nothing_is_told_while_the_switch_is_off(qm, watched):
    qm.mqsc("ALTER QMGR PERFMEV(DISABLED)")
    put(qm, watched, 10)
    assert events(qm, PERFORMANCE) == []


def test_a_full_event_queue_fails_no_put_and_raises_no_event(qm, watched):
    qm.mqsc(f"ALTER QLOCAL({PERFORMANCE}) MAXDEPTH(1) QDPHIEV(ENABLED)")
    try:
        put(qm, watched, 10)
        assert qm.depth(watched) == 10
        assert [event["event"] for event in events(qm, PERFORMANCE)] == ["QUEUE.DEPTH.HIGH"]
        qm.says("1 events are in this log alone")
    finally:
        qm.mqsc(f"ALTER QLOCAL({PERFORMANCE}) MAXDEPTH(5000) QDPHIEV(DISABLED)")


def test_without_its_queue_an_event_is_in_the_log_alone(qm, watched):
    qm.mqsc(f"DELETE QLOCAL({PERFORMANCE}) PURGE")
    try:
        put(qm, watched, 10)
        qm.says("DEEP is deep: 5 messages of 10")
    finally:
        qm.mqsc(f"DEFINE QLOCAL({PERFORMANCE})")


def test_a_low_mark_above_the_high_one_is_refused(qm):
    answer = qm.mqsc("DEFINE QLOCAL(ODD) QDEPTHHI(20) QDEPTHLO(30)", code=2)
    assert "QDEPTHLO(30) is more than QDEPTHHI(20)" in answer


def test_a_certificate_that_expires_within_a_month_is_told_of_at_the_start(managers):
    manager = managers()
    data = ("--data", manager.data)
    manager.run("cert", "create", "--ca", "demo", "--dn", "CN=Authority,O=Demo", *data)
    manager.run("cert", "create", "--ring", "orders", "--dn", "CN=orders,O=Demo", "--signer", "demo", "--days", "20", *data)
    manager.run("cert", "create", "--ring", "orders", "--dn", "CN=lasting,O=Demo", "--signer", "demo", *data)
    assert events(manager, MANAGER) == []
    assert manager.stop() == 0
    manager.start()
    (told,) = wait_until(lambda: events(manager, MANAGER), "the certificate is told of")
    assert (told["event"], told["subject"], told["days"]) == ("CERTIFICATE.EXPIRES", "CN=orders,O=Demo", 19)
    assert told["place"].startswith("rings/orders/own/")
    manager.says("the certificate of CN=orders,O=Demo expires in 19 days")


def test_a_channel_s_start_and_end_are_told_of_at_both_ends(managers):
    near, far = managers("near", name="QM1"), managers("far", name="QM2")
    for manager in (near, far):
        manager.mqsc("ALTER QMGR CHLEV(ENABLED)")
    route = Route(near, far)
    route.wait_for_status("RUNNING")
    route.stop()
    route.wait_for_status("STOPPED")
    for manager, partner in ((near, "QM2"), (far, "QM1")):
        told = []

        def both(manager=manager, told=told):
            told.extend(events(manager, CHANNEL))
            return len(told) >= 2

        wait_until(both, "start and end are told of")
        assert [(event["event"], event["channel"], event["partner"]) for event in told] == [
            ("CHANNEL.STARTED", route.channel, partner),
            ("CHANNEL.STOPPED", route.channel, partner),
        ]
        assert told[1]["code"] is None


def test_tls_that_refuses_a_stranger_is_told_of(qm):
    qm.mqsc("ALTER QMGR CHLEV(ENABLED)")
    try:
        with socket.create_connection(("127.0.0.1", qm.ports["amqps"])) as stream:
            context = ssl.create_default_context()  # which does not believe this queue manager's authority
            with pytest.raises(ssl.SSLCertVerificationError):
                context.wrap_socket(stream, server_hostname="localhost")
        (told,) = wait_until(lambda: events(qm, CHANNEL), "the refusal is told of")
        assert (told["event"], told["reason"], told["channel"]) == ("CHANNEL.SSL.ERROR", 2371, "")
        assert told["partner"].startswith("127.0.0.1:")
    finally:
        qm.mqsc("ALTER QMGR CHLEV(DISABLED)")


def test_a_sign_in_that_is_refused_is_told_of(qm):
    qm.add_user("somebody")
    qm.mqsc("ALTER QMGR AUTHOREV(ENABLED)")
    try:
        qm.passwords["somebody"] += "x"
        with pytest.raises(Refused):
            qm.connect("somebody")
        (told,) = wait_until(lambda: events(qm, MANAGER), "the refusal is told of")
        assert (told["event"], told["reason"], told["action"]) == ("NOT.AUTHORIZED", 2035, "connect")
    finally:
        qm.mqsc("ALTER QMGR AUTHOREV(DISABLED)")
