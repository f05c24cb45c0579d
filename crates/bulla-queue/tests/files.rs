//! The store over real files: what is confirmed is there after a restart, and two owners are one too many.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bulla_queue::log::LogError;
use bulla_queue::{
    Around, DirStorage, Driver, FileLog, FileLogOptions, FileSpill, INLINE_WITHIN, Keys, Limits, Message, OpenError,
    QueueAttributes, Store, Ticket, User,
};

const SEGMENT_BYTES: u64 = 1 << 20;
/// Longer than any disk takes; only a lost wake-up gets here.
const WAKE_UP_MAX: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits { reserve_bytes: 100_000, ..Limits::default() }
}

fn message(number: u64, bytes: usize) -> Message {
    let mut body = number.to_le_bytes().to_vec();
    body.resize(bytes.max(8), number as u8);
    Message {
        priority: 4,
        persistent: true,
        expires_at_ms: None,
        available_at_ms: None,
        put_at_ms: number,
        user: Some(User::from("orders")),
        keys: Keys::None,
        body: body.into(),
    }
}

fn try_open(dir: &Path, driver: Driver, limits: Limits) -> Result<(Store, Receiver<()>), OpenError> {
    let (woken, wakes) = channel();
    let woken = Mutex::new(woken);
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver,
        waker: Arc::new(move || drop(woken.lock().map(|woken| woken.send(())))),
        ..FileLogOptions::default()
    };
    let log = FileLog::open(DirStorage::new(dir.join("journal")), options)?;
    let spill = FileSpill::open(DirStorage::new(dir.join("scratch")), 1 << 30).map_err(OpenError::Spill)?;
    Ok((Store::open(Box::new(log), Box::new(spill), limits, Instant::now())?, wakes))
}

fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("journal")).unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    dir
}

fn open(dir: &Path, driver: Driver) -> (Store, Receiver<()>) {
    try_open(dir, driver, limits()).unwrap()
}

fn wait(store: &mut Store, wakes: &Receiver<()>, ticket: Ticket) {
    store.flush(Instant::now()).unwrap();
    while !store.is_synced(ticket) {
        wakes.recv_timeout(WAKE_UP_MAX).expect("the journal wakes those who wait");
        store.poll(Instant::now()).unwrap();
    }
}

fn numbers(store: &mut Store, queue: &str) -> Vec<u64> {
    let queue = store.queue(queue).unwrap();
    let mut after = None;
    let mut numbers = Vec::new();
    while let Some(found) = store.browse_next(queue, after, 0) {
        let body = store.body(found.id).unwrap().to_bytes();
        assert_eq!(found.user, Some(User::from("orders")));
        assert_eq!(body[..8], found.put_at_ms.to_le_bytes());
        assert!(body[8..].iter().all(|&byte| byte == found.put_at_ms as u8));
        numbers.push(found.put_at_ms);
        after = Some(found.place);
    }
    numbers
}

#[test]
fn what_is_confirmed_is_there_after_a_restart_with_every_driver() {
    for driver in [Driver::Inline, Driver::Thread, Driver::Adaptive { bytes: 4_000 }] {
        let dir = directory();
        for round in 0..3 {
            let (mut store, wakes) = open(dir.path(), driver);
            let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
            for number in 0..200 {
                let ticket = store.put(queue, message(round * 200 + number, 3_000)).unwrap();
                if number % 7 == 0 {
                    wait(&mut store, &wakes, ticket);
                }
            }
            // Half of what was there goes; every other one, so that nothing becomes a prefix by chance.
            let mut place = None;
            let mut ticket = Ticket::NOW;
            store.sync(Instant::now()).unwrap();
            for _ in 0..50 {
                place = store.browse_next(queue, place, 0).map(|found| found.place);
                let found = store.lock_next(queue, place, 0).unwrap();
                place = Some(found.place);
                ticket = store.acknowledge(found.id).unwrap();
            }
            wait(&mut store, &wakes, ticket);
            let before = numbers(&mut store, "ORDERS");
            drop(store);
            let (mut store, _) = open(dir.path(), driver);
            assert_eq!(numbers(&mut store, "ORDERS"), before, "{driver:?}, round {round}");
            store.close(Instant::now()).unwrap();
        }
    }
}

/// The first segment is enough: the store asks for no other one, and the keeper makes one spare.
fn without_reserve() -> Limits {
    Limits { reserve_bytes: 0, ..limits() }
}

fn wait_for_spare(journal: &Path) {
    let began = Instant::now();
    let has_spare = || {
        let names = std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("spare-"))
    };
    while !has_spare() {
        assert!(began.elapsed() < WAKE_UP_MAX, "no spare segment is made");
        std::thread::yield_now();
    }
}

#[test]
fn whoever_measures_sees_each_batch_where_it_is_written() {
    let dir = directory();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let say = Arc::new(move |what: &'static str| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let _ = tell.lock().map(|tell| tell.send((what, name)));
    });
    let around = |what: &'static str, say: &Arc<dyn Fn(&'static str) + Send + Sync>| -> Around {
        let say = say.clone();
        Arc::new(move |write| {
            say(what);
            write();
        })
    };
    let say: Arc<dyn Fn(&'static str) + Send + Sync> = say;
    let begins = say.clone();
    let now = Instant::now();
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Adaptive { bytes: 4096 },
        around_batch: around("batch", &say),
        around_inline: around("inline", &say),
        thread_begins: Arc::new(move || begins("begins")),
        // The disk is never slow: then a submitter writes its own batches.
        clock: Arc::new(move || now),
        ..FileLogOptions::default()
    };
    let log = FileLog::open(DirStorage::new(dir.path().join("journal")), options).unwrap();
    let spill = FileSpill::open(DirStorage::new(dir.path().join("scratch")), 1 << 30).unwrap();
    let mut store = Store::open(Box::new(log), Box::new(spill), without_reserve(), Instant::now()).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    wait_for_spare(&dir.path().join("journal"));
    store.sync(Instant::now()).unwrap();
    for bytes in [100, 100_000] {
        store.put(queue, message(1, bytes)).unwrap();
        store.sync(Instant::now()).unwrap();
    }
    store.shut_down(Instant::now()).unwrap();
    drop(store);
    let said: Vec<(&str, String)> = told.try_iter().collect();
    let on = |what: &str, thread: &str| said.iter().any(|(said, name)| *said == what && name == thread);
    let here = std::thread::current().name().unwrap_or_default().to_owned();
    assert!(on("begins", "journal") && on("begins", "journal-space") && on("batch", "journal"), "{said:?}");
    assert!(on("inline", &here) && !on("batch", &here) && !on("inline", "journal"), "{said:?}");
}

#[test]
fn a_submitter_writes_no_batch_itself_while_the_disk_is_slow() {
    let dir = directory();
    let journal = dir.path().join("journal");
    // What a batch takes on this clock, and who wrote the last one.
    let (takes_ms, clock_ms) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let writer = Arc::new(Mutex::new(""));
    let around = |who: &'static str| -> Around {
        let (takes_ms, clock_ms, writer) = (takes_ms.clone(), clock_ms.clone(), writer.clone());
        Arc::new(move |write| {
            *writer.lock().unwrap() = who;
            clock_ms.fetch_add(takes_ms.load(Ordering::Relaxed), Ordering::Relaxed);
            write();
        })
    };
    let (began, time) = (Instant::now(), clock_ms.clone());
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        driver: Driver::Adaptive { bytes: 4096 },
        around_batch: around("thread"),
        around_inline: around("submitter"),
        clock: Arc::new(move || began + Duration::from_millis(time.load(Ordering::Relaxed))),
        ..FileLogOptions::default()
    };
    let log = FileLog::open(DirStorage::new(journal.clone()), options).unwrap();
    let spill = FileSpill::open(DirStorage::new(dir.path().join("scratch")), 1 << 30).unwrap();
    let mut store = Store::open(Box::new(log), Box::new(spill), without_reserve(), began).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    // No other segment is made after the spare one.
    wait_for_spare(&journal);
    store.sync(began).unwrap();
    let slow_ms = u64::try_from(INLINE_WITHIN.as_millis()).unwrap() + 1;
    let takes = [(0, "submitter"), (slow_ms, "submitter"), (slow_ms, "thread"), (slow_ms, "thread"), (0, "thread")];
    for (number, (ms, who)) in takes.into_iter().chain([(0, "submitter")]).enumerate() {
        takes_ms.store(ms, Ordering::Relaxed);
        store.put(queue, message(number as u64, 100)).unwrap();
        store.sync(began).unwrap();
        assert_eq!(*writer.lock().unwrap(), who, "batch {number}");
    }
}

#[test]
fn a_second_owner_is_refused_until_the_first_has_gone() {
    let dir = directory();
    let (store, _wakes) = open(dir.path(), Driver::Thread);
    let refused = try_open(dir.path(), Driver::Thread, limits());
    assert!(matches!(refused, Err(OpenError::Log(LogError::Owned { .. }))), "{:?}", refused.err());
    drop(store);
    open(dir.path(), Driver::Thread);
}

#[test]
fn a_queue_that_is_always_drained_does_not_grow_on_disk() {
    let dir = directory();
    let limits = Limits { checkpoint_bytes: SEGMENT_BYTES / 2, log_bytes_min: 4 * SEGMENT_BYTES, ..limits() };
    let (mut store, _wakes) = try_open(dir.path(), Driver::Inline, limits).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    let other = store.define("OTHER", QueueAttributes::default()).unwrap();
    // One old message must not hold the log either: it is carried forward.
    store.put(other, message(7, 5_000)).unwrap();
    let mut largest = 0;
    for number in 0..30_000 {
        store.put(queue, message(number, 2_000)).unwrap();
        if number % 20 == 19 {
            store.flush(Instant::now()).unwrap();
            while let Some(found) = store.lock_next(queue, None, 0) {
                store.acknowledge(found.id).unwrap();
            }
            let files = std::fs::read_dir(dir.path().join("journal")).unwrap();
            largest = files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>().max(largest);
        }
    }
    assert!(largest <= 9 * (SEGMENT_BYTES + 4_096), "{largest} bytes of journal for 60 MB through a queue");
    drop(store);
    let (mut store, _) = open(dir.path(), Driver::Inline);
    assert_eq!(numbers(&mut store, "OTHER"), [7]);
}

#[test]
fn a_message_longer_than_a_segment_has_a_segment_of_its_own() {
    let dir = directory();
    let attributes = QueueAttributes { max_message_bytes: 16 << 20, ..QueueAttributes::default() };
    let (mut store, wakes) = open(dir.path(), Driver::Thread);
    let queue = store.define("LARGE", attributes).unwrap();
    for number in 0..6 {
        let ticket = store.put(queue, message(number, if number % 2 == 0 { 3 << 20 } else { 100 })).unwrap();
        wait(&mut store, &wakes, ticket);
    }
    drop(store);
    let (mut store, _) = open(dir.path(), Driver::Inline);
    assert_eq!(numbers(&mut store, "LARGE"), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_backlog_beyond_memory_comes_back_from_journal_and_scratch_space() {
    let dir = directory();
    let limits = Limits { memory_bytes_max: 100_000, ..limits() };
    let (mut store, _wakes) = try_open(dir.path(), Driver::Inline, limits).unwrap();
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    for number in 0..1_000 {
        let persistent = number % 2 == 0;
        store.put(queue, Message { persistent, ..message(number, 1_000) }).unwrap();
    }
    store.sync(Instant::now()).unwrap();
    assert!(store.store_status().memory_bytes <= 100_000);
    let (spilled, scratch) = (store.store_status().spilled_bytes, store.totals().scratch);
    assert!(spilled > 300_000);
    assert_eq!((scratch.bytes, scratch.messages), (spilled, spilled / 1_000), "counted where they were written");
    assert_eq!(numbers(&mut store, "ORDERS"), (0..1_000).collect::<Vec<_>>());
    store.clear(queue).unwrap();
    assert_eq!((store.store_status().memory_bytes, store.store_status().spilled_bytes), (0, 0));
}
