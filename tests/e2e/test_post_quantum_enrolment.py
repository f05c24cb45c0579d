"""Certificates for keys that withstand a quantum computer, from an authority that has such a key itself: what can be asked
for, by a program, CMP, ACME and SPIFFE, and what is refused by name."""

import json
import os
import subprocess

import pytest

from cmp_server import SECRET, CmpServer
from manager import BULLA, run, wait_until
from pki import OPENSSL_4, openssl_4

SIGN = """#!/bin/sh
cd {folder} && rm -f new.pem && cat > request.csr &&
{bulla} cert sign request.csr --signer company --out new.pem --data {folder}/data >&2 &&
cat new.pem {folder}/ca.pem
"""
CONFIGURATION = """
[authorities.company]
command = ["{folder}/sign"]
seconds = 20
trust = "{folder}/ca.pem"
[rings.orders]
authority = "company"
dn = "CN=orders,O=Demo"
key = "{key}"
[certificates.server]
authority = "company"
dn = "CN=mq"
names = ["dns:localhost"]
key = "{key}"
"""


@pytest.fixture
def data(tmp_path):
    """A data directory, and an authority elsewhere with an ML-DSA key."""
    folder = tmp_path / "company"
    folder.mkdir()
    made = run("cert", "create", "--ca", "company", "--dn", "CN=Company", "--key", "ml-dsa-87", "--data", folder / "data")
    assert made.returncode == 0, made
    (folder / "ca.pem").write_bytes((folder / "data/authorities/company/ca.pem").read_bytes())
    (folder / "sign").write_text(SIGN.format(folder=folder, bulla=BULLA))
    (folder / "sign").chmod(0o755)
    data = tmp_path / "qm"
    data.mkdir(mode=0o700)
    return data


def configure(data, key):
    file = data / "enrolment.toml"
    file.write_text(CONFIGURATION.format(folder=data.parent / "company", key=key))
    file.chmod(0o600)


def said(done):
    return (done.stdout + done.stderr).decode()


def test_a_ring_gets_an_ml_dsa_key_from_an_authority_with_one(data):
    configure(data, "ml-dsa-65")
    done = run("key", "enrol", "orders", "--data", data)
    assert done.returncode == 0 and "has its first key" in said(done), done
    listed = said(run("cert", "list", "--ring", "orders", "--data", data))
    assert "ML-DSA" in listed and "CN=orders,O=Demo" in listed, listed


def test_no_authority_is_asked_for_an_ml_kem_key_which_signs_no_request(data):
    configure(data, "ml-kem-768")
    for command in (("key", "enrol", "orders"), ("cert", "renew", "server")):
        done = run(*command, "--data", data)
        assert done.returncode == 1 and "a key of type ML-KEM signs nothing, so no request either" in said(done), done
    assert not (data.parent / "company/request.csr").exists()


def keys(data):
    """The keys of the ring of `orders`, by serial number."""
    listed = json.loads(run("cert", "list", "--ring", "orders", "--json", "--data", data).stdout)
    return {one["serial"]: (one["key_type"], one["key_size"]) for one in listed if one["private_key"]}


def test_with_keys_of_both_kinds_each_renews_as_its_kind_can(data):
    """`key` is for those whose place it can take, and the other key of the ring is not held up."""
    configure(data, "p256")
    assert run("key", "enrol", "orders", "--data", data).returncode == 0
    company = data.parent / "company/data"
    beside = ("--ring", data / "rings/orders", "--dn", "CN=orders,O=Demo", "--key", "ml-dsa-65", "--signer", "company")
    made = run("cert", "create", *beside, "--data", company)
    assert made.returncode == 0, made
    before = keys(data)
    configure(data, "p384")
    for serial in before:
        # A certificate must begin a second after the one before, and this authority's begins when it is asked.
        enrol = lambda: said(run("key", "enrol", "orders", "--serial", serial, "--data", data))  # noqa: E731,B023
        wait_until(lambda: "seals from now on" in enrol(), f"the key {serial} is renewed")  # noqa: B023
    after = keys(data)
    new = sorted(key for serial, key in after.items() if serial not in before)
    assert (len(after), new) == (4, [("ML-DSA", 65), ("NISTECC", 384)]), after
    unknown = run("key", "enrol", "orders", "--serial", "4711", "--data", data)
    assert unknown.returncode != 0 and "no key with serial number 4711" in said(unknown), unknown


def test_an_ml_dsa_key_takes_no_old_key_s_place(data):
    configure(data, "p256")
    assert run("key", "enrol", "orders", "--data", data).returncode == 0
    configure(data, "ml-dsa-65")
    done = run("key", "enrol", "orders", "--data", data)
    assert done.returncode == 4 and "`bulla cert create` makes one beside it" in said(done), done


# --- CMP ---

CMP = """
[authorities.company]
cmp = "http://127.0.0.1:{port}/"
reference = "4711"
secret_file = "{folder}/secret"
seconds = 20
trust = "{folder}/ca.pem"
[certificates.server]
authority = "company"
dn = "CN=mq"
names = ["dns:localhost"]
key = "{key}"
"""
EXTENSIONS = """basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
subjectAltName = DNS:localhost
"""


class Company(CmpServer):
    """An authority with an ML-DSA key. The server of `openssl cmp` issues one certificate that is made before. Where no
    secret is used, it signs its answers by ML-DSA."""

    def __init__(self, folder):
        super().__init__(folder, OPENSSL_4, "cmp", "-config", "")
        (folder / "extensions").write_text(EXTENSIONS)
        ca = ("-addext", "basicConstraints=critical,CA:TRUE", "-subj", "/CN=Company", "-days", "3650")
        self.openssl("req", "-x509", "-newkey", "ML-DSA-87", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", *ca)
        self.openssl("genpkey", "-algorithm", "ML-DSA-65", "-out", "server.key")
        self.issue("server.key", "CMP server", "server.pem")

    def openssl(self, *arguments):
        subprocess.run(
            [OPENSSL_4, *arguments], cwd=self.folder, env={"OPENSSL_CONF": os.devnull}, check=True, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def issue(self, key, name, out, serial="1234"):
        """A certificate for the key in that file."""
        self.openssl("pkey", "-in", str(key), "-pubout", "-out", "public.pem")
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", serial, "-days", "90", "-extfile", "extensions")
        self.openssl("x509", "-new", "-force_pubkey", "public.pem", "-subj", f"/CN={name}", *by, "-out", out)


@pytest.fixture
def company(tmp_path):
    if not OPENSSL_4.exists():
        pytest.skip("there is no openssl program of this build: make clients")
    company = Company(tmp_path / "cmp")
    yield company
    company.stop()


def ask_by_cmp(data, company, key):
    file = data / "enrolment.toml"
    file.write_text(CMP.format(port=company.port, folder=company.folder, key=key))
    file.chmod(0o600)
    return run("cert", "renew", "server", "--data", data)


def test_by_cmp_no_ml_kem_key_is_asked_for(data, company):
    (data / "tls").mkdir(mode=0o700)
    done = ask_by_cmp(data, company, "ml-kem-768")
    assert done.returncode == 1 and "a key of type ML-KEM signs nothing, so no request either" in said(done), done


def test_by_cmp_an_ml_dsa_key_comes_by_a_secret_and_renews_by_its_own_signature(data, company):
    (data / "tls").mkdir(mode=0o700)
    pending, present = data / "enrolment/server.pending", data / "tls/server.pem"
    # The key is made with the first attempt, and the server issues a certificate that is made before.
    assert "Connection refused" in said(ask_by_cmp(data, company, "ml-dsa-65"))
    company.issue(pending, "mq", "issued.pem", serial="77")
    company.serve()
    done = ask_by_cmp(data, company, "ml-dsa-65")
    assert done.returncode == 0 and "renewed server: " in said(done), done
    first = present.read_bytes()
    company.stop()
    # The request is signed by the present key, and the answer by the server's: both are ML-DSA.
    assert "Connection refused" in said(ask_by_cmp(data, company, "ml-dsa-87"))
    company.issue(pending, "mq", "issued.pem", serial="77")
    company.serve(by_secret=False)
    done = ask_by_cmp(data, company, "ml-dsa-87")
    assert done.returncode == 0 and "renewed server: " in said(done), done
    shown = openssl_4("x509", "-in", present, "-noout", "-text").decode()
    assert present.read_bytes() != first and "Public Key Algorithm: ML-DSA-87" in shown, shown
    assert not pending.exists()
