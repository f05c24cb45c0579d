"""Unmodified HTTP clients put and get over TLS: curl by the published examples, requests, fetch of Node, Java's own.
What they put on a protected queue opens with standard tools, and with AMQP."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import requests

import cms
from manager import DEADLINE
from people import People
from sites import INTEGRITY, PRIVACY, Site, clear
from test_http import path, port

DRIVERS = Path(__file__).parent.parent / "clients" / "http"
TEXT = "text/plain;charset=utf-8"


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("http-clients", name="BULLA", options=["--https", "127.0.0.1:0"])
    manager.mqsc("DEFINE QLOCAL(Q) MAXMSGL(4194304); DEFINE QLOCAL(REPLIES)")
    yield manager
    assert manager.stop() == 0


@pytest.fixture(scope="module", autouse=True)
def people(qm, authority):
    people = People(qm, authority)
    for name in ("orders", "billing"):
        people.add(name)
    return people


@pytest.fixture(scope="module")
def site(qm, people):
    site = Site(qm, people)
    yield site
    for client in site.clients.values():
        client.close()


def base(qm, queue="Q", version="v3"):
    return f"https://localhost:{port(qm, 'https')}" + path(queue, version).removesuffix("/message")


def driver(command, **environment):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def curl(qm, *options):
    """The status, the headers and the body of one request."""
    user = f"orders:{qm.passwords['orders']}"
    out = driver(["curl", "--silent", "--show-error", "--include", "--cacert", qm.ca, "-u", user, *options])
    head, body = out.split("\r\n\r\n", 1)
    status, *lines = head.split("\r\n")
    return int(status.split()[1]), {line.split(":")[0].lower(): line.split(":", 1)[1].strip() for line in lines}, body


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_curl_by_the_published_examples(qm, version):
    """Put with fields, list, show, get by correlation id, get where there is nothing."""
    url = base(qm, version=version)
    correlation = hashlib.sha256(version.encode()).hexdigest()[:48]
    csrf = ("-H", "ibm-mq-rest-csrf-token: value")
    fields = [
        "ibm-mq-md-persistence: persistent",
        "ibm-mq-md-expiry: 60000",
        "ibm-mq-md-replyTo: REPLIES",
        f"ibm-mq-md-correlationId: {correlation}",
        *(["ibm-mq-md-priority: 7", 'ibm-mq-usr: colour;"green";string'] if version == "v3" else []),
    ]
    headers = [part for field in fields for part in ("-H", field)]
    text = ("-H", f"Content-Type: {TEXT}", "--data", "Hello World!")
    status, put, _ = curl(qm, url + "/message", "-X", "POST", *csrf, *headers, *text)
    assert status == 201 and len(put["ibm-mq-md-messageid"]) == 48
    status, _, listed = curl(qm, url + "/messagelist")
    rows = json.loads(listed)["messages"]
    assert status == 200 and [row["messageId"] for row in rows] == [put["ibm-mq-md-messageid"]]
    status, shown, body = curl(qm, url + "/message")
    assert (status, body) == (200, "Hello World!")
    status, got, body = curl(qm, url + f"/message?correlationId={correlation}&wait=5000", "-X", "DELETE", *csrf)
    assert (status, body) == (200, "Hello World!")
    assert got["ibm-mq-md-messageid"] == put["ibm-mq-md-messageid"] == shown["ibm-mq-md-messageid"]
    assert got["ibm-mq-md-correlationid"] == correlation and got["ibm-mq-md-persistence"] == "persistent"
    assert got["ibm-mq-md-replyto"].startswith("REPLIES") and 0 < int(got["ibm-mq-md-expiry"]) <= 60000
    if version == "v3":
        assert got["ibm-mq-md-priority"] == "7" and got["ibm-mq-usr"] == 'colour;"green";string'
    assert curl(qm, url + "/message", "-X", "DELETE", *csrf)[0] == 204


def session_of(qm, user):
    session = requests.Session()
    # Authorities and proxies that the environment names are not this test's.
    session.trust_env = False
    session.auth, session.verify = (user, qm.passwords[user]), str(qm.ca)
    session.headers["ibm-mq-rest-csrf-token"] = ""
    return session


def test_requests(qm):
    with session_of(qm, "orders") as session:
        url = base(qm) + "/message"
        for body in (b"text", bytes(range(256)) * 4096):
            put = session.post(url, data=body, headers={"Content-Type": "application/octet-stream"}, timeout=DEADLINE)
            assert put.status_code == 201
            got = session.delete(url, params={"wait": 5000}, timeout=DEADLINE)
            assert (got.status_code, got.content) == (200, body)
            assert got.headers["ibm-mq-md-messageId"] == put.headers["ibm-mq-md-messageId"]
        pieces = (piece for piece in (b"in ", b"pieces"))
        assert session.post(url, data=pieces, headers={"Content-Type": TEXT}, timeout=DEADLINE).status_code == 201
        assert session.delete(url, timeout=DEADLINE).text == "in pieces"
        wrong = session.delete(base(qm, "NO.SUCH") + "/message", timeout=DEADLINE)
        assert (wrong.status_code, wrong.json()["error"]["reason"]) == (404, 2085)


def test_fetch_of_node(qm):
    out = driver(
        ["node", DRIVERS / "driver.mjs", base(qm), "orders", qm.passwords["orders"]], NODE_EXTRA_CA_CERTS=str(qm.ca)
    )
    seen = json.loads(out)
    text = "zwei Tonnen Gerste: ä"
    assert seen["put"] == 201 and seen["shown"] == [200, text, seen["id"]] and seen["got"] == [200, text]
    assert seen["fields"] == ["order%207", "7", "crate;12;integer"]
    assert seen["listed"] == [200, 1] and seen["large"] == [200, True, "application/octet-stream"]
    assert seen["none"] == 204 and seen["forged"] == [403, "csrf-token"]


def test_the_client_of_java(qm):
    out = driver(["java", DRIVERS / "Driver.java", qm.ca, base(qm), "orders", qm.passwords["orders"]])
    assert out.split("\n")[:-1] == [
        "put 201",
        "shown 200 true true",
        "got 200 true",
        "large 200 true",
        "none 204 HTTP_1_1",
    ]


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY])
def test_what_is_put_over_https_opens_with_openssl_and_with_amqp(qm, people, site, policy, tmp_path):
    """And what AMQP puts is got over HTTPS, by the user whom it is sealed for."""
    queue = site.queue(policy)
    payload = b"two tons of barley\n"

    with session_of(qm, "orders") as orders, session_of(qm, "billing") as billing:
        url = base(qm, queue) + "/message"
        put = orders.post(url, data=payload, headers={"Content-Type": TEXT}, timeout=DEADLINE)
        assert put.status_code == 201, put.text
        [raw] = site.raw(queue)
        signed = bytes(raw.body)
        if policy is PRIVACY:
            signed = cms.decrypt(signed, people.identities["billing"], tmp_path)
        assert cms.verify(signed, people.authority, tmp_path) == payload
        assert bytes(site.billing.get(queue).body) == payload
        site.orders.put(queue, clear(payload))
        got = billing.delete(url, params={"wait": 5000}, timeout=DEADLINE)
        assert (got.status_code, got.content) == (200, payload)
