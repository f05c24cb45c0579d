"""Whoever issues tokens: keys and signatures by the `openssl` command line, so that tokens are tried against somebody else's work."""

import base64
import json
import os
import time

import der
from pki import KEYS, openssl

ISSUER = "https://issuer.example"
FILE = "jwks.json"
# How long an expired token is still taken (seconds).
LEEWAY = 60
KINDS = {"RS256": KEYS["rsa2048"], "PS256": KEYS["rsa2048"], "ES256": KEYS["p256"], "EdDSA": ["-algorithm", "ED25519"]}


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(fields):
    return encode(json.dumps(fields).encode())


class Issuer:
    """One key, by a name."""

    def __init__(self, folder, algorithm, key_id):
        self.algorithm, self.key_id = algorithm, key_id
        self.folder = folder
        self.key = folder / f"{key_id}.pem"
        openssl("genpkey", *KINDS[algorithm], "-out", self.key)

    def jwk(self):
        public = openssl("pkey", "-in", self.key, "-pubout", "-outform", "DER")
        if self.algorithm == "ES256":
            fields = {"kty": "EC", "crv": "P-256", "x": encode(public[-64:-32]), "y": encode(public[-32:])}
        elif self.algorithm == "EdDSA":
            fields = {"kty": "OKP", "crv": "Ed25519", "x": encode(public[-32:])}
        else:
            said = openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip()
            fields = {"kty": "RSA", "n": encode(bytes.fromhex(said.split("=")[1])), "e": "AQAB"}
        return {**fields, "kid": self.key_id, "use": "sig"}

    def token(self, header=None, **claims):
        """A token for `orders`, good for five minutes; a claim that is None is left out."""
        now = int(time.time())
        said = {"iss": ISSUER, "aud": "BULLA", "sub": "orders", "iat": now, "exp": now + 300, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        signed = f"{part(header or {'alg': self.algorithm, 'kid': self.key_id})}.{part(said)}"
        return f"{signed}.{encode(self.sign(signed.encode()))}"

    def sign(self, signed):
        if self.algorithm == "EdDSA":
            data = self.folder / "signed"
            data.write_bytes(signed)
            return openssl("pkeyutl", "-sign", "-inkey", self.key, "-rawin", "-in", data)
        options = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32"] if self.algorithm == "PS256" else []
        signature = openssl("dgst", "-sha256", "-sign", self.key, *options, stdin=signed)
        if self.algorithm != "ES256":
            return signature
        r, s = der.parse(signature).parts
        return b"".join(int.from_bytes(number.content, "big").to_bytes(32, "big") for number in (r, s))


def publish(manager, *issuers):
    """Puts the keys where the queue manager reads them, as one change."""
    aside = manager.data / "jwks.aside"
    aside.write_text(json.dumps({"keys": [issuer.jwk() for issuer in issuers]}))
    aside.chmod(0o644)
    os.replace(aside, manager.data / FILE)
