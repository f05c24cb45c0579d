"""Guessing passwords: who is refused for a time, who is not, and what is told of it."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import sasl
from guesses import Flood
from manager import wait_until

EVENTS = "SYSTEM.ADMIN.QMGR.EVENT"
# Wrong attempts that begin the first lockout of a user at an address, and how long it lasts (seconds).
FAILURES, SECONDS = 10, 10
ELSEWHERE = "127.0.0.2"


def lockouts(manager):
    with manager.connect() as client:
        told = [json.loads(bytes(message.body)) for message in client.get_all(EVENTS)]
    return [event for event in told if event["event"] == "SIGNIN.LOCKOUT"]


def locked_out(manager, user, wrong):
    """Guesses until the lockout begins; when that was asked for, at the latest."""
    for _ in range(FAILURES):
        asked = time.monotonic()
        wrong()
    wait_until(lambda: any(f"sign in as {user} from 127.0.0.1" in line for line in manager.log), "the log tells of it")
    return asked


def still_locked(asked, what):
    """Gives the test up on a machine so slow that the lockout may be over."""
    answer = what()
    if time.monotonic() - asked >= SECONDS:
        pytest.skip("the lockout was over before it could be looked at")
    return answer


def test_after_ten_wrong_passwords_the_right_one_is_as_wrong_for_a_time_and_only_from_that_address(qm):
    qm.mqsc("ALTER QMGR AUTHOREV(ENABLED)")
    for user in ("orders", "billing"):
        qm.add_user(user)
    right = qm.passwords["orders"]
    asked = locked_out(qm, "orders", lambda: sasl.plain(qm, "orders", "wrong"))
    assert still_locked(asked, lambda: sasl.plain(qm, "orders", right)) == sasl.REFUSED
    assert sasl.plain(qm, "orders", right, source=ELSEWHERE) == sasl.OK, "another address"
    assert sasl.plain(qm, "billing", qm.passwords["billing"]) == sasl.OK, "another user"
    wait_until(lambda: sasl.plain(qm, "orders", right) == sasl.OK, "the lockout ends by itself, however often one knocks")
    told = lockouts(qm)
    fields = [(event["user"], event["address"], event["failures"], event["seconds"]) for event in told]
    assert fields == [("orders", "127.0.0.1", FAILURES, SECONDS)], told
    qm.says("as orders refused: not looked at")


def test_an_administrator_sees_a_lockout_and_ends_it(qm):
    qm.add_user("cards")
    right = qm.passwords["cards"]
    asked = locked_out(qm, "cards", lambda: sasl.plain(qm, "cards", "wrong"))
    shown = still_locked(asked, lambda: qm.mqsc("DISPLAY LOCKOUT('cards')"))
    assert "TYPE(USER)" in shown and "ADDRESS(127.0.0.1)" in shown, shown
    ended = still_locked(asked, lambda: qm.mqsc("RESET LOCKOUT('cards') ADDRESS('127.0.0.1')"))
    assert "1 lockout ended" in ended, ended
    assert still_locked(asked, lambda: sasl.plain(qm, "cards", right)) == sasl.OK, "before its time"


def test_scram_and_plain_are_counted_together_and_refused_alike(qm):
    qm.add_user("audit")
    right, qm.passwords["audit"] = qm.passwords["audit"], "wrong"

    done = []

    def wrong():
        done.append(qm.run("put", "ANY", *qm.cli("audit"), stdin=b"x", code=None))
        done.append(sasl.plain(qm, "audit", "wrong"))

    for _ in range(FAILURES // 2 - 1):
        wrong()
    refused = done[0].stderr
    asked = time.monotonic()
    wrong()
    qm.passwords["audit"] = right
    answer = still_locked(asked, lambda: qm.run("put", "ANY", *qm.cli("audit"), stdin=b"x", code=None))
    assert (answer.returncode, answer.stderr) == (done[0].returncode, refused), "the right one looks like a wrong one"
    qm.mqsc("DEFINE QLOCAL(ANY)")
    wait_until(
        lambda: qm.run("put", "ANY", *qm.cli("audit"), stdin=b"x", code=None).returncode == 0, "it is over after a time"
    )


def test_right_passwords_get_in_beside_a_flood_of_wrong_ones(managers):
    manager = managers("flooded")
    seen, unseen = ([f"{kind}-{number}" for number in range(8)] for kind in ("seen", "unseen"))
    for user in (*seen, *unseen):
        manager.add_user(user, rounds=None)

    def outcomes(users):
        with ThreadPoolExecutor(len(users)) as pool:
            return list(pool.map(lambda user: sasl.plain(manager, user, manager.passwords[user]), users))

    assert outcomes(seen) == [sasl.OK] * len(seen), "nothing else goes on"
    with Flood(manager, users=[*seen, *unseen]) as flood:
        assert outcomes(seen) == [sasl.OK] * len(seen), "users who have signed in before"
        assert outcomes(unseen) == [sasl.OK] * len(unseen), "users who have not"
        many = flood.attempts
    assert many > 1000, "the flood was none"
