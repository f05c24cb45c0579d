"""Who may say which keys and signatures a queue takes, who may know what is in use, and what each may do where new keys are
required: an administrator with one role or none, a user with one right, a client that has not signed in, a partner."""

import json
import socket
import ssl
import threading

import pytest
from proton.reactor import Container

from channels import TLS, Route, dead_letters, trust_each_other
from manager import ERROR_QUEUE, label, shown_rows, wait_until
from modern import Modern
from os_users import CHIEF, LOOKER, NO_ROLE, OPERATOR, as_root
from proton_driver import Refused
from sites import Site, clear, copy, payloads, reason_and_cause, refused_get
from test_http import Web, basic, error
from test_http_admin import command, done
from test_sign_batch import Stream

POLICY = "SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN=orders,O=Demo') RECIP('CN=billing,O=Demo')"
CANDIDATE = f"{POLICY} SIGNBATCH(64) PQC(REQUIRED)"
BATCHED = "SIGNALG(SHA384) SIGNER('CN=orders,O=Demo') SIGNBATCH(64) PQC(REQUIRED)"
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(GUARDED) OBJTYPE(QUEUE) PRINCIPAL('orders', 'old') AUTHADD(PUT)
SET AUTHREC PROFILE(GUARDED) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET)
SET AUTHREC PROFILE(BATCHED) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT)
"""


@pytest.fixture(scope="module")
def site(managers, program):
    """`orders` may put and `billing` may get, by new keys; `old` may put and has old keys alone; `mallory` may nothing."""
    options = ["--admin-directory", program.admin, "--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]
    qm = managers(name="BULLA", options=options, grants=None)
    site = Site(qm, Modern(qm, "orders", "billing", "old", "mallory"))
    for user in ("orders", "billing", "mallory"):
        site.people.modernise(user)
    for user in ("lily", "olaf", "carol"):
        qm.add_user(user)
    qm.mqsc(f"""
        {GRANTS}
        DEFINE QLOCAL(GUARDED); DEFINE QLOCAL(BATCHED); DEFINE QALIAS(GUARDED.RAW) TARGET(GUARDED)
        SET POLICY(GUARDED) {POLICY} PQC(REQUIRED)
        SET POLICY(BATCHED) {BATCHED}
        DEFINE ADMIN(LOOKERS) OSUSER('{LOOKER}') PRINCIPAL('lily') ROLE(LOOK)
        DEFINE ADMIN(OPERATORS) OSUSER('{OPERATOR}') PRINCIPAL('olaf') ROLE(OPERATE)
        DEFINE ADMIN(CHIEFS) OSUSER('{CHIEF}') PRINCIPAL('carol') ROLE(ALL)
    """)
    yield site
    for client in site.clients.values():
        client.close()
    assert qm.process.poll() is None, "".join(qm.log[-30:])
    assert qm.stop() == 0


def is_as_it_was(site):
    shown = site.qm.mqsc("DISPLAY POLICY(GUARDED) PQC SIGNBATCH")
    assert "PQC(REQUIRED)" in shown and "SIGNBATCH(1)" in shown, shown


# What each role may give; what takes more is refused with 2035 and changes nothing.
COMMANDS = [
    ("DISPLAY POLICY(GUARDED) PQC SIGNBATCH QUALITY", "LOOK"),
    ("DISPLAY POLSTATUS(GUARDED)", "LOOK"),
    ("DISPLAY ALGUSE(*)", "LOOK"),
    ("CHECK POLICY(GUARDED)", "OPERATE"),
    (f"CHECK POLICY(GUARDED) {CANDIDATE}", "ALL"),
    (f"SET POLICY(GUARDED) {POLICY} PQC(NONE)", "ALL"),
    (f"SET POLICY(GUARDED) {POLICY} PQC(REQUIRED) SIGNBATCH(64)", "ALL"),
    ("RESEAL QLOCAL(GUARDED)", "ALL"),
]
ROLES = ["LOOK", "OPERATE", "ALL"]


def gives_over_the_socket(program, user, role, commands):
    for text, takes in commands:
        answer = program(user, "mqsc", "-c", text)
        said = answer.stdout + answer.stderr
        if role and ROLES.index(role) >= ROLES.index(takes):
            assert "2035" not in said, (text, said)
        else:
            assert answer.returncode != 0 and "2035" in said, (text, said)


def gives_over_http(site, user, role, commands):
    with Web(site.qm, tls=True, authorization=basic(user, site.qm.passwords[user])) as web:
        for text, takes in commands:
            if not role or ROLES.index(role) < ROLES.index(takes):
                assert error(command(web, text), 403) == (2035, "role"), text
            else:
                assert done(command(web, text))["overallReasonCode"] == 0, text


@as_root
@pytest.mark.parametrize("role", [None, "LOOK", "OPERATE"])
def test_a_role_gives_no_more_than_it_says_over_the_socket(site, program, role):
    user = {None: NO_ROLE, "LOOK": LOOKER, "OPERATE": OPERATOR}[role]
    gives_over_the_socket(program, user, role, COMMANDS)
    is_as_it_was(site)


@pytest.mark.parametrize(("user", "role"), [("mallory", None), ("lily", "LOOK"), ("olaf", "OPERATE")])
def test_a_role_gives_no_more_than_it_says_over_http(site, user, role):
    gives_over_http(site, user, role, COMMANDS)
    with Web(site.qm) as web:
        error(command(web, "DISPLAY ALGUSE(*)"), 401)
    is_as_it_was(site)


# By which groups the keys of TLS are agreed on, and who hears of it.
GROUPS = [
    ("DISPLAY CHANNEL(STRONG) SSLGROUPS", "LOOK"),
    ("DISPLAY QMGR SSLGROUPS", "LOOK"),
    ("DISPLAY CHSTATUS(*) SSLGROUP", "LOOK"),
    ("DISPLAY CONN(*) SSLGROUP", "LOOK"),
    ("ALTER CHANNEL(STRONG) CHLTYPE(RCVR) SSLGROUPS('x25519')", "ALL"),
    ("DEFINE CHANNEL(STRONG) CHLTYPE(RCVR) SSLCIPH(TLS_AES_256_GCM_SHA384) REPLACE", "ALL"),
    ("ALTER QMGR SSLGROUPS('x25519')", "ALL"),
]
STRONG = f"DEFINE CHANNEL(STRONG) CHLTYPE(RCVR) {TLS} SSLGROUPS('X25519MLKEM768') REPLACE"


def groups(site):
    return [site.qm.mqsc(f"DISPLAY {of} SSLGROUPS").strip() for of in ("CHANNEL(STRONG)", "QMGR")]


@as_root
@pytest.mark.parametrize("role", [None, "LOOK", "OPERATE", "ALL"])
def test_groups_of_tls_are_shown_by_look_and_set_by_all_over_the_socket(site, program, role):
    site.qm.mqsc(STRONG)
    before = groups(site)
    user = {None: NO_ROLE, "LOOK": LOOKER, "OPERATE": OPERATOR, "ALL": CHIEF}[role]
    gives_over_the_socket(program, user, role, GROUPS)
    assert (groups(site) == before) == (role != "ALL")
    site.qm.mqsc(f"{STRONG}\nALTER QMGR SSLGROUPS(' ')")


@pytest.mark.parametrize(("user", "role"), [("orders", None), ("mallory", None), ("lily", "LOOK"), ("olaf", "OPERATE")])
def test_groups_of_tls_are_no_matter_of_who_may_put_or_look_over_http(site, user, role):
    site.qm.mqsc(STRONG)
    before = groups(site)
    gives_over_http(site, user, role, GROUPS)
    assert groups(site) == before


@as_root
def test_whoever_may_do_all_says_which_keys_it_takes(site, program):
    for text, _ in COMMANDS[:-1]:
        answer = program(CHIEF, "mqsc", "-c", text)
        assert answer.returncode == 0, (text, answer)
    assert "PQC(REQUIRED)" in site.qm.mqsc("DISPLAY POLICY(GUARDED)")
    site.qm.mqsc(f"SET POLICY(GUARDED) {POLICY} PQC(REQUIRED)")
    told = site.qm.run("audit", "show", "--json", "--kind", "policy", "--data", site.qm.data).stdout.splitlines()
    told = [entry for entry in map(json.loads, told) if "PQC(NONE)" in entry["what"]["text"]]
    assert [entry["who"].get("uid") for entry in told] == [CHIEF], told
    is_as_it_was(site)


@as_root
def test_who_looks_has_a_report_of_what_is_shown_and_of_no_file(site, program):
    """Another user can't read the key rings: the report says that it has not seen them."""
    answer = program(LOOKER, "report", "algorithms", "--json")
    shown = json.loads(answer.stdout)
    assert answer.returncode == 0, answer
    assert {row["policy"] for row in shown["policies"]} == {"GUARDED", "BATCHED"}
    assert shown["certificates"] == []
    answer = program(NO_ROLE, "report", "algorithms", "--json")
    assert answer.returncode == 4 and "2035" in answer.stderr, answer
    assert not json.loads(answer.stdout or "{}").get("policies")


@as_root
def test_who_looks_has_no_policy_checked_and_who_operates_none_that_is_not_set(site, program):
    for user, more, is_allowed in (
        (LOOKER, (), False), (OPERATOR, (), True), (OPERATOR, ("--with", CANDIDATE), False), (NO_ROLE, (), False),
    ):  # fmt: skip
        answer = program(user, "policy", "check", "GUARDED", *more)
        assert ("2035" not in answer.stderr + answer.stdout) == is_allowed, answer
        assert is_allowed or answer.returncode == 4, answer
    is_as_it_was(site)


# --- users with one right ---


def not_authorized(call):
    with pytest.raises(Refused) as refused:
        call()
    assert (refused.value.reason, refused.value.condition) == (2035, "amqp:unauthorized-access"), refused.value


def test_a_user_with_one_right_does_that_one_thing(site):
    site.orders.put("GUARDED", clear(b"by who may put"))
    for user in ("orders", "old", "mallory", "nobody"):
        for options in ({}, {"browse": True}, {"sealed": True}):
            not_authorized(lambda: getattr(site, user).receiver("GUARDED", **options))
        not_authorized(lambda: getattr(site, user).receiver("GUARDED.RAW"))
    for user in ("billing", "mallory", "nobody"):
        for sealed in (False, True):
            not_authorized(lambda: getattr(site, user).sender("GUARDED", sealed=sealed))
            not_authorized(lambda: getattr(site, user).sender("GUARDED.RAW", sealed=sealed))
    # Only a right of its own lets a user be told of the policy.
    link = site.billing.receiver("GUARDED", credit=0, sealed=True)
    assert "bulla:policy" not in {str(name) for name in (link.link.remote_properties or {})}
    link.close()
    assert payloads(site.billing.get_all("GUARDED")) == [b"by who may put"]


def test_a_right_without_the_keys_that_are_required_puts_nothing(site):
    assert reason_and_cause(lambda: site.old.put("GUARDED", clear(b"no"))) == (2063, "signer-key")
    # What is sealed by old keys is no way in, nor what others sealed, nor any bytes.
    site.qm.mqsc("DEFINE QLOCAL(OLD.WAY); DEFINE QALIAS(OLD.WAY.RAW) TARGET(OLD.WAY)")
    for queue in ("OLD.WAY", "OLD.WAY.RAW"):
        site.qm.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('old', 'mallory', '*ANONYMOUS') AUTHADD(ALL)")
    sealed = {}
    required = "PQC(REQUIRED)"
    ways = ("old", "PQC(NONE)", "billing"), ("mallory", required, "mallory"), ("mallory", required, "billing")
    for user, keys, reader in ways:
        asks = POLICY.replace("orders", user).replace("RECIP('CN=billing", f"RECIP('CN={reader}")
        site.qm.mqsc(f"SET POLICY(OLD.WAY) {asks} {keys} BINDNAME(GUARDED@BULLA)")
        getattr(site, user).put("OLD.WAY", clear(b"by another way", id="way"))
        [sealed[user, reader]] = site.nobody.get_all("OLD.WAY.RAW")
    put = lambda message: site.old.put("GUARDED", message, sealed=True)  # noqa: E731
    for which in (("old", "billing"), ("mallory", "mallory")):
        assert reason_and_cause(lambda: put(sealed[which])) == (2063, "weaker-than-policy")
    assert reason_and_cause(lambda: put(copy(sealed["old", "billing"], b"\x30\x03\x02\x01\x00"))) == (2063, "not-sealed")
    assert site.qm.depth("GUARDED") == site.qm.depth(ERROR_QUEUE) == 0
    # Only a reader of the message learns who signed it.
    put(sealed["mallory", "billing"])
    assert refused_get(site.billing, "GUARDED").cause == "signer-not-authorised"
    wait_until(lambda: site.qm.depth(ERROR_QUEUE) == 1, "it is quarantined")
    site.qm.mqsc(f"CLEAR QLOCAL({ERROR_QUEUE})")


def test_who_has_not_signed_in_has_no_ring_whatever_it_may(site):
    site.qm.mqsc("SET AUTHREC PROFILE(GUARDED) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)")
    try:
        site.orders.put("GUARDED", clear(b"secret"))
        assert reason_and_cause(lambda: site.nobody.sender("GUARDED")) == (2063, "no-identity")
        assert reason_and_cause(lambda: site.nobody.receiver("GUARDED")) == (2063, "no-identity")
        # As it lies there it may have it, which is what the right is.
        [raw] = site.nobody.receiver("GUARDED", credit=0, browse=True, sealed=True).drain(accept=False)
        assert b"secret" not in bytes(raw.body)
        assert reason_and_cause(lambda: site.nobody.put("GUARDED", raw, sealed=True)) == (2063, "no-identity")
    finally:
        site.qm.mqsc("SET AUTHREC PROFILE(GUARDED) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHRMV(ALL)")
    assert payloads(site.billing.get_all("GUARDED")) == [b"secret"]


def test_over_http_a_user_puts_and_gets_by_new_keys_as_its_rights_say(site):
    signed_in = lambda user: Web(site.qm, tls=True, authorization=basic(user, site.qm.passwords[user]))  # noqa: E731
    webs = {user: signed_in(user) for user in ("orders", "billing", "old")}
    response, body = webs["orders"].put("GUARDED", "by http")
    assert response.status == 201, body
    assert error(webs["old"].put("GUARDED", "by old keys"), 403) == (2063, "signer-key")
    assert error(webs["orders"].get("GUARDED"), 403)[0] == 2035
    assert error(webs["billing"].put("GUARDED", "no"), 403)[0] == 2035
    response, body = webs["billing"].get("GUARDED")
    assert (response.status, body) == (200, b"by http")
    for web in webs.values():
        web.connection.close()


# --- a partner, and what is shown of a channel that runs ---


@pytest.fixture(scope="module")
def partner(managers, site):
    partner = managers(name="PARTNER")
    trust_each_other(site.qm, partner)
    return partner


def test_a_partner_puts_by_its_user_s_right_and_keys_and_reads_nothing(site, partner):
    """The channel's user has new keys, and puts where it may; elsewhere its ring is not used for anybody else."""
    site.qm.mqsc("DEFINE QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) REPLACE")
    route = Route(partner, site.qm, sender=TLS, receiver=f"SPLPROT(ASPOLICY) MCAUSER('mallory') MRRTY(0) {TLS}", start=False)
    site.qm.mqsc(f"""
        SET POLICY({route.queue}) SIGNALG(SHA384) ENCALG(AES256) SIGNER('CN=mallory,O=Demo') +
            RECIP('CN=billing,O=Demo') PQC(REQUIRED) SIGNBATCH(64)
        SET AUTHREC PROFILE({route.queue}) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET)
        SET AUTHREC PROFILE(SYSTEM.DEAD.LETTER.QUEUE) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(GET,BROWSE)
    """)
    route.put(range(1), body=b"without a right")
    route.start()
    wait_until(lambda: site.qm.depth("SYSTEM.DEAD.LETTER.QUEUE") == 1, "it is a dead letter")
    [dead] = dead_letters(site.qm)
    assert label(dead)["reason"] == 2035 and b"without a right" not in bytes(dead.body), label(dead)
    site.qm.mqsc(f"SET AUTHREC PROFILE({route.queue}) OBJTYPE(QUEUE) PRINCIPAL('mallory') AUTHADD(PUT)")
    route.put(range(5), body=b"with a right")
    route.wait_for_arrival(5)
    assert payloads(site.billing.get_all(route.queue)) == [b"with a right"] * 5
    # Where the policy lists another signer, the partner's user signs nothing.
    partner.mqsc(f"DEFINE QREMOTE(TO.GUARDED) RNAME(GUARDED) RQMNAME(BULLA) XMITQ({route.transmission})")
    site.qm.mqsc("SET AUTHREC PROFILE(GUARDED) OBJTYPE(QUEUE) PRINCIPAL('mallory') AUTHADD(PUT)")
    with partner.connect() as client:
        client.put("TO.GUARDED", clear(b"for the guarded one"))
    route.wait_until_sent()
    site.qm.mqsc("SET AUTHREC PROFILE(GUARDED) OBJTYPE(QUEUE) PRINCIPAL('mallory') AUTHRMV(PUT)")
    with site.qm.connect("billing") as client:
        with pytest.raises(Refused) as refused:
            client.get("GUARDED", wait=2)
    assert refused.value.cause == "signer-not-authorised"
    route.stop()


class Weaker(threading.Thread):
    """A partner's way to the other end that agrees on a curve, whatever the channel's ends would. It takes a connection
    without TLS, and goes on over TLS by the partner's certificate, with a server name of its choice."""

    def __init__(self, partner, port, name):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.far, self.name = self.listener.getsockname()[1], port, name
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.context.set_ecdh_curve("prime256v1")
        self.context.load_cert_chain(partner.data / "tls/server.pem", partner.data / "tls/server.key")
        self.start()

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.far))
                far = self.context.wrap_socket(far, server_hostname=self.name)
            except OSError:
                near.close()
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    @staticmethod
    def copy(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except (OSError, ValueError):
            pass
        for end in (one, other):
            end.close()

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.join()


@pytest.mark.parametrize("asks", ["the channel", "the queue manager"])
def test_no_partner_makes_a_channel_fall_to_a_weaker_group(site, partner, asks):
    """Neither by a server name of its own, for which the listener's groups count, nor by that of the channel."""
    only = "SSLGROUPS('X25519MLKEM768')"
    receiver = f"{TLS} MCAUSER('orders') {only if asks == 'the channel' else ''}"
    route = Route(partner, site.qm, sender="", receiver=receiver, start=False)
    site.qm.mqsc(f"SET AUTHREC PROFILE({route.queue}) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT)")
    route.put(range(3))
    ways = []

    def come_by(name):
        ways.append(Weaker(partner, site.qm.ports["amqps"], name))
        partner.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(SDR) CONNAME('127.0.0.1({ways[-1].port})')")
        route.start()

    if asks == "the queue manager":
        site.qm.mqsc(f"ALTER QMGR {only}")
    for name in ("localhost", f"{route.channel.lower()}.chl.bulla"):
        logged = len(site.qm.log)
        come_by(name)
        refused = lambda: any("group-mismatch" in line for line in list(site.qm.log)[logged:])  # noqa: E731,B023
        wait_until(refused, "the end that is called says why")
        partner.mqsc(f"STOP CHANNEL({route.channel}) MODE(FORCE)", code=None)
        assert route.far_status().get("STATUS") != "RUNNING" and site.qm.depth(route.queue) == 0
    # Where a curve is allowed the same way passes.
    site.qm.mqsc(f"ALTER QMGR SSLGROUPS(' ')\nALTER CHANNEL({route.channel}) CHLTYPE(RCVR) SSLGROUPS(' ')")
    come_by("localhost")
    route.wait_for_arrival(3)
    assert route.far_status()["SSLGROUP"] == "secp256r1"
    route.stop()
    for way in ways:
        way.end()


def report(site, *options):
    return json.loads(site.qm.run("report", "algorithms", "--data", site.qm.data, "--json", *options).stdout)


def test_the_report_has_what_runs_and_messages_that_share_a_signature(site, partner):
    attributes = f"{TLS} SSLGROUPS('X25519MLKEM768')"
    route = Route(partner, site.qm, sender=attributes, receiver=f"MCAUSER('orders') {attributes}")
    wait_until(lambda: route.far_status().get("STATUS") == "RUNNING", "it runs")
    load = Stream(site.qm, "orders", "BATCHED", 100)
    Container(load).run()
    assert len(load.confirmed) == 100, load.refused
    rows = {row["queue"]: row for row in report(site)["messages"]}
    assert (rows["BATCHED"]["messages"], rows["BATCHED"]["signers"]) == (100, ["ml-dsa-65 SHA384"]), rows["BATCHED"]
    used = site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", "DISPLAY ALGUSE(BATCHED)").stdout
    [row] = shown_rows(used)
    assert (row["MSGS"], row["PROTECTED"]) == (100, "INTEGRITY"), row
    [channel] = [row for row in report(site)["channels"] if row["channel"] == route.channel]
    assert channel["groups"] == ["X25519MLKEM768"] and channel["cipher_spec"] == "TLS_AES_256_GCM_SHA384", channel
    status = route.far_status()
    assert (status["SSLGROUP"], status["SSLCIPH"]) == ("X25519MLKEM768", "TLS_AES_256_GCM_SHA384"), status
    route.stop()
