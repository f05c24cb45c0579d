//! The table at the end of a run, and the machine that it was measured on.

use super::Workload;
use super::options::describe;
use super::statistics::Spread;
use crate::result::{ROLES, Run, Sample};
use bulla_table::{Column, Table};
use std::io::Write;

/// Roles below this many microseconds a transaction are not named.
const ROLE_US_MIN: f64 = 0.05;

/// Prints it. A reader that goes away is no failure.
pub(super) fn print(run: &Run, samples: &[Vec<Sample>], workload: &dyn Workload) {
    let _ = std::io::stdout().lock().write_all(text(run, samples, workload).as_bytes());
}

fn text(run: &Run, samples: &[Vec<Sample>], workload: &dyn Workload) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "{}: {} cores{}, {}, {}, {}\n",
        machine.processor,
        machine.cores,
        if machine.is_virtual { " of a virtual machine" } else { "" },
        machine.system,
        machine.openssl,
        if run.target == "self" { "client and queue manager share the cores" } else { "the client is on this machine" },
    );
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    let mut headings: Vec<String> = Vec::new();
    // Where some configurations are timed and others not, the columns stay the same.
    let is_timed = samples.iter().flatten().any(|sample| sample.latency_us.is_some());
    for samples in samples.iter().filter(|samples| !samples.is_empty()) {
        let (heading, row) = row(samples, workload, is_timed);
        headings = heading;
        rows.push(row);
        notes.extend(notes_of(samples));
    }
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&aligned(&headings, &rows));
    }
    if samples.iter().flatten().any(|sample| sample.configuration.devices.starts_with("modelled")) {
        notes.push("modelled: no such card is here; its real results were computed by this processor and given out when the profile says".to_owned());
    }
    for left_out in &run.left_out {
        notes.push(format!("not measured: {}: {}", describe(&left_out.configuration), left_out.why));
    }
    let conclusion = workload.conclusion(samples);
    if !conclusion.is_empty() {
        text.push('\n');
        text.push_str(&conclusion);
    }
    if !notes.is_empty() {
        text.push('\n');
        for note in notes {
            text.push_str(&note);
            text.push('\n');
        }
    }
    text
}

/// A configuration's line, with the headings that go with it.
fn row(samples: &[Sample], workload: &dyn Workload, is_timed: bool) -> (Vec<String>, Vec<String>) {
    let spread = |of: &dyn Fn(&Sample) -> f64| Spread::of(samples.iter().map(of));
    let middle = |of: &dyn Fn(&Sample) -> f64| spread(of).map_or(f64::NAN, |spread| spread.median);
    let mut columns: Vec<(String, String)> = Vec::new();
    let mut column = |heading: &str, text: String| columns.push((heading.to_owned(), text));
    column("configuration", samples.first().map(|sample| describe(&sample.configuration)).unwrap_or_default());
    let rates = spread(&|sample| sample.rate);
    column(
        &format!("{}/s", workload.transactions()),
        rates.map_or(String::new(), |rates| format!("{:.0}", rates.median)),
    );
    column("least–most", rates.map_or(String::new(), |rates| format!("{:.0}–{:.0}", rates.least, rates.most)));
    if is_timed {
        let us = |of: &dyn Fn(&crate::result::Latency) -> f64| {
            middle(&|sample| sample.latency_us.as_ref().map_or(f64::NAN, of))
        };
        let told = |us: f64| if us.is_finite() { format!("{us:.0}") } else { "–".to_owned() };
        column("p50 µs", told(us(&|latency| latency.p50)));
        column("p99 µs", told(us(&|latency| latency.p99)));
    }
    column("CPU µs", format!("{:.1}", middle(&|sample| sample.process_cpu_us)));
    let roles: Vec<String> = ROLES
        .iter()
        .map(|role| (role, middle(&|sample| sample.cpu_us.get(*role).copied().unwrap_or(0.0))))
        .filter(|(_, us)| *us >= ROLE_US_MIN)
        .map(|(role, us)| format!("{role} {us:.1}"))
        .collect();
    column("cores busy", format!("{:.2}", middle(&|sample| sample.cores_busy)));
    for (heading, text) in workload.columns(&samples.iter().collect::<Vec<_>>()) {
        column(heading, text);
    }
    if samples.iter().any(|sample| sample.goal.is_some()) {
        let held = samples.iter().filter(|sample| sample.goal.as_ref().is_some_and(|goal| goal.held)).count();
        column("held", if held * 2 > samples.len() { "yes".to_owned() } else { "no".to_owned() });
    }
    column("by role", roles.join(", "));
    columns.into_iter().unzip()
}

/// What a reader must know about a configuration's samples.
fn notes_of(samples: &[Sample]) -> Vec<String> {
    let unsteady: Vec<&Sample> = samples.iter().filter(|sample| !sample.unsteady.is_empty()).collect();
    let Some(worst) = unsteady.first() else { return Vec::new() };
    vec![format!(
        "not steady: {}, {} of {} samples: {}",
        describe(&worst.configuration),
        unsteady.len(),
        samples.len(),
        worst.unsteady.join("; ")
    )]
}

/// The first column and the last to the left, numbers to the right.
fn aligned(headings: &[String], rows: &[Vec<String>]) -> String {
    let last = headings.len().saturating_sub(1);
    let column = |at| if at == 0 || at == last { Column::left() } else { Column::right() };
    let mut table = Table::new((0..headings.len()).map(column));
    table.row(headings);
    rows.iter().for_each(|row| table.row(row));
    table.text()
}
