"""Who may administer, and how much: users of the operating system with and without a role, over the second admin socket."""

import json

import pytest

from manager import wait_until
from os_users import CHIEF, GROUP, LOOKER, NO_ROLE, OPERATOR, as_root

pytestmark = as_root
EVENTS = "SYSTEM.ADMIN.QMGR.EVENT"


@pytest.fixture(scope="module")
def qm(managers, program):
    manager = managers(name="ROLES", options=["--admin-directory", program.admin])
    manager.mqsc(
        f"""
        ALTER QMGR AUTHOREV(ENABLED)
        DEFINE QLOCAL(Q)
        DEFINE ADMIN(LOOKERS) OSUSER('{LOOKER}') ROLE(LOOK)
        DEFINE ADMIN(OPERATORS) OSUSER('{OPERATOR}') OSGROUP('{GROUP}') ROLE(OPERATE)
        DEFINE ADMIN(CHIEFS) OSUSER('{CHIEF}') ROLE(ALL)
        """
    )
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0
    assert not (program.admin / "admin.sock").exists()


@pytest.fixture
def give(program):
    """Gives commands as another user; exit code and what was said."""

    def give(text, user, group=None, directory=None):
        done = program(user, "mqsc", "-c", text, group=group, data=directory)
        return done.returncode, done.stdout + done.stderr

    return give


def allowed(answer):
    code, said = answer
    assert code == 0, said
    return said


def refused(answer, role):
    code, said = answer
    assert code != 0 and "2035" in said and f"takes the role {role}" in said, (code, said)


def audited(qm, kind):
    done = qm.run("audit", "show", "--json", "--kind", kind, "--data", qm.data)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_whoever_looks_may_display_and_nothing_else(qm, give):
    assert "CURDEPTH(0)" in allowed(give("DISPLAY QSTATUS(Q) CURDEPTH", LOOKER))
    for shown in ("KEYUSE(*)", "ALGUSE(*)", "KEYROTATE('*')"):
        allowed(give(f"DISPLAY {shown}", LOOKER))
        refused(give(f"DISPLAY {shown}", NO_ROLE), "LOOK")
    for command, role in (
        ("CLEAR QLOCAL(Q)", "OPERATE"),
        ("STOP DEVICE(CPU)", "OPERATE"),
        ("DEFINE QLOCAL(R)", "ALL"),
        ("ALTER ADMIN(LOOKERS) ROLE(ALL)", "ALL"),
    ):
        refused(give(command, LOOKER), role)
    assert "Q" in qm.mqsc("DISPLAY QLOCAL(*)") and "(R)" not in qm.mqsc("DISPLAY QLOCAL(*)")


def test_whoever_operates_may_start_stop_and_clear_by_user_and_by_group(qm, give):
    for user, group in ((OPERATOR, None), (NO_ROLE, GROUP)):
        allowed(give("DISPLAY QMGR", user, group))
        allowed(give("CLEAR QLOCAL(Q)", user, group))
        allowed(give("START DEVICE(CPU)", user, group))
        refused(give("ALTER QLOCAL(Q) MAXDEPTH(7)", user, group), "ALL")
        refused(give("SET AUTHREC PROFILE(Q) OBJTYPE(QUEUE) PRINCIPAL('x') AUTHADD(ALL)", user, group), "ALL")


def test_a_unit_with_one_command_beyond_the_role_changes_nothing(qm, give):
    refused(give("BEGIN UNIT\nDEFINE QLOCAL(U1)", OPERATOR), "ALL")
    assert "(U1)" not in qm.mqsc("DISPLAY QLOCAL(*)")
    allowed(give("BEGIN UNIT\nDEFINE QLOCAL(U1)\nDELETE QLOCAL(U1)", CHIEF))


def test_whoever_may_do_all_may_give_roles_and_take_them(qm, give):
    refused(give("DISPLAY QMGR", NO_ROLE), "LOOK")
    allowed(give(f"ALTER ADMIN(LOOKERS) OSUSER('{LOOKER}', '{NO_ROLE}')", CHIEF))
    allowed(give("DISPLAY QMGR", NO_ROLE))
    allowed(give(f"ALTER ADMIN(LOOKERS) OSUSER('{LOOKER}')", CHIEF))
    refused(give("DISPLAY QMGR", NO_ROLE), "LOOK")


def test_the_owner_s_socket_is_the_owner_s_alone(qm, give):
    code, said = give("DISPLAY QMGR", CHIEF, directory=qm.data)
    assert code != 0 and "no permission" in said, said


def test_a_refusal_is_in_the_log_an_event_and_in_the_audit_log(qm, give):
    refused(give("DEFINE QLOCAL(NOT.YOURS) DESCR('x')", OPERATOR), "ALL")
    wait_until(lambda: any("uid 64002" in line and "2035" in line for line in qm.log), "the log tells")
    of_it = lambda entry: "NOT.YOURS" in entry["what"]["object"]
    [entry] = wait_until(lambda: [entry for entry in audited(qm, "refusal") if of_it(entry)], "the audit log tells")
    assert (entry["who"]["uid"], entry["what"]["action"], entry["what"]["reason"]) == (OPERATOR, "administer", 2035)
    assert not [entry for entry in audited(qm, "command") if "NOT.YOURS" in entry["what"]["text"]]


def test_whoever_operates_has_no_messages_opened_and_sealed_for_others(qm, give):
    refused(give("RESEAL QLOCAL(Q) READER('SEAL.REFUSED')", OPERATOR), "ALL")
    of_it = lambda entry: "SEAL.REFUSED" in entry["what"]["object"]
    [entry] = wait_until(lambda: [entry for entry in audited(qm, "refusal") if of_it(entry)], "the audit log tells")
    assert (entry["who"]["uid"], entry["what"]["reason"]) == (OPERATOR, 2035)
    code, said = give("RESEAL QLOCAL(Q)", CHIEF)
    assert code != 0 and "policy Q does not exist" in said, said

    def events():
        with qm.connect() as client:
            return [json.loads(bytes(message.body)) for message in client.get_all(EVENTS, browse=True)]

    [event] = wait_until(lambda: [event for event in events() if "NOT.YOURS" in event["object"]], "there is an event")
    assert (event["event"], event["user"], event["address"]) == ("NOT.AUTHORIZED", "uid 64002", "admin socket")


def test_who_did_it_is_in_the_audit_log(qm, give):
    allowed(give("DEFINE QLOCAL(BY.CHIEF)", CHIEF))
    [entry] = [entry for entry in audited(qm, "command") if "BY.CHIEF" in entry["what"]["text"]]
    assert (entry["who"]["uid"], entry["who"]["gid"]) == (CHIEF, CHIEF)


def test_roles_are_exported_compared_and_kept(qm, give, tmp_path):
    exported = qm.run("mqsc", "--export", "--data", qm.data).stdout.decode()
    assert "DEFINE ADMIN('OPERATORS')" in exported and "ROLE(OPERATE)" in exported
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text(exported.replace("ROLE(OPERATE)", "ROLE(LOOK)"))
    said = qm.run("mqsc", "--diff", wanted, "--data", qm.data, code=1).stdout.decode()
    assert "ROLE(LOOK)" in said and "ADMIN('OPERATORS')" in said
    assert qm.stop() == 0
    qm.start()
    allowed(give("CLEAR QLOCAL(Q)", OPERATOR))
    assert f"OSUSER({OPERATOR})" in qm.mqsc("DISPLAY ADMIN(OPERATORS)")
