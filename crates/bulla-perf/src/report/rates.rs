//! Charts of how many transactions a second there were, and how long each took.

use super::axis::{Along, Axis};
use super::chart::{Chart, Value};
use super::document::Figure;
use super::field::{Field, differing};
use super::group::Group;
use super::lines::{Curve, Lines, Point};
use super::number::number;
use super::pivot::{Pivot, pivot};
use super::sheet::{Row, Sheet, remarks};
use super::table::{Cell, Table};
use super::workload::Workload;
use std::ptr;

/// A curve over key reuse has so many points at least; fewer are rows of other charts.
const REUSES_MIN: usize = 3;

/// And a curve over how many share a signature so many.
const BATCHES_MIN: usize = 3;

/// What charts of one kind have in common.
struct Kind<'a> {
    name: &'a str,
    title: &'a str,
    description: &'a str,
    measure: &'a str,
}

/// Rates by whatever differs. Every group is in one of the charts at least.
pub(super) fn rates(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let fields = differing(groups);
    let but = |without: &[Field]| fields.iter().copied().filter(|field| !without.contains(field)).collect::<Vec<_>>();
    let measure = workload.measure();
    let (mut figures, mut shown): (Vec<Figure>, Vec<&Group>) = (Vec::new(), Vec::new());
    let mut add = |pivots: Vec<Pivot<'_>>, kind: &Kind<'_>, curves: bool| {
        let several = pivots.len() > 1;
        for (at, pivot) in pivots.iter().enumerate() {
            shown.extend(groups.iter().filter(|group| pivot.groups().any(|other| ptr::eq(other, **group))));
            figures.extend(drawn(workload, kind, pivot, (several, at), curves));
        }
    };
    if fields.contains(&Field::Key) {
        let kind = Kind {
            name: "rate-by-key",
            title: "Rate by key size",
            description: "Longer keys cost more for each signature and each key that is unwrapped. Longer bars are better.",
            measure,
        };
        let keyed: Vec<&Group> = groups.iter().copied().filter(|group| !group.configuration.key.is_empty()).collect();
        add(pivot(&keyed, Field::Key, &[Field::Quality, Field::Reuse, Field::SignBatch]), &kind, false);
    }
    let mut reuses: Vec<_> =
        groups.iter().map(|group| Field::Reuse.text(group)).filter(|text| !text.is_empty()).collect();
    reuses.sort();
    reuses.dedup();
    if reuses.len() >= REUSES_MIN {
        let kind = Kind {
            name: "rate-by-reuse",
            title: "Rate by key reuse",
            description: "A content key that is used again saves the work of wrapping and unwrapping one. Higher is better.",
            measure,
        };
        let confidential: Vec<&Group> =
            groups.iter().copied().filter(|group| !Field::Reuse.text(group).is_empty()).collect();
        add(pivot(&confidential, Field::Reuse, &but(&[Field::Reuse, Field::Bytes])), &kind, true);
    }
    let mut batches: Vec<_> =
        groups.iter().map(|group| Field::SignBatch.text(group)).filter(|text| !text.is_empty()).collect();
    batches.sort();
    batches.dedup();
    if batches.len() >= BATCHES_MIN {
        let kind = Kind {
            name: "rate-by-batch",
            title: "Rate by messages of a signature",
            description: "One signature for many messages saves the others' use of the private key. Higher is better.",
            measure,
        };
        let signed: Vec<&Group> =
            groups.iter().copied().filter(|group| !Field::SignBatch.text(group).is_empty()).collect();
        add(pivot(&signed, Field::SignBatch, &but(&[Field::SignBatch, Field::Bytes, Field::InFlight])), &kind, true);
    }
    if fields.contains(&Field::Pairs) {
        let kind = Kind {
            name: "rate-by-pairs",
            title: "Rate by number of pairs",
            description: "How the rate grows with what is done at the same time. Higher is better.",
            measure,
        };
        add(pivot(groups, Field::Pairs, &but(&[Field::Pairs, Field::Bytes])), &kind, true);
    }
    if fields.contains(&Field::Adapters) {
        let kind = Kind {
            name: "rate-by-adapters",
            title: "Rate by adapters and dispatchers",
            description: "What more threads for sealing and opening, and for sockets, bring. Higher is better.",
            measure,
        };
        add(pivot(groups, Field::Adapters, &but(&[Field::Adapters, Field::Bytes])), &kind, true);
    }
    if fields.contains(&Field::Dispatchers) {
        let kind = Kind {
            name: "rate-by-dispatchers",
            title: "Rate by dispatchers and adapters",
            description: "What more threads for sockets, and for sealing and opening, bring. Higher is better.",
            measure,
        };
        add(pivot(groups, Field::Dispatchers, &but(&[Field::Dispatchers, Field::Bytes])), &kind, true);
    }
    // A round trip by cipher has a chart of its own.
    let timed: Vec<&Group> = by_cipher(workload, groups).iter().flat_map(Pivot::groups).collect();
    shown.extend(timed);
    let rest: Vec<&Group> =
        groups.iter().copied().filter(|group| !shown.iter().any(|other| ptr::eq(*other, *group))).collect();
    figures.extend(listed(workload, &rest, &fields));
    figures
}

/// The rates of groups that no other chart shows.
fn listed(workload: &Workload, groups: &[&Group], fields: &[Field]) -> Vec<Figure> {
    let row = |group: &&Group| Row {
        label: group.label(fields),
        values: vec![group.rate()],
        remarks: group.remarks(),
        ..Row::default()
    };
    let sheet = Sheet {
        name: workload.figure("rate"),
        title: "Rate".to_owned(),
        description: "Longer bars are better.".to_owned(),
        measure: workload.measure().to_owned(),
        rows_are: "configuration".to_owned(),
        series: vec![workload.measure().to_owned()],
        rows: groups.iter().map(row).collect(),
        ..Sheet::default()
    };
    sheet.figures()
}

/// What was reached where a rate was to be held.
pub(super) fn targets(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let fields: Vec<Field> = differing(groups);
    let aimed = groups.iter().filter(|group| group.configuration.target_rate > 0);
    let row = |group: &&Group| {
        let least_moment = group.value(|sample| sample.course.iter().map(|moment| moment.rate).reduce(f64::min));
        let deepest = group.value(|sample| sample.course.iter().filter_map(|moment| moment.depth).reduce(f64::max));
        let goals: Vec<_> = group.samples.iter().filter_map(|sample| sample.goal.as_ref()).collect();
        let held = match goals.iter().filter(|goal| goal.held).count() {
            _ if goals.is_empty() => String::new(),
            held if held == goals.len() => "held".to_owned(),
            held => format!("held in {held} of {}", goals.len()),
        };
        Row {
            label: group.label(&fields),
            values: vec![group.rate()],
            target: Some(group.configuration.target_rate as f64),
            beside: vec![
                least_moment.map_or(Cell::Empty, |value| Cell::Number(value.least)),
                deepest.map_or(Cell::Empty, |value| Cell::Number(value.most)),
                Cell::text(held),
                Cell::text(if group.is_steady() { "steady" } else { "not steady" }),
            ],
            remarks: group.remarks(),
        }
    };
    let sheet = Sheet {
        name: workload.figure("targets"),
        title: "Achieved against target".to_owned(),
        description: "What was asked for is the thick line; a bar that reaches it held the rate.".to_owned(),
        measure: workload.measure().to_owned(),
        rows_are: "configuration".to_owned(),
        series: vec!["achieved".to_owned()],
        beside: ["least at a moment", "most on the queue", "goal", "steadiness"].map(str::to_owned).to_vec(),
        rows: aimed.map(row).collect(),
        ..Sheet::default()
    };
    sheet.figures()
}

/// How long a round trip took by cipher and key reset.
pub(super) fn round_trips(workload: &Workload, groups: &[&Group]) -> Vec<Figure> {
    let kind = Kind {
        name: "round-trip",
        title: "Round trip by cipher and key reset",
        description: "What encryption on the way adds to a message and its answer. Shorter bars are better.",
        measure: "µs a round trip",
    };
    let pivots = by_cipher(workload, groups);
    let several = pivots.len() > 1;
    let figures = pivots.iter().enumerate().flat_map(|(at, pivot)| bars(workload, &kind, pivot, (several, at), took));
    figures.collect()
}

fn by_cipher<'a>(workload: &Workload<'_>, groups: &[&'a Group]) -> Vec<Pivot<'a>> {
    if !workload.counts_round_trips() {
        return Vec::new();
    }
    pivot(groups, Field::Cipher, &[Field::Certificates, Field::Reset])
}

/// How long a transaction took: at the median, or on average as the rate says.
fn took(group: &Group) -> Option<Value> {
    group.value(|sample| {
        let under_way = f64::from(sample.configuration.pairs) * f64::from(sample.configuration.in_flight);
        match sample.latency_us {
            Some(latency) if latency.p50 > 0.0 => Some(latency.p50),
            Some(latency) if latency.mean > 0.0 => Some(latency.mean),
            _ => Some(under_way * 1e6 / sample.rate).filter(|_| sample.rate > 0.0),
        }
    })
}

fn drawn(workload: &Workload, kind: &Kind<'_>, pivot: &Pivot<'_>, nth: (bool, usize), curves: bool) -> Vec<Figure> {
    if curves { vec![lines(workload, kind, pivot, nth)] } else { bars(workload, kind, pivot, nth, Group::rate) }
}

fn titled(workload: &Workload, kind: &Kind<'_>, pivot: &Pivot<'_>, (several, at): (bool, usize)) -> (String, String) {
    let title = if pivot.facet.is_empty() { kind.title.to_owned() } else { format!("{}: {}", kind.title, pivot.facet) };
    let name = workload.figure(kind.name);
    (if several && at > 0 { format!("{name}-{}", at + 1) } else { name }, title)
}

/// The kind's description, and how many messages were in flight where that is not the same for all.
fn described(kind: &Kind<'_>, pivot: &Pivot<'_>) -> String {
    let windows: Vec<String> = pivot.windows.iter().map(u32::to_string).collect();
    match windows.split_last() {
        Some((last, others)) => format!(
            "{} Messages in flight: {} or {last}, by quality and key, as the table of all results has them.",
            kind.description,
            others.join(", ")
        ),
        None => kind.description.to_owned(),
    }
}

fn bars(
    workload: &Workload,
    kind: &Kind<'_>,
    pivot: &Pivot<'_>,
    nth: (bool, usize),
    of: impl Fn(&Group) -> Option<Value>,
) -> Vec<Figure> {
    let (name, title) = titled(workload, kind, pivot, nth);
    let row = |(at, label): (usize, &String)| Row {
        label: label.clone(),
        values: pivot.rows.iter().map(|(_, groups)| groups[at].and_then(&of)).collect(),
        remarks: pivot.rows.iter().flat_map(|(name, groups)| told(name, groups[at])).collect(),
        ..Row::default()
    };
    let unnamed = |name: &String| if name.is_empty() { kind.measure.to_owned() } else { name.clone() };
    let sheet = Sheet {
        name,
        title,
        description: described(kind, pivot),
        measure: kind.measure.to_owned(),
        rows_are: "configuration".to_owned(),
        series: pivot.rows.iter().map(|(name, _)| unnamed(name)).collect(),
        rows: pivot.names.iter().enumerate().map(row).collect(),
        ..Sheet::default()
    };
    sheet.figures()
}

/// The remarks of a group with the row that it is in.
fn told(row: &str, group: Option<&Group>) -> Vec<String> {
    let remarks = group.map(Group::remarks).unwrap_or_default();
    if row.is_empty() { remarks } else { remarks.into_iter().map(|remark| format!("{row}, {remark}")).collect() }
}

fn lines(workload: &Workload, kind: &Kind<'_>, pivot: &Pivot<'_>, nth: (bool, usize)) -> Figure {
    let (name, title) = titled(workload, kind, pivot, nth);
    let curve = |(name, groups): &(String, Vec<Option<&Group>>)| {
        let points = groups
            .iter()
            .enumerate()
            .filter_map(|(at, group)| Some(Point { x: at as f64, y: group.as_ref()?.rate()? }));
        let modelled = groups.iter().flatten().any(|group| group.is_modelled());
        let mut name = if name.is_empty() { kind.measure.to_owned() } else { name.clone() };
        if modelled && !name.contains("modelled") {
            name += " (modelled)";
        }
        Curve { name, points: points.collect() }
    };
    let curves: Vec<Curve> = pivot.rows.iter().map(curve).collect();
    let x = axis_of(pivot, kind);
    let mut columns = vec![x.measure.clone()];
    columns.extend(curves.iter().map(|curve| curve.name.clone()));
    let row = |(at, name): (usize, &String)| {
        let values = pivot.rows.iter().map(|(_, groups)| Cell::value(groups[at].and_then(Group::rate)));
        std::iter::once(Cell::text(name.as_str())).chain(values).collect()
    };
    let table = Table {
        caption: format!("{title}: {}", kind.measure),
        columns,
        rows: pivot.names.iter().enumerate().map(row).collect(),
    };
    let labelled: Vec<(String, Vec<String>)> = pivot
        .rows
        .iter()
        .flat_map(|(row, groups)| groups.iter().zip(&pivot.names).map(move |(group, name)| (row, name, *group)))
        .filter_map(|(row, name, group)| {
            Some((format!("{row} {} {name}", x.measure).trim().to_owned(), group?.remarks()))
        })
        .collect();
    Figure {
        name,
        title,
        description: described(kind, pivot),
        remarks: remarks(labelled.iter().map(|(label, remarks)| (label.as_str(), remarks.as_slice()))),
        table,
        chart: Chart::Lines(Lines {
            x,
            y: Axis { measure: kind.measure.to_owned(), along: Along::default() },
            curves,
            marks: Vec::new(),
        }),
    }
}

fn axis_of(pivot: &Pivot<'_>, kind: &Kind<'_>) -> Axis {
    let measure = match kind.name {
        "rate-by-reuse" => Field::Reuse,
        "rate-by-batch" => Field::SignBatch,
        "rate-by-pairs" => Field::Pairs,
        "rate-by-adapters" => Field::Adapters,
        _ => Field::Dispatchers,
    };
    Axis { measure: measure.measure().to_owned(), along: Along::Names(pivot.names.clone()) }
}

/// The table of all results of a workload.
pub(super) fn results(workload: &Workload, groups: &[&Group]) -> Table {
    let fields = differing(groups);
    let columns = [
        "configuration",
        workload.measure(),
        "processor µs each",
        "median µs",
        "99 of 100 within µs",
        "cores busy",
        "of them elsewhere",
        "stolen",
        "samples",
        "goal",
        "remarks",
    ];
    let row = |group: &&Group| {
        let mean = |of: fn(&crate::result::Sample) -> f64| {
            group.value(|sample| Some(of(sample))).map_or(Cell::Empty, |value| Cell::Number(value.middle))
        };
        let latency = |of: fn(&crate::result::Latency) -> f64| {
            let value = group.value(|sample| sample.latency_us.as_ref().map(of).filter(|time| *time > 0.0));
            value.map_or(Cell::Empty, |value| Cell::Number(value.middle))
        };
        let mut goals: Vec<String> = Vec::new();
        for goal in group.samples.iter().filter_map(|sample| sample.goal.as_ref()) {
            let verdict = if goal.held { "held" } else { "missed" };
            let text = format!("{}: {verdict} ({})", goal.what, number(goal.reached));
            if !goals.contains(&text) {
                goals.push(text);
            }
        }
        vec![
            Cell::text(group.label(&fields)),
            Cell::value(group.rate()),
            Cell::value(group.processor_us()),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            mean(|sample| sample.cores_busy),
            mean(|sample| sample.cores_elsewhere),
            mean(|sample| sample.cores_stolen),
            Cell::Number(group.samples.len() as f64),
            Cell::text(goals.join("; ")),
            Cell::text(group.remarks().join("; ")),
        ]
    };
    Table {
        caption: "All results: median [least–most] of the samples".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: groups.iter().map(row).collect(),
    }
    .without_empty_columns()
}
