"""`bulla key`: a user gets another key while messages lie on queues; the old one goes when none needs it any more."""

import json
import os
import threading

import pytest
from proton import Delivery

from manager import ERROR_QUEUE, shown_rows, wait_until
from proton_driver import Refused
from sites import CONFIDENTIALITY, PRIVACY, Site, clear
from units import Unit

# How often both users change their keys under traffic.
ROUNDS = int(os.environ.get("BULLA_ROTATION_ROUNDS", 2))


class Users:
    """Users with rings and an authority of the data directory's own."""

    def __init__(self, qm, *names):
        self.qm = qm
        self.identities = dict.fromkeys(names)
        self.cert("create", "--ca", "demo", "--dn", "CN=Demo authority", "--key", "p256")
        for name in names:
            others = [option for other in names if other != name for option in ("--share", other)]
            self.cert("create", "--ring", name, "--dn", self.dn(name), "--key", "p256", "--signer", "demo", *others)
            qm.add_user(name)

    def cert(self, *arguments):
        return self.qm.run("cert", *arguments, "--data", self.qm.data).stdout.decode()

    @staticmethod
    def dn(name):
        return f"CN={name},O=Demo"


@pytest.fixture(scope="module")
def site(managers):
    qm = managers(name="ROTATES")
    site = Site(qm, Users(qm, "orders", "billing"))
    yield site
    for client in site.clients.values():
        client.close()


def key(site, *arguments, code=0):
    done = site.qm.run("key", *arguments, "--data", site.qm.data, code=code)
    return done.stdout.decode() + done.stderr.decode()


def changes(site, user="*"):
    command = f"DISPLAY KEYROTATE('{user}')"
    return shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)


def has_ended(site, user="*"):
    wait_until(lambda: not changes(site, user), f"no change of a key is under way: {changes(site, user)}")


def own(site, user):
    return sorted(path.stem for path in (site.qm.data / "rings" / user / "own").glob("*.pem"))


def retired(site, user):
    return list((site.qm.data / "rings" / user / "retired").glob("own-*.pem"))


def told(site, *steps):
    """What the audit log has of changes of keys."""
    done = site.qm.run("audit", "show", "--json", "--kind", "key-rotation", "--data", site.qm.data)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    return [entry for entry in entries if not steps or entry["what"]["step"] in steps]


def bodies(messages):
    return [bytes(message.body) for message in messages]


def test_the_new_key_seals_and_the_old_one_goes_with_the_last_message_that_needs_it(site):
    queue = site.queue(PRIVACY)
    for number in range(3):
        site.orders.put(queue, clear(b"old %d" % number))
    (old,) = own(site, "billing")
    said = key(site, "rotate", "billing", "--overlap", "0s")
    assert "seals from now on" in said, said
    (change,) = changes(site, "billing")
    assert (change["MSGS"], change["QUEUES"], change["NEWREAD"], change["UNKNOWN"]) == (3, [queue], "YES", 0), change
    assert change["OLDSERIAL"] != change["NEWSERIAL"] and change["SUBJECT"] == Users.dn("billing")
    for number in range(2):
        site.orders.put(queue, clear(b"new %d" % number))
    used = shown_rows(
        site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", f"DISPLAY KEYUSE({queue})").stdout
    )
    assert {row["SERIAL"].lstrip("0"): row["MSGS"] for row in used} == {
        change["OLDSERIAL"].lstrip("0"): 3,
        change["NEWSERIAL"].lstrip("0"): 2,
    }
    wait_until(lambda: changes(site, "billing")[0]["STEP"] == "WITHDRAWN", "the overlap is over")
    # Refused with where they are; nothing is changed by that.
    said = key(site, "retire", "billing", "--old", code=4)
    assert "3 messages" in said and queue in said, said
    assert len(own(site, "billing")) == 2
    assert bodies(site.billing.get(queue) for _ in range(5)) == [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1"]
    has_ended(site, "billing")
    (new,) = own(site, "billing")
    assert new != old and len(retired(site, "billing")) == 1
    steps = ["begun", "keyed", "installed", "shared", "withdrawn", "retired"]
    assert [entry["what"]["step"] for entry in told(site)] == steps
    end = told(site)[-1]
    assert (end["what"]["began_messages"], end["what"]["ended_messages"]) == (3, 0)
    assert end["who"] == {"qmgr": True} and told(site)[0]["who"]["uid"] == os.getuid()
    assert end["what"]["user"] == "billing" and end["what"]["key"] != end["what"]["new_key"]
    site.orders.put(queue, clear(b"afterwards"))
    assert bytes(site.billing.get(queue).body) == b"afterwards"


def test_messages_in_units_of_work_and_under_delivery_keep_the_old_key(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"held"))
    with site.qm.connect("orders") as writer, site.qm.connect("billing") as reader:
        unit = Unit(writer)
        unit.put(writer.sender(queue), clear(b"in a unit"))
        # A user with the right to get, and no other, holds a message for as long as the connection lasts.
        receiver = reader.receiver(queue, credit=1)
        message = receiver.next(accept=False)
        key(site, "rotate", "billing", "--overlap", "0s")
        wait_until(lambda: changes(site, "billing")[0]["STEP"] == "WITHDRAWN", "the overlap is over")
        (change,) = changes(site, "billing")
        assert (change["MSGS"], change["INUOW"]) == (1, 1), change
        unit.commit()
        assert changes(site, "billing")[0]["MSGS"] == 2
        # Who answers for it can see where it hangs, and ends it in so many words.
        (old,) = [row["OLDSERIAL"] for row in changes(site, "billing")]
        assert "--strand" in key(site, "retire", "billing", old, code=4)
        said = key(site, "retire", "billing", old, "--strand")
        assert "it was needed: 2 messages" in said, said
        has_ended(site, "billing")
        receiver.settle(message.delivery, Delivery.RELEASED)
        receiver.close()
    (stranded,) = told(site, "stranded")
    assert (stranded["what"]["ended_messages"], stranded["who"]["uid"]) == (2, os.getuid())
    site.qm.says("2 messages can't be opened with it")
    with pytest.raises(Refused, match="cause=not-a-recipient"):
        site.billing.get(queue)
    # It was put aside, and not destroyed: put back, it opens.
    newest = max(retired(site, "billing"), key=lambda path: path.stat().st_ctime_ns)
    newest.rename(newest.parent.parent / "own/back.pem")
    wait_until(lambda: "YES" in str(shown(site, f"DISPLAY KEYUSE({queue}) KEYHERE")), "the key is seen again")
    assert sorted(bodies(site.billing.get_all(queue))) == [b"held", b"in a unit"]
    key(site, "retire", "billing", "--old")
    has_ended(site, "billing")
    assert len(own(site, "billing")) == 1


def shown(site, command):
    return shown_rows(site.qm.run("mqsc", "--data", site.qm.data, "--json", "-c", command).stdout)


def test_without_a_queue_manager_a_key_is_changed_and_none_is_taken_out(site):
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"before"))
    for client in site.clients.values():
        client.close()
    site.clients.clear()
    assert site.qm.stop() == 0
    key(site, "rotate", "billing", "--key", "rsa2048", "--overlap", "0s")
    said = key(site, "retire", "billing", "--old", code=4)
    assert "no queue manager is running" in said, said
    assert len(own(site, "billing")) == 2
    site.qm.start()
    site.orders.put(queue, clear(b"after"))
    assert bodies(site.billing.get_all(queue)) == [b"before", b"after"]
    has_ended(site, "billing")
    assert len(own(site, "billing")) == 1
    assert told(site, "retired")[-1]["what"]["began_messages"] == 1


def test_two_changes_of_one_key_don_t_mix(site):
    folder = site.qm.data / "requests"
    folder.mkdir()
    request, certificate = folder / "csr.pem", folder / "cert.pem"
    assert "no change of the key of orders is under way" in key(
        site, "rotate", "orders", "--certificate", site.qm.data / "authorities/demo/ca.pem", code=4
    )
    key(site, "rotate", "orders", "--overlap", "0s", "--request", request)
    assert changes(site, "orders")[0]["STEP"] == "KEYED"
    assert "under way" in key(site, "rotate", "orders", "--key", "rsa2048", code=4)
    assert key(site, "rotate", "orders", "--cancel").startswith("the change is called off")
    has_ended(site, "orders")
    request.unlink()
    key(site, "rotate", "orders", "--overlap", "0s", "--request", request)
    site.people.cert("sign", request, "--signer", "demo", "--out", certificate)
    key(site, "rotate", "orders", "--certificate", certificate)
    queue = site.queue(PRIVACY)
    site.orders.put(queue, clear(b"signed anew"))
    assert bodies(site.billing.get_all(queue)) == [b"signed anew"]
    has_ended(site, "orders")
    assert [entry["what"]["step"] for entry in told(site)][-8:] == [
        "keyed", "cancelled", "begun", "keyed", "installed", "shared", "withdrawn", "retired",
    ]  # fmt: skip


def test_a_user_without_a_key_and_the_key_that_seals_are_refused(site):
    assert "nobody has no key" in key(site, "rotate", "nobody", code=4)
    seals = site.people.cert("list", "--ring", "billing")
    serial = site.people.cert("show", own(site, "billing")[0], "--ring", "billing").split("serial")[1].split()[0]
    assert "seals and opens with the key" in key(site, "retire", "billing", serial, "--strand", code=4), seals
    assert "no key with serial number 4711" in key(site, "retire", "billing", "4711", code=4)
    assert "has no old key" in key(site, "retire", "billing", "--old")


def test_a_ring_that_cannot_be_read_stops_its_own_user_s_change_alone(site):
    rings = site.qm.data / "rings"
    shares = ("--share", "orders", "--share", "billing")
    site.people.cert("create", "--ring", "third", "--dn", Users.dn("third"), "--key", "p256", "--signer", "demo", *shares)
    for other in ("orders", "billing"):
        certificate = site.qm.data / f"{other}.crt"
        site.people.cert("export", own(site, other)[0], "--ring", other, "--out", certificate)
        site.people.cert("import", certificate, "--ring", "third", "--as", "person")
    damaged = rings / "third/people/damaged.pem"
    damaged.write_text("no certificate")
    said = key(site, "rotate", "billing", "--overlap", "0s")
    assert "the key ring of third can't be used" in said and "people/damaged.pem" in said, said
    has_ended(site, "billing")
    assert "people/damaged.pem" in key(site, "rotate", "third", code=1)
    damaged.unlink()
    # Once it is mended it seals for the new key, and for no other one.
    known = site.people.cert("list", "--ring", "third", "--json")
    assert [entry["serial"] for entry in json.loads(known) if entry["dn"] == Users.dn("billing")] == [
        key_serial(site, "billing")
    ], known
    key(site, "rotate", "third", "--overlap", "0s")
    has_ended(site)


def key_serial(site, user):
    """The serial number of a user's only key."""
    listed = json.loads(site.people.cert("list", "--ring", user, "--json"))
    (serial,) = [entry["serial"] for entry in listed if entry["private_key"]]
    return serial


class Traffic:
    """Puts and gets until it is stopped, and knows what it put and got."""

    def __init__(self, site, queue):
        self.site, self.queue = site, queue
        self.put, self.got, self.failed = [], [], []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._put, self._get)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def _run(self, work):
        try:
            work()
        except Exception as error:  # shown by the test, whose thread this is not
            self.failed.append(repr(error))

    def _put(self):
        with self.site.qm.connect("orders") as client:
            sender = client.sender(self.queue)
            while not self.ends.is_set():
                body = b"%d" % len(self.put)
                client.put(self.queue, clear(body), sender=sender)
                self.put.append(body)

    def _get(self):
        with self.site.qm.connect("billing") as client:
            receiver = client.receiver(self.queue, credit=20)
            while not self.ends.is_set():
                message = receiver.next(0.2)
                if message:
                    self.got.append(bytes(message.body))
                    receiver.flow(1)

    def check(self):
        """Everything that was put arrives, once and in its order."""
        assert not self.failed, self.failed
        self.got += bodies(self.site.billing.get_all(self.queue, credit=10_000))
        assert self.got == self.put
        assert self.site.qm.depth(ERROR_QUEUE) == 0


def test_under_traffic_both_users_change_their_keys_and_nothing_is_lost(site):
    queues = [site.queue(PRIVACY), site.queue(CONFIDENTIALITY + " KEYREUSE(32)")]
    with Traffic(site, queues[0]) as signed, Traffic(site, queues[1]) as reused:
        for _ in range(ROUNDS):
            for user in ("billing", "orders"):
                key(site, "rotate", user, "--overlap", "0s")
    for traffic in (signed, reused):
        traffic.check()
        assert traffic.put
    has_ended(site)
    assert [len(own(site, user)) for user in ("billing", "orders")] == [1, 1]
