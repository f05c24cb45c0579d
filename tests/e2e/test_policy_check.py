"""`bulla policy check`: what a policy would do is said before a message finds out, and nothing is changed by asking."""

import json
from pathlib import Path

import pytest
from proton import Message

from manager import ERROR_QUEUE
from people import People
from sites import CONFIDENTIALITY, INTEGRITY, PRIVACY, QUALITIES, Site

PROFILE = Path(__file__).parents[2] / "docs/measurements/profile.toml"
# Who may do what, and no more than a real queue manager would say.
RIGHTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE('Q*') OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT, INQ)
SET AUTHREC PROFILE('Q*') OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET, BROWSE, INQ)
SET AUTHREC PROFILE('Q*.RAW') OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)
"""


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers(name="CHECKED", grants=RIGHTS)
    people = People(qm, authority)
    for name in ("orders", "billing", "stranger"):
        people.add(name)
    people.seen()
    site = Site(qm, people)
    yield site
    for client in site.clients.values():
        client.close()
    assert qm.stop() == 0


def check(site, queue, *options, code=0):
    """Its rows by what they are about, and the prediction."""
    done = site.qm.run("policy", "check", queue, "--data", site.qm.data, "--json", *options, code=code)
    answer = json.loads(done.stdout)
    rows = {}
    for row in ({keyword.upper(): value for keyword, value in row.items()} for row in answer["check"]):
        rows.setdefault(row.pop("CHECK"), []).append(row)
    return rows, answer["cost"]


def problems(rows):
    return [row["DETAILS"] for row in rows.get("PROBLEM", [])]


def of_user(rows, user):
    return next(row for row in rows["USER"] if row["USER"] == user)


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_policy_that_works_is_tried_from_end_to_end(site, quality):
    queue = site.queue(QUALITIES[quality])
    rows, _ = check(site, queue)
    assert problems(rows) == []
    assert [(row["BY"], row["FOR"], row["RESULT"]) for row in rows["TRIAL"]] == [("orders", "billing", "OPENS")]
    assert of_user(rows, "orders")["SEALS"] == "YES"
    assert of_user(rows, "billing")["OPENS"] == "YES"
    assert (of_user(rows, "stranger")["PUT"], of_user(rows, "stranger")["GET"]) == ("NO", "NO")
    assert rows["POLICY"][0]["DEST"] == f"{queue}@CHECKED"


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY])
def test_what_a_shared_signature_saves_and_costs_is_told(site, policy):
    queue = site.queue(policy)
    alone, _ = check(site, queue)
    assert alone["POLICY"][0]["SIGNBATCH"] == 1 and "BATCHBYTES" not in alone["POLICY"][0]
    policy = policy.format(orders=site.people.dn("orders"), billing=site.people.dn("billing"))
    rows, cost = check(site, queue, "--with", f"{policy} SIGNBATCH(64)", "--profile", PROFILE)
    told = rows["POLICY"][0]
    assert told["SIGNBATCH"] == 64 and problems(rows) == []
    # Each carries so much more, as the lengths say, too.
    longer = {row["PAYLOAD"]: row["SEALED"] for row in rows["SIZE"]}
    more = [longer[row["PAYLOAD"]] - row["SEALED"] for row in alone["SIZE"]]
    assert all(abs(told["BATCHBYTES"] - bytes) <= 16 for bytes in more) and 200 < told["BATCHBYTES"] < 800
    assert cost["configuration"]["sign_batch"] == 64 and 1 < cost["sharing"]["together"] <= 64

    def page(*options):
        return site.qm.run("policy", "check", queue, "--data", site.qm.data, "--profile", PROFILE, *options).stdout.decode()

    said = page("--with", f"{policy} SIGNBATCH(64)")
    assert "SIGNBATCH(64): one signature for up to 64 messages; private-key time a message " in said
    assert f"each carries up to {told['BATCHBYTES']} bytes more" in said
    assert "messages a signature on average, 64 at most" in said
    assert "SIGNBATCH(1): a signature for each message; private-key time " in page()


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY, CONFIDENTIALITY])
def test_the_lengths_are_those_of_the_messages(site, policy):
    queue = site.queue(policy)
    rows, _ = check(site, queue)
    told = {row["PAYLOAD"]: row["SEALED"] for row in rows["SIZE"]}
    for length in (100, 2048, 65536):
        site.orders.put(queue, Message(body=bytes(length), inferred=True))
        assert len(site.nobody.get(f"{queue}.RAW").body) == told[length]


def test_the_longest_payload_that_is_told_is_one_that_fits(site):
    queue = site.queue(PRIVACY, "MAXMSGL(100000)")
    rows, _ = check(site, queue)
    longest = rows["POLICY"][0]["MAXPAYLOAD"]
    # Header and properties take from it.
    site.orders.put(queue, Message(body=bytes(longest - 300), inferred=True))
    with pytest.raises(Exception, match="2030"):
        site.orders.put(queue, Message(body=bytes(longest + 1), inferred=True))


def test_messages_on_the_queue_are_told_by_what_would_become_of_them_and_stay(site):
    queue = site.queue(PRIVACY)
    for _ in range(3):
        site.orders.put(queue, Message(body=b"sealed", inferred=True))
    site.nobody.put(f"{queue}.RAW", Message(body=b"clear", inferred=True))
    rows, _ = check(site, queue, code=1)
    found = {row["RESULT"]: (row["USER"], row["MSGS"], row.get("CAUSE")) for row in rows["MESSAGES"]}
    assert found == {"OPENS": ("billing", 3, None), "ERRORQ": ("billing", 1, "unsigned")}
    assert any("1 message would go to the error queue when billing gets" in line for line in problems(rows))
    # Such a policy would let the clear one through, and no sealed one.
    rows, _ = check(site, queue, "--with", f"SIGNALG(SHA256) SIGNER('{site.people.dn('orders')}') TOLERATE", code=1)
    found = {row["RESULT"]: (row["MSGS"], row.get("CAUSE")) for row in rows["MESSAGES"]}
    assert found == {"CLEAR": (1, None), "ERRORQ": (3, "weaker-than-policy")}
    assert rows["POLICY"][0]["INFORCE"] == "NO"
    # Nothing was changed by asking.
    assert (site.qm.depth(queue), site.qm.depth(ERROR_QUEUE)) == (4, 0)
    assert "ENCALG(AES256)" in site.qm.mqsc(f"DISPLAY POLICY({queue})")
    assert [message.body for message in site.billing.get_all(queue)] == [b"sealed"] * 3
    assert site.qm.depth(ERROR_QUEUE) == 1
    site.qm.mqsc(f"CLEAR QLOCAL({ERROR_QUEUE})")


def test_only_as_many_messages_are_looked_at_as_one_says(site):
    queue = site.queue(CONFIDENTIALITY)
    for _ in range(5):
        site.orders.put(queue, Message(body=b"sealed", inferred=True))
    rows, _ = check(site, queue, "--messages", 2)
    assert (rows["POLICY"][0]["LOOKED"], rows["POLICY"][0]["LEFT"]) == (2, 3)
    assert [row["MSGS"] for row in rows["MESSAGES"]] == [2]
    rows, _ = check(site, queue, "--messages", 0)
    assert "MESSAGES" not in rows


def test_a_recipient_whom_nobody_knows_and_a_user_without_a_ring_are_problems(site):
    queue = site.queue()
    site.qm.add_user("newcomer")
    site.qm.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('newcomer') AUTHADD(PUT)")
    policy = f"ENCALG(AES256) RECIP('{site.people.dn('billing')}', 'CN=nobody,O=Nowhere')"
    rows, cost = check(site, queue, "--with", policy, "--profile", PROFILE, code=1)
    lines = "\n".join(problems(rows))
    assert "no key ring has a good certificate of RECIP('CN=nobody,O=Nowhere')" in lines
    assert "newcomer may put and can't seal: no-ring" in lines
    assert "no user who may put can seal" in lines
    assert "TRIAL" not in rows and "SIZE" not in rows
    assert f"POLICY({queue})" not in site.qm.mqsc("DISPLAY POLICY(*)")
    # What it would cost is told all the same: the key of the recipient who is known.
    assert cost["rate"] > 0


def test_who_may_get_and_is_no_recipient_is_a_problem(site):
    queue = site.queue(PRIVACY)
    site.qm.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('stranger') AUTHADD(GET)")
    rows, _ = check(site, queue, code=1)
    assert [line.split(":")[:2] for line in problems(rows)] == [
        ["stranger may get and can't open", " not-a-recipient"]
    ]
    trials = {row["FOR"]: (row["RESULT"], row.get("CAUSE")) for row in rows["TRIAL"]}
    assert trials == {"billing": ("OPENS", None), "stranger": ("FAILS", "not-a-recipient")}


def test_a_signer_whom_a_reader_does_not_know_is_a_problem_under_cbc(site):
    queue = site.queue("SIGNALG(SHA256) ENCALG(AES256CBC) SIGNER('{orders}') RECIP('{billing}')")
    rows, _ = check(site, queue)
    assert problems(rows) == []
    ring = site.people.rings["billing"].drop("people", site.people.identities["orders"])
    site.people.seen()
    try:
        rows, _ = check(site, queue, code=1)
        assert of_user(rows, "billing")["OPENCAUSE"] == "policy"
        missing = "needs the certificate of each SIGNER in the ring of billing: CN=orders,O=Demo has none there"
        assert any(line.startswith("billing may get and can't open") and missing in line for line in problems(rows))
    finally:
        ring.people(site.people.identities["orders"])
        site.people.seen()


def test_a_key_of_a_weak_policy_is_for_nothing_else(site):
    strong = site.queue("ENCALG(AES256) RECIP('{billing}')")
    queue = site.queue()
    weak = "ENCALG(AES256CBC) RECIP('{}') WEAK(YES)"
    rows, _ = check(site, queue, "--with", weak.format(site.people.dn("billing")), code=1)
    (line,) = [line for line in problems(rows) if "RECIP names CN=billing,O=Demo" in line]
    assert "a private key that opens AES-CBC without a signature opens nothing else" in line
    site.qm.mqsc(f"SET POLICY({queue}) " + weak.format(site.people.dn("billing")), code=2)
    site.qm.mqsc(f"SET POLICY({queue}) " + weak.format(site.people.dn("stranger")))
    site.qm.mqsc(f"SET POLICY({strong}) ENCALG(AES256) RECIP('{site.people.dn('stranger')}')", code=2)
    # A weak policy beside a weak one.
    site.set_policy(site.queue(), weak.format("{stranger}"))


def test_a_key_that_signs_and_is_not_on_the_list_is_a_problem(site):
    queue = site.queue("SIGNALG(SHA256) SIGNER('{stranger}')")
    rows, _ = check(site, queue, code=1)
    assert of_user(rows, "orders")["SEALCAUSE"] == "signer-not-authorised"
    assert "no user who may put can seal" in problems(rows)


def test_cost_is_predicted_from_a_profile_and_nothing_is_made_up_without_one(site, monkeypatch, tmp_path):
    queue = site.queue(PRIVACY)
    rows, cost = check(site, queue, "--profile", PROFILE)
    assert cost["configuration"]["quality"] == "privacy" and cost["configuration"]["key"] == "rsa2048"
    assert cost["operations"]["sign"] == pytest.approx(1)
    monkeypatch.setenv("BULLA_PROFILE", str(tmp_path / "none.toml"))
    rows, cost = check(site, queue)
    assert cost is None and problems(rows) == []


def test_it_reads_as_a_page_and_a_queue_without_a_policy_is_named(site):
    queue = site.queue(PRIVACY)
    page = site.qm.run("policy", "check", queue, "--data", site.qm.data).stdout.decode()
    for line in (f"PRIVACY for {queue}@CHECKED, as it is set", "no problem found", "messages on the queue: 0 looked at"):
        assert line in page
    done = site.qm.run("policy", "check", "NOPE", "--data", site.qm.data, code=4)
    assert b"2085" in done.stderr and b"policy NOPE does not exist" in done.stderr
    done = site.qm.run("policy", "check", queue, "--with", "ENCALG(AES256)", "--data", site.qm.data, code=2)
    assert b"RECIP" in done.stderr


def test_a_certificate_that_ends_soon_is_told_of(site):
    site.people.add("briefly", not_after=20)
    site.people.seen()
    queue = site.queue("ENCALG(AES256) RECIP('{briefly}')")
    site.qm.mqsc(f"SET AUTHREC PROFILE({queue}) OBJTYPE(QUEUE) PRINCIPAL('briefly') AUTHADD(GET)")
    rows, _ = check(site, queue, code=1)
    assert any(line.startswith(f"the certificate of {site.people.dn('briefly')} ends at ") for line in problems(rows))


def test_an_expired_certificate_is_not_called_a_missing_one(site):
    site.people.add("late", not_before=-10, not_after=-1)
    site.people.seen()
    policy = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{site.people.dn('late')}') RECIP('{site.people.dn('late')}')"
    rows, _ = check(site, site.queue(), "--with", policy, code=1)
    expired = "certificate-expired: certificate of dn=\"CN=late,O=Demo\" expired at 20"
    for kind in ("SIGNER", "RECIP"):
        start = f"no key ring has a good certificate of {kind}('CN=late,O=Demo'): {expired}"
        assert any(line.startswith(start) for line in problems(rows)), problems(rows)
    assert any(f"orders may put and can't seal: {expired}" in line for line in problems(rows))


def test_what_it_is_asked_to_try_is_no_further_command(site):
    asked = "SIGNALG(SHA256); DEFINE QLOCAL(MADE.BY.CHECK)"
    site.qm.run("policy", "check", "QX", "--data", site.qm.data, "--with", asked, code=2)
    assert "MADE.BY.CHECK" not in site.qm.mqsc("DISPLAY QLOCAL(*)")
