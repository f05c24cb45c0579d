//! The cheapest setup that holds a rate.

use super::predict::{HELD_PART, Prediction, Workload, demand, parse_devices, predict_workload, system};
use super::profile::{DeviceKind, Place, Profile};
use super::what_if::{set_cores, set_devices};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use serde::Serialize;

/// What things cost, in cores: only their order matters. A thread costs next to nothing, a device that computes on the
/// cores little more; a card costs more than any of the machines that are looked at would save.
pub const THREAD_COST: f64 = 0.01;
/// A device that computes on the cores.
pub const DEVICE_COST: f64 = 0.1;
/// A card.
pub const CARD_COST: f64 = 8.0;
/// Cores that are looked at.
const CORES: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Devices of each kind that are looked at, at most.
const DEVICES: u32 = 4;
/// Dispatchers that are looked at.
const DISPATCHERS: [u32; 4] = [1, 2, 4, 8];
/// Setups that are simulated, at most.
const SIMULATED_MAX: usize = 60;

/// A machine that might do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// Cores.
    pub cores: u32,
    /// Devices as a configuration has them.
    pub devices: String,
    /// Dispatchers.
    pub dispatchers: u32,
    /// Adapters.
    pub adapters: u32,
    /// What it costs, in cores.
    pub cost: f64,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Transactions a second.
    pub wanted: u64,
    /// The cheapest that holds it; none where nothing that was looked at does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Setup>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// Setups that were passed over because their parts alone do not allow it, and those that were computed in full.
    pub passed_over: usize,
    /// Setups that were computed.
    pub computed: usize,
    /// Whether the search ended there, and dearer setups were not looked at.
    pub cut_short: bool,
}

/// Looks for it, from the cheapest on.
///
/// # Errors
/// [`Error::Usage`]: the configuration can't be planned.
pub fn cheapest(
    profile: &Profile,
    configuration: &Configuration,
    workload: Workload,
    seed: u64,
    wanted: u64,
) -> Result<Target> {
    let mut configuration = Configuration { target_rate: wanted, ..configuration.clone() };
    let mut target = Target { wanted, setup: None, prediction: None, passed_over: 0, computed: 0, cut_short: false };
    if profile.channel.is_some() {
        // Nothing of what can be bought is part of it but another channel; that it holds the rate or not is all there
        // is to say.
        let prediction = predict_workload(profile, &configuration, workload, seed)?;
        target.computed = 1;
        if prediction.held == Some(true) {
            let threads = profile.threads;
            target.setup = Some(Setup {
                cores: profile.cores.count,
                devices: configuration.devices.clone(),
                dispatchers: threads.dispatchers,
                adapters: threads.adapters,
                cost: f64::from(profile.cores.count),
            });
            target.prediction = Some(prediction);
        }
        return Ok(target);
    }
    for setup in setups(profile, &configuration)? {
        let mut machine = profile.clone();
        if set_cores(&mut machine, setup.cores).is_err() {
            continue;
        }
        configuration.devices.clone_from(&setup.devices);
        (configuration.dispatchers, configuration.adapters) = (setup.dispatchers, setup.adapters);
        let parts = system(&machine, &configuration, workload)?;
        if demand(&parts).bound() * 1e6 < HELD_PART * wanted as f64 {
            target.passed_over += 1;
            continue;
        }
        if target.computed == SIMULATED_MAX {
            target.cut_short = true;
            break;
        }
        target.computed += 1;
        let prediction = predict_workload(&machine, &configuration, workload, seed)?;
        if prediction.held == Some(true) {
            (target.setup, target.prediction) = (Some(setup), Some(prediction));
            break;
        }
    }
    Ok(target)
}

/// All that are looked at, cheapest first.
fn setups(profile: &Profile, configuration: &Configuration) -> Result<Vec<Setup>> {
    let (wanted, modelled) = parse_devices(&configuration.devices)?;
    let most = |kind: DeviceKind| {
        let there = profile.device(kind, modelled).or_else(|| profile.device(kind, !modelled));
        // Of two kinds at once only those can be had that are modelled, or are not, as the others.
        match (there, wanted.is_empty() || profile.device(kind, modelled).is_some()) {
            (Some((_, device)), true) => (DEVICES, if device.place == Place::Card { CARD_COST } else { DEVICE_COST }),
            _ => (0, 0.0),
        }
    };
    let ((accelerators, accelerator_cost), (coprocessors, coprocessor_cost)) =
        (most(DeviceKind::Accelerator), most(DeviceKind::Coprocessor));
    let mut setups = Vec::new();
    for cores in CORES {
        for dispatchers in DISPATCHERS.into_iter().filter(|dispatchers| *dispatchers <= cores) {
            for a in 0..=accelerators {
                for c in 0..=coprocessors {
                    let mut with = configuration.clone();
                    // From none on, so that the kind that is there decides whether they are modelled.
                    if configuration.devices != "software" {
                        "cpu".clone_into(&mut with.devices);
                    }
                    set_devices(profile, &mut with, DeviceKind::Accelerator, a)?;
                    set_devices(profile, &mut with, DeviceKind::Coprocessor, c)?;
                    let (kinds, as_modelled) = parse_devices(&with.devices)?;
                    if kinds.iter().any(|(kind, _)| profile.device(*kind, as_modelled).is_none()) {
                        continue;
                    }
                    let adapters = cores;
                    let threads = THREAD_COST * f64::from(dispatchers + adapters);
                    let cards = f64::from(a) * accelerator_cost + f64::from(c) * coprocessor_cost;
                    let cost = f64::from(cores) + threads + cards;
                    setups.push(Setup { cores, devices: with.devices, dispatchers, adapters, cost });
                }
            }
        }
    }
    if setups.is_empty() {
        return Err(Error::Usage("there is no setup to look at".to_owned()));
    }
    setups.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    Ok(setups)
}
