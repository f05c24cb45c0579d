//! Two queue managers that are joined by channels, on one clock: each has a disk and clients of its own, and either may
//! crash. Connections between them are as slow, as late and as short-lived as those of clients.
//!
//! Messages cross both ways. Three paths are protected: one all the way, one that is opened before it is sent
//! (`SPLPROT(REMOVE)`), and one that is sealed where it arrives (`SPLPROT(ASPOLICY)`).

use super::body::{SECRET, SECRET_HERE, SECRET_THERE};
use super::checker::{Checker, Queue, Shown};
use super::client::{Client, Places, Surroundings};
use super::events::{Events, Run};
use super::look::{left_over, lying_on};
use super::node::{Crashed, Node, open_to_all};
use super::protection::{Quality, Reader, USER, look_for, look_for_secrets, protects};
use crate::catalog::status::ChannelState;
use crate::catalog::system_queues::{DEAD_LETTER_QUEUE, ERROR_QUEUE};
use crate::catalog::{Change, ChannelDefinition, ChannelKind, LocalQueue, Protection, RemoteQueue, Usage};
use crate::channel::supervisor;
use crate::clock::Clock;
use crate::dispatcher::pipe::Pipe;
use crate::dispatcher::simulated::Call;
use bulla_queue::sim::Fate;
use fastrand::Rng;
use std::time::{Duration, Instant};

const MANAGERS: [&str; 2] = ["QM1", "QM2"];
/// Queues to which messages come: all but the last one of the second queue manager.
const QUEUES: [&str; 5] = ["FAR", "SEALED", "BORDER", "OPENED", "BACK"];
const FAR: Queue = 0;
const SEALED: Queue = 1;
const BORDER: Queue = 2;
const OPENED: Queue = 3;
const BACK: Queue = 4;
/// Transmission queues of each, and the channels that send from them.
const WAYS: [&[(&str, &str)]; 2] = [&[("X.QM2", "QM1.QM2"), ("X.OPENED", "QM1.OPENED")], &[("X.QM1", "QM2.QM1")]];
/// A queue of the first one from which messages are opened on their way, and its channel: the other one asks for them.
const OPENED_FROM: &str = "X.OPENED";
const REQUESTED: &str = "QM1.OPENED";
/// Port of the first one; the other one's follows.
const FIRST_PORT: u16 = 1414;
const DEPTH_MAX: u32 = 100_000;
const CLIENTS_MAX: usize = 3;
/// Steps of a disk within which a crash comes that was decided on.
const CRASH_WITHIN_STEPS: u64 = 40;
/// Messages of a batch, at most.
const BATCH_SIZE: u32 = 5;
/// How long a channel stays that has nothing to send, and when it is tried again.
const DISCONNECT_AFTER: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const RETRIES_MAX: u32 = 999_999_999;
/// Longest time for which a connection carries nothing.
const STALL_MAX: Duration = Duration::from_millis(50);
/// Turns within which messages come to their queues once all is well, and how long each takes.
const QUIET_WITHIN_TURNS: u32 = 20_000;
const QUIET_TURN: Duration = Duration::from_millis(5);

/// Two machines, and all that is between them.
pub(super) struct Pair {
    random: Rng,
    clock: Clock,
    sides: [Side; 2],
    /// Connections between them.
    wires: Vec<Wire>,
    checker: Checker,
    reader: Reader,
    last_name: u64,
    last_port: u16,
    events: Events,
}

/// One machine, and its clients.
struct Side {
    node: Node,
    clients: Vec<Client>,
    places: Places,
}

/// A connection between queue managers.
struct Wire {
    pipe: Pipe,
    /// The last bytes of each direction, with which a secret may begin.
    tails: [Vec<u8>; 2],
    /// It carries nothing before.
    stalled_until: Instant,
}

impl Wire {
    /// Bytes move on. None is of a message that is protected all the way.
    fn carry(&mut self, way: usize, bytes: usize) -> Result<(), String> {
        let tail = &mut self.tails[way];
        tail.extend(self.pipe.peek(way, bytes));
        look_for(tail, SECRET).map_err(|what| format!("a channel carries {what}"))?;
        tail.drain(..tail.len().saturating_sub(SECRET.len()));
        self.pipe.carry(way, bytes);
        Ok(())
    }
}

impl Pair {
    /// What follows from a seed.
    pub(super) fn run(seed: u64, steps: u64) -> Result<Run, String> {
        let mut pair = Self::new(seed);
        for side in 0..2 {
            pair.start(side, &definitions(side)).map_err(|Crashed| "no crash was asked for")?;
        }
        for _ in 0..steps {
            pair.step()?;
        }
        pair.settle_down()?;
        let disk_steps = pair.sides.iter().map(|side| side.node.disk().steps()).sum();
        Ok(pair.events.run(disk_steps, pair.checker.counts))
    }

    fn new(seed: u64) -> Self {
        let clock = Clock::simulated();
        let side =
            |side: usize| Side { node: Node::new(MANAGERS[side], &clock), clients: Vec::new(), places: places(side) };
        Self {
            random: Rng::with_seed(seed),
            sides: [side(0), side(1)],
            wires: Vec::new(),
            checker: Checker::of_crossing(),
            reader: Reader::new(),
            last_name: 0,
            last_port: 0,
            events: Events::new(&clock),
            clock,
        }
    }

    fn start(&mut self, side: usize, changes: &[Change]) -> Result<(), Crashed> {
        let seed = self.random.u64(..);
        self.sides[side].node.start(seed, changes)
    }

    /// One thing happens, and some time goes by.
    fn step(&mut self) -> Result<(), String> {
        let side = self.random.usize(..2);
        match self.random.u32(..2_000) {
            0..=19 => self.connect(side),
            20..=22 => self.cut(side)?,
            23 => self.sides[side].node.crash_after(self.random.u64(..CRASH_WITHIN_STEPS)),
            24 if self.random.u8(..4) == 0 => self.settle_down()?,
            25..=27 => self.idle()?,
            28..=29 => self.cut_wire(),
            30..=39 => self.stall_wire(),
            40..=41 => self.request(),
            _ => self.act(side),
        }
        self.carry()?;
        if self.random.bool() {
            self.sides[side].node.adapt();
        }
        let at = self.random.usize(..self.sides[side].clients.len().max(1));
        self.exchange(side, at)?;
        self.clock.advance(Duration::from_nanos(self.random.u64(..200_000)));
        for side in 0..2 {
            let is_due = self.due(side).is_some_and(|due| due <= self.clock.now());
            if is_due || self.random.bool() {
                self.turn(side)?;
            }
        }
        Ok(())
    }

    fn due(&mut self, side: usize) -> Option<Instant> {
        self.sides[side].node.running().map(|running| running.due)
    }

    /// Does something with the clients of a side, or with none yet.
    fn on<T>(&mut self, side: usize, does: impl FnOnce(&mut Vec<Client>, &mut Surroundings<'_>) -> T) -> T {
        let Self { sides, checker, random, last_name, events, clock, .. } = self;
        let Side { clients, places, .. } = &mut sides[side];
        let mut tell = |what: String| events.tell(&format!("{}: {what}", MANAGERS[side]));
        does(clients, &mut Surroundings { places, checker, random, now: clock.now(), last_name, tell: &mut tell })
    }

    fn connect(&mut self, side: usize) {
        if self.sides[side].clients.len() >= CLIENTS_MAX {
            return;
        }
        self.last_port = self.last_port.wrapping_add(1);
        let (_, calls, accepts) = Pipe::connect(self.last_port);
        let Some(running) = self.sides[side].node.running() else { return };
        running.dispatcher.accept_pipe(accepts);
        self.on(side, |clients, on| {
            let client = Client::new(calls, on);
            (on.tell)(format!("client {} connects", client.name));
            clients.push(client);
        });
    }

    /// A client's connection breaks.
    fn cut(&mut self, side: usize) -> Result<(), String> {
        if self.sides[side].clients.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(..self.sides[side].clients.len());
        self.on(side, |clients, on| clients.remove(at).end(on));
        self.notice_ends(side)
    }

    /// A connection between the queue managers breaks.
    fn cut_wire(&mut self) {
        if !self.wires.is_empty() {
            self.events.tell("a channel's connection breaks");
            self.wires.swap_remove(self.random.usize(..self.wires.len())).pipe.cut();
        }
    }

    /// A connection between them carries nothing for some time, and others go on.
    fn stall_wire(&mut self) {
        if !self.wires.is_empty() {
            let at = self.random.usize(..self.wires.len());
            let most = u64::try_from(STALL_MAX.as_nanos()).unwrap_or(u64::MAX);
            self.wires[at].stalled_until = self.clock.now() + Duration::from_nanos(self.random.u64(..most));
        }
    }

    /// The second one asks the first one to send what it opens, unless that runs.
    fn request(&mut self) {
        if let Some(running) = self.sides[1].node.running() {
            let manager = running.manager.clone();
            // Where it is refused, the channel is there already.
            let _ = supervisor::start(&manager, &mut manager.lock(), REQUESTED);
        }
    }

    fn act(&mut self, side: usize) {
        if self.sides[side].clients.is_empty() {
            return;
        }
        let at = self.random.usize(..self.sides[side].clients.len());
        self.on(side, |clients, on| clients[at].act(on));
    }

    /// Bytes move on: all that wait, or some.
    fn carry(&mut self) -> Result<(), String> {
        let Self { random, sides, wires, clock, .. } = self;
        let some = |random: &mut Rng, waiting| match random.u8(..4) {
            0 => 0,
            1 => random.usize(..=waiting),
            _ => waiting,
        };
        for client in sides.iter().flat_map(|side| &side.clients) {
            for (way, waiting) in client.pipe().waiting().into_iter().enumerate() {
                client.pipe().carry(way, some(random, waiting));
            }
        }
        for wire in wires.iter_mut().filter(|wire| wire.stalled_until <= clock.now()) {
            for (way, waiting) in wire.pipe.waiting().into_iter().enumerate() {
                wire.carry(way, some(random, waiting))?;
            }
        }
        wires.retain(|wire| !wire.pipe.is_over());
        Ok(())
    }

    /// All bytes move on.
    fn carry_all(&mut self) -> Result<(), String> {
        for client in self.sides.iter().flat_map(|side| &side.clients) {
            (0..2).for_each(|way| client.pipe().carry(way, usize::MAX));
        }
        for wire in &mut self.wires {
            (0..2).try_for_each(|way| wire.carry(way, usize::MAX))?;
        }
        self.wires.retain(|wire| !wire.pipe.is_over());
        Ok(())
    }

    fn exchange(&mut self, side: usize, at: usize) -> Result<(), String> {
        if at >= self.sides[side].clients.len() {
            return Ok(());
        }
        self.on(side, |clients, on| clients[at].exchange(on))?;
        if self.sides[side].clients[at].is_over {
            self.sides[side].clients.remove(at);
            self.notice_ends(side)?;
        }
        Ok(())
    }

    /// What a queue manager still sends to connections that are gone comes back once it has noticed.
    fn notice_ends(&mut self, side: usize) -> Result<(), String> {
        self.turn(side)?;
        (0..QUEUES.len()).for_each(|queue| self.checker.disturb(queue));
        Ok(())
    }

    fn turn(&mut self, side: usize) -> Result<(), String> {
        match self.sides[side].node.turn() {
            Ok(()) => {
                let calls = self.sides[side].node.running().map(|running| running.dispatcher.calls_made());
                calls.into_iter().flatten().for_each(|call| self.called(call));
                Ok(())
            }
            Err(Crashed) => self.recover(side),
        }
    }

    /// A queue manager calls the other one, which may not answer.
    fn called(&mut self, call: Call) {
        let answers = self.random.u8(..8) > 0;
        self.events.tell(&format!("a call to {}, which answers: {answers}", call.to));
        let side = usize::from(call.to.port() - FIRST_PORT);
        let Some(running) = self.sides[side].node.running().filter(|_| answers) else { return };
        let (pipe, tails, stalled_until) = (call.accepts.pipe().clone(), Default::default(), self.clock.now());
        running.dispatcher.accept_pipe(call.accepts);
        self.wires.push(Wire { pipe, tails, stalled_until });
    }

    /// A machine has crashed, and comes back.
    fn recover(&mut self, side: usize) -> Result<(), String> {
        self.on(side, |clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        self.wires.drain(..).for_each(|wire| wire.pipe.cut());
        loop {
            let fate = match self.random.u8(..4) {
                0 => Fate::Lost,
                1 => Fate::Torn,
                2 => Fate::Kept,
                _ => Fate::Mixed(self.random.u64(..)),
            };
            self.checker.crashed();
            let node = &mut self.sides[side].node;
            self.events.tell(&format!("{} crashes at step {}, {fate:?}", MANAGERS[side], node.disk().steps()));
            node.crash(fate);
            if self.random.u8(..4) == 0 {
                node.crash_after(self.random.u64(..CRASH_WITHIN_STEPS));
            }
            if self.start(side, &[]).is_ok() && !self.sides[side].node.disk().crashed() {
                break;
            }
        }
        (0..QUEUES.len()).for_each(|queue| self.checker.disturb(queue));
        self.look_for_secrets(side)
    }

    /// Nothing stands in clear on a disk that is protected there.
    fn look_for_secrets(&self, side: usize) -> Result<(), String> {
        let secrets = [SECRET, [SECRET_HERE, SECRET_THERE][side]];
        let node = &self.sides[side].node;
        [node.disk(), node.spill()].into_iter().try_for_each(|disk| look_for_secrets(disk, &secrets))
    }

    /// Nothing is asked for during some time.
    fn idle(&mut self) -> Result<(), String> {
        let until = self.clock.now() + Duration::from_millis(self.random.u64(..3_000));
        while self.clock.now() < until {
            self.carry()?;
            let mut due = until;
            for side in 0..2 {
                for at in (0..self.sides[side].clients.len()).rev() {
                    self.exchange(side, at)?;
                }
                self.sides[side].node.adapt();
                self.turn(side)?;
                due = due.min(self.due(side).unwrap_or(due));
            }
            self.clock.advance(due.saturating_duration_since(self.clock.now()).max(Duration::from_micros(100)));
        }
        Ok(())
    }

    /// All clients go, all is well, and both come to rest: each message is on the queue that it was put for.
    fn settle_down(&mut self) -> Result<(), String> {
        for side in 0..2 {
            self.on(side, |clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        }
        self.events.tell("all is well");
        for _ in 0..QUIET_WITHIN_TURNS {
            self.carry_all()?;
            for side in 0..2 {
                self.sides[side].node.adapt();
                self.turn(side)?;
            }
            self.clock.advance(QUIET_TURN);
            if !self.has_sent_all(0) {
                self.request();
            }
            let is_over = |side: usize, pair: &mut Self| pair.sides[side].node.is_quiet() && pair.has_sent_all(side);
            if is_over(0, self) && is_over(1, self) {
                return self.audit();
            }
        }
        Err(format!("messages do not come to their queues: {}, {}", self.stands(0), self.stands(1)))
    }

    /// Whether nothing lies on the transmission queues of a side.
    fn has_sent_all(&mut self, side: usize) -> bool {
        let Some(running) = self.sides[side].node.running() else { return false };
        let state = running.manager.lock();
        let depth = |name: &str| state.store.queue(name).and_then(|queue| state.store.status(queue)).map(|it| it.depth);
        WAYS[side].iter().all(|(queue, _)| depth(queue) == Some(0))
    }

    /// How a side's channels stand.
    fn stands(&mut self, side: usize) -> String {
        let Some(running) = self.sides[side].node.running() else { return "does not run".into() };
        let state = running.manager.lock();
        let shown = state.channels.all().map(|(id, instance)| {
            format!("{} {} {:?} {}", MANAGERS[side], id.channel, instance.status.state, instance.status.reason)
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    /// Compares what lies on all queues with what clients were promised.
    fn audit(&mut self) -> Result<(), String> {
        let mut found = Vec::new();
        for side in 0..2 {
            self.look_for_secrets(side)?;
            let Self { sides, reader, clock, events, .. } = self;
            let Some(running) = sides[side].node.running() else { return Err("no queue manager runs".into()) };
            let state = &mut *running.manager.lock();
            for queue in queues_of(side) {
                let name = QUEUES[queue];
                let protected = is_protected_there(queue).then_some((MANAGERS[side], Quality::Privacy));
                let there = lying_on(state, (name, protected), reader, clock)?;
                events.tell(&format!("{name} has {}", there.len()));
                found.push(there);
            }
            for name in [DEAD_LETTER_QUEUE, ERROR_QUEUE] {
                let status = state.store.queue(name).and_then(|queue| state.store.status(queue));
                if status.is_none_or(|status| status.depth > 0) {
                    return Err(format!("{}: {name} has {status:?}", MANAGERS[side]));
                }
            }
            if let Some((id, _)) = state.channels.all().find(|(_, found)| found.status.state == ChannelState::Stopped) {
                return Err(format!("{}: {} was stopped by nothing", MANAGERS[side], id.channel));
            }
            left_over(state)?;
        }
        // Those of the second one come first.
        let found: Vec<Vec<Shown>> = [&found[1..], &found[..1]].concat();
        self.checker.audit(&found, false)
    }
}

/// The queues to which messages come at a side.
fn queues_of(side: usize) -> std::ops::Range<Queue> {
    if side == 0 { BACK..QUEUES.len() } else { FAR..BACK }
}

fn is_protected_there(queue: Queue) -> bool {
    queue == SEALED || queue == BORDER
}

fn places(side: usize) -> Places {
    let named = |queue: Queue| (QUEUES[queue], queue);
    let puts = if side == 0 { (FAR..=BACK).map(named).collect() } else { [BACK, FAR].map(named).to_vec() };
    Places {
        puts,
        gets: queues_of(side).map(named).collect(),
        roomy: (0..QUEUES.len()).collect(),
        secrets: vec![(SEALED, SECRET), (OPENED, SECRET_HERE), (BORDER, SECRET_THERE)],
        topic: None,
    }
}

fn definitions(side: usize) -> Vec<Change> {
    let mut changes = open_to_all();
    let protected = if side == 0 { vec!["SEALED", "OPENED", OPENED_FROM] } else { vec!["SEALED", "BORDER"] };
    changes.extend(protected.into_iter().map(|queue| protects(queue, Quality::Privacy)));
    let local = LocalQueue { max_depth: DEPTH_MAX, ..LocalQueue::default() };
    for queue in queues_of(side) {
        changes.push(Change::define(QUEUES[queue], local.clone()));
    }
    for (queue, channel) in WAYS[side] {
        let usage = Usage::Transmission;
        changes.push(Change::define(*queue, LocalQueue { usage, trigger: *channel != REQUESTED, ..local.clone() }));
        changes.push(Change::define(*channel, sends(side, queue)));
    }
    for (_, channel) in WAYS[1 - side] {
        changes.push(Change::define(*channel, receives(channel)));
    }
    for queue in queues_of(1 - side) {
        let way = if queue == OPENED { OPENED_FROM } else { WAYS[side][0].0 };
        let remote = RemoteQueue {
            remote_name: Some(QUEUES[queue].into()),
            remote_manager: Some(MANAGERS[1 - side].into()),
            transmission_queue: Some(way.into()),
            ..RemoteQueue::default()
        };
        changes.push(Change::define(QUEUES[queue], remote));
    }
    changes
}

/// A channel that sends from that transmission queue.
fn sends(side: usize, queue: &str) -> ChannelDefinition {
    let is_requested = queue == OPENED_FROM;
    let kind = if is_requested { ChannelKind::Server } else { ChannelKind::Sender };
    let channel = ChannelDefinition {
        transmission_queue: Some(queue.into()),
        batch_size: BATCH_SIZE,
        disconnect_after: DISCONNECT_AFTER,
        user: Some(USER.into()),
        ..ChannelDefinition::new(kind)
    };
    if is_requested {
        return ChannelDefinition { protection: Protection::Remove, ..channel };
    }
    calls(side, channel)
}

/// A channel at the other end: one passes on what comes, one asks for it, and one seals it.
fn receives(channel: &str) -> ChannelDefinition {
    let user = Some(USER.into());
    if channel == REQUESTED {
        return calls(1, ChannelDefinition { user, ..ChannelDefinition::new(ChannelKind::Requester) });
    }
    let protection = if channel == WAYS[0][0].1 { Protection::AsPolicy } else { Protection::PassThrough };
    ChannelDefinition { user, protection, ..ChannelDefinition::new(ChannelKind::Receiver) }
}

/// A channel that calls the other side.
fn calls(side: usize, channel: ChannelDefinition) -> ChannelDefinition {
    ChannelDefinition {
        connections: vec![format!("127.0.0.1:{}", usize::from(FIRST_PORT) + 1 - side)],
        short_retries: RETRIES_MAX,
        short_retry_interval: RETRY_INTERVAL,
        ..channel
    }
}
