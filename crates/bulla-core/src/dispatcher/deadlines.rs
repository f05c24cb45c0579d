//! Connections whose front ends are told the time at a moment of their own, and not first at the tick behind it.

use crate::maps::HashMap;
use std::collections::BTreeSet;
use std::time::Instant;

/// Deadlines, one of each connection at most.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// The connections, by their places, in the order of their deadlines.
    in_order: BTreeSet<(Instant, usize)>,
    of: HashMap<usize, Instant>,
}

impl Deadlines {
    /// The connection at that place is told then. Its deadline before counts no more.
    pub fn set(&mut self, place: usize, at: Instant) {
        self.forget(place);
        self.in_order.insert((at, place));
        self.of.insert(place, at);
    }

    /// The connection at that place is told at ticks alone, or is gone.
    pub fn forget(&mut self, place: usize) {
        if self.of.is_empty() {
            return;
        }
        if let Some(at) = self.of.remove(&place) {
            self.in_order.remove(&(at, place));
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// Takes the place of a connection that is to be told by `now`.
    pub fn take_due(&mut self, now: Instant) -> Option<usize> {
        self.next().filter(|at| *at <= now)?;
        let (_, place) = self.in_order.pop_first()?;
        self.of.remove(&place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_connection_has_one_deadline_and_is_told_once() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        assert_eq!((deadlines.next(), deadlines.take_due(at(9))), (None, None));
        deadlines.set(7, at(1));
        deadlines.set(8, at(2));
        deadlines.set(7, at(3));
        deadlines.set(9, at(2));
        deadlines.forget(9);
        deadlines.forget(10);
        assert_eq!((deadlines.next(), deadlines.take_due(at(1))), (Some(at(2)), None), "a later one takes its place");
        assert_eq!((deadlines.take_due(at(2)), deadlines.take_due(at(2))), (Some(8), None));
        assert_eq!((deadlines.take_due(at(3)), deadlines.take_due(at(9))), (Some(7), None));
        assert_eq!(deadlines.next(), None);
        assert!(deadlines.of.is_empty() && deadlines.in_order.is_empty());
    }
}
