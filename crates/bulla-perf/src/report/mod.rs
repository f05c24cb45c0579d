//! Reports: what was measured, as a page with charts, as Markdown, as CSV and as drawings.
//!
//! A [`document::Document`] holds what is said; [`page`] writes it. Charts ([`chart`], [`bars`], [`lines`]) know nothing of
//! results, so that whatever else has curves to show can draw them.

pub mod axis;
pub mod bars;
pub mod chart;
pub mod document;
pub mod escape;
pub mod lines;
pub mod number;
pub mod page;
pub mod palette;
pub mod scale;
pub mod svg;
pub mod table;
pub mod width;
