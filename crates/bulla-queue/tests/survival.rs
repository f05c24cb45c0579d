//! What survives: the same workload over a disk that stops at every step, in every way a disk can forget; over one that
//! fails at every step or is full from there on; and over a log that answers late, twice, never, or deposed.
//!
//! One rule covers the promises of a queue manager: what is found afterwards is what the first k units of work leave,
//! for some k that is at least the number of units confirmed. So nothing confirmed is lost, nothing is half there,
//! nothing comes back after its removal was confirmed, and order is kept.
//!
//! A failure names the seed and the step. `BULLA_SEED=n` runs that seed alone.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod promises;

use std::time::Instant;

use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, LogLimits, Position, Read, ReadDone, Replayed};
use bulla_queue::sim::{Fate, Fault, Manner, SimDisk, SimEngine};
use bulla_queue::{
    Driver, FileLog, FileLogOptions, JournalError, Keys, Log, Message, OpenError, QueueAttributes, QueueId, StoreNumber,
};

use promises::{Model, OPERATIONS, QUEUES, REPLACES_ABOVE, SEGMENT_BYTES, Stopped, body, contents, open, work};

fn file_log(disk: &SimDisk) -> Result<FileLog<SimDisk>, LogError> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES / 2,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    FileLog::open(disk.clone(), options)
}

fn seeds() -> Vec<u64> {
    match std::env::var("BULLA_SEED") {
        Ok(seed) => vec![seed.parse().expect("BULLA_SEED is a number")],
        Err(_) => (1..=6).chain(REPLACES_ABOVE + 1..=REPLACES_ABOVE + 3).collect(),
    }
}

fn fates(step: u64) -> [Fate; 6] {
    [Fate::Lost, Fate::Torn, Fate::Kept, Fate::Mixed(step * 3), Fate::Mixed(step * 3 + 1), Fate::Mixed(step * 3 + 2)]
}

/// Opens what a disk has and tells how many units of work that stands for.
fn recover(disk: &SimDisk, model: &Model) -> Result<usize, String> {
    let mut store = open(Box::new(file_log(disk).map_err(|error| error.to_string())?)).map_err(|e| e.to_string())?;
    model.explain(&contents(&mut store))
}

fn run(disk: &SimDisk, seed: u64, make: fn(FileLog<SimDisk>) -> Box<dyn Log>) -> Model {
    let mut model = Model::default();
    if let Ok(mut store) = file_log(disk).map_err(OpenError::Log).and_then(|log| open(make(log))) {
        let _ = work(&mut store, &mut model, seed, OPERATIONS);
    }
    model
}

fn boxed(log: FileLog<SimDisk>) -> Box<dyn Log> {
    Box::new(log)
}

#[test]
fn every_crash_point_keeps_what_was_confirmed() {
    for seed in seeds() {
        let disk = SimDisk::default();
        let whole = run(&disk, seed, boxed);
        assert!(whole.confirmed > 30, "seed {seed}: {} units", whole.confirmed);
        for step in 0..=disk.steps() {
            let disk = SimDisk::with_fault(step, Fault::Crash);
            let model = run(&disk, seed, boxed);
            for fate in fates(step) {
                let found = disk.after_crash(fate);
                if let Err(broken) = recover(&found, &model) {
                    panic!("seed {seed}, step {step}, {fate:?}: {broken}");
                }
            }
        }
    }
}

#[test]
fn a_crash_during_recovery_or_soon_after_it_loses_nothing_either() {
    for seed in seeds() {
        let steps = {
            let disk = SimDisk::default();
            run(&disk, seed, boxed);
            disk.steps()
        };
        for step in (0..=steps).step_by(3) {
            let disk = SimDisk::with_fault(step, Fault::Crash);
            let first = run(&disk, seed, boxed);
            for fate in fates(step) {
                for second_step in 0..12 {
                    let found = disk.after_crash(fate);
                    let units = recover(&found.after_crash(Fate::Kept), &first).unwrap();
                    let mut model = Model { units: first.units.clone(), next: first.next, ..Model::default() };
                    model.restart(units);
                    found.set_fault(second_step, Fault::Crash);
                    if let Ok(mut store) = file_log(&found).map_err(OpenError::Log).and_then(|log| open(boxed(log))) {
                        let _ = work(&mut store, &mut model, seed + 100, 12);
                    }
                    for second_fate in fates(step + second_step) {
                        if let Err(broken) = recover(&found.after_crash(second_fate), &model) {
                            panic!("seed {seed}, step {step}, {fate:?}, then {second_step}, {second_fate:?}: {broken}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_error_at_any_step_stops_the_journal_or_is_survived_and_what_is_found_then_stays() {
    for seed in seeds() {
        let steps = {
            let disk = SimDisk::default();
            run(&disk, seed, boxed);
            disk.steps()
        };
        for step in 0..=steps {
            let disk = SimDisk::with_fault(step, Fault::Io);
            let mut model = run(&disk, seed, boxed);
            disk.set_full(false); // and no further error
            // The program starts again without a power cut: it sees its cache, which the disk need not have.
            let units = match recover(&disk, &model) {
                Ok(units) => units,
                Err(broken) => panic!("seed {seed}, step {step}: {broken}"),
            };
            model.restart(units);
            for fate in fates(step) {
                if let Err(broken) = recover(&disk.after_crash(fate), &model) {
                    panic!("seed {seed}, step {step}, then {fate:?}: {broken}");
                }
            }
        }
    }
}

#[test]
fn on_a_disk_that_is_full_from_any_step_on_gets_still_work_and_puts_work_again_later() {
    // With 4 a batch before a large one took the space of those behind it; with 48 a large batch took the segment that
    // was reserved for a larger one.
    for seed in seeds().into_iter().chain([48]) {
        let steps = {
            let disk = SimDisk::default();
            run(&disk, seed, boxed);
            disk.steps()
        };
        for step in 12..=steps {
            let disk = SimDisk::with_fault(step, Fault::Full);
            let mut model = Model::default();
            let mut store = match file_log(&disk).map_err(OpenError::Log).and_then(|log| open(boxed(log))) {
                Ok(store) => store,
                Err(OpenError::Log(LogError::Full)) => continue,
                Err(error) => panic!("seed {seed}, step {step}: {error}"),
            };
            match work(&mut store, &mut model, seed, OPERATIONS) {
                Ok(()) | Err(Stopped::Journal(JournalError::Full)) => {}
                Err(error) => panic!("seed {seed}, step {step}: {error:?}"),
            }
            drop(store);
            // Nothing is lost by it, and everything can be got without one byte more of disk.
            let mut store = open(boxed(file_log(&disk).unwrap())).unwrap();
            let units = match model.explain(&contents(&mut store)) {
                Ok(units) => units,
                Err(broken) => panic!("seed {seed}, step {step}: {broken}"),
            };
            model.restart(units);
            for name in QUEUES {
                let Some(queue) = store.queue(name) else { continue };
                while let Some(found) = store.lock_next(queue, None, 0) {
                    // A message goes alone, or together with a note that says so.
                    let number = found.put_at_ms;
                    let note = Some((0, Some(number))).filter(|_| number % 2 == 0);
                    let ticket = match note {
                        Some(_) => store.commit(vec![], &[found.id], &[("note0", Some(&body(number, 8)))]).ok(),
                        None => store.acknowledge(found.id).ok(),
                    };
                    match ticket {
                        Some(ticket) => model.unit_with_note(vec![], vec![number], note, ticket),
                        None => panic!("seed {seed}, step {step}: a full disk keeps message {number}"),
                    }
                    store.flush(Instant::now()).unwrap();
                    model.confirm(&store);
                }
            }
            assert_eq!(store.store_status().messages, 0);
            disk.set_full(false);
            let later = Instant::now() + std::time::Duration::from_secs(60);
            store.poll(Instant::now()).unwrap();
            store.poll(later).unwrap();
            work(&mut store, &mut model, seed + 7, 10).unwrap();
            drop(store);
            if let Err(broken) = recover(&disk.after_crash(Fate::Lost), &model) {
                panic!("seed {seed}, step {step}: {broken}");
            }
        }
    }
}

/// A driver that is wrong on purpose: it says *synced* as soon as it has a batch, and writes it when the next one
/// comes.
struct Hasty {
    log: FileLog<SimDisk>,
    kept: Option<Batch>,
    said: Vec<Event>,
}

impl Log for Hasty {
    fn claim(&mut self, now: Instant, how: Claim) -> Result<(Epoch, Position), LogError> {
        self.log.claim(now, how)
    }
    fn start(&self) -> Position {
        self.log.start()
    }
    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        self.log.replay(from, each)
    }
    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        self.said.push(Event::Synced(batch.end()));
        match self.kept.replace(batch) {
            Some(late) => self.log.submit(late),
            None => Ok(()),
        }
    }
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError> {
        events.append(&mut self.said);
        self.log.poll(now, &mut Vec::new(), spare)
    }
    fn settle(&mut self) {
        self.log.settle();
    }
    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        self.log.read(read)
    }
    fn poll_reads(&mut self, now: Instant, done: &mut Vec<ReadDone>) {
        self.log.poll_reads(now, done);
    }
    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        self.log.read_now(at, bytes, into)
    }
    fn release(&mut self, before: Position) -> Result<(), LogError> {
        self.log.release(before)
    }
    fn space(&self) -> u64 {
        self.log.space()
    }
    fn reserve(&mut self, batch_bytes: u64, besides: u64) -> Result<(), LogError> {
        self.log.reserve(batch_bytes, besides)
    }
    fn limits(&self) -> LogLimits {
        self.log.limits()
    }
}

#[test]
fn a_driver_that_confirms_before_the_sync_is_caught() {
    let mut caught = 0;
    for step in 0..60 {
        let disk = SimDisk::with_fault(step, Fault::Crash);
        let mut model = Model::default();
        let hasty = |log| Box::new(Hasty { log, kept: None, said: Vec::new() });
        if let Ok(mut store) = file_log(&disk).map_err(OpenError::Log).and_then(|log| open(hasty(log))) {
            for name in QUEUES {
                let _ = store.define(name, QueueAttributes::default());
            }
            let queue = store.queue("ORDERS").unwrap_or(QueueId::new(StoreNumber::LOCAL, u32::MAX));
            for number in 0..20 {
                let body = body(number, 50).into();
                let message = Message {
                    priority: 0,
                    persistent: true,
                    expires_at_ms: None,
                    available_at_ms: None,
                    put_at_ms: number,
                    user: None,
                    keys: Keys::None,
                    body,
                };
                let Ok(ticket) = store.put(queue, message) else { break };
                model.unit(vec![(0, 0, number)], vec![], ticket);
                let flushed = store.flush(Instant::now());
                model.confirm(&store);
                if flushed.is_err() {
                    break;
                }
            }
        }
        caught += u32::from(recover(&disk.after_crash(Fate::Lost), &model).is_err());
    }
    assert!(caught > 20, "only {caught} of 60 crashes showed it");
}

#[test]
fn the_same_promises_hold_over_a_log_that_answers_late_twice_never_or_deposed() {
    for seed in seeds() {
        for case in 0..30 {
            let manner = match case % 5 {
                0 => Manner::Prompt,
                1 => Manner::Late { polls: 2 + case as u32 / 5 },
                2 => Manner::Twice,
                3 => Manner::Never { batches: case / 2 },
                _ => Manner::Deposed { batches: case / 2 },
            };
            let engine = SimEngine::default();
            let mut model = Model::default();
            let mut store = open(Box::new(engine.log(manner))).unwrap();
            let worked = work(&mut store, &mut model, seed, OPERATIONS);
            match (manner, worked) {
                (Manner::Deposed { .. }, Ok(())) => panic!("seed {seed}: {manner:?} was not heard of"),
                (Manner::Deposed { .. }, Err(Stopped::Journal(JournalError::Deposed { .. }))) | (_, Ok(())) => {}
                (_, Err(error)) => panic!("seed {seed}, {manner:?}: {error:?}"),
            }
            if let Manner::Late { .. } | Manner::Twice | Manner::Prompt = manner {
                for _ in 0..5_000 {
                    store.poll(Instant::now()).unwrap();
                }
                model.confirm(&store);
                assert_eq!(model.confirmed, model.units.len(), "seed {seed}, {manner:?}");
            }
            drop(store);
            let mut store = open(Box::new(engine.log(Manner::Prompt))).unwrap();
            if let Err(broken) = model.explain(&contents(&mut store)) {
                panic!("seed {seed}, {manner:?}: {broken}");
            }
        }
    }
}
