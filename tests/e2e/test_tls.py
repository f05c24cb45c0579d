"""The TLS listener as `openssl` sees it: what it offers, whom it refuses and with which words, what it staples, and that
keys are not renewed for strangers."""

import re
import subprocess

import pytest

from manager import DEADLINE, wait_until
from pki import Authority, openssl

CHANNEL = "QM1.TO.QM2"
SERVER_NAME = "qm1-2eto-2eqm2.chl.bulla"
HOLDER = "CN={},O=Demo"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "tls")


@pytest.fixture(scope="module")
def qm(managers, authority):
    manager = managers()
    (manager.data / "tls/clients.pem").write_bytes(authority.pem)
    rsa = authority.issue("rsa")
    (manager.data / "tls/rsa.pem").write_bytes(rsa.pem)
    (manager.data / "tls/rsa.key").write_bytes(rsa.key.read_bytes())
    yield manager
    assert manager.stop() == 0


def s_client(qm, *options, stdin=b"Q\n"):
    """What `openssl s_client` prints; both streams."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"localhost:{qm.ports['amqps']}", "-CAfile", qm.ca, *map(str, options)],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE,
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def agreed(text):
    """Protocol and suite, or nothing."""
    found = re.search(r"New, (TLSv1\.[23]), Cipher is (\S+)", text)
    return (found[1], found[2]) if found else None


def channel(qm, cipher, *attributes):
    qm.mqsc(f"DEFINE CHANNEL({CHANNEL}) CHLTYPE(RCVR) SSLCIPH({cipher}) {' '.join(attributes)} REPLACE")


@pytest.mark.parametrize(
    "options",
    [
        ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        ["-tls1_2", "-cipher", "AES128-SHA256"],
        ["-tls1_2", "-cipher", "AES256-GCM-SHA384"],
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"],
        ["-tls1_2", "-cipher", "DHE-RSA-AES256-GCM-SHA384"],
    ],
    ids=lambda options: " ".join(options),
)
def test_a_client_of_the_listener_is_not_given_what_is_weak(qm, options):
    assert agreed(s_client(qm, *options)) is None


@pytest.mark.parametrize(
    ("options", "suite"),
    [
        (["-tls1_3"], "TLS_AES_256_GCM_SHA384"),
        (["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], "TLS_CHACHA20_POLY1305_SHA256"),
        (["-tls1_2"], "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ],
)
def test_a_client_of_the_listener_is_given_what_is_strong(qm, options, suite):
    assert agreed(s_client(qm, *options))[1] == suite


@pytest.mark.parametrize(
    ("cipher", "suite", "others"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", ["-tls1_2"]),
        ("ECDHE_RSA_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256", ["-tls1_3"]),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384", ["-cipher", "ECDHE-RSA-AES256-GCM-SHA384", "-tls1_2"]),
    ],
)
def test_a_caller_that_names_a_channel_is_given_its_cipherspec_and_certificate_alone(qm, cipher, suite, others):
    channel(qm, cipher, "CERTLABL('rsa')", "SSLCAUTH(OPTIONAL)")
    named = ["-servername", SERVER_NAME, "-cipher", "ALL:@SECLEVEL=0"]
    text = s_client(qm, *named)
    assert agreed(text)[1] == suite
    assert "CN = rsa" in text or "CN=rsa" in text
    assert agreed(s_client(qm, "-servername", SERVER_NAME, *others)) is None


@pytest.fixture(scope="module")
def holders(authority):
    """Certificates for each thing that can be wrong with one, and what is said about it."""
    revoked = authority.issue("revoked", "p256")
    authority.revoke(revoked)
    return {
        "good": authority.issue("good", "p256"),
        "certificate-expired": authority.issue("expired", "p256", not_before=-10, not_after=-1),
        "certificate-not-yet-valid": authority.issue("early", "p256", not_before=5),
        "certificate-revoked": revoked,
    }


@pytest.mark.parametrize("protocol", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize(
    "cause", ["certificate-expired", "certificate-not-yet-valid", "certificate-revoked", "certificate-untrusted", "no-certificate"]
)
def test_a_caller_with_a_wrong_certificate_is_refused_and_the_log_says_which(
    qm, authority, holders, tmp_path, cause, protocol
):
    channel(qm, "ANY_TLS12_OR_HIGHER")
    (qm.data / "tls/crls").mkdir(exist_ok=True)
    (qm.data / "tls/crls/demo.pem").write_bytes(authority.crl())
    holder = holders.get(cause)
    if cause == "certificate-untrusted":
        holder = Authority(tmp_path / "strange").issue("stranger", "p256")
    shown = ["-cert", holder.certificate, "-key", holder.key] if holder else []
    good = ["-cert", holders["good"].certificate, "-key", holders["good"].key]

    def refused():
        since = len(qm.log)
        s_client(qm, protocol, "-servername", SERVER_NAME, *shown)
        return [line for line in qm.log[since:] if f"cause={cause}" in line]

    line = wait_until(refused, f"the log says {cause}")[-1]
    if holder:
        assert HOLDER.format(holder.name) in line
    assert agreed(s_client(qm, protocol, "-servername", SERVER_NAME, *good))


def test_a_client_may_not_renegotiate(qm):
    since = len(qm.log)
    text = s_client(qm, "-tls1_2", stdin=b"R\nQ\n")
    assert "RENEGOTIATING" in text
    assert re.search("no.renegotiation", text), text
    assert not [line for line in qm.log[since:] if "panic" in line]


def test_an_ocsp_answer_is_stapled_while_it_is_fresh(qm, authority, tmp_path):
    request, answer = tmp_path / "request.der", tmp_path / "answer.der"
    certificate = qm.data / "tls/rsa.pem"
    chain = certificate.read_bytes() + authority.pem
    (qm.data / "tls/stapled.pem").write_bytes(chain)
    (qm.data / "tls/stapled.key").write_bytes((qm.data / "tls/rsa.key").read_bytes())
    openssl("ocsp", "-issuer", authority.certificate, "-cert", certificate, "-reqout", request, "-no_nonce")
    openssl(
        "ocsp", "-index", authority.dir / "index.txt", "-CA", authority.certificate, "-rsigner", authority.certificate,
        "-rkey", authority.key, "-reqin", request, "-respout", answer, "-ndays", "1",
    )  # fmt: skip
    (qm.data / "tls/stapled.ocsp").write_bytes(answer.read_bytes())
    channel(qm, "ANY_TLS12_OR_HIGHER", "CERTLABL('stapled')", "SSLCAUTH(OPTIONAL)")
    asked = ["-servername", SERVER_NAME, "-status"]
    for protocol in ("-tls1_2", "-tls1_3"):
        text = s_client(qm, protocol, *asked)
        assert "OCSP Response Status: successful" in text, text
        assert "Cert Status: good" in text
    # An answer about another certificate is not shown.
    (qm.data / "tls/stapled.ocsp").write_bytes(b"not an answer")
    wait_until(lambda: "no response sent" in s_client(qm, *asked), "what is no answer is not stapled")


def test_a_certificate_changed_on_disk_is_shown_to_the_next_client(qm, authority):
    channel(qm, "ANY_TLS13", "CERTLABL('rsa')", "SSLCAUTH(OPTIONAL)")
    fresh = authority.issue("fresh")
    for ending, content in (("key", fresh.key.read_bytes()), ("pem", fresh.pem)):
        (qm.data / f"tls/rsa.{ending}").write_bytes(content)
    wait_until(
        lambda: re.search("CN ?= ?fresh", s_client(qm, "-servername", SERVER_NAME)), "the next handshake shows the new certificate"
    )
