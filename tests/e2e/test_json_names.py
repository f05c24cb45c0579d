"""Every name in the JSON of every command has the one spelling, and stands in the table of names."""

import json
import re
from pathlib import Path

import pytest
from people import People
from proton import Message

from manager import GRANTS, run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/json.md"
PROFILE = ROOT / "docs/measurements/profile.toml"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Members of these are MQSC keywords, in lower case.
ROWS = {"objects[]", "check[]"}
SHORT = ["--self", "--repeats", 1, "--seconds", 0.2, "--warm-up", 0.1, "--quiet", "--json"]


def listed(heading):
    section = re.split(rf"^## {heading}$", PAGE.read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    return set(re.findall(r"`([^`]+)`", section))


@pytest.fixture(scope="module")
def site(managers, authority):
    grants = GRANTS + "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(ALL)\n"
    qm = managers(name="NAMED", grants=grants)
    people = People(qm, authority)
    for name in ("orders", "billing"):
        people.add(name)
    people.seen()
    qm.mqsc(f"""
        DEFINE QLOCAL(PLAIN) MAXDEPTH(2) QDPHIEV(ENABLED) QDEPTHHI(50)
        DEFINE QLOCAL(SEALED)
        DEFINE QALIAS(RAW) TARGET(SEALED)
        ALTER QMGR PERFMEV(ENABLED)
        SET POLICY(SEALED) SIGNALG(SHA256) ENCALG(AES256) +
            SIGNER('{people.dn("orders")}') RECIP('{people.dn("billing")}')
    """)
    with qm.connect("orders") as client:
        client.put("SEALED", Message(b"sealed", id="id-1"))
        client.put("PLAIN", Message(b"half of what there is room for: an event"))
    return qm


def documents(site, tmp_path):
    """What each command prints with --json, and files and messages in JSON: a name for it, and the values."""
    data = ["--data", site.data]
    sealed = tmp_path / "sealed.der"
    sealed.write_bytes(site.run("get", "RAW", "--browse", "--count", 1, "--amqp", site.clear_address).stdout)
    said = lambda *arguments, code=0: [json.loads(site.run(*arguments, code=code).stdout)]  # noqa: E731


    def lines(*arguments):
        return [json.loads(line) for line in site.run(*arguments, code=None).stdout.splitlines()]

    commands = (
        "DISPLAY QMGR ALL; DISPLAY QUEUE(*) ALL; DISPLAY QSTATUS(*) ALL; DISPLAY POLICY(*) ALL; DISPLAY AUTHREC;"
        "DISPLAY CONN(*) ALL; "
        "DISPLAY TASKSTATUS; DISPLAY DEVSTATUS(*) ALL; DISPLAY COSTSTATUS(*) ALL; "
        "HELP DISPLAY; DISPLAY QLOCAL(NO.SUCH); NONSENSE"
    )
    yield "mqsc", said("mqsc", *data, "--json", "-c", commands, code=None)
    wanted = tmp_path / "wanted.mqsc"
    wanted.write_text("DEFINE QLOCAL(ONE.MORE)\n")
    yield "mqsc", said("mqsc", *data, "--json", "--diff", wanted, code=None)
    for report in ("crypto", "chinit", "costs", "queues", "policies"):
        yield f"report {report}", said("report", report, *data, "--since-start", "--json")
    yield "report algorithms", said("report", "algorithms", *data, "--json")
    yield "audit show", lines("audit", "show", *data, "--json")
    log = sorted((site.data / "audit").glob("*.jsonl"))
    yield "audit log", [json.loads(line) for file in log for line in file.open()]
    yield "seal inspect", said("seal", "inspect", sealed, "--json")
    # The first byte of a seed chooses a policy.
    sealed.write_bytes((ROOT / "fuzz/corpus/cms/one_of_a_batch").read_bytes()[1:])
    yield "seal inspect", said("seal", "inspect", sealed, "--json")
    yield "cert list", said("cert", "list", "--ring", "orders", *data, "--json")
    yield "user list", said("user", "list", *data, "--json")
    yield "policy check", said("policy", "check", "SEALED", *data, "--json", "--profile", PROFILE, code=None)
    yield "policy check", said("policy", "check", "SEALED", *data, "--json", "--profile", tmp_path / "none", code=None)
    yield "doctor", said("doctor", "SEALED", *data, "--json", code=None)
    yield "doctor", said("doctor", *data, "--json", code=None)
    yield "plan show", said("plan", "show", PROFILE, "--json")
    for profile in (ROOT / "docs/operating/profiles").glob("*.toml"):
        yield "plan show", said("plan", "show", profile, "--json")
    asked = ["--quality", "privacy", "--key", "rsa2048", "--what-if", "rsa=4096", "--target", "100/s"]
    yield "plan predict", said("plan", "predict", "--profile", PROFILE, *asked, "--json", code=None)
    yield "perf machine", said("perf", "machine")
    yield "perf stream", lines("perf", "stream", *SHORT, "--rate", 200, "--size", "1k", "--quality", "none")
    with site.connect() as client:
        events = client.get_all("SYSTEM.ADMIN.PERFM.EVENT", browse=True)
    assert events
    yield "events", [json.loads(bytes(event.body)) for event in events]


def names(value, inside, maps_by_value):
    """Each name, and whether it is an MQSC keyword's."""
    if isinstance(value, list):
        for entry in value:
            yield from names(entry, f"{inside}[]", maps_by_value)
    elif isinstance(value, dict):
        for key, member in value.items():
            if inside not in maps_by_value:
                yield key, inside in ROWS
            yield from names(member, key, maps_by_value)


def test_every_name_that_commands_print_is_in_the_table_and_spelled_as_it_says(site, tmp_path):
    table, maps_by_value = listed("Names"), listed("Maps by value")
    wrong, keywords = {}, 0
    for output, values in documents(site, tmp_path):
        assert values, output
        for name, is_keyword in names(values, "", maps_by_value):
            keywords += is_keyword
            if not NAME.fullmatch(name) or not is_keyword and name not in table:
                wrong.setdefault(output, set()).add(name)
    assert not wrong, "\n".join(f"{output}: {' '.join(sorted(found))}" for output, found in wrong.items())
    assert keywords > 300 and table and all(NAME.fullmatch(name) for name in table)


def test_the_program_makes_no_name_of_another_spelling():
    """Commands print some names only when something goes wrong; the code that makes them is looked at instead."""
    other = re.compile(r'"([a-z0-9]+(?:-[a-z0-9-]+|[A-Z]\w*)|[A-Z]{2,})":? *(?::|\.into\(\), )')
    wrong = []
    for crate in ("bulla", "bulla-perf", "bulla-seal"):
        for file in (ROOT / "crates" / crate / "src").rglob("*.rs"):
            text = file.read_text()
            # JWKS and ACME have the names of their own standards.
            if {"sign_in", "acme"} & set(file.parts) or "json" not in text:
                continue
            # Messages, commands and queues over HTTP have the names of a published interface, and OpenAPI its own.
            if file.parent.name == "http" and file.stem in ("commands", "message", "openapi", "queue"):
                continue
            wrong += [(file.name, name) for name in other.findall(text.split("#[cfg(test)]")[0])]
    assert not wrong


def test_no_command_has_json_that_is_not_looked_at_here():
    """Every command with --json is among those above; workloads of perf print what stream does."""
    looked_at = {"mqsc", "audit show", "cert list", "user list", "seal inspect"}
    looked_at |= {"policy check", "doctor", "plan show", "plan predict"}
    looked_at |= {f"report {report}" for report in ("crypto", "chinit", "costs", "queues", "policies", "algorithms")}
    found, waiting = set(), [()]
    while waiting:
        command = waiting.pop()
        shown = run(*command, "--help").stdout.decode()
        if "--json" in shown.split("Options:")[-1] and command[:1] != ("perf",):
            found.add(" ".join(command))
        commands = re.search(r"^Commands:\n(.*?)^\s*$", shown, flags=re.MULTILINE | re.DOTALL)
        for word in re.findall(r"^  ([a-z-]+)", commands[1] if commands else "", flags=re.MULTILINE):
            if word != "help":
                waiting.append((*command, word))
    assert found == looked_at
