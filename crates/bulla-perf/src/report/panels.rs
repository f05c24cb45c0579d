//! Panels: a column for each series with a scale of its own, so that a small share is as readable as a large one.

use super::bars::Series;
use super::chart::{Drawing, LINE, Sign, Value, Width, legend};
use super::number::number;
use super::palette;
use super::svg::{Anchor, Svg};
use super::width::{lines, width};

/// A chart of columns that share their rows. In each column the longest bar fills it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panels {
    /// The rows, from the top.
    pub categories: Vec<String>,
    /// The columns.
    pub series: Vec<Series>,
    /// What the length of a bar is, with the unit.
    pub measure: String,
}

/// The height of a row: a number, and its bar below it.
const ROW: f64 = 20.0;
/// Where the number's baseline is in it.
const BASELINE: f64 = 11.0;
/// The height of a bar.
const BAR: f64 = 5.0;
/// Between rows.
const GAP: f64 = 5.0;
/// Between a column and the next.
const BETWEEN: f64 = 6.0;
const MARGIN: f64 = 8.0;
/// What is less is shown as zero.
const SHOWN_MIN: f64 = 0.0005;
/// Most of a drawing's width that names of rows take beside them; longer ones stand above their row.
const NAMES_SHARE_MAX: f64 = 0.42;

/// A series with what fills its column.
struct Column<'a> {
    name: &'a str,
    values: Vec<Option<Value>>,
    most: f64,
}

impl Panels {
    pub(super) fn draw(&self, id: &str, size: Width, top: f64) -> Drawing {
        let pixels = size.pixels();
        let columns = self.columns();
        let mut svg = Svg::default();
        svg.raw(&palette::definitions(id, columns.len()));
        let told = |column: &Column<'_>| format!("{}, to {}", column.name, number(column.most));
        let entries: Vec<(Sign, String)> =
            columns.iter().enumerate().map(|(slot, column)| (Sign::Area(slot), told(column))).collect();
        let mut y = legend(&mut svg, id, &entries, pixels, top + 4.0);

        let names: Vec<String> = (0..self.categories.len()).map(|row| self.row_name(row, &columns)).collect();
        let widest = names.iter().map(|name| width(name)).fold(0.0, f64::max);
        let beside = size == Width::Wide && widest <= pixels * NAMES_SHARE_MAX;
        let left = if beside { MARGIN + widest + 8.0 } else { MARGIN };
        let room = pixels - MARGIN - left;
        let each_line = fitting(&columns, room);
        let column_width = room / each_line as f64;
        for (row, name) in names.iter().enumerate() {
            y += GAP;
            if beside {
                svg.text(left - 8.0, y + BASELINE, Anchor::End, "", name);
            } else {
                for line in lines(name, room) {
                    y += LINE;
                    svg.text(MARGIN, y - 4.0, Anchor::Start, "", &line);
                }
            }
            for (slot, column) in columns.iter().enumerate() {
                let x = left + (slot % each_line) as f64 * column_width;
                let line = y + (slot / each_line) as f64 * ROW;
                svg.path(&format!("M{x:.1} {line:.1}v{ROW:.1}"), "grid");
                let Some(value) = column.values[row] else { continue };
                let share = (value.middle / column.most).clamp(0.0, 1.0);
                let said = format!("{name}, {}, {}", column.name, number(value.middle));
                let length = share * (column_width - BETWEEN);
                svg.area(x, line + ROW - BAR - 1.0, length, BAR, &palette::fill(id, slot), &said);
                svg.text(x + 3.0, line + BASELINE, Anchor::Start, "", &number(value.middle));
            }
            y += columns.len().div_ceil(each_line) as f64 * ROW;
        }
        y += GAP;
        for line in lines(&format!("{}; each column has its own scale", self.measure), pixels - 2.0 * MARGIN) {
            y += LINE;
            svg.text(MARGIN, y - 4.0, Anchor::Start, "quiet", &line);
        }
        Drawing { elements: svg.finish(), height: y + 4.0 }
    }

    /// The series that are not zero everywhere as far as a reader sees, and behind several their sum.
    fn columns(&self) -> Vec<Column<'_>> {
        let rows = self.categories.len();
        let value = |series: &Series, row: usize| series.values.get(row).copied().flatten().filter(Value::is_drawable);
        let mut columns: Vec<Column<'_>> = self
            .series
            .iter()
            .map(|series| column(&series.name, (0..rows).map(|row| value(series, row)).collect()))
            .collect();
        if columns.len() > 1 {
            let sum = |row: usize| columns.iter().filter_map(|column| column.values[row]).reduce(added);
            let sums = (0..rows).map(|row| sum(row).filter(Value::is_drawable)).collect();
            columns.push(column("together", sums));
        }
        columns.retain(|column| column.values.iter().flatten().any(|value| value.middle.abs() >= SHOWN_MIN));
        columns
    }

    /// The row's name, and what a reader must know of its values.
    fn row_name(&self, row: usize, columns: &[Column<'_>]) -> String {
        let name = &self.categories[row];
        let all = columns.iter().filter_map(|column| column.values[row]).reduce(added);
        match all.map_or("", |value| value.remark()) {
            "" => name.clone(),
            "modelled" if name.contains("modelled") => name.clone(),
            remark => format!("{name} ({remark})"),
        }
    }
}

fn column(name: &str, values: Vec<Option<Value>>) -> Column<'_> {
    let most = values.iter().flatten().map(|value| value.middle).fold(0.0, f64::max);
    Column { name, values, most: if most > 0.0 { most } else { 1.0 } }
}

fn added(one: Value, other: Value) -> Value {
    Value {
        steady: one.steady && other.steady,
        modelled: one.modelled || other.modelled,
        ..Value::exactly(one.middle + other.middle)
    }
}

/// How many columns stand side by side, so that each has room for its widest number.
fn fitting(columns: &[Column<'_>], room: f64) -> usize {
    let texts = columns.iter().flat_map(|column| &column.values).flatten().map(|value| width(&number(value.middle)));
    let widest = texts.fold(0.0, f64::max) + 3.0 + BETWEEN;
    ((room / widest) as usize).clamp(1, columns.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the bars whose told text has those words.
    fn lengths(drawing: &str, words: &str) -> Vec<f64> {
        let bars = drawing.split("<rect ").filter(|bar| bar.contains(words));
        let length = |bar: &str| bar.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
        bars.filter_map(length).collect()
    }

    #[test]
    fn a_small_role_fills_its_column_as_a_large_one_does() {
        let series = |name: &str, values: [f64; 2]| Series {
            name: name.into(),
            values: values.map(|value| Some(Value::exactly(value))).to_vec(),
        };
        let panels = Panels {
            categories: vec!["RSA 1024".into(), "RSA 4096".into()],
            series: vec![series("journal", [2.0, 1.0]), series("devices", [250.0, 5000.0])],
            measure: "µs".into(),
        };
        let drawing = panels.draw("f", Width::Wide, 0.0).elements;
        let (journal, devices) = (lengths(&drawing, ", journal,"), lengths(&drawing, ", devices,"));
        assert_eq!(journal[0], devices[1], "{drawing}");
        assert!((journal[1] * 2.0 - journal[0]).abs() < 0.2, "{journal:?}");
        assert!(drawing.contains(">5,001<"), "the sum stands beside them: {drawing}");
    }

    #[test]
    fn columns_that_do_not_fit_beside_each_other_go_on_below() {
        let value = Some(Value::exactly(123_456.0));
        let series = (0..9).map(|at| Series { name: format!("role {at}"), values: vec![value] }).collect();
        let panels = Panels { categories: vec!["one".into()], series, measure: "µs".into() };
        let (wide, narrow) = (panels.draw("f", Width::Wide, 0.0), panels.draw("f", Width::Narrow, 0.0));
        assert!(narrow.height > wide.height, "{} {}", narrow.height, wide.height);
        assert_eq!(narrow.elements.matches(">123,456<").count(), 9);
    }
}
