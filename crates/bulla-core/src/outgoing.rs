//! What may be sent to a client: a message that says by its type that this client may see those bytes.
//!
//! There are three ways to make one, and no other: from a message that the opener has opened ([`Readable`]), from the
//! bytes of a queue that no policy protects, and for a client that opens for itself. So a message can't pass by the
//! opener: that would not compile.

use crate::envelope::{self, Readable};
use crate::route::Route;
use bulla_amqp::Payload;
use bulla_seal::policy::Quality;

/// The client of a link opens its messages itself: it asked for sealed ones at attach.
#[derive(Clone, Copy, Debug)]
pub struct OpensItself(());

impl OpensItself {
    /// What a front end makes of an attach that asks for sealed messages, or does not.
    pub fn asked(asks: bool) -> Option<Self> {
        asks.then_some(Self(()))
    }
}

/// Whether messages of that queue have to pass the opener on their way to a client that does not open for itself.
pub fn is_protected(route: &Route) -> bool {
    route.policy.as_ref().is_some_and(|policy| policy.quality() != Quality::None)
}

/// A message that may be sent to the client of a link.
#[derive(Debug)]
pub struct Outgoing(Payload);

impl Outgoing {
    /// A message that the opener has opened, or found to be clear where its policy tolerates that.
    pub fn opened(readable: Readable) -> Self {
        Self(readable.into_payload())
    }

    /// A message as it lies on its queue, for a client that opens for itself, or of a queue that
    /// nothing protects.
    ///
    /// # Errors
    /// The message again, where it has to be opened first.
    pub fn as_stored(stored: Payload, route: &Route, opens_itself: Option<OpensItself>) -> Result<Self, Payload> {
        if opens_itself.is_some() || !is_protected(route) { Ok(Self(stored)) } else { Err(stored) }
    }

    /// The message, with the delivery-count that its client is told.
    pub fn with_delivery_count(self, count: u32) -> Self {
        Self(envelope::with_delivery_count(self.0, count))
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The message's sections, for a front end to write.
    pub fn into_payload(self) -> Payload {
        self.0
    }
}
