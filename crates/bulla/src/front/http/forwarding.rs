//! Requests about queues of shared groups that another queue manager owns.
//!
//! The core refuses a link to such a queue, and it goes on to the owner, over AMQP: what this front end tells the core
//! of a link is told the owner then, and what the owner answers is taken as the core's answer. Nothing is confirmed
//! here that the owner has not confirmed. The owner asks for rights, seals and opens.

use super::Http;
use crate::catalog::reason::{Elsewhere, Way};
use crate::front::amqp::{links, outcomes};
use crate::front::forwards::{Forwards, OwnerCall, OwnerId};
use crate::front::link::{Granted, Place, Wants};
use crate::front::outcome::{Failure, MessageOutcome};
use crate::front::owner::{MESSAGE_BYTES_MAX, OwnerConnection, WAITING_BYTES_MAX, closing};
use crate::front::{Delivery, DeliveryId, Event, FrontEnd, LinkId, Wire};
use crate::reason::{self, Refusal};
use crate::sign_in::tickets::Ticket;
use bulla_amqp::{
    AttachRequest, Connection, DeliveryState, Error, Event as EngineEvent, LinkId as EngineLink,
    SessionId as EngineSession, Symbol,
};
use std::time::Instant;

/// The container of these connections.
const CONTAINER: &str = "http";
/// Why a connection to an owner is gone that says nothing of it.
const GONE: &str = "the owner of the queue has ended the connection";

/// What a link that the core may refuse is for.
#[derive(Debug)]
pub(super) enum Wish {
    /// Messages are put.
    Put,
    /// A message is got, or messages are looked at.
    Get { browses: bool, selector: Option<String> },
}

impl Wish {
    /// None for a link that leads to no queue.
    pub(super) fn of(wants: &Wants) -> Option<Self> {
        match wants {
            Wants::Put(put) if matches!(put.place, Place::Named { is_topic: false, .. }) => Some(Self::Put),
            Wants::Get(get) => Some(Self::Get { browses: get.browses, selector: get.selector.clone() }),
            _ => None,
        }
    }

    /// The link that the owner is asked for.
    fn request(self, name: String, queue: String) -> AttachRequest {
        match self {
            Self::Put => {
                let request = AttachRequest::sender(name, queue);
                AttachRequest { desired_capabilities: vec![Symbol::from_static(links::PUT_BEFORE)], ..request }
            }
            Self::Get { browses, selector } => {
                let mut request = AttachRequest::receiver(name, queue);
                if let Some(source) = &mut request.source {
                    source.distribution_mode = browses.then(|| Symbol::from_static("copy"));
                    source.filter = selector.map(|selector| links::selected_by(&selector)).into_iter().collect();
                }
                request
            }
        }
    }
}

/// A connection's links to owners.
#[derive(Default)]
pub(super) struct Forwarding {
    /// One for each group, but for those that are retired.
    owners: Vec<Owner>,
    /// How many there have been.
    last: usize,
}

/// A connection to an owner.
struct Owner {
    call: OwnerCall,
    is_called: bool,
    /// Another user has signed in on the client's connection: nothing new is said here.
    is_retired: bool,
    connection: Option<OwnerConnection>,
    session: Option<EngineSession>,
    /// Links that wait for the connection, each with its queue.
    asked: Vec<(LinkId, String, Wish)>,
    /// The others: this side's handles and the owner's.
    links: Vec<(LinkId, EngineLink)>,
    /// Links so far.
    attached: u64,
}

impl Owner {
    fn new(call: OwnerCall) -> Self {
        Self {
            call,
            is_called: false,
            is_retired: false,
            connection: None,
            session: None,
            asked: Vec::new(),
            links: Vec::new(),
            attached: 0,
        }
    }

    fn there(&self, here: LinkId) -> Option<EngineLink> {
        self.links.iter().find(|(link, _)| *link == here).map(|(_, there)| *there)
    }

    fn here(&self, there: EngineLink) -> Option<LinkId> {
        self.links.iter().find(|(_, link)| *link == there).map(|(here, _)| *here)
    }

    fn has(&self, here: LinkId) -> bool {
        self.there(here).is_some() || self.asked.iter().any(|(link, ..)| *link == here)
    }

    /// All its links, which end.
    fn take_links(&mut self) -> Vec<LinkId> {
        let asked = std::mem::take(&mut self.asked).into_iter().map(|(here, ..)| here);
        asked.chain(std::mem::take(&mut self.links).into_iter().map(|(here, _)| here)).collect()
    }

    fn begin(&mut self, ticket: &Ticket, now: Instant) {
        self.connection = Some(OwnerConnection::begin(&self.call, CONTAINER, ticket, now));
        for (here, queue, wish) in std::mem::take(&mut self.asked) {
            self.attach(here, queue, wish);
        }
    }

    fn attach(&mut self, here: LinkId, queue: String, wish: Wish) {
        let Some(OwnerConnection { inner: engine, .. }) = &mut self.connection else {
            return self.asked.push((here, queue, wish));
        };
        let session = *self.session.get_or_insert_with(|| engine.begin());
        self.attached += 1;
        let there = engine.attach(session, wish.request(format!("http-{}", self.attached), queue));
        self.links.push((here, there));
    }

    /// What this side says of a link. `credit` is what that has.
    fn take(&mut self, here: LinkId, event: Event, credit: u32) {
        let there = self.there(here);
        if let Event::Detached { .. } = event {
            self.asked.retain(|(link, ..)| *link != here);
            self.links.retain(|(link, _)| *link != here);
        }
        let (Some(there), Some(OwnerConnection { inner: engine, .. })) = (there, &mut self.connection) else { return };
        match event {
            Event::Detached { .. } => engine.detach(there, true, None),
            Event::Credit { drain, .. } => {
                engine.set_credit(there, credit);
                if drain {
                    engine.drain(there);
                }
            }
            Event::Delivery(Delivery { id, payload, .. }) => {
                engine.send(there, id.0, payload, false);
            }
            Event::Outcome { token, outcome: Some(outcome), settled, .. } => {
                let id = bulla_amqp::DeliveryId::from_bits(token as u32);
                engine.pass_on(there, id, Some(outcomes::state(outcome, None)), settled);
            }
            _ => {}
        }
    }
}

/// The link that the core would hear of.
fn link_of(event: &Event) -> Option<LinkId> {
    match event {
        Event::Delivery(delivery) => Some(delivery.link),
        Event::Credit { link, .. } | Event::Outcome { link, .. } | Event::Detached { link, .. } => Some(*link),
        _ => None,
    }
}

/// What an owner says of an error. One that gives no reason has broken off.
fn failure(error: Option<Error>) -> Failure {
    let said = error.map(outcomes::said);
    match said {
        Some(said) if said.reason.is_some() => Failure::Said(said),
        said => {
            let detail = said.map_or_else(|| GONE.to_owned(), |said| said.to_string());
            Refusal::new(reason::CONNECTION_BROKEN, detail).into()
        }
    }
}

impl Http {
    /// What the core is to hear. None where it is the owner's business.
    pub(super) fn for_core(&mut self, event: Event) -> Option<Event> {
        let Some(link) = link_of(&event) else { return Some(event) };
        let credit = self.credit(link);
        let mut owners = self.forwarding.iter_mut().flat_map(|forwarding| &mut forwarding.owners);
        match owners.find(|owner| owner.has(link)) {
            Some(owner) => {
                owner.take(link, event, credit);
                None
            }
            None => Some(event),
        }
    }

    /// Whether a link waits for an owner that has not answered.
    pub(super) fn waits_for_owner(&self, link: LinkId) -> bool {
        let is_open = self.kept.iter().any(|kept| kept.link == link);
        !is_open && self.forwarding.as_ref().is_some_and(|all| all.owners.iter().any(|owner| owner.has(link)))
    }

    /// Another user signs in: links to owners end, as the core's do. What was said on them before is said.
    pub(super) fn retire_owners(&mut self) {
        self.tell_owners();
        for owner in self.forwarding.iter_mut().flat_map(|forwarding| &mut forwarding.owners) {
            owner.is_retired = true;
            owner.take_links();
            if let Some(connection) = &mut owner.connection {
                connection.inner.close(None);
            }
        }
    }

    /// Owners hear at once what is for them.
    fn tell_owners(&mut self) {
        for event in std::mem::take(&mut self.events) {
            let event = self.for_core(event);
            self.events.extend(event);
        }
    }

    fn owner(&mut self, id: OwnerId) -> Option<&mut Owner> {
        self.forwarding.as_mut()?.owners.iter_mut().find(|owner| owner.call.owner == id)
    }

    fn engine(&mut self, id: OwnerId) -> Option<&mut Connection> {
        self.owner(id)?.connection.as_mut().map(|connection| &mut connection.inner)
    }

    /// An owner has said something.
    fn heard(&mut self, id: OwnerId, event: EngineEvent) {
        let Some(owner) = self.owner(id) else { return };
        match event {
            EngineEvent::LinkOpened(opened) => {
                let told = Some(opened.max_message_size).filter(|bytes| *bytes > 0);
                let message_bytes_max = Some(told.unwrap_or(MESSAGE_BYTES_MAX));
                if let Some(here) = owner.here(opened.link) {
                    let granted = Granted { message_bytes_max, ..Granted::default() };
                    self.accept_link(here, granted);
                }
            }
            EngineEvent::Detached { link, error, .. } => {
                if let Some(here) = owner.here(link) {
                    owner.links.retain(|(_, there)| *there != link);
                    self.refuse_for(here, &failure(error));
                }
            }
            EngineEvent::SessionEnded(_, error) | EngineEvent::Closed(error) => self.lose(id, &failure(error)),
            EngineEvent::Credit { link, credit, .. } => {
                if let Some(here) = owner.here(link) {
                    self.set_credit(here, credit);
                }
            }
            EngineEvent::Flowed { link } => {
                if let Some(here) = owner.here(link) {
                    self.drained(here);
                }
            }
            EngineEvent::Delivery(delivery) => {
                let bulla_amqp::Delivery { link, id: message, payload, settled, .. } = delivery;
                let here = owner.here(link);
                let token = u64::from(message.to_bits());
                let is_taken = here.is_some_and(|here| self.give(here, token, payload, settled));
                if !is_taken
                    && !settled
                    && let Some(engine) = self.engine(id)
                {
                    engine.pass_on(link, message, Some(DeliveryState::Released), true);
                }
            }
            EngineEvent::Outcome { link, token, state, settled } => {
                let here = owner.here(link);
                if !settled && let Some(engine) = self.engine(id) {
                    engine.settle(link, token, state.clone().unwrap_or(DeliveryState::Accepted));
                }
                if let Some(here) = here {
                    self.answered(here, DeliveryId(token), state);
                }
            }
            _ => {}
        }
    }

    /// An owner has answered a put.
    fn answered(&mut self, link: LinkId, id: DeliveryId, state: Option<DeliveryState>) {
        let before = match &state {
            Some(DeliveryState::Rejected(Some(error))) => links::was_put_before(error),
            _ => None,
        };
        let outcome = match before {
            Some(message_id) => {
                self.put_before(link, id, message_id);
                MessageOutcome::Accepted
            }
            None => outcomes::outcome(state).0.unwrap_or(MessageOutcome::Released),
        };
        self.answer(link, id, outcome, None);
    }

    /// A connection to an owner is gone, and its links with it.
    fn lose(&mut self, id: OwnerId, why: &Failure) {
        let Some(forwarding) = &mut self.forwarding else { return };
        let Some(place) = forwarding.owners.iter().position(|owner| owner.call.owner == id) else { return };
        for link in forwarding.owners.remove(place).take_links() {
            self.refuse_for(link, why);
        }
    }
}

impl Forwards for Http {
    fn forward(&mut self, link: LinkId, why: &Refusal) -> bool {
        let Some(Elsewhere { host, port, queue, way: Way::Forwarded(forwarded) }) = why.elsewhere.as_deref() else {
            return false;
        };
        let Some((_, wish)) = self.wish.take().filter(|(asked, _)| *asked == link) else { return false };
        let forwarding = self.forwarding.get_or_insert_default();
        // The user is part of what is compared. An owner that is gone may not have been missed yet.
        let is_its = |owner: &&mut Owner| {
            let OwnerCall { host: known, port: at, forwarded: same, .. } = &owner.call;
            !owner.is_retired && (known, at, same) == (host, port, forwarded)
        };
        match forwarding.owners.iter_mut().find(is_its) {
            Some(owner) => owner.attach(link, queue.clone(), wish),
            None => {
                forwarding.last += 1;
                let (host, port, forwarded) = (host.clone(), *port, forwarded.clone());
                let mut owner = Owner::new(OwnerCall { owner: OwnerId(forwarding.last), host, port, forwarded });
                owner.attach(link, queue.clone(), wish);
                forwarding.owners.push(owner);
            }
        }
        true
    }

    /// Each link is to one queue.
    fn forward_message(&mut self, _: Delivery, _: &Refusal) -> bool {
        false
    }

    fn take_call(&mut self) -> Option<OwnerCall> {
        let owner = self.forwarding.as_mut()?.owners.iter_mut().find(|owner| !owner.is_called)?;
        owner.is_called = true;
        Some(owner.call.clone())
    }

    fn called(&mut self, id: OwnerId, ticket: Result<Ticket, Refusal>, now: Instant) {
        let owner = self.owner(id).filter(|owner| !owner.is_retired);
        match (ticket, owner) {
            (Ok(ticket), Some(owner)) => owner.begin(&ticket, now),
            (Ok(_), None) => self.lose(id, &failure(None)),
            (Err(refusal), _) => self.lose(id, &refusal.into()),
        }
    }

    fn wire(&mut self, id: OwnerId) -> Option<&mut dyn Wire> {
        let is_full = self.server.output_len() >= WAITING_BYTES_MAX;
        let connection = self.owner(id)?.connection.as_mut()?;
        connection.is_full = is_full;
        Some(connection)
    }

    fn look(&mut self, id: OwnerId) {
        while let Some(event) = self.engine(id).and_then(Connection::poll_event) {
            self.heard(id, event);
        }
    }

    fn lost(&mut self, id: OwnerId, why: &Refusal) {
        self.lose(id, &why.clone().into());
    }

    fn take_over(&mut self, id: OwnerId) -> Option<Box<dyn Wire + Send>> {
        self.tell_owners();
        let forwarding = self.forwarding.as_mut()?;
        let place = forwarding.owners.iter().position(|owner| owner.call.owner == id)?;
        Some(closing(forwarding.owners.remove(place).connection?.inner))
    }
}
