//! The calling thread's processor time.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds that the calling thread has spent on a processor. A system call, some 0.2 µs.
pub(crate) fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
