"""Software tokens behind a module that fails on request (`tests/pkcs11-shim`): what is written to `control` happens."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOFTHSM = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/libsofthsm2.so",
]
# A token that has ML-DSA and ML-KEM; `make clients` builds it.
KRYOPTIC = Path(__file__).parents[2] / ".cache/kryoptic/libkryoptic.so"
SHIM = Path(__file__).parents[1] / "pkcs11-shim/shim.c"
PIN = "493817"


def softhsm(folder):
    """SoftHSM2's token BULLA."""
    module = next((path for path in SOFTHSM if Path(path).exists()), None)
    (folder / "tokens").mkdir()
    (folder / "token.conf").write_text(f"directories.tokendir = {folder}/tokens\nobjectstore.backend = file\n")
    return token(folder, module, "SOFTHSM2_CONF")


def kryoptic(folder):
    """Kryoptic's token BULLA."""
    module = os.environ.get("BULLA_KRYOPTIC", KRYOPTIC)
    if not Path(module).exists():
        pytest.skip("skipped: tests with ML-DSA and ML-KEM on a token need kryoptic, which `make clients` builds")
    (folder / "token.conf").write_text(f'[[slots]]\nslot = 1\ndbtype = "sqlite"\ndbargs = "{folder}/keys.sql"\n')
    return token(folder, module, "KRYOPTIC_CONF")


@contextlib.contextmanager
def token(folder, module, variable):
    flags = subprocess.run(["pkg-config", "--cflags", "p11-kit-1"], capture_output=True, text=True, check=False)
    if module is None or shutil.which("softhsm2-util") is None or flags.returncode != 0:
        pytest.skip("skipped: tests with a token need softhsm2 and libp11-kit-dev")
    shim = folder / "shim.so"
    command = ["cc", "-shared", "-fPIC", "-o", shim, SHIM, *flags.stdout.split(), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    control = folder / "control"
    control.write_text("")
    variables = {
        variable: str(folder / "token.conf"),
        "BULLA_SHIM_MODULE": str(module),
        "BULLA_SHIM_CONTROL": str(control),
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    init = ["softhsm2-util", "--module", str(module), "--init-token", "--free", "--label", "BULLA"]
    subprocess.run([*init, "--so-pin", "918273", "--pin", PIN], check=True, capture_output=True)
    pin = folder / "pin"
    pin.write_text(PIN + "\n")
    pin.chmod(0o600)
    yield {"module": shim, "control": control, "pin": pin}
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def define_device(qm, token):
    qm.mqsc(
        f"DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('{token['module']}') TOKEN('pkcs11:token=BULLA') + \n"
        f"  PINFILE('{token['pin']}') ENGINES(2) TIMEOUT(2000)\nSTART DEVICE(HSM)"
    )
