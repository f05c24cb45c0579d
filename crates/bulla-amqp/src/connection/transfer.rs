//! Transfers in and out (part 2, section 2.6.12 and following): the hot path.

use super::Connection;
use super::link::{Link, LinkState};
use super::session::{Incoming, Outgoing, Said, unattached};
use crate::codec::{Encode, code};
use crate::condition;
use crate::event::{Delivery, DeliveryId, Event, LinkId};
use crate::output::{FRAME_HEADER_BYTES, FrameKind};
use crate::payload::Payload;
use crate::transaction::TXN_ID_BYTES_MAX;
use crate::types::{DeliveryState, DeliveryTag, Error, ReceiverSettleMode, Role, SenderSettleMode, Transfer};
use crate::unsettled::OUTCOMES_KEPT_MAX;
use bytes::{Bytes, BytesMut};

/// Most bytes of a transfer frame before its payload.
const TRANSFER_HEAD_BYTES_MAX: usize = FRAME_HEADER_BYTES + 40;

/// Most bytes of a transfer frame before its payload that carries a state, with a transaction's id as the longest, or a
/// tag made of a token.
const PARTICULAR_HEAD_BYTES_MAX: usize = TRANSFER_HEAD_BYTES_MAX + 24 + TXN_ID_BYTES_MAX;

/// Fragments shorter than this are gathered into one chunk: as slices, each could keep a whole read
/// buffer alive while it counts for little against the limit on messages under way.
const GATHER_BYTES_MAX: usize = 8 * 1024;

/// A message of which the last frame is still to come.
#[derive(Debug)]
pub(super) struct Assembly {
    id: u32,
    tag: DeliveryTag,
    /// It is resumed from a link that has gone: nothing of it is kept.
    is_ignored: bool,
    settled: bool,
    settles_first: bool,
    beyond_credit: bool,
    format: u32,
    state: Option<DeliveryState>,
    chunks: Vec<Bytes>,
    /// Fragments gathered.
    tail: BytesMut,
    length: u64,
}

impl Assembly {
    pub(super) fn len(&self) -> u64 {
        self.length
    }

    fn push(&mut self, fragment: Bytes) {
        self.length += fragment.len() as u64;
        if fragment.len() < GATHER_BYTES_MAX {
            self.tail.extend_from_slice(&fragment);
        } else {
            self.close_tail();
            self.chunks.push(fragment);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push(self.tail.split().freeze());
        }
    }

    fn finish(&mut self) -> Payload {
        self.close_tail();
        Payload::from(std::mem::take(&mut self.chunks))
    }
}

/// What waits in a session for its window, or for room in the output.
#[derive(Debug)]
pub(super) enum Waiting {
    Transfer {
        link: u32,
        id: u32,
        settled: bool,
        /// What its frames say beyond that.
        particulars: Option<Box<Particulars>>,
        message: Payload,
        /// Chunk of the message, and the place in it, where the next frame begins.
        chunk: usize,
        at: usize,
        left: usize,
    },
    /// The answer to a drain, behind the transfers that it comes after.
    Drained { link: u32 },
}

/// What a delivery has that most have not.
#[derive(Debug)]
pub(super) struct Particulars {
    /// The transaction that it is part of, or the state of a delivery that is resumed.
    state: Option<DeliveryState>,
    tag: DeliveryTag,
    resume: bool,
}

/// A delivery of an earlier attachment that the sender resumes.
struct Resumed {
    id: u32,
    tag: DeliveryTag,
    settled: bool,
    settles_first: bool,
    beyond_credit: bool,
}

impl Waiting {
    pub(super) fn link(&self) -> u32 {
        match self {
            Self::Transfer { link, .. } | Self::Drained { link } => *link,
        }
    }
}

impl Link {
    /// Whether the link's modes, as they were agreed at attach, allow how a frame of a delivery says that it is
    /// settled; `settled` is what its frames have said so far (part 2, section 2.7.5).
    #[inline]
    fn may_settle(&self, transfer: &Transfer, settled: bool) -> Result<(), Error> {
        let excluded = |what| Err(Error::new(condition::INVALID_FIELD, what));
        match self.info.snd_settle_mode {
            SenderSettleMode::Unsettled if settled => excluded("a settled delivery where the sender settles none"),
            SenderSettleMode::Settled if !settled && !transfer.more && !transfer.aborted => {
                excluded("an unsettled delivery where the sender settles all")
            }
            _ if transfer.rcv_settle_mode == Some(ReceiverSettleMode::Second)
                && self.info.rcv_settle_mode == ReceiverSettleMode::First =>
            {
                excluded("receiver-settle-mode second on a link that settles first")
            }
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// A transfer frame. A message of one frame costs: two indexes, an entry among the unsettled
    /// deliveries, an event.
    #[inline]
    pub(super) fn transfer_in(&mut self, channel: u16, transfer: Transfer, payload: Bytes) -> Result<(), Error> {
        let Some(session_index) = self.session_on(channel)? else { return Ok(()) };
        let Some(session) = self.sessions.at_mut(session_index) else { return Ok(()) };
        if session.incoming_window == 0 {
            self.session_error(session_index, Error::new(condition::WINDOW_VIOLATION, "transfers beyond the window"));
            return Ok(());
        }
        session.incoming_window -= 1;
        session.next_incoming_id = session.next_incoming_id.wrapping_add(1);
        let renew = session.incoming_window <= self.config.limits.incoming_window / 2;
        match session.remote_link(transfer.handle) {
            Some(link) => self.link_transfer_in(session_index, link, transfer, payload),
            None => self.session_error(session_index, unattached(transfer.handle)),
        }
        if renew && self.sessions.at(session_index).is_some_and(|session| session.is_open()) {
            self.emit_flow(session_index, None);
        }
        Ok(())
    }

    fn link_transfer_in(&mut self, session_index: u32, index: u32, transfer: Transfer, payload: Bytes) {
        let id = self.link_id(index);
        let Some(link) = self.links.at_mut(index) else { return };
        if matches!(link.state, LinkState::Detaching { .. }) {
            return; // the peer does not know yet
        }
        if link.info.role != Role::Receiver {
            return self.link_error(index, Error::new(condition::NOT_ALLOWED, "a transfer to a sending link"));
        }
        if link.assembly.is_some() {
            return self.fragment_in(session_index, index, transfer, payload);
        }
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        let Some(delivery_id) = transfer.delivery_id else {
            return self.link_error(index, Error::new(condition::INVALID_FIELD, "a delivery without delivery-id"));
        };
        let Some(tag) = transfer.delivery_tag else {
            return self.link_error(index, Error::new(condition::INVALID_FIELD, "a delivery without delivery-tag"));
        };
        // Ids only grow, as serial numbers do.
        let distance = session.last_incoming_delivery.map_or(1, |last| delivery_id.wrapping_sub(last));
        if distance == 0 || distance > i32::MAX as u32 {
            let error = Error::new(condition::INVALID_FIELD, "delivery-ids of a session must grow");
            return self.session_error(session_index, error);
        }
        let oldest = session.incoming.first().unwrap_or(delivery_id);
        if delivery_id.wrapping_sub(oldest) > i32::MAX as u32 {
            let error = Error::new(condition::INVALID_FIELD, "delivery-ids run too far ahead");
            return self.session_error(session_index, error);
        }
        session.last_incoming_delivery = Some(delivery_id);
        let beyond_credit = link.info.credit == 0;
        link.info.credit = link.info.credit.saturating_sub(1);
        link.info.delivery_count = link.info.delivery_count.wrapping_add(1);
        let settled = transfer.settled.unwrap_or(false);
        let settles_first = transfer.rcv_settle_mode == Some(ReceiverSettleMode::First);
        if transfer.aborted {
            return self.aborted_in(session_index, index, beyond_credit);
        }
        if transfer.resume && !transfer.more {
            let resumed = Resumed { id: delivery_id, tag, settled, settles_first, beyond_credit };
            return self.resumed_in(session_index, index, &resumed);
        }
        if link.resumes_only && !transfer.resume {
            let text = "an unsettled map was cut short: attach again before new deliveries";
            return self.link_error(index, Error::new(condition::NOT_ALLOWED, text));
        }
        if too_long(link.info.max_message_size, payload.len() as u64) {
            return self.link_error(index, message_too_long());
        }
        let format = transfer.message_format.unwrap_or(0);
        if let Err(error) = link.may_settle(&transfer, settled) {
            return self.link_error(index, error);
        }
        if transfer.more {
            let mut assembly = Assembly {
                id: delivery_id,
                tag,
                is_ignored: transfer.resume,
                settled,
                settles_first,
                beyond_credit,
                format,
                state: transfer.state,
                chunks: Vec::new(),
                tail: BytesMut::new(),
                length: 0,
            };
            if assembly.is_ignored {
                link.assembly = Some(Box::new(assembly));
                return;
            }
            self.in_progress += payload.len() as u64;
            assembly.push(payload);
            link.assembly = Some(Box::new(assembly));
            return self.check_in_progress(index);
        }
        let delivery = Delivery {
            link: id,
            id: DeliveryId(delivery_id),
            tag: link.keeps_tags.then(|| Box::new(tag)),
            settled,
            beyond_credit,
            format,
            state: transfer.state,
            payload: Payload::from(payload),
        };
        self.delivery_in(session_index, delivery, settles_first);
    }

    /// A further frame of a message.
    fn fragment_in(&mut self, session_index: u32, index: u32, transfer: Transfer, payload: Bytes) {
        let link_id = self.link_id(index);
        let Some(link) = self.links.at_mut(index) else { return };
        let Some(assembly) = &mut link.assembly else { return };
        if transfer.delivery_id.is_some_and(|id| id != assembly.id) {
            return self.link_error(index, Error::new(condition::INVALID_FIELD, "a delivery begins inside another"));
        }
        if transfer.delivery_tag.is_some_and(|tag| tag != assembly.tag) {
            return self.link_error(index, Error::new(condition::INVALID_FIELD, "a delivery with two delivery-tags"));
        }
        if transfer.message_format.is_some_and(|format| format != assembly.format) {
            return self.link_error(index, Error::new(condition::INVALID_FIELD, "a delivery with two message-formats"));
        }
        if transfer.aborted {
            self.in_progress = self.in_progress.saturating_sub(assembly.len());
            let beyond_credit = assembly.beyond_credit;
            link.assembly = None;
            return self.aborted_in(session_index, index, beyond_credit);
        }
        if assembly.is_ignored {
            assembly.settled |= transfer.settled.unwrap_or(false);
            let Assembly { id, tag, settled, settles_first, beyond_credit, .. } = **assembly;
            if !transfer.more {
                link.assembly = None;
                self.resumed_in(session_index, index, &Resumed { id, tag, settled, settles_first, beyond_credit });
            }
            return;
        }
        self.in_progress += payload.len() as u64;
        assembly.push(payload);
        assembly.settled |= transfer.settled.unwrap_or(false);
        let settled = assembly.settled;
        if let Err(error) = link.may_settle(&transfer, settled) {
            return self.link_error(index, error);
        }
        let Some(assembly) = &mut link.assembly else { return };
        if transfer.state.is_some() {
            assembly.state = transfer.state;
        }
        if too_long(link.info.max_message_size, assembly.len()) {
            return self.link_error(index, message_too_long());
        }
        if transfer.more {
            return self.check_in_progress(index);
        }
        let Some(mut assembly) = link.assembly.take() else { return };
        self.in_progress = self.in_progress.saturating_sub(assembly.len());
        let delivery = Delivery {
            link: link_id,
            id: DeliveryId(assembly.id),
            tag: link.keeps_tags.then(|| Box::new(assembly.tag)),
            settled: assembly.settled,
            beyond_credit: assembly.beyond_credit,
            format: assembly.format,
            payload: assembly.finish(),
            state: assembly.state.take(),
        };
        self.delivery_in(session_index, delivery, assembly.settles_first);
    }

    /// A delivery of an earlier attachment is resumed. It is ignored where it is not known (part 2, section 2.7.5): the
    /// sender knows that from this side's unsettled map, and sends it anew. Otherwise it has an outcome, which the
    /// sender is told unless it has settled; the message itself is not looked at. The host hears nothing of either.
    fn resumed_in(&mut self, session_index: u32, index: u32, resumed: &Resumed) {
        self.aborted_in(session_index, index, resumed.beyond_credit);
        let Some(link) = self.links.at_mut(index) else { return };
        let settles = resumed.settles_first || link.info.rcv_settle_mode == ReceiverSettleMode::First;
        let Some(outcomes) = link.outcomes() else { return };
        let Some(state) = outcomes.resumed(&resumed.tag) else { return };
        if resumed.settled {
            return;
        }
        outcomes.arrived(resumed.id, resumed.tag);
        outcomes.answered(resumed.id, &state);
        if !settles {
            link.info.unsettled += 1;
            let Some(session) = self.sessions.at_mut(session_index) else { return };
            session.incoming.insert(resumed.id, Incoming { link: index, settles_first: false, disposed: true });
        }
        self.queue_disposition(session_index, Role::Receiver, resumed.id, settles, Some(state));
    }

    /// The host hears nothing of a delivery that is aborted or ignored, so what it granted is granted still.
    fn aborted_in(&mut self, session_index: u32, index: u32, beyond_credit: bool) {
        if !beyond_credit && let Some(link) = self.links.at_mut(index) {
            link.info.credit = link.info.credit.saturating_add(1);
            self.emit_flow(session_index, Some(index));
        }
    }

    fn check_in_progress(&mut self, index: u32) {
        if self.in_progress > self.config.limits.in_progress_bytes {
            let text = "too many bytes of messages are under way";
            self.link_error(index, Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
    }

    /// A whole message.
    #[inline]
    fn delivery_in(&mut self, session_index: u32, delivery: Delivery, settles_first: bool) {
        let index = delivery.link.index;
        self.arrived += 1;
        if !delivery.settled {
            let limit = self.config.limits.link_unsettled;
            let Some(link) = self.links.at_mut(index) else { return };
            if link.info.unsettled >= limit {
                return self.link_error(
                    index,
                    Error::new(condition::TRANSFER_LIMIT_EXCEEDED, "too many unsettled deliveries"),
                );
            }
            link.info.unsettled += 1;
            if let (Some(outcomes), Some(tag)) = (link.outcomes(), &delivery.tag) {
                outcomes.arrived(delivery.id.0, **tag);
            }
            let Some(session) = self.sessions.at_mut(session_index) else { return };
            session.incoming.insert(delivery.id.0, Incoming { link: index, settles_first, disposed: false });
        }
        let link = delivery.link;
        self.events.push_back(Event::Delivery(delivery));
        if let Some(state) = self.links.at_mut(index)
            && state.drain
            && state.info.credit == 0
        {
            state.drain = false; // the credit was used up: some senders say no more than that
            self.events.push_back(Event::Flowed { link });
        }
    }

    /// Sending link: whether it can take one more message now. False without credit, while earlier
    /// messages wait for the session's window, and while the output is full; `Event::Credit` tells when
    /// credit or window come, and the host itself knows when it has written output.
    #[inline]
    pub fn can_send(&self, link: LinkId) -> bool {
        if !self.links.holds(link.index, link.generation) || self.out.len() >= self.config.limits.output_bytes {
            return false;
        }
        let Some(link) = self.links.at(link.index) else { return false };
        let Some(session) = self.sessions.at(link.info.session.index) else { return false };
        // Unsettled ids must stay comparable as serial numbers.
        let span = session.outgoing.first().map_or(0, |first| session.next_delivery_id.wrapping_sub(first));
        link.state == LinkState::Up
            && link.info.role == Role::Sender
            && link.info.credit > 0
            && link.info.unsettled < self.config.limits.link_unsettled
            && (link.resumption.is_none() || link.info.unsettled < OUTCOMES_KEPT_MAX as u32)
            && session.is_open()
            && session.remote_window > 0
            && session.backlog.is_empty()
            && span < i32::MAX as u32
    }

    /// Sends a message. What became of it comes as `Event::Outcome` with `token`, unless it is `settled`.
    /// It is cut into frames as the peer wants them, and waits inside for the session's window. False
    /// when the link is gone or has no credit: then nothing was sent, and no outcome will come.
    pub fn send(&mut self, link: LinkId, token: u64, message: Payload, settled: bool) -> bool {
        self.send_as(link, token, message, settled, None)
    }

    /// As [`Connection::send`], as part of a transaction (part 4, section 4.4.1). False also where the id is longer
    /// than [`TXN_ID_BYTES_MAX`].
    pub fn send_in(&mut self, link: LinkId, token: u64, message: Payload, settled: bool, txn_id: Bytes) -> bool {
        txn_id.len() <= TXN_ID_BYTES_MAX && self.send_as(link, token, message, settled, Some(txn_id))
    }

    #[inline]
    fn send_as(&mut self, link: LinkId, token: u64, message: Payload, settled: bool, txn_id: Option<Bytes>) -> bool {
        let Some(index) = self.live(link) else { return false };
        let Some(link) = self.links.at_mut(index) else { return false };
        let Some(session) = self.sessions.at_mut(link.info.session.index) else { return false };
        let up = link.state == LinkState::Up && link.info.role == Role::Sender && session.is_open();
        if !up || link.info.credit == 0 {
            return false;
        }
        link.info.credit -= 1;
        link.info.delivery_count = link.info.delivery_count.wrapping_add(1);
        let id = session.next_delivery_id;
        session.next_delivery_id = id.wrapping_add(1);
        if !settled {
            session.outgoing.insert(id, Outgoing { link: index, token, said: Said::Nothing });
            link.info.unsettled += 1;
        }
        let length = message.len();
        let one_frame = length + TRANSFER_HEAD_BYTES_MAX <= self.peer_max_frame;
        let is_usual = txn_id.is_none() && link.resumption.is_none();
        if one_frame && is_usual && session.backlog.is_empty() && session.remote_window > 0 {
            session.remote_window -= 1;
            session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
            let head = transfer_head(session.channel, link.local_handle, id, settled, false, length);
            self.out.raw(head.as_bytes());
            message.for_each_chunk(|chunk| self.out.payload(chunk));
            return true;
        }
        let particulars = (!is_usual).then(|| {
            let state = txn_id.map(|txn_id| DeliveryState::Transactional { txn_id, outcome: None });
            let (tag, resume) = match link.resends() {
                Some(resends) => (DeliveryTag::of_token(token), resends.tokens.remove(&token)),
                None => (DeliveryTag::of_id(id), false),
            };
            // The whole message is sent again.
            let from_start = || DeliveryState::Received { section_number: 0, section_offset: 0 };
            Box::new(Particulars { state: state.or_else(|| resume.then(from_start)), tag, resume })
        });
        self.queue_transfer(index, id, settled, particulars, message);
        true
    }

    /// Writes what a link sends, or has it wait for window or output.
    fn queue_transfer(
        &mut self,
        index: u32,
        id: u32,
        settled: bool,
        particulars: Option<Box<Particulars>>,
        message: Payload,
    ) {
        let Some(link) = self.links.at_mut(index) else { return };
        let session_index = link.info.session.index;
        let Some(session) = self.sessions.at_mut(session_index) else { return };
        link.waiting += 1;
        if session.backlog.is_empty() {
            self.backlogged += 1;
        }
        let left = message.len();
        let waiting = Waiting::Transfer { link: index, id, settled, particulars, message, chunk: 0, at: 0, left };
        session.backlog.push_back(waiting);
        self.resume(session_index);
    }

    /// Resumes deliveries of an earlier attachment that are settled, as far as there is credit: each with its outcome
    /// and without the message. Returns the credit that is left.
    pub(super) fn resume_settled(&mut self, index: u32) -> u32 {
        loop {
            let Some(link) = self.links.at_mut(index) else { return 0 };
            let (credit, is_up) = (link.info.credit, link.state == LinkState::Up);
            if credit == 0 || !is_up {
                return credit;
            }
            let Some((token, state)) = link.resends().and_then(|resends| {
                let (token, state) = resends.settled.pop_front()?;
                resends.tokens.remove(&token);
                Some((token, state))
            }) else {
                return credit;
            };
            link.info.credit -= 1;
            link.info.delivery_count = link.info.delivery_count.wrapping_add(1);
            let Some(session) = self.sessions.at_mut(link.info.session.index) else { return credit };
            let id = session.next_delivery_id;
            session.next_delivery_id = id.wrapping_add(1);
            let (state, tag) = (Some(without_particulars(state)), DeliveryTag::of_token(token));
            let particulars = Some(Box::new(Particulars { state, tag, resume: true }));
            self.queue_transfer(index, id, true, particulars, Payload::default());
        }
    }

    /// Goes on with the backlogs after output was written.
    pub(super) fn resume_all(&mut self) {
        let sessions: Vec<u32> = self.sessions.indexes().collect();
        for index in sessions {
            self.resume(index);
        }
    }

    /// Writes frames of a session's backlog while its window and the output have room.
    pub(super) fn resume(&mut self, session_index: u32) {
        loop {
            let Self { sessions, links, out, config, peer_max_frame, backlogged, .. } = &mut *self;
            let Some(session) = sessions.at_mut(session_index) else { return };
            let Some(Waiting::Transfer { link, id, settled, particulars, message, chunk, at, left }) =
                session.backlog.front_mut()
            else {
                match session.backlog.pop_front() {
                    Some(Waiting::Drained { link }) => {
                        if session.backlog.is_empty() {
                            *backlogged = backlogged.saturating_sub(1);
                        }
                        if let Some(link) = links.at_mut(link) {
                            link.waiting = link.waiting.saturating_sub(1);
                        }
                        self.emit_drained(link);
                        continue;
                    }
                    _ => return,
                }
            };
            if session.remote_window == 0 || out.len() >= config.limits.output_bytes {
                return;
            }
            // A link takes its deliveries out of the backlog when it goes.
            let Some(state) = links.at_mut(*link) else { return };
            let head_max = if particulars.is_none() { TRANSFER_HEAD_BYTES_MAX } else { PARTICULAR_HEAD_BYTES_MAX };
            let size = (*left).min(*peer_max_frame - head_max);
            let more = size < *left;
            let (channel, handle) = (session.channel, state.local_handle);
            match particulars {
                None => out.raw(transfer_head(channel, handle, *id, *settled, more, size).as_bytes()),
                Some(particulars) => out.raw(&particular_head(channel, handle, *id, *settled, more, size, particulars)),
            }
            *left -= size;
            let mut need = size;
            while need > 0 {
                let Some(bytes) = message.chunks().get(*chunk) else { break };
                let step = need.min(bytes.len() - *at);
                out.payload(bytes.slice(*at..*at + step));
                *at += step;
                need -= step;
                if *at == bytes.len() {
                    *chunk += 1;
                    *at = 0;
                }
            }
            session.remote_window -= 1;
            session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
            if !more {
                state.waiting = state.waiting.saturating_sub(1);
                session.backlog.pop_front();
                if session.backlog.is_empty() {
                    *backlogged = backlogged.saturating_sub(1);
                }
            }
        }
    }
}

fn too_long(limit: u64, length: u64) -> bool {
    limit > 0 && length > limit
}

fn message_too_long() -> Error {
    Error::new(condition::MESSAGE_SIZE_EXCEEDED, "the message is longer than max-message-size")
}

/// The bytes of a transfer frame before its payload.
struct TransferHead {
    bytes: [u8; TRANSFER_HEAD_BYTES_MAX],
    length: usize,
}

impl TransferHead {
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Frame header and performative of a transfer, as the table of types would write them, in place.
#[inline]
fn transfer_head(channel: u16, handle: u32, id: u32, settled: bool, more: bool, payload: usize) -> TransferHead {
    const FIELDS_AT: usize = FRAME_HEADER_BYTES + 6; // descriptor 3, list8 head 3
    const HANDLE: usize = FIELDS_AT;
    const ID: usize = HANDLE + 5;
    const TAG: usize = ID + 5;
    const FORMAT: usize = TAG + 6;
    const SETTLED: usize = FORMAT + 1;
    const MORE: usize = SETTLED + 1;
    let boolean = |value: bool| if value { code::TRUE } else { code::FALSE };
    let length = if more { MORE + 1 } else { MORE };
    let list = (length - FRAME_HEADER_BYTES - 5) as u8; // after the size byte, well under 256
    let [c0, c1] = channel.to_be_bytes();
    let [s0, s1, s2, s3] = crate::codec::clamp(length + payload).to_be_bytes();
    let [h0, h1, h2, h3] = handle.to_be_bytes();
    let [i0, i1, i2, i3] = id.to_be_bytes();
    let mut bytes = [0; TRANSFER_HEAD_BYTES_MAX];
    bytes[..MORE + 1].copy_from_slice(&[
        s0,
        s1,
        s2,
        s3,
        2,
        FrameKind::Amqp as u8,
        c0,
        c1,
        code::DESCRIBED,
        code::ULONG8,
        Transfer::CODE as u8,
        code::LIST8,
        list,
        if more { 6 } else { 5 },
        code::UINT,
        h0,
        h1,
        h2,
        h3,
        code::UINT,
        i0,
        i1,
        i2,
        i3,
        code::BINARY8,
        4,
        i0,
        i1,
        i2,
        i3,          // the tag
        code::UINT0, // the format of part 3
        boolean(settled),
        code::TRUE, // more; cut off when there is none
    ]);
    TransferHead { bytes, length }
}

/// An outcome that fits into any frame: without the particulars, which the peer itself has said.
fn without_particulars(state: DeliveryState) -> DeliveryState {
    match state {
        DeliveryState::Rejected(_) => DeliveryState::Rejected(None),
        DeliveryState::Modified { delivery_failed, undeliverable_here, .. } => {
            DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations: Vec::new() }
        }
        state => state,
    }
}

/// As [`transfer_head`], with what most deliveries have not.
fn particular_head(
    channel: u16,
    handle: u32,
    id: u32,
    settled: bool,
    more: bool,
    payload: usize,
    particulars: &Particulars,
) -> Vec<u8> {
    let [c0, c1] = channel.to_be_bytes();
    let mut bytes = Vec::with_capacity(PARTICULAR_HEAD_BYTES_MAX);
    bytes.extend_from_slice(&[0, 0, 0, 0, 2, FrameKind::Amqp as u8, c0, c1]);
    let transfer = Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(particulars.tag),
        message_format: Some(0),
        settled: Some(settled),
        more,
        rcv_settle_mode: None,
        state: particulars.state.clone(),
        resume: particulars.resume,
        aborted: false,
        batchable: false,
    };
    transfer.encode(&mut bytes);
    let size = crate::codec::clamp(bytes.len() + payload).to_be_bytes();
    bytes[..size.len()].copy_from_slice(&size);
    bytes
}

#[cfg(test)]
impl Connection {
    /// Leaves a session no window, as if it had not been renewed.
    pub(crate) fn exhaust_window(&mut self, session: u32) {
        if let Some(session) = self.sessions.at_mut(session) {
            session.incoming_window = 0;
        }
    }
}
