//! Why the store refuses.

use std::fmt;

use super::objects::{OBJECTS_BYTES_MAX, OBJECTS_MAX};
use crate::log::{LogError, Position};
use crate::message::MessageId;
use crate::queue::{MESSAGE_BYTES_MAX, UserShare};
use crate::record::{OBJECT_BYTES_MAX, OBJECT_NAME_BYTES_MAX, QUEUE_NAME_BYTES_MAX};
use crate::spill::SpillError;

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
    /// The log's turn: the body is being read back. [`Store::take_ready`](super::Store::take_ready) names the message's
    /// queue once it is there.
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
