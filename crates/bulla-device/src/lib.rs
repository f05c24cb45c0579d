//! Crypto devices: where private keys are used.
//!
//! A caller that needs a private-key operation makes a [`Job`], and the owner of a [`Device`] submits many
//! jobs at once and collects them as they finish. The processor itself is the device [`CpuDevice`];
//! devices that are quick only in batches, or that never let a key out, stand behind the same seam.
//!
//! Who does which job is the [`Scheduler`]'s business: it knows of every device what it takes and how long
//! that takes, and counts what it did in [`Meters`]. Symmetric work and digests are no jobs: they cost
//! little and happen in place.

mod accelerator;
mod agreement;
mod clock;
pub mod cmp;
mod code_file;
pub mod coprocessor;
mod cpu;
mod device;
mod digest;
mod histogram;
mod history;
pub mod http;
mod key;
pub mod key_memory;
mod key_uri;
mod meter;
mod ml_dsa;
mod ml_kem;
mod modelled;
mod operations;
mod padding;
mod paths;
mod peaks;
mod prepared;
mod profile;
mod random;
mod rejection;
pub mod role;
pub mod scheduler;
mod secret_file;
mod stop;
pub mod tls;
pub mod transit;
mod work;
pub mod x509;

pub use accelerator::{Accelerator, LIBRARY_FILE, LaneEngine, Processor, library_of};
#[doc(hidden)]
pub use accelerator::{BareEcdsa, BareRsa, Stage, Tamper};
pub use clock::{ThreadClock, TickScale, thread_clock_cost_ns, thread_cpu_ns, ticks};
pub use code_file::{CodeFileError, checked_code_file, is_below, system_libraries};
pub use cpu::{CpuDevice, JOBS_WAITING_MAX};
pub use device::{Device, DeviceError, Driver, Kind, SILENCE_FACTOR, SILENCE_MIN};
pub use digest::{Digest, Hash, UnknownDigest};
pub use histogram::{Histogram, HistogramText};
pub use history::{HISTORY_INTERVAL, HISTORY_SNAPSHOTS_MAX, History};
pub use key::{Curve, Key, KeyKind, PrivateKey, PublicKey, RSA_BITS_MAX, RSA_BITS_MIN};
pub use key_uri::KeyUri;
pub use meter::{Meters, OperationMeter, ShapeMeter, WAITING_SAMPLES_MAX};
pub use ml_dsa::MlDsa;
pub use ml_kem::{ML_KEM_SECRET_BYTES, MlKem};
pub use modelled::Modelled;
pub use operations::Operations;
pub use paths::{RevocationAnswer, RevocationQuestion, check_revocation, process_policies};
pub use peaks::{PEAKS_MAX, Peak, Peaks};
pub use profile::{Mark, Profile, ProfileError, ServiceTime};
pub use random::{Random, RandomError, SystemRandom};
pub use rejection::RejectionSecret;
pub use role::{Costs, Role};
pub use scheduler::{Inline, Scheduler};
pub use work::{Asker, Finished, Form, Job, Operation, Output, RsaPadding, RsaScheme, Shape, Work};
