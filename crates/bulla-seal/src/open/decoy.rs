//! What a signed message under AES-CBC is measured against, so that a failed one tells nothing by the clock.
//!
//! The signer stands inside the ciphertext, so it is not known before decryption; the policy therefore names the
//! signers and the reader's ring holds their certificates, all with keys of one type and size. No certificate out of
//! such a message is parsed before a signature has proved it. Whatever fails before a signature could be verified goes
//! on with a made-up message, the decoy, whose parsing, digest and verification take what a real one's take.

use bulla_device::{Digest, MlDsa};
use bytes::Bytes;
use openssl::bn::BigNum;
use openssl::ecdsa::EcdsaSig;
use openssl::sha::sha512;

use crate::certificate::{Certificate, KeyKind, Usage};
use crate::cms::Name;
use crate::cms::algorithm::{digest_identifier, ecdsa_identifier, ml_dsa_identifier, rsa_signature_identifier};
use crate::cms::attributes::{self, AttributeWriter};
use crate::cms::signed::SignedLayout;
use crate::cms::writer::{INTEGER, SEQUENCE, Writer, element};
use crate::error::OpenError;
use crate::message::{Bound, Content, Expect, Packing};
use crate::policy::{Policy, PolicyError, Quality, SignatureScheme};
use crate::ring::Ring;
use bulla_device::RsaScheme;

/// The signers that a policy names, and a message that is none of theirs.
pub(super) struct Decoy {
    signers: Vec<Certificate>,
    /// A whole `ContentInfo` whose payload is empty.
    pub(super) der: Bytes,
    /// In the range of the signers' keys, and no signer's.
    pub(super) signature: Vec<u8>,
}

impl Decoy {
    /// For one message, before any private key is used.
    ///
    /// # Errors
    /// [`OpenError::Policy`]: no signers are named, the ring lacks one's certificate, or their keys differ.
    pub(super) fn new(policy: &Policy, ring: &Ring, expect: &Expect, digest: Digest) -> Result<Decoy, OpenError> {
        policy.check_signers().map_err(OpenError::Policy)?;
        let signers = named(policy, ring).map_err(OpenError::Policy)?;
        let first = signers.first().ok_or(OpenError::Policy(PolicyError::UnnamedSigners))?;
        let signature = nobodys_signature(first);
        let der = Bytes::from(message(first, expect, digest, policy.signature_scheme, &signature));
        Ok(Decoy { signers, der, signature })
    }

    /// The certificate of that name among the policy's signers.
    pub(super) fn signer(&self, name: &Name<'_>) -> Option<&Certificate> {
        self.signers.iter().find(|certificate| match name {
            Name::IssuerAndSerial(wanted) => certificate.issuer_and_serial() == *wanted,
            Name::Key(id) => certificate.subject_key_id() == Some(*id),
        })
    }
}

/// Whether a ring holds what a signed message under AES-CBC is measured against: a certificate of each signer that the
/// policy names, all with keys of one type and size. Without them its owner opens nothing under that policy.
///
/// # Errors
/// [`PolicyError`], the first thing that is missing or differs.
pub fn check_reader(policy: &Policy, ring: &Ring) -> Result<(), PolicyError> {
    if policy.is_signed_cbc() {
        policy.check_signers()?;
        named(policy, ring)?;
    }
    Ok(())
}

/// Every certificate that the ring has for the policy's signers, of a kind that PQC lets sign; at least one for each.
/// Of a signer with keys of both kinds those of RSA and EC keys alone: by these it signs here (`signer.rs`).
fn named(policy: &Policy, ring: &Ring) -> Result<Vec<Certificate>, PolicyError> {
    let mut all: Vec<Certificate> = Vec::new();
    for dn in &policy.signers {
        let can_sign = |certificate: &&Certificate| {
            policy.pqc.allows(certificate.key_kind()) && certificate.check_usage(Usage::Sign).is_ok()
        };
        let is_classical = |certificate: &&Certificate| !certificate.key_kind().is_post_quantum();
        let of_signer = || ring.named(dn).filter(can_sign);
        let has_classical = of_signer().any(|certificate| is_classical(&certificate));
        let before = all.len();
        all.extend(of_signer().filter(|certificate| !has_classical || is_classical(certificate)).cloned());
        if all.len() == before {
            return Err(PolicyError::SignerNotInRing { dn: dn.to_string(), user: ring.user().to_owned() });
        }
    }
    let Some(first) = all.first() else { return Ok(all) };
    let key = |certificate: &Certificate| format!("{} {}", certificate.key_kind(), certificate.key_bits());
    let other = all.iter().find(|other| {
        (other.key_kind(), other.key_bits()) != (first.key_kind(), first.key_bits()) || other.device_key().is_none()
    });
    match other {
        Some(other) => Err(PolicyError::SignersDiffer {
            first: format!("{} has {}", first.dn(), key(first)),
            other: format!("{} has {}", other.dn(), key(other)),
        }),
        None => Ok(all),
    }
}

/// As long as the signer's, in range, and made of numbers that save a verification nothing: equal ones would.
fn nobodys_signature(certificate: &Certificate) -> Vec<u8> {
    let filler = |start: &[u8], len: usize, which: u8| {
        let mut bytes = start.to_vec();
        let mut block = sha512(&[b'n', which]);
        while bytes.len() < len {
            bytes.extend_from_slice(&block);
            block = sha512(&block);
        }
        bytes.truncate(len);
        bytes
    };
    match certificate.key_kind() {
        KeyKind::Ec(curve) => {
            // One byte less where the order begins with a single bit.
            let len = curve.coordinate_len() - usize::from(curve.bits() % 8 != 0);
            let number = |which| element(INTEGER, &[&filler(&[0x5a], len, which)]);
            element(SEQUENCE, &[&number(b'r'), &number(b's')])
        }
        KeyKind::MlDsa(set) => {
            // No hints, which a signature may have: counts of nothing at the end.
            let (hints, polynomials) = set.hints();
            let mut signature = filler(&[], set.signature_len() - hints - polynomials, b'z');
            signature.resize(set.signature_len(), 0);
            signature
        }
        _ => filler(&[0], (certificate.key_bits() as usize).div_ceil(8), b'm'),
    }
}

/// A message of this signer's, bound as a good one would be, with an empty payload.
fn message(
    signer: &Certificate,
    expect: &Expect,
    digest: Digest,
    scheme: SignatureScheme,
    signature: &[u8],
) -> Vec<u8> {
    let identifier = digest_identifier(digest);
    let algorithm = match (signer.key_kind(), scheme) {
        (KeyKind::Ec(_), _) => ecdsa_identifier(digest),
        (KeyKind::MlDsa(set), _) => ml_dsa_identifier(set),
        (_, SignatureScheme::Pkcs1) => rsa_signature_identifier(RsaScheme::Pkcs1, digest),
        (_, SignatureScheme::Pss) => rsa_signature_identifier(RsaScheme::Pss, digest),
    };
    let bound = Bound {
        destination: expect.destinations.first().cloned().unwrap_or_default(),
        message_id: expect.message_id.clone(),
        properties: expect.properties.clone(),
        application_properties: expect.application_properties.clone(),
        annotations: expect.annotations.clone(),
    };
    let content = Content { packing: Packing::Data, content_type: None, bytes: Bytes::new() };
    let mut set = AttributeWriter::new();
    attributes::write_content_type(&mut set);
    attributes::write_binding(&mut set, Quality::Privacy, &bound, None);
    attributes::write_content(&mut set, &content);
    attributes::write_recipients(&mut set, &[0; 32]);
    attributes::write_message_digest(&mut set, &digest.hash(&[]));
    let protection = attributes::algorithm_protection(&identifier, &algorithm);
    set.push_raw(crate::oid::ALGORITHM_PROTECTION, &protection);
    set.push_raw(crate::oid::SIGNING_CERTIFICATE_V2, &attributes::signing_certificate(signer, &[]));
    let attributes = set.sorted();
    let layout = SignedLayout {
        content_type: crate::oid::ID_DATA,
        digest: &identifier,
        certificates: signer.der(),
        signer: signer.issuer_and_serial(),
        attributes_len: attributes.len(),
        algorithm: &algorithm,
        signature_len: signature.len(),
        payload_len: 0,
    };
    let mut out = Writer::with_capacity(layout.len());
    layout.write(&mut out, &[], &attributes, signature);
    out.finish()
}

/// Whether the hints at the end of an ML-DSA signature are encoded as they must be (FIPS 204, algorithm 21): one that
/// are not is refused before any arithmetic.
fn has_readable_hints(set: MlDsa, signature: &[u8]) -> bool {
    let (most, polynomials) = set.hints();
    let Some(encoded) = signature.len().checked_sub(most + polynomials).and_then(|at| signature.get(at..)) else {
        return false;
    };
    let (places, ends) = encoded.split_at(most);
    let mut start = 0;
    for end in ends.iter().map(|end| usize::from(*end)) {
        let Some(of_one) = places.get(start..end) else { return false };
        if !of_one.is_sorted_by(|left, right| left < right) {
            return false;
        }
        start = end;
    }
    places.get(start..).is_some_and(|rest| rest.iter().all(|place| *place == 0))
}

/// Whether a verification of this signature takes its whole arithmetic: numbers out of range are refused without any.
pub(super) fn is_in_range(certificate: &Certificate, signature: &[u8]) -> bool {
    let key = certificate.public_key();
    let below =
        |number: &openssl::bn::BigNumRef, limit: &openssl::bn::BigNumRef| number < limit && number.num_bits() > 0;
    let answer = match certificate.key_kind() {
        KeyKind::MlDsa(set) => Some(signature.len() == set.signature_len() && has_readable_hints(set, signature)),
        KeyKind::Ec(_) => key.ec_key().ok().and_then(|key| {
            let parsed = EcdsaSig::from_der(signature).ok()?;
            let mut order = BigNum::new().ok()?;
            let mut context = openssl::bn::BigNumContext::new().ok()?;
            key.group().order(&mut order, &mut context).ok()?;
            let exact = parsed.to_der().is_ok_and(|der| der == signature);
            Some(exact && below(parsed.r(), &order) && below(parsed.s(), &order))
        }),
        _ => key.rsa().ok().and_then(|key| {
            let number = BigNum::from_slice(signature).ok()?;
            Some(signature.len() == key.size() as usize && below(&number, key.n()))
        }),
    };
    drop(openssl::error::ErrorStack::get());
    answer.unwrap_or(false)
}
