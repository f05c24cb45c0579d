//! How often private keys of rings are used: counted where it happens, told once a minute.

use super::entry::{Entry, Kind, Who};
use bulla_seal::certificate::Certificate;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// From one telling of a key to the next.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What a key is used for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Purpose {
    /// To sign what is sealed.
    Seal,
    /// To unwrap content keys.
    Open,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Purpose::Seal => "seal",
            Purpose::Open => "open",
        }
    }
}

/// One key of one user's ring, for one purpose, since it was told of last.
#[derive(Debug, Default)]
pub struct KeyUse {
    messages: AtomicU64,
    operations: AtomicU64,
    told: AtomicBool,
}

impl KeyUse {
    /// Messages for which the key was used, and private-key operations that took; a message whose content key was known
    /// takes none. One or two additions.
    pub fn add(&self, messages: u64, operations: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        if operations > 0 {
            self.operations.fetch_add(operations, Ordering::Relaxed);
        }
    }

    fn any(&self) -> bool {
        self.messages.load(Ordering::Relaxed) > 0
    }
}

/// A user, the fingerprint of a key's certificate where it is known, and what the key is for.
type Id = (String, Option<[u8; 32]>, Purpose);

/// The keys that links hold counters of.
#[derive(Debug, Default)]
pub(super) struct KeyUses {
    keys: HashMap<Id, (Arc<KeyUse>, Option<String>)>,
    told_at: Option<Instant>,
}

impl KeyUses {
    pub(super) fn of(&mut self, user: &str, key: Option<&Certificate>, purpose: Purpose) -> Arc<KeyUse> {
        let id = (user.to_owned(), key.map(|key| *key.fingerprint()), purpose);
        let new = || (Arc::default(), key.map(|key| key.dn().to_string()));
        self.keys.entry(id).or_insert_with(new).0.clone()
    }

    pub(super) fn any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether there is something to tell: a first use, or a minute of others.
    pub(super) fn are_due(&self, now: Instant) -> bool {
        let minute = self.is_minute(now);
        self.keys.values().any(|(used, _)| used.any() && (minute || !used.told.load(Ordering::Relaxed)))
            || minute && self.has_idle()
    }

    /// Entries for what is due; of all that was counted where the log is `closed`.
    pub(super) fn take_due(&mut self, now: Instant, closed: bool) -> Vec<Entry> {
        let minute = self.is_minute(now) || closed;
        let mut told = Vec::new();
        for ((user, key, purpose), (used, subject)) in &self.keys {
            if !used.any() || !minute && used.told.load(Ordering::Relaxed) {
                continue;
            }
            used.told.store(true, Ordering::Relaxed);
            let messages = used.messages.swap(0, Ordering::Relaxed);
            let operations = used.operations.swap(0, Ordering::Relaxed);
            let what = json!({
                "purpose": purpose.word(),
                "key": key.map(|key| base16ct::lower::encode_string(&key)),
                "subject": subject,
                "messages": messages,
                "operations": operations,
            });
            told.push(Entry::new(Kind::KeyUse, Who::User(user.clone()), what));
        }
        if minute {
            self.told_at = Some(now);
            // No link counts there any more: the next one that does is a first use again.
            self.keys.retain(|_, (used, _)| Arc::strong_count(used) > 1 || used.any());
        }
        told
    }

    fn is_minute(&self, now: Instant) -> bool {
        self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TOLD_EVERY)
    }

    fn has_idle(&self) -> bool {
        self.keys.values().any(|(used, _)| Arc::strong_count(used) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(entries: &[Entry]) -> u64 {
        entries.iter().map(|entry| entry.what["messages"].as_u64().unwrap()).sum()
    }

    #[test]
    fn a_first_use_is_told_at_once_and_later_ones_once_a_minute() {
        let (begin, mut keys) = (Instant::now(), KeyUses::default());
        keys.take_due(begin, false); // the minute begins
        let used = keys.of("orders", None, Purpose::Seal);
        assert!(!keys.are_due(begin), "nothing was used");
        used.add(1, 1);
        assert!(keys.are_due(begin));
        assert_eq!(messages(&keys.take_due(begin, false)), 1);
        for _ in 0..1000 {
            used.add(1, 1);
        }
        assert!(!keys.are_due(begin + Duration::from_secs(59)));
        let told = keys.take_due(begin + TOLD_EVERY, false);
        assert_eq!((told.len(), messages(&told), &told[0].what["operations"]), (1, 1000, &json!(1000)));
        assert_eq!(keys.take_due(begin + 2 * TOLD_EVERY, false), []);
        drop(used);
        keys.take_due(begin + 3 * TOLD_EVERY, false);
        assert!(!keys.any(), "no link counts there any more");
    }
}
