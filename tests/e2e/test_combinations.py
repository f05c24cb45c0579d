"""Every quality with every kind of keys, alone and in batches: who opens what is sealed here, which is the table of
`docs/formats/sealed-message.md`, and whether what others make opens here."""

import functools
import itertools
import re
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from proton.reactor import Container

import bouncycastle
import cms
import der
import opener
import people
from pki import OPENSSL_4, CommandFailed, Identity, Ring, openssl, openssl_4
from sites import foreign
from test_openssl import PAYLOAD, message
from test_sign_batch import Stream

SIGNERS = ["rsa2048", "p256", "ml-dsa-44", "ml-dsa-65", "ml-dsa-87"]
READERS = ["rsa2048", "p256", "ml-kem-512", "ml-kem-768", "ml-kem-1024"]
# As strong as the key, which a policy must say.
DIGESTS = {"ml-dsa-44": "SHA256", "ml-dsa-65": "SHA384", "ml-dsa-87": "SHA512"}
GCM, CBC = "AES256", "AES256CBC"
BATCH = 64
# Enough that several wait to be signed, and how often that is tried.
STREAM_MESSAGES, STREAMS_MAX = 100, 10
# Of a batch these many are opened.
LOOKED_AT = 2
BATCH_SIGNED = der.oid("2.25.162349314179033964728001606925398197666.2.1")


@dataclass(frozen=True)
class Combination:
    quality: str
    signer: str | None
    reader: str | None
    cipher: str | None
    sign_batch: int = 1

    def __str__(self):
        return " ".join(str(each) for each in (self.row, self.signer, self.reader) if each)

    @property
    def row(self):
        """What it is called in the table."""
        cipher = {None: "", GCM: " by GCM", CBC: " by CBC"}[self.cipher]
        return f"{self.quality}{cipher}{', SIGNBATCH(64)' if self.sign_batch > 1 else ''}"

    @property
    def unbound(self):
        return self.quality == "confidentiality" and self.cipher == CBC

    @property
    def digest(self):
        return DIGESTS.get(self.signer, "SHA256")

    def policy(self, site, bind=""):
        words = [f"SIGNALG({self.digest}) SIGNER('{site.signers[self.signer].dn}')"] if self.signer else []
        if self.reader:
            words.append(f"ENCALG({self.cipher}) RECIP('{site.reader(self).dn}')")
        if self.sign_batch > 1:
            words.append(f"SIGNBATCH({self.sign_batch})")
        if self.unbound:
            words.append("WEAK(YES)")
        new = [key.startswith("ml-") for key in (self.signer, self.reader) if key]
        words.append(f"PQC({'REQUIRED' if all(new) else 'ALLOWED' if any(new) else 'NONE'})")
        return " ".join([*words, "BIND(NONE)" if self.unbound else bind])


COMBINATIONS = [
    *(Combination("integrity", signer, None, None, batch) for batch, signer in itertools.product((1, BATCH), SIGNERS)),
    *(
        Combination("privacy", signer, reader, cipher, batch)
        for (cipher, batch), signer, reader in itertools.product(((GCM, 1), (GCM, BATCH), (CBC, 1)), SIGNERS, READERS)
    ),
    *(
        Combination("confidentiality", None, reader, cipher)
        for cipher, reader in itertools.product((GCM, CBC), READERS)
    ),
]
ROWS = list(dict.fromkeys(combination.row for combination in COMBINATIONS))


class Site:
    """A queue for each combination, and another one for what others make."""

    def __init__(self, qm, authority):
        self.qm, self.authority = qm, authority
        self.signers = {key: authority.issue(f"signer-{key}", key) for key in SIGNERS}
        self.readers = {key: authority.issue(f"reader-{key}", key) for key in READERS}
        # A key that opens unsigned CBC opens nothing else.
        self.careless = {key: authority.issue(f"careless-{key}", key) for key in READERS}
        identities = [*self.signers.values(), *self.readers.values(), *self.careless.values()]
        for identity in identities:
            Ring(qm.data, identity.name).own(identity).trust(authority).people(*identities)
            qm.add_user(identity.name)
        commands = []
        for combination in COMBINATIONS:
            for queue, bind in ((self.queue(combination), ""), (self.queue(combination, "FOREIGN"), "BIND(NONE)")):
                commands.append(f"DEFINE QLOCAL({queue}); DEFINE QALIAS({queue}.RAW) TARGET({queue})")
                commands.append(f"SET POLICY({queue}) {combination.policy(self, bind)}")
        qm.mqsc("\n".join(commands))
        self.clients = {}

    def queue(self, combination, kind="SEALED"):
        return f"{kind}.{COMBINATIONS.index(combination)}"

    def reader(self, combination):
        readers = self.careless if combination.unbound else self.readers
        return readers[combination.reader or READERS[0]]

    def client(self, identity=None):
        name = identity and identity.name
        if name not in self.clients:
            self.clients[name] = self.qm.connect(name)
        return self.clients[name]

    def raw(self, combination):
        """What lies on the queue."""
        found = self.client().get_all(f"{self.queue(combination)}.RAW", browse=True, credit=1000)
        return [bytes(each.body) for each in found]

    def seal(self, combination):
        """Messages that the queue manager sealed, and their payloads; it opens them itself, too."""
        queue, reader = self.queue(combination), self.reader(combination)
        signer = self.signers[combination.signer or SIGNERS[0]]
        if combination.sign_batch == 1:
            self.client(signer).put(queue, message(PAYLOAD))
            sealed = [(each, PAYLOAD) for each in self.raw(combination)]
        else:
            sealed = self.seal_batch(combination, signer)
        got = [bytes(each.body) for each in self.client(reader).get_all(queue, credit=1000)]
        assert {payload for _, payload in sealed} <= set(got), combination
        return sealed

    def seal_batch(self, combination, signer):
        for _ in range(STREAMS_MAX):
            Container(Stream(self.qm, signer.name, self.queue(combination), STREAM_MESSAGES)).run()
            sealed = (
                (each, f"message {number % STREAM_MESSAGES}".encode())
                for number, each in enumerate(self.raw(combination))
                if shares_signature(self.inside(combination, each))
            )
            found = list(itertools.islice(sealed, LOOKED_AT))
            if len(found) == LOOKED_AT:
                return found
        raise AssertionError(f"{combination}: no two messages waited to be signed at once")

    def inside(self, combination, sealed):
        """The message that is signed."""
        if not combination.reader:
            return sealed
        return cms.decrypt_with_program(sealed, self.reader(combination), self.authority.dir, by=openssl_4)


@functools.cache
def page():
    return opener.module()


def own(identity):
    return loaded(identity.certificate, identity.key)


@functools.cache
def loaded(certificate, key):
    """Loading checks an RSA key, which takes its time."""
    return page().x509.load_pem_x509_certificate(certificate.read_bytes()), page().load_key(key)


def opened_by_page(sealed, identity):
    return page().decrypt(page().cms.ContentInfo.load(sealed)["content"], *own(identity))


def shares_signature(signed):
    return der.parse(signed).at(0).content == BATCH_SIGNED


def proved_by_page(batch, authority):
    """The payload of a message that shares its signature: the path leads from it to the root."""
    container = page().cms.ContentInfo.load(batch, strict=True)
    return page().prove(container["content"].parse(page().BatchSigned), certificate_of(authority))[0]


def certificate_of(authority):
    return page().x509.load_pem_x509_certificate(authority.pem)


@pytest.fixture(scope="module")
def site(qm, authority):
    if not OPENSSL_4.exists():
        pytest.skip("the openssl program of this build is not there: `make clients` builds it")
    site = Site(qm, authority)
    yield site
    for client in site.clients.values():
        client.close()


@pytest.fixture(scope="module")
def sealed(site):
    found = {combination: site.seal(combination) for combination in COMBINATIONS}
    assert site.qm.errors() == []
    return found


class Page:
    """The opener of the page."""

    def open(self, site, tmp, messages):
        for combination, each in messages:
            try:
                files = own(site.reader(combination)) if combination.reader else ()
                if combination.unbound:
                    # Without attributes there is nothing to compare.
                    yield opened_by_page(each, site.reader(combination))
                else:
                    yield page().open_message(each, certificate_of(site.authority), *files)[0]
            except (Exception, SystemExit) as cause:
                yield cause


class OpenSsl:
    """`openssl cms`; what shares a signature it hands to the page's opener, when it has verified the root."""

    def __init__(self, by):
        self.by = by

    def open(self, site, tmp, messages):
        for combination, each in messages:
            try:
                yield self.open_one(site, tmp, combination, each)
            except Exception as cause:  # by CBC damage comes out as any bytes
                yield cause

    def open_one(self, site, tmp, combination, each):
        if combination.reader:
            each = cms.decrypt_with_program(each, site.reader(combination), tmp, by=self.by)
        if not combination.signer:
            return each
        if not shares_signature(each):
            return cms.verify(each, site.authority, tmp, by=self.by)
        cms.verify(der.parse(each).at(1, 0, -1).content, site.authority, tmp, by=self.by)
        return proved_by_page(each, site.authority)


class BouncyCastle:
    """As OpenSSL, all messages at once."""

    def open(self, site, tmp, messages):
        tasks, outs = [], []
        for number, (combination, each) in enumerate(messages):
            path, out, reader = tmp / f"{number}.der", tmp / f"{number}.out", site.reader(combination)
            path.write_bytes(each)
            tasks.append(("open", path, site.authority.certificate, reader.certificate, reader.key, out))
            outs.append(out)
        causes = dict(line.split(": ", 1) for line in bouncycastle.run(tasks).splitlines() if ".out: " in line)
        for (combination, _), out in zip(messages, outs):
            if not out.exists():
                yield CommandFailed(causes.get(str(out)))
            elif combination.sign_batch > 1:
                yield proved_by_page(out.read_bytes(), site.authority)
            else:
                yield out.read_bytes()


# The installed program, as far as it knows no more than this one.
OLD = "OpenSSL 3.0.19"
TOOLS = {
    "OpenSSL 4.0.3": OpenSsl(openssl_4),
    "BouncyCastle 1.85": BouncyCastle(),
    "the program below": Page(),
    OLD: OpenSsl(openssl),
}


@pytest.fixture(scope="module")
def results(site, sealed, tmp_path_factory):
    """By tool and combination: what did not open, and why; empty where all of it opens."""

    @functools.cache
    def of(tool):
        messages = [(combination, each) for combination, found in sealed.items() for each, _ in found]
        payloads = [payload for found in sealed.values() for _, payload in found]
        failed = {combination: [] for combination in sealed}
        opened = TOOLS[tool].open(site, tmp_path_factory.mktemp("tool"), messages)
        for (combination, _), payload, got in zip(messages, payloads, opened, strict=True):
            if got != payload:
                failed[combination].append(got)
        return failed

    return of


def installed_is_old():
    """Whether the installed openssl is from before ML-DSA and ML-KEM."""
    return tuple(map(int, re.match(rb"OpenSSL (\d+)\.(\d+)", openssl("version")).groups())) < (3, 5)


def described(opened, combinations):
    """A cell of the table."""
    classical = [each for each in combinations if not re.search("ml-", f"{each.signer} {each.reader}")]
    without_512 = [each for each in combinations if each.reader != "ml-kem-512"]
    for words, which in (
        ("all", combinations), ("RSA and EC", classical), ("all but ML-KEM-512", without_512), ("none", []),
    ):  # fmt: skip
        if opened == which:
            return words
    return f"only {', '.join(map(str, opened))}"


def columns():
    """The table of the page: by tool, what it opens of each row."""
    text = opener.PAGE.read_text()
    [table] = re.findall(r"^\| message \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    [heads] = re.findall(r"^\| message \|(.*) \|$", text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
    return {head.strip(): {row[0]: row[at] for row in rows} for at, head in enumerate(heads.split("|"), 1)}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_table_of_the_page_is_what_each_tool_opens(results, tool):
    if tool == OLD and not installed_is_old():
        pytest.skip("the installed openssl is newer than 3.4: which kinds of keys it knows stands nowhere")
    failed = results(tool)
    shown = {}
    for row in ROWS:
        combinations = [each for each in COMBINATIONS if each.row == row]
        shown[row] = described([each for each in combinations if not failed[each]], combinations)
    expected = columns()[tool]
    if tool == OLD and cms.program_opens_confidential():
        expected["confidentiality by GCM"] = expected["confidentiality by CBC"]
    causes = "\n".join(f"{each}: {str(cause[0])[:300]}" for each, cause in failed.items() if cause)
    assert shown == expected, causes


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != OLD])
def test_nothing_damaged_opens(site, sealed, tmp_path, tool):
    """One bit: of the signature, of the tag, or of an authenticated attribute, which stands before the tag."""
    damaged = [
        (combination, der.flipped(found[0][0], -30 if combination.quality == "confidentiality" else -1))
        for combination, found in sealed.items()
        # Nothing authenticates it.
        if not combination.unbound
    ]
    opened = TOOLS[tool].open(site, tmp_path, damaged)
    assert [str(each) for (each, _), got in zip(damaged, opened, strict=True) if isinstance(got, bytes)] == []


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != OLD])
def test_recipients_of_every_kind_open_one_message(qm, site, tmp_path, tool):
    readers = ["rsa2048", "p256", "ml-kem-768"]
    names = ", ".join(f"'{site.readers[key].dn}'" for key in readers)
    queue = f"MIXED.{list(TOOLS).index(tool)}"
    qm.mqsc(f"""
        DEFINE QLOCAL({queue}); DEFINE QALIAS({queue}.RAW) TARGET({queue})
        SET POLICY({queue}) SIGNALG(SHA384) SIGNER('{site.signers["ml-dsa-65"].dn}') +
            ENCALG({GCM}) RECIP({names}) PQC(ALLOWED)
    """)
    site.client(site.signers["ml-dsa-65"]).put(queue, message(PAYLOAD))
    [raw] = site.client().get_all(f"{queue}.RAW", browse=True)
    messages = [(Combination("privacy", "ml-dsa-65", key, GCM), bytes(raw.body)) for key in readers]
    assert list(TOOLS[tool].open(site, tmp_path, messages)) == [PAYLOAD] * len(readers)


def test_a_site_of_our_own_commands_has_keys_that_others_read(qm, site, tmp_path):
    """`bulla cert create` makes the keys, and an authority with ML-DSA; the page's program runs as it is printed."""

    def create(*options):
        qm.run("cert", "create", "--data", qm.data, *options)

    create("--ca", "new", "--dn", "CN=New authority,O=Demo", "--key", "ml-dsa-65")
    for user, key, other in (("author", "ml-dsa-65", "addressee"), ("addressee", "ml-kem-768", "author")):
        names = ("--ring", user, "--share", other, "--label", user)
        create("--signer", "new", "--dn", f"CN={user},O=Demo", "--key", key, *names)
        qm.add_user(user)
    qm.mqsc("""
        DEFINE QLOCAL(NEW); DEFINE QALIAS(NEW.RAW) TARGET(NEW)
        SET POLICY(NEW) SIGNALG(SHA384) SIGNER('CN=author,O=Demo') +
            ENCALG(AES256) RECIP('CN=addressee,O=Demo') PQC(REQUIRED)
    """)
    # The author's ring may have been read when it had no addressee yet.
    people.seen()
    own = qm.data / "rings/addressee/own/addressee.pem"
    addressee, root = Identity("addressee", own, own), qm.data / "authorities/new/ca.pem"
    with qm.connect("author") as client:
        client.put("NEW", message(PAYLOAD))
    [raw] = site.client().get_all("NEW.RAW", browse=True)
    with qm.connect("addressee") as client:
        assert bytes(client.get("NEW").body) == PAYLOAD
    there = SimpleNamespace(
        authority=SimpleNamespace(certificate=root, pem=root.read_bytes()), reader=lambda combination: addressee
    )
    messages = [(Combination("privacy", "ml-dsa-65", "ml-kem-768", GCM), bytes(raw.body))]
    assert {name: list(tool.open(there, tmp_path, messages)) for name, tool in TOOLS.items() if name != OLD} == {
        name: [PAYLOAD] for name in TOOLS if name != OLD
    }
    program, sealed = tmp_path / "open.py", tmp_path / "message.der"
    program.write_text(opener.source())
    sealed.write_bytes(bytes(raw.body))
    done = subprocess.run(
        [sys.executable, program, sealed, root, own, own], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, PAYLOAD), done.stderr.decode()


def by_openssl(site, tmp, combinations):
    """Messages of each combination, made by `openssl cms`."""
    for each in combinations:
        made = PAYLOAD
        if each.signer:
            made = cms.sign(made, site.signers[each.signer], tmp=tmp, digest=each.digest.lower(), by=openssl_4)
        if each.reader:
            cipher = {GCM: "aes-256-gcm", CBC: "aes-256-cbc"}[each.cipher]
            made = cms.encrypt(made, site.reader(each), tmp=tmp, cipher=cipher, by=openssl_4)
        yield made


def by_bouncycastle(site, tmp, combinations):
    payload, sign, encrypt, outs = tmp / "payload", [], [], []
    payload.write_bytes(PAYLOAD)
    for number, each in enumerate(combinations):
        made = payload
        if each.signer:
            signer = site.signers[each.signer]
            algorithm = {"rsa2048": "RSA", "p256": "ECDSA"}.get(each.signer, each.signer.upper())
            signed = tmp / f"{number}.signed"
            sign.append(("sign", made, signer.certificate, signer.key, f"{each.digest}with{algorithm}", signed))
            made = signed
        if each.reader:
            enveloped = tmp / f"{number}.enveloped"
            encrypt.append(("encrypt", made, site.reader(each).certificate, "-", each.cipher, enveloped))
            made = enveloped
        outs.append(made)
    said = bouncycastle.run([*sign, *encrypt])
    assert not re.search("^/", said, re.MULTILINE), said
    return [out.read_bytes() for out in outs]


@pytest.mark.parametrize("make", [by_openssl, by_bouncycastle], ids=["OpenSSL 4.0.3", "BouncyCastle 1.85"])
def test_what_others_make_opens_under_bind_none(site, tmp_path, make):
    combinations = [each for each in COMBINATIONS if each.sign_batch == 1]
    failed = {}
    for each, made in zip(combinations, make(site, tmp_path, combinations), strict=True):
        queue = site.queue(each, "FOREIGN")
        site.client().put(f"{queue}.RAW", foreign(made))
        got = [bytes(got.body) for got in site.client(site.reader(each)).get_all(queue)]
        if got != [PAYLOAD]:
            failed[str(each)] = site.qm.errors()
            site.qm.clear_error_queue()
    assert failed == {}


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        # OpenSSL's digest where none is named, SHAKE256, is not in the profile.
        ([], "weaker-than-policy"),
        # It signs by a digest that is weaker than the key.
        (["-md", "sha256"], "weaker-than-policy"),
        # And without attributes, which it can't verify itself.
        (["-md", "sha384", "-noattr"], "malformed"),
    ],
    ids=["default", "weak digest", "no attributes"],
)
def test_what_openssl_signs_otherwise_does_not_open(site, tmp_path, options, cause):
    queue = site.queue(Combination("integrity", "ml-dsa-65", None, None), "FOREIGN")
    signer, payload = site.signers["ml-dsa-65"], tmp_path / "payload"
    payload.write_bytes(PAYLOAD)
    signed = openssl_4(
        "cms", "-sign", "-outform", "DER", "-binary", "-nodetach", *options,
        "-signer", signer.certificate, "-inkey", signer.key, "-in", payload,
    )  # fmt: skip
    site.client().put(f"{queue}.RAW", foreign(signed))
    assert site.client(site.readers[READERS[0]]).get_all(queue) == []
    assert [error["cause"] for error in site.qm.errors()] == [cause]
    site.qm.clear_error_queue()
