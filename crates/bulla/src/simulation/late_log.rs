//! A journal whose disk takes its time.

use crate::clock::Clock;
use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, LogLimits, Position, Read, ReadDone, Replayed};
use bulla_queue::{FileLog, Log, sim::SimDisk};
use fastrand::Rng;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a batch takes at the most.
const LATENCY_MAX_US: u64 = 5_000;
/// How long a read takes at the most that is not answered at once.
const READ_LATENCY_MAX_US: u64 = 20_000;

/// A log that writes a batch some time after it was submitted.
pub(super) struct LateLog {
    log: FileLog<SimDisk>,
    clock: Clock,
    random: Rng,
    /// Batches that are not written yet, and when they are.
    waiting: VecDeque<(Instant, Batch)>,
    /// Reads that are not answered yet, and when they are.
    reads: Vec<(Instant, Read)>,
    outside: Outside,
}

/// How long a log takes, where not as chance has it.
#[derive(Clone, Copy, Default)]
pub(super) struct Takes {
    /// For a batch.
    pub(super) batch: Option<Duration>,
    /// For a read. A reader that waits for one moves the clock.
    pub(super) read: Option<Duration>,
}

/// When the next batch is written or the next read answered, for who moves the clock.
#[derive(Clone, Default)]
pub(super) struct Due(Arc<Mutex<Option<Instant>>>);

/// Whether the log's owner is answered when it looks whether there is another one.
#[derive(Clone)]
pub(super) struct Looks(Arc<AtomicBool>);

impl Default for Looks {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Looks {
    pub(super) fn answer(&self, answers: bool) {
        self.0.store(answers, Ordering::Relaxed);
    }
}

/// What happens to a log, from outside.
#[derive(Clone, Default)]
pub(super) struct Outside {
    pub(super) due: Due,
    pub(super) looks: Looks,
    pub(super) takes: Takes,
}

impl Due {
    pub(super) fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

impl LateLog {
    pub(super) fn new(log: FileLog<SimDisk>, clock: Clock, seed: u64, outside: Outside) -> Self {
        outside.due.set(None);
        Self { log, clock, random: Rng::with_seed(seed), waiting: VecDeque::new(), reads: Vec::new(), outside }
    }

    fn waiting_bytes(&self) -> u64 {
        let usual = |batch: &Batch| batch.bytes() <= self.log.limits().batch_bytes_max;
        self.waiting.iter().filter(|(_, batch)| usual(batch)).map(|(_, batch)| batch.bytes()).sum()
    }

    /// Has everything written that is due by then.
    fn write(&mut self, now: Instant) -> Result<(), LogError> {
        while self.waiting.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, batch)) = self.waiting.pop_front() else { break };
            if let Err((batch, error)) = self.log.submit(batch) {
                self.waiting.push_front((at, batch));
                return Err(error);
            }
        }
        self.say_due();
        Ok(())
    }

    fn say_due(&self) {
        let reads = self.reads.iter().map(|(at, _)| *at);
        self.outside.due.set(self.waiting.front().map(|(at, _)| *at).into_iter().chain(reads).min());
    }
}

impl Log for LateLog {
    fn claim(&mut self, now: Instant, how: Claim) -> Result<(Epoch, Position), LogError> {
        self.log.claim(now, how)
    }

    fn start(&self) -> Position {
        self.log.start()
    }

    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        self.log.replay(from, each)
    }

    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        if self.waiting.len() >= self.limits().batches_in_flight_max {
            return Err((batch, LogError::Busy));
        }
        let after = self.waiting.back().map_or_else(|| self.clock.now(), |(at, _)| *at);
        let latency = if self.random.bool() { 0 } else { self.random.u64(..LATENCY_MAX_US) };
        let latency = self.outside.takes.batch.unwrap_or(Duration::from_micros(latency));
        self.waiting.push_back((after + latency, batch));
        self.say_due();
        Ok(())
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError> {
        self.write(now)?;
        self.log.poll(now, events, spare)
    }

    fn settle(&mut self) {
        let last = self.waiting.back().map(|(at, _)| *at);
        // What fails is told by the next poll.
        let _ = last.map(|at| self.write(at));
        self.log.settle();
    }

    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        if self.outside.takes.read.is_none() && self.random.bool() {
            return self.log.read(read);
        }
        let by_chance = || Duration::from_micros(self.random.u64(..READ_LATENCY_MAX_US));
        let after = self.outside.takes.read.unwrap_or_else(by_chance);
        self.reads.push((self.clock.now() + after, read));
        self.say_due();
        Ok(None)
    }

    fn poll_reads(&mut self, now: Instant, done: &mut Vec<ReadDone>) {
        let (due, later) = std::mem::take(&mut self.reads).into_iter().partition::<Vec<_>, _>(|(at, _)| *at <= now);
        self.reads = later;
        for (_, Read { number, at, bytes }) in due {
            let mut read = Vec::new();
            let answer = self.log.read_now(at, bytes, &mut read).map(|()| read);
            done.push(ReadDone { number, bytes: answer });
        }
        self.say_due();
    }

    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        self.clock.advance(self.outside.takes.read.unwrap_or_default());
        self.log.read_now(at, bytes, into)
    }

    fn release(&mut self, before: Position) -> Result<(), LogError> {
        self.log.release(before)
    }

    fn space(&self) -> u64 {
        self.log.space().saturating_sub(self.waiting_bytes())
    }

    fn reserve(&mut self, batch_bytes: u64, besides: u64) -> Result<(), LogError> {
        self.log.reserve(batch_bytes, besides.saturating_add(self.waiting_bytes()))
    }

    fn limits(&self) -> LogLimits {
        self.log.limits()
    }

    fn is_surely_owned(&self) -> bool {
        self.outside.looks.0.load(Ordering::Relaxed)
    }
}
