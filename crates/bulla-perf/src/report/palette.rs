//! Colours that the colour-blind tell apart, and patterns, dashes and marks for readers who see no colours at all.
//!
//! The colours are those of Masataka Okabe and Kei Ito, *Color Universal Design* (2008), with a grey as the ninth. Each
//! has a pattern of its own, so that a chart printed in black and white still says which is which.

use std::fmt::Write;

/// Colours, each with its pattern; a tenth thing has the first colour with another pattern.
pub const COLOURS: usize = 9;
/// The size of a pattern's tile, in pixels of the drawing.
const TILE: u32 = 8;

/// The lines of each pattern within its tile.
const PATTERNS: [&str; COLOURS] = [
    "",
    "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    "M2 2h1.6M6 6h1.6",
    "M0 4H8",
    "M-2 6L2 10M0 0L8 8M6 -2L10 2",
    "M4 0V8",
    "M0 0L8 8M8 0L0 8",
    "M0 4H8M4 0V8",
    "M0 2H4M4 6H8",
];
/// Which colours are so dark that the pattern on them is light.
const DARK: [bool; COLOURS] = [false, false, true, false, true, true, false, true, false];
/// Dashes of lines.
const DASHES: [&str; 6] = ["none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];

/// The fill of the `slot`th thing, whose pattern [`definitions`] wrote under that id.
#[must_use]
pub fn fill(id: &str, slot: usize) -> String {
    format!("url(#{id}-p{slot})")
}

/// The class of the `slot`th thing's line.
#[must_use]
pub fn line(slot: usize) -> String {
    format!("l{}", slot % COLOURS)
}

/// The dashes of the `slot`th thing's line.
#[must_use]
pub fn dashes(slot: usize) -> &'static str {
    DASHES[slot % DASHES.len()]
}

/// The patterns of those slots, for a drawing with that id.
#[must_use]
pub fn definitions(id: &str, slots: usize) -> String {
    let mut out = String::from("<defs>");
    for slot in 0..slots {
        let colour = slot % COLOURS;
        let pattern = (colour + slot / COLOURS) % COLOURS;
        // Writing to a string does not fail.
        let _ = write!(
            out,
            r#"<pattern id="{id}-p{slot}" width="{TILE}" height="{TILE}" patternUnits="userSpaceOnUse"><rect width="{TILE}" height="{TILE}" class="c{colour}"/>"#
        );
        if !PATTERNS[pattern].is_empty() {
            let class = if DARK[colour] { "hl" } else { "hd" };
            let _ = write!(out, r#"<path class="{class}" d="{}"/>"#, PATTERNS[pattern]);
        }
        out.push_str("</pattern>");
    }
    out + "</defs>"
}

/// The outline of the `slot`th thing's mark around a point, of that radius.
#[must_use]
pub fn mark(slot: usize, x: f64, y: f64, r: f64) -> String {
    let (left, right, top, bottom) = (x - r, x + r, y - r, y + r);
    match slot % 8 {
        0 => format!("M{left:.1} {y:.1}a{r:.1} {r:.1} 0 1 0 {d:.1} 0a{r:.1} {r:.1} 0 1 0 -{d:.1} 0Z", d = 2.0 * r),
        1 => format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}Z"),
        2 => format!("M{x:.1} {top:.1}L{right:.1} {bottom:.1}H{left:.1}Z"),
        3 => format!("M{x:.1} {top:.1}L{right:.1} {y:.1}L{x:.1} {bottom:.1}L{left:.1} {y:.1}Z"),
        4 => format!("M{left:.1} {top:.1}H{right:.1}L{x:.1} {bottom:.1}Z"),
        5 => format!("M{left:.1} {top:.1}L{right:.1} {y:.1}L{left:.1} {bottom:.1}Z"),
        6 => format!("M{right:.1} {top:.1}L{left:.1} {y:.1}L{right:.1} {bottom:.1}Z"),
        _ => format!("M{left:.1} {y:.1}L{x:.1} {top:.1}H{right:.1}V{y:.1}L{x:.1} {bottom:.1}H{left:.1}Z"),
    }
}
