"""DISPLAY CONN, STOP CONN and PING QMGR: which user has which queue open, and ending a connection."""


import pytest
from proton import ConnectionException, Message

from manager import shown_rows, wait_until
from proton_driver import Refused


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("connections")
    manager.mqsc("DEFINE QLOCAL(ORDERS); DEFINE QLOCAL(REPLIES)")
    for name in ("orders", "billing"):
        manager.add_user(name)
    yield manager
    assert manager.stop() == 0, "".join(manager.log[-30:])


def rows(qm, command):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", command)
    return shown_rows(done.stdout)


def test_who_has_which_queue_open_is_shown_by_user_application_and_address(qm):
    with qm.connect("orders", container="warehouse") as orders, qm.connect("billing") as billing:
        sender = orders.connection.create_sender("ORDERS")
        receiver = billing.connection.create_receiver("ORDERS", credit=1)
        sender.send(Message("one"))
        receiver.receive()
        handles = rows(qm, "DISPLAY CONN(*) TYPE(HANDLE) WHERE(OBJNAME EQ ORDERS)")
        seen = {(row["USERID"], row["OPENOPTS"], row["UNSETTLED"]) for row in handles}
        assert seen == {("orders", "OUTPUT", 0), ("billing", "INPUT", 1)}
        [mine] = rows(qm, "DISPLAY CONN(*) WHERE(APPLTAG EQ 'warehouse')")
        assert mine["USERID"] == "orders" and mine["HANDLES"] == 1 and mine["SSLCIPH"] and "PRODUCT" in mine
        assert mine["CONNAME"].startswith("127.0.0.1:")
        receiver.accept()
    wait_until(lambda: not rows(qm, "DISPLAY CONN(*)"), "no connection is shown once all are closed")


def test_a_connection_that_is_stopped_ends_and_its_message_goes_back(qm):
    with qm.connect("orders") as orders, qm.connect("billing") as billing:
        orders.connection.create_sender("REPLIES").send(Message("two"))
        receiver = billing.connection.create_receiver("REPLIES", credit=1)
        receiver.receive()
        [row] = rows(qm, "DISPLAY CONN(*) WHERE(USERID EQ 'billing')")
        said = qm.mqsc(f"STOP CONN({row['CONN']})")
        assert "of user billing at 127.0.0.1:" in said and "stopped" in said
        with pytest.raises((ConnectionException, Refused)) as ended:
            billing.connection.create_receiver("REPLIES")
        assert "2009" in str(ended.value)
        assert qm.status("REPLIES")["UNCOM"] == 0
        assert "does not exist" in qm.mqsc(f"STOP CONN({row['CONN']})", code=None)
        # The other connection goes on.
        assert orders.connection.create_receiver("REPLIES", credit=1).receive().body == "two"


def test_the_queue_manager_answers_a_ping(qm):
    assert "responds" in qm.mqsc("PING QMGR")
