//! Local queues and the journal under them: messages, locks, units of work, recovery. No sockets, no frames, no clock.
//!
//! [`Store`] is what a queue manager holds; a [`Standby`] follows another owner's log and takes over. Under both lies a
//! [`Log`]: [`FileLog`] keeps one in segment files over a [`Storage`], and the tests keep one over a simulated disk
//! that loses, tears and fails ([`sim`]).
//!
//! ```
//! use std::time::Instant;
//! use bulla_queue::{Driver, FileLog, FileLogOptions, FileSpill, Keys, Limits, Message, QueueAttributes, Store,
//! Ticket}; use bulla_queue::sim::SimDisk;
//!
//! let options = FileLogOptions { segment_bytes: 1 << 20, driver: Driver::Inline, ..FileLogOptions::default() };
//! let log = FileLog::open(SimDisk::default(), options)?;
//! let spill = FileSpill::open(SimDisk::default(), 1 << 20)?;
//! let mut store = Store::open(Box::new(log), Box::new(spill), Limits::default(), Instant::now())?;
//!
//! let orders = store.define("ORDERS", QueueAttributes::default())?;
//! let order = Message {
//!     priority: 4, persistent: true, expires_at_ms: None, available_at_ms: None, put_at_ms: 0, user: None,
//!     keys: Keys::None, body: vec![1, 2, 3].into(),
//! };
//! let ticket = store.put(orders, order)?;
//! store.flush(Instant::now())?; // once a turn of the caller's loop
//! assert!(store.is_synced(ticket)); // now it may be confirmed
//!
//! let found = store.lock_next(orders, None, 0).expect("one was put");
//! assert_eq!(store.body(found.id)?, vec![1, 2, 3].into());
//! let ticket = store.acknowledge(found.id)?;
//! store.flush(Instant::now())?;
//! assert!(store.is_synced(ticket));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod file_log;
mod lane;
pub mod log;
mod message;
mod queue;
pub mod record;
pub mod sim;
mod spill;
mod storage;
mod store;

pub use check::{CheckReport, DAMAGES_REPORTED_MAX, Damage, check, check_storage};
pub use file_log::{
    ADAPTIVE_BYTES_DEFAULT, Around, Driver, FIRST_SEGMENT_BYTES_DEFAULT, FORMAT_VERSION, FileLog, FileLogOptions,
    INLINE_WITHIN, JOURNAL_THREAD, SEGMENT_BYTES_DEFAULT, SEGMENT_HEADER_BYTES, SegmentHeader,
};
pub use log::Log;
pub use message::{
    Chunks, Found, KeyNames, Keys, Message, MessageId, PRIORITY_DEFAULT, PRIORITY_MAX, Place, QueueId, STORES_MAX,
    StoreNumber, Ticket, User,
};
pub use queue::{
    Arrivals, Crossing, CrossingKind, DEPTH_DEFAULT, DEPTH_MAX, DeliverySequence, DepthWatch, Full,
    MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, QueueAttributes, QueueStatus, UserShare,
};
pub use record::{
    KEY_NAMES_BYTES_MAX, NOTE_NAME_BYTES_MAX, NOTE_VALUE_BYTES_MAX, OBJECT_BYTES_MAX, OBJECT_NAME_BYTES_MAX,
    QUEUE_NAME_BYTES_MAX, USER_BYTES_MAX,
};
pub use spill::{FileSpill, SPILL_BYTES_MAX_DEFAULT, SPILL_FILE_BYTES, Spill, SpillError};
pub use storage::{DirStorage, Storage, StorageFile};
pub use store::{
    BACKLOG_BYTES_MAX_DEFAULT, BATCH_BYTES_MAX_DEFAULT, Backlog, CHECKPOINT_BYTES_DEFAULT, Cursor, DefineError,
    DefinitionUnit, Expired, IDENTITY_BYTES, INDEX_ENTRIES_MAX, JournalError, KEY_SETS_BYTES_MAX, KeyUse, KeysOf,
    LOG_BYTES_MIN_DEFAULT, Limits, LogStatus, Look, Looked, MEMORY_BYTES_MAX_DEFAULT, Marker, NOTES_MAX,
    OBJECTS_BYTES_MAX, OBJECTS_MAX, OpenError, PutError, QUEUE_KEY_SETS_BYTES_MAX, QUEUE_KEY_SETS_MAX, QueueChange,
    RESERVE_BYTES_DEFAULT, ReadError, RemoveError, Replaced, Reserve, ScratchTotals, Seen, Standby, Store, StoreStatus,
    Totals,
};
