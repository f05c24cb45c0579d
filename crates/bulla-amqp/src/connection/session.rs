//! Sessions: begin and end, windows, and dispositions (part 2, sections 2.5 and 2.6.12).

use super::link::LinkState;
use super::transfer::Waiting;
use super::{Connection, Phase};
use crate::codec::Encode;
use crate::condition;
use crate::deliveries::Deliveries;
use crate::event::{DeliveryId, Event, LinkId, SessionId};
use crate::lost::Lost;
use crate::types::{Begin, DeliveryState, Disposition, End, Error, Flow, ReceiverSettleMode, Role};
use std::collections::{HashMap, VecDeque};

/// Transfer frames that this side says it may send: no limit of its own.
const OUTGOING_WINDOW_FRAMES: u32 = i32::MAX as u32;
/// Bytes of the usual disposition frame.
pub(super) const DISPOSITION_BYTES: usize = 32;
/// Unsettled deliveries that dispositions of a peer may name without changing anything, beyond those
/// that they changed: a bound on its use of this side's CPU.
const IDLE_WALK_MAX: usize = 8 << 20;
/// Events that may wait for the host where a peer changes outcomes that the host was told of: each is an event again,
/// and one short frame may name as many deliveries as there are.
const EVENTS_AT_CHANGES_MAX: usize = 1 << 18;

/// Bytes of reasons and annotations that may wait for the host: each delivery that a disposition names has its own copy
/// of them.
const OUTCOME_BYTES_MAX: usize = 16 << 20;

/// One session. Its channel is its index in the connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) channel: u16,
    /// Once the peer has begun.
    remote_channel: Option<u16>,
    state: SessionState,
    pub(super) next_incoming_id: u32,
    /// Transfer frames that the peer may still send.
    pub(super) incoming_window: u32,
    pub(super) next_outgoing_id: u32,
    /// Transfer frames that may still be sent.
    pub(super) remote_window: u32,
    pub(super) next_delivery_id: u32,
    pub(super) last_incoming_delivery: Option<u32>,
    /// Links by the peer's handle.
    pub(super) remote_handles: Vec<Option<u32>>,
    /// Links by our handle.
    pub(super) local_handles: Vec<Option<u32>>,
    pub(super) remote_handle_max: u32,
    /// Proton gives a sender and a receiver the same name: the role is part of the key.
    pub(super) names: HashMap<(String, Role), u32>,
    pub(super) outgoing: Deliveries<Outgoing>,
    pub(super) incoming: Deliveries<Incoming>,
    /// Deliveries sent that went with their link.
    pub(super) lost: Lost,
    /// Deliveries whose receiver has an outcome and waits for our settlement, by link and token.
    pub(super) answered: HashMap<(u32, u64), u32>,
    /// Deliveries that wait for window or output.
    pub(super) backlog: VecDeque<Waiting>,
    pending: Option<PendingDisposition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Open,
    /// The peer ended; the answer goes out when the host has polled the event.
    PeerEnded,
    /// We ended; the peer's answer is due. `told`: the host knows.
    Ended {
        told: bool,
    },
}

/// A delivery sent and not settled.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) link: u32,
    pub(super) token: u64,
    /// What the host knows of the receiver's outcome.
    pub(super) said: Said,
}

/// The last outcome of a receiver that the host was told of, as far as the same one need not be told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Accepted,
    Released,
    /// One with particulars, which may be others the next time.
    Particular,
}

impl Said {
    /// None for a state that is no outcome.
    fn of(state: Option<&DeliveryState>) -> Option<Self> {
        match state? {
            DeliveryState::Accepted => Some(Self::Accepted),
            DeliveryState::Released => Some(Self::Released),
            state => state.is_outcome().then_some(Self::Particular),
        }
    }
}

/// A delivery received and not settled.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) link: u32,
    /// Whether our outcome settles it (receiver-settle-mode *first*), whatever the link's mode is.
    pub(super) settles_first: bool,
    /// Whether the sender knows our outcome.
    pub(super) disposed: bool,
}

/// Dispositions of adjacent deliveries, not written yet.
#[derive(Debug)]
struct PendingDisposition {
    role: Role,
    first: u32,
    last: u32,
    settled: bool,
    state: Option<DeliveryState>,
}

impl Session {
    fn new(channel: u16, incoming_window: u32) -> Self {
        Self {
            channel,
            remote_channel: None,
            state: SessionState::Open,
            next_incoming_id: 0,
            incoming_window,
            next_outgoing_id: 0,
            remote_window: 0,
            next_delivery_id: 0,
            last_incoming_delivery: None,
            remote_handles: Vec::new(),
            local_handles: Vec::new(),
            remote_handle_max: u32::MAX,
            names: HashMap::new(),
            outgoing: Deliveries::new(),
            incoming: Deliveries::new(),
            lost: Lost::default(),
            answered: HashMap::new(),
            backlog: VecDeque::new(),
            pending: None,
        }
    }

    /// Whether nothing of the peer's counts any more.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.state, SessionState::Ended { .. })
    }

    /// Whether the host may still use it.
    pub(super) fn is_open(&self) -> bool {
        self.state == SessionState::Open
    }

    pub(super) fn remote_link(&self, handle: u32) -> Option<u32> {
        self.remote_handles.get(handle as usize).copied().flatten()
    }
}

impl Connection {
    /// Begins a session. `Event::SessionBegun` comes when the peer has answered; links may be attached
    /// before. When the peer allows no further channel, `Event::SessionEnded` comes instead.
    pub fn begin(&mut self) -> SessionId {
        let (index, generation) = self.sessions.insert(Session::new(0, self.config.limits.incoming_window));
        let id = SessionId { index, generation };
        match u16::try_from(index) {
            Ok(channel)
                if channel <= self.peer_channel_max && !matches!(self.phase, Phase::Closed | Phase::Closing) =>
            {
                if let Some(session) = self.sessions.at_mut(index) {
                    session.channel = channel;
                }
                self.emit_begin(index);
            }
            _ => {
                let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "the peer allows no further session");
                self.sessions.remove(index);
                self.events.push_back(Event::SessionEnded(id, Some(error)));
            }
        }
        id
    }

    fn emit_begin(&mut self, index: u32) {
        let Some(session) = self.sessions.at(index) else { return };
        let begin = Begin {
            remote_channel: session.remote_channel,
            next_outgoing_id: session.next_outgoing_id,
            incoming_window: session.incoming_window,
            outgoing_window: OUTGOING_WINDOW_FRAMES,
            handle_max: self.config.limits.session_links.saturating_sub(1),
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Vec::new(),
        };
        self.emit(session.channel, &begin);
    }

    pub(super) fn begin_in(&mut self, channel: u16, begin: &Begin) -> Result<(), Error> {
        if channel > self.config.channel_max {
            return Err(Error::new(condition::FRAMING_ERROR, "a channel over channel-max"));
        }
        let place = usize::from(channel);
        if self.channels.get(place).copied().flatten().is_some() {
            return Err(Error::new(condition::ILLEGAL_STATE, "a second begin on a channel"));
        }
        let index = match begin.remote_channel {
            Some(ours) => {
                let index = u32::from(ours);
                let fresh = self.sessions.at(index).is_some_and(|session| session.remote_channel.is_none());
                if !fresh {
                    return Err(Error::new(condition::INVALID_FIELD, "remote-channel names no session that was begun"));
                }
                index
            }
            None => self.accept_session()?,
        };
        if self.channels.len() <= place {
            self.channels.resize(place + 1, None);
        }
        if let Some(at) = self.channels.get_mut(place) {
            *at = Some(index);
        }
        let Some(session) = self.sessions.at_mut(index) else { return Ok(()) };
        session.remote_channel = Some(channel);
        session.next_incoming_id = begin.next_outgoing_id;
        session.remote_window = begin.incoming_window;
        session.remote_handle_max = begin.handle_max;
        let open = session.is_open();
        if begin.remote_channel.is_none() {
            self.emit_begin(index);
        }
        if open {
            self.events.push_back(Event::SessionBegun(self.session_id(index)));
        }
        Ok(())
    }

    /// A session that the peer began.
    fn accept_session(&mut self) -> Result<u32, Error> {
        if self.sessions.len() >= self.config.limits.sessions as usize {
            return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "too many sessions"));
        }
        let (index, _) = self.sessions.insert(Session::new(0, self.config.limits.incoming_window));
        match (u16::try_from(index), self.sessions.at_mut(index)) {
            (Ok(channel), Some(session)) if channel <= self.peer_channel_max => session.channel = channel,
            _ => {
                self.sessions.remove(index);
                return Err(Error::new(condition::NOT_ALLOWED, "the session needs a channel over your channel-max"));
            }
        }
        Ok(index)
    }

    /// Ends a session and its links. `Event::SessionEnded` comes when the peer has answered.
    pub fn end_session(&mut self, id: SessionId, error: Option<Error>) {
        if self.sessions.holds(id.index, id.generation) {
            self.finish_session(id.index, error, false);
        }
    }

    /// Ends a session for an error of the peer, and tells the host at once.
    pub(super) fn session_error(&mut self, index: u32, error: Error) {
        self.finish_session(index, Some(error.clone()), true);
        self.events.push_back(Event::SessionEnded(self.session_id(index), Some(error)));
    }

    fn finish_session(&mut self, index: u32, error: Option<Error>, told: bool) {
        self.flush_session(index);
        let Some(session) = self.sessions.at_mut(index) else { return };
        if session.state != SessionState::Open {
            return;
        }
        session.state = SessionState::Ended { told };
        let channel = session.channel;
        self.free_links(index);
        self.emit(channel, &End { error });
    }

    pub(super) fn end_in(&mut self, channel: u16, end: End) -> Result<(), Error> {
        self.session_on(channel)?;
        let Some(index) = self.channels.get_mut(usize::from(channel)).and_then(Option::take) else { return Ok(()) };
        let id = self.session_id(index);
        let Some(session) = self.sessions.at_mut(index) else { return Ok(()) };
        match session.state {
            SessionState::Ended { told } => {
                self.sessions.remove(index);
                if !told {
                    self.events.push_back(Event::SessionEnded(id, end.error));
                }
            }
            SessionState::Open | SessionState::PeerEnded => {
                session.state = SessionState::PeerEnded;
                self.events.push_back(Event::SessionEnded(id, end.error));
            }
        }
        Ok(())
    }

    pub(super) fn answer_end(&mut self, id: SessionId) {
        let ended = self.sessions.at(id.index).is_some_and(|session| session.state == SessionState::PeerEnded);
        if !ended || !self.sessions.holds(id.index, id.generation) {
            return;
        }
        self.flush_session(id.index);
        self.free_links(id.index);
        if let Some(session) = self.sessions.remove(id.index) {
            self.emit(session.channel, &End { error: None });
        }
    }

    /// Frees all links of a session, and with them all of its deliveries.
    fn free_links(&mut self, index: u32) {
        let Some(session) = self.sessions.at_mut(index) else { return };
        let links: Vec<u32> = session.local_handles.drain(..).flatten().collect();
        session.remote_handles.clear();
        session.names.clear();
        session.answered.clear();
        session.outgoing = Deliveries::new();
        session.incoming = Deliveries::new();
        if !session.backlog.is_empty() {
            session.backlog.clear();
            self.backlogged = self.backlogged.saturating_sub(1);
        }
        for link in links {
            self.leave_outcomes(link);
            if let Some(link) = self.links.remove(link) {
                self.in_progress = self.in_progress.saturating_sub(link.in_progress());
            }
        }
    }

    pub(super) fn flow_in(&mut self, channel: u16, flow: &Flow) -> Result<(), Error> {
        let Some(index) = self.session_on(channel)? else { return Ok(()) };
        let Some(session) = self.sessions.at_mut(index) else { return Ok(()) };
        // What is on its way counts against the window that the peer gives from its own point of view.
        let in_flight = session.next_outgoing_id.wrapping_sub(flow.next_incoming_id.unwrap_or(0));
        let was = std::mem::replace(&mut session.remote_window, flow.incoming_window.saturating_sub(in_flight));
        let reopened = was == 0 && session.remote_window > 0;
        let link = match flow.handle {
            Some(handle) => match session.remote_link(handle) {
                Some(link) => Some(link),
                None => {
                    self.session_error(index, unattached(handle));
                    return Ok(());
                }
            },
            None => None,
        };
        if reopened {
            self.resume(index);
            self.tell_credit(index);
        }
        match link {
            Some(link) => self.link_flow_in(link, flow),
            None if flow.echo => self.emit_flow(index, None),
            None => {}
        }
        Ok(())
    }

    /// Tells the host of all links that have credit: there is room in the session again.
    fn tell_credit(&mut self, index: u32) {
        let Some(session) = self.sessions.at(index) else { return };
        for link in session.local_handles.iter().flatten() {
            let id = self.link_id(*link);
            let Some(link) = self.links.at(*link) else { continue };
            if link.state == LinkState::Up && link.info.role == Role::Sender && link.info.credit > 0 {
                self.events.push_back(Event::Credit { link: id, credit: link.info.credit, drain: link.drain });
            }
        }
    }

    /// Writes a flow, of a link or of the session alone. Each renews the session's window.
    pub(super) fn emit_flow(&mut self, index: u32, link: Option<u32>) {
        let window = self.config.limits.incoming_window;
        let Some(session) = self.sessions.at_mut(index) else { return };
        session.incoming_window = window;
        let mut flow = Flow {
            next_incoming_id: session.remote_channel.map(|_| session.next_incoming_id),
            incoming_window: window,
            next_outgoing_id: session.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW_FRAMES,
            handle: None,
            delivery_count: None,
            link_credit: None,
            available: None,
            drain: false,
            echo: false,
            properties: Vec::new(),
        };
        let channel = session.channel;
        if let Some(link) = link.and_then(|link| self.links.at(link)) {
            flow.handle = Some(link.local_handle);
            flow.delivery_count = link.delivery_count_known().then_some(link.info.delivery_count);
            flow.link_credit = Some(link.info.credit);
            flow.drain = link.drain;
        }
        self.emit(channel, &flow);
    }

    /// Receiving link: the outcome of a delivery. It settles, or in receiver-settle-mode *second* waits
    /// for the sender to settle (`Event::Settled`). Adjacent equal ones become one frame when the
    /// output is taken. Costs a step in the usual order of ids.
    pub fn dispose(&mut self, link: LinkId, id: DeliveryId, state: DeliveryState) {
        let Some(link_index) = self.live(link) else { return };
        let Some(link) = self.links.at_mut(link_index) else { return };
        let session_index = link.info.session.index;
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        let settles_first = link.info.rcv_settle_mode == ReceiverSettleMode::First;
        let answered = session.incoming.visit_one(id.0, |delivery| {
            if delivery.link != link_index || delivery.disposed {
                return (false, None);
            }
            delivery.disposed = true;
            let settled = delivery.settles_first || settles_first;
            (settled, Some(settled))
        });
        let Some(Some(settled)) = answered else { return };
        if settled {
            link.info.unsettled = link.info.unsettled.saturating_sub(1);
        }
        if let Some(outcomes) = link.outcomes() {
            outcomes.answered(id.0, &state);
        }
        self.queue_disposition(session_index, Role::Receiver, id.0, settled, Some(state));
    }

    /// Receiving link: passes on another receiver's outcome of a delivery. It may be changed until either side has
    /// settled. Unless it is `settled`, it waits for the sender to settle (`Event::Settled`), whatever the link's mode
    /// is.
    pub fn pass_on(&mut self, link: LinkId, id: DeliveryId, state: Option<DeliveryState>, settled: bool) {
        let Some(link_index) = self.live(link) else { return };
        let Some(link) = self.links.at_mut(link_index) else { return };
        let session_index = link.info.session.index;
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        let is_its = session.incoming.visit_one(id.0, |delivery| {
            let is_its = delivery.link == link_index;
            (is_its && settled, Some(is_its))
        });
        if is_its != Some(Some(true)) {
            return;
        }
        if settled {
            link.info.unsettled = link.info.unsettled.saturating_sub(1);
        }
        self.queue_disposition(session_index, Role::Receiver, id.0, settled, state);
    }

    /// Sending link: settles a delivery after an outcome that the receiver had not settled.
    pub fn settle(&mut self, link: LinkId, token: u64, state: DeliveryState) {
        let Some(link_index) = self.live(link) else { return };
        let Some(link) = self.links.at_mut(link_index) else { return };
        let session_index = link.info.session.index;
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        let id = session
            .answered
            .remove(&(link_index, token))
            .or_else(|| session.outgoing.find(|delivery| delivery.link == link_index && delivery.token == token));
        let Some(id) = id else {
            if let Some(resends) = link.resends().filter(|resends| resends.tokens.contains(&token)) {
                resends.settled.push_back((token, state));
                self.resume_settled(link_index);
            }
            return;
        };
        if session.outgoing.remove(id).is_some() {
            link.info.unsettled = link.info.unsettled.saturating_sub(1);
            self.queue_disposition(session_index, Role::Sender, id, true, Some(state));
        }
    }

    #[inline]
    pub(super) fn queue_disposition(
        &mut self,
        index: u32,
        role: Role,
        id: u32,
        settled: bool,
        state: Option<DeliveryState>,
    ) {
        let Some(session) = self.sessions.at_mut(index) else { return };
        if let Some(pending) = &mut session.pending {
            let adjacent = pending.last.wrapping_add(1) == id;
            if adjacent && pending.role == role && pending.settled == settled && pending.state == state {
                pending.last = id;
                return;
            }
            self.flush_session(index);
        } else {
            self.unflushed.push(index);
        }
        if let Some(session) = self.sessions.at_mut(index) {
            session.pending = Some(PendingDisposition { role, first: id, last: id, settled, state });
        }
    }

    /// Writes the disposition that a session still gathers.
    pub(super) fn flush_session(&mut self, index: u32) {
        let Some(session) = self.sessions.at_mut(index) else { return };
        let Some(pending) = session.pending.take() else { return };
        let channel = session.channel;
        let disposition = Disposition {
            role: pending.role,
            first: pending.first,
            last: (pending.last != pending.first).then_some(pending.last),
            settled: pending.settled,
            state: pending.state,
            batchable: false,
        };
        self.emit(channel, &disposition);
    }

    /// Writes the outcomes that are still gathered. What is sent from then on comes behind them on other sessions, too:
    /// the end of a transaction comes after all that is part of it.
    pub fn write_outcomes(&mut self) {
        self.flush();
    }

    /// Writes all dispositions still gathered.
    pub(super) fn flush(&mut self) {
        while let Some(index) = self.unflushed.pop() {
            self.flush_session(index);
        }
    }

    pub(super) fn disposition_in(&mut self, channel: u16, disposition: Disposition) -> Result<(), Error> {
        let Some(index) = self.session_on(channel)? else {
            // All its deliveries went with the session.
            self.tell_of_lost(&disposition);
            return Ok(());
        };
        if self.events.is_empty() {
            self.outcome_bytes = 0;
        }
        let Disposition { role, first, last, .. } = disposition;
        let lost = self.sessions.at(index).is_some_and(|session| session.lost.has_of(first, last.unwrap_or(first)));
        if lost && role == Role::Receiver {
            self.tell_of_lost(&disposition);
        }
        match disposition.role {
            Role::Receiver => self.outcomes_in(index, &disposition)?,
            Role::Sender => self.settlements_in(index, &disposition),
        }
        if self.outcome_bytes > OUTCOME_BYTES_MAX {
            return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "outcomes with too many bytes of reasons"));
        }
        if self.idle_walk > IDLE_WALK_MAX {
            return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "dispositions that change nothing"));
        }
        Ok(())
    }

    /// A receiver's outcome has come too late to be applied: a transaction that it is part of must not commit.
    fn tell_of_lost(&mut self, disposition: &Disposition) {
        if let (Role::Receiver, Some(DeliveryState::Transactional { txn_id, .. })) =
            (disposition.role, &disposition.state)
        {
            self.events.push_back(Event::OutcomeLost { txn_id: txn_id.clone() });
        }
    }

    /// The receiver's word on what was sent: an event for each delivery that is not settled. A receiver may say another
    /// outcome until one side has settled (part 2, section 2.6.12), as it does where a unit of work was backed out.
    fn outcomes_in(&mut self, index: u32, disposition: &Disposition) -> Result<(), Error> {
        let Self { sessions, links, events, outcome_bytes, .. } = self;
        let Some(session) = sessions.at_mut(index) else { return Ok(()) };
        let Disposition { first, last, settled, state, .. } = disposition;
        let says = Said::of(state.as_ref());
        let copied = state.as_ref().map_or(0, bytes_copied);
        let answered = &mut session.answered;
        let (mut changed, mut is_too_much) = (0, false);
        let visited = session.outgoing.visit(*first, last.unwrap_or(*first), |id, delivery| {
            let is_news = says.is_some_and(|says| says != delivery.said || says == Said::Particular);
            if !*settled && !is_news {
                return false;
            }
            let is_answered = delivery.said != Said::Nothing;
            if is_answered && events.len() >= EVENTS_AT_CHANGES_MAX {
                is_too_much = true;
                return false;
            }
            *outcome_bytes += copied;
            if *outcome_bytes > OUTCOME_BYTES_MAX {
                return false;
            }
            changed += usize::from(*settled || !is_answered);
            let key = (delivery.link, delivery.token);
            if *settled {
                if is_answered {
                    answered.remove(&key);
                }
                if let Some(link) = links.at_mut(delivery.link) {
                    link.info.unsettled = link.info.unsettled.saturating_sub(1);
                }
            } else if let Some(says) = says {
                delivery.said = says;
                answered.insert(key, id);
            }
            let link = LinkId { index: delivery.link, generation: links.generation(delivery.link) };
            let state = match says {
                None => None,
                Some(Said::Accepted) => Some(DeliveryState::Accepted),
                Some(_) => state.clone(),
            };
            events.push_back(Event::Outcome { link, token: delivery.token, state, settled: *settled });
            *settled
        });
        self.count_walk(visited, changed);
        if is_too_much {
            return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "outcomes that are changed again and again"));
        }
        Ok(())
    }

    /// The sender's word on what was received: it has settled.
    fn settlements_in(&mut self, index: u32, disposition: &Disposition) {
        if !disposition.settled {
            return;
        }
        let Self { sessions, links, events, outcome_bytes, .. } = self;
        let Some(session) = sessions.at_mut(index) else { return };
        let copied = disposition.state.as_ref().map_or(0, bytes_copied);
        let mut changed = 0;
        let last = disposition.last.unwrap_or(disposition.first);
        let visited = session.incoming.visit(disposition.first, last, |id, delivery| {
            *outcome_bytes += copied;
            if *outcome_bytes > OUTCOME_BYTES_MAX {
                return false;
            }
            changed += 1;
            if let Some(link) = links.at_mut(delivery.link) {
                link.info.unsettled = link.info.unsettled.saturating_sub(1);
                if let Some(outcomes) = link.outcomes() {
                    outcomes.settled(id);
                }
            }
            let link = LinkId { index: delivery.link, generation: links.generation(delivery.link) };
            events.push_back(Event::Settled { link, id: DeliveryId(id), state: disposition.state.clone() });
            true
        });
        self.count_walk(visited, changed);
    }

    fn count_walk(&mut self, visited: usize, changed: usize) {
        self.idle_walk = (self.idle_walk + visited).saturating_sub(2 * changed);
    }
}

/// Bytes that each copy of a state has of its own: what it says beyond its name, as long as it was on the wire.
fn bytes_copied(state: &DeliveryState) -> usize {
    match state {
        DeliveryState::Rejected(None) => 0,
        DeliveryState::Modified { message_annotations, .. } if message_annotations.is_empty() => 0,
        DeliveryState::Rejected(Some(_)) | DeliveryState::Modified { .. } => {
            let mut encoded = Vec::new();
            state.encode(&mut encoded);
            encoded.len()
        }
        DeliveryState::Transactional { outcome: Some(outcome), .. } => bytes_copied(outcome),
        _ => 0,
    }
}

pub(super) fn unattached(handle: u32) -> Error {
    Error::new(condition::UNATTACHED_HANDLE, format!("no link has handle {handle}"))
}
