"""`bulla report algorithms`: who still uses what, and what of it is due by when. Asking opens and changes nothing."""

import json
import os
import re
import stat

import pytest
from proton import Message, symbol

from manager import run
from pki import Identity, Ring, openssl
from sites import clear, foreign

MANY = 10_000
RSA, MIXED, QUANTUM, SIGNED, CLEAR = "RSA", "MIXED", "QUANTUM", "SIGNED", "CLEAR"
CNSA, DEPRECATED, DISALLOWED = "2031-12-31", "2030-12-31", "2035-12-31"
LOUD = "\x1b]0;owned\x07\x1b[2J"
CHANNELS = """
DEFINE CHANNEL(CLEAR.CHL) CHLTYPE(RCVR)
DEFINE CHANNEL(HYBRID.CHL) CHLTYPE(RCVR) SSLCIPH(TLS_AES_256_GCM_SHA384) SSLGROUPS('SecP384r1MLKEM1024')
DEFINE CHANNEL(ANY.CHL) CHLTYPE(RCVR) SSLCIPH(ANY_TLS12_OR_HIGHER)
DEFINE CHANNEL(OLD.CHL) CHLTYPE(RCVR) SSLCIPH(ECDHE_RSA_AES_128_GCM_SHA256) SSLGROUPS('X25519MLKEM768,secp256r1')
"""


def certify(qm, ring, dn, key, *options):
    qm.run("cert", "create", "--ring", ring, "--dn", dn, "--key", key, "--signer", "demo", "--data", qm.data, *options)


@pytest.fixture(scope="module")
def qm(managers):
    """`orders` puts for `billing`, who has an RSA key, and for `vault`, who has an ML-KEM key."""
    qm = managers(name="ALGORITHMS")
    qm.run("cert", "create", "--ca", "demo", "--dn", "CN=Demo CA,O=Demo", "--key", "p384", "--data", qm.data)
    for user in ("orders", "billing", "vault"):
        qm.add_user(user)
    certify(qm, "billing", "CN=billing,O=Demo", "rsa2048", "--share", "orders")
    certify(qm, "vault", "CN=vault,O=Demo", "ml-kem-1024", "--share", "orders")
    certify(qm, "orders", "CN=orders,O=Demo", "rsa3072", "--share", "billing")
    certify(qm, "orders", "CN=orders-pq,O=Demo", "ml-dsa-87", "--share", "vault")
    for name in (RSA, MIXED, QUANTUM, SIGNED, CLEAR):
        qm.mqsc(f"DEFINE QLOCAL({name}) MAXDEPTH(100000)\nDEFINE QALIAS({name}.RAW) TARGET({name})")
    orders, quantum = "SIGNER('CN=orders,O=Demo')", "SIGNER('CN=orders-pq,O=Demo')"
    qm.mqsc(f"""
        SET POLICY({RSA}) SIGNALG(SHA256) SIGNPAD(PSS) ENCALG(AES128) {orders} RECIP('CN=billing,O=Demo')
        SET POLICY({MIXED}) ENCALG(AES256) PQC(ALLOWED) RECIP('CN=vault,O=Demo', 'CN=billing,O=Demo')
        SET POLICY({QUANTUM}) SIGNALG(SHA512) ENCALG(AES256) PQC(REQUIRED) {quantum} RECIP('CN=vault,O=Demo')
        SET POLICY({SIGNED}) SIGNALG(SHA384) SIGNPAD(PSS) {orders}
    """)
    qm.mqsc(CHANNELS)
    with qm.connect("orders") as client:
        for name in (RSA, MIXED, QUANTUM, SIGNED, CLEAR):
            for _ in range(3):
                client.put(name, clear())
    return qm


def report(qm, *options, code=0):
    return json.loads(qm.run("report", "algorithms", "--data", qm.data, "--json", *options, code=code).stdout)


def page(qm, *options, code=0):
    return qm.run("report", "algorithms", "--data", qm.data, *options, code=code).stdout.decode()


def by(rows, key):
    return {row[key]: row for row in rows}


def dates(row, rules=None):
    return {due["date"]: due["because"] for due in row["due"] if rules in (None, due["rules"])}


def test_policies_say_which_keys_they_use_and_what_a_mixed_list_amounts_to(qm):
    shown = report(qm)
    policies = by(shown["policies"], "policy")
    assert policies[RSA]["recipients"] == [{"dn": "CN=billing,O=Demo", "keys": ["rsa2048"]}]
    assert policies[RSA]["signers"] == [{"dn": "CN=orders,O=Demo", "keys": ["rsa3072"]}]
    assert (policies[RSA]["digest"], policies[RSA]["signature_padding"]) == ("SHA256", "PSS")
    assert dates(policies[RSA], "cnsa") == {CNSA: ["SHA256", "rsa3072", "AES128", "rsa2048"]}
    assert dates(policies[RSA], "nist") == {DEPRECATED: ["rsa2048"], DISALLOWED: ["rsa3072", "rsa2048"]}
    assert {one["dn"]: one["keys"] for one in policies[MIXED]["recipients"]} == {
        "CN=vault,O=Demo": ["ml-kem-1024"],
        "CN=billing,O=Demo": ["rsa2048"],
    }
    assert policies[MIXED]["remarks"] == ["each recipient opens alone: as strong as the weakest, RSA 2048"]
    assert policies[QUANTUM]["due"] == [] and policies[QUANTUM]["remarks"] == []
    assert policies[SIGNED]["quality"] == "INTEGRITY" and dates(policies[SIGNED], "nist") == {DISALLOWED: ["rsa3072"]}
    assert shown["unprotected_queues"] == [CLEAR]
    assert "each recipient opens alone: as strong as the weakest, RSA 2048" in page(qm)


def test_messages_are_counted_by_what_they_are_sealed_with(qm):
    messages = {}
    for row in report(qm)["messages"]:
        messages.setdefault(row["queue"], []).append(row)
    ways = {
        queue: [(row["protected"], row["messages"], row["signers"], row["recipients"], row["cipher"]) for row in rows]
        for queue, rows in messages.items()
    }
    assert ways == {
        RSA: [("ENCRYPTED", 3, [], ["rsa2048 OAEP"], "AES128")],
        MIXED: [("CONFIDENTIALITY", 3, [], ["ml-kem-1024", "rsa2048 OAEP"], "AES256")],
        QUANTUM: [("ENCRYPTED", 3, [], ["ml-kem-1024"], "AES256")],
        SIGNED: [("INTEGRITY", 3, ["rsa3072 PSS SHA384"], [], "")],
        CLEAR: [("CLEAR", 3, [], [], "")],
    }
    assert messages[QUANTUM][0]["due"] == [] and messages[CLEAR][0]["due"] == []
    assert dates(messages[MIXED][0]) == {CNSA: ["rsa2048"], DEPRECATED: ["rsa2048"], DISALLOWED: ["rsa2048"]}
    # Nothing was got or moved.
    assert [qm.depth(queue) for queue in ways] == [3] * 5


def test_channels_say_which_groups_can_be_agreed_on(qm):
    channels = by(report(qm)["channels"], "channel")
    assert channels["HYBRID.CHL"]["due"] == [] and channels["HYBRID.CHL"]["remarks"] == []
    assert channels["OLD.CHL"]["groups"] == ["secp256r1"], "groups with ML-KEM are for TLS 1.3"
    assert dates(channels["OLD.CHL"], "nist") == {DISALLOWED: ["secp256r1"]}
    assert dates(channels["OLD.CHL"], "cnsa") == {CNSA: ["secp256r1", "AES128", "SHA256"]}
    (remark,) = channels["ANY.CHL"]["remarks"]
    assert remark.startswith("a classical key agreement can be negotiated: x25519,")
    assert channels["CLEAR.CHL"]["remarks"][0].startswith("no TLS") and channels["CLEAR.CHL"]["due"] == []
    (listener,) = (row for row in channels.values() if row["type"] == "LISTENER")
    assert listener["channel"].startswith("amqps://") and dates(listener, "nist")
    qm.mqsc("ALTER QMGR SSLGROUPS('SecP384r1MLKEM1024')")
    channels = by(report(qm)["channels"], "channel")
    assert channels["ANY.CHL"]["groups"] == ["SecP384r1MLKEM1024"]
    qm.mqsc("ALTER QMGR SSLGROUPS(' ')")


def test_certificates_say_their_keys_their_issuers_signature_and_where_they_lie(qm):
    certificates = by(report(qm)["certificates"], "subject")
    vault = certificates["CN=vault,O=Demo"]
    assert (vault["key"], vault["signature"]) == ("ml-kem-1024", "ecdsa-with-SHA384")
    assert sorted(vault["places"]) == ["rings/orders/people", "rings/vault/own"]
    # What signed it is due, and its key is not.
    assert dates(vault, "nist") == {DISALLOWED: ["ecdsa-with-SHA384"]}
    assert certificates["CN=Demo CA,O=Demo"]["key"] == "p384"
    assert "authorities/demo/ca.pem" in certificates["CN=Demo CA,O=Demo"]["places"]
    assert any("tls/server.pem" in row["places"] for row in certificates.values())
    assert all(not row["ended"] and row["not_after"] > "2026" for row in certificates.values())


def test_a_script_hears_by_the_exit_code_what_is_due(qm):
    due = ((2029, "nist", 0), (2030, "nist", 9), (2030, "cnsa", 0), (2031, "cnsa", 9), (2035, None, 9))
    for year, rules, code in due:
        by_rules = ["--by", rules] if rules else []
        done = qm.run("report", "algorithms", "--data", qm.data, "--due", year, *by_rules, code=code)
        assert (b"due by" in done.stderr) == (code != 0)
    qm.run("report", "algorithms", "--data", qm.data, "--due", 1999, code=2)
    qm.run("report", "algorithms", "--data", qm.data, "--by", "nist", code=2)


def test_every_date_names_its_document_and_section(qm):
    milestones = report(qm)["dates"]
    assert {row["rules"] for row in milestones} == {"cnsa", "nist"} and len(milestones) == 8
    assert all(row["source"] and row["section"] and row["address"].startswith("https://") for row in milestones)


def test_ten_thousand_messages_are_counted_as_far_as_one_says(qm):
    qm.mqsc("DEFINE QLOCAL(DEEP) MAXDEPTH(100000)")
    qm.mqsc("SET POLICY(DEEP) ENCALG(AES256) KEYREUSE(UNLIMITED) RECIP('CN=billing,O=Demo')")
    with qm.connect("orders") as client:
        sender = client.sender("DEEP")
        for _ in range(MANY):
            client.put("DEEP", Message(body=b"x", inferred=True), sender=sender)
    rows = [row for row in report(qm)["messages"] if row["queue"] == "DEEP"]
    assert {row["protected"]: row["messages"] for row in rows} == {"CONFIDENTIALITY": 1000, "NOTLOOKED": MANY - 1000}
    assert f"queue DEEP  {MANY - 1000} messages not looked at: --messages takes more of each queue" in page(qm)
    # What was not seen can't be said not to be due.
    done = qm.run("report", "algorithms", "--data", qm.data, "--due", 2026, code=1)
    assert b"1 thing was not seen" in done.stderr
    rows = [row for row in report(qm, "--messages", MANY)["messages"] if row["queue"] == "DEEP"]
    assert {row["protected"]: row["messages"] for row in rows} == {"CONFIDENTIALITY": MANY}
    qm.run("report", "algorithms", "--data", qm.data, "--due", 2026, "--messages", MANY)
    qm.mqsc("CLEAR QLOCAL(DEEP)\nDELETE POLICY(DEEP)\nDELETE QLOCAL(DEEP)")


def test_damaged_messages_and_names_that_steer_a_terminal_do_no_harm(qm, tmp_path):
    qm.mqsc("DEFINE QLOCAL(HOSTILE)")
    with qm.connect() as client:
        damaged = Message(body=b"\x30\x80damaged", inferred=True)
        damaged.content_type = symbol("application/pkcs7-mime")
        client.put("HOSTILE", damaged)
        sealed = client.get_all(f"{MIXED}.RAW", browse=True)[0]
        client.put("HOSTILE", foreign(bytes(sealed.body)[:-40]))
    shown = report(qm)
    rows = [row for row in shown["messages"] if row["queue"] == "HOSTILE"]
    assert {(row["protected"], row["messages"], row["cause"]) for row in rows} == {
        ("DEFECTIVE", 1, "malformed"),
        ("DEFECTIVE", 1, "not-sealed"),
    }
    assert sum(gap["place"] == "queue HOSTILE" for gap in shown["not_read"]) == 2
    loud = tmp_path / "loud.pem"
    made = ("-keyout", tmp_path / "loud.key", "-out", loud)
    openssl("req", "-x509", "-newkey", "rsa:1024", "-nodes", "-subj", f"/CN={LOUD}", *made)
    identity = Identity("loud", loud, tmp_path / "loud.key")
    ring = Ring(qm.data, "orders").people(identity)
    text = page(qm)
    assert not {"\x1b", "\x07"} & set(text), text
    assert r"CN=\1B]0\;owned\07\1B[2J" in text and "disallowed already" in text
    ring.drop("people", identity)
    qm.mqsc("CLEAR QLOCAL(HOSTILE)\nDELETE QLOCAL(HOSTILE)")


def test_a_ring_that_can_t_be_read_is_told_of_and_keeps_a_script_from_success(qm):
    certificate = qm.data / "rings/vault/own"
    mode = stat.S_IMODE(certificate.stat().st_mode)
    os.chmod(certificate, 0o777)
    try:
        shown = report(qm)
        assert [gap["place"] for gap in shown["not_read"]] == ["rings/vault"]
        assert "not in the report" in page(qm)
        qm.run("report", "algorithms", "--data", qm.data, "--due", 2026, code=1)
    finally:
        os.chmod(certificate, mode)
    assert report(qm)["not_read"] == []


def test_no_private_key_is_loaded(qm):
    """The keys in the files are no keys any more, and nothing is amiss."""
    files = [path for ring in (qm.data / "rings").iterdir() for path in (ring / "own").iterdir()]
    kept = {path: path.read_bytes() for path in files}
    spoilt = {path: re.sub(rb"(PRIVATE KEY-----\n)([^-]*)", spoil, content) for path, content in kept.items()}
    assert any(spoilt[path] != kept[path] for path in files)
    try:
        for path, content in spoilt.items():
            path.write_bytes(content)
        shown = report(qm)
        assert by(shown["certificates"], "subject")["CN=billing,O=Demo"]["key"] == "rsa2048" and shown["not_read"] == []
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


def spoil(key):
    return key[1] + re.sub(rb"[A-Za-z0-9+/=]", b"A", key[2])


def test_without_a_queue_manager_the_certificates_are_shown(managers, tmp_path):
    qm = managers(name="AWAY")
    assert qm.stop() == 0
    done = qm.run("report", "algorithms", "--data", qm.data, "--json", "--due", 2030, code=6)
    shown = json.loads(done.stdout)
    assert shown["queue_manager"] is None and shown["policies"] == [] and shown["certificates"]
    assert b"no queue manager is running" in done.stderr
    done = run("report", "algorithms", "--data", tmp_path / "none")
    assert done.returncode == 1 and b"no such data directory" in done.stderr
