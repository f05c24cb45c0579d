"""The opener of `docs/formats/sealed-message.md` opens what a queue manager seals, and the page's own examples."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bouncycastle
import opener
from pki import Ring
from test_openssl import PAYLOAD, message

KEYS = ("rsa2048", "p256", "p521")
QUALITIES = {
    "integrity": "SIGNALG(SHA256) SIGNER('{signer}')",
    "integrity by SHA-512": "SIGNALG(SHA512) SIGNER('{signer}')",
    "privacy": "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{signer}') RECIP('{recipient}')",
    "privacy by CBC": "SIGNALG(SHA384) ENCALG(AES128CBC) SIGNER('{signer}') RECIP('{recipient}')",
    "confidentiality": "ENCALG(AES128) RECIP('{recipient}')",
}
TEST_DATA = Path(__file__).parents[2] / "testdata/seal"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("opener") / "open.py"
    path.write_text(opener.source())
    return path


@pytest.fixture(scope="module")
def site(qm, authority):
    identities = {key: authority.issue(f"both-{key}", key) for key in KEYS}
    for identity in identities.values():
        Ring(qm.data, identity.name).own(identity).trust(authority).people(*identities.values())
        qm.add_user(identity.name)
    qm.mqsc("DEFINE QLOCAL(OPENED); DEFINE QALIAS(OPENED.RAW) TARGET(OPENED)")
    clients = {key: qm.connect(identity.name) for key, identity in identities.items()}
    anonymous = qm.connect()
    yield qm, authority, identities, clients, anonymous
    for client in (*clients.values(), anonymous):
        client.close()


def run(program, der, tmp_path, authority, certificate, key):
    path = tmp_path / "message.der"
    path.write_bytes(der)
    done = subprocess.run(
        [sys.executable, program, path, authority, certificate, key],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("key", KEYS)
def test_it_opens_what_is_sealed_and_nothing_that_was_changed(site, program, tmp_path, quality, key):
    qm, authority, identities, clients, anonymous = site
    identity, other = identities[key], identities["p256" if key == "rsa2048" else "rsa2048"]
    qm.mqsc(f"SET POLICY(OPENED) {QUALITIES[quality].format(signer=identity.dn, recipient=identity.dn)}")
    clients[key].put("OPENED", message(PAYLOAD))
    der = bytes(anonymous.get("OPENED.RAW").body)
    files = (authority.certificate, identity.certificate, identity.key)
    code, payload, said = run(program, der, tmp_path, *files)
    assert (code, payload) == (0, PAYLOAD), said
    assert f"{quality.split()[0]} bound to OPENED@" in said
    changed = bytearray(der)
    changed[-40 if quality.startswith("integrity") else -20] ^= 1
    code, payload, said = run(program, bytes(changed), tmp_path, *files)
    assert (code, payload) != (0, PAYLOAD) and payload == b"", said
    if not quality.startswith("integrity"):
        code, payload, said = run(program, der, tmp_path, authority.certificate, other.certificate, other.key)
        assert code == 1 and "not a recipient" in said


def test_bouncycastle_opens_what_is_sealed(site, tmp_path):
    qm, authority, identities, clients, anonymous = site
    tasks, payloads = [], {}
    for number, (key, quality) in enumerate(itertools.product(KEYS, QUALITIES)):
        identity = identities[key]
        qm.mqsc(f"SET POLICY(OPENED) {QUALITIES[quality].format(signer=identity.dn, recipient=identity.dn)}")
        clients[key].put("OPENED", message(PAYLOAD))
        sealed, opened = tmp_path / f"{number}.der", tmp_path / f"{number}.payload"
        sealed.write_bytes(bytes(anonymous.get("OPENED.RAW").body))
        tasks.append(("open", sealed, authority.certificate, identity.certificate, identity.key, opened))
        payloads[key, quality] = opened
    said = bouncycastle.run(tasks)
    assert [which for which, opened in payloads.items() if not is_payload(opened)] == [], said


def is_payload(path):
    return path.exists() and path.read_bytes() == PAYLOAD


@pytest.mark.parametrize("former", [False, True], ids=["page", "former profile"])
@pytest.mark.parametrize("name", ["integrity", "confidentiality", "privacy"])
def test_it_opens_the_examples(program, tmp_path, name, former):
    if former:
        data, digits = TEST_DATA / "former", (TEST_DATA / f"former/{name}.hex").read_text()
    else:
        data = TEST_DATA
        [digits] = re.findall(rf"### Example: {name}\n.*?```hex\n(.*?)```", opener.PAGE.read_text(), re.DOTALL)
    billing = data / "billing/own/billing.pem"
    code, payload, said = run(program, bytes.fromhex(digits), tmp_path, data / "billing/trust/ca.pem", billing, billing)
    assert (code, payload) == (0, b"seventeen cows, two of them red"), said
    assert f"{name} bound to ORDERS@QM1" in said
