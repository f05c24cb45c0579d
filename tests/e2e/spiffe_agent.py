"""An agent of a SPIFFE trust domain by the published API (`workload.proto`), over gRPC by others. It is a stand-in:
what it answers is what a test sets."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DOMAIN = "bulla.example"
DER = serialization.Encoding.DER


def field(number, content):
    """A field of protobuf that has a length."""
    length, said = len(content), b""
    while length >= 0x80:
        said, length = said + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([number << 3 | 2]) + said + bytes([length]) + content


def built(subject, issuer, public, key, seconds, *extensions):
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(seconds=5))
    builder = builder.not_valid_after(now + datetime.timedelta(seconds=seconds))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def usage(*allowed):
    names = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{name: name in allowed for name in names.split()}), True


class Agent:
    def __init__(self, folder):
        self.socket, self.server = folder / "s", None
        self.refusal, self.raw, self.asked = None, None, 0
        self.svids = []
        self.found()
        self.start()

    def found(self, seconds=3600):
        """Another authority, and none of the SVIDs before."""
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = self.name("Authority")
        constraints = (x509.BasicConstraints(True, None), True)
        public = self.key.public_key()
        self.ca = built(name, name, public, self.key, seconds, constraints, usage("key_cert_sign", "crl_sign"))
        self.svids = []

    @staticmethod
    def name(common=None):
        """All SVIDs have the same, as those of SPIRE do."""
        parts = [(NameOID.COUNTRY_NAME, "US"), (NameOID.ORGANIZATION_NAME, "SPIRE"), (NameOID.COMMON_NAME, common)]
        return x509.Name([x509.NameAttribute(oid, text) for oid, text in parts if text])

    def svid(self, path, seconds=600, dns=(), ca=False, also=()):
        key = ec.generate_private_key(ec.SECP256R1())
        identity = f"spiffe://{DOMAIN}/{path}"
        uris = [x509.UniformResourceIdentifier(uri) for uri in (identity, *also)]
        names = x509.SubjectAlternativeName([*uris, *(x509.DNSName(name) for name in dns)])
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        allowed = usage("digital_signature", *(["key_cert_sign"] if ca else []))
        extensions = ((x509.BasicConstraints(ca, None), True), (names, False), (both, False), allowed)
        certificate = built(self.name(), self.ca.subject, key.public_key(), self.key, seconds, *extensions)
        pkcs8 = key.private_bytes(DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return [identity.encode(), certificate.public_bytes(DER), pkcs8, self.ca.public_bytes(DER)]

    def start(self):
        handler = grpc.unary_stream_rpc_method_handler(self.fetch)
        service = grpc.method_handlers_generic_handler("SpiffeWorkloadAPI", {"FetchX509SVID": handler})
        self.server = grpc.server(ThreadPoolExecutor(4), handlers=[service])
        assert self.server.add_insecure_port(f"unix:{self.socket}")
        self.server.start()

    def fetch(self, request, context):
        assert request == b"" and ("workload.spiffe.io", "true") in context.invocation_metadata()
        self.asked += 1
        if self.refusal or not (self.svids or self.raw):
            context.abort(*(self.refusal or (grpc.StatusCode.PERMISSION_DENIED, "no identity issued")))
        svids = (b"".join(field(number, part) for number, part in enumerate(svid, 1)) for svid in self.svids)
        yield self.raw or b"".join(field(1, svid) for svid in svids)

    def stop(self):
        if self.server:
            self.server.stop(None).wait()
            self.server = None
            self.socket.unlink(missing_ok=True)
