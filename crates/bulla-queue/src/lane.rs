//! One lane of a queue: messages of one priority in the order of their puts, each at its own place until it is removed.
//!
//! A ring of sixteen bytes a message. What is locked or not yet synced stays where it is and is passed over once:
//! `scan` only moves forward, and what becomes free behind it waits in `returned`. So neither a thousand locked
//! messages at the front nor a thousand releases make the next lock slower.

use std::collections::{BTreeSet, VecDeque};

/// An index into the store's table of messages.
pub(crate) type Slot = u32;

/// Left where a message was removed, until it reaches the front or the lane is compacted.
const GONE: Slot = Slot::MAX;
/// A lane shorter than this is not compacted.
const COMPACT_ITEMS_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Item {
    id: u64,
    slot: Slot,
    free: bool,
}

/// Where a message stands in its lane: counts all that came before it, in 32 bits that wrap.
pub(crate) type Index = u32;

#[derive(Debug, Default)]
pub(crate) struct Lane {
    items: VecDeque<Item>,
    /// The index of the first item.
    base: u64,
    /// Nothing before this index is free, except what `returned` holds.
    scan: u64,
    /// Free items before `scan`, by id.
    returned: BTreeSet<(u64, Slot)>,
    free: u32,
    live: u32,
}

impl Lane {
    /// Messages that can be locked now.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Appends a message and returns its index.
    pub(crate) fn push(&mut self, id: u64, slot: Slot, free: bool) -> Index {
        let index = self.base + self.items.len() as u64;
        self.items.push_back(Item { id, slot, free });
        self.live += 1;
        self.free += u32::from(free);
        index as Index
    }

    fn offset(&self, index: Index) -> usize {
        index.wrapping_sub(self.base as Index) as usize
    }

    /// Offset of the first item behind the message `after`.
    fn behind(&self, after: u64) -> usize {
        self.items.partition_point(|item| item.id <= after)
    }

    /// The first free message, or the first one behind `after`. Amortised constant; with `after` one binary search and
    /// a walk over what is not free behind it.
    pub(crate) fn first_free(&mut self, after: Option<u64>) -> Option<Slot> {
        if self.free == 0 {
            return None;
        }
        if let Some(after) = after {
            return self.free_behind(after);
        }
        if let Some(&(_, slot)) = self.returned.first() {
            return Some(slot);
        }
        let from = (self.scan - self.base) as usize;
        let passed = self.items.range(from..).position(|item| item.free)?;
        self.scan += passed as u64;
        Some(self.items[from + passed].slot)
    }

    /// The first free message behind `after`, for a cursor.
    pub(crate) fn free_behind(&self, after: u64) -> Option<Slot> {
        if self.free == 0 {
            return None;
        }
        if let Some(&(_, slot)) = self.returned.range((after + 1, 0)..).next() {
            return Some(slot);
        }
        let from = self.behind(after).max((self.scan - self.base) as usize);
        self.items.range(from..).find(|item| item.free).map(|item| item.slot)
    }

    /// Takes a free message out of reach of others; it keeps its place.
    pub(crate) fn lock(&mut self, index: Index) {
        let offset = self.offset(index);
        let at = self.base + offset as u64;
        let item = &mut self.items[offset];
        if std::mem::replace(&mut item.free, false) {
            self.free -= 1;
            let key = (item.id, item.slot);
            if at < self.scan {
                self.returned.remove(&key);
            } else if at == self.scan {
                self.scan += 1;
            }
        }
    }

    /// Makes a message free, at its own place.
    pub(crate) fn unlock(&mut self, index: Index) {
        let offset = self.offset(index);
        let at = self.base + offset as u64;
        let item = &mut self.items[offset];
        if !std::mem::replace(&mut item.free, true) {
            self.free += 1;
            let key = (item.id, item.slot);
            if at < self.scan {
                self.returned.insert(key);
            }
        }
    }

    /// Removes a message. Returns whether the lane has become sparse: then the caller calls `compact`.
    pub(crate) fn remove(&mut self, index: Index) -> bool {
        self.lock(index);
        let offset = self.offset(index);
        self.items[offset].slot = GONE;
        self.live -= 1;
        while self.items.front().is_some_and(|item| item.slot == GONE) {
            self.items.pop_front();
            self.base += 1;
        }
        self.scan = self.scan.max(self.base);
        self.items.len() > COMPACT_ITEMS_MIN && self.items.len() / 2 > self.live as usize
    }

    /// Closes the gaps; `moved` hears of each message's new index. Costs one step a message, at most once in as many
    /// removals.
    pub(crate) fn compact(&mut self, mut moved: impl FnMut(Slot, Index)) {
        let before_scan = (self.scan - self.base) as usize;
        let gone = self.items.range(..before_scan).filter(|item| item.slot == GONE).count();
        self.scan -= gone as u64;
        self.items.retain(|item| item.slot != GONE);
        for (offset, item) in self.items.iter().enumerate() {
            moved(item.slot, (self.base + offset as u64) as Index);
        }
        if self.items.capacity() / 4 > self.items.len() {
            self.items.shrink_to(self.items.len() * 2);
        }
    }

    /// The messages in order, from behind `after` on.
    pub(crate) fn slots(&self, after: Option<u64>) -> impl Iterator<Item = (Slot, bool)> + '_ {
        let from = after.map_or(0, |after| self.behind(after));
        self.items.range(from..).filter(|item| item.slot != GONE).map(|item| (item.slot, item.free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(lane: &mut Lane, after: Option<u64>) -> Option<Slot> {
        let slot = lane.first_free(after)?;
        lane.lock(slot);
        Some(slot)
    }

    fn lane(messages: u32) -> Lane {
        let mut lane = Lane::default();
        for slot in 0..messages {
            assert_eq!(lane.push(u64::from(slot), slot, true), slot);
        }
        lane
    }

    #[test]
    fn a_released_message_comes_back_before_those_behind_it() {
        let mut lane = lane(5);
        assert_eq!([lock(&mut lane, None), lock(&mut lane, None), lock(&mut lane, None)], [Some(0), Some(1), Some(2)]);
        lane.unlock(1);
        lane.unlock(0);
        assert_eq!([lock(&mut lane, None), lock(&mut lane, None), lock(&mut lane, None)], [Some(0), Some(1), Some(3)]);
    }

    #[test]
    fn a_cursor_finds_what_lies_behind_what_it_skips() {
        let mut lane = lane(5);
        assert_eq!(lock(&mut lane, Some(2)), Some(3));
        assert_eq!(lock(&mut lane, None), Some(0));
        assert_eq!(lock(&mut lane, Some(2)), Some(4));
        assert_eq!(lock(&mut lane, Some(2)), None);
        assert_eq!(lock(&mut lane, None), Some(1));
    }

    #[test]
    fn a_message_that_stays_does_not_hold_the_places_of_those_that_went() {
        let mut lane = Lane::default();
        let mut index = vec![0; 10_001];
        index[0] = lane.push(0, 0, true);
        for slot in 1..=10_000 {
            index[slot as usize] = lane.push(u64::from(slot), slot, true);
            let found = lane.first_free(Some(0));
            assert_eq!(found, Some(slot));
            if lane.remove(index[slot as usize]) {
                lane.compact(|slot, at| index[slot as usize] = at);
            }
        }
        assert!(lane.items.len() <= COMPACT_ITEMS_MIN + 1, "{} items", lane.items.len());
        assert_eq!(lane.first_free(None), Some(0));
    }
}
