//! What we measure beside a study that has no figures of it.

use crate::report::group::Group;
use crate::report::table::{Cell, Table};
use crate::result::Sample;

/// What is found of a sample; none where it was not.
pub type Of<'a> = &'a dyn Fn(&Sample) -> Option<f64>;

/// A row for each group, by its label, and a column for each measure.
#[must_use]
pub fn table(
    caption: &str,
    rows_are: &str,
    measures: &[(&str, Of<'_>)],
    groups: &[&Group],
    label: impl Fn(&Group) -> String,
) -> Table {
    let row = |group: &&Group| {
        let cells = measures.iter().map(|(_, of)| Cell::value(group.value(of)));
        [Cell::text(label(group))].into_iter().chain(cells).collect()
    };
    let names = measures.iter().map(|(name, _)| (*name).to_owned());
    Table {
        caption: caption.to_owned(),
        columns: [rows_are.to_owned()].into_iter().chain(names).collect(),
        rows: groups.iter().map(row).collect(),
    }
}

/// What the workload found under that name.
#[must_use]
pub fn found(sample: &Sample, name: &str) -> Option<f64> {
    sample.found.get(name).copied()
}
