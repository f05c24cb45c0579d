//! A reader follows the log of another owner, and takes over with all that one had.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::time::Instant;

use bulla_queue::log::{Claim, LogError};
use bulla_queue::sim::{Fate, Manner, SimDisk, SimEngine};
use bulla_queue::{
    DefinitionUnit, Driver, FileLog, FileLogOptions, FileSpill, Limits, Log, Message, MessageId, OpenError,
    QueueAttributes, QueueChange, QueueId, Standby, Store,
};
use fastrand::Rng;

const QUEUES: [&str; 3] = ["ORDERS", "BILLS", "ERRORS"];
const SEGMENT_BYTES: u64 = 8 << 10;
const STEPS: usize = 600;

fn limits() -> Limits {
    Limits {
        memory_bytes_max: 2_000,
        batch_bytes_max: 1_000,
        reserve_bytes: 4_000,
        checkpoint_bytes: 3_000,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    }
}

fn spill() -> Box<FileSpill<SimDisk>> {
    Box::new(FileSpill::open(SimDisk::default(), 100_000).unwrap())
}

fn options() -> FileLogOptions {
    FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    }
}

/// What is to be found in a store.
#[derive(Debug, Default, Eq, PartialEq)]
struct Contents {
    messages: Vec<(String, MessageId, u32, Vec<u8>)>,
    notes: Vec<(String, Vec<u8>)>,
    objects: Vec<(String, Vec<u8>)>,
}

fn contents(store: &mut Store) -> Contents {
    let mut found = Contents::default();
    for name in QUEUES {
        let Some(queue) = store.queue(name) else { continue };
        let mut after = None;
        while let Some(next) = store.browse_next(queue, after, 0) {
            let body = store.body_now(next.id).unwrap().to_bytes().to_vec();
            found.messages.push((name.to_owned(), next.id, next.delivery_count, body));
            after = Some(next.place);
        }
    }
    found.notes = store.notes("").map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    store.read_objects(&mut |name, text| found.objects.push((name.to_owned(), text.to_vec()))).unwrap();
    found.objects.sort();
    found
}

/// One thing that changes a store.
fn change(store: &mut Store, random: &mut Rng, number: u64) {
    let name = QUEUES[random.usize(..QUEUES.len())];
    let queue = match store.queue(name) {
        Some(queue) => queue,
        None => store.define(name, QueueAttributes::default()).unwrap(),
    };
    let message = |random: &mut Rng| {
        let mut body = number.to_le_bytes().to_vec();
        body.resize(8 + random.usize(..400), 1);
        Message { priority: random.u8(..3), ..Message::new(true, body.into()) }
    };
    match random.u8(..20) {
        0..=9 => drop(store.put(queue, message(random)).unwrap()),
        10..=16 => get(store, queue, random),
        17 => {
            let (note, value) = (format!("note{}", random.u8(..3)), number.to_le_bytes());
            let value = random.bool().then_some(&value[..]);
            store.commit(vec![(queue, message(random))], &[], &[(&note, value)]).unwrap();
        }
        18 => {
            let (object, text) = (format!("object{}", random.u8(..3)), number.to_le_bytes());
            let objects = [(&*object, random.bool().then_some(&text[..]))];
            store.commit_definitions(&DefinitionUnit { objects: &objects, ..DefinitionUnit::default() }).unwrap();
        }
        _ if random.u8(..4) == 0 => {
            let queues = [QueueChange::Delete { name, purge: true }];
            store.commit_definitions(&DefinitionUnit { queues: &queues, ..DefinitionUnit::default() }).unwrap();
        }
        _ => {}
    }
}

fn get(store: &mut Store, queue: QueueId, random: &mut Rng) {
    for _ in 0..2 {
        let Some(found) = store.lock_next(queue, None, 0) else { return };
        match random.u8(..4) {
            0 => store.release(found.id, true),
            _ => drop(store.acknowledge(found.id).unwrap()),
        }
    }
}

fn settle(store: &mut Store) {
    while !store.is_synced(store.written()) {
        store.poll(Instant::now()).unwrap();
    }
}

/// Works on a store while a standby follows at every `every`-th step, then has it take over.
fn follow(seed: u64, every: usize, owner: Box<dyn Log>, reader: Box<dyn Log>, gone: impl FnOnce(Store)) -> Contents {
    let mut random = Rng::with_seed(seed);
    let mut standby = Standby::new(reader);
    let mut store = Store::open(owner, spill(), limits(), Instant::now()).unwrap();
    for step in 0..STEPS {
        change(&mut store, &mut random, step as u64);
        store.poll(Instant::now()).unwrap();
        if step % every == 0 {
            standby.follow().unwrap();
        }
    }
    settle(&mut store);
    standby.follow().unwrap();
    assert_eq!(standby.messages(), store.store_status().messages, "seed {seed}: it is up to date");
    let before = contents(&mut store);
    gone(store);
    let mut after = standby.into_store(spill(), limits(), Instant::now()).unwrap();
    assert_eq!(contents(&mut after), before, "seed {seed}");
    // It is a store like any other.
    for step in 0..50 {
        change(&mut after, &mut random, (STEPS + step) as u64);
    }
    after.sync(Instant::now()).unwrap();
    contents(&mut after)
}

#[test]
fn a_standby_follows_an_engine_on_other_machines_and_takes_over() {
    for seed in 0..5 {
        for every in [1, 7, 200] {
            let engine = SimEngine::default();
            let logs = [engine.log(Manner::Prompt), engine.log(Manner::Prompt)].map(Box::new);
            let [owner, reader] = logs;
            let left = follow(seed, every, owner, reader, drop);
            let mut again =
                Store::open(Box::new(engine.log(Manner::Prompt)), spill(), limits(), Instant::now()).unwrap();
            assert_eq!(contents(&mut again), left, "seed {seed}");
        }
    }
}

#[test]
fn a_standby_follows_a_file_log_whose_segments_come_and_go_and_takes_over() {
    for seed in 0..5 {
        for every in [1, 7, 200] {
            let disk = SimDisk::default();
            let owner = FileLog::open(disk.clone(), options()).unwrap();
            let reader = FileLog::follow(disk.clone(), options());
            let left = follow(seed, every, Box::new(owner), Box::new(reader), drop);
            let log = FileLog::open(disk, options()).unwrap();
            let mut again = Store::open(Box::new(log), spill(), limits(), Instant::now()).unwrap();
            assert_eq!(contents(&mut again), left, "seed {seed}");
        }
    }
}

#[test]
fn a_standby_is_refused_while_the_owner_has_the_log_and_goes_on_following() {
    let disk = SimDisk::default();
    let owner = FileLog::open(disk.clone(), options()).unwrap();
    let mut store = Store::open(Box::new(owner), spill(), limits(), Instant::now()).unwrap();
    let mut standby = Standby::new(Box::new(FileLog::follow(disk, options())));
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    for number in 1..=3 {
        store.put(queue, Message::new(true, vec![number].into())).unwrap();
        store.sync(Instant::now()).unwrap();
        let refused = standby.claim(Instant::now(), Claim::IfFree);
        assert!(matches!(refused, Err(OpenError::Log(LogError::Owned { .. }))), "{refused:?}");
        standby.follow().unwrap();
        assert_eq!(standby.messages(), usize::from(number));
    }
    drop(store);
    standby.claim(Instant::now(), Claim::IfFree).unwrap();
    assert_eq!(standby.messages(), 3);
}

#[test]
fn what_a_power_cut_takes_back_from_the_owner_a_standby_reads_again() {
    let disk = SimDisk::default();
    let mut store =
        Store::open(Box::new(FileLog::open(disk.clone(), options()).unwrap()), spill(), limits(), Instant::now())
            .unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    store.put(queue, Message::new(true, vec![1].into())).unwrap();
    store.sync(Instant::now()).unwrap();
    let lost = disk.after_crash(Fate::Lost);
    // A second message is there for the standby, and gone after the power cut; another one is in its place.
    store.put(queue, Message::new(true, vec![2; 100].into())).unwrap();
    store.sync(Instant::now()).unwrap();
    let mut standby = Standby::new(Box::new(FileLog::follow(disk.clone(), options())));
    standby.follow().unwrap();
    assert_eq!(standby.messages(), 2);
    drop(store);
    for (name, _) in lost.files() {
        disk.set_contents(&name, lost.contents(&name).unwrap());
    }
    let mut store =
        Store::open(Box::new(FileLog::open(disk.clone(), options()).unwrap()), spill(), limits(), Instant::now())
            .unwrap();
    standby.follow().unwrap();
    assert_eq!(standby.messages(), 1, "it begins anew");
    store.put(queue, Message::new(true, vec![3; 100].into())).unwrap();
    store.put(queue, Message::new(true, vec![4; 100].into())).unwrap();
    store.sync(Instant::now()).unwrap();
    standby.follow().unwrap();
    let before = contents(&mut store);
    drop(store);
    let mut after = standby.into_store(spill(), limits(), Instant::now()).unwrap();
    assert_eq!(contents(&mut after), before);
}
