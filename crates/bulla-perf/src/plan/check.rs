//! `bulla plan check`: predictions first, then the measurement, and how far they are apart.

use super::pace;
use super::predict::{FULL, Prediction, SEED, Workload, predict_workload};
use super::profile::{Operation, Profile, kind_of};
use super::teller::Teller;
use super::trial::{Trial, measure_all};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::result::{self, FORMAT, Line, Machine, Predicted, Results, Run, Sample};
use crate::run::measure::Timing;
use crate::run::options::describe;
use crate::run::statistics::{Spread, utc};
use crate::workload::stream::in_flight;
use crate::workload::trade::Version;
use bulla_table::{Column, Table};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Compare predictions with this machine: predict first, then measure
///
/// Some fifty configurations that calibration has not seen: qualities, keys, shared signatures, reuse, payloads, pairs
/// and devices. Each is predicted at the speed at which this machine was calibrated, and after each run at the speed
/// that the cores had meanwhile: that is what counts. The exit code is 8 where the median error of the rates is beyond
/// 7 %, or the worst beyond 20 %.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The profile; without it this machine's, as `bulla plan calibrate` left it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Add what was measured to this file, a line of JSON each
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seconds of each run
    #[arg(long, default_value_t = 1.5, value_parser = super::calibrate::seconds)]
    seconds: f64,
    /// Runs of each configuration; the one in the middle counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    repeats: u32,
    /// Compare with what an earlier check of this machine measured, instead of measuring
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Say nothing while measuring
    #[arg(long, short)]
    quiet: bool,
}

/// Greatest median of the rates' errors, and greatest error of one rate.
const MEDIAN_MAX: f64 = 0.07;
const WORST_MAX: f64 = 0.20;
/// Customers of the trading workload.
const CUSTOMERS: u32 = 16;
/// Before each run.
const WARM_UP: Duration = Duration::from_millis(500);

/// Does what the arguments say.
///
/// # Errors
/// [`Error`], each kind.
pub fn run(args: &CheckArgs, host: &dyn Host) -> Result<Verdict> {
    let path = args.profile.clone().or_else(Profile::default_path);
    let path = path.ok_or_else(|| Error::Usage("which profile? --profile FILE says it".to_owned()))?;
    let profile = Profile::read(&path)?;
    let teller = Teller::new(args.quiet)?;
    teller.begin("predicting")?;
    let mut asked: Vec<(Trial, Prediction)> = Vec::new();
    for trial in trials(&profile) {
        teller.check()?;
        let prediction = predict_workload(&profile, &trial.configuration, trial.workload, SEED)?;
        asked.push((trial, prediction));
    }
    let started = SystemTime::now();
    let timing = Timing { warm_up: WARM_UP, measured: Duration::from_secs_f64(args.seconds) };
    let trials: Vec<Trial> = asked.iter().map(|(trial, _)| trial.clone()).collect();
    let samples = match &args.results {
        Some(file) => of_results(file, &trials)?,
        None => measure_all(host, &trials, timing, args.repeats, &teller)?,
    };
    let mut results = args.out.as_deref().map(Results::append_to).transpose()?;
    let name = format!("{}-{}", utc(started).replace([' ', ':'], "-"), std::process::id());
    if let Some(results) = &mut results {
        results.add(&Line::Run(Box::new(Run {
            format: FORMAT,
            run: name.clone(),
            started: utc(started),
            workload: WORKLOAD.to_owned(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: "self".to_owned(),
            machine: Machine::this_one(),
            ..Run::default()
        })))?;
    }
    teller.say("predicting at the speed that the cores had");
    let mut compared = Vec::new();
    for ((trial, prediction), mut samples) in asked.iter().zip(samples) {
        for sample in &mut samples {
            (sample.run, sample.workload) = (name.clone(), WORKLOAD.to_owned());
            let paced = profile.at_pace(pace::of(sample));
            let now = predict_workload(&paced, &trial.configuration, trial.workload, SEED)?;
            sample.predicted = Some(Predicted {
                rate: now.rate,
                calibrated: prediction.rate,
                bottleneck: station(&now.bottleneck).to_owned(),
                found: held_back(sample, f64::from(profile.cores.count)),
            });
            if let Some(results) = &mut results {
                results.add(&Line::Sample(Box::new(sample.clone())))?;
            }
        }
        if let Some(middle) = middle(&samples) {
            compared.push(Compared::new(trial, middle));
        }
    }
    Ok(show(&compared))
}

/// What a file has of each of them.
fn of_results(file: &Path, trials: &[Trial]) -> Result<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::new(); trials.len()];
    for line in result::read(file)? {
        let Line::Sample(sample) = line else { continue };
        let of = trials.iter().position(|trial| trial.configuration == sample.configuration);
        if let Some(at) = of.filter(|_| sample.workload == WORKLOAD) {
            samples[at].push(*sample);
        }
    }
    Ok(samples)
}

/// What results of it are called.
pub const WORKLOAD: &str = "plan-check";

/// The sample whose rate is the middle one of how far rates are from what was predicted of them; none where nothing
/// was.
pub(crate) fn middle<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Option<&'a Sample> {
    let apart = |sample: &Sample| sample.predicted.as_ref().map(|predicted| predicted.rate / sample.rate);
    let mut samples: Vec<(f64, &Sample)> = samples
        .into_iter()
        .filter_map(|sample| Some((apart(sample).filter(|part| part.is_finite())?, sample)))
        .collect();
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    samples.get(samples.len() / 2).map(|(_, sample)| *sample)
}

/// A configuration as it was predicted and as it was.
struct Compared {
    what: String,
    predicted: Predicted,
    measured: f64,
    steady: bool,
}

impl Compared {
    fn new(trial: &Trial, sample: &Sample) -> Compared {
        Compared {
            what: format!("{} {}", trial.workload.as_str(), describe(&trial.configuration)),
            predicted: sample.predicted.clone().unwrap_or_default(),
            measured: sample.rate,
            steady: sample.unsteady.is_empty(),
        }
    }

    /// Predicted beside measured: 0.05 is five percent too much.
    fn error(&self) -> f64 {
        self.predicted.rate / self.measured - 1.0
    }

    /// The same of what was predicted before anything was measured.
    fn calibrated_error(&self) -> f64 {
        self.predicted.calibrated / self.measured - 1.0
    }

    fn is_right(&self) -> bool {
        self.predicted.found.contains(&self.predicted.bottleneck)
    }
}

/// The table and its summary, and whether that is near enough.
fn show(compared: &[Compared]) -> Verdict {
    let errors = compared.iter().map(|one| one.error().abs());
    let (median, worst) = Spread::of(errors).map_or((f64::NAN, f64::NAN), |spread| (spread.median, spread.most));
    let mut out = std::io::stdout().lock();
    // A reader that goes away (`| head`) is no failure.
    let mut table = Table::new([
        Column::right().at_least(10),
        Column::right().at_least(11),
        Column::right().at_least(9),
        Column::left().at_least(30),
        Column::left(),
    ]);
    table.row(["predicted", "measured", "error", "held back by", "what"]);
    for one in compared {
        let found = one.predicted.found.join(" or ");
        let by = if one.is_right() { found } else { format!("{found}, not {}", one.predicted.bottleneck) };
        let unsteady = if one.steady { "" } else { " (not steady)" };
        table.row([
            format!("{:.0}", one.predicted.rate),
            format!("{:.0}", one.measured),
            format!("{:+.1}%", 100.0 * one.error()),
            by,
            format!("{}{unsteady}", one.what),
        ]);
    }
    let _ = out.write_all(table.text().as_bytes());
    let right = compared.iter().filter(|one| one.is_right()).count();
    let before = compared.iter().map(|one| one.calibrated_error().abs());
    if let Some(before) = Spread::of(before) {
        let _ = writeln!(
            out,
            "at the speed of the calibration: median error {:.1} %, worst {:.1} %; at the speed of each run:",
            100.0 * before.median,
            100.0 * before.most,
        );
    }
    let _ = writeln!(
        out,
        "{} configurations: median error {:.1} % (at most {:.0} wanted), worst {:.1} % ({:.0}); bottleneck right in {right}",
        compared.len(),
        100.0 * median,
        100.0 * MEDIAN_MAX,
        100.0 * worst,
        100.0 * WORST_MAX,
    );
    match median <= MEDIAN_MAX && worst <= WORST_MAX {
        true => Verdict::Done,
        false => Verdict::Missed,
    }
}

/// A station without its number: `accelerator1` is an `accelerator`.
fn station(name: &str) -> &str {
    name.trim_end_matches(|last: char| last.is_ascii_digit())
}

/// What held a sample back, as far as it shows: whatever was full, fullest first; `in-flight` where nothing was.
fn held_back(sample: &Sample, cores: f64) -> Vec<String> {
    let mut full: Vec<(f64, String)> = Vec::new();
    let busy = sample.cores_busy / cores;
    if busy >= FULL {
        // Threads can't be full where cores are not there.
        full.push((busy + 1.0, "cores".to_owned()));
    }
    for task in &sample.tasks {
        // A dispatcher works in turns, and its processor time is what it is busy: while it waits for the queues' lock
        // it is not done either.
        let busy = task.busy_percent / 100.0;
        let name = match task.kind.as_str() {
            "DISPATCHER" => "dispatcher",
            "JOURNAL" => "journal",
            _ => continue,
        };
        if busy >= FULL {
            full.push((busy, name.to_owned()));
        }
    }
    for device in &sample.devices {
        let busy = device.busy_percent / 100.0;
        let own = !matches!(device.kind.as_str(), "CPU" | "SOFTWARE");
        if own && busy >= FULL {
            full.push((busy, device.kind.to_lowercase()));
        }
    }
    full.sort_by(|a, b| b.0.total_cmp(&a.0));
    full.dedup_by(|a, b| a.1 == b.1);
    match full.is_empty() {
        true => vec!["in-flight".to_owned()],
        false => full.into_iter().map(|(_, name)| name).collect(),
    }
}

/// Over quality, key, reuse, shared signatures, payload, pairs and devices; what the profile has no devices for is left
/// out.
fn trials(profile: &Profile) -> Vec<Trial> {
    let message = |quality, key: &str| Configuration { quality, key: key.to_owned(), ..Configuration::default() };
    let stream = |configuration| Trial {
        workload: Workload::Stream,
        configuration: Configuration { in_flight: in_flight(&configuration), ..configuration },
    };
    let pair = |configuration| Trial { workload: Workload::RequestReply, configuration };
    let reused = |key, reuse| Configuration { reuse, ..message(Quality::Confidentiality, key) };
    let bytes = |bytes, configuration| Configuration { bytes, ..configuration };
    let pairs = |pairs, configuration| Configuration { pairs, ..configuration };
    let shared = |sign_batch, configuration| Configuration { sign_batch, ..configuration };
    let none = message(Quality::None, "");
    let mut trials = vec![
        stream(bytes(512, none.clone())),
        stream(bytes(16 << 10, none.clone())),
        stream(pairs(4, none.clone())),
        pair(bytes(16 << 10, none.clone())),
        pair(pairs(2, none.clone())),
        pair(pairs(10, none)),
        stream(message(Quality::Integrity, "rsa1024")),
        stream(message(Quality::Integrity, "rsa4096")),
        stream(message(Quality::Integrity, "p256")),
        stream(message(Quality::Integrity, "p521")),
        stream(bytes(64 << 10, message(Quality::Integrity, "rsa2048"))),
        stream(pairs(4, message(Quality::Integrity, "p256"))),
        stream(message(Quality::Privacy, "rsa2048")),
        stream(message(Quality::Privacy, "rsa4096")),
        stream(message(Quality::Privacy, "p256")),
        stream(message(Quality::Privacy, "p384")),
        stream(bytes(16 << 10, message(Quality::Privacy, "rsa2048"))),
        stream(reused("rsa1024", Reuse::Times(0))),
        stream(reused("rsa2048", Reuse::Times(1))),
        stream(reused("rsa2048", Reuse::Times(8))),
        stream(reused("rsa4096", Reuse::Times(64))),
        stream(reused("p256", Reuse::Times(0))),
        stream(reused("p256", Reuse::Times(32))),
        stream(bytes(16 << 10, reused("rsa2048", Reuse::Unlimited))),
        stream(pairs(4, reused("rsa2048", Reuse::Times(32)))),
        pair(message(Quality::Integrity, "rsa4096")),
        pair(message(Quality::Privacy, "rsa2048")),
        pair(message(Quality::Privacy, "p256")),
        pair(reused("rsa2048", Reuse::Times(0))),
        pair(pairs(4, message(Quality::Integrity, "rsa2048"))),
        stream(message(Quality::Integrity, "ml-dsa-65")),
        stream(message(Quality::Privacy, "ml-dsa-65")),
        stream(shared(64, message(Quality::Integrity, "rsa2048"))),
        stream(shared(64, message(Quality::Integrity, "rsa4096"))),
        stream(shared(64, message(Quality::Integrity, "ml-dsa-65"))),
        stream(shared(64, message(Quality::Privacy, "rsa2048"))),
        stream(shared(64, message(Quality::Privacy, "rsa4096+p256"))),
        stream(shared(64, message(Quality::Privacy, "rsa4096+ml-kem-768"))),
        stream(shared(8, message(Quality::Integrity, "rsa2048"))),
    ];
    for devices in ["1a", "2a"] {
        let on = |configuration| Configuration { devices: devices.to_owned(), ..configuration };
        trials.extend([
            stream(on(message(Quality::Integrity, "rsa2048"))),
            stream(on(message(Quality::Integrity, "p256"))),
            stream(on(message(Quality::Privacy, "rsa1024"))),
            stream(on(reused("rsa2048", Reuse::Times(0)))),
        ]);
    }
    let two = |configuration| Configuration { devices: "2a".to_owned(), ..configuration };
    trials
        .extend([stream(two(message(Quality::Integrity, "rsa4096"))), stream(two(message(Quality::Privacy, "p256")))]);
    if profile.https.is_some() {
        trials.extend(https(&["rsa2048", "rsa4096", "p256"]));
    }
    // What a profile does not describe can't be predicted of it.
    let accelerators = profile.device(super::profile::DeviceKind::Accelerator, false).is_some();
    trials.retain(|trial| trial.configuration.devices == "cpu" || accelerators);
    trials.retain(|trial| trial.workload == Workload::Https || knows_key(profile, &trial.configuration.key));
    trials
}

/// Whether the profile says what all operations with this key take; without a key there are none. One that was made
/// before there were post-quantum keys knows nothing of them.
fn knows_key(profile: &Profile, key: &str) -> bool {
    key.is_empty()
        || Operation::ALL.into_iter().all(|operation| {
            let on_processor = profile.cpu.get(&*kind_of(key, operation)).and_then(|times| times.get(operation));
            on_processor.is_some() || profile.devices.values().any(|device| device.times(key, operation).is_some())
        })
}

/// The trading workload over HTTPS. Cards that are only modelled are left out: their arithmetic would take the cores
/// from which a real card would keep away.
fn https(keys: &[&str]) -> Vec<Trial> {
    let trial = |key: &str, version: Version, requests, resumed, devices: &str| Trial {
        workload: Workload::Https,
        configuration: Configuration {
            key: key.to_owned(),
            bytes: 0,
            in_flight: CUSTOMERS,
            cipher: version.cipher(key),
            requests,
            resumed,
            devices: devices.to_owned(),
            ..Configuration::default()
        },
    };
    let mut trials: Vec<Trial> = keys.iter().map(|key| trial(key, Version::Tls12, 1, false, "cpu")).collect();
    trials.extend([
        trial("rsa4096", Version::Tls12, 1, false, "software"),
        trial("rsa4096", Version::Tls12, 1, false, "1a"),
        trial("rsa4096", Version::Tls12, 10, false, "cpu"),
        trial("rsa2048", Version::Tls13, 1, true, "cpu"),
        trial("rsa4096", Version::Tls13, 1, false, "cpu"),
    ]);
    trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::profile::Operations;
    use crate::result::{DeviceUse, TaskUse};

    fn sample(cores_busy: f64, dispatcher: f64, device: (&str, f64)) -> Sample {
        let task = TaskUse { kind: "DISPATCHER".into(), busy_percent: dispatcher, ..TaskUse::default() };
        let device = DeviceUse { kind: device.0.into(), busy_percent: device.1, ..DeviceUse::default() };
        Sample { cores_busy, tasks: vec![task], devices: vec![device], ..Sample::default() }
    }

    #[test]
    fn what_is_full_holds_back_and_cores_come_first() {
        assert_eq!(held_back(&sample(1.2, 97.0, ("CPU", 99.0)), 2.0), ["dispatcher"]);
        assert_eq!(held_back(&sample(1.99, 90.0, ("ACCELERATOR", 95.0)), 2.0), ["cores", "accelerator", "dispatcher"]);
        assert_eq!(held_back(&sample(0.9, 30.0, ("ACCELERATOR", 50.0)), 2.0), ["in-flight"]);
    }

    #[test]
    fn a_check_is_near_enough_by_its_median_and_its_worst() {
        let one = |predicted: f64, measured: f64| Compared {
            what: "stream".into(),
            predicted: Predicted {
                rate: predicted,
                calibrated: predicted,
                bottleneck: "cores".into(),
                found: vec!["cores".into()],
            },
            measured,
            steady: true,
        };
        assert_eq!(show(&[one(100.0, 100.0), one(105.0, 100.0), one(119.0, 100.0)]), Verdict::Done);
        assert_eq!(show(&[one(100.0, 100.0), one(105.0, 100.0), one(125.0, 100.0)]), Verdict::Missed);
        assert_eq!(show(&[one(100.0, 100.0), one(108.0, 100.0), one(110.0, 100.0)]), Verdict::Missed);
        assert_eq!(show(&[]), Verdict::Missed, "nothing measured is nothing shown");
    }

    #[test]
    fn at_least_thirty_configurations_are_checked_and_none_was_calibrated_on() {
        let us = Some(1.0.into());
        let times = Operations { sign: us, verify: us, wrap: us, unwrap: us };
        let mut profile = Profile::empty("here", "a test");
        assert!(trials(&profile).iter().all(|trial| trial.configuration.key.is_empty()), "it knows no keys");
        for key in ["rsa1024", "rsa2048", "rsa4096", "p256", "p384", "p521"] {
            profile.cpu.insert(key.to_owned(), times);
        }
        let of_modern = |trial: &Trial| trial.configuration.key.contains("ml-");
        assert!(!trials(&profile).iter().any(of_modern), "it was made before them");
        profile.cpu.insert("ml-dsa-65".to_owned(), times);
        let without = trials(&profile);
        assert_eq!(without.iter().filter(|trial| of_modern(trial)).count(), 4);
        assert!(without.len() >= 30, "{}", without.len());
        let seen = super::super::calibrate::trials(true);
        assert!(without.iter().all(|trial| !seen.contains(trial)));
    }

    #[test]
    fn a_station_is_known_by_its_kind() {
        assert_eq!((station("accelerator12"), station("cores")), ("accelerator", "cores"));
    }
}
