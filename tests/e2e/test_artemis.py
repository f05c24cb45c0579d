"""Apache ActiveMQ Artemis as the partner of channels: what it has is sealed at this border, what goes to it is opened.

ARTEMIS_HOME names an installation (the folder with `bin/artemis`); without one the file is skipped. Each run makes an
instance of its own on a free port of the loopback interface.
"""

import os
import socket
import subprocess
import warnings
from pathlib import Path

import pytest
from proton import Message

import cms
from manager import wait_until
from pki import openssl
from proton_driver import Client, Refused

HOME = os.environ.get("ARTEMIS_HOME")
# A Java program on a busy machine (seconds).
START_DEADLINE = 120
COUNT = 500
TLS = "SSLCIPH(ANY_TLS12_OR_HIGHER) SSLPEER('CN=artemis,O=Demo')"
if not HOME:
    warnings.warn("ARTEMIS_HOME names no installation: channels were not tried with Artemis", stacklevel=1)
pytestmark = pytest.mark.skipif(not HOME, reason="ARTEMIS_HOME names no installation: channels were not tried with Artemis")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Artemis:
    """A broker with an instance of its own."""

    def __init__(self, folder, identity):
        self.instance, self.port, self.tls_port = folder / "artemis", free_port(), free_port()
        subprocess.run(
            [
                Path(HOME) / "bin/artemis", "create", self.instance, "--silent", "--user", "test", "--password", "test",
                "--allow-anonymous", "--host", "127.0.0.1", "--default-port", str(self.port), "--no-web", "--no-amqp-acceptor",
                "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--nio", "--queues", "orders,invoices",
            ],
            check=True, capture_output=True, timeout=START_DEADLINE,
        )  # fmt: skip
        # Channels that seal or open are for a broker with a certificate alone.
        store = folder / "artemis.p12"
        key = ("-inkey", identity.key, "-in", identity.certificate, "-passout", "pass:secret")
        openssl("pkcs12", "-export", "-out", store, "-name", "artemis", *key)
        tls = f"sslEnabled=true;keyStorePath={store};keyStorePassword=secret;keyStoreType=PKCS12;protocols=AMQP"
        acceptor = f'<acceptor name="tls">tcp://127.0.0.1:{self.tls_port}?{tls}</acceptor>'
        settings = self.instance / "etc/broker.xml"
        settings.write_text(settings.read_text().replace("</acceptors>", f"{acceptor}</acceptors>"))
        self.start()

    def start(self):
        self.log = open(self.instance / "test.log", "ab")
        command = [self.instance / "bin/artemis", "run"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until(self.answers, "Artemis answers", START_DEADLINE)

    def answers(self):
        assert self.process.poll() is None, (self.instance / "test.log").read_text()
        try:
            self.connect().close()
        except (Refused, OSError):
            return False
        return True

    def connect(self):
        return Client(f"amqp://127.0.0.1:{self.port}")

    def stop(self):
        self.process.terminate()
        self.process.wait(START_DEADLINE)
        self.log.close()


@pytest.fixture(scope="module")
def artemis(tmp_path_factory, authority):
    artemis = Artemis(tmp_path_factory.mktemp("artemis"), authority.issue("artemis"))
    yield artemis
    artemis.stop()


@pytest.fixture(scope="module")
def border(qm, people, authority):
    """The channels seal and open with the ring of `border`."""
    (qm.data / "tls/partners.pem").write_bytes(authority.pem)
    people.add("border")
    qm.mqsc("DEFINE QLOCAL(ORDERS) MAXDEPTH(10000); DEFINE QALIAS(ORDERS.RAW) TARGET(ORDERS)")
    privacy = "SIGNALG(SHA256) ENCALG(AES256)"
    qm.mqsc(f"SET POLICY(ORDERS) {privacy} SIGNER('{people.dn('border')}') RECIP('{people.dn('billing')}')")
    qm.mqsc("DEFINE QLOCAL(TO.ARTEMIS) USAGE(XMITQ) TRIGGER MAXDEPTH(10000)")
    qm.mqsc("DEFINE QALIAS(TO.ARTEMIS.RAW) TARGET(TO.ARTEMIS)")
    qm.mqsc("DEFINE QREMOTE(INVOICES) RNAME('invoices') RQMNAME(ARTEMIS) XMITQ(TO.ARTEMIS)")
    for queue in ("INVOICES", "TO.ARTEMIS"):
        qm.mqsc(f"SET POLICY({queue}) {privacy} SIGNER('{people.dn('orders')}') RECIP('{people.dn('border')}')")
    return qm


def message(number):
    return Message(body=payload(number), inferred=True, durable=True, id=f"{number}", properties={"number": number})


def payload(number):
    return f"{number} tons of barley".encode() * 50


def status(qm, channel):
    return qm.mqsc(f"DISPLAY CHSTATUS({channel}) ALL")


def check_sealed_and_open(qm, people, authority, tmp):
    """All numbers are on ORDERS once or more: sealed at rest, and `billing` gets them in order."""
    with qm.connect() as client:
        raw = client.get_all("ORDERS.RAW", browse=True)
    body = bytes(raw[0].body)
    assert raw[0].content_type.startswith(cms.SEALED)
    signed = cms.decrypt(body, people.identities["billing"], tmp)
    assert cms.verify(signed, authority, tmp) == payload(0)
    with qm.connect("billing") as client:
        got = client.get_all("ORDERS", credit=2 * COUNT)
    assert [bytes(one.body) for one in got] == [payload(number) for number in range(COUNT)]
    assert [(one.id, one.properties) for one in got] == [(f"{number}", {"number": number}) for number in range(COUNT)]


def take(artemis, enough):
    """Gets what Artemis has of invoices until that is enough. It answers a drain with what it has at hand, which need not be all."""
    got = []
    with artemis.connect() as client:
        wait_until(lambda: got.extend(client.get_all("invoices", credit=2 * COUNT)) or enough(got), "enough has arrived")
    return got


def test_a_requester_takes_what_artemis_has_and_seals_it(artemis, border, people, authority, tmp_path):
    with artemis.connect() as client:
        for number in range(COUNT):
            client.put("orders", message(number))
    border.mqsc(f"""
        DEFINE CHANNEL(FROM.ARTEMIS) CHLTYPE(RQSTR) CONNAME('127.0.0.1({artemis.tls_port})') SOURCE('orders') TARGET(ORDERS) +
               {TLS} SPLPROT(ASPOLICY) MCAUSER('border')
        START CHANNEL(FROM.ARTEMIS)
    """)
    border.wait_for_depth("ORDERS", COUNT)
    told = status(border, "FROM.ARTEMIS")
    assert "STATUS(RUNNING)" in told and "DELIVERY(ATLEASTONCE)" in told, told
    assert "artemis" in told.lower(), told
    check_sealed_and_open(border, people, authority, tmp_path)
    border.mqsc("STOP CHANNEL(FROM.ARTEMIS)")
    wait_until(lambda: "STATUS(STOPPED)" in status(border, "FROM.ARTEMIS"), "the requester is stopped")
    with artemis.connect() as client:
        assert client.get_all("orders") == [], "Artemis has removed what is here"


def test_a_client_that_is_no_queue_manager_streams_into_a_receiver_that_seals(border, people, authority, tmp_path):
    border.mqsc("DEFINE CHANNEL(FROM.CLIENT) CHLTYPE(RCVR) SPLPROT(ASPOLICY) MCAUSER('border')")
    with border.connect() as client, pytest.raises(Refused) as refused:
        client.put("FROM.CLIENT::ORDERS", message(0))
    assert (refused.value.reason, refused.value.cause) == (2063, "partner-unproved")
    with border.connect("border") as client:
        for number in range(COUNT):
            client.put("FROM.CLIENT::ORDERS", message(number))
    check_sealed_and_open(border, people, authority, tmp_path)


def test_a_sender_opens_what_goes_to_artemis(artemis, border, people, authority, tmp_path):
    with border.connect("orders") as client:
        client.put("INVOICES", message(0))
        with border.connect() as nobody:
            [raw] = nobody.get_all("TO.ARTEMIS.RAW", browse=True)
        signed = cms.decrypt(bytes(raw.body), people.identities["border"], tmp_path)
        assert cms.verify(signed, authority, tmp_path) == payload(0)
        border.mqsc(f"""
            DEFINE CHANNEL(TO.ARTEMIS) CHLTYPE(SDR) CONNAME('127.0.0.1({artemis.tls_port})') XMITQ(TO.ARTEMIS) SHORTTMR(1) +
                   SHORTRTY(1000) {TLS} SPLPROT(REMOVE) MCAUSER('border')
            START CHANNEL(TO.ARTEMIS)
        """)
        for number in range(1, COUNT):
            client.put("INVOICES", message(number))
    border.wait_for_depth("TO.ARTEMIS", 0)
    told = status(border, "TO.ARTEMIS")
    assert "STATUS(RUNNING)" in told and "DELIVERY(ATLEASTONCE)" in told, told
    got = take(artemis, lambda got: len(got) >= COUNT)
    assert [bytes(one.body) for one in got] == [payload(number) for number in range(COUNT)]
    assert [(one.id, one.properties) for one in got] == [(f"{number}", {"number": number}) for number in range(COUNT)]
    assert all(one.annotations is None and one.instructions is None for one in got), "nothing of this queue manager's"


def test_what_was_on_its_way_while_artemis_was_away_arrives_at_least_once(artemis, border):
    artemis.stop()
    try:
        with border.connect("orders") as client:
            for number in range(COUNT):
                client.put("INVOICES", message(number))
        wait_until(lambda: "STATUS(RETRYING)" in status(border, "TO.ARTEMIS"), "the sender tries again")
    finally:
        artemis.start()
    border.wait_for_depth("TO.ARTEMIS", 0)
    numbers = {f"{number}" for number in range(COUNT)}
    got = take(artemis, lambda got: {one.id for one in got} >= numbers)
    assert {one.id for one in got} == numbers
