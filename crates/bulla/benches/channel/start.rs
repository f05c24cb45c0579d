//! How many channels start in a second: calls, TLS handshakes, greetings, all at the same time.

use crate::Options;
use crate::common::manager::{number, word};
use crate::common::{Result, median};
use crate::report::Report;
use crate::site::{Channel, Elsewhere, Site, wait};
use serde_json::json;
use std::time::Instant;

/// Kinds of channels: the first letter of their names, what the table says, SSLCIPH.
const KINDS: [(&str, &str, Option<&str>); 3] = [
    ("C", "no TLS", None),
    ("T", "TLS 1.3, RSA 2048, both show certificates", Some("TLS_AES_256_GCM_SHA384")),
    ("E", "TLS 1.2 ECDHE, RSA 2048, both show certificates", Some("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")),
];

pub(crate) fn all(options: &Options, site: &Site, report: &mut Report) -> Result<()> {
    let count = options.channels.clamp(1, 2_000);
    for (letter, _, cipher) in KINDS {
        for at in 0..count {
            let name = format!("{letter}.{at}");
            site.define(&Channel { name: &name, forth: true, cipher, sender: "", receiver: "" })?;
        }
    }
    let mut rounds: Vec<(Vec<f64>, Vec<f64>)> = KINDS.iter().map(|_| (Vec::new(), Vec::new())).collect();
    // Once for what is made at the first start of all.
    for (letter, ..) in KINDS {
        one(site, letter, count)?;
    }
    let elsewhere = Elsewhere::begin(site)?;
    for _ in 0..options.rounds() {
        for ((letter, ..), (rates, cpu)) in KINDS.iter().zip(&mut rounds) {
            let (rate, cpu_us) = one(site, letter, count)?;
            rates.push(rate);
            cpu.push(cpu_us);
        }
    }
    let elsewhere = elsewhere.end(site)?;
    for ((_, title, _), (rates, cpu)) in KINDS.iter().zip(&mut rounds) {
        let (rate, cpu_us) = (median(rates), median(cpu));
        report.add(
            &json!({
                "part": "start", "case": title, "channels": count, "rate": rate, "rates": rates, "cpu_us": cpu_us, "elsewhere": elsewhere,
            }),
            &[(*title).to_owned(), format!("{rate:.0}"), format!("{cpu_us:.0}")],
        );
    }
    report.print(
        &format!("{count} channels started together, until all run; busy cores elsewhere {elsewhere:.2}:"),
        &["channels", "starts a second", "CPU µs a start, both queue managers"],
    );
    Ok(())
}

/// Starts all channels of a kind and stops them again: starts a second, and microseconds of processor time each.
fn one(site: &Site, letter: &str, count: usize) -> Result<(f64, f64)> {
    let commands = |verb: &str, rest: &str| {
        (0..count).map(|at| format!("{verb} CHANNEL('{letter}.{at}') {rest}\n")).collect::<String>()
    };
    let used = site.used()?;
    let begun = Instant::now();
    site.one.mqsc(&commands("START", ""))?;
    wait(|| {
        let rows = site.one.rows("DISPLAY CHINIT ALL")?;
        let of = |keyword| rows.first().and_then(|row| number(row, keyword)).unwrap_or(0);
        // Far cheaper than a row for each channel; those are looked at once, when none starts any more.
        Ok(of("ACTIVE") >= count as u64 && of("STARTING") == 0 && running(site, letter)? >= count)
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_us = (site.used()? - used) as f64 / 1000.0 / count as f64;
    site.one.mqsc(&commands("STOP", "MODE(FORCE) STATUS(INACTIVE)"))?;
    wait(|| {
        let gone = |manager: &crate::common::manager::Manager| -> Result<bool> {
            let rows = manager.rows("DISPLAY CHINIT ALL")?;
            Ok(rows.first().and_then(|row| number(row, "ACTIVE")) == Some(0))
        };
        Ok(gone(&site.one)? && gone(&site.two)?)
    })?;
    Ok((count as f64 / seconds, cpu_us))
}

fn running(site: &Site, letter: &str) -> Result<usize> {
    let rows = site.one.rows(&format!("DISPLAY CHSTATUS('{letter}.*') STATUS"))?;
    Ok(rows.iter().filter(|row| word(row, "STATUS") == Some("RUNNING")).count())
}
