//! A message gets another body at its own place: sealed anew, it stays the same message to everyone who waits for it.
//!
//! Readers have the new body at once: whatever is done with the message afterwards stands behind it in the journal.
//! Until it is synced the body stays in memory, and the message counts as one that needs its former keys, too.

use std::collections::HashMap;

use super::journal::{Mark, MarkKind};
use super::keys;
use super::messages::{IdBuildHasher, Kept, State};
use super::reads::What;
use super::{PutError, Store, mark_ready};
use crate::message::{Chunks, Found, Keys, MessageId, Place, QueueId, Ticket};
use crate::record::{KEYS_NONE, Record};

/// What became of a message that was to get another body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Replaced {
    /// It has it. A persistent one has it for good once synced past the ticket.
    Done(Ticket),
    /// It is locked, not synced yet, or just has got another body: try again later.
    Busy,
    /// It is not there any more.
    Gone,
}

/// What a message needed before its body was replaced, until the new one is synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Former {
    keys: u16,
    bytes: u32,
}

/// Messages whose new body is not synced yet, by id.
pub(super) type Formers = HashMap<u64, Former, IdBuildHasher>;

impl Store {
    /// The messages of a queue behind `after`, in the order in which they are got, each with whether it can be
    /// replaced: not while it is locked or not synced yet. What has expired and is still there is among them.
    pub fn lying(&self, queue: QueueId, after: Option<Place>) -> impl Iterator<Item = (Found, bool)> + '_ {
        let lanes =
            self.queues.get(&queue).into_iter().flat_map(move |found| {
                found.lanes_from(after).flat_map(|(lane, behind)| found.lanes[lane].slots(behind))
            });
        let is_free = |state| matches!(state, State::Available | State::Delayed);
        lanes.map(|(slot, _)| &self.messages[slot]).map(move |entry| (entry.found(), is_free(entry.state)))
    }

    /// Gives a message another body that `keys` open, at its own place: its name, order, times, priority, user and
    /// delivery count stay. Only if it is there and not locked. MAXMSGL holds; MAXDEPTH, PUT(DISABLED) and what one
    /// user may have do not matter: nothing is put.
    ///
    /// # Errors
    /// [`PutError::TooBig`], [`PutError::Spill`] and [`PutError::Journal`]; the message stays as it is.
    pub fn replace(&mut self, id: MessageId, body: Chunks, keys: &Keys) -> Result<Replaced, PutError> {
        self.key_sets.tidy();
        let Some(slot) = self.messages.slot(id) else { return Ok(Replaced::Gone) };
        let entry = &self.messages[slot];
        if !matches!(entry.state, State::Available | State::Delayed) || self.formers.contains_key(&id.0) {
            return Ok(Replaced::Busy);
        }
        let found = self.queues.get(&entry.queue()).ok_or(PutError::Unknown)?;
        let (bytes, max_message_bytes) = (body.len(), found.attributes.max_message_bytes);
        let bytes = match u32::try_from(bytes) {
            Ok(fits) if fits <= max_message_bytes => fits,
            _ => return Err(PutError::TooBig { bytes, max_message_bytes }),
        };
        if entry.kept != Kept::Journal {
            return self.replace_elsewhere(slot, body, bytes, keys);
        }
        let until_ms = self.delays.until(entry.id);
        let delayed = until_ms.map(|until_ms| Record::Delayed { id, until_ms });
        let heads = entry.replaced_record().head_bytes()
            + self.key_sets.definition_bytes(keys)
            + delayed.as_ref().map_or(0, Record::head_bytes);
        self.journal.admit(heads, bytes as usize, self.limits.reserve_bytes)?;
        // It stays in memory until it is synced, whether or not there is room.
        self.make_room(bytes);
        self.memory_bytes += bytes as usize;
        let (crc, before) = (body.crc(), self.messages[slot].journal_bytes());
        let former = self.swap(slot, body, bytes, keys);
        let entry = &mut self.messages[slot];
        (entry.body_crc, self.journal.live_bytes) = (crc, self.journal.live_bytes + entry.journal_bytes() - before);
        if entry.keys > KEYS_NONE {
            self.key_sets.define(entry.keys, |record| _ = self.journal.append(record));
        }
        let chunks = entry.body.as_ref().map_or(&[][..], Chunks::chunks);
        let at = self.journal.append_body(&entry.replaced_record(), chunks);
        if let Some(delayed) = &delayed {
            self.journal.append(delayed);
        }
        self.journal.superseded(id.0);
        self.formers.insert(id.0, former);
        Ok(Replaced::Done(self.journal.mark(Mark { slot, id: id.0, kind: MarkKind::Replaced, at })))
    }

    /// The same of a message that the journal does not have.
    fn replace_elsewhere(
        &mut self,
        slot: crate::lane::Slot,
        body: Chunks,
        bytes: u32,
        keys: &Keys,
    ) -> Result<Replaced, PutError> {
        let placed = self.keep(&body, bytes, false)?;
        let entry = &self.messages[slot];
        if entry.kept == Kept::Spill {
            self.spill.free(entry.at, entry.body_bytes as usize);
        }
        let (id, former) = (entry.id, self.swap(slot, body, bytes, keys));
        let entry = &mut self.messages[slot];
        (entry.kept, entry.at, entry.body_crc) = (placed.kept, placed.at, placed.body_crc);
        if !placed.in_memory {
            entry.body = None;
        }
        self.needs_no_more(id, former);
        Ok(Replaced::Done(Ticket::NOW))
    }

    /// Takes the new body for the old one, in memory and in what is counted, and says what was counted for the old one:
    /// its keys still are.
    fn swap(&mut self, slot: crate::lane::Slot, body: Chunks, bytes: u32, keys: &Keys) -> Former {
        let entry = &mut self.messages[slot];
        let former = Former { keys: entry.keys, bytes: entry.body_bytes };
        let was_in_memory = entry.body.replace(body).is_some();
        entry.body_bytes = bytes;
        if was_in_memory {
            self.memory_bytes -= former.bytes as usize;
        } else {
            self.reads.forget(What::Body(entry.id));
        }
        self.evictable.replaced(was_in_memory.then_some(former.bytes), entry);
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            entry.keys = keys::number_for(&mut self.key_sets, queue, keys);
            queue.needs.came(&self.key_sets, entry.keys, bytes, entry.id);
            queue.status.bytes = queue.status.bytes - u64::from(former.bytes) + u64::from(bytes);
            queue.user_had(entry.user.as_ref(), former.bytes);
            queue.user_has(entry.user.as_ref(), bytes);
            if entry.state == State::Available {
                // Who has passed it over looks again.
                queue.returned(entry.lane, entry.id);
                mark_ready(queue, &mut self.ready);
            }
        }
        former
    }

    /// A message's new body is synced.
    pub(super) fn replaced_for_good(&mut self, id: u64) {
        if let Some(former) = self.formers.remove(&id) {
            self.needs_no_more(id, former);
        }
    }

    fn needs_no_more(&mut self, id: u64, former: Former) {
        if let Some(slot) = self.messages.slot(MessageId(id))
            && let Some(queue) = self.queues.get_mut(&self.messages[slot].queue())
        {
            queue.needs.went(former.keys, former.bytes);
        }
        self.key_sets.went(former.keys);
    }

    /// A message is gone from its queue before its new body was synced.
    pub(super) fn forget_former(&mut self, id: u64, queue: QueueId) {
        if self.formers.is_empty() {
            return;
        }
        let Some(former) = self.formers.remove(&id) else { return };
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.needs.went(former.keys, former.bytes);
        }
        self.key_sets.went(former.keys);
    }
}
