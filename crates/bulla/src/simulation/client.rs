//! A client of the simulation: the AMQP engine over a simulated connection, and what it has asked for.

use super::body::{filler_at, shown_body};
use super::checker::{Checker, Fact, Holder, Number, OperationId, Queue, Shown};
use super::protection::sign_in;
use crate::turn::pipe::{Pipe, PipeEnd};
use crate::turn::socket::Moved;
use bulla_amqp::transaction::{Control, Declare, Discharge, LOCAL_TRANSACTIONS};
use bulla_amqp::types::{ReceiverSettleMode, Source};
use bulla_amqp::{
    AttachRequest, BodyForm, Config, Connection, Coordinator, DeliveryId, DeliveryState, Event, Header, LinkId,
    MessageBody, MessageParts, Payload, Sections, SessionId, Symbol, Value,
};
use bulla_client::Crypto;
use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::time::Instant;

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
/// Messages that a link gets without answering.
const CREDIT_MAX: u32 = 4;
/// Links that put, and links that get.
const LINKS_MAX: usize = 3;
/// Units of work that are open.
const UNITS_MAX: usize = 2;
/// Bytes that follow a message's number, at most; most messages are short.
const FILLER_BYTES_MAX: usize = 3_000;
/// Of a large message, which makes a batch of the journal by itself.
const LARGE_FILLER_BYTES_MAX: usize = 20_000;
/// The number of messages that are not followed.
const UNCOUNTED: Number = 0;

/// Where clients put and get.
pub(super) struct Places {
    /// Addresses to put at, with the queue that a message comes to.
    pub(super) puts: Vec<(&'static str, Queue)>,
    /// Addresses to get from.
    pub(super) gets: Vec<(&'static str, Queue)>,
    /// Queues that are never full.
    pub(super) roomy: Vec<Queue>,
    /// What stands in the bodies of messages to queues that are protected.
    pub(super) secrets: Vec<(Queue, &'static [u8])>,
    /// A topic's address, and the queues on which all that is published there comes to lie.
    pub(super) topic: Option<(&'static str, Range<Queue>)>,
}

impl Places {
    /// Whether a queue is never full.
    pub(super) fn is_roomy(&self, queue: Queue) -> bool {
        self.roomy.contains(&queue)
    }

    /// What stands in the bodies of messages to that queue, where it is protected.
    fn secret(&self, queue: Queue) -> &'static [u8] {
        self.secrets.iter().find(|(protected, _)| *protected == queue).map_or(&[], |(_, secret)| secret)
    }
}

/// A client that is connected.
pub(super) struct Client {
    pub(super) name: u64,
    pub(super) pipe: PipeEnd,
    engine: Connection,
    session: SessionId,
    coordinator: LinkId,
    links: BTreeMap<LinkId, Link>,
    held: Vec<Held>,
    /// Queues of links that have less credit than before, which the queue manager may not have heard yet.
    lowered: Vec<Queue>,
    units: Vec<Unit>,
    /// What outcomes are waited for, by token.
    asked: BTreeMap<u64, Asked>,
    /// Removals whose confirmation is waited for.
    removed: BTreeMap<(LinkId, DeliveryId), OperationId>,
    /// The name of its temporary queue.
    own: Option<String>,
    last_token: u64,
    is_up: bool,
    pub(super) is_over: bool,
    /// The machine does not own the queues that clients put on and get from.
    pub(super) is_elsewhere: bool,
    /// How often they had another owner since this client came.
    era: u64,
}

/// A link.
struct Link {
    /// Never used again.
    name: u64,
    kind: LinkKind,
    is_open: bool,
    /// When it was attached.
    era: u64,
    /// Its queue has had another owner since: nothing durable can come of it, and what it brings may be old.
    is_void: bool,
    /// What was put there without an answer, by token, on a queue that refuses nothing.
    settled: Vec<(u64, OperationId)>,
}

impl Link {
    fn new(name: u64, kind: LinkKind, era: u64) -> Self {
        Self { name, kind, is_open: false, era, is_void: false, settled: Vec::new() }
    }

    /// The queue manager has taken all messages before that token, or all.
    fn taken(&mut self, before: Option<u64>, checker: &mut Checker) {
        let is_before = |(token, _): &mut (u64, OperationId)| before.is_none_or(|before| *token < before);
        self.settled.extract_if(.., is_before).for_each(|(_, operation)| checker.expects(operation));
    }
}

#[derive(Clone, Copy)]
enum LinkKind {
    /// Puts on a queue, or publishes.
    Puts(Option<Queue>),
    /// Gets from a queue; `confirmed` where removals are confirmed.
    Gets {
        queue: Queue,
        confirmed: bool,
    },
    Coordinator,
    /// Gets from a temporary queue of its own.
    GetsOwn,
    /// Puts on one.
    PutsOwn,
}

/// A message that was delivered.
struct Held {
    link: LinkId,
    delivery: DeliveryId,
    queue: Queue,
    number: Number,
}

/// A unit of work that was declared.
struct Unit {
    txn_id: Bytes,
    operation: OperationId,
    /// Of groups of messages.
    name: u64,
    /// Puts that are not answered yet.
    pending: usize,
    /// Messages got in it.
    gets: Vec<(Queue, Number)>,
    /// The outcome of its end is waited for.
    is_ending: bool,
    /// Whether anything is put or got in it.
    is_empty: bool,
    /// Whether any of that is persistent: it takes a log to commit it.
    is_durable: bool,
    /// It was begun with another owner of the queues.
    is_void: bool,
}

/// What an outcome answers.
enum Asked {
    Put { operation: OperationId, link: LinkId },
    PutIn { operation: OperationId, number: Number },
    Declare,
    End { operation: OperationId, commits: bool },
}

/// What one step of a client needs beside itself.
pub(super) struct Surroundings<'a> {
    pub(super) places: &'a Places,
    pub(super) checker: &'a mut Checker,
    pub(super) random: &'a mut Rng,
    pub(super) now: Instant,
    /// Numbers of links and units.
    pub(super) last_name: &'a mut u64,
    /// Says what happens.
    pub(super) tell: &'a mut dyn FnMut(String),
}

impl Surroundings<'_> {
    fn name(&mut self) -> u64 {
        *self.last_name += 1;
        *self.last_name
    }

    fn tell(&mut self, what: String) {
        (self.tell)(what);
    }
}

impl Client {
    pub(super) fn new(pipe: PipeEnd, on: &mut Surroundings<'_>) -> Self {
        let name = on.name();
        let config = Config::new(format!("client-{name}"));
        let mut engine = Connection::client(config, sign_in(), Box::new(Crypto), on.now);
        let session = engine.begin();
        let wanted = Coordinator { capabilities: vec![LOCAL_TRANSACTIONS] };
        let coordinator = engine.attach(session, AttachRequest::coordinator("units", wanted));
        let link = Link::new(on.name(), LinkKind::Coordinator, 0);
        Self {
            name,
            pipe,
            engine,
            session,
            coordinator,
            links: BTreeMap::from([(coordinator, link)]),
            held: Vec::new(),
            lowered: Vec::new(),
            units: Vec::new(),
            asked: BTreeMap::new(),
            removed: BTreeMap::new(),
            own: None,
            last_token: 0,
            is_up: false,
            is_over: false,
            is_elsewhere: false,
            era: 0,
        }
    }

    /// The connection.
    pub(super) fn pipe(&self) -> &Pipe {
        self.pipe.pipe()
    }

    /// Reads what has come and writes what there is.
    pub(super) fn exchange(&mut self, on: &mut Surroundings<'_>) -> Result<(), String> {
        let mut room = [0; READ_BYTES];
        loop {
            match self.pipe.read(&mut room) {
                Ok(Moved::Bytes(n)) => {
                    let mut input = BytesMut::from(&room[..n]);
                    // What is left is the beginning of a frame, which comes first at the next read.
                    self.engine.receive_copied(on.now, &input.split());
                }
                Ok(Moved::Blocked) => break,
                Ok(Moved::End) | Err(_) => {
                    self.end(on);
                    return Ok(());
                }
            }
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= on.now) {
            self.engine.handle_timeout(on.now);
        }
        while let Some(event) = self.engine.poll_event() {
            self.happened(event, on)?;
        }
        self.write();
        if self.engine.is_closed() {
            self.end(on);
        }
        Ok(())
    }

    fn write(&mut self) {
        while self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            match self.pipe.write(&slices) {
                Ok(Moved::Bytes(n)) => {
                    drop(slices);
                    self.engine.output_written(n);
                }
                _ => return,
            }
        }
    }

    /// The connection ends: whatever was not answered is in doubt, but for units that were not to end.
    pub(super) fn end(&mut self, on: &mut Surroundings<'_>) {
        self.is_gone(on);
        self.pipe().cut();
    }

    /// The client goes without a word: the connection is broken for it alone.
    pub(super) fn vanish(mut self, refuses: bool, on: &mut Surroundings<'_>) -> Pipe {
        self.pipe().break_for(0, refuses);
        self.is_gone(on);
        self.pipe().clone()
    }

    fn is_gone(&mut self, on: &mut Surroundings<'_>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        on.tell(format!("client {} ends", self.name));
        for link in self.links.values() {
            if let LinkKind::Gets { queue, .. } = link.kind {
                on.checker.disturb(queue);
            }
        }
        for unit in self.units.drain(..).filter(|unit| !unit.is_ending) {
            on.checker.undone(unit.operation).expect("nothing has shown of it");
        }
        self.held.clear();
        let names: Vec<Holder> = self.links.values().map(|link| link.name).collect();
        on.checker.holds_nothing(|holder| names.contains(&holder));
    }

    /// Another machine owns the queues from now on, or the same one anew. Links that were open are of no use, and their
    /// client does not know it: what it does there can't come into the log any more.
    pub(super) fn owner_changed(&mut self, checker: &mut Checker) {
        self.era += 1;
        let of_queues = |link: &&mut Link| matches!(link.kind, LinkKind::Puts(_) | LinkKind::Gets { .. });
        let mut names = Vec::new();
        for link in self.links.values_mut().filter(of_queues) {
            link.is_void |= link.is_open;
            names.push(link.name);
        }
        checker.holds_nothing(|holder| names.contains(&holder));
        for unit in self.units.iter_mut().filter(|unit| !unit.is_empty && !unit.is_ending) {
            unit.is_void = true;
        }
    }

    /// Links that could do something and wait for the queue manager: by name, with their queue, and whether they put.
    pub(super) fn waits(&self) -> impl Iterator<Item = (u64, Queue, bool)> {
        self.links.iter().filter(|(_, link)| link.is_open).filter_map(|(id, link)| {
            let credit = self.engine.link(*id).map_or(0, |info| info.credit);
            match link.kind {
                LinkKind::Puts(Some(queue)) if credit == 0 => Some((link.name, queue, true)),
                LinkKind::Gets { queue, .. } if credit > 0 => Some((link.name, queue, false)),
                _ => None,
            }
        })
    }

    /// Does something of its own accord.
    pub(super) fn act(&mut self, on: &mut Surroundings<'_>) {
        if !self.is_up || self.is_over {
            return;
        }
        match on.random.u32(..100) {
            0..=4 => self.attach(on),
            5..=6 => self.detach(on),
            7..=42 => self.put(on),
            43..=44 => self.put_on_own(on),
            45..=79 => self.settle(on),
            80..=85 => self.declare(on),
            86..=93 => self.discharge(on),
            _ => self.ask_for_more(on),
        }
        self.write();
    }

    fn attach(&mut self, on: &mut Surroundings<'_>) {
        if self.links.len() > 2 * LINKS_MAX {
            return;
        }
        if on.random.u8(..8) == 0 {
            return self.attach_own(on);
        }
        let name = on.name();
        let puts = on.random.bool();
        let (kind, address, request) = if puts {
            let topics = on.places.topic.as_ref().map_or(0, |(_, queues)| queues.len() + 1);
            let place = on.random.usize(..on.places.puts.len() + topics);
            let (address, queue) = match (on.places.puts.get(place), &on.places.topic) {
                (Some((address, queue)), _) => (*address, Some(*queue)),
                (None, Some((address, _))) => (*address, None),
                (None, None) => return,
            };
            (LinkKind::Puts(queue), address, AttachRequest::sender(format!("link-{name}"), address))
        } else {
            let confirmed = on.random.bool();
            let mode = if confirmed { ReceiverSettleMode::Second } else { ReceiverSettleMode::First };
            let (address, queue) = on.places.gets[on.random.usize(..on.places.gets.len())];
            let request = AttachRequest::receiver(format!("link-{name}"), address);
            (LinkKind::Gets { queue, confirmed }, address, AttachRequest { rcv_settle_mode: mode, ..request })
        };
        on.tell(format!("client {} attaches {name}, puts {puts}, {address}", self.name));
        let link = self.engine.attach(self.session, request);
        self.links.insert(link, Link::new(name, kind, self.era));
        if !puts {
            self.engine.set_credit(link, on.random.u32(1..=CREDIT_MAX));
        }
    }

    /// Makes a temporary queue, or opens one that is there to put on it.
    fn attach_own(&mut self, on: &mut Surroundings<'_>) {
        let name = on.name();
        let (kind, request) = match self.own.clone() {
            Some(address) => (LinkKind::PutsOwn, AttachRequest::sender(format!("link-{name}"), address)),
            None => {
                let dynamic_node_properties = if on.random.bool() { vec![ends_with_link()] } else { Vec::new() };
                let source = Source { dynamic: true, dynamic_node_properties, ..Source::default() };
                let request = AttachRequest::receiver(format!("link-{name}"), "");
                (LinkKind::GetsOwn, AttachRequest { source: Some(source), ..request })
            }
        };
        on.tell(format!("client {} attaches {name} with a queue of its own", self.name));
        let link = self.engine.attach(self.session, request);
        self.links.insert(link, Link::new(name, kind, self.era));
        if matches!(kind, LinkKind::GetsOwn) {
            self.engine.set_credit(link, CREDIT_MAX);
        }
    }

    fn put_on_own(&mut self, on: &mut Surroundings<'_>) {
        let Some(id) = self.some_link(on.random, |link| matches!(link.kind, LinkKind::PutsOwn)) else { return };
        if self.engine.can_send(id) {
            self.last_token += 1;
            let fact = Fact { priority: 4, persistent: false, group: 0 };
            let settled = on.random.bool();
            on.tell(format!("client {} puts on a queue of its own", self.name));
            self.engine.send(id, self.last_token, message(UNCOUNTED, fact, 0, &[]), settled);
        }
    }

    fn some_link(&self, random: &mut Rng, wanted: impl Fn(&Link) -> bool) -> Option<LinkId> {
        let found: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.is_open && wanted(link)).map(|(id, _)| *id).collect();
        (!found.is_empty()).then(|| found[random.usize(..found.len())])
    }

    fn detach(&mut self, on: &mut Surroundings<'_>) {
        let wanted = |link: &Link| !matches!(link.kind, LinkKind::Coordinator);
        let Some(id) = self.some_link(on.random, wanted) else { return };
        let Some(link) = self.links.get(&id) else { return };
        // What is under way on it is answered first: else nothing would tell what became of it.
        let is_waited_for = match link.kind {
            LinkKind::Puts(_) => !self.asked.is_empty(),
            _ => self.removed.keys().any(|(other, _)| *other == id) || !self.units.is_empty(),
        };
        if !is_waited_for {
            self.detach_link(id, on);
        }
    }

    fn detach_link(&mut self, id: LinkId, on: &mut Surroundings<'_>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_open = false;
        on.tell(format!("client {} detaches {}", self.name, link.name));
        if let LinkKind::Gets { queue, .. } = link.kind {
            // What is on its way to it comes back, and may be delivered elsewhere before the detach is answered.
            on.checker.disturb(queue);
        }
        let is_void = link.is_void;
        for held in self.held.extract_if(.., |held| held.link == id).filter(|_| !is_void) {
            on.checker.gives_back(held.queue, held.number);
        }
        self.engine.detach(id, true, None);
    }

    fn put(&mut self, on: &mut Surroundings<'_>) {
        let Some(id) = self.some_link(on.random, |link| matches!(link.kind, LinkKind::Puts(_))) else { return };
        let Link { name, kind: LinkKind::Puts(queue), is_void, .. } = self.links[&id] else { return };
        if !self.engine.can_send(id) {
            return;
        }
        let fits = |unit: &&mut Unit| !unit.is_ending && unit.is_void == is_void;
        let mut unit = self.units.iter_mut().filter(fits).last().filter(|_| on.random.bool());
        let group = unit.as_ref().map_or(name, |unit| unit.name << 32 | name);
        let fact = Fact { priority: on.random.u8(..3) * 4, persistent: on.random.u8(..4) > 0, group };
        if let Some(unit) = &mut unit {
            unit.is_durable |= fact.persistent;
        }
        let is_in_unit = unit.is_some();
        let number = on.checker.number(fact);
        let filler = match on.random.u8(..128) {
            0 => on.random.usize(..LARGE_FILLER_BYTES_MAX),
            1..=15 => on.random.usize(..FILLER_BYTES_MAX),
            _ => 0,
        };
        let secret = queue.map_or(&[][..], |queue| on.places.secret(queue));
        let payload = message(number, fact, filler, secret);
        let settled = unit.is_none() && on.random.u8(..8) == 0;
        self.last_token += 1;
        let token = self.last_token;
        let (operation, txn_id) = match unit {
            None => (on.checker.begin(), None),
            Some(unit) => {
                (unit.pending, unit.is_empty) = (unit.pending + 1, false);
                (unit.operation, Some(unit.txn_id.clone()))
            }
        };
        match (queue, &on.places.topic) {
            (Some(queue), _) => on.checker.puts(operation, queue, number),
            (None, topic) => {
                let queues = topic.as_ref().map_or(0..0, |(_, queues)| queues.clone());
                on.checker.publishes(operation, queues, number);
            }
        }
        if is_void && fact.persistent && !is_in_unit {
            on.checker.undone(operation).expect("it begins");
        }
        on.tell(format!("client {} puts {number} on {name}: {fact:?} {filler} {txn_id:?}", self.name));
        let sent = match txn_id {
            None => self.engine.send(id, token, payload, settled),
            Some(txn_id) => {
                self.asked.insert(token, Asked::PutIn { operation, number });
                self.engine.send_in(id, token, payload, false, txn_id)
            }
        };
        assert!(sent, "it has credit");
        if !settled {
            self.asked.entry(token).or_insert(Asked::Put { operation, link: id });
        } else if let Some(link) = self.links.get_mut(&id).filter(|_| queue.is_some_and(|at| on.places.is_roomy(at))) {
            link.settled.push((token, operation));
            if on.random.u8(..4) == 0 && self.asked.is_empty() {
                self.detach_link(id, on);
            }
        }
    }

    fn settle(&mut self, on: &mut Surroundings<'_>) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(on.random.usize(..self.held.len()));
        let Link { kind: LinkKind::Gets { confirmed, .. }, is_void, .. } = self.links[&held.link] else { return };
        let fits = |unit: &&mut Unit| !unit.is_ending && unit.is_void == is_void;
        let mut unit = self.units.iter_mut().filter(fits).last().filter(|_| on.random.bool());
        let what = on.random.u32(..10);
        let is_durable = on.checker.is_persistent(held.number);
        if let Some(unit) = &mut unit {
            unit.is_durable |= is_durable;
        }
        on.tell(format!("client {} settles {} as {what}", self.name, held.number));
        let state = match (unit, what) {
            (None, _) if is_void => {
                let operation = on.checker.begin();
                if is_durable {
                    on.checker.undone(operation).expect("it begins");
                }
                if confirmed {
                    self.removed.insert((held.link, held.delivery), operation);
                }
                DeliveryState::Accepted
            }
            (Some(unit), _) => {
                unit.is_empty = false;
                unit.gets.push((held.queue, held.number));
                let txn_id = unit.txn_id.clone();
                DeliveryState::Transactional { txn_id, outcome: Some(Box::new(DeliveryState::Accepted)) }
            }
            (None, 0) => {
                on.checker.gives_back(held.queue, held.number);
                DeliveryState::Released
            }
            (None, 1) => {
                on.checker.gives_back(held.queue, held.number);
                DeliveryState::Modified {
                    delivery_failed: true,
                    undeliverable_here: false,
                    message_annotations: Vec::new(),
                }
            }
            (None, _) => {
                let operation = on.checker.begin();
                on.checker.removes(operation, held.queue, held.number);
                if confirmed {
                    self.removed.insert((held.link, held.delivery), operation);
                }
                DeliveryState::Accepted
            }
        };
        self.engine.dispose(held.link, held.delivery, state);
    }

    fn control(&mut self, control: &Control, asked: Asked) {
        self.last_token += 1;
        let sent = self.engine.send(self.coordinator, self.last_token, control.to_message(), false);
        assert!(sent, "it has credit");
        self.asked.insert(self.last_token, asked);
    }

    fn declare(&mut self, on: &mut Surroundings<'_>) {
        let declares = self.asked.values().filter(|asked| matches!(asked, Asked::Declare)).count();
        if self.units.len() + declares < UNITS_MAX && self.engine.can_send(self.coordinator) {
            on.tell(format!("client {} declares", self.name));
            self.control(&Control::Declare(Declare { global_id: None }), Asked::Declare);
        }
    }

    fn discharge(&mut self, on: &mut Surroundings<'_>) {
        let is_ready = |unit: &&mut Unit| !unit.is_ending && unit.pending == 0;
        let Some(unit) = self.units.iter_mut().find(is_ready) else { return };
        if !self.engine.can_send(self.coordinator) {
            return;
        }
        unit.is_ending = true;
        let (txn_id, operation, mut gets) = (unit.txn_id.clone(), unit.operation, std::mem::take(&mut unit.gets));
        let commits = on.random.u8(..5) > 0;
        if unit.is_void {
            gets.clear();
            if unit.is_durable && commits {
                on.checker.undone(operation).expect("it was not to end");
            }
        }
        on.tell(format!("client {} ends {txn_id:?}, commits {commits}", self.name));
        for (queue, number) in gets {
            if commits {
                on.checker.removes(operation, queue, number);
            } else {
                on.checker.gives_back(queue, number);
            }
        }
        self.control(&Control::Discharge(Discharge { txn_id, fail: !commits }), Asked::End { operation, commits });
    }

    fn ask_for_more(&mut self, on: &mut Surroundings<'_>) {
        let Some(id) = self.some_link(on.random, |link| matches!(link.kind, LinkKind::Gets { .. })) else { return };
        let credit = on.random.u32(..=CREDIT_MAX);
        if let LinkKind::Gets { queue, .. } = self.links[&id].kind
            && self.engine.link(id).is_some_and(|info| credit < info.credit)
        {
            self.lowered.push(queue);
        }
        self.engine.set_credit(id, credit);
    }

    /// The queue manager has had a turn. What it made ready for credit that a link no longer has comes back.
    pub(super) fn after_turn(&mut self, checker: &mut Checker) {
        self.lowered.iter().for_each(|queue| checker.disturb(*queue));
        if self.engine.output_len() == 0 && self.pipe().is_heard(0) {
            self.lowered.clear();
        }
    }

    fn happened(&mut self, event: Event, on: &mut Surroundings<'_>) -> Result<(), String> {
        match event {
            Event::Opened(_) => self.is_up = true,
            Event::LinkOpened(opened) => {
                let is_there = opened.target.is_some() || opened.source.is_some();
                if let Some(link) = self.links.get_mut(&opened.link) {
                    link.is_open = is_there;
                    let is_of_queue = matches!(link.kind, LinkKind::Puts(_) | LinkKind::Gets { .. });
                    if is_there && is_of_queue && (self.is_elsewhere || link.era != self.era) {
                        // Which owner has opened it is not known.
                        self.detach_link(opened.link, on);
                        return Ok(());
                    }
                    if matches!(link.kind, LinkKind::GetsOwn) {
                        self.own = opened.source.and_then(|source| source.address).map(|address| address.to_string());
                    }
                }
            }
            Event::Delivery(delivery) => {
                let Some(link) = self.links.get(&delivery.link) else { return Ok(()) };
                let queue = match link.kind {
                    LinkKind::Gets { queue, .. } => queue,
                    LinkKind::GetsOwn => {
                        self.engine.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
                        return Ok(());
                    }
                    _ => return Err("a message on a link that puts".into()),
                };
                if !link.is_open {
                    // It is on its way out: the message comes back.
                    on.checker.disturb(queue);
                    return Ok(());
                }
                let shown = shown(&delivery.payload)?;
                on.tell(format!("client {} gets {} from {queue} by {}", self.name, shown.number, link.name));
                if !link.is_void {
                    on.checker.delivered(link.name, queue, shown)?;
                }
                self.held.push(Held { link: delivery.link, delivery: delivery.id, queue, number: shown.number });
            }
            Event::Outcome { token, state, .. } => self.answered(token, state, on)?,
            Event::Settled { link, id, state } => {
                if let Some(operation) = self.removed.remove(&(link, id)) {
                    on.tell(format!("client {} is told of a removal: {state:?}", self.name));
                    if state == Some(DeliveryState::Accepted) {
                        on.checker.counts.confirmed_removals += 1;
                        on.checker.done(operation)?;
                    }
                }
            }
            Event::Detached { link, error, .. } => {
                if let Some(mut link) = self.links.remove(&link) {
                    if matches!(link.kind, LinkKind::GetsOwn) {
                        self.own = None;
                    }
                    // It was this side that ended it.
                    if error.is_none() {
                        link.taken(None, on.checker);
                    }
                    on.tell(format!("client {}: link {} is gone: {error:?}", self.name, link.name));
                    if let LinkKind::Gets { queue, .. } = link.kind {
                        on.checker.disturb(queue);
                    }
                    on.checker.holds_nothing(|holder| holder == link.name);
                }
                self.held.retain(|held| held.link != link);
            }
            Event::SessionEnded(_, error) => return Err(format!("the session ended: {error:?}")),
            Event::Closed(error) => on.tell(format!("client {} is closed: {error:?}", self.name)),
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, token: u64, state: Option<DeliveryState>, on: &mut Surroundings<'_>) -> Result<(), String> {
        let Some(asked) = self.asked.remove(&token) else { return Ok(()) };
        on.tell(format!("client {} is answered {token}: {state:?}", self.name));
        match (asked, state) {
            (Asked::Put { operation, link }, Some(DeliveryState::Accepted)) => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.taken(Some(token), on.checker);
                }
                on.checker.counts.confirmed_puts += 1;
                on.checker.done(operation)
            }
            (Asked::Put { operation, .. }, Some(DeliveryState::Rejected(_))) => on.checker.undone(operation),
            (Asked::PutIn { operation, number }, Some(DeliveryState::Transactional { outcome, .. })) => {
                let is_in = outcome.as_deref() == Some(&DeliveryState::Accepted);
                self.answered_in(operation, number, is_in, on);
                Ok(())
            }
            (Asked::PutIn { operation, number }, Some(DeliveryState::Rejected(_))) => {
                self.answered_in(operation, number, false, on);
                Ok(())
            }
            (Asked::Declare, Some(DeliveryState::Declared { txn_id })) => {
                let (operation, name) = (on.checker.begin(), on.name());
                let unit = Unit {
                    txn_id,
                    operation,
                    name,
                    pending: 0,
                    gets: Vec::new(),
                    is_ending: false,
                    is_empty: true,
                    is_durable: false,
                    is_void: false,
                };
                self.units.push(unit);
                Ok(())
            }
            (Asked::End { operation, commits }, Some(state)) => {
                let unit = self.units.extract_if(.., |unit| unit.operation == operation).next();
                match state {
                    DeliveryState::Accepted if commits => {
                        let counts = unit.is_some_and(|unit| !unit.is_empty);
                        on.checker.counts.confirmed_units += u64::from(counts);
                        on.checker.done(operation)
                    }
                    DeliveryState::Accepted | DeliveryState::Rejected(_) => on.checker.undone(operation),
                    other => Err(format!("a unit of work ended as {other:?}")),
                }
            }
            (_, state) => Err(format!("answered {state:?}")),
        }
    }

    fn answered_in(&mut self, operation: OperationId, number: Number, is_in: bool, on: &mut Surroundings<'_>) {
        if let Some(unit) = self.units.iter_mut().find(|unit| unit.operation == operation) {
            unit.pending -= 1;
        }
        if !is_in {
            on.checker.refused(operation, number);
        }
    }
}

/// The property of a temporary queue that goes with its link, and not with its connection.
fn ends_with_link() -> (Symbol, Value) {
    let delete_on_close = (Value::Symbol(Symbol::from_static("amqp:delete-on-close:list")), Value::List(Vec::new()));
    (Symbol::from_static("lifetime-policy"), Value::Described(Box::new(delete_on_close)))
}

/// The message of that number.
pub(super) fn message(number: Number, fact: Fact, filler: usize, secret: &[u8]) -> Payload {
    let filler = (0..filler).map(|at| filler_at(number, at));
    let body: Vec<u8> = number.to_be_bytes().into_iter().chain(secret.iter().copied()).chain(filler).collect();
    let parts = MessageParts {
        header: Some(Header { durable: fact.persistent, priority: fact.priority, ..Header::default() }),
        body: MessageBody::Data(Payload::from(Bytes::from(body))),
        ..MessageParts::default()
    };
    parts.build()
}

/// What a message says of itself.
pub(super) fn shown(payload: &Payload) -> Result<Shown, String> {
    let sections = Sections::scan(payload).map_err(|error| format!("no message: {error}"))?;
    let BodyForm::Data(range) = sections.body.clone() else {
        return Err(format!("no body of a message: {:?}", sections.body));
    };
    let body = payload.bytes_at(range).into_owned();
    let number = shown_body(&body)?;
    let header = sections.decode_header(payload).map_err(|error| format!("no header: {error}"))?;
    Ok(Shown { number, priority: header.priority, persistent: header.durable })
}
