//! What went on at queues and under policies between two moments: `bulla report queues` and `bulla report policies`.

use crate::activity::{joined, labelled, ratio};
use crate::calendar::moment;
use crate::catalog::status::{PolicySnapshot, ProtectionMeters, QueueSnapshot, QueueStatus};
use bulla_table::{Column, Table};
use serde_json::{Value as Json, json};
use std::iter;

const US_PER_MS: f64 = 1e3;
const NS_PER_US: f64 = 1e3;
const MS_PER_S: f64 = 1e3;
const BYTES_PER_KIB: f64 = 1024.0;

/// A time between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Begin, milliseconds since 1970, UTC.
    pub from_ms: u64,
    /// End, milliseconds since 1970, UTC.
    pub to_ms: u64,
}

impl Span {
    /// Length in seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.to_ms.saturating_sub(self.from_ms) as f64 / MS_PER_S
    }

    fn rate(self, count: u64) -> f64 {
        ratio(count as f64, self.seconds())
    }

    fn head(self, what: &str, queue_manager: &str) -> String {
        let (from, to, seconds) = (moment(self.from_ms), moment(self.to_ms), self.seconds());
        let version = env!("CARGO_PKG_VERSION");
        format!("{what} OF QUEUE MANAGER {queue_manager}   {from} to {to} UTC, {seconds:.1} s   bulla {version}\n\n")
    }

    fn to_json(self, queue_manager: &str) -> Json {
        json!({
            "queue_manager": queue_manager,
            "version": env!("CARGO_PKG_VERSION"),
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "from": moment(self.from_ms),
            "to": moment(self.to_ms),
            "interval_seconds": self.seconds(),
        })
    }
}

/// What went on at queues.
#[derive(Debug)]
pub struct QueueActivity {
    /// When.
    pub span: Span,
    /// By name; counters hold only what happened in between, the rest is as it was at the end.
    pub queues: Vec<(String, QueueStatus)>,
}

/// What was done under policies.
#[derive(Debug)]
pub struct PolicyActivity {
    /// When.
    pub span: Span,
    /// By name, only what happened in between.
    pub policies: Vec<(String, ProtectionMeters)>,
}

/// The earlier copy of what has that name.
fn known<'a, T>(earlier: &'a [(String, T)], name: &str) -> Option<&'a T> {
    earlier.iter().find(|(known, _)| known == name).map(|(_, of)| of)
}

impl QueueActivity {
    /// What happened between two snapshots, or since the start where the queue manager was started in between. None
    /// when the later one is not later.
    #[must_use]
    pub fn between(earlier: &QueueSnapshot, later: &QueueSnapshot) -> Option<QueueActivity> {
        if earlier.since_ms != later.since_ms {
            return Some(Self::since_start(later));
        }
        let span = Span { from_ms: earlier.taken_ms, to_ms: later.taken_ms };
        let after = |(name, queue): &(String, QueueStatus)| {
            let queue = known(&earlier.queues, name).map_or_else(|| queue.clone(), |earlier| queue.since(earlier));
            (name.clone(), queue)
        };
        (span.to_ms > span.from_ms).then(|| QueueActivity { span, queues: later.queues.iter().map(after).collect() })
    }

    /// What happened since the queue manager's start.
    #[must_use]
    pub fn since_start(snapshot: &QueueSnapshot) -> QueueActivity {
        let span = Span { from_ms: snapshot.since_ms, to_ms: snapshot.taken_ms };
        QueueActivity { span, queues: snapshot.queues.clone() }
    }
}

impl PolicyActivity {
    /// What happened between two snapshots, or since the start where the queue manager was started in between. None
    /// when the later one is not later.
    #[must_use]
    pub fn between(earlier: &PolicySnapshot, later: &PolicySnapshot) -> Option<PolicyActivity> {
        // Without policies it says of no start.
        if earlier.since_ms != later.since_ms && !earlier.policies.is_empty() {
            return Some(Self::since_start(later));
        }
        let span = Span { from_ms: earlier.taken_ms, to_ms: later.taken_ms };
        let after = |(name, meters): &(String, ProtectionMeters)| {
            let meters = known(&earlier.policies, name).map_or_else(|| meters.clone(), |earlier| meters.since(earlier));
            (name.clone(), meters)
        };
        let policies = || later.policies.iter().map(after).collect();
        (span.to_ms > span.from_ms).then(|| PolicyActivity { span, policies: policies() })
    }

    /// What happened since the queue manager's start.
    #[must_use]
    pub fn since_start(snapshot: &PolicySnapshot) -> PolicyActivity {
        let span = Span { from_ms: snapshot.since_ms, to_ms: snapshot.taken_ms };
        PolicyActivity { span, policies: snapshot.policies.clone() }
    }
}

const QUEUE_HEADS: [&str; 10] =
    ["DEPTH", "PUT/s", "GET/s", "BROWSE/s", "KiB/s IN", "KiB/s OUT", "QTIME ms", "AGE s", "EXPIRED", "REJECTED"];
const QUEUE_WIDTHS: [u16; 10] = [9, 11, 11, 11, 11, 11, 11, 9, 9, 10];

const QUEUE_FOOTER: &str = "\
Rates are of the interval, EXPIRED and REJECTED counts of it; DEPTH and AGE, of the oldest message, are of its end.
QTIME: between put and get, the short average of messages that were watched until then. Queues where nothing lies and nothing happened are left out.
";

const POLICY_HEADS: [&str; 12] = [
    "SEALED/s",
    "OPENED/s",
    "CHECKED/s",
    "KEYS/msg",
    "WRAPS/msg",
    "SIGNS/msg",
    "UNWR/msg",
    "VERIFY/msg",
    "HIT %",
    "WAIT us",
    "MAX us",
    "FAILED",
];
const POLICY_WIDTHS: [u16; 12] = [11, 11, 11, 10, 11, 11, 10, 12, 8, 11, 12, 9];

const POLICY_FOOTER: &str = "\
KEYS, WRAPS and SIGNS: of a message sealed; UNWR: of a message opened; VERIFY: of a message opened or checked, failures included. HIT %: content keys known without an unwrap.
WAIT us: of a job, from its submission to a device to its answer, the processor included; MAX us: the longest since the start. FAILED: refused, set aside or not opened.
";

/// Operations by message.
struct PerMessage {
    keys: f64,
    wraps: f64,
    signs: f64,
    unwraps: f64,
    verifies: f64,
    hit_percent: f64,
    wait_us: f64,
}

impl PerMessage {
    fn of(meters: &ProtectionMeters) -> PerMessage {
        let per = |count: u64, messages: u64| ratio(count as f64, messages as f64);
        let (sealing, opening) = (&meters.sealing, &meters.opening);
        PerMessage {
            keys: per(sealing.content_keys, meters.sealed),
            wraps: per(sealing.wraps, meters.sealed),
            signs: per(sealing.signs, meters.sealed),
            unwraps: per(opening.unwraps, meters.opened),
            verifies: per(opening.verifies, meters.opened + meters.checked),
            hit_percent: 100.0 * per(opening.cache_hits, opening.cache_hits + opening.unwraps),
            wait_us: per(meters.wait.ns, meters.wait.jobs) / NS_PER_US,
        }
    }
}

fn counts<C: std::fmt::Display>(list: impl Iterator<Item = (C, u64)>) -> String {
    list.map(|(what, count)| format!("{what} {count}")).collect::<Vec<_>>().join(", ")
}

impl QueueActivity {
    /// The table: a line for each queue where there is something to say, and refused puts by reason below it.
    #[must_use]
    pub fn table(&self, queue_manager: &str) -> String {
        let mut table = Table::new(labelled(Column::left().apart(), &QUEUE_WIDTHS));
        table.row(iter::once("QUEUE").chain(QUEUE_HEADS));
        let mut refused = String::new();
        for (name, queue) in &self.queues {
            let rejected: u64 = queue.rejects.iter().map(|(_, count)| count).sum();
            if queue.depth + queue.puts + queue.gets + queue.browses + queue.expired + rejected == 0 {
                continue;
            }
            let rate = |count: u64| format!("{:.1}", self.span.rate(count));
            let kib = |bytes: u64| format!("{:.1}", self.span.rate(bytes) / BYTES_PER_KIB);
            let cells = [
                queue.depth.to_string(),
                rate(queue.puts),
                rate(queue.gets),
                rate(queue.browses),
                kib(queue.bytes_put),
                kib(queue.bytes_got),
                format!("{:.3}", queue.time_us.short as f64 / US_PER_MS),
                queue.oldest_seconds.map(|age| age.to_string()).unwrap_or_default(),
                queue.expired.to_string(),
                rejected.to_string(),
            ];
            table.row(iter::once(name.clone()).chain(cells));
            if rejected > 0 {
                refused += &format!("{name}: refused by reason: {}\n", counts(queue.rejects.iter().copied()));
            }
        }
        self.span.head("QUEUES", queue_manager) + &table.text() + "\n" + &refused + QUEUE_FOOTER
    }

    /// Every number, its unit in its name.
    #[must_use]
    pub fn to_json(&self, queue_manager: &str) -> Json {
        let queue = |(name, queue): &(String, QueueStatus)| {
            let rejects = queue.rejects.iter().map(|(reason, count)| (reason.to_string(), json!(count)));
            json!({
                "queue": name,
                "depth": queue.depth,
                "bytes": queue.bytes,
                "uncommitted": queue.uncommitted,
                "oldest_seconds": queue.oldest_seconds,
                "links_that_get": queue.open_input,
                "links_that_put": queue.open_output,
                "opens_to_get": queue.input_opens,
                "opens_to_put": queue.output_opens,
                "puts": queue.puts,
                "single_puts": queue.single_puts,
                "persistent_puts": queue.persistent_puts,
                "gets": queue.gets,
                "persistent_gets": queue.persistent_gets,
                "browses": queue.browses,
                "expired": queue.expired,
                "not_mine": queue.not_mine,
                "bytes_put": queue.bytes_put,
                "bytes_got": queue.bytes_got,
                "puts_per_second": self.span.rate(queue.puts),
                "gets_per_second": self.span.rate(queue.gets),
                "browses_per_second": self.span.rate(queue.browses),
                "bytes_put_per_second": self.span.rate(queue.bytes_put),
                "bytes_got_per_second": self.span.rate(queue.bytes_got),
                "shortest_message_bytes_since_start": queue.shortest_bytes,
                "longest_message_bytes_since_start": queue.longest_bytes,
                "time_on_queue_short_us": queue.time_us.short,
                "time_on_queue_long_us": queue.time_us.long,
                "time_on_queue_longest_us_since_start": queue.longest_time_us,
                "rejects_by_reason": rejects.collect::<serde_json::Map<_, _>>(),
            })
        };
        let queues = self.queues.iter().map(queue).collect::<Vec<_>>();
        joined(self.span.to_json(queue_manager), json!({ "queues": queues }))
    }
}

impl PolicyActivity {
    /// The table: a line for each policy, and failures by cause below it.
    #[must_use]
    pub fn table(&self, queue_manager: &str) -> String {
        let mut table = Table::new(labelled(Column::left().apart(), &POLICY_WIDTHS));
        table.row(iter::once("POLICY").chain(POLICY_HEADS));
        let mut failures = String::new();
        for (name, meters) in &self.policies {
            let rate = |count: u64| format!("{:.1}", self.span.rate(count));
            let per = PerMessage::of(meters);
            let cells = [
                rate(meters.sealed),
                rate(meters.opened),
                rate(meters.checked),
                format!("{:.2}", per.keys),
                format!("{:.2}", per.wraps),
                format!("{:.2}", per.signs),
                format!("{:.2}", per.unwraps),
                format!("{:.2}", per.verifies),
                format!("{:.1}", per.hit_percent),
                format!("{:.1}", per.wait_us),
                format!("{:.1}", meters.wait.longest_ns as f64 / NS_PER_US),
                meters.failed().to_string(),
            ];
            table.row(iter::once(name.clone()).chain(cells));
            if meters.failed() > 0 {
                let by_cause = meters.failures.iter().map(|(cause, count)| (cause, *count));
                failures += &format!("{name}: failed by cause: {}\n", counts(by_cause));
            }
        }
        self.span.head("POLICIES", queue_manager) + &table.text() + "\n" + &failures + POLICY_FOOTER
    }

    /// Every number, its unit in its name.
    #[must_use]
    pub fn to_json(&self, queue_manager: &str) -> Json {
        let policy = |(name, meters): &(String, ProtectionMeters)| {
            let (sealing, opening, per) = (&meters.sealing, &meters.opening, PerMessage::of(meters));
            let failures = meters.failures.iter().map(|(cause, count)| (cause.to_string(), json!(count)));
            json!({
                "policy": name,
                "sealed": meters.sealed,
                "opened": meters.opened,
                "checked": meters.checked,
                "tolerated": meters.tolerated,
                "not_mine": meters.not_mine,
                "quarantined": meters.quarantined,
                "content_keys": sealing.content_keys,
                "wraps": sealing.wraps,
                "unwraps": opening.unwraps,
                "signs": sealing.signs,
                "verifies": opening.verifies,
                "key_cache_hits": opening.cache_hits,
                "clear_bytes_in": sealing.bytes_in,
                "sealed_bytes_out": sealing.bytes_out,
                "sealed_bytes_in": opening.bytes_in,
                "clear_bytes_out": opening.bytes_out,
                "sealed_per_second": self.span.rate(meters.sealed),
                "opened_per_second": self.span.rate(meters.opened),
                "checked_per_second": self.span.rate(meters.checked),
                "content_keys_per_sealed": per.keys,
                "wraps_per_sealed": per.wraps,
                "signs_per_sealed": per.signs,
                "unwraps_per_opened": per.unwraps,
                "verifies_per_opened_or_checked": per.verifies,
                "key_cache_hit_percent": per.hit_percent,
                "device_jobs": meters.wait.jobs,
                "device_wait_us": meters.wait.ns as f64 / NS_PER_US,
                "device_wait_mean_us": per.wait_us,
                "device_wait_longest_us_since_start": meters.wait.longest_ns as f64 / NS_PER_US,
                "failures": meters.failed(),
                "failures_by_cause": failures.collect::<serde_json::Map<_, _>>(),
            })
        };
        let policies = self.policies.iter().map(policy).collect::<Vec<_>>();
        joined(self.span.to_json(queue_manager), json!({ "policies": policies }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::status::{Deed, DeviceWait};
    use bulla_seal::Effort;

    const BEGIN_MS: u64 = 1_795_000_000_000;

    fn policies(messages: u64) -> PolicySnapshot {
        let mut meters = ProtectionMeters::default();
        for at in 0..messages {
            let sealing = Effort { content_keys: 1, wraps: 2, signs: 1, ..Effort::default() };
            meters.note(Deed::Sealed, &sealing, &DeviceWait { jobs: 1, ns: 50_000, longest_ns: 50_000 });
            let opening =
                Effort { unwraps: u64::from(at % 5 == 0), cache_hits: u64::from(at % 5 != 0), ..Effort::default() };
            meters.note(Deed::Opened, &opening, &DeviceWait::default());
        }
        if messages > 0 {
            meters.fail("tampered");
        }
        let policies = vec![("ORDERS".into(), meters)];
        PolicySnapshot { taken_ms: BEGIN_MS + 100 * messages, since_ms: BEGIN_MS - 1, policies }
    }

    fn queues(messages: u64, since_ms: u64) -> QueueSnapshot {
        let busy = QueueStatus {
            depth: 3,
            puts: messages,
            bytes_put: 2048 * messages,
            rejects: vec![(2053, messages)],
            ..QueueStatus::default()
        };
        let queues = vec![("BUSY".into(), busy), ("IDLE".into(), QueueStatus::default())];
        QueueSnapshot { taken_ms: BEGIN_MS + 100 * messages, since_ms, queues }
    }

    #[test]
    fn rates_are_of_the_interval_and_operations_of_a_message() {
        let activity = PolicyActivity::between(&policies(0), &policies(100)).unwrap();
        let json = activity.to_json("QM1");
        let policy = &json["policies"][0];
        assert_eq!((json["interval_seconds"].as_f64(), policy["sealed_per_second"].as_f64()), (Some(10.0), Some(10.0)));
        for (key, wanted) in [
            ("wraps_per_sealed", 2.0),
            ("signs_per_sealed", 1.0),
            ("unwraps_per_opened", 0.2),
            ("key_cache_hit_percent", 80.0),
            ("device_wait_mean_us", 50.0),
            ("failures", 1.0),
        ] {
            assert_eq!(policy[key].as_f64(), Some(wanted), "{key}");
        }
        assert_eq!(policy["failures_by_cause"]["tampered"], 1);
        let table = activity.table("QM1");
        let line = table.lines().find(|line| line.starts_with("ORDERS ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words[1..],
            ["10.0", "10.0", "0.0", "1.00", "2.00", "1.00", "0.20", "0.00", "80.0", "50.0", "50.0", "1"]
        );
        assert!(table.contains("ORDERS: failed by cause: tampered 1\n"), "{table}");
    }

    #[test]
    fn the_table_of_queues_leaves_out_where_nothing_is_and_the_json_does_not() {
        let activity = QueueActivity::between(&queues(0, 1), &queues(50, 1)).unwrap();
        let table = activity.table("QM1");
        assert!(table.contains("BUSY: refused by reason: 2053 50\n") && !table.contains("\nIDLE"), "{table}");
        let line: Vec<&str> =
            table.lines().find(|line| line.starts_with("BUSY ")).unwrap().split_whitespace().collect();
        assert_eq!(line[..6], ["BUSY", "3", "10.0", "0.0", "0.0", "20.0"]);
        let json = activity.to_json("QM1");
        assert_eq!(json["queues"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["queues"][0]["rejects_by_reason"]["2053"], 50);
    }

    #[test]
    fn a_number_that_is_wider_than_its_column_does_not_run_into_the_one_before_it() {
        let mut later = queues(50, 1);
        later.queues[0].1.bytes_put = u64::MAX >> 4;
        let table = QueueActivity::between(&queues(0, 1), &later).unwrap().table("QM1");
        let line = table.lines().find(|line| line.starts_with("BUSY ")).unwrap();
        assert!(line.contains("        0.0  225179981368524.8        0.0 "), "{table}");
    }

    #[test]
    fn after_a_restart_all_that_was_counted_happened_in_between() {
        let activity = QueueActivity::between(&queues(40, 1), &queues(50, BEGIN_MS)).unwrap();
        assert_eq!((activity.queues[0].1.puts, activity.span.from_ms), (50, BEGIN_MS));
        assert!(QueueActivity::between(&queues(50, 1), &queues(50, 1)).is_none());
        assert!(PolicyActivity::between(&policies(5), &policies(5)).is_none());
        assert_eq!(PolicyActivity::since_start(&policies(100)).policies[0].1.sealed, 100);
        let none_yet = PolicySnapshot { taken_ms: BEGIN_MS + 1, ..PolicySnapshot::default() };
        let first = PolicyActivity::between(&none_yet, &policies(100)).unwrap();
        assert_eq!(
            (first.policies[0].1.sealed, first.span.from_ms),
            (100, BEGIN_MS + 1),
            "the first policy was set in between"
        );
    }
}
