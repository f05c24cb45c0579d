"""The listener's certificate by ACME (RFC 8555) from step-ca, an authority that companies run."""

import os
import socket
import ssl

import pytest
from cryptography import x509
from proton import Message

import acme
from manager import shown_rows, wait_until
from proton_driver import Client
from test_enrolment import is_serial, served

pytestmark = pytest.mark.skipif(not os.path.exists(acme.STEP_CA), reason="there is no step-ca: make step-ca")

HTTP01 = acme.free_port()
BOTH = pytest.mark.parametrize("by_http", [True, False], ids=["http-01", "tls-alpn-01"])


@pytest.fixture(scope="module")
def qm(managers):
    qm = managers()
    qm.add_user("orders")
    qm.mqsc("DEFINE QLOCAL(ACME)")
    yield qm
    assert qm.process.poll() is None, "".join(qm.log[-30:])


@pytest.fixture
def authority(qm, tmp_path):
    authority = acme.StepCa(tmp_path / "step", HTTP01, qm.ports["amqps"])
    authority.start()
    yield authority
    configure(qm, "")
    (qm.data / "enrolment/step.account").unlink(missing_ok=True)
    authority.close()


def configure(qm, text):
    aside = qm.data / "enrolment.new"
    aside.write_text(text)
    aside.chmod(0o600)
    aside.rename(qm.data / "enrolment.toml")


def asks(qm, authority, by_http=True, names='"dns:localhost", "ip:127.0.0.1"', seconds=30):
    where = f'http01_listen = "127.0.0.1:{HTTP01}"' if by_http else 'challenge = "tls-alpn-01"'
    configure(qm, f"""
[authorities.step]
acme = "https://localhost:{authority.port}/acme/acme/directory"
trust = "{authority.root}"
seconds = {seconds}
{where}
[certificates.server]
authority = "step"
names = [{names}]
""")


def renew(qm, code=0):
    done = qm.run("cert", "renew", "--data", qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def row(qm):
    command = "DISPLAY ENROL('server')"
    rows = shown_rows(qm.run("mqsc", "--data", qm.data, "--json", "-c", command).stdout)
    return rows[0] if rows else {}


@BOTH
def test_the_listener_gets_its_certificate_and_the_account_stays(qm, authority, by_http):
    before = served(qm)
    asks(qm, authority, by_http)
    assert "renewed server: " in renew(qm), authority.said()[-3000:]
    wait_until(lambda: served(qm) != before, "the new one is shown")
    new = served(qm)
    names = new.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert "CN=issuer" in new.issuer.rfc4514_string()
    # A client that knows the root alone believes what is shown: the issuer's certificate comes with it.
    context = ssl.create_default_context(cafile=authority.root)
    with socket.create_connection(("127.0.0.1", qm.ports["amqps"]), 10) as connection:
        context.wrap_socket(connection, server_hostname="localhost").close()
    account = qm.data / "enrolment/step.account"
    key = account.read_bytes()
    assert {path.name for path in (qm.data / "enrolment").iterdir()} == {"step.account"}
    assert "renewed server: " in renew(qm)
    assert account.read_bytes() == key
    # The authority has been away meanwhile.
    authority.start()
    assert "renewed server: " in renew(qm)
    assert account.read_bytes() == key


@BOTH
def test_it_renews_by_itself_while_a_connection_stays(qm, authority, by_http):
    authority.start(seconds=15)
    asks(qm, authority, by_http)
    before = served(qm)
    renew(qm)
    wait_until(lambda: served(qm) != before, "the new one is shown")
    first = served(qm)
    with Client(qm.amqps, "orders", qm.passwords["orders"], authority.root) as client:
        wait_until(lambda: is_serial(row(qm).get("SERIAL", ""), first), "it is seen")
        shown = row(qm)
        assert (shown["METHOD"], shown["STATE"], shown["PLACE"]) == ("ACME", "VALID", "TLS"), shown
        wait_until(lambda: served(qm) != first, "two thirds of it are over", 60)
        client.put("ACME", Message(body="after"))
        assert client.get("ACME").body == "after"


def test_a_proof_that_it_does_not_find_is_told_with_its_words(qm, authority):
    before = served(qm)
    # No listener answers for this address where the authority looks. It lets the proof wait for another try.
    asks(qm, authority, names='"ip:127.0.0.2"', seconds=4)
    said = renew(qm, code=None)
    assert "not decided yet: 127.0.0.2 waits for the authority: connection: " in said and served(qm) == before, said
