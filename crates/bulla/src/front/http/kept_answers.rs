//! Answers to gets under an idempotency key, kept for a while: asked again, the same message comes again.
//!
//! A client whose connection broke may not have seen the message that it got, which has left its queue. What is known
//! of a key is known of one user and one queue, in memory alone. A get that came to no message, or whose answer was not
//! written whole, leaves its key free.

use crate::idempotency::{KEY_BYTES_MAX, REUSED, UNDER_WAY, unusable};
use crate::reason::{self, Refusal};
use bulla_amqp::Payload;
use bytes::Bytes;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long an answer is kept once it is written.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How often it is looked for answers that were kept long enough.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Longest message that is kept, in bytes. Of a longer one it is known that it was got.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Keys of one user. The oldest goes for one more.
const USER_KEYS_MAX: usize = 4_096;
/// Bytes of one user's messages. The oldest goes for one more, and its key stays.
const USER_BYTES_MAX: usize = 4 << 20;
/// Keys of all users. The oldest of the user with the most goes for one more.
const ALL_KEYS_MAX: usize = 32_768;
/// Bytes of all users' messages. The oldest of the user with the most goes for one more, and its key stays.
const ALL_BYTES_MAX: usize = 64 << 20;

/// A get under a key.
pub(super) struct Keyed<'a> {
    /// Who gets.
    pub(super) user: &'a str,
    /// From where.
    pub(super) queue: &'a str,
    /// The key.
    pub(super) key: &'a [u8],
    /// The selector of ids, where there is one.
    pub(super) selector: Option<&'a str>,
}

/// What becomes of a get under a key.
pub(super) enum Found {
    /// It is to be done.
    Nothing(Claim),
    /// It was done, and that message is its answer.
    Message(Bytes),
    /// It was done, and its message is not there any more.
    Gone,
}

/// Answers of all connections.
#[derive(Clone, Default)]
pub(crate) struct KeptAnswers(Arc<Mutex<Inside>>);

impl fmt::Debug for KeptAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptAnswers")
    }
}

/// A key whose get is under way. Dropped, the key is free again.
pub(super) struct Claim {
    kept: KeptAnswers,
    id: KeyId,
    user: Box<str>,
    selector: Digest,
    is_over: bool,
}

/// What a key is known by: a digest of user, queue and key.
type KeyId = Digest;
/// A SHA-256.
type Digest = [u8; 32];

#[derive(Default)]
struct Inside {
    entries: HashMap<KeyId, Entry>,
    users: HashMap<Box<str>, OfUser>,
    /// Bytes of all messages.
    bytes: usize,
    under_way: HashSet<KeyId>,
}

/// A get that was done.
struct Entry {
    user: Box<str>,
    selector: Digest,
    /// None where it is too long, or had to go for others. It is plaintext, and overwritten when the last of those who
    /// have it drops it.
    message: Option<Bytes>,
    until: Instant,
}

/// What is kept of one user, the oldest first.
#[derive(Default)]
struct OfUser {
    keys: VecDeque<KeyId>,
    /// Those of the keys whose message is there.
    with_message: VecDeque<KeyId>,
    bytes: usize,
}

fn digest(parts: &[&[u8]]) -> Digest {
    let mut hasher = openssl::sha::Sha256::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finish()
}

impl KeptAnswers {
    /// Nothing is called while it is locked that could panic half way.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a get under a key is to be done.
    ///
    /// # Errors
    /// 2046 for a key that can't be, or under which another message was asked for; 2042 where the first get under it
    /// has no answer yet.
    pub(super) fn ask(&self, keyed: &Keyed<'_>, now: Instant) -> Result<Found, Refusal> {
        if keyed.key.is_empty() || keyed.key.len() > KEY_BYTES_MAX {
            return Err(unusable(format!("an idempotency key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        let id = digest(&[keyed.user.as_bytes(), keyed.queue.as_bytes(), keyed.key]);
        let selector = digest(&keyed.selector.map(str::as_bytes).into_iter().collect::<Vec<_>>());
        let mut inside = self.lock();
        if let Some(entry) = inside.entries.get(&id).filter(|entry| entry.until > now) {
            if entry.selector != selector {
                let detail = "another message was asked for under that idempotency key";
                return Err(Refusal { cause: Some(REUSED), ..Refusal::new(reason::OPTIONS_ERROR, detail) });
            }
            return Ok(entry.message.clone().map_or(Found::Gone, Found::Message));
        }
        if !inside.under_way.insert(id) {
            let detail = "the first get under that idempotency key has no answer yet";
            return Err(Refusal { cause: Some(UNDER_WAY), ..Refusal::new(reason::OBJECT_IN_USE, detail) });
        }
        Ok(Found::Nothing(Claim { kept: self.clone(), id, user: keyed.user.into(), selector, is_over: false }))
    }

    /// Forgets what was kept long enough.
    pub(crate) fn expire(&self, now: Instant) {
        let mut inside = self.lock();
        let is_over = |id: &KeyId| inside.entries.get(id).is_none_or(|entry| entry.until <= now);
        let over = inside.users.values().flat_map(|of_user| of_user.keys.iter().copied().take_while(is_over));
        let over: Vec<KeyId> = over.collect();
        over.into_iter().for_each(|id| inside.remove(id));
    }
}

impl Claim {
    /// The answer with that message was written whole.
    pub(super) fn keep(mut self, message: &Payload, now: Instant) {
        let message = (message.len() <= MESSAGE_BYTES_MAX).then(|| {
            let mut copy = Zeroizing::new(Vec::with_capacity(message.len()));
            message.chunks().iter().for_each(|chunk| copy.extend_from_slice(chunk));
            Bytes::from_owner(copy)
        });
        let until = now + KEPT_FOR;
        let entry = Entry { user: std::mem::take(&mut self.user), selector: self.selector, message, until };
        self.is_over = true;
        let mut inside = self.kept.lock();
        inside.under_way.remove(&self.id);
        inside.add(self.id, entry);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_over {
            self.kept.lock().under_way.remove(&self.id);
        }
    }
}

impl Inside {
    /// Keeps an answer, and lets go of others as far as they are too many.
    fn add(&mut self, id: KeyId, entry: Entry) {
        // One whose time is over may be there still.
        self.remove(id);
        let bytes = entry.message.as_ref().map_or(0, Bytes::len);
        while self.users.get(&entry.user).is_some_and(|own| own.keys.len() >= USER_KEYS_MAX) {
            self.remove_oldest(&entry.user);
        }
        while self.users.get(&entry.user).is_some_and(|own| own.bytes + bytes > USER_BYTES_MAX) {
            self.forget_oldest_message(&entry.user);
        }
        while self.entries.len() >= ALL_KEYS_MAX {
            let Some(most) = self.user_with_most(|of_user| of_user.keys.len()) else { break };
            self.remove_oldest(&most);
        }
        while self.bytes + bytes > ALL_BYTES_MAX {
            let Some(most) = self.user_with_most(|of_user| of_user.bytes) else { break };
            self.forget_oldest_message(&most);
        }
        let own = self.users.entry(entry.user.clone()).or_default();
        own.keys.push_back(id);
        own.bytes += bytes;
        self.bytes += bytes;
        if entry.message.is_some() {
            own.with_message.push_back(id);
        }
        self.entries.insert(id, entry);
    }

    fn user_with_most(&self, of: impl Fn(&OfUser) -> usize) -> Option<Box<str>> {
        self.users.iter().max_by_key(|(name, of_user)| (of(of_user), *name)).map(|(name, _)| name.clone())
    }

    fn remove_oldest(&mut self, user: &str) {
        if let Some(id) = self.users.get(user).and_then(|of_user| of_user.keys.front()).copied() {
            self.remove(id);
        }
    }

    /// A user's oldest message goes; its key stays, so that no other message is given for it.
    fn forget_oldest_message(&mut self, user: &str) {
        let Some(of_user) = self.users.get_mut(user) else { return };
        let oldest = of_user.with_message.pop_front().and_then(|id| self.entries.get_mut(&id));
        let bytes = oldest.and_then(|entry| entry.message.take()).map_or(0, |message| message.len());
        of_user.bytes -= bytes;
        self.bytes -= bytes;
    }

    fn remove(&mut self, id: KeyId) {
        let Some(Entry { user, message, .. }) = self.entries.remove(&id) else { return };
        let Some(of_user) = self.users.get_mut(&user) else { return };
        let bytes = message.map_or(0, |message| message.len());
        self.bytes -= bytes;
        of_user.bytes -= bytes;
        for line in [&mut of_user.keys, &mut of_user.with_message] {
            match line.front() {
                Some(first) if *first == id => drop(line.pop_front()),
                _ => line.retain(|other| *other != id),
            }
        }
        if of_user.keys.is_empty() {
            self.users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed<'a>(user: &'a str, key: &'a [u8]) -> Keyed<'a> {
        Keyed { user, queue: "Q", key, selector: None }
    }

    fn message(bytes: usize) -> Payload {
        Payload::from(vec![Bytes::from(vec![7; bytes / 2]), Bytes::from(vec![7; bytes - bytes / 2])])
    }

    fn get(kept: &KeptAnswers, keyed: &Keyed<'_>, bytes: usize, now: Instant) {
        let Ok(Found::Nothing(claim)) = kept.ask(keyed, now) else { panic!("it was got before") };
        claim.keep(&message(bytes), now);
    }

    /// Bytes of the message that comes again; none where it is gone.
    #[track_caller]
    fn again(kept: &KeptAnswers, keyed: &Keyed<'_>, now: Instant) -> Option<usize> {
        match kept.ask(keyed, now).unwrap() {
            Found::Message(message) => Some(message.len()),
            Found::Gone => None,
            Found::Nothing(_) => panic!("the key is not known"),
        }
    }

    fn is_free(kept: &KeptAnswers, keyed: &Keyed<'_>, now: Instant) -> bool {
        matches!(kept.ask(keyed, now), Ok(Found::Nothing(_)))
    }

    #[track_caller]
    fn refused(kept: &KeptAnswers, keyed: &Keyed<'_>, now: Instant) -> (u16, Option<&'static str>) {
        kept.ask(keyed, now).err().map(|refusal| (refusal.reason.code, refusal.cause)).unwrap()
    }

    /// Its sums are those of what it has.
    #[track_caller]
    fn adds_up(kept: &KeptAnswers) {
        let inside = kept.lock();
        let bytes = |id: &KeyId| inside.entries[id].message.as_ref().map_or(0, Bytes::len);
        for of_user in inside.users.values() {
            assert_eq!(of_user.bytes, of_user.keys.iter().map(bytes).sum::<usize>());
            assert!(of_user.keys.len() <= USER_KEYS_MAX && of_user.bytes <= USER_BYTES_MAX);
            assert!(of_user.with_message.iter().all(|id| inside.entries[id].message.is_some()));
        }
        assert_eq!(inside.bytes, inside.users.values().map(|of_user| of_user.bytes).sum::<usize>());
        assert_eq!(inside.entries.len(), inside.users.values().map(|of_user| of_user.keys.len()).sum::<usize>());
        assert!(inside.entries.len() <= ALL_KEYS_MAX && inside.bytes <= ALL_BYTES_MAX);
    }

    #[test]
    fn a_key_stands_for_one_message_of_one_user_on_one_queue() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        get(&kept, &keyed("ann", b"k"), 10, now);
        assert_eq!(again(&kept, &keyed("ann", b"k"), now), Some(10));
        assert_eq!(again(&kept, &keyed("ann", b"k"), now), Some(10));
        let elsewhere = Keyed { queue: "R", ..keyed("ann", b"k") };
        for other in [keyed("bob", b"k"), keyed("ann", b"l"), elsewhere] {
            assert!(is_free(&kept, &other, now));
        }
        let another = Keyed { selector: Some("JMSMessageID = '7'"), ..keyed("ann", b"k") };
        assert_eq!(refused(&kept, &another, now), (2046, Some(REUSED)));
        for key in [&b""[..], &[0; KEY_BYTES_MAX + 1]] {
            assert_eq!(refused(&kept, &keyed("ann", key), now).0, 2046);
        }
    }

    #[test]
    fn a_key_is_taken_while_its_get_is_under_way_and_free_when_that_came_to_nothing() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        let claim = kept.ask(&keyed("ann", b"k"), now);
        assert_eq!(refused(&kept, &keyed("ann", b"k"), now), (2042, Some(UNDER_WAY)));
        drop(claim);
        get(&kept, &keyed("ann", b"k"), 1, now);
        assert!(kept.lock().under_way.is_empty());
    }

    #[test]
    fn an_answer_is_forgotten_after_its_time() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        get(&kept, &keyed("ann", b"k"), 10, now);
        let last = now + KEPT_FOR - Duration::from_nanos(1);
        kept.expire(last);
        assert_eq!(again(&kept, &keyed("ann", b"k"), last), Some(10));
        assert!(is_free(&kept, &keyed("ann", b"k"), now + KEPT_FOR), "before it is looked for, too");
        get(&kept, &keyed("ann", b"k"), 20, now + KEPT_FOR);
        adds_up(&kept);
        assert_eq!(again(&kept, &keyed("ann", b"k"), now + KEPT_FOR), Some(20));
        kept.expire(now + 2 * KEPT_FOR);
        let inside = kept.lock();
        assert!(inside.entries.is_empty() && inside.users.is_empty() && inside.bytes == 0);
    }

    #[test]
    fn a_message_that_is_too_long_leaves_its_key() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        get(&kept, &keyed("ann", b"long"), MESSAGE_BYTES_MAX + 1, now);
        get(&kept, &keyed("ann", b"k"), MESSAGE_BYTES_MAX, now);
        assert_eq!(again(&kept, &keyed("ann", b"long"), now), None);
        assert_eq!(again(&kept, &keyed("ann", b"k"), now), Some(MESSAGE_BYTES_MAX));
        adds_up(&kept);
    }

    #[test]
    fn a_user_has_so_many_bytes_and_the_oldest_message_goes_but_not_its_key() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        get(&kept, &keyed("zoe", b"k"), 10, now);
        let fit = USER_BYTES_MAX / MESSAGE_BYTES_MAX;
        for number in 0..=fit {
            get(&kept, &keyed("ann", &number.to_be_bytes()), MESSAGE_BYTES_MAX, now);
            adds_up(&kept);
        }
        assert_eq!(again(&kept, &keyed("ann", &0_usize.to_be_bytes()), now), None);
        assert_eq!(again(&kept, &keyed("ann", &1_usize.to_be_bytes()), now), Some(MESSAGE_BYTES_MAX));
        assert_eq!(again(&kept, &keyed("zoe", b"k"), now), Some(10), "another's stay");
    }

    #[test]
    fn a_user_has_so_many_keys_and_the_oldest_goes_for_one_more() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        get(&kept, &keyed("zoe", b"k"), 10, now);
        for number in 0..=USER_KEYS_MAX {
            get(&kept, &keyed("ann", &number.to_be_bytes()), 1, now);
        }
        adds_up(&kept);
        assert!(is_free(&kept, &keyed("ann", &0_usize.to_be_bytes()), now));
        assert_eq!(again(&kept, &keyed("ann", &1_usize.to_be_bytes()), now), Some(1));
        assert_eq!(again(&kept, &keyed("zoe", b"k"), now), Some(10), "another's stay");
    }

    #[test]
    fn what_all_users_have_is_bounded_and_one_with_little_keeps_it() {
        let (kept, now) = (KeptAnswers::default(), Instant::now());
        get(&kept, &keyed("zoe", b"k"), 10, now);
        for user in 0..=ALL_BYTES_MAX / USER_BYTES_MAX {
            for number in 0..USER_BYTES_MAX / MESSAGE_BYTES_MAX {
                get(&kept, &keyed(&format!("much {user}"), &number.to_be_bytes()), MESSAGE_BYTES_MAX, now);
                adds_up(&kept);
            }
        }
        for user in 0..=ALL_KEYS_MAX / USER_KEYS_MAX {
            for number in 0..USER_KEYS_MAX {
                get(&kept, &keyed(&format!("many {user}"), &number.to_be_bytes()), 0, now);
            }
            adds_up(&kept);
        }
        assert_eq!(again(&kept, &keyed("zoe", b"k"), now), Some(10));
    }
}
