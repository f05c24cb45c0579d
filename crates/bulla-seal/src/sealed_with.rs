//! What a sealed message is sealed with: keys, digests, cipher. It is read without opening, and nothing is verified.

use bulla_device::{Curve, RsaPadding};

use crate::certificate::{Certificate, KeyKind};
use crate::cms::algorithm::SignatureKind;
use crate::cms::attributes::Binding;
use crate::cms::enveloped::{Enveloped, Recipient, Transport};
use crate::cms::signed::{SignedData, SignerInfo};
use crate::cms::{self, Container, Name};
use crate::error::OpenError;
use crate::policy::{ContentCipher, Quality};

/// What a sealed message is sealed with, as far as it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedWith {
    /// The quality of protection, as far as it shows; none for an envelope that may have a signature inside: those of
    /// privacy, and those of other software.
    pub quality: Option<Quality>,
    /// Each kind of key that signed it visibly, with the digest: `rsa2048 SHA256`, `rsa2048 PSS SHA256`, `p256 SHA384`,
    /// `ml-dsa-65 SHA512`; `ec SHA256` where the curve does not show. Sorted, each once. A signature inside an envelope
    /// does not show.
    pub signers: Vec<String>,
    /// Each kind of key that opens it: `rsa2048 OAEP`, `rsa2048 PKCS1`, `p256`, `ml-kem-768`. Sorted, each once.
    pub recipients: Vec<String>,
    /// The content cipher.
    pub cipher: Option<ContentCipher>,
}

/// Reads what a message is sealed with.
///
/// # Errors
/// [`OpenError::NotSealed`], or what is wrong with it.
pub fn sealed_with(der: &[u8]) -> Result<SealedWith, OpenError> {
    match cms::read(der)? {
        Container::Signed(signed) => Ok(of_signed(&signed)),
        Container::Batch(batch) => Ok(of_signed(&batch.signed)),
        Container::Enveloped(envelope) => of_envelope(&envelope),
    }
}

fn of_signed(signed: &SignedData<'_>) -> SealedWith {
    let signers = signed.signers.iter().map(|signer| of_signer(signer, &signed.certificates));
    let (quality, recipients) = (Some(Quality::Integrity), Vec::new());
    SealedWith { quality, signers: sorted(signers), recipients, cipher: None }
}

fn of_envelope(envelope: &Enveloped<'_>) -> Result<SealedWith, OpenError> {
    let quality = envelope.attributes.ours.binding.map(Binding::read).transpose()?.map(|binding| binding.quality);
    let recipients = sorted(envelope.recipients.iter().map(of_recipient));
    Ok(SealedWith { quality, signers: Vec::new(), recipients, cipher: Some(envelope.cipher) })
}

fn sorted(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words: Vec<String> = words.collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn of_signer(signer: &SignerInfo<'_>, certificates: &[&[u8]]) -> String {
    let digest = signer.digest;
    // A signature of RSA is as long as the modulus.
    let rsa_bits = signer.signature.len().saturating_mul(8);
    match signer.kind {
        SignatureKind::RsaPkcs1 => format!("rsa{rsa_bits} {digest}"),
        SignatureKind::RsaPss { .. } => format!("rsa{rsa_bits} PSS {digest}"),
        SignatureKind::MlDsa(set) => format!("ml-dsa-{} {digest}", set.number()),
        SignatureKind::Ecdsa => match curve(signer, certificates) {
            Some(curve) => format!("p{} {digest}", curve.bits()),
            None => format!("ec {digest}"),
        },
    }
}

/// The curve of the signer's certificate, where that is in the message.
fn curve(signer: &SignerInfo<'_>, certificates: &[&[u8]]) -> Option<Curve> {
    let is_its = |certificate: &Certificate| match signer.name {
        Name::IssuerAndSerial(name) => certificate.issuer_and_serial() == name,
        Name::Key(id) => certificate.subject_key_id() == Some(id),
    };
    let found = certificates.iter().filter_map(|der| Certificate::from_der(der).ok()).find(is_its)?;
    match found.key_kind() {
        KeyKind::Ec(curve) => Some(curve),
        _ => None,
    }
}

fn of_recipient(recipient: &Recipient<'_>) -> String {
    // A content key that RSA wrapped is as long as the modulus.
    let rsa_bits = recipient.encrypted_key.len().saturating_mul(8);
    match recipient.transport {
        Transport::Rsa(RsaPadding::Pkcs1) => format!("rsa{rsa_bits} PKCS1"),
        Transport::Rsa(RsaPadding::Oaep { .. }) => format!("rsa{rsa_bits} OAEP"),
        Transport::Ecdh { point, .. } => match Curve::ALL.iter().find(|curve| curve.point_len() == point.len()) {
            Some(curve) => format!("p{}", curve.bits()),
            None => "ec".to_owned(),
        },
        Transport::Kem { set, .. } => format!("ml-kem-{}", set.number()),
    }
}
