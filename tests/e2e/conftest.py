"""What every file of the suite shares: a data directory for each file, and queue managers that end with it."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "clients/proton")]

from manager import Manager  # noqa: E402
from people import People  # noqa: E402
from pki import Authority  # noqa: E402


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority that the rings of the file's users trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def managers(tmp_path_factory):
    """Makes queue managers; whatever still runs at the end is ended."""
    made = []

    def make(folder="qm", data=None, **settings):
        made.append(Manager(data or tmp_path_factory.mktemp("bulla") / folder, **settings))
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


@pytest.fixture(scope="module")
def people(qm, authority):
    """`orders` seals, `billing` opens, `audit` is a stranger to most queues, `mallory` to all."""
    people = People(qm, authority)
    for name in ("orders", "billing", "audit", "mallory"):
        people.add(name)
    return people
