//! A client that costs little: the protocol engine driven directly over a blocking socket, many messages a system call.

use super::Result;
use bulla_amqp::{
    AttachRequest, Config, Connection, DeliveryState, Event, LinkId, Payload, SaslClient, SenderSettleMode, SessionId,
};
use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a message's payload.
pub(crate) const PAYLOAD_BYTES: usize = 2048;
/// Messages that differ from each other, one after another.
pub(crate) const MESSAGES: usize = 64;
/// A header section that says durable and nothing else (part 3, section 3.2.1).
const DURABLE: [u8; 7] = [0, 0x53, 0x70, 0xc0, 2, 1, 0x41];
/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Messages put by `fill` and not yet confirmed.
const FILL_WINDOW: u64 = 1_000;
/// How long a read waits before its caller looks around.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// Silence after which a run is given up: the slowest key signs more than once in this time.
pub(crate) const STALLED: Duration = Duration::from_secs(15);

/// A connection with one session.
pub(crate) struct Client {
    stream: TcpStream,
    /// The protocol; send, dispose and credit go straight to it.
    pub(crate) engine: Connection,
    session: SessionId,
    input: BytesMut,
    room: Box<[u8]>,
    heard: Instant,
}

impl Client {
    /// Connects and signs in by SCRAM: the queue manager uses a key ring only for somebody it knows.
    pub(crate) fn connect(address: &str, user: &str) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_AROUND))?;
        let sasl = SaslClient::Scram { user: user.to_owned(), password: super::manager::PASSWORD.to_owned() };
        let config = Config::new(format!("bench-{user}"));
        let now = Instant::now();
        let mut engine = Connection::client(config, sasl, Box::new(bulla::users::Crypto), now);
        let session = engine.begin();
        let room = vec![0; READ_BYTES].into_boxed_slice();
        let mut client = Client { stream, engine, session, input: BytesMut::new(), room, heard: now };
        client.wait_for(|event| matches!(event, Event::Opened(_)))?;
        Ok(client)
    }

    /// A link that puts on a queue, with confirmations.
    pub(crate) fn sender(&mut self, queue: &str) -> Result<LinkId> {
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Unsettled,
            ..AttachRequest::sender(format!("put-{queue}"), queue)
        };
        let link = self.attach(request)?;
        while !self.engine.can_send(link) {
            self.wait_for(|event| matches!(event, Event::Credit { .. }))?;
        }
        Ok(link)
    }

    /// A link that gets from a queue, each message accepted.
    pub(crate) fn receiver(&mut self, queue: &str, credit: u32) -> Result<LinkId> {
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Unsettled,
            ..AttachRequest::receiver(format!("get-{queue}"), queue)
        };
        let link = self.attach(request)?;
        self.engine.set_credit(link, credit);
        self.flush()?;
        Ok(link)
    }

    fn attach(&mut self, request: AttachRequest) -> Result<LinkId> {
        let link = self.engine.attach(self.session, request);
        self.wait_for(|event| {
            matches!(event, Event::LinkOpened(opened) if opened.link == link && opened.source.is_some() && opened.target.is_some())
        })?;
        Ok(link)
    }

    /// Passes events over until the one that is wanted.
    fn wait_for(&mut self, wanted: impl Fn(&Event) -> bool) -> Result<()> {
        loop {
            self.flush()?;
            self.read(None)?;
            while let Some(event) = self.event()? {
                if wanted(&event) {
                    return Ok(());
                }
            }
        }
    }

    /// The next event; what ends a link or the connection is an error.
    #[inline]
    pub(crate) fn event(&mut self) -> Result<Option<Event>> {
        match self.engine.poll_event() {
            Some(event @ (Event::Detached { .. } | Event::SessionEnded(..) | Event::Closed(_))) => {
                Err(format!("the queue manager ended it: {event:?}").into())
            }
            event => Ok(event),
        }
    }

    /// Writes what there is.
    pub(crate) fn flush(&mut self) -> Result<()> {
        while self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            let written = self.stream.write_vectored(&slices)?;
            drop(slices);
            self.engine.output_written(written);
        }
        Ok(())
    }

    /// Reads once: waits until `until`, or else for a moment, after which the caller may look around. False when nothing came.
    pub(crate) fn read(&mut self, until: Option<Instant>) -> Result<bool> {
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs().try_into()?, tv_nsec: left.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&timeout))? == 0 {
                return Ok(false);
            }
        }
        match self.stream.read(&mut self.room) {
            Ok(0) => Err("the queue manager closed the connection".into()),
            Ok(count) => {
                self.input.extend_from_slice(self.room.get(..count).unwrap_or_default());
                self.heard = Instant::now();
                self.engine.receive(self.heard, &mut self.input);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                let now = Instant::now();
                if self.engine.poll_timeout().is_some_and(|due| due <= now) {
                    self.engine.handle_timeout(now);
                }
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// An error when something was owed and nothing came for too long.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.heard.elapsed() > STALLED {
            return Err(format!("nothing came for {} s", STALLED.as_secs()).into());
        }
        Ok(())
    }

    /// Nobody owed anything up to now.
    pub(crate) fn nothing_owed(&mut self) {
        self.heard = Instant::now();
    }

    /// Puts so many messages, as fast as they are confirmed.
    pub(crate) fn fill(&mut self, link: LinkId, messages: &Messages, count: u64) -> Result<()> {
        let (mut sent, mut confirmed) = (0, 0);
        while confirmed < count {
            while sent < count && sent - confirmed < FILL_WINDOW && self.engine.can_send(link) {
                self.engine.send(link, sent, messages.put(sent), false);
                sent += 1;
            }
            self.flush()?;
            self.read(None)?;
            while let Some(event) = self.event()? {
                match event {
                    Event::Outcome { state: Some(DeliveryState::Accepted), .. } => confirmed += 1,
                    Event::Outcome { state, .. } => return Err(format!("a put came to {state:?}").into()),
                    _ => {}
                }
            }
            self.check_alive()?;
        }
        Ok(())
    }

    /// Ends the connection in order.
    pub(crate) fn close(mut self) -> Result<()> {
        self.engine.close(None);
        self.flush()?;
        let deadline = Instant::now() + STALLED;
        while !self.engine.is_closed() && Instant::now() < deadline {
            self.read(None)?;
            while self.engine.poll_event().is_some() {}
        }
        Ok(())
    }
}

/// The messages that are put, one after another: properties with a message id, and a data section.
#[derive(Clone)]
pub(crate) struct Messages {
    whole: Arc<[Payload]>,
    payloads: Arc<[Bytes]>,
    bytes: usize,
}

impl Messages {
    /// Made once, shared by all puts: a put costs the client a reference count.
    pub(crate) fn new() -> Messages {
        Messages::of(PAYLOAD_BYTES, false)
    }

    /// Messages of so many bytes of payload.
    pub(crate) fn of(bytes: usize, persistent: bool) -> Messages {
        let payloads: Vec<Bytes> =
            (0..MESSAGES).map(|n| Bytes::from((0..bytes).map(|at| (at * 7 + n) as u8).collect::<Vec<u8>>())).collect();
        let whole = payloads.iter().enumerate().map(|(n, payload)| {
            let mut message = if persistent { DURABLE.to_vec() } else { Vec::new() };
            message.extend(properties(n as u64));
            message.extend(bulla_amqp::message::data_section_head(bytes));
            message.extend_from_slice(payload);
            Payload::from(Bytes::from(message))
        });
        Messages { whole: whole.collect(), payloads: payloads.into(), bytes }
    }

    /// The `number`th message.
    #[inline]
    pub(crate) fn put(&self, number: u64) -> Payload {
        self.whole[(number % MESSAGES as u64) as usize].clone()
    }

    /// Whether a message that came is the `number`th, payload and all. What the queue manager put before the payload is its business.
    #[inline]
    pub(crate) fn is(&self, number: u64, message: &Payload) -> bool {
        let len = message.len();
        let payload = &self.payloads[(number % MESSAGES as u64) as usize];
        len >= self.bytes && *message.bytes_at(len - self.bytes..len) == **payload
    }
}

/// A properties section with a message id and nothing else (part 3, section 3.2.4).
pub(crate) fn properties(message_id: u64) -> Vec<u8> {
    let mut section = vec![0, 0x53, 0x73, 0xc0, 10, 1, 0x80];
    section.extend(message_id.to_be_bytes());
    section
}
