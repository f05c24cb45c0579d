//! Refusals: some of them one by one, the rest counted by where they came from, so that an unauthenticated client
//! neither fills the disk nor hides what others are refused.

use super::allowance::{Allowance, Left};
use super::entry::{Entry, Kind, Who};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Refusals of one address or user that are entries of their own in a second; of more only a count is.
pub const REFUSALS_OF_ONE_IN_A_SECOND: u32 = 20;
/// Entries of their own, of all refusals: a second, at most without a pause, and how many a second of those come back.
/// That is 0.2 GB a day.
pub(super) const OF_ALL: Allowance = Allowance { in_a_second: 50, in_a_row: 3_000, back_in_a_second: 5 };
/// The same of those from one address, or of one administrator: 40 MB a day.
pub(super) const OF_ONE: Allowance =
    Allowance { in_a_second: REFUSALS_OF_ONE_IN_A_SECOND, in_a_row: 1_000, back_in_a_second: 1 };
/// Addresses that are looked at by themselves; the rest together.
const ADDRESSES_MAX: usize = 64;
const WINDOW: Duration = Duration::from_secs(1);
/// How often it is told of a flood that goes on, and after how many entries that came each second.
const TOLD_EVERY: Duration = Duration::from_secs(60);
const TOLD_EACH_SECOND_MAX: u32 = 60;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: Option<Left>,
    /// By where they come from; what has no place of its own is under the empty name.
    left: BTreeMap<String, Left>,
    count: u64,
    addresses: BTreeMap<String, u64>,
    /// When what is counted began to be, and when it was told last.
    counted_since: Option<Instant>,
    told: Option<Instant>,
    told_in_a_row: u32,
}

impl Refusals {
    /// Whether this one may be an entry of its own; otherwise it is counted.
    pub(super) fn may_write(&mut self, now: Instant, who: &Who) -> bool {
        let (from, is_address) = match who {
            Who::Connection { address, .. } => {
                let host = address.parse::<SocketAddr>();
                (host.map_or_else(|_| address.clone(), |address| address.ip().to_string()), true)
            }
            Who::Administrator { uid, .. } => (format!("uid {uid}"), false),
            _ => (String::new(), false),
        };
        let all = self.all.get_or_insert_with(|| Left::new(now, OF_ALL));
        let one = Self::of(&mut self.left, &from, now);
        if one.has_some(now, OF_ONE) & all.has_some(now, OF_ALL) {
            one.take();
            all.take();
            return true;
        }
        self.count += 1;
        self.counted_since.get_or_insert(now);
        if is_address && (self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&from)) {
            *self.addresses.entry(from).or_default() += 1;
        }
        false
    }

    /// What is left for those from there. Where all places are taken, one goes to it that has all that it may have.
    fn of<'a>(left: &'a mut BTreeMap<String, Left>, from: &str, now: Instant) -> &'a mut Left {
        if !left.contains_key(from) && left.len() >= ADDRESSES_MAX {
            left.retain(|_, left| {
                left.has_some(now, OF_ONE);
                left.in_a_row < OF_ONE.in_a_row
            });
        }
        let has_place = left.contains_key(from) || left.len() < ADDRESSES_MAX;
        left.entry(if has_place { from.to_owned() } else { String::new() }).or_insert_with(|| Left::new(now, OF_ONE))
    }

    /// Whether some were counted that no entry tells of.
    pub(super) fn has_more(&self) -> bool {
        self.count > 0
    }

    /// The entry that tells of them, a second after the first of them, or `now_or_never`; of a flood that goes on less
    /// often.
    pub(super) fn take_more(&mut self, now: Instant, now_or_never: bool) -> Option<Entry> {
        let passed =
            |since: Option<Instant>, time| since.is_none_or(|since| now.saturating_duration_since(since) >= time);
        if self.count == 0 {
            return None;
        }
        let is_late = self.told_in_a_row < TOLD_EACH_SECOND_MAX || passed(self.told, TOLD_EVERY);
        let is_due = passed(self.counted_since, WINDOW) && is_late;
        if !is_due && !now_or_never {
            return None;
        }
        let goes_on = !passed(self.told, 2 * TOLD_EVERY);
        self.told_in_a_row = if goes_on { self.told_in_a_row.saturating_add(1) } else { 0 };
        (self.told, self.counted_since) = (Some(now), None);
        let (count, addresses) = (std::mem::take(&mut self.count), std::mem::take(&mut self.addresses));
        Some(Entry::new(Kind::Refusals, Who::QueueManager, json!({ "count": count, "addresses": addresses })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(host: u32) -> Who {
        let address = SocketAddr::from((host.to_be_bytes(), 1)).to_string();
        Who::Connection { user: None, address }
    }

    #[test]
    fn many_addresses_take_no_more_memory_than_some() {
        let (now, mut refusals) = (Instant::now(), Refusals::default());
        for host in 0..10_000_u32 {
            refusals.may_write(now, &from(host));
        }
        assert_eq!(refusals.take_more(now, false), None, "the second goes on");
        let told = refusals.take_more(now + WINDOW, false).unwrap();
        assert_eq!(told.what["count"], 10_000 - OF_ALL.in_a_second);
        assert_eq!(told.what["addresses"].as_object().unwrap().len(), ADDRESSES_MAX);
        assert!(refusals.left.len() <= ADDRESSES_MAX + 1);
        assert!(!refusals.has_more() && refusals.may_write(now + WINDOW, &Who::QueueManager));
    }

    #[test]
    fn a_flood_from_one_address_hides_nobody_else_s_refusals() {
        let (now, mut refusals) = (Instant::now(), Refusals::default());
        let written = (0..1000).filter(|_| refusals.may_write(now, &from(1))).count();
        assert_eq!(written, OF_ONE.in_a_second as usize);
        assert!(refusals.may_write(now, &from(2)), "another user's has an entry of its own");
    }

    #[test]
    fn a_flood_that_goes_on_for_a_day_fills_no_disk() {
        let (began, mut refusals) = (Instant::now(), Refusals::default());
        let (mut written, mut told) = (0_u32, 0_u32);
        for second in 0..86_400 {
            let now = began + Duration::from_secs(second);
            written += (0..30).map(|_| u32::from(refusals.may_write(now, &from(1)))).sum::<u32>();
            told += u32::from(refusals.take_more(now + WINDOW, false).is_some());
        }
        assert!((86_400..90_000).contains(&written), "{written}");
        assert!((1_400..1_600).contains(&told), "{told}");
        let later = began + Duration::from_secs(100_000);
        let again = (0..30).filter(|_| refusals.may_write(later, &from(1))).count();
        assert_eq!(again, OF_ONE.in_a_second as usize, "who was quiet is written down again");
    }
}
