//! The report on results: which sections and figures there are, and in which order.

use super::answer::answer;
use super::compare;
use super::costs;
use super::course;
use super::document::{Document, Section};
use super::field::common;
use super::group::{Group, Measured, Setting};
use super::number::number;
use super::predictions;
use super::rates;
use super::table::{Cell, Table};
use super::trade;
use super::workload::Workload;

/// The report on what was measured, against an earlier run where there is one.
#[must_use]
pub fn document(measured: &Measured, earlier: Option<&Measured>) -> Document {
    let mut document = Document { title: "What protection costs".to_owned(), ..Document::default() };
    if measured.groups.is_empty() {
        document.lead.push("There are no samples in these results.".to_owned());
    }
    if let Some(earlier) = earlier {
        document.sections.push(compare::section(measured, earlier));
    }
    let mut workloads = measured.workloads();
    workloads.sort_by_key(|(workload, _)| Workload(workload).rank());
    document.sections.extend(workloads.iter().map(|(workload, groups)| section(&Workload(workload), groups)));
    document.sections.push(circumstances(measured));
    document.foot = vec![
        "A bar or point is the median of the samples; the thin line is from the least to the most. A sample that was not taken in a steady state is shown and said to be so.".to_owned(),
        "Modelled devices give real results no earlier than a profile says: they stand for cards that the machine has not.".to_owned(),
        "Colours: Masataka Okabe and Kei Ito, Color Universal Design.".to_owned(),
    ];
    document
}

/// How much was measured, and how much of it in a steady state.
fn counted(measured: &Measured) -> Vec<String> {
    let samples: usize = measured.groups.iter().map(|group| group.samples.len()).sum();
    if samples == 0 {
        return Vec::new();
    }
    let unsteady =
        measured.groups.iter().flat_map(|group| &group.samples).filter(|sample| !sample.unsteady.is_empty()).count();
    let steadiness = match unsteady {
        0 => "all of them in a steady state".to_owned(),
        1 => "1 of them not in a steady state".to_owned(),
        some => format!("{some} of them not in a steady state"),
    };
    let mut started: Vec<&str> =
        measured.runs.iter().map(|run| run.started.as_str()).filter(|started| !started.is_empty()).collect();
    started.sort_unstable();
    let when = match (started.first(), started.last()) {
        (Some(first), Some(last)) if first == last => format!(" Measured {first} UTC."),
        (Some(first), Some(last)) => format!(" Measured from {first} to {last} UTC."),
        _ => String::new(),
    };
    let mut counted = vec![format!(
        "{} configurations, {} samples, {steadiness}.{when}",
        number(measured.groups.len() as f64),
        number(samples as f64)
    )];
    let modelled = measured.groups.iter().filter(|group| group.is_modelled()).count();
    if modelled > 0 {
        counted.push(format!(
            "{modelled} of the configurations have modelled devices, and say so wherever they are shown."
        ));
    }
    let missed = measured.groups.iter().flat_map(|group| &group.samples).filter_map(|sample| sample.goal.as_ref());
    let (held, all) = missed.fold((0, 0), |(held, all), goal| (held + usize::from(goal.held), all + 1));
    if all > 0 {
        counted.push(format!("Goals: {held} of {all} samples that had one held it."));
    }
    counted
}

fn section(workload: &Workload, groups: &[&Group]) -> Section {
    let mut section = Section { title: workload.title(), answer: answer(workload, groups), ..Section::default() };
    let common = common(groups);
    section.words.push(match (groups.len(), common.is_empty()) {
        (_, true) => String::new(),
        (1, false) => format!("Measured: {common}."),
        (_, false) => format!("The same in all configurations: {common}."),
    });
    section.words.retain(|words| !words.is_empty());
    if workload.0 == "trade" {
        section.figures.extend(trade::charts(workload, groups));
        section.tables.push(trade::table(groups));
    }
    section.figures.extend(rates::targets(workload, groups));
    section.figures.extend(rates::rates(workload, groups));
    section.figures.extend(rates::round_trips(workload, groups));
    section.figures.extend(costs::by_role(workload, groups));
    section.figures.extend(costs::by_adapter(workload, groups));
    section.figures.extend(costs::by_device(workload, groups));
    section.figures.extend(course::courses(workload, groups));
    section.tables.extend(predictions::predicted(groups));
    section.tables.push(rates::results(workload, groups));
    section.tables.extend(costs::found(groups));
    section
}

/// Where and how it was measured.
fn circumstances(measured: &Measured) -> Section {
    let words = counted(measured);
    let mut section = Section { title: "How it was measured".to_owned(), words, ..Section::default() };
    let several = measured.settings.len() > 1;
    section
        .tables
        .extend(measured.settings.iter().enumerate().map(|(at, setting)| machine(several.then_some(at), setting)));
    let run = |run: &crate::result::Run| {
        vec![Cell::text(run.workload.as_str()), Cell::text(run.started.as_str()), Cell::text(run.command.as_str())]
    };
    if !measured.runs.is_empty() {
        section.tables.push(Table {
            caption: "Runs".to_owned(),
            columns: ["workload", "started, UTC", "command"].map(str::to_owned).to_vec(),
            rows: measured.runs.iter().map(run).collect(),
        });
    }
    section
}

fn machine(nth: Option<usize>, setting: &Setting) -> Table {
    let machine = &setting.machine;
    let known = |text: &str| Cell::text(if text.is_empty() { "not known" } else { text });
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let rows = vec![
        vec![Cell::text("processor"), known(&machine.processor)],
        vec![Cell::text("cores"), if machine.cores == 0 { known("") } else { Cell::Number(f64::from(machine.cores)) }],
        vec![
            Cell::text("memory"),
            if machine.memory_bytes == 0 { known("") } else { Cell::text(format!("{gib:.1} GiB")) },
        ],
        vec![Cell::text("system"), known(&machine.system)],
        vec![Cell::text("virtual machine"), Cell::text(if machine.is_virtual { "yes" } else { "no, or not told" })],
        vec![Cell::text("instructions"), known(&machine.instructions.join(" "))],
        vec![Cell::text("OpenSSL"), known(&machine.openssl)],
        vec![Cell::text("Bulla"), known(&setting.version)],
        vec![Cell::text("target"), known(&setting.target)],
    ];
    let caption = nth.map_or("Machine and setting".to_owned(), |nth| format!("Setting {}", nth + 1));
    Table { caption, columns: vec!["what".to_owned(), "measured with".to_owned()], rows }
}

/// All groups as one table, a column for each part of a configuration and each value: what a spreadsheet wants.
#[must_use]
pub fn flat(measured: &Measured) -> Table {
    let groups: Vec<&Group> = measured.groups.iter().collect();
    let roles = names(&groups, |sample| sample.cpu_us.keys().cloned().collect());
    let founds = names(&groups, |sample| sample.found.keys().cloned().collect());
    let mut columns: Vec<String> = ["workload"].map(str::to_owned).to_vec();
    columns.extend(PARTS.iter().map(|(name, _)| (*name).to_owned()));
    columns.extend(["samples", "steady", "modelled", "rate a second", "cpu us"].map(str::to_owned));
    columns.extend(roles.iter().map(|role| format!("cpu us {role}")));
    columns.extend(
        ["p50 us", "p99 us", "cores busy", "cores elsewhere", "cores stolen", "goal held", "remarks"]
            .map(str::to_owned),
    );
    columns.extend(founds.iter().cloned());
    let row = |group: &&Group| {
        let yes = |yes: bool| Cell::text(if yes { "yes" } else { "no" });
        let value = |of: &dyn Fn(&crate::result::Sample) -> Option<f64>| Cell::value(group.value(of));
        let mut cells = vec![Cell::text(group.workload.as_str())];
        cells.extend(PARTS.iter().map(|(_, of)| of(group)));
        cells.extend([
            Cell::Number(group.samples.len() as f64),
            yes(group.is_steady()),
            yes(group.is_modelled()),
            Cell::value(group.rate()),
            Cell::value(group.processor_us()),
        ]);
        cells.extend(roles.iter().map(|role| value(&|sample| sample.cpu_us.get(role).copied())));
        let goals: Vec<bool> = group.samples.iter().filter_map(|sample| Some(sample.goal.as_ref()?.held)).collect();
        cells.extend([
            value(&|sample| sample.latency_us.map(|latency| latency.p50)),
            value(&|sample| sample.latency_us.map(|latency| latency.p99)),
            value(&|sample| Some(sample.cores_busy)),
            value(&|sample| Some(sample.cores_elsewhere)),
            value(&|sample| Some(sample.cores_stolen)),
            if goals.is_empty() { Cell::Empty } else { yes(goals.iter().all(|held| *held)) },
            Cell::text(group.remarks().join("; ")),
        ]);
        cells.extend(founds.iter().map(|name| value(&|sample| sample.found.get(name).copied())));
        cells
    };
    Table { caption: String::new(), columns, rows: groups.iter().map(row).collect() }
}

/// The parts of a configuration, by the names of the format.
type Part = (&'static str, fn(&Group) -> Cell);
const PARTS: [Part; 24] = [
    ("setting", |group| Cell::Number(group.setting as f64 + 1.0)),
    ("quality", |group| Cell::text(group.configuration.quality.as_str())),
    ("key", |group| Cell::text(group.configuration.key.as_str())),
    ("reuse", |group| Cell::text(group.configuration.reuse.to_string())),
    ("sign-batch", |group| Cell::Number(f64::from(group.configuration.sign_batch))),
    ("recipients", |group| Cell::Number(f64::from(group.configuration.recipients))),
    ("bytes", |group| Cell::Number(group.configuration.bytes as f64)),
    ("persistent", |group| Cell::text(if group.configuration.persistent { "yes" } else { "no" })),
    ("pairs", |group| Cell::Number(f64::from(group.configuration.pairs))),
    ("in-flight", |group| Cell::Number(f64::from(group.configuration.in_flight))),
    ("target-rate", |group| Cell::Number(group.configuration.target_rate as f64)),
    ("devices", |group| Cell::text(group.configuration.devices.as_str())),
    ("cipher", |group| Cell::text(group.configuration.cipher.as_str())),
    ("client-certificates", |group| Cell::text(if group.configuration.client_certificates { "yes" } else { "no" })),
    ("reset-bytes", |group| Cell::Number(group.configuration.reset_bytes as f64)),
    ("requests", |group| Cell::Number(f64::from(group.configuration.requests))),
    ("resumed", |group| Cell::text(if group.configuration.resumed { "yes" } else { "no" })),
    ("dispatchers", |group| Cell::Number(f64::from(group.configuration.dispatchers))),
    ("adapters", |group| Cell::Number(f64::from(group.configuration.adapters))),
    ("topology", |group| Cell::text(group.configuration.topology.as_str())),
    ("getter-rate", |group| Cell::Number(group.configuration.getting.getter_rate as f64)),
    ("receiver-bytes", |group| Cell::Number(group.configuration.getting.receiver_bytes as f64)),
    ("max-depth", |group| Cell::Number(f64::from(group.configuration.getting.max_depth))),
    ("memory-mib", |group| Cell::Number(f64::from(group.configuration.getting.memory_mib))),
];

fn names(groups: &[&Group], of: impl Fn(&crate::result::Sample) -> Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = groups.iter().flat_map(|group| &group.samples).flat_map(of).collect();
    names.sort();
    names.dedup();
    names
}

/// The tables by the names under which a document that is written by hand asks for them: `key-size/results`,
/// `key-size/cost`, `machine`.
#[must_use]
pub fn named_tables(measured: &Measured) -> Vec<(String, Table)> {
    let mut tables: Vec<(String, Table)> = Vec::new();
    for (name, groups) in measured.workloads() {
        let workload = Workload(name);
        let section = section(&workload, &groups);
        tables.push((workload.figure("results"), rates::results(&workload, &groups)));
        if name == "trade" {
            tables.push((workload.figure("published"), trade::table(&groups)));
        }
        tables.extend(predictions::predicted(&groups).map(|table| (workload.figure("predicted"), table)));
        tables.extend(costs::found(&groups).map(|table| (workload.figure("found"), table)));
        tables.extend(section.figures.into_iter().map(|figure| (figure.name, figure.table)));
    }
    tables.extend(circumstances(measured).tables.into_iter().map(|table| ("circumstances".to_owned(), table)));
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page;
    use crate::result::{Line, Sample};

    const HOSTILE: &str = "</td></svg><script>alert(1)</script><img src=x onerror=y>\" onload=\"z|=cmd()\u{202e}";

    /// What a file might hold that was written to harm; invented.
    fn hostile() -> Measured {
        let text = |number: usize| format!("{HOSTILE}{number}");
        let json = serde_json::json!({
            "run": text(1), "workload": text(2), "rate": 1e308, "process_cpu_us": -5.0, "transactions": 1, "cores_busy": 1e300,
            "configuration": {"quality": "privacy", "key": text(3), "devices": text(4), "cipher": text(5), "topology": text(6), "bytes": u64::MAX},
            "cpu_us": {text(7): 1.0, "protection": 1e307}, "unsteady": [text(8)],
            "devices": [{"name": text(9), "kind": "MODELLED", "operations": [{"format": text(10), "count": u64::MAX, "execution_us": 1e300}]}],
            "tasks": [{"kind": "ADAPTER", "name": text(11), "requests": u64::MAX, "cpu_us": 1e300}],
            "course": [{"at": -1.0, "rate": 1e300, "depth": -4.0}, {"at": 1e300, "rate": 0.0, "depth": 1e16}],
            "goal": {"what": text(12), "wanted": 1.0, "reached": 0.0}, "found": {text(13): 1e300, "=1+1": 2.0},
        });
        let run = serde_json::json!({"run": text(1), "started": text(14), "command": text(15), "machine": {"processor": text(16), "instructions": [text(17)]}});
        let sample: Sample = serde_json::from_value(json).unwrap();
        let other = Sample {
            repeat: 2,
            rate: 3.0,
            configuration: crate::configuration::Configuration::default(),
            ..sample.clone()
        };
        let mut measured = Measured::default();
        measured.add(vec![
            Line::Run(Box::new(serde_json::from_value(run).unwrap())),
            Line::Sample(Box::new(sample)),
            Line::Sample(Box::new(other)),
        ]);
        measured
    }

    #[test]
    fn a_hostile_file_becomes_text_in_every_format() {
        let measured = hostile();
        let document = document(&measured, Some(&hostile()));
        let page = page::html(&document);
        for markup in ["<script", "<img", "\" onload", "\u{202e}"] {
            assert!(!page.contains(markup), "{markup}");
        }
        assert!(page.contains("&lt;script&gt;"), "it is shown");
        for figure in document.figures() {
            let file = figure.chart.file(&figure.title, &figure.description, &figure.remarks);
            assert!(!file.contains("<script") && !file.contains("NaN"), "{file}");
        }
        let markdown = crate::report::markdown::markdown(&document);
        assert!(!markdown.contains("<script") && !markdown.contains("z|="), "{markdown}");
        let csv = flat(&measured).csv();
        assert!(csv.contains("'=1+1"), "{csv}");
    }

    #[test]
    fn the_page_needs_nothing_from_outside() {
        let page = page::html(&document(&hostile(), None));
        for word in ["<link", "<script", "@import", "url(http", "<img", "<iframe", "<object", "@font-face"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn results_without_samples_are_said_to_have_none() {
        let page = page::html(&document(&Measured::default(), None));
        assert!(page.contains("There are no samples in these results."), "{page}");
    }

    #[test]
    fn what_is_not_steady_or_modelled_is_said_in_every_table_and_chart_that_shows_it() {
        let mut measured = Measured::default();
        let sample: Sample = serde_json::from_value(serde_json::json!({
            "workload": "devices", "rate": 100.0, "transactions": 100, "process_cpu_us": 10.0, "configuration": {"devices": "modelled:1c"},
            "cpu_us": {"protection": 10.0}, "unsteady": ["the backlog grew"],
            "devices": [{"name": "CARD", "kind": "MODELLED", "operations": [{"format": "CRT", "count": 5, "execution_us": 600.0}]}],
            "tasks": [{"kind": "ADAPTER", "name": "adapter-0", "requests": 10, "cpu_us": 5.0, "elapsed_us": 9.0, "wait_us": 4.0}],
            "course": [{"at": 1.0, "rate": 99.0, "depth": 1.0}, {"at": 2.0, "rate": 101.0, "depth": 5.0}],
        }))
        .unwrap();
        measured.add(vec![Line::Sample(Box::new(sample))]);
        let document = document(&measured, None);
        assert!(document.figures().count() >= 6, "{document:?}");
        for figure in document.figures() {
            let drawing = figure.chart.file(&figure.title, &figure.description, &[]);
            let table = figure.table.markdown();
            for word in ["modelled", "not steady"] {
                assert!(drawing.contains(word) && table.contains(word), "{}: {word}: {table}", figure.name);
            }
            assert!(figure.remarks.iter().any(|remark| remark.contains("the backlog grew")), "{}", figure.name);
        }
    }

    #[test]
    fn the_example_of_the_formats_page_is_read() {
        let page = include_str!("../../../../docs/formats/results.md");
        let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let lines = crate::result::parse(example.as_bytes(), std::path::Path::new("results.md")).unwrap();
        let mut measured = Measured::default();
        measured.add(lines);
        assert_eq!(measured.settings[0].machine.memory_bytes, 24 << 30);
        assert_eq!(measured.groups[0].samples[0].devices[0].operations[0].count, 910);
        assert!(measured.groups[0].samples[0].goal.as_ref().unwrap().held);
    }
}
