"""NIST's Public Key Interoperability Test Suite: 223 paths, each through `bulla cert verify` with a revocation list
asked for about every certificate. The files are those of the package `cryptography-vectors`. Which paths are good is in
their names, and for the few whose names don't say it in the lists below, for the settings that NIST's document calls
default: any policy, none required."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cryptography_vectors
import pytest

from manager import BULLA

DATA = Path(cryptography_vectors.__file__).parent / "x509/PKITS_data"
ROOT = DATA / "certs/TrustAnchorRootCertificate.crt"
# All certificates and lists of the suite are valid then, but for those that are to have ended or not begun.
AT = "2024-06-01"
# Names that don't say whether the path is good: sections 4.8 and 4.12 of NIST's document. They were compared with two
# suites of others that carry its results, and agree with both: BouncyCastle's NistCertPathTest (bc-java), which has
# 4.8.2 to 4.8.19, and Mozilla's tests of libpkix (nss, pkixutil test_policychecker), which have all of them. Five of
# them (tests 13, 14, 15, 16 and 18 of 4.8) are good there for a policy that is asked for by name, and so for any.
GOOD = """
    AllCertificatesNoPoliciesTest2EE AllCertificatesSamePoliciesTest10EE AllCertificatesSamePoliciesTest13EE
    AllCertificatesanyPolicyTest11EE AnyPolicyTest14EE CPSPointerQualifierTest20EE DifferentPoliciesTest3EE
    OverlappingPoliciesTest6EE UserNoticeQualifierTest15EE UserNoticeQualifierTest16EE UserNoticeQualifierTest17EE
    UserNoticeQualifierTest18EE UserNoticeQualifierTest19EE inhibitAnyPolicyTest3EE
""".split()
BAD = """
    DifferentPoliciesTest4EE DifferentPoliciesTest5EE DifferentPoliciesTest7EE DifferentPoliciesTest8EE
    DifferentPoliciesTest9EE DifferentPoliciesTest12EE
""".split()
# Good paths that are refused: the cause, and why. No bad path is believed. `openssl verify` refuses the last two, too.
DIFFERENT = {
    "ValidDSASignaturesTest4EE": ("weak-key", "signed with DSA and SHA-1, which is below the level that paths here have"),
    "ValidDSAParameterInheritanceTest5EE": (
        "neither a certificate nor PKCS#12",
        "a DSA key without parameters, which it would inherit: OpenSSL can't read it",
    ),
    "ValidcRLIssuerTest30EE": ("crl-missing", "the signer of the indirect list is one of those that the list is about"),
}


def is_good(name):
    """What NIST expects."""
    if name in GOOD or name in BAD:
        return name in GOOD
    assert name.startswith(("Valid", "Invalid")), name
    return name.startswith("Valid")


class Suite:
    """Certificates and lists of the suite by the names in them."""

    def __init__(self):
        self.issuers, self.lists = {}, {}
        for path in sorted((DATA / "certs").glob("*.crt")):
            if not path.stem.endswith("EE") and path != ROOT:
                self.issuers.setdefault(name_of(path, SUBJECT), []).append(path)
        for path in sorted((DATA / "crls").glob("*.crl")):
            self.lists.setdefault(name_of(path, ISSUER), []).append(path)

    def needed(self, leaf):
        """The authorities and lists by whose names a path can go on from a certificate."""
        names, certificates = names_in(leaf), []
        for name in names:  # which grows meanwhile
            for path in self.issuers.get(name, []):
                if path not in certificates:
                    certificates.append(path)
                    names += [other for other in names_in(path) if other not in names]
        return certificates, [path for name in dict.fromkeys(names) for path in self.lists.get(name, [])]


def elements(der):
    """The elements of one encoding, each with its tag, its contents and the whole of it."""
    while der:
        head, length = 2, der[1]
        if length >= 0x80:
            head, length = 2 + (length & 0x7F), int.from_bytes(der[2 : 2 + (length & 0x7F)], "big")
        yield der[0], der[head : head + length], der[: head + length]
        der = der[head + length :]


def folded(name):
    """A name as it compares: without regard to case, spaces and kinds of strings."""
    parts = []
    for _, part, _ in elements(name):
        for _, pair, _ in elements(part):
            (_, oid, _), (_, value, _) = elements(pair)
            parts.append((oid, " ".join(value.decode("latin-1").lower().split())))
    return tuple(parts)


def to_be_signed(path):
    ((_, whole, _),) = elements(path.read_bytes())
    ((_, body, _), *_) = elements(whole)
    return [(tag, value) for tag, value, _ in elements(body)]


# Places among the sequences: a certificate has signature, issuer, validity, subject; a list signature, issuer.
ISSUER, SUBJECT = 1, 3


def name_of(path, place):
    """The subject or issuer of a certificate, the issuer of a list."""
    return folded([value for tag, value in to_be_signed(path) if tag == 0x30][place])


def names_in(path):
    """The issuer of a certificate, and those of lists that its distribution points name."""
    names = [name_of(path, ISSUER)]
    (extensions,) = [value for tag, value in to_be_signed(path) if tag == 0xA3]
    ((_, extensions, _),) = elements(extensions)
    for _, extension, _ in elements(extensions):
        (_, oid, _), *_, (_, value, _) = elements(extension)
        if oid == DISTRIBUTION_POINTS:
            ((_, points, _),) = elements(value)
            names += [folded(name) for _, point, _ in elements(points) for name in list_issuers(point)]
    return names


DISTRIBUTION_POINTS = bytes([0x55, 0x1D, 0x1F])
CRL_ISSUER, DIRECTORY_NAME = 0xA2, 0xA4


def list_issuers(point):
    """The names under which another authority than the issuer signs the lists of a distribution point."""
    for tag, issuers, _ in elements(point):
        for kind, issuer, _ in elements(issuers) if tag == CRL_ISSUER else ():
            if kind == DIRECTORY_NAME:
                ((_, name, _),) = elements(issuer)
                yield name


def verify(leaf, certificates, lists):
    """What `bulla cert verify` says of a path: the cause, or nothing where it is good."""
    arguments = ["--trust", ROOT, "--at", AT, "--revocation", "required"]
    arguments += [word for path in certificates for word in ("--untrusted", path)]
    arguments += [word for path in lists for word in ("--crl", path)]
    done = subprocess.run([BULLA, "cert", "verify", leaf, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        return None
    said = done.stderr.removeprefix("bulla: error: ").splitlines()[0]
    return said.split("cause=", 1)[1].split(":", 1)[0] if "cause=" in said else said


@pytest.fixture(scope="module")
def answers():
    suite = Suite()
    leaves = sorted((DATA / "certs").glob("*EE.crt"))

    def answer(leaf):
        return leaf.stem, verify(leaf, *suite.needed(leaf))

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(answer, leaves))


def test_each_path_is_judged_as_nist_expects_or_for_the_reason_given(answers):
    assert len(answers) == 223
    different = {name: cause for name, cause in answers.items() if (cause is None) != is_good(name)}
    assert different == {name: cause for name, (cause, _) in DIFFERENT.items()}
