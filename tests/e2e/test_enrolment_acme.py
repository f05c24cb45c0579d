"""The listener's certificate by ACME (RFC 8555), from Pebble, an authority that others wrote for tests."""

import base64
import json
import os
import socket
import ssl

import pytest
from proton import Message
from cryptography import x509
from cryptography.hazmat.primitives import serialization

import acme
from manager import shown_rows, wait_until
from proton_driver import Client
from test_enrolment import is_serial, served

pytestmark = pytest.mark.skipif(not os.path.exists(acme.PEBBLE), reason="there is no Pebble: make clients")

HTTP01 = acme.free_port()


@pytest.fixture(scope="module")
def qm(managers):
    qm = managers(options=["--metrics", "127.0.0.1:0"])
    qm.add_user("orders")
    qm.mqsc("DEFINE QLOCAL(ACME)")
    yield qm
    assert qm.process.poll() is None, "".join(qm.log[-30:])


@pytest.fixture
def pebble(qm, tmp_path):
    pebble = acme.Pebble(tmp_path / "pebble", HTTP01, qm.ports["amqps"])
    pebble.start()
    yield pebble
    configure(qm, None)
    (qm.data / "enrolment/pebble.account").unlink(missing_ok=True)
    pebble.close()


NAMES = '"dns:localhost", "ip:127.0.0.1"'


def configure(
    qm, pebble, rest="terms_agreed = true", names=NAMES, port=None, seconds=20, label="server", challenge=True,
    key=None,
):  # fmt: skip
    aside = qm.data / "enrolment.new"
    text = ""
    if pebble:
        where = f'http01_listen = "127.0.0.1:{HTTP01}"' if challenge else 'challenge = "tls-alpn-01"'
        text = f"""
[authorities.pebble]
acme = "https://localhost:{port or pebble.port}/dir"
trust = "{pebble.folder}/root.pem"
https_trust = "{pebble.ca}"
seconds = {seconds}
{where}
{rest}
[certificates.{label}]
authority = "pebble"
names = [{names}]
"""
        text += f'key = "{key}"\n' if key else ""
    aside.write_text(text)
    aside.chmod(0o600)
    aside.rename(qm.data / "enrolment.toml")


def renew(qm, code=0):
    done = qm.run("cert", "renew", "--data", qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def row(qm, name="server"):
    command = f"DISPLAY ENROL('{name}')"
    rows = shown_rows(qm.run("mqsc", "--data", qm.data, "--json", "-c", command).stdout)
    return rows[0] if rows else {"STATE": None}


def refused(qm, says, code=None):
    before = served(qm)
    said = renew(qm, code=code)
    assert says in said and served(qm) == before, said
    return said


@pytest.mark.parametrize("by_http", [True, False], ids=["http-01", "tls-alpn-01"])
def test_the_listener_gets_its_certificate_and_the_account_stays(qm, pebble, by_http):
    before = served(qm)
    configure(qm, pebble, challenge=by_http)
    assert "renewed server: " in renew(qm)
    wait_until(lambda: served(qm) != before, "the new one is shown")
    new = served(qm)
    names = new.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    # A client that knows the authority alone believes what is shown.
    context = ssl.create_default_context(cafile=pebble.folder / "root.pem")
    with socket.create_connection(("127.0.0.1", qm.ports["amqps"]), 10) as connection:
        context.wrap_socket(connection, server_hostname="localhost").close()
    account = qm.data / "enrolment/pebble.account"
    assert account.stat().st_mode & 0o7777 == 0o600
    key = account.read_bytes()
    serialization.load_pem_private_key(key, None)
    # Nothing of the proofs is left, and nothing listens.
    assert {path.name for path in (qm.data / "enrolment").iterdir()} == {"pebble.account"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", HTTP01), 1)
    renew(qm)
    assert account.read_bytes() == key
    assert pebble.said().count("There are now 1 accounts") == 1, pebble.said()[-3000:]


def test_it_renews_by_itself_while_a_connection_stays(qm, pebble):
    pebble.start(seconds=15)
    configure(qm, pebble)
    renew(qm)
    first = served(qm)
    with Client(qm.amqps, "orders", qm.passwords["orders"], pebble.folder / "root.pem") as client:
        wait_until(lambda: is_serial(row(qm).get("SERIAL", ""), first), "it is seen")
        shown = row(qm)
        assert (shown["METHOD"], shown["STATE"], shown["PLACE"]) == ("ACME", "VALID", "TLS"), shown
        wait_until(lambda: served(qm) != first, "two thirds of it are over", 60)
        client.put("ACME", Message(body="after"))
        assert client.get("ACME").body == "after"
    told = qm.run("audit", "show", "--json", "--kind", "certificate", "--data", qm.data).stdout.splitlines()
    assert json.loads(told[-1])["what"]["authority"] == "pebble"


def test_a_key_that_the_authority_does_not_know_is_refused_and_the_next_kind_comes(qm, pebble):
    """Go's library reads a request with an ML-DSA key, and can't verify its signature."""
    configure(qm, pebble, key="ml-dsa-65")
    refused(qm, "refused: badCSR: ", code=4)
    configure(qm, pebble)
    before = served(qm)
    assert "renewed server: " in renew(qm)
    wait_until(lambda: served(qm) != before, "the new one is shown")


def test_what_the_authority_refuses_is_told_with_its_words(qm, pebble):
    configure(qm, pebble, names='"dns:blocked.example"')
    refused(qm, "refused: rejectedIdentifier: ", code=4)
    # One that is not here: no listener answers the authority, or another one does.
    configure(qm, pebble, rest="terms_agreed = true", names='"dns:localhost"')
    pebble.start(httpPort=acme.free_port())
    said = refused(qm, "localhost is invalid: connection: ", code=4)
    assert "localhost" in said
    # The queue manager tells it in its own ways, too.
    configure(qm, pebble, names='"dns:localhost"', label="other")
    wait_until(lambda: row(qm, "other")["STATE"] == "FAILING", f"it was refused: {row(qm, 'other')}", 30)
    shown = row(qm, "other")
    assert shown["METHOD"] == "ACME" and "localhost is invalid: connection: " in shown["WHY"], shown
    qm.says("tls/other.pem: no certificate from pebble: ")


def test_terms_and_an_account_that_the_authority_must_know(qm, pebble):
    configure(qm, pebble, rest="")
    said = refused(qm, "nobody has agreed to the authority's terms: data:text/plain,Do%20what%20thou%20wilt")
    assert "terms_agreed = true" in said
    shared = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    pebble.start(externalAccountBindingRequired=True, externalAccountMACKeys={"kid-1": shared})
    configure(qm, pebble)
    refused(qm, "enrolment.toml has no binding_id, which the authority wants", code=2)
    file = pebble.folder / "shared"
    binding = 'terms_agreed = true\ncontact = ["mailto:mq@ca.example"]\n'
    binding += f'binding_id = "kid-1"\nbinding_key_file = "{file}"'
    file.write_text(base64.urlsafe_b64encode(os.urandom(32)).decode() + "\n")
    configure(qm, pebble, rest=binding)
    refused(qm, "shared: others may read it", code=1)
    file.chmod(0o600)
    refused(qm, "refused: ", code=4)
    file.write_text(shared + "\n")
    assert "renewed server: " in renew(qm)
    # The account is known now: the shared key is asked for no more.
    file.unlink()
    assert "renewed server: " in renew(qm)


def test_an_account_that_is_lost_here_or_there_is_made_anew(qm, pebble):
    configure(qm, pebble)
    renew(qm)
    account = qm.data / "enrolment/pebble.account"
    first = account.read_bytes()
    account.unlink()
    assert "renewed server: " in renew(qm)
    assert account.read_bytes() != first
    # Pebble forgets everything, and has another root.
    pebble.start()
    second = account.read_bytes()
    configure(qm, pebble)
    assert "renewed server: " in renew(qm)
    assert account.read_bytes() == second
    # A key that others may read, and what is none, are not used.
    account.chmod(0o640)
    refused(qm, "pebble.account: others may read it", code=1)
    account.chmod(0o600)
    account.write_text("nonsense\n")
    refused(qm, "error", code=1)


def problem(kind, status=400):
    body = json.dumps({"type": f"urn:ietf:params:acme:error:{kind}", "detail": "changed on the way"}).encode()
    return status, [("Content-Type", "application/problem+json"), ("Replay-Nonce", "bm90LWdvb2Q")], body


def between(qm, pebble, rule, **settings):
    passed = acme.Between(pebble, rule)
    configure(qm, pebble, port=passed.port, **settings)
    return passed


def test_a_nonce_that_is_not_good_is_exchanged_and_the_question_asked_again(qm, pebble):
    left = [2]

    def bad_twice(method, path, answer):
        if path == "/order-plz" and left[0]:
            left[0] -= 1
            return problem("badNonce")
        return answer

    passed = between(qm, pebble, bad_twice)
    try:
        assert "renewed server: " in renew(qm)
        assert passed.asked.count(("POST", "/order-plz")) >= 3
        passed.rule = lambda method, path, answer: problem("badNonce") if path == "/order-plz" else answer
        passed.asked.clear()
        refused(qm, "refused: badNonce: changed on the way", code=4)
        assert passed.asked.count(("POST", "/order-plz")) == 4
    finally:
        passed.close()


def test_an_authority_that_goes_away_within_an_order_is_asked_anew(qm, pebble):
    def breaks_off(method, path, answer):
        return None if path.startswith("/finalize-order/") else answer

    passed = between(qm, pebble, breaks_off)
    try:
        refused(qm, "the server ended the connection", code=1)
        assert (qm.data / "enrolment/server.pending").exists(), "the key waits for its certificate"
        waits = serialization.load_pem_private_key((qm.data / "enrolment/server.pending").read_bytes(), None).public_key()
        pebble.stop()
        refused(qm, "the server ended the connection", code=1)
        pebble.start()
        passed.rule = lambda method, path, answer: answer
        before = served(qm)
        assert "renewed server: " in renew(qm)
        wait_until(lambda: served(qm) != before, "it is shown")
        assert served(qm).public_key() == waits
    finally:
        passed.close()
    configure(qm, pebble, port=acme.free_port())
    refused(qm, "Connection refused", code=1)


def changed(of, **members):
    """A rule that sets members of what is answered at a place that begins so. A refusal stays as it is: Pebble takes
    one nonce in twenty for bad."""

    def rule(method, path, answer):
        status, fields, body = answer
        if not path.startswith(of) or status >= 300:
            return answer
        said = json.loads(body)
        for name, value in members.items():
            said[name] = value(said.get(name)) if callable(value) else value
        return status, fields, json.dumps(said).encode()

    return rule


def instead(of, *answer):
    return lambda method, path, said: answer if path.startswith(of) else said


def with_token(token):
    return lambda all_: [challenge | {"token": token} for challenge in all_]


ELSEWHERE = "another server than the directory's"
FIELDS = [("Content-Type", "application/json")]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (changed("/dir", newOrder="http://localhost/order"), f'newOrder is "http://localhost/order": {ELSEWHERE}'),
        (changed("/dir", newNonce="https://192.0.2.1/nonce"), f'newNonce is "https://192.0.2.1/nonce": {ELSEWHERE}'),
        (changed("/dir", newAccount="file:///etc/passwd"), "newAccount is"),
        (changed("/dir", newAccount=5), "the answer is not believed: directory: "),
        (instead("/dir", 200, FIELDS, b'{"a":' + b"[" * 100_000), "the answer is not believed: directory: EOF while parsing"),
        (instead("/dir", 200, [("Content-Length", "900000")], b""), "it has more than 262144 bytes"),
        (instead("/dir", 302, [("Location", "/dir")], b""), "a redirect (302), which is not followed"),
        (instead("/dir", 500, [], b"<html>"), "refused: HTTP status 500"),
        (changed("/my-order/", finalize="https://localhost:1/x"), f'finalize is "https://localhost:1/x": {ELSEWHERE}'),
        (changed("/order-plz", authorizations=lambda all_: all_ * 50), "the order asks for more than it was asked for"),
        (changed("/my-order/", status="processing"), "not decided yet: order waits for the authority"),
        (changed("/authZ/", status="pending"), "not decided yet: localhost waits for the authority"),
        (changed("/authZ/", identifier={"type": "dns", "value": "mail.example"}), "a proof for mail.example, which was not ordered"),
        (changed("/authZ/", challenges=with_token("../x")), "the challenge has no good token"),
        (changed("/authZ/", challenges=with_token("a" * 300)), "the challenge has no good token"),
        (changed("/authZ/", challenges=[]), "no http-01 for localhost"),
        (instead("/certZ/", 200, FIELDS, b"nothing"), "the answer is not the certificate that was asked for"),
    ],
    ids=lambda value: value[:40].replace("/", "_") if isinstance(value, str) else "",
)
def test_an_authority_that_lies_is_bounded_and_changes_nothing(qm, pebble, rule, says):
    passed = between(qm, pebble, rule, names='"dns:localhost"', seconds=3)
    try:
        refused(qm, says)
        assert len(passed.asked) < 40, len(passed.asked)
    finally:
        passed.close()


def test_a_server_that_is_not_believed_or_silent_is_asked_nothing(qm, pebble, tmp_path):
    other = acme.Pebble(tmp_path / "other", HTTP01, 1)
    configure(qm, other, port=pebble.port)
    (other.folder / "root.pem").write_bytes((pebble.folder / "root.pem").read_bytes())
    refused(qm, "its certificate is not believed: ", code=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configure(qm, pebble, port=silent.getsockname()[1], seconds=2)
        refused(qm, "no answer within 2 s", code=1)
    other.close()
    # The place of the proof is taken.
    with socket.create_server(("127.0.0.1", HTTP01)):
        configure(qm, pebble)
        said = refused(qm, f"can't listen at 127.0.0.1:{HTTP01}", code=1)
        assert "http01_listen" in said


def test_who_asks_for_the_proofs_protocol_gets_no_session(qm):
    """Without a proof: nothing special. With one: the certificate of the proof, and the connection ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["acme-tls/1"])

    def shown(name):
        with socket.create_connection(("127.0.0.1", qm.ports["amqps"]), 10) as connection:
            with context.wrap_socket(connection, server_hostname=name) as tls:
                certificate = x509.load_der_x509_certificate(tls.getpeercert(True))
                protocol = tls.selected_alpn_protocol()
                if protocol is None:
                    return certificate, protocol, b""
                tls.sendall(b"AMQP\x03\x01\x00\x00")
                return certificate, protocol, tls.recv(100)

    usual = served(qm)
    for name in ("localhost", "mq.example", "xn--bcher-kva.example"):
        assert shown(name)[:2] == (usual, None)
    folder = qm.data / "enrolment/proofs"
    folder.mkdir(parents=True)
    (folder / "mq.example.pem").write_bytes((qm.data / "tls/server.pem").read_bytes() + (qm.data / "tls/server.key").read_bytes())
    try:
        assert shown("MQ.example")[1:] == ("acme-tls/1", b"")
        assert shown("localhost")[:2] == (usual, None)
    finally:
        (folder / "mq.example.pem").unlink()
        folder.rmdir()
