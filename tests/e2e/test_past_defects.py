"""The past defects that the simulation has to find can be put back into today's tree."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "tests" / "past-defects").glob("*.patch"))


def test_there_are_twelve():
    assert len(PATCHES) == 12


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_past_defect_can_be_put_back(patch):
    applied = subprocess.run(
        ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert applied.returncode == 0, applied.stderr
