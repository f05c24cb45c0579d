"""Log-in over HTTP: the cookie that it gives, what ends it, who may use it, and what does not pass for one."""

import base64
import json
import re
import ssl
import subprocess

import pytest

from manager import BULLA, wait_until
from test_http import TEXT, Web, basic, error, path, port

COOKIE = "LtpaToken2"
ATTRIBUTES = {"Path=/", "Secure", "HttpOnly", "SameSite=Strict"}
SESSIONS_OF_USER_MAX = 32


def resource(version="v2"):
    return f"/ibmmq/rest/{version}/login"


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("http-login", name="BULLA", grants=None, options=["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"])
    for name in ("orders", "billing", "barred"):
        manager.add_user(name)
    manager.mqsc(
        "DEFINE QLOCAL(ORDERS)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders', 'billing') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(ALL)\n"
        "DEFINE ADMIN(NIGHT) PRINCIPAL('billing') ROLE(LOOK)"
    )
    yield manager
    assert manager.stop() == 0


def ask_to_log_in(web, user, password, version="v2", **headers):
    body = json.dumps({"username": user, "password": password})
    # As the published example: it has no csrf header, which `Web` would send.
    said = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    web.connection.request("POST", resource(version), body=body, headers=said)
    return web.answer()


def log_in(qm, web, user, **headers):
    """The cookie, as a client sends it back."""
    response, body = ask_to_log_in(web, user, qm.passwords[user], **headers)
    assert (response.status, body) == (204, b""), body
    pair, *attributes = response.getheader("Set-Cookie").split("; ")
    assert set(attributes) == ATTRIBUTES and response.getheader("Cache-Control") == "no-store"
    name, token = pair.split("=", 1)
    assert name == COOKIE and len(base64.urlsafe_b64decode(token + "=")) == 32
    return pair


def who(web, cookie=None, version="v2"):
    response, body = web.ask("GET", resource(version), **({"Cookie": cookie} if cookie else {}))
    if response.status != 200:
        return response.status
    (user,) = json.loads(body)["user"]
    return user["name"], user["role"]


def is_over(answer):
    assert error(answer, 401) == (None, "session-over")
    response = answer[0]
    assert response.getheader("Connection") == "close"
    assert response.getheader("Set-Cookie").startswith(COOKIE + "=; ") and "Max-Age=0" in response.getheader("Set-Cookie")


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_user_logs_in_is_told_who_it_is_and_logs_out(qm, version):
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders", version=version)
        assert who(web, cookie, version) == ("orders", ["MQWebUser"])
        put, _ = web.put("ORDERS", "by cookie", Cookie=cookie)
        assert put.status == 201
        with Web(qm, tls=True) as other:
            assert other.get("ORDERS", Cookie=cookie)[1] == b"by cookie"
        response, body = web.ask("DELETE", resource(version), Cookie=cookie)
        assert (response.status, body) == (204, b"") and "Max-Age=0" in response.getheader("Set-Cookie")
    with Web(qm, tls=True) as web:
        is_over(web.get("ORDERS", Cookie=cookie))


def test_roles_are_told_by_the_published_words(qm):
    with Web(qm, tls=True) as web:
        assert who(web, log_in(qm, web, "billing")) == ("billing", ["MQWebAdminRO", "MQWebUser"])
    with Web(qm, tls=True, authorization=basic("orders", qm.passwords["orders"])) as web:
        assert who(web) == ("orders", ["MQWebUser"]), "a password says it, too"
    with Web(qm, tls=True) as web:
        assert who(web) == 401


def test_what_changes_something_takes_the_csrf_header_beside_the_cookie(qm):
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders")
        for method, target in (("DELETE", resource()), ("POST", path("ORDERS")), ("DELETE", path("ORDERS"))):
            web.connection.request(method, target, body=b"", headers={"Cookie": cookie, "Content-Type": TEXT})
            assert error(web.answer(), 403) == (None, "csrf-token")
        assert who(web, cookie)[0] == "orders"


def test_a_page_of_another_site_can_log_nobody_in(qm):
    body = json.dumps({"username": "orders", "password": qm.passwords["orders"]})
    for media in (TEXT, "application/x-www-form-urlencoded", "multipart/form-data", ""):
        with Web(qm, tls=True) as web:
            refused = web.ask("POST", resource(), body, Content_Type=media)
            assert error(refused, 415)[1] == "media-type" and refused[0].getheader("Set-Cookie") is None


def test_several_credentials_are_refused(qm):
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders")
    good = basic("orders", qm.passwords["orders"])
    for headers in (
        {"Cookie": cookie, "Authorization": good},
        {"Cookie": cookie, "Authorization": "Bearer a.b.c"},
        {"Cookie": f"{cookie}; {cookie}"},
        {"Cookie": f"{COOKIE}=planted; {cookie}"},
    ):
        with Web(qm, tls=True) as web:
            assert error(web.get("ORDERS", **headers), 400) == (None, "ambiguous-credentials")
    with Web(qm, tls=True) as web:
        refused = ask_to_log_in(web, "orders", qm.passwords["orders"], Authorization=good)
        assert error(refused, 400) == (None, "ambiguous-credentials")


def test_a_token_that_a_client_brings_is_never_taken_over(qm):
    planted = COOKIE + "=" + base64.urlsafe_b64encode(b"\7" * 32).decode().rstrip("=")
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders", Cookie=planted)
        assert cookie != planted
    with Web(qm, tls=True) as web:
        again = log_in(qm, web, "orders", Cookie=cookie)
        assert again != cookie
    with Web(qm, tls=True) as web:
        is_over(web.get("ORDERS", Cookie=cookie))
    with Web(qm, tls=True) as web:
        is_over(web.get("ORDERS", Cookie=planted))


@pytest.mark.parametrize(
    "token",
    ["x", "=", '"', "A" * 43, "A" * 6000, "AAAA,BBBB", "%41", "\u00ff\u00fe", base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")],
)
def test_what_is_no_token_is_nobodys(qm, token):
    with Web(qm, tls=True) as web:
        is_over(web.get("ORDERS", Cookie=f"{COOKIE}={token}"))


def test_wrong_log_ins_are_refused_and_say_nothing_of_what_was_there(qm):
    for body, status in (
        ('{"username": "orders", "password": "wrong-secret"}', 401),
        ('{"username": "nobody", "password": "wrong-secret"}', 401),
        ('{"username": "orders", "password": ["wrong-secret"]}', 400),
        ('{"username": "orders"}', 400),
        ("wrong-secret", 400),
        ("", 400),
        ('{"username": "orders", "password": "' + "wrong-secret" * 1000 + '"}', 413),
    ):
        with Web(qm, tls=True) as web:
            response, said = web.ask("POST", resource(), body, Content_Type="application/json")
            assert response.status == status and response.getheader("Set-Cookie") is None
            assert b"wrong-secret" not in said
    with Web(qm, tls=True) as web:
        response, _ = ask_to_log_in(web, "barred", qm.passwords["barred"])
        assert response.status == 403 and response.getheader("Set-Cookie") is None, "a password alone is no CONNECT"


def test_guesses_at_a_log_in_lead_to_the_lockout_and_that_ends_sessions(managers):
    qm = managers("http-login-lockout", name="BULLA", options=["--https", "127.0.0.1:0"])
    qm.add_user("orders")
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders")
    for _ in range(10):
        with Web(qm, tls=True) as web:
            assert ask_to_log_in(web, "orders", "wrong")[0].status == 401
    with Web(qm, tls=True) as web:
        assert ask_to_log_in(web, "orders", qm.passwords["orders"])[0].status == 401
    with Web(qm, tls=True) as web:
        is_over(web.ask("GET", resource(), Cookie=cookie))
    wait_until(lambda: b"lock" in qm.run("audit", "show", "--data", qm.data).stdout, "the lockout is written down")
    assert qm.stop() == 0


def test_a_connection_that_a_browser_kept_goes_over_to_another_user_and_to_none(qm):
    with Web(qm, tls=True) as web:
        assert who(web) == 401
        orders = log_in(qm, web, "orders")
        assert who(web, orders)[0] == "orders"
        billing = log_in(qm, web, "billing")
        assert who(web, billing)[0] == "billing"
        assert error(web.get("ORDERS", Cookie=billing), 403)[0] == 2035
        assert web.get("ORDERS", Cookie=orders)[0].status == 204
        assert who(web) == 401


def test_a_connection_counts_once_however_often_its_user_changes(qm):
    with Web(qm, tls=True) as web:
        first, second = log_in(qm, web, "orders"), log_in(qm, web, "billing")
        for _ in range(20):
            assert who(web, first)[0] == "orders" and who(web, second)[0] == "billing"
        def connections():
            return re.findall(r"USERID\('?([^')]*)", qm.mqsc("DISPLAY CONN(*) ALL"))
        shown = connections()
        assert shown.count("billing") == 1 and shown.count("orders") == 0


def test_another_password_and_removal_end_sessions_and_waiting_requests(managers):
    qm = managers("http-login-ends", name="BULLA", options=["--https", "127.0.0.1:0"])
    qm.mqsc("DEFINE QLOCAL(Q)")
    for end in ("password", "remove", "log-out"):
        name = f"user-{end}"
        qm.add_user(name)
        with Web(qm, tls=True) as web, Web(qm, tls=True) as waits:
            cookie = log_in(qm, web, name)
            waits.send("DELETE", path("Q") + "?wait=100000", headers={"Cookie": cookie})
            wait_until(lambda: qm.status("Q")["IPPROCS"] == 1, "a reader waits")
            if end == "password":
                qm.run("user", "passwd", name, "--rounds", 4096, "--data", qm.data, stdin=b"another one\n")
            elif end == "remove":
                qm.run("user", "remove", name, "--data", qm.data)
            else:
                with Web(qm, tls=True) as other:
                    assert other.ask("DELETE", resource(), Cookie=cookie)[0].status == 204
            is_over(waits.answer())
            # A connection that asks for nothing is closed without a word.
            with Web(qm, tls=True) as other:
                is_over(other.get("Q", Cookie=cookie))
        assert qm.status("Q")["IPPROCS"] == 0
    assert qm.stop() == 0


def test_a_rule_that_keeps_its_user_out_ends_a_session(managers):
    qm = managers("http-login-rule", name="BULLA", options=["--https", "127.0.0.1:0"])
    qm.add_user("orders")
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders")
        rule = "SET CHLAUTH('SYSTEM.DEF.SVRCONN') TYPE(BLOCKUSER) USERLIST('orders')"
        qm.mqsc(rule)
        def refused():
            with Web(qm, tls=True) as other:
                return other.ask("GET", resource(), Cookie=cookie)[0].status in (401, 403)
        wait_until(refused, "the rule is in force")
    qm.mqsc(rule + " ACTION(REMOVE)")
    with Web(qm, tls=True) as web:
        is_over(web.ask("GET", resource(), Cookie=cookie))
    assert qm.stop() == 0


def test_a_user_fills_its_own_sessions_alone(qm):
    with Web(qm, tls=True) as web:
        other = log_in(qm, web, "billing")
    cookies = []
    for _ in range(SESSIONS_OF_USER_MAX + 1):
        with Web(qm, tls=True) as web:
            cookies.append(log_in(qm, web, "orders"))
    with Web(qm, tls=True) as web:
        is_over(web.ask("GET", resource(), Cookie=cookies[0]))
    with Web(qm, tls=True) as web:
        assert who(web, cookies[1])[0] == who(web, cookies[-1])[0] == "orders"
        assert who(web, other)[0] == "billing"


def test_a_cookie_is_taken_where_it_was_given(qm):
    with Web(qm, tls=True) as web:
        secured = log_in(qm, web, "orders")
    with Web(qm) as web:
        clear = log_in(qm, web, "orders")
        assert who(web, clear)[0] == "orders"
    with Web(qm) as web:
        is_over(web.ask("GET", resource(), Cookie=secured))
    with Web(qm, tls=True) as web:
        is_over(web.ask("GET", resource(), Cookie=clear))


def test_no_token_and_no_password_is_in_the_log_the_audit_log_or_on_the_disk(qm):
    with Web(qm, tls=True) as web:
        token = log_in(qm, web, "orders").split("=", 1)[1].encode()
        web.get("ORDERS", Cookie=f"{COOKIE}={token.decode()}")
    with Web(qm, tls=True) as web:
        is_over(web.get("ORDERS", Cookie=f"{COOKIE}={token.decode()[:-1]}"))
    secrets = (token[:-1], qm.passwords["orders"].encode())
    log = "".join(qm.log).encode()
    assert not any(secret in log for secret in secrets)
    for file in qm.data.rglob("*"):
        if file.is_file() and not file.name.endswith(".password"):
            content = file.read_bytes()
            assert not any(secret in content for secret in secrets), file


def test_curl_by_the_published_examples_with_a_cookie_jar(qm, tmp_path):
    jar, url = tmp_path / "cookiejar.txt", f"https://localhost:{port(qm, 'https')}"
    def curl(target, *arguments):
        common = ["curl", "--silent", "--show-error", "--cacert", qm.ca, "--write-out", "%{http_code}"]
        done = subprocess.run([*common, url + target, *arguments], capture_output=True, check=True)
        return done.stdout.decode()
    body = json.dumps({"username": "orders", "password": qm.passwords["orders"]})
    assert curl(resource(), "-X", "POST", "-H", "Content-Type: application/json", "--data", body, "-c", jar) == "204"
    assert COOKIE in jar.read_text()
    assert '"orders"' in curl(resource(), "-b", jar)
    put = ["-X", "POST", "-b", jar, "-H", "ibm-mq-rest-csrf-token: value", "-H", "Content-Type: text/plain", "--data", "x"]
    assert curl(path("ORDERS", "v2"), *put) == "201"
    assert curl(path("ORDERS", "v2"), "-X", "DELETE", "-b", jar, "-H", "ibm-mq-rest-csrf-token: value") == "x200"
    assert curl(resource(), "-X", "DELETE", "-H", "ibm-mq-rest-csrf-token: value", "-b", jar, "-c", jar) == "204"
    assert COOKIE not in jar.read_text()
    assert curl(resource(), "-b", jar).endswith("401")


def test_requests_keeps_the_cookie_of_its_session(qm):
    requests = pytest.importorskip("requests")
    url = f"https://localhost:{port(qm, 'https')}"
    with requests.Session() as session:
        session.verify, session.trust_env = str(qm.ca), False
        session.headers["ibm-mq-rest-csrf-token"] = ""
        said = {"username": "orders", "password": qm.passwords["orders"]}
        assert session.post(url + resource(), json=said).status_code == 204
        assert session.get(url + resource()).json()["user"][0]["name"] == "orders"
        assert session.delete(url + path("ORDERS")).status_code == 204
        assert session.delete(url + resource()).status_code == 204
        assert not session.cookies and session.get(url + resource()).status_code == 401
        assert session.post(url + resource(), json=said).status_code == 204, "and in again"


def shown(qm, user="*"):
    """Log-ins as DISPLAY LOGIN has them."""
    rows = re.findall(r"LOGIN\(([^)]*)\)(.*)", qm.mqsc(f"DISPLAY LOGIN('{user}')", code=None).replace("\n  ", " "))
    rows = [(name, dict(re.findall(r"(\w+)\(([^)]*)\)", rest))) for name, rest in rows]
    return [(name, row) for name, row in rows if row]


def audited(qm):
    """Entries of log-ins in the audit log."""
    lines = qm.run("audit", "show", "--json", "--kind", "log-in", "--data", qm.data).stdout.decode().splitlines()
    return [json.loads(line) for line in lines]


def test_an_administrator_sees_log_ins_and_ends_one_or_all_of_a_user(managers):
    options = ["--https", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    qm = managers("http-login-shown", name="BULLA", options=options)
    qm.add_user("orders")
    qm.add_user("billing")
    cookies = []
    for user, tls in (("orders", True), ("orders", False), ("billing", True)):
        with Web(qm, tls=tls) as web:
            cookies.append(log_in(qm, web, user))
    found = shown(qm)
    assert [(name, row["NUMBER"], row["TLS"]) for name, row in found] == [
        ("billing", "3", "YES"), ("orders", "1", "YES"), ("orders", "2", "NO")]
    for _, row in found:
        assert row["CONNAME"] == "127.0.0.1" and row["SINCE"] <= row["USED"] < row["UNTIL"]
    assert not any(cookie.split("=", 1)[1] in str(found) for cookie in cookies)
    assert "does not exist" in qm.mqsc("STOP LOGIN('billing') NUMBER(1)", code=None)
    with Web(qm, tls=True) as waits:
        qm.mqsc("DEFINE QLOCAL(Q)")
        waits.send("DELETE", path("Q") + "?wait=100000", headers={"Cookie": cookies[0]})
        wait_until(lambda: qm.status("Q")["IPPROCS"] == 1, "a reader waits")
        assert "1 log-in ended" in qm.mqsc("STOP LOGIN('orders') NUMBER(1)")
        is_over(waits.answer())
    with Web(qm, tls=True) as web:
        is_over(web.ask("GET", resource(), Cookie=cookies[0]))
    with Web(qm) as web:
        assert who(web, cookies[1])[0] == "orders", "the other one goes on"
    assert "1 log-in ended" in qm.mqsc("STOP LOGIN('orders')")
    assert [name for name, _ in shown(qm)] == ["billing"] and shown(qm, "orders") == []
    with Web(qm, tls=True) as web:
        assert web.ask("DELETE", resource(), Cookie=cookies[2])[0].status == 204
    metrics = scraped(qm)
    assert metrics["bulla_http_logins"] == "0" and metrics["bulla_http_logins_begun_total"] == "3"
    assert metrics['bulla_http_logins_ended_total{cause="stopped"}'] == "2"
    wait_until(lambda: len(audited(qm)) == 6, "each begin and each end is written down")
    entries = audited(qm)
    begun = [entry for entry in entries if entry["what"]["step"] == "begun"]
    assert [(entry["who"]["user"], entry["what"]["number"]) for entry in begun] == [
        ("orders", 1), ("orders", 2), ("billing", 3)]
    assert all(entry["who"]["address"] == "127.0.0.1" for entry in begun)
    ended = [entry["what"] for entry in entries if entry["what"]["step"] == "ended"]
    assert [(what["user"], what["number"], what["cause"]) for what in ended] == [
        ("orders", 1, "stopped"), ("orders", 2, "stopped"), ("billing", 3, "logged-out")]
    assert not any(cookie.split("=", 1)[1] in json.dumps(entries) for cookie in cookies)
    assert qm.stop() == 0


def scraped(qm):
    lines = qm.metrics().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_log_ins_last_as_long_as_the_queue_manager_says(managers):
    qm = managers("http-login-times", name="BULLA", options=["--https", "127.0.0.1:0"])
    qm.add_user("orders")
    with Web(qm, tls=True) as web:
        old = log_in(qm, web, "orders")
        assert who(web, old)[0] == "orders"
    qm.mqsc("ALTER QMGR LOGINIDLE(1)")
    wait_until(lambda: shown(qm) == [], "it was idle")
    qm.mqsc("ALTER QMGR LOGINIDLE(600) LOGINLIFE(2)")
    with Web(qm, tls=True) as web:
        is_over(web.ask("GET", resource(), Cookie=old))
    with Web(qm, tls=True) as web:
        young = log_in(qm, web, "orders")
        wait_until(lambda: who(web, young) == 401, "however much it is used")
    causes = lambda: [entry["what"].get("cause") for entry in audited(qm)]  # noqa: E731
    wait_until(lambda: causes().count("lifetime") == 1, "it is written down")
    assert [entry["what"]["cause"] for entry in audited(qm) if entry["what"]["step"] == "ended"] == ["idle", "lifetime"]
    assert "LOGINLIFE(2)" in qm.mqsc("DISPLAY QMGR LOGINLIFE")
    for wrong in ("LOGINIDLE(0)", "LOGINLIFE(604801)"):
        assert "LOGIN" in qm.mqsc(f"ALTER QMGR {wrong}", code=2)
    assert qm.stop() == 0


def test_stopping_log_ins_takes_the_role(qm):
    def ask(user, text):
        with Web(qm, tls=True, authorization=basic(user, qm.passwords[user])) as web:
            return web.ask("POST", "/ibmmq/rest/v2/admin/action/qmgr/BULLA/mqsc", text, Content_Type=TEXT)
    with Web(qm, tls=True) as web:
        cookie = log_in(qm, web, "orders")
    # `billing` has the role LOOK, `orders` has none.
    assert ask("billing", "DISPLAY LOGIN('orders')")[0].status == 200
    assert ask("billing", "STOP LOGIN('orders')")[0].status == 403
    assert ask("orders", "DISPLAY LOGIN('*')")[0].status == 403
    with Web(qm, tls=True) as web:
        assert who(web, cookie)[0] == "orders"
