//! A log in memory that behaves like an engine on other machines: it answers when it likes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::log::{Batch, Claim, Epoch, Event, Log, LogError, LogLimits, Position, Read, ReadDone, Replayed, Survives};
use crate::record::BATCH_HEADER_BYTES;

/// Reads that a late engine takes at once: few, so that the limit is met.
const READS_IN_FLIGHT_MAX: usize = 8;

/// How an engine answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    /// At the next poll.
    Prompt,
    /// Only at the `polls`-th poll after a batch or a read came.
    Late {
        /// How many polls it takes.
        polls: u32,
    },
    /// At the next poll, and again at the one after that.
    Twice,
    /// Not any more once it has `batches`.
    Never {
        /// How many it takes before.
        batches: u64,
    },
    /// That another owner came, once it has `batches`.
    Deposed {
        /// How many it takes before.
        batches: u64,
    },
}

/// What survives the owner of a [`SimLog`]. Clones are the same engine.
#[derive(Clone, Debug, Default)]
pub struct SimEngine(Arc<Mutex<Engine>>);

#[derive(Debug, Default)]
struct Engine {
    epoch: u64,
    /// Who claimed last, where that was said.
    owner: String,
    start: u64,
    end: u64,
    batches: VecDeque<Batch>,
    /// Identities of all batches that have entered: the owner's epoch, and the position.
    entered: BTreeSet<(u64, u64)>,
    /// No owner can see whether there is another one.
    looks_unanswered: bool,
}

impl SimEngine {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A log on this engine, which becomes the owner when it claims.
    #[must_use]
    pub fn log(&self, manner: Manner) -> SimLog {
        SimLog {
            engine: self.clone(),
            manner,
            epoch: 0,
            taken: 0,
            under_way: VecDeque::new(),
            reads: VecDeque::new(),
            again: None,
        }
    }

    /// Whether the owner is answered when it looks whether there is another one. It is, where nothing is said.
    pub fn answer_looks(&self, answers: bool) {
        self.engine().looks_unanswered = !answers;
    }

    /// A claimant of that name becomes the owner, also where there is one. Returns the new epoch and the end of the
    /// log.
    pub fn claim(&self, owner: &str) -> (Epoch, Position) {
        let mut engine = self.engine();
        engine.epoch += 1;
        owner.clone_into(&mut engine.owner);
        (Epoch(engine.epoch), Position(engine.end))
    }

    /// The name and the epoch of the last claimant; none before the first claim.
    #[must_use]
    pub fn owner(&self) -> Option<(String, Epoch)> {
        let engine = self.engine();
        (engine.epoch > 0).then(|| (engine.owner.clone(), Epoch(engine.epoch)))
    }

    /// A batch of an owner arrives: says where the log ends behind it. One that was there before changes nothing and is
    /// told the same, also where another owner came since: so does an engine that knows batches by their identity.
    ///
    /// # Errors
    /// The epoch of the owner that it is refused for.
    ///
    /// # Panics
    /// Where an owner leaves a gap, or writes over what is there.
    pub fn append(&self, epoch: Epoch, batch: Batch) -> Result<Position, Epoch> {
        let mut engine = self.engine();
        if engine.entered.contains(&(epoch.0, batch.at)) {
            return Ok(batch.end());
        }
        if epoch.0 != engine.epoch {
            return Err(Epoch(engine.epoch));
        }
        assert_eq!(batch.at, engine.end, "a batch of owner {} came where the log does not end", epoch.0);
        engine.entered.insert((epoch.0, batch.at));
        engine.enter(batch);
        Ok(Position(engine.end))
    }

    /// Bytes of all batches that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.engine().batches.iter().map(Batch::bytes).sum()
    }
}

/// An owner's end of a [`SimEngine`].
#[derive(Debug)]
pub struct SimLog {
    engine: SimEngine,
    manner: Manner,
    epoch: u64,
    taken: u64,
    /// Batches not yet in the engine, with the polls they have seen.
    under_way: VecDeque<(Batch, u32)>,
    /// Reads that are not answered yet, with the polls they have seen.
    reads: VecDeque<(Read, u32)>,
    again: Option<Position>,
}

impl SimLog {
    /// The owner dies: the first `entered` of the batches under way are in the engine nevertheless.
    pub fn die(mut self, entered: usize) {
        let mut engine = self.engine.engine();
        for (batch, _) in self.under_way.drain(..).take(entered) {
            engine.enter(batch);
        }
    }

    /// Batches under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

impl Engine {
    fn enter(&mut self, batch: Batch) {
        debug_assert_eq!(batch.at, self.end, "batches leave no gap");
        self.end = batch.end().0;
        self.batches.push_back(batch);
    }
}

impl Log for SimLog {
    fn claim(&mut self, _now: Instant, _how: Claim) -> Result<(Epoch, Position), LogError> {
        let mut engine = self.engine.engine();
        engine.epoch += 1;
        self.epoch = engine.epoch;
        Ok((Epoch(engine.epoch), Position(engine.end)))
    }

    fn start(&self) -> Position {
        Position(self.engine.engine().start)
    }

    fn replay(&mut self, from: Option<Position>, each: &mut dyn FnMut(Replayed<'_>)) -> Result<Position, LogError> {
        let engine = self.engine.engine();
        let from = from.unwrap_or(Position(engine.start));
        if from.0 < engine.start || from.0 > engine.end {
            return Err(LogError::Released { from });
        }
        for batch in engine.batches.iter().filter(|batch| batch.at >= from.0) {
            each(Replayed {
                at: Position(batch.at),
                head: batch.head.get(BATCH_HEADER_BYTES..).unwrap_or_default(),
                bodies_at: Position(batch.at + batch.head.len() as u64),
                bodies_bytes: batch.body.len() as u64,
            });
        }
        Ok(Position(engine.end))
    }

    fn submit(&mut self, batch: Batch) -> Result<(), (Batch, LogError)> {
        if self.under_way.len() >= self.limits().batches_in_flight_max {
            return Err((batch, LogError::Busy));
        }
        self.under_way.push_back((batch, 0));
        Ok(())
    }

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>, _spare: &mut Vec<Batch>) -> Result<(), LogError> {
        let mut engine = self.engine.engine();
        if let Manner::Deposed { batches } = self.manner
            && self.taken >= batches
            && engine.epoch == self.epoch
        {
            engine.epoch += 1;
        }
        if engine.epoch != self.epoch {
            events.push(Event::Deposed { by: Epoch(engine.epoch) });
            return Ok(());
        }
        events.extend(self.again.take().map(Event::Synced));
        for (_, polls) in &mut self.under_way {
            *polls += 1;
        }
        let needed = match self.manner {
            Manner::Late { polls } => polls,
            Manner::Never { batches } if self.taken >= batches => return Ok(()),
            _ => 1,
        };
        while self.under_way.front().is_some_and(|(_, polls)| *polls >= needed) {
            let Some((batch, _)) = self.under_way.pop_front() else { break };
            engine.enter(batch);
            self.taken += 1;
            events.push(Event::Synced(Position(engine.end)));
            if self.manner == Manner::Twice {
                self.again = Some(Position(engine.end));
            }
        }
        Ok(())
    }

    fn settle(&mut self) {}

    fn read(&mut self, read: Read) -> Result<Option<Vec<u8>>, LogError> {
        if !matches!(self.manner, Manner::Late { .. }) {
            let mut bytes = Vec::new();
            return self.read_now(read.at, read.bytes, &mut bytes).map(|()| Some(bytes));
        }
        if self.reads.len() == READS_IN_FLIGHT_MAX {
            return Err(LogError::Busy);
        }
        self.reads.push_back((read, 0));
        Ok(None)
    }

    fn poll_reads(&mut self, _now: Instant, done: &mut Vec<ReadDone>) {
        let Manner::Late { polls: needed } = self.manner else { return };
        for (_, polls) in &mut self.reads {
            *polls += 1;
        }
        while let Some((Read { number, at, bytes }, _)) = self.reads.pop_front_if(|(_, polls)| *polls >= needed) {
            let mut read = Vec::new();
            let answer = self.read_now(at, bytes, &mut read).map(|()| read);
            done.push(ReadDone { number, bytes: answer });
        }
    }

    fn read_now(&mut self, at: Position, bytes: usize, into: &mut Vec<u8>) -> Result<(), LogError> {
        let engine = self.engine.engine();
        let missing = || LogError::Damaged { at, reason: "no batch has this position".to_owned() };
        let index = engine.batches.partition_point(|batch| batch.at <= at.0).checked_sub(1).ok_or_else(missing)?;
        let batch = engine.batches.get(index).ok_or_else(missing)?;
        let offset = usize::try_from(at.0 - batch.at).ok().and_then(|offset| offset.checked_sub(batch.head.len()));
        let body = offset.and_then(|from| batch.body.get(from..from.checked_add(bytes)?));
        into.clear();
        into.extend_from_slice(body.ok_or_else(missing)?);
        Ok(())
    }

    fn release(&mut self, before: Position) -> Result<(), LogError> {
        let mut engine = self.engine.engine();
        while engine.batches.front().is_some_and(|batch| batch.end() <= before) {
            if let Some(batch) = engine.batches.pop_front() {
                engine.start = batch.end().0;
            }
        }
        Ok(())
    }

    fn space(&self) -> u64 {
        u64::MAX
    }

    fn reserve(&mut self, _batch_bytes: u64, _besides: u64) -> Result<(), LogError> {
        Ok(())
    }

    fn limits(&self) -> LogLimits {
        LogLimits { batches_in_flight_max: 1, batch_bytes_max: 1 << 20, survives: Survives::Unknown }
    }

    fn is_surely_owned(&self) -> bool {
        let engine = self.engine.engine();
        engine.epoch == self.epoch && !engine.looks_unanswered
    }
}
