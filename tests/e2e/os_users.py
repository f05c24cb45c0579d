"""Users of the operating system, who give commands over the second admin socket. Root alone can become one of them."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from manager import BULLA

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
# Numbers that no file of names has.
LOOKER, OPERATOR, CHIEF, NO_ROLE, GROUP = 64001, 64002, 64003, 64004, 64100


class Program:
    """The program as other users can start it: where it lies may be closed to them. The directory of the second socket
    is one that they can reach, which pytest's own are not."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="bulla-users-")
        os.chmod(self.folder.name, 0o755)
        self.admin = Path(self.folder.name) / "admin"
        self.file = os.open(BULLA, os.O_RDONLY)

    def __call__(self, user, *arguments, group=None, data=None):
        return subprocess.run(
            [f"/proc/self/fd/{self.file}", *arguments, "--data", data or self.admin],
            user=user, group=group or user, extra_groups=[], pass_fds=[self.file], cwd="/", env={},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip

    def close(self):
        os.close(self.file)
        self.folder.cleanup()
