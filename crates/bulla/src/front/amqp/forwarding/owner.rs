//! A connection to the owner of a group, and the links that go on there.

use super::super::{core_link, core_session, link};
use super::Answers;
use super::units::{Asked, Become, Unit, Units, Waiting, backed_out, outcome_lost, within};
use crate::front::forwards::OwnerCall;
use crate::front::owner::{MESSAGE_BYTES_MAX, OwnerConnection, WAITING_BYTES_MAX};
use crate::front::{Delivery, LinkId, SessionId, UnitId, Wire};
use crate::maps::HashMap;
use crate::sign_in::tickets::Ticket;
use bulla_amqp::types::{AnyTarget, Target};
use bulla_amqp::{
    AttachReply, AttachRequest, Connection, DeliveryId, DeliveryState, Error, Event, IncomingAttach,
    LinkId as EngineLink, LinkOpened, Payload, Role, SessionId as EngineSession, Symbol, condition,
};
use std::collections::VecDeque;
use std::time::Instant;

/// Longest part of a link's name that the owner hears, in bytes: a number follows.
const NAME_BYTES_MAX: usize = 1_000;
/// When a link's end goes: with its attachment.
const LINK_DETACH: &str = "link-detach";

/// A connection to an owner.
pub(super) struct Owner {
    call: OwnerCall,
    is_called: bool,
    container: String,
    engine: Option<OwnerConnection>,
    is_lost: bool,
    /// Links that wait for the connection.
    asked: Vec<IncomingAttach>,
    /// By the client's handle.
    links: HashMap<LinkId, Link>,
    /// The client's handles by the owner's.
    clients: HashMap<EngineLink, LinkId>,
    sessions: HashMap<SessionId, EngineSession>,
    units: Units,
    /// Links so far.
    attached: u64,
    /// Bytes of messages for the client that wait here.
    held_bytes: usize,
    /// Bytes of its messages that wait here.
    put_bytes: usize,
}

/// A link that is forwarded.
struct Link {
    session: SessionId,
    /// Its counterpart at the owner, once that was asked for.
    at_owner: Option<EngineLink>,
    /// Both ends are open.
    is_up: bool,
    /// The client puts on it.
    puts: bool,
    /// It is the core's link for any queue: some of its messages go on, and its credit is the core's.
    is_relay: bool,
    /// Messages that the other side has no credit for.
    held: VecDeque<Held>,
}

enum Held {
    /// Of the client.
    Put { id: DeliveryId, payload: Payload, settled: bool, unit: Option<UnitId> },
    /// For it.
    Got { token: u64, payload: Payload, settled: bool },
}

impl Owner {
    pub(super) fn new(call: OwnerCall, container: &str) -> Self {
        Self {
            call,
            is_called: false,
            container: container.to_owned(),
            engine: None,
            is_lost: false,
            asked: Vec::new(),
            links: HashMap::default(),
            clients: HashMap::default(),
            sessions: HashMap::default(),
            units: Units::default(),
            attached: 0,
            held_bytes: 0,
            put_bytes: 0,
        }
    }

    pub(super) fn number(&self) -> usize {
        self.call.owner.0
    }

    /// Whether further links of that group can go on here.
    pub(super) fn is_of(&self, group: &str) -> bool {
        !self.is_lost && self.call.forwarded.group == group
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) fn has_link(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// The call, once.
    pub(super) fn take_call(&mut self) -> Option<OwnerCall> {
        (!std::mem::replace(&mut self.is_called, true)).then(|| self.call.clone())
    }

    /// There is a ticket: the connection begins.
    pub(super) fn called(&mut self, ticket: &Ticket, now: Instant) {
        self.engine = Some(OwnerConnection::begin(&self.call, &self.container, ticket, now));
        for wanted in std::mem::take(&mut self.asked) {
            self.attach_there(wanted);
        }
    }

    /// The bytes to and from the owner; `is_full` where the client takes no more for now.
    pub(super) fn wire(&mut self, is_full: bool) -> Option<&mut dyn Wire> {
        let is_full = is_full || self.held_bytes >= WAITING_BYTES_MAX;
        let engine = self.engine.as_mut()?;
        engine.is_full = is_full;
        Some(engine)
    }

    pub(super) fn take_engine(&mut self) -> Option<Connection> {
        self.is_lost = true;
        self.engine.take().map(|engine| engine.inner)
    }

    /// Bytes that wait for the owner.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.put_bytes + self.engine.as_ref().map_or(0, |engine| engine.inner.output_len())
    }

    // ---- links

    /// The client wants a link.
    pub(super) fn attach(&mut self, client: &mut Connection, wanted: IncomingAttach) {
        if let Some(AnyTarget::Coordinator(_)) = wanted.target {
            return client.refuse_link(wanted.link, Error::new(condition::NOT_ALLOWED, "units of work are begun here"));
        }
        let puts = wanted.role == Role::Receiver;
        let session = core_session(wanted.session);
        let link = Link { session, at_owner: None, is_up: false, puts, is_relay: false, held: VecDeque::new() };
        self.links.insert(core_link(wanted.link), link);
        match self.engine {
            Some(_) => self.attach_there(wanted),
            None => self.asked.push(wanted),
        }
    }

    /// A message of a link for any queue goes on, on one of that kind at the owner.
    pub(super) fn relay(&mut self, client: &mut Connection, answers: &mut Answers, delivery: Delivery) {
        let Delivery { link: id, id: delivery, settled, unit, payload, .. } = delivery;
        if let (false, Some(info)) = (self.links.contains_key(&id), client.link(link(id))) {
            let session = core_session(info.session);
            let relay =
                Link { session, at_owner: None, is_up: true, puts: true, is_relay: true, held: VecDeque::new() };
            self.links.insert(id, relay);
            let wanted = IncomingAttach {
                link: link(id),
                session: info.session,
                name: info.name.clone(),
                role: Role::Receiver,
                source: None,
                target: Some(AnyTarget::Target(Target::default())),
                snd_settle_mode: info.snd_settle_mode,
                rcv_settle_mode: info.rcv_settle_mode,
                properties: Vec::new(),
                offered_capabilities: Vec::new(),
                desired_capabilities: Vec::new(),
                max_message_size: 0,
                unsettled: None,
                incomplete_unsettled: false,
            };
            match self.engine {
                Some(_) => self.attach_there(wanted),
                None => self.asked.push(wanted),
            }
        }
        let delivery = super::super::delivery(delivery);
        match unit {
            None => self.put(id, delivery, payload, settled, None),
            Some(unit) => {
                self.wait(unit, Waiting::Put { link: id, id: delivery, payload, settled });
                self.go_on(client, answers, unit);
            }
        }
    }

    fn attach_there(&mut self, wanted: IncomingAttach) {
        let id = core_link(wanted.link);
        let (Some(engine), Some(link)) = (&mut self.engine, self.links.get_mut(&id)) else { return };
        let session = *self.sessions.entry(link.session).or_insert_with(|| engine.inner.begin());
        self.attached += 1;
        let mut end = wanted.name.len().min(NAME_BYTES_MAX);
        while !wanted.name.is_char_boundary(end) {
            end -= 1;
        }
        // The client may attach one of that name again before the owner has answered to the end of the last one.
        let name = format!("{}#{}", wanted.name.get(..end).unwrap_or_default(), self.attached);
        let mut source = wanted.source.unwrap_or_default();
        (source.expiry_policy, source.timeout) = (Symbol::from_static(LINK_DETACH), 0);
        let mut target = match wanted.target {
            Some(AnyTarget::Target(target)) => target,
            _ => Default::default(),
        };
        (target.expiry_policy, target.timeout) = (Symbol::from_static(LINK_DETACH), 0);
        let there = engine.inner.attach(
            session,
            AttachRequest {
                name,
                role: wanted.role.other(),
                source: Some(source),
                target: Some(target),
                coordinator: None,
                snd_settle_mode: wanted.snd_settle_mode,
                rcv_settle_mode: wanted.rcv_settle_mode,
                properties: wanted.properties,
                offered_capabilities: wanted.offered_capabilities,
                desired_capabilities: wanted.desired_capabilities,
                max_message_size: wanted.max_message_size,
            },
        );
        link.at_owner = Some(there);
        self.clients.insert(there, id);
    }

    fn opened(&mut self, client: &mut Connection, opened: LinkOpened) {
        let Some(id) = self.clients.get(&opened.link) else { return };
        let Some(found) = self.links.get_mut(id).filter(|found| !found.is_relay) else { return };
        found.is_up = true;
        let target = match opened.target {
            Some(AnyTarget::Target(target)) => Some(target),
            _ => None,
        };
        let told = (opened.max_message_size > 0).then_some(opened.max_message_size);
        let reply = AttachReply {
            source: opened.source,
            target,
            offered_capabilities: opened.offered_capabilities,
            properties: opened.properties,
            max_message_size: if found.puts { MESSAGE_BYTES_MAX } else { 0 },
            told_max_message_size: told.filter(|_| found.puts),
            ..AttachReply::default()
        };
        client.accept_link(link(*id), reply);
    }

    /// The owner ends a link, or refuses it.
    fn detached(&mut self, client: &mut Connection, there: EngineLink, closed: bool, error: Option<Error>) {
        let Some(id) = self.clients.remove(&there) else { return };
        let Some(found) = self.links.remove(&id) else { return };
        self.forget_held(&found);
        end(client, id, found.is_up, closed, error);
    }

    fn forget_held(&mut self, link: &Link) {
        let bytes: usize = link.held.iter().map(Held::bytes).sum();
        let counted = if link.puts { &mut self.put_bytes } else { &mut self.held_bytes };
        *counted = counted.saturating_sub(bytes);
    }

    /// A session of the client is gone. Its links are the answer.
    pub(super) fn session_gone(&mut self, session: SessionId) -> Vec<LinkId> {
        self.asked.retain(|wanted| core_session(wanted.session) != session);
        let its: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.session == session).map(|(id, _)| *id).collect();
        for id in &its {
            if let Some(link) = self.links.remove(id) {
                self.forget_held(&link);
                if let Some(there) = link.at_owner {
                    self.clients.remove(&there);
                }
            }
        }
        if let (Some(there), Some(engine)) = (self.sessions.remove(&session), &mut self.engine) {
            engine.inner.end_session(there, None);
        }
        its
    }

    /// A session at the owner is gone.
    fn session_gone_there(&mut self, client: &mut Connection, session: EngineSession, error: Option<&Error>) {
        let Some(here) = self.sessions.iter().find(|(_, there)| **there == session).map(|(here, _)| *here) else {
            return;
        };
        self.sessions.remove(&here);
        for id in self.session_gone(here) {
            end(client, id, true, true, error.cloned());
        }
    }

    /// The connection is gone.
    pub(super) fn lost(&mut self, client: &mut Connection, answers: &mut Answers, error: &Error) {
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        (self.engine, self.held_bytes, self.put_bytes) = (None, 0, 0);
        self.asked.clear();
        self.clients.clear();
        self.sessions.clear();
        for (id, link) in std::mem::take(&mut self.links) {
            end(client, id, link.is_up, true, Some(error.clone()));
        }
        for asked in self.units.lost(answers, error) {
            // Whether it was committed is not known, and not said.
            client.detach(link(asked.link), true, Some(error.clone()));
            answers.is_unknown(asked);
        }
        let units: Vec<UnitId> = self.units.all.keys().copied().collect();
        units.into_iter().for_each(|unit| self.go_on(client, answers, unit));
    }

    // ---- what the client does

    /// The client has done something on a link.
    pub(super) fn take(&mut self, client: &mut Connection, answers: &mut Answers, event: Event, unit: Option<UnitId>) {
        match event {
            Event::Delivery(delivery) if delivery.beyond_credit => {
                let text = "more messages than the link has credit for";
                client.detach(delivery.link, true, Some(Error::new(condition::TRANSFER_LIMIT_EXCEEDED, text)));
                self.client_detached(core_link(delivery.link), true);
            }
            Event::Delivery(delivery) => {
                let bulla_amqp::Delivery { link, id, payload, settled, .. } = delivery;
                match unit {
                    None => self.put(core_link(link), id, payload, settled, None),
                    Some(unit) => {
                        self.wait(unit, Waiting::Put { link: core_link(link), id, payload, settled });
                        self.go_on(client, answers, unit);
                    }
                }
            }
            Event::Outcome { link, token, state, settled } => {
                // The token is the owner's id of the message.
                let id = DeliveryId::from_bits(token as u32);
                match (unit, state) {
                    (Some(unit), Some(DeliveryState::Transactional { outcome, .. })) => {
                        let state = outcome.map_or(DeliveryState::Accepted, |outcome| *outcome);
                        self.wait(unit, Waiting::Outcome { link: core_link(link), id, state, settled });
                        self.go_on(client, answers, unit);
                    }
                    (_, state) => self.pass_on(core_link(link), id, state, settled),
                }
            }
            Event::Credit { link, drain, .. } => {
                self.deliver(client, core_link(link));
                self.credit_there(client, core_link(link), drain);
            }
            Event::Settled { link, id, state } => {
                let there = self.there(core_link(link));
                if let (Some(there), Some(engine)) = (there, &mut self.engine) {
                    let state = state.unwrap_or(DeliveryState::Accepted);
                    engine.inner.settle(there, u64::from(id.to_bits()), state);
                }
            }
            Event::Acquires { link, txn_id: Some(_) } => {
                let text = "a link that is forwarded to the owner of its queue does not acquire in units of work";
                client.detach(link, true, Some(Error::new(condition::NOT_IMPLEMENTED, text)));
                self.client_detached(core_link(link), true);
            }
            Event::Detached { link, closed, .. } => self.client_detached(core_link(link), closed),
            _ => {}
        }
        self.end_units_that_wait(client, answers);
    }

    pub(super) fn client_detached(&mut self, id: LinkId, closed: bool) {
        self.asked.retain(|wanted| core_link(wanted.link) != id);
        let Some(link) = self.links.remove(&id) else { return };
        self.forget_held(&link);
        if let (Some(there), Some(engine)) = (link.at_owner, &mut self.engine) {
            self.clients.remove(&there);
            engine.inner.detach(there, closed, None);
        }
    }

    fn there(&self, id: LinkId) -> Option<EngineLink> {
        self.links.get(&id).and_then(|link| link.at_owner)
    }

    /// A message goes to the owner, or waits for credit there.
    fn put(&mut self, id: LinkId, delivery: DeliveryId, payload: Payload, settled: bool, unit: Option<UnitId>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        self.put_bytes += payload.len();
        link.held.push_back(Held::Put { id: delivery, payload, settled, unit });
        self.put_held(id);
    }

    /// Sends the owner what it has credit for.
    fn put_held(&mut self, id: LinkId) {
        let (Some(link), Some(engine)) = (self.links.get_mut(&id), &mut self.engine) else { return };
        let Some(there) = link.at_owner else { return };
        while engine.inner.credit(there) > 0
            && let Some(Held::Put { id, payload, settled, unit }) = link.held.pop_front()
        {
            self.put_bytes = self.put_bytes.saturating_sub(payload.len());
            let token = u64::from(id.to_bits());
            let txn_id = unit.map(|unit| self.units.all.get(&unit).and_then(|unit| unit.txn_id.clone()));
            match txn_id {
                None => engine.inner.send(there, token, payload, settled),
                Some(Some(txn_id)) => engine.inner.send_in(there, token, payload, settled, txn_id),
                // Its unit is gone.
                Some(None) => false,
            };
        }
    }

    /// What the client says of a message goes to the owner.
    fn pass_on(&mut self, id: LinkId, delivery: DeliveryId, state: Option<DeliveryState>, settled: bool) {
        if let (Some(there), Some(engine)) = (self.there(id), &mut self.engine) {
            engine.inner.pass_on(there, delivery, state, settled);
        }
    }

    /// The owner is told how many messages the client takes beside those that wait here.
    fn credit_there(&mut self, client: &Connection, id: LinkId, drain: bool) {
        let (Some(found), Some(engine)) = (self.links.get(&id), &mut self.engine) else { return };
        let Some(there) = found.at_owner.filter(|_| !found.puts) else { return };
        let waiting = u32::try_from(found.held.len()).unwrap_or(u32::MAX);
        engine.inner.set_credit(there, client.credit(link(id)).saturating_sub(waiting));
        if drain {
            engine.inner.drain(there);
        }
    }

    // ---- what the owner does

    /// Takes in what the owner has done.
    pub(super) fn look(&mut self, client: &mut Connection, answers: &mut Answers) {
        while let Some(event) = self.engine.as_mut().and_then(|engine| engine.inner.poll_event()) {
            match event {
                Event::LinkOpened(opened) => self.opened(client, *opened),
                Event::Detached { link, error, .. } if self.units.is_coordinator(link) => {
                    let text = "the owner of the queue has ended the link for units of work";
                    let error = error.unwrap_or_else(|| Error::new(condition::DETACH_FORCED, text));
                    return self.lost(client, answers, &error);
                }
                Event::Detached { link, closed, error } => self.detached(client, link, closed, error),
                Event::SessionEnded(session, error) => self.session_gone_there(client, session, error.as_ref()),
                Event::Credit { link, .. } if self.units.is_coordinator(link) => {
                    if let Some(engine) = &mut self.engine {
                        self.units.send(&mut engine.inner);
                    }
                }
                Event::Credit { link: there, .. } => {
                    let Some(id) = self.clients.get(&there).copied() else { continue };
                    self.put_held(id);
                    self.credit_here(client, id);
                    self.end_units_that_wait(client, answers);
                }
                Event::Flowed { link: there } => {
                    let Some(id) = self.clients.get(&there) else { continue };
                    client.drained(link(*id));
                }
                Event::Delivery(delivery) => self.got(client, delivery),
                Event::Outcome { link, token, state, settled } if self.units.is_coordinator(link) => {
                    if let (false, Some(engine)) = (settled, &mut self.engine) {
                        engine.inner.settle(link, token, state.clone().unwrap_or(DeliveryState::Accepted));
                    }
                    match (self.units.answered(answers, token, state), &mut self.engine) {
                        (Some(Become::Begun(unit)), _) => self.go_on(client, answers, unit),
                        (Some(Become::Stray(txn_id)), Some(engine)) => {
                            self.units.end(&mut engine.inner, txn_id, None, (false, None));
                        }
                        _ => {}
                    }
                }
                Event::Outcome { link: there, token, state, .. } => {
                    let Some(id) = self.clients.get(&there) else { continue };
                    let state = self.for_client(state).unwrap_or(DeliveryState::Released);
                    client.dispose(link(*id), DeliveryId::from_bits(token as u32), state);
                }
                Event::Settled { link: there, id: delivery, state } => {
                    let Some(id) = self.clients.get(&there) else { continue };
                    let state = self.for_client(state).unwrap_or(DeliveryState::Accepted);
                    client.settle(link(*id), u64::from(delivery.to_bits()), state);
                }
                Event::Closed(error) => {
                    let text = "the owner of the queue has ended the connection";
                    let error = error.unwrap_or_else(|| Error::new(condition::CONNECTION_FORCED, text));
                    return self.lost(client, answers, &error);
                }
                _ => {}
            }
        }
        // What they waited for may be on its way by now.
        self.end_units_that_wait(client, answers);
    }

    /// A state of the owner's, with this side's name for its unit.
    fn for_client(&self, state: Option<DeliveryState>) -> Option<DeliveryState> {
        match state {
            Some(DeliveryState::Transactional { txn_id, outcome }) => {
                let known = self.units.all.iter().find(|(_, unit)| unit.txn_id.as_ref() == Some(&txn_id));
                let outcome = outcome.map_or(DeliveryState::Accepted, |outcome| *outcome);
                // One that has ended: the client needs its name no more.
                Some(known.map_or(outcome.clone(), |(id, _)| within(*id, outcome)))
            }
            other => other,
        }
    }

    /// The client may put as many messages as the owner takes beside those that wait here.
    fn credit_here(&self, client: &mut Connection, id: LinkId) {
        let (Some(found), Some(engine)) = (self.links.get(&id), &self.engine) else { return };
        let Some(there) = found.at_owner.filter(|_| found.puts && !found.is_relay) else { return };
        let waiting = u32::try_from(found.held.len()).unwrap_or(u32::MAX);
        client.set_credit(link(id), engine.inner.credit(there).saturating_sub(waiting));
    }

    /// A message for the client.
    fn got(&mut self, client: &mut Connection, delivery: bulla_amqp::Delivery) {
        let Some(id) = self.clients.get(&delivery.link).copied() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let token = u64::from(delivery.id.to_bits());
        self.held_bytes += delivery.payload.len();
        link.held.push_back(Held::Got { token, payload: delivery.payload, settled: delivery.settled });
        self.deliver(client, id);
    }

    /// Sends the client what it has credit for, and room.
    fn deliver(&mut self, client: &mut Connection, id: LinkId) {
        let Some(found) = self.links.get_mut(&id).filter(|found| !found.puts) else { return };
        let here = link(id);
        while client.credit(here) > 0
            && !client.is_sending(here)
            && let Some(Held::Got { token, payload, settled }) = found.held.pop_front()
        {
            self.held_bytes = self.held_bytes.saturating_sub(payload.len());
            client.send(here, token, payload, settled);
        }
    }

    /// The same for all links: there is room again.
    pub(super) fn deliver_held(&mut self, client: &mut Connection) {
        if self.held_bytes == 0 {
            return;
        }
        let waiting: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| !link.puts && !link.held.is_empty()).map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.deliver(client, id));
    }

    // ---- units of work

    fn wait(&mut self, unit: UnitId, waiting: Waiting) {
        let unit = match &mut self.engine {
            Some(engine) => self.units.unit(&mut engine.inner, unit),
            None => self.units.all.entry(unit).or_default(),
        };
        unit.waiting.push(waiting);
    }

    /// What waited for the owner's word on a unit goes on, once that is there.
    fn go_on(&mut self, client: &mut Connection, answers: &mut Answers, id: UnitId) {
        let Some(unit) = self.units.all.get_mut(&id).filter(|unit| unit.is_known()) else { return };
        let mut waiting = VecDeque::from(std::mem::take(&mut unit.waiting));
        while let Some(next) = waiting.pop_front() {
            let Some(unit) = self.units.all.get_mut(&id) else { return };
            let (txn_id, failed) = (unit.txn_id.clone(), unit.failed.clone());
            match (next, txn_id, failed) {
                (Waiting::Put { link, id: delivery, payload, settled }, Some(_), None) => {
                    if !unit.puts_on.contains(&link) {
                        unit.puts_on.push(link);
                    }
                    self.put(link, delivery, payload, settled, Some(id));
                }
                (Waiting::Put { link: here, id: delivery, settled, .. }, _, failed) => {
                    if !settled {
                        let state = within(id, DeliveryState::Rejected(failed.map(Box::new)));
                        client.dispose(link(here), delivery, state);
                    }
                    self.credit_here(client, here);
                }
                // The owner has ended it while the unit began there.
                (Waiting::Outcome { link, .. }, Some(_), None) if self.there(link).is_none() => {
                    self.fail_unit(id, outcome_lost());
                }
                (Waiting::Outcome { link, id: delivery, state, settled }, Some(txn_id), None) => {
                    let state = DeliveryState::Transactional { txn_id, outcome: Some(Box::new(state)) };
                    self.pass_on(link, delivery, Some(state), settled);
                }
                // Its message goes back, as at a back-out.
                (Waiting::Outcome { link, id: delivery, .. }, _, _) => {
                    let state = DeliveryState::Modified {
                        delivery_failed: true,
                        undeliverable_here: false,
                        message_annotations: Vec::new(),
                    };
                    self.pass_on(link, delivery, Some(state), true);
                }
                (end @ Waiting::End { .. }, Some(_), None) if self.has_held_of(id) => {
                    waiting.push_front(end);
                    break;
                }
                (Waiting::End { asked, commits }, txn_id, failed) => {
                    self.units.all.remove(&id);
                    match (txn_id, &mut self.engine) {
                        (Some(txn_id), Some(engine)) => {
                            self.units.end(&mut engine.inner, txn_id, asked, (commits, failed));
                        }
                        _ => {
                            let verdict = match failed.filter(|_| commits) {
                                Some(error) => backed_out(&error),
                                None => DeliveryState::Accepted,
                            };
                            if let Some(asked) = asked {
                                answers.ended(asked, verdict);
                            }
                        }
                    }
                    return;
                }
            }
        }
        if let Some(unit) = self.units.all.get_mut(&id) {
            unit.waiting = waiting.into();
        }
    }

    /// Whether messages of a unit wait for credit, or for room on the way to the owner. The unit's end is sent in
    /// another session, and must not come before them.
    fn has_held_of(&self, unit: UnitId) -> bool {
        let is_its = |held: &Held| matches!(held, Held::Put { unit: Some(other), .. } if *other == unit);
        let is_sending = |id: &LinkId| {
            let engine = self.engine.as_ref().map(|engine| &engine.inner);
            engine.zip(self.there(*id)).is_some_and(|(engine, there)| engine.is_sending(there))
        };
        self.links.values().any(|link| link.puts && link.held.iter().any(is_its))
            || self.units.all.get(&unit).is_some_and(|unit| unit.puts_on.iter().any(is_sending))
    }

    /// Ends that waited for messages go on where these are on their way, or gone with their links.
    fn end_units_that_wait(&mut self, client: &mut Connection, answers: &mut Answers) {
        let ends = |unit: &Unit| unit.is_known() && matches!(unit.waiting.first(), Some(Waiting::End { .. }));
        let waiting: Vec<UnitId> = self.units.all.iter().filter(|(_, unit)| ends(unit)).map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|unit| self.go_on(client, answers, unit));
    }

    /// The client ends a unit.
    pub(super) fn end_unit(&mut self, client: &mut Connection, answers: &mut Answers, asked: Asked, commits: bool) {
        let unit = asked.unit;
        self.wait(unit, Waiting::End { asked: Some(asked), commits });
        self.go_on(client, answers, unit);
    }

    /// A unit ends with the link that it was begun on.
    pub(super) fn drop_unit(&mut self, client: &mut Connection, answers: &mut Answers, unit: UnitId) {
        self.wait(unit, Waiting::End { asked: None, commits: false });
        self.go_on(client, answers, unit);
    }

    /// A unit can't commit any more.
    pub(super) fn fail_unit(&mut self, unit: UnitId, error: Error) {
        let unit = self.units.all.entry(unit).or_default();
        unit.failed.get_or_insert(error);
    }

    /// A message is of a unit that can't take it.
    pub(super) fn refuse_unit(&mut self, client: &mut Connection, event: Event, error: Error) {
        match event {
            Event::Outcome { link, token, .. } => {
                self.pass_on(core_link(link), DeliveryId::from_bits(token as u32), Some(DeliveryState::Released), true);
            }
            Event::Delivery(delivery) => {
                if !delivery.settled {
                    client.dispose(delivery.link, delivery.id, DeliveryState::Rejected(Some(Box::new(error))));
                }
                self.credit_here(client, core_link(delivery.link));
            }
            _ => {}
        }
    }
}

impl Unit {
    /// Whether the owner has said whether it has begun.
    fn is_known(&self) -> bool {
        self.txn_id.is_some() || self.failed.is_some()
    }
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Held::Got { payload, .. } | Held::Put { payload, .. } => payload.len(),
        }
    }
}

/// Ends a link of the client, or refuses it where it was not open yet.
fn end(client: &mut Connection, id: LinkId, is_up: bool, closed: bool, error: Option<Error>) {
    match is_up {
        true => client.detach(link(id), closed, error),
        false => {
            let text = "the owner of the queue has refused the link";
            client.refuse_link(link(id), error.unwrap_or_else(|| Error::new(condition::DETACH_FORCED, text)));
        }
    }
}
