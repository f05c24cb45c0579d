//! Axes: a line, round values as far as they fit, and what they measure.

use super::chart::LINE;
use super::scale::{Scale, Spacing, Tick};
use super::svg::{Anchor, Svg};
use super::width::{fitted, lines, width};

/// Between two texts of an axis.
const SPACE: f64 = 10.0;

/// What lies along an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Along {
    /// Numbers.
    Numbers(Spacing),
    /// Names, the first at 0, the next at 1.
    Names(Vec<String>),
}

impl Default for Along {
    fn default() -> Self {
        Along::Numbers(Spacing::Linear)
    }
}

/// An axis: what lies along it, and what it measures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it measures, with the unit.
    pub measure: String,
    /// What lies along it.
    pub along: Along,
}

/// Draws the axis below bars and its lines through them, and says where it ends.
pub(super) fn below(svg: &mut Svg, scale: &Scale, top: f64, bottom: f64, measure: &str, pixels: f64) -> f64 {
    for tick in that_fit(scale, pixels) {
        let x = scale.at(tick.value);
        svg.path(&format!("M{x:.1} {top:.1}V{bottom:.1}"), "grid");
        svg.text(inside(x, &tick.text, pixels), bottom + 14.0, Anchor::Middle, "quiet", &tick.text);
    }
    named(svg, measure, bottom + 14.0, pixels)
}

/// Draws the names below curves, each at its place, and says where that ends. Where they don't fit side by side they
/// climb.
pub(super) fn names_below(
    svg: &mut Svg,
    names: &[String],
    at: impl Fn(f64) -> f64,
    bottom: f64,
    measure: &str,
    pixels: f64,
) -> f64 {
    let places: Vec<(f64, &String)> = names.iter().enumerate().map(|(nth, name)| (at(nth as f64), name)).collect();
    let fits = |(x, name): &(f64, &String)| *x - width(name) / 2.0 >= 0.0;
    let apart = |two: &[(f64, &String)]| two[1].0 - two[0].0 >= (width(two[0].1) + width(two[1].1)) / 2.0 + SPACE;
    let last_fits = places.last().is_none_or(|(x, name)| x + width(name) / 2.0 <= pixels);
    if places.iter().all(fits) && places.windows(2).all(apart) && last_fits {
        for (x, name) in places {
            svg.text(x, bottom + 16.0, Anchor::Middle, "quiet", name);
        }
        return named(svg, measure, bottom + 16.0, pixels);
    }
    const ROOM: f64 = 150.0;
    let slant = std::f64::consts::FRAC_1_SQRT_2;
    // Lines of climbing text need their height between them, and those that don't have it are left out.
    let mut free = f64::NEG_INFINITY;
    let mut deepest = 0.0_f64;
    for (x, name) in places {
        if x < free {
            continue;
        }
        free = x + LINE / slant * 0.9;
        let name = fitted(name, ROOM.min((x - 2.0) / slant - 8.0));
        deepest = deepest.max(width(&name) * slant);
        svg.climbing_text(x + 4.0, bottom + 14.0, "quiet", &name);
    }
    named(svg, measure, bottom + 18.0 + deepest, pixels)
}

/// How much room the texts of an upright axis need.
pub(super) fn room_beside(scale: &Scale, about: f64) -> f64 {
    scale.ticks(about).iter().map(|tick| width(&tick.text)).fold(0.0, f64::max) + 12.0
}

/// Draws an upright axis at `left`, and its lines to `right`.
pub(super) fn beside(svg: &mut Svg, scale: &Scale, about: f64, left: f64, right: f64) {
    for tick in scale.ticks(about) {
        let y = scale.at(tick.value);
        svg.path(&format!("M{left:.1} {y:.1}H{right:.1}"), "grid");
        svg.text(left - 6.0, y + 4.0, Anchor::End, "quiet", &tick.text);
    }
}

/// As many round values as fit side by side.
pub(super) fn that_fit(scale: &Scale, pixels: f64) -> Vec<Tick> {
    for about in [8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        let ticks = scale.ticks(about);
        let apart = |two: &[Tick]| {
            let [one, other] = [&two[0], &two[1]];
            inside(scale.at(other.value), &other.text, pixels) - inside(scale.at(one.value), &one.text, pixels)
                >= (width(&one.text) + width(&other.text)) / 2.0 + SPACE
        };
        if ticks.windows(2).all(apart) {
            return ticks;
        }
    }
    Vec::new()
}

/// Where the middle of a text is, so that nothing of it is outside.
fn inside(x: f64, text: &str, pixels: f64) -> f64 {
    let half = width(text) / 2.0 + 1.0;
    x.min(pixels - half).max(half)
}

/// What is measured, under an axis whose last baseline is given; says where it ends.
fn named(svg: &mut Svg, measure: &str, baseline: f64, pixels: f64) -> f64 {
    let mut y = baseline;
    for line in lines(measure, pixels - 16.0) {
        y += LINE;
        svg.text(pixels / 2.0, y, Anchor::Middle, "quiet", &line);
    }
    y + 6.0
}
