//! Links: attach and detach, credit and drain (part 2, section 2.6).

use super::Connection;
use super::session::{Session, unattached};
use super::transfer::{Assembly, Waiting};
use crate::codec::Encode;
use crate::condition;
use crate::event::{AttachReply, AttachRequest, Event, IncomingAttach, LinkId, LinkInfo, LinkOpened, SessionId};
use crate::output::FRAME_HEADER_BYTES;
use crate::types::{AnyTarget, Attach, Coordinator, Detach, Error, Flow, Role, Target};
use crate::unsettled::{KeptOutcome, Outcomes, Resends, Resumption};
use crate::value::Value;

/// Longest name of a link, in bytes.
pub const LINK_NAME_BYTES_MAX: usize = 1_024;

/// Bytes of the head of an unsettled map, with what its presence adds to the list that it is in.
const MAP_HEAD_BYTES: usize = 24;

/// Property of a flow by which deliveries to come are acquired in a transaction (part 4, section 4.4.3).
const TXN_ID: &str = "txn-id";

#[derive(Debug)]
pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) local_handle: u32,
    remote_handle: Option<u32>,
    pub(super) state: LinkState,
    /// Whether our attach went out.
    attach_sent: bool,
    /// Sending: the peer wants its credit consumed. Receiving: we asked for that.
    pub(super) drain: bool,
    /// A message of which the last frame is still to come.
    pub(super) assembly: Option<Box<Assembly>>,
    /// Deliveries in the session's backlog.
    pub(super) waiting: u32,
    /// Whether the host wants the tags of deliveries.
    pub(super) keeps_tags: bool,
    /// What a link has whose deliveries may be resumed.
    pub(super) resumption: Option<Box<Resumption>>,
    /// One of the two unsettled maps was cut short: no new deliveries on this attachment.
    pub(super) resumes_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Our attach went out; the peer's is due.
    Attaching,
    /// The peer's attach came; the host's answer is due.
    Asked,
    Up,
    /// The peer detached; the answer goes out when the host has polled the event.
    PeerDetached {
        closed: bool,
    },
    /// Our detach went out; the peer's is due. `told`: the host knows.
    Detaching {
        told: bool,
    },
}

impl Link {
    pub(super) fn in_progress(&self) -> u64 {
        self.assembly.as_ref().map_or(0, |assembly| assembly.len())
    }

    /// What a resumable receiving link keeps.
    #[inline]
    pub(super) fn outcomes(&mut self) -> Option<&mut Outcomes> {
        match self.resumption.as_deref_mut() {
            Some(Resumption::Receiving(outcomes)) => Some(outcomes),
            _ => None,
        }
    }

    /// What a resumable sending link has still to resume.
    #[inline]
    pub(super) fn resends(&mut self) -> Option<&mut Resends> {
        match self.resumption.as_deref_mut() {
            Some(Resumption::Sending(resends)) => Some(resends),
            _ => None,
        }
    }

    /// Whether the sending end's delivery-count has been told.
    pub(super) fn delivery_count_known(&self) -> bool {
        self.info.role == Role::Sender || self.state != LinkState::Attaching
    }
}

impl Connection {
    /// Attaches a link. `Event::LinkOpened` comes when the peer has agreed, `Event::Detached` when not.
    pub fn attach(&mut self, session: SessionId, request: AttachRequest) -> LinkId {
        let info = LinkInfo {
            session,
            name: request.name.clone(),
            role: request.role,
            snd_settle_mode: request.snd_settle_mode,
            rcv_settle_mode: request.rcv_settle_mode,
            max_message_size: request.max_message_size,
            peer_max_message_size: 0,
            credit: 0,
            delivery_count: 0,
            unsettled: 0,
        };
        let open = self.sessions.holds(session.index, session.generation)
            && self.sessions.at(session.index).is_some_and(|session| session.is_open());
        let (index, generation) = self.links.insert(Link {
            info,
            local_handle: 0,
            remote_handle: None,
            state: LinkState::Attaching,
            attach_sent: true,
            drain: false,
            assembly: None,
            waiting: 0,
            keeps_tags: false,
            resumption: None,
            resumes_only: false,
        });
        let id = LinkId { index, generation };
        let taken = self
            .sessions
            .at(session.index)
            .is_some_and(|session| session.names.contains_key(&(request.name.clone(), request.role)));
        if !open || taken || !self.assign_handle(index) {
            self.links.remove(index);
            let text = if taken { "the link is attached already" } else { "the session takes no further link" };
            let error = Some(Error::new(condition::NOT_ALLOWED, text));
            self.events.push_back(Event::Detached { link: id, closed: true, error });
            return id;
        }
        if let Some(session) = self.sessions.at_mut(session.index) {
            session.names.insert((request.name, request.role), index);
        }
        let target = any_target(request.target, request.coordinator);
        self.emit_attach(index, |attach| {
            attach.source = request.source;
            attach.target = target;
            attach.properties = request.properties;
            attach.offered_capabilities = request.offered_capabilities;
            attach.desired_capabilities = request.desired_capabilities;
        });
        id
    }

    /// Gives a link the lowest free handle of its session; false when the peer allows no more.
    fn assign_handle(&mut self, index: u32) -> bool {
        let Some(link) = self.links.at_mut(index) else { return false };
        let Some(session) = self.sessions.at_mut(link.info.session.index) else { return false };
        let handles = &mut session.local_handles;
        let place = handles.iter().position(Option::is_none).unwrap_or(handles.len());
        let Ok(handle) = u32::try_from(place) else { return false };
        if handle > session.remote_handle_max {
            return false;
        }
        match handles.get_mut(place) {
            Some(at) => *at = Some(index),
            None => handles.push(Some(index)),
        }
        link.local_handle = handle;
        true
    }

    /// Writes our attach: what the link knows, and what `fill` adds.
    fn emit_attach(&mut self, index: u32, fill: impl FnOnce(&mut Attach)) {
        let Some(link) = self.links.at_mut(index) else { return };
        link.attach_sent = true;
        let mut attach = Attach {
            name: link.info.name.clone(),
            handle: link.local_handle,
            role: link.info.role,
            snd_settle_mode: link.info.snd_settle_mode,
            rcv_settle_mode: link.info.rcv_settle_mode,
            source: None,
            target: None,
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: (link.info.role == Role::Sender).then_some(link.info.delivery_count),
            max_message_size: (link.info.max_message_size > 0).then_some(link.info.max_message_size),
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: Vec::new(),
        };
        fill(&mut attach);
        let Some(session) = self.sessions.at(link.info.session.index) else { return };
        let channel = session.channel;
        self.emit(channel, &attach);
    }

    pub(super) fn attach_in(&mut self, channel: u16, attach: Attach) -> Result<(), Error> {
        let Some(session_index) = self.session_on(channel)? else { return Ok(()) };
        if attach.handle >= self.config.limits.session_links {
            return Err(Error::new(condition::FRAMING_ERROR, "a handle over handle-max"));
        }
        let Some(session) = self.sessions.at_mut(session_index) else { return Ok(()) };
        let place = attach.handle as usize;
        if session.remote_link(attach.handle).is_some() {
            let text = format!("handle {} is in use", attach.handle);
            self.session_error(session_index, Error::new(condition::HANDLE_IN_USE, text));
            return Ok(());
        }
        if attach.name.len() > LINK_NAME_BYTES_MAX {
            self.session_error(session_index, Error::new(condition::INVALID_FIELD, "the link's name is too long"));
            return Ok(());
        }
        if session.remote_handles.len() <= place {
            session.remote_handles.resize(place + 1, None);
        }
        let role = attach.role.other();
        let known = session.names.get(&(attach.name.clone(), role)).copied();
        let answers = known.filter(|index| self.links.at(*index).is_some_and(|link| link.remote_handle.is_none()));
        match answers {
            Some(index) => {
                self.set_remote_handle(session_index, attach.handle, index);
                self.attach_answered(index, attach);
                Ok(())
            }
            None => self.attach_asked(session_index, attach, known.is_some()),
        }
    }

    fn set_remote_handle(&mut self, session_index: u32, handle: u32, index: u32) {
        if let Some(session) = self.sessions.at_mut(session_index)
            && let Some(at) = session.remote_handles.get_mut(handle as usize)
        {
            *at = Some(index);
        }
    }

    /// The peer's answer to our attach.
    fn attach_answered(&mut self, index: u32, attach: Attach) {
        let id = self.link_id(index);
        let Some(link) = self.links.at_mut(index) else { return };
        link.remote_handle = Some(attach.handle);
        if link.state != LinkState::Attaching {
            return; // detached from here in the meantime
        }
        link.state = LinkState::Up;
        link.info.snd_settle_mode = attach.snd_settle_mode;
        link.info.rcv_settle_mode = attach.rcv_settle_mode;
        link.info.peer_max_message_size = attach.max_message_size.unwrap_or(0);
        let refused = match link.info.role {
            Role::Sender => attach.target.is_none(),
            Role::Receiver => {
                link.info.delivery_count = attach.initial_delivery_count.unwrap_or(0);
                attach.source.is_none()
            }
        };
        if refused {
            return; // its detach follows
        }
        self.events.push_back(Event::LinkOpened(Box::new(LinkOpened {
            link: id,
            source: attach.source,
            target: attach.target,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            properties: attach.properties,
            offered_capabilities: attach.offered_capabilities,
            desired_capabilities: attach.desired_capabilities,
            max_message_size: attach.max_message_size.unwrap_or(0),
        })));
    }

    /// A link that the peer wants.
    fn attach_asked(&mut self, session_index: u32, attach: Attach, name_taken: bool) -> Result<(), Error> {
        if self.links.len() >= self.config.limits.connection_links as usize {
            let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "too many links");
            self.session_error(session_index, error);
            return Ok(());
        }
        let session = self.session_id(session_index);
        let role = attach.role.other();
        let (index, generation) = self.links.insert(Link {
            info: LinkInfo {
                session,
                name: attach.name.clone(),
                role,
                snd_settle_mode: attach.snd_settle_mode,
                rcv_settle_mode: attach.rcv_settle_mode,
                max_message_size: 0,
                peer_max_message_size: attach.max_message_size.unwrap_or(0),
                credit: 0,
                delivery_count: attach.initial_delivery_count.filter(|_| role == Role::Receiver).unwrap_or(0),
                unsettled: 0,
            },
            local_handle: 0,
            remote_handle: Some(attach.handle),
            state: LinkState::Asked,
            attach_sent: false,
            drain: false,
            assembly: None,
            waiting: 0,
            keeps_tags: false,
            resumption: None,
            resumes_only: attach.incomplete_unsettled,
        });
        let link = LinkId { index, generation };
        if !self.assign_handle(index) {
            self.links.remove(index);
            let error = Error::new(condition::NOT_ALLOWED, "the link needs a handle over your handle-max");
            self.session_error(session_index, error);
            return Ok(());
        }
        self.set_remote_handle(session_index, attach.handle, index);
        if name_taken {
            self.refuse_link(link, Error::new(condition::NOT_ALLOWED, "a link of that name and role is attached"));
            return Ok(());
        }
        if let Some(session) = self.sessions.at_mut(session_index) {
            session.names.insert((attach.name.clone(), role), index);
        }
        self.events.push_back(Event::Attached(Box::new(IncomingAttach {
            link,
            session,
            name: attach.name,
            role,
            source: attach.source,
            target: attach.target,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            properties: attach.properties,
            offered_capabilities: attach.offered_capabilities,
            desired_capabilities: attach.desired_capabilities,
            max_message_size: attach.max_message_size.unwrap_or(0),
            unsettled: attach.unsettled,
            incomplete_unsettled: attach.incomplete_unsettled,
        })));
        Ok(())
    }

    /// Answers `Event::Attached`: the link is there, without credit yet.
    pub fn accept_link(&mut self, link: LinkId, reply: AttachReply) {
        let Some(index) = self.live(link) else { return };
        let Some(state) = self.links.at_mut(index) else { return };
        if state.attach_sent {
            return;
        }
        state.info.max_message_size = reply.max_message_size;
        state.keeps_tags = reply.keeps_tags;
        if state.state == LinkState::Asked {
            state.state = LinkState::Up;
        }
        let LinkInfo { role, credit, .. } = state.info;
        if reply.resumable || reply.unsettled.is_some() {
            state.resumption = Some(Box::new(match role {
                Role::Receiver => Resumption::Receiving(Outcomes::new(reply.unsettled.as_ref(), reply.resumable)),
                Role::Sender => Resumption::Sending(Resends::new(reply.resumed)),
            }));
            state.keeps_tags = true;
        }
        let (up, drain) = (state.state == LinkState::Up, state.drain);
        let (frame_bytes, mut is_cut) = (self.peer_max_frame, false);
        self.emit_attach(index, |attach| {
            attach.source = reply.source;
            attach.target = any_target(reply.target, reply.coordinator);
            attach.offered_capabilities = reply.offered_capabilities;
            attach.properties = reply.properties;
            attach.max_message_size = reply.told_max_message_size.or(attach.max_message_size);
            if let Some(mut unsettled) = reply.unsettled {
                let mut others = Vec::new();
                attach.encode(&mut others);
                is_cut = unsettled.cut(frame_bytes.saturating_sub(FRAME_HEADER_BYTES + others.len() + MAP_HEAD_BYTES));
                (attach.unsettled, attach.incomplete_unsettled) = (Some(unsettled), is_cut);
            }
        });
        if let Some(state) = self.links.at_mut(index) {
            state.resumes_only |= is_cut;
        }
        if up && role == Role::Sender && (credit > 0 || drain) {
            self.events.push_back(Event::Credit { link, credit, drain }); // it came ahead
        }
    }

    /// Answers `Event::Attached`: attaches with neither source nor target, then detaches with the error.
    pub fn refuse_link(&mut self, link: LinkId, error: Error) {
        let Some(index) = self.live(link) else { return };
        if self.links.at(index).is_some_and(|link| !link.attach_sent) {
            self.finish_link(index, true, Some(error), true);
        }
    }

    /// Detaches a link. `Event::Detached` comes when the peer has answered.
    pub fn detach(&mut self, link: LinkId, closed: bool, error: Option<Error>) {
        if let Some(index) = self.live(link) {
            self.finish_link(index, closed, error, false);
        }
    }

    /// Detaches a link for an error of the peer, and tells the host at once.
    pub(super) fn link_error(&mut self, index: u32, error: Error) {
        let link = self.link_id(index);
        self.finish_link(index, true, Some(error.clone()), true);
        self.events.push_back(Event::Detached { link, closed: true, error: Some(error) });
    }

    fn finish_link(&mut self, index: u32, closed: bool, error: Option<Error>, told: bool) {
        let Some(link) = self.links.at_mut(index) else { return };
        if matches!(link.state, LinkState::PeerDetached { .. } | LinkState::Detaching { .. }) {
            return;
        }
        link.state = LinkState::Detaching { told };
        let (handle, attach_sent, session_index) = (link.local_handle, link.attach_sent, link.info.session.index);
        let key = (link.info.name.clone(), link.info.role);
        // While the peer's attach is still due, the name is what that is known by.
        let attached = link.remote_handle.is_some();
        if !attach_sent {
            self.emit_attach(index, |_| {});
        }
        self.flush_session(session_index);
        self.forget_deliveries(index);
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        if attached && session.names.get(&key) == Some(&index) {
            // Free at once: python-proton attaches anew under the name before it answers the detach.
            session.names.remove(&key);
        }
        let channel = session.channel;
        self.emit(channel, &Detach { handle, closed, error });
    }

    pub(super) fn detach_in(&mut self, channel: u16, detach: Detach) -> Result<(), Error> {
        let Some(session_index) = self.session_on(channel)? else { return Ok(()) };
        let Some(session) = self.sessions.at_mut(session_index) else { return Ok(()) };
        let taken = session.remote_handles.get_mut(detach.handle as usize).and_then(Option::take);
        let Some(index) = taken else {
            self.session_error(session_index, unattached(detach.handle));
            return Ok(());
        };
        let id = self.link_id(index);
        let (Some(link), Some(session)) = (self.links.at_mut(index), self.sessions.at_mut(session_index)) else {
            return Ok(());
        };
        let key = (link.info.name.clone(), link.info.role);
        if session.names.get(&key) == Some(&index) {
            session.names.remove(&key); // the name is free at once: a new attach may follow
        }
        let Detach { closed, error, .. } = detach;
        match link.state {
            LinkState::Detaching { told } => {
                self.free_link(index);
                if !told {
                    self.events.push_back(Event::Detached { link: id, closed, error });
                }
            }
            _ => {
                link.state = LinkState::PeerDetached { closed };
                self.drop_output(index);
                self.events.push_back(Event::Detached { link: id, closed, error });
            }
        }
        Ok(())
    }

    /// Whether a link sends no new deliveries, because one of the two unsettled maps of its attach was cut short (part
    /// 2, section 2.7.3): it resumes some, and is attached again for the others.
    pub fn resumes_only(&self, link: LinkId) -> bool {
        self.live(link).and_then(|index| self.links.at(index)).is_some_and(|link| link.resumes_only)
    }

    /// Receiving link that was accepted as resumable: takes what it knows of deliveries that the sender may take for
    /// unsettled. Also right after the peer has detached it without closing it, or has ended its session.
    pub fn take_outcomes(&mut self, link: LinkId) -> Vec<KeptOutcome> {
        let place = self.left.iter().position(|(id, _)| *id == link);
        let kept = match (place, self.live(link)) {
            (Some(place), _) => Some(self.left.swap_remove(place).1),
            (None, Some(index)) => self.links.at_mut(index).and_then(Link::outcomes).map(std::mem::take),
            (None, None) => None,
        };
        kept.map(Outcomes::into_kept).unwrap_or_default()
    }

    /// A link ends and is not closed: what a later attachment may want of it is kept for the host.
    pub(super) fn leave_outcomes(&mut self, index: u32) {
        let id = self.link_id(index);
        let outcomes = self.links.at_mut(index).and_then(Link::outcomes);
        if let Some(outcomes) = outcomes.filter(|outcomes| outcomes.is_resumable) {
            self.left.push((id, std::mem::take(outcomes)));
        }
    }

    pub(super) fn answer_detach(&mut self, id: LinkId) {
        let Some(index) = self.live(id) else { return };
        let Some(link) = self.links.at(index) else { return };
        let LinkState::PeerDetached { closed } = link.state else { return };
        let (handle, attach_sent, session_index) = (link.local_handle, link.attach_sent, link.info.session.index);
        if !attach_sent {
            self.emit_attach(index, |_| {});
        }
        self.flush_session(session_index);
        if !closed {
            self.leave_outcomes(index);
        }
        self.free_link(index);
        let Some(session) = self.sessions.at(session_index) else { return };
        let channel = session.channel;
        self.emit(channel, &Detach { handle, closed, error: None });
    }

    fn free_link(&mut self, index: u32) {
        self.forget_deliveries(index);
        let Some(link) = self.links.remove(index) else { return };
        let Some(session) = self.sessions.at_mut(link.info.session.index) else { return };
        if let Some(at) = session.local_handles.get_mut(link.local_handle as usize) {
            *at = None;
        }
        let key = (link.info.name, link.info.role);
        if session.names.get(&key) == Some(&index) {
            session.names.remove(&key);
        }
    }

    /// Forgets a link's unsettled deliveries, and what of it is half sent or half received.
    fn forget_deliveries(&mut self, index: u32) {
        self.drop_output(index);
        let Some(link) = self.links.at_mut(index) else { return };
        self.in_progress = self.in_progress.saturating_sub(link.in_progress());
        link.assembly = None;
        let unsettled = std::mem::take(&mut link.info.unsettled);
        let Some(session) = self.sessions.at_mut(link.info.session.index) else { return };
        if unsettled > 0 {
            match link.info.role {
                Role::Sender => {
                    let Session { outgoing, lost, .. } = session;
                    outgoing.remove_where(|id, delivery| {
                        let is_its = delivery.link == index;
                        if is_its {
                            lost.insert(id);
                        }
                        is_its
                    });
                    session.answered.retain(|(link, _), _| *link != index);
                }
                Role::Receiver => session.incoming.remove_where(|_, delivery| delivery.link == index),
            }
        }
    }

    /// Takes a link's deliveries out of the backlog: they end with it.
    fn drop_output(&mut self, index: u32) {
        let Some(link) = self.links.at_mut(index) else { return };
        if std::mem::take(&mut link.waiting) == 0 {
            return;
        }
        let session_index = link.info.session.index;
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        session.backlog.retain(|waiting| waiting.link() != index);
        if session.backlog.is_empty() {
            self.backlogged = self.backlogged.saturating_sub(1);
        }
    }

    /// Receiving link: sets how many more messages the sender may send, and tells it. Nothing is sent
    /// when that is what it has already.
    pub fn set_credit(&mut self, link: LinkId, credit: u32) {
        let Some(index) = self.live(link) else { return };
        let Some(link) = self.links.at_mut(index) else { return };
        let may = matches!(link.state, LinkState::Up | LinkState::Attaching) && link.info.role == Role::Receiver;
        if may && link.info.credit != credit {
            link.info.credit = credit;
            let session = link.info.session.index;
            self.emit_flow(session, Some(index));
        }
    }

    /// Receiving link: asks the sender to send what it has and to give up the rest of the credit.
    /// `Event::Flowed` comes with its answer.
    pub fn drain(&mut self, link: LinkId) {
        let Some(index) = self.live(link) else { return };
        let Some(link) = self.links.at_mut(index) else { return };
        let may = matches!(link.state, LinkState::Up | LinkState::Attaching) && link.info.role == Role::Receiver;
        if may {
            link.drain = true;
            let session = link.info.session.index;
            self.emit_flow(session, Some(index));
        }
    }

    /// Credit outstanding on a link, whichever end it is; 0 for one that is gone.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.link(link).map_or(0, |info| info.credit)
    }

    /// Sending link: there is nothing more to send. If the peer asked for a drain, the rest of its
    /// credit is consumed and it is told so, after all that was sent; otherwise nothing happens.
    pub fn drained(&mut self, link: LinkId) {
        let Some(index) = self.live(link) else { return };
        let Some(link) = self.links.at_mut(index) else { return };
        if !link.drain || link.info.role != Role::Sender || link.state != LinkState::Up {
            return;
        }
        link.info.delivery_count = link.info.delivery_count.wrapping_add(link.info.credit);
        link.info.credit = 0;
        if link.waiting > 0 {
            link.waiting += 1;
            let Some(session) = self.sessions.at_mut(link.info.session.index) else { return };
            session.backlog.push_back(Waiting::Drained { link: index });
        } else {
            self.emit_drained(index);
        }
    }

    /// Sending link: whether a message that was sent waits for window or output, as a whole or in part.
    pub fn is_sending(&self, link: LinkId) -> bool {
        self.live(link).and_then(|index| self.links.at(index)).is_some_and(|link| link.waiting > 0)
    }

    pub(super) fn emit_drained(&mut self, index: u32) {
        let Some(session) = self.links.at(index).map(|link| link.info.session.index) else { return };
        self.emit_flow(session, Some(index));
        if let Some(link) = self.links.at_mut(index) {
            link.drain = false;
        }
    }

    /// The part of a flow that is about a link.
    pub(super) fn link_flow_in(&mut self, index: u32, flow: &Flow) {
        let id = self.link_id(index);
        let Some(link) = self.links.at_mut(index) else { return };
        match link.info.role {
            Role::Sender => {
                match flow.properties.iter().find(|(name, _)| name.as_str() == TXN_ID) {
                    None => {}
                    Some((_, Value::Null)) => self.events.push_back(Event::Acquires { link: id, txn_id: None }),
                    Some((_, Value::Binary(txn_id))) => {
                        self.events.push_back(Event::Acquires { link: id, txn_id: Some(txn_id.clone()) });
                    }
                    Some(_) => {
                        let text = "the property txn-id of a flow is binary";
                        return self.link_error(index, Error::new(condition::INVALID_FIELD, text));
                    }
                }
                let in_flight = link.info.delivery_count.wrapping_sub(flow.delivery_count.unwrap_or(0));
                let credit = flow.link_credit.map_or(link.info.credit, |credit| credit.saturating_sub(in_flight));
                let changed = std::mem::replace(&mut link.info.credit, credit) != credit;
                link.drain = flow.drain;
                if link.state == LinkState::Up && (changed || flow.drain) {
                    let credit = if link.resends().is_some() { self.resume_settled(index) } else { credit };
                    self.events.push_back(Event::Credit { link: id, credit, drain: flow.drain });
                }
            }
            Role::Receiver => {
                let Some(count) = flow.delivery_count else { return };
                let advance = count.wrapping_sub(link.info.delivery_count);
                if advance <= i32::MAX as u32 {
                    link.info.delivery_count = count;
                    link.info.credit = link.info.credit.saturating_sub(advance);
                }
                if link.drain && link.info.credit == 0 {
                    link.drain = false;
                    self.events.push_back(Event::Flowed { link: id });
                }
            }
        }
        let Some(link) = self.links.at(index) else { return };
        let session = link.info.session.index;
        if flow.echo && link.state == LinkState::Up {
            self.emit_flow(session, Some(index));
        }
    }
}

fn any_target(target: Option<Target>, coordinator: Option<Coordinator>) -> Option<AnyTarget> {
    coordinator.map(AnyTarget::Coordinator).or(target.map(AnyTarget::Target))
}
