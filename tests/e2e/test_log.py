"""The log on standard error, and a reader of it that does not read."""

import fcntl
import subprocess

from proton import Message

from manager import Manager
from proton_driver import Refused

# The smallest pipe that there is, in bytes, and refusals whose lines are many times as long.
PIPE_BYTES = 4096
REFUSALS = 200


class Unread(Manager):
    """Its log is not read once it has started, and the pipe is small."""

    def _read_log(self, process, ready):
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        for line in process.stderr:
            self.log.append(line)
            found = line.rstrip().rpartition(" on ")
            if found[0].endswith((" amqp", " amqps")):
                self.ports[found[0].rpartition(" ")[2]] = int(found[2].rpartition(":")[2])
                if len(self.ports) == 2:
                    ready.set()
                    return


def test_a_reader_of_the_log_that_stops_reading_does_not_stop_the_queue_manager(tmp_path):
    qm = Unread(tmp_path / "qm")
    try:
        qm.mqsc("DEFINE QLOCAL(Q)")
        with qm.connect(timeout=10) as client:
            for number in range(REFUSALS):
                try:
                    # Each is a line in the log: there is no such channel.
                    client.put(f"NO.CHANNEL.{number}::Q", Message(body=b""))
                except Refused as refused:
                    assert refused.reason == 2540
            client.put("Q", Message(body=b"goes on"))
        assert qm.depth("Q") == 1
    finally:
        if qm.process.poll() is None:
            qm.process.terminate()
            try:
                assert qm.process.wait(20) == 0
            except subprocess.TimeoutExpired:
                qm.process.kill()
                raise
