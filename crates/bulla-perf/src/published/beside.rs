//! Published figures beside ours: a row for each place on the study's axes, and for each measure what was published,
//! what we have measured, and how they compare.

use super::figure::Figure;
use crate::report::bars::{Bars, Series};
use crate::report::chart::{Chart, Value};
use crate::report::document;
use crate::report::table::{Cell, Table};

/// What is said of a table in which cells are empty.
pub const EMPTY_CELLS: &str = "An empty cell under published: the study has no such figure, or it is not known to us. An empty cell under ours: it was not measured in this run.";

/// One measure at one place.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// The study's figure; none where it has none, or where none is known.
    pub published: Option<Figure>,
    /// Ours; none where it was not measured.
    pub ours: Option<Value>,
}

/// One place on the study's axes.
#[derive(Clone, Debug)]
pub struct Row {
    /// The place in words: `integrity · RSA 1024`.
    pub label: String,
    /// A pair for each measure.
    pub pairs: Vec<Pair>,
}

/// A table of published figures beside ours.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Its name among the figures of a page: an anchor.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What it shows, in a sentence or two.
    pub description: String,
    /// What the rows are, as the first column has it.
    pub rows_are: String,
    /// What is measured, with units.
    pub measures: Vec<String>,
    /// The places.
    pub rows: Vec<Row>,
}

impl Beside {
    /// The table. The last column of a measure is ours divided by what was published, where both are numbers.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = vec![self.rows_are.clone()];
        let mut kept = vec![true];
        for (at, measure) in self.measures.iter().enumerate() {
            columns.extend([
                format!("{measure}: published"),
                format!("{measure}: ours"),
                format!("{measure}: ours ÷ published"),
            ]);
            let compares = self.rows.iter().filter_map(|row| row.pairs.get(at)).any(|pair| pair.ratio().is_some());
            kept.extend([true, true, compares]);
        }
        let row = |row: &Row| {
            let mut cells = vec![Cell::text(row.label.as_str())];
            for at in 0..self.measures.len() {
                let pair = row.pairs.get(at).cloned().unwrap_or_default();
                cells.extend([
                    Cell::text(pair.published.map_or(String::new(), |figure| figure.shown())),
                    Cell::value(pair.ours),
                    pair.ratio().map_or(Cell::Empty, Cell::Number),
                ]);
            }
            only(cells, &kept)
        };
        let rows = self.rows.iter().map(row).collect();
        Table { caption: self.title.clone(), columns: only(columns, &kept), rows }
    }

    /// One measure as bars, published beside ours, with the table. Figures in words have no bar.
    #[must_use]
    pub fn figure(&self, measure: usize) -> document::Figure {
        let of = |what: fn(&Pair) -> Option<Value>| {
            self.rows.iter().map(|row| row.pairs.get(measure).and_then(what)).collect::<Vec<_>>()
        };
        let series =
            [("published", of(|pair| Some(Value::exactly(pair.published?.number()?)))), ("ours", of(|pair| pair.ours))];
        let series = series
            .into_iter()
            .filter(|(_, values)| values.iter().any(Option::is_some))
            .map(|(name, values)| Series { name: name.to_owned(), values });
        let bars = Bars {
            categories: self.rows.iter().map(|row| row.label.clone()).collect(),
            series: series.collect(),
            measure: self.measures.get(measure).cloned().unwrap_or_default(),
            ..Bars::default()
        };
        document::Figure {
            name: self.name.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            chart: Chart::Bars(bars),
            remarks: vec![EMPTY_CELLS.to_owned()],
            table: self.table(),
        }
    }
}

impl Pair {
    /// Ours divided by what was published.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let published = self.published?.number().filter(|number| *number != 0.0)?;
        Some(self.ours?.middle / published)
    }
}

fn only<T>(all: Vec<T>, kept: &[bool]) -> Vec<T> {
    all.into_iter().zip(kept).filter_map(|(one, kept)| kept.then_some(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invented.
    fn table(published: Option<Figure>) -> Table {
        let rows = vec![
            Row { label: "known".into(), pairs: vec![Pair { published, ours: Some(Value::exactly(50.0)) }] },
            Row { label: "not measured".into(), pairs: vec![Pair { published, ours: None }] },
        ];
        let measures = vec!["messages/s".into()];
        Beside { rows_are: "key".into(), measures, rows, ..Beside::default() }.table()
    }

    #[test]
    fn numbers_are_compared_and_words_are_not() {
        let numbers = table(Some(Figure::published(100.0)));
        assert_eq!(numbers.columns.last().map(String::as_str), Some("messages/s: ours ÷ published"));
        assert_eq!(numbers.rows[0].last(), Some(&Cell::Number(0.5)));
        assert_eq!(numbers.rows[1].last(), Some(&Cell::Empty));
        let words = table(Figure::words("many"));
        assert_eq!(words.columns.len(), 3);
    }

    #[test]
    fn a_column_of_published_figures_stays_where_none_is_known() {
        assert_eq!(table(None).columns, ["key", "messages/s: published", "messages/s: ours"]);
    }
}
