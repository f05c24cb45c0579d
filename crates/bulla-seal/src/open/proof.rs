//! The proof of a signed message: its signatures, one job for a device each, and its signers.
//!
//! Everything that the message says is read before the first of its signatures goes to a device, and kept
//! back until the last has come home good. So a message is read once, and nothing of it that is borrowed
//! has to live while a device works.

use std::time::SystemTime;

use bulla_device::{DeviceError, Digest, Hash, Job, Output, PublicKey, RsaScheme, Work};
use bytes::Bytes;
use openssl::error::ErrorStack;
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::sign::RsaPssSaltlen;
use zeroize::Zeroizing;

use super::cache::{Hints, KeyPlace, KnownSigner, KnownTree};
use super::decoy::{self, Decoy};
use super::{Opening, Question};
use crate::certificate::{self, Certificate};
use crate::cms;
use crate::cms::algorithm::SignatureKind;
use crate::cms::attributes::{Attributes, Ours, algorithm_protection, check_signing_certificate};
use crate::cms::batch::BatchSigned;
use crate::cms::reader::Malformed;
use crate::cms::signed::{SignedData, SignerInfo};
use crate::dn::Dn;
use crate::error::OpenError;
use crate::message::{Opened, Verified};
use crate::policy::Quality;
use crate::ring;
use crate::step::Step;

const BAD_SIGNATURE: OpenError = OpenError::Tampered { what: "the signature" };

/// A signed message that was read to its end and has its signatures still to be verified.
pub(super) struct Proof {
    pub(super) question: Question,
    /// What the signers still to be looked at say, in the message's order.
    pub(super) claims: std::vec::IntoIter<Result<(Verification, Claim), SignedError>>,
    /// The first signer, once it is proved.
    pub(super) signer: Option<Proved>,
    /// What is handed out when every signer is proved.
    pub(super) opened: Result<Opened, OpenError>,
    /// After CBC its ciphertext: whatever goes wrong before a signature is proved is then one cause.
    pub(super) cbc: Option<Bytes>,
    /// A content key that opened this message, to be remembered when all of it is good.
    pub(super) fresh_key: Option<(KeyPlace, Zeroizing<Vec<u8>>)>,
}

/// A signer that is proved.
pub(super) struct Proved {
    dn: Dn,
    /// SHA-256 of its certificate.
    certificate: [u8; 32],
    /// When it says that it signed.
    signing_time: Option<SystemTime>,
}

/// How a signature is verified.
pub(super) enum Verification {
    /// By a device.
    Device(PublicKey, Work),
    /// Not at all: the same root with this signer was verified before, and was good.
    Known,
    /// In place: with a size of key or a length of salt that devices do not take.
    Here(Foreign),
}

/// A signature that only others make.
pub(super) struct Foreign {
    kind: SignatureKind,
    digest: Digest,
    hash: Hash,
    signature: Vec<u8>,
}

/// What one signer says, and what is still to be found out about it.
pub(super) struct Claim {
    known: KnownSigner,
    /// SHA-256 of the root that it signed for many messages, to be remembered when its signature is good.
    root: Option<[u8; 32]>,
    /// The moment by which the dates of its certificate are judged.
    judged_at: SystemTime,
    /// What stands for the certificates of the message beside the signer's.
    hints: Hints,
    /// The certificates of the message beside the signer's, hints for its path; empty where the path is
    /// believed already.
    others: Vec<Bytes>,
    /// What the attributes say about the signature itself.
    vouched: Result<(), SignedError>,
    /// Whether the attributes name the signer's certificate: then a good signature proves it.
    names_certificate: bool,
    /// Whether it is the statement that the first signer signed.
    same_statement: bool,
    signing_time: Result<Option<SystemTime>, OpenError>,
}

/// How far a signed message got: after CBC the difference must not show.
pub(super) enum SignedError {
    /// Before the signature was verified.
    Early(OpenError),
    /// The signature was verified, and it or what it should prove is wrong.
    Unproved(OpenError),
    /// All bytes are proved, and what they say is not wanted.
    Late(OpenError),
}

impl SignedError {
    fn into_cause(self) -> OpenError {
        match self {
            SignedError::Early(error) | SignedError::Unproved(error) | SignedError::Late(error) => error,
        }
    }
}

impl Proof {
    /// To the next signature, or to the end.
    pub(super) fn go_on(mut self) -> Result<Opening, OpenError> {
        match self.claims.next() {
            None => self.finish().map(Step::Done),
            Some(Err(error)) => self.refuse(error),
            Some(Ok((Verification::Device(key, work), claim))) => {
                let tally = self.question.tally.clone();
                // The other messages of a batch come with it.
                let is_common = claim.root.is_some();
                let conclude = move |result| {
                    let good = is_good(result)?;
                    self.conclude(claim, good)
                };
                let job = Job::new(key, work);
                Ok(tally.ask(if is_common { job.common() } else { job }, conclude))
            }
            Some(Ok((Verification::Known, claim))) => self.conclude(claim, true),
            Some(Ok((Verification::Here(foreign), claim))) => {
                let good = foreign.is_good(&claim.known.certificate)?;
                self.question.tally.verify();
                self.conclude(claim, good)
            }
        }
    }

    /// After one signature was verified.
    fn conclude(mut self, claim: Claim, good: bool) -> Result<Opening, OpenError> {
        match self.believe(claim, good) {
            Ok(signer) => {
                self.signer.get_or_insert(signer);
                self.go_on()
            }
            Err(error) => self.refuse(error),
        }
    }

    fn believe(&self, claim: Claim, good: bool) -> Result<Proved, SignedError> {
        if !good {
            return Err(SignedError::Unproved(BAD_SIGNATURE));
        }
        if let Some(root) = claim.root {
            self.question.cache.remember_root(root, *claim.known.certificate.fingerprint());
        }
        // The attributes are the signer's now. The certificates are not yet: a changed one with the same
        // key verifies as well, until the signing certificate attribute has been compared.
        claim.vouched?;
        let question = &self.question;
        let known = claim.known;
        let (dn, certificate) = (known.certificate.dn().clone(), *known.certificate.fingerprint());
        if !known.is_believed(claim.hints, question.policy.revocation, claim.judged_at, question.now) {
            let others: Vec<Certificate> =
                claim.others.iter().filter_map(|der| Certificate::from_der(der).ok()).collect();
            let proved = if claim.names_certificate { SignedError::Late } else { SignedError::Unproved };
            let asked = ring::PathQuestion {
                usage: Some(certificate::Usage::Sign),
                revocation: question.policy.revocation,
                at: claim.judged_at,
                now: question.now,
            };
            let proof =
                question.ring.prove(&known.certificate, &others, &asked).map_err(|error| proved(error.into()))?;
            question.cache.remember_signer(&question.ring, known.judged(claim.hints, proof.verdict));
        }
        let signers = &question.policy.signers;
        if !signers.is_empty() && !signers.contains(&dn) {
            return Err(SignedError::Late(OpenError::SignerNotAuthorised { dn }));
        }
        let signing_time = claim.signing_time.map_err(SignedError::Late)?;
        // Two signers must at least have signed the same statement.
        if !claim.same_statement {
            return Err(SignedError::Late(OpenError::Tampered { what: "one of two signers' attributes" }));
        }
        Ok(Proved { dn, certificate, signing_time })
    }

    fn finish(self) -> Result<Verified<Opened>, OpenError> {
        let Proved { dn, certificate, signing_time } = self.signer.ok_or(OpenError::Unsigned)?;
        let mut opened = self.opened?;
        opened.seal.signer = Some(dn);
        opened.seal.signer_certificate = Some(certificate);
        opened.seal.signing_time = signing_time;
        if let Some((place, key)) = self.fresh_key {
            self.question.remember_key(place, key);
        }
        self.question.tally.bytes_out(opened.content.bytes.len());
        Ok(Verified::new(opened))
    }

    /// After CBC: as long as anything inside is unproved its error is `cannot-decrypt`, and took as long
    /// as a verification.
    fn refuse(self, error: SignedError) -> Result<Opening, OpenError> {
        let Some(ciphertext) = &self.cbc else { return Err(error.into_cause()) };
        match (error, self.question.decoy.clone()) {
            (SignedError::Late(error), _)
            | (SignedError::Early(error @ OpenError::Library { .. }), _)
            | (SignedError::Unproved(error @ OpenError::Library { .. }), _) => Err(error),
            (SignedError::Early(_), Some(decoy)) => {
                let ciphertext = ciphertext.clone();
                self.go_on_with(&decoy, &ciphertext)
            }
            (SignedError::Early(_) | SignedError::Unproved(_), _) => Err(OpenError::CannotDecrypt),
        }
    }

    /// Goes on with the decoy instead of what the envelope held, as if it had held the decoy.
    fn go_on_with(self, decoy: &Decoy, ciphertext: &Bytes) -> Result<Opening, OpenError> {
        let mut signed = cms::read_signed(&decoy.der).map_err(|_| OpenError::CannotDecrypt)?;
        // So many bytes are hashed as a payload would have had.
        let len = ciphertext.len().saturating_sub(decoy.der.len());
        signed.payload = ciphertext.get(..len).unwrap_or_default();
        let (claims, ours) = self.question.claims(&signed, &decoy.der, Some(&[0; 32]));
        let opened = match ours {
            Some(ours) => self.question.read_opened(&ours, Bytes::new(), Quality::Privacy, Vec::new()),
            None => Err(OpenError::CannotDecrypt),
        };
        drop(opened);
        let opened = Err(OpenError::CannotDecrypt);
        // Without a decoy of its own: nothing comes back here.
        let question = Question { decoy: None, ..self.question };
        Proof { question, claims, signer: None, opened, cbc: Some(ciphertext.clone()), fresh_key: None }.go_on()
    }
}

/// What a device said of a signature. A device that failed says nothing of it.
fn is_good(result: Result<Output, DeviceError>) -> Result<bool, OpenError> {
    match result {
        Ok(_) => Ok(true),
        Err(DeviceError::BadSignature) => Ok(false),
        Err(error) => Err(OpenError::Key(error)),
    }
}

impl Question {
    /// What the signers say, up to the first that says something wrong, and our attributes of the first.
    /// `signed` borrows from `source`; `recipients` is the digest of the envelope around, if there is one.
    #[allow(clippy::type_complexity, reason = "a list of what is either a claim or its error")]
    pub(super) fn claims<'a>(
        &self,
        signed: &SignedData<'a>,
        source: &Bytes,
        recipients: Option<&[u8; 32]>,
    ) -> (std::vec::IntoIter<Result<(Verification, Claim), SignedError>>, Option<Ours<'a>>) {
        let mut claims = Vec::with_capacity(signed.signers.len());
        let mut first: Option<Ours<'a>> = None;
        for signer in &signed.signers {
            let claim = self.claim(signed, signer, source, recipients, &mut first).map_err(SignedError::Early);
            let wrong = claim.is_err();
            claims.push(claim);
            if wrong {
                break;
            }
        }
        (claims.into_iter(), first)
    }

    fn claim<'a>(
        &self,
        signed: &SignedData<'a>,
        signer: &SignerInfo<'a>,
        source: &Bytes,
        recipients: Option<&[u8; 32]>,
        first: &mut Option<Ours<'a>>,
    ) -> Result<(Verification, Claim), OpenError> {
        let (attributes, fits, known, verification) = match &self.decoy {
            None => {
                let attributes = self.signed_attributes(signed, signer)?;
                let known = self.cache.signer(&self.ring, &signer.name, signed)?;
                let verification = Verification::of(&known.certificate, signer).ok_or(BAD_SIGNATURE)?;
                (attributes, Ok(()), known, verification)
            }
            Some(decoy) => self.claim_under_cbc(decoy, signed, signer)?,
        };
        let others = || signed.certificates.iter().filter(|der| **der != known.certificate.der());
        let hints = Hints::of(others().copied());
        let judged_at = self.judged_at(&attributes.ours)?;
        let is_believed = known.is_believed(hints, self.policy.revocation, judged_at, self.now);
        let claim = Claim {
            root: None,
            judged_at,
            others: if is_believed { Vec::new() } else { others().map(|der| source.slice_ref(der)).collect() },
            hints,
            vouched: self.vouch(&known.certificate, signed, signer, &attributes, recipients).and(fits),
            names_certificate: attributes.signing_certificate.is_some(),
            same_statement: *first.get_or_insert(attributes.ours) == attributes.ours,
            signing_time: attributes.time().map_err(OpenError::from),
            known,
        };
        Ok((verification, claim))
    }

    /// What the one signer of a batch says of one of its messages. Each message is judged by itself: of the root it is
    /// known at most that its signature is good.
    pub(super) fn batch_claim(
        &self,
        batch: &BatchSigned<'_>,
        source: &Bytes,
        recipients: Option<&[u8; 32]>,
    ) -> Result<(Verification, Claim), OpenError> {
        let before = self.cache.tree(batch);
        let KnownTree { root, mut ascent } = before.unwrap_or_else(|| KnownTree::first(batch));
        let attributes = self.batch_attributes(batch, &mut ascent)?;
        let signed = &batch.signed;
        let signer = signed.signers.first().ok_or(OpenError::Unsigned)?;
        let known = self.cache.signer(&self.ring, &signer.name, signed)?;
        let verification = if self.cache.knows_root(&root, known.certificate.fingerprint()) {
            self.cache.remember_tree(batch, KnownTree { root, ascent });
            Verification::Known
        } else {
            Verification::of(&known.certificate, signer).ok_or(BAD_SIGNATURE)?
        };
        let others = || signed.certificates.iter().filter(|der| **der != known.certificate.der());
        let hints = Hints::of(others().copied());
        let judged_at = self.judged_at(&attributes.ours)?;
        let is_believed = known.is_believed(hints, self.policy.revocation, judged_at, self.now);
        let vouched = self
            .vouch_for_binding(&attributes, recipients)
            // Only this project makes roots, and gives each both attributes.
            .and_then(|()| vouch_for_signer(&known.certificate, signed, signer, true));
        let claim = Claim {
            root: Some(root),
            judged_at,
            others: if is_believed { Vec::new() } else { others().map(|der| source.slice_ref(der)).collect() },
            hints,
            vouched,
            names_certificate: true,
            same_statement: true,
            signing_time: attributes.time().map_err(OpenError::from),
            known,
        };
        Ok((verification, claim))
    }

    /// The same without a look at the message's certificates, and on to the verification whatever does not fit: where
    /// it would have stopped shows by the clock.
    #[allow(clippy::type_complexity, reason = "four parts of one claim")]
    fn claim_under_cbc<'a>(
        &self,
        decoy: &Decoy,
        signed: &SignedData<'a>,
        signer: &SignerInfo<'a>,
    ) -> Result<(Attributes<'a>, Result<(), SignedError>, KnownSigner, Verification), OpenError> {
        let digest = self.policy.sign.unwrap_or(signer.digest);
        let attributes = signer.attributes;
        let hash = digest.hash(signed.payload);
        let certificate = decoy.signer(&signer.name).ok_or(BAD_SIGNATURE)?;
        let fits = decoy::is_in_range(certificate, signer.signature)
            && signer.digest == digest
            && attributes.check_content_type(crate::oid::ID_DATA).is_ok()
            && attributes.digest().is_ok_and(|said| *said == *hash);
        // A good signature is verified faster than a bad one.
        let signature = if fits { signer.signature } else { &decoy.signature };
        let verification = Verification::of(certificate, &SignerInfo { signature, ..*signer }).ok_or(BAD_SIGNATURE)?;
        if matches!(verification, Verification::Here(_)) {
            return Err(BAD_SIGNATURE);
        }
        let fits = if fits { Ok(()) } else { Err(SignedError::Unproved(BAD_SIGNATURE)) };
        Ok((attributes, fits, self.cache.signer_in_ring(&self.ring, certificate), verification))
    }

    /// What the signed attributes say about the signature itself.
    fn vouch(
        &self,
        certificate: &Certificate,
        signed: &SignedData<'_>,
        signer: &SignerInfo<'_>,
        attributes: &Attributes<'_>,
        recipients: Option<&[u8; 32]>,
    ) -> Result<(), SignedError> {
        let bound = self.is_bound(&attributes.ours);
        if bound && attributes.ours.binding.is_none() {
            return Err(SignedError::Late(OpenError::Unbound));
        }
        vouch_for_signer(certificate, signed, signer, bound)?;
        self.vouch_for_recipients(attributes, recipients)
    }

    fn vouch_for_binding(&self, attributes: &Attributes<'_>, recipients: Option<&[u8; 32]>) -> Result<(), SignedError> {
        if self.is_bound(&attributes.ours) && attributes.ours.binding.is_none() {
            return Err(SignedError::Late(OpenError::Unbound));
        }
        self.vouch_for_recipients(attributes, recipients)
    }

    fn vouch_for_recipients(
        &self,
        attributes: &Attributes<'_>,
        recipients: Option<&[u8; 32]>,
    ) -> Result<(), SignedError> {
        match recipients {
            Some(digest) => self.check_recipients(&attributes.ours, digest).map_err(SignedError::Unproved),
            None => Ok(()),
        }
    }
}

/// Whether the attributes name the algorithms and the certificates that are there. `required` says that they must.
fn vouch_for_signer(
    certificate: &Certificate,
    signed: &SignedData<'_>,
    signer: &SignerInfo<'_>,
    required: bool,
) -> Result<(), SignedError> {
    let unproved = |error| Err(SignedError::Unproved(error));
    match signer.attributes.algorithm_protection {
        Some(value) if value == algorithm_protection(signer.digest_identifier, signer.algorithm) => {}
        Some(_) => return unproved(OpenError::Tampered { what: "the algorithm protection attribute" }),
        None if required => return unproved(Malformed("a bound message without algorithm protection").into()),
        None => {}
    }
    match signer.attributes.signing_certificate {
        Some(value) => {
            let all = required.then_some(signed.certificates.as_slice());
            check_signing_certificate(value, certificate, all).map_err(SignedError::Unproved)
        }
        None if required => unproved(Malformed("a bound message without a signing certificate attribute").into()),
        None => Ok(()),
    }
}

impl Verification {
    /// How to verify this signature; `None` when key and algorithm disagree.
    fn of(certificate: &Certificate, signer: &SignerInfo<'_>) -> Option<Verification> {
        let (kind, digest, hash) = (signer.kind, signer.digest, signer.signed_hash());
        let signature = signer.signature.to_vec();
        let rsa = |key: &PublicKey, scheme, signature| {
            Verification::Device(key.clone(), Work::RsaVerify { scheme, digest, hash, signature })
        };
        match (kind, certificate.key_kind(), certificate.device_key()) {
            (SignatureKind::RsaPkcs1, certificate::KeyKind::Rsa, Some(key)) => {
                Some(rsa(key, RsaScheme::Pkcs1, signature))
            }
            (SignatureKind::RsaPss { salt_len }, certificate::KeyKind::Rsa, Some(key))
                if usize::from(salt_len) == digest.hash_len() =>
            {
                Some(rsa(key, RsaScheme::Pss, signature))
            }
            (SignatureKind::Ecdsa, certificate::KeyKind::Ec(_), Some(key)) => {
                Some(Verification::Device(key.clone(), Work::EcdsaVerify { hash, signature }))
            }
            (SignatureKind::MlDsa(set), certificate::KeyKind::MlDsa(own), Some(key)) if set == own => {
                let message = signer.signed_attributes();
                Some(Verification::Device(key.clone(), Work::MlDsaVerify { message, signature }))
            }
            (SignatureKind::RsaPkcs1 | SignatureKind::RsaPss { .. }, certificate::KeyKind::Rsa, _)
            | (SignatureKind::Ecdsa, certificate::KeyKind::Ec(_), None) => {
                Some(Verification::Here(Foreign { kind, digest, hash, signature }))
            }
            _ => None,
        }
    }
}

impl Foreign {
    /// Verifies it on this thread.
    fn is_good(&self, certificate: &Certificate) -> Result<bool, ErrorStack> {
        let mut context = PkeyCtx::new(certificate.public_key())?;
        context.verify_init()?;
        match self.kind {
            SignatureKind::RsaPkcs1 => {
                context.set_rsa_padding(Padding::PKCS1)?;
                context.set_signature_md(self.digest.md())?;
            }
            SignatureKind::RsaPss { salt_len } => {
                context.set_rsa_padding(Padding::PKCS1_PSS)?;
                context.set_signature_md(self.digest.md())?;
                context.set_rsa_mgf1_md(self.digest.md())?;
                context.set_rsa_pss_saltlen(RsaPssSaltlen::custom(i32::from(salt_len)))?;
            }
            // With ML-DSA nothing comes here.
            SignatureKind::Ecdsa | SignatureKind::MlDsa(_) => {}
        }
        // A refused signature and an unreadable one are the same here; the library's words are dropped.
        let good = matches!(context.verify(&self.hash, &self.signature), Ok(true));
        drop(ErrorStack::get());
        Ok(good)
    }
}
