#!/usr/bin/env bash
# Builds the library of lanes that an accelerator opens: fetches the static archive of Intel's Cryptography Primitives
# Library (Apache-2.0) as a Python wheel and links the part that Bulla calls into a shared object that needs libc alone.
#
#   tools/lanes.sh FILE     FILE is the shared object, target/release/libbulla_lanes.so usually
#
# Without it everything works on the CPU, so where something is missing this says so and succeeds. What is linked runs where
# all clear keys are, so a wheel that is not one of tools/lanes.txt, byte for byte, is an error and not a thing missing.
set -euo pipefail

out=$1
tools=$(dirname "$0")
version=$(sed -n 's/^ipp-crypto-static==\([^ ]*\) .*/\1/p' "$tools/lanes.txt")
wheels=.cache/lanes/$version

skipped() {
    echo "skipped: the library of lanes: $1" >&2
    exit 0
}

refused() {
    echo "error: the library of lanes: $1" >&2
    exit 1
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skipped "it is for x86-64 Linux"
fresh=yes
for source in lanes.sh lanes.txt lanes.map lanes_absent.c; do
    [ "$out" -nt "$tools/$source" ] || fresh=no
done
[ $fresh = no ] || exit 0
for program in cc python3 sha256sum; do
    command -v $program >/dev/null || skipped "there is no $program"
done

archive=$wheels/ipp_crypto_static-$version.data/data/lib/libcrypto_mb.a
names=$(sed -n 's/^\(ipp-crypto-[a-z]*\)==.*/\1/p' "$tools/lanes.txt" | tr - _)
mkdir -p "$wheels"
missing=
for name in $names; do
    compgen -G "$wheels/$name-$version-*.whl" >/dev/null || missing=yes
done
if [ -n "$missing" ]; then
    # pip compares what it fetches with the digests, and keeps nothing that has another.
    log=$(python3 -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --dest "$wheels" --requirement "$tools/lanes.txt" 2>&1) ||
        case $log in
            *"DO NOT MATCH THE HASHES"*) refused "pip got a wheel whose digest is not the one of tools/lanes.txt" ;;
            *) skipped "pip can't fetch the wheels of tools/lanes.txt" ;;
        esac
fi
# What an earlier run left is compared again, and unpacked again: the archive that is linked is that of the wheel.
for name in $names; do
    for wheel in "$wheels/$name-$version"-*.whl; do
        digest=$(sha256sum "$wheel") || skipped "there is no $wheel"
        grep -q -- "--hash=sha256:${digest%% *}\$" "$tools/lanes.txt" || refused "$wheel is not the one of tools/lanes.txt"
        python3 -m zipfile -e "$wheel" "$wheels" || skipped "$wheel can't be unpacked"
    done
done
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
