//! The log of a group in an engine on other machines, and the network between it and the members: as
//! `bulla_shared::JetStreamLog` behaves, without an engine.
//!
//! What lies in the log is a [`SimEngine`]'s. Here is what comes between: requests and answers that take time, are lost
//! and come twice, also after their sender has died; members that are cut off, or stand still while their requests
//! arrive; an engine without a majority; claims that enter and are not answered. The rule by which an owner sends is
//! the program's own ([`Ownership`]), and so are its times.

use crate::clock::Clock;
use bulla_queue::Log;
use bulla_queue::log::{Batch, Claim, Epoch, Event, LogError, LogLimits, Position, Read, ReadDone, Replayed, Survives};
use bulla_queue::sim::{Manner, SimEngine, SimLog};
use bulla_shared::{
    LOOK_EVERY, OWNER_ABSENT_FOR, OWNER_ANSWERS_WITHIN, OWNER_FINDS_ENGINE_WITHIN, Ownership, SENDS_AFTER,
};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a request or an answer is under way: as a rule, and rarely.
const USUAL_US: u64 = 3_000;
const SLOW_US: u64 = 900_000;
/// One of so many requests and answers is slow, one is lost, one comes twice, one claim is not answered.
const SLOW_ONE_IN: u32 = 64;
const LOST_ONE_IN: u32 = 64;
const TWICE_ONE_IN: u32 = 16;
const UNANSWERED_CLAIM_ONE_IN: u32 = 8;
/// When a batch is sent again that had no answer, at the most.
const AGAIN_US: u64 = 2_000_000;
/// Bytes of a batch.
const BATCH_BYTES_MAX: u64 = 4 << 10;

/// A member's machine, by its place.
pub(super) type Place = usize;

/// The engine, and the network that leads there. Clones are the same one.
#[derive(Clone)]
pub(super) struct Network(Arc<Mutex<Inside>>);

struct Inside {
    engine: SimEngine,
    clock: Clock,
    began: Instant,
    random: Rng,
    machines: Vec<Machine>,
    /// The ends of logs that are open, by a number that is never used again.
    ends: BTreeMap<u64, End>,
    last_end: u64,
    packets: Vec<Packet>,
    has_majority: bool,
    /// The machine whose claim was the last, and when it may send.
    owner: Option<(Place, Duration)>,
    counts: Counts,
}

/// What a network saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Claims that succeeded.
    pub(super) claims: u64,
    /// Batches of a deposed owner that the engine refused.
    pub(super) refused: u64,
    /// Copies of batches that were there.
    pub(super) copies: u64,
}

struct Machine {
    /// Nothing leaves it for the engine or comes from there.
    is_cut: bool,
    /// Nor does its process answer the other members.
    is_alone: bool,
    /// Its processes stand still.
    is_paused: bool,
    /// Something came for its queue manager.
    is_rung: bool,
}

/// What a log's own thread knows.
struct End {
    place: Place,
    ownership: Option<Ownership>,
    deposed_by: Option<Epoch>,
    flight: Option<Flight>,
    told: Vec<(Event, Option<Batch>)>,
    /// A batch had to be sent again.
    in_trouble: bool,
    looked: Duration,
    /// Since when its questions to the owner have had no answer.
    unheard_since: Option<Instant>,
}

/// A batch under way.
struct Flight {
    batch: Batch,
    first: Duration,
    again: Instant,
}

/// Something under way.
struct Packet {
    due: Instant,
    end: u64,
    place: Place,
    what: What,
}

enum What {
    Append { epoch: Epoch, batch: Batch },
    Look { epoch: Epoch, began: Duration },
    Appended { at: u64, told: Result<Position, Epoch> },
    Looked { began: Duration, told: Result<(), Epoch> },
}

fn copy(batch: &Batch) -> Batch {
    Batch { at: batch.at, head: batch.head.clone(), body: batch.body.clone(), patient: batch.patient }
}

fn unavailable() -> LogError {
    LogError::Unavailable(io::Error::other("the engine does not answer"))
}

impl Network {
    pub(super) fn new(clock: &Clock, machines: usize, seed: u64) -> Self {
        let machine = |_| Machine { is_cut: false, is_alone: false, is_paused: false, is_rung: false };
        Self(Arc::new(Mutex::new(Inside {
            engine: SimEngine::default(),
            clock: clock.clone(),
            began: clock.now(),
            random: Rng::with_seed(seed),
            machines: (0..machines).map(machine).collect(),
            ends: BTreeMap::new(),
            last_end: 0,
            packets: Vec::new(),
            has_majority: true,
            owner: None,
            counts: Counts::default(),
        })))
    }

    fn hold(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a machine with the log.
    pub(super) fn open(&self, place: Place, name: &str) -> Result<SharedLog, LogError> {
        let inside = &mut *self.hold();
        if !inside.is_reached_by(place) {
            return Err(unavailable());
        }
        inside.last_end += 1;
        let end = End {
            place,
            ownership: None,
            deposed_by: None,
            flight: None,
            told: Vec::new(),
            in_trouble: false,
            looked: Duration::ZERO,
            unheard_since: None,
        };
        inside.ends.insert(inside.last_end, end);
        let log = inside.engine.log(Manner::Prompt);
        let (network, end) = (self.clone(), inside.last_end);
        Ok(SharedLog { network, end, place, name: name.to_owned(), log, known: None, reads: Vec::new() })
    }

    /// Nothing comes from a machine to the engine or back from now on; where `is_alone`, none of the members reaches
    /// it, either.
    pub(super) fn cut(&self, place: Place, is_alone: bool) {
        let machine = &mut self.hold().machines[place];
        (machine.is_cut, machine.is_alone) = (true, is_alone);
    }

    /// A machine is connected with all others.
    pub(super) fn mend(&self, place: Place) {
        let machine = &mut self.hold().machines[place];
        (machine.is_cut, machine.is_alone) = (false, false);
    }

    /// A machine's processes stand still, or go on.
    pub(super) fn pause(&self, place: Place, is_paused: bool) {
        self.hold().machines[place].is_paused = is_paused;
    }

    /// The engine has a majority of its servers, or has none and answers nothing.
    pub(super) fn set_majority(&self, has: bool) {
        self.hold().has_majority = has;
    }

    /// All that a machine's processes had is gone; what they have sent is under way.
    pub(super) fn died(&self, place: Place) {
        let inside = &mut *self.hold();
        inside.ends.retain(|_, end| end.place != place);
    }

    /// The machine that claimed last, and the epoch: whatever it thinks itself.
    pub(super) fn owner(&self) -> Option<(Place, Epoch)> {
        let inside = self.hold();
        inside.owner.zip(inside.engine.owner()).map(|((place, _), (_, epoch))| (place, epoch))
    }

    /// Whether the owner may send by now: no other one may.
    pub(super) fn may_owner_send(&self) -> bool {
        let inside = self.hold();
        inside.owner.is_some_and(|(_, from)| inside.uptime() >= from)
    }

    /// Whether something came for a machine's queue manager since this was asked last.
    pub(super) fn is_rung(&self, place: Place) -> bool {
        std::mem::take(&mut self.hold().machines[place].is_rung)
    }

    pub(super) fn counts(&self) -> Counts {
        self.hold().counts
    }

    /// What is due arrives, and the logs' threads do what they do.
    pub(super) fn go_on(&self) {
        self.hold().go_on();
    }
}

impl Inside {
    fn uptime(&self) -> Duration {
        self.clock.since(self.began)
    }

    fn is_reached_by(&self, place: Place) -> bool {
        self.has_majority && !self.machines[place].is_cut
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.u32(..count) == 0
    }

    fn send(&mut self, end: u64, place: Place, what: What) {
        if self.one_in(LOST_ONE_IN) {
            return;
        }
        let us = if self.one_in(SLOW_ONE_IN) { SLOW_US } else { USUAL_US };
        let due = self.clock.now() + Duration::from_micros(self.random.u64(..us));
        self.packets.push(Packet { due, end, place, what });
    }

    /// A batch goes out, and perhaps a second copy of it.
    fn send_batch(&mut self, end: u64) {
        let times = if self.one_in(TWICE_ONE_IN) { 2 } else { 1 };
        for _ in 0..times {
            let Some(End { place, ownership: Some(ownership), flight: Some(flight), .. }) = self.ends.get(&end) else {
                return;
            };
            let (place, epoch, batch) = (*place, Epoch(ownership.epoch), copy(&flight.batch));
            self.send(end, place, What::Append { epoch, batch });
        }
    }

    fn go_on(&mut self) {
        let now = self.clock.now();
        let is_due = |machines: &[Machine], packet: &Packet| {
            let is_answer = matches!(packet.what, What::Appended { .. } | What::Looked { .. });
            packet.due <= now && !(is_answer && machines[packet.place].is_paused)
        };
        let machines = &self.machines;
        let mut due: Vec<Packet> = self.packets.extract_if(.., |packet| is_due(machines, packet)).collect();
        due.sort_by_key(|packet| packet.due);
        due.into_iter().for_each(|packet| self.arrives(packet));
        let awake = |end: &End| !self.machines[end.place].is_paused;
        let ends: Vec<u64> = self.ends.iter().filter(|(_, end)| awake(end)).map(|(number, _)| *number).collect();
        ends.into_iter().for_each(|end| self.tend(end, now));
    }

    /// A log's thread sends again what had no answer, and looks whether it is the owner still.
    fn tend(&mut self, number: u64, now: Instant) {
        let uptime = self.uptime();
        let again = now + Duration::from_micros(self.random.u64(20_000..AGAIN_US));
        let Some(end) = self.ends.get_mut(&number) else { return };
        let Some(ownership) = end.ownership else { return };
        if let Some(flight) = &mut end.flight {
            if flight.again <= now {
                (flight.again, end.in_trouble) = (again, true);
                self.send_batch(number);
            }
            return;
        }
        if uptime >= end.looked.max(ownership.shown) + LOOK_EVERY {
            end.looked = uptime;
            let (place, epoch) = (end.place, Epoch(ownership.epoch));
            self.send(number, place, What::Look { epoch, began: uptime });
        }
    }

    fn arrives(&mut self, Packet { end, place, what, .. }: Packet) {
        if self.machines[place].is_cut {
            return;
        }
        match what {
            What::Append { .. } | What::Look { .. } if !self.has_majority => {}
            What::Append { epoch, batch } => {
                let (at, before) = (batch.at, self.engine.bytes());
                let told = self.engine.append(epoch, batch);
                match &told {
                    Err(_) => self.counts.refused += 1,
                    Ok(_) if self.engine.bytes() == before => self.counts.copies += 1,
                    Ok(_) => {}
                }
                self.send(end, place, What::Appended { at, told });
            }
            What::Look { epoch, began } => {
                let last = self.engine.owner().map(|(_, last)| last);
                let told = last.filter(|last| *last != epoch).map_or(Ok(()), Err);
                self.send(end, place, What::Looked { began, told });
            }
            What::Appended { at, told } => self.is_answered(end, at, told),
            What::Looked { began, told } => {
                let Some(of) = self.ends.get_mut(&end) else { return };
                match told {
                    Ok(()) => {
                        if let Some(ownership) = &mut of.ownership {
                            ownership.shown = ownership.shown.max(began);
                        }
                        self.machines[place].is_rung = true;
                    }
                    Err(by) => self.is_deposed(end, by),
                }
            }
        }
    }

    fn is_answered(&mut self, number: u64, at: u64, told: Result<Position, Epoch>) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        let Some(flight) = end.flight.take_if(|flight| flight.batch.at == at) else { return };
        match told {
            Ok(position) => {
                // A later copy is confirmed though another owner may have claimed since the first one.
                if let Some(ownership) = &mut end.ownership {
                    ownership.shown = ownership.shown.max(flight.first);
                }
                end.in_trouble = false;
                end.told.push((Event::Synced(position), Some(flight.batch)));
                self.machines[end.place].is_rung = true;
            }
            Err(by) => self.is_deposed(number, by),
        }
    }

    fn is_deposed(&mut self, number: u64, by: Epoch) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        if end.deposed_by.is_none() {
            (end.ownership, end.flight, end.deposed_by, end.in_trouble) = (None, None, Some(by), false);
            end.told.push((Event::Deposed { by }, None));
            self.machines[end.place].is_rung = true;
        }
    }

    /// Whether another owner with that epoch answers who asks now, or may still.
    fn is_present(&mut self, asker: u64, epoch: Epoch) -> bool {
        let now = self.clock.now();
        let owner = self.ends.iter().find(|(number, end)| {
            **number != asker && end.ownership.is_some_and(|ownership| ownership.epoch >= epoch.0)
        });
        let machine = owner.map(|(_, end)| &self.machines[end.place]);
        let patience = match machine {
            Some(machine) if machine.is_paused || machine.is_alone => OWNER_ANSWERS_WITHIN,
            // Its process answers, and is to turn to another server of the engine.
            Some(machine) if machine.is_cut => OWNER_FINDS_ENGINE_WITHIN,
            Some(_) => Duration::MAX,
            None => OWNER_ABSENT_FOR,
        };
        let Some(end) = self.ends.get_mut(&asker) else { return true };
        if patience == Duration::MAX {
            end.unheard_since = None;
            return true;
        }
        now.saturating_duration_since(*end.unheard_since.get_or_insert(now)) < patience
    }
}

/// One end of the log, at a member. Of the log's own thread, which waits for the network, nothing is simulated but what
/// that thread does.
pub(super) struct SharedLog {
    network: Network,
    end: u64,
    place: Place,
    name: String,
    log: SimLog,
    /// Whose claim was read last.
    known: Option<(String, Epoch)>,
    /// Reads that are not answered yet, and when they are.
    reads: Vec<(Instant, Read)>,
}

impl Log for SharedLog {
    fn claim(&mut self, now: Instant, how: Claim) -> Result<(Epoch, Position), LogError> {
        let inside = &mut *self.network.hold();
        if !inside.is_reached_by(self.place) {
            return Err(unavailable());
        }
        let latest = inside.engine.owner().map_or(Epoch(0), |(_, epoch)| epoch);
        let asks = match how {
            Claim::IfFree => latest != Epoch(0),
            Claim::After(gone) => gone != latest,
            Claim::Force => false,
        };
        if asks && inside.is_present(self.end, latest) {
            return Err(LogError::Owned { epoch: Some(latest) });
        }
        let follows_none = latest == Epoch(0) || how == Claim::After(latest);
        if inside.one_in(2) {
            // The owner has gone on writing since its log was read here.
            let is_batch = |packet: &mut Packet| matches!(packet.what, What::Append { .. });
            let under_way: Vec<Packet> = inside.packets.extract_if(.., is_batch).collect();
            under_way.into_iter().for_each(|packet| inside.arrives(packet));
        }
        let (epoch, position) = inside.engine.claim(&self.name);
        let shown = inside.uptime();
        let sends_from = if follows_none { shown } else { shown + SENDS_AFTER };
        inside.owner = Some((self.place, sends_from));
        inside.counts.claims += 1;
        if inside.one_in(UNANSWERED_CLAIM_ONE_IN) {
            return Err(unavailable());
        }
        let Some(end) = inside.ends.get_mut(&self.end) else { return Err(unavailable()) };
        end.unheard_since = None;
        end.ownership = Some(Ownership { epoch: epoch.0, fence: epoch.0, last: epoch.0, sends_from, shown });
        debug_assert!(inside.clock.now() == now);
        self.known = Some((self.name.clone(), epoch));
        Ok((epoch, position))
    }

    fn start(&self) -> Position {
        self.log.start()
    }

    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        let inside = self.network.hold();
        if !inside.is_reached_by(self.place) {
            return Err(unavailable());
        }
        self.known = inside.engine.owner();
        drop(inside);
        self.log.replay(from, each)
    }

    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        let inside = &mut *self.network.hold();
        let (first, now) = (inside.uptime(), inside.clock.now());
        let again = now + Duration::from_micros(inside.random.u64(20_000..AGAIN_US));
        let Some(end) = inside.ends.get_mut(&self.end) else { return Err((batch, unavailable())) };
        if end.ownership.is_none() {
            return Err((batch, LogError::Owned { epoch: end.deposed_by }));
        }
        if end.flight.is_some() {
            return Err((batch, LogError::Busy));
        }
        end.flight = Some(Flight { batch, first, again });
        inside.send_batch(self.end);
        Ok(())
    }

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>, spare: &mut Vec<Batch>) -> Result<(), LogError> {
        let inside = &mut *self.network.hold();
        let Some(end) = inside.ends.get_mut(&self.end) else { return Err(unavailable()) };
        for (event, batch) in end.told.drain(..) {
            events.push(event);
            spare.extend(batch);
        }
        if end.in_trouble { Err(unavailable()) } else { Ok(()) }
    }

    fn settle(&mut self) {
        let inside = &mut *self.network.hold();
        if !inside.is_reached_by(self.place) {
            return;
        }
        let Some(End { ownership: Some(ownership), flight: Some(flight), .. }) = inside.ends.get(&self.end) else {
            return;
        };
        let (epoch, batch) = (Epoch(ownership.epoch), copy(&flight.batch));
        let at = batch.at;
        let told = inside.engine.append(epoch, batch);
        inside.is_answered(self.end, at, told);
    }

    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        let inside = &mut *self.network.hold();
        let due = inside.clock.now() + Duration::from_micros(inside.random.u64(..USUAL_US));
        self.reads.push((due, read));
        Ok(None)
    }

    fn poll_reads(&mut self, now: Instant, done: &mut Vec<ReadDone>) {
        if !self.network.hold().is_reached_by(self.place) {
            return;
        }
        let due: Vec<Read> = self.reads.extract_if(.., |(due, _)| *due <= now).map(|(_, read)| read).collect();
        for Read { number, at, bytes } in due {
            let mut read = Vec::new();
            let answer = self.log.read_now(at, bytes, &mut read).map(|()| read);
            done.push(ReadDone { number, bytes: answer });
        }
    }

    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        if !self.network.hold().is_reached_by(self.place) {
            return Err(unavailable());
        }
        self.log.read_now(at, bytes, into)
    }

    fn release(&mut self, before: Position) -> Result<(), LogError> {
        self.log.release(before)
    }

    fn space(&self) -> u64 {
        u64::MAX
    }

    fn reserve(&mut self, _batch_bytes: u64, _besides: u64) -> Result<(), LogError> {
        Ok(())
    }

    fn limits(&self) -> LogLimits {
        LogLimits { batches_in_flight_max: 1, batch_bytes_max: BATCH_BYTES_MAX, survives: Survives::MinorityPower }
    }

    fn owner(&self) -> Option<(String, Epoch)> {
        self.known.clone()
    }

    fn is_surely_owned(&self) -> bool {
        let inside = self.network.hold();
        let ownership = inside.ends.get(&self.end).and_then(|end| end.ownership);
        ownership.is_some_and(|ownership| ownership.is_sure(inside.uptime()))
    }
}

impl Drop for SharedLog {
    fn drop(&mut self) {
        self.network.hold().ends.remove(&self.end);
    }
}
