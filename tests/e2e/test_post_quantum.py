"""Keys that withstand a quantum computer: ML-DSA signs, ML-KEM keys are recipients, and PQC says who may, or must, have
them; on the way there with messages on queues, in TLS, and back."""

import json
import re

import pytest

from channels import TLS, Route
from manager import label, shown_rows, wait_until
from modern import READS, Modern, inspected
from sites import Site, clear, payloads, refused_get, refused_put
from test_key_rotation import key
from test_reseal import reseal

MANAGER = "MODERN"
SIGNERS = "SIGNER('{orders}', '{MODERN}')"
PRIVACY = f"SIGNALG(SHA512) ENCALG(AES256) {SIGNERS} RECIP('{{billing}}')"
QUALITIES = {
    "integrity": f"SIGNALG(SHA512) {SIGNERS}",
    "privacy": PRIVACY,
    "privacy-cbc": f"SIGNALG(SHA512) ENCALG(AES256CBC) {SIGNERS} RECIP('{{billing}}')",
    "confidentiality": "ENCALG(AES256) RECIP('{billing}') KEYREUSE(10)",
    "batch": f"{PRIVACY} SIGNBATCH(64)",
}


@pytest.fixture(scope="module")
def site(managers):
    qm = managers(name=MANAGER)
    site = Site(qm, Modern(qm, "orders", "billing", "auditor", MANAGER))
    for name in ("orders", "billing", MANAGER):
        site.people.modernise(name)
    yield site
    for client in site.clients.values():
        client.close()


def algorithms(site, tmp_path, message):
    shown = inspected(site, tmp_path, message)
    return [one["algorithm"] for one in shown["signers"]], [one["algorithm"] for one in shown["recipients"]]


@pytest.mark.parametrize("quality", QUALITIES)
def test_every_quality_is_sealed_and_opened_with_them_alone(site, tmp_path, quality):
    queue = site.queue(f"{QUALITIES[quality]} PQC(REQUIRED)")
    for number in range(3):
        site.orders.put(queue, clear(b"%d" % number))
    signers, recipients = algorithms(site, tmp_path, site.raw(queue)[0])
    if quality == "integrity":
        assert signers == ["ML-DSA-65 with SHA512"]
    else:
        assert recipients == [READS]
    assert payloads(site.billing.get_all(queue)) == [b"0", b"1", b"2"]


def test_a_user_comes_from_old_keys_to_new_ones_with_messages_on_the_queue(site, tmp_path):
    """NONE, ALLOWED, REQUIRED: nothing is lost, and nothing old opens at the end but what was sealed anew."""
    queue = site.queue(f"{PRIVACY} PQC(NONE)")
    site.orders.put(queue, clear(b"old"))
    assert algorithms(site, tmp_path, site.raw(queue)[0])[1] == ["ephemeral ECDH with SHA256, AES-256 key wrap"]
    site.set_policy(queue, f"{PRIVACY} PQC(ALLOWED)")
    site.orders.put(queue, clear(b"new"))
    assert algorithms(site, tmp_path, site.raw(queue)[1])[1] == [READS]
    assert payloads(site.billing.get_all(queue, browse=True)) == [b"old", b"new"]
    # What is old is sealed anew before the old way ends.
    said = reseal(site, queue, "--where", "all")
    assert "2 messages sealed anew" in said
    site.set_policy(queue, f"{PRIVACY} PQC(REQUIRED)")
    for message in site.raw(queue):
        assert algorithms(site, tmp_path, message)[1] == [READS]
    assert payloads(site.billing.get_all(queue)) == [b"old", b"new"]
    # And back: a reader who knows nothing of them is served by NONE again.
    site.orders.put(queue, clear(b"still new"))
    site.set_policy(queue, f"{PRIVACY} PQC(ALLOWED)")
    site.orders.put(queue, clear(b"new too"))
    assert payloads(site.billing.get_all(queue)) == [b"still new", b"new too"]


def test_what_was_sealed_the_old_way_does_not_open_under_required(site):
    queue = site.queue(f"{PRIVACY} PQC(NONE)")
    site.orders.put(queue, clear(b"old"))
    site.set_policy(queue, f"{PRIVACY} PQC(REQUIRED)")
    refused = refused_get(site.billing, queue)
    assert (refused.reason, refused.cause) == (2063, "weaker-than-policy")
    [error] = [label(error) for error in site.qm.clear_error_queue()]
    assert error["queue"] == queue and error["details"].endswith("RSA or EC keys, and PQC(REQUIRED)")


def test_a_list_of_recipients_of_both_kinds_says_what_it_amounts_to(site, tmp_path):
    mixed = f"SIGNALG(SHA512) ENCALG(AES256) {SIGNERS} RECIP('{{billing}}', '{{auditor}}')"
    queue = site.queue(f"{mixed} PQC(ALLOWED)")
    site.orders.put(queue, clear(b"both"))
    assert len(algorithms(site, tmp_path, site.raw(queue)[0])[1]) == 2
    assert payloads(site.auditor.get_all(queue, browse=True)) == payloads(site.billing.get_all(queue)) == [b"both"]
    assert "QUALITY(PRIVACY AS WEAKEST RECIPIENT)" in site.qm.mqsc(f"DISPLAY POLICY({queue})")
    wait_for_weakest(site, queue, "p256 of CN=auditor,O=Demo")
    said = site.qm.run("policy", "check", queue, "--data", site.qm.data, code=None).stdout.decode()
    told = "1 of 2 recipients by ML-KEM; each opens a message alone, so it is as strong as p256 of CN=auditor,O=Demo"
    assert f"PQC(ALLOWED): {told}" in said, said
    site.set_policy(queue, f"{mixed} PQC(REQUIRED)")
    refused = refused_put(site.orders, queue)
    assert (refused.reason, refused.cause) == (2063, "recipient-key")


def test_with_a_cbc_cipher_who_has_both_keys_signs_by_the_other_one_under_allowed(site, tmp_path):
    """All signers under CBC have keys of one type, and the reader's ring has both kinds of this signer's."""
    attributes = "SIGNALG(SHA512) ENCALG(AES256CBC) SIGNER('{orders}') RECIP('{billing}')"
    queue = site.queue(f"{attributes} PQC(NONE)")
    site.orders.put(queue, clear(b"old"))
    site.set_policy(queue, f"{attributes} PQC(ALLOWED)")
    site.orders.put(queue, clear(b"new"))
    [_, new] = site.raw(queue)
    assert algorithms(site, tmp_path, new)[1] == [READS]
    assert payloads(site.billing.get_all(queue)) == [b"old", b"new"]
    # A signer with an ML-DSA key alone is of another type: the message stays, and its reader hears why.
    mixed = attributes.replace("SIGNER('{orders}')", "SIGNER('{orders}', 'CN=quantum,O=Demo')")
    of_quantum = ("--ring", "quantum", "--dn", "CN=quantum,O=Demo", "--key", "ml-dsa-65", "--signer", "demo")
    site.people.cert("create", *of_quantum, "--share", "orders", "--share", "billing")
    site.set_policy(queue, f"{mixed} PQC(ALLOWED)")
    site.orders.put(queue, clear(b"stays"))
    # A ring that was just asked for is read again within a second.
    says = lambda: str(refused_get(site.billing, queue))  # noqa: E731
    wait_until(lambda: "cause=policy" in says() and "signers with keys of one type and size" in says(), "it is refused")
    assert "or use AES128 or AES256" in says()
    site.set_policy(queue, f"{attributes} PQC(ALLOWED)")
    assert payloads(site.billing.get_all(queue)) == [b"stays"]


def wait_for_weakest(site, queue, key):
    def shown():
        command = f"DISPLAY POLICY({queue}) WEAKEST"
        return shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)[0]["WEAKEST"]

    wait_until(lambda: shown() == key, f"DISPLAY POLICY names {key!r}")


def test_what_the_weakest_recipient_is_follows_keys_and_policies(site):
    alone = site.queue("ENCALG(AES256) PQC(ALLOWED) RECIP('{billing}')")
    wait_for_weakest(site, alone, "ml-kem-768 of CN=billing,O=Demo")
    # ML-KEM does not go with AES-128, so the other key is taken.
    site.set_policy(alone, "ENCALG(AES128) PQC(ALLOWED) RECIP('{billing}')")
    wait_for_weakest(site, alone, "p256 of CN=billing,O=Demo")
    for without in ("PQC(NONE)", "PQC(REQUIRED)"):
        site.set_policy(alone, f"ENCALG(AES256) {without} RECIP('{{billing}}')")
        wait_for_weakest(site, alone, "")


def test_who_has_none_neither_puts_nor_gets_and_hears_why(site):
    queue = site.queue("SIGNALG(SHA512) PQC(REQUIRED)")
    refused = refused_put(site.auditor, queue)
    assert (refused.reason, refused.cause) == (2063, "signer-key")
    assert "it takes an ML-DSA key" in str(refused)
    site.set_policy(queue, "SIGNALG(SHA256) PQC(ALLOWED) SIGNER('{orders}')")
    # P-256 with SHA-256 is allowed, and taken where ML-DSA-65 does not fit.
    site.orders.put(queue, clear(b"by P-256"))
    assert payloads(site.billing.get_all(queue)) == [b"by P-256"]


def test_keys_of_both_kinds_are_changed_under_traffic(site, tmp_path):
    """`bulla key rotate` makes a key of the same kind, and what was sealed for the old one opens."""
    queue = site.queue(f"{PRIVACY} PQC(REQUIRED)")
    site.orders.put(queue, clear(b"before"))
    assert "--serial says which of them" in key(site, "rotate", "billing", code=4)
    # A kind that does other work, or that other policies want, takes no key's place.
    for kind, other in (("ML-KEM", "ml-dsa-65"), ("ML-DSA", "p256"), ("NISTECC", "ml-kem-768")):
        said = key(site, "rotate", "billing", "--serial", serial(site, "billing", kind), "--key", other, code=None)
        assert "does not take the place of" in said, said
    former = serial(site, "billing", "ML-KEM")
    key(site, "rotate", "billing", "--serial", former, "--key", "ml-kem-1024", "--overlap", "0s")
    wait_until(lambda: sealed_for(site, queue, tmp_path) == "ML-KEM-1024", "the new key is written to")
    got = payloads(site.billing.get_all(queue))
    assert got[0] == b"before" and set(got[1:]) == {b"after"}
    # Of the same kind, where nothing is said.
    former = serial(site, "orders", "ML-DSA")
    key(site, "rotate", "orders", "--serial", former, "--overlap", "0s")
    wait_until(lambda: serial(site, "orders", "ML-DSA") != former, "the old key is out of use")
    site.orders.put(queue, clear(b"by the new key"))
    assert payloads(site.billing.get_all(queue)) == [b"by the new key"]


def serial(site, user, kind):
    """The serial number of the user's newest key of that kind."""
    rows = json.loads(site.people.cert("list", "--ring", user, "--json"))
    mine = [row for row in rows if row["private_key"] and row["key_type"] == kind]
    return max(mine, key=lambda row: row["from"])["serial"]


def sealed_for(site, queue, tmp_path):
    site.orders.put(queue, clear(b"after"))
    return algorithms(site, tmp_path, site.raw(queue)[-1])[1][0].split()[0]


@pytest.fixture(scope="module")
def partners(managers, tmp_path_factory):
    """Two queue managers whose certificates for TLS have ML-DSA keys, from an authority with one."""
    one, two = managers(name="PQ1"), managers(name="PQ2")
    folder = tmp_path_factory.mktemp("tls")
    one.run("cert", "create", "--ca", "modern", "--dn", "CN=Modern,O=Demo", "--key", "ml-dsa-87", "--data", one.data)
    for manager in (one, two):
        ring = folder / manager.name
        one.run(
            "cert", "create", "--ring", ring, "--dn", f"CN={manager.name},O=Demo", "--key", "ml-dsa-65",
            "--usage", "handshake", "--signer", "modern", "--san", "ip:127.0.0.1", "--data", one.data,
        )  # fmt: skip
        [shown] = (ring / "own").glob("*.pem")
        text = shown.read_text()
        certificates = "".join(re.findall(r"-----BEGIN CERTIFICATE.*?-----END CERTIFICATE-----\n", text, re.DOTALL))
        private = re.search(r"-----BEGIN PRIVATE KEY.*?-----END PRIVATE KEY-----\n", text, re.DOTALL)[0]
        (manager.data / "tls/modern.pem").write_text(certificates)
        (manager.data / "tls/modern.key").write_text(private)
        for authorities in ("clients", "partners"):
            trusted = (one.data / "authorities/modern/ca.pem").read_bytes()
            (manager.data / f"tls/{authorities}.pem").write_bytes(trusted)
    return one, two


def test_a_channel_has_ml_dsa_certificates_at_both_ends_and_agrees_by_ml_kem(partners):
    attributes = f"{TLS} CERTLABL('modern') SSLGROUPS('X25519MLKEM768')"
    route = Route(*partners, sender=attributes, receiver=f"{attributes} SSLCAUTH(REQUIRED) SSLPEER('CN=PQ1,O=Demo')")
    route.put(range(20))
    route.wait_for_arrival(20)
    assert route.status()["SSLGROUP"] == "X25519MLKEM768"
    assert route.status()["SSLPEER"] == "CN=PQ2,O=Demo" and route.far_status()["SSLPEER"] == "CN=PQ1,O=Demo"
    route.stop()


def doctor(site, queue, user):
    done = site.qm.run("doctor", queue, "--user", user, "--data", site.qm.data, code=None)
    return done.stdout.decode() + done.stderr.decode()


def test_the_doctor_names_the_key_that_is_lacking(site):
    queue = site.queue(f"{PRIVACY} PQC(REQUIRED)")
    site.set_policy(queue, "SIGNALG(SHA512) ENCALG(AES256) SIGNER('{auditor}') RECIP('{auditor}') PQC(REQUIRED)")
    said = doctor(site, queue, "auditor")
    assert re.search(r"bulla cert create --ring '?auditor'? .*--key ml-kem-768", said), said
    site.set_policy(queue, "SIGNALG(SHA512) SIGNER('{auditor}') PQC(REQUIRED)")
    said = doctor(site, queue, "auditor")
    assert re.search(r"bulla cert create --ring '?auditor'? .*--key ml-dsa-65", said), said
