"""A queue manager under test: one process, its data directory, and the command line that goes with it."""

import json
import os
import re
import secrets
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from proton_driver import Client

BULLA = os.environ.get("BULLA") or str(Path(__file__).parents[2] / "target/release/bulla")
# Nothing here takes longer unless it is broken (seconds).
DEADLINE = 30
ERROR_QUEUE = "SYSTEM.PROTECTION.ERROR.QUEUE"
# What tests of other things than authority allow: everybody everything, whoever has not signed in and channels included.
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)
SET AUTHREC PROFILE(**) OBJTYPE(CHANNEL) PRINCIPAL('*') AUTHADD(ALL)
"""
DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


def wait_until(condition, what, deadline=DEADLINE):
    """Asks again and again until the condition holds; the answer that did."""
    end = time.monotonic() + deadline
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"after {deadline} s still not so: {what}")
        threading.Event().wait(0.02)


class Manager:
    """Starts at once; `stop` and `kill` end the process, `start` starts it again on the same data. Nobody may do more than
    `grants` allows."""

    # Where it listens, and what its command line begins with: another machine is a network namespace.
    host, prefix = "127.0.0.1", ()

    def __init__(self, data, options=(), name=None, grants=GRANTS, amqp_port=0, amqps_port=0):
        self.data = Path(data)
        self.options = [str(option) for option in options]
        self.amqp_port, self.amqps_port = amqp_port, amqps_port
        # What `start` runs: another build may go on where this one stopped.
        self.program = BULLA
        # A data directory that is there has its name.
        self.name = name or ("BULLA" if not (self.data / "objects.mqsc").exists() else None)
        if self.name:
            self.options += ["--name", self.name]
        self.passwords = {}
        self.process = None
        self.log = []
        self.start()
        if grants:
            self.mqsc(grants)

    def start(self):
        self.process = subprocess.Popen(
            [*self.prefix, self.program, "start", "--data", self.data]
            + ["--amqp", f"{self.host}:{self.amqp_port}", "--amqps", f"{self.host}:{self.amqps_port}", *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.ports = {}
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read_log, args=(self.process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(DEADLINE) or len(self.ports) < 2:
            self.kill()
            raise AssertionError("the queue manager did not start:\n" + "".join(self.log[-20:]))

    def _read_log(self, process, ready):
        for line in process.stderr:
            self.log.append(line)
            found = re.search(r"\b(amqps?|https?|metrics) on \S+:(\d+)(?:$|\")", line.rstrip())
            if found:
                self.ports.setdefault(found[1], int(found[2]))
                if {"amqp", "amqps"} <= self.ports.keys():
                    ready.set()
        ready.set()

    def port(self, scheme):
        """Where it listens for that since its last start. The lines of HTTP and the metrics come behind AMQP's."""
        wait_until(lambda: scheme in self.ports, f"{scheme} is listened on")
        return self.ports[scheme]

    @property
    def metrics_url(self):
        return f"http://{self.host}:{self.port('metrics')}/metrics"

    def metrics(self):
        """What Prometheus would read now, of one that was started with `--metrics`."""
        with urllib.request.urlopen(self.metrics_url, timeout=DEADLINE) as answer:
            return answer.read().decode()

    def says(self, text):
        """Waits for a line of the log with that text: lines are written behind what they tell of."""
        wait_until(lambda: any(text in line for line in self.log), f"a line of the log with {text}")

    def stop(self):
        """Asks it to stop, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return code

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)

    @property
    def amqp(self):
        return f"amqp://127.0.0.1:{self.ports['amqp']}"

    @property
    def amqps(self):
        return f"amqps://localhost:{self.ports['amqps']}"

    @property
    def clear_address(self):
        return f"127.0.0.1:{self.ports['amqp']}"

    @property
    def ca(self):
        """The authority of the TLS listener's certificate."""
        return self.data / "tls/ca.pem"

    def run(self, *arguments, stdin=b"", code=0):
        """Runs the program; standard output as bytes. Any exit code but `code` fails the test; None takes all."""
        done = run(*arguments, stdin=stdin)
        if code is not None:
            assert done.returncode == code, (
                f"{arguments}: exit {done.returncode}: {done.stderr.decode()}{done.stdout.decode()}"
            )
        return done

    def mqsc(self, text, code=0):
        """Gives commands; what it answered as text."""
        done = self.run("mqsc", "--data", self.data, "-", stdin=text.encode(), code=code)
        return done.stdout.decode() + done.stderr.decode()

    def status(self, queue):
        """DISPLAY QSTATUS, as a dictionary."""
        done = self.run("mqsc", "--data", self.data, "--json", "-c", f"DISPLAY QSTATUS('{queue}')")
        return shown_rows(done.stdout)[0]

    def depth(self, queue):
        return self.status(queue)["CURDEPTH"]

    def wait_for_depth(self, queue, depth):
        wait_until(lambda: self.depth(queue) == depth, f"{queue} has {depth} messages, not {self.depth(queue)}")

    def add_user(self, name, rounds=4096):
        """Few rounds of PBKDF2, or the suite would spend its time on them; None for as many as users have."""
        self.passwords[name] = secrets.token_hex(8)
        count = () if rounds is None else ("--rounds", rounds)
        self.run("user", "add", name, *count, "--data", self.data, stdin=self.passwords[name].encode() + b"\n")

    def password_file(self, user):
        path = self.data / f"{user}.password"
        path.write_text(self.passwords[user] + "\n")
        return path

    def connect(self, user=None, timeout=DEADLINE, container=None):
        """A proton client: by PLAIN over TLS, or nobody in clear."""
        if user is None:
            return Client(self.amqp, timeout=timeout, container=container)
        return Client(self.amqps, user, self.passwords[user], self.ca, timeout=timeout, container=container)

    def cli(self, user):
        """Options of `bulla put`, `get` and `error` that sign in as the user."""
        return ["--amqp", self.clear_address, "--user", user, "--password-file", self.password_file(user)]

    def clear_error_queue(self):
        """Takes every message off the error queue, and returns them."""
        with self.connect() as client:
            self._all_errors(client)
            return client.get_all(ERROR_QUEUE)

    def errors(self):
        """The labels on the error queue, oldest first."""
        with self.connect() as client:
            return [label(message) for message in self._all_errors(client)]

    def _all_errors(self, client):
        """What lies on the error queue, once all of it can be got: what moves there has to be in the journal first."""
        found = []

        def is_whole():
            depth = self.depth(ERROR_QUEUE)
            found[:] = client.get_all(ERROR_QUEUE, browse=True)
            return len(found) >= depth

        wait_until(is_whole, "what lies on the error queue can be got")
        return found


def shown_rows(answer):
    """The rows of the first answer in JSON, by keyword as MQSC writes it; none where it has none."""
    return [{keyword.upper(): value for keyword, value in row.items()} for row in json.loads(answer)[0].get("objects", [])]


def run(*arguments, stdin=b""):
    command = [BULLA, *(str(argument) for argument in arguments)]
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def label(message):
    """What the error queue says about a message: annotations without their prefix."""
    prefix = "x-opt-bulla-"
    annotations = {str(key): value for key, value in (message.annotations or {}).items()}
    return {key.removeprefix(prefix): value for key, value in annotations.items() if key.startswith(prefix)}
