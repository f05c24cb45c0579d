//! Simulated storage: a disk that counts steps, stops at one, and forgets what was not synced in every way a disk can;
//! and a log that answers late, twice, never, or that it is deposed.

mod disk;
mod log;

pub use disk::{Fate, Fault, SimDisk, SimFile};
pub use log::{Manner, SimEngine, SimLog};

/// xorshift64*: repeatable, and random enough for a test. A state of 0 would stay there, so callers set a bit.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}
