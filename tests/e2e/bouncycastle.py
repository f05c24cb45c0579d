"""BouncyCastle opens and makes CMS messages, many at once: `clients/bouncycastle/Cms.java` says what a task is."""

import subprocess
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1] / "clients/bouncycastle"
# A Java machine takes seconds to start, and the messages of a file a second or two.
DEADLINE_SECONDS = 300


def run(tasks):
    """Does tasks of six words each; what it said of those that failed."""
    libraries = HOME / "target/dependency"
    if not libraries.exists():
        pytest.skip("BouncyCastle is not there: `make clients` fetches it")
    done = subprocess.run(
        ["java", "-cp", f"{libraries}/*", HOME / "Cms.java", *(word for task in tasks for word in task)],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_SECONDS,
    )  # fmt: skip
    said = done.stderr.decode()
    assert done.returncode in (0, 1), said
    return said
