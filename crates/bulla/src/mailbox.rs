//! What other threads tell a dispatcher: a queue of letters and a bell.

use crate::adapter::Finished;
use crate::channel::ChannelLetter;
use crate::dispatcher::Identity;
use crate::tls::Tls;
use bulla_queue::QueueId;
use mio::net::TcpStream;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One thing to do on a dispatcher's own thread.
pub(crate) enum Letter {
    /// An adapter is done with a message of one of its connections.
    Finished(Box<Finished>),
    /// The password that a connection gave was looked at: whose it is, where it is right.
    SignedIn {
        /// The connection's place.
        peer: usize,
        /// Which connection it was that had that place.
        generation: u64,
        /// Who it is.
        identity: Option<Identity>,
    },
    /// A connection that the first dispatcher accepted for this one.
    Adopt(TcpStream, Option<Arc<Tls>>),
    /// Something became available on a queue that it has consumers of.
    Ready(QueueId),
    /// A queue got room that it has waiting producers for.
    Freed(QueueId),
    /// Something about a channel on one of its connections.
    Channel(ChannelLetter),
}

/// A dispatcher's mailbox. The bell is rung once until the dispatcher has looked.
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    rung: AtomicBool,
    bell: mio::Waker,
}

impl Mailbox {
    /// A mailbox whose bell is `bell`.
    pub(crate) fn new(bell: mio::Waker) -> Self {
        Self { letters: Mutex::new(Vec::new()), rung: AtomicBool::new(false), bell }
    }

    /// Leaves a letter and rings.
    pub(crate) fn post(&self, letter: Letter) {
        lock(&self.letters).push(letter);
        self.ring();
    }

    /// Leaves several letters and rings once.
    pub(crate) fn post_all(&self, letters: impl ExactSizeIterator<Item = Letter>) {
        if letters.len() > 0 {
            lock(&self.letters).extend(letters);
            self.ring();
        }
    }

    /// Rings without a letter: the journal has synced, or the program stops.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // A bell that fails to ring belongs to a dispatcher whose poll is gone: it has ended.
            let _: io::Result<()> = self.bell.wake();
        }
    }

    /// Takes what is there; afterwards the bell rings again.
    pub(crate) fn take(&self, into: &mut Vec<Letter>) {
        self.rung.store(false, Ordering::Release);
        std::mem::swap(into, &mut lock(&self.letters));
    }
}

/// Locks, also after a panic elsewhere: a mailbox holds no invariant that a panic could break.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
