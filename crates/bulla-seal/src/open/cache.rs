//! What an opener remembers: content keys that opened something, signers' certificates with the verdict
//! on their paths, and who the recipients in a ring are. All of it is bounded; keys are zeroized.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use openssl::cipher_ctx::CipherCtx;
use zeroize::Zeroizing;

use crate::certificate::Certificate;
use crate::cms::Name;
use crate::cms::enveloped::Recipient;
use crate::cms::signed::SignedData;
use crate::error::OpenError;
use crate::policy::{ContentCipher, Policy, Revocation};
use crate::ring::{Ring, Verdict};
use crate::symmetric;

/// Content keys remembered. Those that were not used lately go first.
pub const CACHED_KEYS_MAX: usize = 1024;
/// A content key is forgotten when it is this old.
pub const CACHED_KEY_AGE_MAX: Duration = Duration::from_secs(3600);
/// Signers remembered.
pub const CACHED_SIGNERS_MAX: usize = 1024;

/// The caches of one opener, shared by its clones. Locks are held for a look-up, never for a
/// cryptographic operation.
#[derive(Default)]
pub(crate) struct Cache {
    keys: Mutex<Keys>,
    signers: Mutex<Signers>,
}

/// Where a content key lies: whose private key unwraps it, and from which recipients and cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) key_id: [u8; 32],
    pub(crate) recipients: [u8; 32],
    pub(crate) cipher: ContentCipher,
    pub(crate) generation: u64,
}

/// The recipients differ from key to key and the rest hardly ever, so they alone are hashed.
impl std::hash::Hash for KeyPlace {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(&self.recipients);
    }
}

/// A content key taken out of the cache to work with.
pub(crate) struct CachedKey {
    pub(crate) context: CipherCtx,
}

/// Two halves: what is used moves to the recent one, and when that is full it becomes the older one,
/// whose keys go all at once. A message whose key is never seen again costs one insertion.
#[derive(Default)]
struct Keys {
    recent: HashMap<KeyPlace, KeyEntry>,
    older: HashMap<KeyPlace, KeyEntry>,
    /// The last generation of each user's ring; a new one forgets what the old one unwrapped.
    generations: HashMap<String, u64>,
}

struct KeyEntry {
    key: Zeroizing<Vec<u8>>,
    /// Absent until the key is used again, and while somebody works with it.
    context: Option<CipherCtx>,
    policy: Arc<Policy>,
    born: SystemTime,
}

impl Keys {
    fn forget_older_rings(&mut self, user: &str, generation: u64) {
        match self.generations.get_mut(user) {
            Some(last) if *last == generation => {}
            Some(last) => {
                let old = std::mem::replace(last, generation);
                self.recent.retain(|place, _| place.generation != old);
                self.older.retain(|place, _| place.generation != old);
            }
            None => {
                self.generations.insert(user.to_owned(), generation);
            }
        }
    }

    fn get(&mut self, place: &KeyPlace) -> Option<&mut KeyEntry> {
        if let Some(entry) = self.older.remove(place) {
            self.insert(*place, entry);
        }
        self.recent.get_mut(place)
    }

    fn insert(&mut self, place: KeyPlace, entry: KeyEntry) {
        if self.recent.len() >= CACHED_KEYS_MAX / 2 {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(place, entry);
    }

    fn remove(&mut self, place: &KeyPlace) {
        self.recent.remove(place);
        self.older.remove(place);
    }
}

#[derive(Default)]
struct Signers {
    /// By the ring's generation, the certificate's issuer and serial number, and where the certificate came from.
    known: HashMap<(u64, Vec<u8>, Source), KnownSigner>,
}

/// Where a signer's certificate came from. What one message carried is not known for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Message,
    Ring,
}

/// The other certificates that a message carried: a path that needs them holds for messages with the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hints([u8; 32]);

impl Hints {
    /// Of certificates in DER, in the message's order.
    pub(crate) fn of<'a>(certificates: impl Iterator<Item = &'a [u8]>) -> Hints {
        // Each is DER and so tells its own length: joined they can be read in one way only.
        let mut certificates = certificates.peekable();
        if certificates.peek().is_none() {
            return Hints([0; 32]);
        }
        let mut hash = openssl::sha::Sha256::new();
        certificates.for_each(|der| hash.update(der));
        Hints(hash.finish())
    }
}

/// A signer's certificate with what was found out about it.
#[derive(Clone)]
pub(crate) struct KnownSigner {
    pub(crate) certificate: Certificate,
    source: Source,
    verdict: Option<(Hints, Verdict)>,
}

impl KnownSigner {
    /// Whether its path was verified with the same certificates offered, and the finding holds at these times.
    pub(crate) fn is_believed(&self, hints: Hints, asked: Revocation, put_at: SystemTime, now: SystemTime) -> bool {
        self.verdict.as_ref().is_some_and(|(with, verdict)| *with == hints && verdict.holds(asked, put_at, now))
    }

    /// The same, with what was found out of its path when these certificates were offered.
    pub(crate) fn judged(self, hints: Hints, verdict: Verdict) -> KnownSigner {
        KnownSigner { verdict: Some((hints, verdict)), ..self }
    }
}

impl Cache {
    pub(crate) fn flush(&self) {
        *lock(&self.keys) = Keys::default();
        *lock(&self.signers) = Signers::default();
    }

    /// A live content key. The same key may be in use elsewhere: then another context is made for it.
    pub(crate) fn content_key(
        &self,
        place: &KeyPlace,
        policy: &Arc<Policy>,
        user: &str,
        now: SystemTime,
    ) -> Option<CachedKey> {
        let mut keys = lock(&self.keys);
        keys.forget_older_rings(user, place.generation);
        let entry = keys.get(place)?;
        if !is_young(entry.born, now) || !Arc::ptr_eq(&entry.policy, policy) {
            keys.remove(place);
            return None;
        }
        if let Some(context) = entry.context.take() {
            return Some(CachedKey { context });
        }
        let key = entry.key.clone();
        drop(keys);
        symmetric::decryptor(place.cipher, &key).ok().map(|context| CachedKey { context })
    }

    /// Puts the context back where the next message finds it.
    pub(crate) fn give_back(&self, place: &KeyPlace, key: CachedKey) {
        if let Some(entry) = lock(&self.keys).get(place) {
            entry.context = Some(key.context);
        }
    }

    /// Takes out a key that is not to be used again.
    pub(crate) fn forget_key(&self, place: &KeyPlace) {
        lock(&self.keys).remove(place);
    }

    /// Remembers the key alone: most keys are never seen again, and a context is ten times as large. The
    /// second message with this key makes one.
    pub(crate) fn remember_key(
        &self,
        place: KeyPlace,
        policy: &Arc<Policy>,
        user: &str,
        now: SystemTime,
        key: Zeroizing<Vec<u8>>,
    ) {
        let mut keys = lock(&self.keys);
        keys.forget_older_rings(user, place.generation);
        keys.remove(&place);
        keys.insert(place, KeyEntry { key, context: None, policy: Arc::clone(policy), born: now });
    }

    /// The signer of that name: out of the message, or out of the ring, remembered or not. A remembered one out of a
    /// message counts only for the very certificate that this message carries.
    pub(crate) fn signer(
        &self,
        ring: &Ring,
        name: &Name<'_>,
        signed: &SignedData<'_>,
    ) -> Result<KnownSigner, OpenError> {
        if let Name::IssuerAndSerial(issuer_and_serial) = name {
            let signers = lock(&self.signers);
            let known = |source| signers.known.get(&(ring.generation(), issuer_and_serial.to_vec(), source));
            let here = |known: &&KnownSigner| signed.certificates.contains(&known.certificate.der());
            if let Some(known) = known(Source::Message).filter(here) {
                return Ok(known.clone());
            }
            if let Some(known) = known(Source::Ring).filter(|known| signed.certificates.is_empty() || here(known)) {
                return Ok(known.clone());
            }
        }
        find_signer(ring, name, signed)
    }

    /// A signer whose certificate is the ring's, with what is known of it.
    pub(crate) fn signer_in_ring(&self, ring: &Ring, certificate: &Certificate) -> KnownSigner {
        let at = (ring.generation(), certificate.issuer_and_serial().to_vec(), Source::Ring);
        match lock(&self.signers).known.get(&at).filter(|known| known.certificate == *certificate) {
            Some(known) => known.clone(),
            None => KnownSigner { certificate: certificate.clone(), source: Source::Ring, verdict: None },
        }
    }

    pub(crate) fn remember_signer(&self, ring: &Ring, known: KnownSigner) {
        let at = (ring.generation(), known.certificate.issuer_and_serial().to_vec(), known.source);
        let mut signers = lock(&self.signers);
        if signers.known.len() >= CACHED_SIGNERS_MAX && !signers.known.contains_key(&at) {
            signers.known.clear();
        }
        signers.known.insert(at, known);
    }

    /// Whether an envelope's recipients are exactly those that the policy names.
    pub(crate) fn check_recipients(
        policy: &Policy,
        ring: &Ring,
        recipients: &[Recipient<'_>],
    ) -> Result<(), OpenError> {
        const OTHERS: OpenError = OpenError::WeakerThanPolicy { what: "other recipients than RECIP" };
        let mut named = Vec::with_capacity(recipients.len());
        for recipient in recipients {
            let Name::IssuerAndSerial(name) = recipient.name else { return Err(OTHERS) };
            let dn = ring.name_of(name).filter(|dn| policy.recipients.contains(dn)).ok_or(OTHERS)?;
            named.push(dn);
        }
        if policy.recipients.iter().all(|dn| named.contains(&dn)) { Ok(()) } else { Err(OTHERS) }
    }
}

fn find_signer(ring: &Ring, name: &Name<'_>, signed: &SignedData<'_>) -> Result<KnownSigner, OpenError> {
    let is_it = |certificate: &Certificate| match name {
        Name::IssuerAndSerial(wanted) => certificate.issuer_and_serial() == *wanted,
        Name::Key(id) => certificate.subject_key_id() == Some(*id),
    };
    for der in &signed.certificates {
        let certificate =
            Certificate::from_der(der).map_err(|_| OpenError::Malformed { what: "a certificate is unreadable" })?;
        if is_it(&certificate) {
            return Ok(KnownSigner { certificate, source: Source::Message, verdict: None });
        }
    }
    let people = ring.people().iter().map(|person| &person.certificate);
    let own = ring.own().iter().map(|own| &own.certificate);
    let mut known = people.chain(own);
    known
        .find(|certificate| is_it(certificate))
        .map(|certificate| KnownSigner { certificate: certificate.clone(), source: Source::Ring, verdict: None })
        .ok_or(OpenError::Tampered { what: "the signer's certificate, which is not there," })
}

fn is_young(born: SystemTime, now: SystemTime) -> bool {
    now.duration_since(born).is_ok_and(|age| age < CACHED_KEY_AGE_MAX)
}

/// A thread that panicked held the lock for a look-up only: what it guards is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
