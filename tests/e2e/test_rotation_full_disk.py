"""A disk that gets full at each step of a change of a key, and of a reseal: what was there stays whole, keys still seal
and open, the error has its cause, and with room again the same command goes on and ends.

The disk is a file system in memory whose size is changed while it is in use, page by page: that takes the right to
mount."""

import json
import os
import subprocess

import pytest

from manager import ERROR_QUEUE, wait_until
from proton_driver import Refused
from sites import CONFIDENTIALITY, Site, clear
from test_key_rotation import Users, bodies, changes, has_ended, key, own, told

MANAGER = "FULL"
PRIVACY = f"SIGNALG(SHA256) ENCALG(AES256) SIGNER('{{orders}}', '{{{MANAGER}}}') RECIP('{{billing}}')"
PAGE = 4096
# More than a queue manager's directory takes (bytes).
ROOMY = 512 << 20
NO_SPACE = "No space left on device"
# Pages that a change of a key never takes beyond those that it gives back.
PAGES_MAX = 30
# Messages that the rest of a segment of the journal has no room for, each longer than half a page.
RESEALED, RESEALED_BYTES = 1_000, 20_000
# As often all of them are sealed anew at most, until the journal has no room: a segment of it has 64 MiB.
ROUNDS_MAX = 20


def being_written(folder):
    """Files there that are not whole yet."""
    return [file for file in folder.rglob("*") if "new" in file.suffix or file.name.startswith(".new-")]


class Disk:
    """A file system of its own."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={ROOMY},mode=700", "tmpfs", path], stderr=subprocess.PIPE, check=False
        )
        if done.returncode != 0:
            path.rmdir()
            pytest.skip(f"it takes the right to mount: {done.stderr.decode().strip()}")

    def _resize(self, size, names):
        subprocess.run(["mount", "-o", f"remount,size={size},nr_inodes={names}", self.path], check=True)

    def leave(self, pages, names=1000):
        """Room for so many pages more, and for so many new files and folders."""
        # A file that is just being written, as the copy of the definitions, has room that is free a moment later.
        wait_until(lambda: not being_written(self.path), "no file is being written")
        facts = os.statvfs(self.path)
        used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        self._resize(used + pages * PAGE or PAGE, facts.f_files - facts.f_ffree + names)

    def empty(self):
        self._resize(ROOMY, 100_000)

    def remove(self):
        subprocess.run(["umount", "-l", self.path], check=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    disk = Disk(tmp_path_factory.mktemp("full") / "disk")
    yield disk
    disk.remove()


@pytest.fixture(scope="module")
def site(managers, disk):
    qm = managers(data=disk.path / "data", name=MANAGER)
    site = Site(qm, Users(qm, "orders", "billing", "auditor", MANAGER))
    yield site
    for client in site.clients.values():
        client.close()
    # Before its disk goes.
    qm.kill()


@pytest.fixture(autouse=True)
def room(disk):
    yield
    disk.empty()


def step(site, user="billing"):
    """The last step that is on disk; none before the first one."""
    records = list((site.qm.data / "rotations").glob(f"{user}+*.json"))
    return json.loads(records[-1].read_bytes())["steps"][-1]["step"] if records else None


def record(site, user="billing"):
    (path,) = (site.qm.data / "rotations").glob(f"{user}+*.json")
    return json.loads(path.read_bytes())


def check_nothing_is_half_written(site):
    """Every ring can be read, every record too, and no part of a file lies about."""
    for user in site.people.identities:
        assert json.loads(site.people.cert("list", "--ring", user, "--json"))
    for path in (site.qm.data / "rotations").glob("*.json"):
        json.loads(path.read_bytes())
    folders = [site.qm.data / "rotations", *(site.qm.data / "rings").rglob("*")]
    lying = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if "new" in file.suffix]
    lying += [file for folder in folders if folder.is_dir() for file in folder.glob(".new-*")]
    assert not lying, lying


class Flow:
    """A message that lies there the while, and others that are sealed and opened."""

    def __init__(self, site):
        self.site = site
        self.queue = site.queue(PRIVACY)
        self.others = site.queue(CONFIDENTIALITY)
        self.count = 0

    def lies(self, body):
        self.site.orders.put(self.queue, clear(body))

    def passes(self):
        self.count += 1
        for queue in (self.queue, self.others):
            message = clear(b"passes %d" % self.count)
            message.durable = False
            self.site.orders.put(queue, message)
        assert bytes(self.site.billing.get(self.others).body) == b"passes %d" % self.count

    def end(self, *bodies_before):
        expected = [*bodies_before, *(b"passes %d" % (number + 1) for number in range(self.count))]
        assert bodies(self.site.billing.get_all(self.queue, credit=1000)) == expected
        assert self.site.qm.depth(ERROR_QUEUE) == 0


def test_the_command_fails_at_every_page_that_it_lacks_and_goes_on(site, disk):
    flow = Flow(site)
    flow.lies(b"before")
    (old,) = own(site, "billing")
    failed_at, pages, names = [], 0, 1000
    while pages < PAGES_MAX:
        disk.leave(pages, names)
        before = step(site)
        said = site.qm.run("key", "rotate", "billing", "--overlap", "0s", "--data", site.qm.data, code=None)
        text = said.stderr.decode()
        if said.returncode == 0:
            break
        assert said.returncode == 1 and NO_SPACE in text, text
        # The cause names the file.
        assert str(site.qm.data) in text, text
        flow.passes()
        check_nothing_is_half_written(site)
        assert old in own(site, "billing")
        after = step(site)
        failed_at.append((before, after))
        # First without a page, then without a name for a file, then with what one more page brings.
        if names > 0:
            names = 0
        else:
            pages, names = (pages + 1 if after == before else 0), 1000
    assert said.returncode == 0, failed_at
    # It stood still before and in these steps, unless the room for one was enough for the next, too, which depends on
    # where the pages are that files give back: that has been seen of one of them at a time.
    stood = {after for before, after in failed_at if before == after}
    assert None in stood and len(stood & {"begun", "keyed", "installed"}) >= 2, failed_at
    disk.empty()
    flow.passes()
    flow.end(b"before")
    has_ended(site)
    assert old not in own(site, "billing") and len(own(site, "billing")) == 1
    check_nothing_is_half_written(site)
    # One that began, and whose record then found no room, begins again: seen once.
    steps = [entry["what"]["step"] for entry in told(site)]
    begun = ["begun"] * max(steps.count("begun"), 1)
    assert steps == [*begun, "keyed", "installed", "shared", "withdrawn", "retired"], steps


def test_the_queue_manager_waits_for_room_to_withdraw_and_to_retire_and_says_why(site, disk):
    flow = Flow(site)
    flow.lies(b"needs the old key")
    former, told_before = own(site, "billing"), len(told(site))
    key(site, "rotate", "billing", "--overlap", "3s")
    wait_until(lambda: record(site)["audited"] == 4, "the audit log has the steps up to the new key's use")
    lines = len(site.qm.log)
    disk.leave(0)
    wait_until(lambda: NO_SPACE in "".join(site.qm.log[lines:]), "the log says why the old certificate stays")
    assert step(site) == "shared" and set(former) < set(own(site, "billing"))
    flow.passes()
    check_nothing_is_half_written(site)
    disk.empty()
    wait_until(lambda: step(site) == "withdrawn" and record(site)["audited"] == 5, "the overlap is over")
    lines = len(site.qm.log)
    disk.leave(0, 0)
    flow.passes()
    flow.end(b"needs the old key")
    wait_until(lambda: NO_SPACE in "".join(site.qm.log[lines:]), "the log says why the old key stays")
    assert step(site) == "withdrawn" and set(former) < set(own(site, "billing"))
    flow.count = 0
    flow.passes()
    check_nothing_is_half_written(site)
    disk.empty()
    has_ended(site)
    assert len(own(site, "billing")) == 1 and own(site, "billing") != former
    flow.end()
    steps = [entry["what"]["step"] for entry in told(site)[told_before:]]
    assert steps == ["begun", "keyed", "installed", "shared", "withdrawn", "retired"], steps


def test_a_step_is_told_of_once_while_its_record_can_t_be_written(site, disk):
    """Told again with each look, it would fill what room the audit log has left."""
    before = len(told(site))
    lines = len(site.qm.log)
    disk.leave(1)
    said = site.qm.run("key", "rotate", "billing", "--overlap", "0s", "--data", site.qm.data, code=1).stderr.decode()
    assert NO_SPACE in said and step(site) == "begun", said
    disk.leave(0)
    wait_until(lambda: len(told(site)) > before, "the audit log has the step")
    wait_until(lambda: NO_SPACE in "".join(site.qm.log[lines:]), "the log says that the record has no room")
    # A record that is none is told of by the next look.
    for number in range(3):
        (site.qm.data / f"rotations/look{number}+00.json").symlink_to("nowhere")
        site.qm.says(f"look{number}+00.json is a link")
    assert [entry["what"]["step"] for entry in told(site)[before:]] == ["begun"]
    for number in range(3):
        (site.qm.data / f"rotations/look{number}+00.json").unlink()
    disk.empty()
    key(site, "rotate", "billing", "--cancel")
    has_ended(site)
    assert [entry["what"]["step"] for entry in told(site)[before:]] == ["begun", "cancelled"]


def test_a_key_is_retired_by_hand_once_there_is_room(site, disk):
    flow = Flow(site)
    former = own(site, "billing")
    key(site, "rotate", "billing", "--overlap", "1d")
    wait_until(lambda: record(site)["audited"] == 4, "the audit log has the steps up to the new key's use")
    for names in (1000, 0):
        disk.leave(0, names)
        said = site.qm.run("key", "retire", "billing", "--old", "--data", site.qm.data, code=1).stderr.decode()
        assert NO_SPACE in said and str(site.qm.data) in said, said
        assert step(site) == "shared" and set(former) < set(own(site, "billing"))
        check_nothing_is_half_written(site)
        flow.passes()
    disk.empty()
    assert "is out of use; no message needed it" in key(site, "retire", "billing", "--old")
    has_ended(site)
    assert len(own(site, "billing")) == 1 and own(site, "billing") != former
    flow.end()


def reseal(site, queue, *options):
    return site.qm.run("reseal", queue, *options, "--rate", "1000000", "--data", site.qm.data, code=None)


def until_it_fails(site, queue):
    """All messages are sealed anew, again and again; what is said then."""
    for _ in range(ROUNDS_MAX):
        done = reseal(site, queue, "--where", "all")
        if done.returncode != 0:
            break
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode in (4, 8), said
    return said


def test_a_message_is_sealed_anew_whole_or_not_at_all(site, disk):
    queue = site.queue(PRIVACY, "MAXDEPTH(100000)")
    payload = os.urandom(RESEALED_BYTES)
    with site.qm.connect("orders") as client:
        sender = client.sender(queue)
        for number in range(RESEALED):
            client.put(queue, clear(b"%d " % number + payload, id=f"id-{number}"), sender=sender)
    key(site, "rotate", "billing", "--overlap", "0s")
    # Without any room the audit log can't be told of the command.
    disk.leave(0)
    said = until_it_fails(site, queue)
    assert f"2102 MQRC_RESOURCE_PROBLEM the audit log can't be written: {NO_SPACE}" in said, said
    # With some of it, the journal gets no further segment: others' messages take what there is.
    disk.leave(PAGES_MAX)
    others = site.queue(attributes="MAXDEPTH(100000)")
    with site.qm.connect("orders") as client, pytest.raises(Refused, match="no space left for the journal"):
        sender = client.sender(others)
        for _ in range(ROUNDS_MAX * RESEALED):
            client.put(others, clear(payload), sender=sender)
    said = until_it_fails(site, queue)
    assert "messages: journal" in said, said
    assert site.qm.depth(queue) == RESEALED
    # What a crash leaves at this moment is what was answered.
    for client in site.clients.values():
        client.close()
    site.clients.clear()
    site.qm.kill()
    disk.empty()
    site.qm.start()
    assert site.qm.depth(queue) == RESEALED
    done = reseal(site, queue)
    assert done.returncode == 0, done
    messages = site.billing.get_all(queue, credit=1000)
    assert [message.id for message in messages] == [f"id-{number}" for number in range(RESEALED)]
    assert all(bytes(message.body) == b"%d " % number + payload for number, message in enumerate(messages))
    assert site.qm.depth(ERROR_QUEUE) == 0
    has_ended(site)
