//! Messages that are on their queue, and not deliverable before their time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::messages::{IdBuildHasher, Messages, State};
use super::{Store, mark_ready};
use crate::message::MessageId;

/// Names of removed messages that may stay in the order of times on top of twice the live ones.
const STALE_MAX: usize = 1_024;

/// Until when messages are not deliverable: milliseconds since 1970, by id. Costs nothing while there are none.
#[derive(Debug, Default)]
pub(super) struct Delays {
    until: HashMap<u64, u64, IdBuildHasher>,
    /// Soonest first. May name messages that are gone.
    order: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Delays {
    pub(super) fn add(&mut self, id: u64, until_ms: u64) {
        self.until.insert(id, until_ms);
        self.order.push(Reverse((until_ms, id)));
    }

    pub(super) fn holds(&self, id: u64) -> bool {
        !self.until.is_empty() && self.until.contains_key(&id)
    }

    pub(super) fn until(&self, id: u64) -> Option<u64> {
        if self.until.is_empty() { None } else { self.until.get(&id).copied() }
    }

    /// A message is gone.
    pub(super) fn forget(&mut self, id: u64, messages: &Messages) {
        if self.until.is_empty() || self.until.remove(&id).is_none() {
            return;
        }
        if self.order.len() > 2 * self.until.len() + STALE_MAX {
            self.order.retain(|Reverse((_, id))| messages.slot(MessageId(*id)).is_some());
        }
    }

    /// Takes the next message whose time has come.
    fn due(&mut self, now_ms: u64) -> Option<u64> {
        loop {
            let &Reverse((until_ms, id)) = self.order.peek().filter(|Reverse((until_ms, _))| *until_ms <= now_ms)?;
            self.order.pop();
            if self.until.get(&id) == Some(&until_ms) {
                self.until.remove(&id);
                return Some(id);
            }
        }
    }
}

impl Store {
    /// Makes deliverable what was put for later, `max` at most.
    pub(super) fn release_due(&mut self, now_ms: u64, max: usize) {
        for _ in 0..max {
            let Some(id) = self.delays.due(now_ms) else { return };
            let Some(slot) = self.messages.slot(MessageId(id)) else { continue };
            let entry = &mut self.messages[slot];
            // One that is not synced yet becomes available when it is.
            if entry.state != State::Delayed {
                continue;
            }
            entry.state = State::Available;
            if let Some(queue) = self.queues.get_mut(&entry.queue()) {
                queue.unlock(entry.lane, entry.index, entry.id);
                mark_ready(queue, &mut self.ready);
                if queue.arrived(entry.priority) {
                    self.arrived.push(queue.id);
                }
            }
        }
    }

    /// Until when a message is not deliverable: milliseconds since 1970; `None` where it is, or is gone.
    #[must_use]
    pub fn delayed_until_ms(&self, id: MessageId) -> Option<u64> {
        self.delays.until(id.0)
    }
}
