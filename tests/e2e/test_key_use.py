"""`DISPLAY KEYUSE`: which keys messages need, wherever they lie, and who has them."""

import contextlib
import json
import re

import pytest
from proton import Message

from manager import DEAD_LETTER_QUEUE, ERROR_QUEUE, shown_rows, wait_until
from people import People
from proton_driver import Refused
from sites import PRIVACY, Site, clear, serial
from test_alerts import LABELS, check
from units import Unit


@pytest.fixture(scope="module")
def site(managers, authority):
    people = People(managers(name="KEPT", options=["--metrics", "127.0.0.1:0"]), authority)
    for name in ("orders", "billing", "audit", "guarded"):
        people.add(name)
    site = Site(people.qm, people)
    yield site
    for client in site.clients.values():
        client.close()


def key_use(site, queue, where=""):
    """The rows, by the serial number of the key."""
    command = f"DISPLAY KEYUSE('{queue}') {where}"
    rows = shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)
    return {row["SERIAL"]: row for row in rows}


def of(site, name):
    return f"{serial(site.people.identities[name]):x}"


def test_sealed_messages_are_counted_by_the_keys_that_open_them(site):
    queue = site.queue(PRIVACY + " RECIP('{audit}')")
    for _ in range(3):
        site.orders.put(queue, clear())
    rows = key_use(site, queue)
    assert {row["USER"][0]: row["MSGS"] for row in rows.values()} == {"billing": 3, "audit": 3}, rows
    (billing,) = (row for row in rows.values() if row["USER"] == ["billing"])
    assert (billing["KEYHERE"], billing["INUOW"], billing["SUBJECT"]) == ("YES", 0, site.people.dn("billing"))
    assert billing["BYTES"] == site.qm.status(queue)["BYTES"]
    assert billing["VALIDTO"] > "2026"
    assert len(key_use(site, queue, "WHERE(USER EQ 'audit')")) == 1
    site.billing.get(queue)
    assert {row["MSGS"] for row in key_use(site, queue).values()} == {2}


def test_clear_and_signed_messages_need_no_key(site):
    for policy in (None, "SIGNALG(SHA256) SIGNER('{orders}')"):
        queue = site.queue(policy)
        site.orders.put(queue, clear())
        assert key_use(site, queue) == {}


def test_what_a_client_sealed_is_parsed_also_where_no_policy_is(site):
    protected, plain = site.queue(PRIVACY), site.queue()
    message = site.sealed(protected)
    assert key_use(site, protected) == {}
    site.nobody.put(plain, message)
    (row,) = key_use(site, plain).values()
    assert (row["MSGS"], row["USER"], row["KEYHERE"]) == (1, ["billing"], "YES")
    # One that only says that it is sealed is opened by no key.
    message.body = b"no seal at all"
    site.nobody.put(plain, message)
    assert [row["MSGS"] for row in key_use(site, plain).values()] == [1]


def test_a_unit_of_work_counts_until_its_end_and_a_moved_message_where_it_goes(site):
    queue = site.queue(PRIVACY)
    with site.qm.connect("orders") as client:
        unit = Unit(client)
        sender = client.sender(queue)
        unit.put(sender, clear())
        unit.put(sender, clear())
        (row,) = key_use(site, queue).values()
        assert (row["MSGS"], row["INUOW"]) == (0, 2)
        unit.commit()
    (row,) = key_use(site, queue).values()
    assert (row["MSGS"], row["INUOW"]) == (2, 0)
    other = site.queue(PRIVACY)
    # Bound to its own queue, it is moved to the error queue from another one.
    site.put_raw(other, site.sealed(queue))
    with pytest.raises(Exception, match="2063"):
        site.billing.get(other)
    (row,) = key_use(site, ERROR_QUEUE).values()
    assert (row["MSGS"], row["USER"]) == (1, ["billing"])
    site.qm.mqsc(f"CLEAR QLOCAL({ERROR_QUEUE})")


def test_what_waits_elsewhere_than_on_its_own_queue_is_counted_too(site):
    queue = site.queue(PRIVACY)
    far = f"{queue}.FAR"
    site.qm.mqsc(f"""
        DEFINE QLOCAL({far}.XMIT) USAGE(XMITQ)
        DEFINE QREMOTE({far}) RNAME({queue}) RQMNAME(ELSEWHERE) XMITQ({far}.XMIT)
        SET AUTHREC PROFILE(SYSTEM.BASE.TOPIC) OBJTYPE(TOPIC) PRINCIPAL('orders') AUTHADD(ALL)
        DEFINE SUB({queue}) TOPICSTR('keys/{queue}') DEST({queue})
        ALTER QLOCAL({queue}) BOTHRESH(1) BACKOUT(MOVE)
    """)
    site.set_policy(far, PRIVACY)
    site.orders.put(far, clear())
    (row,) = key_use(site, f"{far}.XMIT").values()
    assert (row["MSGS"], row["USER"]) == (1, ["billing"])
    site.orders.put(f"topic://keys/{queue}", clear())
    (row,) = key_use(site, queue).values()
    assert (row["MSGS"], row["USER"]) == (1, ["billing"])
    with site.qm.connect("billing") as client:
        receiver = client.receiver(queue, credit=1)
        unit = Unit(client)
        unit.accept(receiver, receiver.next(accept=False))
        # In a unit of work that gets it, it is still there.
        (row,) = key_use(site, queue).values()
        assert row["MSGS"] == 1
        unit.abort()
    site.qm.wait_for_depth(DEAD_LETTER_QUEUE, 1)
    assert key_use(site, queue) == {}
    (row,) = key_use(site, DEAD_LETTER_QUEUE).values()
    assert (row["MSGS"], row["USER"]) == (1, ["billing"])
    site.qm.mqsc(f"CLEAR QLOCAL({DEAD_LETTER_QUEUE})")


def test_what_cannot_be_read_as_a_seal_may_need_any_key(site):
    protected, plain = site.queue(PRIVACY), site.queue()
    message = site.sealed(protected)
    # It is cut short behind what says that it is CMS.
    message.body = bytes(message.body)[:-1]
    site.nobody.put(plain, message)
    (row,) = key_use(site, plain).values()
    assert (row["MSGS"], row["KEYHERE"], row["USER"], row["SERIAL"]) == (1, "UNKNOWN", [], "")
    with site.qm.connect() as client:
        unit = Unit(client)
        unit.put(client.sender(plain), message)
        (row,) = key_use(site, plain).values()
        assert (row["MSGS"], row["INUOW"]) == (1, 1)
        unit.abort()
    (row,) = key_use(site, plain).values()
    assert (row["MSGS"], row["INUOW"]) == (1, 0)


def test_a_removed_key_is_seen_and_counts_outlive_a_restart(site):
    queue = site.queue(PRIVACY)
    for _ in range(2):
        site.orders.put(queue, clear())
    site.nobody.put(f"{queue}.RAW", Message(body=b"clear", inferred=True, durable=True))
    for client in site.clients.values():
        client.close()
    site.clients.clear()
    before = key_use(site, queue)
    assert site.qm.stop() == 0
    site.qm.start()
    without_age = lambda rows: {key: {**row, "MSGAGE": None} for key, row in rows.items()}  # noqa: E731
    assert without_age(key_use(site, queue)) == without_age(before)
    with keyless(site, "billing"):
        (row,) = key_use(site, queue, "WHERE(KEYHERE EQ NO)").values()
        assert (row["MSGS"], row["USER"], row["SUBJECT"]) == (2, [], site.people.dn("billing"))
    (row,) = key_use(site, queue).values()
    assert row["USER"] == ["billing"]


def test_messages_that_no_ring_here_opens_are_stranded_unless_their_key_is_elsewhere(site):
    queue, partner = site.queue(PRIVACY), site.queue(PRIVACY + " KEYAWAY('{billing}')")
    assert site.people.dn("billing") in site.qm.mqsc(f"DISPLAY POLICY({partner}) KEYAWAY")
    site.orders.put(queue, clear())
    stranded = lambda: (site.qm.status(queue)["STRANDED"], site.qm.status(queue)["STRANDBY"])  # noqa: E731
    warning = f"no key ring here has a private key of {site.people.dn('billing')}"
    with keyless(site, "billing"):
        site.qm.says(f"policy {queue}: {warning}")
        # Another policy says that this recipient keeps its key elsewhere.
        assert "has a key that opens" not in checked(site, queue)
        assert stranded() == (0, [])
        site.qm.mqsc(f"DELETE POLICY({partner})")
        assert "no key ring here has a key that opens 1 message" in checked(site, queue)
        wait_until(lambda: stranded() == (1, ["no-key=1"]), "they are looked for when a policy has changed")
        restart(site)
        wait_until(lambda: stranded() == (1, ["no-key=1"]), "they are looked for at the start")
        site.qm.says(f"policy {queue}: {warning}")
        assert warning in site.set_policy(queue, PRIVACY)
        assert warning not in site.set_policy(queue, PRIVACY + " KEYAWAY('{billing}')")
        assert "has a key that opens" not in checked(site, queue)
        wait_until(lambda: stranded() == (0, []), "the key is elsewhere")
        # Clients open for themselves what is on that queue, and on no other one.
        other = site.queue(PRIVACY + " SEALEDAT(CLIENT)")
        site.set_policy(queue, PRIVACY)
        site.put_raw(other, site.raw(queue)[0])
        assert "no key ring here has a key that opens 1 message" in checked(site, queue)
        assert "has a key that opens" not in checked(site, other)
        site.qm.mqsc(f"CLEAR QLOCAL({other}); DELETE POLICY({other})")
    wait_until(lambda: stranded() == (0, []), "the key is back")
    assert warning not in site.set_policy(queue, PRIVACY)
    refused = site.qm.mqsc(f"SET POLICY({queue}) ENCALG(AES256) RECIP('CN=a') KEYAWAY('CN=b')", code=None)
    assert "KEYAWAY names CN=b, which is not in RECIP" in refused


def test_a_key_in_a_ring_that_cannot_be_read_is_locked(site):
    queue = site.queue(PRIVACY.replace("billing", "guarded"))
    site.orders.put(queue, clear())
    damaged = site.qm.data / "rings/guarded/people/damaged.pem"
    damaged.write_text("no certificate")
    site.people.seen()
    try:
        assert "the key that opens 1 message is in a key ring that can't be read" in checked(site, queue)
        assert "has a private key of" in site.set_policy(queue, PRIVACY.replace("billing", "guarded"))
        wait_until(lambda: site.qm.status(queue)["STRANDBY"] == ["locked=1"], "a policy was set")
        assert missing_keys(site) == 0
    finally:
        damaged.unlink()
        site.people.seen()
    assert "key ring" not in checked(site, queue)
    assert bytes(site.guarded.get(queue).body) == clear().body


def test_a_key_file_that_is_removed_by_hand_is_told_of_at_once_and_at_the_start(site, tmp_path):
    queue = site.queue(PRIVACY.replace("billing", "guarded"))
    site.orders.put(queue, clear())
    number = of(site, "guarded")
    wait_until(lambda: number in (site.qm.data / "own-keys.json").read_text(), "the key is known")
    key_events(site)
    with keyless(site, "guarded"):
        for starts_anew in (False, True):
            if starts_anew:
                restart(site)
            wait_until(lambda: missing_keys(site) == 1, "the key is missed")
            (event,) = key_events(site)
            assert (event["event"], event["users"], event["queues"]) == ("KEY.MISSING", ["guarded"], [queue])
            assert (event["messages"], event["serial"]) == (1, number)
            assert event["subject"] == site.people.dn("guarded")
            site.qm.says(f"is no longer in the key ring of guarded, and 1 messages need it, on {queue}")
            assert site.qm.status(queue)["STRANDBY"] == ["no-key=1"]
            with pytest.raises(Refused, match=f"needs the key {number} of .*, which is no longer in the key ring of guarded"):
                site.guarded.get(queue)
            with pytest.raises(Refused, match="is addressed to others, and no key ring here can open it"):
                site.audit.get(queue)
            check("BullaKeyMissing", [(scraped(site, "bulla_missing_keys"), 1)], tmp_path)
            ours = scraped(site, "bulla_queue_stranded_messages", f'queue="{queue}",cause="no-key"')
            check("BullaMessagesStranded", [(ours, 1)], tmp_path)
    wait_until(lambda: missing_keys(site) == 0, "the key is back")
    site.qm.says(f"the key {number} of {site.people.dn('guarded')} is in a key ring again")
    assert site.qm.status(queue)["STRANDED"] == 0
    assert bytes(site.guarded.get(queue).body) == clear().body
    # One that goes when nothing needs it is no event.
    with keyless(site, "guarded"):
        wait_until(lambda: number not in (site.qm.data / "own-keys.json").read_text(), "the key is forgotten")
        assert missing_keys(site) == 0
    assert key_events(site) == []


def key_events(site):
    """Takes the events about keys that are there."""
    with site.qm.connect() as client:
        events = [json.loads(bytes(message.body)) for message in client.get_all("SYSTEM.ADMIN.QMGR.EVENT")]
    return [event for event in events if event["event"] == "KEY.MISSING"]


def sample(site, name, labels=""):
    series = name + ("{" + labels + "}" if labels else "")
    return float(re.search(rf"^{re.escape(series)} (\S+)$", site.qm.metrics(), re.MULTILINE)[1])


def missing_keys(site):
    return sample(site, "bulla_missing_keys")


def scraped(site, name, labels=""):
    """A series as it is now, for half an hour."""
    known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    return {name: (LABELS | known, f"{sample(site, name, labels):g}x30")}


def checked(site, queue):
    """What `bulla policy check` says."""
    command = f"CHECK POLICY({queue}) MESSAGES(0)"
    rows = shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)
    return "\n".join(row["DETAILS"] for row in rows if row["CHECK"] == "PROBLEM")


def restart(site):
    for client in site.clients.values():
        client.close()
    site.clients.clear()
    assert site.qm.stop() == 0
    site.qm.start()


@contextlib.contextmanager
def keyless(site, user):
    """While a user's own keys are not in its ring."""
    ring = site.qm.data / f"rings/{user}/own"
    kept = {path: path.read_bytes() for path in ring.iterdir()}
    for path in kept:
        path.unlink()
    site.people.seen()
    try:
        yield
    finally:
        for path, content in kept.items():
            path.touch(mode=0o600)
            path.write_bytes(content)
        site.people.seen()
