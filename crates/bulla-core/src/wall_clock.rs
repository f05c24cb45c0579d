//! The wall clock in milliseconds since 1970, UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch; a clock before it reads as zero.
pub fn wall_ms(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The moment that many milliseconds after the epoch.
pub fn from_wall_ms(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
