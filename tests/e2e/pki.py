"""An authority made with the `openssl` command line: certificates of any dates, revocation lists, CMS.

It is there so that rings, seals and paths are tried against somebody else's work.
"""

import datetime
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

KEYS = {
    "rsa1024": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"],
    "rsa2048": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "rsa3072": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:3072"],
    "rsa4096": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"],
    "p192": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime192v1"],
    "p224": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp224r1"],
    "p256": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
    "p384": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp384r1"],
    "p521": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp521r1"],
}
# Keys that the openssl of distributions doesn't know yet: the program of this build makes them (`make clients`).
POST_QUANTUM = {
    **{f"ml-dsa-{size}": ["-algorithm", f"ML-DSA-{size}"] for size in (44, 65, 87)},
    **{f"ml-kem-{size}": ["-algorithm", f"ML-KEM-{size}"] for size in (512, 768, 1024)},
}
OPENSSL_4 = Path(__file__).parents[2] / ".cache/openssl-4/openssl"
USAGE_RSA = "digitalSignature,nonRepudiation,keyEncipherment,dataEncipherment"
USAGE_EC = "digitalSignature,nonRepudiation,keyAgreement"
USAGE_SIGNING = "digitalSignature,nonRepudiation"
USAGE_KEM = "keyEncipherment"
CONFIG = """
[ca]
default_ca = authority
[authority]
database = {dir}/index.txt
new_certs_dir = {dir}/issued
serial = {dir}/serial
crlnumber = {dir}/crlnumber
certificate = {dir}/ca.pem
private_key = {dir}/ca.key
default_md = sha256
policy = anything
unique_subject = no
preserve = yes
[anything]
commonName = supplied
organizationName = optional
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,$ENV::USAGE
extendedKeyUsage = emailProtection,clientAuth,serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class CommandFailed(Exception):
    """An openssl command said no."""


def openssl(*arguments, stdin=None, env=None, program="openssl"):
    """Runs openssl; its standard output."""
    done = subprocess.run(
        [program, *(str(argument) for argument in arguments)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        timeout=60,
    )
    if done.returncode:
        raise CommandFailed(f"{program} {' '.join(map(str, arguments))}: {done.stderr.decode()}")
    return done.stdout


def openssl_4(*arguments, env=None):
    """Runs the openssl program of this build, which has no configuration of its own."""
    return openssl(*arguments, program=OPENSSL_4, env={"OPENSSL_CONF": os.devnull, **(env or {})})


def utc(moment):
    return moment.strftime("%Y%m%d%H%M%SZ")


def days_from_now(days):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)


@dataclass
class Identity:
    """A certificate and its private key, as files."""

    name: str
    certificate: Path
    key: Path

    @property
    def dn(self):
        return f"CN={self.name},O=Demo"

    @property
    def pem(self):
        return self.certificate.read_bytes()

    @property
    def own_pem(self):
        return self.pem + self.key.read_bytes()


class Authority:
    def __init__(self, directory, name="Test authority", key="p256"):
        self.dir = Path(directory)
        (self.dir / "issued").mkdir(parents=True)
        (self.dir / "index.txt").touch()
        (self.dir / "serial").write_text("1000\n")
        (self.dir / "crlnumber").write_text("01\n")
        (self.dir / "ca.cnf").write_text(CONFIG.format(dir=self.dir))
        self.certificate, self.key = self.dir / "ca.pem", self.dir / "ca.key"
        self.count = 0
        openssl("genpkey", *KEYS[key], "-out", self.key)
        openssl(
            "req", "-x509", "-new", "-key", self.key, "-days", "3650", "-subj", f"/CN={name}/O=Demo", "-sha256",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", self.certificate,
        )  # fmt: skip

    @property
    def pem(self):
        return self.certificate.read_bytes()

    def issue(self, name, key="rsa2048", usage=None, not_before=-1, not_after=365):
        """A leaf; the dates are days from now."""
        self.count += 1
        stem = self.dir / f"{name}-{self.count}"
        identity = Identity(name, stem.with_suffix(".pem"), stem.with_suffix(".key"))
        if key in POST_QUANTUM:
            self._issue_post_quantum(identity, key, usage, not_before, not_after)
            return identity
        request = stem.with_suffix(".csr")
        openssl("genpkey", *KEYS[key], "-out", identity.key)
        openssl("req", "-new", "-key", identity.key, "-subj", f"/CN={name}/O=Demo", "-out", request)
        openssl(
            "ca", "-batch", "-notext", "-config", self.dir / "ca.cnf", "-extensions", "leaf", "-in", request,
            "-startdate", utc(days_from_now(not_before)), "-enddate", utc(days_from_now(not_after)),
            "-out", identity.certificate,
            env={"USAGE": usage or (USAGE_RSA if key.startswith("rsa") else USAGE_EC)},
        )  # fmt: skip
        return identity

    def _issue_post_quantum(self, identity, key, usage, not_before, not_after):
        """Without a request, which a key for encryption can't sign."""
        public = identity.key.with_suffix(".pub")
        usage = usage or (USAGE_SIGNING if key.startswith("ml-dsa") else USAGE_KEM)
        openssl_4("genpkey", *POST_QUANTUM[key], "-out", identity.key)
        openssl_4("pkey", "-in", identity.key, "-pubout", "-out", public)
        openssl_4(
            "x509", "-new", "-force_pubkey", public, "-subj", f"/CN={identity.name}/O=Demo", "-sha256",
            "-CA", self.certificate, "-CAkey", self.key, "-extfile", self.dir / "ca.cnf", "-extensions", "leaf",
            "-not_before", utc(days_from_now(not_before)), "-not_after", utc(days_from_now(not_after)),
            "-out", identity.certificate, env={"USAGE": usage},
        )  # fmt: skip

    def revoke(self, identity):
        openssl("ca", "-config", self.dir / "ca.cnf", "-revoke", identity.certificate, env={"USAGE": USAGE_EC})

    def crl(self, last_update=-0.01, next_update=30):
        """A revocation list, PEM; the dates are days from now."""
        return openssl(
            "ca", "-config", self.dir / "ca.cnf", "-gencrl",
            "-crl_lastupdate", utc(days_from_now(last_update)), "-crl_nextupdate", utc(days_from_now(next_update)),
            env={"USAGE": USAGE_EC},
        )  # fmt: skip


class Ring:
    """A user's key ring, written file by file as the documentation lays it out."""

    def __init__(self, data, user):
        self.dir = Path(data) / "rings" / user
        self.files = 0
        for folder in (self.dir.parent, self.dir, *(self.dir / place for place in ("own", "people", "trust", "crl"))):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _write(self, place, name, content):
        path = self.dir / place / name
        aside = path.with_name(f".{path.name}.new")
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        aside.rename(path)
        return path

    def own(self, *identities):
        for identity in identities:
            self._write("own", identity.certificate.name, identity.own_pem)
        return self

    def people(self, *identities):
        for identity in identities:
            self._write("people", identity.certificate.name, identity.pem)
        return self

    def trust(self, authority):
        self._write("trust", "authority.pem", authority.pem)
        return self

    def crl(self, pem):
        self._write("crl", "authority.pem", pem)
        return self

    def drop(self, place, identity):
        (self.dir / place / identity.certificate.name).unlink()
        return self
