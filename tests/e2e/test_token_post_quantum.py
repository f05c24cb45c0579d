"""ML-DSA and ML-KEM keys on a token (PKCS#11 3.2): what they sign and what is sealed for them is what others read and
write, and whatever becomes of the token, messages wait for it."""

import json
import subprocess
from types import SimpleNamespace

import pytest
from proton.reactor import Container

import cms
import opener
import people
import pkcs11
from manager import ERROR_QUEUE, wait_until
from pki import OPENSSL_4, Identity, openssl_4
from sites import PAYLOAD, clear, foreign, payloads
from test_devices import Stream, meters
from test_sign_batch import Stream as Burst
from test_sign_batch import inspect
from test_token import bears_faults, device, doctor

QUEUES = {
    "SIGNED": "SIGNALG(SHA384) SIGNER('CN=orders,O=Token')",
    "BATCHED": "SIGNALG(SHA384) SIGNER('CN=orders,O=Token') SIGNBATCH(64)",
    "SEALED": "SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN=orders,O=Token') + \n"
    "  RECIP('CN=billing,O=Token', 'CN=auditor,O=Token')",
    # Nothing but the reader's key is on the token.
    "READ": "SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN=auditor,O=Token') RECIP('CN=billing,O=Token')",
    "FOREIGN": "SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN=auditor,O=Token') RECIP('CN=billing,O=Token') BIND(NONE)",
}
ON_TOKEN, ALL = ("orders", "billing"), ("orders", "billing", "auditor")
SIGN, DECAPSULATE = ("HSM", "ML-DSA-SIGN", 65), ("HSM", "ML-KEM-DECAPSULATE", 768)


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    with pkcs11.kryoptic(tmp_path_factory.mktemp("token")) as token:
        yield token


@pytest.fixture(scope="module")
def qm(token, managers):
    """Keys of `orders` and `billing`, and the authority's, are on the token; those of `auditor` in files."""
    qm = managers("with-new-keys", options=["--modules", token["module"]])
    pkcs11.define_device(qm, token)
    data = ["--data", qm.data]
    on_token = ("--device", "HSM")
    qm.run("cert", "create", "--ca", "trade", "--dn", "CN=trade,O=Token", "--key", "ml-dsa-65", *on_token, *data)
    for user in ALL:
        qm.add_user(user)
        share = [word for other in ALL if other != user for word in ("--share", other)]
        where = on_token if user in ON_TOKEN else ()
        for key in ("ml-dsa-65", "ml-kem-768"):
            qm.run("cert", "create", "--ring", user, "--dn", f"CN={user},O=Token", "--key", key, "--label",
                   f"{user}-{key}", "--signer", "trade", *where, *share, *data)  # fmt: skip
    for name, policy in QUEUES.items():
        qm.mqsc(
            f"DEFINE QLOCAL({name})\nDEFINE QALIAS({name}.RAW) TARGET({name})\n"
            f"SET POLICY({name}) {policy} PQC(REQUIRED)"
        )
    people.seen()
    yield qm
    assert qm.process.poll() is None, "the queue manager ended by itself:\n" + "".join(qm.log[-30:])
    assert qm.stop() == 0


@pytest.fixture(scope="module")
def openssl_program(qm):
    """Whom others trust, and who they are: `openssl cms` of this build works with these."""
    if not OPENSSL_4.exists():
        pytest.skip("the openssl program of this build is not there: `make clients` builds it")
    root = qm.data / "authorities/trade/ca.pem"
    own = lambda user, key: qm.data / f"rings/{user}/own/{user}-{key}.pem"
    identity = lambda user, key: Identity(user, own(user, key), own(user, key))
    return SimpleNamespace(authority=SimpleNamespace(certificate=root, pem=root.read_bytes()), identity=identity)


def raw(qm, queue):
    with qm.connect() as client:
        return [bytes(message.body) for message in client.get_all(f"{queue}.RAW", browse=True, credit=1000)]


def get_all(qm, user, queue):
    with qm.connect(user) as client:
        return payloads(client.get_all(queue, credit=1000))


def jobs(qm, name):
    return meters(qm)[name]["JOBS"] if name in meters(qm) else 0


def test_the_keys_are_on_the_token_and_nowhere_else(qm):
    for user in ON_TOKEN:
        files = [file.read_text() for file in (qm.data / f"rings/{user}/own").iterdir()]
        assert sum("pkcs11:token=BULLA" in text for text in files) == 2
        assert not any("PRIVATE KEY" in text or pkcs11.PIN in text for text in files)
    assert "pkcs11:" in (qm.data / "authorities/trade/key.pem").read_text()


def test_a_signature_of_the_token_is_one_that_openssl_verifies(qm, openssl_program, tmp_path):
    before = jobs(qm, SIGN)
    with qm.connect("orders") as orders:
        orders.put("SIGNED", clear())
    [sealed] = raw(qm, "SIGNED")
    assert jobs(qm, SIGN) == before + 1
    assert cms.verify(sealed, openssl_program.authority, tmp_path, by=openssl_4) == PAYLOAD
    assert get_all(qm, "auditor", "SIGNED") == [PAYLOAD]


def test_messages_that_wait_for_the_token_share_a_signature(qm, openssl_program, tmp_path):
    before, count = jobs(qm, SIGN), 300
    load = Burst(qm, "orders", "BATCHED", count)
    Container(load).run()
    assert len(load.confirmed) == count and not load.refused
    made = jobs(qm, SIGN) - before
    sealed = raw(qm, "BATCHED")
    batches = [(der, inspect(qm, tmp_path, der)["batch"]) for der in sealed[:80]]
    shared = [der for der, batch in batches if batch and batch["fits"]]
    assert shared and 0 < made < count / 2, f"{made} signatures, {len(shared)} of 80 messages share theirs"
    # The root is verified by any tool, and a message by the program of the page.
    inspect(qm, tmp_path, shared[0], "--root", tmp_path / "root.der")
    cms.verify((tmp_path / "root.der").read_bytes(), openssl_program.authority, tmp_path, by=openssl_4)
    authority = opener.module().x509.load_pem_x509_certificate(openssl_program.authority.pem)
    expected = [f"message {number}".encode() for number in range(count)]
    for der in shared[:3]:
        assert opener.module().open_message(der, authority)[0] in expected
    assert get_all(qm, "billing", "BATCHED") == expected


def test_what_is_sealed_for_the_token_opens_there_and_for_others_by_openssl(qm, openssl_program, tmp_path):
    before = jobs(qm, DECAPSULATE)
    with qm.connect("orders") as orders:
        orders.put("SEALED", clear())
    [sealed] = raw(qm, "SEALED")
    auditor = openssl_program.identity("auditor", "ml-kem-768")
    signed = cms.decrypt_with_program(sealed, auditor, tmp_path, by=openssl_4)
    assert cms.verify(signed, openssl_program.authority, tmp_path, by=openssl_4) == PAYLOAD
    assert get_all(qm, "billing", "SEALED") == [PAYLOAD]
    assert jobs(qm, DECAPSULATE) == before + 1


def test_what_openssl_seals_for_the_key_on_the_token_opens(qm, openssl_program, tmp_path):
    author = openssl_program.identity("auditor", "ml-dsa-65")
    billing = openssl_program.identity("billing", "ml-kem-768")
    signed = cms.sign(PAYLOAD, author, tmp=tmp_path, digest="sha384", by=openssl_4)
    sealed = cms.encrypt(signed, billing, tmp=tmp_path, by=openssl_4)
    with qm.connect() as client:
        client.put("FOREIGN.RAW", foreign(sealed))
    assert get_all(qm, "billing", "FOREIGN") == [PAYLOAD]


def test_a_ciphertext_that_was_changed_condemns_its_message_and_not_the_token(qm):
    """Any ciphertext has a secret (implicit rejection), so the message fails as one with a wrong key does."""
    with qm.connect("auditor") as auditor:
        auditor.put("READ", clear())
    with qm.connect() as client:
        message = client.get("READ.RAW")
        body = bytearray(bytes(message.body))
        # In the middle of 1088 bytes that stand behind the content cipher's name.
        at = body.index(bytes.fromhex("0482 0440")) + 4 + 500
        body[at] ^= 1
        message.body, message.inferred = bytes(body), True
        client.put("READ.RAW", message)
    errors, before = len(qm.errors()), jobs(qm, DECAPSULATE)
    assert get_all(qm, "billing", "READ") == []
    wait_until(lambda: qm.depth(ERROR_QUEUE) == errors + 1, "it is on the error queue")
    # It was asked again, and after one that is known.
    assert jobs(qm, DECAPSULATE) == before + 2 and device(qm)["STATUS"] == "RUNNING"
    qm.clear_error_queue()
    with qm.connect("auditor") as auditor:
        auditor.put("READ", clear())
    assert get_all(qm, "billing", "READ") == [PAYLOAD]


def test_doctor_uses_the_keys_on_the_token_as_a_message_does(qm):
    broken, found = doctor(qm, "orders")
    assert broken == []
    said = {row["check"]: row["details"] for row in found if row["condition"] == "WELL"}
    assert "its key is on the token of HSM, which runs" in said["DEVICES"]


@pytest.mark.parametrize(("queue", "putter"), [("SEALED", "orders"), ("READ", "auditor")])
def test_whatever_becomes_of_the_token_no_message_is_lost_or_condemned(qm, token, queue, putter):
    """Both sides' keys on the token; and the reader's alone, whose wrong secrets no public key refutes."""
    control = token["control"]
    failed = lambda: device(qm)["STATUS"] == "FAILED"
    stream = Stream(SimpleNamespace(qm=qm), queue, putter=putter)
    stream.goes_on("the start")

    bears_faults(qm, control, stream)

    control.write_text("faulty\n")
    wait_until(failed, "a wrong result puts the token out of use")
    assert "public key refutes" in device(qm)["REASON"]
    control.write_text("")
    assert failed(), "it is not used again by itself"
    qm.mqsc("START DEVICE(HSM)")
    # Messages that got a wrong secret open at the second try, which is held against the token no more.
    stream.goes_on("the token was started again")
    assert not failed(), device(qm)

    qm.mqsc("STOP DEVICE(HSM)")
    control.write_text("pin\n")
    qm.mqsc("START DEVICE(HSM)")
    wait_until(lambda: "pin" in device(qm)["REASON"].lower(), "the wrong PIN is named")
    control.write_text("")
    qm.mqsc("STOP DEVICE(HSM)\nSTART DEVICE(HSM)")
    stream.goes_on("the PIN is right again")
    stream.end()


def test_a_key_that_can_t_be_used_as_asked_is_not_made(qm, tmp_path):
    data = ("--data", qm.data, "--device", "HSM")
    name = ("--dn", "CN=none,O=Token")
    request = ("--request", tmp_path / "none.csr", "--key-out", tmp_path / "none.key")
    done = qm.run("cert", "create", *request, *name, "--key", "ml-kem-768", *data, code=None)
    assert done.returncode != 0 and b"signs nothing, so no request either" in done.stderr
    done = qm.run("cert", "create", "--ca", "none", *name, "--key", "ml-kem-768", *data, code=None)
    assert done.returncode != 0 and b"CERTSIGN" in done.stderr
    qm.run("cert", "create", *request, *name, "--key", "ml-dsa-87", *data)
    shown = openssl_4("req", "-in", tmp_path / "none.csr", "-noout", "-text", "-verify") if OPENSSL_4.exists() else b""
    assert b"ML-DSA-87" in shown or not OPENSSL_4.exists()


def test_a_token_without_ml_dsa_and_ml_kem_says_which_mechanism_is_missing(managers, tmp_path_factory):
    with pkcs11.softhsm(tmp_path_factory.mktemp("softhsm")) as token:
        qm = managers("with-old-token", options=["--modules", token["module"]])
        pkcs11.define_device(qm, token)
        qm.run("cert", "create", "--ca", "trade", "--dn", "CN=trade,O=Token", "--data", qm.data)
        for key, missing in (("ml-dsa-65", b"CKM_ML_DSA_KEY_PAIR_GEN"), ("ml-kem-768", b"C_DecapsulateKey")):
            done = qm.run("cert", "create", "--ring", "orders", "--dn", "CN=orders,O=Token", "--key", key, "--signer",
                          "trade", "--device", "HSM", "--data", qm.data, code=None)  # fmt: skip
            assert done.returncode != 0 and b'token "BULLA" has no ' in done.stderr and missing in done.stderr, done
        assert qm.stop() == 0
