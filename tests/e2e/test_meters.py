"""What queues, policies and channels count: a known number of operations gives exactly those counts, in MQSC, in the reports and at
/metrics alike."""

import json
import re
import time

import pytest
from proton import Message

from channels import TLS, Route, trust_each_other
from manager import shown_rows, wait_until
from people import People
from proton_driver import Refused
from sites import CONFIDENTIALITY, INTEGRITY, PAYLOAD, PRIVACY, Site, clear, copy, peopled, refused_get, refused_put

MESSAGES = 10
# Counters of DISPLAY POLSTATUS that a test names only where it expects them.
OPERATIONS = ("SEALED OPENED CHECKED TOLERATED NOTMINE QUARANT KEYGENS WRAPS UNWRAPS SIGNS VERIFIES KEYHITS FAILURES").split()


@pytest.fixture(scope="module")
def site(managers, authority):
    qm = managers(name="metered", options=["--metrics", "127.0.0.1:0", "--adapters", "2"])
    yield from peopled(qm, authority, "orders", "billing", "audit")
    assert qm.stop() == 0


def shown(qm, command):
    return shown_rows(qm.run("mqsc", "--data", qm.data, "--json", "-c", command).stdout)


def policy(qm, name):
    return shown(qm, f"DISPLAY POLSTATUS({name}) ALL")[0]


def counted(qm, name, **expected):
    """The policy's counts, which are `expected` and nothing else."""
    found = policy(qm, name)
    assert {key: found[key] for key in OPERATIONS} == {key: 0 for key in OPERATIONS} | expected
    return found


def report(qm, what, *options):
    return json.loads(qm.run("report", what, "--data", qm.data, "--json", *options).stdout)


def row(report, what, name):
    label = {"queues": "queue", "policies": "policy"}[what]
    return next(row for row in report[what] if row[label] == name)


def metrics(qm):
    return {name: float(value) for name, value in re.findall(r"^(\w+\{.*\}) (\S+)$", qm.metrics(), re.M)}


def exchange(site, queue, count=MESSAGES):
    """Messages put one by one by `orders`, each confirmed, and got by `billing` one by one."""
    sender = site.orders.sender(queue)
    for _ in range(count):
        site.orders.put(queue, clear(), sender)
    for _ in range(count):
        assert bytes(site.billing.get(queue).body) == PAYLOAD


def test_integrity_is_a_signature_at_the_put_and_a_verification_at_the_get(site):
    queue = site.queue(INTEGRITY)
    counted(site.qm, queue)
    exchange(site, queue)
    found = counted(site.qm, queue, SEALED=10, SIGNS=10, OPENED=10, VERIFIES=10)
    assert found["CLEARIN"] == found["CLEAROUT"] == 10 * len(PAYLOAD)
    assert found["SEALOUT"] == found["SEALIN"] > found["CLEARIN"]
    # Each signature, and each verification, is a job that the message waits for.
    assert found["DEVJOBS"] == 20
    assert 0 < found["DEVWMAX"] <= found["DEVWAIT"] and found["FAILBY"] == []


def test_privacy_wraps_a_key_for_each_recipient(site):
    queue = site.queue(PRIVACY + " RECIP('{audit}')")
    exchange(site, queue)
    counted(site.qm, queue, SEALED=10, KEYGENS=10, WRAPS=20, SIGNS=10, OPENED=10, UNWRAPS=10, VERIFIES=10)


def test_a_content_key_that_serves_five_messages_is_wrapped_and_unwrapped_once(site):
    queue = site.queue(CONFIDENTIALITY + " KEYREUSE(4)")
    exchange(site, queue)
    counted(site.qm, queue, SEALED=10, KEYGENS=2, WRAPS=2, OPENED=10, UNWRAPS=2, KEYHITS=8)
    shown = row(report(site.qm, "policies", "--since-start"), "policies", queue)
    assert (shown["key_cache_hit_percent"], shown["unwraps_per_opened"], shown["wraps_per_sealed"]) == (80, 0.2, 0.2)


def test_browsing_opens_too_and_is_told_from_getting(site):
    queue = site.queue(INTEGRITY)
    site.orders.put(queue, clear())
    for _ in range(3):
        assert len(site.billing.get_all(queue, browse=True)) == 1
    counted(site.qm, queue, SEALED=1, SIGNS=1, OPENED=3, VERIFIES=3)
    status = site.qm.status(queue)
    assert (status["PUTS"], status["GETS"], status["BROWSES"]) == (1, 0, 3)
    site.billing.get(queue)
    status = site.qm.status(queue)
    assert (status["GETS"], status["BROWSES"]) == (1, 3)


def test_a_tampered_message_is_one_failure_by_its_cause(site):
    queue = site.queue(INTEGRITY)
    message = site.sealed(queue)
    body = bytearray(message.body)
    body[-1] ^= 1
    site.put_raw(queue, copy(message, bytes(body)))
    assert refused_get(site.billing, queue).cause == "tampered"
    found = counted(site.qm, queue, SEALED=1, SIGNS=1, VERIFIES=1, QUARANT=1, FAILURES=1)
    assert found["FAILBY"] == ["tampered=1"]
    shown = row(report(site.qm, "policies", "--since-start"), "policies", queue)
    assert shown["failures_by_cause"] == {"tampered": 1}
    assert metrics(site.qm)[f'bulla_policy_failures_total{{policy="{queue}",cause="tampered"}}'] == 1
    site.qm.clear_error_queue()


def test_a_message_that_arrives_sealed_is_checked_and_not_sealed(site):
    queue = site.queue(INTEGRITY)
    message = site.sealed(queue)
    site.orders.put(queue, copy(message), sealed=True)
    counted(site.qm, queue, SEALED=1, SIGNS=1, CHECKED=1, VERIFIES=1)


def test_a_put_that_is_refused_counts_by_its_reason_with_the_queue_and_by_its_cause_with_the_policy(site):
    queue = site.queue(INTEGRITY, "MAXMSGL(4000)")
    refused_put(site.orders, queue, clear(b"x" * 5000))
    assert site.qm.status(queue)["REJBY"] == ["2030=1"] and policy(site.qm, queue)["FAILURES"] == 0
    message = site.sealed(queue)
    body = bytearray(message.body)
    body[-1] ^= 1
    with pytest.raises(Refused) as refused:
        site.orders.put(queue, copy(message, bytes(body)), sealed=True)
    assert refused.value.cause == "tampered"
    status, found = site.qm.status(queue), policy(site.qm, queue)
    assert (sorted(status["REJBY"]), status["REJECTS"]) == (["2030=1", "2063=1"], 2)
    assert (found["FAILBY"], found["CHECKED"], found["SEALED"]) == (["tampered=1"], 0, 1)


def test_a_queue_counts_messages_bytes_and_handles(site):
    queue = site.queue()
    before = site.qm.status(queue)
    assert (before["OPOPENS"], before["IPOPENS"], before["MINMSG"]) == (0, 0, "")
    with site.qm.connect() as client:
        sender = client.sender(queue)
        for size, durable in ((10, True), (500, False), (90, True)):
            client.put(queue, Message(body=b"x" * size, inferred=True, durable=durable), sender)
        lengths = (status := site.qm.status(queue))["MINMSG"], status["MAXMSG"]
        assert 10 < lengths[0] < 90 and 500 < lengths[1] < 700
        assert (status["OPPROCS"], status["OPOPENS"], status["IPOPENS"]) == (1, 1, 0)
        assert (status["PUTS"], status["PPUTS"], status["PUTBYTES"]) == (3, 2, status["BYTES"])
        client.get_all(queue)
        # A message that names its queue itself.
        relay = client.sender(None)
        client.put(None, Message(address=queue, body=b"x", inferred=True), relay)
    wait_until(lambda: site.qm.status(queue)["OPPROCS"] == 0, "the links are closed")
    status = site.qm.status(queue)
    assert (status["PUTS"], status["PUT1S"], status["GETS"], status["PGETS"]) == (4, 1, 3, 2)
    assert (status["IPPROCS"], status["IPOPENS"], status["GETBYTES"]) == (0, 1, status["PUTBYTES"] - status["BYTES"])
    short, long = status["QTIME"]
    assert 0 < short and 0 < long and status["QTIMEMAX"] >= 0


def test_a_full_queue_counts_what_it_refuses(site):
    queue = site.queue(attributes="MAXDEPTH(1) FULL(REJECT)")
    site.nobody.put(queue, Message(body=b"1"))
    refused_put(site.nobody, queue, Message(body=b"2"))
    status = site.qm.status(queue)
    assert (status["PUTS"], status["REJECTS"], status["REJBY"]) == (1, 1, ["2053=1"])
    found = metrics(site.qm)
    assert found[f'bulla_queue_rejects_total{{queue="{queue}",reason="2053"}}'] == 1
    assert found[f'bulla_queue_depth{{queue="{queue}"}}'] == 1


def test_the_time_on_the_queue_is_that_between_put_and_get(site):
    queue = site.queue()
    site.nobody.put(queue, Message(body=b"1"))
    began = time.monotonic()
    # The age of the oldest message is told in whole seconds.
    wait_until(lambda: site.qm.status(queue)["MSGAGE"] >= 1, "it is a second old")
    site.nobody.get(queue)
    least, most = 0.9e6, (time.monotonic() - began + 5) * 1e6
    status = site.qm.status(queue)
    assert all(least < time_us < most for time_us in (*status["QTIME"], status["QTIMEMAX"]))
    assert status["MSGAGE"] == ""


def test_reports_and_metrics_say_what_mqsc_says(site):
    queue = site.queue(INTEGRITY)
    exchange(site, queue)
    status, found = site.qm.status(queue), policy(site.qm, queue)
    queues, policies = (row(report(site.qm, what, "--since-start"), what, queue) for what in ("queues", "policies"))
    series = metrics(site.qm)
    for keyword, name in (("PUTS", "puts"), ("GETS", "gets"), ("PPUTS", "persistent_puts"), ("PUTBYTES", "bytes_put")):
        assert status[keyword] == queues[name]
    for keyword, name in (("PUTS", "puts"), ("GETS", "gets"), ("PUTBYTES", "put_bytes"), ("GETBYTES", "got_bytes")):
        assert series[f'bulla_queue_{name}_total{{queue="{queue}"}}'] == status[keyword]
    for keyword, name in (("SEALED", "sealed"), ("OPENED", "opened"), ("SIGNS", "signs"), ("VERIFIES", "verifies"), ("DEVJOBS", "device_jobs")):
        assert found[keyword] == policies[name] == series[f'bulla_policy_{name}_total{{policy="{queue}"}}'], keyword
    assert policies["signs_per_sealed"] == policies["verifies_per_opened_or_checked"] == 1
    assert policies["device_wait_us"] == pytest.approx(found["DEVWAIT"], abs=1)
    table = site.qm.run("report", "policies", "--data", site.qm.data, "--since-start").stdout.decode()
    assert table.startswith("POLICIES OF QUEUE MANAGER metered   ") and re.search(rf"^{queue} ", table, re.M)
    table = site.qm.run("report", "queues", "--data", site.qm.data, "--since-start").stdout.decode()
    assert table.startswith("QUEUES OF QUEUE MANAGER metered   ")


def test_an_interval_has_only_what_happened_in_it(site):
    queue = site.queue(INTEGRITY)
    exchange(site, queue)
    for what in ("queues", "policies"):
        shown = report(site.qm, what, "--interval", "1s")
        assert 1 <= shown["interval_seconds"] < 60
        idle = row(shown, what, queue)
        assert idle["puts" if what == "queues" else "sealed"] == 0


def test_counts_begin_anew_with_a_start_and_go_with_their_policy(site):
    queue = site.queue(INTEGRITY)
    site.orders.put(queue, clear())
    before = policy(site.qm, queue)
    assert before["SEALED"] == 1
    site.qm.mqsc(f"DELETE POLICY({queue})")
    site.set_policy(queue, INTEGRITY)
    counted(site.qm, queue)
    site.orders.put(queue, clear())
    for client in site.clients.values():
        client.close()
    site.clients.clear()
    assert site.qm.stop() == 0
    site.qm.start()
    after = counted(site.qm, queue)
    status = site.qm.status(queue)
    assert after["SINCE"] > before["SINCE"] and status["SINCE"] == after["SINCE"]
    assert (status["CURDEPTH"], status["PUTS"], status["PUTBYTES"], status["MINMSG"]) == (2, 0, 0, "")
    assert len(site.billing.get_all(queue)) == 2
    counted(site.qm, queue, OPENED=2, VERIFIES=2)


@pytest.fixture(scope="module")
def pair(managers, authority):
    """Two queue managers whose people have certificates of one authority; a channel uses the ring named like its queue manager."""
    near, far = managers("near", name="NEAR", options=["--metrics", "127.0.0.1:0"]), managers("far", name="FAR")
    sites = []
    for qm in (near, far):
        people = People(qm, authority)
        for name in ("orders", "billing", qm.name):
            people.add(name)
        sites.append(Site(qm, people))
    trust_each_other(near, far)
    yield sites
    for site in sites:
        for client in site.clients.values():
            client.close()
        assert site.qm.stop() == 0


def test_splprot_counts_at_the_channel_and_with_the_policy_of_each_side(pair):
    near, far = pair
    route = Route(near.qm, far.qm, sender=f"SPLPROT(REMOVE) {TLS}", receiver=f"SPLPROT(ASPOLICY) {TLS}", start=False)
    near.set_policy(route.remote, f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{{orders}}') RECIP('{{NEAR}}')")
    near.set_policy(route.transmission, f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{{orders}}') RECIP('{{NEAR}}')")
    far.set_policy(route.queue, INTEGRITY.replace("orders", "FAR"))
    sender = near.orders.sender(route.remote)
    for _ in range(MESSAGES):
        near.orders.put(route.remote, clear(), sender)
    route.start()
    route.wait_for_arrival(MESSAGES)
    route.wait_until_sent()
    # Sealed by the policy of the name that was opened, opened by that of the transmission queue.
    counted(near.qm, route.remote, SEALED=10, KEYGENS=10, WRAPS=10, SIGNS=10)
    counted(near.qm, route.transmission, OPENED=10, UNWRAPS=10, VERIFIES=10)
    counted(far.qm, route.queue, SEALED=10, SIGNS=10)
    sent, received = route.status(), route.far_status()
    assert (sent["MSGS"], sent["OPENED"], sent["UNWRAPS"], sent["VERIFIES"], sent["SEALED"]) == (10, 10, 10, 10, 0)
    assert (received["MSGS"], received["SEALED"], received["SIGNS"], received["OPENED"]) == (10, 10, 10, 0)
    assert sent["CLEAROUT"] == received["CLEARIN"] == 10 * len(PAYLOAD) and sent["FAILBY"] == []
    found = metrics(near.qm)
    labels = f'channel="{route.channel}",partner=""'
    assert found[f"bulla_channel_messages_total{{{labels}}}"] == found[f"bulla_channel_opened_total{{{labels}}}"] == 10
    assert found[f"bulla_channel_running{{{labels}}}"] == 1


def test_a_message_that_a_channel_cannot_open_is_a_failure_at_the_channel_and_with_the_policy(pair):
    near, far = pair
    route = Route(near.qm, far.qm, sender=f"SPLPROT(REMOVE) {TLS}", receiver=TLS, start=False)
    near.set_policy(route.transmission, "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{orders}') RECIP('{billing}')")
    near.set_policy(route.remote, "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{orders}') RECIP('{billing}')")
    near.orders.put(route.remote, clear())
    route.start()
    wait_until(lambda: route.status().get("FAILURES") == 1, "it could not be opened")
    # The channel's own ring is not among the recipients.
    assert route.status()["FAILBY"] == policy(near.qm, route.transmission)["FAILBY"] == ["not-a-recipient=1"]
    assert policy(near.qm, route.transmission)["OPENED"] == 0
