"""Users' key rings that a member of a shared group lacks: shown and told of before it takes the group over."""

import json
import os
import shutil
import time

import pytest
from proton import Message

from groups import member, status, wait_for_state
from manager import wait_until
from people import People
from proton_driver import Refused
from test_events import MANAGER, events

# A member looks at rings each two seconds; within so many it has looked twice.
LOOKS_SECONDS = 4.5


def missing(qm, group):
    shown = status(qm, group)
    return shown["RINGSMISSING"], shown["RINGSWHY"]


def wait_for_missing(qm, group, count, *parts):
    try:
        wait_until(lambda: missing(qm, group)[0] == count, f"{count} rings are missing at {qm.name}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {status(qm, group)}\n{''.join(qm.log[-10:])}") from None
    why = missing(qm, group)[1]
    assert all(part in why for part in parts), why


def told(qm):
    """The events of rings since the last call."""
    return [event for event in events(qm, MANAGER) if event["event"].startswith("GROUP.RINGS.")]


def copy_ring(source, target, user):
    """As an administrator does: into place at once."""
    aside = target.data / "rings" / f".{user}.new"
    aside.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.copytree(source.data / "rings" / user, aside)
    shutil.rmtree(target.data / "rings" / user, ignore_errors=True)
    aside.rename(target.data / "rings" / user)


def put(qm, user, queue, *bodies):
    with qm.connect(user) as client:
        sender = client.sender(queue)
        for body in bodies:
            client.put(queue, Message(body=body, durable=True), sender)


def got(qm, user, queue):
    with qm.connect(user) as client:
        return [message.body for message in client.receiver(queue, credit=0).drain(10)]


@pytest.fixture
def site(managers, engine, authority):
    """The owner of a group, with rings of all users, and a member with the same users and no ring."""

    def make(group):
        owner = member(managers, engine, "QM1", group)
        people = People(owner, authority)
        for name in ("orders", "billing", "ledger", "audit"):
            people.add(name)
        wait_for_state(owner, group, "OWNER")
        other = member(managers, engine, "QM2", group)
        wait_for_state(other, group, "STANDBY")
        shutil.copy(owner.data / "users", other.data / "users")
        other.passwords = owner.passwords
        seal = "SIGNALG(SHA256) ENCALG(AES256)"
        owner.mqsc(
            f"DEFINE QLOCAL(S) QSGROUP({group})\nDEFINE QLOCAL(LEDGER) QSGROUP({group})\n"
            f"SET POLICY(S) {seal} SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')\n"
            f"SET POLICY(LEDGER) {seal} SIGNER('{people.dn('ledger')}') RECIP('{people.dn('ledger')}')"
        )
        return owner, other, people

    return make


def test_a_member_says_whose_rings_it_lacks_and_fails_closed_for_these_users_alone(site):
    owner, other, people = site("LACKING")
    # The rings of those whom policies name, each with the right; `audit` has a ring and is named by none.
    wait_for_missing(other, "LACKING", 3, "billing: no key ring", "ledger: no key ring", "orders: no key ring")
    assert missing(owner, "LACKING") == (0, "")
    other.says("shared group LACKING: while this queue manager owns it")
    for user in ("orders", "ledger"):
        copy_ring(owner, other, user)
    wait_for_missing(other, "LACKING", 1)
    assert missing(other, "LACKING")[1] == "billing: no key ring"
    known = told(other)
    assert {event["event"] for event in known} == {"GROUP.RINGS.MISSING", "GROUP.RINGS.FOUND"}
    named = [ring["user"] for event in known for ring in event.get("rings", [])]
    assert sorted(named) == ["billing", "ledger", "orders"], "each once"
    assert sorted(user for event in known for user in event.get("users", [])) == ["ledger", "orders"]
    assert known[-1]["missing"] == 1 and all(event["group"] == "LACKING" for event in known)
    assert told(owner) == []
    found = json.loads(other.run("doctor", "--data", other.data, "--json", code=None).stdout)
    ring = [row for row in found["found"] if row["cause"] == "group-ring"]
    assert [row["about"] for row in ring] == ["user billing"], found
    # It is so already when it starts, and told of once more.
    other.kill()
    other.start()
    wait_for_missing(other, "LACKING", 1)
    (again,) = told(other)
    assert again["rings"] == [{"user": "billing", "why": "no key ring"}]
    put(owner, "orders", "S", "one", "two")
    put(owner, "ledger", "LEDGER", "entry")
    owner.kill()
    wait_for_state(other, "LACKING", "OWNER")
    # Only its reader is without it.
    put(other, "orders", "S", "three")
    assert got(other, "ledger", "LEDGER") == ["entry"]
    with other.connect("billing") as client, pytest.raises(Refused) as refused:
        client.get("S")
    assert (refused.value.reason, refused.value.cause) == (2063, "key-ring"), refused.value
    assert "no key ring" in refused.value.description, refused.value
    # As the owner it looks at all rings anew, and the one that it lacks stays missing.
    end = time.monotonic() + LOOKS_SECONDS
    wait_until(lambda: time.monotonic() > end, "it has looked")
    assert missing(other, "LACKING") == (1, "billing: no key ring")
    assert told(other) == [] and other.depth("S") == 3 and other.depth("SYSTEM.ERROR.LACKING") == 0
    copy_ring(owner, other, "billing")
    wait_for_missing(other, "LACKING", 0)
    (back,) = told(other)
    assert (back["event"], back["users"], back["missing"]) == ("GROUP.RINGS.FOUND", ["billing"], 0)
    assert got(other, "billing", "S") == ["one", "two", "three"]
    owner.start()
    wait_for_state(owner, "LACKING", "STANDBY")
    wait_for_missing(owner, "LACKING", 0)


def test_a_ring_that_can_t_be_used_or_has_another_key_counts_as_missing(site, authority):
    owner, other, people = site("UNUSABLE")
    wait_for_missing(other, "UNUSABLE", 3)
    for user in ("orders", "billing", "ledger"):
        copy_ring(owner, other, user)
    wait_for_missing(other, "UNUSABLE", 0)
    told(other)
    os.chmod(other.data / "rings/ledger/own", 0o755)
    wait_for_missing(other, "UNUSABLE", 1, "ledger: ", "mode 0755")
    os.chmod(other.data / "rings/ledger/own", 0o700)
    wait_for_missing(other, "UNUSABLE", 0)
    # Another key at the owner, which the member's copy does not have.
    renewed = authority.issue("billing")
    people.rings["billing"]._write("own", "renewed.pem", renewed.own_pem)
    wait_for_missing(other, "UNUSABLE", 1, "billing: its ring lacks the key", f"of {people.dn('billing')}")
    copy_ring(owner, other, "billing")
    wait_for_missing(other, "UNUSABLE", 0)
    # What a policy does not name any more is not needed, nor is a ring that is taken away at the owner.
    for user in ("billing", "ledger"):
        shutil.rmtree(other.data / "rings" / user)
    wait_for_missing(other, "UNUSABLE", 2)
    orders = people.dn("orders")
    owner.mqsc(f"SET POLICY(S) SIGNALG(SHA256) ENCALG(AES256) SIGNER('{orders}') RECIP('{orders}')")
    wait_for_missing(other, "UNUSABLE", 1, "ledger: no key ring")
    shutil.rmtree(owner.data / "rings/ledger")
    wait_for_missing(other, "UNUSABLE", 0)
    names = [(event["event"], event["missing"]) for event in told(other)]
    missed, found = "GROUP.RINGS.MISSING", "GROUP.RINGS.FOUND"
    assert names[:4] == [(missed, 1), (found, 0), (missed, 1), (found, 0)], names
    assert names[-1] == (found, 0), names
