"""What becomes of a message that does not open, or may not be put: seen by an unmodified client as an AMQP error
with reason code and cause, or as the next message, and nothing is lost."""

import re
import time

import pytest
from proton import Condition, Delivery

import cms
import der
from manager import ERROR_QUEUE, label, wait_until
from pki import Authority
from proton_driver import Client, Refused
from sites import (
    CONFIDENTIALITY,
    INTEGRITY,
    PAYLOAD,
    PRIVACY,
    QUALITIES,
    clear,
    copy,
    foreign,
    opened,
    payloads,
    recipient_serial,
    refused_get,
    refused_put,
    serial,
)


@pytest.fixture(scope="module")
def site(qm, people):
    yield from opened(qm, people)


@pytest.fixture(autouse=True)
def clean(site):
    yield
    site.nobody.get_all(ERROR_QUEUE, credit=1000)


# --- Defective messages: moved to the error queue in one unit of work ---


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_flipped_byte_in_any_part_of_the_envelope_never_opens(site, quality):
    queue = site.queue(QUALITIES[quality])
    good = site.sealed(queue)
    envelope = bytes(good.body)
    tree = der.parse(envelope)
    assert tree.encode() == envelope
    flipped = []
    for path, leaf in tree.leaves():
        for place in {0, len(leaf.content) // 2, len(leaf.content) - 1} if leaf.content else ():
            kept, leaf.content = leaf.content, der.flipped(leaf.content, place)
            flipped.append(tree.encode())
            leaf.content = kept
    sender = site.nobody.sender(f"{queue}.RAW")
    for body in flipped:
        site.nobody.put(None, copy(good, body), sender)
    site.nobody.put(None, good, sender)
    receiver = site.billing.receiver(queue, credit=1000)
    got = receiver.next()
    assert bytes(got.body) == PAYLOAD
    receiver.close()

    # The good message needs no sync to be delivered; what was moved before it shows once it is synced.
    errors = []
    moved = lambda: errors.extend(site.nobody.get_all(ERROR_QUEUE, credit=1000)) or len(errors)
    wait_until(lambda: moved() + len(site.raw(queue)) >= len(flipped), "each message is on one of the two queues")
    left = site.raw(queue)
    assert len(left) + len(errors) == len(flipped)
    assert {label(message)["queue"] for message in errors} == {queue}
    if quality == "integrity":
        assert not left
    else:
        # A flipped recipient looks like somebody else's message, and stays.
        assert 0 < len(left) <= 30
    # Nothing is lost: what was moved is what was put.
    assert sorted(payloads(errors) + payloads(left)) == sorted(flipped)
    site.nobody.get_all(f"{queue}.RAW", credit=1000)


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_changed_property_does_not_open(site, quality):
    queue = site.queue(QUALITIES[quality])
    message = site.sealed(queue, subject="order")
    changed = copy(message)
    changed.properties = {"colour": "red"}
    site.put_raw(queue, changed)
    changed = copy(message)
    changed.subject = "no order"
    site.put_raw(queue, changed)
    changed = copy(message)
    changed.properties = None
    site.put_raw(queue, changed)
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] == ["tampered"] * 3


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_message_moved_to_another_queue_does_not_open_there(site, quality):
    queue, other = site.queue(QUALITIES[quality]), site.queue(QUALITIES[quality])
    message = site.sealed(queue)
    site.put_raw(other, message)
    assert site.billing.get_all(other) == []
    [error] = site.qm.errors()
    assert (error["cause"], error["queue"]) == ("moved", other)
    # Back where it belongs it opens.
    site.put_raw(queue, message)
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


def test_a_moved_message_opens_where_the_policy_lists_its_queue(site):
    queue = site.queue(PRIVACY)
    other = site.queue(PRIVACY + f" BINDNAME({queue}@BULLA)")
    site.put_raw(other, site.sealed(queue))
    assert payloads(site.billing.get_all(other)) == [PAYLOAD]


def test_a_message_under_another_id_does_not_open(site):
    queue = site.queue(PRIVACY)
    message = site.sealed(queue, id="the one")
    changed = copy(message)
    changed.id = "another"
    site.put_raw(queue, changed)
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] in (["moved"], ["tampered"])


def test_an_unlisted_signer_is_not_believed(site):
    queue = site.queue(PRIVACY.replace("SIGNER('{orders}') ", ""))
    site.mallory.put(queue, clear())
    site.set_policy(queue, PRIVACY)
    assert site.billing.get_all(queue) == []
    [error] = site.qm.errors()
    assert error["cause"] == "signer-not-authorised"
    assert site.people.dn("mallory") in error["details"]


def test_a_signer_whose_authority_is_unknown_is_not_believed(site, tmp_path):
    stranger = Authority(tmp_path / "other", "Other authority").issue("orders")
    queue = site.queue(INTEGRITY + " BIND(NONE)")
    site.put_raw(queue, foreign(cms.sign(PAYLOAD, stranger, tmp=tmp_path)))
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] == ["untrusted"]


@pytest.mark.parametrize(
    "sealed_under, read_under",
    [(INTEGRITY, PRIVACY), (CONFIDENTIALITY, PRIVACY), (PRIVACY, INTEGRITY), (PRIVACY, CONFIDENTIALITY)],
)
def test_another_protection_than_the_policys_does_not_open(site, sealed_under, read_under):
    queue = site.queue(sealed_under)
    site.orders.put(queue, clear())
    site.set_policy(queue, read_under)
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()][0] in ("weaker-than-policy", "unsigned")


@pytest.mark.parametrize(
    "weaker, stronger",
    [
        ("ENCALG(AES128)", "ENCALG(AES256)"),
        ("SIGNALG(SHA256)", "SIGNALG(SHA384)"),
        ("ENCALG(AES256CBC)", "ENCALG(AES256)"),
    ],
)
def test_a_weaker_algorithm_than_the_policys_does_not_open(site, weaker, stronger):
    base = PRIVACY.replace("SIGNALG(SHA256) ", "").replace("ENCALG(AES256) ", "")
    other = "ENCALG(AES256)" if weaker.startswith("SIGN") else "SIGNALG(SHA256)"
    queue = site.queue(f"{weaker} {other} {base}")
    site.orders.put(queue, clear())
    site.set_policy(queue, f"{stronger} {other} {base}")
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] == ["weaker-than-policy"]


def test_the_error_queue_says_cause_details_queue_time_and_reason_and_keeps_the_message(site):
    queue = site.queue(PRIVACY)
    message = site.sealed(queue, id="kept", subject="s")
    message.properties = {"colour": "red"}
    site.put_raw(queue, message)
    assert site.billing.get_all(queue) == []
    [error] = site.qm.clear_error_queue()
    facts = label(error)
    assert set(facts) == {"reason", "cause", "details", "queue", "time"}
    assert (facts["reason"], facts["cause"], facts["queue"]) == (2063, "tampered", queue)
    assert facts["details"] and int(facts["time"]) > 1_600_000_000_000
    assert (error.id, error.subject, error.properties, error.durable) == ("kept", "s", {"colour": "red"}, True)
    assert bytes(error.body) == bytes(message.body)


# --- Certificates ---


def test_an_expired_certificate_neither_seals_nor_is_sealed_for(site):
    queue = site.queue("SIGNALG(SHA256)")
    refused = refused_put(site.expired, queue)
    assert (refused.reason, refused.cause) == (2063, "certificate-expired")
    queue = site.queue("ENCALG(AES256) RECIP('{expired}')")
    refused = refused_put(site.orders, queue)
    assert (refused.reason, refused.cause) == (2063, "certificate-expired")
    assert site.qm.depth(queue) == 0


def test_expiry_is_judged_at_the_time_of_the_put(site):
    second = 1 / 86400
    site.people.add("brief", not_after=4 * second)
    end = time.time() + 5
    queue = site.queue("SIGNALG(SHA256) SIGNER('{brief}')")
    raw = site.sealed(queue, user="brief")
    site.put_raw(queue, raw)
    wait_until(lambda: time.time() > end, "the certificate has expired", deadline=10)
    # Put while the certificate was good: it opens. The same put again now: it does not.
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]
    site.put_raw(queue, raw)
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] == ["certificate-expired"]
    assert refused_put(site.brief, queue).cause == "certificate-expired"


def test_a_certificate_of_tomorrow_is_as_good_as_none(site):
    """What a clock set back looks like to a ring."""
    refused = refused_put(site.tomorrow, site.queue("SIGNALG(SHA256)"))
    assert (refused.reason, refused.cause) == (2063, "certificate-not-yet-valid")


def test_a_revoked_signer_is_not_believed_and_cannot_seal(site):
    queue = site.queue("SIGNALG(SHA256) SIGNER('{revoked}')")
    site.revoked.put(queue, clear())
    site.people.authority.revoke(site.people.identities["revoked"])
    crl = site.people.authority.crl()
    for user in ("billing", "revoked"):
        site.people.rings[user].crl(crl)
    site.people.seen()
    assert site.billing.get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] == ["certificate-revoked"]
    refused = refused_put(site.revoked, queue)
    assert (refused.reason, refused.cause) == (2063, "certificate-revoked")


def test_a_revoked_recipient_is_not_sealed_for(site):
    queue = site.queue("ENCALG(AES256) RECIP('{gone}')")
    site.orders.put(queue, clear())
    site.people.authority.revoke(site.people.identities["gone"])
    site.people.rings["orders"].crl(site.people.authority.crl())
    site.people.seen()
    refused = refused_put(site.orders, queue)
    assert (refused.reason, refused.cause) == (2063, "certificate-revoked")


def test_a_certificate_that_came_just_before_a_policy_is_known_to_the_next_message(site):
    """It is not waited for the second after which a ring's files are looked at again."""
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear())
    late = site.people.authority.issue("late", "p256")
    for user in ("orders", "billing"):
        site.people.rings[user].people(late)
    assert "no key ring holds" not in site.set_policy(queue, PRIVACY + f" RECIP('{late.dn}')")
    site.orders.put(queue, clear())
    assert len(site.billing.get_all(queue)) == 2


def test_a_stale_crl_fails_closed_and_the_message_stays(site):
    queue = site.queue(INTEGRITY)
    site.orders.put(queue, clear())
    ring = site.people.rings["billing"]
    ring.crl(site.people.authority.crl(-10, -1))
    site.people.seen()
    try:
        refused = refused_get(site.billing, queue)
        assert (refused.reason, refused.cause) == (2063, "crl-stale")
        assert site.qm.depth(queue) == 1
        assert site.qm.errors() == []
    finally:
        ring.crl(site.people.authority.crl())
        site.people.seen()
    # Seen without a restart.
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


def test_a_policy_can_require_a_revocation_list(site):
    queue = site.queue("SIGNALG(SHA256) REVOCATION(REQUIRED)")
    refused = refused_put(site.audit, queue)
    assert (refused.reason, refused.cause) == (2063, "crl-missing")
    ring = site.people.rings["audit"]
    ring.crl(site.people.authority.crl())
    site.people.seen()
    site.audit.put(queue, clear())
    assert payloads(site.audit.get_all(queue)) == [PAYLOAD]


# --- Not this identity's message ---


def test_a_message_for_somebody_else_is_skipped_and_stays_for_its_reader(site):
    queue = site.queue("ENCALG(AES256) RECIP('{billing}')")
    site.orders.put(queue, clear(b"for billing"))
    site.set_policy(queue, "ENCALG(AES256) RECIP('{billing}', '{audit}')")
    site.orders.put(queue, clear(b"for both"))
    receiver = site.audit.receiver(queue, credit=5)
    assert bytes(receiver.next(accept=False).body) == b"for both"
    receiver.close()
    assert site.qm.status(queue)["NOTMINE"] >= 1
    assert payloads(site.billing.get_all(queue)) == [b"for billing", b"for both"]
    assert site.qm.errors() == []


@pytest.mark.parametrize("way", ["one credit", "drain"])
def test_a_reader_without_the_key_is_told_not_a_recipient(site, way):
    queue = site.queue("ENCALG(AES256) RECIP('{billing}')")
    site.orders.put(queue, clear())
    if way == "drain":
        with pytest.raises(Refused) as caught:
            site.audit.get_all(queue)
        refused = caught.value
    else:
        refused = refused_get(site.audit, queue)
    assert (refused.reason, refused.cause) == (2063, "not-a-recipient")
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


def test_a_missing_key_that_comes_back_opens_what_waited(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear())
    ring, identity = site.people.rings["billing"], site.people.identities["billing"]
    spare = site.people.authority.issue("spare")
    ring.own(spare).drop("own", identity)
    site.people.seen()
    try:
        refused = refused_get(site.billing, queue)
        assert (refused.reason, refused.cause) == (2063, "not-a-recipient")
        assert (site.qm.depth(queue), site.qm.errors()) == (1, [])
    finally:
        ring.own(identity).drop("own", spare)
        site.people.seen()
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


# --- The error queue itself ---


def test_a_full_error_queue_keeps_the_defective_message_and_lets_the_others_flow(site):
    queue = site.queue(PRIVACY)
    good = site.sealed(queue)
    bad = copy(good)
    bad.properties = {"colour": "red"}
    depth = site.qm.depth(ERROR_QUEUE)
    site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) MAXDEPTH({depth})")
    try:
        site.put_raw(queue, bad)
        site.put_raw(queue, good)
        assert payloads(site.billing.get_all(queue)) == [PAYLOAD]
        assert site.qm.depth(queue) == 1
        assert site.billing.get_all(queue) == []
    finally:
        site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) MAXDEPTH(5000)")
    site.qm.wait_for_depth(ERROR_QUEUE, depth + 1)
    assert site.qm.depth(queue) == 0
    assert [error["cause"] for error in site.qm.errors()] == ["tampered"]


def test_a_disabled_error_queue_keeps_the_defective_message_too(site):
    queue = site.queue(PRIVACY)
    bad = site.sealed(queue)
    bad.properties = {"colour": "red"}
    site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) PUT(DISABLED)")
    try:
        site.put_raw(queue, bad)
        assert site.billing.get_all(queue) == []
        assert site.qm.depth(queue) == 1
    finally:
        site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) PUT(ENABLED)")
    site.qm.wait_for_depth(ERROR_QUEUE, 1)


def test_a_repaired_message_goes_back_exactly_once(site):
    queue, other = site.queue(PRIVACY), site.queue(PRIVACY)
    # Sealed under a policy that billing's ring could not yet satisfy: the signer was not on the list.
    site.set_policy(queue, PRIVACY.replace("{orders}", "{audit}"))
    site.orders.put(queue, clear())
    assert site.billing.get_all(queue) == []
    site.set_policy(queue, PRIVACY)
    site.qm.run("error", "replay", "--data", site.qm.data, "--queue", queue)
    site.qm.run("error", "replay", "--data", site.qm.data, "--queue", queue, code=None)
    site.qm.run("error", "replay", "--data", site.qm.data, "--queue", other, code=None)
    assert site.qm.depth(ERROR_QUEUE) == 0
    [message] = site.billing.get_all(queue)
    assert bytes(message.body) == PAYLOAD
    assert label(message) == {}


def test_a_client_that_opens_for_itself_reports_a_defect_by_rejecting(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear())
    receiver = site.billing.receiver(queue, credit=1, sealed=True)
    message = receiver.next(accept=False)
    assert message.content_type.startswith(cms.SEALED)
    message.delivery.local.condition = Condition("bulla:defective", "tampered: seen by the client")
    receiver.settle(message.delivery, Delivery.REJECTED)
    receiver.close()
    site.qm.wait_for_depth(ERROR_QUEUE, 1)
    [error] = site.qm.errors()
    assert "seen by the client" in error["details"]


def test_a_flood_of_reported_defects_is_a_few_lines_of_the_log_and_a_number(site):
    site.qm.mqsc("DEFINE QLOCAL(FLOODED)")
    count, before = 300, len(site.qm.log)
    sender = site.nobody.sender("FLOODED")
    for _ in range(count):
        site.nobody.put("FLOODED", clear(), sender)
    receiver = site.nobody.receiver("FLOODED", credit=count)
    for _ in range(count):
        message = receiver.next(accept=False)
        message.delivery.local.condition = Condition("bulla:defective", "so it says")
        receiver.settle(message.delivery, Delivery.REJECTED)
    receiver.close()

    def said():
        return sum("FLOODED: a message goes to" in line for line in site.qm.log[before:])

    def counted():
        found = (re.search(r"(\d+) more lines on what clients", line) for line in site.qm.log[before:])
        return sum(int(match[1]) for match in found if match)

    wait_until(lambda: said() + counted() >= count, "each has a line or is counted")
    assert 0 < said() < count
    site.qm.wait_for_depth(ERROR_QUEUE, count)


# --- ONDEFECT ---


def defective(site, policy):
    """A queue with a defective message and a good one behind it."""
    queue = site.queue(policy)
    good = site.sealed(queue)
    bad = copy(good)
    bad.properties = {"colour": "red"}
    site.put_raw(queue, bad)
    site.put_raw(queue, good)
    return queue


@pytest.mark.parametrize("policy, credit", [(PRIVACY, 10), (PRIVACY + " ONDEFECT(CONTINUE)", 1)])
def test_after_a_defect_the_link_goes_on_with_the_next_message(site, policy, credit):
    queue = defective(site, policy)
    assert bytes(site.billing.get(queue, credit=credit).body) == PAYLOAD
    assert [error["cause"] for error in site.qm.errors()] == ["tampered"]


@pytest.mark.parametrize("policy, credit", [(PRIVACY, 1), (PRIVACY + " ONDEFECT(DETACH)", 10)])
def test_after_a_defect_the_link_ends_with_2063(site, policy, credit):
    queue = defective(site, policy)
    refused = refused_get(site.billing, queue, credit=credit)
    assert (refused.condition, refused.reason, refused.cause) == ("amqp:unauthorized-access", 2063, "tampered")
    assert refused.info["cause"] == "tampered"
    assert [error["cause"] for error in site.qm.errors()] == ["tampered"]
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


# --- Clear messages on a protected queue ---


def test_a_clear_message_is_a_defect_under_enforce(site):
    queue = site.queue(PRIVACY)
    site.put_raw(queue, clear())
    refused = refused_get(site.billing, queue)
    assert (refused.reason, refused.cause) == (2063, "unsigned")
    [error] = site.qm.clear_error_queue()
    assert (label(error)["cause"], bytes(error.body)) == ("unsigned", PAYLOAD)


def test_a_clear_message_is_delivered_under_tolerate_and_a_defective_one_is_not(site):
    queue = site.queue(PRIVACY + " TOLERATE")
    bad = site.sealed(queue)
    bad.properties = {"colour": "red"}
    site.put_raw(queue, clear(b"in clear"))
    site.put_raw(queue, bad)
    site.orders.put(queue, clear())
    assert payloads(site.billing.get_all(queue)) == [b"in clear", PAYLOAD]
    assert [error["cause"] for error in site.qm.errors()] == ["tampered"]


# --- Puts that are refused: nothing is queued ---


@pytest.mark.parametrize(
    "policy, cause",
    [
        ("ENCALG(AES256) RECIP('CN=nobody,O=Demo')", "unknown-dn"),
        ("ENCALG(AES256) RECIP('{elliptic}') KEYWRAP(OAEP)", "recipient-key"),
    ],
)
def test_a_policy_that_cannot_be_satisfied_refuses_the_put(site, policy, cause):
    queue = site.queue(policy)
    refused = refused_put(site.orders, queue)
    assert (refused.condition, refused.reason, refused.cause) == ("amqp:unauthorized-access", 2063, cause)
    assert site.qm.depth(queue) == 0


def test_pss_with_sha512_does_not_fit_into_rsa_1024(site):
    queue = site.queue("SIGNALG(SHA512) SIGNPAD(PSS)")
    refused = refused_put(site.short, queue)
    assert (refused.reason, refused.cause) == (2063, "signature-does-not-fit")
    site.set_policy(queue, "SIGNALG(SHA512)")
    site.short.put(queue, clear())
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


@pytest.mark.parametrize("quality", QUALITIES)
def test_maxmsgl_counts_the_sealed_length(site, quality):
    queue = site.queue(QUALITIES[quality], "MAXMSGL(6000)")
    refused = refused_put(site.orders, queue, clear(b"x" * 5800))
    assert (refused.condition, refused.reason) == ("amqp:link:message-size-exceeded", 2030)
    assert site.qm.depth(queue) == 0
    site.orders.put(queue, clear(b"x" * 3000))


@pytest.mark.parametrize("side", ["put", "get"])
def test_nobody_without_a_ring_opens_a_protected_queue(site, side):
    queue = site.queue(PRIVACY)
    with pytest.raises(Refused) as refused:
        site.nobody.sender(queue) if side == "put" else site.nobody.receiver(queue)
    assert (refused.value.reason, refused.value.condition) == (2063, "amqp:unauthorized-access")
    assert refused.value.cause


def test_a_password_in_clear_opens_no_ring(site):
    qm, queue = site.qm, site.queue(PRIVACY)
    with Client(qm.amqp, "orders", qm.passwords["orders"], insecure=True) as client:
        with pytest.raises(Refused) as refused:
            client.sender(queue)
    assert (refused.value.reason, bool(refused.value.cause)) == (2063, True)


def test_a_ring_that_others_can_read_is_refused(site):
    queue = site.queue("SIGNALG(SHA256)")
    site.careless.put(queue, clear())
    key = site.people.rings["careless"].dir / "own" / site.people.identities["careless"].certificate.name
    key.chmod(0o640)
    site.people.seen()
    refused = refused_put(site.careless, queue)
    assert refused.reason == 2063
    key.chmod(0o600)
    site.people.seen()
    site.careless.put(queue, clear())
    assert site.qm.depth(queue) == 2


def test_sealedat_client_leaves_sealing_to_the_application(site):
    queue = site.queue(PRIVACY + " SEALEDAT(CLIENT)")
    refused = refused_put(site.orders, queue)
    assert (refused.reason, refused.cause) == (2063, "sealed-at-client")


def test_an_anonymous_relay_seals_for_whoever_has_a_ring_and_for_nobody_else(site):
    queue = site.queue(PRIVACY)
    site.orders.put(None, clear(address=queue), site.orders.sender(None))
    [raw] = site.raw(queue)
    assert raw.content_type.startswith(cms.SEALED)
    with pytest.raises(Refused) as refused:
        site.nobody.put(None, clear(address=queue), site.nobody.sender(None))
    assert refused.value.reason == 2063
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


# --- Messages that arrive sealed ---


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("sealed_link", [False, True])
def test_a_message_that_arrives_well_sealed_is_taken_as_it_is(site, quality, sealed_link):
    queue = site.queue(QUALITIES[quality])
    message = site.sealed(queue)
    site.orders.put(queue, message, sealed=sealed_link)
    [raw] = site.raw(queue)
    assert bytes(raw.body) == bytes(message.body), "nothing is sealed twice"
    assert payloads(site.billing.get_all(queue)) == [PAYLOAD]


@pytest.mark.parametrize("policy", [PRIVACY, CONFIDENTIALITY])
def test_a_message_that_arrives_badly_sealed_is_refused(site, policy):
    queue, other = site.queue(policy), site.queue(policy)
    message = site.sealed(queue)
    tampered = copy(message)
    tampered.properties = {"colour": "red"}
    garbage = copy(message, b"\x30\x03\x02\x01\x05")
    signed_only = site.sealed(site.queue(INTEGRITY))
    for bad in (garbage, signed_only, copy(message, b"")):
        assert refused_put(site.orders, queue, bad).reason == 2063
    assert site.qm.errors() == []
    if policy == CONFIDENTIALITY:
        assert refused_put(site.orders, queue, tampered).cause == "tampered"
        assert refused_put(site.orders, other, message).cause == "moved"
    else:
        # Binding and signature are inside: they are judged when it is opened.
        site.orders.put(queue, tampered)
        site.orders.put(other, message)
        assert site.billing.get_all(queue) == site.billing.get_all(other) == []
        assert [error["cause"] for error in site.qm.errors()] == ["tampered", "moved"]
    assert (site.qm.depth(queue), site.qm.depth(other)) == (0, 0)


def test_a_clear_message_on_a_link_that_seals_for_itself_is_refused(site):
    queue = site.queue(PRIVACY)
    sender = site.orders.sender(queue, sealed=True)
    with pytest.raises(Refused) as refused:
        site.orders.put(queue, clear(), sender)
    assert refused.value.reason == 2063


# --- Keys that rotate with messages in flight ---


def test_the_newest_key_seals_and_the_old_ones_still_open(site):
    people, queue = site.people, site.queue(PRIVACY)
    site.orders.put(queue, clear(b"for the old key"))
    old = people.identities["billing"]
    new = people.authority.issue("billing", not_before=-0.5)
    people.rings["billing"].own(new)
    for ring in people.rings.values():
        ring.people(new)
    people.seen()
    site.orders.put(queue, clear(b"for the new key"))
    serials = [recipient_serial(bytes(raw.body)) for raw in site.raw(queue)]
    assert serials == [serial(old), serial(new)]
    assert payloads(site.billing.get_all(queue)) == [b"for the old key", b"for the new key"]
