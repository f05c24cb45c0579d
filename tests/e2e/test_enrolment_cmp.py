"""Certificates by CMP (RFC 9810), from the server of `openssl cmp`: it issues one certificate that is made before."""

import datetime
import socket
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cmp_server import SECRET, CmpServer
from manager import shown_rows, wait_until

NAMES = x509.SubjectAlternativeName([x509.DNSName("localhost")])
USAGES = dict.fromkeys(
    ["content_commitment", "data_encipherment", "key_encipherment", "key_cert_sign", "crl_sign", "encipher_only",
     "decipher_only"], False,
)  # fmt: skip


def named(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority(CmpServer):
    """Keys and certificates in a folder, and the server."""

    def __init__(self, folder):
        super().__init__(folder, "openssl", "cmp")
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self.signed(named("Company"), self.key.public_key(), 3650, is_authority=True)
        self.write("ca.pem", self.certificate)
        key = ec.generate_private_key(ec.SECP256R1())
        self.write("server.pem", self.signed(named("CMP server"), key.public_key()))
        (folder / "server.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def write(self, name, certificate):
        (self.folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def signed(self, subject, public, days=90, serial=None, is_authority=False):
        now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
        usage = x509.KeyUsage(digital_signature=True, key_agreement=True, **(USAGES | {"key_cert_sign": is_authority}))
        issuer = named("Company")
        builder = (
            x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
            .serial_number(serial or x509.random_serial_number())
            .not_valid_before(now).not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(is_authority, None), True)
            .add_extension(usage, True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        )  # fmt: skip
        if not is_authority:
            builder = builder.add_extension(NAMES, False).add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.EMAIL_PROTECTION]), False
            )
        return builder.sign(self.key, hashes.SHA256())

    def issues(self, certificate, *options, by_secret=True):
        """The server runs, and issues that certificate."""
        self.write("issued.pem", certificate)
        self.serve(*options, by_secret=by_secret)


@pytest.fixture
def authority(tmp_path):
    authority = Authority(tmp_path / "company")
    yield authority
    authority.stop()


@pytest.fixture
def qm(managers):
    return managers()


def configure(qm, authority, part, rest=""):
    text = f"""
[authorities.company]
cmp = "http://127.0.0.1:{authority.port}/"
reference = "4711"
secret_file = "{authority.folder}/secret"
seconds = 3
trust = "{authority.folder}/ca.pem"
{rest}
{part}
authority = "company"
"""
    aside = qm.data / "enrolment.new"
    aside.write_text(text)
    aside.chmod(0o600)
    aside.rename(qm.data / "enrolment.toml")


# With names of its own: the listener's first certificate is of another authority, and not due for years.
SERVER = "[certificates.server]\ndn = 'CN=mq'\nnames = ['dns:localhost']"


def renew(qm, code=0):
    done = qm.run("cert", "renew", "--data", qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def waiting_key(qm, place="enrolment/server.pending"):
    """The new key that a certificate is asked for."""
    return serialization.load_pem_private_key((qm.data / place).read_bytes(), None).public_key()


def present(qm):
    return x509.load_pem_x509_certificates((qm.data / "tls/server.pem").read_bytes())


def first(qm, authority):
    """The listener has a certificate of the authority's, by the secret."""
    configure(qm, authority, SERVER)
    assert "Connection refused" in renew(qm, code=1)
    authority.issues(authority.signed(named("mq"), waiting_key(qm)))
    assert "renewed server: " in renew(qm)
    return present(qm)[0]


def test_a_first_certificate_comes_by_a_secret_and_the_next_one_by_a_signature(qm, authority):
    before = first(qm, authority)
    assert before.issuer == authority.certificate.subject
    # What it is asked for by is the present certificate now: this server wants signatures, and has no secret.
    wrong = ec.generate_private_key(ec.SECP256R1()).public_key()
    # The server takes a request for the certificate of this very serial number.
    authority.issues(authority.signed(named("mq"), wrong, serial=before.serial_number), by_secret=False)
    said = renew(qm, code=None)
    assert "error" in said and present(qm)[0] == before, said
    new = authority.signed(named("mq"), waiting_key(qm), serial=before.serial_number)
    authority.issues(new, by_secret=False)
    assert "renewed server: " in renew(qm)
    assert present(qm)[0] == new != before
    assert not (qm.data / "enrolment/server.pending").exists()


def test_a_ring_gets_its_first_key_by_itself_once_the_authority_answers(qm, authority):
    configure(qm, authority, "[rings.billing]\ndn = 'CN=billing'\nshare = ['orders']")
    row = lambda: (shown_rows(  # noqa: E731
        qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY ENROL('billing')").stdout
    ) or [{"STATE": None}])[0]
    wait_until(lambda: row()["STATE"] == "FAILING", "it was asked for")
    assert row()["METHOD"] == "CMP" and "Connection refused" in row()["WHY"], row()
    key = waiting_key(qm, "rings/billing/pending/billing.pem")
    authority.issues(authority.signed(named("billing"), key), "-poll_count", "1", "-check_after", "1")
    # Another text is tried at once.
    configure(qm, authority, "[rings.billing]\ndn = 'CN=billing'\nshare = ['orders']", rest="recipient = 'CN=Company'")
    wait_until(lambda: row()["STATE"] == "VALID", f"it came: {row()}")
    (own,) = (qm.data / "rings/billing/own").glob("*.pem")
    assert x509.load_pem_x509_certificate(own.read_bytes()).public_key() == key
    assert (qm.data / "rings/orders/people/billing.pem").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-pkistatus", "2", "-failure", "2"], "badRequest"),
        (["-send_error"], "refused: "),
        (["-send_unprotected"], "the answer is not believed: "),
        (["-poll_count", "9", "-check_after", "60"], "not decided yet: to be asked again in 60 s"),
    ],
)
def test_a_refusal_a_wrong_protection_and_a_wait_keep_what_there_is(qm, authority, options, says):
    before = present(qm)
    configure(qm, authority, SERVER)
    renew(qm, code=1)
    authority.issues(authority.signed(named("mq"), waiting_key(qm)), *options)
    said = renew(qm, code=None)
    assert says in said and present(qm) == before, said


@pytest.mark.parametrize("what", ["name", "subject", "authority"])
def test_a_certificate_that_was_not_asked_for_is_not_kept(qm, authority, what, tmp_path):
    before = present(qm)
    configure(qm, authority, SERVER)
    renew(qm, code=1)
    issuer = authority if what != "authority" else Authority(tmp_path / "other")
    subject = named("mq2" if what == "subject" else "mq")
    if what == "name":
        configure(qm, authority, SERVER.replace("dns:localhost", "dns:mq.example"))
    authority.issues(issuer.signed(subject, waiting_key(qm)))
    said = renew(qm, code=4)
    assert "the answer is not the certificate that was asked for" in said and present(qm) == before, said


def test_another_secret_is_no_proof(qm, authority):
    before = present(qm)
    configure(qm, authority, SERVER)
    renew(qm, code=1)
    authority.issues(authority.signed(named("mq"), waiting_key(qm)))
    (authority.folder / "secret").write_text("guessed\n")
    said = renew(qm, code=None)
    assert "error" in said and SECRET not in said and present(qm) == before, said
    (authority.folder / "secret").chmod(0o640)
    assert "secret: others may read it" in renew(qm, code=1)


class Liar:
    """Takes connections and answers with the same bytes, or never."""

    def __init__(self, port, answer):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.answer = answer
        self.kept = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.kept.append(connection)
            if self.answer is not None:
                connection.recv(65536)
                connection.sendall(self.answer)
                connection.shutdown(socket.SHUT_WR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for connection in self.kept:
            connection.close()


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/pkixcmp\r\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "no answer within 3 s"),
        (HEAD + b"\r\n" + bytes(500), "the answer is not believed: it is no message of CMP"),
        (HEAD + b"\r\n", "it is no message of CMP"),
        (HEAD + b"Content-Length: 900000\r\n\r\n", "it has more than 262144 bytes"),
        (HEAD + b"Content-Length: 900\r\n\r\n0", "the server ended the connection"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "HTTP status 404"),
        (b"220 mail.example ESMTP\r\n", "no answer of HTTP"),
        (b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<p>", "the answer is \"text/html\""),
        (b"", "the server ended the connection"),
    ],
    ids=["silent", "zeros", "empty", "long", "short", "status", "mail", "page", "closed"],
)
def test_a_server_that_hangs_or_answers_anything_changes_nothing(qm, authority, answer, says):
    before = present(qm)
    configure(qm, authority, SERVER)
    liar = Liar(authority.port, answer)
    try:
        said = renew(qm, code=1)
    finally:
        liar.close()
    assert says in said and present(qm) == before, said
