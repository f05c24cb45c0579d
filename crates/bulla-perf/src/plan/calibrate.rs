//! `bulla plan calibrate`: a profile of this machine, from what operations take and from short runs.

use super::fit::{Fit, Unknown, fit};
use super::https;
use super::observed::{self, Observed};
use super::pace;
use super::predict::Workload;
use super::profile::{Cores, Costs, Device, DeviceKind, Journal, Operations, Pace, Place, Profile, Threads};
use super::service_times;
use super::teller::Teller;
use super::trial::{Trial, measure_all, workload_of};
use super::trust::Trust;
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::result::{self, FORMAT, Line, Machine, Results, Run, Sample};
use crate::run::measure::Timing;
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
    /// Take what operations and HTTPS take from this profile instead of measuring it
    #[arg(long, value_name = "FILE")]
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
/// With how large a cache of a core the fit begins.
const CACHE_BYTES: f64 = 4e6;
/// With which crowding the fit begins, at least.
const CROWDING_MIN: f64 = 0.03;

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
        Some(earlier) => again(Profile::read(earlier)?),
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
    if args.operations.is_none() && args.results.is_empty() {
        https::calibrate::measure(host, &mut profile, timing, args.repeats, &teller)?;
    }
    teller.begin("fitting")?;
    let fit = fit_to(&mut profile, &observed, &teller)?;
    teller.begin("leaving each run out once")?;
    let trust = Trust::of(&profile, &fit, &observed, &|| teller.check())?;
    show(&path, &profile, &observed, &trust)?;
    profile.trust = Some(trust);
    profile.write(&path)?;
    Ok(Verdict::Done)
}

/// Each run beside what is predicted of it now, and how far to trust predictions.
fn show(path: &Path, profile: &Profile, observed: &[Observed], trust: &Trust) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for run in observed {
        let _ = writeln!(out, "{}", run.beside(&run.predicted(profile)?));
    }
    let _ = writeln!(
        out,
        "{}: fitted to {} runs; their rates are off by {:.1} % (median), {:.1} % (worst)",
        path.display(),
        observed.len(),
        100.0 * trust.fitted_median,
        100.0 * trust.fitted_worst,
    );
    for line in trust.lines() {
        let _ = writeln!(out, "{line}");
    }
    Ok(())
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
    Ok(trials.iter().zip(samples).filter_map(|(trial, samples)| Observed::of(trial, &samples)).collect())
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
    let observed: Vec<Observed> = groups.iter().filter_map(|(trial, samples)| Observed::of(trial, samples)).collect();
    match observed.is_empty() {
        true => Err(Error::Usage("the results hold no streams and no round trips".to_owned())),
        false => Ok(observed),
    }
}

/// Operations as short runs say that they are at work, on the processor and on the lanes.
fn operations_at_work(profile: &mut Profile, observed: &[Observed]) {
    let pace = profile.pace();
    observed::at_work(&mut profile.cpu, pace, observed, observed::On::Processor);
    if let Some(device) = profile.devices.get_mut(ACCELERATOR) {
        observed::at_work(&mut device.operations, pace, observed, observed::On::Lanes);
    }
}

/// Finds the costs that fit.
fn fit_to(profile: &mut Profile, observed: &[Observed], teller: &Teller) -> Result<Fit> {
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
    // A user with an ML-DSA key has an ML-KEM one beside it, so those stand for both.
    let keys: Vec<KeySpec> = KeySpec::ALL.into_iter().filter(|key| !matches!(key, KeySpec::MlKem(_))).collect();
    let times = service_times::measure(&keys, lanes.as_deref(), EACH, &mut |text| teller.begin(text))?;
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
        cache_bytes: CACHE_BYTES,
        slice_us: service_times::slice_us(),
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
    begin(&mut profile.costs);
    Ok(profile)
}

/// An earlier profile, with what it takes to fit its costs anew.
fn again(mut profile: Profile) -> Profile {
    begin(&mut profile.costs);
    let cores = &mut profile.cores;
    (cores.crowding, cores.cache_bytes) = (cores.crowding.max(CROWDING_MIN), CACHE_BYTES);
    if cores.slice_us <= 0.0 {
        cores.slice_us = service_times::slice_us();
    }
    profile.source = format!("{}, fitted again {} UTC", profile.source, utc(SystemTime::now()));
    profile
}

/// The costs with which the fit begins.
fn begin(costs: &mut Costs) {
    for step in [&mut costs.application.put, &mut costs.application.get] {
        (step.turn_us, step.message_us, step.byte_ns) = (4.0, 0.4, 0.1);
        step.long_byte_ns = Some(0.1);
    }
    for step in [&mut costs.queue_manager.put, &mut costs.queue_manager.get] {
        (step.turn_us, step.message_us, step.byte_ns) = (3.0, 0.7, 0.1);
        (step.long_byte_ns, step.far_byte_ns) = (Some(0.1), 0.1);
    }
    (costs.hand_over_us, costs.live_us, costs.persist_us) = (2.0, 0.3, 0.7);
    let protection = &mut costs.protection;
    (protection.turn_us, protection.task_us, protection.job_us, protection.inline_us) = (1.0, 3.0, 3.0, 1.0);
    (costs.journal.turn_us, costs.journal.message_us, costs.journal.byte_ns) = (8.0, 0.5, 0.3);
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
    let bytes = |bytes, configuration| Configuration { bytes, ..configuration };
    let pairs = |pairs, configuration| Configuration { pairs, ..configuration };
    let persistent = |configuration| Configuration { persistent: true, ..configuration };
    let reused = |key, reuse| Configuration { reuse, ..message(Quality::Confidentiality, key) };
    let mut trials = vec![
        // What a message costs by its length, and by how much waits.
        stream(none()),
        stream(bytes(256, none())),
        stream(bytes(8 << 10, none())),
        stream(bytes(64 << 10, none())),
        stream(pairs(2, none())),
        stream(pairs(6, none())),
        stream(pairs(8, bytes(256, none()))),
        stream(persistent(none())),
        // What a turn and a wake-up cost, with one message in a turn.
        pair(none()),
        pair(pairs(2, bytes(512, none()))),
        pair(pairs(3, none())),
        pair(pairs(4, none())),
        pair(pairs(16, none())),
        pair(bytes(64 << 10, none())),
        pair(persistent(none())),
        // What adapters cost, with many messages in a turn and with one.
        stream(message(Quality::Integrity, "rsa2048")),
        stream(message(Quality::Integrity, "p192")),
        stream(message(Quality::Privacy, "rsa1024")),
        pair(message(Quality::Integrity, "rsa2048")),
        pair(pairs(3, message(Quality::Privacy, "rsa2048"))),
        stream(reused("p256", Reuse::Times(1))),
        stream(reused("rsa2048", Reuse::Times(32))),
        stream(pairs(3, reused("rsa1024", Reuse::Times(32)))),
        stream(reused("rsa2048", Reuse::Unlimited)),
        stream(bytes(8 << 10, reused("rsa2048", Reuse::Unlimited))),
    ];
    if has_accelerator {
        let with_lanes = |configuration| Configuration { devices: "1a".to_owned(), ..configuration };
        trials.extend([
            stream(with_lanes(message(Quality::Integrity, "rsa1024"))),
            stream(with_lanes(message(Quality::Integrity, "rsa4096"))),
            stream(with_lanes(message(Quality::Privacy, "rsa2048"))),
            stream(with_lanes(message(Quality::Privacy, "p256"))),
            stream(with_lanes(reused("p256", Reuse::Times(0)))),
            pair(with_lanes(message(Quality::Integrity, "rsa2048"))),
        ]);
    }
    trials
}

/// What stands for all operations: an RSA 2048 signature.
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

/// The same of bytes that are not copied: a cost that may say nothing of them.
macro_rules! long_bytes {
    ($name:literal, $part:ident) => {
        Unknown {
            name: $name,
            get: |profile| profile.costs.$part.put.long_byte_ns.unwrap_or(profile.costs.$part.put.byte_ns),
            set: |profile, value| {
                (profile.costs.$part.put.long_byte_ns, profile.costs.$part.get.long_byte_ns) =
                    (Some(value), Some(value));
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
        long_bytes!("application, byte not copied", application),
        long_bytes!("queue manager, byte not copied", queue_manager),
        unknown!("queue manager, byte far", costs.queue_manager.put.far_byte_ns, costs.queue_manager.get.far_byte_ns),
        unknown!("cache", cores.cache_bytes),
        unknown!("hand-over", costs.hand_over_us),
        unknown!("live message", costs.live_us),
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
            // What runs say of operations is as full as lanes were, and as crowded as cores were; the simulation fills
            // lanes and crowds cores once more.
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
