//! From a profile and a configuration to what they would do.

use super::https;
use super::mva::{self, Station};
use super::operations::Class;
use super::profile::{Device, DeviceKind, Operation, Place, Profile, SerialChannel};
use super::queueing;
use super::simulation::{self, Pace, Settings, Shape, System};
use crate::configuration::{Configuration, Quality};
use crate::error::{Error, Result};
use crate::result::Latency;
use crate::spelling;
use clap::ValueEnum;
use serde::Serialize;
use std::collections::BTreeMap;

/// The seed of predictions that were not given another one.
pub const SEED: u64 = 1;
/// Utilisation from which a station is what holds a closed system back.
pub const FULL: f64 = 0.85;
/// The cores come first among stations that are equally full but for this: threads can't be full where cores are not
/// there.
const CORES_FIRST: f64 = 0.03;
/// Part of a target rate that counts as the whole.
pub const HELD_PART: f64 = 0.99;
/// Most devices of a kind that a configuration may ask for.
pub const DEVICES_MAX: u32 = 32;
/// Most recipients of a message, and threads of a kind.
const RECIPIENTS_MAX: u32 = 256;
const THREADS_MAX: u32 = 1024;
/// Most pairs and messages in flight that are simulated.
const PAIRS_MAX: u32 = 1024;
pub(super) const IN_FLIGHT_MAX: u32 = 1 << 16;

/// What a transaction is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A message from a putter to a getter.
    Stream,
    /// A request and its reply.
    RequestReply,
    /// Something that a customer of the trading application does over HTTPS (`bulla perf trade`).
    Https,
}

impl Workload {
    /// What a configuration most likely means: HTTPS where it has requests of a connection; a request and its reply
    /// where one message is in flight and no rate is to be held; otherwise a stream.
    #[must_use]
    pub fn of(configuration: &Configuration) -> Self {
        if configuration.requests > 0 {
            return Workload::Https;
        }
        match configuration.in_flight <= 1 && configuration.target_rate == 0 {
            true => Workload::RequestReply,
            false => Workload::Stream,
        }
    }

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Workload::Stream => "stream",
            Workload::RequestReply => "request-reply",
            Workload::Https => "https",
        }
    }
}

/// How a prediction came about.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Solver {
    /// Discrete-event simulation: threads that share cores, turns, lanes, bounded lines.
    Simulation,
    /// Exact mean-value analysis of a closed system.
    MeanValueAnalysis,
    /// A queueing formula of an open one; its percentiles are those of an exponential distribution about the mean.
    Formula,
}

impl Solver {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Solver::Simulation => "simulation",
            Solver::MeanValueAnalysis => "mean-value analysis",
            Solver::Formula => "queueing formula",
        }
    }
}

/// How full a station is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StationUse {
    /// `cores`, `dispatcher`, `adapters`, `application`, `journal`, `channel`, or a device's name.
    pub name: String,
    /// How many cores, threads or engines.
    pub servers: f64,
    /// Part of the time that they are busy, 0 to 1; of threads with work of their own, that of the busiest.
    pub utilisation: f64,
}

/// What a configuration would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The profile's name.
    pub profile: String,
    /// Where its numbers come from.
    pub source: String,
    /// What is planned.
    pub configuration: Configuration,
    /// What a transaction is.
    pub workload: Workload,
    /// How it was computed.
    pub solver: Solver,
    /// Transactions a second.
    pub rate: f64,
    /// Half of its 95 % confidence interval, where it was simulated.
    pub rate_within: f64,
    /// Whether the target rate is held; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// How long a transaction takes, microseconds.
    pub latency_us: Latency,
    /// Whether the percentiles are approximate: exponential about the mean.
    pub latency_approximate: bool,
    /// Cores busy.
    pub cores_busy: f64,
    /// All stations.
    pub stations: Vec<StationUse>,
    /// The one that holds it back, or would first: a station's name, or `in-flight` where messages wait for nothing but
    /// each other.
    pub bottleneck: String,
    /// Processor time of a transaction by role, microseconds.
    #[serde(with = "spelling::by_name")]
    pub cpu_us: BTreeMap<String, f64>,
    /// Operations with keys of a transaction.
    #[serde(with = "spelling::by_name")]
    pub operations: BTreeMap<String, f64>,
    /// How messages share signatures, where the policy lets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Jobs that devices did.
    pub devices: Vec<DeviceUse>,
    /// Transactions a second that no number in flight exceeds, from the parts alone.
    pub bound: f64,
    /// Transactions a second by mean-value analysis of the same parts, which knows neither turns nor single threads.
    pub mean_value_rate: f64,
    /// What a reader should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// How messages share signatures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sharing {
    /// Messages of a signature, on average: as many as wait while the one before is made, SIGNBATCH at most.
    pub together: f64,
    /// Verifications of a message: one of a batch, and of those that are opened at the same time each its own.
    pub verifications: f64,
}

/// What a device would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceUse {
    /// Its name.
    pub name: String,
    /// Part of the time that it is busy, 0 to 1.
    pub utilisation: f64,
    /// Jobs of a transaction.
    pub jobs: f64,
    /// Jobs of a call.
    pub lanes_filled: f64,
    /// From a job's arrival to its answer, microseconds.
    pub response_us: f64,
    /// Jobs that wait for it or are under way, on average.
    pub pending: f64,
}

impl Prediction {
    /// Processor time of a transaction, microseconds, of all roles.
    #[must_use]
    pub fn process_cpu_us(&self) -> f64 {
        self.cpu_us.values().sum()
    }
}

/// What the configuration would do on that system; a request and its reply, or a stream, as [`Workload::of`] has it.
///
/// # Errors
/// [`Error::Usage`]: the configuration contradicts itself, or asks for what the profile does not describe.
pub fn predict(profile: &Profile, configuration: &Configuration) -> Result<Prediction> {
    predict_workload(profile, configuration, Workload::of(configuration), SEED)
}

/// The same, of that workload, with random numbers from that seed.
///
/// # Errors
/// As [`predict`].
pub fn predict_workload(
    profile: &Profile,
    configuration: &Configuration,
    workload: Workload,
    seed: u64,
) -> Result<Prediction> {
    if workload == Workload::Https {
        return https::predict(profile, configuration, &https::Setup::default(), seed);
    }
    check(configuration)?;
    if let Some(channel) = &profile.channel {
        return serial_channel(profile, channel, configuration, workload);
    }
    let system = system(profile, configuration, workload)?;
    let demand = demand(&system);
    if !demand.bound().is_finite() {
        return Err(Error::Usage(format!(
            "profile {} does not say what a message takes, so no rate follows from it; `bulla plan show` shows what it has",
            profile.name
        )));
    }
    let in_flight = u64::from(system.pairs) * u64::from(system.window);
    let mut settings = Settings::for_window(seed, in_flight);
    if system.class.is_protected() {
        settings = settings.for_key_uses(system.class.key_uses);
    }
    let outcome = simulation::run(&system, settings);
    let capacity = f64::from(profile.cores.count) - profile.cores.background;
    let mut stations = vec![StationUse {
        name: "cores".to_owned(),
        servers: f64::from(profile.cores.count),
        utilisation: (outcome.cores_busy / capacity).min(1.0),
    }];
    let used = |used: &simulation::Use| StationUse {
        name: used.name.clone(),
        servers: used.servers,
        utilisation: used.utilisation,
    };
    stations.extend(outcome.stations.iter().map(used));
    stations.extend(outcome.devices.iter().zip(&system.devices).map(|(device, (_, spec))| StationUse {
        name: device.name.clone(),
        servers: f64::from(spec.engines),
        utilisation: device.utilisation,
    }));
    let held = held(outcome.rate, configuration);
    let sharing = (system.class.sign_batch > 1)
        .then_some(Sharing { together: outcome.together, verifications: outcome.verifications });
    let mut remarks = remarks(profile, configuration);
    if !outcome.complete {
        remarks.push("the simulation was ended before its time".to_owned());
    }
    Ok(Prediction {
        profile: profile.name.clone(),
        source: profile.source.clone(),
        configuration: configuration.clone(),
        workload,
        solver: Solver::Simulation,
        rate: outcome.rate,
        rate_within: outcome.rate_within,
        held,
        latency_us: latency(&outcome.responses, outcome.response),
        latency_approximate: false,
        cores_busy: outcome.cores_busy,
        bottleneck: bottleneck(&stations, held != Some(true)),
        stations,
        cpu_us: outcome.cpu_us.iter().map(|(role, us)| ((*role).to_owned(), *us)).collect(),
        operations: operations(&system.class, workload, sharing),
        sharing,
        devices: outcome
            .devices
            .iter()
            .map(|device| DeviceUse {
                name: device.name.clone(),
                utilisation: device.utilisation,
                jobs: device.jobs,
                lanes_filled: device.lanes_filled,
                response_us: device.response_us,
                pending: outcome.rate * device.jobs * device.response_us / 1e6,
            })
            .collect(),
        bound: demand.bound() * 1e6,
        // With many cores the recursion loses its digits; no rate is beyond the bound.
        mean_value_rate: demand.mean_value_rate(system.pairs.saturating_mul(system.window)).min(demand.bound()) * 1e6,
        remarks,
    })
}

fn check(configuration: &Configuration) -> Result<()> {
    let usage = |message: String| Err(Error::Usage(message));
    if !matches!(configuration.topology.as_str(), "local" | "channel") {
        return usage(format!("topology {} is not planned; local and channel are", configuration.topology));
    }
    if configuration.reset_bytes > 0 {
        return usage("key resets are not planned: leave SSLRKEYC out".to_owned());
    }
    for (count, what, most) in [
        (configuration.recipients, "recipients", RECIPIENTS_MAX),
        (configuration.dispatchers, "dispatchers", THREADS_MAX),
        (configuration.adapters, "adapters", THREADS_MAX),
    ] {
        if count > most {
            return usage(format!("at most {most} {what} are planned"));
        }
    }
    if configuration.pairs > PAIRS_MAX || configuration.in_flight > IN_FLIGHT_MAX {
        return usage(format!("at most {PAIRS_MAX} pairs and {IN_FLIGHT_MAX} messages in flight are planned"));
    }
    if u64::from(configuration.pairs) * u64::from(configuration.in_flight) > u64::from(IN_FLIGHT_MAX) {
        return usage(format!("at most {IN_FLIGHT_MAX} messages in flight are planned, of all pairs together"));
    }
    Ok(())
}

/// Whether a target is held.
fn held(rate: f64, configuration: &Configuration) -> Option<bool> {
    (configuration.target_rate > 0).then_some(rate >= HELD_PART * configuration.target_rate as f64)
}

fn operations(class: &Class, workload: Workload, sharing: Option<Sharing>) -> BTreeMap<String, f64> {
    let messages = if workload == Workload::RequestReply { 2.0 } else { 1.0 };
    let mut operations = class.operations(sharing.map_or(1.0, |sharing| sharing.together));
    if let (Some(sharing), Some(verifies)) = (sharing, operations.get_mut(&Operation::Verify)) {
        *verifies = sharing.verifications;
    }
    operations.iter().map(|(operation, count)| (operation.as_str().to_owned(), count * messages)).collect()
}

fn remarks(profile: &Profile, configuration: &Configuration) -> Vec<String> {
    let mut remarks = Vec::new();
    if configuration.devices.starts_with("modelled:") {
        remarks.push("with modelled devices".to_owned());
    }
    if !profile.load.is_empty() {
        remarks.push("devices are slower by what the profile says that others send to them".to_owned());
    }
    remarks
}

/// The fullest station, or that nothing is full.
pub(super) fn bottleneck(stations: &[StationUse], saturated: bool) -> String {
    let full = |station: &StationUse| {
        station.utilisation + if matches!(station.name.as_str(), "cores") { CORES_FIRST } else { 0.0 }
    };
    let most = stations.iter().max_by(|a, b| full(a).total_cmp(&full(b)));
    match most {
        Some(station) if !saturated || station.utilisation >= FULL => station.name.clone(),
        _ => "in-flight".to_owned(),
    }
}

pub(super) fn latency(sorted: &[f64], mean: f64) -> Latency {
    let at = |part: f64| {
        let place = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(place.max(1) - 1).or(sorted.last()).copied().unwrap_or(0.0)
    };
    Latency { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
}

/// The devices that a configuration asks for: how many of which kind, and whether modelled.
///
/// # Errors
/// [`Error::Usage`]: it is not a list of devices.
pub fn parse_devices(text: &str) -> Result<(Vec<(DeviceKind, u32)>, bool)> {
    if matches!(text, "cpu" | "software" | "") {
        return Ok((Vec::new(), false));
    }
    let (modelled, list) = text.strip_prefix("modelled:").map_or((false, text), |list| (true, list));
    let wrong =
        || Error::Usage(format!("{text}: cpu, software, or so many accelerators and coprocessors: 1a, 2c, 1a+1c"));
    let mut devices = Vec::new();
    for part in list.split('+') {
        let part = part.to_ascii_lowercase();
        let (count, kind) = match (part.strip_suffix('a'), part.strip_suffix('c')) {
            (Some(count), _) => (count, DeviceKind::Accelerator),
            (_, Some(count)) => (count, DeviceKind::Coprocessor),
            _ => return Err(wrong()),
        };
        let count: u32 = count.parse().map_err(|_| wrong())?;
        if count > DEVICES_MAX {
            return Err(Error::Usage(format!("{text}: at most {DEVICES_MAX} devices of a kind")));
        }
        devices.push((kind, count));
    }
    Ok((devices, modelled))
}

/// The system that a configuration makes of a profile, as the simulation takes it.
///
/// # Errors
/// As [`predict`].
pub fn system(profile: &Profile, configuration: &Configuration, workload: Workload) -> Result<System> {
    let class = Class::new(profile, configuration)?;
    let (wanted, modelled) = parse_devices(&configuration.devices)?;
    let mut devices: Vec<(String, Device)> = Vec::new();
    for (kind, count) in wanted {
        let Some((name, device)) = profile.device(kind, modelled) else {
            let modelled = if modelled { "modelled " } else { "" };
            return Err(Error::Usage(format!("profile {} describes no {modelled}{}", profile.name, kind.as_str())));
        };
        let device = slowed_by_others(profile, name, device);
        devices.extend((1..=count).map(|number| (format!("{name}{number}"), device.clone())));
    }
    for operation in class.seal_steps.iter().chain(&class.open_steps).copied() {
        let any_device = class.cpu_us(operation).is_some()
            || devices.iter().any(|(_, device)| device.times(&class.key, operation).is_some());
        if !any_device {
            let (operation, key) = (operation.as_str(), &class.key);
            return Err(Error::Usage(format!(
                "profile {} does not say what {operation} takes with {key}; `bulla plan calibrate` measures it",
                profile.name
            )));
        }
    }
    let pairs = configuration.pairs.max(1);
    let network = &profile.network;
    let wire = if network.bytes_per_second > 0.0 { class.bytes / network.bytes_per_second * 1e6 } else { 0.0 };
    let or_default = |count, default| if count > 0 { count } else { default };
    Ok(System {
        cores: profile.cores,
        dispatchers: or_default(configuration.dispatchers, profile.threads.dispatchers),
        adapters: or_default(configuration.adapters, profile.threads.adapters),
        devices,
        journal: profile.journal,
        network_us: network.one_way_us + wire,
        channel: configuration.topology == "channel",
        shape: match workload {
            Workload::Stream => Shape::Stream,
            Workload::RequestReply => Shape::RequestReply,
            Workload::Https => return Err(Error::Usage("https is planned by itself".to_owned())),
        },
        pairs,
        window: configuration.in_flight.max(1),
        pace: match configuration.target_rate {
            0 => Pace::Closed,
            rate => Pace::Bursts(rate as f64 / f64::from(pairs)),
        },
        class,
    })
}

/// A device that is busy for others takes longer for all.
fn slowed_by_others(profile: &Profile, name: &str, device: &Device) -> Device {
    let busy: f64 = profile
        .load
        .iter()
        .filter(|load| load.device == name)
        .filter_map(|load| Some(load.rate * device.format_us(load.format, &load.bits.to_string())? / 1e6))
        .sum();
    let left = (1.0 - busy / f64::from(device.engines.max(1))).max(0.01);
    let mut slowed = device.clone();
    slowed.me_us.values_mut().chain(slowed.crt_us.values_mut()).for_each(|us| *us /= left);
    slowed.operations.values_mut().for_each(|operations| operations.stretch(1.0 / left));
    slowed
}

/// What a transaction needs of each station, microseconds, from the parts alone: turns as they are shared by what is in
/// flight, lanes full where enough is.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Processor time by role.
    pub cpu_us: BTreeMap<&'static str, f64>,
    /// Stations of a network with exact solutions: cores, cards, disk, network.
    pub stations: Vec<Station>,
    /// Threads that limit by themselves: how many there are, and what a transaction needs of all of them.
    pub threads: Vec<Station>,
}

impl Demand {
    /// Transactions a microsecond that nothing exceeds.
    #[must_use]
    pub fn bound(&self) -> f64 {
        mva::bound(&self.stations, u32::MAX).min(mva::bound(&self.threads, u32::MAX))
    }

    /// Transactions a microsecond with so many in flight, by mean-value analysis.
    #[must_use]
    pub fn mean_value_rate(&self, customers: u32) -> f64 {
        let solved = mva::solve(&self.stations, customers);
        solved.last().map_or(0.0, |solution| solution.rate)
    }
}

/// The demand of a transaction.
#[must_use]
pub fn demand(system: &System) -> Demand {
    let class = &system.class;
    let messages = if system.shape == Shape::RequestReply { 2.0 } else { 1.0 };
    let in_flight = f64::from(system.window.max(1));
    let together = (in_flight / 8.0).clamp(1.0, 128.0);
    // What is in flight at least waits.
    let cache = system.cores.cache_bytes;
    let waiting = in_flight * f64::from(system.pairs) * class.bytes;
    let far = if cache > 0.0 { waiting / (waiting + cache) } else { 0.0 };
    let step = |step: &super::operations::Step| step.message + step.far * far + step.turn / together;
    let new = class.new_key_share();
    let protected = f64::from(u8::from(class.is_protected()));
    let with_adapters = if class.live_on_dispatcher { new } else { 1.0 } * protected;
    let with_live = if class.live_on_dispatcher { 2.0 * class.live * protected * (1.0 - new) } else { 0.0 };
    let inline_live = if class.live_on_dispatcher { class.seal_live + class.open_live } else { 0.0 };
    let mut devices_cpu = 0.0;
    let mut jobs = 0.0;
    let mut inline = 0.0;
    let mut stations = Vec::new();
    let mut threads = Vec::new();
    let mut on_device: BTreeMap<Place2, f64> = BTreeMap::new();
    // At most what is in flight of a pair waits.
    let batch = class.sign_batch.min(system.window).max(1);
    let shares = f64::from(u8::from(batch > 1));
    for (operation, count) in class.operations(f64::from(batch)) {
        let best = system.devices.iter().filter_map(|(_, device)| {
            let lanes = device.lanes.max(1);
            let filled = if in_flight >= f64::from(lanes) { lanes } else { 1 };
            let each = device.times(&class.key, operation)?.call(filled, lanes) / f64::from(filled);
            Some((each + device.call_us / f64::from(filled) + device.job_us, device))
        });
        let best = best.min_by(|a, b| a.0.total_cmp(&b.0));
        match (class.cpu_us(operation), best) {
            (Some(cpu), best) if best.as_ref().is_none_or(|(each, _)| cpu <= *each) => {
                devices_cpu += count * cpu;
                inline += count;
            }
            (_, Some((each, device))) => {
                jobs += count;
                if device.place == Place::Cores {
                    devices_cpu += count * each;
                }
                *on_device.entry((device.place == Place::Card, device.kind)).or_insert(0.0) += count * each * messages;
            }
            _ => {}
        }
    }
    for ((card, kind), us) in on_device {
        let engines = system.devices.iter().filter(|(_, device)| device.kind == kind).map(|(_, device)| device.engines);
        let station = Station::queue(kind.as_str(), engines.sum::<u32>().max(1), us);
        if card { stations.push(station) } else { threads.push(station) }
    }
    let channel = f64::from(u8::from(system.channel));
    let role = |us: f64| us * messages;
    let tls = role(2.0 * class.tls_client + channel * 2.0 * class.tls_channel);
    let queue_manager = role(
        step(&class.qm_put) + step(&class.qm_get) + class.persist + 2.0 * class.hand_over * with_adapters + with_live,
    );
    let channel_initiator =
        role(channel * (class.send.message + class.send.turn + class.receive.message + class.receive.turn));
    let adapters = role(
        with_adapters * 2.0 * (class.task + class.adapter_turn / together)
            + protected * new * (class.seal + class.open)
            + shares * (class.leaf + class.branch)
            + if class.live_on_dispatcher {
                0.0
            } else {
                protected * (1.0 - new) * (class.seal_live + class.open_live)
            }
            + jobs * class.job
            + inline * class.inline,
    );
    let live = role(protected * (1.0 - new) * inline_live);
    let journal = if class.persistent { role(step(&class.journal)) } else { 0.0 };
    let cpu_us = BTreeMap::from([
        ("application", role(step(&class.app_put) + step(&class.app_get) + 2.0 * class.tls_client)),
        ("queue-manager", queue_manager),
        ("channel-initiator", channel_initiator),
        ("tls", tls),
        ("protection", adapters + live),
        ("devices", role(devices_cpu)),
        ("journal", journal),
    ]);
    let total: f64 = cpu_us.values().sum();
    let cores = system.cores.count;
    let crowded = if cores > 1 && in_flight * f64::from(system.pairs) > 1.0 { system.cores.crowding } else { 0.0 };
    stations.push(Station::queue("cores", cores, total * (1.0 + crowded)));
    if class.persistent {
        let shared = if system.journal.group_commit { together } else { 1.0 };
        let bytes = system.journal.bytes_per_second;
        let written = if bytes > 0.0 { class.bytes / bytes * 1e6 } else { 0.0 };
        stations.push(Station::queue("journal", 1, role(system.journal.sync_us / shared + written)));
    }
    stations.push(Station::delay("network", role(system.network_us * (2.0 + channel))));
    let dispatcher = queue_manager + channel_initiator + tls / 2.0 + live;
    let dispatchers = system.dispatchers * if system.channel { 2 } else { 1 };
    threads.push(Station::queue("dispatcher", dispatchers, dispatcher));
    if protected > 0.0 {
        threads.push(Station::queue(
            "adapters",
            system.adapters,
            adapters + role(if jobs > 0.0 { 0.0 } else { devices_cpu }),
        ));
    }
    Demand { cpu_us, stations, threads }
}

/// Whether it is a card, and of which kind.
type Place2 = (bool, DeviceKind);

/// One message of a channel at a time.
fn serial_channel(
    profile: &Profile,
    channel: &SerialChannel,
    configuration: &Configuration,
    workload: Workload,
) -> Result<Prediction> {
    let class = Class::new(profile, configuration)?;
    if class.sign_batch > 1 {
        return Err(Error::Usage(format!(
            "profile {} is of a channel that protects one message at a time: each has a signature of its own",
            profile.name
        )));
    }
    let service = adapter_us(profile, channel, configuration, &class)? + channel.rest_us;
    let channels = f64::from(configuration.pairs.max(1));
    let messages = if workload == Workload::RequestReply { 2.0 } else { 1.0 };
    let bound = 1.0 / (service * messages) * 1e6;
    let station = [Station::queue("channel", 1, service * messages)];
    let customers = configuration.in_flight.max(1);
    let closed = mva::solve(&station, customers).pop();
    let closed_rate = closed.as_ref().map_or(0.0, |closed| closed.rate * 1e6);
    let wanted = configuration.target_rate as f64 / channels;
    let (solver, rate, mean) = match closed {
        Some(_) if configuration.target_rate > 0 && wanted < bound => {
            let open = queueing::m_d_1(wanted / 1e6, service * messages);
            (Solver::Formula, wanted, open.response)
        }
        Some(closed) => (Solver::MeanValueAnalysis, closed_rate, closed.response),
        None => (Solver::MeanValueAnalysis, 0.0, 0.0),
    };
    // A closed line whose head takes the same time each time: each waits for all others, and none longer.
    let open = solver == Solver::Formula;
    let at = |part| if open { queueing::exponential_percentile(mean, part) } else { mean };
    let stations = vec![StationUse { name: "channel".to_owned(), servers: channels, utilisation: rate / bound }];
    let held = held(rate * channels, configuration);
    Ok(Prediction {
        profile: profile.name.clone(),
        source: profile.source.clone(),
        configuration: configuration.clone(),
        workload,
        solver,
        rate: rate * channels,
        rate_within: 0.0,
        held,
        latency_us: Latency {
            mean,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: if open { 0.0 } else { mean },
        },
        latency_approximate: open,
        cores_busy: 0.0,
        bottleneck: bottleneck(&stations, held != Some(true)),
        stations,
        cpu_us: BTreeMap::new(),
        operations: operations(&class, workload, None),
        sharing: None,
        devices: Vec::new(),
        bound: bound * channels,
        mean_value_rate: closed_rate * channels,
        remarks: vec![format!(
            "one message at a time: {:.1} µs with the adapter, {:.1} µs beside it",
            service - channel.rest_us,
            channel.rest_us
        )],
    })
}

/// The adapter's elapsed time for a message: as the profile has it, or all parts one after the other.
fn adapter_us(profile: &Profile, channel: &SerialChannel, configuration: &Configuration, class: &Class) -> Result<f64> {
    let quality = configuration.quality;
    let of_key = |key: &str| {
        let rows = channel.adapter.iter().filter(move |row| row.quality == quality && row.key == key);
        rows.map(|row| (row.reuse.fresh_share(), row.elapsed_us)).collect::<Vec<_>>()
    };
    let mut rows = of_key(&configuration.key);
    if rows.is_empty() {
        rows = of_key("");
    }
    let share = configuration.reuse.fresh_share();
    if let Some(us) = between(&rows, share) {
        return Ok(us);
    }
    if quality == Quality::None {
        return Ok(0.0);
    }
    let new = class.new_key_share();
    let mut us = new * class.seal + (1.0 - new) * class.seal_live;
    for operation in &class.seal_steps {
        let device = profile.devices.values().filter_map(|device| device.times(&class.key, *operation));
        let times = device.map(|times| times.alone).chain(class.cpu_us(*operation));
        let Some(least) = times.min_by(f64::total_cmp) else {
            let (name, reuse) = (&profile.name, configuration.reuse);
            return Err(Error::Usage(format!(
                "profile {name} does not say what an adapter takes for {quality} with reuse {reuse}"
            )));
        };
        us += new * least;
    }
    Ok(us)
}

/// On the straight line between the two rows around a share; exactly a row's own. None beyond them.
fn between(rows: &[(f64, f64)], share: f64) -> Option<f64> {
    let below = rows.iter().filter(|row| row.0 <= share).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let above = rows.iter().filter(|row| row.0 >= share).min_by(|a, b| a.0.total_cmp(&b.0))?;
    let width = above.0 - below.0;
    if width <= 0.0 {
        return Some(below.1);
    }
    Some(below.1 + (above.1 - below.1) * (share - below.0) / width)
}

#[cfg(test)]
mod tests;
