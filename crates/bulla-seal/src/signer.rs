//! A signer: a key, and everything about it that stands in each message that it signs.

use std::time::SystemTime;

use bulla_device::{Digest, Job, MlDsa, PrivateKey, RsaScheme, Work};

use crate::certificate::{Certificate, KeyKind};
use crate::cms::algorithm::{
    digest_identifier, ecdsa_identifier, is_strong_enough, ml_dsa_identifier, rsa_signature_identifier,
};
use crate::cms::attributes::{self, AttributeWriter, attribute_len, content_type_len};
use crate::cms::signed::SignedLayout;
use crate::cms::writer::{SET, Writer, element_len};
use crate::error::SealError;
use crate::oid;
use crate::policy::{Policy, SignatureScheme};
use crate::ring::{Own, Ring};

/// A key with everything about it that stands in each message it signs.
pub(crate) struct Signer {
    pub(crate) certificate: Certificate,
    key: PrivateKey,
    work: SignatureWork,
    pub(crate) digest: Digest,
    digest_identifier: Vec<u8>,
    algorithm: Vec<u8>,
    name: Vec<u8>,
    certificates: Vec<u8>,
    protection: Vec<u8>,
    signing_certificate: Vec<u8>,
    pub(crate) signature_len: usize,
}

enum SignatureWork {
    Rsa(RsaScheme),
    Ecdsa,
    MlDsa,
}

impl Signer {
    /// The newest key whose signature of this scheme and digest exists, of a kind that PQC allows; under PQC(ALLOWED) a
    /// post-quantum one where there is one. With a CBC cipher an RSA or EC one: there all signers have keys of one
    /// type, and readers expect that one of who has both (`open/decoy.rs`).
    pub(crate) fn choose<'a>(
        ring: &'a Ring,
        policy: &Policy,
        digest: Digest,
        now: SystemTime,
    ) -> Result<&'a Own, SealError> {
        let fits = |own: &Own| match own.certificate.key_kind() {
            // RFC 8017, 9.1.1: two hashes and two bytes must fit into the modulus.
            KeyKind::Rsa => {
                policy.signature_scheme == SignatureScheme::Pkcs1
                    || (own.certificate.key_bits() as usize).div_ceil(8) >= 2 * Digest::hash_len(digest) + 2
            }
            KeyKind::MlDsa(set) => is_strong_enough(digest, set),
            // It signs nothing.
            KeyKind::MlKem(_) => false,
            KeyKind::Ec(_) | KeyKind::Other => true,
        };
        let allowed = |own: &Own| policy.pqc.allows(own.certificate.key_kind()) && fits(own);
        // A ring may have keys of several names: where the policy lists one, no reader believes another.
        let is_named = |own: &Own| policy.signers.contains(own.certificate.dn());
        let newest = |wanted: &dyn Fn(&Own) -> bool| {
            let post_quantum = !policy.is_signed_cbc();
            let preferred = |own: &Own| wanted(own) && own.certificate.key_kind().is_post_quantum() == post_quantum;
            match ring.signing_where(policy.revocation, now, preferred) {
                Ok(own) => Ok(own),
                Err(_) => ring.signing_where(policy.revocation, now, wanted),
            }
        };
        if ring.own().iter().any(|own| is_named(own) && allowed(own)) {
            return Ok(newest(&|own| is_named(own) && allowed(own))?);
        }
        match newest(&allowed) {
            Ok(own) => Ok(own),
            // A key there is, but none that fits: say so, and of one that PQC allows first.
            Err(error) => match ring
                .signing_where(policy.revocation, now, |own| policy.pqc.allows(own.certificate.key_kind()))
                .or_else(|_| ring.signing(policy.revocation, now))
            {
                Ok(own) if !policy.pqc.allows(own.certificate.key_kind()) => {
                    Err(SealError::SignerOfOtherKind { dn: own.certificate.dn().clone(), pqc: policy.pqc })
                }
                Ok(own) => Err(SealError::SignatureDoesNotFit {
                    kind: own.certificate.key_kind(),
                    bits: own.certificate.key_bits(),
                    digest,
                }),
                Err(_) => Err(error.into()),
            },
        }
    }

    pub(crate) fn new(own: &Own, scheme: SignatureScheme, digest: Digest) -> Signer {
        let certificate = &own.certificate;
        let digest_identifier = digest_identifier(digest);
        let (work, algorithm, signature_len) = match own.key.kind() {
            bulla_device::KeyKind::Rsa => {
                let scheme = match scheme {
                    SignatureScheme::Pkcs1 => RsaScheme::Pkcs1,
                    SignatureScheme::Pss => RsaScheme::Pss,
                };
                let len = (own.key.bits() as usize).div_ceil(8);
                (SignatureWork::Rsa(scheme), rsa_signature_identifier(scheme, digest), len)
            }
            bulla_device::KeyKind::Ec(curve) => {
                // Each number may need a zero in front.
                let number = element_len(curve.coordinate_len() + usize::from(curve.bits() % 8 == 0));
                (SignatureWork::Ecdsa, ecdsa_identifier(digest), element_len(2 * number))
            }
            bulla_device::KeyKind::MlDsa(set) => (SignatureWork::MlDsa, ml_dsa_identifier(set), set.signature_len()),
            // No certificate for it is one to sign with; a device refuses the job.
            bulla_device::KeyKind::MlKem(_) => (SignatureWork::MlDsa, ml_dsa_identifier(MlDsa::MlDsa44), 0),
        };
        // A root in the message would prove nothing: who trusts it has it.
        let others: Vec<&Certificate> =
            own.chain.iter().filter(|above| above.dn() != above.issuer() && *above != certificate).collect();
        let mut encodings: Vec<&[u8]> = others.iter().map(|above| above.der()).collect();
        encodings.push(certificate.der());
        encodings.sort_unstable();
        encodings.dedup();
        Signer {
            certificate: certificate.clone(),
            key: own.key.clone(),
            work,
            digest,
            protection: attributes::algorithm_protection(&digest_identifier, &algorithm),
            signing_certificate: attributes::signing_certificate(certificate, &others),
            digest_identifier,
            algorithm,
            name: certificate.issuer_and_serial().to_vec(),
            certificates: encodings.concat(),
            signature_len,
        }
    }

    /// Bytes of what is said of the content itself, which every message's attributes have: its type, its digest and the
    /// time.
    pub(crate) fn statement_len(&self, content_type: &[u8], now: SystemTime) -> usize {
        content_type_len(content_type)
            + attribute_len(oid::MESSAGE_DIGEST, element_len(Digest::hash_len(self.digest)))
            + attributes::signing_time_len(now)
    }

    /// Bytes of the attributes that say what signed.
    pub(crate) fn credentials_len(&self) -> usize {
        attribute_len(oid::ALGORITHM_PROTECTION, self.protection.len())
            + attribute_len(oid::SIGNING_CERTIFICATE_V2, self.signing_certificate.len())
    }

    /// Says what signed, in the attributes that the signature covers.
    pub(crate) fn write_credentials(&self, set: &mut AttributeWriter) {
        set.push_raw(oid::ALGORITHM_PROTECTION, &self.protection);
        set.push_raw(oid::SIGNING_CERTIFICATE_V2, &self.signing_certificate);
    }

    /// What a `SignedData` of this signer's looks like.
    pub(crate) fn layout<'a>(
        &'a self,
        content_type: &'a [u8],
        attributes_len: usize,
        signature_len: usize,
        payload_len: usize,
    ) -> SignedLayout<'a> {
        SignedLayout {
            content_type,
            digest: &self.digest_identifier,
            certificates: &self.certificates,
            signer: &self.name,
            attributes_len,
            algorithm: &self.algorithm,
            signature_len,
            payload_len,
        }
    }

    /// The signature over a set of attributes, for a device.
    pub(crate) fn job(&self, attributes: &[u8]) -> Job {
        let mut header = Writer::with_capacity(8);
        header.header(SET, attributes.len());
        let parts = [header.as_slice(), attributes];
        let work = match self.work {
            SignatureWork::Rsa(scheme) => {
                Work::RsaSign { scheme, digest: self.digest, hash: self.digest.hash_parts(&parts) }
            }
            SignatureWork::Ecdsa => Work::EcdsaSign { hash: self.digest.hash_parts(&parts) },
            SignatureWork::MlDsa => Work::MlDsaSign { message: parts.concat() },
        };
        Job::new(self.key.clone(), work)
    }
}
