//! Idempotency keys: a put that is tried again under its key is done once.
//!
//! A client gives a key with a message, and puts it again under the same key where it has not heard what became of it.
//! What is known of a key is known of one user and one queue or topic. The key of a durable message is noted in the
//! journal, in the unit of its put: after a crash both are there or neither. So it is with a persistent publication and
//! all its copies, also where there was none. The key of any other message is in memory, and goes as that message does.

use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use bulla_queue::{StoreNumber, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

#[cfg(test)]
mod tests;

/// Longest key, in bytes. A key has one byte at least.
pub const KEY_BYTES_MAX: usize = 128;
/// How long a key is kept, in milliseconds: a day.
pub const KEPT_MS: u64 = 24 * 60 * 60 * 1000;
/// Keys of one user. The oldest goes for one more.
pub const USER_KEYS_MAX: usize = 4_096;
/// Bytes of the notes of one user's keys. The oldest goes for one more.
pub const USER_BYTES_MAX: usize = 1 << 20;
/// Keys of all users. The oldest of the user with the most goes for one more. With [`ALL_BYTES_MAX`] it leaves most of
/// the room for notes to channels.
pub const ALL_KEYS_MAX: usize = 10_000;
/// Bytes of the notes of all users' keys.
pub const ALL_BYTES_MAX: usize = 2 << 20;
/// Longest message-id that is told again, in bytes.
const MESSAGE_ID_BYTES_MAX: usize = 255;
/// Expired keys whose notes go in one unit.
const EXPIRE_AT_ONCE: usize = 256;
/// What the names of the notes begin with.
pub(crate) const PREFIX: &str = "idempotency/";
/// The version of a note.
const VERSION: u8 = 1;

/// Sub-reason of a key that stands for another message.
pub const REUSED: &str = "idempotency-key-reused";
/// Sub-reason of a key whose first put has no answer yet.
pub const UNDER_WAY: &str = "idempotency-key-under-way";
/// Sub-reason of a key that can't be, or not there.
pub const UNUSABLE: &str = "idempotency-key";

/// What a key is known by: a digest of user, queue and key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct KeyId([u8; 16]);

/// A digest of a message's body.
pub type BodyDigest = [u8; 32];

/// A put under a key.
#[derive(Debug)]
pub struct Keyed<'a> {
    /// Who puts; empty for an unauthenticated client.
    pub user: &'a str,
    /// Where to: a queue, as messages are bound to it, or the address of a topic.
    pub destination: &'a str,
    /// The key.
    pub key: &'a [u8],
    /// The message's body.
    pub body: BodyDigest,
    /// The message's id, where it has one.
    pub message_id: Option<String>,
}

/// What becomes of a put under a key.
#[derive(Debug)]
pub enum Answer {
    /// It is to be done.
    Do(Box<Claim>),
    /// It was done, and is durable once the journal has synced past the ticket.
    Done {
        /// Until where the journal has to have synced.
        ticket: Ticket,
        /// The message-id of the message that was put, where it had one.
        message_id: Option<Box<str>>,
    },
}

/// A key whose put is under way. Dropped, the key is free again.
#[derive(Debug)]
pub struct Claim {
    id: KeyId,
    user: Box<str>,
    body: BodyDigest,
    message_id: Option<Box<str>>,
    _under_way: Arc<()>,
}

/// What the notes of a unit become, by name.
pub type Notes = Vec<(String, Option<Vec<u8>>)>;

/// A put that was done.
#[derive(Debug)]
struct Entry {
    user: Box<str>,
    body: BodyDigest,
    message_id: Option<Box<str>>,
    expires_ms: u64,
    ticket: Ticket,
    /// The store that has a note of it.
    noted_in: Option<StoreNumber>,
}

#[derive(Debug, Default)]
struct OfUser {
    /// Its keys, the oldest first.
    order: VecDeque<KeyId>,
    bytes: usize,
}

/// The keys that are known.
#[derive(Debug, Default)]
pub struct Keys {
    entries: HashMap<KeyId, Entry>,
    users: HashMap<Box<str>, OfUser>,
    bytes: usize,
    under_way: HashMap<KeyId, Weak<()>>,
}

impl KeyId {
    fn of(keyed: &Keyed<'_>) -> Self {
        let mut hasher = openssl::sha::Sha256::new();
        for part in [keyed.user.as_bytes(), keyed.destination.as_bytes(), keyed.key] {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let digest = hasher.finish();
        Self(std::array::from_fn(|place| digest[place]))
    }

    fn note_name(self) -> String {
        format!("{PREFIX}{}", base16ct::lower::encode_string(&self.0))
    }

    fn of_note(name: &str) -> Option<Self> {
        let mut id = [0; 16];
        base16ct::lower::decode(name.strip_prefix(PREFIX)?, &mut id).ok().filter(|id| id.len() == 16)?;
        Some(Self(id))
    }
}

impl Entry {
    /// What counts of it against limits on bytes.
    fn bytes(&self) -> usize {
        let message_id = self.message_id.as_ref().map_or(0, |id| id.len());
        PREFIX.len() + 2 * size_of::<KeyId>() + size_of::<BodyDigest>() + 11 + self.user.len() + message_id
    }

    fn encode(&self) -> Vec<u8> {
        let mut note = vec![VERSION];
        note.extend_from_slice(&self.expires_ms.to_be_bytes());
        note.extend_from_slice(&self.body);
        note.extend_from_slice(&(self.user.len() as u16).to_be_bytes());
        note.extend_from_slice(self.user.as_bytes());
        note.extend_from_slice(self.message_id.as_deref().unwrap_or_default().as_bytes());
        note
    }

    fn decode(store: StoreNumber, note: &[u8]) -> Option<Self> {
        let (version, note) = note.split_first()?;
        let (expires, note) = note.split_first_chunk::<8>()?;
        let (body, note) = note.split_first_chunk::<32>()?;
        let (user_bytes, note) = note.split_first_chunk::<2>()?;
        let (user, message_id) = note.split_at_checked(u16::from_be_bytes(*user_bytes).into())?;
        let message_id = std::str::from_utf8(message_id).ok().filter(|id| !id.is_empty());
        (*version == VERSION).then_some(Self {
            user: std::str::from_utf8(user).ok()?.into(),
            body: *body,
            message_id: message_id.map(Box::from),
            expires_ms: u64::from_be_bytes(*expires),
            ticket: Ticket::NOW,
            noted_in: Some(store),
        })
    }
}

impl Keys {
    /// The keys that notes know. One that can't be read is left alone.
    pub fn read<'a>(notes: impl Iterator<Item = (StoreNumber, &'a str, &'a [u8])>) -> Self {
        let mut keys = Self::default();
        keys.learn(notes);
        keys
    }

    /// The keys that notes know are known from now on, too.
    pub fn learn<'a>(&mut self, notes: impl Iterator<Item = (StoreNumber, &'a str, &'a [u8])>) {
        let known = |(store, name, note)| Some((KeyId::of_note(name)?, Entry::decode(store, note)?));
        let mut found: Vec<(KeyId, Entry)> = notes.filter_map(known).collect();
        found.sort_by_key(|(_, entry)| entry.expires_ms);
        for (id, entry) in found {
            self.remove(id);
            self.add(id, entry);
        }
    }

    /// A store is not there any more, nor what it has of keys: those of messages that were not durable go with it.
    pub fn forget(&mut self, store: StoreNumber) {
        let is_of = |entry: &Entry| entry.noted_in == Some(store) || entry.ticket.store() == store;
        let gone: Vec<KeyId> = self.entries.iter().filter(|(_, entry)| is_of(entry)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// Whether a put under a key is to be done.
    ///
    /// # Errors
    /// 2046 for a key that can't be, or that stands for another body; 2042 where the first put under it has no answer
    /// yet.
    pub fn ask(&mut self, keyed: Keyed<'_>, wall_ms: u64) -> Result<Answer, Refusal> {
        if keyed.key.is_empty() || keyed.key.len() > KEY_BYTES_MAX || keyed.user.len() > u16::MAX.into() {
            return Err(unusable(format!("an idempotency key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        let id = KeyId::of(&keyed);
        if let Some(entry) = self.entries.get(&id).filter(|entry| entry.expires_ms > wall_ms) {
            if entry.body != keyed.body {
                let detail = "a message with another body was put under that idempotency key";
                return Err(Refusal { cause: Some(REUSED), ..Refusal::new(reason::OPTIONS_ERROR, detail) });
            }
            return Ok(Answer::Done { ticket: entry.ticket, message_id: entry.message_id.clone() });
        }
        if self.under_way.get(&id).is_some_and(|put| put.strong_count() > 0) {
            let detail = "the first put under that idempotency key has no answer yet";
            return Err(Refusal { cause: Some(UNDER_WAY), ..Refusal::new(reason::OBJECT_IN_USE, detail) });
        }
        let under_way = Arc::new(());
        self.under_way.insert(id, Arc::downgrade(&under_way));
        let message_id = keyed.message_id.filter(|id| id.len() <= MESSAGE_ID_BYTES_MAX).map(String::into_boxed_str);
        let user = keyed.user.into();
        Ok(Answer::Do(Box::new(Claim { id, user, body: keyed.body, message_id, _under_way: under_way })))
    }

    /// Puts a message under a key: `put` is given what becomes of notes with it, and says when it is in the journal.
    /// The key is noted in the store that a durable message goes to. Keys that have to go for this one go in the same
    /// unit; notes of them in another store go after a restart.
    ///
    /// # Errors
    /// Those of `put`: the key is free again.
    pub fn put<E>(
        &mut self,
        claim: Claim,
        store: Option<StoreNumber>,
        wall_ms: u64,
        put: impl FnOnce(&Notes) -> Result<Ticket, E>,
    ) -> Result<Ticket, E> {
        let Claim { id, user, body, message_id, _under_way } = claim;
        let expires_ms = wall_ms.saturating_add(KEPT_MS);
        let mut entry = Entry { user, body, message_id, expires_ms, ticket: Ticket::NOW, noted_in: store };
        let goes = self.too_many(id, &entry);
        let mut notes = store.map(|store| self.notes_gone(&goes, store)).unwrap_or_default();
        if store.is_some() {
            notes.push((id.note_name(), Some(entry.encode())));
        }
        let put = put(&notes);
        self.under_way.remove(&id);
        entry.ticket = put?;
        goes.into_iter().for_each(|id| self.remove(id));
        let ticket = entry.ticket;
        self.add(id, entry);
        Ok(ticket)
    }

    /// Forgets keys whose time is over. Returns what becomes of their notes.
    pub fn expire(&mut self, wall_ms: u64) -> Vec<(StoreNumber, Notes)> {
        self.under_way.retain(|_, put| put.strong_count() > 0);
        let mut gone = Vec::new();
        for of_user in self.users.values() {
            let over = |id: &&KeyId| self.entries.get(*id).is_none_or(|entry| entry.expires_ms <= wall_ms);
            gone.extend(of_user.order.iter().take_while(over).take(EXPIRE_AT_ONCE - gone.len()).copied());
        }
        let stores: BTreeSet<StoreNumber> = gone.iter().filter_map(|id| self.entries.get(id)?.noted_in).collect();
        let notes = stores.into_iter().map(|store| (store, self.notes_gone(&gone, store))).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        notes
    }

    /// Whether no key is known, and no put under one is under way.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.under_way.is_empty()
    }

    /// The keys that go for one more: the oldest of its user where that has as many as one may, otherwise the oldest of
    /// the user with the most.
    fn too_many(&self, id: KeyId, entry: &Entry) -> Vec<KeyId> {
        let bytes = entry.bytes();
        let mut goes: Vec<KeyId> = self.entries.contains_key(&id).then_some(id).into_iter().collect();
        let replaced = goes.iter().filter_map(|id| self.entries.get(id)).map(Entry::bytes).sum::<usize>();
        let (mut count, mut held) = (self.entries.len() - goes.len(), self.bytes - replaced);
        if let Some(of_user) = self.users.get(&entry.user) {
            let (mut own, mut own_bytes) = (of_user.order.len() - goes.len(), of_user.bytes - replaced);
            for oldest in of_user.order.iter().filter(|oldest| **oldest != id) {
                if own < USER_KEYS_MAX && own_bytes + bytes <= USER_BYTES_MAX {
                    break;
                }
                let freed = self.entries.get(oldest).map_or(0, Entry::bytes);
                goes.push(*oldest);
                (own, own_bytes) = (own - 1, own_bytes.saturating_sub(freed));
                (count, held) = (count - 1, held.saturating_sub(freed));
            }
        }
        if count < ALL_KEYS_MAX && held + bytes <= ALL_BYTES_MAX {
            return goes;
        }
        let most = self.users.iter().max_by_key(|(name, of_user)| (of_user.bytes, *name));
        for oldest in most.iter().flat_map(|(_, of_user)| &of_user.order) {
            if count < ALL_KEYS_MAX && held + bytes <= ALL_BYTES_MAX {
                break;
            }
            if !goes.contains(oldest) {
                goes.push(*oldest);
                let freed = self.entries.get(oldest).map_or(0, Entry::bytes);
                (count, held) = (count - 1, held.saturating_sub(freed));
            }
        }
        goes
    }

    fn notes_gone(&self, gone: &[KeyId], store: StoreNumber) -> Notes {
        let is_noted = |id: &&KeyId| self.entries.get(*id).is_some_and(|entry| entry.noted_in == Some(store));
        gone.iter().filter(is_noted).map(|id| (id.note_name(), None)).collect()
    }

    fn add(&mut self, id: KeyId, entry: Entry) {
        let of_user = self.users.entry(entry.user.clone()).or_default();
        of_user.order.push_back(id);
        of_user.bytes += entry.bytes();
        self.bytes += entry.bytes();
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: KeyId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.bytes -= entry.bytes();
        let Some(of_user) = self.users.get_mut(&entry.user) else { return };
        of_user.bytes -= entry.bytes();
        match of_user.order.front() {
            Some(first) if *first == id => drop(of_user.order.pop_front()),
            _ => of_user.order.retain(|other| *other != id),
        }
        if of_user.order.is_empty() {
            self.users.remove(&entry.user);
        }
    }
}

/// A key that can't be, or not there.
pub fn unusable(detail: impl Into<String>) -> Refusal {
    Refusal { cause: Some(UNUSABLE), ..Refusal::new(reason::OPTIONS_ERROR, detail) }
}
