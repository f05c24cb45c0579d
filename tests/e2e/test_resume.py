"""Links that go on over a lost connection (ISO/IEC 19464, part 2, section 2.6.13), frame by frame: each test is named for what it
proves. Nothing is lost and nothing is there twice, in both directions."""

import subprocess

import pytest
from proton import Message

from manager import DEADLINE, wait_until
from wire import (
    ACCEPTED, ATTACH_INCOMPLETE, ATTACH_SOURCE, ATTACH_TARGET, ATTACH_UNSETTLED, DETACH, DISPOSITION, FLOW, MODIFIED, RECEIVER, REJECTED,
    SENDER, SOURCE, TARGET, TRANSACTIONAL, TRANSFER, Symbol, Wire, error_of, frames, listed,
)

SECOND = 1
LINK_DETACH, SESSION_END, CONNECTION_CLOSE, NEVER = map(
    Symbol, ("link-detach", "session-end", "connection-close", "never")
)
SECONDS_MAX = 300
# Fields of a terminus, of a transfer and of a disposition.
EXPIRY, TIMEOUT = 2, 3
TRANSFER_ID, TRANSFER_TAG, TRANSFER_SETTLED, TRANSFER_STATE, TRANSFER_RESUME = 1, 2, 4, 7, 8
DISPOSITION_SETTLED, DISPOSITION_STATE = 3, 4
# Longer than what a dispatcher writes to the journal itself: the journal's own thread syncs it, after the connection is gone.
LONG = frames.data(b"x" * 200_000)
DURABLE = b"\x00\x53\x70" + frames.listed(0xD0, [b"\x41"])


# While a file of that name is there, what is written to a journal does not come to the disk.
HELD_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int file) {
    while (access(getenv("BULLA_TEST_HOLD"), F_OK) == 0) usleep(1000);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}
"""


@pytest.fixture(scope="module", autouse=True)
def users(qm):
    for user in ("resume1", "resume2"):
        qm.add_user(user)


@pytest.fixture(params=["1 dispatcher", "2 dispatchers"])
def dispatchers(qm, request):
    qm.mqsc(f"ALTER QMGR CHIDISPS({request.param[0]})")
    yield
    qm.mqsc("ALTER QMGR CHIDISPS(1)")


@pytest.fixture(autouse=True)
def queues(qm):
    qm.mqsc("DEFINE QLOCAL(Q) REPLACE")
    yield
    qm.mqsc("CLEAR QLOCAL(Q)")


def connect(qm, user="resume1"):
    return Wire(qm, "resume", user=user)


def target(policy=CONNECTION_CLOSE, seconds=60):
    return (TARGET, "Q", None, policy, seconds)


def source(policy=CONNECTION_CLOSE, seconds=60):
    return (SOURCE, "Q", None, policy, seconds)


def attach(wire, role, handle=0, **options):
    """Attaches the link, as soon as the queue manager knows that its connection before is gone; the answer."""
    terminus = {"target": options.pop("target", target())} if role is SENDER else {"source": options.pop("source", source())}
    while True:
        answer = wire.attach(role, "Q", handle, name="resumed", **terminus, **options)
        if listed(answer, ATTACH_TARGET if role is SENDER else ATTACH_SOURCE):
            return answer
        condition, text, _ = wire.refused()
        assert condition == "amqp:resource-locked" and text.startswith("2042"), (condition, text)
        wire.detach(handle)


def outcomes(answer):
    """The unsettled map of an answer: states by their descriptors."""
    return {tag: state and state[0] for tag, state in answer[ATTACH_UNSETTLED].items()}


def cut(wire):
    wire.stream.close()


def put(qm, *bodies):
    with qm.connect() as client:
        for body in bodies:
            client.put("Q", Message(body=body))


def got(wire):
    """The next delivery: id, tag, whether it is settled, its state, whether it is resumed, and its payload."""
    fields = wire.next(TRANSFER)
    state = listed(fields, TRANSFER_STATE)
    return (
        fields[TRANSFER_ID], fields[TRANSFER_TAG], bool(fields[TRANSFER_SETTLED]), state and state[0],
        bool(listed(fields, TRANSFER_RESUME)), wire.payload,
    )


# The client puts.


def test_2_6_13_a_put_that_was_not_answered_is_there_once_and_one_that_did_not_arrive_is_put_again(qm, dispatchers):
    with connect(qm) as first:
        attach(first, SENDER)
        first.next(FLOW)
        first.transfer(0, 0, DURABLE + LONG, tag=b"a")
        first.transfer(0, 1, DURABLE + frames.data(b"b"), tag=b"b")
        first.transfer(0, 2, b"\x00\x53", tag=b"c", more=True)
        cut(first)
    with connect(qm) as second:
        answer = attach(second, SENDER, unsettled={b"a": None, b"b": None, b"c": None, b"d": None})
        assert outcomes(answer) == {b"a": ACCEPTED, b"b": ACCEPTED}
        assert answer[ATTACH_TARGET][1][EXPIRY:] == ["connection-close", 60]
        second.next(FLOW)
        second.transfer(0, 0, b"", tag=b"a", resume=True)
        told = second.next(DISPOSITION)
        assert told[DISPOSITION_SETTLED] and told[DISPOSITION_STATE][0] == ACCEPTED
        second.transfer(0, 1, b"", tag=b"b", resume=True, settled=True, state=(ACCEPTED,))
        for number, tag in enumerate((b"c", b"d"), 2):
            second.transfer(0, number, DURABLE + frames.data(tag), tag=tag)
            second.outcome(ACCEPTED)
    assert qm.depth("Q") == 4


def test_2_6_13_a_refusal_is_heard_of_and_what_the_sender_has_settled_is_forgotten(qm):
    with connect(qm) as first:
        attach(first, SENDER)
        first.next(FLOW)
        first.transfer(0, 0, b"no message", tag=b"bad")
        first.outcome(REJECTED)
        first.transfer(0, 1, tag=b"good")
        first.outcome(ACCEPTED)
        first.detach(0, closed=False)
        first.next(DETACH)
        answer = attach(first, SENDER, unsettled={b"bad": None})
        assert list(answer[ATTACH_UNSETTLED]) == [b"bad"]
        condition, text, _ = error_of(listed(answer[ATTACH_UNSETTLED][b"bad"][1], 0))
        assert text.startswith("2026"), (condition, text)
        cut(first)
    with connect(qm) as second:
        answer = attach(second, SENDER, unsettled={b"bad": None, b"good": None})
        assert outcomes(answer) == {b"bad": REJECTED}
    with connect(qm) as third:
        assert attach(third, SENDER)[ATTACH_UNSETTLED] is None, "attached without resuming anything"
    with connect(qm) as fourth:
        assert outcomes(attach(fourth, SENDER, unsettled={b"bad": None})) == {}


def test_2_6_13_a_sender_that_settles_second_settles_what_it_resumes(qm):
    with connect(qm) as first:
        attach(first, SENDER, rcv=SECOND)
        first.next(FLOW)
        first.transfer(0, 0, tag=b"a")
        first.next(DISPOSITION)
        first.transfer(0, 1, tag=b"b")
        assert not first.next(DISPOSITION)[DISPOSITION_SETTLED]
        first.send(frames.performative(DISPOSITION, SENDER, 0, None, True, (ACCEPTED,)))
        first.detach(0, closed=False)
        first.next(DETACH)
        assert outcomes(attach(first, SENDER, rcv=SECOND, unsettled={b"a": None, b"b": None})) == {b"b": ACCEPTED}
        first.transfer(0, 2, b"", tag=b"b", resume=True)
        assert not first.next(DISPOSITION)[DISPOSITION_SETTLED]
    assert qm.depth("Q") == 2


def test_4_4_a_put_in_a_unit_of_work_ends_with_the_unit(qm):
    with connect(qm) as first:
        attach(first, SENDER)
        first.next(FLOW)
        first.coordinator()
        unit = first.declare(0)
        first.transfer(0, 1, tag=b"a", state=(TRANSACTIONAL, unit))
        first.outcome(TRANSACTIONAL)
        cut(first)
    with connect(qm) as second:
        assert outcomes(attach(second, SENDER, unsettled={b"a": None})) == {}
    assert qm.depth("Q") == 0


@pytest.fixture
def held(managers, tmp_path, monkeypatch):
    """A queue manager whose journal waits for the disk while the file `hold` is there."""
    library, hold = tmp_path / "hold.so", tmp_path / "hold"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-", "-ldl"]
    subprocess.run(command, input=HELD_SYNC, text=True, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("BULLA_TEST_HOLD", str(hold))
    qm = managers()
    qm.add_user("resume1")
    qm.mqsc("DEFINE QLOCAL(Q)")
    qm.hold = hold
    yield qm
    hold.unlink(missing_ok=True)
    assert qm.stop() == 0


def test_2_6_13_a_put_that_is_synced_after_its_connection_is_gone_is_answered_then_and_not_before(held):
    with connect(held) as first:
        attach(first, SENDER)
        first.next(FLOW)
        held.hold.touch()
        first.transfer(0, 0, DURABLE + LONG, tag=b"a")
        cut(first)
    with connect(held) as second:
        second.send(frames.performative(
            frames.ATTACH, "resumed", 0, SENDER, None, None, (SOURCE, None), target(), {b"a": None}, None, 0,
        ))
        # Another connection is served meanwhile, after that attach.
        with connect(held, None):
            assert frames.heard(second.stream) == b""
        second.stream.settimeout(DEADLINE)
        held.hold.unlink()
        assert outcomes(second.next(frames.ATTACH)) == {b"a": ACCEPTED}
        second.next(FLOW)
        second.transfer(0, 0, b"", tag=b"a", resume=True)
        assert second.outcome()[0] == ACCEPTED
    assert held.depth("Q") == 1


# The client gets.


def test_2_6_13_what_was_delivered_is_settled_resumed_or_sent_again_as_the_receiver_has_it(qm, dispatchers):
    put(qm, "one", "two", "three")
    with connect(qm) as first:
        attach(first, RECEIVER, rcv=SECOND, credit=3)
        tags = [got(first)[1] for _ in range(3)]
        cut(first)
    with qm.connect() as other:
        assert other.get_all("Q") == [], "they are kept for the link"
    with connect(qm) as second:
        answer = attach(second, RECEIVER, rcv=SECOND, unsettled={tags[0]: (ACCEPTED,), tags[1]: None}, credit=3)
        assert answer[ATTACH_SOURCE][1][EXPIRY:EXPIRY + 2] == ["connection-close", 60]
        assert outcomes(answer) == dict.fromkeys(tags)
        deliveries = sorted((got(second) for _ in range(3)), key=lambda delivery: tags.index(delivery[1]))
        assert deliveries[0][1:] == (tags[0], True, ACCEPTED, True, b"")
        assert (deliveries[1][2], deliveries[1][4]) == (False, True) and b"two" in deliveries[1][5]
        assert (deliveries[2][2], deliveries[2][4]) == (False, False) and b"three" in deliveries[2][5]
        for delivery in deliveries[1:]:
            second.dispose(delivery[0], (ACCEPTED,))
        second.detach(0)
        second.next(DETACH)
    assert qm.depth("Q") == 0


def test_2_6_13_an_outcome_given_before_the_link_is_attached_again_is_applied(qm):
    put(qm, "back", "away")
    with connect(qm) as first:
        attach(first, RECEIVER, credit=2)
        back, away = (got(first)[1] for _ in range(2))
        first.detach(0, closed=False)
        first.next(DETACH)
        attach(first, RECEIVER, unsettled={back: (MODIFIED, True), away: (ACCEPTED,)})
        first.detach(0, closed=False)
        first.next(DETACH)
        # They are settled here, so that the client hears nothing more of them.
        assert outcomes(attach(first, RECEIVER, unsettled={back: (MODIFIED, True), away: (ACCEPTED,)})) == {}
    with qm.connect() as other:
        [message] = other.get_all("Q")
        assert (message.body, message.delivery_count) == ("back", 1)


def test_2_7_3_an_incomplete_map_leaves_the_rest_for_the_next_attachment(qm):
    put(qm, "one", "two", "new")
    with connect(qm) as first:
        attach(first, RECEIVER, rcv=SECOND, credit=2)
        one, two = (got(first)[1] for _ in range(2))
        first.detach(0, closed=False)
        first.next(DETACH)
        attach(first, RECEIVER, rcv=SECOND, unsettled={one: (ACCEPTED,)}, incomplete=True, credit=9)
        assert got(first)[1:4] == (one, True, ACCEPTED)
        first.detach(0, closed=False)
        # Nothing new came before the answer.
        assert first.frame()[1] == DETACH
        assert outcomes(attach(first, RECEIVER, rcv=SECOND, unsettled={two: (ACCEPTED,)}, credit=1)) == {two: None}
        assert got(first)[1:4] == (two, True, ACCEPTED)
        first.send(frames.flow(0, 1, count=1))
        assert b"new" in got(first)[5]


# How long.


@pytest.mark.parametrize("asked, told", [
    ((SESSION_END, 0), ("link-detach", 0)),
    ((SESSION_END, 7), ("session-end", 7)),
    ((CONNECTION_CLOSE, 1_000_000), ("connection-close", SECONDS_MAX)),
    ((LINK_DETACH, 7), ("link-detach", 7)),
    ((NEVER, 0), ("connection-close", SECONDS_MAX)),
], ids=str)
def test_3_5_6_the_expiry_policy_is_answered_as_it_is_done(qm, asked, told):
    def done(terminus):
        policy, seconds = (listed(terminus[1], at) for at in (EXPIRY, TIMEOUT))
        # That policy is the default, and 0 seconds are.
        return policy or "session-end", seconds or 0

    with connect(qm) as wire:
        assert done(attach(wire, SENDER, target=target(*asked))[ATTACH_TARGET]) == told
        assert done(attach(wire, RECEIVER, 1, source=source(*asked))[ATTACH_SOURCE]) == told
    # A client that has not signed in could be any client.
    with Wire(qm, "resume") as wire:
        assert done(attach(wire, SENDER, target=target(*asked))[ATTACH_TARGET]) == ("link-detach", 0)


def test_3_5_6_what_was_delivered_is_back_when_the_time_is_over_as_from_a_lost_connection(qm):
    put(qm, "one")
    with connect(qm) as first:
        attach(first, RECEIVER, source=source(LINK_DETACH, 1), credit=1)
        tag = got(first)[1]
        first.detach(0, closed=False)
        first.next(DETACH)
        with qm.connect() as other:
            found = []
            wait_until(lambda: found.extend(other.get_all("Q")) or found, "the message is back")
            assert found[0].delivery_count == 1
        assert outcomes(attach(first, RECEIVER, unsettled={tag: None})) == {}


def test_2_6_5_a_link_that_is_closed_is_over(qm):
    put(qm, "one")
    with connect(qm) as first:
        attach(first, RECEIVER, credit=1)
        tag = got(first)[1]
        first.detach(0)
        first.next(DETACH)
        assert outcomes(attach(first, RECEIVER, unsettled={tag: None}, credit=1)) == {}
        assert got(first)[4] is False


# Whose.


def test_2_6_1_an_attached_link_is_not_taken_by_another_connection(qm, dispatchers):
    with connect(qm) as first, connect(qm) as second:
        attach(first, SENDER)
        assert listed(second.attach(SENDER, "Q", name="resumed", target=target()), ATTACH_TARGET) is None
        condition, text, _ = second.refused()
        assert condition == "amqp:resource-locked" and "sole-connection-for-container" in text


def test_another_user_of_the_same_container_id_goes_on_with_nothing(qm):
    put(qm, "one")
    with connect(qm) as first:
        attach(first, RECEIVER, credit=1)
        tag = got(first)[1]
        cut(first)
    with connect(qm, "resume2") as other:
        assert outcomes(attach(other, RECEIVER, unsettled={tag: (ACCEPTED,)})) == {}
    with connect(qm) as second:
        assert outcomes(attach(second, RECEIVER, unsettled={tag: (ACCEPTED,)})) == {tag: None}


def test_a_queue_that_was_deleted_meanwhile_is_not_gone_on_with(qm):
    put(qm, "one")
    with connect(qm) as first:
        attach(first, RECEIVER, credit=1)
        tag = got(first)[1]
        first.detach(0, closed=False)
        first.next(DETACH)
        qm.mqsc("DELETE QLOCAL(Q) PURGE")
        qm.mqsc("DEFINE QLOCAL(Q)")
        assert outcomes(attach(first, RECEIVER, unsettled={tag: None})) == {}
        assert listed(attach(first, SENDER, 1), ATTACH_INCOMPLETE) is None
