//! What is told of refusals: a line of the log and an event each, and no more than a few in a second.

use crate::events::Event;
use crate::reason::{self, Refusal};
use bulla_queue::PutError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines in one second; further refusals are counted.
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// How much was written lately.
#[derive(Debug, Default)]
pub struct Refusals {
    window: Option<Instant>,
    lines: u32,
    left_out: u64,
    raised: Vec<Event>,
}

impl Refusals {
    /// Whether a line may be written now; otherwise it is counted.
    pub fn may_write(&mut self, now: Instant) -> bool {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (self.window, self.lines) = (Some(now), 0);
        }
        self.lines += 1;
        let writes = self.lines <= LINES_MAX;
        self.left_out += u64::from(!writes);
        writes
    }

    /// An event for a refusal that a line was written for.
    pub fn raise(&mut self, event: Event) {
        self.raised.push(event);
    }

    /// What is to be raised.
    pub fn take_raised(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.raised)
    }

    /// How many were counted and not written, once the second is over that they came in.
    pub fn take_left_out(&mut self, now: Instant) -> Option<u64> {
        let over = self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW);
        (over && self.left_out > 0).then(|| std::mem::take(&mut self.left_out))
    }
}

/// Lines that peers give rise to beside refusals by authority: what they reject, how they hang up. No more than a few
/// in a second, and not at the cost of the lines on refusals.
#[derive(Debug, Default)]
pub struct PeerLines(Mutex<Refusals>);

impl PeerLines {
    /// Whether a line may be written now; otherwise it is counted.
    pub fn may_write(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).may_write(now)
    }

    /// How many were counted and not written, once the second is over that they came in.
    pub fn take_left_out(&self, now: Instant) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take_left_out(now)
    }
}

/// The sub-reason of a unit of work that would span two stores.
const STORES: &str = "stores";

/// 2355: what happens in one unit of work lies in two stores.
pub fn stores_mixed(detail: String) -> Refusal {
    Refusal { cause: Some(STORES), ..Refusal::new(reason::UOW_MIX_NOT_SUPPORTED, detail) }
}

/// A store's refusal in reason codes.
pub fn store_refusal(error: &PutError) -> Refusal {
    let cause = match error {
        PutError::UserShare { .. } => Some("user-share"),
        PutError::OtherStore => Some(STORES),
        _ => None,
    };
    Refusal { cause, ..Refusal::new(reason::of(error.reason_code()), error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_a_few_lines_and_a_number() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        assert_eq!((0..1000).filter(|_| refusals.may_write(start)).count(), 20);
        assert_eq!(refusals.take_left_out(start), None, "the second goes on");
        let later = start + WINDOW;
        assert_eq!(refusals.take_left_out(later), Some(980));
        assert!(refusals.may_write(later) && refusals.take_left_out(later + WINDOW).is_none());
    }
}
