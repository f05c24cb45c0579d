//! Opening: a sealed message in, its content as [`Verified`] or a reason out.
//!
//! The order is fixed. Parse within limits; match the policy exactly, before any private key is used;
//! find this identity among the recipients; take the content key from the cache or unwrap it; decrypt;
//! verify signature, path, dates, usage, revocation and authority of the signer; compare the binding.

use std::sync::Arc;
use std::time::SystemTime;

use bulla_device::{DeviceError, Digest, Job, KeyKind, Output, Random, RsaPadding, SystemRandom, Work};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::cms::algorithm::SignatureKind;
use crate::cms::attributes::{Attributes, Binding, Ours, read_content, read_recipients, sha256};
use crate::cms::batch::BatchSigned;
use crate::cms::enveloped::{
    Enveloped, KEM_WRAPPING_KEY_BYTES, Recipient, Transport, derive_key, kem_other_info, shared_info,
};
use crate::cms::reader::Malformed;
use crate::cms::signed::{SignedData, SignerInfo};
use crate::cms::{self, Container, Name};
use crate::effort::Tally;
use crate::error::{OpenError, other_quality};
use crate::hash_tree::Ascent;
use crate::message::{Content, Expect, Opened, Packing, SealInfo, SealedBinding, Verified};
use crate::on_behalf::OnBehalfOf;
use crate::policy::{KeyTransport, Policy, Pqc, Quality, Toleration};
use crate::ring::{Own, Ring};
use crate::step::Step;
use crate::symmetric::{self, CONTENT_BYTES_MAX, WRAP_OVERHEAD_BYTES};

mod cache;
mod decoy;
mod letter;
mod proof;

pub use cache::{CACHED_KEY_AGE_MAX, CACHED_KEYS_MAX, CACHED_ROOTS_MAX, CACHED_SIGNERS_MAX};
use cache::{Cache, KeyPlace};
use decoy::Decoy;
pub use decoy::check_reader;
use letter::Letter;
use proof::{Proof, SignedError};

/// A step of an opening.
type Opening = Step<Verified<Opened>, OpenError>;

/// The moments by which a message is judged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moments {
    /// When the queue manager recorded its put: expiry is judged by it.
    pub put_at: SystemTime,
    /// The present: revocation is judged by it.
    pub now: SystemTime,
}

/// Opens messages. One for the whole process is enough: clones share one cache of content keys and of signers'
/// certificates, both bounded. A message's own signature is never remembered, always verified; of one that many
/// messages share it is remembered that it is good, and nothing else: everything that follows from it is judged for
/// each message.
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
    /// It is done at once unless a content key has to be unwrapped or a signature to be verified: those
    /// are jobs for a device, one after the other. The same message can be opened any number of times, on
    /// other devices too: nothing is remembered of an opening that failed.
    ///
    /// # Errors
    /// [`OpenError`], whose [`outcome`](OpenError::outcome) says what becomes of the message. A verdict that
    /// [may be the device's](OpenError::may_be_the_device) is asked for again before anything is moved.
    pub fn open(
        &self,
        policy: &Arc<Policy>,
        ring: &Arc<Ring>,
        der: Bytes,
        expect: Expect,
        put_at: SystemTime,
        now: SystemTime,
    ) -> Result<Opening, OpenError> {
        self.open_counting(policy, ring, der, expect, Moments { put_at, now }, Tally::default())
    }

    /// Like [`Opener::open`], and counts in `tally` what it takes, also where it fails.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub fn open_counting(
        &self,
        policy: &Arc<Policy>,
        ring: &Arc<Ring>,
        der: Bytes,
        expect: Expect,
        Moments { put_at, now }: Moments,
        tally: Tally,
    ) -> Result<Opening, OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::clone(ring),
            der,
            place: Place::Here(expect),
            put_at,
            now,
            tally,
            decoy: None,
        };
        question.open()
    }

    /// Opens one message wherever it is found: everything is judged as [`Opener::open`] does, but for the place. What
    /// it is bound to is handed out as [`SealInfo::binding`], for a person to compare. Nothing that serves a queue may
    /// open this way.
    ///
    /// # Errors
    /// As [`Opener::open`], but for `moved` and changed properties.
    pub fn open_anywhere(
        &self,
        policy: &Arc<Policy>,
        ring: &Arc<Ring>,
        der: Bytes,
        put_at: SystemTime,
        now: SystemTime,
    ) -> Result<Opening, OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::clone(ring),
            der,
            place: Place::Told,
            decoy: None,
            put_at,
            now,
            tally: Tally::default(),
        };
        question.open()
    }

    /// Whether a message that arrives sealed may be queued as it is: everything that can be seen
    /// without a private key. It parses, has the policy's quality, algorithms and recipients; where the
    /// binding is outside it names this queue, and where the signature is outside it verifies. Inside an
    /// envelope only the opener can look: with privacy signature and binding are judged when it is opened.
    /// A signature is verified by a device.
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
    ) -> Result<Step<(), OpenError>, OpenError> {
        self.check_arrived_counting(policy, ring, der, expect, now, Tally::default())
    }

    /// Like [`Opener::check_arrived`], and counts in `tally` what it takes, also where it fails.
    ///
    /// # Errors
    /// As [`Opener::open`]; the put is refused.
    pub fn check_arrived_counting(
        &self,
        policy: &Arc<Policy>,
        ring: &Arc<Ring>,
        der: &Bytes,
        expect: &Expect,
        now: SystemTime,
        tally: Tally,
    ) -> Result<Step<(), OpenError>, OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::clone(ring),
            der: der.clone(),
            place: Place::Here(expect.clone()),
            put_at: now,
            now,
            tally,
            decoy: None,
        };
        question.check_arrived()
    }

    /// What can be said of a message that arrived sealed where there is no ring to judge its signer and its
    /// recipients by: form, quality, algorithms, digests, and the binding where it is outside. The reader who opens it
    /// judges the rest.
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
        self.check_form_counting(policy, der, expect, now, Tally::default())
    }

    /// Like [`Opener::check_form`], and counts in `tally` what it takes: bytes alone.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub fn check_form_counting(
        &self,
        policy: &Arc<Policy>,
        der: &Bytes,
        expect: &Expect,
        now: SystemTime,
        tally: Tally,
    ) -> Result<(), OpenError> {
        let question = Question {
            cache: Arc::clone(&self.cache),
            policy: Arc::clone(policy),
            ring: Arc::new(Ring::empty()),
            der: der.clone(),
            place: Place::Here(expect.clone()),
            put_at: now,
            now,
            tally,
            decoy: None,
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
            signer_certificate: None,
            signing_time: None,
            recipients: Vec::new(),
            sealed_by: None,
            on_behalf_of: None,
            bound: false,
            proved: false,
            binding: None,
        };
        Ok(Verified::new(Opened { content, seal }))
    }
}

/// What a binding is compared with.
enum Place {
    /// Where the message is.
    Here(Expect),
    /// Nothing: it is told.
    Told,
}

/// One message on its way through the opener.
struct Question {
    cache: Arc<Cache>,
    policy: Arc<Policy>,
    ring: Arc<Ring>,
    der: Bytes,
    place: Place,
    put_at: SystemTime,
    now: SystemTime,
    tally: Tally,
    /// There for signed messages under AES-CBC.
    decoy: Option<Arc<Decoy>>,
}

impl Question {
    fn open(self) -> Result<Opening, OpenError> {
        let der = self.der.clone();
        match self.read(&der)? {
            Container::Signed(signed) => self.open_signed(&signed),
            Container::Batch(batch) => self.open_batch(&batch),
            Container::Enveloped(envelope) => self.open_envelope(&envelope),
        }
    }

    /// Parses, and compares the quality with the policy's as far as the container shows it.
    fn read<'a>(&self, der: &'a [u8]) -> Result<Container<'a>, OpenError> {
        self.tally.bytes_in(der.len());
        if matches!(self.place, Place::Here(_)) {
            self.policy.check_signers().map_err(OpenError::Policy)?;
        }
        if der.len() > CONTENT_BYTES_MAX {
            return Err(Malformed("longer than 1 GiB").into());
        }
        let container = cms::read(der)?;
        match (self.policy.quality(), &container) {
            (Quality::Integrity, Container::Signed(_)) => {}
            (Quality::Integrity, Container::Batch(_)) => self.check_sign_batch()?,
            (Quality::Privacy | Quality::Confidentiality, Container::Enveloped(envelope)) => {
                match_envelope(&self.policy, envelope)?;
            }
            (wanted, _) => return Err(other_quality(wanted)),
        }
        Ok(container)
    }

    fn open_signed(self, signed: &SignedData<'_>) -> Result<Opening, OpenError> {
        let (claims, ours) = self.claims(signed, &self.der, None);
        let opened = match ours {
            Some(ours) => self.read_opened(&ours, self.der.slice_ref(signed.payload), Quality::Integrity, Vec::new()),
            None => Err(OpenError::Unsigned),
        };
        Proof { question: self, claims, signer: None, opened, cbc: None, fresh_key: None }.go_on()
    }

    fn open_batch(self, batch: &BatchSigned<'_>) -> Result<Opening, OpenError> {
        let claim = self.batch_claim(batch, &self.der, None);
        let payload = self.der.slice_ref(batch.payload);
        let opened = self.read_opened(&batch.attributes.ours, payload, Quality::Integrity, Vec::new());
        let claims = vec![claim.map_err(SignedError::Early)].into_iter();
        Proof { question: self, claims, signer: None, opened, cbc: None, fresh_key: None }.go_on()
    }

    /// A reader who wants a signature for each message says SIGNBATCH(1).
    fn check_sign_batch(&self) -> Result<(), OpenError> {
        const WHAT: &str = "one signature for many messages, and SIGNBATCH(1)";
        if self.policy.sign_batch > 1 { Ok(()) } else { Err(OpenError::WeakerThanPolicy { what: WHAT }) }
    }

    fn open_envelope(mut self, envelope: &Enveloped<'_>) -> Result<Opening, OpenError> {
        // A person who opens a file is told no verdict that others can time.
        if let (Place::Here(expect), Some(digest), true) = (&self.place, self.policy.sign, self.policy.is_signed_cbc())
        {
            self.decoy = Some(Arc::new(Decoy::new(&self.policy, &self.ring, expect, digest)?));
        }
        let (own, recipient) = self.find_own(envelope)?;
        if matches!(recipient.transport, Transport::Rsa(RsaPadding::Pkcs1)) && !own.certificate.is_for_encryption_only()
        {
            const WHAT: &str = "PKCS#1 v1.5 key transport to a certificate that is for more than encryption";
            return Err(OpenError::WeakerThanPolicy { what: WHAT });
        }
        let (recipients, is_known) = self.cache.recipients_digest(envelope.recipients_whole);
        let place =
            KeyPlace { key_id: own.key.id(), recipients, cipher: envelope.cipher, generation: self.ring.generation() };
        let letter = Letter::new(self.der.clone(), envelope, place);
        if let Some(mut key) = self.cache.content_key(&place, &self.policy, self.ring.user(), self.now) {
            let plaintext = letter.decrypt(&mut key.context)?;
            if plaintext.is_some() || self.proves_keys(&letter) {
                self.cache.give_back(&place, key);
                if !is_known {
                    self.cache.remember_recipients(envelope.recipients_whole, recipients);
                }
                self.tally.cache_hit();
                return self.open_plaintext(letter, plaintext, None);
            }
            // Nothing ever proved this key, so it may be what is wrong.
            self.cache.forget_key(&place);
        }
        let job = Job::new(own.key.clone(), unwrap_work(envelope, &recipient, own)?);
        let way = KeyWay::of(&recipient);
        let tally = self.tally.clone();
        let finish = move |result: Result<Output, DeviceError>| {
            let secret = result.map_err(OpenError::Key)?;
            let key = way.content_key(&secret, letter.cipher().key_len())?;
            let plaintext = letter.decrypt_with(&key)?;
            self.open_plaintext(letter, plaintext, Some(key))
        };
        Ok(tally.ask(job, finish))
    }

    /// Whether what opens with a key proves the key: by a tag or by a signature.
    fn proves_keys(&self, letter: &Letter) -> bool {
        letter.cipher().is_authenticated() || self.policy.sign.is_some()
    }

    /// Only what opened is worth remembering: otherwise anyone could fill the cache with rubbish.
    fn remember_key(&self, place: KeyPlace, key: Zeroizing<Vec<u8>>) {
        self.cache.remember_key(place, &self.policy, self.ring.user(), self.now, &key);
    }

    /// `fresh_key` is the content key when it did not come from the cache.
    fn open_plaintext(
        self,
        letter: Letter,
        plaintext: Option<Vec<u8>>,
        fresh_key: Option<Zeroizing<Vec<u8>>>,
    ) -> Result<Opening, OpenError> {
        let signed_inside = self.policy.sign.is_some();
        let Some(plaintext) = plaintext.map(Bytes::from) else {
            if self.decoy.is_some() {
                // What is no message either is read, as the inside of one would be.
                std::hint::black_box(read_inner(&letter, &letter.ciphertext_bytes()).is_ok());
                let claims = vec![Err(SignedError::Early(OpenError::CannotDecrypt))].into_iter();
                let (opened, cbc) = (Err(OpenError::CannotDecrypt), Some(letter.ciphertext_bytes()));
                return Proof { question: self, claims, signer: None, opened, cbc, fresh_key: None }.go_on();
            }
            return Err(OpenError::CannotDecrypt);
        };
        if signed_inside {
            return self.open_private(letter, plaintext, fresh_key);
        }
        let place = letter.place;
        let opened = self.open_confidential(letter, plaintext)?;
        if let Some(key) = fresh_key {
            self.remember_key(place, key);
        }
        Ok(Step::Done(opened))
    }

    fn open_private(
        self,
        letter: Letter,
        plaintext: Bytes,
        fresh_key: Option<Zeroizing<Vec<u8>>>,
    ) -> Result<Opening, OpenError> {
        let authenticated = letter.cipher().is_authenticated();
        let cbc = (!authenticated).then(|| letter.ciphertext_bytes());
        let fresh_key = fresh_key.map(|key| (letter.place, key));
        let (claims, opened) = match read_inner(&letter, &plaintext) {
            Ok(Inside::Batch(_)) if cbc.is_some() || letter.has_attributes() => {
                // No profile ever had it.
                let claims = vec![Err(SignedError::Early(OpenError::Unsigned))].into_iter();
                (claims, Err(OpenError::Unsigned))
            }
            Ok(Inside::Batch(batch)) => {
                let claim = self
                    .check_sign_batch()
                    .and_then(|()| self.batch_claim(&batch, &plaintext, Some(letter.recipients_digest())));
                let payload = plaintext.slice_ref(batch.payload);
                let opened = self.read_opened(&batch.attributes.ours, payload, Quality::Privacy, letter.names);
                (vec![claim.map_err(SignedError::Early)].into_iter(), opened)
            }
            Ok(Inside::Signed(signed)) => {
                let (claims, ours) = self.claims(&signed, &plaintext, Some(letter.recipients_digest()));
                let opened = match ours {
                    // What is signed inside decides. The former profile had the same attributes outside too;
                    // a recipient who encrypts the message again can write any there.
                    Some(ours)
                        if authenticated
                            && letter.has_attributes()
                            && (self.is_bound(&ours) || letter.ours().any())
                            && letter.ours() != ours =>
                    {
                        Err(OpenError::Tampered { what: "the attributes of the envelope" })
                    }
                    Some(ours) => {
                        let payload = plaintext.slice_ref(signed.payload);
                        self.read_opened(&ours, payload, Quality::Privacy, letter.names)
                    }
                    None => Err(OpenError::Unsigned),
                };
                (claims, opened)
            }
            Err(error) => {
                let claims = vec![Err(SignedError::Early(error))].into_iter();
                (claims, Err(OpenError::Unsigned))
            }
        };
        Proof { question: self, claims, signer: None, opened, cbc, fresh_key }.go_on()
    }

    fn open_confidential(&self, letter: Letter, plaintext: Bytes) -> Result<Verified<Opened>, OpenError> {
        if letter.bare_signed {
            return Err(other_quality(Quality::Confidentiality));
        }
        let ours = letter.ours();
        let authenticated = letter.cipher().is_authenticated();
        if authenticated && !letter.has_attributes() && self.policy.requires_binding() && cms::looks_sealed(&plaintext)
        {
            // Privacy, by the look of it: its binding is inside, and a policy without a signature does not look there.
            return Err(other_quality(Quality::Confidentiality));
        }
        let content = self.content(&ours, plaintext)?;
        if authenticated {
            self.check_recipients(&ours, letter.recipients_digest())?;
        }
        let binding = if authenticated { self.check_binding(&ours, Quality::Confidentiality)? } else { None };
        let (sealed_by, told) = self.said(binding);
        let seal = SealInfo {
            quality: Quality::Confidentiality,
            signer: None,
            signer_certificate: None,
            signing_time: None,
            sealed_by,
            on_behalf_of: if authenticated { on_behalf_of(&ours)?.map(Box::new) } else { None },
            bound: authenticated && ours.any(),
            proved: authenticated,
            binding: told,
            recipients: letter.names,
        };
        self.tally.bytes_out(content.bytes.len());
        Ok(Verified::new(Opened { content, seal }))
    }

    /// Content and seal as the attributes have them, the signer left out.
    fn read_opened(
        &self,
        ours: &Ours<'_>,
        payload: Bytes,
        quality: Quality,
        recipients: Vec<Bytes>,
    ) -> Result<Opened, OpenError> {
        let content = self.content(ours, payload)?;
        let (sealed_by, binding) = self.said(self.check_binding(ours, quality)?);
        let bound = ours.any();
        let seal = SealInfo {
            quality,
            signer: None,
            signer_certificate: None,
            signing_time: None,
            recipients,
            sealed_by,
            on_behalf_of: on_behalf_of(ours)?.map(Box::new),
            bound,
            proved: true,
            binding,
        };
        Ok(Opened { content, seal })
    }

    fn check_arrived(self) -> Result<Step<(), OpenError>, OpenError> {
        let der = self.der.clone();
        match self.read(&der)? {
            Container::Signed(signed) => self.open_signed(&signed).map(|step| step.map(drop)),
            Container::Batch(batch) => self.open_batch(&batch).map(|step| step.map(drop)),
            Container::Enveloped(envelope) => {
                Cache::check_recipients(&self.policy, &self.ring, &envelope.recipients)?;
                self.check_envelope(&envelope).map(Step::Done)
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
            Container::Batch(batch) => {
                let attributes = self.batch_attributes(&batch, &mut Ascent::default())?;
                self.check_binding(&attributes.ours, Quality::Integrity).map(|_| ())
            }
            Container::Enveloped(envelope) => self.check_envelope(&envelope),
        }
    }

    /// What an envelope shows without a key. With privacy that is form, algorithms and recipients:
    /// signature and binding are inside and judged when it is opened. Where there are attributes outside, as the
    /// former profile had them, they are compared.
    fn check_envelope(&self, envelope: &Enveloped<'_>) -> Result<(), OpenError> {
        let inside = self.policy.sign.is_some() && envelope.attributes_whole.is_none();
        if inside || !envelope.cipher.is_authenticated() {
            return Ok(());
        }
        let ours = envelope.attributes.ours;
        self.check_recipients(&ours, &sha256(envelope.recipients_whole))?;
        self.check_binding(&ours, self.policy.quality()).map(|_| ())
    }

    /// The first recipient that is one of this identity's keys, old ones too. Under a weak policy only a key that
    /// belongs to the policy's recipients alone is used.
    fn find_own<'a>(&self, envelope: &Enveloped<'a>) -> Result<(&Own, Recipient<'a>), OpenError> {
        let find = |recipient: &Recipient<'a>| match recipient.name {
            Name::IssuerAndSerial(name) => self.ring.find_own(name).filter(|own| !own.certificate.dn().is_of_svid()),
            Name::Key(id) => {
                let mut own = self.ring.own().iter().filter(|own| !own.certificate.dn().is_of_svid());
                own.find(|own| own.certificate.subject_key_id() == Some(id)).map(AsRef::as_ref)
            }
        };
        let mut mine = envelope.recipients.iter().filter_map(|one| find(one).map(|own| (own, *one)));
        let (own, recipient) = mine.next().ok_or(OpenError::NotARecipient)?;
        if self.policy.is_weak() && !self.is_for_this_alone(own) {
            const WHAT: &str = "AES-CBC without a signature for a key that opens other messages too";
            return Err(OpenError::WeakerThanPolicy { what: WHAT });
        }
        Ok((own, recipient))
    }

    /// Whether all certificates of a key are in names of the policy's recipients.
    fn is_for_this_alone(&self, own: &Own) -> bool {
        let same_key = self.ring.own().iter().filter(|other| other.key.id() == own.key.id());
        same_key.map(|other| other.certificate.dn()).all(|dn| self.policy.recipients.contains(dn))
    }

    fn content(&self, ours: &Ours<'_>, bytes: Bytes) -> Result<Content, OpenError> {
        let (packing, content_type) = match ours.content {
            Some(value) => read_content(value)?,
            None => (Packing::Data, None),
        };
        Ok(Content { packing, content_type: content_type.map(str::to_owned), bytes })
    }

    /// By which moment the dates of the signer's certificate are judged: the put, or the time at which the message was
    /// sealed anew on the queue, which is signed. That was after the put, so no signer can choose a time before it.
    fn judged_at(&self, ours: &Ours<'_>) -> Result<SystemTime, Malformed> {
        let resealed_at = on_behalf_of(ours)?.map(|said| said.resealed_at);
        Ok(resealed_at.map_or(self.put_at, |at| at.min(self.now).max(self.put_at)))
    }

    /// Whether the rules of bound messages hold for this one: the policy says so, or the message does.
    fn is_bound(&self, ours: &Ours<'_>) -> bool {
        self.policy.requires_binding() || ours.any()
    }

    /// Compares the binding with the place, and returns it.
    fn check_binding<'a>(&self, ours: &Ours<'a>, quality: Quality) -> Result<Option<Binding<'a>>, OpenError> {
        if !self.is_bound(ours) {
            return Ok(None);
        }
        let (Some(binding), Some(_)) = (ours.binding, ours.content) else {
            return Err(OpenError::Unbound);
        };
        let binding = Binding::read(binding)?;
        on_behalf_of(ours)?;
        if binding.quality != quality {
            return Err(other_quality(quality));
        }
        if let Place::Here(expect) = &self.place {
            binding.check(expect, &self.policy.bind_names)?;
        }
        Ok(Some(binding))
    }

    /// Who sealed, if it was not the application; and the binding, where it is told.
    fn said(&self, binding: Option<Binding<'_>>) -> (Option<String>, Option<Box<SealedBinding>>) {
        let Some(binding) = binding else { return (None, None) };
        let told = matches!(self.place, Place::Told).then(|| {
            Box::new(SealedBinding {
                destination: binding.destination.to_owned(),
                message_id: Bytes::copy_from_slice(binding.message_id),
                properties: *binding.properties,
                application_properties: *binding.application_properties,
                annotations: binding.annotations.copied(),
            })
        });
        (binding.sealed_by.map(str::to_owned), told)
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

    /// A signer's attributes, once its digest is the policy's and fits the payload.
    fn signed_attributes<'a>(
        &self,
        signed: &SignedData<'a>,
        signer: &SignerInfo<'a>,
    ) -> Result<Attributes<'a>, OpenError> {
        if self.policy.sign != Some(signer.digest) {
            return Err(OpenError::WeakerThanPolicy { what: "another signature digest than SIGNALG" });
        }
        check_pqc(&self.policy, matches!(signer.kind, SignatureKind::MlDsa(_)))?;
        let attributes = signer.attributes;
        attributes.check_content_type(crate::oid::ID_DATA)?;
        if *signer.digest.hash(signed.payload) != *attributes.digest()? {
            return Err(OpenError::Tampered { what: "the digest of the payload" });
        }
        Ok(attributes)
    }

    /// The attributes of a message that shares its signature, once they fit the payload and lead to the root, and the
    /// root is what its signer's attributes say. All of it is with the policy's digest.
    fn batch_attributes<'a>(&self, batch: &BatchSigned<'a>, seen: &mut Ascent) -> Result<Attributes<'a>, OpenError> {
        let digest = batch.root.digest;
        if self.policy.sign != Some(digest) {
            return Err(OpenError::WeakerThanPolicy { what: "another signature digest than SIGNALG" });
        }
        let attributes = batch.attributes;
        attributes.check_content_type(crate::oid::ID_DATA)?;
        if *digest.hash(batch.payload) != *attributes.digest()? {
            return Err(OpenError::Tampered { what: "the digest of the payload" });
        }
        if !batch.is_in_tree(seen) {
            return Err(OpenError::Tampered { what: "the path to what was signed" });
        }
        for signer in &batch.signed.signers {
            check_pqc(&self.policy, matches!(signer.kind, SignatureKind::MlDsa(_)))?;
            signer.attributes.check_content_type(crate::oid::BATCH_ROOT)?;
            if *digest.hash(batch.signed.payload) != *signer.attributes.digest()? {
                return Err(OpenError::Tampered { what: "the digest of the batch's root" });
            }
        }
        Ok(attributes)
    }
}

/// On whose behalf a message says that it was sealed anew.
fn on_behalf_of(ours: &Ours<'_>) -> Result<Option<OnBehalfOf>, Malformed> {
    ours.on_behalf_of.map(OnBehalfOf::read).transpose()
}

/// Content cipher, key transport and key wrap must be the policy's, and the kind of key one that PQC allows, each
/// recipient's of them: a recipient info of another cipher pasted into this envelope would otherwise make the opener
/// answer questions about that other cipher's key.
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
            (Transport::Kem { .. }, KeyTransport::Auto | KeyTransport::Pkcs1)
                if envelope.cipher.key_len() == KEM_WRAPPING_KEY_BYTES => {}
            _ => return Err(OpenError::WeakerThanPolicy { what: "another key transport than KEYWRAP" }),
        }
        check_pqc(policy, matches!(recipient.transport, Transport::Kem { .. }))?;
    }
    Ok(())
}

/// Whether PQC allows a signer or a recipient of that kind. One recipient with an RSA or EC key is a way to the content
/// that needs no other, so none may have one under PQC(REQUIRED).
fn check_pqc(policy: &Policy, is_post_quantum: bool) -> Result<(), OpenError> {
    match (policy.pqc, is_post_quantum) {
        (Pqc::None, true) => Err(OpenError::WeakerThanPolicy { what: "ML-KEM or ML-DSA, and PQC(NONE)" }),
        (Pqc::Required, false) => Err(OpenError::WeakerThanPolicy { what: "RSA or EC keys, and PQC(REQUIRED)" }),
        _ => Ok(()),
    }
}

fn unwrap_work(envelope: &Enveloped<'_>, recipient: &Recipient<'_>, own: &Own) -> Result<Work, OpenError> {
    match (recipient.transport, own.key.kind()) {
        (Transport::Rsa(padding), KeyKind::Rsa) => Ok(Work::RsaUnwrap {
            padding,
            wrapped: recipient.encrypted_key.to_vec(),
            expected_len: envelope.cipher.key_len(),
        }),
        (Transport::Ecdh { point, .. }, KeyKind::Ec(_)) => Ok(Work::EcdhDerive { peer: point.to_vec() }),
        (Transport::Kem { set, ciphertext, .. }, KeyKind::MlKem(own)) if set == own => {
            Ok(Work::MlKemDecapsulate { ciphertext: ciphertext.to_vec() })
        }
        _ => Err(Malformed("a recipient's key and its transport disagree").into()),
    }
}

/// How to come from a device's answer to the content key; owns what it needs of the recipient.
enum KeyWay {
    /// The answer is the key.
    Transport,
    /// The answer is a shared secret.
    Agreement { kdf: Digest, wrap_len: usize, shared: Vec<u8>, encrypted_key: Vec<u8> },
    /// The answer is an encapsulated secret.
    Encapsulation { other_info: Vec<u8>, encrypted_key: Vec<u8> },
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
            Transport::Kem { ukm, .. } => KeyWay::Encapsulation {
                other_info: kem_other_info(ukm),
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
            KeyWay::Encapsulation { other_info, encrypted_key } => {
                let wrapping = symmetric::hkdf_sha256(secret, other_info, KEM_WRAPPING_KEY_BYTES)?;
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

/// What an envelope holds where something signed is wanted.
enum Inside<'a> {
    Signed(SignedData<'a>),
    Batch(Box<BatchSigned<'a>>),
}

/// The signed message inside an envelope: a whole message of its own, or a bare `SignedData` where the envelope
/// says so.
fn read_inner<'a>(letter: &Letter, plaintext: &'a [u8]) -> Result<Inside<'a>, OpenError> {
    if letter.bare_signed {
        return SignedData::read(plaintext, crate::oid::ID_DATA).map(Inside::Signed);
    }
    match cms::read(plaintext) {
        Ok(Container::Signed(signed)) => Ok(Inside::Signed(signed)),
        Ok(Container::Batch(batch)) => Ok(Inside::Batch(Box::new(batch))),
        Ok(Container::Enveloped(_)) | Err(OpenError::NotSealed) => Err(OpenError::Unsigned),
        Err(error) => Err(error),
    }
}
