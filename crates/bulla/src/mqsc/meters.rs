//! What crypto devices did: the numbers that DISPLAY DEVSTATUS, the activity report and the metrics show.
//!
//! All counters are cumulative since [`DeviceMeters::since_ms`]; two snapshots are subtracted to see what happened
//! between them. A snapshot goes over the admin socket as the rows of DISPLAY DEVSTATUS with ALL, and is read back from them.

use super::device::{FORMS, kind_of};
use super::reply::{Cell, Row};
use super::table::{self, Attribute, Key};
use bulla_device::{Form, Histogram, Kind, Operation, Shape};
use std::fmt::{self, Display};

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
    const ALL: [DeviceState; 5] =
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Milliseconds since 1970, UTC.
    pub taken_ms: u64,
    /// One for each device, by name.
    pub devices: Vec<DeviceMeters>,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMeters {
    /// Its name.
    pub name: String,
    /// What sort of device.
    pub kind: Kind,
    /// Engines that work side by side.
    pub engines: u64,
    /// Jobs that may wait for it.
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
    /// How many jobs were waiting each time that one came: the count at index n for n jobs, the last one for as many or more.
    pub waiting_seen: Vec<u64>,
    /// Processor time of its threads in nanoseconds, without [`modelled_cpu_ns`](Self::modelled_cpu_ns).
    pub cpu_ns: u64,
    /// Processor time in nanoseconds that the real results of a modelled device took.
    pub modelled_cpu_ns: u64,
    /// Jobs that it failed, those without a row included.
    pub errors: u64,
    /// One for each shape and operation that it was asked for.
    pub rows: Vec<OperationMeters>,
}

/// What a device did of one operation with keys of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationMeters {
    /// Arithmetic and key size.
    pub shape: Shape,
    /// The operation.
    pub operation: Operation,
    /// Jobs finished, those included that failed.
    pub count: u64,
    /// Jobs that the device failed.
    pub errors: u64,
    /// Execution time in nanoseconds: of each job the time of its call, divided by the lanes filled.
    pub busy_ns: u64,
    /// Calls that had at least one such job.
    pub calls: u64,
    /// Lanes filled in those calls, other operations of the same shape included.
    pub lanes_filled: u64,
    /// Execution times.
    pub execution: Histogram,
    /// Times from submission to result.
    pub latency: Histogram,
}

impl DeviceMeters {
    /// What the device did after `earlier`, an older copy; what it is doing is as it is in the newer one. A device whose
    /// counters began anew did all of its work after.
    pub fn since(&self, earlier: &DeviceMeters) -> DeviceMeters {
        if earlier.since_ms != self.since_ms {
            return self.clone();
        }
        let row = |row: &OperationMeters| {
            let same = |earlier: &&OperationMeters| earlier.shape == row.shape && earlier.operation == row.operation;
            earlier.rows.iter().find(same).map_or_else(|| row.clone(), |earlier| row.since(earlier))
        };
        let seen = self.waiting_seen.iter().enumerate();
        DeviceMeters {
            waiting_seen: seen
                .map(|(at, count)| count.saturating_sub(earlier.waiting_seen.get(at).copied().unwrap_or(0)))
                .collect(),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            modelled_cpu_ns: self.modelled_cpu_ns.saturating_sub(earlier.modelled_cpu_ns),
            errors: self.errors.saturating_sub(earlier.errors),
            rows: self.rows.iter().map(row).collect(),
            ..self.clone()
        }
    }

    /// Jobs finished.
    pub fn jobs(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.count))
    }

    /// Execution time of all jobs in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.busy_ns))
    }

    /// A cell of the device's own row.
    pub(super) fn cell(&self, taken_ms: u64, key: Key) -> Option<Cell> {
        Some(match key {
            Key::DeviceType => Cell::Text(self.kind.to_string()),
            Key::Taken => Cell::Number(taken_ms),
            Key::Engines => Cell::Number(self.engines),
            Key::Pending => Cell::Number(self.pending),
            Key::DeviceState => Cell::word(self.state.as_str()),
            Key::Reason => Cell::Text(self.reason.clone().unwrap_or_default()),
            Key::Since => Cell::Number(self.since_ms),
            Key::Waiting => Cell::Number(self.waiting),
            Key::InService => Cell::Number(self.in_service),
            Key::WaitingSeen => Cell::List(self.waiting_seen.iter().map(ToString::to_string).collect()),
            Key::CpuTime => Cell::Number(self.cpu_ns),
            Key::ModelledCpuTime => Cell::Number(self.modelled_cpu_ns),
            Key::Jobs => Cell::Number(self.jobs()),
            Key::Errors => Cell::Number(self.errors),
            _ => return None,
        })
    }
}

impl OperationMeters {
    /// What happened after `earlier`, an older copy.
    fn since(&self, earlier: &OperationMeters) -> OperationMeters {
        OperationMeters {
            shape: self.shape,
            operation: self.operation,
            count: self.count.saturating_sub(earlier.count),
            errors: self.errors.saturating_sub(earlier.errors),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            calls: self.calls.saturating_sub(earlier.calls),
            lanes_filled: self.lanes_filled.saturating_sub(earlier.lanes_filled),
            execution: self.execution.since(&earlier.execution),
            latency: self.latency.since(&earlier.latency),
        }
    }

    /// A cell of an operation's row.
    pub(super) fn cell(&self, key: Key) -> Option<Cell> {
        Some(match key {
            Key::Form => Cell::word(self.shape.form.as_str()),
            Key::KeyBits => Cell::Number(self.shape.bits.into()),
            Key::Operation => Cell::word(self.operation.as_str()),
            Key::Jobs => Cell::Number(self.count),
            Key::Errors => Cell::Number(self.errors),
            Key::BusyTime => Cell::Number(self.busy_ns),
            Key::Calls => Cell::Number(self.calls),
            Key::LanesFilled => Cell::Number(self.lanes_filled),
            Key::ExecutionTimes => Cell::Text(self.execution.to_text()),
            Key::Latencies => Cell::Text(self.latency.to_text()),
            _ => return None,
        })
    }
}

/// The answerer's turn: the rows are not those of DISPLAY DEVSTATUS with ALL, or of another version.
#[derive(Debug, Eq, PartialEq)]
pub struct NotMeters {
    /// The attribute that is missing or wrong.
    pub keyword: &'static str,
}

impl std::error::Error for NotMeters {}

impl Display for NotMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer's {} is missing or of another version", self.keyword)
    }
}

impl Snapshot {
    /// Out of the rows of DISPLAY DEVSTATUS with ALL.
    ///
    /// # Errors
    /// They are something else.
    pub fn from_rows(rows: &[Row]) -> Result<Snapshot, NotMeters> {
        let mut snapshot = Snapshot::default();
        for row in rows {
            let row = Reader(row);
            let name = row.text("DEVICE")?;
            if row.cell(table::FORM.keyword).is_none() {
                snapshot.taken_ms = row.number(&table::TAKEN)?;
                snapshot.devices.push(row.device(name)?);
                continue;
            }
            let operation = row.operation()?;
            let device = snapshot.devices.last_mut().filter(|device| device.name == name);
            device.ok_or(NotMeters { keyword: "DEVICE" })?.rows.push(operation);
        }
        Ok(snapshot)
    }
}

/// Reads cells by the table's keywords.
struct Reader<'a>(&'a Row);

impl Reader<'_> {
    fn cell(&self, keyword: &str) -> Option<&Cell> {
        self.0.cells.iter().find(|(known, _)| known == keyword).map(|(_, cell)| cell)
    }

    fn number(&self, attribute: &'static Attribute) -> Result<u64, NotMeters> {
        match self.cell(attribute.keyword) {
            Some(Cell::Number(number)) => Ok(*number),
            _ => Err(NotMeters { keyword: attribute.keyword }),
        }
    }

    fn text(&self, keyword: &'static str) -> Result<String, NotMeters> {
        match self.cell(keyword) {
            Some(Cell::Text(text)) => Ok(text.clone()),
            _ => Err(NotMeters { keyword }),
        }
    }

    /// A word of a known list.
    fn known<T>(&self, attribute: &'static Attribute, find: impl Fn(&str) -> Option<T>) -> Result<T, NotMeters> {
        let keyword = attribute.keyword;
        find(&self.text(keyword)?).ok_or(NotMeters { keyword })
    }

    fn device(&self, name: String) -> Result<DeviceMeters, NotMeters> {
        let keyword = table::WAITHIST.keyword;
        let waiting_seen = match self.cell(keyword) {
            Some(Cell::List(list)) => list.iter().map(|count| count.parse().ok()).collect::<Option<_>>(),
            _ => None,
        };
        let state = |word: &str| DeviceState::ALL.into_iter().find(|state| state.as_str() == word);
        Ok(DeviceMeters {
            name,
            kind: self.known(&table::DEVICE_TYPE, kind_of)?,
            engines: self.number(&table::ENGINES)?,
            pending: self.number(&table::PENDING)?,
            state: self.known(&table::DEVICE_STATE, state)?,
            reason: Some(self.text(table::REASON.keyword)?).filter(|reason| !reason.is_empty()),
            since_ms: self.number(&table::SINCE)?,
            waiting: self.number(&table::WAITING)?,
            in_service: self.number(&table::INSERV)?,
            waiting_seen: waiting_seen.ok_or(NotMeters { keyword })?,
            cpu_ns: self.number(&table::CPUTIME)?,
            modelled_cpu_ns: self.number(&table::MODELCPU)?,
            errors: self.number(&table::ERRORS)?,
            rows: Vec::new(),
        })
    }

    fn operation(&self) -> Result<OperationMeters, NotMeters> {
        let form = |word: &str| -> Option<Form> { FORMS.into_iter().find(|form| form.as_str() == word) };
        let operation = |word: &str| Operation::ALL.iter().copied().find(|known| known.as_str() == word);
        let histogram = |text: &str| Histogram::from_text(text).ok();
        let bits = u32::try_from(self.number(&table::BITS)?);
        let bits = bits.map_err(|_| NotMeters { keyword: table::BITS.keyword })?;
        Ok(OperationMeters {
            shape: Shape { form: self.known(&table::FORM, form)?, bits },
            operation: self.known(&table::OPERATION, operation)?,
            count: self.number(&table::JOBS)?,
            errors: self.number(&table::ERRORS)?,
            busy_ns: self.number(&table::BUSYTIME)?,
            calls: self.number(&table::CALLS)?,
            lanes_filled: self.number(&table::LANES)?,
            execution: self.known(&table::EXECHIST, histogram)?,
            latency: self.known(&table::LATHIST, histogram)?,
        })
    }
}
