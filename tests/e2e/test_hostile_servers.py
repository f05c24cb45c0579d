"""A transit engine that hangs, never ends, says anything, leads elsewhere or gives other bytes: messages whose keys are
there wait and stay, and users whose keys are elsewhere are served.

BULLA_HOSTILE_SERVER_SECONDS=60 for so long of each; then the others have to keep their rate, too."""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from manager import shown_rows, wait_until
from proton_driver import Refused
from sites import clear
from test_limits import memory

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import servers  # noqa: E402
import transit  # noqa: E402

LONG = os.environ.get("BULLA_HOSTILE_SERVER_SECONDS")
# Of each way, and what others keep of their rate beside a server that answers well, where that is measured.
SECONDS, SHARE_KEPT = float(LONG or 1.5), 0.8
# The queue manager waits this long for an answer of the engine, ms, and its users this long for the engine, seconds.
TIMEOUT, KEY_SERVICE_WAIT = 1000, 30
# Messages that lie there for a reader whose key is in the engine.
LYING = 5
MEMORY_MIB, OVERHEAD_MIB = 32, 320
WAYS = ["silent", "drips", "garbage", "endless", "huge", "redirects", "others_bytes"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transit")
    ca, certificate, key = transit.certify(folder)
    liar = servers.Liar(certificate, key)
    liar.policy, liar.ca, liar.token_file = transit.POLICY, ca, folder / "token"
    liar.tokens["hvs.bulla"] = ["bulla"]
    liar.token_file.write_text("hvs.bulla\n")
    liar.token_file.chmod(0o600)
    yield liar
    liar.lies(None)
    liar.server.shutdown()


@pytest.fixture(scope="module")
def qm(server, managers):
    qm = managers("hostile-servers", options=["--memory", MEMORY_MIB])
    qm.mqsc(
        f"DEFINE DEVICE(VAULT) TYPE(TRANSIT) ADDRESS('https://localhost:{server.port}') CAFILE('{server.ca}') + \n"
        f"  TOKENFILE('{server.token_file}') ENGINES(2) TIMEOUT({TIMEOUT})\nSTART DEVICE(VAULT)"
    )
    data = ["--data", qm.data]
    qm.run("cert", "create", "--ca", "trade", "--dn", "CN=trade", *data)
    shares = {"orders": ["billing"], "billing": ["orders"], "clear": ["billing", "reader"], "reader": ["clear"]}
    for user, others in shares.items():
        qm.add_user(user)
        there = ["--key", "rsa2048", "--label", user, "--device", "VAULT"] if user in ("orders", "billing") else []
        share = [word for other in others for word in ("--share", other)]
        qm.run("cert", "create", "--ring", user, "--dn", f"CN={user}", *there, "--signer", "trade", *share, *data)
    for queue, signer, recipient in (("SEALED", "orders", "billing"), ("OTHERS", "clear", "reader")):
        sealed = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN={signer}') RECIP('CN={recipient}')"
        qm.mqsc(f"DEFINE QLOCAL({queue})\nSET POLICY({queue}) {sealed}")
    yield qm
    assert qm.process.poll() is None, "".join(qm.log[-30:])
    assert "panicked" not in "".join(qm.log)
    assert qm.stop() == 0


def device(qm):
    return shown_rows(qm.run("mqsc", "--data", qm.data, "--json", "-c", "DISPLAY DEVICE(VAULT) ALL").stdout)[0]


def served(qm, seconds):
    """Sealed messages to and fro for so long, one after the other, by users whose keys are here: how long each took."""
    took, ends = [], time.monotonic() + seconds
    with qm.connect("clear") as clear_user, qm.connect("reader") as reader:
        sender, receiver = clear_user.sender("OTHERS"), reader.receiver("OTHERS", credit=1)
        while time.monotonic() < ends:
            began = time.monotonic()
            clear_user.put("OTHERS", clear(b"%d" % len(took)), sender)
            assert bytes(receiver.next(30).body) == b"%d" % len(took)
            receiver.flow(1)
            took.append(time.monotonic() - began)
    return sorted(took)


class Insists:
    """A user whose key is in the engine puts again and again, and counts what was taken."""

    def __init__(self, qm):
        self.qm, self.put, self.refused, self.ends = qm, 0, 0, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        with self.qm.connect("orders", timeout=90) as client:
            sender = client.sender("SEALED")
            while not self.ends.is_set():
                try:
                    client.put("SEALED", clear(b"insists"), sender)
                    self.put += 1
                except Refused:
                    self.refused += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(90)
        assert not self.thread.is_alive()


def told(name, seconds, took, asked, insists=None):
    """A line of what was measured."""
    late = took[int(len(took) * 0.99)] * 1000
    puts = f"  orders: {insists.put} put, {insists.refused} refused" if insists else ""
    times = f"p99 {late:>6.1f} ms  slowest {took[-1] * 1000:>6.0f} ms"
    print(f"{name:<14} {len(took) / seconds:>7.0f}/s  {times}  asked {asked:>6}{puts}", flush=True)


@pytest.fixture(scope="module")
def usual(qm, server):
    """The rate of others while the server answers well."""
    seconds = SECONDS / 2 if LONG else SECONDS
    took = served(qm, seconds)
    told("answers well", seconds, took, server.asked)
    return len(took) / seconds


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_lies_holds_up_who_keeps_keys_there_and_no_other(qm, server, usual, way):
    assert {one.__name__ for one in server.ways()} == set(WAYS)
    wait_until(lambda: device(qm)["STATUS"] == "RUNNING", "it runs", 60)
    # A way before this one that failed has left its messages.
    qm.mqsc("CLEAR QLOCAL(SEALED)")
    with qm.connect("orders") as orders:
        for number in range(LYING):
            orders.put("SEALED", clear(b"%d" % number))
    asked, came = server.asked, len(server.came)
    server.lies(getattr(server, way))
    try:
        # A reader whose key is there waits, too.
        with qm.connect("billing") as billing, Insists(qm) as insists:
            receiver = billing.receiver("SEALED", credit=LYING)
            took = served(qm, SECONDS)
            told(way, SECONDS, took, server.asked - asked, insists)
            assert receiver.next(0) is None
            assert qm.depth("SYSTEM.PROTECTION.ERROR.QUEUE") == 0
            assert memory(qm) < MEMORY_MIB + OVERHEAD_MIB
            # What it says of itself leads to no other address.
            assert len(server.came) == came
            with suppress(Exception):
                receiver.close()
            insists.ends.set()
            server.lies(None)
        # Users whose messages need no key of the server wait for none of its answers.
        assert took[len(took) // 2] * 1000 < TIMEOUT and took[-1] < KEY_SERVICE_WAIT, took[-5:]
        assert not LONG or len(took) / SECONDS > SHARE_KEPT * usual
    finally:
        server.lies(None)
    wait_until(lambda: device(qm)["STATUS"] == "RUNNING", "it answers again", 60)
    # All that was there, and all that was taken since, opens.
    expected = [b"%d" % number for number in range(LYING)] + [b"insists"] * insists.put
    with qm.connect("billing", timeout=60) as billing:
        got = billing.receiver("SEALED", credit=len(expected) + 1)
        assert [bytes(got.next(60).body) for _ in expected] == expected
    assert qm.depth("SEALED") == 0 and qm.depth("SYSTEM.PROTECTION.ERROR.QUEUE") == 0
