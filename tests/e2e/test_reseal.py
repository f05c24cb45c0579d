"""`bulla reseal`: messages are opened and sealed anew at their own places: for another key, for others, more strongly."""

import json
import os
import re
import subprocess
import threading
from contextlib import suppress

import pytest
from proton import Message

from manager import BULLA, ERROR_QUEUE, run, shown_rows, wait_until
from pki import openssl
from sites import INTEGRITY, Site, clear, copy
from test_key_rotation import Users, bodies, key, own

MANAGER = "RESEALS"
SIGNERS = "SIGNER('{orders}', '{RESEALS}')"
PRIVACY = f"SIGNALG(SHA256) ENCALG(AES256) {SIGNERS} RECIP('{{billing}}')"
CONFIDENTIALITY = "ENCALG(AES256) RECIP('{billing}') KEYREUSE(10)"


@pytest.fixture(scope="module")
def site(managers):
    qm = managers(name=MANAGER)
    site = Site(qm, Users(qm, "orders", "billing", "auditor", MANAGER))
    yield site
    for client in site.clients.values():
        client.close()


def reseal(site, queue, *options, code=0):
    done = site.qm.run("reseal", queue, *options, "--data", site.qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def rotate(site, user="billing"):
    """The former key of the user and the new one, by their serial numbers."""
    said = key(site, "rotate", user, "--overlap", "0s")
    return [re.search(pattern, said)[1] for pattern in (r"from now on; ([0-9a-f]+) opens", r"has the key ([0-9a-f]+),")]


def key_use(site, queue):
    command = f"DISPLAY KEYUSE({queue})"
    rows = shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)
    return {row["SERIAL"]: row["MSGS"] for row in rows}


def seen(message):
    """What must not change of a message."""
    return bytes(message.body), message.id, message.priority, message.properties, message.subject, message.content_type


def resealed(site):
    """What the audit log has of RESEAL commands that were carried out."""
    done = site.qm.run("audit", "show", "--json", "--kind", "result", "--data", site.qm.data)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    return [entry for entry in entries if entry["what"]["command"].startswith("RESEAL ")]


def count_resealed(site):
    """How many messages all of them have sealed anew."""
    return sum(entry["what"].get("resealed", {"sealed": 0})["sealed"] for entry in resealed(site))


def test_what_a_former_key_opens_is_sealed_for_the_new_one_and_the_former_one_can_go(site):
    for policy in (PRIVACY, CONFIDENTIALITY):
        queue = site.queue(policy)
        before = []
        for number in range(30):
            message = clear(b"%d" % number, id=f"id-{number}", subject="barley", priority=number % 3)
            message.content_type = "text/plain"
            before.append(message)
            site.orders.put(queue, message)
        before.sort(key=lambda message: -message.priority)
        old, new = rotate(site)
        assert list(key_use(site, queue)) == [old]
        assert "30 messages" in key(site, "retire", "billing", "--old", code=4)
        said = reseal(site, queue)
        assert "30 messages sealed anew" in said and old in said and new in said, said
        assert key_use(site, queue) == {new: 30}
        # What is done is not done again.
        assert "0 messages sealed anew" in reseal(site, queue)
        key(site, "retire", "billing", "--old")
        assert own(site, "billing") == own(site, "billing")[:1]
        after = site.billing.get_all(queue)
        assert [seen(message) for message in after] == [seen(message) for message in before]
        said = {str(name): value for name, value in (after[0].annotations or {}).items()}
        signed = policy == PRIVACY
        assert said.get("x-opt-bulla-signer") == (Users.dn(MANAGER) if signed else None)
        assert said.get("x-opt-bulla-on-behalf-of") == (Users.dn("orders") if signed else None)
    assert site.qm.depth(ERROR_QUEUE) == 0


def test_the_audit_log_has_who_and_which_keys_and_a_message_says_for_whom(site, tmp_path):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"barley", id="one"))
    old, _ = rotate(site)
    reseal(site, queue)
    row = resealed(site)[-1]["what"]["resealed"]
    assert resealed(site)[-1]["who"]["uid"] == os.getuid()
    assert (row["queue"], row["sealed"], row["failed"], row["busy"]) == (queue, 1, 0, 0)
    assert [known.split()[0] for known in row["old_keys"]] == [old] and len(row["new_keys"]) == 1
    assert row["signer"] == Users.dn(MANAGER)
    (sealed,) = site.raw(queue)
    der, ring = tmp_path / "message.der", site.qm.data / "rings/billing"
    der.write_bytes(bytes(sealed.body))
    policy = PRIVACY.format(**{user: Users.dn(user) for user in site.people.identities})
    told = site.qm.run("seal", "open", der, "--ring", ring, "--policy", policy, "--no-binding").stderr.decode()
    assert f'signed by "{Users.dn(MANAGER)}"' in told and f'on behalf of "{Users.dn("orders")}"' in told, told
    assert "the seal before: verified" in told and f"sealed by queue manager {MANAGER}" in told, told
    # Nothing of ours is needed to open it and to verify who signed.
    newest = max((ring / "own").glob("*.pem"), key=lambda path: path.stat().st_mtime_ns)
    inner = openssl("cms", "-decrypt", "-inform", "DER", "-in", str(der), "-recip", str(newest), "-inkey", str(newest), "-binary")
    signed = tmp_path / "inner.der"
    signed.write_bytes(inner)
    ca = site.qm.data / "authorities/demo/ca.pem"
    assert openssl("cms", "-verify", "-inform", "DER", "-in", str(signed), "-CAfile", str(ca), "-binary") == b"barley"
    told = site.qm.run("seal", "inspect", signed).stdout.decode()
    assert f"signer        {Users.dn(MANAGER)}" in told and f"on behalf of  {Users.dn('orders')}" in told, told
    assert bodies(site.billing.get_all(queue)) == [b"barley"]
    key(site, "retire", "billing", "--old")


def test_a_signature_is_made_anew_by_a_stronger_policy_and_a_second_time_says_the_same(site, tmp_path):
    weak, strong = INTEGRITY.replace("SIGNER('{orders}')", SIGNERS), "SIGNALG(SHA512) " + SIGNERS
    queue = site.queue(weak)
    site.orders.put(queue, clear(b"barley"))
    assert "READER says by whose ring" in reseal(site, queue, code=4)
    site.qm.mqsc(f"DEFINE QLOCAL({queue}.FORMER)")
    site.set_policy(f"{queue}.FORMER", weak)
    site.set_policy(queue, strong)
    options = ("--where", "all", "--reader", "billing")
    said = reseal(site, queue, *options, code=4)
    assert "0 messages sealed anew" in said and "1 message: weaker-than-policy" in said, said
    assert "1 message sealed anew" in reseal(site, queue, *options, "--former", f"{queue}.FORMER")
    assert "1 message sealed anew" in reseal(site, queue, *options)
    der = tmp_path / "message.der"
    der.write_bytes(bytes(site.raw(queue)[0].body))
    told = json.loads(site.qm.run("seal", "inspect", "--json", der).stdout)
    assert "sha512" in told["signers"][0]["algorithm"].lower().replace("-", "")
    assert [signer["dn"] for signer in told["on_behalf_of"]["signers"]] == [Users.dn("orders")]
    assert told["on_behalf_of"]["verdict"] == "verified"
    assert bodies(site.billing.get_all(queue)) == [b"barley"]


def test_a_reader_who_has_passed_over_a_message_gets_it_when_it_is_sealed_for_him_too(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"for billing"))
    with site.qm.connect("auditor") as client:
        receiver = client.receiver(queue, credit=10)
        assert receiver.next(0.2) is None
        assert site.qm.status(queue)["NOTMINE"] == 1, "it is passed over"
        site.set_policy(queue, PRIVACY.replace("RECIP(", "RECIP('{auditor}', "))
        assert "1 message sealed anew" in reseal(site, queue)
        assert bytes(receiver.next(10).body) == b"for billing"


def test_what_does_not_open_or_is_in_use_stays_and_is_counted(site):
    queue = site.queue(PRIVACY)
    for number in range(4):
        site.orders.put(queue, clear(b"%d" % number, id=f"id-{number}"))
    whole = site.nobody.get_all(f"{queue}.RAW")
    changed = bytearray(bytes(whole[1].body))
    changed[-1] ^= 1
    for message in (whole[0], copy(whole[1], bytes(changed)), whole[2], whole[3]):
        site.put_raw(queue, message)
    site.put_raw(queue, Message(body=b"clear", inferred=True, durable=True))
    old, _ = rotate(site)
    with site.qm.connect("billing") as client:
        receiver = client.receiver(queue, credit=1)
        held = receiver.next(accept=False)
        assert bytes(held.body) == b"0"
        said = reseal(site, queue, code=4)
        assert "2 messages sealed anew" in said, said
        assert "1 message in use" in said and "1 message: cannot-decrypt" in said, said
        assert "not sealed, and left so: 1 message" in said, said
        assert key_use(site, queue)[old] == 2
    wait_until(lambda: site.qm.status(queue)["IPPROCS"] == 0, "it is given back")
    said = reseal(site, queue, code=4)
    assert "1 message sealed anew" in said and "1 message: cannot-decrypt" in said, said
    # The changed one is where it was, and its reader finds what it is.
    assert site.qm.depth(queue) == 5
    assert bodies(site.billing.get_all(queue)) == [b"0", b"2", b"3"]
    assert site.qm.depth(ERROR_QUEUE) == 2
    site.qm.clear_error_queue()
    wait_until(lambda: not key_use(site, queue), "nothing needs a key")
    key(site, "retire", "billing", "--old")


def test_without_a_ring_that_may_sign_or_that_the_reader_believes_nothing_is_changed(site, managers):
    queue = site.queue(PRIVACY.replace(SIGNERS, "SIGNER('{orders}')"))
    site.orders.put(queue, clear(b"barley"))
    before = [bytes(message.body) for message in site.raw(queue)]
    said = reseal(site, queue, "--where", "all", code=4)
    assert f"{Users.dn(MANAGER)} signs what is sealed anew, and SIGNER" in said, said
    # One of the readers to be believes another authority alone.
    site.set_policy(queue, PRIVACY.replace("RECIP(", "RECIP('{auditor}', "))
    trust = site.qm.data / "rings/auditor/trust"
    kept = {path: path.read_bytes() for path in trust.glob("*.pem")}
    site.people.cert("create", "--ca", "other", "--dn", "CN=Other authority", "--key", "p256")
    try:
        for path in kept:
            path.write_bytes((site.qm.data / "authorities/other/ca.pem").read_bytes())
        said = reseal(site, queue, "--where", "all", code=4)
        assert "would not open for auditor: untrusted" in said and "nothing is changed" in said, said
    finally:
        for path, text in kept.items():
            path.write_bytes(text)
    assert [bytes(message.body) for message in site.raw(queue)] == before
    ring = site.qm.data / f"rings/{MANAGER}"
    ring.rename(ring.with_suffix(".away"))
    try:
        assert "its ring can't be used" in reseal(site, queue, "--where", "all", code=4)
    finally:
        ring.with_suffix(".away").rename(ring)
    assert [bytes(message.body) for message in site.raw(queue)] == before
    assert "1 message sealed anew" in reseal(site, queue, "--where", "all")
    assert bodies(site.billing.get_all(queue)) == [b"barley"]


def test_a_reader_at_the_same_time_gets_each_message_once_and_in_order(site):
    queue = site.queue(PRIVACY)
    count = 400
    with site.qm.connect("orders") as client:
        sender = client.sender(queue)
        for number in range(count):
            client.put(queue, clear(b"%d" % number), sender=sender)
    rotate(site)
    got, started = [], threading.Event()

    def read():
        with site.qm.connect("billing") as client:
            receiver = client.receiver(queue, credit=5)
            while len(got) < count:
                message = receiver.next(20)
                if message is None:
                    return
                got.append(bytes(message.body))
                started.set()
                receiver.flow(1)

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(20)
    while reader.is_alive():
        done = run("reseal", queue, "--rate", "1000000", "--data", site.qm.data)
        assert done.returncode in (0, 4), done
    reader.join()
    assert got == [b"%d" % number for number in range(count)]
    assert site.qm.depth(queue) == 0 and site.qm.depth(ERROR_QUEUE) == 0
    key(site, "retire", "billing", "--old")


def test_one_command_takes_several_steps_and_the_next_one_goes_on_behind_it(site):
    queue = site.queue(PRIVACY)
    count, taken = 330, 250
    with site.qm.connect("orders") as client:
        sender = client.sender(queue)
        for number in range(count):
            client.put(queue, clear(b"%d" % number, id=f"id-{number}", priority=number % 2), sender=sender)
    rotate(site)
    rows, after = [], ""
    while not rows or after:
        behind = f" AFTER('{after}')" if after else ""
        command = f"RESEAL QLOCAL({queue}) SELECT(ALL) COUNT({taken}){behind}"
        (row,) = shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)
        rows.append(row)
        after = row["AFTER"]
    sealed = [row["SEALED"] for row in rows]
    # Slow machines end a command by its time, between two steps.
    assert sum(sealed) == count and max(sealed) <= taken, rows
    assert all(row["FAILED"] == row["BUSY"] == row["GONE"] == 0 for row in rows), rows
    key(site, "retire", "billing", "--old")
    expected = [number for priority in (1, 0) for number in range(count) if number % 2 == priority]
    got = site.billing.get_all(queue, credit=1000)
    assert [(bytes(message.body), message.id) for message in got] == [(b"%d" % n, f"id-{n}") for n in expected]
    assert site.qm.depth(ERROR_QUEUE) == 0


def test_a_change_of_the_policy_ends_it_and_is_told_and_what_was_done_is_done(site):
    queue = site.queue(PRIVACY)
    count = 300
    with site.qm.connect("orders") as client:
        sender = client.sender(queue)
        for number in range(count):
            client.put(queue, clear(b"%d" % number), sender=sender)
    site.qm.mqsc(f"DEFINE QLOCAL({queue}.FORMER)")
    stronger = PRIVACY.replace("SHA256", "SHA384")
    # First that in force is changed, then the one that opens; each is given as it was, too, which is no change.
    for changed, former in ((queue, ()), (f"{queue}.FORMER", ("--former", f"{queue}.FORMER"))):
        site.set_policy(f"{queue}.FORMER", PRIVACY)
        site.set_policy(queue, PRIVACY)
        command = [BULLA, "reseal", queue, "--where", "all", "--rate", "100", *former, "--data", site.qm.data]
        before = count_resealed(site)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        sealed = lambda: count_resealed(site) - before  # noqa: E731
        wait_until(sealed, "some are sealed anew")
        site.set_policy(changed, PRIVACY)
        so_far = sealed()
        wait_until(lambda: sealed() > so_far or process.poll() is not None, "it goes on")
        assert process.poll() is None
        site.set_policy(changed, stronger)
        said, why = process.communicate(timeout=30)
        assert process.returncode == 4, (said, why)
        assert "was changed while messages were sealed anew: begin again" in why
        done = sealed()
        assert 0 < done < count and f"{done} messages sealed anew" in said, said
    site.set_policy(queue, PRIVACY)
    assert len(site.billing.get_all(queue, credit=1000)) == count and site.qm.depth(ERROR_QUEUE) == 0


def test_killed_in_its_midst_it_goes_on_and_nothing_is_lost_or_doubled(site):
    queue = site.queue(PRIVACY)
    count = 300
    with site.qm.connect("orders") as client:
        sender = client.sender(queue)
        for number in range(count):
            client.put(queue, clear(b"%d" % number, id=f"id-{number}"), sender=sender)
    rotate(site)
    for client in site.clients.values():
        client.close()
    site.clients.clear()
    for pause in (0.05, 0.2):
        # First the command is ended, then the queue manager.
        command = [BULLA, "reseal", queue, "--rate", "200", "--data", site.qm.data]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: len(key_use(site, queue)) == 2, "some are sealed anew")
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        process.kill()
        process.wait()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = key_use(site, queue)
    wait_until(lambda: key_use(site, queue) != done, "it goes on")
    site.qm.kill()
    process.wait()
    site.qm.start()
    assert sum(key_use(site, queue).values()) == count and len(key_use(site, queue)) == 2
    reseal(site, queue)
    assert list(key_use(site, queue).values()) == [count]
    key(site, "retire", "billing", "--old")
    messages = site.billing.get_all(queue, credit=1000)
    assert [(bytes(message.body), message.id) for message in messages] == [
        (b"%d" % number, f"id-{number}") for number in range(count)
    ]
    assert site.qm.depth(ERROR_QUEUE) == 0


def test_what_is_asked_wrongly_is_refused(site):
    assert "queue NONE does not exist" in reseal(site, "NONE", code=4)
    queue = site.queue(PRIVACY)
    assert "is no serial number" in reseal(site, queue, "--where", "needs=xyz", code=2)
    assert "expected not-current" in reseal(site, queue, "--where", "what", code=2)
    done = site.qm.run("mqsc", "--data", site.qm.data, "-c", f"RESEAL QLOCAL({queue}) AFTER('10.1.0')", code=4)
    assert b"is no place" in done.stdout + done.stderr
