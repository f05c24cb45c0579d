//! How queues and policies stood, minute for minute of the last day: what DISPLAY QSTATUS and POLSTATUS show with AT,
//! and `bulla report queues|policies` with `--from`. It is in memory alone.
//!
//! A thousand queues, each copied every minute, would be half a gigabyte a day. So a minute keeps the rows that changed
//! in it, and where there are too many of them the oldest minutes go before their day is over.

use crate::catalog::status::{PolicyStatus, QueueStatus};
use crate::wall_clock::wall_ms;
use bulla_device::HISTORY_SNAPSHOTS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

/// Rows that are kept of queues, and as many of policies, all minutes together: a day of 45 queues that are busy in
/// every minute of it, or an hour of a thousand. Of queues 23 MB, of policies 19 MB, or 50 where each has failures.
pub const ROWS_MAX: usize = 65_536;

/// Of queues and policies.
#[derive(Default)]
pub struct TrafficHistory {
    /// Of queues.
    pub queues: Minutes<QueueStatus>,
    /// Of policies.
    pub policies: Minutes<PolicyStatus>,
}

/// What can be kept.
pub trait Kept: Clone {
    /// Whether nothing has happened until `later`, another copy of the same.
    fn is_still(&self, later: &Self) -> bool;

    /// The same as it is at that time, milliseconds since 1970, when nothing has happened in between.
    fn at(self, taken_ms: u64) -> Self;
}

impl Kept for QueueStatus {
    fn is_still(&self, later: &Self) -> bool {
        let (taken_ms, oldest_seconds) = (self.taken_ms, self.oldest_seconds);
        // Time goes by at a queue where a message lies.
        *self == QueueStatus { taken_ms, oldest_seconds, ..later.clone() }
    }

    fn at(self, taken_ms: u64) -> Self {
        let waited = taken_ms.saturating_sub(self.taken_ms) / 1000;
        QueueStatus { taken_ms, oldest_seconds: self.oldest_seconds.map(|age| age + waited), ..self }
    }
}

impl Kept for PolicyStatus {
    fn is_still(&self, later: &Self) -> bool {
        self.meters == later.meters
    }

    fn at(self, taken_ms: u64) -> Self {
        PolicyStatus { taken_ms, ..self }
    }
}

/// The rows of one kind.
pub struct Minutes<T> {
    /// How it stood before the oldest minute that is kept, as far as that minute does not say it.
    before: BTreeMap<Arc<str>, Arc<T>>,
    /// When each minute was looked at, and what had changed.
    minutes: VecDeque<(SystemTime, Vec<Change<T>>)>,
    /// How it stood at the last look.
    latest: BTreeMap<Arc<str>, Arc<T>>,
    /// In all minutes together.
    rows: usize,
}

/// A name, and what is new of it; nothing where it is gone.
type Change<T> = (Arc<str>, Option<Arc<T>>);

impl<T> Default for Minutes<T> {
    fn default() -> Self {
        Minutes { before: BTreeMap::new(), minutes: VecDeque::new(), latest: BTreeMap::new(), rows: 0 }
    }
}

impl<T: Kept> Minutes<T> {
    /// Keeps how it stands now.
    pub fn keep(&mut self, now: SystemTime, rows: Vec<(String, T)>) {
        let mut gone = std::mem::take(&mut self.latest);
        let mut changed = Vec::new();
        for (name, row) in rows {
            let (name, known) = match gone.remove_entry(name.as_str()) {
                Some((name, known)) => (name, Some(known)),
                None => (Arc::from(name), None),
            };
            let row = known.filter(|known| known.is_still(&row)).unwrap_or_else(|| {
                let row = Arc::new(row);
                changed.push((Arc::clone(&name), Some(Arc::clone(&row))));
                row
            });
            self.latest.insert(name, row);
        }
        changed.extend(gone.into_keys().map(|name| (name, None)));
        self.rows += changed.len();
        self.minutes.push_back((now, changed));
        while self.minutes.len() > HISTORY_SNAPSHOTS_MAX || (self.rows > ROWS_MAX && self.minutes.len() > 1) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, changed)) = self.minutes.pop_front() else { return };
        self.rows -= changed.len();
        for (name, row) in changed {
            match row {
                Some(row) => drop(self.before.insert(name, row)),
                None => drop(self.before.remove(&name)),
            }
        }
    }

    /// How everything stood when it was kept last before `at`, by name. Goes through all that changed until then: some
    /// milliseconds.
    ///
    /// # Errors
    /// When the oldest that is kept was taken, if any is.
    pub fn at(&self, at: SystemTime) -> Result<Vec<(String, T)>, Option<SystemTime>> {
        let oldest = self.minutes.front().map(|(taken, _)| *taken);
        let last = self.minutes.iter().rposition(|(taken, _)| *taken <= at).ok_or(oldest)?;
        let mut rows: BTreeMap<&Arc<str>, &Arc<T>> = self.before.iter().collect();
        let mut taken_ms = 0;
        for (taken, changed) in self.minutes.iter().take(last + 1) {
            taken_ms = wall_ms(*taken);
            for (name, row) in changed {
                match row {
                    Some(row) => rows.insert(name, row),
                    None => rows.remove(name),
                };
            }
        }
        Ok(rows.into_iter().map(|(name, row)| (name.to_string(), T::clone(row).at(taken_ms))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn minute(minute: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(60 * minute)
    }

    /// A queue that was looked at in that minute.
    fn queue(puts: u64, minute: u64) -> QueueStatus {
        QueueStatus { puts, oldest_seconds: Some(60 * minute), taken_ms: 60_000 * minute, ..QueueStatus::default() }
    }

    fn named<T>(rows: &[(&str, T)]) -> Vec<(String, T)>
    where
        T: Clone,
    {
        rows.iter().map(|(name, row)| ((*name).to_owned(), row.clone())).collect()
    }

    #[test]
    fn a_minute_keeps_what_changed_and_shows_all_that_was_there() {
        let mut history = Minutes::default();
        assert_eq!(history.at(minute(9)), Err(None));
        history.keep(minute(1), named(&[("BUSY", queue(1, 1)), ("IDLE", queue(7, 1)), ("OLD", queue(2, 1))]));
        history.keep(minute(2), named(&[("BUSY", queue(3, 2)), ("IDLE", queue(7, 2)), ("OLD", queue(2, 2))]));
        history.keep(minute(3), named(&[("BUSY", queue(4, 3)), ("IDLE", queue(7, 3)), ("NEW", queue(0, 3))]));
        assert_eq!(history.rows, 3 + 1 + 3, "what has changed, what is new, and what is gone");
        assert_eq!(history.at(minute(0)), Err(Some(minute(1))));
        let second = named(&[("BUSY", queue(3, 2)), ("IDLE", queue(7, 2)), ("OLD", queue(2, 2))]);
        assert_eq!(history.at(minute(2)), Ok(second.clone()), "of an idle queue the message lies longer");
        assert_eq!(history.at(minute(3) - Duration::from_secs(1)), Ok(second));
        let third = named(&[("BUSY", queue(4, 3)), ("IDLE", queue(7, 3)), ("NEW", queue(0, 3))]);
        assert_eq!(history.at(minute(99)), Ok(third));
    }

    #[test]
    fn the_oldest_minutes_go_and_what_they_said_of_later_ones_stays() {
        let mut history = Minutes::default();
        history.keep(minute(0), named(&[("IDLE", queue(7, 0)), ("GONE", queue(1, 0))]));
        for at in 1..=HISTORY_SNAPSHOTS_MAX as u64 {
            history.keep(minute(at), named(&[("BUSY", queue(at, at)), ("IDLE", queue(7, at))]));
        }
        assert_eq!((history.minutes.len(), history.rows), (HISTORY_SNAPSHOTS_MAX, HISTORY_SNAPSHOTS_MAX + 1));
        assert_eq!(history.at(minute(0)), Err(Some(minute(1))));
        assert_eq!(history.at(minute(1)), Ok(named(&[("BUSY", queue(1, 1)), ("IDLE", queue(7, 1))])));
    }

    #[test]
    fn where_too_much_changes_less_than_a_day_is_kept() {
        let mut history = Minutes::default();
        let many = ROWS_MAX / 4;
        for at in 1..=10 {
            let rows = (0..many).map(|number| (format!("Q{number}"), queue(at, at))).collect();
            history.keep(minute(at), rows);
        }
        assert_eq!((history.minutes.len(), history.rows), (4, ROWS_MAX));
        assert_eq!(history.at(minute(6)), Err(Some(minute(7))));
        assert_eq!(history.at(minute(7)).map(|rows| (rows.len(), rows[0].1.puts)), Ok((many, 7)));
        // A single minute is kept, however much is in it.
        let rows = (0..=ROWS_MAX).map(|number| (format!("Q{number}"), queue(11, 11))).collect();
        history.keep(minute(11), rows);
        assert_eq!(history.at(minute(11)).map(|rows| rows.len()), Ok(ROWS_MAX + 1));
        assert_eq!(history.minutes.len(), 1);
    }

    #[test]
    fn a_policy_stands_still_while_it_counts_nothing() {
        let policy = |opened, taken_ms| {
            let mut status = PolicyStatus { since_ms: 1, taken_ms, ..PolicyStatus::default() };
            status.meters.opened = opened;
            status
        };
        assert!(policy(3, 5).is_still(&policy(3, 9)) && !policy(3, 5).is_still(&policy(4, 9)));
        assert_eq!(policy(3, 5).at(9), policy(3, 9));
    }
}
