//! Bars that lie on their side, so that names of any length stand beside or above them.

use super::axis;
use super::chart::{Drawing, LINE, Sign, Value, Width, legend};
use super::number::number;
use super::palette;
use super::scale::{Scale, Spacing};
use super::svg::{Anchor, Svg};
use super::width::{fitted, width};

/// One bar of each category, with the same name and look.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As the legend has it.
    pub name: String,
    /// Its value in each category; none where there is none.
    pub values: Vec<Option<Value>>,
}

/// A chart of bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What the bars stand beside, from the top.
    pub categories: Vec<String>,
    /// The bars of each category.
    pub series: Vec<Series>,
    /// Whether a category's bars are one after the other in one line, with their sum behind. Otherwise they lie below
    /// each other, each with its value.
    pub stacked: bool,
    /// What was to be reached in each category; empty where nothing was.
    pub targets: Vec<Option<f64>>,
    /// What the length of a bar is, with the unit.
    pub measure: String,
}

/// A bar's thickness.
const BAR: f64 = 15.0;
/// Between categories.
const GAP: f64 = 9.0;
const MARGIN: f64 = 8.0;

impl Bars {
    pub(super) fn draw(&self, id: &str, size: Width, top: f64) -> Drawing {
        let pixels = size.pixels();
        let mut svg = Svg::default();
        svg.raw(&palette::definitions(id, self.series.len()));

        let mut entries: Vec<(Sign, String)> = Vec::new();
        if self.series.len() > 1 || self.series.iter().any(|series| series.name != self.measure) {
            entries
                .extend(self.series.iter().enumerate().map(|(slot, series)| (Sign::Area(slot), series.name.clone())));
        }
        if self.targets.iter().any(Option::is_some) {
            entries.push((Sign::Target, "target".to_owned()));
        }
        let start = legend(&mut svg, id, &entries, pixels, top + 4.0);

        let rows: Vec<Row<'_>> = (0..self.categories.len()).map(|category| self.row(category)).collect();
        let labels = self.categories.iter().map(|name| width(name)).fold(0.0, f64::max);
        let beside = size == Width::Wide && labels <= pixels * 0.42;
        let left = if beside { labels + MARGIN + 8.0 } else { MARGIN };
        let remarks = rows.iter().flat_map(|row| &row.bars).map(|bar| width(&bar.text)).fold(0.0, f64::max);
        let right = pixels - MARGIN - (remarks + 8.0).max(24.0);
        let scale = Scale::new(Spacing::Linear, rows.iter().flat_map(Row::extremes), left, right.max(left + 60.0));

        let mut y = start;
        let tops: Vec<f64> = rows
            .iter()
            .map(|row| {
                y += if beside { GAP } else { LINE + 4.0 };
                let top = y;
                y += row.bars.len() as f64 * BAR;
                top
            })
            .collect();
        let bottom = y + GAP;
        let below = axis::below(&mut svg, &scale, start, bottom, &self.measure, pixels);
        svg.path(&format!("M{x:.1} {start:.1}V{bottom:.1}", x = scale.at(0.0)), "axis");
        for ((name, row), top) in self.categories.iter().zip(&rows).zip(tops) {
            if beside {
                let middle = top + row.bars.len() as f64 * BAR / 2.0 + 4.0;
                svg.text(left - 8.0, middle, Anchor::End, "", &fitted(name, left - 8.0));
            } else {
                svg.text(MARGIN + 5.0, top - 4.0, Anchor::Start, "", &fitted(name, pixels - 2.0 * MARGIN - 5.0));
            }
            row.draw(&mut svg, id, &scale, name, top);
        }
        Drawing { elements: svg.finish(), height: below + 4.0 }
    }

    fn row(&self, category: usize) -> Row<'_> {
        let values = self.series.iter().enumerate().filter_map(|(slot, series)| {
            let value = series.values.get(category).copied().flatten().filter(Value::is_drawable)?;
            Some(Part { slot, series: &series.name, value })
        });
        let target =
            self.targets.get(category).copied().flatten().filter(|target| super::number::is_plausible(*target));
        let bars = if self.stacked {
            let parts: Vec<Part<'_>> = values.collect();
            if parts.is_empty() { Vec::new() } else { vec![Bar::new(parts)] }
        } else {
            values.map(|part| Bar::new(vec![part])).collect()
        };
        Row { bars, target }
    }
}

/// A category as it is drawn.
struct Row<'a> {
    bars: Vec<Bar<'a>>,
    target: Option<f64>,
}

/// One line of it.
struct Bar<'a> {
    parts: Vec<Part<'a>>,
    /// Its value in words, which stand behind it.
    text: String,
}

struct Part<'a> {
    slot: usize,
    series: &'a str,
    value: Value,
}

impl<'a> Bar<'a> {
    fn new(parts: Vec<Part<'a>>) -> Self {
        let sum: f64 = parts.iter().map(|part| part.value.middle).sum();
        let all = Value {
            steady: parts.iter().all(|part| part.value.steady),
            modelled: parts.iter().any(|part| part.value.modelled),
            ..Value::exactly(sum)
        };
        let text = format!("{} {}", number(sum), all.remark()).trim_end().to_owned();
        Self { parts, text }
    }

    fn extremes(&self) -> [f64; 3] {
        match self.parts.as_slice() {
            [Part { value, .. }] => [value.middle, value.least, value.most],
            parts => [parts.iter().map(|part| part.value.middle).sum(), 0.0, 0.0],
        }
    }
}

impl Row<'_> {
    fn extremes(&self) -> Vec<f64> {
        self.bars.iter().flat_map(Bar::extremes).chain(self.target).collect()
    }

    fn draw(&self, svg: &mut Svg, id: &str, scale: &Scale, name: &str, top: f64) {
        let zero = scale.at(0.0);
        for (at, bar) in self.bars.iter().enumerate() {
            let y = top + at as f64 * BAR + 1.0;
            let (height, mut sum) = (BAR - 2.0, 0.0);
            let mut end = zero;
            for part in &bar.parts {
                let (from, to) = (scale.at(sum), scale.at(sum + part.value.middle));
                sum += part.value.middle;
                end = end.max(to);
                let (value, remark) = (number(part.value.middle), part.value.remark());
                let told =
                    [name, part.series, &value, remark].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
                svg.area(from.min(to), y, (to - from).abs(), height, &palette::fill(id, part.slot), &told.join(", "));
            }
            if let [Part { value, .. }] = bar.parts.as_slice()
                && value.most > value.least
            {
                let (least, most, middle) = (scale.at(value.least), scale.at(value.most), y + height / 2.0);
                let (cap, low) = (middle - 3.0, middle + 3.0);
                svg.path(
                    &format!(
                        "M{least:.1} {cap:.1}V{low:.1}M{least:.1} {middle:.1}H{most:.1}M{most:.1} {cap:.1}V{low:.1}"
                    ),
                    "spread",
                );
                end = end.max(most);
            }
            if let Some(target) = self.target {
                end = end.max(scale.at(target) + 2.0);
            }
            svg.text(end + 6.0, y + height - 2.5, Anchor::Start, "", &bar.text);
        }
        if let Some(target) = self.target {
            let bottom = top + self.bars.len().max(1) as f64 * BAR;
            svg.path(&format!("M{x:.1} {:.1}V{:.1}", top - 2.0, bottom + 2.0, x = scale.at(target)), "target");
        }
    }
}
