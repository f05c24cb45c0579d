"""A network between two queue managers that fails on command: loopback only, one thread for each direction of a connection.

`OUT` is from whoever connects to the target, `BACK` the other way. Faults come at once, or at an exact byte: `at` lets so many
more bytes of a direction pass and then does something before the next one does, in the middle of a frame as likely as not.
"""

import socket
import struct
import threading

from manager import DEADLINE

OUT, BACK = "out", "back"
# Most bytes that pass in one piece.
PIECE_BYTES = 16384


class Proxy:
    """`port` is where it listens, `target` a function that says to which port it connects: that changes with a restart, and is
    none while there is nothing to connect to."""

    def __init__(self, target):
        self.target = target
        self.changed = threading.Condition()
        self.links = set()
        self.passed = {OUT: 0, BACK: 0}
        self.waiting = {OUT: 0, BACK: 0}  # bytes that arrived and do not pass
        self.held = set()
        self.points = {OUT: [], BACK: []}  # (bytes passed, what to do), soonest first
        self.striking = 0  # faults whose point has come and that are not done
        self.refusing = False
        self.pace = None
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    # ---- faults

    def cut(self):
        """Every connection ends with a reset, and what was under way is gone."""
        with self.changed:
            links, self.links = self.links, set()
            self.changed.notify_all()
        for link in links:
            link.reset()

    def refuse(self):
        """Nobody gets through any more, until `heal`."""
        with self.changed:
            self.refusing = True
        self.cut()

    def hold(self, *directions):
        """From the next byte on, nothing of these directions passes."""
        with self.changed:
            self.held |= set(directions)

    def release(self, *directions):
        """What was held passes, and what comes after it."""
        with self.changed:
            self.held -= set(directions or (OUT, BACK))
            self.changed.notify_all()

    def slow(self, piece_bytes, seconds):
        """Bytes pass in such pieces, with a pause between them, until `heal`."""
        with self.changed:
            self.pace = piece_bytes, seconds

    def half_close(self, direction):
        """One direction of every connection ends in order, the other goes on."""
        with self.changed:
            links = list(self.links)
        for link in links:
            link.end(direction)

    def at(self, direction, after, fault):
        """Once `after` more bytes of the direction have passed, does `fault` before another one does."""
        with self.changed:
            self.points[direction].append((self.passed[direction] + after, fault))
            self.points[direction].sort(key=lambda point: point[0])

    def heal(self):
        """No fault any more, and none to come: one whose point has come already is waited for."""
        with self.changed:
            self.points = {OUT: [], BACK: []}
            done = self.changed.wait_for(lambda: not self.striking, DEADLINE)
            assert done, f"after {DEADLINE} s a fault is not done"
            self.refusing = False
            self.held = set()
            self.pace = None
            self.changed.notify_all()

    def close(self):
        self.listener.close()
        self.refuse()

    # ---- what goes on

    def wait_until(self, condition, what, deadline=DEADLINE):
        """Until the condition holds, which is looked at whenever bytes come or pass."""
        with self.changed:
            assert self.changed.wait_for(condition, deadline), f"after {deadline} s still not so: {what}"

    def wait_for_bytes(self, direction, count):
        self.wait_until(lambda: self.passed[direction] >= count, f"{count} bytes have passed {direction}")

    def wait_for_held_bytes(self, direction, count=1):
        self.wait_until(lambda: self.waiting[direction] >= count, f"{count} bytes wait to go {direction}")

    # ---- below the surface

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                port = self.target()
                if self.refusing or port is None:
                    raise ConnectionRefusedError
                far = socket.create_connection(("127.0.0.1", port), DEADLINE)
                far.settimeout(None)
            except OSError:
                _reset(near)
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(near, far)
            with self.changed:
                self.links.add(link)
                self.connections += 1
                self.changed.notify_all()
            for direction in (OUT, BACK):
                threading.Thread(target=self._pump, args=(link, direction), daemon=True).start()

    def _pump(self, link, direction):
        source, sink = (link.near, link.far) if direction == OUT else (link.far, link.near)
        ended = False
        while not ended:
            try:
                data = source.recv(PIECE_BYTES)
            except OSError:
                break
            ended = not data
            while data and not link.gone:
                data = self._pass(link, direction, sink, data)
            if ended and self._may_pass(link, direction):
                link.end(direction)
        if not ended or link.gone:
            # The source is gone without a word, and the sink hears of it in the same way.
            link.reset()
        if ended and not link.ended >= {OUT, BACK}:
            return
        with self.changed:
            self.links.discard(link)

    def _pass(self, link, direction, sink, data):
        """Passes bytes until the next fault is due, and returns the rest."""
        with self.changed:
            self.waiting[direction] += len(data)
            self.changed.notify_all()
        allowed = self._may_pass(link, direction)
        fault = None
        with self.changed:
            self.waiting[direction] -= len(data)
            if not allowed:
                return b""
            points = self.points[direction]
            room = max(points[0][0] - self.passed[direction], 0) if points else len(data)
            if self.pace:
                piece_bytes, seconds = self.pace
                room = min(room, piece_bytes)
                self.changed.wait_for(lambda: link.gone or not self.pace, seconds)
            now, rest = data[:room], data[room:]
            if points and self.passed[direction] + len(now) >= points[0][0]:
                fault = points.pop(0)[1]
                self.striking += 1
        try:
            if not self._sent(link, direction, sink, now):
                return b""
            if fault:
                fault()
            return rest
        finally:
            if fault:
                with self.changed:
                    self.striking -= 1
                    self.changed.notify_all()

    def _sent(self, link, direction, sink, data):
        try:
            sink.sendall(data)
        except OSError:
            link.reset()
            return False
        with self.changed:
            self.passed[direction] += len(data)
            self.changed.notify_all()
        return True

    def _may_pass(self, link, direction):
        """Waits while the direction is held; whether the connection is still there then."""
        with self.changed:
            self.changed.wait_for(lambda: direction not in self.held or link.gone)
            return not link.gone


class Link:
    """A connection: `near` is of whoever connected, `far` of the target."""

    def __init__(self, near, far):
        self.near, self.far = near, far
        self.gone = False
        self.ended = set()

    def end(self, direction):
        self.ended.add(direction)
        sink = self.far if direction == OUT else self.near
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def reset(self):
        self.gone = True
        for end in (self.near, self.far):
            _reset(end)


def _reset(end):
    try:
        # Closed with a linger of no time, a connection ends with a reset.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
