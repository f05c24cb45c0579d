"""Clients of a shared group that put by addresses with the name of a queue manager, at a member that does not own it."""

import pytest
from proton import Message
from proton.utils import ConnectionClosed

from groups import member, wait_for_state
from manager import wait_until
from proton_driver import Refused


@pytest.mark.parametrize("redirect", ["LINK", "CONNECTION", "FORWARD"])
def test_who_puts_by_the_address_of_another_queue_manager_is_sent_to_the_owner(managers, engine, redirect):
    group = f"TO{redirect}"
    first = member(managers, engine, "QM1", group, f"REDIRECT({redirect})", grants=None)
    wait_for_state(first, group, "OWNER")
    second = member(managers, engine, "QM2", group, f"REDIRECT({redirect})", grants=None)
    wait_for_state(second, group, "STANDBY")
    for qm in (first, second):
        qm.mqsc(
            """
            SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)
            SET AUTHREC PROFILE(BANK) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)
            DEFINE QREMOTE(BANK) RQMNAME(QM3) XMITQ(TO.QM3)
            """
        )
        for user in ("ann", "bob"):
            qm.add_user(user)
    # Once named like the queue manager, and once by an alias of it.
    first.mqsc(f"DEFINE QLOCAL(TO.QM3) QSGROUP({group}) USAGE(XMITQ)\nDEFINE QLOCAL(Q) QSGROUP({group})")
    first.mqsc(f"DEFINE QLOCAL(QM3) QSGROUP({group}) USAGE(XMITQ)")
    for queue in ("QM3", "Q"):
        first.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")

    def opened(qm, user, address):
        with qm.connect(user) as client:
            try:
                client.put(address, Message(body=address, durable=True))
            except Refused as refused:
                return refused
            except ConnectionClosed as closed:
                return Refused.from_condition(closed.connection.remote_condition)
        return None

    # By an address a link is not forwarded.
    condition = "amqp:not-found" if redirect == "FORWARD" else f"amqp:{redirect.lower()}:redirect"

    def is_told(address):
        told = opened(second, "ann", address)
        return isinstance(told, Refused) and (told.condition, told.reason) == (condition, 2345)

    for address, goes_to in (("THERE@BANK", "TO.QM3"), ("THERE@QM3", "QM3"), ("Q@QM2", "Q")):
        wait_until(lambda: is_told(address), f"{address} is elsewhere")
        told = opened(second, "ann", address)
        assert (told.reason, told.cause) == (2345, "group-elsewhere") and "which QM1 owns" in told.description, told
        leads = address.replace("@QM2", "")
        if redirect != "FORWARD":
            assert (told.info["network-host"], told.info["port"]) == ("127.0.0.1", first.ports["amqp"]), told.info
        if redirect == "LINK":
            assert told.info["address"] == leads
        # There it leads to the queue.
        assert opened(first, "ann", leads) is None
        assert first.depth(goes_to) == 1, goes_to
        # Who has no right hears what it hears of any name.
        strange, none = opened(second, "bob", address), opened(second, "bob", "NO@WHERE")
        assert strange.reason == none.reason == 2035, (strange, none)
        assert strange.description.replace(address, "NO@WHERE") == none.description
    if redirect == "FORWARD":
        assert opened(second, "ann", "Q") is None and first.depth("Q") == 2
    # The group is no queue manager to put to by its members: its queues are opened by their names.
    for qm in (first, second):
        qm.mqsc(f"SET AUTHREC PROFILE({group}) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")
        assert opened(qm, "ann", f"Q@{group}").reason == 2087, qm.name
