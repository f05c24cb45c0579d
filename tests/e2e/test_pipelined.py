"""A client that says everything at once, before it has heard a word (part 2, section 2.4.1; part 5, section 5.3.2)."""

import socket
import sys
from pathlib import Path

import pytest

from manager import DEADLINE

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

import frames  # noqa: E402

# How an attach begins behind its frame's head.
ATTACH = b"\x00\x53\x12"
GRANTS = """
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(**) OBJTYPE(QUEUE) PRINCIPAL('app', '*ANONYMOUS') AUTHADD(ALL)
DEFINE QLOCAL(Q)
"""


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("pipelined", grants=GRANTS)
    manager.add_user("app")
    return manager


def answer(qm, said):
    """What the queue manager says up to its first attach; the client says no more meanwhile."""
    with socket.create_connection(("127.0.0.1", qm.ports["amqp"]), timeout=DEADLINE) as stream:
        stream.sendall(said)
        heard = b""
        while ATTACH not in heard:
            more = stream.recv(1 << 16)
            assert more, heard
            heard += more
        return heard


@pytest.mark.parametrize("user", [None, "app"])
def test_what_is_said_behind_the_proof_is_answered_without_another_word(qm, user):
    sign_in = frames.plain(user, qm.passwords[user]) if user else b""
    link = frames.attach("link", 0, "Q", frames.SENDER)
    heard = answer(qm, sign_in + frames.opening() + frames.begin() + link)
    assert heard.startswith(frames.SASL_HEADER if user else frames.AMQP_HEADER)
