#!/usr/bin/env bash
# Builds what is installed elsewhere: a tarball and a Debian package, each with the program, its lanes library, manual pages,
# completions and the service's unit; the debug information of the program apart; and the digests of all.
#
#   tools/packages.sh PROGRAM DIR     PROGRAM is target/release/bulla, as `make build` leaves it; DIR is made anew
set -euo pipefail

program=$(realpath "$1")
out=$2
top=$(cd "$(dirname "$0")/.." && pwd)
version=$("$program" --version | cut -d ' ' -f 2)
name=bulla-$version-linux-$(uname -m)
# Every file has the time of the commit, so that the same source gives the same tarball.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || stat -c %Y "$program")}
export SOURCE_DATE_EPOCH

cargo deb --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-deb

# Beside the program: that is where the metadata of the Debian package (crates/bulla/Cargo.toml) looks for it.
stage=$(dirname "$program")/stage
rm -rf "$out" "$stage"
mkdir -p "$out"
out=$(realpath "$out")
install -D -m 755 "$program" "$stage/bin/bulla"
strip --strip-all "$stage/bin/bulla"
lanes=$(dirname "$program")/libbulla_lanes.so
if [ -f "$lanes" ]; then
    install -D -m 644 "$lanes" "$stage/lib/bulla/libbulla_lanes.so"
    strip --strip-unneeded "$stage/lib/bulla/libbulla_lanes.so"
else
    echo "without accelerators: there is no $lanes" >&2
    install -d "$stage/lib/bulla"
fi
"$program" manual "$stage/share/man/man1"
gzip -9n "$stage"/share/man/man1/*.1
install -d "$stage"/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$program" completions bash >"$stage/share/bash-completion/completions/bulla"
"$program" completions zsh >"$stage/share/zsh/vendor-completions/_bulla"
"$program" completions fish >"$stage/share/fish/vendor_completions.d/bulla.fish"
install -D -m 644 "$top/packaging/bulla.service" "$stage/lib/systemd/system/bulla.service"
install -D -m 644 -t "$stage/share/doc/bulla" "$top/README.md" "$top/CHANGELOG.md" "$top/LICENSE"

(cd "$top" && cargo deb --quiet --no-build --no-strip -p bulla --output "$out/")
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --mtime="@$SOURCE_DATE_EPOCH" \
    --directory "$stage" --transform "s,^[.],$name," . | gzip -9n >"$out/$name.tar.gz"
rm -rf "$stage"
[ ! -f "$program.debug" ] || gzip -9nc "$program.debug" >"$out/$name.debug.gz"
cp "$top/packaging/Containerfile" "$out/"
(cd "$out" && sha256sum -- *.deb *.gz >SHA256SUMS)
ls -l "$out"
