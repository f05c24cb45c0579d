//! A report as one page that needs nothing else: no network, no fonts, no script.

use super::chart::{STYLE, Width};
use super::document::{Document, Figure, Section};
use super::escape;
use super::table::{Cell, Table};
use std::fmt::Write;

/// What the page may load and run: its own style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page, in HTML.
#[must_use]
pub fn html(document: &Document) -> String {
    let title = escape::html(&document.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
        include_str!("page.css")
    );
    paragraphs(&mut out, &document.lead);
    out.push_str("</header>\n");
    if document.sections.len() > 1 {
        out.push_str("<nav aria-label=\"Sections\"><ul>");
        for (at, section) in document.sections.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = write!(out, "<li><a href=\"#s{at}\">{}</a></li>", escape::html(&section.title));
        }
        out.push_str("</ul></nav>\n");
    }
    out.push_str("<main>\n");
    let mut figures = 0;
    for (at, section) in document.sections.iter().enumerate() {
        sectioned(&mut out, at, section, &mut figures);
    }
    out.push_str("</main>\n<footer>\n");
    paragraphs(&mut out, &document.foot);
    out + "</footer>\n</body>\n</html>\n"
}

fn sectioned(out: &mut String, at: usize, section: &Section, figures: &mut usize) {
    let _ =
        writeln!(out, "<section aria-labelledby=\"s{at}\">\n<h2 id=\"s{at}\">{}</h2>", escape::html(&section.title));
    if !section.answer.is_empty() {
        let _ = writeln!(out, "<p class=\"answer\">{}</p>", escape::html(&section.answer));
    }
    for (nth, figure) in section.figures.iter().enumerate() {
        *figures += 1;
        let id = format!("f{figures}");
        if nth == 0 {
            drawn(out, &id, figure);
            paragraphs(out, &section.words);
        } else {
            folded(out, &figure.title, |out| drawn(out, &id, figure));
        }
    }
    if section.figures.is_empty() {
        paragraphs(out, &section.words);
    }
    for table in &section.tables {
        folded(out, &table.caption, |out| tabled(out, table));
    }
    out.push_str("</section>\n");
}

/// What is shown when its heading is clicked, and on paper.
fn folded(out: &mut String, heading: &str, inside: impl FnOnce(&mut String)) {
    let _ = writeln!(out, "<details><summary>{}</summary>", escape::html(heading));
    inside(out);
    out.push_str("</details>\n");
}

fn drawn(out: &mut String, id: &str, figure: &Figure) {
    let (title, description) = (escape::html(&figure.title), escape::html(&figure.description));
    let _ = write!(
        out,
        "<figure id=\"{id}\" aria-labelledby=\"{id}-h\">\n<div class=\"chart\">\n<figcaption><h3 id=\"{id}-h\">{title}</h3>"
    );
    if !figure.description.is_empty() {
        let _ = write!(out, "<p>{description}</p>");
    }
    out.push_str("</figcaption>\n");
    for size in [Width::Wide, Width::Narrow] {
        out.push_str(&figure.chart.draw(id, &figure.title, &figure.description, size));
        out.push('\n');
    }
    out.push_str("</div>\n");
    if !figure.remarks.is_empty() {
        out.push_str("<ul class=\"remarks\">");
        for remark in &figure.remarks {
            let _ = write!(out, "<li>{}</li>", escape::html(remark));
        }
        out.push_str("</ul>\n");
    }
    folded(out, "Data", |out| tabled(out, &figure.table));
    out.push_str("</figure>\n");
}

fn tabled(out: &mut String, table: &Table) {
    let words = table.rows.iter().flatten().all(|cell| matches!(cell, Cell::Text(_) | Cell::Empty));
    let _ = writeln!(out, "<div class=\"{}\">{}</div>", if words { "words" } else { "numbers" }, table.html());
}

fn paragraphs(out: &mut String, paragraphs: &[String]) {
    for paragraph in paragraphs {
        let _ = writeln!(out, "<p>{}</p>", escape::html(paragraph));
    }
}
