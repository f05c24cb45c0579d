//! Sealing: content in, a CMS message bound to its place out.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulla_device::{DeviceError, Output, Random};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::batch::{self, BatchKey, By, Leaf, Proof, own_signature};
use crate::certificate::{Certificate, CertificateError, KeyKind, Strength, Usage};
use crate::cms::attributes::{self, AttributeWriter, CONTENT_TYPE_ATTRIBUTE_BYTES, RECIPIENTS_ATTRIBUTE_BYTES};
use crate::cms::batch::{BatchLayout, Branch};
use crate::cms::enveloped::{EnvelopeLayout, RecipientKinds, recipient_set};
use crate::cms::signed::SignedLayout;
use crate::cms::writer::Writer;
use crate::dn::Dn;
use crate::effort::Tally;
use crate::error::SealError;
use crate::message::{
    Bound, CONTENT_TYPE_BYTES_MAX, Content, DESTINATION_BYTES_MAX, MESSAGE_ID_BYTES_MAX, SEALED_BY_BYTES_MAX, Sealed,
};
use crate::oid;
use crate::on_behalf::OnBehalfOf;
use crate::policy::{ContentCipher, KeyReuse, KeyTransport, Policy, Pqc, Quality, SealedAt};
use crate::ring::Ring;
use crate::signer::Signer;
use crate::step::Step;
use crate::symmetric::CONTENT_BYTES_MAX;

mod content_key;
mod wrap;

pub use content_key::{CONTENT_KEY_AGE_MAX, CONTENT_KEY_BYTES_MAX, CONTENT_KEY_MESSAGES_MAX, POOLED_CONTENT_KEYS_MAX};
use content_key::{ContentKey, Iv, Pool, Terms};
use wrap::{Recipient, Wrapping};

/// For so long a recipient's or signer's certificate counts as checked, if its own dates allow.
const PARTIES_AGE_MAX: Duration = Duration::from_secs(60);

/// Seals the messages of one handle (a link that puts), many at a time. It owns the content keys that
/// KEYREUSE lets several messages share, and never lets another handle have them. A message that finds no
/// live key makes one for itself, and leaves it to those that come after.
pub struct Sealer {
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    sealed_by: Option<String>,
    parties: Parties,
    pool: Pool,
}

impl Sealer {
    /// Finds the keys that the policy needs. `sealed_by` names the queue manager when it seals for an
    /// application, and is bound to each message.
    ///
    /// # Errors
    /// [`SealError`] when the policy cannot be satisfied with this ring at this time.
    pub fn new(
        policy: Arc<Policy>,
        ring: Arc<Ring>,
        sealed_by: Option<String>,
        now: SystemTime,
    ) -> Result<Sealer, SealError> {
        policy.check()?;
        policy.check_signers()?;
        if policy.quality() == Quality::None {
            return Err(SealError::NothingToSeal);
        }
        if let Some(name) = &sealed_by {
            if policy.sealed_at == SealedAt::Client {
                return Err(SealError::ClientMustSeal);
            }
            check_len("the sealing queue manager's name", name.len(), SEALED_BY_BYTES_MAX)?;
        }
        let parties = Parties::find(&policy, &ring, now)?;
        Ok(Sealer { policy, ring, sealed_by, parties, pool: Pool::default() })
    }

    /// Whether this sealer still stands for the policy and ring in force. When not, the caller makes a
    /// new one, and the old content key is gone. Two compares, once a message.
    pub fn is_for(&self, policy: &Arc<Policy>, ring: &Arc<Ring>) -> bool {
        Arc::ptr_eq(&self.policy, policy) && self.ring.generation() == ring.generation()
    }

    /// The certificate of the key that signs; none where nothing is signed.
    pub fn signer(&self) -> Option<&Certificate> {
        self.parties.signer.as_ref().map(|signer| &signer.certificate)
    }

    /// Who can open what it seals, as [`recipients`](crate::recipients) names them, sorted.
    pub fn recipients(&self) -> &Arc<[Bytes]> {
        &self.parties.names
    }

    /// What it seals by.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Whether the next message needs no key of its own: it is then sealed in a few microseconds, and
    /// [`Sealer::seal`] is done at once.
    pub fn has_live_key(&self, now: SystemTime) -> bool {
        self.parties.are_fresh(now) && self.pool.has_live(now)
    }

    /// Bytes of the sealed message, before any key is used. Exact with RSA signatures and without
    /// signatures; with an ECDSA signature the most that it can be, because the DER of such a
    /// signature is shorter when its numbers are small (by three bytes at the most, as a rule). Under SIGNBATCH the
    /// most that it can be, too: in the last place of a full batch, or alone, whichever is longer.
    pub fn sealed_len(&self, content: &Content, bound: &Bound) -> usize {
        // Any moment will do: the length of a signing time changes in 2050.
        self.sealed_len_at(content, bound, self.parties.found_at)
    }

    fn sealed_len_at(&self, content: &Content, bound: &Bound, now: SystemTime) -> usize {
        let payload_len = content.bytes.len();
        let Some(signer) = &self.parties.signer else {
            return self.envelope_len(self.outer_attributes_len(content, bound), payload_len);
        };
        let recipients = if self.policy.encrypt.is_some() { RECIPIENTS_ATTRIBUTE_BYTES } else { 0 };
        let said = self.our_attributes_len(content, bound) + recipients + signer.statement_len(oid::ID_DATA, now);
        let alone_len = said + signer.credentials_len();
        let alone = signer.layout(oid::ID_DATA, alone_len, signer.signature_len, payload_len).len();
        let signed_len = match self.policy.sign_batch {
            0 | 1 => alone,
            most => alone.max(batch::longest(signer, most, said, payload_len, now)),
        };
        match self.policy.encrypt {
            None => signed_len,
            Some(_) => self.envelope_len(0, signed_len),
        }
    }

    /// Refuses a message that would be longer than `max` bytes once sealed, before any key is used.
    ///
    /// # Errors
    /// [`SealError::MessageTooLong`], reason code 2030.
    pub fn check_len(&self, content: &Content, bound: &Bound, max: usize) -> Result<(), SealError> {
        let len = self.sealed_len(content, bound);
        if len > max { Err(SealError::MessageTooLong { len, max }) } else { Ok(()) }
    }

    fn our_attributes_len(&self, content: &Content, bound: &Bound) -> usize {
        attributes::binding_len(bound, self.sealed_by.as_deref()) + attributes::content_len(content)
    }

    /// Bytes of the attributes of an envelope without a signature inside. An unbound one (AES-CBC alone)
    /// keeps only the content attribute, and no signature vouches for that.
    fn outer_attributes_len(&self, content: &Content, bound: &Bound) -> usize {
        if self.policy.encrypt.is_some_and(ContentCipher::is_authenticated) {
            CONTENT_TYPE_ATTRIBUTE_BYTES + self.our_attributes_len(content, bound) + RECIPIENTS_ATTRIBUTE_BYTES
        } else {
            attributes::content_len(content)
        }
    }

    fn envelope_len(&self, attributes_len: usize, plaintext_len: usize) -> usize {
        let Some(cipher) = self.policy.encrypt else { return plaintext_len };
        EnvelopeLayout {
            cipher,
            recipients: &self.parties.recipients_size,
            kinds: self.parties.kinds,
            attributes_len,
            plaintext_len,
        }
        .len()
    }

    /// Seals one message. A device wraps each new content key, for one recipient after the other, and
    /// makes the signature; with a live content key (see [`Sealer::has_live_key`]) Confidentiality is done
    /// at once, in a few microseconds: one read of the system's randomness, one encryption, one buffer.
    ///
    /// # Errors
    /// [`SealError`]; nothing of the message exists then.
    pub fn seal(
        &mut self,
        content: Content,
        bound: &Bound,
        now: SystemTime,
        rng: &mut dyn Random,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        self.seal_counting(content, bound, now, rng, &Tally::default())
    }

    /// Like [`Sealer::seal`], and counts in `tally` what it takes, also where it fails.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn seal_counting(
        &mut self,
        content: Content,
        bound: &Bound,
        now: SystemTime,
        rng: &mut dyn Random,
        tally: &Tally,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        self.seal_for(content, bound, None, Means { now, rng, tally })
    }

    /// Like [`Sealer::seal_counting`], of a message that was sealed before: it says on whose behalf, where anything of
    /// it is signed or authenticated. Its predicted length does not count that.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn reseal_counting(
        &mut self,
        content: Content,
        bound: &Bound,
        on_behalf_of: &OnBehalfOf,
        now: SystemTime,
        rng: &mut dyn Random,
        tally: &Tally,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        self.seal_for(content, bound, Some(on_behalf_of), Means { now, rng, tally })
    }

    fn seal_for(
        &mut self,
        content: Content,
        bound: &Bound,
        on_behalf_of: Option<&OnBehalfOf>,
        means: Means<'_>,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        let Means { now, tally, .. } = means;
        tally.bytes_in(content.bytes.len());
        check_limits(&content, bound)?;
        if !self.parties.are_fresh(now) {
            self.pool.renew();
            self.parties = Parties::find(&self.policy, &self.ring, now)?;
        }
        let mut set = AttributeWriter::new();
        if self.policy.can_bind() {
            attributes::write_content_type(&mut set);
            attributes::write_binding(&mut set, self.policy.quality(), bound, self.sealed_by.as_deref());
            attributes::write_on_behalf_of(&mut set, on_behalf_of);
        }
        attributes::write_content(&mut set, &content);
        match (self.parties.signer.clone(), self.policy.encrypt) {
            (None, None) => Err(SealError::NothingToSeal),
            (None, Some(cipher)) => self.seal_confidential(cipher, content, set, means),
            (Some(signer), None) => {
                let signing = Signing { signer, batch: self.batch(), now, tally: tally.clone() };
                Ok(signing.sign(set, content.bytes, |message| {
                    let mut out = Writer::with_capacity(message.len());
                    message.write(&mut out);
                    let smime_type = message.smime_type();
                    Ok(Sealed { der: Bytes::from(out.finish()), smime_type, recipients: None })
                }))
            }
            (Some(signer), Some(cipher)) => self.seal_private(signer, cipher, content, set, means),
        }
    }

    /// Hot path with a reused key: then no job.
    fn seal_confidential(
        &self,
        cipher: ContentCipher,
        content: Content,
        set: AttributeWriter,
        Means { now, rng, tally }: Means<'_>,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        let len = content.bytes.len() as u64;
        let counted = tally.clone();
        let seal = move |mut key: ContentKey, iv: &Iv, pool: &Pool| {
            let mut set = set;
            if cipher.is_authenticated() {
                attributes::write_recipients(&mut set, key.recipients_digest());
            }
            let sealed = key.envelope(iv, &set.sorted(), &content.bytes)?;
            counted.bytes_out(sealed.der.len());
            key.count(len);
            pool.give_back(key);
            Ok(Step::Done(sealed))
        };
        if let Some(mut key) = self.pool.take(now, len) {
            let iv = key.next_iv(rng)?;
            return seal(key, &iv, &self.pool);
        }
        let iv = Iv::first(cipher, rng)?;
        let pool = self.pool.clone();
        self.fresh_key(cipher, self.policy.key_reuse, Means { now, rng, tally }, move |key| seal(key, &iv, &pool))
    }

    /// The content key is wrapped before the signature is made, because the signature covers the set
    /// of recipients; it is used after, because the envelope covers the signature.
    fn seal_private(
        &self,
        signer: Arc<Signer>,
        cipher: ContentCipher,
        content: Content,
        mut set: AttributeWriter,
        Means { now, rng, tally }: Means<'_>,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        let iv = Iv::first(cipher, rng)?;
        // What is said is signed, and stands inside alone; the signer adds its own.
        let signing = Signing { signer, batch: self.batch(), now, tally: tally.clone() };
        self.fresh_key(cipher, KeyReuse::Never, Means { now, rng, tally }, move |mut key| {
            attributes::write_recipients(&mut set, key.recipients_digest());
            Ok(signing.sign(set, content.bytes, move |message| key.envelope(&iv, &[], message)))
        })
    }

    /// With which messages one of this sealer's may share its signature; none where each has its own.
    fn batch(&self) -> Option<BatchKey> {
        let signer = self.parties.signer.as_ref().filter(|_| self.policy.sign_batch > 1)?;
        Some(BatchKey::new(&self.policy, self.ring.generation(), signer))
    }

    /// A content key of this message's own, wrapped for everyone.
    fn fresh_key(
        &self,
        cipher: ContentCipher,
        reuse: KeyReuse,
        Means { now, rng, tally }: Means<'_>,
        then: impl FnOnce(ContentKey) -> Result<Step<Sealed, SealError>, SealError> + Send + 'static,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        let mut key = Zeroizing::new(vec![0; cipher.key_len()]);
        rng.fill(&mut key)?;
        tally.content_key();
        let kinds = self.parties.kinds;
        let terms = Terms { cipher, reuse, kinds, born: now, epoch: self.pool.epoch() };
        let key = Output::new(std::mem::take(&mut *key));
        let names = Arc::clone(&self.parties.names);
        Wrapping::start(key, Arc::clone(&self.parties.recipients), tally.clone(), move |key, recipients| {
            then(ContentKey::new(key, recipients, names, terms)?)
        })
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Sealer({}, {})", self.policy.name, self.ring.user())
    }
}

/// What sealing takes from outside.
struct Means<'a> {
    now: SystemTime,
    rng: &'a mut dyn Random,
    tally: &'a Tally,
}

fn check_limits(content: &Content, bound: &Bound) -> Result<(), SealError> {
    check_len("the content", content.bytes.len(), CONTENT_BYTES_MAX)?;
    check_len("the destination", bound.destination.len(), DESTINATION_BYTES_MAX)?;
    check_len("the message id", bound.message_id.len(), MESSAGE_ID_BYTES_MAX)?;
    check_len("the content-type", content.content_type.as_ref().map_or(0, String::len), CONTENT_TYPE_BYTES_MAX)
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<(), SealError> {
    if len > max { Err(SealError::TooLong { what, len, max }) } else { Ok(()) }
}

/// Who signs and who can open, found in the ring and checked.
struct Parties {
    signer: Option<Arc<Signer>>,
    recipients: Arc<[Recipient]>,
    /// Their names, sorted.
    names: Arc<[Bytes]>,
    kinds: RecipientKinds,
    /// Recipient infos as long as real ones, for the size predictor.
    recipients_size: Vec<u8>,
    found_at: SystemTime,
    good_until: SystemTime,
}

impl Parties {
    fn find(policy: &Policy, ring: &Ring, now: SystemTime) -> Result<Parties, SealError> {
        let mut good_until = now.checked_add(PARTIES_AGE_MAX).unwrap_or(now);
        let signer = match policy.sign {
            Some(digest) => {
                let own = Signer::choose(ring, policy, digest, now)?;
                good_until = good_until.min(own.certificate.not_after());
                Some(Arc::new(Signer::new(own, policy.signature_scheme, digest)))
            }
            None => None,
        };
        let mut recipients = Vec::with_capacity(policy.recipients.len());
        let mut infos = Vec::new();
        if let Some(cipher) = policy.encrypt {
            for dn in &policy.recipients {
                let certificate = recipient_of(policy, ring, dn, now)?;
                good_until = good_until.min(certificate.not_after());
                let recipient = Recipient::new(certificate, policy.key_transport, cipher)?;
                infos.push(recipient.info_of_size());
                recipients.push(recipient);
            }
        }
        let recipients_size = recipient_set(infos);
        let kinds = recipients.iter().map(Recipient::kinds).max().unwrap_or_default();
        let mut names: Vec<Bytes> = recipients.iter().map(|one| Bytes::copy_from_slice(one.name())).collect();
        names.sort_unstable();
        let (recipients, names) = (recipients.into(), names.into());
        Ok(Parties { signer, recipients, names, kinds, recipients_size, found_at: now, good_until })
    }

    /// A clock that was set back makes the finding stale too.
    fn are_fresh(&self, now: SystemTime) -> bool {
        self.found_at <= now && now <= self.good_until
    }
}

/// The certificate that a policy's recipient is written to: of a kind that PQC allows, and under PQC(ALLOWED) a
/// post-quantum one where there is one.
///
/// # Errors
/// [`SealError::Certificate`], or [`SealError::RecipientKey`] where there is one of the other kind alone.
pub fn recipient_of<'a>(
    policy: &Policy,
    ring: &'a Ring,
    dn: &Dn,
    now: SystemTime,
) -> Result<&'a Certificate, SealError> {
    let usage = recipient_usage(policy);
    let of_kind = |fit: &dyn Fn(KeyKind) -> bool| ring.recipient_where(dn, usage, policy.revocation, now, fit);
    let is_ml_kem = |kind| matches!(kind, KeyKind::MlKem(_));
    let is_classical = |kind: KeyKind| !kind.is_post_quantum();
    let is_either = |kind| is_ml_kem(kind) || is_classical(kind);
    let fits = takes_ml_kem(policy);
    let signs_alone = || {
        let found = of_kind(&|kind| matches!(kind, KeyKind::MlDsa(_)));
        found.is_err_and(|error| !matches!(error, CertificateError::Unknown { .. }))
    };
    let found = match policy.pqc {
        Pqc::None => of_kind(&is_classical),
        Pqc::Required => of_kind(&is_ml_kem),
        Pqc::Allowed if fits => of_kind(&is_ml_kem).or_else(|_| of_kind(&is_either)),
        Pqc::Allowed => of_kind(&is_classical).or_else(|_| of_kind(&is_either)),
    };
    found.map_err(|error| match (&error, policy.pqc) {
        // There is one, but of the other kind: say so.
        (CertificateError::Unknown { .. }, pqc) if of_kind(&is_either).is_ok() => {
            let why = match pqc {
                Pqc::Required => "PQC(REQUIRED) needs an ML-KEM key",
                _ => "PQC(NONE) needs an RSA or EC key; PQC(ALLOWED) takes this one",
            };
            SealError::RecipientKey { dn: dn.clone(), why }
        }
        // Nor is one unknown who has a key that signs, and none to encrypt for.
        (CertificateError::Unknown { .. }, pqc) if signs_alone() => {
            let why = match pqc {
                Pqc::Required => "PQC(REQUIRED) needs an ML-KEM key beside the ML-DSA key, which signs alone",
                _ => "an ML-DSA key signs alone: it takes another key beside it",
            };
            SealError::RecipientKey { dn: dn.clone(), why }
        }
        _ => error.into(),
    })
}

/// The certificate by which the owner of a ring signs under a policy in that name.
///
/// # Errors
/// As [`Sealer::new`] has them; [`CertificateError::NoOwnKey`] where the ring has no key of that name.
pub fn signer_of<'a>(policy: &Policy, ring: &'a Ring, dn: &Dn, now: SystemTime) -> Result<&'a Certificate, SealError> {
    let absent = || CertificateError::NoOwnKey { user: ring.user().to_owned() };
    let digest = policy.sign.ok_or(SealError::NothingToSeal)?;
    if !ring.own().iter().any(|own| own.certificate.dn() == dn) {
        return Err(absent().into());
    }
    let alone = Policy { signers: vec![dn.clone()], ..policy.clone() };
    let certificate = &Signer::choose(ring, &alone, digest, now)?.certificate;
    if certificate.dn() == dn { Ok(certificate) } else { Err(absent().into()) }
}

/// What a recipient's certificate must be good for.
fn recipient_usage(policy: &Policy) -> Usage {
    if policy.sign.is_some() { Usage::KeyTransport } else { Usage::DataEncipherment }
}

/// Whether ML-KEM goes with the rest of the policy: it goes with neither AES-128 nor RSA-OAEP. Under ALLOWED another
/// key will do then.
fn takes_ml_kem(policy: &Policy) -> bool {
    policy.key_transport != KeyTransport::Oaep && policy.encrypt.is_none_or(|cipher| cipher.key_len() == 32)
}

/// The key by which messages of a policy are opened most easily, as far as the certificates in these rings say: of each
/// recipient the one that sealing with the ring would take, and of all of these an RSA or EC key before ML-KEM, a
/// shorter one before a longer. Each recipient opens a message alone, so it is as strong as that.
///
/// No path is proved and no revocation list is asked: it costs a look at each recipient's certificates in each ring.
pub fn weakest_recipient<'a>(
    policy: &Policy,
    rings: impl IntoIterator<Item = &'a Ring>,
    now: SystemTime,
) -> Option<&'a Certificate> {
    let (usage, ml_kem_first) = (recipient_usage(policy), takes_ml_kem(policy));
    let chosen = rings.into_iter().flat_map(|ring| {
        policy.recipients.iter().filter_map(move |dn| {
            let is_good = |one: &&Certificate| {
                let fits = policy.pqc.allows(one.key_kind()) && one.check_dates(now).is_ok();
                fits && one.check_usage(usage.for_recipient(one.key_kind())).is_ok()
            };
            let order = |one: &&Certificate| (one.key_kind().is_post_quantum() == ml_kem_first, one.not_before());
            ring.named(dn).filter(is_good).max_by_key(order)
        })
    });
    chosen.min_by_key(|one| {
        let strength = Strength::of(one.key_kind(), one.key_bits()).map_or(0, |strength| strength.bits);
        (one.key_kind().is_post_quantum(), strength, one.key_bits())
    })
}

/// What an envelope closes around.
trait Plaintext {
    fn len(&self) -> usize;
    fn write(&self, out: &mut Writer);
}

impl Plaintext for Bytes {
    fn len(&self) -> usize {
        Bytes::len(self)
    }

    fn write(&self, out: &mut Writer) {
        out.raw(self);
    }
}

/// How a message is signed.
struct Signing {
    signer: Arc<Signer>,
    /// With which others, where it may be with others.
    batch: Option<BatchKey>,
    now: SystemTime,
    tally: Tally,
}

impl Signing {
    /// Says of the content what is signed, has it signed, and gives the signed message, ready to be written, to `then`.
    fn sign(
        self,
        mut set: AttributeWriter,
        payload: Bytes,
        then: impl FnOnce(&Signed<'_>) -> Result<Sealed, SealError> + Send + 'static,
    ) -> Step<Sealed, SealError> {
        let Signing { signer, batch, now, tally } = self;
        attributes::write_message_digest(&mut set, &signer.digest.hash(&payload));
        attributes::write_signing_time(&mut set, now);
        let ours = Arc::clone(&signer);
        let finish = move |proof: Result<Proof, DeviceError>| {
            let proof = proof.map_err(SealError::Key)?;
            if proof.is_paid {
                tally.sign();
            }
            let sealed = then(&Signed::new(&ours, &payload, &proof))?;
            tally.bytes_out(sealed.der.len());
            Ok(Step::Done(sealed))
        };
        match batch {
            Some(key) => Step::Leaf(Box::new(Leaf::new(key, signer, set, now)), Box::new(finish)),
            None => {
                let (job, prove) = own_signature(&signer, set);
                Step::Device(job, Box::new(move |result: Result<Output, DeviceError>| finish(prove(result))))
            }
        }
    }
}

/// A signed message of which every part is known. It is written where it is needed, once, and an
/// envelope encrypts it there: no copy of it has to be wiped.
struct Signed<'a> {
    layout: Layout<'a>,
    payload: &'a [u8],
    attributes: &'a [u8],
}

enum Layout<'a> {
    /// With a signature of its own.
    Alone(SignedLayout<'a>, &'a [u8]),
    /// With one that it shares.
    InBatch(BatchLayout, &'a Branch),
}

impl<'a> Signed<'a> {
    fn new(signer: &'a Signer, payload: &'a [u8], Proof { attributes, by, .. }: &'a Proof) -> Signed<'a> {
        let layout = match by {
            By::Signature(signature) => {
                let layout = signer.layout(oid::ID_DATA, attributes.len(), signature.len(), payload.len());
                Layout::Alone(layout, signature)
            }
            By::Branch(branch) => Layout::InBatch(
                BatchLayout {
                    attributes_len: attributes.len(),
                    payload_len: payload.len(),
                    index: branch.index,
                    hash_len: signer.digest.hash_len(),
                    path_len: branch.path.len(),
                    root_len: branch.root.len(),
                },
                branch,
            ),
        };
        Signed { layout, payload, attributes }
    }

    fn smime_type(&self) -> &'static str {
        match self.layout {
            Layout::Alone(..) => "signed-data",
            Layout::InBatch(..) => "x-bulla-batch-signed",
        }
    }
}

impl Plaintext for Signed<'_> {
    fn len(&self) -> usize {
        match &self.layout {
            Layout::Alone(layout, _) => layout.len(),
            Layout::InBatch(layout, _) => layout.len(),
        }
    }

    fn write(&self, out: &mut Writer) {
        match &self.layout {
            Layout::Alone(layout, signature) => layout.write(out, self.payload, self.attributes, signature),
            Layout::InBatch(layout, branch) => layout.write(out, self.attributes, self.payload, branch),
        }
    }
}
