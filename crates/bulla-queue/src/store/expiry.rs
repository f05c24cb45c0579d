//! Messages that expire.

use std::cmp::Reverse;

use super::Store;
use super::errors::{JournalError, ReadError};
use super::marks::Marker;
use super::messages::State;
use crate::message::{Chunks, Found, MessageId, QueueId};

/// A marked message that has expired, and is gone.
#[derive(Clone, Debug)]
pub struct Expired {
    /// The queue it was on.
    pub queue: QueueId,
    /// What was known of it.
    pub found: Found,
    /// What it carried; none where that could not be read.
    pub body: Option<Chunks>,
    /// What was said when it was marked.
    pub marker: Option<Marker>,
}

impl Store {
    /// Makes deliverable what was put for later and removes messages that have expired, looking at `max` of each at
    /// most; lets go of indexes that are not used. Costs three compares while there is nothing to do.
    pub fn sweep(&mut self, now_ms: u64, max: usize) {
        self.release_due(now_ms, max);
        self.let_go_of_indexes(now_ms);
        self.expire_due(now_ms, max);
    }

    /// Removes messages that have expired, looking at `max` at most, and says whether it did anything. Costs two
    /// compares where there is none.
    pub fn expire_due(&mut self, now_ms: u64, max: usize) -> bool {
        self.swept_ms = self.swept_ms.max(now_ms);
        self.looked_ms = now_ms;
        let mut later = Vec::new();
        let did = self.expire_next(now_ms, max, &mut later);
        self.expiries.extend(later);
        did
    }

    /// As [`Store::expire_due`]; those whose report waits for their body are left to `later`.
    pub(super) fn expire_next(&mut self, now_ms: u64, max: usize, later: &mut Vec<Reverse<(u64, u64)>>) -> bool {
        for looked in 0..max {
            match self.expiries.peek() {
                Some(&Reverse((at, id))) if at <= now_ms => {
                    self.expiries.pop();
                    let Some(slot) = self.messages.slot(MessageId(id)) else {
                        continue;
                    };
                    let state = self.messages[slot].state;
                    if !matches!(state, State::Available | State::Delayed) {
                        continue;
                    }
                    if self.is_marked(MessageId(id)) && matches!(self.body(MessageId(id)), Err(ReadError::Away { .. }))
                    {
                        later.push(Reverse((at, id)));
                        continue;
                    }
                    if self.expire(slot).is_err() {
                        self.expiries.push(Reverse((at, id)));
                        return looked > 0;
                    }
                }
                _ => return looked > 0,
            }
        }
        max > 0
    }

    pub(super) fn expire(&mut self, slot: crate::lane::Slot) -> Result<(), JournalError> {
        let entry = &self.messages[slot];
        let (queue, found) = (entry.queue(), entry.found());
        let told = match self.is_marked(found.id) {
            true => {
                let body = match self.body(found.id) {
                    Err(error @ ReadError::Away { .. }) => {
                        return Err(JournalError::Unavailable { reason: error.to_string() });
                    }
                    body => body.ok(),
                };
                Some(Expired { queue, body, marker: self.marker(found.id), found })
            }
            false => None,
        };
        self.remove(slot)?;
        self.expired.extend(told);
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.status.expired += 1;
        }
        Ok(())
    }

    /// Moves to `into` the marked messages that have expired since this was last asked.
    pub fn take_expired(&mut self, into: &mut Vec<Expired>) {
        into.append(&mut self.expired);
    }
}
