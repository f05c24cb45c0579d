"""A server with a transit engine, over HTTPS, for tests.

By default it is a stand-in: a small server by the published HTTP API of HashiCorp Vault and OpenBao, its keys in memory.
Where `BULLA_TRANSIT_SERVER` names a program that serves the real engine, that is used: it is given the files of a
certificate and its key, and says its address, a root token and an unseal key (hexadecimal) in one line.
"""

import base64
import json
import os
import secrets
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from manager import DEADLINE
from pki import openssl

REAL = os.environ.get("BULLA_TRANSIT_SERVER")
HASHES = {"sha2-256": hashes.SHA256(), "sha2-384": hashes.SHA384(), "sha2-512": hashes.SHA512()}
CURVES = {"ecdsa-p256": ec.SECP256R1(), "ecdsa-p384": ec.SECP384R1(), "ecdsa-p521": ec.SECP521R1()}
# What the queue manager needs, and what `bulla cert create` does.
POLICY = """
path "transit/sign/*" { capabilities = ["update"] }
path "transit/decrypt/*" { capabilities = ["update"] }
path "transit/keys/*" { capabilities = ["create", "read", "update"] }
"""


def certify(folder):
    """An authority, and a certificate of `localhost` by it."""
    ca, key, request, certificate = (folder / name for name in ("ca.pem", "key.pem", "request.pem", "certificate.pem"))
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "ca.key", "-out", ca, "-subj", "/CN=authority",
            "-days", "2")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=localhost")
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", extensions, "-out", certificate)
    return ca, certificate, key


class Server:
    """What tests do with a server, whichever it is."""

    def __init__(self, folder, real=REAL):
        self.folder = folder
        self.real = real
        self.ca, certificate, key = certify(folder)
        self.context = ssl.create_default_context(cafile=self.ca)
        if real:
            self.process = subprocess.Popen([real, certificate, key], stdout=subprocess.PIPE, text=True)
            address, self.root, self.unseal_key = self.process.stdout.readline().split()
            self.port = int(address.rsplit(":", 1)[1])
        else:
            self.stand_in = StandIn(certificate, key)
            self.port, self.root, self.unseal_key = self.stand_in.port, self.stand_in.root, "00"
        self.address = f"https://localhost:{self.port}"
        self.api("POST", "sys/mounts/transit", {"type": "transit"})
        self.api("PUT", "sys/policies/acl/bulla", {"policy": POLICY})
        self.token_file = folder / "token"
        self.token = self.new_token()

    def api(self, method, path, body=None, token=None):
        request = urllib.request.Request(f"{self.address}/v1/{path}", method=method)
        request.add_header("X-Vault-Token", token or self.root)
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data=data, context=self.context, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def new_token(self):
        """Another token, in the file."""
        made = self.api("POST", "auth/token/create", {"policies": ["bulla"], "ttl": "1h"})["auth"]["client_token"]
        aside = self.folder / "token.aside"
        aside.write_text(made + "\n")
        aside.chmod(0o600)
        os.replace(aside, self.token_file)
        return made

    def revoke(self, token):
        self.api("POST", "auth/token/revoke", {"token": token})

    def seal(self):
        self.api("PUT", "sys/seal", {})

    def unseal(self):
        key = base64.b64encode(bytes.fromhex(self.unseal_key)).decode()
        self.api("PUT", "sys/unseal", {"key": key})

    def stop(self):
        if self.real:
            self.process.terminate()
            self.process.wait()
        else:
            self.stand_in.server.shutdown()


class StandIn:
    """Keys, tokens, and the paths that the device and the tests use."""

    def __init__(self, certificate, key):
        self.root = "hvs.root" + secrets.token_hex(8)
        self.tokens = {self.root: ["root"]}
        self.keys = {}
        self.policy = ""
        self.sealed = False
        self.lock = threading.Lock()
        self.changed = threading.Condition()
        self.held = None
        self.waiting = 0  # requests that are held
        self.done = {}  # how many were answered, by verb
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                status, said = stand_in.answer(self.command, self.path, self.headers.get("X-Vault-Token"), body)
                text = b"" if said is None else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                self.wfile.flush()

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass  # a client that does not believe the certificate

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hold(self, verb):
        """From the next one on, requests to `sign` or to `decrypt` wait until `release`."""
        with self.changed:
            self.held = verb

    def release(self):
        with self.changed:
            self.held = None
            self.changed.notify_all()

    def wait_until(self, condition, what):
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE), f"after {DEADLINE} s still not so: {what}"

    def _pass(self, verb):
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.held != verb)
            self.waiting -= 1

    def answer(self, method, path, token, body):
        path = path.split("?")[0].removeprefix("/v1/")
        if path == "sys/unseal":
            self.sealed = False
            return 200, {"sealed": False}
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if path == "sys/health":
            return 200, {"initialized": True, "sealed": False, "standby": False}
        if path.startswith("transit/"):
            self._pass(path.split("/")[1])
        with self.lock:
            if token not in self.tokens:
                return 403, {"errors": ["2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"]}
            if path.startswith("transit/"):
                verb, name, *rest = path.removeprefix("transit/").split("/")
                if f'"transit/{verb}/{name}/*" {{ capabilities = ["deny"] }}' in self.policy:
                    return 403, {"errors": ["1 error occurred:\n\t* permission denied\n\n"]}
                return self.transit(method, verb, name, rest, body)
            return self.system(method, path, body)

    def system(self, method, path, body):
        if path == "auth/token/lookup-self":
            return 200, {"data": {"ttl": 3600}}
        if path == "auth/token/create":
            made = "hvs." + secrets.token_urlsafe(24)
            self.tokens[made] = body["policies"]
            return 200, {"auth": {"client_token": made}}
        if path == "auth/token/revoke":
            self.tokens.pop(body["token"], None)
            return 204, None
        if path == "sys/seal":
            self.sealed = True
            return 204, None
        if path.startswith("sys/mounts/"):
            return 204, None
        if path.startswith("sys/policies/"):
            self.policy = body["policy"]
            return 204, None
        return 404, {"errors": ["no handler for route"]}

    def transit(self, method, verb, name, rest, body):
        versions = self.keys.get(name)
        if verb == "keys" and method == "POST":
            kind = versions[0][0] if rest == ["rotate"] else body["type"]
            made = ec.generate_private_key(CURVES[kind]) if kind in CURVES else rsa.generate_private_key(65537, int(kind[4:]))
            self.keys.setdefault(name, []).append((kind, made))
            return 204, None
        if versions is None:
            if verb == "keys":
                return 404, {"errors": []}
            return 400, {"errors": ["signing key not found" if verb == "sign" else "encryption key not found"]}
        if verb == "keys":
            return 200, {"data": self.facts(versions)}
        one = {"sign": self.sign, "decrypt": self.decrypt}[verb]
        results = [one(versions, rest, body, item) for item in body["batch_input"]]
        with self.changed:
            self.done[verb] = self.done.get(verb, 0) + len(results)
            self.changed.notify_all()
        return 400 if any("error" in result for result in results) else 200, {"data": {"batch_results": results}}

    def facts(self, versions):
        form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        keys = {str(n): {"public_key": key.public_key().public_bytes(*form).decode()} for n, (_, key) in enumerate(versions, 1)}
        return {"type": versions[0][0], "latest_version": len(versions), "keys": keys}

    def sign(self, versions, rest, body, item):
        assert body["prehashed"] is True
        algorithm = HASHES[rest[0]]
        version = body["key_version"]
        key = versions[version - 1][1]
        hashed = base64.b64decode(item["input"], validate=True)
        if isinstance(key, rsa.RSAPrivateKey):
            pss = padding.PSS(padding.MGF1(algorithm), algorithm.digest_size)
            way = pss if body["signature_algorithm"] == "pss" else padding.PKCS1v15()
            signature = key.sign(hashed, way, utils.Prehashed(algorithm))
        else:
            signature = key.sign(hashed, ec.ECDSA(utils.Prehashed(algorithm)))
        return {"signature": f"vault:v{version}:{base64.b64encode(signature).decode()}", "key_version": version}

    def decrypt(self, versions, rest, body, item):
        _, version, text = item["ciphertext"].split(":")
        key = versions[int(version[1:]) - 1][1]
        oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
        try:
            opened = key.decrypt(base64.b64decode(text, validate=True), oaep)
        except ValueError:
            return {"plaintext": "", "error": "failed to RSA decrypt the ciphertext"}
        return {"plaintext": base64.b64encode(opened).decode()}
