"""A transit engine that lies. It is the stand-in of tests/e2e/transit.py with its keys, and answers as `way` has it
once one is set; `test_hostile_servers.py` has users' messages wait for it while others are served."""

import base64
import os
import socket
import threading
from contextlib import suppress

import transit

# Between two bytes of an answer that never ends, seconds, and bytes of a piece of one that is too long.
DRIP_EVERY, PIECE = 0.2, b"10000\r\n" + bytes(1 << 16) + b"\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Liar(transit.StandIn):
    """Answers well until `lies` is called."""

    def __init__(self, certificate, key):
        super().__init__(certificate, key)
        self.way, self.asked, self.over = None, 0, threading.Event()
        self.elsewhere, self.came = elsewhere()
        handler, liar = self.server.RequestHandlerClass, self
        well = handler.answer

        def answer(request):
            liar.asked += 1
            way = liar.way
            if way is None or way == liar.others_bytes:
                return well(request)
            request.rfile.read(int(request.headers.get("Content-Length") or 0))
            request.close_connection = True
            # Who has heard enough hangs up.
            with suppress(OSError):
                way(request.connection)

        handler.do_GET = handler.do_POST = handler.do_PUT = answer

    def lies(self, way):
        """From now on; None for an end of it."""
        over, self.over = self.over, threading.Event()
        self.way = way
        over.set()

    def ways(self):
        return [self.silent, self.drips, self.garbage, self.endless, self.huge, self.redirects, self.others_bytes]

    # Each says something on a connection on which it was asked for something.

    def silent(self, connection):
        self.over.wait()

    def drips(self, connection):
        over = self.over
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        while not over.wait(DRIP_EVERY):
            connection.sendall(b" ")

    def garbage(self, connection):
        connection.sendall(os.urandom(4096))

    def endless(self, connection):
        over = self.over
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while not over.is_set():
            connection.sendall(PIECE)

    def huge(self, connection):
        over = self.over
        connection.sendall(HEAD + b"Content-Length: 1000000000000\r\n\r\n")
        while not over.is_set():
            connection.sendall(PIECE)

    def redirects(self, connection):
        where = f"https://localhost:{self.elsewhere.getsockname()[1]}/v1/"
        connection.sendall(f"HTTP/1.1 307 Go\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode())

    def others_bytes(self, connection):
        """Results of the right form that are none of the key's: see `sign` and `decrypt`."""

    def sign(self, versions, rest, body, item):
        said = super().sign(versions, rest, body, item)
        if self.way == self.others_bytes:
            head, length = said["signature"].rsplit(":", 1)[0], len(base64.b64decode(said["signature"].rsplit(":", 1)[1]))
            said["signature"] = f"{head}:{base64.b64encode(os.urandom(length)).decode()}"
        return said

    def decrypt(self, versions, rest, body, item):
        said = super().decrypt(versions, rest, body, item)
        if self.way == self.others_bytes and "error" not in said:
            said["plaintext"] = base64.b64encode(os.urandom(len(base64.b64decode(said["plaintext"])))).decode()
        return said


def elsewhere():
    """A listener to which requests are redirected, and the connections that came."""
    came, listener = [], socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            try:
                connection, address = listener.accept()
            except OSError:
                return
            came.append(address)
            connection.close()

    threading.Thread(target=accept, daemon=True).start()
    return listener, came
