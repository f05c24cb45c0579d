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
                if names.iter().any(|name| key.is_named(name)) {
                    needed.staged += count;
                    is_there |= *count > 0;
                }
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
