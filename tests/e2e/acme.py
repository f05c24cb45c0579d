"""ACME servers that others wrote, Pebble and step-ca, and a program between it and its client that changes what is
said."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from manager import wait_until
from pki import openssl
from transit import certify

PEBBLE = os.environ.get("BULLA_PEBBLE", str(Path(__file__).parents[2] / ".cache/pebble"))
STEP_CA = os.environ.get("BULLA_STEP_CA", str(Path(__file__).parents[2] / ".cache/step-ca/step-ca"))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Pebble:
    """The server. Names are looked up as everywhere on this machine; proofs are asked for at the ports that are
    given."""

    def __init__(self, folder, http01, tls_alpn01):
        self.folder = folder
        folder.mkdir()
        self.ca, self.certificate, self.key = certify(folder)
        self.port, self.management = free_port(), free_port()
        self.config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.certificate),
            "privateKey": str(self.key),
            "httpPort": http01,
            "tlsPort": tls_alpn01,
            "domainBlocklist": ["blocked.example"],
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "the one that is used", "validityPeriod": 86_400}},
        }
        self.process, self.log = None, open(folder / "log", "wb")

    def start(self, seconds=86_400, **config):
        self.stop()
        self.config["profiles"]["default"]["validityPeriod"] = seconds
        path = self.folder / "pebble.json"
        path.write_text(json.dumps({"pebble": self.config | config}))
        # It refuses a good nonce now and then, by chance; what is refused here is the tests' to say.
        environment = os.environ | {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_AUTHZREUSE": "0", "PEBBLE_WFE_NONCEREJECT": "0"}
        self.process = subprocess.Popen(
            [PEBBLE, "-config", path], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        wait_until(lambda: self.listens(self.port) and self.listens(self.management), "Pebble listens")
        # It makes a root of its own at each start.
        context = ssl.create_default_context(cafile=self.ca)
        with urllib.request.urlopen(f"https://localhost:{self.management}/roots/0", context=context, timeout=10) as root:
            (self.folder / "root.pem").write_bytes(root.read())

    def listens(self, port):
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        return False

    def said(self):
        return (self.folder / "log").read_text()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self):
        self.stop()
        self.log.close()


class StepCa:
    """An authority with a root and an issuer below it, which has a certificate of its own made for its server. It keeps
    accounts and orders over a restart."""

    def __init__(self, folder, http01, tls_alpn01):
        self.folder, self.http01, self.tls_alpn01 = folder, http01, tls_alpn01
        folder.mkdir()
        self.root, self.port = folder / "root.pem", free_port()
        self._certify()
        self.process, self.log = None, open(folder / "log", "wb")

    def _certify(self):
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl("req", "-x509", *kind, "-keyout", self.folder / "root.key", "-out", self.root, "-subj", "/CN=root", "-days", "2")
        request, extensions = self.folder / "issuer.csr", self.folder / "extensions"
        openssl("req", *kind, "-keyout", self.folder / "issuer.key", "-out", request, "-subj", "/CN=issuer")
        extensions.write_text("basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n")
        by_root = ["-CA", self.root, "-CAkey", self.folder / "root.key", "-CAcreateserial"]
        openssl("x509", "-req", "-in", request, *by_root, "-days", "2", "-extfile", extensions, "-out", self.folder / "issuer.pem")

    def start(self, seconds=86_400):
        self.stop()
        lifetimes = {f"{which}TLSCertDuration": f"{seconds}s" for which in ("default", "max")}
        acme = {"type": "ACME", "name": "acme", "challenges": ["http-01", "tls-alpn-01"]}
        acme["claims"] = lifetimes | {"minTLSCertDuration": "5s"}
        config = {
            "root": str(self.root),
            "crt": str(self.folder / "issuer.pem"),
            "key": str(self.folder / "issuer.key"),
            "address": f"127.0.0.1:{self.port}",
            "dnsNames": ["localhost"],
            "db": {"type": "badgerv2", "dataSource": str(self.folder / "db")},
            # Without it a certificate is valid from a minute before.
            "authority": {"backdate": "1s", "provisioners": [acme]},
        }
        path = self.folder / "ca.json"
        path.write_text(json.dumps(config))
        ports = ["--insecure", "--acme-http-port", self.http01, "--acme-tls-port", self.tls_alpn01]
        command = [STEP_CA, *(str(word) for word in ports), path]
        environment = os.environ | {"STEPPATH": str(self.folder / "step")}
        self.process = subprocess.Popen(
            command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        wait_until(self.listens, "step-ca listens")

    def listens(self):
        assert self.process.poll() is None, self.said()[-2000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return True
        return False

    def said(self):
        return (self.folder / "log").read_text()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self):
        self.stop()
        self.log.close()


class Between:
    """Passes requests on to Pebble, and answers as `rule` has it: a function of method, path and answer, as a triple of
    status, fields and body. It returns the answer, another one, or None to break off. Pebble names places as it is
    asked for them, so that all of them are here."""

    def __init__(self, pebble, rule):
        between, self.asked = self, []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.pass_on(None)

            def do_POST(self):
                self.pass_on(self.rfile.read(int(self.headers["Content-Length"])))

            def pass_on(self, body):
                between.asked.append((self.command, self.path))
                answer = between.upstream(pebble, self.command, self.path, body, self.headers)
                answer = answer and between.rule(self.command, self.path, answer)
                if answer is None:
                    self.close_connection = True
                    return
                status, fields, content = answer
                with suppress(OSError):
                    self.send_response(status)
                    for name, value in fields:
                        self.send_header(name, value)
                    if not any(name.lower() == "content-length" for name, _ in fields):
                        self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.rule = rule
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pebble.certificate, pebble.key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        self.context = ssl.create_default_context(cafile=pebble.ca)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def upstream(self, pebble, method, path, body, fields):
        connection = http.client.HTTPSConnection("localhost", pebble.port, timeout=10, context=self.context)
        try:
            kept = {name: fields[name] for name in ("Host", "Content-Type", "Accept", "User-Agent") if fields[name]}
            connection.request(method, path, body, kept)
            answer = connection.getresponse()
            dropped = ("content-length", "transfer-encoding", "connection")
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in dropped]
            return answer.status, kept, answer.read()
        except OSError:
            return None
        finally:
            connection.close()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
