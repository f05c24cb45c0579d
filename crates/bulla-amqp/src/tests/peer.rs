//! A server engine and a peer that says exactly what a test wants.

use crate::codec::{Encode, Reader};
use crate::types::{Attach, Begin, Close, Detach, Disposition, End, Flow, SaslMechanisms, SaslOutcome, Transfer};
use crate::{
    AnyTarget, AttachReply, Config, Connection, Event, LinkId, Mechanism, Open, ReceiverSettleMode, Role, SaslOffer,
    SenderSettleMode, Source, Target,
};
use bytes::BytesMut;
use std::time::{Duration, Instant};

pub(crate) const AMQP_HEADER: &[u8; 8] = b"AMQP\x00\x01\x00\x00";
pub(crate) const SASL_HEADER: &[u8; 8] = b"AMQP\x03\x01\x00\x00";

/// What a frame from the engine carried.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // a handful at a time
pub(crate) enum Frame {
    Header([u8; 8]),
    Heartbeat,
    Open(Open),
    Begin(Begin),
    Attach(Attach),
    Flow(Flow),
    Transfer(Transfer, Vec<u8>),
    Disposition(Disposition),
    Detach(Detach),
    End(End),
    Close(Close),
    SaslMechanisms(SaslMechanisms),
    SaslOutcome(SaslOutcome),
    OtherSasl,
}

pub(crate) struct Peer {
    pub(crate) engine: Connection,
    pub(crate) now: Instant,
    pub(crate) input: BytesMut,
    output: Vec<u8>,
}

pub(crate) fn config() -> Config {
    Config::new("engine")
}

pub(crate) fn offer() -> SaslOffer {
    SaslOffer { mechanisms: vec![Mechanism::Anonymous, Mechanism::Plain], allow_bare_amqp: true }
}

pub(crate) fn open() -> Open {
    Open {
        container_id: "peer".into(),
        hostname: None,
        max_frame_size: u32::MAX,
        channel_max: u16::MAX,
        idle_time_out: None,
        outgoing_locales: vec![],
        incoming_locales: vec![],
        offered_capabilities: vec![],
        desired_capabilities: vec![],
        properties: vec![],
    }
}

pub(crate) fn begin() -> Begin {
    Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 1_000,
        outgoing_window: 1_000,
        handle_max: u32::MAX,
        offered_capabilities: vec![],
        desired_capabilities: vec![],
        properties: vec![],
    }
}

/// The attach of a peer of that role, its handle 0.
pub(crate) fn attach(role: Role) -> Attach {
    Attach {
        name: "link".into(),
        handle: 0,
        role,
        snd_settle_mode: SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode::First,
        source: Some(Source::at("a")),
        target: Some(AnyTarget::Target(Target::at("a"))),
        unsettled: None,
        incomplete_unsettled: false,
        initial_delivery_count: (role == Role::Sender).then_some(0),
        max_message_size: None,
        offered_capabilities: vec![],
        desired_capabilities: vec![],
        properties: vec![],
    }
}

pub(crate) fn flow() -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: 1_000,
        next_outgoing_id: 0,
        outgoing_window: 1_000,
        handle: None,
        delivery_count: None,
        link_credit: None,
        available: None,
        drain: false,
        echo: false,
        properties: vec![],
    }
}

pub(crate) fn credit(handle: u32, delivery_count: u32, credit: u32) -> Flow {
    Flow { handle: Some(handle), delivery_count: Some(delivery_count), link_credit: Some(credit), ..flow() }
}

pub(crate) fn transfer(id: u32) -> Transfer {
    Transfer {
        handle: 0,
        delivery_id: Some(id),
        delivery_tag: crate::types::DeliveryTag::new(&id.to_be_bytes()),
        message_format: Some(0),
        settled: None,
        more: false,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    }
}

pub(crate) fn disposition(role: Role, first: u32, last: Option<u32>, settled: bool) -> Disposition {
    Disposition { role, first, last, settled, state: Some(crate::DeliveryState::Accepted), batchable: false }
}

/// A frame of a performative and a payload.
pub(crate) fn frame(kind: u8, channel: u16, performative: &dyn Fn(&mut Vec<u8>), payload: &[u8]) -> Vec<u8> {
    let [high, low] = channel.to_be_bytes();
    let mut frame = vec![0, 0, 0, 0, 2, kind, high, low];
    performative(&mut frame);
    frame.extend_from_slice(payload);
    let size = u32::try_from(frame.len()).unwrap().to_be_bytes();
    frame[..4].copy_from_slice(&size);
    frame
}

impl Peer {
    pub(crate) fn new(config: Config, offer: SaslOffer) -> Self {
        let now = Instant::now();
        Self { engine: Connection::server(config, offer, now), now, input: BytesMut::new(), output: Vec::new() }
    }

    /// Open on both sides.
    pub(crate) fn opened(config: Config) -> Self {
        let mut peer = Self::new(config, offer());
        peer.bytes(AMQP_HEADER);
        peer.send(0, &open());
        assert!(matches!(peer.events()[..], [Event::Opened(_)]));
        assert!(matches!(peer.frames()[..], [Frame::Header(_), Frame::Open(_)]));
        peer
    }

    /// With a session on channel 0.
    pub(crate) fn begun(config: Config) -> Self {
        let mut peer = Self::opened(config);
        peer.send(0, &begin());
        assert!(matches!(peer.events()[..], [Event::SessionBegun(_)]));
        assert!(matches!(peer.frames()[..], [Frame::Begin(_)]));
        peer
    }

    /// With a link whose handle is 0 on both sides; `role` is the peer's.
    pub(crate) fn attached(config: Config, role: Role) -> (Self, LinkId) {
        let mut peer = Self::begun(config);
        let link = peer.attach(&attach(role));
        (peer, link)
    }

    /// Attaches, and accepts with what was asked.
    pub(crate) fn attach(&mut self, attach: &Attach) -> LinkId {
        self.send(0, attach);
        let link = self.asked();
        self.engine.accept_link(link, reply(attach));
        assert!(matches!(self.frames()[..], [Frame::Attach(_)]));
        link
    }

    /// The link of the one attach that waits.
    pub(crate) fn asked(&mut self) -> LinkId {
        match &self.events()[..] {
            [Event::Attached(attach)] => attach.link,
            events => panic!("{events:?}"),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.engine.receive(self.now, &mut self.input);
    }

    pub(crate) fn send(&mut self, channel: u16, performative: &impl Encode) {
        self.transfer(channel, performative, &[]);
    }

    pub(crate) fn transfer(&mut self, channel: u16, performative: &impl Encode, payload: &[u8]) {
        let frame = frame(0, channel, &|out| performative.encode(out), payload);
        self.bytes(&frame);
    }

    pub(crate) fn sasl(&mut self, performative: &impl Encode) {
        let frame = frame(1, 0, &|out| performative.encode(out), &[]);
        self.bytes(&frame);
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.engine.poll_event()).collect()
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.now += time;
        self.engine.handle_timeout(self.now);
    }

    /// All frames that the engine has written.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        while self.engine.output_len() > 0 {
            let mut slices = Vec::new();
            let count = self.engine.output_slices(&mut slices);
            slices.iter().for_each(|slice| self.output.extend_from_slice(slice));
            drop(slices);
            self.engine.output_written(count);
        }
        let output = std::mem::take(&mut self.output);
        parse(&output).into_iter().map(|(_, frame)| frame).collect()
    }
}

pub(crate) fn reply(attach: &Attach) -> AttachReply {
    let target = match &attach.target {
        Some(AnyTarget::Target(target)) => Some(target.clone()),
        _ => None,
    };
    AttachReply { source: attach.source.clone(), target, ..AttachReply::default() }
}

/// Takes output apart: protocol headers and frames with their channels.
pub(crate) fn parse(mut bytes: &[u8]) -> Vec<(u16, Frame)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        if bytes.starts_with(b"AMQP") {
            frames.push((0, Frame::Header(bytes[..8].try_into().unwrap())));
            bytes = &bytes[8..];
            continue;
        }
        let size = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        let channel = u16::from_be_bytes(bytes[6..8].try_into().unwrap());
        let body = &bytes[8..size];
        bytes = &bytes[size..];
        if body.is_empty() {
            frames.push((channel, Frame::Heartbeat));
            continue;
        }
        let mut reader = Reader::new(body);
        assert_eq!(reader.u8(), Ok(0));
        let code = reader.descriptor().unwrap();
        let reader = &mut reader;
        let frame = match code {
            Open::CODE => Frame::Open(Open::decode_list(reader).unwrap()),
            Begin::CODE => Frame::Begin(Begin::decode_list(reader).unwrap()),
            Attach::CODE => Frame::Attach(Attach::decode_list(reader).unwrap()),
            Flow::CODE => Frame::Flow(Flow::decode_list(reader).unwrap()),
            Transfer::CODE => {
                let transfer = Transfer::decode_list(reader).unwrap();
                let left = reader.left();
                Frame::Transfer(transfer, reader.take(left).unwrap().to_vec())
            }
            Disposition::CODE => Frame::Disposition(Disposition::decode_list(reader).unwrap()),
            Detach::CODE => Frame::Detach(Detach::decode_list(reader).unwrap()),
            End::CODE => Frame::End(End::decode_list(reader).unwrap()),
            Close::CODE => Frame::Close(Close::decode_list(reader).unwrap()),
            SaslMechanisms::CODE => Frame::SaslMechanisms(SaslMechanisms::decode_list(reader).unwrap()),
            SaslOutcome::CODE => Frame::SaslOutcome(SaslOutcome::decode_list(reader).unwrap()),
            _ => Frame::OtherSasl,
        };
        assert!(reader.is_empty() || frame == Frame::OtherSasl);
        frames.push((channel, frame));
    }
    frames
}
