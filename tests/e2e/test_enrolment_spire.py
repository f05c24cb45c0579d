"""The listener's certificate as an X.509-SVID from SPIRE, an implementation of SPIFFE that others wrote.

`make spire` builds its programs, which takes a quarter of an hour of a processor: without them this is skipped.
"""

import json
import os
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from proton import Message

import spire
from manager import wait_until
from proton_driver import Client
from test_enrolment import is_serial, served
from test_enrolment_spiffe import configure, ids, qm, renew, row  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(not spire.there(), reason="there is no SPIRE: make spire")
ID = f"spiffe://{spire.DOMAIN}/mq"


@pytest.fixture(scope="module")
def domain(tmp_path_factory):
    # The path of a socket has 107 bytes at most.
    folder = tmp_path_factory.mktemp("s")
    domain = spire.Spire(folder / "d")
    yield domain
    domain.close()


def test_a_short_certificate_comes_and_renews_while_a_connection_stays(qm, domain):
    entry = domain.register("mq", 60, "localhost")
    configure(qm, domain.socket, 'believe = ["partners"]', f'spiffe_id = "{ID}"\nnames = ["dns:localhost"]')
    wait_until(lambda: row(qm)["STATE"] == "VALID", f"it came: {row(qm)} {domain.said()}", 40)
    wait_until(lambda: is_serial(row(qm)["SERIAL"], served(qm)), "the listener shows it")
    first = served(qm)
    assert ids(first) == [ID]
    assert (row(qm)["METHOD"], row(qm)["PLACE"]) == ("SPIFFE", "TLS")
    # Key and certificate are the agent's, in files of their own; the authorities are where they were wanted, alone.
    key = qm.data / "tls/server.key"
    assert key.stat().st_mode & 0o7777 == 0o600
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    shown = x509.load_pem_x509_certificate((qm.data / "tls/server.pem").read_bytes())
    assert private.public_key() == shown.public_key()
    believed = x509.load_pem_x509_certificates((qm.data / "tls/partners.pem").read_bytes())
    assert believed == x509.load_pem_x509_certificates(domain.bundle().encode())
    assert not (qm.data / "tls/clients.pem").exists()
    assert list((qm.data / "enrolment").iterdir()) == []
    ca = qm.data / "tls/partners.pem"
    with Client(qm.amqps, "orders", qm.passwords["orders"], ca) as client:
        wait_until(lambda: served(qm) != first, "the agent had another one in time", 60)
        second = served(qm)
        assert second.not_valid_after_utc > first.not_valid_after_utc and ids(second) == [ID]
        client.put("SPIFFE", Message(body="after"))
        assert client.get("SPIFFE").body == "after"
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", qm.ports["amqps"]), 10) as connection:
        context.wrap_socket(connection, server_hostname="localhost").close()
    told = qm.run("audit", "show", "--json", "--kind", "certificate", "--data", qm.data).stdout.splitlines()
    assert json.loads(told[-1])["what"]["authority"] == "spire"
    qm.says("a certificate came from spire")
    assert "PRIVATE KEY" not in "".join(qm.log)
    domain.forget(entry)


def test_an_agent_that_ends_and_begins_again_is_told_and_asked_again(qm, domain):
    entry = domain.register("mq", 600)
    configure(qm, domain.socket)
    wait_until(lambda: row(qm)["STATE"] == "VALID", "it came", 40)
    before = served(qm)
    domain.stop("agent")
    wait_until(lambda: row(qm)["STATE"] == "FAILING", "it is known that the agent is away", 70)
    assert "api.sock" in row(qm)["WHY"] and row(qm)["FAILURES"] >= 1
    qm.says("api.sock")
    assert served(qm) == before
    assert "api.sock" in renew(qm, code=None)
    domain.start("agent")
    wait_until(lambda: row(qm)["STATE"] == "VALID" and row(qm)["FAILURES"] == 0, f"it is well again: {row(qm)}", 90)
    domain.forget(entry)


def test_a_process_without_an_entry_gets_nothing_and_is_told_what_to_do(qm, domain):
    configure(qm, domain.socket)
    # An entry of another test may still be known to the agent.
    wait_until(lambda: "no SVID for this process" in renew(qm, code=None), "the agent refuses", 40)
    before = served(qm)
    said = renew(qm, code=4)
    assert f"unix:uid:{os.geteuid()}" in said
    assert served(qm) == before
    # One that is not the one wanted is not taken for it.
    configure(qm, domain.socket, certificate=f'spiffe_id = "{ID}"')
    entry = domain.register("other", 600)
    other = f"the agent has no {ID} for this process: it has spiffe://{spire.DOMAIN}/other"
    wait_until(lambda: other in renew(qm, code=None), "the other one is known", 40)
    # Nor one without a name that is wanted.
    configure(qm, domain.socket, certificate='names = ["dns:mq.example"]')
    assert "it is not for dns:mq.example" in renew(qm, code=4)
    assert served(qm) == before
    domain.forget(entry)


def test_a_ring_signs_with_what_the_agent_has(qm, domain):
    identity = f"spiffe://{spire.DOMAIN}/orders"
    entry = domain.register("orders", 600)
    qm.add_user("reader")
    configure(qm, domain.socket, certificate=f'spiffe_id = "{identity}"\nshare = ["reader"]', section="signers.orders")
    own = qm.data / "rings/orders/own/svid.pem"
    wait_until(own.exists, f"it came: {domain.said()}", 40)
    believed = x509.load_pem_x509_certificates(
        (qm.data / f"rings/reader/trust/spiffe.{spire.DOMAIN}.pem").read_bytes()
    )
    assert believed == x509.load_pem_x509_certificates(domain.bundle().encode())
    qm.mqsc(f"DEFINE QLOCAL(SIGNED)\nSET POLICY(SIGNED) SIGNALG(SHA256) SIGNER('{identity}')")
    with qm.connect("orders") as orders, qm.connect("reader") as reader:
        orders.put("SIGNED", Message(body=b"by a process", inferred=True))
        assert bytes(reader.get("SIGNED").body) == b"by a process"
    domain.forget(entry)
