//! Rows of values with names, which become charts of bars with their tables; as many charts as keep each on one page.

use super::bars::{Bars, Series};
use super::chart::{Chart, Value};
use super::document::Figure;
use super::panels::Panels;
use super::table::{Cell, Table};

/// Most bars that a chart has, so that it fits on one sheet of paper.
const BARS_MAX: usize = 44;
/// Room between two categories, in bars.
const BETWEEN: f64 = 0.7;

/// How the values of a row are drawn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Shape {
    /// A bar each, one below the other.
    #[default]
    Grouped,
    /// One behind the other in one bar.
    Stacked,
    /// Side by side, each on its own scale.
    Panels,
}

/// What a chart of bars is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    /// Its name among the figures of a report.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) description: String,
    /// What the length of a bar is, with the unit.
    pub(super) measure: String,
    /// What the rows are, as the table's first column has it.
    pub(super) rows_are: String,
    /// The names of a row's values.
    pub(super) series: Vec<String>,
    pub(super) shape: Shape,
    /// Whether the table has only what is beside the values.
    pub(super) only_beside: bool,
    /// The names of what the table has beside the values.
    pub(super) beside: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// A row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) values: Vec<Option<Value>>,
    pub(super) target: Option<f64>,
    pub(super) beside: Vec<Cell>,
    /// What a reader must know of it.
    pub(super) remarks: Vec<String>,
}

impl Sheet {
    /// The charts; none where there are no values.
    pub(super) fn figures(mut self) -> Vec<Figure> {
        let used: Vec<bool> = (0..self.series.len())
            .map(|at| self.rows.iter().any(|row| row.values.get(at).is_some_and(Option::is_some)))
            .collect();
        let mut keep = used.iter();
        self.series.retain(|_| keep.next().copied().unwrap_or(false));
        for row in &mut self.rows {
            let mut keep = used.iter();
            row.values.retain(|_| keep.next().copied().unwrap_or(false));
        }
        self.rows.retain(|row| row.values.iter().any(Option::is_some));
        let thickness = match self.shape {
            Shape::Grouped => self.series.len() as f64,
            Shape::Stacked => 1.0,
            Shape::Panels => 1.3,
        };
        let each = ((BARS_MAX as f64 / (thickness + BETWEEN)) as usize).max(1);
        // Parts of about the same size, not one full and one with a single bar.
        let parts = self.rows.len().div_ceil(each);
        let each = self.rows.len().div_ceil(parts.max(1)).max(1);
        self.rows.chunks(each).enumerate().map(|(part, rows)| self.figure(part, parts, rows)).collect()
    }

    fn figure(&self, part: usize, parts: usize, rows: &[Row]) -> Figure {
        let nth = part + 1;
        let series = self.series.iter().enumerate().map(|(at, name)| Series {
            name: name.clone(),
            values: rows.iter().map(|row| row.values.get(at).copied().flatten()).collect(),
        });
        let series: Vec<Series> = series.collect();
        let categories = rows.iter().map(|row| row.label.clone()).collect();
        let measure = self.measure.clone();
        let has_targets = rows.iter().any(|row| row.target.is_some());
        let chart = match self.shape {
            Shape::Panels => Chart::Panels(Panels { categories, series, measure }),
            shape => Chart::Bars(Bars {
                categories,
                series,
                stacked: shape == Shape::Stacked,
                targets: if has_targets { rows.iter().map(|row| row.target).collect() } else { Vec::new() },
                measure,
            }),
        };
        Figure {
            name: if part == 0 { self.name.clone() } else { format!("{}-{nth}", self.name) },
            title: if parts == 1 { self.title.clone() } else { format!("{} ({nth} of {parts})", self.title) },
            description: self.description.clone(),
            chart,
            remarks: remarks(rows.iter().map(|row| (row.label.as_str(), row.remarks.as_slice()))),
            table: self.table(rows, has_targets),
        }
    }

    fn table(&self, rows: &[Row], has_targets: bool) -> Table {
        let with_sum = self.shape != Shape::Grouped && self.series.len() > 1 && !self.only_beside;
        let mut columns = vec![self.rows_are.clone()];
        if !self.only_beside {
            columns.extend(self.series.iter().cloned());
        }
        if with_sum {
            columns.push("together".to_owned());
        }
        if has_targets {
            columns.push("target".to_owned());
        }
        columns.extend(self.beside.iter().cloned());
        let row = |row: &Row| {
            let mut cells = vec![Cell::text(row.label.as_str())];
            if !self.only_beside {
                cells.extend(row.values.iter().map(|value| Cell::value(*value)));
            }
            if with_sum {
                cells.push(Cell::Number(row.values.iter().flatten().map(|value| value.middle).sum()));
            }
            if has_targets {
                cells.push(row.target.map_or(Cell::Empty, Cell::Number));
            }
            cells.extend(row.beside.iter().cloned());
            cells
        };
        let caption =
            if self.measure.is_empty() { self.title.clone() } else { format!("{}: {}", self.title, self.measure) };
        Table { caption, columns, rows: rows.iter().map(row).collect() }.without_empty_columns()
    }
}

/// Remarks, each with the rows that it is about.
pub(super) fn remarks<'a>(rows: impl Iterator<Item = (&'a str, &'a [String])>) -> Vec<String> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for (label, remarks) in rows {
        for remark in remarks {
            match found.iter_mut().find(|(known, _)| known == remark) {
                Some((_, labels)) if labels.contains(&label) => {}
                Some((_, labels)) => labels.push(label),
                None => found.push((remark, vec![label])),
            }
        }
    }
    found.into_iter().map(|(remark, labels)| format!("{remark}: {}", labels.join("; "))).collect()
}
