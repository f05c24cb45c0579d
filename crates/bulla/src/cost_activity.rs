//! What each role cost between two moments: processor time, its share, and what a message put and a message got comes
//! to. Beside it the process's own clock, so that one sees that it adds up.

use crate::activity::{labelled, ratio};
use crate::calendar::moment;
use crate::catalog::status::CostSnapshot;
use bulla_device::Role;
use bulla_table::{Column, Table};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::iter;

const NS_PER_US: f64 = 1e3;
const NS_PER_S: f64 = 1e9;
const MS_PER_S: f64 = 1e3;

/// The roles under the names by which MQ's performance reports know them. The application's share is not in this
/// process.
const BUCKETS: [(&str, &[Role]); 4] = [
    ("queue manager", &[Role::QueueManager, Role::Journal]),
    ("channel initiator", &[Role::ChannelInitiator, Role::Tls]),
    ("protection", &[Role::Protection, Role::Devices]),
    ("administration", &[Role::Administration]),
];

/// What roles cost between two moments.
#[derive(Debug)]
pub struct CostActivity {
    /// Begin, milliseconds since 1970, UTC.
    pub from_ms: u64,
    /// End, milliseconds since 1970, UTC.
    pub to_ms: u64,
    /// Its counters hold only what happened in between.
    pub spent: CostSnapshot,
}

impl CostActivity {
    /// What happened between two snapshots. None when the later one is not later.
    #[must_use]
    pub fn between(earlier: &CostSnapshot, later: &CostSnapshot) -> Option<CostActivity> {
        (later.taken_ms > earlier.taken_ms).then(|| CostActivity {
            from_ms: earlier.taken_ms,
            to_ms: later.taken_ms,
            spent: later.since(earlier),
        })
    }

    /// What happened since the process began.
    #[must_use]
    pub fn since_start(snapshot: &CostSnapshot) -> CostActivity {
        CostActivity { from_ms: snapshot.since_ms, to_ms: snapshot.taken_ms, spent: snapshot.clone() }
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_ms.saturating_sub(self.from_ms) as f64 / MS_PER_S
    }

    /// Processor time of all roles together, nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.spent.costs.roles_ns.iter().sum()
    }

    /// By how much the process's clock differs from the sum of the roles, percent of the process's.
    #[must_use]
    pub fn difference_percent(&self) -> f64 {
        let process_ns = self.spent.costs.process_ns as f64;
        ratio(100.0 * (process_ns - self.sum_ns() as f64), process_ns)
    }

    fn share_percent(&self, ns: u64) -> f64 {
        ratio(100.0 * ns as f64, self.spent.costs.process_ns as f64)
    }

    fn cores(&self, ns: u64) -> f64 {
        ratio(ns as f64 / NS_PER_S, self.seconds())
    }

    fn us_of_each(ns: u64, messages: u64) -> f64 {
        ratio(ns as f64 / NS_PER_US, messages as f64)
    }

    fn buckets(&self) -> impl Iterator<Item = (&'static str, u64)> {
        BUCKETS.into_iter().map(|(name, roles)| (name, roles.iter().map(|role| self.spent.costs.of(*role)).sum()))
    }
}

/// Columns behind the label.
const HEADS: [&str; 5] = ["CPU s", "SHARE %", "CORES", "us A PUT", "us A GET"];
/// Their least widths in characters.
const WIDTHS: [u16; 5] = [13, 10, 9, 12, 12];
/// The least width of the labels.
const LABEL_WIDTH: u16 = 20;

/// What every table says at its end.
const FOOTER: &str = "\
CPU s: processor time; SHARE %: of the process's; CORES: seconds a second; us A PUT, us A GET: divided by all messages put, by all got.
queue manager = queue-manager + journal; channel initiator = channel-initiator + tls; protection = protection + devices.
Applications and token helpers are processes of their own and are not in here.
";

impl CostActivity {
    /// The table: a line for each role, their sum beside the process, and the same by the names of MQ's reports.
    #[must_use]
    pub fn table(&self, queue_manager: &str) -> String {
        let CostSnapshot { costs, puts, gets, .. } = &self.spent;
        let line = |name: &str, ns: u64| {
            let each = |messages: u64| match messages {
                0 => String::new(),
                messages => format!("{:.2}", Self::us_of_each(ns, messages)),
            };
            [
                name.to_owned(),
                format!("{:.3}", ns as f64 / NS_PER_S),
                format!("{:.1}", self.share_percent(ns)),
                format!("{:.3}", self.cores(ns)),
                each(*puts),
                each(*gets),
            ]
        };
        let (from, to) = (moment(self.from_ms), moment(self.to_ms));
        let (seconds, version) = (self.seconds(), env!("CARGO_PKG_VERSION"));
        let mut text = String::new();
        // Into a string: cannot fail.
        let _ = writeln!(
            text,
            "COSTS OF QUEUE MANAGER {queue_manager}   {from} to {to} UTC, {seconds:.1} s   {puts} messages put, {gets} got   bulla {version}\n"
        );
        let mut table = Table::new(labelled(Column::left().at_least(LABEL_WIDTH), &WIDTHS));
        table.row(iter::once("ROLE").chain(HEADS));
        for role in Role::ALL {
            table.row(line(role.as_str(), costs.of(role)));
        }
        table.row(line("sum of the roles", self.sum_ns()));
        table.row(line("process", costs.process_ns));
        table.line(format!("difference: {:.2} % of the process is unattributed", self.difference_percent()));
        table.line("");
        for (name, ns) in self.buckets() {
            table.row(line(name, ns));
        }
        text + &table.text() + "\n" + FOOTER
    }

    /// Every number, its unit in its name.
    #[must_use]
    pub fn to_json(&self, queue_manager: &str) -> Json {
        let CostSnapshot { costs, puts, gets, .. } = &self.spent;
        let row = |name: &str, ns: u64| {
            json!({
                "name": name,
                "cpu_seconds": ns as f64 / NS_PER_S,
                "share_percent": self.share_percent(ns),
                "cores": self.cores(ns),
                "put_us": (*puts > 0).then(|| Self::us_of_each(ns, *puts)),
                "get_us": (*gets > 0).then(|| Self::us_of_each(ns, *gets)),
            })
        };
        json!({
            "queue_manager": queue_manager,
            "version": env!("CARGO_PKG_VERSION"),
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "from": moment(self.from_ms),
            "to": moment(self.to_ms),
            "interval_seconds": self.seconds(),
            "puts": puts,
            "gets": gets,
            "roles": Role::ALL.map(|role| row(role.as_str(), costs.of(role))),
            "sum": row("sum", self.sum_ns()),
            "process": row("process", costs.process_ns),
            "unattributed": row("unattributed", costs.unattributed_ns()),
            "difference_percent": self.difference_percent(),
            "buckets": self.buckets().map(|(name, ns)| row(name, ns)).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_device::Costs;

    const BEGIN_MS: u64 = 1_795_258_800_000;

    fn snapshot(taken_ms: u64, times: u64) -> CostSnapshot {
        let roles_ns = [700, 60, 50, 400, 300, 20, 10].map(|us| 1_000 * us * times);
        let costs = Costs { roles_ns, process_ns: 1_600_000 * times, ..Costs::default() };
        CostSnapshot {
            taken_ms,
            since_ms: BEGIN_MS - 5_000,
            costs,
            puts: 10 * times,
            gets: 20 * times,
            ..CostSnapshot::default()
        }
    }

    fn activity() -> CostActivity {
        CostActivity::between(&snapshot(BEGIN_MS, 1), &snapshot(BEGIN_MS + 2_000, 11)).unwrap()
    }

    #[test]
    fn roles_and_what_is_unattributed_add_up_to_the_process() {
        let activity = activity();
        let json = activity.to_json("QM1");
        let roles: f64 = json["roles"].as_array().unwrap().iter().map(|row| row["cpu_seconds"].as_f64().unwrap()).sum();
        let number = |row: &str, key: &str| json[row][key].as_f64().unwrap();
        assert!((roles - number("sum", "cpu_seconds")).abs() < 1e-9);
        assert!((roles + number("unattributed", "cpu_seconds") - number("process", "cpu_seconds")).abs() < 1e-9);
        assert_eq!(json["difference_percent"].as_f64(), Some(3.75));
        let buckets: f64 =
            json["buckets"].as_array().unwrap().iter().map(|row| row["cpu_seconds"].as_f64().unwrap()).sum();
        assert!((roles - buckets).abs() < 1e-9, "every role is in one bucket");
    }

    #[test]
    fn a_message_has_its_part_of_the_interval_alone() {
        let json = activity().to_json("QM1");
        assert_eq!((json["puts"].as_u64(), json["gets"].as_u64()), (Some(100), Some(200)));
        let queue_manager = &json["roles"][0];
        assert_eq!((queue_manager["put_us"].as_f64(), queue_manager["get_us"].as_f64()), (Some(70.0), Some(35.0)));
        assert_eq!(queue_manager["cores"].as_f64(), Some(0.0035));
        assert_eq!(queue_manager["share_percent"].as_f64(), Some(43.75));
        let idle = CostActivity::since_start(&CostSnapshot { puts: 0, ..snapshot(BEGIN_MS, 1) });
        assert!(idle.to_json("QM1")["roles"][0]["put_us"].is_null(), "nothing was put");
        assert_eq!(idle.seconds(), 5.0);
    }

    #[test]
    fn the_table_says_what_the_json_says() {
        let activity = activity();
        let (table, json) = (activity.table("QM1"), activity.to_json("QM1"));
        assert!(table.starts_with("COSTS OF QUEUE MANAGER QM1   "), "{table}");
        let rows = json["roles"].as_array().unwrap().iter().chain([&json["process"]]);
        for row in rows {
            let name = row["name"].as_str().unwrap();
            let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            for (at, key, digits) in
                [(1, "cpu_seconds", 3), (2, "share_percent", 1), (4, "put_us", 2), (5, "get_us", 2)]
            {
                assert_eq!(words[at], format!("{:.digits$}", row[key].as_f64().unwrap()), "{name} {key}: {table}");
            }
        }
        assert!(table.contains("difference: 3.75 % of the process is unattributed"), "{table}");
    }

    #[test]
    fn two_snapshots_of_one_moment_are_no_interval() {
        assert!(CostActivity::between(&snapshot(BEGIN_MS, 1), &snapshot(BEGIN_MS, 1)).is_none());
    }
}
