//! How far a profile can be trusted: each short run of the calibration is left out once, and predicted from the others.

use super::fit::Fit;
use super::observed::Observed;
use super::profile::Profile;
use crate::error::{Error, Result};
use crate::report::number::number;
use crate::run::statistics::Spread;
use serde::{Deserialize, Serialize};
use std::thread;

/// A run that is predicted from the others with a greater error than this is not explained by them.
const EXPLAINED: f64 = 0.15;
/// Repeats whose rates are further apart than this part of the middle one are worth a word.
const APART_MAX: f64 = 0.25;
/// By so much the speed of the cores may change from one run to the next without a word.
const SPEED_MAX: f64 = 0.10;
/// Cores that others use, or the hypervisor takes, without a word.
const BACKGROUND_MAX: f64 = 0.15;

/// What calibration found of its own profile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Trust {
    /// Short runs that costs were fitted to.
    pub runs: u32,
    /// The median of how far rates of those runs are off after the fit, and the greatest: 0.05 is five percent.
    pub fitted_median: f64,
    /// The greatest.
    pub fitted_worst: f64,
    /// The same of runs that were left out of the fit one by one.
    pub left_out_median: f64,
    /// The greatest.
    pub left_out_worst: f64,
    /// What was not steady during calibration; nothing where all was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Runs that the others do not explain, the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unexplained: Vec<Unexplained>,
}

/// A run that the others do not explain.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Unexplained {
    /// The run in words.
    pub run: String,
    /// Transactions a second that were measured.
    pub measured: f64,
    /// Transactions a second that the others let expect.
    pub predicted: f64,
}

impl Unexplained {
    /// Predicted beside measured: 0.05 is five percent too much.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

impl Trust {
    /// Leaves each run out once.
    ///
    /// # Errors
    /// What a prediction says against it; whatever `check` says.
    pub(super) fn of(
        profile: &Profile,
        fit: &Fit,
        observed: &[Observed],
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<Trust> {
        let residuals = |profile: &Profile| -> Result<Vec<f64>> {
            check()?;
            let found = observed.iter().map(|run| run.residuals(profile)).collect::<Result<Vec<_>>>()?;
            Ok(found.concat())
        };
        let mut ranges = Vec::with_capacity(observed.len());
        let mut begin = 0;
        for run in observed {
            ranges.push(begin..begin + run.residual_count());
            begin += run.residual_count();
        }
        let one = |at: usize| -> Result<[f64; 2]> {
            let without = fit.without(profile, &ranges[at], &residuals)?;
            Ok([observed[at].predicted(profile)?.rate, observed[at].predicted(&without)?.rate])
        };
        // Two at a time, as the fit has it.
        let half = observed.len() / 2;
        let found = thread::scope(|scope| {
            let other = scope.spawn(|| (half..observed.len()).map(one).collect::<Result<Vec<_>>>());
            let mut found = (0..half).map(one).collect::<Result<Vec<_>>>()?;
            let others = other.join().unwrap_or_else(|_| Err(Error::Usage("a prediction ended early".to_owned())));
            found.extend(others?);
            Ok::<_, Error>(found)
        })?;
        let errors = |which: usize| {
            let errors = observed.iter().zip(&found).map(|(run, rates)| (rates[which] / run.rate - 1.0).abs());
            Spread::of(errors).map_or((0.0, 0.0), |spread| (spread.median, spread.most))
        };
        let ((fitted_median, fitted_worst), (left_out_median, left_out_worst)) = (errors(0), errors(1));
        let named = observed.iter().zip(&found).map(|(run, [_, without])| Unexplained {
            run: run.name(),
            measured: run.rate,
            predicted: *without,
        });
        let mut unexplained: Vec<Unexplained> = named.filter(|run| run.error().abs() > EXPLAINED).collect();
        unexplained.sort_by(|a, b| b.error().abs().total_cmp(&a.error().abs()));
        let runs = u32::try_from(observed.len()).unwrap_or(u32::MAX);
        let warnings = warnings(observed);
        Ok(Trust { runs, fitted_median, fitted_worst, left_out_median, left_out_worst, warnings, unexplained })
    }

    /// In a line, for who reads a prediction.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!(
            "each of {} short runs is predicted from the others within {} % (median), {} % (worst)",
            self.runs,
            percent(self.left_out_median),
            percent(self.left_out_worst)
        );
        if !self.warnings.is_empty() {
            line.push_str("; the machine was not steady during calibration");
        }
        line
    }

    /// All of it, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.line()];
        lines.extend(self.unexplained.iter().map(|run| {
            format!(
                "not explained by the others: {}, {} a second, predicted {} ({:+.0} %)",
                run.run,
                number(run.measured),
                number(run.predicted),
                100.0 * run.error()
            )
        }));
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines
    }
}

fn percent(part: f64) -> String {
    format!("{:.1}", 100.0 * part)
}

/// What was not steady.
fn warnings(observed: &[Observed]) -> Vec<String> {
    let mut warnings = Vec::new();
    let repeats: usize = observed.iter().map(|run| run.even_rates.len()).sum();
    let unsteady: usize = observed.iter().map(|run| run.unsteady).sum();
    if unsteady > 0 {
        warnings.push(format!("{unsteady} of {repeats} short runs were not steady"));
    }
    for run in observed {
        let (Some(least), Some(most)) = (run.even_rates.first(), run.even_rates.last()) else { continue };
        let middle = run.even_rates[run.even_rates.len() / 2];
        if most - least > APART_MAX * middle {
            let apart = 100.0 * (most - least) / middle;
            warnings.push(format!("repeats of {} were {apart:.0} % apart", run.name()));
        }
    }
    let speeds = Spread::of(observed.iter().map(|run| run.pace.rsa_us).filter(|us| *us > 0.0));
    if let Some(speeds) = speeds.filter(|speeds| speeds.most > (1.0 + SPEED_MAX) * speeds.least) {
        let (least, most) = (speeds.least, speeds.most);
        warnings.push(format!(
            "the cores' speed changed from run to run: a reference signature took {least:.1} to {most:.1} µs"
        ));
    }
    let background = observed.iter().map(|run| run.background).fold(0.0, f64::max);
    if background > BACKGROUND_MAX {
        warnings.push(format!("others used, or the hypervisor took, up to {background:.2} cores"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::plan::fit::fit;
    use crate::plan::fit::tests::{MESSAGE, TURN};
    use crate::plan::predict::{SEED, Workload, predict_workload};
    use crate::plan::profile::{Cores, Pace};
    use crate::plan::trial::Trial;
    use crate::result::Sample;

    fn profile(message_us: f64, turn_us: f64) -> Profile {
        let mut profile = Profile::empty("here", "a test");
        profile.cores = Cores { count: 4, ..Cores::default() };
        (profile.costs.queue_manager.put.message_us, profile.costs.queue_manager.put.turn_us) = (message_us, turn_us);
        profile
    }

    /// What a run on that system would have come to.
    fn run(profile: &Profile, in_flight: u32, times: f64) -> Observed {
        let workload = if in_flight == 1 { Workload::RequestReply } else { Workload::Stream };
        let trial = Trial { workload, configuration: Configuration { in_flight, ..Configuration::default() } };
        let predicted = predict_workload(profile, &trial.configuration, workload, SEED).unwrap();
        let sample =
            Sample { rate: predicted.rate * times, transactions: 1000, cpu_us: predicted.cpu_us, ..Sample::default() };
        Observed::of(&trial, &[sample]).unwrap()
    }

    fn trust(observed: &[Observed]) -> Trust {
        let mut fitted = profile(1.0, 1.0);
        let residuals = |profile: &Profile| -> Result<Vec<f64>> {
            Ok(observed.iter().map(|run| run.residuals(profile)).collect::<Result<Vec<_>>>()?.concat())
        };
        let fit = fit(&mut fitted, &[MESSAGE, TURN], &residuals).unwrap();
        Trust::of(&fitted, &fit, observed, &|| Ok(())).unwrap()
    }

    #[test]
    fn runs_that_agree_explain_each_other_and_one_that_does_not_is_named() {
        let truth = profile(2.0, 6.0);
        let mut observed: Vec<Observed> = [1, 8, 32, 128, 512].map(|window| run(&truth, window, 1.0)).into();
        let agreed = trust(&observed);
        assert_eq!((agreed.runs, agreed.warnings.len(), agreed.unexplained.len()), (5, 0, 0), "{agreed:?}");
        assert!(agreed.left_out_worst < 0.05 && agreed.fitted_worst < 0.05, "{agreed:?}");
        observed.push(run(&truth, 64, 0.5));
        let found = trust(&observed);
        let worst = &found.unexplained[0];
        assert!(worst.run.starts_with("stream none 2 KB") && worst.error() > 0.8, "{found:?}");
        assert!(found.left_out_worst > 0.8, "{found:?}");
        let lines = found.lines();
        assert!(lines[0].starts_with("each of 6 short runs is predicted from the others within"), "{lines:?}");
        assert!(lines[1].starts_with("not explained by the others: stream none 2 KB"), "{lines:?}");
    }

    #[test]
    fn what_was_not_steady_is_said() {
        let truth = profile(2.0, 6.0);
        let (mut calm, mut other) = (run(&truth, 8, 1.0), run(&truth, 32, 1.0));
        assert!(warnings(&[calm.clone(), other.clone()]).is_empty());
        (calm.pace, other.pace) = (Pace { rsa_us: 100.0, curve_us: 0.0 }, Pace { rsa_us: 120.0, curve_us: 0.0 });
        (calm.even_rates, calm.unsteady, other.background) = (vec![80.0, 100.0, 110.0], 2, 0.4);
        let said = warnings(&[calm, other]).join("\n");
        for part in
            ["2 of 4 short runs were not steady", "were 30 % apart", "took 100.0 to 120.0 µs", "up to 0.40 cores"]
        {
            assert!(said.contains(part), "{said}");
        }
        let trust = Trust { runs: 2, warnings: vec![said], ..Trust::default() };
        assert!(trust.line().ends_with("the machine was not steady during calibration"), "{}", trust.line());
    }
}
