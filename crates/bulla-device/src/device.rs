//! The seam between those who need private-key operations and those who carry them out.

use std::fmt;
use std::time::Duration;

use crate::random::RandomError;
use crate::work::{Finished, Job, Operation, Shape};

/// A call that takes so many times as long as was to be expected has hung; see [`Driver::silence`].
pub const SILENCE_FACTOR: u32 = 8;
/// No call has hung before that time.
pub const SILENCE_MIN: Duration = Duration::from_millis(100);

/// A place where keys are used: one engine of a device. Many jobs in, results out in any order.
///
/// A device never blocks in [`submit`](Device::submit); [`poll`](Device::poll) may compute on the
/// calling thread (the CPU does) or wait for what hardware has finished. It returns with at least one
/// result while there are jobs that were taken and not answered.
pub trait Device: Send {
    /// Takes jobs from the front of `jobs` while there is room, and returns how many it took.
    ///
    /// # Errors
    /// [`DeviceError::Away`] when the device can take nothing at all; `jobs` is then unchanged.
    fn submit(&mut self, jobs: &mut Vec<Job>) -> Result<usize, DeviceError>;

    /// Appends what has finished to `done`. A failed job is a [`Finished`] with an error in it.
    ///
    /// # Errors
    /// [`DeviceError::Away`] when the device as a whole is gone.
    fn poll(&mut self, done: &mut Vec<Finished>) -> Result<(), DeviceError>;

    /// The name that commands and reports use.
    fn name(&self) -> &str;

    /// What sort of device this is.
    fn kind(&self) -> Kind;
}

/// What a scheduler must know of a device before it hands it a job, and how its engines come to be.
pub trait Driver: Send + Sync {
    /// What sort of device this is.
    fn kind(&self) -> Kind;

    /// How many engines work side by side, at least 1.
    fn engines(&self) -> usize;

    /// How many threads hand jobs to them, each with a [`Device`] of its own: one for each engine.
    fn threads(&self) -> usize {
        self.engines()
    }

    /// How many jobs of one [`Shape`] an engine takes in one call.
    fn lanes(&self) -> usize;

    /// Whether a call takes the longer the more jobs it has: then what waits is shared out among the engines that are
    /// idle. Lanes that compute side by side are filled instead.
    fn shares_its_line(&self) -> bool {
        false
    }

    /// Whether it can do this job: it has the operation, the size, and the key or access to it.
    fn takes(&self, job: &Job) -> bool;

    /// How long one call takes, all lanes filled or one, until it has been measured.
    fn expected(&self, shape: Shape) -> Duration;

    /// Whether its work is this machine's processor time: then what it takes is taken from others.
    fn is_on_the_cores(&self) -> bool;

    /// After how long without an answer a call has hung, where `call` is how long one takes by what was
    /// measured, or is expected: what the engine has and what waits for it then goes to other devices. None
    /// where a call ends by itself, in time: on the cores, and where the driver has a limit of its own.
    fn silence(&self, call: Duration) -> Option<Duration> {
        (!self.is_on_the_cores()).then(|| SILENCE_MIN.max(call.saturating_mul(SILENCE_FACTOR)))
    }

    /// Makes an engine; called on the thread that is going to run it, and again after a failure.
    ///
    /// # Errors
    /// [`DeviceError::Offline`] or [`DeviceError::Away`], with the reason; it is tried again later.
    fn start_engine(&self) -> Result<Box<dyn Device>, DeviceError>;
}

/// The sorts of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// This machine's processor, with all of its instructions.
    Cpu,
    /// The processor with the instructions for cryptography masked off.
    Software,
    /// Clear keys, eight lanes at once.
    Accelerator,
    /// Keys that never leave a token (PKCS#11).
    Coprocessor,
    /// Keys that never leave a server's transit engine (HTTPS).
    Transit,
    /// A device that this machine does not have: a real result, no earlier than a profile says.
    Modelled,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Cpu => "CPU",
            Kind::Software => "SOFTWARE",
            Kind::Accelerator => "ACCELERATOR",
            Kind::Coprocessor => "COPROCESSOR",
            Kind::Transit => "TRANSIT",
            Kind::Modelled => "MODELLED",
        })
    }
}

/// Why a job, or a whole device, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operator's turn: the device does not answer. Jobs may be tried again later.
    Away {
        /// The device's name.
        device: String,
    },
    /// The operator's turn: a private result did not fit the public key. It was destroyed, because a
    /// faulty RSA result gives the key away. The device should not be used again.
    Fault {
        /// The device's name.
        device: String,
    },
    /// The operator's turn: the device can't be used, and says why: no such processor, no token in the
    /// slot, a wrong PIN. Jobs may be tried again later.
    Offline {
        /// The device's name.
        device: String,
        /// One lower-case line.
        why: String,
    },
    /// The operator's turn: the device refused one job, in its own words. It may be tried again later.
    Refused {
        /// The device's name.
        device: String,
        /// One lower-case line.
        why: String,
    },
    /// The operator's turn: OPERATIONS of every device that could do the job leave it out, those of the processor too.
    NotAllowed {
        /// What was to be done.
        operation: Operation,
    },
    /// The signer's turn: the signature is not this key's over this hash.
    BadSignature,
    /// No one's turn: the asker has gone.
    Cancelled,
    /// No one's turn: the job was still waiting at its deadline.
    Deadline,
    /// The caller's turn: the key cannot do this work (an EC key asked to unwrap, say).
    WrongKey {
        /// What was wrong.
        why: &'static str,
    },
    /// The operator's turn: the key is of a kind or size that is not supported.
    UnsupportedKey {
        /// What the key is.
        what: String,
    },
    /// The library refused; its own words.
    Library {
        /// OpenSSL's error text.
        text: String,
    },
}

impl DeviceError {
    /// Whether another device, or the same one later, may do better: the key and the job are not to blame.
    pub fn is_the_devices(&self) -> bool {
        matches!(
            self,
            DeviceError::Away { .. }
                | DeviceError::Fault { .. }
                | DeviceError::Offline { .. }
                | DeviceError::Refused { .. }
                | DeviceError::NotAllowed { .. }
        )
    }
}

impl std::error::Error for DeviceError {}

impl fmt::Display for DeviceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Away { device } => write!(out, "device {device} does not answer"),
            DeviceError::Fault { device } => {
                write!(out, "device {device} computed a result that its public key refutes")
            }
            DeviceError::Offline { device, why } => write!(out, "device {device} is offline: {why}"),
            DeviceError::Refused { device, why } => write!(out, "device {device} refused: {why}"),
            DeviceError::NotAllowed { operation } => {
                write!(out, "no device may do {operation}: OPERATIONS of each that could leaves it out")
            }
            DeviceError::BadSignature => out.write_str("the signature does not fit"),
            DeviceError::Cancelled => out.write_str("the asker has gone"),
            DeviceError::Deadline => out.write_str("the job's deadline passed before it was started"),
            DeviceError::WrongKey { why } => write!(out, "the key cannot do this: {why}"),
            DeviceError::UnsupportedKey { what } => write!(out, "unsupported private key: {what}"),
            DeviceError::Library { text } => write!(out, "cryptographic library: {text}"),
        }
    }
}

impl From<RandomError> for DeviceError {
    fn from(error: RandomError) -> DeviceError {
        DeviceError::Library { text: error.to_string() }
    }
}

impl From<openssl::error::ErrorStack> for DeviceError {
    fn from(errors: openssl::error::ErrorStack) -> DeviceError {
        DeviceError::Library { text: errors.to_string() }
    }
}
