//! Predictions as text for people.

use super::command::Answer;
use super::hardware::Utilisation;
use super::predict::Prediction;
use super::target::{CARD_COST, DEVICE_COST, THREAD_COST, Target};
use super::trust::Trust;
use super::what_if::WhatIf;
use crate::configuration::{Configuration, Quality, Reuse};
use crate::report::number::{self, number};
use bulla_table::{Column, Table};
use std::fmt::Write;
use std::iter;

/// What is said of a profile that was written by hand, or by an earlier version.
const UNKNOWN: &str = "not known: the profile does not say; `bulla plan calibrate` finds out for this machine";

/// Everything that was asked.
#[must_use]
pub fn answer(answer: &Answer) -> String {
    let mut text = prediction(&answer.prediction);
    let trust = answer.trust.as_ref().map_or_else(|| UNKNOWN.to_owned(), Trust::line);
    line(&mut text, "trust", &trust);
    if !answer.what_if.is_empty() {
        text.push('\n');
        text.push_str(&what_ifs(&answer.prediction, &answer.what_if));
    }
    if let Some(found) = &answer.target {
        text.push('\n');
        text.push_str(&target(found));
    }
    text
}

/// What a configuration is, in a line.
#[must_use]
pub fn configuration(configuration: &Configuration) -> String {
    if configuration.requests > 0 {
        return https(configuration);
    }
    let mut words = vec![configuration.quality.to_string()];
    if configuration.quality != Quality::None {
        words.push(configuration.key.clone());
    }
    if configuration.quality == Quality::Confidentiality && configuration.reuse != Reuse::Times(0) {
        words.push(format!("reuse {}", configuration.reuse));
    }
    if configuration.sign_batch > 1 {
        words.push(format!("batch {}", configuration.sign_batch));
    }
    if configuration.recipients > 1 {
        words.push(format!("{} recipients", configuration.recipients));
    }
    words.push(number::bytes(configuration.bytes));
    if configuration.persistent {
        words.push("persistent".to_owned());
    }
    if configuration.pairs > 1 {
        words.push(format!("{} pairs", configuration.pairs));
    }
    words.push(format!("{} in flight", configuration.in_flight));
    if configuration.target_rate > 0 {
        words.push(format!("{} a second wanted", number(configuration.target_rate as f64)));
    }
    words.push(format!("devices {}", configuration.devices));
    if !configuration.cipher.is_empty() {
        words.push(configuration.cipher.clone());
    }
    if configuration.topology != "local" {
        words.push(format!("over a {}", configuration.topology));
    }
    words.join(", ")
}

/// What a configuration of the trading workload is.
fn https(configuration: &Configuration) -> String {
    let mut words = vec![
        configuration.key.clone(),
        format!("{} requests a connection", configuration.requests),
        format!("{} clients", configuration.in_flight),
        format!("devices {}", configuration.devices),
        configuration.cipher.clone(),
    ];
    if configuration.resumed {
        words.insert(2, "sessions resumed".to_owned());
    }
    words.join(", ")
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name:<13}{value}");
}

/// One prediction.
#[must_use]
pub fn prediction(prediction: &Prediction) -> String {
    let mut text = String::new();
    line(&mut text, "profile", &format!("{} ({})", prediction.profile, prediction.source));
    line(
        &mut text,
        "planned",
        &format!("{}: {}", prediction.workload.as_str(), configuration(&prediction.configuration)),
    );
    let within = match prediction.rate_within {
        within if within > 0.0 && within.is_finite() => format!(" ± {}", number(within)),
        _ => String::new(),
    };
    line(
        &mut text,
        "rate",
        &format!("{} a second{within}, predicted by {}", number(prediction.rate), prediction.solver.as_str()),
    );
    if let Some(held) = prediction.held {
        let wanted = number(prediction.configuration.target_rate as f64);
        line(&mut text, "target", &format!("{wanted} a second: {}", if held { "held" } else { "not held" }));
    }
    let latency = &prediction.latency_us;
    let about =
        if prediction.latency_approximate { " (percentiles approximate: exponential about the mean)" } else { "" };
    let percentiles = [("50 %", latency.p50), ("90 %", latency.p90), ("99 %", latency.p99), ("99.9 %", latency.p999)];
    let percentiles: Vec<String> = percentiles.iter().map(|(name, us)| format!("{name} {}", number(*us))).collect();
    line(&mut text, "response µs", &format!("mean {}, {}{about}", number(latency.mean), percentiles.join(", ")));
    line(&mut text, "bottleneck", &bottleneck(prediction));
    for (at, station) in prediction.stations.iter().enumerate() {
        let servers = if station.servers > 1.0 { format!(" of {}", number(station.servers)) } else { String::new() };
        let value = format!("{:<16} {:>5.1} %{servers}", station.name, station.utilisation * 100.0);
        line(&mut text, if at == 0 { "stations" } else { "" }, &value);
    }
    let roles: Vec<String> = prediction
        .cpu_us
        .iter()
        .filter(|(_, us)| **us >= 0.05)
        .map(|(role, us)| format!("{role} {}", number(*us)))
        .collect();
    if !roles.is_empty() {
        let sum = number(prediction.process_cpu_us());
        line(&mut text, "processor µs", &format!("{sum} a transaction: {}", roles.join(", ")));
    }
    if !prediction.operations.is_empty() {
        let operations: Vec<String> =
            prediction.operations.iter().map(|(operation, count)| format!("{operation} {}", number(*count))).collect();
        line(&mut text, "operations", &format!("{} a transaction", operations.join(", ")));
    }
    if let Some(sharing) = &prediction.sharing {
        let value = format!(
            "{} messages a signature on average, {} at most; {} verifications a message",
            number(sharing.together),
            prediction.configuration.sign_batch,
            number(sharing.verifications)
        );
        line(&mut text, "batches", &value);
    }
    for device in &prediction.devices {
        let value = format!(
            "{}: {} jobs a transaction, {:.1} a call, {} µs until answered, {} pending",
            device.name,
            number(device.jobs),
            device.lanes_filled,
            number(device.response_us),
            number(device.pending)
        );
        line(&mut text, "device", &value);
    }
    let bounds = format!(
        "{} a second by the parts alone, {} by mean-value analysis of them",
        number(prediction.bound),
        number(prediction.mean_value_rate)
    );
    line(&mut text, "bound", &bounds);
    for remark in &prediction.remarks {
        line(&mut text, "remark", remark);
    }
    text
}

fn bottleneck(prediction: &Prediction) -> String {
    match prediction.bottleneck.as_str() {
        "in-flight" => "messages in flight: each waits for the one before, no station is full".to_owned(),
        name if prediction.held == Some(true) => format!("{name}, which would fill first"),
        name => name.to_owned(),
    }
}

/// Each change beside what it changes.
fn what_ifs(before: &Prediction, changes: &[WhatIf]) -> String {
    let numbers = [12, 9, 14, 9, 14, 9].map(|width| Column::right().at_least(width));
    let mut table =
        Table::new(iter::once(Column::left().at_least(26)).chain(numbers).chain(iter::once(Column::left())));
    table.row(["what if", "a second", "", "mean µs", "", "processor µs", "", "bottleneck"]);
    let percent = |now: f64, before: f64| match before > 0.0 {
        true => number::difference((now / before - 1.0) * 100.0),
        false => String::new(),
    };
    for change in changes {
        let now = &change.prediction;
        table.row([
            change.change.to_string(),
            number(now.rate),
            percent(now.rate, before.rate),
            number(now.latency_us.mean),
            percent(now.latency_us.mean, before.latency_us.mean),
            number(now.process_cpu_us()),
            percent(now.process_cpu_us(), before.process_cpu_us()),
            now.bottleneck.clone(),
        ]);
    }
    table.text()
}

/// The cheapest setup.
fn target(found: &Target) -> String {
    let mut text = String::new();
    let wanted = number(found.wanted as f64);
    match (&found.setup, &found.prediction) {
        (Some(setup), Some(prediction)) => {
            let value = format!(
                "{wanted} a second: held by {} cores, devices {}, {} dispatchers, {} adapters",
                setup.cores, setup.devices, setup.dispatchers, setup.adapters
            );
            line(&mut text, "cheapest", &value);
            let value = format!(
                "{} a second, mean {} µs, 99 % {} µs, cores {:.1} % busy",
                number(prediction.rate),
                number(prediction.latency_us.mean),
                number(prediction.latency_us.p99),
                prediction.cores_busy * 100.0 / f64::from(setup.cores)
            );
            line(&mut text, "", &value);
        }
        _ if found.cut_short => {
            let value =
                format!("{wanted} a second: nothing of what was computed holds it; dearer setups were not looked at");
            line(&mut text, "cheapest", &value);
        }
        _ => line(&mut text, "cheapest", &format!("{wanted} a second: nothing that was looked at holds it")),
    }
    let value = format!(
        "cheapest first: a core costs 1, a card {CARD_COST}, a device on the cores {DEVICE_COST}, a thread {THREAD_COST}; {} computed, {} passed over by their bound",
        found.computed, found.passed_over
    );
    line(&mut text, "order", &value);
    text
}

/// Devices under the load that a profile states.
#[must_use]
pub fn devices(devices: &[Utilisation]) -> String {
    let mut text = String::new();
    for device in devices {
        let _ = writeln!(
            text,
            "\n# {}: {} operations a second of {:.3} ms, {:.1} % busy with {} engines, {}",
            device.device,
            number(device.rate),
            device.execution_us / 1000.0,
            device.utilisation_percent,
            device.engines,
            match device.wait_us {
                Some(us) => format!("{:.3} ms waiting where they come at random", us / 1000.0),
                None => "more than it can do: another one is due".to_owned(),
            }
        );
        for function in &device.functions {
            let _ = writeln!(
                text,
                "#   {} {}: {} a second, {:.3} ms, {:.1} %",
                format!("{:?}", function.format).to_uppercase(),
                function.bits,
                number(function.rate),
                function.execution_us / 1000.0,
                function.utilisation_percent
            );
        }
    }
    text
}
