"""What tools of IBM MQ write, taken over: by files written from the published syntax."""

import subprocess

import pytest
from manager import BULLA, Manager
from people import People

EXPORTED = """\
* Exported on Mon Mar 29 09:23:31 2021
setmqspl -m QMA -p ORDERS -s SHA256 -a "CN=orders,O=Demo" -e AES256 -r "CN=billing,O=Demo" -c 0 -t 0
setmqspl -m QMA -p OLD -s SHA1 -a "O=Demo,CN=orders" -t 1
"""
DUMP = """\
* Script generated on 2024-05-02   at 10.11.12
ALTER QMGR +
   CCSID(1208) +
   DEADQ('APP.DLQ')
DEFINE QLOCAL('APP.DLQ') +
*  CRDATE(2024-05-02) +
   REPLACE
DEFINE QLOCAL('ORDERS') +
   CLUSTER('DEMO') +
   MAXDEPTH(1234) +
   REPLACE
DEFINE CHANNEL('A.B') CHLTYPE(SDR) CONNAME('b(1414)') XMITQ('B') SSLCIPH('NULL_MD5') REPLACE
SET AUTHREC PROFILE('ORDERS') GROUP('clerks') OBJTYPE(QUEUE) AUTHADD(PUT,CHG)
"""


def bulla(*arguments, **options):
    return subprocess.run([BULLA, *arguments], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def manager(managers, authority):
    manager = managers(name="QM1")
    manager.mqsc("DEFINE QLOCAL(ORDERS); DEFINE QLOCAL(OLD)")
    people = People(manager, authority)
    for name in ("orders", "billing"):
        people.add(name)
    yield manager
    assert manager.stop() == 0


def policies(manager):
    return bulla("mqsc", "--data", manager.data, "-c", "DISPLAY POLICY(*) SIGNALG").stdout


def test_policies_are_shown_and_nothing_is_set(manager):
    told = bulla("policy", "import", "-", "--data", manager.data, input=EXPORTED)
    assert told.returncode == 1, told
    assert "\nSET POLICY('ORDERS') SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Demo')" in told.stdout
    assert "-s SHA1: broken, and not offered" in told.stdout
    assert "1 of 2 can't be taken over" in told.stderr
    applied = bulla("policy", "import", "-", "--data", manager.data, "--apply", input=EXPORTED)
    assert applied.returncode == 1 and "so nothing is set" in applied.stderr
    assert "POLICY(" not in policies(manager)


def test_policies_are_raised_and_applied_and_names_are_compared_with_the_rings(manager):
    applied = bulla("policy", "import", "-", "--data", manager.data, "--apply", "--raise", input=EXPORTED)
    assert applied.returncode == 0, applied
    told = " ".join(applied.stdout.replace("\n*  ", " ").split())
    assert "there is no queue" not in told
    assert "O=Demo,CN=orders: no certificate in a key ring here has it" in told
    assert "has the same in another order or case, so give 'CN=orders,O=Demo'" in told
    shown = policies(manager)
    assert "POLICY(ORDERS)" in shown and "POLICY(OLD)" in shown


def test_a_dump_becomes_a_file_that_is_applied(tmp_path):
    manager = Manager(tmp_path / "data", name="QM1", grants=None)
    try:
        dump, wanted = tmp_path / "dump", tmp_path / "wanted.mqsc"
        dump.write_text(DUMP)
        told = bulla("mqsc", "--import-mq", dump)
        assert told.returncode == 0, told
        assert "*   CLUSTER('DEMO'): there are no clusters" in told.stdout
        assert "left out: DEFINE CHANNEL('A.B')" in told.stdout
        wanted.write_text(told.stdout)
        applied = bulla("mqsc", "--data", manager.data, "--apply", wanted)
        assert applied.returncode == 0, applied
        assert "MAXDEPTH(1234)" in manager.mqsc("DISPLAY QLOCAL(ORDERS) MAXDEPTH")
        assert "DEADQ('APP.DLQ')" in bulla("mqsc", "--data", manager.data, "--export").stdout
    finally:
        manager.stop()


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "missing", binary):
        for command in (("policy", "import"), ("mqsc", "--import-mq")):
            told = bulla(*command, file)
            assert told.returncode == 2 and told.stderr.startswith("bulla: error: "), told
