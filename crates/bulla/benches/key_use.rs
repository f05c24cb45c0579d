//! `DISPLAY KEYUSE` with a million messages, in memory and on disk: all on one queue or on a hundred, for one key, or
//! for each queue's thousand.
//!
//! `cargo bench -p bulla --bench key_use`; what is on disk takes some 1 GB in the temporary folder.

use bulla::admin;
use bulla::mqsc::reply::Outcome;
use bulla::serve::{self, Settings};
use bulla_queue::{Chunks, KeyNames, Keys, Message};
use bytes::Bytes;
use std::path::Path;
use std::time::Instant;

const MESSAGES: usize = 1_000_000;
/// Bytes of each.
const MESSAGE_BYTES: usize = 256;
/// Commands of each kind.
const ROUNDS: usize = 21;

fn main() {
    for persistent in [false, true] {
        for (queues, keys) in [(1, 1), (1, 1_000), (100, 1)] {
            measure(persistent, queues, keys);
        }
    }
}

fn measure(persistent: bool, queues: usize, keys: usize) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut settings = Settings::new(data.path().to_owned());
    settings.listen.amqp = Some(([127, 0, 0, 1], 0).into());
    settings.listen.amqps = None;
    settings.memory_bytes_max = 2 << 30;
    let running = serve::start(&settings).expect("a start");
    let defined: String = (0..queues).map(|number| format!("DEFINE QLOCAL(Q{number}) MAXDEPTH(2000000)\n")).collect();
    ask(data.path(), &defined);
    let sets: Vec<KeyNames> = (0..keys).map(|number| [name(number)].into()).collect();
    let body = Chunks::from(vec![7; MESSAGE_BYTES]);
    for batch in 0..MESSAGES / 1_000 {
        let state = &mut *running.manager().lock();
        let queue = state.store.queue(&format!("Q{}", batch % queues)).expect("it is defined");
        for number in 0..1_000 {
            let keys = Keys::OneOf(sets[number % keys].clone());
            let message = Message { keys, ..Message::new(persistent, body.clone()) };
            state.store.put(queue, message).expect("a put");
        }
        state.store.sync(Instant::now()).expect("a sync");
    }
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            let rows = ask(data.path(), "DISPLAY KEYUSE(*)");
            assert_eq!(rows, queues * keys);
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{} messages {}, queues {queues}, keys of each {keys}: DISPLAY KEYUSE(*) median {:.2} ms of {ROUNDS} [{:.2} to {:.2}]",
        MESSAGES,
        if persistent { "on disk" } else { "in memory" },
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1]
    );
    running.stop().expect("a stop");
}

/// Gives commands, and counts the rows of the answers.
fn ask(data: &Path, commands: &str) -> usize {
    let replies = admin::request(data, commands).expect("an answer");
    let rows = replies.iter().map(|reply| match &reply.outcome {
        Outcome::Rows(rows) => rows.len(),
        Outcome::Failed(failure) => panic!("{failure}"),
        _ => 0,
    });
    rows.sum()
}

/// DER of an issuer `CN=Demo authority` and a serial number.
fn name(number: usize) -> Bytes {
    let der = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
    let attribute = [der(6, &[0x55, 4, 3]), der(12, b"Demo authority")].concat();
    let issuer = der(0x30, &der(0x31, &der(0x30, &attribute)));
    let serial = der(2, &(number as u32 + 1).to_be_bytes());
    der(0x30, &[issuer, serial].concat()).into()
}
