//! A connection with one session, for one message at a time. What `bulla put` and `bulla get` are made of.

use crate::error::of_tls;
use crate::wire::{self, CONNECT_WITHIN, Endpoint, Wire};
use crate::{ClientError, Crypto};
use bulla_amqp::transaction::{Control, Declare, Discharge, LOCAL_TRANSACTIONS};
use bulla_amqp::{
    AttachRequest, Connection, Coordinator, Delivery, DeliveryState, Event, LinkId, Payload, SenderSettleMode,
    SessionId, Symbol, Value,
};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Room for one read, in bytes.
const READ_BYTES: usize = 64 << 10;
/// Random bytes in the name of a connection's container.
const CONTAINER_BYTES: usize = 8;

/// A connection with one session.
pub struct Client {
    wire: Wire,
    engine: Connection,
    session: SessionId,
    /// The link on which units of work begin and end, once there was one.
    coordinator: Option<LinkId>,
    input: BytesMut,
    events: VecDeque<Event>,
    /// `HOST:PORT`, until the other side has said something.
    unheard: Option<String>,
}

/// A unit of work that a [`Client`] has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit(Bytes);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("wire", &self.wire).finish_non_exhaustive()
    }
}

/// What the broker answered to an attach.
#[derive(Debug)]
pub struct Attached {
    /// The link.
    pub link: LinkId,
    /// Properties of the link, `bulla:policy` and `bulla:destination` among them where the broker is Bulla.
    pub properties: Vec<(Symbol, Value)>,
}

/// Of a link's properties, one that is a string.
#[must_use]
pub fn property<'a>(properties: &'a [(Symbol, Value)], name: &str) -> Option<&'a str> {
    properties.iter().find(|(key, _)| key.as_str() == name).and_then(|(_, value)| value.as_str())
}

impl Client {
    /// Connects, proves who it is, opens a session.
    ///
    /// # Errors
    /// [`ClientError`], each kind.
    pub fn connect(endpoint: &Endpoint) -> Result<Self, ClientError> {
        let deadline = Instant::now() + CONNECT_WITHIN;
        let wire = Wire::connect(endpoint, CONNECT_WITHIN)?;
        let mut name = [0; CONTAINER_BYTES];
        openssl::rand::rand_bytes(&mut name).map_err(|error| ClientError::Tls(error.to_string()))?;
        let container = format!("bulla-{}", base16ct::lower::encode_string(&name));
        let mut engine = wire::engine(endpoint, container, Box::new(Crypto), Instant::now());
        let session = engine.begin();
        let (input, events) = (BytesMut::new(), VecDeque::new());
        let unheard = Some(endpoint.address.clone());
        let mut client = Self { wire, engine, session, coordinator: None, input, events, unheard };
        client.wait_for(deadline, CONNECT_WITHIN, |event| matches!(event, Event::Opened(_)).then_some(()))?;
        Ok(client)
    }

    /// Opens a link to put on `address`; `sealed` says that this side seals for itself.
    ///
    /// # Errors
    /// The broker's refusal, with its reason.
    pub fn sender(&mut self, address: &str, sealed: bool) -> Result<Attached, ClientError> {
        self.attach(wire::to_put(address, SenderSettleMode::Mixed, sealed))
    }

    /// Opens a link to get from `address`, or to browse it.
    ///
    /// # Errors
    /// The broker's refusal, with its reason.
    pub fn receiver(&mut self, address: &str, browse: bool, sealed: bool) -> Result<Attached, ClientError> {
        self.attach(wire::to_get(address, browse, sealed))
    }

    /// Opens a link.
    ///
    /// # Errors
    /// The broker's refusal, with its reason.
    pub fn attach(&mut self, request: AttachRequest) -> Result<Attached, ClientError> {
        let link = self.engine.attach(self.session, request);
        let deadline = Instant::now() + CONNECT_WITHIN;
        // A refusal comes as an answer without terminus and then a detach with the error: `wait_for` turns that into
        // one.
        self.wait_for(deadline, CONNECT_WITHIN, |event| match event {
            Event::LinkOpened(opened) if opened.link == link => {
                let there = opened.source.is_some() && opened.target.is_some();
                there.then(|| Attached { link, properties: opened.properties.clone() })
            }
            _ => None,
        })
    }

    /// Opens a link that may be refused; the connection goes on then.
    ///
    /// # Errors
    /// The broker's refusal, with its reason.
    pub fn open(&mut self, request: AttachRequest) -> Result<Attached, ClientError> {
        let result = self.attach(request);
        self.events.retain(|event| !matches!(event, Event::LinkOpened(_) | Event::Detached { .. }));
        result
    }

    /// Ends a link, for good or to come back, and waits until the other side has done so.
    ///
    /// # Errors
    /// The broker ended the link with an error, or the connection.
    pub fn detach(&mut self, link: LinkId, closed: bool) -> Result<(), ClientError> {
        self.engine.detach(link, closed, None);
        let deadline = Instant::now() + CONNECT_WITHIN;
        self.wait_for(deadline, CONNECT_WITHIN, |event| {
            matches!(event, Event::Detached { link: ended, error: None, .. } if *ended == link).then_some(())
        })
    }

    /// Puts one message and waits for its outcome.
    ///
    /// # Errors
    /// The broker's refusal, with its reason.
    pub fn put(&mut self, link: LinkId, message: Payload, within: Duration) -> Result<(), ClientError> {
        accepted(self.send(link, message, None, within)?)
    }

    /// Puts one message in a unit of work: it is on its queue once the unit is committed. Waits until it is staged.
    ///
    /// # Errors
    /// The broker's refusal, with its reason; the unit goes on without the message.
    pub fn put_in(&mut self, unit: &Unit, link: LinkId, message: Payload, within: Duration) -> Result<(), ClientError> {
        accepted_in(self.send(link, message, Some(unit), within)?)
    }

    /// Puts messages in a unit of work without waiting for each: the answers are looked at when all are sent.
    ///
    /// # Errors
    /// The first refusal, with its reason; the unit goes on without that message.
    pub fn put_all_in(
        &mut self,
        unit: &Unit,
        link: LinkId,
        messages: impl IntoIterator<Item = Payload>,
        within: Duration,
    ) -> Result<(), ClientError> {
        let (deadline, mut answers) = (Instant::now() + within, 0);
        for message in messages {
            self.wait_until_it_takes(link, deadline, within)?;
            self.engine.send_in(link, 0, message, false, unit.0.clone());
            answers += 1;
        }
        let mut result = Ok(());
        for _ in 0..answers {
            let staged = self.outcome(link, deadline, within).and_then(accepted_in);
            result = result.and(staged);
        }
        result
    }

    /// Puts messages in a unit of work, commits it and begins the next, without waiting in between: everything goes out
    /// at once, and one answer is waited for. The messages are settled as they are sent, so that one that is refused
    /// has the whole unit backed out.
    ///
    /// # Errors
    /// The unit was backed out, and why (2003). Where the connection breaks, either may be so.
    pub fn commit_with(
        &mut self,
        unit: Unit,
        link: LinkId,
        messages: impl IntoIterator<Item = Payload>,
        within: Duration,
    ) -> Result<Unit, ClientError> {
        const DISCHARGE: u64 = 1;
        const DECLARE: u64 = 2;
        let (deadline, coordinator) = (Instant::now() + within, self.coordinator.ok_or(ClientError::Closed)?);
        for message in messages {
            self.wait_until_it_takes(link, deadline, within)?;
            self.engine.send_in(link, 0, message, true, unit.0.clone());
        }
        let discharge = Control::Discharge(Discharge { txn_id: unit.0, fail: false });
        let declare = Control::Declare(Declare { global_id: None });
        for (token, control) in [(DISCHARGE, discharge), (DECLARE, declare)] {
            self.wait_until_it_takes(coordinator, deadline, within)?;
            self.engine.send(coordinator, token, control.to_message(), false);
        }
        let mut answer = |wanted: u64| {
            self.wait_for(deadline, within, |event| match event {
                Event::Outcome { link, token, state, .. } if (*link, *token) == (coordinator, wanted) => {
                    Some(state.clone())
                }
                _ => None,
            })
        };
        let (committed, declared) = (answer(DISCHARGE)?, answer(DECLARE)?);
        let next = begun(declared)?;
        match accepted(committed) {
            Ok(()) => Ok(next),
            Err(error) => self.end(next, false, within).and(Err(error)),
        }
    }

    /// Whether the other side takes a message on a link, within this time: it gives no credit while the queue is full.
    ///
    /// # Errors
    /// The broker ended the link or the connection.
    pub fn takes_a_message(&mut self, link: LinkId, within: Duration) -> Result<bool, ClientError> {
        match self.wait_until_it_takes(link, Instant::now() + within, within) {
            Ok(()) => Ok(true),
            Err(ClientError::TimedOut(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for credit and room.
    fn wait_until_it_takes(&mut self, link: LinkId, deadline: Instant, within: Duration) -> Result<(), ClientError> {
        while !self.engine.can_send(link) {
            self.wait_for(deadline, within, |event| matches!(event, Event::Credit { .. }).then_some(()))?;
        }
        Ok(())
    }

    /// Begins a unit of work. One that is not ended by [`Client::end`] is backed out with the connection.
    ///
    /// # Errors
    /// The broker's refusal, with its reason: it has no transactions, or too many are open.
    pub fn begin(&mut self) -> Result<Unit, ClientError> {
        let link = match self.coordinator {
            Some(link) => link,
            None => {
                let wanted = Coordinator { capabilities: vec![LOCAL_TRANSACTIONS] };
                let link = self.attach(AttachRequest::coordinator("units-of-work", wanted))?.link;
                *self.coordinator.insert(link)
            }
        };
        let declare = Control::Declare(Declare { global_id: None });
        begun(self.send(link, declare.to_message(), None, CONNECT_WITHIN)?)
    }

    /// Ends a unit of work: everything in it happens, or nothing.
    ///
    /// # Errors
    /// The unit was backed out, and why (2003). Where the connection breaks, either may be so.
    pub fn end(&mut self, unit: Unit, commit: bool, within: Duration) -> Result<(), ClientError> {
        let link = self.coordinator.ok_or(ClientError::Closed)?;
        let discharge = Control::Discharge(Discharge { txn_id: unit.0, fail: !commit });
        accepted(self.send(link, discharge.to_message(), None, within)?)
    }

    /// Sends a message and waits for what is said of it.
    fn send(
        &mut self,
        link: LinkId,
        message: Payload,
        unit: Option<&Unit>,
        within: Duration,
    ) -> Result<Option<DeliveryState>, ClientError> {
        let deadline = Instant::now() + within;
        self.wait_until_it_takes(link, deadline, within)?;
        match unit {
            None => self.engine.send(link, 0, message, false),
            Some(unit) => self.engine.send_in(link, 0, message, false, unit.0.clone()),
        };
        self.outcome(link, deadline, within)
    }

    /// The next outcome on a link.
    fn outcome(
        &mut self,
        link: LinkId,
        deadline: Instant,
        within: Duration,
    ) -> Result<Option<DeliveryState>, ClientError> {
        self.wait_for(deadline, within, |event| match event {
            Event::Outcome { link: of, state, .. } if *of == link => Some(state.clone()),
            _ => None,
        })
    }

    /// Gets one message; none where the queue has none, after `within` at the latest.
    ///
    /// # Errors
    /// The broker ended the link or the connection.
    pub fn get(&mut self, link: LinkId, within: Option<Duration>) -> Result<Option<Delivery>, ClientError> {
        // The end of an earlier drain says nothing about this one.
        self.events.retain(|event| !matches!(event, Event::Flowed { link: of } if *of == link));
        self.engine.set_credit(link, 1);
        let Some(within) = within else {
            // Drain: what is there comes at once, or the broker says that nothing is.
            self.engine.drain(link);
            let deadline = Instant::now() + CONNECT_WITHIN;
            return self.wait_for(deadline, CONNECT_WITHIN, |event| match event {
                Event::Delivery(delivery) if delivery.link == link => Some(Some(delivery.clone())),
                Event::Flowed { link: of } if *of == link => Some(None),
                _ => None,
            });
        };
        let found = self.wait_for(Instant::now() + within, within, |event| match event {
            Event::Delivery(delivery) if delivery.link == link => Some(delivery.clone()),
            _ => None,
        });
        match found {
            Ok(delivery) => Ok(Some(delivery)),
            Err(ClientError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes what has come and sends what is due, for one that does something else for longer than a peer waits to hear
    /// of it.
    ///
    /// # Errors
    /// The connection broke.
    pub fn tend(&mut self) -> Result<(), ClientError> {
        const MOMENT: Duration = Duration::from_millis(1);
        self.flush()?;
        self.fill(Instant::now() + MOMENT, MOMENT)?;
        self.flush()
    }

    /// Says what became of a delivery.
    ///
    /// # Errors
    /// The connection broke.
    pub fn settle(&mut self, delivery: &Delivery, state: DeliveryState) -> Result<(), ClientError> {
        self.engine.dispose(delivery.link, delivery.id, state);
        self.flush()
    }

    /// Says what becomes of a delivery when the unit of work commits.
    ///
    /// # Errors
    /// The connection broke.
    pub fn settle_in(&mut self, unit: &Unit, delivery: &Delivery, state: DeliveryState) -> Result<(), ClientError> {
        let state = DeliveryState::Transactional { txn_id: unit.0.clone(), outcome: Some(Box::new(state)) };
        self.settle(delivery, state)
    }

    /// Ends the connection in order.
    ///
    /// # Errors
    /// It broke first.
    pub fn close(mut self) -> Result<(), ClientError> {
        self.engine.close(None);
        match self.wait_for(Instant::now() + CONNECT_WITHIN, CONNECT_WITHIN, |_| None::<()>) {
            Ok(()) | Err(ClientError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Feeds the engine until `wanted` finds its event. Events it does not want are kept for a later call, save those
    /// that end everything.
    fn wait_for<T>(
        &mut self,
        deadline: Instant,
        within: Duration,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, ClientError> {
        let mut seen = 0;
        loop {
            while let Some(event) = self.engine.poll_event() {
                self.events.push_back(event);
            }
            while seen < self.events.len() {
                if let Some(found) = wanted(&self.events[seen]) {
                    self.events.remove(seen);
                    return Ok(found);
                }
                match &self.events[seen] {
                    Event::Detached { error: Some(error), .. } | Event::Closed(Some(error)) => {
                        return Err(
                            if error.condition.as_str() == "amqp:unauthorized-access"
                                && error.info.is_empty()
                                && error.description.is_none()
                            {
                                ClientError::NotAuthenticated
                            } else {
                                ClientError::Refused(Box::new(error.clone()))
                            },
                        );
                    }
                    Event::Detached { error: None, .. } | Event::Closed(None) | Event::SessionEnded(..) => {
                        return Err(ClientError::Closed);
                    }
                    Event::Credit { .. } | Event::Settled { .. } | Event::SessionBegun(_) => {
                        self.events.remove(seen);
                    }
                    _ => seen += 1,
                }
            }
            self.flush()?;
            if self.engine.is_closed() {
                return Err(ClientError::Closed);
            }
            self.fill(deadline, within)?;
        }
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        Ok(self.wire.write(&mut self.engine)?)
    }

    /// What the end of the connection means: a TLS port ends one that begins in clear before it has said anything.
    fn ended(&mut self, clear: bool, error: ClientError) -> ClientError {
        match self.unheard.take().filter(|_| clear) {
            Some(address) => ClientError::NotInClear { address },
            None => error,
        }
    }

    /// Reads once, or looks after the timers.
    fn fill(&mut self, deadline: Instant, within: Duration) -> Result<(), ClientError> {
        let now = Instant::now();
        if now >= deadline {
            return Err(ClientError::TimedOut(within));
        }
        let until = self.engine.poll_timeout().map_or(deadline, |timer| timer.min(deadline));
        let wait = until.saturating_duration_since(now).max(Duration::from_millis(1));
        let old = self.input.len();
        let room = self.engine.wanted(&self.input).max(READ_BYTES);
        self.input.resize(old + room, 0);
        self.wire.tcp().set_read_timeout(Some(wait))?;
        let read = self.wire.read(&mut self.input[old..]);
        let clear = self.wire.is_clear();
        let read = match read {
            Ok(0) => Err(self.ended(clear, ClientError::Closed)),
            Ok(n) => {
                self.unheard = None;
                Ok(n)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(self.ended(clear, error.into())),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            Err(error) => Err(of_tls(&error).unwrap_or(ClientError::Io(error))),
        };
        let now = Instant::now();
        self.input.truncate(old + read.as_ref().copied().unwrap_or(0));
        self.engine.receive(now, &mut self.input);
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        read.map(drop)
    }
}

/// The unit that a declare came to.
fn begun(state: Option<DeliveryState>) -> Result<Unit, ClientError> {
    match state {
        Some(DeliveryState::Declared { txn_id }) => Ok(Unit(txn_id)),
        other => Err(accepted(other).err().unwrap_or(ClientError::Closed)),
    }
}

/// Whether a message is part of its unit of work.
fn accepted_in(state: Option<DeliveryState>) -> Result<(), ClientError> {
    match state {
        Some(DeliveryState::Transactional { outcome, .. }) => accepted(outcome.map(|outcome| *outcome)),
        other => accepted(other),
    }
}

fn accepted(outcome: Option<DeliveryState>) -> Result<(), ClientError> {
    match outcome {
        None | Some(DeliveryState::Accepted) => Ok(()),
        Some(DeliveryState::Rejected(Some(error))) => Err(ClientError::Refused(error)),
        Some(other) => Err(ClientError::Io(io::Error::other(format!("not accepted: {other:?}")))),
    }
}
