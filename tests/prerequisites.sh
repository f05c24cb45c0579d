#!/usr/bin/env bash
# Makes sure that what build and tests need beside the Rust toolchain is there. Each thing is asked for by trying what it is
# needed for, and not by its name or version. Installs what is missing where it may, says what to do elsewhere, and tries again.
#
#   tests/prerequisites.sh build     what `make build` needs
#   tests/prerequisites.sh test      what `make test` needs besides
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# What could not be installed is not tried again on the same day.
refused=.cache/packages-refused

# --- what is tried ---

compiles_c() {
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$scratch/probe.c"
    cc -o "$scratch/probe" "$scratch/probe.c"
}
compiles_cxx() {
    printf '#include <string>\nint main() { return std::string().size(); }\n' >"$scratch/probe.cc"
    c++ -o "$scratch/probe" "$scratch/probe.cc"
}
has_rust() { cargo --version && rustc --version; }
# OpenSSL 3 is the first that writes AES-GCM into CMS.
encrypts_cms() {
    echo clear | openssl cms -encrypt -aes-256-gcm -outform DER -recip testdata/seal/billing/own/billing.pem -out /dev/null
}
has_curl() { curl --version | grep -qw https; }
knows_localhost() { python3 -c 'import socket; socket.getaddrinfo("localhost", 1)'; }
has_python_headers() { python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'; }
# From 1.21 on, go fetches the version that go.mod asks for.
has_go() { [ -n "$(go env GOTOOLCHAIN)" ]; }
has_node() { node --input-type=module --eval 'await 0; Headers.prototype' && npm --version; }
# What finds the declarations of C headers, and the headers that are the compiler's own.
finds_libclang() {
    local lib='libclang[-.][0-9s]*' header='clang/*/include/stddef.h'
    [ -n "$(ls -d ${LIBCLANG_PATH:+"$LIBCLANG_PATH"/$lib} /usr/lib*/{,*/,llvm*/lib*/}$lib 2>/dev/null)" ] &&
        [ -n "$(ls -d /usr/lib*/{,llvm*/lib*/}$header 2>/dev/null)" ]
}
compiles_java() {
    echo 'record Probe(int one) {}' >"$scratch/Probe.java"
    javac --release 17 -d "$scratch" "$scratch/Probe.java"
}

# --- what is needed: Debian's packages or -, what to say where it is missing, and what to try ---

needed=()
case ${1:-test} in
    build)
        needed+=(
            "-       |Rust 1.95 or newer, by rustup             |has_rust"
            "perl    |perl with the modules of its distribution |perl -MIPC::Cmd -MTime::Piece -MFindBin -e 1"
            "gcc libc6-dev |a C compiler with the C library's headers |compiles_c"
        )
        wanted=("python3-pip |pip; the library of lanes for accelerators is skipped |python3 -m pip --version")
        ;;
    test)
        needed+=(
            "-                |a line for localhost in /etc/hosts |knows_localhost"
            "g++              |a C++ compiler                   |compiles_cxx"
            "openssl          |the openssl program, 3.0 or newer |encrypts_cms"
            "curl             |curl with TLS                    |has_curl"
            "cmake            |cmake                            |cmake --version"
            "pkg-config       |pkg-config                       |pkg-config --version"
            "libssl-dev       |OpenSSL's headers, for python-qpid-proton |pkg-config --exists openssl"
            "python3-dev      |Python's headers                 |has_python_headers"
            "python3-venv     |Python's venv                    |python3 -c 'import ensurepip, venv'"
            "npm              |Node.js 18 or newer with npm     |has_node"
            "golang           |Go 1.21 or newer                 |has_go"
            "default-jdk-headless |a JDK, 17 or newer           |compiles_java"
            "maven            |Maven                            |mvn --version"
        )
        # Without these some tests say what they skipped, and the rest passes.
        wanted=(
            "softhsm2       |SoftHSM2; tests with a PKCS#11 token are skipped    |softhsm2-util --version"
            "libp11-kit-dev |p11-kit's headers; tests of a token that fails are skipped |pkg-config --exists p11-kit-1"
            "libclang-dev   |libclang; tests of a token with ML-DSA and ML-KEM are skipped |finds_libclang"
            "chromium       |chromium; tests of pages in a browser are skipped   |chromium --version"
            "prometheus     |promtool; tests of the alert rules are skipped      |promtool --version"
            "-              |openssl program of 3.0.22 or newer; confidential messages are opened by the OpenSSL of this build |tests/openssl-probe.sh"
        )
        ;;
    *)
        echo "usage: tests/prerequisites.sh build|test" >&2
        exit 2
        ;;
esac

packages_of() { local packages=${1%%|*}; echo ${packages/#-*/}; }
words_of() { local rest=${1#*|}; echo "${rest%|*}" | sed 's/ *$//'; }
works() { eval "${1##*|}" >"$scratch/probe.log" 2>&1 </dev/null; }

failing=() # of the list that is given, what does not work
try_all() {
    failing=()
    for entry in "$@"; do
        works "$entry" || failing+=("$entry")
    done
}

# Networks fail in passing, so there are three attempts.
apt() {
    local pause
    for pause in 5 20 0; do
        apt-get -o Acquire::Retries=3 "$@" >"$scratch/apt.log" 2>&1 && return 0
        [ $pause -eq 0 ] || sleep $pause
    done
    sed -n '/^E: /p' "$scratch/apt.log" | tail -n 3 >&2
    return 1
}

may_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

install() { # ENTRY…: together, or one by one where that fails
    local entry packages=()
    for entry in "$@"; do
        packages+=($(packages_of "$entry"))
    done
    [ ${#packages[@]} -ne 0 ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    echo "installing: ${packages[*]}" >&2
    apt update -qq || echo "apt-get update failed; trying with the lists that are there" >&2
    apt install -y -qq --no-install-recommends "${packages[@]}" && return 0
    [ ${#packages[@]} -gt 1 ] || return 0
    for entry in "${packages[@]}"; do
        apt install -y -qq --no-install-recommends "$entry" || echo "not installed: $entry" >&2
    done
}

try_all "${needed[@]}"
if [ ${#failing[@]} -ne 0 ] && may_install; then
    install "${failing[@]}"
    try_all "${failing[@]}"
fi
for entry in ${failing[@]+"${failing[@]}"}; do
    works "$entry" || true
    echo "please install $(words_of "$entry") ($(packages_of "$entry")): ${entry##*|}: $(tail -n 1 "$scratch/probe.log")" >&2
done
[ ${#failing[@]} -eq 0 ] || exit 1

# Whether these could not be installed on this day already.
refused_today() { [ -n "$(find $refused -mtime -1 2>/dev/null)" ] && [ "$*" = "$(cat $refused)" ]; }

try_all "${wanted[@]}"
if [ ${#failing[@]} -ne 0 ]; then
    if may_install && ! refused_today "${failing[@]}"; then
        install "${failing[@]}"
        try_all "${failing[@]}"
        mkdir -p .cache
        echo "${failing[*]-}" >$refused
    fi
    for entry in ${failing[@]+"${failing[@]}"}; do
        echo "there is no $(words_of "$entry")" >&2
    done
fi
