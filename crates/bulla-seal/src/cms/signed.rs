//! `SignedData` (RFC 5652, section 5): payload inside, signed attributes always.

use bulla_device::Digest;

use super::Name;
use super::algorithm::{SignatureKind, read_digest, read_signature};
use super::attributes::{Attributes, check_issuer_and_serial};
use super::reader::{Malformed, Reader, read_der, strictly_ascending};
use super::writer::{OCTET_STRING, OID, SEQUENCE, SET, Writer, context, context_primitive, element_len};
use crate::error::OpenError;
use crate::oid;

/// Signers that one message may carry; each of them must be good.
pub(crate) const SIGNER_INFOS_MAX: usize = 4;
/// Certificates that one message may carry.
pub(crate) const CERTIFICATES_MAX: usize = 16;

/// Everything of a `SignedData` but the payload, ready to be written. The one signer's parts are
/// encodings; `signature_len` is known before the signature is.
pub(crate) struct SignedLayout<'a> {
    /// What the payload is: data, or a batch's root.
    pub(crate) content_type: &'a [u8],
    /// The digest's identifier.
    pub(crate) digest: &'a [u8],
    /// The certificates, in DER's order, without the header around them.
    pub(crate) certificates: &'a [u8],
    /// Issuer and serial number of the signer.
    pub(crate) signer: &'a [u8],
    /// Bytes of the signed attributes, without the header around them.
    pub(crate) attributes_len: usize,
    /// The signature's identifier.
    pub(crate) algorithm: &'a [u8],
    /// Bytes of the signature.
    pub(crate) signature_len: usize,
    /// Bytes of the payload.
    pub(crate) payload_len: usize,
}

impl SignedLayout<'_> {
    fn signer_info_len(&self) -> usize {
        3 + self.signer.len()
            + self.digest.len()
            + element_len(self.attributes_len)
            + self.algorithm.len()
            + element_len(self.signature_len)
    }

    fn content_info_len(&self) -> usize {
        element_len(self.content_type.len()) + element_len(element_len(self.payload_len))
    }

    fn signed_data_len(&self) -> usize {
        3 + element_len(self.digest.len())
            + element_len(self.content_info_len())
            + element_len(self.certificates.len())
            + element_len(element_len(self.signer_info_len()))
    }

    /// Bytes of the whole `ContentInfo`.
    pub(crate) fn len(&self) -> usize {
        element_len(self.body_len())
    }

    fn body_len(&self) -> usize {
        element_len(oid::SIGNED_DATA.len()) + element_len(element_len(self.signed_data_len()))
    }

    /// Writes the whole `ContentInfo`.
    pub(crate) fn write(&self, out: &mut Writer, payload: &[u8], attributes: &[u8], signature: &[u8]) {
        out.header(SEQUENCE, self.body_len());
        out.element(OID, oid::SIGNED_DATA);
        out.header(context(0), element_len(self.signed_data_len()));
        out.header(SEQUENCE, self.signed_data_len());
        out.small_integer(version_around(self.content_type));
        out.element(SET, self.digest);
        out.header(SEQUENCE, self.content_info_len());
        out.element(OID, self.content_type);
        out.header(context(0), element_len(self.payload_len));
        out.element(OCTET_STRING, payload);
        out.element(context(0), self.certificates);
        out.header(SET, element_len(self.signer_info_len()));
        out.header(SEQUENCE, self.signer_info_len());
        out.small_integer(1);
        out.raw(self.signer);
        out.raw(self.digest);
        out.element(context(0), attributes);
        out.raw(self.algorithm);
        out.element(OCTET_STRING, signature);
    }
}

/// The version of a `SignedData` whose signers are named by issuer and serial number (RFC 5652, 5.1).
fn version_around(content_type: &[u8]) -> u8 {
    if content_type == oid::ID_DATA { 1 } else { 3 }
}

/// A `SignedData` as it arrived.
pub(crate) struct SignedData<'a> {
    /// The payload.
    pub(crate) payload: &'a [u8],
    /// Each certificate's DER.
    pub(crate) certificates: Vec<&'a [u8]>,
    /// At least one.
    pub(crate) signers: Vec<SignerInfo<'a>>,
}

/// One signer.
pub(crate) struct SignerInfo<'a> {
    /// Which certificate.
    pub(crate) name: Name<'a>,
    /// The digest.
    pub(crate) digest: Digest,
    /// The digest's identifier.
    pub(crate) digest_identifier: &'a [u8],
    /// What the signed attributes say.
    pub(crate) attributes: Attributes<'a>,
    /// The signed attributes as they stand there, header and all.
    pub(crate) attributes_whole: &'a [u8],
    /// The signature's algorithm.
    pub(crate) kind: SignatureKind,
    /// The signature's identifier.
    pub(crate) algorithm: &'a [u8],
    /// The signature.
    pub(crate) signature: &'a [u8],
}

impl<'a> SignedData<'a> {
    /// Reads the `SignedData` inside a `ContentInfo`, whose payload is of this content type and no other.
    pub(crate) fn read(encoded: &'a [u8], content_type: &[u8]) -> Result<SignedData<'a>, OpenError> {
        const WHAT: &str = "a SignedData is unreadable";
        let mut fields = Reader::only(encoded, SEQUENCE, WHAT)?;
        let version = fields.small_integer(WHAT)?;
        let digests = fields.enter(SET, WHAT)?;
        let payload = read_payload(fields.enter(SEQUENCE, WHAT)?, content_type)?;
        let certificates = match fields.optional(context(0)) {
            Some(contents) => read_certificates(Reader::new(contents))?,
            None => Vec::new(),
        };
        if fields.peek() == Some(context(1)) {
            return Err(Malformed("revocation lists inside the message").into());
        }
        let signers = read_signers(fields.enter(SET, WHAT)?)?;
        fields.end("a SignedData has surplus fields")?;
        let by_key = signers.iter().any(|signer| matches!(signer.name, Name::Key(_)));
        let expected = if by_key { 3 } else { version_around(content_type) };
        if version != expected {
            return Err(Malformed("a SignedData of another version").into());
        }
        check_digests(digests, &signers)?;
        Ok(SignedData { payload, certificates, signers })
    }
}

fn read_payload<'a>(mut fields: Reader<'a>, content_type: &[u8]) -> Result<&'a [u8], Malformed> {
    const WHAT: &str = "a SignedData holds no payload";
    if fields.value(OID, WHAT)? != content_type {
        return Err(Malformed(match content_type {
            oid::BATCH_ROOT => "the root of a batch holds something other than a root",
            _ => "a SignedData holds something other than data",
        }));
    }
    let mut explicit = fields.enter(context(0), WHAT)?;
    fields.end(WHAT)?;
    let payload = explicit.value(OCTET_STRING, "the payload is not in one piece")?;
    explicit.end(WHAT)?;
    Ok(payload)
}

fn read_certificates(mut set: Reader<'_>) -> Result<Vec<&[u8]>, Malformed> {
    let mut certificates: Vec<&[u8]> = Vec::with_capacity(2);
    while !set.is_empty() {
        // Anything but a SEQUENCE is an attribute certificate or a format of another time.
        let der = set.whole(SEQUENCE, "something other than X.509 among the certificates")?;
        if certificates.len() == CERTIFICATES_MAX {
            return Err(Malformed("more than 16 certificates"));
        }
        if certificates.last().is_some_and(|previous| !strictly_ascending(previous, der)) {
            return Err(Malformed("certificates out of order or doubled"));
        }
        certificates.push(der);
    }
    if certificates.is_empty() { Err(Malformed("an empty set of certificates")) } else { Ok(certificates) }
}

fn read_signers(mut set: Reader<'_>) -> Result<Vec<SignerInfo<'_>>, OpenError> {
    let mut signers = Vec::with_capacity(1);
    let mut previous: &[u8] = &[];
    while !set.is_empty() {
        let whole = set.whole(SEQUENCE, "a signer is unreadable")?;
        if signers.len() == SIGNER_INFOS_MAX {
            return Err(Malformed("more than 4 signers").into());
        }
        if !strictly_ascending(previous, whole) {
            return Err(Malformed("signers out of order or doubled").into());
        }
        previous = whole;
        signers.push(read_der(whole, "a signer that is not DER inside", SignerInfo::read(whole))?);
    }
    if signers.is_empty() { Err(OpenError::Unsigned) } else { Ok(signers) }
}

impl<'a> SignerInfo<'a> {
    fn read(whole: &'a [u8]) -> Result<SignerInfo<'a>, OpenError> {
        const WHAT: &str = "a signer is unreadable";
        let mut fields = Reader::only(whole, SEQUENCE, WHAT)?;
        let version = fields.small_integer(WHAT)?;
        let name = match fields.peek() {
            Some(SEQUENCE) => {
                let issuer_and_serial = fields.whole(SEQUENCE, WHAT)?;
                check_issuer_and_serial(issuer_and_serial)?;
                Name::IssuerAndSerial(issuer_and_serial)
            }
            _ => Name::Key(fields.value(context_primitive(0), WHAT)?),
        };
        let expected = if matches!(name, Name::Key(_)) { 3 } else { 1 };
        if version != expected {
            return Err(Malformed("a signer of another version").into());
        }
        let digest_identifier = fields.whole(SEQUENCE, WHAT)?;
        let digest = read_digest(digest_identifier)?;
        // Without them the signature covers the payload itself, and a payload that *is* a set of
        // attributes would verify.
        let attributes_whole = fields.whole(context(0), "a signer without signed attributes")?;
        let attributes = Attributes::read(Reader::new(attributes_whole).value(context(0), WHAT)?)?;
        let algorithm = fields.whole(SEQUENCE, WHAT)?;
        let kind = read_signature(algorithm, digest)?;
        let signature = fields.value(OCTET_STRING, WHAT)?;
        fields.end("a signer with unsigned attributes or surplus fields")?;
        Ok(SignerInfo { name, digest, digest_identifier, attributes, attributes_whole, kind, algorithm, signature })
    }

    /// What the signature covers, whole: ML-DSA signs it without a digest of ours before.
    pub(crate) fn signed_attributes(&self) -> Vec<u8> {
        [&[SET], self.attributes_whole.get(1..).unwrap_or_default()].concat()
    }

    /// What the signature covers: the attributes as a `SET OF`, not as the `[0]` they travel in.
    pub(crate) fn signed_hash(&self) -> bulla_device::Hash {
        signed_hash(self.digest, self.attributes_whole)
    }
}

/// The hash under the signature, from attributes with any one-byte tag before them.
pub(crate) fn signed_hash(digest: Digest, attributes_whole: &[u8]) -> bulla_device::Hash {
    digest.hash_parts(&[&[SET], attributes_whole.get(1..).unwrap_or_default()])
}

/// The digests that are announced must be exactly those that are used.
fn check_digests(mut announced: Reader<'_>, signers: &[SignerInfo<'_>]) -> Result<(), Malformed> {
    const WHAT: &str = "the announced digests are not those of the signers";
    let mut previous: &[u8] = &[];
    let mut count = 0;
    while !announced.is_empty() {
        let identifier = announced.whole(SEQUENCE, WHAT)?;
        let used = signers.iter().any(|signer| signer.digest_identifier == identifier);
        if !used || !strictly_ascending(previous, identifier) {
            return Err(Malformed(WHAT));
        }
        previous = identifier;
        count += 1;
    }
    let distinct = signers.iter().enumerate().filter(|(at, signer)| {
        !signers.iter().take(*at).any(|earlier| earlier.digest_identifier == signer.digest_identifier)
    });
    if distinct.count() == count { Ok(()) } else { Err(Malformed(WHAT)) }
}
