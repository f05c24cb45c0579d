#!/usr/bin/env bash
# Runs a command that fetches over the network, up to three times, because networks fail in passing.
#
#   tests/retry.sh COMMAND…
set -uo pipefail
for pause in 5 20 0; do
    "$@" && exit 0
    code=$?
    [ $pause -eq 0 ] || { echo "$1 failed with exit code $code; again in $pause s" >&2; sleep $pause; }
done
echo "$* failed three times" >&2
exit $code
