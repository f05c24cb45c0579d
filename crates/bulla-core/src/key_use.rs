//! Which keys messages need, and who has them: what the stores count by the names of keys, told of users and
//! certificates.

use crate::catalog::status::{KeyUseStatus, NeededKey, Stranded};
use crate::catalog::{Definitions, Usage};
use crate::manager::{Manager, State};
use crate::maps::HashMap;
use bulla_queue::{KeyNames, KeyUse, Keys, QueueId};
use bulla_seal::certificate::Certificate;
use bulla_seal::policy::SealedAt;
use bulla_seal::ring::{self, Readable, Ring};
use bulla_seal::{Dn, KeyName, Policy};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Counters of staged messages that are kept though no message is counted in them any more, at least.
const STAGED_EMPTY_MAX: usize = 1_024;
/// Queues whose needs are counted while the queues' lock is held once: a millisecond each at most.
const QUEUES_AT_ONCE: usize = 4;
/// How long the lock is let go in between.
const LET_GO: Duration = Duration::from_micros(100);

/// Messages staged in units of work, by queue and what opens them; by none of what is not known.
#[derive(Default)]
pub struct StagedNeeds {
    counters: HashMap<(QueueId, Option<KeyNames>), Arc<()>>,
    /// With so many counters those are let go in which no message is counted.
    swept_at: usize,
}

/// Stands for a staged message for as long as that is staged.
pub struct Staged(#[allow(dead_code, reason = "its clones are counted")] Arc<()>);

impl StagedNeeds {
    /// A message is staged. Nothing is counted of one that needs no key.
    pub fn staged(&mut self, queue: QueueId, keys: &Keys) -> Option<Staged> {
        let names = match keys {
            Keys::None => return None,
            Keys::Unknown => None,
            Keys::OneOf(names) => Some(names.clone()),
        };
        if self.counters.len() >= self.swept_at.max(STAGED_EMPTY_MAX) {
            self.counters.retain(|_, counter| Arc::strong_count(counter) > 1);
            // So many must come before it is done again as are left.
            self.swept_at = 2 * self.counters.len();
        }
        Some(Staged(self.counters.entry((queue, names)).or_default().clone()))
    }

    /// What is staged, by queue.
    fn by_queue(&self) -> HashMap<QueueId, Vec<(Option<KeyNames>, u64)>> {
        let mut staged: HashMap<QueueId, Vec<_>> = HashMap::default();
        for ((queue, names), counter) in &self.counters {
            match Arc::strong_count(counter) as u64 - 1 {
                0 => {}
                count => staged.entry(*queue).or_default().push((names.clone(), count)),
            }
        }
        staged
    }
}

/// What the messages of one queue need.
pub struct QueueNeeds {
    /// The queue's name.
    pub queue: String,
    /// On the queue.
    pub there: Vec<KeyUse>,
    /// In units of work that put on it: what opens them, none where that is not known, and messages.
    pub staged: Vec<(Option<KeyNames>, u64)>,
}

impl State {
    /// What the messages of each queue need whose name is wanted, by name; queues that need nothing are left out.
    pub fn needs(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> Vec<QueueNeeds> {
        let mut staged = self.unit_totals.needs.by_queue();
        let queues: Vec<(QueueId, String)> = self
            .store
            .queues()
            .filter(|(queue, name)| (self.store.needs_keys(*queue) || staged.contains_key(queue)) && is_wanted(name))
            .map(|(queue, name)| (queue, name.to_owned()))
            .collect();
        let mut needs: Vec<QueueNeeds> = queues
            .into_iter()
            .map(|(id, queue)| {
                let staged = staged.remove(&id).unwrap_or_default();
                QueueNeeds { queue, there: self.store.key_use(id), staged }
            })
            .collect();
        needs.sort_by(|a, b| a.queue.cmp(&b.queue));
        needs
    }
}

/// As [`State::needs`] of all queues, without what is in units of work. The queues' lock is let go again and again: a
/// message that moves meanwhile may be counted twice, or not at all.
pub fn needs_in_turns(manager: &Manager) -> Vec<QueueNeeds> {
    let queues: Vec<(QueueId, String)> = {
        let state = manager.lock();
        let named = state.store.queues().filter(|(queue, _)| state.store.needs_keys(*queue));
        named.map(|(queue, name)| (queue, name.to_owned())).collect()
    };
    let mut needs = Vec::with_capacity(queues.len());
    for some in queues.chunks(QUEUES_AT_ONCE) {
        if !needs.is_empty() {
            // A waiting thread needs time to wake up: a lock that is taken again at once is never handed over.
            std::thread::sleep(LET_GO);
        }
        let state = &mut *manager.lock();
        for (id, queue) in some {
            needs.push(QueueNeeds { queue: queue.clone(), there: state.store.key_use(*id), staged: Vec::new() });
        }
    }
    needs
}

/// Whose messages are not meant to be opened with a key that is here.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Elsewhere {
    /// Recipients who keep their keys elsewhere: KEYAWAY of any policy.
    keys: HashSet<Dn>,
    /// Recipients of policies with SEALEDAT(CLIENT): clients open for themselves what these policies are for.
    clients: HashSet<Dn>,
    /// These by queue, of each queue that has a policy.
    clients_of: HashMap<String, HashSet<Dn>>,
    /// Transmission queues, whose messages are for other queue managers.
    queues: HashSet<String>,
}

impl Elsewhere {
    /// As it is defined, with `tried` in the place of the policy of its name.
    pub fn of(definitions: &Definitions, tried: Option<&Policy>) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        let transmission = definitions.queues.iter().filter(|(_, queue)| queue.usage == Usage::Transmission);
        elsewhere.queues.extend(transmission.map(|(name, _)| name.clone()));
        let in_force = definitions.policies.values().map(|policy| &**policy);
        let others = in_force.filter(|policy| tried.is_none_or(|tried| tried.name != policy.name));
        for policy in others.chain(tried) {
            elsewhere.keys.extend(policy.away.iter().cloned());
            let of_queue = elsewhere.clients_of.entry(queue_of(policy, definitions).to_owned()).or_default();
            if policy.sealed_at == SealedAt::Client {
                elsewhere.clients.extend(policy.recipients.iter().cloned());
                of_queue.extend(policy.recipients.iter().cloned());
            }
        }
        elsewhere
    }

    /// Whether a recipient of a message on a queue opens it elsewhere. On a queue without a policy, where sealed
    /// messages may have come from any other, this is so of every recipient of a client's messages.
    pub fn has(&self, queue: &str, recipient: &Dn) -> bool {
        let clients = self.clients_of.get(queue).unwrap_or(&self.clients);
        self.queues.contains(queue) || self.keys.contains(recipient) || clients.contains(recipient)
    }
}

/// The queue that a policy's name leads to.
fn queue_of<'a>(policy: &'a Policy, definitions: &'a Definitions) -> &'a str {
    definitions.aliases.get(&policy.name).map_or(&policy.name, |alias| &alias.target)
}

/// The recipients of a policy whose private keys should be here: of one whose messages come to a queue of this queue
/// manager, and not of others.
pub fn wanted_here<'a>(policy: &'a Policy, definitions: &Definitions) -> impl Iterator<Item = &'a Dn> {
    let queue = definitions.queues.get(queue_of(policy, definitions));
    let is_here = queue.is_some_and(|queue| queue.usage != Usage::Transmission);
    let opens_here = is_here && policy.sealed_at != SealedAt::Client;
    policy.recipients.iter().filter(move |dn| opens_here && !policy.away.contains(dn))
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub struct KnownKey {
    /// The subject of its certificate.
    pub subject: Dn,
    /// The serial number, hexadecimal.
    pub serial: String,
    /// How some senders name it: by key identifier. Empty without one.
    pub id: Vec<u8>,
    /// Until when that is valid.
    pub not_after: SystemTime,
    /// Users whose rings have the private key, and can open it.
    pub users: Vec<String>,
    /// Users whose rings have the private key but can't be read: they are locked, or a file is damaged.
    pub locked: Vec<String>,
}

impl KnownKey {
    fn is_here(&self) -> bool {
        !self.users.is_empty() || !self.locked.is_empty()
    }
}

/// Where what opens a message is, the best of its recipients last.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Opener {
    /// It is not known what opens it.
    Unknown,
    /// No ring here has a key.
    NoKey,
    /// A ring here has one, and can't be read.
    Locked,
    /// As it is meant to be.
    Elsewhere,
    /// A ring here has a key.
    Here,
}

/// The keys in all rings here, and the certificates of others in them, by the name that messages have for them.
#[derive(Default)]
pub struct KnownKeys {
    by_name: HashMap<Vec<u8>, KnownKey>,
    /// Names by key identifier: some senders name recipients so.
    by_key_id: HashMap<Vec<u8>, Vec<u8>>,
    /// Users of whose rings nothing is known: they can't be listed.
    unread: HashSet<String>,
}

impl KnownKeys {
    /// Reads all rings: each that was not read yet, or has changed.
    pub fn read(manager: &Manager, now: Instant) -> KnownKeys {
        let mut known = KnownKeys::default();
        for user in manager.sealing.rings.users() {
            match manager.ring(&user, now) {
                Ok(ring) => known.note_ring(&user, &ring),
                Err(_) => {
                    let path = manager.sealing.rings.path(&user);
                    known.note_locked(&user, path.and_then(|path| ring::readable(&path)).ok());
                }
            }
        }
        known
    }

    /// Takes over what a user's ring has.
    pub fn note_ring(&mut self, user: &str, ring: &Ring) {
        ring.own().iter().for_each(|own| self.note(&own.certificate).users.push(user.to_owned()));
        ring.people().iter().for_each(|person| _ = self.note(&person.certificate));
    }

    /// Takes over what can be read of a user's ring that can't be used; none where not even that is known.
    pub fn note_locked(&mut self, user: &str, readable: Option<Readable>) {
        let Some(Readable { own, people }) = readable else {
            self.unread.insert(user.to_owned());
            return;
        };
        own.iter().for_each(|own| self.note(&own.certificate).locked.push(user.to_owned()));
        people.iter().for_each(|person| _ = self.note(&person.certificate));
    }

    fn note(&mut self, certificate: &Certificate) -> &mut KnownKey {
        let name = certificate.issuer_and_serial();
        let id = certificate.subject_key_id().map_or_else(Vec::new, |id| {
            let id = [&[0x80, u8::try_from(id.len()).unwrap_or(u8::MAX)], id].concat();
            self.by_key_id.entry(id.clone()).or_insert_with(|| name.to_vec());
            id
        });
        self.by_name.entry(name.to_vec()).or_insert_with(|| KnownKey {
            subject: certificate.dn().clone(),
            serial: certificate.serial_hex(),
            id,
            not_after: certificate.not_after(),
            users: Vec::new(),
            locked: Vec::new(),
        })
    }

    /// What is known of a key that messages name so.
    pub fn get(&self, name: &[u8]) -> Option<&KnownKey> {
        self.by_name.get(name).or_else(|| self.by_name.get(self.by_key_id.get(name)?))
    }

    /// Whether a ring here can open what any of these keys opens.
    pub fn can_open(&self, names: &KeyNames) -> bool {
        names.iter().any(|name| self.get(name).is_some_and(|key| !key.users.is_empty()))
    }

    /// The private keys that rings here have, those that can't be read included, with their names.
    pub fn own(&self) -> impl Iterator<Item = (&[u8], &KnownKey)> {
        self.by_name.iter().map(|(name, key)| (&name[..], key)).filter(|(_, key)| key.is_here())
    }

    /// Whether a ring here has the private key of that name, read or not.
    pub fn has(&self, name: &[u8]) -> bool {
        self.by_name.get(name).is_some_and(KnownKey::is_here)
    }

    /// Whether it is not known which keys a user's ring has.
    pub fn is_unread(&self, user: &str) -> bool {
        self.unread.contains(user)
    }

    /// The subjects of the certificates whose private keys are in rings here that can be read.
    pub fn holders(&self) -> HashSet<&Dn> {
        self.by_name.values().filter(|key| !key.users.is_empty()).map(|key| &key.subject).collect()
    }

    /// The messages of these queues that no ring here can open, by queue. Those are left out that a key elsewhere opens
    /// as it is meant to, and those of which it is not known what opens them.
    pub fn stranded(&self, needs: &[QueueNeeds], elsewhere: &Elsewhere, now_ms: u64) -> BTreeMap<String, Stranded> {
        let mut stranded: BTreeMap<String, Stranded> = BTreeMap::new();
        for QueueNeeds { queue, there, .. } in needs {
            for one in there {
                let (is_no_key, messages) = match self.opener(queue, one, elsewhere) {
                    Opener::NoKey => (true, u64::from(one.messages)),
                    Opener::Locked => (false, u64::from(one.messages)),
                    Opener::Here | Opener::Elsewhere | Opener::Unknown => continue,
                };
                let of_queue = stranded.entry(queue.clone()).or_default();
                *(if is_no_key { &mut of_queue.no_key } else { &mut of_queue.locked }) += messages;
                let age = one.oldest_put_ms.map_or(0, |put_ms| now_ms.saturating_sub(put_ms) / 1000);
                of_queue.oldest_seconds = of_queue.oldest_seconds.max(age);
            }
        }
        stranded
    }

    /// The keys of the messages of these queues for which no ring has one.
    pub fn without_key(&self, needs: &[QueueNeeds], elsewhere: &Elsewhere) -> HashSet<KeyNames> {
        let of = |needs: &QueueNeeds| {
            let without = needs.there.iter().filter(|one| self.opener(&needs.queue, one, elsewhere) == Opener::NoKey);
            without.filter_map(|one| one.names.clone()).collect::<Vec<_>>()
        };
        needs.iter().flat_map(of).collect()
    }

    /// How many messages of these queues are opened elsewhere, and not here.
    pub fn away(&self, needs: &[QueueNeeds], elsewhere: &Elsewhere) -> u64 {
        let of = |needs: &QueueNeeds| -> u64 {
            let away = |one: &&KeyUse| self.opener(&needs.queue, one, elsewhere) == Opener::Elsewhere;
            needs.there.iter().filter(away).map(|one| u64::from(one.messages)).sum()
        };
        needs.iter().map(of).sum()
    }

    fn opener(&self, queue: &str, of: &KeyUse, elsewhere: &Elsewhere) -> Opener {
        let Some(names) = &of.names else { return Opener::Unknown };
        let mut opener = if elsewhere.queues.contains(queue) { Opener::Elsewhere } else { Opener::NoKey };
        for key in names.iter().filter_map(|name| self.get(name)) {
            opener = opener.max(match key {
                KnownKey { users, .. } if !users.is_empty() => Opener::Here,
                KnownKey { subject, .. } if elsewhere.has(queue, subject) => Opener::Elsewhere,
                KnownKey { locked, .. } if !locked.is_empty() => Opener::Locked,
                _ => Opener::NoKey,
            });
        }
        opener
    }

    /// One row for each queue and key. A message that several keys open is counted with each of them.
    pub fn rows(&self, needs: &[QueueNeeds], now_ms: u64) -> Vec<KeyUseStatus> {
        let mut rows = Vec::new();
        for QueueNeeds { queue, there, staged } in needs {
            let mut by_key: HashMap<Option<&[u8]>, KeyUseStatus> = HashMap::default();
            for one in there {
                for name in each(one.names.as_ref()) {
                    let row = by_key.entry(name).or_insert_with(|| self.row(queue, name));
                    row.messages += u64::from(one.messages);
                    row.bytes += one.bytes;
                    let age = one.oldest_put_ms.map(|put_ms| now_ms.saturating_sub(put_ms) / 1000);
                    row.oldest_seconds = row.oldest_seconds.max(age);
                }
            }
            for (names, count) in staged {
                for name in each(names.as_ref()) {
                    by_key.entry(name).or_insert_with(|| self.row(queue, name)).staged += count;
                }
            }
            let mut of_queue: Vec<_> = by_key.into_values().collect();
            of_queue.sort_by(|a, b| (&a.subject, &a.issuer, &a.serial).cmp(&(&b.subject, &b.issuer, &b.serial)));
            rows.append(&mut of_queue);
        }
        rows
    }

    /// Each key that messages of these queues need, with all of them together. Those are left out of which it is not
    /// known what opens them.
    pub fn needed(&self, needs: &[QueueNeeds]) -> Vec<NeededKey> {
        let mut by_name: HashMap<&[u8], NeededKey> = HashMap::default();
        for one in needs.iter().flat_map(|needs| &needs.there) {
            for name in one.names.iter().flat_map(|names| names.iter()) {
                by_name.entry(name).or_insert_with(|| self.needed_key(name)).messages += u64::from(one.messages);
            }
        }
        by_name.into_values().collect()
    }

    fn needed_key(&self, name: &[u8]) -> NeededKey {
        let KeyUseStatus { subject, serial, key_id, users, valid_to_ms, .. } = self.row("", Some(name));
        let not_after = valid_to_ms.map(|ms| ms / 1000);
        NeededKey { subject, serial, key_id, messages: 0, is_here: !users.is_empty(), not_after }
    }

    /// What is said of the key of that name; of none, of messages of which it is not known what opens them.
    fn row(&self, queue: &str, name: Option<&[u8]>) -> KeyUseStatus {
        let mut row = KeyUseStatus { queue: queue.to_owned(), is_known: name.is_some(), ..KeyUseStatus::default() };
        match name.and_then(KeyName::read) {
            Some(KeyName::Certificate { issuer, serial }) => (row.issuer, row.serial) = (issuer.to_string(), serial),
            Some(KeyName::Key(id)) => row.key_id = id,
            None => {}
        }
        if let Some(key) = name.and_then(|name| self.get(name)) {
            row.subject = key.subject.to_string();
            row.users.clone_from(&key.users);
            row.locked.clone_from(&key.locked);
            row.valid_to_ms =
                key.not_after.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_millis()).ok());
        }
        row
    }
}

/// Each of the keys; where they are not known, none, once.
fn each(names: Option<&KeyNames>) -> impl Iterator<Item = Option<&[u8]>> {
    let all = names.map(|names| &names[..]).unwrap_or_default();
    all.iter().map(|name| Some(&name[..])).chain(all.is_empty().then_some(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_queue::StoreNumber;
    use bytes::Bytes;

    fn names(number: usize) -> Keys {
        Keys::OneOf([Bytes::from(number.to_string())].into())
    }

    #[test]
    fn staged_messages_are_counted_for_as_long_as_they_are_staged() {
        let mut needs = StagedNeeds::default();
        let queue = |number| QueueId::new(StoreNumber::LOCAL, number);
        let count = |needs: &StagedNeeds, number| {
            let of = needs.by_queue().remove(&queue(number)).unwrap_or_default();
            let unknown = of.iter().find(|(names, _)| names.is_none()).map_or(0, |(_, count)| *count);
            (of.iter().map(|(_, count)| count).sum::<u64>(), unknown)
        };
        assert!(needs.staged(queue(1), &Keys::None).is_none());
        let mut staged = vec![needs.staged(queue(1), &Keys::Unknown), needs.staged(queue(2), &names(1))];
        staged.extend((0..10).map(|_| needs.staged(queue(1), &names(1))));
        assert_eq!((count(&needs, 1), count(&needs, 2)), ((11, 1), (1, 0)));
        staged.truncate(5);
        assert_eq!((count(&needs, 1), count(&needs, 2)), ((4, 1), (1, 0)));
        staged.clear();
        assert_eq!((count(&needs, 1), count(&needs, 2)), ((0, 0), (0, 0)));
    }

    #[test]
    fn counters_of_staged_messages_go_when_nothing_is_counted_in_them() {
        let mut needs = StagedNeeds::default();
        let queue = QueueId::new(StoreNumber::LOCAL, 1);
        for number in 0..10 * STAGED_EMPTY_MAX {
            needs.staged(queue, &names(number));
        }
        assert!(needs.counters.len() <= STAGED_EMPTY_MAX);
        let staged: Vec<_> = (0..3 * STAGED_EMPTY_MAX).map(|number| needs.staged(queue, &names(number))).collect();
        assert_eq!(needs.by_queue()[&queue].len(), staged.len());
    }
}
