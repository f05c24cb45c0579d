//! Definitions of objects: named texts that the journal keeps until they are replaced or removed.
//!
//! Only the name, the length and the place of a definition are in memory; its text is the body of a record and stays
//! where it was written. The log is let go no further than the oldest live definition, as with messages. A checkpoint
//! carries definitions forward only where the log before them is several times as long as all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{DefineError, Limits, PutError, QueueAttributes};
use crate::record::{OBJECT_BYTES_MAX, OBJECT_NAME_BYTES_MAX, Record, padded};

/// Definitions that a store keeps, at most.
pub const OBJECTS_MAX: usize = 1_000_000;
/// Bytes of the texts of all definitions that a store keeps, at most.
pub const OBJECTS_BYTES_MAX: u64 = 255 << 20;
/// How many times as long as all definitions the log may be before they are carried forward.
const CARRIED_AFTER: u64 = 4;
/// The part of [`Limits::log_bytes_min`] below which no definition is carried forward.
const LOG_BYTES_DIVISOR: u64 = 4;

/// What happens to a queue together with definitions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum QueueChange<'a> {
    /// A queue comes to be, or the one of that name gets these attributes.
    Define {
        /// Its name.
        name: &'a str,
        /// As it shall be.
        attributes: QueueAttributes,
    },
    /// A queue goes. All that go stand before those that are defined.
    Delete {
        /// Its name.
        name: &'a str,
        /// Its messages go too; without that, it must have none.
        purge: bool,
    },
    /// Every message of a queue goes that is not locked and not under way.
    Clear {
        /// Its name.
        name: &'a str,
    },
}

/// How much of the reserve a unit of definitions may use where the disk is full.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reserve {
    /// Nothing: something new is defined.
    #[default]
    Untouched,
    /// Half of it: something that is there is altered, or limited.
    Half,
    /// All of it: something is removed, or the start needs it.
    Whole,
}

impl Reserve {
    /// Bytes that stay free.
    pub(super) fn keep(self, limits: &Limits) -> u64 {
        match self {
            Reserve::Untouched => limits.reserve_bytes,
            Reserve::Half => limits.reserve_bytes / 2,
            Reserve::Whole => 0,
        }
    }
}

/// A unit of definitions: all of it becomes durable, or nothing. Each name stands in it once at most, a queue's once
/// as deleted and once as defined.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefinitionUnit<'a> {
    /// What happens to queues.
    pub queues: &'a [QueueChange<'a>],
    /// Objects by name with their definitions; none for those that go.
    pub objects: &'a [(&'a str, Option<&'a [u8]>)],
    /// Notes that change with them; see [`Store::commit`](super::Store::commit).
    pub notes: &'a [(&'a str, Option<&'a [u8]>)],
    /// What of the reserve it may use.
    pub reserve: Reserve,
}

/// Where a definition is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    /// The order in which live definitions were written.
    number: u64,
    /// Where its batch begins.
    pub(super) batch_at: u64,
    /// Where its text lies, once that is durable.
    pub(super) at: Option<u64>,
    pub(super) bytes: u32,
    pub(super) crc: u32,
}

impl Object {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

#[derive(Debug, Default)]
pub(super) struct Objects {
    objects: BTreeMap<Arc<str>, Object>,
    /// The names of live definitions in the order in which they were written.
    order: BTreeMap<u64, Arc<str>>,
    next_number: u64,
    /// Bytes of the texts.
    text_bytes: u64,
    /// Bytes of journal that the live records take.
    pub(super) journal_bytes: u64,
}

impl Objects {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(|name| &**name)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.objects.contains_key(name)
    }

    /// A definition was written in the batch at `batch_at`; returns its number, for [`placed`](Self::placed).
    pub(super) fn set(&mut self, name: &str, bytes: u32, crc: u32, batch_at: u64) -> u64 {
        self.remove(name);
        let (name, number) = (Arc::<str>::from(name), self.next_number);
        self.next_number += 1;
        self.text_bytes += u64::from(bytes);
        self.journal_bytes += journal_bytes(&name, bytes);
        self.order.insert(number, name.clone());
        self.objects.insert(name, Object { number, batch_at, at: None, bytes, crc });
        number
    }

    /// The text of the definition with that number lies there; nothing where it is gone or replaced.
    pub(super) fn placed(&mut self, number: u64, at: u64) {
        if let Some(object) = self.order.get(&number).and_then(|name| self.objects.get_mut(name)) {
            object.at = Some(at);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(gone) = self.objects.remove(name) {
            self.order.remove(&gone.number);
            self.text_bytes -= u64::from(gone.bytes);
            self.journal_bytes -= journal_bytes(name, gone.bytes);
        }
    }

    /// The live definition that was written first.
    pub(super) fn oldest(&self) -> Option<(&Arc<str>, &Object)> {
        let (_, name) = self.order.first_key_value()?;
        self.objects.get_key_value(name)
    }

    /// All definitions in the order in which they were written.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&str, &Object)> {
        self.order.values().filter_map(|name| Some((name.as_ref(), self.objects.get(name)?)))
    }

    /// Whether a log of so many bytes is long enough for definitions to be carried forward.
    pub(super) fn may_be_carried(&self, log_bytes: u64, is_short: bool, limits: &Limits) -> bool {
        let least = if is_short { 0 } else { limits.log_bytes_min / LOG_BYTES_DIVISOR };
        log_bytes > least.max(self.journal_bytes.saturating_mul(CARRIED_AFTER))
    }

    /// Whether the definitions of a unit are within the limits, what takes up less room than before always being so.
    /// Returns the bytes of their records, and of the bodies.
    pub(super) fn admit(&self, changes: &[(&str, Option<&[u8]>)]) -> Result<(usize, usize), DefineError> {
        let (mut heads, mut bodies) = (0, 0);
        let (mut count, mut bytes) = (self.objects.len(), self.text_bytes);
        for &(name, text) in changes {
            let text_bytes = text.map_or(0, <[u8]>::len);
            if name.is_empty() || name.len() > OBJECT_NAME_BYTES_MAX || text_bytes > OBJECT_BYTES_MAX {
                return Err(DefineError::ObjectTooBig { name_bytes: name.len(), bytes: text_bytes });
            }
            heads += Record::ObjectGone { name }.head_bytes();
            bodies += padded(text_bytes);
            let before = self.objects.get(name);
            count = count + usize::from(text.is_some()) - usize::from(before.is_some());
            bytes = bytes + text_bytes as u64 - before.map_or(0, |before| u64::from(before.bytes));
        }
        let too_many = count > OBJECTS_MAX && count > self.objects.len();
        let too_much = bytes > OBJECTS_BYTES_MAX && bytes > self.text_bytes;
        if too_many || too_much {
            return Err(DefineError::ObjectsFull { objects: count, bytes });
        }
        Ok((heads, bodies))
    }
}

fn journal_bytes(name: &str, bytes: u32) -> u64 {
    (Record::ObjectGone { name }.head_bytes() + padded(bytes as usize)) as u64
}

impl From<PutError> for DefineError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Journal(error) => DefineError::Journal(error),
            error => DefineError::Notes { reason: error.to_string() },
        }
    }
}
