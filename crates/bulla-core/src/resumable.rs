//! Links that go on after their attachment is over, with what was unsettled on them (AMQP part 2, section 2.6.13).
//!
//! A link is known by the user who has signed in, the client's container-id, its name and its direction, so that no
//! user can go on with another user's link. What is kept is in memory: it ends with the queue manager.

use crate::front::link::{Direction, Keep, Over};
use crate::front::outcome::MessageOutcome;
use crate::maps::HashMap;
use crate::route::Route;
use bulla_amqp::DeliveryTag;
use bulla_queue::{MessageId, Ticket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Resumable links of all users together, attached or not. One more ends when it detaches, and is told so.
pub const LINKS_MAX: usize = 512;
/// Resumable links of one user.
pub const USER_LINKS_MAX: usize = 64;

/// What a resumable link is known by.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LinkName {
    pub(crate) user: String,
    pub(crate) container: String,
    pub(crate) name: String,
    pub(crate) direction: Direction,
}

/// An attached link's place among the resumable ones.
#[derive(Clone, Debug)]
pub struct Resumable {
    pub(crate) name: LinkName,
    /// Which of the attachments under that name it is.
    id: u64,
    pub(crate) keep: Keep,
}

/// What became of a delivery that a client sent.
#[derive(Clone, Debug, PartialEq)]
pub enum PutOutcome {
    /// It has an outcome.
    Known(MessageOutcome),
    /// It is put, and accepted once the journal has synced that.
    Put(Ticket),
}

/// Messages that are locked under deliveries to a client.
pub struct KeptGets {
    /// The name that the client opened.
    pub opened: String,
    pub(crate) route: Arc<Route>,
    /// With how often each was backed out.
    pub messages: Vec<(MessageId, u32)>,
}

/// What is kept of a link.
pub enum Kept {
    /// The client puts.
    Puts(Vec<(DeliveryTag, PutOutcome)>),
    /// The client gets.
    Gets(KeptGets),
}

struct Entry {
    id: u64,
    keep: Keep,
    stage: Stage,
}

enum Stage {
    Attached,
    Suspended {
        kept: Kept,
        /// None while what its policy names goes on.
        expires_at: Option<Instant>,
    },
}

/// All resumable links.
#[derive(Default)]
pub struct ResumableLinks {
    links: HashMap<LinkName, Entry>,
    /// How many each user has.
    by_user: HashMap<String, usize>,
    last_id: u64,
    /// The generation of authorities in which suspended links were looked at last.
    authority_seen: u64,
}

impl ResumableLinks {
    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether a resumable link of that name is attached now.
    pub fn is_attached(&self, name: &LinkName) -> bool {
        self.links.get(name).is_some_and(|entry| matches!(entry.stage, Stage::Attached))
    }

    /// Suspended links of a user: they count with its attached ones.
    pub fn suspended_of(&self, user: &str) -> u32 {
        if !self.by_user.contains_key(user) {
            return 0;
        }
        let is_suspended = |entry: &Entry| matches!(entry.stage, Stage::Suspended { .. });
        let count = self.links.iter().filter(|(name, entry)| name.user == user && is_suspended(entry)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Whether that link is attached or suspended still.
    pub fn is_kept(&self, link: &Resumable) -> bool {
        self.links.get(&link.name).is_some_and(|entry| entry.id == link.id)
    }

    /// Takes what is kept of a suspended link, which is attached again or over.
    pub fn take(&mut self, name: &LinkName) -> Option<Kept> {
        if !self.links.get(name).is_some_and(|entry| matches!(entry.stage, Stage::Suspended { .. })) {
            return None;
        }
        match self.remove(name)?.stage {
            Stage::Suspended { kept, .. } => Some(kept),
            Stage::Attached => None,
        }
    }

    /// A link is attached that may be suspended later. None where there are too many.
    pub fn attach(&mut self, name: LinkName, keep: Keep) -> Option<Resumable> {
        let of_user = self.by_user.get(&name.user).copied().unwrap_or(0);
        if self.links.contains_key(&name) || self.links.len() >= LINKS_MAX || of_user >= USER_LINKS_MAX {
            return None;
        }
        self.last_id += 1;
        let id = self.last_id;
        *self.by_user.entry_ref(&name.user).or_default() += 1;
        self.links.insert(name.clone(), Entry { id, keep, stage: Stage::Attached });
        Some(Resumable { name, id, keep })
    }

    /// An attached link has ended for good.
    pub fn end(&mut self, link: &Resumable) {
        if self.links.get(&link.name).is_some_and(|entry| entry.id == link.id) {
            self.remove(&link.name);
        }
    }

    /// The attachment of a link is over.
    pub fn suspend(&mut self, link: &Resumable, kept: Kept, over: Over, now: Instant) {
        if let Some(entry) = self.links.get_mut(&link.name).filter(|entry| entry.id == link.id) {
            entry.stage = Stage::Suspended { kept, expires_at: None };
            self.over(link, over, now);
        }
    }

    /// More of a suspended link's attachment is over: its time may count from now on.
    pub fn over(&mut self, link: &Resumable, over: Over, now: Instant) {
        let Some(entry) = self.links.get_mut(&link.name).filter(|entry| entry.id == link.id) else { return };
        if let Stage::Suspended { expires_at: expires_at @ None, .. } = &mut entry.stage
            && over >= entry.keep.from
        {
            *expires_at = Some(now + Duration::from_secs(entry.keep.seconds.into()));
        }
    }

    /// Takes the suspended links whose time is over, and those that `is_over` names where the authorities have changed.
    pub fn take_over(&mut self, now: Instant, authority: u64, is_over: impl Fn(&LinkName, &Kept) -> bool) -> Vec<Kept> {
        let has_changed = std::mem::replace(&mut self.authority_seen, authority) != authority;
        let ends = |(name, entry): (&LinkName, &Entry)| match &entry.stage {
            Stage::Attached => None,
            Stage::Suspended { kept, expires_at } => {
                let has_expired = expires_at.is_some_and(|at| at <= now);
                (has_expired || has_changed && is_over(name, kept)).then(|| name.clone())
            }
        };
        let over: Vec<LinkName> = self.links.iter().filter_map(ends).collect();
        over.iter().filter_map(|name| self.take(name)).collect()
    }

    /// Suspended links end of which `is_of` says so, and nothing becomes of what is kept of them.
    pub fn drop_suspended(&mut self, is_of: impl Fn(&Kept) -> bool) {
        let ends = |(name, entry): (&LinkName, &Entry)| match &entry.stage {
            Stage::Suspended { kept, .. } if is_of(kept) => Some(name.clone()),
            Stage::Suspended { .. } | Stage::Attached => None,
        };
        let over: Vec<LinkName> = self.links.iter().filter_map(ends).collect();
        over.iter().for_each(|name| drop(self.remove(name)));
    }

    fn remove(&mut self, name: &LinkName) -> Option<Entry> {
        let entry = self.links.remove(name)?;
        if let Some(count) = self.by_user.get_mut(&name.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&name.user);
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(user: &str, name: &str) -> LinkName {
        LinkName { user: user.into(), container: "c".into(), name: name.into(), direction: Direction::Puts }
    }

    const KEEP: Keep = Keep { from: Over::Connection, seconds: 300 };

    fn accepted() -> Kept {
        let tag = DeliveryTag::new(b"t").unwrap();
        Kept::Puts(vec![(tag, PutOutcome::Known(MessageOutcome::Accepted))])
    }

    #[test]
    fn time_counts_from_the_moment_that_the_policy_names() {
        let begun = Instant::now();
        for counts_from in [Over::Link, Over::Session, Over::Connection] {
            let mut links = ResumableLinks::default();
            let link = links.attach(name("u", "l"), Keep { from: counts_from, seconds: 1 }).unwrap();
            links.suspend(&link, accepted(), Over::Link, begun);
            for over in [Over::Link, Over::Session, Over::Connection] {
                links.over(&link, over, begun);
                let there = links.take_over(begun + SECOND, 0, |_, _| false).is_empty();
                assert_eq!(there, over < counts_from, "{counts_from:?} {over:?}");
                if !there {
                    break;
                }
            }
            assert!(links.is_empty() && links.by_user.is_empty());
        }
    }

    #[test]
    fn a_link_is_its_users_and_there_are_so_many_of_one_user_and_of_all() {
        let mut links = ResumableLinks::default();
        let mine = links.attach(name("u", "0"), KEEP).unwrap();
        assert!(links.attach(name("u", "0"), KEEP).is_none() && links.is_attached(&name("u", "0")));
        links.suspend(&mine, accepted(), Over::Connection, Instant::now());
        assert!(links.take(&name("v", "0")).is_none());
        assert_eq!((links.suspended_of("u"), links.suspended_of("v")), (1, 0));
        for number in 1..USER_LINKS_MAX {
            assert!(links.attach(name("u", &number.to_string()), KEEP).is_some());
        }
        assert!(links.attach(name("u", "more"), KEEP).is_none());
        assert!(links.take(&name("u", "0")).is_some() && links.take(&name("u", "0")).is_none());
        assert!(links.attach(name("u", "more"), KEEP).is_some());
        for number in 0..LINKS_MAX {
            links.attach(name(&number.to_string(), "l"), KEEP);
        }
        assert_eq!(links.links.len(), LINKS_MAX);
    }

    #[test]
    fn an_attachment_that_is_over_does_not_end_a_later_one() {
        let mut links = ResumableLinks::default();
        let first = links.attach(name("u", "l"), KEEP).unwrap();
        links.suspend(&first, accepted(), Over::Link, Instant::now());
        assert!(links.take(&first.name).is_some());
        let second = links.attach(name("u", "l"), KEEP).unwrap();
        links.end(&first);
        links.over(&first, Over::Connection, Instant::now());
        assert!(links.is_attached(&second.name));
        links.end(&second);
        assert!(links.is_empty());
    }

    #[test]
    fn a_change_of_rights_ends_what_it_forbids() {
        let mut links = ResumableLinks::default();
        let link = links.attach(name("u", "l"), KEEP).unwrap();
        links.suspend(&link, accepted(), Over::Connection, Instant::now());
        assert!(links.take_over(Instant::now(), 0, |_, _| true).is_empty());
        assert!(links.take_over(Instant::now(), 1, |_, _| false).is_empty());
        assert_eq!(links.take_over(Instant::now(), 2, |name, _| name.user == "u").len(), 1);
    }
}
