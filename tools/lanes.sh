#!/usr/bin/env bash
# Builds the library of lanes that an accelerator opens: fetches the static archive of Intel's Cryptography Primitives
# Library (Apache-2.0) as a Python wheel and links the part that Bulla calls into a shared object that needs libc alone.
#
#   tools/lanes.sh FILE     FILE is the shared object, target/release/libbulla_lanes.so usually
#
# Without it everything works on the CPU, so where something is missing this says so and succeeds.
set -euo pipefail

out=$1
version=2026.2.0
wheels=.cache/lanes/$version
tools=$(dirname "$0")

skipped() {
    echo "skipped: the library of lanes: $1" >&2
    exit 0
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skipped "it is for x86-64 Linux"
[ "$out" -nt "$tools/lanes.sh" ] && [ "$out" -nt "$tools/lanes.map" ] && [ "$out" -nt "$tools/lanes_absent.c" ] && exit 0
command -v cc >/dev/null || skipped "there is no C compiler"

archive=$wheels/ipp_crypto_static-$version.data/data/lib/libcrypto_mb.a
headers=$wheels/ipp_crypto_include-$version.data/data/include
if [ ! -f "$archive" ] || [ ! -d "$headers" ]; then
    mkdir -p "$wheels"
    for name in ipp-crypto-static ipp-crypto-include; do
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
            --dest "$wheels" "$name==$version" || skipped "pip can't fetch $name $version"
    done
    for wheel in "$wheels"/*.whl; do
        python3 -m zipfile -e "$wheel" "$wheels" || skipped "$wheel can't be unpacked"
    done
fi
[ -f "$archive" ] || skipped "the wheel has no libcrypto_mb.a"

# Each function that is exported is linked in, and nothing that only others need. What the archive's other functions
# want of OpenSSL is never called; lanes_absent.c stands for it.
wanted=()
for name in $(grep -o 'mbx_[a-zA-Z0-9_]*' "$tools/lanes.map"); do
    wanted+=("-Wl,-u,$name")
done
mkdir -p "$(dirname "$out")"
cc -shared -O2 -fPIC -Wall -Werror -o "$out.new" "$tools/lanes_absent.c" "${wanted[@]}" "$archive" \
    -Wl,--version-script="$tools/lanes.map" -Wl,--gc-sections -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,--build-id=none ||
    skipped "it can't be linked"
mv "$out.new" "$out"
echo "built $out"
