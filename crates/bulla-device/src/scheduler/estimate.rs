//! How long an operation takes: what a device expects of itself until it was measured, then what it took.

use std::collections::HashMap;

use super::rules;
use crate::work::{Form, Shape};

/// Estimates of one device by shape, nanoseconds a call.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    measured: HashMap<Shape, u64>,
}

impl Estimates {
    /// How long a call takes, or `expected` where none was seen yet.
    pub(super) fn call_ns(&self, shape: Shape, expected: impl FnOnce() -> u64) -> u64 {
        self.measured.get(&shape).copied().unwrap_or_else(expected)
    }

    /// A call took so long.
    pub(super) fn took(&mut self, shape: Shape, ns: u64) {
        let estimate = self.measured.entry(shape).or_insert(ns);
        *estimate = rules::estimate_ns(*estimate, ns);
    }

    /// Comes half way back to what is expected, where it was slower: no job is given to a device that
    /// is taken for slow, so it would never be measured that it is not slow any more.
    pub(super) fn relax(&mut self, expected: impl Fn(Shape) -> u64) {
        for (shape, ns) in &mut self.measured {
            let expected = expected(*shape);
            *ns -= ns.saturating_sub(expected) / 2;
        }
    }

    /// Forgets what was measured: a device that was slow once gets another chance.
    pub(super) fn forget(&mut self) {
        self.measured.clear();
    }
}

/// What OpenSSL takes on one core of a current server, nanoseconds: good enough for the first decision.
pub(super) fn cpu_ns(shape: Shape) -> u64 {
    let bits = u64::from(shape.bits);
    let rsa_crt = match bits {
        0..=1024 => 120_000,
        1025..=2048 => 380_000,
        2049..=3072 => 1_100_000,
        _ => 2_200_000,
    };
    let curve = |p256: u64, p384: u64, p521: u64| match bits {
        0..=256 => p256,
        257..=384 => p384,
        _ => p521,
    };
    // By the number in the name of the parameter set.
    let post_quantum = |small: u64, middle: u64, large: u64| match bits {
        44 | 512 => small,
        65 | 768 => middle,
        _ => large,
    };
    match shape.form {
        Form::RsaCrt => rsa_crt,
        Form::RsaMePrivate => rsa_crt * 4,
        Form::RsaMe => bits * bits / 170,
        Form::EcdsaSign => curve(110_000, 1_000_000, 1_100_000),
        Form::EcdsaVerify => curve(80_000, 700_000, 720_000),
        Form::Ecdh => curve(70_000, 600_000, 400_000),
        Form::EcdhEphemeral => curve(90_000, 1_200_000, 800_000),
        Form::MlDsaSign => post_quantum(450_000, 700_000, 900_000),
        Form::MlDsaVerify => post_quantum(90_000, 150_000, 240_000),
        Form::MlKemEncapsulate => post_quantum(15_000, 22_000, 32_000),
        Form::MlKemDecapsulate => post_quantum(20_000, 28_000, 40_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_replace_what_was_expected_and_follow_a_change() {
        let shape = Shape { form: Form::RsaCrt, bits: 2048 };
        let mut estimates = Estimates::default();
        assert_eq!(estimates.call_ns(shape, || 77), 77);
        estimates.took(shape, 1000);
        assert_eq!(estimates.call_ns(shape, || 77), 1000);
        (0..40).for_each(|_| estimates.took(shape, 9000));
        assert!(estimates.call_ns(shape, || 77) > 8800);
        estimates.forget();
        assert_eq!(estimates.call_ns(shape, || 77), 77);
    }

    #[test]
    fn a_device_that_was_slow_gets_another_chance_and_a_quick_one_stays_so() {
        let (slow, quick) = (Shape { form: Form::RsaCrt, bits: 2048 }, Shape { form: Form::RsaMe, bits: 2048 });
        let mut estimates = Estimates::default();
        estimates.took(slow, 1_000_000);
        estimates.took(quick, 10);
        (0..20).for_each(|_| estimates.relax(|_| 100));
        assert!((100..=102).contains(&estimates.call_ns(slow, || 0)));
        assert_eq!(estimates.call_ns(quick, || 0), 10);
    }
}
