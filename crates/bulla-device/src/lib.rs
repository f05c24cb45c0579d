//! Crypto devices: where private keys are used.
//!
//! Whoever needs a private-key operation makes a [`Job`], and whoever owns a [`Device`] submits many
//! jobs at once and collects them as they finish. The processor itself is the device [`CpuDevice`];
//! devices that are quick only in batches, or that never let a key out, stand behind the same seam.
//! Every device counts what it did in [`Meters`].
//!
//! Public-key and symmetric work is not a device's business: it costs little and happens in place.

mod cpu;
mod device;
mod digest;
mod key;
mod meter;
mod padding;
mod random;
mod work;

pub use cpu::{CpuDevice, JOBS_WAITING_MAX};
pub use device::{Device, DeviceError, Kind};
pub use digest::{Digest, Hash, UnknownDigest};
pub use key::{Curve, KeyKind, PrivateKey, RSA_BITS_MAX, RSA_BITS_MIN};
pub use meter::{Meter, Meters, Operation};
pub use random::{Random, RandomError, SystemRandom};
pub use work::{Finished, Job, Output, RsaPadding, RsaScheme, Work};
