//! A client and a server engine, joined by buffers, with a clock of their own.

use crate::scram::ScramCrypto;
use crate::tests::peer::{config, offer};
use crate::{
    AnyTarget, AttachReply, AttachRequest, Config, Connection, Event, LinkId, SaslClient, SaslOffer, SessionId,
};
use bytes::BytesMut;
use std::time::{Duration, Instant};

pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    pub(crate) now: Instant,
    to_client: BytesMut,
    to_server: BytesMut,
    /// Events not looked at yet.
    pub(crate) client_events: Vec<Event>,
    pub(crate) server_events: Vec<Event>,
    /// Bytes moved at once.
    pub(crate) step: usize,
}

/// Arithmetic that is wrong, but the same on both sides: for tests that need no real one.
pub(crate) struct NoCrypto;

impl ScramCrypto for NoCrypto {
    fn hmac(&self, key: &[u8], data: &[u8]) -> [u8; 32] {
        self.sha256(&[key, data].concat())
    }

    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        let mut random = crate::tests::Random::new(
            data.iter().fold(7, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)),
        );
        std::array::from_fn(|_| random.next() as u8)
    }

    fn pbkdf2(&self, password: &[u8], salt: &[u8], _: u32) -> [u8; 32] {
        self.hmac(password, salt)
    }

    fn nonce(&self) -> String {
        "abc".into()
    }
}

impl Pair {
    pub(crate) fn new(client: Config, sasl: SaslClient, server: Config, offer: SaslOffer) -> Self {
        let now = Instant::now();
        Self {
            client: Connection::client(client, sasl, Box::new(NoCrypto), now),
            server: Connection::server(server, offer, now),
            now,
            to_client: BytesMut::new(),
            to_server: BytesMut::new(),
            client_events: Vec::new(),
            server_events: Vec::new(),
            step: usize::MAX,
        }
    }

    pub(crate) fn opened_with(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, SaslClient::None, server, offer());
        pair.run();
        assert!(matches!(pair.client_events[..], [Event::Opened(_)]));
        assert!(matches!(pair.server_events[..], [Event::Opened(_)]));
        pair.client_events.clear();
        pair.server_events.clear();
        pair
    }

    pub(crate) fn opened() -> Self {
        Self::opened_with(config(), config())
    }

    /// With a session and a link as asked for; returns its two ids, client first.
    pub(crate) fn attach(&mut self, request: AttachRequest) -> (LinkId, LinkId) {
        let session = self.begin();
        self.attach_on(session, request)
    }

    pub(crate) fn begin(&mut self) -> SessionId {
        let session = self.client.begin();
        self.run();
        self.client_events.clear();
        self.server_events.clear();
        session
    }

    pub(crate) fn attach_on(&mut self, session: SessionId, request: AttachRequest) -> (LinkId, LinkId) {
        let client = self.client.attach(session, request);
        self.run();
        let [Event::Attached(asked)] = &std::mem::take(&mut self.server_events)[..] else { panic!("no attach") };
        let target = match asked.target.clone() {
            Some(AnyTarget::Target(target)) => Some(target),
            _ => None,
        };
        let reply = AttachReply { source: asked.source.clone(), target, ..AttachReply::default() };
        self.server.accept_link(asked.link, reply);
        self.run();
        assert!(matches!(std::mem::take(&mut self.client_events)[..], [Event::LinkOpened(_)]));
        (client, asked.link)
    }

    /// Moves bytes until both are still, and gathers the events.
    pub(crate) fn run(&mut self) {
        loop {
            let before = (self.client_events.len(), self.server_events.len());
            let moved = carry(&mut self.client, &mut self.to_server, self.step)
                + carry(&mut self.server, &mut self.to_client, self.step);
            // The one side as a queue manager does it, the other one as its clients do.
            self.server.receive_copied(self.now, &self.to_server.split());
            self.client.receive(self.now, &mut self.to_client);
            self.server_events.extend(std::iter::from_fn(|| self.server.poll_event()));
            self.client_events.extend(std::iter::from_fn(|| self.client.poll_event()));
            if moved == 0 && before == (self.client_events.len(), self.server_events.len()) {
                return;
            }
        }
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        self.now += time;
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        self.run();
    }
}

fn carry(from: &mut Connection, to: &mut BytesMut, step: usize) -> usize {
    let mut slices = Vec::new();
    let mut moved = 0;
    from.output_slices(&mut slices);
    for slice in &slices {
        let part = &slice[..slice.len().min(step - moved)];
        to.extend_from_slice(part);
        moved += part.len();
    }
    drop(slices);
    from.output_written(moved);
    moved
}
