//! The seam between queues and what keeps them: one writer with an epoch, batches, submit and poll.
//!
//! The embedded journal ([`FileLog`](crate::FileLog)) is its first implementation. Every queue rule stands above
//! this trait and is written once. The trait is called once a batch; the path of a single message never crosses it.

use std::fmt;
use std::io;
use std::time::Instant;

/// A place in a log: bytes since the log began. The store assigns it, so it means the same in every engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Counts the owners a log has had. Grows by one at each claim, is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

/// Whole records, encoded and checksummed, that become durable together or not at all.
///
/// A unit of work never straddles two batches, so no engine needs to know what a unit of work is. Headers and bodies
/// are apart, so that a start reads the headers and skips the bodies.
#[derive(Debug, Default)]
pub struct Batch {
    /// Where it begins; the next one begins [`Batch::bytes`] further on.
    pub at: u64,
    /// [`BATCH_HEADER_BYTES`](crate::record::BATCH_HEADER_BYTES) for the engine's own use, then the record headers.
    pub head: Vec<u8>,
    /// The bodies, in the order of the headers, each padded to eight bytes.
    pub body: Vec<u8>,
    /// It holds definitions. Those who wait for them wait elsewhere: an engine with a thread of its own for writing
    /// does not write this batch on the caller's.
    pub patient: bool,
}

impl Batch {
    /// Bytes of log that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.head.len() as u64).saturating_add(self.body.len() as u64)
    }

    /// Where the next batch begins.
    #[must_use]
    pub fn end(&self) -> Position {
        Position(self.at.saturating_add(self.bytes()))
    }
}

/// A batch found at replay: its record headers, and where its bodies lie.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// Where the batch begins.
    pub at: Position,
    /// The record headers, without the engine's part.
    pub head: &'a [u8],
    /// Where the bodies begin.
    pub bodies_at: Position,
    /// How many bytes of bodies there are, padding included.
    pub bodies_bytes: u64,
}

/// A part of the log that is wanted back: the body of a message that has left memory, or the front of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Read {
    /// The asker's number for it, which the answer has.
    pub number: u64,
    /// Where it begins.
    pub at: Position,
    /// How long it is.
    pub bytes: usize,
}

/// The answer to a [`Read`] that was not answered at once.
#[derive(Debug)]
pub struct ReadDone {
    /// The number of the [`Read`].
    pub number: u64,
    /// What lies there.
    pub bytes: Result<Vec<u8>, LogError>,
}

/// What became of batches, in the order of their submission.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Everything below this position survives what the engine promises to survive: tickets up to here may be answered.
    Synced(Position),
    /// Another owner has the log now. Batches submitted but not `Synced` may or may not be in it;
    /// none will enter it later. Answer nothing more; drop the in-memory state.
    Deposed {
        /// The epoch of the new owner.
        by: Epoch,
    },
}

/// Why a log refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// The caller's turn: as many batches are under way as the engine takes. Wait for `Synced`, then offer it again.
    Busy,
    /// The operator's turn, or time's: there is no space for more. Removing messages makes some.
    Full,
    /// The caller's turn: that part of the log has been let go. Begin with the oldest.
    Released {
        /// What was asked for.
        from: Position,
    },
    /// The operator's turn: owned elsewhere by an owner that still answers.
    Owned {
        /// The owner's epoch, where the engine can tell.
        epoch: Option<Epoch>,
    },
    /// The engine's turn: no quorum, no disk, no connection. Nothing is known to be lost; the same batch may be offered
    /// again.
    Unavailable(io::Error),
    /// The operator's turn: a write or sync failed, and what it was to keep may be lost. Nothing more is accepted.
    Failed {
        /// What failed, in words.
        reason: String,
    },
    /// The operator's turn: acknowledged bytes are damaged or missing. Nothing more is accepted.
    Damaged {
        /// Where in the log.
        at: Position,
        /// What is wrong there, in words.
        reason: String,
    },
    /// The operator's turn: written by a newer program. Start that one.
    Newer {
        /// The version that was found.
        version: u16,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Busy => write!(f, "the log takes no further batch until one is synced"),
            LogError::Full => write!(f, "no space left for the journal"),
            LogError::Released { from } => write!(f, "the journal before position {from} has been let go"),
            LogError::Owned { epoch: Some(epoch) } => {
                write!(f, "the journal is in use by owner {}", epoch.0)
            }
            LogError::Owned { epoch: None } => {
                write!(f, "the journal is in use by another process")
            }
            LogError::Unavailable(error) => write!(f, "the journal is not available: {error}"),
            LogError::Failed { reason } => write!(f, "the journal failed: {reason}"),
            LogError::Damaged { at, reason } => {
                write!(f, "the journal is damaged at position {at}: {reason}")
            }
            LogError::Newer { version } => {
                write!(f, "the journal has format version {version}, newer than this program's")
            }
        }
    }
}

impl std::error::Error for LogError {}

/// How to become the owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Claim {
    /// Leaves a log alone whose owner still answers.
    IfFree,
    /// The owner of that epoch has said in the log that it is gone, and is not asked. A later one is.
    After(Epoch),
    /// The operator's word, or a monitor's that heard nothing for too long. A file log can't be forced: its lock
    /// vanishes with its owner.
    Force,
}

/// What a crash must not take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Survives {
    /// The end of this process.
    Process,
    /// A power cut of this machine.
    Power,
    /// A power cut of any minority of the machines.
    MinorityPower,
    /// Not known.
    Unknown,
}

/// What an engine can take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogLimits {
    /// Batches that may be under way at once.
    pub batches_in_flight_max: usize,
    /// Bytes of a batch above which [`Log::reserve`] must be asked for each one by itself.
    pub batch_bytes_max: u64,
    /// What `Synced` promises.
    pub survives: Survives,
}

/// An ordered, durable log of batches with one writer at a time.
///
/// Nothing here waits for a disk or a network except `claim`, `replay` and `read_now`, which are for a start, and
/// `settle`, which is for an end; time is an argument.
pub trait Log: Send {
    /// Becomes the writer: returns the new epoch and the end of the log. From its return on every earlier writer is
    /// refused, however late its writes arrive.
    fn claim(&mut self, now: Instant, how: Claim) -> Result<(Epoch, Position), LogError>;

    /// Where the oldest batch that is kept begins.
    fn start(&self) -> Position;

    /// Hands `each` every whole batch from `from` on, where a batch begins, in order, and returns where it stopped;
    /// `None` is the oldest. After a claim it reaches the end, and a torn last batch is cut. Without one it follows
    /// another owner: it stops where that one has come to, and is called again. `Released`: what lies at `from` is
    /// there no more, or is something else than was handed on before; all of it is to be read again.
    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError>;

    /// Starts writing a batch at the end of the log and returns at once, except where the engine's own policy says that
    /// to write is quicker than to hand over. `Busy` and `Unavailable` give the batch back. The engine retries it under
    /// the same identity until it knows: no second copy, no gap.
    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)>;

    /// Collects what happened, and the emptied buffers for reuse. Never blocks.
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError>;

    /// Waits until everything submitted is synced or has failed. `poll` tells which.
    fn settle(&mut self);

    /// Begins to read and returns at once: with the bytes, where the engine has them at hand, else with `None`, and
    /// [`Log::poll_reads`] brings the answer. `Busy`: as many reads are under way as the engine takes.
    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError>;

    /// Collects the answers to reads, in any order. Never blocks.
    fn poll_reads(&mut self, now: Instant, done: &mut Vec<ReadDone>);

    /// Reads `bytes` bytes at `at` into `into` and waits for them: for a start, when no one is served yet.
    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError>;

    /// Nothing below `before` is needed any more: live records have been carried forward.
    fn release(&mut self, before: Position) -> Result<(), LogError>;

    /// Bytes that batches not yet submitted may take without asking for more.
    fn space(&self) -> u64;

    /// Makes room for a batch of `batch_bytes` on top of [`Log::space`], or says `Full`; no data is written for that.
    /// One above [`LogLimits::batch_bytes_max`] has its room kept until it comes, and afterwards at least `besides`
    /// bytes of space are left.
    fn reserve(&mut self, batch_bytes: u64, besides: u64) -> Result<(), LogError>;

    /// Batches that may be under way at once, the largest in bytes, and what `Synced` survives.
    fn limits(&self) -> LogLimits;

    /// Who claimed last, and as which owner, as far as was read; `None` where that is not known.
    fn owner(&self) -> Option<(String, Epoch)> {
        None
    }

    /// Whether no other owner can have claimed by now, nor the former one still send: only then may others be sent what
    /// is in the log. Writing needs no such question, because what a deposed owner submits is refused. Always so where
    /// the log can't be taken from its owner, as the lock of a file can't.
    fn is_surely_owned(&self) -> bool {
        true
    }
}
