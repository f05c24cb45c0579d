//! The queues' lock, as one request holds it.

use crate::manager::State;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

/// The queues' lock, which is let go while something takes long that has nothing to do with queues.
pub(super) struct Hold<'a>(pub(super) Option<MutexGuard<'a, State>>);

pub(super) const HELD: &str = "only apart lets go, and takes it again before it returns";

impl Deref for Hold<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect(HELD)
    }
}

impl DerefMut for Hold<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect(HELD)
    }
}
