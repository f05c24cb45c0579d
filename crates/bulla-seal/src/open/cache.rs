//! What an opener remembers: content keys that opened something, signers' certificates with the verdict
//! on their paths, and who the recipients in a ring are. All of it is bounded; keys are zeroized.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bulla_device::key_memory::KeyBytes;
use openssl::cipher_ctx::CipherCtx;
use zeroize::{Zeroize, Zeroizing};

use crate::certificate::Certificate;
use crate::cms::Name;
use crate::cms::attributes::sha256;
use crate::cms::batch::BatchSigned;
use crate::cms::enveloped::Recipient;
use crate::cms::signed::SignedData;
use crate::error::OpenError;
use crate::hash_tree::Ascent;
use crate::policy::{ContentCipher, Policy, Revocation};
use crate::ring::{Ring, Verdict};
use crate::symmetric;

/// Content keys remembered. Those that were not used lately go first.
pub const CACHED_KEYS_MAX: usize = 1024;
/// A content key is forgotten when it is this old.
pub const CACHED_KEY_AGE_MAX: Duration = Duration::from_secs(3600);
/// Signers remembered.
pub const CACHED_SIGNERS_MAX: usize = 1024;

/// Roots of batches remembered.
pub const CACHED_ROOTS_MAX: usize = 4096;

/// Batches whose root's bytes are kept, so that it is not hashed for each of their messages.
const CACHED_TREES_MAX: usize = 32;
/// Bytes of a root that is kept. One with ML-DSA-87 and two certificates takes about 20,000.
const CACHED_TREE_BYTES_MAX: usize = 24 << 10;

/// Sets of recipients remembered.
const CACHED_RECIPIENTS_MAX: usize = 64;
/// Bytes of a set of recipients that is remembered. One recipient takes about 400.
const CACHED_RECIPIENTS_BYTES_MAX: usize = 4 << 10;

/// The caches of one opener, shared by its clones. Locks are held for a look-up, never for a
/// cryptographic operation.
#[derive(Default)]
pub(crate) struct Cache {
    keys: Mutex<Keys>,
    signers: Mutex<Signers>,
    recipients: Mutex<Recipients>,
    roots: Mutex<Roots>,
    trees: Mutex<Vec<Option<TreeEntry>>>,
}

/// Roots of batches whose signature was found good, each with SHA-256 of the certificate that it is of. Two halves:
/// when the recent one is full it becomes the older one, and what was that is forgotten. One that was found bad is not
/// here.
#[derive(Default)]
struct Roots {
    recent: HashMap<[u8; 32], [u8; 32]>,
    older: HashMap<[u8; 32], [u8; 32]>,
}

/// A batch of which messages came before.
struct TreeEntry {
    root_whole: Box<[u8]>,
    tree: KnownTree,
}

/// What need not be computed again for the next message of a batch: it says nothing of who signed.
#[derive(Clone)]
pub(crate) struct KnownTree {
    /// SHA-256 of the root as messages carry it.
    pub(crate) root: [u8; 32],
    /// The nodes on the path of its last message.
    pub(crate) ascent: Ascent,
}

impl KnownTree {
    /// For the first message of a batch.
    pub(crate) fn first(batch: &BatchSigned<'_>) -> KnownTree {
        KnownTree { root: sha256(batch.root_whole), ascent: Ascent::default() }
    }
}

/// Sets of recipients that came again, with their SHA-256. A reused content key comes with the same set each time, and
/// comparing it costs less than hashing it.
#[derive(Default)]
struct Recipients {
    known: Vec<Option<KnownRecipients>>,
}

struct KnownRecipients {
    whole: Box<[u8]>,
    digest: [u8; 32],
}

/// Where a content key lies: whose private key unwraps it, and from which recipients and cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) key_id: [u8; 32],
    pub(crate) recipients: [u8; 32],
    pub(crate) cipher: ContentCipher,
    pub(crate) generation: u64,
}

/// The recipients differ from key to key and the rest hardly ever, so they alone are hashed. Theirs is a digest
/// already: a part of it will do.
impl Hash for KeyPlace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let first = self.recipients.first_chunk().copied().unwrap_or_default();
        state.write_u64(u64::from_ne_bytes(first));
    }
}

/// Makes a place in a table of a number that is spread evenly already. Two random numbers of this process go into it,
/// so that a sender who looks for recipients whose digests lie close together finds none.
#[derive(Clone)]
struct Spread {
    added: u64,
    factor: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        let random = RandomState::new();
        Spread { added: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for Spread {
    type Hasher = Spreading;

    fn build_hasher(&self) -> Spreading {
        Spreading { with: self.clone(), sum: 0 }
    }
}

struct Spreading {
    with: Spread,
    sum: u64,
}

impl Hasher for Spreading {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let wide = u128::from(self.sum ^ number ^ self.with.added) * u128::from(self.with.factor);
        self.sum = (wide >> 64) as u64 ^ wide as u64;
    }

    fn finish(&self) -> u64 {
        self.sum
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
    recent: Half,
    older: Half,
    /// The last generation of each user's ring; a new one forgets what the old one unwrapped.
    generations: HashMap<String, u64>,
    /// The generation that was looked at last. No two rings have the same.
    last: u64,
}

/// Bytes of the longest content key.
const KEY_BYTES_MAX: usize = 32;

/// Entries, and their keys in memory that is not written to swap.
#[derive(Default)]
struct Half {
    entries: HashMap<KeyPlace, KeyEntry, Spread>,
    /// Places of [`KEY_BYTES_MAX`] bytes; absent until there is a key.
    keys: Option<KeyBytes>,
    /// Places that were given out. One that is left is overwritten and not given out again.
    given: usize,
}

impl Half {
    fn is_full(&self) -> bool {
        self.given >= CACHED_KEYS_MAX / 2
    }

    /// The key of an entry that says so.
    fn key(&self, at: usize, len: usize) -> Zeroizing<Vec<u8>> {
        let all = self.keys.as_deref().unwrap_or_default();
        Zeroizing::new(all.get(at..at + len).unwrap_or_default().to_vec())
    }

    /// Takes a key in, where this half is not full.
    fn insert(&mut self, place: KeyPlace, key: &[u8], mut entry: KeyEntry) {
        self.remove(&place);
        let keys = self.keys.get_or_insert_with(|| KeyBytes::zeroed(CACHED_KEYS_MAX / 2 * KEY_BYTES_MAX));
        let at = self.given * KEY_BYTES_MAX;
        if let Some(slot) = keys.get_mut(at..at + key.len()).filter(|_| key.len() <= KEY_BYTES_MAX) {
            slot.copy_from_slice(key);
            (entry.at, entry.len) = (at, key.len());
            self.given += 1;
            self.entries.insert(place, entry);
        }
    }

    fn remove(&mut self, place: &KeyPlace) {
        if !self.entries.is_empty()
            && let Some(entry) = self.entries.remove(place)
        {
            wipe(&mut self.keys, &entry);
        }
    }

    fn forget_ring(&mut self, generation: u64) {
        let keys = &mut self.keys;
        self.entries.retain(|place, entry| {
            let stays = place.generation != generation;
            if !stays {
                wipe(keys, entry);
            }
            stays
        });
    }

    fn clear(&mut self) {
        self.entries.clear();
        if let Some(keys) = &mut self.keys {
            keys.zeroize();
        }
        self.given = 0;
    }
}

/// Overwrites the key of an entry.
fn wipe(keys: &mut Option<KeyBytes>, entry: &KeyEntry) {
    if let Some(slot) = keys.as_mut().and_then(|keys| keys.get_mut(entry.at..entry.at + entry.len)) {
        slot.zeroize();
    }
}

struct KeyEntry {
    /// Where its key begins in its half, and how long it is.
    at: usize,
    len: usize,
    /// Absent until the key is used again, and while another message works with it.
    context: Option<CipherCtx>,
    policy: Arc<Policy>,
    born: SystemTime,
}

impl Keys {
    fn forget_older_rings(&mut self, user: &str, generation: u64) {
        if self.last == generation {
            return;
        }
        self.last = generation;
        match self.generations.get_mut(user) {
            Some(last) if *last == generation => {}
            Some(last) => {
                let old = std::mem::replace(last, generation);
                self.recent.forget_ring(old);
                self.older.forget_ring(old);
            }
            None => {
                self.generations.insert(user.to_owned(), generation);
            }
        }
    }

    fn get(&mut self, place: &KeyPlace) -> Option<&mut KeyEntry> {
        if !self.older.entries.is_empty()
            && let Some(entry) = self.older.entries.remove(place)
        {
            let key = self.older.key(entry.at, entry.len);
            wipe(&mut self.older.keys, &entry);
            self.insert(*place, &key, entry);
        }
        self.recent.entries.get_mut(place)
    }

    fn insert(&mut self, place: KeyPlace, key: &[u8], entry: KeyEntry) {
        if self.recent.is_full() {
            std::mem::swap(&mut self.recent, &mut self.older);
            self.recent.clear();
        }
        self.recent.insert(place, key, entry);
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
        *lock(&self.recipients) = Recipients::default();
        *lock(&self.roots) = Roots::default();
        lock(&self.trees).clear();
    }

    /// SHA-256 of a whole set of recipients, and whether it was remembered.
    pub(crate) fn recipients_digest(&self, whole: &[u8]) -> ([u8; 32], bool) {
        let known = match lock(&self.recipients).known.get(slot_of(whole)) {
            Some(Some(known)) if *known.whole == *whole => Some(known.digest),
            _ => None,
        };
        match known {
            Some(digest) => (digest, true),
            None => (sha256(whole), false),
        }
    }

    /// Remembers a set of recipients in the place of another one.
    pub(crate) fn remember_recipients(&self, whole: &[u8], digest: [u8; 32]) {
        if whole.len() > CACHED_RECIPIENTS_BYTES_MAX {
            return;
        }
        let known = &mut lock(&self.recipients).known;
        known.resize_with(CACHED_RECIPIENTS_MAX, || None);
        if let Some(slot) = known.get_mut(slot_of(whole)) {
            *slot = Some(KnownRecipients { whole: whole.into(), digest });
        }
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
        let (at, len) = (entry.at, entry.len);
        let key = keys.recent.key(at, len);
        drop(keys);
        symmetric::decryptor(place.cipher, &key).ok().map(|context| CachedKey { context })
    }

    /// Puts the context back where the next message finds it.
    pub(crate) fn give_back(&self, place: &KeyPlace, key: CachedKey) {
        if let Some(entry) = lock(&self.keys).get(place) {
            entry.context = Some(key.context);
        }
    }

    /// Whether these root bytes were found to carry a good signature of that certificate, both by SHA-256.
    pub(crate) fn knows_root(&self, root: &[u8; 32], certificate: &[u8; 32]) -> bool {
        let roots = lock(&self.roots);
        roots.recent.get(root).or_else(|| roots.older.get(root)) == Some(certificate)
    }

    /// Remembers that these root bytes carry a good signature of that certificate.
    pub(crate) fn remember_root(&self, root: [u8; 32], certificate: [u8; 32]) {
        let mut roots = lock(&self.roots);
        if roots.recent.len() >= CACHED_ROOTS_MAX / 2 && !roots.recent.contains_key(&root) {
            roots.older = std::mem::take(&mut roots.recent);
        }
        roots.recent.insert(root, certificate);
    }

    /// What is known of the batch that this message is of, where it carries the very root that others did.
    pub(crate) fn tree(&self, batch: &BatchSigned<'_>) -> Option<KnownTree> {
        let trees = lock(&self.trees);
        let entry = trees.get(tree_slot(batch))?.as_ref()?;
        (*entry.root_whole == *batch.root_whole).then(|| entry.tree.clone())
    }

    /// Remembers a batch in the place of another one. Only one whose root is known to be good: otherwise anyone could
    /// fill the places with rubbish.
    pub(crate) fn remember_tree(&self, batch: &BatchSigned<'_>, tree: KnownTree) {
        if batch.root_whole.len() > CACHED_TREE_BYTES_MAX {
            return;
        }
        let mut trees = lock(&self.trees);
        trees.resize_with(CACHED_TREES_MAX, || None);
        match trees.get_mut(tree_slot(batch)) {
            Some(Some(entry)) if *entry.root_whole == *batch.root_whole => entry.tree = tree,
            Some(slot) => *slot = Some(TreeEntry { root_whole: batch.root_whole.into(), tree }),
            None => {}
        }
    }

    /// Takes out a key that is not to be used again.
    pub(crate) fn forget_key(&self, place: &KeyPlace) {
        lock(&self.keys).remove(place);
    }

    /// Remembers the key alone: most keys are never seen again, and a context is ten times as large. The
    /// second message with this key makes one.
    pub(crate) fn remember_key(&self, place: KeyPlace, policy: &Arc<Policy>, user: &str, now: SystemTime, key: &[u8]) {
        let mut keys = lock(&self.keys);
        keys.forget_older_rings(user, place.generation);
        keys.remove(&place);
        keys.insert(place, key, KeyEntry { at: 0, len: 0, context: None, policy: Arc::clone(policy), born: now });
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

/// Where a batch is remembered: the numbers of trees are random.
fn tree_slot(batch: &BatchSigned<'_>) -> usize {
    usize::from(batch.root.tree[0]) % CACHED_TREES_MAX
}

/// Where a set of recipients is remembered, by its last byte, which is one of a wrapped key.
fn slot_of(recipients: &[u8]) -> usize {
    usize::from(recipients.last().copied().unwrap_or(0)) % CACHED_RECIPIENTS_MAX
}

fn is_young(born: SystemTime, now: SystemTime) -> bool {
    now.duration_since(born).is_ok_and(|age| age < CACHED_KEY_AGE_MAX)
}

/// A thread that panicked held the lock for a look-up only: what it guards is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: usize, generation: u64) -> KeyPlace {
        let recipients = sha256(&number.to_be_bytes());
        KeyPlace { key_id: [0; 32], recipients, cipher: ContentCipher::Aes256Gcm, generation }
    }

    fn entry(policy: &Arc<Policy>) -> KeyEntry {
        KeyEntry { at: 0, len: 0, context: None, policy: Arc::clone(policy), born: SystemTime::UNIX_EPOCH }
    }

    /// The bytes of both halves that are not zero.
    fn left(keys: &Keys) -> usize {
        let halves = [&keys.recent, &keys.older].into_iter().filter_map(|half| half.keys.as_deref());
        halves.flatten().filter(|byte| **byte != 0).count()
    }

    #[test]
    fn a_key_is_found_until_it_is_the_one_not_used_lately_and_is_overwritten_when_it_goes() {
        let policy = Arc::new(Policy::new("Q"));
        let mut keys = Keys::default();
        let key = |number: usize| [(number % 251) as u8 + 1; KEY_BYTES_MAX];
        for number in 0..3 * CACHED_KEYS_MAX {
            keys.insert(place(number, 1), &key(number), entry(&policy));
            // The first is always in use, so it stays.
            let found = keys.get(&place(0, 1)).map(|entry| (entry.at, entry.len)).unwrap();
            assert_eq!(*keys.recent.key(found.0, found.1), key(0), "{number}");
            let count = keys.recent.entries.len() + keys.older.entries.len();
            assert!(count <= CACHED_KEYS_MAX, "{count}");
            assert_eq!(left(&keys), count * KEY_BYTES_MAX);
        }
        assert!(keys.get(&place(1, 1)).is_none());
        keys.remove(&place(0, 1));
        keys.insert(place(0, 2), &key(0)[..16], entry(&policy));
        keys.forget_older_rings("alice", 1);
        keys.forget_older_rings("alice", 2);
        assert_eq!(left(&keys), 16, "of the ring's last generation");
        keys.remove(&place(0, 2));
        assert_eq!(left(&keys), 0);
    }

    #[test]
    fn a_set_of_recipients_has_its_own_digest_whatever_is_remembered() {
        let cache = Cache::default();
        let long = vec![7; CACHED_RECIPIENTS_BYTES_MAX + 1];
        // The first two and the long one share a place.
        let sets: [&[u8]; 5] = [&[1, 2, 7], &[2, 2, 7], &[1, 2, 8], &[], &long];
        for set in sets {
            assert_eq!(cache.recipients_digest(set), (sha256(set), false));
            cache.remember_recipients(set, sha256(set));
            assert_eq!(cache.recipients_digest(set), (sha256(set), set.len() <= CACHED_RECIPIENTS_BYTES_MAX));
        }
        assert_eq!(cache.recipients_digest(sets[0]), (sha256(sets[0]), false), "another one took its place");
        assert_eq!(cache.recipients_digest(sets[1]), (sha256(sets[1]), true));
        cache.flush();
        assert_eq!(cache.recipients_digest(sets[1]), (sha256(sets[1]), false));
    }
}
