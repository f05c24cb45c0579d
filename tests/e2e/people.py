"""Users of a queue manager, each with a key ring."""

import time

from manager import wait_until
from pki import Ring

# A ring's files are looked at again after this long, and a little more.
RING_SECONDS = 1.1


class People:
    """Users with rings: each has a key of its own, trusts the authority and knows the others."""

    def __init__(self, qm, authority):
        self.qm = qm
        self.authority = authority
        self.identities = {}
        self.rings = {}

    def add(self, name, key="rsa2048", **dates):
        identity = self.authority.issue(name, key, **dates)
        ring = Ring(self.qm.data, name).own(identity).trust(self.authority)
        for other, known in self.rings.items():
            known.people(identity)
            ring.people(self.identities[other])
        self.identities[name], self.rings[name] = identity, ring
        self.qm.add_user(name)
        return identity

    def dn(self, name):
        return self.identities[name].dn

    def seen(self):
        seen()


def seen():
    """After a change to a ring in use: the queue manager looks at its files again once a second."""
    end = time.monotonic() + RING_SECONDS
    wait_until(lambda: time.monotonic() > end, "a second has passed")
