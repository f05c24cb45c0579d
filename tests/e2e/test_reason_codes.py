"""Each reason code of `docs/reference/reason-codes.md`: the page is what the program has, and each code arises, here or in the
test that the page names."""

import re
import threading
from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import ConnectionClosed

from channels import RETRY, Route, dead_letters, status, wait_for_status
from manager import DEADLINE, label, wait_until
from proton_driver import Refused
from test_queues import EXCLUSIVE, SHARED, in_thread, own_queue, reason_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/reason-codes.md").read_text()
REASONS = (ROOT / "crates/bulla-catalog/src/reason.rs").read_text()
# Where tests are: this folder, and each crate's own. What is built lies elsewhere.
SOURCES = [*Path(__file__).parent.glob("*.py"), *(path for kind in ("src", "tests") for path in ROOT.glob(f"crates/*/{kind}/**/*.rs"))]
# What `reason.rs` has, and what only answers of the admin language have: code, name.
GIVEN = {int(code): (name, condition) for name, code, condition in re.findall(r'^    ([A-Z0-9_]+) = (\d+), "(.+)";$', REASONS, re.M)}
# MQ's codes that a queue manager and its clients meet in the verbs that Bulla has.
MQ = """
    2003 2009 2010 2011 2013 2016 2017 2018 2019 2024 2025 2026 2027 2030 2031 2033 2034 2035 2036 2037 2038 2039 2040 2041 2042
    2043 2046 2047 2048 2049 2050 2051 2052 2053 2055 2056 2057 2058 2059 2063 2067 2068 2071 2079 2080 2082 2085 2087 2090 2091
    2092 2102 2110 2119 2141 2161 2162 2195 2196 2197 2198 2199 2217 2218 2381 2393 2397 2398 2399 2400 2401 2402 2409
"""


def rows(heading):
    """The cells of each row of the table under a heading of the page."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


ARISE, ADMIN, NEVER = rows("Codes that arise"), rows("Codes of the admin language alone"), rows("Codes that do not arise")


# ---- the page


def test_the_page_has_every_reason_that_the_program_gives():
    assert {int(code): (name, condition.strip("`")) for code, name, condition, *_ in ARISE} == GIVEN
    codes = [int(row[0]) for row in ARISE]
    assert codes == sorted(codes)


def test_the_page_has_every_code_of_mq_that_a_verb_of_bulla_could_return():
    told = {int(row[0]) for row in [*ARISE, *ADMIN, *NEVER]}
    assert {int(code) for code in MQ.split()} <= told
    assert len(told) == len(ARISE) + len(ADMIN) + len(NEVER), "each stands in one table"


def source_of(file, name):
    """The test of that name, with what stands right before it and the constants that it uses."""
    found = [path for path in SOURCES if path.as_posix().endswith("/" + file)]
    assert len(found) == 1, f"{file}: {found}"
    text = found[0].read_text()
    test = re.search(rf"^ *(?:def|fn) {name}\(.*?(?=^(?:def|@pytest|class|# ----|    fn|    #\[test\]|fn|#\[test\])|\Z)", text, re.S | re.M)
    assert test, f"{file} has no {name}"
    test = text[: test.start()].rsplit("\n\n", 1)[-1] + test[0]
    constants = [re.search(rf"^{constant} = (?:[\[{{(].*?^[\]}})]|.*?$)", text, re.S | re.M) for constant in re.findall(r"\b[A-Z][A-Z_]+\b", test)]
    return test + "".join(found[0] for found in constants if found)


@pytest.mark.parametrize("row", [*ARISE, *ADMIN], ids=lambda row: row[0])
def test_a_code_s_test_is_there_and_is_about_it(row):
    file, name = row[-1].strip("`").split("::")
    source = source_of(file, name)
    assert row[0] in source or row[1] in source, f"{name} does not speak of {row[0]}"


# ---- what a name or a link's wishes lead to

NAMES = """
DEFINE QLOCAL(PLAIN)
DEFINE QLOCAL(XMIT) USAGE(XMITQ)
DEFINE QLOCAL(NO.PUT) PUT(DISABLED)
DEFINE QLOCAL(NO.GET) GET(DISABLED)
DEFINE QLOCAL(TAKEN) NOSHARE
DEFINE QMODEL(MODEL)
DEFINE QALIAS(ALIAS) TARGET(PLAIN)
DEFINE QALIAS(DANGLING) TARGET(NOWHERE)
DEFINE QALIAS(CHAIN) TARGET(ALIAS)
DEFINE QREMOTE(FAR) RNAME(ORDERS) RQMNAME(AWAY) XMITQ(XMIT)
DEFINE QREMOTE(FAR.MANAGER) RNAME(' ') RQMNAME(AWAY) XMITQ(XMIT)
DEFINE QREMOTE(FAR.NOWHERE) RNAME(ORDERS) RQMNAME(NOWHERE)
DEFINE QREMOTE(FAR.BY.ALIAS) RNAME(ORDERS) RQMNAME(AWAY) XMITQ(ALIAS)
DEFINE QREMOTE(FAR.BY.PLAIN) RNAME(ORDERS) RQMNAME(AWAY) XMITQ(PLAIN)
DEFINE QREMOTE(FAR.BY.NOTHING) RNAME(ORDERS) RQMNAME(AWAY) XMITQ(NOT.THERE)
"""
PUT = [
    ("NO.SUCH.QUEUE", 2085),
    ("DANGLING", 2082),
    ("CHAIN", 2001),
    ("NO.PUT", 2051),
    ("MODEL", 2057),
    ("FAR.NOWHERE", 2087),
    ("FAR.BY.ALIAS", 2091),
    ("FAR.BY.PLAIN", 2092),
    ("FAR.MANAGER", 2184),
    ("FAR.BY.NOTHING", 2196),
]
GET = [("NO.SUCH.QUEUE", 2085), ("NO.GET", 2016), ("FAR", 2045), ("MODEL", 2057)]
BY_DEFAULT = [("NOT.THERE", 2197), ("ALIAS", 2198), ("PLAIN", 2199)]


@pytest.fixture(scope="module")
def named(qm):
    qm.mqsc(NAMES)
    return qm


@pytest.fixture
def client(named):
    with named.connect() as client:
        yield client


def is_refused(make, code):
    """The refusal has the code in its text and in its facts, and the AMQP condition that the page says."""
    with pytest.raises(Refused) as error:
        make()
    told = error.value
    assert (told.reason, told.info["reason"]) == (code, code), told
    assert told.description.startswith(f"{code} MQRC_{GIVEN[code][0]}")
    assert told.condition == GIVEN[code][1]


@pytest.mark.parametrize("name, code", PUT)
def test_a_name_that_can_not_be_opened_to_put_is_refused(client, name, code):
    is_refused(lambda: client.sender(name), code)


@pytest.mark.parametrize("name, code", GET)
def test_a_name_that_can_not_be_opened_to_get_is_refused(client, name, code):
    is_refused(lambda: client.receiver(name), code)


@pytest.mark.parametrize("queue, code", BY_DEFAULT)
def test_a_default_transmission_queue_that_is_none_is_refused(named, client, queue, code):
    named.mqsc(f"ALTER QMGR DEFXMITQ({queue})")
    try:
        is_refused(lambda: client.sender("ORDERS@ELSEWHERE"), code)
    finally:
        named.mqsc("ALTER QMGR DEFXMITQ(' ')")


def test_what_a_link_asks_for_is_refused_where_it_can_not_be(client):
    first = client.receiver("TAKEN")
    is_refused(lambda: client.receiver("TAKEN"), 2042)
    first.close()
    is_refused(lambda: client.receiver("PLAIN", asks=[EXCLUSIVE, SHARED]), 2046)
    is_refused(lambda: client.receiver("PLAIN", asks=["bulla:delete-on-close"]), 2045)
    is_refused(lambda: client.receiver("PLAIN", selector="price >"), 2067)
    is_refused(lambda: own_queue(client, name="A B"), 2011)
    is_refused(lambda: own_queue(client, name="PLAIN"), 2100)


# ---- what becomes of a message


def raw(client, queue, payload):
    """Puts bytes that need not be a message."""
    link = client.sender(queue).link
    delivery = link.delivery("raw")
    link.stream(payload)
    link.advance()
    client.connection.wait(lambda: delivery.settled or delivery.remote_state, timeout=DEADLINE)
    assert delivery.remote_state == Delivery.REJECTED
    raise Refused.from_condition(delivery.remote.condition)


def test_a_message_that_can_not_be_put_is_rejected(named, client):
    named.mqsc("DEFINE QLOCAL(NARROW) MAXDEPTH(1) FULL(REJECT) MAXMSGL(1000)")
    is_refused(lambda: raw(client, "PLAIN", b"no message"), 2026)
    report = Message(body="x", properties={"JMS_IBM_Report_COA": 256})
    is_refused(lambda: client.put("PLAIN", report), 2027)
    is_refused(lambda: client.put("NARROW", Message(body=b"x" * 1001, inferred=True)), 2030)
    sender = client.sender("NARROW")
    client.put("NARROW", Message(body="the first"), sender)
    is_refused(lambda: client.put("NARROW", Message(body="the second"), sender), 2053)
    assert named.depth("PLAIN") == 0


def test_a_message_over_the_queue_manager_s_maxmsgl_ends_its_link(managers):
    manager = managers()
    manager.mqsc("ALTER QMGR MAXMSGL(40000)\nDEFINE QLOCAL(Q)")
    with manager.connect() as client:
        sender = client.sender("Q")
        assert sender.link.remote_max_message_size == 40_000
        with pytest.raises(Refused) as refused:
            client.put("Q", Message(body=bytes(50_000), inferred=True), sender)
        assert refused.value.condition == "amqp:link:message-size-exceeded"
    assert manager.depth("Q") == 0


# ---- what ends a link or a connection


def test_a_link_whose_alias_leads_elsewhere_ends_with_2041(named, client):
    named.mqsc("DEFINE QALIAS(MOVES) TARGET(PLAIN)\nDEFINE QLOCAL(ELSEWHERE)")
    receiver = client.receiver("MOVES", credit=1)
    waits = in_thread(lambda: receiver.next(DEADLINE))
    wait_until(lambda: named.status("PLAIN")["IPPROCS"] == 1, "it is open")
    named.mqsc("ALTER QALIAS(MOVES) TARGET(ELSEWHERE)")
    assert reason_of(waits()) == 2041


def test_what_is_put_on_a_queue_that_went_with_its_link_is_rejected_with_2052(client, named):
    receiver, name = own_queue(client)
    with named.connect() as other:
        sender = other.sender(name)
        other.put(name, Message(body="in time"), sender)
        receiver.close()
        is_refused(lambda: other.put(name, Message(body="late"), sender), 2052)
        is_refused(lambda: other.sender(name), 2085)


def test_whoever_is_connected_is_told_2162_when_the_queue_manager_stops(managers):
    manager = managers()
    client = manager.connect()
    stops = in_thread(manager.stop)
    with pytest.raises(ConnectionClosed) as closed:
        client.connection.wait(lambda: False, timeout=DEADLINE)
    assert closed.value.condition == GIVEN[2162][1]
    assert Refused.from_condition(closed.value.connection.remote_condition).reason == 2162
    client.close()
    assert stops() == 0


# ---- channels


@pytest.fixture(scope="module")
def pair(managers):
    return managers(name="QM1"), managers(name="QM2")


def ends_with(manager, channel, code):
    """The channel does not run, and says why: itself, or by what its partner said."""
    told = lambda: str(status(manager, channel).get("REASON", ""))
    wait_until(lambda: f"{code} MQRC_{GIVEN[code][0]}" in told(), f"{channel} ends with {code}, not {told()}")


@pytest.mark.parametrize(
    "code, wrong",
    [
        (2009, lambda route: route.proxy.refuse()),
        (2196, lambda route: route.near.mqsc(f"DELETE QLOCAL({route.transmission})")),
        (2537, lambda route: route.far.mqsc(f"STOP CHANNEL({route.channel})")),
        (2538, lambda route: route.near.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(SDR) CONNAME('a..b(1414)')")),
        (2539, lambda route: route.far.mqsc(f"ALTER CHANNEL({route.channel}) CHLTYPE(RCVR) SEQWRAP(12345)")),
        (2540, lambda route: route.far.mqsc(f"DELETE CHANNEL({route.channel})")),
    ],
)
def test_a_channel_that_does_not_start_says_why(pair, code, wrong):
    route = Route(*pair, start=False)
    wrong(route)
    route.start()
    ends_with(route.near, route.channel, code)
    route.stop("FORCE")
    route.proxy.close()


def test_there_are_as_many_channels_as_actchl_says(pair):
    near, far = pair
    route, more = Route(near, far), Route(near, far, start=False)
    route.wait_for_status("RUNNING")
    near.mqsc("ALTER QMGR ACTCHL(1)")
    try:
        assert "2025 MQRC_MAX_CONNS_LIMIT_REACHED" in near.mqsc(f"START CHANNEL({more.channel})", code=4)
    finally:
        near.mqsc("ALTER QMGR ACTCHL(200)")
    route.stop("FORCE")


def test_what_a_channel_can_not_send_is_a_dead_letter_with_its_reason(pair):
    near, far = pair
    route = Route(near, far, sender="MAXMSGL(1000)", start=False)
    with near.connect() as client:
        client.put(route.remote, Message(id="long", body=bytes(2000), inferred=True, durable=True))
        route.start()
        near.wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
        (letter,) = dead_letters(near)
        assert (letter.id, label(letter)["reason"]) == ("long", 2218)
    route.stop("FORCE")


class Rejects(MessagingHandler):
    """An AMQP container that takes connections and rejects every message."""

    def __init__(self):
        super().__init__(auto_accept=False)
        self.ready = threading.Event()
        self.container = Container(self)
        self.thread = threading.Thread(target=self.container.run, daemon=True)
        self.thread.start()
        assert self.ready.wait(DEADLINE)

    def on_start(self, event):
        self.acceptor = event.container.listen("127.0.0.1:0")
        self.port = self.acceptor._selectable._delegate.getsockname()[1]
        self.ready.set()

    def on_message(self, event):
        self.reject(event.delivery)


def test_to_another_broker_what_it_rejects_and_what_has_no_header_are_dead_letters(pair):
    near, _ = pair
    broker = Rejects()
    near.mqsc(
        f"""
        DEFINE QLOCAL(X.BROKER) USAGE(XMITQ)
        DEFINE QREMOTE(R.BROKER) RNAME(orders) RQMNAME(BROKER) XMITQ(X.BROKER)
        DEFINE CHANNEL(BROKER) CHLTYPE(SDR) CONNAME('127.0.0.1({broker.port})') XMITQ(X.BROKER) {RETRY}
        START CHANNEL(BROKER)
        """
    )
    with near.connect() as client:
        client.put("R.BROKER", Message(id="rejected", body="x", durable=True))
        near.wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 1)
        client.put("X.BROKER", Message(id="headless", body="x", durable=True))
        near.wait_for_depth("SYSTEM.DEAD.LETTER.QUEUE", 2)
    letters = {letter.id: label(letter)["reason"] for letter in dead_letters(near)}
    assert letters == {"rejected": 2195, "headless": 2260}
    near.mqsc("STOP CHANNEL(BROKER) MODE(FORCE)")
    broker.container.stop()
    broker.thread.join(DEADLINE)


# ---- the admin language


def test_commands_are_answered_with_reason_codes_too(named, client):
    refused = lambda text, code: f"{code} MQRC_" in named.mqsc(text, code=4)
    receiver = client.receiver("PLAIN")
    assert refused("DELETE QLOCAL(PLAIN)", 2042)
    receiver.close()
    named.mqsc("DEFINE QLOCAL(HOLDS)")
    client.put("HOLDS", Message(body="x"))
    assert refused("DELETE QLOCAL(HOLDS)", 2055)
    assert refused("DELETE QLOCAL(NOT.THERE)", 2085)
    assert refused("ALTER QALIAS(PLAIN) TARGET(FAR)", 2043)
    assert refused("SET AUTHREC PROFILE(PLAIN) OBJTYPE(QUEUE) GROUP('nobody') AUTHADD(PUT)", 2292)
