//! Front ends: the ways in, and what the core asks of them.
//!
//! The core (`dispatcher/`, `channel/`) knows what a put, a get and a unit of work are. A front end knows a protocol:
//! it turns bytes into [`Event`]s and the core's answers into bytes. The core calls a front end through [`FrontEnd`]
//! and moves bytes through [`Wire`]; it names no protocol's connection type. Links, sessions and deliveries have the
//! core's own handles, which a front end chooses and the core hands back.
//!
//! A message can be sent to a client only as an [`Outgoing`](crate::outgoing::Outgoing), which says by its type that
//! the client may see those bytes. Messages for partners of channels go out through [`WayOut`].

pub mod client;
pub mod forwards;
pub mod link;
pub mod outcome;

use crate::outgoing::Outgoing;
use crate::sign_in::sessions::LoginId;
use bulla_amqp::types::{AnyTarget, DeliveryTag};
use bulla_amqp::{AttachRequest, Payload, Symbol, Value};
use bytes::Bytes;
use client::{Introduction, Proof, SolePolicy, TokenRefused};
use forwards::Forwards;
use link::{Attach, Granted};
use outcome::{Failure, MessageOutcome, Said};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Instant;

/// A link of one connection. A front end never uses a handle twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// A session of one connection: links that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A message that arrived on a link, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub u64);

/// A unit of work, by the number that the core has given it ([`FrontEnd::declared`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitId(pub NonZeroU64);

impl UnitId {
    /// What no unit has: for a client's name of one that can't be a number.
    pub const UNKNOWN: Self = Self(NonZeroU64::MAX);
}

/// The front end of a connection, as the core holds it.
pub type Front = dyn FrontEnd;

/// What happened on a connection.
#[derive(Debug)]
pub enum Event {
    /// The client begins to sign in; where it has before, its links are gone then. Answered with
    /// [`FrontEnd::challenge`], [`FrontEnd::signed_in`] or [`FrontEnd::token_refused`].
    SignIn(Proof),
    /// The client's answer to a challenge. Answered with another one, or with [`FrontEnd::signed_in`].
    SignInGoesOn(Bytes),
    /// What the client says of itself. Answered with [`FrontEnd::accept_open`] or [`FrontEnd::refuse_open`].
    Opened(Box<Introduction>),
    /// The client wants a link. Answered with [`FrontEnd::accept_link`] or [`FrontEnd::refuse_link`].
    Attached(Box<Attach>),
    /// The partner has answered an attach of this side.
    LinkOpened(Box<LinkOpened>),
    /// A link ended. Once for each link that was accepted.
    Detached {
        /// The link, not valid any more.
        link: LinkId,
        /// Whether it ended for good.
        closed: bool,
        /// Why.
        why: Option<Said>,
    },
    /// A session ended, and its links with it: there is no `Detached` for them.
    SessionEnded(SessionId, Option<Said>),
    /// A link that gets: the client's demand, or the room to serve it, has changed.
    Credit {
        /// The link.
        link: LinkId,
        /// The client wants what is there, up to its credit, and then to be told ([`FrontEnd::drained`]).
        drain: bool,
    },
    /// The front end wants [`Wire::handle_timeout`] then, and not first at the tick behind it. The last one counts.
    DueAt(Instant),
    /// A link that gets: messages sent from now on are acquired in a unit of work, or in none (AMQP part 4, section
    /// 4.4.3).
    Acquires {
        /// The link.
        link: LinkId,
        /// The unit.
        unit: Option<UnitId>,
    },
    /// A link that puts: a whole message.
    Delivery(Delivery),
    /// A link for units of work: the client begins or ends one. Answered with [`FrontEnd::declared`] or
    /// [`FrontEnd::answer`].
    Unit(Box<UnitAsked>),
    /// A link that gets: what the client did with a message. The last one counts, as far as the core has not acted on
    /// one.
    Outcome {
        /// The link.
        link: LinkId,
        /// As given to [`FrontEnd::send`].
        token: u64,
        /// What became of it; none where the client settled without saying.
        outcome: Option<MessageOutcome>,
        /// The unit of work with which that is done.
        unit: Option<UnitId>,
        /// Whether the client has settled. Otherwise it waits for [`FrontEnd::settle`].
        settled: bool,
    },
    /// An outcome in a unit of work names messages that went with their link: the unit must not commit without it.
    OutcomeLost {
        /// The unit.
        unit: UnitId,
    },
    /// The connection ended: the last event.
    Closed(Option<Said>),
}

/// What a client asks of the coordinator of units of work.
#[derive(Debug)]
pub struct UnitAsked {
    /// The link.
    pub link: LinkId,
    /// The handle of the answer.
    pub id: DeliveryId,
    /// Whether the client wants no answer.
    pub settled: bool,
    /// Whether the client had no credit for it.
    pub beyond_credit: bool,
    /// What it asks, or why that can't be read.
    pub step: Result<UnitStep, Said>,
}

/// A step of a unit of work.
#[derive(Debug)]
pub enum UnitStep {
    /// A unit begins.
    Declare,
    /// That unit is committed.
    Commit(UnitId),
    /// That unit is backed out.
    BackOut(UnitId),
}

/// The partner's answer to a link that this side wanted.
#[derive(Debug)]
pub struct LinkOpened {
    /// The link.
    pub link: LinkId,
    /// The target as the partner has it; none where it refuses the link.
    pub target: Option<AnyTarget>,
    /// Properties of the link.
    pub properties: Vec<(Symbol, Value)>,
    /// Largest message that the partner takes, in bytes; 0 is no limit.
    pub max_message_size: u64,
}

/// A message that arrived on a link.
#[derive(Debug)]
pub struct Delivery {
    /// Its link.
    pub link: LinkId,
    /// Its handle.
    pub id: DeliveryId,
    /// The client's name for it, where the link was accepted with `keeps_tags`.
    pub tag: Option<Box<DeliveryTag>>,
    /// Whether the client wants no answer.
    pub settled: bool,
    /// Whether the client had no credit for it.
    pub beyond_credit: bool,
    /// The unit of work that it is part of.
    pub unit: Option<UnitId>,
    /// The message: its AMQP sections.
    pub payload: Payload,
}

/// A delivery that a link which puts knows, when its attachment is over.
#[derive(Debug)]
pub struct KeptOutcome {
    /// The client's name for it.
    pub tag: DeliveryTag,
    /// Its handle, where it arrived on this attachment of the link.
    pub id: Option<DeliveryId>,
    /// Its outcome, where it has one.
    pub outcome: Option<MessageOutcome>,
}

/// What the core asks of the front end of one connection. Requests about a link that is gone do nothing.
pub trait FrontEnd: Wire + Send {
    /// What happened, in order.
    fn poll_event(&mut self) -> Option<Event>;
    /// Whether something happened that was not polled, as after a write or at a time: the connection is looked at again
    /// in the next turn. A front end whose events come with what is read needs none of this.
    fn has_events(&self) -> bool {
        false
    }

    /// The next step of a sign-in.
    fn challenge(&mut self, challenge: Bytes);
    /// The verdict on a sign-in.
    fn signed_in(&mut self, ok: bool);
    /// The verdict on a sign-in by a token: it is refused.
    fn token_refused(&mut self, why: TokenRefused);
    /// No verdict: too many sign-ins are being checked. The client may try again.
    fn sign_in_busy(&mut self);

    /// The client was let in: as which user it acts, where it comes from, and which of its dispatcher's connections it
    /// is. Comes before [`FrontEnd::accept_open`].
    fn let_in(&mut self, _user: Option<&str>, _from: Option<SocketAddr>, _generation: u64) {}
    /// Lets the client attach links. `sole` says that it is the only connection of its container, as it wished.
    fn accept_open(&mut self, sole: Option<SolePolicy>);
    /// Refuses the connection.
    fn refuse_open(&mut self, why: Failure);
    /// The session that the client goes on by, where it has signed in by one.
    fn session(&self) -> Option<LoginId> {
        None
    }
    /// Ends the connection. The client is told why.
    fn close(&mut self, why: Option<Failure>);
    /// Whether the connection has ended in both directions.
    fn is_closed(&self) -> bool;
    /// Whether either end has said that it ends.
    fn is_ending(&self) -> bool;

    /// A link is open.
    fn accept_link(&mut self, link: LinkId, granted: Granted);
    /// A link is refused.
    fn refuse_link(&mut self, link: LinkId, why: Failure);
    /// Ends a link. The client is told why.
    fn detach(&mut self, link: LinkId, why: Failure);
    /// A link that resumes: whether nothing new may be sent on it.
    fn resumes_only(&self, link: LinkId) -> bool;
    /// A link that was accepted as resumable and puts: what is known of its deliveries, less those of units of work.
    fn take_outcomes(&mut self, link: LinkId) -> Vec<KeptOutcome>;

    /// Messages that may still come on a link that puts, or be sent on a link that gets.
    fn credit(&self, link: LinkId) -> u32;
    /// Lets so many messages come on a link that puts.
    fn set_credit(&mut self, link: LinkId, credit: u32);
    /// A message that is answered next was put before, under the same idempotency key and with that message-id.
    fn put_before(&mut self, _link: LinkId, _id: DeliveryId, _message_id: Option<&str>) {}
    /// Answers a message that was put, within a unit of work where it came in one, or what was asked of a unit.
    fn answer(&mut self, link: LinkId, id: DeliveryId, outcome: MessageOutcome, unit: Option<UnitId>);
    /// Answers a client that begins a unit of work.
    fn declared(&mut self, link: LinkId, id: DeliveryId, unit: UnitId);

    /// Whether a link that gets has credit, and room to write.
    fn can_send(&self, link: LinkId) -> bool;
    /// Whether messages are on their way out that were not written whole.
    fn is_sending(&self, link: LinkId) -> bool;
    /// Sends a message under a token of the core's choice, in a unit of work where it is acquired in one. False where
    /// the link takes none any more.
    fn send(&mut self, link: LinkId, token: u64, message: Outgoing, settled: bool, unit: Option<UnitId>) -> bool;
    /// Answers an outcome that its client waits for.
    fn settle(&mut self, link: LinkId, token: u64, outcome: MessageOutcome);
    /// A link that drains: nothing more is there.
    fn drained(&mut self, link: LinkId);

    /// What it takes to forward links, where its protocol lets a connection do that.
    fn forwards(&mut self) -> Option<&mut dyn Forwards> {
        None
    }
    /// The connection as a way out, where its protocol has one.
    fn way_out(&mut self) -> Option<&mut dyn WayOut>;
}

/// Channels: how one sends to a partner, the other direction of a front end, and how a partner's is answered.
pub trait WayOut {
    /// Begins a session.
    fn begin(&mut self) -> SessionId;
    /// Asks the partner for a link. Answered with [`Event::LinkOpened`].
    fn attach(&mut self, session: SessionId, request: AttachRequest) -> LinkId;
    /// Accepts a partner's link that is a channel's, with what this end says.
    fn accept_channel(&mut self, link: LinkId, properties: Vec<(Symbol, Value)>, message_bytes_max: u64);
    /// Sends a message to the partner. False where the link takes none now.
    fn forward(&mut self, link: LinkId, number: u64, message: Payload, settled: bool) -> bool;
}

/// A connection as bytes: the same for each protocol over a socket.
pub trait Wire {
    /// Takes bytes that arrived. The room that they lie in is used again.
    fn receive(&mut self, now: Instant, bytes: &[u8]);
    /// Takes up to so many bytes of messages that a client without a socket offers in pieces; says how many. It is
    /// asked where a socket would be read, under the same bounds on what is arriving: what it leaves, the client has to
    /// keep.
    #[cfg(any(test, feature = "simulation"))]
    fn take_offered(&mut self, _bytes_max: usize) -> usize {
        0
    }
    /// Whether more is to be read: false while answers pile up, or the core has to answer first.
    fn wants_input(&self) -> bool;
    /// Bytes of messages that are still arriving, as far as they have come. The pieces of a message are kept as they
    /// came, and become its payload: a message that comes in pieces is held once.
    fn in_progress(&self) -> u64;
    /// Messages that have arrived whole.
    fn arrived(&self) -> u64;
    /// Nothing is read now: the partner's silence is not the partner's.
    fn not_read(&mut self, now: Instant);
    /// Bytes that wait to be written.
    fn output_len(&self) -> usize;
    /// Those bytes.
    fn output_slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>);
    /// So many of them are written.
    fn output_written(&mut self, count: usize);
    /// When [`Wire::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does what is due by then.
    fn handle_timeout(&mut self, now: Instant);
}
