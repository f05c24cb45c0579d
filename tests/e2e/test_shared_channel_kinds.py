"""Channels of shared groups of each type, and with keys at the border."""

import shutil
import subprocess
import threading

import pytest
from proton import Message

import cms
from channels import RETRY, TLS, status, wait_for_status
from groups import Load, check, disturbed, taken, two_members, wait_for_state
from manager import wait_until
from people import People


class Starts:
    """A requester's pause after a failure is a minute, and has no attribute: START ends it, again and again."""

    def __init__(self, managers, channel):
        self.managers, self.channel = managers, channel
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        while not self.ends.wait(0.5):
            for manager in self.managers:
                # One that is dead or does not own the group refuses; one that stands still answers later.
                if status_or_none(manager, self.channel) == "RETRYING":
                    manager.mqsc(f"START CHANNEL({self.channel})", code=None)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


def status_or_none(manager, channel):
    try:
        return status(manager, channel)["STATUS"]
    except (ValueError, subprocess.TimeoutExpired):
        return None


@pytest.mark.parametrize("begins", ["the partner", "the group"])
def test_a_server_of_a_group_sends_each_message_once_while_owners_are_killed(managers, engine, begins):
    group = "SERVING" if begins == "the partner" else "SERVING2"
    first, second = two_members(managers, engine, group)
    partner = managers("QM3", name="QM3")
    first.mqsc(f"DEFINE QLOCAL(TO.QM3) QSGROUP({group}) USAGE(XMITQ) MAXDEPTH(1000000)")
    at_partner = f"CONNAME('127.0.0.1({partner.ports['amqp']})') {RETRY}" if begins == "the group" else ""
    for qm in (first, second):
        qm.mqsc(
            "DEFINE QREMOTE(AT.QM3) RNAME(ARRIVED) RQMNAME(QM3) XMITQ(TO.QM3)\n"
            f"DEFINE CHANNEL(SERVING) CHLTYPE(SVR) XMITQ(TO.QM3) QSGROUP({group}) {at_partner}"
        )
    partner.mqsc("DEFINE QLOCAL(ARRIVED) MAXDEPTH(1000000)")
    if begins == "the partner":
        # One that is not the owner refuses the request, and the next one is asked.
        members = ",".join(f"127.0.0.1({qm.ports['amqp']})" for qm in (second, first))
        partner.mqsc(f"DEFINE CHANNEL(SERVING) CHLTYPE(RQSTR) CONNAME('{members}')\nSTART CHANNEL(SERVING)")
    else:
        partner.mqsc("DEFINE CHANNEL(SERVING) CHLTYPE(RCVR)")
        first.mqsc("START CHANNEL(SERVING)")
    with Starts((partner,), "SERVING"):
        load = Load((first, second), "AT.QM3")
        disturbed((first, second), group, load, 500)
        load.end()
        wait_until(lambda: second.depth("TO.QM3") == 0, "all is sent")
    assert status(second, "SERVING")["STATUS"] == "RUNNING"
    assert status(first, "SERVING")["STATUS"] == "INACTIVE"
    assert status(partner, "SERVING")["RQMNAME"] == group
    check(load, taken(partner, "ARRIVED"))


def test_a_requester_of_a_group_receives_each_message_once_while_owners_are_killed(managers, engine):
    first, second = two_members(managers, engine, "ASKING")
    partner = managers("QM3", name="QM3")
    partner.mqsc(
        f"""
        DEFINE QLOCAL(TO.GROUP) USAGE(XMITQ) MAXDEPTH(1000000)
        DEFINE QREMOTE(SHARED) RNAME(ARRIVED) RQMNAME(ASKING) XMITQ(TO.GROUP)
        DEFINE CHANNEL(ASKING) CHLTYPE(SVR) XMITQ(TO.GROUP)
        """
    )
    first.mqsc("DEFINE QLOCAL(ARRIVED) QSGROUP(ASKING) MAXDEPTH(1000000)")
    for qm in (first, second):
        address = f"127.0.0.1({partner.ports['amqp']})"
        qm.mqsc(f"DEFINE CHANNEL(ASKING) CHLTYPE(RQSTR) CONNAME('{address}') QSGROUP(ASKING)")
    answer = second.mqsc("START CHANNEL(ASKING)", code=None)
    assert "2345" in answer and "group ASKING, which QM1 owns" in answer, answer
    # The next owners go on with what was started.
    first.mqsc("START CHANNEL(ASKING)")
    with Starts((first, second), "ASKING"):
        load = Load((partner,), "SHARED")
        disturbed((first, second), "ASKING", load, 500)
        load.end()
        wait_until(lambda: partner.depth("TO.GROUP") == 0, "all is sent")
    assert status(second, "ASKING")["STATUS"] == "RUNNING"
    assert status(first, "ASKING")["STATUS"] == "INACTIVE"
    assert status(partner, "ASKING")["RQMNAME"] == "ASKING"
    check(load, taken(second, "ARRIVED"))


def put(qm, queue, *bodies, user=None):
    with qm.connect(user) as client:
        sender = client.sender(queue)
        for body in bodies:
            client.put(queue, Message(body=body, inferred=True, durable=True), sender)


def raw(qm, queue):
    """What lies on a queue, as it lies there."""
    with qm.connect() as client:
        return client.get_all(f"{queue}.RAW", browse=True)


def test_a_channel_of_a_group_opens_and_seals_at_whichever_member_owns_it(managers, engine, authority):
    first, second = two_members(managers, engine, "BORDER")
    partner = managers("QM3", name="QM3")
    people = People(first, authority)
    # The channels' user is named like the group.
    for name in ("orders", "billing", "BORDER"):
        people.add(name)
    shutil.copytree(first.data / "rings", second.data / "rings", dirs_exist_ok=True)
    shutil.copy(first.data / "users", second.data / "users")
    second.passwords = first.passwords
    for qm in (first, second, partner):
        identity = authority.issue(qm.name)
        (qm.data / "tls/own.pem").write_bytes(identity.pem)
        (qm.data / "tls/own.key").write_bytes(identity.key.read_bytes())
        for authorities in ("clients", "partners"):
            (qm.data / f"tls/{authorities}.pem").write_bytes(authority.pem)
    tls, same = f"{TLS} CERTLABL('own')", "SAMEPEER('CN=QM1,O=Demo; CN=QM2,O=Demo')"
    seal = "SIGNALG(SHA256) ENCALG(AES256)"
    out = f"{seal} SIGNER('{people.dn('orders')}') RECIP('{people.dn('BORDER')}')"
    first.mqsc(
        f"""
        DEFINE QLOCAL(TO.QM3) QSGROUP(BORDER) USAGE(XMITQ)
        DEFINE QLOCAL(HERE) QSGROUP(BORDER)
        SET POLICY(TO.QM3) {out}
        SET POLICY(HERE) {seal} SIGNER('{people.dn("BORDER")}') RECIP('{people.dn("billing")}')
        """
    )
    for qm in (first, second):
        qm.mqsc(
            f"""
            DEFINE QREMOTE(AT.QM3) RNAME(THERE) RQMNAME(QM3) XMITQ(TO.QM3)
            SET POLICY(AT.QM3) {out}
            DEFINE QALIAS(TO.QM3.RAW) TARGET(TO.QM3)
            DEFINE QALIAS(HERE.RAW) TARGET(HERE)
            DEFINE CHANNEL(OUT) CHLTYPE(SDR) CONNAME('localhost({partner.ports["amqps"]})') XMITQ(TO.QM3) {tls} {RETRY} +
                   QSGROUP(BORDER) SSLPEER('CN=QM3,O=Demo') SPLPROT(REMOVE)
            DEFINE CHANNEL(IN) CHLTYPE(RCVR) {tls} QSGROUP(BORDER) SSLCAUTH(REQUIRED) SSLPEER('CN=QM3,O=Demo') +
                   SPLPROT(ASPOLICY) MRRTY(0)
            """
        )
    members = ",".join(f"localhost({qm.ports['amqps']})" for qm in (first, second))
    partner.mqsc(
        f"""
        DEFINE QLOCAL(THERE)
        DEFINE QLOCAL(TO.GROUP) USAGE(XMITQ)
        DEFINE QREMOTE(AT.GROUP) RNAME(HERE) RQMNAME(BORDER) XMITQ(TO.GROUP)
        DEFINE CHANNEL(OUT) CHLTYPE(RCVR) {tls} {same}
        DEFINE CHANNEL(IN) CHLTYPE(SDR) CONNAME('{members}') XMITQ(TO.GROUP) {tls} {RETRY} SSLPEER('CN=QM*,O=Demo') {same}
        START CHANNEL(IN)
        """
    )

    def there(count):
        wait_until(lambda: partner.depth("THERE") == count, f"{count} have arrived at the partner")
        with partner.connect() as client:
            return [bytes(message.body) for message in client.get_all("THERE", browse=True)]

    put(first, "AT.QM3", b"out 1", user="orders")
    (lies,) = raw(first, "TO.QM3")
    assert lies.content_type.startswith(cms.SEALED)
    first.mqsc("START CHANNEL(OUT)")
    assert there(1) == [b"out 1"], "in clear: there is no policy at the partner"
    put(partner, "AT.GROUP", b"in 1")
    wait_until(lambda: first.depth("HERE") == 1, "it is here")
    (lies,) = raw(first, "HERE")
    assert lies.content_type.startswith(cms.SEALED) and b"in 1" not in bytes(lies.body)
    # What lies there sealed is opened, and what comes is sealed, by the next owner.
    first.mqsc("STOP CHANNEL(OUT)")
    wait_for_status(first, "OUT", "STOPPED")
    put(first, "AT.QM3", b"out 2", user="orders")
    first.kill()
    wait_for_state(second, "BORDER", "OWNER")
    second.mqsc("START CHANNEL(OUT)")
    assert there(2) == [b"out 1", b"out 2"]
    put(partner, "AT.GROUP", b"in 2")
    wait_until(lambda: second.depth("HERE") == 2, "it is here")
    assert all(message.content_type.startswith(cms.SEALED) for message in raw(second, "HERE"))
    with second.connect("billing") as client:
        receiver = client.receiver("HERE", credit=0)
        assert [bytes(message.body) for message in receiver.drain(10)] == [b"in 1", b"in 2"]
        receiver.close()
    # An owner without the channels' ring lets nothing out, and nothing in.
    first.start()
    wait_for_state(first, "BORDER", "STANDBY")
    aside = first.data / "BORDER.aside"
    (first.data / "rings/BORDER").rename(aside)
    put(second, "AT.QM3", b"out 3", user="orders")
    assert len(there(3)) == 3
    first.mqsc("RESET QSGROUP(BORDER) TAKEOVER")
    wait_for_state(first, "BORDER", "OWNER")
    put(first, "AT.QM3", b"out 4", user="orders")
    put(partner, "AT.GROUP", b"in 3")
    wait_until(lambda: "2063" in status(first, "OUT")["REASON"], "the channel says that it lacks the ring")
    assert first.depth("TO.QM3") == 1 and partner.depth("THERE") == 3
    assert (first.depth("HERE"), first.depth("SYSTEM.ERROR.BORDER")) == (0, 0)
    aside.rename(first.data / "rings/BORDER")
    assert there(4) == [b"out 1", b"out 2", b"out 3", b"out 4"]
