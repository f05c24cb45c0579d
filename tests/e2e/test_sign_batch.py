"""One signature for many messages: what waits to be signed shares one, each message is verified alone, by tools of
others too, and nothing that was confirmed depends on the rest of its batch."""

import json
import subprocess
from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, Container

import opener
from people import People
from pki import KEYS
from proton_driver import Refused
from sites import foreign

IN_FLIGHT = 100
BATCH = 64


class Stream(MessagingHandler):
    """Puts messages, many under way at once; stops when enough are confirmed, which may be when the other side dies."""

    def __init__(self, qm, user, queue, count, kill_after=None, kill=None):
        super().__init__(auto_settle=False)
        self.qm, self.user, self.queue, self.count = qm, user, queue, count
        self.kill_after, self.kill = kill_after, kill
        self.sent, self.under_way, self.confirmed, self.refused = 0, {}, set(), []

    def on_start(self, event):
        self.connection = event.container.connect(
            self.qm.amqps, user=self.user, password=self.qm.passwords[self.user], allowed_mechs="PLAIN",
            ssl_domain=self.domain(), reconnect=False,
        )  # fmt: skip
        self.sender = event.container.create_sender(self.connection, self.queue, options=AtLeastOnce())

    def domain(self):
        from proton import SSLDomain

        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(self.qm.ca))
        domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
        return domain

    def on_sendable(self, event):
        while event.sender.credit and len(self.under_way) < IN_FLIGHT and self.sent < self.count:
            message = Message(id=str(self.sent), body=f"message {self.sent}".encode(), inferred=True, durable=True)
            self.under_way[event.sender.send(message).tag] = self.sent
            self.sent += 1

    def on_accepted(self, event):
        self.confirmed.add(self.under_way.pop(event.delivery.tag))
        event.delivery.settle()
        if self.kill_after and len(self.confirmed) >= self.kill_after:
            self.kill_after = None
            self.kill()
        if len(self.confirmed) + len(self.refused) == self.count:
            self.connection.close()
        else:
            self.on_sendable(event)

    def on_rejected(self, event):
        self.refused.append(str(event.delivery.remote.condition))
        event.delivery.settle()

    def on_settled(self, event):
        if event.delivery.remote_state == Delivery.REJECTED:
            self.under_way.pop(event.delivery.tag, None)

    def on_disconnected(self, event):
        self.connection.close()

    def on_transport_error(self, event):
        assert self.kill, event.transport.condition


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers("sign-batch")
    people = People(qm, authority)
    # A signature takes about as long as sealing a thousand messages.
    people.add("orders", "rsa4096" if "rsa4096" in KEYS else "rsa2048")
    people.add("billing", "p256")
    qm.mqsc("DEFINE QLOCAL(BATCHED) MAXDEPTH(100000); DEFINE QALIAS(BATCHED.RAW) TARGET(BATCHED)")
    return qm, people


def policy(people, quality, sign_batch=BATCH):
    encrypted = f"ENCALG(AES256) RECIP('{people.dn('billing')}')" if quality == "privacy" else ""
    return f"SET POLICY(BATCHED) SIGNALG(SHA256) SIGNER('{people.dn('orders')}') SIGNBATCH({sign_batch}) {encrypted}"


def stream(qm, count, **options):
    load = Stream(qm, "orders", "BATCHED", count, **options)
    Container(load).run()
    return load


def raw(qm):
    with qm.connect() as client:
        return [bytes(message.body) for message in client.get_all("BATCHED.RAW", browse=True, credit=1000)]


def inspect(qm, tmp_path, der, *options):
    path = tmp_path / "message.der"
    path.write_bytes(der)
    return json.loads(qm.run("seal", "inspect", path, "--json", *options).stdout)


@pytest.mark.parametrize("quality", ["integrity", "privacy"])
def test_what_waits_shares_a_signature_and_each_message_opens_alone(site, tmp_path, quality):
    qm, people = site
    qm.mqsc(policy(people, quality))
    assert "SIGNBATCH(64)" in qm.mqsc("DISPLAY POLICY(BATCHED)")
    load = stream(qm, 300)
    assert len(load.confirmed) == 300 and not load.refused
    ders = raw(qm)
    assert len(ders) == 300
    authority = opener.module().x509.load_pem_x509_certificate(Path(people.authority.certificate).read_bytes())
    reader = people.identities["billing"]
    program = opener.module()
    certificate = program.x509.load_pem_x509_certificate(Path(reader.certificate).read_bytes())
    key = program.serialization.load_pem_private_key(Path(reader.key).read_bytes(), None)
    # The program of the format page knows nothing of Bulla: it opens each, backwards.
    for number, der in reversed(list(enumerate(ders))):
        payload, found = program.open_message(der, authority, certificate, key)
        assert payload == f"message {number}".encode()
    if quality == "integrity":
        shown = [inspect(qm, tmp_path, der)["batch"] for der in ders[:80]]
        batches = [batch for batch in shown if batch]
        assert batches and all(batch["fits"] and 2 <= batch["size"] <= BATCH for batch in batches), shown
        assert len({batch["tree"] for batch in batches}) < len(batches) / 3
        # Anyone's tool verifies the root.
        first = next(der for der, batch in zip(ders, shown) if batch)
        inspect(qm, tmp_path, first, "--root", tmp_path / "root.der")
        done = subprocess.run(
            ["openssl", "cms", "-verify", "-inform", "DER", "-in", tmp_path / "root.der",
             "-CAfile", people.authority.certificate, "-purpose", "any", "-binary", "-out", tmp_path / "root"],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    with qm.connect("billing") as client:
        got = [bytes(message.body) for message in client.get_all("BATCHED", credit=1000)]
    assert got == [f"message {number}".encode() for number in range(300)]
    assert qm.depth("BATCHED") == 0 and not qm.errors()


@pytest.mark.parametrize("sign_batch, credit", [(1, 256), (64, 256), (256, 1024), (1024, 4096)])
def test_a_link_may_have_several_batches_under_way(site, sign_batch, credit):
    qm, people = site
    qm.mqsc(policy(people, "integrity", sign_batch))
    with qm.connect("orders") as client:
        sender = client.sender("BATCHED")
        link = sender.link
        client.connection.wait(lambda: link.credit > 0, timeout=60, msg="credit")
        assert link.credit == 256, "no message has shown yet how long they are"
        client.put("BATCHED", Message(body=b"short", inferred=True), sender)
        client.connection.wait(lambda: link.credit >= credit - 1, timeout=60, msg="more credit")
        assert link.credit <= credit
        sender = client.sender("BATCHED")
        client.put("BATCHED", Message(body=bytes(1 << 20), inferred=True), sender)
        client.put("BATCHED", Message(body=bytes(1 << 20), inferred=True), sender)
        assert sender.link.credit <= 256, "memory for no more of these"
    qm.mqsc("CLEAR QLOCAL(BATCHED)")


def test_one_message_at_a_time_has_a_signature_of_its_own(site, tmp_path):
    qm, people = site
    qm.mqsc(policy(people, "integrity"))
    with qm.connect("orders") as client:
        for number in range(3):
            client.put("BATCHED", Message(body=b"alone", inferred=True))
    assert [inspect(qm, tmp_path, der)["container"] for der in raw(qm)] == ["signed-data"] * 3
    with qm.connect("billing") as client:
        assert len(client.get_all("BATCHED")) == 3


def test_a_reader_who_wants_a_signature_a_message_refuses_those_that_share_one(site):
    qm, people = site
    qm.mqsc(policy(people, "integrity"))
    stream(qm, 90)
    qm.mqsc(policy(people, "integrity", sign_batch=1))
    with qm.connect("billing") as client:
        alone = client.get_all("BATCHED", credit=1000)
    moved = qm.errors()
    assert len(alone) + len(moved) == 90 and len(moved) > 20
    assert {header["cause"] for header in moved} == {"weaker-than-policy"}
    qm.clear_error_queue()


def test_what_arrives_sealed_in_a_batch_is_checked_like_any_other(site):
    qm, people = site
    qm.mqsc(policy(people, "integrity"))
    stream(qm, 100)
    ders = raw(qm)
    with qm.connect("billing") as client:
        client.get_all("BATCHED", credit=1000)
    with qm.connect("orders") as client:
        for at in (100, 300, len(ders[50]) - 10):
            changed = bytearray(ders[50])
            changed[at] ^= 1
            with pytest.raises(Refused) as refused:
                client.put("BATCHED", foreign(bytes(changed)), sealed=True)
            assert refused.value.reason == 2063, refused.value
        # Unchanged it is bound to its id, which this message hasn't.
        with pytest.raises(Refused) as refused:
            client.put("BATCHED", foreign(ders[50]), sealed=True)
        assert refused.value.cause in ("tampered", "moved"), refused.value
    assert qm.depth("BATCHED") == 0


def test_a_kill_while_batches_wait_loses_nothing_that_was_confirmed(managers, authority):
    qm = managers("sign-batch-killed")
    people = People(qm, authority)
    people.add("orders", "rsa4096" if "rsa4096" in KEYS else "rsa2048")
    people.add("billing", "p256")
    qm.mqsc("DEFINE QLOCAL(BATCHED) MAXDEPTH(100000); DEFINE QALIAS(BATCHED.RAW) TARGET(BATCHED)")
    qm.mqsc(policy(people, "privacy"))
    confirmed, first = set(), 0
    for turn in range(3):
        load = stream(qm, 100_000, kill_after=50 + 70 * turn, kill=qm.process.kill)
        assert len(load.confirmed) >= 50
        qm.kill()
        qm.start()
        with qm.connect("billing") as client:
            got = [int(bytes(message.body).split()[1]) for message in client.get_all("BATCHED", credit=1000)]
        assert got == sorted(set(got)) and load.confirmed <= set(got), (turn, len(got))
        assert qm.depth("BATCHED") == 0 and not qm.errors(), "none is half signed"
