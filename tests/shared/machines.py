#!/usr/bin/env python3
"""A group on three machines: one of them is cut off, and comes back; one is gone at once, and starts again.

    tests/shared/machines.py [--rounds 2]

A machine is a network namespace with an address of its own on a bridge, and a directory: it has one server of the
engine and one member. Servers, members and the engine's clients show one another certificates, as
docs/operating/shared-queues.md says; a member reaches the owner by TLS. Clients, unmodified python-qpid-proton, are in
a fourth namespace. One puts at whichever machine takes it and one gets in units of work; links of those who are not at
the owner go on to it. In each round the owner's machine is cut off for some seconds, then another one; then all
processes of the owner's machine are killed, and of another one, and start again after some seconds.

Prints after how long a machine that was left owns the group, and how long puts and gets paused each time; exits with
1 where something confirmed is lost or comes twice. As root. BULLA names the program.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from members import state, wait_until  # isort: skip (it makes the next ones known)
from engine import program
from faults import UNIT, Line
from manager import DEADLINE, Manager
from test_shared_groups import issued

GROUP, QUEUE = "MACHINES", "MACHINES.Q"
NETWORK = "10.213.7"
MACHINES = 3
# How long a machine is away (seconds).
AWAY = 12
# How long it may take until all goes on (seconds).
STUCK = 90
HEARTBEAT = 4
PORTS = {"amqp": 5672, "amqps": 5671, "engine": 4222, "routes": 6222, "monitor": 8222}
# What the clients' namespace is called: set for the process that runs there.
INSIDE = "BULLA_MACHINES"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Network:
    """Four namespaces at a bridge in a fifth one: nothing of this machine's own network is touched."""

    def __init__(self, name):
        self.name, self.made = name, []

    def make(self):
        hub = self.add("hub")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for index in range(MACHINES + 1):
            space = self.add(index)
            ip("-n", hub, "link", "add", f"to{index}", "type", "veth", "peer", "name", "net", "netns", space)
            ip("-n", hub, "link", "set", f"to{index}", "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{address(index)}/24", "dev", "net")
            for device in ("net", "lo"):
                ip("-n", space, "link", "set", device, "up")

    def add(self, what):
        space = f"{self.name}-{what}"
        ip("netns", "add", space)
        self.made.append(space)
        return space

    def end(self):
        for space in self.made:
            ip("netns", "delete", space)


def address(index):
    """The machine's; that of the clients is the last one."""
    return f"{NETWORK}.{index + 1}"


def at(what, index):
    return f"{address(index)}:{PORTS[what]}"


def listed(what):
    return ",".join(at(what, index) for index in range(MACHINES))


class Machine:
    """A server of the engine and a member."""

    def __init__(self, folder, network, index, issue):
        self.index, self.name, self.folder = index, f"QM{index + 1}", folder / f"machine{index + 1}"
        self.hub, self.prefix = f"{network}-hub", ("ip", "netns", "exec", f"{network}-{index}")
        self.folder.mkdir()
        self.authority, (self.pem, self.key) = issue(None), issue(index)
        self.server = self.member = None

    def start_server(self):
        files = f'cert_file: "{self.pem}", key_file: "{self.key}", ca_file: "{self.authority}"'
        routes = ", ".join(f"nats://{at('routes', to)}" for to in range(MACHINES) if to != self.index)
        configuration = self.folder / "engine.conf"
        configuration.write_text(
            f"server_name: n{self.index}\nlisten: {at('engine', self.index)}\nhttp: {at('monitor', self.index)}\n"
            f"tls {{ {files}, verify: true }}\n"
            f'jetstream {{ store_dir: "{self.folder}/engine", sync_interval: always }}\n'
            f"cluster {{ name: c, listen: {at('routes', self.index)}, routes: [{routes}], tls {{ {files} }} }}\n"
        )
        with (self.folder / "engine.log").open("ab") as log:
            self.server = subprocess.Popen([*self.prefix, program(), "-c", configuration], stdout=log, stderr=log)

    def start_member(self):
        machine = type("Member", (Manager,), {"host": address(self.index), "prefix": self.prefix})
        ports = {"amqp_port": PORTS["amqp"], "amqps_port": PORTS["amqps"]}
        self.member = machine(self.folder / "data", name=self.name, **ports)
        assert self.member.stop() == 0
        tls = self.member.data / "tls"
        for file, source in (("server.pem", self.pem), ("server.key", self.key), ("partners.pem", self.authority)):
            shutil.copy(source, tls / file)
        self.member.start()
        self.member.mqsc(
            f"""
            DEFINE QSGROUP({GROUP}) SERVERS('{listed("engine")}') MONITORS('{listed("monitor")}') REPLICAS(3) +
                   MAXBYTES({256 << 20}) CONNAME('{at("amqps", self.index)}') SSLCIPH(TLS_AES_256_GCM_SHA384) +
                   CAFILE('{self.authority}') CERTFILE('{self.pem}') KEYFILE('{self.key}')
            START QSGROUP({GROUP})
            """
        )
        wait_until(lambda: state(self.member, GROUP) in ("OWNER", "STANDBY"), f"{self.name} takes part", STUCK)

    def owns(self):
        try:
            return state(self.member, GROUP) == "OWNER"
        except Exception:
            return False

    def cut(self):
        ip("-n", self.hub, "link", "set", f"to{self.index}", "down")

    def heal(self):
        ip("-n", self.hub, "link", "set", f"to{self.index}", "up")

    def kill(self):
        """All of it at once: both are killed before either is waited for."""
        for process in (self.server, self.member.process):
            process.kill()
        self.server.wait(DEADLINE)
        self.member.kill()

    def start(self):
        self.start_server()
        self.member.start()

    def stop(self):
        if self.server:
            self.server.kill()
            self.server.wait(DEADLINE)
        if self.member:
            self.member.kill()


class Pauses:
    """The longest time in which a count did not grow."""

    def __init__(self, counts):
        self.counts, self.ends = counts, threading.Event()
        self.longest = [0.0] * len(counts)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        last = [(count(), time.monotonic()) for count in self.counts]
        while not self.ends.wait(0.005):
            for index, count in enumerate(self.counts):
                now = count(), time.monotonic()
                self.longest[index] = max(self.longest[index], now[1] - last[index][1])
                if now[0] != last[index][0]:
                    last[index] = now

    def end(self):
        self.ends.set()
        self.thread.join()
        return self.longest


def owner_among(machines):
    return wait_until(lambda: next((one for one in machines if one.owns()), None), "an owner", STUCK)


def go_on(line):
    put, got = len(line.confirmed), len(line.got)
    gone_on = lambda: len(line.confirmed) >= put + 10 * UNIT and len(line.got) >= got + 10 * UNIT
    wait_until(gone_on, f"puts and gets go on: {line.told()}", STUCK)


def fail(what, machine, others, line, break_off, mend):
    """One machine is away for a while; how long the others' clients waited, and those of all when it is back."""
    counts = [lambda: len(line.confirmed), lambda: len(line.got)]
    pauses = Pauses(counts)
    began = time.monotonic()
    print(f"{began - line.began:.2f} s: {what}")
    break_off()
    owner = owner_among(others)
    owned = time.monotonic() - began
    time.sleep(AWAY)
    go_on(line)
    away = pauses.end()
    pauses = Pauses(counts)
    mend()
    wait_until(lambda: state(machine.member, GROUP) == "STANDBY", f"{machine.name} stands by again", STUCK)
    go_on(line)
    back = pauses.end()
    print(
        f"{what} ({machine.name}; {owner.name} owns the group after {owned:.1f} s): puts paused for {away[0]:.1f} s "
        f"and gets for {away[1]:.1f} s at most; when it is back {back[0]:.1f} and {back[1]:.1f} s",
        flush=True,
    )


def run(network, rounds):
    folder = Path(tempfile.mkdtemp(prefix="bulla-machines-"))
    authority, _, by = issued(folder, "authority")
    issue = lambda index: authority if index is None else issued(folder, f"m{index}", by, address(index))[:2]
    machines, ends = [], threading.Event()
    try:
        machines = [Machine(folder, network, index, issue) for index in range(MACHINES)]
        for machine in machines:
            machine.start_server()
        for machine in machines:
            machine.start_member()
        owner_among(machines).member.mqsc(f"DEFINE QLOCAL({QUEUE}) QSGROUP({GROUP}) MAXDEPTH(999999999)")
        ways = [at("amqp", index) for index in range(MACHINES)]
        line = Line("three machines", 1, ends, QUEUE, QUEUE, ways, ways)
        # From a machine that is cut off comes no word.
        line.heartbeat = HEARTBEAT
        for thread in line.threads:
            thread.start()
        go_on(line)
        for _ in range(rounds):
            for how in ("cut off", "killed"):
                for whose in ("owner's", "another"):
                    owner = owner_among(machines)
                    others = [machine for machine in machines if machine is not owner]
                    machine = owner if whose == "owner's" else others[0]
                    break_off, mend = (machine.cut, machine.heal) if how == "cut off" else (machine.kill, machine.start)
                    left = [one for one in machines if one is not machine]
                    what = f"the {whose} machine {how}" if whose == "owner's" else f"{whose} machine {how}"
                    fail(what, machine, left, line, break_off, mend)
        ends.set()
        for thread in line.threads:
            thread.join()
        print(line.told())
        broken = line.faults(is_ordered=False)
        print("\n".join(broken) or "nothing confirmed was lost, nothing committed came back")
        for machine in machines if broken else []:
            print(f"{machine.name}:\n{''.join(machine.member.log)}", file=sys.stderr)
        return 1 if broken else 0
    finally:
        ends.set()
        for machine in machines:
            machine.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    options = argparse.ArgumentParser(description="A group on three machines, of which one fails.")
    options.add_argument("--rounds", type=int, default=2)
    options = options.parse_args()
    if network := os.environ.get(INSIDE):
        sys.exit(run(network, options.rounds))
    if os.geteuid():
        sys.exit("network namespaces need root")
    network = Network(f"bulla{os.getpid()}")
    try:
        network.make()
        again = ["ip", "netns", "exec", network.made[-1], sys.executable, *sys.argv]
        code = subprocess.run(again, env={**os.environ, INSIDE: network.name}).returncode
    finally:
        network.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
