"""A disk that is full under the audit log: what is refused, what goes on, and what the log has afterwards.

The disk is the limit that the system sets for the length of files (RLIMIT_FSIZE), which needs no rights and can be changed while
the queue manager runs; whatever is beyond it fails as on a full disk, with another number (EFBIG)."""

import json
import resource

from proton import Message

import manager
from manager import wait_until

# Bytes of the next entry that still find room: less than an entry has.
ROOM = 50


def limit_files(qm, size):
    """No file of the queue manager gets longer than that."""
    resource.prlimit(qm.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def unharmed(managers, tmp_path, monkeypatch, name):
    """A queue manager that a write beyond the limit does not end (setrlimit(2)): no disk does that."""
    program = tmp_path / "bulla"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec '{manager.BULLA}' \"$@\"\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(manager, "BULLA", str(program))
        return managers(name)


def test_without_room_for_the_audit_log_commands_are_refused_and_with_room_the_chain_goes_on(
    managers, tmp_path, monkeypatch
):
    qm = unharmed(managers, tmp_path, monkeypatch, "full")
    qm.mqsc("DEFINE QLOCAL(BEFORE)")
    (log,) = (qm.data / "audit").iterdir()
    limit_files(qm, log.stat().st_size + ROOM)

    assert "2102" in qm.mqsc("DEFINE QLOCAL(LATER)", code=None)
    assert "2102" in qm.mqsc("ALTER QLOCAL(BEFORE) MAXDEPTH(7)", code=None)
    # What changes nothing is no entry of the log; and nothing of the two was done.
    assert "BEFORE" in qm.mqsc("DISPLAY QLOCAL('*')") and "LATER" not in qm.mqsc("DISPLAY QLOCAL('*')")
    assert "MAXDEPTH(7)" not in qm.mqsc("DISPLAY QLOCAL(BEFORE) ALL")
    with qm.connect() as client:
        client.put("BEFORE", Message(body="goes on"))
        assert client.get("BEFORE").body == "goes on"

    limit_files(qm, resource.RLIM_INFINITY)
    wait_until(lambda: "defined" in qm.mqsc("DEFINE QLOCAL(LATER)", code=None), "commands are carried out again")
    qm.run("audit", "verify", "--data", qm.data)
    shown = qm.run("audit", "show", "--json", "--kind", "command,result", "--data", qm.data).stdout.splitlines()
    texts = [entry["what"].get("text") for entry in map(json.loads, shown)]
    assert texts.count("DEFINE QLOCAL(BEFORE)") == 1 and "DEFINE QLOCAL(LATER)" in texts
    assert qm.stop() == 0, "".join(qm.log[-30:])


def test_a_command_that_answers_with_rows_says_that_what_came_of_it_is_not_in_the_log(managers, tmp_path, monkeypatch):
    qm = unharmed(managers, tmp_path, monkeypatch, "rows")
    qm.mqsc("DEFINE QLOCAL(CHECKED)\nSET POLICY(CHECKED) SIGNALG(SHA256)")
    asked = "CHECK POLICY(CHECKED)"
    assert "warning" not in qm.mqsc(asked)
    (log,) = (qm.data / "audit").iterdir()
    command, result = (len(line) for line in log.read_bytes().splitlines(keepends=True)[-2:])
    # There is room for what is asked, and none for what comes of it.
    limit_files(qm, log.stat().st_size + command + result // 2)
    said = qm.run("mqsc", "--data", qm.data, "-c", asked)
    assert b"CHECKED" in said.stdout
    warning = "what came of this is not known to be in the audit log: "
    assert f"bulla: warning: {warning}" in said.stderr.decode(), said

    limit_files(qm, resource.RLIM_INFINITY)
    wait_until(lambda: "defined" in qm.mqsc("DEFINE QLOCAL(LATER)", code=None), "commands are carried out again")
    assert "warning" not in qm.mqsc(asked)
    qm.run("audit", "verify", "--data", qm.data)
    assert qm.stop() == 0, "".join(qm.log[-30:])
