"""Queues of a shared group at a member that does not own it: links go on to the owner, and clients need not know."""

import json
import shutil
import socket
import subprocess
import threading

import pytest
from proton import Described, Message, uint, ulong

import sasl
from groups import is_known, member, owner_and_member, put, wait_for_state
from manager import DEADLINE, wait_until
from people import People
from proton_driver import Refused
from test_jms import CHECKS, FEATURES
from test_topics import TOPICS
from units import Unit

@pytest.fixture
def pair(managers, engine):
    """The owner of a group with the queue F, and a member that knows of it."""
    owner, other = owner_and_member(managers, engine, {"F": "MAXDEPTH(100000)", "F.SMALL": "MAXDEPTH(3) FULL(REJECT)"})
    wait_until(lambda: is_known(other, "F.SMALL"), "the member knows the queues")
    return owner, other


def bodies(qm, queue):
    with qm.connect() as client:
        return [message.body for message in client.get_all(queue, credit=5000)]


def test_a_client_puts_and_gets_by_way_of_a_member(pair):
    owner, other = pair
    texts = [f"message {number}" for number in range(300)]
    put(other, "F", texts)
    assert owner.depth("F") == 300
    with other.connect() as client:
        browsed = [message.body for message in client.get_all("F", browse=True, credit=1000)]
        assert browsed == texts
    assert bodies(other, "F") == texts
    assert owner.depth("F") == 0
    # What is large, and what is refused for its queue's sake, with the reason that the owner gives.
    put(other, "F", ["x" * (3 << 20)])
    assert [len(body) for body in bodies(other, "F")] == [3 << 20]
    with other.connect() as client:
        sender = client.sender("F.SMALL")
        for number in range(3):
            client.put("F.SMALL", Message(body=number, durable=True), sender=sender)
        with pytest.raises(Refused) as full:
            client.put("F.SMALL", Message(body=3, durable=True), sender=sender)
        assert full.value.reason == 2053
        # Nothing is there: a client that drains hears so at once.
        assert client.get("F", wait=0.2) is None
        # A message that is got and not settled goes back to its place.
        receiver = client.receiver("F.SMALL", credit=1)
        assert receiver.next(accept=False).body == 0
        receiver.close()
        assert [message.body for message in client.get_all("F.SMALL")] == [0, 1, 2]
    # Queues that are here go on as before, on the same connection.
    other.mqsc("DEFINE QLOCAL(HERE)")
    with other.connect() as client:
        client.put("HERE", Message(body="here"))
        client.put("F", Message(body="there", durable=True))
        assert (client.get("HERE").body, client.get("F").body) == ("here", "there")


def test_rights_are_the_owner_s_to_give(managers, engine):
    owner = member(managers, engine, "QM1", "RIGHTS", grants=None)
    wait_for_state(owner, "RIGHTS", "OWNER")
    other = member(managers, engine, "QM2", "RIGHTS", grants=None)
    wait_for_state(other, "RIGHTS", "STANDBY")
    for qm in (owner, other):
        qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)")
        qm.add_user("ann")
        qm.add_user("bob")
    owner.mqsc("DEFINE QLOCAL(R) QSGROUP(RIGHTS)\nSET AUTHREC PROFILE(R) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")

    def ann_may(does):
        with other.connect("ann") as client:
            try:
                return does(client)
            except Refused as refused:
                return refused

    wait_until(lambda: not isinstance(ann_may(lambda client: client.sender("R")), Refused), "ann may put")
    ann_may(lambda client: client.put("R", Message(body="ann's", durable=True)))
    refused = ann_may(lambda client: client.receiver("R"))
    assert isinstance(refused, Refused) and refused.reason == 2035, refused
    with other.connect("bob") as client:
        strange = pytest.raises(Refused, client.sender, "R").value
        none = pytest.raises(Refused, client.sender, "NONE").value
    assert strange.description == none.description.replace("NONE", "R"), (strange, none)
    # A right that is taken away ends the link, wherever it was attached.
    with other.connect("ann") as client:
        sender = client.sender("R")
        client.put("R", Message(body="still", durable=True), sender=sender)
        owner.mqsc("SET AUTHREC PROFILE(R) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHRMV(PUT)")
        with pytest.raises(Refused) as gone:
            for _ in range(100):
                client.put("R", Message(body="late", durable=True), sender=sender)
        assert gone.value.reason == 2035
    # Who has no ticket signs in by none: it is the same as with a wrong password.
    for ticket in (b"", b"x", bytes(32), bytes(4096)):
        with sasl.Dialogue(owner) as dialogue:
            assert "X-BULLA-TICKET" not in dialogue.mechanisms
            assert dialogue.init("X-BULLA-TICKET", ticket) == (sasl.OUTCOME, sasl.REFUSED)


def ticket(engine, group, user):
    """What an owner gives who may speak on the group's subjects: asked for as another member would."""
    with socket.create_connection(("127.0.0.1", engine.clients[0]), DEADLINE) as stream:
        question = b"\x01\x01" + user.encode()
        stream.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB answers 1\r\n')
        stream.sendall(f"PUB {group}.ask answers {len(question)}\r\n".encode() + question + b"\r\n")
        lines = stream.makefile("rb")
        while not (line := lines.readline()).startswith(b"MSG answers"):
            assert line, "the engine hung up"
        return lines.read(int(line.split()[-1]))


def attached(qm, own_ticket, queue, sends):
    """The reason with which a link is refused to who signs in by that ticket; none where it is not."""
    with sasl.Dialogue(qm) as dialogue:
        assert dialogue.init("X-BULLA-TICKET", own_ticket) == (sasl.OUTCOME, sasl.OK)
        dialogue.stream.sendall(sasl.AMQP_HEADER)
        terminus = lambda code: Described(ulong(code), [queue])
        attach = [queue, uint(0), not sends, None, None, terminus(0x28), terminus(0x29), None, None, uint(0)]
        for code, fields in [(0x10, ["c"]), (0x11, [None, uint(0), uint(10), uint(10)]), (0x12, attach)]:
            dialogue.perform(code, fields)
        return dialogue.reason_of_detach()


def test_a_ticket_is_good_for_the_group_s_queues_alone(pair, engine):
    owner, _ = pair
    owner.mqsc("DEFINE QLOCAL(OWN)\nDEFINE QALIAS(OTHER.NAME) TARGET(OWN)")
    asked = lambda: ticket(engine, owner.group, "anybody")
    assert attached(owner, asked(), "F", sends=True) is None
    for queue in ("OWN", "OTHER.NAME", "SYSTEM.PROTECTION.ERROR.QUEUE", "topic://any"):
        for sends in (True, False):
            assert attached(owner, asked(), queue, sends) == 2035, queue
    # Good once.
    once = asked()
    attached(owner, once, "F", sends=True)
    with sasl.Dialogue(owner) as dialogue:
        assert dialogue.init("X-BULLA-TICKET", once) == (sasl.OUTCOME, sasl.REFUSED)


def test_units_of_work_go_with_their_messages(pair):
    owner, other = pair
    other.mqsc("DEFINE QLOCAL(HERE)")
    put(other, "F", ["first", "second"])
    with other.connect() as client:
        sender, small, receiver = client.sender("F"), client.sender("F.SMALL"), client.receiver("F", credit=1)
        unit = Unit(client)
        for number in range(3):
            unit.put(sender, Message(body=f"unit {number}", durable=True))
        unit.put(small, Message(body="small", durable=True))
        unit.accept(receiver, receiver.next(accept=False))
        assert owner.depth("F.SMALL") == 0
        unit.commit()
        wait_until(lambda: owner.depth("F") == 4, "one is got, three are put")
        assert owner.depth("F.SMALL") == 1
        # Backed out: what was got is there again, what was put is not.
        receiver.flow(1)
        unit = Unit(client)
        unit.put(sender, Message(body="never", durable=True))
        message = receiver.next(accept=False)
        assert message.body == "second"
        unit.accept(receiver, message)
        unit.abort()
        # What can't be: the queue is full.
        unit = Unit(client)
        unit.put(sender, Message(body="with it", durable=True))
        for number in range(2):
            unit.put(small, Message(body=number, durable=True))
        with pytest.raises(Refused):
            unit.put(small, Message(body="too many", durable=True))
        unit.abort()
        receiver.close()
        assert owner.depth("F.SMALL") == 1
        # A unit of queues that are here and of the group's is refused, whichever comes first.
        here = client.sender("HERE")
        for first, second in ((here, sender), (sender, here)):
            unit = Unit(client)
            unit.put(first, Message(body="mixed", durable=True))
            unit.send(second, Message(body="mixed", durable=True))
            with pytest.raises(Refused) as mixed:
                unit.commit()
            assert mixed.value.reason == 2355, mixed.value
        unit = Unit(client)
        unit.put(here, Message(body="alone", durable=True))
        unit.commit()
    assert bodies(other, "HERE") == ["alone"]
    assert bodies(other, "F") == ["second", "unit 0", "unit 1", "unit 2"]
    # A client that goes in the middle of one leaves nothing behind.
    with other.connect() as client:
        unit = Unit(client)
        unit.put(client.sender("F"), Message(body="left", durable=True))
        client.abandon()
    put(other, "F", ["after it"])
    assert bodies(owner, "F") == ["after it"]


def test_a_unit_of_gets_has_all_that_was_said_before_its_end(pair):
    """The end goes to the owner with the first outcome's answer, and comes behind all outcomes there."""
    owner, other = pair
    for _ in range(20):
        put(owner, "F", range(4))
        with other.connect() as client:
            receiver = client.receiver("F", credit=4)
            assert receiver.wait_for(4)
            unit = Unit(client)
            for _ in range(4):
                unit.accept(receiver, receiver.next(accept=False))
            unit.commit()
            # The link is there still, and has nothing more.
            assert receiver.drain() == []
        assert bodies(owner, "F") == []


def test_a_unit_of_puts_has_all_that_was_sent_before_its_end(pair):
    """A client need not wait for outcomes before the end. Large messages wait for room on the way to the owner."""
    owner, other = pair
    for _ in range(3):
        with other.connect() as client:
            sender, unit = client.sender("F"), Unit(client)
            for _ in range(6):
                unit.send(sender, Message(body=bytes(3 << 20), durable=True))
            unit.commit()
        assert len(bodies(owner, "F")) == 6


def test_a_link_for_any_queue_reaches_those_of_the_owner_too(pair):
    owner, other = pair
    other.mqsc("DEFINE QLOCAL(HERE)")
    with other.connect() as client:
        relay = client.sender(None)

        def relayed(queue, body, unit=None):
            message = Message(body=body, address=queue, durable=True)
            return unit.put(relay, message) if unit else client.put(None, message, sender=relay)

        for number in range(3):
            relayed("F", f"there {number}")
            relayed("HERE", f"here {number}")
        unit = Unit(client)
        relayed("F", "in a unit", unit)
        unit.commit()
        unit = Unit(client)
        relayed("F", "mixed", unit)
        relayed("HERE", "mixed", unit)
        with pytest.raises(Refused) as mixed:
            unit.commit()
        assert mixed.value.reason == 2355
        with pytest.raises(Refused) as none:
            relayed("NONE", "x")
        assert none.value.reason == 2085
        relayed("F", "the last")
    assert bodies(other, "F") == ["there 0", "there 1", "there 2", "in a unit", "the last"]
    assert bodies(other, "HERE") == ["here 0", "here 1", "here 2"]


def test_links_end_with_the_owner_and_new_ones_go_to_the_next(pair):
    owner, other = pair
    put(other, "F", ["kept"])
    with other.connect() as client:
        sender = client.sender("F")
        client.put("F", Message(body="kept, too", durable=True), sender=sender)
        owner.kill()
        with pytest.raises(Refused) as ended:
            client.put("F", Message(body="in doubt", durable=True), sender=sender)
        assert ended.value.reason == 2009, ended.value
        wait_for_state(other, other.group, "OWNER")
        assert [message.body for message in client.get_all("F")][:2] == ["kept", "kept, too"]
    owner.start()
    wait_for_state(owner, owner.group, "STANDBY")
    wait_until(lambda: is_known(owner, "F"), "the former owner forwards")
    put(owner, "F", ["the other way"])
    assert bodies(other, "F") == ["the other way"]


def test_the_owner_seals_and_opens_for_the_member_s_users(pair, authority):
    owner, other = pair
    people = People(owner, authority)
    for name in ("orders", "billing"):
        people.add(name)
    names = f"SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')"
    owner.mqsc(f"SET POLICY(F) SIGNALG(SHA256) ENCALG(AES256) {names}")
    # The member's users sign in there; their rings are the owner's.
    shutil.copy(owner.data / "users", other.data / "users")
    other.passwords = owner.passwords
    users = lambda: other.run("user", "list", "--data", other.data, code=None)
    wait_until(lambda: users().returncode == 0, "the users are there")
    with other.connect("orders") as client:
        client.put("F", Message(body="sealed", durable=True))
    with owner.connect("billing") as client:
        assert [message.body for message in client.get_all("F", browse=True)] == ["sealed"]
    with other.connect("billing") as client:
        assert client.get("F").body == "sealed"


def test_many_clients_at_once_lose_nothing_and_keep_their_order(pair):
    owner, other = pair
    failed = []

    def run(number):
        try:
            put(other, "F", [f"{number} {count}" for count in range(200)])
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not failed, failed
    got = bodies(other, "F")
    for number in range(8):
        assert [body for body in got if body.startswith(f"{number} ")] == [f"{number} {count}" for count in range(200)]


def test_messages_that_are_settled_as_they_are_put_arrive_though_their_client_is_gone(pair):
    owner, other = pair
    with other.connect() as client:
        sender = client.sender("F")
        link = sender.link
        client.connection.wait(lambda: link.credit >= 50, timeout=DEADLINE, msg="credit")
        for number in range(50):
            delivery = link.delivery(str(number))
            link.send(Message(body=number, durable=True).encode())
            delivery.settle()
            link.advance()
        client.connection.wait(lambda: client.connection.conn.transport.pending() <= 0, timeout=DEADLINE, msg="sent")
    wait_until(lambda: owner.depth("F") == 50, "all are there")


def test_an_owner_on_another_machine_is_not_reached_in_clear(managers, engine):
    owner = member(managers, engine, "QM1", "CLEAR")
    wait_for_state(owner, "CLEAR", "OWNER")
    owner.mqsc("DEFINE QLOCAL(C) QSGROUP(CLEAR)")
    owner.mqsc("STOP QSGROUP(CLEAR)\nALTER QSGROUP(CLEAR) CONNAME('192.0.2.1:5672')\nSTART QSGROUP(CLEAR)")
    wait_for_state(owner, "CLEAR", "OWNER")
    other = member(managers, engine, "QM2", "CLEAR")
    wait_for_state(other, "CLEAR", "STANDBY")

    def told():
        with other.connect() as client:
            return pytest.raises(Refused, client.sender, "C").value

    wait_until(lambda: told().cause == "in-clear", "the member knows the queue")
    assert told().reason == 2393
    assert "SSLCIPH" in told().description


def test_a_member_reaches_the_owner_by_tls(managers, engine):
    owner = member(managers, engine, "QM1", "SECRET")
    wait_for_state(owner, "SECRET", "OWNER")
    tls = owner.ports["amqps"]
    owner.mqsc("DEFINE QLOCAL(T) QSGROUP(SECRET)")
    owner.mqsc(f"STOP QSGROUP(SECRET)\nALTER QSGROUP(SECRET) CONNAME('localhost:{tls}')\nSTART QSGROUP(SECRET)")
    wait_for_state(owner, "SECRET", "OWNER")
    other = member(managers, engine, "QM2", "SECRET", "SSLCIPH(TLS_AES_256_GCM_SHA384)")
    wait_for_state(other, "SECRET", "STANDBY")

    def refused():
        with other.connect() as client:
            return pytest.raises(Refused, client.sender, "T").value

    # As of a channel's partner, who vouches for the owner is in partners.pem.
    wait_until(lambda: refused().reason != 2085, "the member knows the queue")
    assert (refused().reason, refused().cause) == (2393, "certificate-untrusted"), refused()
    shutil.copy(owner.ca, other.data / "tls/partners.pem")
    wait_until(lambda: is_known(other, "T"), "the member reaches the owner")
    put(other, "T", [str(number) for number in range(100)])
    assert bodies(other, "T") == [str(number) for number in range(100)]


@pytest.fixture(scope="module")
def results(managers, engine):
    """The whole suite of tests/clients/jms, against a queue that another member owns."""
    owner = member(managers, engine, "QM1", "JMSGROUP")
    wait_for_state(owner, "JMSGROUP", "OWNER")
    owner.mqsc("DEFINE QLOCAL(JMS) QSGROUP(JMSGROUP)\nDEFINE QLOCAL(JMS.GROUPS) QSGROUP(JMSGROUP) GROUPS(YES)")
    other = member(managers, engine, "QM2", "JMSGROUP")
    other.mqsc(TOPICS)
    wait_for_state(other, "JMSGROUP", "STANDBY")
    wait_until(lambda: is_known(other, "JMS.GROUPS"), "the member knows the queues")
    done = subprocess.run(
        [str(word) for word in [*FEATURES, "all", other.amqp, "JMS"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300,
    )
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert done.returncode == 0, done.stderr.decode()
    assert owner.depth("JMS") == 0
    return {line["check"]: line["error"] for line in lines}


@pytest.mark.parametrize("check", CHECKS)
def test_jms_by_way_of_a_member(results, check):
    assert results[check] is None
