"""`bulla init`: from one file to a protected message between two users over TLS, by what it prints, unchanged."""

import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from manager import BULLA, DEADLINE, Manager, run, wait_until
from pki import openssl
from proton import Message

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests/clients"
SITE = """\
organisation = "Demo"
[listen]
amqp = "none"
amqps = "127.0.0.1:{amqps}"
https = "127.0.0.1:{https}"
[users]
orders = {{}}
billing = {{}}
[queues.ORDERS]
put = ["orders"]
get = ["billing"]
"""
SAID = "two tons of barley"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def example(printed, heading):
    """The block to paste below a heading."""
    section = printed.split(f"## {heading}\n")[1].split("\n## ")[0]
    [block] = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return block


def shell(script, folder, timeout=180):
    environment = os.environ | {"PATH": f"{Path(BULLA).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Site:
    """A folder with a file, the queue manager that `bulla init` made of it, and what it printed."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "site.toml").write_text(SITE.format(amqps=free_port(), https=free_port()))
        self.printed = shell("bulla init --file site.toml 'my data'", folder)
        self.data = folder / "my data"
        self.process = None

    def start(self):
        """By the command that it printed."""
        [command] = re.findall(r"^```sh\n(bulla start .*)\n```$", self.printed, re.MULTILINE)
        command = command.replace("bulla", str(BULLA), 1)
        log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=self.folder, stderr=log)
        wait_until(lambda: "https on" in (self.folder / "log").read_text(), "it has started")

    def mqsc(self, text):
        done = run("mqsc", "--data", self.data, "-c", text)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("init"))
    site.start()
    yield site
    site.process.send_signal(signal.SIGTERM)
    assert site.process.wait(DEADLINE) == 0


HEADINGS = {
    "bulla": "bulla",
    "proton": "Python: python-qpid-proton",
    "jms": "Java: Qpid JMS",
    "rhea": "Node.js: rhea",
    "go-amqp": "Go: go-amqp",
}


@pytest.mark.parametrize("client", HEADINGS)
def test_a_client_puts_and_gets_a_protected_message_by_what_is_printed_unchanged(site, client, tmp_path):
    if client == "jms":
        shutil.copytree(CLIENTS / "jms/target/dependency", tmp_path / "lib")
    if client == "rhea":
        (tmp_path / "node_modules").symlink_to(CLIENTS / "rhea/node_modules")
    if client == "go-amqp":
        for name in ("go.mod", "go.sum"):
            shutil.copy(CLIENTS / "go-amqp" / name, tmp_path)
    assert shell(example(site.printed, HEADINGS[client]), tmp_path).strip() == SAID
    wait_until(lambda: "CURDEPTH(0)" in site.mqsc("DISPLAY QLOCAL(ORDERS) CURDEPTH"), "the message is gone")


def test_what_lies_on_the_queue_is_sealed_and_other_users_do_not_read_it(site, tmp_path):
    put, get = example(site.printed, "bulla").splitlines()
    shell(put, tmp_path)
    site.mqsc("DEFINE QALIAS(RAW) TARGET(ORDERS); SET AUTHREC PROFILE(RAW) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(BROWSE)")
    raw = shell(get.replace("ORDERS", "RAW") + " --browse | base64", tmp_path)
    assert SAID not in subprocess.run(["base64", "-d"], input=raw, capture_output=True, text=True, errors="replace").stdout
    as_orders = get.replace("--user billing", "--user orders").replace("billing.password", "orders.password")
    refused = subprocess.run(["bash", "-c", as_orders.replace("bulla", str(BULLA), 1)], capture_output=True, text=True)
    assert refused.returncode == 4 and "2035" in refused.stderr, refused.stderr
    assert shell(get, tmp_path).strip() == SAID


def test_the_administrator_gives_commands_over_https(site):
    https = re.search(r"--https 127.0.0.1:(\d+)", site.printed)[1]
    password = (site.data / "clients/admin.password").read_text().strip()
    name = re.match(r"# (\S+)", site.printed)[1]
    answer = subprocess.run(
        ["curl", "--silent", "--show-error", "--cacert", site.data / "clients/ca.pem", "--user", f"admin:{password}",
         "--header", "ibm-mq-rest-csrf-token: x", "--header", "Content-Type: text/plain", "--data", "DISPLAY QLOCAL(ORDERS)",
         f"https://localhost:{https}/ibmmq/rest/v2/admin/action/qmgr/{name}/mqsc"],
        capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert "QUEUE(ORDERS)" in answer.stdout, answer.stdout + answer.stderr


def test_keytool_lists_the_authority_that_java_is_to_trust_and_openssl_reads_it(site):
    store = site.data / "clients/truststore.p12"
    listed = subprocess.run(
        ["keytool", "-list", "-keystore", store, "-storetype", "PKCS12", "-storepass", "any thing"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "trustedCertEntry" in listed.stdout, listed.stdout + listed.stderr
    shown = openssl("pkcs12", "-in", store, "-nokeys", "-nomacver", "-passin", "pass:")
    assert (site.data / "clients/ca.pem").read_bytes() in shown


def test_run_again_it_prints_the_same_and_writes_nothing(site):
    def state():
        return {path: path.stat().st_mtime_ns for folder in ("rings", "tls", "clients", "authorities") for path in (site.data / folder).rglob("*")}  # fmt: skip

    before = state()
    assert shell("bulla init 'my data'", site.folder) == site.printed
    assert shell("bulla init --file site.toml 'my data'", site.folder) == site.printed
    assert state() == before


def test_killed_at_any_time_it_goes_on_where_it_stopped(tmp_path):
    (tmp_path / "site.toml").write_text(SITE.format(amqps=5671, https=9443))
    command = [BULLA, "init", "--file", "site.toml", "qm"]
    delay, stopped = 0.002, 0
    while True:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(delay)
        process.kill()
        process.communicate()
        data = tmp_path / "qm"
        if (data / "objects.mqsc").exists():
            break
        if (data / "init.toml").exists():
            stopped += 1
            refused = run("start", "--data", data)
            assert refused.returncode != 0 and b"`bulla init` was interrupted there" in refused.stderr, refused
        # Later each time: what was made stays, so it comes further each time, and ends.
        delay *= 1.5
    assert stopped > 0
    manager = Manager(data, grants=None)
    answer = run("mqsc", "--data", data, "-c", "DISPLAY POLICY(ORDERS)").stdout.decode()
    assert "CN=orders,O=Demo" in answer and "CN=billing,O=Demo" in answer
    passwords = {name: (data / f"clients/{name}.password").read_text().strip() for name in ("orders", "billing")}
    manager.passwords.update(passwords)
    with manager.connect("orders") as client:
        client.put("ORDERS", Message(SAID))
    with manager.connect("billing") as client:
        assert [message.body for message in client.get_all("ORDERS")] == [SAID]
    assert manager.stop() == 0


def test_questions_on_a_terminal_make_what_a_file_would(tmp_path):
    terminal, slave = pty.openpty()
    process = subprocess.Popen(
        [BULLA, "init", "qm"], cwd=tmp_path, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(slave)
    os.write(terminal, b"\n" * 8)
    printed, asked = process.communicate(timeout=DEADLINE)
    os.close(terminal)
    assert process.returncode == 0, asked
    assert "Organisation" in asked and "bulla start --data qm --https 127.0.0.1:9443" in printed
    definitions = (tmp_path / "qm/objects.mqsc").read_text()
    assert "SET POLICY('ORDERS')" in definitions and "CN=billing,O=Demo" in definitions


def test_without_a_file_and_a_terminal_it_says_what_to_do(tmp_path):
    refused = run("init", tmp_path / "qm")
    assert refused.returncode == 2, refused
    assert b"bulla: hint: `bulla init --example > site.toml`" in refused.stderr
    assert not (tmp_path / "qm").exists()


def test_a_mistake_is_answered_with_its_line_and_nothing_is_made(tmp_path):
    (tmp_path / "site.toml").write_text("[users]\norders = {}\n\n[queue.ORDERS]\n")
    refused = run("init", "--file", tmp_path / "site.toml", tmp_path / "qm")
    lines = refused.stderr.decode().splitlines()
    assert refused.returncode == 2 and lines[0] == f"bulla: error: {tmp_path}/site.toml:4: unknown key `queue`"
    assert lines[1].startswith("bulla: hint: expected one of ") and "`queues`" in lines[1]
    assert not (tmp_path / "qm").exists()
