//! Jobs that whoever has them computes at once, on its own thread.

use std::time::Instant;

use super::{Answer, DeviceId, Scheduler, Waiting, locked, ns};
use crate::clock::{thread_cpu_ns, wall_ms};
use crate::cpu::CpuDevice;
use crate::role::{self, Role};
use crate::work::Job;

/// The processor as one thread has it: the jobs that are to be computed right here.
pub struct Inline {
    cpu: CpuDevice,
    jobs: Vec<Waiting>,
}

impl Default for Inline {
    fn default() -> Inline {
        Inline::new()
    }
}

impl Inline {
    /// For one thread.
    pub fn new() -> Inline {
        Inline { cpu: CpuDevice::new(super::CPU_NAME), jobs: Vec::new() }
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.jobs.push(waiting);
    }

    /// A job for the processor, whatever other devices there are: it has the last word. Not for a token's
    /// key, which the processor can't use.
    pub fn push_here(&mut self, job: Job) {
        self.jobs.push(Waiting::nowhere(job));
    }

    /// Computes all of it, in order.
    pub fn run(&mut self, scheduler: &Scheduler) -> Vec<Answer> {
        let count = self.jobs.len();
        let mut answers = Vec::with_capacity(count);
        for (place, mut waiting) in self.jobs.drain(..).enumerate() {
            if let Some(error) = waiting.job.is_over(Instant::now()) {
                scheduler.unload(&mut waiting);
                answers.push(waiting.answer(Err(error), DeviceId::CPU));
                continue;
            }
            let apart = role::apart();
            let before = thread_cpu_ns();
            let result = self.cpu.compute(&waiting.job);
            let cpu_ns = thread_cpu_ns().saturating_sub(before);
            apart.took(Role::Devices, cpu_ns);
            scheduler.unload(&mut waiting);
            locked(&scheduler.cpu.estimates).took(waiting.shape, cpu_ns);
            let failed = result.as_ref().is_err_and(|error| error.is_the_devices());
            let job = (waiting.job.work.operation(), ns(waiting.submitted.elapsed()), failed);
            let mut meters = locked(&scheduler.cpu.meters);
            meters.waited(count - place - 1);
            meters.ended(wall_ms(), cpu_ns, 1);
            meters.call(waiting.shape, cpu_ns, [job].into_iter());
            meters.cpu_ns += cpu_ns;
            drop(meters);
            answers.push(Answer { service_ns: cpu_ns, ..waiting.answer(result, DeviceId::CPU) });
        }
        answers
    }
}
