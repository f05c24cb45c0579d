//! Log-ins over HTTP: some of each user one by one, the rest counted. A program that logs in for each of its requests
//! would fill the disk otherwise.

use super::allowance::{Allowance, Left};
use super::entry::{Entry, Kind, Who};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Entries of their own of one user: 30 MB a day.
const OF_USER: Allowance = Allowance { in_a_second: 20, in_a_row: 200, back_in_a_second: 1 };
/// The same of all users.
const OF_ALL: Allowance = Allowance { in_a_second: 200, in_a_row: 10_000, back_in_a_second: 10 };
/// Users who are looked at by themselves; the rest together.
const USERS_MAX: usize = 1_024;
/// How often it is told of those that are counted.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Which half of a log-in an entry is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Half {
    /// It began.
    Begun,
    /// It ended.
    Ended,
}

#[derive(Debug, Default)]
pub(super) struct LogIns {
    all: Option<Left>,
    /// By user; who has no place of its own is under the empty name.
    left: BTreeMap<String, Left>,
    begun: u64,
    ended: u64,
    told: Option<Instant>,
}

impl LogIns {
    /// Whether this one may be an entry of its own; otherwise it is counted.
    pub(super) fn may_write(&mut self, now: Instant, user: &str, half: Half) -> bool {
        let all = self.all.get_or_insert_with(|| Left::new(now, OF_ALL));
        if !self.left.contains_key(user) && self.left.len() >= USERS_MAX {
            self.left.retain(|_, left| {
                left.has_some(now, OF_USER);
                left.in_a_row < OF_USER.in_a_row
            });
        }
        let has_place = self.left.contains_key(user) || self.left.len() < USERS_MAX;
        let place = if has_place { user.to_owned() } else { String::new() };
        let one = self.left.entry(place).or_insert_with(|| Left::new(now, OF_USER));
        if one.has_some(now, OF_USER) & all.has_some(now, OF_ALL) {
            one.take();
            all.take();
            return true;
        }
        match half {
            Half::Begun => self.begun += 1,
            Half::Ended => self.ended += 1,
        }
        false
    }

    /// Whether some were counted that no entry tells of.
    pub(super) fn has_more(&self) -> bool {
        self.begun + self.ended > 0
    }

    /// The entry that tells of them, once in [`TOLD_EVERY`], or `now_or_never`.
    pub(super) fn take_more(&mut self, now: Instant, now_or_never: bool) -> Option<Entry> {
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TOLD_EVERY);
        if !self.has_more() || !is_due && !now_or_never {
            return None;
        }
        self.told = Some(now);
        let (begun, ended) = (std::mem::take(&mut self.begun), std::mem::take(&mut self.ended));
        let what = json!({ "step": "more", "begun": begun, "ended": ended });
        Some(Entry::new(Kind::LogIn, Who::QueueManager, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_logs_in_all_day_fills_no_disk_and_hides_no_other() {
        let (began, mut log_ins) = (Instant::now(), LogIns::default());
        let (mut written, mut told, mut counted) = (0_u64, 0_u64, 0_u64);
        for second in 0..86_400 {
            let now = began + Duration::from_secs(second);
            written += (0..30).map(|_| u64::from(log_ins.may_write(now, "orders", Half::Begun))).sum::<u64>();
            if let Some(entry) = log_ins.take_more(now, false) {
                told += 1;
                counted += entry.what["begun"].as_u64().unwrap();
            }
        }
        assert!((86_400..87_000).contains(&written), "{written}");
        assert!((1_400..1_600).contains(&told), "{told}");
        let now = began + Duration::from_secs(86_400);
        assert!(log_ins.may_write(now, "billing", Half::Ended), "another user's has an entry of its own");
        counted += log_ins.take_more(now, true).map_or(0, |entry| entry.what["begun"].as_u64().unwrap());
        assert_eq!(written + counted, 30 * 86_400, "none is missing");
        assert!(!log_ins.has_more());
    }

    #[test]
    fn many_users_take_no_more_memory_than_some() {
        let (now, mut log_ins) = (Instant::now(), LogIns::default());
        for user in 0..10 * USERS_MAX {
            log_ins.may_write(now, &user.to_string(), Half::Begun);
        }
        assert!(log_ins.left.len() <= USERS_MAX + 1);
        let later = now + Duration::from_secs(1_000);
        assert!(log_ins.may_write(later, "orders", Half::Begun), "who was quiet gives up its place");
    }
}
