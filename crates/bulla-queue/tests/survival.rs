//! What survives: the same workload over a disk that stops at every step, in every way a disk can forget; over one that
//! fails at every step or is full from there on; and over a log that answers late, twice, never, or deposed.
//!
//! One rule covers the promises of a queue manager: what is found afterwards is what the first k units of work leave,
//! for some k that is at least the number of units confirmed. So nothing confirmed is lost, nothing is half there,
//! nothing comes back after its removal was confirmed, and order is kept.
//!
//! A failure names the seed and the step. `BULLA_SEED=n` runs that seed alone.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, LogLimits, Position, Read, ReadDone, Replayed};
use bulla_queue::sim::{Fate, Fault, Manner, SimDisk, SimEngine};
use bulla_queue::{
    DefineError, DefinitionUnit, Driver, FileLog, FileLogOptions, FileSpill, Found, JournalError, Keys, Limits, Log,
    Message, MessageId, OpenError, PutError, QueueAttributes, QueueId, ReadError, RemoveError, Replaced, Reserve,
    Store, StoreNumber, Ticket,
};
use fastrand::Rng;

const QUEUES: [&str; 3] = ["ORDERS", "BILLS", "ERRORS"];
/// Notes that the workload changes.
const NOTES: u64 = 5;
/// Objects are told as notes from this number on.
const OBJECTS: u64 = 100;
const OPERATIONS: usize = 130;
/// With seeds above this one messages get other bodies, too.
const REPLACES_ABOVE: u64 = 200;
const SEGMENT_BYTES: u64 = 8 << 10;
/// Not a power of two, so that puts, checkpoints and segments don't march in step.
const CHECKPOINT_BYTES: u64 = 3_000;

/// What a unit of work changes, by queue and message number; notes by their own number.
#[derive(Clone, Debug, Default)]
struct Unit {
    puts: Vec<(usize, u8, u64)>,
    removals: Vec<u64>,
    note: Option<(u64, Option<u64>)>,
    ticket: Option<Ticket>,
}

/// What is on each queue: priority from the highest down, then number; and what each note says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Contents {
    queues: [BTreeSet<(u8, u64)>; 3],
    notes: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Model {
    units: Vec<Unit>,
    confirmed: usize,
    next: u64,
}

impl Model {
    fn unit(&mut self, puts: Vec<(usize, u8, u64)>, removals: Vec<u64>, ticket: Ticket) {
        self.unit_with_note(puts, removals, None, ticket);
    }

    fn unit_with_note(
        &mut self,
        puts: Vec<(usize, u8, u64)>,
        removals: Vec<u64>,
        note: Option<(u64, Option<u64>)>,
        ticket: Ticket,
    ) {
        if ticket != Ticket::NOW {
            self.units.push(Unit { puts, removals, note, ticket: Some(ticket) });
        }
    }

    fn confirm(&mut self, store: &Store) {
        let is_synced = |unit: &Unit| unit.ticket.is_none_or(|ticket| store.is_synced(ticket));
        while self.units.get(self.confirmed).is_some_and(is_synced) {
            self.confirmed += 1;
        }
    }

    /// How many units what is found stands for; fewer than are confirmed, or none at all, is a broken promise.
    fn explain(&self, found: &Contents) -> Result<usize, String> {
        let mut contents = Contents::default();
        for (index, unit) in self.units.iter().enumerate() {
            if index >= self.confirmed && contents == *found {
                return Ok(index);
            }
            for &(queue, priority, number) in &unit.puts {
                contents.queues[queue].insert((9 - priority, number));
            }
            for queue in &mut contents.queues {
                queue.retain(|(_, number)| !unit.removals.contains(number));
            }
            match unit.note {
                Some((note, Some(number))) => contents.notes.insert(note, number),
                Some((note, None)) => contents.notes.remove(&note),
                None => None,
            };
        }
        if contents == *found {
            return Ok(self.units.len());
        }
        Err(format!("{} of {} units are confirmed, and found is {found:?}", self.confirmed, self.units.len()))
    }

    /// What was found is what there is: later units come behind it.
    fn restart(&mut self, units: usize) {
        self.units.truncate(units);
        self.confirmed = units;
        for unit in &mut self.units {
            unit.ticket = None;
        }
    }
}

fn body(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().chain((8..bytes).map(|at| (at as u64 ^ number) as u8)).collect()
}

fn limits() -> Limits {
    Limits {
        memory_bytes_max: 4_000,
        batch_bytes_max: 700,
        reserve_bytes: 6_000,
        checkpoint_bytes: CHECKPOINT_BYTES,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    }
}

fn file_log(disk: &SimDisk) -> Result<FileLog<SimDisk>, LogError> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES / 2,
        driver: Driver::Inline,
        ..FileLogOptions::default()
    };
    FileLog::open(disk.clone(), options)
}

fn open(log: Box<dyn Log>) -> Result<Store, OpenError> {
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).map_err(OpenError::Spill)?;
    Store::open(log, Box::new(spill), limits(), Instant::now())
}

/// Reads everything from a store that has just been opened, checking each body and the order of delivery.
fn contents(store: &mut Store) -> Contents {
    let mut found = Contents::default();
    for (index, name) in QUEUES.iter().enumerate() {
        let Some(queue) = store.queue(name) else { continue };
        let mut after: Option<Found> = None;
        while let Some(next) = store.browse_next(queue, after.as_ref().map(|found| found.place), 0) {
            let bytes = store.body(next.id).unwrap().to_bytes();
            assert_eq!(bytes, body(next.put_at_ms, bytes.len()), "a body is what was put");
            assert!(
                found.queues[index].insert((9 - next.priority, next.put_at_ms)),
                "{} is there twice",
                next.put_at_ms
            );
            if let Some(after) = after {
                assert!((9 - after.priority, after.id) < (9 - next.priority, next.id), "order is kept");
                assert!((9 - after.priority, after.put_at_ms) < (9 - next.priority, next.put_at_ms), "order is kept");
            }
            after = Some(next);
        }
        assert_eq!(store.status(queue).unwrap().depth as usize, found.queues[index].len());
    }
    for (name, value) in store.notes("note") {
        let number = u64::from_le_bytes(*value.first_chunk().unwrap());
        assert_eq!(value, body(number, value.len()), "a note is what was set");
        found.notes.insert(name["note".len()..].parse().unwrap(), number);
    }
    let read = store.read_objects(&mut |name, text| {
        let number = u64::from_le_bytes(*text.first_chunk().unwrap());
        assert_eq!(text, body(number, text.len()), "a definition is what was written");
        found.notes.insert(OBJECTS + name.parse::<u64>().unwrap(), number);
    });
    read.unwrap();
    found
}

/// Why a workload stopped before its end.
#[derive(Debug)]
enum Stopped {
    Journal(JournalError),
    Read,
}

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Log(_) => Stopped::Read,
            error => panic!("{error}"),
        }
    }
}

impl From<JournalError> for Stopped {
    fn from(error: JournalError) -> Self {
        Stopped::Journal(error)
    }
}

/// A full disk is an answer like another; anything else from the journal ends the workload.
fn unless_full<T>(error: JournalError) -> Result<Option<T>, Stopped> {
    if error == JournalError::Full { Ok(None) } else { Err(error.into()) }
}

fn put_result(result: Result<Ticket, PutError>) -> Result<Option<Ticket>, Stopped> {
    match result {
        Ok(ticket) => Ok(Some(ticket)),
        Err(PutError::Journal(error)) => unless_full(error),
        Err(PutError::QueueFull { .. }) => Ok(None),
        Err(error) => panic!("{error}"),
    }
}

fn removal_result(result: Result<Ticket, RemoveError>) -> Result<Option<Ticket>, Stopped> {
    match result {
        Ok(ticket) => Ok(Some(ticket)),
        Err(RemoveError::Journal(error)) => unless_full(error),
        Err(error) => panic!("{error}"),
    }
}

struct Workload<'a> {
    store: &'a mut Store,
    queues: Vec<QueueId>,
    model: &'a mut Model,
    random: Rng,
    locked: Vec<(MessageId, u64)>,
    /// Whether messages get other bodies.
    replaces: bool,
}

/// Puts, gets, units of work, releases, deletions and all the rest, until something stops it.
fn work(store: &mut Store, model: &mut Model, seed: u64, operations: usize) -> Result<(), Stopped> {
    let mut queues = Vec::new();
    for name in QUEUES {
        let attributes = QueueAttributes { max_depth: 40, ..QueueAttributes::default() };
        match store.define(name, attributes) {
            Ok(queue) => queues.push(queue),
            Err(DefineError::Journal(JournalError::Full)) => return Ok(()),
            Err(DefineError::Journal(error)) => return Err(error.into()),
            Err(error) => panic!("{error}"),
        }
    }
    let mut workload = Workload {
        store,
        queues,
        model,
        random: Rng::with_seed(seed),
        locked: Vec::new(),
        replaces: seed > REPLACES_ABOVE,
    };
    for _ in 0..operations {
        workload.operation()?;
        workload.model.confirm(workload.store);
    }
    Ok(())
}

impl Workload<'_> {
    fn message(&mut self) -> (Message, u8, u64) {
        let number = self.model.next;
        self.model.next += 1;
        let priority = self.random.u64(..3) as u8 * 4;
        let bytes = match self.random.u64(..25) {
            0 => 9_500, // longer than a segment
            1 => 1_500, // longer than a batch
            _ => 8 + self.random.u64(..300) as usize,
        };
        let body = body(number, bytes).into();
        let message = Message {
            priority,
            persistent: true,
            expires_at_ms: None,
            available_at_ms: None,
            put_at_ms: number,
            user: None,
            keys: Keys::None,
            body,
        };
        (message, priority, number)
    }

    /// A note's name and its value, or that it goes.
    fn note(&mut self) -> (u64, Option<u64>) {
        let number = self.model.next;
        self.model.next += 1;
        (self.random.u64(..NOTES), Some(number).filter(|_| self.random.u64(..4) > 0))
    }

    /// A unit of work with a note. What is locked for it is unlocked again when it is refused.
    fn commit(
        &mut self,
        puts: Vec<(usize, (Message, u8, u64))>,
        removed: Option<(MessageId, u64)>,
        note: Option<(u64, Option<u64>)>,
    ) -> Result<(), Stopped> {
        let ids: Vec<_> = removed.iter().map(|(id, _)| *id).collect();
        let told = puts.iter().map(|(queue, (_, priority, number))| (*queue, *priority, *number)).collect();
        let puts = puts.into_iter().map(|(queue, (message, ..))| (self.queues[queue], message)).collect();
        let name = note.map(|(note, _)| format!("note{note}"));
        let value = note.and_then(|(_, number)| number).map(|number| body(number, 8 + number as usize % 50));
        let notes: Vec<_> = name.iter().map(|name| (name.as_str(), value.as_deref())).collect();
        match put_result(self.store.commit(puts, &ids, &notes))? {
            Some(ticket) => {
                let removals = removed.iter().map(|(_, number)| *number).collect();
                self.model.unit_with_note(told, removals, note, ticket);
            }
            None => ids.into_iter().for_each(|id| self.store.release(id, false)),
        }
        Ok(())
    }

    /// A unit with an object's definition, or its end. An object is told as a note with a number of its own.
    fn define(&mut self) -> Result<(), Stopped> {
        let (object, value) = self.note();
        let text = value.map(|number| match number % 40 {
            0 => body(number, 9_000), // longer than a segment
            _ => body(number, 8 + number as usize % 200),
        });
        let reserve = if text.is_none() { Reserve::Whole } else { Reserve::Untouched };
        let objects = [(&*object.to_string(), text.as_deref())];
        let unit = DefinitionUnit { objects: &objects, reserve, ..DefinitionUnit::default() };
        match self.store.commit_definitions(&unit) {
            Ok(ticket) => self.model.unit_with_note(vec![], vec![], Some((OBJECTS + object, value)), ticket),
            Err(DefineError::Journal(error)) => drop(unless_full::<()>(error)?),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn lock(&mut self) -> Result<Option<(MessageId, u64)>, Stopped> {
        let queue = self.queues[self.random.u64(..3) as usize];
        let Some(found) = self.store.lock_next(queue, None, 0) else { return Ok(None) };
        let body = match self.store.body(found.id) {
            Err(ReadError::Away { .. }) => {
                self.store.set_aside(found.id);
                return Ok(None);
            }
            body => body?.to_bytes(),
        };
        assert_eq!(body, self::body(found.put_at_ms, body.len()));
        Ok(Some((found.id, found.put_at_ms)))
    }

    fn locked(&mut self) -> Result<Option<(MessageId, u64)>, Stopped> {
        match self.locked.pop() {
            Some(locked) => Ok(Some(locked)),
            None => self.lock(),
        }
    }

    /// A message gets another body at its own place, longer or shorter.
    fn replace(&mut self, queue: usize) -> Result<(), Stopped> {
        let lying: Vec<_> = self.store.lying(self.queues[queue], None).collect();
        if lying.is_empty() {
            return Ok(());
        }
        let (found, is_free) = &lying[self.random.usize(..lying.len())];
        let bytes = if self.random.u64(..20) == 0 { 9_500 } else { 8 + self.random.u64(..300) as usize };
        match self.store.replace(found.id, body(found.put_at_ms, bytes).into(), &Keys::None) {
            Ok(done) => assert!(*is_free || done == Replaced::Busy),
            Err(PutError::Journal(error)) => drop(unless_full::<()>(error)?),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<(), Stopped> {
        let to = self.random.u64(..3) as usize;
        match self.random.u64(..23) {
            0..=5 => {
                let (message, priority, number) = self.message();
                if let Some(ticket) = put_result(self.store.put(self.queues[to], message))? {
                    self.model.unit(vec![(to, priority, number)], vec![], ticket);
                }
            }
            6 => {
                let (message, ..) = self.message();
                put_result(self.store.put(self.queues[to], Message { persistent: false, ..message }))?;
            }
            7 => {
                let locked = self.lock()?;
                self.locked.extend(locked);
            }
            8..=10 => {
                if let Some((id, number)) = self.locked()? {
                    match removal_result(self.store.acknowledge(id))? {
                        Some(ticket) => self.model.unit(vec![], vec![number], ticket),
                        None => self.store.release(id, true),
                    }
                }
            }
            11 => {
                if let Some((id, _)) = self.locked()? {
                    self.store.release(id, self.random.u64(..2) == 0);
                }
            }
            12 => {
                if let Some((id, number)) = self.lock()? {
                    let (message, priority, replacement) = self.message();
                    match put_result(self.store.transfer(id, self.queues[to], message))? {
                        Some(ticket) => self.model.unit(vec![(to, priority, replacement)], vec![number], ticket),
                        None => self.store.release(id, false),
                    }
                }
            }
            13 => {
                let (first, second) = (self.message(), self.message());
                let removed = self.lock()?;
                let other = self.random.u64(..3) as usize;
                let note = Some(self.note()).filter(|_| self.random.u64(..2) == 0);
                self.commit(vec![(to, first), (other, second)], removed, note)?;
            }
            14 if self.random.u64(..8) == 0 => {
                // A queue with everything on it goes and comes back empty.
                let numbers: Vec<_> = self.model.units.iter().flat_map(|unit| &unit.puts).cloned().collect();
                let numbers = numbers.into_iter().filter(|(queue, ..)| *queue == to).map(|(.., number)| number);
                let numbers: Vec<_> = numbers.collect();
                self.locked.retain(|(_, number)| !numbers.contains(number));
                let locked = std::mem::take(&mut self.locked);
                for (id, _) in locked {
                    self.store.release(id, false);
                }
                match self.store.delete(self.queues[to], true) {
                    Ok(ticket) => self.model.unit(vec![], numbers, ticket),
                    Err(DefineError::Journal(error)) => return unless_full(error).map(|_: Option<()>| ()),
                    Err(error) => panic!("{error}"),
                }
                match self.store.define(QUEUES[to], QueueAttributes::default()) {
                    Ok(queue) => self.queues[to] = queue,
                    Err(DefineError::Journal(JournalError::Full)) => {
                        self.queues[to] = QueueId::new(StoreNumber::LOCAL, u32::MAX);
                        return Err(JournalError::Full.into());
                    }
                    Err(DefineError::Journal(error)) => return Err(error.into()),
                    Err(error) => panic!("{error}"),
                }
            }
            14 | 15 => self.store.poll(Instant::now())?,
            16 if self.replaces => self.replace(to)?,
            20 => {
                let note = self.note();
                self.commit(vec![], None, Some(note))?;
            }
            22 => self.define()?,
            21 => {
                let removed = self.lock()?;
                let note = self.note();
                self.commit(vec![], removed, Some(note))?;
            }
            _ => self.store.flush(Instant::now())?,
        }
        Ok(())
    }
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
