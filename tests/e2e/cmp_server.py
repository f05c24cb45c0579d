"""The server of `openssl cmp`: it issues one certificate that is made before, `issued.pem` in its folder."""

import socket
import subprocess

from manager import wait_until

SECRET = "only-the-authority-knows"


class CmpServer:
    """Runs in a folder that has `ca.pem`, `server.pem` and `server.key`."""

    def __init__(self, folder, *program):
        self.folder, self.program, self.process = folder, program, None
        folder.mkdir()
        (folder / "secret").write_text(SECRET + "\n")
        (folder / "secret").chmod(0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def serve(self, *options, by_secret=True):
        """Where no secret is used, it signs its answers."""
        self.stop()
        with_secret = ["-srv_ref", "4711", "-srv_secret", f"pass:{SECRET}"]
        with_signature = ["-srv_cert", "server.pem", "-srv_key", "server.key", "-srv_trusted", "ca.pem"]
        self.process = subprocess.Popen(
            [*self.program, "-port", str(self.port), *(with_secret if by_secret else with_signature),
             "-rsp_cert", "issued.pem", "-rsp_extracerts", "ca.pem", *options],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self.listens, "the server listens")

    def listens(self):
        assert self.process.poll() is None, "the server has ended"
        with open("/proc/net/tcp") as tcp, open("/proc/net/tcp6") as tcp6:
            return any(f":{self.port:04X} " in line and " 0A " in line for line in [*tcp, *tcp6])

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
