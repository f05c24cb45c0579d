//! Utilisation of devices by what is sent to them, as reports on cryptographic hardware compute it: operations ×
//! execution time ÷ engines for each function, and their sum, a hundred percent at most, for the device.

use super::profile::{Format, Profile};
use super::queueing;
use crate::error::{Error, Result};
use serde::Serialize;

/// Utilisation of a device from which another one is due, percent.
pub const ADVICE_PERCENT: f64 = 100.0;

/// One function of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// ME or CRT.
    pub format: Format,
    /// Bits of the key.
    pub bits: u32,
    /// Operations a second.
    pub rate: f64,
    /// One operation, microseconds.
    pub execution_us: f64,
    /// Percent of the time; functions may come to more than 100 together.
    pub utilisation_percent: f64,
}

/// A device under a stated load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Utilisation {
    /// Its name.
    pub device: String,
    /// Calls side by side.
    pub engines: u32,
    /// Operations a second.
    pub rate: f64,
    /// Mean execution time, microseconds.
    pub execution_us: f64,
    /// The sum of its functions, at most 100.
    pub utilisation_percent: f64,
    /// How long an operation waits on average if operations come at random (M/G/c), microseconds; none where more comes
    /// than can be done.
    pub wait_us: Option<f64>,
    /// By function.
    pub functions: Vec<Function>,
}

/// Every device to which the profile's loads are sent.
///
/// # Errors
/// [`Error::Usage`]: the profile does not say what such an operation takes.
pub fn utilisation(profile: &Profile) -> Result<Vec<Utilisation>> {
    let mut devices = Vec::new();
    for (name, device) in &profile.devices {
        let mut functions = Vec::new();
        for load in profile.load.iter().filter(|load| load.device == *name) {
            let Some(execution_us) = device.format_us(load.format, &load.bits.to_string()) else {
                let (format, bits) = (format!("{:?}", load.format).to_uppercase(), load.bits);
                return Err(Error::Usage(format!("device {name} has no execution time of {format} with {bits} bits")));
            };
            functions.push(Function {
                format: load.format,
                bits: load.bits,
                rate: load.rate,
                execution_us,
                utilisation_percent: load.rate * execution_us / 1e6 * 100.0 / f64::from(device.engines),
            });
        }
        if functions.is_empty() {
            continue;
        }
        let rate: f64 = functions.iter().map(|function| function.rate).sum();
        let weighted = |value: &dyn Fn(&Function) -> f64| {
            functions.iter().map(|function| function.rate * value(function)).sum::<f64>() / rate.max(f64::MIN_POSITIVE)
        };
        let mean = weighted(&|function| function.execution_us);
        let mean_square = weighted(&|function| function.execution_us * function.execution_us);
        let open = queueing::m_g_c(rate / 1e6, mean, mean_square, device.engines);
        let sum: f64 = functions.iter().map(|function| function.utilisation_percent).sum();
        devices.push(Utilisation {
            device: name.clone(),
            engines: device.engines,
            rate,
            execution_us: mean,
            utilisation_percent: sum.min(100.0),
            wait_us: open.wait.is_finite().then_some(open.wait),
            functions,
        });
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn published() -> Profile {
        let text = include_str!("../../../../docs/operating/profiles/accelerator-published.toml");
        Profile::parse(text, Path::new("accelerator-published.toml")).unwrap()
    }

    #[test]
    fn the_published_accelerator_is_as_full_as_was_published() {
        let used = utilisation(&published()).unwrap().pop().unwrap();
        assert!((used.utilisation_percent - 46.7).abs() < 0.05, "{used:?}");
        assert!((used.execution_us - 138.0).abs() < 0.5, "{used:?}");
        assert!(used.wait_us.unwrap() > 100.0, "long ones hold short ones up: {used:?}");
    }

    #[test]
    fn functions_may_exceed_a_hundred_percent_and_a_device_may_not() {
        let mut profile = published();
        // 73.8 and 78.9 percent, as was published of another one.
        profile.load[0].rate = 0.738e6 / 46.0;
        profile.load[1].rate = 0.789e6 / 507.0;
        let used = utilisation(&profile).unwrap().pop().unwrap();
        assert!(used.functions.iter().map(|function| function.utilisation_percent).sum::<f64>() > 150.0);
        assert_eq!((used.utilisation_percent, used.wait_us), (100.0, None));
        if let Some(device) = profile.devices.get_mut("ACCELERATOR") {
            device.engines = 2;
        }
        let used = utilisation(&profile).unwrap().pop().unwrap();
        assert!((used.utilisation_percent - 76.35).abs() < 0.01, "{used:?}");
        profile.load[0].bits = 512;
        assert!(utilisation(&profile).unwrap_err().to_string().contains("ME with 512 bits"));
    }
}
