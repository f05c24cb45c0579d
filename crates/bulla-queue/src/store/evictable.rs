//! Bodies in memory that the journal has, too. They leave memory before another body is written to scratch space.

use super::messages::{Entry, Kept, Messages, State};
use crate::message::MessageId;

/// Messages that are gone and may still be named, on top of as many as there are.
const STALE_MAX: usize = 1_024;
/// Bodies that must stay which are passed over on the way to one that need not.
const PASSED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Evictable {
    /// The newest last: on its queue it is as a rule the last to be read. May name messages that are gone.
    ids: Vec<u64>,
    /// Messages whose bodies can leave.
    live: usize,
    /// Bytes of those bodies.
    bytes: usize,
}

impl Evictable {
    /// Bytes of all bodies that can leave.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The journal has this message now.
    pub(super) fn synced(&mut self, entry: &Entry) {
        if is_evictable(entry) {
            self.ids.push(entry.id);
            self.live += 1;
            self.bytes += entry.body_bytes as usize;
        }
    }

    /// A message that the journal has got another body, which is in memory. `before`: bytes of the one that was there.
    pub(super) fn replaced(&mut self, before: Option<u32>, entry: &Entry) {
        match before {
            Some(bytes) if is_evictable(entry) => self.bytes = self.bytes - bytes as usize + entry.body_bytes as usize,
            Some(_) => {}
            None => self.synced(entry),
        }
    }

    /// This message is gone.
    pub(super) fn forget(&mut self, entry: &Entry, messages: &Messages) {
        if is_evictable(entry) {
            self.left(entry.body_bytes);
            if self.ids.len() > 2 * self.live + STALE_MAX {
                self.ids.retain(|id| messages.slot(MessageId(*id)).is_some());
            }
        }
    }

    /// Takes the newest of the bodies out of memory that need not stay there, and returns its bytes.
    pub(super) fn evict(&mut self, messages: &mut Messages, must_stay: impl Fn(&Entry) -> bool) -> Option<usize> {
        let mut passed = Vec::new();
        let slot = loop {
            if passed.len() == PASSED_MAX {
                break None;
            }
            let Some(id) = self.ids.pop() else { break None };
            match messages.slot(MessageId(id)) {
                Some(slot) if must_stay(&messages[slot]) => passed.push(id),
                Some(slot) => break Some(slot),
                None => {}
            }
        };
        self.ids.extend(passed.into_iter().rev());
        let slot = slot?;
        let entry = &mut messages[slot];
        entry.body = None;
        self.left(entry.body_bytes);
        Some(entry.body_bytes as usize)
    }

    fn left(&mut self, bytes: u32) {
        self.live -= 1;
        self.bytes -= bytes as usize;
    }
}

fn is_evictable(entry: &Entry) -> bool {
    entry.body.is_some() && entry.kept == Kept::Journal && entry.state != State::Pending
}
