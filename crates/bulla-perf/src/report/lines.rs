//! Curves over an axis of numbers or of names.

use super::axis::{self, Along, Axis};
use super::chart::{Drawing, LINE, Sign, Value, Width, legend};
use super::number::{is_plausible, number};
use super::palette;
use super::scale::{Scale, Spacing};
use super::svg::{Anchor, Svg};
use super::width::lines;
use std::fmt::Write;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Along the axis below: a number, or which name.
    pub x: f64,
    /// How high.
    pub y: Value,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// As the legend has it.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A line across the whole chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// As the legend has it.
    pub name: String,
    /// Where it is.
    pub place: Place,
}

/// Where a line across is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Upright, at this value of the axis below.
    At(f64),
    /// Level, at this value of the upright axis.
    High(f64),
}

/// A chart of curves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// The axis below.
    pub x: Axis,
    /// The upright axis; numbers.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Lines across.
    pub marks: Vec<Mark>,
}

/// More points than this are a line without marks and spreads.
const MARKED_MAX: usize = 30;
/// More points than this are thinned: a chart has no more pixels.
const DRAWN_MAX: usize = 400;
const HEIGHT: f64 = 240.0;

impl Lines {
    pub(super) fn draw(&self, id: &str, size: Width, top: f64) -> Drawing {
        let pixels = size.pixels();
        let mut svg = Svg::default();
        let curves: Vec<(usize, &Curve, Vec<Point>)> =
            self.curves.iter().enumerate().map(|(slot, curve)| (slot, curve, drawn(curve))).collect();
        let mut entries: Vec<(Sign, String)> =
            self.curves.iter().enumerate().map(|(slot, curve)| (Sign::Curve(slot), curve.name.clone())).collect();
        entries.extend(self.marks.iter().map(|mark| (Sign::Across, mark.name.clone())));
        if curves.iter().any(|(_, _, points)| points.len() <= MARKED_MAX && points.iter().any(|point| !point.y.steady))
        {
            entries.push((Sign::Hollow, "not steady".to_owned()));
        }
        let mut start = legend(&mut svg, id, &entries, pixels, top + 4.0);
        for line in lines(&self.y.measure, pixels - 16.0) {
            svg.text(8.0, start + 10.0, Anchor::Start, "quiet", &line);
            start += LINE;
        }
        start += 6.0;

        let bottom = start + HEIGHT;
        let points = || curves.iter().flat_map(|(_, _, points)| points.iter());
        let level = self.marks.iter().filter_map(|mark| if let Place::High(y) = mark.place { Some(y) } else { None });
        let heights = points().flat_map(|point| [point.y.middle, point.y.least, point.y.most]).chain(level);
        let spacing = |axis: &Axis| if let Along::Numbers(spacing) = axis.along { spacing } else { Spacing::Linear };
        let y = Scale::new(spacing(&self.y), heights, bottom, start);
        let about = 5.0;
        let left = axis::room_beside(&y, about) + 4.0;
        let right = pixels - 16.0;
        let upright = self.marks.iter().filter_map(|mark| if let Place::At(x) = mark.place { Some(x) } else { None });
        let x = match &self.x.along {
            Along::Names(names) => {
                // Half a step of air on each side, so that names have room under the first and the last point.
                let most = names.len().saturating_sub(1) as f64;
                Scale::between(-0.5, most + 0.5, left, right)
            }
            Along::Numbers(spacing) => Scale::new(*spacing, points().map(|point| point.x).chain(upright), left, right),
        };
        axis::beside(&mut svg, &y, about, left, right);
        let below = match &self.x.along {
            Along::Names(names) => axis::names_below(&mut svg, names, |nth| x.at(nth), bottom, &self.x.measure, pixels),
            Along::Numbers(_) => axis::below(&mut svg, &x, start, bottom, &self.x.measure, pixels),
        };
        svg.path(&format!("M{left:.1} {start:.1}V{bottom:.1}H{right:.1}"), "axis");
        for mark in &self.marks {
            match mark.place {
                Place::At(at) if is_plausible(at) => {
                    svg.dashed(&format!("M{:.1} {start:.1}V{bottom:.1}", x.at(at)), "axis", "5 3")
                }
                Place::High(high) if is_plausible(high) => {
                    svg.dashed(&format!("M{left:.1} {:.1}H{right:.1}", y.at(high)), "axis", "5 3")
                }
                _ => {}
            }
        }
        for (slot, curve, points) in &curves {
            self.curve(&mut svg, *slot, &curve.name, points, &x, &y);
        }
        Drawing { elements: svg.finish(), height: below + 4.0 }
    }

    fn curve(&self, svg: &mut Svg, slot: usize, name: &str, points: &[Point], x: &Scale, y: &Scale) {
        let line = palette::line(slot);
        let mut outline = String::new();
        for (nth, point) in points.iter().enumerate() {
            // Writing to a string does not fail.
            let _ =
                write!(outline, "{}{:.1} {:.1}", if nth == 0 { 'M' } else { 'L' }, x.at(point.x), y.at(point.y.middle));
        }
        if points.len() > 1 {
            svg.dashed(&outline, &format!("curve {line}"), palette::dashes(slot));
        }
        if points.len() > MARKED_MAX {
            // A mark now and then tells curves apart that have the same grey on paper.
            for point in points.iter().skip(points.len() / 16).step_by(points.len() / 6) {
                let mark = palette::mark(slot, x.at(point.x), y.at(point.y.middle), 3.5);
                svg.path(&mark, &format!("mark {line} c{}", slot % palette::COLOURS));
            }
            return;
        }
        for point in points {
            let (at, high) = (x.at(point.x), y.at(point.y.middle));
            if point.y.most > point.y.least {
                let (least, most) = (y.at(point.y.least), y.at(point.y.most));
                let (from, to) = (at - 3.0, at + 3.0);
                svg.path(
                    &format!("M{from:.1} {least:.1}H{to:.1}M{at:.1} {least:.1}V{most:.1}M{from:.1} {most:.1}H{to:.1}"),
                    "spread",
                );
            }
            let place = match &self.x.along {
                // The names are the axis's own, so the index is one of them or the point is not told.
                Along::Names(names) => names.get(point.x as usize).cloned().unwrap_or_default(),
                Along::Numbers(_) => number(point.x),
            };
            let (value, remark) = (number(point.y.middle), point.y.remark());
            let told: Vec<&str> = [name, &place, &value, remark].into_iter().filter(|text| !text.is_empty()).collect();
            let class = if point.y.steady {
                format!("mark {line} c{}", slot % palette::COLOURS)
            } else {
                format!("hollow {line}")
            };
            svg.told_path(&palette::mark(slot, at, high, 4.0), &class, &told.join(", "));
        }
    }
}

/// The points that can be drawn, thinned to what a chart can show.
fn drawn(curve: &Curve) -> Vec<Point> {
    let points: Vec<Point> =
        curve.points.iter().filter(|point| is_plausible(point.x) && point.y.is_drawable()).copied().collect();
    let every = points.len().div_ceil(DRAWN_MAX).max(1);
    points.into_iter().step_by(every).collect()
}
