"""The audit log of a queue manager: what is in it, and what shows when somebody has changed it."""

import json
import os
import stat

import pytest
from proton import ConnectionException, Message

from manager import ERROR_QUEUE, run, wait_until
from people import People
from proton_driver import Client, Refused

HEADS = 64


@pytest.fixture(scope="module")
def qm(managers):
    """Users may connect, and do nothing else until a test lets them."""
    manager = managers(name="AUDITED", grants=None)
    manager.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)")
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0, "it did not stop cleanly:\n" + "".join(manager.log[-30:])
    assert entries(manager)[-1]["kind"] == "stop"
    verify(manager)


@pytest.fixture(scope="module")
def people(qm, authority):
    people = People(qm, authority)
    for name in ("orders", "billing"):
        people.add(name)
    return people


def entries(manager, *kinds, data=None):
    options = ["--kind", ",".join(kinds)] if kinds else []
    done = manager.run("audit", "show", "--json", *options, "--data", data or manager.data)
    return [json.loads(line) for line in done.stdout.splitlines()]


def found(manager, kind, fits):
    """The entries of a kind that fit, once there are some: they come within a second."""
    return wait_until(lambda: [entry for entry in entries(manager, kind) if fits(entry)], f"there is such a {kind}")


def verify(manager, *options, code=0, data=None):
    done = run("audit", "verify", "--data", data or manager.data, *options)
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
    return done.stdout.decode()


def head(manager):
    return manager.run("audit", "head", "--data", manager.data).stdout.decode().strip()


def commands(manager):
    """Every command that is written down, with what came of it."""
    asked = [entry for entry in entries(manager, "command", "policy", "result")]
    texts = [entry for entry in asked if entry["kind"] != "result"]
    results = [entry for entry in asked if entry["kind"] == "result"]
    return texts, results


# ---- what is in it


def test_a_command_is_in_it_with_who_gave_it_and_what_came_of_it_when_it_is_answered(qm):
    qm.mqsc("DEFINE QLOCAL(WHEAT) MAXDEPTH(17) DESCR('it''s wheat')")
    texts, results = commands(qm)
    assert texts[-1]["what"] == {"text": "DEFINE QLOCAL(WHEAT) MAXDEPTH(17) DESCR('it''s wheat')"}
    who = texts[-1]["who"]
    assert (who["uid"], who["gid"]) == (os.getuid(), os.getgid()) and who["pid"] > 0
    assert results[-1]["what"] == {"command": "DEFINE QLOCAL(WHEAT)", "outcome": "done", "message": "queue WHEAT defined"}
    assert results[-1]["who"] == who
    qm.mqsc("DEFINE QLOCAL(WHEAT)", code=None)
    texts, results = commands(qm)
    assert texts[-1]["what"]["text"] == "DEFINE QLOCAL(WHEAT)"
    assert results[-1]["what"]["outcome"] == "refused"
    qm.mqsc("BEGIN UNIT\nDEFINE QLOCAL(RYE)\nDEFINE QLOCAL(OATS)")
    texts, results = commands(qm)
    assert [entry["what"] for entry in texts[-2:]] == [
        {"text": "DEFINE QLOCAL(RYE)", "unit": True},
        {"text": "DEFINE QLOCAL(OATS)", "unit": True},
    ]
    assert [entry["what"]["outcome"] for entry in results[-2:]] == ["done", "done"]


def test_what_shows_something_is_not_in_it(qm):
    before = len(entries(qm, "command", "policy", "result"))
    qm.mqsc("DISPLAY QMGR\nHELP\nDISPLAY QLOCAL(*)")
    qm.mqsc("DISPLAY NONSENSE(", code=None)
    assert len(entries(qm, "command", "policy", "result")) == before


def test_a_policy_is_an_entry_of_its_own_kind(qm):
    qm.mqsc("DEFINE QLOCAL(SEALED.ONE)\nSET POLICY(SEALED.ONE) SIGNALG(SHA256)\nDELETE POLICY(SEALED.ONE)")
    texts = [entry["what"]["text"] for entry in entries(qm, "policy")]
    assert texts[-2:] == ["SET POLICY(SEALED.ONE) SIGNALG(SHA256)", "DELETE POLICY(SEALED.ONE)"]


def test_a_pin_that_somebody_gave_is_struck_out_though_the_command_is_refused(qm):
    qm.mqsc(
        "DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('/lib/x.so') TOKEN('pkcs11:token=b?pin-value=s3cr3t')", code=None
    )
    texts, _ = commands(qm)
    assert "pin-value=***" in texts[-1]["what"]["text"]
    assert not any(b"s3cr3t" in path.read_bytes() for path in (qm.data / "audit").iterdir())


def test_a_refusal_by_authority_is_in_it_with_who_asked_for_what(qm, people):
    qm.mqsc("DEFINE QLOCAL(SECRET)")
    with qm.connect("orders") as client:
        with pytest.raises(Refused):
            client.put("SECRET", Message(body="barley"))
    [refusal, *_] = found(qm, "refusal", lambda entry: entry["what"]["object"] == "SECRET")
    assert refusal["who"]["user"] == "orders" and refusal["who"]["address"].startswith("127.0.0.1:")
    assert (refusal["what"]["action"], refusal["what"]["reason"]) == ("put", 2035)


def test_a_wrong_password_is_in_it(qm, people):
    with pytest.raises((Refused, ConnectionException)):
        Client(qm.amqps, "orders", "not the password", qm.ca, timeout=20)
    found(qm, "refusal", lambda entry: entry["what"]["action"] == "connect" and "sign-in" in entry["what"]["detail"])


def test_whoever_a_rule_keeps_out_or_would_keep_out_is_in_it(qm, people):
    rule = "SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(USERMAP) CLNTUSER('billing') USERSRC(NOACCESS)"
    qm.mqsc(f"{rule} WARN(YES)")
    with qm.connect("billing"):
        pass
    kept_out = lambda entry: entry["who"].get("user") == "billing" and "kept out by" in entry["what"]["detail"]
    [let_in, *_] = found(qm, "refusal", kept_out)
    assert let_in["what"]["let_in"] is True and let_in["who"]["address"].startswith("127.0.0.1:")
    qm.mqsc(f"{rule} WARN(NO) ACTION(REPLACE)")
    with pytest.raises((Refused, ConnectionException)):
        with qm.connect("billing") as client:
            client.receiver("ANY")
    found(qm, "refusal", lambda entry: kept_out(entry) and "let_in" not in entry["what"])
    qm.mqsc(f"{rule} ACTION(REMOVE)")


def test_keys_that_only_a_policy_check_uses_are_in_it_too(qm, people):
    qm.mqsc(
        f"""
        DEFINE QLOCAL(TRIED)
        SET POLICY(TRIED) SIGNALG(SHA256) ENCALG(AES256) RECIP('{people.dn("billing")}')
        SET AUTHREC PROFILE(TRIED) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT)
        SET AUTHREC PROFILE(TRIED) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET)
        """
    )
    assert entries(qm, "key-use") == []
    qm.run("policy", "check", "TRIED", "--data", qm.data)
    for user, purpose in (("orders", "seal"), ("billing", "open")):
        fits = lambda entry, user=user, purpose=purpose: (entry["who"]["user"], entry["what"]["purpose"]) == (user, purpose)
        told = found(qm, "key-use", fits)
        assert told[0]["what"]["key"] is None and told[0]["what"]["operations"] >= 1
    qm.mqsc("DELETE QLOCAL(TRIED)")


def test_keys_that_seal_and_open_are_counted_by_user_and_key(qm, people):
    qm.mqsc(
        f"""
        DEFINE QLOCAL(SEALED)
        SET POLICY(SEALED) SIGNALG(SHA256) ENCALG(AES256) RECIP('{people.dn("billing")}')
        SET AUTHREC PROFILE(SEALED) OBJTYPE(QUEUE) PRINCIPAL('orders', 'billing') AUTHADD(PUT, GET)
        """
    )
    for number in range(5):
        with qm.connect("orders") as client:
            client.put("SEALED", Message(body=f"barley {number}"))
    with qm.connect("billing") as client:
        assert len(client.get_all("SEALED")) == 5
    qm.mqsc("DEFINE QLOCAL(AFTERWARDS)")
    used = lambda user, purpose: [
        entry["what"] for entry in entries(qm, "key-use")
        if (entry["who"]["user"], entry["what"]["purpose"]) == (user, purpose) and entry["what"]["key"]
    ]
    wait_until(lambda: used("orders", "seal") and used("billing", "open"), "the first uses are told")
    assert people.dn("orders") == used("orders", "seal")[0]["subject"]
    # The rest comes with the minute, or with the end.
    assert qm.stop() == 0
    for user, purpose in (("orders", "seal"), ("billing", "open")):
        told = used(user, purpose)
        assert {use["subject"] for use in told} == {people.dn(user)} and len({use["key"] for use in told}) == 1
        assert sum(use["messages"] for use in told) == 5 and sum(use["operations"] for use in told) == 5
    assert [entry["kind"] for entry in entries(qm)][-1] == "stop"
    qm.start()
    rings = {entry["who"]["user"]: entry["what"] for entry in entries(qm, "ring")}
    assert rings["orders"]["outcome"] == "read" and len(rings["orders"]["keys"]) == 1


def test_a_message_on_the_error_queue_is_in_it_without_its_payload(qm, people):
    qm.mqsc(
        f"""
        DEFINE QLOCAL(SPOILT)
        DEFINE QALIAS(SPOILT.RAW) TARGET(SPOILT)
        SET POLICY(SPOILT) SIGNALG(SHA256) ENCALG(AES256) RECIP('{people.dn("billing")}')
        SET AUTHREC PROFILE(SPOILT.**) OBJTYPE(QUEUE) PRINCIPAL('orders', 'billing', '*ANONYMOUS') AUTHADD(PUT, GET)
        """
    )
    with qm.connect() as client:
        client.put("SPOILT.RAW", Message(body=b"unsealed barley", id="message-17"))
    with qm.connect("billing") as client:
        assert client.get_all("SPOILT") == []
    [moved] = found(qm, "quarantine", lambda entry: entry["what"]["queue"] == "SPOILT")
    assert (moved["what"]["cause"], moved["what"]["message_id"]) == ("unsigned", "message-17")
    assert moved["what"]["number"] > 0
    assert "barley" not in json.dumps(moved)
    assert qm.depth(ERROR_QUEUE) >= 1


# ---- that nobody has changed it


def test_it_is_for_nobody_else_to_read(qm):
    folder = qm.data / "audit"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_chain_goes_on_over_a_kill(qm):
    qm.mqsc("DEFINE QLOCAL(BEFORE.KILL)")
    kept = head(qm)
    assert len(kept) == HEADS
    qm.kill()
    qm.start()
    told = verify(qm, "--from-hash", kept)
    assert "break" not in told
    texts, _ = commands(qm)
    assert texts[-1]["what"]["text"] == "DEFINE QLOCAL(BEFORE.KILL)"
    assert [entry["kind"] for entry in entries(qm)].count("start") >= 2


def test_a_change_a_cut_and_a_log_written_anew_show(qm, tmp_path):
    qm.mqsc("DEFINE QLOCAL(LAST.ONE)")
    kept = head(qm)
    folder = tmp_path / "audit"
    folder.mkdir()
    [file] = (qm.data / "audit").iterdir()
    copy = folder / file.name
    # A line that is being written at this very moment is not looked at.
    good = file.read_bytes()
    good = good[: good.rindex(b"\n") + 1]
    copy.write_bytes(good)
    verify(qm, "--from-hash", kept, data=tmp_path)

    at = good.index(b"LAST.ONE")
    copy.write_bytes(good[:at] + b"LOST" + good[at + 4 :])
    line = good[:at].count(b"\n") + 1
    assert f"line {line}: the line was changed" in verify(qm, code=7, data=tmp_path)

    lines = good.splitlines(keepends=True)
    copy.write_bytes(b"".join(lines[:3] + lines[4:]))
    assert "line 4: entry 5 stands where 4 is due" in verify(qm, code=7, data=tmp_path)

    kept_line = next(number for number, line in enumerate(lines) if kept.encode() in line)
    copy.write_bytes(b"".join(lines[:kept_line]))
    verify(qm, data=tmp_path)
    assert "no entry has the hash" in verify(qm, "--from-hash", kept, code=7, data=tmp_path)

    copy.write_bytes(good[:-10])
    assert "the last line has no end" in verify(qm, code=7, data=tmp_path)


def test_a_log_that_can_t_be_written_keeps_the_queue_manager_from_starting(managers, tmp_path):
    data = tmp_path / "qm"
    data.mkdir(mode=0o700)
    (data / "audit").write_text("not a folder")
    with pytest.raises(AssertionError, match="did not start"):
        managers(data=data, grants=None)
    done = run("audit", "verify", "--data", data)
    assert done.returncode == 1 and b"there is no audit log" in done.stderr
