#!/usr/bin/env python3
"""Stands in for a service manager: listens at a socket, as sd_notify(3) says, until a state arrives.

    notified.py SOCKET STATE
"""

import os
import socket
import sys

# Seconds until a start counts as failed; the journal is empty or nearly so.
PATIENCE = 60

path, wanted = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
# It has its rights when it appears: the one that is started has another user.
before = os.umask(0)
listener.bind(path)
os.umask(before)
listener.settimeout(PATIENCE)
try:
    while wanted not in (said := listener.recv(4096).decode()).splitlines():
        print(said, file=sys.stderr)
except TimeoutError:
    sys.exit(f"no {wanted} within {PATIENCE} s")
