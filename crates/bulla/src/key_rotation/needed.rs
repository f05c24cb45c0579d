//! What still needs a key.

use super::record::{Counted, KeyFacts};
use crate::key_use::QueueNeeds;
use std::fmt::{self, Display};

/// Most queues that are named in a text; all of them are counted.
const QUEUES_NAMED_MAX: usize = 16;

/// What needs one key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Needed {
    /// Messages on queues that the key opens, those under delivery included.
    pub messages: u64,
    /// Their bytes, as stored.
    pub bytes: u64,
    /// Messages in units of work that are not committed.
    pub staged: u64,
    /// Messages of which it is not known what opens them: any of them may need the key.
    pub unknown: u64,
    /// Where all of these are.
    pub queues: Vec<String>,
}

impl Needed {
    /// What of all that messages need is about this key.
    pub fn of(key: &KeyFacts, needs: &[QueueNeeds]) -> Needed {
        let mut needed = Needed::default();
        for of_queue in needs {
            let mut is_there = false;
            for one in &of_queue.there {
                match &one.names {
                    None => needed.unknown += u64::from(one.messages),
                    Some(names) if names.iter().any(|name| key.is_named(name)) => {
                        needed.messages += u64::from(one.messages);
                        needed.bytes += one.bytes;
                    }
                    Some(_) => continue,
                }
                is_there |= one.messages > 0;
            }
            for (names, count) in &of_queue.staged {
                match names {
                    None => needed.unknown += count,
                    Some(names) if names.iter().any(|name| key.is_named(name)) => needed.staged += count,
                    Some(_) => continue,
                }
                is_there |= *count > 0;
            }
            if is_there {
                needed.queues.push(of_queue.queue.clone());
            }
        }
        needed
    }

    /// As a record has it.
    pub fn counted(&self) -> Counted {
        Counted { messages: self.total(), bytes: self.bytes }
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.messages + self.staged + self.unknown
    }
}

/// How many, of what kind, and where.
impl Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages", self.messages)?;
        if self.staged > 0 {
            write!(f, ", {} in units of work", self.staged)?;
        }
        if self.unknown > 0 {
            write!(f, ", {} of which it is not known", self.unknown)?;
        }
        let named = &self.queues[..self.queues.len().min(QUEUES_NAMED_MAX)];
        match self.queues.len() - named.len() {
            _ if named.is_empty() => Ok(()),
            0 => write!(f, ", on {}", named.join(", ")),
            more => write!(f, ", on {} and {more} more queues", named.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_queue::{KeyNames, KeyUse};
    use bytes::Bytes;

    fn named(names: &[&'static [u8]]) -> Option<KeyNames> {
        Some(names.iter().map(|name| Bytes::from_static(name)).collect())
    }

    fn there(names: Option<KeyNames>, messages: u32) -> KeyUse {
        KeyUse { names, messages, bytes: 10 * u64::from(messages), oldest_put_ms: None }
    }

    #[test]
    fn what_is_not_known_counts_as_needed() {
        let key = KeyFacts {
            subject: "CN=billing".into(),
            issuer: "CN=demo".into(),
            serial: "0a".into(),
            key_id: "0102".into(),
            name: "3003".into(),
            fingerprint: "ab".into(),
        };
        let needs = |queue: &str, there: Vec<KeyUse>, staged| QueueNeeds { queue: queue.into(), there, staged };
        let by_name = there(named(&[b"\x30\x03", b"\x30\x04"]), 2);
        let all = [
            needs("A", vec![by_name, there(named(&[b"\x30\x04"]), 9)], vec![]),
            needs("B", vec![there(named(&[b"\x80\x02\x01\x02"]), 1)], vec![(named(&[b"\x30\x03"]), 4)]),
            needs("C", vec![there(None, 3)], vec![(None, 5)]),
            needs("D", vec![there(named(&[b"\x30\x04"]), 7)], vec![(named(&[b"\x30\x04"]), 7)]),
        ];
        let needed = Needed::of(&key, &all);
        let queues = ["A", "B", "C"].map(str::to_owned).to_vec();
        assert_eq!(needed, Needed { messages: 3, bytes: 30, staged: 4, unknown: 8, queues });
        assert_eq!(needed.total(), 15);
        let said = "3 messages, 4 in units of work, 8 of which it is not known, on A, B, C";
        assert_eq!(needed.to_string(), said);
        assert_eq!(Needed::of(&key, &all[3..]), Needed::default());
    }
}
