//! What the queue manager's tasks did between two moments: how busy each was, what a request cost of the processor, and
//! how long it waited. In the terms of the task records of MQ's channel initiator (class 4 of its accounting).

use crate::activity::{joined, labelled, ratio};
use crate::calendar::moment;
use crate::catalog::status::{TaskKind, TaskMeters, TaskSnapshot};
use bulla_device::Peak;
use bulla_table::{Column, Table};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::iter;

const NS_PER_US: f64 = 1e3;
const NS_PER_S: f64 = 1e9;
const MS_PER_S: f64 = 1e3;

/// What tasks did between two moments.
#[derive(Debug)]
pub struct TaskActivity {
    /// Begin, milliseconds since 1970, UTC.
    pub from_ms: u64,
    /// End, milliseconds since 1970, UTC.
    pub to_ms: u64,
    /// Those that were there at the end, and those that did something before they ended; by sort.
    pub tasks: Vec<TaskWork>,
    /// One for each sort of which there are tasks.
    pub totals: Vec<TypeWork>,
    /// The most adapters that were busy at one moment, and when that was.
    pub busy_adapters: Option<Peak>,
    /// Adapters that there were at the end.
    pub adapters: u64,
}

/// What one task did.
#[derive(Debug)]
pub struct TaskWork {
    /// The task, its counters holding only what happened in between.
    pub task: TaskMeters,
    /// The same as figures.
    pub work: Work,
}

/// What all tasks of a sort did.
#[derive(Debug)]
pub struct TypeWork {
    /// The sort.
    pub kind: TaskKind,
    /// How many tasks.
    pub tasks: u64,
    /// Of them, those without a request.
    pub unused: u64,
    /// Their sums; the shares of time are the tasks' added up, and may be more than 100.
    pub work: Work,
}

/// Requests and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Requests that ended.
    pub requests: u64,
    /// Time in requests, nanoseconds.
    pub elapsed_ns: u64,
    /// Of it, processor time, nanoseconds.
    pub cpu_ns: u64,
    /// Processor time between requests, nanoseconds.
    pub between_ns: u64,
    /// Time in requests, percent of the interval.
    pub busy_percent: f64,
    /// Processor time in requests, percent of the interval.
    pub cpu_percent: f64,
    /// Processor time between requests, percent of the interval.
    pub between_percent: f64,
    /// The longest request, nanoseconds, and when it ended.
    pub longest: Option<Peak>,
}

impl Work {
    fn of(task: &TaskMeters, seconds: f64) -> Work {
        let percent = |ns: u64| ratio(100.0 * ns as f64 / NS_PER_S, seconds);
        Work {
            requests: task.requests,
            elapsed_ns: task.elapsed_ns,
            cpu_ns: task.cpu_ns,
            between_ns: task.between_ns,
            busy_percent: percent(task.elapsed_ns),
            cpu_percent: percent(task.cpu_ns),
            between_percent: percent(task.between_ns),
            longest: task.longest.after(0),
        }
    }

    fn add(&mut self, other: &Work) {
        self.requests = self.requests.saturating_add(other.requests);
        self.elapsed_ns = self.elapsed_ns.saturating_add(other.elapsed_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.between_ns = self.between_ns.saturating_add(other.between_ns);
        self.busy_percent += other.busy_percent;
        self.cpu_percent += other.cpu_percent;
        self.between_percent += other.between_percent;
        self.longest = match (self.longest, other.longest) {
            (Some(own), Some(other)) if other.value > own.value => Some(other),
            (own, other) => own.or(other),
        };
    }

    /// Processor time of a request, µs; 0 without one.
    #[must_use]
    pub fn cpu_mean_us(&self) -> f64 {
        self.mean_us(self.cpu_ns)
    }

    /// Time of a request, µs; 0 without one.
    #[must_use]
    pub fn elapsed_mean_us(&self) -> f64 {
        self.mean_us(self.elapsed_ns)
    }

    /// Of it, what was not on the processor, µs: for the disk, for a lock, or for its turn.
    #[must_use]
    pub fn wait_mean_us(&self) -> f64 {
        self.mean_us(self.elapsed_ns.saturating_sub(self.cpu_ns))
    }

    fn mean_us(&self, ns: u64) -> f64 {
        ratio(ns as f64 / NS_PER_US, self.requests as f64)
    }
}

impl TaskActivity {
    /// What happened between two snapshots. None when the later one is not later.
    #[must_use]
    pub fn between(earlier: &TaskSnapshot, later: &TaskSnapshot) -> Option<TaskActivity> {
        (later.taken_ms > earlier.taken_ms).then(|| {
            let tasks = later.tasks.iter().map(|task| {
                let known = earlier.tasks.iter().find(|known| known.is_same(task));
                known.map_or_else(|| task.clone(), |known| task.since(known, earlier.taken_ms))
            });
            let busy_adapters = later.busy_adapters.after(earlier.taken_ms);
            Self::new(earlier.taken_ms, later.taken_ms, tasks.collect(), busy_adapters)
        })
    }

    /// What happened since the tasks began to count.
    #[must_use]
    pub fn since_start(snapshot: &TaskSnapshot) -> TaskActivity {
        let from_ms = snapshot.tasks.iter().map(|task| task.since_ms).min().unwrap_or(snapshot.taken_ms);
        Self::new(from_ms, snapshot.taken_ms, snapshot.tasks.clone(), snapshot.busy_adapters.after(0))
    }

    fn new(from_ms: u64, to_ms: u64, tasks: Vec<TaskMeters>, busy_adapters: Option<Peak>) -> TaskActivity {
        let tasks = tasks.into_iter().filter(|task| task.is_running || task.requests > 0);
        let tasks: Vec<TaskWork> = tasks
            .map(|task| {
                let seconds = to_ms.saturating_sub(from_ms.max(task.since_ms)) as f64 / MS_PER_S;
                TaskWork { work: Work::of(&task, seconds), task }
            })
            .collect();
        let totals = TaskKind::ALL.into_iter().filter_map(|kind| {
            let of_kind = || tasks.iter().filter(move |row| row.task.kind == kind);
            let mut work = Work::default();
            of_kind().for_each(|row| work.add(&row.work));
            let unused = of_kind().filter(|row| row.task.requests == 0).count() as u64;
            let count = of_kind().count() as u64;
            (count > 0).then_some(TypeWork { kind, tasks: count, unused, work })
        });
        let totals = totals.collect();
        let adapters =
            tasks.iter().filter(|row| row.task.kind == TaskKind::Adapter && row.task.is_running).count() as u64;
        TaskActivity { from_ms, to_ms, tasks, totals, busy_adapters, adapters }
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_ms.saturating_sub(self.from_ms) as f64 / MS_PER_S
    }

    /// What is to be said when no adapter was unused at the peak: then messages may have waited for one.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let peak = self.busy_adapters.filter(|peak| peak.value >= self.adapters && self.adapters > 0)?;
        Some(format!(
            "no adapter was unused at {}: {} of {} were busy at once. One more: ALTER QMGR CHIADAPS({})",
            moment(peak.at_ms),
            peak.value,
            self.adapters,
            self.adapters + 1
        ))
    }
}

/// Columns behind the label.
const HEADS: [&str; 10] =
    ["CONNS", "REQUESTS", "BUSY %", "CPU %", "BETW %", "CPU us", "ELAPSED us", "WAIT us", "LONGEST us", "AT"];
/// Their least widths in characters.
const WIDTHS: [u16; 10] = [7, 12, 9, 9, 9, 11, 12, 11, 13, 21];

/// What every table says at its end.
const FOOTER: &str = "\
BUSY %: time in requests; CPU %: of it on the processor; BETW %: processor time between requests, to look for work. Of the interval.
CPU, ELAPSED and WAIT us: of one request, on the average; WAIT = ELAPSED - CPU. LONGEST us: the longest request, and when it ended.
TLS is done on its dispatcher's thread, a lonely job of the device CPU on an adapter's: their time is in both lines.
";

impl TaskActivity {
    /// The table: a line for each task, and under each sort its total and its average.
    #[must_use]
    pub fn table(&self, queue_manager: &str) -> String {
        let total_label = |total: &TypeWork| format!("{} total of {}", total.kind, total.tasks);
        let mut table = Table::new(labelled(Column::left().apart(), &WIDTHS));
        table.row(iter::once("TASK").chain(HEADS));
        for total in &self.totals {
            for row in self.tasks.iter().filter(|row| row.task.kind == total.kind) {
                let connections = (total.kind == TaskKind::Dispatcher).then(|| row.task.connections.to_string());
                let cells = cells(connections.unwrap_or_default(), &row.work, 1.0);
                table.row(iter::once(row.task.name.clone()).chain(cells));
            }
            let sum = cells(String::new(), &total.work, 1.0);
            table.row(iter::once(total_label(total)).chain(sum));
            if total.tasks > 1 {
                let mut mean = cells(String::new(), &total.work, total.tasks as f64);
                (mean[8], mean[9]) = (String::new(), String::new());
                table.row(iter::once(format!("{} average", total.kind)).chain(mean));
            }
            table.line("");
        }
        let warning = self.warning().map(|warning| format!("WARNING: {warning}\n")).unwrap_or_default();
        let (from, to) = (moment(self.from_ms), moment(self.to_ms));
        let (seconds, version) = (self.seconds(), env!("CARGO_PKG_VERSION"));
        let mut text = String::new();
        // Into a string: cannot fail.
        let _ = writeln!(
            text,
            "TASKS OF QUEUE MANAGER {queue_manager}   {from} to {to} UTC, {seconds:.1} s   bulla {version}\n"
        );
        text + &table.text() + &warning + FOOTER
    }

    /// Every number, its unit in its name.
    #[must_use]
    pub fn to_json(&self, queue_manager: &str) -> Json {
        let task = |row: &TaskWork| {
            let head = json!({
                "type": row.task.kind.as_str(),
                "task": row.task.name,
                "running": row.task.is_running,
                "unused": row.task.requests == 0,
                "counts_since_ms": row.task.since_ms,
                "connections": (row.task.kind == TaskKind::Dispatcher).then_some(row.task.connections),
            });
            joined(head, work_json(&row.work))
        };
        let total = |total: &TypeWork| {
            let head = json!({ "type": total.kind.as_str(), "tasks": total.tasks, "unused_tasks": total.unused });
            let mean = |of: f64| ratio(of, total.tasks as f64);
            let means = json!({
                "requests_per_task": mean(total.work.requests as f64),
                "busy_mean_percent": mean(total.work.busy_percent),
                "cpu_mean_percent": mean(total.work.cpu_percent),
            });
            joined(joined(head, work_json(&total.work)), means)
        };
        json!({
            "queue_manager": queue_manager,
            "version": env!("CARGO_PKG_VERSION"),
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "from": moment(self.from_ms),
            "to": moment(self.to_ms),
            "interval_seconds": self.seconds(),
            "adapters": self.adapters,
            "busy_adapters_max": self.busy_adapters.map_or(0, |peak| peak.value),
            "busy_adapters_max_at_ms": self.busy_adapters.map(|peak| peak.at_ms),
            "warning": self.warning(),
            "tasks": self.tasks.iter().map(task).collect::<Vec<_>>(),
            "totals": self.totals.iter().map(total).collect::<Vec<_>>(),
        })
    }
}

/// A line's cells; shares and requests divided by so many tasks.
fn cells(connections: String, work: &Work, tasks: f64) -> [String; 10] {
    let requests = if tasks > 1.0 { format!("{:.1}", work.requests as f64 / tasks) } else { work.requests.to_string() };
    let between = format!("{:.1}", work.between_percent / tasks);
    if work.requests == 0 {
        let mut idle = [const { String::new() }; 10];
        (idle[0], idle[1], idle[2], idle[4]) = (connections, requests, "unused".to_owned(), between);
        return idle;
    }
    [
        connections,
        requests,
        format!("{:.1}", work.busy_percent / tasks),
        format!("{:.1}", work.cpu_percent / tasks),
        between,
        format!("{:.1}", work.cpu_mean_us()),
        format!("{:.1}", work.elapsed_mean_us()),
        format!("{:.1}", work.wait_mean_us()),
        work.longest.map(|peak| format!("{:.1}", peak.value as f64 / NS_PER_US)).unwrap_or_default(),
        work.longest.map(|peak| moment(peak.at_ms)).unwrap_or_default(),
    ]
}

fn work_json(work: &Work) -> Json {
    json!({
        "requests": work.requests,
        "elapsed_seconds": work.elapsed_ns as f64 / NS_PER_S,
        "cpu_seconds": work.cpu_ns as f64 / NS_PER_S,
        "between_cpu_seconds": work.between_ns as f64 / NS_PER_S,
        "busy_percent": work.busy_percent,
        "cpu_percent": work.cpu_percent,
        "between_percent": work.between_percent,
        "cpu_mean_us": work.cpu_mean_us(),
        "elapsed_mean_us": work.elapsed_mean_us(),
        "wait_mean_us": work.wait_mean_us(),
        "longest_us": work.longest.map(|peak| peak.value as f64 / NS_PER_US),
        "longest_at_ms": work.longest.map(|peak| peak.at_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_device::Peaks;

    const BEGIN_MS: u64 = 1_795_258_800_000;

    fn task(kind: TaskKind, index: usize, requests: u64) -> TaskMeters {
        let mut longest = Peaks::default();
        longest.note(BEGIN_MS - 500, 900_000);
        longest.note(BEGIN_MS + 2_000, 300_000 + requests);
        TaskMeters {
            is_running: true,
            requests,
            elapsed_ns: requests * 200_000,
            cpu_ns: requests * 150_000,
            between_ns: 500_000_000,
            longest,
            ..TaskMeters::new(kind, kind.name_of(index), BEGIN_MS - 60_000)
        }
    }

    fn snapshot(taken_ms: u64, tasks: Vec<TaskMeters>, busy: &[(u64, u64)]) -> TaskSnapshot {
        let mut busy_adapters = Peaks::default();
        busy.iter().for_each(|(at_ms, value)| busy_adapters.note(*at_ms, *value));
        TaskSnapshot { taken_ms, busy_adapters, tasks }
    }

    fn activity() -> TaskActivity {
        let earlier =
            [task(TaskKind::Dispatcher, 0, 10), task(TaskKind::Adapter, 0, 100), task(TaskKind::Adapter, 1, 7)];
        let mut later =
            [task(TaskKind::Dispatcher, 0, 20), task(TaskKind::Adapter, 0, 1100), task(TaskKind::Adapter, 1, 7)];
        for task in &mut later {
            task.between_ns += 100_000_000;
        }
        later[2].longest = earlier[2].longest.since(0);
        let ended = TaskMeters { is_running: false, ..task(TaskKind::Adapter, 2, 0) };
        let later = later.into_iter().chain([ended]).collect();
        TaskActivity::between(
            &snapshot(BEGIN_MS, earlier.to_vec(), &[(BEGIN_MS - 1, 9)]),
            &snapshot(BEGIN_MS + 10_000, later, &[(BEGIN_MS - 1, 9), (BEGIN_MS + 4_000, 2)]),
        )
        .unwrap()
    }

    #[test]
    fn figures_are_those_of_the_interval() {
        let activity = activity();
        let names: Vec<&str> = activity.tasks.iter().map(|row| row.task.name.as_str()).collect();
        assert_eq!(names, ["dispatcher-0", "adapter-0", "adapter-1"], "one that ended and did nothing is left out");
        let adapter = &activity.tasks[1].work;
        assert_eq!((adapter.requests, adapter.busy_percent, adapter.cpu_percent), (1000, 2.0, 1.5));
        assert_eq!((adapter.cpu_mean_us(), adapter.elapsed_mean_us(), adapter.wait_mean_us()), (150.0, 200.0, 50.0));
        assert_eq!(adapter.between_percent, 1.0);
        assert_eq!(
            adapter.longest,
            Some(Peak { at_ms: BEGIN_MS + 2_000, value: 301_100 }),
            "what was before is not of it"
        );
        assert_eq!(activity.tasks[2].work.requests, 0);
    }

    #[test]
    fn a_total_is_the_sum_of_its_tasks_and_the_unused_ones_are_counted() {
        let activity = activity();
        for total in &activity.totals {
            let of_kind = || activity.tasks.iter().filter(|row| row.task.kind == total.kind).map(|row| &row.work);
            assert_eq!(total.work.requests, of_kind().map(|work| work.requests).sum::<u64>());
            assert_eq!(total.work.elapsed_ns, of_kind().map(|work| work.elapsed_ns).sum::<u64>());
            assert_eq!(total.work.cpu_ns, of_kind().map(|work| work.cpu_ns).sum::<u64>());
        }
        let kinds: Vec<_> = activity.totals.iter().map(|total| (total.kind, total.tasks, total.unused)).collect();
        assert_eq!(kinds, [(TaskKind::Dispatcher, 1, 0), (TaskKind::Adapter, 2, 1)]);
    }

    #[test]
    fn the_warning_comes_when_all_adapters_were_busy_at_once_and_not_before() {
        let activity = activity();
        let warning = activity.warning().unwrap();
        assert!(
            warning.contains("2 of 2 were busy at once") && warning.ends_with("ALTER QMGR CHIADAPS(3)"),
            "{warning}"
        );
        assert!(warning.contains("2026-11-21 11:40:04") || warning.contains(&moment(BEGIN_MS + 4_000)), "{warning}");
        let spared = TaskActivity { busy_adapters: Some(Peak { at_ms: BEGIN_MS, value: 1 }), ..activity };
        assert_eq!(spared.warning(), None);
        assert_eq!(TaskActivity { busy_adapters: None, ..spared }.warning(), None);
    }

    #[test]
    fn the_table_and_the_json_say_the_same() {
        let activity = activity();
        let (table, json) = (activity.table("QM1"), activity.to_json("QM1"));
        assert!(table.starts_with("TASKS OF QUEUE MANAGER QM1   "), "{table}");
        let words = |name: &str| -> Vec<String> {
            let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
            line.split_whitespace().map(str::to_owned).collect()
        };
        for row in json["tasks"].as_array().unwrap() {
            let words = words(row["task"].as_str().unwrap());
            let skip = usize::from(row["type"] == "DISPATCHER");
            assert_eq!(words[1 + skip], row["requests"].to_string());
            if row["unused"] == true {
                assert_eq!(words[2 + skip], "unused");
                continue;
            }
            for (at, key) in [
                (2, "busy_percent"),
                (3, "cpu_percent"),
                (4, "between_percent"),
                (7, "wait_mean_us"),
                (8, "longest_us"),
            ] {
                assert_eq!(words[at + skip], format!("{:.1}", row[key].as_f64().unwrap()), "{key}: {table}");
            }
        }
        assert_eq!(words("ADAPTER average")[2..4], ["500.0", "1.0"]);
        assert_eq!(words("ADAPTER total of 2")[4..6], ["1000", "2.0"]);
        assert!(table.contains("WARNING: no adapter was unused") && json["warning"].is_string());
        assert_eq!((json["busy_adapters_max"].as_u64(), json["adapters"].as_u64()), (Some(2), Some(2)));
    }

    #[test]
    fn two_snapshots_of_one_moment_are_no_interval() {
        let one = snapshot(BEGIN_MS, vec![task(TaskKind::Adapter, 0, 1)], &[]);
        assert!(TaskActivity::between(&one, &one).is_none());
        let all = TaskActivity::since_start(&one);
        assert_eq!((all.seconds(), all.tasks[0].work.requests), (60.0, 1));
        assert_eq!(all.tasks[0].work.longest.map(|peak| peak.value), Some(900_000));
    }
}
