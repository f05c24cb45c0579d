//! A discrete-event simulation of customers over HTTPS: each does one thing after another, on threads that share cores
//! and devices. Time is in microseconds.

use super::acts::{Connection, Key, Step, Work};
use super::devices::{Device, Job, ns};
use crate::plan::profile::{self, Operation, Place};
use crate::plan::random::Random;
use crate::plan::simulation::cores::{Cores, Turn};
use crate::plan::simulation::{BATCHES, mean_within};
use bulla_device::scheduler::rules;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Transactions that are passed over first, and that count.
const WARM_UP: usize = 2_000;
const MEASURED: usize = 20_000;
/// Most events of a run.
const EVENTS_MAX: u64 = 20_000_000;

/// A system and its customers.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) cores: profile::Cores,
    pub(super) dispatchers: u32,
    pub(super) adapters: u32,
    pub(super) customers: u32,
    /// Customers and broker have a machine of their own, which is never full.
    pub(super) elsewhere: bool,
    /// Microseconds from one end of a connection to the other.
    pub(super) network_us: f64,
    pub(super) work: Work,
    /// The listener's key, and that of orders.
    pub(super) keys: [String; 2],
    /// What the processor takes for each operation with each; none where it leaves that to devices.
    pub(super) cpu: [[Option<f64>; 4]; 2],
    pub(super) devices: Vec<(String, profile::Device)>,
    /// What an asker spends on a job that goes to another thread, microseconds.
    pub(super) job_us: f64,
}

/// What a device did.
#[derive(Clone, Debug)]
pub(super) struct DeviceOutcome {
    pub(super) name: String,
    pub(super) engines: u32,
    pub(super) utilisation: f64,
    /// Jobs of a transaction, of a call, and how long one took from its arrival to its answer.
    pub(super) jobs: f64,
    pub(super) lanes_filled: f64,
    pub(super) response_us: f64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Transactions a second, and half of the 95 % confidence interval.
    pub(super) rate: f64,
    pub(super) rate_within: f64,
    /// Microseconds of each transaction, in ascending order.
    pub(super) responses: Vec<f64>,
    pub(super) cores_busy: f64,
    pub(super) cpu_us: BTreeMap<&'static str, f64>,
    /// The busiest thread of each kind: how many, part of the time.
    pub(super) threads: [(&'static str, u32, f64); 3],
    pub(super) devices: Vec<DeviceOutcome>,
    pub(super) complete: bool,
}

const ROLES: [&str; 5] = ["application", "queue-manager", "tls", "protection", "devices"];

#[derive(Clone, Copy, Debug)]
enum Role {
    Application,
    QueueManager,
    Tls,
    Protection,
    Devices,
}

/// What a thread has in its line.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A step of a token.
    Step(usize),
    /// An operation that it computes itself.
    Inline(Job),
    /// A call of its engine.
    Call(usize, usize),
}

#[derive(Clone, Copy, Debug)]
struct Item {
    what: What,
    us: f64,
    role: Role,
}

#[derive(Debug, Default)]
struct Thread {
    line: VecDeque<Item>,
    now: Option<Item>,
    /// On another machine: it shares no core of this one.
    elsewhere: bool,
    used: f64,
    since: f64,
    ran: f64,
}

/// Someone on the way through steps.
#[derive(Debug, Default)]
struct Token {
    customer: usize,
    /// It is the broker's work for that customer.
    fills: bool,
    steps: VecDeque<Step>,
    began: f64,
    /// The adapter, dispatcher or other thread that took its last step.
    thread: usize,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A thread elsewhere is done.
    Thread(usize),
    Card(usize, usize),
    /// It came over the network.
    Arrived(usize),
}

/// A customer.
#[derive(Debug, Default)]
struct Customer {
    connection: Connection,
    /// Confirmations that came, and whether the next one is awaited.
    confirmed: u32,
    awaited: Option<usize>,
}

struct Simulation<'a> {
    system: &'a System,
    random: Random,
    now: f64,
    order: u64,
    timers: BTreeSet<(u64, u64)>,
    events: BTreeMap<u64, Event>,
    cores: Cores,
    threads: Vec<Thread>,
    tokens: Vec<Token>,
    free: Vec<usize>,
    customers: Vec<Customer>,
    devices: Vec<Device>,
    backlog: VecDeque<Job>,
    load: f64,
    bill: [f64; ROLES.len()],
    inline: (u64, f64),
    responses: Vec<f64>,
    batch_ends: Vec<f64>,
    completed: usize,
    began: f64,
}

/// Runs it.
pub(super) fn run(system: &System, seed: u64) -> Outcome {
    let mut simulation = Simulation::new(system, seed);
    let complete = simulation.run();
    simulation.outcome(complete)
}

impl<'a> Simulation<'a> {
    fn new(system: &'a System, seed: u64) -> Self {
        let capacity = f64::from(system.cores.count) - system.cores.background;
        let mut simulation = Self {
            system,
            random: Random::new(seed),
            now: 0.0,
            order: 0,
            timers: BTreeSet::new(),
            events: BTreeMap::new(),
            cores: Cores::new(capacity, system.cores.crowding, system.cores.slice_us),
            threads: Vec::new(),
            tokens: Vec::new(),
            free: Vec::new(),
            customers: (0..system.customers).map(|_| Customer::default()).collect(),
            devices: Vec::new(),
            backlog: VecDeque::new(),
            load: 0.0,
            bill: [0.0; ROLES.len()],
            inline: (0, 0.0),
            responses: Vec::with_capacity(MEASURED),
            batch_ends: Vec::with_capacity(BATCHES),
            completed: 0,
            began: 0.0,
        };
        // Dispatchers, adapters, the broker, customers, engines.
        for number in 0..system.dispatchers + system.adapters + 1 + system.customers {
            let elsewhere = system.elsewhere && number >= system.dispatchers + system.adapters;
            simulation.threads.push(Thread { elsewhere, ..Thread::default() });
        }
        for (name, spec) in &system.devices {
            let keys = [system.keys[0].as_str(), system.keys[1].as_str()];
            let mut device = Device::new(name.clone(), spec.clone(), keys);
            if device.on_cores() {
                let first = simulation.threads.len();
                device.threads = (first..first + device.engines.len()).collect();
                simulation.threads.extend((0..device.engines.len()).map(|_| Thread::default()));
            }
            simulation.devices.push(device);
        }
        simulation
    }

    fn run(&mut self) -> bool {
        (0..self.customers.len()).for_each(|customer| self.begins(customer));
        for _ in 0..EVENTS_MAX {
            if self.responses.len() >= MEASURED {
                return true;
            }
            let timer = self.timers.first().map(|(at, _)| f64::from_bits(*at));
            match (self.cores.next(), timer) {
                (Some(core), timer) if timer.is_none_or(|timer| core <= timer) => {
                    self.now = core.max(self.now);
                    // Who waits here has its work with it, so that none begins without.
                    if let Some(Turn::Begins(thread) | Turn::Ends(thread)) = self.cores.happens(self.now) {
                        self.ends(thread);
                    }
                }
                (_, Some(timer)) => {
                    self.now = timer.max(self.now);
                    self.cores.advance(self.now);
                    if let Some((_, number)) = self.timers.pop_first()
                        && let Some(event) = self.events.remove(&number)
                    {
                        self.happens(event);
                    }
                }
                _ => return false,
            }
        }
        false
    }

    /// Something happens then. Times are never negative, so that their bits have their order.
    fn at(&mut self, time: f64, event: Event) {
        self.order += 1;
        self.timers.insert((time.max(0.0).to_bits(), self.order));
        self.events.insert(self.order, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Thread(thread) => self.ends(thread),
            Event::Card(device, engine) => self.call_ends(device, engine),
            Event::Arrived(token) => self.take_up(token),
        }
    }

    /// A customer begins with something.
    fn begins(&mut self, customer: usize) {
        let steps = self.system.work.next(&mut self.customers[customer].connection, &mut self.random);
        let token = Token { customer, steps: steps.into(), began: self.now, ..Token::default() };
        let token = self.add(token);
        self.advance(token);
    }

    fn add(&mut self, token: Token) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.tokens[place] = token;
                place
            }
            None => {
                self.tokens.push(token);
                self.tokens.len() - 1
            }
        }
    }

    fn dispatcher(&self, customer: usize) -> usize {
        customer % self.system.dispatchers.max(1) as usize
    }

    fn adapters(&self) -> std::ops::Range<usize> {
        let first = self.system.dispatchers as usize;
        first..first + self.system.adapters.max(1) as usize
    }

    /// The adapter with least to do.
    fn adapter(&self) -> usize {
        let busy = |thread: &usize| {
            let thread = &self.threads[*thread];
            thread.line.len() + usize::from(thread.now.is_some())
        };
        self.adapters().min_by_key(busy).unwrap_or(0)
    }

    fn is_application(&self, thread: usize) -> bool {
        let first = self.adapters().end;
        (first..=first + self.customers.len()).contains(&thread)
    }

    /// The next step of a token, over the network where it goes to another machine.
    fn advance(&mut self, token: usize) {
        let to_application = match self.tokens[token].steps.front() {
            Some(Step::Customer(_) | Step::Broker(_)) => true,
            Some(Step::Tls(_) | Step::Serve(_)) => false,
            _ => return self.take_up(token),
        };
        let from_application = self.is_application(self.tokens[token].thread);
        match self.system.network_us > 0.0 && to_application != from_application {
            true => self.at(self.now + self.system.network_us, Event::Arrived(token)),
            false => self.take_up(token),
        }
    }

    fn take_up(&mut self, token: usize) {
        let Some(step) = self.tokens[token].steps.pop_front() else { return self.is_over(token) };
        let customer = self.tokens[token].customer;
        let broker = self.adapters().end;
        let (thread, us, role) = match step {
            Step::Customer(us) => (broker + 1 + customer, us, Role::Application),
            Step::Broker(us) => (broker, us, Role::Application),
            Step::Tls(us) => (self.dispatcher(customer), us, Role::Tls),
            Step::Serve(us) => (self.dispatcher(customer), us, Role::QueueManager),
            Step::Adapt(us) => (self.adapter(), us, Role::Protection),
            Step::Operation(key, operation) => return self.place(token, key, operation),
            Step::OrderIsThere => {
                let steps = self.system.work.fills().into();
                let fills = Token { customer, fills: true, steps, began: self.now, ..Token::default() };
                let fills = self.add(fills);
                self.advance(fills);
                return self.advance(token);
            }
            Step::Confirmation => {
                let customer = &mut self.customers[customer];
                match customer.confirmed.checked_sub(1) {
                    Some(left) => customer.confirmed = left,
                    None => {
                        customer.awaited = Some(token);
                        return;
                    }
                }
                return self.advance(token);
            }
        };
        self.tokens[token].thread = thread;
        self.give(thread, Item { what: What::Step(token), us, role });
    }

    /// A token has no steps left.
    fn is_over(&mut self, token: usize) {
        let Token { customer, fills, began, .. } = self.tokens[token];
        self.free.push(token);
        if fills {
            match self.customers[customer].awaited.take() {
                Some(waiting) => self.advance(waiting),
                None => self.customers[customer].confirmed += 1,
            }
            return;
        }
        self.completed += 1;
        if self.completed == WARM_UP {
            self.counts_from_here();
        } else if self.completed > WARM_UP {
            self.responses.push(self.now - began);
            if self.responses.len().is_multiple_of(MEASURED / BATCHES) {
                self.batch_ends.push(self.now);
            }
        }
        self.begins(customer);
    }

    fn counts_from_here(&mut self) {
        self.cores.advance(self.now);
        self.cores.busy = 0.0;
        self.bill = [0.0; ROLES.len()];
        self.inline = (0, 0.0);
        let now = self.now;
        self.threads.iter_mut().for_each(|thread| (thread.used, thread.ran, thread.since) = (0.0, 0.0, now));
        self.devices.iter_mut().for_each(|device| device.reset(now));
        self.began = now;
    }

    fn give(&mut self, thread: usize, item: Item) {
        self.threads[thread].line.push_back(item);
        self.goes_on(thread);
    }

    /// A thread takes up what comes next, where it has nothing under way.
    fn goes_on(&mut self, thread: usize) {
        if self.threads[thread].now.is_some() {
            return;
        }
        let Some(item) = self.threads[thread].line.pop_front() else { return };
        let at = &mut self.threads[thread];
        (at.now, at.since) = (Some(item), self.now);
        at.used += item.us;
        let elsewhere = at.elsewhere;
        if elsewhere {
            self.at(self.now + item.us, Event::Thread(thread));
        } else {
            self.cores.start(self.now, thread, item.us);
        }
        self.bill[item.role as usize] += item.us;
    }

    /// A thread is done with what it had under way.
    fn ends(&mut self, thread: usize) {
        let at = &mut self.threads[thread];
        at.ran += self.now - at.since;
        let Some(item) = at.now.take() else { return };
        match item.what {
            What::Step(token) => self.advance(token),
            What::Inline(job) => {
                self.load -= job.load;
                self.inline = (self.inline.0 + 1, self.inline.1 + self.now - job.submitted);
                self.advance(job.token);
            }
            What::Call(device, engine) => self.call_ends(device, engine),
        }
        self.goes_on(thread);
    }

    /// Finds an operation its place, as the program's scheduler does.
    fn place(&mut self, token: usize, key: Key, operation: Operation) {
        let cpu = self.system.cpu[key as usize][operation as usize];
        let mut job = Job { token, key, operation, load: 0.0, submitted: self.now };
        let able = self.devices.iter().enumerate().filter(|(_, device)| device.takes(&job));
        let candidates = able.map(|(number, device)| device.candidate(number, &job, self.now));
        let best = rules::soonest(candidates, self.backlog.len());
        let asker = match key {
            Key::Listener => self.dispatcher(self.tokens[token].customer),
            Key::Orders => self.adapter(),
        };
        let inline =
            best.is_none() || cpu.is_some_and(|us| rules::is_for_the_caller(ns(self.load + us), best.as_ref()));
        let Some(best) = best.filter(|_| !inline) else {
            job.load = cpu.unwrap_or(0.0);
            self.load += job.load;
            return self.give(asker, Item { what: What::Inline(job), us: job.load, role: Role::Devices });
        };
        // Handing it over is work of who asks; it is done with the next step.
        self.tokens[token].steps.push_front(match key {
            Key::Listener => Step::Serve(self.system.job_us),
            Key::Orders => Step::Adapt(self.system.job_us),
        });
        if self.devices[best.place].on_cores() {
            job.load = cpu.unwrap_or(0.0);
            self.load += job.load;
        }
        if self.devices[best.place].has_room() {
            self.devices[best.place].queue.push_back(job);
            self.wake(best.place);
        } else {
            self.backlog.push_back(job);
        }
    }

    /// Idle engines of a device take what waits.
    fn wake(&mut self, number: usize) {
        for engine in 0..self.devices[number].engines.len() {
            if self.devices[number].engines[engine].is_some() {
                continue;
            }
            self.refill(number);
            let jobs = self.devices[number].take(self.now);
            self.refill(number);
            if jobs.is_empty() {
                return;
            }
            let device = &mut self.devices[number];
            let us = device.call_us(&jobs);
            let count = jobs.len() as f64;
            device.engines[engine] = Some((self.now, jobs));
            if device.spec.place == Place::Card {
                self.at(self.now + us, Event::Card(number, engine));
            } else {
                let us = us + device.spec.call_us + device.spec.job_us * count;
                let thread = device.threads[engine];
                self.give(thread, Item { what: What::Call(number, engine), us, role: Role::Devices });
            }
        }
    }

    fn refill(&mut self, number: usize) {
        while self.devices[number].has_room() {
            let device = &self.devices[number];
            let Some(place) = self.backlog.iter().position(|job| device.takes(job)) else { break };
            if let Some(job) = self.backlog.remove(place) {
                self.devices[number].queue.push_back(job);
            }
        }
    }

    fn call_ends(&mut self, number: usize, engine: usize) {
        for job in self.devices[number].done(engine, self.now) {
            self.load -= job.load;
            self.advance(job.token);
        }
        self.wake(number);
    }

    fn outcome(mut self, complete: bool) -> Outcome {
        self.cores.advance(self.now);
        let time = (self.now - self.began).max(f64::MIN_POSITIVE);
        let count = (self.responses.len() as f64).max(1.0);
        let rate = self.responses.len() as f64 / time * 1e6;
        let mut before = self.began;
        let times: Vec<f64> = self.batch_ends.iter().map(|end| end - std::mem::replace(&mut before, *end)).collect();
        let (mean_time, time_within) = mean_within(&times);
        // Work takes longer in a crowd: roles share what the cores were busy.
        let here: f64 = self.threads.iter().filter(|thread| !thread.elsewhere).map(|thread| thread.used).sum();
        let stretch = if here > 0.0 { self.cores.busy / here } else { 1.0 };
        let stretched = |role: &str| if role == "application" && self.system.elsewhere { 1.0 } else { stretch };
        let cpu_us = ROLES.iter().zip(self.bill).map(|(role, us)| (*role, us * stretched(role) / count)).collect();
        let most = |threads: std::ops::Range<usize>| {
            threads.fold(0.0_f64, |most, thread| most.max(self.threads[thread].ran / time)).min(1.0)
        };
        let adapters = self.adapters();
        let used: f64 = adapters.clone().map(|thread| self.threads[thread].used).sum();
        let adapted = (used * stretch / time / adapters.len() as f64).min(1.0);
        let first = adapters.end;
        let (dispatchers, customers) = (self.system.dispatchers, self.system.customers);
        let threads = [
            ("application", customers + 1, most(first..first + 1 + self.customers.len())),
            ("dispatcher", dispatchers, most(0..dispatchers as usize)),
            ("adapters", self.system.adapters, adapted),
        ];
        let device = |device: &Device| DeviceOutcome {
            name: device.name.clone(),
            engines: device.spec.engines,
            utilisation: device.utilisation(self.now, time),
            jobs: device.jobs as f64 / count,
            lanes_filled: device.jobs as f64 / (device.calls as f64).max(1.0),
            response_us: device.response / (device.jobs as f64).max(1.0),
        };
        let mut devices: Vec<DeviceOutcome> = self.devices.iter().map(device).collect();
        if self.inline.0 > 0 {
            devices.insert(
                0,
                DeviceOutcome {
                    name: "processor".to_owned(),
                    engines: 0,
                    utilisation: 0.0,
                    jobs: self.inline.0 as f64 / count,
                    lanes_filled: 1.0,
                    response_us: self.inline.1 / self.inline.0 as f64,
                },
            );
        }
        let mut responses = std::mem::take(&mut self.responses);
        responses.sort_by(f64::total_cmp);
        Outcome {
            rate,
            rate_within: if mean_time > 0.0 { rate * time_within / mean_time } else { 0.0 },
            responses,
            cores_busy: self.cores.busy / time,
            cpu_us,
            threads,
            devices,
            complete,
        }
    }
}
