//! Sealing: content in, a CMS message bound to its place out.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulla_device::{Digest, Job, Output, PrivateKey, Random, RsaPadding, RsaScheme, Work};
use bytes::Bytes;
use openssl::cipher_ctx::CipherCtx;
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::pkey::Public;
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::x509::X509KeyUsage;
use zeroize::Zeroizing;

use crate::certificate::{Certificate, Curve, KeyKind, Usage};
use crate::cms::algorithm::{
    AES_BLOCK_BYTES, GCM_NONCE_BYTES, GCM_TAG_BYTES, aes_wrap_identifier, agreement_identifier, digest_identifier,
    ecdsa_identifier, rsa_signature_identifier, rsa_wrap_identifier,
};
use crate::cms::attributes::{
    self, AttributeWriter, CONTENT_TYPE_ATTRIBUTE_BYTES, RECIPIENTS_ATTRIBUTE_BYTES, attribute_len, sha256,
};
use crate::cms::enveloped::{EnvelopeLayout, agreement_info, derive_key, recipient_set, shared_info, transport_info};
use crate::cms::signed::SignedLayout;
use crate::cms::writer::{SET, Writer, element_len};
use crate::error::SealError;
use crate::message::{
    Bound, CONTENT_TYPE_BYTES_MAX, Content, DESTINATION_BYTES_MAX, MESSAGE_ID_BYTES_MAX, SEALED_BY_BYTES_MAX, Sealed,
};
use crate::oid;
use crate::policy::{ContentCipher, KeyReuse, KeyTransport, Policy, Quality, SealedAt, SignatureScheme};
use crate::ring::{Own, Ring};
use crate::step::Step;
use crate::symmetric::{self, CONTENT_BYTES_MAX, WRAP_OVERHEAD_BYTES};

/// Messages under one content key, whatever KEYREUSE says.
pub const CONTENT_KEY_MESSAGES_MAX: u32 = 1 << 20;
/// Payload bytes under one content key.
pub const CONTENT_KEY_BYTES_MAX: u64 = 64 << 30;
/// Age of a content key.
pub const CONTENT_KEY_AGE_MAX: Duration = Duration::from_secs(3600);
/// For so long a recipient's or signer's certificate counts as checked, if its own dates allow.
const PARTIES_AGE_MAX: Duration = Duration::from_secs(60);

/// Seals the messages of one handle (a link that puts). It owns the content key that KEYREUSE lets
/// several messages share, and never lets another handle have it.
pub struct Sealer {
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    sealed_by: Option<String>,
    parties: Parties,
    content_key: Option<ContentKey>,
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
        Ok(Sealer { policy, ring, sealed_by, parties, content_key: None })
    }

    /// Whether this sealer still stands for the policy and ring in force. When not, the caller makes a
    /// new one, and the old content key is gone. Two compares, once a message.
    pub fn is_for(&self, policy: &Arc<Policy>, ring: &Arc<Ring>) -> bool {
        Arc::ptr_eq(&self.policy, policy) && self.ring.generation() == ring.generation()
    }

    /// Whether the next message needs no key of its own: it is then sealed in a few microseconds, and
    /// [`Sealer::seal`] is done at once.
    pub fn has_live_key(&self, now: SystemTime) -> bool {
        self.parties.are_fresh(now) && self.content_key.as_ref().is_some_and(|key| key.is_live(now, 0))
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
            Some(cipher) => {
                let outer = if cipher.is_authenticated() { self.outer_attributes_len(content, bound) } else { 0 };
                self.envelope_len(outer, signed_len)
            }
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

    /// Bytes of the attributes of the envelope. An unbound one (AES-CBC alone) keeps only the content
    /// attribute, and nobody vouches for that.
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
            agreement: self.parties.agreement(),
            attributes_len,
            plaintext_len,
        }
        .len()
    }

    /// Seals one message. Integrity and Privacy stop at the signature, which a device makes;
    /// Confidentiality is done at once, and with a live content key (see [`Sealer::has_live_key`]) it
    /// costs a few microseconds: one read of the system's randomness, one encryption, one buffer.
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
        check_limits(&content, bound)?;
        if !self.parties.are_fresh(now) {
            self.content_key = None;
            self.parties = Parties::find(&self.policy, &self.ring, now)?;
        }
        match (self.parties.signer.clone(), self.policy.encrypt) {
            (None, None) => Err(SealError::NothingToSeal),
            (None, Some(cipher)) => self.seal_confidential(cipher, &content, bound, now, rng).map(Step::Done),
            (Some(signer), None) => {
                let mut set = AttributeWriter::new();
                attributes::write_content_type(&mut set);
                attributes::write_binding(&mut set, Quality::Integrity, bound, self.sealed_by.as_deref());
                attributes::write_content(&mut set, &content);
                signer.sign(set, content.bytes, now, |message| {
                    let mut out = Writer::with_capacity(message.len());
                    message.write(&mut out);
                    Ok(Sealed { der: Bytes::from(out.finish()), smime_type: "signed-data" })
                })
            }
            (Some(signer), Some(cipher)) => self.seal_private(&signer, cipher, content, bound, now, rng),
        }
    }

    /// Hot path with a reused key.
    fn seal_confidential(
        &mut self,
        cipher: ContentCipher,
        content: &Content,
        bound: &Bound,
        now: SystemTime,
        rng: &mut dyn Random,
    ) -> Result<Sealed, SealError> {
        let len = content.bytes.len() as u64;
        let mut key = match self.content_key.take().filter(|key| key.is_live(now, len)) {
            Some(key) => key,
            None => ContentKey::fresh(cipher, self.policy.key_reuse, &mut self.parties, now, rng)?,
        };
        let mut set = AttributeWriter::new();
        if cipher.is_authenticated() {
            attributes::write_content_type(&mut set);
            attributes::write_binding(&mut set, Quality::Confidentiality, bound, self.sealed_by.as_deref());
            attributes::write_content(&mut set, content);
            attributes::write_recipients(&mut set, &key.recipients_digest);
        } else {
            attributes::write_content(&mut set, content);
        }
        let sealed = key.envelope(&set.sorted(), &content.bytes, rng)?;
        key.count(len);
        if self.policy.key_reuse != KeyReuse::Never {
            self.content_key = Some(key);
        }
        Ok(sealed)
    }

    /// The content key is wrapped before the signature is made, because the signature covers the set
    /// of recipients; it is used after, because the envelope covers the signature.
    fn seal_private(
        &mut self,
        signer: &Arc<Signer>,
        cipher: ContentCipher,
        content: Content,
        bound: &Bound,
        now: SystemTime,
        rng: &mut dyn Random,
    ) -> Result<Step<Sealed, SealError>, SealError> {
        let mut key = ContentKey::fresh(cipher, KeyReuse::Never, &mut self.parties, now, rng)?;
        let iv = key.next_iv(rng)?;
        let sealed_by = self.sealed_by.as_deref();
        // The same statements outside and inside; the signer adds its own.
        let mut set = AttributeWriter::new();
        attributes::write_content_type(&mut set);
        attributes::write_binding(&mut set, Quality::Privacy, bound, sealed_by);
        attributes::write_content(&mut set, &content);
        attributes::write_recipients(&mut set, &key.recipients_digest);
        let outer = if cipher.is_authenticated() { set.sorted() } else { Vec::new() };
        signer.sign(set, content.bytes, now, move |message| key.envelope_with(&iv, &outer, message))
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Sealer({}, {})", self.policy.name, self.ring.user())
    }
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
    recipients: Vec<Recipient>,
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
                let own = Signer::choose(ring, policy.signature_scheme, digest, now)?;
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
                let certificate = ring.recipient(dn, usage, now)?;
                good_until = good_until.min(certificate.not_after());
                let recipient = Recipient::new(certificate, policy.key_transport, cipher)?;
                infos.push(recipient.info_of_size());
                recipients.push(recipient);
            }
        }
        let recipients_size = recipient_set(infos);
        Ok(Parties { signer, recipients, recipients_size, found_at: now, good_until })
    }

    /// A clock that was set back makes the finding stale too.
    fn are_fresh(&self, now: SystemTime) -> bool {
        self.found_at <= now && now <= self.good_until
    }

    fn agreement(&self) -> bool {
        self.recipients.iter().any(|recipient| matches!(recipient.way, Way::Agreement { .. }))
    }

    /// A content key for everyone: `RecipientInfos`.
    fn wrap(&mut self, key: &[u8]) -> Result<Vec<u8>, SealError> {
        let infos: Result<Vec<_>, _> = self.recipients.iter_mut().map(|recipient| recipient.wrap(key)).collect();
        Ok(recipient_set(infos?))
    }
}

/// A recipient's key, ready to wrap.
struct Recipient {
    certificate: Certificate,
    algorithm: Vec<u8>,
    way: Way,
}

enum Way {
    Transport { context: PkeyCtx<Public>, len: usize },
    Agreement { group: EcGroup, peer: EcPoint, curve: bulla_device::Curve, kdf: Digest, wrap: Vec<u8>, wrap_len: usize },
}

impl Recipient {
    fn new(certificate: &Certificate, transport: KeyTransport, cipher: ContentCipher) -> Result<Recipient, SealError> {
        let refused = |why| SealError::RecipientKey { dn: certificate.dn().clone(), why };
        let (algorithm, way) = match (certificate.key_kind(), transport) {
            (KeyKind::Rsa, KeyTransport::Pkcs1) => {
                if !is_for_encryption_only(certificate) {
                    return Err(refused("KEYWRAP(PKCS1) needs a certificate that is for encryption and nothing else"));
                }
                rsa_way(certificate, RsaPadding::Pkcs1)?
            }
            (KeyKind::Rsa, KeyTransport::Auto | KeyTransport::Oaep) => {
                rsa_way(certificate, RsaPadding::Oaep { digest: Digest::Sha256 })?
            }
            (KeyKind::Ec(_), KeyTransport::Oaep) => {
                return Err(refused("KEYWRAP(OAEP) needs an RSA key, this one is elliptic"));
            }
            (KeyKind::Ec(curve), _) => {
                let kdf = if curve.bits() > 256 { Digest::Sha384 } else { Digest::Sha256 };
                let wrap_len = cipher.key_len();
                let wrap = aes_wrap_identifier(wrap_len);
                let group = EcGroup::from_curve_name(curve.nid())?;
                let peer = certificate.public_key().ec_key()?.public_key().to_owned(&group)?;
                let curve = device_curve(curve);
                let algorithm = agreement_identifier(kdf, &wrap);
                (algorithm, Way::Agreement { group, peer, curve, kdf, wrap, wrap_len })
            }
            (KeyKind::Other, _) => return Err(refused("its kind of key is not supported")),
        };
        Ok(Recipient { certificate: certificate.clone(), algorithm, way })
    }

    fn name(&self) -> &[u8] {
        self.certificate.issuer_and_serial()
    }

    /// As long as a real one.
    fn info_of_size(&self) -> Vec<u8> {
        match &self.way {
            Way::Transport { len, .. } => transport_info(self.name(), &self.algorithm, &vec![0; *len]),
            Way::Agreement { curve, wrap_len, .. } => {
                let point = vec![0; curve.point_len()];
                agreement_info(self.name(), &self.algorithm, &point, &vec![0; wrap_len + WRAP_OVERHEAD_BYTES])
            }
        }
    }

    /// Its recipient info for this key: one public-key operation, or an ephemeral key and one
    /// derivation.
    fn wrap(&mut self, key: &[u8]) -> Result<Vec<u8>, SealError> {
        match &mut self.way {
            Way::Transport { context, len } => {
                let mut encrypted = vec![0; *len];
                let written = context.encrypt(key, Some(&mut encrypted))?;
                encrypted.truncate(written);
                Ok(transport_info(self.certificate.issuer_and_serial(), &self.algorithm, &encrypted))
            }
            Way::Agreement { group, peer, curve, kdf, wrap, wrap_len } => {
                let ephemeral = EcKey::generate(group)?;
                let secret = curve.agree(&ephemeral, peer).map_err(SealError::Key)?;
                let shared = shared_info(wrap, None, *wrap_len);
                let wrapping = derive_key(*kdf, &secret, &shared, *wrap_len);
                let encrypted = symmetric::wrap_key(&wrapping, key)?;
                let point = bulla_device::Curve::point_of(&ephemeral).map_err(SealError::Key)?;
                Ok(agreement_info(self.certificate.issuer_and_serial(), &self.algorithm, &point, &encrypted))
            }
        }
    }
}

fn rsa_way(certificate: &Certificate, padding: RsaPadding) -> Result<(Vec<u8>, Way), SealError> {
    let key = certificate.public_key();
    let mut context = PkeyCtx::new(key)?;
    context.encrypt_init()?;
    match padding {
        RsaPadding::Oaep { digest } => {
            context.set_rsa_padding(Padding::PKCS1_OAEP)?;
            context.set_rsa_oaep_md(digest.md())?;
            context.set_rsa_mgf1_md(digest.md())?;
        }
        RsaPadding::Pkcs1 => context.set_rsa_padding(Padding::PKCS1)?,
    }
    Ok((rsa_wrap_identifier(padding), Way::Transport { context, len: key.size() }))
}

/// PKCS#1 v1.5 is a decryption oracle in waiting, so a key used so is used for nothing else: its
/// certificate must say so.
fn is_for_encryption_only(certificate: &Certificate) -> bool {
    let encryption = X509KeyUsage::KEY_ENCIPHERMENT | X509KeyUsage::DATA_ENCIPHERMENT;
    certificate.key_usage().is_some_and(|bits| !bits.is_empty() && encryption.contains(bits))
}

fn device_curve(curve: Curve) -> bulla_device::Curve {
    match curve {
        Curve::P192 => bulla_device::Curve::P192,
        Curve::P224 => bulla_device::Curve::P224,
        Curve::P256 => bulla_device::Curve::P256,
        Curve::P384 => bulla_device::Curve::P384,
        Curve::P521 => bulla_device::Curve::P521,
    }
}

/// A key with everything about it that stands in each message it signs.
struct Signer {
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
    fn choose(ring: &Ring, scheme: SignatureScheme, digest: Digest, now: SystemTime) -> Result<&Own, SealError> {
        let fits = |own: &Own| {
            // RFC 8017, 9.1.1: two hashes and two bytes must fit into the modulus.
            scheme == SignatureScheme::Pkcs1
                || own.certificate.key_kind() != KeyKind::Rsa
                || (own.certificate.key_bits() as usize).div_ceil(8) >= 2 * Digest::hash_len(digest) + 2
        };
        match ring.signing_where(now, fits) {
            Ok(own) => Ok(own),
            // A key there is, but none that fits: say so.
            Err(error) => match ring.signing(now) {
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
        let finish = move |result: Result<Output, _>| {
            let signature = result.map_err(SealError::Key)?;
            let layout = signer.layout(attributes.len(), signature.len(), payload.len());
            let message = Signed { layout, payload: &payload, attributes: &attributes, signature: &signature };
            then(&message).map(Step::Done)
        };
        Ok(Step::Device(job, Box::new(finish)))
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

/// A content key while it lives. The key schedule is in the context, so the key itself is not kept.
struct ContentKey {
    cipher: ContentCipher,
    context: CipherCtx,
    recipients: Vec<u8>,
    recipients_digest: [u8; 32],
    agreement: bool,
    born: SystemTime,
    /// Messages that it may still seal, this one included.
    messages_left: u32,
    bytes_left: u64,
    /// Given out with each nonce, never twice.
    counter: u32,
}

impl ContentKey {
    fn fresh(
        cipher: ContentCipher,
        reuse: KeyReuse,
        parties: &mut Parties,
        now: SystemTime,
        rng: &mut dyn Random,
    ) -> Result<ContentKey, SealError> {
        let mut key = Zeroizing::new(vec![0; cipher.key_len()]);
        rng.fill(&mut key)?;
        let recipients = parties.wrap(&key)?;
        let messages_left = match reuse {
            KeyReuse::Never => 1,
            KeyReuse::Count(count) => count.saturating_add(1).min(CONTENT_KEY_MESSAGES_MAX),
            KeyReuse::Unlimited => CONTENT_KEY_MESSAGES_MAX,
        };
        Ok(ContentKey {
            cipher,
            context: symmetric::encryptor(cipher, &key)?,
            recipients_digest: sha256(&recipients),
            recipients,
            agreement: parties.agreement(),
            born: now,
            messages_left,
            bytes_left: CONTENT_KEY_BYTES_MAX,
            counter: 0,
        })
    }

    /// Whether one more message of this many bytes may use it.
    fn is_live(&self, now: SystemTime, bytes: u64) -> bool {
        let young = now.duration_since(self.born).is_ok_and(|age| age < CONTENT_KEY_AGE_MAX);
        young && self.messages_left > 0 && bytes <= self.bytes_left
    }

    fn count(&mut self, bytes: u64) {
        self.messages_left = self.messages_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    /// GCM: 64 random bits and a counter that is never given out twice, so that nonces differ even
    /// after a snapshot of this machine was resumed twice. CBC: a random block.
    fn next_iv(&mut self, rng: &mut dyn Random) -> Result<Iv, SealError> {
        let mut iv = Iv { bytes: [0; AES_BLOCK_BYTES], len: AES_BLOCK_BYTES };
        if !self.cipher.is_authenticated() {
            rng.fill(&mut iv.bytes)?;
            return Ok(iv);
        }
        let [random @ .., _, _, _, _, _, _, _, _] = &mut iv.bytes;
        rng.fill(random)?;
        let [_, _, _, _, _, _, _, _, counter @ .., _, _, _, _] = &mut iv.bytes;
        counter.copy_from_slice(&self.counter.to_be_bytes());
        // At most 2^20 messages use one key: this does not wrap.
        self.counter = self.counter.saturating_add(1);
        iv.len = GCM_NONCE_BYTES;
        Ok(iv)
    }

    fn envelope(
        &mut self,
        attributes: &[u8],
        plaintext: &impl Plaintext,
        rng: &mut dyn Random,
    ) -> Result<Sealed, SealError> {
        let iv = self.next_iv(rng)?;
        self.envelope_with(&iv, attributes, plaintext)
    }

    fn envelope_with(&mut self, iv: &Iv, attributes: &[u8], plaintext: &impl Plaintext) -> Result<Sealed, SealError> {
        let layout = EnvelopeLayout {
            cipher: self.cipher,
            recipients: &self.recipients,
            agreement: self.agreement,
            attributes_len: attributes.len(),
            plaintext_len: plaintext.len(),
        };
        // CBC's last block is written with a block to spare.
        let mut out = Writer::with_capacity(layout.len() + 2 * AES_BLOCK_BYTES);
        let context = &mut self.context;
        if self.cipher.is_authenticated() {
            let mut header = Writer::with_capacity(8);
            header.header(SET, attributes.len());
            layout.write(&mut out, iv.as_slice(), attributes, |out| {
                let associated = [header.as_slice(), attributes];
                let start = out.len();
                plaintext.write(out);
                symmetric::gcm_encrypt(context, iv.as_slice(), &associated, out.as_mut(), start)
            })?;
            Ok(Sealed { der: Bytes::from(out.finish()), smime_type: "authEnveloped-data" })
        } else {
            layout.write(&mut out, iv.as_slice(), attributes, |out| {
                let mut whole = Writer::with_capacity(plaintext.len());
                plaintext.write(&mut whole);
                let whole = Zeroizing::new(whole.finish());
                symmetric::cbc_encrypt(context, iv.as_slice(), &whole, out.as_mut())?;
                Ok::<_, openssl::error::ErrorStack>([0; GCM_TAG_BYTES])
            })?;
            Ok(Sealed { der: Bytes::from(out.finish()), smime_type: "enveloped-data" })
        }
    }
}

/// A nonce or initialisation vector.
struct Iv {
    bytes: [u8; AES_BLOCK_BYTES],
    len: usize,
}

impl Iv {
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
