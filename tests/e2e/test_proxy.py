"""The network that the channel tests break does what it says."""

import pytest
from proton import Message

from manager import wait_until
from proton_driver import Client
from proxy import BACK, OUT, Proxy

BODY = bytes(50_000)


@pytest.fixture
def proxy(qm):
    qm.mqsc("DEFINE QLOCAL(Q) REPLACE")
    proxy = Proxy(lambda: qm.ports["amqp"])
    yield proxy
    proxy.close()
    with qm.connect() as client:
        client.get_all("Q")


@pytest.fixture
def client(proxy):
    with Client(f"amqp://127.0.0.1:{proxy.port}", timeout=5) as client:
        yield client


def put(client, sender=None):
    client.put("Q", Message(body=BODY, inferred=True), sender)


def send(client, sender):
    """Sends, and does not wait for an answer."""
    sender.link.send(Message(body="x"))
    client.connection.wait(lambda: client.connection.conn.transport.pending() <= 0)


def test_what_it_passes_is_whole_slow_or_not(proxy, client, qm):
    put(client)
    proxy.slow(700, 0.001)
    put(client)
    with qm.connect() as reader:
        assert [bytes(message.body) for message in reader.get_all("Q")] == [BODY, BODY]


def test_what_is_held_does_not_pass_until_it_is_released(proxy, client, qm):
    sender = client.sender("Q")
    proxy.hold(OUT)
    send(client, sender)
    proxy.wait_for_held_bytes(OUT)
    assert qm.depth("Q") == 0
    proxy.release(OUT)
    qm.wait_for_depth("Q", 1)


def test_one_direction_may_be_held_while_the_other_passes(proxy, client, qm):
    sender = client.sender("Q")
    proxy.hold(BACK)
    send(client, sender)
    qm.wait_for_depth("Q", 1)
    proxy.wait_for_held_bytes(BACK)
    proxy.release(BACK)  # the client says goodbye and waits for an answer


def test_a_fault_comes_at_its_byte(proxy, client):
    sender = client.sender("Q")
    before = proxy.passed[OUT]
    proxy.at(OUT, 500, proxy.cut)
    with pytest.raises(Exception, match="disconnect|Connection"):
        put(client, sender)
    assert proxy.passed[OUT] == before + 500
    assert not proxy.links


def test_nobody_gets_through_a_network_that_is_away(proxy, client):
    proxy.refuse()
    with pytest.raises(Exception, match="disconnect|Connection"):
        put(client)
    with pytest.raises(Exception, match="."):
        Client(f"amqp://127.0.0.1:{proxy.port}", timeout=1)
    proxy.heal()
    with Client(f"amqp://127.0.0.1:{proxy.port}") as again:
        put(again)


def test_a_direction_that_ends_in_order_ends_the_connection(proxy, client):
    proxy.half_close(OUT)
    wait_until(lambda: not proxy.links, "the queue manager has closed its side")
