//! Readers that choose: each looks at every message once, lane by lane, and hears of what came back behind it.
//!
//! New messages come behind all others of their lane, so one number a lane says what a reader has seen. What becomes
//! deliverable before that number (a message given back, synced late, or put for later) is remembered by the queue
//! while a reader needs it, and looked at again. A reader that comes too late for that memory begins from the front.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::messages::{Entry, Kept, State};
use super::{ReadError, Store};
use crate::lane::Slot;
use crate::message::{Chunks, Found, MessageId, QueueId};
use crate::queue::LANES;

/// Messages that a queue remembers as come back; a reader that is further behind begins from the front.
const RETURNED_MAX: usize = 16_384;
/// Messages that a reader remembers to look at again; with more it begins from the front.
const AGAIN_MAX: usize = 65_536;
/// Bytes read at first of a body that is not in memory: what a reader chooses by stands at the front.
const HEAD_BYTES: usize = 4 << 10;
/// What such a reading counts for, in messages.
const READ_COST: usize = 32;

/// How far a reader has looked.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The last message looked at, by lane.
    passed: [u64; LANES],
    /// What came back behind it, by lane and id.
    again: BTreeSet<(u8, u64)>,
    /// How much it has heard of what came back; `None` for one that is not told.
    heard: Option<u64>,
}

/// A message as a reader sees it that chooses.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Its name.
    pub id: MessageId,
    /// 0 to 9.
    pub priority: u8,
    /// Whether it survives the end of the process.
    pub persistent: bool,
    /// How often a delivery failed before.
    pub delivery_count: u32,
    /// Its body, or the front of it.
    pub body: &'a [Bytes],
    /// Whether that is all of it.
    pub is_whole: bool,
}

/// What a reader makes of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Looked {
    /// Not for it.
    Pass,
    /// Not for it, and seeing that took as long as `cost` messages more.
    PassAt {
        /// What comes off the budget beside the message itself.
        cost: usize,
    },
    /// It wants this one.
    Take,
    /// The front of the body is not enough. Of a whole one: not for it.
    More,
}

/// What a look at a queue came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Look {
    /// The message that the reader wants, locked unless it only browses.
    Found(Box<Found>),
    /// All that is there was looked at.
    End,
    /// The budget is used up; the next look goes on from here.
    Unfinished,
    /// A body has to be read back first; the next look goes on from here. [`Store::take_ready`] names the queue once it
    /// is there.
    Away,
}

/// What a walk came to.
enum Walked {
    Wanted(Slot),
    End,
    Unfinished,
    Away,
}

/// What a queue remembers for readers that look at each message once.
#[derive(Debug)]
pub(crate) struct Watch {
    readers: u32,
    /// How far the furthest reader has come, by lane.
    passed: [u64; LANES],
    returned: VecDeque<(u8, u64)>,
    /// The number of the first of `returned`.
    first: u64,
}

impl Watch {
    /// A message became deliverable at its own place.
    pub(crate) fn returned(&mut self, lane: u8, id: u64) {
        if id > self.passed[usize::from(lane)] {
            return; // all readers have still to come by
        }
        if self.returned.len() == RETURNED_MAX {
            self.returned.pop_front();
            self.first += 1;
        }
        self.returned.push_back((lane, id));
    }

    /// Every reader begins from the front.
    pub(crate) fn begin_again(&mut self) {
        self.first = self.next() + 1;
        self.returned.clear();
    }

    fn next(&self) -> u64 {
        self.first + self.returned.len() as u64
    }

    /// Brings a reader up to date.
    fn tell(&self, cursor: &mut Cursor) {
        let Some(heard) = cursor.heard else { return };
        if heard == self.next() {
            return;
        }
        cursor.heard = Some(self.next());
        match heard.checked_sub(self.first) {
            Some(known) => {
                let news = self.returned.iter().skip(known as usize);
                let passed = cursor.passed;
                cursor.again.extend(news.filter(|(lane, id)| *id <= passed[usize::from(*lane)]));
            }
            None => cursor.begin_again(),
        }
        if cursor.again.len() > AGAIN_MAX {
            cursor.begin_again();
        }
    }
}

impl Cursor {
    fn begin_again(&mut self) {
        self.passed = [0; LANES];
        self.again.clear();
    }
}

impl Store {
    /// Where a reader begins that takes what it chooses. Until [`Store::unwatch`] the queue remembers for it what comes
    /// back.
    pub fn watch(&mut self, queue: QueueId) -> Cursor {
        let Some(found) = self.queues.get_mut(&queue) else { return Cursor::default() };
        let watch = found.watch.get_or_insert_with(|| {
            let (returned, passed) = (VecDeque::new(), [0; LANES]);
            Box::new(Watch { readers: 0, passed, returned, first: 0 })
        });
        watch.readers += 1;
        Cursor { heard: Some(watch.next()), ..Cursor::default() }
    }

    /// A reader that was given a cursor by [`Store::watch`] goes.
    pub fn unwatch(&mut self, queue: QueueId) {
        let Some(found) = self.queues.get_mut(&queue) else { return };
        if let Some(watch) = &mut found.watch {
            watch.readers = watch.readers.saturating_sub(1);
            if watch.readers == 0 {
                found.watch = None;
            }
        }
    }

    /// A reader has given a message back that it does not want: it does not hear of that one.
    pub fn release_unheard(&mut self, id: MessageId, cursor: &mut Cursor) {
        let queue = self.messages.slot(id).map(|slot| self.messages[slot].queue());
        let next = |store: &Self| {
            let watch = queue.and_then(|queue| store.queues.get(&queue)).and_then(|queue| queue.watch.as_ref());
            watch.map(|watch| watch.next())
        };
        let in_time = cursor.heard.is_some() && cursor.heard == next(self);
        self.release(id, false);
        if in_time {
            cursor.heard = next(self);
        }
    }

    /// The next message that the reader wants, by priority and by order of put within it; locked if `lock`. Each
    /// message is shown to it once, and again when it came back. `budget` goes down by one a message, and by more where
    /// the front of a body has to be read back, which is not checked.
    pub fn look(
        &mut self,
        queue: QueueId,
        cursor: &mut Cursor,
        now_ms: u64,
        lock: bool,
        budget: &mut usize,
        mut show: impl FnMut(&Seen<'_>) -> Looked,
    ) -> Look {
        let Some(found) = self.queues.get(&queue) else { return Look::End };
        if let Some(watch) = &found.watch {
            watch.tell(cursor);
        }
        let walked = self.walk(queue, cursor, now_ms, budget, &mut show);
        self.note_passed(queue, cursor);
        match walked {
            Walked::End => Look::End,
            Walked::Unfinished => Look::Unfinished,
            Walked::Away => Look::Away,
            Walked::Wanted(slot) => {
                self.take(slot, now_ms, lock).map_or(Look::End, |found| Look::Found(Box::new(found)))
            }
        }
    }

    fn walk(
        &mut self,
        queue: QueueId,
        cursor: &mut Cursor,
        now_ms: u64,
        budget: &mut usize,
        show: &mut impl FnMut(&Seen<'_>) -> Looked,
    ) -> Walked {
        for lane in 0..LANES {
            let number = lane as u8;
            while let Some(&(_, id)) = cursor.again.range((number, 0)..=(number, u64::MAX)).next() {
                if *budget == 0 {
                    return Walked::Unfinished;
                }
                cursor.again.remove(&(number, id));
                *budget -= 1;
                let Some(slot) = self.messages.slot(MessageId(id)) else { continue };
                let entry = &self.messages[slot];
                let is_here = entry.queue() == queue && entry.lane == number;
                if !is_here || entry.state != State::Available || entry.expires_at_ms <= now_ms {
                    continue;
                }
                match self.show(slot, budget, show) {
                    Some(Looked::Take) => return Walked::Wanted(slot),
                    Some(_) => {}
                    None => {
                        cursor.again.insert((number, id));
                        return Walked::Away;
                    }
                }
            }
            loop {
                // In memory without a break; a body that is not there ends the walk, is read, and the walk goes on
                // behind it.
                let mut unread = None;
                let Some(found) = self.queues.get(&queue) else { return Walked::End };
                for (slot, free) in found.lanes[lane].slots(Some(cursor.passed[lane])) {
                    if *budget == 0 {
                        return Walked::Unfinished;
                    }
                    *budget -= 1;
                    let entry = &self.messages[slot];
                    // One that is locked or not synced yet is passed, too: when it comes back, the queue says so.
                    cursor.passed[lane] = entry.id;
                    if !free || entry.expires_at_ms <= now_ms {
                        continue;
                    }
                    let Some(body) = &entry.body else {
                        unread = Some(slot);
                        break;
                    };
                    match show(&entry.seen(body.chunks(), true)) {
                        Looked::Take => return Walked::Wanted(slot),
                        Looked::PassAt { cost } => *budget = budget.saturating_sub(cost),
                        Looked::Pass | Looked::More => {}
                    }
                }
                let Some(slot) = unread else { break };
                match self.show(slot, budget, show) {
                    Some(Looked::Take) => return Walked::Wanted(slot),
                    Some(_) => {}
                    None => {
                        cursor.again.insert((number, self.messages[slot].id));
                        return Walked::Away;
                    }
                }
            }
        }
        Walked::End
    }

    fn note_passed(&mut self, queue: QueueId, cursor: &Cursor) {
        let found = self.queues.get_mut(&queue).filter(|_| cursor.heard.is_some());
        if let Some(watch) = found.and_then(|found| found.watch.as_mut()) {
            for (furthest, passed) in watch.passed.iter_mut().zip(cursor.passed) {
                *furthest = passed.max(*furthest);
            }
        }
    }

    /// A message that a reader wants, locked or not.
    pub(super) fn take(&mut self, slot: Slot, now_ms: u64, lock: bool) -> Option<Found> {
        let id = MessageId(self.messages[slot].id);
        if !lock {
            return Some(self.messages[slot].found());
        }
        let found = self.lock(id)?;
        if let Some(queue) = self.queues.get_mut(&self.messages[slot].queue()) {
            queue.status.last_get_ms = Some(now_ms);
        }
        Some(found)
    }

    /// Shows one message, its body read back where it is not in memory; `None` where that is not there yet.
    pub(super) fn show(
        &mut self,
        slot: Slot,
        budget: &mut usize,
        show: &mut impl FnMut(&Seen<'_>) -> Looked,
    ) -> Option<Looked> {
        let looked = self.show_as_much_as_it_takes(slot, budget, show)?;
        if let Looked::PassAt { cost } = looked {
            *budget = budget.saturating_sub(cost);
        }
        Some(looked)
    }

    fn show_as_much_as_it_takes(
        &mut self,
        slot: Slot,
        budget: &mut usize,
        show: &mut impl FnMut(&Seen<'_>) -> Looked,
    ) -> Option<Looked> {
        let entry = &self.messages[slot];
        if let Some(body) = &entry.body {
            return Some(show(&entry.seen(body.chunks(), true)));
        }
        *budget = budget.saturating_sub(READ_COST);
        let whole = entry.body_bytes as usize;
        let head = whole.min(HEAD_BYTES);
        // One that can't be read belongs to no reader: a consumer that does not choose is told of it.
        let Some(front) = self.front(slot, head)? else { return Some(Looked::Pass) };
        let looked = show(&self.messages[slot].seen(&[front], head == whole));
        if looked != Looked::More || head == whole {
            return Some(looked);
        }
        *budget = budget.saturating_sub(READ_COST + whole / HEAD_BYTES);
        let Some(body) = self.front(slot, whole)? else { return Some(Looked::Pass) };
        Some(show(&self.messages[slot].seen(&[body], true)))
    }

    /// A body of which the front may be enough, and whether this is all of it: what is in memory or no longer than
    /// `bytes` is whole, of others so much is read, and not checked.
    ///
    /// # Errors
    /// As [`Store::body`].
    pub fn head(&mut self, id: MessageId, bytes: usize) -> Result<(Chunks, bool), ReadError> {
        let slot = self.messages.slot(id).ok_or(ReadError::Unknown { id })?;
        let entry = &self.messages[slot];
        if entry.body.is_none() && entry.body_bytes as usize > bytes {
            match self.front(slot, bytes) {
                Some(Some(front)) => return Ok((front.into(), false)),
                Some(None) => {}
                None => return Err(ReadError::Away { id }),
            }
        }
        self.body(id).map(|body| (body, true))
    }

    /// The first bytes of a body that is not in memory, as they lie on the disk; of one that can't be read nothing.
    /// `None` where they are not there yet.
    pub(super) fn front(&mut self, slot: Slot, bytes: usize) -> Option<Option<Bytes>> {
        match self.stored(slot, bytes) {
            Ok(front) => Some(Some(front)),
            Err(ReadError::Away { .. }) => None,
            Err(_) => Some(None),
        }
    }
}

impl Cursor {
    /// A message that was shown is to be shown again: its body is not there yet.
    pub fn look_again(&mut self, found: &Found) {
        self.again.insert((found.place.lane, found.place.id));
    }
}

impl Entry {
    fn seen<'a>(&self, body: &'a [Bytes], is_whole: bool) -> Seen<'a> {
        Seen {
            id: MessageId(self.id),
            priority: self.priority,
            persistent: self.kept == Kept::Journal,
            delivery_count: self.delivery_count,
            body,
            is_whole,
        }
    }
}
