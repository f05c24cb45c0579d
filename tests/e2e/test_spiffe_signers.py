"""Messages that are signed by X.509-SVIDs, from the agent of a SPIFFE trust domain: a stand-in, `spiffe_agent.py`. A policy
names signers by SPIFFE ID, and the trust domain's authorities, old and new, say who is who."""

import json
import time

import pytest
from cryptography import x509

import spiffe_agent
from manager import ERROR_QUEUE, shown_rows, wait_until
from pki import OPENSSL_4, openssl_4
from sites import PRIVACY, clear, peopled, refused_put

ID = f"spiffe://{spiffe_agent.DOMAIN}/orders"
SIGNED_AND_SEALED = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{ID}') RECIP('{{billing}}')"
SIGNED = f"SIGNALG(SHA256) SIGNER('{ID}')"


@pytest.fixture
def agents(tmp_path_factory):
    """That of the trust domain, and one of another domain that calls itself the same."""
    # The path of a socket has 107 bytes at most.
    agents = [spiffe_agent.Agent(tmp_path_factory.mktemp("s")) for _ in range(2)]
    yield agents
    for agent in agents:
        agent.stop()


@pytest.fixture
def site(managers, authority, agents):
    qm = managers("signers", name="SIGNERS")
    for site in peopled(qm, authority, "orders", "billing", "mallory"):
        yield site
        (qm.data / "enrolment.toml").unlink(missing_ok=True)
        assert qm.process.poll() is None, "".join(qm.log[-30:])


def configure(site, agents, *parts):
    aside = site.qm.data / "enrolment.new"
    names = "spire", "false"
    tables = [f'[authorities.{name}]\nspiffe = "unix:{agent.socket}"\n' for name, agent in zip(names, agents, strict=True)]
    aside.write_text("".join([*tables, *parts]))
    aside.chmod(0o600)
    aside.rename(site.qm.data / "enrolment.toml")


def signer(user, authority="spire", share=()):
    return f'[signers.{user}]\nauthority = "{authority}"\nshare = {json.dumps(list(share))}\n'


def row(site, user="orders"):
    done = site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", f"DISPLAY ENROL('{user}')")
    rows = shown_rows(done.stdout)
    return rows[0] if rows else {"STATE": None}


def valid(site, user="orders"):
    wait_until(lambda: row(site, user)["STATE"] == "VALID", f"it came: {row(site, user)}", 20)


def svid(site, user="orders"):
    return x509.load_pem_x509_certificate((site.qm.data / f"rings/{user}/own/svid.pem").read_bytes())


def believed(site, user):
    path = site.qm.data / f"rings/{user}/trust/spiffe.{spiffe_agent.DOMAIN}.pem"
    return x509.load_pem_x509_certificates(path.read_bytes())


def buried(site):
    wait_until(lambda: site.nobody.get_all(ERROR_QUEUE, browse=True), "it is in the error queue")
    [message] = site.nobody.get_all(ERROR_QUEUE)
    return str(message.annotations) + str(message.properties)


def test_messages_are_signed_by_a_process_and_open_when_its_certificate_and_authority_are_gone(site, agents):
    agent, _ = agents
    agent.found(30)
    agent.svids = [agent.svid("orders", 25)]
    configure(site, agents, signer("orders", share=["billing"]))
    valid(site)
    shown = row(site)
    assert (shown["PLACE"], shown["METHOD"], shown["SUBJECT"]) == ("SIGNER", "SPIFFE", ID), shown
    key = site.qm.data / "rings/orders/own/svid.pem"
    assert key.stat().st_mode & 0o7777 == 0o600
    first, ca = svid(site), agent.ca
    assert believed(site, "orders") == believed(site, "billing") == [ca]
    site.people.seen()
    queues = [site.queue(policy) for policy in (SIGNED_AND_SEALED, SIGNED)]
    for queue in queues:
        site.orders.put(queue, clear(b"of the first hour"))
    raw = site.qm.data / "signed.der"
    raw.write_bytes(bytes(site.raw(queues[1])[0].body))
    assert ID in site.qm.run("seal", "inspect", raw).stdout.decode()
    # The trust domain's next authority, beside the one before for as long as that lasts.
    agent.found()
    next_one = agent.svid("orders")
    next_one[3] += ca.public_bytes(spiffe_agent.DER)
    agent.svids = [next_one]
    wait_until(lambda: svid(site) != first, "the agent's next one is there", 20)
    assert believed(site, "billing") == [agent.ca, ca]
    site.people.seen()
    for queue in queues:
        site.orders.put(queue, clear(b"of the second"))
    wait_until(lambda: ca.not_valid_after_utc.timestamp() < time.time(), "the first and its authority have ended", 60)
    second = svid(site)
    agent.svids = [agent.svid("orders")]
    wait_until(lambda: svid(site) != second, "the agent has forgotten that authority", 30)
    assert believed(site, "billing") == [agent.ca, ca]
    for queue in queues:
        got = [bytes(site.billing.get(queue).body) for _ in range(2)]
        assert got == [b"of the first hour", b"of the second"]
    told = site.qm.run("audit", "show", "--json", "--kind", "certificate", "--data", site.qm.data).stdout.splitlines()
    what = json.loads(told[-1])["what"]
    assert (what["user"], what["subject"], what["authority"]) == ("orders", ID, "spire"), what
    # The ring's own key is as it was: it opens, and signs where its name is listed.
    queue = site.queue(PRIVACY.replace("'{billing}'", "'{orders}'"))
    site.orders.put(queue, clear(b"to myself"))
    assert bytes(site.orders.get(queue).body) == b"to myself"
    assert "PRIVATE KEY" not in "".join(site.qm.log)


QUANTUM = f"""basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = URI:{ID}
"""


def quantum_svid(folder):
    """An SVID with an ML-DSA key, of an authority with another one."""
    names = [folder / name for name in ("ca.key", "ca.pem", "svid.key", "svid.pem", "extensions")]
    ca_key, ca, key, certificate, extensions = names
    extensions.write_text(QUANTUM)
    of_ca = ("-subj", "/C=US/O=SPIRE", "-days", "1", "-addext", "basicConstraints=critical,CA:TRUE")
    openssl_4("req", "-x509", "-newkey", "ML-DSA-87", "-nodes", "-keyout", ca_key, "-out", ca, *of_ca)
    openssl_4("genpkey", "-algorithm", "ML-DSA-65", "-out", key)
    openssl_4("pkey", "-in", key, "-pubout", "-out", folder / "public.pem")
    subject = ("-force_pubkey", folder / "public.pem", "-subj", "/C=US/O=SPIRE", "-days", "1")
    openssl_4("x509", "-new", *subject, "-CA", ca, "-CAkey", ca_key, "-extfile", extensions, "-out", certificate)
    der = ("-outform", "DER")
    pkcs8 = openssl_4("pkcs8", "-topk8", "-nocrypt", "-in", key, *der)
    return [ID.encode(), openssl_4("x509", "-in", certificate, *der), pkcs8, openssl_4("x509", "-in", ca, *der)]


@pytest.mark.skipif(not OPENSSL_4.exists(), reason="there is no openssl program of this build: make clients")
def test_a_process_with_an_ml_dsa_key_signs_where_new_keys_are_required(site, agents, tmp_path):
    agents[0].svids = [quantum_svid(tmp_path)]
    configure(site, agents, signer("orders", share=["billing"]))
    valid(site)
    site.people.seen()
    queue = site.queue(f"SIGNALG(SHA384) SIGNER('{ID}') PQC(REQUIRED)")
    site.orders.put(queue, clear(b"by ML-DSA"))
    raw = tmp_path / "signed.der"
    raw.write_bytes(bytes(site.raw(queue)[0].body))
    [signed] = json.loads(site.qm.run("seal", "inspect", raw, "--json").stdout)["signers"]
    assert signed["algorithm"] == "ML-DSA-65 with SHA384", signed
    assert bytes(site.billing.get(queue).body) == b"by ML-DSA"


def test_who_is_not_that_process_does_not_pass(site, agents):
    agent, false = agents
    agent.svids = [agent.svid("orders")]
    false.svids = [false.svid("orders")]
    configure(site, agents, signer("orders", share=["billing"]), signer("mallory", "false"))
    for user in ("orders", "mallory"):
        valid(site, user)
    site.people.seen()
    assert agent.ca != false.ca and svid(site, "mallory").issuer == svid(site).issuer
    queue = site.queue(SIGNED)
    done = site.qm.run("doctor", queue, "--user", "orders", "--data", site.qm.data, "--json", code=None)
    found = json.loads(done.stdout)["found"]
    found = [one for one in found if one["check"] in ("SIGNER", "PROBE") and one["condition"] != "WELL"]
    assert {(one["about"], one["cause"]) for one in found} == {
        ("orders → mallory", "untrusted"), ("mallory → orders", "untrusted"),
    }, found  # fmt: skip
    checked = site.qm.run("policy", "check", queue, "--data", site.qm.data, code=None).stdout.decode()
    assert ID in checked and "unknown-dn" not in checked, checked
    # Its ring says the same name and believes its own authority, and so it is sealed; the reader does not.
    site.mallory.put(queue, clear(b"forged"))
    assert row(site, "mallory")["SUBJECT"] == ID
    assert site.billing.get_all(queue) == []
    assert "untrusted" in buried(site)
    site.orders.put(queue, clear(b"good"))
    assert bytes(site.billing.get(queue).body) == b"good"
    # Another process of the same trust domain.
    agent.svids = [agent.svid("else")]
    wait_until(lambda: row(site)["SUBJECT"].endswith("/else"), f"it is another one: {row(site)}", 20)
    site.people.seen()
    other = site.queue(SIGNED.replace("/orders", "/else"))
    site.orders.put(other, clear(b"as another"))
    assert bytes(site.billing.get(other).body) == b"as another"
    # By the subject that all of them have nobody is meant.
    by_subject = site.queue("SIGNALG(SHA256) SIGNER('C=US,O=SPIRE')")
    site.orders.put(by_subject, clear(b"by its subject"))
    assert site.billing.get_all(by_subject) == [] and "signer-not-authorised" in buried(site)


def test_a_process_is_no_recipient_and_a_ring_s_lasting_key_comes_from_elsewhere(site, agents):
    agent, _ = agents
    queue = site.queue()
    said = site.qm.mqsc(f"SET POLICY({queue}) SIGNALG(SHA256) ENCALG(AES256) RECIP('{ID}')", code=2)
    assert "a certificate of an hour can't be a recipient of stored messages" in said, said
    for name, why in [("spiffe://a", "not the SPIFFE ID of a process"), ("spiffe://A/b", "not the SPIFFE ID of a process")]:
        said = site.qm.mqsc(f"SET POLICY({queue}) SIGNALG(SHA256) SIGNER('{name}')", code=2)
        assert why in said, said
    agent.svids = [agent.svid("orders")]
    configure(site, agents, '[rings.orders]\nauthority = "spire"\n')
    done = site.qm.run("key", "enrol", "orders", "--data", site.qm.data, code=2)
    assert b"signers in the place of rings" in done.stderr, done.stderr
    # One with a key for signatures alone, whose user is named by the subject that it has.
    configure(site, agents, signer("robot"))
    site.qm.add_user("robot")
    valid(site, "robot")
    site.people.seen()
    site.set_policy(queue, "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{orders}') RECIP('C=US,O=SPIRE')")
    assert refused_put(site.orders, queue).cause == "unknown-dn"
    # A policy with such a name is there again after a restart, and in what is exported.
    site.set_policy(queue, SIGNED)
    site.clients.pop("orders").close()
    assert site.qm.stop() == 0
    site.qm.start()
    assert ID in site.qm.mqsc(f"DISPLAY POLICY({queue}) ALL")
    assert f"SIGNER('{ID}')" in (site.qm.data / "objects.mqsc").read_text()


def test_the_command_takes_what_the_agent_has_and_refuses_what_does_not_sign(site, agents):
    agent, _ = agents
    agent.svids = [agent.svid("orders", -1)]
    configure(site, agents, signer("orders"))
    enrol = lambda code: site.qm.run("key", "enrol", "orders", "--data", site.qm.data, code=code)  # noqa: E731
    assert b"expired" in enrol(4).stderr
    agent.svids = [agent.svid("orders", also=[f"spiffe://{spiffe_agent.DOMAIN}/else"])]
    assert b"it is not for" in enrol(4).stderr
    assert not (site.qm.data / "rings/orders/own/svid.pem").exists()
    agent.svids = [agent.svid("orders")]
    assert f"orders signs as {ID} until 20".encode() in enrol(0).stdout
    before = svid(site)
    enrol(0)
    assert svid(site) == before
    found = json.loads(site.qm.run("doctor", "--data", site.qm.data, "--json", code=None).stdout)["found"]
    about = [one for one in found if one["about"] == "rings/orders/own/svid.pem"]
    assert [one["condition"] for one in about] == ["WELL"], about
    assert not [one for one in found if ID in one["details"] and one["condition"] != "WELL"], found
