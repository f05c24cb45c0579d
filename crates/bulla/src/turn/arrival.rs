//! What a dispatcher begins with, and the connections that other threads hand to it.

use crate::front::Protocol;
use crate::mailbox::Mailbox;
use crate::tls::Tls;
use mio::net::TcpStream;
use mio::{Poll, Token, Waker};
use std::io;
use std::sync::Arc;

/// The event that says that the mailbox has something.
pub(super) const WAKE_UP: Token = Token(usize::MAX);

/// A connection that a dispatcher is handed.
pub(crate) enum Arrival {
    /// The first dispatcher has accepted it for this one, and what is spoken on it, within TLS or not.
    Accepted(TcpStream, Protocol, Option<Arc<Tls>>),
    /// It has no socket.
    #[cfg(test)]
    Joined(Box<crate::front::Front>),
}

/// What a dispatcher leaves to the next one of its index.
pub(crate) struct Left {
    pub(super) poll: Poll,
    /// Goes on, because a message of an old connection may still be with the adapters.
    pub(super) generation: u64,
}

impl Left {
    /// What a first dispatcher starts with, and its mailbox.
    pub(crate) fn fresh() -> io::Result<(Self, Arc<Mailbox>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE_UP)?;
        // A wake-up that fails belongs to a dispatcher whose poll is gone: it has ended.
        let mailbox = Arc::new(Mailbox::new(move || drop(waker.wake())));
        Ok((Self { poll, generation: 0 }, mailbox))
    }
}
