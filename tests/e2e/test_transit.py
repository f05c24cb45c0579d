"""Keys in a server's transit engine, through the queue manager: whatever becomes of the server, messages wait for it, none
is lost, and none is taken for defective. The server is a stand-in by the published API, or the real one (transit.py)."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from manager import shown_rows, wait_until
from pki import openssl
from proton_driver import Refused
from sites import clear, copy
from test_devices import meters
from transit import POLICY, Server

SEALS = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Transit') RECIP('CN=billing,O=Transit')"
# All messages that are being sealed may hold so much, each twice its length.
SEALING_BYTES_MAX = 512 << 20
LARGE_BYTES = 16 << 20
CONFIDENTIAL = "ENCALG(AES256) KEYREUSE(32) RECIP('CN=billing,O=Transit')"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("transit"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def qm(server, managers):
    """A queue manager whose users' keys are in the engine: one made by `bulla`, one that was there."""
    qm = managers("with-transit", options=["--metrics", "127.0.0.1:0"])
    qm.mqsc(
        f"DEFINE DEVICE(VAULT) TYPE(TRANSIT) ADDRESS('{server.address}') CAFILE('{server.ca}') + \n"
        f"  TOKENFILE('{server.token_file}') ENGINES(2) TIMEOUT(2000)\nSTART DEVICE(VAULT)"
    )
    data = ["--data", qm.data]
    qm.run("cert", "create", "--ca", "trade", "--dn", "CN=trade,O=Transit", *data)
    for user in ("orders", "billing", "clear", "admin"):
        qm.add_user(user)
    qm.run("cert", "create", "--ring", "orders", "--dn", "CN=orders,O=Transit", "--key", "rsa2048", "--label", "orders",
           "--signer", "trade", "--device", "VAULT", "--share", "billing", *data)
    server.api("POST", "transit/keys/billing", {"type": "rsa-2048"})
    server.api("POST", "transit/keys/billing/rotate", {})
    qm.run("cert", "create", "--ring", "billing", "--dn", "CN=billing,O=Transit", "--existing", "billing", "--signer", "trade",
           "--device", "vault", "--share", "orders", *data)
    qm.run("cert", "create", "--ring", "clear", "--dn", "CN=clear,O=Transit", "--signer", "trade", "--share", "billing", *data)
    qm.mqsc(f"DEFINE QLOCAL(SEALED)\nSET POLICY(SEALED) {SEALS}")
    qm.mqsc(f"DEFINE QLOCAL(SECRET)\nSET POLICY(SECRET) {CONFIDENTIAL}")
    qm.mqsc("DEFINE QLOCAL(SIGNED)\nSET POLICY(SIGNED) SIGNALG(SHA256) SIGNER('CN=clear,O=Transit')")
    yield qm
    assert qm.process.poll() is None, "the queue manager ended by itself:\n" + "".join(qm.log[-30:])
    assert qm.stop() == 0


def device(qm, name="VAULT"):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY DEVICE({name}) ALL")
    return shown_rows(done.stdout)[0]


def runs(qm):
    return device(qm)["STATUS"] == "RUNNING"


def doctor(qm, queue, user):
    done = qm.run("doctor", queue, "--user", user, "--data", qm.data, "--json", code=None)
    return [row for row in json.loads(done.stdout)["found"]]


def test_a_ring_has_name_and_version_of_a_key_and_nothing_else_of_it(qm, server):
    uris = {}
    for user in ("orders", "billing"):
        text = "".join(file.read_text() for file in (qm.data / f"rings/{user}/own").iterdir())
        assert "PRIVATE KEY" not in text and "https" not in text
        [uris[user]] = [line for line in text.splitlines() if line.startswith("transit:")]
    assert uris == {"orders": "transit:key=orders;version=1", "billing": "transit:key=billing;version=2"}
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        for number in range(5):
            orders.put("SEALED", clear(b"%d" % number))
        assert [bytes(billing.get("SEALED").body) for _ in range(5)] == [b"%d" % number for number in range(5)]
    rows = meters(qm)
    assert rows["VAULT", "RSA-SIGN", 2048]["JOBS"] >= 5 and rows["VAULT", "RSA-UNWRAP", 2048]["JOBS"] >= 5
    shown = device(qm)
    assert (shown["ADDRESS"], shown["MOUNT"], shown["NAMESPACE"]) == (server.address, "transit", "")


def test_what_lies_on_the_queue_is_opened_and_checked_by_openssl_alone(qm, tmp_path):
    with qm.connect("clear") as client:
        client.put("SIGNED", clear(b"signed with a key in memory"))
    with qm.connect("orders") as orders:
        orders.put("SEALED", clear(b"signed in the engine"))
    qm.mqsc("DEFINE QALIAS(SEALED.RAW) TARGET(SEALED)")
    with qm.connect() as nobody:
        body = bytes(nobody.get_all("SEALED.RAW", browse=True)[0].body)
    (tmp_path / "sealed.der").write_bytes(body)
    shown = openssl("cms", "-cmsout", "-print", "-inform", "DER", "-in", tmp_path / "sealed.der").decode()
    assert "envelopedData" in shown or "authEnvelopedData" in shown
    with qm.connect("billing") as billing:
        assert bytes(billing.get("SEALED").body) == b"signed in the engine"
        assert bytes(billing.get("SIGNED").body) == b"signed with a key in memory"


def test_a_content_key_that_is_used_again_takes_the_server_once(qm):
    unwraps = lambda: meters(qm).get(("VAULT", "RSA-UNWRAP", 2048), {"JOBS": 0})["JOBS"]
    before = unwraps()
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        sender, receiver = orders.sender("SECRET"), billing.receiver("SECRET", credit=0)
        for number in range(64):
            orders.put("SECRET", clear(b"%d" % number), sender)
            receiver.flow(1)
            assert bytes(receiver.next(30).body) == b"%d" % number
    assert unwraps() - before == 2


def test_a_curve_signs_and_so_does_pss(qm):
    create = ["cert", "create", "--ring", "signer", "--dn", "CN=signer,O=Transit", "--signer", "trade", "--device", "VAULT"]
    qm.add_user("signer")
    qm.run(*create, "--key", "p256", "--label", "signer", "--share", "billing", "--data", qm.data)
    signers = {"signer": "SIGNALG(SHA384) SIGNER('CN=signer,O=Transit')",
               "orders": "SIGNALG(SHA512) SIGNPAD(PSS) SIGNER('CN=orders,O=Transit')"}
    for user, policy in signers.items():
        qm.mqsc(f"DEFINE QLOCAL(BY.{user.upper()})\nSET POLICY(BY.{user.upper()}) {policy}")
        with qm.connect(user) as client, qm.connect("billing") as billing:
            client.put(f"BY.{user.upper()}", clear(b"signed"))
            assert bytes(billing.get(f"BY.{user.upper()}").body) == b"signed"
    assert meters(qm)["VAULT", "ECDSA-SIGN", 256]["JOBS"] >= 1


def test_a_damaged_key_condemns_its_message_and_no_other(qm):
    """An envelope made for the key opens beside it: so it is the sender's doing."""
    qm.mqsc("DEFINE QALIAS(SECRET.RAW) TARGET(SECRET)")
    octets = b"\x04\x82\x01\x00"  # an OCTET STRING as long as the modulus: the wrapped content key
    with qm.connect("orders") as orders, qm.connect("billing") as billing, qm.connect() as nobody:
        orders.put("SECRET", clear(b"damaged"))
        message = nobody.get("SECRET.RAW")
        body = bytearray(message.body)
        assert body.count(octets) == 1
        body[body.index(octets) + 100] ^= 1
        nobody.put("SECRET.RAW", copy(message, bytes(body)))
        orders.put("SECRET", clear(b"whole"))
        with pytest.raises(Refused) as refused:
            billing.get("SECRET")
        assert refused.value.cause == "cannot-decrypt"
        assert bytes(billing.get("SECRET").body) == b"whole"
    assert qm.depth("SYSTEM.PROTECTION.ERROR.QUEUE") == 1
    qm.clear_error_queue()
    assert runs(qm)


def test_a_key_that_the_token_may_not_use_is_refused_alone(qm, server):
    qm.add_user("locked")
    qm.run("cert", "create", "--ring", "locked", "--dn", "CN=locked,O=Transit", "--label", "locked", "--signer", "trade",
           "--device", "VAULT", "--data", qm.data)
    qm.mqsc("DEFINE QLOCAL(LOCKED)\nSET POLICY(LOCKED) SIGNALG(SHA256) SIGNER('CN=locked,O=Transit')")
    server.api("PUT", "sys/policies/acl/bulla", {"policy": POLICY + 'path "transit/sign/locked/*" { capabilities = ["deny"] }'})
    try:
        with qm.connect("locked", timeout=90) as locked, qm.connect("orders") as orders, qm.connect("billing") as billing:
            with pytest.raises(Refused, match="does not let the token use transit/sign/locked/sha2-256"):
                locked.put("LOCKED", clear())
            orders.put("SEALED", clear(b"goes on"))
            assert bytes(billing.get("SEALED").body) == b"goes on"
        assert runs(qm)
    finally:
        server.api("PUT", "sys/policies/acl/bulla", {"policy": POLICY})


def test_a_request_for_a_foreign_authority_is_signed_in_the_engine(qm, tmp_path):
    data = ["--data", qm.data]
    for kind, label in (("p384", "foreign-ec"), ("rsa3072", "foreign-rsa")):
        request, uri, signed = tmp_path / f"{label}.csr", tmp_path / f"{label}.uri", tmp_path / f"{label}.pem"
        qm.run("cert", "create", "--dn", f"CN={label}", "--key", kind, "--label", label, "--device", "VAULT",
               "--request", request, "--key-out", uri, *data)
        openssl("req", "-verify", "-noout", "-in", request)
        assert uri.read_text() == f"transit:key={label};version=1\n"
        qm.run("cert", "sign", request, "--signer", "trade", "--out", signed, "--usage", "docsign", *data)
        qm.run("cert", "import", signed, "--key-file", uri, "--ring", label, *data)


def refused(qm, *arguments):
    return qm.run("cert", *arguments, "--data", qm.data, code=None).stderr.decode()


def test_what_an_engine_can_not_do_is_refused_before_a_message_is_there(qm, tmp_path):
    create = ["create", "--ring", "curve", "--dn", "CN=curve,O=Transit", "--signer", "trade", "--device", "VAULT"]
    error = refused(qm, *create, "--key", "p256", "--usage", "docsign,keyagree")
    assert "agrees on no secrets" in error
    assert "a transit engine has RSA of 2048, 3072 and 4096 bits" in refused(qm, *create, "--key", "rsa1024")
    assert "there is a key orders already" in refused(qm, *create, "--label", "orders")
    assert "there is no key nothing in transit" in refused(qm, *create, "--existing", "nothing")
    assert "key billing has no version 9: it has 1, 2" in refused(qm, *create, "--existing", "billing:9")
    # By itself a curve's certificate is for signatures.
    qm.run("cert", *create, "--key", "p256", "--label", "curve", "--data", qm.data)
    shown = qm.run("cert", "show", "curve", "--ring", "curve", "--data", qm.data).stdout.decode()
    assert "keyagree" not in shown.lower()
    # One by which others may seal is not taken.
    request, uri, signed = tmp_path / "a.csr", tmp_path / "a.uri", tmp_path / "a.pem"
    qm.run("cert", "create", "--dn", "CN=agrees,O=Transit", "--existing", "curve", "--device", "VAULT", "--request", request,
           "--key-out", uri, "--data", qm.data)
    qm.run("cert", "sign", request, "--signer", "trade", "--out", signed, "--usage", "docsign,keyagree", "--data", qm.data)
    error = refused(qm, "import", str(signed), "--key-file", str(uri), "--ring", "agrees")
    assert "opens nothing in a transit engine" in error
    # Written there by other means, doctor and policy check find it, and the message is not the first to tell.
    own = qm.data / "rings/agrees/own"
    own.mkdir(parents=True, mode=0o700)
    for folder in (qm.data / "rings/agrees", own):
        folder.chmod(0o700)
    (own / "agrees.pem").write_text(signed.read_text() + uri.read_text())
    (own / "agrees.pem").chmod(0o600)
    qm.mqsc("DEFINE QLOCAL(AGREES)\nSET POLICY(AGREES) ENCALG(AES256) RECIP('CN=agrees,O=Transit')")
    rows = [row for row in doctor(qm, "AGREES", "agrees") if (row["condition"], row["check"]) == ("BROKEN", "DEVICES")]
    assert ["opens nothing in a transit engine" in row["details"] for row in rows] == [True]
    checked = qm.run("policy", "check", "AGREES", "--data", qm.data, code=None).stdout.decode()
    assert "opens nothing in a transit engine" in " ".join(checked.split())


def test_a_policy_whose_key_transport_the_engine_lacks_is_found(qm):
    qm.mqsc("DEFINE QLOCAL(OLD)\nSET POLICY(OLD) " + SEALS + " KEYWRAP(PKCS1)")
    rows = doctor(qm, "OLD", "billing")
    assert any("KEYWRAP(OAEP)" in row["details"] for row in rows if row["check"] == "DEVICES"), rows
    qm.mqsc("SET POLICY(OLD) ACTION(REMOVE)")


def test_doctor_uses_the_key_as_a_message_does(qm):
    rows = doctor(qm, "SEALED", "orders")
    said = {row["check"]: row["details"] for row in rows if row["condition"] == "WELL"}
    assert "orders → billing" in said["PROBE"] and "its key is in the transit engine of VAULT, which runs" in said["DEVICES"]


def refused_tokens(qm):
    """By device, as the metrics have them."""
    found = (re.match(r'bulla_device_token_refused\{device="(.*)"\} (.*)', line) for line in qm.metrics().splitlines())
    return {match[1]: match[2] for match in found if match}


def test_while_the_server_is_sealed_messages_wait_and_other_keys_go_on(qm, server):
    with qm.connect("orders") as orders:
        orders.put("SEALED", clear(b"before"))
    server.seal()
    try:
        # A put waits for the server until its time is over, and is refused with 2063. Others are not delayed meanwhile.
        with qm.connect("orders", timeout=90) as orders, qm.connect("clear") as other, qm.connect("billing") as billing:
            with pytest.raises(Refused, match="2063"):
                orders.put("SEALED", clear(b"never"))
            other.put("SIGNED", clear(b"meanwhile"))
            assert bytes(billing.get("SIGNED").body) == b"meanwhile"
        shown = device(qm)
        assert shown["STATUS"] == "OFFLINE" and "sealed" in shown["REASON"]
        rows = doctor(qm, "SEALED", "orders")
        [row] = [row for row in rows if (row["condition"], row["check"]) == ("BROKEN", "DEVICES") and "its key" in row["details"]]
        assert "OFFLINE: the server is sealed" in row["details"]
        assert qm.depth("SEALED") == 1
    finally:
        server.unseal()
    wait_until(lambda: runs(qm), "the server answers again", 60)
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        assert bytes(billing.get("SEALED").body) == b"before"
        orders.put("SEALED", clear(b"after"))
        assert bytes(billing.get("SEALED").body) == b"after"
    assert qm.depth("SYSTEM.PROTECTION.ERROR.QUEUE") == 0


def test_a_user_whose_messages_wait_for_their_key_keeps_no_other_out(qm, server):
    """They hold all memory for sealing meanwhile: one more of them is refused, and another user's is sealed."""
    for queue in ("SEALED", "SIGNED"):
        qm.mqsc(f"ALTER QLOCAL({queue}) MAXMSGL({2 * LARGE_BYTES})")
    body = bytes(LARGE_BYTES)

    def puts_one(_):
        with qm.connect("orders", timeout=90) as orders:
            with pytest.raises(Refused) as refused:
                orders.put("SEALED", clear(body))
        return refused.value.reason, "for sealing are taken" in str(refused.value)

    count = SEALING_BYTES_MAX // (2 * LARGE_BYTES) + 1
    server.seal()
    try:
        with ThreadPoolExecutor(count) as pool, qm.connect("clear") as other, qm.connect("billing") as billing:
            flood = [pool.submit(puts_one, number) for number in range(count)]
            # With 2 KiB for each, one fewer fits than their bytes alone would let in.
            wait_until(lambda: sum(put.done() for put in flood) >= 2, "two are refused")
            waiting = sum(not put.done() for put in flood)
            # Larger than what is left of the memory that the first user may have.
            other.put("SIGNED", clear(body))
            assert len(bytes(billing.get("SIGNED").body)) == LARGE_BYTES
            assert sum(not put.done() for put in flood) == waiting
            reasons = [put.result() for put in flood]
        assert sorted(reasons) == [(2063, False)] * waiting + [(2071, True)] * (count - waiting)
    finally:
        server.unseal()
    wait_until(lambda: runs(qm), "the server answers again", 60)
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        orders.put("SEALED", clear(b"after"))
        assert bytes(billing.get("SEALED").body) == b"after"


def test_messages_of_links_that_have_ended_hold_their_memory_until_they_are_done_with(qm, server):
    """A link that has messages settled by their sender is not gone when it ends: its others wait for the key, too."""
    qm.mqsc(f"ALTER QLOCAL(SEALED) MAXMSGL({2 * LARGE_BYTES})")
    large = clear(bytes(LARGE_BYTES))
    server.seal()
    try:
        with qm.connect("orders", timeout=90) as orders:
            for _ in range(2):
                sender = orders.sender("SEALED")
                orders.connection.wait(lambda: sender.link.credit > 0, msg="credit")
                sender.link.send(clear(b"settled")).settle()
                for _ in range(SEALING_BYTES_MAX // (4 * LARGE_BYTES)):
                    sender.link.send(large)
                sender.close()
            with pytest.raises(Refused) as refused:
                orders.put("SEALED", large)
            assert refused.value.reason == 2071, str(refused.value)
    finally:
        server.unseal()
    wait_until(lambda: runs(qm), "the server answers again", 60)
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        assert [bytes(billing.get("SEALED").body) for _ in range(2)] == [b"settled"] * 2
        orders.put("SEALED", large)
        assert len(bytes(billing.get("SEALED").body)) == LARGE_BYTES


def test_a_token_that_ends_is_replaced_while_messages_flow_and_is_nowhere_shown(qm, server):
    old = server.token
    server.token = server.new_token()
    server.revoke(old)
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        orders.put("SEALED", clear(b"with another token"))
        assert bytes(billing.get("SEALED").body) == b"with another token"
    wait_until(lambda: any("has another one, which is used" in line for line in qm.log), "the log says so")

    with qm.connect("admin") as admin:
        admin.get_all("SYSTEM.ADMIN.QMGR.EVENT", credit=100)
    assert refused_tokens(qm) == {"VAULT": "0"}
    server.revoke(server.token)
    with qm.connect("orders", timeout=90) as orders, qm.connect("orders", timeout=90) as other:
        with pytest.raises(Refused, match="2063"):
            orders.put("SEALED", clear(b"never"))
        with pytest.raises(Refused, match="2063"):
            other.put("SEALED", clear(b"nor this"))
    assert refused_tokens(qm) == {"VAULT": "1"}
    with qm.connect("admin") as admin:
        events = [json.loads(bytes(message.body)) for message in admin.get_all("SYSTEM.ADMIN.QMGR.EVENT", credit=100)]
    [event] = [event for event in events if event["event"] == "DEVICE.TOKEN.REFUSED"]
    assert event["device"] == "VAULT" and "refused the token (403)" in event["why"], "one, and not one a message"
    qm.says("write a good one into")
    assert sum("write a good one into" in line for line in qm.log) == 1, "and one line of the log"
    shown = device(qm)
    assert shown["STATUS"] == "OFFLINE" and "refused the token (403)" in shown["REASON"]
    gone, server.token = server.token, server.new_token()
    wait_until(lambda: runs(qm), "the new token is read", 60)
    assert refused_tokens(qm) == {"VAULT": "0"}
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        orders.put("SEALED", clear(b"again"))
        assert bytes(billing.get("SEALED").body) == b"again"
    everything = "".join(qm.log) + json.dumps(device(qm)) + (qm.data / "objects.mqsc").read_text()
    everything += qm.run("audit", "show", "--data", qm.data, code=None).stdout.decode()
    assert not any(token in everything for token in (old, gone, server.token))


def test_a_server_that_does_not_prove_its_name_gets_no_token(qm, server, tmp_path):
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "k", "-out", tmp_path / "other.pem", "-subj",
            "/CN=other", "-days", "2")
    define = f"DEFINE DEVICE(OTHER) TYPE(TRANSIT) ADDRESS('{server.address}') TOKENFILE('{server.token_file}')"
    qm.mqsc(f"{define} CAFILE('{tmp_path}/other.pem') AUTOSTART(NO)")
    qm.mqsc("START DEVICE(OTHER)", code=None)
    wait_until(lambda: device(qm, "OTHER")["STATUS"] == "OFFLINE", "it is refused")
    assert "its certificate is not believed" in device(qm, "OTHER")["REASON"]
    qm.mqsc("STOP DEVICE(OTHER)\nDELETE DEVICE(OTHER)")


def test_a_definition_is_refused_where_it_can_not_work(qm):
    for text, why in [
        ("ADDRESS('http://vault:8200') CAFILE('/a') TOKENFILE('/b')", "it does not begin with https://"),
        ("ADDRESS('https://u:hidden@vault') CAFILE('/a') TOKENFILE('/b')", "it has a user in it"),
        ("CAFILE('/a') TOKENFILE('/b')", "needs ADDRESS"),
        ("ADDRESS('https://vault') TOKENFILE('/b')", "needs CAFILE"),
        ("ADDRESS('https://vault') CAFILE('/a')", "needs TOKENFILE"),
        ("ADDRESS('https://vault') CAFILE('a') TOKENFILE('/b')", "CAFILE takes an absolute path"),
        ("ADDRESS('https://vault') CAFILE('/a') TOKENFILE('/b') MOUNT('../sys')", "MOUNT is no path on a server"),
        ("ADDRESS('https://vault') CAFILE('/a') TOKENFILE('/b') MODULE('/m')", "has no MODULE"),
    ]:
        done = qm.run("mqsc", "--data", qm.data, "-c", f"DEFINE DEVICE(BAD) TYPE(TRANSIT) {text}", code=None)
        said = (done.stdout + done.stderr).decode()
        assert why in said and "hidden" not in said, said
