//! Short and long averages, as CHSTATUS shows them.

use crate::catalog::status::TwoAverages;

/// What one more sample weighs in the short average.
const SHORT_WEIGHT: f64 = 1.0 / 8.0;
/// What one more sample weighs in the long average.
const LONG_WEIGHT: f64 = 1.0 / 256.0;

/// Two exponential averages of one quantity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Averages {
    short: f64,
    long: f64,
    samples: u64,
}

impl Averages {
    /// Takes a sample. The first ones count evenly, so that a young average does not start from nothing.
    pub fn note(&mut self, sample: f64) {
        self.samples += 1;
        let even = 1.0 / self.samples as f64;
        self.short += (sample - self.short) * SHORT_WEIGHT.max(even);
        self.long += (sample - self.long) * LONG_WEIGHT.max(even);
    }

    /// How many samples it took.
    #[cfg(any(test, feature = "simulation"))]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// As whole numbers.
    pub fn shown(&self) -> TwoAverages {
        TwoAverages { short: self.short.round() as u64, long: self.long.round() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_average_follows_sooner() {
        let mut averages = Averages::default();
        (0..1_000).for_each(|_| averages.note(100.0));
        assert_eq!(averages.shown(), TwoAverages { short: 100, long: 100 });
        (0..16).for_each(|_| averages.note(200.0));
        let shown = averages.shown();
        assert!(shown.short > 180 && shown.long < 110, "{shown:?}");
    }
}
