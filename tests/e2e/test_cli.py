"""The program's own command line: what it prints, its exit codes and its hints, with a site set up by itself."""

import contextlib
import itertools
import json
import os
import pty
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest
from proton import Message

import cms
from manager import BULLA, DEADLINE, ERROR_QUEUE, run, wait_until
from opener import PAGE
from pki import CommandFailed, Identity, openssl

POLICY = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Demo') RECIP('CN=billing,O=Demo')"


@pytest.fixture(scope="module")
def qm(managers):
    """Authority, rings and users all by `bulla`."""
    manager = managers()
    cert(manager, "create", "--ca", "demo", "--dn", "CN=Demo authority,O=Demo")
    cert(manager, "create", "--ring", "orders", "--dn", "CN=orders,O=Demo", "--signer", "demo", "--label", "orders", "--share", "billing")  # fmt: skip
    cert(manager, "create", "--ring", "billing", "--dn", "CN=billing,O=Demo", "--signer", "demo", "--label", "billing", "--share", "orders")  # fmt: skip
    manager.add_user("orders")
    manager.add_user("billing")
    manager.mqsc(
        f"DEFINE QLOCAL(PLAIN); DEFINE QLOCAL(SEALED); DEFINE QALIAS(RAW) TARGET(SEALED); SET POLICY(SEALED) {POLICY}"
    )
    yield manager
    assert manager.stop() == 0


@pytest.fixture(autouse=True)
def empty(qm):
    yield
    with qm.connect() as client:
        for queue in ("PLAIN", "RAW", ERROR_QUEUE):
            client.get_all(queue)


def cert(manager, *arguments, code=0):
    done = manager.run("cert", *arguments, "--data", manager.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


# --- put and get ---


def test_a_file_goes_in_and_comes_out(qm, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 100)
    qm.run(
        "put", "PLAIN", file, "--amqp", qm.clear_address, "--property", "a=b", "--content-type", "application/x-test"
    )
    with qm.connect() as client:
        [message] = client.get_all("PLAIN", browse=True)
    assert (message.properties, message.content_type, message.durable) == ({"a": "b"}, "application/x-test", True)
    assert qm.run("get", "PLAIN", "--amqp", qm.clear_address).stdout == file.read_bytes()


def test_a_sealed_file_goes_in_and_comes_out_and_lies_there_sealed(qm, tmp_path):
    qm.run("put", "SEALED", *qm.cli("orders"), stdin=b"two tons of barley")
    raw = qm.run("get", "RAW", "--browse", "--count", 1, "--amqp", qm.clear_address).stdout
    assert b"barley" not in raw
    [own] = (qm.data / "rings/billing/own").iterdir()
    signed = cms.decrypt(raw, Identity("billing", own, own), tmp_path)
    (tmp_path / "signed").write_bytes(signed)
    ca = qm.data / "authorities/demo/ca.pem"
    opened = openssl("cms", "-verify", "-inform", "DER", "-binary", "-in", tmp_path / "signed", "-CAfile", ca)
    assert opened == b"two tons of barley"
    assert qm.run("get", "SEALED", *qm.cli("billing")).stdout == b"two tons of barley"


def test_get_says_when_nothing_is_there(qm):
    done = qm.run("get", "PLAIN", "--amqp", qm.clear_address, code=3)
    assert done.stderr.startswith(b"bulla: error: 2033 MQRC_NO_MSG_AVAILABLE")
    assert qm.run("get", "PLAIN", "--wait", 1, "--amqp", qm.clear_address, code=3).stdout == b""


def test_get_waits_for_a_message(qm):
    getting = subprocess.Popen([BULLA, "get", "PLAIN", "--wait", "--amqp", qm.clear_address], stdout=subprocess.PIPE)
    wait_until(lambda: qm.status("PLAIN")["IPPROCS"] == 1, "somebody gets")
    qm.run("put", "PLAIN", "--amqp", qm.clear_address, stdin=b"at last")
    assert getting.communicate(timeout=DEADLINE)[0] == b"at last"
    assert getting.returncode == 0


def test_get_takes_all_into_a_folder_and_browse_leaves_all(qm, tmp_path):
    for number in range(3):
        qm.run("put", "PLAIN", "--amqp", qm.clear_address, "--priority", number, stdin=b"%d" % number)
    browsed = qm.run("get", "PLAIN", "--browse", "--amqp", qm.clear_address).stdout
    assert (browsed, qm.depth("PLAIN")) == (b"210", 3)
    qm.run("get", "PLAIN", "--out", tmp_path / "out", "--amqp", qm.clear_address)
    assert [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())] == [b"2", b"1", b"0"]
    assert qm.depth("PLAIN") == 0


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["put", "NO.SUCH.QUEUE"], 4, "2085 MQRC_UNKNOWN_OBJECT_NAME"),
        (["get", "NO.SUCH.QUEUE"], 4, "2085 MQRC_UNKNOWN_OBJECT_NAME"),
        (["put", "SEALED"], 4, "2063 MQRC_SECURITY_ERROR cause="),
        (["get", "SEALED"], 4, "2063 MQRC_SECURITY_ERROR cause="),
    ],
)
def test_a_refusal_has_its_reason_and_exit_code_4(qm, arguments, code, said):
    done = qm.run(*arguments, "--amqp", qm.clear_address, stdin=b"x", code=code)
    assert said in done.stderr.decode()


@pytest.mark.parametrize(
    ("port", "options", "says", "hint"),
    [
        ("amqps", [], "clear text may not be spoken there", "on a TLS port, give --ca"),
        ("amqp", ["--ca", "{ca}"], "does not speak TLS", "leave --ca out, or give the TLS port with --amqp"),
        ("amqps", ["--ca", "{other}"], "is not trusted by", "give --ca with the file of the authority"),
    ],
)
def test_a_connection_that_does_not_fit_says_what_is_wrong_and_which_option_to_change(
    qm, authority, port, options, says, hint
):
    address = f"localhost:{qm.ports[port]}"
    options = [option.format(ca=qm.ca, other=authority.certificate) for option in options]
    for command in (["put", "PLAIN"], ["get", "PLAIN"]):
        said = run(*command, "--amqp", address, *options, stdin=b"x")
        assert said.returncode == 6 and says in said.stderr.decode() and f"hint: {hint}" in said.stderr.decode(), said


def test_a_server_whose_certificate_is_for_another_host_is_refused_by_its_name(qm):
    def pass_on(source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(16384):
                target.sendall(piece)
        target.close()

    with socket.create_server(("127.0.0.2", 0)) as listener:
        get = ["get", "PLAIN", "--amqp", f"127.0.0.2:{listener.getsockname()[1]}", "--ca", str(qm.ca)]
        client = subprocess.Popen([BULLA, *get], stderr=subprocess.PIPE)
        near = listener.accept()[0]
        far = socket.create_connection(("127.0.0.1", qm.ports["amqps"]))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=pass_on, args=pair, daemon=True).start()
        said = client.communicate(timeout=DEADLINE)[1]
    assert client.returncode == 6 and b"the server's certificate is not for 127.0.0.2" in said


def test_a_server_with_an_rsa_cipherspec_and_an_ec_certificate_is_told_from_one_that_is_not_there(authority):
    server = authority.issue("localhost", "p256")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE)
        get = ["get", "Q", "--amqp", f"localhost:{listener.getsockname()[1]}", "--ca", str(authority.certificate)]
        client = subprocess.Popen([BULLA, *get], stderr=subprocess.PIPE)
        with pytest.raises(ssl.SSLError), listener.accept()[0] as near:
            context.wrap_socket(near, server_side=True)
        said = client.communicate(timeout=DEADLINE)[1].decode()
    assert client.returncode == 6 and "no CipherSpec in common" in said
    assert "hint: a CipherSpec with RSA in its name needs an RSA certificate" in said


def test_put_says_that_it_waits_for_room_and_for_how_long(qm):
    qm.mqsc("DEFINE QLOCAL(SMALL) MAXDEPTH(1) FULL(WAIT)")
    put = ["put", "SMALL", "--amqp", qm.clear_address]
    qm.run(*put, stdin=b"1")
    said = qm.run(*put, "--timeout", 2, stdin=b"2", code=1).stderr.decode()
    assert "SMALL takes no message: it is probably full; waiting for up to 2 s (--timeout)" in said
    assert "SMALL took no message within 2 s" in said and "MAXDEPTH" in said
    waiting = subprocess.Popen([BULLA, *map(str, put)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    waiting.stdin.write(b"2")
    waiting.stdin.close()
    assert b"waiting for up to 60 s" in waiting.stderr.readline()
    assert qm.run("get", "SMALL", "--amqp", qm.clear_address).stdout == b"1"
    assert waiting.wait(DEADLINE) == 0


def test_a_client_is_not_told_where_the_server_keeps_its_rings(qm):
    qm.add_user("ringless")
    (qm.data / "rings/ringless").mkdir(mode=0o755)
    said = qm.run("put", "SEALED", *qm.cli("ringless"), stdin=b"x", code=4).stderr.decode()
    assert "cause=key-ring ringless: ringless has mode 0755" in said and str(qm.data) not in said


def test_nobody_listening_is_exit_code_6_with_a_hint():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = run("get", "Q", "--amqp", f"127.0.0.1:{unused.getsockname()[1]}")
    assert done.returncode == 6
    assert b"bulla: hint: is the queue manager started?" in done.stderr


def test_a_wrong_password_is_refused(qm, tmp_path):
    (tmp_path / "password").write_text("wrong\n")
    qm.run("put", "PLAIN", "--amqp", qm.clear_address, "--user", "orders", "--password-file", tmp_path / "password", stdin=b"x", code=4)  # fmt: skip
    assert qm.depth("PLAIN") == 0


def test_put_and_get_speak_tls(qm):
    tls = ["--amqp", f"localhost:{qm.ports['amqps']}", "--ca", qm.ca, *qm.cli("orders")[2:]]
    qm.run("put", "PLAIN", *tls, stdin=b"over tls")
    assert qm.run("get", "PLAIN", *tls).stdout == b"over tls"
    done = qm.run("put", "PLAIN", *tls[:3], qm.data / "authorities/demo/ca.pem", stdin=b"x", code=6)
    assert b"error" in done.stderr


# --- sealing on the client's side ---


@pytest.fixture(scope="module")
def own_policies(qm):
    for user in ("orders", "billing"):
        folder = qm.data / "rings" / user / "policies"
        folder.mkdir(mode=0o700)
        (folder / "SEALED.mqsc").write_text(f"SET POLICY(SEALED) {POLICY}\n")


def test_with_a_ring_the_client_seals_and_opens_and_the_queue_manager_sees_nothing(qm, own_policies):
    putter = [*qm.cli("orders"), "--ring", "orders", "--data", qm.data]
    getter = [*qm.cli("billing"), "--ring", "billing", "--data", qm.data]
    qm.run("put", "SEALED", *putter, stdin=b"sealed at home")
    raw = qm.run("get", "RAW", "--browse", "--count", 1, "--amqp", qm.clear_address).stdout
    assert b"sealed at home" not in raw
    assert qm.run("get", "SEALED", *getter).stdout == b"sealed at home"
    # What one side seals the other opens, whichever side it is.
    qm.run("put", "SEALED", *putter, stdin=b"opened there")
    assert qm.run("get", "SEALED", *qm.cli("billing")).stdout == b"opened there"
    qm.run("put", "SEALED", *qm.cli("orders"), stdin=b"sealed there")
    assert qm.run("get", "SEALED", *getter).stdout == b"sealed there"


def test_a_served_policy_that_is_weaker_than_the_rings_is_refused_unless_asked_for(qm, own_policies):
    qm.mqsc("DEFINE QLOCAL(WEAKER) REPLACE; SET POLICY(WEAKER) SIGNALG(SHA256)")
    (qm.data / "rings/orders/policies/WEAKER.mqsc").write_text(f"SET POLICY(WEAKER) {POLICY}\n")
    putter = [*qm.cli("orders"), "--ring", "orders", "--data", qm.data]
    done = qm.run("put", "WEAKER", *putter, stdin=b"x", code=None)
    assert done.returncode != 0 and b"hint: --served-policy WEAKER" in done.stderr
    assert qm.depth("WEAKER") == 0
    qm.run("put", "WEAKER", *putter, "--served-policy", "WEAKER", stdin=b"x")
    assert qm.depth("WEAKER") == 1


def test_without_a_policy_of_its_own_a_ring_does_not_trust_the_served_one(qm, own_policies):
    qm.mqsc(f"DEFINE QLOCAL(UNKNOWN) REPLACE; SET POLICY(UNKNOWN) {POLICY}")
    done = qm.run("put", "UNKNOWN", *qm.cli("orders"), "--ring", "orders", "--data", qm.data, stdin=b"x", code=None)
    assert done.returncode != 0 and b"--served-policy UNKNOWN" in done.stderr
    assert qm.depth("UNKNOWN") == 0


@pytest.mark.parametrize("protection", ["SIGNALG(SHA256) ENCALG(AES256)", "ENCALG(AES256)"])
def test_the_queue_manager_needs_no_ring_of_a_client_that_seals_for_itself(qm, tmp_path, protection):
    home = lambda user: tmp_path / user
    users = [f"{user}{len(protection)}" for user in ("putter", "getter")]
    for user, other in (users, users[::-1]):
        cert(
            qm, "create", "--ring", home(user), "--dn", f"CN={user},O=Demo", "--signer", "demo", "--share", home(other)
        )
        qm.add_user(user)
    putter, getter = users
    policy = f"SET POLICY(HOME) {protection} RECIP('CN={getter},O=Demo')"
    qm.mqsc(f"DEFINE QLOCAL(HOME) REPLACE; {policy}")
    for user in users:
        (home(user) / "policies").mkdir(mode=0o700)
        (home(user) / "policies/HOME.mqsc").write_text(policy + "\n")
    qm.run("put", "HOME", *qm.cli(putter), "--ring", home(putter), stdin=b"end to end")
    assert qm.run("get", "HOME", *qm.cli(getter), "--ring", home(getter)).stdout == b"end to end"


def test_a_wrong_passphrase_of_a_ring_is_said_without_repeating_it(qm, own_policies, tmp_path):
    (tmp_path / "right").write_text("open sesame\n")
    (tmp_path / "wrong").write_text("barley\n")
    ring = tmp_path / "locked"
    cert(qm, "create", "--ring", ring, "--dn", "CN=locked,O=Demo", "--signer", "demo", "--passphrase-file", tmp_path / "right")  # fmt: skip
    [key] = (ring / "own").iterdir()
    assert "ENCRYPTED PRIVATE KEY" in key.read_text()
    qm.mqsc(
        "DEFINE QLOCAL(SIGNED) REPLACE; SET POLICY(SIGNED) ENCALG(AES256) SIGNALG(SHA256) RECIP('CN=locked,O=Demo')"
    )
    qm.add_user("locked")
    put = ["put", "SIGNED", *qm.cli("locked"), "--ring", ring, "--served-policy", "SIGNED"]
    done = qm.run(*put, "--passphrase-file", tmp_path / "wrong", stdin=b"x", code=None)
    assert done.returncode != 0 and b"passphrase" in done.stderr and b"barley" not in done.stderr
    qm.run(*put, "--passphrase-file", tmp_path / "right", stdin=b"x")
    assert qm.depth("SIGNED") == 1


# --- seal inspect ---


def test_inspect_says_what_an_envelope_says_of_itself(qm, tmp_path):
    qm.run("put", "SEALED", *qm.cli("orders"), stdin=b"x" * 1000)
    raw = qm.run("get", "RAW", "--browse", "--count", 1, "--amqp", qm.clear_address).stdout
    (tmp_path / "sealed.der").write_bytes(raw)
    seen = json.loads(qm.run("seal", "inspect", tmp_path / "sealed.der", "--json").stdout)
    assert (seen["container"], seen["cipher"], len(seen["recipients"])) == ("authEnveloped-data", "AES256", 1)
    assert seen["binding"] is None, "with privacy it is inside"
    assert seen["sizes"]["total"] == len(raw)
    assert sum(seen["sizes"].values()) == 2 * len(raw), "the parts make the whole"
    text = qm.run("seal", "inspect", "-", stdin=raw).stdout.decode()
    assert "what is said inside" in text and "AES256" in text
    options = ["--ring", qm.data / "rings/billing", "--destination", "SEALED@BULLA", "--policy", POLICY]
    done = run("seal", "open", "-", *options, stdin=raw)
    assert (done.returncode, done.stdout) == (0, b"x" * 1000), done.stderr
    assert b"bound to SEALED@BULLA" in done.stderr and b"sealed by queue manager BULLA" in done.stderr


def test_inspect_of_something_else_says_so(tmp_path):
    done = run("seal", "inspect", "-", stdin=b"hello")
    assert done.returncode == 1 and done.stderr.startswith(b"bulla: error: -: ")


# --- error ---


def test_errors_are_listed_shown_and_put_back_once(qm):
    data, queue = ["--data", qm.data], "SEALED"
    qm.run("put", queue, *qm.cli("orders"), stdin=b"by the wrong signer")
    qm.mqsc(f"SET POLICY(SEALED) {POLICY.replace('CN=orders', 'CN=somebody else')}", code=None)
    qm.run("get", queue, *qm.cli("billing"), code=4)
    listed = qm.run("error", "list", "--amqp", qm.clear_address).stdout.decode()
    assert re.fullmatch(r" +1  \S+  SEALED  cause=signer-not-authorised  .*CN=orders,O=Demo.*\n", listed)
    shown = qm.run("error", "show", 1, "--amqp", qm.clear_address)
    assert b"signer-not-authorised" in shown.stderr and b"2063" in shown.stderr
    assert shown.stdout[:1] == b"\x30"
    qm.mqsc(f"SET POLICY(SEALED) {POLICY}")
    qm.run("error", "replay", "--queue", queue, *data)
    assert (qm.depth(ERROR_QUEUE), qm.depth(queue)) == (0, 1)
    qm.run("error", "replay", "--queue", queue, *data, code=None)
    assert qm.depth(queue) == 1
    assert qm.run("get", queue, *qm.cli("billing")).stdout == b"by the wrong signer"
    qm.run("error", "show", 1, "--amqp", qm.clear_address, code=3)


def test_every_error_is_listed(qm):
    for _ in range(3):
        qm.run("put", "RAW", "--amqp", qm.clear_address, stdin=b"in clear")
        qm.run("get", "SEALED", *qm.cli("billing"), code=4)
    listed = qm.run("error", "list", "--amqp", qm.clear_address).stdout.decode().splitlines()
    assert [line.split()[0] for line in listed] == ["1", "2", "3"]


# --- mqsc ---


def test_mqsc_answers_explains_and_suggests(qm):
    done = qm.run("mqsc", "--data", qm.data, "-c", "DEFINE QLOCAL(A) MAXDEPHT(5000)", code=2)
    assert done.stderr.decode() == (
        "bulla: error: DEFINE QLOCAL has no attribute MAXDEPHT\nbulla: hint: did you mean MAXDEPTH?\n"
    )
    assert qm.mqsc("DEFINE QLOCAL(TWICE); DEFINE QLOCAL(TWICE)", code=4).count("TWICE") >= 2
    assert "MAXDEPTH(7)" in qm.mqsc("DEF QL(SEVEN) MAXDEPTH(7); DIS QL(SEV*) ALL")
    assert "SEVEN" in qm.mqsc("DIS QL(*) WHERE(MAXDEPTH EQ 7)")


def test_mqsc_without_a_queue_manager_is_exit_code_6_with_a_hint(tmp_path):
    done = run("mqsc", "--data", tmp_path, "-c", "DISPLAY QMGR")
    assert done.returncode == 6 and b"bulla: hint:" in done.stderr


def test_definitions_survive_a_restart(managers):
    manager = managers("kept")
    manager.mqsc(
        "DEFINE QLOCAL(A) MAXDEPTH(7) DESCR('kept'); DEFINE QALIAS(B) TARGET(A); SET POLICY(B) SIGNALG(SHA256)"
    )
    show = "DISPLAY QUEUE(*) ALL; DISPLAY POLICY(*) ALL"
    before = manager.mqsc(show)
    assert manager.stop() == 0
    manager.start()
    assert manager.mqsc(show) == before
    assert manager.stop() == 0


def test_the_data_directory_is_for_its_owner_alone(qm):
    assert qm.data.stat().st_mode & 0o077 == 0
    for path in qm.data.rglob("*"):
        if path.is_socket() or path.name == "users" or path.suffix == ".key":
            assert path.stat().st_mode & 0o077 == 0, path


# --- user ---


def test_users_come_and_go(qm):
    user = lambda *arguments, **more: qm.run("user", *arguments, "--data", qm.data, **more)
    assert user("add", "temporary", stdin=b"correct horse\n").stdout == b"user temporary added\n"
    assert b"temporary" in user("list").stdout
    assert "temporary" in json.loads(user("list", "--json").stdout)
    done = user("add", "temporary", stdin=b"other\n", code=4)
    assert b"hint: bulla user passwd temporary" in done.stderr
    qm.passwords["temporary"] = "correct horse"
    qm.connect("temporary").close()
    user("passwd", "temporary", stdin=b"changed\n")
    qm.passwords["temporary"] = "changed"
    qm.connect("temporary").close()
    user("remove", "temporary")
    user("remove", "temporary", code=4)
    user("add", "no good", stdin=b"x\n", code=2)
    assert b"correct horse" not in (qm.data / "users").read_bytes()


def test_a_password_that_is_typed_is_not_shown(qm):
    terminal, slave = pty.openpty()
    command = [BULLA, "user", "add", "typist", "--data", qm.data, "--rounds", "4096"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""

    def read():
        nonlocal shown
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # the program has closed the terminal
            return False
        return True

    while b"password for typist" not in shown:
        assert read(), shown
    os.write(terminal, b"correct horse\n")
    while read():
        pass
    os.close(terminal)
    assert process.wait(30) == 0, shown
    assert b"user typist added" in shown and b"correct horse" not in shown


# --- cert ---


@pytest.mark.parametrize("key", ["rsa1024", "rsa3072", "rsa4096", "p192", "p224", "p256", "p384", "p521"])
def test_certificates_of_every_key_type_verify_with_openssl(qm, key):
    cert(qm, "create", "--ring", "keys", "--dn", f"CN={key},O=Demo", "--key", key, "--signer", "demo", "--label", key)
    file = qm.data / f"rings/keys/own/{key}.pem"
    openssl("verify", "-CAfile", qm.data / "authorities/demo/ca.pem", file)
    rows = json.loads(qm.run("cert", "list", "--ring", "keys", "--json", "--data", qm.data).stdout)
    [row] = [row for row in rows if row["label"] == key]
    assert (row["private_key"], row["status"], row["key_size"]) == (True, "valid", int(re.sub(r"\D", "", key)))


def test_a_request_is_signed_and_imported(qm, tmp_path):
    request, key, signed = tmp_path / "r.csr", tmp_path / "r.key", tmp_path / "r.pem"
    cert(qm, "create", "--request", request, "--key-out", key, "--dn", "CN=requested,O=Demo", "--key", "p256")
    openssl("req", "-in", request, "-noout", "-verify")
    cert(qm, "sign", request, "--signer", "demo", "--out", signed)
    cert(qm, "import", signed, "--ring", "requested", "--key-file", key, "--label", "requested")
    cert(qm, "import", qm.data / "authorities/demo/ca.pem", "--ring", "requested", "--as", "trust")
    assert "valid" in cert(qm, "show", "requested", "--ring", "requested")


def test_pkcs12_goes_out_and_comes_in_again(qm, tmp_path):
    (tmp_path / "pass").write_text("secret\n")
    file = tmp_path / "orders.p12"
    cert(qm, "export", "orders", "--ring", "orders", "--format", "p12", "--private", "--out", file, "--to-passphrase-file", tmp_path / "pass")  # fmt: skip
    assert b"PRIVATE KEY" in openssl("pkcs12", "-in", file, "-passin", "pass:secret", "-nodes")
    copy = ["import", file, "--ring", "copied", "--label", "orders", "--from-passphrase-file", tmp_path / "pass"]
    said = cert(qm, *copy, code=None)
    assert "holds a private key" in said and "--as own puts the key into the ring of copied" in said
    assert not list((qm.data / "rings/copied").glob("own/*"))
    cert(qm, *copy, "--as", "own")
    assert "CN=orders,O=Demo" in cert(qm, "show", "orders", "--ring", "copied")
    made = tmp_path / "made.p12"
    own = qm.data / "rings/orders/own/orders.pem"
    openssl("pkcs12", "-export", "-in", own, "-inkey", own, "-passout", "pass:secret", "-out", made)
    secret = ["--from-passphrase-file", tmp_path / "pass"]
    cert(qm, "import", made, "--ring", "made", "--label", "orders", "--as", "own", *secret)
    (tmp_path / "wrong").write_text("wrong\n")
    said = cert(qm, "import", made, "--ring", "other", "--from-passphrase-file", tmp_path / "wrong", code=None)
    assert "error" in said and "hint" in said


def test_a_revoked_certificate_shows_as_revoked_and_seals_no_more(qm):
    cert(qm, "create", "--ring", "leaving", "--dn", "CN=leaving,O=Demo", "--signer", "demo", "--label", "leaving")
    [row] = [row for row in json.loads(cert(qm, "list", "--ring", "leaving", "--json")) if row["label"] == "leaving"]
    assert row["status"] == "valid"
    qm.add_user("leaving")
    said = cert(qm, "revoke", row["serial"], "--signer", "demo")
    assert "new revocation list in the ring of leaving" in said
    assert "revoked" in cert(qm, "list", "--ring", "leaving")
    crl = qm.data / "rings/leaving/crl/demo.pem"
    own = qm.data / "rings/leaving/own/leaving.pem"
    with pytest.raises(CommandFailed, match="revoked"):
        openssl("verify", "-crl_check", "-CAfile", qm.data / "authorities/demo/ca.pem", "-CRLfile", crl, own)
    qm.mqsc("DEFINE QLOCAL(LEAVING) REPLACE; SET POLICY(LEAVING) SIGNALG(SHA256)")
    # The list is seen within a second: something may have looked at the ring just before.
    put = lambda: qm.run("put", "LEAVING", *qm.cli("leaving"), stdin=b"x", code=None).stderr
    wait_until(lambda: b"cause=certificate-revoked" in put(), "a put with the revoked certificate is refused")


def test_a_usage_that_does_not_fit_the_key_is_refused(qm):
    said = cert(qm, "create", "--ring", "x", "--dn", "CN=x", "--key", "rsa2048", "--usage", "keyagree", "--signer", "demo", code=None)  # fmt: skip
    assert "error" in said


# --- start and stop ---


def test_a_port_in_use_is_said_with_a_hint(qm, tmp_path):
    done = run("start", "--data", tmp_path / "x", "--amqp", qm.clear_address, "--amqps", "none")
    assert done.returncode == 5
    assert f"bulla: error: {qm.clear_address} is in use" in done.stderr.decode()
    assert b"bulla: hint: " in done.stderr


def test_a_data_directory_in_use_is_said_with_a_hint(qm):
    done = run("start", "--data", qm.data, "--amqp", "127.0.0.1:0", "--amqps", "none")
    assert done.returncode == 5
    assert b"is in use by another queue manager" in done.stderr and b"bulla: hint: " in done.stderr


@pytest.mark.parametrize("number, connected", [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_signal_stops_it_cleanly_and_the_journal_is_sound(managers, number, connected):
    manager = managers(f"signalled-{number}")
    manager.mqsc("DEFINE QLOCAL(Q)")
    client = manager.connect()
    sender = client.sender("Q")
    for each in range(10):
        client.put("Q", Message(body=each, durable=True), sender)
    if not connected:
        client.close()
    manager.process.send_signal(number)
    assert manager.process.wait(DEADLINE) == 0
    manager.run("journal", "check", "--data", manager.data)
    manager.start()
    assert manager.depth("Q") == 10
    assert manager.stop() == 0


def test_a_wrong_command_line_is_exit_code_2():
    for arguments in (["start", "--amqp", "nowhere"], ["put"], ["nonsense"], ["get", "Q", "--count", "many"]):
        assert run(*arguments).returncode == 2


def test_help_and_version_are_there():
    assert b"Usage: bulla" in run("--help").stdout
    assert re.fullmatch(rb"bulla \d+\.\d+\.\d+\n", run("--version").stdout)
    for command in ("start", "mqsc", "user", "put", "get", "cert", "seal", "error", "journal"):
        assert run(command, "--help").returncode == 0


def test_the_demonstration_says_which_openssl_it_needs_where_the_one_here_will_not_do(tmp_path):
    old = tmp_path / "bin/openssl"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\n[ $1 = version ] && echo OpenSSL 1.1.1w && exit\necho 'wrong tag' >&2\nexit 1\n")
    old.chmod(0o755)
    demo = subprocess.Popen(
        [BULLA, "demo", "--data", tmp_path / "demo", "--amqp", "127.0.0.1:0", "--amqps", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PATH": f"{old.parent}:{os.environ['PATH']}"},
    )
    try:
        lines = list(itertools.takewhile(lambda line: "3. get it as" not in line, demo.stdout))
        assert "needs an `openssl` program of version 3.0 or newer; the one here is OpenSSL 1.1.1w" in "".join(lines)
    finally:
        demo.terminate()
        assert demo.wait(DEADLINE) == 0


def test_the_demonstration_starts_and_its_commands_work(tmp_path):
    data = tmp_path / "demo"
    demo = subprocess.Popen(
        [BULLA, "demo", "--data", data, "--amqp", "127.0.0.1:0", "--amqps", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        said = ""
        while "3. get it as" not in said or not said.endswith("billing.password\n"):
            line = demo.stdout.readline()
            assert line, demo.stderr.read()
            said += line
        commands = re.findall(r"^   (\S.*(?:\n     .*)?)", said, re.MULTILINE)
        assert len(commands) >= 3, said
        shell = lambda command: subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
        )
        answers = [shell(command) for command in commands]
        assert [answer.returncode for answer in answers] == [0] * len(answers), [a.stderr for a in answers]
        assert [answer.stdout for answer in answers].count(b"two tons of barley\n") == 2
    finally:
        demo.terminate()
        assert demo.wait(DEADLINE) == 0


# --- the queue manager's name ---


def refused_start(data, *options, code):
    """Starts where it must not; what is said."""
    done = subprocess.run(
        [BULLA, "start", "--until-stdin-closes", "--data", data, "--amqp", "none", "--amqps", "none", *options],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", ["My QM", "", "QM@X", "Q" * 49, "QM\nX", "Käse"])
def test_a_name_that_the_definitions_could_not_hold_is_refused_before_anything_is_made(tmp_path, name):
    said = refused_start(tmp_path / "qm", "--name", name, code=2)
    assert "1 to 48 of the characters A-Z a-z 0-9 . _ / %" in said
    assert not (tmp_path / "qm").exists()


@pytest.mark.parametrize("name", ["My QM", "", "Q" * 60])
def test_a_data_directory_with_a_name_that_is_none_says_the_way_out(tmp_path, name):
    data = tmp_path / "qm"
    refused_start(data, "--name", "QM1", code=0)
    objects = data / "objects.mqsc"
    # A directory of a version that kept definitions in the file alone.
    shutil.rmtree(data / "journal")
    good = objects.read_text()
    objects.write_text(good.replace("queue manager QM1", f"queue manager {name}", 1))
    said = refused_start(data, code=5)
    assert f"objects.mqsc:1: '{name}' is not a name for a queue manager" in said
    assert "write another name in its place" in said
    objects.write_text(good.replace("queue manager QM1", "queue manager QM2", 1))
    refused_start(data, code=0)


def test_another_name_than_that_of_the_data_directory_is_refused(tmp_path):
    refused_start(tmp_path, "--name", "QM1", code=0)
    said = refused_start(tmp_path, "--name", "OTHER", code=5)
    assert "is the data directory of queue manager QM1, not of OTHER" in said
    refused_start(tmp_path, "--name", "QM1", code=0)


def test_a_queue_manager_without_a_name_gets_one_of_its_own_and_keeps_it(tmp_path):
    def name(data):
        return re.search("queue manager (.*)", (data / "objects.mqsc").read_text())[1]

    for data in (tmp_path / "one", tmp_path / "two"):
        refused_start(data, code=0)
    first, second = name(tmp_path / "one"), name(tmp_path / "two")
    assert first != second and re.fullmatch(r"[A-Z0-9._]{1,39}\.[0-9A-F]{8}", first), first
    refused_start(tmp_path / "one", code=0)
    assert name(tmp_path / "one") == first


# --- sealed messages in files ---

EXAMPLE = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Example') RECIP('CN=billing,O=Example')"
TEST_DATA = Path(__file__).parents[2] / "testdata/seal"
AT_HOME = ["--destination", "ORDERS@QM1", "--message-id", "id-1"]


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The private message of the page on the format, and the ring of its reader."""
    ring = tmp_path_factory.mktemp("example") / "billing"
    for data in (TEST_DATA / "billing", TEST_DATA / "former/billing"):
        for place in ("own/billing.pem", "trust/ca.pem"):
            copy = ring.with_name("former" if "former" in data.parts else "billing") / place
            copy.parent.mkdir(parents=True)
            copy.write_bytes((data / place).read_bytes())
            copy.chmod(0o600)
            copy.parent.chmod(0o700)
            copy.parents[1].chmod(0o700)
    [digits] = re.findall(r"### Example: privacy\n.*?```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = ring.with_name("message.der")
    file.write_bytes(bytes.fromhex(digits))
    return file, ring


def seal_open(file, *options, policy=EXAMPLE):
    done = run("seal", "open", file, "--policy", policy, *options)
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_sealed_file_opens_offline_with_a_ring_or_with_single_files(example, tmp_path):
    file, ring = example
    own, trust = ring / "own/billing.pem", ring / "trust/ca.pem"
    for keys in (["--ring", ring], ["--key", own, "--cert", own, "--trust", trust]):
        code, payload, said = seal_open(file, *keys, *AT_HOME)
        assert (code, payload) == (0, b"seventeen cows, two of them red"), said
        assert 'privacy, signed by "CN=orders,O=Example"' in said
        assert "bound to ORDERS@QM1, message id a10469642d31" in said
        assert "not compared: properties, application properties, annotations" in said
    code, payload, said = seal_open(file, "--ring", ring, "--no-binding", "--out", tmp_path / "payload")
    assert (code, payload) == (0, b""), said
    assert "THE BINDING WAS NOT COMPARED" in said
    assert (tmp_path / "payload").read_bytes() == b"seventeen cows, two of them red"
    assert (tmp_path / "payload").stat().st_mode & 0o777 == 0o600


def test_a_sealed_file_that_does_not_open_says_why_by_cause_and_exit_code(example, tmp_path):
    file, ring = example
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    (tmp_path / "cut").write_bytes(file.read_bytes()[:100])
    (tmp_path / "clear").write_bytes(b"a clear text")
    mine = ["--ring", ring, *AT_HOME]
    for name, options, policy, code, cause in [
        (tmp_path / "changed", mine, EXAMPLE, 7, "cannot-decrypt"),
        (tmp_path / "cut", mine, EXAMPLE, 7, "malformed"),
        (tmp_path / "clear", mine, EXAMPLE, 4, "not-sealed"),
        (file, ["--ring", ring.with_name("former"), *AT_HOME], EXAMPLE, 3, "not-a-recipient"),
        (file, ["--ring", ring, "--destination", "OTHER@QM1"], EXAMPLE, 4, "moved"),
        (file, ["--ring", ring, "--destination", "ORDERS@QM1", "--message-id", "id-2"], EXAMPLE, 7, "tampered"),
        (file, [*mine, "--properties", "00" * 32], EXAMPLE, 7, "tampered"),
        (file, mine, EXAMPLE.replace("AES256", "AES128"), 4, "weaker-than-policy"),
        (file, mine, EXAMPLE.replace("CN=orders", "CN=audit"), 4, "signer-not-authorised"),
        (file, [*mine, "--put-at", "1000000000"], EXAMPLE, 4, "certificate-not-yet-valid"),
    ]:
        found, payload, said = seal_open(name, *options, policy=policy)
        assert (found, payload) == (code, b"") and f"cause={cause}" in said, (cause, found, said)
    for options, policy in [
        (["--ring", ring], EXAMPLE),
        (AT_HOME, EXAMPLE),
        (mine, "SIGNALG(MD5)"),
        ([*mine, "--properties", "12"], EXAMPLE),
        ([*mine, "--no-binding"], EXAMPLE),
    ]:
        assert seal_open(file, *options, policy=policy)[0] == 2, options


def test_who_reaches_the_port_right_after_the_start_reaches_the_admin_socket_too(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    data = tmp_path / "qm"
    qm = subprocess.Popen(
        [BULLA, "start", "--data", data, "--amqp", f"127.0.0.1:{address[1]}", "--amqps", "127.0.0.1:0"],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait = time.monotonic() + DEADLINE
        with contextlib.ExitStack() as stack:
            while stack.enter_context(socket.socket()).connect_ex(address) != 0:
                stack.close()
                assert qm.poll() is None and time.monotonic() < wait
        assert (data / "admin.sock").exists()
        assert run("mqsc", "--data", data, "-c", "DISPLAY QMGR").returncode == 0
    finally:
        qm.terminate()
        assert qm.wait(DEADLINE) == 0
