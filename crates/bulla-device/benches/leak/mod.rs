//! How two sets of times are told apart: for every benchmark that asks whether a time tells a secret.
//!
//! Welch's t-test, over all times and with the slowest cut off at several percentiles, as dudect does: interruptions
//! hide small differences. Where the greatest |t| stays below [`T_MAX`] two sets can't be told apart by it.
//!
//! The test takes it for granted that samples are independent. So what is measured has to be drawn anew for each
//! sample, or the two sets have to be made of the same things: a set that uses a few things again and again has their
//! own mean, and given enough samples that alone tells it from another set.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each benchmark uses its part of this")]

use bulla_device::{Random, SystemRandom};

/// The customary limit of leakage tests: |t| above it is no accident.
pub const T_MAX: f64 = 4.5;
/// How much of the times is kept, the quickest first.
pub const PERCENTILES: [f64; 6] = [1.0, 0.99, 0.95, 0.9, 0.75, 0.5];

/// The greatest |t| of two sets over [`PERCENTILES`] of both.
pub fn greatest_t(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let at = |percentile: f64| all[((all.len() - 1) as f64 * percentile) as usize];
    PERCENTILES.into_iter().map(|percentile| welch(a, b, at(percentile))).fold(0.0, f64::max)
}

/// Welch's t of the times up to the limit.
fn welch(a: &[f64], b: &[f64], limit: f64) -> f64 {
    let moments = |times: &[f64]| {
        let kept: Vec<f64> = times.iter().copied().filter(|time| *time <= limit).collect();
        let count = kept.len().max(2) as f64;
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let ((mean_a, error_a), (mean_b, error_b)) = (moments(a), moments(b));
    // How many fall below the limit tells kinds apart as well, where one of them has none there at all.
    if error_a + error_b == 0.0 { 0.0 } else { (mean_a - mean_b).abs() / (error_a + error_b).sqrt() }
}

pub fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Whether the outcome is the expected one, and what to print.
pub fn verdict(t: f64, alike: bool) -> (bool, &'static str) {
    match (t >= T_MAX, alike) {
        (false, true) => (true, "can't be told apart"),
        (true, false) => (true, "told apart, as it must be"),
        (true, true) => (false, "TOLD APART"),
        (false, false) => (false, "NOT TOLD APART: the measurement is blind"),
    }
}

/// So many samples of each kind, in random order: which kind, and which of its samples.
pub fn shuffled(samples: &[usize]) -> Vec<(usize, usize)> {
    let of = |(kind, count): (usize, &usize)| (0..*count).map(move |sample| (kind, sample));
    let mut turns: Vec<(usize, usize)> = samples.iter().enumerate().flat_map(of).collect();
    let mut draws = vec![[0; 8]; turns.len()];
    SystemRandom.fill(draws.as_flattened_mut()).unwrap();
    for (last, draw) in draws.into_iter().enumerate().rev() {
        turns.swap(last, (u64::from_ne_bytes(draw) % (last as u64 + 1)) as usize);
    }
    turns
}
