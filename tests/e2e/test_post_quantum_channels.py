"""Keys that withstand a quantum computer at the border: channels that open what leaves and seal what arrives, partners who
have only old keys, and what is known of a channel that runs."""

import json

import pytest

from channels import TLS, Route, dead_letters, trust_each_other
from manager import label, wait_until
from modern import OLD_READS, READS, SIGNS, Modern
from proton_driver import Refused
from sites import clear, payloads

QUALITIES = {
    "integrity": "SIGNALG(SHA384) SIGNER('CN={signer},O=Demo')",
    "privacy": "SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN={signer},O=Demo') RECIP('CN={reader},O=Demo')",
    "confidentiality": "ENCALG(AES256) RECIP('CN={reader},O=Demo')",
    "batch": "SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN={signer},O=Demo') RECIP('CN={reader},O=Demo') SIGNBATCH(64)",
}
REQUIRED, NONE = "PQC(REQUIRED)", "PQC(NONE)"
MESSAGES = 150


class Crossing(Route):
    """A route by TLS whose queues can be seen as they lie."""

    def __init__(self, pair, sender="", receiver="", **options):
        super().__init__(*pair, sender=f"{TLS} {sender}", receiver=f"MRRTY(0) {TLS} {receiver}", start=False, **options)
        self.near.mqsc(f"DEFINE QALIAS({self.transmission}.RAW) TARGET({self.transmission})")
        self.far.mqsc(f"DEFINE QALIAS({self.queue}.RAW) TARGET({self.queue})")

    def near_policy(self, quality, reader="NORTH", signer="orders", more=REQUIRED, border=True):
        """How the remote queue says that is sealed, and where the channel is to open it the transmission queue."""
        asks = f"{QUALITIES[quality].format(signer=signer, reader=reader)} {more}"
        for queue in (self.remote, *([self.transmission] if border else [])):
            self.near.mqsc(f"SET POLICY({queue}) {asks}")

    def far_policy(self, quality, reader="billing", signer="SOUTH", more=REQUIRED):
        self.far.mqsc(f"SET POLICY({self.queue}) {QUALITIES[quality].format(signer=signer, reader=reader)} {more}")

    def send(self, payloads, user="orders"):
        with self.near.connect(user) as client:
            sender = client.sender(self.remote)
            for number, payload in enumerate(payloads):
                client.put(self.remote, clear(payload, id=f"{number}"), sender)

    def got(self, user):
        with self.far.connect(user) as client:
            return payloads(client.get_all(self.queue, credit=1000))

    def raw(self, there=True):
        manager, queue = (self.far, self.queue) if there else (self.near, self.transmission)
        with manager.connect() as client:
            return client.get_all(f"{queue}.RAW", browse=True, credit=1000)


@pytest.fixture(scope="module")
def pair(managers):
    """Each with users and an authority of its own; `bob` is at SOUTH and known at NORTH, `old` has no new keys."""
    north, south = managers("north", name="NORTH"), managers("south", name="SOUTH")
    trust_each_other(north, south)
    people = {}
    for manager, users in ((north, ("orders", "old", "NORTH")), (south, ("billing", "old", "SOUTH"))):
        people[manager.name] = Modern(manager, *users)
        for user in users:
            if user != "old":
                people[manager.name].modernise(user)
    bob = south.data / "rings/bob"
    south.add_user("bob")
    for kind in ("p256", "ml-dsa-65", "ml-kem-768"):
        people["NORTH"].cert("create", "--ring", bob, "--dn", "CN=bob,O=Demo", "--key", kind, "--signer", "demo",
                             "--share", "orders", "--share", "old")  # fmt: skip
    yield north, south
    for manager in (north, south):
        assert manager.process.poll() is None, "".join(manager.log[-30:])
        assert manager.stop() == 0


@pytest.fixture
def crossing(pair):
    """Makes routes, whose channels end with the test."""
    made = []

    def make(**settings):
        made.append(Crossing(pair, **settings))
        return made[-1]

    yield make
    for route in made:
        route.stop()
    for manager in pair:
        dead_letters(manager)
        manager.clear_error_queue()


def algorithms(manager, tmp_path, message):
    path = tmp_path / "message.der"
    path.write_bytes(bytes(message.body))
    shown = json.loads(manager.run("seal", "inspect", path, "--json").stdout)
    return {one["algorithm"] for one in [*shown["signers"], *shown["recipients"]]}


def expected(quality):
    return {SIGNS} if quality == "integrity" else {READS}


def no_errors(*managers):
    assert [manager.errors() for manager in managers] == [[] for _ in managers]


# --- SPLPROT ---


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_channel_opens_what_leaves_and_its_partner_seals_what_arrives(crossing, tmp_path, quality):
    route = crossing(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    route.near_policy(quality)
    route.far_policy(quality)
    sent = [b"%d" % number for number in range(5)]
    route.send(sent)
    assert algorithms(route.near, tmp_path, route.raw(there=False)[0]) == expected(quality)
    route.start()
    route.wait_for_arrival(5)
    assert algorithms(route.far, tmp_path, route.raw()[0]) == expected(quality)
    assert route.got("billing") == sent
    no_errors(route.near, route.far)


def test_what_arrives_together_shares_signatures(crossing):
    route = crossing(receiver="SPLPROT(ASPOLICY)")
    route.far_policy("batch")
    with route.near.connect() as client:
        sender = client.sender(route.remote)
        for number in range(MESSAGES):
            client.put(route.remote, clear(b"%d" % number, id=f"{number}"), sender)
    route.start()
    route.wait_for_arrival(MESSAGES)
    shown = route.far_status()
    assert shown["SEALED"] == MESSAGES and 0 < shown["SIGNS"] < MESSAGES / 2, shown
    assert shown["SSLGROUP"] == "X25519MLKEM768", shown
    assert route.got("billing") == [b"%d" % number for number in range(MESSAGES)]
    no_errors(route.near, route.far)


@pytest.mark.parametrize("protection", ["PASSTHRU", "ASPOLICY"])
@pytest.mark.parametrize("quality", QUALITIES)
def test_what_is_sealed_from_end_to_end_crosses_as_it_is(crossing, tmp_path, quality, protection):
    route = crossing(receiver=f"SPLPROT({protection}) MCAUSER('bob')")
    route.near_policy(quality, "bob", border=False)
    route.far_policy(quality, "bob", "orders")
    route.send([b"from end to end"])
    [sent] = route.raw(there=False)
    route.start()
    route.wait_for_arrival(1)
    [arrived] = route.raw()
    assert bytes(arrived.body) == bytes(sent.body) and algorithms(route.far, tmp_path, arrived) == expected(quality)
    assert route.got("bob") == [b"from end to end"]
    no_errors(route.near, route.far)


# --- partners with old keys ---


def buried(manager):
    wait_until(lambda: manager.depth("SYSTEM.DEAD.LETTER.QUEUE") == 1, "there is a dead letter")
    [message] = dead_letters(manager)
    return message, label(message)


@pytest.mark.parametrize("quality", ["integrity", "privacy", "confidentiality"])
def test_what_a_partner_sealed_by_old_keys_is_a_dead_letter_and_the_next_one_arrives(crossing, tmp_path, quality):
    route = crossing(receiver="SPLPROT(ASPOLICY) MCAUSER('bob')")
    route.near_policy(quality, "bob", border=False, more=NONE)
    route.far_policy(quality, "bob", "orders")
    route.send([b"by old keys"])
    [sent] = route.raw(there=False)
    assert not algorithms(route.near, tmp_path, sent) & {SIGNS, READS}
    route.start()
    dead, said = buried(route.far)
    assert (said["reason"], said["queue"]) == (2063, route.queue), said
    assert "weaker-than-policy" in json.dumps({key: str(value) for key, value in said.items()}), said
    assert bytes(dead.body) == bytes(sent.body), "nothing of it is lost"
    route.near_policy(quality, "bob", border=False)
    route.send([b"by new keys"])
    route.wait_for_arrival(1)
    assert route.got("bob") == [b"by new keys"] and route.status()["STATUS"] == "RUNNING"
    no_errors(route.near, route.far)


def test_where_the_channel_passes_it_through_the_reader_refuses_what_is_sealed_by_old_keys(crossing):
    route = crossing()
    route.near_policy("privacy", "bob", border=False, more=NONE)
    route.far_policy("privacy", "bob", "orders")
    route.send([b"by old keys"])
    route.start()
    route.wait_for_arrival(1)
    with route.far.connect("bob") as client, pytest.raises(Refused) as refused:
        client.get(route.queue)
    assert (refused.value.reason, refused.value.cause) == (2063, "weaker-than-policy")
    [said] = route.far.errors()
    assert (said["queue"], said["cause"]) == (route.queue, "weaker-than-policy")


@pytest.mark.parametrize(
    ("user", "reader", "cause"), [("old", "billing", "signer-key"), ("SOUTH", "old", "recipient-key")]
)
def test_a_border_without_new_keys_takes_nothing_and_the_sender_keeps_it_sealed(crossing, tmp_path, user, reader, cause):
    route = crossing(sender="SPLPROT(REMOVE)", receiver=f"SPLPROT(ASPOLICY) MCAUSER('{user}')")
    route.near_policy("privacy")
    route.far_policy("privacy", reader, user)
    payload = b"for whom there is no new key; " * 5
    route.send([payload])
    route.start()
    dead, said = buried(route.near)
    assert (said["reason"], said["queue"]) == (2063, route.queue), said
    assert cause in json.dumps({key: str(value) for key, value in said.items()}), said
    assert algorithms(route.near, tmp_path, dead) == {READS} and payload not in bytes(dead.body)
    for manager in (route.near, route.far):
        files = [path for path in manager.data.rglob("*") if path.is_file()]
        assert not [path for path in files if payload in path.read_bytes()], "no clear text comes to a disk"
    # A border with such keys is what it takes: the messages behind it go on.
    route.far.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(RCVR) MCAUSER('SOUTH')")
    route.stop()
    route.far_policy("privacy")
    route.start()
    route.send([b"now"])
    route.wait_for_arrival(1)
    assert route.got("billing") == [b"now"]


def test_what_lies_there_by_old_keys_does_not_leave_under_required(crossing):
    """The channel opens no more than the policy of its transmission queue allows; what comes behind it leaves."""
    route = crossing(sender="SPLPROT(REMOVE)")
    route.near_policy("privacy", more=NONE)
    route.send([b"old"])
    route.near_policy("privacy")
    route.send([b"new"])
    route.start()
    route.wait_for_arrival(1)
    with route.far.connect() as client:
        assert payloads(client.get_all(route.queue)) == [b"new"]
    [said] = route.near.errors()
    assert said["cause"] == "weaker-than-policy", said
    assert route.near.depth(route.transmission) == 0


# --- on the way from old keys to new ones ---


def test_a_route_comes_to_new_keys_and_back_with_messages_on_it(crossing, tmp_path):
    """What waits to leave is not sealed anew: it leaves under ALLOWED, before REQUIRED is set."""
    route = crossing(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    sent = []

    def send(count=3):
        more = [b"%d" % number for number in range(len(sent), len(sent) + count)]
        sent.extend(more)
        route.send(more)

    route.near_policy("privacy", more=NONE)
    route.far_policy("privacy", more=NONE)
    send()
    route.start()
    route.wait_for_arrival(3)
    route.stop()
    send()
    route.near_policy("privacy", more="PQC(ALLOWED)")
    route.far_policy("privacy", more="PQC(ALLOWED)")
    send()
    keys = [algorithms(route.near, tmp_path, message) for message in route.raw(there=False)]
    assert keys == [{OLD_READS}] * 3 + [{READS}] * 3
    for manager, queue in ((route.near, route.transmission), (route.far, route.queue)):
        said = manager.run("reseal", queue, "--where", "all", "--data", manager.data, code=None)
        assert said.returncode == (2 if queue == route.transmission else 0), said
    route.start()
    route.wait_until_sent()
    route.near_policy("privacy")
    route.far_policy("privacy")
    send()
    route.wait_for_arrival(len(sent))
    assert [algorithms(route.far, tmp_path, message) for message in route.raw()] == [{READS}] * len(sent)
    # And back, with what is there.
    route.far_policy("privacy", more="PQC(ALLOWED)")
    route.near_policy("privacy", more=NONE)
    send()
    route.wait_for_arrival(len(sent))
    assert route.got("billing") == sent
    no_errors(route.near, route.far)


def test_keys_of_both_ends_are_changed_while_messages_cross(crossing):
    route = crossing(sender="SPLPROT(REMOVE)", receiver="SPLPROT(ASPOLICY)")
    route.near_policy("batch")
    route.far_policy("batch")
    route.send([b"0", b"1"])
    route.start()
    route.wait_for_arrival(2)
    changed = (route.near, "NORTH", "ML-KEM"), (route.far, "billing", "ML-KEM"), (route.far, "SOUTH", "ML-DSA")
    for manager, user, kind in changed:
        rows = json.loads(manager.run("cert", "list", "--ring", user, "--json", "--data", manager.data).stdout)
        mine = [row for row in rows if row["private_key"] and row["key_type"] == kind]
        serial = max(mine, key=lambda row: row["from"])["serial"]
        manager.run("key", "rotate", user, "--serial", serial, "--overlap", "0s", "--data", manager.data)
        route.send([b"during"])
    route.wait_for_arrival(5)
    assert route.got("billing") == [b"0", b"1", b"during", b"during", b"during"]
    no_errors(route.near, route.far)
