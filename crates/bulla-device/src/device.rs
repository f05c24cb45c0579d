//! The seam between those who need private-key operations and those who carry them out.

use std::fmt;

use crate::meter::Meters;
use crate::work::{Finished, Job};

/// A place where private keys are used. Many jobs in, results out in any order.
///
/// A device never blocks in [`submit`](Device::submit); [`poll`](Device::poll) may compute on the
/// calling thread (the CPU does) or only collect what hardware has finished.
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

    /// What it did so far.
    fn meters(&self) -> Meters;
}

/// The sorts of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// This machine's processor, with all of its instructions.
    Cpu,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Cpu => "CPU",
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
    /// Nobody's turn: the job was still waiting at its deadline.
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

impl std::error::Error for DeviceError {}

impl fmt::Display for DeviceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Away { device } => write!(out, "device {device} does not answer"),
            DeviceError::Fault { device } => {
                write!(out, "device {device} computed a result that its public key refutes")
            }
            DeviceError::Deadline => out.write_str("the job's deadline passed before it was started"),
            DeviceError::WrongKey { why } => write!(out, "the key cannot do this: {why}"),
            DeviceError::UnsupportedKey { what } => write!(out, "unsupported private key: {what}"),
            DeviceError::Library { text } => write!(out, "cryptographic library: {text}"),
        }
    }
}

impl From<openssl::error::ErrorStack> for DeviceError {
    fn from(errors: openssl::error::ErrorStack) -> DeviceError {
        DeviceError::Library { text: errors.to_string() }
    }
}
