"""`bulla doctor` looks at certificates that renew by themselves: each thing that keeps one from coming is made on purpose,
is found with its cause, and the command beside it mends it or asks again."""

import json
import os
import shlex
import socket

import pytest

import spiffe_agent
from manager import wait_until
from test_doctor import ill
from test_enrolment import SERVER, Company, ring

WEB = '[authorities.company]\n{way} = "{url}"\nseconds = 5\ntrust = "{trust}"\n'
SPIFFE = '[authorities.spire]\nspiffe = "unix:{socket}"\n[certificates.server]\nauthority = "spire"\n'


class Ward(Company):
    """A queue manager and its authority, with what doctor finds of ENROL."""

    def found(self, *options):
        done = self.qm.run("doctor", "--data", self.qm.data, "--json", *options, code=None)
        return [row for row in json.loads(done.stdout)["found"] if row["check"] == "ENROL"]

    def ill(self, *options):
        """The only thing that is not well, with its commands."""
        rows = [row for row in self.found(*options) if row["condition"] in ("BROKEN", "WARNING")]
        assert len(rows) == 1, rows
        return rows[0]

    def is_well(self, *options):
        rows = self.found(*options)
        assert rows and {row["condition"] for row in rows} == {"WELL"}, rows
        return rows

    def writes(self, text):
        aside = self.qm.data / "enrolment.new"
        aside.write_text(text)
        aside.chmod(0o600)
        aside.rename(self.qm.data / "enrolment.toml")

    def runs(self, row):
        """The command of a finding, as it stands there."""
        program, *arguments = shlex.split(row["mend"][0])
        if program == "bulla":
            return self.qm.run(*arguments, code=None)
        assert program in ("chmod", "chown"), row
        os.spawnlp(os.P_WAIT, program, program, *arguments)


@pytest.fixture(scope="module")
def ward(managers, tmp_path_factory):
    ward = Ward(managers(name="ENROLWARD"), tmp_path_factory.mktemp("ward") / "company")
    ward.qm.add_user("billing")
    yield ward
    wait_until(lambda: not ward.running(), f"the program has ended: {ward.running()}")


@pytest.fixture(autouse=True)
def fresh(ward):
    ward.does("signs")
    yield
    (ward.qm.data / "enrolment.toml").unlink(missing_ok=True)


def test_nothing_that_renews_is_well_and_so_is_what_does(ward):
    assert "nothing renews by itself" in ward.is_well()[0]["details"]
    ward.writes("")
    assert "names no certificate" in ward.is_well()[0]["details"]
    ward.configure(ring("billing", "orders"), SERVER)
    ward.reaches("billing", "VALID")
    assert ward.qm.run("cert", "renew", "--data", ward.qm.data).returncode == 0
    wait_until(lambda: ward.row("server")["STATE"] == "VALID", "it is seen")
    rows = {row["about"]: row["details"] for row in ward.is_well()}
    assert set(rows) == {"user billing", "tls/server.pem"}
    assert all("; company is asked for the next at 20" in details for details in rows.values()), rows
    # Of one user that ring, and what is of no user.
    assert [row["about"] for row in ward.is_well("--user", "orders")] == ["tls/server.pem"]


def test_a_file_that_others_may_write_or_that_says_nothing_known_is_broken(ward):
    file = ward.qm.data / "enrolment.toml"
    ward.configure(SERVER)
    file.chmod(0o666)
    row = ward.ill()
    assert (row["condition"], row["mend"]) == ("BROKEN", [f"chmod go-w {file}"]), row
    assert "others may write it (mode 666)" in row["details"]
    ward.runs(row)
    ward.is_well()
    ward.writes('[certificates.server]\nauthority = "gone"\n')
    row = ward.ill()
    assert row["condition"] == "BROKEN" and "there is no authorities.gone" in row["details"]
    assert row["mend"] == [f"vi {file}"]


def test_a_program_that_can_t_be_run_is_found_before_it_is_needed(ward):
    ward.configure(SERVER)
    program = ward.folder / "sign"
    ward.is_well()
    program.chmod(0o777)
    row = ward.ill()
    assert (row["condition"], row["about"], row["mend"]) == ("WARNING", "authorities.company", [f"chmod go-w {program}"])
    ward.runs(row)
    program.chmod(0o644)
    row = ward.ill()
    assert "Permission denied" in row["details"] and row["mend"] == [f"chmod u+x {program}"], row
    ward.runs(row)
    ward.is_well()
    program.rename(ward.folder / "aside")
    row = ward.ill()
    assert f"{program}: No such file" in row["details"] and row["mend"] == [f"vi {ward.qm.data}/enrolment.toml"], row
    (ward.folder / "aside").rename(program)


def test_a_file_of_authorities_that_is_missing_empty_or_not_safe_is_found(ward):
    trust = ward.folder / "ca.pem"
    ward.configure(SERVER)
    kept = trust.read_bytes()
    trust.chmod(0o622)
    row = ward.ill()
    assert row["mend"] == [f"chmod go-w {trust}"] and "others may write it" in row["details"], row
    ward.runs(row)
    ward.is_well()
    trust.write_bytes(b"")
    assert str(trust) in ward.ill()["details"]
    trust.unlink()
    assert f"{trust}: No such file" in ward.ill()["details"]
    trust.write_bytes(kept)


def test_a_secret_that_others_may_read_or_that_is_empty_is_found(ward):
    secret = ward.folder / "secret"
    secret.write_text("word\n")
    secret.chmod(0o640)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/pkix/"
        way = WEB.format(way="cmp", url=url, trust=ward.folder / "ca.pem")
        ward.writes(f'{way}reference = "1"\nsecret_file = "{secret}"\n{SERVER}')
        row = ward.ill()
        assert "others may read it" in row["details"] and row["mend"] == [f"chmod 600 {secret}"], row
        ward.runs(row)
        ward.is_well()
        secret.write_text("\n")
        assert "its first line is empty" in ward.ill()["details"]


@pytest.mark.parametrize(("way", "scheme"), [("cmp", "http"), ("cmp", "https"), ("acme", "https")])
def test_a_server_that_is_away_or_not_believed_is_told_and_asked_nothing(ward, way, scheme):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        names = '\nnames = ["dns:mq.example"]\n' if way == "acme" else ""
        url = f"{scheme}://127.0.0.1:{port}/"
        ward.writes(WEB.format(way=way, url=url, trust=ward.folder / "ca.pem") + SERVER + names)
        if scheme == "http":
            rows = ward.is_well()
            assert any("takes connections" in row["details"] for row in rows), rows
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1) == b"", "it is asked nothing"
        else:
            # It takes the connection and says nothing of TLS.
            row = ward.ill()
            assert row["condition"] == "WARNING" and row["about"] == "authorities.company", row
            assert "no connection within 1 s" in row["details"] or "no answer within 1 s" in row["details"], row
    row = ward.ill()
    assert "can't connect to" in row["details"] and row["mend"][0].startswith("curl --verbose"), row
    if scheme == "https":
        # The queue manager's own listener is there, with a certificate that this authority did not issue.
        ward.qm.run("cert", "create", "--ca", "else", "--dn", "CN=Else", "--key", "p256", "--data", ward.folder / way)
        trust = ward.folder / way / "authorities/else/ca.pem"
        url = f"https://127.0.0.1:{ward.qm.ports['amqps']}/"
        ward.writes(WEB.format(way=way, url=url, trust=trust) + SERVER + names)
        assert "its certificate is not believed" in ward.ill()["details"]


def test_an_agent_of_spiffe_that_is_away_is_told(ward, tmp_path_factory):
    agent = spiffe_agent.Agent(tmp_path_factory.mktemp("s"))
    try:
        ward.writes(SPIFFE.format(socket=agent.socket))
        rows = [row for row in ward.found() if row["about"] == "authorities.spire"]
        assert [row["condition"] for row in rows] == ["WELL"] and "takes connections" in rows[0]["details"], rows
    finally:
        agent.stop()
    rows = [row for row in ward.found() if row["about"] == "authorities.spire"]
    assert [row["condition"] for row in rows] == ["WARNING"] and "No such file" in rows[0]["details"], rows
    assert rows[0]["mend"] == [f"vi {ward.qm.data}/enrolment.toml"]
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(agent.socket))
    rows = [row for row in ward.found() if row["about"] == "authorities.spire"]
    assert "Connection refused" in rows[0]["details"] and rows[0]["mend"] == [f"ls -l {agent.socket}"], rows


@pytest.mark.parametrize("mode", ["refuses", "undecided"])
def test_a_certificate_that_does_not_come_is_told_with_its_cause_and_the_command_that_asks_again(ward, mode):
    ward.does(mode)
    name = f"gone-{mode}"
    ward.configure(ring(name, "orders"))
    ward.reaches(name, "UNDECIDED" if mode == "undecided" else "FAILING")
    row = ward.ill()
    assert (row["condition"], row["about"]) == ("BROKEN", f"user {name}"), row
    why = "not decided yet" if mode == "undecided" else "refused: exit status 4: the profile is closed"
    assert why in row["details"] and ", next at 20" in row["details"] and "there is none" in row["details"], row
    assert row["mend"] == [f"bulla key enrol {name} --data {ward.qm.data}"]
    ward.does("signs", 86_400 if mode == "undecided" else 5)
    assert ward.runs(row).returncode == 0
    if mode == "refuses":
        # It comes, and its end passes while the next one does not come.
        ward.does("refuses")
        wait_until(lambda: any(row["cause"] == "certificate-expired" for row in ward.found()), "it has ended", 20)
        row = ward.ill()
        assert row["condition"] == "BROKEN" and "the one there is ended at" in row["details"], row
    else:
        wait_until(lambda: not ill(ward.found()), "it is seen")


def test_what_is_over_its_time_and_was_not_renewed_is_told_with_a_queue_manager_and_without(ward, managers):
    other = Ward(managers("late", name="LATE"), ward.folder / "late")
    other.does("signs", 12)
    other.configure(SERVER)
    assert other.qm.run("cert", "renew", "--data", other.qm.data).returncode == 0
    # While it is asked and does not answer, it is due and nothing has failed yet.
    other.does("hangs")
    wait_until(lambda: any("the queue manager has not done it yet" in row["details"] for row in other.found()), "due", 20)
    assert other.qm.stop() == 0
    other.does("signs")
    row = other.ill()
    assert "was to be renewed from" in row["details"] and "no queue manager runs that would" in row["details"], row
    assert row["mend"] == [f"bulla cert renew server --data {other.qm.data}"]
    assert other.runs(row).returncode == 0
    other.is_well()
    other.configure(ring("orders", "billing"))
    row = other.ill()
    assert row["condition"] == "WARNING" and "no queue manager runs that would ask; there is none" in row["details"], row


def test_a_certificate_of_tls_that_can_t_be_read_is_broken(ward):
    ward.configure(SERVER.replace("server", "spare"))
    wait_until(lambda: ward.row("spare")["STATE"] == "FAILING", "it has no names yet")
    (ward.qm.data / "tls/spare.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    row = ward.ill()
    assert row["condition"] == "BROKEN" and row["about"] == "tls/spare.pem", row
    assert row["mend"] == [f"ls -l {ward.qm.data}/tls"]
    (ward.qm.data / "tls/spare.pem").unlink()
