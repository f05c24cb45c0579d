//! A reader follows the log of another owner, and takes over with all that one had.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod work;

use std::time::Instant;

use bulla_queue::log::{Claim, LogError};
use bulla_queue::sim::{Fate, Manner, SimDisk, SimEngine};
use bulla_queue::{Driver, FileLog, FileLogOptions, Message, OpenError, QueueAttributes, Standby, Store};

use work::{SEGMENT_BYTES, contents, follow, limits, spill};

fn options() -> FileLogOptions {
    FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    }
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

#[test]
fn queues_are_named_that_waited_until_their_messages_may_be_sent() {
    let engine = SimEngine::default();
    let log = Box::new(engine.log(Manner::Prompt));
    let mut store = Store::open(log, spill(), limits(), Instant::now()).unwrap();
    let [waits, other] = ["WAITS", "OTHER"].map(|name| store.define(name, QueueAttributes::default()).unwrap());
    for queue in [waits, other] {
        store.put(queue, Message::new(true, vec![1].into())).unwrap();
    }
    store.sync(Instant::now()).unwrap();
    let ready = |store: &mut Store| {
        let mut ready = Vec::new();
        store.poll(Instant::now()).unwrap();
        store.take_ready(&mut ready);
        ready
    };
    ready(&mut store);
    assert!(store.may_send(waits) && store.log_status().is_surely_owned);
    assert_eq!(ready(&mut store), [], "no one waits");
    engine.answer_looks(false);
    assert!(!store.may_send(waits) && !store.may_send(waits) && !store.log_status().is_surely_owned);
    assert_eq!(ready(&mut store), [], "it waits still");
    engine.answer_looks(true);
    assert_eq!(ready(&mut store), [waits]);
    assert!(store.may_send(waits));
    assert_eq!(ready(&mut store), [], "each once");
    Store::open(Box::new(engine.log(Manner::Prompt)), spill(), limits(), Instant::now()).unwrap();
    assert!(!store.may_send(waits), "another one owns it");
}
