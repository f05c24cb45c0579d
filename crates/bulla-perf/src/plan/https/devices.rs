//! Devices of the trading workload, and which of them does which job: by the scheduler's own rules.

use super::acts::Key;
use crate::plan::profile::{self, Operation, Times};
use bulla_device::scheduler::rules::{self, AtWork, Candidate};
use std::collections::VecDeque;

/// Nanoseconds of the scheduler's rules in a microsecond of the simulation.
const NS_PER_US: f64 = 1_000.0;
/// Keys times operations.
const SHAPES: usize = 8;

pub(super) fn ns(us: f64) -> u64 {
    (us * NS_PER_US) as u64
}

/// An operation that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Who waits for it.
    pub(super) token: usize,
    pub(super) key: Key,
    pub(super) operation: Operation,
    /// Its part of the load of the cores, microseconds.
    pub(super) load: f64,
    pub(super) submitted: f64,
}

fn place_of(key: Key, operation: Operation) -> usize {
    4 * (key as usize) + operation as usize
}

/// A device beside the processor.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) spec: profile::Device,
    times: [Option<Times>; SHAPES],
    shapes: [usize; SHAPES],
    /// What a call of each shape took lately.
    estimates: [f64; SHAPES],
    pub(super) queue: VecDeque<Job>,
    /// What each engine computes, and since when.
    pub(super) engines: Vec<Option<(f64, Vec<Job>)>>,
    /// Their threads, where they compute on the cores.
    pub(super) threads: Vec<usize>,
    pub(super) busy: f64,
    pub(super) jobs: u64,
    pub(super) calls: u64,
    pub(super) response: f64,
}

impl Device {
    /// With the listener's key and that of orders.
    pub(super) fn new(name: String, spec: profile::Device, keys: [&str; 2]) -> Self {
        let (mut times, mut shapes) = ([None; SHAPES], [0; SHAPES]);
        for key in [Key::Listener, Key::Orders] {
            for operation in Operation::ALL {
                let of = keys[key as usize];
                times[place_of(key, operation)] = spec.times(of, operation);
                // All jobs with one key are of one shape, and so are RSA's operations of each half of it.
                let same = if keys[0] == keys[1] { Key::Listener } else { key };
                let first = match (of.starts_with("rsa"), operation) {
                    (true, Operation::Unwrap) => Operation::Sign,
                    (true, Operation::Wrap) => Operation::Verify,
                    (_, operation) => operation,
                };
                shapes[place_of(key, operation)] = place_of(same, first);
            }
        }
        let mut estimates = [0.0_f64; SHAPES];
        for place in 0..SHAPES {
            let call = times[place].map_or(0.0, |times: Times| times.call(spec.lanes, spec.lanes));
            estimates[shapes[place]] = estimates[shapes[place]].max(call);
        }
        let engines = (0..spec.engines.max(1)).map(|_| None).collect();
        Self {
            name,
            spec,
            times,
            shapes,
            estimates,
            queue: VecDeque::new(),
            engines,
            threads: Vec::new(),
            busy: 0.0,
            jobs: 0,
            calls: 0,
            response: 0.0,
        }
    }

    pub(super) fn on_cores(&self) -> bool {
        self.spec.place == profile::Place::Cores
    }

    pub(super) fn takes(&self, job: &Job) -> bool {
        self.times[place_of(job.key, job.operation)].is_some()
    }

    fn shape(&self, job: &Job) -> usize {
        self.shapes[place_of(job.key, job.operation)]
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < self.spec.waiting_max() as usize
    }

    /// What it is for a job, in its `place` among the devices.
    pub(super) fn candidate(&self, place: usize, job: &Job, now: f64) -> Candidate {
        let mut counts = [0_usize; SHAPES];
        counts[self.shape(job)] = 1;
        for waiting in &self.queue {
            counts[self.shape(waiting)] += 1;
        }
        let mut at_work =
            AtWork { engines: self.engines.len(), lanes: self.spec.lanes.max(1) as usize, running: 0, left_ns: 0 };
        for (since, jobs) in self.engines.iter().flatten() {
            at_work.running += 1;
            if let Some(first) = jobs.first() {
                at_work.left_ns += ns((self.estimates[self.shape(first)] - (now - since)).max(0.0));
            }
        }
        let own_ns = ns(self.estimates[self.shape(job)]);
        Candidate {
            place,
            has_failed: false,
            finish_ns: at_work.finish_ns(counts.into_iter().zip(self.estimates.map(ns)), own_ns),
            share_ns: at_work.share_ns(own_ns),
            has_room: self.has_room(),
        }
    }

    /// What one call takes of what waits.
    pub(super) fn take(&mut self, now: f64) -> Vec<Job> {
        let lanes = self.spec.lanes.max(1) as usize;
        let Some(oldest) = self.queue.front() else { return Vec::new() };
        let waiting = self.queue.iter().map(|job| self.shape(job));
        let waited_ns = ns(now - oldest.submitted);
        let Some(shape) = rules::next_shape(waiting, lanes, waited_ns, |shape| ns(self.estimates[shape])) else {
            return Vec::new();
        };
        let (mut taken, mut left) = (Vec::with_capacity(lanes), VecDeque::with_capacity(self.queue.len()));
        for job in std::mem::take(&mut self.queue) {
            match taken.len() < lanes && self.shape(&job) == shape {
                true => taken.push(job),
                false => left.push_back(job),
            }
        }
        self.queue = left;
        taken
    }

    /// What these jobs take in one call, microseconds.
    pub(super) fn call_us(&self, jobs: &[Job]) -> f64 {
        let count = jobs.len() as u32;
        let times = jobs.iter().filter_map(|job| self.times[place_of(job.key, job.operation)]);
        times.map(|times| times.call(count, self.spec.lanes)).sum::<f64>() / f64::from(count.max(1))
    }

    /// A call is done.
    pub(super) fn done(&mut self, engine: usize, now: f64) -> Vec<Job> {
        let Some((since, jobs)) = self.engines[engine].take() else { return Vec::new() };
        self.busy += now - since;
        self.calls += 1;
        self.jobs += jobs.len() as u64;
        self.response += jobs.iter().map(|job| now - job.submitted).sum::<f64>();
        let took = if self.on_cores() { self.call_us(&jobs) + self.spec.call_us } else { now - since };
        if let Some(job) = jobs.first() {
            let estimate = &mut self.estimates[self.shapes[place_of(job.key, job.operation)]];
            *estimate = rules::estimate_ns(ns(*estimate), ns(took)) as f64 / NS_PER_US;
        }
        jobs
    }

    /// Counts from here on.
    pub(super) fn reset(&mut self, now: f64) {
        (self.busy, self.jobs, self.calls, self.response) = (0.0, 0, 0, 0.0);
        self.engines.iter_mut().flatten().for_each(|(since, _)| *since = now);
    }

    /// Part of the time since then that its engines were busy.
    pub(super) fn utilisation(&self, now: f64, time: f64) -> f64 {
        let in_service: f64 = self.engines.iter().flatten().map(|(since, _)| now - since).sum();
        ((self.busy + in_service) / time / self.engines.len() as f64).min(1.0)
    }
}
