//! However the bytes are cut, the same happens.

use super::Host;
use crate::{Event, Limits};

/// What happened, with the pieces of each body joined: where a body is cut is nobody's concern.
fn joined(events: Vec<Event>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut body: Vec<u8> = Vec::new();
    for event in events {
        match event {
            // When an answer has gone out depends on when its request came.
            Event::Written { .. } => continue,
            Event::Body { bytes, .. } => {
                body.extend_from_slice(&bytes);
                continue;
            }
            _ => {}
        }
        let whole = std::mem::take(&mut body);
        found.extend((!whole.is_empty()).then(|| format!("body {} {:x}", whole.len(), sum(&whole))));
        found.push(format!("{event:?}"));
    }
    found
}

/// A sum that another body hardly has.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn run(bytes: &[u8], mut cut: impl FnMut(usize) -> usize) -> (Vec<String>, Vec<u8>) {
    let mut host = Host::answering(Limits { body_bytes_max: 100_000, ..Limits::default() });
    let (mut events, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = cut(bytes.len() - at);
        events.extend(host.feed(&bytes[at..at + length]));
        at += length;
    }
    // Bodies of requests that are aborted are never whole.
    let joined = joined(events);
    let aborted = joined.iter().any(|event| event.starts_with("Aborted"));
    let seen = joined.into_iter().filter(|event| !aborted || !event.starts_with("body")).collect();
    (seen, host.written)
}

/// Requests of all kinds, and at times something broken behind them.
fn requests(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..random.usize(1..6) {
        let length_max = if random.bool() { 20 } else { 40_000 };
        let length = random.usize(0..length_max);
        let body: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        match random.u8(..5) {
            0 => bytes.extend(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").bytes()),
            1 => bytes.extend(format!("\r\nHEAD /{number}?a=b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n").bytes()),
            2 => {
                bytes.extend(format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").bytes());
                bytes.extend(body);
            }
            3 => {
                let head = format!("PUT /{number} HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\n\r\n");
                bytes.extend(head.bytes());
                for chunk in body.chunks(random.usize(1..5_000)) {
                    bytes.extend(format!("{:x};e\r\n", chunk.len()).bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(if random.bool() { &b"0\r\n\r\n"[..] } else { b"0\r\nT: x\r\n\r\n" });
            }
            _ => bytes.extend(
                format!("PUT /{number} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
                    .bytes(),
            ),
        }
    }
    if random.u8(..4) == 0 {
        let at = random.usize(..bytes.len());
        bytes[at] = random.u8(..);
    }
    bytes
}

#[test]
fn any_split_gives_the_same_events_and_the_same_answers() {
    let without_continue = |output: &[u8]| String::from_utf8_lossy(output).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes = requests(&mut random);
        let (events, output) = run(&bytes, |left| left);
        for way in 0..4 {
            let (cut, answers) = match way {
                0 => run(&bytes, |_| 1),
                1 => run(&bytes, |left| left.min(7)),
                2 => run(&bytes, |left| left.min(random.usize(1..60))),
                _ => run(&bytes, |left| left.min(random.usize(1..30_000))),
            };
            assert!(cut == events, "seed {seed}, way {way}: {cut:?}\nis not {events:?}");
            assert_eq!(without_continue(&answers), without_continue(&output), "seed {seed}, way {way}");
        }
    }
}
