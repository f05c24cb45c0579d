//! What becomes of a message, and why something is refused or ends: in the core's own words.

use crate::reason::Refusal;
use bulla_amqp::DeliveryTag;
use std::fmt;

/// What becomes of a message, as one end tells the other.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageOutcome {
    /// It is taken.
    Accepted,
    /// It is not taken, and will not be, and why. In a box, because outcomes are part of each event.
    Rejected(Option<Box<Failure>>),
    /// It is not taken, as if it had never been sent.
    Released,
    /// It is not taken now.
    Modified {
        /// The attempt counts.
        failed: bool,
        /// The same client is not to get it again.
        not_here: bool,
    },
}

/// Why something is refused, or ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// For an MQ reason.
    Refused(Refusal),
    /// For an MQ reason, because of one message, by the client's name for it: its link ends with it.
    OfMessage(Refusal, Option<Box<DeliveryTag>>),
    /// The client has sent more than it may.
    BeyondCredit(String),
    /// The client may not ask for that.
    NotAllowed(String),
    /// What the client asks for is not offered.
    NotOffered(String),
    /// The connection has no such unit of work.
    UnitUnknown,
    /// A unit of work was backed out, and nothing more of it may be sent.
    UnitBackedOut(String),
    /// A unit of work was backed out, because it was older than one may be.
    UnitTooOld(Refusal),
    /// The client's container has a connection already, which is to be the only one.
    ContainerInUse(Refusal),
    /// The client's container has a new connection, which is to be the only one.
    ContainerTaken(Refusal),
    /// In a protocol's own words.
    Said(Said),
}

/// A failure in a protocol's own words: the other end's, or the front end's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Said {
    /// Its name.
    pub condition: String,
    /// Text for people.
    pub text: Option<String>,
    /// The MQ reason code, where a queue manager says it.
    pub reason: Option<u16>,
    /// The sub-reason of that.
    pub cause: Option<String>,
}

impl Said {
    /// A failure of that name.
    pub fn new(condition: &str, text: impl Into<String>) -> Self {
        Self { condition: condition.to_owned(), text: Some(text.into()), reason: None, cause: None }
    }

    /// Its text, or its name where it has none.
    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or(&self.condition)
    }
}

impl Failure {
    /// Rejects a message because of this.
    pub fn rejects(self) -> MessageOutcome {
        MessageOutcome::Rejected(Some(Box::new(self)))
    }

    /// The failure in a protocol's words, where it is one.
    pub fn said(&self) -> Option<&Said> {
        match self {
            Self::Said(said) => Some(said),
            _ => None,
        }
    }
}

impl MessageOutcome {
    /// A message is refused.
    pub fn refused(refusal: Refusal) -> Self {
        Failure::Refused(refusal).rejects()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{}: {text}", self.condition),
            None => f.write_str(&self.condition),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal)
            | Self::OfMessage(refusal, _)
            | Self::UnitTooOld(refusal)
            | Self::ContainerInUse(refusal)
            | Self::ContainerTaken(refusal) => refusal.fmt(f),
            Self::BeyondCredit(text) | Self::NotAllowed(text) | Self::NotOffered(text) | Self::UnitBackedOut(text) => {
                f.write_str(text)
            }
            Self::UnitUnknown => f.write_str("this connection has no such unit of work"),
            Self::Said(said) => said.fmt(f),
        }
    }
}
