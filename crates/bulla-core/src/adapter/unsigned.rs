//! Messages that wait to be signed, by what they may share a signature with. While one signature of a kind is being
//! made, those that come wait, and are the next batch: no message waits where the device is free.

use super::Task;
use bulla_seal::{BatchKey, Leaf};
use std::collections::{HashMap, VecDeque};

/// By kind; a kind is here as long as a signature of it is being made, or about to be.
#[derive(Default)]
pub(super) struct Unsigned(HashMap<BatchKey, VecDeque<(Leaf, Task)>>);

impl Unsigned {
    /// Adds a message. Gives its kind where no signature of it is being made: the caller begins one.
    pub(super) fn add(&mut self, leaf: Leaf, task: Task) -> Option<BatchKey> {
        if let Some(waiting) = self.0.get_mut(leaf.key()) {
            waiting.push_back((leaf, task));
            return None;
        }
        let key = leaf.key().clone();
        self.0.insert(key.clone(), VecDeque::from([(leaf, task)]));
        Some(key)
    }

    /// Those that are signed next: as many as the policy lets share a signature, the oldest first. When there is none
    /// the kind is done with.
    pub(super) fn next(&mut self, key: &BatchKey) -> Vec<(Leaf, Task)> {
        let Some(waiting) = self.0.get_mut(key).filter(|waiting| !waiting.is_empty()) else {
            self.0.remove(key);
            return Vec::new();
        };
        let count = waiting.len().min(key.most());
        waiting.drain(..count).collect()
    }
}
