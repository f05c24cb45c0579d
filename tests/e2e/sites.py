"""Queues under a policy, users with rings, and messages on their way between them."""

import itertools

import pytest
from proton import Message, symbol

import cms
import der
from manager import DEADLINE
from people import People
from pki import openssl
from proton_driver import Refused

PAYLOAD = b"two tons of barley; " * 40
INTEGRITY = "SIGNALG(SHA256) SIGNER('{orders}')"
PRIVACY = "SIGNALG(SHA256) ENCALG(AES256) SIGNER('{orders}') RECIP('{billing}')"
PRIVACY_CBC = "SIGNALG(SHA256) ENCALG(AES256CBC) SIGNER('{orders}') RECIP('{billing}')"
CONFIDENTIALITY = "ENCALG(AES256) RECIP('{billing}')"
QUALITIES = {
    "integrity": INTEGRITY,
    "privacy": PRIVACY,
    "privacy-cbc": PRIVACY_CBC,
    "confidentiality": CONFIDENTIALITY,
}


class Site:
    """Queues come one for each test, with an alias that shows what lies there."""

    numbers = itertools.count(1)

    def __init__(self, qm, people):
        self.qm = qm
        self.people = people
        self.clients = {}

    def __getattr__(self, user):
        """The connection of a user: `site.orders`."""
        if user not in self.clients:
            self.clients[user] = self.qm.connect(None if user == "nobody" else user)
        return self.clients[user]

    def queue(self, policy=None, attributes=""):
        name = f"Q{next(self.numbers)}"
        self.qm.mqsc(f"DEFINE QLOCAL({name}) {attributes}\nDEFINE QALIAS({name}.RAW) TARGET({name})")
        if policy:
            self.set_policy(name, policy)
        return name

    def set_policy(self, name, policy):
        names = {user: self.people.dn(user) for user in self.people.identities}
        return self.qm.mqsc(f"SET POLICY({name}) {policy.format(**names)}")

    def sealed(self, queue, user="orders", payload=PAYLOAD, **fields):
        """A message that the queue manager sealed for the queue, taken off it raw."""
        getattr(self, user).put(queue, clear(payload, **fields))
        return self.nobody.get(f"{queue}.RAW")

    def put_raw(self, queue, message):
        self.nobody.put(f"{queue}.RAW", message)

    def raw(self, queue):
        return self.nobody.get_all(f"{queue}.RAW", browse=True)


def clear(payload=PAYLOAD, **fields):
    return Message(body=payload, inferred=True, durable=True, properties={"colour": "green"}, **fields)


def copy(message, body=None):
    """The same message again, with another body where one is given."""
    again = Message()
    again.decode(message.encode())
    if body is not None:
        again.body, again.inferred = body, True
    return again


def payloads(messages):
    return [bytes(message.body) for message in messages]


def opened(qm, people):
    """A site with users whose certificates are of every sort, some of them no good."""
    people.add("expired", not_before=-10, not_after=-1)
    people.add("tomorrow", not_before=1, not_after=10)
    people.add("elliptic", "p256")
    people.add("short", "rsa1024")
    for name in ("revoked", "gone", "careless"):
        people.add(name)
    yield from _in_use(Site(qm, people))


def peopled(qm, authority, *users):
    """A site of a queue manager of its own, with those users."""
    people = People(qm, authority)
    for name in users:
        people.add(name)
    yield from _in_use(Site(qm, people))


def _in_use(site):
    yield site
    for client in site.clients.values():
        client.close()


def reason_and_cause(call):
    """Why it is refused."""
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.reason, refused.value.cause


def refused_put(client, queue, message=None):
    with pytest.raises(Refused) as refused:
        client.put(queue, message or clear())
    return refused.value


def refused_get(client, queue, credit=1):
    receiver = None
    with pytest.raises(Refused) as refused:
        receiver = client.receiver(queue, credit=credit)
        receiver.wait_for(1, DEADLINE)
    return refused.value


def foreign(envelope):
    message = Message(body=envelope, inferred=True, durable=True, id="foreign")
    message.content_type = symbol(cms.smime_type(envelope))
    return message


def recipient_serial(envelope):
    """ContentInfo → content → AuthEnvelopedData → recipientInfos → the first → rid → serialNumber."""
    return int.from_bytes(der.parse(envelope).at(1, 0, 1, 0, 1, 1).content, "big")


def serial(identity):
    return int(openssl("x509", "-in", identity.certificate, "-noout", "-serial").split(b"=")[1], 16)
