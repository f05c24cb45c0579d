"""Two users and one device that is slow: who floods it with signatures, over many connections, keeps nobody else waiting, and has
no more of its time than SEALTIME says."""


import pytest
from proton import Message

from manager import shown_rows, wait_until
from sites import INTEGRITY, PRIVACY, clear, peopled

# What the device takes for one private-key operation, microseconds: by far longer than anything else here.
SERVICE_US = 20_000
CONNECTIONS = 8
# Messages that each of them sends without waiting: no more than the credit of a link whose messages are sealed.
EACH = 200
ROUND_TRIPS = 5
FLOOD = CONNECTIONS * EACH


@pytest.fixture
def site(managers, authority):
    qm = managers("shared-devices", options=["--adapters", "2"])
    yield from peopled(qm, authority, "orders", "billing", "flooder")
    # What the flooder left is not waited for.
    qm.mqsc("START DEVICE(CPU)", code=None)
    assert qm.process.poll() is None, "".join(qm.log[-30:])


def slow_device_alone(site, *users):
    """From now on private keys are the slow device's; the handshakes of TLS were before that."""
    for user in users:
        getattr(site, user)
    site.qm.mqsc(
        f"DEFINE DEVICE(SLOW) TYPE(MODELLED) SERVICE('RSA-CRT-2048={SERVICE_US}')\n"
        "START DEVICE(SLOW)\nSTOP DEVICE(CPU)\nSTOP DEVICE(ACCEL1)"
    )


def flood(clients, queue, count):
    """Each of them sends so many messages and waits for nothing."""
    for client in clients:
        link = client.sender(queue).link
        client.connection.wait(lambda: link.credit >= count, timeout=client.timeout, msg="waiting for credit")
        for number in range(count):
            link.send(Message(body=f"jar {number}"))
        transport = client.connection.conn.transport
        client.connection.wait(lambda: transport.pending() <= 0, timeout=client.timeout)


def share(qm, user):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY LIMITSTATUS('{user}')")
    row = shown_rows(done.stdout)[0]
    return row["SEALUSED"], row["SEALHELD"]


def test_who_floods_a_device_over_many_connections_keeps_nobody_else_waiting(site):
    qm = site.qm
    flooded = site.queue("SIGNALG(SHA256) SIGNER('{flooder}')")
    queue = site.queue(PRIVACY)
    flooders = [qm.connect("flooder") for _ in range(CONNECTIONS)]
    slow_device_alone(site, "orders", "billing")
    flood(flooders, flooded, EACH)
    wait_until(lambda: qm.depth(flooded) > 0, "the flood is on its way")
    sender, receiver = site.orders.sender(queue), site.billing.receiver(queue, credit=ROUND_TRIPS)
    for _ in range(ROUND_TRIPS):
        # One signature, and one content key to unwrap.
        site.orders.put(queue, clear(), sender)
        assert receiver.next() is not None
    # One after the other it would have been its turn after all of them.
    assert qm.depth(flooded) < FLOOD * 3 // 4
    for client in flooders:
        client.abandon()


def test_a_user_has_no_more_private_key_time_than_its_share_and_others_do_not_wait_for_it(site):
    qm = site.qm
    flooded, queue = site.queue("SIGNALG(SHA256) SIGNER('{flooder}')"), site.queue(INTEGRITY)
    # A second's worth at once is one signature.
    qm.mqsc(f"SET LIMIT('flooder') SEALTIME({SERVICE_US // 1000})")
    flooders = [qm.connect("flooder") for _ in range(2)]
    slow_device_alone(site, "orders")
    flood(flooders, flooded, EACH)
    sender = site.orders.sender(queue)
    for _ in range(ROUND_TRIPS):
        site.orders.put(queue, clear(), sender)
    # All of it would take hundreds of seconds.
    assert qm.depth(flooded) < EACH
    used, held = wait_until(lambda: (share(qm, "flooder")[1] > 0) and share(qm, "flooder"), "its share is used up")
    assert 0 < used < EACH * SERVICE_US // 1000 and held > 0
    assert "SEALTIME(20)" in qm.run("mqsc", "--data", qm.data, "--export").stdout.decode()
    # Without a share all of it is done: nothing was refused or lost.
    qm.mqsc("SET LIMIT('flooder') SEALTIME(0)\nSTART DEVICE(CPU)")
    qm.wait_for_depth(flooded, 2 * EACH)
    for client in flooders:
        client.close()
