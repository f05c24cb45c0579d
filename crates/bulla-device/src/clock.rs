//! How long something took, and how much of it a thread spent on a processor: clocks that are cheap to read.

use rustix::time::{ClockId, clock_gettime};
use std::mem::MaybeUninit;
use std::time::{Instant, SystemTime};

/// Nanoseconds that the calling thread has spent on a processor. A system call, some 0.2 µs.
pub fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

/// Nanoseconds that all threads of this process have spent on a processor, those that have ended included. A system
/// call.
pub(crate) fn process_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

/// What lies between two readings of the thread's clock, one right after the other: the least of a few.
pub fn thread_clock_cost_ns() -> u64 {
    let cost = || {
        let before = thread_cpu_ns();
        thread_cpu_ns().saturating_sub(before)
    };
    (0..32).map(|_| cost()).min().unwrap_or(0)
}

/// Where the processor's cycle counter stands: of use for differences alone, which a [`TickScale`] makes times of. Some
/// 10 ns.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC is an instruction of every x86-64 processor, touches no memory, and Linux lets programs use it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let now = clock_gettime(ClockId::Monotonic);
        nanoseconds(now.tv_sec, now.tv_nsec)
    }
}

/// What a tick is worth, from two readings of counter and clock: the further apart, the better.
#[derive(Debug)]
pub struct TickScale {
    began: Instant,
    began_ticks: u64,
}

impl TickScale {
    /// Begins to compare.
    pub fn begin() -> Self {
        Self { began: Instant::now(), began_ticks: ticks() }
    }

    /// Nanoseconds a tick, as it looks now.
    pub fn ns_per_tick(&self) -> f64 {
        let (elapsed, ticks) = (self.began.elapsed(), ticks().saturating_sub(self.began_ticks));
        if ticks == 0 { 1.0 } else { elapsed.as_nanos() as f64 / ticks as f64 }
    }
}

/// The processor time of one thread, for other threads to read while it lives.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The calling thread's; none where the system has no such clock.
    pub fn of_this_thread() -> Option<Self> {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the calling thread lives, and the function writes one id to where the pointer points.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        (result == 0).then_some(Self(clock))
    }

    /// Nanoseconds that the thread has spent on a processor; none once it has ended.
    pub fn ns(self) -> Option<u64> {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the function writes one time to where the pointer points; it refuses the clock of a thread that has
        // ended.
        let result = unsafe { libc::clock_gettime(self.0, time.as_mut_ptr()) };
        if result != 0 {
            return None;
        }
        // SAFETY: it was written, as the result says.
        let time = unsafe { time.assume_init() };
        Some(nanoseconds(time.tv_sec, time.tv_nsec))
    }
}

/// Milliseconds since 1970, UTC; 0 before.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn another_thread_s_clock_runs_with_its_work_and_ends_with_it() {
        let ((tell, told), (lets_go, go_on)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            let clock = ThreadClock::of_this_thread().unwrap();
            let before = thread_cpu_ns();
            while thread_cpu_ns() < before + 5_000_000 {
                std::hint::spin_loop();
            }
            tell.send((clock, before, thread_cpu_ns())).unwrap();
            go_on.recv().unwrap();
        });
        let (clock, before, after) = told.recv().unwrap();
        let seen = clock.ns().unwrap();
        assert!(seen >= after && after >= before + 5_000_000, "{before} {after} {seen}");
        lets_go.send(()).unwrap();
        thread.join().unwrap();
        // The system may know a thread's clock for a moment after it was joined.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while clock.ns().is_some() {
            assert!(std::time::Instant::now() < until, "the clock of a thread that has ended");
            std::thread::yield_now();
        }
    }

    #[test]
    fn ticks_are_times_by_their_scale() {
        let scale = TickScale::begin();
        let (clock, begun) = (Instant::now(), ticks());
        while clock.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (ticked, elapsed) = (ticks() - begun, clock.elapsed());
        let ns = ticked as f64 * scale.ns_per_tick();
        // One preemption between the two readings is as long as it likes; that the unit is right shows all the same.
        assert!(ns > 0.5 * elapsed.as_nanos() as f64 && ns < 1e3 * elapsed.as_nanos() as f64, "{ns} {elapsed:?}");
    }
}
