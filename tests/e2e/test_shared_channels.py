"""Channels of shared groups: they run at the owner, under the group's name; over a takeover each message arrives once."""

import pytest
from proton import Message

from channels import RETRY, dead_letters, status, wait_for_status
from groups import BODY, Load, check, disturbed, taken, two_members, wait_for_state
from manager import label, wait_until
from proton_driver import Refused
from proxy import BACK, Proxy

def test_a_channel_sends_each_message_once_while_owners_are_killed(managers, engine):
    first, second = two_members(managers, engine, "SENDING")
    partner = managers("QM3", name="QM3")
    partner.mqsc("DEFINE QLOCAL(ARRIVED) MAXDEPTH(1000000)\nDEFINE CHANNEL(SENDING.QM3) CHLTYPE(RCVR)")
    first.mqsc("DEFINE QLOCAL(TO.QM3) QSGROUP(SENDING) USAGE(XMITQ) MAXDEPTH(1000000)")
    for qm in (first, second):
        qm.mqsc(
            "DEFINE QREMOTE(AT.QM3) RNAME(ARRIVED) RQMNAME(QM3) XMITQ(TO.QM3)\n"
            f"DEFINE CHANNEL(SENDING.QM3) CHLTYPE(SDR) CONNAME('127.0.0.1({partner.ports['amqp']})') XMITQ(TO.QM3) "
            f"QSGROUP(SENDING) {RETRY}"
        )
    # The next owners start what this one has started.
    first.mqsc("START CHANNEL(SENDING.QM3)")
    load = Load((first, second), "AT.QM3")
    disturbed((first, second), "SENDING", load, 2_000)
    load.end()
    wait_until(lambda: second.depth("TO.QM3") == 0, "all is sent")
    assert status(second, "SENDING.QM3")["STATUS"] == "RUNNING"
    assert status(first, "SENDING.QM3")["STATUS"] == "INACTIVE"
    assert status(partner, "SENDING.QM3")["RQMNAME"] == "SENDING"
    check(load, taken(partner, "ARRIVED"))


def test_what_was_in_doubt_at_the_owner_that_died_is_settled_by_the_next_one(managers, engine):
    first, second = two_members(managers, engine, "DOUBTING")
    partner = managers("QM3", name="QM3")
    partner.mqsc("DEFINE QLOCAL(ARRIVED)\nDEFINE CHANNEL(DOUBTING.QM3) CHLTYPE(RCVR)")
    proxy = Proxy(lambda: partner.ports["amqp"])
    first.mqsc("DEFINE QLOCAL(TO.QM3) QSGROUP(DOUBTING) USAGE(XMITQ) TRIGGER")
    for qm in (first, second):
        qm.mqsc(
            "DEFINE QREMOTE(AT.QM3) RNAME(ARRIVED) RQMNAME(QM3) XMITQ(TO.QM3)\n"
            f"DEFINE CHANNEL(DOUBTING.QM3) CHLTYPE(SDR) CONNAME('127.0.0.1({proxy.port})') XMITQ(TO.QM3) "
            f"QSGROUP(DOUBTING) {RETRY}"
        )

    def put(numbers):
        with first.connect() as client:
            sender = client.sender("AT.QM3")
            for number in numbers:
                client.put("AT.QM3", Message(id=number, body=BODY, durable=True), sender)

    put(range(10))
    wait_until(lambda: first.depth("TO.QM3") == 0, "the channel runs")
    # They arrive, and the owner does not hear of it.
    proxy.hold(BACK)
    put(range(10, 60))
    partner.wait_for_depth("ARRIVED", 60)
    assert first.depth("TO.QM3") == 50 and status(first, "DOUBTING.QM3")["INDOUBT"] == "YES"
    first.kill()
    proxy.release(BACK)
    wait_for_state(second, "DOUBTING", "OWNER")
    wait_until(lambda: second.depth("TO.QM3") == 0, "what has arrived is removed")
    wait_for_status(second, "DOUBTING.QM3", "RUNNING")
    first.start()
    wait_for_state(first, "DOUBTING", "STANDBY")
    # Who puts by a name that leads to the group's transmission queue is sent to the owner.
    with first.connect() as client, pytest.raises(Refused) as sent:
        client.sender("AT.QM3")
    assert (sent.value.condition, sent.value.reason) == ("amqp:link:redirect", 2345), sent.value
    assert sent.value.info["port"] == second.ports["amqp"] and sent.value.info["address"] == "AT.QM3"
    # What is said of it is said at the owner, and holds for the group.
    for command in ("START", "STOP", "RESET", "RESOLVE"):
        answer = first.mqsc(f"{command} CHANNEL(DOUBTING.QM3)" + " ACTION(BACKOUT)" * (command == "RESOLVE"), code=None)
        assert "2345" in answer and "group DOUBTING, which QM2 owns" in answer, answer
    second.mqsc("STOP CHANNEL(DOUBTING.QM3)")
    wait_for_status(second, "DOUBTING.QM3", "STOPPED")
    first.mqsc("RESET QSGROUP(DOUBTING) TAKEOVER")
    wait_for_state(first, "DOUBTING", "OWNER")
    put(range(60, 70))
    assert first.depth("TO.QM3") == 10 and status(first, "DOUBTING.QM3")["STATUS"] == "STOPPED"
    first.mqsc("START CHANNEL(DOUBTING.QM3)")
    wait_until(lambda: first.depth("TO.QM3") == 0, "the rest is sent")
    assert taken(partner, "ARRIVED") == list(range(70))
    proxy.close()


def test_a_channel_receives_each_message_once_while_owners_are_killed(managers, engine):
    first, second = two_members(managers, engine, "RECEIVING")
    partner = managers("QM3", name="QM3")
    first.mqsc("DEFINE QLOCAL(ARRIVED) QSGROUP(RECEIVING) MAXDEPTH(1000000)")
    for qm in (first, second):
        qm.mqsc("DEFINE CHANNEL(QM3.RECEIVING) CHLTYPE(RCVR) QSGROUP(RECEIVING) MRRTY(0)\nDEFINE QLOCAL(OWN.Q)")
    members = ",".join(f"127.0.0.1({qm.ports['amqp']})" for qm in (first, second))
    partner.mqsc(
        f"""
        DEFINE QLOCAL(TO.GROUP) USAGE(XMITQ) MAXDEPTH(1000000)
        DEFINE QREMOTE(SHARED) RNAME(ARRIVED) RQMNAME(RECEIVING) XMITQ(TO.GROUP)
        DEFINE QREMOTE(NOT.SHARED) RNAME(OWN.Q) RQMNAME(RECEIVING) XMITQ(TO.GROUP)
        DEFINE CHANNEL(QM3.RECEIVING) CHLTYPE(SDR) CONNAME('{members}') XMITQ(TO.GROUP) {RETRY}
        START CHANNEL(QM3.RECEIVING)
        """
    )
    load = Load((partner,), "SHARED")
    disturbed((first, second), "RECEIVING", load, 2_000)
    load.end()
    wait_until(lambda: partner.depth("TO.GROUP") == 0, "all is sent")
    assert status(partner, "QM3.RECEIVING")["RQMNAME"] == "RECEIVING"
    check(load, taken(second, "ARRIVED"))
    # A queue of the owner alone is none of the group's: the next owner would not have the message.
    with partner.connect() as client:
        client.put("NOT.SHARED", Message(body="lost", durable=True))
    wait_until(lambda: second.depth("SYSTEM.DEAD.RECEIVING") == 1, "it is on the group's dead-letter queue")
    (dead,) = dead_letters(second, "SYSTEM.DEAD.RECEIVING")
    assert (label(dead)["queue"], label(dead)["reason"], label(dead)["cause"]) == ("OWN.Q", 2355, "stores")
    assert second.depth("OWN.Q") == 0


def test_members_prove_by_certificates_of_their_own_that_they_are_one_partner(managers, engine, authority):
    first, second = two_members(managers, engine, "PROVING")
    partner = managers("QM3", name="QM3")
    for qm in (first, second, partner):
        identity = authority.issue(qm.name)
        (qm.data / "tls/own.pem").write_bytes(identity.pem)
        (qm.data / "tls/own.key").write_bytes(identity.key.read_bytes())
        for authorities in ("clients", "partners"):
            (qm.data / f"tls/{authorities}.pem").write_bytes(authority.pem)
    tls = "SSLCIPH(TLS_AES_256_GCM_SHA384) CERTLABL('own')"
    first.mqsc("DEFINE QLOCAL(TO.QM3) QSGROUP(PROVING) USAGE(XMITQ)\nDEFINE QLOCAL(HERE) QSGROUP(PROVING)")
    for qm in (first, second):
        qm.mqsc(
            f"""
            DEFINE QREMOTE(AT.QM3) RNAME(THERE) RQMNAME(QM3) XMITQ(TO.QM3)
            DEFINE CHANNEL(OUT) CHLTYPE(SDR) CONNAME('localhost({partner.ports["amqps"]})') XMITQ(TO.QM3) {tls} {RETRY} +
                   QSGROUP(PROVING) SSLPEER('CN=QM3,O=Demo')
            DEFINE CHANNEL(IN) CHLTYPE(RCVR) {tls} QSGROUP(PROVING)
            """
        )
    members = ",".join(f"localhost({qm.ports['amqps']})" for qm in (first, second))
    partner.mqsc(
        f"""
        DEFINE QLOCAL(THERE)
        DEFINE QLOCAL(TO.GROUP) USAGE(XMITQ)
        DEFINE QREMOTE(AT.GROUP) RNAME(HERE) RQMNAME(PROVING) XMITQ(TO.GROUP)
        DEFINE CHANNEL(OUT) CHLTYPE(RCVR) {tls}
        DEFINE CHANNEL(IN) CHLTYPE(SDR) CONNAME('{members}') XMITQ(TO.GROUP) {tls} {RETRY} SSLPEER('CN=QM*,O=Demo')
        START CHANNEL(IN)
        """
    )
    first.mqsc("START CHANNEL(OUT)")

    def put(owner, body):
        put_at(owner, "AT.QM3", body)
        put_at(partner, "AT.GROUP", body)

    def put_at(qm, queue, body):
        with qm.connect() as client:
            client.put(queue, Message(body=body, durable=True))

    def arrived(owner, count):
        try:
            wait_until(lambda: (partner.depth("THERE"), owner.depth("HERE")) == (count, count), f"{count} have arrived")
        except AssertionError as error:
            raise AssertionError(f"{error}: {status(owner, 'OUT')}, {status(partner, 'IN')}") from None

    put(first, "one")
    arrived(first, 1)
    second.mqsc("RESET QSGROUP(PROVING) TAKEOVER")
    wait_for_state(second, "PROVING", "OWNER")
    put(second, "two")
    # Who has the name alone is not believed, at either end.
    partner.says("it proved itself by certificate CN=QM1,O=Demo of")
    partner.says("its partner PROVING proved itself by certificate CN=QM1,O=Demo of")
    wait_until(lambda: "2539" in status(second, "OUT")["REASON"], "it is refused")
    assert (partner.depth("THERE"), second.depth("HERE")) == (1, 1)
    for listed, count in (("CN=QM1,O=Demo; CN=QM9,O=Demo", 1), ("CN=QM1,O=Demo; CN=QM2,O=Demo", 2)):
        partner.mqsc(
            f"""
            STOP CHANNEL(IN) MODE(FORCE)
            ALTER CHANNEL(OUT) SAMEPEER('{listed}')
            ALTER CHANNEL(IN) SAMEPEER('{listed}')
            """
        )
        wait_for_status(partner, "IN", "STOPPED")
        partner.mqsc("START CHANNEL(IN)")
        wait_until(lambda: status(partner, "IN")["STATUS"] == ("RUNNING" if count == 2 else "RETRYING"), listed)
        arrived(second, count)
    first.mqsc("RESET QSGROUP(PROVING) TAKEOVER")
    wait_for_state(first, "PROVING", "OWNER")
    put(first, "three")
    arrived(first, 3)
