//! A connection to the owner of a shared group, as bytes: the same for all front ends that forward links.

use super::Wire;
use super::forwards::OwnerCall;
use crate::sign_in::tickets::Ticket;
use bulla_amqp::{Config, Connection, SaslClient};
use bytes::Bytes;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// Bytes that wait for one side before nothing more is read from the other.
pub(super) const WAITING_BYTES_MAX: usize = 2 << 20;
/// Bytes of the longest message that is taken: as many as MAXMSGL can say. The owner refuses what is longer than it
/// takes, with its reason.
pub(super) const MESSAGE_BYTES_MAX: u64 = 128 << 20;
/// Silence after which an owner is given up; it is told half of that.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The connection's engine, as bytes.
pub(super) struct OwnerConnection {
    pub(super) inner: Connection,
    /// Too much waits for the client: nothing more is read.
    pub(super) is_full: bool,
}

impl OwnerConnection {
    /// There is a ticket: the connection begins. `container` is the client's.
    pub(super) fn begin(call: &OwnerCall, container: &str, ticket: &Ticket, now: Instant) -> Self {
        let config = Config {
            hostname: Some(call.host.clone()),
            idle_timeout: Some(IDLE_TIMEOUT),
            ..Config::new(container.to_owned())
        };
        let sasl = SaslClient::Ticket { ticket: Bytes::copy_from_slice(ticket) };
        let inner = Connection::client(config, sasl, Box::new(crate::users::Crypto), now);
        Self { inner, is_full: false }
    }
}

impl Wire for OwnerConnection {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.inner.receive_copied(now, bytes);
    }

    fn wants_input(&self) -> bool {
        !self.is_full && self.inner.wants_input()
    }

    fn in_progress(&self) -> u64 {
        self.inner.in_progress()
    }

    fn arrived(&self) -> u64 {
        self.inner.arrived()
    }

    fn not_read(&mut self, now: Instant) {
        self.inner.not_read(now);
    }

    fn output_len(&self) -> usize {
        self.inner.output_len()
    }

    fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.inner.output_slices(slices);
    }

    fn output_written(&mut self, count: usize) {
        self.inner.output_written(count);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.inner.handle_timeout(now);
    }
}

/// A connection to an owner whose client is gone: it says what it still has to say.
pub(super) fn closing(mut engine: Connection) -> Box<dyn Wire + Send> {
    engine.close(None);
    Box::new(Closing(engine))
}

struct Closing(Connection);

impl Wire for Closing {
    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.0.receive_copied(now, bytes);
        while self.0.poll_event().is_some() {}
    }

    fn wants_input(&self) -> bool {
        !self.0.is_closed() && self.0.wants_input()
    }

    fn in_progress(&self) -> u64 {
        self.0.in_progress()
    }

    fn arrived(&self) -> u64 {
        self.0.arrived()
    }

    fn not_read(&mut self, now: Instant) {
        self.0.not_read(now);
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.0.output_slices(slices);
    }

    fn output_written(&mut self, count: usize) {
        self.0.output_written(count);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.handle_timeout(now);
    }
}
