//! Signatures of handshakes, which devices make.
//!
//! What the handshakes of one turn ask for is placed in one call, as adapters place their jobs: a lonely one is
//! computed at once on this thread, and once many are there, they fill an accelerator's lanes. A handshake that waits
//! keeps no one else waiting.

use super::connection::Connection;
use crate::dispatcher::CONNECTIONS_MAX;
use crate::mailbox::{Mailbox, Notice};
use crate::manager::Manager;
use bulla_device::scheduler::{Answer, Sink};
use bulla_device::{Asker, Inline, Job};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a handshake waits for its signature.
const SIGNATURE_WAIT: Duration = Duration::from_secs(30);
/// Bits of a job's number that are the connection's place; the others say which connection it was that had it.
const PLACE_BITS: u32 = 16;
const _: () = assert!(CONNECTIONS_MAX < 1 << PLACE_BITS, "each place has its number");

/// What one dispatcher's handshakes ask for.
pub(super) struct Signatures {
    jobs: Vec<Job>,
    inline: Inline,
    sink: Arc<dyn Sink>,
}

/// Answers of devices go to the dispatcher's mailbox.
struct ToMailbox(Arc<Mailbox>);

impl Sink for ToMailbox {
    fn finished(&self, answers: Vec<Answer>) {
        self.0.post(Notice::Signed(answers));
    }
}

impl Signatures {
    /// Nothing is asked for yet.
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { jobs: Vec::new(), inline: Inline::new(), sink: Arc::new(ToMailbox(mailbox)) }
    }

    /// How many are asked for and not handed out.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether none is.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Takes what a handshake asks for, if it is blocked by that.
    pub(super) fn ask(&mut self, peer: &Connection) {
        let Some(job) = peer.transport.socket.tls_socket().and_then(super::tls_socket::TlsSocket::question) else {
            return;
        };
        let id = peer.place.generation << PLACE_BITS | peer.place.key as u64;
        let deadline = Some(Instant::now() + SIGNATURE_WAIT);
        self.jobs.push(Job { id, deadline, asker: Asker::new(id), ..job });
    }

    /// Hands all of it out; what was computed here is answered at once.
    pub(super) fn place(&mut self, manager: &Manager) -> Vec<Answer> {
        let scheduler = manager.workers.devices.scheduler();
        scheduler.place(&mut self.jobs, &self.sink, &mut self.inline);
        self.inline.run(scheduler)
    }
}

/// The place of the connection that asked, and which one it was that had it.
pub(super) fn asker(id: u64) -> (usize, u64) {
    ((id & ((1 << PLACE_BITS) - 1)) as usize, id >> PLACE_BITS)
}
