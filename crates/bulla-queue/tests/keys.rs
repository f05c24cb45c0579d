//! The store knows which keys its messages need, over restarts and checkpoints too.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bulla_queue::record::{BatchHeader, KEYS_UNKNOWN, PutRecord, Record};
use bulla_queue::sim::{Manner, SimDisk, SimEngine};
use bulla_queue::{
    Chunks, Driver, FileLog, FileLogOptions, FileSpill, KEY_SETS_BYTES_MAX, KeyNames, Keys, Limits, Log, Message,
    MessageId, QUEUE_KEY_SETS_BYTES_MAX, QUEUE_KEY_SETS_MAX, QueueAttributes, QueueId, SegmentHeader, Storage, Store,
    StoreNumber,
};
use bytes::Bytes;

/// Messages and bytes of a queue, by the names of what opens them; none for what is not known.
type Uses = BTreeMap<Option<Vec<Bytes>>, (u32, u64)>;

fn open(log: Box<dyn Log>, limits: Limits) -> Store {
    let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
    Store::open(log, Box::new(spill), limits, Instant::now()).unwrap()
}

fn names(names: &[&str]) -> KeyNames {
    names.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect()
}

fn message(keys: Keys, bytes: usize) -> Message {
    Message { keys, ..Message::new(true, vec![7; bytes].into()) }
}

fn uses(store: &mut Store, queue: QueueId) -> Uses {
    let uses = store.key_use(queue);
    uses.into_iter().map(|one| (one.names.map(|names| names.to_vec()), (one.messages, one.bytes))).collect()
}

fn deep() -> QueueAttributes {
    QueueAttributes { max_depth: 10_000_000, ..QueueAttributes::default() }
}

#[test]
fn messages_are_counted_by_what_opens_them_and_over_a_restart() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    let queue = store.define("ORDERS", deep()).unwrap();
    let other = store.define("ERRORS", deep()).unwrap();
    let (billing, both) = (names(&["billing"]), names(&["billing", "audit"]));
    for (at, keys) in [
        Keys::OneOf(billing.clone()),
        Keys::OneOf(both.clone()),
        Keys::None,
        Keys::OneOf(names(&["billing"])), // the same bytes elsewhere in memory
        Keys::Unknown,
    ]
    .into_iter()
    .enumerate()
    {
        store.put(queue, Message { put_at_ms: at as u64 + 1, ..message(keys, 10 + at) }).unwrap();
    }
    let expected: Uses = [(Some(billing.to_vec()), (2, 23)), (Some(both.to_vec()), (1, 11)), (None, (1, 14))].into();
    assert_eq!(uses(&mut store, queue), expected);
    store.sync(Instant::now()).unwrap();
    drop(store);

    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    assert_eq!(uses(&mut store, queue), expected);
    let first = store.lock_next(queue, None, 0).unwrap();
    assert_eq!(store.needed_keys(first.id), Some(Keys::OneOf(billing.clone())));
    assert_eq!(uses(&mut store, queue), expected, "what is locked counts");
    let oldest = |store: &mut Store| {
        let of = |one: &bulla_queue::KeyUse| one.names.as_deref() == Some(&billing);
        store.key_use(queue).into_iter().find(of).and_then(|one| one.oldest_put_ms)
    };
    assert_eq!(oldest(&mut store), Some(1));
    // It keeps its keys where it goes, whatever its new body looks like.
    store.transfer(first.id, other, Message::new(false, vec![1; 30].into())).unwrap();
    assert_eq!(uses(&mut store, other), [(Some(billing.to_vec()), (1, 30))].into());
    assert_eq!(oldest(&mut store), Some(4));
    store.delete(queue, true).unwrap();
    assert_eq!(uses(&mut store, queue), Uses::new());
    assert_eq!(uses(&mut store, other), [(Some(billing.to_vec()), (1, 30))].into());
}

#[test]
fn the_oldest_is_the_oldest_in_any_lane() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    let queue = store.define("ORDERS", deep()).unwrap();
    let (one, two) = (names(&["one"]), names(&["two"]));
    for (at, (priority, keys)) in [(1, &one), (9, &two), (5, &one), (9, &one), (0, &two)].into_iter().enumerate() {
        let keys = Keys::OneOf(keys.clone());
        store.put(queue, Message { priority, put_at_ms: at as u64, ..message(keys, 1) }).unwrap();
    }
    store.sync(Instant::now()).unwrap();
    let oldest = |store: &mut Store| {
        let uses: BTreeMap<_, _> =
            store.key_use(queue).into_iter().map(|one| (one.names.unwrap().to_vec(), one.oldest_put_ms)).collect();
        [&one, &two].map(|names| uses.get(&names.to_vec()).copied().flatten())
    };
    assert_eq!(oldest(&mut store), [Some(0), Some(1)]);
    let get = |store: &mut Store| {
        let found = store.lock_next(queue, None, 0).unwrap();
        store.acknowledge(found.id).unwrap();
        oldest(store)
    };
    assert_eq!(get(&mut store), [Some(0), Some(4)], "the first of priority 9 went");
    assert_eq!(get(&mut store), [Some(0), Some(4)]);
    assert_eq!(get(&mut store), [Some(0), Some(4)]);
    assert_eq!(get(&mut store), [None, Some(4)]);
}

/// Each set's first message lies behind many of another set, and goes. A look ends nevertheless, says no time that is
/// too late, and the looks together come to the right one.
#[test]
fn the_oldest_is_found_behind_any_number_of_others_in_a_few_looks() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    let queue = store.define("ORDERS", deep()).unwrap();
    let (rare, usual) = (names(&["rare"]), names(&["usual"]));
    let mut at = 0;
    let mut put = |store: &mut Store, keys: &KeyNames, priority| {
        at += 1;
        let keys = Keys::OneOf(keys.clone());
        let message = Message { persistent: false, priority, put_at_ms: at, ..message(keys, 1) };
        store.put(queue, message).unwrap();
        at
    };
    put(&mut store, &rare, 4);
    let first = store.newest();
    for number in 0..35_000_u32 {
        put(&mut store, &usual, 4 + u8::from(number % 2 == 0));
    }
    let second = put(&mut store, &rare, 5);
    let oldest = |store: &mut Store, of: &KeyNames| {
        let is_it = |one: &bulla_queue::KeyUse| one.names.as_ref() == Some(of);
        store.key_use(queue).into_iter().find(is_it).unwrap().oldest_put_ms.unwrap()
    };
    assert_eq!((oldest(&mut store, &rare), oldest(&mut store, &usual)), (1, 2));
    store.lock(first).unwrap();
    store.acknowledge(first).unwrap();
    let looks: Vec<u64> = (0..5).map(|_| oldest(&mut store, &rare)).collect();
    assert!(looks[0] > 1 && looks[0] < second, "it looked at a part of them: {looks:?}");
    assert!(looks.is_sorted() && looks[4] == second, "{looks:?}");
    assert_eq!(oldest(&mut store, &usual), 2);
}

/// What a random run of puts, gets and restarts leaves is what a map of the messages says, whatever was carried
/// forward and however many sets came and went.
#[test]
fn what_is_counted_is_what_is_there_after_any_number_of_restarts() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let engine = SimEngine::default();
        let limits = Limits { checkpoint_bytes: 4_000, log_bytes_min: 8_000, ..Limits::default() };
        let mut store = open(Box::new(engine.log(Manner::Prompt)), limits);
        let queue = store.define("ORDERS", deep()).unwrap();
        let mut there: BTreeMap<MessageId, (Keys, u64, bool)> = BTreeMap::new();
        for step in 0..1_500 {
            let keys = match random.u8(..10) {
                0 => Keys::None,
                1 => Keys::Unknown,
                n => {
                    Keys::OneOf(names(&[&format!("key {} of {}", random.u16(..4), step / 200), &"n".repeat(n.into())]))
                }
            };
            let (bytes, persistent) = (random.usize(1..200), random.u8(..4) > 0);
            if random.u8(..10) < 6 {
                store.put(queue, Message { persistent, ..message(keys.clone(), bytes) }).unwrap();
                there.insert(store.newest(), (keys, bytes as u64, persistent));
            } else if let Some(found) = store.lock_next(queue, None, 0) {
                store.acknowledge(found.id).unwrap();
                there.remove(&found.id);
            }
            store.sync(Instant::now()).unwrap();
            if random.u16(..300) == 0 {
                store = open(Box::new(engine.log(Manner::Prompt)), limits);
                store.alter(queue, deep()).unwrap();
                there.retain(|_, (_, _, persistent)| *persistent);
            }
            let mut expected = Uses::new();
            for (keys, bytes, _) in there.values() {
                let key = match keys {
                    Keys::None => continue,
                    Keys::Unknown => None,
                    Keys::OneOf(names) => Some(names.to_vec()),
                };
                let (messages, all) = expected.entry(key).or_default();
                (*messages, *all) = (*messages + 1, *all + bytes);
            }
            assert_eq!(uses(&mut store, queue), expected, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_message_of_an_older_program_is_not_known_until_it_is_read() {
    const SALT: u64 = 0x5eed;
    let queue = QueueId::new(StoreNumber::LOCAL, 1);
    let put = |number: u64, keys| PutRecord {
        id: MessageId(1 << 40 | number),
        queue,
        priority: 4,
        body_bytes: 5,
        body_crc: crc32c::crc32c(b"hello"),
        put_at_ms: 1,
        expires_at_ms: None,
        delivery_count: 0,
        user: None,
        keys,
    };
    let (mut head, mut bodies) = (Vec::new(), Vec::new());
    Record::Defined { queue, name: "ORDERS" }.encode(&mut head);
    // One more has a set that is nowhere defined.
    for (number, keys) in [KEYS_UNKNOWN, KEYS_UNKNOWN, 77].into_iter().enumerate() {
        Record::Put(put(number as u64, keys)).encode(&mut head);
        bodies.extend_from_slice(b"hello\0\0\0");
    }
    let batch = BatchHeader {
        head_bytes: head.len() as u32,
        body_bytes: bodies.len() as u32,
        at: 0,
        epoch: 1,
        head_crc: crc32c::crc32c(&head),
    };
    let capacity = 1 << 20;
    let mut segment = SegmentHeader { version: 1, epoch: 1, base: 0, capacity, salt: SALT }.encode();
    segment.extend_from_slice(&[&batch.encode(SALT)[..], &head, &bodies].concat());
    segment.resize(segment.len() + capacity as usize, 0);
    let disk = SimDisk::default();
    disk.set_contents("0000000000000000.segment", segment);
    let options = FileLogOptions { driver: Driver::Inline, ..FileLogOptions::default() };
    let log = FileLog::open(disk.clone(), options.clone()).unwrap();
    let mut store = open(Box::new(log), Limits::default());
    assert_eq!(uses(&mut store, queue), [(None, (3, 15))].into());
    // What is written from now on lies in a segment that an older program refuses by its version.
    let versions: Vec<u8> = disk
        .list()
        .unwrap()
        .iter()
        .filter(|name| name.ends_with(".segment"))
        .map(|name| disk.contents(name).unwrap()[8])
        .collect();
    assert_eq!(versions, [1, 2]);

    fn keys_of(body: &Chunks) -> Keys {
        assert_eq!(body.to_bytes(), b"hello"[..]);
        Keys::OneOf(Arc::new([Bytes::from_static(b"learnt")]))
    }
    store.tell_keys_by(keys_of);
    let found = store.lock_next(queue, None, 0).unwrap();
    while store.body(found.id).is_err() {
        store.poll(Instant::now()).unwrap();
    }
    let learnt: Uses = [(None, (2, 10)), (Some(vec![Bytes::from_static(b"learnt")]), (1, 5))].into();
    assert_eq!(uses(&mut store, queue), learnt);
    store.release(found.id, false);
    store.close(Instant::now()).unwrap();
    let log = FileLog::open(disk, options).unwrap();
    let mut store = open(Box::new(log), Limits::default());
    assert_eq!(uses(&mut store, queue), [(None, (3, 15))].into(), "it was not carried forward");
}

#[test]
fn an_older_program_s_last_segment_without_a_batch_makes_way() {
    let disk = SimDisk::default();
    let options = FileLogOptions { segment_bytes: 1 << 16, driver: Driver::Inline, ..FileLogOptions::default() };
    let capacity = 1 << 16;
    let mut segment = SegmentHeader { version: 1, epoch: 7, base: 0, capacity, salt: 1 }.encode();
    segment.resize(segment.len() + capacity as usize, 0);
    disk.set_contents("0000000000000000.segment", segment);
    for _ in 0..2 {
        let log = FileLog::open(disk.clone(), options.clone()).unwrap();
        let mut store = open(Box::new(log), Limits::default());
        let queue = store.define("ORDERS", deep()).unwrap();
        store.put(queue, message(Keys::OneOf(names(&["one"])), 1)).unwrap();
        store.close(Instant::now()).unwrap();
        assert_eq!(disk.contents("0000000000000000.segment").unwrap()[8], 2);
    }
    let mut store = open(Box::new(FileLog::open(disk, options).unwrap()), Limits::default());
    let queue = store.queue("ORDERS").unwrap();
    assert_eq!(uses(&mut store, queue).values().collect::<Vec<_>>(), [&(2, 2)]);
}

#[test]
fn sets_beyond_the_limits_are_not_known_and_make_room_when_they_are_gone() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    let queue = store.define("ORDERS", deep()).unwrap();
    let set = |number: usize, bytes: usize| Keys::OneOf(names(&[&format!("{number:0bytes$}")]));
    let counted = |store: &mut Store, queue| {
        let uses = store.key_use(queue);
        let unknown = uses.iter().find(|one| one.names.is_none()).map_or(0, |one| one.messages);
        (uses.len(), unknown)
    };
    for number in 0..=QUEUE_KEY_SETS_MAX {
        store.put(queue, Message { persistent: false, ..message(set(number, 20), 1) }).unwrap();
    }
    assert_eq!(counted(&mut store, queue), (QUEUE_KEY_SETS_MAX + 1, 1));
    while let Some(found) = store.lock_next(queue, None, 0) {
        store.acknowledge(found.id).unwrap();
    }
    store.put(queue, message(set(QUEUE_KEY_SETS_MAX, 20), 1)).unwrap();
    assert_eq!(counted(&mut store, queue), (1, 0), "those that are gone make room");

    let (long, queues) = (10_000, 10);
    let fit = QUEUE_KEY_SETS_BYTES_MAX / long;
    let others: Vec<_> = (0..queues).map(|name| store.define(&format!("OTHER.{name}"), deep()).unwrap()).collect();
    let all: Vec<_> = others
        .iter()
        .enumerate()
        .map(|(number, other)| {
            for set_number in 0..fit + 20 {
                store.put(*other, message(set(number * 1_000 + set_number, long), 1)).unwrap();
            }
            counted(&mut store, *other)
        })
        .collect();
    assert!(all[0].0 <= fit + 1 && all[0].1 >= 20, "one queue does not take all the room: {:?}", all[0]);
    let known: usize = all.iter().map(|(sets, _)| sets - 1).sum();
    assert!(known <= KEY_SETS_BYTES_MAX / long && known >= fit * 7, "{known} sets");
    store.sync(Instant::now()).unwrap();
    for other in &others {
        while let Some(found) = store.lock_next(*other, None, 0) {
            store.acknowledge(found.id).unwrap();
        }
    }
    let elsewhere = others[queues - 1];
    store.put(elsewhere, message(set(77, long), 1)).unwrap();
    assert_eq!(counted(&mut store, elsewhere), (1, 0));
    store.sync(Instant::now()).unwrap();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    assert_eq!((counted(&mut store, queue), counted(&mut store, elsewhere)), ((1, 0), (1, 0)));
    // A set that is too long for a record.
    let mut all = message(Keys::OneOf(names(&["k".repeat(9_000).as_str(), &"l".repeat(9_000)])), 1);
    all.persistent = false;
    store.put(queue, all).unwrap();
    assert_eq!(counted(&mut store, queue), (2, 1));
}
