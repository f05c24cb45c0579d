"""Servers of the engine that keeps the logs of shared groups: real ones, on loopback, with ports of their own."""

import json
import os
import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from manager import DEADLINE, wait_until
from proxy import Proxy

# Of each group's log.
LOG_BYTES = 256 << 20
INSTALLED = Path(__file__).parents[2] / ".cache/nats/nats-server"


def program():
    """`BULLA_NATS_SERVER`, what `make test` installs, or the one in PATH."""
    found = os.environ.get("BULLA_NATS_SERVER") or (INSTALLED if INSTALLED.exists() else shutil.which("nats-server"))
    if not found:
        pytest.fail("no nats-server: `make nats-server` installs it, or BULLA_NATS_SERVER names it")
    return str(found)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Engine:
    """A cluster of servers."""

    def __init__(self, folder, servers=3, log_bytes=LOG_BYTES, tls="", can_be_cut=False):
        """`tls` is a part of the configuration: who wants a certificate of clients, and shows which. Servers that can
        be cut off from one another have a proxy between each two, for each direction."""
        self.tls = tls
        self.ways = {}
        self.log_bytes = log_bytes
        self.folder = Path(folder)
        ports = free_ports(3 * servers)
        self.clients, self.routes, self.monitors = (ports[at::3] for at in range(3))
        self.processes = [None] * servers
        if can_be_cut:
            pairs = [(one, other) for one in range(servers) for other in range(servers) if one != other]
            self.ways = {pair: Proxy(lambda to=pair[1]: self.routes[to]) for pair in pairs}
        for index in range(servers):
            self.start(index)
        wait_until(self.is_ready, "the engine has a leader")

    def start(self, index):
        others = [to for to in range(len(self.routes)) if to != index]
        ways = [self.ways[index, to].port for to in others] if self.ways else self.routes
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ways)
        # A server that hears of another one from a third connects to where that one says it is, past its proxy.
        said = 'advertise: "127.0.0.1:1", ' if self.ways else ""
        # A cluster of one has no name, or it would wait for others.
        cluster = f"cluster {{ name: c, listen: 127.0.0.1:{self.routes[index]}, {said}routes: [{routes}] }}"
        configuration = self.folder / f"n{index}.conf"
        configuration.write_text(
            f"server_name: n{index}\nlisten: 127.0.0.1:{self.clients[index]}\n"
            f"http: 127.0.0.1:{self.monitors[index]}\n{self.tls}\n"
            f'jetstream {{ store_dir: "{self.folder / f"n{index}"}", max_file_store: 8GB, sync_interval: always }}\n'
            + (cluster if len(self.processes) > 1 else "")
        )
        log = (self.folder / f"n{index}.log").open("ab")
        self.processes[index] = subprocess.Popen([program(), "-c", configuration], stdout=log, stderr=log)

    def answer(self, index, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.monitors[index]}/{path}", timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return {}

    def is_ready(self):
        """Whether the servers have a leader, and all of them follow it."""
        if len(self.processes) == 1:
            return bool(self.answer(0, "jsz"))
        for index in range(len(self.processes)):
            meta = self.answer(index, "jsz").get("meta_cluster") or {}
            replicas = meta.get("replicas") or []
            if meta.get("leader") == f"n{index}":
                return len(replicas) == len(self.processes) - 1 and all(one.get("current") for one in replicas)
        return False

    def kill(self, index):
        self.processes[index].kill()
        self.processes[index].wait(DEADLINE)

    def end(self, index):
        """As an operator stops a server: by TERM."""
        self.processes[index].terminate()
        self.processes[index].wait(DEADLINE)

    def is_whole(self):
        """Whether each server has all that it keeps a copy of."""
        return self.is_ready() and all(
            self.answer(index, "healthz").get("status") == "ok" for index in range(len(self.processes))
        )

    def cut(self, one, other):
        """Two servers don't reach each other any more; both reach the third."""
        for pair in ((one, other), (other, one)):
            self.ways[pair].refuse()

    def heal(self):
        for way in self.ways.values():
            way.heal()

    def stop(self):
        for process in self.processes:
            if process and process.poll() is None:
                process.kill()
                process.wait(DEADLINE)

    @property
    def attributes(self):
        """What DEFINE QSGROUP says of it."""
        return self.reached_at(self.clients)

    def reached_at(self, clients):
        """The same for a queue manager that reaches the servers at ports of its own."""
        listed = lambda ports: ",".join(f"127.0.0.1:{port}" for port in ports)
        sizes = f"REPLICAS({len(self.processes)}) MAXBYTES({self.log_bytes})"
        return f"SERVERS('{listed(clients)}') MONITORS('{listed(self.monitors)}') {sizes}"
