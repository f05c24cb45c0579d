//! What clients were promised, and whether what is found keeps it.
//!
//! Whatever changes queues is an [`Operation`]: it happens whole or not at all. Its client may not have heard which.
//! Then it is in doubt until something shows: one message of it that is there, or one that is not. From then on all the
//! rest of it must agree.

use std::collections::{BTreeMap, BTreeSet};

/// A queue, by its place among those of the simulation.
pub(super) type Queue = usize;
/// A message, by the number in its body. A publication's copies have the same.
pub(super) type Number = u64;

/// An operation, by its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OperationId(usize);

/// What is known of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    InDoubt,
    Done,
    Undone,
}

/// Puts and removals that happen together.
#[derive(Debug)]
struct Operation {
    fate: Fate,
    puts: Vec<(Queue, Number)>,
    removals: Vec<(Queue, Number)>,
}

/// A message on a queue.
#[derive(Debug)]
struct Copy {
    put: OperationId,
    /// What is to remove it; none where that is known not to have happened.
    removal: Option<OperationId>,
    /// The link that has it, as far as its client knows.
    holder: Option<Holder>,
    /// It went with the end of the process.
    is_lost: bool,
    /// It is not persistent and was published: a subscription that can't take it does without.
    is_optional: bool,
}

/// What is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    pub(super) priority: u8,
    pub(super) persistent: bool,
    /// Those of one group that lie on one queue keep their order.
    pub(super) group: u64,
}

/// A link that gets, never used again.
pub(super) type Holder = u64;

/// A message that was found on a queue, in the queue's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) number: Number,
    pub(super) priority: u8,
    pub(super) persistent: bool,
}

/// All that clients know together.
#[derive(Default)]
pub(super) struct Checker {
    operations: Vec<Operation>,
    facts: BTreeMap<Number, Fact>,
    copies: BTreeMap<(Queue, Number), Copy>,
    /// Those that happen, unless the machine crashes first: nothing that was asked for behind them can have happened
    /// before.
    expected: Vec<OperationId>,
    /// Messages cross from one queue manager to another: those that are not persistent may be lost at any time, and are
    /// not in order with those that are.
    crosses: bool,
    /// A disk was full since the queues were looked at: any put may have been refused.
    was_full: bool,
    /// Those to which nothing can happen any more.
    finished: BTreeSet<(Queue, Number)>,
    last_number: Number,
    /// Messages up to this number may have been given back by a link that ended, by queue: they come when they come.
    disturbed: BTreeMap<Queue, Number>,
    /// The last message that a link was brought for the first time, by group.
    brought: BTreeMap<(Holder, Queue, u64, u8, bool), Number>,
    /// Messages that were brought to some link before.
    seen: BTreeSet<(Queue, Number)>,
    /// What was checked.
    pub(super) counts: Counts,
}

/// What a simulation came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) confirmed_puts: u64,
    pub(super) confirmed_removals: u64,
    pub(super) confirmed_units: u64,
    pub(super) deliveries: u64,
    pub(super) audits: u64,
    pub(super) crashes: u64,
    /// Claims of a group's log.
    pub(super) claims: u64,
    /// Batches of owners that were deposed, which the log has refused.
    pub(super) refused_batches: u64,
}

impl Checker {
    /// Of queue managers with channels between them, or of members of a group.
    pub(super) fn of_crossing() -> Self {
        Self { crosses: true, ..Self::default() }
    }

    /// A queue manager has crashed, and no queue is looked at for now.
    pub(super) fn crashed(&mut self) {
        self.counts.crashes += 1;
        self.expected.clear();
    }

    /// A number for a message that is about to be put.
    pub(super) fn number(&mut self, fact: Fact) -> Number {
        self.last_number += 1;
        self.facts.insert(self.last_number, fact);
        self.last_number
    }

    /// Whether a message is.
    pub(super) fn is_persistent(&self, number: Number) -> bool {
        self.facts.get(&number).is_some_and(|fact| fact.persistent)
    }

    /// An operation that is about to be asked for.
    pub(super) fn begin(&mut self) -> OperationId {
        self.operations.push(Operation { fate: Fate::InDoubt, puts: Vec::new(), removals: Vec::new() });
        OperationId(self.operations.len() - 1)
    }

    /// The operation puts a message.
    pub(super) fn puts(&mut self, id: OperationId, queue: Queue, number: Number) {
        self.has_copy(id, (queue, number), false);
    }

    /// The operation publishes a message to the subscriptions that have these queues.
    pub(super) fn publishes(&mut self, id: OperationId, queues: impl Iterator<Item = Queue>, number: Number) {
        let is_optional = !self.facts[&number].persistent;
        queues.for_each(|queue| self.has_copy(id, (queue, number), is_optional));
    }

    fn has_copy(&mut self, id: OperationId, key: (Queue, Number), is_optional: bool) {
        self.operations[id.0].puts.push(key);
        let copy = Copy { put: id, removal: None, holder: None, is_lost: false, is_optional };
        assert!(self.copies.insert(key, copy).is_none());
    }

    /// The operation goes on without that message: it was refused.
    pub(super) fn refused(&mut self, id: OperationId, number: Number) {
        let refused: Vec<_> = self.operations[id.0].puts.extract_if(.., |(_, other)| *other == number).collect();
        for key in refused {
            self.copies.remove(&key);
            self.finished.insert(key);
        }
    }

    /// The operation removes a message that its link has.
    pub(super) fn removes(&mut self, id: OperationId, queue: Queue, number: Number) {
        self.operations[id.0].removals.push((queue, number));
        let copy = self.copies.get_mut(&(queue, number)).expect("it was delivered");
        (copy.removal, copy.holder) = (Some(id), None);
    }

    /// The link gives a message back.
    pub(super) fn gives_back(&mut self, queue: Queue, number: Number) {
        self.copies.get_mut(&(queue, number)).expect("it was delivered").holder = None;
        self.disturb(queue);
    }

    /// A link that got from there has ended, or may end: what it had comes back when it comes.
    pub(super) fn disturb(&mut self, queue: Queue) {
        self.disturbed.insert(queue, self.last_number);
    }

    /// Links that are gone hold nothing.
    pub(super) fn holds_nothing(&mut self, gone: impl Fn(Holder) -> bool) {
        for copy in self.copies.values_mut() {
            copy.holder = copy.holder.filter(|holder| !gone(*holder));
        }
    }

    /// The client was told that the operation has happened.
    pub(super) fn done(&mut self, id: OperationId) -> Result<(), String> {
        self.resolve(id, Fate::Done, "its client was told so")
    }

    /// The client was told that the operation has not happened, or never asked for it.
    pub(super) fn undone(&mut self, id: OperationId) -> Result<(), String> {
        self.resolve(id, Fate::Undone, "its client was told so")
    }

    /// The disk is full: puts are refused, also where their clients do not hear of it.
    pub(super) fn disk_is_full(&mut self) {
        self.was_full = true;
        self.expected.clear();
    }

    /// The operation happens unless the machine crashes first.
    pub(super) fn expects(&mut self, id: OperationId) {
        if !self.was_full {
            self.expected.push(id);
        }
    }

    /// A message came to a client.
    pub(super) fn delivered(&mut self, holder: Holder, queue: Queue, shown: Shown) -> Result<(), String> {
        self.counts.deliveries += 1;
        let key = (queue, shown.number);
        self.is_there(key, shown, "was delivered")?;
        let Some(copy) = self.copies.get_mut(&key) else { return Ok(()) };
        if let Some(other) = copy.holder.replace(holder) {
            return Err(format!("{key:?} was delivered to link {holder} while link {other} has it"));
        }
        let fact = self.facts[&shown.number];
        if self.seen.insert(key) && shown.number > self.disturbed.get(&queue).copied().unwrap_or(0) {
            let group = (holder, queue, fact.group, fact.priority, fact.persistent);
            if let Some(before) = self.brought.insert(group, shown.number).filter(|before| *before > shown.number) {
                return Err(format!("{key:?} was delivered behind {before}, which was put later"));
            }
        }
        Ok(())
    }

    /// A message lies on a queue, free for the next reader.
    pub(super) fn lies_there(&mut self, queue: Queue, shown: Shown) -> Result<(), String> {
        self.is_there((queue, shown.number), shown, "was found")
    }

    /// It exists: so it was put, and what would have removed it has not happened.
    fn is_there(&mut self, key: (Queue, Number), shown: Shown, how: &str) -> Result<(), String> {
        let Some(copy) = self.copies.get(&key) else {
            let why = if self.finished.contains(&key) { "was gone" } else { "was never put" };
            return Err(format!("{key:?} {how}, and {why}"));
        };
        let fact = self.facts[&shown.number];
        if (fact.priority, fact.persistent) != (shown.priority, shown.persistent) {
            return Err(format!("{key:?} {how} as {shown:?}, and was put as {fact:?}"));
        }
        if copy.is_lost {
            return Err(format!("{key:?} {how}, and does not survive its process"));
        }
        let (put, removal) = (copy.put, copy.removal);
        self.resolve(put, Fate::Done, &format!("{key:?} {how}"))?;
        if let Some(removal) = removal {
            self.resolve(removal, Fate::Undone, &format!("{key:?} {how}"))?;
            // The same message may be removed by another operation from now on.
            if let Some(copy) = self.copies.get_mut(&key) {
                copy.removal = None;
            }
        }
        Ok(())
    }

    fn resolve(&mut self, id: OperationId, fate: Fate, why: &str) -> Result<(), String> {
        let operation = &mut self.operations[id.0];
        match operation.fate {
            Fate::InDoubt => operation.fate = fate,
            known if known == fate => {}
            _ => return Err(format!("{why}, so an operation is {fate:?}, which is known otherwise: {operation:?}")),
        }
        if fate == Fate::Undone {
            for key in operation.puts.clone() {
                self.copies.remove(&key);
                self.finished.insert(key);
            }
        }
        Ok(())
    }

    /// Compares with all that lies on the queues while no client is connected, `crashed` where the process that had
    /// them is gone.
    pub(super) fn audit(&mut self, found: &[Vec<Shown>], crashed: bool) -> Result<(), String> {
        self.counts.audits += 1;
        self.holds_nothing(|_| true);
        // Who comes from now on finds room.
        self.was_full = false;
        if crashed {
            for ((_, number), copy) in &mut self.copies {
                copy.is_lost |= !self.facts[number].persistent;
            }
        }
        let expected = std::mem::take(&mut self.expected);
        for id in expected.into_iter().filter(|_| !crashed) {
            self.resolve(id, Fate::Done, "it was asked for before something that has happened")?;
        }
        let mut there = BTreeSet::new();
        for (queue, shown) in found.iter().enumerate() {
            for shown in shown {
                let key = (queue, shown.number);
                if !there.insert(key) {
                    return Err(format!("{key:?} is there twice"));
                }
                self.is_there(key, *shown, "was found")?;
            }
            self.in_order(queue, shown)?;
        }
        self.look_for_missing(&there)?;
        for queue in 0..found.len() {
            self.disturb(queue);
        }
        self.forget(&there);
        Ok(())
    }

    /// What is not there was never put, or removed.
    fn look_for_missing(&mut self, there: &BTreeSet<(Queue, Number)>) -> Result<(), String> {
        // Of what went with the process, or may never have come, nothing can be said.
        let counts = |number: &Number, copy: &Copy| {
            let may_be_lost = self.crosses && !self.facts[number].persistent;
            !(copy.is_lost || may_be_lost || copy.is_optional && copy.removal.is_none())
        };
        let is_absent = |key: &(Queue, Number), copy: &Copy| !there.contains(key) && counts(&key.1, copy);
        let absent = self.copies.iter().filter(|(key, copy)| is_absent(key, copy));
        let absent: Vec<(Queue, Number)> = absent.map(|(key, _)| *key).collect();
        // Whatever was put in a unit that is in doubt, and is not there, and was not to be removed, was not put.
        for key in &absent {
            let Some(copy) = self.copies.get(key) else { continue };
            let (put, removal) = (copy.put, copy.removal);
            match removal {
                Some(removal) => {
                    if self.operations[put.0].fate == Fate::Done {
                        self.resolve(removal, Fate::Done, &format!("{key:?} is not there"))?;
                    }
                }
                None if self.operations[put.0].fate == Fate::Done => return Err(format!("{key:?} is lost")),
                None => self.resolve(put, Fate::Undone, &format!("{key:?} is not there"))?,
            }
        }
        // What a unit that has happened put must be there.
        for key in &absent {
            let Some(copy) = self.copies.get(key) else { continue };
            let is_removed = copy.removal.is_some_and(|removal| self.operations[removal.0].fate == Fate::Done);
            if self.operations[copy.put.0].fate == Fate::Done && !is_removed {
                return Err(format!("{key:?} is lost"));
            }
        }
        Ok(())
    }

    /// Those of one group lie in the order of their puts; a higher priority before a lower one.
    fn in_order(&self, queue: Queue, shown: &[Shown]) -> Result<(), String> {
        let mut last: BTreeMap<(u64, u8, bool), Number> = BTreeMap::new();
        let mut priority = u8::MAX;
        for shown in shown {
            if shown.priority > priority {
                return Err(format!("message {} lies behind lower priorities on queue {queue}", shown.number));
            }
            priority = shown.priority;
            let group = (self.facts[&shown.number].group, shown.priority, self.crosses && shown.persistent);
            if let Some(before) = last.insert(group, shown.number).filter(|before| *before > shown.number) {
                return Err(format!("message {} lies behind {before} on queue {queue}", shown.number));
            }
        }
        Ok(())
    }

    /// Nothing can happen any more to what is not there, and what is there is certain.
    fn forget(&mut self, there: &BTreeSet<(Queue, Number)>) {
        let gone: Vec<_> = self.copies.keys().filter(|key| !there.contains(*key)).copied().collect();
        for key in gone {
            self.copies.remove(&key);
            self.finished.insert(key);
        }
        self.operations.clear();
        let certain = self.begin();
        self.operations[certain.0].fate = Fate::Done;
        for copy in self.copies.values_mut() {
            (copy.put, copy.removal) = (certain, None);
        }
        self.brought.clear();
    }
}
