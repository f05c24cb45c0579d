"""Commands and health over HTTP: what is answered, who may have what carried out, and what the audit log says of it."""

import errno
import json
import os
import re
import socket
import subprocess
import threading

import pytest

from manager import DEADLINE, wait_until
from test_http import Web, basic, error, port

PATH = "/ibmmq/rest/v2/admin/action/qmgr/BULLA/mqsc"
JSON = "application/json"
TEXT = "text/plain;charset=utf-8"
BODY_BYTES_MAX = 128 << 10
MIB = 1 << 20


def command(web, text, path=PATH, **headers):
    """The published form: a command in JSON, answered in JSON."""
    body = json.dumps({"type": "runCommand", "parameters": {"command": text}})
    return web.ask("POST", path, body, **{"Content_Type": JSON, **headers})


def done(answer):
    response, body = answer
    assert response.status == 200, (response.status, body)
    return json.loads(body)


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("http-admin", name="BULLA", options=["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"])
    for name in ("carol", "olaf", "mallory"):
        manager.add_user(name)
    manager.mqsc("DEFINE ADMIN(PLATFORM) PRINCIPAL('carol') ROLE(ALL); DEFINE ADMIN(NIGHT) PRINCIPAL('olaf') ROLE(OPERATE)")
    yield manager
    assert manager.stop() == 0


def as_user(qm, name, tls=True):
    return Web(qm, tls=tls, authorization=basic(name, qm.passwords[name]))


@pytest.fixture
def carol(qm):
    with as_user(qm, "carol") as web:
        yield web


def test_a_command_is_carried_out_and_answered_as_published(qm, carol):
    said = done(command(carol, "DEFINE QLOCAL(ORDERS) MAXDEPTH(77)"))
    assert said["overallCompletionCode"] == 0 and said["overallReasonCode"] == 0
    assert [row["completionCode"] for row in said["commandResponse"]] == [0]
    said = done(command(carol, "DISPLAY QLOCAL(ORDERS) MAXDEPTH"))
    assert "MAXDEPTH(77)" in "".join(said["commandResponse"][0]["text"])
    assert "MAXDEPTH(77)" in qm.mqsc("DISPLAY QLOCAL(ORDERS) MAXDEPTH")


def test_a_command_that_fails_has_its_reason(carol):
    said = done(command(carol, "DISPLAY QLOCAL(NO.SUCH); DISPLAY QMGR; NONSENSE"))
    codes = [(row["completionCode"], row["reasonCode"]) for row in said["commandResponse"]]
    assert codes[0] == (2, 2085) and codes[1] == (0, 0) and codes[2][0] == 2
    assert said["overallCompletionCode"] == 2 and said["overallReasonCode"] == 2085


def test_several_commands_come_and_are_answered_as_text(qm, carol):
    text = "DEFINE QLOCAL(T1)\nDEFINE QLOCAL(T2)\nDISPLAY QLOCAL('T*')\n"
    response, body = carol.ask("POST", PATH, text, Content_Type=TEXT, Accept="text/plain")
    assert response.status == 200 and response.getheader("Content-Type") == TEXT
    assert body.decode().count("QUEUE(T") == 2
    assert "QUEUE(T2)" in qm.mqsc("DISPLAY QLOCAL(T2)")


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_each_version_has_it(carol, version):
    done(command(carol, "PING QMGR", path=PATH.replace("v2", version)))


def test_only_a_role_lets_commands_be_carried_out(qm):
    with as_user(qm, "mallory") as web:
        assert error(command(web, "DEFINE QLOCAL(HERS)"), 403) == (2035, "role")
        # A user without a role is refused once, whatever the request has.
        assert error(command(web, "DISPLAY QMGR\nDISPLAY QLOCAL(*)\n" * 50), 403) == (2035, "role")
    with as_user(qm, "olaf") as web:
        assert done(command(web, "DISPLAY QMGR"))["overallCompletionCode"] == 0
        assert error(command(web, "DEFINE QLOCAL(HIS)"), 403) == (2035, "role")
        said = done(command(web, "DISPLAY QMGR; DEFINE QLOCAL(HIS)"))
        assert [row["reasonCode"] for row in said["commandResponse"]] == [0, 2035]
    with Web(qm) as web:
        error(command(web, "DISPLAY QMGR"), 401)
    for name in ("HERS", "HIS"):
        assert "2085" in qm.mqsc(f"DISPLAY QLOCAL({name})", code=None)


@pytest.mark.parametrize("tls", [False, True])
def test_a_rule_for_addresses_makes_no_administrator(qm, tls):
    """A client without credentials that a rule lets act as a user with a role has nothing carried out."""
    rule = "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('127.0.0.1')"
    qm.mqsc(f"{rule} USERSRC(MAP) MCAUSER('carol')")
    try:
        with Web(qm, tls=tls) as web:
            error(command(web, "DEFINE QLOCAL(BY.A.STRANGER)"), 401)
    finally:
        qm.mqsc(f"{rule} ACTION(REMOVE)")
    assert "2085" in qm.mqsc("DISPLAY QLOCAL(BY.A.STRANGER)", code=None)


def test_a_certificate_of_no_user_makes_no_administrator(qm, authority):
    """The certificate is verified and names no user, and a rule for addresses gives its client one."""
    (qm.data / "tls/clients.pem").write_bytes(authority.pem)

    def ask(name, text):
        identity = authority.issue(name)
        chain = qm.data / "shown.chain"
        chain.write_bytes(identity.pem)
        with Web(qm, tls=True, certificate=(chain, identity.key)) as web:
            return command(web, text)

    wait_until(lambda: ask("carol", "PING QMGR")[0].status == 200, "certificates are asked for")
    rule = "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('127.0.0.1')"
    qm.mqsc(f"{rule} USERSRC(MAP) MCAUSER('carol')")
    try:
        error(ask("no user", "DEFINE QLOCAL(BY.A.CERTIFICATE)"), 401)
    finally:
        qm.mqsc(f"{rule} ACTION(REMOVE)")
        (qm.data / "tls/clients.pem").unlink()
    assert "2085" in qm.mqsc("DISPLAY QLOCAL(BY.A.CERTIFICATE)", code=None)


def test_a_role_that_is_taken_away_ends_with_the_next_command(qm):
    qm.add_user("dave")
    qm.mqsc("DEFINE ADMIN(SHORT) PRINCIPAL('dave') ROLE(ALL)")
    with as_user(qm, "dave") as web:
        assert done(command(web, "PING QMGR"))["overallCompletionCode"] == 0
        assert done(command(web, "DELETE ADMIN(SHORT)"))["overallCompletionCode"] == 0
        assert error(command(web, "PING QMGR"), 403) == (2035, "role")


def test_what_was_done_and_refused_is_in_the_audit_log(qm):
    with as_user(qm, "carol") as web:
        done(command(web, "DEFINE QLOCAL(WRITTEN.DOWN)"))
    with as_user(qm, "mallory") as web:
        error(command(web, "DELETE QLOCAL(WRITTEN.DOWN)"), 403)

    def mine():
        shown = qm.run("audit", "show", "--json", "--data", qm.data).stdout.decode()
        return [entry for entry in map(json.loads, shown.splitlines()) if "WRITTEN.DOWN" in json.dumps(entry)]

    # A command is written down before it is answered; a refusal soon after.
    assert {"command", "result"} == {entry["kind"] for entry in mine() if entry["who"]["user"] == "carol"}
    wait_until(lambda: any(entry["who"]["user"] == "mallory" for entry in mine()), "the refusal is written down")
    assert all(entry["who"]["address"].startswith("127.0.0.1:") for entry in mine())


def test_a_page_of_another_site_can_have_nothing_carried_out(qm, carol):
    carol.connection.request("POST", PATH, "DEFINE QLOCAL(FORGED)", {"Content-Type": TEXT, "Authorization": carol.authorization})
    assert error(carol.answer(), 403)[1] == "csrf-token"
    assert "2085" in qm.mqsc("DISPLAY QLOCAL(FORGED)", code=None)


@pytest.mark.parametrize(
    ("body", "media", "status"),
    [
        (b"{", JSON, 400),
        (b'{"type": "runCommandJSON", "command": "display"}', JSON, 400),
        (b'{"type": "runCommandJSON", "command": "help", "qualifier": ""}', JSON, 400),
        (b'{"type": "runSomething"}', JSON, 400),
        (b'{"type": "runCommand"}', JSON, 400),
        (b"\xff", TEXT, 400),
        (b"", TEXT, 400),
        (b"<x/>", "application/xml", 415),
    ],
)
def test_what_can_not_be_read_is_refused(carol, body, media, status):
    error(carol.ask("POST", PATH, body, Content_Type=media), status)


def test_other_methods_and_queue_managers_are_refused(carol):
    assert error(carol.ask("GET", PATH), 405)[1] == "method"
    assert error(command(carol, "PING QMGR", path=PATH.replace("BULLA", "OTHER")), 404)[1] == "queue-manager"


def test_a_body_that_is_too_long_is_refused_before_it_is_read(qm):
    with as_user(qm, "carol", tls=False) as web, socket.create_connection(("127.0.0.1", port(qm, "http")), DEADLINE) as plain:
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nibm-mq-rest-csrf-token: \r\n"
            f"Authorization: {web.authorization}\r\nContent-Length: {BODY_BYTES_MAX + 1}\r\n\r\n"
        )
        plain.sendall(head.encode())
        assert plain.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_long_body_in_chunks_is_cut_off(qm):
    with as_user(qm, "carol", tls=False) as web:
        pieces = (b"*" * 65536 for _ in range(64))
        try:
            answer = web.ask("POST", PATH, pieces, Content_Type=TEXT)
        except (BrokenPipeError, ConnectionResetError):
            return
        error(answer, 413)


def test_commands_of_many_connections_are_bounded_and_all_answered(qm):
    """Of one user two wait at a time; others are told to come again. Messages go on meanwhile."""
    text = "DISPLAY QLOCAL(*) ALL\n" * 200
    statuses = []

    def ask():
        with as_user(qm, "carol") as web:
            statuses.append(web.ask("POST", PATH, text, Content_Type=TEXT)[0].status)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    with Web(qm) as web:
        for _ in range(20):
            assert web.put("ORDERS", b"x")[0].status == 201
    for thread in threads:
        thread.join(DEADLINE)
    assert len(statuses) == 12 and set(statuses) <= {200, 429} and statuses.count(200) >= 2


def test_a_client_that_leaves_does_not_undo_its_command(qm):
    with as_user(qm, "carol", tls=False) as web:
        web.send("POST", PATH, "DEFINE QLOCAL(LEFT.BEHIND)", {"Content-Type": TEXT})
    wait_until(lambda: "LEFT.BEHIND" in qm.mqsc("DISPLAY QLOCAL('LEFT*')", code=None), "the command is carried out")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_health_needs_no_credentials_and_leaves_no_trace(qm, path):
    with Web(qm) as web:
        for method in ("GET", "HEAD"):
            response, body = web.ask(method, path)
            assert response.status == 200 and response.getheader("Cache-Control") == "no-store"
            assert body == (b"ok\n" if method == "GET" else b"")
        assert error(web.ask("POST", path, b""), 405)[1] == "method"
        # The connection can sign in afterwards.
        web.authorization = basic("carol", qm.passwords["carol"])
        assert done(command(web, "PING QMGR"))["overallCompletionCode"] == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own that is full at 256 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={256 * MIB}", "bulla-test", folder]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only a superuser who may mount can make a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_while_the_disk_is_all_but_full_clients_are_kept_away_and_come_back(small_disk, managers):
    qm = managers(data=small_disk / "qm", options=["--http", "127.0.0.1:0"])
    qm.mqsc("DEFINE QLOCAL(Q)")
    def ready():
        with Web(qm) as web:
            response, body = web.ask("GET", "/readyz")
        return response.status, body.decode()
    assert ready() == (200, "ok\n")
    filler = small_disk / "filler"
    def leave(free):
        """Fills the disk, or empties it, until so many bytes are free."""
        def filled():
            space = os.statvfs(small_disk)
            there = filler.stat().st_size if filler.exists() else 0
            with filler.open("ab") as file:
                file.truncate(there + space.f_bavail * space.f_frsize - free)
                try:
                    os.posix_fallocate(file.fileno(), 0, max(1, os.fstat(file.fileno()).st_size))
                except OSError as refused:
                    # The journal may have taken room of its own since it was measured.
                    if refused.errno != errno.ENOSPC:
                        raise
                    file.truncate(there)
                    return False
            return True
        wait_until(filled, f"{free} bytes are free")
    leave(12 * MIB)
    wait_until(lambda: ready()[0] == 503, "there is next to no room")
    status, body = ready()
    assert json.loads(body)["error"]["cause"] == "disk-low", body
    with Web(qm) as web:
        response, body = web.ask("GET", "/readyz", Accept="text/plain")
        assert response.status == 503 and body.decode().startswith("disk-low: ")
        assert web.ask("GET", "/livez")[0].status == 200, "it lives"
        assert web.put("Q", b"x")[0].status == 201, "and does what it can"
    leave(20 * MIB)
    wait_until(lambda: ready() == (200, "ok\n"), "there is room again")
    filler.unlink()
    assert qm.stop() == 0, "".join(qm.log[-30:])


def test_what_is_shown_is_bounded(qm):
    """A user who may only look makes the queue manager hold no more than a few MiB."""
    with as_user(qm, "olaf") as web:
        text = "DISPLAY QLOCAL(*) ALL\n" * 5_000
        response, body = web.ask("POST", PATH, text, Content_Type=TEXT)
    assert response.status in (200, 500) and len(body) <= 16 << 20
    assert b"2102" in body or b"answer-too-long" in body


def in_pieces(web, verb, noun, name=None, **more):
    body = {"type": "runCommandJSON", "command": verb, "qualifier": noun, **more}
    if name is not None:
        body["name"] = name
    return web.ask("POST", PATH, json.dumps(body), Content_Type=JSON)


def test_a_command_in_pieces_is_carried_out_and_answered_by_keyword(qm, carol):
    said = done(in_pieces(carol, "define", "qlocal", "PIECES", parameters={"maxdepth": 7, "descr": "Bo's; (one)", "replace": "yes"}))
    assert said["overallCompletionCode"] == 0 and said["commandResponse"][0]["message"] == ["queue PIECES defined"]
    said = done(in_pieces(carol, "display", "queue", "PIECES", responseParameters=["maxdepth", "descr", "curdepth"]))
    (only,) = said["commandResponse"]
    assert only["parameters"]["queue"] == "PIECES" and only["parameters"]["descr"] == "Bo's; (one)"
    assert (only["parameters"]["maxdepth"], only["parameters"]["curdepth"]) == (7, 0)
    assert (only["completionCode"], only["reasonCode"]) == (0, 0)
    done(in_pieces(carol, "define", "ql", "PIECES.TWO"))
    said = done(in_pieces(carol, "DISPLAY", "QLOCAL", "PIECES*", parameters={"where": ["maxdepth", "eq", 7]}, responseParameters=["all"]))
    assert [row["parameters"]["queue"] for row in said["commandResponse"]] == ["PIECES"]
    assert done(in_pieces(carol, "display", "ql", "NOTHING.LIKE.IT*"))["commandResponse"] == []
    said = done(in_pieces(carol, "display", "ql", "NO.SUCH"))
    assert said["overallReasonCode"] == 2085 and "2085" in said["commandResponse"][0]["message"][0]


def test_no_value_of_a_command_in_pieces_becomes_another_command(qm, carol):
    """Quotes, parentheses, continuations and line ends stay in the value, or the command is refused."""
    qm.mqsc("DEFINE QLOCAL(VICTIM)")
    for nasty in (
        "X'); DELETE QLOCAL(VICTIM",
        "X') REPLACE; DELETE QLOCAL(VICTIM) *",
        "X\nDELETE QLOCAL(VICTIM)",
        "X' +\r\nDELETE QLOCAL(VICTIM)",
        "X\u2028DELETE QLOCAL(VICTIM)",
        "'; DELETE QLOCAL('VICTIM",
        "''); DELETE QLOCAL(VICTIM)",
    ):
        in_pieces(carol, "define", "qlocal", nasty)
        in_pieces(carol, "define", "qlocal", "CARRIER", parameters={"descr": nasty, "replace": "yes"})
        in_pieces(carol, "define", "qlocal", "CARRIER2", parameters={"maxdepth": nasty})
        in_pieces(carol, "define", "qlocal", "CARRIER3", parameters={nasty: "1"})
        in_pieces(carol, "define", "qlocal", "CARRIER4", parameters={"trigger": nasty})
        in_pieces(carol, nasty, "qlocal", "CARRIER5")
        in_pieces(carol, "display", nasty, "CARRIER6")
        in_pieces(carol, "display", "qlocal", "*", responseParameters=[nasty])
        in_pieces(carol, "display", "qlocal", "*", parameters={"where": ["descr", "eq", nasty]})
    assert "VICTIM" in qm.mqsc("DISPLAY QLOCAL(VICTIM)")


def test_a_role_covers_commands_in_pieces_as_it_covers_texts(qm):
    with as_user(qm, "olaf") as web:
        assert done(in_pieces(web, "display", "qmgr"))["overallCompletionCode"] == 0
        assert error(in_pieces(web, "define", "qlocal", "HIS"), 403) == (2035, "role")
    with as_user(qm, "mallory") as web:
        assert error(in_pieces(web, "display", "qmgr"), 403) == (2035, "role")
    with Web(qm) as web:
        error(in_pieces(web, "display", "qmgr"), 401)


def test_metrics_are_for_users_with_a_role(qm):
    qm.mqsc("DEFINE QLOCAL(COUNTED)")
    with as_user(qm, "olaf") as web:
        response, body = web.ask("GET", "/metrics")
        assert response.status == 200 and response.getheader("Content-Type").startswith("text/plain; version=0.0.4")
        assert response.getheader("Cache-Control") == "no-store"
        assert re.search(r'^bulla_queue_depth\{[^}]*queue="COUNTED"[^}]*\} 0$', body.decode(), flags=re.MULTILINE)
        assert error(web.ask("POST", "/metrics", b""), 405)[1] == "method"
    with as_user(qm, "mallory") as web:
        assert error(web.ask("GET", "/metrics"), 403) == (2035, "role")
    for tls in (False, True):
        with Web(qm, tls=tls) as web:
            assert error(web.ask("GET", "/metrics"), 401)[1] == "credentials"
    rule = "SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('127.0.0.1')"
    qm.mqsc(f"{rule} USERSRC(MAP) MCAUSER('carol')")
    try:
        with Web(qm) as web:
            error(web.ask("GET", "/metrics"), 401)
    finally:
        qm.mqsc(f"{rule} ACTION(REMOVE)")
