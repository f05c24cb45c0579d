//! What the engine tells its host, and the ids they share.

use crate::payload::Payload;
use crate::sasl::{Mechanism, SaslSecret};
use crate::types::{
    AnyTarget, Coordinator, DeliveryState, DeliveryTag, Error, Open, ReceiverSettleMode, Role, SenderSettleMode,
    Source, Target,
};
use crate::unsettled::UnsettledMap;
use crate::value::{Symbol, Value};
use bytes::Bytes;

/// A session of a connection. Ids of sessions that ended are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A link of a connection, whatever its session. Ids of links that ended are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// An incoming delivery, unique among the unsettled ones of its session (its delivery-id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub(crate) u32);

/// Both halves of an id in one number.
fn to_bits(index: u32, generation: u32) -> u64 {
    u64::from(generation) << u32::BITS | u64::from(index)
}

/// The halves of such a number: index and generation.
fn from_bits(bits: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
    (u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([a, b, c, d]))
}

impl SessionId {
    /// The id as a number, for a host that has handles of its own.
    pub fn to_bits(self) -> u64 {
        to_bits(self.index, self.generation)
    }

    /// The id that [`SessionId::to_bits`] made a number of. Any other number is the id of no session.
    pub fn from_bits(bits: u64) -> Self {
        let (index, generation) = from_bits(bits);
        Self { index, generation }
    }
}

impl LinkId {
    /// The id as a number, for a host that has handles of its own.
    pub fn to_bits(self) -> u64 {
        to_bits(self.index, self.generation)
    }

    /// The id that [`LinkId::to_bits`] made a number of. Any other number is the id of no link.
    pub fn from_bits(bits: u64) -> Self {
        let (index, generation) = from_bits(bits);
        Self { index, generation }
    }
}

impl DeliveryId {
    /// The id as a number, for a host that has handles of its own.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The id that [`DeliveryId::to_bits`] made a number of.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Server: the client has chosen. Answer with `sasl_challenge` or `sasl_outcome`.
    SaslInit {
        /// One of those on offer.
        mechanism: Mechanism,
        /// Its first response; empty when there was none.
        response: SaslSecret,
        /// The host that the client wants to reach.
        hostname: Option<String>,
    },
    /// Server: the answer to a challenge. Answer with `sasl_challenge` or `sasl_outcome`.
    SaslResponse(SaslSecret),
    /// The peer's open. A server has answered already; to turn the peer away, `close` with an error.
    Opened(Box<Open>),
    /// A session is there on both sides.
    SessionBegun(SessionId),
    /// A session ended, and its links with it: there is no `Detached` for them.
    SessionEnded(SessionId, Option<Error>),
    /// The peer attached a link. Answer with `accept_link` or `refuse_link`.
    Attached(Box<IncomingAttach>),
    /// The peer answered an `attach` of this side.
    LinkOpened(Box<LinkOpened>),
    /// A link ended: detached by the peer (the answer goes out by itself), by the engine for an error
    /// of the peer, or by the host and the peer has answered. Once for each link; not for one that the
    /// host refused.
    Detached {
        /// The link, not valid any more.
        link: LinkId,
        /// Whether it ended for good.
        closed: bool,
        /// Why.
        error: Option<Error>,
    },
    /// Sending link: the peer's demand, or the room to serve it, has changed.
    Credit {
        /// The link.
        link: LinkId,
        /// Messages that the peer takes now.
        credit: u32,
        /// Send what is there up to the credit, then call `drained`.
        drain: bool,
    },
    /// Sending link: messages sent from now on are acquired in a transaction, or in none (part 4, section 4.4.3). The
    /// host sends them with [`Connection::send_in`](crate::Connection::send_in), or detaches the link.
    Acquires {
        /// The link.
        link: LinkId,
        /// The transaction.
        txn_id: Option<Bytes>,
    },
    /// Receiving link: the sender has answered a drain; no credit is left.
    Flowed {
        /// The link.
        link: LinkId,
    },
    /// Receiving link: a whole message.
    Delivery(Delivery),
    /// Sending link: what became of a delivery. One event each, and another where the receiver says another outcome
    /// before the delivery is settled: the last one counts, as far as the host has not acted on one.
    Outcome {
        /// The link.
        link: LinkId,
        /// As given to `send`.
        token: u64,
        /// The receiver's state; none when it settled without one.
        state: Option<DeliveryState>,
        /// Whether the receiver has settled. If not, it waits for `settle`.
        settled: bool,
    },
    /// An outcome in a transaction names deliveries that went with their link or session before: it can't be part of
    /// the transaction, which must not commit without it (part 4, section 4.4.2).
    OutcomeLost {
        /// The transaction.
        txn_id: Bytes,
    },
    /// Receiving link: the sender has settled a delivery that this side had not.
    Settled {
        /// The link.
        link: LinkId,
        /// The delivery, not valid any more.
        id: DeliveryId,
        /// The sender's state.
        state: Option<DeliveryState>,
    },
    /// The connection ended: the last event.
    Closed(Option<Error>),
}

/// A link that the peer wants.
#[derive(Clone, Debug, PartialEq)]
pub struct IncomingAttach {
    /// Its id here.
    pub link: LinkId,
    /// Its session.
    pub session: SessionId,
    /// Its name: unique with the role in the session.
    pub name: String,
    /// This side's role.
    pub role: Role,
    /// Where messages come from.
    pub source: Option<Source>,
    /// Where messages go to: a node, the anonymous relay (a target without address), a coordinator, or
    /// nothing at all.
    pub target: Option<AnyTarget>,
    /// How the sending end settles.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiving end settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// Properties of the link.
    pub properties: Vec<(Symbol, Value)>,
    /// Extensions that the peer supports.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions that the peer wants.
    pub desired_capabilities: Vec<Symbol>,
    /// Largest message that the peer takes, in bytes; 0 is no limit.
    pub max_message_size: u64,
    /// Unsettled deliveries of an earlier attachment; none where the peer resumes no deliveries.
    pub unsettled: Option<UnsettledMap>,
    /// Whether `unsettled` is cut short: what is not in it may be unsettled all the same.
    pub incomplete_unsettled: bool,
}

/// The host's answer to an [`IncomingAttach`].
#[derive(Clone, Debug, PartialEq, Default)]
pub struct AttachReply {
    /// The source as it is: address of a dynamic one, filters that are honoured.
    pub source: Option<Source>,
    /// The target as it is.
    pub target: Option<Target>,
    /// In the target's place, what a transaction coordinator can do.
    pub coordinator: Option<Coordinator>,
    /// Extensions offered.
    pub offered_capabilities: Vec<Symbol>,
    /// Properties of the link.
    pub properties: Vec<(Symbol, Value)>,
    /// Largest message taken, in bytes; 0 is no limit. A longer one ends the link.
    pub max_message_size: u64,
    /// What the peer is told of that, where it is to send no more than another limit lets in: longer messages are the
    /// host's to refuse, each with its reason.
    pub told_max_message_size: Option<u64>,
    /// Whether each [`Delivery`] has its tag.
    pub keeps_tags: bool,
    /// Whether deliveries may be resumed on a later attachment. A receiving link keeps outcomes then, for
    /// [`Connection::take_outcomes`](crate::Connection::take_outcomes). A sending link makes tags of tokens
    /// ([`DeliveryTag::of_token`]), and has [`OUTCOMES_KEPT_MAX`](crate::OUTCOMES_KEPT_MAX) unsettled deliveries at
    /// most.
    pub resumable: bool,
    /// This side's unsettled deliveries of an earlier attachment, where the link is resumed. What does not fit into the
    /// peer's frame is left out, and the peer is told so.
    pub unsettled: Option<UnsettledMap>,
    /// Sending link: tokens of deliveries of an earlier attachment that the peer has, too. The next
    /// [`Connection::send`](crate::Connection::send) or [`Connection::settle`](crate::Connection::settle) of each
    /// resumes it.
    pub resumed: Vec<u64>,
}

/// A link that the host wants.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachRequest {
    /// Its name: unique with the role in the session.
    pub name: String,
    /// This side's role.
    pub role: Role,
    /// Where messages come from.
    pub source: Option<Source>,
    /// Where messages go to.
    pub target: Option<Target>,
    /// In the target's place, what is wanted of a transaction coordinator.
    pub coordinator: Option<Coordinator>,
    /// How the sending end settles.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiving end settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// Properties of the link.
    pub properties: Vec<(Symbol, Value)>,
    /// Extensions offered.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions wanted.
    pub desired_capabilities: Vec<Symbol>,
    /// Largest message taken, in bytes; 0 is no limit.
    pub max_message_size: u64,
}

impl AttachRequest {
    /// A link that sends to `address`.
    pub fn sender(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self::with(name.into(), Role::Sender, Source::default(), Target::at(address))
    }

    /// A link that declares and discharges transactions (part 4, section 4.2).
    pub fn coordinator(name: impl Into<String>, coordinator: Coordinator) -> Self {
        let link = Self::with(name.into(), Role::Sender, Source::default(), Target::default());
        Self { target: None, coordinator: Some(coordinator), ..link }
    }

    /// A link that receives from `address`.
    pub fn receiver(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self::with(name.into(), Role::Receiver, Source::at(address), Target::default())
    }

    fn with(name: String, role: Role, source: Source, target: Target) -> Self {
        Self {
            name,
            role,
            source: Some(source),
            target: Some(target),
            coordinator: None,
            snd_settle_mode: SenderSettleMode::Mixed,
            rcv_settle_mode: ReceiverSettleMode::First,
            properties: Vec::new(),
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            max_message_size: 0,
        }
    }
}

/// The peer's answer to an [`AttachRequest`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinkOpened {
    /// The link.
    pub link: LinkId,
    /// The source as the peer has it, its address when it was dynamic.
    pub source: Option<Source>,
    /// The target as the peer has it, its address when it was dynamic.
    pub target: Option<AnyTarget>,
    /// How the sending end settles.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiving end settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// Properties of the link.
    pub properties: Vec<(Symbol, Value)>,
    /// Extensions that the peer supports.
    pub offered_capabilities: Vec<Symbol>,
    /// Extensions that the peer wants.
    pub desired_capabilities: Vec<Symbol>,
    /// Largest message that the peer takes, in bytes; 0 is no limit.
    pub max_message_size: u64,
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Its link.
    pub link: LinkId,
    /// Its id, for `dispose`.
    pub id: DeliveryId,
    /// The sender's name for it, on a link that was accepted with [`AttachReply::keeps_tags`]. In a box, because a tag
    /// is as long as the rest, and events are moved.
    pub tag: Option<Box<DeliveryTag>>,
    /// Whether the sender has settled already: no outcome is wanted.
    pub settled: bool,
    /// Whether the sender had no credit for it.
    pub beyond_credit: bool,
    /// Message format; 0 is that of part 3.
    pub format: u32,
    /// The sender's state: transactional, or none.
    pub state: Option<DeliveryState>,
    /// The message, its sections as they arrived.
    pub payload: Payload,
}

/// What is known of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkInfo {
    /// Its session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// This side's role.
    pub role: Role,
    /// How the sending end settles.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiving end settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// Largest message that this side takes, in bytes; 0 is no limit.
    pub max_message_size: u64,
    /// Largest message that the peer takes, in bytes; 0 is no limit.
    pub peer_max_message_size: u64,
    /// Messages that the receiving end takes now.
    pub credit: u32,
    /// Messages so far: the sending end's delivery-count.
    pub delivery_count: u32,
    /// Deliveries not settled on both sides.
    pub unsettled: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_and_back() {
        let (link, session) = (LinkId { index: 7, generation: u32::MAX }, SessionId { index: u32::MAX, generation: 1 });
        assert_eq!(LinkId::from_bits(link.to_bits()), link);
        assert_eq!(SessionId::from_bits(session.to_bits()), session);
        assert_eq!(DeliveryId::from_bits(DeliveryId(9).to_bits()), DeliveryId(9));
    }

    /// Events are moved several times each, and what is longer is moved by a call.
    #[test]
    fn an_event_is_no_longer_than_two_cache_lines() {
        assert!(size_of::<Event>() <= 128, "{}", size_of::<Event>());
    }
}
