//! The clocks as an argument: the system's, or a simulation's.

use std::time::{Duration, Instant, SystemTime};
#[cfg(any(test, feature = "simulation"))]
use std::{
    sync::OnceLock,
    sync::atomic::{AtomicU64, Ordering},
    time::UNIX_EPOCH,
};

/// What the time is. The system's clock takes no room and no more than the system's own calls.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    /// Nanoseconds since the simulation began.
    #[cfg(any(test, feature = "simulation"))]
    Simulated(std::sync::Arc<AtomicU64>),
}

/// When a simulation begins, by its wall clock: 2030-01-01.
#[cfg(any(test, feature = "simulation"))]
const SIMULATION_BEGINS: Duration = Duration::from_secs(1_893_456_000);

impl Clock {
    /// A clock that stands until it is moved. Clones are the same clock.
    #[cfg(any(test, feature = "simulation"))]
    pub fn simulated() -> Self {
        Self(Source::Simulated(std::sync::Arc::default()))
    }

    /// Now, to measure by.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::now(),
            #[cfg(any(test, feature = "simulation"))]
            Source::Simulated(ns) => {
                // Only differences count: all simulations of a process begin at one moment.
                static BEGAN: OnceLock<Instant> = OnceLock::new();
                *BEGAN.get_or_init(Instant::now) + Duration::from_nanos(ns.load(Ordering::Relaxed))
            }
        }
    }

    /// Now, as people tell the time.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Source::System => SystemTime::now(),
            #[cfg(any(test, feature = "simulation"))]
            Source::Simulated(ns) => UNIX_EPOCH + SIMULATION_BEGINS + Duration::from_nanos(ns.load(Ordering::Relaxed)),
        }
    }

    /// How long ago that was.
    pub fn since(&self, then: Instant) -> Duration {
        self.now().saturating_duration_since(then)
    }

    /// Moves a simulated clock.
    #[cfg(any(test, feature = "simulation"))]
    pub fn advance(&self, by: Duration) {
        let Source::Simulated(ns) = &self.0 else { panic!("only a simulated clock is moved") };
        ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
