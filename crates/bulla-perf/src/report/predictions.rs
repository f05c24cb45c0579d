//! What the planner said beside what was measured.

use super::field::differing;
use super::group::Group;
use super::number::with_decimals;
use super::table::{Cell, Table};
use crate::run::statistics::Spread;

/// Each configuration with its prediction, misses included, the worst last; none where nothing was predicted.
pub(super) fn predicted(groups: &[&Group]) -> Option<Table> {
    let fields = differing(groups);
    let mut rows: Vec<(f64, bool, Vec<Cell>)> = Vec::new();
    for group in groups {
        let Some((predicted, measured)) =
            group.typical().and_then(|sample| Some((sample.predicted.as_ref()?, group.rate()?)))
        else {
            continue;
        };
        let error = predicted.rate / measured.middle - 1.0;
        let is_right = predicted.found.contains(&predicted.bottleneck);
        let steady = if group.is_steady() { "" } else { ", not steady" };
        let row = vec![
            Cell::text(format!("{}{steady}", group.label(&fields))),
            Cell::Number(predicted.rate),
            Cell::value(Some(measured)),
            Cell::text(format!("{}{} %", if error < 0.0 { "−" } else { "+" }, with_decimals(100.0 * error.abs(), 1))),
            Cell::text(predicted.found.join(" or ")),
            Cell::text(if is_right { "right".to_owned() } else { predicted.bottleneck.clone() }),
        ];
        rows.push((error.abs(), is_right, row));
    }
    let errors = Spread::of(rows.iter().map(|(error, ..)| *error))?;
    let right = rows.iter().filter(|(_, is_right, _)| *is_right).count();
    let caption = format!(
        "Predicted before it was measured: {} configurations, median error {} %, worst {} %, bottleneck named right in {right}",
        rows.len(),
        with_decimals(100.0 * errors.median, 1),
        with_decimals(100.0 * errors.most, 1),
    );
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let columns = ["configuration", "predicted a second", "measured a second", "error", "held back by", "predicted"];
    Some(Table {
        caption,
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.into_iter().map(|(.., row)| row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::result::{Predicted, Sample};

    /// Invented.
    fn group(bytes: u64, predicted: f64, measured: f64, found: &str) -> Group {
        let predicted = Predicted { rate: predicted, bottleneck: "cores".into(), found: vec![found.into()] };
        let sample = Sample { rate: measured, predicted: Some(predicted), ..Sample::default() };
        let configuration = Configuration { bytes, ..Configuration::default() };
        Group { workload: "plan-check".into(), configuration, setting: 0, samples: vec![sample] }
    }

    #[test]
    fn misses_stand_in_the_table_and_the_worst_comes_last() {
        let groups =
            [group(1, 130.0, 100.0, "dispatcher"), group(2, 95.0, 100.0, "cores"), group(3, 101.0, 100.0, "cores")];
        let table = predicted(&groups.iter().collect::<Vec<_>>()).unwrap();
        assert!(
            table.caption.ends_with("3 configurations, median error 5.0 %, worst 30.0 %, bottleneck named right in 2"),
            "{}",
            table.caption
        );
        let text = table.markdown();
        let last = text.lines().rfind(|line| line.starts_with('|')).unwrap();
        assert!(last.contains("+30.0 %") && last.contains("dispatcher") && last.contains("cores"), "{text}");
    }

    #[test]
    fn without_predictions_there_is_no_table() {
        let mut group = group(1, 1.0, 1.0, "cores");
        group.samples[0].predicted = None;
        assert_eq!(predicted(&[&group]), None);
    }
}
