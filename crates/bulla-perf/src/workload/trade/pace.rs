//! When a customer begins its next transaction.

use crate::configuration::Configuration;
use fastrand::Rng;
use std::time::{Duration, Instant};

/// A customer that waits looks so often whether the load ends.
pub(super) const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// The pace of each customer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// The next one after each answer.
    Closed,
    /// So long after one another on average, at random as customers come who know nothing of each other.
    Apart(Duration),
}

impl Pace {
    /// The pace of one of a configuration's customers: they share its rate.
    pub(super) fn of(configuration: &Configuration) -> Pace {
        match configuration.target_rate {
            0 => Pace::Closed,
            rate => Pace::Apart(Duration::from_secs_f64(f64::from(configuration.in_flight) / rate as f64)),
        }
    }

    /// When the transaction is due that follows one that was due then. `now` is the time.
    pub(super) fn next(self, due: Instant, now: Instant, random: &mut Rng) -> Instant {
        match self {
            Pace::Closed => now,
            // Times between arrivals that are independent of each other are distributed exponentially.
            Pace::Apart(mean) => due + mean.mul_f64(-(1.0 - random.f64()).ln()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers_share_the_rate_and_come_at_random() {
        let configuration = Configuration { in_flight: 16, target_rate: 400, ..Configuration::default() };
        let pace = Pace::of(&configuration);
        assert_eq!(pace, Pace::Apart(Duration::from_millis(40)));
        let (begun, mut random) = (Instant::now(), Rng::with_seed(1));
        let end = (0..10_000).fold(begun, |due, _| pace.next(due, begun, &mut random));
        let mean = (end - begun).as_secs_f64() / 10_000.0;
        assert!((0.038..0.042).contains(&mean), "{mean}");
    }

    #[test]
    fn without_a_rate_the_next_one_follows_the_answer() {
        assert_eq!(Pace::of(&Configuration::default()), Pace::Closed);
        let (due, now) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        assert_eq!(Pace::Closed.next(due, now, &mut Rng::with_seed(1)), now);
    }
}
