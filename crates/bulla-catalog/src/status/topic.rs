//! Topics and subscriptions, as they stand.

use crate::Needed;

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
    /// Whose it is; none for a client that had not signed in, and for an administrator's.
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
