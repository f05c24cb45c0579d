//! What the queue manager's tasks did: the numbers that DISPLAY TASKSTATUS, `bulla report chinit` and the metrics show.
//!
//! All counters are cumulative since [`TaskMeters::since_ms`]; two snapshots are subtracted to see what happened between them. A
//! snapshot goes over the admin socket as the rows of DISPLAY TASKSTATUS with ALL, and is read back from them.

use super::meters::{DeviceMeters, DeviceState, NotMeters, Reader};
use super::reply::{Cell, Row};
use super::table::{self, Key};
use bulla_device::Peaks;
use std::fmt::{self, Display};

/// A sort of task.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum TaskKind {
    /// A thread that owns connections. A request is a turn in which there was something to do.
    Dispatcher,
    /// A thread that seals and opens. A request is a message, or a password.
    Adapter,
    /// The TLS of a dispatcher's connections, on its thread. A request is a call of OpenSSL.
    Tls,
    /// The thread that writes the journal. A request is a batch.
    Journal,
    /// A crypto device. A request is a job.
    Device,
}

impl TaskKind {
    /// All of them, in the order of reports.
    pub const ALL: [TaskKind; 5] =
        [TaskKind::Dispatcher, TaskKind::Adapter, TaskKind::Tls, TaskKind::Journal, TaskKind::Device];

    /// As it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            TaskKind::Dispatcher => "DISPATCHER",
            TaskKind::Adapter => "ADAPTER",
            TaskKind::Tls => "TLS",
            TaskKind::Journal => "JOURNAL",
            TaskKind::Device => "DEVICE",
        }
    }

    /// The name of the task with that index, as its thread has it; devices have names of their own.
    pub(crate) fn name_of(self, index: usize) -> String {
        match self {
            TaskKind::Journal => "journal".to_owned(),
            kind => format!("{}-{index}", kind.as_str().to_lowercase()),
        }
    }
}

impl Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a task did.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskMeters {
    /// What sort of task.
    pub kind: TaskKind,
    /// Its name: its thread's, or the device's.
    pub name: String,
    /// Where the counters begin: milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// Whether it is there; one that has ended may come again.
    pub is_running: bool,
    /// Connections that a dispatcher has now.
    pub connections: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Time in requests, nanoseconds.
    pub elapsed_ns: u64,
    /// Of it, processor time.
    pub cpu_ns: u64,
    /// Processor time of its thread between requests: to look for work, and to wake up and go to sleep.
    pub between_ns: u64,
    /// The longest requests, nanoseconds, and when they ended.
    pub longest: Peaks,
}

/// Every task at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskSnapshot {
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// How many adapters were busy at one moment, at most, second by second.
    pub busy_adapters: Peaks,
    /// By sort, and by index in it.
    pub tasks: Vec<TaskMeters>,
}

impl From<&DeviceMeters> for TaskMeters {
    fn from(device: &DeviceMeters) -> Self {
        let meters = &device.meters;
        TaskMeters {
            is_running: device.state == DeviceState::Running,
            requests: meters.count(),
            elapsed_ns: meters.busy_ns(),
            // A modelled device's results take the processor longer than the device that it stands for.
            cpu_ns: meters.cpu_ns.saturating_sub(meters.modelled_cpu_ns).min(meters.busy_ns()),
            longest: meters.longest.clone(),
            ..TaskMeters::new(TaskKind::Device, device.name.clone(), device.since_ms)
        }
    }
}

impl TaskMeters {
    pub(crate) fn new(kind: TaskKind, name: String, since_ms: u64) -> TaskMeters {
        TaskMeters {
            kind,
            name,
            since_ms,
            is_running: false,
            connections: 0,
            requests: 0,
            elapsed_ns: 0,
            cpu_ns: 0,
            between_ns: 0,
            longest: Peaks::default(),
        }
    }

    /// What the task did after `earlier`, an older copy taken at `earlier_ms`. One whose counters began anew did all of it after.
    #[must_use]
    pub fn since(&self, earlier: &TaskMeters, earlier_ms: u64) -> TaskMeters {
        if earlier.since_ms != self.since_ms {
            return self.clone();
        }
        TaskMeters {
            requests: self.requests.saturating_sub(earlier.requests),
            elapsed_ns: self.elapsed_ns.saturating_sub(earlier.elapsed_ns),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            between_ns: self.between_ns.saturating_sub(earlier.between_ns),
            longest: self.longest.since(earlier_ms),
            ..self.clone()
        }
    }

    /// Whether it is the same task.
    pub(crate) fn is_same(&self, other: &TaskMeters) -> bool {
        self.kind == other.kind && self.name == other.name
    }

    fn cell(&self, snapshot: &TaskSnapshot, key: Key) -> Option<Cell> {
        Some(match key {
            Key::TaskType => Cell::word(self.kind.as_str()),
            Key::Taken => Cell::Number(snapshot.taken_ms),
            Key::Since => Cell::Number(self.since_ms),
            Key::TaskState => Cell::word(if self.is_running { "RUNNING" } else { "ENDED" }),
            Key::Connections if self.kind == TaskKind::Dispatcher => Cell::Number(self.connections),
            Key::Requests => Cell::Number(self.requests),
            Key::ElapsedTime => Cell::Number(self.elapsed_ns),
            Key::RequestCpuTime => Cell::Number(self.cpu_ns),
            Key::BetweenCpuTime => Cell::Number(self.between_ns),
            Key::LongestRequests => Cell::Text(self.longest.to_string()),
            Key::BusyAdapters if self.kind == TaskKind::Adapter => Cell::Text(snapshot.busy_adapters.to_string()),
            _ => return None,
        })
    }
}

impl TaskSnapshot {
    /// A cell of a task's row.
    pub(super) fn cell(&self, task: &TaskMeters, key: Key) -> Option<Cell> {
        task.cell(self, key)
    }

    /// Out of the rows of DISPLAY TASKSTATUS with ALL.
    ///
    /// # Errors
    /// They are something else.
    pub fn from_rows(rows: &[Row]) -> Result<TaskSnapshot, NotMeters> {
        let mut snapshot = TaskSnapshot::default();
        for row in rows {
            let row = Reader(row);
            let kind = |word: &str| TaskKind::ALL.into_iter().find(|kind| kind.as_str() == word);
            let kind = row.known(&table::TASK_TYPE, kind)?;
            snapshot.taken_ms = row.number(&table::TAKEN)?;
            if kind == TaskKind::Adapter {
                snapshot.busy_adapters = row.known(&table::ADAPBUSY, Peaks::from_text)?;
            }
            let state = |word: &str| ["ENDED", "RUNNING"].iter().position(|known| *known == word);
            snapshot.tasks.push(TaskMeters {
                kind,
                name: row.text("TASK")?,
                since_ms: row.number(&table::SINCE)?,
                is_running: row.known(&table::TASK_STATE, state)? == 1,
                connections: if kind == TaskKind::Dispatcher { row.number(&table::CONNS)? } else { 0 },
                requests: row.number(&table::REQUESTS)?,
                elapsed_ns: row.number(&table::ELAPSED)?,
                cpu_ns: row.number(&table::REQCPU)?,
                between_ns: row.number(&table::BETWCPU)?,
                longest: row.known(&table::LONGEST, Peaks::from_text)?,
            });
        }
        Ok(snapshot)
    }

    /// Goes on to a later snapshot, whose peaks are those of the time after this one.
    pub(crate) fn go_on_to(&mut self, later: &TaskSnapshot) {
        let earlier = std::mem::replace(self, later.clone());
        let mut busy = earlier.busy_adapters;
        busy.extend(&self.busy_adapters);
        self.busy_adapters = busy;
        for task in &mut self.tasks {
            let known = earlier.tasks.iter().find(|known| known.is_same(task));
            if let Some(known) = known.filter(|known| known.since_ms == task.since_ms) {
                let mut longest = known.longest.clone();
                longest.extend(&task.longest);
                task.longest = longest;
            }
        }
    }

    /// Forgets the peaks until that moment.
    pub(crate) fn leave_peaks_until(&mut self, at_ms: u64) {
        self.busy_adapters = self.busy_adapters.since(at_ms);
        for task in &mut self.tasks {
            task.longest = task.longest.since(at_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::metered::Metered;

    fn peaks(records: &[(u64, u64)]) -> Peaks {
        let mut peaks = Peaks::default();
        records.iter().for_each(|(at_ms, value)| peaks.note(*at_ms, *value));
        peaks
    }

    fn task(kind: TaskKind, index: usize, requests: u64) -> TaskMeters {
        TaskMeters {
            is_running: index < 2,
            connections: if kind == TaskKind::Dispatcher { 3 } else { 0 },
            requests,
            elapsed_ns: 70 * requests,
            cpu_ns: 50 * requests,
            between_ns: 11 * requests,
            longest: peaks(&[(1_000, 99), (2_000, 80)]),
            ..TaskMeters::new(kind, kind.name_of(index), 500)
        }
    }

    #[test]
    fn a_snapshot_is_read_back_from_the_rows_that_show_it() {
        let tasks = vec![
            task(TaskKind::Dispatcher, 0, 5),
            task(TaskKind::Adapter, 0, 7),
            task(TaskKind::Adapter, 2, 0),
            task(TaskKind::Tls, 0, 1),
            task(TaskKind::Journal, 0, 2),
            TaskMeters { name: "CARD".into(), ..task(TaskKind::Device, 0, 9) },
        ];
        let snapshot = TaskSnapshot { taken_ms: 3_000, busy_adapters: peaks(&[(1_000, 2), (3_000, 1)]), tasks };
        let mut target = Metered { tasks: snapshot.clone(), ..Metered::default() };
        assert_eq!(TaskSnapshot::from_rows(&target.rows("DISPLAY TASKSTATUS ALL")), Ok(snapshot));
        // People see numbers; the lists are for programs.
        let shown = target.rows("DIS TASKS WHERE(TASKTYPE EQ ADAPTER)");
        assert_eq!(shown.len(), 2);
        assert!(TaskSnapshot::from_rows(&shown).is_err());
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_happened_between_them() {
        let (earlier, later) = (task(TaskKind::Adapter, 0, 4), task(TaskKind::Adapter, 0, 7));
        let between = later.since(&earlier, 1_500);
        assert_eq!((between.requests, between.elapsed_ns, between.cpu_ns, between.between_ns), (3, 210, 150, 33));
        assert_eq!(between.longest, peaks(&[(2_000, 80)]));
        let anew = TaskMeters { since_ms: 600, ..later.clone() };
        assert_eq!(anew.since(&earlier, 1_500), anew);
    }
}
