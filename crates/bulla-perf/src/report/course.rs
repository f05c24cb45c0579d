//! Charts over time: how it went while it was measured.

use super::axis::{Along, Axis};
use super::chart::{Chart, Value};
use super::document::Figure;
use super::field::{Field, differing};
use super::group::Group;
use super::lines::{Curve, Lines, Mark, Place, Point};
use super::number::number;
use super::sheet::remarks;
use super::table::{Cell, Table};
use super::workload::Workload;
use crate::result::Moment;

/// Most curves of one chart.
const CURVES_MAX: usize = 6;
/// Most rows of the table under a chart over time; each is a mean of what lies between two times.
const ROWS_MAX: f64 = 20.0;

/// Of [`WATCHED`], what says how messages wait.
const OF_QUEUES: [&str; 4] = ["depth-over-time", "xqtime-over-time", "qtime-over-time", "scratch-over-time"];

/// What is watched over time.
struct Watched {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    measure: &'static str,
    of: fn(&Moment) -> Option<f64>,
}

const WATCHED: [Watched; 6] = [
    Watched {
        name: "depth-over-time",
        title: "Messages on the queue over time",
        description: "A line that climbs is a backlog that grows: more comes than goes.",
        measure: "messages on the queue",
        of: |moment| moment.depth,
    },
    Watched {
        name: "xqtime-over-time",
        title: "XQTIME over time",
        description: "How long messages wait on the transmission queue. Flat where the rate holds.",
        measure: "µs on the transmission queue",
        of: |moment| moment.xqtime_us,
    },
    Watched {
        name: "qtime-over-time",
        title: "Time on the queue over time",
        description: "QTIME: how long messages wait between their put and their get.",
        measure: "µs on the queue",
        of: |moment| moment.qtime_us,
    },
    Watched {
        name: "scratch-over-time",
        title: "Scratch files over time",
        description: "Messages beyond the memory that there is for them lie in scratch files until they are got.",
        measure: "bytes in scratch files",
        of: |moment| moment.scratch_used_bytes,
    },
    Watched {
        name: "cores-over-time",
        title: "Cores busy over time",
        description: "Cores of this machine that were busy, with whatever.",
        measure: "cores busy",
        of: |moment| moment.cores_busy,
    },
    Watched {
        name: "device-over-time",
        title: "The busiest device over time",
        description: "At 100 % another device is due.",
        measure: "% of the time busy",
        of: |moment| moment.device_busy_percent,
    },
];

/// The charts of queues for which there is something to show, under the name of a study.
#[must_use]
pub fn of_queues(study: &str, groups: &[&Group]) -> Vec<Figure> {
    let fields = differing(groups);
    let watched = WATCHED.iter().filter(|watched| OF_QUEUES.contains(&watched.name));
    watched.flat_map(|watched| watch(&Workload(study), groups, &fields, watched)).collect()
}

/// The charts for which there is something to show; of each group the sample whose rate is the median.
pub(super) fn courses(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let rate = Watched {
        name: "rate-over-time",
        title: "Rate over time",
        description: "The rate of each second or so.",
        measure: workload.measure(),
        of: |moment| Some(moment.rate),
    };
    let fields = differing(groups);
    std::iter::once(&rate).chain(&WATCHED).flat_map(|watched| watch(workload, groups, &fields, watched)).collect()
}

fn watch(workload: &Workload, groups: &[&Group], fields: &[Field], watched: &Watched) -> Vec<Figure> {
    let seen: Vec<(&Group, Curve)> = groups
        .iter()
        .filter_map(|group| {
            let sample = group.typical()?;
            let steady = sample.unsteady.is_empty();
            let value = |y: f64| Value { steady, modelled: group.is_modelled(), ..Value::exactly(y) };
            let points: Vec<Point> = sample
                .course
                .iter()
                .filter_map(|moment| Some(Point { x: moment.at, y: value((watched.of)(moment)?) }))
                .collect();
            let name = if steady { group.label(fields) } else { format!("{} (not steady)", group.label(fields)) };
            (points.len() > 1).then_some((*group, Curve { name, points }))
        })
        .collect();
    let parts = seen.len().div_ceil(CURVES_MAX);
    let each = seen.len().div_ceil(parts.max(1)).max(1);
    seen.chunks(each).enumerate().map(|(part, seen)| figure(workload, watched, (part, parts), seen)).collect()
}

fn figure(workload: &Workload, watched: &Watched, (part, parts): (usize, usize), seen: &[(&Group, Curve)]) -> Figure {
    let curves: Vec<Curve> = seen.iter().map(|(_, curve)| curve.clone()).collect();
    let told: Vec<(&str, Vec<String>)> =
        seen.iter().map(|(group, curve)| (curve.name.as_str(), group.remarks())).collect();
    let name = workload.figure(watched.name);
    let title =
        if parts == 1 { watched.title.to_owned() } else { format!("{} ({} of {parts})", watched.title, part + 1) };
    // One target for all of them is a line; several would be a thicket.
    let mut targets: Vec<u64> = seen.iter().map(|(group, _)| group.configuration.target_rate).collect();
    targets.dedup();
    let marks = match targets.as_slice() {
        [target] if *target > 0 && watched.name == "rate-over-time" => {
            vec![Mark { name: "target".to_owned(), place: Place::High(*target as f64) }]
        }
        _ => Vec::new(),
    };
    Figure {
        name: if part == 0 { name } else { format!("{name}-{}", part + 1) },
        title,
        description: watched.description.to_owned(),
        remarks: remarks(told.iter().map(|(label, remarks)| (*label, remarks.as_slice()))),
        table: table(watched, &curves),
        chart: Chart::Lines(Lines {
            x: Axis { measure: "seconds".to_owned(), along: Along::default() },
            y: Axis { measure: watched.measure.to_owned(), along: Along::default() },
            curves,
            marks,
        }),
    }
}

/// The curves in numbers: means over equal parts of the time.
fn table(watched: &Watched, curves: &[Curve]) -> Table {
    let points = || curves.iter().flat_map(|curve| &curve.points).filter(|point| point.x.is_finite() && point.x >= 0.0);
    let end = points().map(|point| point.x).fold(0.0, f64::max);
    let count = points().count() as f64 / curves.len().max(1) as f64;
    let rows = count.min(ROWS_MAX).ceil().max(1.0);
    let each = (end / rows).max(f64::MIN_POSITIVE);
    let row = |nth: usize| {
        let (from, to) = (nth as f64 * each, (nth as f64 + 1.0) * each);
        let is_in = |point: &&Point| {
            (point.x > from || nth == 0 && point.x >= 0.0)
                && (point.x <= to || nth as f64 + 1.0 >= rows && point.x <= end)
        };
        let mean = |curve: &Curve| {
            let values: Vec<f64> = curve.points.iter().filter(is_in).map(|point| point.y.middle).collect();
            if values.is_empty() { Cell::Empty } else { Cell::Number(values.iter().sum::<f64>() / values.len() as f64) }
        };
        std::iter::once(Cell::text(format!("{} to {}", number(from), number(to))))
            .chain(curves.iter().map(mean))
            .collect()
    };
    let mut columns = vec!["seconds".to_owned()];
    columns.extend(curves.iter().map(|curve| curve.name.clone()));
    let caption = format!("{}, {}: means of equal parts of the time", watched.title, watched.measure);
    Table { caption, columns, rows: (0..rows as usize).map(row).collect() }
}
