//! What was counted, as it stood minute for minute of the last day.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

/// How far apart what is kept is.
pub const HISTORY_INTERVAL: Duration = Duration::from_secs(60);
/// How much is kept: a day. A minute in which nothing was done keeps nothing.
pub const HISTORY_SNAPSHOTS_MAX: usize = 1440;

/// Snapshots of the past.
#[derive(Debug)]
pub struct History<T> {
    kept: VecDeque<(SystemTime, T)>,
    looked: Option<SystemTime>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), looked: None }
    }
}

impl<T> History<T> {
    /// The last one before that time.
    pub fn at(&self, at: SystemTime) -> Option<&(SystemTime, T)> {
        self.until(at).next_back()
    }

    /// All of them before that time, oldest first.
    pub fn until(&self, at: SystemTime) -> impl DoubleEndedIterator<Item = &(SystemTime, T)> {
        self.kept.iter().filter(move |(taken, _)| *taken <= at)
    }

    /// The last one.
    pub fn latest(&self) -> Option<&(SystemTime, T)> {
        self.kept.back()
    }

    /// When the oldest was taken.
    pub fn oldest(&self) -> Option<SystemTime> {
        self.kept.front().map(|(taken, _)| *taken)
    }

    /// Whether it is time for another one. A clock that was set back makes it so.
    pub fn is_due(&self, now: SystemTime) -> bool {
        self.looked
            .is_none_or(|looked| now.duration_since(looked).is_ok_and(|age| age >= HISTORY_INTERVAL) || now < looked)
    }

    /// Keeps a snapshot, unless it says what the last one did.
    pub fn keep(&mut self, now: SystemTime, snapshot: T, says_the_same: impl FnOnce(&T, &T) -> bool) {
        self.looked = Some(now);
        if self.kept.back().is_some_and(|(_, last)| says_the_same(last, &snapshot)) {
            return;
        }
        if self.kept.len() >= HISTORY_SNAPSHOTS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((now, snapshot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_without_news_keeps_nothing_and_the_oldest_goes_after_a_day() {
        let mut history = History::default();
        let minute = |minute: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minute);
        assert!(history.is_due(minute(0)) && history.oldest().is_none());
        let same = |old: &u64, new: &u64| old == new;
        history.keep(minute(1), 7, same);
        assert!(!history.is_due(minute(1) + Duration::from_secs(59)) && history.is_due(minute(2)));
        assert!(history.is_due(minute(0)), "the clock was set back");
        history.keep(minute(2), 7, same);
        assert!(!history.is_due(minute(2)), "it was looked at");
        history.keep(minute(3), 8, same);
        assert_eq!(history.at(minute(2)), Some(&(minute(1), 7)));
        assert_eq!((history.at(minute(0)), history.latest()), (None, Some(&(minute(3), 8))));
        for number in 0..HISTORY_SNAPSHOTS_MAX as u64 {
            history.keep(minute(4 + number), 100 + number, same);
        }
        assert_eq!(history.oldest(), Some(minute(4)));
        assert_eq!(history.until(minute(6)).map(|(_, kept)| *kept).collect::<Vec<_>>(), [100, 101, 102]);
    }
}
