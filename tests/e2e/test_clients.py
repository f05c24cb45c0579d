"""Four unmodified client libraries put and get, on a protected queue and on one without protection.

Each signs in its own way: proton, rhea and go-amqp by PLAIN over TLS or by certificate,
go-amqp without any SASL where nobody asks who it is, Qpid JMS by SCRAM-SHA-256 in clear.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests/clients"
DRIVERS = {
    "proton": [sys.executable, CLIENTS / "proton/proton_driver.py"],
    "rhea": ["node", CLIENTS / "rhea/driver.mjs"],
    "go-amqp": [ROOT / ".cache/go-amqp-driver"],
    "jms": [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{CLIENTS}/jms/target/jms-driver-0.jar:{CLIENTS}/jms/target/dependency/*",
        "Driver",
    ],
}
NAMES = list(DRIVERS)
KINDS = ["text", "binary", "map"]
LARGE = 50 << 20
# In a ring: each client gets what the one before it has put.
NEXT = dict(zip(NAMES, NAMES[1:] + NAMES[:1]))


def sign_in(qm, client, user, way=None):
    """The options by which a client says who it is."""
    if user is None:
        return ["--url", qm.amqp]
    if way == "certificate":
        ring_file = qm.identities[user]
        return ["--url", qm.amqps, "--ca", qm.ca, "--cert", ring_file.certificate, "--key", ring_file.key]
    password = ["--user", user, "--password", qm.passwords[user]]
    if client == "jms":
        return ["--url", qm.amqp, *password]
    return ["--url", qm.amqps, "--ca", qm.ca, *password]


def drive(qm, client, command, queue, *options, user=None, way=None):
    """Runs a driver; what it printed, a dictionary a line."""
    line = [*DRIVERS[client], command, queue, *sign_in(qm, client, user, way), *options]
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180)
    printed = [json.loads(text) for text in done.stdout.decode().splitlines()]
    assert printed or done.returncode == 0, done.stderr.decode()
    return printed


def seen(message):
    """What has to be equal on both sides."""
    assert "error" not in message, message
    return {key: message[key] for key in ("kind", "sha256", "length", "properties")}


@pytest.fixture(scope="module")
def qm(managers, authority, tmp_path_factory):
    data = tmp_path_factory.mktemp("bulla") / "qm"
    (data / "tls").mkdir(parents=True, mode=0o700)
    data.chmod(0o700)
    (data / "tls/clients.pem").write_bytes(authority.pem)
    manager = managers(data=data)
    yield manager
    assert manager.stop() == 0


@pytest.fixture(scope="module")
def site(qm, people):
    qm.identities = people.identities
    qm.mqsc(
        f"""
        DEFINE QLOCAL(OPEN)
        DEFINE QLOCAL(SEALED) MAXMSGL(104857600)
        DEFINE QALIAS(SEALED.RAW) TARGET(SEALED)
        SET POLICY(SEALED) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn("orders")}') RECIP('{people.dn("billing")}')
        """
    )
    return qm


@pytest.mark.parametrize("getter", NAMES)
@pytest.mark.parametrize("putter", NAMES)
def test_what_one_client_puts_on_a_protected_queue_another_gets_equal(site, putter, getter):
    for kind in KINDS:
        put = drive(site, putter, "put", "SEALED", "--kind", kind, "--props", user="orders")
        got = drive(site, getter, "get", "SEALED", user="billing")
        assert [seen(message) for message in got] == [seen(message) for message in put]
        assert put[0]["properties"] == {
            "colour": "grün",
            "number": 42,
            "big": 1234567890123,
            "flag": True,
            "ratio": 2.5,
        }


@pytest.mark.parametrize("putter", NAMES)
def test_what_one_client_puts_on_an_unprotected_queue_another_gets_equal(site, putter):
    for kind in KINDS:
        put = drive(site, putter, "put", "OPEN", "--kind", kind, "--props", "--count", "3")
        got = drive(site, NEXT[putter], "get", "OPEN", "--count", "3")
        assert [seen(message) for message in got] == [seen(message) for message in put]
        assert len(got) == 3


@pytest.mark.parametrize("putter", NAMES)
def test_a_message_of_50_mebibytes_comes_back_equal(site, putter):
    put = drive(site, putter, "put", "SEALED", "--kind", "large", "--size", LARGE, "--props", user="orders")
    got = drive(site, NEXT[putter], "get", "SEALED", "--wait", "60", user="billing")
    assert [seen(message) for message in got] == [seen(message) for message in put]
    assert got[0]["length"] == LARGE


@pytest.mark.parametrize("client", ["proton", "rhea", "go-amqp"])
def test_a_client_that_shows_a_certificate_uses_the_ring_of_the_user_it_names(site, client):
    put = drive(site, client, "put", "SEALED", user="orders", way="certificate")
    got = drive(site, client, "get", "SEALED", user="billing", way="certificate")
    assert [seen(message) for message in got] == [seen(message) for message in put]


@pytest.mark.parametrize("client", ["proton", "rhea", "jms"])
def test_browsing_a_protected_queue_opens_and_takes_nothing(site, client):
    put = drive(site, "proton", "put", "SEALED", "--count", "2", "--props", user="orders")
    browsed = drive(site, client, "browse", "SEALED", "--count", "2", user="billing")
    assert [seen(message) for message in browsed] == [seen(message) for message in put]
    got = drive(site, "proton", "get", "SEALED", "--count", "2", user="billing")
    assert [seen(message) for message in got] == [seen(message) for message in put]


@pytest.mark.parametrize("client", NAMES)
def test_a_wrong_password_is_refused(site, client):
    wrong = dict(site.passwords, orders="wrong")
    right, site.passwords = site.passwords, wrong
    try:
        printed = drive(site, client, "put", "OPEN", user="orders")
    finally:
        site.passwords = right
    assert list(printed[-1]) == ["error"]


@pytest.mark.parametrize("client", NAMES)
def test_nobody_puts_on_a_protected_queue_without_a_ring(site, client):
    printed = drive(site, client, "put", "SEALED")
    assert printed[-1]["error"]["condition"] == "amqp:unauthorized-access"
    assert printed[-1]["error"]["description"].startswith("2063 MQRC_SECURITY_ERROR cause=")
    assert site.depth("SEALED") == 0


def test_the_alias_shows_only_sealed_bytes(site):
    drive(site, "proton", "put", "SEALED", "--kind", "text", user="orders")
    raw = drive(site, "rhea", "get", "SEALED.RAW")
    assert raw[0]["kind"] == "binary"
    assert site.depth("SEALED") == 0
