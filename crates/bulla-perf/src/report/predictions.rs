//! What the planner said beside what was measured.

use super::chart::Value;
use super::field::differing;
use super::group::Group;
use super::number::with_decimals;
use super::table::{Cell, Table};
use crate::plan::check::middle;
use crate::run::statistics::Spread;

/// Each configuration with its prediction, misses included, the worst last; none where nothing was predicted. Of the
/// samples of a configuration that one counts whose error is in the middle.
pub(super) fn predicted(groups: &[&Group]) -> Option<Table> {
    let fields = differing(groups);
    let mut rows: Vec<(f64, f64, bool, Vec<Cell>)> = Vec::new();
    for group in groups {
        let Some((sample, measured)) = middle(&group.samples).zip(group.rate()) else { continue };
        let Some(predicted) = &sample.predicted else { continue };
        let error = predicted.rate / sample.rate - 1.0;
        // Results of earlier versions have one prediction alone.
        let calibrated = if predicted.calibrated > 0.0 { predicted.calibrated } else { predicted.rate };
        let before = calibrated / sample.rate - 1.0;
        let is_right = predicted.found.contains(&predicted.bottleneck);
        let steady = if group.is_steady() { "" } else { ", not steady" };
        let row = vec![
            Cell::text(format!("{}{steady}", group.label(&fields))),
            Cell::Number(predicted.rate),
            Cell::value(Some(Value { middle: sample.rate, ..measured })),
            Cell::text(percent(error)),
            Cell::text(percent(before)),
            Cell::text(predicted.found.join(" or ")),
            Cell::text(if is_right { "right".to_owned() } else { predicted.bottleneck.clone() }),
        ];
        rows.push((error.abs(), before.abs(), is_right, row));
    }
    let errors = Spread::of(rows.iter().map(|(error, ..)| *error))?;
    let before = Spread::of(rows.iter().map(|(_, before, ..)| *before))?;
    let right = rows.iter().filter(|(_, _, is_right, _)| *is_right).count();
    let caption = format!(
        "Predicted and measured: {} configurations, median error {} %, worst {} %, bottleneck named right in {right}; without regard \
         to how fast the cores were meanwhile {} and {} %",
        rows.len(),
        with_decimals(100.0 * errors.median, 1),
        with_decimals(100.0 * errors.most, 1),
        with_decimals(100.0 * before.median, 1),
        with_decimals(100.0 * before.most, 1),
    );
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let columns = [
        "configuration",
        "predicted a second",
        "measured a second",
        "error",
        "at the calibration's speed",
        "held back by",
        "predicted",
    ];
    Some(Table {
        caption,
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.into_iter().map(|(.., row)| row).collect(),
    })
}

/// With its sign.
fn percent(part: f64) -> String {
    format!("{}{} %", if part < 0.0 { "−" } else { "+" }, with_decimals(100.0 * part.abs(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::result::{Predicted, Sample};

    /// Invented.
    fn group(bytes: u64, predicted: f64, measured: f64, found: &str) -> Group {
        let predicted =
            Predicted { rate: predicted, calibrated: 0.0, bottleneck: "cores".into(), found: vec![found.into()] };
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
            table.caption.contains("3 configurations, median error 5.0 %, worst 30.0 %, bottleneck named right in 2;"),
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
