//! A request, from its head until its answer is written.

use super::answers::Refused;
use super::commands::{self, Awaited, Form, Work};
use super::kept_answers::{Claim, Found};
use super::login::{self, LoggingIn};
use super::message::Labels;
use super::queue::{self, Changes};
use super::table::Version;
use super::text::header;
use crate::front::link::Granted;
use crate::front::{DeliveryId, LinkId};
use crate::reason::{self, Refusal};
use bulla_amqp::Payload;
use bulla_http::{BodyLen, Head, HeaderValue, RequestId};
use std::time::Instant;
use zeroize::Zeroizing;

/// A request that is being carried out.
pub(super) struct Exchange {
    pub(super) request: RequestId,
    pub(super) stage: Stage,
}

/// How far it has come.
pub(super) enum Stage {
    /// It is the first one, and the core looks at its credentials.
    SigningIn(Box<Head>),
    /// A user logs in by a password, and the core looks at it.
    LoggingIn(Box<LoggingIn>),
    /// A message is put or published.
    Putting(Box<Putting>),
    /// A message is got or shown.
    Getting(Getting),
    /// Messages are listed.
    Listing(Listing),
    /// A body comes for another thread, or with a password.
    Reading(Box<Reading>),
    /// Another thread has it.
    Waiting(Awaited),
    /// It is answered. The message in the answer leaves its queue once the answer is written.
    Answered(Option<Sent>),
}

/// A message that is in the answer to its get.
pub(super) struct Sent {
    pub(super) link: LinkId,
    /// By what the core knows it.
    pub(super) token: u64,
    /// The idempotency key under which it is kept.
    pub(super) keeps: Option<(Claim, Payload)>,
}

/// A put.
pub(super) struct Putting {
    pub(super) link: LinkId,
    pub(super) object: Object,
    pub(super) labels: Labels,
    /// How long the body is, as its head says.
    pub(super) length: BodyLen,
    /// What has come of it.
    pub(super) body: Payload,
    pub(super) is_whole: bool,
    /// Under what the core has it.
    pub(super) delivery: Option<DeliveryId>,
    /// The id of the message that was put before under the same idempotency key.
    pub(super) put_before: Option<String>,
    /// When the client is told that its queue has no room.
    pub(super) give_up_at: Instant,
}

/// A get.
pub(super) struct Getting {
    pub(super) link: LinkId,
    pub(super) version: Version,
    /// The message leaves its queue.
    pub(super) takes: bool,
    /// What is known of its idempotency key, where it has one.
    pub(super) under: Option<Found>,
    /// How long to wait.
    pub(super) until: Instant,
    /// That time is over, and who has the queue was told so.
    pub(super) is_late: bool,
    pub(super) credit: u32,
}

/// A list.
pub(super) struct Listing {
    pub(super) link: LinkId,
    pub(super) credit: u32,
    pub(super) limit: u32,
    pub(super) rows: Vec<serde_json::Value>,
}

/// A body that is read whole before anything is done.
pub(super) struct Reading {
    /// What it is.
    pub(super) body_of: BodyOf,
    /// What has come of it.
    pub(super) body: Zeroizing<Vec<u8>>,
}

/// What such a body has in it.
pub(super) enum BodyOf {
    /// Commands: how they are written, and how they are answered.
    Commands(Form, Form),
    /// Attributes of the queue of that name.
    Attributes(String),
    /// A user and a password.
    LogIn,
}

impl Reading {
    /// Nothing has come yet. A password that comes lies in one place alone.
    pub(super) fn new(body_of: BodyOf) -> Self {
        let room = if matches!(body_of, BodyOf::LogIn) { login::BODY_BYTES_MAX as usize } else { 0 };
        Self { body_of, body: Zeroizing::new(Vec::with_capacity(room)) }
    }

    /// Whether a body of that length is taken.
    ///
    /// # Errors
    /// 413.
    pub(super) fn takes(&self, bytes: u64) -> Result<(), Refused> {
        let (what, bytes_max) = match self.body_of {
            BodyOf::Commands(..) => ("commands of a request", commands::BODY_BYTES_MAX),
            BodyOf::Attributes(_) => ("attributes", queue::BODY_BYTES_MAX),
            BodyOf::LogIn => ("a user and a password", login::BODY_BYTES_MAX),
        };
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(Refused::new(413, "too-long", format!("{what} have {bytes_max} bytes at most")))
    }

    /// What the whole body asks of another thread.
    ///
    /// # Errors
    /// 400.
    pub(super) fn work(&mut self) -> Result<Work, Refused> {
        let body = std::mem::take(&mut self.body);
        match &self.body_of {
            BodyOf::Commands(form, wanted) => {
                let (text, usual) = commands::text_of(&body, *form)?;
                let answers = if *wanted == Form::Text { Form::Text } else { usual };
                Ok(Work::Commands { text, answers })
            }
            BodyOf::LogIn => Err(Refused::new(500, "unexpected", "no other thread has anything to do for this")),
            BodyOf::Attributes(queue) => Ok(Work::Set { queue: queue.clone(), changes: Changes::read(&body)? }),
        }
    }
}

/// Where messages are put.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Object {
    /// A queue.
    Queue(String),
    /// A topic.
    Topic(String),
}

/// A link that puts, kept for the next request.
pub(super) struct Kept {
    pub(super) link: LinkId,
    pub(super) object: Object,
    pub(super) credit: u32,
    /// Bytes of the longest message that its queue takes.
    bytes_max: u64,
}

impl Stage {
    /// The link that it needs.
    pub(super) fn link(&self) -> Option<LinkId> {
        match self {
            Self::Putting(putting) => Some(putting.link),
            _ => self.link_that_gets(),
        }
    }

    /// The link that is its own, and ends with it.
    pub(super) fn link_that_gets(&self) -> Option<LinkId> {
        match self {
            Self::Getting(getting) => Some(getting.link),
            Self::Listing(listing) => Some(listing.link),
            _ => None,
        }
    }

    /// Whether another thread has the answer ready.
    pub(super) fn is_answered_elsewhere(&self) -> bool {
        matches!(self, Self::Waiting(awaited) if awaited.is_there())
    }
}

impl Getting {
    /// Whether its link is open and waits for a message, or for its time to be over.
    pub(super) fn waits(&self) -> bool {
        self.credit > 0 && !self.is_late
    }
}

impl Putting {
    pub(super) fn new(link: LinkId, object: Object, labels: Labels, length: BodyLen, give_up_at: Instant) -> Self {
        let (body, delivery, put_before) = (Payload::new(), None, None);
        let is_whole = matches!(length, BodyLen::None | BodyLen::Counted(0));
        Self { link, object, labels, length, body, is_whole, delivery, put_before, give_up_at }
    }

    /// The id of the message that was put, now or before.
    pub(super) fn message_id(&self) -> HeaderValue {
        self.put_before.as_deref().map_or_else(|| self.labels.id(), header)
    }
}

impl Kept {
    pub(super) fn new(link: LinkId, object: Object, granted: &Granted) -> Self {
        let of_queue = granted.queue_message_bytes_max.unwrap_or(u64::MAX);
        Self { link, object, credit: 0, bytes_max: granted.message_bytes_max.unwrap_or(0).min(of_queue) }
    }

    /// Whether a body of that length can be put, of which so many bytes have come.
    ///
    /// # Errors
    /// 413, and 2030.
    pub(super) fn takes(&self, length: &BodyLen, come: u64) -> Result<(), Refused> {
        let known = if let BodyLen::Counted(bytes) = length { *bytes } else { come };
        if known <= self.bytes_max {
            return Ok(());
        }
        let detail = format!("{known} bytes of body, and the longest message has {}", self.bytes_max);
        Err(Refused::of_refusal(&Refusal::new(reason::MSG_TOO_BIG_FOR_Q, detail)))
    }
}
