//! Models: what dynamic queues are made of.

use super::queue::{LocalQueue, MESSAGE_BYTES_MAX};

/// What dynamic queues are made of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ModelQueue {
    /// DEFTYPE(PERMDYN): they stay.
    pub permanent: bool,
    /// What they are like.
    pub queue: LocalQueue,
}

impl ModelQueue {
    /// The one that a new queue manager has.
    pub fn initial() -> Self {
        let description = "Queues for replies, that go with their link".into();
        let max_message_bytes = u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX);
        Self { permanent: false, queue: LocalQueue { description, max_message_bytes, ..LocalQueue::default() } }
    }
}
