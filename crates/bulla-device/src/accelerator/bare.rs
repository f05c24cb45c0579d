//! The lanes without a device around them: what the benchmark compares the device with.

#![allow(missing_docs)]

use std::path::Path;

use super::ec::{CurveData, EcUnit, PrivateEc};
use super::library::{LANES, LaneCurve, RsaSize};
use super::rsa::{Keys, PrivateRsa, RsaUnit, Unfit};
use super::tamper::Tampering;
use crate::device::DeviceError;
use crate::digest::Digest;
use crate::key::{KeyKind, PrivateKey};
use crate::random::{Random, SystemRandom};

/// Eight RSA private operations: blind, private, unblind, public check, and nothing else.
pub struct BareRsa {
    size: RsaSize,
    unit: RsaUnit,
    keys: OneEach,
    input: Vec<Vec<u8>>,
}

struct OneEach(Vec<PrivateRsa>);

fn unfit(unfit: Unfit) -> DeviceError {
    unfit.private("bare")
}

impl Keys for OneEach {
    fn key(&self, lane: usize) -> &PrivateRsa {
        &self.0[lane]
    }

    fn key_mut(&mut self, lane: usize) -> &mut PrivateRsa {
        &mut self.0[lane]
    }
}

impl BareRsa {
    /// A key for each lane, all of one size.
    pub fn new(library: &Path, keys: &[PrivateKey; LANES]) -> Result<BareRsa, DeviceError> {
        let offline = |why| DeviceError::Offline { device: "bare".to_owned(), why };
        let library = super::tested(library).map_err(offline)?;
        let size = RsaSize::from_bits(keys[0].bits()).ok_or(DeviceError::WrongKey { why: "no size of the lanes" })?;
        let mut input = vec![vec![0; size.bytes()]; LANES];
        for bytes in &mut input {
            SystemRandom.fill(bytes)?;
            bytes[0] = 0;
        }
        let keys = OneEach(keys.iter().map(PrivateRsa::new).collect::<Result<_, _>>().map_err(unfit)?);
        Ok(BareRsa { size, unit: RsaUnit::new(library), keys, input })
    }

    /// One call.
    pub fn run(&mut self) -> bool {
        for (lane, input) in self.unit.input.iter_mut().zip(&self.input) {
            lane[..input.len()].copy_from_slice(input);
        }
        let done = self.unit.private(self.size, &mut self.keys, LANES, Tampering(None));
        done.is_ok_and(|stands| stands == [true; LANES])
    }
}

/// Eight ECDSA signatures: nonces, the lanes, both checks, and nothing else.
pub struct BareEcdsa {
    data: CurveData,
    unit: EcUnit,
    keys: Vec<PrivateEc>,
}

impl BareEcdsa {
    /// A key for each lane, all on one curve.
    pub fn new(library: &Path, keys: &[PrivateKey; LANES]) -> Result<BareEcdsa, DeviceError> {
        let offline = |why| DeviceError::Offline { device: "bare".to_owned(), why };
        let library = super::tested(library).map_err(offline)?;
        let no_curve = DeviceError::WrongKey { why: "no curve of the lanes" };
        let KeyKind::Ec(curve) = keys[0].kind() else { return Err(no_curve) };
        let data = CurveData::new(LaneCurve::of(curve).ok_or(no_curve)?).map_err(unfit)?;
        let keys = keys.iter().map(|key| PrivateEc::new(key, &data)).collect::<Result<_, _>>().map_err(unfit)?;
        Ok(BareEcdsa { data, unit: EcUnit::new(library), keys })
    }

    /// One call.
    pub fn run(&mut self) -> bool {
        let keys: [&PrivateEc; LANES] = std::array::from_fn(|lane| &self.keys[lane]);
        let hash = Digest::Sha256.hash(b"content");
        let done = self.unit.sign(&self.data, &keys, &[&*hash; LANES], Tampering(None));
        done.is_ok_and(|stands| stands == [true; LANES])
    }
}
