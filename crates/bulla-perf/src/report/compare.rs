//! A run against an earlier one: what changed, by how much, and whether that is more than the spread.

use super::chart::Value;
use super::document::Section;
use super::field::differing;
use super::group::{Group, Measured};
use super::number::difference;
use super::sheet::{Row, Shape, Sheet};
use super::table::{Cell, Table};
use super::workload::Workload;

/// What a change amounts to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Change {
    Better,
    Worse,
    /// The spreads of both overlap.
    WithinSpread,
    /// One of them was measured once, so that its spread is not known.
    Unknown,
}

impl Change {
    const ALL: [Change; 4] = [Change::Better, Change::Worse, Change::WithinSpread, Change::Unknown];

    const fn as_str(self) -> &'static str {
        match self {
            Change::Better => "better, beyond both spreads",
            Change::Worse => "worse, beyond both spreads",
            Change::WithinSpread => "within the spread of both",
            Change::Unknown => "spread not known: one sample",
        }
    }
}

/// What is compared.
struct Measure {
    name: &'static str,
    title: &'static str,
    /// Whether more is better.
    more: bool,
    of: fn(&Group) -> Option<Value>,
}

const MEASURES: [Measure; 3] = [
    Measure { name: "rate", title: "Rate", more: true, of: Group::rate },
    Measure { name: "processor", title: "Processor time of a transaction", more: false, of: Group::processor_us },
    Measure {
        name: "latency",
        title: "Median time of a transaction",
        more: false,
        of: |group| group.value(|sample| sample.latency_us.map(|latency| latency.p50).filter(|time| *time > 0.0)),
    },
];

/// The section for a comparison.
pub(super) fn section(now: &Measured, earlier: &Measured) -> Section {
    let mut section = Section { title: "Against the earlier run".to_owned(), ..Section::default() };
    section.words.push(
        "Differences are those of the medians. Beyond both spreads means that no sample of the one lies between those of the other.".to_owned(),
    );
    let machines =
        |measured: &Measured| measured.settings.iter().map(|setting| setting.machine.clone()).collect::<Vec<_>>();
    let (here, there) = (machines(now), machines(earlier));
    if here.iter().any(|machine| !there.contains(machine)) {
        section.words.push(
            "The earlier run was taken on another machine: differences are those of the machines, too.".to_owned(),
        );
    }
    let versions = |measured: &Measured| {
        let mut versions: Vec<String> = measured.settings.iter().map(|setting| setting.version.clone()).collect();
        versions.dedup();
        versions.join(", ")
    };
    section.words.push(format!("Now: version {}. Earlier: version {}.", versions(now), versions(earlier)));
    let mut changes: Vec<Change> = Vec::new();
    for (workload, groups) in now.workloads() {
        let workload = Workload(workload);
        let pairs: Vec<(&Group, Option<&Group>)> =
            groups.iter().map(|group| (*group, counterpart(group, earlier))).collect();
        for measure in &MEASURES {
            changes
                .extend(pairs.iter().filter_map(|(group, earlier)| Some(compared(group, *earlier, measure)?.change)));
            section.figures.extend(sheet(&workload, &groups, &pairs, measure).figures());
        }
        let fields = differing(&groups);
        let fresh: Vec<String> =
            pairs.iter().filter(|(_, other)| other.is_none()).map(|(group, _)| group.label(&fields)).collect();
        if !fresh.is_empty() {
            section.words.push(format!("{}, measured now alone: {}.", workload.title(), fresh.join("; ")));
        }
    }
    for (workload, groups) in earlier.workloads() {
        let fields = differing(&groups);
        let gone = groups.iter().filter(|group| counterpart(group, now).is_none());
        let gone: Vec<String> = gone.map(|group| group.label(&fields)).collect();
        if !gone.is_empty() {
            section.words.push(format!("{}, measured earlier alone: {}.", Workload(workload).title(), gone.join("; ")));
        }
    }
    if !changes.is_empty() {
        section.answer = answer(&changes);
    }
    if section.figures.is_empty() {
        section.tables.push(Table {
            caption: "Nothing was measured in both runs".to_owned(),
            columns: vec!["what to do".to_owned()],
            rows: vec![vec![Cell::text("measure the same workload in the same configuration")]],
        });
    }
    section
}

/// The group of the same workload and configuration, in the same setting where there are several.
fn counterpart<'a>(group: &Group, measured: &'a Measured) -> Option<&'a Group> {
    let same = |other: &&Group| other.workload == group.workload && other.configuration == group.configuration;
    let found: Vec<&Group> = measured.groups.iter().filter(same).collect();
    found.iter().find(|other| other.setting == group.setting).or(found.first()).copied()
}

fn sheet(workload: &Workload, groups: &[&Group], pairs: &[(&Group, Option<&Group>)], measure: &Measure) -> Sheet {
    let fields = differing(groups);
    let row = |(group, earlier): &(&Group, Option<&Group>)| {
        let Compared { now, before, percent, change } = compared(group, *earlier, measure)?;
        let steady = now.steady && before.steady;
        let value = Value { steady, modelled: now.modelled || before.modelled, ..Value::exactly(percent) };
        let mut remarks = group.remarks();
        remarks.extend(earlier.iter().flat_map(|earlier| earlier.remarks()).map(|remark| format!("earlier, {remark}")));
        Some(Row {
            label: group.label(&fields),
            values: Change::ALL.map(|kind| (kind == change).then_some(value)).to_vec(),
            target: None,
            beside: vec![
                Cell::value(Some(before)),
                Cell::value(Some(now)),
                Cell::text(difference(percent)),
                Cell::text(change.as_str()),
            ],
            remarks,
        })
    };
    Sheet {
        name: workload.figure(&format!("{}-against-earlier", measure.name)),
        title: format!("{}, {}: difference", workload.title(), lower(measure.title)),
        description: format!("{} is better.", if measure.more { "More" } else { "Less" }),
        measure: "% more or less than earlier".to_owned(),
        rows_are: "configuration".to_owned(),
        series: Change::ALL.map(|kind| kind.as_str().to_owned()).to_vec(),
        // In one line: a row has one of them.
        shape: Shape::Stacked,
        only_beside: true,
        beside: ["earlier", "now", "difference", "judged"].map(str::to_owned).to_vec(),
        rows: pairs.iter().filter_map(row).collect(),
    }
}

/// A value of a group beside the earlier one.
struct Compared {
    now: Value,
    before: Value,
    percent: f64,
    change: Change,
}

fn compared(group: &Group, earlier: Option<&Group>, measure: &Measure) -> Option<Compared> {
    let earlier = earlier?;
    let (now, before) = ((measure.of)(group)?, (measure.of)(earlier)?);
    let percent = Some((now.middle / before.middle - 1.0) * 100.0).filter(|percent| percent.is_finite())?;
    let once = group.samples.len() < 2 || earlier.samples.len() < 2;
    Some(Compared { now, before, percent, change: judge(&now, &before, once, measure.more) })
}

/// How many values changed, in a sentence.
fn answer(changes: &[Change]) -> String {
    let count = |kind: Change| changes.iter().filter(|change| **change == kind).count();
    format!(
        "Of {} values, {} are worse and {} are better than earlier, beyond both spreads; {} are within the spread, \
         and {} were measured once.",
        changes.len(),
        count(Change::Worse),
        count(Change::Better),
        count(Change::WithinSpread),
        count(Change::Unknown)
    )
}

fn lower(title: &str) -> String {
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn judge(now: &Value, before: &Value, once: bool, more: bool) -> Change {
    if once {
        return Change::Unknown;
    }
    if now.least <= before.most && before.least <= now.most {
        return Change::WithinSpread;
    }
    if (now.middle > before.middle) == more { Change::Better } else { Change::Worse }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Line, Sample};

    fn measured(rates: &[f64]) -> Measured {
        let mut measured = Measured::default();
        let sample =
            |rate: &f64| Line::Sample(Box::new(Sample { workload: "stream".into(), rate: *rate, ..Sample::default() }));
        measured.add(rates.iter().map(sample).collect());
        measured
    }

    fn judged(now: &[f64], before: &[f64]) -> String {
        section(&measured(now), &measured(before)).figures[0].table.markdown()
    }

    #[test]
    fn a_difference_is_judged_by_the_spread_of_both() {
        for (now, before, said) in [
            (&[11.0, 12.0][..], &[9.0, 10.0][..], "+21.1 % | better, beyond both spreads"),
            (&[9.0, 10.0], &[11.0, 12.0], "−17.4 % | worse, beyond both spreads"),
            (&[9.0, 11.0], &[10.0, 12.0], "−9.1 % | within the spread of both"),
            (&[9.0], &[11.0, 12.0], "spread not known: one sample"),
        ] {
            assert!(judged(now, before).contains(said), "{}", judged(now, before));
        }
    }

    #[test]
    fn what_was_measured_once_alone_is_told() {
        let section = section(&measured(&[1.0]), &Measured::default());
        assert!(
            section.words.iter().any(|words| words == "Streams, measured now alone: measured."),
            "{:?}",
            section.words
        );
        assert!(section.figures.is_empty() && !section.tables.is_empty());
    }

    #[test]
    fn nothing_is_compared_with_a_zero() {
        assert!(section(&measured(&[1.0, 2.0]), &measured(&[0.0, 0.0])).figures.is_empty());
    }
}
