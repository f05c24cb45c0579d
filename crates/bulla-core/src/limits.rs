//! Limits of users, as SET LIMIT writes them, and what each user that is connected has of what they limit; of queues in
//! `queue.rs`.
//!
//! A user is the identity that a connection acts as; those who have not signed in are one user together. Each user that
//! a limit fits has the whole of it, whatever others of the same pattern have. Of several that fit, the name itself
//! comes first, then the longest beginning.

mod key_time;
mod queue;

use crate::authority::ANONYMOUS;
use crate::catalog::limits::{Kept, Limit, UserLimits, UserStatus};
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use crate::stores::{PerStore, Stores};
use bulla_queue::{StoreNumber, Ticket};
pub use key_time::{KeyTime, KeyWork};
pub use queue::QueueUses;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of temporary queues, and of subscriptions that are not durable, that is kept for users with few of them.
const RESERVED_PART: usize = 4;
/// Who has less than this part of them has few.
const FEW_PART: usize = 100;
/// Durable subscriptions and permanent dynamic queues that one user's applications may make a second.
const MADE_A_SECOND: u32 = 20;
/// And at once after a time without.
const MADE_AT_ONCE: u32 = 1_000;
/// Users who are not connected and whose rate is remembered, so that a new connection is no new allowance.
const IDLE_USERS_MAX: usize = 1_000;
/// The least time after which a user whose credit was held back is looked at again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// The most, however many links a user has.
const LOOK_AGAIN_WITHIN: Duration = Duration::from_secs(2);
/// Links of a user for which the time is as it is; for twice as many it is twice as long.
const LINKS_LOOKED_AT: u32 = 100;
/// Messages of one user that are being sealed or checked from which on it gets no more credit for protected queues. Its
/// links that have ended count: each new one would have credit of its own otherwise.
pub const BEING_SEALED_MAX: usize = 1_024;
/// Bytes of one user's persistent messages that may wait for the disk while all that wait are too many: who has no more
/// gets credit all the same.
const WAITING_BYTES_MAX: u64 = 1 << 20;
/// Sub-reasons of refusals.
const TOO_MANY_CONNECTIONS: &str = "user-connections";
const TOO_MANY_LINKS: &str = "user-links";
const TOO_MANY_SUBSCRIPTIONS: &str = "user-subscriptions";
const TOO_MANY_DYNAMIC_QUEUES: &str = "user-dynamic-queues";
const TOO_MANY_TEMPORARY_QUEUES: &str = "user-temporary-queues";
const TOO_MANY_NON_DURABLE: &str = "user-non-durable-subscriptions";
const MADE_TOO_FAST: &str = "user-definition-rate";

/// What goes with the links that it was made for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Passing {
    /// A temporary queue.
    TemporaryQueue,
    /// A subscription that is not durable.
    NonDurableSubscription,
}

/// Messages a second, with a second's worth at once: what was not used longer ago is gone.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Billionths of a message; below zero after a change to a lower rate.
    level: i64,
    filled_at: Instant,
}

/// Billionths of a message.
const MESSAGE: i64 = 1_000_000_000;

impl Bucket {
    /// A full one.
    fn new(rate: u32, now: Instant) -> Self {
        Self { level: i64::from(rate) * MESSAGE, filled_at: now }
    }

    fn fill(&mut self, rate: u32, now: Instant) {
        let second = Duration::from_secs(1);
        let passed = now.saturating_duration_since(self.filled_at).min(second).as_nanos() as i64;
        let full = i64::from(rate) * MESSAGE;
        self.level = self.level.saturating_add(passed * i64::from(rate)).min(full);
        self.filled_at = self.filled_at.max(now);
    }

    fn messages(&self) -> u32 {
        u32::try_from(self.level / MESSAGE).unwrap_or(0)
    }

    /// How much of the credit `wanted` may go out now, where `promised` messages are to come already. One of several
    /// links gets half of what there is, so that the next finds some, too; and one that has none gets one where
    /// anything is saved up, because others may keep their credit for ever. So the rate may be exceeded by a message
    /// for each link; that is paid back before more goes out.
    fn allowed(&self, wanted: u32, has_none: bool, promised: u32) -> u32 {
        let saved = self.messages();
        let free = saved.saturating_sub(promised);
        let share = (free / 2).max(free.min(1)).max(saved.min(u32::from(has_none)));
        wanted.min(share)
    }

    fn is_full(&self, rate: u32) -> bool {
        self.level >= i64::from(rate) * MESSAGE
    }
}

/// After what time a user is looked at again who was allowed nothing at that rate: the more links there are, the longer
/// each of them waits.
fn look_again_after(rate: u32, links: u32) -> Duration {
    let one = Duration::from_secs(1).checked_div(rate).unwrap_or_default().max(LOOK_AGAIN_AFTER);
    one.saturating_mul(1 + links / LINKS_LOOKED_AT).min(LOOK_AGAIN_WITHIN)
}

/// A user that is connected, or was.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct UserId(usize);

#[cfg(any(test, feature = "simulation"))]
impl UserId {
    /// A user for tests, by number.
    pub fn test(number: usize) -> Self {
        Self(number)
    }
}

/// What a user has.
#[derive(Clone, Debug)]
struct Uses {
    name: String,
    pattern: Option<String>,
    limit: Limit,
    connections: u32,
    links: u32,
    unacknowledged_bytes: u64,
    /// Credit that is out on its links, messages.
    granted: u32,
    bucket: Bucket,
    held_back: u64,
    refused: u64,
    told: Told,
    making: Making,
    /// Its persistent messages that wait for the disk.
    waiting: PerStore<Waiting>,
    /// Bytes of all its persistent messages.
    put_bytes: u64,
    /// Held by each of its messages that is being sealed or checked.
    sealing: Arc<()>,
}

/// Bytes of a user's persistent messages that wait for the disk of one store.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// By what they wait for.
    by_ticket: VecDeque<(Ticket, u64)>,
    /// Together.
    bytes: u64,
}

/// The operator has been told that a user is at its limit; again once it was down to half of it.
#[derive(Clone, Debug, Default)]
struct Told {
    of_connections: bool,
    of_links: bool,
    /// Of durable subscriptions and of dynamic queues, when the next one is asked for.
    of_kept: [bool; 2],
    /// Of temporary queues and of subscriptions that are not durable.
    of_passing: [bool; 2],
}

/// What a user may still make that is kept, and when that was reckoned.
#[derive(Clone, Debug)]
struct Making {
    left: u32,
    at: Instant,
}

/// One of a user's messages that are being sealed or checked, for as long as this is kept.
#[derive(Debug)]
pub struct BeingSealed(#[expect(dead_code, reason = "kept to be counted")] Arc<()>);

/// Users that are connected.
#[derive(Debug, Default)]
pub struct ConnectedUsers {
    by_name: HashMap<String, UserId>,
    all: Slab<Uses>,
    /// What is there of each user's, connected or not, by [`Kept`].
    kept: HashMap<String, [u32; 2]>,
    /// The same of what goes with its links, by [`Passing`].
    passing: HashMap<String, [u32; 2]>,
    /// Bytes of persistent messages that users have put.
    put_bytes: u64,
}

impl ConnectedUsers {
    /// A connection of that user is let in; none stands for clients that have not signed in.
    ///
    /// # Errors
    /// 2025: it has as many as it may.
    pub fn connect(&mut self, user: Option<&str>, limits: &UserLimits, now: Instant) -> Result<UserId, Refusal> {
        let name = user.unwrap_or(ANONYMOUS);
        let id = match self.by_name.get(name) {
            Some(id) => *id,
            None => self.add(name, limits, now),
        };
        let uses = &mut self.all[id.0];
        let max = uses.limit.connections;
        if max > 0 && uses.connections >= max {
            uses.refused += 1;
            let refusal = uses.refusal(reason::MAX_CONNS_LIMIT_REACHED, TOO_MANY_CONNECTIONS, "connections", max);
            if !std::mem::replace(&mut uses.told.of_connections, true) {
                crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
            }
            return Err(refusal);
        }
        uses.connections += 1;
        Ok(id)
    }

    fn add(&mut self, name: &str, limits: &UserLimits, now: Instant) -> UserId {
        if self.all.len() >= IDLE_USERS_MAX {
            let Self { by_name, all, .. } = self;
            all.retain(|_, uses| {
                let stays = uses.connections > 0 || !uses.is_rested(now);
                if !stays {
                    by_name.remove(&uses.name);
                }
                stays
            });
        }
        let found = limits.of(name);
        let limit = found.map(|(_, limit)| *limit).unwrap_or_default();
        let id = UserId(self.all.insert(Uses {
            name: name.to_owned(),
            pattern: found.map(|(pattern, _)| pattern.to_owned()),
            limit,
            connections: 0,
            links: 0,
            unacknowledged_bytes: 0,
            granted: 0,
            bucket: Bucket::new(limit.messages_a_second, now),
            held_back: 0,
            refused: 0,
            told: Told::default(),
            making: Making { left: MADE_AT_ONCE, at: now },
            waiting: PerStore::default(),
            put_bytes: 0,
            sealing: Arc::default(),
        }));
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// A connection of that user is gone, and its links before it.
    pub fn disconnect(&mut self, id: UserId, now: Instant) {
        let Some(uses) = self.all.get_mut(id.0) else { return };
        uses.connections = uses.connections.saturating_sub(1);
        uses.told.of_connections &= uses.connections > uses.limit.connections / 2;
        // One that has used up its rate is remembered: a new connection is no new allowance.
        if uses.connections == 0 && uses.is_rested(now) {
            self.by_name.remove(&uses.name);
            self.all.remove(id.0);
        }
    }

    /// Whether that user may open one more link, beside those that are open and so many that are suspended.
    ///
    /// # Errors
    /// 2017: it has as many as it may.
    pub fn may_attach(&mut self, id: UserId, suspended: u32) -> Result<(), Refusal> {
        let Some(uses) = self.all.get_mut(id.0) else { return Ok(()) };
        let max = uses.limit.links;
        if max == 0 || uses.links.saturating_add(suspended) < max {
            return Ok(());
        }
        uses.refused += 1;
        let refusal = uses.refusal(reason::HANDLE_NOT_AVAILABLE, TOO_MANY_LINKS, "links", max);
        if !std::mem::replace(&mut uses.told.of_links, true) {
            crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
        }
        Err(refusal)
    }

    /// The definitions have changed: that is what there is now, and whose. A step for each.
    pub fn follow_kept<'a>(&mut self, all: impl Iterator<Item = (&'a str, Kept)>) {
        self.kept.clear();
        for (user, kept) in all {
            self.kept.entry_ref(user).or_default()[kept as usize] += 1;
        }
    }

    /// Whether a connected user may have one more of those.
    ///
    /// # Errors
    /// 2017: it has as many as it may.
    pub fn may_keep(&mut self, user: Option<&str>, kept: Kept) -> Result<(), Refusal> {
        let name = user.unwrap_or(ANONYMOUS);
        let count = self.kept_by(name, kept);
        let Some(uses) = self.by_name.get(name).and_then(|id| self.all.get_mut(id.0)) else { return Ok(()) };
        let (max, cause, what) = match kept {
            Kept::Subscription => (uses.limit.subscriptions, TOO_MANY_SUBSCRIPTIONS, "durable subscriptions"),
            Kept::DynamicQueue => (uses.limit.dynamic_queues, TOO_MANY_DYNAMIC_QUEUES, "permanent dynamic queues"),
        };
        uses.told.of_kept[kept as usize] &= count > max / 2;
        if max == 0 || count < max {
            return Ok(());
        }
        uses.refused += 1;
        let refusal = uses.refusal(reason::HANDLE_NOT_AVAILABLE, cause, what, max);
        if !std::mem::replace(&mut uses.told.of_kept[kept as usize], true) {
            crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
        }
        Err(refusal)
    }

    /// Whether that user may have one more of what goes with its link. There are so many of all users, and there may be
    /// `at_most`; the last part of those is for users who have few.
    ///
    /// # Errors
    /// 2017: it has as many as it may; 2102: there are as many as there may be.
    pub fn may_take(
        &mut self,
        user: Option<&str>,
        what: Passing,
        there_are: usize,
        at_most: usize,
    ) -> Result<(), Refusal> {
        let name = user.unwrap_or(ANONYMOUS);
        let count = self.passing_of(name, what);
        let few = u32::try_from(at_most / FEW_PART).unwrap_or(u32::MAX);
        let free = at_most - if count < few { 0 } else { at_most / RESERVED_PART };
        let (cause, named) = match what {
            Passing::TemporaryQueue => (TOO_MANY_TEMPORARY_QUEUES, "temporary queues"),
            Passing::NonDurableSubscription => (TOO_MANY_NON_DURABLE, "subscriptions that are not durable"),
        };
        let uses = self.by_name.get(name).and_then(|id| self.all.get_mut(id.0));
        if let Some(uses) = uses {
            let max = match what {
                Passing::TemporaryQueue => uses.limit.temporary_queues,
                Passing::NonDurableSubscription => uses.limit.non_durable_subscriptions,
            };
            let told = &mut uses.told.of_passing[what as usize];
            *told &= count > max / 2;
            if max > 0 && count >= max {
                uses.refused += 1;
                let was_told = std::mem::replace(told, true);
                let refusal = uses.refusal(reason::HANDLE_NOT_AVAILABLE, cause, named, max);
                if !was_told {
                    crate::warning!(reason = refusal.reason.code, cause = refusal.cause, "{refusal}");
                }
                return Err(refusal);
            }
        }
        if there_are >= free {
            let detail = match there_are >= at_most {
                true => format!("there are {at_most} {named}"),
                false => {
                    format!("there are {there_are} {named}, and the other {} are for users with few", at_most - free)
                }
            };
            return Err(Refusal::new(reason::RESOURCE_PROBLEM, detail));
        }
        Ok(())
    }

    /// That user has one more of those.
    pub fn took(&mut self, user: &str, what: Passing) {
        self.passing.entry_ref(user).or_default()[what as usize] += 1;
    }

    /// That user has one less of those.
    pub fn gave_back(&mut self, user: &str, what: Passing) {
        if let Some(counts) = self.passing.get_mut(user) {
            counts[what as usize] = counts[what as usize].saturating_sub(1);
            if *counts == [0; 2] {
                self.passing.remove(user);
            }
        }
    }

    fn passing_of(&self, user: &str, what: Passing) -> u32 {
        self.passing.get(user).map_or(0, |counts| counts[what as usize])
    }

    /// Whether that user may make something more that is kept, as far as its rate goes; it is made then.
    ///
    /// # Errors
    /// 2017: it made too many in too short a time.
    pub fn may_make(&mut self, user: Option<&str>, now: Instant) -> Result<(), Refusal> {
        let name = user.unwrap_or(ANONYMOUS);
        let Some(uses) = self.by_name.get(name).and_then(|id| self.all.get_mut(id.0)) else { return Ok(()) };
        uses.rest(now);
        if let Some(left) = uses.making.left.checked_sub(1) {
            uses.making.left = left;
            return Ok(());
        }
        uses.refused += 1;
        let detail = format!(
            "user {name} makes durable subscriptions and permanent queues faster than {MADE_A_SECOND} a second"
        );
        Err(Refusal { cause: Some(MADE_TOO_FAST), ..Refusal::new(reason::HANDLE_NOT_AVAILABLE, detail) })
    }

    /// That user has one more link.
    pub fn attached(&mut self, id: UserId) {
        if let Some(uses) = self.all.get_mut(id.0) {
            uses.links += 1;
        }
    }

    /// That user has one link less, with so much credit that was not used.
    pub fn detached(&mut self, id: UserId, granted: u32) {
        if let Some(uses) = self.all.get_mut(id.0) {
            uses.links = uses.links.saturating_sub(1);
            uses.granted = uses.granted.saturating_sub(granted);
            uses.told.of_links &= uses.links > uses.limit.links / 2;
        }
    }

    /// How much of the credit `wanted` that user may be given now for a link that has `has`. One of several links gets
    /// half of what there is, so that the next finds some, too. A link without any gets one also where others hold all
    /// there is and do not use it: what that puts beyond the rate is taken from the time after.
    pub fn allowed(&mut self, id: UserId, has: u32, wanted: u32, now: Instant) -> u32 {
        let Some(uses) = self.all.get_mut(id.0) else { return wanted };
        let rate = uses.limit.messages_a_second;
        if rate == 0 {
            return wanted;
        }
        uses.bucket.fill(rate, now);
        let allowed = uses.bucket.allowed(wanted, has == 0, uses.granted);
        uses.held_back += u64::from(allowed < wanted);
        allowed
    }

    /// When a user who was allowed nothing is to ask again.
    pub fn look_again_at(&self, id: UserId, now: Instant) -> Instant {
        let (rate, links) = self.all.get(id.0).map_or((0, 0), |uses| (uses.limit.messages_a_second, uses.links));
        now + look_again_after(rate, links)
    }

    /// So much credit went out on a link of that user.
    pub fn granted(&mut self, id: UserId, credit: u32) {
        if let Some(uses) = self.all.get_mut(id.0) {
            uses.granted = uses.granted.saturating_add(credit);
        }
    }

    /// Hot path, once per message that a client puts: one index.
    pub fn put(&mut self, id: UserId) {
        if let Some(uses) = self.all.get_mut(id.0) {
            uses.granted = uses.granted.saturating_sub(1);
            if uses.limit.messages_a_second > 0 {
                uses.bucket.level = uses.bucket.level.saturating_sub(MESSAGE);
            }
        }
    }

    /// Hot path, once per message that a client gets: whether it has as much unsettled as it may. One index and one
    /// compare.
    pub fn is_full(&self, id: UserId) -> bool {
        self.all.get(id.0).is_some_and(|uses| {
            uses.limit.unacknowledged_bytes > 0 && uses.unacknowledged_bytes >= uses.limit.unacknowledged_bytes
        })
    }

    /// Whether what is delivered to that user is to be counted.
    pub fn counts_unacknowledged(&self, id: UserId) -> bool {
        self.all.get(id.0).is_some_and(|uses| uses.limit.unacknowledged_bytes > 0)
    }

    /// A message of that user is to be sealed or checked: it counts for as long as what is returned is kept.
    pub fn begins_to_seal(&self, id: UserId) -> Option<BeingSealed> {
        self.all.get(id.0).map(|uses| BeingSealed(uses.sealing.clone()))
    }

    /// Whether as many of that user's messages are being sealed or checked as may be before it gets more credit for
    /// such.
    pub fn seals_much(&self, id: UserId) -> bool {
        self.all.get(id.0).is_some_and(|uses| uses.being_sealed() >= BEING_SEALED_MAX)
    }

    /// A persistent message of that user is on its way to the disk of one of the stores.
    pub fn wrote(&mut self, id: UserId, bytes: usize, ticket: Ticket, stores: &Stores) {
        let Some(uses) = self.all.get_mut(id.0) else { return };
        let waiting = uses.waiting.of(ticket.store());
        waiting.look(stores);
        let bytes = bytes as u64;
        uses.put_bytes += bytes;
        self.put_bytes += bytes;
        match waiting.by_ticket.back_mut().filter(|(last, _)| *last == ticket) {
            Some((_, together)) => *together += bytes,
            None => waiting.by_ticket.push_back((ticket, bytes)),
        }
        waiting.bytes += bytes;
    }

    /// A store is not there any more: nothing waits for its disk.
    pub fn forget_store(&mut self, store: StoreNumber) {
        for (_, uses) in &mut self.all {
            *uses.waiting.of(store) = Waiting::default();
        }
    }

    /// Bytes of persistent messages that all users have put.
    pub fn put_bytes(&self) -> u64 {
        self.put_bytes
    }

    /// Bytes of persistent messages that a user has put since it came.
    pub fn put_bytes_of(&self, id: UserId) -> u64 {
        self.all.get(id.0).map_or(0, |uses| uses.put_bytes)
    }

    /// Whether more of that user's messages wait for the disk of that store, or of any, than may while all that wait
    /// are too many.
    pub fn waits_for_disk(&mut self, id: UserId, store: Option<StoreNumber>, stores: &Stores) -> bool {
        let Some(uses) = self.all.get_mut(id.0) else { return true };
        let waits = |waiting: &mut Waiting| waiting.look(stores) > WAITING_BYTES_MAX;
        match store {
            Some(store) => waits(uses.waiting.of(store)),
            None => uses.waiting.all_mut().any(waits),
        }
    }

    /// So many bytes were delivered to that user.
    pub fn delivered(&mut self, id: UserId, bytes: u64) {
        if let Some(uses) = self.all.get_mut(id.0) {
            uses.unacknowledged_bytes = uses.unacknowledged_bytes.saturating_add(bytes);
        }
    }

    /// So many of them are settled. True where that user may be sent more again.
    pub fn settled(&mut self, id: UserId, bytes: u64) -> bool {
        let was_full = self.is_full(id);
        if let Some(uses) = self.all.get_mut(id.0) {
            uses.unacknowledged_bytes = uses.unacknowledged_bytes.saturating_sub(bytes);
        }
        was_full && !self.is_full(id)
    }

    /// The limits have changed: from now on these hold. Who has more than it may keeps it.
    pub fn follow(&mut self, limits: &UserLimits, now: Instant) {
        for (_, uses) in &mut self.all {
            let found = limits.of(&uses.name);
            let limit = found.map(|(_, limit)| *limit).unwrap_or_default();
            let (was, is) = (uses.limit.messages_a_second, limit.messages_a_second);
            if was != is {
                uses.bucket = Bucket::new(is, now);
            }
            uses.pattern = found.map(|(pattern, _)| pattern.to_owned());
            uses.limit = limit;
            uses.told = Told { of_passing: uses.told.of_passing, ..Told::default() };
        }
    }

    /// Who is connected and has a share of private-key time, and how much, milliseconds a second.
    pub fn key_shares(&self) -> impl Iterator<Item = (&str, u32)> {
        let limited = self.all.iter().filter(|(_, uses)| uses.connections > 0 && uses.limit.key_ms_a_second > 0);
        limited.map(|(_, uses)| (uses.name.as_str(), uses.limit.key_ms_a_second))
    }

    /// That user's share of private-key time, milliseconds a second; 0 for none.
    pub fn key_share(&self, id: UserId) -> u32 {
        self.all.get(id.0).map_or(0, |uses| uses.limit.key_ms_a_second)
    }

    fn kept_by(&self, user: &str, kept: Kept) -> u32 {
        self.kept.get(user).map_or(0, |counts| counts[kept as usize])
    }

    /// All connected users, by name.
    pub fn status(&self) -> Vec<UserStatus> {
        let connected = self.all.iter().filter(|(_, uses)| uses.connections > 0);
        let mut found: Vec<UserStatus> = connected
            .map(|(_, uses)| UserStatus {
                name: uses.name.clone(),
                pattern: uses.pattern.clone().unwrap_or_default(),
                limit: uses.limit,
                connections: uses.connections,
                links: uses.links,
                unacknowledged_bytes: uses.unacknowledged_bytes,
                held_back: uses.held_back,
                refused: uses.refused,
                subscriptions: self.kept_by(&uses.name, Kept::Subscription),
                dynamic_queues: self.kept_by(&uses.name, Kept::DynamicQueue),
                temporary_queues: self.passing_of(&uses.name, Passing::TemporaryQueue),
                non_durable_subscriptions: self.passing_of(&uses.name, Passing::NonDurableSubscription),
                ..UserStatus::default()
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

impl Waiting {
    /// Forgets what is durable by now; returns the bytes of the rest.
    fn look(&mut self, stores: &Stores) -> u64 {
        while let Some((_, bytes)) = self.by_ticket.pop_front_if(|(ticket, _)| stores.is_synced(*ticket)) {
            self.bytes -= bytes;
        }
        self.bytes
    }
}

impl Uses {
    /// Reckons what it may make by now.
    fn rest(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.making.at);
        let more = passed.as_millis() * u128::from(MADE_A_SECOND) / 1000;
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.making.left = self.making.left.saturating_add(more).min(MADE_AT_ONCE);
            self.making.at = now;
        }
    }

    /// Its messages that are being sealed or checked.
    fn being_sealed(&self) -> usize {
        Arc::strong_count(&self.sealing) - 1
    }

    /// Whether it has all again that its rates allow at once, and nothing under way: then it may be forgotten.
    fn is_rested(&mut self, now: Instant) -> bool {
        self.rest(now);
        self.bucket.fill(self.limit.messages_a_second, now);
        self.being_sealed() == 0
            && self.making.left == MADE_AT_ONCE
            && self.bucket.is_full(self.limit.messages_a_second)
    }

    fn refusal(&self, reason: reason::Reason, cause: &'static str, what: &str, max: u32) -> Refusal {
        let by = match &self.pattern {
            Some(pattern) => format!("as many as LIMIT('{pattern}') allows"),
            None => "as many as a user may have without a limit of its own".to_owned(),
        };
        let detail = format!("user {} has {max} {what}, {by}", self.name);
        Refusal { cause: Some(cause), ..Refusal::new(reason, detail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::limits::{KEPT_OBJECTS_DEFAULT, is_user_pattern};

    fn limits(all: &[(&str, Limit)]) -> UserLimits {
        let mut limits = UserLimits::default();
        all.iter().for_each(|(pattern, limit)| limits.set(pattern, *limit));
        limits
    }

    fn rate(messages_a_second: u32) -> Limit {
        Limit { messages_a_second, ..Limit::default() }
    }

    #[test]
    fn what_stays_is_bounded_by_user_also_without_a_limit_and_the_refusal_is_counted() {
        let (limits, now) =
            (limits(&[("app*", Limit { subscriptions: 2, dynamic_queues: 0, ..Limit::default() })]), Instant::now());
        let mut users = ConnectedUsers::default();
        users.connect(Some("app1"), &limits, now).unwrap();
        users.connect(None, &limits, now).unwrap();
        users.follow_kept([("app1", Kept::Subscription)].into_iter());
        users.may_keep(Some("app1"), Kept::Subscription).unwrap();
        let mut all = vec![("app1", Kept::DynamicQueue); 5_000];
        all.extend([("app1", Kept::Subscription); 2]);
        all.extend([(ANONYMOUS, Kept::DynamicQueue); KEPT_OBJECTS_DEFAULT as usize]);
        users.follow_kept(all.into_iter());
        let refusal = users.may_keep(Some("app1"), Kept::Subscription).unwrap_err();
        assert_eq!((refusal.reason.code, refusal.cause), (2017, Some("user-subscriptions")));
        assert!(refusal.detail.contains("LIMIT('app*')"), "{refusal}");
        users.may_keep(Some("app1"), Kept::DynamicQueue).expect("0 is no limit");
        users.may_keep(None, Kept::Subscription).unwrap();
        let refusal = users.may_keep(None, Kept::DynamicQueue).unwrap_err();
        assert_eq!((refusal.reason.code, refusal.cause), (2017, Some("user-dynamic-queues")));
        let shown: Vec<_> =
            users.status().iter().map(|user| (user.refused, user.subscriptions, user.dynamic_queues)).collect();
        assert_eq!(shown, [(1, 0, KEPT_OBJECTS_DEFAULT), (1, 2, 5_000)]);
    }

    #[test]
    fn the_name_itself_comes_before_the_longest_beginning_and_that_before_everybody() {
        let limits = limits(&[("*", rate(1)), ("app*", rate(2)), ("app.orders*", rate(3)), ("app.orders", rate(4))]);
        let of = |user| limits.of(user).map(|(pattern, _)| pattern);
        assert_eq!(of("app.orders"), Some("app.orders"));
        assert_eq!(of("app.orders.eu"), Some("app.orders*"));
        assert_eq!(of("app"), Some("app*"));
        assert_eq!(of("bob"), Some("*"));
        assert_eq!(of(ANONYMOUS), None, "a client that has not signed in is none of them");
    }

    #[test]
    fn patterns_are_names_and_beginnings_of_names() {
        for good in ["app", "app*", "*", "*ANONYMOUS", "a@b.c-d_e*"] {
            assert!(is_user_pattern(good), "{good}");
        }
        for bad in ["", "a*b", "**", "*a", ".a", "a b"] {
            assert!(!is_user_pattern(bad), "{bad}");
        }
    }

    #[test]
    fn one_connection_and_one_link_too_many_are_refused_and_counted() {
        let limits = limits(&[("*", Limit { connections: 2, links: 1, ..Limit::default() })]);
        let (mut users, now) = (ConnectedUsers::default(), Instant::now());
        let bob = users.connect(Some("bob"), &limits, now).unwrap();
        assert_eq!(users.connect(Some("bob"), &limits, now).unwrap(), bob);
        let refusal = users.connect(Some("bob"), &limits, now).unwrap_err();
        assert_eq!((refusal.reason.code, refusal.cause), (2025, Some(TOO_MANY_CONNECTIONS)));
        users.connect(Some("ann"), &limits, now).expect("another user has all of it, too");
        users.may_attach(bob, 0).unwrap();
        users.attached(bob);
        let refusal = users.may_attach(bob, 0).unwrap_err();
        assert_eq!((refusal.reason.code, refusal.cause), (2017, Some(TOO_MANY_LINKS)));
        assert_eq!(users.status()[1].refused, 2);
        users.detached(bob, 0);
        users.may_attach(bob, 0).unwrap();
        users.disconnect(bob, now);
        users.connect(Some("bob"), &limits, now).expect("there is room again");
    }

    #[test]
    fn in_any_time_no_more_credit_goes_out_than_a_second_at_once_and_the_rate_after_that() {
        let limits = limits(&[("bob", rate(100))]);
        let begun = Instant::now();
        let mut users = ConnectedUsers::default();
        let bob = users.connect(Some("bob"), &limits, begun).unwrap();
        let (mut put, mut has) = (0, 0);
        for ms in 0..=3_000 {
            let now = begun + Duration::from_millis(ms);
            let credit = users.allowed(bob, has, 1_000, now);
            users.granted(bob, credit);
            has += credit;
            // Of what it has it uses a half at a time, and keeps the rest for later.
            for _ in 0..credit.div_ceil(2) {
                users.put(bob);
                (put, has) = (put + 1, has - 1);
            }
            assert!(put <= 100 + ms / 10, "after {ms} ms");
        }
        assert!(put > 150, "{put}");
    }

    #[test]
    fn links_that_do_not_use_their_credit_keep_nobody_waiting_and_the_rate_holds_all_the_same() {
        let limits = limits(&[("bob", rate(100))]);
        let begun = Instant::now();
        let mut users = ConnectedUsers::default();
        let bob = users.connect(Some("bob"), &limits, begun).unwrap();
        for link in 0..50 {
            let credit = users.allowed(bob, 0, 1_000, begun);
            assert!(credit > 0, "link {link} has none");
            users.granted(bob, credit);
        }
        let mut put = 0;
        for ms in 0..=3_000 {
            while let 1.. = users.allowed(bob, 0, 1_000, begun + Duration::from_millis(ms)) {
                users.granted(bob, 1);
                users.put(bob);
                put += 1;
            }
            assert!(put <= 100 + ms / 10, "{put} after {ms} ms");
        }
        assert!(put > 300, "{put}");
    }

    #[test]
    fn a_new_connection_is_no_new_allowance() {
        let limits = limits(&[("bob", rate(10))]);
        let now = Instant::now();
        let mut users = ConnectedUsers::default();
        for round in 0..3 {
            let bob = users.connect(Some("bob"), &limits, now).unwrap();
            let mut got = 0;
            while let credit @ 1.. = users.allowed(bob, 0, 10, now) {
                users.granted(bob, credit);
                (0..credit).for_each(|_| users.put(bob));
                got += credit;
            }
            assert_eq!(got, if round == 0 { 10 } else { 0 });
            users.disconnect(bob, now);
        }
    }

    #[test]
    fn without_a_limit_nothing_is_held_back() {
        let (mut users, now) = (ConnectedUsers::default(), Instant::now());
        let user = users.connect(None, &UserLimits::default(), now).unwrap();
        assert_eq!(users.allowed(user, 0, 1_000, now), 1_000);
        assert!(!users.is_full(user) && users.may_attach(user, 0).is_ok());
        users.disconnect(user, now);
        assert!(users.status().is_empty() && users.all.is_empty());
    }

    #[test]
    fn what_is_unsettled_fills_up_and_makes_room_again() {
        let limits = limits(&[("bob", Limit { unacknowledged_bytes: 100, ..Limit::default() })]);
        let (mut users, now) = (ConnectedUsers::default(), Instant::now());
        let bob = users.connect(Some("bob"), &limits, now).unwrap();
        users.delivered(bob, 99);
        assert!(!users.is_full(bob));
        users.delivered(bob, 50);
        assert!(users.is_full(bob));
        assert!(!users.settled(bob, 49), "it is full still");
        assert!(users.settled(bob, 1));
        assert!(!users.settled(bob, 99), "it was not full before");
    }

    #[test]
    fn a_change_of_limits_holds_for_who_is_connected() {
        let (mut users, now) = (ConnectedUsers::default(), Instant::now());
        let bob = users.connect(Some("bob"), &UserLimits::default(), now).unwrap();
        users.attached(bob);
        users.follow(&limits(&[("b*", Limit { links: 1, messages_a_second: 4, ..Limit::default() })]), now);
        assert_eq!(users.may_attach(bob, 0).unwrap_err().reason.code, 2017);
        assert_eq!(users.allowed(bob, 0, 1_000, now), 2);
        users.follow(&UserLimits::default(), now);
        assert_eq!(users.allowed(bob, 0, 1_000, now), 1_000);
        assert_eq!(users.status()[0].pattern, "");
    }

    #[test]
    fn one_user_leaves_temporary_queues_for_the_others() {
        let (limits, now) = (limits(&[("all", Limit { temporary_queues: 0, ..Limit::default() })]), Instant::now());
        let mut users = ConnectedUsers::default();
        for user in ["all", "some", "few"] {
            users.connect(Some(user), &limits, now).unwrap();
        }
        let mut there_are = 0;
        let mut take = |users: &mut ConnectedUsers, user: &str| loop {
            if let Err(refusal) = users.may_take(Some(user), Passing::TemporaryQueue, there_are, 10_000) {
                return (refusal.reason.code, refusal.cause);
            }
            users.took(user, Passing::TemporaryQueue);
            there_are += 1;
        };
        assert_eq!(take(&mut users, "some"), (2017, Some("user-temporary-queues")));
        assert_eq!(take(&mut users, "all"), (2102, None), "also without a limit");
        assert_eq!(take(&mut users, "few"), (2102, None));
        assert_eq!(
            (users.passing_of("some", Passing::TemporaryQueue), users.passing_of("few", Passing::TemporaryQueue)),
            (1_000, 100)
        );
        users.gave_back("some", Passing::TemporaryQueue);
        assert_eq!(users.status().iter().map(|user| user.temporary_queues).collect::<Vec<_>>(), [6_500, 100, 999]);
        assert!(users.may_take(Some("some"), Passing::NonDurableSubscription, 0, 10_000).is_ok());
    }

    #[test]
    fn what_is_kept_is_made_at_a_rate_also_over_new_connections() {
        let (limits, mut now) = (UserLimits::default(), Instant::now());
        let mut users = ConnectedUsers::default();
        let id = users.connect(Some("maker"), &limits, now).unwrap();
        let makes = |users: &mut ConnectedUsers, now| {
            std::iter::repeat_with(|| users.may_make(Some("maker"), now)).take_while(Result::is_ok).count()
        };
        assert_eq!(makes(&mut users, now), MADE_AT_ONCE as usize);
        users.disconnect(id, now);
        users.connect(Some("maker"), &limits, now).unwrap();
        assert_eq!(makes(&mut users, now), 0);
        now += Duration::from_secs(1);
        assert_eq!(makes(&mut users, now), MADE_A_SECOND as usize);
    }
}
