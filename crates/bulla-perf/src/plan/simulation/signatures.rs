//! Signatures that messages of a link share, by the program's rules: while one is made, those that come wait; a full
//! batch waits for nothing; and what is left over is held for a while, where the processor makes the signatures.

use super::devices::Job;
use super::{ADAPTER_TASKS_MAX, Message, Simulation, Stage, Task};
use crate::plan::profile::Operation;
use std::collections::{BTreeMap, VecDeque};

/// Signatures of a link that may be made at once, and that one turn makes, as in the program.
const SIGNATURES_MAX: usize = ADAPTER_TASKS_MAX;
/// How long messages that could be signed are held for others at most, as in the program; microseconds.
const HOLD_MAX_US: f64 = 10_000.0;
/// The same, in times of the signature before.
const HOLD_SIGNATURES: f64 = 4.0;

/// A link's messages that are to be signed, whose policy is its own.
#[derive(Debug, Default)]
pub(super) struct Unsigned {
    waiting: VecDeque<Task>,
    /// Signatures that are being made.
    making: usize,
    /// The others that such a signature proves, by the message whose task asked for it.
    sharing: BTreeMap<usize, Vec<Task>>,
}

/// The signature of a batch, for those who verify it.
#[derive(Debug)]
pub(super) enum Root {
    /// It was not asked yet whether it is good.
    New,
    /// It is being verified: these share the answer.
    Asked(Vec<Task>),
    /// It is known to be good.
    Known,
}

impl Unsigned {
    /// Whether a signature is made of what waits: when none is being made, or where it could not prove more.
    fn is_ready(&self, most: usize) -> bool {
        let is_full = self.waiting.len() >= most;
        !self.waiting.is_empty() && (self.making == 0 || is_full && self.making < SIGNATURES_MAX)
    }

    /// Whether messages wait for no signature, and are fewer than one may prove.
    fn may_grow(&self, most: usize) -> bool {
        self.making == 0 && (1..most).contains(&self.waiting.len())
    }
}

impl Simulation<'_> {
    fn share_most(&self) -> usize {
        self.system.class.sign_batch as usize
    }

    /// A message waits to be signed, with others of its link.
    pub(super) fn wait_for_signature(&mut self, task: Task, stage: &mut Stage) {
        let (at, most) = (self.messages[task.message].link, self.share_most());
        let unsigned = &mut self.links[at].unsigned;
        unsigned.waiting.push_back(task);
        let count = unsigned.waiting.len();
        if count == 1 && unsigned.making == 0 || count == most {
            stage.due.push(at);
        }
    }

    /// A signature is made: its task, and the others that it proves, go on. `took_us` is the processor's time, 0 for a
    /// device.
    pub(super) fn signed(&mut self, task: Task, took_us: f64, stage: &mut Stage) {
        let at = self.messages[task.message].link;
        let others = self.links[at].unsigned.sharing.remove(&task.message).unwrap_or_default();
        self.signatures.made += 1;
        self.signatures.proved += others.len() as u64 + 1;
        if self.system.class.sign_batch > 1 {
            stage.made.push((at, (HOLD_SIGNATURES * took_us).min(HOLD_MAX_US)));
        }
        self.advance(task, stage);
        for other in others {
            self.advance(other, stage);
        }
    }

    /// What is signed now, after signatures that were made and messages that came; the rest is held or waits.
    pub(super) fn sign_what_is_due(&mut self, stage: &mut Stage) {
        let most = self.share_most();
        let mut due = std::mem::take(&mut stage.due);
        for (at, hold_us) in std::mem::take(&mut stage.made) {
            let unsigned = &mut self.links[at].unsigned;
            unsigned.making -= 1;
            if hold_us <= 0.0 || !unsigned.may_grow(most) {
                due.push(at);
            } else if !self.pool.held.iter().any(|(held, _)| *held == at) {
                // One that is there already is looked at sooner.
                self.pool.held.push_back((at, self.now + hold_us));
            }
        }
        for at in due {
            while self.links[at].unsigned.is_ready(most) {
                if stage.signatures >= SIGNATURES_MAX {
                    // Others have their turn first.
                    self.pool.held.retain(|(held, _)| *held != at);
                    self.pool.held.push_front((at, self.now));
                    break;
                }
                stage.signatures += 1;
                self.sign_next(at, most, stage);
            }
        }
        if !self.pool.held.is_empty() {
            self.wake_adapter();
        }
    }

    /// One signature for what waits on a link, as far as the policy lets it share one.
    fn sign_next(&mut self, at: usize, most: usize, stage: &mut Stage) {
        let link = &mut self.links[at];
        let count = link.unsigned.waiting.len().min(most);
        let mut tasks = link.unsigned.waiting.drain(..count);
        let Some(first) = tasks.next() else { return };
        let others: Vec<Task> = tasks.collect();
        link.unsigned.making += 1;
        if count > 1 {
            stage.trees += self.system.class.leaf * count as f64;
            link.roots.push(Root::New);
            for task in others.iter().chain([&first]) {
                self.messages[task.message].batch = link.roots.len();
            }
            link.unsigned.sharing.insert(first.message, others);
        }
        stage.jobs.push(Job { task: first, operation: Operation::Sign, load: 0.0, submitted: self.now });
    }

    fn root_of(&mut self, task: Task) -> Option<&mut Root> {
        let Message { link, batch, .. } = self.messages[task.message];
        self.links[link].roots.get_mut(batch.checked_sub(1)?)
    }

    /// Whether the signature that proves a message was verified before, for another message of its batch.
    pub(super) fn knows_root(&mut self, task: Task) -> bool {
        matches!(self.root_of(task), Some(Root::Known))
    }

    /// Whether it is being verified for another one: then this one waits for the same answer.
    pub(super) fn others_verify(&mut self, task: Task) -> bool {
        match self.root_of(task) {
            Some(Root::Asked(others)) => {
                others.push(task);
                true
            }
            Some(root @ Root::New) => {
                *root = Root::Asked(Vec::new());
                false
            }
            _ => false,
        }
    }

    /// A signature is verified: those that wait for the answer go on.
    pub(super) fn verified(&mut self, task: Task, stage: &mut Stage) {
        self.signatures.verified += 1;
        let Some(root) = self.root_of(task) else { return };
        if let Root::Asked(others) = std::mem::replace(root, Root::Known) {
            for other in others {
                self.advance(other, stage);
            }
        }
    }
}
