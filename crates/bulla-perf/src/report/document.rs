//! What a report says, apart from how it is written: sections of words, figures and tables.

use super::chart::Chart;
use super::table::Table;

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// What stands under the title: a paragraph each.
    pub lead: Vec<String>,
    /// Its sections.
    pub sections: Vec<Section>,
    /// What stands at its end.
    pub foot: Vec<String>,
}

/// A part of a report with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// What a reader wants to know of it, in a sentence or two; empty where there is none.
    pub answer: String,
    /// Paragraphs.
    pub words: Vec<String>,
    /// Tables that belong to no chart.
    pub tables: Vec<Table>,
    /// Charts with their data. The first one shows the answer.
    pub figures: Vec<Figure>,
}

/// A chart with its data as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name among the figures of its report: an anchor, and a file's name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What it shows, in a sentence or two; also for who can't see it.
    pub description: String,
    /// The chart.
    pub chart: Chart,
    /// What a reader must know of the data: what was not steady and why, what is modelled.
    pub remarks: Vec<String>,
    /// The data.
    pub table: Table,
}

impl Document {
    /// All figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|section| &section.figures)
    }
}
