//! Three queue managers that are members of a group, over one simulated log: each may die, stand still, be cut off from
//! the log, or be told to take the group over; the log may have no majority. Their clients put on the group's queues
//! and get from them, also in units of work. What decides who owns the group is the program's own
//! [`Member`](SimulatedMember).
//!
//! From a claim on, nothing that a former owner's clients ask for can come into the log, and the checker knows that:
//! where such a put, removal or unit is confirmed, that is an error. Messages that are not persistent may be lost with
//! their owner. From when the new owner may send, no former one sends anything that lies on the group's queues.

use super::body::{SECRET, SECRET_HERE};
use super::checker::{Checker, Queue};
use super::client::{Client, Places, Surroundings};
use super::events::{Events, Run};
use super::look::{left_over, lying_on};
use super::node::{Crashed, Node, open_to_all};
use super::protection::{Quality, Reader, look_for, protects};
use super::shared_log::{Network, Place};
use crate::catalog::objects::Redirect;
use crate::catalog::status::GroupStatus;
use crate::catalog::system_queues::{dead_letter_queue_of, error_queue_of};
use crate::catalog::{Change, LocalQueue, SharedGroup};
use crate::clock::Clock;
use crate::shared_groups::{ANSWERS_ON, LOOK_EVERY, Numbers, Outside, SimulatedMember};
use crate::stores::NamedStore;
use crate::turn::pipe::Pipe;
use bulla_queue::log::Epoch;
use bulla_queue::sim::{Fate, SimDisk};
use bulla_queue::{FileSpill, Log};
use fastrand::Rng;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const GROUP: &str = "GROUP";
const MANAGERS: [&str; 3] = ["QM1", "QM2", "QM3"];
const REDIRECTS: [Redirect; 3] = [Redirect::No, Redirect::Link, Redirect::Connection];
const QUEUES: [&str; 3] = ["FIRST", "SECOND", "SEALED"];
const SEALED: Queue = 2;
const CLIENTS_MAX: usize = 3;
const SPILL_BYTES_MAX: u64 = 64 << 20;
/// Of the log, for its member: less than a definition may say, so that it is carried forward and let go within a seed.
const LOG_BYTES: u64 = 1 << 20;
/// The longest time that a machine is down, stands still or is cut off, and that there is no majority.
const AWAY_MS: u64 = 6_000;
/// One step in so many takes long.
const LONG_ONE_IN: u8 = 8;
const SHORT_NS: u64 = 200_000;
const LONG_NS: u64 = 15_000_000;
/// Turns within which a group has an owner that rests once all is well, and how long each takes.
const QUIET_WITHIN_TURNS: u32 = 40_000;
const QUIET_TURN: Duration = Duration::from_millis(5);

/// Three machines, and all that is between them.
pub(super) struct Group {
    random: Rng,
    clock: Clock,
    network: Network,
    seats: Vec<Seat>,
    places: Places,
    /// When the engine has a majority again.
    no_majority_until: Option<Instant>,
    owner: Option<(Place, Epoch)>,
    checker: Checker,
    reader: Reader,
    last_name: u64,
    last_port: u16,
    events: Events,
}

/// A machine, and its clients.
struct Seat {
    node: Node,
    member: Option<SimulatedMember>,
    /// When the member looks.
    looks_at: Instant,
    /// What it has given up, which answers until then.
    left: Option<(Instant, NamedStore)>,
    clients: Vec<Client>,
    /// Until when it is down, stands still, is cut off from the engine, and takes no part.
    down_until: Option<Instant>,
    paused_until: Option<Instant>,
    cut_until: Option<Instant>,
    parted_until: Option<Instant>,
}

impl Seat {
    /// Whether it does anything.
    fn is_awake(&self) -> bool {
        self.down_until.is_none() && self.paused_until.is_none()
    }
}

impl Group {
    /// What follows from a seed.
    pub(super) fn run(seed: u64, steps: u64) -> Result<Run, String> {
        let mut group = Self::new(seed);
        for place in 0..MANAGERS.len() {
            group.start(place, &definitions(place))?;
        }
        group.define()?;
        for _ in 0..steps {
            group.step()?;
        }
        group.settle_down()?;
        let disk_steps = group.seats.iter().map(|seat| seat.node.disk().steps()).sum();
        let (seen, mut counts) = (group.network.counts(), group.checker.counts);
        (counts.claims, counts.refused_batches) = (seen.claims, seen.refused);
        Ok(group.events.run(disk_steps, counts))
    }

    fn new(seed: u64) -> Self {
        let clock = Clock::simulated();
        let mut random = Rng::with_seed(seed);
        let seat = |place: usize| Seat {
            node: Node::new(MANAGERS[place], &clock),
            member: None,
            looks_at: clock.now(),
            left: None,
            clients: Vec::new(),
            down_until: None,
            paused_until: None,
            cut_until: None,
            parted_until: None,
        };
        Self {
            network: Network::new(&clock, MANAGERS.len(), random.u64(..)),
            seats: (0..MANAGERS.len()).map(seat).collect(),
            places: places(),
            no_majority_until: None,
            owner: None,
            checker: Checker::of_crossing(),
            reader: Reader::new(),
            last_name: 0,
            last_port: 0,
            events: Events::new(&clock),
            random,
            clock,
        }
    }

    /// A machine starts, and takes part in the group.
    fn start(&mut self, place: Place, changes: &[Change]) -> Result<(), String> {
        let seed = self.random.u64(..);
        let seat = &mut self.seats[place];
        seat.node.start(seed, changes).map_err(|Crashed| "no crash was asked for")?;
        self.take_part(place);
        Ok(())
    }

    fn take_part(&mut self, place: Place) {
        let seat = &mut self.seats[place];
        let Some(running) = seat.node.running() else { return };
        let network = self.network.clone();
        let outside = Outside {
            log: Box::new(move || Ok(Box::new(network.open(place, MANAGERS[place])?) as Box<dyn Log>)),
            scratch: Box::new(|| {
                let spill = FileSpill::open(SimDisk::default(), SPILL_BYTES_MAX).map_err(|error| error.to_string())?;
                Ok(Box::new(spill))
            }),
        };
        let (numbers, status) = (Arc::<Numbers>::default(), Arc::<Mutex<GroupStatus>>::default());
        let definition = SharedGroup { log_bytes: LOG_BYTES, ..shared_group(place) };
        let member = SimulatedMember::new(running.manager.clone(), GROUP, &definition, outside, numbers, status);
        (seat.member, seat.looks_at) = (Some(member), self.clock.now());
    }

    /// The first owner defines the group's queues.
    fn define(&mut self) -> Result<(), String> {
        for _ in 0..QUIET_WITHIN_TURNS {
            self.clock.advance(QUIET_TURN);
            self.live()?;
            let Some(place) = self.open_at() else { continue };
            let Some(running) = self.seats[place].node.running() else { continue };
            let state = &mut *running.manager.lock();
            if state.store.queue(QUEUES[SEALED]).is_none() {
                let queue = LocalQueue { group: Some(GROUP.into()), max_depth: 100_000, ..LocalQueue::default() };
                let changes = QUEUES.map(|name| Change::define(name, queue.clone()));
                state.commit_definitions(&changes, &[]).map_err(|error| error.to_string())?;
                let policy = [protects(QUEUES[SEALED], Quality::Privacy)];
                state.commit_definitions(&policy, &[]).map_err(|error| error.to_string())?;
            }
            if state.store.are_synced(&state.store.written()) {
                return Ok(());
            }
        }
        Err("the group has no owner".into())
    }

    /// The machine that has the group's queues open, which is its owner by the log, too.
    fn open_at(&mut self) -> Option<Place> {
        let (place, _) = self.network.owner()?;
        let running = self.seats[place].node.running()?;
        running.manager.lock().store.store_named(GROUP).map(|_| place)
    }

    /// One thing happens, and some time goes by.
    fn step(&mut self) -> Result<(), String> {
        let owner = self.owner.map(|(place, _)| place).filter(|_| self.random.bool());
        let place = owner.unwrap_or_else(|| self.random.usize(..self.seats.len()));
        match self.random.u32(..4_000) {
            0..=79 => self.connect(place),
            80..=87 => self.cut_client(place)?,
            88..=89 => self.die(place),
            90..=91 => self.pause(place),
            92..=93 => self.cut(place),
            94 => self.lose_majority(),
            95..=96 => self.take_over(place),
            97 => self.part(place),
            98 if self.random.u8(..4) == 0 => self.settle_down()?,
            99 => self.idle()?,
            _ => self.act(place),
        }
        self.carry();
        let at = self.random.usize(..self.seats[place].clients.len().max(1));
        self.exchange(place, at)?;
        let ns = if self.random.u8(..LONG_ONE_IN) == 0 { LONG_NS } else { SHORT_NS };
        self.clock.advance(Duration::from_nanos(self.random.u64(..ns)));
        self.live()
    }

    /// Some time, in milliseconds at most, from now on.
    fn until(&mut self, most: u64) -> Instant {
        self.clock.now() + Duration::from_millis(self.random.u64(..most))
    }

    // ---- what goes wrong

    /// The power of a machine goes.
    fn die(&mut self, place: Place) {
        let until = self.until(AWAY_MS);
        if self.seats[place].down_until.replace(until).is_some() {
            return;
        }
        self.events.tell(&format!("{} dies", MANAGERS[place]));
        self.on(place, |clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        self.network.died(place);
        let seat = &mut self.seats[place];
        (seat.member, seat.left) = (None, None);
        (seat.paused_until, seat.parted_until) = (None, None);
        seat.node.crash(Fate::Lost);
        self.network.pause(place, false);
        self.checker.crashed();
        self.disturb();
    }

    /// A queue manager stands still.
    fn pause(&mut self, place: Place) {
        let until = self.until(AWAY_MS);
        if self.seats[place].is_awake() {
            self.events.tell(&format!("{} stands still", MANAGERS[place]));
            self.seats[place].paused_until = Some(until);
            self.network.pause(place, true);
        }
    }

    /// A machine does not reach the engine, and is not reached.
    fn cut(&mut self, place: Place) {
        let is_alone = self.random.bool();
        self.events.tell(&format!("{} is cut off from the log, from others as well: {is_alone}", MANAGERS[place]));
        self.seats[place].cut_until = Some(self.until(AWAY_MS));
        self.network.cut(place, is_alone);
    }

    fn lose_majority(&mut self) {
        self.events.tell("the log has no majority");
        self.no_majority_until = Some(self.until(AWAY_MS));
        self.network.set_majority(false);
    }

    /// An operator says who is to own the group.
    fn take_over(&mut self, place: Place) {
        if let Some(member) = &mut self.seats[place].member {
            self.events.tell(&format!("{} is to take over", MANAGERS[place]));
            member.take_over();
        }
    }

    /// A member takes no part for some time.
    fn part(&mut self, place: Place) {
        let until = self.until(AWAY_MS);
        let now = self.clock.now();
        let seat = &mut self.seats[place];
        if let Some(mut member) = seat.member.take_if(|_| seat.down_until.is_none() && seat.paused_until.is_none()) {
            self.events.tell(&format!("{} takes no part", MANAGERS[place]));
            seat.left = member.end().map(|left| (now + ANSWERS_ON, left));
            seat.parted_until = Some(until);
        }
    }

    /// What was away is back, where it is time.
    fn come_back(&mut self, all: bool) -> Result<(), String> {
        let now = self.clock.now();
        let is_over = |until: &mut Instant| all || *until <= now;
        if self.no_majority_until.take_if(|until| is_over(until)).is_some() {
            self.events.tell("the log has a majority");
            self.network.set_majority(true);
        }
        for (place, name) in MANAGERS.into_iter().enumerate() {
            let seat = &mut self.seats[place];
            if seat.cut_until.take_if(|until| is_over(until)).is_some() {
                self.events.tell(&format!("{name} reaches the log"));
                self.network.mend(place);
            }
            if seat.paused_until.take_if(|until| is_over(until)).is_some() {
                self.events.tell(&format!("{name} goes on"));
                self.network.pause(place, false);
            }
            seat.left.take_if(|(until, _)| *until <= now && seat.paused_until.is_none());
            let takes_part = seat.parted_until.take_if(|until| is_over(until)).is_some();
            if seat.down_until.take_if(|until| is_over(until)).is_some() {
                self.events.tell(&format!("{name} starts"));
                self.start(place, &[])?;
            } else if takes_part {
                self.take_part(place);
            }
        }
        Ok(())
    }

    // ---- what goes on

    /// The log, the members and the queue managers do what is due.
    fn live(&mut self) -> Result<(), String> {
        self.come_back(false)?;
        self.network.go_on();
        for place in 0..self.seats.len() {
            if !self.seats[place].is_awake() {
                continue;
            }
            if self.network.is_rung(place)
                && let Some(running) = self.seats[place].node.running()
            {
                // As the log's own thread does.
                running.manager.ring_all();
                running.due = self.clock.now();
            }
            if self.random.bool() {
                self.seats[place].node.adapt();
            }
            self.look(place);
            let due = self.seats[place].node.running().map(|running| running.due);
            if due.is_some_and(|due| due <= self.clock.now()) || self.random.bool() {
                self.turn(place)?;
            }
        }
        Ok(())
    }

    /// A member looks, where it is time.
    fn look(&mut self, place: Place) {
        let now = self.clock.now();
        let seat = &mut self.seats[place];
        if seat.looks_at > now {
            return;
        }
        seat.looks_at = now + LOOK_EVERY;
        if let Some(member) = &mut seat.member {
            member.step(now);
        }
        let owner = self.network.owner();
        if owner != self.owner {
            self.events.tell(&format!("{owner:?} owns the group"));
            self.owner = owner;
            let Self { seats, checker, .. } = self;
            seats.iter_mut().flat_map(|seat| &mut seat.clients).for_each(|client| client.owner_changed(checker));
            self.disturb();
        }
    }

    /// What a queue manager may still send, or gives back, comes in no order that is known.
    fn disturb(&mut self) {
        (0..QUEUES.len()).for_each(|queue| self.checker.disturb(queue));
    }

    /// One turn of a queue manager, in which one that is deposed sends nothing once the owner may.
    fn turn(&mut self, place: Place) -> Result<(), String> {
        let is_another = self.owner.is_some_and(|(owner, _)| owner != place) && self.network.may_owner_send();
        let seat = &mut self.seats[place];
        let sent = |client: &Client| client.pipe().waiting()[1];
        let before: Vec<usize> = seat.clients.iter().map(sent).collect();
        seat.node.turn().map_err(|Crashed| "no crash was asked for")?;
        for (client, before) in seat.clients.iter_mut().zip(before) {
            client.after_turn(&mut self.checker);
            if is_another {
                let written = client.pipe().peek(1, usize::MAX).split_off(before);
                let found = [SECRET, SECRET_HERE].into_iter().try_for_each(|of_group| look_for(&written, of_group));
                let deposed = MANAGERS[place];
                found.map_err(|_| format!("{deposed} is deposed, and sends a message of the group to a client"))?;
            }
        }
        Ok(())
    }

    /// Does something with the clients of a machine, or with none yet.
    fn on<T>(&mut self, place: Place, does: impl FnOnce(&mut Vec<Client>, &mut Surroundings<'_>) -> T) -> T {
        let Self { seats, checker, random, last_name, events, clock, places, owner, .. } = self;
        let clients = &mut seats[place].clients;
        let is_elsewhere = owner.is_none_or(|(owner, _)| owner != place);
        clients.iter_mut().for_each(|client| client.is_elsewhere = is_elsewhere);
        let mut tell = |what: String| events.tell(&format!("{}: {what}", MANAGERS[place]));
        does(clients, &mut Surroundings { places, checker, random, now: clock.now(), last_name, tell: &mut tell })
    }

    fn connect(&mut self, place: Place) {
        if self.seats[place].clients.len() >= CLIENTS_MAX {
            return;
        }
        self.last_port = self.last_port.wrapping_add(1);
        let (_, calls, accepts) = Pipe::connect(self.last_port);
        let Some(running) = self.seats[place].node.running() else { return };
        running.dispatcher.accept_pipe(accepts);
        self.on(place, |clients, on| {
            let client = Client::new(calls, on);
            (on.tell)(format!("client {} connects", client.name));
            clients.push(client);
        });
    }

    /// A client's connection breaks.
    fn cut_client(&mut self, place: Place) -> Result<(), String> {
        if self.seats[place].clients.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(..self.seats[place].clients.len());
        self.on(place, |clients, on| clients.remove(at).end(on));
        self.notice_ends(place)
    }

    /// What a queue manager still sends to connections that are gone comes back once it has noticed.
    fn notice_ends(&mut self, place: Place) -> Result<(), String> {
        if self.seats[place].is_awake() {
            self.turn(place)?;
        }
        self.disturb();
        Ok(())
    }

    fn act(&mut self, place: Place) {
        if self.seats[place].clients.is_empty() {
            return;
        }
        let at = self.random.usize(..self.seats[place].clients.len());
        self.on(place, |clients, on| clients[at].act(on));
    }

    /// Bytes move on: all that wait, or some.
    fn carry(&mut self) {
        for client in self.seats.iter().flat_map(|seat| &seat.clients) {
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

    fn exchange(&mut self, place: Place, at: usize) -> Result<(), String> {
        if at >= self.seats[place].clients.len() {
            return Ok(());
        }
        self.on(place, |clients, on| clients[at].exchange(on))?;
        if self.seats[place].clients[at].is_over {
            self.seats[place].clients.remove(at);
            self.notice_ends(place)?;
        }
        Ok(())
    }

    /// Nothing is asked for during some time.
    fn idle(&mut self) -> Result<(), String> {
        let until = self.until(AWAY_MS);
        while self.clock.now() < until {
            self.carry();
            for place in 0..self.seats.len() {
                for at in (0..self.seats[place].clients.len()).rev() {
                    self.exchange(place, at)?;
                }
            }
            self.clock.advance(Duration::from_micros(self.random.u64(..5_000)));
            self.live()?;
        }
        Ok(())
    }

    /// All clients go, all is well, and the group has an owner that rests.
    fn settle_down(&mut self) -> Result<(), String> {
        for place in 0..self.seats.len() {
            self.on(place, |clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        }
        self.events.tell("all is well");
        self.come_back(true)?;
        for _ in 0..QUIET_WITHIN_TURNS {
            self.clock.advance(QUIET_TURN);
            self.live()?;
            if self.seats.iter().all(|seat| seat.node.is_quiet())
                && self.network.may_owner_send()
                && let Some(place) = self.open_at()
            {
                return self.audit(place);
            }
        }
        Err("the group has no owner that rests".into())
    }

    /// Compares what lies on the group's queues with what clients were promised.
    fn audit(&mut self, place: Place) -> Result<(), String> {
        let Self { seats, reader, clock, events, .. } = self;
        let mut found = Vec::new();
        {
            let Some(running) = seats[place].node.running() else { return Err("no queue manager runs".into()) };
            let state = &mut *running.manager.lock();
            for (at, name) in QUEUES.into_iter().enumerate() {
                let protected = (at == SEALED).then_some((GROUP, Quality::Privacy));
                let there = lying_on(state, (name, protected), reader, clock)?;
                events.tell(&format!("{name} has {}", there.len()));
                found.push(there);
            }
            for name in [error_queue_of(GROUP), dead_letter_queue_of(GROUP)] {
                if let Some(other) = lying_on(state, (&name, None), reader, clock)?.first() {
                    return Err(format!("{other:?} is on {name}, where nothing should be"));
                }
            }
        }
        for (seat, name) in seats.iter_mut().zip(MANAGERS) {
            let left = seat.node.running().map_or(Ok(()), |running| left_over(&running.manager.lock()));
            left.map_err(|what| format!("{name}: {what}"))?;
        }
        self.checker.audit(&found, false)
    }
}

fn places() -> Places {
    let named: Vec<_> = QUEUES.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    Places {
        puts: named.clone(),
        gets: named,
        // What is put there without an answer may be lost with the owner.
        roomy: Vec::new(),
        // Each message can be told from what else goes to a client.
        secrets: (0..QUEUES.len()).map(|at| (at, if at == SEALED { SECRET } else { SECRET_HERE })).collect(),
        topic: None,
    }
}

fn shared_group(place: Place) -> SharedGroup {
    SharedGroup {
        servers: vec!["n1.example:4222".into()],
        redirect: REDIRECTS[place],
        address: Some(format!("{}.example:5672", MANAGERS[place].to_lowercase())),
        ..SharedGroup::default()
    }
}

fn definitions(place: Place) -> Vec<Change> {
    let mut changes = open_to_all();
    changes.push(Change::define(GROUP, shared_group(place)));
    changes
}
