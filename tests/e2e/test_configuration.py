"""Configuration as code: export, difference, and a unit that is made whole or not at all."""

import json
import subprocess

import pytest
from manager import BULLA, Manager


@pytest.fixture
def manager(tmp_path):
    manager = Manager(tmp_path / "data", name="QM1", grants=None)
    yield manager
    manager.stop()


def mqsc(manager, *arguments):
    return subprocess.run([BULLA, "mqsc", "--data", manager.data, *arguments], capture_output=True, text=True)


WANTED = """\
ALTER QMGR DESCR('as code')
DEFINE QLOCAL(ORDERS) MAXDEPTH(7)
DEFINE QALIAS(ORDERS.IN) TARGET(ORDERS)
SET POLICY(ORDERS.IN) SIGNALG(SHA256) SIGNER('CN=orders,O=Demo')
DEFINE GROUP(CLERKS) MEMBERS('ann', 'bob')
SET AUTHREC PROFILE('ORDERS.**') OBJTYPE(QUEUE) GROUP(CLERKS) AUTHADD(PUT)
"""


def test_a_file_is_applied_once_and_then_nothing_differs(manager, tmp_path):
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text(WANTED)
    told = mqsc(manager, "--diff", wanted)
    assert told.returncode == 1 and "DEFINE QLOCAL('ORDERS')" in told.stdout, told
    applied = mqsc(manager, "--apply", wanted)
    assert applied.returncode == 0, applied
    again = mqsc(manager, "--diff", wanted)
    assert (again.returncode, again.stdout) == (0, "")
    shown = mqsc(manager, "-c", "DISPLAY QLOCAL(ORDERS) MAXDEPTH")
    assert "MAXDEPTH(7)" in shown.stdout


def test_what_is_exported_makes_another_queue_manager_the_same(manager, tmp_path):
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text(WANTED)
    assert mqsc(manager, "--apply", wanted).returncode == 0
    exported = mqsc(manager, "--export").stdout
    other = Manager(tmp_path / "other", name="QM1", grants=None)
    try:
        copy = tmp_path / "copy.mqsc"
        copy.write_text(exported)
        assert mqsc(other, "--apply", copy).returncode == 0
        assert mqsc(other, "--export").stdout == exported
        assert mqsc(other, "--diff", copy, "--prune").returncode == 0
    finally:
        other.stop()


def test_the_difference_says_what_was_and_goes_through_json(manager, tmp_path):
    assert mqsc(manager, "-c", "DEFINE QLOCAL(ORDERS) MAXDEPTH(5); DEFINE QLOCAL(OLD)").returncode == 0
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text("DEFINE QLOCAL(ORDERS) MAXDEPTH(7)\n")
    told = mqsc(manager, "--diff", wanted)
    assert "* was MAXDEPTH(5)\nALTER QLOCAL('ORDERS') MAXDEPTH(7)\n" in told.stdout
    assert "--prune removes them" in told.stdout
    steps = json.loads(mqsc(manager, "--diff", wanted, "--prune", "--json").stdout)
    assert [(step["kind"], step["command"]) for step in steps if "AUTHREC" not in step["command"]] == [
        ("change", "ALTER QLOCAL('ORDERS') MAXDEPTH(7)"),
        ("remove", "DELETE QLOCAL('OLD')"),
    ]


def test_one_refused_command_leaves_everything_as_it_was_messages_included(manager, tmp_path):
    assert mqsc(manager, "-c", "DEFINE QLOCAL(KEEP)").returncode == 0
    manager.add_user("ann")
    allowed = "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ann') AUTHADD(CONNECT)"
    manager.mqsc(f"{allowed}; SET AUTHREC PROFILE(KEEP) OBJTYPE(QUEUE) PRINCIPAL('ann') AUTHADD(PUT)")
    put = subprocess.run(
        [BULLA, "put", "KEEP", *manager.cli("ann"), "--persistent"], input="precious", text=True, capture_output=True
    )
    assert put.returncode == 0, put
    before = mqsc(manager, "--export").stdout
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text("DEFINE QLOCAL(FRESH)\n")
    refused = mqsc(manager, "--apply", wanted, "--prune")
    assert refused.returncode == 4 and "2055" in refused.stdout + refused.stderr, refused
    assert mqsc(manager, "--export").stdout == before
    assert "2085" in (lambda shown: shown.stdout + shown.stderr)(mqsc(manager, "-c", "DISPLAY QSTATUS(FRESH)"))
    manager.stop()
    manager.start()
    assert mqsc(manager, "--export").stdout == before
    assert "CURDEPTH(1)" in mqsc(manager, "-c", "DISPLAY QSTATUS(KEEP) CURDEPTH").stdout


def test_a_file_that_is_wrong_is_told_with_its_line(manager, tmp_path):
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text("DEFINE QLOCAL(A)\nDEFINE QLOCAL(B) MAXDEPHT(3)\n")
    told = mqsc(manager, "--apply", wanted)
    assert told.returncode == 2 and "wanted.mqsc:2:" in told.stderr, told
    assert "2085" in (lambda shown: shown.stdout + shown.stderr)(mqsc(manager, "-c", "DISPLAY QLOCAL(A)"))
