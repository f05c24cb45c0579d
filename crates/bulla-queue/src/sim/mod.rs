//! Simulated storage: a disk that counts steps, stops at one, and forgets what was not synced in every way a disk can.

mod disk;

pub use disk::{Fate, Fault, SimDisk, SimFile};
