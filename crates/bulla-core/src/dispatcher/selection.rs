//! A consumer's selector at work: from the text in its attach to the next message that it wants.

use super::passed_over::PassedOver;
use crate::manager::{Route, State};
use crate::maps::HashMap;
use crate::message_groups::{Owner, bucket_of};
use crate::reason::{self, Refusal};
use crate::selector::{Facts, Scratch, Selector, group_of, keys_of};
use crate::stores::Stores;
use bulla_queue::{Cursor, Found, Look, Looked, MessageId, QueueId, Seen};

/// Messages looked at for selectors in one turn of a dispatcher, all queues together: a couple of milliseconds under
/// the queues' lock.
pub const LOOKS_PER_TURN: usize = 4_096;
/// Messages looked at for one consumer before the next one has its turn.
const LOOKS_PER_CONSUMER: usize = 1_024;

/// Messages of a bucket of groups from which on those that are gone are looked for.
const TAKEN_TIDY_MIN: usize = 64;

/// What a consumer with a selector knows.
pub struct Selection {
    selector: Option<Selector>,
    /// Who it is, where the queue has message groups, and how often groups had become free when it looked last.
    group_owner: Option<Owner>,
    freed: u64,
    /// Messages of groups that it took, by bucket, and buckets that it gives up once it has no message of them.
    taken: HashMap<u16, Taken>,
    owed: Vec<u16>,
    scratch: Scratch,
    /// The index names more than a share of messages that are not wanted: each is looked at once, by the cursor.
    by_cursor: bool,
    cursor: Cursor,
    queue: QueueId,
    browse: bool,
}

/// Messages of one bucket of groups that a link took; some of them may be gone or given back.
#[derive(Default)]
struct Taken {
    messages: Vec<MessageId>,
    /// At so many those that are not locked any more are left out.
    tidy_at: usize,
}

/// How much may still be looked at in this turn, and who has to go on in the next.
#[derive(Default)]
pub struct Looks {
    left: usize,
    /// Queues that had a share of this turn.
    later: Vec<QueueId>,
    /// Queues that came too late for one: they are first in the next.
    first: Vec<QueueId>,
}

impl Looks {
    /// A turn begins.
    pub fn begin(&mut self) {
        self.left = LOOKS_PER_TURN;
    }

    /// Links that have to go on in the next turn, in their order.
    pub fn take_unfinished(&mut self) -> impl Iterator<Item = QueueId> + use<> {
        let first = std::mem::take(&mut self.first);
        first.into_iter().chain(std::mem::take(&mut self.later))
    }

    fn unfinished(&mut self, queue: QueueId, had_share: bool) {
        let list = if had_share { &mut self.later } else { &mut self.first };
        if !list.contains(&queue) {
            list.push(queue);
        }
    }
}

/// Reads the selector that a client asks for.
///
/// # Errors
/// 2459 for one that is none.
pub fn parse(text: &str) -> Result<Selector, Refusal> {
    Selector::parse(text).map_err(|error| Refusal::new(reason::SELECTOR_ERROR, error.to_string()))
}

impl Selection {
    /// What a consumer needs to choose by; none for one that takes what comes next.
    pub fn wanted(
        selector: Option<Selector>,
        owner: Owner,
        route: &Route,
        state: &mut State,
        browse: bool,
    ) -> Option<Box<Self>> {
        let group_owner = (route.has_groups && !browse).then_some(owner);
        let chooses = selector.is_some() || group_owner.is_some();
        chooses.then(|| Box::new(Self::begin(selector, group_owner, state, route.queue, browse)))
    }

    fn begin(
        selector: Option<Selector>,
        group_owner: Option<Owner>,
        state: &mut State,
        queue: QueueId,
        browse: bool,
    ) -> Self {
        let cursor = if browse { Cursor::default() } else { state.store.watch(queue) };
        if let (Some(key), false) = (selector.as_ref().and_then(Selector::key), browse) {
            state.store.index(queue, keys_of, key.kind);
        }
        let freed = state.use_of(queue).groups.freed();
        Self {
            selector,
            group_owner,
            freed,
            taken: HashMap::default(),
            owed: Vec::new(),
            scratch: Scratch::default(),
            by_cursor: false,
            cursor,
            queue,
            browse,
        }
    }

    /// The consumer goes.
    pub fn end(&self, state: &mut State) {
        if self.browse {
            return;
        }
        state.store.unwatch(self.queue);
        if let (Some(owner), Some(usage)) = (self.group_owner, state.uses.get_mut(&self.queue)) {
            usage.groups.leave(owner);
        }
        if self.selector.as_ref().and_then(Selector::key).is_some() {
            state.store.unindex(self.queue);
        }
    }

    /// Looks again at what was passed over for a group's sake, where groups are free since.
    fn look_at_freed_groups(&mut self, state: &mut State) {
        let freed = state.use_of(self.queue).groups.freed();
        if freed != self.freed {
            state.store.unwatch(self.queue);
            (self.cursor, self.freed) = (state.store.watch(self.queue), freed);
        }
    }

    /// The next message that the consumer wants, locked unless it browses. Hot path: an id is looked up, anything else
    /// is one evaluation a message that came since the last time.
    pub fn next(&mut self, passed_over: &PassedOver, looks: &mut Looks, state: &mut State, wall_ms: u64) -> Look {
        if looks.left == 0 {
            looks.unfinished(self.queue, false);
            return Look::Unfinished;
        }
        let mut budget = LOOKS_PER_CONSUMER.min(looks.left);
        let share = budget;
        if self.group_owner.is_some() {
            self.look_at_freed_groups(state);
        }
        let Self { selector, group_owner, taken, scratch, cursor, queue, browse, by_cursor, .. } = self;
        let State { store, uses, .. } = state;
        let groups = &mut uses.entry(*queue).or_default().groups;
        let mut claimed = None;
        let mut show = |seen: &Seen<'_>| {
            if passed_over.contains(seen.id) {
                return Looked::Pass;
            }
            let Seen { priority, persistent, delivery_count, .. } = *seen;
            let facts = Facts { priority, persistent, delivery_count };
            match selector.as_ref().map_or(Some(true), |one| one.matches(scratch, facts, seen.body, seen.is_whole)) {
                Some(true) => {}
                Some(false) => return Looked::PassAt { cost: scratch.cost() },
                None => return Looked::More,
            }
            let Some(owner) = *group_owner else { return Looked::Take };
            match group_of(seen.body) {
                Some(group) if group.is_none_or(|group| groups.claim(group, owner)) => {
                    claimed = group.map(|group| (seen.id, bucket_of(group)));
                    Looked::Take
                }
                Some(_) => Looked::Pass,
                None => Looked::More,
            }
        };
        let keyed = match selector.as_ref().and_then(Selector::key).filter(|_| !*browse && !*by_cursor) {
            Some(key) => store.look_up(*queue, key.value, wall_ms, true, &mut budget, &mut show),
            None => None,
        };
        *by_cursor |= keyed.is_none() && budget == 0;
        let found = keyed.unwrap_or_else(|| store.look(*queue, cursor, wall_ms, !*browse, &mut budget, &mut show));
        if let Some((id, bucket)) = claimed {
            taken.entry(bucket).or_default().add(id, store);
        }
        looks.left = looks.left.saturating_sub(share - budget);
        if found == Look::Unfinished {
            looks.unfinished(*queue, true);
        }
        found
    }

    /// A message that was shown to a browser is to be shown again.
    pub fn look_again(&mut self, found: &Found) {
        self.cursor.look_again(found);
    }

    /// A message that is not for this link was given back: its group is the others' once the link has no other message
    /// of it. True where that is so now: they are to be served.
    pub fn give_up_group(&mut self, state: &mut State, id: MessageId) -> bool {
        if self.group_owner.is_none() {
            return false;
        }
        let Ok(body) = state.store.body(id) else { return false };
        let Some(Some(group)) = group_of(body.chunks()) else { return false };
        let bucket = bucket_of(group);
        if !self.owed.contains(&bucket) {
            self.owed.push(bucket);
        }
        self.give_up_owed(state)
    }

    /// A message was settled: gives up the groups of which it was the last one that the link had, where that is owed. A
    /// compare where nothing is.
    pub fn give_up_owed(&mut self, state: &mut State) -> bool {
        let Self { group_owner: Some(owner), freed, taken, owed, queue, .. } = self else { return false };
        if owed.is_empty() {
            return false;
        }
        let State { store, uses, .. } = state;
        let groups = &mut uses.entry(*queue).or_default().groups;
        let before = groups.freed();
        owed.retain(|bucket| {
            let is_held = taken.get_mut(bucket).is_some_and(|taken| taken.has_locked(store));
            if !is_held {
                taken.remove(bucket);
                groups.give_up(*bucket, *owner);
            }
            is_held
        });
        if *freed == before {
            // What it passed over for others' groups is still theirs.
            *freed = groups.freed();
        }
        groups.freed() != before
    }

    /// Gives back a message that is addressed to others: it is not shown again.
    pub fn give_back(&mut self, state: &mut State, id: MessageId) {
        state.store.release_unheard(id, &mut self.cursor);
    }
}

impl Taken {
    fn add(&mut self, id: MessageId, store: &Stores) {
        if self.messages.len() >= self.tidy_at {
            self.messages.retain(|id| store.is_locked(*id));
            self.tidy_at = (2 * self.messages.len()).max(TAKEN_TIDY_MIN);
        }
        self.messages.push(id);
    }

    /// Whether the link still has one of them: no other link takes any of their groups.
    fn has_locked(&mut self, store: &Stores) -> bool {
        while self.messages.last().is_some_and(|id| !store.is_locked(*id)) {
            self.messages.pop();
        }
        !self.messages.is_empty()
    }
}
