//! What the log's thread and its owner's thread both know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulla_queue::log::{Batch, Epoch, LogError, Position};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::options::{CLAIM_RESERVE_BYTES, OWNED_FOR, SMALL_BATCH_FACTOR};
use crate::table::Table;

/// Bytes of the stream that a message takes besides its frame, at most: subject, headers, checksum.
pub(crate) const MESSAGE_OVERHEAD_BYTES: u64 = 512;

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum Told {
    /// It is in the log, which reaches this position; its buffers are free.
    Synced(Position, Batch),
    /// Another owner claimed the log.
    Deposed(Epoch),
    /// It can't be written.
    Failed(String),
}

/// A claim that succeeded, and what is known of it since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ownership {
    /// The owner's epoch.
    pub epoch: u64,
    /// The sequence of the epoch record, which every append expects to be the last.
    pub fence: u64,
    /// The sequence of the owner's last message.
    pub last: u64,
    /// Before that nothing is sent: the former owner may still send. By a clock that goes on while the process is
    /// stopped, as `shown`.
    pub sends_from: Duration,
    /// When the request began that showed last that there is no other owner.
    pub shown: Duration,
}

impl Ownership {
    /// Whether what is in the log may be sent.
    #[must_use]
    pub fn is_sure(&self, now: Duration) -> bool {
        now >= self.sends_from && now.saturating_sub(self.shown) <= OWNED_FOR
    }
}

/// Time since the machine was started, by a clock that goes on while this process is stopped and while the machine
/// sleeps.
pub(crate) fn uptime() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32) // below a second
}

/// Why an append has no answer yet.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Full,
    Unavailable(String),
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) table: Mutex<Table>,
    pub(crate) ownership: Mutex<Option<Ownership>>,
    /// What answers who asks for the owner.
    presence: Mutex<Option<AbortHandle>>,
    /// A claim is under way: a new owner may be this one.
    pub(crate) claims: AtomicBool,
    pub(crate) trouble: Mutex<Option<Trouble>>,
    /// What may be let go.
    pub(crate) release: Mutex<Option<Position>>,
    pub(crate) release_changed: Notify,
    /// Whether a batch is under way.
    pub(crate) busy: watch::Sender<bool>,
    /// Bytes of the stream: as the engine said last, and what was sent since.
    stream_bytes: AtomicU64,
    stream_bytes_max: AtomicU64,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Shared {
            table: Mutex::default(),
            ownership: Mutex::default(),
            presence: Mutex::default(),
            claims: AtomicBool::new(false),
            trouble: Mutex::default(),
            release: Mutex::default(),
            release_changed: Notify::new(),
            busy: watch::Sender::new(false),
            stream_bytes: AtomicU64::new(0),
            stream_bytes_max: AtomicU64::new(0),
        }
    }

    /// Whether who asks for the owner is answered.
    pub(crate) fn listens(&self) -> bool {
        hold(&self.presence).is_some()
    }

    /// By what it is answered from now on.
    pub(crate) fn listen(&self, by: Option<AbortHandle>) {
        if let Some(before) = std::mem::replace(&mut *hold(&self.presence), by) {
            before.abort();
        }
    }

    /// This one is not the owner any more.
    pub(crate) fn disown(&self) {
        *hold(&self.ownership) = None;
        self.listen(None);
    }

    pub(crate) fn counted(&self, bytes: u64, bytes_max: u64) {
        self.stream_bytes.store(bytes, Ordering::Relaxed);
        self.stream_bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, payload_bytes: usize) {
        self.stream_bytes.fetch_add(payload_bytes as u64 + MESSAGE_OVERHEAD_BYTES, Ordering::Relaxed);
    }

    /// Bytes of the stream, and the most that it may have.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.stream_bytes.load(Ordering::Relaxed), self.stream_bytes_max.load(Ordering::Relaxed))
    }

    /// Bytes that batches of any size may take.
    pub(crate) fn space(&self) -> u64 {
        let (bytes, bytes_max) = self.bytes();
        bytes_max.saturating_sub(bytes).saturating_sub(CLAIM_RESERVE_BYTES) / SMALL_BATCH_FACTOR
    }
}

/// A panic elsewhere does not make these values wrong: each is changed in one step.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wrong with a message of the stream, for an operator.
pub(crate) fn damaged(at: u64, sequence: u64, what: &dyn std::fmt::Display) -> LogError {
    LogError::Damaged { at: Position(at), reason: format!("message {sequence} of the stream: {what}") }
}
