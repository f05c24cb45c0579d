"""Keys on a token, through the queue manager: whatever becomes of the token, messages wait for it, none is lost, and none is
taken for defective."""

import json
import shutil
import time

import pytest

import pkcs11
from manager import ERROR_QUEUE, shown_rows, wait_until
from sites import clear
from test_devices import Stream, meters


@pytest.fixture(scope="module")
def token(tmp_path_factory):
    with pkcs11.softhsm(tmp_path_factory.mktemp("token")) as token:
        yield token


@pytest.fixture(scope="module")
def qm(token, managers):
    """A queue manager whose users' keys are on the token."""
    qm = managers("with-token", options=["--modules", token["module"]])
    pkcs11.define_device(qm, token)
    data = ["--data", qm.data]
    qm.run("cert", "create", "--ca", "trade", "--dn", "CN=trade,O=Token", *data)
    for user, other, key in (("orders", "billing", "rsa2048"), ("billing", "orders", "rsa2048")):
        qm.add_user(user)
        qm.run("cert", "create", "--ring", user, "--dn", f"CN={user},O=Token", "--key", key, "--signer", "trade",
               "--device", "HSM", "--share", other, *data)
    qm.mqsc(
        "DEFINE QLOCAL(SEALED)\nSET POLICY(SEALED) SIGNALG(SHA256) ENCALG(AES256) + \n"
        "  SIGNER('CN=orders,O=Token') RECIP('CN=billing,O=Token')"
    )
    yield qm
    assert qm.process.poll() is None, "the queue manager ended by itself:\n" + "".join(qm.log[-30:])
    assert qm.stop() == 0


def device(qm):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY DEVICE(HSM) ALL")
    return shown_rows(done.stdout)[0]


def test_a_module_that_the_machine_s_owner_has_not_allowed_is_not_loaded(token, managers):
    qm = managers("nothing-allowed", options=["--modules", token["module"].parent / "elsewhere"])
    qm.mqsc(
        f"DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('{token['module']}') TOKEN('pkcs11:token=BULLA') + \n"
        f"  PINFILE('{token['pin']}')\nSTART DEVICE(HSM)",
        code=None,
    )
    wait_until(lambda: device(qm)["STATUS"] == "OFFLINE", "the module is refused")
    assert "is not allowed" in device(qm)["REASON"] and "--modules" in device(qm)["REASON"]
    assert qm.stop() == 0


def test_a_module_that_others_may_write_is_not_loaded(token, managers, tmp_path):
    folder = tmp_path / "open to all"
    folder.mkdir()
    module = shutil.copy(token["module"], folder / "module.so")
    folder.chmod(0o777)
    qm = managers("exposed", options=["--modules", folder])
    qm.mqsc(
        f"DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('{module}') TOKEN('pkcs11:token=BULLA') + \n"
        f"  PINFILE('{token['pin']}')\nSTART DEVICE(HSM)",
        code=None,
    )
    wait_until(lambda: device(qm)["STATUS"] == "OFFLINE", "the module is refused")
    assert "can be written by others (mode 0777)" in device(qm)["REASON"]
    assert qm.stop() == 0


def test_a_key_on_the_token_is_nowhere_else(qm):
    ring = qm.data / "rings/orders/own"
    text = "".join(file.read_text() for file in ring.iterdir())
    assert "pkcs11:" in text and "PRIVATE KEY" not in text and pkcs11.PIN not in text
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        orders.put("SEALED", clear())
        assert bytes(billing.get("SEALED").body) == bytes(clear().body)
    rows = meters(qm)
    assert rows["HSM", "RSA-SIGN", 2048]["JOBS"] >= 1 and rows["HSM", "RSA-UNWRAP", 2048]["JOBS"] >= 1


def doctor(qm, user):
    """(condition, check, cause) of what is not well, and all rows."""
    done = qm.run("doctor", "SEALED", "--user", user, "--data", qm.data, "--json", code=None)
    found = json.loads(done.stdout)["found"]
    broken = [(row["condition"], row["check"], row["cause"]) for row in found if row["condition"] == "BROKEN"]
    # Both may put and get here; one is the signer, the other the recipient.
    meant = {("RECIP", "not-a-recipient"), ("SIGNER", "signer-not-authorised")}
    return [row for row in broken if row[1:] not in meant], found


def test_doctor_uses_a_key_on_the_token_as_a_message_does_and_says_when_it_is_away(qm, token):
    broken, found = doctor(qm, "orders")
    assert broken == []
    said = {row["check"]: row["details"] for row in found if row["condition"] == "WELL"}
    assert "orders → billing" in said["PROBE"] and "its key is on the token of HSM, which runs" in said["DEVICES"]
    rows = json.loads(qm.run("policy", "check", "SEALED", "--data", qm.data, "--json", code=None).stdout)["check"]
    trials = {(row["by"], row["for"]): row["result"] for row in rows if row["check"] == "TRIAL"}
    assert trials["orders", "billing"] == "OPENS"
    with qm.connect("orders") as orders:
        orders.put("SEALED", clear())
    assert doctor(qm, "billing")[0] == []

    token["control"].write_text("removed\n")
    try:
        # Nothing else asks for it: the probe is the first to miss it.
        assert ("BROKEN", "PROBE", "key-unavailable") in doctor(qm, "orders")[0]
        wait_until(lambda: ("BROKEN", "DEVICES", "key-unavailable") in doctor(qm, "orders")[0], "the token is missed")
        assert ("BROKEN", "MESSAGES", "key-unavailable") in doctor(qm, "billing")[0]
    finally:
        token["control"].write_text("")
    wait_until(lambda: device(qm)["STATUS"] == "RUNNING", "the token is back")
    assert doctor(qm, "billing")[0] == []

    qm.mqsc("STOP DEVICE(HSM)")
    broken, found = doctor(qm, "orders")
    [row] = [row for row in found if (row["check"], row["condition"]) == ("DEVICES", "BROKEN")]
    assert "STOPPED" in row["details"] and "START DEVICE('HSM')" in row["mend"][0]
    qm.mqsc("START DEVICE(HSM)")
    wait_until(lambda: device(qm)["STATUS"] == "RUNNING", "it runs again")
    assert doctor(qm, "orders")[0] == []
    with qm.connect("billing") as billing:
        assert bytes(billing.get("SEALED").body) == bytes(clear().body)


def bears_faults(qm, control, stream):
    """Messages go on through what a token and its module get over by themselves."""
    control.write_text("slow 40\n")
    stream.goes_on("the token became slow")

    control.write_text("removed\n")
    wait_until(lambda: device(qm)["STATUS"] != "RUNNING", "the token is missed")
    control.write_text("")
    stream.goes_on("the token came back")

    errors = device(qm)["ERRORS"]
    control.write_text("error 5\n")
    wait_until(lambda: device(qm)["ERRORS"] > errors, "the token's errors are counted")
    control.write_text("")
    stream.goes_on("the token works again")

    control.write_text("crash\n")
    wait_until(lambda: not control.exists(), "the module crashed")
    stream.goes_on("the module crashed: its process, not the queue manager's")

    control.write_text("lost\n")
    stream.goes_on("the sessions were lost")


def test_whatever_becomes_of_the_token_no_message_is_lost_or_condemned(qm, token):
    control = token["control"]
    offline = lambda: device(qm)["STATUS"] != "RUNNING"
    stream = Stream(qm_site(qm), "SEALED")
    stream.goes_on("the start")

    bears_faults(qm, control, stream)

    control.write_text("slow 5000\n")
    wait_until(offline, "a token that does not answer is missed")
    control.write_text("")
    stream.goes_on("the token answers again")

    control.write_text("faulty\n")
    failed = lambda: device(qm)["STATUS"] == "FAILED"
    wait_until(failed, "a result that its public key refutes puts the token out of use")
    assert "public key refutes" in device(qm)["REASON"]
    control.write_text("")
    assert failed(), "it is not used again by itself"
    qm.mqsc("START DEVICE(HSM)")
    stream.goes_on("somebody started the token again")

    qm.mqsc("STOP DEVICE(HSM)")
    control.write_text("pin\n")
    qm.mqsc("START DEVICE(HSM)")
    said = lambda: device(qm)
    wait_until(lambda: "pin" in said()["REASON"].lower(), "the wrong PIN is named")
    control.write_text("")
    qm.mqsc("STOP DEVICE(HSM)\nSTART DEVICE(HSM)")
    stream.goes_on("the PIN is right again")
    stream.end()

    report = json.loads(qm.run("report", "crypto", "--data", qm.data, "--since-start", "--json").stdout)
    assert "HSM" in json.dumps(report) and device(qm)["ERRORS"] > 0


def reseal(qm, code=0):
    done = qm.run("reseal", "RESEALED", "--rate", "1000000", "--data", qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def keys_needed(qm):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY KEYUSE(RESEALED)")
    return {row["SERIAL"]: row["MSGS"] for row in shown_rows(done.stdout)}


def test_messages_for_a_key_on_the_token_are_sealed_anew_for_another_one_and_wait_for_a_token_that_is_away(qm, token):
    data, count = ["--data", qm.data], 30
    make = ("--signer", "trade", "--device", "HSM", "--key", "rsa2048")
    # The queue manager signs what it seals anew, with a key that is on the token as well.
    qm.run("cert", "create", "--ring", "BULLA", "--dn", "CN=BULLA,O=Token", *make, "--share", "billing", *data)
    qm.mqsc(
        "DEFINE QLOCAL(RESEALED)\nSET POLICY(RESEALED) SIGNALG(SHA256) ENCALG(AES256) + \n"
        "  SIGNER('CN=orders,O=Token', 'CN=BULLA,O=Token') RECIP('CN=billing,O=Token')"
    )
    with qm.connect("orders") as orders:
        for number in range(count):
            orders.put("RESEALED", clear(b"%d" % number, id=f"id-{number}"))
    (old,) = keys_needed(qm)
    # A key can't be changed there in one step: another one is made, which seals because it begins later.
    begun = time.time()
    wait_until(lambda: time.time() > begun + 1, "the next second begins")
    share = ("--share", "orders", "--share", "BULLA")
    qm.run("cert", "create", "--ring", "billing", "--dn", "CN=billing,O=Token", *make, *share, *data)

    token["control"].write_text("removed\n")
    try:
        said = reseal(qm, code=4)
        assert "0 messages sealed anew" in said and f"{count} messages: key-unavailable" in said, said
        assert keys_needed(qm) == {old: count}
    finally:
        token["control"].write_text("")
    wait_until(lambda: device(qm)["STATUS"] == "RUNNING", "the token is back")
    before = meters(qm)
    said = reseal(qm)
    assert f"{count} messages sealed anew" in said and f"opened before by {old}" in said, said
    # Each was opened and signed there.
    for operation in ("RSA-SIGN", "RSA-UNWRAP"):
        name = ("HSM", operation, 2048)
        assert meters(qm)[name]["JOBS"] >= before[name]["JOBS"] + count, operation
    needed = keys_needed(qm)
    assert list(needed.values()) == [count] and old not in needed, needed
    qm.run("key", "retire", "billing", old, *data)
    with qm.connect("billing") as billing:
        messages = billing.get_all("RESEALED")
    assert [(bytes(message.body), message.id) for message in messages] == [
        (b"%d" % number, f"id-{number}") for number in range(count)
    ]
    assert qm.depth(ERROR_QUEUE) == 0


def qm_site(qm):
    """What a stream needs of a site."""

    class Site:
        pass

    site = Site()
    site.qm = qm
    return site
