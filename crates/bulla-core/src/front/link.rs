//! Links in the core's own words: what a client wants of one, and what it is granted.

use super::outcome::MessageOutcome;
use super::{LinkId, SessionId};
use crate::outgoing::OpensItself;
use crate::reason::Refusal;
use bulla_amqp::{DeliveryTag, Symbol, Value};
use std::num::NonZeroU64;

/// Unsettled deliveries, by the client's names for them, each with its last outcome where it has one.
pub type Unsettled = Vec<(DeliveryTag, Option<MessageOutcome>)>;

/// A link that a client wants.
#[derive(Debug)]
pub struct Attach {
    /// Its handle.
    pub link: LinkId,
    /// Its session.
    pub session: SessionId,
    /// Its name: unique with its direction in the session. A durable subscription has the name of its link.
    pub name: String,
    /// What it is for.
    pub wants: Wants,
    /// Why what the client asks for makes no sense. The link is refused with that, where the client may have links.
    pub unreadable: Option<Refusal>,
    /// A link that puts: the client can be told that a message is rejected. Otherwise its link ends.
    pub takes_rejected: bool,
    /// For how long the link is kept when its attachment is over.
    pub keep: Option<Keep>,
    /// Deliveries of an earlier attachment; none where the client resumes none.
    pub unsettled: Option<Unsettled>,
    /// Whether `unsettled` is cut short: what is not in it may be unsettled all the same.
    pub incomplete_unsettled: bool,
}

/// What a link is for.
#[derive(Debug)]
pub enum Wants {
    /// The client puts, or publishes.
    Put(Put),
    /// The client gets, browses or subscribes.
    Get(Box<Get>),
    /// The client declares and ends units of work.
    Units,
}

/// The direction of a client's link.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// The client puts.
    Puts,
    /// The client gets.
    Gets,
}

/// A link on which the client puts.
#[derive(Debug, Default)]
pub struct Put {
    /// Where to. [`Place::Unnamed`] leaves it to each message.
    pub place: Place,
    /// The client seals its messages itself.
    pub sealed: bool,
    /// What closing the link does.
    pub on_close: OnClose,
    /// What the link says as one of a channel; none where the protocol carries no channels.
    pub channel: Option<Box<ChannelTerms>>,
}

/// A link on which the client gets.
#[derive(Debug, Default)]
pub struct Get {
    /// Where from.
    pub place: Place,
    /// Messages are copied and stay.
    pub browses: bool,
    /// Which messages the client wants, as a text that is not blank.
    pub selector: Option<String>,
    /// Of a topic: not what the client itself publishes.
    pub leaves_out_own: bool,
    /// The subscription outlives its link.
    pub durable: bool,
    /// Several links may get from the subscription.
    pub shared: bool,
    /// The subscription's name is not this client's alone.
    pub is_global: bool,
    /// The client wants to get alone (MQOO_INPUT_EXCLUSIVE).
    pub alone: bool,
    /// The client wants to get with others (MQOO_INPUT_SHARED).
    pub with_others: bool,
    /// Messages are settled as they are sent: at most once.
    pub presettled: bool,
    /// The client opens sealed messages itself.
    pub opens_itself: Option<OpensItself>,
    /// What closing the link does.
    pub on_close: OnClose,
    /// Bytes of the longest message that the client takes, as it is sent; none for any.
    pub message_bytes_max: Option<NonZeroU64>,
}

/// What a client names as a link's other end.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Place {
    /// Nothing.
    #[default]
    Unnamed,
    /// What has that name: a queue, or a topic where the name begins with `topic://` or `is_topic` says so.
    Named {
        /// The name, as the client has it.
        name: String,
        /// The client says that it is a topic's.
        is_topic: bool,
    },
    /// A queue that is made for the link.
    NewQueue(QueueWish),
    /// A topic of the link's own.
    NewTopic,
    /// The durable subscription that has the link's name.
    Subscription {
        /// Its name is not this client's alone.
        is_global: bool,
    },
}

/// A queue that is to be made for a link.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueueWish {
    /// The model; none for the default one.
    pub model: Option<String>,
    /// A name, or the beginning of one with a `*` at its end.
    pub name: Option<String>,
    /// The queue ends with its link, otherwise with its connection.
    pub with_link: bool,
}

/// What closing a link does to its permanent dynamic queue. One of both may be asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OnClose {
    /// The queue goes where it is empty (MQCO_DELETE).
    pub deletes: bool,
    /// The queue goes with its messages (MQCO_DELETE_PURGE).
    pub purges: bool,
}

/// What a link says as one of a channel, in the protocol of channels.
#[derive(Debug)]
pub struct ChannelTerms {
    /// Properties of the link.
    pub properties: Vec<(Symbol, Value)>,
    /// Where it leads.
    pub address: Option<String>,
}

/// The longest time for which a link is kept, in seconds; a longer one is answered as this one.
pub const KEPT_SECONDS_MAX: u32 = 300;

/// What of a link's attachment is over, each with what was before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Over {
    /// The link is detached.
    Link,
    /// Its session has ended.
    Session,
    /// Its connection has ended.
    Connection,
}

/// For how long a link is kept, and from when that counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Keep {
    /// What has to be over.
    pub from: Over,
    /// Seconds from then, at most [`KEPT_SECONDS_MAX`].
    pub seconds: u32,
}

/// What a client's link is granted, of what the client may want to know.
#[derive(Debug, Default)]
pub struct Granted {
    /// The name of what was made for the link, or found by the link's name. None: what the client named.
    pub name: Option<String>,
    /// The queue that was made for it goes with it.
    pub goes_with_link: bool,
    /// The link gets from a subscription.
    pub subscribed: Option<Subscribed>,
    /// The client seals or opens its messages itself.
    pub sealed: bool,
    /// What it takes to do so; none for a client that may not know.
    pub sealing: Option<SealFacts>,
    /// No other link gets from that queue meanwhile.
    pub alone: bool,
    /// A message that is put for later waits until then.
    pub delays: bool,
    /// Bytes of the longest message that is taken; none for a link that gets. A longer one ends the link.
    pub message_bytes_max: Option<u64>,
    /// Bytes of the longest message that its queue takes. A longer one is refused with 2030.
    pub queue_message_bytes_max: Option<u64>,
    /// Each delivery is given to the core with the client's name for it.
    pub keeps_tags: bool,
    /// For how long it is kept when its attachment is over; none where it ends then.
    pub keep: Option<Keep>,
    /// Unsettled deliveries of an earlier attachment, where the link is resumed.
    pub unsettled: Option<Unsettled>,
    /// A link that gets: tokens of deliveries of an earlier attachment that the client has, too.
    pub resumed: Vec<u64>,
}

/// How a link gets from a subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Subscribed {
    /// The subscription outlives its link.
    pub durable: bool,
    /// Other links may get from it.
    pub shared: bool,
}

/// What a client that seals or opens for itself has to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SealFacts {
    /// Where its messages are bound to.
    pub destination: String,
    /// The policy in force, as MQSC has it.
    pub policy: String,
}

impl Attach {
    /// Which way messages go.
    pub fn direction(&self) -> Direction {
        match self.wants {
            Wants::Put(_) | Wants::Units => Direction::Puts,
            Wants::Get(_) => Direction::Gets,
        }
    }
}

impl Keep {
    /// What a client asks for, as it is done: no longer than [`KEPT_SECONDS_MAX`]. None where it asks for no time.
    pub fn asked(from: Over, seconds: u32) -> Option<Self> {
        (seconds > 0).then(|| Self { from, seconds: seconds.min(KEPT_SECONDS_MAX) })
    }
}
