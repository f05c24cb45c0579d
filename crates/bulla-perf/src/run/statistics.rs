//! Median and spread, latencies, and the clock of results.

use crate::result::Latency;
use bulla_device::Histogram;
use jiff::Timestamp;
use jiff::tz::Offset;
use std::time::SystemTime;

/// Least, middle and greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The greatest.
    pub most: f64,
}

impl Spread {
    /// Of values that are numbers; none where there is none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let lower = if values.len().is_multiple_of(2) { values.get(middle - 1).copied()? } else { upper };
        Some(Spread { least: *values.first()?, median: f64::midpoint(lower, upper), most: *values.last()? })
    }
}

/// The numbers of a histogram; none where it is empty.
#[must_use]
pub fn latency(histogram: &Histogram) -> Option<Latency> {
    let us = |q: f64| histogram.quantile(q) as f64 / 1e3;
    (histogram.count() > 0).then(|| Latency {
        mean: histogram.mean() / 1e3,
        p50: us(0.5),
        p90: us(0.9),
        p99: us(0.99),
        p999: us(0.999),
        max: histogram.max() as f64 / 1e3,
    })
}

/// A time as results write it, UTC: `2026-11-22 08:00:00`.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    let at = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    Offset::UTC.to_datetime(at).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(Spread { least: 1.0, median: 2.0, most: 3.0 }));
        assert_eq!(spread(&[4.0, 1.0]), Some(Spread { least: 1.0, median: 2.5, most: 4.0 }));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn quantiles_are_microseconds() {
        let mut histogram = Histogram::new();
        (0..99).for_each(|_| histogram.record(10_000));
        histogram.record(2_000_000);
        let latency = latency(&histogram).unwrap();
        assert!((latency.p50 - 10.0).abs() < 0.7 && latency.max == 2000.0 && latency.mean == 29.9, "{latency:?}");
    }

    #[test]
    fn a_day_is_found_in_every_sort_of_year() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(1_795_330_731), "2026-11-22 06:58:51");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00");
    }
}
