//! Two queue managers that are joined by channels, on one clock: each has a disk and clients of its own, and either may
//! crash. Connections between them are as slow, as late and as short-lived as those of clients.
//!
//! Messages cross both ways. Three paths are protected: one all the way, one that is opened before it is sent
//! (`SPLPROT(REMOVE)`), and one that is sealed where it arrives (`SPLPROT(ASPOLICY)`). A third partner lies to both.

use super::body::{SECRET, SECRET_HERE, SECRET_THERE};
use super::checker::{Checker, Queue, Shown};
use super::client::{Client, Places, Surroundings};
use super::events::{Events, Run};
use super::liar::{Around, Liar};
use super::look::{left_over, lying_on};
use super::node::{Crashed, Node, open_to_all};
use super::protection::{Quality, Reader, USER, dn, look_for, look_for_secrets, policy, protects};
use crate::authority::{Entity, ObjectType, Profile, RecordKey, Right, SIGNED_IN};
use crate::catalog::status::ChannelState;
use crate::catalog::system_queues::{DEAD_LETTER_QUEUE, ERROR_QUEUE};
use crate::catalog::{Change, ChannelDefinition, ChannelKind, LocalQueue, Protection, RemoteQueue, Usage};
use crate::channel::note::{ReceiverNote, receiver_name, stopped_name};
use crate::channel::registry::{Instance, InstanceId};
use crate::channel::supervisor;
use crate::clock::Clock;
use crate::manager::State;
use crate::turn::pipe::Pipe;
use crate::turn::simulated::Call;
use bulla_queue::sim::Fate;
use bulla_seal::Policy;
use fastrand::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MANAGERS: [&str; 2] = ["QM1", "QM2"];
/// Queues to which messages come. Those of `AWAY` lie on the transmission queue to the liar, or on the dead-letter
/// queue: its partner has refused them.
const QUEUES: [&str; 8] = ["FAR", "SEALED", "BORDER", "OPENED", "LIES", "KEPT", "BACK", "AWAY"];
const FAR: Queue = 0;
const SEALED: Queue = 1;
const BORDER: Queue = 2;
const OPENED: Queue = 3;
/// For the liar's messages, and one that it may not put on.
const LIES: Queue = 4;
const KEPT: Queue = 5;
const BACK: Queue = 6;
const AWAY: Queue = 7;
/// A queue of the second one whose messages can't be sealed, because there is no certificate of who reads them.
const REFUSED: &str = "REFUSED";
/// Transmission queues of each, and the channels that send from them.
const WAYS: [&[(&str, &str)]; 2] = [&[("X.QM2", "QM1.QM2"), ("X.OPENED", "QM1.OPENED")], &[("X.QM1", "QM2.QM1")]];
/// The transmission queue to the liar and its channel, the liar's name, and the user of its own channel.
const AWAY_FROM: &str = "X.QM3";
const TO_LIAR: &str = "QM1.QM3";
const LIAR: &str = "QM3";
const FROM_LIAR: &str = "QM3.QM2";
const LIAR_USER: &str = "liar";
/// A queue of the first one from which messages are opened on their way, and its channel: the other one asks for them.
const OPENED_FROM: &str = "X.OPENED";
const REQUESTED: &str = "QM1.OPENED";
/// Port of the first one; the other one's follows.
const FIRST_PORT: u16 = 1414;
const LIAR_PORT: u16 = FIRST_PORT + 2;
const DEPTH_MAX: u32 = 100_000;
const CLIENTS_MAX: usize = 3;
const LIARS_MAX: usize = 3;
/// Steps of a disk within which a crash comes that was decided on.
const CRASH_WITHIN_STEPS: u64 = 40;
/// Messages of a batch, at most.
const BATCH_SIZE: u32 = 5;
/// How long a channel stays that has nothing to send, and when it is tried again.
const DISCONNECT_AFTER: Duration = Duration::from_secs(2);
/// How often a channel says that it is there; its partner is given up that says nothing for twice as long.
const HEARTBEAT: Duration = Duration::from_secs(1);
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
    /// The channel to the liar was stopped, which is durable, and not started since.
    is_stopped: bool,
    /// Connections of the liar, and the side to which each is.
    liars: Vec<(usize, Liar)>,
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
    /// Nothing on its disk can grow.
    is_full: bool,
}

/// A connection between queue managers.
struct Wire {
    pipe: Pipe,
    /// The side that was called.
    called: usize,
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
        let side = |side: usize| Side {
            node: Node::new(MANAGERS[side], &clock),
            clients: Vec::new(),
            places: places(side),
            is_full: false,
        };
        Self {
            random: Rng::with_seed(seed),
            sides: [side(0), side(1)],
            wires: Vec::new(),
            is_stopped: false,
            liars: Vec::new(),
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
            42..=51 => self.lie(),
            52 => self.operate(),
            53..=200 => self.act_as_liar()?,
            201..=202 => self.break_wire(),
            203..=204 => self.fill_disk(side),
            _ => self.act(side),
        }
        self.carry()?;
        if self.random.bool() {
            self.sides[side].node.adapt();
        }
        let at = self.random.usize(..self.sides[side].clients.len().max(1));
        self.exchange(side, at)?;
        self.exchange_as_liar()?;
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

    /// One of them is told that a connection between them is broken; the other one is later, or never.
    fn break_wire(&mut self) {
        if !self.wires.is_empty() {
            let wire = &self.wires[self.random.usize(..self.wires.len())];
            let (end, refuses) = (self.random.usize(..2), self.random.bool());
            self.events.tell(&format!("a channel's connection breaks for end {end}, which refuses: {refuses}"));
            wire.pipe.break_for(end, refuses);
        }
    }

    /// A disk is full, or has room again.
    fn fill_disk(&mut self, side: usize) {
        let is_full = !self.sides[side].is_full && self.random.bool();
        self.events.tell(&format!("the disk of {} is full: {is_full}", MANAGERS[side]));
        if is_full {
            self.checker.disk_is_full();
        }
        self.set_full(side, is_full);
    }

    fn set_full(&mut self, side: usize, is_full: bool) {
        self.sides[side].is_full = is_full;
        self.sides[side].node.disk().set_full(is_full);
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
        let Self { random, sides, wires, liars, clock, .. } = self;
        let some = |random: &mut Rng, waiting| match random.u8(..4) {
            0 => 0,
            1 => random.usize(..=waiting),
            _ => waiting,
        };
        let clients = sides.iter().flat_map(|side| &side.clients).map(Client::pipe);
        for pipe in clients.chain(liars.iter().map(|(_, liar)| liar.pipe())) {
            for (way, waiting) in pipe.waiting().into_iter().enumerate() {
                pipe.carry(way, some(random, waiting));
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
                let Self { sides, checker, .. } = self;
                sides[side].clients.iter_mut().for_each(|client| client.after_turn(checker));
                let calls = sides[side].node.running().map(|running| running.dispatcher.calls_made());
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
        if call.to.port() == LIAR_PORT {
            let to_liar = self.around(|around| Liar::takes(call.accepts, TO_LIAR, Some(AWAY), around));
            self.liars.extend(answers.then_some((0, to_liar)));
            return;
        }
        let side = usize::from(call.to.port() - FIRST_PORT);
        if side == 1 && self.random.u8(..16) == 0 && self.is_known_to(0) {
            self.events.tell("the liar answers in its place");
            call.accepts.pipe().disprove();
            let stranger = self.around(|around| Liar::takes(call.accepts, WAYS[0][0].1, None, around));
            self.liars.push((0, stranger));
            return;
        }
        let Some(running) = self.sides[side].node.running().filter(|_| answers) else { return };
        let (pipe, tails, stalled_until) = (call.accepts.pipe().clone(), Default::default(), self.clock.now());
        running.dispatcher.accept_pipe(call.accepts);
        self.wires.push(Wire { pipe, called: side, tails, stalled_until });
    }

    /// A machine has crashed, and comes back.
    fn recover(&mut self, side: usize) -> Result<(), String> {
        self.on(side, |clients, on| clients.drain(..).for_each(|mut client| client.end(on)));
        // The other one hears of it at once, or once bytes of its come to the machine that is back.
        for wire in &self.wires {
            if self.random.bool() {
                wire.pipe.cut();
            } else {
                wire.pipe.break_for(usize::from(wire.called == side), true);
            }
        }
        // What does not survive made room.
        self.sides[side].is_full = false;
        self.liars.retain_mut(|(to, liar)| {
            let stays = *to != side;
            if !stays {
                liar.end();
            }
            stays
        });
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
        let is_stopped = self.is_stopped && side == 0;
        if let Some(running) = self.sides[side].node.running().filter(|_| is_stopped)
            && stands(&running.manager.lock()) != Some(ChannelState::Stopped)
        {
            return Err(format!("{TO_LIAR} was stopped, and is not after a restart"));
        }
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
                self.exchange_as_liar()?;
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
        (0..2).for_each(|side| self.set_full(side, false));
        self.events.tell("all is well");
        for _ in 0..QUIET_WITHIN_TURNS {
            self.liars.drain(..).for_each(|(_, mut liar)| liar.end());
            self.carry_all()?;
            for side in 0..2 {
                self.sides[side].node.adapt();
                self.turn(side)?;
            }
            self.clock.advance(QUIET_TURN);
            if !self.has_sent_all(0) {
                self.request();
            }
            self.stop_to_liar();
            let is_over = |side: usize, pair: &mut Self| pair.sides[side].node.is_quiet() && pair.has_sent_all(side);
            if is_over(0, self) && is_over(1, self) && self.take_back() {
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
        let shown = state.outbound.channels.all().map(|(id, instance)| {
            format!("{} {} {:?} {}", MANAGERS[side], id.channel, instance.status.state, instance.status.reason)
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    /// Compares what lies on all queues with what clients were promised.
    fn audit(&mut self) -> Result<(), String> {
        let mut found = vec![Vec::new(); QUEUES.len()];
        for side in 0..2 {
            self.look_for_secrets(side)?;
            let Self { sides, reader, clock, events, .. } = self;
            let Some(running) = sides[side].node.running() else { return Err("no queue manager runs".into()) };
            let state = &mut *running.manager.lock();
            let mut look = |name, protected| {
                let there = lying_on(state, (name, protected), reader, clock)?;
                events.tell(&format!("{name} has {}", there.len()));
                Ok::<_, String>(there)
            };
            for &queue in queues_of(side) {
                let protected = is_protected_there(queue).then_some((MANAGERS[side], Quality::Privacy));
                found[queue] = look(QUEUES[queue], protected)?;
            }
            let mut others = vec![look(ERROR_QUEUE, None)?, look(DEAD_LETTER_QUEUE, None)?];
            if side == 0 {
                found[AWAY] = [look(AWAY_FROM, None)?, others.pop().unwrap_or_default()].concat();
            }
            if let Some(other) = others.concat().first() {
                return Err(format!("{}: {other:?} is where nothing should be", MANAGERS[side]));
            }
            let is_stopped = |id: &InstanceId, found: &Instance| {
                id.channel != TO_LIAR && found.status.state == ChannelState::Stopped
            };
            if let Some((id, _)) = state.outbound.channels.all().find(|(id, found)| is_stopped(id, found)) {
                return Err(format!("{}: {} was stopped by nothing", MANAGERS[side], id.channel));
            }
            left_over(state)?;
        }
        // They come from two queues.
        found[AWAY].sort_by_key(|shown: &Shown| (std::cmp::Reverse(shown.priority), shown.number));
        self.checker.audit(&found, false)?;
        let now = self.clock.now();
        // Where the power goes meanwhile, nothing is known of it; where the disk was full, it is not kept.
        self.is_stopped = self.sides[0].node.running().is_some_and(|running| {
            let state = &mut *running.manager.lock();
            state.store.sync(now).is_ok() && state.store.note(&stopped_name(TO_LIAR)).is_some()
        });
        Ok(())
    }
}

/// The liar, and who looks after the channel to it.
impl Pair {
    /// Does something with what a liar needs.
    fn around<T>(&mut self, does: impl FnOnce(&mut Around<'_>) -> T) -> T {
        let Self { checker, random, last_name, events, clock, .. } = self;
        let mut tell = |what: String| events.tell(&what);
        does(&mut Around { checker, random, now: clock.now(), last_name, tell: &mut tell })
    }

    /// The liar calls the second one as itself, or the first one as if it were the second.
    fn lie(&mut self) {
        if self.liars.len() >= LIARS_MAX {
            return;
        }
        let pretends = self.random.u8(..4) == 0 && self.is_second_known();
        let (side, channel, manager) = if pretends { (0, WAYS[1][0].1, MANAGERS[1]) } else { (1, FROM_LIAR, LIAR) };
        let to = if pretends { [BACK, BACK] } else { [LIES, KEPT] }.map(|queue| (QUEUES[queue], queue));
        self.last_port = self.last_port.wrapping_add(1);
        let (_, calls, accepts) = Pipe::connect(self.last_port);
        let Some(running) = self.sides[side].node.running() else { return };
        running.dispatcher.accept_pipe(accepts);
        let liar = self.around(|around| Liar::sends(calls, (channel, manager), (to, MANAGERS[side]), around));
        self.liars.push((side, liar));
    }

    /// Whether the first one's sending channel has noted how the second one proves who it is.
    fn is_known_to(&mut self, side: usize) -> bool {
        let Some(running) = self.sides[side].node.running() else { return false };
        let note = supervisor::read_note(&running.manager.lock(), WAYS[side][0].1);
        note.is_ok_and(|note| !note.proof.is_empty())
    }

    /// Whether the first one's receiving channel has.
    fn is_second_known(&mut self) -> bool {
        let Some(running) = self.sides[0].node.running() else { return false };
        let state = running.manager.lock();
        let note = state.store.note(&receiver_name(WAYS[1][0].1, MANAGERS[1])).and_then(ReceiverNote::decode);
        note.is_some_and(|note| !note.proof.is_empty())
    }

    fn act_as_liar(&mut self) -> Result<(), String> {
        if self.liars.is_empty() {
            return Ok(());
        }
        let at = self.random.usize(..self.liars.len());
        let (side, mut liar) = self.liars.swap_remove(at);
        self.around(|around| liar.act(around))?;
        self.liars.push((side, liar));
        Ok(())
    }

    fn exchange_as_liar(&mut self) -> Result<(), String> {
        let mut liars = std::mem::take(&mut self.liars);
        for (side, liar) in &mut liars {
            let Some(running) = self.sides[*side].node.running() else { continue };
            let manager = running.manager.clone();
            self.around(|around| liar.exchange(&mut manager.lock(), around))?;
        }
        liars.retain(|(_, liar)| !liar.is_over);
        self.liars = liars;
        Ok(())
    }

    /// The channel to the liar ends, until it is started again.
    fn stop_to_liar(&mut self) {
        let Some(running) = self.sides[0].node.running() else { return };
        let manager = running.manager.clone();
        let state = &mut *manager.lock();
        // One that numbers have stopped is not kept as stopped: only a command is.
        let was_asked = |instance: &Instance| instance.status.stop_requested;
        if !state.outbound.channels.get(&InstanceId::of(TO_LIAR)).is_some_and(was_asked) {
            let _ = supervisor::stop(&manager, state, TO_LIAR, true, false);
        }
    }

    /// What is in doubt with the liar counts as never sent. False where the channel to it has not ended.
    fn take_back(&mut self) -> bool {
        let Some(running) = self.sides[0].node.running() else { return false };
        let state = &mut *running.manager.lock();
        let is_active = state.outbound.channels.get(&InstanceId::of(TO_LIAR)).is_some_and(Instance::is_active);
        if !is_active {
            // Where nothing is in doubt it is refused.
            let _ = supervisor::resolve(state, TO_LIAR, false);
        }
        !is_active
    }

    /// The operator has the channel to the liar begin anew, where it was stopped.
    fn operate(&mut self) {
        let Some(running) = self.sides[0].node.running() else { return };
        let manager = running.manager.clone();
        let state = &mut *manager.lock();
        if stands(state) == Some(ChannelState::Stopped) {
            self.is_stopped = false;
            // Each is refused where there is nothing to do.
            let _ = supervisor::resolve(state, TO_LIAR, false);
            let _ = supervisor::reset(state, TO_LIAR, 1);
            let _ = supervisor::start(&manager, state, TO_LIAR);
        }
    }
}

/// How the channel to the liar stands.
fn stands(state: &State) -> Option<ChannelState> {
    state.outbound.channels.get(&InstanceId::of(TO_LIAR)).map(|instance| instance.status.state)
}

/// The queues to which messages come at a side.
fn queues_of(side: usize) -> &'static [Queue] {
    if side == 0 { &[BACK] } else { &[FAR, SEALED, BORDER, OPENED, LIES, KEPT] }
}

fn is_protected_there(queue: Queue) -> bool {
    queue == SEALED || queue == BORDER
}

fn places(side: usize) -> Places {
    let named = |queue: Queue| (QUEUES[queue], queue);
    let puts = match side {
        0 => [FAR, SEALED, BORDER, OPENED, BACK, AWAY].map(named).into_iter().chain([(REFUSED, AWAY)]).collect(),
        _ => [BACK, FAR].map(named).to_vec(),
    };
    Places {
        puts,
        gets: queues_of(side).iter().copied().filter(|queue| *queue != KEPT).map(named).collect(),
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
        changes.push(Change::define(QUEUES[*queue], local.clone()));
    }
    let sending = WAYS[side].iter().chain(&[(AWAY_FROM, TO_LIAR)][side..]);
    for (queue, channel) in sending {
        let usage = Usage::Transmission;
        changes.push(Change::define(*queue, LocalQueue { usage, trigger: *channel != REQUESTED, ..local.clone() }));
        changes.push(Change::define(*channel, sends(side, queue)));
    }
    for (_, channel) in WAYS[1 - side] {
        changes.push(Change::define(*channel, receives(channel)));
    }
    let remote = |queue: &str, manager: &str, way: &str| {
        let remote = RemoteQueue {
            remote_name: Some(queue.into()),
            remote_manager: Some(manager.into()),
            transmission_queue: Some(way.into()),
            ..RemoteQueue::default()
        };
        Change::define(queue, remote)
    };
    for &queue in queues_of(1 - side) {
        let way = if queue == OPENED { OPENED_FROM } else { WAYS[side][0].0 };
        changes.push(remote(QUEUES[queue], MANAGERS[1 - side], way));
    }
    if side == 0 {
        changes.push(remote(QUEUES[AWAY], LIAR, AWAY_FROM));
        changes.push(remote(REFUSED, MANAGERS[1], WAYS[0][0].0));
    } else {
        changes.push(Change::define(REFUSED, local));
        let unread = Policy { recipients: vec![dn("absent")], ..policy(REFUSED, Quality::Privacy) };
        changes.push(Change::define(REFUSED, Arc::new(unread)));
        let from_liar = ChannelDefinition {
            user: Some(LIAR_USER.into()),
            use_dead_letter_queue: false,
            message_retries: 0,
            ..ChannelDefinition::new(ChannelKind::Receiver)
        };
        changes.push(Change::define(FROM_LIAR, from_liar));
        keep_for(&mut changes, QUEUES[KEPT]);
    }
    changes
}

/// None but the user of clients may put on that queue.
fn keep_for(changes: &mut [Change], queue: &str) {
    let Some(Change::SetAuthority(records)) = changes.first_mut() else { return };
    let profile = Profile::parse(queue).expect("it is a name");
    for (user, rights) in [(SIGNED_IN, Right::Browse.alone()), (USER, ObjectType::Queue.rights())] {
        let key = RecordKey { object: ObjectType::Queue, profile: profile.clone(), entity: Entity::principal(user) };
        records.push((key, rights));
    }
}

/// A channel that sends from that transmission queue.
fn sends(side: usize, queue: &str) -> ChannelDefinition {
    let is_requested = queue == OPENED_FROM;
    let port = if queue == AWAY_FROM { LIAR_PORT } else { port_of(1 - side) };
    let kind = if is_requested { ChannelKind::Server } else { ChannelKind::Sender };
    let channel = ChannelDefinition {
        transmission_queue: Some(queue.into()),
        batch_size: BATCH_SIZE,
        disconnect_after: DISCONNECT_AFTER,
        heartbeat: HEARTBEAT,
        user: Some(USER.into()),
        ..ChannelDefinition::new(kind)
    };
    if is_requested {
        return ChannelDefinition { protection: Protection::Remove, ..channel };
    }
    calls(port, channel)
}

/// A channel at the other end: one passes on what comes, one asks for it, and one seals it.
fn receives(channel: &str) -> ChannelDefinition {
    let user = Some(USER.into());
    if channel == REQUESTED {
        let kind = ChannelKind::Requester;
        return calls(port_of(0), ChannelDefinition { user, heartbeat: HEARTBEAT, ..ChannelDefinition::new(kind) });
    }
    let protection = if channel == WAYS[0][0].1 { Protection::AsPolicy } else { Protection::PassThrough };
    ChannelDefinition { user, protection, heartbeat: HEARTBEAT, ..ChannelDefinition::new(ChannelKind::Receiver) }
}

/// Where a side is called.
fn port_of(side: usize) -> u16 {
    if side == 0 { FIRST_PORT } else { FIRST_PORT + 1 }
}

/// A channel that calls that port.
fn calls(port: u16, channel: ChannelDefinition) -> ChannelDefinition {
    ChannelDefinition {
        connections: vec![format!("127.0.0.1:{port}")],
        short_retries: RETRIES_MAX,
        short_retry_interval: RETRY_INTERVAL,
        ..channel
    }
}
