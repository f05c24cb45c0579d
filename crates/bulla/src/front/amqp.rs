//! AMQP 1.0 as a front end: `bulla-amqp`'s engine behind the core's traits.

pub(crate) mod clients;
mod forwarding;
pub(crate) mod links;
pub(crate) mod outcomes;

use super::client::{SolePolicy, TokenRefused};
use super::forwards::Forwards;
use super::link::Granted;
use super::outcome::{Failure, MessageOutcome};
use super::{Delivery, DeliveryId, Event, FrontEnd, KeptOutcome, LinkId, LinkOpened, SessionId, UnitAsked, UnitId};
use super::{UnitStep, WayOut, Wire};
use crate::maps::HashMap;
use crate::outgoing::Outgoing;
use bulla_amqp::{
    AttachRequest, Connection, DeliveryState, Event as EngineEvent, IncomingAttach, Payload, Symbol, Value,
};
use bytes::Bytes;
use forwarding::{EndAsked, Forwarding, Units};
use links::Asked;
use std::io::IoSlice;
use std::time::Instant;

/// One AMQP connection.
pub(crate) struct Amqp {
    engine: Connection,
    /// Attaches that the core has not answered yet.
    asked: HashMap<LinkId, Asked>,
    /// Links for units of work, with their sessions: few, and most connections have none.
    coordinators: Vec<(LinkId, SessionId)>,
    /// OAUTHBEARER: why the token is refused has been said; the client's answer ends it.
    token_is_refused: bool,
    /// The client's container.
    container: String,
    /// Links that hear which messages were put before: few, and most connections have none.
    put_before: Vec<PutBefore>,
    /// Units of work that are open.
    units: Units,
    /// Links to queues of shared groups that other queue managers own. None for most connections.
    forwarding: Option<Box<Forwarding>>,
}

/// A link that hears which messages were put before.
struct PutBefore {
    link: LinkId,
    session: SessionId,
    /// Those that are not answered yet, each with the message-id of the first one.
    messages: Vec<(DeliveryId, Option<String>)>,
}

impl Amqp {
    /// The front end of that engine.
    pub(crate) fn new(engine: Connection) -> Self {
        Self {
            engine,
            asked: HashMap::default(),
            coordinators: Vec::new(),
            token_is_refused: false,
            container: String::new(),
            put_before: Vec::new(),
            units: Units::default(),
            forwarding: None,
        }
    }
}

/// The core's handle of a link.
fn core_link(id: bulla_amqp::LinkId) -> LinkId {
    LinkId(id.to_bits())
}

/// The core's handle of a session.
fn core_session(id: bulla_amqp::SessionId) -> SessionId {
    SessionId(id.to_bits())
}

/// The core's handle of a delivery.
fn core_delivery(id: bulla_amqp::DeliveryId) -> DeliveryId {
    DeliveryId(id.to_bits().into())
}

fn link(id: LinkId) -> bulla_amqp::LinkId {
    bulla_amqp::LinkId::from_bits(id.0)
}

/// The engine's handle of a delivery. It gave the core 32 bits, and gets them back.
fn delivery(id: DeliveryId) -> bulla_amqp::DeliveryId {
    bulla_amqp::DeliveryId::from_bits(id.0 as u32)
}

/// Whether a link is one of the coordinator's. A compare where the connection has none.
#[inline]
fn is_among(coordinators: &[(LinkId, SessionId)], link: LinkId) -> bool {
    !coordinators.is_empty() && coordinators.iter().any(|(other, _)| *other == link)
}

/// The unit of work that a message is part of.
#[inline]
fn unit_of(state: &DeliveryState) -> Option<UnitId> {
    match state {
        DeliveryState::Transactional { txn_id, .. } => Some(outcomes::unit(txn_id)),
        _ => None,
    }
}

/// Hot path: a delivery or an outcome, made of what is taken out of the engine's event. None for the other events.
fn frequent(event: &mut EngineEvent, coordinators: &[(LinkId, SessionId)]) -> Option<Event> {
    match event {
        EngineEvent::Delivery(delivery) if is_among(coordinators, core_link(delivery.link)) => {
            Some(links::unit_asked(delivery))
        }
        EngineEvent::Delivery(delivery) => {
            let bulla_amqp::Delivery { link, id, tag, settled, beyond_credit, state, payload, .. } = delivery;
            Some(Event::Delivery(Delivery {
                link: core_link(*link),
                id: core_delivery(*id),
                tag: tag.take(),
                settled: *settled,
                beyond_credit: *beyond_credit,
                unit: state.as_ref().and_then(unit_of),
                payload: std::mem::take(payload),
            }))
        }
        EngineEvent::Outcome { link, token, state, settled } => {
            let (outcome, unit) = outcomes::outcome(state.take());
            Some(Event::Outcome { link: core_link(*link), token: *token, outcome, unit, settled: *settled })
        }
        _ => None,
    }
}

/// The core's event. None where it has nothing to do.
fn event(event: EngineEvent) -> Option<Event> {
    Some(match event {
        EngineEvent::Credit { link, drain, .. } => Event::Credit { link: core_link(link), drain },
        EngineEvent::Acquires { link, txn_id } => {
            let unit = txn_id.map(|txn_id| outcomes::unit(&txn_id));
            Event::Acquires { link: core_link(link), unit }
        }
        EngineEvent::LinkOpened(opened) => {
            let bulla_amqp::LinkOpened { link, target, properties, max_message_size, .. } = *opened;
            Event::LinkOpened(Box::new(LinkOpened { link: core_link(link), target, properties, max_message_size }))
        }
        EngineEvent::Detached { link, closed, error } => {
            Event::Detached { link: core_link(link), closed, why: error.map(outcomes::said) }
        }
        EngineEvent::SessionEnded(session, error) => {
            Event::SessionEnded(core_session(session), error.map(outcomes::said))
        }
        EngineEvent::SaslInit { mechanism, response, .. } => Event::SignIn(clients::proof(mechanism, &response)),
        EngineEvent::SaslResponse(response) => Event::SignInGoesOn(response.0),
        EngineEvent::Opened(open) => Event::Opened(Box::new(clients::introduction(&open))),
        EngineEvent::Closed(error) => Event::Closed(error.map(outcomes::said)),
        _ => return None,
    })
}

impl Amqp {
    /// A client wants a link.
    fn attached(&mut self, wanted: IncomingAttach) -> Event {
        let (attach, asked) = links::asked(wanted);
        self.asked.insert(attach.link, asked);
        Event::Attached(Box::new(attach))
    }

    /// An event that is neither an attach nor [`frequent`]. None where the core has nothing to do.
    fn seldom(&mut self, found: EngineEvent) -> Option<Event> {
        match &found {
            EngineEvent::SaslResponse(_) if self.token_is_refused => {
                self.engine.sasl_outcome(false);
                return None;
            }
            EngineEvent::Opened(open) => self.container.clone_from(&open.container_id),
            EngineEvent::Detached { link, .. } => {
                self.asked.remove(&core_link(*link));
                self.put_before.retain(|one| one.link != core_link(*link));
                self.end_coordinators(|(other, _)| *other == core_link(*link));
                if let Some(forwarding) = &mut self.forwarding {
                    forwarding.relay_gone(core_link(*link));
                }
            }
            EngineEvent::SessionEnded(session, _) => {
                self.asked.retain(|_, asked| asked.session != *session);
                self.put_before.retain(|one| one.session != core_session(*session));
                self.end_coordinators(|(_, other)| *other == core_session(*session));
                if let Some(forwarding) = &mut self.forwarding {
                    forwarding.session_gone(core_session(*session));
                }
            }
            _ => {}
        }
        event(found)
    }

    /// Links for units of work are gone.
    fn end_coordinators(&mut self, is_gone: impl Fn(&(LinkId, SessionId)) -> bool) {
        let gone: Vec<LinkId> = self.coordinators.iter().filter(|one| is_gone(one)).map(|(link, _)| *link).collect();
        self.coordinators.retain(|one| !is_gone(one));
        for link in gone {
            match &mut self.forwarding {
                Some(forwarding) => forwarding.coordinator_gone(&mut self.engine, &mut self.units, link),
                None => drop(self.units.of_link(link)),
            }
        }
    }

    /// A client has said too late what becomes of a message in a unit of work.
    fn outcome_lost(&mut self, unit: UnitId) -> Event {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.outcome_lost(unit);
        }
        // The core backs the unit out; a part of it may be at the owner, or here.
        self.units.uses(unit);
        Event::OutcomeLost { unit }
    }

    /// A client ends a unit of work. None where that is the business of the owner of its messages' queues first.
    fn unit_asked(&mut self, asked: Box<UnitAsked>) -> Option<Event> {
        let (unit, commits) = match &asked.step {
            Ok(UnitStep::Commit(unit)) => (*unit, true),
            Ok(UnitStep::BackOut(unit)) => (*unit, false),
            _ => return Some(Event::Unit(asked)),
        };
        let is_used = self.units.ends(unit);
        if let Some(forwarding) = self.forwarding.as_mut().filter(|forwarding| is_used && forwarding.has_unit(unit)) {
            forwarding.fail_mixed(unit);
        }
        let UnitAsked { link, id, settled, beyond_credit, .. } = *asked;
        let ends = EndAsked { unit, link, id, settled, beyond_credit };
        let is_taken = |forwarding: &mut Box<Forwarding>| forwarding.end_unit(&mut self.engine, ends, commits);
        match self.forwarding.as_mut().is_some_and(is_taken) {
            true => None,
            false => Some(Event::Unit(asked)),
        }
    }
}

impl FrontEnd for Amqp {
    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(forwarding) = &mut self.forwarding {
                if let Some(event) = forwarding.poll_event() {
                    return Some(event);
                }
                if forwarding.is_its(self.engine.peek_event()?) {
                    let event = self.engine.poll_event()?;
                    forwarding.take(&mut self.engine, &mut self.units, event);
                    continue;
                }
            }
            if let Some(event) = frequent(self.engine.peek_event()?, &self.coordinators) {
                self.engine.drop_event();
                match event {
                    Event::Unit(asked) => match self.unit_asked(asked) {
                        Some(event) => return Some(event),
                        None => continue,
                    },
                    Event::Delivery(Delivery { unit: Some(unit), .. }) | Event::Outcome { unit: Some(unit), .. } => {
                        self.units.uses(unit);
                    }
                    _ => {}
                }
                return Some(event);
            }
            let event = match self.engine.poll_event()? {
                EngineEvent::Attached(wanted) => Some(self.attached(*wanted)),
                EngineEvent::OutcomeLost { txn_id } => Some(self.outcome_lost(outcomes::unit(&txn_id))),
                other => self.seldom(other),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn has_events(&self) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| forwarding.has_events())
    }

    fn challenge(&mut self, challenge: Bytes) {
        self.engine.sasl_challenge(challenge);
    }

    fn signed_in(&mut self, ok: bool) {
        self.engine.sasl_outcome(ok);
    }

    fn token_refused(&mut self, why: TokenRefused) {
        self.token_is_refused = true;
        self.engine.sasl_challenge(clients::token_refused(why));
    }

    fn sign_in_busy(&mut self) {
        self.engine.sasl_busy();
    }

    fn accept_open(&mut self, sole: Option<SolePolicy>) {
        let (capabilities, properties) = sole.map(clients::is_sole).unwrap_or_default();
        self.engine.accept_open(capabilities, properties);
    }

    fn refuse_open(&mut self, why: Failure) {
        self.engine.refuse_open(clients::refused(), Some(outcomes::error(why)));
    }

    fn close(&mut self, why: Option<Failure>) {
        self.engine.close(why.map(outcomes::error));
    }

    fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    fn is_ending(&self) -> bool {
        self.engine.is_ending()
    }

    fn accept_link(&mut self, id: LinkId, granted: Granted) {
        if let Some(asked) = self.asked.remove(&id) {
            if asked.is_for_units() {
                self.coordinators.push((id, core_session(asked.session)));
            } else if asked.asks_for_put_before {
                let session = core_session(asked.session);
                self.put_before.push(PutBefore { link: id, session, messages: Vec::new() });
            }
            self.engine.accept_link(link(id), asked.granted(granted));
        }
    }

    fn refuse_link(&mut self, id: LinkId, why: Failure) {
        self.asked.remove(&id);
        self.engine.refuse_link(link(id), outcomes::error(why));
    }

    fn detach(&mut self, id: LinkId, why: Failure) {
        self.engine.detach(link(id), true, Some(outcomes::error(why)));
    }

    fn resumes_only(&self, id: LinkId) -> bool {
        self.engine.resumes_only(link(id))
    }

    fn take_outcomes(&mut self, id: LinkId) -> Vec<KeptOutcome> {
        let kept = self.engine.take_outcomes(link(id)).into_iter();
        kept.filter_map(|kept| match outcomes::outcome(kept.state) {
            // The unit of work ends with its connection.
            (_, Some(_)) => None,
            (outcome, None) => Some(KeptOutcome { tag: kept.tag, id: kept.id.map(core_delivery), outcome }),
        })
        .collect()
    }

    fn credit(&self, id: LinkId) -> u32 {
        self.engine.credit(link(id))
    }

    fn set_credit(&mut self, id: LinkId, credit: u32) {
        self.engine.set_credit(link(id), credit);
    }

    fn put_before(&mut self, id: LinkId, message: DeliveryId, message_id: Option<&str>) {
        if let Some(PutBefore { messages, .. }) = self.put_before.iter_mut().find(|one| one.link == id) {
            messages.push((message, message_id.map(str::to_owned)));
        }
    }

    fn answer(&mut self, id: LinkId, message: DeliveryId, outcome: MessageOutcome, unit: Option<UnitId>) {
        let mut verdict = self.forwarding.as_mut().and_then(|forwarding| forwarding.verdict(id, message));
        if let Some(PutBefore { messages, .. }) = self.put_before.iter_mut().find(|one| one.link == id)
            && let Some(place) = messages.iter().position(|(other, _)| *other == message)
        {
            let (_, message_id) = messages.swap_remove(place);
            if outcome == MessageOutcome::Accepted {
                verdict = Some(DeliveryState::Rejected(Some(Box::new(links::put_before(message_id)))));
            }
        }
        let state = verdict.unwrap_or_else(|| outcomes::state(outcome, unit));
        self.engine.dispose(link(id), delivery(message), state);
    }

    fn declared(&mut self, id: LinkId, message: DeliveryId, unit: UnitId) {
        self.units.begun(unit, id);
        let state = DeliveryState::Declared { txn_id: outcomes::txn_id(unit) };
        self.engine.dispose(link(id), delivery(message), state);
    }

    fn can_send(&self, id: LinkId) -> bool {
        self.engine.can_send(link(id))
    }

    fn is_sending(&self, id: LinkId) -> bool {
        self.engine.is_sending(link(id))
    }

    fn send(&mut self, id: LinkId, token: u64, message: Outgoing, settled: bool, unit: Option<UnitId>) -> bool {
        match unit.map(outcomes::txn_id) {
            None => self.engine.send(link(id), token, message.into_payload(), settled),
            Some(txn_id) => self.engine.send_in(link(id), token, message.into_payload(), settled, txn_id),
        }
    }

    fn settle(&mut self, id: LinkId, token: u64, outcome: MessageOutcome) {
        self.engine.settle(link(id), token, outcomes::state(outcome, None));
    }

    fn drained(&mut self, id: LinkId) {
        self.engine.drained(link(id));
    }

    fn forwards(&mut self) -> Option<&mut dyn Forwards> {
        Some(self)
    }

    fn way_out(&mut self) -> Option<&mut dyn WayOut> {
        Some(self)
    }
}

impl WayOut for Amqp {
    fn begin(&mut self) -> SessionId {
        core_session(self.engine.begin())
    }

    fn attach(&mut self, session: SessionId, request: AttachRequest) -> LinkId {
        core_link(self.engine.attach(bulla_amqp::SessionId::from_bits(session.0), request))
    }

    fn accept_channel(&mut self, id: LinkId, properties: Vec<(Symbol, Value)>, message_bytes_max: u64) {
        if let Some(asked) = self.asked.remove(&id) {
            self.engine.accept_link(link(id), asked.granted_to_channel(properties, message_bytes_max));
        }
    }

    fn forward(&mut self, id: LinkId, number: u64, message: Payload, settled: bool) -> bool {
        self.engine.send(link(id), number, message, settled)
    }
}

impl Wire for Amqp {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.engine.receive_copied(now, bytes);
    }

    fn wants_input(&self) -> bool {
        self.engine.wants_input() && self.forwarding.as_ref().is_none_or(|forwarding| forwarding.has_room())
    }

    fn in_progress(&self) -> u64 {
        self.engine.in_progress()
    }

    fn arrived(&self) -> u64 {
        self.engine.arrived()
    }

    fn not_read(&mut self, now: Instant) {
        self.engine.not_read(now);
    }

    fn output_len(&self) -> usize {
        self.engine.output_len()
    }

    fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.engine.output_slices(slices);
    }

    fn output_written(&mut self, count: usize) {
        self.engine.output_written(count);
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.written(&mut self.engine);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }
}
