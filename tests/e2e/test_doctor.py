"""`bulla doctor` finds what is broken between a put and its get, and on the machine: each outcome of a put or get that fails
is made on purpose, and is found with its cause and a command that mends it. Nothing is changed by asking."""

import hashlib
import json
import os
import stat
import struct
import time

import pytest
from proton import Message

import cms
from manager import ERROR_QUEUE, wait_until
from people import People
from pki import Authority
from sites import CONFIDENTIALITY, INTEGRITY, PAYLOAD, PRIVACY, QUALITIES, Site, clear, copy, foreign, refused_put

WELL, BROKEN, UNREACHABLE, REFUSED, WARNED = 0, 1, 6, 4, 9
# Who may do what: `orders` puts, `billing` gets, and administrators' tools that see what lies there do both.
RIGHTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE('Q*') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT)
SET AUTHREC PROFILE('Q*') OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET, BROWSE)
SET AUTHREC PROFILE('RAW.*') OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)
SET AUTHREC PROFILE('SYSTEM.**') OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)
"""


class Ward(Site):
    """A site whose queues have no alias by default: another name past the policy is a finding of its own."""

    def queue(self, policy=None, attributes=""):
        name = f"Q{next(self.numbers)}"
        self.qm.mqsc(f"DEFINE QLOCAL({name}) {attributes}")
        if policy:
            self.set_policy(name, policy)
        return name

    def raw_name(self, queue):
        self.qm.mqsc(f"DEFINE QALIAS(RAW.{queue}) TARGET({queue}) REPLACE")
        return f"RAW.{queue}"

    def put_raw(self, queue, message):
        self.nobody.put(self.raw_name(queue), message)

    def sealed(self, queue, user="orders", payload=PAYLOAD, **fields):
        getattr(self, user).put(queue, clear(payload, **fields))
        return self.nobody.get(self.raw_name(queue))


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers(name="WARD", grants=RIGHTS)
    people = People(qm, authority)
    people.add("expired", not_before=-10, not_after=-1)
    people.add("tomorrow", not_before=1, not_after=10)
    people.add("elliptic", "p256")
    people.add("short", "rsa1024")
    for name in ("orders", "billing", "audit", "mallory", "revoked", "gone", "careless"):
        people.add(name)
    people.seen()
    site = Ward(qm, people)
    yield site
    for client in site.clients.values():
        client.close()
    assert qm.process.poll() is None, "the queue manager ended by itself:\n" + "".join(qm.log[-30:])
    assert qm.stop() == 0


@pytest.fixture(autouse=True)
def clean(site):
    yield
    site.nobody.get_all(ERROR_QUEUE, credit=1000)


def doctor(site, queue=None, *options, code=None):
    """What it found, the worst first."""
    named = [] if queue is None else [queue]
    done = site.qm.run("doctor", *named, "--data", site.qm.data, "--json", *options, code=None)
    assert done.stdout, done.stderr.decode()
    answer = json.loads(done.stdout)
    if code is not None:
        assert done.returncode == code, json.dumps([row for row in answer["found"] if row["condition"] != "WELL"], indent=1)
    conditions = [row["condition"] for row in answer["found"]]
    assert conditions == sorted(conditions, key=["BROKEN", "WARNING", "UNKNOWN", "WELL"].index)
    return answer["found"]


def ill(found, check=None):
    """(condition, check, cause) of all that is not well."""
    rows = [row for row in found if row["condition"] in ("BROKEN", "WARNING") and check in (None, row["check"])]
    return [(row["condition"], row["check"], row["cause"]) for row in rows]


def the(found, check, cause):
    """The worst row of that check and cause."""
    rows = [row for row in found if (row["check"], row["cause"]) == (check, cause)]
    assert rows, f"{check} {cause} is not among {ill(found)}"
    return rows[0]


def mended(row, *words):
    """Its command has these words."""
    assert row["mend"], row
    for word in words:
        assert any(word in command for command in row["mend"]), row
    return row["mend"]


def right(site, queue, user, right):
    site.qm.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('{user}') AUTHADD({right})")


@pytest.mark.parametrize("quality", ["integrity", "privacy", "confidentiality"])
def test_a_way_that_works_is_well_from_end_to_end(site, quality):
    queue = site.queue(QUALITIES[quality])
    found = doctor(site, queue)
    assert ill(found) == []
    assert {row["check"] for row in found} >= {
        "NAME", "SIGNIN", "CHLAUTH", "PUT", "POLICY", "RING", "DEVICES", "SIZE", "PROBE", "DEPTH", "GET", "MESSAGES",
        "ERRORQ", "DEADQ", "DISK", "DATES", "CLOCK",
    }  # fmt: skip
    assert "orders → billing" in the(found, "PROBE", "")["details"]
    doctor(site, queue, code=WELL)
    for user in ("orders", "billing"):
        assert ill(doctor(site, queue, "--user", user, code=WELL)) == []


def test_a_ring_is_seen_as_it_is_now_and_not_as_it_was_a_moment_ago(site):
    queue = site.queue(PRIVACY)
    people = site.people.rings["orders"].dir / "people"
    [billing] = (path for path in people.iterdir() if "billing" in path.name)
    aside = site.qm.data / billing.name
    for _ in range(2):
        doctor(site, queue, code=WELL)
        billing.rename(aside)
        assert the(doctor(site, queue), "RECIP", "unknown-dn")["condition"] == "BROKEN"
        aside.rename(billing)
    doctor(site, queue, code=WELL)


def test_a_queue_without_a_policy_is_well_too(site):
    found = doctor(site, site.queue(), code=WELL)
    assert "not sealed" in the(found, "POLICY", "")["details"]


# --- Each outcome of the table in protection.md, made on purpose. ---


def no_key(site):
    queue = site.queue(PRIVACY)
    site.qm.add_user("keyless") if "keyless" not in site.qm.passwords else None
    right(site, queue, "keyless", "PUT")
    return queue, "keyless", ("RING", "no-ring"), "bulla cert create --ring keyless"


def unknown_dn(site):
    queue = site.queue("ENCALG(AES256) RECIP('CN=nobody,O=Demo')")
    return queue, None, ("RECIP", "unknown-dn"), "bulla cert import"


def ec_key_where_oaep_is_asked(site):
    queue = site.queue("ENCALG(AES256) RECIP('{elliptic}') KEYWRAP(OAEP)")
    return queue, "orders", ("RECIP", "recipient-key"), "SET POLICY"


def expired_signer(site):
    queue = site.queue("SIGNALG(SHA256)")
    right(site, queue, "expired", "PUT")
    return queue, "expired", ("SIGNER", "certificate-expired"), "bulla cert create --ring expired"


def expired_recipient(site):
    queue = site.queue("ENCALG(AES256) RECIP('{expired}')")
    return queue, None, ("RECIP", "certificate-expired"), "bulla cert create --ring expired"


def signer_of_tomorrow(site):
    queue = site.queue("SIGNALG(SHA256)")
    right(site, queue, "tomorrow", "PUT")
    return queue, "tomorrow", ("SIGNER", "certificate-not-yet-valid"), "date -u"


def revoked_signer(site):
    queue = site.queue("SIGNALG(SHA256) SIGNER('{revoked}')")
    right(site, queue, "revoked", "PUT")
    site.people.authority.revoke(site.people.identities["revoked"])
    site.people.rings["revoked"].crl(site.people.authority.crl())
    site.people.seen()
    return queue, "revoked", ("SIGNER", "certificate-revoked"), "bulla cert create --ring revoked"


def revoked_recipient(site):
    queue = site.queue("ENCALG(AES256) RECIP('{gone}')")
    site.people.authority.revoke(site.people.identities["gone"])
    site.people.rings["orders"].crl(site.people.authority.crl())
    site.people.seen()
    return queue, "orders", ("RECIP", "certificate-revoked"), "bulla cert create --ring gone"


def pss_that_does_not_fit(site):
    queue = site.queue("SIGNALG(SHA512) SIGNPAD(PSS)")
    right(site, queue, "short", "PUT")
    return queue, "short", ("SIGNER", "signature-does-not-fit"), "SET POLICY"


def unlisted_signer(site):
    queue = site.queue(PRIVACY)
    right(site, queue, "mallory", "PUT")
    return queue, "mallory", ("SIGNER", "signer-not-authorised"), "ACTION(ADD) SIGNER('CN=mallory,O=Demo')"


def seal_that_is_longer_than_maxmsgl(site):
    return site.queue(PRIVACY, "MAXMSGL(600)"), None, ("SIZE", "2030"), "MAXMSGL("


def not_a_recipient(site):
    queue = site.queue(PRIVACY)
    right(site, queue, "audit", "GET")
    return queue, "audit", ("RECIP", "not-a-recipient"), "ACTION(ADD) RECIP('CN=audit,O=Demo')"


def sealed_at_client(site):
    return site.queue(PRIVACY + " SEALEDAT(CLIENT)"), None, ("POLICY", "sealed-at-client"), "bulla put --ring"


def ring_that_others_can_read(site):
    queue = site.queue("SIGNALG(SHA256)")
    right(site, queue, "careless", "PUT")
    key = site.people.rings["careless"].dir / "own" / site.people.identities["careless"].certificate.name
    key.chmod(0o640)
    site.people.seen()
    return queue, "careless", ("RING", "no-ring"), f"chmod 600 {key}"


def crl_that_is_required_and_missing(site):
    queue = site.queue("SIGNALG(SHA256) REVOCATION(REQUIRED)")
    right(site, queue, "audit", "PUT")
    return queue, "audit", ("SIGNER", "crl-missing"), "--as crl"


PUTS_THAT_ARE_REFUSED = [
    no_key,
    unknown_dn,
    ec_key_where_oaep_is_asked,
    expired_signer,
    expired_recipient,
    signer_of_tomorrow,
    revoked_signer,
    revoked_recipient,
    pss_that_does_not_fit,
    unlisted_signer,
    seal_that_is_longer_than_maxmsgl,
    not_a_recipient,
    sealed_at_client,
    ring_that_others_can_read,
    crl_that_is_required_and_missing,
]


@pytest.mark.parametrize("outcome", PUTS_THAT_ARE_REFUSED, ids=lambda outcome: outcome.__name__)
def test_what_refuses_a_put_or_hides_a_message_is_found_with_its_cause_and_its_command(site, outcome):
    queue, user, (check, cause), command = outcome(site)
    options = [] if user is None else ["--user", user]
    found = doctor(site, queue, *options)
    row = the(found, check, cause)
    assert row["condition"] == ("WARNING" if cause == "sealed-at-client" else "BROKEN")
    mended(row, command)
    assert row["details"] and row["looks_at"]
    if user is not None:
        # Without --user it may be the business of one user alone.
        everyone = doctor(site, queue)
        assert the(everyone, check, cause)["condition"] in ("WARNING", "BROKEN")


def tampered(site, queue):
    message = site.sealed(queue)
    message.properties = {"colour": "red"}
    return message


def moved(site, queue):
    return site.sealed(site.queue(PRIVACY))


def unsigned(site, queue):
    return clear()


def malformed(site, queue):
    sealed = site.sealed(queue)
    return copy(sealed, bytes(sealed.body) + b"\0")


def weaker_than_policy(site, queue):
    return site.sealed(site.queue(INTEGRITY))


@pytest.mark.parametrize("defect", [tampered, moved, unsigned, malformed, weaker_than_policy], ids=lambda it: it.__name__)
def test_a_defective_message_on_the_queue_is_found_before_a_get_moves_it(site, defect):
    queue = site.queue(PRIVACY)
    site.put_raw(queue, defect(site, queue))
    found = doctor(site, queue, code=BROKEN)
    row = the(found, "MESSAGES", defect.__name__.replace("_", "-"))
    assert (row["condition"], row["about"]) == ("BROKEN", "user billing")
    assert "would go to the error queue" in row["details"]
    mended(row, "bulla error list")
    assert (site.qm.depth(queue), site.qm.depth(ERROR_QUEUE)) == (1, 0)


def test_a_wrong_signer_and_one_of_an_unknown_authority_are_found(site, tmp_path):
    queue = site.queue(PRIVACY.replace("SIGNER('{orders}') ", ""))
    right(site, queue, "mallory", "PUT")
    site.mallory.put(queue, clear())
    site.set_policy(queue, PRIVACY)
    assert the(doctor(site, queue), "MESSAGES", "signer-not-authorised")["condition"] == "BROKEN"
    stranger = Authority(tmp_path / "other", "Other authority").issue("orders")
    queue = site.queue(INTEGRITY + " BIND(NONE)")
    site.put_raw(queue, foreign(cms.sign(PAYLOAD, stranger, tmp=tmp_path)))
    assert the(doctor(site, queue), "MESSAGES", "untrusted")["condition"] == "BROKEN"


def test_messages_that_no_reader_here_has_a_key_for_are_broken_and_those_for_another_are_told_of(site):
    queue = site.queue("ENCALG(AES256) RECIP('{billing}')")
    site.orders.put(queue, clear())
    site.set_policy(queue, "ENCALG(AES256) RECIP('{billing}', '{audit}')")
    right(site, queue, "audit", "GET")
    found = doctor(site, queue, "--user", "audit")
    assert the(found, "MESSAGES", "not-a-recipient")["condition"] == "WARNING"
    ring, identity = site.people.rings["billing"], site.people.identities["billing"]
    spare = site.people.authority.issue("spare")
    ring.own(spare).drop("own", identity)
    site.people.seen()
    try:
        found = doctor(site, queue, code=BROKEN)
        row = the(found, "MESSAGES", "not-a-recipient")
        assert row["condition"] == "BROKEN" and "no key ring here has a key that opens 1 message" in row["details"]
        mended(row, "--as own")
    finally:
        ring.own(identity).drop("own", spare)
        site.people.seen()
    doctor(site, queue, "--user", "billing", code=WELL)


def test_a_stale_revocation_list_is_found_at_the_reader_and_in_the_messages_that_wait(site):
    queue = site.queue(INTEGRITY)
    site.orders.put(queue, clear())
    ring = site.people.rings["billing"]
    ring.crl(site.people.authority.crl(-10, -1))
    site.people.seen()
    try:
        found = doctor(site, queue, code=BROKEN)
        row = the(found, "MESSAGES", "crl-stale")
        assert "can't be opened now" in row["details"]
        mended(row, "--as crl")
        assert the(found, "PROBE", "crl-stale")["condition"] == "BROKEN"
        assert any(row["check"] == "DATES" and "revocation list" in row["details"] for row in found)
    finally:
        ring.crl(site.people.authority.crl())
        site.people.seen()


@pytest.mark.parametrize("how", ["full", "disabled", "of no name"])
def test_an_error_queue_that_takes_nothing_is_found(site, how):
    queue = site.queue(PRIVACY)
    if how == "full":
        site.put_raw(queue, tampered(site, queue))
        assert site.billing.get_all(queue) == []
        site.qm.wait_for_depth(ERROR_QUEUE, 1)
        site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) MAXDEPTH(1)")
    elif how == "disabled":
        site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) PUT(DISABLED)")
    else:
        site.qm.mqsc("ALTER QMGR DEADQ(NO.SUCH.QUEUE)")
    try:
        found = doctor(site, queue, code=BROKEN)
        check, cause = {"full": ("ERRORQ", "2053"), "disabled": ("ERRORQ", "2051"), "of no name": ("DEADQ", "2085")}[how]
        row = the(found, check, cause)
        mended(row, "DEFINE QLOCAL" if check == "DEADQ" else "ALTER QLOCAL")
        # The machine's checks say so, too.
        assert (row["condition"], check, cause) in ill(doctor(site, code=BROKEN))
    finally:
        site.qm.mqsc(f"ALTER QLOCAL({ERROR_QUEUE}) MAXDEPTH(5000) PUT(ENABLED)\n"
                     "ALTER QMGR DEADQ(SYSTEM.DEAD.LETTER.QUEUE)")  # fmt: skip


def test_tolerance_weakness_and_another_name_past_the_policy_are_warnings(site):
    queue = site.queue(PRIVACY + " TOLERATE")
    site.raw_name(queue)
    found = doctor(site, queue, code=WARNED)
    said = [row["details"] for row in found if (row["check"], row["condition"]) == ("POLICY", "WARNING")]
    assert any("TOLERATE" in line for line in said)
    assert any(f"RAW.{queue} leads to the same queue and has no policy" in line for line in said)


# --- What stands before the seal. ---


@pytest.mark.parametrize(
    "definitions, cause, command",
    [
        ("DEFINE QALIAS({q}) TARGET(NO.SUCH)", "2082", "DEFINE QLOCAL('NO.SUCH')"),
        ("DEFINE QALIAS({q}) TARGET({q}.B)\nDEFINE QALIAS({q}.B) TARGET({q})", "2001", "ALTER QALIAS('{q}')"),
        ("DEFINE QLOCAL({q}.C)\nDEFINE QALIAS({q}.B) TARGET({q}.C)\nDEFINE QALIAS({q}) TARGET({q}.B)", "2001",
         "TARGET('{q}.C')"),
        ("", "2085", "DEFINE QLOCAL('{q}')"),
        ("DEFINE QREMOTE({q}) RNAME(THERE) RQMNAME(FAR)", "2087", "DEFINE QLOCAL('FAR') USAGE(XMITQ)"),
        ("DEFINE QREMOTE({q}) RNAME(THERE) RQMNAME(FAR) XMITQ({q}.X)", "2196", "DEFINE QLOCAL('{q}.X') USAGE(XMITQ)"),
        ("DEFINE QLOCAL({q}.X)\nDEFINE QREMOTE({q}) RNAME(THERE) RQMNAME(FAR) XMITQ({q}.X)", "2092",
         "ALTER QLOCAL('{q}.X') USAGE(XMITQ)"),
        ("DEFINE QREMOTE({q}) RQMNAME(FAR) XMITQ({q}.X)", "2184", "RNAME("),
    ],
    ids=["base-missing", "aliases-in-a-circle", "alias-of-alias", "nothing", "no-way", "no-xmitq", "no-usage", "no-rname"],
)  # fmt: skip
def test_a_name_that_leads_nowhere_is_said_first_and_its_command_mends_it(site, definitions, cause, command):
    queue = f"Q{next(site.numbers)}"
    if definitions:
        site.qm.mqsc(definitions.format(q=queue))
    found = doctor(site, queue, code=BROKEN)
    assert (found[0]["check"], found[0]["cause"]) == ("NAME", cause), found[0]
    [line] = mended(found[0], command.format(q=queue))
    if "<" not in line:
        # As a shell would have it.
        os_command = line.replace("bulla mqsc", f"{os.environ['BULLA']} mqsc")
        assert os.system(f"{os_command} >/dev/null") == 0
        assert "NAME" not in [check for condition, check, _ in ill(doctor(site, queue)) if condition == "BROKEN"]


def test_a_model_is_no_queue(site):
    site.qm.mqsc("DEFINE QMODEL(QMODELLED)")
    row = the(doctor(site, "QMODELLED"), "NAME", "2057")
    assert row["condition"] == "WARNING" and "a model" in row["details"]


def test_a_remote_queue_needs_a_channel_that_runs_and_its_policy_is_tried_for_there(site):
    queue = f"Q{next(site.numbers)}"
    site.qm.mqsc(f"DEFINE QLOCAL({queue}.X) USAGE(XMITQ)\n"
                 f"DEFINE QREMOTE({queue}) RNAME(THERE) RQMNAME(FAR) XMITQ({queue}.X)")  # fmt: skip
    site.set_policy(queue, PRIVACY)
    found = doctor(site, queue, code=BROKEN)
    mended(the(found, "CHANNEL", ""), "DEFINE CHANNEL")
    assert the(found, "PROBE", "")["condition"] == "UNKNOWN"
    site.qm.mqsc(f"DEFINE CHANNEL({queue}.C) CHLTYPE(SDR) CONNAME('127.0.0.1(1)') XMITQ({queue}.X)")
    found = doctor(site, queue, code=BROKEN)
    row = the(found, "CHANNEL", "")
    assert "nothing starts it" in row["details"]
    mended(row, f"START CHANNEL('{queue}.C')")
    site.qm.mqsc(f"START CHANNEL({queue}.C)")
    wait_until(lambda: "RETRYING" in site.qm.mqsc(f"DISPLAY CHSTATUS({queue}.C)"), "it is tried again")
    row = the(doctor(site, queue, code=BROKEN), "CHANNEL", "")
    assert "RETRYING" in row["details"]
    mended(row, "PING CHANNEL")
    assert ("BROKEN", "CHANNELS", "") in ill(doctor(site, code=BROKEN))
    site.qm.mqsc(f"STOP CHANNEL({queue}.C)")
    wait_until(lambda: "STOPPED" in site.qm.mqsc(f"DISPLAY CHSTATUS({queue}.C)"), "it is stopped")
    found = doctor(site, queue, code=BROKEN)
    mended(the(found, "CHANNEL", ""), "START CHANNEL")
    assert any(row["condition"] == "UNKNOWN" and "can't be seen from here" in row["details"] for row in found)
    site.qm.mqsc(f"STOP CHANNEL({queue}.C) STATUS(INACTIVE)\nDELETE CHANNEL({queue}.C)")
    # policy check knows the way of a remote queue, too.
    done = site.qm.run("policy", "check", queue, "--data", site.qm.data, "--json", code=0)
    assert json.loads(done.stdout)["check"][0]["dest"] == "THERE@FAR"


def test_rights_rules_sign_in_and_lockouts_are_told_with_their_commands(site):
    queue = site.queue(PRIVACY)
    found = doctor(site, queue, "--user", "stranger", code=BROKEN)
    mended(the(found, "PUT", "2035"), "AUTHADD(PUT)")
    mended(the(found, "SIGNIN", "2035"), "bulla user add stranger")
    mended(the(found, "RING", "no-ring"), "bulla cert create --ring stranger")
    queue = site.queue("SIGNALG(SHA256)")
    right(site, queue, "elliptic", "PUT")
    doctor(site, queue, "--user", "elliptic", code=WELL)
    site.qm.mqsc("SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(BLOCKUSER) USERLIST('elliptic')")
    try:
        row = the(doctor(site, queue, "--user", "elliptic", code=BROKEN), "CHLAUTH", "2035")
        [line] = mended(row, "ACTION(REMOVE)")
        assert os.system(f"{line.replace('bulla mqsc', os.environ['BULLA'] + ' mqsc')} >/dev/null") == 0
        doctor(site, queue, "--user", "elliptic", code=WELL)
    finally:
        site.qm.mqsc("SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(BLOCKUSER) ACTION(REMOVEALL)", code=None)
    site.qm.mqsc("SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)")
    try:
        row = the(doctor(site, queue, "--user", "elliptic", code=BROKEN), "CHLAUTH", "2035")
        [line] = mended(row, "TYPE(USERMAP)")
        assert os.system(f"{line.replace('bulla mqsc', os.environ['BULLA'] + ' mqsc')} >/dev/null") == 0
        doctor(site, queue, "--user", "elliptic", code=WELL)
    finally:
        site.qm.mqsc("SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') ACTION(REMOVE)\n"
                     "SET CHLAUTH(SYSTEM.DEF.SVRCONN) TYPE(USERMAP) CLNTUSER('elliptic') ACTION(REMOVE)")  # fmt: skip
        # It has ended every connection.
        site.clients.clear()


@pytest.mark.parametrize("side, cause", [("PUT", "2051"), ("GET", "2016")])
def test_a_side_that_is_disabled_is_found(site, side, cause):
    queue = site.queue(PRIVACY, f"{side}(DISABLED)")
    row = the(doctor(site, queue, code=BROKEN), side, cause)
    mended(row, f"ALTER QLOCAL('{queue}') {side}(ENABLED)")


def test_a_full_queue_and_a_length_that_does_not_fit_are_found(site):
    queue = site.queue(PRIVACY, "MAXDEPTH(1) FULL(REJECT) MAXMSGL(100000)")
    found = doctor(site, queue, "--bytes", 99_999, code=BROKEN)
    [line] = mended(the(found, "SIZE", "2030"), "MAXMSGL(")
    assert os.system(f"{line.replace('bulla mqsc', os.environ['BULLA'] + ' mqsc')} >/dev/null") == 0
    doctor(site, queue, "--bytes", 99_999, code=WELL)
    doctor(site, queue, "--bytes", 3_000, code=WELL)
    site.orders.put(queue, clear())
    mended(the(doctor(site, queue, code=BROKEN), "DEPTH", "2053"), "MAXDEPTH(2)")


def test_dates_ahead_are_told_of_as_far_as_one_asks(site):
    site.people.add("briefly", not_after=60)
    site.people.seen()
    queue = site.queue("SIGNALG(SHA256) SIGNER('{briefly}')")
    right(site, queue, "briefly", "PUT")
    doctor(site, queue, "--user", "briefly", "--days", 50, code=WELL)
    found = doctor(site, queue, "--user", "briefly", "--days", 70, code=WARNED)
    assert any("the certificate of CN=briefly,O=Demo ends at" in row["details"] for row in found)


# --- The machine. ---


def test_the_machine_is_looked_at_with_a_queue_manager_and_without(site, managers):
    found = doctor(site)
    for check in ("RUNS", "OPENSSL", "CPU", "LANES", "MEMORY", "DUMPS", "FILES", "MODES", "RING", "TLS", "DEVICES",
                  "CHANNELS", "DISK", "DATES", "CLOCK", "ERRORQ", "DEADQ"):  # fmt: skip
        assert any(row["check"] == check for row in found), check
    assert "OpenSSL 4" in the(found, "OPENSSL", "")["details"]
    other = managers("other", name="OTHER")
    assert other.stop() == 0
    done = other.run("doctor", "--data", other.data, "--json", code=UNREACHABLE)
    found = json.loads(done.stdout)["found"]
    assert (found[0]["check"], found[0]["mend"]) == ("RUNS", [f"bulla start --data {other.data}"])
    assert {row["check"] for row in found} >= {"OPENSSL", "CPU", "LANES", "MEMORY", "DUMPS", "MODES", "RING", "TLS", "DISK"}
    # A queue can't be asked about.
    done = other.run("doctor", "QX", "--data", other.data, code=UNREACHABLE)
    assert b"no queue manager is running" in done.stderr and b"bulla start" in done.stderr
    (other.data / "users").chmod(0o644)
    done = other.run("doctor", "--data", other.data, "--json", code=BROKEN)
    row = the(json.loads(done.stdout)["found"], "MODES", "")
    assert row["condition"] == "BROKEN"
    assert os.system(row["mend"][0]) == 0
    assert stat.S_IMODE((other.data / "users").stat().st_mode) == 0o600
    other.run("doctor", "--data", other.data, code=UNREACHABLE)
    (other.data).chmod(0o755)
    done = other.run("doctor", "--data", other.data, code=BROKEN)
    assert f"chmod 700 {other.data}".encode() in done.stdout
    done = other.run("doctor", "--data", other.data / "none", code=BROKEN)
    assert b"bulla start --data" in done.stdout


def test_a_ring_that_is_damaged_or_open_to_others_is_found_without_its_queue(site):
    ring = site.people.rings["careless"]
    (ring.dir / "people" / "damaged.pem").write_text("no certificate\n")
    (ring.dir / "people" / "damaged.pem").chmod(0o600)
    site.people.seen()
    try:
        found = doctor(site, code=BROKEN)
        assert the(found, "RING", "no-ring")["about"] == "user careless"
    finally:
        (ring.dir / "people" / "damaged.pem").unlink()
        site.people.seen()


def test_a_listener_s_key_that_is_not_its_certificate_s_is_found_and_a_pipe_holds_nothing_up(site):
    key = site.qm.data / "tls/server.key"
    kept = key.read_bytes()
    key.write_bytes(site.people.identities["orders"].key.read_bytes())
    pipe = site.qm.data / "tls/pipe.pem"
    os.mkfifo(pipe, 0o600)
    try:
        row = the(doctor(site, code=BROKEN), "TLS", "")
        assert row["condition"] == "BROKEN" and "not the key of the certificate" in row["details"]
    finally:
        pipe.unlink()
        key.write_bytes(kept)
    assert the(doctor(site), "TLS", "")["condition"] == "WELL"


# --- What it may not do. ---


def state(site):
    """All that could be changed: definitions, what runs, every file but what is known to be written by itself."""
    shown = site.qm.mqsc("DISPLAY QMGR ALL; DISPLAY QUEUE(*) ALL; DISPLAY POLICY(*) ALL; DISPLAY AUTHREC; "
                         "DISPLAY CHLAUTH(*); DISPLAY CHANNEL(*) ALL; DISPLAY CHSTATUS(*) ALL; DISPLAY LOCKOUT('*')")  # fmt: skip
    files = {}
    for path in sorted(site.qm.data.rglob("*")):
        name = path.relative_to(site.qm.data)
        # The audit log says that it was asked.
        if path.is_file() and name.parts[0] != "audit":
            files[str(name)] = (oct(path.stat().st_mode), hashlib.sha256(path.read_bytes()).hexdigest())
        elif name.parts[0] != "audit":
            files[str(name)] = oct(path.lstat().st_mode)
    return shown, files


def definitions_are_written(qm):
    """The readable copy of the definitions is written a second after a change, and then the journal notes that."""
    journal = (qm.data / "journal/0000000000000000.segment").read_bytes()
    note = journal.rindex(b"objects.changes") + len(b"objects.changes")
    last, written = struct.unpack_from("<QQ", journal, note)
    return last == written


def test_nothing_is_changed_by_asking(site):
    queue = site.queue(PRIVACY)
    for _ in range(3):
        site.orders.put(queue, Message(body=b"sealed", inferred=True, durable=True))
    site.put_raw(queue, clear())
    doctor(site, queue)
    wait_until(lambda: definitions_are_written(site.qm), "what is defined is in its file")
    before = state(site)
    for options in ([queue], [queue, "--user", "orders"], [queue, "--user", "billing"], [], ["--user", "orders"]):
        site.qm.run("doctor", *options, "--data", site.qm.data, code=None)
    after = state(site)
    assert after[0] == before[0]
    assert after[1] == before[1]


def test_what_it_asks_and_which_keys_it_used_is_in_the_audit_log(site):
    queue = site.queue(PRIVACY)
    doctor(site, queue)
    log = "".join(path.read_text() for path in sorted((site.qm.data / "audit").glob("*.jsonl")))
    assert f"CHECK QUEUE({queue})" in log or f"CHECK QUEUE('{queue}')" in log


def test_it_prints_no_secret(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"the payload itself"))
    said = b""
    for options in ([queue], [queue, "--user", "orders"], [], [queue, "--json"]):
        done = site.qm.run("doctor", *options, "--data", site.qm.data, code=None)
        said += done.stdout + done.stderr
    for secret in (b"the payload itself", b"PRIVATE KEY", *(password.encode() for password in site.qm.passwords.values())):
        assert secret not in said


def test_it_is_quick(site):
    queue = site.queue(PRIVACY)
    for _ in range(20):
        site.orders.put(queue, clear())
    began = time.monotonic()
    doctor(site, queue)
    print(f"doctor of a queue took {time.monotonic() - began:.2f} s")


def test_what_is_asked_about_is_a_name_and_no_command(site):
    site.qm.run("doctor", "Q1') USER('x", "--data", site.qm.data, code=2)
    site.qm.run("doctor", "Q1", "--user", "../../etc", "--data", site.qm.data, code=2)
    site.qm.run("doctor", "Q1; DEFINE QLOCAL(MADE.BY.DOCTOR)", "--data", site.qm.data, code=2)
    assert "MADE.BY.DOCTOR" not in site.qm.mqsc("DISPLAY QLOCAL(*)")


def test_it_reads_as_a_page(site):
    queue = site.queue(PRIVACY)
    page = site.qm.run("doctor", queue, "--data", site.qm.data, code=WELL).stdout.decode()
    assert page.startswith("well\n") or "\nwell\n" in page
    refused = site.queue("ENCALG(AES256) RECIP('CN=nobody,O=Demo')")
    done = site.qm.run("doctor", refused, "--data", site.qm.data, code=BROKEN)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "broken"
    assert lines[1].startswith("  RECIP")
    assert "broken" in done.stderr.decode()
    assert refused_put(site.orders, refused).cause == "unknown-dn"


def test_confidentiality_without_a_reader_here_is_not_called_broken(site):
    queue = site.queue(CONFIDENTIALITY)
    found = doctor(site, queue, "--user", "orders", code=WELL)
    assert "orders → billing" in the(found, "PROBE", "")["details"]
