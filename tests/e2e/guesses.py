"""A flood of wrong passwords from many addresses, for as long as a test looks at something else."""

import itertools
import random
import selectors
import socket
import struct
import threading

from proton import Data, Described, symbol, ulong

import sasl

# Connections that the flood keeps open at a time.
OPEN = 200
# The networks of the attackers: 127.64.0.0/16 to 127.127.0.0/16. Honest users are at 127.0.0.1.
NETWORKS = range(64, 128)


def attempt(user, password):
    """Both frames of an attempt by PLAIN, sent without waiting for what is offered."""
    data = Data()
    data.put_object(Described(ulong(sasl.INIT), [symbol("PLAIN"), b"\0" + user.encode() + b"\0" + password.encode()]))
    body = data.encode()
    return sasl.HEADER + struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body


class Flood:
    """Signs in with wrong passwords, as users that exist and as others, each time from another address."""

    def __init__(self, manager, users):
        self.address = ("127.0.0.1", manager.ports["amqp"])
        self.names = itertools.cycle([*users, "no-such-user"])
        self.random = random.Random(14)
        self.attempts = 0
        self._busy, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._busy.wait(30), "the flood does not get going"
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(30)

    def _run(self):
        with selectors.DefaultSelector() as selector:
            while not self._over.is_set():
                while len(selector.get_map()) < OPEN:
                    selector.register(self._begin(), selectors.EVENT_READ | selectors.EVENT_WRITE)
                for key, events in selector.select(0.05):
                    self._go_on(selector, key.fileobj, events)
                if self.attempts > OPEN:
                    self._busy.set()
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    def _begin(self):
        stream = socket.socket()
        stream.setblocking(False)
        number = self.random.randrange
        stream.bind((f"127.{self.random.choice(NETWORKS)}.{number(256)}.{1 + number(254)}", 0))
        stream.connect_ex(self.address)
        return stream

    def _go_on(self, selector, stream, events):
        try:
            if events & selectors.EVENT_WRITE:
                stream.send(attempt(next(self.names), f"wrong-{self.random.random()}"))
                self.attempts += 1
                selector.modify(stream, selectors.EVENT_READ)
            if events & selectors.EVENT_READ and not stream.recv(4096):
                raise ConnectionError("refused")
        except OSError:
            selector.unregister(stream)
            stream.close()
