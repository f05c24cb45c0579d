//! What a queue is told (attributes), what it tells (status), and its lanes.

use crate::lane::{Index, Lane};
use crate::message::{PRIORITY_MAX, Place, QueueId};
use crate::store::{QueueIndex, Watch};

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
    /// No more credit is granted; whoever sends all the same is refused with 2053.
    #[default]
    Wait,
    /// Refused with 2053.
    Reject,
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
    /// DEFPRTY, for whoever makes messages.
    pub default_priority: u8,
    /// DEFPSIST, for whoever makes messages.
    pub default_persistent: bool,
    /// A temporary dynamic queue: never in the journal, nor is anything on it.
    pub temporary: bool,
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
        }
    }
}

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
}

impl Queue {
    pub(crate) fn new(id: QueueId, name: &str, attributes: QueueAttributes) -> Self {
        Self {
            id,
            name: name.to_owned(),
            attributes,
            status: QueueStatus::default(),
            lanes: Default::default(),
            ready: false,
            freed: false,
            peak: 0,
            watch: None,
            index: None,
        }
    }

    /// Makes a message deliverable at its own place. One compare where nobody looks at each message once.
    pub(crate) fn unlock(&mut self, lane: u8, index: Index, id: u64) {
        self.lanes[usize::from(lane)].unlock(index);
        if let Some(watch) = &mut self.watch {
            watch.returned(lane, id);
        }
    }

    /// The lanes are dealt anew: whoever looks at each message once begins again.
    pub(crate) fn forget_passed(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.begin_again();
        }
        if let Some(index) = &mut self.index {
            index.build_again();
        }
    }

    /// The lane of a priority: the most urgent first, or one for all.
    pub(crate) fn lane_of(&self, priority: u8) -> u8 {
        match self.attributes.delivery_sequence {
            DeliverySequence::Priority => PRIORITY_MAX - priority.min(PRIORITY_MAX),
            DeliverySequence::Fifo => 0,
        }
    }

    pub(crate) fn room(&self) -> u32 {
        self.attributes.max_depth.saturating_sub(self.status.depth)
    }

    /// Where to look in each lane to go on from `after`.
    pub(crate) fn lanes_from(after: Option<Place>) -> impl Iterator<Item = (usize, Option<u64>)> {
        let first = after.map_or(0, |place| usize::from(place.lane));
        (first..LANES).map(move |lane| (lane, after.filter(|_| lane == first).map(|place| place.id)))
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

    /// A message was put by somebody, not read back at the start. Two adds and two compares.
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
