"""AMQP 1.0 written by hand: what no client library would send."""

import socket
import struct

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
# Performatives (part 2, section 2.7) and SASL frames (part 5, section 5.3).
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_INIT = 0x41
SOURCE, TARGET = 0x28, 0x29
SENDER, RECEIVER = False, True
# Where the attackers come from: not where the others do, whom lockouts of an address would hit, too.
ADDRESS = "127.0.0.2"
# Nothing here waits longer for the other side (seconds).
WAIT = 5
# A port is chosen when it is known where to (ip(7), IP_BIND_ADDRESS_NO_PORT): many connections a second leave many behind.
BIND_ADDRESS_NO_PORT = 24


class Symbol(str):
    """Written as a symbol."""


class Described:
    """A value behind a descriptor, which is a symbol."""

    def __init__(self, descriptor, value):
        self.descriptor, self.value = descriptor, value


class Ubyte(int):
    """Written as one byte."""


class Ushort(int):
    """Written as two bytes."""


def encoded(value):
    """A value as it goes over the wire; bytes go as binary, tuples as described lists: (code, field, …)."""
    match value:
        case None:
            return b"\x40"
        case Described():
            return b"\x00" + encoded(value.descriptor) + encoded(value.value)
        case bool():
            return b"\x41" if value else b"\x42"
        case Ubyte():
            return struct.pack(">BB", 0x50, value)
        case Ushort():
            return struct.pack(">BH", 0x60, value)
        case int():
            return struct.pack(">BI", 0x70, value)
        case Symbol():
            return struct.pack(">BI", 0xB3, len(value)) + value.encode()
        case str():
            return struct.pack(">BI", 0xB1, len(value.encode())) + value.encode()
        case bytes():
            return struct.pack(">BI", 0xB0, len(value)) + value
        case tuple():
            descriptor = encoded(value[0]) if isinstance(value[0], Symbol) else b"\x53" + bytes([value[0]])
            return b"\x00" + descriptor + listed(0xD0, [encoded(field) for field in value[1:]])
        case dict():
            return listed(0xD1, [encoded(part) for pair in value.items() for part in pair])
    raise TypeError(value)


def listed(constructor, parts):
    body = b"".join(parts)
    return struct.pack(">BII", constructor, len(body) + 4, len(parts)) + body


def frame(body, channel=0, kind=0):
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def performative(code, *fields, channel=0, payload=b""):
    return frame(encoded((code, *fields)) + payload, channel)


def opening(container="hostile", frame_bytes=1 << 20, channel_max=255):
    return AMQP_HEADER + performative(OPEN, container, None, frame_bytes, Ushort(channel_max))


def begin(channel=0, window=1 << 30):
    return performative(BEGIN, None, 0, window, window, channel=channel)


def attach(name, handle, queue, role, channel=0):
    """A link; role SENDER puts, RECEIVER gets."""
    source, target = (SOURCE, queue if role is RECEIVER else None), (TARGET, queue if role is SENDER else None)
    first = 0 if role is SENDER else None
    return performative(ATTACH, name, handle, role, None, None, source, target, None, None, first, channel=channel)


def flow(handle, credit, count=0, channel=0):
    return performative(FLOW, 0, 1 << 30, 0, 1 << 30, handle, count, credit, channel=channel)


def transfer(handle, number, payload, settled=False, more=False, channel=0):
    tag = struct.pack(">I", number)
    return performative(TRANSFER, handle, number, tag, 0, settled, more, channel=channel, payload=payload)


def data(body):
    return b"\x00\x53\x75" + encoded(body)


def plain(user, password):
    """SASL PLAIN up to the outcome."""
    response = b"\x00" + user.encode() + b"\x00" + password.encode()
    return SASL_HEADER + frame(encoded((SASL_INIT, Symbol("PLAIN"), response)), kind=1)


def dial(port, receive_bytes=None, address=ADDRESS):
    """A connection on which nothing waits for ever."""
    peer = socket.socket()
    try:
        peer.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        if receive_bytes:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        peer.settimeout(WAIT)
        peer.bind((address, 0))
        peer.connect(("127.0.0.1", port))
    except OSError:
        peer.close()
        raise
    return peer


def heard(peer, bytes_max=1 << 16):
    """What has come, without waiting; None when the other side has ended it."""
    try:
        peer.setblocking(False)
        return peer.recv(bytes_max) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None
    finally:
        peer.settimeout(WAIT)
