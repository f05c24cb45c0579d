"""AMQP 1.0 frame by frame: what is sent is written by hand (`tests/hostile/frames.py`), and what comes is read here."""

import socket
import struct
import sys
from pathlib import Path

from manager import DEADLINE

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import frames  # noqa: E402
from frames import (  # noqa: E402
    AMQP_HEADER, ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, FLOW, OPEN, RECEIVER, SENDER, SOURCE, TARGET, TRANSFER, Symbol,
)

RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED, ERROR = 0x23, 0x24, 0x25, 0x26, 0x27, 0x1D
SASL_MECHANISMS, SASL_OUTCOME = 0x40, 0x44
COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x30, 0x31, 0x32, 0x33, 0x34
# Where fields stand in the lists of part 2, section 2.7, and part 3, section 3.5.
OPEN_IDLE, OPEN_OFFERED, OPEN_PROPERTIES = 4, 7, 9
ATTACH_SOURCE, ATTACH_TARGET, ATTACH_UNSETTLED, ATTACH_INCOMPLETE, ATTACH_SIZE = 5, 6, 7, 8, 10
SOURCE_DURABLE, SOURCE_EXPIRY, SOURCE_DYNAMIC, SOURCE_NODE, SOURCE_DEFAULT_OUTCOME, SOURCE_OUTCOMES = 1, 2, 4, 5, 8, 9


class Described(tuple):
    """A described value as it came: its descriptor, and the value."""


def listed(fields, at):
    """A field of a list that may be shorter."""
    return fields[at] if fields is not None and len(fields) > at else None


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        self.at += length
        return self.data[self.at - length:self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def value(self, code=None):
        code = self.take(1)[0] if code is None else code
        fixed = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
        forms = {0x50: "B", 0x52: "B", 0x53: "B", 0x54: "b", 0x55: "b", 0x60: "H", 0x70: "I", 0x80: "Q", 0x71: "i", 0x81: "q", 0x83: "q"}
        sized = {0xA0: "B", 0xB0: "I", 0xA1: "B", 0xB1: "I", 0xA3: "B", 0xB3: "I"}
        many = {0xC0: "B", 0xD0: "I", 0xC1: "B", 0xD1: "I"}
        if code in fixed:
            return fixed[code]
        if code == 0x56:
            return self.take(1) == b"\x01"
        if code in forms:
            return self.number(forms[code])
        if code in sized:
            body = self.take(self.number(sized[code]))
            return body if code in (0xA0, 0xB0) else Symbol(body.decode()) if code in (0xA3, 0xB3) else body.decode()
        if code == 0x00:
            return Described((self.value(), self.value()))
        if code in many:
            self.number(many[code])
            values = [self.value() for _ in range(self.number(many[code]))]
            return values if code in (0xC0, 0xD0) else dict(zip(values[::2], values[1::2]))
        if code in (0xE0, 0xF0):
            form = "B" if code == 0xE0 else "I"
            self.number(form)
            count, element = self.number(form), self.take(1)[0]
            return [self.value(element) for _ in range(count)]
        raise AssertionError(f"type {code:#x}")


class Wire:
    """A connection whose frames are written and read one by one."""

    def __init__(
        self, qm, container="wire", opens=True, properties=None, desired=None, header=AMQP_HEADER, user=None
    ):
        """One that `opens` has a session, too; with a `user` it signs in by PLAIN."""
        self.stream = socket.create_connection(("127.0.0.1", qm.ports["amqp"]), timeout=DEADLINE)
        self.numbers = 0
        if user:
            self.send(frames.plain(user, qm.passwords[user]))
            assert self.header() == frames.SASL_HEADER
            assert self.next(SASL_MECHANISMS) and self.next(SASL_OUTCOME)[0] == 0
        self.opening = frames.performative(
            OPEN, container, None, 1 << 20, frames.Ushort(255), None, None, None, None, desired, properties
        )
        if opens:
            self.open(header)
            self.next(BEGIN)

    def open(self, header=AMQP_HEADER):
        """Opens the connection, and begins a session at once; the queue manager's open."""
        self.send(header, self.opening, frames.begin())
        assert self.header() == header
        self.opened = self.next(OPEN)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def send(self, *parts):
        self.stream.sendall(b"".join(parts))

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.stream.recv(length - len(data))
            if not more:
                raise ConnectionError("ended by the queue manager")
            data += more
        return data

    def header(self):
        return self.exactly(8)

    def frame(self):
        """The next frame that is no heartbeat: channel, performative, fields, payload."""
        while True:
            size, offset, _, channel = struct.unpack(">IBBH", self.exactly(8))
            reader = Reader(self.exactly(size - 8)[offset * 4 - 8:])
            if not reader.data:
                continue
            described = reader.value()
            return channel, described[0], described[1], reader.data[reader.at:]

    def next(self, code):
        """The fields of the next frame of that kind; those before it are passed over."""
        while True:
            _, found, fields, payload = self.frame()
            if found == code:
                self.payload = payload
                return fields
            assert found not in (CLOSE, END) or code in (CLOSE, END), f"{found:#x}: {fields}"

    def attach(
        self, role, address, handle=0, name=None, source=None, target=None, snd=None, rcv=None, credit=None,
        unsettled=None, incomplete=None,
    ):
        """Attaches a link; its answer. A link that gets asks for as many messages as `credit`."""
        self.numbers += 1
        source = source or (SOURCE, address if role is RECEIVER else None)
        target = target or (TARGET, address if role is SENDER else None)
        modes = [None if mode is None else frames.Ubyte(mode) for mode in (snd, rcv)]
        name = name or f"link {self.numbers}"
        first = 0 if role is SENDER else None
        self.send(frames.performative(
            ATTACH, name, handle, role, *modes, source, target, unsettled, incomplete, first,
        ))
        answer = self.next(ATTACH)
        if credit:
            self.send(frames.flow(handle, credit))
        return answer

    def sender(self, address, handle=0, **options):
        """A link that puts, once it has credit."""
        answer = self.attach(SENDER, address, handle, **options)
        self.next(FLOW)
        return answer

    def transfer(
        self, handle, number, payload=None, tag=b"t", settled=None, more=False, state=None, rcv=None, form=0, id=True,
        resume=None,
    ):
        rcv = None if rcv is None else frames.Ubyte(rcv)
        self.send(frames.performative(
            TRANSFER, handle, number if id else None, tag, form, settled, more, rcv, state, resume,
            payload=frames.data(b"x") if payload is None else payload,
        ))

    def dispose(self, first, state, settled=True, last=None):
        self.send(frames.performative(DISPOSITION, RECEIVER, first, last, settled, state))

    def detach(self, handle, closed=True):
        self.send(frames.performative(DETACH, handle, closed))

    def coordinator(self, handle=9):
        """A link to the coordinator, with credit."""
        source = (SOURCE, None)
        self.attach(SENDER, None, handle, source=source, target=(COORDINATOR, None))
        self.next(FLOW)
        self.control = handle

    def declare(self, number):
        value = b"\x00\x53\x77" + frames.encoded((DECLARE, None))
        self.transfer(self.control, number, value)
        return self.outcome(DECLARED)[0]

    def discharge(self, number, txn, fail=False):
        self.transfer(self.control, number, b"\x00\x53\x77" + frames.encoded((DISCHARGE, txn, fail)))

    def outcome(self, code=None):
        """The state of the next disposition, which is of that kind; its descriptor and fields where none is named."""
        state = self.next(DISPOSITION)[4]
        if code is None:
            return state
        assert state[0] == code, state
        return state[1]

    def refused(self, code=DETACH):
        """Condition, description and info of the error in the next detach, end or close."""
        fields = self.next(code)
        error = listed(fields, 2 if code == DETACH else 0)
        return error_of(error)


def error_of(error):
    assert error and error[0] == ERROR, error
    return error[1][0], listed(error[1], 1), listed(error[1], 2) or {}
