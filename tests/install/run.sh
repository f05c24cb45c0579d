#!/usr/bin/env bash
# Installs the Debian package in fresh Debian systems, makes a queue manager there, starts it as the unit says, upgrades,
# removes and purges it, and looks what is left each time. Root, debootstrap and a mirror of Debian are needed.
#
#   tests/install/run.sh DIR [SUITE…]     DIR has what `make packages` built; suites are bookworm and trixie unless given
set -euo pipefail

packages=$(realpath "$1")
shift
suites=("${@:-bookworm}")
[ $# -gt 0 ] || suites=(bookworm trixie)
here=$(dirname "$(realpath "$0")")
# debootstrap's own, unless one is given.
mirror=${DEBIAN_MIRROR:-}
kept=$here/../../.cache/install
deb=$(ls "$packages"/bulla_*.deb)

[ "$(id -u)" -eq 0 ] || { echo "skipped: fresh systems are made as root" >&2; exit 0; }
if ! command -v debootstrap >/dev/null; then
    apt-get install -y -qq --no-install-recommends debootstrap >/dev/null ||
        { echo "skipped: there is no debootstrap" >&2; exit 0; }
fi

scratch=$(mktemp -d)
started=()
end() {
    local pid
    for pid in ${started[@]+"${started[@]}"}; do
        kill "$pid" 2>/dev/null && wait "$pid" || true
    done
    for mounted in "$scratch"/*/proc "$scratch"/*/dev; do
        umount "$mounted" 2>/dev/null || true
    done
    rm -rf "$scratch"
}
trap end EXIT

step() { echo "$suite: $*"; }
fail() { echo "$suite: failed: $*" >&2; exit 1; }
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
as_bulla() { inside setpriv --reuid bulla --regid bulla --clear-groups "$@"; }
apt_get() {
    inside apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 --no-install-recommends --yes "$@" \
        >"$scratch/apt.log" 2>&1 || { cat "$scratch/apt.log" >&2; fail "apt-get $*"; }
}

fresh_system() {
    local archive=$kept/$suite.tar
    if [ ! -f "$archive" ]; then
        debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$scratch/debootstrap.log" 2>&1 ||
            { tail -n 5 "$scratch/debootstrap.log" >&2; fail "debootstrap"; }
        mkdir -p "$kept"
        tar --create --file "$archive.new" --directory "$root" .
        mv "$archive.new" "$archive"
    else
        mkdir -p "$root"
        tar --extract --file "$archive" --directory "$root"
    fi
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp /etc/hosts "$root/etc/hosts"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    apt_get update
}

# Starts the queue manager as the unit does: its user, its command line, its options, its notification.
start() {
    local unit=$root/lib/systemd/system/bulla.service options line
    options=$(. "$root/etc/default/bulla" && echo "$BULLA_OPTIONS")
    line=$(sed -n 's/^ExecStart=//p' "$unit" | sed "s|\$BULLA_OPTIONS|$options|")
    [ "$(sed -n 's/^Type=//p' "$unit")" = notify ] || fail "the unit is not of Type=notify"
    as_bulla test -e "$(sed -n 's/^ConditionPathExists=//p' "$unit")" || fail "the unit's condition does not hold"
    rm -f "$root/run/notify"
    python3 "$here/notified.py" "$root/run/notify" "READY=1" &
    local listener=$!
    while [ ! -S "$root/run/notify" ]; do kill -0 $listener; done
    # Each of these becomes the next, so that the number is the queue manager's own.
    (exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin NOTIFY_SOCKET=/run/notify \
        setpriv --reuid bulla --regid bulla --clear-groups \
        sh -c "cd /var/lib/bulla && umask 0077 && exec $line") 2>"$scratch/$suite.log" &
    manager=$!
    started+=($manager)
    wait $listener || { cat "$scratch/$suite.log" >&2; fail "it did not say that it is ready"; }
}

stop() {
    kill "$manager"
    wait "$manager" || { cat "$scratch/$suite.log" >&2; fail "it did not end well"; }
    started=()
}

# The same package under a later version.
newer() {
    dpkg-deb --raw-extract "$deb" "$scratch/newer-$suite"
    sed -i 's/^Version: .*/&+later/' "$scratch/newer-$suite/DEBIAN/control"
    dpkg-deb --build --root-owner-group -Zgzip "$scratch/newer-$suite" "$root/tmp/newer.deb" >/dev/null
}

password() { echo "/var/lib/bulla/clients/$1.password"; }

for suite in "${suites[@]}"; do
    root=$scratch/$suite
    fresh_system

    cp "$deb" "$root/tmp/bulla.deb"
    apt_get install /tmp/bulla.deb
    step "installed: $(inside bulla --version), $(inside dpkg-query --show --showformat '${Version}, ${Installed-Size} KiB' bulla)"
    [ "$(inside stat -c '%U:%G %a' /var/lib/bulla)" = "bulla:bulla 700" ] || fail "the rights of /var/lib/bulla"
    [ -L "$root/etc/systemd/system/multi-user.target.wants/bulla.service" ] || fail "the service is not enabled"
    [ -f "$root/usr/share/man/man1/bulla-start.1.gz" ] || [ "$suite" = bookworm ] || fail "there is no manual page"
    inside bash -c '. /usr/share/bash-completion/completions/bulla && complete -p bulla' >/dev/null || fail "completions"

    printf 'organisation = "Demo"\n[users]\norders = {}\nbilling = {}\n[queues.ORDERS]\nput = ["orders"]\nget = ["billing"]\n' \
        >"$root/tmp/site.toml"
    as_bulla bulla init --file /tmp/site.toml /var/lib/bulla >"$scratch/init.log" || fail "init"
    printf 'BULLA_OPTIONS="--amqp 127.0.0.1:%s --amqps 127.0.0.1:%s"\n' 25672 25671 >"$root/etc/default/bulla"
    start
    echo 'two tons of barley' >"$root/tmp/order.txt"
    as_bulla bulla put ORDERS /tmp/order.txt --amqp 127.0.0.1:25672 --user orders --password-file "$(password orders)" \
        >"$scratch/put.log" 2>&1 || { cat "$scratch/put.log" >&2; fail "put"; }
    as_bulla bulla doctor ORDERS --data /var/lib/bulla >"$scratch/doctor.log" || { cat "$scratch/doctor.log" >&2; fail "doctor"; }
    step "started as the unit says, a message is put, doctor finds nothing broken"
    stop

    newer
    apt_get install /tmp/newer.deb
    grep -q 25672 "$root/etc/default/bulla" || fail "the upgrade changed the options"
    start
    as_bulla sh -c "cd /tmp && umask 022 && bulla get ORDERS --amqp 127.0.0.1:25672 --user billing \
        --password-file $(password billing) --out /var/lib/bulla/inbox/" >"$scratch/get.log" 2>&1 ||
        { cat "$scratch/get.log" >&2; fail "get"; }
    grep -qr 'two tons of barley' "$root/var/lib/bulla/inbox" || fail "the message is another one"
    stop
    step "upgraded to $(inside dpkg-query --show --showformat '${Version}' bulla): options and message are there"

    apt_get remove bulla
    [ ! -e "$root/usr/bin/bulla" ] && [ -f "$root/etc/default/bulla" ] && [ -f "$root/var/lib/bulla/objects.mqsc" ] ||
        fail "what remove leaves"
    apt_get purge bulla
    [ ! -e "$root/etc/default/bulla" ] && [ -f "$root/var/lib/bulla/objects.mqsc" ] || fail "what purge leaves"
    grep -q 'is left there' "$scratch/apt.log" || fail "purge does not say what it leaves"
    apt_get install /tmp/bulla.deb
    rm -rf "$root/var/lib/bulla/"* "$root/var/lib/bulla/".[!.]*
    apt_get purge bulla
    [ ! -e "$root/var/lib/bulla" ] || fail "purge leaves an empty directory"
    inside find / -xdev -path /proc -prune -o -path /dev -prune -o -path /tmp -prune -o -name '*bulla*' -print >"$scratch/left"
    [ ! -s "$scratch/left" ] || { cat "$scratch/left" >&2; fail "purge leaves these"; }
    step "removed and purged: keys and messages stay until they are removed by hand"
    umount "$root/proc" "$root/dev"
    rm -rf "$root"
done
