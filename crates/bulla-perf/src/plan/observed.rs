//! What short runs of the calibration came to, and how far predictions of them are off.

use super::pace;
use super::predict::{Prediction, SEED, Workload, predict_workload};
use super::profile::{Operation, Operations, Pace, Profile, Times};
use super::trial::Trial;
use crate::configuration::Configuration;
use crate::error::Result;
use crate::result::Sample;
use crate::run::options::describe;
use std::collections::BTreeMap;

/// Weight of a rate beside that of a role's processor time, when costs are fitted.
const RATE_WEIGHT: f64 = 4.0;
/// So many jobs say what one takes.
const JOBS_MIN: u64 = 400;
/// Of the cores, others are taken to use this part at most.
const BACKGROUND_MAX: f64 = 0.75;
/// A role that takes less than this part of a transaction's processor time is not fitted to.
const SHARE_MIN: f64 = 0.03;

/// Roles that the fit looks at, each a sum of a sample's.
const FITTED: [(&str, &[&str]); 5] = [
    ("application", &["application"]),
    ("queue-manager", &["queue-manager"]),
    ("protection", &["protection"]),
    ("devices", &["devices"]),
    ("journal", &["journal"]),
];

/// What a short run came to: of its repeats, the middle one.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) workload: Workload,
    pub(super) configuration: Configuration,
    pub(super) rate: f64,
    /// Cores that others used meanwhile, or the hypervisor took.
    pub(super) background: f64,
    /// How fast the cores were meanwhile.
    pub(super) pace: Pace,
    /// What operations took on the processor, and on the lanes of an accelerator whose lanes were full, microseconds.
    pub(super) on_processor: Vec<(Operation, f64)>,
    pub(super) on_lanes: Vec<(Operation, f64)>,
    /// Processor time of a transaction, microseconds, in the order of [`FITTED`]; 0 for what is not looked at.
    roles: [f64; FITTED.len()],
    /// Rates of all repeats, as they would be if the cores had always been equally fast.
    pub(super) even_rates: Vec<f64>,
    /// How many repeats were not steady.
    pub(super) unsteady: usize,
}

impl Observed {
    /// Of all repeats of a run; none where nothing arrived.
    pub(super) fn of(trial: &Trial, samples: &[Sample]) -> Option<Observed> {
        let paces: Vec<Pace> = samples.iter().map(pace::of).collect();
        let middle_us = pace::middle(&paces).rsa_us;
        let even = |sample: &Sample| {
            let factor = if middle_us > 0.0 { pace::of(sample).rsa_us / middle_us } else { 1.0 };
            sample.rate * factor
        };
        let mut sorted: Vec<&Sample> = samples.iter().collect();
        sorted.sort_by(|a, b| even(a).total_cmp(&even(b)));
        let sample = sorted.get(sorted.len() / 2)?;
        let all: f64 = sample.cpu_us.values().sum();
        let roles = FITTED.map(|(_, of)| match sum(&sample.cpu_us, of) {
            us if us < SHARE_MIN * all => 0.0,
            us => us,
        });
        (sample.transactions > 0).then(|| Observed {
            workload: trial.workload,
            configuration: trial.configuration.clone(),
            rate: sample.rate,
            background: sample.cores_elsewhere + sample.cores_stolen,
            pace: pace::of(sample),
            on_processor: operations_of(trial, sample, "CPU"),
            on_lanes: operations_of(trial, sample, "ACCELERATOR"),
            roles,
            even_rates: sorted.iter().map(|sample| even(sample)).collect(),
            unsteady: samples.iter().filter(|sample| !sample.unsteady.is_empty()).count(),
        })
    }

    /// In words: `stream none 64 KB`.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.workload.as_str(), describe(&self.configuration)).trim_end().to_owned()
    }

    /// What it would do on that system, with the cores that were there, as fast as they were.
    pub(super) fn predicted(&self, profile: &Profile) -> Result<Prediction> {
        let mut disturbed = profile.at_pace(self.pace);
        disturbed.cores.background = self.background.min(f64::from(profile.cores.count) * BACKGROUND_MAX);
        predict_workload(&disturbed, &self.configuration, self.workload, SEED)
    }

    /// How many [`residuals`](Self::residuals) it has.
    pub(super) fn residual_count(&self) -> usize {
        1 + self.roles.iter().filter(|measured| **measured > 0.0).count()
    }

    /// Logarithms of predicted ÷ measured: the rate, and each role.
    pub(super) fn residuals(&self, profile: &Profile) -> Result<Vec<f64>> {
        let predicted = self.predicted(profile)?;
        let ratio = |predicted: f64, measured: f64| (predicted.max(f64::MIN_POSITIVE) / measured).ln();
        let mut found = vec![RATE_WEIGHT * ratio(predicted.rate, self.rate)];
        let roles = FITTED.iter().zip(self.roles).filter(|(_, measured)| *measured > 0.0);
        // A role that a prediction has nothing of is wrong, but not infinitely.
        found.extend(roles.map(|((_, of), measured)| ratio(sum(&predicted.cpu_us, of), measured).clamp(-2.0, 2.0)));
        Ok(found)
    }

    /// A line about the run beside a prediction of it.
    pub(super) fn beside(&self, predicted: &Prediction) -> String {
        let roles = FITTED.iter().zip(self.roles).filter(|(_, measured)| *measured > 0.0);
        let roles = roles.map(|((name, of), us)| format!("{name} {us:.1}, {:.1}", sum(&predicted.cpu_us, of)));
        format!(
            "{:>9.0} a second measured, {:>9.0} predicted, {:>+6.1} %: {}; processor us measured, predicted: {}",
            self.rate,
            predicted.rate,
            100.0 * (predicted.rate / self.rate - 1.0),
            self.name(),
            roles.collect::<Vec<_>>().join("; "),
        )
    }
}

fn sum(cpu_us: &BTreeMap<String, f64>, roles: &[&str]) -> f64 {
    roles.iter().filter_map(|role| cpu_us.get(*role)).sum()
}

/// What devices of a kind did so often in a stream that it says how long each took at work: there lanes are full.
fn operations_of(trial: &Trial, sample: &Sample, kind: &str) -> Vec<(Operation, f64)> {
    if trial.workload != Workload::Stream {
        return Vec::new();
    }
    let devices = sample.devices.iter().filter(|device| device.kind == kind);
    let used = devices.flat_map(|device| &device.operations).filter(|used| used.count >= JOBS_MIN);
    let known = used.filter_map(|used| {
        let operation = match used.operation.as_str() {
            "rsa-sign" | "ecdsa-sign" => Operation::Sign,
            "rsa-verify" | "ecdsa-verify" => Operation::Verify,
            "rsa-wrap" | "ecdh-ephemeral" => Operation::Wrap,
            "rsa-unwrap" | "ecdh-derive" => Operation::Unwrap,
            _ => return None,
        };
        (used.execution_us > 0.0).then_some((operation, used.execution_us))
    });
    known.collect()
}

/// Which operations of a key go slower together at work: those with the private half of it, and the others.
fn is_private(operation: Operation) -> bool {
    matches!(operation, Operation::Sign | Operation::Unwrap)
}

/// Where operations are computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum On {
    Processor,
    Lanes,
}

/// Keys that are much alike for who computes with them: RSA, P-256, and curves in compiled arithmetic.
fn sort_of(key: &str) -> (bool, bool) {
    (key.starts_with("rsa"), Pace::is_of_curve(key))
}

/// Operations take longer in a queue manager at work than one call after the other alone, and how much longer depends
/// on the key. Where short runs say what they took, that is taken; what they don't say is taken to be as much longer as
/// what is nearest to it: the same half of the key, the same sort of keys, all keys.
pub(super) fn at_work(operations: &mut BTreeMap<String, Operations>, pace: Pace, observed: &[Observed], on: On) {
    let mut factors: Vec<(String, Operation, f64)> = Vec::new();
    for run in observed {
        let key = &run.configuration.key;
        let Some(alone) = operations.get(key) else { continue };
        // From the speed that the cores had to that of the profile.
        let (all, of_curve) = run.pace.factors(pace);
        let even = if on == On::Processor && Pace::is_of_curve(key) { of_curve } else { all };
        let measured = if on == On::Processor { &run.on_processor } else { &run.on_lanes };
        let known = measured.iter().filter_map(|(operation, us)| {
            let full = alone.get(*operation)?.full;
            (full > 0.0).then(|| (key.clone(), *operation, us * even / full))
        });
        factors.extend(known);
    }
    let mean = |of: &dyn Fn(&str, Operation) -> bool| {
        let logarithms: Vec<f64> = factors.iter().filter(|(key, op, _)| of(key, *op)).map(|(.., f)| f.ln()).collect();
        (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
    };
    for (key, operations) in operations {
        let family = |other: &str| sort_of(other) == sort_of(key);
        for operation in Operation::ALL {
            let Some(alone) = operations.get(operation) else { continue };
            let same_half = |other: Operation| is_private(other) == is_private(operation);
            let factor = mean(&|k, o| k == key && o == operation)
                .or_else(|| mean(&|k, o| k == key && same_half(o)))
                .or_else(|| mean(&|k, o| family(k) && same_half(o)))
                .or_else(|| mean(&|k, _| family(k)))
                .or_else(|| mean(&|_, _| true));
            if let Some(factor) = factor {
                operations.set(operation, Times { alone: alone.alone * factor, full: alone.full * factor });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{DeviceUse, OperationUse};

    fn sample(rate: f64, pace_us: f64) -> Sample {
        let mut sample = Sample { rate, transactions: 10, ..Sample::default() };
        pace::note(&mut sample, Pace { rsa_us: pace_us, curve_us: 0.0 });
        sample
    }

    fn trial(key: &str) -> Trial {
        let configuration = Configuration { key: key.to_owned(), ..Configuration::default() };
        Trial { workload: Workload::Stream, configuration }
    }

    #[test]
    fn of_repeats_the_middle_one_counts_at_an_even_speed() {
        // The first is as fast as the second, on cores that were half as fast.
        let samples = [sample(50.0, 200.0), sample(100.0, 100.0), sample(90.0, 100.0)];
        let observed = Observed::of(&trial(""), &samples).unwrap();
        assert_eq!((observed.rate, observed.even_rates), (50.0, vec![90.0, 100.0, 100.0]));
        assert!(Observed::of(&trial(""), &[]).is_none());
        assert!(Observed::of(&trial(""), &[Sample::default()]).is_none(), "nothing arrived");
    }

    #[test]
    fn operations_at_work_are_those_of_the_runs_and_the_others_follow_the_nearest() {
        let times = |us: f64| Times { alone: 4.0 * us, full: us };
        let all = |us: f64| {
            let mut operations = Operations::default();
            Operation::ALL.into_iter().for_each(|operation| operations.set(operation, times(us)));
            operations
        };
        let keys = ["p256", "rsa1024", "rsa2048"];
        let mut operations: BTreeMap<String, Operations> = keys.map(|key| (key.to_owned(), all(100.0))).into();
        let used = |operation: &str, count, execution_us| OperationUse {
            operation: operation.into(),
            count,
            execution_us,
            ..OperationUse::default()
        };
        let mut with = sample(100.0, 200.0);
        let of_device = vec![used("rsa-sign", 1000, 300.0), used("rsa-verify", 1000, 220.0), used("rsa-wrap", 9, 1.0)];
        with.devices = vec![DeviceUse { kind: "ACCELERATOR".into(), operations: of_device, ..DeviceUse::default() }];
        let observed = Observed::of(&trial("rsa2048"), &[with]).unwrap();
        // The cores were half as fast as the profile has them.
        at_work(&mut operations, Pace { rsa_us: 100.0, curve_us: 0.0 }, &[observed], On::Lanes);
        let full = |key: &str, operation| operations[key].get(operation).unwrap().full;
        assert!((full("rsa2048", Operation::Sign) - 150.0).abs() < 1e-9, "{operations:?}");
        assert!((full("rsa2048", Operation::Unwrap) - 150.0).abs() < 1e-9, "the same half of the key");
        assert!((full("rsa2048", Operation::Wrap) - 110.0).abs() < 1e-9, "of nine jobs nothing is known");
        assert!((full("rsa1024", Operation::Unwrap) - 150.0).abs() < 1e-9, "the same sort of keys");
        let mean = 100.0 * (1.5_f64 * 1.1).sqrt();
        assert!((full("p256", Operation::Sign) - mean).abs() < 1e-9, "{operations:?}");
        assert!((operations["p256"].get(Operation::Sign).unwrap().alone - 4.0 * mean).abs() < 1e-9);
    }
}
