//! Selectors over a queue of 100,000 messages in memory, as a consumer meets them: an id by the index, anything else by
//! a scan.
//!
//! `cargo bench -p bulla --bench selectors`. Each message has a header, a message id, a correlation id, six application
//! properties and a body of 2 KB. A scan matches nothing, so that it looks at all of them.

use bulla::selector::{Facts, Scratch, Selector, keys_of};
use bulla_amqp::message::{data_section_head, encode_map_section};
use bulla_amqp::{Header, MessageId, Properties, Value};
use bulla_queue::sim::{Manner, SimDisk, SimEngine};
use bulla_queue::{Chunks, FileSpill, Keys, Limits, Look, Looked, Message, QueueAttributes, QueueId, Seen, Store};
use bytes::Bytes;
use std::time::Instant;

const MESSAGES: u32 = 100_000;
const BODY_BYTES: usize = 2048;
const ROUNDS: usize = 21;

const SCANS: [(&str, &str); 6] = [
    ("one property, a string", "region = 'nowhere'"),
    ("one property, a number", "number < 0"),
    ("two properties", "weight > 2500 AND region = 'nowhere'"),
    ("header and property", "JMSPriority > 3 AND region IN ('x', 'y', 'z')"),
    ("pattern", "customer LIKE '%-9_%-none'"),
    ("arithmetic and ids", "weight * 2 + number / 3 < 0 OR JMSCorrelationID LIKE 'none%'"),
];

fn main() {
    let (mut store, queue) = filled();
    for (what, text) in SCANS {
        scan(&mut store, queue, what, text);
    }
    keyed(&mut store, queue, "JMSCorrelationID = 'order-%'");
    keyed(&mut store, queue, "JMSMessageID = 'ID:client:1:%' AND weight >= 0");
}

fn filled() -> (Store, QueueId) {
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).expect("scratch space");
    let limits = Limits { memory_bytes_max: usize::MAX, ..Limits::default() };
    let log = Box::new(SimEngine::default().log(Manner::Prompt));
    let mut store = Store::open(log, Box::new(spill), limits, Instant::now()).expect("a store");
    let attributes = QueueAttributes { max_depth: MESSAGES, ..QueueAttributes::default() };
    let queue = store.define("ORDERS", attributes).expect("a queue");
    for number in 0..MESSAGES {
        let message = Message {
            priority: 4,
            persistent: false,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: 0,
            user: None,
            keys: Keys::None,
            body: Chunks::from(encoded(number)),
        };
        store.put(queue, message).expect("a put");
    }
    (store, queue)
}

fn encoded(number: u32) -> Bytes {
    let mut bytes = Vec::with_capacity(BODY_BYTES + 512);
    Header { durable: true, priority: 4, ..Header::default() }.encode_section(&mut bytes);
    let properties = Properties {
        message_id: Some(MessageId::String(format!("ID:client:1:{number}"))),
        to: Some("ORDERS".into()),
        correlation_id: Some(MessageId::String(format!("order-{number}"))),
        ..Properties::default()
    };
    properties.encode_section(&mut bytes);
    let pairs = [
        (Value::from("customer"), Value::from(format!("customer-{}", number % 977).as_str())),
        (Value::from("number"), Value::Int(number.cast_signed())),
        (Value::from("weight"), Value::Long(i64::from(number % 5000))),
        (Value::from("paid"), Value::Bool(number.is_multiple_of(2))),
        (Value::from("ratio"), Value::Double(0.25)),
        (Value::from("region"), Value::from(["north", "south", "east", "west"][number as usize % 4])),
    ];
    encode_map_section(0x74, &pairs, &mut bytes);
    bytes.extend_from_slice(&data_section_head(BODY_BYTES));
    bytes.resize(bytes.len() + BODY_BYTES, 7);
    bytes.into()
}

fn judge(selector: &Selector, scratch: &mut Scratch, seen: &Seen<'_>) -> Looked {
    let facts = Facts { priority: seen.priority, persistent: seen.persistent, delivery_count: seen.delivery_count };
    match selector.matches(scratch, facts, seen.body, seen.is_whole) {
        Some(true) => Looked::Take,
        Some(false) => Looked::Pass,
        None => Looked::More,
    }
}

fn scan(store: &mut Store, queue: QueueId, what: &str, text: &str) {
    let selector = Selector::parse(text).expect("a selector");
    let mut scratch = Scratch::default();
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let mut cursor = store.watch(queue);
        let begun = Instant::now();
        let found = store
            .look(queue, &mut cursor, 0, true, &mut usize::MAX.clone(), |seen| judge(&selector, &mut scratch, seen));
        rates.push(f64::from(MESSAGES) / begun.elapsed().as_secs_f64() / 1e6);
        assert_eq!(found, Look::End, "{text} matches nothing");
        store.unwatch(queue);
    }
    rates.sort_by(f64::total_cmp);
    let (low, high) = (rates[0], rates[ROUNDS - 1]);
    println!("scan, {what}: {:.2} million messages/s [{low:.2} to {high:.2}]  {text}", rates[ROUNDS / 2]);
}

fn keyed(store: &mut Store, queue: QueueId, pattern: &str) {
    let selector_for = |number: u32| Selector::parse(&pattern.replace('%', &number.to_string())).expect("a selector");
    let kind = selector_for(0).key().expect("a key").kind;
    store.index(queue, keys_of, kind);
    let mut scratch = Scratch::default();
    let mut find = |number: u32| {
        let begun = Instant::now();
        let selector = selector_for(number);
        let key = selector.key().expect("a key").value;
        let found =
            store.look_up(queue, key, 0, true, &mut usize::MAX.clone(), |seen| judge(&selector, &mut scratch, seen));
        let took = begun.elapsed();
        let Some(Look::Found(found)) = found else { panic!("{number} is there: {found:?}") };
        store.release(found.id, false);
        took.as_secs_f64() * 1e6
    };
    let first = find(0);
    let mut times: Vec<f64> = (0..MESSAGES).step_by(97).map(find).collect();
    times.sort_by(f64::total_cmp);
    println!(
        "by id, parsed and found: median {:.2} µs, p99 {:.2} µs; the first, which builds the index, {:.0} ms  {pattern}",
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        first / 1e3
    );
}
