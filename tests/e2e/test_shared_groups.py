"""Groups of shared queues: who owns them, what becomes of messages when the owner goes, and what members say."""

import datetime
import ipaddress
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from engine import Engine, program
from manager import BULLA, DEADLINE, label, wait_until
from groups import bodies, member, put, status, wait_for_state
from people import People
from proton import Message, Timeout
from proton.utils import LinkDetached
from proton_driver import Refused
from test_jms import Lines
from units import Unit


def test_a_queue_s_messages_are_there_when_its_owner_was_killed(managers, engine):
    first = member(managers, engine, "QM1", "KILLED")
    wait_for_state(first, "KILLED", "OWNER")
    second = member(managers, engine, "QM2", "KILLED")
    wait_for_state(second, "KILLED", "STANDBY")
    first.mqsc("DEFINE QLOCAL(SHARED.Q) QSGDISP(SHARED) QSGROUP(KILLED)")
    put(first, "SHARED.Q", [f"message {number}" for number in range(100)])
    assert status(second, "KILLED")["OWNER"] == "QM1"
    first.kill()
    wait_for_state(second, "KILLED", "OWNER")
    assert bodies(second, "SHARED.Q") == [f"message {number}" for number in range(100)]
    first.start()
    wait_for_state(first, "KILLED", "STANDBY")
    assert status(first, "KILLED")["OWNER"] == "QM2"


def test_a_process_answers_what_members_ask_of_one_that_the_engine_does_not_find(managers):
    """The questions are those of crates/bulla-shared/src/process.rs."""
    qm = managers("QM1")
    questions = {"amqp": b"AMQP\x03\x01\x00\x00", "amqps": b"\x17\x03\x03\x00\x01\x00"}
    for listener, question in questions.items():
        with socket.create_connection(("127.0.0.1", qm.ports[listener]), DEADLINE) as connection:
            connection.sendall(question)
            assert connection.recv(8)


def test_an_owner_that_stops_hands_over_at_once_and_one_that_is_overruled_ends_its_links(managers, engine):
    first = member(managers, engine, "QM1", "HANDED")
    wait_for_state(first, "HANDED", "OWNER")
    first.mqsc("DEFINE QLOCAL(HANDED.Q) QSGDISP(SHARED) QSGROUP(HANDED)")
    second = member(managers, engine, "QM2", "HANDED")
    wait_for_state(second, "HANDED", "STANDBY")
    put(first, "HANDED.Q", ["one"])
    began = time.monotonic()
    assert first.stop() == 0
    wait_for_state(second, "HANDED", "OWNER")
    print(f"the other member owned the group {time.monotonic() - began:.2f} s after TERM")
    put(second, "HANDED.Q", ["two"])
    first.start()
    wait_for_state(first, "HANDED", "STANDBY")
    # At the owner the word means nothing, also later.
    second.mqsc("RESET QSGROUP(HANDED) TAKEOVER")
    # The operator overrules an owner that works: its links to the group's queues end, others go on.
    second.mqsc("DEFINE QLOCAL(OWN.Q)")
    with second.connect() as client:
        shared, own = client.sender("HANDED.Q"), client.sender("OWN.Q")
        client.put("HANDED.Q", Message(body="three", durable=True), sender=shared)
        first.mqsc("RESET QSGROUP(HANDED) TAKEOVER")
        wait_for_state(second, "HANDED", "STANDBY")
        with pytest.raises(Refused) as ended:
            client.put("HANDED.Q", Message(body="four", durable=True), sender=shared)
        assert (ended.value.reason, ended.value.cause) == (2009, "group-left")
        client.put("OWN.Q", Message(body="mine", durable=True), sender=own)
    wait_for_state(first, "HANDED", "OWNER")
    assert bodies(first, "HANDED.Q") == ["one", "two", "three"]
    epoch = status(first, "HANDED")["EPOCH"]
    wait_until(lambda: status(second, "HANDED")["EPOCH"] == epoch, "the other member knows the owner")
    assert (status(first, "HANDED")["STATE"], status(second, "HANDED")["STATE"]) == ("OWNER", "STANDBY")


def test_a_group_s_queues_are_never_unknown_where_it_is_taken_away(managers, engine):
    """Between its owner's end there and its log's being read anew, clients are refused with what can be tried again."""
    first = member(managers, engine, "QM1", "TAKEN", "REDIRECT(NO)")
    wait_for_state(first, "TAKEN", "OWNER")
    second = member(managers, engine, "QM2", "TAKEN", "REDIRECT(NO)")
    wait_for_state(second, "TAKEN", "STANDBY")
    first.mqsc("DEFINE QLOCAL(TAKEN.Q) QSGDISP(SHARED) QSGROUP(TAKEN)")
    heard = set()
    with first.connect() as client:
        second.mqsc("RESET QSGROUP(TAKEN) TAKEOVER")
        began = time.monotonic()
        # Until it stands by, and for some looks of a member afterwards.
        while 2345 not in heard or time.monotonic() < began + 2:
            assert time.monotonic() < began + DEADLINE, heard
            try:
                client.sender("TAKEN.Q").close()
            except Refused as refused:
                heard.add(refused.reason)
            except LinkDetached:
                pass  # it was open when the group was taken away
    assert heard <= {2345, 2009}, heard


def test_what_a_member_can_t_do_is_refused_with_what_to_do(managers, engine):
    first = member(managers, engine, "QM1", "REFUSED")
    wait_for_state(first, "REFUSED", "OWNER")
    second = member(managers, engine, "QM2", "REFUSED")
    wait_for_state(second, "REFUSED", "STANDBY")
    for command, parts in [
        ("DEFINE QLOCAL(R) QSGDISP(SHARED)", ["needs QSGROUP"]),
        ("DEFINE QLOCAL(R) QSGDISP(QMGR) QSGROUP(REFUSED)", ["is in no group"]),
        ("DEFINE QLOCAL(R) QSGDISP(SHARED) QSGROUP(NONE)", ["2085", "shared group NONE does not exist", "DEFINE QSGROUP(NONE)"]),
        ("DEFINE QLOCAL(R) QSGROUP(REFUSED) TRIGGER", ["does not trigger"]),
        ("DEFINE QLOCAL(SYSTEM.R) QSGROUP(REFUSED)", ["no name for a shared queue"]),
        ("DEFINE CHANNEL(C) CHLTYPE(RCVR) QSGROUP(NONE)", ["2085", "shared group NONE does not exist"]),
        ("DEFINE QLOCAL(X) USAGE(XMITQ)", []),
        ("DEFINE CHANNEL(C) CHLTYPE(SDR) CONNAME('h') XMITQ(X) QSGROUP(REFUSED)", ["2355", "is no queue of a group"]),
        ("DEFINE QLOCAL(X.SHARED) QSGROUP(REFUSED) USAGE(XMITQ) TRIGGER", []),
        ("DEFINE CHANNEL(C) CHLTYPE(SDR) CONNAME('h') XMITQ(X.SHARED)", ["2355", "write QSGROUP(REFUSED)"]),
        ("DEFINE CHANNEL(C) CHLTYPE(SDR) CONNAME('h') XMITQ(X.SHARED) QSGROUP(REFUSED)", []),
        ("ALTER CHANNEL(C) XMITQ(X) QSGROUP(' ')", ["2042", "QSGROUP can't be altered", "DELETE CHANNEL(C)"]),
        ("DELETE QSGROUP(REFUSED)", ["2042", "channel C belongs to shared group REFUSED"]),
        ("DELETE CHANNEL(C)", []),
        ("DELETE QSGROUP(REFUSED)", ["2042", "STOP QSGROUP(REFUSED)"]),
        ("DEFINE QSGROUP(QM1) SERVERS('127.0.0.1:1')", ["own name"]),
        ("DEFINE QSGROUP('a.b') SERVERS('127.0.0.1:1')", ["letters, digits"]),
        ("DEFINE QSGROUP(X) SERVERS('127.0.0.1')", ["is not HOST:PORT"]),
        ("DEFINE QSGROUP(X) SERVERS('127.0.0.1:1') CAFILE('/x')", ["CAFILE, CERTFILE and KEYFILE"]),
        ("DEFINE QSGROUP(X) SERVERS('127.0.0.1:1') CREDS('x')", ["absolute path"]),
        ("RESET QSGROUP(REFUSED)", ["needs TAKEOVER"]),
    ]:
        answer = first.mqsc(command, code=None)
        assert all(part in answer for part in parts), f"{command}: {answer}"
    answer = second.mqsc("DEFINE QLOCAL(R) QSGROUP(REFUSED)", code=None)
    assert "2345" in answer and "define it at QM1, which owns the group now" in answer, answer
    # What is defined for the name before is this queue manager's alone.
    first.mqsc("SET AUTHREC PROFILE(R) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")
    answer = first.mqsc("DEFINE QLOCAL(R) QSGROUP(REFUSED)", code=None)
    assert "2042" in answer and "DELETE AUTHREC" in answer, answer
    first.mqsc("DELETE AUTHREC PROFILE(R) OBJTYPE(QUEUE) PRINCIPAL('ann')\nDEFINE QLOCAL(R) QSGROUP(REFUSED)")
    answer = first.mqsc("ALTER QLOCAL(R) QSGDISP(QMGR) QSGROUP(' ')", code=None)
    assert "is in group REFUSED" in answer, answer
    first.mqsc("ALTER QLOCAL(R) MAXDEPTH(7)\nSET AUTHREC PROFILE(R) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")
    first.mqsc("DEFINE QLOCAL(LOCAL.Q)")
    # One unit of work is of one store.
    with first.connect() as client, first.connect() as reader:
        unit = Unit(client)
        unit.put(client.sender("R"), Message(body="1", durable=True))
        with pytest.raises(Refused) as mixed:
            unit.put(client.sender("LOCAL.Q"), Message(body="2", durable=True))
        assert (mixed.value.reason, mixed.value.cause) == (2355, "stores")
        unit.abort()
        assert reader.get_all("R") == []
    # A name that both have: the group can't be owned there until one of them is gone.
    second.mqsc("DEFINE QLOCAL(R)")
    wait_until(lambda: "R is a queue of the group" in status(second, "REFUSED")["WHY"], "the conflict is told")
    first.kill()
    wait_until(lambda: "R is a queue of the group" in status(second, "REFUSED")["WHY"], "the conflict is told")
    assert status(second, "REFUSED")["STATE"] == "STANDBY"
    second.mqsc("DELETE QLOCAL(R)")
    wait_for_state(second, "REFUSED", "OWNER")
    assert "MAXDEPTH(7)" in second.mqsc("DISPLAY QLOCAL(R)")
    assert "ann" in second.mqsc("DISPLAY AUTHREC PROFILE(R)")


def test_a_client_at_another_member_is_sent_to_the_owner_where_it_has_a_right(managers, engine):
    first = member(managers, engine, "QM1", "SENT", grants=None)
    wait_for_state(first, "SENT", "OWNER")
    second = member(managers, engine, "QM2", "SENT", "REDIRECT(LINK)", grants=None)
    wait_for_state(second, "SENT", "STANDBY")
    for qm in (first, second):
        qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)\nDEFINE GROUP('CLERKS') MEMBERS('ann')")
        for user in ("ann", "bob"):
            qm.add_user(user)
    first.mqsc("DEFINE QLOCAL(SENT.Q) QSGROUP(SENT)")
    first.mqsc("SET AUTHREC PROFILE(SENT.Q) OBJTYPE(QUEUE) GROUP('CLERKS') AUTHADD(PUT)")

    def opened(user):
        with second.connect(user) as client, pytest.raises(Refused) as refused:
            client.sender("SENT.Q")
        return refused.value

    wait_until(lambda: opened("ann").condition == "amqp:link:redirect", "the redirect")
    told = opened("ann")
    assert (told.reason, told.cause) == (2345, "group-elsewhere") and "which QM1 owns" in told.description
    where = (told.info["network-host"], told.info["port"], told.info["address"])
    assert where == ("127.0.0.1", first.ports["amqp"], "SENT.Q")
    with first.connect("ann") as client:
        client.put("SENT.Q", Message(body="one", durable=True))
    # Who has no right on it hears what it hears of any name.
    strange = opened("bob")
    assert (strange.condition, strange.reason) == ("amqp:unauthorized-access", 2035), strange
    with second.connect("bob") as client, pytest.raises(Refused) as none:
        client.sender("NONE")
    assert strange.description.replace("SENT.Q", "NONE") == none.value.description
    second.mqsc("STOP QSGROUP(SENT)\nALTER QSGROUP(SENT) REDIRECT(NO)\nSTART QSGROUP(SENT)")
    wait_for_state(second, "SENT", "STANDBY")
    wait_until(lambda: opened("ann").reason == 2345, "the refusal")
    assert opened("ann").condition == "amqp:not-found"
    # A member that does not know the group of users can own the queue all the same.
    third = member(managers, engine, "QM3", "SENT", grants=None)
    wait_for_state(third, "SENT", "STANDBY")
    third.mqsc("RESET QSGROUP(SENT) TAKEOVER")
    wait_for_state(third, "SENT", "OWNER")
    assert "CLERKS" in third.mqsc("DISPLAY AUTHREC PROFILE(SENT.Q)")


def test_jms_follows_the_owner_by_itself(managers, engine):
    first = member(managers, engine, "QM1", "FOLLOWED", "REDIRECT(CONNECTION)")
    wait_for_state(first, "FOLLOWED", "OWNER")
    first.mqsc("DEFINE QLOCAL(JMS) QSGROUP(FOLLOWED) MAXDEPTH(100000)")
    second = member(managers, engine, "QM2", "FOLLOWED", "REDIRECT(CONNECTION)")
    wait_for_state(second, "FOLLOWED", "STANDBY")
    url = (
        f"failover:(amqp://127.0.0.1:{second.ports['amqp']},amqp://127.0.0.1:{first.ports['amqp']})"
        "?failover.reconnectDelay=20&failover.maxReconnectDelay=200&jms.prefetchPolicy.all=50"
    )
    count = 400
    consuming = Lines("consume", url, "JMS", count)
    producing = Lines("produce", url, "JMS", count)
    producing.wait_for(count // 4)
    first.kill()
    producing.wait_for(count // 2)
    wait_for_state(second, "FOLLOWED", "OWNER")
    first.start()
    wait_for_state(first, "FOLLOWED", "STANDBY")
    first.mqsc("RESET QSGROUP(FOLLOWED) TAKEOVER")
    sent = producing.end()
    got = [int(line.split()[1]) for line in consuming.end() if line.startswith("got ")]
    assert sent == [f"sent {number}" for number in range(count)]
    assert sorted(set(got)) == list(range(count))
    # What came again had not been settled, or its put was repeated by the client.
    assert len(got) - count <= 2 * (50 + 1), f"{len(got) - count} messages came more than once"
    wait_for_state(first, "FOLLOWED", "OWNER")


def test_sealed_messages_and_defective_ones_go_with_the_group(managers, engine, authority):
    first = member(managers, engine, "QM1", "SEALED")
    people = People(first, authority)
    for name in ("orders", "billing"):
        people.add(name)
    wait_for_state(first, "SEALED", "OWNER")
    first.mqsc(
        "DEFINE QLOCAL(S) QSGROUP(SEALED)\n"
        f"SET POLICY(S) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')"
    )
    second = member(managers, engine, "QM2", "SEALED")
    wait_for_state(second, "SEALED", "STANDBY")
    with first.connect("orders") as client:
        for number in range(3):
            client.put("S", Message(body=f"sealed {number}", durable=True))
    # One is damaged on its way: by a name without a policy, as who could write the log would.
    first.mqsc("DEFINE QALIAS(RAW) TARGET(S)")
    with first.connect() as client:
        damaged = client.get("RAW")
        damaged.body = damaged.body[:-1] + bytes([damaged.body[-1] ^ 1])
        client.put("RAW", damaged)
    with first.connect("billing") as client:
        receiver = client.receiver("S", credit=0)
        assert [message.body for message in receiver.drain(10)] == ["sealed 1", "sealed 2"]
        receiver.close()
    errors = "SYSTEM.ERROR.SEALED"
    wait_until(lambda: first.depth(errors) == 1, "the damaged one is on the group's error queue")
    assert first.depth("SYSTEM.PROTECTION.ERROR.QUEUE") == 0
    with first.connect("orders") as client:
        client.put("S", Message(body="sealed 3", durable=True))
    # The users' rings and passwords are each member's own.
    shutil.copytree(first.data / "rings", second.data / "rings", dirs_exist_ok=True)
    shutil.copy(first.data / "users", second.data / "users")
    second.passwords = first.passwords
    first.kill()
    wait_for_state(second, "SEALED", "OWNER")
    assert "RECIP" in second.mqsc("DISPLAY POLICY(S)")
    wait_until(lambda: second.run("user", "list", "--data", second.data, code=None).returncode == 0, "the users are there")
    with second.connect("billing") as client:
        # Bound to S@SEALED, whoever owns the group.
        assert client.get("S").body == "sealed 3"
    with second.connect() as client:
        (quarantined,) = client.get_all(errors, browse=True)
    assert (label(quarantined)["queue"], label(quarantined)["cause"]) == ("S", "cannot-decrypt"), label(quarantined)


def test_without_the_engine_local_queues_go_on_and_shared_ones_wait(managers, tmp_path_factory):
    engine = Engine(tmp_path_factory.mktemp("alone"), servers=1)
    try:
        qm = member(managers, engine, "QM1", "ALONE")
        wait_for_state(qm, "ALONE", "OWNER")
        qm.mqsc("DEFINE QLOCAL(SHARED.Q) QSGROUP(ALONE)\nDEFINE QLOCAL(OWN.Q)")
        put(qm, "SHARED.Q", ["one"])
        wait_until(lambda: status(qm, "ALONE")["SURVIVES"] == "POWER", "what a confirmation survives")
        engine.kill(0)
        wait_until(lambda: "does not answer" in status(qm, "ALONE")["WHY"], "the silence is told")
        put(qm, "OWN.Q", ["mine"])
        with qm.connect() as client, qm.connect() as reader:
            sender, receiver = client.sender("SHARED.Q"), reader.receiver("SHARED.Q", credit=5)
            under_way = sender.link.send(Message(body="two", durable=True))
            # Nothing is confirmed and nothing is sent: who else may own the group by now is not known.
            with pytest.raises(Timeout):
                client.connection.wait(lambda: under_way.remote_state, timeout=2, msg="no confirmation")
            assert not receiver.wait_for(1, wait=0.1)
            assert bodies(qm, "OWN.Q") == ["mine"]
            engine.start(0)
            client.connection.wait(lambda: under_way.remote_state, timeout=20, msg="the confirmation")
            assert [receiver.next().body for _ in range(2)] == ["one", "two"]
        # A queue manager starts without it, too.
        engine.kill(0)
        qm.kill()
        qm.start()
        assert "CONNECTING" in qm.mqsc("DISPLAY QSGSTATUS(ALONE) STATE")
        put(qm, "OWN.Q", ["after"])
        assert bodies(qm, "OWN.Q") == ["after"]
        with qm.connect() as client, pytest.raises(Refused) as unknown:
            client.sender("SHARED.Q")
        assert unknown.value.reason == 2085
        engine.start(0)
        wait_for_state(qm, "ALONE", "OWNER")
        assert qm.stop() == 0
    finally:
        engine.stop()


def test_a_log_that_is_full_refuses_puts_and_has_room_again_once_messages_are_got(managers, tmp_path_factory):
    engine = Engine(tmp_path_factory.mktemp("small"), servers=1, log_bytes=64 << 20)
    try:
        qm = member(managers, engine, "QM1", "SMALL")
        wait_for_state(qm, "SMALL", "OWNER")
        qm.mqsc("DEFINE QLOCAL(SMALL.Q) QSGROUP(SMALL)")
        body = bytes(1 << 20)
        for _ in range(2):
            count = 0
            with qm.connect() as client:
                sender = client.sender("SMALL.Q")
                with pytest.raises(Refused) as full:
                    while count < 64:
                        client.put("SMALL.Q", Message(body=body, durable=True), sender=sender)
                        count += 1
                assert full.value.reason == 2102 and count >= 30, (count, full.value)
                assert len(client.get_all("SMALL.Q")) == count
                wait_until(lambda: takes(client, body), "puts are taken again")
                assert len(client.get_all("SMALL.Q")) == 1
    finally:
        engine.stop()


def takes(client, body):
    try:
        client.put("SMALL.Q", Message(body=body, durable=True))
        return True
    except Refused:
        return False


def test_the_sample_loses_nothing_while_its_owner_is_killed():
    environment = {**os.environ, "BULLA": BULLA, "BULLA_NATS_SERVER": program()}
    sample = Path(__file__).parents[2] / "samples/shared/run"
    done = subprocess.run([sample, "--seconds", "8"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "took over after" in done.stdout and "messages were confirmed, 0 of them lost" in done.stdout, done.stdout


def issued(folder, name, by=None, address="127.0.0.1"):
    """A certificate and its key, of an authority or as one; the files, and what a further one is issued by."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    issuer, issuer_key = by or (subject, key)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    pem, own = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(made.public_bytes(Encoding.PEM))
    own.touch(0o600)
    own.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return pem, own, (subject, key)


def test_the_engine_is_reached_by_mutual_tls_and_a_key_that_others_can_read_is_none(managers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority, _, by = issued(folder, "authority")
    stranger, _, _ = issued(folder, "stranger")
    pem, key, _ = issued(folder, "server", by)
    own, own_key, _ = issued(folder, "member", by)
    tls = f'tls {{ cert_file: "{pem}", key_file: "{key}", ca_file: "{authority}", verify: true }}'
    engine = Engine(folder, servers=1, tls=tls)
    try:
        qm = managers("QM1", name="QM1")
        files = f"CERTFILE('{own}') KEYFILE('{own_key}')"
        qm.mqsc(f"DEFINE QSGROUP(SECRET) {engine.attributes}\nSTART QSGROUP(SECRET)")
        wait_until(lambda: status(qm, "SECRET")["WHY"], "in clear it is not let in")
        assert status(qm, "SECRET")["STATE"] == "CONNECTING"

        def alter(attributes):
            qm.mqsc(f"STOP QSGROUP(SECRET)\nALTER QSGROUP(SECRET) {attributes}\nSTART QSGROUP(SECRET)")

        alter(f"CAFILE('{stranger}') {files}")
        wait_until(lambda: "certificate" in status(qm, "SECRET")["WHY"].lower(), "the authority is not believed")
        own_key.chmod(0o644)
        alter(f"CAFILE('{authority}') {files}")
        wait_until(lambda: "chmod 600" in status(qm, "SECRET")["WHY"], "others can read the key")
        own_key.chmod(0o600)
        alter(f"CAFILE('{authority}') {files}")
        wait_for_state(qm, "SECRET", "OWNER")
    finally:
        engine.stop()
