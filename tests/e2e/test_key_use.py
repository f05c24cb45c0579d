"""`DISPLAY KEYUSE`: which keys messages need, wherever they lie, and who has them."""

import pytest
from proton import Message

from manager import DEAD_LETTER_QUEUE, ERROR_QUEUE, shown_rows
from people import People
from sites import PRIVACY, Site, clear, serial
from units import Unit


@pytest.fixture(scope="module")
def site(managers, authority):
    people = People(managers(name="KEPT"), authority)
    for name in ("orders", "billing", "audit"):
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
    ring = site.qm.data / "rings/billing/own"
    kept = {path: path.read_bytes() for path in ring.iterdir()}
    for path in kept:
        path.unlink()
    site.people.seen()
    (row,) = key_use(site, queue, "WHERE(KEYHERE EQ NO)").values()
    assert (row["MSGS"], row["USER"], row["SUBJECT"]) == (2, [], site.people.dn("billing"))
    for path, content in kept.items():
        path.touch(mode=0o600)
        path.write_bytes(content)
    site.people.seen()
    (row,) = key_use(site, queue).values()
    assert row["USER"] == ["billing"]
