//! Stores that have left, as long as dispatchers have links to them.

use bulla_queue::StoreNumber;

/// Stores that have left, and the dispatchers that have not ended their links yet.
#[derive(Debug, Default)]
pub struct LeftStores {
    generation: u64,
    /// With a bit for each of those dispatchers. Until none is left the number means the store that was there.
    left: Vec<(StoreNumber, u64)>,
}

impl LeftStores {
    /// Grows whenever one leaves.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Those to which some dispatcher may have links.
    pub fn all(&self) -> Vec<StoreNumber> {
        self.left.iter().map(|(number, _)| *number).collect()
    }

    /// Numbers that are not free yet: dispatchers among those in `live`, a bit each, still have links to the stores
    /// that had them.
    pub fn numbers(&self, live: u64) -> Vec<StoreNumber> {
        self.left.iter().filter(|(_, dispatchers)| dispatchers & live != 0).map(|(number, _)| *number).collect()
    }

    /// One has left to which dispatchers in `live`, a bit each, may have links.
    pub(crate) fn add(&mut self, number: StoreNumber, live: u64) {
        self.generation += 1;
        self.left.push((number, live));
    }

    /// A dispatcher has ended its links. Returns those to which no dispatcher has any now.
    pub(crate) fn ended_by(&mut self, dispatcher: usize) -> Vec<StoreNumber> {
        for (_, dispatchers) in &mut self.left {
            *dispatchers &= !(1 << dispatcher);
        }
        self.left.iter().filter(|(_, dispatchers)| *dispatchers == 0).map(|(number, _)| *number).collect()
    }

    /// No dispatcher has links to it.
    pub(crate) fn forget(&mut self, number: StoreNumber) {
        self.left.retain(|(left, _)| *left != number);
    }
}
