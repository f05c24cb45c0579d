"""What the README tells a reader to type works, in order, from an empty directory."""

import os
import re
import subprocess
from pathlib import Path

from manager import BULLA, Manager

ROOT = Path(__file__).parents[2]
# The blocks are run as they stand; only the ports differ, because 5672 may be taken on the machine that runs the tests.
PRELUDE = """
set -euo pipefail
bulla() {
    case $1 in
        put|get|error) "$BULLA" "$@" --amqp "$AMQP" ;;
        *) "$BULLA" "$@" ;;
    esac
}
"""


def shell_blocks(page, heading):
    """The sh blocks of a section, in order."""
    section = re.split(rf"^## {heading}$", page, flags=re.MULTILINE)[1]
    section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


def test_the_readmes_day_to_day_works_as_it_is_written(tmp_path):
    start, *others = shell_blocks((ROOT / "README.md").read_text(), "Day to day")
    assert start == "bulla start\n" and len(others) == 2
    manager = Manager(tmp_path / "bulla-data", grants=None)
    try:
        script = PRELUDE + "".join(others)
        environment = os.environ | {"BULLA": BULLA, "AMQP": manager.clear_address}
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        [message] = (tmp_path / "inbox").iterdir()
        assert message.read_text() == "two tons of barley\n"
        assert "ORDERS" in done.stdout
    finally:
        assert manager.stop() == 0
