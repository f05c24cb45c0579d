"""What JMS promises, asked by an unmodified Qpid JMS (tests/clients/jms, Features.java): each check is a test here."""

import json
import random
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from proton import Message, symbol, timestamp

from manager import DEADLINE, wait_until
from proxy import Proxy
from test_clients import DRIVERS
from test_topics import TOPICS

FEATURES = [*DRIVERS["jms"][:-1], "Features"]
SOURCE = (Path(__file__).parents[1] / "clients/jms/src/main/java/Features.java").read_text()
CHECKS = re.findall(r'check\("(\w+)", this::', SOURCE)


@pytest.fixture(scope="module")
def results(qm):
    qm.mqsc(f"DEFINE QLOCAL(JMS)\nDEFINE QLOCAL(JMS.GROUPS) GROUPS(YES)\n{TOPICS}")
    done = subprocess.run(
        [str(word) for word in [*FEATURES, "all", qm.amqp, "JMS"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300,
    )
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert done.returncode == 0, done.stderr.decode()
    return {line["check"]: line["error"] for line in lines}


@pytest.mark.parametrize("check", CHECKS)
def test_jms(results, check):
    assert results[check] is None


def test_every_check_was_made_and_nothing_was_left_over(qm, results):
    assert sorted(results) == sorted(CHECKS)
    assert qm.depth("JMS") == 0


class Lines:
    """A driver at work, and what it has said so far."""

    def __init__(self, *arguments):
        line = [str(word) for word in [*FEATURES, *arguments]]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def wait_for(self, count, deadline=DEADLINE):
        wait_until(lambda: len(self.lines) >= count or self.process.poll() is not None, f"{count} lines", deadline)

    def end(self):
        code = self.process.wait(90)
        self.reader.join(DEADLINE)
        assert code == 0, self.process.stderr.read()
        return self.lines


@pytest.mark.parametrize("how", ["cut", "stop", "kill"])
def test_a_failover_loses_nothing_and_repeats_only_what_was_not_settled(managers, how):
    """Qpid JMS reconnects, makes its links anew and sends again what was not confirmed; deliveries that were not
    settled come again, marked. Nothing is lost, and what comes twice is what was under way when the connection broke."""
    qm = managers(f"failover-{how}")
    qm.mqsc("DEFINE QLOCAL(JMS) MAXDEPTH(100000)")
    proxy = Proxy(lambda: qm.ports.get("amqp"))
    url = f"failover:(amqp://127.0.0.1:{proxy.port})?failover.reconnectDelay=20&failover.maxReconnectDelay=200&jms.prefetchPolicy.all=50"
    count, breaks = 400, 3
    consuming = Lines("consume", url, "JMS", count)
    producing = Lines("produce", url, "JMS", count)
    wait_for = random.Random(7)
    for number in range(breaks):
        producing.wait_for(count * (number + 1) // (breaks + 2) + wait_for.randrange(10))
        if how == "cut":
            proxy.cut()
        else:
            getattr(qm, how)()
            qm.start()
    sent = producing.end()
    got = [line for line in consuming.end() if line.startswith("got ")]
    assert sent == [f"sent {number}" for number in range(count)]
    numbers = [int(line.split()[1]) for line in got]
    assert sorted(set(numbers)) == list(range(count))
    # What came again had not been settled: it says so, or its put was repeated by the client.
    repeated = len(numbers) - count
    assert repeated <= breaks * (50 + 1), f"{repeated} messages came more than once"
    with qm.connect() as client:
        left = client.get_all("JMS", credit=10_000)
    assert {message.properties["number"] for message in left} <= set(numbers)
    assert len(left) <= breaks * (50 + 1)


def delayed(body, **annotations):
    pairs = {symbol(name.replace("_", "-")): value for name, value in annotations.items()}
    return Message(body=body, durable=True, annotations=pairs)


def test_a_delay_outlives_a_restart_and_counts_on_its_queue(managers):
    qm = managers("delayed")
    qm.mqsc("DEFINE QLOCAL(JMS)")
    until = time.time() + 4
    with qm.connect() as client:
        client.put("JMS", delayed("time", x_opt_delivery_time=int(until * 1000)))
        client.put("JMS", delayed("timestamp", x_opt_delivery_time=timestamp(int(until * 1000))))
        client.put("JMS", delayed("delay", x_opt_delivery_delay=4_000))
        client.put("JMS", delayed("past", x_opt_delivery_time=1))
        assert [message.body for message in client.get_all("JMS")] == ["past"]
        assert client.get_all("JMS", browse=True) == []
    assert qm.depth("JMS") == 3
    qm.kill()
    qm.start()
    with qm.connect() as client:
        if time.time() < until:
            assert client.get_all("JMS") == [] or time.time() >= until
        receiver = client.receiver("JMS", credit=3)
        assert sorted(receiver.next().body for _ in range(3)) == ["delay", "time", "timestamp"]
        assert time.time() >= until
    assert qm.stop() == 0


def test_a_container_and_a_link_offer_what_they_do(qm):
    qm.mqsc("DEFINE QLOCAL(JMS) REPLACE")
    with qm.connect() as client:
        client.connection.create_sender("JMS", name="capable")
        offered = client.connection.conn.remote_offered_capabilities
        names = {str(name) for name in (offered.elements if hasattr(offered, "elements") else offered)}
        assert {"ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS"} <= names
        assert client.connection.conn.remote_properties[symbol("topic-prefix")] == "topic://"
