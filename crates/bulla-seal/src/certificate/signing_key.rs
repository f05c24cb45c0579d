//! The private key that an authority signs with: in this process, or where it stays.

use std::fmt;
use std::sync::Arc;

use bulla_device::{DeviceError, Digest, KeyUri, PublicKey, RsaScheme, Work};
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, PKeyRef, Private, Public};
use zeroize::Zeroizing;

use super::create::CreateError;
use super::{Certificate, Curve, KeyKind, KeySpec, MalformedError, Passphrase, PrivateKeyPem, tlv};

/// Does one signature ([`Work::RsaSign`], [`Work::EcdsaSign`] or [`Work::MlDsaSign`]) where the key is, and waits.
pub type Sign = Arc<dyn Fn(Work) -> Result<Vec<u8>, DeviceError> + Send + Sync>;

/// A key that signs certificates and revocation lists. Never shown.
#[derive(Clone)]
pub struct SigningKey(Place);

#[derive(Clone)]
enum Place {
    Clear(PKey<Private>),
    Elsewhere { public: PublicKey, uri: KeyUri, sign: Sign },
}

impl SigningKey {
    /// A key in this process.
    pub fn clear(key: PKey<Private>) -> SigningKey {
        SigningKey(Place::Clear(key))
    }

    /// A key on a token or in a transit engine, which `uri` names and `sign` signs with.
    pub fn elsewhere(public: PublicKey, uri: KeyUri, sign: Sign) -> SigningKey {
        SigningKey(Place::Elsewhere { public, uri, sign })
    }

    /// What names it, where it is not in this process.
    pub fn uri(&self) -> Option<&KeyUri> {
        match &self.0 {
            Place::Clear(_) => None,
            Place::Elsewhere { uri, .. } => Some(uri),
        }
    }

    /// Signs once and looks at the signature, where the key is elsewhere: whether it can be reached, and is the one
    /// of `certificate`.
    ///
    /// # Errors
    /// [`CreateError::Device`], [`CreateError::Malformed`] for a key that is another one.
    pub fn prove(&self, certificate: &Certificate) -> Result<(), CreateError> {
        const TRIAL: &[u8] = b"whether the key of an authority can sign";
        let Place::Elsewhere { sign, .. } = &self.0 else { return Ok(()) };
        let kind = certificate.key_kind();
        let signature = sign(signature_work(kind, signing_digest(kind), TRIAL))?;
        let mut verifier = match message_digest(kind) {
            None => openssl::sign::Verifier::new_without_digest(certificate.public_key())?,
            Some(digest) => openssl::sign::Verifier::new(digest, certificate.public_key())?,
        };
        match verifier.verify_oneshot(&signature, TRIAL) {
            Ok(true) => Ok(()),
            _ => Err(MalformedError("a signature of the authority's key that its certificate does not verify").into()),
        }
    }

    /// Whether it is the key of this certificate.
    pub(crate) fn is_of(&self, certificate: &Certificate) -> bool {
        match &self.0 {
            Place::Clear(key) => certificate.public_key().public_eq(key),
            Place::Elsewhere { public, .. } => certificate.public_key().public_eq(public.key()),
        }
    }

    /// What its file holds: PKCS#8 in PEM, encrypted where there is a passphrase, or its URI in a line.
    pub(crate) fn file(&self, passphrase: Option<&Passphrase>) -> Result<Zeroizing<Vec<u8>>, CreateError> {
        Ok(Zeroizing::new(match &self.0 {
            Place::Clear(key) => PrivateKeyPem::write(key, passphrase)?.as_bytes().to_vec(),
            Place::Elsewhere { uri, .. } => format!("{uri}\n").into_bytes(),
        }))
    }

    /// Signs what OpenSSL makes: `draft` is given the key that signs, and returns the DER of a SEQUENCE of what is
    /// signed, algorithm and signature: a certificate (RFC 5280, 4.1), a revocation list (5.1), a request (RFC 2986).
    /// `kind` is the key's.
    ///
    /// OpenSSL gives out none of these unsigned. So where the key is elsewhere, one made for this once signs the draft,
    /// and its signature is replaced: what is signed names the algorithm by kind of key and digest only.
    ///
    /// # Errors
    /// Those of `draft`; [`CreateError::Device`]. A signature that does not fit is found by who reads the result.
    pub(crate) fn signed(
        &self,
        kind: KeyKind,
        draft: impl FnOnce(&PKeyRef<Private>) -> Result<Vec<u8>, CreateError>,
    ) -> Result<Vec<u8>, CreateError> {
        match &self.0 {
            Place::Clear(key) => draft(key),
            Place::Elsewhere { sign, .. } => signed_elsewhere(kind, draft, |work| Ok(sign(work)?)),
        }
    }

    /// What [`super::create::certificate`] puts into a certificate that the key signs itself.
    pub(crate) fn public(&self) -> Result<PKey<Public>, CreateError> {
        let der = match &self.0 {
            Place::Clear(key) => key.public_key_to_der()?,
            Place::Elsewhere { public, .. } => public.key().public_key_to_der()?,
        };
        Ok(PKey::public_key_from_der(&der)?)
    }
}

/// As [`SigningKey::signed`], with a signature that is asked for once.
pub(crate) fn signed_elsewhere(
    kind: KeyKind,
    draft: impl FnOnce(&PKeyRef<Private>) -> Result<Vec<u8>, CreateError>,
    sign: impl FnOnce(Work) -> Result<Vec<u8>, CreateError>,
) -> Result<Vec<u8>, CreateError> {
    let stand_in = match kind {
        KeyKind::Ec(curve) => KeySpec::Ec(curve),
        KeyKind::MlDsa(set) => KeySpec::MlDsa(set),
        _ => KeySpec::Rsa(1024),
    };
    let draft = draft(&*stand_in.generate()?)?;
    let broken = || CreateError::Malformed(MalformedError("draft of what is to be signed"));
    let mut body = tlv::only(&draft, tlv::SEQUENCE).ok_or_else(broken)?.value;
    let signed = tlv::expect(&mut body, tlv::SEQUENCE).ok_or_else(broken)?.whole;
    let algorithm = tlv::expect(&mut body, tlv::SEQUENCE).ok_or_else(broken)?.whole;
    let signature = sign(signature_work(kind, signing_digest(kind), signed))?;
    let signature = tlv::element(tlv::BIT_STRING, &[&[0], &signature]);
    Ok(tlv::element(tlv::SEQUENCE, &[signed, algorithm, &signature]))
}

/// The signature as X.509 has it: PKCS#1 v1.5, `ECDSA-Sig-Value`, or ML-DSA's bytes.
fn signature_work(kind: KeyKind, digest: Digest, signed: &[u8]) -> Work {
    let hash = digest.hash(signed);
    match kind {
        KeyKind::MlDsa(_) => Work::MlDsaSign { message: signed.to_vec() },
        KeyKind::Ec(_) => Work::EcdsaSign { hash },
        _ => Work::RsaSign { scheme: RsaScheme::Pkcs1, digest, hash },
    }
}

/// SHA-256, or the digest that matches a larger curve.
pub(crate) fn signing_digest(kind: KeyKind) -> Digest {
    match kind {
        KeyKind::Ec(Curve::P384) => Digest::Sha384,
        KeyKind::Ec(Curve::P521) => Digest::Sha512,
        _ => Digest::Sha256,
    }
}

/// What OpenSSL is to hash with before this kind of key signs; none where the key signs all of it, as ML-DSA does.
pub(crate) fn message_digest(kind: KeyKind) -> Option<MessageDigest> {
    match kind {
        KeyKind::MlDsa(_) => None,
        _ => Some(signing_digest(kind).message_digest()),
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Clear(_) => f.write_str("SigningKey(..)"),
            Place::Elsewhere { uri, .. } => write!(f, "SigningKey({uri})"),
        }
    }
}
