//! What a shared log costs beside the engine alone: batches one after the other through `JetStreamLog`, the same frames
//! by a bare publish of async-nats, and a store that puts with 1,000 under way. Three real servers on loopback, each
//! write synced; rounds alternate in order.
//!
//! `cargo bench -p bulla-shared --bench append [-- ROUNDS]`

#![allow(clippy::unwrap_used, reason = "a measurement may stop at what it did not expect")]

#[path = "../tests/servers/mod.rs"]
mod servers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::Request;
use bulla_queue::log::{Batch, Claim, Event, Position};
use bulla_queue::sim::SimDisk;
use bulla_queue::{FileSpill, Limits, Log, Message, QueueAttributes, Standby, Store};
use bulla_shared::frame::{FRAME_HEADER_BYTES, Frame, Kind};
use bulla_shared::{JetStreamLog, Options};
use bytes::Bytes;

use servers::{Cluster, Raw, Setup, until};

const ROUNDS_DEFAULT: usize = 5;
const ROUND: Duration = Duration::from_millis(1_500);
const BATCHES: [usize; 4] = [1, 32, 128, 256];
/// A record of 2 KB: so many that 256 go into one message of the stream.
const RECORD_HEAD_BYTES: usize = 56;
const RECORD_BODY_BYTES: usize = 1_984;
const BODY_BYTES: usize = 2_048;
const UNDER_WAY: usize = 1_000;
/// There are three streams, and servers with 4 GB.
const STREAM_BYTES: u64 = 1_200 << 20;

/// What one round found.
struct Sample {
    messages_per_s: f64,
    /// Of each batch or message, in ms, sorted.
    times: Vec<f64>,
}

impl Sample {
    fn new(messages: usize, took: Duration, mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Sample { messages_per_s: messages as f64 / took.as_secs_f64(), times }
    }

    fn percentile(&self, part: f64) -> f64 {
        let index = (self.times.len() as f64 * part) as usize;
        self.times.get(index.min(self.times.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn options(cluster: &Cluster, group: &str) -> Options {
    let mut options = cluster.options(group, "BENCH");
    options.stream_bytes = STREAM_BYTES;
    let waiting = std::thread::current();
    options.waker = Arc::new(move || waiting.unpark());
    options
}

/// Batches through the log, the next one begun when the last is synced.
fn by_log(log: &mut JetStreamLog, end: &mut Position, messages: usize) -> Sample {
    let body = vec![7; messages * RECORD_BODY_BYTES];
    let head = vec![0; FRAME_HEADER_BYTES + messages * RECORD_HEAD_BYTES];
    let (mut events, mut spare) = (Vec::new(), vec![Batch { at: 0, head, body, patient: false }]);
    let (mut times, began) = (Vec::new(), Instant::now());
    while began.elapsed() < ROUND {
        let submitted = Instant::now();
        let mut batch = spare.pop().unwrap();
        batch.at = end.0;
        *end = batch.end();
        log.submit(batch).unwrap();
        loop {
            log.poll(Instant::now(), &mut events, &mut spare).unwrap();
            match events.pop() {
                Some(Event::Synced(at)) => break assert_eq!(at, *end),
                Some(other) => panic!("{other:?}"),
                None => std::thread::park(),
            }
        }
        times.push(submitted.elapsed().as_secs_f64() * 1e3);
    }
    let sample = Sample::new(times.len() * messages, began.elapsed(), times);
    log.release(*end).unwrap();
    sample
}

/// The same frames, each published when the last was confirmed, by the engine's client alone.
fn bare(raw: &Raw, messages: usize) -> Sample {
    let payload = vec![7; messages * (RECORD_HEAD_BYTES + RECORD_BODY_BYTES)];
    let payload_crc = crc32c::crc32c(&payload);
    let (head_bytes, body_bytes) =
        ((FRAME_HEADER_BYTES + messages * RECORD_HEAD_BYTES) as u32, (messages * RECORD_BODY_BYTES) as u32);
    let frame = Frame { kind: Kind::Whole, epoch: 1, at: 0, head_bytes, body_bytes, payload_crc };
    let message: Bytes = [&frame.encode("BARE")[..], &payload].concat().into();
    let sample = raw.runtime.block_on(async {
        let (mut times, began) = (Vec::new(), Instant::now());
        while began.elapsed() < ROUND {
            let sent = Instant::now();
            let request = Request::new().payload(message.clone());
            let answer = raw.client.send_request("BARE.log", request).await.unwrap();
            assert!(answer.payload.starts_with(br#"{"stream""#), "{:?}", answer.payload);
            times.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        Sample::new(times.len() * messages, began.elapsed(), times)
    });
    raw.api("STREAM.PURGE.BARE", serde_json::json!({})).unwrap();
    sample
}

/// Confirmed puts of 2 KB into one queue, 1,000 under way; each round's messages are removed afterwards.
fn by_store(store: &mut Store) -> Sample {
    let queue = store.queue("ORDERS").unwrap();
    let body: Bytes = vec![7; BODY_BYTES].into();
    let mut under_way = VecDeque::new();
    let (mut times, began) = (Vec::new(), Instant::now());
    while began.elapsed() < ROUND {
        while under_way.len() < UNDER_WAY {
            let ticket = store.put(queue, Message::new(true, body.clone().into())).unwrap();
            under_way.push_back((ticket, Instant::now()));
        }
        turn(store);
        while under_way.front().is_some_and(|(ticket, _)| store.is_synced(*ticket)) {
            let (_, put) = under_way.pop_front().unwrap();
            times.push(put.elapsed().as_secs_f64() * 1e3);
        }
    }
    let sample = Sample::new(times.len(), began.elapsed(), times);
    while let Some(found) = store.lock_next(queue, None, 0) {
        store.acknowledge(found.id).unwrap();
    }
    store.sync(Instant::now()).unwrap();
    sample
}

/// A turn of a store's thread: what there is goes to the log, and what the log says is taken, once it says something.
fn turn(store: &mut Store) {
    store.poll(Instant::now()).unwrap();
    std::thread::park_timeout(Duration::from_millis(20));
    store.poll(Instant::now()).unwrap();
}

fn store(cluster: &Cluster) -> Store {
    let log = JetStreamLog::open(options(cluster, "STORE")).unwrap();
    let mut standby = Standby::new(Box::new(log));
    standby.claim(Instant::now(), Claim::Force).unwrap();
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).unwrap();
    let mut store = standby.into_store(Box::new(spill), Limits::default(), Instant::now()).unwrap();
    store.define("ORDERS", QueueAttributes { max_depth: 10_000_000, ..QueueAttributes::default() }).unwrap();
    store.sync(Instant::now()).unwrap();
    store
}

fn show(name: &str, samples: &[Sample]) -> f64 {
    let of = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<_>>();
    let rates = of(&|sample| sample.messages_per_s);
    let (least, most) = (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
    let rate = median(rates);
    let (p50, p99) = (median(of(&|sample| sample.percentile(0.5))), median(of(&|sample| sample.percentile(0.99))));
    println!("| {name} | {rate:.0} [{least:.0}–{most:.0}] | {p50:.2} | {p99:.2} |");
    rate
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(ROUNDS_DEFAULT);
    let cluster = Cluster::start(Setup::default());
    let mut log = JetStreamLog::open(options(&cluster, "LOG")).unwrap();
    let (_, mut end) = log.claim(Instant::now(), Claim::Force).unwrap();
    let raw = cluster.raw();
    let bare_stream = serde_json::json!({
        "name": "BARE", "subjects": ["BARE.epoch", "BARE.log", "BARE.part.>"], "num_replicas": 3,
        "max_bytes": STREAM_BYTES, "discard": "new", "allow_direct": true, "duplicate_window": 120_000_000_000_u64,
    });
    until("the stream is made", || {
        raw.api("STREAM.CREATE.BARE", bare_stream.clone())?["error"].is_null().then_some(())
    });

    println!("| what | messages/s, median [least–most] | p50, ms | p99, ms |\n| --- | --- | --- | --- |");
    let mut ratios = Vec::new();
    let mut largest = 0.0;
    for messages in BATCHES {
        let (mut logged, mut published) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            if round % 2 == 0 {
                logged.push(by_log(&mut log, &mut end, messages));
                published.push(bare(&raw, messages));
            } else {
                published.push(bare(&raw, messages));
                logged.push(by_log(&mut log, &mut end, messages));
            }
        }
        let with_log = show(&format!("log, batches of {messages}"), &logged);
        let without = show(&format!("bare publish of the same frames, {messages}"), &published);
        let pairs = logged.iter().zip(&published).map(|(log, bare)| log.messages_per_s / bare.messages_per_s);
        ratios.push((messages, with_log / without, median(pairs.collect())));
        largest = without;
    }
    drop(log);
    let mut store = store(&cluster);
    let puts: Vec<_> = (0..rounds).map(|_| by_store(&mut store)).collect();
    let rate = show("store, 1,000 puts of 2 KB under way", &puts);
    println!();
    for (messages, ratio, of_pairs) in ratios {
        println!("batches of {messages}: log ÷ bare {ratio:.2} (median of pairs {of_pairs:.2})");
    }
    println!("store ÷ bare publish of 256: {:.2}", rate / largest);
}
