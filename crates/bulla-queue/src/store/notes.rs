//! Notes: small named values that change in units of work, together with messages.
//!
//! All of them are in memory, and each checkpoint writes them again so that the log before it can go. Therefore they
//! have a limit together: a quarter of the reserve, so that a checkpoint fits on a full disk too.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Limits, PutError};
use crate::record::{NOTE_NAME_BYTES_MAX, NOTE_VALUE_BYTES_MAX, Record};

/// Notes that a store keeps, at most.
pub const NOTES_MAX: usize = 100_000;
/// Bytes of a store's identity.
pub const IDENTITY_BYTES: usize = 16;
/// The note that holds the store's identity.
pub(super) const IDENTITY_NOTE: &str = "store.identity";
/// The part of the reserve that the records of all notes together may take.
const RESERVE_DIVISOR: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: BTreeMap<Box<str>, Box<[u8]>>,
    /// Bytes of the records that set them.
    bytes: u64,
}

impl Notes {
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.notes.get(name).map(AsRef::as_ref)
    }

    /// Those whose names begin with `prefix`, by name.
    pub(super) fn from<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let notes = self.notes.range::<str, _>(from).map(|(name, value)| (name.as_ref(), value.as_ref()));
        notes.take_while(move |(name, _)| name.starts_with(prefix))
    }

    pub(super) fn set(&mut self, name: &str, value: Option<&[u8]>) {
        let before = match value {
            Some(value) => {
                self.bytes += head_bytes(name, value);
                self.notes.insert(name.into(), value.into())
            }
            None => self.notes.remove(name),
        };
        self.bytes -= before.map_or(0, |before| head_bytes(name, &before));
    }

    /// Whether the notes of a unit of work are within the limits, what takes up less room than before always being so.
    /// Returns the bytes of their records. A unit has few: each is compared with those before it.
    pub(super) fn admit(&self, changes: &[(&str, Option<&[u8]>)], limits: &Limits) -> Result<usize, PutError> {
        let mut heads = 0;
        let (mut count, mut bytes) = (self.notes.len(), self.bytes);
        for (index, &(name, value)) in changes.iter().enumerate() {
            let value_bytes = value.map_or(0, <[u8]>::len);
            if name.is_empty() || name.len() > NOTE_NAME_BYTES_MAX || value_bytes > NOTE_VALUE_BYTES_MAX {
                return Err(PutError::NoteTooBig { name_bytes: name.len(), value_bytes });
            }
            heads += record(name, value).head_bytes();
            let earlier = changes[..index].iter().rev().find(|(earlier, _)| *earlier == name);
            let before = earlier.map_or_else(|| self.get(name), |(_, value)| *value);
            count = count + usize::from(value.is_some()) - usize::from(before.is_some());
            bytes = bytes + value.map_or(0, |value| head_bytes(name, value))
                - before.map_or(0, |before| head_bytes(name, before));
        }
        let too_many = count > NOTES_MAX && count > self.notes.len();
        let too_much = bytes > limits.reserve_bytes / RESERVE_DIVISOR && bytes > self.bytes;
        if too_many || too_much {
            return Err(PutError::NotesFull { notes: count, bytes });
        }
        Ok(heads)
    }
}

/// The record that makes a note what it is to be.
pub(super) fn record<'a>(name: &'a str, value: Option<&'a [u8]>) -> Record<'a> {
    value.map_or(Record::Unnoted { name }, |value| Record::Noted { name, value })
}

fn head_bytes(name: &str, value: &[u8]) -> u64 {
    Record::Noted { name, value }.head_bytes() as u64
}
