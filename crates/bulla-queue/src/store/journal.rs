//! The store's side of the log: the open batch, the batches under way, and what must be carried forward.
//!
//! Invariant: `synced` <= number of the last batch submitted < `number` of the open one. A unit of work is admitted
//! first, as a whole, and then appended; only admission closes a batch, so no unit straddles two.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use super::messages::{IdBuildHasher, Messages};
use super::status::LogStatus;
use super::{JournalError, Limits};
use crate::lane::Slot;
use crate::log::{Batch, Event, Log, LogError, LogLimits, Position, Read, ReadDone};
use crate::message::{MessageId, StoreNumber, Ticket};
use crate::record::{BATCH_HEADER_BYTES, Record, padded};

/// Emptied batches kept for reuse.
const SPARE_BATCHES_MAX: usize = 4;
/// A batch's buffers above this are given back rather than reused.
const SPARE_BYTES_MAX: usize = 2 << 20;
/// Dead entries in the order of live messages that are tolerated on top of the live ones.
const ORDER_DEAD_MAX: usize = 4_096;
/// Messages that are looked at for those that are carried forward next.
const NEXT_LOOKS_MAX: usize = 256;

/// While space is short, there is a checkpoint whenever this part of the reserve was written.
const SHORT_DIVISOR: u64 = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MarkKind {
    /// A message put in this batch.
    Put,
    /// A message that is not in the journal, but in a unit of work that is.
    Held,
    /// A message carried forward.
    Moved,
    /// A message with another body.
    Replaced,
    /// A definition of an object.
    Object,
}

/// What to do with a message once its batch is synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) slot: Slot,
    pub(super) id: u64,
    pub(super) kind: MarkKind,
    /// Bytes into the bodies of the batch; from the closing of the batch on, the body's position in the log.
    pub(super) at: u64,
}

#[derive(Debug)]
struct Closed {
    batch: Batch,
    number: u64,
    marks: Vec<Mark>,
}

#[derive(Debug)]
struct InFlight {
    end: Position,
    bytes: u64,
    number: u64,
    marks: Vec<Mark>,
}

pub(super) struct Journal {
    log: Box<dyn Log>,
    limits: LogLimits,
    batch_bytes_max: u64,
    open: Batch,
    marks: Vec<Mark>,
    /// The open batch's number, with the store's above it; tickets are batch numbers.
    number: u64,
    closed: VecDeque<Closed>,
    closed_bytes: u64,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: u64,
    /// The last batch that is durable, by number.
    pub(super) synced: u64,
    /// Everything below this position is durable.
    synced_at: Position,
    /// Bytes that batches not yet submitted may take, as the log last said.
    granted: u64,
    /// The last time that space was asked for, there was too little.
    short: bool,
    failed: Option<JournalError>,
    /// Live messages by where their batch begins. May name messages that are gone.
    order: VecDeque<(u64, u64)>,
    /// How many places of live messages in `order` are former ones, the first of each, because the message got another
    /// body.
    superseded: HashMap<u64, u32, IdBuildHasher>,
    pub(super) live_bytes: u64,
    checkpoint_at: u64,
    /// Whether something was refused for want of space since the last checkpoint.
    has_refused: bool,
    /// Where the oldest message lay that was needed at the last checkpoint; the log's start when the store was opened.
    needed_from: u64,
    /// What may be let go once a batch is synced.
    releases: VecDeque<(u64, Position)>,
    spare: Vec<Batch>,
    spare_marks: Vec<Vec<Mark>>,
    events: Vec<Event>,
}

impl Journal {
    pub(super) fn new(
        number: StoreNumber,
        log: Box<dyn Log>,
        end: Position,
        batch_bytes_max: usize,
        order: VecDeque<(u64, u64)>,
    ) -> Self {
        let limits = log.limits();
        Self {
            limits,
            batch_bytes_max: (batch_bytes_max as u64).min(limits.batch_bytes_max),
            open: fresh(Batch::default(), end.0),
            marks: Vec::new(),
            number: number.base() + 1,
            closed: VecDeque::new(),
            closed_bytes: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            synced: number.base(),
            synced_at: end,
            granted: 0,
            short: false,
            failed: None,
            order,
            superseded: HashMap::default(),
            live_bytes: 0,
            checkpoint_at: end.0,
            has_refused: false,
            needed_from: log.start().0,
            releases: VecDeque::new(),
            spare: Vec::new(),
            spare_marks: Vec::new(),
            events: Vec::new(),
            log,
        }
    }

    // ---- into the open batch

    /// Makes sure that record headers of `head` bytes and bodies of `body` bytes (padded, if there are several) go into
    /// one batch, and that `keep` bytes of space are left after them. Three compares when there is nothing to do.
    pub(super) fn admit(&mut self, head: usize, body: usize, keep: u64) -> Result<(), JournalError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let bytes = (head + padded(body)) as u64;
        if self.open.bytes() + bytes > self.batch_bytes_max && self.open_bytes() > 0 {
            self.close_open();
        }
        let batch_bytes = bytes + BATCH_HEADER_BYTES as u64;
        if self.is_large(batch_bytes) {
            let besides = self.closed_bytes + self.open_bytes() + keep;
            let reserved = self.log.reserve(batch_bytes, besides);
            self.short |= reserved.is_err();
            self.has_refused |= reserved.is_err();
            self.granted = 0; // the log counts anew
            return reserved.map_err(|error| self.refused(error));
        }
        let wanted = self.closed_bytes + self.open_bytes() + batch_bytes + keep;
        let granted = if wanted <= self.granted { Ok(()) } else { self.grant(wanted) };
        self.has_refused |= granted.is_err();
        granted
    }

    fn grant(&mut self, wanted: u64) -> Result<(), JournalError> {
        self.short = true;
        self.granted = self.log.space();
        while wanted > self.granted {
            let before = self.granted;
            let reserved = self.log.reserve(self.limits.batch_bytes_max, 0);
            reserved.map_err(|error| self.refused(error))?;
            self.granted = self.log.space();
            if self.granted <= before {
                return Err(JournalError::Full);
            }
        }
        self.short = false;
        Ok(())
    }

    /// Appends a record without a body, which has been admitted.
    pub(super) fn append(&mut self, record: &Record<'_>) -> Ticket {
        record.encode(&mut self.open.head);
        Ticket(self.number)
    }

    /// Appends a record with its body, which have been admitted, and returns where among the bodies that lies.
    pub(super) fn append_body(&mut self, record: &Record<'_>, body: &[Bytes]) -> u64 {
        let offset = self.open.body.len();
        for chunk in body {
            self.open.body.extend_from_slice(chunk); // the one copy
        }
        self.open.body.resize(padded(self.open.body.len()), 0);
        record.encode(&mut self.open.head);
        if matches!(record, Record::Put(_)) {
            self.live_bytes += (record.head_bytes() + self.open.body.len() - offset) as u64;
        }
        offset as u64
    }

    /// No dispatcher is to write the open batch itself.
    pub(super) fn set_patient(&mut self) {
        self.open.patient = true;
    }

    /// Remembers what to do once the open batch is synced.
    pub(super) fn mark(&mut self, mark: Mark) -> Ticket {
        self.marks.push(mark);
        Ticket(self.number)
    }

    /// Where the open batch begins.
    pub(super) fn open_at(&self) -> u64 {
        self.open.at
    }

    /// Bytes of the open batch; 0 when nothing is in it.
    fn open_bytes(&self) -> u64 {
        if self.open.head.len() == BATCH_HEADER_BYTES { 0 } else { self.open.bytes() }
    }

    fn close_open(&mut self) {
        let next = fresh(self.spare.pop().unwrap_or_default(), self.open.end().0);
        let batch = std::mem::replace(&mut self.open, next);
        let mut marks = std::mem::replace(&mut self.marks, self.spare_marks.pop().unwrap_or_default());
        let bodies_at = batch.at + batch.head.len() as u64;
        for mark in &mut marks {
            mark.at += bodies_at;
            if matches!(mark.kind, MarkKind::Put | MarkKind::Moved | MarkKind::Replaced) {
                self.order.push_back((batch.at, mark.id));
            }
        }
        if !self.is_large(batch.bytes()) {
            self.closed_bytes += batch.bytes();
        }
        self.closed.push_back(Closed { batch, number: self.number, marks });
        self.number += 1;
    }

    /// Whether a batch has space of its own, reserved when it was admitted.
    fn is_large(&self, bytes: u64) -> bool {
        bytes > self.limits.batch_bytes_max
    }

    // ---- to the log and back

    /// Submits closed batches and the open one as far as the log takes them. Says whether it took any.
    pub(super) fn submit(&mut self) -> Result<bool, JournalError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let mut any = false;
        while self.in_flight.len() < self.limits.batches_in_flight_max {
            if self.closed.is_empty() && self.open_bytes() > 0 {
                self.close_open();
            }
            let Some(Closed { batch, number, marks }) = self.closed.pop_front() else {
                break;
            };
            let (bytes, end) = (batch.bytes(), batch.end());
            match self.log.submit(batch) {
                Ok(()) => {
                    if !self.is_large(bytes) {
                        self.closed_bytes -= bytes;
                        self.granted = self.granted.saturating_sub(bytes);
                    }
                    self.in_flight_bytes += bytes;
                    self.in_flight.push_back(InFlight { end, bytes, number, marks });
                    any = true;
                }
                Err((batch, error)) => {
                    self.closed.push_front(Closed { batch, number, marks });
                    if self.is_final(&error) {
                        return Err(self.refused(error));
                    }
                    break;
                }
            }
        }
        Ok(any)
    }

    /// Takes what the log has to say. Returns the marks of the batches that are durable now, for `recycle`.
    pub(super) fn poll(&mut self, now: Instant) -> Result<Vec<Mark>, JournalError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let mut events = std::mem::take(&mut self.events);
        let polled = self.log.poll(now, &mut events, &mut self.spare);
        let mut marks = self.spare_marks.pop().unwrap_or_default();
        for event in events.drain(..) {
            match event {
                Event::Synced(position) => {
                    self.synced_at = self.synced_at.max(position);
                    while self.in_flight.front().is_some_and(|batch| batch.end <= position) {
                        let Some(mut batch) = self.in_flight.pop_front() else {
                            break;
                        };
                        self.synced = batch.number;
                        self.in_flight_bytes -= batch.bytes;
                        marks.append(&mut batch.marks);
                        self.recycle(batch.marks);
                    }
                }
                Event::Deposed { by } => self.failed = Some(JournalError::Deposed { by: by.0 }),
            }
        }
        self.events = events;
        self.spare.truncate(SPARE_BATCHES_MAX);
        if let Err(error) = polled
            && self.is_final(&error)
        {
            self.refused(error);
        }
        while let Some(&(number, before)) = self.releases.front()
            && number <= self.synced
        {
            self.releases.pop_front();
            if let Err(error) = self.log.release(before)
                && self.is_final(&error)
            {
                self.refused(error);
            }
        }
        Ok(marks)
    }

    /// Whether space was short when it was last asked for.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    /// Why nothing works any more, if so.
    pub(super) fn failure(&self) -> Result<(), JournalError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    pub(super) fn recycle(&mut self, marks: Vec<Mark>) {
        if self.spare_marks.len() < SPARE_BATCHES_MAX {
            self.spare_marks.push(marks);
        }
    }

    pub(super) fn settle(&mut self) {
        self.log.settle();
    }

    pub(super) fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        self.log.read(read)
    }

    pub(super) fn poll_reads(&mut self, now: Instant, done: &mut Vec<ReadDone>) {
        self.log.poll_reads(now, done);
    }

    /// Reads and waits for it.
    pub(super) fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        self.log.read_now(at, bytes, into)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The last batch that anything was written into.
    pub(super) fn written(&self) -> u64 {
        if self.open_bytes() > 0 { self.number } else { self.number - 1 }
    }

    /// Bytes of batches not yet synced.
    pub(super) fn backlog_bytes(&self) -> u64 {
        self.open_bytes() + self.in_flight_bytes + self.closed.iter().map(|closed| closed.batch.bytes()).sum::<u64>()
    }

    /// Bytes between the oldest batch that is kept and the end.
    pub(super) fn log_bytes(&self) -> u64 {
        self.open.at.saturating_sub(self.log.start().0)
    }

    /// As [`Log::is_surely_owned`].
    pub(super) fn is_surely_owned(&self) -> bool {
        self.log.is_surely_owned()
    }

    /// Who has the log and how far it is.
    pub(super) fn log_status(&self) -> LogStatus {
        LogStatus {
            owner: self.log.owner(),
            is_surely_owned: self.log.is_surely_owned(),
            end: self.synced_at,
            batches_in_flight: self.in_flight.len(),
            survives: self.limits.survives,
        }
    }

    fn is_final(&self, error: &LogError) -> bool {
        !matches!(error, LogError::Busy | LogError::Full | LogError::Unavailable(_))
    }

    /// What the store says when the log says `error`; remembered if it is final.
    fn refused(&mut self, error: LogError) -> JournalError {
        match error {
            LogError::Full => JournalError::Full,
            LogError::Busy | LogError::Unavailable(_) => JournalError::Unavailable { reason: error.to_string() },
            error => {
                let failed = JournalError::Failed { reason: error.to_string() };
                self.failed.get_or_insert(failed).clone()
            }
        }
    }

    /// Whether something was refused for want of space since the last checkpoint.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused
    }

    // ---- checkpoints

    /// Whether it is time for a checkpoint; sooner when space is short, since only a checkpoint lets dead segments go:
    /// few bytes that were written may say of many that they are not needed.
    pub(super) fn checkpoint_due(&mut self, messages: &Messages, limits: &Limits) -> bool {
        let written = self.open.at - self.checkpoint_at;
        if written >= limits.checkpoint_bytes || !(self.short || self.has_refused) {
            return written >= limits.checkpoint_bytes;
        }
        let part = limits.reserve_bytes / SHORT_DIVISOR;
        written >= part || self.needed_from(messages).saturating_sub(self.needed_from) >= part.max(1)
    }

    /// Where the oldest message lies that is needed.
    fn needed_from(&mut self, messages: &Messages) -> u64 {
        self.oldest(messages);
        self.order.front().map_or(self.open.at, |&(at, _)| at)
    }

    /// Bytes to carry forward at this checkpoint, and space to leave. Nothing while the log is short or half of it is
    /// alive, else twice what was written since the last one, so that the log shrinks at least as fast as it grows.
    /// When space is short, half of the reserve may go into it, but only where that frees all of the log that is there
    /// now.
    pub(super) fn carry_terms(&self, limits: &Limits) -> (u64, u64) {
        let keep = limits.reserve_bytes / 2;
        if self.short && self.live_bytes + keep + self.closed_bytes + self.open_bytes() <= self.log.space() {
            return (self.live_bytes, keep);
        }
        if self.log_bytes() <= limits.log_bytes_min.max(self.live_bytes.saturating_mul(2)) {
            return (0, 0);
        }
        ((self.open.at - self.checkpoint_at).saturating_mul(2), limits.reserve_bytes)
    }

    /// The live message whose batch is the oldest, if that batch is durable, and where the batch begins.
    pub(super) fn oldest(&mut self, messages: &Messages) -> Option<(Slot, u64)> {
        while let Some(&(at, id)) = self.order.front() {
            match messages.slot(MessageId(id)) {
                Some(_) if self.is_superseded(id) => self.order.pop_front(),
                Some(slot) => return (at < self.synced_at.0).then_some((slot, at)),
                None => {
                    self.superseded.remove(&id);
                    self.order.pop_front()
                }
            };
        }
        None
    }

    /// Whether the first place of a message is a former one, which is counted no more.
    fn is_superseded(&mut self, id: u64) -> bool {
        if self.superseded.is_empty() {
            return false;
        }
        let Some(places) = self.superseded.get_mut(&id) else { return false };
        *places -= 1;
        if *places == 0 {
            self.superseded.remove(&id);
        }
        true
    }

    /// A message gets another place because of its new body; the one that it had is nothing to carry forward any more.
    pub(super) fn superseded(&mut self, id: u64) {
        *self.superseded.entry(id).or_default() += 1;
    }

    /// The durable live messages behind the one that `oldest` returned, in the order of their batches.
    pub(super) fn next_oldest(&self, messages: &Messages, max: usize) -> Vec<Slot> {
        let behind = self.order.iter().skip(1).take_while(|(at, _)| *at < self.synced_at.0).take(NEXT_LOOKS_MAX);
        behind.filter_map(|(_, id)| messages.slot(MessageId(*id))).take(max).collect()
    }

    /// The message that `oldest` returned is in the open batch now.
    pub(super) fn carried(&mut self) {
        self.order.pop_front();
    }

    /// A checkpoint that began at `at` is in the open batch: once that is synced, what lies before is let go, as far as
    /// `objects_at`, where the oldest definition of an object is.
    pub(super) fn checkpointed(&mut self, at: u64, messages: &Messages, objects_at: Option<u64>) {
        self.oldest(messages);
        if self.order.len() > 2 * messages.len() + ORDER_DEAD_MAX {
            self.order.retain(|(_, id)| messages.slot(MessageId(*id)).is_some());
            self.superseded.retain(|id, _| messages.slot(MessageId(*id)).is_some());
        }
        self.has_refused = false;
        self.needed_from = self.order.front().map_or(at, |&(oldest, _)| oldest.min(at));
        let before = self.needed_from;
        let before = objects_at.map_or(before, |oldest| oldest.min(before));
        self.releases.push_back((self.number, Position(before)));
        self.checkpoint_at = self.open.at;
    }
}

/// An empty batch at `at`, in the buffers of an old one unless those are large.
fn fresh(mut batch: Batch, at: u64) -> Batch {
    if batch.head.capacity() > SPARE_BYTES_MAX || batch.body.capacity() > SPARE_BYTES_MAX {
        batch = Batch::default();
    }
    batch.at = at;
    batch.patient = false;
    batch.head.clear();
    batch.head.resize(BATCH_HEADER_BYTES, 0);
    batch.body.clear();
    batch
}
