//! Any bytes as a file of results: read, or refused. What was read is written and read again, and shown in each format.

#![no_main]

use bulla_perf::report::group::Measured;
use bulla_perf::report::{markdown, page, story};
use bulla_perf::result::parse;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("results.jsonl");
    let Ok(lines) = parse(data, path) else { return };
    let mut written = Vec::new();
    for line in &lines {
        serde_json::to_writer(&mut written, line).expect("what was read is written");
        written.push(b'\n');
    }
    let again = parse(&written[..], path).expect("what was written is read");
    assert_eq!(again.len(), lines.len());

    let (mut measured, mut earlier) = (Measured::default(), Measured::default());
    measured.add(lines);
    earlier.add(again);
    for document in [story::document(&measured, None), story::document(&measured, Some(&earlier))] {
        let _ = (page::html(&document), markdown::markdown(&document));
        for figure in document.figures() {
            let _ = figure.chart.file(&figure.title, &figure.description, &figure.remarks);
        }
    }
    let _ = story::flat(&measured).csv();
});
