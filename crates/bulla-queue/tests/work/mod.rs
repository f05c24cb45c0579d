//! What a store does, on any log: work, a standby that follows, a takeover.

#![allow(dead_code, reason = "each test program uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::time::{Duration, Instant};

use bulla_queue::log::{Claim, LogError};
use bulla_queue::sim::SimDisk;
use bulla_queue::{
    DefinitionUnit, FileSpill, Limits, Log, Message, MessageId, OpenError, QueueAttributes, QueueChange, QueueId,
    Standby, Store,
};
use fastrand::Rng;

pub(crate) const QUEUES: [&str; 3] = ["ORDERS", "BILLS", "ERRORS"];
pub(crate) const SEGMENT_BYTES: u64 = 8 << 10;
pub(crate) const STEPS: usize = 600;
const UP_TO_DATE_WITHIN: Duration = Duration::from_secs(180);

pub(crate) fn limits() -> Limits {
    Limits {
        memory_bytes_max: 2_000,
        batch_bytes_max: 1_000,
        reserve_bytes: 4_000,
        checkpoint_bytes: 3_000,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    }
}

pub(crate) fn spill() -> Box<FileSpill<SimDisk>> {
    Box::new(FileSpill::open(SimDisk::default(), 100_000).unwrap())
}

/// What is to be found in a store.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Contents {
    pub(crate) messages: Vec<(String, MessageId, u32, Vec<u8>)>,
    pub(crate) notes: Vec<(String, Vec<u8>)>,
    pub(crate) objects: Vec<(String, Vec<u8>)>,
}

pub(crate) fn contents(store: &mut Store) -> Contents {
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
pub(crate) fn change(store: &mut Store, random: &mut Rng, number: u64) {
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

pub(crate) fn get(store: &mut Store, queue: QueueId, random: &mut Rng) {
    for _ in 0..2 {
        let Some(found) = store.lock_next(queue, None, 0) else { return };
        match random.u8(..4) {
            0 => store.release(found.id, true),
            _ => drop(store.acknowledge(found.id).unwrap()),
        }
    }
}

pub(crate) fn settle(store: &mut Store) {
    while !store.is_synced(store.written()) {
        store.poll(Instant::now()).unwrap();
        // The log's thread may need this processor.
        std::thread::yield_now();
    }
}

/// Does again what a log can't do for now, as the program does.
fn tried<T>(mut attempt: impl FnMut() -> Result<T, OpenError>) -> T {
    let deadline = Instant::now() + UP_TO_DATE_WITHIN;
    loop {
        match attempt() {
            Err(OpenError::Log(LogError::Unavailable(_))) if Instant::now() < deadline => {}
            done => return done.unwrap(),
        }
    }
}

/// Works on a store while a standby follows at every `every`-th step, then has it take over.
pub(crate) fn follow(
    seed: u64,
    every: usize,
    owner: Box<dyn Log>,
    reader: Box<dyn Log>,
    gone: impl FnOnce(Store),
) -> Contents {
    let mut random = Rng::with_seed(seed);
    let mut standby = Standby::new(reader);
    let mut first = Standby::new(owner);
    tried(|| first.claim(Instant::now(), Claim::IfFree));
    let mut store = first.into_store(spill(), limits(), Instant::now()).unwrap();
    for step in 0..STEPS {
        change(&mut store, &mut random, step as u64);
        store.poll(Instant::now()).unwrap();
        if step % every == 0 {
            tried(|| standby.follow());
        }
    }
    settle(&mut store);
    // Of an engine on several machines one may answer that does not have all yet.
    let deadline = Instant::now() + UP_TO_DATE_WITHIN;
    tried(|| standby.follow());
    while standby.messages() != store.store_status().messages && Instant::now() < deadline {
        tried(|| standby.follow());
    }
    assert_eq!(standby.messages(), store.store_status().messages, "seed {seed}: it is up to date");
    let before = contents(&mut store);
    gone(store);
    tried(|| standby.claim(Instant::now(), Claim::IfFree));
    let mut after = standby.into_store(spill(), limits(), Instant::now()).unwrap();
    assert_eq!(contents(&mut after), before, "seed {seed}");
    // It is a store like any other.
    for step in 0..50 {
        change(&mut after, &mut random, (STEPS + step) as u64);
    }
    after.sync(Instant::now()).unwrap();
    contents(&mut after)
}
