//! Queues in memory, with a journal under them.
//!
//! Three structures hold a message: an entry in one table (112 bytes), its place in a lane of its queue
//! (sixteen), and its id in a map. A persistent message is also in the open batch of the journal until the batch is
//! submitted, and becomes available when the batch is synced. Nothing here waits, except where a doc comment says so.

mod bodies;
mod checkpoint;
mod definitions;
mod delays;
mod errors;
mod evictable;
mod expiry;
mod index;
mod journal;
mod keys;
mod limits;
mod look;
mod marks;
mod messages;
mod notes;
mod objects;
mod reads;
mod recovery;
mod replace;
mod status;
mod unit;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::log::Log;
use crate::message::{
    Chunks, Found, Keys, Message, MessageId, PRIORITY_MAX, Place, QueueId, StoreNumber, Ticket, User,
};
use crate::queue::{Arrivals, Crossing, Queue, QueueAttributes};
use crate::record::{KEYS_NONE, PutRecord, Record, USER_BYTES_MAX, padded};
use crate::spill::Spill;
use bodies::Placed;
use delays::Delays;
pub use errors::{DefineError, JournalError, OpenError, PutError, ReadError, RemoveError};
use evictable::Evictable;
pub use expiry::Expired;
pub(crate) use index::QueueIndex;
pub use index::{INDEX_ENTRIES_MAX, KeysOf};
use journal::{Journal, Mark, MarkKind};
use keys::KeySets;
pub(crate) use keys::Needs;
pub use keys::{KEY_SETS_BYTES_MAX, KeyUse, QUEUE_KEY_SETS_BYTES_MAX, QUEUE_KEY_SETS_MAX};
pub use limits::{
    BACKLOG_BYTES_MAX_DEFAULT, BATCH_BYTES_MAX_DEFAULT, CHECKPOINT_BYTES_DEFAULT, LOG_BYTES_MIN_DEFAULT, Limits,
    MEMORY_BYTES_MAX_DEFAULT, RESERVE_BYTES_DEFAULT,
};
pub(crate) use look::Watch;
pub use look::{Cursor, Look, Looked, Seen};
pub use marks::Marker;
use messages::{Entry, IdBuildHasher, Kept, Messages, State};
pub use notes::{IDENTITY_BYTES, NOTES_MAX};
use notes::{IDENTITY_NOTE, Notes};
use objects::Objects;
pub use objects::{DefinitionUnit, OBJECTS_BYTES_MAX, OBJECTS_MAX, QueueChange, Reserve};
use reads::{Reads, What};
pub use recovery::Standby;
use replace::Formers;
pub use replace::Replaced;
pub use status::{Backlog, LogStatus, ScratchTotals, StoreStatus, Totals};

/// Local queues and the journal under them.
pub struct Store {
    number: StoreNumber,
    queues: HashMap<QueueId, Queue, IdBuildHasher>,
    names: HashMap<String, QueueId>,
    next_queue: u32,
    messages: Messages,
    notes: Notes,
    key_sets: KeySets,
    /// Which keys open a message of an older program.
    keys_of: Option<fn(&Chunks) -> Keys>,
    objects: Objects,
    next_id: u64,
    limits: Limits,
    memory_bytes: usize,
    evictable: Evictable,
    journal: Journal,
    /// Bodies that come back from the log.
    reads: Reads,
    /// What messages needed whose new body is not synced yet.
    formers: Formers,
    /// A checkpoint that waits for what it reads back: bytes still to carry forward, and space to leave.
    carrying: Option<(u64, u64)>,
    spill: Box<dyn Spill>,
    /// When messages expire, soonest first. May name messages that are gone.
    expiries: BinaryHeap<Reverse<(u64, u64)>>,
    expiring: usize,
    /// The latest moment that was swept: what had expired by then and was locked is not in `expiries` any more.
    swept_ms: u64,
    /// The time when expired messages were looked for last. A clock that was set back is believed.
    looked_ms: u64,
    delays: Delays,
    /// Queues that are indexed, and the entries of all their indexes.
    indexed: Vec<QueueId>,
    index_entries: usize,
    ready: Vec<QueueId>,
    freed: Vec<QueueId>,
    /// Queues of which nothing might be sent when that was asked.
    held_back: HashSet<QueueId, IdBuildHasher>,
    crossings: Vec<Crossing>,
    /// Queues with arrivals that were counted and not yet taken.
    arrived: Vec<QueueId>,
    /// Messages below this number were found in the journal: whether they are marked is not known.
    marked_below: u64,
    marked: HashMap<u64, Option<Marker>, IdBuildHasher>,
    /// Whether a message that was found in the journal asks for a mark.
    asks: Option<fn(&Chunks) -> bool>,
    expired: Vec<Expired>,
    /// `room` said 0 for the backlog's sake, so a sender waits.
    backlogged: AtomicBool,
    totals: Totals,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} queues, {} messages)", self.queues.len(), self.messages.len())
    }
}

impl Store {
    /// Claims the log and replays it. Queues found there come back by name, with default attributes until `define` says
    /// more. Waits for the disk.
    ///
    /// # Errors
    /// The log is in use, damaged or of a newer version; see [`OpenError`].
    pub fn open(log: Box<dyn Log>, spill: Box<dyn Spill>, limits: Limits, now: Instant) -> Result<Store, OpenError> {
        recovery::open(StoreNumber::LOCAL, log, spill, limits, now)
    }

    /// As [`Store::open`], for one of several stores that are open side by side: its ids and tickets carry `number`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_numbered(
        number: StoreNumber,
        log: Box<dyn Log>,
        spill: Box<dyn Spill>,
        limits: Limits,
        now: Instant,
    ) -> Result<Store, OpenError> {
        recovery::open(number, log, spill, limits, now)
    }

    /// What its ids and tickets carry.
    #[must_use]
    pub fn number(&self) -> StoreNumber {
        self.number
    }

    // ---- queues

    /// The queue of that name.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.names.get(name).copied()
    }

    /// All queues with their names, in no order.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &str)> {
        self.queues.values().map(|queue| (queue.id, queue.name.as_str()))
    }

    /// The name of a queue.
    #[must_use]
    pub fn name(&self, queue: QueueId) -> Option<&str> {
        self.queues.get(&queue).map(|queue| queue.name.as_str())
    }

    /// The attributes of a queue.
    #[must_use]
    pub fn attributes(&self, queue: QueueId) -> Option<&QueueAttributes> {
        self.queues.get(&queue).map(|queue| &queue.attributes)
    }

    // ---- the hot path

    /// Puts a message at the end of its priority. Non-persistent: available at once, [`Ticket::NOW`]. Persistent:
    /// available, and to be confirmed, once synced past the ticket. Costs one copy of a persistent body into the batch
    /// and its checksum; otherwise no byte of a body is touched until memory runs out, when it is written to scratch
    /// space.
    ///
    /// # Errors
    /// See [`PutError`]; the message is dropped.
    pub fn put(&mut self, queue: QueueId, message: Message) -> Result<Ticket, PutError> {
        let found = self.queues.get(&queue).ok_or_else(|| self.unknown(queue))?; // one hash of a small number
        let bytes = admit(found, &message, 0)?; // three compares
        self.key_sets.tidy(); // one compare
        if message.persistent && !found.attributes.temporary {
            let head = put_head_bytes(&message) + self.key_sets.definition_bytes(&message.keys);
            self.journal.admit(head, bytes as usize, self.limits.reserve_bytes)?; // room in the batch and on disk
            self.insert(queue, message, bytes, true, true)
        } else {
            self.insert(queue, message, bytes, false, false)
        }
    }

    /// Whether the journal takes persistent messages: it has room for a batch of them beyond its reserve, or finds some
    /// as a put would.
    pub fn takes_persistent(&mut self) -> bool {
        self.journal.admit(0, 0, self.limits.reserve_bytes + self.limits.batch_bytes_max as u64).is_ok()
    }

    /// Messages until MAXDEPTH, those under way included; 0 while too much waits for the disk.
    /// A caller that was told too little hears from [`Store::take_freed`].
    #[must_use]
    pub fn room(&self, queue: QueueId) -> u32 {
        match self.backlog() {
            Backlog::Usual => self.depth_room(queue),
            Backlog::Much | Backlog::TooMuch => 0,
        }
    }

    /// Messages until MAXDEPTH, those under way included, whatever waits for the disk.
    #[must_use]
    pub fn depth_room(&self, queue: QueueId) -> u32 {
        self.queues.get(&queue).map_or(0, Queue::room)
    }

    /// Locks the next message that can be delivered: not expired, not locked, behind `after` if that is given.
    /// Amortised constant without `after`; messages that have expired are removed on the way.
    pub fn lock_next(&mut self, queue: QueueId, after: Option<Place>, now_ms: u64) -> Option<Found> {
        let mut after = after;
        loop {
            let found = self.queues.get_mut(&queue)?;
            let (lane, slot) = found.first_free(after)?;
            let entry = &mut self.messages[slot];
            if entry.expires_at_ms > now_ms {
                found.lanes[lane].lock(entry.index);
                entry.state = State::Locked;
                found.status.locked += 1;
                found.status.last_get_ms = Some(now_ms);
                return Some(entry.found());
            }
            let place = entry.place();
            if self.expire(slot).is_err() {
                // The journal takes no removal now: pass over it, it is not deliverable either way.
                after = Some(place);
            }
        }
    }

    /// Locks one message by its name, where it can be delivered; expired or not.
    pub fn lock(&mut self, id: MessageId) -> Option<Found> {
        let slot = self.messages.slot(id).filter(|&slot| self.messages[slot].state == State::Available)?;
        let entry = &mut self.messages[slot];
        let queue = self.queues.get_mut(&entry.queue())?;
        entry.state = State::Locked;
        queue.lanes[usize::from(entry.lane)].lock(entry.index);
        queue.status.locked += 1;
        Some(entry.found())
    }

    /// The name of the message that was put last.
    #[must_use]
    pub fn newest(&self) -> MessageId {
        MessageId(self.next_id.saturating_sub(1))
    }

    /// The next message that could be delivered, behind `after` if that is given, without locking it.
    #[must_use]
    pub fn browse_next(&self, queue: QueueId, after: Option<Place>, now_ms: u64) -> Option<Found> {
        let found = self.queues.get(&queue)?;
        for (lane, behind) in found.lanes_from(after) {
            let mut slots = found.lanes[lane].slots(behind).filter(|(_, free)| *free).map(|(slot, _)| slot);
            if let Some(slot) = slots.find(|&slot| self.messages[slot].expires_at_ms > now_ms) {
                return Some(self.messages[slot].found());
            }
        }
        None
    }

    /// What is known of a message, wherever it stands.
    #[must_use]
    pub fn find(&self, id: MessageId) -> Option<(QueueId, Found)> {
        let entry = &self.messages[self.messages.slot(id)?];
        Some((entry.queue(), entry.found()))
    }

    /// When a message was put, in milliseconds since 1970, wherever it stands; `None` where it is gone. One look-up.
    #[must_use]
    pub fn put_at_ms(&self, id: MessageId) -> Option<u64> {
        Some(self.messages[self.messages.slot(id)?].put_at_ms)
    }

    /// Whether a message is locked. One look-up.
    #[must_use]
    pub fn is_locked(&self, id: MessageId) -> bool {
        self.locked(id).is_some()
    }

    /// Removes a locked message. Persistent: its removal is to be confirmed once synced past the ticket.
    ///
    /// # Errors
    /// See [`RemoveError`]; the message stays locked.
    pub fn acknowledge(&mut self, id: MessageId) -> Result<Ticket, RemoveError> {
        let slot = self.locked(id).ok_or(RemoveError::NotLocked { id })?;
        let ticket = self.remove(slot)?;
        Ok(ticket)
    }

    /// Unlocks a message at its own place. `failed` raises its delivery count, which is journaled without a ticket: a
    /// crash may forget the last of them. A message that is not locked is left alone.
    pub fn release(&mut self, id: MessageId, failed: bool) {
        self.release_failed(id, u32::from(failed));
    }

    /// As [`Store::release`], of a message whose delivery has failed that often since it was locked.
    pub fn release_failed(&mut self, id: MessageId, times: u32) {
        let Some(slot) = self.locked(id) else { return };
        let entry = &mut self.messages[slot];
        if times > 0 {
            entry.delivery_count = entry.delivery_count.saturating_add(times);
            let record = Record::Failed { id, delivery_count: entry.delivery_count };
            // Not worth an error: the count is also in memory, and a full journal must not keep a message locked.
            if entry.kept == Kept::Journal
                && self.journal.admit(record.head_bytes(), 0, self.limits.reserve_bytes).is_ok()
            {
                self.journal.append(&record);
            }
        }
        if entry.body.is_none() {
            self.reads.unpin(id.0);
        }
        entry.state = State::Available;
        // What is still to come is there already.
        if entry.expires_at_ms <= self.swept_ms {
            self.expiries.push(Reverse((entry.expires_at_ms, entry.id)));
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            queue.unlock(entry.lane, entry.index, entry.id);
            queue.status.locked -= 1;
            mark_ready(queue, &mut self.ready);
        }
    }

    /// Whether a queue would take a message when `before` others for it go first in the same unit of work: its
    /// attributes and its depth are looked at, the journal and scratch space are not.
    ///
    /// # Errors
    /// [`PutError::Unknown`], [`PutError::OtherStore`], [`PutError::PutInhibited`], [`PutError::TooBig`],
    /// [`PutError::QueueFull`], [`PutError::UserShare`].
    pub fn admits(&self, queue: QueueId, message: &Message, before: usize) -> Result<(), PutError> {
        let found = self.queues.get(&queue).ok_or_else(|| self.unknown(queue))?;
        admit(found, message, before).map(|_| ())
    }

    // ---- notes

    /// A note's value as the last unit of work left it, which need not be synced yet. One walk down a tree.
    #[must_use]
    pub fn note(&self, name: &str) -> Option<&[u8]> {
        self.notes.get(name)
    }

    /// The notes whose names begin with `prefix`, by name.
    pub fn notes<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.notes.from(prefix)
    }

    /// What tells this store from every other, its own replacement included; `None` before [`Store::ensure_identity`].
    #[must_use]
    pub fn identity(&self) -> Option<[u8; IDENTITY_BYTES]> {
        self.notes.get(IDENTITY_NOTE)?.try_into().ok()
    }

    /// Gives the store `fresh`, which is random, for its identity if it has none, and returns the one that it has.
    /// Waits for the disk the first time: a partner may be told of it from then on.
    ///
    /// # Errors
    /// [`JournalError`]; it has none then, or none that is durable.
    pub fn ensure_identity(
        &mut self,
        fresh: [u8; IDENTITY_BYTES],
        now: Instant,
    ) -> Result<[u8; IDENTITY_BYTES], JournalError> {
        if let Some(identity) = self.identity() {
            return Ok(identity);
        }
        let record = notes::record(IDENTITY_NOTE, Some(&fresh));
        self.journal.admit(record.head_bytes(), 0, 0)?;
        self.journal.append(&record);
        self.notes.set(IDENTITY_NOTE, Some(&fresh));
        self.sync(now)?;
        Ok(fresh)
    }

    // ---- time

    // ---- the journal's turn

    /// Submits what has gathered, if the log can take it. To be called after each turn of a dispatcher's loop; costs
    /// two compares when there is nothing to do. With an inline driver everything submitted is synced on return.
    ///
    /// # Errors
    /// [`JournalError::Failed`] and [`JournalError::Deposed`]: the program stops.
    pub fn flush(&mut self, now: Instant) -> Result<(), JournalError> {
        // A log that was full is asked again by its poll, so that a put which finds space is not refused for ever.
        if self.journal.submit()? || self.journal.is_short() {
            self.collect(now)?;
        }
        Ok(())
    }

    /// Collects what the log has done: `synced` grows, messages become available; then submits what has gathered
    /// meanwhile.
    ///
    /// # Errors
    /// [`JournalError::Failed`] and [`JournalError::Deposed`]: the program stops.
    pub fn poll(&mut self, now: Instant) -> Result<(), JournalError> {
        self.collect(now)?;
        if !self.held_back.is_empty() && self.journal.is_surely_owned() {
            for id in self.held_back.drain() {
                if let Some(queue) = self.queues.get_mut(&id) {
                    mark_ready(queue, &mut self.ready);
                }
            }
        }
        self.flush(now)
    }

    /// When everything written so far is durable.
    #[must_use]
    pub fn written(&self) -> Ticket {
        Ticket(self.journal.written())
    }

    /// Whether what a ticket stands for is durable. No ticket of another store is, but [`Ticket::NOW`].
    #[must_use]
    pub fn is_synced(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.journal.synced && (ticket.0 >= self.number.base() || ticket == Ticket::NOW)
    }

    /// Whether messages of a queue may be sent to others now, as [`Log::is_surely_owned`] has it. Where not,
    /// [`Store::take_ready`] names the queue once they may.
    pub fn may_send(&mut self, queue: QueueId) -> bool {
        let may = self.journal.is_surely_owned();
        if !may {
            self.held_back.insert(queue);
        }
        may
    }

    /// Moves to `into` the queues where something became available since this was last asked, each once.
    pub fn take_ready(&mut self, into: &mut Vec<QueueId>) {
        for id in self.ready.drain(..) {
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.ready = false;
                into.push(id);
            }
        }
    }

    /// Moves to `into` the queues that got room since this was last asked: they were full, or half of what was on them
    /// is gone.
    pub fn take_freed(&mut self, into: &mut Vec<QueueId>) {
        for id in self.freed.drain(..) {
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.freed = false;
                into.push(id);
            }
        }
    }

    /// Moves to `into` what the depths of watched queues have crossed since this was last asked, in order.
    pub fn take_crossings(&mut self, into: &mut Vec<Crossing>) {
        into.append(&mut self.crossings);
    }

    /// Moves to `into` what has come to queues whose arrivals are counted since this was last asked, each queue once.
    pub fn take_arrivals(&mut self, into: &mut Vec<(QueueId, Arrivals)>) {
        for id in self.arrived.drain(..) {
            if let Some(queue) = self.queues.get_mut(&id) {
                into.push((id, queue.take_arrivals()));
            }
        }
    }

    /// Submits everything and waits until it is synced.
    ///
    /// # Errors
    /// [`JournalError::Failed`] and [`JournalError::Deposed`]; also [`JournalError::Failed`] when the log gives no
    /// answer.
    pub fn sync(&mut self, now: Instant) -> Result<(), JournalError> {
        while self.journal.backlog_bytes() > 0 {
            let before = (self.journal.synced, self.journal.in_flight());
            self.poll(now)?;
            self.journal.settle();
            self.collect(now)?;
            if before == (self.journal.synced, self.journal.in_flight()) {
                return Err(JournalError::Failed { reason: "the log gives no answer".to_owned() });
            }
        }
        Ok(())
    }

    /// Writes a checkpoint that says so and closes. What is locked will be there at the next start.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn close(mut self, now: Instant) -> Result<(), JournalError> {
        self.shut_down(now)
    }

    /// As [`Store::close`], for an owner that can't part with the store: nothing may be put afterwards.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn shut_down(&mut self, now: Instant) -> Result<(), JournalError> {
        self.sync(now)?;
        self.checkpoint(true)?;
        self.sync(now)
    }

    // ---- below the surface

    /// Why a queue is not there.
    #[cold]
    fn unknown(&self, queue: QueueId) -> PutError {
        if queue.store() == self.number { PutError::Unknown } else { PutError::OtherStore }
    }

    /// Why a message is not locked.
    #[cold]
    fn not_locked(&self, id: MessageId) -> PutError {
        if id.store() == self.number { PutError::NotLocked { id } } else { PutError::OtherStore }
    }

    fn locked(&self, id: MessageId) -> Option<crate::lane::Slot> {
        self.messages.slot(id).filter(|&slot| self.messages[slot].state == State::Locked)
    }

    fn insert(
        &mut self,
        queue: QueueId,
        message: Message,
        bytes: u32,
        persistent: bool,
        held: bool,
    ) -> Result<Ticket, PutError> {
        let kept = self.keep(&message.body, bytes, persistent)?;
        Ok(self.enter(queue, message, bytes, kept, held))
    }

    /// Enters a message whose admission is settled. `held`: not available before the open batch is synced.
    fn enter(&mut self, queue: QueueId, message: Message, bytes: u32, placed: Placed, held: bool) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
        let priority = message.priority.min(PRIORITY_MAX);
        let found = self.queues.get_mut(&queue).expect("the caller has just found this queue");
        let lane = found.lane_of(priority);
        let expires_at_ms = message.expires_at_ms.unwrap_or(u64::MAX);
        found.user_has(message.user.as_ref(), bytes);
        let (in_memory, elsewhere) =
            if placed.in_memory { (Some(message.body), None) } else { (None, Some(message.body)) };
        let keys = keys::number_for(&mut self.key_sets, found, &message.keys);
        found.needs.came(&self.key_sets, keys, bytes, id);
        let slot = self.messages.insert(Entry {
            id,
            put_at_ms: message.put_at_ms,
            expires_at_ms,
            body: in_memory,
            at: placed.at,
            user: message.user,
            queue: queue.number(),
            index: 0,
            body_bytes: bytes,
            body_crc: placed.body_crc,
            delivery_count: 0,
            priority,
            lane,
            state: match (held, message.available_at_ms) {
                (true, _) => State::Pending,
                (false, Some(_)) => State::Delayed,
                (false, None) => State::Available,
            },
            kept: placed.kept,
            keys,
        });
        let is_free = !held && message.available_at_ms.is_none();
        self.messages[slot].index = found.push(lane, id, slot, is_free);
        found.grew(bytes, message.put_at_ms);
        found.count_put(bytes, placed.kept == Kept::Journal);
        if found.status.depth >= found.told_from {
            found.rose(&mut self.crossings);
        }
        self.totals.puts += 1;
        if found.index.is_some()
            && let Some(body) = elsewhere.as_ref().or(self.messages[slot].body.as_ref())
        {
            index::add(found, &self.messages, &mut self.index_entries, id, body);
        }
        if let Some(until_ms) = message.available_at_ms {
            self.delays.add(id, until_ms);
        }
        if expires_at_ms != u64::MAX {
            self.expiring += 1;
            self.expiries.push(Reverse((expires_at_ms, id)));
        }
        if !held {
            mark_ready(found, &mut self.ready);
            if is_free && found.arrived(priority) {
                self.arrived.push(queue);
            }
            return Ticket::NOW;
        }
        found.status.unsynced += 1;
        let mut mark = Mark { slot, id, kind: MarkKind::Held, at: 0 };
        if placed.kept == Kept::Journal {
            mark.kind = MarkKind::Put;
            if keys > KEYS_NONE {
                self.key_sets.define(keys, |record| _ = self.journal.append(record));
            }
            let entry = &self.messages[slot];
            let record = Record::Put(PutRecord {
                id: MessageId(id),
                queue,
                priority,
                body_bytes: bytes,
                body_crc: placed.body_crc,
                put_at_ms: message.put_at_ms,
                expires_at_ms: message.expires_at_ms,
                delivery_count: 0,
                user: entry.user.as_ref().map(user_in_record),
                keys,
            });
            let body = elsewhere.as_ref().or(entry.body.as_ref()).map_or(&[][..], Chunks::chunks);
            mark.at = self.journal.append_body(&record, body);
            if let Some(until_ms) = message.available_at_ms {
                self.journal.append(&Record::Delayed { id: MessageId(id), until_ms });
            }
        }
        self.journal.mark(mark)
    }

    /// Removes a message and says so to the journal.
    fn remove(&mut self, slot: crate::lane::Slot) -> Result<Ticket, JournalError> {
        if self.messages[slot].kept == Kept::Journal {
            self.journal.admit(Record::Removed(MessageId(0)).head_bytes(), 0, 0)?;
        }
        Ok(self.remove_admitted(slot))
    }

    fn remove_admitted(&mut self, slot: crate::lane::Slot) -> Ticket {
        let entry = self.messages.remove(slot);
        let mut ticket = Ticket::NOW;
        if entry.kept == Kept::Journal {
            ticket = self.journal.append(&Record::Removed(MessageId(entry.id)));
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            let lane = &mut queue.lanes[usize::from(entry.lane)];
            if lane.remove(entry.index) {
                lane.compact(|slot, index| self.messages[slot].index = index);
            }
            match entry.state {
                State::Locked => {
                    queue.status.locked -= 1;
                    queue.count_get(entry.body_bytes, entry.kept == Kept::Journal);
                    self.totals.gets += 1;
                }
                State::Pending => queue.status.unsynced -= 1,
                State::Available | State::Delayed => {}
            }
            if matches!(entry.state, State::Available | State::Locked) {
                queue.left(entry.priority);
            }
            queue.user_had(entry.user.as_ref(), entry.body_bytes);
            queue.needs.went(entry.keys, entry.body_bytes);
            if queue.shrank(entry.body_bytes) {
                mark_freed(queue, &mut self.freed);
            }
            if queue.status.depth < queue.told_below {
                queue.fell(&mut self.crossings);
            }
        }
        self.forget(&entry);
        ticket
    }

    /// Gives back what a removed message used beside its queue.
    fn forget(&mut self, entry: &Entry) {
        self.forget_former(entry.id, entry.queue());
        self.key_sets.went(entry.keys);
        if !self.marked.is_empty() {
            self.marked.remove(&entry.id);
        }
        if entry.body.is_some() {
            self.memory_bytes -= entry.body_bytes as usize;
        } else {
            self.reads.forget(What::Body(entry.id));
        }
        self.delays.forget(entry.id, &self.messages);
        self.evictable.forget(entry, &self.messages);
        match entry.kept {
            Kept::Spill => self.spill.free(entry.at, entry.body_bytes as usize),
            Kept::Journal => self.journal.live_bytes -= entry.journal_bytes(),
            Kept::Memory => {}
        }
        if entry.expires_at_ms != u64::MAX {
            self.expiring -= 1;
            if self.expiries.len() > 2 * self.expiring + EXPIRIES_STALE_MAX {
                let messages = &self.messages;
                self.expiries.retain(|Reverse((_, id))| messages.slot(MessageId(*id)).is_some());
            }
        }
    }
}

/// Names of expired or removed messages that may stay in the expiry order on top of twice the live ones.
const EXPIRIES_STALE_MAX: usize = 1_024;

/// Whether a queue takes a message when `before` others of the same unit of work go first. Returns its body's bytes.
fn admit(queue: &Queue, message: &Message, before: usize) -> Result<u32, PutError> {
    let attributes = &queue.attributes;
    let bytes = message.body.len();
    if !attributes.put_enabled {
        return Err(PutError::PutInhibited);
    }
    if bytes > attributes.max_message_bytes as usize {
        return Err(PutError::TooBig { bytes, max_message_bytes: attributes.max_message_bytes });
    }
    if queue.room() as usize <= before {
        return Err(PutError::QueueFull { max_depth: attributes.max_depth });
    }
    if let Some(share) = queue.share_exceeded(message.user.as_ref(), bytes, before) {
        return Err(PutError::UserShare { share });
    }
    Ok(u32::try_from(bytes).expect("MAXMSGL is a u32"))
}

fn put_head_bytes(message: &Message) -> usize {
    let delayed = message.available_at_ms.map_or(0, |_| crate::record::DELAYED_BYTES);
    crate::record::PUT_HEADER_BYTES
        + padded(message.user.as_ref().map_or(0, |user| user_in_record(user).len()))
        + delayed
}

/// A user's name as far as a record has room for it.
fn user_in_record(user: &User) -> &str {
    let name = user.as_str();
    &name[..name.floor_char_boundary(USER_BYTES_MAX)]
}

fn mark_ready(queue: &mut Queue, ready: &mut Vec<QueueId>) {
    if !std::mem::replace(&mut queue.ready, true) {
        ready.push(queue.id);
    }
}

fn mark_freed(queue: &mut Queue, freed: &mut Vec<QueueId>) {
    if !std::mem::replace(&mut queue.freed, true) {
        freed.push(queue.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

    use super::*;
    use crate::FileSpill;
    use crate::sim::{Manner, SimDisk, SimEngine};

    #[test]
    fn a_message_that_comes_back_again_and_again_is_watched_for_its_end_once() {
        let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
        let log = SimEngine::default().log(Manner::Prompt);
        let mut store = Store::open(Box::new(log), Box::new(spill), Limits::default(), Instant::now()).unwrap();
        let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
        let message = |expires_at_ms| Message {
            priority: 4,
            persistent: false,
            expires_at_ms: Some(expires_at_ms),
            available_at_ms: None,
            put_at_ms: 0,
            user: None,
            keys: Keys::None,
            body: vec![0; 8].into(),
        };
        store.put(queue, message(1_000)).unwrap();
        for now_ms in 0..500 {
            store.sweep(now_ms, 10);
            let id = store.lock_next(queue, None, now_ms).unwrap().id;
            store.release(id, false);
        }
        assert_eq!(store.expiries.len(), 1);
        let id = store.lock_next(queue, None, 500).unwrap().id;
        store.sweep(1_000, 10);
        assert_eq!((store.status(queue).unwrap().depth, store.expiries.len()), (1, 0), "it is locked");
        store.release(id, false);
        store.sweep(1_000, 10);
        assert_eq!((store.status(queue).unwrap().depth, store.expiries.len()), (0, 0));
    }
}
