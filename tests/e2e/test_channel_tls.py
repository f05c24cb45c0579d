"""Channels under TLS: whom they refuse and with which words, and messages that pass while keys are renewed."""

import json

import pytest
from proton import Message

from channels import status, wait_for_status
from manager import shown_rows, wait_until
from pki import Authority

CHANNEL = "QM1.QM2"
CIPHER = "TLS_AES_256_GCM_SHA384"
# CERTLABL of the end that is called, and what the calling end says of it.
CALLED = {
    "expired": "2393 MQRC_SSL_INITIALIZATION_ERROR cause=certificate-expired",
    "early": "2393 MQRC_SSL_INITIALIZATION_ERROR cause=certificate-not-yet-valid",
    "revoked": "2401 MQRC_SSL_CERTIFICATE_REVOKED cause=certificate-revoked",
    "stranger": "2393 MQRC_SSL_INITIALIZATION_ERROR cause=certificate-untrusted",
    "other": "2398 MQRC_SSL_PEER_NAME_MISMATCH cause=wrong-peer-name",
}


def write(manager, name, identity):
    (manager.data / f"tls/{name}.pem").write_bytes(identity.pem)
    (manager.data / f"tls/{name}.key").write_bytes(identity.key.read_bytes())


@pytest.fixture(scope="module")
def pair(managers, tmp_path_factory):
    trusted = Authority(tmp_path_factory.mktemp("trusted") / "tls")
    strange = Authority(tmp_path_factory.mktemp("strange") / "tls", name="Strange authority")
    near, far = managers(name="QM1"), managers(name="QM2")
    revoked = trusted.issue("QM2")
    trusted.revoke(revoked)
    identities = {
        "good": trusted.issue("QM2"),
        "expired": trusted.issue("QM2", not_before=-30, not_after=-1),
        "early": trusted.issue("QM2", not_before=1, not_after=30),
        "revoked": revoked,
        "stranger": strange.issue("QM2"),
        "other": trusted.issue("SOMEBODY"),
    }
    crl = trusted.crl()
    for manager in (near, far):
        for authorities in ("clients", "partners"):
            (manager.data / f"tls/{authorities}.pem").write_bytes(trusted.pem)
        (manager.data / "tls/crls").mkdir(exist_ok=True)
        (manager.data / "tls/crls/ca.crl").write_bytes(crl)
        for label, identity in identities.items():
            write(manager, label, identity)
    far.mqsc("DEFINE QLOCAL(T) MAXDEPTH(1000000)")
    far.mqsc(f"DEFINE CHANNEL({CHANNEL}) CHLTYPE(RCVR) SSLCIPH({CIPHER})")
    near.mqsc(
        f"""
        DEFINE QLOCAL(QM2) USAGE(XMITQ) MAXDEPTH(1000000)
        DEFINE QREMOTE(R) RNAME(T) RQMNAME(QM2)
        DEFINE CHANNEL({CHANNEL}) CHLTYPE(SDR) CONNAME('127.0.0.1({far.ports["amqps"]})') XMITQ(QM2) SHORTTMR(3600) SSLCIPH({CIPHER})
        """
    )
    yield near, far
    for manager in (near, far):
        assert manager.stop() == 0, "it did not stop cleanly:\n" + "".join(manager.log[-30:])


def start(pair, near="", far="", cipher=CIPHER):
    """Starts the channel anew with these attributes at its two ends."""
    one, two = pair
    one.mqsc(f"STOP CHANNEL({CHANNEL}) MODE(FORCE)")
    wait_for_status(one, CHANNEL, "STOPPED")
    two.mqsc(f"ALTER CHANNEL({CHANNEL}) CHLTYPE(RCVR) SSLCIPH({cipher}) {far}")
    one.mqsc(f"ALTER CHANNEL({CHANNEL}) CHLTYPE(SDR) SSLCIPH({cipher}) {near}")
    one.mqsc(f"START CHANNEL({CHANNEL})")


def reason(manager):
    wait_until(lambda: status(manager, CHANNEL)["STATUS"] in ("RETRYING", "STOPPED"), "the channel has failed")
    return status(manager, CHANNEL)["REASON"]


NEAR = "CERTLABL('good') SSLPEER('CN=QM2,O=Demo')"
FAR = "CERTLABL('good') SSLCAUTH(REQUIRED) SSLPEER('CN=QM2,O=Demo')"


@pytest.mark.parametrize(("label", "words"), CALLED.items(), ids=CALLED)
def test_the_calling_end_says_what_is_wrong_with_the_certificate_of_the_other(pair, label, words):
    start(pair, near=NEAR, far=FAR.replace("good", label))
    assert reason(pair[0]).startswith(words)


@pytest.mark.parametrize("label", ["expired", "early", "revoked", "stranger", "other"])
def test_the_called_end_refuses_a_wrong_certificate_and_the_caller_is_told(pair, label):
    start(pair, near=NEAR.replace("good", label), far=FAR)
    assert any(word in reason(pair[0]) for word in ("refused by the partner", "wrong-peer-name", "SSL_PEER_NAME"))
    assert status(pair[1], CHANNEL)["STATUS"] == "INACTIVE"


@pytest.mark.parametrize("cipher", [CIPHER, "ECDHE_RSA_AES_256_GCM_SHA384", "ECDHE_RSA_AES_128_CBC_SHA256"])
def test_messages_pass_once_and_in_order_while_keys_are_renewed(pair, cipher):
    near, far = pair
    start(pair, near=f"{NEAR} SSLRKEYC(32768)", far=f"{FAR} SSLRKEYC(32768)", cipher=cipher)
    wait_for_status(near, CHANNEL, "RUNNING")
    with near.connect() as client:
        sender = client.sender("R")
        for number in range(2_000):
            client.put("R", Message(id=number, body=b"x" * 2048, inferred=True, durable=True), sender)
    far.wait_for_depth("T", 2_000)
    with far.connect() as client:
        assert [message.id for message in client.get_all("T", credit=10_000)] == list(range(2_000))
    # 4 MB and more in 32 KiB steps.
    assert status(near, CHANNEL)["SSLRKEYS"] >= 100


def agreed_on(manager, by):
    """What `bulla report algorithms` says was agreed on."""
    return json.loads(manager.run("report", "algorithms", "--json", "--data", manager.data).stdout)[by]


def test_a_channel_agrees_on_ml_kem_and_one_that_requires_it_runs_with_nothing_else(pair):
    near, far = pair
    start(pair, near=NEAR, far=FAR)
    wait_for_status(near, CHANNEL, "RUNNING")
    assert [status(end, CHANNEL)["SSLGROUP"] for end in pair] == ["X25519MLKEM768"] * 2
    start(pair, near=f"{NEAR} SSLGROUPS('secp384r1,x25519')", far=FAR)
    wait_for_status(near, CHANNEL, "RUNNING")
    assert status(far, CHANNEL)["SSLGROUP"] == "secp384r1"
    [agreed] = [row for row in agreed_on(far, "running_channels") if row["channel"] == CHANNEL]
    assert (agreed["group"], agreed["partner"]) == ("secp384r1", near.name)
    assert any("secp384r1" in due["because"] for due in agreed["due"])
    start(pair, near=f"{NEAR} SSLGROUPS('secp384r1,x25519')", far=f"{FAR} SSLGROUPS('X25519MLKEM768,SecP256r1MLKEM768')")
    assert reason(near).startswith("2400 ") and "refused-by-partner" in reason(near), reason(near)
    wait_until(lambda: any("group-mismatch" in line for line in far.log), "the end that is called says why")
    start(pair, near=f"{NEAR} SSLGROUPS('SecP256r1MLKEM768')", far=f"{FAR} SSLGROUPS('X25519MLKEM768,SecP256r1MLKEM768')")
    wait_for_status(near, CHANNEL, "RUNNING")
    assert status(far, CHANNEL)["SSLGROUP"] == "SecP256r1MLKEM768"
    start(pair, near=f"{NEAR} SSLGROUPS(' ')", far=f"{FAR} SSLGROUPS(' ')")
    wait_for_status(near, CHANNEL, "RUNNING")


def test_groups_that_can_do_nothing_are_warned_of(pair):
    near, _ = pair
    alters = lambda attributes: near.mqsc(f"ALTER CHANNEL(UNUSED) CHLTYPE(RCVR) {attributes}")  # noqa: E731
    said = near.mqsc("DEFINE CHANNEL(UNUSED) CHLTYPE(RCVR) SSLGROUPS('X25519MLKEM768')")
    assert "channel UNUSED runs without TLS, whatever SSLGROUPS says" in said
    assert "channel UNUSED can't connect" in alters("SSLCIPH(ECDHE_RSA_AES_256_GCM_SHA384)")
    newer = "SSLCIPH(TLS_AES_256_GCM_SHA384) SSLGROUPS('X25519MLKEM768')"
    for attributes in ("SSLGROUPS('X25519MLKEM768,x25519')", newer):
        assert "UNUSED runs" not in alters(attributes) and "UNUSED can't" not in alters(attributes)
    near.mqsc("DELETE CHANNEL(UNUSED)")


def test_the_queue_manager_says_by_which_groups_clients_come(pair):
    """The client's library is the machine's: it may be of before ML-KEM."""
    _, far = pair
    far.add_user("visitor")
    with far.connect("visitor"):
        rows = shown_rows(far.run("mqsc", "--data", far.data, "--json", "-c", "DISPLAY CONN(*) USERID SSLGROUP").stdout)
        [group] = [row["SSLGROUP"] for row in rows if row["USERID"] == "visitor"]
        assert group in ("X25519MLKEM768", "x25519", "secp256r1")
    far.mqsc("ALTER QMGR SSLGROUPS('secp521r1')")
    with far.connect("visitor"):
        rows = shown_rows(far.run("mqsc", "--data", far.data, "--json", "-c", "DISPLAY CONN(*) USERID SSLGROUP").stdout)
        assert [row["SSLGROUP"] for row in rows if row["USERID"] == "visitor"] == ["secp521r1"]
        [agreed] = [row for row in agreed_on(far, "connections") if row["user"] == "visitor"]
        assert (agreed["group"], agreed["connections"]) == ("secp521r1", 1)
    assert "MD5" in far.mqsc("ALTER QMGR SSLGROUPS('MD5')", code=None)
    far.mqsc("ALTER QMGR SSLGROUPS(' ')")
    assert "SSLGROUPS( )" in far.mqsc("DISPLAY QMGR SSLGROUPS")
