//! What happens in a simulation, and what a run came to.

use super::checker::Counts;
use crate::clock::Clock;
use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

/// What happened, as one number.
pub(super) struct Events {
    digest: DefaultHasher,
    clock: Clock,
    /// Whether each is written on standard error.
    traced: bool,
    began: Instant,
}

impl Events {
    /// Nothing happened yet.
    pub(super) fn new(clock: &Clock) -> Self {
        let traced = std::env::var_os("BULLA_TRACE").is_some();
        Self { digest: DefaultHasher::new(), clock: clock.clone(), traced, began: clock.now() }
    }

    /// All that happened, which took so many steps of disks.
    pub(super) fn run(mut self, disk_steps: u64, counts: Counts) -> Run {
        self.digest.write_u64(disk_steps);
        Run { digest: self.digest.finish(), simulated: self.clock.since(self.began), counts }
    }

    /// Something happens.
    pub(super) fn tell(&mut self, what: &str) {
        let at = self.clock.since(self.began);
        if self.traced {
            eprintln!("{:>14.6} {what}", at.as_secs_f64());
        }
        self.digest.write_u64(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        self.digest.write(what.as_bytes());
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Of all events.
    pub(super) digest: u64,
    /// Time that went by there.
    pub(super) simulated: Duration,
    /// What was checked.
    pub(super) counts: Counts,
}
