//! Cores that running threads share equally.

use super::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All cores. A thread that runs progresses at the same pace as every other, so one clock of work done serves them all:
/// who has so much work left is done when that clock stands so much later.
#[derive(Debug)]
pub(in crate::plan) struct Cores {
    capacity: f64,
    crowding: f64,
    /// Work that each running thread has been given since the beginning, microseconds.
    clock: f64,
    /// When the clock was set.
    at: f64,
    /// When each running thread is done, by the clock.
    ends: BinaryHeap<Reverse<(Time, u64, usize)>>,
    order: u64,
    /// Cores × microseconds that were busy.
    pub(in crate::plan) busy: f64,
}

impl Cores {
    pub(in crate::plan) fn new(capacity: f64, crowding: f64) -> Self {
        Self { capacity, crowding, clock: 0.0, at: 0.0, ends: BinaryHeap::new(), order: 0, busy: 0.0 }
    }

    /// Whether a thread that wakes up finds a core that sleeps.
    pub(in crate::plan) fn has_idle(&self) -> bool {
        (self.ends.len() as f64) < self.capacity
    }

    /// Work done for each running thread in a microsecond.
    fn pace(&self) -> f64 {
        let running = self.ends.len() as f64;
        let busy = running.min(self.capacity);
        let crowded = if self.capacity > 1.0 { ((busy - 1.0) / (self.capacity - 1.0)).max(0.0) } else { 0.0 };
        busy / running / (1.0 + self.crowding * crowded)
    }

    pub(in crate::plan) fn advance(&mut self, now: f64) {
        if !self.ends.is_empty() {
            self.clock += (now - self.at) * self.pace();
            self.busy += (now - self.at) * (self.ends.len() as f64).min(self.capacity);
        }
        self.at = now;
    }

    /// A thread runs until it has done so many microseconds of work.
    pub(in crate::plan) fn start(&mut self, now: f64, thread: usize, work: f64) {
        self.advance(now);
        self.order += 1;
        self.ends.push(Reverse((Time(self.clock + work), self.order, thread)));
    }

    /// When the next thread is done, if nothing changes until then.
    pub(in crate::plan) fn next(&self) -> Option<f64> {
        let Reverse((end, ..)) = self.ends.peek()?;
        Some(self.at + (end.0 - self.clock).max(0.0) / self.pace())
    }

    /// The thread that is done now.
    pub(in crate::plan) fn finish(&mut self, now: f64) -> Option<usize> {
        self.advance(now);
        self.ends.pop().map(|Reverse((.., thread))| thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_threads_share_two_cores() {
        let mut cores = Cores::new(2.0, 0.0);
        cores.start(0.0, 0, 20.0);
        cores.start(0.0, 1, 20.0);
        assert!(!cores.has_idle());
        cores.start(0.0, 2, 10.0);
        // Each gets two thirds of a core: ten take fifteen.
        assert_eq!(cores.next(), Some(15.0));
        assert_eq!(cores.finish(15.0), Some(2));
        assert_eq!(cores.next(), Some(25.0));
        assert_eq!((cores.finish(25.0), cores.finish(25.0)), (Some(0), Some(1)));
        assert_eq!(cores.busy, 50.0);
        assert_eq!(cores.next(), None);
    }

    #[test]
    fn a_crowd_slows_everybody_down() {
        let mut cores = Cores::new(2.0, 0.5);
        cores.start(0.0, 0, 10.0);
        assert_eq!(cores.next(), Some(10.0));
        cores.start(0.0, 1, 10.0);
        assert!((cores.next().unwrap() - 15.0).abs() < 1e-9);
    }
}
