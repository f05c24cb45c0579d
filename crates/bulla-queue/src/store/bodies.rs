//! Where bodies lie, and how they are read back.

use std::cmp::Reverse;

use super::Store;
use super::errors::{PutError, ReadError};
use super::journal::Journal;
use super::messages::{Entry, Kept, State};
use super::reads::{READ_BYTES_MAX, Reading, Reads, Wanted, What};
use crate::log::Position;
use crate::message::{Chunks, MessageId};
use crate::record::KEYS_UNKNOWN;

/// Messages that are asked for behind one that has to be waited for, and bytes of them.
pub(super) const READ_AHEAD_MAX: usize = 32;
const READ_AHEAD_BYTES: usize = READ_BYTES_MAX / 16;
/// Messages of a lane that are looked at for them.
const READ_AHEAD_LOOKS_MAX: usize = 256;

impl Store {
    /// The body of a message: shared when it is in memory, else read back and checked. What is not at hand is
    /// [`ReadError::Away`] until the log has brought it.
    ///
    /// # Errors
    /// See [`ReadError`]; the message stays as it is.
    pub fn body(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        let slot = self.messages.slot(id).ok_or(ReadError::Unknown { id })?;
        match &self.messages[slot].body {
            Some(body) => Ok(body.clone()),
            None => self.read_back(slot),
        }
    }

    /// As [`Store::body`], but waits for the log: for tools and tests that serve no one else meanwhile.
    ///
    /// # Errors
    /// See [`ReadError`]; it is not [`ReadError::Away`].
    pub fn body_now(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        let slot = self.messages.slot(id).ok_or(ReadError::Unknown { id })?;
        let entry = &self.messages[slot];
        if entry.body.is_some() || entry.kept != Kept::Journal {
            return self.body(id);
        }
        let (at, mut bytes) = (Position(entry.at), Vec::new());
        self.journal.read_now(at, entry.body_bytes as usize, &mut bytes).map_err(ReadError::Log)?;
        if crc32c::crc32c(&bytes) != entry.body_crc {
            return Err(ReadError::Damaged { id, at: Some(at) });
        }
        Ok(bytes.into())
    }

    #[cold]
    pub(super) fn read_back(&mut self, slot: crate::lane::Slot) -> Result<Chunks, ReadError> {
        let entry = &self.messages[slot];
        let (id, crc, whole) = (MessageId(entry.id), entry.body_crc, entry.body_bytes as usize);
        let at = (entry.kept == Kept::Journal).then_some(Position(entry.at));
        let bytes = self.stored(slot, whole)?;
        if crc32c::crc32c(&bytes) != crc {
            self.reads.drop_there(What::Body(id.0));
            return Err(ReadError::Damaged { id, at });
        }
        let body = Chunks::from(bytes.clone());
        if self.messages[slot].keys == KEYS_UNKNOWN {
            self.learn_keys(slot, &body);
        }
        if let Some(asks) = self.asks.filter(|_| self.is_marked(id)) {
            let (is_locked, queue) = (self.messages[slot].state == State::Locked, self.messages[slot].queue());
            if !self.marked.contains_key(&id.0) && !asks(&body) {
                self.reads.set_plain(id.0);
            } else if is_locked && at.is_some() && !self.reads.pin(id.0, bytes, queue) {
                // It is delivered, and read once more when it is got.
                return Err(ReadError::Away { id });
            }
        }
        Ok(body)
    }

    /// The first bytes of a body that is not in memory, not checked.
    pub(super) fn stored(&mut self, slot: crate::lane::Slot, bytes: usize) -> Result<bytes::Bytes, ReadError> {
        let entry = &self.messages[slot];
        let id = MessageId(entry.id);
        match entry.kept {
            Kept::Journal => {
                let wanted = wanted_of(entry, bytes);
                let is_new = !self.reads.knows(wanted.what);
                match self.reads.get(wanted, &mut self.journal).map_err(ReadError::Log)? {
                    Reading::There(bytes) => return Ok(bytes),
                    Reading::Away if is_new => self.read_ahead(slot, bytes),
                    Reading::Away => {}
                }
                Err(ReadError::Away { id })
            }
            Kept::Spill => {
                let mut read = Vec::with_capacity(bytes);
                self.spill.read(entry.at, bytes, &mut read).map_err(ReadError::Spill)?;
                Ok(read.into())
            }
            Kept::Memory => Err(ReadError::Unknown { id }),
        }
    }

    /// Asks for the messages behind one that has to be waited for, of the same lane: as much of each as of that one.
    pub(super) fn read_ahead(&mut self, slot: crate::lane::Slot, bytes: usize) {
        let entry = &self.messages[slot];
        let is_whole = bytes == entry.body_bytes as usize;
        let Some(queue) = self.queues.get(&entry.queue()) else { return };
        let next = queue.lanes[usize::from(entry.lane)].slots(Some(entry.id)).take(READ_AHEAD_LOOKS_MAX);
        let next = next.filter(|(_, free)| *free).map(|(slot, _)| &self.messages[slot]);
        let next = next.filter(|entry| entry.body.is_none() && entry.kept == Kept::Journal).map(|entry| {
            let whole = entry.body_bytes as usize;
            wanted_of(entry, if is_whole { whole } else { whole.min(bytes) })
        });
        ask_for(next.take(READ_AHEAD_MAX), &mut self.reads, &mut self.journal);
    }

    /// Unlocks a message whose body is [`ReadError::Away`] at its own place. [`Store::take_ready`] names its queue when
    /// there is something to look at, and not before.
    pub fn set_aside(&mut self, id: MessageId) {
        let Some(slot) = self.locked(id) else { return };
        let entry = &mut self.messages[slot];
        entry.state = State::Available;
        if entry.expires_at_ms <= self.swept_ms {
            self.expiries.push(Reverse((entry.expires_at_ms, entry.id)));
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            queue.unlock(entry.lane, entry.index, entry.id);
            queue.status.locked -= 1;
        }
    }

    /// Decides where a body lives.
    pub(super) fn keep(&mut self, body: &Chunks, bytes: u32, persistent: bool) -> Result<Placed, PutError> {
        let fits = self.fits(bytes) || (!persistent && self.make_room(bytes));
        let body_crc = if persistent || !fits { body.crc() } else { 0 };
        let mut placed = Placed { kept: Kept::Memory, at: 0, body_crc, in_memory: fits };
        if persistent {
            placed.kept = Kept::Journal;
        } else if !fits {
            placed.at = self.spill.append(body).map_err(|error| PutError::Spill { reason: error.to_string() })?;
            placed.kept = Kept::Spill;
            self.totals.scratch.messages += 1;
            self.totals.scratch.bytes += u64::from(bytes);
        }
        if fits {
            self.memory_bytes += bytes as usize;
        }
        Ok(placed)
    }

    pub(super) fn fits(&self, bytes: u32) -> bool {
        self.memory_bytes.saturating_add(bytes as usize) <= self.limits.memory_bytes_max
    }

    /// Takes bodies that the journal has out of memory, where that makes room for so many bytes.
    pub(super) fn make_room(&mut self, bytes: u32) -> bool {
        let left_at_least = self.memory_bytes - self.evictable.bytes();
        if left_at_least.saturating_add(bytes as usize) > self.limits.memory_bytes_max {
            return false;
        }
        while !self.fits(bytes) {
            // What is delivered and marked is read once more when it is got.
            // So is what the journal has not got yet.
            let must_stay = |entry: &Entry| {
                entry.state == State::Locked && self.marked.contains_key(&entry.id)
                    || self.formers.contains_key(&entry.id)
            };
            let Some(evicted) = self.evictable.evict(&mut self.messages, must_stay) else { return false };
            self.memory_bytes -= evicted;
        }
        true
    }

    pub(super) fn unkeep(&mut self, placed: &Placed, bytes: u32) {
        if placed.in_memory {
            self.memory_bytes -= bytes as usize;
        }
        if placed.kept == Kept::Spill {
            self.spill.free(placed.at, bytes as usize);
        }
    }
}

/// Bytes of a message that are wanted, and where they lie.
pub(super) fn wanted_of(entry: &Entry, bytes: usize) -> Wanted {
    Wanted { what: What::Body(entry.id), at: entry.at, bytes, queue: Some(entry.queue()) }
}

/// Asks for what is needed next, as far as there is room.
pub(super) fn ask_for(next: impl Iterator<Item = Wanted>, reads: &mut Reads, journal: &mut Journal) {
    let mut left = READ_AHEAD_BYTES;
    for wanted in next {
        if wanted.bytes > left || !reads.has_room() {
            return;
        }
        left -= wanted.bytes;
        if !reads.knows(wanted.what) && !matches!(reads.get(wanted, journal), Ok(Reading::Away)) {
            return;
        }
    }
}

/// Where a body was placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) kept: Kept,
    pub(super) at: u64,
    pub(super) body_crc: u32,
    pub(super) in_memory: bool,
}
