//! Queues in memory, with a journal under them.
//!
//! Three structures hold a message: an entry in one table (about a hundred bytes), its place in a lane of its queue
//! (sixteen), and its id in a map. A persistent message is also in the open batch of the journal until the batch is
//! submitted, and becomes available when the batch is synced. Nothing here waits, except where a doc comment says so.

mod delays;
mod evictable;
mod index;
mod journal;
mod look;
mod messages;
mod notes;
mod objects;
mod reads;
mod recovery;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::log::{Log, LogError, Position};
use crate::message::{Chunks, Found, Message, MessageId, PRIORITY_MAX, Place, QueueId, StoreNumber, Ticket, User};
use crate::queue::{Arrivals, Crossing, MESSAGE_BYTES_MAX, Queue, QueueAttributes, QueueStatus, UserShare};
use crate::record::{
    OBJECT_BYTES_MAX, OBJECT_NAME_BYTES_MAX, PutRecord, QUEUE_NAME_BYTES_MAX, Record, USER_BYTES_MAX, padded,
};
use crate::spill::{Spill, SpillError};
use delays::Delays;
use evictable::Evictable;
pub(crate) use index::QueueIndex;
pub use index::{INDEX_ENTRIES_MAX, KeysOf};
use journal::{Journal, Mark, MarkKind};
pub(crate) use look::Watch;
pub use look::{Cursor, Look, Looked, Seen};
use messages::{Entry, IdBuildHasher, Kept, Messages, State};
pub use notes::{IDENTITY_BYTES, NOTES_MAX};
use notes::{IDENTITY_NOTE, Notes};
use objects::Objects;
pub use objects::{DefinitionUnit, OBJECTS_BYTES_MAX, OBJECTS_MAX, QueueChange, Reserve};
use reads::{READ_BYTES_MAX, Reading, Reads, Wanted, What};
pub use recovery::Standby;

/// Bytes of bodies held in memory where nothing is said.
pub const MEMORY_BYTES_MAX_DEFAULT: usize = 128 << 20;
/// Bytes of a batch where nothing is said: at 512 KiB the disk's own speed is what counts.
pub const BATCH_BYTES_MAX_DEFAULT: usize = 512 << 10;
/// Bytes of journal that puts leave free for acknowledgements, deletes and checkpoints.
pub const RESERVE_BYTES_DEFAULT: u64 = 16 << 20;
/// Bytes of journal between two checkpoints.
pub const CHECKPOINT_BYTES_DEFAULT: u64 = 16 << 20;
/// Bytes that the journal may have before live records are carried forward; beyond, at least half of it is live.
pub const LOG_BYTES_MIN_DEFAULT: u64 = 256 << 20;
/// Bytes of batches waiting for the disk beyond which `room` is 0.
pub const BACKLOG_BYTES_MAX_DEFAULT: u64 = 32 << 20;

/// How much waits for the disk, against [`Limits::backlog_bytes_max`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Backlog {
    /// No more than that.
    Usual,
    /// More: the users who have put most of it get no more credit for now.
    Much,
    /// More than twice as much: no user gets credit.
    TooMuch,
}

/// What the store may use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of bodies held in memory, over all queues. Beyond it persistent bodies stay in the journal alone. Others
    /// take the place of persistent bodies that the journal has; where there are none, they go to the spill.
    pub memory_bytes_max: usize,
    /// Bytes at which a batch is closed; a single larger message makes a batch of its own.
    pub batch_bytes_max: usize,
    /// Bytes of journal that puts leave free, so that gets and deletes still work on a full disk.
    pub reserve_bytes: u64,
    /// Bytes of journal between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Bytes of journal below which nothing is carried forward.
    pub log_bytes_min: u64,
    /// Bytes of batches waiting for the disk beyond which [`Store::room`] is 0.
    pub backlog_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: MEMORY_BYTES_MAX_DEFAULT,
            batch_bytes_max: BATCH_BYTES_MAX_DEFAULT,
            reserve_bytes: RESERVE_BYTES_DEFAULT,
            checkpoint_bytes: CHECKPOINT_BYTES_DEFAULT,
            log_bytes_min: LOG_BYTES_MIN_DEFAULT,
            backlog_bytes_max: BACKLOG_BYTES_MAX_DEFAULT,
        }
    }
}

/// Why the journal keeps nothing more.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum JournalError {
    /// The operator's turn: the disk is full. Gets and deletes still work and make room (2102 MQRC_RESOURCE_PROBLEM).
    Full,
    /// The engine's turn: it can't be reached, or takes nothing now. What was accepted before waits (2102
    /// MQRC_RESOURCE_PROBLEM).
    Unavailable {
        /// What it says, in words.
        reason: String,
    },
    /// The operator's turn: a write or sync failed. Nothing more is acknowledged; the program stops.
    Failed {
        /// What failed, in words.
        reason: String,
    },
    /// The operator's turn: another owner has the log. Nothing more is acknowledged; the program stops.
    Deposed {
        /// The epoch of the new owner.
        by: u64,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Full => write!(f, "no space left for the journal"),
            JournalError::Unavailable { reason } => write!(f, "the journal is not available: {reason}"),
            JournalError::Failed { reason } => write!(f, "the journal failed: {reason}"),
            JournalError::Deposed { by } => {
                write!(f, "another owner, number {by}, has taken the journal")
            }
        }
    }
}

impl std::error::Error for JournalError {}

/// Why a store did not open.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The log said no; see [`LogError`] for whose turn it is.
    Log(LogError),
    /// The operator's turn: a record is not what a journal may hold.
    Damaged {
        /// Where in the log its batch begins.
        at: Position,
        /// What is wrong, in words.
        reason: String,
    },
    /// The operator's turn: scratch space can't be had.
    Spill(SpillError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Log(error) => error.fmt(f),
            OpenError::Damaged { at, reason } => {
                write!(f, "the journal is damaged at position {at}: {reason}")
            }
            OpenError::Spill(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        OpenError::Log(error)
    }
}

/// Why a queue was not defined, altered or deleted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DefineError {
    /// The administrator's turn: a name has 1 to [`QUEUE_NAME_BYTES_MAX`] bytes.
    Name,
    /// The administrator's turn: MAXMSGL is at most [`MESSAGE_BYTES_MAX`].
    MessageBytes {
        /// What was asked for.
        asked: u32,
    },
    /// The administrator's turn: a queue can't become temporary, nor cease to be.
    Temporary,
    /// The caller's turn: there is no such queue (2085 MQRC_UNKNOWN_OBJECT_NAME).
    Unknown,
    /// The administrator's turn: there are messages on the queue (2055 MQRC_Q_NOT_EMPTY).
    NotEmpty {
        /// How many.
        depth: u32,
    },
    /// The administrator's turn: an object's name has 1 to [`OBJECT_NAME_BYTES_MAX`](crate::OBJECT_NAME_BYTES_MAX)
    /// bytes, its definition at most [`OBJECT_BYTES_MAX`](crate::OBJECT_BYTES_MAX).
    ObjectTooBig {
        /// Bytes of the name.
        name_bytes: usize,
        /// Bytes of the definition.
        bytes: usize,
    },
    /// The administrator's turn: there would be more definitions than [`OBJECTS_MAX`], or more bytes of them than
    /// [`OBJECTS_BYTES_MAX`].
    ObjectsFull {
        /// How many there would be.
        objects: usize,
        /// Bytes of their texts.
        bytes: u64,
    },
    /// The administrator's turn: what changes together lies in one store (2355 MQRC_UOW_MIX_NOT_SUPPORTED).
    OtherStore,
    /// The program's turn: the notes that go with the definitions are refused.
    Notes {
        /// Why, in words.
        reason: String,
    },
    /// See [`JournalError`].
    Journal(JournalError),
}

impl fmt::Display for DefineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefineError::Name => write!(f, "a queue name has 1 to {QUEUE_NAME_BYTES_MAX} bytes"),
            DefineError::MessageBytes { asked } => {
                write!(f, "a maximum message length of {asked} is above {MESSAGE_BYTES_MAX}")
            }
            DefineError::Temporary => write!(f, "a queue can't become temporary, nor cease to be"),
            DefineError::Unknown => write!(f, "no such queue"),
            DefineError::NotEmpty { depth } => write!(f, "{depth} messages are on the queue"),
            DefineError::ObjectTooBig { name_bytes, bytes } => write!(
                f,
                "a definition of {bytes} bytes with a name of {name_bytes} is longer than a definition may be: \
                 {OBJECT_BYTES_MAX} and {OBJECT_NAME_BYTES_MAX} bytes"
            ),
            DefineError::ObjectsFull { objects, bytes } => write!(
                f,
                "{objects} definitions of {bytes} bytes in all are more than the journal keeps: {OBJECTS_MAX} of \
                 {OBJECTS_BYTES_MAX} bytes"
            ),
            DefineError::OtherStore => write!(f, "the definitions of two stores can't change together"),
            DefineError::Notes { reason } => f.write_str(reason),
            DefineError::Journal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DefineError {}

impl From<JournalError> for DefineError {
    fn from(error: JournalError) -> Self {
        DefineError::Journal(error)
    }
}

/// Why nothing was put. Whatever was to be done with it is not done.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PutError {
    /// The caller's turn: the queue was deleted while it was open (2052 MQRC_Q_DELETED).
    Unknown,
    /// The caller's turn: there is no such message, or it is not locked.
    NotLocked {
        /// Which.
        id: MessageId,
    },
    /// The application's turn: a unit of work has messages or queues of one store (2355 MQRC_UOW_MIX_NOT_SUPPORTED).
    OtherStore,
    /// The application's turn: get messages, or ask for a higher MAXDEPTH (2053 MQRC_Q_FULL).
    QueueFull {
        /// MAXDEPTH.
        max_depth: u32,
    },
    /// The operator's turn: look at what is there. The messages of this message's user take all that one user may have
    /// of the queue (2053 MQRC_Q_FULL).
    UserShare {
        /// What one user may have.
        share: UserShare,
    },
    /// The application's turn: send less, or ask for a higher MAXMSGL (2030 MQRC_MSG_TOO_BIG_FOR_Q).
    TooBig {
        /// Bytes of the message.
        bytes: usize,
        /// MAXMSGL.
        max_message_bytes: u32,
    },
    /// The administrator's turn: PUT(DISABLED) (2051 MQRC_PUT_INHIBITED).
    PutInhibited,
    /// The operator's turn: no scratch space for a non-persistent message (2056 MQRC_Q_SPACE_NOT_AVAILABLE).
    Spill {
        /// What failed, in words.
        reason: String,
    },
    /// The program's turn: a note's name has 1 to [`NOTE_NAME_BYTES_MAX`](crate::NOTE_NAME_BYTES_MAX) bytes, its value
    /// at most [`NOTE_VALUE_BYTES_MAX`](crate::NOTE_VALUE_BYTES_MAX) (2195 MQRC_UNEXPECTED_ERROR).
    NoteTooBig {
        /// Bytes of the name.
        name_bytes: usize,
        /// Bytes of the value.
        value_bytes: usize,
    },
    /// The operator's turn: there would be more notes than the store keeps (2102 MQRC_RESOURCE_PROBLEM).
    NotesFull {
        /// How many there would be.
        notes: usize,
        /// Bytes of journal that they would take.
        bytes: u64,
    },
    /// See [`JournalError`] (2102 MQRC_RESOURCE_PROBLEM).
    Journal(JournalError),
}

impl PutError {
    /// The MQ reason code.
    #[must_use]
    pub fn reason_code(&self) -> u16 {
        match self {
            PutError::Unknown => 2052,
            PutError::NotLocked { .. } => 2034,
            PutError::OtherStore => 2355,
            PutError::QueueFull { .. } | PutError::UserShare { .. } => 2053,
            PutError::TooBig { .. } => 2030,
            PutError::PutInhibited => 2051,
            PutError::Spill { .. } => 2056,
            PutError::NoteTooBig { .. } => 2195,
            PutError::NotesFull { .. } | PutError::Journal(_) => 2102,
        }
    }
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::Unknown => write!(f, "no such queue"),
            PutError::NotLocked { id } => write!(f, "message {} is not locked", id.0),
            PutError::OtherStore => write!(f, "a unit of work can't span two stores"),
            PutError::QueueFull { max_depth } => {
                write!(f, "the queue holds its maximum of {max_depth} messages")
            }
            PutError::UserShare { share: UserShare { messages, bytes } } => {
                write!(f, "one user may have {messages} messages and {bytes} bytes on the queue")
            }
            PutError::TooBig { bytes, max_message_bytes } => {
                write!(f, "{bytes} bytes are more than the queue's maximum of {max_message_bytes}")
            }
            PutError::PutInhibited => write!(f, "puts are disabled for the queue"),
            PutError::Spill { reason } => write!(f, "no scratch space: {reason}"),
            PutError::NoteTooBig { name_bytes, value_bytes } => {
                write!(f, "a note of {value_bytes} bytes with a name of {name_bytes} is beyond what a note may have")
            }
            PutError::NotesFull { notes, bytes } => {
                write!(f, "{notes} notes of {bytes} bytes in all are more than the store keeps")
            }
            PutError::Journal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PutError {}

impl From<JournalError> for PutError {
    fn from(error: JournalError) -> Self {
        PutError::Journal(error)
    }
}

/// Why a message was not removed. It stays as it was.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RemoveError {
    /// The caller's turn: there is no such message, or it is not locked.
    NotLocked {
        /// Which.
        id: MessageId,
    },
    /// See [`JournalError`].
    Journal(JournalError),
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoveError::NotLocked { id } => write!(f, "message {} is not locked", id.0),
            RemoveError::Journal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RemoveError {}

impl From<JournalError> for RemoveError {
    fn from(error: JournalError) -> Self {
        RemoveError::Journal(error)
    }
}

/// Why a body could not be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The caller's turn: there is no such message.
    Unknown {
        /// Which.
        id: MessageId,
    },
    /// The log's turn: the body is being read back. [`Store::take_ready`] names the message's queue once it is there.
    Away {
        /// Which.
        id: MessageId,
    },
    /// The operator's turn: the bytes on disk are not those that were put. The message stays where it is.
    Damaged {
        /// Which.
        id: MessageId,
        /// Where its body lies in the log; `None` in scratch space.
        at: Option<Position>,
    },
    /// The operator's turn: the bytes of an object's definition are not those that were written.
    DamagedObject {
        /// Where they lie in the log.
        at: Position,
    },
    /// The operator's turn: the log can't be read.
    Log(LogError),
    /// The operator's turn: scratch space can't be read.
    Spill(SpillError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Unknown { id } => write!(f, "no message {}", id.0),
            ReadError::Away { id } => write!(f, "message {} is being read back from the journal", id.0),
            ReadError::Damaged { id, at: Some(at) } => {
                write!(f, "message {} is damaged in the journal at position {at}", id.0)
            }
            ReadError::Damaged { id, at: None } => {
                write!(f, "message {} is damaged in scratch space", id.0)
            }
            ReadError::DamagedObject { at } => {
                write!(f, "a definition is damaged in the journal at position {at}")
            }
            ReadError::Log(error) => error.fmt(f),
            ReadError::Spill(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// What the store holds, all queues together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreStatus {
    /// Messages.
    pub messages: usize,
    /// Bytes of bodies in memory.
    pub memory_bytes: usize,
    /// Bytes of bodies in scratch space.
    pub spilled_bytes: u64,
    /// Bytes of journal between the oldest batch kept and the end.
    pub journal_bytes: u64,
    /// Bytes of journal that live messages take.
    pub journal_live_bytes: u64,
    /// Bytes of journal that definitions of objects take.
    pub journal_object_bytes: u64,
    /// Bytes of batches not yet synced.
    pub backlog_bytes: u64,
    /// Batches synced since the store was opened.
    pub batches_synced: u64,
}

/// Local queues and the journal under them.
pub struct Store {
    number: StoreNumber,
    queues: HashMap<QueueId, Queue, IdBuildHasher>,
    names: HashMap<String, QueueId>,
    next_queue: u32,
    messages: Messages,
    notes: Notes,
    objects: Objects,
    next_id: u64,
    limits: Limits,
    memory_bytes: usize,
    evictable: Evictable,
    journal: Journal,
    /// Bodies that come back from the log.
    reads: Reads,
    /// A checkpoint that waits for what it reads back: bytes still to carry forward, and space to leave.
    carrying: Option<(u64, u64)>,
    spill: Box<dyn Spill>,
    /// When messages expire, soonest first. May name messages that are gone.
    expiries: BinaryHeap<Reverse<(u64, u64)>>,
    expiring: usize,
    /// The latest moment that was swept: what had expired by then and was locked is not in `expiries` any more.
    swept_ms: u64,
    /// The time when expired messages were looked for last. A clock that was set back is believed.
    looked_ms: u64,
    delays: Delays,
    /// Queues that are indexed, and the entries of all their indexes.
    indexed: Vec<QueueId>,
    index_entries: usize,
    ready: Vec<QueueId>,
    freed: Vec<QueueId>,
    crossings: Vec<Crossing>,
    /// Queues with arrivals that were counted and not yet taken.
    arrived: Vec<QueueId>,
    /// Messages below this number were found in the journal: whether they are marked is not known.
    marked_below: u64,
    marked: HashMap<u64, Option<Marker>, IdBuildHasher>,
    /// Whether a message that was found in the journal asks for a mark.
    asks: Option<fn(&Chunks) -> bool>,
    expired: Vec<Expired>,
    /// `room` said 0 for the backlog's sake, so a sender waits.
    backlogged: AtomicBool,
    totals: Totals,
}

/// Whose a mark is, in numbers of the caller's own; the store only keeps them.
pub type Marker = (usize, u64);

/// A marked message that has expired, and is gone.
#[derive(Clone, Debug)]
pub struct Expired {
    /// The queue it was on.
    pub queue: QueueId,
    /// What was known of it.
    pub found: Found,
    /// What it carried; none where that could not be read.
    pub body: Option<Chunks>,
    /// What was said when it was marked.
    pub marker: Option<Marker>,
}

/// What went through all queues together since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Messages put.
    pub puts: u64,
    /// Messages removed by those who had locked them: got, or moved on.
    pub gets: u64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} queues, {} messages)", self.queues.len(), self.messages.len())
    }
}

impl Store {
    /// Claims the log and replays it. Queues found there come back by name, with default attributes until `define` says
    /// more. Waits for the disk.
    ///
    /// # Errors
    /// The log is in use, damaged or of a newer version; see [`OpenError`].
    pub fn open(log: Box<dyn Log>, spill: Box<dyn Spill>, limits: Limits, now: Instant) -> Result<Store, OpenError> {
        recovery::open(StoreNumber::LOCAL, log, spill, limits, now)
    }

    /// As [`Store::open`], for one of several stores that are open side by side: its ids and tickets carry `number`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_numbered(
        number: StoreNumber,
        log: Box<dyn Log>,
        spill: Box<dyn Spill>,
        limits: Limits,
        now: Instant,
    ) -> Result<Store, OpenError> {
        recovery::open(number, log, spill, limits, now)
    }

    /// What its ids and tickets carry.
    #[must_use]
    pub fn number(&self) -> StoreNumber {
        self.number
    }

    // ---- queues

    /// Creates a queue, or applies the attributes to the one of that name. Returns its number either way.
    ///
    /// # Errors
    /// [`DefineError::Name`], [`DefineError::MessageBytes`], [`DefineError::Temporary`], [`DefineError::Journal`].
    pub fn define(&mut self, name: &str, attributes: QueueAttributes) -> Result<QueueId, DefineError> {
        if let Some(&id) = self.names.get(name) {
            self.alter(id, attributes)?;
            return Ok(id);
        }
        check_attributes(&attributes)?;
        if name.is_empty() || name.len() > QUEUE_NAME_BYTES_MAX {
            return Err(DefineError::Name);
        }
        if !attributes.temporary {
            let record = Record::Defined { queue: QueueId::new(self.number, self.next_queue), name };
            self.journal.admit(record.head_bytes(), 0, self.limits.reserve_bytes)?;
        }
        Ok(self.create_admitted(name, attributes))
    }

    fn create_admitted(&mut self, name: &str, attributes: QueueAttributes) -> QueueId {
        let id = QueueId::new(self.number, self.next_queue);
        if !attributes.temporary {
            self.journal.append(&Record::Defined { queue: id, name });
        }
        self.next_queue += 1;
        self.names.insert(name.to_owned(), id);
        self.queues.insert(id, Queue::new(id, name, attributes));
        id
    }

    /// Gives a queue other attributes. Messages on it stay, whatever their number and length.
    ///
    /// # Errors
    /// [`DefineError::Unknown`], [`DefineError::MessageBytes`], [`DefineError::Temporary`].
    pub fn alter(&mut self, queue: QueueId, attributes: QueueAttributes) -> Result<(), DefineError> {
        check_attributes(&attributes)?;
        let queue = self.queues.get_mut(&queue).ok_or(DefineError::Unknown)?;
        if queue.attributes.temporary != attributes.temporary {
            return Err(DefineError::Temporary);
        }
        let relane = queue.attributes.delivery_sequence != attributes.delivery_sequence;
        let before = std::mem::replace(&mut queue.attributes, attributes);
        if relane {
            self.messages.relane(queue);
            queue.forget_passed();
        }
        if (before.depth_watch, before.max_depth) != (attributes.depth_watch, attributes.max_depth) {
            queue.watch();
        }
        if before.counted_priority != attributes.counted_priority {
            let slots = queue.lanes.iter().flat_map(|lane| lane.slots(None)).map(|(slot, _)| &self.messages[slot]);
            let there = slots
                .filter(|entry| matches!(entry.state, State::Available | State::Locked))
                .map(|entry| entry.priority);
            let there: Vec<u8> = there.collect();
            queue.count_from(there.into_iter());
        }
        if before.user_share.is_some() != attributes.user_share.is_some() {
            let slots: Vec<_> = queue.lanes.iter().flat_map(|lane| lane.slots(None)).collect();
            let there = slots.into_iter().map(|(slot, _)| &self.messages[slot]);
            queue.count_users(there.map(|entry| (entry.user.as_ref(), entry.body_bytes)));
        }
        // Both may have changed: a higher MAXDEPTH is room, a new order is something to look at.
        let id = queue.id;
        mark_ready(queue, &mut self.ready);
        if queue.room() > 0 {
            mark_freed(queue, &mut self.freed);
        }
        debug_assert!(self.queues.contains_key(&id));
        Ok(())
    }

    /// Removes a queue, with `purge` together with everything on it. Whether it is open (2042) is the caller's to know.
    ///
    /// # Errors
    /// [`DefineError::Unknown`], [`DefineError::NotEmpty`], [`DefineError::Journal`].
    pub fn delete(&mut self, queue: QueueId, purge: bool) -> Result<Ticket, DefineError> {
        let found = self.queues.get(&queue).ok_or(DefineError::Unknown)?;
        if found.status.depth > 0 && !purge {
            return Err(DefineError::NotEmpty { depth: found.status.depth });
        }
        if !found.attributes.temporary {
            self.journal.admit(Record::Deleted(queue).head_bytes(), 0, 0)?;
        }
        Ok(self.delete_admitted(queue))
    }

    fn delete_admitted(&mut self, queue: QueueId) -> Ticket {
        let mut ticket = Ticket::NOW;
        if let Some(found) = self.queues.remove(&queue) {
            if !found.attributes.temporary {
                ticket = self.journal.append(&Record::Deleted(queue));
            }
            self.names.remove(&found.name);
            let slots: Vec<_> = found.lanes.iter().flat_map(|lane| lane.slots(None)).collect();
            for (slot, _) in slots {
                let entry = self.messages.remove(slot);
                self.forget(&entry);
            }
            self.index_entries -= found.index.map_or(0, |index| index.entries());
            self.indexed.retain(|known| *known != queue);
        }
        ticket
    }

    /// One unit of definitions: queues come, change and go together with the definitions of objects, or nothing
    /// happens. It is to be confirmed once synced past the ticket. No dispatcher's turn waits for its batch: a thread
    /// of the log writes it, where the log has one.
    ///
    /// # Errors
    /// See [`DefineError`]; nothing is changed.
    pub fn commit_definitions(&mut self, unit: &DefinitionUnit<'_>) -> Result<Ticket, DefineError> {
        let (mut heads, bodies) = self.objects.admit(unit.objects)?;
        heads += self.notes.admit(unit.notes, &self.limits)?;
        let mut gone = HashSet::new();
        for change in unit.queues {
            match change {
                QueueChange::Delete { name, purge } => {
                    let queue = self.names.get(*name).ok_or(DefineError::Unknown)?;
                    let found = self.queues.get(queue).ok_or(DefineError::Unknown)?;
                    if found.status.depth > 0 && !purge {
                        return Err(DefineError::NotEmpty { depth: found.status.depth });
                    }
                    heads += Record::Deleted(*queue).head_bytes();
                    gone.insert(*name);
                }
                QueueChange::Clear { name } => {
                    let queue = self.names.get(*name).ok_or(DefineError::Unknown)?;
                    let journaled = |slot: &crate::lane::Slot| self.messages[*slot].kept == Kept::Journal;
                    let removals = self.clearable(*queue)?.into_iter().filter(journaled).count();
                    heads += removals * Record::Removed(MessageId(0)).head_bytes();
                }
                QueueChange::Define { name, attributes } => {
                    check_attributes(attributes)?;
                    let there = self.names.get(*name).filter(|_| !gone.contains(name));
                    if let Some(found) = there.and_then(|queue| self.queues.get(queue)) {
                        if found.attributes.temporary != attributes.temporary {
                            return Err(DefineError::Temporary);
                        }
                        continue;
                    }
                    if name.is_empty() || name.len() > QUEUE_NAME_BYTES_MAX {
                        return Err(DefineError::Name);
                    }
                    heads += Record::Defined { queue: QueueId::new(self.number, 0), name }.head_bytes();
                }
            }
        }
        self.journal.admit(heads, bodies, unit.reserve.keep(&self.limits))?;
        // From here on nothing refuses any more.
        let mut ticket = Ticket::NOW;
        for change in unit.queues {
            match change {
                QueueChange::Delete { name, .. } => {
                    if let Some(&queue) = self.names.get(*name) {
                        ticket = ticket.max(self.delete_admitted(queue));
                    }
                }
                QueueChange::Clear { name } => {
                    // The queue may have gone in the same unit, with its messages.
                    let slots = self.names.get(*name).map(|queue| self.clearable(*queue)).transpose()?;
                    for slot in slots.into_iter().flatten() {
                        ticket = ticket.max(self.remove_admitted(slot));
                    }
                }
                QueueChange::Define { name, attributes } => match self.names.get(*name) {
                    Some(&queue) => self.alter(queue, *attributes)?,
                    None => drop(self.create_admitted(name, *attributes)),
                },
            }
        }
        for &(name, text) in unit.objects {
            ticket = ticket.max(match text {
                Some(text) => self.append_object(name, &bytes::Bytes::copy_from_slice(text)),
                None => {
                    self.objects.remove(name);
                    self.journal.append(&Record::ObjectGone { name })
                }
            });
        }
        for &(name, value) in unit.notes {
            self.notes.set(name, value);
            ticket = ticket.max(self.journal.append(&notes::record(name, value)));
        }
        self.journal.set_patient();
        Ok(ticket)
    }

    /// Writes a definition, which has been admitted, into the open batch.
    fn append_object(&mut self, name: &str, text: &bytes::Bytes) -> Ticket {
        let body_bytes = u32::try_from(text.len()).expect("OBJECT_BYTES_MAX is far below 4 GiB");
        let body_crc = crc32c::crc32c(text);
        let number = self.objects.set(name, body_bytes, body_crc, self.journal.open_at());
        let record = Record::Object { name, body_bytes, body_crc };
        let at = self.journal.append_body(&record, std::slice::from_ref(text));
        self.journal.mark(Mark { slot: 0, id: number, kind: MarkKind::Object, at })
    }

    /// How many objects are defined.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The names of all objects that are defined.
    pub fn object_names(&self) -> impl Iterator<Item = &str> {
        self.objects.names()
    }

    /// Whether an object is defined.
    #[must_use]
    pub fn has_object(&self, name: &str) -> bool {
        self.objects.contains(name)
    }

    /// Reads the definitions of all objects, in the order in which they were written. Waits for the disk; for the
    /// start, when everything is durable.
    ///
    /// # Errors
    /// The log can't be read, or a definition is not what was written: with the name of the object.
    pub fn read_objects(&mut self, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), (String, ReadError)> {
        let mut text = Vec::new();
        for (name, object) in self.objects.in_order() {
            let Some(at) = object.at.map(Position) else { continue };
            let read = self.journal.read_now(at, object.bytes as usize, &mut text).map_err(ReadError::Log);
            read.map_err(|error| (name.to_owned(), error))?;
            if crc32c::crc32c(&text) != object.crc {
                return Err((name.to_owned(), ReadError::DamagedObject { at }));
            }
            each(name, &text);
        }
        Ok(())
    }

    /// Removes every message that is not locked and not under way.
    ///
    /// # Errors
    /// [`DefineError::Unknown`]; [`DefineError::Journal`], when only a part of them is gone.
    pub fn clear(&mut self, queue: QueueId) -> Result<Ticket, DefineError> {
        let mut ticket = Ticket::NOW;
        for slot in self.clearable(queue)? {
            ticket = ticket.max(self.remove(slot)?);
        }
        Ok(ticket)
    }

    /// The messages of a queue that are not locked and not under way.
    fn clearable(&self, queue: QueueId) -> Result<Vec<crate::lane::Slot>, DefineError> {
        let found = self.queues.get(&queue).ok_or(DefineError::Unknown)?;
        let slots = found.lanes.iter().flat_map(|lane| lane.slots(None));
        let is_clearable =
            |(slot, free): &(crate::lane::Slot, bool)| *free || self.messages[*slot].state == State::Delayed;
        Ok(slots.filter(is_clearable).map(|(slot, _)| slot).collect())
    }

    /// The queue of that name.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.names.get(name).copied()
    }

    /// All queues with their names, in no order.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &str)> {
        self.queues.values().map(|queue| (queue.id, queue.name.as_str()))
    }

    /// The name of a queue.
    #[must_use]
    pub fn name(&self, queue: QueueId) -> Option<&str> {
        self.queues.get(&queue).map(|queue| queue.name.as_str())
    }

    /// The attributes of a queue.
    #[must_use]
    pub fn attributes(&self, queue: QueueId) -> Option<&QueueAttributes> {
        self.queues.get(&queue).map(|queue| &queue.attributes)
    }

    /// What went through all queues together, those that are gone included.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// A queue at a glance. Looks at the front of ten lanes.
    #[must_use]
    pub fn status(&self, queue: QueueId) -> Option<QueueStatus> {
        let queue = self.queues.get(&queue)?;
        let oldest = queue.lanes.iter().filter_map(|lane| lane.slots(None).next());
        let oldest_put_ms = oldest.map(|(slot, _)| self.messages[slot].put_at_ms).min();
        let available = queue.lanes.iter().map(crate::lane::Lane::free).sum();
        Some(QueueStatus { oldest_put_ms, available, ..queue.status })
    }

    // ---- the hot path

    /// Puts a message at the end of its priority. Non-persistent: available at once, [`Ticket::NOW`]. Persistent:
    /// available, and to be confirmed, once synced past the ticket. Costs one copy of a persistent body into the batch
    /// and its checksum; otherwise no byte of a body is touched until memory runs out, when it is written to scratch
    /// space.
    ///
    /// # Errors
    /// See [`PutError`]; the message is dropped.
    pub fn put(&mut self, queue: QueueId, message: Message) -> Result<Ticket, PutError> {
        let found = self.queues.get(&queue).ok_or_else(|| self.unknown(queue))?; // one hash of a small number
        let bytes = admit(found, &message, 0)?; // three compares
        if message.persistent && !found.attributes.temporary {
            let head = put_head_bytes(&message);
            self.journal.admit(head, bytes as usize, self.limits.reserve_bytes)?; // room in the batch and on disk
            self.insert(queue, message, bytes, true, true)
        } else {
            self.insert(queue, message, bytes, false, false)
        }
    }

    /// Messages until MAXDEPTH, those under way included; 0 while too much waits for the disk.
    /// A caller that was told too little hears from [`Store::take_freed`].
    #[must_use]
    pub fn room(&self, queue: QueueId) -> u32 {
        match self.backlog() {
            Backlog::Usual => self.depth_room(queue),
            Backlog::Much | Backlog::TooMuch => 0,
        }
    }

    /// Messages until MAXDEPTH, those under way included, whatever waits for the disk.
    #[must_use]
    pub fn depth_room(&self, queue: QueueId) -> u32 {
        self.queues.get(&queue).map_or(0, Queue::room)
    }

    /// How much waits for the disk. [`Store::take_freed`] tells when a producer that waits for that may go on.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let bytes = self.journal.backlog_bytes();
        if bytes <= self.limits.backlog_bytes_max {
            return Backlog::Usual;
        }
        self.backlogged.store(true, Ordering::Relaxed); // the store has one user at a time
        if bytes <= self.limits.backlog_bytes_max.saturating_mul(2) { Backlog::Much } else { Backlog::TooMuch }
    }

    /// Locks the next message that can be delivered: not expired, not locked, behind `after` if that is given.
    /// Amortised constant without `after`; messages that have expired are removed on the way.
    pub fn lock_next(&mut self, queue: QueueId, after: Option<Place>, now_ms: u64) -> Option<Found> {
        let mut after = after;
        loop {
            let found = self.queues.get_mut(&queue)?;
            let (lane, slot) = found.first_free(after)?;
            let entry = &mut self.messages[slot];
            if entry.expires_at_ms > now_ms {
                found.lanes[lane].lock(entry.index);
                entry.state = State::Locked;
                found.status.locked += 1;
                found.status.last_get_ms = Some(now_ms);
                return Some(entry.found());
            }
            let place = entry.place();
            if self.expire(slot).is_err() {
                // The journal takes no removal now: pass over it, it is not deliverable either way.
                after = Some(place);
            }
        }
    }

    /// Locks one message by its name, where it can be delivered; expired or not.
    pub fn lock(&mut self, id: MessageId) -> Option<Found> {
        let slot = self.messages.slot(id).filter(|&slot| self.messages[slot].state == State::Available)?;
        let entry = &mut self.messages[slot];
        let queue = self.queues.get_mut(&entry.queue())?;
        entry.state = State::Locked;
        queue.lanes[usize::from(entry.lane)].lock(entry.index);
        queue.status.locked += 1;
        Some(entry.found())
    }

    /// The name of the message that was put last.
    #[must_use]
    pub fn newest(&self) -> MessageId {
        MessageId(self.next_id.saturating_sub(1))
    }

    /// The next message that could be delivered, behind `after` if that is given, without locking it.
    #[must_use]
    pub fn browse_next(&self, queue: QueueId, after: Option<Place>, now_ms: u64) -> Option<Found> {
        let found = self.queues.get(&queue)?;
        for (lane, behind) in found.lanes_from(after) {
            let mut slots = found.lanes[lane].slots(behind).filter(|(_, free)| *free).map(|(slot, _)| slot);
            if let Some(slot) = slots.find(|&slot| self.messages[slot].expires_at_ms > now_ms) {
                return Some(self.messages[slot].found());
            }
        }
        None
    }

    /// The body of a message: shared when it is in memory, else read back and checked. What is not at hand is
    /// [`ReadError::Away`] until the log has brought it.
    ///
    /// # Errors
    /// See [`ReadError`]; the message stays as it is.
    pub fn body(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        let slot = self.messages.slot(id).ok_or(ReadError::Unknown { id })?;
        match &self.messages[slot].body {
            Some(body) => Ok(body.clone()),
            None => self.read_back(slot),
        }
    }

    /// As [`Store::body`], but waits for the log: for tools and tests that serve no one else meanwhile.
    ///
    /// # Errors
    /// See [`ReadError`]; it is not [`ReadError::Away`].
    pub fn body_now(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        let slot = self.messages.slot(id).ok_or(ReadError::Unknown { id })?;
        let entry = &self.messages[slot];
        if entry.body.is_some() || entry.kept != Kept::Journal {
            return self.body(id);
        }
        let (at, mut bytes) = (Position(entry.at), Vec::new());
        self.journal.read_now(at, entry.body_bytes as usize, &mut bytes).map_err(ReadError::Log)?;
        if crc32c::crc32c(&bytes) != entry.body_crc {
            return Err(ReadError::Damaged { id, at: Some(at) });
        }
        Ok(bytes.into())
    }

    #[cold]
    fn read_back(&mut self, slot: crate::lane::Slot) -> Result<Chunks, ReadError> {
        let entry = &self.messages[slot];
        let (id, crc, whole) = (MessageId(entry.id), entry.body_crc, entry.body_bytes as usize);
        let at = (entry.kept == Kept::Journal).then_some(Position(entry.at));
        let bytes = self.stored(slot, whole)?;
        if crc32c::crc32c(&bytes) != crc {
            self.reads.drop_there(What::Body(id.0));
            return Err(ReadError::Damaged { id, at });
        }
        let body = Chunks::from(bytes.clone());
        if let Some(asks) = self.asks.filter(|_| self.is_marked(id)) {
            let (is_locked, queue) = (self.messages[slot].state == State::Locked, self.messages[slot].queue());
            if !self.marked.contains_key(&id.0) && !asks(&body) {
                self.reads.set_plain(id.0);
            } else if is_locked && at.is_some() && !self.reads.pin(id.0, bytes, queue) {
                // It is delivered, and read once more when it is got.
                return Err(ReadError::Away { id });
            }
        }
        Ok(body)
    }

    /// The first bytes of a body that is not in memory, not checked.
    fn stored(&mut self, slot: crate::lane::Slot, bytes: usize) -> Result<bytes::Bytes, ReadError> {
        let entry = &self.messages[slot];
        let id = MessageId(entry.id);
        match entry.kept {
            Kept::Journal => {
                let wanted = wanted_of(entry, bytes);
                let is_new = !self.reads.knows(wanted.what);
                match self.reads.get(wanted, &mut self.journal).map_err(ReadError::Log)? {
                    Reading::There(bytes) => return Ok(bytes),
                    Reading::Away if is_new => self.read_ahead(slot, bytes),
                    Reading::Away => {}
                }
                Err(ReadError::Away { id })
            }
            Kept::Spill => {
                let mut read = Vec::with_capacity(bytes);
                self.spill.read(entry.at, bytes, &mut read).map_err(ReadError::Spill)?;
                Ok(read.into())
            }
            Kept::Memory => Err(ReadError::Unknown { id }),
        }
    }

    /// Asks for the messages behind one that has to be waited for, of the same lane: as much of each as of that one.
    fn read_ahead(&mut self, slot: crate::lane::Slot, bytes: usize) {
        let entry = &self.messages[slot];
        let is_whole = bytes == entry.body_bytes as usize;
        let Some(queue) = self.queues.get(&entry.queue()) else { return };
        let next = queue.lanes[usize::from(entry.lane)].slots(Some(entry.id)).take(READ_AHEAD_LOOKS_MAX);
        let next = next.filter(|(_, free)| *free).map(|(slot, _)| &self.messages[slot]);
        let next = next.filter(|entry| entry.body.is_none() && entry.kept == Kept::Journal).map(|entry| {
            let whole = entry.body_bytes as usize;
            wanted_of(entry, if is_whole { whole } else { whole.min(bytes) })
        });
        ask_for(next.take(READ_AHEAD_MAX), &mut self.reads, &mut self.journal);
    }

    /// Unlocks a message whose body is [`ReadError::Away`] at its own place. [`Store::take_ready`] names its queue when
    /// there is something to look at, and not before.
    pub fn set_aside(&mut self, id: MessageId) {
        let Some(slot) = self.locked(id) else { return };
        let entry = &mut self.messages[slot];
        entry.state = State::Available;
        if entry.expires_at_ms <= self.swept_ms {
            self.expiries.push(Reverse((entry.expires_at_ms, entry.id)));
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            queue.unlock(entry.lane, entry.index, entry.id);
            queue.status.locked -= 1;
        }
    }

    /// Says by what is told of a message that was found in the journal, once its body is read back, whether its maker
    /// wants to hear what becomes of it. Until that is known such a message counts as marked; see
    /// [`Store::is_marked`].
    pub fn tell_marks_by(&mut self, asks: fn(&Chunks) -> bool) {
        self.asks = Some(asks);
    }

    /// What is known of a message, wherever it stands.
    #[must_use]
    pub fn find(&self, id: MessageId) -> Option<(QueueId, Found)> {
        let entry = &self.messages[self.messages.slot(id)?];
        Some((entry.queue(), entry.found()))
    }

    /// When a message was put, in milliseconds since 1970, wherever it stands; `None` where it is gone. One look-up.
    #[must_use]
    pub fn put_at_ms(&self, id: MessageId) -> Option<u64> {
        Some(self.messages[self.messages.slot(id)?].put_at_ms)
    }

    /// Whether a message is locked. One look-up.
    #[must_use]
    pub fn is_locked(&self, id: MessageId) -> bool {
        self.locked(id).is_some()
    }

    /// Removes a locked message. Persistent: its removal is to be confirmed once synced past the ticket.
    ///
    /// # Errors
    /// See [`RemoveError`]; the message stays locked.
    pub fn acknowledge(&mut self, id: MessageId) -> Result<Ticket, RemoveError> {
        let slot = self.locked(id).ok_or(RemoveError::NotLocked { id })?;
        let ticket = self.remove(slot)?;
        Ok(ticket)
    }

    /// Unlocks a message at its own place. `failed` raises its delivery count, which is journaled without a ticket: a
    /// crash may forget the last of them. A message that is not locked is left alone.
    pub fn release(&mut self, id: MessageId, failed: bool) {
        self.release_failed(id, u32::from(failed));
    }

    /// As [`Store::release`], of a message whose delivery has failed that often since it was locked.
    pub fn release_failed(&mut self, id: MessageId, times: u32) {
        let Some(slot) = self.locked(id) else { return };
        let entry = &mut self.messages[slot];
        if times > 0 {
            entry.delivery_count = entry.delivery_count.saturating_add(times);
            let record = Record::Failed { id, delivery_count: entry.delivery_count };
            // Not worth an error: the count is also in memory, and a full journal must not keep a message locked.
            if entry.kept == Kept::Journal
                && self.journal.admit(record.head_bytes(), 0, self.limits.reserve_bytes).is_ok()
            {
                self.journal.append(&record);
            }
        }
        if entry.body.is_none() {
            self.reads.unpin(id.0);
        }
        entry.state = State::Available;
        // What is still to come is there already.
        if entry.expires_at_ms <= self.swept_ms {
            self.expiries.push(Reverse((entry.expires_at_ms, entry.id)));
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            queue.unlock(entry.lane, entry.index, entry.id);
            queue.status.locked -= 1;
            mark_ready(queue, &mut self.ready);
        }
    }

    /// One unit of work: takes `id`, which is locked, from its queue and puts `replacement` on `to`. What was
    /// persistent stays persistent. PUT(DISABLED) on `to` refuses it like any other put.
    ///
    /// # Errors
    /// See [`PutError`]; `id` stays locked where it is.
    pub fn transfer(&mut self, id: MessageId, to: QueueId, mut replacement: Message) -> Result<Ticket, PutError> {
        let slot = self.locked(id).ok_or_else(|| self.not_locked(id))?;
        replacement.persistent |= self.messages[slot].kept == Kept::Journal;
        self.commit(vec![(to, replacement)], &[id], &[])
    }

    /// One unit of work: all puts, all removals and all notes, or none. If anything in it is journaled, the puts become
    /// available, and the unit is to be confirmed, once synced past the ticket. Notes always are: `Some` sets one,
    /// `None` takes it away; of two of one name in a unit the later counts. A unit without puts may use the reserve.
    ///
    /// # Errors
    /// See [`PutError`]; nothing is put, every message stays locked, and the notes are as they were.
    pub fn commit(
        &mut self,
        puts: Vec<(QueueId, Message)>,
        removals: &[MessageId],
        notes: &[(&str, Option<&[u8]>)],
    ) -> Result<Ticket, PutError> {
        let mut heads = self.notes.admit(notes, &self.limits)?;
        let mut bodies = 0;
        let mut journaled = !notes.is_empty();
        let mut slots = Vec::with_capacity(removals.len());
        let mut seen = HashSet::with_capacity_and_hasher(removals.len(), IdBuildHasher::default());
        for &id in removals {
            let slot = self.locked(id).filter(|_| seen.insert(id.0)).ok_or_else(|| self.not_locked(id))?;
            slots.push(slot);
            if self.messages[slot].kept == Kept::Journal {
                heads += Record::Removed(id).head_bytes();
                journaled = true;
            }
        }
        let mut sizes = Vec::with_capacity(puts.len());
        let mut before: HashMap<QueueId, usize, IdBuildHasher> = HashMap::default();
        for (queue, message) in &puts {
            let found = self.queues.get(queue).ok_or_else(|| self.unknown(*queue))?;
            let before = before.entry(*queue).or_default();
            let bytes = admit(found, message, *before)?;
            *before += 1;
            let persistent = message.persistent && !found.attributes.temporary;
            if persistent {
                heads += put_head_bytes(message);
                bodies += padded(bytes as usize);
                journaled = true;
            }
            sizes.push((bytes, persistent));
        }
        let mut ready = Vec::with_capacity(puts.len());
        let mut refused = None;
        for ((queue, message), (bytes, persistent)) in puts.into_iter().zip(sizes) {
            match self.keep(&message.body, bytes, persistent) {
                Ok(kept) => ready.push((queue, message, bytes, kept)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if refused.is_none() && journaled {
            let keep = if ready.is_empty() { 0 } else { self.limits.reserve_bytes };
            refused = self.journal.admit(heads, bodies, keep).err().map(PutError::from);
        }
        // From here on nothing refuses any more; up to here nothing but scratch space has been changed.
        if let Some(error) = refused {
            for (_, _, bytes, kept) in ready {
                self.unkeep(&kept, bytes);
            }
            return Err(error);
        }
        let mut ticket = Ticket::NOW;
        for (queue, message, bytes, kept) in ready {
            ticket = ticket.max(self.enter(queue, message, bytes, kept, journaled));
        }
        for slot in slots {
            ticket = ticket.max(self.remove_admitted(slot));
        }
        for &(name, value) in notes {
            self.notes.set(name, value);
            ticket = ticket.max(self.journal.append(&notes::record(name, value)));
        }
        Ok(ticket)
    }

    /// Whether a queue would take a message when `before` others for it go first in the same unit of work: its
    /// attributes and its depth are looked at, the journal and scratch space are not.
    ///
    /// # Errors
    /// [`PutError::Unknown`], [`PutError::OtherStore`], [`PutError::PutInhibited`], [`PutError::TooBig`],
    /// [`PutError::QueueFull`], [`PutError::UserShare`].
    pub fn admits(&self, queue: QueueId, message: &Message, before: usize) -> Result<(), PutError> {
        let found = self.queues.get(&queue).ok_or_else(|| self.unknown(queue))?;
        admit(found, message, before).map(|_| ())
    }

    // ---- notes

    /// A note's value as the last unit of work left it, which need not be synced yet. One walk down a tree.
    #[must_use]
    pub fn note(&self, name: &str) -> Option<&[u8]> {
        self.notes.get(name)
    }

    /// The notes whose names begin with `prefix`, by name.
    pub fn notes<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.notes.from(prefix)
    }

    /// What tells this store from every other, its own replacement included; `None` before [`Store::ensure_identity`].
    #[must_use]
    pub fn identity(&self) -> Option<[u8; IDENTITY_BYTES]> {
        self.notes.get(IDENTITY_NOTE)?.try_into().ok()
    }

    /// Gives the store `fresh`, which is random, for its identity if it has none, and returns the one that it has.
    /// Waits for the disk the first time: a partner may be told of it from then on.
    ///
    /// # Errors
    /// [`JournalError`]; it has none then, or none that is durable.
    pub fn ensure_identity(
        &mut self,
        fresh: [u8; IDENTITY_BYTES],
        now: Instant,
    ) -> Result<[u8; IDENTITY_BYTES], JournalError> {
        if let Some(identity) = self.identity() {
            return Ok(identity);
        }
        let record = notes::record(IDENTITY_NOTE, Some(&fresh));
        self.journal.admit(record.head_bytes(), 0, 0)?;
        self.journal.append(&record);
        self.notes.set(IDENTITY_NOTE, Some(&fresh));
        self.sync(now)?;
        Ok(fresh)
    }

    // ---- time

    /// Makes deliverable what was put for later and removes messages that have expired, looking at `max` of each at
    /// most; lets go of indexes that are not used. Costs three compares while there is nothing to do.
    pub fn sweep(&mut self, now_ms: u64, max: usize) {
        self.release_due(now_ms, max);
        self.let_go_of_indexes(now_ms);
        self.expire_due(now_ms, max);
    }

    /// Removes messages that have expired, looking at `max` at most, and says whether it did anything. Costs two
    /// compares where there is none.
    pub fn expire_due(&mut self, now_ms: u64, max: usize) -> bool {
        self.swept_ms = self.swept_ms.max(now_ms);
        self.looked_ms = now_ms;
        let mut later = Vec::new();
        let did = self.expire_next(now_ms, max, &mut later);
        self.expiries.extend(later);
        did
    }

    /// As [`Store::expire_due`]; those whose report waits for their body are left to `later`.
    fn expire_next(&mut self, now_ms: u64, max: usize, later: &mut Vec<Reverse<(u64, u64)>>) -> bool {
        for looked in 0..max {
            match self.expiries.peek() {
                Some(&Reverse((at, id))) if at <= now_ms => {
                    self.expiries.pop();
                    let Some(slot) = self.messages.slot(MessageId(id)) else {
                        continue;
                    };
                    let state = self.messages[slot].state;
                    if !matches!(state, State::Available | State::Delayed) {
                        continue;
                    }
                    if self.is_marked(MessageId(id)) && matches!(self.body(MessageId(id)), Err(ReadError::Away { .. }))
                    {
                        later.push(Reverse((at, id)));
                        continue;
                    }
                    if self.expire(slot).is_err() {
                        self.expiries.push(Reverse((at, id)));
                        return looked > 0;
                    }
                }
                _ => return looked > 0,
            }
        }
        max > 0
    }

    // ---- the journal's turn

    /// Submits what has gathered, if the log can take it. To be called after each turn of a dispatcher's loop; costs
    /// two compares when there is nothing to do. With an inline driver everything submitted is synced on return.
    ///
    /// # Errors
    /// [`JournalError::Failed`] and [`JournalError::Deposed`]: the program stops.
    pub fn flush(&mut self, now: Instant) -> Result<(), JournalError> {
        // A log that was full is asked again by its poll, so that a put which finds space is not refused for ever.
        if self.journal.submit()? || self.journal.is_short() {
            self.collect(now)?;
        }
        Ok(())
    }

    /// Collects what the log has done: `synced` grows, messages become available; then submits what has gathered
    /// meanwhile.
    ///
    /// # Errors
    /// [`JournalError::Failed`] and [`JournalError::Deposed`]: the program stops.
    pub fn poll(&mut self, now: Instant) -> Result<(), JournalError> {
        self.collect(now)?;
        self.flush(now)
    }

    /// When everything written so far is durable.
    #[must_use]
    pub fn written(&self) -> Ticket {
        Ticket(self.journal.written())
    }

    /// Whether what a ticket stands for is durable. No ticket of another store is, but [`Ticket::NOW`].
    #[must_use]
    pub fn is_synced(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.journal.synced && (ticket.0 >= self.number.base() || ticket == Ticket::NOW)
    }

    /// Moves to `into` the queues where something became available since this was last asked, each once.
    pub fn take_ready(&mut self, into: &mut Vec<QueueId>) {
        for id in self.ready.drain(..) {
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.ready = false;
                into.push(id);
            }
        }
    }

    /// Moves to `into` the queues that got room since this was last asked: they were full, or half of what was on them
    /// is gone.
    pub fn take_freed(&mut self, into: &mut Vec<QueueId>) {
        for id in self.freed.drain(..) {
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.freed = false;
                into.push(id);
            }
        }
    }

    /// Moves to `into` what the depths of watched queues have crossed since this was last asked, in order.
    pub fn take_crossings(&mut self, into: &mut Vec<Crossing>) {
        into.append(&mut self.crossings);
    }

    /// Moves to `into` what has come to queues whose arrivals are counted since this was last asked, each queue once.
    pub fn take_arrivals(&mut self, into: &mut Vec<(QueueId, Arrivals)>) {
        for id in self.arrived.drain(..) {
            if let Some(queue) = self.queues.get_mut(&id) {
                into.push((id, queue.take_arrivals()));
            }
        }
    }

    /// Marks a message: its maker wants to hear what becomes of it. Mark and marker are not journaled; they go with the
    /// message.
    pub fn mark(&mut self, id: MessageId, marker: Option<Marker>) {
        if self.messages.slot(id).is_some() {
            self.marked.insert(id.0, marker);
        }
    }

    /// What was said when a message was marked; nothing of one that was found in the journal.
    #[must_use]
    pub fn marker(&self, id: MessageId) -> Option<Marker> {
        self.marked.get(&id.0).copied().flatten()
    }

    /// Whether a message is marked, or may be: of those found in the journal that is not known before
    /// they are read back. Two compares where nothing is.
    #[must_use]
    pub fn is_marked(&self, id: MessageId) -> bool {
        (id.0 < self.marked_below && !self.reads.is_plain(id.0))
            || (!self.marked.is_empty() && self.marked.contains_key(&id.0))
    }

    /// Moves to `into` the marked messages that have expired since this was last asked.
    pub fn take_expired(&mut self, into: &mut Vec<Expired>) {
        into.append(&mut self.expired);
    }

    /// Messages of the counted priorities that are on a queue, locked ones included; 0 where none are counted.
    #[must_use]
    pub fn counted(&self, queue: QueueId) -> u32 {
        self.queues.get(&queue).map_or(0, |queue| queue.counted)
    }

    /// What the store holds, all queues together.
    #[must_use]
    pub fn store_status(&self) -> StoreStatus {
        StoreStatus {
            messages: self.messages.len(),
            memory_bytes: self.memory_bytes,
            spilled_bytes: self.spill.bytes(),
            journal_bytes: self.journal.log_bytes(),
            journal_live_bytes: self.journal.live_bytes,
            journal_object_bytes: self.objects.journal_bytes,
            backlog_bytes: self.journal.backlog_bytes(),
            batches_synced: self.journal.synced - self.number.base(),
        }
    }

    /// Submits everything and waits until it is synced.
    ///
    /// # Errors
    /// [`JournalError::Failed`] and [`JournalError::Deposed`]; also [`JournalError::Failed`] when the log gives no
    /// answer.
    pub fn sync(&mut self, now: Instant) -> Result<(), JournalError> {
        while self.journal.backlog_bytes() > 0 {
            let before = (self.journal.synced, self.journal.in_flight());
            self.poll(now)?;
            self.journal.settle();
            self.collect(now)?;
            if before == (self.journal.synced, self.journal.in_flight()) {
                return Err(JournalError::Failed { reason: "the log gives no answer".to_owned() });
            }
        }
        Ok(())
    }

    /// Writes a checkpoint that says so and closes. What is locked will be there at the next start.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn close(mut self, now: Instant) -> Result<(), JournalError> {
        self.shut_down(now)
    }

    /// As [`Store::close`], for an owner that can't part with the store: nothing may be put afterwards.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn shut_down(&mut self, now: Instant) -> Result<(), JournalError> {
        self.sync(now)?;
        self.checkpoint(true)?;
        self.sync(now)
    }

    // ---- below the surface

    /// Why a queue is not there.
    #[cold]
    fn unknown(&self, queue: QueueId) -> PutError {
        if queue.store() == self.number { PutError::Unknown } else { PutError::OtherStore }
    }

    /// Why a message is not locked.
    #[cold]
    fn not_locked(&self, id: MessageId) -> PutError {
        if id.store() == self.number { PutError::NotLocked { id } } else { PutError::OtherStore }
    }

    fn locked(&self, id: MessageId) -> Option<crate::lane::Slot> {
        self.messages.slot(id).filter(|&slot| self.messages[slot].state == State::Locked)
    }

    fn insert(
        &mut self,
        queue: QueueId,
        message: Message,
        bytes: u32,
        persistent: bool,
        held: bool,
    ) -> Result<Ticket, PutError> {
        let kept = self.keep(&message.body, bytes, persistent)?;
        Ok(self.enter(queue, message, bytes, kept, held))
    }

    /// Decides where a body lives.
    fn keep(&mut self, body: &Chunks, bytes: u32, persistent: bool) -> Result<Placed, PutError> {
        let fits = self.fits(bytes) || (!persistent && self.make_room(bytes));
        let body_crc = if persistent || !fits { body.crc() } else { 0 };
        let mut placed = Placed { kept: Kept::Memory, at: 0, body_crc, in_memory: fits };
        if persistent {
            placed.kept = Kept::Journal;
        } else if !fits {
            placed.at = self.spill.append(body).map_err(|error| PutError::Spill { reason: error.to_string() })?;
            placed.kept = Kept::Spill;
        }
        if fits {
            self.memory_bytes += bytes as usize;
        }
        Ok(placed)
    }

    fn fits(&self, bytes: u32) -> bool {
        self.memory_bytes.saturating_add(bytes as usize) <= self.limits.memory_bytes_max
    }

    /// Takes bodies that the journal has out of memory, where that makes room for so many bytes.
    fn make_room(&mut self, bytes: u32) -> bool {
        let left_at_least = self.memory_bytes - self.evictable.bytes();
        if left_at_least.saturating_add(bytes as usize) > self.limits.memory_bytes_max {
            return false;
        }
        while !self.fits(bytes) {
            // What is delivered and marked is read once more when it is got.
            let must_stay = |entry: &Entry| entry.state == State::Locked && self.marked.contains_key(&entry.id);
            let Some(evicted) = self.evictable.evict(&mut self.messages, must_stay) else { return false };
            self.memory_bytes -= evicted;
        }
        true
    }

    fn unkeep(&mut self, placed: &Placed, bytes: u32) {
        if placed.in_memory {
            self.memory_bytes -= bytes as usize;
        }
        if placed.kept == Kept::Spill {
            self.spill.free(placed.at, bytes as usize);
        }
    }

    /// Enters a message whose admission is settled. `held`: not available before the open batch is synced.
    fn enter(&mut self, queue: QueueId, message: Message, bytes: u32, placed: Placed, held: bool) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
        let priority = message.priority.min(PRIORITY_MAX);
        let found = self.queues.get_mut(&queue).expect("the caller has just found this queue");
        let lane = found.lane_of(priority);
        let expires_at_ms = message.expires_at_ms.unwrap_or(u64::MAX);
        found.user_has(message.user.as_ref(), bytes);
        let (in_memory, elsewhere) =
            if placed.in_memory { (Some(message.body), None) } else { (None, Some(message.body)) };
        let slot = self.messages.insert(Entry {
            id,
            put_at_ms: message.put_at_ms,
            expires_at_ms,
            body: in_memory,
            at: placed.at,
            user: message.user,
            queue: queue.number(),
            index: 0,
            body_bytes: bytes,
            body_crc: placed.body_crc,
            delivery_count: 0,
            priority,
            lane,
            state: match (held, message.available_at_ms) {
                (true, _) => State::Pending,
                (false, Some(_)) => State::Delayed,
                (false, None) => State::Available,
            },
            kept: placed.kept,
        });
        let is_free = !held && message.available_at_ms.is_none();
        self.messages[slot].index = found.push(lane, id, slot, is_free);
        found.grew(bytes, message.put_at_ms);
        found.count_put(bytes, placed.kept == Kept::Journal);
        if found.status.depth >= found.told_from {
            found.rose(&mut self.crossings);
        }
        self.totals.puts += 1;
        if found.index.is_some()
            && let Some(body) = elsewhere.as_ref().or(self.messages[slot].body.as_ref())
        {
            index::add(found, &self.messages, &mut self.index_entries, id, body);
        }
        if let Some(until_ms) = message.available_at_ms {
            self.delays.add(id, until_ms);
        }
        if expires_at_ms != u64::MAX {
            self.expiring += 1;
            self.expiries.push(Reverse((expires_at_ms, id)));
        }
        if !held {
            mark_ready(found, &mut self.ready);
            if is_free && found.arrived(priority) {
                self.arrived.push(queue);
            }
            return Ticket::NOW;
        }
        found.status.unsynced += 1;
        let mut mark = Mark { slot, id, kind: MarkKind::Held, at: 0 };
        if placed.kept == Kept::Journal {
            mark.kind = MarkKind::Put;
            let entry = &self.messages[slot];
            let record = Record::Put(PutRecord {
                id: MessageId(id),
                queue,
                priority,
                body_bytes: bytes,
                body_crc: placed.body_crc,
                put_at_ms: message.put_at_ms,
                expires_at_ms: message.expires_at_ms,
                delivery_count: 0,
                user: entry.user.as_ref().map(user_in_record),
            });
            let body = elsewhere.as_ref().or(entry.body.as_ref()).map_or(&[][..], Chunks::chunks);
            mark.at = self.journal.append_body(&record, body);
            if let Some(until_ms) = message.available_at_ms {
                self.journal.append(&Record::Delayed { id: MessageId(id), until_ms });
            }
        }
        self.journal.mark(mark)
    }

    /// Removes a message and says so to the journal.
    fn remove(&mut self, slot: crate::lane::Slot) -> Result<Ticket, JournalError> {
        if self.messages[slot].kept == Kept::Journal {
            self.journal.admit(Record::Removed(MessageId(0)).head_bytes(), 0, 0)?;
        }
        Ok(self.remove_admitted(slot))
    }

    fn remove_admitted(&mut self, slot: crate::lane::Slot) -> Ticket {
        let entry = self.messages.remove(slot);
        let mut ticket = Ticket::NOW;
        if entry.kept == Kept::Journal {
            ticket = self.journal.append(&Record::Removed(MessageId(entry.id)));
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue()) {
            let lane = &mut queue.lanes[usize::from(entry.lane)];
            if lane.remove(entry.index) {
                lane.compact(|slot, index| self.messages[slot].index = index);
            }
            match entry.state {
                State::Locked => {
                    queue.status.locked -= 1;
                    queue.count_get(entry.body_bytes, entry.kept == Kept::Journal);
                    self.totals.gets += 1;
                }
                State::Pending => queue.status.unsynced -= 1,
                State::Available | State::Delayed => {}
            }
            if matches!(entry.state, State::Available | State::Locked) {
                queue.left(entry.priority);
            }
            queue.user_had(entry.user.as_ref(), entry.body_bytes);
            if queue.shrank(entry.body_bytes) {
                mark_freed(queue, &mut self.freed);
            }
            if queue.status.depth < queue.told_below {
                queue.fell(&mut self.crossings);
            }
        }
        self.forget(&entry);
        ticket
    }

    /// Gives back what a removed message used beside its queue.
    fn forget(&mut self, entry: &Entry) {
        if !self.marked.is_empty() {
            self.marked.remove(&entry.id);
        }
        if entry.body.is_some() {
            self.memory_bytes -= entry.body_bytes as usize;
        } else {
            self.reads.forget(What::Body(entry.id));
        }
        self.delays.forget(entry.id, &self.messages);
        self.evictable.forget(entry, &self.messages);
        match entry.kept {
            Kept::Spill => self.spill.free(entry.at, entry.body_bytes as usize),
            Kept::Journal => self.journal.live_bytes -= entry.journal_bytes(),
            Kept::Memory => {}
        }
        if entry.expires_at_ms != u64::MAX {
            self.expiring -= 1;
            if self.expiries.len() > 2 * self.expiring + EXPIRIES_STALE_MAX {
                let messages = &self.messages;
                self.expiries.retain(|Reverse((_, id))| messages.slot(MessageId(*id)).is_some());
            }
        }
    }

    fn expire(&mut self, slot: crate::lane::Slot) -> Result<(), JournalError> {
        let entry = &self.messages[slot];
        let (queue, found) = (entry.queue(), entry.found());
        let told = match self.is_marked(found.id) {
            true => {
                let body = match self.body(found.id) {
                    Err(error @ ReadError::Away { .. }) => {
                        return Err(JournalError::Unavailable { reason: error.to_string() });
                    }
                    body => body.ok(),
                };
                Some(Expired { queue, body, marker: self.marker(found.id), found })
            }
            false => None,
        };
        self.remove(slot)?;
        self.expired.extend(told);
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.status.expired += 1;
        }
        Ok(())
    }

    /// Takes what the log has to say, makes messages available, and writes a checkpoint when one is due.
    fn collect(&mut self, now: Instant) -> Result<(), JournalError> {
        let synced_before = self.journal.synced;
        let mut marks = self.journal.poll(now)?;
        for mark in marks.drain(..) {
            if mark.kind == MarkKind::Object {
                self.objects.placed(mark.id, mark.at);
                continue;
            }
            let Some(entry) = self.messages.get_mut(mark.slot).filter(|entry| entry.id == mark.id) else {
                continue;
            };
            if mark.kind != MarkKind::Held {
                entry.at = mark.at;
            }
            if mark.kind == MarkKind::Moved {
                continue;
            }
            let Some(queue) = self.queues.get_mut(&entry.queue()) else { continue };
            queue.status.unsynced -= 1;
            entry.state = if self.delays.holds(entry.id) { State::Delayed } else { State::Available };
            self.evictable.synced(entry);
            if entry.state == State::Delayed {
                continue;
            }
            if entry.expires_at_ms <= self.swept_ms {
                self.expiries.push(Reverse((entry.expires_at_ms, entry.id)));
            }
            queue.unlock(entry.lane, entry.index, entry.id);
            mark_ready(queue, &mut self.ready);
            if queue.arrived(entry.priority) {
                self.arrived.push(queue.id);
            }
        }
        self.journal.recycle(marks);
        self.journal.failure()?;
        if self.reads.is_waiting() {
            self.collect_reads(now)?;
        }
        if self.journal.synced > synced_before {
            if self.carrying.is_none() && self.journal.checkpoint_due(&self.limits) {
                self.checkpoint(false)?;
            }
            if self.journal.backlog_bytes() <= self.limits.backlog_bytes_max / 2
                && std::mem::take(self.backlogged.get_mut())
            {
                for queue in self.queues.values_mut() {
                    mark_freed(queue, &mut self.freed);
                }
            }
        }
        Ok(())
    }

    /// Takes what the log has read, and goes on with what waited for it.
    fn collect_reads(&mut self, now: Instant) -> Result<(), JournalError> {
        let mut ready = Vec::new();
        let any = self.reads.collect(now, &mut self.journal, &mut ready);
        for queue in ready {
            if let Some(queue) = self.queues.get_mut(&queue) {
                mark_ready(queue, &mut self.ready);
            }
        }
        if self.carrying.is_some() && (any || !self.reads.is_waiting()) { self.checkpoint(false) } else { Ok(()) }
    }

    /// Carries the oldest definitions and live messages forward and names all queues and notes again, so that the log
    /// before can be let go once this is synced. What has expired is not carried. Where something that is to be carried
    /// has to be read back first, the checkpoint goes on when that has come.
    fn checkpoint(&mut self, clean: bool) -> Result<(), JournalError> {
        if !clean && !self.carry()? {
            return Ok(());
        }
        let at = self.journal.open_at();
        for queue in self.queues.values().filter(|queue| !queue.attributes.temporary) {
            let record = Record::Defined { queue: queue.id, name: &queue.name };
            match self.journal.admit(record.head_bytes(), 0, 0) {
                Ok(()) => self.journal.append(&record),
                // What is there stays there; the next checkpoint tries again.
                Err(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        for (name, value) in self.notes.from("") {
            let record = Record::Noted { name, value };
            match self.journal.admit(record.head_bytes(), 0, 0) {
                Ok(()) => self.journal.append(&record),
                Err(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        let record =
            Record::Checkpoint { next_id: MessageId(self.next_id).number(), next_queue: self.next_queue, clean };
        match self.journal.admit(record.head_bytes(), 0, 0) {
            Ok(()) => self.journal.append(&record),
            Err(JournalError::Full | JournalError::Unavailable { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let objects_at = self.objects.oldest().map(|(_, object)| object.batch_at);
        self.journal.checkpointed(at, &self.messages, objects_at);
        Ok(())
    }

    /// Carries definitions forward that are older than every live message, where the log has become much longer than
    /// all of them. False where one has to be read back first.
    fn carry_objects(&mut self) -> Result<bool, JournalError> {
        let is_short = self.journal.is_short();
        if !self.objects.may_be_carried(self.journal.log_bytes(), is_short, &self.limits) {
            return Ok(true);
        }
        let keep = if is_short { self.limits.reserve_bytes / 2 } else { self.limits.reserve_bytes };
        let messages_at = self.journal.oldest(&self.messages).map_or(u64::MAX, |(_, at)| at);
        let begins = self.journal.open_at();
        while let Some((name, object)) = self.objects.oldest() {
            let (Some(at), true) = (object.at, object.batch_at < begins.min(messages_at)) else { break };
            let (name, bytes, crc) = (name.clone(), object.bytes as usize, object.crc);
            let what = What::Object(object.number());
            // What can't be read stays where it is, and the log behind it with it.
            let text = match self.reads.get(Wanted { what, at, bytes, queue: None }, &mut self.journal) {
                Ok(Reading::There(text)) if crc32c::crc32c(&text) == crc => text,
                Ok(Reading::Away) => {
                    let next = self.objects.in_order().skip(1).take(READ_AHEAD_MAX);
                    let wanted = next.filter_map(|(_, object)| {
                        let (what, bytes) = (What::Object(object.number()), object.bytes as usize);
                        Some(Wanted { what, at: object.at?, bytes, queue: None })
                    });
                    ask_for(wanted, &mut self.reads, &mut self.journal);
                    return Ok(false);
                }
                Ok(Reading::There(_)) | Err(_) => {
                    self.reads.forget(what);
                    break;
                }
            };
            match self.journal.admit(Record::ObjectGone { name: &name }.head_bytes(), bytes, keep) {
                Ok(()) => {}
                Err(JournalError::Full | JournalError::Unavailable { .. }) => break,
                Err(error) => return Err(error),
            }
            self.reads.forget(what);
            self.append_object(&name, &text);
        }
        Ok(true)
    }

    /// Carries the oldest forward. False where something has to be read back first.
    fn carry(&mut self) -> Result<bool, JournalError> {
        let terms = self.carrying.take();
        let (mut budget, keep) = terms.unwrap_or_else(|| self.journal.carry_terms(&self.limits));
        if !self.carry_objects()? {
            self.carrying = Some((budget, keep));
            return Ok(false);
        }
        while budget > 0 {
            let Some((slot, _)) = self.journal.oldest(&self.messages) else {
                break;
            };
            let entry = &self.messages[slot];
            if entry.expires_at_ms <= self.looked_ms && matches!(entry.state, State::Available | State::Delayed) {
                match self.expire(slot) {
                    Ok(()) => continue,
                    Err(JournalError::Full | JournalError::Unavailable { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
            let body = match &entry.body {
                Some(body) => body.chunks().to_vec(),
                None => {
                    let wanted = Wanted { queue: None, ..wanted_of(entry, entry.body_bytes as usize) };
                    match self.reads.get(wanted, &mut self.journal) {
                        Ok(Reading::There(bytes)) => vec![bytes],
                        Ok(Reading::Away) => {
                            let messages = &self.messages;
                            let next = self.journal.next_oldest(messages, READ_AHEAD_MAX);
                            let next = next.into_iter().map(|slot| &messages[slot]);
                            let next = next.filter(|entry| entry.body.is_none());
                            let next = next.map(|entry| wanted_of(entry, entry.body_bytes as usize));
                            let next = next.map(|wanted| Wanted { queue: None, ..wanted }).collect::<Vec<_>>();
                            ask_for(next.into_iter(), &mut self.reads, &mut self.journal);
                            self.carrying = Some((budget, keep));
                            return Ok(false);
                        }
                        // A body that can't be read stays where it is, and the log behind it with it.
                        Err(_) => break,
                    }
                }
            };
            let entry = &self.messages[slot];
            let record = entry.moved_record();
            let delayed =
                self.delays.until(entry.id).map(|until_ms| Record::Delayed { id: MessageId(entry.id), until_ms });
            let heads = record.head_bytes() + delayed.as_ref().map_or(0, Record::head_bytes);
            match self.journal.admit(heads, entry.body_bytes as usize, keep) {
                Ok(()) => {}
                Err(JournalError::Full | JournalError::Unavailable { .. }) => break,
                Err(error) => return Err(error),
            }
            let at = self.journal.append_body(&record, &body);
            if let Some(delayed) = &delayed {
                self.journal.append(delayed);
            }
            self.journal.mark(Mark { slot, id: entry.id, kind: MarkKind::Moved, at });
            self.journal.carried();
            budget = budget.saturating_sub(entry.journal_bytes());
        }
        Ok(true)
    }
}

/// Bytes of a message that are wanted, and where they lie.
fn wanted_of(entry: &Entry, bytes: usize) -> Wanted {
    Wanted { what: What::Body(entry.id), at: entry.at, bytes, queue: Some(entry.queue()) }
}

/// Asks for what is needed next, as far as there is room.
fn ask_for(next: impl Iterator<Item = Wanted>, reads: &mut Reads, journal: &mut Journal) {
    let mut left = READ_AHEAD_BYTES;
    for wanted in next {
        if wanted.bytes > left || !reads.has_room() {
            return;
        }
        left -= wanted.bytes;
        if !reads.knows(wanted.what) && !matches!(reads.get(wanted, journal), Ok(Reading::Away)) {
            return;
        }
    }
}

/// Messages that are asked for behind one that has to be waited for, and bytes of them.
const READ_AHEAD_MAX: usize = 32;
const READ_AHEAD_BYTES: usize = READ_BYTES_MAX / 16;
/// Messages of a lane that are looked at for them.
const READ_AHEAD_LOOKS_MAX: usize = 256;

/// Names of expired or removed messages that may stay in the expiry order on top of twice the live ones.
const EXPIRIES_STALE_MAX: usize = 1_024;

/// Where a body was placed.
#[derive(Clone, Copy, Debug)]
struct Placed {
    kept: Kept,
    at: u64,
    body_crc: u32,
    in_memory: bool,
}

fn check_attributes(attributes: &QueueAttributes) -> Result<(), DefineError> {
    if attributes.max_message_bytes > MESSAGE_BYTES_MAX {
        return Err(DefineError::MessageBytes { asked: attributes.max_message_bytes });
    }
    Ok(())
}

/// Whether a queue takes a message when `before` others of the same unit of work go first. Returns its body's bytes.
fn admit(queue: &Queue, message: &Message, before: usize) -> Result<u32, PutError> {
    let attributes = &queue.attributes;
    let bytes = message.body.len();
    if !attributes.put_enabled {
        return Err(PutError::PutInhibited);
    }
    if bytes > attributes.max_message_bytes as usize {
        return Err(PutError::TooBig { bytes, max_message_bytes: attributes.max_message_bytes });
    }
    if queue.room() as usize <= before {
        return Err(PutError::QueueFull { max_depth: attributes.max_depth });
    }
    if let Some(share) = queue.share_exceeded(message.user.as_ref(), bytes, before) {
        return Err(PutError::UserShare { share });
    }
    Ok(u32::try_from(bytes).expect("MAXMSGL is a u32"))
}

fn put_head_bytes(message: &Message) -> usize {
    let delayed = message.available_at_ms.map_or(0, |_| crate::record::DELAYED_BYTES);
    crate::record::PUT_HEADER_BYTES
        + padded(message.user.as_ref().map_or(0, |user| user_in_record(user).len()))
        + delayed
}

/// A user's name as far as a record has room for it.
fn user_in_record(user: &User) -> &str {
    let name = user.as_str();
    &name[..name.floor_char_boundary(USER_BYTES_MAX)]
}

fn mark_ready(queue: &mut Queue, ready: &mut Vec<QueueId>) {
    if !std::mem::replace(&mut queue.ready, true) {
        ready.push(queue.id);
    }
}

fn mark_freed(queue: &mut Queue, freed: &mut Vec<QueueId>) {
    if !std::mem::replace(&mut queue.freed, true) {
        freed.push(queue.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

    use super::*;
    use crate::FileSpill;
    use crate::sim::{Manner, SimDisk, SimEngine};

    #[test]
    fn a_message_that_comes_back_again_and_again_is_watched_for_its_end_once() {
        let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
        let log = SimEngine::default().log(Manner::Prompt);
        let mut store = Store::open(Box::new(log), Box::new(spill), Limits::default(), Instant::now()).unwrap();
        let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
        let message = |expires_at_ms| Message {
            priority: 4,
            persistent: false,
            expires_at_ms: Some(expires_at_ms),
            available_at_ms: None,
            put_at_ms: 0,
            user: None,
            body: vec![0; 8].into(),
        };
        store.put(queue, message(1_000)).unwrap();
        for now_ms in 0..500 {
            store.sweep(now_ms, 10);
            let id = store.lock_next(queue, None, now_ms).unwrap().id;
            store.release(id, false);
        }
        assert_eq!(store.expiries.len(), 1);
        let id = store.lock_next(queue, None, 500).unwrap().id;
        store.sweep(1_000, 10);
        assert_eq!((store.status(queue).unwrap().depth, store.expiries.len()), (1, 0), "it is locked");
        store.release(id, false);
        store.sweep(1_000, 10);
        assert_eq!((store.status(queue).unwrap().depth, store.expiries.len()), (0, 0));
    }
}
