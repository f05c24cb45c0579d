//! Shares of the time that devices and the processor spend on private keys: SEALTIME.

use std::time::{Duration, Instant};

/// What a message is taken for until one was done, nanoseconds.
const EXPECTED_NS: u64 = 1_000_000;
/// Of what messages take, the newest one counts as one in so many.
const NEWEST_PART: u64 = 4;
/// Nanoseconds of a millisecond, for millionths of a second a second.
const NS_PER_MS: i64 = 1_000_000;
/// The least time after which a share that is used up is looked at again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// One user's share, with a second's worth at once: what was not used longer ago is gone. A message is begun where
/// anything is saved up, for what those before it took; what it took indeed is settled when it is done.
#[derive(Clone, Debug)]
pub struct KeyTime {
    ms_a_second: u32,
    /// Nanoseconds that are saved up; below zero where messages took longer than those before them.
    level: i64,
    filled_at: Instant,
    expected_ns: u64,
    /// Nanoseconds taken since the share was set.
    taken_ns: u64,
    /// How often nothing was left after a message was begun.
    used_up: u64,
}

/// What one message takes of its user's share.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyWork {
    /// Nanoseconds that were set apart for it.
    pub reserved_ns: u64,
    /// Nanoseconds that its private-key operations have taken.
    pub taken_ns: u64,
}

impl KeyTime {
    /// A full one, of so many milliseconds a second.
    pub fn new(ms_a_second: u32, now: Instant) -> Self {
        let level = i64::from(ms_a_second) * NS_PER_MS;
        Self { ms_a_second, level, filled_at: now, expected_ns: EXPECTED_NS, taken_ns: 0, used_up: 0 }
    }

    /// From now on it is so much; what is saved up stays, as far as there is room for it.
    pub fn resize(&mut self, ms_a_second: u32, now: Instant) {
        self.fill(now);
        self.ms_a_second = ms_a_second;
        self.level = self.level.min(i64::from(ms_a_second) * NS_PER_MS);
    }

    /// What is saved up at that moment.
    fn level_at(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.filled_at).as_micros();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        // A microsecond is worth so many nanoseconds as there are milliseconds in a second's share.
        let filled = self.level.saturating_add(passed.saturating_mul(self.ms_a_second.into()));
        filled.min(i64::from(self.ms_a_second) * NS_PER_MS)
    }

    fn fill(&mut self, now: Instant) {
        self.level = self.level_at(now);
        self.filled_at = self.filled_at.max(now);
    }

    /// Whether a message may be begun.
    pub fn may_begin(&self, now: Instant) -> bool {
        self.level_at(now) > 0
    }

    /// Whether all of it is there: then nothing is lost when it is forgotten.
    pub fn is_full(&self, now: Instant) -> bool {
        self.level_at(now) >= i64::from(self.ms_a_second) * NS_PER_MS
    }

    /// In what time a message may be begun; none where it may be now.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let short = 1 - self.level_at(now);
        let us = short.max(0).unsigned_abs().div_ceil(u64::from(self.ms_a_second).max(1));
        (short > 0).then(|| Duration::from_micros(us).max(LOOK_AGAIN_AFTER))
    }

    /// A message is begun: what is set apart for it.
    pub fn begin(&mut self, now: Instant) -> KeyWork {
        self.fill(now);
        self.level = self.level.saturating_sub_unsigned(self.expected_ns);
        self.used_up += u64::from(self.level <= 0);
        KeyWork { reserved_ns: self.expected_ns, taken_ns: 0 }
    }

    /// A message is done. One that was given up before it was begun says nothing of those after it.
    pub fn end(&mut self, work: KeyWork) {
        if work == KeyWork::default() {
            return;
        }
        self.level = self.level.saturating_add_unsigned(work.reserved_ns).saturating_sub_unsigned(work.taken_ns);
        self.taken_ns = self.taken_ns.saturating_add(work.taken_ns);
        self.expected_ns -= self.expected_ns / NEWEST_PART;
        self.expected_ns = self.expected_ns.saturating_add(work.taken_ns / NEWEST_PART);
    }

    /// Time taken, nanoseconds, and how often the share was used up, since it was set.
    pub fn counts(&self) -> (u64, u64) {
        (self.taken_ns, self.used_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of `ms` each, one after the other as they may be begun, for `seconds`: how many were begun.
    fn begun(share: u32, ms: u64, seconds: u64) -> u64 {
        let from = Instant::now();
        let mut time = KeyTime::new(share, from);
        let mut count = 0;
        for at in 0..seconds * 1000 {
            let now = from + Duration::from_millis(at);
            while time.may_begin(now) {
                let work = time.begin(now);
                time.end(KeyWork { taken_ns: ms * 1_000_000, ..work });
                count += 1;
            }
        }
        count
    }

    #[test]
    fn a_share_is_a_second_of_it_at_once_and_so_much_a_second_after_that() {
        // Of 100 ms a second in ten seconds: 1.1 s, in messages of 5 ms, and the one that goes beyond.
        let count = begun(100, 5, 10);
        assert!((218..=221).contains(&count), "{count}");
    }

    #[test]
    fn one_that_takes_longer_than_the_share_is_begun_all_the_same_and_paid_back() {
        let count = begun(1, 2000, 10);
        assert_eq!(count, 1, "two seconds at a thousandth are two thousand seconds' share");
    }

    #[test]
    fn what_is_under_way_is_set_apart_and_given_back() {
        let now = Instant::now();
        let mut time = KeyTime::new(3, now);
        let works: Vec<KeyWork> = (0..3).map(|_| time.begin(now)).collect();
        assert!(!time.may_begin(now), "three of a millisecond are under way");
        assert_eq!(time.counts(), (0, 1));
        let wait = time.wait(now).unwrap();
        assert!(time.may_begin(now + wait), "{wait:?}");
        works.into_iter().for_each(|work| time.end(work));
        assert!(time.may_begin(now) && time.is_full(now), "none of them needed a private key");
        assert_eq!(time.wait(now), None);
    }

    #[test]
    fn another_share_holds_from_now_on() {
        let now = Instant::now();
        let mut time = KeyTime::new(1000, now);
        time.resize(10, now);
        assert!(time.is_full(now));
        let work = time.begin(now);
        time.end(KeyWork { taken_ns: 20_000_000, ..work });
        assert!(!time.may_begin(now + Duration::from_millis(999)));
        assert!(time.may_begin(now + Duration::from_millis(1001)));
    }
}
