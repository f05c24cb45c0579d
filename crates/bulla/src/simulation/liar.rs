//! A partner of channels that lies: about who it is, which numbers it has, what it was sent and what it has taken.
//!
//! It sends to one queue manager and takes from the other. Each of its messages is another one, so that whatever it
//! repeats is told apart. What it says that it has taken may be gone from then on; nothing else may.

use super::checker::{Checker, Fact, Number, OperationId, Queue};
use super::client::{message, shown};
use crate::channel::protocol::{self, CAPABILITY, REFUSALS, ReceiverGreeting, SenderGreeting};
use crate::channel::refused::Refused;
use crate::channel::supervisor;
use crate::channel::transmission::{Destination, TransmissionHeader};
use crate::envelope;
use crate::manager::State;
use crate::turn::pipe::{Pipe, PipeEnd};
use crate::turn::socket::Moved;
use bulla_amqp::types::Target;
use bulla_amqp::{
    AttachReply, AttachRequest, Config, Connection, DeliveryId, DeliveryState, Event, IncomingAttach, LinkId,
    Mechanism, SaslClient, SaslOffer, SenderSettleMode, Symbol, Value,
};
use bulla_client::Crypto;
use bulla_queue::Message;
use bytes::BytesMut;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::time::Instant;

/// Bytes read at once.
const READ_BYTES: usize = 16 << 10;
const CREDIT: u32 = 8;
/// Numbers by which it is beside the truth, at most.
const BESIDE_MAX: u64 = 4;
/// Deliveries that it settles without having been sent them, at most.
const INVENTED_MAX: u32 = 100;
const SEQUENCE_WRAP: u32 = 999_999_999;
const BATCH_SIZE: u32 = 50;
const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// Reason that it gives with what it refuses.
const REFUSAL: u16 = 2063;
/// The performative that says what became of deliveries, and its state `accepted`.
const DISPOSITION: u64 = 0x15;
const ACCEPTED: u64 = 0x24;

/// What a liar needs beside itself.
pub(super) struct Around<'a> {
    pub(super) checker: &'a mut Checker,
    pub(super) random: &'a mut Rng,
    pub(super) now: Instant,
    pub(super) last_name: &'a mut u64,
    /// Says what happens.
    pub(super) tell: &'a mut dyn FnMut(String),
}

/// A connection of the liar's, with the one link on it.
pub(super) struct Liar {
    pipe: PipeEnd,
    engine: Connection,
    role: Role,
    /// The link, once it is open.
    link: Option<LinkId>,
    /// Where what became of a message is waited for, by token.
    asked: BTreeMap<u64, OperationId>,
    /// Deliveries that it has not answered.
    held: Vec<(DeliveryId, Number)>,
    last_token: u64,
    pub(super) is_over: bool,
}

/// What the liar is.
enum Role {
    /// It sends to these queues, the second of which it may not put on. Messages that it settles as it sends them have
    /// the second name.
    Sends { to: [(&'static str, Queue); 2], manager: &'static str, names: [u64; 2] },
    /// It takes what is sent to it, from a queue manager with that channel; or is in another's place, and is sent
    /// nothing.
    Takes { channel: &'static str, queue: Option<Queue> },
}

impl Liar {
    /// Calls a queue manager, and attaches a channel as if it were `manager`.
    pub(super) fn sends(
        pipe: PipeEnd,
        (channel, manager): (&str, &str),
        (to, to_manager): ([(&'static str, Queue); 2], &'static str),
        around: &mut Around<'_>,
    ) -> Self {
        // A message that is settled as it is sent is put at once, before those that wait for the end of their batch.
        let names = [*around.last_name + 1, *around.last_name + 2];
        *around.last_name += 2;
        let role = Role::Sends { to, manager: to_manager, names };
        let mut engine = Connection::client(config(), SaslClient::Anonymous, Box::new(Crypto), around.now);
        let session = engine.begin();
        let random = &mut *around.random;
        let greeting = SenderGreeting {
            channel: channel.into(),
            manager: manager.into(),
            store: [random.u8(1..3); 16],
            sequence: random.u64(..BESIDE_MAX) * random.u64(..BESIDE_MAX) * 10,
            in_doubt: if random.bool() { u32::MAX } else { random.u32(..100) },
            reset: random.u8(..4) == 0,
            sequence_wrap: SEQUENCE_WRAP,
            batch_size: BATCH_SIZE,
            message_bytes_max: MESSAGE_BYTES_MAX,
            non_persistent_fast: random.bool(),
        };
        (around.tell)(format!("the liar attaches: {greeting:?}"));
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Mixed,
            properties: greeting.to_properties(),
            ..AttachRequest::sender(channel, channel)
        };
        engine.attach(session, request);
        Self::new(pipe, engine, role)
    }

    /// Is called by a channel.
    pub(super) fn takes(pipe: PipeEnd, channel: &'static str, queue: Option<Queue>, around: &mut Around<'_>) -> Self {
        let offer = SaslOffer { mechanisms: vec![Mechanism::Anonymous], allow_bare_amqp: true };
        Self::new(pipe, Connection::server(config(), offer, around.now), Role::Takes { channel, queue })
    }

    fn new(pipe: PipeEnd, engine: Connection, role: Role) -> Self {
        let (link, asked, held) = (None, BTreeMap::new(), Vec::new());
        Self { pipe, engine, role, link, asked, held, last_token: 0, is_over: false }
    }

    /// The connection.
    pub(super) fn pipe(&self) -> &Pipe {
        self.pipe.pipe()
    }

    /// The connection ends: what was not answered is in doubt.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.pipe().cut();
    }

    /// Reads what has come and writes what there is. `partner` is the queue manager at the other end.
    pub(super) fn exchange(&mut self, partner: &mut State, around: &mut Around<'_>) -> Result<(), String> {
        let mut room = [0; READ_BYTES];
        loop {
            match self.pipe.read(&mut room) {
                Ok(Moved::Bytes(n)) => {
                    let mut input = BytesMut::from(&room[..n]);
                    self.engine.receive_copied(around.now, &input.split());
                }
                Ok(Moved::Blocked) => break,
                Ok(Moved::End) | Err(_) => {
                    self.end();
                    return Ok(());
                }
            }
        }
        while let Some(event) = self.engine.poll_event() {
            self.happened(event, partner, around)?;
        }
        self.write();
        if self.engine.is_closed() {
            self.end();
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

    /// Does something of its own accord.
    pub(super) fn act(&mut self, around: &mut Around<'_>) -> Result<(), String> {
        let Some(link) = self.link.filter(|_| !self.is_over) else { return Ok(()) };
        match around.random.u8(..40) {
            0 => self.end(),
            1 => self.invent(around),
            _ if matches!(self.role, Role::Sends { .. }) => self.send(link, around),
            _ => self.answer(link, around),
        }
        self.write();
        Ok(())
    }

    /// Says of deliveries that there never were that it has taken them.
    fn invent(&mut self, around: &mut Around<'_>) {
        if self.engine.output_len() > 0 {
            return;
        }
        let first = self.last_token as u32 + around.random.u32(BATCH_SIZE..INVENTED_MAX) * 100;
        (around.tell)(format!("the liar settles what it was not sent, from {first}"));
        let described = |code: u64, fields| Value::Described(Box::new((Value::Ulong(code), Value::List(fields))));
        let is_receiver = Value::Bool(matches!(self.role, Role::Takes { .. }));
        let (first, last) = (Value::Uint(first), Value::Uint(first + around.random.u32(..INVENTED_MAX)));
        let fields = vec![is_receiver, first, last, Value::Bool(true), described(ACCEPTED, Vec::new())];
        let mut body = Vec::new();
        described(DISPOSITION, fields).encode_to(&mut body);
        let size = u32::try_from(body.len() + 8).unwrap_or(u32::MAX).to_be_bytes();
        // Where the room does not do, the partner sees a damaged frame: that is a lie, too.
        let _ = self.pipe.write(&[IoSlice::new(&size), IoSlice::new(&[2, 0, 0, 0]), IoSlice::new(&body)]);
    }

    fn send(&mut self, link: LinkId, around: &mut Around<'_>) {
        let Role::Sends { to, manager, names } = &self.role else { return };
        if !self.engine.can_send(link) {
            return;
        }
        let is_allowed = around.random.u8(..50) > 0;
        let (address, queue) = to[usize::from(!is_allowed)];
        let persistent = around.random.u8(..4) > 0;
        let settled = !persistent && around.random.bool();
        let fact = Fact { priority: 4, persistent, group: names[usize::from(settled)] };
        let number = around.checker.number(fact);
        let operation = around.checker.begin();
        // What it may not put is never there.
        if is_allowed {
            around.checker.puts(operation, queue, number);
        }
        let destination = Destination { queue: address.into(), manager: (*manager).into() };
        let body = envelope::chunks_of(message(number, fact, 0, &[]));
        let dressed = TransmissionHeader::new(destination).put_on(Message::new(fact.persistent, body));
        self.last_token += 1;
        (around.tell)(format!("the liar puts {number} on {address}, settled {settled}"));
        let sent = self.engine.send(link, self.last_token, envelope::payload_of(&dressed.body), settled);
        assert!(sent, "it has credit");
        if !settled && is_allowed {
            self.asked.insert(self.last_token, operation);
        }
    }

    /// Says what has become of a message that it was sent; or nothing; or that of one.
    fn answer(&mut self, link: LinkId, around: &mut Around<'_>) {
        let Role::Takes { queue: Some(queue), .. } = self.role else { return };
        if self.held.is_empty() {
            return;
        }
        let (id, number) = self.held.remove(around.random.usize(..self.held.len()));
        let state = match around.random.u8(..20) {
            0 => DeliveryState::Rejected(None),
            1 => DeliveryState::Released,
            2 => {
                // It is told that a message was refused, and later that it is there: the first one counts.
                self.engine.dispose(link, id, DeliveryState::Rejected(None));
                DeliveryState::Accepted
            }
            3 => return,
            _ => {
                may_be_gone(around.checker, queue, number);
                DeliveryState::Accepted
            }
        };
        (around.tell)(format!("the liar says of {number}: {state:?}"));
        self.engine.dispose(link, id, state);
    }

    fn happened(&mut self, event: Event, partner: &mut State, around: &mut Around<'_>) -> Result<(), String> {
        match event {
            Event::SaslInit { .. } => self.engine.sasl_outcome(true),
            Event::LinkOpened(opened) if opened.target.is_some() => self.link = Some(opened.link),
            Event::Attached(attach) => self.attached(&attach, partner, around)?,
            Event::Delivery(delivery) => {
                let Role::Takes { queue: Some(queue), .. } = self.role else {
                    return Err("the liar is sent a message of others".into());
                };
                let shown = shown(&delivery.payload)?;
                (around.tell)(format!("the liar gets {}", shown.number));
                around.checker.lies_there(queue, shown)?;
                if delivery.settled {
                    may_be_gone(around.checker, queue, shown.number);
                } else {
                    self.held.push((delivery.id, shown.number));
                }
            }
            Event::Outcome { token, state, settled, link } => {
                if !settled {
                    self.engine.settle(link, token, DeliveryState::Accepted);
                }
                match (self.asked.remove(&token), state) {
                    (Some(operation), Some(DeliveryState::Accepted)) => {
                        around.checker.counts.confirmed_puts += 1;
                        around.checker.done(operation)?;
                    }
                    (Some(operation), Some(DeliveryState::Rejected(_))) => around.checker.undone(operation)?,
                    _ => {}
                }
            }
            Event::Detached { .. } | Event::SessionEnded(..) => self.link = None,
            Event::Closed(error) => (around.tell)(format!("the liar is closed: {error:?}")),
            _ => {}
        }
        Ok(())
    }

    /// A channel wants to send, and asks how far it has come.
    fn attached(
        &mut self,
        attach: &IncomingAttach,
        partner: &mut State,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        let Role::Takes { channel, queue } = self.role else { return Err("the liar is attached to".into()) };
        let Some(greeting) = SenderGreeting::from_properties(&attach.properties) else {
            return Err(format!("no greeting: {:?}", attach.properties));
        };
        let random = &mut *around.random;
        let (first, last) = (greeting.sequence, greeting.sequence + u64::from(greeting.in_doubt));
        let sequence = match random.u8(..16) {
            0 => last + 1 + random.u64(..BESIDE_MAX),
            1 => first.saturating_sub(1 + random.u64(..BESIDE_MAX)),
            _ => random.u64(first..=last),
        };
        let mut refused = Refused::default();
        if random.u8(..4) == 0 && sequence > 0 {
            refused.note(random.u64(first.min(sequence)..=sequence), REFUSAL);
        }
        let answer = ReceiverGreeting {
            manager: (if random.u8(..16) == 0 { "QM4" } else { "QM3" }).into(),
            store: match random.u8(..16) {
                0 => [9; 16],
                1 => [0; 16],
                _ => greeting.store,
            },
            sequence,
            sequence_wrap: SEQUENCE_WRAP,
            batch_size: BATCH_SIZE,
            message_bytes_max: MESSAGE_BYTES_MAX,
            mark: [if random.u8(..16) == 0 { 7 } else { 8 }; 16],
            refused,
        };
        (around.tell)(format!("the liar has {sequence} of {first} to {last}"));
        // What it says that it has may be gone.
        let note = supervisor::read_note(partner, channel).map_err(|refusal| refusal.to_string())?;
        let claimed = usize::try_from(sequence.saturating_sub(first)).unwrap_or(usize::MAX);
        for id in note.in_doubt.into_iter().take(if queue.is_some() { claimed } else { 0 }) {
            let Some(queue) = queue else { break };
            let Ok(body) = partner.store.body_now(id) else { continue };
            let shown = shown(&envelope::payload_of(&body))?;
            around.checker.lies_there(queue, shown)?;
            may_be_gone(around.checker, queue, shown.number);
        }
        let reply = AttachReply {
            source: Some(attach.source.clone().unwrap_or_default()),
            target: Some(Target::default()),
            properties: answer.to_properties(),
            max_message_size: MESSAGE_BYTES_MAX,
            ..AttachReply::default()
        };
        self.engine.accept_link(attach.link, reply);
        self.engine.set_credit(attach.link, CREDIT);
        self.link = Some(attach.link);
        Ok(())
    }
}

/// A partner says that it has taken a message: its sender may remove it.
fn may_be_gone(checker: &mut Checker, queue: Queue, number: Number) {
    let operation = checker.begin();
    checker.removes(operation, queue, number);
}

fn config() -> Config {
    Config {
        offered_capabilities: [CAPABILITY, REFUSALS].map(Symbol::from_static).to_vec(),
        properties: protocol::identity(),
        ..Config::new("QM3")
    }
}
