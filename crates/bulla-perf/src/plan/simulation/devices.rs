//! Devices, and which of them does which job.

use super::{Bill, DeviceUse, Event, Role, Simulation, State, Task};
use crate::plan::operations::Class;
use crate::plan::profile::{self, Operation, Times};
use crate::site::BOTH;
use bulla_device::scheduler::rules::{self, AtWork, Candidate};
use std::collections::VecDeque;

/// Nanoseconds of the scheduler's rules in a microsecond of the simulation.
const NS_PER_US: f64 = 1_000.0;

fn ns(us: f64) -> u64 {
    (us * NS_PER_US) as u64
}

/// An operation of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) operation: Operation,
    /// Its part of the load of the cores.
    pub(super) load: f64,
    pub(super) submitted: f64,
}

/// A device at work.
#[derive(Debug)]
pub(super) struct Device {
    spec: profile::Device,
    times: [Option<Times>; 4],
    /// Operations of one shape go into one call.
    shapes: [usize; 4],
    /// What a call of each shape took lately.
    estimates: [f64; 4],
    queue: VecDeque<Job>,
    /// What each engine computes: since when, and what.
    engines: Vec<Option<(f64, Vec<Job>)>>,
    /// Their threads; a card's engines have none.
    threads: Vec<Option<usize>>,
    busy: f64,
    jobs: u64,
    calls: u64,
    response: f64,
}

impl Device {
    pub(super) fn new(spec: profile::Device, class: &Class, threads: Vec<Option<usize>>) -> Self {
        let times = Operation::ALL.map(|operation| spec.times(&class.key, operation));
        // With RSA both operations of a private key are of one shape, and both of a public one.
        let is_rsa = !class.key.contains(BOTH) && class.key.starts_with("rsa");
        let shapes = Operation::ALL.map(|operation| match (is_rsa, operation) {
            (true, Operation::Unwrap) => Operation::Sign as usize,
            (true, Operation::Wrap) => Operation::Verify as usize,
            (_, operation) => operation as usize,
        });
        let mut estimates = [0.0; 4];
        for operation in Operation::ALL {
            let call = times[operation as usize].map_or(0.0, |times| times.call(spec.lanes, spec.lanes));
            let estimate = &mut estimates[shapes[operation as usize]];
            *estimate = call.max(*estimate);
        }
        let engines = threads.iter().map(|_| None).collect();
        let queue = VecDeque::new();
        Self { spec, times, shapes, estimates, queue, engines, threads, busy: 0.0, jobs: 0, calls: 0, response: 0.0 }
    }

    fn takes(&self, operation: Operation) -> bool {
        self.times[operation as usize].is_some()
    }

    fn shape(&self, operation: Operation) -> usize {
        self.shapes[operation as usize]
    }

    fn has_room(&self) -> bool {
        self.queue.len() < self.spec.waiting_max() as usize
    }

    fn on_cores(&self) -> bool {
        self.spec.place == profile::Place::Cores
    }

    /// What it is for a job, in its `place` among the devices: the program's scheduler goes by the same rules.
    fn candidate(&self, place: usize, operation: Operation, now: f64) -> Candidate {
        let mut counts = [0_usize; 4];
        counts[self.shape(operation)] = 1;
        for job in &self.queue {
            counts[self.shape(job.operation)] += 1;
        }
        let mut at_work =
            AtWork { engines: self.engines.len(), lanes: self.spec.lanes.max(1) as usize, running: 0, left_ns: 0 };
        for (since, jobs) in self.engines.iter().flatten() {
            at_work.running += 1;
            if let Some(job) = jobs.first() {
                at_work.left_ns += ns((self.estimates[self.shape(job.operation)] - (now - since)).max(0.0));
            }
        }
        let own_ns = ns(self.estimates[self.shape(operation)]);
        Candidate {
            place,
            has_failed: false,
            finish_ns: at_work.finish_ns(counts.into_iter().zip(self.estimates.map(ns)), own_ns),
            share_ns: at_work.share_ns(own_ns),
            has_room: self.has_room(),
        }
    }

    /// What one call takes.
    fn take(&mut self, now: f64) -> Vec<Job> {
        let lanes = self.spec.lanes.max(1) as usize;
        let Some(oldest) = self.queue.front() else { return Vec::new() };
        let waiting = self.queue.iter().map(|job| self.shape(job.operation));
        let waited_ns = ns(now - oldest.submitted);
        let Some(shape) = rules::next_shape(waiting, lanes, waited_ns, |shape| ns(self.estimates[shape])) else {
            return Vec::new();
        };
        let mut taken = Vec::with_capacity(lanes);
        let mut place = 0;
        while taken.len() < lanes && place < self.queue.len() {
            if self.shape(self.queue[place].operation) == shape {
                taken.extend(self.queue.remove(place));
            } else {
                place += 1;
            }
        }
        taken
    }

    /// What these jobs take in one call, microseconds.
    fn call_us(&self, jobs: &[Job]) -> f64 {
        let count = jobs.len() as u32;
        let times = jobs.iter().filter_map(|job| self.times[job.operation as usize]);
        times.map(|times| times.call(count, self.spec.lanes)).sum::<f64>() / f64::from(count.max(1))
    }

    pub(super) fn reset(&mut self, now: f64) {
        (self.busy, self.jobs, self.calls, self.response) = (0.0, 0, 0, 0.0);
        // What is in service counts from here.
        for (since, _) in self.engines.iter_mut().flatten() {
            *since = now;
        }
    }

    pub(super) fn used(&self, name: &str, now: f64, time: f64, transactions: f64) -> DeviceUse {
        let in_service: f64 = self.engines.iter().flatten().map(|(since, _)| now - since).sum();
        DeviceUse {
            name: name.to_owned(),
            utilisation: ((self.busy + in_service) / time / self.engines.len().max(1) as f64).min(1.0),
            jobs: self.jobs as f64 / transactions,
            lanes_filled: self.jobs as f64 / (self.calls as f64).max(1.0),
            response_us: self.response / (self.jobs as f64).max(1.0),
        }
    }
}

impl Simulation<'_> {
    /// Finds a job its place; one that the adapter is to compute itself is added to `inline`.
    pub(super) fn place(&mut self, mut job: Job, inline: &mut VecDeque<Job>) {
        job.submitted = self.now;
        let cpu = self.system.class.cpu_us(job.operation);
        let able = self.devices.iter().enumerate().filter(|(_, device)| device.takes(job.operation));
        let candidates = able.map(|(number, device)| device.candidate(number, job.operation, self.now));
        let best = rules::soonest(candidates, self.backlog.len());
        match (cpu, best) {
            (Some(cpu), best) if rules::is_for_the_caller(ns(self.load + cpu), best.as_ref()) => {
                job.load = cpu;
                self.load += cpu;
                inline.push_back(job);
            }
            (_, Some(Candidate { place: number, .. })) => {
                if self.devices[number].on_cores() {
                    job.load = cpu.unwrap_or(0.0);
                    self.load += job.load;
                }
                if self.devices[number].has_room() {
                    self.devices[number].queue.push_back(job);
                    self.wake_engine(number);
                } else {
                    self.backlog.push_back(job);
                }
            }
            // A plan is refused before it comes to this: some device can do every operation.
            (_, None) => inline.push_back(job),
        }
    }

    fn wake_engine(&mut self, number: usize) {
        let device = &self.devices[number];
        if device.on_cores() {
            let mut threads = device.threads.iter().flatten().copied();
            if let Some(thread) = threads.find(|thread| self.threads[*thread].state == State::Idle) {
                self.wake(thread);
            }
            return;
        }
        for engine in 0..device.engines.len() {
            if self.devices[number].engines[engine].is_none() {
                self.start_card(number, engine);
            }
        }
    }

    /// A card's engine takes what waits.
    fn start_card(&mut self, number: usize, engine: usize) {
        let jobs = self.take(number);
        if jobs.is_empty() {
            return;
        }
        let mut time = self.devices[number].call_us(&jobs);
        if self.settings.exponential {
            time *= self.random.exponential();
        }
        self.devices[number].engines[engine] = Some((self.now, jobs));
        self.at(self.now + time, Event::Card(number, engine));
    }

    /// What the backlog has for a device moves into its line, around what one call takes out of it.
    fn take(&mut self, number: usize) -> Vec<Job> {
        self.refill(number);
        let jobs = self.devices[number].take(self.now);
        self.refill(number);
        jobs
    }

    fn refill(&mut self, number: usize) {
        while self.devices[number].has_room() {
            let device = &self.devices[number];
            let Some(place) = self.backlog.iter().position(|job| device.takes(job.operation)) else { break };
            if let Some(job) = self.backlog.remove(place) {
                self.devices[number].queue.push_back(job);
            }
        }
    }

    /// The turn of an engine that is a thread; false where nothing waits.
    pub(super) fn engine_turn(&mut self, number: usize, engine: usize, bill: &mut Bill) -> bool {
        let jobs = self.take(number);
        if jobs.is_empty() {
            return false;
        }
        if !self.devices[number].queue.is_empty() {
            self.wake_engine(number);
        }
        let device = &mut self.devices[number];
        bill.add(Role::Devices, device.call_us(&jobs) + device.spec.call_us + device.spec.job_us * jobs.len() as f64);
        device.engines[engine] = Some((self.now, jobs));
        true
    }

    /// A call is done: its answers go to the adapters.
    pub(super) fn engine_done(&mut self, number: usize, engine: usize) {
        let now = self.now;
        let device = &mut self.devices[number];
        let Some((since, jobs)) = device.engines[engine].take() else { return };
        device.busy += now - since;
        device.calls += 1;
        device.jobs += jobs.len() as u64;
        // On the cores its processor time counts, so that a crowd does not make it look slow.
        let took = if device.on_cores() { device.call_us(&jobs) + device.spec.call_us } else { now - since };
        if let Some(job) = jobs.first() {
            let estimate = &mut device.estimates[device.shapes[job.operation as usize]];
            *estimate = rules::estimate_ns(ns(*estimate), ns(took)) as f64 / NS_PER_US;
        }
        for job in jobs {
            device.response += now - job.submitted;
            self.load -= job.load;
            self.pool.answers.push_back(job);
        }
        self.wake_adapter();
        if self.devices[number].threads[engine].is_none() {
            self.start_card(number, engine);
        }
    }
}
