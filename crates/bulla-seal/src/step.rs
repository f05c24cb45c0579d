//! Work that may need a key in the middle: it stops there, hands a job out, and goes on when the result
//! is back. Nothing here waits, so that a thread can hold many unfinished messages.

use bulla_device::{Device, DeviceError, Job, Output};

use crate::batch::{Leaf, Proof};

/// What the work does after its operation with a key. It may need another one.
pub type Continuation<T, E> = Box<dyn FnOnce(Result<Output, DeviceError>) -> Result<Step<T, E>, E> + Send>;

/// What the work does once its message is signed, alone or with others.
pub type WithProof<T, E> = Box<dyn FnOnce(Result<Proof, DeviceError>) -> Result<Step<T, E>, E> + Send>;

/// Done, or waiting for a device.
pub enum Step<T, E> {
    /// The result.
    Done(T),
    /// A job for a device, and what to do with its result. The job's id is 0, its asker unset and its
    /// deadline unset: the caller that submits it sets them.
    Device(Job, Continuation<T, E>),
    /// A message to be signed, in one batch with others of its kind or [alone](Step::alone), and what to do with the
    /// proof. Only sealing comes to this, under SIGNBATCH above 1.
    Leaf(Box<Leaf>, WithProof<T, E>),
}

impl<T, E> Step<T, E> {
    /// The result, if there is nothing to wait for.
    pub fn done(self) -> Option<T> {
        match self {
            Step::Done(value) => Some(value),
            Step::Device(..) | Step::Leaf(..) => None,
        }
    }
}

impl<T: 'static, E: 'static> Step<T, E> {
    /// The same step, but that a message to be signed waits for no other: it has a signature of its own.
    pub fn alone(self) -> Step<T, E> {
        match self {
            Step::Leaf(leaf, go_on) => {
                let (job, prove) = leaf.alone();
                Step::Device(job, Box::new(move |result| go_on(prove(result))))
            }
            other => other,
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
            Step::Leaf(leaf, go_on) => {
                Step::Leaf(leaf, Box::new(move |proof| go_on(proof).map(|step| step.map(change))))
            }
        }
    }
}

/// Runs a step to its end on the calling thread; a message to be signed has a signature of its own.
///
/// # Errors
/// Whatever the step fails with; a device that gives no answer is handed to the step as
/// [`DeviceError::Away`].
pub fn drive<T: 'static, E: 'static>(step: Step<T, E>, device: &mut dyn Device) -> Result<T, E> {
    let mut step = step;
    loop {
        match step {
            Step::Done(value) => return Ok(value),
            Step::Device(job, continuation) => step = continuation(run(job, device))?,
            leaf @ Step::Leaf(..) => step = leaf.alone(),
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
