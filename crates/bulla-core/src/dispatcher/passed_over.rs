//! What one link that gets passes over: messages that are addressed to others, and those that it will not have again.

use crate::maps::HashMap;
use bulla_queue::MessageId;

/// Messages that one link remembers to pass over.
pub const PASSED_OVER_MAX: usize = if cfg!(any(test, feature = "simulation")) { 64 } else { 65_536 };

/// Why a message is passed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// It is addressed to others.
    NotMine,
    /// The link said that it can't be delivered here, or it can't be moved from this very queue.
    NotHere,
}

/// The messages that a link passes over.
#[derive(Debug, Default)]
pub struct PassedOver {
    messages: HashMap<MessageId, Why>,
}

impl PassedOver {
    /// Remembers a message. With a full memory another one is forgotten: it is looked at again when everything is.
    pub fn remember(&mut self, id: MessageId, why: Why) {
        if self.is_full()
            && !self.messages.contains_key(&id)
            && let Some(other) = self.messages.keys().next().copied()
        {
            self.messages.remove(&other);
        }
        self.messages.insert(id, why);
    }

    pub(crate) fn contains(&self, id: MessageId) -> bool {
        !self.messages.is_empty() && self.messages.contains_key(&id)
    }

    /// Whether a message is known to be addressed to others.
    pub fn is_others(&self, id: MessageId) -> bool {
        self.messages.get(&id) == Some(&Why::NotMine)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.messages.len() >= PASSED_OVER_MAX
    }

    /// Messages may have other recipients now: forgets those that were addressed to others.
    pub fn forget_others(&mut self) {
        self.messages.retain(|_, why| *why != Why::NotMine);
    }

    /// Forgets messages that are gone. One look-up each, where the memory is full.
    pub fn forget_gone(&mut self, is_there: impl Fn(MessageId) -> bool) {
        if self.is_full() {
            self.messages.retain(|id, _| is_there(*id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_full_memory_the_newest_is_remembered_all_the_same() {
        let mut passed_over = PassedOver::default();
        for id in 0..3 * PASSED_OVER_MAX as u64 {
            passed_over.remember(MessageId(id), Why::NotMine);
            assert!(passed_over.contains(MessageId(id)));
            assert!(passed_over.messages.len() <= PASSED_OVER_MAX);
        }
        passed_over.forget_gone(|id| id.0 == 0);
        assert!(!passed_over.is_full());
    }

    #[test]
    fn what_the_link_itself_will_not_have_is_not_said_to_be_others() {
        let mut passed_over = PassedOver::default();
        passed_over.remember(MessageId(1), Why::NotMine);
        passed_over.remember(MessageId(2), Why::NotHere);
        assert_eq!([1, 2, 3].map(|id| passed_over.is_others(MessageId(id))), [true, false, false]);
        assert_eq!([1, 2, 3].map(|id| passed_over.contains(MessageId(id))), [true, true, false]);
    }
}
