"""SASL frame by frame (AMQP part 5, section 5.3): for mechanisms and answers that no client library speaks."""

import socket
import ssl
import struct

from proton import Data, Described, symbol, ulong

HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
ATTACH, DETACH = 0x12, 0x16
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
OK, REFUSED = 0, 1
DEADLINE = 30


class Dialogue:
    """A connection on which the server has said what it offers."""

    def __init__(self, manager, tls=False, source="127.0.0.1"):
        port = manager.ports["amqps" if tls else "amqp"]
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE, source_address=(source, 0))
        if tls:
            context = ssl.create_default_context(cafile=str(manager.ca))
            self.stream = context.wrap_socket(self.stream, server_hostname="localhost")
        self.stream.sendall(HEADER)
        assert self._read(len(HEADER)) == HEADER
        code, fields = self._frame()
        assert code == MECHANISMS
        offered = fields[0]
        self.mechanisms = [str(name) for name in (getattr(offered, "elements", None) or [offered])]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def init(self, mechanism, response):
        """Chooses; what the server says to that, as `answer` gives it."""
        self._send(INIT, [symbol(mechanism), response])
        return self.answer()

    def respond(self, response):
        self._send(RESPONSE, [response])
        return self.answer()

    def answer(self):
        """(CHALLENGE, bytes) or (OUTCOME, code)."""
        code, fields = self._frame()
        assert code in (CHALLENGE, OUTCOME), code
        return code, fields[0] if code == CHALLENGE else int(fields[0])

    def _send(self, code, fields):
        data = Data()
        data.put_object(Described(ulong(code), fields))
        body = data.encode()
        self.stream.sendall(struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body)

    def perform(self, code, fields):
        """Sends a performative of AMQP, behind its header."""
        data = Data()
        data.put_object(Described(ulong(code), fields))
        body = data.encode()
        self.stream.sendall(struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body)

    def reason_of_detach(self):
        """Reads until the server has attached the link, or refused it: with which reason, or none."""
        assert self._read(len(AMQP_HEADER)) == AMQP_HEADER
        while True:
            code, fields = self._frame(0)
            terminus = fields[5:7] if code == ATTACH else []
            if len(terminus) == 2 and all(terminus):
                return None
            if code == DETACH:
                return int(fields[2].value[2][symbol("reason")])

    def _frame(self, wanted=1):
        size, offset, kind, _ = struct.unpack(">IBBH", self._read(8))
        assert (offset, kind) == (2, wanted), "a frame of that kind"
        data = Data()
        data.decode(self._read(size - 8))
        data.next()
        described = data.get_object()
        # Binary is a view of what goes with `data`.
        fields = [bytes(field) if isinstance(field, memoryview) else field for field in described.value]
        return int(described.descriptor), fields

    def _read(self, count):
        read = b""
        while len(read) < count:
            more = self.stream.recv(count - len(read))
            assert more, "the server closed the connection"
            read += more
        return read


def plain(manager, user, password, **place):
    """The outcome of PLAIN."""
    with Dialogue(manager, **place) as dialogue:
        code, outcome = dialogue.init("PLAIN", b"\0" + user.encode() + b"\0" + password.encode())
        assert code == OUTCOME
        return outcome
