//! Whether a sample is one of a steady state, and if not, why.

use crate::result::Moment;

/// The backlog grew when its mean in the last quarter is beyond that of the second one by this share of a second's
/// transactions.
pub const BACKLOG_GROWTH_SHARE: f64 = 0.05;
/// …and by so many messages at least: a queue of a handful is none that grows.
pub const BACKLOG_GROWTH_MIN: f64 = 64.0;
/// Cores that the hypervisor may take for other guests.
pub const STOLEN_CORES_MAX: f64 = 0.05;
/// Cores that other processes may use.
pub const ELSEWHERE_CORES_MAX: f64 = 0.15;
/// The rates of the two halves may differ by this share of their mean.
pub const RATE_DRIFT_SHARE: f64 = 0.10;
/// …and by more transactions than this, and by more than two lumps where they are counted in lumps: few of them come
/// unevenly in the steadiest state.
pub const RATE_DRIFT_MIN: f64 = 8.0;
/// Of a rate that was asked for, so much must have been reached.
pub const HELD_SHARE: f64 = 0.995;

/// What disturbed a sample whose transactions are counted so many at once, a line for each.
#[must_use]
pub fn unsteady(course: &[Moment], lump: u64, elsewhere: f64, stolen: f64) -> Vec<String> {
    let mut found = Vec::new();
    if let Some((from, to)) = backlog(course) {
        found.push(format!("the backlog grew from {from:.0} to {to:.0} messages"));
    }
    if let Some(percent) = drift(course, lump) {
        found.push(format!("the rate changed by {percent:+.0} % from the first half to the second"));
    }
    if elsewhere > ELSEWHERE_CORES_MAX {
        found.push(format!("others used {elsewhere:.2} cores"));
    }
    if stolen > STOLEN_CORES_MAX {
        found.push(format!("the hypervisor took {stolen:.2} cores"));
    }
    found
}

/// Mean depth in the second and in the last quarter, where that grew.
#[must_use]
pub fn backlog(course: &[Moment]) -> Option<(f64, f64)> {
    let depths: Vec<f64> = course.iter().filter_map(|moment| moment.depth).collect();
    let quarter = depths.len() / 4;
    let (second, last) = match quarter {
        0 => (*depths.first()?, *depths.last()?),
        quarter => (mean(depths.get(quarter..2 * quarter)?), mean(depths.get(depths.len() - quarter..)?)),
    };
    let rate = mean(&course.iter().map(|moment| moment.rate).collect::<Vec<_>>());
    (last - second > (BACKLOG_GROWTH_SHARE * rate).max(BACKLOG_GROWTH_MIN)).then_some((second, last))
}

/// By how many percent the rate of the second half differs from that of the first, where that is too much. The halves
/// of fewer than four moments say nothing.
fn drift(course: &[Moment], lump: u64) -> Option<f64> {
    let rates: Vec<f64> = course.iter().map(|moment| moment.rate).collect();
    if rates.len() < 4 {
        return None;
    }
    let (first, second) = rates.split_at(rates.len() / 2);
    let (first, second) = (mean(first), mean(second));
    let share = (second - first) / ((first + second) / 2.0);
    let half = course.last().map_or(0.0, |last| last.at / 2.0);
    let uneven = RATE_DRIFT_MIN.max(if lump > 1 { 2.0 * lump as f64 } else { 0.0 });
    let drifts = share.abs() > RATE_DRIFT_SHARE && (second - first).abs() * half > uneven;
    drifts.then(|| 100.0 * (second / first - 1.0))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(rates: &[f64], depths: &[f64]) -> Vec<Moment> {
        let moment = |(at, rate): (usize, &f64)| Moment {
            at: at as f64 + 1.0,
            rate: *rate,
            depth: depths.get(at).copied(),
            ..Moment::default()
        };
        rates.iter().enumerate().map(moment).collect()
    }

    #[test]
    fn each_disturbance_is_named_and_a_quiet_course_is_not() {
        let flat = [1000.0; 8];
        assert!(unsteady(&course(&flat, &[500.0; 8]), 1, 0.15, 0.05).is_empty());
        assert!(unsteady(&course(&flat, &[]), 1, 0.0, 0.0).is_empty());
        let grows = [0.0, 10.0, 60.0, 90.0, 120.0, 150.0, 180.0, 210.0];
        assert_eq!(unsteady(&course(&flat, &grows), 1, 0.0, 0.0), ["the backlog grew from 75 to 195 messages"]);
        let slows = [1000.0, 1000.0, 1000.0, 1000.0, 800.0, 800.0, 800.0, 800.0];
        assert_eq!(
            unsteady(&course(&slows, &[]), 1, 0.0, 0.0),
            ["the rate changed by -20 % from the first half to the second"]
        );
        assert_eq!(unsteady(&course(&flat, &[]), 1, 0.4, 0.0), ["others used 0.40 cores"]);
        assert_eq!(unsteady(&course(&flat, &[]), 1, 0.0, 0.06), ["the hypervisor took 0.06 cores"]);
        assert!(unsteady(&[], 1, 0.0, 0.0).is_empty());
    }

    #[test]
    fn few_transactions_that_come_unevenly_are_no_drift() {
        let rates = [8.0, 8.0, 8.0, 8.0, 6.0, 6.0, 6.0, 6.0];
        assert!(unsteady(&course(&rates, &[]), 1, 0.0, 0.0).is_empty());
        let lumps = [100.0, 100.0, 100.0, 100.0, 75.0, 75.0, 75.0, 75.0];
        assert!(unsteady(&course(&lumps, &[]), 50, 0.0, 0.0).is_empty());
        assert_eq!(unsteady(&course(&lumps, &[]), 1, 0.0, 0.0).len(), 1);
    }

    #[test]
    fn a_backlog_of_a_handful_or_one_that_shrinks_does_not_grow() {
        assert_eq!(backlog(&course(&[100.0; 4], &[0.0, 1.0, 2.0, 9.0])), None);
        assert_eq!(backlog(&course(&[1000.0; 4], &[900.0, 600.0, 300.0, 0.0])), None);
        // Beyond 64 messages, but not beyond a twentieth of what passes in a second.
        assert_eq!(backlog(&course(&[10_000.0; 4], &[0.0, 0.0, 100.0, 200.0])), None);
    }
}
