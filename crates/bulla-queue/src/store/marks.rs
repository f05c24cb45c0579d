//! Marks of messages: what a caller wants to know of them at their end.

use super::Store;
use crate::message::{Chunks, MessageId};

/// Whose a mark is, in numbers of the caller's own; the store only keeps them.
pub type Marker = (usize, u64);

impl Store {
    /// Says by what is told of a message that was found in the journal, once its body is read back, whether its maker
    /// wants to hear what becomes of it. Until that is known such a message counts as marked; see
    /// [`Store::is_marked`].
    pub fn tell_marks_by(&mut self, asks: fn(&Chunks) -> bool) {
        self.asks = Some(asks);
    }

    /// Marks a message: its maker wants to hear what becomes of it. Mark and marker are not journaled; they go with the
    /// message.
    pub fn mark(&mut self, id: MessageId, marker: Option<Marker>) {
        if self.messages.slot(id).is_some() {
            self.marked.insert(id.0, marker);
        }
    }

    /// What was said when a message was marked; nothing of one that was found in the journal.
    #[must_use]
    pub fn marker(&self, id: MessageId) -> Option<Marker> {
        self.marked.get(&id.0).copied().flatten()
    }

    /// Whether a message is marked, or may be: of those found in the journal that is not known before
    /// they are read back. Two compares where nothing is.
    #[must_use]
    pub fn is_marked(&self, id: MessageId) -> bool {
        (id.0 < self.marked_below && !self.reads.is_plain(id.0))
            || (!self.marked.is_empty() && self.marked.contains_key(&id.0))
    }
}
