//! Refusals in one second: some of them one by one, the rest counted by where they came from, so that a stranger fills no disk.

use super::entry::{Entry, Kind, Who};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Refusals in one second that are an entry each.
pub(super) const ENTRIES_MAX: u32 = 50;
/// Addresses that are counted by themselves in one second; the rest together.
const ADDRESSES_MAX: usize = 64;
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Refusals {
    window: Option<Instant>,
    entries: u32,
    count: u64,
    addresses: BTreeMap<String, u64>,
}

impl Refusals {
    /// Whether this one may be an entry of its own; otherwise it is counted.
    pub(super) fn may_write(&mut self, now: Instant, who: &Who) -> bool {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            // What was counted of an earlier second stays until the thread has taken it.
            (self.window, self.entries) = (Some(now), 0);
        }
        self.entries = self.entries.saturating_add(1);
        if self.entries <= ENTRIES_MAX {
            return true;
        }
        self.count += 1;
        if let Who::Connection { address, .. } = who {
            let host =
                address.parse::<SocketAddr>().map_or_else(|_| address.clone(), |address| address.ip().to_string());
            if self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&host) {
                *self.addresses.entry(host).or_default() += 1;
            }
        }
        false
    }

    /// Whether some were counted that no entry tells of.
    pub(super) fn has_more(&self) -> bool {
        self.count > 0
    }

    /// The entry that tells of them, once their second is over, or `now_or_never`.
    pub(super) fn take_more(&mut self, now: Instant, now_or_never: bool) -> Option<Entry> {
        let over = self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW);
        if self.count == 0 || !over && !now_or_never {
            return None;
        }
        let (count, addresses) = (std::mem::take(&mut self.count), std::mem::take(&mut self.addresses));
        Some(Entry::new(Kind::Refusals, Who::QueueManager, json!({ "count": count, "addresses": addresses })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_addresses_take_no_more_memory_than_some() {
        let (now, mut refusals) = (Instant::now(), Refusals::default());
        for host in 0..10_000_u32 {
            let address = SocketAddr::from((host.to_be_bytes(), 1)).to_string();
            refusals.may_write(now, &Who::Connection { user: None, address });
        }
        assert_eq!(refusals.take_more(now, false), None, "the second goes on");
        let told = refusals.take_more(now + WINDOW, false).unwrap();
        assert_eq!(told.what["count"], 10_000 - ENTRIES_MAX);
        assert_eq!(told.what["addresses"].as_object().unwrap().len(), ADDRESSES_MAX);
        assert!(!refusals.has_more() && refusals.may_write(now + WINDOW, &Who::QueueManager));
    }
}
