"""Sealed messages in the hands of `openssl cms`, and foreign ones made by it."""

import functools
import subprocess
from pathlib import Path

import der
from manager import BULLA
from pki import CommandFailed, openssl

PROBE = Path(__file__).parents[1] / "openssl-probe.sh"
# `openssl cms -decrypt` of the OpenSSL that Bulla is linked with, where the installed program is too old.
DECRYPT = Path(BULLA).parent / "examples/cms-decrypt"

SEALED = "application/pkcs7-mime"


def verify(signed, authority, tmp, *options, by=openssl):
    """The payload of a SignedData, its signer's path checked."""
    return by(
        "cms", "-verify", "-inform", "DER", "-binary", "-purpose", "any", "-CAfile", authority.certificate,
        "-in", _file(tmp, "signed.der", signed), *options,
    )  # fmt: skip


def decrypt(enveloped, identity, tmp):
    """What an envelope holds. A program that looks for authenticated attributes under the wrong tag still opens privacy,
    which has none; the library does the rest."""
    try:
        return decrypt_with_program(enveloped, identity, tmp)
    except CommandFailed as failed:
        if "wrong tag" not in str(failed) or program_opens_confidential():
            raise
    return decrypt_with_library(enveloped, identity)


def decrypt_with_program(enveloped, identity, tmp, by=openssl):
    """As `decrypt`, by that program or not at all."""
    return by(
        "cms", "-decrypt", "-inform", "DER", "-binary", "-recip", identity.certificate, "-inkey", identity.key,
        "-in", _file(tmp, "enveloped.der", enveloped),
    )  # fmt: skip


@functools.cache
def program_opens_confidential():
    """Whether the `openssl` program reads authenticated attributes under the right tag."""
    return subprocess.run([PROBE], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def decrypt_with_library(enveloped, identity):
    """As `decrypt`, by the OpenSSL that is linked with Bulla; `make test` builds the program."""
    assert DECRYPT.exists(), "the openssl program is too old: cargo build -p bulla-seal --example cms-decrypt"
    done = subprocess.run(
        [DECRYPT, identity.certificate, identity.key],
        input=enveloped,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    if done.returncode:
        raise CommandFailed(done.stderr.decode())
    return done.stdout


def sign(payload, *identities, tmp, digest="sha256", options=(), by=openssl):
    """A SignedData with the payload inside."""
    signers = [word for identity in identities for word in ("-signer", identity.certificate, "-inkey", identity.key)]
    return by(
        "cms", "-sign", "-outform", "DER", "-binary", "-nodetach", "-md", digest, *signers, *options,
        "-in", _file(tmp, "payload", payload),
    )  # fmt: skip


def encrypt(payload, *identities, tmp, cipher="aes-256-gcm", by=openssl):
    """An envelope for RSA recipients, by OAEP with SHA-256, for EC or for ML-KEM ones."""
    recipients = []
    for identity in identities:
        recipients += ["-recip", identity.certificate]
        shown = by("x509", "-in", identity.certificate, "-noout", "-text")
        if b"rsaEncryption" in shown:
            recipients += [
                "-keyopt", "rsa_padding_mode:oaep", "-keyopt", "rsa_oaep_md:sha256", "-keyopt", "rsa_mgf1_md:sha256",
            ]  # fmt: skip
        elif b"id-ecPublicKey" in shown:
            recipients += ["-keyopt", "ecdh_kdf_md:sha256"]
    return by(
        "cms",
        "-encrypt",
        "-outform",
        "DER",
        "-binary",
        f"-{cipher}",
        *recipients,
        "-in",
        _file(tmp, "payload", payload),
    )


def smime_type(envelope):
    """The content type that goes with an envelope."""
    kinds = {
        der.oid("1.2.840.113549.1.7.2"): "signed-data",
        der.oid("1.2.840.113549.1.7.3"): "enveloped-data",
        der.oid("1.2.840.113549.1.9.16.1.23"): "authEnveloped-data",
        der.oid("2.25.162349314179033964728001606925398197666.2.1"): "x-bulla-batch-signed",
    }
    return f"{SEALED}; smime-type={kinds[der.parse(envelope).at(0).content]}"


def _file(tmp, name, content):
    path = tmp / name
    path.write_bytes(content)
    return path
