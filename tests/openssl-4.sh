#!/usr/bin/env bash
# Builds the `openssl` program of the OpenSSL that Bulla is linked with, from the source that cargo has for this build.
# Distributions are years behind it: theirs know neither ML-DSA nor ML-KEM, nor the attributes of a confidential
# message. Beside the program it leaves what the tests' token is built with: `libcrypto.a`, and its headers.
#
#   tests/openssl-4.sh PROGRAM     PROGRAM is the file to make, .cache/openssl-4/openssl usually
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$1
failed() {
    echo "error: the openssl program of this build: $1" >&2
    exit 1
}

host=$(rustc -vV | sed -n 's/^host: //p')
# Asks for this platform alone, otherwise cargo fetches the crates of every other one.
metadata=$(cargo metadata --format-version 1 --locked --filter-platform "$host") || failed "cargo metadata failed"
read -r version source < <(python3 -c '
import json, pathlib, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"] == "openssl-src" and "+" in package["version"]:
        print(package["version"].split("+")[1], pathlib.Path(package["manifest_path"]).parent / "openssl")
' <<<"$metadata") || failed "Cargo.lock has no openssl-src with OpenSSL's version in its own"
[ -f "$source/Configure" ] || failed "there is no source in $source"

beside=$(dirname "$out")
# One of before `cmp` was built in is made anew.
has() {
    "$out" version 2>/dev/null | grep -q "^OpenSSL $version " &&
        "$out" list -commands 2>/dev/null | grep -qw cmp && [ -f "$beside/libcrypto.a" ] &&
        grep -q "\"$version\"" "$beside/include/openssl/opensslv.h" 2>/dev/null
}
if has; then
    touch "$out"
    exit 0
fi

mkdir -p "$beside"
build=$(mktemp -d "$beside/build.XXXXXX")
trap 'rm -rf "$build"' EXIT
log=$beside/build.log
make_in_build() { env -u MAKEFLAGS -u MAKELEVEL make --directory "$build" "$@" >>"$log" 2>&1; }
broken() {
    tail -n 20 "$log" >&2
    failed "$1; $log has all of it"
}
# What messages and certificates don't use is left out, and -O0 compiles in two thirds of the time.
without="shared module tests docs legacy comp quic dtls ssl-trace srp ech ts ct
    aria argon2 bf blake2 camellia cast ec2m idea lms md4 mdc2 ocb rc2 rc4 rmd160 scrypt seed siv slh-dsa sm2 sm4
    whirlpool"
(cd "$build" && perl "$source/Configure" $(printf 'no-%s ' $without) -O0) >"$log" 2>&1 || broken "Configure failed"
make_in_build -j"$(nproc)" build_generated || broken "make build_generated failed"
make_in_build -j"$(nproc)" apps/openssl || broken "make apps/openssl failed"
rm -rf "$beside/include"
mkdir -p "$beside/include"
cp -R "$source/include/openssl" "$build/include/openssl" "$beside/include"
mv "$build/libcrypto.a" "$beside"
mv "$build/apps/openssl" "$out"
has || failed "it does not say that it is OpenSSL $version, or has no cmp"
