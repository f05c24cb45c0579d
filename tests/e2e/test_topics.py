"""Topics: each subscription is a queue of its own, and a publication goes to all that match, or to none."""

import json
import re

import pytest
from proton import Described, Message, symbol
from proton.reactor import DurableSubscription, Filter

from manager import shown_rows, wait_until
from proton_driver import Refused
from units import Unit

EVERYBODY = "PRINCIPAL('*', '*ANONYMOUS')"
TOPICS = f"SET AUTHREC PROFILE(SYSTEM.BASE.TOPIC) OBJTYPE(TOPIC) {EVERYBODY} AUTHADD(ALL)"
NO_LOCAL = Filter({symbol("no-local"): Described(symbol("apache.org:no-local-filter:list"), [])})
DURABLE = [DurableSubscription()]
SHARED = ["topic", "shared", "global"]


@pytest.fixture(scope="module")
def site(qm, people):
    qm.mqsc(TOPICS)
    return qm


@pytest.fixture
def client(site):
    with site.connect() as client:
        yield client


def reason(make):
    with pytest.raises(Refused) as error:
        make()
    return error.value.reason


def subscriptions(qm):
    """DISPLAY SUB, by name."""
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY SUB(*) ALL")
    return {row["SUB"]: row for row in shown_rows(done.stdout)}


def queues(qm):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY QLOCAL(SYSTEM.MANAGED.*)")
    return [row["QUEUE"] for row in shown_rows(done.stdout)]


def bodies(receiver):
    return [message.body for message in receiver.drain()]


def persistent(body, **properties):
    return Message(body=body, durable=True, properties=properties or None)


def test_each_subscriber_gets_a_copy_and_the_queue_of_that_name_gets_none(site, client):
    site.mqsc("DEFINE QLOCAL('both')")
    with site.connect() as other:
        first, second = client.receiver("topic://both", credit=0), other.receiver("both", credit=0, asks=["topic"])
        for number in range(3):
            client.put("topic://both", Message(body=number))
        assert (bodies(first), bodies(second)) == ([0, 1, 2], [0, 1, 2])
        assert site.depth("both") == 0
        client.put("both", Message(body="to the queue"))
        assert (bodies(first), bodies(second)) == ([], [])
    assert client.get("both").body == "to the queue"


def test_a_subscription_that_is_not_durable_begins_and_ends_with_its_link(site, client):
    client.put("topic://gone", Message(body="before"))
    receiver = client.receiver("topic://gone", credit=0)
    client.put("topic://gone", Message(body="while"))
    assert bodies(receiver) == ["while"]
    receiver.detach()
    client.put("topic://gone", Message(body="after"))
    assert bodies(client.receiver("topic://gone", credit=0)) == []


def test_wildcards_stand_for_levels(client):
    patterns = ["a/b", "a/+", "a/#", "+/b", "#", "b/#"]
    receivers = {pattern: client.receiver(f"topic://{pattern}", credit=0) for pattern in patterns}
    for topic in ["a", "a/b", "a/b/c", "x/b"]:
        client.put(f"topic://{topic}", Message(body=topic))
    assert {pattern: bodies(receiver) for pattern, receiver in receivers.items()} == {
        "a/b": ["a/b"],
        "a/+": ["a/b"],
        "a/#": ["a", "a/b", "a/b/c"],
        "+/b": ["a/b", "x/b"],
        "#": ["a", "a/b", "a/b/c", "x/b"],
        "b/#": [],
    }
    for wrong in ["a/+", "#", "", "a\nb", "x" * 10_241]:
        assert reason(lambda: client.sender(f"topic://{wrong}")) == 2425, wrong
    assert reason(lambda: client.receiver("topic://a\nb")) == 2425


def test_an_anonymous_sender_publishes_by_the_address_of_each_message(site, client):
    receiver = client.receiver("topic://relayed", credit=0)
    relay = client.sender(None)
    for address in ["topic://relayed", "topic://other", "topic://relayed"]:
        client.put(None, Message(address=address, body=address), relay)
    assert bodies(receiver) == ["topic://relayed"] * 2
    assert reason(lambda: client.put(None, Message(address="topic://a/#"), relay)) == 2425
    assert reason(lambda: client.put(None, Message(address="relayed"), relay)) == 2085


def shown(qm, what):
    """The rows of a DISPLAY, and nothing where it finds nothing."""
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY {what}", code=None)
    return shown_rows(done.stdout)


def test_how_subscriptions_stand_is_shown_those_that_are_not_durable_included(managers):
    qm = managers("standing")
    qm.mqsc(TOPICS)
    qm.mqsc("DEFINE QLOCAL(ALL.PRICES)\nDEFINE SUB(AUDIT) TOPICSTR('prices/#') DEST(ALL.PRICES)")
    with qm.connect(container="desk") as client:
        durable = client.receiver("topic://prices/+", name="sub", options=DURABLE, credit=0)
        passing = client.receiver("topic://prices/ibm", credit=0)
        for number in range(3):
            client.put("topic://prices/ibm", persistent(number))
        client.put("topic://prices", Message(body="for one alone"))
        assert bodies(passing) == [0, 1, 2]
        settled = lambda: [row["CURDEPTH"] for row in shown(qm, "SBSTATUS(*) WHERE(DURABLE EQ NO)")] == [0]
        wait_until(settled, "what was accepted is gone")
        rows = {row["SUB"]: row for row in shown(qm, "SBSTATUS(*)")}
        named = [name for name in rows if name.startswith("SYSTEM.MANAGED.NDURABLE.")]
        assert sorted(rows) == sorted(["AUDIT", "desk|sub", *named]) and len(named) == 1
        stands = {
            name: [rows[name][key] for key in ["TOPICSTR", "DURABLE", "SUBTYPE", "NUMMSGS", "CURDEPTH", "IPPROCS"]]
            for name in rows
        }
        assert stands["AUDIT"] == ["prices/#", "YES", "ADMIN", 4, 4, 0]
        assert stands["desk|sub"] == ["prices/+", "YES", "API", 3, 3, 1]
        assert stands[named[0]] == ["prices/ibm", "NO", "API", 3, 0, 1]
        assert rows["AUDIT"]["RESMDATE"] == "" and rows["desk|sub"]["RESMDATE"] and rows["desk|sub"]["LMSGTIME"]
        # Another subscription comes, and what is counted goes on; a unit that is backed out counts nothing.
        other = client.receiver("topic://other", name="more", options=DURABLE, credit=0)
        unit = Unit(client)
        sender = client.sender("topic://prices/ibm")
        unit.put(sender, persistent("in a unit"))
        assert shown(qm, "SBSTATUS(AUDIT) NUMMSGS") == [{"SUB": "AUDIT", "NUMMSGS": 4}]
        unit.commit()
        assert shown(qm, "SBSTATUS(AUDIT) NUMMSGS") == [{"SUB": "AUDIT", "NUMMSGS": 5}]
        assert [row["SUB"] for row in shown(qm, "SBSTATUS(*) WHERE(DURABLE EQ NO)")] == named
        for receiver in durable, passing, other:
            receiver.close()
    wait_until(lambda: [row["SUB"] for row in shown(qm, "SBSTATUS(*)")] == ["AUDIT"], "the others are gone")
    assert "does not exist" in qm.mqsc("DISPLAY SBSTATUS('desk|sub')", code=4)
    assert qm.stop() == 0


def test_how_topics_stand_is_shown_with_what_holds_for_them(managers):
    qm = managers("topics")
    qm.mqsc(TOPICS)
    qm.mqsc("DEFINE TOPIC(PRICES) TOPICSTR('prices') DURSUB(NO) PMSGDLV(ALL)")
    with qm.connect() as client, qm.connect() as other:
        senders = [client.sender("topic://prices/ibm"), other.sender("topic://prices/ibm"), other.sender("topic://news")]
        receivers = [client.receiver(f"topic://prices/{what}", credit=0) for what in ["#", "#", "ibm"]]
        counts = lambda pattern: [(row["TOPICSTR"], row["PUBCOUNT"], row["SUBCOUNT"]) for row in shown(qm, f"TPSTATUS('{pattern}')")]
        assert counts("prices/#") == [("prices", 0, 0), ("prices/#", 0, 2), ("prices/ibm", 2, 1)]
        assert counts("+") == [("", 0, 0), ("news", 1, 0), ("prices", 0, 0)]
        assert counts("nobody/knows") == [("nobody/knows", 0, 0)]
        row = shown(qm, "TPS('prices/ibm')")[0]
        assert [row[key] for key in ["ADMIN", "PUB", "SUB", "DURSUB", "PMSGDLV", "NPMSGDLV", "MDURMDL", "DEFPRTY"]] == [
            "", "ENABLED", "ENABLED", "NO", "ALL", "ALLAVAIL", "SYSTEM.DEFAULT.MODEL.QUEUE", 4,
        ]
        assert [row["ADMIN"] for row in shown(qm, "TPS('prices')")] == ["PRICES"]
        for link in [*senders, *receivers]:
            link.close()
        wait_until(lambda: counts("prices/#") == [("prices", 0, 0)], "nobody is there any more")
    assert "is empty" in qm.mqsc("DISPLAY TPSTATUS(' ')", code=2)
    assert qm.stop() == 0


def test_a_durable_subscription_keeps_what_comes_while_nobody_is_there(managers):
    qm = managers("durable")
    qm.mqsc(TOPICS)
    with qm.connect(container="billing") as client:
        receiver = client.receiver("topic://orders/+", name="sub", options=DURABLE, credit=0)
        client.put("topic://orders/eu", persistent("attached"))
        assert bodies(receiver) == ["attached"]
        receiver.detach()
        client.put("topic://orders/eu", persistent("detached"))
        client.put("topic://orders/eu", Message(body="in memory"))
    shown = subscriptions(qm)["billing|sub"]
    assert (shown["TOPICSTR"], shown["DESTCLAS"]) == ("orders/+", "MANAGED")
    assert queues(qm) == [shown["DEST"]] and qm.depth(shown["DEST"]) == 2
    with qm.connect() as client:
        client.put("topic://orders/us", persistent("nobody connected"))
    qm.kill()
    qm.start()
    with qm.connect(container="billing") as client:
        client.put("topic://orders/eu", persistent("after the restart"))
        receiver = client.receiver("topic://orders/+", name="sub", options=DURABLE, credit=0)
        assert bodies(receiver) == ["detached", "nobody connected", "after the restart"]
        receiver.close()
    wait_until(lambda: not subscriptions(qm), "closing the link for good has ended the subscription")
    assert queues(qm) == []
    assert qm.stop() == 0


def test_a_durable_subscription_is_one_link_s_and_one_user_s(site):
    with site.connect("orders", container="mine") as client, site.connect("audit", container="mine") as thief:
        receiver = client.receiver("topic://private", name="sub", options=DURABLE, credit=0)
        with site.connect("orders", container="mine") as again:
            assert reason(lambda: again.receiver("topic://private", name="sub", options=DURABLE)) == 2429
        receiver.detach()
        assert reason(lambda: thief.receiver("topic://private", name="sub", options=DURABLE)) == 2035
        for name in ["a*b", "a ", "a\n"]:
            assert reason(lambda: thief.receiver("topic://private", name=name, options=DURABLE)) == 2440
        # In a container of its own it is another one.
        with site.connect("audit", container="its own") as other:
            theirs = other.receiver("topic://private", name="sub", options=DURABLE, credit=0)
            client.put("topic://private", Message(body="both"))
            assert bodies(theirs) == ["both"]
            theirs.close()
        receiver = client.receiver("topic://private", name="sub", options=DURABLE, credit=0)
        assert bodies(receiver) == ["both"]
        receiver.close()
    wait_until(lambda: not [name for name in subscriptions(site) if name.startswith(("mine|", "its own|"))], "both are gone")


def test_a_subscription_that_can_not_become_another_stays_with_its_messages(managers):
    qm = managers("kept")
    qm.mqsc(TOPICS)
    with qm.connect(container="keeper") as client:
        receiver = client.receiver("topic://kept", name="s", options=DURABLE, credit=0)
        client.put("topic://kept", persistent("stays", n=1))
        receiver.detach()
        changed = lambda: client.receiver("topic://kept", name="s", options=DURABLE, selector="n > 1", credit=0)
        qm.mqsc("ALTER TOPIC(SYSTEM.BASE.TOPIC) SUB(DISABLED)")
        assert reason(changed) == 2503
        qm.mqsc("ALTER TOPIC(SYSTEM.BASE.TOPIC) SUB(ENABLED) DURSUB(NO)")
        assert reason(changed) == 2436
        qm.mqsc("ALTER TOPIC(SYSTEM.BASE.TOPIC) DURSUB(YES)")
        again = client.receiver("topic://kept", name="s", options=DURABLE, credit=0)
        assert bodies(again) == ["stays"]
    assert qm.stop() == 0


def test_a_publication_that_all_selectors_together_judge_too_long_is_refused(site):
    slow = "p LIKE '%" + "a" * 300 + "b'"
    with site.connect() as client:
        everything = client.receiver("topic://judged", credit=0)
        publication = Message(body="judged", properties={"p": "a" * 65536})
        readers = [client.receiver("topic://judged", credit=0, selector=slow) for _ in range(120)]
        client.put("topic://judged", publication)
        assert bodies(everything) == ["judged"]
        readers += [client.receiver("topic://judged", credit=0, selector=slow) for _ in range(20)]
        assert reason(lambda: client.put("topic://judged", publication)) == 2071
        client.put("topic://judged", Message(body="quick", properties={"p": "b"}))
        assert bodies(everything) == ["quick"], "nothing of the other one"
        for reader in readers[100:]:
            reader.close()
        client.put("topic://judged", publication)
        assert bodies(everything) == ["judged"]


def test_another_topic_or_selector_by_the_same_name_is_another_subscription(site):
    with site.connect(container="changing") as client:
        receiver = client.receiver("topic://c", name="s", options=DURABLE, selector="n > 1", credit=0)
        receiver.detach()
        for number in range(4):
            client.put("topic://c", persistent(number, n=number))
        before = subscriptions(site)["changing|s"]
        assert before["SELECTOR"] == "n > 1" and site.depth(before["DEST"]) == 2
        receiver = client.receiver("topic://c", name="s", options=DURABLE, selector="n < 1", credit=0)
        assert bodies(receiver) == [], "what was on the old one is gone with it"
        client.put("topic://c", persistent(0, n=0))
        assert bodies(receiver) == [0]
        assert subscriptions(site)["changing|s"]["DEST"] != before["DEST"]
        assert before["DEST"] not in queues(site)
        receiver.close()


@pytest.mark.parametrize("options", [[], DURABLE], ids=["not durable", "durable"])
def test_links_that_share_a_subscription_get_each_publication_once(site, options):
    with site.connect() as one, site.connect() as two:
        name = f"pool {len(options)}"
        receivers = [
            client.receiver("topic://work", credit=0, asks=SHARED, name=f"{name}|{number}", options=options)
            for number, client in enumerate([one, two])
        ]
        alone = one.receiver("topic://work", credit=0)
        for number in range(10):
            one.put("topic://work", Message(body=number))
        half, rest = bodies_of(receivers[0], 5), bodies(receivers[1])
        assert len(half) == 5 and sorted(half + rest) == list(range(10))
        assert bodies(alone) == list(range(10))
        other = {"name": f"{name}|3", "options": options, "selector": "a = 1"}
        assert reason(lambda: one.receiver("topic://work", asks=SHARED, **other)) == 2429
        receivers[0].detach()
        one.put("topic://work", Message(body="still"))
        assert bodies(receivers[1]) == ["still"]
        receivers[1].detach()
        one.put("topic://work", persistent("nobody"))
        last = two.receiver("topic://work", credit=0, asks=SHARED, name=f"{name}|9", options=options)
        assert bodies(last) == (["nobody"] if options else [])
        last.close()
    wait_until(lambda: f"|{name}" not in subscriptions(site), "it is gone")


def bodies_of(receiver, count):
    """So many and no more."""
    receiver.flow(count)
    return [receiver.next().body for _ in range(count)]


def test_a_subscription_selects_and_leaves_its_own_client_out(site):
    with site.connect(container="me") as client, site.connect(container="you") as other:
        big = client.receiver("topic://s", selector="size > 10 AND JMSPriority > 4", credit=0)
        not_mine = client.receiver("topic://s", options=[NO_LOCAL], credit=0)
        for sender, size, priority in [(client, 20, 5), (other, 30, 9), (other, 30, 4), (other, 5, 9)]:
            message = Message(body=[size, priority], priority=priority, properties={"size": size})
            sender.put("topic://s", message)
        assert bodies(big) == [[30, 9], [20, 5]]
        assert bodies(not_mine) == [[30, 9], [5, 9], [30, 4]]
        assert reason(lambda: client.receiver("topic://s", selector="size >")) == 2067


def test_nobody_publishes_or_subscribes_without_the_right(managers):
    qm = managers("rights")
    for user in ("pub", "sub"):
        qm.add_user(user)
    qm.mqsc("""
        DEFINE TOPIC(PRICES) TOPICSTR('prices')
        SET AUTHREC PROFILE(PRICES) OBJTYPE(TOPIC) PRINCIPAL('pub') AUTHADD(PUB)
        SET AUTHREC PROFILE(PRICES) OBJTYPE(TOPIC) PRINCIPAL('sub') AUTHADD(SUB)
    """)
    with qm.connect("pub") as pub, qm.connect("sub") as sub:
        for allowed in ["prices", "prices/ibm", "prices/a/b"]:
            pub.sender(f"topic://{allowed}")
            sub.receiver(f"topic://{allowed}")
        sub.receiver("topic://prices/#")
        for refused in ["news", "price", "prices2", "x/prices"]:
            assert reason(lambda: pub.sender(f"topic://{refused}")) == 2035
        for refused in ["#", "+/ibm", "news", "prices2/#"]:
            assert reason(lambda: sub.receiver(f"topic://{refused}")) == 2035
        assert reason(lambda: sub.sender("topic://prices")) == 2035
        assert reason(lambda: pub.receiver("topic://prices")) == 2035
        relay = pub.sender(None)
        pub.put(None, Message(address="topic://prices"), relay)
        assert reason(lambda: pub.put(None, Message(address="topic://news"), relay)) == 2035
        sender, receiver = pub.sender("topic://prices"), sub.receiver("topic://prices", credit=0)
        pub.put("topic://prices", Message(body="one"), sender)
        assert bodies(receiver) == ["one"]
        qm.mqsc("SET AUTHREC PROFILE(PRICES) OBJTYPE(TOPIC) PRINCIPAL('sub') AUTHRMV(SUB)")
        assert reason(lambda: receiver.next()) == 2035
        qm.mqsc("DELETE TOPIC(PRICES)")
        assert reason(lambda: pub.put("topic://prices", Message(body="two"), sender)) == 2035
    assert qm.stop() == 0


def test_a_topic_object_says_what_may_be_done_on_its_topics_and_below(site, client):
    site.mqsc("""
        DEFINE TOPIC(CLOSED) TOPICSTR('closed') PUB(DISABLED) SUB(DISABLED) DURSUB(NO)
        DEFINE TOPIC(CLOSED.NOT) TOPICSTR('closed/not') PUB(ENABLED) SUB(ENABLED)
    """)
    for topic in ["closed", "closed/x"]:
        assert reason(lambda: client.sender(f"topic://{topic}")) == 2051
        assert reason(lambda: client.receiver(f"topic://{topic}")) == 2503
    assert reason(lambda: client.receiver("topic://closed/not/x", name="d", options=DURABLE)) == 2436
    receiver, sender = client.receiver("topic://closed/not/x", credit=0), client.sender("topic://closed/not/x")
    client.put("topic://closed/not/x", Message(body="open"), sender)
    assert bodies(receiver) == ["open"]
    site.mqsc("ALTER TOPIC(CLOSED.NOT) PUB(ASPARENT)")
    assert reason(lambda: client.put("topic://closed/not/x", Message(body="shut"), sender)) == 2051
    site.mqsc("DELETE TOPIC(CLOSED.NOT)\nDELETE TOPIC(CLOSED)")
    client.put("topic://closed/not/x", Message(body="open again"), sender)
    assert bodies(receiver) == ["open again"]


@pytest.mark.parametrize(
    ("rule", "is_persistent", "refused"),
    [
        ("ASPARENT", True, True),
        ("ASPARENT", False, False),
        ("ALL", False, True),
        ("ALLDUR", False, True),
        ("ALLAVAIL", True, False),
    ],
)
def test_where_a_subscription_is_full_all_get_it_or_none_or_those_that_can(site, client, rule, is_persistent, refused):
    site.mqsc(f"""
        DEFINE QLOCAL(FULL.ONE) MAXDEPTH(1) REPLACE
        DEFINE TOPIC(FILLING) TOPICSTR('filling') PMSGDLV({rule}) NPMSGDLV({rule}) REPLACE
        DEFINE SUB(FULL.SUB) TOPICSTR('filling') DEST(FULL.ONE) REPLACE
        CLEAR QLOCAL(FULL.ONE)
    """)
    receiver = client.receiver("topic://filling", credit=0)
    client.put("topic://filling", Message(body=1, durable=is_persistent))
    assert bodies(receiver) == [1]
    second = lambda: client.put("topic://filling", Message(body=2, durable=is_persistent))
    if refused:
        assert reason(second) == 2502
    else:
        second()
    assert bodies(receiver) == ([] if refused else [2])
    assert site.depth("FULL.ONE") == 1
    site.mqsc("DELETE SUB(FULL.SUB)\nDELETE TOPIC(FILLING)")
    client.put("topic://filling", Message(body=3, durable=True))
    assert bodies(receiver) == [3]


def test_in_a_unit_of_work_all_copies_are_put_or_none(site, client):
    site.mqsc("DEFINE QLOCAL(KEPT) REPLACE\nDEFINE SUB(KEPT) TOPICSTR('units/#') DEST(KEPT) REPLACE")
    receiver, to_topic = client.receiver("topic://units/a", credit=0), client.sender("topic://units/a")
    unit = Unit(client)
    for number in range(2):
        unit.put(to_topic, persistent(number))
    assert site.depth("KEPT") == 0 and bodies(receiver) == []
    unit.commit()
    assert site.depth("KEPT") == 2 and bodies(receiver) == [0, 1]
    unit = Unit(client)
    unit.put(to_topic, persistent("no"))
    unit.abort()
    assert site.depth("KEPT") == 2 and bodies(receiver) == []
    unit = Unit(client)
    unit.put(to_topic, persistent("for those who stay"))
    receiver.close()
    unit.commit()
    assert site.depth("KEPT") == 3
    site.mqsc("DELETE SUB(KEPT)")


def test_the_policy_of_a_subscription_s_queue_protects_its_copies(site, people):
    protects = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{people.dn('orders')}') RECIP('{people.dn('billing')}')"
    site.mqsc(f"""
        DEFINE QMODEL(SECRET.MODEL)
        DEFINE TOPIC(SECRET) TOPICSTR('secret') MNDURMDL(SECRET.MODEL) MDURMDL(SECRET.MODEL) NPMSGDLV(ALL)
        DEFINE QLOCAL(SECRET.COPIES)
        DEFINE QLOCAL(CLEAR.COPIES)
        DEFINE SUB(SECRET) TOPICSTR('secret/#') DEST(SECRET.COPIES)
        DEFINE SUB(CLEAR) TOPICSTR('secret/#') DEST(CLEAR.COPIES)
        SET POLICY(SECRET.MODEL) {protects}
        SET POLICY(SECRET.COPIES) {protects}
    """)
    with site.connect("orders") as sender, site.connect("billing", container="b") as reader:
        managed = reader.receiver("topic://secret/a", credit=0)
        durable = reader.receiver("topic://secret/a", name="d", options=DURABLE, credit=0)
        raw = reader.receiver("topic://secret/a", credit=0, sealed=True)
        for number in range(3):
            sender.put("topic://secret/a", persistent(f"payload {number}"))
        wanted = [f"payload {number}" for number in range(3)]
        assert bodies(managed) == wanted and bodies(durable) == wanted
        for message in raw.drain():
            assert message.content_type.startswith("application/pkcs7-mime")
            assert b"payload" not in bytes(message.body)
        assert [message.body for message in reader.get_all("SECRET.COPIES")] == wanted
        assert [message.body for message in reader.get_all("CLEAR.COPIES")] == wanted
        durable.detach()
        sender.put("topic://secret/a", persistent("kept"))
        destination = subscriptions(site)["b|d"]["DEST"]
        [found] = reader.receiver(destination, credit=0, sealed=True).drain(accept=False)
        assert b"kept" not in bytes(found.body) and found.content_type.startswith("application/pkcs7-mime")
    # Whoever can't seal for one of them publishes to none.
    with site.connect() as nobody, site.connect("billing", container="b") as reader:
        with pytest.raises(Refused) as error:
            nobody.put("topic://secret/a", persistent("clear"))
        assert (error.value.reason, error.value.cause) == (2502, "no-identity")
        durable = reader.receiver("topic://secret/a", name="d", options=DURABLE, credit=0)
        assert bodies(durable) == ["kept"]
        durable.close()
    assert site.depth("CLEAR.COPIES") == 1
    with site.connect("orders") as sender:
        assert reason(lambda: sender.sender("topic://secret/a", sealed=True)) == 2046
    site.mqsc("DELETE SUB(SECRET)\nDELETE SUB(CLEAR)\nDELETE TOPIC(SECRET)")


def test_subscriptions_are_defined_shown_and_compared_like_other_objects(site, client, tmp_path):
    site.mqsc("""
        DEFINE QLOCAL(AUDIT)
        DEFINE QALIAS(AUDIT.ALIAS) TARGET(AUDIT)
        DEFINE TOPIC(T) TOPICSTR('t''s')
        DEFINE SUB(AUDIT) TOPICOBJ(T) TOPICSTR('+') DEST(AUDIT.ALIAS) SELECTOR('n = 1') DESCR('by hand')
    """)
    client.put("topic://t's/x", persistent("yes", n=1))
    client.put("topic://t's/x", persistent("no", n=2))
    client.put("topic://t's", persistent("no", n=1))
    assert [message.body for message in client.get_all("AUDIT")] == ["yes"]
    with site.connect(container="c") as other:
        other.receiver("topic://t's/x", name="app's", options=DURABLE).detach()
    exported = tmp_path / "objects.mqsc"
    exported.write_bytes(site.run("mqsc", "--data", site.data, "--export").stdout)
    assert "DEFINE SUB('AUDIT')" in exported.read_text() and "DEFINE TOPIC('T')" in exported.read_text()
    assert site.run("mqsc", "--data", site.data, "--diff", exported).stdout == b""
    # An application's subscription does not go because it is not named.
    unnamed = re.sub(r"DEFINE SUB\('c\|app''s'\)[^\n]*(\n {7}[^\n]*)*\n", "", exported.read_text())
    assert "app''s" not in unnamed
    exported.write_text(unnamed)
    site.mqsc("ALTER SUB(AUDIT) SELECTOR(' ')")
    steps = site.run("mqsc", "--data", site.data, "--diff", exported, "--prune", code=1).stdout.decode()
    assert "ALTER SUB('AUDIT') SELECTOR('n = 1')" in steps and "app''s" not in steps
    destination = subscriptions(site)["c|app's"]["DEST"]
    assert "2042" in site.mqsc(f"DELETE QLOCAL({destination})", code=4)
    assert "2042" in site.mqsc("DELETE TOPIC(T)", code=4)
    site.mqsc("DELETE SUB('c|app''s')\nDELETE SUB(AUDIT)\nDELETE TOPIC(T)")
    assert destination not in queues(site)
    assert "2428" in site.mqsc("DELETE SUB(AUDIT)", code=4)
