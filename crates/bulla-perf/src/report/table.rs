//! Tables: their cells know whether they are numbers, and how they are written on a page, in Markdown and in CSV.

use super::chart::Value;
use super::escape;
use super::number::number;
use std::fmt::Write;

/// What a table holds at one place.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// Words.
    Text(String),
    /// A number.
    Number(f64),
    /// A number with its spread.
    Value(Value),
}

/// A table. The first column names the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows; said to who can't see it.
    pub caption: String,
    /// The names of the columns, with their units.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

impl Cell {
    /// Words; nothing where there are none.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Cell::Empty } else { Cell::Text(text) }
    }

    /// A value with its spread, if there is one.
    #[must_use]
    pub fn value(value: Option<Value>) -> Self {
        value.map_or(Cell::Empty, Cell::Value)
    }

    /// As it is read.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Number(value) => number(*value),
            Cell::Value(value) => {
                let mut text = number(value.middle);
                if value.most > value.least {
                    // Writing to a string does not fail.
                    let _ = write!(text, " [{}–{}]", number(value.least), number(value.most));
                }
                if !value.remark().is_empty() {
                    let _ = write!(text, " ({})", value.remark());
                }
                text
            }
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Cell::Number(_) | Cell::Value(_))
    }
}

impl Table {
    /// Whether it has rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Without the columns in which nothing stands.
    #[must_use]
    pub fn without_empty_columns(mut self) -> Self {
        let kept: Vec<bool> = (0..self.columns.len())
            .map(|column| {
                column == 0 || self.rows.iter().any(|row| row.get(column).is_some_and(|cell| *cell != Cell::Empty))
            })
            .collect();
        let mut columns = kept.iter();
        self.columns.retain(|_| columns.next().copied().unwrap_or(true));
        for row in &mut self.rows {
            let mut cells = kept.iter();
            row.retain(|_| cells.next().copied().unwrap_or(true));
        }
        self
    }

    /// For a page. Each cell carries its column's name for narrow screens, on which a row is a list.
    #[must_use]
    pub fn html(&self) -> String {
        let mut out = String::from(r#"<table role="table">"#);
        // Writing to a string does not fail.
        let _ =
            write!(out, r#"<caption>{}</caption><thead role="rowgroup"><tr role="row">"#, escape::html(&self.caption));
        for column in &self.columns {
            let _ = write!(out, r#"<th scope="col" role="columnheader">{}</th>"#, escape::html(column));
        }
        out.push_str(r#"</tr></thead><tbody role="rowgroup">"#);
        for row in &self.rows {
            out.push_str(r#"<tr role="row">"#);
            for (at, cell) in row.iter().enumerate() {
                // A long name breaks where its words end, and nowhere else.
                let text = escape::html(&cell.shown()).replace('_', "_<wbr>");
                if at == 0 {
                    let _ = write!(out, r#"<th scope="row" role="rowheader">{text}</th>"#);
                    continue;
                }
                let class = if cell.is_number() { r#" class="n""# } else { "" };
                let column = escape::html(self.columns.get(at).map_or("", String::as_str));
                let _ = write!(out, r#"<td role="cell"{class} data-label="{column}">{text}</td>"#);
            }
            out.push_str("</tr>");
        }
        out + "</tbody></table>"
    }

    /// For Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = line(self.columns.iter().map(|column| escape::markdown(column)).collect());
        out += &line(self.columns.iter().map(|_| "---".to_owned()).collect());
        for row in &self.rows {
            out += &line(row.iter().map(|cell| escape::markdown(&cell.shown())).collect());
        }
        out
    }

    /// For CSV: numbers without commas, the least and the most in columns of their own beside a value that has a
    /// spread.
    #[must_use]
    pub fn csv(&self) -> String {
        let spread: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Value(_)))))
            .collect();
        let mut out = String::new();
        let names = self.columns.iter().zip(&spread).flat_map(|(column, spread)| {
            let spreads = spread.then(|| [format!("{column} least"), format!("{column} most")]);
            std::iter::once(column.clone()).chain(spreads.into_iter().flatten())
        });
        out += &line(names.map(|name| escape::csv(&name)));
        for row in &self.rows {
            out += &line(row.iter().zip(&spread).flat_map(|(cell, spread)| match (cell, spread) {
                (Cell::Value(value), _) => {
                    vec![value.middle.to_string(), value.least.to_string(), value.most.to_string()]
                }
                (cell, true) => vec![plain(cell), String::new(), String::new()],
                (cell, false) => vec![plain(cell)],
            }));
        }
        out
    }
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Number(number) => number.to_string(),
        cell => escape::csv(&cell.shown()),
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            caption: "<b>".into(),
            columns: vec!["what | who".into(), "rate".into(), "none".into()],
            rows: vec![
                vec![
                    Cell::text("=cmd()"),
                    Cell::Value(Value { least: 1.0, most: 3.0, steady: false, ..Value::exactly(2000.0) }),
                    Cell::Empty,
                ],
                vec![Cell::text("a|b"), Cell::Number(-1.5), Cell::Empty],
            ],
        }
    }

    #[test]
    fn a_table_is_a_table_everywhere() {
        let table = table().without_empty_columns();
        assert_eq!(table.csv(), "what | who,rate,rate least,rate most\r\n\"'=cmd()\",2000,1,3\r\na|b,-1.5,,\r\n");
        assert_eq!(
            table.markdown(),
            "| what \\| who | rate |\n| --- | --- |\n| =cmd() | 2,000 \\[1–3\\] (not steady) |\n| a\\|b | −1.50 |\n"
        );
        let html = table.html();
        assert!(html.contains("<caption>&lt;b&gt;</caption>") && html.contains("scope=\"row\""), "{html}");
    }
}
