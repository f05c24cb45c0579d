//! What a store and its queues hold.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Store;
use crate::log::{Epoch, Position, Survives};
use crate::message::QueueId;
use crate::queue::QueueStatus;

/// How much waits for the disk, against [`Limits::backlog_bytes_max`](super::Limits::backlog_bytes_max).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Backlog {
    /// No more than that.
    Usual,
    /// More: the users who have put most of it get no more credit for now.
    Much,
    /// More than twice as much: no user gets credit.
    TooMuch,
}

/// What the store holds, all queues together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreStatus {
    /// Messages.
    pub messages: usize,
    /// Bytes of bodies in memory.
    pub memory_bytes: usize,
    /// Bytes of bodies in scratch space.
    pub spilled_bytes: u64,
    /// Bytes of journal between the oldest batch kept and the end.
    pub journal_bytes: u64,
    /// Bytes of journal that live messages take.
    pub journal_live_bytes: u64,
    /// Bytes of journal that definitions of objects take.
    pub journal_object_bytes: u64,
    /// Bytes of batches not yet synced.
    pub backlog_bytes: u64,
    /// Batches synced since the store was opened.
    pub batches_synced: u64,
}

/// The log under a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogStatus {
    /// Who claimed it last, and as which owner, as [`Log::owner`](crate::Log::owner) has it.
    pub owner: Option<(String, Epoch)>,
    /// As [`Log::is_surely_owned`](crate::Log::is_surely_owned).
    pub is_surely_owned: bool,
    /// Everything below is durable.
    pub end: Position,
    /// Batches submitted and not yet synced.
    pub batches_in_flight: usize,
    /// What a synced batch survives.
    pub survives: Survives,
}

/// What went through all queues together since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Messages put.
    pub puts: u64,
    /// Messages removed by those who had locked them: got, or moved on.
    pub gets: u64,
    /// What went to scratch space.
    pub scratch: ScratchTotals,
}

/// Bodies of messages that are not persistent, beyond the memory that there is for them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScratchTotals {
    /// Bodies written.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of bodies that lie there now.
    pub used: u64,
    /// How long it was waited for that, writing them and reading them back; as [`Spill::waited`](crate::Spill::waited)
    /// has it.
    pub wait: Duration,
}

impl Store {
    /// What went through all queues together, those that are gone included.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (used, wait) = (self.spill.bytes(), self.spill.waited());
        Totals { scratch: ScratchTotals { used, wait, ..self.totals.scratch }, ..self.totals }
    }

    /// A queue at a glance. Looks at the front of ten lanes.
    #[must_use]
    pub fn status(&self, queue: QueueId) -> Option<QueueStatus> {
        let queue = self.queues.get(&queue)?;
        let oldest = queue.lanes.iter().filter_map(|lane| lane.slots(None).next());
        let oldest_put_ms = oldest.map(|(slot, _)| self.messages[slot].put_at_ms).min();
        let available = queue.lanes.iter().map(crate::lane::Lane::free).sum();
        Some(QueueStatus { oldest_put_ms, available, ..queue.status })
    }

    /// How much waits for the disk. [`Store::take_freed`] tells when a producer that waits for that may go on.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let bytes = self.journal.backlog_bytes();
        if bytes <= self.limits.backlog_bytes_max {
            return Backlog::Usual;
        }
        self.backlogged.store(true, Ordering::Relaxed); // the store has one user at a time
        if bytes <= self.limits.backlog_bytes_max.saturating_mul(2) { Backlog::Much } else { Backlog::TooMuch }
    }

    /// Messages of the counted priorities that are on a queue, locked ones included; 0 where none are counted.
    #[must_use]
    pub fn counted(&self, queue: QueueId) -> u32 {
        self.queues.get(&queue).map_or(0, |queue| queue.counted)
    }

    /// Who has the log under the store, and how far it is.
    #[must_use]
    pub fn log_status(&self) -> LogStatus {
        self.journal.log_status()
    }

    /// What the store holds, all queues together.
    #[must_use]
    pub fn store_status(&self) -> StoreStatus {
        StoreStatus {
            messages: self.messages.len(),
            memory_bytes: self.memory_bytes,
            spilled_bytes: self.spill.bytes(),
            journal_bytes: self.journal.log_bytes(),
            journal_live_bytes: self.journal.live_bytes,
            journal_object_bytes: self.objects.journal_bytes,
            backlog_bytes: self.journal.backlog_bytes(),
            batches_synced: self.journal.synced - self.number.base(),
        }
    }
}
