//! From a profile and a configuration of the trading workload to what it would do.

use super::acts::{Connecting, Work, orders_of_mix};
use super::costs::{Ends, Https};
use super::simulation::{self, Outcome, System};
use crate::configuration::{Configuration, Quality};
use crate::error::{Error, Result};
use crate::plan::mva::{self, Station};
use crate::plan::predict::{DeviceUse, Prediction, Solver, StationUse, Workload, bottleneck, latency, parse_devices};
use crate::plan::profile::{Device, DeviceKind, Operation, Place, Profile};
use crate::plan::what_if::set_cores;
use crate::workload::trade::TLS13;
use bulla_device::Form;
use std::collections::BTreeMap;

/// The key that orders are sealed with, where nothing else is said.
const ORDER_KEY: &str = "rsa2048";
/// Most customers that are planned.
pub(crate) const CUSTOMERS_MAX: u32 = 1_000;
/// Each key operation is needed so often for an order: to seal and open it, and its confirmation.
const OPERATIONS_OF_ORDER: f64 = 2.0;

/// Where customers and broker are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Customers {
    /// On the same cores as the queue manager, as `bulla perf trade` has it.
    #[default]
    Here,
    /// On a machine of their own, which is never full.
    Elsewhere,
}

/// What a configuration does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The key that orders are sealed with.
    pub order_key: String,
    /// Where customers and broker are.
    pub customers: Customers,
    /// So many cores instead of the profile's.
    pub cores: Option<u32>,
    /// One modelled accelerator carries so many times what software does.
    pub card_carries: Option<f64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { order_key: ORDER_KEY.to_owned(), customers: Customers::Here, cores: None, card_carries: None }
    }
}

/// What customers would see, and what it would cost.
///
/// # Errors
/// [`Error::Usage`]: the configuration asks for what is not planned, or for what the profile does not describe.
pub fn predict(profile: &Profile, configuration: &Configuration, setup: &Setup, seed: u64) -> Result<Prediction> {
    check(configuration)?;
    let Some(https) = &profile.https else {
        return Err(Error::Usage(format!(
            "profile {} (format {}) lacks [https]: it does not say what HTTPS takes; `bulla plan calibrate` measures it",
            profile.name, profile.format
        )));
    };
    let mut profile = profile.clone();
    if let Some(cores) = setup.cores {
        set_cores(&mut profile, cores)?;
    }
    let mut remarks = Vec::new();
    let card = match setup.card_carries {
        Some(times) => Some(card_carrying(&profile, https, configuration, setup, times, seed, &mut remarks)?),
        None => None,
    };
    let system = system(&profile, https, configuration, setup, card)?;
    if configuration.devices.starts_with("modelled:") {
        remarks.push(
            "with modelled devices: a card computes by itself, and costs leave out what its arithmetic takes where it \
             is only modelled (modelled-cpu-us)"
                .to_owned(),
        );
    }
    if setup.customers == Customers::Elsewhere {
        remarks.push("customers and broker are on a machine of their own; cores are the queue manager's".to_owned());
    }
    let outcome = simulation::run(&system, seed);
    if !outcome.complete {
        remarks.push("the simulation was ended before its time".to_owned());
    }
    Ok(prediction(&profile, configuration, &system, &outcome, remarks))
}

fn check(configuration: &Configuration) -> Result<()> {
    let usage = |message: &str| Err(Error::Usage(message.to_owned()));
    if configuration.target_rate > 0 {
        return usage("https is planned as fast as it goes: leave the rate out");
    }
    if configuration.quality != Quality::None || configuration.persistent || configuration.topology != "local" {
        return usage("https has its own mix of messages: leave quality, persistent and topology out");
    }
    if configuration.key.is_empty() {
        return usage("https needs the key of the listener's certificate: --key rsa4096");
    }
    if configuration.in_flight > CUSTOMERS_MAX {
        return Err(Error::Usage(format!("at most {CUSTOMERS_MAX} clients are planned")));
    }
    Ok(())
}

/// Operations with the listener's key and with that of orders, a transaction.
fn operations(configuration: &Configuration) -> (f64, f64) {
    let orders = orders_of_mix();
    let handshakes = (1.0 + orders) / f64::from(configuration.requests.max(1));
    (if configuration.resumed { 0.0 } else { handshakes }, OPERATIONS_OF_ORDER * orders)
}

/// The time for the listener's key with which one accelerator carries so many times what software does, by its bits.
fn card_carrying(
    profile: &Profile,
    https: &Https,
    configuration: &Configuration,
    setup: &Setup,
    times: f64,
    seed: u64,
    remarks: &mut Vec<String>,
) -> Result<(String, f64)> {
    let Some(bits) = configuration.key.strip_prefix("rsa") else {
        return Err(Error::Usage(format!("no accelerator has {}: a card is derived for RSA alone", configuration.key)));
    };
    let software = Configuration { devices: "software".to_owned(), ..configuration.clone() };
    let in_software = simulation::run(&system(profile, https, &software, setup, None)?, seed);
    let rate = in_software.rate;
    let card = built_in(DeviceKind::Accelerator);
    let (signs, of_orders) = operations(configuration);
    let us = |operation| card.times(&setup.order_key, operation).map_or(0.0, |times| times.alone);
    let same = setup.order_key == configuration.key;
    let others: f64 = Operation::ALL
        .into_iter()
        .filter(|operation| !(same && matches!(operation, Operation::Sign | Operation::Unwrap)))
        .map(|operation| of_orders * us(operation))
        .sum();
    let main = signs + if same { 2.0 * of_orders } else { 0.0 };
    let us = (1e6 / (times * rate) - others) / main;
    if !us.is_finite() || us < 1.0 {
        return Err(Error::Usage(format!("no card carries {times} times what software does: orders take it all")));
    }
    remarks.push(format!(
        "derived: RSA-CRT-{bits}={us:.0}, so that one accelerator carries {times} times what software does, which is \
         predicted as {rate:.0} a second"
    ));
    remarks.push(where_cores_are_full(profile, setup, &in_software));
    Ok((bits.to_owned(), us))
}

/// How many times what software does the cores carry by themselves, whatever cards there are: a card takes operations
/// with keys from them, and nothing else.
fn where_cores_are_full(profile: &Profile, setup: &Setup, software: &Outcome) -> String {
    let is_here = |role: &str| !(setup.customers == Customers::Elsewhere && role == "application");
    let all: f64 = software.cpu_us.iter().filter(|(role, _)| is_here(role)).map(|(_, us)| us).sum();
    let own = all - software.cpu_us.get("devices").copied().unwrap_or(0.0);
    let cores = profile.cores.count;
    let times = f64::from(cores) / own * 1e6 / software.rate;
    format!(
        "software is predicted to keep {:.1} of {cores} cores busy with {all:.0} µs a transaction, {own:.0} of them \
         without operations with keys: cores that are full of those carry {times:.1} times what software does",
        software.cores_busy
    )
}

/// A modelled card, as the queue manager has it by itself.
fn built_in(kind: DeviceKind) -> Device {
    let card = match kind {
        DeviceKind::Accelerator => bulla_device::Profile::accelerator(),
        DeviceKind::Coprocessor => bulla_device::Profile::coprocessor(),
    };
    let mut device = Device {
        kind,
        modelled: true,
        place: Place::Card,
        engines: 1,
        lanes: 1,
        pending: 0,
        call_us: 0.0,
        job_us: 0.0,
        operations: BTreeMap::new(),
        me_us: BTreeMap::new(),
        crt_us: BTreeMap::new(),
    };
    for time in card.times() {
        let (us, bits) = (time.time.as_secs_f64() * 1e6, time.shape.bits);
        let mut on_curve = |operation| {
            device.operations.entry(format!("p{bits}")).or_default().set(operation, us.into());
        };
        match time.shape.form {
            Form::RsaMe => drop(device.me_us.insert(bits.to_string(), us)),
            Form::RsaCrt => drop(device.crt_us.insert(bits.to_string(), us)),
            Form::EcdsaSign => on_curve(Operation::Sign),
            Form::EcdsaVerify => on_curve(Operation::Verify),
            Form::Ecdh => on_curve(Operation::Unwrap),
            Form::EcdhEphemeral => on_curve(Operation::Wrap),
            _ => {}
        }
    }
    device
}

/// Devices that a configuration asks for: the profile's, or for modelled ones that it does not have the built-in ones.
fn devices(
    profile: &Profile,
    configuration: &Configuration,
    card: Option<(String, f64)>,
) -> Result<Vec<(String, Device)>> {
    let (wanted, modelled) = parse_devices(&configuration.devices)?;
    let mut devices = Vec::new();
    for (kind, count) in wanted {
        let (name, mut device) = match (profile.device(kind, modelled), modelled) {
            (Some((name, device)), _) => (name.to_owned(), device.clone()),
            (None, true) => (kind.as_str().to_owned(), built_in(kind)),
            (None, false) => {
                return Err(Error::Usage(format!("profile {} describes no {}", profile.name, kind.as_str())));
            }
        };
        if let Some((bits, us)) = card.clone().filter(|_| modelled && kind == DeviceKind::Accelerator) {
            device.operations.remove(&format!("rsa{bits}"));
            device.crt_us.insert(bits, us);
        }
        devices.extend((1..=count).map(|number| (format!("{name}{number}"), device.clone())));
    }
    Ok(devices)
}

fn system(
    profile: &Profile,
    https: &Https,
    configuration: &Configuration,
    setup: &Setup,
    card: Option<(String, f64)>,
) -> Result<System> {
    let devices = devices(profile, configuration, card)?;
    let is_software = configuration.devices == "software";
    let keys = [configuration.key.clone(), setup.order_key.clone()];
    // Modelled cards have the keys' work to themselves, unless it is accelerators and a key is on a curve.
    let modelled = configuration.devices.starts_with("modelled:");
    let on_curve = keys.iter().any(|key| key.starts_with('p'));
    let accelerators = devices.iter().any(|(_, device)| device.kind == DeviceKind::Accelerator);
    let all_cards = modelled && !(on_curve && accelerators);
    let processor = if is_software { &profile.software } else { &profile.cpu };
    let mut cpu = [[None; 4]; 2];
    for (key, times) in keys.iter().zip(&mut cpu) {
        for operation in Operation::ALL {
            let on_card = devices.iter().any(|(_, device)| device.times(key, operation).is_some());
            let known = processor.get(key).and_then(|operations| operations.get(operation));
            if known.is_none() && !on_card && (*key != keys[0] || operation == Operation::Sign) {
                let (name, place) = (&profile.name, if is_software { " in software" } else { "" });
                let operation = operation.as_str();
                return Err(Error::Usage(format!(
                    "profile {name} does not say what {operation} takes with {key}{place}"
                )));
            }
            times[operation as usize] = known.map(|times| times.alone).filter(|_| !(all_cards && on_card));
        }
    }
    let (mut https, software) = (https.mixed(), https.software);
    if is_software {
        let requests = |ends: &mut Ends| *ends = ends.times(software.request_times, 1.0);
        let Https { get, get_4k, list, put, put_persistent, publish, order, .. } = &mut https;
        [get, get_4k, list, put, put_persistent, publish].into_iter().for_each(requests);
        order.queue_manager_us *= software.request_times;
        order.protection_us *= software.request_times;
    }
    let handshakes = if configuration.cipher == TLS13 { https.tls13 } else { https.tls12 };
    let times = if is_software { software.handshake_times } else { 1.0 };
    let (mut full, resumed) = (handshakes.full.times(times, 1.0), handshakes.resumed.times(times, 1.0));
    // The client checks the signature.
    let checks = profile.cpu.get(&configuration.key).and_then(|operations| operations.verify);
    full.application_us += checks.map_or(0.0, |times| times.alone);
    let requests = configuration.requests.max(1);
    let connecting = Connecting { requests, full, resumed, resumes: configuration.resumed };
    let or_default = |count, default| if count > 0 { count } else { default };
    Ok(System {
        cores: profile.cores,
        dispatchers: or_default(configuration.dispatchers, profile.threads.dispatchers).max(1),
        adapters: or_default(configuration.adapters, profile.threads.adapters).max(1),
        customers: configuration.in_flight.max(1),
        elsewhere: setup.customers == Customers::Elsewhere,
        network_us: profile.network.one_way_us,
        work: Work { connecting, https },
        keys,
        cpu,
        devices,
        job_us: profile.costs.protection.job_us,
    })
}

fn prediction(
    profile: &Profile,
    configuration: &Configuration,
    system: &System,
    outcome: &Outcome,
    remarks: Vec<String>,
) -> Prediction {
    let capacity = f64::from(profile.cores.count) - profile.cores.background;
    let station = |name: &str, servers: u32, utilisation: f64| StationUse {
        name: name.to_owned(),
        servers: f64::from(servers),
        utilisation: utilisation.min(1.0),
    };
    let mut stations = vec![station("cores", profile.cores.count, outcome.cores_busy / capacity)];
    let threads = outcome.threads.iter().filter(|(name, ..)| !(system.elsewhere && *name == "application"));
    stations.extend(threads.map(|(name, servers, utilisation)| station(name, *servers, *utilisation)));
    let beside: Vec<_> = outcome.devices.iter().filter(|device| device.engines > 0).collect();
    stations.extend(beside.iter().map(|device| station(&device.name, device.engines, device.utilisation)));
    // What a transaction takes of the cores and of all cards, from which two other rates follow.
    let here = outcome.cpu_us.iter().filter(|(role, _)| !(system.elsewhere && **role == "application"));
    let mut parts = vec![Station::queue("cores", profile.cores.count, here.map(|(_, us)| us).sum())];
    let cards = system.devices.iter().zip(&beside).filter(|((_, spec), _)| spec.place == Place::Card);
    let cards: Vec<_> = cards.map(|(_, used)| used).collect();
    if !cards.is_empty() && outcome.rate > 0.0 {
        let us = cards.iter().map(|used| used.utilisation * f64::from(used.engines)).sum::<f64>() / outcome.rate * 1e6;
        parts.push(Station::queue("cards", cards.iter().map(|used| used.engines).sum(), us));
    }
    let bound = mva::bound(&parts, u32::MAX);
    let solved = mva::solve(&parts, system.customers);
    let mean_value_rate = solved.last().map_or(0.0, |solution| solution.rate).min(bound) * 1e6;
    let mean = outcome.responses.iter().sum::<f64>() / (outcome.responses.len() as f64).max(1.0);
    let (signs, of_orders) = operations(configuration);
    let counts = Operation::ALL.map(|operation| {
        let of_listener = if operation == Operation::Sign { signs } else { 0.0 };
        (operation.as_str().to_owned(), of_listener + of_orders)
    });
    Prediction {
        sharing: None,
        profile: profile.name.clone(),
        source: profile.source.clone(),
        configuration: configuration.clone(),
        workload: Workload::Https,
        solver: Solver::Simulation,
        rate: outcome.rate,
        rate_within: outcome.rate_within,
        held: None,
        latency_us: latency(&outcome.responses, mean),
        latency_approximate: false,
        cores_busy: outcome.cores_busy,
        bottleneck: bottleneck(&stations, true),
        stations,
        cpu_us: outcome.cpu_us.iter().map(|(role, us)| ((*role).to_owned(), *us)).collect(),
        operations: counts.into(),
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
        bound: bound * 1e6,
        mean_value_rate,
        remarks,
    }
}
