"""TLS of the port for HTTPS: what is spoken in it, whose settings it has, and which sessions are resumed."""

import socket
import ssl
import subprocess

import pytest

from manager import DEADLINE, wait_until
from test_http import port

HTTPS = ["--https", "127.0.0.1:0"]
REQUEST = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def context_of(qm, version=None):
    context = ssl.create_default_context(cafile=qm.ca)
    if version:
        context.minimum_version = context.maximum_version = version
    return context


def connect(qm, context, name="localhost", session=None, scheme="https"):
    stream = socket.create_connection(("127.0.0.1", port(qm, scheme)), timeout=DEADLINE)
    return context.wrap_socket(stream, server_hostname=name, session=session)


def is_resumed(qm, version):
    """Whether a second connection goes on with the session of the first, which has read an answer: tickets of TLS 1.3
    come with it."""
    context = context_of(qm, version)
    with connect(qm, context) as first:
        first.sendall(REQUEST)
        assert first.recv(4096).startswith(b"HTTP/1.1 ")
        session = first.session
    with connect(qm, context, session=session) as second:
        second.sendall(REQUEST)
        assert second.recv(4096).startswith(b"HTTP/1.1 ")
        return second.session_reused


@pytest.fixture(scope="module")
def qm(managers):
    manager = managers("https", name="BULLA", options=HTTPS)
    yield manager
    assert manager.stop() == 0


def test_a_client_that_names_protocols_has_to_know_http_1_1(qm):
    context = context_of(qm)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(qm, context) as tls:
        assert tls.selected_alpn_protocol() == "http/1.1"
    context = context_of(qm)
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="NO_APPLICATION_PROTOCOL|no application protocol"):
        connect(qm, context).close()


def test_no_server_name_brings_the_settings_of_a_channel(qm):
    qm.mqsc("DEFINE CHANNEL(QM2.QM1) CHLTYPE(RCVR) SSLCIPH(ANY_TLS12) SSLCAUTH(OPTIONAL)")
    context = ssl.create_default_context(cafile=qm.ca)
    context.check_hostname = False
    name = "qm2-2eqm1.chl.bulla"
    # A channel that calls gets what its definition says.
    with connect(qm, context, name, scheme="amqps") as tls:
        assert tls.version() == "TLSv1.2"
    with connect(qm, context, name) as tls:
        assert tls.version() == "TLSv1.3"


@pytest.mark.parametrize("version", VERSIONS)
def test_no_session_is_resumed_unless_that_is_asked_for(qm, version):
    assert not is_resumed(qm, version)


def test_sessions_are_resumed_where_no_certificates_are_asked_for(managers, authority):
    qm = managers("https-resume", name="BULLA", options=[*HTTPS, "--https-resume"])
    assert [is_resumed(qm, version) for version in VERSIONS] == [True, True]
    # AMQP's listener has the same files, and resumes nothing.
    with connect(qm, context_of(qm, VERSIONS[0]), scheme="amqps") as tls:
        assert not tls.session.has_ticket
    # From here on a session could bring a certificate that was revoked since.
    (qm.data / "tls/clients.pem").write_bytes(authority.pem)
    wait_until(lambda: not is_resumed(qm, VERSIONS[1]), "the files are read again")
    assert not is_resumed(qm, VERSIONS[0])
    assert qm.stop() == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_of_an_answer_is_told_from_one_that_was_cut_off(qm, version):
    """Clients of OpenSSL 3 take an end without close_notify for an attack."""
    stream = socket.create_connection(("127.0.0.1", port(qm, "https")), timeout=DEADLINE)
    context = context_of(qm, version)
    with context.wrap_socket(stream, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
        tls.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = b""
        while piece := tls.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 404 ")


def test_a_client_can_not_have_a_connection_agree_on_new_keys(qm):
    command = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port(qm, 'https')}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        said = b""
        # Once it has shown the session, it takes what comes in for data or, where it is an R alone, for its command.
        while b"Verify return code" not in said:
            said += client.stdout.read1()
        client.stdin.write(b"R\n")
        client.stdin.flush()
        while piece := client.stdout.read1():
            said += piece
    assert b"RENEGOTIATING" in said and b"no renegotiation" in said, said
