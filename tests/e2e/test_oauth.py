"""Sign-in by bearer token: who is let in as whom, what is refused and how, and keys that change."""

import json
import subprocess
import time

import pytest

import sasl
import tokens
from manager import BULLA, DEADLINE, wait_until
from tokens import Issuer

EVENTS = "SYSTEM.ADMIN.QMGR.EVENT"
# By how much the machine's clock may have moved against time itself in a test (seconds).
DRIFT = 1


@pytest.fixture(scope="module")
def issuers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("issuer")
    return {algorithm: Issuer(folder, algorithm, f"key-{algorithm}") for algorithm in tokens.KINDS}


@pytest.fixture(scope="module")
def guarded(managers, issuers):
    """Takes tokens; `orders` may use ORDERS, and nobody anything else."""
    manager = managers("guarded", name="BULLA", grants=None)
    manager.mqsc(
        f"ALTER QMGR OAUTHISS('{tokens.ISSUER}') AUTHOREV(ENABLED)\n"
        "DEFINE QLOCAL(ORDERS)\n"
        "DEFINE QLOCAL(OTHER)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders', '*ANONYMOUS') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE(ORDERS) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(ALL)\n"
        f"SET AUTHREC PROFILE({EVENTS}) OBJTYPE(QUEUE) PRINCIPAL('*ANONYMOUS') AUTHADD(ALL)"
    )
    tokens.publish(manager, *issuers.values())
    yield manager
    assert manager.process.poll() is None, "the queue manager ended by itself:\n" + "".join(manager.log[-30:])
    assert manager.stop() == 0


def response(token, header="n,,"):
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def is_taken(manager, token, tls=True, **options):
    """Whether the token signs in; one that does not is told so as RFC 7628 has it."""
    with sasl.Dialogue(manager, tls=tls) as dialogue:
        code, said = dialogue.init("OAUTHBEARER", response(token, **options))
        if code == sasl.OUTCOME:
            assert said == sasl.OK
            return True
        assert json.loads(said) == {"status": "invalid_token"}
        assert dialogue.respond(b"\x01") == (sasl.OUTCOME, sasl.REFUSED)
        return False


def refused(manager, token, why):
    """It is refused, and the log says why."""
    before = len(manager.log)
    assert not is_taken(manager, token)
    wait_until(lambda: any(f"sign-in refused: {why}" in line for line in manager.log[before:]), why)


@pytest.mark.parametrize("algorithm", tokens.KINDS)
@pytest.mark.parametrize("tls", [True, False], ids=["tls", "this machine"])
def test_a_token_of_each_algorithm_signs_in(guarded, issuers, algorithm, tls):
    assert is_taken(guarded, issuers[algorithm].token(), tls=tls)


def test_whoever_has_signed_in_by_token_has_its_rights_and_no_others(guarded, issuers, tmp_path):
    token = tmp_path / "token"
    token.write_text(issuers["ES256"].token() + "\n")
    address = ["--amqp", f"localhost:{guarded.ports['amqps']}", "--ca", guarded.ca, "--token-file", token]
    guarded.run("put", "ORDERS", *address, stdin=b"by token")
    assert guarded.run("get", "ORDERS", *address).stdout == b"by token"
    assert b"2035" in guarded.run("put", "OTHER", *address, stdin=b"x", code=None).stderr
    here = ["--amqp", guarded.clear_address, "--token-file", token]
    guarded.run("put", "ORDERS", *here, stdin=b"in clear on this machine")
    assert guarded.run("get", "ORDERS", *here).stdout == b"in clear on this machine"
    token.write_text(issuers["ES256"].token(sub="billing"))
    assert b"2035" in guarded.run("put", "ORDERS", *address, stdin=b"x", code=None).stderr, "billing may not connect"


def test_a_token_that_is_not_good_is_refused_and_the_log_says_why(guarded, issuers):
    issuer = issuers["RS256"]
    now = int(time.time())
    good = issuer.token()
    signed, _, signature = good.rpartition(".")
    unsigned = f"{tokens.part({'alg': 'none'})}.{good.split('.')[1]}."
    hmac = issuer.token(header={"alg": "HS256", "kid": issuer.key_id})
    for token, why in [
        (unsigned, "the token is signed in none of the ways"),
        (hmac, "the token is signed in none of the ways"),
        (f"{signed}.{signature[::-1]}", "the token"),
        (issuers["PS256"].token(header={"alg": "RS256", "kid": issuer.key_id}), "the token's signature"),
        (issuer.token(header={"alg": "RS256", "kid": "unknown"}), "no single key"),
        (issuer.token(iss="https://other.example"), "the token is from another issuer"),
        (issuer.token(aud="OTHER"), "the token is for another audience"),
        (issuer.token(exp=now - 2 * tokens.LEEWAY - 3600), "the token has expired"),
        (issuer.token(exp=None), "the token has no exp"),
        (issuer.token(nbf=now + 2 * tokens.LEEWAY + 3600), "the token is not valid yet"),
        (issuer.token(sub="*"), "the token's claim for the user"),
        ("rubbish", "the token has other than three parts"),
    ]:
        refused(guarded, token, why)
    with guarded.connect() as client:
        told = [json.loads(bytes(message.body)) for message in client.get_all(EVENTS)]
    assert all((event["event"], event["reason"]) == ("NOT.AUTHORIZED", 2035) for event in told) and told
    assert good.split(".")[1] not in "".join(guarded.log), "no token is in the log"


def test_a_response_of_another_form_is_told_so(guarded, issuers):
    for bad in (b"", b"\x01", response(issuers["ES256"].token())[:-1], response("a", header="p=tls-unique,,")):
        with sasl.Dialogue(guarded, tls=True) as dialogue:
            code, said = dialogue.init("OAUTHBEARER", bad)
            assert (code, json.loads(said)) == (sasl.CHALLENGE, {"status": "invalid_request"})
            assert dialogue.respond(b"\x01") == (sasl.OUTCOME, sasl.REFUSED)


def test_tokens_are_offered_where_an_issuer_is_named_and_to_nobody_else(guarded, qm, issuers):
    for tls in (True, False):
        with sasl.Dialogue(guarded, tls=tls) as dialogue:
            assert dialogue.mechanisms == ["SCRAM-SHA-256", "OAUTHBEARER", "PLAIN", "ANONYMOUS"]
        with sasl.Dialogue(qm, tls=tls) as dialogue:
            assert "OAUTHBEARER" not in dialogue.mechanisms
    with sasl.Dialogue(qm, tls=True) as dialogue:
        code, outcome = dialogue.init("OAUTHBEARER", response(issuers["ES256"].token()))
        assert (code, outcome) == (sasl.OUTCOME, sasl.REFUSED)


def test_keys_and_attributes_that_change_hold_at_once(managers, issuers, tmp_path):
    manager = managers("changing", name="CHANGING")
    manager.mqsc(f"ALTER QMGR OAUTHISS('{tokens.ISSUER}')")
    old, new = issuers["ES256"], issuers["EdDSA"]
    assert not is_taken(manager, old.token(aud="CHANGING")), "there is no file of keys"
    tokens.publish(manager, old)
    assert is_taken(manager, old.token(aud="CHANGING"))
    assert not is_taken(manager, old.token()), "the queue manager's name is the audience"
    tokens.publish(manager, old, new)
    assert is_taken(manager, new.token(aud="CHANGING"))
    tokens.publish(manager, new)
    assert not is_taken(manager, old.token(aud="CHANGING")), "a key that was taken away"
    (manager.data / tokens.FILE).write_text("{}")
    assert is_taken(manager, new.token(aud="CHANGING")), "what was read last holds"
    wait_until(lambda: any("not read again" in line for line in manager.log), "the log says so")

    manager.mqsc("ALTER QMGR OAUTHAUD('queues') OAUTHUSR('preferred_username')")
    assert not is_taken(manager, new.token(aud=["queues", "other"]))
    assert is_taken(manager, new.token(aud=["queues", "other"], preferred_username="orders@example.com"))
    tokens.publish(manager, new)
    assert manager.stop() == 0
    manager.start()
    assert is_taken(manager, new.token(aud="queues", preferred_username="orders"))
    said = manager.mqsc("DISPLAY QMGR OAUTHISS OAUTHAUD OAUTHUSR")
    assert all(word in said for word in (tokens.ISSUER, "queues", "preferred_username"))
    manager.mqsc("ALTER QMGR OAUTHISS('')")
    with sasl.Dialogue(manager, tls=True) as dialogue:
        assert "OAUTHBEARER" not in dialogue.mechanisms
    assert manager.stop() == 0


def test_a_connection_ends_with_its_token(guarded, issuers, tmp_path):
    began, clock = time.monotonic(), time.time()
    token = tmp_path / "token"
    token.write_text(issuers["EdDSA"].token(exp=int(clock) - tokens.LEEWAY + 10))
    command = [BULLA, "get", "ORDERS", "--wait", "--amqp", guarded.clear_address, "--token-file", token]
    done = subprocess.run(command, capture_output=True, timeout=4 * DEADLINE)
    if abs((time.time() - clock) - (time.monotonic() - began)) > DRIFT:
        pytest.skip("the machine's clock was set meanwhile")
    if time.monotonic() - began > 10 and b"did not accept" in done.stderr:
        pytest.skip("the machine is so slow that the token was over before it was shown")
    assert b"2035" in done.stderr and b"the token has expired" in done.stderr, done.stderr
