//! Reports: what was measured, as a page with charts, as Markdown, as CSV and as drawings.
//!
//! [`group`] puts samples together and [`story`] says what there is to tell of them, as a [`document::Document`];
//! [`page`] and [`markdown`] write it. Charts ([`chart`], [`bars`], [`panels`], [`lines`]) know nothing of results, so
//! that whatever else has curves to show can draw them.

mod answer;
pub mod axis;
pub mod bars;
pub mod chart;
mod compare;
mod costs;
pub mod course;
pub mod document;
pub mod escape;
pub mod field;
pub mod group;
pub mod lines;
pub mod markdown;
pub mod measured;
pub mod number;
pub mod page;
pub mod palette;
pub mod panels;
mod pivot;
mod predictions;
mod rates;
pub mod scale;
mod sheet;
pub mod story;
pub mod svg;
pub mod table;
pub mod trade;
pub mod width;
mod workload;

use crate::error::{Error, Result, Verdict};
use clap::{Args, ValueEnum};
use document::Document;
use group::Measured;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Show results as a page with charts, as Markdown, CSV or drawings
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Files of results, as the other subcommands write them
    #[arg(value_name = "RESULTS", required = true)]
    results: Vec<PathBuf>,
    /// Where to write the report; without it, Markdown or the --format goes to stdout. For drawings a folder, or with
    /// --chart a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Files of an earlier run, with which these results are compared
    #[arg(long, value_name = "EARLIER", num_args = 1..)]
    compare: Vec<PathBuf>,
    /// The format; without it the ending of the file says
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Draw this chart alone; the names stand in the error for one that there is not
    #[arg(long, value_name = "NAME")]
    chart: Option<String>,
    /// Make the measured parts of a Markdown file anew: what stands between <!-- measured: NAME --> and <!-- /measured
    /// -->
    #[arg(long, value_name = "FILE")]
    into: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    /// One page with charts
    Html,
    /// Markdown
    Md,
    /// One line for each configuration
    Csv,
    /// Drawings
    Svg,
}

/// Writes the report.
///
/// # Errors
/// [`Error::File`], [`Error::Content`] where a file is none of results or has markers that do not pair,
/// [`Error::Usage`].
pub fn run(args: &ReportArgs) -> Result<Verdict> {
    let measured = Measured::read(&args.results)?;
    let earlier = if args.compare.is_empty() { None } else { Some(Measured::read(&args.compare)?) };
    for path in &args.into {
        renew(path, &measured)?;
    }
    if args.output.is_none() && !args.into.is_empty() {
        return Ok(Verdict::Done);
    }
    let document = story::document(&measured, earlier.as_ref());
    match format(args)? {
        Format::Html => write(args, &page::html(&document)),
        Format::Md => write(args, &markdown::markdown(&document)),
        Format::Csv => write(args, &story::flat(&measured).csv()),
        Format::Svg => draw(args, &document),
    }?;
    Ok(Verdict::Done)
}

fn format(args: &ReportArgs) -> Result<Format> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    if args.chart.is_some() {
        return Ok(Format::Svg);
    }
    let Some(output) = &args.output else { return Ok(Format::Md) };
    match output.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => Ok(Format::Html),
        Some("md") => Ok(Format::Md),
        Some("csv") => Ok(Format::Csv),
        Some("svg") => Ok(Format::Svg),
        _ => Err(Error::Usage(format!("{}: html, md, csv or svg? say --format", output.display()))),
    }
}

fn draw(args: &ReportArgs, document: &Document) -> Result<()> {
    let drawn = |figure: &document::Figure| figure.chart.file(&figure.title, &figure.description, &figure.remarks);
    if let Some(name) = &args.chart {
        let figure = document.figures().find(|figure| figure.name == *name).ok_or_else(|| {
            let names: Vec<&str> = document.figures().map(|figure| figure.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Error::Usage(format!("no chart {name}; there are: {names}"))
        })?;
        return write(args, &drawn(figure));
    }
    let Some(folder) = &args.output else {
        return Err(Error::Usage("drawings go to a folder, -o FOLDER, or one of them with --chart NAME".to_owned()));
    };
    fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
    let mut names: Vec<String> = Vec::new();
    for figure in document.figures() {
        let mut name = escape::name(&figure.name);
        // Names from files may come to the same.
        while names.contains(&name) {
            name.push('x');
        }
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, drawn(figure)).map_err(|error| Error::file(&path, error))?;
        names.push(name);
    }
    Ok(())
}

fn write(args: &ReportArgs, text: &str) -> Result<()> {
    match &args.output {
        Some(path) => fs::write(path, text).map_err(|error| Error::file(path, error)),
        None => {
            // A reader that goes away (`| head`) is no failure.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            Ok(())
        }
    }
}

fn renew(path: &Path, measured: &Measured) -> Result<()> {
    let text = fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    let renewed = measured::renew(&text, &story::named_tables(measured)).map_err(|(line, wrong)| Error::Content {
        path: path.to_owned(),
        line,
        wrong,
    })?;
    for name in &renewed.unknown {
        eprintln!("{}: {name} is not in these results and stays as it was", path.display());
    }
    // Written aside first: the file holds more than what was measured.
    let aside = path.with_extension("md.new");
    fs::write(&aside, &renewed.text).map_err(|error| Error::file(&aside, error))?;
    fs::rename(&aside, path).map_err(|error| Error::file(path, error))
}
