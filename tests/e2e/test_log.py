"""The log on standard error, and a reader of it that does not read."""

import fcntl
import json
import subprocess

from proton import Message

from manager import BULLA, DEADLINE, Manager, wait_until
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


def test_lines_are_json_where_that_is_asked_for_and_say_what_they_are_about(tmp_path):
    qm = Manager(tmp_path / "qm", options=("--log", "json"))
    try:
        qm.mqsc("ALTER QMGR PERFMEV(ENABLED)\nDEFINE QLOCAL(SHALLOW) MAXDEPTH(1)")
        with qm.connect(timeout=10) as client:
            client.put("SHALLOW", Message(body=b""))
        qm.says("SHALLOW is full")
    finally:
        assert qm.stop() == 0
    lines = [json.loads(line) for line in qm.log]
    assert all({"time", "level", "message"} <= line.keys() for line in lines), lines
    [full] = [line for line in lines if line["message"].startswith("SHALLOW is full")]
    assert (full["level"], full["queue"], full["depth"]) == ("note", "SHALLOW", 1)


def test_lines_below_the_level_are_not_written(tmp_path):
    for level, ends in (("note", " note stopping\n"), ("alarm", "")):
        start = [BULLA, "start", "--data", tmp_path / level, "--amqp", "none", "--amqps", "none", "--log-level", level]
        process = subprocess.Popen(start, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until((tmp_path / level / "admin.sock").exists, "the queue manager has started")
        process.terminate()
        _, log = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0 and log.endswith(ends) and bool(log) == bool(ends), (level, log)


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
