//! Limits of users and of queues as they are defined, and what a user has of what they limit.

use super::authority::ANONYMOUS;
use super::names::is_user_name;
use std::collections::BTreeMap;

/// Most limits.
pub const LIMITS_MAX: usize = 1_000;

/// Highest MSGRATE, messages a second.
pub const RATE_MAX: u32 = 10_000_000;

/// MAXSUBS and MAXDYNQ of whom no limit says otherwise: some hundredth of what a queue manager may have, so that one
/// user's applications leave room for the others' and for definitions.
pub const KEPT_OBJECTS_DEFAULT: u32 = 1_000;

/// MAXCONNS of whom no limit says otherwise: half of what a dispatcher takes.
pub const CONNECTIONS_DEFAULT: u32 = 5_000;

/// MAXHANDS of whom no limit says otherwise.
pub const LINKS_DEFAULT: u32 = 20_000;

/// MAXTMPQ and MAXNDSUB of whom no limit says otherwise: a tenth of what a queue manager may have.
pub const TEMPORARY_DEFAULT: u32 = 1_000;

/// Highest SEALTIME, milliseconds a second: a thousand engines, always busy.
pub const KEY_TIME_MAX: u32 = 1_000_000;

/// What one user may have at once; 0 is no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// MAXCONNS: connections.
    pub connections: u32,
    /// MAXHANDS: links that put, get, browse or coordinate, on all connections together.
    pub links: u32,
    /// UNACKED: bytes of messages delivered and not settled. The one that exceeds it is still delivered.
    pub unacknowledged_bytes: u64,
    /// MSGRATE: messages put a second; as many may come at once after a second of none.
    pub messages_a_second: u32,
    /// SEALTIME: milliseconds of private-key time a second, for sealing and opening.
    pub key_ms_a_second: u32,
    /// MAXSUBS: durable subscriptions that applications made.
    pub subscriptions: u32,
    /// MAXDYNQ: permanent dynamic queues.
    pub dynamic_queues: u32,
    /// MAXTMPQ: temporary queues.
    pub temporary_queues: u32,
    /// MAXNDSUB: subscriptions that are not durable.
    pub non_durable_subscriptions: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_DEFAULT,
            links: LINKS_DEFAULT,
            unacknowledged_bytes: 0,
            messages_a_second: 0,
            key_ms_a_second: 0,
            subscriptions: KEPT_OBJECTS_DEFAULT,
            dynamic_queues: KEPT_OBJECTS_DEFAULT,
            temporary_queues: TEMPORARY_DEFAULT,
            non_durable_subscriptions: TEMPORARY_DEFAULT,
        }
    }
}

/// What applications make that stays when they go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kept {
    /// A durable subscription.
    Subscription,
    /// A permanent dynamic queue.
    DynamicQueue,
}

/// All limits, by the user's name or the beginning of names with a `*`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UserLimits {
    pub(crate) all: BTreeMap<String, Limit>,
}

/// True for a user's name, the beginning of one with a `*`, `*` for all who have signed in, and `*ANONYMOUS`.
#[must_use]
pub fn is_user_pattern(text: &str) -> bool {
    let beginning = text.strip_suffix('*').unwrap_or(text);
    text == ANONYMOUS || text == "*" || is_user_name(beginning)
}

impl UserLimits {
    /// All of them, by their patterns.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Limit)> {
        self.all.iter().map(|(pattern, limit)| (pattern.as_str(), limit))
    }

    /// The limit of that very pattern.
    #[must_use]
    pub fn get(&self, pattern: &str) -> Option<&Limit> {
        self.all.get(pattern)
    }

    /// Makes it the limit of that pattern.
    pub fn set(&mut self, pattern: &str, limit: Limit) {
        self.all.insert(pattern.to_owned(), limit);
    }

    /// The limit that holds for a user, and its pattern.
    #[must_use]
    pub fn of(&self, user: &str) -> Option<(&str, &Limit)> {
        let fits = |pattern: &str| {
            pattern == user
                || pattern.strip_suffix('*').is_some_and(|beginning| user != ANONYMOUS && user.starts_with(beginning))
        };
        let particular = |pattern: &str| (pattern == user, pattern.len());
        self.iter().filter(|(pattern, _)| fits(pattern)).max_by_key(|(pattern, _)| particular(pattern))
    }
}

/// What a user has, for DISPLAY LIMITSTATUS.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UserStatus {
    /// The user; `*ANONYMOUS` for all who have not signed in.
    pub name: String,
    /// The limit that holds for it; empty for none.
    pub pattern: String,
    /// That limit.
    pub limit: Limit,
    /// Connections.
    pub connections: u32,
    /// Links on all of them.
    pub links: u32,
    /// Bytes delivered and not settled, counted where UNACKED limits them.
    pub unacknowledged_bytes: u64,
    /// How often MSGRATE left it less credit than it could have had.
    pub held_back: u64,
    /// Connections, links, subscriptions and queues refused.
    pub refused: u64,
    /// Durable subscriptions that its applications made.
    pub subscriptions: u32,
    /// Permanent dynamic queues that its applications made.
    pub dynamic_queues: u32,
    /// Temporary queues that its links have.
    pub temporary_queues: u32,
    /// Subscriptions of its links that are not durable.
    pub non_durable_subscriptions: u32,
    /// Private-key time taken since SEALTIME limits it, nanoseconds.
    pub key_ns: u64,
    /// How often that share was used up.
    pub key_used_up: u64,
}

/// What all links of one queue may have together; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueueLimit {
    /// MAXHANDS: links that put, get or browse; channels' count, and are not refused.
    pub links: u32,
    /// UNACKED: bytes of its messages delivered to clients and not settled. The one that exceeds it is still delivered.
    pub unacknowledged_bytes: u64,
    /// MSGRATE: messages put a second; as many may come at once after a second of none.
    pub messages_a_second: u32,
}
