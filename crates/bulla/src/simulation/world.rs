//! The simulated world: a machine with a queue manager, clients, the network between them, and what goes wrong.

use super::body::SECRET;
use super::checker::{Checker, OperationId, Queue, Shown};
use super::client::{Client, Places, Surroundings, shown};
use super::events::{Events, Run};
use super::look::{left_over, lying_on};
use super::node::{Crashed, Node, open_to_all};
use super::patience::{Patience, Waiting};
use super::protection::{MANAGER, Quality, Reader, look_for_secrets, protects};
use crate::catalog::system_queues::DEAD_LETTER_QUEUE;
use crate::catalog::{Change, Full, LocalQueue, Subscription};
use crate::clock::Clock;
use crate::envelope;
use crate::stores::Tickets;
use crate::turn::pipe::Pipe;
use bulla_amqp::Payload;
use bulla_queue::sim::Fate;
use bulla_queue::{DefineError, JournalError, Message};
use fastrand::Rng;
use std::time::{Duration, Instant};

const QUEUES: [&str; 8] = ["FIRST", "SECOND", "SHORT", "TIGHT", "SEALED", "HIDDEN", "LEFT", "RIGHT"];
/// Queues that clients put on by name; what is published is on all behind them.
const OPEN: usize = 6;
/// Those that are never full.
const ROOMY: [Queue; 3] = [0, 4, 5];
/// Those that are protected.
const PROTECTED: [(Queue, Quality); 2] = [(4, Quality::Privacy), (5, Quality::Confidentiality)];
/// The queue that producers wait for, and the one that refuses, when it is full.
const SHORT: usize = 2;
const TIGHT: usize = 3;
const CLIENTS_MAX: usize = 5;
/// Steps of the disk within which a crash comes that was decided on.
const CRASH_WITHIN_STEPS: u64 = 40;
/// How long a client may say nothing: the idle timeout of the queue manager, twice what it tells, and a little more.
const SILENCE_MAX: Duration = Duration::from_secs(65);
/// How long a turn takes in which links are watched.
const PATIENCE_TURN: Duration = Duration::from_millis(100);
/// Those for which they are, at least, and within which they come to rest.
const PATIENCE_TURNS: u32 = 60;
const REST_WITHIN_TURNS: u32 = 1_000;
/// Those within which a link that could go on is looked at, also behind a checkpoint that reads.
const LOOKED_AT_WITHIN_TURNS: u32 = 10;
/// Those after which a promise of room that is not used lapses: eight ticks of the queue manager.
const LAPSE_TURNS: u32 = 21;
/// Turns that a queue manager without clients may take to come to rest.
const QUIET_WITHIN_TURNS: u32 = 10_000;

/// A world of one queue manager.
pub(super) struct World {
    random: Rng,
    clock: Clock,
    places: Places,
    node: Node,
    clients: Vec<Client>,
    /// Connections of clients that went without a word, and when something came from each.
    left_open: Vec<(Instant, Pipe)>,
    /// What commands do that are not synced yet.
    commands: Vec<(OperationId, Tickets)>,
    /// Nothing on the disk can grow.
    is_full: bool,
    checker: Checker,
    reader: Reader,
    last_name: u64,
    last_port: u16,
    events: Events,
}

impl World {
    /// What follows from a seed.
    pub(super) fn run(seed: u64, steps: u64) -> Result<Run, String> {
        let mut world = Self::new(seed)?;
        for _ in 0..steps {
            world.step()?;
        }
        world.settle_down()?;
        Ok(world.events.run(world.node.disk().steps(), world.checker.counts))
    }

    fn new(seed: u64) -> Result<Self, String> {
        let clock = Clock::simulated();
        let events = Events::new(&clock);
        let mut world = Self {
            random: Rng::with_seed(seed),
            node: Node::new(MANAGER, &clock),
            clock,
            places: places(),
            clients: Vec::new(),
            left_open: Vec::new(),
            commands: Vec::new(),
            is_full: false,
            checker: Checker::default(),
            reader: Reader::new(),
            last_name: 0,
            last_port: 0,
            events,
        };
        world.node.start(seed, &definitions()).map_err(|Crashed| "no crash was asked for")?;
        Ok(world)
    }

    /// One thing happens, and some time goes by.
    fn step(&mut self) -> Result<(), String> {
        match self.random.u32(..1_000) {
            0..=9 => self.connect(),
            10..=11 => self.cut()?,
            12 => self.node.crash_after(self.random.u64(..CRASH_WITHIN_STEPS)),
            13 if self.random.u8(..4) == 0 => self.settle_down()?,
            14..=15 => self.idle()?,
            16 => self.alter()?,
            17 => self.clear()?,
            18 => self.fill_disk(),
            19 => self.no_link_waits()?,
            _ => self.act(),
        }
        self.carry();
        self.carry_left_open()?;
        if self.random.bool() {
            self.node.adapt();
        }
        let at = self.random.usize(..self.clients.len().max(1));
        self.exchange(at)?;
        self.clock.advance(Duration::from_nanos(self.random.u64(..200_000)));
        let is_due = self.node.running().is_some_and(|running| running.due <= self.clock.now());
        if is_due || self.random.bool() {
            self.turn()?;
        }
        Ok(())
    }

    /// Does something with a client, or with none yet.
    fn on<T>(&mut self, does: impl FnOnce(&mut Vec<Client>, &mut Surroundings<'_>) -> T) -> T {
        let Self { clients, checker, random, last_name, events, clock, places, .. } = self;
        let mut tell = |what: String| events.tell(&what);
        does(clients, &mut Surroundings { places, checker, random, now: clock.now(), last_name, tell: &mut tell })
    }

    fn connect(&mut self) {
        if self.clients.len() >= CLIENTS_MAX {
            return;
        }
        self.last_port = self.last_port.wrapping_add(1);
        let (_, calls, accepts) = Pipe::connect(self.last_port);
        let Some(running) = self.node.running() else { return };
        running.dispatcher.accept_pipe(accepts);
        self.on(|clients, on| {
            let client = Client::new(calls, on);
            (on.tell)(format!("client {} connects", client.name));
            clients.push(client);
        });
    }

    /// A connection breaks, for both ends or for the client alone.
    fn cut(&mut self) -> Result<(), String> {
        if self.clients.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(..self.clients.len());
        if self.random.bool() {
            self.on(|clients, on| clients.remove(at).end(on));
            return self.notice_ends();
        }
        let refuses = self.random.bool();
        let pipe = self.on(|clients, on| clients.remove(at).vanish(refuses, on));
        self.left_open.push((self.clock.now(), pipe));
        Ok(())
    }

    /// What clients that went without a word had sent arrives, and what is sent to them goes nowhere.
    fn carry_left_open(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        for (heard, pipe) in &mut self.left_open {
            let [from_it, to_it] = pipe.waiting();
            if from_it > 0 {
                *heard = now;
            }
            if now.saturating_duration_since(*heard) > SILENCE_MAX {
                return Err(format!("a client that says nothing for {SILENCE_MAX:?} is connected still"));
            }
            pipe.carry(0, self.random.usize(..=from_it));
            pipe.carry(1, to_it);
        }
        let before = self.left_open.len();
        self.left_open.retain(|(_, pipe)| !pipe.is_over());
        if self.left_open.len() < before { self.notice_ends() } else { Ok(()) }
    }

    fn act(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.random.usize(..self.clients.len());
        self.on(|clients, on| clients[at].act(on));
    }

    /// Bytes move on: all that wait, or some.
    fn carry(&mut self) {
        for client in &self.clients {
            for (way, waiting) in client.pipe().waiting().into_iter().enumerate() {
                let bytes = match self.random.u8(..4) {
                    0 => 0,
                    1 => self.random.usize(..=waiting),
                    _ => waiting,
                };
                client.pipe().carry(way, bytes);
            }
        }
    }

    fn exchange(&mut self, at: usize) -> Result<(), String> {
        if at >= self.clients.len() {
            return Ok(());
        }
        self.on(|clients, on| clients[at].exchange(on))?;
        if self.clients[at].is_over {
            self.clients.remove(at);
            self.notice_ends()?;
        }
        Ok(())
    }

    /// What a queue manager still sends to connections that are gone comes back once it has noticed.
    fn notice_ends(&mut self) -> Result<(), String> {
        self.turn()?;
        (0..QUEUES.len()).for_each(|queue| self.checker.disturb(queue));
        Ok(())
    }

    fn turn(&mut self) -> Result<(), String> {
        match self.node.turn() {
            Ok(()) => {
                self.clients.iter_mut().for_each(|client| client.after_turn(&mut self.checker));
                self.confirm_commands()
            }
            Err(Crashed) => self.recover(),
        }
    }

    /// A command has happened once it is synced.
    fn confirm_commands(&mut self) -> Result<(), String> {
        if let Some(running) = self.node.running().filter(|_| !self.commands.is_empty()) {
            let stores = &running.manager.lock().store;
            let done: Vec<_> = self.commands.extract_if(.., |(_, tickets)| stores.are_synced(tickets)).collect();
            done.into_iter().try_for_each(|(operation, _)| self.checker.done(operation))?;
        }
        Ok(())
    }

    /// The disk is full, or has room again.
    fn fill_disk(&mut self) {
        self.is_full = !self.is_full && self.random.bool();
        self.events.tell(&format!("the disk is full: {}", self.is_full));
        if self.is_full {
            self.checker.disk_is_full();
        }
        self.node.disk().set_full(self.is_full);
    }

    fn make_room(&mut self) {
        self.is_full = false;
        self.node.disk().set_full(false);
    }

    /// The machine has crashed, and comes back.
    fn recover(&mut self) -> Result<(), String> {
        self.on(|clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        self.left_open.clear();
        self.commands.clear();
        // What does not survive made room.
        self.is_full = false;
        loop {
            let fate = match self.random.u8(..4) {
                0 => Fate::Lost,
                1 => Fate::Torn,
                2 => Fate::Kept,
                _ => Fate::Mixed(self.random.u64(..)),
            };
            self.checker.counts.crashes += 1;
            self.events.tell(&format!("crash at step {}, {fate:?}", self.node.disk().steps()));
            self.node.crash(fate);
            if self.random.u8(..4) == 0 {
                self.node.crash_after(self.random.u64(..CRASH_WITHIN_STEPS));
            }
            let seed = self.random.u64(..);
            // A start may end well although the power went with its last step.
            if self.node.start(seed, &[]).is_ok() && !self.node.disk().crashed() {
                break;
            }
        }
        let found = self.found()?;
        self.checker.audit(&found, true)
    }

    /// What lies on the queues, in their order.
    fn found(&mut self) -> Result<Vec<Vec<Shown>>, String> {
        look_for_secrets(self.node.disk(), &[SECRET])?;
        look_for_secrets(self.node.spill(), &[SECRET])?;
        let Some(running) = self.node.running() else { return Err("no queue manager runs".into()) };
        let state = &mut *running.manager.lock();
        let mut all = Vec::new();
        for (at, name) in QUEUES.iter().enumerate() {
            let protected = quality(at).map(|quality| (MANAGER, quality));
            let there = lying_on(state, (name, protected), &mut self.reader, &self.clock)?;
            self.events.tell(&format!("{name} has {}", there.len()));
            all.push(there);
        }
        Ok(all)
    }

    /// All clients go, and the queue manager comes to rest: nothing is left of them but what is on the queues.
    fn settle_down(&mut self) -> Result<(), String> {
        self.on(|clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        self.left_open.drain(..).for_each(|(_, pipe)| pipe.cut());
        self.make_room();
        let crashes = self.checker.counts.crashes;
        for _ in 0..QUIET_WITHIN_TURNS {
            self.node.adapt();
            self.turn()?;
            if self.checker.counts.crashes > crashes {
                return Ok(());
            }
            self.clock.advance(Duration::from_millis(1));
            if self.node.is_quiet() {
                let found = self.found()?;
                self.checker.audit(&found, false)?;
                return self.node.running().map_or(Ok(()), |running| left_over(&running.manager.lock()));
            }
        }
        Err("the queue manager does not come to rest".into())
    }

    /// Nothing is asked for during some time.
    fn idle(&mut self) -> Result<(), String> {
        let until = self.clock.now() + Duration::from_millis(self.random.u64(..20_000));
        while self.clock.now() < until {
            self.carry();
            self.carry_left_open()?;
            for at in (0..self.clients.len()).rev() {
                self.exchange(at)?;
            }
            self.node.adapt();
            self.turn()?;
            self.wait_until(until);
        }
        Ok(())
    }

    /// Once the disk has room, all bytes have come and some seconds have gone by, no link waits that could go on.
    fn no_link_waits(&mut self) -> Result<(), String> {
        self.make_room();
        let mut patience = Patience::default();
        let mut turns = 0;
        while turns < PATIENCE_TURNS || !patience.is_over() {
            if !self.go_on()? {
                return Ok(());
            }
            patience.turn(&self.waiting())?;
            turns += 1;
            if turns > REST_WITHIN_TURNS {
                return Err("links wait again and again".into());
            }
        }
        let disk = self.node.disk().clone();
        let Some(running) = self.node.running() else { return Ok(()) };
        let state = &mut *running.manager.lock();
        self.events.tell("no link waits");
        let Some(queue) = state.store.queue(DEAD_LETTER_QUEUE) else { return Ok(()) };
        let body = envelope::chunks_of(Payload::default());
        let put = state.store.put(queue, Message::new(true, body));
        if disk.crashed() {
            return Ok(());
        }
        put.map_err(|error| format!("the disk has room, and a message finds none: {error}"))?;
        Ok(())
    }

    /// A tenth of a second goes by, in which all bytes come and the queue manager is never late. False after a crash.
    fn go_on(&mut self) -> Result<bool, String> {
        let crashes = self.checker.counts.crashes;
        let until = self.clock.now() + PATIENCE_TURN;
        while self.clock.now() < until {
            self.clients.iter().for_each(|client| (0..2).for_each(|way| client.pipe().carry(way, usize::MAX)));
            self.carry_left_open()?;
            for at in (0..self.clients.len()).rev() {
                self.exchange(at)?;
            }
            self.node.adapt();
            self.turn()?;
            if self.checker.counts.crashes > crashes {
                return Ok(false);
            }
            self.wait_until(until);
        }
        Ok(true)
    }

    /// Time goes by until then, or until the queue manager has something to do.
    fn wait_until(&mut self, until: Instant) {
        let due = self.node.running().map_or(until, |running| running.due);
        let wait = due.min(until).saturating_duration_since(self.clock.now());
        self.clock.advance(wait.max(Duration::from_micros(100)));
    }

    /// Links that wait, and could go on: there is room for what they put, or a message for them to get.
    fn waiting(&mut self) -> Vec<Waiting> {
        let Some(running) = self.node.running() else { return Vec::new() };
        let state = &mut *running.manager.lock();
        let mut all = Vec::new();
        for (link, at, puts) in self.clients.iter().flat_map(Client::waits) {
            let name = QUEUES[at];
            let Some(queue) = state.store.queue(name) else { continue };
            let Some(status) = state.store.status(queue) else { continue };
            let (staged, putters) = state.uses.get(&queue).map_or((0, 0), |usage| (usage.staged, usage.putters));
            let taken = status.depth + staged;
            let room = state.store.attributes(queue).map_or(0, |attributes| attributes.max_depth).saturating_sub(taken);
            if puts && room > 0 {
                // All of the room may be promised to another link, and then to the next one.
                let what = format!("gets no credit for {name}, which has room for {room}");
                all.push(Waiting {
                    link,
                    turns_max: LOOKED_AT_WITHIN_TURNS + putters.saturating_sub(1) * LAPSE_TURNS,
                    what,
                });
            }
            if !puts && status.available > 0 {
                let what = format!("gets none of the {} messages on {name}", status.available);
                all.push(Waiting { link, turns_max: LOOKED_AT_WITHIN_TURNS, what });
            }
        }
        all
    }

    /// A definition changes by a command.
    fn alter(&mut self) -> Result<(), String> {
        let short = self.random.bool();
        let at = if short { SHORT } else { TIGHT };
        let queue = LocalQueue { max_depth: self.random.u32(3..20), ..queue(at) };
        self.events.tell(&format!("{} gets MAXDEPTH({})", QUEUES[at], queue.max_depth));
        let Some(running) = self.node.running() else { return Ok(()) };
        let manager = running.manager.clone();
        let changed = manager.lock().commit_definitions(&[Change::alter(QUEUES[at], queue)], &[]);
        let is_answer = matches!(changed, Ok(_) | Err(DefineError::Journal(JournalError::Full)));
        if !is_answer && !self.node.disk().crashed() {
            return Err(format!("a queue can't be altered: {changed:?}"));
        }
        manager.ring_all();
        Ok(())
    }
}

impl World {
    /// A command clears a queue and alters it, both or neither.
    fn clear(&mut self) -> Result<(), String> {
        if self.node.disk().crashed() {
            return self.recover();
        }
        let (name, altered) = (QUEUES[TIGHT], LocalQueue { max_depth: self.random.u32(3..20), ..queue(TIGHT) });
        let Some(running) = self.node.running() else { return Ok(()) };
        let manager = running.manager.clone();
        let state = &mut *manager.lock();
        let Some(queue) = state.store.queue(name) else { return Err(format!("{name} is gone")) };
        let (mut there, mut after) = (Vec::new(), None);
        while let Some(found) = state.store.browse_next(queue, after, 0) {
            let body = state.store.body_now(found.id).map_err(|error| format!("{name}: {error}"))?;
            there.push(shown(&envelope::payload_of(&body))?);
            after = Some(found.place);
        }
        let changes = [Change::ClearLocal { name: name.into() }, Change::alter(name, altered)];
        if self.random.u8(..4) == 0 {
            // A unit that can't be carried out leaves all as it is.
            let unknown = Change::ClearLocal { name: "NONE".into() };
            let result = state.commit_definitions(&[&changes[..], &[unknown]].concat(), &[]);
            self.events.tell("a command is refused");
            return if result.is_err() { Ok(()) } else { Err("a queue is cleared that there is not".into()) };
        }
        // Nothing of it is in the journal yet, whatever happens next.
        let Ok(tickets) = state.commit_definitions(&changes, &[]) else { return Ok(()) };
        let operation = self.checker.begin();
        for shown in &there {
            self.checker.lies_there(TIGHT, *shown)?;
            self.checker.removes(operation, TIGHT, shown.number);
        }
        self.events.tell(&format!("{name} is cleared of {}", there.len()));
        self.commands.push((operation, tickets));
        manager.ring_all();
        Ok(())
    }
}

fn quality(at: Queue) -> Option<Quality> {
    PROTECTED.iter().find(|(protected, _)| *protected == at).map(|(_, quality)| *quality)
}

fn places() -> Places {
    let named: Vec<_> = QUEUES.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    Places {
        // Producers that wait for one another on the short queue are usual.
        puts: [&named[..OPEN], &[named[SHORT]; 3]].concat(),
        gets: named,
        roomy: ROOMY.to_vec(),
        secrets: PROTECTED.map(|(at, _)| (at, SECRET)).to_vec(),
        topic: Some(("topic://news", OPEN..QUEUES.len())),
    }
}

fn queue(at: usize) -> LocalQueue {
    let full = if at == SHORT || ROOMY.contains(&at) { Full::Wait } else { Full::Reject };
    let max_depth = match at {
        SHORT | TIGHT => 12,
        at if ROOMY.contains(&at) => 5_000,
        _ => 100,
    };
    LocalQueue { max_depth, full, ..LocalQueue::default() }
}

fn definitions() -> Vec<Change> {
    let mut changes = open_to_all();
    changes.extend(PROTECTED.iter().map(|(at, quality)| protects(QUEUES[*at], *quality)));
    changes.extend(QUEUES.iter().enumerate().map(|(at, name)| Change::define(*name, queue(at))));
    for name in &QUEUES[OPEN..] {
        let subscription =
            Subscription { string: "news".into(), destination: (*name).to_owned(), ..Subscription::default() };
        changes.push(Change::define(*name, subscription));
    }
    changes
}
