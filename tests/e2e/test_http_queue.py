"""A queue's attributes over HTTP: who is shown them, who changes which, and what no user learns without the right."""

import json
import re
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from manager import DEADLINE, wait_until
from test_http import Web, basic, error

JSON = "application/json"
PAGE = Path(__file__).parents[2] / "docs/operating/http.md"
DEFINED = """
    DEFINE QLOCAL(ORDERS) DESCR('Bo''s orders') MAXDEPTH(77)
    DEFINE QLOCAL(ORDERS.SECRET)
    DEFINE QLOCAL(ORDERS1) INITQ(SOME.QUEUE)
    DEFINE QALIAS(SHORT) TARGET(ORDERS)
    DEFINE QREMOTE(FAR) RNAME(THERE) RQMNAME(QM2)
    DEFINE QMODEL(SHAPE)
    SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*') AUTHADD(CONNECT)
    SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('inquirer') AUTHADD(INQ)
    SET AUTHREC PROFILE('ORDERS?') OBJTYPE(QUEUE) PRINCIPAL('narrow') AUTHADD(INQ, SET)
    SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('setter') AUTHADD(SET)
    SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('putter') AUTHADD(PUT)
"""


def path(queue, version="v1"):
    return f"/ibmmq/rest/{version}/admin/qmgr/BULLA/queue/{queue}"


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("http-queue", name="BULLA", grants=None, options=["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"])
    manager.mqsc(DEFINED)
    for name in ("inquirer", "setter", "putter", "narrow"):
        manager.add_user(name)
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


def as_user(qm, name, tls=False):
    return Web(qm, tls=tls, authorization=basic(name, qm.passwords[name]))


def shown(web, queue, query="", version="v1"):
    response, body = web.ask("GET", path(queue, version) + query)
    assert response.status == 200, (response.status, body)
    assert response.getheader("Content-Type") == "application/json;charset=utf-8"
    (queue,) = json.loads(body)["queue"]
    return queue


def change(web, queue, what, method="PATCH", media=JSON, version="v1"):
    return web.ask(method, path(queue, version), json.dumps(what), Content_Type=media)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_user_with_inq_is_shown_a_queue_by_the_published_names(qm, version):
    with as_user(qm, "inquirer", tls=True) as web:
        queue = shown(web, "ORDERS", version=version)
        assert (queue["name"], queue["type"]) == ("ORDERS", "local")
        assert queue["general"] == {
            "description": "Bo's orders", "inhibitGet": False, "inhibitPut": False, "isTransmissionQueue": False
        }
        assert queue["storage"]["maximumDepth"] == 77 and queue["storage"]["messageDeliverySequence"] == "priority"
        assert queue["trigger"]["enabled"] is False and queue["trigger"]["type"] == "first"
        assert queue["events"]["depth"]["highPercentage"] == 80
        assert queue["status"] == {"currentDepth": 0, "openInputCount": 0, "openOutputCount": 0}
        assert "extended" in queue and "applicationDefaults" in queue and "alias" not in queue
        only = shown(web, "ORDERS", "?attributes=general.inhibitPut&status=status.currentDepth", version)
        assert only == {"name": "ORDERS", "type": "local", "general": {"inhibitPut": False}, "status": {"currentDepth": 0}}


def test_each_type_of_queue_has_its_own_attributes(qm):
    with as_user(qm, "inquirer") as web:
        assert shown(web, "SHORT")["alias"] == {"targetName": "ORDERS"}
        assert shown(web, "FAR")["remote"]["queueName"] == "THERE" and "status" not in shown(web, "FAR")
        assert shown(web, "SHAPE")["type"] == "model"
        assert error(web.ask("GET", path("NO.SUCH")), 404) == (2085, None)
        # A name with a star is no name for many.
        assert error(web.ask("GET", path("ORDERS*")), 404) == (2085, None)
        assert error(web.ask("GET", path("*")), 404) == (2085, None)
        assert error(web.ask("GET", path("ORDERS") + "?wait=5"), 400) == (None, "query")


def test_a_user_with_set_changes_what_mqset_changes(qm):
    with as_user(qm, "setter") as web:
        for method, version in (("PATCH", "v1"), ("PUT", "v2")):
            assert change(web, "ORDERS", {"general": {"inhibitPut": True, "inhibitGet": True}}, method, version=version)[0].status == 204
            assert "PUT(DISABLED)" in qm.mqsc("DISPLAY QLOCAL(ORDERS) PUT") and "GET(DISABLED)" in qm.mqsc("DISPLAY QLOCAL(ORDERS) GET")
            assert change(web, "ORDERS", {"general": {"inhibitPut": False, "inhibitGet": False}}, method)[0].status == 204
        trigger = {"enabled": True, "type": "depth", "depth": 5, "messagePriority": 3, "data": "SOME.DATA"}
        # A user without INQ is told of nothing that the queue is defined with.
        assert change(web, "ORDERS", {"type": "local", "trigger": trigger})[0].status == 204
        said = qm.mqsc("DISPLAY QLOCAL(ORDERS) ALL")
        for word in ("TRIGGER", "TRIGTYPE(DEPTH)", "TRIGDPTH(5)", "TRIGMPRI(3)", "TRIGDATA(SOME.DATA)", "MAXDEPTH(77)"):
            assert re.search(rf"(^|\s){re.escape(word)}(\s|$)", said), word
        assert change(web, "ORDERS", {"trigger": {"enabled": False, "data": ""}})[0].status == 204
        assert re.search(r"\sNOTRIGGER\s", qm.mqsc("DISPLAY QLOCAL(ORDERS) ALL"))
        assert change(web, "SHORT", {"general": {"inhibitGet": True}})[0].status == 204
        assert "GET(DISABLED)" in qm.mqsc("DISPLAY QALIAS(SHORT) GET") and "GET(ENABLED)" in qm.mqsc("DISPLAY QLOCAL(ORDERS) GET")
        assert change(web, "FAR", {"general": {"inhibitPut": True}})[0].status == 204


def test_a_user_who_may_be_shown_the_queue_is_told_of_warnings(qm):
    with as_user(qm, "narrow") as web:
        response, body = change(web, "ORDERS1", {"trigger": {"enabled": True}})
        assert (response.status, response.getheader("Content-Type")) == (200, f"{JSON};charset=utf-8")
        without_queue, without_program = json.loads(body)["warnings"]
        assert "INITQ(SOME.QUEUE) is no local queue" in without_queue and "PROCESS" in without_program
        assert "TRIGGER" in qm.mqsc("DISPLAY QLOCAL(ORDERS1) TRIGGER")
        response, body = change(web, "ORDERS1", {"trigger": {"enabled": False}}, "PUT")
        assert (response.status, body) == (204, b"")
    with as_user(qm, "setter") as web:
        response, body = change(web, "ORDERS1", {"trigger": {"enabled": True}})
        assert (response.status, body) == (204, b"")


def test_set_changes_nothing_else(qm):
    before = qm.mqsc("DISPLAY QLOCAL(ORDERS) ALL")
    with as_user(qm, "setter") as web:
        for what in (
            {"general": {"description": "mine"}},
            {"storage": {"maximumDepth": 1}},
            {"trigger": {"processName": "EVIL"}},
            {"trigger": {"initiationQueueName": "MINE"}},
            {"trigger": {"data": "x') MAXDEPTH(1) DESCR('"}},
            {"trigger": {"data": "X\nDELETE QLOCAL(ORDERS)"}},
            {"trigger": {"depth": 10**12}},
            {"type": "alias", "general": {"inhibitPut": True}},
            {},
        ):
            assert error(change(web, "ORDERS", what), 400)[1] == "attribute", what
        assert error(change(web, "FAR", {"general": {"inhibitGet": True}}), 400)[1] == "attribute"
        assert error(change(web, "SHAPE", {"general": {"inhibitGet": True}}), 403)[0] == 2045
        assert error(change(web, "NO.SUCH", {"general": {"inhibitGet": True}}), 404)[0] == 2085
        assert error(web.ask("PATCH", path("ORDERS"), "{", Content_Type=JSON), 400)[1] == "attribute"
        assert error(change(web, "ORDERS", {"general": {"inhibitPut": True}}, media="text/plain"), 415)[1] == "media-type"
        assert error(web.ask("PATCH", path("ORDERS"), "x" * 17_000, Content_Type=JSON), 413)[1] == "too-long"
        # SET shows nothing, and puts and gets nothing.
        assert error(web.ask("GET", path("ORDERS")), 403)[0] == 2035
        assert error(web.put("ORDERS", "x"), 403)[0] == 2035
    assert qm.mqsc("DISPLAY QLOCAL(ORDERS) ALL") == before


def test_without_the_right_nobody_learns_what_there_is(qm):
    inhibit = {"general": {"inhibitPut": True}}
    for name in ("putter", "inquirer"):
        with as_user(qm, name) as web:
            asks = [lambda queue: change(web, queue, inhibit), lambda queue: change(web, queue, {"type": "alias", **inhibit})]
            if name == "putter":
                asks.append(lambda queue: web.ask("GET", path(queue)))
            for ask in asks:
                there, missing, odd = (ask(queue) for queue in ("ORDERS", "NOT.IT", "ORDER*"))
                assert error(there, 403)[0] == error(missing, 403)[0] == error(odd, 403)[0] == 2035
                assert there[1].replace(b"ORDERS", b"NOT.IT") == missing[1]
    with as_user(qm, "narrow") as web:
        assert error(web.ask("GET", path("ORDERS.SECRET")), 403)[0] == 2035
        # A profile that fits the star's name shows no other queue by it.
        assert error(web.ask("GET", path("ORDERS*")), 404)[0] == 2085
        assert error(change(web, "ORDERS*", inhibit), 404)[0] == 2085
    with Web(qm) as web:
        refused = web.ask("GET", path("ORDERS"))
        error(refused, 401)
    assert "PUT(ENABLED)" in qm.mqsc("DISPLAY QLOCAL(ORDERS) PUT")


def test_a_page_of_another_site_changes_nothing(qm):
    with as_user(qm, "setter") as web:
        web.connection.request("PATCH", path("ORDERS"), '{"general": {"inhibitPut": true}}', {"Content-Type": JSON, "Authorization": web.authorization})
        assert error(web.answer(), 403)[1] == "csrf-token"
    assert "PUT(ENABLED)" in qm.mqsc("DISPLAY QLOCAL(ORDERS) PUT")


def test_clients_that_have_not_signed_in_have_the_rights_of_anonymous(qm):
    qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHADD(CONNECT)")
    qm.mqsc("SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(INQ)")
    try:
        with Web(qm) as web:
            assert shown(web, "ORDERS")["name"] == "ORDERS"
            assert error(web.ask("GET", path("ORDERS.SECRET")), 401)[0] == 2035
            assert error(change(web, "ORDERS", {"general": {"inhibitPut": True}}), 401)[0] == 2035
    finally:
        qm.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('*ANONYMOUS') AUTHRMV(ALL)")
        qm.mqsc("SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHRMV(ALL)")


def test_changes_and_refusals_are_in_the_audit_log(qm):
    qm.mqsc("DEFINE QLOCAL(WRITTEN.DOWN)")
    with as_user(qm, "setter") as web:
        assert change(web, "WRITTEN.DOWN", {"general": {"inhibitPut": True}})[0].status == 204

    def entries(user):
        told = qm.run("audit", "show", "--json", "--data", qm.data).stdout.decode()
        all_of_them = [json.loads(line) for line in told.splitlines()]
        return [entry for entry in all_of_them if entry["who"].get("user") == user and "WRITTEN.DOWN" in json.dumps(entry)]

    assert {"command", "result"} == {entry["kind"] for entry in entries("setter")}
    assert "ALTER QLOCAL(WRITTEN.DOWN) PUT(DISABLED)" in json.dumps(entries("setter"))

    def refused():
        # Tests before this one have caused so many that some of a second's are only counted.
        with as_user(qm, "putter") as web:
            error(change(web, "WRITTEN.DOWN", {"general": {"inhibitPut": False}}), 403)
            error(web.ask("GET", path("WRITTEN.DOWN")), 403)
        return {entry["what"]["action"] for entry in entries("putter")} == {"set", "inquire"}

    wait_until(refused, "the refusals are written down")


def test_the_description_is_openapi_3_1_and_takes_no_sign_in(qm):
    with Web(qm, tls=True) as web:
        response, body = web.ask("GET", "/openapi.json")
        assert response.status == 200 and response.getheader("Content-Type") == "application/json;charset=utf-8"
        head, nothing = web.ask("HEAD", "/openapi.json")
        assert (head.status, nothing) == (200, b"") and head.getheader("Content-Length") == str(len(body))
        assert error(web.ask("POST", "/openapi.json", b""), 405)[1] == "method"
    document = json.loads(body)
    assert document["openapi"] == "3.1.0"
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_the_description_and_the_page_have_the_same_paths_and_statuses(qm):
    with Web(qm) as web:
        document = json.loads(web.ask("GET", "/openapi.json")[1])
    described = set()
    for address, operations in document["paths"].items():
        short = re.sub(r"^/ibmmq/rest/v\d/(messaging/qmgr/\{qmgr\})?", "", address)
        short = re.sub(r"\{(\w+)\}", lambda name: "NAME" if name[1] == "qmgr" else name[1].upper(), short)
        described |= {(method.upper(), "/" + short.lstrip("/")) for method in operations if method != "parameters"}
    page = PAGE.read_text()
    listed = set()
    for methods, address in re.findall(r"`((?:GET|HEAD|POST|PUT|PATCH|DELETE)(?:, [A-Z]+)*) (/[^` ?]*)", page):
        short = re.sub(r"^/ibmmq/rest/v\d/", "/", address)
        listed |= {(method, short) for method in methods.split(", ")}
    assert listed == described
    table = page.split("## What refusals look like")[1].split("\n## ")[0]
    statuses = {status for row in re.findall(r"^\| ([\d, ]+) \|", table, flags=re.MULTILINE) for status in row.split(", ")}
    refused = {name.removeprefix("Refused") for name in document["components"]["responses"]}
    assert statuses == refused
    for operations in document["paths"].values():
        for method, operation in operations.items():
            if method != "parameters":
                assert {status for status in operation["responses"] if status >= "300"} <= refused
