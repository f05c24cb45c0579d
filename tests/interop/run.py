#!/usr/bin/env python3
"""Suites that others wrote for AMQP 1.0 brokers, against a running Bulla.

    run.py [SUITE…]        fetches, runs, and writes a table; all suites without a name

Each suite is fetched by name and version from its ordinary registry into `.cache/interop`, and runs against a queue manager of
its own on port 5672 of a network namespace of its own, where the machine allows that (otherwise that port has to be free).
The exit code is 1 where a test fails that is not in the suite's list of known failures, or one in it passes.

BULLA names the program; docs/interoperability.md has the results and the reasons.
"""

import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache/interop"
CLIENTS = ROOT / ".cache/venv"
BULLA = os.environ.get("BULLA") or str(ROOT / "target/release/bulla")
PORT = 5672
# Of the package debian-archive-keyring, which every Debian machine has.
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# How this program calls itself, to run what is fetched: in a network of its own, or in the machine's.
ALONE, HERE_TOO = "--alone", "--here"
# Longer than any suite takes on a busy machine (seconds).
DEADLINE = 600
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)
SET AUTHREC PROFILE(SYSTEM.BASE.TOPIC) OBJTYPE(TOPIC) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(PUB, SUB)
"""


# What a package manager says when it does not reach its registry (mvn).
OUT_OF_REACH = re.compile(r"Could not transfer artifact|Unknown host|Connection (refused|timed out|reset)|Network is unreachable|Could not resolve host")


class NotHere(Exception):
    """The suite can't be had on this machine, and why."""

    @property
    def is_out_of_reach(self):
        """Whether it is the registry that is not reached, and nothing that is wrong here."""
        return bool(OUT_OF_REACH.search(str(self)))


def sh(*command, cwd=None, env=None, check=True):
    """Runs a command to its end; what it printed, errors included."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=DEADLINE,
    )
    if check and done.returncode != 0:
        raise NotHere(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stdout[-4000:]}")
    return done.stdout


class Manager:
    """A queue manager in a directory that goes with it."""

    ports = {"amqp": PORT}

    def __init__(self, definitions):
        self.folder = tempfile.TemporaryDirectory(prefix="bulla-interop-")
        self.data = Path(self.folder.name) / "data"
        self.process = subprocess.Popen(
            [BULLA, "start", "--data", self.data, "--amqp", f"127.0.0.1:{PORT}", "--amqps", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        ready = threading.Event()
        threading.Thread(target=self._read, args=(ready,), daemon=True).start()
        if not ready.wait(30) or self.process.poll() is not None:
            sys.exit("the queue manager did not start:\n" + "".join(self.log[-20:]))
        self.mqsc(GRANTS + definitions)

    def _read(self, ready):
        for line in self.process.stderr:
            self.log.append(line)
            if " amqps on " in line:
                ready.set()
        ready.set()

    def mqsc(self, text):
        done = subprocess.run([BULLA, "mqsc", "--data", self.data, "-"], input=text, text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"{text}\n{done.stdout}{done.stderr}")

    def stop(self):
        self.process.terminate()
        code = self.process.wait(60)
        self.folder.cleanup()
        if code != 0:
            sys.exit(f"the queue manager ended with {code}:\n" + "".join(self.log[-20:]))


class Suite:
    """What is fetched, what it needs to be defined, how it runs, and what is known to fail."""

    name = ""
    # What it is, and its version.
    title = ""
    definitions = ""
    # Test, or the beginning of its name with a `*`: why it fails.
    known = {}

    @property
    def folder(self):
        return CACHE / self.name

    def fetch(self):
        """Gets it, once."""

    def run(self, manager):
        """The results: test, None where it passed, why where it failed. What it needs of a manager is its data directory,
        `mqsc`, and for suites that can be told another port than the usual one `ports`."""

    def cause(self, test):
        for pattern, why in self.known.items():
            if test == pattern or pattern.endswith("*") and test.startswith(pattern[:-1]):
                return why
        return None


class ProtonExamples(Suite):
    name = "proton-examples"
    title = "Qpid Proton 0.37.0, python/examples/test_examples.py, with python-qpid-proton 0.40.0"
    definitions = "DEFINE QLOCAL('examples')"
    TORNADO = "tornado==6.5.2"

    @property
    def examples(self):
        return self.folder / "qpid-proton-0.37.0/python/examples"

    def fetch(self):
        if not (self.folder / "ready").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            debian_source("qpid-proton", self.folder)
            (tarball,) = self.folder.glob("qpid-proton_0.37.0.orig.tar.*")
            sh("tar", "xf", tarball, "-C", self.folder)
            sh(sys.executable, "-m", "venv", self.folder / "venv")
            sh(self.folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", self.TORNADO)
            (self.folder / "ready").touch()
        # The client library is the one that all tests use.
        (site,) = CLIENTS.glob("lib/python3*/site-packages")
        (own,) = self.folder.glob("venv/lib/python3*/site-packages")
        (own / "clients.pth").write_text(f"{site}\n")

    def run(self, manager):
        path = f"{self.folder}/venv/bin:{os.environ['PATH']}"
        for left in self.examples.glob("*_db"):
            left.unlink()
        command = [self.folder / "venv/bin/python", "-m", "unittest", "-v", "test_examples"]
        printed = sh(*command, cwd=self.examples, env={**os.environ, "PATH": path}, check=False)
        return python_results(printed)


class ProtonNative(Suite):
    """The tests start a `broker` that they find in the PATH, and ask it for its port: here a few words that name Bulla's."""

    name = "proton-native"
    title = "Qpid Proton 0.37.0, testme of c/examples and cpp/examples: the tests with a broker"
    PACKAGES = ["libqpid-proton11", "libqpid-proton11-dev", "libqpid-proton-cpp12", "libqpid-proton-cpp12-dev"]
    # Folder of the examples: compiler, library, programs, group of tests, tests.
    LANGUAGES = {
        "c": (
            ["gcc"], "qpid-proton", ["send", "receive", "send-abort", "send-ssl"], "ExampleTest",
            ["test_send_receive", "test_receive_send", "test_send_abort_broker", "test_send_ssl_receive"],
        ),
        "cpp": (
            ["g++", "-std=c++11"], "qpid-proton-cpp",
            ["helloworld", "simple_send", "simple_recv", "client", "server", "scheduled_send", "scheduled_send_03", "multithreaded_client"],
            "ContainerExampleTest",
            [
                "test_helloworld", "test_simple_send_recv", "test_simple_recv_send", "test_request_response", "test_scheduled_send",
                "test_scheduled_send_03", "test_multithreaded_client",
            ],
        ),
    }  # fmt: skip
    known = {
        "c test_send_abort_broker": "it reads `Message aborted` from what the broker of the examples prints",
        "c test_send_ssl_receive": "it speaks TLS to the port that takes clear connections, as the broker of the examples does; Bulla's TLS has a port of its own",
    }
    definitions = "\n".join(f"DEFINE QLOCAL('{name}')" for name in ("example", "examples", "examplescheduled_send", "xtest"))

    @property
    def source(self):
        return self.folder / "qpid-proton-0.37.0"

    def fetch(self):
        if (self.folder / "ready").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        debian_source("qpid-proton", self.folder)
        (tarball,) = self.folder.glob("qpid-proton_0.37.0.orig.tar.*")
        sh("tar", "xf", tarball, "-C", self.folder)
        # Unpacked beside the machine's own libraries, not installed.
        sh("apt-get", "--quiet", "download", *self.PACKAGES, cwd=self.folder)
        for package in self.folder.glob("*.deb"):
            sh("dpkg", "-x", package, self.folder / "unpacked")
        (library,) = (self.folder / "unpacked/usr/lib").glob("*-linux-gnu")
        for language, (compiler, name, programs, _, _) in self.LANGUAGES.items():
            programs_at = self.folder / "bin" / language
            programs_at.mkdir(parents=True)
            for program in programs:
                (source,) = (self.source / language / "examples").glob(f"{program}.c*")
                out = ["-o", programs_at / program, f"-I{self.folder / 'unpacked/usr/include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
                sh(*compiler, source, *out, f"-l{name}", "-pthread")
            broker = programs_at / "broker"
            broker.write_text(f"#!/bin/sh\necho listening on {PORT}\nexec sleep {DEADLINE}\n")
            broker.chmod(0o755)
        (self.folder / "ready").touch()

    def run(self, manager):
        (library,) = (self.folder / "unpacked/usr/lib").glob("*-linux-gnu")
        results = []
        for language, (_, _, _, group, tests) in self.LANGUAGES.items():
            path = f"{self.folder}/bin/{language}:{os.environ['PATH']}"
            env = {**os.environ, "PATH": path, "PYTHONPATH": str(self.source / "tests/py"), "LD_LIBRARY_PATH": str(library)}
            for test in tests:
                # With a limit, because a program that waits for ever would hold up the others.
                command = ["timeout", "--kill-after=5", "30", sys.executable, "testme", "-v", f"{group}.{test}"]
                printed = sh(*command, cwd=self.source / language / "examples", env=env, check=False)
                ((_, why),) = python_results(printed) or [(test, "it did not end")]
                results.append((f"{language} {test}", why))
        return results


class GoAmqp(Suite):
    name = "go-amqp"
    title = "go-amqp v1.7.0, integration_test.go"
    MODULE = "github.com/Azure/go-amqp@v1.7.0"
    QUEUES = 200
    FIXED = [
        "TestIntegrationLinkName", "TestIntegrationClose", "TestReceiverModeFirst", "TestReceiverModeFirstOther",
        "TestSenderExactlyOnce", "TestMultipleSendersSharedSession", "TestSenderNullValue", "thesource", "test", "TestConcurrentSessionsOpenClose",
    ]  # fmt: skip
    # It takes names with random numbers, spaces and commas, and expects a broker that makes a queue of whatever is named.
    NAMES = re.compile(r'fmt\.Sprintf\("[^"]*%d", (?:tt\.label, )?(?:rng\.Uint64|rand\.Int63)\(\)\)')

    @property
    def definitions(self):
        names = self.FIXED + [f"GO.{number}" for number in range(1, self.QUEUES + 1)]
        return "\n".join(f"DEFINE QLOCAL('{name}')" for name in names)

    def fetch(self):
        if (self.folder / "integration.test").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        found = json.loads(sh("go", "mod", "download", "-json", self.MODULE, cwd="/tmp"))
        shutil.copytree(found["Dir"], self.folder)
        sh("chmod", "-R", "u+w", self.folder)
        file = self.folder / "integration_test.go"
        text, names = self.NAMES.subn('fmt.Sprintf("GO.%d", defined.Add(1))', file.read_text())
        if names != 6:
            raise NotHere(f"{names} names of queues were found in {file}, not 6")
        file.write_text(text)
        (self.folder / "defined_test.go").write_text(
            'package amqp_test\n\nimport "sync/atomic"\n\n// The number of the last queue that a test has taken.\nvar defined atomic.Int64\n'
        )
        sh("go", "test", "-c", "-o", "integration.test", ".", cwd=self.folder)

    def run(self, manager):
        # Those that ask for a broker, which are those of this file.
        tests = re.findall(r"^func (Test\w+)", (self.folder / "integration_test.go").read_text(), re.M)
        env = {**os.environ, "AMQP_BROKER_ADDR": f"amqp://127.0.0.1:{PORT}"}
        pattern = "^(" + "|".join(tests) + ")$"
        command = ["./integration.test", "-test.v", "-test.timeout", "300s", "-test.run", pattern]
        printed = sh(*command, cwd=self.folder, env=env, check=False)
        (self.folder / "output").write_text(printed)
        return go_results(printed, tests)


class CloudEvents(Suite):
    name = "cloudevents"
    title = "CloudEvents SDK for Go v1.2.0 with pack.ag/amqp v0.11.0, the tests of its AMQP binding and transport"
    MODULE = "github.com/cloudevents/sdk-go@v1.2.0"
    PACKAGES = {"binding": "pkg/bindings/amqp", "transport": "pkg/cloudevents/transport/amqp"}
    definitions = "DEFINE QLOCAL('test')"

    def fetch(self):
        if (self.folder / "transport.test").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        found = json.loads(sh("go", "mod", "download", "-json", self.MODULE, cwd="/tmp"))
        shutil.copytree(found["Dir"], self.folder)
        sh("chmod", "-R", "u+w", self.folder)
        for name, package in self.PACKAGES.items():
            sh("go", "test", "-tags", "amqp", "-c", "-o", f"{name}.test", f"./{package}", cwd=self.folder)

    def run(self, manager):
        env = {**os.environ, "TEST_AMQP_URL": f"amqp://127.0.0.1:{manager.ports['amqp']}"}
        results = []
        for name, package in self.PACKAGES.items():
            (file,) = (self.folder / package).glob("*_test.go")
            tests = re.findall(r"^func (Test\w+)", file.read_text(), re.M)
            printed = sh(f"./{name}.test", "-test.v", "-test.timeout", "120s", cwd=self.folder, env=env, check=False)
            results += [(f"{name} {test}", why) for test, why in go_results(printed, tests)]
        return results


class Joram(Suite):
    name = "joram"
    title = "JORAM JMS tests 1.0 (JMS 1.1), with Qpid JMS 1.12.1"

    def fetch(self):
        sh("mvn", "--quiet", "--batch-mode", "package", cwd=HERE / "joram")

    def run(self, manager):
        target = HERE / "joram/target"
        (jar,) = target.glob("dependency/joram-jms-tests-*.jar")
        files = "\n".join(zipfile.ZipFile(jar).namelist())
        names = re.findall(r"org/objectweb/jtests/jms/conform/(\S+Test)\.class", files)
        printed = sh(
            "java",
            f"-Dbulla.url=amqp://127.0.0.1:{manager.ports['amqp']}",
            f"-Dbulla.program={BULLA}",
            f"-Dbulla.data={manager.data}",
            "-cp",
            f"{target}/interop-joram-0.jar:{target}/dependency/*",
            "RunJoram",
            *(name.replace("/", ".") for name in sorted(names)),
            check=False,
        )
        return lines_of_results(printed)


class JavaLibrary(Suite):
    """A library of the Java world with a small program of ours around it: there is no suite of its own."""

    program = ""
    queues = []

    @property
    def definitions(self):
        return "\n".join(f"DEFINE QLOCAL('{name}')" for name in self.queues)

    def fetch(self):
        sh("mvn", "--quiet", "--batch-mode", "package", cwd=HERE / "java")

    def run(self, manager):
        target = HERE / "java/target"
        paths = f"{target}/interop-java-0.jar:{target}/dependency/*"
        return lines_of_results(sh("java", f"-Dbulla.url=amqp://127.0.0.1:{PORT}", "-cp", paths, self.program, check=False))


class SpringJms(JavaLibrary):
    name = "spring-jms"
    title = "Spring JMS 6.2.1 with Qpid JMS 2.6.1, in a program of ours"
    program = "SpringJms"
    queues = [f"spring.{name}" for name in "convert select browse qos ask concurrent again simple unit".split()]


class CamelAmqp(JavaLibrary):
    name = "camel-amqp"
    title = "Apache Camel 4.14.0 (camel-amqp) with Qpid JMS 2.6.1, in a program of ours"
    program = "CamelAmqp"
    queues = [f"camel.{name}" for name in "first second headers ask fixed answers select again concurrent".split()]


class NodeAmqp10(Suite):
    name = "node-amqp10"
    title = "amqp10 3.6.0 (Node.js), test/integration/qpid"
    EXCHANGE = "it asks for qpidd's exchange amq.topic, where here is a queue"
    known = {
        "Client should be able to create multiple receivers for same link": EXCHANGE + ": each of two readers is to get the message",
        "ReceiverLink should refresh link after settling with `release` outcome": EXCHANGE + ": a released message comes again, before the next one",
        "ReceiverLink should allow the definition of a default subject": EXCHANGE + ": the reader of another subject gets the message",
        "SenderLink should allow the definition of a default subject": EXCHANGE + ": the reader of another subject gets the message",
        "SenderLink should merge default subject if sent message is raw": EXCHANGE + ": the reader of another subject gets the message",
        "Client Messages should send and receive properties sections": "the message says that it expired in 1970, and is not delivered",
        "Client Messages should send and receive header sections": "the delivery count, 0, is said, where qpidd leaves out what is the default",
        "Client Messages should send and receive footer sections": "the client writes the footer before the body, which is no AMQP message: 2026",
        "Streams Both should allow you to stream from sender to receiver": "the client counts its outgoing window (100) down with each of 200 transfers and never up, and can't write -100",
        "Disposition should auto-settle messages received from queue": "it asks qpidd's own management (QMF) how the queue stands",
        "Disposition should allow for manual disposition of received messages": "it asks qpidd's own management (QMF) how the queue stands",
    }
    QUEUES = ["amq.topic", "test.disposition.queue", "test.streams.queue"]

    @property
    def definitions(self):
        return "\n".join(f"DEFINE QLOCAL('{name}') REPLACE" for name in self.QUEUES)

    def fetch(self):
        if (self.folder / "ready").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        sh("npm", "pack", "--silent", "amqp10@3.6.0", cwd=self.folder)
        sh("tar", "xzf", "amqp10-3.6.0.tgz", cwd=self.folder)
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        sh("npm", "install", "--legacy-peer-deps", "--ignore-scripts", *quiet, cwd=self.folder / "package")
        (self.folder / "ready").touch()

    def run(self, manager):
        package = self.folder / "package"
        mocha = [package / "node_modules/.bin/mocha", "--timeout", "4000", "--reporter", "json"]
        listed = [test["fullTitle"] for test in mocha_tests(sh(*mocha, "--grep", "", "test/integration/qpid", cwd=package, check=False))]
        results = []
        # Each by itself on empty queues: what one leaves behind would be the next one's.
        for title in listed:
            manager.mqsc("\n".join(f"DELETE QLOCAL('{name}') PURGE\nDEFINE QLOCAL('{name}')" for name in self.QUEUES))
            printed = sh(*mocha, "--grep", f"^{re.escape(title)}$", "test/integration/qpid", cwd=package, check=False)
            (test,) = [test for test in mocha_tests(printed) if test["fullTitle"] == title] or [{"err": {"message": "no result"}}]
            results.append((title.removeprefix("QPID "), test["err"].get("message") if test["err"] else None))
        return results


SUITES = [suite() for suite in (ProtonExamples, ProtonNative, GoAmqp, CloudEvents, Joram, SpringJms, CamelAmqp, NodeAmqp10)]


def debian_source(package, folder):
    """The sources of a Debian package, by apt's own client and from where the machine's packages come from."""
    if not shutil.which("apt-get"):
        raise NotHere("the sources are a Debian package's, and there is no apt-get")
    form = "$(ORIGIN)|$(COMPONENT)|$(SITE)|$(CODENAME)"
    lines = [line.split("|") for line in sh("apt-get", "indextargets", "--format", form, "Identifier: Packages").splitlines()]
    found = [line for line in lines if line[:2] == ["Debian", "main"] and "-" not in line[3]]
    if not found:
        raise NotHere("the machine has no Debian packages (apt-get update)")
    _, component, site, codename = found[0]
    lists, sources = folder / "lists", folder / "debian.sources"
    lists.mkdir()
    sources.write_text(f"Types: deb-src\nURIs: {site}\nSuites: {codename}\nComponents: {component}\nSigned-By: {KEYS}\n")
    options = ["-o", "Dir::Etc::sourceparts=/dev/null", "-o", f"Dir::Etc::sourcelist={sources}", "-o", f"Dir::State::lists={lists}"]
    sh("apt-get", *options, "--quiet", "update")
    sh("apt-get", *options, "--quiet", "--download-only", "--tar-only", "source", package, cwd=folder)
    shutil.rmtree(lists)


def python_results(printed):
    """What `python -m unittest -v` says."""
    results = []
    # Warnings may stand between a test's name and its verdict.
    _, *parts = re.split(r"^(\w+) \([\w.]+\)(?:\n[^\n]*)? \.\.\. ", printed, flags=re.M)
    for test, rest in zip(parts[::2], parts[1::2], strict=True):
        verdict = re.search(r"^(ok|FAIL|ERROR|skipped .*)$", rest, re.M)
        found = re.search(rf"^(?:FAIL|ERROR): {test} .*?\n-+\n(.*?)(?=^=====|^-----|\Z)", printed, re.M | re.S)
        why = found[1].strip().splitlines() if found else [verdict[1] if verdict else "no verdict"]
        results.append((test, None if verdict and verdict[1] == "ok" else " ".join(why[-6:])))
    return results


def go_results(printed, tests):
    """What `-test.v` says, of the tests that were to run: each by itself, and none for a group of them."""
    results, said = {}, []
    for line in printed.splitlines():
        found = re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+)", line)
        if found:
            results[found[2]] = None if found[1] == "PASS" else " ".join(said[-12:]) or found[1]
            said = []
        elif not line.startswith("=== "):
            said.append(line.strip())
    # A test that ends the program leaves no line.
    for test in tests:
        results.setdefault(test, "it did not end: " + " ".join(said[-12:]))
    # A group's verdict is its tests'.
    groups = {test.rsplit("/", 1)[0] for test in results if "/" in test}
    return [(test, why) for test, why in results.items() if test not in groups]


def lines_of_results(printed):
    """`pass TEST` and `fail TEST WHY`, among other lines."""
    lines = [line.split(" ", 2) for line in printed.splitlines() if line.startswith(("pass ", "fail "))]
    return [(line[1], None if line[0] == "pass" else " ".join(line[2:]) or "no reason") for line in lines]


def mocha_tests(printed):
    """The tests in the JSON that mocha ends with; other words stand before and between."""
    start = printed.find('{\n  "stats"')
    if start < 0:
        return []
    return json.JSONDecoder().raw_decode(printed[start:])[0]["tests"]


def loopback_up():
    """The loopback interface of a new namespace is down (SIOCSIFFLAGS; IFF_UP and IFF_RUNNING)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


def run(suite):
    """Runs a suite; the row for it, the lines for its failures, and whether all is as known."""
    began = time.monotonic()
    manager = Manager(suite.definitions)
    try:
        results = suite.run(manager)
    finally:
        manager.stop()
    if not results:
        sys.exit(f"{suite.name}: it ran no test")
    failed = [(test, why) for test, why in results if why is not None]
    as_known, lines = True, []
    for test, why in failed:
        cause = suite.cause(test)
        as_known &= cause is not None
        lines.append(f"- `{test}`: {cause or 'NEW: ' + why[:600]}")
    for pattern in suite.known:
        hit = [test for test, _ in failed if suite.cause(test) == suite.known[pattern]]
        if not hit:
            as_known = False
            lines.append(f"- `{pattern}` is known to fail, and passes: take it off the list")
    row = f"| {suite.name} | {suite.title} | {len(results)} | {len(results) - len(failed)} | {len(failed)} | {time.monotonic() - began:.0f} |"
    return row, lines, as_known


def main():
    mode = sys.argv[1] if sys.argv[1:2] in ([ALONE], [HERE_TOO]) else None
    names = sys.argv[2:] if mode else sys.argv[1:]
    chosen = [suite for suite in SUITES if suite.name in names or not names]
    unknown = set(names) - {suite.name for suite in SUITES}
    if unknown or not chosen:
        sys.exit(f"no such suite: {' '.join(unknown)}; there are {' '.join(suite.name for suite in SUITES)}")
    if mode is None:
        CACHE.mkdir(parents=True, exist_ok=True)
        fetched, missing = [], []
        for suite in chosen:
            print(f"fetching {suite.name}: {suite.title}", file=sys.stderr, flush=True)
            try:
                suite.fetch()
                fetched.append(suite.name)
            except (NotHere, OSError) as error:
                missing.append(f"{suite.name} could not be had: {error}")
        own_network = ["unshare", "--net", "--map-root-user"]
        if subprocess.run([*own_network, "true"], capture_output=True).returncode == 0:
            command = [*own_network, sys.executable, __file__, ALONE, *fetched]
        else:
            command = [sys.executable, __file__, HERE_TOO, *fetched]
        code = subprocess.run(command).returncode if fetched else 0
        for line in missing:
            print(line, file=sys.stderr)
        sys.exit(code or bool(missing))
    if mode == ALONE:
        loopback_up()
    table = ["| suite | what | tests | pass | fail | seconds |", "| --- | --- | --- | --- | --- | --- |"]
    failures, as_known = [], True
    for suite in chosen:
        print(f"running {suite.name}", file=sys.stderr, flush=True)
        row, lines, good = run(suite)
        table.append(row)
        failures += [f"\n{suite.name}:\n", *lines] if lines else []
        as_known &= good
    text = "\n".join([*table, *failures, ""])
    (CACHE / "table.md").write_text(text)
    print(text)
    sys.exit(not as_known)


if __name__ == "__main__":
    main()
