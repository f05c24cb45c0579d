"""Rules for connections: each type of SET CHLAUTH with and without, for clients and for channels, and what is refused how."""

import itertools

import pytest
from proton import ConnectionException, Message

from channels import RETRY, status, wait_for_status
from manager import wait_until
from pki import Authority
from proton_driver import Client, Refused

CLIENTS = "SYSTEM.DEF.SVRCONN"
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority") / "tls")


@pytest.fixture(scope="module")
def qm(managers, authority):
    """`orders` may put on ORDERS, `billing` may get from it, and whoever has not signed in may browse."""
    manager = managers(name="RULED", grants=None)
    for user in ("orders", "billing"):
        manager.add_user(user)
    (manager.data / "tls/clients.pem").write_bytes(authority.pem)
    manager.mqsc(
        """
        DEFINE QLOCAL(ORDERS)
        SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders', 'billing', '*ANONYMOUS') AUTHADD(CONNECT)
        SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT)
        SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET)
        SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(BROWSE)
        """
    )
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


@pytest.fixture
def rules(qm):
    """Sets rules, which are gone after the test."""
    made = []

    def make(profile, text, action="ADD"):
        made.append((profile, text))
        qm.mqsc(f"SET CHLAUTH({profile}) {text} ACTION({action})")

    yield make
    for profile, text in reversed(made):
        selectors = text.split(" USERSRC")[0].split(" MCAUSER")[0].split(" WARN")[0].split(" CHCKCLNT")[0]
        qm.mqsc(f"SET CHLAUTH({profile}) {selectors} ACTION(REMOVE)", code=None)
    assert "nothing found" in qm.mqsc("DISPLAY CHLAUTH(*)")


def by_certificate(qm, identity):
    return Client(qm.amqps, ca=qm.ca, cert=identity.certificate, key=identity.key, timeout=20)


def rights(connect):
    """As whom the queue manager sees a client: by what it may do."""
    found = set()
    with connect() as client:
        for user, action in (
            ("orders", lambda: client.sender("ORDERS")),
            ("billing", lambda: client.receiver("ORDERS", credit=0)),
            ("nobody", lambda: client.receiver("ORDERS", credit=0, browse=True)),
        ):
            try:
                action()
                found.add(user)
            except Refused as refusal:
                assert refusal.reason == 2035
    return found


def turned_away(connect):
    with pytest.raises((Refused, ConnectionException)) as caught:
        with connect() as client:
            client.receiver("ANY")
            client.receiver("OTHER")
    assert "2035 MQRC_NOT_AUTHORIZED" in str(caught.value)


def said(qm, *texts, again):
    """Does it again until a line of the log has the texts: the log takes only twenty refusals a second."""

    def is_said():
        again()
        return any(all(text in line for text in texts) for line in qm.log)

    wait_until(is_said, f"a line of the log with {texts}")


# ---- clients


def test_without_a_rule_everybody_is_who_they_say_they_are(qm, rules):
    assert rights(qm.connect) == {"nobody"}
    assert rights(lambda: qm.connect("orders")) == {"orders"}
    assert rights(lambda: qm.connect("billing")) == {"billing"}


def test_an_address_is_kept_out_let_in_or_given_a_user(qm, rules):
    rules("'*'", "TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)")
    turned_away(lambda: qm.connect("orders"))
    said(qm, "kept out by CHLAUTH(*) TYPE(ADDRESSMAP) ADDRESS(*)", again=lambda: turned_away(qm.connect))
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('10.*') USERSRC(CHANNEL)")
    turned_away(qm.connect)
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('127.0.0-1.*') USERSRC(CHANNEL)")
    assert rights(qm.connect) == {"nobody"}
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') USERSRC(MAP) MCAUSER('billing')")
    assert rights(qm.connect) == {"billing"}
    assert rights(lambda: qm.connect("orders")) == {"billing"}


def test_a_user_is_mapped_to_another_or_kept_out(qm, rules):
    rules(CLIENTS, "TYPE(USERMAP) CLNTUSER('orders') USERSRC(MAP) MCAUSER('billing')")
    assert rights(lambda: qm.connect("orders")) == {"billing"}
    assert rights(lambda: qm.connect("billing")) == {"billing"}
    assert rights(qm.connect) == {"nobody"}
    rules(CLIENTS, "TYPE(USERMAP) CLNTUSER('billing') ADDRESS('127.*') USERSRC(NOACCESS)")
    turned_away(lambda: qm.connect("billing"))
    assert rights(qm.connect) == {"nobody"}
    # The user goes before the address.
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') USERSRC(NOACCESS)")
    assert rights(lambda: qm.connect("orders")) == {"billing"}
    turned_away(qm.connect)


def test_a_certificate_is_mapped_by_its_name_and_by_who_signed_it(qm, rules, authority):
    shop = authority.issue("shop")
    connect = lambda: by_certificate(qm, shop)
    turned_away(connect)
    rules(CLIENTS, "TYPE(SSLPEERMAP) SSLPEER('CN=shop*,O=Demo') USERSRC(MAP) MCAUSER('orders')")
    assert rights(connect) == {"orders"}
    assert rights(lambda: qm.connect("billing")) == {"billing"}
    rules(CLIENTS, "TYPE(SSLPEERMAP) SSLPEER('CN=shop,O=Demo') SSLCERTI('CN=Somebody else') USERSRC(NOACCESS)")
    assert rights(connect) == {"orders"}
    rules(CLIENTS, "TYPE(SSLPEERMAP) SSLPEER('CN=shop,O=Demo') SSLCERTI('CN=Test authority') USERSRC(MAP) MCAUSER('billing')")
    assert rights(connect) == {"billing"}
    # The certificate goes before the address, and the channel's name before both.
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') USERSRC(NOACCESS)")
    rules("SYSTEM.*", "TYPE(SSLPEERMAP) SSLPEER('CN=shop,O=Demo') USERSRC(NOACCESS)")
    assert rights(connect) == {"billing"}


def test_users_are_blocked_after_they_were_mapped(qm, rules):
    rules("'*'", "TYPE(BLOCKUSER) USERLIST('*ANONYMOUS', 'billing')")
    turned_away(lambda: qm.connect("billing"))
    assert rights(lambda: qm.connect("orders")) == {"orders"}
    said(qm, "kept out by CHLAUTH(*) TYPE(BLOCKUSER)", again=lambda: turned_away(qm.connect))
    rules(CLIENTS, "TYPE(USERMAP) CLNTUSER('orders') USERSRC(MAP) MCAUSER('billing')")
    turned_away(lambda: qm.connect("orders"))
    # A list of a more particular channel counts alone.
    rules(CLIENTS, "TYPE(BLOCKUSER) USERLIST('mallory')")
    assert rights(lambda: qm.connect("orders")) == {"billing"}
    assert rights(qm.connect) == {"nobody"}


def test_a_blocked_address_is_not_listened_to(qm, rules):
    rules("'*'", "TYPE(BLOCKADDR) ADDRLIST('127.0.0.*')")

    def is_told():
        with pytest.raises(Refused) as caught:
            qm.connect(timeout=5)
        assert "2035" not in str(caught.value), "nothing is said, not even that"
        return any("kept out by CHLAUTH(*) TYPE(BLOCKADDR)" in line for line in qm.log)

    # The lines that unauthenticated clients cause are a few a second: one attempt may have none.
    wait_until(is_told, "a line of the log for an attempt")


def test_warn_lets_in_and_tells_the_operator(qm, rules):
    rules("'*'", "TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS) WARN(YES)")
    rules("'*'", "TYPE(BLOCKUSER) USERLIST('*') WARN(YES)")
    assert rights(lambda: qm.connect("orders")) == {"orders"}
    for rule in ("TYPE(ADDRESSMAP) ADDRESS(*)", "TYPE(BLOCKUSER)"):
        said(qm, "WARN(YES) lets in", f"kept out by CHLAUTH(*) {rule}", again=lambda: qm.connect("orders").close())


def test_who_must_sign_in(qm, rules):
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('127.*') USERSRC(CHANNEL) CHCKCLNT(REQUIRED)")
    turned_away(qm.connect)
    assert rights(lambda: qm.connect("orders")) == {"orders"}
    rules(CLIENTS, "TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') USERSRC(MAP) MCAUSER('billing') CHCKCLNT(ASQMGR)")
    assert rights(qm.connect) == {"billing"}
    qm.mqsc("ALTER QMGR CHCKCLNT(REQUIRED)")
    turned_away(qm.connect)
    assert rights(lambda: qm.connect("orders")) == {"billing"}
    qm.mqsc("ALTER QMGR CHCKCLNT(OPTIONAL)")


def test_rules_can_be_disabled(qm, rules):
    rules("'*'", "TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)")
    turned_away(qm.connect)
    qm.mqsc("ALTER QMGR CHLAUTH(DISABLED)")
    assert rights(qm.connect) == {"nobody"}
    qm.mqsc("ALTER QMGR CHLAUTH(ENABLED)")
    turned_away(qm.connect)


def test_a_new_rule_ends_connections_that_it_keeps_out(qm, rules):
    with qm.connect() as nobody, qm.connect("orders") as orders:
        rules("'*'", "TYPE(BLOCKUSER) USERLIST('*ANONYMOUS')")
        with pytest.raises(ConnectionException, match="2035"):
            nobody.connection.wait(lambda: False, timeout=20)
        orders.put("ORDERS", Message())
    with qm.connect("billing") as billing:
        assert len(billing.get_all("ORDERS")) == 1


def test_runcheck_tells_which_rule_would_apply(qm, rules):
    rules("'*'", "TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)")
    rules(CLIENTS, "TYPE(USERMAP) CLNTUSER('orders') USERSRC(MAP) MCAUSER('billing')")
    rules("'QM*'", "TYPE(SSLPEERMAP) SSLPEER('CN=QM2') USERSRC(MAP) MCAUSER('border')")
    rules("'*'", "TYPE(BLOCKUSER) USERLIST('border')")
    check = lambda channel, more: qm.mqsc(f"DISPLAY CHLAUTH({channel}) MATCH(RUNCHECK) ADDRESS('127.0.0.1') {more}", code=None)
    assert "USERSRC(NOACCESS)" in check(CLIENTS, "") and "ADDRESS(*)" in check(CLIENTS, "CLNTUSER('billing')")
    assert "MCAUSER(billing)" in check(CLIENTS, "CLNTUSER('orders')")
    found = check("QM2.QM1", "SSLPEER('CN=QM2,O=Demo')")
    assert "MCAUSER(border)" in found and "TYPE(BLOCKUSER)" in found


# ---- channels


@pytest.fixture
def pair(managers):
    near, far = managers(f"near{next(numbers)}", name="QM1"), managers(f"far{next(numbers)}", name="QM2", grants=None)
    far.mqsc(
        """
        DEFINE QLOCAL(T)
        DEFINE CHANNEL(QM1.QM2) CHLTYPE(RCVR) MRRTY(0)
        SET AUTHREC PROFILE(T) OBJTYPE(QUEUE) PRINCIPAL('border') AUTHADD(PUT)
        """
    )
    near.mqsc(
        f"""
        DEFINE QLOCAL(QM2) USAGE(XMITQ)
        DEFINE QREMOTE(R) RNAME(T) RQMNAME(QM2)
        DEFINE CHANNEL(QM1.QM2) CHLTYPE(SDR) CONNAME('127.0.0.1({far.ports["amqp"]})') XMITQ(QM2) {RETRY}
        """
    )
    with near.connect() as client:
        client.put("R", Message(durable=True))
    yield near, far
    for manager in (near, far):
        assert manager.stop() == 0


def test_a_channel_is_kept_out_until_a_rule_lets_it_in_as_somebody(pair):
    near, far = pair
    far.mqsc("SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)")
    near.mqsc("START CHANNEL(QM1.QM2)")
    wait_for_status(near, "QM1.QM2", "RETRYING")
    assert "2035" in status(near, "QM1.QM2")["REASON"]
    far.mqsc("SET CHLAUTH(QM1.*) TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') MCAUSER('border')")
    far.wait_for_depth("T", 1)
    assert status(far, "QM1.QM2")["MCAUSER"] == "border"
