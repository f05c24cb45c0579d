"""A suite that others wrote, on every day: JORAM's JMS tests over an unmodified Qpid JMS, as `make interop` runs them.

Its parts come from where the Java client's do; where that can't be reached, the file is skipped with a warning."""

import warnings

import pytest

from test_interoperability import COUNTS, interop

JORAM = next(suite for suite in interop.SUITES if suite.name == "joram")


@pytest.fixture(scope="module")
def joram(managers):
    try:
        JORAM.fetch()
    except interop.NotHere as error:
        if not error.is_out_of_reach:
            raise
        warnings.warn(f"JORAM's JMS tests were not run: {error}", stacklevel=1)
        pytest.skip("JORAM's JMS tests can't be fetched here")
    manager = managers("joram", grants=interop.GRANTS)
    results = JORAM.run(manager)
    assert manager.stop() == 0, "".join(manager.log[-30:])
    return results


def test_joram_s_jms_tests_pass(joram):
    assert [(test, why) for test, why in joram if why is not None] == []


def test_all_of_them_ran(joram):
    assert len(joram) == COUNTS["joram"][0]
