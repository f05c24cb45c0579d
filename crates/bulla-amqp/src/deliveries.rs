//! Unsettled deliveries of a session, by delivery id.

use std::collections::VecDeque;

/// Deliveries in the order of their ids, which are serial numbers (RFC 1982). A settled one leaves a gap; gaps at the
/// front go at once, others when they outnumber the rest. So adding, finding and removing cost a step in the usual
/// order and a binary search otherwise, and the memory follows the number of unsettled deliveries, whatever ranges a
/// peer names.
#[derive(Debug)]
pub(crate) struct Deliveries<T> {
    entries: VecDeque<(u32, Option<T>)>,
    live: usize,
}

/// Gaps kept before any clean-up.
const GAPS_MIN: usize = 64;

impl<T> Deliveries<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: VecDeque::new(), live: 0 }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The oldest id.
    pub(crate) fn first(&self) -> Option<u32> {
        self.entries.front().map(|(id, _)| *id)
    }

    /// Adds a delivery. Most come in the order of their ids. Deliveries of several frames that links of one session
    /// send in turns may end in another order: such a one goes to its place.
    pub(crate) fn insert(&mut self, id: u32, delivery: T) {
        let is_before = |other: u32| id.wrapping_sub(other).cast_signed() < 0;
        match self.entries.back() {
            Some((last, _)) if is_before(*last) => {
                let index = self.entries.partition_point(|(other, _)| !is_before(*other));
                self.entries.insert(index, (id, Some(delivery)));
            }
            _ => self.entries.push_back((id, Some(delivery))),
        }
        self.live += 1;
    }

    /// Where `id` is or would be, given its distance from the first one.
    #[inline]
    fn lower_bound(&self, base: u32, offset: u32) -> usize {
        if let Some((id, _)) = self.entries.get(offset as usize)
            && id.wrapping_sub(base) == offset
        {
            return offset as usize;
        }
        self.entries.partition_point(|(id, _)| id.wrapping_sub(base) < offset)
    }

    #[inline]
    fn index(&self, id: u32) -> Option<usize> {
        let base = self.first()?;
        let index = self.lower_bound(base, id.wrapping_sub(base));
        (self.entries.get(index)?.0 == id).then_some(index)
    }

    /// Shows `visit` a delivery; it says whether to remove it. None where there is none.
    #[inline]
    pub(crate) fn visit_one<R>(&mut self, id: u32, visit: impl FnOnce(&mut T) -> (bool, R)) -> Option<R> {
        let index = self.index(id)?;
        let delivery = &mut self.entries.get_mut(index)?.1;
        let (is_removed, result) = visit(delivery.as_mut()?);
        if is_removed {
            *delivery = None;
            self.live -= 1;
            self.tidy();
        }
        Some(result)
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let index = self.index(id)?;
        let delivery = self.entries.get_mut(index)?.1.take()?;
        self.live -= 1;
        self.tidy();
        Some(delivery)
    }

    /// Shows `visit` each delivery from `first` to `last`, both included; it says which to remove.
    /// Returns how many were shown. The range is of serial numbers, so that 0 to 2^32 - 1 is all.
    pub(crate) fn visit(&mut self, first: u32, last: u32, mut visit: impl FnMut(u32, &mut T) -> bool) -> usize {
        let Some(base) = self.first() else { return 0 };
        let span = last.wrapping_sub(first);
        let start = first.wrapping_sub(base);
        // Relative to the oldest id, the range is one interval, or two when it begins before that id.
        let visited = match start.checked_add(span) {
            Some(end) => self.visit_interval(base, start, end, &mut visit),
            None => {
                let end = start.wrapping_add(span);
                self.visit_interval(base, 0, end.min(start - 1), &mut visit)
                    + self.visit_interval(base, start, u32::MAX, &mut visit)
            }
        };
        self.tidy();
        visited
    }

    fn visit_interval(
        &mut self,
        base: u32,
        start: u32,
        end: u32,
        visit: &mut impl FnMut(u32, &mut T) -> bool,
    ) -> usize {
        let mut index = self.lower_bound(base, start);
        let mut visited = 0;
        while let Some((id, delivery)) = self.entries.get_mut(index) {
            if id.wrapping_sub(base) > end {
                break;
            }
            visited += 1;
            if let Some(live) = delivery
                && visit(*id, live)
            {
                *delivery = None;
                self.live -= 1;
            }
            index += 1;
        }
        visited
    }

    /// Removes all that `gone` names. Costs a look at each delivery.
    pub(crate) fn remove_where(&mut self, mut gone: impl FnMut(u32, &T) -> bool) {
        self.entries.retain(|(id, delivery)| delivery.as_ref().is_some_and(|delivery| !gone(*id, delivery)));
        self.live = self.entries.len();
    }

    /// The id of the first delivery that `wanted` names. Costs a look at each delivery before it.
    pub(crate) fn find(&self, mut wanted: impl FnMut(&T) -> bool) -> Option<u32> {
        self.entries.iter().find(|(_, delivery)| delivery.as_ref().is_some_and(&mut wanted)).map(|(id, _)| *id)
    }

    #[inline]
    fn tidy(&mut self) {
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
        }
        let gaps = self.entries.len() - self.live;
        if gaps > self.live + GAPS_MIN {
            self.entries.retain(|(_, delivery)| delivery.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn all(deliveries: &mut Deliveries<u32>, first: u32, last: u32) -> Vec<u32> {
        let mut seen = Vec::new();
        deliveries.visit(first, last, |id, _| {
            seen.push(id);
            false
        });
        seen
    }

    #[test]
    fn ids_may_wrap_around() {
        let mut deliveries = Deliveries::new();
        for id in [u32::MAX - 1, u32::MAX, 0, 1] {
            deliveries.insert(id, id);
        }
        assert_eq!(all(&mut deliveries, u32::MAX, 0), [u32::MAX, 0]);
        assert_eq!(all(&mut deliveries, 0, u32::MAX), [u32::MAX - 1, u32::MAX, 0, 1]);
        assert_eq!(all(&mut deliveries, 5, 9), []);
        assert_eq!(all(&mut deliveries, u32::MAX - 9, u32::MAX - 1), [u32::MAX - 1]);
        assert_eq!(deliveries.remove(0), Some(0));
        assert_eq!(deliveries.remove(0), None);
        assert_eq!(all(&mut deliveries, u32::MAX, 1), [u32::MAX, 1]);
    }

    #[test]
    fn one_old_delivery_does_not_keep_the_gaps_behind_it() {
        let mut deliveries = Deliveries::new();
        deliveries.insert(0, 0);
        for id in 1..100_000 {
            deliveries.insert(id, id);
            assert!(deliveries.remove(id).is_some());
        }
        assert!(deliveries.entries.len() <= 2 * GAPS_MIN, "{}", deliveries.entries.len());
        assert_eq!(deliveries.len(), 1);
    }

    proptest! {
        #[test]
        fn it_is_a_map(start: u32, steps in proptest::collection::vec((0u8..5, any::<u16>(), any::<u16>()), 1..400)) {
            let mut deliveries = Deliveries::new();
            let mut model = BTreeMap::new(); // by distance from `start`
            let mut next = 0u32;
            let mut late = Vec::new(); // ids that come after later ones
            for (action, a, b) in steps {
                let (a, b) = (u32::from(a) % (next + 2), u32::from(b) % (next + 2));
                match action {
                    0 | 1 => {
                        next += 1 + u32::from(action);
                        late.extend((action == 1).then_some(next - 1));
                        deliveries.insert(start.wrapping_add(next), next);
                        model.insert(next, next);
                    }
                    4 => {
                        if !late.is_empty() {
                            let id = late.swap_remove(a as usize % late.len());
                            deliveries.insert(start.wrapping_add(id), id);
                            model.insert(id, id);
                        }
                    }
                    2 => prop_assert_eq!(deliveries.remove(start.wrapping_add(a)), model.remove(&a)),
                    _ => {
                        let mut seen = Vec::new();
                        let (first, last) = (a.min(b), a.max(b));
                        deliveries.visit(start.wrapping_add(first), start.wrapping_add(last), |_, n| {
                            seen.push(*n);
                            *n % 3 == 0
                        });
                        let want: Vec<u32> = model.range(first..=last).map(|(_, n)| *n).collect();
                        prop_assert_eq!(seen, want);
                        model.retain(|n, _| !(first..=last).contains(n) || n % 3 != 0);
                    }
                }
                prop_assert_eq!(deliveries.len(), model.len());
            }
        }
    }
}
