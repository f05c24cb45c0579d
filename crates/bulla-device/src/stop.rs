//! Why an engine of a device whose keys lie elsewhere has no result for a job.

use openssl::error::ErrorStack;

use crate::device::DeviceError;

/// Why a job has no result.
#[derive(Clone)]
pub(crate) enum Stop {
    /// The engine goes on.
    Job(DeviceError),
    /// The engine can't go on.
    Engine(DeviceError),
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Stop {
        Stop::Job(error)
    }
}

impl From<ErrorStack> for Stop {
    fn from(errors: ErrorStack) -> Stop {
        Stop::Job(errors.into())
    }
}

impl From<Stop> for DeviceError {
    fn from(stop: Stop) -> DeviceError {
        match stop {
            Stop::Job(error) | Stop::Engine(error) => error,
        }
    }
}
