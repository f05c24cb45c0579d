//! A report in Markdown: its words and tables. What charts show stands in the tables.

use super::document::Document;
use super::escape;
use super::table::Table;

/// The report.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let mut out = format!("# {}\n", escape::markdown(&document.title));
    let paragraphs = |out: &mut String, texts: &[String]| {
        for text in texts {
            *out += &format!("\n{}\n", escape::markdown(text));
        }
    };
    paragraphs(&mut out, &document.lead);
    for section in &document.sections {
        out += &format!("\n## {}\n", escape::markdown(&section.title));
        if !section.answer.is_empty() {
            paragraphs(&mut out, std::slice::from_ref(&section.answer));
        }
        paragraphs(&mut out, &section.words);
        for table in &section.tables {
            out += &tabled(table);
        }
        for figure in &section.figures {
            out += &format!("\n### {}\n", escape::markdown(&figure.title));
            paragraphs(&mut out, std::slice::from_ref(&figure.description));
            for remark in &figure.remarks {
                out += &format!("\n- {}", escape::markdown(remark));
            }
            if !figure.remarks.is_empty() {
                out.push('\n');
            }
            out += &tabled(&figure.table);
        }
    }
    paragraphs(&mut out, &document.foot);
    out
}

/// A table under its caption.
#[must_use]
pub fn tabled(table: &Table) -> String {
    format!("\n{}:\n\n{}", escape::markdown(&table.caption), table.markdown())
}
