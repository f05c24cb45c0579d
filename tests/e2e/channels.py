"""Two queue managers with a channel between them, through a network that can fail."""

import itertools
import os
import signal

from proton import Message

from manager import shown_rows, wait_until
from proxy import Proxy

# A lost connection is tried again after this, as often as it takes (seconds).
RETRY = "SHORTRTY(999999999) SHORTTMR(1)"


class Route:
    """From `R…` at one queue manager over the transmission queue `X…` and the channel `C…` to `T…` at the other one."""

    numbers = itertools.count(1)

    def __init__(self, near, far, sender="", receiver="", transmission="", target="MAXDEPTH(1000000)", start=True):
        number = next(self.numbers)
        retry = "" if "SHORTRTY" in sender else RETRY
        self.near, self.far = near, far
        self.remote, self.queue = f"R{number}", f"T{number}"
        self.transmission, self.channel = f"X{number}", f"C{number}"
        self.proxy = Proxy(lambda: far.ports.get("amqps" if "SSLCIPH" in sender else "amqp"))
        far.mqsc(
            f"""
            DEFINE QLOCAL({self.queue}) {target}
            DEFINE CHANNEL({self.channel}) CHLTYPE(RCVR) {receiver}
            """
        )
        near.mqsc(
            f"""
            DEFINE QLOCAL({self.transmission}) USAGE(XMITQ) MAXDEPTH(1000000) {transmission}
            DEFINE QREMOTE({self.remote}) RNAME({self.queue}) RQMNAME({far.name}) XMITQ({self.transmission})
            DEFINE CHANNEL({self.channel}) CHLTYPE(SDR) CONNAME('127.0.0.1({self.proxy.port})') XMITQ({self.transmission}) {retry} {sender}
            """
        )
        if start:
            self.start()

    def start(self):
        self.near.mqsc(f"START CHANNEL({self.channel})")

    def stop(self, mode="QUIESCE"):
        self.near.mqsc(f"STOP CHANNEL({self.channel}) MODE({mode})")

    def put(self, numbers, body=b"", durable=True, **fields):
        """Each message's id is its number."""
        with self.near.connect() as client:
            sender = client.sender(self.remote)
            for number in numbers:
                client.put(self.remote, Message(id=number, body=body, inferred=True, durable=durable, **fields), sender)

    def wait_for_arrival(self, count):
        self.far.wait_for_depth(self.queue, count)

    def wait_until_sent(self):
        """Nothing is left to send, and nothing in doubt."""
        self.near.wait_for_depth(self.transmission, 0)

    def arrived(self):
        """The numbers of the messages on the target queue, which are taken off it."""
        with self.far.connect() as client:
            return [message.id for message in client.get_all(self.queue, credit=1_000_000)]

    def status(self):
        return status(self.near, self.channel)

    def far_status(self):
        return status(self.far, self.channel)

    def wait_for_status(self, state):
        wait_for_status(self.near, self.channel, state)


# What a channel needs whose SPLPROT uses a key ring; its partner shows its listener's certificate.
TLS = "SSLCIPH(TLS_AES_256_GCM_SHA384)"


def trust_each_other(one, two):
    """Each believes the authority of the other's listener, when it calls and when it is called."""
    for manager, other in ((one, two), (two, one)):
        for file in ("clients.pem", "partners.pem"):
            (manager.data / "tls" / file).write_bytes(other.ca.read_bytes())


def status(manager, channel):
    """DISPLAY CHSTATUS as a dictionary; one that was never started is INACTIVE."""
    done = manager.run("mqsc", "--data", manager.data, "--json", "-c", f"DISPLAY CHSTATUS({channel}) ALL", code=None)
    objects = shown_rows(done.stdout)
    return objects[0] if objects else {"STATUS": "INACTIVE"}


def wait_for_status(manager, channel, state):
    try:
        wait_until(lambda: status(manager, channel)["STATUS"] == state, f"{channel} is {state}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {status(manager, channel)}") from None


def dead_letters(manager, queue="SYSTEM.DEAD.LETTER.QUEUE"):
    with manager.connect() as client:
        return client.get_all(queue)


def freeze(manager):
    """The process does nothing more, but what is sent to it still reaches its machine."""
    os.kill(manager.process.pid, signal.SIGSTOP)


def restart(*managers):
    """As after a power cut of the machine: `kill -9`, and started again."""
    for manager in managers:
        manager.kill()
    for manager in managers:
        manager.start()
