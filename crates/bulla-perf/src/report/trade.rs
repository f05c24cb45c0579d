//! The trading application: rate, cores, cost and response time against software's, beside what was published.
//!
//! The published figures are those of a study of such an application on a mainframe, with RSA 4096 on TLS 1.2 and four
//! processors: throughput and cost in percent of software's, and response times (`docs/measurements.md` says which).

use super::chart::Value;
use super::document::Figure;
use super::field::{Field, differing};
use super::group::{Group, Measured};
use super::sheet::{Row, Sheet};
use super::table::{Cell, Table};
use super::workload::Workload;
use crate::result::{Line, Sample};
use crate::site::Devices;

/// What a kind of setup was published with; empty where nothing was.
pub(crate) struct Published {
    /// Whether it is that setup.
    is: fn(&Devices) -> bool,
    /// Throughput against software's.
    pub(crate) rate: &'static str,
    /// Cost of a transaction against software's.
    pub(crate) cost: &'static str,
    /// Response time.
    pub(crate) response: &'static str,
    /// Jobs with the card, of 8 that it takes at once.
    pub(crate) pending: &'static str,
    /// Processors used.
    pub(crate) cores: &'static str,
}

const NOTHING: Published = Published { is: |_| false, rate: "", cost: "", response: "", pending: "", cores: "" };

const PUBLISHED: [Published; 4] = [
    Published { is: |devices| devices.software, rate: "100 %", cost: "100 %", response: "over 20 ms", ..NOTHING },
    Published { is: |devices| *devices == Devices::default(), rate: "2 ×", ..NOTHING },
    Published {
        is: |devices| cards(devices) == 1,
        rate: "more than 5 ×",
        cost: "below a sixth",
        pending: "5 to 8",
        cores: "about ¾",
        ..NOTHING
    },
    Published { is: |devices| cards(devices) == 2, rate: "6 ×", cost: "below a sixth", response: "5 ms", ..NOTHING },
];

fn cards(devices: &Devices) -> u32 {
    devices.accelerators + devices.coprocessors
}

/// Processor time of the queue manager for a transaction, microseconds: without the application's, and without the
/// arithmetic of modelled cards, which a card would do.
#[must_use]
pub fn cost_us(sample: &Sample) -> f64 {
    let of = |name: &str| sample.cpu_us.get(name).copied().unwrap_or(0.0);
    let modelled = sample.found.get("modelled-cpu-us").copied().unwrap_or(0.0);
    (sample.process_cpu_us - of("application") - modelled).max(0.0)
}

/// Cores that the queue manager has used, counted in the same way.
#[must_use]
pub fn cores(sample: &Sample) -> f64 {
    sample.rate * cost_us(sample) / 1e6
}

/// Jobs that were with devices on average, waiting or under way: how many there were, times how long each took
/// (Little's law).
#[must_use]
pub fn pending(sample: &Sample) -> f64 {
    let of_all = sample.devices.iter().flat_map(|device| &device.operations);
    let us: f64 = of_all.map(|used| used.count as f64 * used.latency_us).sum();
    us / (sample.seconds * 1e6).max(1.0)
}

/// How busy the busiest device was, percent.
#[must_use]
pub fn busiest(sample: &Sample) -> Option<f64> {
    sample.devices.iter().map(|device| device.busy_percent).reduce(f64::max)
}

/// A group against the one that has software where it has other devices; none where that was not measured.
pub(crate) fn against(group: &Group, groups: &[&Group], of: fn(&Sample) -> f64) -> Option<Value> {
    let alike = |other: &&&Group| {
        let differs = |field: &Field| *field != Field::Devices && field.short(other) != field.short(group);
        other.configuration.devices == "software" && !Field::ALL.iter().any(differs)
    };
    let software = groups.iter().find(alike)?.value(|sample| Some(of(sample)))?.middle;
    group.value(|sample| Some(100.0 * of(sample) / software))
}

/// The published word for a group's setup; nothing where none was published for such a one.
pub(crate) fn published(group: &Group, word: fn(&Published) -> &'static str) -> &'static str {
    let configuration = &group.configuration;
    let is_shape = configuration.key == "rsa4096" && configuration.requests == 1 && !configuration.resumed;
    let Some(devices) = configuration.devices.parse::<Devices>().ok().filter(|_| is_shape) else {
        return "";
    };
    PUBLISHED.iter().find(|known| (known.is)(&devices)).map_or("", word)
}

/// One of the four charts.
struct Kind {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    measure: &'static str,
    value: fn(&Group, &[&Group]) -> Option<Value>,
    published: fn(&Published) -> &'static str,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "throughput",
        title: "Throughput against software",
        description: "Transactions a second; what software does with the same key and connections is 100 %. Longer bars are better.",
        measure: "percent of software's transactions a second",
        value: |group, groups| against(group, groups, |sample| sample.rate),
        published: |known| known.rate,
    },
    Kind {
        name: "cores",
        title: "Cores of the queue manager",
        description: "Cores that the queue manager has used, without the customers, and without the arithmetic of modelled cards.",
        measure: "cores",
        value: |group, _| group.value(|sample| Some(cores(sample))),
        published: |_| "",
    },
    Kind {
        name: "cost-against-software",
        title: "Cost of a transaction against software",
        description: "The queue manager's processor time for a transaction, without the arithmetic of modelled cards. Shorter bars are better.",
        measure: "percent of software's processor time a transaction",
        value: |group, groups| against(group, groups, cost_us),
        published: |known| known.cost,
    },
    Kind {
        name: "response",
        title: "Response time",
        description: "How long a customer waits for a transaction on average, and 99 of 100 at most, with the connecting. Shorter bars are better.",
        measure: "milliseconds",
        value: |group, _| group.value(|sample| Some(sample.latency_us?.mean / 1e3)),
        published: |known| known.response,
    },
];

/// The four charts.
pub(super) fn charts(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let fields = differing(groups);
    let figure = |kind: &Kind| {
        let row = |group: &&Group| Row {
            label: group.label(&fields),
            values: match kind.name {
                "response" => {
                    vec![(kind.value)(group, groups), group.value(|sample| Some(sample.latency_us?.p99 / 1e3))]
                }
                _ => vec![(kind.value)(group, groups)],
            },
            beside: vec![Cell::text(published(group, kind.published))],
            remarks: group.remarks(),
            ..Row::default()
        };
        let series = if kind.name == "response" { vec!["mean", "99 of 100"] } else { vec![kind.measure] };
        let sheet = Sheet {
            name: workload.figure(kind.name),
            title: kind.title.to_owned(),
            description: kind.description.to_owned(),
            measure: kind.measure.to_owned(),
            rows_are: "configuration".to_owned(),
            series: series.into_iter().map(str::to_owned).collect(),
            beside: vec!["published".to_owned()],
            rows: groups.iter().map(row).collect(),
            ..Sheet::default()
        };
        sheet.figures()
    };
    KINDS.iter().flat_map(figure).collect()
}

/// All four beside what was published, and what devices had to do, as one table.
pub(super) fn table(groups: &[&Group]) -> Table {
    let fields = differing(groups);
    let row = |group: &&Group| {
        let value = |of: fn(&Sample) -> Option<f64>| Cell::value(group.value(of));
        let told = |word: fn(&Published) -> &'static str| Cell::text(published(group, word));
        vec![
            Cell::text(group.label(&fields)),
            value(|sample| Some(sample.rate)),
            Cell::value(against(group, groups, |sample| sample.rate)),
            told(|known| known.rate),
            value(|sample| Some(cores(sample))),
            Cell::value(against(group, groups, cost_us)),
            told(|known| known.cost),
            value(|sample| Some(sample.latency_us?.mean / 1e3)),
            value(|sample| Some(sample.latency_us?.p99 / 1e3)),
            told(|known| known.response),
            value(|sample| Some(pending(sample))),
            value(busiest),
        ]
    };
    let columns = [
        "configuration",
        "transactions/s",
        "% of software",
        "published",
        "cores of the queue manager",
        "cost, % of software",
        "published",
        "mean ms",
        "99 of 100, ms",
        "published",
        "jobs with devices",
        "busiest device, %",
    ];
    Table {
        caption: "Against software, and beside what was published".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: groups.iter().map(row).collect(),
    }
}

/// The table of a run that has just ended, as text; empty where nothing was measured.
#[must_use]
pub fn normalised(samples: &[Vec<Sample>]) -> String {
    let mut measured = Measured::default();
    measured.add(samples.iter().flatten().map(|sample| Line::Sample(Box::new(sample.clone()))).collect());
    let groups: Vec<&Group> = measured.groups.iter().collect();
    if groups.is_empty() { String::new() } else { table(&groups).markdown() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::result::{DeviceUse, Latency, OperationUse};

    /// Invented.
    fn sample(devices: &str, requests: u32, rate: f64, cost: f64) -> Sample {
        let configuration =
            Configuration { key: "rsa4096".into(), devices: devices.into(), requests, ..Configuration::default() };
        Sample {
            workload: "trade".into(),
            configuration,
            rate,
            seconds: 10.0,
            process_cpu_us: cost + 100.0,
            cpu_us: [("application".to_owned(), 70.0)].into(),
            found: [("modelled-cpu-us".to_owned(), 30.0)].into(),
            latency_us: Some(Latency { mean: 5000.0, p99: 9000.0, ..Latency::default() }),
            ..Sample::default()
        }
    }

    fn shown(samples: &[Sample]) -> String {
        normalised(&samples.iter().map(|sample| vec![sample.clone()]).collect::<Vec<_>>())
    }

    #[test]
    fn each_setup_is_compared_with_software_of_its_own_shape() {
        let samples = [
            sample("software", 1, 100.0, 9000.0),
            sample("modelled:1a", 1, 550.0, 900.0),
            sample("software", 100, 1000.0, 400.0),
            sample("modelled:1a", 100, 1500.0, 300.0),
        ];
        let text = shown(&samples);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("(modelled)")).collect();
        assert!(rows[0].contains("550 (modelled) ") && rows[0].contains("more than 5 ×"), "{text}");
        assert!(rows[1].contains("150 (modelled)") && !rows[1].contains("more than 5 ×"), "{text}");
        let alone = shown(&samples[1..2]);
        assert!(alone.contains("| modelled | 550 (modelled) |  | more than"), "nothing to compare with: {alone}");
        assert_eq!(shown(&[]), "");
    }

    #[test]
    fn the_cost_is_that_of_the_queue_manager_without_modelled_arithmetic() {
        let sample = sample("modelled:2a", 1, 200.0, 1000.0);
        assert_eq!((cost_us(&sample), cores(&sample)), (1000.0, 0.2));
    }

    #[test]
    fn jobs_with_devices_follow_from_how_many_there_were_and_how_long_each_took() {
        let used = OperationUse { count: 1000, latency_us: 40_000.0, ..OperationUse::default() };
        let devices = vec![DeviceUse { operations: vec![used], ..DeviceUse::default() }];
        assert_eq!(pending(&Sample { devices, ..sample("cpu", 1, 100.0, 1.0) }), 4.0);
    }
}
