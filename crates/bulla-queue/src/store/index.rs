//! The messages of a queue by what readers look for.
//!
//! The store knows no keys: the reader gives it a function that finds up to two numbers in a body. An index is built
//! when the first reader asks for it, some messages at a time, grows with each put, and is let go a while after its
//! last reader. What a removed message left in it is thrown out when a reader meets it, or when half of it is such.

use std::collections::HashMap;

use bytes::Bytes;

use super::Store;
use super::look::{Look, Looked, Seen};
use super::messages::{IdBuildHasher, Messages, State};
use crate::lane::Slot;
use crate::message::{Chunks, MessageId, QueueId};
use crate::queue::{LANES, Queue};

/// Entries of all indexes, some fifty bytes each; a queue that would need more is read without one.
pub const INDEX_ENTRIES_MAX: usize = 1_000_000;
/// Messages with one key; with more of them a reader does better without the index.
const BUCKET_MAX: usize = 1_024;
/// How long an unused index is kept, in milliseconds: clients that ask and wait for the answer come again.
const KEPT_MS: u64 = 30_000;
/// Entries of removed messages that are tolerated on top of as many as there are messages.
const STALE_MAX: usize = 4_096;
/// Messages entered before the budget is looked at again.
const BUILD_STEP: usize = 64;
/// Bytes read at first of a body that is not in memory, and what that counts for in messages.
const HEAD_BYTES: usize = 4 << 10;
const READ_COST: usize = 32;

/// The two keys of a body, 0 where it has none of that kind; `None` where the front of it is not enough.
pub type KeysOf = fn(&[Bytes]) -> Option<[u64; 2]>;

/// A queue's messages by key.
#[derive(Debug)]
pub(crate) struct QueueIndex {
    readers: u32,
    keys_of: KeysOf,
    /// Which of the two keys are entered.
    kinds: [bool; 2],
    ids: HashMap<u64, Bucket, IdBuildHasher>,
    entries: usize,
    stage: Stage,
    idle_since_ms: Option<u64>,
}

#[derive(Debug)]
enum Bucket {
    One(u64),
    Many(Box<Ids>),
}

/// Behind a pointer, because most ids are alone.
#[derive(Debug)]
struct Ids(Vec<u64>);

#[derive(Debug)]
enum Stage {
    /// Messages before `until` are entered as far as `passed` says, by lane; later ones were entered when they were
    /// put.
    Building {
        passed: [u64; LANES],
        until: u64,
    },
    Ready,
    /// There was no room for all of them.
    Overflown,
}

impl QueueIndex {
    /// What it counts for.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The lanes are dealt anew.
    pub(crate) fn build_again(&mut self) {
        if let Stage::Building { passed, .. } = &mut self.stage {
            // What was entered twice is met twice and taken once.
            *passed = [0; LANES];
        }
    }

    fn enter(&mut self, id: u64, keys: [u64; 2], total: &mut usize) {
        for (key, wanted) in keys.into_iter().zip(self.kinds) {
            if key == 0 || !wanted || matches!(self.stage, Stage::Overflown) {
                continue;
            }
            if *total >= INDEX_ENTRIES_MAX {
                self.clear(total);
                self.stage = Stage::Overflown;
                return;
            }
            match self.ids.entry(key) {
                std::collections::hash_map::Entry::Vacant(vacant) => {
                    vacant.insert(Bucket::One(id));
                }
                std::collections::hash_map::Entry::Occupied(mut bucket) => match bucket.get_mut() {
                    Bucket::One(first) => {
                        let both = Ids(vec![*first, id]);
                        bucket.insert(Bucket::Many(Box::new(both)));
                    }
                    Bucket::Many(ids) => ids.0.push(id),
                },
            }
            self.entries += 1;
            *total += 1;
        }
    }

    fn clear(&mut self, total: &mut usize) {
        *total -= self.entries;
        self.entries = 0;
        self.ids = HashMap::default();
    }

    /// Throws out what names no message any more.
    fn retain(&mut self, messages: &Messages, total: &mut usize) {
        *total -= self.entries;
        let is_there = |id: &u64| messages.slot(MessageId(*id)).is_some();
        let mut left = 0;
        self.ids.retain(|_, bucket| {
            match bucket {
                Bucket::One(id) => left += usize::from(is_there(id)),
                Bucket::Many(ids) => {
                    ids.0.retain(is_there);
                    left += ids.0.len();
                }
            }
            match bucket {
                Bucket::One(id) => is_there(id),
                Bucket::Many(ids) => !ids.0.is_empty(),
            }
        });
        self.entries = left;
        *total += left;
    }
}

/// A message was put on a queue that is indexed.
pub(super) fn add(queue: &mut Queue, messages: &Messages, total: &mut usize, id: u64, body: &Chunks) {
    let depth = queue.status.depth as usize;
    let Some(index) = &mut queue.index else { return };
    // A body that is here as a whole says all that it has to say.
    index.enter(id, (index.keys_of)(body.chunks()).unwrap_or_default(), total);
    if index.entries > 4 * depth + STALE_MAX {
        index.retain(messages, total);
    }
}

impl Store {
    /// A reader will look messages up by the key of that kind (0 or 1). Costs nothing yet: [`Store::look_up`] builds
    /// the index.
    pub fn index(&mut self, queue: QueueId, keys_of: KeysOf, kind: usize) {
        let until = self.next_id;
        let Some(found) = self.queues.get_mut(&queue) else { return };
        if found.index.is_none() {
            self.indexed.push(queue);
        }
        let index = found.index.get_or_insert_with(|| {
            Box::new(QueueIndex {
                readers: 0,
                keys_of,
                kinds: [false; 2],
                ids: HashMap::default(),
                entries: 0,
                stage: Stage::Ready,
                idle_since_ms: None,
            })
        });
        index.readers += 1;
        index.idle_since_ms = None;
        if !index.kinds[kind % 2] {
            index.kinds[kind % 2] = true;
            index.clear(&mut self.index_entries);
            index.stage = Stage::Building { passed: [0; LANES], until };
        }
    }

    /// A reader that asked for an index goes.
    pub fn unindex(&mut self, queue: QueueId) {
        if let Some(index) = self.queues.get_mut(&queue).and_then(|found| found.index.as_mut()) {
            index.readers = index.readers.saturating_sub(1);
        }
    }

    /// Drops indexes that were not used for a while.
    pub(super) fn let_go_of_indexes(&mut self, now_ms: u64) {
        if self.indexed.is_empty() {
            return;
        }
        let (queues, total) = (&mut self.queues, &mut self.index_entries);
        self.indexed.retain(|id| {
            let Some(queue) = queues.get_mut(id) else { return false };
            let Some(index) = &mut queue.index else { return false };
            if index.readers > 0 || now_ms < index.idle_since_ms.get_or_insert(now_ms).saturating_add(KEPT_MS) {
                return true;
            }
            index.clear(total);
            queue.index = None;
            false
        });
    }

    /// The next message with that key that the reader wants, by priority and by order of put; locked if `lock`. `None`
    /// where the index is of no help: there is none, it would be too large, too many messages have that key, or
    /// `budget` ends before one of them is wanted. While it is being
    /// built, which goes down from `budget`, the answer is [`Look::Unfinished`].
    pub fn look_up(
        &mut self,
        queue: QueueId,
        key: u64,
        now_ms: u64,
        lock: bool,
        budget: &mut usize,
        mut show: impl FnMut(&Seen<'_>) -> Looked,
    ) -> Option<Look> {
        while matches!(self.queues.get(&queue)?.index.as_ref()?.stage, Stage::Building { .. }) {
            if *budget == 0 {
                return Some(Look::Unfinished);
            }
            if !self.build(queue, budget) {
                return Some(Look::Away);
            }
        }
        let index = self.queues.get(&queue)?.index.as_ref()?;
        if matches!(index.stage, Stage::Overflown) {
            return None;
        }
        let slots = candidates(index, &self.messages, queue, key, now_ms)?;
        for slot in slots {
            if *budget == 0 {
                // Many have that key, and none is wanted: a reader that remembers how far it came is better served.
                return None;
            }
            *budget = budget.saturating_sub(1);
            let Some(looked) = self.show(slot, budget, &mut show) else { return Some(Look::Away) };
            if looked == Looked::Take {
                return Some(self.take(slot, now_ms, lock).map_or(Look::End, |found| Look::Found(Box::new(found))));
            }
        }
        Some(Look::End)
    }

    /// Enters some of the messages that were there before the index was. False where one has to be read back first.
    fn build(&mut self, queue: QueueId, budget: &mut usize) -> bool {
        let Some(found) = self.queues.get(&queue) else { return true };
        let Some(Stage::Building { mut passed, until }) = found.index.as_ref().map(|index| match index.stage {
            Stage::Building { passed, until } => Stage::Building { passed, until },
            _ => Stage::Ready,
        }) else {
            return true;
        };
        let mut step: Vec<(usize, Slot)> = Vec::with_capacity(BUILD_STEP);
        for (lane, passed) in passed.iter().enumerate() {
            for (slot, _) in found.lanes[lane].slots(Some(*passed)) {
                if self.messages[slot].id >= until || step.len() == BUILD_STEP {
                    break;
                }
                step.push((lane, slot));
            }
            if step.len() == BUILD_STEP {
                break;
            }
        }
        let mut is_done = step.len() < BUILD_STEP;
        let mut is_there = true;
        for (lane, slot) in step {
            *budget = budget.saturating_sub(1);
            let Some(keys) = self.keys(queue, slot, budget) else {
                (is_done, is_there) = (false, false);
                break;
            };
            let id = self.messages[slot].id;
            passed[lane] = id;
            if let Some(index) = self.queues.get_mut(&queue).and_then(|found| found.index.as_mut()) {
                index.enter(id, keys, &mut self.index_entries);
            }
        }
        if let Some(index) = self.queues.get_mut(&queue).and_then(|found| found.index.as_mut())
            && !matches!(index.stage, Stage::Overflown)
        {
            index.stage = if is_done { Stage::Ready } else { Stage::Building { passed, until } };
        }
        is_there
    }

    /// The keys of a message; `None` where it has to be read back first.
    fn keys(&mut self, queue: QueueId, slot: Slot, budget: &mut usize) -> Option<[u64; 2]> {
        let Some(keys_of) = self.queues.get(&queue).and_then(|found| found.index.as_ref()).map(|index| index.keys_of)
        else {
            return Some([0; 2]);
        };
        let entry = &self.messages[slot];
        if let Some(body) = &entry.body {
            return Some(keys_of(body.chunks()).unwrap_or_default());
        }
        let whole = entry.body_bytes as usize;
        for bytes in [whole.min(HEAD_BYTES), whole] {
            *budget = budget.saturating_sub(READ_COST);
            let Some(front) = self.front(slot, bytes)? else { break };
            if let Some(keys) = keys_of(&[front]) {
                return Some(keys);
            }
        }
        Some([0; 2])
    }
}

/// The messages with a key that can be delivered, in the order of their delivery; `None` where there are too many.
fn candidates(index: &QueueIndex, messages: &Messages, queue: QueueId, key: u64, now_ms: u64) -> Option<Vec<Slot>> {
    let Some(bucket) = index.ids.get(&key) else { return Some(Vec::new()) };
    let deliverable = |id: u64| {
        let slot = messages.slot(MessageId(id))?;
        let entry = &messages[slot];
        let is = entry.queue() == queue && entry.state == State::Available && entry.expires_at_ms > now_ms;
        is.then_some((entry.lane, entry.id, slot))
    };
    match bucket {
        Bucket::One(id) => Some(deliverable(*id).map(|(_, _, slot)| slot).into_iter().collect()),
        Bucket::Many(ids) => {
            // Those that are gone among them are thrown out when the index is next looked through.
            if ids.0.len() > BUCKET_MAX {
                return None;
            }
            let mut found: Vec<_> = ids.0.iter().filter_map(|id| deliverable(*id)).collect();
            found.sort_unstable();
            found.dedup();
            Some(found.into_iter().map(|(_, _, slot)| slot).collect())
        }
    }
}
