"""`docs/interoperability.md` says what `tests/interop/run.py` knows; the suites themselves run with `make interop`."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/interoperability.md").read_text()
spec = importlib.util.spec_from_file_location("interop", ROOT / "tests/interop/run.py")
interop = importlib.util.module_from_spec(spec)
spec.loader.exec_module(interop)


def rows(beginning):
    """The cells of each row of the table whose first line begins so."""
    table = PAGE[PAGE.index(beginning) :].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


COUNTS = {row[0].strip("`"): [int(cell) for cell in row[2:]] for row in rows("| suite | what, and who wrote it |")}
FAILURES = rows("| suite | test | why |")


def test_every_suite_is_on_the_page_and_its_counts_add_up():
    assert set(COUNTS) == {suite.name for suite in interop.SUITES}
    for name, (tests, passed, failed) in COUNTS.items():
        assert tests == passed + failed, name


@pytest.mark.parametrize("suite", interop.SUITES, ids=lambda suite: suite.name)
def test_every_known_failure_is_on_the_page_with_its_cause(suite):
    named = re.findall(r"`([^`]+)`", " ".join(row[1] for row in FAILURES if row[0].strip("`") == suite.name))
    plain = lambda test: test.replace("`", "")
    assert sorted(named) == sorted(map(plain, suite.known))
    assert COUNTS[suite.name][2] == len(suite.known)
