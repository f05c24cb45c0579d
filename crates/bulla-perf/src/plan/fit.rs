//! Finds costs of a profile with which predictions come out as what was measured.
//!
//! Levenberg–Marquardt (Marquardt, *An Algorithm for Least-Squares Estimation of Nonlinear Parameters*, 1963) on the
//! logarithms of costs, so that none becomes negative, with differences of predictions as derivatives. Costs that
//! hardly show in what was measured stay near where they began: each is held there by a weak spring.

use super::profile::Profile;
use crate::error::{Error, Result};
use std::ops::Range;
use std::thread;

/// A cost to be found: its name, and its place in a profile.
#[derive(Clone, Copy)]
pub(crate) struct Unknown {
    pub(crate) name: &'static str,
    pub(crate) get: fn(&Profile) -> f64,
    pub(crate) set: fn(&mut Profile, f64),
}

impl std::fmt::Debug for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Steps of the search at most.
const STEPS_MAX: u32 = 6;
/// The search ends when a step makes the sum of squares smaller by less than this part.
const GAIN_MIN: f64 = 0.01;
/// By this much a logarithm is moved to see what comes of it.
const DIFFERENCE: f64 = 0.15;
/// No logarithm moves further in one step: a factor of 2.7.
const MOVE_MAX: f64 = 1.0;
/// A cost that is e times what it began with weighs as much as a prediction that is wrong by this part.
const SPRING: f64 = 0.02;
/// Steps of the search for what the others ask for, when a run is left out; one that finds nothing is followed by a
/// shorter one.
const STEPS_WITHOUT: u32 = 5;
/// Damping at first, and between which it stays.
const DAMPING: (f64, f64, f64) = (0.01, 1e-6, 1e6);

/// A search that has come to its end.
#[derive(Debug)]
pub(crate) struct Fit {
    unknowns: Vec<Unknown>,
    /// Logarithms of the unknowns where it began, and where it ended.
    begin: Vec<f64>,
    place: Vec<f64>,
    /// At the end: residuals, with those of the springs after them, and how they change with each unknown.
    here: Vec<f64>,
    columns: Vec<Vec<f64>>,
}

/// Residuals of a profile: logarithms of predicted ÷ measured, with their weights.
type Residuals<'a> = dyn Fn(&Profile) -> Result<Vec<f64>> + Sync + 'a;

/// Changes `profile` so that the residuals become small; each unknown must be above 0 to begin with.
///
/// # Errors
/// Whatever `residuals` says; [`Error::Usage`]: an unknown begins at 0.
pub(crate) fn fit(profile: &mut Profile, unknowns: &[Unknown], residuals: &Residuals<'_>) -> Result<Fit> {
    if let Some(zero) = unknowns.iter().find(|unknown| (unknown.get)(profile) <= 0.0) {
        return Err(Error::Usage(format!("{} begins at 0, which has no logarithm", zero.name)));
    }
    let begin: Vec<f64> = unknowns.iter().map(|unknown| (unknown.get)(profile).ln()).collect();
    let all = |place: &[f64]| Ok(with_springs(residuals(&at(profile, unknowns, place))?, place, &begin));
    let mut place = begin.clone();
    let mut here = all(&place)?;
    let mut damping = DAMPING.0;
    for _ in 0..STEPS_MAX {
        let columns = derivatives(&place, &here, &all)?;
        let before = square(&here);
        let mut moved = false;
        while damping < DAMPING.2 {
            let next = stepped(&place, &solve(&columns, &here, damping));
            let there = all(&next)?;
            if square(&there) < before {
                (place, here, moved) = (next, there, true);
                damping = (damping / 5.0).max(DAMPING.1);
                break;
            }
            damping *= 8.0;
        }
        if !moved || before - square(&here) < GAIN_MIN * before {
            break;
        }
    }
    let columns = derivatives(&place, &here, &all)?;
    *profile = at(profile, unknowns, &place);
    Ok(Fit { unknowns: unknowns.to_vec(), begin, place, here, columns })
}

impl Fit {
    /// The profile that the others ask for while those residuals are left out: a few steps from the end of the search,
    /// with the derivatives that it had there.
    ///
    /// # Errors
    /// Whatever `residuals` says.
    pub(crate) fn without(
        &self,
        profile: &Profile,
        left_out: &Range<usize>,
        residuals: &Residuals<'_>,
    ) -> Result<Profile> {
        let rest = |values: &[f64]| [&values[..left_out.start], &values[left_out.end..]].concat();
        let columns: Vec<Vec<f64>> = self.columns.iter().map(|column| rest(column)).collect();
        let (mut place, mut here) = (self.place.clone(), rest(&self.here));
        let mut damping = DAMPING.0;
        for _ in 0..STEPS_WITHOUT {
            let next = stepped(&place, &solve(&columns, &here, damping));
            let found = residuals(&at(profile, &self.unknowns, &next))?;
            let there = rest(&with_springs(found, &next, &self.begin));
            if square(&there) < square(&here) {
                (place, here) = (next, there);
            } else {
                damping *= 8.0;
            }
        }
        Ok(at(profile, &self.unknowns, &place))
    }
}

/// The profile with the unknowns there.
fn at(profile: &Profile, unknowns: &[Unknown], place: &[f64]) -> Profile {
    let mut moved = profile.clone();
    unknowns.iter().zip(place).for_each(|(unknown, ln)| (unknown.set)(&mut moved, ln.exp()));
    moved
}

fn with_springs(mut found: Vec<f64>, place: &[f64], begin: &[f64]) -> Vec<f64> {
    found.extend(place.iter().zip(begin).map(|(now, begin)| SPRING * (now - begin)));
    found
}

fn stepped(place: &[f64], step: &[f64]) -> Vec<f64> {
    place.iter().zip(step).map(|(at, step)| at + step.clamp(-MOVE_MAX, MOVE_MAX)).collect()
}

/// One column an unknown: how the residuals change with its logarithm. Two at a time: there are two cores at least.
fn derivatives(
    place: &[f64],
    here: &[f64],
    all: &(dyn Fn(&[f64]) -> Result<Vec<f64>> + Sync),
) -> Result<Vec<Vec<f64>>> {
    let column = |at: usize| -> Result<Vec<f64>> {
        let mut moved = place.to_vec();
        moved[at] += DIFFERENCE;
        let there = all(&moved)?;
        Ok(there.iter().zip(here).map(|(there, here)| (there - here) / DIFFERENCE).collect())
    };
    let half = place.len() / 2;
    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(|| (half..place.len()).map(column).collect::<Result<Vec<_>>>());
        let first = (0..half).map(column).collect::<Result<Vec<_>>>();
        (first, other.join().unwrap_or_else(|_| Err(Error::Usage("a prediction ended early".to_owned()))))
    });
    let mut columns = first?;
    columns.extend(second?);
    Ok(columns)
}

/// The step that the damped normal equations ask for.
fn solve(columns: &[Vec<f64>], here: &[f64], damping: f64) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let size = columns.len();
    let mut rows: Vec<Vec<f64>> = columns
        .iter()
        .enumerate()
        .map(|(at, one)| {
            let mut row: Vec<f64> = columns.iter().map(|other| dot(one, other)).collect();
            row[at] += damping * row[at].max(f64::MIN_POSITIVE);
            row.push(-dot(one, here));
            row
        })
        .collect();
    // Gauss, with the largest pivot; the diagonal is never 0, because each unknown has its spring.
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs())).unwrap_or(at);
        rows.swap(at, pivot);
        let top = rows[at].clone();
        for row in &mut rows[at + 1..] {
            let factor = row[at] / top[at];
            row.iter_mut().zip(&top).for_each(|(value, top)| *value -= factor * top);
        }
    }
    let mut step = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|next| rows[at][next] * step[next]).sum();
        step[at] = (rows[at][size] - known) / rows[at][at];
    }
    step
}

fn square(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What each message costs a put, in µs.
    pub(in crate::plan) const MESSAGE: Unknown = Unknown {
        name: "message",
        get: |profile| profile.costs.queue_manager.put.message_us,
        set: |profile, value| profile.costs.queue_manager.put.message_us = value,
    };
    /// What each turn costs a put, in µs.
    pub(in crate::plan) const TURN: Unknown = Unknown {
        name: "turn",
        get: |profile| profile.costs.queue_manager.put.turn_us,
        set: |profile, value| profile.costs.queue_manager.put.turn_us = value,
    };
    const SYNC: Unknown = Unknown {
        name: "sync",
        get: |profile| profile.journal.sync_us,
        set: |profile, value| profile.journal.sync_us = value,
    };

    fn start() -> Profile {
        let mut profile = Profile::empty("here", "a test");
        profile.costs.queue_manager.put.message_us = 1.0;
        profile.costs.queue_manager.put.turn_us = 1.0;
        profile.journal.sync_us = 60.0;
        profile
    }

    /// What a message costs where a turn has so many.
    fn cost(profile: &Profile, messages: f64) -> f64 {
        profile.costs.queue_manager.put.message_us + profile.costs.queue_manager.put.turn_us / messages
    }

    #[test]
    fn costs_are_found_from_what_they_come_to_and_the_others_stay() {
        let measured = [(1.0, 9.0), (8.0, 2.0), (64.0, 1.125)];
        let residuals = |profile: &Profile| Ok(measured.iter().map(|(n, us)| (cost(profile, *n) / us).ln()).collect());
        let mut profile = start();
        let fit = fit(&mut profile, &[MESSAGE, TURN, SYNC], &residuals).unwrap();
        assert!(residuals(&profile).unwrap().iter().all(|residual| residual.abs() < 0.02), "{profile:?}");
        assert!((cost(&profile, 1.0) / 9.0 - 1.0).abs() < 0.02, "{profile:?}");
        assert!((profile.costs.queue_manager.put.turn_us / 8.0 - 1.0).abs() < 0.05, "{profile:?}");
        assert!((profile.journal.sync_us - 60.0).abs() < 1e-9, "{profile:?}");
        // Two of the three lie on a line with the third.
        let without = fit.without(&profile, &(1..2), &residuals).unwrap();
        assert!((cost(&without, 8.0) / 2.0 - 1.0).abs() < 0.05, "{without:?}");
    }

    #[test]
    fn what_is_left_out_does_not_pull() {
        // The one in the middle is four times what the others say.
        let measured = [(1.0, 9.0), (8.0, 8.0), (64.0, 1.125), (32.0, 1.25), (2.0, 5.0), (4.0, 3.0)];
        let residuals = |profile: &Profile| Ok(measured.iter().map(|(n, us)| (cost(profile, *n) / us).ln()).collect());
        let mut profile = start();
        let fit = fit(&mut profile, &[MESSAGE, TURN], &residuals).unwrap();
        assert!(cost(&profile, 8.0) > 2.2, "{profile:?}");
        let without = fit.without(&profile, &(1..2), &residuals).unwrap();
        assert!((cost(&without, 8.0) / 2.0 - 1.0).abs() < 0.1, "{without:?}");
    }

    #[test]
    fn a_cost_of_nothing_is_refused() {
        let mut profile = start();
        profile.journal.sync_us = 0.0;
        let error = fit(&mut profile, &[SYNC], &|_| Ok(vec![1.0])).unwrap_err().to_string();
        assert!(error.starts_with("sync begins at 0"), "{error}");
    }

    #[test]
    fn what_a_prediction_says_against_it_ends_the_search() {
        let error = fit(&mut start(), &[SYNC], &|_| Err(Error::Usage("no such key".into()))).unwrap_err();
        assert_eq!(error.to_string(), "no such key");
    }
}
