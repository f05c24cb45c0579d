"""Sealed messages of a shared group whose owner dies half-way: between seal and put, between unwrap and delivery, as a
defective message is moved. The keys are in a transit engine of the tests, which answers when it is told to; the way to
the servers of the group's log is held in the same manner. So each owner is killed at the step that is meant."""

import itertools
import shutil
import time
from types import SimpleNamespace

import pytest
from proton import Message

from groups import member, status, wait_for_state
from manager import label, wait_until
from proxy import BACK, OUT, Proxy
from test_jms import Lines
from transit import Server

# Of groups: each test has its own.
NUMBERS = itertools.count(1)
SEALS = "SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=billing,O=Dies') SIGNER('CN={},O=Dies')"
# In the clear it is in no file of the engine's.
SECRET = "two tons of barley for the temple"
# An owner that has heard nothing of its log for 0.8 s sends nothing.
LEASE_SECONDS = 1.0
# What is not to come would have come by then.
SOON = 1.0


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("transit"), real=None)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def users(managers, keys):
    """A queue manager with the users and their rings, which members have copies of."""
    qm = managers("users")
    define_device(qm, keys)
    data = ["--data", qm.data]
    qm.run("cert", "create", "--ca", "trade", "--dn", "CN=trade,O=Dies", *data)
    qm.add_user("orders")
    qm.add_user("billing")
    for user, other in (("orders", "billing"), ("billing", "orders")):
        qm.run("cert", "create", "--ring", user, "--dn", f"CN={user},O=Dies", "--key", "rsa2048", "--label", user,
               "--signer", "trade", "--device", "VAULT", "--share", other, *data)
    assert qm.stop() == 0
    return qm


def define_device(qm, keys):
    qm.mqsc(
        f"DEFINE DEVICE(VAULT) TYPE(TRANSIT) ADDRESS('{keys.address}') CAFILE('{keys.ca}') + \n"
        f"  TOKENFILE('{keys.token_file}') ENGINES(2) TIMEOUT(60000)\nSTART DEVICE(VAULT)"
    )


class Site:
    """A group of two members; the first one owns it, and reaches the servers of the log by ways that can be held."""

    def __init__(self, managers, engine, keys, users):
        self.engine, self.keys = engine, keys.stand_in
        self.group = f"DIES{next(NUMBERS)}"
        self.queue, self.errors = f"{self.group}.Q", f"SYSTEM.ERROR.{self.group}"
        self.ways = [Proxy(lambda port=port: port) for port in engine.clients]
        reached = [engine.reached_at([way.port for way in self.ways]), engine.attributes]
        self.members = []
        for name, attributes, state in zip(("QM1", "QM2"), reached, ("OWNER", "STANDBY")):
            qm = member(managers, SimpleNamespace(attributes=attributes), name, self.group, "REDIRECT(CONNECTION)")
            define_device(qm, keys)
            shutil.copytree(users.data / "rings", qm.data / "rings", dirs_exist_ok=True)
            shutil.copy(users.data / "users", qm.data / "users")
            qm.passwords = users.passwords
            wait_for_state(qm, self.group, state)
            self.members.append(qm)
        self.first, self.second = self.members
        self.first.mqsc(
            f"DEFINE QLOCAL({self.queue}) QSGROUP({self.group})\nSET POLICY({self.queue}) {SEALS.format('orders')}\n"
            f"DEFINE QLOCAL({self.group}.CLEAR) QSGROUP({self.group})"
        )
        # By names without a policy: what lies there.
        for qm in self.members:
            qm.mqsc(f"DEFINE QALIAS({self.group}.RAW) TARGET({self.queue})")
            users = ["user", "list", "--data", qm.data]
            wait_until(lambda: qm.run(*users, code=None).returncode == 0, "the users are there")
        # Keys are tried out when they are first used.
        self.put(self.first, "first of all")
        assert self.got(self.first) == ["first of all"]

    def put(self, qm, body):
        with qm.connect("orders") as client:
            client.put(self.queue, Message(body=body, durable=True))

    def got(self, qm):
        """What `billing` gets: all that is there and opens."""
        with qm.connect("billing") as client:
            return [message.body for message in client.get_all(self.queue, credit=1000)]

    def asks_for_one(self):
        """A receiver of `billing` at the owner, and the content key of its message is to be unwrapped."""
        receiver = self.first.connect("billing").receiver(self.queue, credit=1)
        receiver.flush()
        self.keys.wait_until(lambda: self.keys.waiting, "the content key is to be unwrapped")
        return receiver

    def quarantined(self, qm):
        with qm.connect() as client:
            return [label(message) for message in client.get_all(self.errors, browse=True)]

    def hold_log(self, *directions):
        self.logged_before = self.logged()
        for way in self.ways:
            way.hold(*directions)

    def logged(self):
        """Records of all logs that the engine has: those that say who owns a group take the place of the last."""
        answers = [self.engine.answer(index, "jsz") or {} for index in range(len(self.engine.clients))]
        return max(answer.get("messages", 0) for answer in answers)

    def wait_for_write(self, direction, what):
        """What the owner writes is on its way into the log; and there, where only the log's answers are held."""
        wait_until(lambda: status(self.first, self.group)["WAITBYTES"] > 0, f"{what} is on its way into the log")
        if direction == BACK:
            wait_until(lambda: self.logged() > self.logged_before, f"{what} is in the log")

    def take_over(self):
        """The owner dies as it stands; the other one owns the group. What was held goes on, to whom it reaches."""
        self.first.kill()
        for way in self.ways:
            way.cut()
        self.keys.release()
        wait_for_state(self.second, self.group, "OWNER")

    def damage(self):
        """The last byte of the message that lies on the queue is another one, as who can write the log would do it."""
        with self.first.connect() as client:
            message = client.get(f"{self.group}.RAW")
            message.body = message.body[:-1] + bytes([message.body[-1] ^ 1])
            client.put(f"{self.group}.RAW", message)

    def files_with(self, text):
        """The files of the engine and of the members in which that text is."""
        folders = [self.engine.folder, *(qm.data for qm in self.members)]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return [path for path in files if text.encode() in path.read_bytes()]

    def nothing_is_clear(self):
        """Not in any file; of a queue without a policy it would be found."""
        assert self.files_with(SECRET) == []
        with self.second.connect() as client:
            client.put(f"{self.group}.CLEAR", Message(body=f"{self.group} in the clear", durable=True))
        assert any(self.engine.folder in path.parents for path in self.files_with(f"{self.group} in the clear"))

    def nothing_is_left(self):
        assert self.second.depth(self.queue) == 0 and self.second.depth(self.errors) == 0


@pytest.fixture
def site(managers, engine, keys, users):
    site = Site(managers, engine, keys, users)
    yield site
    keys.stand_in.release()
    for qm in site.members:
        if qm.process.poll() is None:
            qm.kill()
    for way in site.ways:
        way.close()


def while_it_is_sealed(site, put):
    site.keys.hold("sign")
    put()
    site.keys.wait_until(lambda: site.keys.waiting, "the signature is asked for")


def sealed_and_not_in_the_log(site, put, direction=OUT):
    """What the owner writes does not get to the log, or its answer does not come back."""
    signed = site.keys.done["sign"]
    site.hold_log(direction)
    put()
    site.keys.wait_until(lambda: site.keys.done["sign"] > signed, "the signature is made")
    site.wait_for_write(direction, "the sealed message")


def in_the_log_and_not_confirmed(site, put):
    sealed_and_not_in_the_log(site, put, BACK)


@pytest.mark.parametrize(
    "stand_still, there",
    [
        (while_it_is_sealed, []),
        (sealed_and_not_in_the_log, []),
        # In doubt: it is there, whole and sealed.
        (in_the_log_and_not_confirmed, [SECRET]),
    ],
)
def test_a_put_whose_owner_dies_before_it_is_confirmed_is_there_whole_and_sealed_or_not_at_all(site, stand_still, there):
    site.put(site.first, "before")
    client = site.first.connect("orders")
    sender = client.sender(site.queue)
    sent = []

    def put():
        sent.append(sender.link.send(Message(body=SECRET, durable=True)))
        transport = client.connection.conn.transport
        client.connection.wait(lambda: transport.pending() <= 0, timeout=client.timeout)

    stand_still(site, put)
    assert not sent[0].remote_state
    site.take_over()
    assert not sent[0].remote_state
    assert site.second.depth(site.queue) == 1 + len(there)
    site.nothing_is_clear()
    assert site.got(site.second) == ["before", *there]
    site.nothing_is_left()


@pytest.mark.parametrize("stand_still", [while_it_is_sealed, sealed_and_not_in_the_log])
def test_a_client_that_follows_the_owner_puts_it_again_and_it_is_there_once(site, stand_still):
    ports = [qm.ports["amqp"] for qm in (site.second, site.first)]
    who = f"jms.username=orders&jms.password={site.first.passwords['orders']}"
    pace = "failover.reconnectDelay=20&failover.maxReconnectDelay=200"
    url = f"failover:({','.join(f'amqp://127.0.0.1:{port}' for port in ports)})?{pace}&{who}"
    count = 200
    producing = Lines("produce", url, site.queue, count)
    producing.wait_for(5)
    # It puts one after the other: which one is held is its affair.
    stand_still(site, lambda: None)
    assert 5 <= len(producing.lines) < count
    site.take_over()
    assert producing.end() == [f"sent {number}" for number in range(count)]
    assert site.got(site.second) == [str(number) for number in range(count)]
    site.nothing_is_left()


def test_a_message_whose_unwrap_runs_when_the_owner_dies_is_delivered_by_the_next_one_once(site):
    site.put(site.first, SECRET)
    site.put(site.first, "behind it")
    site.keys.hold("decrypt")
    receiver = site.asks_for_one()
    assert not receiver.wait_for(1, wait=SOON)
    site.take_over()
    assert site.second.depth(site.queue) == 2
    assert site.got(site.second) == [SECRET, "behind it"]
    site.nothing_is_left()
    site.nothing_is_clear()


def test_a_message_that_is_unwrapped_and_not_delivered_is_delivered_by_the_next_owner_once(site):
    """Its owner may not send: it does not hear of its log, and another one might own the group by now."""
    site.put(site.first, SECRET)
    site.keys.hold("decrypt")
    receiver = site.asks_for_one()
    site.hold_log(OUT, BACK)
    time.sleep(LEASE_SECONDS)
    unwrapped = site.keys.done["decrypt"]
    site.keys.release()
    site.keys.wait_until(lambda: site.keys.done["decrypt"] > unwrapped, "the content key is unwrapped")
    assert not receiver.wait_for(1, wait=SOON)
    site.take_over()
    assert site.got(site.second) == [SECRET]
    site.nothing_is_left()
    site.nothing_is_clear()


def test_what_was_tampered_with_and_why_survive_a_takeover(site):
    """So does the way back of what can be mended."""
    began = time.time()
    site.put(site.first, "damaged")
    site.damage()
    assert site.got(site.first) == []
    # The second one opens again once its policy is what it was.
    site.put(site.first, SECRET)
    site.first.mqsc(f"SET POLICY({site.queue}) {SEALS.format('billing')}")
    assert site.got(site.first) == []
    site.first.wait_for_depth(site.errors, 2)
    site.first.wait_for_depth(site.queue, 0)
    labels = site.quarantined(site.first)
    assert [row["queue"] for row in labels] == [site.queue] * 2
    assert [row["cause"] for row in labels] == ["cannot-decrypt", "signer-not-authorised"]
    assert all(began - 1 <= row["time"] / 1000 <= time.time() + 1 for row in labels)
    site.take_over()
    assert site.quarantined(site.second) == labels
    user = site.second.cli("billing")
    listed = site.second.run("error", "list", "--from", site.errors, *user).stdout.decode().splitlines()
    for line, row in zip(listed, labels, strict=True):
        assert site.queue in line and f"cause={row['cause']}" in line, line
        assert time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row["time"] // 1000)) in line, line
    site.second.mqsc(f"SET POLICY({site.queue}) {SEALS.format('orders')}")
    site.second.run("error", "replay", "--from", site.errors, "--queue", site.queue, "--data", site.second.data)
    assert site.second.depth(site.errors) == 0 and site.second.depth(site.queue) == 2
    assert site.got(site.second) == [SECRET]
    # What was damaged is no better for it.
    site.second.wait_for_depth(site.errors, 1)
    (row,) = site.quarantined(site.second)
    assert (row["queue"], row["cause"]) == (site.queue, "cannot-decrypt") and row["time"] >= labels[0]["time"]
    assert site.second.depth(site.queue) == 0
    site.nothing_is_clear()


@pytest.mark.parametrize("direction, moved", [(OUT, 0), (BACK, 1)])
def test_a_defective_message_whose_owner_dies_as_it_moves_is_at_one_place(site, direction, moved):
    site.put(site.first, SECRET)
    site.damage()
    site.keys.hold("decrypt")
    site.asks_for_one()
    site.hold_log(direction)
    site.keys.release()
    site.wait_for_write(direction, "the move")
    site.take_over()
    assert (site.second.depth(site.queue), site.second.depth(site.errors)) == (1 - moved, moved)
    # The next reader hears nothing of it, and it is on the error queue once, with its header.
    assert site.got(site.second) == []
    site.second.wait_for_depth(site.errors, 1)
    (row,) = site.quarantined(site.second)
    assert (row["queue"], row["cause"]) == (site.queue, "cannot-decrypt")
    assert site.second.depth(site.queue) == 0
    site.nothing_is_clear()
