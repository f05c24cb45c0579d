"""A SPIFFE trust domain that others wrote, SPIRE: a server and its agent on the loopback, and entries for processes."""

import os
import subprocess
from pathlib import Path

from acme import free_port
from manager import wait_until

PROGRAMS = Path(os.environ.get("BULLA_SPIRE", str(Path(__file__).parents[2] / ".cache/spire")))
DOMAIN = "bulla.example"

SERVER = """
server {{
  bind_address = "127.0.0.1"
  bind_port = "{port}"
  trust_domain = "{domain}"
  data_dir = "{folder}/server"
  socket_path = "{folder}/server.sock"
  log_level = "WARN"
  ca_ttl = "1h"
  default_x509_svid_ttl = "10m"
}}
plugins {{
  DataStore "sql" {{ plugin_data {{ database_type = "sqlite3", connection_string = "{folder}/server.sqlite3" }} }}
  NodeAttestor "join_token" {{ plugin_data {{}} }}
  KeyManager "memory" {{ plugin_data {{}} }}
}}
"""
AGENT = """
agent {{
  server_address = "127.0.0.1"
  server_port = "{port}"
  trust_domain = "{domain}"
  trust_bundle_path = "{folder}/bundle.pem"
  data_dir = "{folder}/agent"
  socket_path = "{folder}/public/api.sock"
  log_level = "WARN"
}}
plugins {{
  NodeAttestor "join_token" {{ plugin_data {{}} }}
  KeyManager "disk" {{ plugin_data {{ directory = "{folder}/agent" }} }}
  WorkloadAttestor "unix" {{ plugin_data {{}} }}
}}
"""


def there():
    return all((PROGRAMS / name).exists() for name in ("spire-server", "spire-agent"))


class Spire:
    def __init__(self, folder):
        self.folder, self.running = folder, {}
        folder.mkdir()
        names = {"folder": folder, "domain": DOMAIN, "port": free_port()}
        for name, text in (("server", SERVER), ("agent", AGENT)):
            (folder / name).mkdir()
            (folder / f"{name}.conf").write_text(text.format(**names))
        self.socket = folder / "public/api.sock"
        self.log = open(folder / "log", "wb")
        self.start("server")
        wait_until(lambda: self.server("healthcheck", code=None) == 0, "the server answers", 60)
        (folder / "bundle.pem").write_text(self.server("bundle", "show"))
        token = self.server("token", "generate", "-spiffeID", f"spiffe://{DOMAIN}/node").split()[-1]
        self.start("agent", "-joinToken", token)

    def start(self, name, *arguments):
        command = [PROGRAMS / f"spire-{name}", "run", "-config", self.folder / f"{name}.conf", *arguments]
        self.running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if name == "agent":
            wait_until(lambda: self.is_served(), f"the agent listens: {self.said()}", 60)

    def is_served(self):
        assert self.running["agent"].poll() is None, self.said()
        command = [PROGRAMS / "spire-agent", "healthcheck", "-socketPath", self.socket]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def server(self, *arguments, code=0):
        command = [PROGRAMS / "spire-server", *arguments, "-socketPath", self.folder / "server.sock"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if code is None:
            return done.returncode
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def register(self, path, seconds, *names):
        """An entry for processes of this user. Returns its id."""
        dns = [word for name in names for word in ("-dns", name)]
        parent = ["-parentID", f"spiffe://{DOMAIN}/node", "-selector", f"unix:uid:{os.geteuid()}"]
        ttl = ["-x509SVIDTTL", str(seconds)]
        said = self.server("entry", "create", "-spiffeID", f"spiffe://{DOMAIN}/{path}", *parent, *ttl, *dns)
        return next(line.split(":", 1)[1].strip() for line in said.splitlines() if line.startswith("Entry ID"))

    def forget(self, entry):
        self.server("entry", "delete", "-entryID", entry)

    def bundle(self):
        return self.server("bundle", "show")

    def said(self):
        return (self.folder / "log").read_text()[-2000:]

    def stop(self, name):
        process = self.running.pop(name, None)
        if process:
            process.terminate()
            process.wait(20)

    def close(self):
        for name in ("agent", "server"):
            self.stop(name)
        self.log.close()
