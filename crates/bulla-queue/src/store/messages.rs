//! The table of messages: entries by slot, and slots by id.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{Index, IndexMut};

use crate::lane::{Index as LaneIndex, Slot};
use crate::message::{Chunks, Found, MessageId, Place, QueueId, User};
use crate::queue::Queue;
use crate::record::{PUT_HEADER_BYTES, PutRecord, Record, padded};

/// A table emptied from above this many entries gives its memory back.
const ENTRIES_KEPT_MAX: usize = 64 << 10;

/// Spreads numbers that were counted up. They are not chosen from outside, so nothing stronger is needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: neighbours end up far apart, in the high bits too.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(super) type IdBuildHasher = BuildHasherDefault<IdHasher>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Put, and its batch not synced yet.
    Pending,
    Available,
    Locked,
    /// Not deliverable before its time.
    Delayed,
}

/// Where a body is when it is not in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kept {
    /// Nowhere else.
    Memory,
    Journal,
    Spill,
}

/// A message: 112 bytes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) put_at_ms: u64,
    /// `u64::MAX` for never.
    pub(super) expires_at_ms: u64,
    pub(super) body: Option<Chunks>,
    /// Where the body lies in the journal or the spill.
    pub(super) at: u64,
    pub(super) user: Option<User>,
    /// The number of its queue.
    pub(super) queue: u32,
    pub(super) index: LaneIndex,
    pub(super) body_bytes: u32,
    pub(super) body_crc: u32,
    pub(super) delivery_count: u32,
    pub(super) priority: u8,
    pub(super) lane: u8,
    pub(super) state: State,
    pub(super) kept: Kept,
    /// The number of the set of keys that open it.
    pub(super) keys: u16,
}

const _: () = assert!(size_of::<Entry>() <= 112, "a million messages should cost about a hundred megabytes");

impl Entry {
    pub(super) fn place(&self) -> Place {
        Place { lane: self.lane, id: self.id }
    }

    pub(super) fn queue(&self) -> QueueId {
        QueueId::new(MessageId(self.id).store(), self.queue)
    }

    pub(super) fn found(&self) -> Found {
        Found {
            id: MessageId(self.id),
            place: self.place(),
            delivery_count: self.delivery_count,
            put_at_ms: self.put_at_ms,
            expires_at_ms: self.expires_in_record(),
            priority: self.priority,
            persistent: self.kept == Kept::Journal,
            body_bytes: self.body_bytes,
            user: self.user.clone(),
        }
    }

    fn expires_in_record(&self) -> Option<u64> {
        (self.expires_at_ms != u64::MAX).then_some(self.expires_at_ms)
    }

    /// Bytes that a put of this message takes in the journal.
    pub(super) fn journal_bytes(&self) -> u64 {
        let user = self.user.as_ref().map_or(0, |user| super::user_in_record(user).len());
        (PUT_HEADER_BYTES + padded(user) + padded(self.body_bytes as usize)) as u64
    }

    pub(super) fn moved_record(&self) -> Record<'_> {
        Record::Moved(self.put_record())
    }

    /// It has this body from here on.
    pub(super) fn replaced_record(&self) -> Record<'_> {
        Record::Replaced(self.put_record())
    }

    fn put_record(&self) -> PutRecord<'_> {
        PutRecord {
            id: MessageId(self.id),
            queue: self.queue(),
            priority: self.priority,
            body_bytes: self.body_bytes,
            body_crc: self.body_crc,
            put_at_ms: self.put_at_ms,
            expires_at_ms: self.expires_in_record(),
            delivery_count: self.delivery_count,
            user: self.user.as_ref().map(super::user_in_record),
            keys: self.keys,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Messages {
    entries: Vec<Option<Entry>>,
    vacant: Vec<Slot>,
    slots: HashMap<u64, Slot, IdBuildHasher>,
}

impl Messages {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&self, id: MessageId) -> Option<Slot> {
        self.slots.get(&id.0).copied()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        let id = entry.id;
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                let slot = Slot::try_from(self.entries.len()).expect("memory ends before four billion entries");
                self.entries.push(Some(entry));
                slot
            }
        };
        self.slots.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Entry {
        let entry = self.entries[slot as usize].take().expect("a slot is removed once");
        self.slots.remove(&entry.id);
        if self.slots.is_empty() && self.entries.len() > ENTRIES_KEPT_MAX {
            *self = Self::default();
        } else {
            self.vacant.push(slot);
        }
        entry
    }

    /// Deals the messages of a queue into its lanes anew, by id.
    pub(super) fn relane(&mut self, queue: &mut Queue) {
        let lanes = queue.take_lanes();
        let mut slots: Vec<Slot> = lanes.iter().flat_map(|lane| lane.slots(None)).map(|(slot, _)| slot).collect();
        slots.sort_unstable_by_key(|&slot| self[slot].id);
        for slot in slots {
            self.enlane(queue, slot);
        }
    }

    /// Appends a message to the lane where it belongs.
    pub(super) fn enlane(&mut self, queue: &mut Queue, slot: Slot) {
        let entry = &mut self[slot];
        entry.lane = queue.lane_of(entry.priority);
        entry.index = queue.push(entry.lane, entry.id, slot, entry.state == State::Available);
    }

    /// All messages, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| Some((slot as Slot, entry.as_ref()?)))
    }
}

impl Index<Slot> for Messages {
    type Output = Entry;

    fn index(&self, slot: Slot) -> &Entry {
        self.entries[slot as usize].as_ref().expect("lanes and the id map name live entries only")
    }
}

impl IndexMut<Slot> for Messages {
    fn index_mut(&mut self, slot: Slot) -> &mut Entry {
        self.entries[slot as usize].as_mut().expect("lanes and the id map name live entries only")
    }
}
