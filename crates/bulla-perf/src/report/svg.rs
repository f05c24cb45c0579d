//! A drawing that grows element by element. Whatever text it is given comes out as text.

use super::escape;
use std::fmt::{Display, Write};

/// Where a text's position is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Anchor {
    /// At its begin.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

/// The elements of a drawing.
#[derive(Debug, Default)]
pub struct Svg {
    out: String,
}

impl Svg {
    /// What was drawn.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }

    /// Adds elements as they are.
    pub fn raw(&mut self, elements: &str) {
        self.out.push_str(elements);
    }

    /// A line of text; `y` is its baseline.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}"{}{}>{}</text>"#,
            anchored(anchor),
            classed(class),
            escape::html(text)
        ));
    }

    /// A text that ends at a point and climbs to it at 45 degrees.
    pub fn climbing_text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let class = classed(class);
        self.add(format_args!(
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-45)" text-anchor="end"{class}>{}</text>"#,
            escape::html(text)
        ));
    }

    /// A box. What it stands for is told where a pointer rests on it.
    pub fn area(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, told: &str) {
        self.add(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{height:.1}" fill="{fill}" class="edge">{}</rect>"#,
            width.max(0.0),
            title(told)
        ));
    }

    /// A path.
    pub fn path(&mut self, outline: &str, class: &str) {
        self.add(format_args!(r#"<path d="{outline}"{}/>"#, classed(class)));
    }

    /// A path with dashes.
    pub fn dashed(&mut self, outline: &str, class: &str, dashes: &str) {
        self.add(format_args!(r#"<path d="{outline}"{} stroke-dasharray="{dashes}"/>"#, classed(class)));
    }

    /// A path that tells what it stands for.
    pub fn told_path(&mut self, outline: &str, class: &str, told: &str) {
        self.add(format_args!(r#"<path d="{outline}"{}>{}</path>"#, classed(class), title(told)));
    }

    fn add(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.out, "{element}");
    }
}

fn title(told: &str) -> String {
    if told.is_empty() { String::new() } else { format!("<title>{}</title>", escape::html(told)) }
}

fn classed(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) }
}

const fn anchored(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "",
        Anchor::Middle => r#" text-anchor="middle""#,
        Anchor::End => r#" text-anchor="end""#,
    }
}
