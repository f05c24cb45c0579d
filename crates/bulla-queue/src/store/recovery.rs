//! From a log to a store: reads record headers, leaves bodies where they are.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Instant;

use super::evictable::Evictable;
use super::journal::Journal;
use super::keys::{KeySets, Tallies};
use super::messages::{Entry, Kept, Messages, State};
use super::notes::Notes;
use super::objects::Objects;
use super::{Limits, OpenError, Store};
use crate::log::{Claim, Epoch, Log, LogError, Position, Replayed};
use crate::message::{MESSAGE_NUMBER_MAX, MessageId, QueueId, StoreNumber, User};
use crate::queue::{Queue, QueueAttributes};
use crate::record::{KEYS_NONE, KEYS_UNKNOWN, PutRecord, Record, Records, padded};
use crate::spill::Spill;

/// Bits of a message id below the epoch: ids stay unique though a crash forgets what was never journaled.
const EPOCH_SHIFT_BITS: u32 = 40;
/// User names remembered while replaying, so that a million messages of one user share one name.
const USERS_MAX: usize = 1_024;
/// Places of messages that are gone which a standby tolerates, on top of twice as many as there are messages.
const STALE_MAX: usize = 4_096;

#[derive(Default)]
struct Replay {
    /// The store that all ids are of.
    number: StoreNumber,
    messages: Messages,
    queues: HashMap<QueueId, String>,
    deleted: HashSet<QueueId>,
    users: HashMap<String, User>,
    /// Where the batches of messages begin, in log order.
    order: Vec<(u64, u64)>,
    /// Messages that occur more than once in `order`.
    moved: HashSet<u64>,
    notes: Notes,
    key_sets: KeySets,
    objects: Objects,
    /// Until when messages are not deliverable, by id.
    delays: HashMap<u64, u64>,
    next_id: u64,
    next_queue: u32,
    damage: Option<(Position, String)>,
}

pub(super) fn open(
    number: StoreNumber,
    log: Box<dyn Log>,
    spill: Box<dyn Spill>,
    limits: Limits,
    now: Instant,
) -> Result<Store, OpenError> {
    let mut standby = Standby::numbered(number, log);
    standby.claim(now, Claim::IfFree)?;
    standby.into_store(spill, limits, now)
}

/// A reader of a log that another owner writes: it knows what a store would know, and takes over when that owner is
/// gone, without reading all of the log again.
///
/// It holds what messages are, not what they carry.
pub struct Standby {
    log: Box<dyn Log>,
    replay: Replay,
    /// Where it goes on; `None` before it has read anything.
    at: Option<Position>,
    claimed: Option<(Epoch, Position)>,
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Standby({} messages, {:?})", self.replay.messages.len(), self.at)
    }
}

impl Standby {
    /// A reader that has read nothing yet. The log is not claimed.
    #[must_use]
    pub fn new(log: Box<dyn Log>) -> Self {
        Self::numbered(StoreNumber::LOCAL, log)
    }

    /// The same for a store that has that number.
    #[must_use]
    pub fn numbered(number: StoreNumber, log: Box<dyn Log>) -> Self {
        Self { log, replay: Replay::new(number), at: None, claimed: None }
    }

    /// Applies the batches that came since; says how far it has come. Waits for the disk: for a thread of its own.
    ///
    /// # Errors
    /// The log can't be read, or a record is not what a journal may hold; see [`OpenError`].
    pub fn follow(&mut self) -> Result<Position, OpenError> {
        loop {
            let replay = &mut self.replay;
            match self.log.replay(self.at, &mut |batch| replay.batch(batch)) {
                Ok(at) => {
                    if let Some((at, reason)) = self.replay.damage.take() {
                        return Err(OpenError::Damaged { at, reason });
                    }
                    self.replay.tidy();
                    self.at = Some(at);
                    return Ok(at);
                }
                // It was too slow, or what it has read was lost in a power cut.
                Err(LogError::Released { .. }) if self.at.is_some() => {
                    (self.replay, self.at) = (Replay::new(self.replay.number), None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How far it has read; none before it has read anything.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.at
    }

    /// A note, as [`Store::note`].
    #[must_use]
    pub fn note(&self, name: &str) -> Option<&[u8]> {
        self.replay.notes.get(name)
    }

    /// The notes whose names begin with `prefix`, as [`Store::notes`].
    pub fn notes<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.replay.notes.from(prefix)
    }

    /// The queues, in no order.
    pub fn queue_names(&self) -> impl Iterator<Item = &str> {
        let Replay { queues, deleted, .. } = &self.replay;
        queues.iter().filter(|(queue, _)| !deleted.contains(queue)).map(|(_, name)| name.as_str())
    }

    /// The objects that are defined, as [`Store::object_names`].
    pub fn object_names(&self) -> impl Iterator<Item = &str> {
        self.replay.objects.names()
    }

    /// How many messages it knows of. Looks at each.
    #[must_use]
    pub fn messages(&self) -> usize {
        let Replay { messages, deleted, .. } = &self.replay;
        messages.iter().filter(|(_, entry)| !deleted.contains(&entry.queue())).count()
    }

    /// Who claimed the log last, as [`Log::owner`] has it.
    #[must_use]
    pub fn owner(&self) -> Option<(String, Epoch)> {
        self.log.owner()
    }

    /// Becomes the owner and reads what is left. Nothing is changed where that is refused.
    ///
    /// # Errors
    /// [`LogError::Owned`], and as [`Standby::follow`].
    pub fn claim(&mut self, now: Instant, how: Claim) -> Result<(), OpenError> {
        let (epoch, end) = self.log.claim(now, how)?;
        self.claimed = Some((epoch, end));
        let stopped = self.follow()?;
        if stopped != end {
            return Err(OpenError::Damaged { at: stopped, reason: format!("the log goes on until {end}") });
        }
        Ok(())
    }

    /// The store over this log, which is claimed if it is not yet.
    ///
    /// # Errors
    /// As [`Standby::claim`], and [`OpenError::Damaged`] where what was read makes no sense.
    pub fn into_store(mut self, spill: Box<dyn Spill>, limits: Limits, now: Instant) -> Result<Store, OpenError> {
        if self.claimed.is_none() {
            self.claim(now, Claim::IfFree)?;
        }
        match self.claimed {
            Some(claimed) => finish(self.log, self.replay, claimed, spill, limits),
            None => Err(OpenError::Log(LogError::Owned { epoch: None })),
        }
    }
}

/// The store that the records of a log come to.
fn finish(
    log: Box<dyn Log>,
    replay: Replay,
    (epoch, end): (Epoch, Position),
    spill: Box<dyn Spill>,
    limits: Limits,
) -> Result<Store, OpenError> {
    let Replay { number, mut messages, queues: names, deleted, order, moved, notes, objects, .. } = replay;
    let Replay { next_id, next_queue, delays: told, mut key_sets, .. } = replay;
    let epochs = MESSAGE_NUMBER_MAX >> EPOCH_SHIFT_BITS;
    if epoch.0 > epochs {
        let reason = format!("it has had {} owners; message numbers are enough for {epochs}", epoch.0);
        return Err(OpenError::Damaged { at: end, reason });
    }
    let mut queues = HashMap::default();
    for (&id, name) in &names {
        queues.insert(id, Queue::new(id, name, QueueAttributes::default()));
    }
    let mut slots: Vec<_> = messages.iter().map(|(slot, entry)| (entry.id, entry.queue(), slot)).collect();
    slots.sort_unstable();
    let mut expiries = BinaryHeap::new();
    let mut live_bytes = 0;
    let mut delays = super::Delays::default();
    let mut tallies = Tallies::default();
    for (_, queue, slot) in slots {
        let Some(found) = queues.get_mut(&queue) else {
            let entry = messages.remove(slot);
            if deleted.contains(&queue) {
                continue;
            }
            let reason = format!("message {} is on queue {}, which is nowhere defined", entry.id, queue.number());
            return Err(OpenError::Damaged { at: Position(entry.at), reason });
        };
        if let Some(&until_ms) = told.get(&messages[slot].id) {
            messages[slot].state = State::Delayed;
            delays.add(messages[slot].id, until_ms);
        }
        messages.enlane(found, slot);
        let entry = &mut messages[slot];
        if entry.keys != KEYS_NONE {
            if !key_sets.has(entry.keys) {
                entry.keys = KEYS_UNKNOWN;
            }
            tallies.came(found, &mut key_sets, entry.keys, entry.body_bytes, entry.id);
        }
        found.grew(entry.body_bytes, entry.put_at_ms);
        live_bytes += entry.journal_bytes();
        if entry.expires_at_ms != u64::MAX {
            expiries.push(Reverse((entry.expires_at_ms, entry.id)));
        }
    }
    tallies.count(&mut queues, &mut key_sets);
    key_sets.ready();
    let mut seen = HashSet::new();
    let mut live: VecDeque<(u64, u64)> = VecDeque::with_capacity(messages.len());
    for (at, id) in order.into_iter().rev() {
        if messages.slot(MessageId(id)).is_some() && (!moved.contains(&id) || seen.insert(id)) {
            live.push_front((at, id));
        }
    }

    let mut ready = Vec::new();
    for queue in queues.values_mut().filter(|queue: &&mut Queue| queue.status.depth > 0) {
        super::mark_ready(queue, &mut ready);
    }
    let mut journal = Journal::new(number, log, end, limits.batch_bytes_max, live);
    journal.live_bytes = live_bytes;
    Ok(Store {
        number,
        names: names.into_iter().map(|(id, name)| (name, id)).collect(),
        queues,
        next_queue,
        next_id: next_id.max(number.base() | epoch.0 << EPOCH_SHIFT_BITS),
        messages,
        notes,
        key_sets,
        keys_of: None,
        objects,
        limits,
        memory_bytes: 0,
        evictable: Evictable::default(),
        journal,
        reads: super::Reads::default(),
        formers: super::Formers::default(),
        carrying: None,
        spill,
        expiring: expiries.len(),
        swept_ms: 0,
        looked_ms: 0,
        expiries,
        delays,
        indexed: Vec::new(),
        index_entries: 0,
        ready,
        freed: Vec::new(),
        held_back: HashSet::default(),
        crossings: Vec::new(),
        arrived: Vec::new(),
        marked_below: next_id,
        marked: HashMap::default(),
        asks: None,
        expired: Vec::new(),
        backlogged: false.into(),
        totals: super::Totals::default(),
    })
}

impl Replay {
    fn new(number: StoreNumber) -> Self {
        Self { number, next_id: number.base() + 1, next_queue: 1, ..Self::default() }
    }

    /// Lets go of what messages have left behind that are gone, where that has become much.
    fn tidy(&mut self) {
        if self.order.len() <= 2 * self.messages.len() + STALE_MAX {
            return;
        }
        let gone: Vec<_> = self.messages.iter().filter(|(_, entry)| self.deleted.contains(&entry.queue())).collect();
        for slot in gone.into_iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            let entry = self.messages.remove(slot);
            self.delays.remove(&entry.id);
        }
        let messages = &self.messages;
        self.order.retain(|(_, id)| messages.slot(MessageId(*id)).is_some());
        self.moved.retain(|id| messages.slot(MessageId(*id)).is_some());
        // One that is carried forward again and again stands there by its last place.
        let mut seen = HashSet::new();
        let moved = &self.moved;
        self.order.reverse();
        self.order.retain(|(_, id)| !moved.contains(id) || seen.insert(*id));
        self.order.reverse();
    }

    fn batch(&mut self, batch: Replayed<'_>) {
        if self.damage.is_some() {
            return;
        }
        let mut body_at = batch.bodies_at.0;
        let bodies_end = batch.bodies_at.0.saturating_add(batch.bodies_bytes);
        for record in Records::new(batch.head) {
            let done = match record {
                Ok(Record::Put(put)) => self.put(&put, false, batch.at, &mut body_at, bodies_end),
                Ok(Record::Moved(put) | Record::Replaced(put)) => {
                    self.put(&put, true, batch.at, &mut body_at, bodies_end)
                }
                Ok(Record::Object { name, body_bytes, body_crc }) => {
                    self.object((name, body_bytes, body_crc), batch.at, &mut body_at, bodies_end)
                }
                Ok(record) => self.other(&record),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = done {
                self.damage = Some((batch.at, reason));
                return;
            }
        }
        if body_at != bodies_end {
            self.damage = Some((batch.at, "its bodies are not as long as its records say".to_owned()));
        }
    }

    fn put(
        &mut self,
        put: &PutRecord<'_>,
        moved: bool,
        batch_at: Position,
        body_at: &mut u64,
        bodies_end: u64,
    ) -> Result<(), String> {
        let at = *body_at;
        let end = at.saturating_add(padded(put.body_bytes as usize) as u64);
        if end > bodies_end {
            return Err(format!("the body of message {} ends outside its batch", put.id.0));
        }
        *body_at = end;
        let id = self.own_id(put.id);
        self.own_queue(put.queue)?;
        self.order.push((batch_at.0, id.0));
        if let Some(slot) = self.messages.slot(id) {
            if !moved {
                return Err(format!("message {} is put twice", put.id.0));
            }
            self.moved.insert(id.0);
            let entry = &mut self.messages[slot];
            (entry.at, entry.delivery_count, entry.keys) = (at, put.delivery_count, put.keys);
            // One that is carried forward has the body that it had.
            (entry.body_bytes, entry.body_crc) = (put.body_bytes, put.body_crc);
            return Ok(());
        }
        let user = put.user.map(|name| self.user(name));
        self.messages.insert(Entry {
            id: id.0,
            put_at_ms: put.put_at_ms,
            expires_at_ms: put.expires_at_ms.unwrap_or(u64::MAX),
            body: None,
            at,
            user,
            queue: put.queue.number(),
            index: 0,
            body_bytes: put.body_bytes,
            body_crc: put.body_crc,
            delivery_count: put.delivery_count,
            priority: put.priority,
            lane: 0,
            state: State::Available,
            kept: Kept::Journal,
            keys: put.keys,
        });
        Ok(())
    }

    fn object(
        &mut self,
        (name, bytes, crc): (&str, u32, u32),
        batch_at: Position,
        body_at: &mut u64,
        bodies_end: u64,
    ) -> Result<(), String> {
        let at = *body_at;
        let end = at.saturating_add(padded(bytes as usize) as u64);
        if end > bodies_end {
            return Err(format!("the definition of {name} ends outside its batch"));
        }
        *body_at = end;
        let number = self.objects.set(name, bytes, crc, batch_at.0);
        self.objects.placed(number, at);
        Ok(())
    }

    fn other(&mut self, record: &Record<'_>) -> Result<(), String> {
        match *record {
            Record::Put(_) | Record::Moved(_) | Record::Replaced(_) | Record::Object { .. } => {}
            Record::Removed(id) => {
                let id = self.own_id(id);
                // One that is not there was put in a part of the log that has been let go.
                if let Some(slot) = self.messages.slot(id) {
                    self.messages.remove(slot);
                    self.delays.remove(&id.0);
                }
            }
            Record::Failed { id, delivery_count } => {
                let id = self.own_id(id);
                if let Some(slot) = self.messages.slot(id) {
                    self.messages[slot].delivery_count = delivery_count;
                }
            }
            Record::Defined { queue, name } => {
                let queue = self.own_queue(queue)?;
                if !self.deleted.contains(&queue) {
                    self.queues.insert(queue, name.to_owned());
                }
            }
            Record::Deleted(queue) => {
                let queue = self.own_queue(queue)?;
                self.queues.remove(&queue);
                self.deleted.insert(queue);
            }
            Record::Checkpoint { next_id, next_queue, clean: _ } => {
                let base = self.number.base();
                self.next_id = self.next_id.max(base | next_id.min(MESSAGE_NUMBER_MAX));
                self.next_queue = self.next_queue.max(next_queue);
            }
            Record::Noted { name, value } => self.notes.set(name, Some(value)),
            Record::Delayed { id, until_ms } => {
                let id = self.own_id(id);
                // A put stands before it, in the same batch.
                if self.messages.slot(id).is_none() {
                    return Err(format!("message {} is delayed before it is put", id.number()));
                }
                self.delays.insert(id.0, until_ms);
            }
            // One that is not there was set in a part of the log that has been let go.
            Record::Unnoted { name } => self.notes.set(name, None),
            Record::Keys { number, names } => self.key_sets.replayed(number, names),
            // As with a note's end.
            Record::ObjectGone { name } => self.objects.remove(name),
        }
        Ok(())
    }

    /// The id in this store of a message that the journal has.
    fn own_id(&mut self, id: MessageId) -> MessageId {
        let id = self.number.base() | id.0;
        self.next_id = self.next_id.max(id + 1);
        MessageId(id)
    }

    /// The id in this store of a queue that the journal has.
    fn own_queue(&mut self, queue: QueueId) -> Result<QueueId, String> {
        let next = queue.number().checked_add(1).ok_or("a queue number that can't be")?;
        self.next_queue = self.next_queue.max(next);
        Ok(QueueId::new(self.number, queue.number()))
    }

    fn user(&mut self, name: &str) -> User {
        if let Some(user) = self.users.get(name) {
            return user.clone();
        }
        let user = User::from(name);
        if self.users.len() < USERS_MAX {
            self.users.insert(name.to_owned(), user.clone());
        }
        user
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

    use super::*;
    use crate::message::Message;
    use crate::sim::{Manner, SimDisk, SimEngine};
    use crate::{FileSpill, Ticket};

    #[test]
    fn a_standby_forgets_what_is_gone() {
        const COUNT: u64 = 20_000;
        let engine = SimEngine::default();
        let spill = || Box::new(FileSpill::open(SimDisk::default(), 10_000).unwrap());
        let limits = Limits { checkpoint_bytes: 20_000, log_bytes_min: 50_000, ..Limits::default() };
        let mut store =
            open(StoreNumber::LOCAL, Box::new(engine.log(Manner::Prompt)), spill(), limits, Instant::now()).unwrap();
        let mut standby = Standby::new(Box::new(engine.log(Manner::Prompt)));
        let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
        store.put(queue, Message::new(true, vec![7; 100].into())).unwrap();
        store.sync(Instant::now()).unwrap();
        let stays = store.lock_next(queue, None, 0).unwrap().id;
        let mut ticket = Ticket::NOW;
        for number in 0..COUNT {
            store.put(queue, Message::new(true, vec![1; 100].into())).unwrap();
            store.sync(Instant::now()).unwrap();
            let found = store.lock_next(queue, None, 0).unwrap();
            ticket = store.acknowledge(found.id).unwrap();
            if number % 100 == 0 {
                standby.follow().unwrap();
                assert!(standby.replay.order.len() <= STALE_MAX + 1_000, "{}", standby.replay.order.len());
            }
        }
        store.sync(Instant::now()).unwrap();
        assert!(store.is_synced(ticket));
        drop(store);
        let mut store = standby.into_store(spill(), limits, Instant::now()).unwrap();
        assert_eq!(store.store_status().messages, 1);
        assert_eq!(store.body(stays).unwrap().to_bytes(), vec![7; 100]);
    }
}
