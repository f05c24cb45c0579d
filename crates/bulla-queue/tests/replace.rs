//! A message gets another body at its own place, and keeps all else: over crashes, checkpoints and restarts.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::time::Instant;

use bulla_queue::sim::{Fate, Fault, Manner, SimDisk, SimEngine};
use bulla_queue::{
    Chunks, Driver, FileLog, FileLogOptions, FileSpill, Found, Keys, Limits, Log, Message, MessageId, PutError,
    QueueAttributes, QueueId, Replaced, Store, Ticket,
};
use bytes::Bytes;

const OLD: &str = "old key";
const NEW: &str = "new key";

fn open(log: Box<dyn Log>, limits: Limits) -> Store {
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).unwrap();
    Store::open(log, Box::new(spill), limits, Instant::now()).unwrap()
}

fn keys(name: &'static str) -> Keys {
    Keys::OneOf([Bytes::from_static(name.as_bytes())].into())
}

/// Bytes that tell which message they are of, and which of its bodies.
fn body(number: u64, is_new: bool) -> Chunks {
    let bytes = if is_new { 90 + number % 40 } else { 60 + number % 70 };
    let mut body = format!("{number} {is_new} ").into_bytes();
    body.resize(bytes as usize, b'.');
    body.into()
}

fn message(number: u64) -> Message {
    Message {
        priority: (number % 3) as u8,
        put_at_ms: number,
        expires_at_ms: Some(1_000_000 + number),
        user: Some("orders".into()),
        keys: keys(OLD),
        ..Message::new(true, body(number, false))
    }
}

fn lying(store: &Store, queue: QueueId) -> Vec<(Found, bool)> {
    store.lying(queue, None).collect()
}

fn put(store: &mut Store, queue: QueueId, count: u64) -> Vec<MessageId> {
    (1..=count).for_each(|number| _ = store.put(queue, message(number)).unwrap());
    store.sync(Instant::now()).unwrap();
    lying(store, queue).into_iter().map(|(found, _)| found.id).collect()
}

fn replace(store: &mut Store, found: &Found) -> Result<Replaced, PutError> {
    store.replace(found.id, body(found.put_at_ms, true), &keys(NEW))
}

/// Messages that need the old key and the new one, and their bytes.
fn needed(store: &mut Store, queue: QueueId) -> [(u32, u64); 2] {
    let uses = store.key_use(queue);
    [OLD, NEW].map(|name| {
        let of = uses.iter().find(|one| one.names.as_ref().is_some_and(|names| *names[0] == *name.as_bytes()));
        of.map_or((0, 0), |one| (one.messages, one.bytes))
    })
}

fn deep() -> QueueAttributes {
    QueueAttributes { max_depth: 100_000, ..QueueAttributes::default() }
}

#[test]
fn all_but_the_body_stays_and_the_keys_are_counted_anew_once_it_is_synced() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    let queue = store.define("ORDERS", deep()).unwrap();
    put(&mut store, queue, 10);
    let before: Vec<Found> = lying(&store, queue).into_iter().map(|(found, _)| found).collect();
    let bytes = store.status(queue).unwrap().bytes;
    let one = before[4].clone();
    assert_eq!(needed(&mut store, queue), [(10, bytes), (0, 0)]);
    let Replaced::Done(ticket) = replace(&mut store, &one).unwrap() else { panic!("it is there and free") };
    let len = body(one.put_at_ms, true).len() as u64;
    // A crash may still bring the old body back.
    assert_eq!(needed(&mut store, queue), [(10, bytes), (1, len)]);
    assert_eq!(replace(&mut store, &one), Ok(Replaced::Busy));
    store.sync(Instant::now()).unwrap();
    assert!(store.is_synced(ticket));
    let left = bytes - u64::from(one.body_bytes);
    for restarts in 0..3 {
        assert_eq!(needed(&mut store, queue), [(9, left), (1, len)], "{restarts}");
        assert_eq!(store.status(queue).unwrap().bytes, left + len);
        let mut expected = before.clone();
        expected[4].body_bytes = len as u32;
        let there: Vec<Found> = lying(&store, queue).into_iter().map(|(found, _)| found).collect();
        assert_eq!(there, expected);
        for found in &there {
            assert_eq!(
                store.body_now(found.id).unwrap().to_bytes(),
                body(found.put_at_ms, found.id == one.id).to_bytes()
            );
        }
        drop(store);
        store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
        store.alter(queue, deep()).unwrap();
    }
    let order: Vec<MessageId> = std::iter::from_fn(|| store.lock_next(queue, None, 0).map(|found| found.id)).collect();
    assert_eq!(order, before.iter().map(|found| found.id).collect::<Vec<_>>());
}

#[test]
fn what_is_locked_gone_or_not_synced_yet_is_left_alone() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    let queue = store.define("ORDERS", QueueAttributes { max_message_bytes: 200, ..deep() }).unwrap();
    put(&mut store, queue, 3);
    store.put(queue, message(4)).unwrap();
    let there = lying(&store, queue);
    assert_eq!(there.iter().filter(|(found, free)| found.put_at_ms == 4 && !free).count(), 1);
    let unsynced = there.iter().find(|(found, _)| found.put_at_ms == 4).unwrap();
    assert_eq!(replace(&mut store, &unsynced.0), Ok(Replaced::Busy));
    let locked = store.lock_next(queue, None, 0).unwrap();
    assert_eq!(replace(&mut store, &locked), Ok(Replaced::Busy));
    store.acknowledge(locked.id).unwrap();
    assert_eq!(replace(&mut store, &locked), Ok(Replaced::Gone));
    let left = store.lock_next(queue, None, 0).unwrap();
    store.release(left.id, true);
    let long = store.replace(left.id, vec![7; 201].into(), &keys(NEW));
    assert_eq!(long, Err(PutError::TooBig { bytes: 201, max_message_bytes: 200 }));
    assert_eq!(store.body(left.id).unwrap().to_bytes(), body(left.put_at_ms, false).to_bytes());
    // Got before the new body is synced: neither body comes back.
    let Ok(Replaced::Done(_)) = replace(&mut store, &left) else { panic!("it is free again") };
    let again = store.lock_next(queue, None, 0).unwrap();
    assert_eq!((again.id, again.delivery_count), (left.id, 1));
    assert_eq!(store.body(left.id).unwrap().to_bytes(), body(left.put_at_ms, true).to_bytes());
    store.acknowledge(left.id).unwrap();
    store.sync(Instant::now()).unwrap();
    assert_eq!(needed(&mut store, queue)[1], (0, 0));
    assert_eq!(needed(&mut store, queue)[0].0, 2);
    drop(store);
    let mut store = open(Box::new(engine.log(Manner::Prompt)), Limits::default());
    assert!(store.body_now(left.id).is_err());
    assert_eq!(needed(&mut store, queue)[0].0, 2);
}

#[test]
fn what_is_put_for_later_stays_so_and_what_is_not_persistent_is_replaced_in_memory_and_in_scratch_space() {
    let engine = SimEngine::default();
    let limits = Limits { memory_bytes_max: 250, ..Limits::default() };
    let mut store = open(Box::new(engine.log(Manner::Prompt)), limits);
    let queue = store.define("ORDERS", deep()).unwrap();
    store.put(queue, Message { available_at_ms: Some(500), ..message(1) }).unwrap();
    store.sync(Instant::now()).unwrap();
    for number in 2..8 {
        store.put(queue, Message { persistent: false, ..message(number) }).unwrap();
    }
    for (found, is_free) in lying(&store, queue) {
        assert!(is_free);
        let done = replace(&mut store, &found).unwrap();
        assert!(matches!(done, Replaced::Done(ticket) if (ticket == Ticket::NOW) != found.persistent), "{found:?}");
    }
    store.sync(Instant::now()).unwrap();
    assert_eq!(needed(&mut store, queue)[0], (0, 0));
    for (found, _) in lying(&store, queue) {
        assert_eq!(store.body_now(found.id).unwrap().to_bytes(), body(found.put_at_ms, true).to_bytes());
    }
    drop(store);
    let mut store = open(Box::new(engine.log(Manner::Prompt)), limits);
    assert!(store.lock_next(queue, None, 499).is_none(), "still for later");
    store.sweep(500, 10);
    let found = store.lock_next(queue, None, 500).unwrap();
    assert_eq!(store.body_now(found.id).unwrap().to_bytes(), body(1, true).to_bytes());
}

/// A small log: checkpoints and new segments all the time.
fn small(disk: &SimDisk) -> Option<Store> {
    let options = FileLogOptions {
        segment_bytes: 8 << 10,
        first_segment_bytes: 4 << 10,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    let limits = Limits {
        memory_bytes_max: 2_000,
        batch_bytes_max: 700,
        reserve_bytes: 6_000,
        checkpoint_bytes: 3_000,
        log_bytes_min: 24 << 10,
        ..Limits::default()
    };
    let log = FileLog::open(disk.clone(), options).ok()?;
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).ok()?;
    Store::open(Box::new(log), Box::new(spill), limits, Instant::now()).ok()
}

const COUNT: u64 = 60;

/// Puts messages and replaces each of their bodies; says which are replaced for good.
fn work(disk: &SimDisk) -> (bool, Vec<MessageId>) {
    let mut done = Vec::new();
    let Some(mut store) = small(disk) else { return (false, done) };
    let Ok(queue) = store.define("ORDERS", deep()) else { return (false, done) };
    for number in 1..=COUNT {
        if store.put(queue, message(number)).is_err() || store.flush(Instant::now()).is_err() {
            return (false, done);
        }
    }
    if store.sync(Instant::now()).is_err() {
        return (false, done);
    }
    let mut tickets = Vec::new();
    for (found, _) in lying(&store, queue) {
        match replace(&mut store, &found) {
            Ok(Replaced::Done(ticket)) => tickets.push((found.id, ticket)),
            _ => break,
        }
        if store.flush(Instant::now()).is_err() {
            break;
        }
        done.extend(tickets.extract_if(.., |(_, ticket)| store.is_synced(*ticket)).map(|(id, _)| id));
    }
    (true, done)
}

#[test]
fn after_a_crash_at_any_step_each_message_has_one_of_its_bodies_and_the_new_one_where_that_was_synced() {
    let disk = SimDisk::default();
    assert_eq!(work(&disk).1.len() as u64, COUNT);
    let mut with_old = 0;
    for step in 0..=disk.steps() {
        let disk = SimDisk::with_fault(step, Fault::Crash);
        let (all_put, done) = work(&disk);
        for fate in [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step)] {
            let found_disk = disk.after_crash(fate);
            let Some(mut store) = small(&found_disk) else { panic!("step {step}, {fate:?}: it does not open") };
            let Some(queue) = store.queue("ORDERS") else {
                assert!(!all_put, "step {step}, {fate:?}");
                continue;
            };
            let there = lying(&store, queue);
            assert!(!all_put || there.len() as u64 == COUNT, "step {step}, {fate:?}: {} messages", there.len());
            let mut of_key = [(0, 0); 2];
            for (found, is_free) in &there {
                let bytes = store.body_now(found.id).unwrap().to_bytes();
                let is_new = bytes == body(found.put_at_ms, true).to_bytes();
                assert!(is_new || bytes == body(found.put_at_ms, false).to_bytes(), "step {step}, {fate:?}");
                assert!(is_new || !done.contains(&found.id), "step {step}, {fate:?}: lost");
                assert!(*is_free && found.expires_at_ms == Some(1_000_000 + found.put_at_ms));
                let key = &mut of_key[usize::from(is_new)];
                *key = (key.0 + 1, key.1 + bytes.len() as u64);
            }
            assert_eq!(needed(&mut store, queue), of_key, "step {step}, {fate:?}");
            with_old += of_key[0].0;
            let order: Vec<_> = there.iter().map(|(found, _)| (9 - found.priority, found.put_at_ms)).collect();
            assert!(order.is_sorted(), "step {step}, {fate:?}");
        }
    }
    assert!(with_old > 0);
}

#[test]
fn bodies_that_are_replaced_again_and_again_are_carried_forward_once_each_and_the_log_does_not_grow() {
    let disk = SimDisk::default();
    let mut store = small(&disk).unwrap();
    let queue = store.define("ORDERS", deep()).unwrap();
    put(&mut store, queue, COUNT);
    let mut most = 0;
    for round in 0..200 {
        for (found, _) in lying(&store, queue) {
            let done = store.replace(found.id, body(found.put_at_ms, round % 2 == 0), &keys(NEW)).unwrap();
            assert!(matches!(done, Replaced::Done(_)));
        }
        store.sync(Instant::now()).unwrap();
        if round == 20 {
            most = disk.bytes();
        }
    }
    assert!(disk.bytes() <= 2 * most, "{} bytes, and {most} before", disk.bytes());
    assert_eq!(needed(&mut store, queue)[1].0 as u64, COUNT);
    // What is got is gone from the log, too.
    while let Some(found) = store.lock_next(queue, None, 0) {
        assert_eq!(store.body_now(found.id).unwrap().to_bytes(), body(found.put_at_ms, false).to_bytes());
        store.acknowledge(found.id).unwrap();
    }
    store.sync(Instant::now()).unwrap();
    assert_eq!((store.store_status().messages, needed(&mut store, queue)[1].0), (0, 0));
}
