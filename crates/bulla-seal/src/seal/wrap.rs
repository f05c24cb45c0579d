//! A new content key on its way to its recipients: one job for a device each, one after the other.

use std::sync::Arc;

use bulla_device::{Curve, Digest, Job, ML_KEM_SECRET_BYTES, MlKem, Output, PublicKey, RsaPadding, Work};

use crate::certificate::{Certificate, KeyKind};
use crate::cms::algorithm::{aes_wrap_identifier, agreement_identifier, rsa_wrap_identifier};
use crate::cms::enveloped::{
    KEM_WRAPPING_KEY_BYTES, RecipientKinds, agreement_info, derive_key, kem_info, kem_other_info, recipient_set,
    shared_info, transport_info,
};
use crate::effort::Tally;
use crate::error::SealError;
use crate::message::Sealed;
use crate::policy::{ContentCipher, KeyTransport};
use crate::step::Step;
use crate::symmetric::{self, WRAP_OVERHEAD_BYTES};

/// A recipient's key, ready to wrap.
pub(super) struct Recipient {
    /// DER of `IssuerAndSerialNumber`.
    name: Vec<u8>,
    key: PublicKey,
    algorithm: Vec<u8>,
    way: Way,
}

enum Way {
    Transport { padding: RsaPadding, len: usize },
    Agreement { curve: Curve, kdf: Digest, shared: Vec<u8>, wrap_len: usize },
    Encapsulation { set: MlKem, other_info: Vec<u8>, key_len: usize },
}

impl Recipient {
    /// DER of the `IssuerAndSerialNumber` of its certificate.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Of a certificate that was found good.
    pub(super) fn new(
        certificate: &Certificate,
        transport: KeyTransport,
        cipher: ContentCipher,
    ) -> Result<Recipient, SealError> {
        let refused = |why| SealError::RecipientKey { dn: certificate.dn().clone(), why };
        let Some(key) = certificate.device_key() else { return Err(refused("its kind of key is not supported")) };
        let rsa_way = |padding| {
            let len = (key.bits() as usize).div_ceil(8);
            (rsa_wrap_identifier(padding), Way::Transport { padding, len })
        };
        let (algorithm, way) = match (certificate.key_kind(), transport) {
            (KeyKind::Rsa, KeyTransport::Pkcs1) => {
                if !certificate.is_for_encryption_only() {
                    return Err(refused("KEYWRAP(PKCS1) needs a certificate that is for encryption and nothing else"));
                }
                rsa_way(RsaPadding::Pkcs1)
            }
            (KeyKind::Rsa, KeyTransport::Auto | KeyTransport::Oaep) => {
                rsa_way(RsaPadding::Oaep { digest: Digest::Sha256 })
            }
            (KeyKind::Ec(_), KeyTransport::Oaep) => {
                return Err(refused("KEYWRAP(OAEP) needs an RSA key, this one is elliptic"));
            }
            (KeyKind::Ec(curve), _) => {
                let kdf = if curve.bits() > 256 { Digest::Sha384 } else { Digest::Sha256 };
                let wrap_len = cipher.key_len();
                let wrap = aes_wrap_identifier(wrap_len);
                let shared = shared_info(&wrap, None, wrap_len);
                (agreement_identifier(kdf, &wrap), Way::Agreement { curve, kdf, shared, wrap_len })
            }
            (KeyKind::MlKem(_), KeyTransport::Oaep) => {
                return Err(refused("KEYWRAP(OAEP) needs an RSA key, this one is ML-KEM"));
            }
            (KeyKind::MlKem(_), _) if cipher.key_len() < KEM_WRAPPING_KEY_BYTES => {
                return Err(refused("an ML-KEM key needs ENCALG(AES256) or ENCALG(AES256CBC)"));
            }
            (KeyKind::MlKem(set), _) => {
                let (other_info, key_len) = (kem_other_info(None), cipher.key_len());
                // Each part of its recipient info has its own algorithm.
                (Vec::new(), Way::Encapsulation { set, other_info, key_len })
            }
            (KeyKind::MlDsa(_) | KeyKind::Other, _) => return Err(refused("its kind of key is not supported")),
        };
        Ok(Recipient { name: certificate.issuer_and_serial().to_vec(), key: key.clone(), algorithm, way })
    }

    /// What of it the version of an envelope tells.
    pub(super) fn kinds(&self) -> RecipientKinds {
        match self.way {
            Way::Transport { .. } => RecipientKinds::Simple,
            Way::Agreement { .. } => RecipientKinds::Further,
            Way::Encapsulation { .. } => RecipientKinds::Encapsulated,
        }
    }

    /// As long as a real one.
    pub(super) fn info_of_size(&self) -> Vec<u8> {
        match &self.way {
            Way::Transport { len, .. } => transport_info(&self.name, &self.algorithm, &vec![0; *len]),
            Way::Agreement { curve, wrap_len, .. } => {
                let point = vec![0; curve.point_len()];
                agreement_info(&self.name, &self.algorithm, &point, &vec![0; wrap_len + WRAP_OVERHEAD_BYTES])
            }
            Way::Encapsulation { set, key_len, .. } => {
                let ciphertext = vec![0; set.ciphertext_len()];
                kem_info(&self.name, *set, &ciphertext, &vec![0; key_len + WRAP_OVERHEAD_BYTES])
            }
        }
    }

    /// One public-key operation, an ephemeral key and one derivation, or one encapsulation.
    fn job(&self, content_key: &Output) -> Job {
        let work = match self.way {
            Way::Transport { padding, .. } => Work::RsaWrap { padding, content_key: content_key.clone() },
            Way::Agreement { .. } => Work::EcdhEphemeral,
            Way::Encapsulation { .. } => Work::MlKemEncapsulate,
        };
        Job::new(self.key.clone(), work)
    }

    /// Its recipient info, from what the device answered.
    fn info(&self, content_key: &[u8], answer: &[u8]) -> Result<Vec<u8>, SealError> {
        match &self.way {
            Way::Transport { len, .. } if answer.len() == *len => {
                Ok(transport_info(&self.name, &self.algorithm, answer))
            }
            Way::Agreement { curve, kdf, shared, wrap_len }
                if answer.len() == curve.point_len() + curve.coordinate_len() =>
            {
                let (point, secret) = answer.split_at(curve.point_len());
                let wrapping = derive_key(*kdf, secret, shared, *wrap_len);
                let encrypted = symmetric::wrap_key(&wrapping, content_key)?;
                Ok(agreement_info(&self.name, &self.algorithm, point, &encrypted))
            }
            Way::Encapsulation { set, other_info, .. }
                if answer.len() == set.ciphertext_len() + ML_KEM_SECRET_BYTES =>
            {
                let (ciphertext, secret) = answer.split_at(set.ciphertext_len());
                let wrapping = symmetric::hkdf_sha256(secret, other_info, KEM_WRAPPING_KEY_BYTES)?;
                let encrypted = symmetric::wrap_key(&wrapping, content_key)?;
                Ok(kem_info(&self.name, *set, ciphertext, &encrypted))
            }
            _ => Err(SealError::AnswerLength { len: answer.len() }),
        }
    }
}

/// A content key that is being wrapped.
pub(super) struct Wrapping {
    key: Output,
    recipients: Arc<[Recipient]>,
    /// Of the first recipients, those whose jobs are done.
    infos: Vec<Vec<u8>>,
    tally: Tally,
}

impl Wrapping {
    /// Wraps `key` for everyone, and goes on with it and with the `RecipientInfos`.
    pub(super) fn start<F>(
        key: Output,
        recipients: Arc<[Recipient]>,
        tally: Tally,
        then: F,
    ) -> Result<Step<Sealed, SealError>, SealError>
    where
        F: FnOnce(&[u8], Vec<u8>) -> Result<Step<Sealed, SealError>, SealError> + Send + 'static,
    {
        let infos = Vec::with_capacity(recipients.len());
        Wrapping { key, recipients, infos, tally }.go_on(then)
    }

    fn go_on<F>(mut self, then: F) -> Result<Step<Sealed, SealError>, SealError>
    where
        F: FnOnce(&[u8], Vec<u8>) -> Result<Step<Sealed, SealError>, SealError> + Send + 'static,
    {
        let Some(recipient) = self.recipients.get(self.infos.len()) else {
            return then(&self.key, recipient_set(self.infos));
        };
        let job = recipient.job(&self.key);
        let tally = self.tally.clone();
        let next = move |answer: Result<Output, _>| {
            let answer = answer.map_err(SealError::Key)?;
            if let Some(recipient) = self.recipients.get(self.infos.len()) {
                self.infos.push(recipient.info(&self.key, &answer)?);
            }
            self.go_on(then)
        };
        Ok(tally.ask(job, next))
    }
}
