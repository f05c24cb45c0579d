//! Messages that wait to be signed, by what they may share a signature with. While a signature of a kind is being made,
//! those that come wait, and are the next batch: no message waits where the device is free. A batch that is full waits
//! for nothing, for it would not be larger later.

use super::{TASKS_PER_TURN, Task};
use bulla_seal::{BatchKey, Leaf};
use std::collections::{HashMap, VecDeque};

/// Signatures of one kind that may be made at once: as many as messages that are signed alone begin in one turn.
const SIGNATURES_MAX: usize = TASKS_PER_TURN;

/// By kind; a kind is here as long as a signature of it is being made, or about to be.
#[derive(Default)]
pub(super) struct Unsigned(HashMap<BatchKey, Kind>);

/// The messages of one kind.
#[derive(Default)]
struct Kind {
    /// Signatures that are being made.
    making: usize,
    waiting: VecDeque<(Leaf, Task)>,
}

impl Unsigned {
    /// Adds a message. Gives its kind where the caller has to look what is signed next.
    pub(super) fn add(&mut self, leaf: Leaf, task: Task) -> Option<BatchKey> {
        let key = leaf.key().clone();
        let kind = self.0.entry(key.clone()).or_default();
        kind.waiting.push_back((leaf, task));
        let count = kind.waiting.len();
        (count == 1 && kind.making == 0 || count == key.most()).then_some(key)
    }

    /// A signature of that kind is made, or will not be.
    pub(super) fn made(&mut self, key: &BatchKey) {
        if let Some(kind) = self.0.get_mut(key) {
            kind.making = kind.making.saturating_sub(1);
        }
    }

    /// Whether messages of that kind wait for no signature, and are fewer than one signature may prove.
    pub(super) fn may_grow(&self, key: &BatchKey) -> bool {
        let part = 1..key.most();
        self.0.get(key).is_some_and(|kind| kind.making == 0 && part.contains(&kind.waiting.len()))
    }

    /// Whether messages of that kind are to be signed now: when none of them is being signed, or when a signature could
    /// not prove more.
    pub(super) fn is_ready(&self, key: &BatchKey) -> bool {
        self.0.get(key).is_some_and(|kind| {
            let is_full = kind.waiting.len() >= key.most();
            !kind.waiting.is_empty() && (kind.making == 0 || is_full && kind.making < SIGNATURES_MAX)
        })
    }

    /// Those that are signed now: as many as the policy lets share a signature, the oldest first. Nothing where they
    /// wait for others. When there is none the kind is done with.
    pub(super) fn next(&mut self, key: &BatchKey) -> Option<Vec<(Leaf, Task)>> {
        let is_ready = self.is_ready(key);
        let kind = self.0.get_mut(key)?;
        if kind.waiting.is_empty() && kind.making == 0 {
            self.0.remove(key);
            return None;
        }
        if !is_ready {
            return None;
        }
        kind.making += 1;
        let count = kind.waiting.len().min(key.most());
        Some(kind.waiting.drain(..count).collect())
    }
}
