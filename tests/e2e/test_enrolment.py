"""Certificates that come and renew by themselves, from a program that somebody else's library signs with."""

import json
import os
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from manager import run, shown_rows, wait_until
from sites import PRIVACY, Site, clear

# Signs what stands on its standard input, as the file `mode` beside it says. A lifetime of so many seconds.
PROGRAM = """#!{python} -I
import datetime, os, pathlib, sys, time
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

here, parent = pathlib.Path(sys.argv[1]), os.getppid()
mode, seconds = (here / "mode").read_text().split()
pem = sys.stdin.buffer.read()
with (here / "asked").open("a") as asked:
    asked.write(mode + "\\n")
if mode == "refuses":
    print("the profile is closed", file=sys.stderr)
    sys.exit(4)
if mode == "undecided":
    sys.exit(75)
while mode == "hangs":
    time.sleep(0.1)
    if os.getppid() != parent:  # the process that asked was killed: no other one ends this
        sys.exit(1)
if mode == "garbage":
    print("-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----")
    sys.exit(0)
request = x509.load_pem_x509_csr(pem)
assert request.is_signature_valid
authority = x509.load_pem_x509_certificate((here / "ca.pem").read_bytes())
key = serialization.load_pem_private_key((here / "ca.key").read_bytes(), None)
public = ec.generate_private_key(ec.SECP256R1()).public_key() if mode == "another-key" else request.public_key()
now = datetime.datetime.now(datetime.timezone.utc)
builder = (
    x509.CertificateBuilder().subject_name(request.subject).issuer_name(authority.subject).public_key(public)
    .serial_number(x509.random_serial_number())
    .not_valid_before(now).not_valid_after(now + datetime.timedelta(seconds=int(seconds)))
    .add_extension(x509.BasicConstraints(False, None), True)
    .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION, ExtendedKeyUsageOID.SERVER_AUTH]), False)
)
for extension in request.extensions:
    builder = builder.add_extension(extension.value, extension.critical)
for certificate in (authority, builder.sign(key, hashes.SHA256())):
    sys.stdout.buffer.write(certificate.public_bytes(serialization.Encoding.PEM))
"""
CONFIGURATION = """
[authorities.company]
command = ["{folder}/sign", "{folder}"]
seconds = 5
trust = "{folder}/ca.pem"
"""
RING = """
[rings.{user}]
authority = "company"
dn = "CN={user},O=Demo"
share = ["{other}"]
overlap = "0s"
"""
SERVER = """
[certificates.server]
authority = "company"
"""


class Company:
    """The authority, and what stands in enrolment.toml."""

    def __init__(self, qm, folder):
        self.qm, self.folder = qm, folder
        folder.mkdir()
        qm.run("cert", "create", "--ca", "company", "--dn", "CN=Company", "--key", "p256", "--data", folder / "data")
        made = folder / "data/authorities/company"
        (folder / "ca.pem").write_bytes((made / "ca.pem").read_bytes())
        (folder / "ca.key").write_bytes((made / "key.pem").read_bytes())
        program = folder / "sign"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        self.does("signs", 86_400)

    def does(self, mode, seconds=86_400):
        (self.folder / "mode").write_text(f"{mode} {seconds}")

    def asked(self):
        path = self.folder / "asked"
        return path.read_text().split() if path.exists() else []

    def running(self):
        """Processes of the program."""
        name, found = os.fsencode(self.folder / "sign"), []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if name in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def configure(self, *parts):
        text = CONFIGURATION.format(folder=self.folder) + "".join(parts)
        aside = self.qm.data / "enrolment.new"
        aside.write_text(text)
        aside.chmod(0o600)
        aside.rename(self.qm.data / "enrolment.toml")

    def row(self, name):
        command = f"DISPLAY ENROL('{name}')"
        rows = shown_rows(self.qm.run("mqsc", "--data", self.qm.data, "--json", "-c", command).stdout)
        return rows[0] if rows else {"STATE": None}

    def reaches(self, name, state):
        wait_until(lambda: self.row(name)["STATE"] == state, f"{name} is {state}: {self.row(name)}")
        return self.row(name)


def ring(user, other):
    return RING.format(user=user, other=other)


BOTH = ring("orders", "billing"), ring("billing", "orders")


@pytest.fixture
def company(managers, tmp_path):
    company = Company(managers(), tmp_path / "company")
    yield company
    wait_until(lambda: not company.running(), f"the program has ended: {company.running()}")


def served(qm):
    """The certificate that the listener shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", qm.ports["amqps"]), 10) as connection:
        with context.wrap_socket(connection) as tls:
            return x509.load_der_x509_certificate(tls.getpeercert(True))


def is_serial(shown, certificate):
    """Whether a serial number that is shown, with or without a zero before it, is the certificate's."""
    return shown.lstrip("0") == f"{certificate.serial_number:x}"


def own(qm, user):
    return {path.stem for path in (qm.data / "rings" / user / "own").glob("*.pem")}


def test_rings_get_their_first_keys_and_renew_them_while_messages_lie_on_a_queue(company):
    qm = company.qm
    company.does("signs", 40)
    company.configure(*BOTH)
    for user in ("orders", "billing"):
        qm.add_user(user)
        company.reaches(user, "VALID")
    site = Site(qm, Named("orders", "billing"))
    queue = site.queue(PRIVACY)
    first = own(qm, "billing")
    sealed_for_first = [b"first %d" % number for number in range(3)]
    for payload in sealed_for_first:
        site.orders.put(queue, clear(payload))
    row = company.row("billing")
    assert (row["PLACE"], row["METHOD"], row["AUTHORITY"], row["FAILURES"]) == ("RING", "COMMAND", "company", 0), row
    assert row["RENEWAL"] < row["UNTIL"] and row["SUBJECT"] == "CN=billing,O=Demo"
    # Two thirds of forty seconds, without anyone's doing.
    wait_until(lambda: len(own(qm, "billing")) == 2, "the key is renewed", 60)
    company.does("signs", 86_400)
    changes = lambda: shown_rows(  # noqa: E731
        qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY KEYROTATE('billing')").stdout
    )
    wait_until(lambda: changes() and changes()[0]["STEP"] == "WITHDRAWN", "the new key seals")
    assert changes()[0]["MSGS"] == 3, changes()
    site.orders.put(queue, clear(b"second"))
    # The first certificate's end passes: what was put before it opens all the same.
    wait_until(lambda: company.row("billing")["STATE"] == "VALID" and is_over(qm, first), "the first one has ended",
               60)
    got = [bytes(site.billing.get(queue).body) for _ in range(4)]
    assert got == [*sealed_for_first, b"second"]
    wait_until(lambda: not changes(), "the old key goes with the last message")
    told = qm.run("audit", "show", "--json", "--kind", "key-rotation", "--data", qm.data).stdout.splitlines()
    told = [json.loads(line) for line in told]
    told = [entry for entry in told if entry["what"]["user"] == "billing"]
    assert told[0]["who"] == {"qmgr": True} and told[-1]["what"]["step"] == "retired", told
    for client in site.clients.values():
        client.close()


class Named:
    """Users whose names are as they are enrolled."""

    def __init__(self, *names):
        self.identities = dict.fromkeys(names)

    @staticmethod
    def dn(name):
        return f"CN={name},O=Demo"


def is_over(qm, labels):
    [label] = labels
    text = (qm.data / "rings/billing/own" / f"{label}.pem").read_bytes()
    return x509.load_pem_x509_certificate(text).not_valid_after_utc.timestamp() < time.time()


def test_the_listener_shows_its_new_certificate_without_a_restart(company):
    qm = company.qm
    before = served(qm)
    names = before.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    company.does("signs", 20)
    company.configure(SERVER)
    assert company.row("server")["STATE"] in (None, "VALID")
    said = qm.run("cert", "renew", "--data", qm.data).stdout.decode()
    assert "renewed server" in said, said
    wait_until(lambda: served(qm) != before, "the new one is shown")
    by_hand = served(qm)
    assert by_hand.extensions.get_extension_for_class(x509.SubjectAlternativeName).value == names
    assert by_hand.subject == before.subject and by_hand.public_key() != before.public_key()
    wait_until(lambda: is_serial(company.row("server").get("SERIAL", ""), by_hand), "it is seen")
    company.does("signs", 86_400)
    wait_until(lambda: served(qm) != by_hand, "it renews by itself", 60)
    told = qm.run("audit", "show", "--json", "--kind", "certificate", "--data", qm.data).stdout.splitlines()
    assert is_serial(json.loads(told[-1])["what"]["serial"], served(qm))
    with qm.connect() as client:
        assert client is not None
    assert list((qm.data / "enrolment").iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "says", "code"),
    [
        ("refuses", "refused: exit status 4: the profile is closed", 4),
        ("another-key", "certificates is for the key of the request", 4),
        ("garbage", "the answer is not the certificate that was asked for", 4),
        ("undecided", "not decided yet", 4),
        ("hangs", "no answer within 5 s", 1),
    ],
)
def test_what_does_not_come_changes_nothing_and_is_told(company, mode, says, code):
    qm = company.qm
    company.does(mode)
    company.configure(SERVER)
    before = served(qm)
    done = qm.run("cert", "renew", "--data", qm.data, code=code)
    assert says in done.stderr.decode(), done.stderr
    assert served(qm) == before
    # The same of a first key, which the queue manager asks for by itself.
    company.configure(ring("billing", "orders"))
    row = company.reaches("billing", "UNDECIDED" if mode == "undecided" else "FAILING")
    assert says in row["WHY"] and row["FAILURES"] == 1 and row["RENEWAL"], row
    if mode != "undecided":
        qm.says("rings/billing: no certificate from company: ")
    assert own(qm, "billing") == set()
    # A text that changes is tried at once, with the key that waits.
    (pending,) = (qm.data / "rings/billing/pending").iterdir()
    waits = serialization.load_pem_private_key(pending.read_bytes(), None).public_key()
    company.does("signs")
    company.configure(ring("billing", "orders"), SERVER)
    company.reaches("billing", "VALID")
    (label,) = own(qm, "billing")
    kept = x509.load_pem_x509_certificate((qm.data / "rings/billing/own" / f"{label}.pem").read_bytes())
    assert kept.public_key() == waits and kept.issuer.rfc4514_string() == "CN=Company"


def test_a_failure_is_an_event_and_a_metric(managers, tmp_path):
    qm = managers(options=["--metrics", "127.0.0.1:0"])
    company = Company(qm, tmp_path / "company")
    qm.mqsc("DEFINE QLOCAL(SYSTEM.ADMIN.QMGR.EVENT) REPLACE")
    company.does("refuses")
    company.configure(ring("billing", "orders"))
    company.reaches("billing", "FAILING")
    with qm.connect() as client:
        event = json.loads(bytes(client.get("SYSTEM.ADMIN.QMGR.EVENT").body))
    assert (event["event"], event["place"], event["failures"], event["notafter"]) == (
        "ENROLMENT.FAILED", "rings/billing", 1, None,
    )  # fmt: skip
    assert event["why"] == "refused: exit status 4: the profile is closed" and 60 <= event["retry"] <= 75, event


def test_it_is_killed_while_the_program_runs_and_goes_on(company):
    qm = company.qm
    company.does("hangs")
    company.configure(ring("billing", "orders"), SERVER)
    wait_until(company.asked, "the program runs")
    qm.kill()
    company.does("signs")
    qm.start()
    company.reaches("billing", "VALID")
    assert len(own(qm, "billing")) == 1


def test_who_may_not_write_the_file_runs_no_program(company):
    qm = company.qm
    company.configure(ring("billing", "orders"))
    company.reaches("billing", "VALID")
    asked = len(company.asked())
    (company.folder / "sign").chmod(0o777)
    done = qm.run("key", "enrol", "billing", "--data", qm.data, code=1)
    assert "others may write it (mode 777)" in done.stderr.decode(), done.stderr
    (company.folder / "sign").chmod(0o755)
    (qm.data / "enrolment.toml").chmod(0o666)
    done = qm.run("key", "enrol", "billing", "--data", qm.data, code=1)
    assert "enrolment.toml: others may write it (mode 666)" in done.stderr.decode(), done.stderr
    qm.says("no certificate is renewed: ")
    # A definition can't name one: there is no such command.
    for command in ("ALTER QMGR ENROL('COMMAND /bin/true')", "DEFINE ENROL(X)", "SET ENROL(X)"):
        qm.mqsc(command, code=2)
    assert len(company.asked()) == asked


def test_a_program_gets_no_environment(company):
    qm = company.qm
    found = company.folder / "environment"
    program = company.folder / "sign"
    program.write_text(f"#!/bin/sh\nexec /usr/bin/env > {found}\n")
    company.configure(SERVER)
    os.environ["BULLA_TEST_SECRET"] = "4711"
    try:
        qm.run("cert", "renew", "--data", qm.data, code=4)
    finally:
        del os.environ["BULLA_TEST_SECRET"]
    assert "4711" not in found.read_text() and "HOME=" not in found.read_text()


def test_without_the_file_the_commands_say_so(company):
    for command in (["key", "enrol", "billing"], ["cert", "renew"]):
        done = company.qm.run(*command, "--data", company.qm.data, code=2)
        assert "enrolment.toml has no " in done.stderr.decode(), done.stderr
    assert shown_rows(run("mqsc", "--data", company.qm.data, "--json", "-c", "DISPLAY ENROL('*')").stdout) == []
