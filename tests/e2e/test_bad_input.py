"""Bad input, each with its error, and a queue manager that goes on."""

import concurrent.futures
import hashlib
import os
import re
import shutil
import socket
import subprocess

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from proton import Delivery, Message

import cms
import der
from manager import BULLA, ERROR_QUEUE, run, shown_rows
from pki import Ring, openssl
from proton_driver import Client, Refused
from sites import (
    CONFIDENTIALITY,
    INTEGRITY,
    PAYLOAD,
    PRIVACY,
    clear,
    copy,
    foreign,
    opened,
    payloads,
    recipient_serial,
    refused_put,
    serial,
)

AES256_GCM = der.oid("2.16.840.1.101.3.4.1.46")
AES128_GCM = der.oid("2.16.840.1.101.3.4.1.6")
MIB = 1 << 20
# The first bytes of a batch in the journal.
BATCH_MAGIC = b"BATC"


@pytest.fixture(scope="module")
def site(qm, people):
    yield from opened(qm, people)


@pytest.fixture(autouse=True)
def clean(site):
    yield
    site.nobody.get_all(ERROR_QUEUE, credit=1000)


def causes(site):
    return [error["cause"] for error in site.qm.errors()]


def quarantined(site, policy, change):
    """Seals a message, changes its envelope, and what the error queue then says."""
    queue = site.queue(policy)
    message = site.sealed(queue)
    site.put_raw(queue, copy(message, change(bytes(message.body))))
    assert site.billing.get_all(queue) == []
    assert site.qm.depth(queue) == 0
    return causes(site)


# --- Policies and rings ---


def test_a_policy_that_names_an_unknown_dn_warns_when_set_and_refuses_puts(site):
    queue = site.queue()
    said = site.set_policy(queue, "ENCALG(AES256) RECIP('CN=nobody,O=Demo')")
    assert "CN=nobody,O=Demo" in said and "warning" in said
    refused = refused_put(site.orders, queue)
    assert (refused.reason, refused.cause) == (2063, "unknown-dn")
    assert "CN=nobody,O=Demo" in refused.description


def test_of_two_certificates_with_one_dn_the_newer_is_sealed_for_and_both_open(site):
    people = site.people
    older = people.authority.issue("twin", not_before=-20)
    newer = people.authority.issue("twin", not_before=-10)
    Ring(site.qm.data, "twin").own(older, newer).trust(people.authority)
    site.qm.add_user("twin")
    people.identities["twin"] = newer
    people.rings["orders"].people(older, newer)
    people.seen()
    queue = site.queue("ENCALG(AES256) RECIP('{twin}')")
    site.orders.put(queue, clear())
    [raw] = site.raw(queue)
    assert recipient_serial(bytes(raw.body)) == serial(newer)
    people.rings["orders"].drop("people", newer)
    people.seen()
    site.orders.put(queue, clear())
    assert recipient_serial(bytes(site.raw(queue)[1].body)) == serial(older)
    assert payloads(site.twin.get_all(queue)) == [PAYLOAD] * 2


@pytest.mark.parametrize("attribute", ["RECIP", "SIGNER"])
def test_ten_thousand_names_in_a_policy_are_refused_by_name_of_the_limit(site, attribute):
    queue = site.queue()
    names = " +\n".join(f"{attribute}('CN=user{number},O=Demo')" for number in range(10_000))
    said = site.qm.mqsc(f"SET POLICY({queue}) SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=x') +\n{names}", code=2)
    assert "error" in said and attribute in said
    assert "nothing found" in site.qm.mqsc(f"DISPLAY POLICY({queue}*)", code=None)


def test_an_envelope_for_ten_thousand_recipients_is_refused(site):
    def multiply(envelope):
        tree = der.parse(envelope)
        recipients = tree.at(1, 0, 1)
        recipients.parts = recipients.parts * 10_000
        return tree.encode()

    assert quarantined(site, CONFIDENTIALITY, multiply) == ["malformed"]


def test_a_wrong_ring_passphrase_is_said_at_the_attach_and_the_right_one_opens(site, managers, tmp_path):
    authority = site.people.authority
    qm = managers("locked", options=["--passphrase-file", write(tmp_path / "wrong", "not this one")])
    identity = authority.issue("locked")
    locked = openssl("pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in", identity.key, "-passout", "pass:open sesame")
    identity.key.write_bytes(locked)
    Ring(qm.data, "locked").own(identity).trust(authority)
    qm.add_user("locked")
    qm.mqsc("DEFINE QLOCAL(Q); SET POLICY(Q) SIGNALG(SHA256)")
    with qm.connect("locked") as client:
        refused = refused_put(client, "Q")
    assert (refused.reason, refused.cause) == (2063, "key-ring")
    assert "open sesame" not in "".join(qm.log)
    qm.stop()
    qm.options = ["--passphrase-file", write(tmp_path / "right", "open sesame")]
    qm.start()
    with qm.connect("locked") as client:
        client.put("Q", clear())
        assert payloads(client.get_all("Q")) == [PAYLOAD]
    assert qm.stop() == 0


def write(path, text):
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


# --- Envelopes ---


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY, CONFIDENTIALITY])
def test_indefinite_length_ber_is_refused(site, policy):
    assert quarantined(site, policy, der.indefinite) == ["malformed"]


@pytest.mark.parametrize("policy", [INTEGRITY, PRIVACY, CONFIDENTIALITY])
def test_trailing_bytes_are_refused(site, policy):
    assert quarantined(site, policy, lambda envelope: envelope + b"\0") == ["malformed"]


def test_a_truncated_envelope_is_refused(site):
    assert quarantined(site, PRIVACY, lambda envelope: envelope[: len(envelope) // 2]) == ["malformed"]


def test_an_empty_body_that_claims_to_be_sealed_is_refused(site):
    assert quarantined(site, PRIVACY, lambda _: b"")[0] in ("malformed", "not-sealed")


def test_two_signers_of_whom_one_is_bad_are_refused(site, tmp_path):
    identities = site.people.identities
    queue = site.queue("SIGNALG(SHA256) BIND(NONE)")
    both = cms.sign(PAYLOAD, identities["orders"], identities["audit"], tmp=tmp_path)
    site.put_raw(queue, foreign(both))
    opened = payloads(site.billing.get_all(queue))
    before = causes(site)
    # Two good signers may open or not; with a bad one among them nothing may.
    for which in (0, 1):
        tree = der.parse(both)
        signature = tree.at(1, 0).parts[-1].at(which).parts[-1]
        signature.content = der.flipped(signature.content, 100)
        site.put_raw(queue, foreign(tree.encode()))
    assert site.billing.get_all(queue) == []
    assert opened in ([PAYLOAD], []) and len(opened) + len(before) == 1
    assert len(causes(site)) - len(before) == 2


def test_a_signature_without_signed_attributes_is_refused(site, tmp_path):
    queue = site.queue("SIGNALG(SHA256) BIND(NONE)")
    site.put_raw(queue, foreign(cms.sign(PAYLOAD, site.people.identities["orders"], tmp=tmp_path, options=["-noattr"])))
    assert site.billing.get_all(queue) == []
    assert len(causes(site)) == 1


def test_signed_attributes_taken_out_and_made_the_payload_are_refused(site, tmp_path):
    """The signature over the attributes verifies over a payload of their bytes."""

    def promote(envelope):
        tree = der.parse(envelope)
        signer = tree.at(1, 0).parts[-1].at(0)
        attributes = next(part for part in signer.parts if part.tag == 0xA0)
        signer.parts.remove(attributes)
        as_set = der.Node(0x31, b"", attributes.parts)
        tree.at(1, 0, 2).parts[1] = der.Node(0xA0, b"", [der.Node(0x04, as_set.encode())])
        return tree.encode()

    forged = promote(bytes(site.sealed(site.queue(INTEGRITY)).body))
    # It is a forgery that the command line believes.
    assert cms.verify(forged, site.people.authority, tmp_path)[:1] == b"\x31"
    queue = site.queue(INTEGRITY + " BIND(NONE)")
    site.put_raw(queue, foreign(forged))
    assert site.billing.get_all(queue) == []
    assert len(causes(site)) == 1


@pytest.mark.parametrize("length", [4, 12, 15])
def test_a_gcm_tag_under_sixteen_bytes_is_refused(site, length):
    def shorten(envelope):
        tree = der.parse(envelope)
        authenticated = tree.at(1, 0)
        mac = authenticated.parts[-1]
        assert (mac.tag, len(mac.content)) == (0x04, 16)
        mac.content = mac.content[:length]
        parameters = content_info(authenticated).at(1, 1)
        assert parameters.at(1).content == b"\x10"
        parameters.at(1).content = bytes([length])
        return tree.encode()

    assert quarantined(site, CONFIDENTIALITY, shorten)[0] in ("malformed", "weaker-than-policy")


def content_info(authenticated):
    """The EncryptedContentInfo of an AuthEnvelopedData."""
    return next(part for part in authenticated.parts if part.tag == 0x30)


def test_another_content_cipher_than_the_key_was_made_for_is_refused(site):
    def relabel(envelope):
        assert envelope.count(AES256_GCM) == 1
        return envelope.replace(AES256_GCM, AES128_GCM)

    assert quarantined(site, CONFIDENTIALITY, relabel) == ["weaker-than-policy"]


@pytest.mark.parametrize("length", [0, 5, 16, 31, 33])
def test_an_unwrapped_key_of_the_wrong_length_looks_like_any_other_failure(site, length):
    billing = site.people.identities["billing"]

    def rewrap(envelope):
        tree = der.parse(envelope)
        wrapped = openssl(
            "pkeyutl", "-encrypt", "-certin", "-inkey", billing.certificate,
            "-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256", "-pkeyopt", "rsa_mgf1_md:sha256",
            stdin=os.urandom(length),
        )  # fmt: skip
        tree.at(1, 0, 1, 0, 3).content = wrapped
        return tree.encode()

    assert quarantined(site, CONFIDENTIALITY, rewrap) == ["cannot-decrypt"]


def forged(site, template, plaintext):
    """A confidential message whose content is announced as sections, made with nothing but the reader's certificate."""
    billing = site.people.identities["billing"]
    key = os.urandom(32)
    tree = der.parse(template)
    _, recipients, content, attributes, tag = tree.at(1, 0).parts
    recipients.at(0, 3).content = openssl(
        "pkeyutl", "-encrypt", "-certin", "-inkey", billing.certificate,
        "-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256", "-pkeyopt", "rsa_mgf1_md:sha256",
        stdin=key,
    )  # fmt: skip
    for attribute in attributes.parts:
        if attribute.at(0).content.endswith(b"\x22\x01\x02"):
            attribute.at(1, 0, 0).content = b"\x01"  # sections
        if attribute.at(0).content.endswith(b"\x22\x01\x03"):
            attribute.at(1, 0).content = hashlib.sha256(recipients.encode()).digest()
    attributes.parts.sort(key=lambda attribute: attribute.encode())
    associated = der.Node(0x31, b"", attributes.parts).encode()
    encrypted = AESGCM(key).encrypt(content.at(1, 1, 0).content, plaintext, associated)
    content.parts[2].content, tag.content = encrypted[:-16], encrypted[-16:]
    return tree.encode()


DATA_SECTION = bytes.fromhex("005375a003") + b"two"


@pytest.mark.parametrize(
    "plaintext",
    [
        b"this is no AMQP",
        bytes.fromhex("005373c00401a10178") + DATA_SECTION,  # a second message-id
        DATA_SECTION + bytes.fromhex("005374c10702a10178a10179"),
        b"",
    ],
    ids=["no AMQP", "second properties", "second application properties", "no body section"],
)
def test_content_sealed_as_sections_is_a_body_and_nothing_else(site, plaintext):
    queue = site.queue(CONFIDENTIALITY)
    message = site.sealed(queue)
    # The forgery itself is a good one: as a body it opens.
    site.put_raw(queue, copy(message, forged(site, bytes(message.body), DATA_SECTION)))
    assert payloads(site.billing.get_all(queue)) == [b"two"]
    site.put_raw(queue, copy(message, forged(site, bytes(message.body), plaintext)))
    assert site.billing.get_all(queue) == []
    assert causes(site) == ["malformed"]
    assert site.qm.depth(queue) == 0


def test_a_gcm_recipient_pasted_into_a_cbc_envelope_is_refused_before_any_key_is_used(site, tmp_path):
    gcm = bytes(site.sealed(site.queue(CONFIDENTIALITY)).body)
    cbc = der.parse(cms.encrypt(PAYLOAD, site.people.identities["billing"], tmp=tmp_path, cipher="aes-256-cbc"))
    recipients = next(part for part in cbc.at(1, 0).parts if part.tag == 0x31)
    recipients.parts = der.parse(gcm).at(1, 0, 1).parts
    queue = site.queue(CONFIDENTIALITY)
    site.put_raw(queue, foreign(cbc.encode()))
    assert site.billing.get_all(queue) == []
    assert causes(site) == ["weaker-than-policy"]


def test_random_bytes_that_claim_to_be_sealed_never_open(site):
    queue = site.queue(PRIVACY)
    message = site.sealed(queue)
    for _ in range(50):
        site.put_raw(queue, copy(message, os.urandom(300)))
    assert site.billing.get_all(queue) == []
    assert set(causes(site)) <= {"malformed", "not-sealed"}


# --- Sizes ---


def test_messages_of_a_hundred_mebibytes_on_many_links_are_bounded(site, tmp_path):
    queue = site.queue(PRIVACY, f"MAXMSGL({100 * MIB})")
    body = bytes(95 * MIB)
    file = tmp_path / "large"
    file.write_bytes(body)
    options = site.qm.cli("orders")

    def put(_):
        done = site.qm.run("put", queue, file, *options, code=None)
        assert done.returncode == 0 or (done.returncode == 4 and b" 2071 " in done.stderr), done
        return done.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        accepted = sum(pool.map(put, range(8)))
    print(f"{accepted} of 8 accepted, peak {peak_memory(site.qm.process.pid) // MIB} MiB")
    assert site.qm.depth(queue) == accepted >= 1
    assert peak_memory(site.qm.process.pid) < 3072 * MIB
    # It goes on, and what was accepted is whole.
    done = site.qm.run("get", queue, "--count", 1, *site.qm.cli("billing"))
    assert done.stdout == body
    site.nobody.get_all(f"{queue}.RAW", credit=1)
    site.orders.put(queue, clear())


def peak_memory(pid):
    """Bytes of memory that the process held at most."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def test_a_message_over_a_hundred_mebibytes_is_refused(site):
    queue = site.queue(attributes=f"MAXMSGL({100 * MIB})")
    qm = site.qm
    with Client(qm.amqp, timeout=60) as client, pytest.raises(Refused) as refused:
        client.put(queue, Message(body=bytes(101 * MIB), inferred=True))
    assert refused.value.condition == "amqp:link:message-size-exceeded" or refused.value.reason in (2030, 2031)
    assert qm.depth(queue) == 0


# --- Bytes that are no AMQP ---


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x09\x01\x00\x00",
        b"AMQP\x00\x01\x00\x00" + b"\xff\xff\xff\xff" * 4,
        b"AMQP\x00\x01\x00\x00" + b"\x00\x00\x00\x04\x02\x00\x00\x00",
        b"AMQP\x03\x01\x00\x00" + os.urandom(256),
        os.urandom(4096),
    ],
    ids=["http", "wrong minor version", "wrong major version", "huge frame", "tiny frame", "no sasl frame", "random"],
)
def test_whoever_does_not_speak_amqp_is_disconnected_and_others_are_served(site, noise):
    qm = site.qm
    for port in qm.ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            try:
                peer.sendall(noise)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
            except OSError:  # it may have hung up already
                pass
    with qm.connect() as client:
        assert client.get_all(ERROR_QUEUE) == []


# --- Stores ---


@pytest.fixture
def stopped(managers, tmp_path):
    """A data directory with a message in it, and nobody using it."""
    manager = managers(data=tmp_path / "qm")
    manager.mqsc("DEFINE QLOCAL(Q)")
    with manager.connect() as client:
        client.put("Q", Message(body="kept", durable=True))
    assert manager.stop() == 0
    return manager


def start_fails(manager):
    command = [BULLA, "start", "--data", manager.data, "--amqp", "127.0.0.1:0", "--amqps", "127.0.0.1:0"]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=30)
    assert done.returncode == 5, done.stderr
    return done.stderr.decode()


def without_journal(manager):
    """Makes the directory one whose definitions are in the file alone."""
    shutil.rmtree(manager.data / "journal")


def test_definitions_of_a_newer_version_are_refused(stopped):
    without_journal(stopped)
    path = stopped.data / "objects.mqsc"
    text = path.read_text()
    path.write_text(re.sub(r"format \d+", "format 999", text, count=1))
    said = start_fails(stopped)
    assert "objects.mqsc" in said and "newer" in said
    path.write_text(text)
    stopped.start()


def test_a_journal_of_a_newer_version_is_refused(stopped):
    [segment] = (stopped.data / "journal").glob("*.segment")
    content = segment.read_bytes()
    assert content[:8] == b"BULLALOG"
    segment.write_bytes(content[:8] + b"\x03\x00" + content[10:])
    said = start_fails(stopped)
    assert "journal" in said and "newer" in said
    segment.write_bytes(content)
    stopped.start()
    with stopped.connect() as client:
        assert client.get("Q").body == "kept"


@pytest.fixture
def filled(stopped):
    """The same after a crash, with fifty more messages; their segment."""
    stopped.start()
    client = stopped.connect()
    sender = client.sender("Q")
    for number in range(50):
        client.put("Q", Message(body=b"%03d" % number * 1000, inferred=True, durable=True), sender)
    stopped.kill()
    [segment] = (stopped.data / "journal").glob("*.segment")
    return segment


def test_a_journal_with_a_damaged_header_in_the_middle_is_refused_and_check_says_where(stopped, filled):
    content = bytearray(filled.read_bytes())
    body = content.index(b"020" * 1000)
    header = content.rindex(BATCH_MAGIC, 0, body)
    content[header + 4] ^= 1
    filled.write_bytes(content)
    done = run("journal", "check", "--data", stopped.data)
    assert done.returncode == 7, done
    said = start_fails(stopped)
    assert "journal" in said and "hint" in said


def test_a_damaged_body_is_found_by_check_and_the_other_messages_flow(stopped, filled):
    content = bytearray(filled.read_bytes())
    body = content.index(b"020" * 1000)
    content[body + 500] ^= 1
    filled.write_bytes(content)
    done = run("journal", "check", "--data", stopped.data)
    assert (done.returncode, b"position" in done.stdout) == (7, True), done
    stopped.start()
    with stopped.connect() as client:
        got = [message.body for message in client.get_all("Q")]
    assert got == ["kept"] + [b"%03d" % number * 1000 for number in range(50) if number != 20]


def test_a_damaged_dead_letter_stops_no_replay_and_can_be_discarded(stopped):
    stopped.start()
    stopped.mqsc("DEFINE QLOCAL(D); ALTER QMGR DEADQ(D)")
    with stopped.connect() as client:
        client.get_all("Q")
        for number in range(3):
            body = b"%03d" % number * 3000
            client.put("Q", Message(body=body, inferred=True, durable=True))
            receiver = client.receiver("Q")
            receiver.settle(receiver.next(accept=False).delivery, Delivery.REJECTED)
            stopped.wait_for_depth("D", number + 1)
            receiver.close()
    stopped.kill()
    [segment] = (stopped.data / "journal").glob("*.segment")
    content = bytearray(segment.read_bytes())
    # The one on D: that on Q, which it was before, is in the journal still.
    content[content.rindex(b"001" * 3000) + 500] ^= 1
    segment.write_bytes(content)
    stopped.start()
    said = stopped.mqsc("REPLAY QLOCAL(D)")
    assert "2 messages replayed, 1 left" in said and "damaged" in said, said
    done = stopped.run("mqsc", "--data", stopped.data, "--json", "-c", "DISPLAY DEADMSG(D) ALL")
    [left] = shown_rows(done.stdout)
    # Its label lies in front of what is damaged.
    assert left["CAUSE"] in ("damaged", "rejected"), left
    stays = stopped.mqsc(f"REPLAY QLOCAL(D) MSGNUM({left['MSGNUM']})")
    assert "0 messages replayed, 1 left" in stays, stays
    assert "1 message discarded" in stopped.mqsc(f"REPLAY QLOCAL(D) MSGNUM({left['MSGNUM']}) DISCARD")
    assert stopped.depth("D") == 0


def test_a_definition_that_does_not_parse_is_refused_with_its_line(stopped):
    without_journal(stopped)
    path = stopped.data / "objects.mqsc"
    path.write_text(path.read_text() + "DEFINE QLOCAL(X) MAXDEPHT(1)\n")
    said = start_fails(stopped)
    assert f"objects.mqsc:{len(path.read_text().splitlines())}" in said
    assert "MAXDEPHT" in said
