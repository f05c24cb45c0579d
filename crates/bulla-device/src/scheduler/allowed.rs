//! Which device may do what: OPERATIONS of their definitions.

use std::time::Instant;

use super::{CPU_NAME, Inner, Scheduler, SetupError, State};
use crate::device::DeviceError;
use crate::operations::Operations;
use crate::work::Job;

impl Scheduler {
    /// Says which operations a device may do, the processor among them, from now on. What waits in its line stays
    /// there. A verdict against a message is computed again by the processor whatever this says.
    ///
    /// # Errors
    /// [`SetupError::Unknown`].
    pub fn allow(&self, name: &str, operations: Operations) -> Result<(), SetupError> {
        let mut inner = self.lock();
        if name == CPU_NAME {
            inner.cpu_operations = operations;
        } else {
            inner.named(name)?.operations = operations;
        }
        // Jobs that no device might do, or no device may do any more.
        self.ring(&mut inner, Instant::now());
        Ok(())
    }
}

impl Inner {
    /// Whether the processor can do a job, and may.
    pub(super) fn cpu_may(&self, job: &Job) -> bool {
        cpu_can(job) && self.cpu_operations.contains(job.work.operation())
    }

    /// The error of a job that devices could do and none may. One that is being opened may prove to be able.
    pub(super) fn forbidden(&self, job: &Job) -> Option<DeviceError> {
        let is_opening = |state: State| state == State::Starting;
        let may_be =
            self.devices.iter().any(|device| device.would_take(job) || (device.may(job) && is_opening(device.state())));
        if may_be || self.cpu_may(job) {
            return None;
        }
        let could = cpu_can(job) || self.devices.iter().any(|device| device.could_take(job));
        could.then(|| DeviceError::NotAllowed { operation: job.work.operation() })
    }
}

/// Whether the processor has what a job needs: any but a token's key.
fn cpu_can(job: &Job) -> bool {
    !job.work.needs_private_key() || job.key.private().is_some_and(|key| key.exportable().is_some())
}
