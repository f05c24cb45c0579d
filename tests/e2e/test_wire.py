"""The standard sentence by sentence (ISO/IEC 19464), frame by frame: each test is named for what it proves, with its section."""

import pytest
from proton import Message

from manager import wait_until
from wire import (
    ACCEPTED, ATTACH_SIZE, ATTACH_SOURCE, ATTACH_TARGET, CLOSE, DETACH, DISPOSITION, FLOW, MODIFIED, OPEN_IDLE,
    OPEN_OFFERED, OPEN_PROPERTIES, RECEIVER, REJECTED, RELEASED, SENDER, SOURCE, SOURCE_DEFAULT_OUTCOME, SOURCE_DURABLE, SOURCE_EXPIRY, SOURCE_NODE,
    SOURCE_OUTCOMES, TARGET, TRANSACTIONAL, TRANSFER, Symbol, Wire, error_of, frames, listed,
)

SECOND = 1
SETTLED, UNSETTLED = 1, 0
FIRST = 0


@pytest.fixture(autouse=True)
def queues(qm):
    qm.mqsc("DEFINE QLOCAL(Q) REPLACE")
    yield
    with qm.connect() as client:
        client.get_all("Q", credit=10_000)


@pytest.fixture
def wire(qm):
    with Wire(qm) as wire:
        yield wire


def put(qm, *bodies, queue="Q"):
    with qm.connect() as client:
        for body in bodies:
            client.put(queue, Message(body=body))


def accepted_in(txn):
    return (TRANSACTIONAL, txn, (ACCEPTED,))


def rolled_back(wire):
    condition, text, _ = error_of(wire.outcome(REJECTED)[0])
    assert condition == "amqp:transaction:rollback" and text.startswith("2003 MQRC_BACKED_OUT"), text


# Part 2: transport.


def test_2_2_a_client_that_leaves_sasl_out_where_it_is_required_is_answered_with_the_header_of_sasl(qm):
    qm.mqsc("ALTER QMGR CHCKCLNT(REQUIRED)")
    try:
        with Wire(qm, opens=False) as wire:
            wire.send(frames.AMQP_HEADER)
            assert wire.header() == frames.SASL_HEADER
            with pytest.raises(ConnectionError):
                wire.exactly(1)
    finally:
        qm.mqsc("ALTER QMGR CHCKCLNT(OPTIONAL)")
    with Wire(qm) as wire:
        assert wire.opened


def test_2_4_1_an_open_on_another_channel_than_0_closes_the_connection(qm):
    with Wire(qm, opens=False) as wire:
        wire.send(frames.AMQP_HEADER, frames.performative(frames.OPEN, "wire", channel=1))
        wire.header()
        assert wire.refused(CLOSE)[0] == "amqp:not-allowed"


def test_2_4_5_an_idle_time_out_of_thirty_seconds_is_offered(wire):
    assert wire.opened[OPEN_IDLE] == 30_000


def test_2_6_7_a_transfer_beyond_the_credit_detaches_the_link_with_transfer_limit_exceeded(qm, wire):
    qm.mqsc("DEFINE QLOCAL(NARROW) MAXDEPTH(1) FULL(WAIT) REPLACE")
    wire.attach(SENDER, "NARROW")
    assert wire.next(FLOW)[6] == 1
    for number in range(2):
        wire.transfer(0, number, tag=bytes([number]))
    assert wire.refused()[0] == "amqp:link:transfer-limit-exceeded"
    assert qm.depth("NARROW") == 1
    qm.mqsc("CLEAR QLOCAL(NARROW)")


@pytest.mark.parametrize("second", [{"form": 1}, {"tag": b"other"}], ids=["message-format", "delivery-tag"])
def test_2_7_5_what_says_another_thing_of_the_same_delivery_detaches_the_link(wire, second):
    wire.sender("Q")
    wire.transfer(0, 0, more=True)
    wire.transfer(0, 0, **second)
    assert wire.refused()[0] == "amqp:invalid-field"


def test_2_7_5_the_first_frame_of_a_delivery_has_a_tag(wire):
    wire.sender("Q")
    wire.transfer(0, 0, tag=None)
    assert wire.refused()[0] == "amqp:invalid-field"


@pytest.mark.parametrize(
    ("attach", "transfer"),
    [({"snd": UNSETTLED}, {"settled": True}), ({"snd": SETTLED}, {"settled": False}), ({"rcv": FIRST}, {"rcv": SECOND})],
    ids=["settled", "unsettled", "second"],
)
def test_2_7_5_a_settle_mode_that_the_link_excludes_detaches_it(qm, wire, attach, transfer):
    wire.sender("Q", **attach)
    wire.transfer(0, 0, **transfer)
    assert wire.refused()[0] == "amqp:invalid-field"
    assert qm.depth("Q") == 0


def test_2_7_5_a_delivery_may_be_settled_first_on_a_link_that_settles_second(wire):
    wire.sender("Q", rcv=SECOND)
    wire.transfer(0, 0, rcv=FIRST)
    assert wire.next(DISPOSITION)[3] is True
    wire.transfer(0, 1, tag=b"u")
    assert not wire.next(DISPOSITION)[3]


def test_2_7_3_max_message_size_is_the_smaller_of_the_queues_and_the_queue_managers(qm, wire):
    qm.mqsc("DEFINE QLOCAL(SMALL) MAXMSGL(1000) REPLACE")
    assert wire.sender("SMALL")[ATTACH_SIZE] == 1000
    assert wire.sender("Q", handle=1)[ATTACH_SIZE] == 4 << 20
    assert wire.sender(None, handle=2)[ATTACH_SIZE] == 100 << 20
    # One that is sent all the same has its reason.
    wire.transfer(0, 0, frames.data(b"x" * 2000))
    assert error_of(wire.outcome(REJECTED)[0])[1].startswith("2030 ")


# Part 3: messaging.


def test_3_2_a_delivery_without_any_section_is_no_message(qm, wire):
    wire.sender("Q")
    wire.transfer(0, 0, b"")
    condition, text, _ = error_of(wire.outcome(REJECTED)[0])
    assert condition == "amqp:decode-error" and text.startswith("2026 MQRC_MD_ERROR"), text
    assert qm.depth("Q") == 0


def test_3_4_5_what_is_modified_as_undeliverable_here_does_not_come_to_that_link_again(qm, wire):
    put(qm, "not here", "here")
    wire.attach(RECEIVER, "Q", credit=1)
    assert wire.next(TRANSFER)[1] == 0
    wire.dispose(0, (MODIFIED, False, True))
    wire.send(frames.flow(0, 10, count=1))
    wire.next(TRANSFER)
    assert b"here" in wire.payload and b"not here" not in wire.payload
    # A drain is answered where nothing more is there for this link.
    wire.send(frames.performative(FLOW, 0, 1 << 30, 0, 1 << 30, 0, 2, 5, None, True))
    wire.next(FLOW)
    wire.attach(RECEIVER, "Q", handle=1, credit=1)
    wire.next(TRANSFER)
    assert b"not here" in wire.payload


def test_3_5_3_a_source_says_what_it_does_and_which_outcomes_it_offers(wire):
    source = wire.attach(RECEIVER, None, source=(SOURCE, "Q", 2, Symbol("never"), 77))[ATTACH_SOURCE][1]
    assert (source[SOURCE_DURABLE] or 0, source[SOURCE_EXPIRY]) == (0, "link-detach")
    assert set(source[SOURCE_OUTCOMES]) == {
        "amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list",
    }
    assert source[SOURCE_DEFAULT_OUTCOME][0] == RELEASED
    target = wire.attach(SENDER, None, handle=1, target=(TARGET, "Q"))[ATTACH_TARGET][1]
    assert target[SOURCE_EXPIRY] == "link-detach"


@pytest.mark.parametrize("address", ["NO.SUCH.MODEL", "STEM.*", "TINY"])
def test_3_5_4_the_address_of_a_dynamic_terminus_is_not_looked_at(qm, wire, address):
    qm.mqsc("DEFINE QMODEL(TINY) MAXMSGL(10) REPLACE")
    answer = wire.attach(SENDER, None, target=(TARGET, address, None, None, None, True))
    assert answer[ATTACH_TARGET][1][0].startswith("BULLA.DYNAMIC.")
    assert answer[ATTACH_SIZE] > 10
    answer = wire.attach(RECEIVER, None, handle=1, source=(SOURCE, address, None, None, None, True))
    assert answer[ATTACH_SOURCE][1][0].startswith("BULLA.DYNAMIC.")


POLICIES = {
    "delete-on-close": 0x2B, "delete-on-no-links": 0x2C, "delete-on-no-messages": 0x2D,
    "delete-on-no-links-or-messages": 0x2E,
}


def dynamic(wire, policy=None, handle=0):
    """The name of a queue made for a link that gets."""
    node = None if policy is None else {Symbol("lifetime-policy"): policy}
    answer = wire.attach(RECEIVER, None, handle=handle, source=(SOURCE, None, None, None, None, True, node))
    return answer[ATTACH_SOURCE][1]


def is_there(qm, name):
    with Wire(qm, container="looks") as wire:
        return listed(wire.attach(SENDER, name), ATTACH_TARGET) is not None


def test_3_5_9_a_dynamic_node_without_a_lifetime_policy_ends_with_its_connection(qm):
    with Wire(qm) as wire:
        source = dynamic(wire)
        assert not listed(source, SOURCE_NODE)
        wire.detach(0)
        wire.next(DETACH)
        assert is_there(qm, source[0])
        wire.sender(source[0], handle=1)
        wire.transfer(1, 0)
        wire.outcome(ACCEPTED)
        wire.attach(RECEIVER, source[0], handle=2, credit=1)
        wire.next(TRANSFER)
    wait_until(lambda: not is_there(qm, source[0]), "it is gone")


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("form", ["numeric", "symbolic"])
def test_3_5_9_a_lifetime_policy_is_known_by_both_its_descriptors_and_answered_as_it_is_kept(qm, wire, name, form):
    source = dynamic(wire, (POLICIES[name],) if form == "numeric" else (Symbol(f"amqp:{name}:list"),))
    assert listed(source, SOURCE_NODE)["lifetime-policy"][0] == POLICIES["delete-on-close"]
    wire.detach(0)
    wire.next(DETACH)
    assert not is_there(qm, source[0])


@pytest.mark.parametrize("policy", [0x2B, "delete-on-close", (0x99,)], ids=["a number", "a string", "unknown"])
def test_3_5_9_what_is_no_lifetime_policy_is_refused(wire, policy):
    node = {Symbol("lifetime-policy"): policy}
    answer = wire.attach(RECEIVER, None, source=(SOURCE, None, None, None, None, True, node))
    assert listed(answer, ATTACH_SOURCE) is None
    condition, text, _ = wire.refused()
    assert condition == "amqp:not-implemented" and text.startswith("2046 "), text


# Part 4: transactions.


def test_4_4_2_a_retirement_on_a_link_that_has_ended_meanwhile_backs_the_unit_out(qm, wire):
    put(qm, "again")
    wire.coordinator()
    wire.attach(RECEIVER, "Q", credit=1)
    wire.next(TRANSFER)
    txn = wire.declare(0)
    # The queue manager ends the link; the client does not know yet when it says what it makes of the message.
    qm.mqsc("ALTER QLOCAL(Q) GET(DISABLED)")
    assert "2016 " in wire.refused()[1]
    wire.dispose(0, accepted_in(txn))
    wire.discharge(1, txn)
    rolled_back(wire)
    qm.mqsc("ALTER QLOCAL(Q) GET(ENABLED)")
    assert qm.depth("Q") == 1


@pytest.mark.parametrize("closed", [False, True])
def test_4_4_2_a_retirement_behind_the_clients_own_detach_backs_the_unit_out(qm, wire, closed):
    put(qm, "again")
    wire.coordinator()
    wire.attach(RECEIVER, "Q", credit=1)
    wire.next(TRANSFER)
    txn = wire.declare(0)
    wire.detach(0, closed)
    wire.dispose(0, accepted_in(txn))
    wire.discharge(1, txn)
    rolled_back(wire)
    assert qm.depth("Q") == 1


def acquire(wire, txn, credit, handle=0):
    """Asks for messages that are acquired in the unit."""
    properties = {Symbol("txn-id"): txn}
    wire.send(frames.performative(FLOW, 0, 1 << 30, 0, 1 << 30, handle, 0, credit, None, None, None, properties))


def acquired(wire, txn):
    """The number of the next delivery, which is part of the unit."""
    fields = wire.next(TRANSFER)
    assert (fields[7][0], bytes(fields[7][1][0])) == (TRANSACTIONAL, txn)
    return fields[1]


@pytest.mark.parametrize("fail", [False, True])
def test_4_4_3_what_is_acquired_in_a_unit_is_back_where_it_fails_and_its_clients_where_not(qm, wire, fail):
    put(qm, "a", "b", "c")
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q")
    acquire(wire, txn, 2)
    said, unsaid = acquired(wire, txn), acquired(wire, txn)
    wire.dispose(said, accepted_in(txn))
    wire.discharge(1, txn, fail)
    if fail:
        # Nothing is the client's any more.
        role, first, last, settled, state = wire.next(DISPOSITION)[:5]
        assert (role, first, last or first, settled, state[0]) == (SENDER, unsaid, unsaid, True, RELEASED)
        wire.outcome(ACCEPTED)
        assert qm.depth("Q") == 3
        with qm.connect() as client:
            assert [message.delivery_count for message in client.get_all("Q")] == [1, 1, 0]
    else:
        wire.outcome(ACCEPTED)
        wire.dispose(unsaid, (ACCEPTED,))
        qm.wait_for_depth("Q", 1)
        # The unit is over, and so are its acquisitions: this one is in none.
        wire.send(frames.flow(0, 1, count=2))
        assert listed(wire.next(TRANSFER), 7) is None


@pytest.mark.parametrize("fail", [False, True])
def test_4_4_3_what_is_sent_settled_in_a_unit_is_gone_where_it_commits_alone(qm, wire, fail):
    put(qm, "a")
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q", snd=SETTLED)
    acquire(wire, txn, 1)
    acquired(wire, txn)
    wire.discharge(1, txn, fail)
    wire.outcome(ACCEPTED)
    qm.wait_for_depth("Q", 1 if fail else 0)


def test_4_4_3_an_outcome_outside_of_the_unit_of_the_acquisition_backs_it_out(qm, wire):
    put(qm, "a")
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q")
    acquire(wire, txn, 1)
    wire.dispose(acquired(wire, txn), (ACCEPTED,))
    wire.discharge(1, txn)
    rolled_back(wire)
    assert qm.depth("Q") == 1


def test_4_4_3_what_was_acquired_on_a_link_that_has_gone_is_the_units(qm, wire):
    put(qm, "accepted", "unsaid")
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q")
    acquire(wire, txn, 2)
    said, _ = acquired(wire, txn), acquired(wire, txn)
    wire.dispose(said, accepted_in(txn))
    wire.detach(0)
    wire.next(DETACH)
    with qm.connect() as client:
        assert client.get_all("Q") == [], "both are locked"
    wire.discharge(1, txn)
    wire.outcome(ACCEPTED)
    with qm.connect() as client:
        assert [message.body for message in client.get_all("Q")] == ["unsaid"]


def test_4_4_3_a_delivery_that_is_cut_by_the_end_of_its_unit_ends_the_link(qm, wire):
    put(qm, "x" * 3_000_000)
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q")
    properties = {Symbol("txn-id"): txn}
    wire.send(frames.performative(FLOW, 0, 1, 0, 1 << 30, 0, 0, 1, None, None, None, properties))
    acquired(wire, txn)
    wire.discharge(1, txn, fail=True)
    assert wire.refused()[0] == "amqp:transaction:rollback"
    wire.outcome(ACCEPTED)
    assert qm.depth("Q") == 1


def test_4_4_3_no_more_is_acquired_than_a_unit_may_have(qm, wire):
    put(qm, "a", "b")
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q")
    qm.mqsc("ALTER QMGR MAXUMSGS(1)")
    try:
        acquire(wire, txn, 2)
        said = acquired(wire, txn)
        wire.dispose(said, accepted_in(txn))
        condition, text, _ = wire.refused()
        assert condition == "amqp:resource-limit-exceeded" and text.startswith("2024 "), text
    finally:
        qm.mqsc("ALTER QMGR MAXUMSGS(10000)")


def test_4_4_3_a_unit_that_is_not_or_a_link_that_copies_acquires_nothing(wire):
    wire.attach(RECEIVER, "Q")
    acquire(wire, b"unknown!", 1)
    assert wire.refused()[0] == "amqp:transaction:unknown-id"
    wire.coordinator()
    txn = wire.declare(0)
    wire.attach(RECEIVER, "Q", 1, source=(SOURCE, "Q", None, None, None, None, None, Symbol("copy")))
    acquire(wire, txn, 1, handle=1)
    assert wire.refused()[0] == "amqp:not-implemented"


# The anonymous terminus (an extension of its own), section 2.2.2.


def to_unknown(to="NO.SUCH.QUEUE"):
    return b"\x00\x53\x73" + frames.listed(0xD0, [b"\x40", b"\x40", frames.encoded(to)]) + frames.data(b"x")


def test_at_2_2_2_a_settled_message_for_nowhere_detaches_with_the_error_and_its_tag(wire):
    wire.sender(None)
    wire.transfer(0, 0, to_unknown(), tag=b"lost", settled=True)
    condition, text, info = wire.refused()
    assert condition == "amqp:not-found" and text.startswith("2085 "), text
    assert info["delivery-tag"] == b"lost"


def test_at_2_2_2_so_does_one_from_a_source_that_knows_no_rejected_outcome(wire):
    outcomes = (SOURCE, None, None, None, None, None, None, None, None, None, Symbol("amqp:accepted:list"))
    wire.sender(None, source=outcomes)
    wire.transfer(0, 0, to_unknown(), tag=b"lost")
    condition, _, info = wire.refused()
    assert (condition, info["delivery-tag"]) == ("amqp:not-found", b"lost")


def test_at_2_2_2_another_one_is_rejected_and_the_link_goes_on(qm, wire):
    wire.sender(None)
    wire.transfer(0, 0, to_unknown())
    assert error_of(wire.outcome(REJECTED)[0])[0] == "amqp:not-found"
    wire.transfer(0, 1, to_unknown("Q"), tag=b"u")
    wire.outcome(ACCEPTED)
    assert qm.depth("Q") == 1


def test_what_is_refused_without_an_answer_is_in_the_log_with_queue_user_and_reason(qm, wire):
    qm.mqsc("DEFINE QLOCAL(SMALL) MAXMSGL(1000) REPLACE")
    wire.sender("SMALL")
    wire.transfer(0, 0, frames.data(b"x" * 2000), settled=True)
    said = lambda line: "SMALL" in line and "2030 MQRC_MSG_TOO_BIG_FOR_Q" in line and "*ANONYMOUS" in line
    wait_until(lambda: any(said(line) for line in qm.log), "the log says so")


# Enforcing Connection Uniqueness 1.0: sole-connection-for-container.

SOLE = Symbol("sole-connection-for-container")
ENFORCEMENT, DETECTION = Symbol("sole-connection-enforcement-policy"), Symbol("sole-connection-detection-policy")
REFUSE, CLOSE_EXISTING, WEAK = 0, 1, 1


@pytest.fixture(scope="module")
def users(qm):
    for user in ("sole1", "sole2"):
        qm.add_user(user)


def sole(qm, user, policy=None, opens=True):
    properties = None if policy is None else {ENFORCEMENT: policy}
    return Wire(qm, "sole", user=user, desired=SOLE, properties=properties, opens=opens)


def told_closed(wire, condition, key, value):
    found, text, info = wire.refused(CLOSE)
    assert (found, info[key]) == (condition, value), text
    with pytest.raises(ConnectionError):
        wire.send(frames.performative(CLOSE))
        wire.exactly(1)


def test_a_second_connection_of_a_container_is_refused_until_the_first_one_has_gone(qm, users):
    with sole(qm, "sole1") as first:
        assert SOLE in first.opened[OPEN_OFFERED]
        assert (first.opened[OPEN_PROPERTIES][DETECTION], first.opened[OPEN_PROPERTIES][ENFORCEMENT]) == (WEAK, REFUSE)
        # What the first one asked for decides, and a plain connection is not looked at.
        with sole(qm, "sole1", CLOSE_EXISTING, opens=False) as second:
            second.open()
            assert second.opened[OPEN_PROPERTIES]["amqp:connection-establishment-failed"] is True
            told_closed(second, "amqp:invalid-field", "invalid-field", "container-id")
        with Wire(qm, "sole", user="sole1") as plain:
            assert SOLE not in plain.opened[OPEN_OFFERED] and DETECTION not in plain.opened[OPEN_PROPERTIES]
        first.send(frames.performative(CLOSE))
        first.next(CLOSE)
        with sole(qm, "sole1") as third:
            assert SOLE in third.opened[OPEN_OFFERED]


def test_a_new_connection_of_a_container_takes_the_place_of_the_first_one_with_all_that_it_held(qm, users):
    qm.mqsc("ALTER QMGR CHIDISPS(2)")
    put(qm, "held")
    try:
        with sole(qm, "sole1", CLOSE_EXISTING) as first:
            first.attach(RECEIVER, "Q", credit=1)
            first.next(TRANSFER)
            with sole(qm, "sole1", CLOSE_EXISTING) as second:
                assert second.opened[OPEN_PROPERTIES][ENFORCEMENT] == CLOSE_EXISTING
                told_closed(first, "amqp:resource-locked", "sole-connection-enforcement", True)
                second.attach(RECEIVER, "Q", credit=1)
                second.next(TRANSFER)
                assert b"held" in second.payload
    finally:
        qm.mqsc("ALTER QMGR CHIDISPS(1)")


def test_a_client_neither_ends_nor_keeps_out_a_connection_of_another_user(qm, users):
    with sole(qm, "sole1", CLOSE_EXISTING) as first, sole(qm, "sole2", CLOSE_EXISTING) as second:
        for wire in (first, second):
            assert SOLE in wire.opened[OPEN_OFFERED]
            wire.send(frames.begin(1))
            wire.next(frames.BEGIN)
    # A client that has not signed in could be any client.
    with sole(qm, None, CLOSE_EXISTING) as wire:
        assert SOLE not in wire.opened[OPEN_OFFERED] and DETECTION not in wire.opened[OPEN_PROPERTIES]


def test_a_policy_for_sole_connections_that_is_none_is_refused(qm, users):
    with sole(qm, "sole1", 2, opens=False) as wire:
        wire.open()
        assert wire.refused(CLOSE)[0] == "amqp:invalid-field"
