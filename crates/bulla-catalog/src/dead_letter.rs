//! Dead letters as an administrator sees them.

/// A message on a dead-letter or error queue, as its label describes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeadLetter {
    /// Its number in this queue manager.
    pub number: u64,
    /// MQ's reason code; none for a message that a client rejected.
    pub reason: Option<u16>,
    /// The sub-reason: `undelivered`, `rejected`, `tampered`, …
    pub cause: String,
    /// A line of detail.
    pub details: String,
    /// The queue that it was on, or for.
    pub queue: String,
    /// The queue manager of that queue, where it may be another one.
    pub manager: String,
    /// Who put it, as the queue manager knew it.
    pub user: String,
    /// Whether it is persistent.
    pub persistent: bool,
    /// Bytes as stored.
    pub bytes: u64,
    /// When it was put first, milliseconds since 1970, UTC.
    pub put_ms: u64,
}
