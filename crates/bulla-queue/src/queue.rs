//! What a queue is told (attributes), what it tells (status), and its lanes.

use crate::lane::{Index, Lane, Slot};
use crate::message::{PRIORITY_MAX, Place, QueueId, User};
use crate::store::{Needs, QueueIndex, Watch};
use std::collections::HashMap;

/// The largest MAXMSGL, in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 100 << 20;
/// MAXMSGL where nothing is said, in bytes.
pub const MESSAGE_BYTES_DEFAULT: u32 = 4 << 20;
/// MAXDEPTH where nothing is said, in messages.
pub const DEPTH_DEFAULT: u32 = 5_000;
/// The largest MAXDEPTH, in messages.
pub const DEPTH_MAX: u32 = 999_999_999;

pub(crate) const LANES: usize = PRIORITY_MAX as usize + 1;

/// MSGDLVSQ: the order in which messages are delivered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DeliverySequence {
    /// By priority, and by order of put within a priority.
    #[default]
    Priority,
    /// By order of put.
    Fifo,
}

/// What happens at MAXDEPTH. The store refuses in both cases; the program grants credit by it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Full {
    /// No more credit is granted; a sender that sends all the same is refused with 2053.
    #[default]
    Wait,
    /// Refused with 2053.
    Reject,
}

/// Depths at which an event is due. A queue is *high* from the moment it holds `high` messages until it holds no more
/// than `low`; each crossing is told once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DepthWatch {
    /// From so many messages on the queue is high; at least 1.
    pub high: u32,
    /// Down to so many it is high still; less than `high`.
    pub low: u32,
    /// Whether becoming high is told.
    pub tells_high: bool,
    /// Whether ceasing to be high is told.
    pub tells_low: bool,
    /// Whether reaching MAXDEPTH is told, once until the queue is low again.
    pub tells_full: bool,
}

/// What a watched queue's depth has done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrossingKind {
    /// It became high.
    High,
    /// It is high no more.
    Low,
    /// It reached MAXDEPTH.
    Full,
}

/// A watched depth was crossed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Crossing {
    /// Where.
    pub queue: QueueId,
    /// How.
    pub kind: CrossingKind,
    /// The depth at that moment.
    pub depth: u32,
}

/// What has come to a queue whose arrivals are counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Arrivals {
    /// Messages of the counted priorities that became available since this was last asked.
    pub count: u32,
    /// Whether one of them found no other of them there.
    pub first: bool,
}

/// How a queue behaves. Kept by the program (`objects.mqsc`), not by the journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueueAttributes {
    /// MAXDEPTH, in messages, those under way included.
    pub max_depth: u32,
    /// MAXMSGL, in bytes; at most [`MESSAGE_BYTES_MAX`].
    pub max_message_bytes: u32,
    /// GET(ENABLED). The store does not look at it: what is locked may still be acknowledged.
    pub get_enabled: bool,
    /// PUT(ENABLED).
    pub put_enabled: bool,
    /// MSGDLVSQ.
    pub delivery_sequence: DeliverySequence,
    /// What happens at MAXDEPTH.
    pub full: Full,
    /// DEFPRTY, for the code that makes messages.
    pub default_priority: u8,
    /// DEFPSIST, for the code that makes messages.
    pub default_persistent: bool,
    /// A temporary dynamic queue: never in the journal, nor is anything on it.
    pub temporary: bool,
    /// Depths that are told of by [`Store::take_crossings`](crate::Store::take_crossings).
    pub depth_watch: Option<DepthWatch>,
    /// Arrivals of at least this priority are told of by [`Store::take_arrivals`](crate::Store::take_arrivals).
    pub counted_priority: Option<u8>,
    /// What the messages of one user may take of it; all there is where this is none.
    pub user_share: Option<UserShare>,
}

/// What the messages of one user may take of a queue. Those without a user are one user's together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UserShare {
    /// Messages.
    pub messages: u32,
    /// Bytes of their bodies. A message beyond it is taken where its user has no other on the queue.
    pub bytes: u64,
}

impl Default for QueueAttributes {
    fn default() -> Self {
        Self {
            max_depth: DEPTH_DEFAULT,
            max_message_bytes: MESSAGE_BYTES_DEFAULT,
            get_enabled: true,
            put_enabled: true,
            delivery_sequence: DeliverySequence::Priority,
            full: Full::Wait,
            default_priority: 0,
            default_persistent: false,
            temporary: false,
            depth_watch: None,
            counted_priority: None,
            user_share: None,
        }
    }
}

/// No priority is so high: nothing is counted.
const COUNTED_NEVER: u8 = u8::MAX;

/// A queue at a glance. Counters count since the store was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueueStatus {
    /// CURDEPTH: messages on the queue, those locked or not yet synced included.
    pub depth: u32,
    /// The deepest it has been.
    pub depth_highest: u32,
    /// Messages that can be locked now.
    pub available: u32,
    /// Messages locked under a delivery.
    pub locked: u32,
    /// Messages put whose ticket is not synced yet.
    pub unsynced: u32,
    /// Bytes of bodies on the queue.
    pub bytes: u64,
    /// When the oldest message was put, in milliseconds since 1970, for MSGAGE. `None` on an empty queue.
    pub oldest_put_ms: Option<u64>,
    /// LPUTTIME: milliseconds of wall time since 1970, as the last message said.
    pub last_put_ms: Option<u64>,
    /// LGETTIME: milliseconds of wall time since 1970, as the last lock was told.
    pub last_get_ms: Option<u64>,
    /// Messages put.
    pub puts: u64,
    /// Messages acknowledged.
    pub gets: u64,
    /// Messages that expired.
    pub expired: u64,
    /// Of the messages put, the persistent ones.
    pub persistent_puts: u64,
    /// Of the messages acknowledged, the persistent ones.
    pub persistent_gets: u64,
    /// Bytes of the bodies put.
    pub bytes_put: u64,
    /// Bytes of the bodies acknowledged.
    pub bytes_got: u64,
    /// Bytes of the shortest body put. `None` before the first.
    pub shortest_bytes: Option<u32>,
    /// Bytes of the longest body put.
    pub longest_bytes: u32,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) name: String,
    pub(crate) attributes: QueueAttributes,
    pub(crate) status: QueueStatus,
    pub(crate) lanes: [Lane; LANES],
    /// Lanes that had a message since they were last dealt, one bit each: a search passes the others over without
    /// looking at them.
    lanes_used: u16,
    /// Whether `take_ready` will name it.
    pub(crate) ready: bool,
    /// Whether `take_freed` will name it.
    pub(crate) freed: bool,
    /// The depth from which it has to halve to count as freed; 0 while it is less than half full.
    pub(crate) peak: u32,
    /// What came back behind readers that look at each message once; while there are such.
    pub(crate) watch: Option<Box<Watch>>,
    /// Its messages by what readers look for; while there are such.
    pub(crate) index: Option<Box<QueueIndex>>,
    /// What its messages need, by set of keys.
    pub(crate) needs: Needs,
    /// From this depth on there is something to tell; `u32::MAX` for never.
    pub(crate) told_from: u32,
    /// Below this depth there is something to tell; 0 for never.
    pub(crate) told_below: u32,
    is_high: bool,
    was_full: bool,
    /// Arrivals are counted from this priority on.
    counted_from: u8,
    /// Messages of the counted priorities, locked ones included, those not yet available not.
    pub(crate) counted: u32,
    arrivals: Arrivals,
    /// What each user's messages take, where that is limited.
    taken: Option<HashMap<Option<User>, Taken>>,
}

/// What the messages of a user take of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    messages: u32,
    bytes: u64,
}

impl Queue {
    pub(crate) fn new(id: QueueId, name: &str, attributes: QueueAttributes) -> Self {
        let mut queue = Self {
            id,
            name: name.to_owned(),
            attributes,
            status: QueueStatus::default(),
            lanes: Default::default(),
            lanes_used: 0,
            ready: false,
            freed: false,
            peak: 0,
            watch: None,
            index: None,
            needs: Needs::default(),
            told_from: u32::MAX,
            told_below: 0,
            is_high: false,
            was_full: false,
            counted_from: attributes.counted_priority.unwrap_or(COUNTED_NEVER),
            counted: 0,
            arrivals: Arrivals::default(),
            taken: attributes.user_share.map(|_| HashMap::new()),
        };
        queue.watch();
        queue
    }

    /// Appends a message to a lane and returns where it stands there.
    pub(crate) fn push(&mut self, lane: u8, id: u64, slot: Slot, free: bool) -> Index {
        self.lanes_used |= 1 << lane;
        self.lanes[usize::from(lane)].push(id, slot, free)
    }

    /// Takes all lanes away, to be dealt anew.
    pub(crate) fn take_lanes(&mut self) -> [Lane; LANES] {
        self.lanes_used = 0;
        std::mem::take(&mut self.lanes)
    }

    /// Makes a message deliverable at its own place. One compare where no reader looks at each message once.
    pub(crate) fn unlock(&mut self, lane: u8, index: Index, id: u64) {
        self.lanes[usize::from(lane)].unlock(index);
        self.returned(lane, id);
    }

    /// Readers that look at each message once are to look at this one again.
    pub(crate) fn returned(&mut self, lane: u8, id: u64) {
        if let Some(watch) = &mut self.watch {
            watch.returned(lane, id);
        }
    }

    /// The lanes are dealt anew: a reader that looks at each message once begins again.
    pub(crate) fn forget_passed(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.begin_again();
        }
        if let Some(index) = &mut self.index {
            index.build_again();
        }
    }

    /// Takes over what is to be watched, and how things stand; nothing is told of that.
    pub(crate) fn watch(&mut self) {
        let watch = self.attributes.depth_watch;
        self.is_high = watch.is_some_and(|watch| self.status.depth >= watch.high.max(1));
        self.was_full = self.is_high && self.status.depth >= self.attributes.max_depth;
        self.set_thresholds();
    }

    fn set_thresholds(&mut self) {
        (self.told_from, self.told_below) = (u32::MAX, 0);
        let Some(watch) = self.attributes.depth_watch else { return };
        if !self.is_high {
            self.told_from = watch.high.max(1);
        } else {
            self.told_below = watch.low.saturating_add(1);
        }
        if watch.tells_full && !self.was_full {
            self.told_from = self.told_from.min(self.attributes.max_depth.max(1));
        }
    }

    /// The depth is at `told_from` or beyond it.
    pub(crate) fn rose(&mut self, crossings: &mut Vec<Crossing>) {
        let Some(watch) = self.attributes.depth_watch else { return };
        let (queue, depth) = (self.id, self.status.depth);
        if !self.is_high && depth >= watch.high.max(1) {
            self.is_high = true;
            crossings.extend(watch.tells_high.then_some(Crossing { queue, kind: CrossingKind::High, depth }));
        }
        if !self.was_full && depth >= self.attributes.max_depth {
            (self.was_full, self.is_high) = (true, true);
            crossings.extend(watch.tells_full.then_some(Crossing { queue, kind: CrossingKind::Full, depth }));
        }
        self.set_thresholds();
    }

    /// The depth is below `told_below`.
    pub(crate) fn fell(&mut self, crossings: &mut Vec<Crossing>) {
        let Some(watch) = self.attributes.depth_watch else { return };
        let (queue, depth) = (self.id, self.status.depth);
        (self.is_high, self.was_full) = (false, false);
        crossings.extend(watch.tells_low.then_some(Crossing { queue, kind: CrossingKind::Low, depth }));
        self.set_thresholds();
    }

    /// From now on arrivals are counted as the attributes say; `priorities` are those of the messages there.
    pub(crate) fn count_from(&mut self, priorities: impl Iterator<Item = u8>) {
        self.counted_from = self.attributes.counted_priority.unwrap_or(COUNTED_NEVER);
        let counted = priorities.filter(|priority| *priority >= self.counted_from).count();
        self.counted = u32::try_from(counted).unwrap_or(u32::MAX);
        if self.counted_from == COUNTED_NEVER {
            self.arrivals = Arrivals::default();
        }
    }

    /// A message became available. One compare where nothing is counted. True for the first since it was asked.
    pub(crate) fn arrived(&mut self, priority: u8) -> bool {
        if priority < self.counted_from {
            return false;
        }
        self.counted += 1;
        self.arrivals.count += 1;
        self.arrivals.first |= self.counted == 1;
        self.arrivals.count == 1
    }

    /// A message that was available or locked is gone. One compare where nothing is counted.
    pub(crate) fn left(&mut self, priority: u8) {
        if priority >= self.counted_from {
            self.counted = self.counted.saturating_sub(1);
        }
    }

    pub(crate) fn take_arrivals(&mut self) -> Arrivals {
        std::mem::take(&mut self.arrivals)
    }

    /// The lane of a priority: the most urgent first, or one for all.
    pub(crate) fn lane_of(&self, priority: u8) -> u8 {
        match self.attributes.delivery_sequence {
            DeliverySequence::Priority => PRIORITY_MAX - priority.min(PRIORITY_MAX),
            DeliverySequence::Fifo => 0,
        }
    }

    /// Whether a user may have a message of so many bytes more, and `before` others that are put with it. A compare
    /// where nothing limits users.
    pub(crate) fn share_exceeded(&self, user: Option<&User>, bytes: usize, before: usize) -> Option<UserShare> {
        let (share, taken) = (self.attributes.user_share?, self.taken.as_ref()?);
        let has = taken.get(&user.cloned()).copied().unwrap_or_default();
        let messages = (has.messages as usize).saturating_add(before);
        let is_full =
            messages >= share.messages as usize || messages > 0 && has.bytes.saturating_add(bytes as u64) > share.bytes;
        is_full.then_some(share)
    }

    /// A user has a message more. A compare where nothing limits users.
    pub(crate) fn user_has(&mut self, user: Option<&User>, bytes: u32) {
        let Some(taken) = &mut self.taken else { return };
        let has = taken.entry(user.cloned()).or_default();
        has.messages += 1;
        has.bytes += u64::from(bytes);
    }

    /// A message of a user is gone. A compare where nothing limits users.
    pub(crate) fn user_had(&mut self, user: Option<&User>, bytes: u32) {
        let Some(taken) = &mut self.taken else { return };
        let user = user.cloned();
        if let Some(has) = taken.get_mut(&user) {
            has.messages = has.messages.saturating_sub(1);
            has.bytes = has.bytes.saturating_sub(u64::from(bytes));
            if has.messages == 0 {
                taken.remove(&user);
            }
        }
    }

    /// From now on it is limited, or not, what users may take; `there` are the messages there.
    pub(crate) fn count_users<'a>(&mut self, there: impl Iterator<Item = (Option<&'a User>, u32)>) {
        self.taken = self.attributes.user_share.map(|_| HashMap::new());
        if self.taken.is_some() {
            there.for_each(|(user, bytes)| self.user_has(user, bytes));
        }
    }

    pub(crate) fn room(&self) -> u32 {
        self.attributes.max_depth.saturating_sub(self.status.depth)
    }

    /// Where to look in each lane to go on from `after`. Most queues have messages of one priority, so that this is one
    /// lane.
    pub(crate) fn lanes_from(&self, after: Option<Place>) -> impl Iterator<Item = (usize, Option<u64>)> + use<> {
        let first = after.map_or(0, |place| usize::from(place.lane));
        let mut left = self.lanes_used & (u16::MAX << first);
        std::iter::from_fn(move || {
            let lane = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some((lane, after.filter(|_| lane == first).map(|place| place.id)))
        })
    }

    /// The first free message, or the first one behind `after`, and its lane.
    pub(crate) fn first_free(&mut self, after: Option<Place>) -> Option<(usize, Slot)> {
        self.lanes_from(after).find_map(|(lane, behind)| Some((lane, self.lanes[lane].first_free(behind)?)))
    }

    pub(crate) fn grew(&mut self, bytes: u32, put_at_ms: u64) {
        let status = &mut self.status;
        status.depth += 1;
        status.depth_highest = status.depth_highest.max(status.depth);
        status.bytes += u64::from(bytes);
        status.last_put_ms = Some(put_at_ms);
        if status.depth >= self.attributes.max_depth / 2 {
            self.peak = self.peak.max(status.depth);
        }
    }

    /// A message was put, not read back at the start. Two adds and two compares.
    pub(crate) fn count_put(&mut self, bytes: u32, persistent: bool) {
        let status = &mut self.status;
        status.puts += 1;
        status.persistent_puts += u64::from(persistent);
        status.bytes_put += u64::from(bytes);
        status.shortest_bytes = Some(status.shortest_bytes.map_or(bytes, |shortest| shortest.min(bytes)));
        status.longest_bytes = status.longest_bytes.max(bytes);
    }

    /// A locked message was removed.
    pub(crate) fn count_get(&mut self, bytes: u32, persistent: bool) {
        self.status.gets += 1;
        self.status.persistent_gets += u64::from(persistent);
        self.status.bytes_got += u64::from(bytes);
    }

    /// Returns whether senders that were kept waiting may go on.
    pub(crate) fn shrank(&mut self, bytes: u32) -> bool {
        let was_full = self.status.depth >= self.attributes.max_depth;
        self.status.depth -= 1;
        self.status.bytes -= u64::from(bytes);
        let halved = self.peak > 0 && self.status.depth <= self.peak / 2;
        if halved {
            self.peak = 0;
        }
        (was_full && self.room() > 0) || halved
    }
}
