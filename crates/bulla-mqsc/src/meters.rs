//! What crypto devices did: the numbers that DISPLAY DEVSTATUS, the activity report and the metrics show.
//!
//! All counters are cumulative since [`DeviceMeters::since_ms`]; two snapshots are subtracted to see what happened
//! between them. A snapshot goes over the admin socket as the rows of DISPLAY DEVSTATUS with ALL, and is read back from
//! them.

use super::reply::{Cell, Row};
use super::table::{self, Attribute, Key};
use crate::nouns::device::{FORMS, kind_of};
use bulla_catalog::status::{DeviceMeters, DeviceState, Snapshot};
use bulla_device::{Form, Histogram, Meters, Operation, OperationMeter, Shape, ShapeMeter};
use std::fmt::{self, Display};

/// A cell of the device's own row.
pub(super) fn device_cell(device: &DeviceMeters, taken_ms: u64, key: Key) -> Option<Cell> {
    Some(match key {
        Key::DeviceType => Cell::Text(device.kind.to_string()),
        Key::Taken => Cell::Number(taken_ms),
        Key::Engines => Cell::Number(device.engines),
        Key::Pending => Cell::Number(device.pending),
        Key::DeviceState => Cell::word(device.state.as_str()),
        Key::Reason => Cell::Text(device.reason.clone().unwrap_or_default()),
        Key::Since => Cell::Number(device.since_ms),
        Key::Waiting => Cell::Number(device.waiting),
        Key::InService => Cell::Number(device.in_service),
        Key::WaitingSeen => Cell::List(device.meters.waiting.iter().map(ToString::to_string).collect()),
        Key::CpuTime => Cell::Number(device.meters.cpu_ns),
        Key::ModelledCpuTime => Cell::Number(device.meters.modelled_cpu_ns),
        Key::Jobs => Cell::Number(device.meters.count()),
        Key::Errors => Cell::Number(device.meters.errors()),
        _ => return None,
    })
}

/// A cell of one of its operations' rows.
pub(super) fn operation_cell(device: &DeviceMeters, row: &OperationMeter, key: Key) -> Option<Cell> {
    let of_shape = || device.meters.shapes.iter().find(|shape| shape.shape == row.shape);
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

/// What is read back out of the rows of a DISPLAY with ALL, as they come out of the socket.
pub trait FromRows: Sized {
    /// Out of the rows. Of roles that this version does not know nothing is read: they are unattributed.
    ///
    /// # Errors
    /// They are something else.
    fn from_rows(rows: &[Row]) -> Result<Self, NotMeters>;
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

impl FromRows for Snapshot {
    fn from_rows(rows: &[Row]) -> Result<Snapshot, NotMeters> {
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
    use crate::metered::Metered;
    use bulla_device::Kind;

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
