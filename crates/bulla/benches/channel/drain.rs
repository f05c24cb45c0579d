//! A transmission queue that was filled while its channel was stopped, drained into a local queue. No client takes part.

use crate::Options;
use crate::common::client::{Client, Messages, PAYLOAD_BYTES};
use crate::common::{Result, median};
use crate::report::Report;
use crate::site::{Channel, Elsewhere, Site};
use serde_json::json;
use std::time::{Duration, Instant};

/// The suite of the goal.
const CIPHER: &str = "TLS_AES_256_GCM_SHA384";
/// How often the target queue is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The rate is that of the messages between this share of all and the rest of it, so that start and end do not count.
const EDGE_SHARE: f64 = 0.05;
/// A queue that does not grow for so long has got all it gets.
const STALLED: Duration = Duration::from_secs(15);

struct Case {
    name: String,
    persistent: bool,
    cipher: Option<&'static str>,
    batch_size: u32,
}

#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    elsewhere: Vec<f64>,
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for (at, batch_size) in options.batch_size.iter().copied().enumerate() {
        for (letter, cipher) in [('C', None), ('T', Some(CIPHER))] {
            // What is not persistent knows no batches.
            if at == 0 {
                cases.push(Case { name: format!("N{letter}"), persistent: false, cipher, batch_size });
            }
            cases.push(Case { name: format!("P{letter}{batch_size}"), persistent: true, cipher, batch_size });
        }
    }
    cases
}

pub(crate) fn all(options: &Options, site: &Site, report: &mut Report) -> Result<()> {
    let cases = cases(options);
    let mut rounds: Vec<Rounds> = cases.iter().map(|_| Rounds::default()).collect();
    for case in &cases {
        let sender = format!("BATCHSZ({})", case.batch_size);
        let channel = Channel { receiver: &sender, ..channel(case, &sender) };
        site.define(&channel)?;
        site.define_queue(&channel, &queue(case))?;
    }
    for _ in 0..options.rounds() {
        for (case, rounds) in cases.iter().zip(&mut rounds) {
            let count = if case.persistent { options.persistent } else { options.messages };
            one(site, case, count, rounds)?;
        }
    }
    for (case, rounds) in cases.iter().zip(&mut rounds) {
        let tls = case.cipher.unwrap_or("none");
        let (rate, cpu, elsewhere) =
            (median(&mut rounds.rates), median(&mut rounds.cpu_us), median(&mut rounds.elsewhere));
        let range = format!("{:.0} – {:.0}", rounds.rates[0], rounds.rates[rounds.rates.len() - 1]);
        let batch = if case.persistent { case.batch_size.to_string() } else { "–".to_owned() };
        report.add(
            &json!({
                "part": "drain", "persistent": case.persistent, "tls": tls, "batch_size": case.batch_size, "payload_bytes": PAYLOAD_BYTES,
                "rate": rate, "rates": rounds.rates, "cpu_us": cpu, "elsewhere": elsewhere,
            }),
            &[
                if case.persistent { "persistent" } else { "not persistent" }.to_owned(),
                tls.to_owned(),
                batch,
                format!("{rate:.0}"),
                range,
                format!("{cpu:.2}"),
                format!("{elsewhere:.2}"),
            ],
        );
    }
    report.print(
        &format!(
            "Drained from a transmission queue into a local queue, {PAYLOAD_BYTES} bytes of payload; {} messages that are not persistent, {} that are:",
            options.messages, options.persistent
        ),
        &["messages", "TLS", "BATCHSZ", "a second", "rounds", "CPU µs a message, both queue managers", "busy cores elsewhere"],
    );
    Ok(())
}

fn channel<'a>(case: &'a Case, sender: &'a str) -> Channel<'a> {
    Channel { name: &case.name, forth: true, cipher: case.cipher, sender, receiver: "" }
}

fn queue(case: &Case) -> String {
    format!("{}.TARGET", case.name)
}

fn one(site: &Site, case: &Case, count: u64, rounds: &mut Rounds) -> Result<()> {
    let (channel, queue) = (channel(case, ""), queue(case));
    let mut client = Client::connect(&site.one.address, "putter-any")?;
    let link = client.sender(&queue)?;
    client.fill(link, &Messages::of(PAYLOAD_BYTES, case.persistent), count)?;
    client.close()?;
    let elsewhere = Elsewhere::begin(site)?;
    let used = site.used()?;
    site.one.mqsc(&format!("START CHANNEL('{}')", case.name))?;
    let rate = watch(site, &queue, count)?;
    rounds.cpu_us.push((site.used()? - used) as f64 / 1000.0 / count as f64);
    rounds.elsewhere.push(elsewhere.end(site)?);
    rounds.rates.push(rate);
    site.halt(&channel)?;
    site.two.mqsc(&format!("CLEAR QLOCAL('{queue}')"))?;
    Ok(())
}

/// Messages a second between the edges.
fn watch(site: &Site, queue: &str, count: u64) -> Result<f64> {
    let low = (count as f64 * EDGE_SHARE) as u64;
    let mut first: Option<(Instant, u64)> = None;
    let mut last = (Instant::now(), 0);
    let mut rate = f64::NAN;
    loop {
        let (now, depth) = (Instant::now(), site.two.depth(queue)?);
        if depth > last.1 {
            last = (now, depth);
        } else if last.0.elapsed() > STALLED {
            return Err(format!("{queue}: {depth} messages of {count} came").into());
        }
        if first.is_none() && depth > low {
            first = Some((now, depth));
        }
        if let Some((at, from)) = first
            && (depth <= count - low || rate.is_nan())
            && depth > from
        {
            rate = (depth - from) as f64 / (now - at).as_secs_f64();
        }
        if depth >= count {
            return Ok(rate);
        }
        std::thread::sleep(LOOK);
    }
}
