//! Exit codes of the program: each kind of failure has its own.

/// Something failed that has no code of its own.
pub const EXIT_FAILED: u8 = 1;

/// The command line is wrong.
pub const EXIT_USAGE: u8 = 2;

/// No message is there (2033).
pub const EXIT_EMPTY: u8 = 3;

/// The queue manager refused; its reason is in the message.
pub const EXIT_REFUSED: u8 = 4;

/// The queue manager did not start.
pub const EXIT_START: u8 = 5;

/// The queue manager could not be reached.
pub const EXIT_UNREACHABLE: u8 = 6;

/// Stored data is damaged.
pub const EXIT_DAMAGED: u8 = 7;

/// A measurement was carried out, and a goal that was stated was not held.
pub const EXIT_MISSED: u8 = 8;

/// `bulla doctor` found nothing broken, and something that should be seen to; `bulla report algorithms --due` found
/// something that is due.
pub const EXIT_WARNED: u8 = 9;

/// The queue manager stopped: the journal failed, and nothing more could be promised.
pub const EXIT_JOURNAL: i32 = 74;

/// The queue manager stopped: a thread died, or the system has no randomness.
pub const EXIT_INTERNAL: i32 = 70;
