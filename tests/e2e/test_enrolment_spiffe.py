"""The listener's certificate as an X.509-SVID, from the agent of a SPIFFE trust domain: a stand-in,
`spiffe_agent.py`."""

import json
import os
import socket
import ssl

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from proton import Message

import spiffe_agent
from manager import shown_rows, wait_until
from proton_driver import Client
from test_enrolment import is_serial, served

ID = f"spiffe://{spiffe_agent.DOMAIN}/mq"


@pytest.fixture
def agent(tmp_path_factory):
    # The path of a socket has 107 bytes at most.
    agent = spiffe_agent.Agent(tmp_path_factory.mktemp("s"))
    yield agent
    agent.stop()


@pytest.fixture
def qm(managers):
    qm = managers(options=["--metrics", "127.0.0.1:0"])
    qm.add_user("orders")
    qm.mqsc("DEFINE QLOCAL(SPIFFE)")
    yield qm
    (qm.data / "enrolment.toml").unlink(missing_ok=True)
    assert qm.process.poll() is None, "".join(qm.log[-30:])


def configure(qm, address, authority="", certificate="", section="certificates.server"):
    aside = qm.data / "enrolment.new"
    text = f'[authorities.spire]\nspiffe = "unix:{address}"\nseconds = 5\n{authority}\n'
    aside.write_text(f'{text}[{section}]\nauthority = "spire"\n{certificate}\n')
    aside.chmod(0o600)
    aside.rename(qm.data / "enrolment.toml")


def renew(qm, code=0):
    done = qm.run("cert", "renew", "--data", qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def row(qm):
    rows = shown_rows(qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY ENROL('server')").stdout)
    return rows[0] if rows else {"STATE": None, "WHY": ""}


def ids(certificate):
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def test_a_short_certificate_comes_and_renews_while_a_connection_stays(qm, agent):
    agent.svids = [agent.svid("other"), agent.svid("mq", 40, ["localhost"])]
    configure(qm, agent.socket, 'believe = ["partners"]', f'spiffe_id = "{ID}"\nnames = ["dns:localhost"]')
    wait_until(lambda: row(qm)["STATE"] == "VALID", f"it came: {row(qm)}", 20)
    wait_until(lambda: is_serial(row(qm)["SERIAL"], served(qm)), "the listener shows it")
    first = served(qm)
    assert ids(first) == [ID]
    assert (row(qm)["METHOD"], row(qm)["PLACE"]) == ("SPIFFE", "TLS")
    # Key and certificate are the agent's, in files of their own; the authorities are where they were wanted, alone.
    key = qm.data / "tls/server.key"
    assert key.stat().st_mode & 0o7777 == 0o600
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    assert private.public_key() == first.public_key()
    ca = qm.data / "tls/partners.pem"
    assert x509.load_pem_x509_certificates(ca.read_bytes()) == [agent.ca]
    assert not (qm.data / "tls/clients.pem").exists()
    assert list((qm.data / "enrolment").iterdir()) == []
    with Client(qm.amqps, "orders", qm.passwords["orders"], ca) as client:
        # A new certificate each time, below a new authority the second time. No command asks for it.
        for found in (False, True):
            before = served(qm)
            if found:
                agent.found()
            agent.svids = [agent.svid("mq", 40, ["localhost"])]
            wait_until(lambda: served(qm) != before, "what the agent has anew is shown", 20)
            wait_until(lambda: x509.load_pem_x509_certificates(ca.read_bytes()) == [agent.ca], "and believed")
            client.put("SPIFFE", Message(body="after"))
            assert client.get("SPIFFE").body == "after"
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", qm.ports["amqps"]), 10) as connection:
        context.wrap_socket(connection, server_hostname="localhost").close()
    told = qm.run("audit", "show", "--json", "--kind", "certificate", "--data", qm.data).stdout.splitlines()
    assert json.loads(told[-1])["what"]["authority"] == "spire"
    qm.says("a certificate came from spire")
    assert "PRIVATE KEY" not in "".join(qm.log)
    # What is in force already is not put there again.
    assert "as it was, server: " in renew(qm)


def test_an_agent_that_ends_and_begins_again_is_told_and_asked_again(qm, agent):
    agent.svids = [agent.svid("mq", 40)]
    configure(qm, agent.socket)
    wait_until(lambda: row(qm)["STATE"] == "VALID" and ids(served(qm)) == [ID], "it came", 20)
    before = served(qm)
    agent.stop()
    wait_until(lambda: row(qm)["STATE"] == "FAILING", "it is known that the agent is away", 20)
    shown = row(qm)
    assert str(agent.socket) in shown["WHY"] and shown["FAILURES"] >= 1, shown
    assert str(agent.socket) in renew(qm, code=None) and served(qm) == before
    agent.start()
    wait_until(lambda: row(qm)["STATE"] == "VALID" and row(qm)["FAILURES"] == 0, "it is well again", 20)
    # One that has nothing for this process any more is not the same as one that is away.
    agent.svids = []
    wait_until(lambda: "no identity issued" in row(qm)["WHY"], f"it is told: {row(qm)}", 20)
    assert served(qm) == before


def test_what_an_agent_should_not_give_is_refused_by_name(qm, agent):
    before = served(qm)
    configure(qm, agent.socket)
    said = renew(qm, code=4)
    assert "the agent has no SVID for this process: no identity issued" in said and f"unix:uid:{os.geteuid()}" in said
    agent.refusal = grpc.StatusCode.UNAVAILABLE, "not\nready"
    assert "refused: status 14 of gRPC: not ready" in renew(qm, code=4)
    agent.refusal = None
    good = agent.svid("mq")
    other = agent.svid("mq")
    (gone := spiffe_agent.Agent.__new__(spiffe_agent.Agent)).found()
    for svid, says in [
        (agent.svid("mq", ca=True), "it is an authority's"),
        (agent.svid("mq", -1), "expired"),
        (agent.svid("mq", also=["spiffe://bulla.example/admin"]), f"it is not for {ID} alone"),
        ([f"spiffe://{spiffe_agent.DOMAIN}/else".encode(), *good[1:]], "it is not for spiffe://bulla.example/else alone"),
        ([b"https://bulla.example/mq", *good[1:]], "no SPIFFE ID"),
        ([good[0], good[1], other[2], good[3]], "is for the key"),
        ([good[0], good[1], b"\x30\x03\x02\x01\x00", good[3]], "its key: not PKCS#8"),
        ([good[0], good[1][:-1], *good[2:]], "its certificates: no certificates in DER"),
        ([good[0], good[1] * 17, *good[2:]], "its certificates: too many certificates"),
        ([*good[:3], b""], "the authorities of its trust domain: none"),
        ([*good[:3], good[1]], "one that is no authority"),
        ([*good[:3], good[3] * 65], "the authorities of its trust domain: too many certificates"),
        ([*good[:3], gone.ca.public_bytes(spiffe_agent.DER)], "the answer is not the certificate that was asked for"),
    ]:
        agent.svids = [svid]
        said = renew(qm, code=4)
        assert says in said and served(qm) == before, (says, said)
    configure(qm, agent.socket, certificate=f'spiffe_id = "{ID}"')
    agent.svids = [agent.svid("other")]
    assert f"the agent has no {ID} for this process: it has spiffe://{spiffe_agent.DOMAIN}/other" in renew(qm, code=4)
    configure(qm, agent.socket, certificate='names = ["dns:mq.example"]')
    assert "it is not for dns:mq.example" in renew(qm, code=4)
    (qm.data / "else.pem").write_bytes(gone.ca.public_bytes(serialization.Encoding.PEM))
    (qm.data / "else.pem").chmod(0o600)
    configure(qm, agent.socket, 'trust = "else.pem"')
    assert "the answer is not the certificate that was asked for" in renew(qm, code=4)
    agent.raw = b"\xff" * 100
    assert "the answer is not believed" in renew(qm, code=None)
    agent.raw = spiffe_agent.field(9, bytes(5 << 20))
    assert "the answer has more than 4194304 bytes" in renew(qm, code=None)
    assert served(qm) == before


def test_a_ring_is_refused_with_the_reason(qm, agent):
    configure(qm, agent.socket, certificate='dn = "CN=orders"', section="rings.orders")
    done = qm.run("key", "enrol", "orders", "--data", qm.data, code=None)
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 2, said
    assert "rings.orders: a certificate of an hour can't be a recipient of stored messages" in said
    assert "signers in the place of rings has it sign" in said


def test_a_socket_that_others_could_have_put_there_is_not_spoken_to(qm, tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        listener.settimeout(0)
        folder.chmod(0o777)
        configure(qm, folder / "s")
        assert "others may write it (mode 777)" in renew(qm, code=None)
        with pytest.raises(BlockingIOError):
            listener.accept()
        folder.chmod(0o755)
        # One that says nothing is waited for no longer than it may take.
        assert "no answer within 5 s" in renew(qm, code=None)
    (folder / "s").unlink()
    (folder / "s").write_text("")
    assert "it is no socket" in renew(qm, code=None)
