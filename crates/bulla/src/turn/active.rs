//! The connections that a turn looks at, in the order in which it reads them.

use super::connection::Connection;
use slab::Slab;

/// The connections that a turn looks at: each once, by its key, in the order in which it is read.
#[derive(Default)]
pub(super) struct Active {
    keys: Vec<usize>,
    /// Connections that were not read in this turn, because their users have had their share.
    passed_over: Vec<usize>,
}

impl Active {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.keys.iter().copied()
    }

    /// The key of the connection at a place below `len`.
    pub(super) fn at(&self, place: usize) -> usize {
        self.keys[place]
    }

    /// Keeps the connections of which `goes_on` is true.
    pub(super) fn retain(&mut self, mut goes_on: impl FnMut(usize) -> bool) {
        self.keys.retain(|&key| goes_on(key));
    }

    /// The next turn begins with the connection at `place`; the ones before it come last.
    pub(super) fn continue_from(&mut self, place: usize) {
        self.keys.rotate_left(place);
    }

    /// Notes that a connection is not read in this turn. Called in the order of the connections.
    pub(super) fn pass_over(&mut self, key: usize) {
        self.passed_over.push(key);
    }

    /// The connections that were passed over in this turn come first in the next one.
    pub(super) fn passed_over_first(&mut self) {
        if self.passed_over.is_empty() {
            return;
        }
        let mut at = 0;
        self.keys.retain(|key| {
            // Both have the same order.
            let is_next = self.passed_over.get(at) == Some(key);
            at += usize::from(is_next);
            !is_next
        });
        self.keys.splice(0..0, self.passed_over.drain(..));
    }
}

/// Puts a connection on the list of those to look at.
pub(super) fn list(peers: &mut Slab<Connection>, active: &mut Active, key: usize) {
    if let Some(peer) = peers.get_mut(key) {
        if !peer.turns.active {
            active.keys.push(key);
        }
        (peer.turns.listed, peer.turns.active) = (true, true);
    }
}

#[cfg(test)]
mod tests {
    use super::Active;

    /// Connections that are listed, with the ones that were passed over noted.
    fn active(keys: &[usize], passed_over: &[usize]) -> Active {
        let mut active = Active { keys: keys.to_vec(), ..Active::default() };
        passed_over.iter().for_each(|&key| active.pass_over(key));
        active
    }

    #[test]
    fn connections_that_were_passed_over_are_read_first_in_the_next_turn() {
        for (passed_over, then) in [
            (&[][..], [4, 1, 7, 3]),
            (&[4], [4, 1, 7, 3]),
            (&[3], [3, 4, 1, 7]),
            (&[1, 3], [1, 3, 4, 7]),
            (&[4, 1, 7, 3], [4, 1, 7, 3]),
        ] {
            let mut active = active(&[4, 1, 7, 3], passed_over);
            active.passed_over_first();
            assert_eq!(active.keys, then, "{passed_over:?}");
            active.passed_over_first();
            assert_eq!(active.keys, then, "they were passed over once: {passed_over:?}");
        }
    }

    #[test]
    fn the_next_turn_begins_where_this_one_stopped() {
        let mut active = active(&[4, 1, 7, 3], &[]);
        active.continue_from(2);
        assert_eq!(active.keys, [7, 3, 4, 1]);
    }
}
