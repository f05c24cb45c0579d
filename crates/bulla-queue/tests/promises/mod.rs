//! What a store promises, as a model, and the work that puts it to the test, on any log.
//!
//! What is found afterwards is what the first k units of work leave, for some k that is at least the number of units
//! confirmed.

#![allow(dead_code, reason = "each test program uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bulla_queue::sim::SimDisk;
use bulla_queue::{
    DefineError, DefinitionUnit, FileSpill, Found, JournalError, Keys, Limits, Log, Message, MessageId, OpenError,
    PutError, QueueAttributes, QueueId, ReadError, RemoveError, Replaced, Reserve, Store, StoreNumber, Ticket,
};
use fastrand::Rng;

pub(crate) const QUEUES: [&str; 3] = ["ORDERS", "BILLS", "ERRORS"];
/// Notes that the workload changes.
const NOTES: u64 = 5;
/// Objects are told as notes from this number on.
pub(crate) const OBJECTS: u64 = 100;
pub(crate) const OPERATIONS: usize = 130;
/// With seeds above this one messages get other bodies, too.
pub(crate) const REPLACES_ABOVE: u64 = 200;
pub(crate) const SEGMENT_BYTES: u64 = 8 << 10;
/// Not a power of two, so that puts, checkpoints and segments don't march in step.
const CHECKPOINT_BYTES: u64 = 3_000;

/// What a unit of work changes, by queue and message number; notes by their own number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    puts: Vec<(usize, u8, u64)>,
    removals: Vec<u64>,
    note: Option<(u64, Option<u64>)>,
    ticket: Option<Ticket>,
}

/// What is on each queue: priority from the highest down, then number; and what each note says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Contents {
    queues: [BTreeSet<(u8, u64)>; 3],
    notes: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) units: Vec<Unit>,
    pub(crate) confirmed: usize,
    pub(crate) next: u64,
}

impl Model {
    pub(crate) fn unit(&mut self, puts: Vec<(usize, u8, u64)>, removals: Vec<u64>, ticket: Ticket) {
        self.unit_with_note(puts, removals, None, ticket);
    }

    pub(crate) fn unit_with_note(
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

    pub(crate) fn confirm(&mut self, store: &Store) {
        let is_synced = |unit: &Unit| unit.ticket.is_none_or(|ticket| store.is_synced(ticket));
        while self.units.get(self.confirmed).is_some_and(is_synced) {
            self.confirmed += 1;
        }
    }

    /// How many units what is found stands for; fewer than are confirmed, or none at all, is a broken promise.
    pub(crate) fn explain(&self, found: &Contents) -> Result<usize, String> {
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
    pub(crate) fn restart(&mut self, units: usize) {
        self.units.truncate(units);
        self.confirmed = units;
        for unit in &mut self.units {
            unit.ticket = None;
        }
    }
}

pub(crate) fn body(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().chain((8..bytes).map(|at| (at as u64 ^ number) as u8)).collect()
}

pub(crate) fn limits() -> Limits {
    Limits {
        memory_bytes_max: 4_000,
        batch_bytes_max: 700,
        reserve_bytes: 6_000,
        checkpoint_bytes: CHECKPOINT_BYTES,
        log_bytes_min: 3 * SEGMENT_BYTES,
        ..Limits::default()
    }
}

pub(crate) fn open(log: Box<dyn Log>) -> Result<Store, OpenError> {
    let spill = FileSpill::open(SimDisk::default(), 1 << 20).map_err(OpenError::Spill)?;
    Store::open(log, Box::new(spill), limits(), Instant::now())
}

/// Reads everything from a store that has just been opened, checking each body and the order of delivery.
pub(crate) fn contents(store: &mut Store) -> Contents {
    let mut found = Contents::default();
    for (index, name) in QUEUES.iter().enumerate() {
        let Some(queue) = store.queue(name) else { continue };
        let mut after: Option<Found> = None;
        while let Some(next) = store.browse_next(queue, after.as_ref().map(|found| found.place), 0) {
            let bytes = store.body_now(next.id).unwrap().to_bytes();
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
pub(crate) enum Stopped {
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

pub(crate) struct Workload<'a> {
    pub(crate) store: &'a mut Store,
    queues: Vec<QueueId>,
    pub(crate) model: &'a mut Model,
    random: Rng,
    locked: Vec<(MessageId, u64)>,
    /// Whether messages get other bodies.
    replaces: bool,
}

/// Puts, gets, units of work, releases, deletions and all the rest, until something stops it.
pub(crate) fn work(store: &mut Store, model: &mut Model, seed: u64, operations: usize) -> Result<(), Stopped> {
    let Some(mut workload) = Workload::begin(store, model, seed)? else { return Ok(()) };
    for _ in 0..operations {
        workload.operation()?;
    }
    Ok(())
}

impl<'a> Workload<'a> {
    /// Its queues are there. `None` where there is no room for them.
    pub(crate) fn begin(store: &'a mut Store, model: &'a mut Model, seed: u64) -> Result<Option<Self>, Stopped> {
        let mut queues = Vec::new();
        for name in QUEUES {
            let attributes = QueueAttributes { max_depth: 40, ..QueueAttributes::default() };
            match store.define(name, attributes) {
                Ok(queue) => queues.push(queue),
                Err(DefineError::Journal(JournalError::Full)) => return Ok(None),
                Err(DefineError::Journal(error)) => return Err(error.into()),
                Err(error) => panic!("{error}"),
            }
        }
        let (random, replaces) = (Rng::with_seed(seed), seed > REPLACES_ABOVE);
        Ok(Some(Workload { store, queues, model, random, locked: Vec::new(), replaces }))
    }
}

impl Workload<'_> {
    /// Does one thing, and learns what was confirmed.
    pub(crate) fn operation(&mut self) -> Result<(), Stopped> {
        self.operate()?;
        self.model.confirm(self.store);
        Ok(())
    }

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

    fn operate(&mut self) -> Result<(), Stopped> {
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
