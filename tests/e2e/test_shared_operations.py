"""What is done to a group of shared queues that works: its members and servers are replaced, its log is restored."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from proton import ConnectionException, Message

from engine import Engine
from groups import bodies, member, put, status, wait_for_state
from manager import BULLA, wait_until
from proton_driver import Refused
from test_jms import Lines

# Another build, that the one under test is replaced by; its copy where there is none.
NEXT = os.environ.get("BULLA_NEXT", BULLA)
# The engine's command line.
COMMAND = Path(__file__).parents[2] / ".cache/nats/nats"
# More than is put while members are replaced.
ENDLESS = 1_000_000
# How long a server that starts again may take to have all copies (seconds).
WHOLE = 60


class Timed(Lines):
    """A driver whose lines have times."""

    def __init__(self, *arguments):
        self.times = []
        super().__init__(*arguments)

    def _read(self):
        for line in self.process.stdout:
            self.times.append(time.monotonic())
            self.lines.append(line.strip())

    def pause(self, since):
        """The longest between two lines since then (seconds)."""
        times = [since, *(at for at in list(self.times) if at >= since)]
        return max(later - at for at, later in zip(times, times[1:]))

    def numbers(self, word):
        return [int(line.split()[1]) for line in list(self.lines) if line.startswith(f"{word} ")]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()


def test_members_and_servers_are_replaced_one_by_one_under_traffic(managers, tmp_path):
    engine, clients = Engine(tmp_path), []
    # Not a link: the program of a process that runs would be shown by its first name.
    built = shutil.copy(NEXT, tmp_path / "bulla-next")
    try:
        members = [member(managers, engine, name, "REPLACED", "REDIRECT(CONNECTION)") for name in ("QM1", "QM2", "QM3")]
        wait_until(lambda: any(status(qm, "REPLACED")["STATE"] == "OWNER" for qm in members), "an owner")
        owner = next(qm for qm in members if status(qm, "REPLACED")["STATE"] == "OWNER")
        owner.mqsc("DEFINE QLOCAL(JMS) QSGROUP(REPLACED) MAXDEPTH(999999999)")
        wait_until(lambda: all(knows(qm, "JMS") for qm in members), "each member has read of the queue")
        ways = ",".join(qm.amqp for qm in members)
        url = (
            f"failover:({ways})?failover.reconnectDelay=20&failover.maxReconnectDelay=200&jms.prefetchPolicy.all=50"
        )
        producing, consuming = clients = [Timed(work, url, "JMS", ENDLESS) for work in ("produce", "consume")]
        go_on(clients)
        for qm in [qm for qm in members if qm is not owner] + [owner]:
            began = time.monotonic()
            qm.program = built
            assert qm.stop() == 0
            qm.start()
            assert os.readlink(f"/proc/{qm.process.pid}/exe") == str(built)
            wait_until(lambda qm=qm: status(qm, "REPLACED")["STATE"] in ("STANDBY", "OWNER"), f"{qm.name} takes part")
            go_on(clients)
            tell("the owner" if qm is owner else "a member", clients, began)
        for index in range(3):
            began = time.monotonic()
            engine.end(index)
            engine.start(index)
            wait_until(engine.is_whole, "all servers have all copies", WHOLE)
            go_on(clients)
            tell("a server of the engine", clients, began)
        producing.kill()
        sent = producing.numbers("sent")
        wait_until(lambda: set(sent) <= set(consuming.numbers("got")), "all that was sent has come", WHOLE)
        got = consuming.numbers("got")
        assert sent == list(range(len(sent)))
        # The last one may have been put without its client's hearing of it.
        assert set(got) - set(sent) <= {len(sent)}
        # What came again was not settled when a connection ended, or its put was repeated by the client.
        print(f"{len(sent)} messages sent, none lost, {len(got) - len(set(got))} came again")
        assert len(got) - len(set(got)) <= 6 * (50 + 1)
    finally:
        for client in clients:
            client.kill()
        engine.stop()


def knows(qm, queue):
    """Whether a member has heard of a queue of the group: it refers a client to the owner then, or serves it."""
    try:
        with qm.connect() as client:
            client.sender(queue)
    except Refused as refused:
        return refused.reason != 2085
    except ConnectionException as redirected:
        return "group-elsewhere" in str(redirected)
    return True


def go_on(clients):
    for client in clients:
        client.wait_for(len(client.lines) + 100, WHOLE)
        assert client.process.poll() is None, f"a client has ended: {client.process.stderr.read()}"


def tell(what, clients, since):
    pauses = [client.pause(since) for client in clients]
    print("{} replaced: longest pause of puts {:.2f} s, of gets {:.2f} s".format(what, *pauses))


def freeze(qm):
    """Its threads go on for a moment after the signal, on a machine with much to do."""
    os.kill(qm.process.pid, signal.SIGSTOP)
    threads = lambda: (path.read_text() for path in Path(f"/proc/{qm.process.pid}/task").glob("*/stat"))
    wait_until(lambda: all(line.rsplit(")", 1)[1].split()[0] == "T" for line in threads()), f"{qm.name} is stopped")


class Saved:
    """A group of two members with sealed-off phases: what lies in the backup, and what comes after it and is lost."""

    def __init__(self, managers, engine, group):
        self.engine, self.group = engine, group
        self.first = member(managers, engine, "QM1", group)
        wait_for_state(self.first, group, "OWNER")
        self.second = member(managers, engine, "QM2", group)
        wait_for_state(self.second, group, "STANDBY")
        self.first.mqsc(f"DEFINE QLOCAL(KEPT) QSGROUP({group})")
        put(self.first, "KEPT", range(50))
        with self.first.connect() as client:
            receiver = client.receiver("KEPT", credit=20)
            assert [receiver.next().body for _ in range(20)] == list(range(20))
            receiver.close()

    def go_on(self):
        """What the backup does not have: messages, gets, a queue and claims, so that the epoch is higher."""
        put(self.first, "KEPT", range(50, 60))
        with self.first.connect() as client:
            assert client.get("KEPT").body == 20
        self.first.mqsc(f"DEFINE QLOCAL(LATER) QSGROUP({self.group})")
        for qm in (self.second, self.first):
            qm.mqsc(f"RESET QSGROUP({self.group}) TAKEOVER")
            wait_for_state(qm, self.group, "OWNER")

    def epoch(self):
        return status(self.first, self.group)["EPOCH"]

    def members(self, command):
        for qm in (self.first, self.second):
            qm.mqsc(f"{command} QSGROUP({self.group})")

    def check(self, managers, engine, epoch):
        """The members come up on the restored log, and a further one does; the epoch goes on from the backup's."""
        group = self.group
        for qm in (self.first, self.second):
            qm.mqsc(f"ALTER QSGROUP({group}) {engine.attributes}\nSTART QSGROUP({group})")
        states = lambda: {status(qm, group)["STATE"] for qm in (self.first, self.second)}
        wait_until(lambda: states() == {"OWNER", "STANDBY"}, "both take part")
        owner, other = self.first, self.second
        if status(self.second, group)["STATE"] == "OWNER":
            owner, other = other, owner
        assert status(owner, group)["EPOCH"] > epoch
        # What lay there then is there, and nothing that was got by then.
        put(owner, "KEPT", ["new"])
        third = member(managers, engine, "QM3", group)
        wait_for_state(third, group, "STANDBY")
        with owner.connect() as client:
            assert [message.body for message in client.get_all("KEPT", browse=True)] == [*range(20, 50), "new"]
            assert "LATER" not in owner.mqsc("DISPLAY QLOCAL(*)")
            # The fence is right: a former owner's puts are refused, and confirmed ones of the new one are there.
            sender = client.sender("KEPT")
            client.put("KEPT", Message(body="before", durable=True), sender=sender)
            freeze(owner)
            sender.link.send(Message(body="late", durable=True))
            client.connection.wait(lambda: not client.connection.conn.transport.pending(), timeout=5)
            third.mqsc(f"RESET QSGROUP({group}) TAKEOVER")
            wait_for_state(third, group, "OWNER")
            put(third, "KEPT", ["after"])
            os.kill(owner.process.pid, signal.SIGCONT)
            wait_for_state(owner, group, "STANDBY")
        assert bodies(third, "KEPT") == [*range(20, 50), "new", "before", "after"]


def test_servers_are_restored_from_copies_of_their_store_directories(managers, tmp_path):
    (tmp_path / "first").mkdir(), (tmp_path / "fresh").mkdir()
    engine, fresh = Engine(tmp_path / "first"), None
    try:
        saved = Saved(managers, engine, "COPIED")
        # Members let go of the group, servers stop, and their stores are copied.
        saved.members("STOP")
        for index in range(3):
            engine.end(index)
        for index in range(3):
            shutil.copytree(engine.folder / f"n{index}", tmp_path / f"backup/n{index}")
        for index in range(3):
            engine.start(index)
        wait_until(engine.is_whole, "all servers have all copies", WHOLE)
        saved.members("START")
        wait_until(lambda: status(saved.first, "COPIED")["STATE"] in ("OWNER", "STANDBY"), "the group goes on")
        saved.first.mqsc("RESET QSGROUP(COPIED) TAKEOVER")
        wait_for_state(saved.first, "COPIED", "OWNER")
        epoch = saved.epoch()
        saved.go_on()
        # All servers are gone. Members let go of the group before there is another log.
        engine.stop()
        saved.members("STOP")
        shutil.copytree(tmp_path / "backup", tmp_path / "fresh", dirs_exist_ok=True)
        fresh = Engine(tmp_path / "fresh")
        wait_until(fresh.is_whole, "all servers have all copies", WHOLE)
        saved.check(managers, fresh, epoch - 2)
    finally:
        for one in (engine, fresh):
            if one:
                one.stop()


def nats(engine, *words):
    servers = ",".join(f"nats://127.0.0.1:{port}" for port in engine.clients)
    done = subprocess.run([COMMAND, "--server", servers, *words], capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not COMMAND.exists(), reason="the engine's command line is not here: `make clients` builds it")
def test_a_log_is_saved_while_it_is_used_and_restored_on_fresh_servers(managers, tmp_path):
    (tmp_path / "first").mkdir(), (tmp_path / "fresh").mkdir()
    engine, fresh = Engine(tmp_path / "first"), None
    try:
        saved = Saved(managers, engine, "STREAM")
        nats(engine, "backup", "stream", "STREAM", tmp_path / "backup", "--no-progress")
        epoch = saved.epoch()
        saved.go_on()
        engine.stop()
        saved.members("STOP")
        fresh = Engine(tmp_path / "fresh")
        nats(fresh, "backup", "restore", "stream", tmp_path / "backup", "--no-progress")
        wait_until(fresh.is_whole, "all servers have all copies", WHOLE)
        saved.check(managers, fresh, epoch)
    finally:
        for one in (engine, fresh):
            if one:
                one.stop()
