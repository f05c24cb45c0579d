//! How fast a modelled card has to be to carry a multiple of what software does.

use crate::error::{Error, Result};
use crate::result::Sample;
use bulla_device::{Form, Profile, Shape};

/// What a sample asked of devices, in the terms of a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// Bits of the listener's key.
    bits: u32,
    /// Private operations with a key of that length.
    main: u64,
    /// What all other operations take of an accelerator, by its profile, microseconds.
    others_us: f64,
    /// How long the sample was, microseconds.
    sample_us: f64,
}

impl Share {
    /// What a sample of software asked.
    ///
    /// # Errors
    /// [`Error::Device`]: its devices were not counted, or the key is none of RSA.
    pub(super) fn of(sample: &Sample, key: &str) -> Result<Share> {
        let bits = key.trim_start_matches("rsa").parse().map_err(|_| Error::Device(format!("{key} is none of RSA")))?;
        let mut share = Share { bits, main: 0, others_us: 0.0, sample_us: sample.seconds * 1e6 };
        for used in sample.devices.iter().flat_map(|device| &device.operations) {
            if used.format == Form::RsaCrt.as_str() && used.bits == bits {
                share.main += used.count;
            } else {
                share.others_us += used.count as f64 * accelerator_us(&used.format, used.bits).unwrap_or(0.0);
            }
        }
        if share.main == 0 {
            return Err(Error::Device("software signed nothing: no card can be derived from it".to_owned()));
        }
        Ok(share)
    }

    /// The service time that lets one card carry so many times that, as `SERVICE` of a device has it.
    ///
    /// # Errors
    /// [`Error::Device`]: the other operations alone take longer.
    pub(super) fn carrying(&self, times: f64) -> Result<String> {
        let us = (self.sample_us / times - self.others_us) / self.main as f64;
        if us < 1.0 {
            return Err(Error::Device(format!("no card carries {times} times what software does: orders take it all")));
        }
        Ok(format!("RSA-CRT-{}={us:.0}", self.bits))
    }
}

/// What an accelerator takes for an operation by its profile, microseconds.
fn accelerator_us(format: &str, bits: u32) -> Option<f64> {
    let is_it = |shape: Shape| shape.bits == bits && shape.form.as_str() == format;
    let found = Profile::accelerator().times().find(|time| is_it(time.shape));
    found.map(|time| time.time.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{DeviceUse, OperationUse};

    fn sample(operations: &[(&str, u32, u64)]) -> Sample {
        let of = |&(format, bits, count): &(&str, u32, u64)| OperationUse {
            format: format.to_owned(),
            bits,
            count,
            ..OperationUse::default()
        };
        let operations = operations.iter().map(of).collect();
        Sample { seconds: 10.0, devices: vec![DeviceUse { operations, ..DeviceUse::default() }], ..Sample::default() }
    }

    #[test]
    fn a_card_has_the_time_that_software_took_divided() {
        // 1,000 signatures in 10 s; 100 unwraps at 507 µs and 100 verifications at 46 µs beside them.
        let sample =
            sample(&[("RSA CRT", 4096, 1000), ("RSA CRT", 2048, 100), ("RSA ME", 2048, 100), ("ECDH", 256, 50)]);
        let share = Share::of(&sample, "rsa4096").unwrap();
        assert_eq!(share.carrying(5.0).unwrap(), "RSA-CRT-4096=1945");
        assert!(matches!(share.carrying(1000.0), Err(Error::Device(_))));
    }

    #[test]
    fn a_sample_without_signatures_derives_nothing() {
        assert!(Share::of(&sample(&[("RSA CRT", 2048, 5)]), "rsa4096").is_err());
        assert!(Share::of(&sample(&[]), "p256").is_err());
    }
}
