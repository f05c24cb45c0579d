//! AMQP 1.0 as a front end: `bulla-amqp`'s engine behind the core's traits.

use super::{Attach, Delivery, DeliveryId, Event, FrontEnd, KeptOutcome, LinkId, LinkOpened, SessionId, WayOut, Wire};
use crate::outgoing::Outgoing;
use bulla_amqp::{
    AttachReply, AttachRequest, Connection, DeliveryState, Error, Event as EngineEvent, IncomingAttach, Payload,
    Symbol, Value,
};
use bytes::Bytes;
use std::io::IoSlice;
use std::time::Instant;

/// One AMQP connection.
pub(crate) struct Amqp(Connection);

impl Amqp {
    /// The front end of that engine.
    pub(crate) fn new(engine: Connection) -> Self {
        Self(engine)
    }
}

impl From<bulla_amqp::LinkId> for LinkId {
    fn from(id: bulla_amqp::LinkId) -> Self {
        Self(id.to_bits())
    }
}

impl From<bulla_amqp::SessionId> for SessionId {
    fn from(id: bulla_amqp::SessionId) -> Self {
        Self(id.to_bits())
    }
}

impl From<bulla_amqp::DeliveryId> for DeliveryId {
    fn from(id: bulla_amqp::DeliveryId) -> Self {
        Self(id.to_bits().into())
    }
}

fn link(id: LinkId) -> bulla_amqp::LinkId {
    bulla_amqp::LinkId::from_bits(id.0)
}

/// The engine's handle of a delivery. It gave the core 32 bits, and gets them back.
fn delivery(id: DeliveryId) -> bulla_amqp::DeliveryId {
    bulla_amqp::DeliveryId::from_bits(id.0 as u32)
}

/// Hot path: a delivery or an outcome, made of what is taken out of the engine's event. None for the other events.
fn frequent(event: &mut EngineEvent) -> Option<Event> {
    match event {
        EngineEvent::Delivery(delivery) => {
            let bulla_amqp::Delivery { link, id, tag, settled, beyond_credit, state, payload, .. } = delivery;
            Some(Event::Delivery(Delivery {
                link: (*link).into(),
                id: (*id).into(),
                tag: tag.take(),
                settled: *settled,
                beyond_credit: *beyond_credit,
                state: state.take(),
                payload: std::mem::take(payload),
            }))
        }
        EngineEvent::Outcome { link, token, state, settled } => {
            Some(Event::Outcome { link: (*link).into(), token: *token, state: state.take(), settled: *settled })
        }
        _ => None,
    }
}

/// An event that is not [`frequent`]. None where the core has nothing to do.
fn event(event: EngineEvent) -> Option<Event> {
    Some(match event {
        EngineEvent::Credit { link, drain, .. } => Event::Credit { link: link.into(), drain },
        EngineEvent::Acquires { link, txn_id } => Event::Acquires { link: link.into(), txn_id },
        EngineEvent::OutcomeLost { txn_id } => Event::OutcomeLost { txn_id },
        EngineEvent::Attached(wanted) => Event::Attached(Box::new(attach(*wanted))),
        EngineEvent::LinkOpened(opened) => {
            let bulla_amqp::LinkOpened { link, target, properties, max_message_size, .. } = *opened;
            Event::LinkOpened(Box::new(LinkOpened { link: link.into(), target, properties, max_message_size }))
        }
        EngineEvent::Detached { link, closed, error } => Event::Detached { link: link.into(), closed, error },
        EngineEvent::SessionEnded(session, error) => Event::SessionEnded(session.into(), error),
        EngineEvent::SaslInit { mechanism, response, .. } => Event::SignIn { mechanism, response },
        EngineEvent::SaslResponse(response) => Event::SignInGoesOn(response),
        EngineEvent::Opened(open) => Event::Opened(open),
        EngineEvent::Closed(error) => Event::Closed(error),
        _ => return None,
    })
}

fn attach(wanted: IncomingAttach) -> Attach {
    let IncomingAttach {
        link,
        session,
        name,
        role,
        source,
        target,
        snd_settle_mode,
        properties,
        desired_capabilities,
        unsettled,
        ..
    } = wanted;
    Attach {
        link: link.into(),
        session: session.into(),
        name,
        role,
        source,
        target,
        snd_settle_mode,
        properties,
        desired_capabilities,
        unsettled,
        incomplete_unsettled: wanted.incomplete_unsettled,
    }
}

impl FrontEnd for Amqp {
    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = frequent(self.0.peek_event()?) {
                self.0.drop_event();
                return Some(event);
            }
            if let Some(event) = event(self.0.poll_event()?) {
                return Some(event);
            }
        }
    }

    fn challenge(&mut self, challenge: Bytes) {
        self.0.sasl_challenge(challenge);
    }

    fn signed_in(&mut self, ok: bool) {
        self.0.sasl_outcome(ok);
    }

    fn sign_in_busy(&mut self) {
        self.0.sasl_busy();
    }

    fn accept_open(&mut self, capabilities: Vec<Symbol>, properties: Vec<(Symbol, Value)>) {
        self.0.accept_open(capabilities, properties);
    }

    fn refuse_open(&mut self, properties: Vec<(Symbol, Value)>, error: Option<Error>) {
        self.0.refuse_open(properties, error);
    }

    fn close(&mut self, error: Option<Error>) {
        self.0.close(error);
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn is_ending(&self) -> bool {
        self.0.is_ending()
    }

    fn accept_link(&mut self, id: LinkId, reply: AttachReply) {
        self.0.accept_link(link(id), reply);
    }

    fn refuse_link(&mut self, id: LinkId, error: Error) {
        self.0.refuse_link(link(id), error);
    }

    fn detach(&mut self, id: LinkId, error: Error) {
        self.0.detach(link(id), true, Some(error));
    }

    fn resumes_only(&self, id: LinkId) -> bool {
        self.0.resumes_only(link(id))
    }

    fn take_outcomes(&mut self, id: LinkId) -> Vec<KeptOutcome> {
        let kept = self.0.take_outcomes(link(id)).into_iter();
        kept.map(|kept| KeptOutcome { tag: kept.tag, id: kept.id.map(DeliveryId::from), state: kept.state }).collect()
    }

    fn credit(&self, id: LinkId) -> u32 {
        self.0.credit(link(id))
    }

    fn set_credit(&mut self, id: LinkId, credit: u32) {
        self.0.set_credit(link(id), credit);
    }

    fn answer(&mut self, id: LinkId, message: DeliveryId, state: DeliveryState) {
        self.0.dispose(link(id), delivery(message), state);
    }

    fn can_send(&self, id: LinkId) -> bool {
        self.0.can_send(link(id))
    }

    fn is_sending(&self, id: LinkId) -> bool {
        self.0.is_sending(link(id))
    }

    fn send(&mut self, id: LinkId, token: u64, message: Outgoing, settled: bool, txn_id: Option<Bytes>) -> bool {
        match txn_id {
            None => self.0.send(link(id), token, message.into_payload(), settled),
            Some(txn_id) => self.0.send_in(link(id), token, message.into_payload(), settled, txn_id),
        }
    }

    fn settle(&mut self, id: LinkId, token: u64, state: DeliveryState) {
        self.0.settle(link(id), token, state);
    }

    fn drained(&mut self, id: LinkId) {
        self.0.drained(link(id));
    }

    fn way_out(&mut self) -> Option<&mut dyn WayOut> {
        Some(self)
    }
}

impl WayOut for Amqp {
    fn begin(&mut self) -> SessionId {
        self.0.begin().into()
    }

    fn attach(&mut self, session: SessionId, request: AttachRequest) -> LinkId {
        self.0.attach(bulla_amqp::SessionId::from_bits(session.0), request).into()
    }

    fn forward(&mut self, id: LinkId, number: u64, message: Payload, settled: bool) -> bool {
        self.0.send(link(id), number, message, settled)
    }
}

impl Wire for Amqp {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.0.receive_copied(now, bytes);
    }

    fn wants_input(&self) -> bool {
        self.0.wants_input()
    }

    fn in_progress(&self) -> u64 {
        self.0.in_progress()
    }

    fn arrived(&self) -> u64 {
        self.0.arrived()
    }

    fn not_read(&mut self, now: Instant) {
        self.0.not_read(now);
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.0.output_slices(slices);
    }

    fn output_written(&mut self, count: usize) {
        self.0.output_written(count);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.handle_timeout(now);
    }
}
