//! The connection: frames in, frames out, and who gets them.

mod handshake;
mod link;
mod session;
mod transfer;

use crate::codec::{DecodeError, Encode, Reader, code};
use crate::condition;
use crate::config::{self, Config};
use crate::event::{Event, LinkId, LinkInfo, SessionId};
use crate::output::{FRAME_HEADER_BYTES, FrameKind, Output};
use crate::sasl::{SaslClient, SaslOffer};
use crate::scram::{ScramClient, ScramCrypto};
use crate::slots::Slots;
use crate::types::{Attach, Begin, Close, Detach, Disposition, End, Error, Flow, Open, Transfer};
use crate::unsettled::Outcomes;
use bytes::{Buf, Bytes, BytesMut};
use link::Link;
use session::Session;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Deref;
use std::time::{Duration, Instant};

pub use link::LINK_NAME_BYTES_MAX;

/// Payloads shorter than this are copied out of the read buffer, so that they don't keep it alive: a message that waits
/// on a queue would hold as much memory as the largest read has, and be counted with its own bytes alone. What is
/// longer counts for at least a 64th of what it holds.
pub const COPY_IN_BYTES_MAX: usize = 4 * 1024;

/// One AMQP 1.0 connection, client or server.
///
/// The host owns the socket and the clock. Its loop: bytes to [`Connection::receive`]; events from
/// [`Connection::poll_event`] until there is none, each answered by commands; then
/// [`Connection::output_slices`] to the socket and [`Connection::output_written`]; and
/// [`Connection::handle_timeout`] when [`Connection::poll_timeout`] has come. Commands on a link or
/// session that is gone do nothing.
pub struct Connection {
    config: Config,
    now: Instant,
    phase: Phase,
    role: ConnectionRole,
    /// Input that waits for the host's verdict on SASL, or for the rest of its frame.
    held: BytesMut,
    out: Output,
    /// Frames of a client that wait for its open to go out.
    early: Output,
    open_sent: bool,
    closed_told: bool,
    events: VecDeque<Event>,
    /// Sessions by the peer's channel number.
    channels: Vec<Option<u32>>,
    sessions: Slots<Session>,
    links: Slots<Link>,
    /// What links kept that have ended and were not closed, until the host takes it.
    left: Vec<(LinkId, Outcomes)>,
    /// Bytes of messages that are still arriving.
    in_progress: u64,
    /// Messages that have arrived whole.
    arrived: u64,
    peer_max_frame: usize,
    peer_channel_max: u16,
    /// For the handshake, then for the answer to our close.
    deadline: Option<Instant>,
    idle_deadline: Option<Instant>,
    heartbeat: Option<Heartbeat>,
    /// Sessions with dispositions that are not written yet.
    unflushed: Vec<u32>,
    /// Sessions with transfers that wait for window or output.
    backlogged: usize,
    /// Deliveries that dispositions named without effect, less those with.
    idle_walk: usize,
    /// Bytes of what outcomes say that wait for the host, since it had taken all events last.
    outcome_bytes: usize,
    /// Bytes copied into what is held.
    #[cfg(test)]
    pub(crate) held_copied: usize,
}

struct Heartbeat {
    interval: Duration,
    next: Instant,
}

enum ConnectionRole {
    Server(SaslOffer),
    Client { sasl: SaslClient, crypto: Box<dyn ScramCrypto>, exchange: Option<ScramClient> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer's first protocol header is due.
    Header,
    /// Client: the server's mechanisms are due.
    SaslMechanisms,
    /// Client: a challenge or the outcome is due.
    SaslOutcome,
    /// Server: the client's choice is due.
    SaslInit,
    /// Server: the client's response is due.
    SaslResponse,
    /// Server: the host's verdict is due; input waits.
    SaslHost,
    /// The AMQP header is due.
    AmqpHeader,
    /// The peer's open is due.
    Open,
    /// Server: the host's answer to the peer's open is due; input waits.
    OpenHost,
    Up,
    /// The peer closed; the answer goes out when the host has polled the event.
    PeerClosed,
    /// Our close went out; the peer's is due.
    Closing,
    Closed,
}

impl Connection {
    /// The server's side of a connection that was just accepted.
    pub fn server(config: Config, sasl: SaslOffer, now: Instant) -> Self {
        Self::new(config, ConnectionRole::Server(sasl), now)
    }

    /// The client's side of a connection that was just made. `begin` and `attach` may follow at once.
    pub fn client(config: Config, sasl: SaslClient, crypto: Box<dyn ScramCrypto>, now: Instant) -> Self {
        let mut connection = Self::new(config, ConnectionRole::Client { sasl, crypto, exchange: None }, now);
        connection.start_client();
        connection
    }

    fn new(mut config: Config, role: ConnectionRole, now: Instant) -> Self {
        config.max_frame_size = config.max_frame_size.max(config::FRAME_BYTES_MIN);
        config.limits.incoming_window = config.limits.incoming_window.max(1);
        let deadline = now.checked_add(config.limits.handshake_timeout);
        Self {
            config,
            now,
            phase: Phase::Header,
            role,
            held: BytesMut::new(),
            out: Output::default(),
            early: Output::default(),
            open_sent: false,
            closed_told: false,
            events: VecDeque::new(),
            channels: Vec::new(),
            sessions: Slots::new(),
            links: Slots::new(),
            left: Vec::new(),
            in_progress: 0,
            arrived: 0,
            peer_max_frame: config::FRAME_BYTES_MIN as usize,
            peer_channel_max: u16::MAX,
            deadline,
            idle_deadline: None,
            heartbeat: None,
            unflushed: Vec::new(),
            backlogged: 0,
            idle_walk: 0,
            outcome_bytes: 0,
            #[cfg(test)]
            held_copied: 0,
        }
    }

    /// Takes whole frames out of `input` and leaves the rest. Payloads become slices of it.
    ///
    /// While a server waits for its host's verdict on SASL, what the client has sent ahead is kept
    /// here and goes on with that verdict.
    pub fn receive(&mut self, now: Instant, input: &mut BytesMut) {
        self.heard(now, input);
        if !self.held.is_empty() {
            self.held.unsplit(input.split());
            *input = std::mem::take(&mut self.held);
        }
        self.process(input);
    }

    /// Takes all of `bytes`, which the host may read into again: payloads are copied out, each into memory of its own
    /// that goes with it, and the beginning of a frame is kept here, in room for that frame.
    ///
    /// Costs a copy, and saves the memory that [`Connection::receive`] lets a message keep: the whole buffer it arrived
    /// in.
    pub fn receive_copied(&mut self, now: Instant, mut bytes: &[u8]) {
        self.heard(now, bytes);
        while !self.held.is_empty() && !bytes.is_empty() {
            if self.waits_for_host() {
                break;
            }
            let (part, rest) = bytes.split_at(self.missing().min(bytes.len()));
            bytes = rest;
            let mut held = std::mem::take(&mut self.held);
            held.reserve(self.wanted(&held).max(part.len()));
            held.extend_from_slice(part);
            self.note_copied(part.len());
            self.process(&mut held);
            self.keep(held);
        }
        self.process(&mut bytes);
        self.hold(bytes);
    }

    /// Whether the host has to answer before input goes on.
    fn waits_for_host(&self) -> bool {
        matches!(self.phase, Phase::SaslHost | Phase::OpenHost)
    }

    #[cfg(test)]
    fn note_copied(&mut self, count: usize) {
        self.held_copied += count;
    }

    #[cfg(not(test))]
    fn note_copied(&self, _: usize) {}

    /// The peer is not silent.
    fn heard(&mut self, now: Instant, bytes: &[u8]) {
        self.now = now;
        if !bytes.is_empty()
            && let Some(timeout) = self.config.idle_timeout
            && self.idle_deadline.is_some()
        {
            self.idle_deadline = now.checked_add(timeout);
        }
    }

    /// How many bytes more make of what is held a whole frame, or as much of one as says how long it is.
    fn missing(&self) -> usize {
        let size = match (self.phase, self.held.first_chunk::<4>()) {
            (Phase::Header | Phase::AmqpHeader, _) | (_, None) => FRAME_HEADER_BYTES,
            (_, Some(_)) if self.held.len() < FRAME_HEADER_BYTES => FRAME_HEADER_BYTES,
            (_, Some(size)) => u32::from_be_bytes(*size).min(self.config.max_frame_size) as usize,
        };
        size.saturating_sub(self.held.len()).max(1)
    }

    /// Keeps the beginning of a frame, which `bytes` are, with room for the rest of it.
    fn hold(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut held = BytesMut::with_capacity(bytes.len() + self.wanted(bytes));
            held.extend_from_slice(bytes);
            self.held = held;
        }
    }

    /// Keeps what is left of what was held. An empty rest would keep the memory of a message whose frame it was.
    fn keep(&mut self, held: BytesMut) {
        if !held.is_empty() {
            self.held = held;
        }
    }

    fn process(&mut self, input: &mut impl Input) {
        loop {
            let step = match self.phase {
                Phase::Open | Phase::Up | Phase::Closing => self.amqp_frame(input),
                Phase::SaslHost | Phase::OpenHost => {
                    self.note_copied(input.len());
                    self.held.extend_from_slice(input);
                    input.advance(input.len());
                    return;
                }
                Phase::PeerClosed | Phase::Closed => {
                    input.advance(input.len());
                    return;
                }
                _ => self.handshake_step(input),
            };
            match step {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    if error.condition == condition::FRAMING_ERROR {
                        input.advance(input.len()); // where the next frame begins is not known any more
                    }
                    self.fail(error);
                }
            }
        }
    }

    /// How many more bytes complete the frame begun in `input`: a hint for how much to reserve. 0 when
    /// that is not known yet.
    pub fn wanted(&self, input: &[u8]) -> usize {
        match input.first_chunk::<4>() {
            Some(size) if self.phase == Phase::Up => {
                let size = u32::from_be_bytes(*size).min(self.config.max_frame_size) as usize;
                size.saturating_sub(input.len())
            }
            _ => 0,
        }
    }

    /// Whether the host should read on. False while so much output waits that answers to further input
    /// would pile up, and while SASL or the open waits for the host.
    pub fn wants_input(&self) -> bool {
        self.out.len() < self.config.limits.output_bytes.saturating_mul(2) && !self.waits_for_host()
    }

    /// Bytes of messages that are still arriving, as far as they have come.
    pub fn in_progress(&self) -> u64 {
        self.in_progress + self.held.len() as u64
    }

    /// Messages that have arrived whole.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// The host reads nothing now: the peer's silence is not the peer's.
    pub fn not_read(&mut self, now: Instant) {
        if let (Some(timeout), true) = (self.config.idle_timeout, self.idle_deadline.is_some()) {
            self.idle_deadline = now.checked_add(timeout);
        }
    }

    /// Does what is due: a heartbeat owed to the peer, or giving up on a silent one.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.is_closed() {
            return;
        }
        if due(self.deadline) || due(self.idle_deadline) {
            // A peer that does not read must not hold the socket open with what it has not read.
            let stuck = self.output_len() > 0;
            self.unflushed.clear();
            self.out.clear();
            if !stuck && self.open_sent && self.phase != Phase::Closing {
                self.emit(0, &Close { error: Some(silent()) });
            }
            self.end(Some(silent()));
            return;
        }
        if let Some(heartbeat) = &mut self.heartbeat
            && heartbeat.next <= now
        {
            heartbeat.next = now + heartbeat.interval;
            if self.out.len() == 0 && matches!(self.phase, Phase::Up | Phase::Closing) {
                self.out.frame(FrameKind::Amqp, 0, |_| {});
            }
        }
    }

    /// When `handle_timeout` has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let heartbeat = self.heartbeat.as_ref().map(|heartbeat| heartbeat.next);
        [self.deadline, self.idle_deadline, heartbeat].into_iter().flatten().min()
    }

    /// The next event. Answers that the engine gives by itself (to detach, end and close) go out when
    /// their event is taken, after all that the host answered to earlier ones.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match &event {
            Event::Detached { link, .. } => self.answer_detach(*link),
            Event::SessionEnded(session, _) => self.answer_end(*session),
            Event::Closed(_) => self.answer_close(),
            _ => {}
        }
        Some(event)
    }

    /// Drops the next event, of which the host has taken what it wants ([`Connection::peek_event`]).
    #[inline]
    pub fn drop_event(&mut self) {
        match self.events.front() {
            Some(Event::Delivery(_) | Event::Outcome { .. }) => drop(self.events.pop_front()),
            _ => drop(self.poll_event()),
        }
    }

    /// The next event where it lies, before [`Connection::poll_event`] or [`Connection::drop_event`] takes it: a host
    /// that takes out what a delivery or an outcome holds moves that once.
    #[inline]
    pub fn peek_event(&mut self) -> Option<&mut Event> {
        self.events.front_mut()
    }

    /// Whether the connection is over: nothing more will be taken in, and the socket may be closed when
    /// the output is empty.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// True once this side or the peer has closed the connection, whether or not the other one has answered.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::PeerClosed | Phase::Closed)
    }

    /// Closes the connection, with a reason if it is not the usual end. `Event::Closed` comes when the
    /// peer has answered.
    pub fn close(&mut self, error: Option<Error>) {
        match self.phase {
            Phase::Closed | Phase::Closing | Phase::PeerClosed => {}
            Phase::Up => self.start_closing(error),
            Phase::OpenHost => self.refuse_open(Vec::new(), error),
            Phase::Open if matches!(self.role, ConnectionRole::Client { .. }) => self.start_closing(error),
            _ => self.end(error),
        }
    }

    fn start_closing(&mut self, error: Option<Error>) {
        self.flush();
        self.emit(0, &Close { error });
        self.phase = Phase::Closing;
        self.deadline = self.now.checked_add(config::CLOSE_TIMEOUT);
        self.idle_deadline = None;
    }

    /// Ends for an error of the peer: tells it, and the host at once.
    fn fail(&mut self, error: Error) {
        match self.phase {
            Phase::Up | Phase::Open | Phase::AmqpHeader => {
                if !self.open_sent {
                    self.send_open();
                }
                self.start_closing(Some(error.clone()));
                self.tell_closed(Some(error));
            }
            _ => self.end(Some(error)),
        }
    }

    /// Nothing more is said or heard.
    fn end(&mut self, error: Option<Error>) {
        self.phase = Phase::Closed;
        self.tell_closed(error);
    }

    fn tell_closed(&mut self, error: Option<Error>) {
        if !std::mem::replace(&mut self.closed_told, true) {
            self.events.push_back(Event::Closed(error));
        }
    }

    fn answer_close(&mut self) {
        if self.phase == Phase::PeerClosed {
            self.flush();
            self.emit(0, &Close { error: None });
            self.phase = Phase::Closed;
        }
    }

    /// Bytes that wait for the socket (dispositions not written yet are counted by their usual size).
    #[inline]
    pub fn output_len(&self) -> usize {
        self.out.len() + self.unflushed.len() * session::DISPOSITION_BYTES
    }

    /// Adds the first slices of the output to `slices` (256 at most) and returns their bytes.
    pub fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) -> usize {
        self.flush();
        self.out.slices(slices)
    }

    /// Takes `count` bytes off the output: they were written.
    pub fn output_written(&mut self, count: usize) {
        self.out.written(count);
        if self.backlogged > 0 && self.out.len() <= self.config.limits.output_bytes / 2 {
            self.resume_all();
        }
    }

    /// What is known of a link.
    pub fn link(&self, link: LinkId) -> Option<&LinkInfo> {
        self.links.holds(link.index, link.generation).then(|| self.links.at(link.index))?.map(|link| &link.info)
    }

    /// One frame off the front of `input`; false when it is not whole yet.
    #[inline]
    fn amqp_frame(&mut self, input: &mut impl Input) -> Result<bool, Error> {
        let Some(head) = FrameHead::parse(input, self.config.max_frame_size)? else { return Ok(false) };
        if input.len() < head.size {
            return Ok(false);
        }
        if head.kind != FrameKind::Amqp as u8 {
            return Err(Error::new(condition::FRAMING_ERROR, "not an AMQP frame"));
        }
        let body = input.get(head.body..head.size).unwrap_or_default();
        if body.is_empty() {
            input.advance(head.size); // a heartbeat
            return Ok(true);
        }
        let mut reader = Reader::new(body);
        let descriptor = open_descriptor(&mut reader).map_err(undecodable)?;
        if self.phase == Phase::Closing {
            input.advance(head.size);
            if descriptor == Close::CODE {
                self.end(None);
            }
            return Ok(true);
        }
        if descriptor == Transfer::CODE && self.phase == Phase::Up {
            let transfer = Transfer::decode_list(&mut reader).map_err(undecodable)?;
            let length = reader.left();
            let payload = if length < COPY_IN_BYTES_MAX {
                let payload = Bytes::copy_from_slice(reader.take(length).map_err(undecodable)?);
                input.advance(head.size);
                payload
            } else {
                input.advance(head.size - length);
                input.take_payload(length)
            };
            self.transfer_in(head.channel, transfer, payload)?;
            return Ok(true);
        }
        let performative = Performative::decode(descriptor, &mut reader).map_err(undecodable)?;
        input.advance(head.size);
        self.performative(head.channel, performative)?;
        Ok(true)
    }

    fn performative(&mut self, channel: u16, performative: Performative) -> Result<(), Error> {
        if let Performative::Open(open) = performative {
            if channel != 0 {
                return Err(Error::new(condition::NOT_ALLOWED, "open on another channel than 0"));
            }
            return self.open_in(open);
        }
        if self.phase != Phase::Up {
            return Err(Error::new(condition::ILLEGAL_STATE, "a frame before open"));
        }
        match performative {
            Performative::Open(_) => Ok(()),
            Performative::Begin(begin) => self.begin_in(channel, &begin),
            Performative::Attach(attach) => self.attach_in(channel, *attach),
            Performative::Flow(flow) => self.flow_in(channel, &flow),
            Performative::Disposition(disposition) => self.disposition_in(channel, disposition),
            Performative::Detach(detach) => self.detach_in(channel, detach),
            Performative::End(end) => self.end_in(channel, end),
            Performative::Close(close) => {
                self.phase = Phase::PeerClosed;
                self.tell_closed(close.error);
                Ok(())
            }
        }
    }

    /// Writes a frame; before our own open went out, it waits for that.
    fn emit(&mut self, channel: u16, performative: &impl Encode) {
        let out = if self.open_sent { &mut self.out } else { &mut self.early };
        out.frame(FrameKind::Amqp, channel, |out| performative.encode(out));
    }

    /// The session that frames on the peer's channel belong to; none while it is ended from here and
    /// the peer does not know yet.
    #[inline]
    fn session_on(&self, channel: u16) -> Result<Option<u32>, Error> {
        let index = self.channels.get(usize::from(channel)).copied().flatten();
        let index =
            index.ok_or_else(|| Error::new(condition::ILLEGAL_STATE, "a frame on a channel without session"))?;
        let ended = self.sessions.at(index).is_none_or(|session| session.is_ended());
        Ok((!ended).then_some(index))
    }

    fn session_id(&self, index: u32) -> SessionId {
        SessionId { index, generation: self.sessions.generation(index) }
    }

    fn link_id(&self, index: u32) -> LinkId {
        LinkId { index, generation: self.links.generation(index) }
    }

    /// The live link that `id` names.
    #[inline]
    fn live(&self, id: LinkId) -> Option<u32> {
        self.links.holds(id.index, id.generation).then_some(id.index)
    }
}

fn silent() -> Error {
    Error::new(condition::RESOURCE_LIMIT_EXCEEDED, "nothing was heard of the peer in time")
}

fn undecodable(error: DecodeError) -> Error {
    Error::new(condition::DECODE_ERROR, error.to_string())
}

/// Where frames come from.
trait Input: Buf + Deref<Target = [u8]> {
    /// Takes the first `length` bytes, which are there.
    fn take_payload(&mut self, length: usize) -> Bytes;
}

/// A buffer that payloads are cut out of.
impl Input for BytesMut {
    fn take_payload(&mut self, length: usize) -> Bytes {
        self.split_to(length).freeze()
    }
}

/// Bytes that payloads are copied from.
impl Input for &[u8] {
    fn take_payload(&mut self, length: usize) -> Bytes {
        let (payload, rest) = self.split_at(length);
        *self = rest;
        Bytes::copy_from_slice(payload)
    }
}

/// The descriptor of a frame's performative.
#[inline]
fn open_descriptor(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match reader.u8()? {
        code::DESCRIBED => reader.descriptor(),
        code => Err(DecodeError::Type { wanted: "performative", code }),
    }
}

/// All that a frame can carry but transfer, which has a way of its own.
enum Performative {
    Open(Box<Open>),
    Begin(Box<Begin>),
    Attach(Box<Attach>),
    Flow(Flow),
    Disposition(Disposition),
    Detach(Detach),
    End(End),
    Close(Close),
}

impl Performative {
    fn decode(descriptor: u64, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let performative = match descriptor {
            Open::CODE => Self::Open(Box::new(Open::decode_list(reader)?)),
            Begin::CODE => Self::Begin(Box::new(Begin::decode_list(reader)?)),
            Attach::CODE => Self::Attach(Box::new(Attach::decode_list(reader)?)),
            Flow::CODE => Self::Flow(Flow::decode_list(reader)?),
            Disposition::CODE => Self::Disposition(Disposition::decode_list(reader)?),
            Detach::CODE => Self::Detach(Detach::decode_list(reader)?),
            End::CODE => Self::End(End::decode_list(reader)?),
            Close::CODE => Self::Close(Close::decode_list(reader)?),
            code => return Err(DecodeError::Descriptor { wanted: "a performative that belongs here", code }),
        };
        if reader.is_empty() { Ok(performative) } else { Err(DecodeError::Surplus) }
    }
}

/// A frame's header (part 2, section 2.3.1).
pub(crate) struct FrameHead {
    /// All of the frame, in bytes.
    size: usize,
    /// Where the body begins.
    body: usize,
    kind: u8,
    channel: u16,
}

impl FrameHead {
    /// None when the header is not whole yet.
    #[inline]
    fn parse(input: &[u8], size_max: u32) -> Result<Option<Self>, Error> {
        let Some([a, b, c, d, doff, kind, high, low]) = input.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([*a, *b, *c, *d]);
        let body = usize::from(*doff) * 4;
        if size > size_max {
            return Err(Error::new(condition::FRAMING_ERROR, format!("a frame of {size} bytes, over {size_max}")));
        }
        let size = size as usize;
        if body < FRAME_HEADER_BYTES || body > size {
            return Err(Error::new(condition::FRAMING_ERROR, "a frame header that does not add up"));
        }
        Ok(Some(Self { size, body, kind: *kind, channel: u16::from_be_bytes([*high, *low]) }))
    }
}
