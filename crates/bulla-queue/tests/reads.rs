//! Bodies that have left memory come back, and no caller waits for the log.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bulla_queue::sim::{Manner, SimDisk, SimEngine};
use bulla_queue::{
    Chunks, Driver, FileLog, FileLogOptions, FileSpill, Limits, Log, Look, Looked, Message, QueueAttributes, QueueId,
    ReadError, Seen, Storage, StorageFile, Store,
};

const POLLS: u32 = 5;
const COUNT: u64 = 100;

/// So little memory that no body of a persistent message stays there.
fn limits() -> Limits {
    Limits { memory_bytes_max: 0, ..Limits::default() }
}

fn open(log: Box<dyn Log>, limits: Limits) -> Store {
    let spill = FileSpill::open(SimDisk::default(), 10_000).unwrap();
    Store::open(log, Box::new(spill), limits, Instant::now()).unwrap()
}

fn late(limits: Limits) -> Store {
    open(Box::new(SimEngine::default().log(Manner::Late { polls: POLLS })), limits)
}

fn message(number: u64, bytes: usize) -> Message {
    let mut body = number.to_le_bytes().to_vec();
    body.resize(bytes.max(8), 7);
    Message { put_at_ms: number, ..Message::new(true, body.into()) }
}

fn settle(store: &mut Store) {
    while !store.is_synced(store.written()) {
        store.poll(Instant::now()).unwrap();
    }
}

fn filled(store: &mut Store, name: &str, count: u64, bytes: usize) -> QueueId {
    let queue = store.define(name, QueueAttributes { max_depth: 1_000_000, ..QueueAttributes::default() }).unwrap();
    for number in 0..count {
        store.put(queue, message(number, bytes)).unwrap();
    }
    settle(store);
    store.take_ready(&mut Vec::new());
    queue
}

/// Gets all that is on a queue as a dispatcher does: what is away is set aside until the queue is ready. Returns the
/// numbers in their order, and how often it was served.
fn get_all(store: &mut Store, queue: QueueId) -> (Vec<u64>, usize) {
    let (mut got, mut served, mut is_ready) = (Vec::new(), 0, true);
    for _ in 0..100_000 {
        if is_ready {
            served += 1;
            while let Some(found) = store.lock_next(queue, None, 0) {
                match store.body(found.id) {
                    Ok(body) => {
                        assert_eq!(body.to_bytes()[..8], found.put_at_ms.to_le_bytes());
                        got.push(found.put_at_ms);
                        store.acknowledge(found.id).unwrap();
                    }
                    Err(ReadError::Away { .. }) => {
                        store.set_aside(found.id);
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            if store.status(queue).unwrap().depth == 0 {
                return (got, served);
            }
        }
        store.poll(Instant::now()).unwrap();
        let mut ready = Vec::new();
        store.take_ready(&mut ready);
        is_ready = ready.contains(&queue);
    }
    panic!("{got:?} came");
}

#[test]
fn what_is_away_is_got_in_its_order_when_it_has_come() {
    let mut store = late(limits());
    let queue = filled(&mut store, "ORDERS", COUNT, 100);
    let (got, served) = get_all(&mut store, queue);
    assert_eq!(got, (0..COUNT).collect::<Vec<_>>());
    assert!(served as u64 <= 2 * COUNT, "served {served} times: a queue whose messages are away is left alone");
}

#[test]
fn a_queue_whose_next_message_is_away_is_not_ready_before_that_has_come() {
    let mut store = late(limits());
    let queue = filled(&mut store, "ORDERS", 1, 100);
    let found = store.lock_next(queue, None, 0).unwrap();
    assert!(matches!(store.body(found.id), Err(ReadError::Away { .. })));
    store.set_aside(found.id);
    for _ in 1..POLLS {
        store.poll(Instant::now()).unwrap();
        let mut ready = Vec::new();
        store.take_ready(&mut ready);
        assert_eq!(ready, [], "nothing has come");
    }
    store.poll(Instant::now()).unwrap();
    let mut ready = Vec::new();
    store.take_ready(&mut ready);
    assert_eq!(ready, [queue]);
    let again = store.lock_next(queue, None, 0).unwrap();
    assert_eq!((again.id, again.delivery_count), (found.id, 0), "it is where it was, and its delivery has not failed");
    assert_eq!(store.body(found.id).unwrap().len(), 100);
}

#[test]
fn more_than_may_be_under_way_waits_for_room_and_none_is_forgotten() {
    let mut store = late(limits());
    let queues: Vec<_> = (0..5).map(|at| filled(&mut store, &format!("Q{at}"), 3, 4 << 20)).collect();
    // All of them are asked for; 60 MB do not fit.
    for queue in &queues {
        let found = store.lock_next(*queue, None, 0).unwrap();
        assert!(matches!(store.body(found.id), Err(ReadError::Away { .. })));
        store.set_aside(found.id);
    }
    let mut ready = Vec::new();
    let mut left: Vec<_> = queues.clone();
    for _ in 0..10_000 {
        store.poll(Instant::now()).unwrap();
        store.take_ready(&mut ready);
        for queue in ready.drain(..) {
            while let Some(found) = store.lock_next(queue, None, 0) {
                if store.body(found.id).is_err() {
                    store.set_aside(found.id);
                    break;
                }
                store.acknowledge(found.id).unwrap();
            }
        }
        left.retain(|queue| store.status(*queue).unwrap().depth > 0);
        if left.is_empty() {
            return;
        }
    }
    panic!("{left:?} were never served again");
}

#[test]
fn a_reader_that_chooses_passes_nothing_over_that_is_away() {
    let mut store = late(limits());
    let queue = filled(&mut store, "ORDERS", COUNT, 6_000);
    let mut cursor = store.watch(queue);
    let (mut got, mut shown) = (Vec::new(), 0);
    for _ in 0..10_000 {
        let mut budget = 1_000_000;
        let wants = |seen: &Seen<'_>| {
            shown += 1;
            match seen.body[0][0] % 10 {
                3 if !seen.is_whole => Looked::More,
                3 => Looked::Take,
                _ => Looked::Pass,
            }
        };
        match store.look(queue, &mut cursor, 0, true, &mut budget, wants) {
            Look::Found(found) => match store.body(found.id) {
                Ok(_) => {
                    got.push(found.put_at_ms);
                    store.acknowledge(found.id).unwrap();
                }
                Err(ReadError::Away { .. }) => store.set_aside(found.id),
                Err(error) => panic!("{error}"),
            },
            Look::End => break,
            Look::Away => store.poll(Instant::now()).unwrap(),
            Look::Unfinished => {}
        }
    }
    assert_eq!(got, (0..COUNT).filter(|number| number % 10 == 3).collect::<Vec<_>>());
    assert!(shown < 4 * COUNT, "{shown} looks");
}

#[test]
fn a_checkpoint_goes_on_when_what_it_carries_forward_has_come() {
    let limits = Limits {
        checkpoint_bytes: 20_000,
        log_bytes_min: 30_000,
        reserve_bytes: 10_000,
        batch_bytes_max: 4_000,
        ..limits()
    };
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Late { polls: POLLS })), limits);
    let stays = filled(&mut store, "STAYS", 10, 500);
    let passes = filled(&mut store, "PASSES", 0, 0);
    for number in 0..2_000 {
        store.put(passes, message(number, 500)).unwrap();
        settle(&mut store);
        let found = store.lock_next(passes, None, 0).unwrap();
        store.acknowledge(found.id).unwrap();
        store.poll(Instant::now()).unwrap();
    }
    assert!(engine.bytes() < 200_000, "a megabyte went through, {} bytes are kept", engine.bytes());
    let (got, _) = get_all(&mut store, stays);
    assert_eq!(got, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_reader_is_told_of_a_body_that_a_checkpoint_asked_for_first() {
    let limits = Limits {
        checkpoint_bytes: 5_000,
        log_bytes_min: 6_000,
        reserve_bytes: 10_000,
        batch_bytes_max: 4_000,
        ..limits()
    };
    // At some of these moments a checkpoint has just asked for the messages that stay.
    for steps in 0..80 {
        let mut store = late(limits);
        let stays = filled(&mut store, "STAYS", 3, 500);
        let passes = filled(&mut store, "PASSES", 0, 0);
        for number in 0..steps {
            store.put(passes, message(number, 500)).unwrap();
            store.poll(Instant::now()).unwrap();
            if let Some(found) = store.lock_next(passes, None, 0) {
                store.acknowledge(found.id).unwrap();
            }
        }
        store.take_ready(&mut Vec::new());
        let (got, _) = get_all(&mut store, stays);
        assert_eq!(got, [0, 1, 2], "after {steps} steps");
    }
}

#[test]
fn a_message_found_in_the_journal_is_marked_only_if_its_body_asks_and_then_stays_at_hand() {
    let engine = SimEngine::default();
    let mut store = open(Box::new(engine.log(Manner::Prompt)), limits());
    filled(&mut store, "ORDERS", 2, 100);
    drop(store);
    let mut store = open(Box::new(engine.log(Manner::Late { polls: POLLS })), limits());
    store.tell_marks_by(|body: &Chunks| body.chunks()[0][0] == 1);
    let queue = store.queue("ORDERS").unwrap();
    let mut ids = Vec::new();
    while ids.len() < 2 {
        let Some(found) = store.lock_next(queue, None, 0) else { panic!("two were put") };
        match store.body(found.id) {
            Ok(_) => ids.push(found.id),
            Err(_) => store.set_aside(found.id),
        }
        store.poll(Instant::now()).unwrap();
    }
    assert_eq!(ids.iter().map(|id| store.is_marked(*id)).collect::<Vec<_>>(), [false, true]);
    // Much else is read in between; what is delivered and marked is there when it is got.
    let other = filled(&mut store, "OTHER", 20, 2 << 20);
    get_all(&mut store, other);
    assert!(store.body(ids[1]).is_ok());
    store.acknowledge(ids[1]).unwrap();
}

/// A disk whose files are not in the page cache, and whose reads, and the zeros written into new segments, end when
/// that is allowed.
#[derive(Clone, Default)]
struct SlowDisk {
    disk: SimDisk,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct SlowFile(<SimDisk as Storage>::File, Arc<(Mutex<bool>, Condvar)>);

impl SlowDisk {
    fn set_open(&self, open: bool) {
        *self.gate.0.lock().unwrap() = open;
        self.gate.1.notify_all();
    }
}

impl SlowFile {
    fn wait(&self) {
        let (open, changed) = &*self.1;
        drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }
}

impl Storage for SlowDisk {
    type File = SlowFile;
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn open(&self, name: &str) -> io::Result<SlowFile> {
        Ok(SlowFile(self.disk.open(name)?, self.gate.clone()))
    }
    fn create(&self, name: &str) -> io::Result<SlowFile> {
        Ok(SlowFile(self.disk.create(name)?, self.gate.clone()))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
    fn lock(&self, name: &str) -> io::Result<Option<SlowFile>> {
        Ok(self.disk.lock(name)?.map(|file| SlowFile(file, self.gate.clone())))
    }
    fn random(&self) -> io::Result<u64> {
        self.disk.random()
    }
}

impl StorageFile for SlowFile {
    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.0.read_at(offset, into)
    }
    fn read_at_once(&self, _offset: u64, _into: &mut [u8]) -> io::Result<bool> {
        Ok(false)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() >= 64 << 10 && bytes.iter().all(|byte| *byte == 0) {
            self.wait();
        }
        self.0.write_at(offset, bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        self.0.allocate(bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn a_file_log_reads_on_a_thread_of_its_own_what_is_not_in_the_page_cache() {
    let disk = SlowDisk::default();
    let woken = Arc::new((Mutex::new(0_u32), Condvar::new()));
    let wakes = woken.clone();
    let options = FileLogOptions {
        segment_bytes: 1 << 20,
        first_segment_bytes: 1 << 20,
        driver: Driver::Thread,
        waker: Arc::new(move || {
            *wakes.0.lock().unwrap() += 1;
            wakes.1.notify_all();
        }),
        ..FileLogOptions::default()
    };
    disk.set_open(true);
    let log = FileLog::open(disk.clone(), options).unwrap();
    let mut store = open(Box::new(log), limits());
    let queue = store.define("ORDERS", QueueAttributes::default()).unwrap();
    store.put(queue, message(1, 100)).unwrap();
    store.sync(Instant::now()).unwrap();
    disk.set_open(false);
    let mut seen = *woken.0.lock().unwrap();
    let found = store.lock_next(queue, None, 0).unwrap();
    assert!(matches!(store.body(found.id), Err(ReadError::Away { .. })), "the disk is not waited for");
    disk.set_open(true);
    // The put's own batch may wake the caller here too: that is after `sync` has returned.
    while matches!(store.body(found.id), Err(ReadError::Away { .. })) {
        let is_silent = |wakes: &mut u32| *wakes == seen;
        let (wakes, waited) =
            woken.1.wait_timeout_while(woken.0.lock().unwrap(), Duration::from_secs(60), is_silent).unwrap();
        assert!(!waited.timed_out(), "the caller is woken when it has come");
        seen = *wakes;
        drop(wakes);
        store.poll(Instant::now()).unwrap();
    }
    assert_eq!(store.body(found.id).unwrap().len(), 100);
}

#[test]
fn a_put_that_needs_space_does_not_wait_for_a_segment_that_is_being_written() {
    let disk = SlowDisk::default();
    disk.set_open(true);
    let options = FileLogOptions {
        segment_bytes: 1 << 20,
        first_segment_bytes: 1 << 20,
        driver: Driver::Thread,
        ..FileLogOptions::default()
    };
    let log = FileLog::open(disk.clone(), options).unwrap();
    let mut store = open(Box::new(log), Limits { reserve_bytes: 4 << 20, ..limits() });
    let queue = store.define("ORDERS", QueueAttributes { max_depth: 1_000_000, ..QueueAttributes::default() }).unwrap();
    disk.set_open(false);
    let (done, is_done) = std::sync::mpsc::channel();
    let puts = std::thread::spawn(move || {
        // Several segments, and messages with a segment of their own.
        for number in 0..100 {
            store.put(queue, message(number, if number % 10 == 0 { 300_000 } else { 30_000 })).unwrap();
        }
        done.send(()).unwrap();
        store
    });
    let put = is_done.recv_timeout(Duration::from_secs(60));
    disk.set_open(true);
    let mut store = puts.join().unwrap();
    assert_eq!(put, Ok(()), "a put waits for the disk");
    store.sync(Instant::now()).unwrap();
    assert_eq!(store.status(queue).unwrap().available, 100);
}
