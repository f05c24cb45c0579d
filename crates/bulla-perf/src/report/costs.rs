//! Charts of what a transaction costs: processor time by role, adapters' time, devices' time; and what else was found.

use super::document::Figure;
use super::field::differing;
use super::group::Group;
use super::sheet::{Row, Shape, Sheet};
use super::table::{Cell, Table};
use super::workload::Workload;
use crate::result::{DeviceUse, ROLES, Sample, TaskUse};
use std::collections::BTreeSet;

/// Most columns of a table of findings, and most series of a chart, that names from files can make.
const NAMES_MAX: usize = 24;

/// Processor time a transaction, stacked by role.
pub(super) fn by_role(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let fields = differing(groups);
    let others =
        names(groups, |sample| sample.cpu_us.keys().map(String::as_str).filter(|role| !ROLES.contains(role)).collect());
    let roles: Vec<String> = ROLES.iter().map(ToString::to_string).chain(others).collect();
    let row = |group: &&Group| {
        let value =
            |role: &String| group.value(|sample| sample.cpu_us.get(role).copied()).filter(|value| value.middle > 0.0);
        Row {
            label: group.label(&fields),
            values: roles.iter().map(value).collect(),
            beside: vec![Cell::value(group.value(|sample| Some(sample.process_cpu_us).filter(|time| *time > 0.0)))],
            remarks: group.remarks(),
            ..Row::default()
        }
    };
    let sheet = Sheet {
        name: workload.figure("cost"),
        title: "Cost of a transaction by role".to_owned(),
        description: "Processor time that one transaction takes, by what spends it; the application is the load generator. Shorter bars are better.".to_owned(),
        measure: "µs of processor time a transaction".to_owned(),
        rows_are: "configuration".to_owned(),
        series: roles.clone(),
        shape: Shape::Panels,
        only_beside: false,
        beside: vec!["the processes' own count".to_owned()],
        rows: groups.iter().map(row).collect(),
    };
    sheet.figures()
}

/// Adapters: the processor time of a request and its waiting.
pub(super) fn by_adapter(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let fields = differing(groups);
    let row = |group: &&Group| {
        let mean = |of: fn(&TaskUse) -> f64| group.value(|sample| of_a_request(sample, of));
        let busiest = group.value(|sample| adapters(sample).map(|task| task.busy_percent).reduce(f64::max));
        let used = group.value(|sample| {
            Some(adapters(sample).filter(|task| task.requests > 0).count() as f64).filter(|count| *count > 0.0)
        });
        Row {
            label: group.label(&fields),
            values: vec![mean(|task| task.cpu_us), mean(|task| task.wait_us)],
            beside: vec![Cell::value(mean(|task| task.elapsed_us)), Cell::value(busiest), Cell::value(used)],
            remarks: group.remarks(),
            ..Row::default()
        }
    };
    let sheet = Sheet {
        name: workload.figure("adapters"),
        title: "Adapters: processor time and waiting of a request".to_owned(),
        description:
            "An adapter seals or opens. What it does not spend on the processor it waits, mostly for a crypto device."
                .to_owned(),
        measure: "µs a request".to_owned(),
        rows_are: "configuration".to_owned(),
        series: vec!["on the processor".to_owned(), "waiting".to_owned()],
        shape: Shape::Stacked,
        only_beside: false,
        beside: ["elapsed", "busiest adapter %", "adapters used"].map(str::to_owned).to_vec(),
        rows: groups.iter().map(row).collect(),
    };
    sheet.figures()
}

fn adapters(sample: &Sample) -> impl Iterator<Item = &TaskUse> {
    sample.tasks.iter().filter(|task| task.kind.eq_ignore_ascii_case("adapter"))
}

/// The mean over the requests of all adapters.
fn of_a_request(sample: &Sample, of: fn(&TaskUse) -> f64) -> Option<f64> {
    let (mut requests, mut time) = (0.0, 0.0);
    for task in adapters(sample) {
        requests += task.requests as f64;
        time += of(task) * task.requests as f64;
    }
    (requests > 0.0).then(|| time / requests)
}

/// Devices: their time for a transaction, split by device and format.
pub(super) fn by_device(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let fields = differing(groups);
    let mut series: Vec<String> = Vec::new();
    for (device, format) in groups.iter().flat_map(|group| &group.samples).flat_map(parts) {
        let name = named(device, format);
        if !series.contains(&name) && series.len() < NAMES_MAX {
            series.push(name);
        }
    }
    series.sort();
    let row = |group: &&Group| {
        let value =
            |name: &String| group.value(|sample| of_a_transaction(sample, name)).filter(|value| value.middle > 0.0);
        let busiest = group.value(|sample| sample.devices.iter().map(|device| device.busy_percent).reduce(f64::max));
        Row {
            label: group.label(&fields),
            values: series.iter().map(value).collect(),
            beside: vec![Cell::value(busiest)],
            remarks: group.remarks(),
            ..Row::default()
        }
    };
    let sheet = Sheet {
        name: workload.figure("devices"),
        title: "Device time of a transaction by device and format".to_owned(),
        description: "Execution time of the operations with private and public keys that a transaction needs. ME is the plain exponent, CRT the private key by its primes, EC elliptic curves.".to_owned(),
        measure: "µs of device time a transaction".to_owned(),
        rows_are: "configuration".to_owned(),
        series: series.clone(),
        shape: Shape::Stacked,
        only_beside: false,
        beside: vec!["busiest device %".to_owned()],
        rows: groups.iter().map(row).collect(),
    };
    sheet.figures()
}

/// Each device of a sample with each format that it computed.
fn parts(sample: &Sample) -> impl Iterator<Item = (&DeviceUse, &str)> {
    sample
        .devices
        .iter()
        .flat_map(|device| device.operations.iter().map(move |operation| (device, operation.format.as_str())))
}

fn named(device: &DeviceUse, format: &str) -> String {
    if device.kind.eq_ignore_ascii_case("modelled") {
        return format!("{} {format} (modelled)", device.name);
    }
    format!("{} {format}", device.kind.to_lowercase())
}

fn of_a_transaction(sample: &Sample, name: &str) -> Option<f64> {
    let of_that_name =
        sample.devices.iter().flat_map(|device| device.operations.iter().map(move |operation| (device, operation)));
    let time: f64 = of_that_name
        .filter(|(device, operation)| named(device, &operation.format) == name)
        .map(|(_, operation)| operation.count as f64 * operation.execution_us)
        .sum();
    (sample.transactions > 0).then(|| time / sample.transactions as f64)
}

/// What the workload found beside all that; none where it found nothing.
pub(super) fn found(groups: &[&Group]) -> Option<Table> {
    let fields = differing(groups);
    let names = names(groups, |sample| sample.found.keys().map(String::as_str).collect());
    let mut columns = vec!["configuration".to_owned()];
    columns.extend(names.iter().cloned());
    let row = |group: &&Group| {
        let values = names.iter().map(|name| Cell::value(group.value(|sample| sample.found.get(name).copied())));
        std::iter::once(Cell::text(group.label(&fields))).chain(values).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<Cell>> =
        groups.iter().map(row).filter(|row| row[1..].iter().any(|cell| *cell != Cell::Empty)).collect();
    (!rows.is_empty()).then(|| Table { caption: "What else was found".to_owned(), columns, rows })
}

/// Names that samples use, each once, and not more than a table can have.
fn names<'a>(groups: &[&'a Group], of: impl Fn(&'a Sample) -> Vec<&'a str>) -> Vec<String> {
    let names: BTreeSet<&str> = groups.iter().flat_map(|group| &group.samples).flat_map(of).collect();
    names.into_iter().take(NAMES_MAX).map(str::to_owned).collect()
}
