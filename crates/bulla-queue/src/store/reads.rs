//! Bodies that come back from the log: asked for, under way, and there until they are used.
//!
//! Nothing here waits. What is asked for and not there is [`Reading::Away`]; when it has come, the message's queue is
//! ready again. All of it is bounded in bytes and in number: where there is no room, the queue has its turn when there
//! is. Bodies that were used stay as long as nothing else needs their room, for what is done with the message next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::journal::Journal;
use crate::log::{LogError, Position, Read, ReadDone};
use crate::message::QueueId;

/// Bytes of bodies that are under way or there, beyond which none is asked for; the last one may exceed it.
pub(super) const READ_BYTES_MAX: usize = 16 << 20;
/// How many they may be.
pub(super) const READS_MAX: usize = 4_096;
/// Bytes of bodies that are kept for messages that were delivered and whose reports need them.
const PINNED_BYTES_MAX: usize = 32 << 20;
/// How long one that came and was not used keeps its room from others.
const UNUSED_FOR: Duration = Duration::from_secs(1);

/// What is read back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum What {
    /// A message's body.
    Body(u64),
    /// The definition of an object, by its number.
    Object(u64),
}

/// What came of asking for bytes.
#[derive(Debug)]
pub(super) enum Reading {
    /// Here they are.
    There(Bytes),
    /// They are being read, or wait for room: ask again when the queue is ready.
    Away,
}

/// Bytes wanted: from where, how many, and whose queue is to hear of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) what: What,
    pub(super) at: u64,
    pub(super) bytes: usize,
    pub(super) queue: Option<QueueId>,
}

#[derive(Debug)]
struct UnderWay {
    wanted: Wanted,
    /// The answer is not wanted any more.
    forgotten: bool,
}

#[derive(Debug)]
pub(super) struct There {
    at: u64,
    bytes: Result<Bytes, LogError>,
    came_at: Instant,
    used: bool,
    number: u64,
}

/// What is known of bodies that are not in memory.
#[derive(Debug, Default)]
pub(super) struct Reads {
    next: u64,
    under_way: HashMap<u64, UnderWay>,
    /// The read that is under way for each.
    asked: HashMap<What, u64>,
    there: HashMap<What, There>,
    /// In the order in which they came, by what and number; may name some that are gone.
    order: VecDeque<(What, u64)>,
    /// Bytes under way and there.
    bytes: usize,
    /// Bodies that stay until their message is gone.
    pinned: HashMap<u64, Bytes>,
    pinned_bytes: usize,
    /// Messages found in the journal of which it is known that they are not marked.
    plain: HashSet<u64>,
    /// Queues that wait for room, and those that wait until fewer bodies are pinned.
    waiting: Vec<QueueId>,
    waiting_to_pin: Vec<QueueId>,
    done: Vec<ReadDone>,
}

impl Reads {
    /// Bytes from the front of what is wanted, or the beginning of reading them.
    ///
    /// # Errors
    /// The log can't read them; the next call asks again.
    pub(super) fn get(&mut self, wanted: Wanted, journal: &mut Journal) -> Result<Reading, LogError> {
        if let What::Body(id) = wanted.what
            && let Some(bytes) = self.pinned.get(&id)
        {
            return Ok(Reading::There(bytes.slice(..wanted.bytes.min(bytes.len()))));
        }
        if let Some(there) = self.there.get_mut(&wanted.what).filter(|there| there.at == wanted.at) {
            there.used = true;
            match &there.bytes {
                Ok(bytes) if bytes.len() >= wanted.bytes => return Ok(Reading::There(bytes.slice(..wanted.bytes))),
                // No more than the front of it was asked for before.
                Ok(_) => {}
                Err(_) => {
                    if let Some(There { bytes: Err(error), .. }) = self.drop_there(wanted.what) {
                        return Err(error);
                    }
                }
            }
        }
        self.begin(wanted, journal)
    }

    /// Whether anything is known of it.
    pub(super) fn knows(&self, what: What) -> bool {
        self.there.contains_key(&what) || self.asked.contains_key(&what)
    }

    /// Begins to read, unless that is under way.
    fn begin(&mut self, mut wanted: Wanted, journal: &mut Journal) -> Result<Reading, LogError> {
        if let Some(read) = self.asked.get(&wanted.what).and_then(|number| self.under_way.get_mut(number)) {
            // A checkpoint asks for no queue: a reader that wants the same body is told all the same, and the other way
            // round.
            wanted.queue = wanted.queue.or(read.wanted.queue);
            read.wanted.queue = wanted.queue;
            if read.wanted.at == wanted.at && read.wanted.bytes >= wanted.bytes {
                return Ok(Reading::Away);
            }
        }
        if !self.has_room() && !self.make_room(None) {
            self.wait(wanted.queue);
            return Ok(Reading::Away);
        }
        let number = self.next;
        match journal.read(Read { number, at: Position(wanted.at), bytes: wanted.bytes }) {
            Ok(Some(bytes)) => return Ok(Reading::There(bytes.into())),
            Ok(None) => {}
            Err(LogError::Busy) => {
                self.wait(wanted.queue);
                return Ok(Reading::Away);
            }
            Err(error) => return Err(error),
        }
        self.next += 1;
        if let Some(before) = self.asked.insert(wanted.what, number)
            && let Some(read) = self.under_way.get_mut(&before)
        {
            read.forgotten = true;
        }
        self.under_way.insert(number, UnderWay { wanted, forgotten: false });
        self.bytes += wanted.bytes;
        Ok(Reading::Away)
    }

    fn wait(&mut self, queue: Option<QueueId>) {
        if let Some(queue) = queue.filter(|queue| !self.waiting.contains(queue)) {
            self.waiting.push(queue);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes < READ_BYTES_MAX && self.under_way.len() + self.there.len() < READS_MAX
    }

    /// Lets bodies go that were used, and after a time those that were not used, the oldest first, until there is
    /// room. Says whether there is.
    fn make_room(&mut self, now: Option<Instant>) -> bool {
        let mut looks = self.order.len();
        while !self.has_room() && looks > 0 {
            looks -= 1;
            let Some((what, number)) = self.order.pop_front() else { break };
            let Some(there) = self.there.get(&what).filter(|there| there.number == number) else { continue };
            let is_stale = now.is_some_and(|now| now.saturating_duration_since(there.came_at) >= UNUSED_FOR);
            if there.used || is_stale {
                self.drop_there(what);
            } else {
                self.order.push_back((what, number));
            }
        }
        self.has_room()
    }

    /// Lets go of what came, so that it is read again.
    pub(super) fn drop_there(&mut self, what: What) -> Option<There> {
        let gone = self.there.remove(&what)?;
        self.bytes -= gone.bytes.as_ref().map_or(0, Bytes::len);
        Some(gone)
    }

    /// Whether answers are awaited, or room. Three compares.
    pub(super) fn is_waiting(&self) -> bool {
        !self.under_way.is_empty() || !self.waiting.is_empty() || !self.waiting_to_pin.is_empty()
    }

    /// Takes the answers that the log has. Moves to `ready` the queues that may go on; says whether anything came.
    pub(super) fn collect(&mut self, now: Instant, journal: &mut Journal, ready: &mut Vec<QueueId>) -> bool {
        let mut done = std::mem::take(&mut self.done);
        journal.poll_reads(now, &mut done);
        let any = !done.is_empty();
        for ReadDone { number, bytes } in done.drain(..) {
            let Some(UnderWay { wanted, forgotten }) = self.under_way.remove(&number) else { continue };
            self.bytes -= wanted.bytes;
            if forgotten {
                continue;
            }
            self.asked.remove(&wanted.what);
            self.drop_there(wanted.what);
            let bytes = bytes.map(Bytes::from);
            self.bytes += bytes.as_ref().map_or(0, Bytes::len);
            self.order.push_back((wanted.what, number));
            self.there.insert(wanted.what, There { at: wanted.at, bytes, came_at: now, used: false, number });
            ready.extend(wanted.queue);
        }
        self.done = done;
        if self.order.len() > 2 * self.there.len() + READS_MAX {
            let there = &self.there;
            self.order.retain(|(what, number)| there.get(what).is_some_and(|there| there.number == *number));
        }
        if !self.waiting.is_empty() && self.make_room(Some(now)) {
            ready.append(&mut self.waiting);
        }
        if self.pinned_bytes < PINNED_BYTES_MAX {
            ready.append(&mut self.waiting_to_pin);
        }
        any
    }

    /// Keeps a delivered message's body until the message is gone. False where too much is kept: its queue waits until
    /// less is.
    pub(super) fn pin(&mut self, id: u64, body: Bytes, queue: QueueId) -> bool {
        if self.pinned.contains_key(&id) {
            return true;
        }
        if self.pinned_bytes >= PINNED_BYTES_MAX {
            if !self.waiting_to_pin.contains(&queue) {
                self.waiting_to_pin.push(queue);
            }
            return false;
        }
        self.pinned_bytes += body.len();
        self.pinned.insert(id, body);
        true
    }

    /// A message that was found in the journal is not marked.
    pub(super) fn set_plain(&mut self, id: u64) {
        self.plain.insert(id);
    }

    pub(super) fn is_plain(&self, id: u64) -> bool {
        self.plain.contains(&id)
    }

    /// A message is locked no more: what was pinned for its delivery can go.
    pub(super) fn unpin(&mut self, id: u64) {
        if let Some(body) = self.pinned.remove(&id) {
            self.pinned_bytes -= body.len();
        }
    }

    /// It is gone.
    pub(super) fn forget(&mut self, what: What) {
        if self.there.is_empty() && self.asked.is_empty() && self.pinned.is_empty() && self.plain.is_empty() {
            return;
        }
        self.drop_there(what);
        if let Some(read) = self.asked.remove(&what).and_then(|number| self.under_way.get_mut(&number)) {
            read.forgotten = true;
        }
        if let What::Body(id) = what {
            self.unpin(id);
            self.plain.remove(&id);
        }
    }
}
