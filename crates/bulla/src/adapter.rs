//! Adapters: the threads that seal, open and check messages, many at a time.
//!
//! An adapter takes what waits, starts each task, hands all private-key jobs to its device in one
//! call, and goes on with each task as its job comes back. Results go to the dispatcher that asked,
//! which puts them in order.

use crate::mailbox::{Letter, Mailbox};
use bulla_amqp::LinkId;
use bulla_device::{Device, Finished as DeviceFinished, Job};
use bulla_seal::{OpenError, Opened, SealError, Sealed, Step, Verified};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of messages that may be with the adapters at once, payload and sealed form together; a
/// message beyond it is refused with 2071.
pub(crate) const SEALING_BYTES_MAX: usize = 512 << 20;
/// Passwords that may wait to be looked at; more sign-ins are refused.
const ASIDES_MAX: usize = 64;
/// Tasks an adapter takes in one go: enough to fill the eight lanes of an accelerator.
const TASKS_PER_TURN: usize = 8;

/// What an adapter does to a message.
pub(crate) type Start<T, E> = Box<dyn FnOnce() -> Result<Step<T, E>, E> + Send>;

/// The work of one task.
pub(crate) enum Work {
    /// Seal a clear message.
    Seal(Asker, Start<Sealed, SealError>),
    /// Open a sealed message for a reader.
    Open(Asker, Start<Verified<Opened>, OpenError>),
    /// Check a message that arrived sealed.
    Check(Asker, Box<dyn FnOnce() -> Result<(), OpenError> + Send>),
    /// Something else that takes longer than a dispatcher should be kept, and tells its result itself.
    Aside(Box<dyn FnOnce() + Send>),
}

/// Who waits for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    /// The dispatcher's index.
    pub(crate) dispatcher: usize,
    /// The connection's place in that dispatcher.
    pub(crate) peer: usize,
    /// Which connection it was that had that place.
    pub(crate) generation: u64,
    /// The link.
    pub(crate) link: LinkId,
    /// The message's turn on that link.
    pub(crate) slot: u64,
}

/// A task's result.
pub(crate) enum Outcome {
    /// Sealed, or why not.
    Sealed(Result<Sealed, SealError>),
    /// Opened, or why not.
    Opened(Result<Verified<Opened>, OpenError>),
    /// Checked, or what is wrong.
    Checked(Result<(), OpenError>),
}

/// A finished task, on its way to the dispatcher that asked.
pub(crate) struct Finished {
    /// Who asked.
    pub(crate) asker: Asker,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished").field("asker", &self.asker).finish_non_exhaustive()
    }
}

/// Memory that a message holds against `SEALING_BYTES_MAX`, from its arrival until it is put or sent.
#[derive(Debug)]
pub(crate) struct Held {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// The pool of adapters.
pub(crate) struct Adapters {
    waiting: Mutex<VecDeque<Work>>,
    work: Condvar,
    stopping: AtomicBool,
    bytes: Arc<AtomicUsize>,
    asides: AtomicUsize,
}

/// A message that finds no memory to be sealed in: `held` of `limit` bytes are taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SealingMemoryFull {
    pub(crate) held: usize,
    pub(crate) limit: usize,
}

impl Adapters {
    /// An empty pool; `run` on a thread each makes the adapters.
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(VecDeque::new()),
            work: Condvar::new(),
            stopping: AtomicBool::new(false),
            bytes: Arc::new(AtomicUsize::new(0)),
            asides: AtomicUsize::new(0),
        }
    }

    /// Takes memory for a message. A lone one passes whatever its size; beyond the limit others are refused.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Held, SealingMemoryFull> {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let held = Held { total: self.bytes.clone(), bytes };
        if before > 0 && before.saturating_add(bytes) > SEALING_BYTES_MAX {
            return Err(SealingMemoryFull { held: before, limit: SEALING_BYTES_MAX });
        }
        Ok(held)
    }

    /// Hands a task over.
    pub(crate) fn submit(&self, work: Work) {
        self.lock().push_back(work);
        self.work.notify_one();
    }

    /// Hands over something else, for somebody who may be a stranger: false where `ASIDES_MAX` wait already.
    pub(crate) fn submit_aside(&self, run: Box<dyn FnOnce() + Send>) -> bool {
        if self.asides.fetch_add(1, Ordering::AcqRel) >= ASIDES_MAX {
            self.asides.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        self.submit(Work::Aside(run));
        true
    }

    /// An adapter's life: ends when the pool stops and nothing waits.
    pub(crate) fn run(&self, device: &mut dyn Device, mailboxes: &[Arc<Mailbox>]) {
        let mut turn = Turn::default();
        while self.take(&mut turn.tasks) {
            turn.carry_out(device, &self.asides, &mut |asker, outcome| {
                if let Some(mailbox) = mailboxes.get(asker.dispatcher) {
                    mailbox.post(Letter::Finished(Box::new(Finished { asker, outcome })));
                }
            });
        }
    }

    /// Ends every adapter once nothing waits.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        // Taking the lock orders the flag before the wait of an adapter that has just found nothing.
        drop(self.lock());
        self.work.notify_all();
    }

    /// Waits for tasks; false when the pool stops.
    fn take(&self, into: &mut Vec<Work>) -> bool {
        let mut waiting = self.lock();
        loop {
            if !waiting.is_empty() {
                let n = waiting.len().min(TASKS_PER_TURN);
                into.extend(waiting.drain(..n));
                return true;
            }
            if self.stopping.load(Ordering::Acquire) {
                return false;
            }
            waiting = self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task between two device jobs.
enum Paused {
    Seal(bulla_seal::Continuation<Sealed, SealError>),
    Open(bulla_seal::Continuation<Verified<Opened>, OpenError>),
}

/// One adapter's turn: the tasks it took and those whose device job is out.
#[derive(Default)]
struct Turn {
    tasks: Vec<Work>,
    paused: HashMap<u64, (Asker, Paused)>,
    jobs: Vec<Job>,
    done: Vec<DeviceFinished>,
    next_job: u64,
}

impl Turn {
    fn carry_out(&mut self, device: &mut dyn Device, asides: &AtomicUsize, finish: &mut dyn FnMut(Asker, Outcome)) {
        for work in std::mem::take(&mut self.tasks) {
            match work {
                Work::Seal(asker, start) => self.sealing(asker, start(), finish),
                Work::Open(asker, start) => self.opening(asker, start(), finish),
                Work::Check(asker, check) => finish(asker, Outcome::Checked(check())),
                Work::Aside(run) => {
                    run();
                    asides.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        while !self.paused.is_empty() {
            if let Err(error) = device.submit(&mut self.jobs).and_then(|_| device.poll(&mut self.done)) {
                self.fail_all(&error, finish);
                return;
            }
            for finished in std::mem::take(&mut self.done) {
                match self.paused.remove(&finished.id) {
                    Some((asker, Paused::Seal(go_on))) => self.sealing(asker, go_on(finished.result), finish),
                    Some((asker, Paused::Open(go_on))) => self.opening(asker, go_on(finished.result), finish),
                    None => {}
                }
            }
        }
    }

    fn sealing(
        &mut self,
        asker: Asker,
        step: Result<Step<Sealed, SealError>, SealError>,
        finish: &mut dyn FnMut(Asker, Outcome),
    ) {
        match step {
            Ok(Step::Done(sealed)) => finish(asker, Outcome::Sealed(Ok(sealed))),
            Ok(Step::Device(job, go_on)) => self.pause(asker, job, Paused::Seal(go_on)),
            Err(error) => finish(asker, Outcome::Sealed(Err(error))),
        }
    }

    fn opening(
        &mut self,
        asker: Asker,
        step: Result<Step<Verified<Opened>, OpenError>, OpenError>,
        finish: &mut dyn FnMut(Asker, Outcome),
    ) {
        match step {
            Ok(Step::Done(opened)) => finish(asker, Outcome::Opened(Ok(opened))),
            Ok(Step::Device(job, go_on)) => self.pause(asker, job, Paused::Open(go_on)),
            Err(error) => finish(asker, Outcome::Opened(Err(error))),
        }
    }

    fn pause(&mut self, asker: Asker, mut job: Job, paused: Paused) {
        job.id = self.next_job;
        self.next_job += 1;
        self.paused.insert(job.id, (asker, paused));
        self.jobs.push(job);
    }

    /// The device took nothing and will give nothing: every waiting task hears of it.
    fn fail_all(&mut self, error: &bulla_device::DeviceError, finish: &mut dyn FnMut(Asker, Outcome)) {
        self.jobs.clear();
        for (_, (asker, paused)) in self.paused.drain() {
            let outcome = match paused {
                Paused::Seal(go_on) => {
                    Outcome::Sealed(unfinished(go_on(Err(error.clone())), || SealError::Key(error.clone())))
                }
                Paused::Open(go_on) => {
                    Outcome::Opened(unfinished(go_on(Err(error.clone())), || OpenError::Key(error.clone())))
                }
            };
            finish(asker, outcome);
        }
    }
}

/// A task that asks for another job of a device that has just failed is over, too.
fn unfinished<T, E>(step: Result<Step<T, E>, E>, failed: impl FnOnce() -> E) -> Result<T, E> {
    match step {
        Ok(Step::Done(value)) => Ok(value),
        Ok(Step::Device(..)) => Err(failed()),
        Err(error) => Err(error),
    }
}
