//! Work that may need a key in the middle: it stops there, hands a job out, and goes on when the result
//! is back. Nothing here waits, so that a thread can hold many unfinished messages.

use bulla_device::{Device, DeviceError, Job, Output};

/// What the work does after its operation with a key. It may need another one.
pub type Continuation<T, E> = Box<dyn FnOnce(Result<Output, DeviceError>) -> Result<Step<T, E>, E> + Send>;

/// Done, or waiting for a device.
pub enum Step<T, E> {
    /// The result.
    Done(T),
    /// A job for a device, and what to do with its result. The job's id is 0, its asker unset and its
    /// deadline unset: the caller that submits it sets them.
    Device(Job, Continuation<T, E>),
}

impl<T, E> Step<T, E> {
    /// The result, if there is nothing to wait for.
    pub fn done(self) -> Option<T> {
        match self {
            Step::Done(value) => Some(value),
            Step::Device(..) => None,
        }
    }
}

impl<T: 'static, E: 'static> Step<T, E> {
    /// The same work with another result at its end.
    pub(crate) fn map<U: 'static>(self, change: fn(T) -> U) -> Step<U, E> {
        match self {
            Step::Done(value) => Step::Done(change(value)),
            Step::Device(job, go_on) => {
                Step::Device(job, Box::new(move |result| go_on(result).map(|step| step.map(change))))
            }
        }
    }
}

/// Runs a step to its end on the calling thread.
///
/// # Errors
/// Whatever the step fails with; a device that gives no answer is handed to the step as
/// [`DeviceError::Away`].
pub fn drive<T, E>(step: Step<T, E>, device: &mut dyn Device) -> Result<T, E> {
    let mut step = step;
    loop {
        match step {
            Step::Done(value) => return Ok(value),
            Step::Device(job, continuation) => step = continuation(run(job, device))?,
        }
    }
}

fn run(job: Job, device: &mut dyn Device) -> Result<Output, DeviceError> {
    let away = DeviceError::Away { device: device.name().to_owned() };
    let id = job.id;
    let mut jobs = vec![job];
    if device.submit(&mut jobs)? == 0 {
        return Err(away);
    }
    let mut done = Vec::with_capacity(1);
    device.poll(&mut done)?;
    done.into_iter().find(|finished| finished.id == id).map_or(Err(away), |finished| finished.result)
}
