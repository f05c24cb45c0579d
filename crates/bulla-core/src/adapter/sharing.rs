//! How many messages that may share signatures an adapter takes up in one turn, beside tasks of other kinds.

use super::{MaySign, New, Work};
use bulla_seal::Policy;
use std::sync::Arc;

/// Messages that may share a signature, which an adapter takes in one go beside its other tasks: each takes a few
/// microseconds until it waits to be signed, and the more wait, the fewer signatures there are.
const SHARING_PER_TURN: usize = 256;

/// What was taken up in this turn. The first message of each signature counts as a task like any other, so that a user
/// whose messages share little, or nothing, takes no more of a turn than one whose messages are signed alone.
#[derive(Default)]
pub(super) struct Sharing {
    kinds: Vec<Kind>,
    /// Messages that a signature proves which is counted already.
    beside: usize,
}

/// Messages of one user under one policy.
struct Kind {
    user: u64,
    policy: Arc<Policy>,
    count: usize,
}

impl Sharing {
    /// Notes a task that is taken up.
    pub(super) fn note(&mut self, new: &New) {
        let Work::Seal(_, MaySign::Together(policy)) = &new.work else { return };
        let user = new.who.number();
        let Some(kind) = self.kinds.iter_mut().find(|kind| kind.user == user && Arc::ptr_eq(&kind.policy, policy))
        else {
            self.kinds.push(Kind { user, policy: policy.clone(), count: 1 });
            return;
        };
        let is_first = kind.count.is_multiple_of(policy.sign_batch as usize);
        kind.count += 1;
        if !is_first && self.beside < SHARING_PER_TURN {
            self.beside += 1;
        }
    }

    /// Tasks of this turn that take nothing of what it may do.
    pub(super) fn beside(&self) -> usize {
        self.beside
    }
}
