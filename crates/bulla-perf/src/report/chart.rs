//! Charts: what is drawn, apart from how. A chart is drawn twice for a page, once for a wide screen or paper and once
//! for a narrow screen, so that its text is never scaled down to nothing.

use super::bars::Bars;
use super::lines::Lines;
use super::number::is_plausible;
use super::panels::Panels;
use super::svg::{Anchor, Svg};
use super::width::{fitted, lines, width};
use super::{escape, palette};
use std::fmt::Write;

/// The rules that a drawing's classes need, light and dark; within a page or a drawing that stands alone.
pub const STYLE: &str = include_str!("chart.css");
/// The height of a line of text, in pixels of the drawing.
pub(super) const LINE: f64 = 18.0;

/// How wide a drawing is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Width {
    /// For screens and paper.
    Wide,
    /// For telephones.
    Narrow,
}

impl Width {
    /// In pixels of the drawing.
    #[must_use]
    pub const fn pixels(self) -> f64 {
        match self {
            Width::Wide => 760.0,
            Width::Narrow => 344.0,
        }
    }

    /// The class by which a page shows the one or the other.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Width::Wide => "wide",
            Width::Narrow => "narrow",
        }
    }
}

/// A value with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The median, or the only one.
    pub middle: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// Whether all that it is made of was measured in a steady state.
    pub steady: bool,
    /// Whether a modelled device took part.
    pub modelled: bool,
}

impl Value {
    /// A value without a spread.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { middle: value, least: value, most: value, steady: true, modelled: false }
    }

    /// The words that go with it wherever it is shown: nothing, `modelled`, `not steady`.
    #[must_use]
    pub const fn remark(&self) -> &'static str {
        match (self.modelled, self.steady) {
            (false, true) => "",
            (true, true) => "modelled",
            (false, false) => "not steady",
            (true, false) => "modelled, not steady",
        }
    }

    /// Whether it can be drawn.
    #[must_use]
    pub fn is_drawable(&self) -> bool {
        is_plausible(self.middle) && is_plausible(self.least) && is_plausible(self.most)
    }
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Bars beside a list of names.
    Bars(Bars),
    /// Columns of bars, each with a scale of its own.
    Panels(Panels),
    /// Curves over an axis.
    Lines(Lines),
}

/// What a chart drew, and how high that is.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) elements: String,
    pub(super) height: f64,
}

impl Chart {
    /// The chart as an `svg` element within a page that has [`STYLE`]. `id` starts the ids in it and must be the page's
    /// only one.
    #[must_use]
    pub fn draw(&self, id: &str, title: &str, description: &str, size: Width) -> String {
        let id = format!("{id}-{}", size.class());
        let drawing = self.drawing(&id, size, 0.0);
        let mut out = opening(&id, size.pixels(), drawing.height, size.class());
        head(&mut out, &id, title, description);
        out + &drawing.elements + "</svg>"
    }

    /// The chart as a file that stands alone, with its title and style, and remarks below.
    #[must_use]
    pub fn file(&self, title: &str, description: &str, remarks: &[String]) -> String {
        let pixels = Width::Wide.pixels();
        // What is bold is wider than the table of widths says, by an eighth at most.
        let titles = lines(title, (pixels - 16.0) / 1.13);
        let top = titles.len() as f64 * LINE + 8.0;
        let drawing = self.drawing("chart", Width::Wide, top);
        let remarks: Vec<String> = remarks.iter().flat_map(|remark| lines(remark, pixels - 16.0)).collect();
        let height = drawing.height + remarks.len() as f64 * LINE + if remarks.is_empty() { 0.0 } else { 8.0 };
        let mut out = opening("chart", pixels, height, "chart");
        head(&mut out, "chart", title, description);
        let _ = write!(out, r#"<style>{STYLE}</style><rect class="paper" width="{pixels}" height="{height:.0}"/>"#);
        let mut svg = Svg::default();
        for (at, line) in titles.iter().enumerate() {
            svg.text(8.0, (at as f64 + 1.0) * LINE, Anchor::Start, "title", line);
        }
        for (at, line) in remarks.iter().enumerate() {
            svg.text(8.0, drawing.height + (at as f64 + 0.8) * LINE, Anchor::Start, "quiet", line);
        }
        out + &svg.finish() + &drawing.elements + "</svg>\n"
    }

    fn drawing(&self, id: &str, size: Width, top: f64) -> Drawing {
        match self {
            Chart::Bars(bars) => bars.draw(id, size, top),
            Chart::Panels(panels) => panels.draw(id, size, top),
            Chart::Lines(lines) => lines.draw(id, size, top),
        }
    }
}

fn opening(id: &str, width: f64, height: f64, class: &str) -> String {
    let height = height.ceil();
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="{class}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="{id}-t {id}-d">"#
    )
}

fn head(out: &mut String, id: &str, title: &str, description: &str) {
    let (title, description) = (escape::html(title), escape::html(description));
    let _ = write!(out, r#"<title id="{id}-t">{title}</title><desc id="{id}-d">{description}</desc>"#);
}

/// How a legend shows one of its entries.
#[derive(Clone, Debug)]
pub(super) enum Sign {
    /// A filled box.
    Area(usize),
    /// A line with its mark.
    Curve(usize),
    /// The line of a target.
    Target,
    /// A line across, dashed.
    Across,
    /// A mark that is not filled.
    Hollow,
}

/// Draws a legend from `top` on, and says where it ends. Entries stand side by side as far as they fit.
pub(super) fn legend(svg: &mut Svg, id: &str, entries: &[(Sign, String)], pixels: f64, top: f64) -> f64 {
    const SIGN: f64 = 26.0;
    const GAP: f64 = 16.0;
    let (mut x, mut y) = (8.0, top);
    for (sign, text) in entries {
        let text = fitted(text, pixels - 16.0 - SIGN);
        let room = SIGN + width(&text);
        if x > 8.0 && x + room > pixels - 8.0 {
            (x, y) = (8.0, y + LINE);
        }
        let middle = y + 8.0;
        match sign {
            Sign::Area(slot) => svg.area(x, middle - 6.0, 18.0, 12.0, &palette::fill(id, *slot), ""),
            Sign::Curve(slot) => {
                let (line, mark) = (palette::line(*slot), palette::mark(*slot, x + 10.0, middle, 3.5));
                svg.dashed(&format!("M{x:.1} {middle:.1}h20"), &format!("curve {line}"), palette::dashes(*slot));
                svg.path(&mark, &format!("mark {line} c{}", slot % palette::COLOURS));
            }
            Sign::Target => svg.path(&format!("M{:.1} {:.1}v14", x + 9.0, middle - 7.0), "target"),
            Sign::Across => svg.dashed(&format!("M{x:.1} {middle:.1}h20"), "axis", "5 3"),
            Sign::Hollow => svg.path(&palette::mark(0, x + 10.0, middle, 4.0), "hollow axis"),
        }
        svg.text(x + SIGN, middle + 4.0, Anchor::Start, "", &text);
        x += room + GAP;
    }
    if entries.is_empty() { top } else { y + LINE + 6.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::axis::{Along, Axis};
    use crate::report::bars::Series;
    use crate::report::lines::{Curve, Mark, Place, Point};
    use crate::report::scale::Spacing;

    const HOSTILE: &str = "</svg><script>alert('1')</script>\" onload=\"x";

    fn charts(values: &[f64]) -> [Chart; 4] {
        let drawn: Vec<Option<Value>> = values.iter().map(|value| Some(Value::exactly(*value))).collect();
        let points = |values: &[f64]| {
            values.iter().enumerate().map(|(x, y)| Point { x: x as f64, y: Value::exactly(*y) }).collect::<Vec<_>>()
        };
        let bars = Bars {
            categories: values.iter().map(|_| HOSTILE.to_owned()).collect(),
            series: vec![
                Series { name: HOSTILE.into(), values: drawn.clone() },
                Series { name: "b".into(), values: drawn },
            ],
            stacked: true,
            targets: values.iter().map(|value| Some(*value)).collect(),
            measure: HOSTILE.into(),
        };
        let lines = Lines {
            x: Axis { measure: HOSTILE.into(), along: Along::Names(vec![HOSTILE.into(); values.len()]) },
            y: Axis { measure: HOSTILE.into(), along: Along::Numbers(Spacing::Logarithmic) },
            curves: vec![Curve { name: HOSTILE.into(), points: points(values) }],
            marks: vec![Mark { name: HOSTILE.into(), place: Place::At(f64::NAN) }],
        };
        let panels =
            Panels { categories: bars.categories.clone(), series: bars.series.clone(), measure: bars.measure.clone() };
        let grouped = Bars { stacked: false, ..bars.clone() };
        [Chart::Bars(bars), Chart::Bars(grouped), Chart::Panels(panels), Chart::Lines(lines)]
    }

    #[test]
    fn a_name_from_a_file_is_text_in_every_chart() {
        for chart in charts(&[1.0, 2.0, 3.0]) {
            for drawing in
                [chart.draw("f1", HOSTILE, HOSTILE, Width::Narrow), chart.file(HOSTILE, HOSTILE, &[HOSTILE.into()])]
            {
                assert!(!drawing.contains("<script"), "{drawing}");
                assert!(!drawing.contains("\" onload"), "{drawing}");
                assert_eq!(drawing.matches("</svg>").count(), 1, "{drawing}");
            }
        }
    }

    #[test]
    fn whatever_the_values_are_a_chart_is_drawn_with_finite_places() {
        for values in
            [vec![], vec![0.0], vec![f64::NAN, f64::INFINITY], vec![1e300, -1e300], vec![-5.0, 1e15], vec![1e-300; 50]]
        {
            for chart in charts(&values) {
                let drawing = chart.draw("f1", "t", "d", Width::Wide);
                assert!(!drawing.contains("NaN") && !drawing.contains("inf "), "{values:?}: {drawing}");
                assert!(drawing.len() < 200_000, "{values:?}: {} bytes", drawing.len());
            }
        }
    }

    #[test]
    fn what_is_modelled_or_not_steady_says_so_at_its_bar() {
        let value = Value { steady: false, modelled: true, ..Value::exactly(7.0) };
        let series = vec![Series { name: "rate".into(), values: vec![Some(value)] }];
        let bars = Bars { categories: vec!["one".into()], series, ..Bars::default() };
        assert!(Chart::Bars(bars).draw("f1", "t", "d", Width::Wide).contains(">7 modelled, not steady</text>"));
    }
}
