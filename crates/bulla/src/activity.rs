//! What crypto devices did between two moments, in the terms of a capacity planner: rates, execution times,
//! utilisation, how many wait, and whether another device is due. In the spirit of RMF's crypto hardware activity
//! report.
//!
//! A line's utilisation is rate × execution time ÷ engines. The lines of a device may add up to more than 100 %,
//! because execution times are means; the device's own ends there.

use crate::calendar::moment;
use crate::catalog::status::{DeviceMeters, DeviceState, Snapshot};
use bulla_device::scheduler::HISTORY_INTERVAL;
use bulla_device::{Histogram, Kind, Operation, OperationMeter, Shape};
use bulla_table::{Column, Table};
use serde_json::{Value as Json, json};
use std::iter;

/// From here on a device counts as busy all the time, percent: what is shown with a digit behind the point is 100 or
/// nearly so, and the ends of the interval cut through calls.
pub const SATURATED_PERCENT: f64 = 99.5;
/// The share of its waiting places that must be taken for a device to count as crowded: 5 of 8.
pub const CROWDED_WAITING: f64 = 5.0 / 8.0;

const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;
const MS_PER_S: f64 = 1e3;

/// What devices did between two moments.
#[derive(Debug)]
pub struct Activity {
    /// Begin, milliseconds since 1970, UTC.
    pub from_ms: u64,
    /// End, milliseconds since 1970, UTC.
    pub to_ms: u64,
    /// In the order of the later snapshot.
    pub devices: Vec<DeviceActivity>,
    /// Devices that were there at the beginning only; what they did is nowhere else in here.
    pub gone: Vec<String>,
}

/// What one device did.
#[derive(Debug)]
pub struct DeviceActivity {
    /// The device, its meters holding only what happened in between; waiting line and state are those of the end.
    pub device: DeviceMeters,
    /// Seconds in which it counted: shorter than the whole for a device that was defined in between.
    pub seconds: f64,
    /// All of its work.
    pub total: Work,
    /// By form and key size, in their order.
    pub shapes: Vec<ShapeActivity>,
    /// How many waited each time that a job came.
    pub waiting: WaitingLine,
    /// Whether another one is due.
    pub advice: Option<Advice>,
}

/// What one device did with keys of one form and size.
#[derive(Debug)]
pub struct ShapeActivity {
    /// Form and key size.
    pub shape: Shape,
    /// All operations together.
    pub work: Work,
    /// By operation.
    pub operations: Vec<(Operation, Work)>,
}

/// Work of one sort.
#[derive(Clone, Debug)]
pub struct Work {
    /// Jobs finished, those included that the device failed.
    pub jobs: u64,
    /// Jobs that the device failed.
    pub errors: u64,
    /// Jobs a second.
    pub rate_per_second: f64,
    /// Rate × mean execution time ÷ engines, in percent; may be more than 100.
    pub utilisation_percent: f64,
    /// Execution time of all jobs, nanoseconds.
    pub busy_ns: u64,
    /// Execution times: of each job the time of its call, divided by the lanes filled.
    pub execution: Histogram,
    /// Times from submission to result.
    pub latency: Histogram,
    /// Calls; of one operation among several it is not known.
    pub calls: Option<u64>,
    /// Lanes filled in them.
    pub lanes_filled: u64,
}

impl Work {
    /// Mean execution time in milliseconds; 0 when there was no job.
    pub fn execution_mean_ms(&self) -> f64 {
        ratio(self.busy_ns as f64 / NS_PER_MS, self.jobs as f64)
    }

    /// Jobs that went together; none when it is not known.
    pub fn lanes_per_call(&self) -> Option<f64> {
        self.calls.map(|calls| ratio(self.lanes_filled as f64, calls as f64))
    }
}

/// A waiting line as those saw it who came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitingLine {
    /// How many came.
    pub samples: u64,
    /// How many were waiting, on the average.
    pub mean: f64,
    /// Half of them saw no more.
    pub p50: u64,
    /// Of a hundred, ninety-nine saw no more.
    pub p99: u64,
    /// The most that one saw.
    pub max: u64,
}

impl WaitingLine {
    /// From counts: at index n, how often n were waiting.
    fn new(counts: &[u64]) -> WaitingLine {
        let samples: u64 = counts.iter().sum();
        let at = |share: f64| {
            let rank = ((share * samples as f64).ceil() as u64).max(1);
            let mut seen = 0;
            let place = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            place.unwrap_or(0) as u64
        };
        let sum: f64 = counts.iter().enumerate().map(|(waiting, count)| waiting as f64 * *count as f64).sum();
        let max = counts.iter().rposition(|count| *count > 0).unwrap_or(0) as u64;
        WaitingLine { samples, mean: ratio(sum, samples as f64), p50: at(0.5), p99: at(0.99), max }
    }
}

/// Another device is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Of which TYPE.
    pub due: &'static str,
    /// Why.
    pub why: Why,
}

/// Why another device is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// Its engines were busy all the time.
    Saturated,
    /// Half of those who came saw at least 5 of 8 waiting places taken.
    Crowded {
        /// How many places were taken, the median.
        waiting: u64,
        /// How many there are.
        pending: u64,
    },
}

impl Advice {
    fn of(device: &DeviceMeters, utilisation_percent: f64, waiting: &WaitingLine) -> Option<Advice> {
        let due = match device.kind {
            Kind::Cpu | Kind::Software => "ACCELERATOR or COPROCESSOR",
            Kind::Accelerator => "ACCELERATOR",
            Kind::Coprocessor => "COPROCESSOR",
            _ => "MODELLED",
        };
        if utilisation_percent >= SATURATED_PERCENT {
            return Some(Advice { due, why: Why::Saturated });
        }
        let pending = device.pending;
        let is_crowded = pending > 0 && waiting.samples > 0 && waiting.p50 as f64 >= CROWDED_WAITING * pending as f64;
        is_crowded.then_some(Advice { due, why: Why::Crowded { waiting: waiting.p50, pending } })
    }

    /// One line.
    pub fn text(&self) -> String {
        match &self.why {
            Why::Saturated => {
                format!("another device of TYPE({}) is due: the engines were busy all the time", self.due)
            }
            Why::Crowded { waiting, pending } => format!(
                "another device of TYPE({}) is due: half of the jobs that came found {waiting} or more of {pending} waiting",
                self.due
            ),
        }
    }
}

/// A ratio that is 0 where there is nothing to divide by.
pub(crate) fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

impl Activity {
    /// What happened between two snapshots. None when the later one is not later.
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Activity> {
        if later.taken_ms <= earlier.taken_ms {
            return None;
        }
        let find = |name: &str| earlier.devices.iter().find(|device| device.name == name);
        let gone = |device: &&DeviceMeters| later.devices.iter().all(|other| other.name != device.name);
        let devices = later.devices.iter().map(|device| {
            let begin_ms = earlier.taken_ms.max(device.since_ms);
            let between = find(&device.name).map_or_else(|| device.clone(), |earlier| device.since(earlier));
            DeviceActivity::new(between, later.taken_ms.saturating_sub(begin_ms))
        });
        Some(Activity {
            from_ms: earlier.taken_ms,
            to_ms: later.taken_ms,
            devices: devices.collect(),
            gone: earlier.devices.iter().filter(gone).map(|device| device.name.clone()).collect(),
        })
    }

    /// What happened since each device began to count.
    pub fn since_start(snapshot: &Snapshot) -> Activity {
        let devices = snapshot.devices.iter();
        Activity {
            from_ms: devices.clone().map(|device| device.since_ms).min().unwrap_or(snapshot.taken_ms),
            to_ms: snapshot.taken_ms,
            devices: devices
                .map(|device| DeviceActivity::new(device.clone(), snapshot.taken_ms.saturating_sub(device.since_ms)))
                .collect(),
            gone: Vec::new(),
        }
    }

    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_ms.saturating_sub(self.from_ms) as f64 / MS_PER_S
    }
}

/// A kept snapshot holds from when it was taken until work was done again: a snapshot is kept at each
/// [`HISTORY_INTERVAL`] in which there was work. So what was kept last by `asked_ms` is as good as one taken an
/// interval earlier than that.
pub fn held_until(taken_ms: u64, asked_ms: u64) -> u64 {
    let interval_ms = u64::try_from(HISTORY_INTERVAL.as_millis()).unwrap_or(u64::MAX);
    taken_ms.max(asked_ms.saturating_sub(interval_ms))
}

impl DeviceActivity {
    fn new(device: DeviceMeters, interval_ms: u64) -> DeviceActivity {
        let seconds = interval_ms as f64 / MS_PER_S;
        let engines = device.engines as f64;
        let sum = |rows: &[&OperationMeter], calls: Option<(u64, u64)>| {
            let mut work = Work {
                jobs: 0,
                errors: 0,
                rate_per_second: 0.0,
                utilisation_percent: 0.0,
                busy_ns: 0,
                execution: Histogram::new(),
                latency: Histogram::new(),
                calls: calls.map(|(calls, _)| calls),
                lanes_filled: calls.map_or(0, |(_, lanes)| lanes),
            };
            for row in rows {
                work.jobs = work.jobs.saturating_add(row.count);
                work.errors = work.errors.saturating_add(row.errors);
                work.busy_ns = work.busy_ns.saturating_add(row.busy_ns);
                work.execution.merge(&row.execution);
                work.latency.merge(&row.latency);
            }
            work.rate_per_second = ratio(work.jobs as f64, seconds);
            let execution_s = work.execution_mean_ms() / MS_PER_S;
            work.utilisation_percent = ratio(100.0 * work.rate_per_second * execution_s, engines);
            work
        };
        let meters = &device.meters;
        let lanes = |shape: Option<Shape>| {
            let shapes = meters.shapes.iter().filter(|row| shape.is_none_or(|shape| row.shape == shape));
            shapes.fold((0_u64, 0_u64), |(calls, lanes), row| {
                (calls.saturating_add(row.calls), lanes.saturating_add(row.lanes_filled))
            })
        };
        let busy: Vec<&OperationMeter> = meters.operations.iter().filter(|row| row.count > 0).collect();
        let mut shapes: Vec<Shape> = busy.iter().map(|row| row.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let shapes = shapes.into_iter().map(|shape| {
            let mut rows: Vec<&OperationMeter> = busy.iter().copied().filter(|row| row.shape == shape).collect();
            rows.sort_by_key(|row| row.operation);
            let operations = rows.iter().map(|row| (row.operation, sum(&[row], None))).collect();
            ShapeActivity { shape, work: sum(&rows, Some(lanes(Some(shape)))), operations }
        });
        let shapes: Vec<ShapeActivity> = shapes.collect();
        let mut total = sum(&busy, Some(lanes(None)));
        total.utilisation_percent = shapes.iter().map(|shape| shape.work.utilisation_percent).sum();
        let waiting = WaitingLine::new(&meters.waiting);
        let advice = Advice::of(&device, total.utilisation_percent, &waiting);
        DeviceActivity { seconds, total, shapes, waiting, advice, device }
    }

    /// The device's own utilisation in percent: its lines' sum, 100 at most.
    pub fn utilisation_percent(&self) -> f64 {
        self.total.utilisation_percent.min(100.0)
    }

    /// Whether this machine does not have it.
    pub fn is_modelled(&self) -> bool {
        self.device.kind == Kind::Modelled
    }

    /// Processor time of its threads, in percent of one core.
    pub fn cpu_percent(&self) -> f64 {
        ratio(100.0 * self.device.meters.cpu_ns as f64 / NS_PER_S, self.seconds)
    }

    /// Processor time that a modelled device's real results took, in percent of one core.
    pub fn modelled_cpu_percent(&self) -> f64 {
        ratio(100.0 * self.device.meters.modelled_cpu_ns as f64 / NS_PER_S, self.seconds)
    }
}

/// What every table says at its end.
const FOOTER: &str = "\
UTIL % = RATE x EXEC / ENG; the lines of a device may add up to more than its own, which ends at 100.
LANES: jobs that went in one call, on the average. WAITING: those in service not counted.
Ciphers and digests run in line on the processor's own instructions: they are its work, and not counted here.
";

impl Activity {
    /// The table: a line for each device, under it one for each form and key size.
    pub fn table(&self) -> String {
        let label = |device: &DeviceActivity| {
            let meters = &device.device;
            let kind = if device.is_modelled() { "*modelled*".to_owned() } else { meters.kind.to_string() };
            format!("{} {kind}", meters.name)
        };
        let shape_label = |shape: Shape| format!("  {} {}", shape.form, shape.bits);
        let mut table = Table::new(labelled(Column::left(), &WIDTHS));
        table.row(["", "", "", "", "", "", "EXEC ms", "", "", "LATENCY ms", "", "", "WAITING"]);
        let columns = [
            "ENG", "RATE/s", "EXEC ms", "UTIL %", "LANES", "p50", "p99", "max", "p50", "p99", "max", "now", "mean",
            "p99", "ERRORS",
        ];
        table.row(iter::once("DEVICE / FORM").chain(columns));
        for device in &self.devices {
            let meters = &device.device;
            let waits =
                [meters.waiting.to_string(), format!("{:.1}", device.waiting.mean), device.waiting.p99.to_string()];
            let own = cells(&meters.engines.to_string(), &device.total, device.utilisation_percent(), waits);
            table.row(iter::once(label(device)).chain(own));
            for row in &device.shapes {
                let blank = [const { String::new() }; 3];
                let cells = cells("", &row.work, row.work.utilisation_percent, blank);
                table.row(iter::once(shape_label(row.shape)).chain(cells));
            }
            for note in device.span_note(self.seconds()).into_iter().chain(device.notes()) {
                table.line(format!("  {note}"));
            }
        }
        let body = table.text();
        let gone = match self.gone.as_slice() {
            [] => String::new(),
            gone => format!("Deleted in between, and left out: {}.\n", gone.join(", ")),
        };
        let (from, to) = (moment(self.from_ms), moment(self.to_ms));
        let seconds = self.seconds();
        format!("CRYPTO HARDWARE ACTIVITY   {from} to {to} UTC, {seconds:.1} s\n\n{body}\n{gone}{FOOTER}")
    }

    /// Every number, its unit in its name.
    pub fn to_json(&self) -> Json {
        json!({
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "from": moment(self.from_ms),
            "to": moment(self.to_ms),
            "interval_seconds": self.seconds(),
            "devices": self.devices.iter().map(DeviceActivity::to_json).collect::<Vec<_>>(),
            "deleted_devices": self.gone,
            "not_counted": "symmetric ciphers and digests run in line on the processor",
        })
    }
}

/// Columns behind the label.
const COLUMNS: usize = 15;
/// Their least widths in characters.
const WIDTHS: [u16; COLUMNS] = [5, 11, 10, 8, 7, 10, 10, 10, 12, 10, 10, 9, 7, 6, 8];

/// The columns of a report: a label, and numbers of these least widths.
pub(crate) fn labelled(label: Column, widths: &[u16]) -> impl Iterator<Item = Column> {
    iter::once(label).chain(widths.iter().map(|width| Column::right().at_least(*width)))
}

fn cells(engines: &str, work: &Work, utilisation_percent: f64, waiting: [String; 3]) -> [String; COLUMNS] {
    let ms = |ns: u64| format!("{:.3}", ns as f64 / NS_PER_MS);
    let [now, mean, p99] = waiting;
    let lanes = work.lanes_per_call().filter(|lanes| *lanes > 0.0);
    if work.jobs == 0 {
        let mut idle = [const { String::new() }; COLUMNS];
        (idle[0], idle[1], idle[3]) = (engines.to_owned(), "0.0".to_owned(), "0.0".to_owned());
        (idle[11], idle[12], idle[13]) = (now, mean, p99);
        idle[14] = work.errors.to_string();
        return idle;
    }
    [
        engines.to_owned(),
        format!("{:.1}", work.rate_per_second),
        format!("{:.3}", work.execution_mean_ms()),
        format!("{utilisation_percent:.1}"),
        lanes.map(|lanes| format!("{lanes:.2}")).unwrap_or_default(),
        ms(work.execution.quantile(0.5)),
        ms(work.execution.quantile(0.99)),
        ms(work.execution.max()),
        ms(work.latency.quantile(0.5)),
        ms(work.latency.quantile(0.99)),
        ms(work.latency.max()),
        now,
        mean,
        p99,
        work.errors.to_string(),
    ]
}

impl DeviceActivity {
    /// Which part of the report's `seconds` the device's numbers are of, where it began to count later.
    fn span_note(&self, seconds: f64) -> Option<String> {
        let (own, all) = (format!("{:.1}", self.seconds), format!("{seconds:.1}"));
        let since = moment(self.device.since_ms);
        (own != all).then(|| format!("counted for {own} s of these {all}, since {since}"))
    }

    /// What the numbers do not say, a line each.
    fn notes(&self) -> Vec<String> {
        let meters = &self.device;
        let mut notes = Vec::new();
        let reason = meters.reason.as_deref();
        match (meters.state, reason) {
            (DeviceState::Running, None) => {}
            (DeviceState::Running, Some(reason)) => notes.push(format!("failed last: {reason}")),
            (state, None) => notes.push(state.to_string()),
            (state, Some(reason)) => notes.push(format!("{state}: {reason}")),
        }
        if self.is_modelled() {
            notes.push(format!(
                "*modelled*: no such device is here; its real results took {:.3} s of this processor, {:.1} % of a core",
                meters.meters.modelled_cpu_ns as f64 / NS_PER_S,
                self.modelled_cpu_percent()
            ));
        } else if meters.meters.cpu_ns > 0 {
            notes.push(format!("processor time of its threads: {:.1} % of a core", self.cpu_percent()));
        }
        let together = self.total.utilisation_percent;
        if together > self.utilisation_percent() {
            notes.push(format!("its lines add up to {together:.1} %, which is shown as 100"));
        }
        notes.extend(self.advice.as_ref().map(Advice::text));
        notes
    }

    fn to_json(&self) -> Json {
        let meters = &self.device;
        let shape = |row: &ShapeActivity| {
            let operation = |(operation, work): &(Operation, Work)| {
                joined(json!({ "operation": operation.as_str() }), work_json(work))
            };
            let operations: Vec<Json> = row.operations.iter().map(operation).collect();
            let head = json!({ "form": row.shape.form.as_str(), "key_bits": row.shape.bits });
            joined(joined(head, work_json(&row.work)), json!({ "operations": operations }))
        };
        let advice = self.advice.as_ref().map(|advice| json!({ "due_type": advice.due, "why": advice.text() }));
        let mut work = work_json(&self.total);
        work["utilisation_percent"] = self.utilisation_percent().into();
        work["utilisation_of_rows_percent"] = self.total.utilisation_percent.into();
        let head = json!({
            "device": meters.name,
            "type": meters.kind.to_string(),
            "modelled": self.is_modelled(),
            "status": meters.state.as_str(),
            "reason": meters.reason,
            "engines": meters.engines,
            "pending_jobs_max": meters.pending,
            "counts_since_ms": meters.since_ms,
            "interval_seconds": self.seconds,
            "waiting_now_jobs": meters.waiting,
            "in_service_now_jobs": meters.in_service,
            "waiting_samples": self.waiting.samples,
            "waiting_mean_jobs": self.waiting.mean,
            "waiting_p50_jobs": self.waiting.p50,
            "waiting_p99_jobs": self.waiting.p99,
            "waiting_max_jobs": self.waiting.max,
            "waiting_samples_by_jobs": meters.meters.waiting,
            "cpu_seconds": meters.meters.cpu_ns as f64 / NS_PER_S,
            "cpu_of_a_core_percent": self.cpu_percent(),
            "modelled_cpu_seconds": meters.meters.modelled_cpu_ns as f64 / NS_PER_S,
            "modelled_cpu_of_a_core_percent": self.modelled_cpu_percent(),
            "another_device": advice,
        });
        let rows: Vec<Json> = self.shapes.iter().map(shape).collect();
        joined(joined(head, work), json!({ "rows": rows }))
    }
}

/// Two objects as one, the second's entries behind the first's.
pub(crate) fn joined(first: Json, second: Json) -> Json {
    match (first, second) {
        (Json::Object(mut first), Json::Object(second)) => {
            first.extend(second);
            Json::Object(first)
        }
        (first, _) => first,
    }
}

fn work_json(work: &Work) -> Json {
    let ms = |ns: u64| ns as f64 / NS_PER_MS;
    json!({
        "jobs": work.jobs,
        "errors": work.errors,
        "rate_per_second": work.rate_per_second,
        "utilisation_percent": work.utilisation_percent,
        "busy_seconds": work.busy_ns as f64 / NS_PER_S,
        "execution_mean_ms": work.execution_mean_ms(),
        "execution_p50_ms": ms(work.execution.quantile(0.5)),
        "execution_p99_ms": ms(work.execution.quantile(0.99)),
        "execution_max_ms": ms(work.execution.max()),
        "latency_mean_ms": work.latency.mean() / NS_PER_MS,
        "latency_p50_ms": ms(work.latency.quantile(0.5)),
        "latency_p99_ms": ms(work.latency.quantile(0.99)),
        "latency_max_ms": ms(work.latency.max()),
        "calls": work.calls,
        "lanes_filled": work.calls.map(|_| work.lanes_filled),
        "lanes_per_call": work.lanes_per_call(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_device::{Form, Meters};

    const BEGIN_MS: u64 = 1_795_258_800_000;
    const SECONDS: u64 = 10;
    const CRT: Shape = Shape { form: Form::RsaCrt, bits: 2048 };
    const ME: Shape = Shape { form: Form::RsaMe, bits: 2048 };

    fn device(name: &str, kind: Kind, engines: u64, pending: u64) -> DeviceMeters {
        DeviceMeters {
            name: name.into(),
            kind,
            engines,
            pending,
            state: DeviceState::Running,
            reason: None,
            since_ms: BEGIN_MS - 60_000,
            waiting: 0,
            in_service: 0,
            meters: Meters::default(),
        }
    }

    /// `calls` calls with these operations, `busy_us` each, every job `latency_us` on its way.
    fn work(
        device: &mut DeviceMeters,
        shape: Shape,
        calls: u64,
        operations: &[Operation],
        busy_us: u64,
        latency_us: u64,
    ) {
        for _ in 0..calls {
            let jobs: Vec<_> = operations.iter().map(|operation| (*operation, latency_us * 1000, false)).collect();
            device.meters.call(shape, busy_us * 1000, jobs.into_iter());
        }
    }

    /// What happens between two snapshots ten seconds apart; something had happened before.
    fn between(devices: Vec<DeviceMeters>, happen: impl Fn(&mut [DeviceMeters])) -> Activity {
        let mut earlier = Snapshot { taken_ms: BEGIN_MS, devices };
        for device in &mut earlier.devices {
            work(device, CRT, 3, &[Operation::RsaSign; 2], 50_000, 900_000);
            (0..40).for_each(|_| device.meters.waited(1000));
        }
        let mut later = Snapshot { taken_ms: BEGIN_MS + SECONDS * 1000, ..earlier.clone() };
        happen(&mut later.devices);
        Activity::between(&earlier, &later).unwrap()
    }

    fn close(is: f64, wanted: f64) {
        assert!((is - wanted).abs() < 1e-6, "{is} is not {wanted}");
    }

    #[test]
    fn utilisation_is_rate_times_execution_time_by_engines() {
        let activity =
            between(vec![device("A", Kind::Accelerator, 1, 16), device("C", Kind::Coprocessor, 4, 32)], |all| {
                use Operation::{RsaSign, RsaUnwrap};
                work(&mut all[0], CRT, 1000, &[RsaSign, RsaSign, RsaSign, RsaUnwrap], 1000, 3000);
                work(&mut all[1], CRT, 2000, &[RsaSign], 600, 700);
            });
        let [a, c] = &activity.devices[..] else { panic!() };
        close(a.total.rate_per_second, 400.0);
        close(a.total.execution_mean_ms(), 0.25);
        close(a.utilisation_percent(), 10.0);
        assert_eq!(a.total.lanes_per_call(), Some(4.0));
        let operations = &a.shapes[0].operations;
        assert_eq!(operations.iter().map(|(_, work)| work.jobs).collect::<Vec<_>>(), [3000, 1000]);
        close(operations[0].1.utilisation_percent, 7.5);
        assert_eq!((a.total.execution.max(), a.total.latency.count()), (a.total.execution.quantile(0.5), 4000));
        // 2000 × 0.6 ms on four engines in ten seconds.
        close(c.utilisation_percent(), 3.0);
        close(c.total.execution_mean_ms(), 0.6);
        assert!(a.advice.is_none() && c.advice.is_none());
    }

    #[test]
    fn a_device_ends_at_100_percent_though_its_rows_add_up_to_more() {
        // The published case: 73.8 % and 78.9 % are shown as 100 %.
        let activity = between(vec![device("CARD", Kind::Modelled, 1, 8)], |all| {
            work(&mut all[0], CRT, 14_557, &[Operation::RsaSign], 507, 507);
            work(&mut all[0], ME, 17_152, &[Operation::RsaVerify], 460, 460);
        });
        let card = &activity.devices[0];
        let rows: Vec<String> = card.shapes.iter().map(|row| format!("{:.1}", row.work.utilisation_percent)).collect();
        assert_eq!(rows, ["73.8", "78.9"]);
        close(card.utilisation_percent(), 100.0);
        assert_eq!(card.advice, Some(Advice { due: "MODELLED", why: Why::Saturated }));
        let json = activity.to_json();
        assert!(json["devices"][0]["utilisation_of_rows_percent"].as_f64().unwrap() > 152.0);
        let table = activity.table();
        for words in ["add up to 152.7 %, which is shown as 100", "another device of TYPE(MODELLED) is due"] {
            assert!(table.contains(words), "{table}");
        }
    }

    #[test]
    fn five_of_eight_waiting_places_taken_steadily_say_that_another_device_is_due() {
        let advice = |kind, pending, seen: &[(usize, u64)]| {
            let activity = between(vec![device("D", kind, 1, pending)], |all| {
                for (waiting, times) in seen {
                    (0..*times).for_each(|_| all[0].meters.waited(*waiting));
                }
            });
            activity.devices[0].advice.clone()
        };
        let crowded = |due, waiting, pending| Some(Advice { due, why: Why::Crowded { waiting, pending } });
        assert_eq!(advice(Kind::Coprocessor, 8, &[(5, 60), (0, 40)]), crowded("COPROCESSOR", 5, 8));
        assert_eq!(advice(Kind::Coprocessor, 8, &[(5, 40), (0, 60)]), None);
        assert_eq!(advice(Kind::Coprocessor, 8, &[(4, 100)]), None);
        assert_eq!(advice(Kind::Accelerator, 16, &[(10, 100)]), crowded("ACCELERATOR", 10, 16));
        assert_eq!(advice(Kind::Accelerator, 16, &[(9, 100)]), None);
        assert_eq!(advice(Kind::Modelled, 16, &[(16, 1)]), crowded("MODELLED", 16, 16));
        // No client came, or nothing waits for it.
        assert_eq!(advice(Kind::Coprocessor, 8, &[]), None);
        assert_eq!(advice(Kind::Cpu, 0, &[(0, 100)]), None);
    }

    #[test]
    fn a_waiting_line_is_described_by_who_came() {
        let line = WaitingLine::new(&[50, 0, 30, 0, 19, 0, 0, 1]);
        assert_eq!((line.samples, line.p50, line.p99, line.max), (100, 0, 4, 7));
        close(line.mean, (60.0 + 76.0 + 7.0) / 100.0);
        assert_eq!(WaitingLine::new(&[]), WaitingLine::default());
        assert_eq!(WaitingLine::new(&[0, 0]), WaitingLine::default());
    }

    #[test]
    fn a_device_that_came_or_began_anew_in_between_counts_from_then_on() {
        let old = device("OLD", Kind::Accelerator, 1, 16);
        let mut new = DeviceMeters { since_ms: BEGIN_MS + 5_000, ..device("NEW", Kind::Accelerator, 1, 16) };
        work(&mut new, CRT, 100, &[Operation::RsaSign], 1000, 1000);
        let mut again = device("AGAIN", Kind::Coprocessor, 1, 8);
        work(&mut again, CRT, 70, &[Operation::RsaSign], 1000, 1000);
        let earlier = Snapshot { taken_ms: BEGIN_MS, devices: vec![old, again.clone()] };
        let mut anew = DeviceMeters { since_ms: BEGIN_MS + 8_000, ..device("AGAIN", Kind::Coprocessor, 1, 8) };
        work(&mut anew, CRT, 10, &[Operation::RsaSign], 1000, 1000);
        let later = Snapshot { taken_ms: BEGIN_MS + 10_000, devices: vec![new, anew] };
        let activity = Activity::between(&earlier, &later).unwrap();
        let shown: Vec<_> = activity.devices.iter().map(|device| (device.seconds, device.total.jobs)).collect();
        assert_eq!(shown, [(5.0, 100), (2.0, 10)]);
        close(activity.devices[0].total.rate_per_second, 20.0);
        assert_eq!(activity.gone, ["OLD"]);
        assert!(activity.table().contains("Deleted in between, and left out: OLD.\n"));
        assert!(Activity::between(&later, &earlier).is_none());
        let whole = Activity::since_start(&later);
        assert_eq!((whole.from_ms, whole.devices[1].total.jobs), (BEGIN_MS + 5_000, 10));
        // The first of them counts for as long as the report says, the second not.
        let note = "counted for 2.0 s of these 5.0, since 20";
        for activity in [&whole, &activity] {
            let table = activity.table();
            assert!(table.contains(&note.replace("5.0", &format!("{:.1}", activity.seconds()))), "{table}");
        }
        assert_eq!(whole.table().matches("counted for").count(), 1);
    }

    #[test]
    fn what_was_kept_before_an_idle_time_holds_until_it_ends() {
        let mut kept = Snapshot { taken_ms: BEGIN_MS, ..Snapshot::default() };
        kept.taken_ms = held_until(kept.taken_ms, BEGIN_MS + 30_000);
        assert_eq!(kept.taken_ms, BEGIN_MS);
        kept.taken_ms = held_until(kept.taken_ms, BEGIN_MS + 3_600_000);
        assert_eq!(kept.taken_ms, BEGIN_MS + 3_600_000 - HISTORY_INTERVAL.as_millis() as u64);
    }

    fn mixed() -> Activity {
        let devices = vec![
            device("CPU", Kind::Cpu, 2, 0),
            device("ACCEL1", Kind::Accelerator, 1, 16),
            device("ACCEL2", Kind::Accelerator, 1, 16),
            device("HSM", Kind::Coprocessor, 4, 32),
            device("CARD", Kind::Modelled, 1, 8),
        ];
        between(devices, |all| {
            use Operation::{EcdhDerive, EcdsaSign, RsaSign, RsaUnwrap, RsaVerify};
            work(&mut all[0], ME, 30_000, &[RsaVerify], 25, 26);
            work(&mut all[0], Shape { form: Form::Ecdh, bits: 256 }, 500, &[EcdhDerive], 100, 110);
            all[0].meters.cpu_ns += 800_000_000;
            work(
                &mut all[1],
                CRT,
                9_000,
                &[RsaSign, RsaSign, RsaSign, RsaUnwrap, RsaSign, RsaSign, RsaSign],
                1_100,
                4_000,
            );
            work(&mut all[1], CRT, 10, &[RsaSign], 900, 1_000);
            work(&mut all[1], Shape { form: Form::EcdsaSign, bits: 521 }, 20, &[EcdsaSign; 8], 300, 1_000);
            all[1].meters.cpu_ns += 9_900_000_000;
            (0..1000).for_each(|at| all[1].meters.waited(8 + at % 7));
            all[1].waiting = 11;
            (all[2].state, all[2].reason) = (DeviceState::Offline, Some("this processor has no AVX-512 IFMA".into()));
            work(&mut all[3], CRT, 2_000, &[RsaSign], 600, 650);
            all[3].meters.operations[0].errors += 2;
            all[3].reason = Some("CKR_DEVICE_ERROR".into());
            (0..2000).for_each(|_| all[3].meters.waited(1));
            work(&mut all[4], CRT, 16_000, &[RsaSign], 596, 5_100);
            (0..16_000).for_each(|_| all[4].meters.waited(7));
            all[4].meters.cpu_ns += 6_600_000_000;
            all[4].meters.modelled_cpu_ns += 6_500_000_000;
            (all[4].waiting, all[4].in_service) = (8, 1);
        })
    }

    #[test]
    fn the_table_reads_as_it_is_kept() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reports/crypto.txt");
        let table = mixed().table();
        if std::env::var_os("BULLA_REWRITE").is_some() {
            std::fs::write(&path, &table).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        for (number, (was, is)) in kept.lines().zip(table.lines()).enumerate() {
            assert_eq!(was, is, "{}:{}", path.display(), number + 1);
        }
        assert_eq!(kept.lines().count(), table.lines().count());
    }

    #[test]
    fn every_number_in_json_says_its_unit_and_counts_are_those_of_the_table() {
        let activity = mixed();
        let json = activity.to_json();
        let units = [
            "_ms",
            "_seconds",
            "_percent",
            "_per_second",
            "_jobs",
            "_max",
            "_bits",
            "_by_jobs",
            "_samples",
            "_per_call",
        ];
        let counts = ["jobs", "errors", "calls", "lanes_filled", "engines"];
        fn visit(json: &Json, each: &mut dyn FnMut(&str, &Json)) {
            match json {
                Json::Array(list) => list.iter().for_each(|entry| visit(entry, each)),
                Json::Object(map) => map.iter().for_each(|(name, value)| {
                    each(name, value);
                    visit(value, each);
                }),
                _ => {}
            }
        }
        let mut numbers = 0;
        visit(&json, &mut |name, value| {
            if value.is_number() {
                numbers += 1;
                assert!(counts.contains(&name) || units.iter().any(|unit| name.ends_with(unit)), "{name}");
            }
        });
        assert!(numbers > 200, "{numbers}");
        for (device, shown) in activity.devices.iter().zip(json["devices"].as_array().unwrap()) {
            let rows = shown["rows"].as_array().unwrap();
            let sum = |list: &[Json]| list.iter().map(|row| row["jobs"].as_u64().unwrap()).sum::<u64>();
            assert_eq!(sum(rows), device.device.meters.count());
            for row in rows {
                assert_eq!(sum(row["operations"].as_array().unwrap()), row["jobs"].as_u64().unwrap());
            }
        }
        assert_eq!(json["devices"][4]["modelled"], json!(true));
        assert_eq!(json["devices"][4]["modelled_cpu_seconds"], json!(6.5));
    }
}
