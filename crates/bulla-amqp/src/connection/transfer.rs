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
use bytes::{Bytes, BytesMut};

/// Most bytes of a transfer frame before its payload.
const TRANSFER_HEAD_BYTES_MAX: usize = FRAME_HEADER_BYTES + 40;

/// Most bytes of a transfer frame before its payload that carries a transaction's id.
const TRANSACTIONAL_HEAD_BYTES_MAX: usize = TRANSFER_HEAD_BYTES_MAX + 16 + TXN_ID_BYTES_MAX;

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
        /// The transaction that it is part of.
        txn_id: Option<Bytes>,
        message: Payload,
        /// Chunk of the message, and the place in it, where the next frame begins.
        chunk: usize,
        at: usize,
        left: usize,
    },
    /// The answer to a drain, behind the transfers that it comes after.
    Drained { link: u32 },
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
        // No unsettled deliveries are kept of links that have gone, so a resumed one is to be ignored (section 2.6.13):
        // the sender marks it so where it may have arrived, and sends it anew where it has not.
        if transfer.aborted || transfer.resume && !transfer.more {
            return self.aborted_in(session_index, index, beyond_credit);
        }
        if too_long(link.info.max_message_size, payload.len() as u64) {
            return self.link_error(index, message_too_long());
        }
        let format = transfer.message_format.unwrap_or(0);
        let settled = transfer.settled.unwrap_or(false);
        if let Err(error) = link.may_settle(&transfer, settled) {
            return self.link_error(index, error);
        }
        let settles_first = transfer.rcv_settle_mode == Some(ReceiverSettleMode::First);
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
        if assembly.is_ignored && transfer.more {
            return;
        }
        if transfer.aborted || assembly.is_ignored {
            self.in_progress = self.in_progress.saturating_sub(assembly.len());
            let beyond_credit = assembly.beyond_credit;
            link.assembly = None;
            return self.aborted_in(session_index, index, beyond_credit);
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

    /// As [`Connection::send`], as part of a transaction (part 4, section 4.4.1). False also where the id is longer than
    /// [`TXN_ID_BYTES_MAX`].
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
        if one_frame && txn_id.is_none() && session.backlog.is_empty() && session.remote_window > 0 {
            session.remote_window -= 1;
            session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
            let head = transfer_head(session.channel, link.local_handle, id, settled, false, length);
            self.out.raw(head.as_bytes());
            message.for_each_chunk(|chunk| self.out.payload(chunk));
            return true;
        }
        let session_index = link.info.session.index;
        link.waiting += 1;
        if session.backlog.is_empty() {
            self.backlogged += 1;
        }
        session.backlog.push_back(Waiting::Transfer {
            link: index,
            id,
            settled,
            txn_id,
            message,
            chunk: 0,
            at: 0,
            left: length,
        });
        self.resume(session_index);
        true
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
            let Some(Waiting::Transfer { link, id, settled, txn_id, message, chunk, at, left }) =
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
            let head_max = if txn_id.is_none() { TRANSFER_HEAD_BYTES_MAX } else { TRANSACTIONAL_HEAD_BYTES_MAX };
            let size = (*left).min(*peer_max_frame - head_max);
            let more = size < *left;
            let (channel, handle) = (session.channel, state.local_handle);
            match txn_id {
                None => out.raw(transfer_head(channel, handle, *id, *settled, more, size).as_bytes()),
                Some(txn_id) => out.raw(&transactional_head(channel, handle, *id, *settled, more, size, txn_id)),
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

/// As [`transfer_head`], with the transaction that the message is part of.
fn transactional_head(
    channel: u16,
    handle: u32,
    id: u32,
    settled: bool,
    more: bool,
    payload: usize,
    txn_id: &Bytes,
) -> Vec<u8> {
    let [c0, c1] = channel.to_be_bytes();
    let mut bytes = Vec::with_capacity(TRANSACTIONAL_HEAD_BYTES_MAX);
    bytes.extend_from_slice(&[0, 0, 0, 0, 2, FrameKind::Amqp as u8, c0, c1]);
    let transfer = Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: DeliveryTag::new(&id.to_be_bytes()),
        message_format: Some(0),
        settled: Some(settled),
        more,
        rcv_settle_mode: None,
        state: Some(DeliveryState::Transactional { txn_id: txn_id.clone(), outcome: None }),
        resume: false,
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
