//! `bulla plan calibrate`: a profile of this machine, from what operations take and from short runs.

use super::fit::{Unknown, fit};
use super::https;
use super::pace;
use super::predict::{Prediction, SEED, Workload, predict_workload};
use super::profile::{Cores, Device, DeviceKind, Journal, Operation, Operations, Pace, Place, Profile, Threads, Times};
use super::service_times;
use super::teller::Teller;
use super::trial::{Trial, measure_all, workload_of};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::result::{self, FORMAT, Line, Machine, Results, Run, Sample};
use crate::run::measure::Timing;
use crate::run::options::describe;
use crate::run::statistics::utc;
use crate::workload::stream::in_flight;
use bulla_seal::certificate::KeySpec;
use clap::Args;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Measure this machine and write a profile of it for `bulla plan predict`
///
/// Operations with each kind of key, alone and on the lanes of an accelerator; sealing and opening; and short runs
/// through queue managers of its own, to which the rest of the costs is fitted.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Write the profile there
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seconds of each short run
    #[arg(long, default_value_t = 1.5, value_parser = seconds)]
    seconds: f64,
    /// Runs of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    repeats: u32,
    /// Fit to results of `bulla perf` on this machine instead of short runs of its own
    #[arg(long, value_name = "FILE")]
    results: Vec<PathBuf>,
    /// With --results, take what operations take from this profile instead of measuring it
    #[arg(long, value_name = "FILE", requires = "results")]
    operations: Option<PathBuf>,
    /// Add the short runs to this file, a line of JSON each
    #[arg(long, value_name = "FILE", conflicts_with = "results")]
    keep: Option<PathBuf>,
    /// Say nothing while measuring
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.2..=60.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds, 0.2 to 60".to_owned())
}

/// What the accelerator is called in a profile.
const ACCELERATOR: &str = "accelerator";
/// How long each operation is measured.
const EACH: Duration = Duration::from_millis(150);
/// Before each short run.
const WARM_UP: Duration = Duration::from_millis(500);
/// Weight of a rate beside that of a role's processor time, when costs are fitted.
const RATE_WEIGHT: f64 = 4.0;
/// So many jobs of an accelerator say what one takes.
const LANES_JOBS_MIN: u64 = 400;
/// With which crowding the fit begins, at least.
const CROWDING_MIN: f64 = 0.03;
/// Of the cores, others are taken to use this part at most.
const BACKGROUND_MAX: f64 = 0.75;
/// A role that takes less than this part of a transaction's processor time is not fitted to.
const SHARE_MIN: f64 = 0.03;

/// Does what the arguments say.
///
/// # Errors
/// [`Error`], each kind.
pub fn run(args: &CalibrateArgs, host: &dyn Host) -> Result<Verdict> {
    let path = args.out.clone().or_else(Profile::default_path);
    let path = path.ok_or_else(|| Error::Usage("where to write the profile? -o FILE says it".to_owned()))?;
    let teller = Teller::new(args.quiet)?;
    let timing = Timing { warm_up: WARM_UP, measured: Duration::from_secs_f64(args.seconds) };
    let mut profile = match &args.operations {
        Some(earlier) => Profile::read(earlier)?,
        None => this_machine(host, &teller)?,
    };
    let observed = match args.results.is_empty() {
        true => short_runs(host, &profile, timing, args, &teller)?,
        false => of_results(&args.results)?,
    };
    // What is fitted holds at the speed that the cores had in the middle of the runs; each run is predicted at its own.
    let paces: Vec<Pace> = observed.iter().map(|run| run.pace).collect();
    profile.fitted_at(pace::middle(&paces));
    operations_at_work(&mut profile, &observed);
    teller.begin("fitting")?;
    let (before, after) = fit_to(&mut profile, &observed, &teller)?;
    if args.results.is_empty() {
        https::calibrate::measure(host, &mut profile, timing, args.repeats, &teller)?;
    }
    profile.write(&path)?;
    let mut out = std::io::stdout().lock();
    for run in &observed {
        let predicted = run.predicted(&profile)?;
        let roles = FITTED.iter().zip(run.roles).filter(|(_, measured)| *measured > 0.0);
        let roles: Vec<String> = roles
            .map(|((name, of), measured)| format!("{name} {measured:.1}, {:.1}", sum(&predicted.cpu_us, of)))
            .collect();
        let _ = writeln!(
            out,
            "{:>9.0} a second measured, {:>9.0} predicted, {:>+6.1} %: {} {}; processor us measured, predicted: {}",
            run.rate,
            predicted.rate,
            100.0 * (predicted.rate / run.rate - 1.0),
            run.workload.as_str(),
            describe(&run.configuration),
            roles.join("; "),
        );
    }
    let _ = writeln!(
        out,
        "{}: fitted to {} runs; rates and processor times by role were off by {:.0} % before and are by {:.1} % now (root mean square)",
        path.display(),
        observed.len(),
        100.0 * before,
        100.0 * after,
    );
    Ok(Verdict::Done)
}

/// Runs of our own.
fn short_runs(
    host: &dyn Host,
    profile: &Profile,
    timing: Timing,
    args: &CalibrateArgs,
    teller: &Teller,
) -> Result<Vec<Observed>> {
    let trials = trials(!profile.devices.is_empty());
    let samples = measure_all(host, &trials, timing, args.repeats, teller)?;
    if let Some(path) = &args.keep {
        let mut kept = Results::append_to(path)?;
        kept.add(&Line::Run(Box::new(Run { format: FORMAT, machine: Machine::this_one(), ..Run::default() })))?;
        samples.iter().flatten().try_for_each(|sample| kept.add(&Line::Sample(Box::new(sample.clone()))))?;
    }
    let middles = trials.iter().zip(samples).filter_map(|(trial, samples)| Some((trial, middle(samples)?)));
    Ok(middles.filter_map(|(trial, sample)| Observed::of(trial, &sample)).collect())
}

/// Earlier ones, each configuration once; what can't be predicted is passed over.
fn of_results(files: &[PathBuf]) -> Result<Vec<Observed>> {
    let mut groups: Vec<(Trial, Vec<Sample>)> = Vec::new();
    for file in files {
        for line in result::read(file)? {
            let Line::Sample(sample) = line else { continue };
            let Some(workload) = workload_of(&sample.workload) else { continue };
            let trial = Trial { workload, configuration: sample.configuration.clone() };
            match groups.iter_mut().find(|(known, _)| *known == trial) {
                Some((_, samples)) => samples.push(*sample),
                None => groups.push((trial, vec![*sample])),
            }
        }
    }
    let middles = groups.into_iter().filter_map(|(trial, samples)| Some((trial, middle(samples)?)));
    let observed: Vec<Observed> = middles.filter_map(|(trial, sample)| Observed::of(&trial, &sample)).collect();
    match observed.is_empty() {
        true => Err(Error::Usage("the results hold no streams and no round trips".to_owned())),
        false => Ok(observed),
    }
}

/// Operations on the lanes take longer in a queue manager at work than one call after the other alone, the more so the
/// longer the key. Where a short run says what they took, the fit begins with that.
fn operations_at_work(profile: &mut Profile, observed: &[Observed]) {
    let pace_us = profile.cores.pace_us;
    let Some(device) = profile.devices.get_mut(ACCELERATOR) else { return };
    for run in observed {
        let Some(operations) = device.operations.get_mut(&run.configuration.key) else { continue };
        let even = if run.pace.rsa_us > 0.0 && pace_us > 0.0 { pace_us / run.pace.rsa_us } else { 1.0 };
        for (operation, us) in &run.on_lanes {
            if let Some(alone) = operations.get(*operation) {
                let full = us * even;
                operations.set(*operation, Times { alone: alone.alone * full / alone.full, full });
            }
        }
    }
}

/// What an accelerator did so often in a stream that its lanes were full, and how long each took, microseconds.
fn on_lanes(trial: &Trial, sample: &Sample) -> Vec<(Operation, f64)> {
    let accelerators = sample.devices.iter().filter(|device| device.kind == "ACCELERATOR");
    let used = accelerators.flat_map(|device| &device.operations).filter(|used| used.count >= LANES_JOBS_MIN);
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
    if trial.workload == Workload::Stream { known.collect() } else { Vec::new() }
}

/// Finds the costs that fit, and says how far predictions were off before and are now.
fn fit_to(profile: &mut Profile, observed: &[Observed], teller: &Teller) -> Result<(f64, f64)> {
    let unknowns = unknowns(profile, observed);
    let residuals = |profile: &Profile| -> Result<Vec<f64>> {
        teller.check()?;
        let found: Vec<Vec<f64>> =
            observed.iter().map(|observed| observed.residuals(profile)).collect::<Result<_>>()?;
        Ok(found.concat())
    };
    fit(profile, &unknowns, &residuals)
}

/// What operations take, and the costs with which the fit begins.
fn this_machine(host: &dyn Host, teller: &Teller) -> Result<Profile> {
    let machine = Machine::this_one();
    let lanes = lanes(host.program());
    let times = service_times::measure(&KeySpec::ALL, lanes.as_deref(), EACH, &mut |text| teller.begin(text))?;
    teller.begin("cores")?;
    let cores = machine.cores.max(1);
    // A machine of one core knows no company; elsewhere the fit needs something to begin with.
    let crowding = service_times::crowding(cores as usize, EACH)?;
    let crowding = if cores > 1 { crowding.max(CROWDING_MIN) } else { 0.0 };
    let wake_up = service_times::wake_up();
    let mut profile = Profile::empty("this-machine", &format!("bulla plan calibrate, {} UTC", utc(SystemTime::now())));
    profile.machine = format!("{}, {} cores, {}", machine.processor, machine.cores, machine.system);
    profile.cores = Cores {
        count: cores,
        background: 0.0,
        crowding,
        wake_up_us: wake_up.short,
        deep_wake_up_us: wake_up.deep,
        deep_after_us: service_times::DEEP.as_secs_f64() * 1e6,
        // What the clock of the waker shows is both: it wakes another thread, and goes to sleep.
        wake_us: wake_up.cpu / 2.0,
        sleep_us: wake_up.cpu / 2.0,
        deep_sleep_us: wake_up.cpu,
        // Of the short runs, once they are over.
        pace_us: times.pace.rsa_us,
        curve_pace_us: times.pace.curve_us,
    };
    profile.threads = threads(host)?;
    profile.cpu = times.cpu;
    profile.costs.protection = times.protection;
    if !times.lanes.is_empty() {
        let device = Device {
            kind: DeviceKind::Accelerator,
            modelled: false,
            place: Place::Cores,
            engines: 1,
            lanes: service_times::LANES,
            // As the scheduler has it: two calls.
            pending: 0,
            call_us: 2.0,
            job_us: 0.5,
            operations: times.lanes,
            me_us: BTreeMap::new(),
            crt_us: BTreeMap::new(),
        };
        profile.devices.insert(ACCELERATOR.to_owned(), device);
    }
    profile.journal = Journal { sync_us: 70.0, bytes_per_second: 0.0, group_commit: true };
    let costs = &mut profile.costs;
    for step in [&mut costs.application.put, &mut costs.application.get] {
        (step.turn_us, step.message_us, step.byte_ns) = (4.0, 0.4, 0.1);
    }
    for step in [&mut costs.queue_manager.put, &mut costs.queue_manager.get] {
        (step.turn_us, step.message_us, step.byte_ns) = (3.0, 0.7, 0.1);
    }
    (costs.hand_over_us, costs.persist_us) = (2.0, 0.7);
    let protection = &mut costs.protection;
    (protection.turn_us, protection.task_us, protection.job_us, protection.inline_us) = (1.0, 3.0, 3.0, 1.0);
    (costs.journal.turn_us, costs.journal.message_us, costs.journal.byte_ns) = (8.0, 0.5, 0.3);
    Ok(profile)
}

/// The library that accelerators open, where this processor can use it.
fn lanes(program: &Path) -> Option<PathBuf> {
    let path = bulla_device::library_of(program);
    bulla_device::Accelerator::open("ACCELERATOR", &path).is_ok().then_some(path)
}

/// The threads that a queue manager has by itself.
fn threads(host: &dyn Host) -> Result<Threads> {
    let manager = crate::site::Manager::start(host, &crate::site::Settings::default())?;
    let rows = manager.rows("DISPLAY TASKSTATUS")?;
    let count = |kind: &str| {
        let running = rows.iter().filter(|row| crate::run::meters::text(row, "TASKTYPE") == kind).count();
        u32::try_from(running).unwrap_or(u32::MAX).max(1)
    };
    let threads = Threads { dispatchers: count("DISPATCHER"), adapters: count("ADAPTER") };
    manager.stop()?;
    Ok(threads)
}

/// Short runs that show each cost at least once.
pub(super) fn trials(has_accelerator: bool) -> Vec<Trial> {
    let message = |quality, key: &str| Configuration { quality, key: key.to_owned(), ..Configuration::default() };
    let stream = |configuration| Trial {
        workload: Workload::Stream,
        configuration: Configuration { in_flight: in_flight(&configuration), ..configuration },
    };
    let pair = |configuration| Trial { workload: Workload::RequestReply, configuration };
    let none = || message(Quality::None, "");
    let mut trials = vec![
        stream(none()),
        stream(Configuration { bytes: 64 << 10, ..none() }),
        stream(Configuration { persistent: true, ..none() }),
        pair(none()),
        pair(Configuration { pairs: 4, ..none() }),
        pair(Configuration { persistent: true, ..none() }),
        stream(message(Quality::Integrity, "rsa2048")),
        stream(message(Quality::Privacy, "rsa1024")),
        pair(message(Quality::Integrity, "rsa2048")),
        stream(Configuration { reuse: Reuse::Unlimited, ..message(Quality::Confidentiality, "rsa2048") }),
        stream(Configuration { reuse: Reuse::Times(32), ..message(Quality::Confidentiality, "rsa2048") }),
    ];
    if has_accelerator {
        let with_lanes = |configuration| Configuration { devices: "1a".to_owned(), ..configuration };
        trials.extend([
            stream(with_lanes(message(Quality::Integrity, "rsa1024"))),
            stream(with_lanes(message(Quality::Integrity, "rsa4096"))),
            stream(with_lanes(message(Quality::Privacy, "rsa2048"))),
            stream(with_lanes(message(Quality::Confidentiality, "p256"))),
            pair(with_lanes(message(Quality::Integrity, "rsa2048"))),
        ]);
    }
    trials
}

/// The sample with the middle rate, as it would be if the cores had always been equally fast.
fn middle(mut samples: Vec<Sample>) -> Option<Sample> {
    let paces: Vec<Pace> = samples.iter().map(pace::of).collect();
    let known = pace::middle(&paces).rsa_us > 0.0;
    let even = |sample: &Sample| sample.rate * if known { pace::of(sample).rsa_us } else { 1.0 };
    samples.sort_by(|a, b| even(a).total_cmp(&even(b)));
    let at = samples.len() / 2;
    (at < samples.len()).then(|| samples.swap_remove(at))
}

/// Roles that the fit looks at, each a sum of a sample's.
const FITTED: [(&str, &[&str]); 5] = [
    ("application", &["application"]),
    ("queue-manager", &["queue-manager"]),
    ("protection", &["protection"]),
    ("devices", &["devices"]),
    ("journal", &["journal"]),
];

/// What a short run came to.
#[derive(Clone, Debug)]
struct Observed {
    workload: Workload,
    configuration: Configuration,
    rate: f64,
    /// Cores that others used meanwhile, or the hypervisor took.
    background: f64,
    /// How fast the cores were meanwhile.
    pace: Pace,
    /// What an accelerator's operations took, microseconds.
    on_lanes: Vec<(Operation, f64)>,
    /// Processor time of a transaction, microseconds, in the order of [`FITTED`]; 0 for what is not looked at.
    roles: [f64; FITTED.len()],
}

impl Observed {
    /// None where nothing arrived.
    fn of(trial: &Trial, sample: &Sample) -> Option<Observed> {
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
            on_lanes: on_lanes(trial, sample),
            roles,
        })
    }

    /// What it would do on that system, with the cores that were there, as fast as they were.
    fn predicted(&self, profile: &Profile) -> Result<Prediction> {
        let mut disturbed = profile.at_pace(self.pace);
        disturbed.cores.background = self.background.min(f64::from(profile.cores.count) * BACKGROUND_MAX);
        predict_workload(&disturbed, &self.configuration, self.workload, SEED)
    }

    /// Logarithms of predicted ÷ measured: the rate, and each role.
    fn residuals(&self, profile: &Profile) -> Result<Vec<f64>> {
        let predicted = self.predicted(profile)?;
        let ratio = |predicted: f64, measured: f64| (predicted.max(f64::MIN_POSITIVE) / measured).ln();
        let mut found = vec![RATE_WEIGHT * ratio(predicted.rate, self.rate)];
        let roles = FITTED.iter().zip(self.roles).filter(|(_, measured)| *measured > 0.0);
        // A role that a prediction has nothing of is wrong, but not infinitely.
        found.extend(roles.map(|((_, of), measured)| ratio(sum(&predicted.cpu_us, of), measured).clamp(-2.0, 2.0)));
        Ok(found)
    }
}

fn sum(cpu_us: &BTreeMap<String, f64>, roles: &[&str]) -> f64 {
    roles.iter().filter_map(|role| cpu_us.get(*role)).sum()
}

/// What stands for all operations: an RSA 2048 signature. Between the measurement of operations alone and the short
/// runs the processor's clock may change, and among other work they find colder caches.
fn operations_us(operations: &BTreeMap<String, Operations>) -> f64 {
    operations.get("rsa2048").and_then(|operations| operations.sign).map_or(0.0, |sign| sign.full)
}

/// Makes them take that long, and all others as much longer.
fn scale(operations: &mut BTreeMap<String, Operations>, us: f64) {
    let factor = us / operations_us(operations);
    operations.values_mut().for_each(|operations| operations.stretch(factor));
}

/// A cost of both directions alike: a run tells how much they are together.
macro_rules! unknown {
    ($name:literal, $($first:ident).+ $(, $($more:ident).+)*) => {
        Unknown {
            name: $name,
            get: |profile| profile.$($first).+,
            set: |profile, value| {
                profile.$($first).+ = value;
                $(profile.$($more).+ = value;)*
            },
        }
    };
}

/// What is fitted.
fn unknowns(profile: &Profile, observed: &[Observed]) -> Vec<Unknown> {
    let mut unknowns = vec![
        unknown!("application, turn", costs.application.put.turn_us, costs.application.get.turn_us),
        unknown!("application, message", costs.application.put.message_us, costs.application.get.message_us),
        unknown!("application, byte", costs.application.put.byte_ns, costs.application.get.byte_ns),
        unknown!("queue manager, turn", costs.queue_manager.put.turn_us, costs.queue_manager.get.turn_us),
        unknown!("queue manager, message", costs.queue_manager.put.message_us, costs.queue_manager.get.message_us),
        unknown!("queue manager, byte", costs.queue_manager.put.byte_ns, costs.queue_manager.get.byte_ns),
        unknown!("hand-over", costs.hand_over_us),
        unknown!("adapter, turn", costs.protection.turn_us),
        unknown!("adapter, task", costs.protection.task_us),
        unknown!("wake-up", cores.wake_up_us),
        unknown!("deep wake-up", cores.deep_wake_up_us),
        unknown!("waking", cores.wake_us),
        unknown!("sleep", cores.sleep_us),
        unknown!("deep sleep", cores.deep_sleep_us),
        unknown!("live seal", costs.protection.live.seal_us),
        unknown!("live open", costs.protection.live.open_us),
    ];
    if observed.iter().any(|observed| observed.configuration.persistent) {
        unknowns.extend([
            unknown!("persistent message", costs.persist_us),
            unknown!("journal, turn", costs.journal.turn_us),
            unknown!("journal, message", costs.journal.message_us),
            unknown!("sync", journal.sync_us),
        ]);
    }
    if profile.devices.contains_key(ACCELERATOR) {
        unknowns.extend([
            unknown!("adapter, job", costs.protection.job_us),
            Unknown {
                name: "accelerator, call",
                get: |profile| profile.devices.get(ACCELERATOR).map_or(0.0, |device| device.call_us),
                set: |profile, value| {
                    if let Some(device) = profile.devices.get_mut(ACCELERATOR) {
                        device.call_us = value;
                    }
                },
            },
            Unknown {
                name: "operations on the lanes",
                get: |profile| profile.devices.get(ACCELERATOR).map_or(0.0, |device| operations_us(&device.operations)),
                set: |profile, value| {
                    if let Some(device) = profile.devices.get_mut(ACCELERATOR) {
                        scale(&mut device.operations, value);
                    }
                },
            },
        ]);
    }
    unknowns.push(Unknown {
        name: "operations on the processor",
        get: |profile| operations_us(&profile.cpu),
        set: |profile, value| scale(&mut profile.cpu, value),
    });
    if profile.cores.crowding > 0.0 {
        unknowns.push(unknown!("crowding", cores.crowding));
    }
    unknowns.retain(|unknown| (unknown.get)(profile) > 0.0);
    unknowns
}
