"""What every file of the suite shares: a data directory for each file, and queue managers that end with it."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "clients/proton")]

from engine import Engine  # noqa: E402
from manager import Manager  # noqa: E402
from os_users import Program  # noqa: E402
from people import People  # noqa: E402
from pki import Authority  # noqa: E402


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority that the rings of the file's users trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def managers(request, tmp_path_factory):
    """Makes queue managers; whatever still runs at the end is ended.

    Each data directory takes some 80 MB. Those of a file all of whose tests passed are removed."""
    made = []
    folders = []
    failed_before = request.session.testsfailed

    def make(folder="qm", data=None, **settings):
        if data is None:
            folders.append(tmp_path_factory.mktemp("bulla"))
            data = folders[-1] / folder
        made.append(Manager(data, **settings))
        return made[-1]

    yield make
    for manager in made:
        if manager.process.poll() is None:
            manager.kill()
    if request.session.testsfailed == failed_before:
        for path in folders:
            shutil.rmtree(path)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The servers of NATS JetStream that keep the logs of groups."""
    engine = Engine(tmp_path_factory.mktemp("engine"))
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def program():
    """Runs the program as other users of the operating system."""
    program = Program()
    yield program
    program.close()


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
