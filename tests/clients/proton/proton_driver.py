"""python-qpid-proton as an unmodified client: a small library for the suite, and a driver program.

    proton_driver.py put|get|browse QUEUE --url amqp://127.0.0.1:5672 [--user U --password P] [--ca FILE]
                     [--count N] [--kind text|binary|map|large] [--size BYTES] [--props] [--wait SECONDS]

One JSON line a message on standard output; `{"error": …}` and exit code 1 where the other side refused.
"""

import argparse
import hashlib
import json
import socket
import sys
from urllib.parse import urlsplit

from proton import ConnectionException, Data, Delivery, Disposition, Link, Message, SSLDomain, Timeout, int32
from proton.handlers import IncomingMessageHandler
from proton.reactor import Container, Copy, LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached

# Beyond this, nothing more is expected to come (seconds).
WAIT_SECONDS = 20
# Large bodies in few frames.
FRAME_BYTES = 1 << 20
PROPERTIES = {
    "colour": "grün",
    "number": int32(42),
    "big": 1234567890123,
    "flag": True,
    "ratio": 2.5,
}
MAP = {"customer": "Zoë", "count": 3, "paid": True, "ratio": 0.25}


class Refused(Exception):
    """The other side refused a connection, a link or a message."""

    def __init__(self, condition, description=None, info=None):
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description or ""
        self.info = {str(key): value for key, value in (info or {}).items()}

    @classmethod
    def from_condition(cls, condition):
        if condition is None:
            return cls("none")
        return cls(condition.name, condition.description, condition.info)

    @property
    def reason(self):
        """The MQ reason code: the number that the description starts with."""
        first = self.description.split(" ", 1)[0]
        return int(first) if first.isdigit() else None

    @property
    def cause(self):
        """The sub-reason: the word after `cause=`."""
        words = self.description.split()
        return next((word[6:] for word in words if word.startswith("cause=")), None)


class Asks(LinkOption):
    """Capabilities that a link asks for, in its terminus."""

    def __init__(self, *capabilities):
        self.capabilities = capabilities

    def apply(self, link):
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_array(False, Data.SYMBOL)
        terminus.capabilities.enter()
        for capability in self.capabilities:
            terminus.capabilities.put_symbol(capability)
        terminus.capabilities.exit()


def _SealedLink():
    """A link that puts and gets sealed bytes."""
    return Asks("bulla:sealed")


def _container(name):
    """A container of that id; none for one of its own."""
    container = Container()
    if name:
        container.container_id = name
    return container


class Client:
    """One connection; every call blocks until the other side has answered."""

    def __init__(
        self,
        url,
        user=None,
        password=None,
        ca=None,
        cert=None,
        key=None,
        mechanisms=None,
        timeout=WAIT_SECONDS,
        insecure=False,
        container=None,
        heartbeat=60,
    ):
        domain = None
        if urlsplit(url).scheme == "amqps":
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(str(ca))
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            if cert:
                domain.set_credentials(str(cert), str(key or cert), None)
        if mechanisms is None:
            mechanisms = "PLAIN" if user else ("EXTERNAL" if cert else "ANONYMOUS")
        self.timeout = timeout
        self.links = 0
        try:
            self.connection = BlockingConnection(
                url,
                timeout=timeout,
                container=_container(container),
                ssl_domain=domain,
                user=user,
                password=password,
                allowed_mechs=mechanisms,
                allow_insecure_mechs=insecure,
                reconnect=False,
                heartbeat=heartbeat,
                max_frame_size=FRAME_BYTES,
            )
        except ConnectionException as error:
            raise Refused("connection", str(error)) from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.connection.close()
        except Exception:  # the other side may be gone already, which is what some tests want
            pass

    def abandon(self):
        """Ends the connection as a dying process does: without a word."""
        self.connection.conn.transport._selectable._delegate.shutdown(socket.SHUT_RDWR)

    def sender(self, queue, sealed=False, name=None):
        """A sending link, or Refused."""
        return self._link(
            lambda: self.connection.create_sender(
                queue, name=name or self._name(), options=_SealedLink() if sealed else None
            )
        )

    def receiver(self, queue, credit=1, browse=False, sealed=False, selector=None, asks=(), name=None, options=()):
        """A receiving link, or Refused."""
        options = [*options, *([Copy()] if browse else [])]
        if selector is not None:
            options.append(Selector(selector))
        if asks:
            options.append(Asks(*asks))
        if sealed:
            options.append(_SealedLink())
        handler = _Incoming(self.connection)
        receiver = self._link(
            lambda: self.connection.create_receiver(
                queue, name=name or self._name(), credit=credit, handler=handler, options=options or None
            )
        )
        return Receiver(self, receiver, handler)

    def _name(self):
        self.links += 1
        return f"link {self.links}"

    def _link(self, make):
        try:
            return make()
        except LinkDetached as error:
            raise Refused.from_condition(error.link.remote_condition) from error

    def put(self, queue, message, sender=None, sealed=False):
        """Puts a message and waits for its confirmation; Refused carries the rejection."""
        own = sender is None
        sender = sender or self.sender(queue, sealed)
        try:
            delivery = sender.send(message, timeout=self.timeout, error_states=[])
            state = delivery.remote_state
            if state != Disposition.ACCEPTED:
                if state == Disposition.REJECTED:
                    raise Refused.from_condition(delivery.remote.condition)
                raise Refused(str(state))
        except LinkDetached as error:
            raise Refused.from_condition(error.link.remote_condition) from error
        finally:
            if own:
                self._close(sender)

    def get(self, queue, wait=WAIT_SECONDS, credit=1, accept=True):
        """One message, or None when none came in time."""
        receiver = self.receiver(queue, credit=credit)
        try:
            return receiver.next(wait, accept=accept)
        finally:
            receiver.close()

    def get_all(self, queue, browse=False, credit=100, selector=None):
        """What is on the queue now, by draining it."""
        receiver = self.receiver(queue, credit=0, browse=browse, selector=selector)
        try:
            return receiver.drain(credit)
        finally:
            receiver.close()

    @staticmethod
    def _close(link):
        try:
            link.close()
        except (LinkDetached, ConnectionException, Timeout):
            pass


class _Incoming(IncomingMessageHandler):
    """Keeps what arrives; nothing is settled until the test says so."""

    def __init__(self, connection):
        super().__init__(auto_accept=False)
        self.connection = connection
        self.arrived = []
        self.condition = None

    def on_message(self, event):
        if isinstance(event.message.body, memoryview):
            # A view of memory that lives no longer than the message.
            event.message.body = bytes(event.message.body)
        self.arrived.append((event.message, event.delivery))
        self.connection.container.yield_()

    def on_link_error(self, event):
        self.condition = event.link.remote_condition
        event.link.close()
        self.connection.container.yield_()

    def on_connection_error(self, event):
        pass


class Receiver:
    """A receiving link that hands out deliveries one by one."""

    def __init__(self, client, receiver, handler):
        self.client = client
        self.blocking = receiver
        self.link = receiver.link
        self.handler = handler

    def flow(self, credit):
        self.link.flow(credit)

    def wait_for(self, count, wait=WAIT_SECONDS):
        """Until `count` messages are here, the link is refused, or the time is up; whether they are here."""
        here = lambda: (
            len(self.handler.arrived) >= count or self.handler.condition or self.link.state & Link.REMOTE_CLOSED
        )
        try:
            self.client.connection.wait(here, timeout=wait, msg="waiting for messages")
        except Timeout:
            return False
        except LinkDetached as error:
            raise Refused.from_condition(error.link.remote_condition) from error
        if len(self.handler.arrived) >= count:
            return True
        raise Refused.from_condition(self.handler.condition or self.link.remote_condition)

    def next(self, wait=WAIT_SECONDS, accept=True):
        """The next message, or None; Refused when the link was ended instead."""
        if not self.wait_for(1, wait):
            return None
        message, delivery = self.handler.arrived.pop(0)
        if accept:
            self.settle(delivery, Delivery.ACCEPTED)
        else:
            message.delivery = delivery
        return message

    def settle(self, delivery, state):
        """Settles, and waits until it is on the wire."""
        delivery.update(state)
        delivery.settle()
        self.flush()

    def flush(self):
        transport = self.client.connection.conn.transport
        self.client.connection.wait(lambda: transport.pending() <= 0, timeout=self.client.timeout)

    def drain(self, credit=100, accept=True):
        """Every message that is there, up to the credit."""
        self.link.drain(credit)
        drained = lambda: (
            self.link.credit + self.link.queued == 0 or self.handler.condition or self.link.state & Link.REMOTE_CLOSED
        )
        try:
            self.client.connection.wait(drained, timeout=self.client.timeout, msg="draining")
        except LinkDetached as error:
            raise Refused.from_condition(error.link.remote_condition) from error
        if self.handler.condition or self.link.state & Link.REMOTE_CLOSED:
            raise Refused.from_condition(self.handler.condition or self.link.remote_condition)
        messages = []
        for message, delivery in self.handler.arrived:
            if accept:
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
            messages.append(message)
        self.handler.arrived.clear()
        if messages and accept:
            self.flush()
        return messages

    def close(self):
        Client._close(self.blocking)

    def detach(self):
        """Goes, and may come back: what it got from stays. The other side has heard of it on return."""
        self.blocking.detach()
        self.flush()
        Client._close(self.client.sender(None))


def make(kind, number, size, props):
    """A message of the kind; each one differs from the others."""
    if kind == "text":
        message = Message(body=f"message {number}: naïve façade, 信封")
    elif kind == "map":
        message = Message(body={**MAP, "number": number})
    else:
        block = hashlib.sha256(f"proton {number}".encode()).digest()
        message = Message(body=(block * (size // len(block) + 1))[:size], inferred=True)
    message.durable = True
    if props:
        message.properties = dict(PROPERTIES)
    return message


def canonical(body):
    """The kind of a body and the bytes that stand for it."""
    if isinstance(body, str):
        return "text", body.encode()
    if isinstance(body, (bytes, memoryview)):
        return "binary", bytes(body)
    if isinstance(body, dict):
        return "map", json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return type(body).__name__, repr(body).encode()


def described(message):
    """What the drivers print of a message."""
    kind, body = canonical(message.body)
    return {
        "kind": kind,
        "sha256": hashlib.sha256(body).hexdigest(),
        "length": len(body),
        "properties": dict(message.properties or {}),
        "message_id": None if message.id is None else str(message.id),
    }


def show(fields):
    print(json.dumps(fields, ensure_ascii=False), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["put", "get", "browse"])
    parser.add_argument("queue")
    parser.add_argument("--url", required=True)
    for option in ("--user", "--password", "--ca", "--cert", "--key"):
        parser.add_argument(option)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--kind", choices=["text", "binary", "map", "large"], default="text")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--props", action="store_true")
    parser.add_argument("--wait", type=float, default=WAIT_SECONDS)
    args = parser.parse_args()
    try:
        client = Client(args.url, args.user, args.password, args.ca, args.cert, args.key, timeout=60)
        with client:
            if args.command == "put":
                sender = client.sender(args.queue)
                for number in range(args.count):
                    message = make(args.kind, number, args.size, args.props)
                    client.put(args.queue, message, sender)
                    show(described(message))
            else:
                receiver = client.receiver(args.queue, credit=args.count, browse=args.command == "browse")
                for _ in range(args.count):
                    message = receiver.next(args.wait, accept=args.command == "get")
                    if message is None:
                        break
                    show(described(message))
                receiver.close()
    except Refused as error:
        show({"error": {"condition": error.condition, "description": error.description}})
        sys.exit(1)


if __name__ == "__main__":
    main()
