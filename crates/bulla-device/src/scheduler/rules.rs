//! The rules of the scheduler, as arithmetic on what is known of the devices: which device a job gets, and which jobs
//! go into one call. A planner that predicts what the scheduler does goes by the same ones.

/// What handing a job to another thread and back costs, nanoseconds.
pub const HANDOVER_NS: u64 = 15_000;
/// A measured call counts for this part of the estimate.
const ESTIMATE_PARTS: u64 = 8;
/// For how many of its own calls the oldest job lets others pass that fill the lanes.
const PATIENCE_CALLS: u64 = 2;

/// The estimate of a call after one more was measured, nanoseconds both.
#[must_use]
pub fn estimate_ns(before: u64, measured: u64) -> u64 {
    before.saturating_mul(ESTIMATE_PARTS - 1).saturating_add(measured) / ESTIMATE_PARTS
}

/// A device at work, as a job sees it.
#[derive(Clone, Copy, Debug)]
pub struct AtWork {
    /// Engines that work.
    pub engines: usize,
    /// Jobs of one shape that go into one call.
    pub lanes: usize,
    /// Engines that compute just now.
    pub running: usize,
    /// What is left of their calls, added up, nanoseconds.
    pub left_ns: u64,
}

impl AtWork {
    /// In how many nanoseconds one more job would be done: the calls in service, the calls that the waiting jobs make,
    /// and its own, which is one of these where lanes are free. `waiting` gives for each shape how many jobs wait, this
    /// one included, and what a call takes. `own_ns` is what a call of this job takes.
    #[must_use]
    pub fn finish_ns(&self, waiting: impl IntoIterator<Item = (usize, u64)>, own_ns: u64) -> u64 {
        let calls = |(jobs, call_ns): (usize, u64)| call_ns.saturating_mul(jobs.div_ceil(self.lanes.max(1)) as u64);
        let line_ns = waiting.into_iter().map(calls).fold(0, u64::saturating_add);
        if self.running < self.engines && line_ns <= own_ns {
            // An idle engine takes it at once.
            return own_ns;
        }
        own_ns.max(self.left_ns.saturating_add(line_ns) / self.engines.max(1) as u64)
    }

    /// How long one more job keeps the whole device busy, its lanes and engines full, nanoseconds.
    #[must_use]
    pub fn share_ns(&self, call_ns: u64) -> u64 {
        call_ns / (self.engines.max(1) * self.lanes.max(1)) as u64
    }
}

/// A device that could take a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// Its place among the devices.
    pub place: usize,
    /// It has failed with the job before, which is better than no device at all.
    pub has_failed: bool,
    /// When the job would be done, as [`AtWork::finish_ns`] has it; [`soonest`] adds the rest of the way.
    pub finish_ns: u64,
    /// As [`AtWork::share_ns`] has it.
    pub share_ns: u64,
    /// A job can wait in its own line; else it waits in the backlog.
    pub has_room: bool,
}

/// The device that would be done soonest, handing over included, with `backlog` jobs that come first where a line is
/// full.
#[must_use]
pub fn soonest(candidates: impl IntoIterator<Item = Candidate>, backlog: usize) -> Option<Candidate> {
    let with_the_way = |candidate: Candidate| {
        let ahead = if candidate.has_room { 0 } else { backlog as u64 };
        let way_ns = candidate.share_ns.saturating_mul(ahead).saturating_add(HANDOVER_NS);
        Candidate { finish_ns: candidate.finish_ns.saturating_add(way_ns), ..candidate }
    };
    let order = |candidate: &Candidate| (candidate.has_failed, candidate.finish_ns, candidate.place);
    candidates.into_iter().map(with_the_way).min_by_key(order)
}

/// Whether the thread that has the job computes it itself, which would take `inline_ns`, load of the cores included.
#[must_use]
pub fn is_for_the_caller(inline_ns: u64, best: Option<&Candidate>) -> bool {
    best.is_none_or(|best| best.has_failed || inline_ns <= best.finish_ns)
}

/// The shape of the next call: one that fills the lanes, if there is one and the oldest job has not waited for too
/// long, else the oldest job's. `waiting` gives the shapes of the waiting jobs, oldest first. The oldest has waited for
/// `waited_ns`, and `call_ns` says what a call of a shape takes.
pub fn next_shape<S: Copy + PartialEq>(
    waiting: impl Iterator<Item = S> + Clone,
    lanes: usize,
    waited_ns: u64,
    call_ns: impl FnOnce(S) -> u64,
) -> Option<S> {
    let oldest = waiting.clone().next()?;
    let fills = |shape: S| waiting.clone().filter(|other| *other == shape).take(lanes).count() == lanes;
    if lanes <= 1 || fills(oldest) || waited_ns >= call_ns(oldest).saturating_mul(PATIENCE_CALLS) {
        return Some(oldest);
    }
    Some(waiting.clone().find(|shape| fills(*shape)).unwrap_or(oldest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: AtWork = AtWork { engines: 2, lanes: 8, running: 0, left_ns: 0 };

    fn candidate(place: usize, finish_ns: u64) -> Candidate {
        Candidate { place, has_failed: false, finish_ns, share_ns: 10, has_room: true }
    }

    #[test]
    fn an_idle_engine_takes_a_job_at_once_and_a_busy_one_when_it_is_done() {
        assert_eq!(IDLE.finish_ns([(1, 500)], 500), 500);
        let busy = AtWork { running: 2, left_ns: 1_000, ..IDLE };
        assert_eq!(busy.finish_ns([(1, 500)], 500), 750);
        // Nine jobs of eight lanes are two calls, and another shape is one of its own.
        assert_eq!(busy.finish_ns([(9, 500), (1, 2_000)], 500), (1_000 + 2 * 500 + 2_000) / 2);
        assert_eq!(IDLE.share_ns(1_600), 100);
        assert_eq!(busy.finish_ns([(usize::MAX, u64::MAX)], 500), u64::MAX / 2);
    }

    #[test]
    fn the_soonest_device_is_taken_and_one_that_has_failed_only_for_want_of_others() {
        assert_eq!(soonest([], 0), None);
        let both = [candidate(0, 500), candidate(1, 400)];
        assert_eq!(soonest(both, 7).map(|best| (best.place, best.finish_ns)), Some((1, 400 + HANDOVER_NS)));
        let full = [candidate(0, 500), Candidate { has_room: false, ..candidate(1, 400) }];
        assert_eq!(soonest(full, 11).map(|best| best.place), Some(0), "eleven others come first");
        assert_eq!(soonest(full, 9).map(|best| best.place), Some(1));
        let failed = [candidate(0, 500), Candidate { has_failed: true, ..candidate(1, 1) }];
        assert_eq!(soonest(failed, 0).map(|best| best.place), Some(0));
        assert!(is_for_the_caller(u64::MAX, None));
        assert!(is_for_the_caller(500, Some(&candidate(0, 500))) && !is_for_the_caller(501, Some(&candidate(0, 500))));
        assert!(is_for_the_caller(501, Some(&Candidate { has_failed: true, ..candidate(0, 500) })));
    }

    #[test]
    fn a_shape_that_fills_the_lanes_goes_first_for_a_while() {
        let mixed = || [b'a'].into_iter().chain([b'b'; 4]).chain([b'a']);
        let next = |lanes, waited_ns| next_shape(mixed(), lanes, waited_ns, |_| 100);
        assert_eq!(next(4, 199), Some(b'b'));
        assert_eq!(next(4, 200), Some(b'a'), "it has waited for two calls");
        assert_eq!((next(5, 0), next(2, 0), next(1, 0)), (Some(b'a'), Some(b'a'), Some(b'a')));
        assert_eq!(next_shape([].into_iter(), 4, 0, |_: u8| 100), None);
    }

    #[test]
    fn an_estimate_follows_a_change_slowly() {
        assert_eq!(estimate_ns(800, 1_600), 900);
        assert!(estimate_ns(u64::MAX, u64::MAX) > 0);
    }
}
