//! Tables for people, JSON lines for programs, both on standard output.

use serde_json::Value as Json;

/// What was measured so far in one part.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<String>,
}

impl Report {
    /// A measurement: its JSON line now, its row when the part is over. The cells are joined by bars.
    pub(crate) fn add(&mut self, json: &Json, cells: &[String]) {
        println!("{json}");
        self.rows.push(format!("| {} |", cells.join(" | ")));
    }

    /// The table of the part; the next one begins empty.
    pub(crate) fn print(&mut self, title: &str, columns: &[&str]) {
        println!("\n{title}\n\n| {} |\n|{}", columns.join(" | "), " --- |".repeat(columns.len()));
        for row in self.rows.drain(..) {
            println!("{row}");
        }
        println!();
    }
}
