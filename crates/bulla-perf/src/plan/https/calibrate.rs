//! What HTTPS takes on this machine: runs of the trading workload in which customers do one thing alone.

use super::acts::{mean_of_mix, orders_of_mix};
use super::costs::{Ends, Handshakes, Https, Mix, MixTimes, Order, Software, times};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::plan::pace;
use crate::plan::profile::{Operation, Operations, Profile};
use crate::plan::service_times::median;
use crate::plan::teller::Teller;
use crate::result::Sample;
use crate::run::measure::Timing;
use crate::workload::trade::{Act, Short, TLS13};
use std::collections::BTreeMap;

/// Customers of each run, and requests of a connection that is kept.
const CUSTOMERS: u32 = 8;
const KEPT: u32 = 10_000;
/// The listener's key where its length does not matter, and the suite of TLS 1.2.
const KEY: &str = "rsa2048";
/// The listener's key where the mix is measured on fresh connections: one whose signatures neither take all the time
/// nor next to none.
const MIX_KEY: &str = "rsa3072";
/// Keys of which it is measured what software signs with them.
const SOFTWARE_KEYS: [&str; 3] = ["rsa2048", "rsa4096", "p256"];
/// An operation of which a run has fewer is not known.
const OPERATIONS_MIN: u64 = 8;
/// Roles that are not the queue manager's own: operations with keys are known by themselves.
const OTHERS: [&str; 4] = ["application", "devices", "protection", "unattributed"];

/// What one run is.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// What customers do; none for the mix.
    act: Option<Act>,
    key: &'static str,
    requests: u32,
    resumed: bool,
    tls13: bool,
    software: bool,
}

const KEPT_12: Trial =
    Trial { act: Some(Act::Quote), key: KEY, requests: KEPT, resumed: false, tls13: false, software: false };
const FRESH_12: Trial = Trial { requests: 1, ..KEPT_12 };
const FRESH_13: Trial = Trial { tls13: true, ..FRESH_12 };

impl Trial {
    fn configuration(&self) -> Configuration {
        let cipher = match (self.tls13, self.key.starts_with("rsa")) {
            (true, _) => TLS13,
            (false, true) => "ECDHE_RSA_AES_256_GCM_SHA384",
            (false, false) => "ECDHE_ECDSA_AES_256_GCM_SHA384",
        };
        Configuration {
            key: self.key.to_owned(),
            bytes: 0,
            in_flight: CUSTOMERS,
            devices: if self.software { "software" } else { "cpu" }.to_owned(),
            cipher: cipher.to_owned(),
            requests: self.requests,
            resumed: self.resumed,
            ..Configuration::default()
        }
    }
}

/// What a transaction of a run took, microseconds, at the speed of the profile.
#[derive(Clone, Debug, Default)]
struct Taken {
    ends: Ends,
    protection_us: f64,
    /// Execution times by operation and key.
    operations: BTreeMap<(String, Operation), f64>,
}

/// Measures, and writes it into the profile: what HTTPS takes, and operations in software.
///
/// # Errors
/// What ended a queue manager or a customer; whatever the teller says.
pub(in crate::plan) fn measure(
    host: &dyn Host,
    profile: &mut Profile,
    timing: Timing,
    repeats: u32,
    teller: &Teller,
) -> Result<()> {
    let kept = |act| Trial { act: Some(act), ..KEPT_12 };
    let mixed = |trial| Trial { act: None, ..trial };
    let resumed = |trial| Trial { resumed: true, ..trial };
    let software = |trial| Trial { software: true, ..trial };
    let acts = [Act::Quote, Act::Home, Act::Portfolio, Act::Update, Act::Register, Act::SignOut, Act::Buy].map(kept);
    let mixes = [mixed(KEPT_12), mixed(Trial { key: MIX_KEY, ..FRESH_12 })];
    let handshakes = [FRESH_12, resumed(FRESH_12), FRESH_13, resumed(FRESH_13)];
    let in_software = [software(kept(Act::Quote)), software(kept(Act::Buy))];
    let signs = SOFTWARE_KEYS.map(|key| software(Trial { key, ..FRESH_12 }));
    let trials: Vec<Trial> = acts.into_iter().chain(mixes).chain(handshakes).chain(in_software).chain(signs).collect();
    let mut short = Short::new(host, CUSTOMERS);
    let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); trials.len()];
    for repeat in 1..=repeats {
        for (number, trial) in trials.iter().enumerate() {
            teller.begin(&format!("https, {} of {}, round {repeat} of {repeats}", number + 1, trials.len()))?;
            let running = short.start(&trial.configuration(), trial.act)?;
            let sample = pace::watched(host, running, &trial.configuration(), timing, teller)?;
            taken[number].push(of(&sample, profile));
        }
    }
    short.finish()?;
    let middles: Vec<Taken> = taken.iter().map(|repeats| middle(repeats)).collect();
    let [
        quote,
        home,
        list,
        put,
        persistent,
        publish,
        buy,
        kept_mix,
        fresh_mix,
        full12,
        resumed12,
        full13,
        resumed13,
        slow_quote,
        slow_buy,
        slow_signs @ ..,
    ] = middles.as_slice()
    else {
        return Err(Error::Usage("a run of HTTPS is missing".to_owned()));
    };
    // A handshake is what a fresh connection has beyond a kept one; its check is known by itself.
    let checks = profile.cpu.get(KEY).and_then(|operations| operations.verify).map_or(0.0, |times| times.alone);
    let beyond = |fresh: &Taken, kept: &Taken, checks: f64| Ends {
        queue_manager_us: (fresh.ends.queue_manager_us - kept.ends.queue_manager_us).max(0.0),
        application_us: (fresh.ends.application_us - kept.ends.application_us - checks).max(0.0),
    };
    let handshakes =
        |full, resumed| Handshakes { full: beyond(full, quote, checks), resumed: beyond(resumed, quote, 0.0) };
    let tls12 = handshakes(full12, resumed12);
    let slow_full = slow_signs.first().map_or(Ends::default(), |slow| beyond(slow, slow_quote, checks));
    let mut https = Https {
        tls12,
        tls13: handshakes(full13, resumed13),
        get: quote.ends,
        get_4k: home.ends,
        list: list.ends,
        put: put.ends,
        put_persistent: persistent.ends,
        publish: publish.ends,
        order: Order {
            queue_manager_us: buy.ends.queue_manager_us,
            application_us: buy.ends.application_us,
            protection_us: buy.protection_us,
        },
        mix: Mix::default(),
        software: Software {
            handshake_times: times(slow_full.queue_manager_us, tls12.full.queue_manager_us),
            request_times: times(slow_quote.ends.queue_manager_us, quote.ends.queue_manager_us),
        },
    };
    let connections = 1.0 + orders_of_mix();
    let check = profile.cpu.get(MIX_KEY).and_then(|operations| operations.verify).map_or(0.0, |times| times.alone);
    let handshake = beyond(fresh_mix, kept_mix, connections * check).times(1.0 / connections, 1.0 / connections);
    https.mix = Mix {
        protection_times: times(kept_mix.protection_us, orders_of_mix() * https.order.protection_us),
        request: MixTimes::of(kept_mix.ends, mean_of_mix(&https)),
        handshake: MixTimes::of(handshake, tls12.full),
    };
    profile.https = Some(https);
    profile.software = in_software_by_key(slow_signs.iter().chain([slow_buy]));
    Ok(())
}

/// Operations that runs in software had, the shortest of each.
fn in_software_by_key<'a>(runs: impl Iterator<Item = &'a Taken>) -> BTreeMap<String, Operations> {
    let mut found: BTreeMap<String, Operations> = BTreeMap::new();
    for ((key, operation), us) in runs.flat_map(|taken| &taken.operations) {
        let operations = found.entry(key.clone()).or_default();
        if operations.get(*operation).is_none_or(|known| known.alone > *us) {
            operations.set(*operation, (*us).into());
        }
    }
    found
}

fn of(sample: &Sample, profile: &Profile) -> Taken {
    let pace = pace::of(sample);
    let even = if pace.rsa_us > 0.0 && profile.cores.pace_us > 0.0 { profile.cores.pace_us / pace.rsa_us } else { 1.0 };
    let role = |name: &str| sample.cpu_us.get(name).copied().unwrap_or(0.0) * even;
    let others = |name: &&String| !OTHERS.contains(&name.as_str());
    let queue_manager_us = sample.cpu_us.keys().filter(others).map(|name| role(name)).sum();
    let mut operations = BTreeMap::new();
    for used in sample.devices.iter().flat_map(|device| &device.operations) {
        let (operation, family) = match used.operation.as_str() {
            "rsa-sign" => (Operation::Sign, "rsa"),
            "rsa-verify" => (Operation::Verify, "rsa"),
            "rsa-wrap" => (Operation::Wrap, "rsa"),
            "rsa-unwrap" => (Operation::Unwrap, "rsa"),
            "ecdsa-sign" => (Operation::Sign, "p"),
            _ => continue,
        };
        if used.count >= OPERATIONS_MIN && used.execution_us > 0.0 {
            operations.insert((format!("{family}{}", used.bits), operation), used.execution_us * even);
        }
    }
    let ends = Ends { queue_manager_us, application_us: role("application") };
    Taken { ends, protection_us: role("protection"), operations }
}

/// The middle of each number by itself.
fn middle(repeats: &[Taken]) -> Taken {
    let of = |us: fn(&Taken) -> f64| median(repeats.iter().map(us).collect());
    let mut operations: BTreeMap<(String, Operation), Vec<f64>> = BTreeMap::new();
    for (which, us) in repeats.iter().flat_map(|taken| &taken.operations) {
        operations.entry(which.clone()).or_default().push(*us);
    }
    Taken {
        ends: Ends {
            queue_manager_us: of(|taken| taken.ends.queue_manager_us),
            application_us: of(|taken| taken.ends.application_us),
        },
        protection_us: of(|taken| taken.protection_us),
        operations: operations.into_iter().map(|(which, us)| (which, median(us))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{DeviceUse, OperationUse};

    #[test]
    fn a_sample_says_what_its_ends_took_at_the_speed_of_the_profile() {
        let mut profile = Profile::empty("here", "a test");
        profile.cores.pace_us = 100.0;
        let cpu = [("application", 30.0), ("queue-manager", 40.0), ("tls", 20.0), ("devices", 500.0)];
        let used = |count| OperationUse {
            operation: "rsa-sign".into(),
            bits: 4096,
            count,
            execution_us: 800.0,
            ..OperationUse::default()
        };
        let mut sample = Sample {
            cpu_us: cpu.map(|(role, us)| (role.to_owned(), us)).into(),
            devices: vec![DeviceUse { operations: vec![used(100)], ..DeviceUse::default() }],
            ..Sample::default()
        };
        pace::note(&mut sample, crate::plan::profile::Pace { rsa_us: 200.0, curve_us: 0.0 });
        let taken = of(&sample, &profile);
        assert_eq!(taken.ends, Ends { queue_manager_us: 30.0, application_us: 15.0 }, "the cores were half as fast");
        assert_eq!(taken.operations[&("rsa4096".to_owned(), Operation::Sign)], 400.0);
        let by_key = in_software_by_key([&taken, &taken].into_iter());
        assert_eq!(by_key["rsa4096"].sign.map(|times| times.alone), Some(400.0));
        sample.devices[0].operations = vec![used(OPERATIONS_MIN - 1)];
        assert!(of(&sample, &profile).operations.is_empty(), "too few to say anything");
    }
}
