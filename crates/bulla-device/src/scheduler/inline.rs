//! Jobs that the asking thread computes at once, by itself.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Answer, Run, Scheduler, Waiting, locked, ns};
use crate::clock::{thread_cpu_ns, wall_ms};
use crate::cpu::CpuDevice;
use crate::role::{self, Role};
use crate::work::Job;

/// The processor as one thread has it: the jobs that are to be computed right here.
pub struct Inline {
    cpu: CpuDevice,
    jobs: VecDeque<Waiting>,
}

/// Jobs on their way from one thread's [`Inline`] to another's.
#[derive(Default)]
pub struct Parcel(Vec<Waiting>);

impl Parcel {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another one.
    pub fn append(&mut self, mut other: Parcel) {
        self.0.append(&mut other.0);
    }
}

impl Default for Inline {
    fn default() -> Inline {
        Inline::new()
    }
}

impl Inline {
    /// For one thread.
    pub fn new() -> Inline {
        Inline { cpu: CpuDevice::new(super::CPU_NAME), jobs: VecDeque::new() }
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.jobs.push_back(waiting);
    }

    /// A job for the processor, whatever other devices there are: it has the last word. Not for a token's
    /// key, which the processor can't use.
    pub fn push_here(&mut self, job: Job) {
        self.jobs.push_back(Waiting::nowhere(job));
    }

    /// Gives away the last ones, half of the work at most, for another thread to [`take_over`](Self::take_over).
    /// Nothing where all of it is not expected to take longer than `least`. The first one stays.
    pub fn give_half(&mut self, least: Duration) -> Parcel {
        let all: u64 = self.jobs.iter().map(|waiting| waiting.cost_ns).fold(0, u64::saturating_add);
        if all <= ns(least) {
            return Parcel::default();
        }
        let (mut kept, mut given) = (self.jobs.len(), 0_u64);
        for waiting in self.jobs.iter().skip(1).rev() {
            given = given.saturating_add(waiting.cost_ns);
            if given > all / 2 {
                break;
            }
            kept -= 1;
        }
        Parcel(self.jobs.split_off(kept).into())
    }

    /// Takes jobs that another thread gave away, behind what is there.
    pub fn take_over(&mut self, parcel: Parcel) {
        self.jobs.extend(parcel.0);
    }

    /// Computes all of it, in order.
    pub fn run(&mut self, scheduler: &Scheduler) -> Vec<Answer> {
        self.run_for(scheduler, Duration::MAX)
    }

    /// Computes, in order, until all is done or so much processor time was used; one job at least.
    pub fn run_for(&mut self, scheduler: &Scheduler, slice: Duration) -> Vec<Answer> {
        let slice_ns = ns(slice);
        let mut used_ns = 0_u64;
        let mut answers = Vec::new();
        while used_ns < slice_ns
            && let Some(mut waiting) = self.jobs.pop_front()
        {
            if let Some(error) = waiting.job.is_over(Instant::now()) {
                scheduler.unload(&mut waiting);
                answers.push(waiting.answer(Err(error), Run::CPU));
                continue;
            }
            let apart = role::apart();
            let before = thread_cpu_ns();
            let result = self.cpu.compute(&waiting.job);
            let cpu_ns = thread_cpu_ns().saturating_sub(before);
            apart.took(Role::Devices, cpu_ns);
            used_ns = used_ns.saturating_add(cpu_ns);
            scheduler.unload(&mut waiting);
            locked(&scheduler.cpu.estimates).took(waiting.shape, cpu_ns);
            let failed = result.as_ref().is_err_and(|error| error.is_the_devices());
            let job = (waiting.job.work.operation(), ns(waiting.submitted.elapsed()), failed);
            let mut meters = locked(&scheduler.cpu.meters);
            meters.waited(self.jobs.len());
            meters.ended(wall_ms(), cpu_ns, 1);
            meters.call(waiting.shape, cpu_ns, [job].into_iter());
            meters.cpu_ns += cpu_ns;
            drop(meters);
            answers.push(Answer { service_ns: cpu_ns, ..waiting.answer(result, Run::CPU) });
        }
        answers
    }
}
