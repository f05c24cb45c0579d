//! Sealing: content in, a CMS message bound to its place out.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulla_device::{Digest, Job, Output, PrivateKey, Random, RsaScheme, Work};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::certificate::{Certificate, KeyKind, Usage};
use crate::cms::algorithm::{digest_identifier, ecdsa_identifier, rsa_signature_identifier};
use crate::cms::attributes::{
    self, AttributeWriter, CONTENT_TYPE_ATTRIBUTE_BYTES, RECIPIENTS_ATTRIBUTE_BYTES, attribute_len,
};
use crate::cms::enveloped::{EnvelopeLayout, recipient_set};
use crate::cms::signed::SignedLayout;
use crate::cms::writer::{SET, Writer, element_len};
use crate::effort::Tally;
use crate::error::SealError;
use crate::message::{
    Bound, CONTENT_TYPE_BYTES_MAX, Content, DESTINATION_BYTES_MAX, MESSAGE_ID_BYTES_MAX, SEALED_BY_BYTES_MAX, Sealed,
};
use crate::oid;
use crate::on_behalf::OnBehalfOf;
use crate::policy::{ContentCipher, KeyReuse, Policy, Quality, SealedAt, SignatureScheme};
use crate::ring::{Own, Ring};
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

    /// Whether the next message needs no key of its own: it is then sealed in a few microseconds, and
    /// [`Sealer::seal`] is done at once.
    pub fn has_live_key(&self, now: SystemTime) -> bool {
        self.parties.are_fresh(now) && self.pool.has_live(now)
    }

    /// Bytes of the sealed message, before any key is used. Exact with RSA signatures and without
    /// signatures; with an ECDSA signature the most that it can be, because the DER of such a
    /// signature is shorter when its numbers are small (by three bytes at the most, as a rule).
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
        let attributes_len = self.our_attributes_len(content, bound) + recipients + signer.attributes_len(now);
        let signed_len = signer.layout(attributes_len, signer.signature_len, payload_len).len();
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
            agreement: self.parties.agreement,
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
            (Some(signer), None) => signer.sign(set, content.bytes, now, tally, |message| {
                let mut out = Writer::with_capacity(message.len());
                message.write(&mut out);
                Ok(Sealed { der: Bytes::from(out.finish()), smime_type: "signed-data", recipients: None })
            }),
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
        let counted = tally.clone();
        self.fresh_key(cipher, KeyReuse::Never, Means { now, rng, tally }, move |mut key| {
            attributes::write_recipients(&mut set, key.recipients_digest());
            signer.sign(set, content.bytes, now, &counted, move |message| key.envelope(&iv, &[], message))
        })
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
        let agreement = self.parties.agreement;
        let terms = Terms { cipher, reuse, agreement, born: now, epoch: self.pool.epoch() };
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
    /// Whether a recipient agrees on a key.
    agreement: bool,
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
            let usage = if policy.sign.is_some() { Usage::KeyTransport } else { Usage::DataEncipherment };
            for dn in &policy.recipients {
                let certificate = ring.recipient(dn, usage, policy.revocation, now)?;
                good_until = good_until.min(certificate.not_after());
                let recipient = Recipient::new(certificate, policy.key_transport, cipher)?;
                infos.push(recipient.info_of_size());
                recipients.push(recipient);
            }
        }
        let recipients_size = recipient_set(infos);
        let agreement = recipients.iter().any(Recipient::agrees);
        let mut names: Vec<Bytes> = recipients.iter().map(|one| Bytes::copy_from_slice(one.name())).collect();
        names.sort_unstable();
        let (recipients, names) = (recipients.into(), names.into());
        Ok(Parties { signer, recipients, names, agreement, recipients_size, found_at: now, good_until })
    }

    /// A clock that was set back makes the finding stale too.
    fn are_fresh(&self, now: SystemTime) -> bool {
        self.found_at <= now && now <= self.good_until
    }
}

/// A key with everything about it that stands in each message it signs.
struct Signer {
    certificate: Certificate,
    key: PrivateKey,
    work: SignatureWork,
    digest: Digest,
    digest_identifier: Vec<u8>,
    algorithm: Vec<u8>,
    name: Vec<u8>,
    certificates: Vec<u8>,
    protection: Vec<u8>,
    signing_certificate: Vec<u8>,
    signature_len: usize,
}

enum SignatureWork {
    Rsa(RsaScheme),
    Ecdsa,
}

impl Signer {
    /// The newest key whose signature of this scheme and digest exists.
    fn choose<'a>(ring: &'a Ring, policy: &Policy, digest: Digest, now: SystemTime) -> Result<&'a Own, SealError> {
        let fits = |own: &Own| {
            // RFC 8017, 9.1.1: two hashes and two bytes must fit into the modulus.
            policy.signature_scheme == SignatureScheme::Pkcs1
                || own.certificate.key_kind() != KeyKind::Rsa
                || (own.certificate.key_bits() as usize).div_ceil(8) >= 2 * Digest::hash_len(digest) + 2
        };
        // A ring may have keys of several names: where the policy lists one, no reader believes another.
        let is_wanted = |own: &Own| policy.signers.contains(own.certificate.dn()) && fits(own);
        if ring.own().iter().any(|own| is_wanted(own)) {
            return Ok(ring.signing_where(policy.revocation, now, is_wanted)?);
        }
        match ring.signing_where(policy.revocation, now, fits) {
            Ok(own) => Ok(own),
            // A key there is, but none that fits: say so.
            Err(error) => match ring.signing(policy.revocation, now) {
                Ok(own) => Err(SealError::SignatureDoesNotFit { bits: own.certificate.key_bits() }),
                Err(_) => Err(error.into()),
            },
        }
    }

    fn new(own: &Own, scheme: SignatureScheme, digest: Digest) -> Signer {
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

    /// Bytes of the attributes that are the signer's and not the message's.
    fn attributes_len(&self, now: SystemTime) -> usize {
        CONTENT_TYPE_ATTRIBUTE_BYTES
            + attribute_len(oid::MESSAGE_DIGEST, element_len(Digest::hash_len(self.digest)))
            + attributes::signing_time_len(now)
            + attribute_len(oid::ALGORITHM_PROTECTION, self.protection.len())
            + attribute_len(oid::SIGNING_CERTIFICATE_V2, self.signing_certificate.len())
    }

    fn layout(&self, attributes_len: usize, signature_len: usize, payload_len: usize) -> SignedLayout<'_> {
        SignedLayout {
            digest: &self.digest_identifier,
            certificates: &self.certificates,
            signer: &self.name,
            attributes_len,
            algorithm: &self.algorithm,
            signature_len,
            payload_len,
        }
    }

    /// Adds the signer's attributes to those of the message, hands the signature out, and gives the
    /// `SignedData`, ready to be written, to `then`.
    fn sign(
        self: &Arc<Signer>,
        mut set: AttributeWriter,
        payload: Bytes,
        now: SystemTime,
        tally: &Tally,
        then: impl FnOnce(&Signed<'_>) -> Result<Sealed, SealError> + Send + 'static,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        attributes::write_message_digest(&mut set, &self.digest.hash(&payload));
        attributes::write_signing_time(&mut set, now);
        set.push_raw(oid::ALGORITHM_PROTECTION, &self.protection);
        set.push_raw(oid::SIGNING_CERTIFICATE_V2, &self.signing_certificate);
        let attributes = set.sorted();
        let mut header = Writer::with_capacity(8);
        header.header(SET, attributes.len());
        let hash = self.digest.hash_parts(&[header.as_slice(), &attributes]);
        let work = match self.work {
            SignatureWork::Rsa(scheme) => Work::RsaSign { scheme, digest: self.digest, hash },
            SignatureWork::Ecdsa => Work::EcdsaSign { hash },
        };
        let job = Job::new(self.key.clone(), work);
        let signer = Arc::clone(self);
        let counted = tally.clone();
        let finish = move |result: Result<Output, _>| {
            let signature = result.map_err(SealError::Key)?;
            let layout = signer.layout(attributes.len(), signature.len(), payload.len());
            let message = Signed { layout, payload: &payload, attributes: &attributes, signature: &signature };
            let sealed = then(&message)?;
            counted.bytes_out(sealed.der.len());
            Ok(Step::Done(sealed))
        };
        Ok(tally.ask(job, finish))
    }
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

/// A signed message of which every part is known. It is written where it is needed, once, and an
/// envelope encrypts it there: no copy of it has to be wiped.
struct Signed<'a> {
    layout: SignedLayout<'a>,
    payload: &'a [u8],
    attributes: &'a [u8],
    signature: &'a [u8],
}

impl Plaintext for Signed<'_> {
    fn len(&self) -> usize {
        self.layout.len()
    }

    fn write(&self, out: &mut Writer) {
        self.layout.write(out, self.payload, self.attributes, self.signature);
    }
}
