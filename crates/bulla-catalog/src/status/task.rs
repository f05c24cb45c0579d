//! What the queue manager's tasks did. All counters are cumulative since [`TaskMeters::since_ms`]; two snapshots are
//! subtracted to see what happened between them.

use super::device::{DeviceMeters, DeviceState};
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
    pub fn name_of(self, index: usize) -> String {
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
    /// A task that has done nothing yet.
    pub fn new(kind: TaskKind, name: String, since_ms: u64) -> TaskMeters {
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

    /// What the task did after `earlier`, an older copy taken at `earlier_ms`. One whose counters began anew did all of
    /// it after.
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
    pub fn is_same(&self, other: &TaskMeters) -> bool {
        self.kind == other.kind && self.name == other.name
    }
}

impl TaskSnapshot {
    /// Goes on to a later snapshot, whose peaks are those of the time after this one.
    pub fn go_on_to(&mut self, later: &TaskSnapshot) {
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
    pub fn leave_peaks_until(&mut self, at_ms: u64) {
        self.busy_adapters = self.busy_adapters.since(at_ms);
        for task in &mut self.tasks {
            task.longest = task.longest.since(at_ms);
        }
    }
}
