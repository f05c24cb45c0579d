//! Request and reply through many pairs of channels: opened and sealed at the border of QM1, or sealed from client to client.
//!
//! Either way a transaction has two seals and two openings. At the border, QM1 seals the request for the application, its
//! channel opens it (SPLPROT(REMOVE)), QM2 knows nothing of seals, and the channel back seals the reply (SPLPROT(ASPOLICY)),
//! which QM1 opens for the application. End to end, QM1 seals and QM2 opens, and the other way round.

use crate::Options;
use crate::common::cases::{Case, Quality, Reuse};
use crate::common::client::Messages;
use crate::common::pair::{Pair, Seat};
use crate::common::{Result, median};
use crate::report::Report;
use crate::site::{Channel, Elsewhere, FILES_SEEN, Site};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of payload of a request, and of its reply.
const PAYLOAD_BYTES: usize = 32 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Border,
    EndToEnd,
}

/// What one round of many pairs came to.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
}

pub(crate) fn all(options: &Options, site: &Site, report: &mut Report) -> Result<()> {
    let quality = options.quality.last().copied().filter(|quality| *quality != Quality::None);
    let quality = quality.ok_or("pairs need a quality of protection, as the last of --quality")?;
    let reuse = match (quality, options.reuse.as_slice()) {
        (Quality::Confidentiality, reuses) if !reuses.is_empty() => reuses[reuses.len() / 2],
        _ => Reuse::Times(0),
    };
    let key = options.held_key.first().ok_or("no key")?.clone();
    let case = Case { quality, key, reuse };
    let most = options.pairs.iter().copied().max().unwrap_or(0).clamp(1, 500);
    let messages = Messages::of(PAYLOAD_BYTES, false);
    // What is sealed at QM1 is opened at QM2, by the same users.
    let (putter, getter) = case.users();
    for user in [&putter, &getter] {
        site.share_ring(user)?;
    }
    std::thread::sleep(FILES_SEEN);
    for way in [Way::Border, Way::EndToEnd] {
        for at in 0..most {
            define(site, &case, way, at)?;
        }
    }
    for count in options.pairs.iter().map(|count| (*count).clamp(1, most)) {
        let (mut border, mut end_to_end) = (Rounds::default(), Rounds::default());
        let mut fleets =
            [start(site, &case, Way::Border, count, &messages)?, start(site, &case, Way::EndToEnd, count, &messages)?];
        let elsewhere = Elsewhere::begin(site)?;
        // One round each for keys and caches, not counted.
        for turn in 0..=options.rounds() {
            for (fleet, rounds) in fleets.iter_mut().zip([&mut border, &mut end_to_end]) {
                let (rate, cpu_us) = run(options, site, fleet)?;
                if turn > 0 {
                    rounds.rates.push(rate);
                    rounds.cpu_us.push(cpu_us);
                }
            }
        }
        let elsewhere = elsewhere.end(site)?;
        fleets.into_iter().flatten().try_for_each(Pair::stop)?;
        let (border_rate, end_rate) = (median(&mut border.rates), median(&mut end_to_end.rates));
        let (border_us, end_us) = (median(&mut border.cpu_us), median(&mut end_to_end.cpu_us));
        report.add(
            &json!({
                "part": "pairs", "pairs": count, "case": case.to_string(), "payload_bytes": PAYLOAD_BYTES,
                "border_rate": border_rate, "end_to_end_rate": end_rate, "ratio": border_rate / end_rate,
                "border_rates": border.rates, "end_to_end_rates": end_to_end.rates,
                "border_cpu_us": border_us, "end_to_end_cpu_us": end_us, "elsewhere": elsewhere,
            }),
            &[
                count.to_string(),
                format!("{border_rate:.0}"),
                format!("{end_rate:.0}"),
                format!("{:.2}", border_rate / end_rate),
                format!("{border_us:.0}"),
                format!("{end_us:.0}"),
                format!("{elsewhere:.2}"),
            ],
        );
    }
    report.print(
        &format!("Request and reply of {} KB through pairs of channels, {case}:", PAYLOAD_BYTES >> 10),
        &[
            "pairs",
            "sealed and opened at the border, round trips a second",
            "end to end",
            "ratio",
            "CPU µs a round trip, both queue managers, border",
            "end to end",
            "busy cores elsewhere",
        ],
    );
    Ok(())
}

/// Names of the request's channel and queue, and of the reply's.
fn names(way: Way, at: usize) -> [String; 4] {
    let letter = if way == Way::Border { 'B' } else { 'E' };
    ["FORTH", "BACK", "ASK", "ANSWER"].map(|what| format!("{letter}.{what}.{at}"))
}

fn define(site: &Site, case: &Case, way: Way, at: usize) -> Result<()> {
    let [forth, back, asked, answered] = names(way, at);
    let (putter, getter) = case.users();
    let (sender, receiver) = match way {
        // Requests are sealed for the ring that opens them, replies by the ring that seals them: both the getter's.
        Way::Border => {
            (format!("SPLPROT(REMOVE) MCAUSER('{getter}')"), format!("SPLPROT(ASPOLICY) MCAUSER('{getter}')"))
        }
        Way::EndToEnd => (String::new(), String::new()),
    };
    let forth = Channel { name: &forth, forth: true, cipher: None, sender: &sender, receiver: "" };
    let back = Channel { name: &back, forth: false, cipher: None, sender: "", receiver: &receiver };
    for (channel, queue) in [(&forth, &asked), (&back, &answered)] {
        site.define(channel)?;
        site.define_queue(channel, queue)?;
        site.run(channel)?;
    }
    let policy =
        |name: &str, from: &str, to: &str| case.policy(&format!("'{name}'"), from, to).ok_or("a case without a policy");
    site.one.mqsc(&policy(&asked, &putter, &getter)?)?;
    site.one.mqsc(&policy(&answered, &getter, &putter)?)?;
    match way {
        Way::Border => site.one.mqsc(&policy(forth.name, &putter, &getter)?)?,
        Way::EndToEnd => {
            site.two.mqsc(&policy(&asked, &putter, &getter)?)?;
            site.two.mqsc(&policy(&answered, &getter, &putter)?)?
        }
    };
    Ok(())
}

fn start(site: &Site, case: &Case, way: Way, count: usize, messages: &Messages) -> Result<Vec<Pair>> {
    let (putter, getter) = case.users();
    let pair = |at| {
        let [_, _, asked, answered] = names(way, at);
        let requester = Seat { address: &site.one.address, user: &putter, puts: &asked, gets: &answered };
        let server = Seat { address: &site.two.address, user: &getter, puts: &answered, gets: &asked };
        Pair::start(requester, server, messages)
    };
    (0..count).map(pair).collect()
}

/// All pairs for one round: round trips a second, and microseconds of processor time of both queue managers for each.
fn run(options: &Options, site: &Site, fleet: &mut [Pair]) -> Result<(f64, f64)> {
    let stop = AtomicBool::new(false);
    let before: u64 = fleet.iter().map(Pair::count).sum();
    let used = site.used()?;
    let begun = Instant::now();
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let stop = &stop;
        let work = |pair| scope.spawn(move || until(pair, stop));
        let threads: Vec<_> = fleet.iter_mut().map(work).collect();
        std::thread::sleep(options.round());
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let used = site.used()? - used;
    results.into_iter().collect::<Result<()>>()?;
    let count = fleet.iter().map(Pair::count).sum::<u64>() - before;
    Ok((count as f64 / seconds, used as f64 / 1000.0 / count.max(1) as f64))
}

fn until(pair: &mut Pair, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        pair.transaction()?;
    }
    Ok(())
}
