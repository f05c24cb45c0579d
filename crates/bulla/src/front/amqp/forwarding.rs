//! Links that a connection forwards to owners of shared groups.
//!
//! The client's connection and those to owners are engines of the same kind. What the client does on such a link is
//! done on its counterpart at the owner, and the other way round: attaches, credit, messages, outcomes, units of work.
//! Nothing is answered here that the owner has not answered. The owner asks for rights, seals and opens: it knows the
//! user by a ticket ([`Proof::Ticket`](crate::front::client::Proof::Ticket)).

mod owner;
mod units;

use super::links::Asked;
use super::{core_link, outcomes};
use crate::catalog::reason::{Elsewhere, Way};
use crate::front::forwards::{Forwards, OwnerCall, OwnerId};
use crate::front::owner::{WAITING_BYTES_MAX, closing};
use crate::front::{Delivery, DeliveryId, Event, LinkId, SessionId, UnitId, Wire};
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::sign_in::tickets::Ticket;
use bulla_amqp::{Connection, DeliveryState, Event as EngineEvent};
use owner::Owner;
use std::collections::VecDeque;
use std::time::Instant;
pub(super) use units::Asked as EndAsked;

/// The links that a connection forwards.
#[derive(Default)]
pub(super) struct Forwarding {
    owners: HashMap<usize, Owner>,
    /// How many there have been.
    last: usize,
    /// Which owner's a link is.
    links: HashMap<LinkId, OwnerId>,
    /// Which owner has messages of a unit of work.
    units: HashMap<UnitId, OwnerId>,
    answers: Answers,
}

/// What the core and the client's coordinator hear of units of work.
#[derive(Default)]
struct Answers {
    /// For the core, in the place of what the client said.
    events: VecDeque<Event>,
    /// What the client hears, in the place of what the core answers.
    verdicts: HashMap<(LinkId, DeliveryId), DeliveryState>,
}

/// The units of work of a connection, and which have to do with queues that are here.
#[derive(Default)]
pub(super) struct Units {
    /// Those that are open, with the links that they were begun on.
    open: Vec<(UnitId, LinkId)>,
    /// Those of them with messages of queues that are here, and how many.
    used: Vec<(UnitId, u64)>,
}

impl Units {
    /// A unit has begun.
    pub(super) fn begun(&mut self, unit: UnitId, on: LinkId) {
        self.open.push((unit, on));
    }

    /// A unit is to end. Whether it has messages of queues that are here.
    pub(super) fn ends(&mut self, unit: UnitId) -> bool {
        self.open.retain(|(open, _)| *open != unit);
        let at = self.used.iter().position(|(used, _)| *used == unit);
        at.map(|at| self.used.swap_remove(at)).is_some_and(|(_, count)| count > 0)
    }

    /// A message of a queue that is here is part of a unit, as far as is known by now.
    #[inline]
    pub(super) fn uses(&mut self, unit: UnitId) {
        if let Some((_, count)) = self.used.iter_mut().find(|(used, _)| *used == unit) {
            *count += 1;
        } else if self.is_open(unit) {
            self.used.push((unit, 1));
        }
    }

    /// One of these goes on to an owner.
    fn uses_not(&mut self, unit: UnitId) {
        if let Some((_, count)) = self.used.iter_mut().find(|(used, _)| *used == unit) {
            *count = count.saturating_sub(1);
        }
    }

    /// The units that go with a link on which they were begun.
    pub(super) fn of_link(&mut self, link: LinkId) -> Vec<UnitId> {
        let its: Vec<UnitId> = self.open.iter().filter(|(_, on)| *on == link).map(|(unit, _)| *unit).collect();
        self.open.retain(|(_, on)| *on != link);
        self.used.retain(|(used, _)| !its.contains(used));
        its
    }

    fn is_open(&self, unit: UnitId) -> bool {
        self.open.iter().any(|(open, _)| *open == unit)
    }
}

/// Messages of queues that are here and of queues of a group are not of one unit (2355).
fn mixed() -> Refusal {
    let detail = "a unit of work has messages of a shared group that another queue manager owns, and of other queues";
    Refusal { cause: Some("stores"), ..Refusal::new(reason::UOW_MIX_NOT_SUPPORTED, detail) }
}

/// A message of one owner's is in a unit with messages of another's: it can't commit.
fn refuse_of_others(
    owners: &mut HashMap<usize, Owner>,
    client: &mut Connection,
    event: EngineEvent,
    (unit, first, second): (UnitId, OwnerId, OwnerId),
) {
    if let Some(first) = owners.get_mut(&first.0) {
        first.fail_unit(unit, mixed().to_amqp());
    }
    if let Some(second) = owners.get_mut(&second.0) {
        second.refuse_unit(client, event, mixed().to_amqp());
    }
}

/// The link of an event, where it is about one.
fn link_of(event: &EngineEvent) -> Option<bulla_amqp::LinkId> {
    match event {
        EngineEvent::Delivery(delivery) => Some(delivery.link),
        EngineEvent::Outcome { link, .. }
        | EngineEvent::Credit { link, .. }
        | EngineEvent::Acquires { link, .. }
        | EngineEvent::Flowed { link }
        | EngineEvent::Settled { link, .. }
        | EngineEvent::Detached { link, .. } => Some(*link),
        _ => None,
    }
}

impl Forwarding {
    /// What the core is to hear next.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.answers.events.pop_front()
    }

    /// Whether the core is to hear something.
    pub(super) fn has_events(&self) -> bool {
        !self.answers.events.is_empty()
    }

    /// Whether an event is about a link that is forwarded.
    pub(super) fn is_its(&self, event: &EngineEvent) -> bool {
        link_of(event).is_some_and(|link| self.links.contains_key(&core_link(link)))
    }

    /// The client has done something on a link that is forwarded.
    pub(super) fn take(&mut self, client: &mut Connection, units: &mut Units, event: EngineEvent) {
        let Some(id) = link_of(&event).and_then(|link| self.links.get(&core_link(link)).copied()) else { return };
        let Self { owners, links, units: of_owners, answers, .. } = self;
        let Some(owner) = owners.get_mut(&id.0) else { return };
        let unit = match &event {
            EngineEvent::Delivery(delivery) => delivery.state.as_ref().and_then(super::unit_of),
            EngineEvent::Outcome { state: Some(state), .. } => super::unit_of(state),
            EngineEvent::Detached { link, .. } => {
                links.remove(&core_link(*link));
                None
            }
            _ => None,
        };
        if let Some(unit) = unit {
            if !units.is_open(unit) {
                return owner.refuse_unit(client, event, outcomes::error(super::Failure::UnitUnknown));
            }
            if let Some(other) = of_owners.get(&unit).copied().filter(|other| *other != id) {
                return refuse_of_others(owners, client, event, (unit, other, id));
            }
            of_owners.insert(unit, id);
        }
        owner.take(client, answers, event, unit);
    }

    /// A unit with messages of an owner has messages of queues that are here, too: it can't commit.
    pub(super) fn fail_mixed(&mut self, unit: UnitId) {
        if let Some(owner) = self.units.get(&unit).and_then(|id| self.owners.get_mut(&id.0)) {
            owner.fail_unit(unit, mixed().to_amqp());
        }
    }

    /// What the client said of a message in a unit came after the message's link: what an owner has of it can't commit.
    pub(super) fn outcome_lost(&mut self, unit: UnitId) {
        if let Some(owner) = self.units.get(&unit).and_then(|id| self.owners.get_mut(&id.0)) {
            owner.fail_unit(unit, units::outcome_lost());
        }
    }

    /// Whether an owner has messages of that unit.
    pub(super) fn has_unit(&self, unit: UnitId) -> bool {
        self.units.contains_key(&unit)
    }

    /// A unit ends. False where no owner has anything of it: then it is the core's alone.
    pub(super) fn end_unit(&mut self, client: &mut Connection, asked: EndAsked, commits: bool) -> bool {
        let Some(id) = self.units.remove(&asked.unit) else { return false };
        if let Some(owner) = self.owners.get_mut(&id.0) {
            owner.end_unit(client, &mut self.answers, asked, commits);
        }
        true
    }

    /// A link on which units were begun is gone, and so are they.
    pub(super) fn coordinator_gone(&mut self, client: &mut Connection, units: &mut Units, link: LinkId) {
        for unit in units.of_link(link) {
            let Some(id) = self.units.remove(&unit) else { continue };
            if let Some(owner) = self.owners.get_mut(&id.0) {
                owner.drop_unit(client, &mut self.answers, unit);
            }
        }
    }

    /// A session of the client is gone, with its links.
    pub(super) fn session_gone(&mut self, session: SessionId) {
        for owner in self.owners.values_mut() {
            for link in owner.session_gone(session) {
                self.links.remove(&link);
            }
        }
    }

    /// What the client hears in the place of what the core answers.
    pub(super) fn verdict(&mut self, link: LinkId, id: DeliveryId) -> Option<DeliveryState> {
        if self.answers.verdicts.is_empty() { None } else { self.answers.verdicts.remove(&(link, id)) }
    }

    /// Whether more may be read from the client.
    pub(super) fn has_room(&self) -> bool {
        self.owners.values().all(|owner| owner.waiting_bytes() < WAITING_BYTES_MAX)
    }

    /// Output to the client was written: what waited for that goes on.
    pub(super) fn written(&mut self, client: &mut Connection) {
        self.owners.values_mut().for_each(|owner| owner.deliver_held(client));
    }

    /// The owner that a link or a message goes to.
    fn owner_for(&mut self, elsewhere: &Elsewhere, container: &str) -> Option<OwnerId> {
        let Way::Forwarded(forwarded) = &elsewhere.way else { return None };
        let known = self.owners.values().find(|owner| owner.is_of(&forwarded.group)).map(Owner::number);
        Some(OwnerId(known.unwrap_or_else(|| {
            self.last += 1;
            let (host, port, forwarded) = (elsewhere.host.clone(), elsewhere.port, forwarded.clone());
            let call = OwnerCall { owner: OwnerId(self.last), host, port, forwarded };
            self.owners.insert(self.last, Owner::new(call, container));
            self.last
        })))
    }

    /// Takes a link over that the core refuses.
    fn forward(&mut self, client: &mut Connection, asked: Asked, elsewhere: &Elsewhere, container: &str) -> bool {
        let link = core_link(asked.wanted.link);
        let Some(id) = self.owner_for(elsewhere, container) else { return false };
        let Some(owner) = self.owners.get_mut(&id.0) else { return false };
        self.links.insert(link, id);
        owner.attach(client, *asked.wanted);
        true
    }

    /// Takes a message over that the core refuses: its link is a relay for any queue.
    fn forward_message(
        &mut self,
        (client, units): (&mut Connection, &mut Units),
        delivery: Delivery,
        elsewhere: &Elsewhere,
        container: &str,
    ) -> bool {
        let Some(id) = self.owner_for(elsewhere, container) else { return false };
        let Self { owners, units: of_owners, answers, .. } = self;
        if let Some(unit) = delivery.unit {
            units.uses_not(unit);
            match of_owners.get(&unit).copied().filter(|other| *other != id) {
                Some(first) => {
                    let first = owners.get_mut(&first.0);
                    first.into_iter().for_each(|first| first.fail_unit(unit, mixed().to_amqp()));
                    return false;
                }
                None => of_owners.insert(unit, id),
            };
        }
        let Some(owner) = owners.get_mut(&id.0) else { return false };
        owner.relay(client, answers, delivery);
        true
    }

    /// A link that is the core's is gone. Messages on it may have gone on to owners.
    pub(super) fn relay_gone(&mut self, link: LinkId) {
        self.owners.values_mut().for_each(|owner| owner.client_detached(link, true));
    }

    /// Forgets owners that are gone, once nothing asks for them any more.
    fn tidy(&mut self, owner: OwnerId) {
        let units = self.units.values().any(|id| *id == owner);
        if !units && self.owners.get(&owner.0).is_some_and(Owner::is_lost) {
            self.owners.remove(&owner.0);
        }
    }
}

/// The front end of a connection, as that of a client whose links are forwarded.
impl Forwards for super::Amqp {
    fn forward(&mut self, id: LinkId, why: &Refusal) -> bool {
        let (Some(elsewhere), Some(asked)) = (why.elsewhere.as_deref(), self.asked.remove(&id)) else { return false };
        let forwarding = self.forwarding.get_or_insert_default();
        forwarding.forward(&mut self.engine, asked, elsewhere, &self.container)
    }

    fn forward_message(&mut self, delivery: Delivery, why: &Refusal) -> bool {
        let Some(elsewhere) = why.elsewhere.as_deref() else { return false };
        let forwarding = self.forwarding.get_or_insert_default();
        forwarding.forward_message((&mut self.engine, &mut self.units), delivery, elsewhere, &self.container)
    }

    fn take_call(&mut self) -> Option<OwnerCall> {
        self.forwarding.as_mut()?.owners.values_mut().find_map(Owner::take_call)
    }

    fn called(&mut self, id: OwnerId, ticket: Result<Ticket, Refusal>, now: Instant) {
        let Some(forwarding) = &mut self.forwarding else { return };
        let Some(owner) = forwarding.owners.get_mut(&id.0) else { return };
        match ticket {
            Ok(ticket) => owner.called(&ticket, now),
            Err(refusal) => self.lost(id, &refusal),
        }
    }

    fn wire(&mut self, id: OwnerId) -> Option<&mut dyn Wire> {
        let is_full = self.engine.output_len() >= WAITING_BYTES_MAX;
        self.forwarding.as_mut()?.owners.get_mut(&id.0)?.wire(is_full)
    }

    fn look(&mut self, id: OwnerId) {
        let Some(forwarding) = &mut self.forwarding else { return };
        let Some(owner) = forwarding.owners.get_mut(&id.0) else { return };
        owner.look(&mut self.engine, &mut forwarding.answers);
        forwarding.links.retain(|link, of| *of != id || owner.has_link(*link));
        forwarding.tidy(id);
    }

    fn lost(&mut self, id: OwnerId, why: &Refusal) {
        let Some(forwarding) = &mut self.forwarding else { return };
        if let Some(owner) = forwarding.owners.get_mut(&id.0) {
            owner.lost(&mut self.engine, &mut forwarding.answers, &why.to_amqp());
        }
        forwarding.links.retain(|_, of| *of != id);
        forwarding.tidy(id);
    }

    fn take_over(&mut self, id: OwnerId) -> Option<Box<dyn Wire + Send>> {
        let engine = self.forwarding.as_mut()?.owners.get_mut(&id.0)?.take_engine()?;
        Some(closing(engine))
    }
}
