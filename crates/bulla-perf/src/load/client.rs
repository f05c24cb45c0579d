//! A client that costs little: the protocol engine driven directly over a blocking socket, many messages a system call.

use crate::error::{Error, Result};
use crate::host::{ClientSeal, Sealing};
use crate::load::messages::Messages;
use bulla_amqp::{
    AttachRequest, Config, Connection, DeliveryState, Event, LinkId, Payload, SaslClient, ScramCrypto,
    SenderSettleMode, SessionId, Symbol,
};
use bytes::BytesMut;
use openssl::hash::MessageDigest;
use openssl::ssl::{SslConnector, SslMethod, SslStream};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use openssl::{base64, pkcs5, rand, sha};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Silence after which a run is given up: the slowest key signs more than once in this time.
pub const STALLED: Duration = Duration::from_secs(15);
/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Bytes that are handed to TLS at once: four of its records.
const TLS_WRITE_BYTES: usize = 64 << 10;
/// Messages put by `fill` and not yet confirmed.
const FILL_WINDOW: u64 = 1_000;
/// Salted passwords that are kept.
const KNOWN_KEYS_MAX: usize = 16;
/// How long a read waits before its caller looks around.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Where a client connects, and how it proves who it is.
#[derive(Clone)]
pub struct Broker {
    /// `HOST:PORT`.
    pub address: String,
    /// The authorities to believe (PEM); TLS is spoken where they are given.
    pub authorities: Option<PathBuf>,
    /// Certificate and key of a client that proves itself by them (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The SASL mechanism and its secrets.
    pub sasl: SaslClient,
    /// Where this client seals and opens for itself, with what.
    pub sealing: Option<Arc<dyn Sealing>>,
}

impl fmt::Debug for Broker {
    /// Without the secrets of SASL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("address", &self.address)
            .field("authorities", &self.authorities)
            .field("certificate", &self.certificate)
            .field("seals", &self.sealing.is_some())
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// Somebody whom that broker lets in without a name.
    #[must_use]
    pub fn anonymous(address: &str) -> Broker {
        let sasl = SaslClient::Anonymous;
        Broker { address: address.to_owned(), authorities: None, certificate: None, sasl, sealing: None }
    }
}

/// A connection with one session.
pub struct Client {
    stream: Stream,
    /// The protocol; send, dispose and credit go straight to it.
    pub engine: Connection,
    session: SessionId,
    input: BytesMut,
    room: Box<[u8]>,
    heard: Instant,
    sealing: Option<Arc<dyn Sealing>>,
}

enum Stream {
    Plain(TcpStream),
    /// With room to gather what goes into one record.
    Tls(Box<SslStream<TcpStream>>, Vec<u8>),
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
    /// What the client seals or opens with; none where that is the broker's affair, or nobody's.
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
        let tcp = connect(&broker.address)?;
        let stream = match &broker.authorities {
            Some(authorities) => {
                Stream::Tls(Box::new(secure(broker, authorities, tcp)?), Vec::with_capacity(TLS_WRITE_BYTES))
            }
            None => Stream::Plain(tcp),
        };
        let config = Config {
            hostname: broker.address.rsplit_once(':').map(|(host, _)| host.to_owned()),
            ..Config::new(format!("bulla-perf-{}-{container}", std::process::id()))
        };
        let now = Instant::now();
        let mut engine = Connection::client(config, broker.sasl.clone(), Box::new(Crypto), now);
        let session = engine.begin();
        let room = vec![0; READ_BYTES].into_boxed_slice();
        let sealing = broker.sealing.clone();
        let mut client = Client { stream, engine, session, input: BytesMut::new(), room, heard: now, sealing };
        client.wait_for(|event| matches!(event, Event::Opened(_)).then_some(()))?;
        Ok(client)
    }

    /// A link that puts on a queue, with confirmations.
    ///
    /// # Errors
    /// [`Error::Broker`]: its refusal.
    pub fn sender(&mut self, queue: &str) -> Result<Link> {
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Unsettled,
            desired_capabilities: sealed_capability(self.sealing.is_some()),
            ..AttachRequest::sender(format!("put-{queue}"), queue)
        };
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
        let request = AttachRequest {
            snd_settle_mode: SenderSettleMode::Unsettled,
            desired_capabilities: sealed_capability(self.sealing.is_some()),
            ..AttachRequest::receiver(format!("get-{queue}"), queue)
        };
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
                let why = error.map_or_else(
                    || "without a reason".to_owned(),
                    |error| error.description.unwrap_or_else(|| error.condition.as_str().to_owned()),
                );
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
        while self.engine.output_len() > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            self.engine.output_slices(&mut slices);
            let written = match &mut self.stream {
                Stream::Plain(stream) => stream.write_vectored(&slices),
                Stream::Tls(stream, gathered) => {
                    gathered.clear();
                    for slice in &slices {
                        let room = TLS_WRITE_BYTES - gathered.len();
                        gathered.extend_from_slice(&slice[..slice.len().min(room)]);
                        if gathered.len() == TLS_WRITE_BYTES {
                            break;
                        }
                    }
                    stream.write(gathered)
                }
            };
            drop(slices);
            self.engine.output_written(written.map_err(broke)?);
        }
        Ok(())
    }

    /// Reads once: waits until `until`, or else for a moment, after which the caller may look around. False when nothing came.
    ///
    /// # Errors
    /// [`Error::Broker`]: the connection broke.
    pub fn read(&mut self, until: Option<Instant>) -> Result<bool> {
        if let Some(until) = until
            && !self.stream.has_read_ahead()
        {
            let left = until.saturating_duration_since(Instant::now());
            let seconds = left.as_secs().try_into().unwrap_or(i64::MAX);
            let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(self.stream.tcp(), PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
                Ok(_) => {}
                Err(error) => return Err(broke(error.into())),
            }
        }
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(&mut self.room),
            Stream::Tls(stream, _) => stream.read(&mut self.room),
        };
        match read {
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

    /// Nobody owed anything up to now.
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

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream, _) => stream.get_ref(),
        }
    }

    /// Bytes that TLS has taken off the socket already, of which `poll` knows nothing.
    fn has_read_ahead(&self) -> bool {
        matches!(self, Stream::Tls(stream, _) if stream.ssl().pending() > 0)
    }
}

/// The capability by which Bulla knows a client that seals and opens for itself.
fn sealed_capability(sealed: bool) -> Vec<Symbol> {
    if sealed { vec![Symbol::from_static("bulla:sealed")] } else { Vec::new() }
}

/// A message that a put did not get rid of.
#[must_use]
pub fn not_taken(number: u64, state: &Option<DeliveryState>) -> Error {
    let why = match state {
        Some(DeliveryState::Rejected(Some(error))) => {
            error.description.clone().unwrap_or_else(|| error.condition.as_str().to_owned())
        }
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

fn connect(address: &str) -> Result<TcpStream> {
    let failed = |error: io::Error| Error::Broker(format!("{address}: {error}"));
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such address");
    for resolved in address.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&resolved, CONNECT_WITHIN) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                stream.set_read_timeout(Some(LOOK_AROUND)).map_err(failed)?;
                stream.set_write_timeout(Some(STALLED)).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn secure(broker: &Broker, authorities: &Path, stream: TcpStream) -> Result<SslStream<TcpStream>> {
    let tls = |error: &dyn fmt::Display| Error::Broker(format!("{}: tls: {error}", broker.address));
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(|error| tls(&error))?;
    // These authorities and no others: the system's are not asked.
    let pem = std::fs::read(authorities).map_err(|error| Error::file(authorities, error))?;
    let mut store = X509StoreBuilder::new().map_err(|error| tls(&error))?;
    for authority in X509::stack_from_pem(&pem).map_err(|error| tls(&error))? {
        store.add_cert(authority).map_err(|error| tls(&error))?;
    }
    builder.set_cert_store(store.build());
    if let Some((certificate, key)) = &broker.certificate {
        builder.set_certificate_chain_file(certificate).map_err(|error| tls(&error))?;
        builder.set_private_key_file(key, openssl::ssl::SslFiletype::PEM).map_err(|error| tls(&error))?;
    }
    let host = broker.address.rsplit_once(':').map_or(broker.address.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // A handshake may take longer than a look around.
    stream.set_read_timeout(Some(STALLED)).map_err(|error| tls(&error))?;
    let stream = builder.build().connect(host, stream).map_err(|error| tls(&error))?;
    stream.get_ref().set_read_timeout(Some(LOOK_AROUND)).map_err(|error| tls(&error))?;
    Ok(stream)
}

/// A salted password, after a digest of what it is made from.
type Salted = ([u8; 32], Zeroizing<[u8; 32]>);

/// What SCRAM stands on, from OpenSSL.
struct Crypto;

impl ScramCrypto for Crypto {
    fn hmac(&self, key: &[u8], data: &[u8]) -> [u8; 32] {
        /// Bytes of a block of SHA-256 (RFC 2104).
        const BLOCK_BYTES: usize = 64;
        let hashed = (key.len() > BLOCK_BYTES).then(|| sha::sha256(key));
        let mut block = [0; BLOCK_BYTES];
        for (padded, byte) in block.iter_mut().zip(hashed.as_ref().map_or(key, |hash| &hash[..])) {
            *padded = *byte;
        }
        let keyed = |pad: u8, data: &[u8]| {
            let mut hash = sha::Sha256::new();
            hash.update(&block.map(|byte| byte ^ pad));
            hash.update(data);
            hash.finish()
        };
        keyed(0x5c, &keyed(0x36, data))
    }

    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        sha::sha256(data)
    }

    /// A hundred clients of one user have the same password and salt: what that comes to is kept for the next of them.
    fn pbkdf2(&self, password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
        static KNOWN: Mutex<VecDeque<Salted>> = Mutex::new(VecDeque::new());
        let mut asked = sha::Sha256::new();
        for part in [&(salt.len() as u64).to_be_bytes()[..], salt, &iterations.to_be_bytes(), password] {
            asked.update(part);
        }
        let asked = asked.finish();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = known.iter().find(|(of, _)| *of == asked) {
            return **key;
        }
        let mut key = Zeroizing::new([0; 32]);
        let rounds = usize::try_from(iterations.max(1)).unwrap_or(1);
        pkcs5::pbkdf2_hmac(password, salt, rounds, MessageDigest::sha256(), &mut *key)
            .expect("OpenSSL has SHA-256, and there is at least one round");
        let made = *key;
        known.truncate(KNOWN_KEYS_MAX - 1);
        known.push_front((asked, key));
        made
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; 24];
        rand::rand_bytes(&mut bytes).expect("the system has randomness");
        base64::encode_block(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_shown_without_its_password() {
        let sasl = SaslClient::Plain { user: "orders".into(), password: "opensesame".into() };
        let shown = format!("{:?}", Broker { sasl, ..Broker::anonymous("broker:5671") });
        assert!(shown.contains("broker:5671") && !shown.contains("opensesame"), "{shown}");
    }

    #[test]
    fn hmac_is_the_one_of_rfc_4231() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(Crypto.hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(Crypto.hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
    #[test]
    fn a_salted_password_that_is_known_already_is_the_same() {
        let anew = |password: &[u8], salt: &[u8], rounds| {
            let mut key = [0; 32];
            pkcs5::pbkdf2_hmac(password, salt, rounds, MessageDigest::sha256(), &mut key).unwrap();
            key
        };
        for _ in 0..2 {
            for number in 0..20 {
                let salt = [number; 16];
                assert_eq!(Crypto.pbkdf2(b"barley", &salt, 3), anew(b"barley", &salt, 3));
                assert_eq!(Crypto.pbkdf2(b"shekels", &salt, 4), anew(b"shekels", &salt, 4));
            }
        }
    }
}
