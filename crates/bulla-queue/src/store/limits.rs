//! What a store may use.

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
    /// Bytes of batches waiting for the disk beyond which [`Store::room`](super::Store::room) is 0.
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
