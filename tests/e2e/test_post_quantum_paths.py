"""Keys that withstand a quantum computer, and shared signatures, on other ways than a queue: topics, clients that seal for
themselves, and what each may do who has one right or none."""

import json
import threading

import pytest
from proton.reactor import Container, DurableSubscription

from manager import label, wait_until
from modern import READS, SIGNS, Modern, inspected
from proton_driver import Refused
from sites import Site, clear, copy, payloads, reason_and_cause
from test_reseal import reseal
from test_sign_batch import Stream

MANAGER = "PATHS"
SIGNERS = "SIGNER('{orders}', '{PATHS}')"
QUALITIES = {
    "integrity": f"SIGNALG(SHA384) {SIGNERS}",
    "privacy": f"SIGNALG(SHA384) ENCALG(AES256) {SIGNERS} RECIP('{{reader}}')",
    "confidentiality": "ENCALG(AES256) RECIP('{reader}') KEYREUSE(10)",
    "batch": f"SIGNALG(SHA384) ENCALG(AES256) {SIGNERS} RECIP('{{reader}}') SIGNBATCH(64)",
}
# Enough that several wait to be signed.
STREAM_MESSAGES, BATCH = 150, 64


@pytest.fixture(scope="module")
def site(managers):
    """`billing` and `vault` read with new keys, too; `auditor` has old ones alone, and `keyless` has none."""
    qm = managers(name=MANAGER)
    qm.mqsc("SET AUTHREC PROFILE(SYSTEM.BASE.TOPIC) OBJTYPE(TOPIC) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)")
    site = Site(qm, Modern(qm, "orders", "billing", "vault", "auditor", MANAGER))
    for name in ("orders", "billing", "vault", MANAGER):
        site.people.modernise(name)
    qm.add_user("keyless")
    yield site
    for client in site.clients.values():
        client.close()
    assert qm.process.poll() is None, "".join(qm.log[-30:])
    assert qm.stop() == 0


def policy(quality, reader="billing", more="PQC(REQUIRED)"):
    return f"{QUALITIES[quality].replace('{reader}', f'{{{reader}}}')} {more}"


def algorithms(site, tmp_path, message):
    """With what it is signed, as far as that shows, and for whom it is sealed."""
    shown = inspected(site, tmp_path, message)
    return {one["algorithm"] for one in [*shown["signers"], *shown["recipients"]]}


def expected(quality):
    return {SIGNS} if quality == "integrity" else {READS}


def everything(site, queue):
    """All that lies on a queue, as it lies there."""
    return site.nobody.get_all(f"{queue}.RAW", browse=True, credit=10_000)


def stream(site, address, user="orders", count=STREAM_MESSAGES):
    """So many messages, many of them under way at once."""
    load = Stream(site.qm, user, address, count)
    Container(load).run()
    assert len(load.confirmed) == count and not load.refused, load.refused
    return [b"message %d" % number for number in range(count)]


def batches(site, tmp_path, messages):
    """What `seal inspect` says of the trees of messages with a shared signature."""
    found = [inspected(site, tmp_path, message)["batch"] for message in messages]
    return [batch for batch in found if batch]


# --- topics ---


class Topic:
    """A topic, and subscriptions whose queues have policies."""

    def __init__(self, site, *policies):
        self.site = site
        self.queues = [site.queue(policy) for policy in policies]
        self.address = f"topic://{self.queues[0]}"
        for queue in self.queues:
            self.subscribe(queue)

    def subscribe(self, queue):
        self.site.qm.mqsc(f"DEFINE SUB({queue}) TOPICSTR('{self.queues[0]}') DEST({queue})")

    def end(self):
        self.site.qm.mqsc("\n".join(f"DELETE SUB({queue})" for queue in self.queues))


@pytest.mark.parametrize("quality", QUALITIES)
def test_each_copy_of_a_publication_is_sealed_for_its_own_readers(site, tmp_path, quality):
    topic = Topic(site, policy(quality), policy(quality, "vault"), policy(quality, more="PQC(ALLOWED)"))
    for number in range(3):
        site.orders.put(topic.address, clear(b"%d" % number))
    for queue in topic.queues:
        assert algorithms(site, tmp_path, site.raw(queue)[0]) == expected(quality)
    for user, queue in zip((site.billing, site.vault, site.billing), topic.queues):
        assert payloads(user.get_all(queue)) == [b"0", b"1", b"2"]
    topic.end()
    assert not site.qm.errors()


def test_copies_share_signatures_and_each_subscriber_opens_its_own(site, tmp_path):
    batch = f"SIGNALG(SHA384) {SIGNERS} SIGNBATCH(64) PQC(REQUIRED)"
    topic = Topic(site, batch, batch)
    expect = stream(site, topic.address)
    trees = []
    for queue in topic.queues:
        found = batches(site, tmp_path, everything(site, queue)[:60])
        assert found and all(one["fits"] and 2 <= one["size"] <= BATCH for one in found)
        trees.append({one["tree"] for one in found})
    # Another policy is another tree.
    assert not trees[0] & trees[1]
    for user, queue in zip((site.billing, site.vault), topic.queues):
        assert payloads(user.get_all(queue, credit=1000)) == expect
    topic.end()
    assert not site.qm.errors()


def test_subscriptions_that_are_not_administered_have_the_policy_of_their_model(site, tmp_path):
    """And copies of one publication may have one tree: there is one policy for all of them."""
    site.qm.mqsc("DEFINE QMODEL(PQ.MODEL); DEFINE TOPIC(PQ) TOPICSTR('pq') MNDURMDL(PQ.MODEL) MDURMDL(PQ.MODEL)")
    site.set_policy("PQ.MODEL", f"SIGNALG(SHA384) {SIGNERS} SIGNBATCH(64) PQC(REQUIRED)")
    with site.qm.connect("billing", container="p") as one, site.qm.connect("vault", container="q") as other:
        opened = one.receiver("topic://pq", credit=0)
        durable = other.receiver("topic://pq", name="d", options=[DurableSubscription()], credit=0)
        raw = [one.receiver("topic://pq", credit=0, sealed=True) for _ in range(2)]
        expect = stream(site, "topic://pq", count=60)
        assert payloads(opened.drain(1000)) == payloads(durable.drain(1000)) == expect
        found = [{batch["tree"] for batch in batches(site, tmp_path, link.drain(1000))} for link in raw]
        assert found[0] and found[1]
        durable.close()
    assert not site.qm.errors()


def test_who_has_no_new_key_publishes_to_nobody_and_hears_why(site):
    topic = Topic(site, policy("privacy"), policy("integrity", more="PQC(NONE)"))
    for user, cause in (("auditor", "signer-key"), ("nobody", "no-identity")):
        assert reason_and_cause(lambda: getattr(site, user).put(topic.address, clear(b"no"))) == (2502, cause)
    # One subscriber's reader has none, which is the publisher's matter, too.
    site.set_policy(topic.queues[0], policy("privacy", "auditor"))
    assert reason_and_cause(lambda: site.orders.put(topic.address, clear(b"no"))) == (2502, "recipient-key")
    assert [site.qm.depth(queue) for queue in topic.queues] == [0, 0]
    topic.end()


class Traffic(threading.Thread):
    """Publishes until it is told to stop; each publication was confirmed before the next one."""

    def __init__(self, site, address):
        super().__init__()
        self.site, self.address, self.ended = site, address, threading.Event()
        self.sent, self.refused = [], []
        self.start()

    def run(self):
        with self.site.qm.connect("orders") as client:
            sender = client.sender(self.address)
            while not self.ended.is_set():
                payload = b"%d" % (len(self.sent) + len(self.refused))
                try:
                    client.put(self.address, clear(payload), sender)
                    self.sent.append(payload)
                except Refused as refused:
                    self.refused.append(refused)

    def goes_on(self):
        """Some more are published."""
        count = len(self.sent) + 10
        wait_until(lambda: len(self.sent) >= count or not self.is_alive(), "some more are published")

    def end(self):
        self.ended.set()
        self.join()
        assert not self.refused, self.refused
        return self.sent


def move_to_new_keys(site, queue, quality):
    """What the page says: ALLOWED, sealed anew, REQUIRED."""
    site.set_policy(queue, policy(quality, more="PQC(ALLOWED)"))
    # One that is just being put is in use, and can be sealed anew later.
    for _ in range(20):
        said = reseal(site, queue, "--where", "all", "--reader", "billing", code=None)
        if "in use" not in said:
            break
    assert "sealed anew" in said and "in use" not in said and "error" not in said, said
    site.set_policy(queue, policy(quality))


@pytest.mark.parametrize("quality", ["integrity", "batch"])
def test_a_topic_comes_to_new_keys_and_back_under_traffic(site, tmp_path, quality):
    topic = Topic(site, policy(quality, more="PQC(NONE)"), policy(quality, "vault", "PQC(REQUIRED)"))
    changed, modern = topic.queues
    traffic = Traffic(site, topic.address)
    try:
        traffic.goes_on()
        move_to_new_keys(site, changed, quality)
        traffic.goes_on()
    finally:
        sent = traffic.end()
    found = [algorithms(site, tmp_path, message) for message in everything(site, changed)[:: max(1, len(sent) // 20)]]
    assert found and set.union(*found) == expected("integrity" if quality == "integrity" else "privacy"), found
    assert payloads(site.billing.get_all(changed, browse=True, credit=10_000)) == sent
    # And back: what lies there is opened by the policy that it was sealed under.
    site.qm.mqsc(f"DEFINE QLOCAL({changed}.FORMER)")
    site.set_policy(f"{changed}.FORMER", policy(quality))
    site.set_policy(changed, policy(quality, more="PQC(NONE)"))
    said = reseal(site, changed, "--where", "all", "--reader", "billing", "--former", f"{changed}.FORMER")
    assert f"{len(sent)} messages sealed anew" in said, said
    assert not algorithms(site, tmp_path, site.raw(changed)[0]) & {SIGNS, READS}
    site.orders.put(topic.address, clear(b"the last one"))
    assert payloads(site.billing.get_all(changed, credit=10_000)) == [*sent, b"the last one"]
    assert payloads(site.vault.get_all(modern, credit=10_000)) == [*sent, b"the last one"]
    topic.end()
    assert not site.qm.errors()


def test_a_durable_subscription_comes_to_new_keys_by_the_policy_of_its_model(site, tmp_path):
    site.qm.mqsc("DEFINE QMODEL(WAY.MODEL); DEFINE TOPIC(WAY) TOPICSTR('way') MNDURMDL(WAY.MODEL) MDURMDL(WAY.MODEL)")
    site.set_policy("WAY.MODEL", policy("privacy", more="PQC(NONE)"))
    attach = lambda client: client.receiver("topic://way", name="w", options=[DurableSubscription()], credit=0)  # noqa: E731
    with site.qm.connect("billing", container="way") as client:
        attach(client).detach()
    site.orders.put("topic://way", clear(b"old"))
    row = json.loads(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", "DISPLAY SUB(*) ALL").stdout)
    [queue] = [one["dest"] for one in row[0]["objects"] if one["sub"] == "way|w"]
    site.set_policy("WAY.MODEL", policy("privacy", more="PQC(ALLOWED)"))
    site.orders.put("topic://way", clear(b"new"))
    said = reseal(site, queue, "--where", "all")
    assert "2 messages sealed anew" in said, said
    site.set_policy("WAY.MODEL", policy("privacy"))
    with site.qm.connect("billing", container="way") as client:
        durable = attach(client)
        assert payloads(durable.drain()) == [b"old", b"new"]
        durable.close()
    assert not site.qm.errors()


# --- clients that seal and open for themselves ---


def at_home(site, user):
    return [*site.qm.cli(user), "--ring", user, "--data", site.qm.data]


def write_policy(site, user, queue, attributes):
    """What the user's own ring asks for."""
    folder = site.qm.data / "rings" / user / "policies"
    folder.mkdir(mode=0o700, exist_ok=True)
    names = {name: site.people.dn(name) for name in site.people.identities}
    (folder / f"{queue}.mqsc").write_text(f"SET POLICY({queue}) {attributes.format(**names)}\n")


def at_home_queue(site, quality, more="PQC(REQUIRED)"):
    queue = site.queue(policy(quality, more=more))
    for user in ("orders", "billing"):
        write_policy(site, user, queue, policy(quality, more=more))
    return queue


def put_at_home(site, user, queue, payload, code=0):
    return site.qm.run("put", queue, *at_home(site, user), stdin=payload, code=code)


def get_at_home(site, user, queue, code=0):
    return site.qm.run("get", queue, *at_home(site, user), code=code)


@pytest.mark.parametrize("quality", QUALITIES)
def test_what_one_side_seals_the_other_opens(site, tmp_path, quality):
    queue = at_home_queue(site, quality)
    put_at_home(site, "orders", queue, b"sealed at home")
    [raw] = site.raw(queue)
    assert algorithms(site, tmp_path, raw) == expected(quality)
    assert (b"at home" in bytes(raw.body)) == (quality == "integrity")
    assert payloads(site.billing.get_all(queue)) == [b"sealed at home"]
    site.orders.put(queue, clear(b"sealed there"))
    assert get_at_home(site, "billing", queue).stdout == b"sealed there"
    put_at_home(site, "orders", queue, b"both at home")
    assert get_at_home(site, "billing", queue).stdout == b"both at home"
    assert not site.qm.errors()


@pytest.mark.parametrize("quality", ["integrity", "privacy"])
def test_a_client_opens_messages_that_share_a_signature(site, tmp_path, quality):
    """Each alone: on the queue by the client, and in a file with no queue manager."""
    queue = at_home_queue(site, quality, "PQC(REQUIRED) SIGNBATCH(64)")
    expect = stream(site, queue)
    ders = everything(site, queue)
    folder = tmp_path / "got"
    folder.mkdir()
    site.qm.run("get", queue, *at_home(site, "billing"), "--out", folder)
    got = sorted(path.read_bytes() for path in folder.iterdir())
    assert got == sorted(expect) and site.qm.depth(queue) == 0 and not site.qm.errors()
    names = {name: site.people.dn(name) for name in site.people.identities}
    asks = policy(quality, more="PQC(REQUIRED) SIGNBATCH(64)").format(**names)
    one = tmp_path / "one.der"
    for number in (3, STREAM_MESSAGES - 1):
        one.write_bytes(bytes(ders[number].body))
        offline = ["seal", "open", one, "--ring", site.qm.data / "rings/billing", "--destination", f"{queue}@{MANAGER}"]
        opened = site.qm.run(*offline, "--message-id", str(number), "--policy", asks)
        assert opened.stdout == expect[number]
        assert f'signed by "{names["orders"]}"' in opened.stderr.decode()
    # Of these some share a signature, so a reader who wants one a message refuses them.
    single = asks.replace("SIGNBATCH(64)", "SIGNBATCH(1)")
    codes = set()
    for number in range(60, 90):
        one.write_bytes(bytes(ders[number].body))
        codes.add(site.qm.run(*offline, "--message-id", str(number), "--policy", single, code=None).returncode)
    assert 4 in codes and codes <= {0, 4}


def test_a_message_with_a_shared_signature_is_put_again_by_whoever_kept_it(site, tmp_path):
    """Sealed bytes may come by a client: the proof holds for the same queue, id and properties, and for no other."""
    queue = site.queue(f"SIGNALG(SHA384) {SIGNERS} SIGNBATCH(64) PQC(REQUIRED)")
    other = site.queue(f"SIGNALG(SHA384) {SIGNERS} SIGNBATCH(64) PQC(REQUIRED)")
    stream(site, queue)
    raw = site.nobody.get_all(f"{queue}.RAW", credit=1000)
    one = next(message for message in raw[40:] if inspected(site, tmp_path, message)["batch"])
    assert refused_put_sealed(site.orders, other, one) == (2063, "moved")
    site.orders.put(queue, one, sealed=True)
    assert payloads(site.billing.get_all(queue)) == [b"message " + one.id.encode()]
    again = copy(one)
    again.id = "another"
    assert refused_put_sealed(site.orders, queue, again) == (2063, "tampered")
    body = bytes(one.body)
    for at in (len(body) - 10, len(body) // 2, 400):
        changed = bytearray(body)
        changed[at] ^= 1
        assert refused_put_sealed(site.orders, queue, copy(one, bytes(changed)))[0] == 2063
    assert site.qm.depth(queue) == 0


def refused_put_sealed(client, queue, message):
    return reason_and_cause(lambda: client.put(queue, message, sealed=True))


def test_old_keys_are_refused_from_a_client_too_before_anything_is_on_the_queue(site):
    queue = at_home_queue(site, "privacy")
    # The client's own ring asks for less than the queue does.
    write_policy(site, "orders", queue, policy("privacy", more="PQC(NONE)"))
    done = put_at_home(site, "orders", queue, b"by old keys", code=None)
    assert done.returncode == 4 and b"2063" in done.stderr and b"cause=weaker-than-policy" in done.stderr, done.stderr
    # One who has no new key can't do what is asked for, and hears which kind it is.
    write_policy(site, "auditor", queue, policy("privacy"))
    done = put_at_home(site, "auditor", queue, b"no", code=None)
    assert done.returncode == 4 and b"cause=signer-key" in done.stderr and b"ML-DSA" in done.stderr, done.stderr
    assert site.qm.depth(queue) == 0 and not site.qm.errors()


def test_a_ring_that_requires_new_keys_takes_no_policy_that_does_not(site):
    """Or everything that others put by old keys would be quarantined by it, as weaker than its policy."""
    queue = at_home_queue(site, "privacy", more="PQC(ALLOWED)")
    for user in ("orders", "billing"):
        write_policy(site, user, queue, policy("privacy"))
    for served in ("PQC(ALLOWED)", "PQC(NONE)"):
        site.set_policy(queue, policy("privacy", more=served))
        for done in (put_at_home(site, "orders", queue, b"x", code=None), get_at_home(site, "billing", queue, code=None)):
            assert done.returncode == 1 and b"PQC" in done.stderr, done.stderr
            assert f"hint: --served-policy {queue}".encode() in done.stderr, done.stderr
    assert site.qm.depth(queue) == 0
    site.set_policy(queue, policy("privacy"))
    put_at_home(site, "orders", queue, b"agreed")
    assert get_at_home(site, "billing", queue).stdout == b"agreed"


def test_what_lies_there_by_old_keys_is_quarantined_by_a_client_that_opens_for_itself(site):
    """As the queue manager does for its own readers: it keeps it, with the cause that the client tells."""
    queue = at_home_queue(site, "privacy", more="PQC(NONE)")
    site.orders.put(queue, clear(b"by old keys"))
    site.set_policy(queue, policy("privacy"))
    write_policy(site, "billing", queue, policy("privacy"))
    done = get_at_home(site, "billing", queue, code=None)
    assert done.returncode != 0 and b"weaker-than-policy" in done.stderr and done.stdout == b"", done
    [error] = [label(error) for error in site.qm.clear_error_queue()]
    assert (error["queue"], error["cause"]) == (queue, "reported-by-client"), error
    assert "weaker-than-policy" in error["details"], error
