//! Links that a front end forwards to the owner of a shared group, over a connection of its own to that one.
//!
//! The core refuses such a link, and the front end takes it over: what the client does on it goes to the owner, and
//! what the owner answers goes to the client. What owns sockets makes the connection and moves its bytes.

use super::{Delivery, LinkId, Wire};
use crate::catalog::reason::Forwarded;
use crate::reason::Refusal;
use crate::sign_in::tickets::Ticket;
use std::time::Instant;

/// A connection to an owner, among those of one front end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OwnerId(pub usize);

/// An owner that is to be called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnerCall {
    /// The connection that is wanted.
    pub owner: OwnerId,
    /// The owner's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// In whose name, and how that is protected.
    pub forwarded: Forwarded,
}

/// The links of a connection that go on to owners, and its connections to these.
pub trait Forwards {
    /// Takes a link over that the core refuses. False where it can't be forwarded: then it is refused.
    fn forward(&mut self, link: LinkId, why: &Refusal) -> bool;

    /// Takes a message over that the core refuses, which came on a link for any queue. False as above.
    fn forward_message(&mut self, delivery: Delivery, why: &Refusal) -> bool;

    /// The next owner that is to be called.
    fn take_call(&mut self) -> Option<OwnerCall>;

    /// An owner has given a ticket, and the connection is about to be there; or why there is none.
    fn called(&mut self, owner: OwnerId, ticket: Result<Ticket, Refusal>, now: Instant);

    /// The bytes to and from that owner. None once it is gone.
    fn wire(&mut self, owner: OwnerId) -> Option<&mut dyn Wire>;

    /// Takes in what has come from that owner, or is due.
    fn look(&mut self, owner: OwnerId);

    /// The connection to that owner is gone: so are its links.
    fn lost(&mut self, owner: OwnerId, why: &Refusal);

    /// Takes a connection that the client has no use for any more. It has to say what it still has to say.
    fn take_over(&mut self, owner: OwnerId) -> Option<Box<dyn Wire + Send>>;
}
