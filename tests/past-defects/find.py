#!/usr/bin/env python3
"""Puts past defects back, one at a time, and has the simulator find each.

Each NNN-commit.patch beside this file puts one defect back into today's tree; its first line says what it was. A copy
of the tree below the target folder is patched, its simulation is built, and runs from seed 1 on until it fails, for
60 seconds at most. Defects that are not found make this fail. Names of patches as arguments run those alone.

PROFILE=debug builds without optimisation, in the target folder of the other tests; else it is a release build.
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
COPY = TARGET / "past-defects"
PROFILE = os.environ.get("PROFILE", "release")
COPIED = ["Cargo.*", "*.toml", "crates/**/*", "docs/**/*", "samples/**/*", "testdata/**/*"]
SECONDS = 60
FIRST_SEED = 1
PACKAGE = "bulla"
FAILED = re.compile(r"^the simulation failed: BULLA_SEED=(\d+)")


def copy_tree():
    """Copies what the build needs, but for OpenSSL's sources: those are used where they lie, and not built again."""
    for source in itertools.chain(*(sorted(ROOT.glob(pattern)) for pattern in COPIED)):
        target = COPY / source.relative_to(ROOT)
        if not source.is_file():
            continue
        text = source.read_bytes()
        if source == ROOT / "Cargo.toml":
            vendored = str(ROOT / "vendor").encode()
            text = text.replace(b'path = "vendor', b'path = "' + vendored)
            # Cargo tells crates of the same name and version apart by nothing else.
            text = re.sub(rb'(\[workspace\.package\]\s+version = "[^"]*)"', rb'\1+past"', text)
        if not target.is_file() or target.read_bytes() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
            shutil.copymode(source, target)


def patch(path):
    """Applies a patch to the copy. False where it does not apply."""
    # The copy may lie in a repository of git, which is none of this.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(COPY.parent)}
    return subprocess.run(["git", "apply", str(path)], cwd=COPY, env=environment).returncode == 0


def build():
    """Builds the simulation, and says where it is."""
    profile = ["--release"] if PROFILE == "release" else []
    command = ["cargo", "test", *profile, "-p", PACKAGE, "--lib", "--no-run", "--message-format=short"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET)}
    out = subprocess.PIPE
    result = subprocess.run(command, cwd=COPY, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"Executable .*\((.*)\)", result.stdout)
    if result.returncode != 0 or not found:
        sys.exit(result.stdout)
    # Said from the copy, or whole.
    return COPY / found.group(1)


def run(program):
    """Runs the simulations until one fails: after how many seconds, at which seed and why. None where all is well."""
    environment = {**os.environ, "BULLA_SECONDS": str(SECONDS), "BULLA_SEED": str(FIRST_SEED), "RUST_BACKTRACE": "0"}
    command = [program, "simulation::whatever_happens", "--nocapture"]
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=COPY, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    said = ""
    for line in process.stderr:
        failed = FAILED.match(line)
        if failed:
            took = time.monotonic() - began
            process.kill()
            process.wait()
            return took, failed.group(1), said
        if line.strip() and not line.startswith(("note:", "thread")):
            said = line.strip()
    if process.wait() != 0:
        sys.exit(f"the simulation failed without a seed: {said}")
    return None


def main():
    names = sys.argv[1:]
    patches = [path for path in sorted(HERE.glob("*.patch")) if not names or path.stem in names]
    missed = []
    for path in patches:
        copy_tree()
        was = path.read_text().splitlines()[0]
        if not patch(path):
            missed.append(f"{path.stem} does not apply")
            continue
        found = run(build())
        if found and found[0] <= SECONDS:
            took, seed, why = found
            print(f"{path.stem}: found after {took:.1f} s at seed {seed} ({PROFILE}). {was}\n    {why}", flush=True)
        else:
            missed.append(f"{path.stem} was not found within {SECONDS} s. {was}")
    copy_tree()
    for line in missed:
        print(line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
