//! What crypto devices did: the numbers that DISPLAY DEVSTATUS, the activity report and the metrics show.
//!
//! All counters are cumulative since [`DeviceMeters::since_ms`]; two snapshots are subtracted to see what happened
//! between them. A snapshot goes over the admin socket as the rows of DISPLAY DEVSTATUS with ALL, and is read back from them.

use super::device::{FORMS, kind_of};
use super::reply::{Cell, Row};
use super::table::{self, Attribute, Key};
use bulla_device::scheduler::{Report, State};
use bulla_device::{Form, Histogram, Kind, Meters, Operation, OperationMeter, Shape, ShapeMeter};
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
    /// What the device did after `earlier`, an older copy; what it is doing is as it is in the newer one. A device whose
    /// counters began anew did all of its work after.
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
            Key::WaitingSeen => Cell::List(self.meters.waiting.iter().map(ToString::to_string).collect()),
            Key::CpuTime => Cell::Number(self.meters.cpu_ns),
            Key::ModelledCpuTime => Cell::Number(self.meters.modelled_cpu_ns),
            Key::Jobs => Cell::Number(self.meters.count()),
            Key::Errors => Cell::Number(self.meters.errors()),
            _ => return None,
        })
    }

    /// A cell of one of its operations' rows.
    pub(super) fn operation_cell(&self, row: &OperationMeter, key: Key) -> Option<Cell> {
        let of_shape = || self.meters.shapes.iter().find(|shape| shape.shape == row.shape);
        Some(match key {
            Key::Form => Cell::word(row.shape.form.as_str()),
            Key::KeyBits => Cell::Number(row.shape.bits.into()),
            Key::Operation => Cell::word(row.operation.as_str()),
            Key::Jobs => Cell::Number(row.count),
            Key::Errors => Cell::Number(row.errors),
            Key::BusyTime => Cell::Number(row.busy_ns),
            Key::Calls => Cell::Number(of_shape().map_or(0, |shape| shape.calls)),
            Key::LanesFilled => Cell::Number(of_shape().map_or(0, |shape| shape.lanes_filled)),
            Key::ExecutionTimes => Cell::Text(row.execution.to_text()),
            Key::Latencies => Cell::Text(row.latency.to_text()),
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
    /// Of what a scheduler reported.
    pub fn new(taken: SystemTime, reports: &[Report]) -> Snapshot {
        Snapshot { taken_ms: unix_ms(taken), devices: reports.iter().map(DeviceMeters::from).collect() }
    }

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
            let (operation, shape) = row.operation()?;
            let device = snapshot.devices.last_mut().filter(|device| device.name == name);
            let meters = &mut device.ok_or(NotMeters { keyword: "DEVICE" })?.meters;
            meters.operations.push(operation);
            if meters.shapes.iter().all(|known| known.shape != shape.shape) {
                meters.shapes.push(shape);
            }
        }
        Ok(snapshot)
    }
}

/// Reads cells by the table's keywords.
pub(super) struct Reader<'a>(pub(super) &'a Row);

impl Reader<'_> {
    fn cell(&self, keyword: &str) -> Option<&Cell> {
        self.0.cells.iter().find(|(known, _)| known == keyword).map(|(_, cell)| cell)
    }

    pub(super) fn number(&self, attribute: &'static Attribute) -> Result<u64, NotMeters> {
        match self.cell(attribute.keyword) {
            Some(Cell::Number(number)) => Ok(*number),
            _ => Err(NotMeters { keyword: attribute.keyword }),
        }
    }

    pub(super) fn text(&self, keyword: &'static str) -> Result<String, NotMeters> {
        match self.cell(keyword) {
            Some(Cell::Text(text)) => Ok(text.clone()),
            _ => Err(NotMeters { keyword }),
        }
    }

    pub(super) fn list(&self, attribute: &'static Attribute) -> Result<&[String], NotMeters> {
        match self.cell(attribute.keyword) {
            Some(Cell::List(list)) => Ok(list),
            _ => Err(NotMeters { keyword: attribute.keyword }),
        }
    }

    /// A word of a known list.
    pub(super) fn known<T>(
        &self,
        attribute: &'static Attribute,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T, NotMeters> {
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
            meters: Meters {
                waiting: waiting_seen.ok_or(NotMeters { keyword })?,
                cpu_ns: self.number(&table::CPUTIME)?,
                modelled_cpu_ns: self.number(&table::MODELCPU)?,
                ..Meters::default()
            },
        })
    }

    fn operation(&self) -> Result<(OperationMeter, ShapeMeter), NotMeters> {
        let form = |word: &str| -> Option<Form> { FORMS.into_iter().find(|form| form.as_str() == word) };
        let operation = |word: &str| Operation::ALL.iter().copied().find(|known| known.as_str() == word);
        let histogram = |text: &str| Histogram::from_text(text).ok();
        let bits = u32::try_from(self.number(&table::BITS)?);
        let bits = bits.map_err(|_| NotMeters { keyword: table::BITS.keyword })?;
        let shape = Shape { form: self.known(&table::FORM, form)?, bits };
        let row = OperationMeter {
            shape,
            operation: self.known(&table::OPERATION, operation)?,
            count: self.number(&table::JOBS)?,
            errors: self.number(&table::ERRORS)?,
            busy_ns: self.number(&table::BUSYTIME)?,
            execution: self.known(&table::EXECHIST, histogram)?,
            latency: self.known(&table::LATHIST, histogram)?,
        };
        let (calls, lanes_filled) = (self.number(&table::CALLS)?, self.number(&table::LANES)?);
        Ok((row, ShapeMeter { shape, calls, lanes_filled }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqsc::metered::Metered;

    const RSA: Shape = Shape { form: Form::RsaCrt, bits: 2048 };
    const EC: Shape = Shape { form: Form::EcdsaSign, bits: 256 };

    fn device(name: &str) -> DeviceMeters {
        let mut meters = Meters { cpu_ns: 77, modelled_cpu_ns: u64::MAX, ..Meters::default() };
        meters.waited(3);
        meters.call(RSA, 900, [(Operation::RsaSign, 1000, false), (Operation::RsaUnwrap, 1100, true)].into_iter());
        meters.call(EC, 10, [(Operation::EcdsaSign, 20, false)].into_iter());
        DeviceMeters {
            name: name.into(),
            kind: Kind::Accelerator,
            engines: 1,
            pending: 16,
            state: DeviceState::Offline,
            reason: Some("no token (yet)".into()),
            since_ms: 1_795_258_740_000,
            waiting: 2,
            in_service: 1,
            meters,
        }
    }

    #[test]
    fn a_snapshot_is_read_back_from_what_the_socket_carries() {
        let idle = DeviceMeters { meters: Meters::default(), reason: None, ..device("B") };
        let snapshot = Snapshot { taken_ms: 1_795_258_800_000, devices: vec![device("A"), idle] };
        let rows = Metered { devices: snapshot.clone(), ..Metered::default() }.rows("DISPLAY DEVSTATUS(*) ALL");
        assert_eq!(rows.len(), 5);
        assert_eq!(format!("{:?}", Snapshot::from_rows(&rows).unwrap()), format!("{snapshot:?}"));
        for (at, row) in rows.iter().enumerate() {
            for gone in 0..row.cells.len() {
                let mut rows = rows.clone();
                let (keyword, _) = rows[at].cells.remove(gone);
                let read = Snapshot::from_rows(&rows);
                // Sums over the rows are shown and not needed; without its form a row is taken for a device's own.
                let is_sum = at == 0 || at == 4;
                let is_needed = !(is_sum && ["JOBS", "ERRORS"].contains(&keyword.as_str()));
                assert_eq!(read.is_err(), is_needed, "{at} {keyword}");
            }
        }
        let headless = Snapshot::from_rows(&rows[1..2]).unwrap_err();
        assert_eq!(headless, NotMeters { keyword: "DEVICE" });
    }

    #[test]
    fn the_difference_is_what_happened_between_two_snapshots_of_one_start() {
        let earlier = device("A");
        let mut later = earlier.clone();
        later.meters.waited(0);
        later.meters.waited(5);
        later.meters.call(RSA, 500, [(Operation::RsaSign, 600, true)].into_iter());
        later.meters.call(Shape { form: Form::Ecdh, bits: 521 }, 7, [(Operation::EcdhDerive, 8, false)].into_iter());
        later.meters.cpu_ns += 23;
        let between = later.since(&earlier).meters;
        let counted: Vec<_> = between.operations.iter().map(|row| (row.operation, row.count, row.busy_ns)).collect();
        assert_eq!(
            counted,
            [
                (Operation::RsaSign, 1, 500),
                (Operation::RsaUnwrap, 0, 0),
                (Operation::EcdsaSign, 0, 0),
                (Operation::EcdhDerive, 1, 7)
            ]
        );
        assert_eq!((between.count(), between.errors(), between.cpu_ns), (2, 1, 23));
        assert_eq!(between.waiting, [1, 0, 0, 0, 0, 1]);
        let shapes: Vec<_> = between.shapes.iter().map(|row| (row.calls, row.lanes_filled)).collect();
        assert_eq!(shapes, [(1, 1), (0, 0), (1, 1)]);

        let anew = DeviceMeters { since_ms: earlier.since_ms + 1, ..earlier.clone() };
        assert_eq!(anew.since(&earlier).meters.count(), 3);
    }
}
