//! Opening: a sealed message in, its content as [`Verified`] or a reason out.
//!
//! The order is fixed. Parse within limits; match the policy exactly, before any private key is used;
//! find this identity among the recipients; take the content key from the cache or unwrap it; decrypt;
//! verify signature, path, dates, usage, revocation and authority of the signer; compare the binding.

use std::sync::Arc;
use std::time::SystemTime;

use bulla_device::{DeviceError, Digest, Job, KeyKind, Output, Random, RsaPadding, SystemRandom, Work};
use bytes::Bytes;
use openssl::error::ErrorStack;
use openssl::pkey::Public;
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::sign::RsaPssSaltlen;
use zeroize::Zeroizing;

use crate::certificate::{self, Certificate};
use crate::cms::algorithm::SignatureKind;
use crate::cms::attributes::{
    Attributes, Binding, Ours, algorithm_protection, check_signing_certificate, read_content, read_recipients, sha256,
};
use crate::cms::enveloped::{Enveloped, Recipient, Transport, derive_key, shared_info};
use crate::cms::reader::Malformed;
use crate::cms::signed::{SignedData, SignerInfo};
use crate::cms::writer::SET;
use crate::cms::{self, Container, Name};
use crate::dn::Dn;
use crate::error::{OpenError, other_quality};
use crate::message::{Content, Expect, Opened, Packing, SealInfo, Verified};
use crate::policy::{KeyTransport, Policy, Quality, Toleration};
use crate::ring::{Own, Ring};
use crate::step::Step;
use crate::symmetric::{self, CONTENT_BYTES_MAX, WRAP_OVERHEAD_BYTES};

mod cache;

pub use cache::{CACHED_KEY_AGE_MAX, CACHED_KEYS_MAX, CACHED_SIGNERS_MAX};
use cache::{Cache, KeyPlace};

/// A step of an opening.
type Opening = Step<Verified<Opened>, OpenError>;

/// Opens messages. One for the whole process is enough: clones share one cache of content keys and of
/// signers' certificates, both bounded. A signature itself is never remembered, always verified.
#[derive(Clone, Default)]
pub struct Opener {
    cache: Arc<Cache>,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Opener")
    }
}

impl Opener {
    /// An opener that remembers nothing yet.
    pub fn new() -> Opener {
        Opener::default()
    }

    /// Forgets every content key and every signer, as after a change of policies. Rings need no such
    /// call: a new [`Ring::generation`] forgets by itself.
    pub fn flush(&self) {
        self.cache.flush();
    }

    /// Opens one message. `put_at` is when the queue manager recorded its put, by which expiry is
    /// judged; `now` is the present, by which revocation is judged.
    ///
    /// It is done at once unless the content key has to be unwrapped first.
    ///
    /// # Errors
    /// [`OpenError`], whose [`outcome`](OpenError::outcome) says what becomes of the message.
    #[allow(clippy::too_many_arguments)]
    pub fn open(
        &self,
        policy: &Arc<Policy>,
        ring: &Arc<Ring>,
        der: Bytes,
        expect: Expect,
        put_at: SystemTime,
        now: SystemTime,
    ) -> Result<Opening, OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::clone(ring),
            der,
            expect,
            put_at,
            now,
        };
        question.open()
    }

    /// Whether a message that arrives sealed may be queued as it is: everything that can be seen
    /// without a private key. It parses, has the policy's quality, algorithms and recipients, names
    /// this queue, and where the signature is outside it verifies. Inside an envelope only the opener
    /// can look; there the attributes are compared, but nobody has vouched for them yet.
    ///
    /// # Errors
    /// As [`Opener::open`]; the put is refused.
    pub fn check_arrived(
        &self,
        policy: &Arc<Policy>,
        ring: &Arc<Ring>,
        der: &Bytes,
        expect: &Expect,
        now: SystemTime,
    ) -> Result<(), OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::clone(ring),
            der: der.clone(),
            expect: expect.clone(),
            put_at: now,
            now,
        };
        question.check_arrived()
    }

    /// What can be said of a message that arrived sealed where there is no ring to judge its signer and its
    /// recipients by: form, quality, algorithms, digests and binding. Whoever opens it judges the rest.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub fn check_form(
        &self,
        policy: &Arc<Policy>,
        der: &Bytes,
        expect: &Expect,
        now: SystemTime,
    ) -> Result<(), OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::new(Ring::nobody()),
            der: der.clone(),
            expect: expect.clone(),
            put_at: now,
            now,
        };
        question.check_form()
    }

    /// A clear message on a protected queue, which TOLERATE lets through. One that only looks clear
    /// because its seal is defective does not come here: whatever [`crate::looks_sealed`] goes to
    /// [`Opener::open`].
    ///
    /// # Errors
    /// [`OpenError::NotSealed`] under ENFORCE, and [`OpenError::Malformed`] for what looks sealed.
    pub fn tolerate(policy: &Policy, content: Content) -> Result<Verified<Opened>, OpenError> {
        if policy.quality() != Quality::None && policy.toleration == Toleration::Enforce {
            return Err(OpenError::NotSealed);
        }
        if content.packing == Packing::Data && cms::looks_sealed(&content.bytes) {
            return Err(OpenError::Malformed { what: "a sealed message where a clear one was announced" });
        }
        let seal = SealInfo {
            quality: Quality::None,
            signer: None,
            signing_time: None,
            recipients: Vec::new(),
            sealed_by: None,
            bound: false,
        };
        Ok(Verified::new(Opened { content, seal }))
    }
}

/// One message on its way through the opener.
struct Question {
    cache: Arc<Cache>,
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    der: Bytes,
    expect: Expect,
    put_at: SystemTime,
    now: SystemTime,
}

impl Question {
    fn open(self) -> Result<Opening, OpenError> {
        let der = self.der.clone();
        match self.read(&der)? {
            Container::Signed(signed) => self.open_signed(&signed).map(Step::Done),
            Container::Enveloped(envelope) => self.open_envelope(&envelope),
        }
    }

    /// Parses, and compares the quality with the policy's as far as the container shows it.
    fn read<'a>(&self, der: &'a [u8]) -> Result<Container<'a>, OpenError> {
        if der.len() > CONTENT_BYTES_MAX {
            return Err(Malformed("longer than 1 GiB").into());
        }
        let container = cms::read(der)?;
        match (self.policy.quality(), &container) {
            (Quality::Integrity, Container::Signed(_)) => {}
            (Quality::Privacy | Quality::Confidentiality, Container::Enveloped(envelope)) => {
                match_envelope(&self.policy, envelope)?;
            }
            (wanted, _) => return Err(other_quality(wanted)),
        }
        Ok(container)
    }

    fn open_signed(&self, signed: &SignedData<'_>) -> Result<Verified<Opened>, OpenError> {
        let facts = self.verify(signed, None).map_err(SignedError::into_cause)?;
        let content = self.content(facts.ours, self.der.slice_ref(signed.payload))?;
        let seal = SealInfo {
            quality: Quality::Integrity,
            sealed_by: self.check_binding(&facts.ours, Quality::Integrity)?,
            bound: facts.ours.any(),
            signer: Some(facts.signer),
            signing_time: facts.signing_time,
            recipients: Vec::new(),
        };
        Ok(Verified::new(Opened { content, seal }))
    }

    fn open_envelope(self, envelope: &Enveloped<'_>) -> Result<Opening, OpenError> {
        let (own, recipient) = self.find_own(envelope)?;
        let recipients_digest = sha256(envelope.recipients_whole);
        let place = KeyPlace {
            key_id: own.key.id(),
            recipients: recipients_digest,
            cipher: envelope.cipher,
            generation: self.ring.generation(),
        };
        if let Some(mut key) = self.cache.content_key(&place, &self.policy, self.ring.user(), self.now) {
            let plaintext = decrypt(&mut key.context, envelope)?;
            self.cache.give_back(&place, key);
            return self.open_plaintext(envelope, &recipients_digest, plaintext).map(Step::Done);
        }
        let work = unwrap_work(envelope, &recipient, own)?;
        let job = Job::new(own.key.clone(), work);
        let transport = KeyWay::of(&recipient);
        let finish = move |result: Result<Output, DeviceError>| {
            let secret = result.map_err(OpenError::Key)?;
            self.finish_envelope(place, transport, &secret).map(Step::Done)
        };
        Ok(Step::Device(job, Box::new(finish)))
    }

    /// After the private key was used. The message is read once more: that costs a microsecond or two
    /// beside hundreds, and the parts of it need no owner meanwhile.
    fn finish_envelope(self, place: KeyPlace, way: KeyWay, secret: &[u8]) -> Result<Verified<Opened>, OpenError> {
        let der = self.der.clone();
        let Container::Enveloped(envelope) = cms::read(&der)? else { return Err(OpenError::NotSealed) };
        let key = way.content_key(secret, envelope.cipher.key_len())?;
        let mut context = symmetric::decryptor(envelope.cipher, &key)?;
        let plaintext = decrypt(&mut context, &envelope)?;
        let opened = self.open_plaintext(&envelope, &place.recipients, plaintext)?;
        // Only what opened is worth remembering: otherwise anyone could fill the cache with rubbish.
        self.cache.remember_key(place, &self.policy, self.ring.user(), self.now, key);
        Ok(opened)
    }

    fn open_plaintext(
        &self,
        envelope: &Enveloped<'_>,
        recipients_digest: &[u8; 32],
        plaintext: Option<Vec<u8>>,
    ) -> Result<Verified<Opened>, OpenError> {
        let authenticated = envelope.cipher.is_authenticated();
        let signed_inside = self.policy.sign.is_some();
        let Some(plaintext) = plaintext else {
            if !authenticated && signed_inside {
                self.spend_a_verification(envelope.ciphertext);
            }
            return Err(OpenError::CannotDecrypt);
        };
        let plaintext = Bytes::from(plaintext);
        if !signed_inside {
            return self.open_confidential(envelope, recipients_digest, plaintext);
        }
        let inner = read_inner(envelope, &plaintext);
        let verified = match &inner {
            Ok(signed) => self.verify(signed, Some(recipients_digest)),
            Err(error) => Err(SignedError::Early(error.clone())),
        };
        let facts = match verified {
            Ok(facts) => facts,
            // After CBC, whatever comes before a good signature is one cause, at one speed.
            Err(error) if !authenticated => return Err(self.one_cause(error, envelope)),
            Err(error) => return Err(error.into_cause()),
        };
        // Whoever re-encrypts a letter can write any attribute outside; what is signed inside decides.
        let comparable = self.is_bound(&facts.ours) || envelope.attributes.ours.any();
        if authenticated && comparable && envelope.attributes.ours != facts.ours {
            return Err(OpenError::Tampered { what: "the attributes of the envelope" });
        }
        let payload = inner.map(|signed| plaintext.slice_ref(signed.payload))?;
        let content = self.content(facts.ours, payload)?;
        let seal = SealInfo {
            quality: Quality::Privacy,
            sealed_by: self.check_binding(&facts.ours, Quality::Privacy)?,
            bound: facts.ours.any(),
            signer: Some(facts.signer),
            signing_time: facts.signing_time,
            recipients: self.names(envelope),
        };
        Ok(Verified::new(Opened { content, seal }))
    }

    fn open_confidential(
        &self,
        envelope: &Enveloped<'_>,
        recipients_digest: &[u8; 32],
        plaintext: Bytes,
    ) -> Result<Verified<Opened>, OpenError> {
        if envelope.bare_signed {
            return Err(other_quality(Quality::Confidentiality));
        }
        let ours = envelope.attributes.ours;
        let content = self.content(ours, plaintext)?;
        let authenticated = envelope.cipher.is_authenticated();
        if authenticated {
            self.check_recipients(&ours, recipients_digest)?;
        }
        let sealed_by = if authenticated { self.check_binding(&ours, Quality::Confidentiality)? } else { None };
        let seal = SealInfo {
            quality: Quality::Confidentiality,
            signer: None,
            signing_time: None,
            recipients: self.names(envelope),
            sealed_by,
            bound: authenticated && ours.any(),
        };
        Ok(Verified::new(Opened { content, seal }))
    }

    fn check_arrived(self) -> Result<(), OpenError> {
        let der = self.der.clone();
        match self.read(&der)? {
            Container::Signed(signed) => self.open_signed(&signed).map(|_| ()),
            Container::Enveloped(envelope) => {
                self.cache.check_recipients(&self.policy, &self.ring, &envelope.recipients)?;
                self.check_envelope(&envelope)
            }
        }
    }

    fn check_form(self) -> Result<(), OpenError> {
        let der = self.der.clone();
        match self.read(&der)? {
            Container::Signed(signed) => signed.signers.iter().try_for_each(|signer| {
                let attributes = self.signed_attributes(&signed, signer)?;
                self.check_binding(&attributes.ours, Quality::Integrity).map(|_| ())
            }),
            Container::Enveloped(envelope) => self.check_envelope(&envelope),
        }
    }

    /// What an envelope shows without a key.
    fn check_envelope(&self, envelope: &Enveloped<'_>) -> Result<(), OpenError> {
        if !envelope.cipher.is_authenticated() {
            return Ok(());
        }
        let ours = envelope.attributes.ours;
        self.check_recipients(&ours, &sha256(envelope.recipients_whole))?;
        self.check_binding(&ours, self.policy.quality()).map(|_| ())
    }

    /// The first recipient that is one of this identity's keys, old ones too.
    fn find_own<'a>(&self, envelope: &Enveloped<'a>) -> Result<(&Own, Recipient<'a>), OpenError> {
        let find = |recipient: &Recipient<'a>| match recipient.name {
            Name::IssuerAndSerial(name) => self.ring.find_own(name),
            Name::Key(id) => {
                self.ring.own().iter().find(|own| own.certificate.subject_key_id() == Some(id)).map(AsRef::as_ref)
            }
        };
        let mut mine = envelope.recipients.iter().filter_map(|one| find(one).map(|own| (own, *one)));
        mine.next().ok_or(OpenError::NotARecipient)
    }

    fn names(&self, envelope: &Enveloped<'_>) -> Vec<Bytes> {
        let names = envelope.recipients.iter().filter_map(|recipient| match recipient.name {
            Name::IssuerAndSerial(name) => Some(self.der.slice_ref(name)),
            Name::Key(_) => None,
        });
        names.collect()
    }

    fn content(&self, ours: Ours<'_>, bytes: Bytes) -> Result<Content, OpenError> {
        let (packing, content_type) = match ours.content {
            Some(value) => read_content(value)?,
            None => (Packing::Data, None),
        };
        Ok(Content { packing, content_type: content_type.map(str::to_owned), bytes })
    }

    /// Whether the rules of bound messages hold for this one: the policy says so, or the message does.
    fn is_bound(&self, ours: &Ours<'_>) -> bool {
        self.policy.requires_binding() || ours.any()
    }

    /// Compares the binding with the place. Returns who sealed, if it was not the application.
    fn check_binding(&self, ours: &Ours<'_>, quality: Quality) -> Result<Option<String>, OpenError> {
        if !self.is_bound(ours) {
            return Ok(None);
        }
        let (Some(binding), Some(_)) = (ours.binding, ours.content) else {
            return Err(OpenError::Unbound);
        };
        let binding = Binding::read(binding)?;
        if binding.quality != quality {
            return Err(other_quality(quality));
        }
        binding.check(&self.expect, &self.policy.bind_names)?;
        Ok(binding.sealed_by.map(str::to_owned))
    }

    /// The recipients that the message was sealed for must be those that its envelope has.
    fn check_recipients(&self, ours: &Ours<'_>, digest: &[u8; 32]) -> Result<(), OpenError> {
        match ours.recipients {
            Some(value) if read_recipients(value)? == digest => Ok(()),
            Some(_) => Err(OpenError::Tampered { what: "the set of recipients" }),
            None if self.is_bound(ours) => Err(OpenError::Unbound),
            None => Ok(()),
        }
    }

    /// Verifies every signer. `recipients` is the digest of the envelope around, if there is one.
    fn verify<'a>(
        &self,
        signed: &SignedData<'a>,
        recipients: Option<&[u8; 32]>,
    ) -> Result<SignedFacts<'a>, SignedError> {
        let mut facts: Option<SignedFacts<'a>> = None;
        for signer in &signed.signers {
            let found = self.verify_signer(signed, signer, recipients)?;
            match &facts {
                // Two signers must at least have signed the same statement.
                Some(first) if first.ours != found.ours => {
                    return Err(SignedError::Late(OpenError::Tampered { what: "one of two signers' attributes" }));
                }
                Some(_) => {}
                None => facts = Some(found),
            }
        }
        facts.ok_or(SignedError::Early(OpenError::Unsigned))
    }

    /// A signer's attributes, once its digest is the policy's and fits the payload.
    fn signed_attributes<'a>(
        &self,
        signed: &SignedData<'a>,
        signer: &SignerInfo<'a>,
    ) -> Result<Attributes<'a>, OpenError> {
        if self.policy.sign != Some(signer.digest) {
            return Err(OpenError::WeakerThanPolicy { what: "another signature digest than SIGNALG" });
        }
        let attributes = Attributes::read(signer.attributes)?;
        attributes.check_content_type(crate::oid::ID_DATA)?;
        if *signer.digest.hash(signed.payload) != *attributes.digest()? {
            return Err(OpenError::Tampered { what: "the digest of the payload" });
        }
        Ok(attributes)
    }

    fn verify_signer<'a>(
        &self,
        signed: &SignedData<'a>,
        signer: &SignerInfo<'a>,
        recipients: Option<&[u8; 32]>,
    ) -> Result<SignedFacts<'a>, SignedError> {
        let early = SignedError::Early;
        let attributes = self.signed_attributes(signed, signer).map_err(early)?;
        let mut known = self.cache.signer(&self.ring, &signer.name, signed).map_err(early)?;
        let good = known.verify(signer).map_err(|e| early(e.into()))?;
        if !good {
            return Err(SignedError::Unproved(OpenError::Tampered { what: "the signature" }));
        }
        // The attributes are the signer's now. The certificates are not yet: a changed one with the same
        // key verifies as well, until the signing certificate attribute has been compared.
        self.vouch(&known.certificate, signed, signer, &attributes, recipients)?;
        let proved = match attributes.signing_certificate {
            Some(_) => SignedError::Late,
            None => SignedError::Unproved,
        };
        let dn = known.certificate.dn().clone();
        if !known.is_believed(self.put_at, self.now) {
            let others = others(signed, &known.certificate);
            let verdict = self
                .ring
                .verify(&known.certificate, &others, certificate::Usage::Sign, self.put_at, self.now)
                .map_err(|e| proved(e.into()))?;
            known.verdict = Some(verdict);
        }
        self.cache.remember_signer(&self.ring, known);
        if !self.policy.signers.is_empty() && !self.policy.signers.contains(&dn) {
            return Err(SignedError::Late(OpenError::SignerNotAuthorised { dn }));
        }
        let signing_time = attributes.time().map_err(|e| SignedError::Late(e.into()))?;
        Ok(SignedFacts { signer: dn, signing_time, ours: attributes.ours })
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
        let unproved = |error| Err(SignedError::Unproved(error));
        let bound = self.is_bound(&attributes.ours);
        if bound && attributes.ours.binding.is_none() {
            return Err(SignedError::Late(OpenError::Unbound));
        }
        match attributes.algorithm_protection {
            Some(value) if value == algorithm_protection(signer.digest_identifier, signer.algorithm) => {}
            Some(_) => return unproved(OpenError::Tampered { what: "the algorithm protection attribute" }),
            None if bound => {
                return unproved(Malformed("a bound message without algorithm protection").into());
            }
            None => {}
        }
        match attributes.signing_certificate {
            Some(value) => {
                let all = bound.then_some(signed.certificates.as_slice());
                check_signing_certificate(value, certificate, all).map_err(SignedError::Unproved)?;
            }
            None if bound => {
                return unproved(Malformed("a bound message without a signing certificate attribute").into());
            }
            None => {}
        }
        match recipients {
            Some(digest) => self.check_recipients(&attributes.ours, digest).map_err(SignedError::Unproved),
            None => Ok(()),
        }
    }

    /// After CBC: as long as anything inside is unproved its error is `cannot-decrypt`, and took as long
    /// as a verification.
    fn one_cause(&self, error: SignedError, envelope: &Enveloped<'_>) -> OpenError {
        match error {
            SignedError::Late(error)
            | SignedError::Early(error @ OpenError::Library { .. })
            | SignedError::Unproved(error @ OpenError::Library { .. }) => error,
            SignedError::Unproved(_) => OpenError::CannotDecrypt,
            SignedError::Early(_) => {
                self.spend_a_verification(envelope.ciphertext);
                OpenError::CannotDecrypt
            }
        }
    }

    /// The time of a digest and of a signature's verification, spent for nothing: with it, a message
    /// whose padding is wrong takes as long as one whose signature is.
    fn spend_a_verification(&self, ciphertext: &[u8]) {
        let digest = self.policy.sign.unwrap_or(Digest::Sha256);
        let hash = digest.hash(ciphertext);
        if let Some(own) = self.ring.own().first() {
            let key = own.certificate.public_key();
            let attempt = || -> Result<bool, ErrorStack> {
                let mut context = PkeyCtx::new(key)?;
                context.verify_init()?;
                context.verify(&hash, &vec![1; key.size()])
            };
            let _outcome_is_known = attempt();
        }
    }
}

/// What verified signed attributes said.
struct SignedFacts<'a> {
    signer: Dn,
    signing_time: Option<SystemTime>,
    ours: Ours<'a>,
}

/// How far a signed message got: after CBC the difference must not show.
enum SignedError {
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

/// Content cipher, key transport and key wrap must be the policy's, each recipient's of them: a
/// recipient info of another cipher pasted into this envelope would otherwise make the opener answer
/// questions about that other cipher's key.
fn match_envelope(policy: &Policy, envelope: &Enveloped<'_>) -> Result<(), OpenError> {
    if policy.encrypt != Some(envelope.cipher) {
        return Err(OpenError::WeakerThanPolicy { what: "another content cipher than ENCALG" });
    }
    for recipient in &envelope.recipients {
        match (recipient.transport, policy.key_transport) {
            (Transport::Rsa(RsaPadding::Oaep { .. }), KeyTransport::Auto | KeyTransport::Oaep)
            | (Transport::Rsa(RsaPadding::Pkcs1), KeyTransport::Pkcs1) => {}
            (Transport::Ecdh { wrap_len, .. }, KeyTransport::Auto | KeyTransport::Pkcs1)
                if wrap_len == envelope.cipher.key_len() => {}
            _ => return Err(OpenError::WeakerThanPolicy { what: "another key transport than KEYWRAP" }),
        }
    }
    Ok(())
}

fn unwrap_work(envelope: &Enveloped<'_>, recipient: &Recipient<'_>, own: &Own) -> Result<Work, OpenError> {
    match (recipient.transport, own.key.kind()) {
        (Transport::Rsa(padding), KeyKind::Rsa) => Ok(Work::RsaUnwrap {
            padding,
            wrapped: recipient.encrypted_key.to_vec(),
            expected_len: envelope.cipher.key_len(),
        }),
        (Transport::Ecdh { point, .. }, KeyKind::Ec(_)) => Ok(Work::EcdhDerive { peer: point.to_vec() }),
        _ => Err(Malformed("a recipient's key and its transport disagree").into()),
    }
}

/// How to come from a device's answer to the content key; owns what it needs of the recipient.
enum KeyWay {
    /// The answer is the key.
    Transport,
    /// The answer is a shared secret.
    Agreement { kdf: Digest, wrap_len: usize, shared: Vec<u8>, encrypted_key: Vec<u8> },
}

impl KeyWay {
    fn of(recipient: &Recipient<'_>) -> KeyWay {
        match recipient.transport {
            Transport::Rsa(_) => KeyWay::Transport,
            Transport::Ecdh { kdf, wrap, wrap_len, ukm, .. } => KeyWay::Agreement {
                kdf,
                wrap_len,
                shared: shared_info(wrap, ukm, wrap_len),
                encrypted_key: recipient.encrypted_key.to_vec(),
            },
        }
    }

    /// A key of that length in any case: what does not unwrap becomes random, and the tag will fail.
    fn content_key(&self, secret: &[u8], len: usize) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let unwrapped = match self {
            KeyWay::Transport => Some(Zeroizing::new(secret.to_vec())),
            KeyWay::Agreement { kdf, wrap_len, shared, encrypted_key } => {
                let wrapping = derive_key(*kdf, secret, shared, *wrap_len);
                let fits = encrypted_key.len() == len + WRAP_OVERHEAD_BYTES;
                if fits { symmetric::unwrap_key(&wrapping, encrypted_key) } else { None }
            }
        };
        match unwrapped {
            Some(key) if key.len() == len => Ok(key),
            _ => {
                let mut random = Zeroizing::new(vec![0; len]);
                SystemRandom.fill(&mut random).map_err(|error| OpenError::Library { text: error.to_string() })?;
                Ok(random)
            }
        }
    }
}

/// The plaintext, `None` when padding or tag are wrong.
fn decrypt(
    context: &mut openssl::cipher_ctx::CipherCtx,
    envelope: &Enveloped<'_>,
) -> Result<Option<Vec<u8>>, OpenError> {
    let Some(tag) = envelope.tag else {
        return Ok(symmetric::cbc_decrypt(context, envelope.iv, envelope.ciphertext)?);
    };
    // Associated data are the attributes as a SET OF, not as the [1] they travel in (RFC 5083, 2.2).
    let rest = envelope.attributes_whole.map(|whole| whole.get(1..).unwrap_or_default());
    let set = [SET];
    let associated: &[&[u8]] = match &rest {
        Some(rest) => &[&set, rest],
        None => &[],
    };
    Ok(symmetric::gcm_decrypt(context, envelope.iv, associated, envelope.ciphertext, tag)?)
}

/// The `SignedData` inside an envelope: a whole message of its own, or a bare one where the envelope
/// says so.
fn read_inner<'a>(envelope: &Enveloped<'_>, plaintext: &'a [u8]) -> Result<SignedData<'a>, OpenError> {
    let inner = if envelope.bare_signed { SignedData::read(plaintext) } else { cms::read_signed(plaintext) };
    match inner {
        Err(OpenError::NotSealed) => Err(OpenError::Unsigned),
        other => other,
    }
}

/// The certificates of a message beside the signer's: hints for the path.
fn others(signed: &SignedData<'_>, leaf: &Certificate) -> Vec<Certificate> {
    let others = signed.certificates.iter().filter(|der| **der != leaf.der());
    others.filter_map(|der| Certificate::from_der(der).ok()).collect()
}

/// A signer's certificate with what was found out about it, and a context ready to verify.
pub(crate) struct KnownSigner {
    certificate: Certificate,
    verdict: Option<crate::ring::Verdict>,
    context: Option<(SignatureKind, Digest, PkeyCtx<Public>)>,
}

impl KnownSigner {
    fn new(certificate: Certificate) -> KnownSigner {
        KnownSigner { certificate, verdict: None, context: None }
    }

    fn is_believed(&self, put_at: SystemTime, now: SystemTime) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict.holds(put_at, now))
    }

    /// Verifies a signature, always. Only the set-up of the context is kept.
    fn verify(&mut self, signer: &SignerInfo<'_>) -> Result<bool, ErrorStack> {
        let fits = matches!(
            (signer.kind, self.certificate.key_kind()),
            (SignatureKind::RsaPkcs1 | SignatureKind::RsaPss { .. }, certificate::KeyKind::Rsa)
                | (SignatureKind::Ecdsa, certificate::KeyKind::Ec(_))
        );
        if !fits {
            return Ok(false);
        }
        let ready = self.context.take().filter(|(kind, digest, _)| *kind == signer.kind && *digest == signer.digest);
        let mut context = match ready {
            Some((_, _, context)) => context,
            None => verifier(&self.certificate, signer.kind, signer.digest)?,
        };
        let good = matches!(context.verify(&signer.signed_hash(), signer.signature), Ok(true));
        self.context = Some((signer.kind, signer.digest, context));
        Ok(good)
    }
}

fn verifier(certificate: &Certificate, kind: SignatureKind, digest: Digest) -> Result<PkeyCtx<Public>, ErrorStack> {
    let mut context = PkeyCtx::new(certificate.public_key())?;
    context.verify_init()?;
    match kind {
        SignatureKind::RsaPkcs1 => {
            context.set_rsa_padding(Padding::PKCS1)?;
            context.set_signature_md(digest.md())?;
        }
        SignatureKind::RsaPss { salt_len } => {
            context.set_rsa_padding(Padding::PKCS1_PSS)?;
            context.set_signature_md(digest.md())?;
            context.set_rsa_mgf1_md(digest.md())?;
            context.set_rsa_pss_saltlen(RsaPssSaltlen::custom(i32::from(salt_len)))?;
        }
        SignatureKind::Ecdsa => {}
    }
    Ok(context)
}
