//! The page of a study: its figures beside ours first, then the report on the run.

use crate::error::{Error, Result};
use crate::report::document::{Document, Section};
use crate::report::group::Measured;
use crate::report::{markdown, page as html, story};
use clap::Args;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where the page goes.
#[derive(Args, Clone, Debug, Default)]
pub struct Pages {
    /// Write the page here: HTML with charts, or Markdown, by the ending (.html, .md); may be said again. Without it
    /// the tables are printed
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = "Results")]
    page: Vec<PathBuf>,
}

fn path(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if writer(&path).is_some() { Ok(path) } else { Err("expected a file that ends with .html or .md".to_owned()) }
}

fn writer(path: &Path) -> Option<fn(&Document) -> String> {
    match path.extension().and_then(OsStr::to_str) {
        Some("html" | "htm") => Some(html::html),
        Some("md") => Some(markdown::markdown),
        _ => None,
    }
}

/// What a study has to say.
#[derive(Debug, Default)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// What the study is, and what was measured here; a paragraph each.
    pub lead: Vec<String>,
    /// Its figures beside ours, and what follows from them.
    pub sections: Vec<Section>,
}

impl Pages {
    /// Writes the page; without a file, prints the sections of the study unless `is_silent`.
    ///
    /// # Errors
    /// [`Error::File`]: it can't be written.
    pub fn write(&self, page: Page, measured: &Measured, is_silent: bool) -> Result<()> {
        if self.page.is_empty() {
            if !is_silent {
                let Page { title, lead, sections } = page;
                let text = markdown::markdown(&Document { title, lead, sections, foot: Vec::new() });
                // A reader that goes away (`| head`) is no failure.
                let _ = write!(std::io::stdout().lock(), "\n{text}");
            }
            return Ok(());
        }
        let document = document(page, measured);
        for path in &self.page {
            // The endings were checked when the arguments were read.
            let text = writer(path).unwrap_or(markdown::markdown)(&document);
            fs::write(path, text).map_err(|error| Error::file(path, error))?;
        }
        Ok(())
    }
}

fn document(page: Page, measured: &Measured) -> Document {
    let report = story::document(measured, None);
    let sections = page.sections.into_iter().chain(report.sections).collect();
    Document { title: page.title, lead: page.lead, sections, foot: report.foot }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_of_a_known_kind() {
        assert!(path("a.html").is_ok() && path("b/c.md").is_ok());
        assert!(path("a.pdf").is_err() && path("a").is_err());
    }

    #[test]
    fn the_study_comes_before_the_report_on_the_run() {
        let sections = vec![Section { title: "Published beside ours".into(), ..Section::default() }];
        let page = Page { title: "A study".into(), lead: vec!["What it is.".into()], sections };
        let document = document(page, &Measured::default());
        let titles: Vec<&str> = document.sections.iter().map(|section| section.title.as_str()).collect();
        assert_eq!((document.title.as_str(), titles[0]), ("A study", "Published beside ours"));
        assert!(titles.contains(&"How it was measured"), "{titles:?}");
    }
}
