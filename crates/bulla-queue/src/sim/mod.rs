//! Simulated storage: a disk that counts steps, stops at one, and forgets what was not synced in every way a disk can;
//! and a log that answers late, twice, never, or that it is deposed.

mod disk;
mod log;

pub use disk::{Fate, Fault, SimDisk, SimFile};
pub use log::{Manner, SimEngine, SimLog};
