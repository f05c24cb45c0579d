//! How topics and subscriptions stand: DISPLAY TPSTATUS and DISPLAY SBSTATUS.

use super::parse::Statement;
use super::reply::{Cell, Failure, Row};
use super::rows::{Candidate, rows, wanted};
use super::run::unknown;
use super::table::Key;
use crate::attributes::Cells;
use bulla_catalog::calendar::{date, time};
use bulla_catalog::status::{SubscriptionStatus, TopicStatus};

impl Cells for SubscriptionStatus {
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

impl Cells for TopicStatus {
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
