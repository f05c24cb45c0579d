//! Tables for a terminal: text in columns, two blanks between them, without borders.
//!
//! Every table that the program prints is made here, so that a wide cell widens its column instead of running into the
//! next one, and a control character in a cell is shown instead of obeyed.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table as Grid, Width, presets};

/// Blanks between two columns.
const GAP: u16 = 2;
/// Characters of one cell at most; the rest is left out.
const CELL_CHARS_MAX: usize = 16_384;

/// A column: on which side its cells stand, and how wide it is at least.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    alignment: CellAlignment,
    at_least: u16,
    after: u16,
}

impl Column {
    /// Words: they begin where the column begins.
    #[must_use]
    pub const fn left() -> Self {
        Self { alignment: CellAlignment::Left, at_least: 0, after: 0 }
    }

    /// Numbers: they end where the column ends.
    #[must_use]
    pub const fn right() -> Self {
        Self { alignment: CellAlignment::Right, at_least: 0, after: 0 }
    }

    /// As wide as this at least, the blanks around it included, so that it stands in one place from table to table.
    #[must_use]
    pub const fn at_least(self, width: u16) -> Self {
        Self { at_least: width, ..self }
    }

    /// With two blanks behind it as well.
    #[must_use]
    pub const fn apart(self) -> Self {
        Self { after: GAP, ..self }
    }
}

/// What a table consists of, in its order.
#[derive(Debug)]
enum Line {
    Cells,
    Text(String),
}

/// A table that is being written.
#[derive(Debug)]
pub struct Table {
    grid: Grid,
    columns: Vec<Column>,
    indent: u16,
    lines: Vec<Line>,
}

impl Table {
    /// An empty table with these columns.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        Self { grid, columns: columns.into_iter().collect(), indent: 0, lines: Vec::new() }
    }

    /// Its lines begin with two blanks, as below a heading.
    #[must_use]
    pub fn indented(self) -> Self {
        Self { indent: GAP, ..self }
    }

    /// Adds a row. Cells that are not given are empty, cells beyond the columns are left out.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        let cells = cells.into_iter().take(self.columns.len()).map(|cell| Cell::new_owned(on_one_line(cell.as_ref())));
        self.grid.add_row(cells.collect::<Vec<_>>());
        self.lines.push(Line::Cells);
    }

    /// Adds a line that has no columns: a remark on the row before it, or an empty line.
    pub fn line(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Text(text.into()));
    }

    /// The table as text: each line ends with a line feed and has no blanks before it.
    #[must_use]
    pub fn text(mut self) -> String {
        for (index, column) in self.columns.iter().enumerate() {
            // Only columns that some row has.
            let Some(shown) = self.grid.column_mut(index) else { break };
            shown.set_padding((if index == 0 { self.indent } else { GAP }, column.after));
            shown.set_cell_alignment(column.alignment);
            if column.at_least > 0 {
                shown.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(column.at_least)));
            }
        }
        let mut rows = self.grid.lines();
        let mut text = String::new();
        for line in self.lines {
            match line {
                Line::Cells => text.push_str(rows.next().unwrap_or_default().trim_end_matches(' ')),
                Line::Text(line) => text.push_str(&line),
            }
            text.push('\n');
        }
        text
    }
}

/// A cell's text with its control characters as `\u{1b}`, and no longer than a cell may be.
fn on_one_line(text: &str) -> String {
    let mut cell = String::with_capacity(text.len().min(CELL_CHARS_MAX));
    for character in text.chars().take(CELL_CHARS_MAX) {
        if character.is_control() { cell.extend(character.escape_default()) } else { cell.push(character) }
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new([Column::left(), Column::right(), Column::left()]);
        for row in [["what", "µs", "by"], ["a", "10", "x"], ["longer", "7", ""]] {
            table.row(row);
        }
        assert_eq!(table.text(), "what    µs  by\na       10  x\nlonger   7\n");
    }

    #[test]
    fn a_column_keeps_its_place_and_grows_for_what_is_wider() {
        let table = |number: &str| {
            let mut table = Table::new([Column::left().apart(), Column::right().at_least(6), Column::right()]);
            table.row(["name", number, "1"]);
            table.text()
        };
        assert_eq!(table("7"), "name       7  1\n");
        assert_eq!(table("1234"), "name    1234  1\n");
        assert_eq!(table("12345678"), "name    12345678  1\n");
    }

    #[test]
    fn remarks_stand_between_rows_and_take_no_part_in_the_widths() {
        let mut table = Table::new([Column::left(), Column::right()]).indented();
        table.row(["a", "1"]);
        table.line("a remark that is wider than the columns");
        table.line("");
        table.row(["bb"]);
        assert_eq!(table.text(), "  a   1\na remark that is wider than the columns\n\n  bb\n");
        assert_eq!(Table::new([Column::left()]).text(), "");
    }

    #[test]
    fn a_cell_stays_on_its_line_and_a_terminal_does_not_obey_it() {
        let mut table = Table::new([Column::left(), Column::left().at_least(4)]);
        table.row(["a\n\u{1b}[2J\tb", &"x".repeat(100_000)]);
        let text = table.text();
        assert!(text.starts_with("a\\n\\u{1b}[2J\\tb  xxx"), "{}", &text[..40]);
        assert_eq!((text.lines().count(), text.matches('x').count()), (1, CELL_CHARS_MAX));
    }

    #[test]
    fn wide_and_narrow_characters_take_the_place_that_a_terminal_gives_them() {
        let mut table = Table::new([Column::left(), Column::left()]);
        table.row(["大麦", "|"]);
        table.row(["e\u{301}tat", "|"]);
        assert_eq!(table.text(), "大麦  |\ne\u{301}tat  |\n");
    }
}
