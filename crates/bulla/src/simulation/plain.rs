//! A client that does what it is told, over a connection that takes no time.

use super::node::Node;
use super::protection::sign_in;
use crate::clock::Clock;
use crate::turn::pipe::{Pipe, PipeEnd};
use crate::turn::socket::Moved;
use crate::whole::harness::{message, number};
use bulla_amqp::transaction::{Control, LOCAL_TRANSACTIONS};
use bulla_amqp::{
    AttachRequest, Config, Connection, Coordinator, DeliveryId, DeliveryState, Error, Event, LinkId, SessionId,
};
use bulla_client::Crypto;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::io::IoSlice;
use std::time::Duration;

/// How long a step takes.
const STEP: Duration = Duration::from_millis(1);
/// Messages that a link gets without answering.
pub(super) const CREDIT: u32 = 8;
/// No answer takes more steps.
const STEPS_MAX: u64 = 20_000;

pub(super) struct Plain {
    end: PipeEnd,
    pipe: Pipe,
    pub(super) engine: Connection,
    session: SessionId,
    /// What came, by link.
    got: HashMap<LinkId, Vec<u64>>,
    /// Of links whose messages are not accepted at once: what is still to be settled.
    held: HashMap<LinkId, Vec<DeliveryId>>,
    /// Messages that were accepted.
    pub(super) answered: u64,
    /// The last answer to each token.
    answers: HashMap<u64, DeliveryState>,
    /// Links that the queue manager may end, and why it did.
    may_end: HashMap<LinkId, Option<Error>>,
    token: u64,
}

impl Plain {
    pub(super) fn connect(node: &mut Node, clock: &Clock) -> Self {
        let (pipe, end, accepts) = Pipe::connect(1);
        node.running().unwrap().dispatcher.accept_pipe(accepts);
        let mut engine = Connection::client(Config::new("plain"), sign_in(), Box::new(Crypto), clock.now());
        let session = engine.begin();
        let (got, held, answers, may_end) = Default::default();
        Self { end, pipe, engine, session, got, held, answered: 0, answers, may_end, token: 0 }
    }

    pub(super) fn attach(&mut self, request: AttachRequest, credit: u32) -> LinkId {
        let link = self.engine.attach(self.session, request);
        if credit > 0 {
            self.engine.set_credit(link, credit);
        }
        link
    }

    /// A link whose messages wait for [`Plain::accept`].
    pub(super) fn attach_to_hold(&mut self, request: AttachRequest, credit: u32) -> LinkId {
        let link = self.attach(request, credit);
        self.held.insert(link, Vec::new());
        link
    }

    /// The queue manager may end this link.
    pub(super) fn may_end(&mut self, link: LinkId) -> LinkId {
        self.may_end.insert(link, None);
        link
    }

    /// Why the queue manager ended a link that it may end.
    pub(super) fn ended(&self, link: LinkId) -> Option<&Error> {
        self.may_end.get(&link)?.as_ref()
    }

    /// The last answer to a token.
    pub(super) fn state(&self, token: u64) -> Option<&DeliveryState> {
        self.answers.get(&token)
    }

    /// Whether a token has an answer.
    pub(super) fn is_answered(&self, token: u64) -> bool {
        self.answers.contains_key(&token)
    }

    /// A link to declare and discharge units of work on.
    pub(super) fn attach_coordinator(&mut self) -> LinkId {
        self.attach(AttachRequest::coordinator("units", Coordinator { capabilities: vec![LOCAL_TRANSACTIONS] }), 0)
    }

    pub(super) fn put(&mut self, link: LinkId, number: u64, persistent: bool) -> u64 {
        self.token += 1;
        assert!(self.engine.can_send(link));
        self.engine.send(link, self.token, message(number, 4, persistent), false);
        self.token
    }

    pub(super) fn put_in(&mut self, link: LinkId, number: u64, txn_id: &Bytes) -> u64 {
        self.token += 1;
        self.engine.send_in(link, self.token, message(number, 4, true), false, txn_id.clone());
        self.token
    }

    pub(super) fn control(&mut self, coordinator: LinkId, control: &Control) -> u64 {
        self.token += 1;
        assert!(self.engine.send(coordinator, self.token, control.to_message(), false));
        self.token
    }

    /// Accepts what is held of a link, in a unit of work where one is named.
    pub(super) fn accept(&mut self, link: LinkId, txn_id: Option<&Bytes>) {
        let state = match txn_id {
            None => DeliveryState::Accepted,
            Some(txn_id) => {
                let outcome = Some(Box::new(DeliveryState::Accepted));
                DeliveryState::Transactional { txn_id: txn_id.clone(), outcome }
            }
        };
        for id in self.held.get_mut(&link).map(std::mem::take).unwrap_or_default() {
            self.engine.dispose(link, id, state.clone());
        }
    }

    /// Steps until a token is answered.
    pub(super) fn answer(&mut self, node: &mut Node, clock: &Clock, token: u64) -> DeliveryState {
        self.until(node, clock, |client| client.answers.contains_key(&token));
        self.answers.remove(&token).unwrap()
    }

    /// Steps until something holds.
    pub(super) fn until(&mut self, node: &mut Node, clock: &Clock, holds: impl Fn(&Self) -> bool) {
        let mut steps = 0;
        while !holds(self) {
            assert!(steps < STEPS_MAX, "it does not come true");
            step(node, self, clock);
            steps += 1;
        }
    }

    fn exchange(&mut self, clock: &Clock) {
        let waiting = self.pipe.waiting();
        (0..2).for_each(|way| self.pipe.carry(way, waiting[way]));
        let mut room = [0; 16 << 10];
        while let Ok(Moved::Bytes(n)) = self.end.read(&mut room) {
            self.engine.receive_copied(clock.now(), &BytesMut::from(&room[..n]).split());
        }
        if self.engine.poll_timeout().is_some_and(|at| at <= clock.now()) {
            self.engine.handle_timeout(clock.now());
        }
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Delivery(delivery) => {
                    self.got.entry(delivery.link).or_default().push(number(&delivery.payload));
                    match self.held.get_mut(&delivery.link) {
                        Some(held) => held.push(delivery.id),
                        None => {
                            self.engine.dispose(delivery.link, delivery.id, DeliveryState::Accepted);
                            self.engine.set_credit(delivery.link, CREDIT);
                        }
                    }
                }
                Event::Outcome { token, state: Some(state), .. } => {
                    self.answered += u64::from(state == DeliveryState::Accepted);
                    self.answers.insert(token, state);
                }
                Event::Detached { link, error, .. } => match self.may_end.get_mut(&link) {
                    Some(ended) => *ended = error,
                    None => panic!("a link ended: {error:?}"),
                },
                Event::Closed(error) => panic!("the connection ended: {error:?}"),
                _ => {}
            }
        }
        while self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            let Ok(Moved::Bytes(n)) = self.end.write(&slices) else { return };
            drop(slices);
            self.engine.output_written(n);
        }
    }

    pub(super) fn got(&self, link: LinkId) -> &[u64] {
        self.got.get(&link).map_or(&[], Vec::as_slice)
    }
}

/// One step: a turn, which takes no time, and a millisecond.
pub(super) fn step(node: &mut Node, client: &mut Plain, clock: &Clock) {
    client.exchange(clock);
    let before = clock.now();
    node.turn().unwrap();
    assert_eq!(clock.now(), before, "a turn waits for the log");
    client.exchange(clock);
    clock.advance(STEP);
}
