"""Groups of shared queues: their members, and load at them while owners go."""

import itertools
import os
import signal
import threading

from proton import Message

from channels import freeze
from engine import free_ports
from manager import shown_rows, wait_until
from proton_driver import Refused

# Of groups: each test has its own.
NUMBERS = itertools.count(1)
# Messages that a client has put and not heard of.
WINDOW = 50
BODY = bytes(300)


def status(qm, group):
    done = qm.run("mqsc", "--data", qm.data, "--json", "-c", f"DISPLAY QSGSTATUS({group}) ALL")
    return shown_rows(done.stdout)[0]


def wait_for_state(qm, group, state):
    try:
        wait_until(lambda: status(qm, group)["STATE"] == state, f"{group} is {state} at {qm.name}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {status(qm, group)}\n{''.join(qm.log[-10:])}") from None


def member(managers, engine, name, group, more="", **settings):
    """A queue manager that takes part in the group; its port stays what it is when it starts again."""
    port = free_ports(1)[0]
    qm = managers(name, name=name, amqp_port=port, **settings)
    address = f"CONNAME('127.0.0.1:{port}')"
    qm.mqsc(f"DEFINE QSGROUP({group}) {engine.attributes} {address} {more}\nSTART QSGROUP({group})")
    return qm


def put(qm, queue, bodies):
    with qm.connect() as client:
        sender = client.sender(queue)
        for body in bodies:
            sender.send(Message(body=body, durable=True))


def bodies(qm, queue):
    with qm.connect() as client:
        return [message.body for message in client.get_all(queue)]


def is_known(qm, queue):
    try:
        with qm.connect() as client:
            client.sender(queue)
        return True
    except Refused:
        return False


def owner_and_member(managers, engine, queues, more="", **settings):
    """The owner of a group of its own with these queues, and a member."""
    group = f"GROUP{next(NUMBERS)}"
    owner = member(managers, engine, "QM1", group, **settings)
    wait_for_state(owner, group, "OWNER")
    owner.mqsc("\n".join(f"DEFINE QLOCAL({name}) QSGROUP({group}) {attributes}" for name, attributes in queues.items()))
    other = member(managers, engine, "QM2", group, more, **settings)
    wait_for_state(other, group, "STANDBY")
    owner.group = other.group = group
    return owner, other


class Load:
    """Puts numbered messages at whichever queue manager takes them. One of which nothing was heard is not put again."""

    def __init__(self, managers, queue):
        self.managers, self.queue = managers, queue
        self.next, self.tried, self.confirmed = 0, [], set()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ends.is_set():
            for manager in self.managers:
                try:
                    self.put_at(manager)
                except Exception:
                    # It is dead, or not the owner.
                    self.ends.wait(0.05)

    def put_at(self, manager):
        with manager.connect() as client:
            sender = client.sender(self.queue)
            while not self.ends.is_set():
                under_way = {}
                try:
                    for _ in range(WINDOW):
                        number, self.next = self.next, self.next + 1
                        self.tried.append(number)
                        under_way[number] = sender.link.send(Message(id=number, body=BODY, inferred=True, durable=True))
                    client.connection.wait(
                        lambda: all(delivery.remote_state for delivery in under_way.values()), timeout=20, msg="puts"
                    )
                finally:
                    accepted = [number for number, delivery in under_way.items() if delivery.remote_state == 0x24]
                    self.confirmed.update(accepted)
                if len(accepted) < WINDOW:
                    return

    def go_on(self, count):
        """Waits until so many more are confirmed."""
        until = len(self.confirmed) + count
        wait_until(lambda: len(self.confirmed) >= until, f"{count} more messages are confirmed")

    def end(self):
        self.ends.set()
        self.thread.join()


def check(load, arrived):
    """Each message that was confirmed is there, and none is there twice."""
    assert len(arrived) == len(set(arrived)), "a message has arrived twice"
    missing = load.confirmed - set(arrived)
    assert not missing, f"{len(missing)} of {len(load.confirmed)} confirmed messages are missing: {sorted(missing)[:5]}"
    assert set(arrived) <= set(load.tried)
    print(f"{len(load.confirmed)} messages were confirmed of {len(load.tried)}, {len(arrived)} have arrived, each once")


def taken(manager, queue):
    with manager.connect() as client:
        return [message.id for message in client.get_all(queue, credit=100_000)]


def two_members(managers, engine, group):
    made = []
    for name, state in (("QM1", "OWNER"), ("QM2", "STANDBY")):
        made.append(member(managers, engine, name, group, "REDIRECT(LINK)"))
        wait_for_state(made[-1], group, state)
    return made


def disturbed(members, group, load, count):
    """Under load: the owner is killed, the next one is killed, and the one after that is stopped and goes on."""
    first, second = members
    load.go_on(count)
    first.kill()
    wait_for_state(second, group, "OWNER")
    load.go_on(count)
    first.start()
    wait_for_state(first, group, "STANDBY")
    second.kill()
    wait_for_state(first, group, "OWNER")
    load.go_on(count)
    second.start()
    wait_for_state(second, group, "STANDBY")
    freeze(first)
    wait_for_state(second, group, "OWNER")
    os.kill(first.process.pid, signal.SIGCONT)
    load.go_on(count)
    wait_for_state(first, group, "STANDBY")
