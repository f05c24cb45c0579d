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
mod histogram;
mod key;
mod padding;
mod random;
mod work;

pub use cpu::{CpuDevice, JOBS_WAITING_MAX};
pub use device::{Device, DeviceError, Driver, Kind};
pub use digest::{Digest, Hash, UnknownDigest};
pub use histogram::{Histogram, HistogramText};
pub use key::{Curve, Key, KeyKind, PrivateKey, PublicKey, RSA_BITS_MAX, RSA_BITS_MIN};
pub use random::{Random, RandomError, SystemRandom};
pub use work::{Asker, Finished, Form, Job, Operation, Output, RsaPadding, RsaScheme, Shape, Work};
