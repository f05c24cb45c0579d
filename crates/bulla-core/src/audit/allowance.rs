//! How many entries of one sort there may be, so that a flood of them neither fills the disk nor hides others.

use std::time::Instant;

/// How many entries there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// In one second.
    pub(super) in_a_second: u32,
    /// Without a pause.
    pub(super) in_a_row: u32,
    /// How many a second of those come back.
    pub(super) back_in_a_second: u32,
}

/// What is left of an allowance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    since: Instant,
    in_this_second: u32,
    pub(super) in_a_row: u32,
}

impl Left {
    pub(super) fn new(now: Instant, of: Allowance) -> Self {
        Self { since: now, in_this_second: of.in_a_second, in_a_row: of.in_a_row }
    }

    /// Whether there is something left now.
    pub(super) fn has_some(&mut self, now: Instant, of: Allowance) -> bool {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        if seconds > 0 {
            let back = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(of.back_in_a_second);
            self.in_a_row = self.in_a_row.saturating_add(back).min(of.in_a_row);
            (self.since, self.in_this_second) = (now, of.in_a_second);
        }
        self.in_this_second > 0 && self.in_a_row > 0
    }

    /// One entry is written. There was something left.
    pub(super) fn take(&mut self) {
        self.in_this_second -= 1;
        self.in_a_row -= 1;
    }
}
