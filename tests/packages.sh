#!/usr/bin/env bash
# Makes sure that the Debian packages are there which build and tests need beside the toolchains for
# Rust, Go, Node, Java and Python. Installs what is missing where it may, and says what to do elsewhere.
set -euo pipefail

missing=()
need() { # PACKAGE COMMAND…: the package is missing where the command fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

need perl perl -MIPC::Cmd -MTime::Piece -e 1 # the vendored OpenSSL is configured by perl
need gcc cc --version
need g++ c++ --version
need openssl openssl version
need cmake cmake --version
need pkg-config pkg-config --version
need libssl-dev pkg-config --exists openssl # python-qpid-proton links the system's OpenSSL
need python3-dev python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
need python3-venv python3 -c 'import ensurepip, venv'
need npm npm --version
need golang go version
need default-jdk-headless javac -version
need maven mvn --version

# Tests with a PKCS#11 token and of pages in a browser want these; without them they say what they skipped, and the rest passes.
wanted=()
want() { # PACKAGE COMMAND…: as need, but nothing fails without it
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || wanted+=("$package")
}
want softhsm2 softhsm2-util --version
want libp11-kit-dev pkg-config --exists p11-kit-1
want chromium chromium --version
if [ ${#wanted[@]} -ne 0 ]; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}"; } \
            >/dev/null 2>&1 || echo "not installed, so tests that need them are skipped: ${wanted[*]}" >&2
    else
        echo "tests are skipped without: ${wanted[*]}" >&2
    fi
fi

[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "please install: ${missing[*]}" >&2
    exit 1
fi
