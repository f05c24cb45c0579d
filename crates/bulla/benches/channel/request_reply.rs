//! A request from QM1 to QM2 through one channel, its reply through another, one at a time.

use crate::Options;
use crate::common::client::Messages;
use crate::common::pair::{Pair, Seat};
use crate::common::{Result, median};
use crate::raw;
use crate::report::Report;
use crate::site::{Channel, Elsewhere, Site};
use serde_json::json;
use std::time::Duration;

/// Bytes of payload of a request, and of its reply.
const SIZES: [usize; 2] = [8 << 10, 32 << 10];
/// Bytes after which keys are renewed, where they are (SSLRKEYC).
const RENEW_BYTES: u32 = 1 << 20;
/// The fewest that count: a KeyUpdate costs so little that it takes many of them to be seen beside a round trip.
const RENEW_BYTES_MIN: u32 = 32 << 10;
/// Rounds of each kind, in turns, for each round of the options.
const TURNS: usize = 5;

/// What a pair that waits for the others does at least.
const SIGN_OF_LIFE: Duration = Duration::from_millis(1);

/// How the two channels are protected.
struct Case {
    title: &'static str,
    cipher: Option<&'static str>,
    /// SSLRKEYC; 0 for never.
    renew_bytes: u32,
    /// Whoever calls shows a certificate.
    mutual: bool,
}

const fn case(title: &'static str, cipher: &'static str, renew_bytes: u32, mutual: bool) -> Case {
    Case { title, cipher: Some(cipher), renew_bytes, mutual }
}

const CBC: &str = "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256";
const GCM: &str = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
const TLS13: &str = "TLS_AES_256_GCM_SHA384";

/// Those without a certificate of the caller are the last ones: it is taken away when the others run.
const CASES: [Case; 10] = [
    Case { title: "no TLS", cipher: None, renew_bytes: 0, mutual: true },
    case("TLS 1.2 AES-128-CBC-SHA256", CBC, 0, true),
    case("TLS 1.2 AES-256-GCM", GCM, 0, true),
    case("TLS 1.3 AES-256-GCM", TLS13, 0, true),
    case("TLS 1.2 AES-128-CBC-SHA256, renegotiation, both show certificates", CBC, RENEW_BYTES, true),
    case("TLS 1.2 AES-256-GCM, renegotiation, both show certificates", GCM, RENEW_BYTES, true),
    case("TLS 1.3 AES-256-GCM, KeyUpdate", TLS13, RENEW_BYTES, true),
    case("TLS 1.3 AES-256-GCM, KeyUpdate after 32 KiB", TLS13, RENEW_BYTES_MIN, true),
    case("TLS 1.2 AES-128-CBC-SHA256, renegotiation, one certificate", CBC, RENEW_BYTES, false),
    case("TLS 1.2 AES-256-GCM, renegotiation, one certificate", GCM, RENEW_BYTES, false),
];

/// A case of one size at work.
struct Run {
    case: &'static Case,
    /// Where it stands in CASES.
    number: usize,
    bytes: usize,
    names: (String, String),
    pair: Pair,
    times_us: Vec<f64>,
    resets: u64,
    transactions: u64,
    /// Why it can't be measured.
    failed: Option<String>,
}

impl Run {
    /// Microseconds of a transaction in one round; none after a failure, which does not end the others.
    fn round(&mut self, time: Duration) -> Option<f64> {
        if self.failed.is_some() {
            return None;
        }
        match self.pair.round(time) {
            Ok(us) => Some(us),
            Err(failure) => {
                eprintln!("{}, {} bytes: {failure}", self.case.title, self.bytes);
                self.failed = Some(failure.to_string());
                None
            }
        }
    }
}

pub(crate) fn all(options: &Options, site: &Site, report: &mut Report) -> Result<()> {
    let turn = options.round() / u32::try_from(TURNS)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut taken_away = false;
    for (number, case) in CASES.iter().enumerate() {
        if !case.mutual && !taken_away {
            site.take_certificates_away()?;
            taken_away = true;
        }
        for bytes in SIZES {
            let mut run = start(site, case, number, bytes)?;
            if run.round(turn).is_none() {
                // That took a while, in which the others must not fall silent for too long.
                for other in &mut runs {
                    other.round(SIGN_OF_LIFE);
                }
            }
            runs.push(run);
        }
    }
    for run in &mut runs {
        run.resets = resets(site, &run.names)?;
        run.transactions = run.pair.count();
    }
    let elsewhere = Elsewhere::begin(site)?;
    for _ in 0..TURNS * options.rounds() {
        for run in &mut runs {
            let us = run.round(turn);
            run.times_us.extend(us);
        }
    }
    let elsewhere = elsewhere.end(site)?;
    let mut medians = Vec::new();
    for run in &mut runs {
        run.resets = resets(site, &run.names)? - run.resets;
        run.transactions = run.pair.count() - run.transactions;
        medians.push((run.bytes, run.number, median(&mut run.times_us)));
    }
    let time_of = |bytes: usize, number: usize| {
        let found = medians.iter().find(|(of, at, _)| *of == bytes && *at == number);
        found.map_or(f64::NAN, |(.., us)| *us)
    };
    for bytes in SIZES {
        for run in runs.iter().filter(|run| run.bytes == bytes) {
            let us = time_of(bytes, run.number);
            let added = us - time_of(bytes, 0);
            let still = CASES.iter().position(|case| case.cipher == run.case.cipher && case.renew_bytes == 0);
            let raw = raw_us(run.case, bytes)?;
            let reset_us = match still {
                Some(still) if run.case.renew_bytes > 0 && run.resets > 0 => {
                    (us - time_of(bytes, still)) * run.transactions as f64 / run.resets as f64
                }
                _ => f64::NAN,
            };
            let shown = |value: f64, decimals: usize| {
                if value.is_nan() { "–".to_owned() } else { format!("{value:.decimals$}") }
            };
            report.add(
                &json!({
                    "part": "rr", "case": run.case.title, "payload_bytes": bytes, "round_trip_us": us, "rounds_us": run.times_us,
                    "added_us": added, "raw_us": raw, "transactions": run.transactions, "resets": run.resets, "reset_us": reset_us,
                    "failed": run.failed,
                    "elsewhere": elsewhere,
                }),
                &[
                    match &run.failed {
                        Some(failure) => format!("{}: {failure}", run.case.title),
                        None => run.case.title.to_owned(),
                    },
                    format!("{} KB", bytes >> 10),
                    format!("{us:.1}"),
                    format!("{added:.1}"),
                    shown(raw, 1),
                    shown(added / raw, 2),
                    run.resets.to_string(),
                    run.transactions.to_string(),
                    shown(reset_us, 0),
                ],
            );
        }
    }
    report.print(
        &format!(
            "Request and reply through two channels, one at a time; RSA 2048 certificates; keys renewed after {RENEW_BYTES} bytes, where they are and nothing else is said; busy cores elsewhere {elsewhere:.2}:"
        ),
        &[
            "TLS of both channels",
            "payload each way",
            "round trip µs",
            "added µs",
            "the ciphers alone µs",
            "ratio",
            "renewals",
            "in round trips",
            "µs a renewal",
        ],
    );
    // One that failed may not end in order.
    runs.into_iter().filter(|run| run.failed.is_none()).try_for_each(|run| run.pair.stop())
}

/// Defines and starts both channels, and connects both clients.
fn start(site: &Site, case: &'static Case, number: usize, bytes: usize) -> Result<Run> {
    let stem = format!("{number}.{}K", bytes >> 10);
    let names = (format!("FORTH.{stem}"), format!("BACK.{stem}"));
    let renew = format!("SSLRKEYC({})", case.renew_bytes);
    let sender = if case.cipher.is_some() { renew.as_str() } else { "" };
    // The end that is called lets the other begin a renegotiation only where it has SSLRKEYC, too.
    let receiver = match (case.cipher, case.mutual) {
        (None, _) => String::new(),
        (Some(_), true) => format!("SSLCAUTH(REQUIRED) {renew}"),
        (Some(_), false) => format!("SSLCAUTH(OPTIONAL) {renew}"),
    };
    let forth = Channel { name: &names.0, forth: true, cipher: case.cipher, sender, receiver: &receiver };
    let back = Channel { name: &names.1, forth: false, ..forth };
    let (asked, answered) = (format!("ASK.{stem}"), format!("ANSWER.{stem}"));
    for (channel, queue) in [(&forth, &asked), (&back, &answered)] {
        site.define(channel)?;
        site.define_queue(channel, queue)?;
        site.run(channel)?;
    }
    let requester = Seat { address: &site.one.address, user: "putter-any", puts: &asked, gets: &answered };
    let server = Seat { address: &site.two.address, user: "getter-any", puts: &answered, gets: &asked };
    let pair = Pair::start(requester, server, &Messages::of(bytes, false))?;
    Ok(Run { case, number, bytes, names, pair, times_us: Vec::new(), resets: 0, transactions: 0, failed: None })
}

/// Renewals of both channels so far, as the ends that began count them.
fn resets(site: &Site, names: &(String, String)) -> Result<u64> {
    let mut sum = 0;
    for (name, forth) in [(&names.0, true), (&names.1, false)] {
        let channel = Channel { name, forth, cipher: None, sender: "", receiver: "" };
        sum += site.number(&channel, "SSLRKEYS")?;
    }
    Ok(sum)
}

/// What encrypting and decrypting a request and its reply takes, nothing else.
fn raw_us(case: &Case, bytes: usize) -> Result<f64> {
    Ok(2.0
        * match case.cipher {
            None => return Ok(f64::NAN),
            Some(CBC) => raw::cbc(bytes)?,
            Some(_) => raw::gcm(bytes, 256)?,
        })
}
