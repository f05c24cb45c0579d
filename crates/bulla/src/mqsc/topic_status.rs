//! How topics and subscriptions stand: DISPLAY TPSTATUS and DISPLAY SBSTATUS.

use super::parse::Statement;
use super::reply::{Cell, Failure, Row};
use super::run::{Candidate, rows, unknown, wanted};
use super::table::Key;
use super::topic::Needed;
use crate::calendar::{date, time};

/// How a subscription stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubscriptionStatus {
    /// Its name; of one without a name, that of its queue.
    pub name: String,
    /// The topic, wildcards included.
    pub topic: String,
    /// It outlives its links.
    pub durable: bool,
    /// SUBTYPE(ADMIN): made by an administrator, otherwise by an application.
    pub by_administrator: bool,
    /// Whose it is; none where nobody has signed in, and of an administrator's.
    pub user: Option<String>,
    /// The queue, as an application would open it.
    pub destination: String,
    /// Messages on it now; none where it is no local queue.
    pub depth: Option<u32>,
    /// Links that get from it or browse it.
    pub links: u32,
    /// Publications put on it since the start.
    pub messages: u64,
    /// The last of them, milliseconds since 1970, UTC.
    pub last_message_ms: Option<u64>,
    /// When a link last came to it, since the start, milliseconds since 1970, UTC.
    pub resumed_ms: Option<u64>,
}

/// How a topic stands, and what holds for it by the topic objects there are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TopicStatus {
    /// The topic; empty for the root. A topic that is subscribed to has its wildcards.
    pub topic: String,
    /// The topic object of that very string.
    pub object: Option<String>,
    /// Links on which it is published.
    pub publishers: u32,
    /// Subscriptions to it, as it is written.
    pub subscriptions: u32,
    /// PUB(ENABLED)
    pub publish: bool,
    /// SUB(ENABLED)
    pub subscribe: bool,
    /// DURSUB(YES)
    pub durable: bool,
    /// DEFPRTY
    pub default_priority: u8,
    /// DEFPSIST(YES)
    pub default_persistent: bool,
    /// PMSGDLV
    pub persistent_delivery: Needed,
    /// NPMSGDLV
    pub non_persistent_delivery: Needed,
    /// MDURMDL
    pub durable_model: String,
    /// MNDURMDL
    pub non_durable_model: String,
}

impl SubscriptionStatus {
    fn cell(&self, key: Key) -> Option<Cell> {
        let date_of = |ms: Option<u64>| Cell::Text(ms.map(date).unwrap_or_default());
        let time_of = |ms: Option<u64>| Cell::Text(ms.map(time).unwrap_or_default());
        Some(match key {
            Key::TopicString => Cell::Text(self.topic.clone()),
            Key::Durable => Cell::word(if self.durable { "YES" } else { "NO" }),
            Key::SubscriptionType => Cell::word(if self.by_administrator { "ADMIN" } else { "API" }),
            Key::SubscriptionUser => Cell::Text(self.user.clone().unwrap_or_default()),
            Key::Destination => Cell::Text(self.destination.clone()),
            Key::CurrentDepth => Cell::Number(self.depth?.into()),
            Key::OpenInput => Cell::Number(self.links.into()),
            Key::MessagesPublished => Cell::Number(self.messages),
            Key::LastMessageDate => date_of(self.last_message_ms),
            Key::LastMessageTime => time_of(self.last_message_ms),
            Key::ResumeDate => date_of(self.resumed_ms),
            Key::ResumeTime => time_of(self.resumed_ms),
            _ => return None,
        })
    }
}

impl TopicStatus {
    fn cell(&self, key: Key) -> Option<Cell> {
        let switch = |is: bool, on, off| Cell::word(if is { on } else { off });
        Some(match key {
            Key::TopicAdmin => Cell::Text(self.object.clone().unwrap_or_default()),
            Key::PublisherCount => Cell::Number(self.publishers.into()),
            Key::SubscriberCount => Cell::Number(self.subscriptions.into()),
            Key::Publish => switch(self.publish, "ENABLED", "DISABLED"),
            Key::Subscribe => switch(self.subscribe, "ENABLED", "DISABLED"),
            Key::DurableSubscriptions => switch(self.durable, "YES", "NO"),
            Key::DefaultPriority => Cell::Number(self.default_priority.into()),
            Key::DefaultPersistence => switch(self.default_persistent, "YES", "NO"),
            Key::PersistentDelivery => Cell::word(self.persistent_delivery.word()),
            Key::NonPersistentDelivery => Cell::word(self.non_persistent_delivery.word()),
            Key::DurableModel => Cell::Text(self.durable_model.clone()),
            Key::NonDurableModel => Cell::Text(self.non_durable_model.clone()),
            _ => return None,
        })
    }
}

/// DISPLAY SBSTATUS.
///
/// # Errors
/// There is none of that name; WHERE compares what can't be compared.
pub(super) fn display_subscriptions(statement: &Statement, all: &[SubscriptionStatus]) -> Result<Vec<Row>, Failure> {
    let named = all.iter().filter(|status| statement.name.fits(&status.name));
    let mut candidates: Vec<Candidate<'_>> =
        named.map(|status| -> Candidate<'_> { (&status.name, None, Box::new(|key| status.cell(key))) }).collect();
    if candidates.is_empty() && !statement.name.generic {
        return Err(unknown("subscription", &statement.name.stem));
    }
    candidates.sort_by_key(|(name, ..)| *name);
    rows(statement, "SUB", candidates, &wanted(statement, false))
}

/// DISPLAY TPSTATUS of what was found.
///
/// # Errors
/// WHERE compares what can't be compared.
pub(super) fn display_topics(statement: &Statement, found: &[TopicStatus]) -> Result<Vec<Row>, Failure> {
    let candidates = found
        .iter()
        .map(|status| -> Candidate<'_> { (&status.topic, None, Box::new(|key| status.cell(key))) })
        .collect();
    rows(statement, "TOPICSTR", candidates, &wanted(statement, false))
}
