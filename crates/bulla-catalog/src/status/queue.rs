//! Queues and policies, as they stand.

use super::TwoAverages;
use super::key_use::Stranded;
use super::protection::ProtectionMeters;
use crate::limits::QueueLimit;

/// What goes on at a local queue. Counters run from the queue manager's start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueueStatus {
    /// Messages, those under delivery included.
    pub depth: u64,
    /// Links that get.
    pub open_input: u64,
    /// Links that put.
    pub open_output: u64,
    /// Messages put or got and not settled.
    pub uncommitted: u64,
    /// Age of the oldest message in seconds; none on an empty queue.
    pub oldest_seconds: Option<u64>,
    /// Last put, milliseconds since 1970, UTC.
    pub last_put_ms: Option<u64>,
    /// Last get, milliseconds since 1970, UTC.
    pub last_get_ms: Option<u64>,
    /// Bytes of all messages as stored.
    pub bytes: u64,
    /// Messages put.
    pub puts: u64,
    /// Messages got.
    pub gets: u64,
    /// Messages expired.
    pub expired: u64,
    /// Sealed messages passed over because they are addressed to other readers.
    pub not_mine: u64,
    /// Messages that no key ring here can open.
    pub stranded: Stranded,
    /// When the counters began, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// When they were read, milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// Times that it was opened to put.
    pub output_opens: u64,
    /// Times that it was opened to get or browse.
    pub input_opens: u64,
    /// Messages that came on a link to no queue in particular.
    pub single_puts: u64,
    /// Persistent messages put.
    pub persistent_puts: u64,
    /// Persistent messages got.
    pub persistent_gets: u64,
    /// Messages sent to links that browse.
    pub browses: u64,
    /// Bytes of the messages put.
    pub bytes_put: u64,
    /// Bytes of the messages got.
    pub bytes_got: u64,
    /// Bytes of the shortest message put; none before the first.
    pub shortest_bytes: Option<u64>,
    /// Bytes of the longest message put; none before the first.
    pub longest_bytes: Option<u64>,
    /// Microseconds between put and get.
    pub time_us: TwoAverages,
    /// The longest such time, microseconds.
    pub longest_time_us: u64,
    /// Refused puts by reason code.
    pub rejects: Vec<(u16, u64)>,
    /// Its limits.
    pub limit: QueueLimit,
    /// Bytes delivered and not settled, counted where the queue limits them.
    pub unacknowledged_bytes: u64,
    /// How often its rate left a link less credit than it could have had.
    pub held_back: u64,
    /// Links and messages refused because of its limits.
    pub limit_refused: u64,
}

/// What was done under a policy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PolicyStatus {
    /// When the counters began, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// When they were read, milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// The counters.
    pub meters: ProtectionMeters,
}

/// Every local queue at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueSnapshot {
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// When the counters began, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// By name. What is shown as dates is left out.
    pub queues: Vec<(String, QueueStatus)>,
}

/// Every policy at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySnapshot {
    /// Milliseconds since 1970, UTC; 0 where there are no policies.
    pub taken_ms: u64,
    /// When the counters began, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// By name.
    pub policies: Vec<(String, ProtectionMeters)>,
}

impl QueueStatus {
    /// What went on after `earlier`, an older copy; averages and what is longest or shortest stay those since the
    /// start.
    #[must_use]
    pub fn since(&self, earlier: &QueueStatus) -> QueueStatus {
        let rejects = self.rejects.iter().filter_map(|(reason, count)| {
            let before = earlier.rejects.iter().find(|(known, _)| known == reason).map_or(0, |(_, before)| *before);
            (*count > before).then(|| (*reason, count - before))
        });
        QueueStatus {
            puts: self.puts.saturating_sub(earlier.puts),
            gets: self.gets.saturating_sub(earlier.gets),
            expired: self.expired.saturating_sub(earlier.expired),
            not_mine: self.not_mine.saturating_sub(earlier.not_mine),
            output_opens: self.output_opens.saturating_sub(earlier.output_opens),
            input_opens: self.input_opens.saturating_sub(earlier.input_opens),
            single_puts: self.single_puts.saturating_sub(earlier.single_puts),
            persistent_puts: self.persistent_puts.saturating_sub(earlier.persistent_puts),
            persistent_gets: self.persistent_gets.saturating_sub(earlier.persistent_gets),
            browses: self.browses.saturating_sub(earlier.browses),
            bytes_put: self.bytes_put.saturating_sub(earlier.bytes_put),
            bytes_got: self.bytes_got.saturating_sub(earlier.bytes_got),
            rejects: rejects.collect(),
            ..self.clone()
        }
    }
}
