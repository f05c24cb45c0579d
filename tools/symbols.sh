#!/usr/bin/env bash
# Moves a program's debug information into a file beside it, where debuggers and the program's own backtraces find it. The
# names of functions stay in the program.
#
#   tools/symbols.sh FILE     leaves FILE without, and FILE.debug with it
set -euo pipefail

program=$1
command -v objcopy >/dev/null || { echo "skipped: there is no objcopy, so $program keeps its debug information" >&2; exit 0; }
# What has none was here already.
objdump -h "$program" | grep -q ' \.debug_info ' || exit 0
objcopy --only-keep-debug "$program" "$program.debug.new"
mv "$program.debug.new" "$program.debug"
# A new file: cargo's own copy, which the program is a link to, stays whole.
objcopy --strip-debug --add-gnu-debuglink="$program.debug" "$program" "$program.new"
mv "$program.new" "$program"
