//! Stores that have left, as long as dispatchers have links to them.

use bulla_queue::StoreNumber;

/// Stores that have left, and the dispatchers that have not ended their links yet.
#[derive(Debug, Default)]
pub struct LeftStores {
    generation: u64,
    left: Vec<Left>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    /// Until no dispatcher is left it means the store that was there.
    number: StoreNumber,
    /// A bit for each of those dispatchers.
    dispatchers: u64,
    /// Connections with links to it end, and not these links alone.
    ends_connections: bool,
}

impl LeftStores {
    /// Grows whenever one leaves.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Those to which some dispatcher may have links, and whether these links' connections end with them.
    pub fn all(&self) -> Vec<(StoreNumber, bool)> {
        self.left.iter().map(|left| (left.number, left.ends_connections)).collect()
    }

    /// Numbers that are not free yet: dispatchers among those in `live`, a bit each, still have links to the stores
    /// that had them.
    pub fn numbers(&self, live: u64) -> Vec<StoreNumber> {
        self.left.iter().filter(|left| left.dispatchers & live != 0).map(|left| left.number).collect()
    }

    /// One has left to which dispatchers in `live`, a bit each, may have links.
    pub(crate) fn add(&mut self, number: StoreNumber, live: u64, ends_connections: bool) {
        self.generation += 1;
        self.left.push(Left { number, dispatchers: live, ends_connections });
    }

    /// A dispatcher has ended its links. Returns those to which no dispatcher has any now.
    pub(crate) fn ended_by(&mut self, dispatcher: usize) -> Vec<StoreNumber> {
        for left in &mut self.left {
            left.dispatchers &= !(1 << dispatcher);
        }
        self.left.iter().filter(|left| left.dispatchers == 0).map(|left| left.number).collect()
    }

    /// No dispatcher has links to it.
    pub(crate) fn forget(&mut self, number: StoreNumber) {
        self.left.retain(|left| left.number != number);
    }
}
