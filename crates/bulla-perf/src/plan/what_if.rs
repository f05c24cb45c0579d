//! What would change: one thing at a time.

use super::predict::{Prediction, Workload, parse_devices, predict_workload};
use super::profile::{COUNT_MAX, DeviceKind, Profile};
use crate::configuration::{Configuration, Quality};
use crate::error::{Error, Result};
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Display;
use std::str::FromStr;

/// What may be asked, with an example of each.
pub const WHAT_IFS: [&str; 19] = [
    "rsa=4096",
    "ec=521",
    "key=p256",
    "quality=privacy",
    "reuse=32",
    "sign-batch=64",
    "recipients=3",
    "bytes=65536",
    "persistent=true",
    "pairs=4",
    "in-flight=1",
    "target-rate=10000",
    "cipher=TLS_AES_256_GCM_SHA384",
    "cores=4",
    "dispatchers=2",
    "adapters=8",
    "accelerators=2",
    "coprocessors=1",
    "devices=1a+1c",
];

/// Something else, and what comes of it.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// As it was asked: `rsa=4096`.
    pub change: String,
    /// What it would do.
    pub prediction: Prediction,
}

/// Predicts with one change.
///
/// # Errors
/// [`Error::Usage`]: there is no such change, its value is none, or what comes of it can't be planned.
pub fn what_if(
    profile: &Profile,
    configuration: &Configuration,
    workload: Workload,
    seed: u64,
    change: &str,
) -> Result<WhatIf> {
    let (mut profile, mut configuration) = (profile.clone(), configuration.clone());
    apply(&mut profile, &mut configuration, change)?;
    let prediction = predict_workload(&profile, &configuration, workload, seed)?;
    Ok(WhatIf { change: change.to_owned(), prediction })
}

/// Makes a change.
///
/// # Errors
/// [`Error::Usage`]: it is unknown, or its value is none.
pub fn apply(profile: &mut Profile, configuration: &mut Configuration, change: &str) -> Result<()> {
    let Some((what, value)) = change.split_once('=') else {
        return Err(Error::Usage(format!("{change}: a change is written as {}", WHAT_IFS.join(", "))));
    };
    match what {
        "rsa" => configuration.key = format!("rsa{}", number::<u32>(what, value)?),
        "ec" => configuration.key = format!("p{}", number::<u32>(what, value)?),
        "key" => value.clone_into(&mut configuration.key),
        "quality" => {
            let quality = Quality::from_str(value, true);
            configuration.quality = quality.map_err(|error| Error::Usage(format!("{what}={value}: {error}")))?;
        }
        "reuse" => configuration.reuse = number(what, value)?,
        "sign-batch" => configuration.sign_batch = number(what, value)?,
        "recipients" => configuration.recipients = number(what, value)?,
        "bytes" => configuration.bytes = number(what, value)?,
        "persistent" => configuration.persistent = number(what, value)?,
        "pairs" => configuration.pairs = number(what, value)?,
        "in-flight" => configuration.in_flight = number(what, value)?,
        "target-rate" => configuration.target_rate = number(what, value)?,
        "cipher" => value.clone_into(&mut configuration.cipher),
        "devices" => value.clone_into(&mut configuration.devices),
        "dispatchers" => configuration.dispatchers = number(what, value)?,
        "adapters" => configuration.adapters = number(what, value)?,
        "cores" => set_cores(profile, number(what, value)?)?,
        "accelerators" => set_devices(profile, configuration, DeviceKind::Accelerator, number(what, value)?)?,
        "coprocessors" => set_devices(profile, configuration, DeviceKind::Coprocessor, number(what, value)?)?,
        _ => return Err(Error::Usage(format!("{change}: what can change is {}", WHAT_IFS.join(", ")))),
    }
    Ok(())
}

/// Another number of cores. There are as many adapters as cores where that was so before.
///
/// # Errors
/// [`Error::Usage`]: a number that no machine has.
pub fn set_cores(profile: &mut Profile, cores: u32) -> Result<()> {
    if cores == 0 || cores > COUNT_MAX || f64::from(cores) <= profile.cores.background {
        return Err(Error::Usage(format!("cores={cores}: 1 to {COUNT_MAX}, and more than others use")));
    }
    if profile.threads.adapters == profile.cores.count {
        profile.threads.adapters = cores;
    }
    profile.cores.count = cores;
    Ok(())
}

/// Another number of devices of a kind; those of the other kind stay. Where the profile has only modelled ones of that
/// kind, and none of another kind is asked for, they are those.
///
/// # Errors
/// [`Error::Usage`]: the configuration's devices are no list.
pub fn set_devices(profile: &Profile, configuration: &mut Configuration, kind: DeviceKind, count: u32) -> Result<()> {
    let (mut devices, mut modelled) = parse_devices(&configuration.devices)?;
    devices.retain(|(other, _)| *other != kind);
    if devices.is_empty() {
        modelled = profile.device(kind, false).is_none() && profile.device(kind, true).is_some();
    }
    if count > 0 {
        devices.push((kind, count));
    }
    if devices.is_empty() {
        if configuration.devices != "software" {
            "cpu".clone_into(&mut configuration.devices);
        }
        return Ok(());
    }
    devices.sort_unstable();
    let letter = |kind| if kind == DeviceKind::Accelerator { "a" } else { "c" };
    let list: Vec<String> = devices.iter().map(|(kind, count)| format!("{count}{}", letter(*kind))).collect();
    configuration.devices = format!("{}{}", if modelled { "modelled:" } else { "" }, list.join("+"));
    Ok(())
}

fn number<T: FromStr<Err: Display>>(what: &str, value: &str) -> Result<T> {
    value.parse().map_err(|error| Error::Usage(format!("{what}={value}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Reuse;

    #[test]
    fn every_change_that_is_offered_is_made() {
        for change in WHAT_IFS {
            let (mut profile, mut configuration) = (Profile::empty("test", "a test"), Configuration::default());
            configuration.in_flight = 512;
            let before = (profile.clone(), configuration.clone());
            apply(&mut profile, &mut configuration, change).unwrap();
            assert_ne!(before, (profile, configuration), "{change} changed nothing");
        }
    }

    #[test]
    fn a_change_changes_what_it_says() {
        let (mut profile, mut configuration) = (Profile::empty("test", "a test"), Configuration::default());
        for change in ["rsa=4096", "reuse=unlimited", "cores=4", "coprocessors=2", "accelerators=1"] {
            apply(&mut profile, &mut configuration, change).unwrap();
        }
        assert_eq!((configuration.key.as_str(), configuration.reuse), ("rsa4096", Reuse::Unlimited));
        assert_eq!((profile.cores.count, profile.threads.adapters), (4, 4));
        assert_eq!(configuration.devices, "1a+2c");
        apply(&mut profile, &mut configuration, "accelerators=0").unwrap();
        assert_eq!(configuration.devices, "2c");
        apply(&mut profile, &mut configuration, "coprocessors=0").unwrap();
        assert_eq!(configuration.devices, "cpu");
        for (change, says) in
            [("rsa", "a change is written as"), ("speed=9", "what can change is"), ("bytes=many", "bytes=many: ")]
        {
            let said = apply(&mut profile, &mut configuration, change).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }
}
