//! Memory of the messages that are with the adapters: how much there may be of all users, and what of it stays free for
//! those who hold little.

use crate::maps::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of messages that may be with the adapters at once, payload and sealed form together; a
/// message beyond it is refused with 2071.
pub const SEALING_BYTES_MAX: usize = 512 << 20;
/// Bytes beyond that for users who hold little, so that no user keeps the others out.
const FOR_FEW_BYTES: usize = 128 << 20;
/// Who holds no more bytes than this holds little.
const FEW_BYTES_MAX: usize = 8 << 20;
/// Bytes that a message takes beside its own: its task, and its place in a line.
const BESIDE_BYTES: usize = 2 << 10;

/// What is held, by the number with which its user asks for devices.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Holders>);

#[derive(Debug, Default)]
struct Holders {
    total: usize,
    each: HashMap<u64, usize>,
}

/// Memory that a message holds against `SEALING_BYTES_MAX`, from its arrival until it is put or sent; and until the
/// adapters are done with it, where they keep its bytes: its link may end before.
#[derive(Clone, Debug)]
pub struct Held(#[expect(dead_code, reason = "kept to be counted")] Arc<Holding>);

#[derive(Debug)]
struct Holding {
    memory: Arc<Memory>,
    asker: u64,
    bytes: usize,
}

/// A message that finds no memory to be sealed in: `held` of `limit` bytes are taken.
#[derive(Debug, PartialEq, Eq)]
pub struct SealingMemoryFull {
    pub(crate) held: usize,
    pub(crate) limit: usize,
}

impl Memory {
    /// Takes memory for a message of that asker. A lone one passes whatever its size.
    pub(super) fn hold(self: &Arc<Self>, asker: u64, bytes: usize) -> Result<Held, SealingMemoryFull> {
        let bytes = bytes.saturating_add(BESIDE_BYTES);
        let mut holders = self.lock();
        let own = holders.each.get(&asker).copied().unwrap_or(0);
        let limit = if own <= FEW_BYTES_MAX { SEALING_BYTES_MAX + FOR_FEW_BYTES } else { SEALING_BYTES_MAX };
        let held = holders.total;
        if held > 0 && held.saturating_add(bytes) > limit {
            return Err(SealingMemoryFull { held, limit });
        }
        holders.total = held.saturating_add(bytes);
        *holders.each.entry(asker).or_default() += bytes;
        Ok(Held(Arc::new(Holding { memory: self.clone(), asker, bytes })))
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut holders = self.memory.lock();
        holders.total = holders.total.saturating_sub(self.bytes);
        let Some(own) = holders.each.get_mut(&self.asker) else { return };
        *own = own.saturating_sub(self.bytes);
        if *own == 0 {
            holders.each.remove(&self.asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// All that an asker is given, in messages of so many bytes.
    fn flood(memory: &Arc<Memory>, asker: u64, bytes: usize) -> Vec<Held> {
        std::iter::from_fn(|| memory.hold(asker, bytes).ok()).collect()
    }

    #[test]
    fn who_holds_all_that_it_may_keeps_no_other_out() {
        let memory = Arc::<Memory>::default();
        let large = flood(&memory, 1, MIB);
        assert!(large.len() * MIB > SEALING_BYTES_MAX - 2 * MIB);
        let full = memory.hold(1, MIB).unwrap_err();
        assert_eq!((full.held, full.limit), (memory.lock().total, SEALING_BYTES_MAX));
        // Another one's messages are let in, also a large one, until it holds much itself.
        drop(memory.hold(2, 100 * MIB).unwrap());
        let others: Vec<_> = (2..10).map(|asker| flood(&memory, asker, MIB)).collect();
        assert!(others.iter().all(|held| held.len() * MIB >= FEW_BYTES_MAX), "each of them has its part");
        assert!(memory.lock().total <= SEALING_BYTES_MAX + FOR_FEW_BYTES);
        drop(large);
        drop(others);
        let holders = memory.lock();
        assert!(holders.total == 0 && holders.each.is_empty());
    }

    #[test]
    fn short_messages_count_for_more_than_their_bytes() {
        let memory = Arc::<Memory>::default();
        assert!(flood(&memory, 1, 1).len() <= SEALING_BYTES_MAX / BESIDE_BYTES);
    }

    #[test]
    fn a_lone_message_passes_whatever_its_size() {
        let memory = Arc::<Memory>::default();
        let lone = memory.hold(1, 2 * SEALING_BYTES_MAX).unwrap();
        assert!(memory.hold(1, 1).is_err() && memory.hold(2, 1).is_err());
        drop(lone);
        assert!(memory.hold(2, 1).is_ok());
    }
}
