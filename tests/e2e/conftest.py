"""What every file of the suite shares: a data directory for each file, and queue managers that end with it."""

import sys
import time
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "clients/proton")]

from manager import Manager, wait_until  # noqa: E402
from pki import Authority, Ring  # noqa: E402


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority that the rings of the file's users trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def managers(tmp_path_factory):
    """Makes queue managers; whatever still runs at the end is ended."""
    made = []

    def make(name="qm", data=None, **settings):
        made.append(Manager(data or tmp_path_factory.mktemp("bulla") / name, **settings))
        return made[-1]

    yield make
    for manager in made:
        if manager.process.poll() is None:
            manager.kill()


@pytest.fixture(scope="module")
def qm(managers):
    """The file's queue manager."""
    manager = managers()
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0, "it did not stop cleanly:\n" + "".join(manager.log[-30:])


# A ring's files are looked at again after this long, and a little more.
RING_SECONDS = 1.1


class People:
    """Users with rings: each has a key of its own, trusts the authority and knows the others."""

    def __init__(self, qm, authority):
        self.qm = qm
        self.authority = authority
        self.identities = {}
        self.rings = {}

    def add(self, name, key="rsa2048", **dates):
        identity = self.authority.issue(name, key, **dates)
        ring = Ring(self.qm.data, name).own(identity).trust(self.authority)
        for other, known in self.rings.items():
            known.people(identity)
            ring.people(self.identities[other])
        self.identities[name], self.rings[name] = identity, ring
        self.qm.add_user(name)
        return identity

    def dn(self, name):
        return self.identities[name].dn

    def seen(self):
        """After a change to a ring in use: the queue manager looks at its files again once a second."""
        end = time.monotonic() + RING_SECONDS
        wait_until(lambda: time.monotonic() > end, "a second has passed")


@pytest.fixture(scope="module")
def people(qm, authority):
    """`orders` seals, `billing` opens, `audit` is a stranger to most queues, `mallory` to all."""
    people = People(qm, authority)
    for name in ("orders", "billing", "audit", "mallory"):
        people.add(name)
    return people
