//! Random puts, gets, units of work, lost connections, restarts and kills, and after each step the queues are what a
//! model says.
//!
//! A failure names the seed and the step. `BULLA_SEED=n` runs that seed alone, `BULLA_STEPS=n` so many steps.

use crate::catalog::{Backout, Full, LocalQueue};
use crate::whole::harness::{Harness, PATIENCE, Shown, message, number, seeds_and_steps};
use bulla_amqp::{Delivery, DeliveryState, LinkId};
use bulla_client::{Client, Unit};
use std::collections::BTreeMap;

const SEEDS: u64 = 4;
const STEPS: u64 = 5_000;
const CLIENTS: usize = 4;
const UNITS_MAX: usize = 3;
/// Queues that are put on and got from; behind them those to which messages are moved.
const QUEUES: [&str; 5] = ["PLAIN", "SHORT", "MOVING", "BACK", "SYSTEM.DEAD.LETTER.QUEUE"];
const OPEN: usize = 3;
const SHORT: usize = 1;
const MOVING: usize = 2;
const BACK: usize = 3;
const DEAD: usize = 4;
const SHORT_DEPTH: usize = 12;
const THRESHOLD: u32 = 3;

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    priority: u8,
    persistent: bool,
    failures: u32,
    locked: bool,
}

/// What becomes of a message that was got.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Accept,
    Release,
    Fail,
    Reject,
}

#[derive(Debug, Default)]
struct ModelUnit {
    puts: Vec<(usize, Entry)>,
    gets: Vec<(usize, u64, Outcome)>,
}

/// The queues in order of delivery: by priority, then by arrival.
#[derive(Debug, Default)]
struct Model {
    queues: [BTreeMap<(u8, u64), Entry>; QUEUES.len()],
    arrivals: u64,
    next: u64,
}

impl Model {
    fn fresh(&mut self, random: &mut Random) -> Entry {
        self.next += 1;
        let (priority, persistent) = (random.below(3) as u8 * 4, random.below(4) > 0);
        Entry { number: self.next, priority, persistent, failures: 0, locked: false }
    }

    fn put(&mut self, queue: usize, entry: Entry) {
        self.arrivals += 1;
        let entry = Entry { failures: 0, locked: false, ..entry };
        self.queues[queue].insert((9 - entry.priority, self.arrivals), entry);
    }

    fn is_full(&self, queue: usize, more: usize) -> bool {
        queue == SHORT && self.queues[queue].len() + more >= SHORT_DEPTH
    }

    fn place(&self, queue: usize, number: u64) -> (u8, u64) {
        *self.queues[queue].iter().find(|(_, entry)| entry.number == number).expect("it is locked").0
    }

    fn remove(&mut self, queue: usize, number: u64) -> Entry {
        let place = self.place(queue, number);
        self.queues[queue].remove(&place).unwrap()
    }

    fn give_back(&mut self, queue: usize, number: u64, failed: bool) {
        let place = self.place(queue, number);
        let entry = self.queues[queue].get_mut(&place).unwrap();
        entry.locked = false;
        entry.failures += u32::from(failed);
        if failed && queue == MOVING && entry.failures >= THRESHOLD {
            let entry = self.remove(queue, number);
            self.put(BACK, entry);
        }
    }

    fn conclude(&mut self, queue: usize, number: u64, outcome: Outcome) {
        match outcome {
            Outcome::Accept => drop(self.remove(queue, number)),
            Outcome::Release => self.give_back(queue, number, false),
            Outcome::Fail => self.give_back(queue, number, true),
            Outcome::Reject => {
                let entry = self.remove(queue, number);
                self.put(DEAD, entry);
            }
        }
    }

    /// Whether the commit takes place; otherwise the unit is backed out.
    fn commit(&mut self, unit: ModelUnit) -> bool {
        let short = unit.puts.iter().filter(|(queue, _)| *queue == SHORT).count();
        if short > 0 && self.is_full(SHORT, short - 1) {
            self.back_out(unit);
            return false;
        }
        for (queue, entry) in unit.puts {
            self.put(queue, entry);
        }
        // What leaves the queues goes with the puts; the rest comes after.
        let leaves = |outcome: &Outcome| matches!(outcome, Outcome::Accept | Outcome::Reject);
        for (queue, number, outcome) in unit.gets.iter().filter(|(.., outcome)| leaves(outcome)) {
            self.conclude(*queue, *number, *outcome);
        }
        for (queue, number, outcome) in unit.gets.iter().filter(|(.., outcome)| !leaves(outcome)) {
            self.conclude(*queue, *number, *outcome);
        }
        true
    }

    fn back_out(&mut self, unit: ModelUnit) {
        for (queue, number, _) in unit.gets {
            self.give_back(queue, number, true);
        }
    }

    /// What is found again: persistent messages, none of them delivered.
    fn after_a_kill(&self) -> Model {
        let mut queues = self.queues.clone();
        for queue in &mut queues {
            queue.retain(|_, entry| entry.persistent);
            queue.values_mut().for_each(|entry| entry.locked = false);
        }
        Model { queues, ..*self }
    }

    fn available(&self, queue: usize) -> Vec<Shown> {
        let free = self.queues[queue].values().filter(|entry| !entry.locked);
        free.map(|entry| (entry.number, entry.failures)).collect()
    }
}

/// A client, its links and its open units.
struct Seat {
    client: Client,
    senders: Vec<LinkId>,
    receivers: Vec<LinkId>,
    units: Vec<(Unit, ModelUnit)>,
}

impl Seat {
    fn new(harness: &Harness) -> Self {
        let mut client = harness.client();
        let names = &QUEUES[..OPEN];
        let senders = names.iter().map(|queue| client.sender(queue, false).unwrap().link).collect();
        let receivers = names.iter().map(|queue| client.receiver(queue, false, false).unwrap().link).collect();
        Self { client, senders, receivers, units: Vec::new() }
    }
}

struct Run {
    harness: Harness,
    model: Model,
    random: Random,
    seats: Vec<Seat>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let any = LocalQueue { max_depth: 100_000, full: Full::Reject, ..LocalQueue::default() };
        let short = LocalQueue { max_depth: SHORT_DEPTH as u32, ..any.clone() };
        let moving = LocalQueue {
            backout: Backout::Move,
            backout_threshold: THRESHOLD,
            backout_queue: Some(QUEUES[BACK].into()),
            ..any.clone()
        };
        let kinds = [any.clone(), short, moving, any.clone(), any];
        let queues: Vec<(&str, LocalQueue)> = QUEUES.into_iter().zip(kinds).collect();
        let harness = Harness::new(&queues);
        let seats = (0..CLIENTS).map(|_| Seat::new(&harness)).collect();
        Self { harness, model: Model::default(), random: Random(fastrand::Rng::with_seed(seed)), seats }
    }

    /// Messages that open units have staged for a queue.
    fn staged(&self, queue: usize) -> usize {
        let units = self.seats.iter().flat_map(|seat| &seat.units);
        units.flat_map(|(_, unit)| &unit.puts).filter(|(to, _)| *to == queue).count()
    }

    fn step(&mut self) {
        let seat = self.random.below(CLIENTS as u64) as usize;
        let queue = self.random.below(OPEN as u64) as usize;
        let open = self.seats[seat].units.len();
        let unit = self.random.below(open.max(1) as u64) as usize;
        match self.random.below(100) {
            0..=11 if open < UNITS_MAX => {
                let unit = self.seats[seat].client.begin().unwrap();
                self.seats[seat].units.push((unit, ModelUnit::default()));
            }
            12..=19 => drop(self.put(seat, queue)),
            20..=44 if open > 0 => self.put_in(seat, queue, unit),
            45..=54 => self.get(seat, queue),
            55..=79 if open > 0 => self.get_in(seat, queue, unit),
            80..=91 if open > 0 => {
                let (unit, said) = self.seats[seat].units.remove(unit);
                let committed = self.model.commit(said);
                let result = self.seats[seat].client.end(unit, true, PATIENCE);
                assert_eq!(result.is_ok(), committed, "{result:?}");
            }
            92..=97 if open > 0 => {
                let (unit, said) = self.seats[seat].units.remove(unit);
                self.model.back_out(said);
                self.seats[seat].client.end(unit, false, PATIENCE).unwrap();
            }
            98 => self.lose(seat),
            99 => match self.random.below(12) {
                0 => self.restart(),
                1 => self.kill(),
                _ => {}
            },
            _ => {}
        }
    }

    /// Whether a message was put that is there after a kill.
    fn put(&mut self, seat: usize, queue: usize) -> bool {
        let entry = self.model.fresh(&mut self.random);
        let Seat { client, senders, .. } = &mut self.seats[seat];
        let result = client.put(senders[queue], message(entry.number, entry.priority, entry.persistent), PATIENCE);
        assert_eq!(result.is_ok(), !self.model.is_full(queue, 0), "{result:?}");
        if result.is_ok() {
            self.model.put(queue, entry);
        }
        result.is_ok() && entry.persistent
    }

    fn put_in(&mut self, seat: usize, queue: usize, unit: usize) {
        let entry = self.model.fresh(&mut self.random);
        let staged = self.staged(queue);
        let Seat { client, senders, units, .. } = &mut self.seats[seat];
        let (unit, said) = &mut units[unit];
        let message = message(entry.number, entry.priority, entry.persistent);
        let result = client.put_in(unit, senders[queue], message, PATIENCE);
        assert_eq!(result.is_ok(), !self.model.is_full(queue, staged), "{result:?}");
        if result.is_ok() {
            said.puts.push((queue, entry));
        }
    }

    /// Gets what comes first, which the model must agree on.
    fn fetch(&mut self, seat: usize, queue: usize) -> Option<(Delivery, u64)> {
        let Seat { client, receivers, .. } = &mut self.seats[seat];
        let delivery = client.get(receivers[queue], None).unwrap();
        let first = self.model.queues[queue].values_mut().find(|entry| !entry.locked);
        assert_eq!(
            delivery.as_ref().map(|delivery| number(&delivery.payload)),
            first.as_ref().map(|first| first.number)
        );
        first.map(|first| {
            first.locked = true;
            (delivery.expect("the model has one"), first.number)
        })
    }

    fn outcome(&mut self) -> (Outcome, DeliveryState) {
        match self.random.below(10) {
            0 => (Outcome::Release, DeliveryState::Released),
            1 => (Outcome::Reject, DeliveryState::Rejected(None)),
            2 => {
                let (delivery_failed, undeliverable_here) = (true, false);
                let message_annotations = Vec::new();
                let state = DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations };
                (Outcome::Fail, state)
            }
            _ => (Outcome::Accept, DeliveryState::Accepted),
        }
    }

    fn get(&mut self, seat: usize, queue: usize) {
        let (outcome, state) = self.outcome();
        let Some((delivery, number)) = self.fetch(seat, queue) else { return };
        self.seats[seat].client.settle(&delivery, state).unwrap();
        self.model.conclude(queue, number, outcome);
    }

    fn get_in(&mut self, seat: usize, queue: usize, unit: usize) {
        let (outcome, state) = self.outcome();
        let Some((delivery, number)) = self.fetch(seat, queue) else { return };
        let Seat { client, units, .. } = &mut self.seats[seat];
        let (unit, said) = &mut units[unit];
        client.settle_in(unit, &delivery, state).unwrap();
        said.gets.push((queue, number, outcome));
    }

    /// A connection is gone, and comes again.
    fn lose(&mut self, seat: usize) {
        let Seat { client, units, .. } = self.seats.remove(seat);
        drop(client);
        for (_, unit) in units {
            self.model.back_out(unit);
        }
        self.agree("a connection was lost");
        self.seats.insert(seat, Seat::new(&self.harness));
    }

    fn restart(&mut self) {
        for Seat { client, units, .. } in std::mem::take(&mut self.seats) {
            drop(client);
            units.into_iter().for_each(|(_, unit)| self.model.back_out(unit));
            self.agree("a connection was lost");
        }
        for queue in &QUEUES[..OPEN] {
            self.harness.until("nothing is promised any more", |harness| harness.promised(queue) == (0, 0));
        }
        assert_eq!(self.harness.units().2, 0);
        self.harness.start();
        for queue in &mut self.model.queues {
            queue.retain(|_, entry| entry.persistent);
        }
        self.agree("it was started again");
        self.seats = (0..CLIENTS).map(|_| Seat::new(&self.harness)).collect();
    }

    /// The process is killed with units and deliveries open, a moment after some more was done. What was answered is
    /// there; what was not may be, but nothing of it without what was done before.
    fn kill(&mut self) {
        {
            let manager = self.harness.running().manager().clone();
            manager.lock().store.sync(std::time::Instant::now()).unwrap();
        }
        let mut possible = vec![self.model.after_a_kill()];
        for _ in 0..self.random.below(6) {
            let (seat, queue) = (self.random.below(CLIENTS as u64) as usize, self.random.below(OPEN as u64) as usize);
            if self.random.below(3) > 0 {
                self.get(seat, queue);
                possible.push(self.model.after_a_kill());
            } else if self.put(seat, queue) {
                // It was answered, and a journal keeps what came before.
                possible = vec![self.model.after_a_kill()];
            } else {
                possible.push(self.model.after_a_kill());
            }
        }
        // What the connections had open has no owner.
        let seats = &mut self.seats;
        self.harness.kill(|| seats.clear());
        let found: Vec<Vec<Shown>> = QUEUES.iter().map(|queue| self.harness.available(queue)).collect();
        let found =
            possible.into_iter().rev().find(|model| (0..QUEUES.len()).all(|at| model.available(at) == found[at]));
        self.model =
            found.expect("what is found after a kill is not what was there at any moment since the last answer");
        self.agree("it was killed");
        self.seats = (0..CLIENTS).map(|_| Seat::new(&self.harness)).collect();
    }

    /// The queues are as the model says; a disposition without a confirmation may take a moment.
    #[track_caller]
    fn agree(&self, what: &str) {
        for (at, queue) in QUEUES.iter().enumerate() {
            let wanted = (self.model.available(at), self.model.queues[at].len() as u32);
            let shows = |harness: &Harness| (harness.available(queue), harness.depth(queue));
            if shows(&self.harness) != wanted {
                let text = format!("{what}: {queue} shows {:?}, not {wanted:?}", shows(&self.harness));
                self.harness.until(&text, |harness| shows(harness) == wanted);
            }
        }
    }
}

#[test]
fn queues_are_what_a_model_says_after_every_step() {
    let (seeds, steps) = seeds_and_steps(SEEDS, STEPS);
    for seed in seeds {
        let mut run = Run::new(seed);
        for step in 0..steps {
            run.step();
            run.agree(&format!("seed {seed}, step {step}"));
        }
        run.restart();
        // Before the queue manager, which would wait for them.
        run.seats.clear();
    }
}
