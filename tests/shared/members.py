"""Members of a group, for the programs here. The modules of tests/e2e and proton's client are known from then on."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "e2e"), str(Path(__file__).parents[1] / "clients/proton")]

from engine import free_ports  # noqa: E402
from manager import Manager, shown_rows, wait_until  # noqa: E402


def state(manager, group):
    """What the member is there; AWAY while it does not answer."""
    done = manager.run("mqsc", "--data", manager.data, "--json", "-c", f"DISPLAY QSGSTATUS({group}) STATE", code=None)
    return shown_rows(done.stdout)[0]["STATE"] if done.returncode == 0 else "AWAY"


def member(folder, engine, name, group):
    """A queue manager that takes part in the group; its port stays what it is when it starts again."""
    port = free_ports(1)[0]
    manager = Manager(folder / name, name=name, amqp_port=port)
    address = f"CONNAME('127.0.0.1:{port}')"
    manager.mqsc(f"DEFINE QSGROUP({group}) {engine.attributes} {address}\nSTART QSGROUP({group})")
    wait_until(lambda: state(manager, group) in ("OWNER", "STANDBY"), f"{name} takes part")
    return manager
