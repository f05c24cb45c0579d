#!/usr/bin/env bash
# Whether an `openssl` program opens a confidential message: tries it with the example of docs/formats/sealed-message.md.
# Before 3.0.22, and in each later line before August 2026, OpenSSL reads the authenticated attributes of RFC 5083 under a
# wrong tag.
#
#   tests/openssl-probe.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
own=testdata/seal/billing/own/billing.pem
perl -0777 -ne '/^### Example: confidentiality\n.*?```hex\n(.*?)```/ms or exit 1; print pack("H*", $1 =~ s/\s//gr)' \
    docs/formats/sealed-message.md |
    "${1:-openssl}" cms -decrypt -inform DER -binary -recip $own -inkey $own -out /dev/null
