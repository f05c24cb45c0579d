//! Which keys messages need, and who has them: what the stores count by the names of keys, told of users and
//! certificates.

use crate::catalog::status::KeyUseStatus;
use crate::manager::{Manager, State};
use crate::maps::HashMap;
use bulla_queue::{KeyNames, KeyUse, Keys, QueueId};
use bulla_seal::certificate::Certificate;
use bulla_seal::{KeyName, ring};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Counters of staged messages that are kept though no message is counted in them any more, at least.
const STAGED_EMPTY_MAX: usize = 1_024;

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
        let queues: Vec<(QueueId, String)> = self
            .store
            .queues()
            .filter(|(_, name)| is_wanted(name))
            .map(|(queue, name)| (queue, name.to_owned()))
            .collect();
        let mut staged = self.unit_totals.needs.by_queue();
        let mut needs: Vec<QueueNeeds> = queues
            .into_iter()
            .map(|(id, queue)| {
                let staged = staged.remove(&id).unwrap_or_default();
                QueueNeeds { queue, there: self.store.key_use(id), staged }
            })
            .filter(|needs| !needs.there.is_empty() || !needs.staged.is_empty())
            .collect();
        needs.sort_by(|a, b| a.queue.cmp(&b.queue));
        needs
    }
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub struct KnownKey {
    /// The subject of its certificate.
    pub subject: String,
    /// Until when that is valid.
    pub not_after: SystemTime,
    /// Users whose rings have the private key, and can open it.
    pub users: Vec<String>,
    /// Users whose rings have the private key but can't be read: they are locked, or a file is damaged.
    pub locked: Vec<String>,
}

/// The keys in all rings here, and the certificates of others in them, by the name that messages have for them.
#[derive(Default)]
pub struct KnownKeys {
    by_name: HashMap<Vec<u8>, KnownKey>,
    /// Names by key identifier: some senders name recipients so.
    by_key_id: HashMap<Vec<u8>, Vec<u8>>,
}

impl KnownKeys {
    /// Reads all rings: each that was not read yet, or has changed.
    pub fn read(manager: &Manager, now: Instant) -> KnownKeys {
        let mut known = KnownKeys::default();
        for user in manager.sealing.rings.users() {
            match manager.ring(&user, now) {
                Ok(ring) => {
                    ring.own().iter().for_each(|own| known.note(&own.certificate).users.push(user.clone()));
                    ring.people().iter().for_each(|person| _ = known.note(&person.certificate));
                }
                Err(_) => {
                    let survey = manager.sealing.rings.path(&user).and_then(|path| ring::survey(&path));
                    let own = survey.map(|survey| survey.own).unwrap_or_default();
                    own.iter().for_each(|own| known.note(&own.certificate).locked.push(user.clone()));
                }
            }
        }
        known
    }

    fn note(&mut self, certificate: &Certificate) -> &mut KnownKey {
        let name = certificate.issuer_and_serial();
        if let Some(id) = certificate.subject_key_id() {
            let id = [&[0x80, u8::try_from(id.len()).unwrap_or(u8::MAX)], id].concat();
            self.by_key_id.entry(id).or_insert_with(|| name.to_vec());
        }
        self.by_name.entry(name.to_vec()).or_insert_with(|| KnownKey {
            subject: certificate.dn().to_string(),
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

    /// What is said of the key of that name; of none, of messages of which it is not known what opens them.
    fn row(&self, queue: &str, name: Option<&[u8]>) -> KeyUseStatus {
        let mut row = KeyUseStatus { queue: queue.to_owned(), is_known: name.is_some(), ..KeyUseStatus::default() };
        match name.and_then(KeyName::read) {
            Some(KeyName::Certificate { issuer, serial }) => (row.issuer, row.serial) = (issuer.to_string(), serial),
            Some(KeyName::Key(id)) => row.key_id = id,
            None => {}
        }
        if let Some(key) = name.and_then(|name| self.get(name)) {
            row.subject.clone_from(&key.subject);
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
