//! Deliveries that went with their link before they were settled.

/// Ranges of ids kept; of more, the older half becomes one.
const RANGES_MAX: usize = 256;

/// Ids of a session's deliveries that went with their link. A receiver may still name them, for want of knowing. With
/// very many ranges, old ids between them count as lost, too; none that is lost is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// First and last id, each range of one link.
    ranges: Vec<(u32, u32)>,
}

impl Lost {
    /// Adds an id; of one link they come in order.
    pub(crate) fn insert(&mut self, id: u32) {
        match self.ranges.last_mut() {
            Some((_, last)) if last.wrapping_add(1) == id => *last = id,
            _ => self.ranges.push((id, id)),
        }
        if self.ranges.len() > RANGES_MAX {
            self.merge(id);
        }
    }

    /// Whether one of the ids from `first` to `last` is lost.
    pub(crate) fn has_of(&self, first: u32, last: u32) -> bool {
        self.ranges.iter().any(|(from, to)| {
            first.wrapping_sub(*from) <= to.wrapping_sub(*from) || from.wrapping_sub(first) <= last.wrapping_sub(first)
        })
    }

    /// Makes one range of the older half, and forgets what is half of all numbers behind `id`, the newest.
    fn merge(&mut self, id: u32) {
        let age = |of: u32| id.wrapping_sub(of);
        self.ranges.retain(|(from, _)| age(*from) <= i32::MAX as u32);
        self.ranges.sort_unstable_by_key(|(from, _)| std::cmp::Reverse(age(*from)));
        let older: Vec<(u32, u32)> = self.ranges.drain(..self.ranges.len() / 2).collect();
        let from = older.first().map(|(from, _)| *from);
        let to = older.iter().map(|(_, to)| *to).min_by_key(|to| age(*to));
        self.ranges.extend(from.zip(to));
        self.ranges.rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_lost_as_a_range_that_it_is_in() {
        let mut lost = Lost::default();
        assert!(!lost.has_of(0, u32::MAX));
        for id in [u32::MAX, 0, 1, 7] {
            lost.insert(id);
        }
        assert_eq!(lost.ranges, [(u32::MAX, 1), (7, 7)]);
        for (first, last) in [(0, 0), (u32::MAX, u32::MAX), (1, 6), (u32::MAX - 9, u32::MAX), (2, 7), (7, 9)] {
            assert!(lost.has_of(first, last), "{first} to {last}");
        }
        for (first, last) in [(2, 6), (8, u32::MAX - 1), (3, 3)] {
            assert!(!lost.has_of(first, last), "{first} to {last}");
        }
    }

    #[test]
    fn of_very_many_none_is_forgotten_and_the_memory_is_bounded() {
        for start in [0, u32::MAX - 5_000] {
            let mut lost = Lost::default();
            let ids = || (0..10_000_u32).filter(|n| n % 3 == 0).map(|n| start.wrapping_add(n));
            ids().for_each(|id| lost.insert(id));
            assert!(lost.ranges.len() <= RANGES_MAX);
            assert!(ids().all(|id| lost.has_of(id, id)));
            // The newer half is exact still.
            assert!(!lost.has_of(start.wrapping_add(9_994), start.wrapping_add(9_995)));
            assert!(!lost.has_of(start.wrapping_sub(3), start.wrapping_sub(1)));
            assert!(!lost.has_of(start.wrapping_add(10_001), start.wrapping_add(10_010)));
        }
    }
}
