//! A client that costs little: the protocol engine driven directly over a blocking socket, many messages a system call.

use crate::error::{Error, Result};
use crate::host::{ClientSeal, Sealing};
use crate::load::messages::Messages;
use bulla_amqp::{AttachRequest, Connection, DeliveryState, Event, LinkId, Payload, SenderSettleMode, SessionId};
use bulla_client::{CONNECT_WITHIN, ClientError, Endpoint, Remembering, Wire};
use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Silence after which a run is given up: the slowest key signs more than once in this time.
pub const STALLED: Duration = Duration::from_secs(15);
/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Messages put by `fill` and not yet confirmed.
const FILL_WINDOW: u64 = 1_000;
/// How long a read waits before its caller looks around.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Where a client connects, and how it proves who it is.
#[derive(Clone)]
pub struct Broker {
    /// The broker, and the client's sign-in.
    pub endpoint: Endpoint,
    /// Where this client seals and opens for itself, with what.
    pub sealing: Option<Arc<dyn Sealing>>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("endpoint", &self.endpoint).field("seals", &self.sealing.is_some()).finish()
    }
}

impl Broker {
    /// A broker that needs no sign-in.
    #[must_use]
    pub fn anonymous(address: &str) -> Broker {
        Broker { endpoint: Endpoint::anonymous(address), sealing: None }
    }
}

/// A connection with one session.
pub struct Client {
    wire: Wire,
    /// The protocol; send, dispose and credit go straight to it.
    pub engine: Connection,
    session: SessionId,
    input: BytesMut,
    room: Box<[u8]>,
    heard: Instant,
    sealing: Option<Arc<dyn Sealing>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A link that the broker has opened.
pub struct Link {
    /// The link.
    pub id: LinkId,
    /// What the client seals or opens with; none where the broker does it, or where nothing is sealed.
    seal: Option<Box<dyn ClientSeal>>,
}

impl Link {
    /// The message as it goes over the link. Costs nothing where the client does not seal.
    ///
    /// # Errors
    /// [`Error::Wrong`].
    #[inline]
    pub fn out(&mut self, message: Payload) -> Result<Payload> {
        match &mut self.seal {
            None => Ok(message),
            Some(seal) => seal.seal(&message),
        }
    }

    /// Passes the message as the application reads it to `check`. Costs nothing where the client does not open.
    ///
    /// # Errors
    /// [`Error::Wrong`]: the seal is not good.
    #[inline]
    pub fn opened<T>(&mut self, message: &Payload, check: impl FnOnce(&Payload) -> T) -> Result<T> {
        match &mut self.seal {
            None => Ok(check(message)),
            Some(seal) => Ok(check(&seal.open(message)?)),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).field("seals", &self.seal.is_some()).finish()
    }
}

impl Client {
    /// Connects, proves who it is, opens a session.
    ///
    /// # Errors
    /// [`Error::Broker`]: not reached, or it refused; [`Error::File`]: certificates that can't be read.
    pub fn connect(broker: &Broker, container: &str) -> Result<Client> {
        let endpoint = &broker.endpoint;
        let failed = |error| not_connected(&endpoint.address, error);
        // The slowest key signs within the time after which a run is given up.
        let wire = Wire::connect(endpoint, STALLED.max(CONNECT_WITHIN)).map_err(failed)?;
        wire.tcp().set_read_timeout(Some(LOOK_AROUND))?;
        wire.tcp().set_write_timeout(Some(STALLED))?;
        let now = Instant::now();
        let container = format!("bulla-perf-{}-{container}", std::process::id());
        let mut engine = bulla_client::engine(endpoint, container, Box::new(Remembering), now);
        let session = engine.begin();
        let room = vec![0; READ_BYTES].into_boxed_slice();
        let sealing = broker.sealing.clone();
        let mut client = Client { wire, engine, session, input: BytesMut::new(), room, heard: now, sealing };
        client.wait_for(|event| matches!(event, Event::Opened(_)).then_some(()))?;
        Ok(client)
    }

    /// A link that puts on a queue, with confirmations.
    ///
    /// # Errors
    /// [`Error::Broker`]: its refusal.
    pub fn sender(&mut self, queue: &str) -> Result<Link> {
        let request = bulla_client::to_put(queue, SenderSettleMode::Unsettled, self.sealing.is_some());
        let link = self.attach(queue, request)?;
        while !self.engine.can_send(link.id) {
            self.wait_for(|event| matches!(event, Event::Credit { .. }).then_some(()))?;
        }
        Ok(link)
    }

    /// A link that gets from a queue, each message accepted.
    ///
    /// # Errors
    /// [`Error::Broker`]: its refusal.
    pub fn receiver(&mut self, queue: &str, credit: u32) -> Result<Link> {
        self.receiver_of(queue, credit, 0)
    }

    /// As [`receiver`](Self::receiver), for messages of so many bytes at most; 0 for any.
    ///
    /// # Errors
    /// [`Error::Broker`]: its refusal.
    pub fn receiver_of(&mut self, queue: &str, credit: u32, message_bytes_max: u64) -> Result<Link> {
        let request = bulla_client::to_get(queue, false, self.sealing.is_some());
        let request = AttachRequest { max_message_size: message_bytes_max, ..request };
        let link = self.attach(queue, request)?;
        self.engine.set_credit(link.id, credit);
        self.flush()?;
        Ok(link)
    }

    fn attach(&mut self, queue: &str, request: AttachRequest) -> Result<Link> {
        let id = self.engine.attach(self.session, request);
        // A refusal comes as an answer without terminus and then a detach with the error, which `event` makes one of.
        let properties = self.wait_for(|event| match event {
            Event::LinkOpened(opened) if opened.link == id && opened.source.is_some() && opened.target.is_some() => {
                Some(opened.properties.clone())
            }
            _ => None,
        })?;
        let seal = self.sealing.as_ref().map(|sealing| sealing.link(queue, &properties)).transpose()?;
        Ok(Link { id, seal })
    }

    /// Passes events over until the one that is wanted.
    fn wait_for<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
        self.nothing_owed();
        loop {
            self.flush()?;
            self.read(None)?;
            while let Some(event) = self.event()? {
                if let Some(found) = wanted(&event) {
                    return Ok(found);
                }
            }
            self.check_alive()?;
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// [`Error::Broker`]: it ended a link or the connection.
    #[inline]
    pub fn event(&mut self) -> Result<Option<Event>> {
        match self.engine.poll_event() {
            Some(Event::Detached { error, .. } | Event::SessionEnded(_, error) | Event::Closed(error)) => {
                let why = error.as_ref().map_or("without a reason", |error| bulla_client::refused(error));
                Err(Error::Broker(format!("the broker ended it: {why}")))
            }
            event => Ok(event),
        }
    }

    /// Writes what there is.
    ///
    /// # Errors
    /// [`Error::Broker`]: the connection broke.
    pub fn flush(&mut self) -> Result<()> {
        self.wire.write(&mut self.engine).map_err(broke)
    }

    /// Reads once: waits until `until`, or else for a moment, after which the caller may look around. False when
    /// nothing came.
    ///
    /// # Errors
    /// [`Error::Broker`]: the connection broke.
    pub fn read(&mut self, until: Option<Instant>) -> Result<bool> {
        if let Some(until) = until
            && !self.wire.has_read_ahead()
        {
            let left = until.saturating_duration_since(Instant::now());
            let seconds = left.as_secs().try_into().unwrap_or(i64::MAX);
            let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(self.wire.tcp(), PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
                Ok(_) => {}
                Err(error) => return Err(broke(error.into())),
            }
        }
        match self.wire.read(&mut self.room) {
            Ok(0) => Err(Error::Broker("the broker closed the connection".to_owned())),
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
            Err(error) => Err(broke(error)),
        }
    }

    /// An error when something was owed and nothing came for too long.
    ///
    /// # Errors
    /// [`Error::Broker`].
    pub fn check_alive(&self) -> Result<()> {
        if self.heard.elapsed() > STALLED {
            return Err(Error::Broker(format!("nothing came from the broker for {} s", STALLED.as_secs())));
        }
        Ok(())
    }

    /// Nothing is owed up to now.
    pub fn nothing_owed(&mut self) {
        self.heard = Instant::now();
    }

    /// Puts so many messages, as fast as they are confirmed.
    ///
    /// # Errors
    /// [`Error::Broker`]: one was not taken, or the connection broke; [`Error::Wrong`]: it can't be sealed.
    pub fn fill(&mut self, link: &mut Link, messages: &Messages, count: u64) -> Result<()> {
        let (mut sent, mut confirmed) = (0, 0);
        while confirmed < count {
            while sent < count && sent - confirmed < FILL_WINDOW && self.engine.can_send(link.id) {
                let message = link.out(messages.put(sent))?;
                self.engine.send(link.id, sent, message, false);
                sent += 1;
            }
            self.flush()?;
            self.read(None)?;
            while let Some(event) = self.event()? {
                if let Event::Outcome { state, token, .. } = event {
                    if !matches!(state, Some(DeliveryState::Accepted)) {
                        return Err(not_taken(token, &state));
                    }
                    confirmed += 1;
                }
            }
            self.check_alive()?;
        }
        Ok(())
    }

    /// Ends the connection in order.
    ///
    /// # Errors
    /// [`Error::Broker`]: it broke first.
    pub fn close(mut self) -> Result<()> {
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

/// A message that a put did not get rid of.
#[must_use]
pub fn not_taken(number: u64, state: &Option<DeliveryState>) -> Error {
    let why = match state {
        Some(DeliveryState::Rejected(Some(error))) => bulla_client::refused(error).to_owned(),
        state => format!("{state:?}"),
    };
    Error::Broker(format!("message {number} was not taken: {why}"))
}

fn broke(error: io::Error) -> Error {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return Error::Broker(format!("the broker took nothing for {} s", STALLED.as_secs()));
    }
    Error::Broker(format!("the connection broke: {error}"))
}

fn not_connected(address: &str, error: ClientError) -> Error {
    match error {
        ClientError::Authorities { path, error } => Error::File(path, error),
        ClientError::Unreachable { .. } => Error::Broker(error.to_string()),
        error => Error::Broker(format!("{address}: {error}")),
    }
}
