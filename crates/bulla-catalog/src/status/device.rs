//! What crypto devices did. All counters are cumulative since [`DeviceMeters::since_ms`]; two snapshots are subtracted
//! to see what happened between them.

use bulla_device::scheduler::{Report, State};
use bulla_device::{Kind, Meters, OperationMeter, ShapeMeter};
use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a device is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeviceState {
    /// It was stopped, or not started yet.
    Stopped,
    /// Its engines are being made.
    Starting,
    /// It takes work.
    Running,
    /// It was started and can't work here, or not now; it is tried again.
    Offline,
    /// It gave a wrong result, or failed too often: it stays away until it is started again.
    Failed,
}

impl DeviceState {
    /// Every state.
    pub const ALL: [DeviceState; 5] =
        [DeviceState::Stopped, DeviceState::Starting, DeviceState::Running, DeviceState::Offline, DeviceState::Failed];

    /// As it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeviceState::Stopped => "STOPPED",
            DeviceState::Starting => "STARTING",
            DeviceState::Running => "RUNNING",
            DeviceState::Offline => "OFFLINE",
            DeviceState::Failed => "FAILED",
        }
    }
}

impl From<&State> for DeviceState {
    fn from(state: &State) -> Self {
        match state {
            State::Running => DeviceState::Running,
            State::Starting => DeviceState::Starting,
            State::Stopped => DeviceState::Stopped,
            State::Offline { .. } => DeviceState::Offline,
            State::Failed { .. } => DeviceState::Failed,
        }
    }
}

impl Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What goes on at a device now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceStatus {
    /// What it is doing.
    pub state: DeviceState,
    /// Why it is offline or failed, or what failed last; one lower-case line.
    pub reason: Option<String>,
    /// Jobs that wait for it.
    pub waiting: u64,
    /// Jobs that its engines are working on.
    pub in_service: u64,
    /// Share of the last seconds that its engines were busy, 0 to 100.
    pub utilisation_percent: u64,
    /// Jobs that it finished.
    pub jobs: u64,
    /// Jobs that it failed.
    pub errors: u64,
}

/// Every device at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// One for each device.
    pub devices: Vec<DeviceMeters>,
}

/// What a device did.
#[derive(Clone, Debug)]
pub struct DeviceMeters {
    /// Its name.
    pub name: String,
    /// What sort of device.
    pub kind: Kind,
    /// Engines that work side by side.
    pub engines: u64,
    /// Jobs that may wait for it; 0 for the processor, for which nothing waits.
    pub pending: u64,
    /// What it is doing.
    pub state: DeviceState,
    /// Why it is offline or failed, or what failed last; one lower-case line.
    pub reason: Option<String>,
    /// Where the counters begin: milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// Jobs that wait for it now.
    pub waiting: u64,
    /// Jobs that its engines are working on now.
    pub in_service: u64,
    /// What it counted.
    pub meters: Meters,
}

impl From<&Report> for DeviceMeters {
    fn from(report: &Report) -> Self {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        DeviceMeters {
            name: report.name.clone(),
            kind: report.kind,
            engines: count(report.engines),
            pending: count(report.waiting_max),
            state: DeviceState::from(&report.state),
            reason: report.state.why().map(str::to_owned).or_else(|| report.last_error.clone()),
            since_ms: unix_ms(report.since),
            waiting: count(report.waiting),
            in_service: count(report.in_service),
            meters: report.meters.clone(),
        }
    }
}

/// Milliseconds since 1970, UTC; 0 before.
fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl DeviceMeters {
    /// What the device did after `earlier`, an older copy; what it is doing is as it is in the newer one. A device
    /// whose counters began anew did all of its work after.
    pub fn since(&self, earlier: &DeviceMeters) -> DeviceMeters {
        if earlier.since_ms != self.since_ms {
            return self.clone();
        }
        let (now, before) = (&self.meters, &earlier.meters);
        let operation = |row: &OperationMeter| {
            let same = |old: &&OperationMeter| old.shape == row.shape && old.operation == row.operation;
            before.operations.iter().find(same).map_or_else(
                || row.clone(),
                |old| OperationMeter {
                    operation: row.operation,
                    shape: row.shape,
                    count: row.count.saturating_sub(old.count),
                    errors: row.errors.saturating_sub(old.errors),
                    busy_ns: row.busy_ns.saturating_sub(old.busy_ns),
                    execution: row.execution.since(&old.execution),
                    latency: row.latency.since(&old.latency),
                },
            )
        };
        let shape = |row: &ShapeMeter| {
            before.shapes.iter().find(|old| old.shape == row.shape).map_or(*row, |old| ShapeMeter {
                shape: row.shape,
                calls: row.calls.saturating_sub(old.calls),
                lanes_filled: row.lanes_filled.saturating_sub(old.lanes_filled),
            })
        };
        let waiting = now.waiting.iter().enumerate();
        let waiting = waiting.map(|(at, count)| count.saturating_sub(before.waiting.get(at).copied().unwrap_or(0)));
        DeviceMeters {
            meters: Meters {
                operations: now.operations.iter().map(operation).collect(),
                shapes: now.shapes.iter().map(shape).collect(),
                waiting: waiting.collect(),
                longest: now.longest.clone(),
                cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
                modelled_cpu_ns: now.modelled_cpu_ns.saturating_sub(before.modelled_cpu_ns),
            },
            ..self.clone()
        }
    }
}

impl Snapshot {
    /// Of what a scheduler reported.
    pub fn new(taken: SystemTime, reports: &[Report]) -> Snapshot {
        Snapshot { taken_ms: unix_ms(taken), devices: reports.iter().map(DeviceMeters::from).collect() }
    }
}
