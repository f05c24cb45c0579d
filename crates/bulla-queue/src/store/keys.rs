//! Which keys messages need: how many of each queue, by key.
//!
//! What opens a message is a small set of names that the caller gives; the store compares their bytes and no more. Each
//! set has a number here, which a message's entry and its record carry. A record of its own defines a set before the
//! first record that has its number, and each checkpoint defines those again that messages still have. A set that no
//! message has keeps its number until the table is full: a queue that empties with each get costs no record a put.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;

use super::Store;
use super::messages::{IdBuildHasher, Messages};
use crate::message::{KeyNames, Keys, MessageId, QueueId};
use crate::queue::Queue;
use crate::record::{KEY_NAMES_BYTES_MAX, KEYS_FIRST, KEYS_NONE, KEYS_UNKNOWN, Record, encode_key_names};

/// Bytes of the records that define the sets of keys of one store; messages with further sets count as not known.
/// Each checkpoint writes them again, on a full disk too: it is a part of the reserve.
pub const KEY_SETS_BYTES_MAX: usize = 1 << 20;
/// Sets of keys that the messages of one queue may have; those with further ones count as not known.
pub const QUEUE_KEY_SETS_MAX: usize = 1_024;
/// Bytes of the records of these sets: no queue takes the room of all others.
pub const QUEUE_KEY_SETS_BYTES_MAX: usize = KEY_SETS_BYTES_MAX / 8;
/// Sets that are found by their pointer: those that were used last.
const RECENT_SETS: usize = 16;
/// Bytes of sets that no message has, from which on they make room: so much work is done for them at most.
const UNUSED_BYTES_MAX: usize = KEY_SETS_BYTES_MAX / 4;
/// Places of sets that are counted by their numbers while a journal is read, of all queues: 24 MiB.
const TALLY_PLACES_MAX: usize = 1 << 20;
/// Messages of a queue that one look for the oldest ones passes over, in each of its ten lanes. A tenth of a
/// millisecond.
const OLDEST_LOOKS_MAX: usize = 10_000;

/// What needs a key, or a set of keys, on one queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyUse {
    /// The names of the keys, any of which opens the messages; `None` for those of which it is not known.
    pub names: Option<KeyNames>,
    /// Messages, those that are locked, delayed or not yet synced included.
    pub messages: u32,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// When the first of them was put, in milliseconds since 1970. Where ten thousand others had to be passed over, the
    /// time of the last one passed, which was put before it; the next look goes on from there.
    pub oldest_put_ms: Option<u64>,
}

/// What a queue's messages need of one set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    messages: u32,
    /// Bytes of the set's record.
    record_bytes: u32,
    bytes: u64,
    /// No message that has the set has a lower id.
    first: u64,
}

/// What a queue's messages need, by number of the set. Those that need no key are not counted.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// One set: most queues never have another, and find it without a hash.
    usual: (u16, Need),
    /// The other sets that messages of the queue have.
    others: HashMap<u16, Need, IdBuildHasher>,
    /// Bytes of the records of all of them.
    record_bytes: usize,
}

impl Needs {
    /// A message came. One compare where it needs no key, a few more as a rule.
    pub(super) fn came(&mut self, sets: &KeySets, set: u16, bytes: u32, id: u64) {
        if set == KEYS_NONE {
            return;
        }
        let need = if self.usual.0 == set {
            &mut self.usual.1
        } else if self.usual.1.messages == 0 && !self.others.contains_key(&set) {
            self.usual = (set, Need::default());
            &mut self.usual.1
        } else {
            self.others.entry(set).or_default()
        };
        if need.messages == 0 {
            let record_bytes = sets.record_bytes(set);
            *need = Need { record_bytes: record_bytes as u32, first: id, ..Need::default() };
            self.record_bytes += record_bytes;
        }
        need.first = need.first.min(id);
        need.messages += 1;
        need.bytes += u64::from(bytes);
    }

    /// A message went. As [`Needs::came`].
    pub(super) fn went(&mut self, set: u16, bytes: u32) {
        if set == KEYS_NONE {
            return;
        }
        let is_usual = self.usual.0 == set;
        let need = if is_usual { Some(&mut self.usual.1) } else { self.others.get_mut(&set) };
        let Some(need) = need.filter(|need| need.messages > 0) else { return };
        need.messages -= 1;
        need.bytes = need.bytes.saturating_sub(u64::from(bytes));
        if need.messages == 0 {
            self.record_bytes -= need.record_bytes as usize;
            if !is_usual {
                self.others.remove(&set);
            }
        }
    }

    /// So many more messages came of a set that others have already.
    fn add(&mut self, set: u16, messages: u32, bytes: u64) {
        let need = if self.usual.0 == set { Some(&mut self.usual.1) } else { self.others.get_mut(&set) };
        if let Some(need) = need {
            need.messages += messages;
            need.bytes += bytes;
        }
    }

    fn takes(&self, sets: &KeySets, set: u16) -> bool {
        (self.usual.1.messages > 0 && self.usual.0 == set)
            || self.others.contains_key(&set)
            || sets.record_bytes(set) <= self.room()
    }

    /// Bytes of the record of a further set that it takes, at most.
    fn room(&self) -> usize {
        let sets = self.others.len() + usize::from(self.usual.1.messages > 0);
        if sets < QUEUE_KEY_SETS_MAX { QUEUE_KEY_SETS_BYTES_MAX.saturating_sub(self.record_bytes) } else { 0 }
    }

    fn any(&self) -> bool {
        self.usual.1.messages > 0 || !self.others.is_empty()
    }

    /// The sets that messages have.
    fn all(&mut self) -> impl Iterator<Item = (u16, &mut Need)> {
        let others = self.others.iter_mut().map(|(&set, need)| (set, need));
        std::iter::once((self.usual.0, &mut self.usual.1)).chain(others).filter(|(_, need)| need.messages > 0)
    }
}

/// What messages need, counted while the journal is read: each of them costs an index where it would cost a hash.
#[derive(Debug)]
pub(super) struct Tallies {
    /// By number of the set.
    by_queue: HashMap<QueueId, Vec<Need>, IdBuildHasher>,
    /// Sets of all queues for which there is a place yet.
    places_left: usize,
}

impl Default for Tallies {
    fn default() -> Self {
        Self::new(TALLY_PLACES_MAX)
    }
}

impl Tallies {
    fn new(places: usize) -> Self {
        Self { by_queue: HashMap::default(), places_left: places }
    }

    /// A message of a queue is there; they come by rising id. Those for which there is no place count at once.
    pub(super) fn came(&mut self, queue: &mut Queue, sets: &mut KeySets, set: u16, bytes: u32, id: u64) {
        let needs = self.by_queue.entry(queue.id).or_default();
        let at = usize::from(set);
        if at >= needs.len() {
            let more = at + 1 - needs.len();
            if more > self.places_left {
                queue.needs.came(sets, set, bytes, id);
                return sets.counted(set, 1);
            }
            self.places_left -= more;
            needs.resize(at + 1, Need::default());
        }
        let need = &mut needs[at];
        if need.messages == 0 {
            need.first = id;
        }
        need.messages += 1;
        need.bytes += u64::from(bytes);
    }

    /// All have come.
    pub(super) fn count<S: BuildHasher>(self, queues: &mut HashMap<QueueId, Queue, S>, sets: &mut KeySets) {
        for (queue, needs) in self.by_queue {
            let Some(queue) = queues.get_mut(&queue) else { continue };
            for (set, need) in (0..).zip(needs).filter(|(_, need)| need.messages > 0) {
                queue.needs.came(sets, set, 0, need.first);
                sets.counted(set, need.messages);
                queue.needs.add(set, need.messages - 1, need.bytes);
            }
        }
    }
}

#[derive(Debug)]
struct Set {
    names: KeyNames,
    /// As its record has them.
    encoded: Box<[u8]>,
    /// Messages of the store that have it.
    messages: u32,
    /// Whether the part of the log that is kept defines the number so.
    is_defined: bool,
}

impl Set {
    fn record(&self, number: u16) -> Record<'_> {
        Record::Keys { number, names: &self.encoded }
    }
}

/// The sets of keys of a store, by number.
#[derive(Debug, Default)]
pub(super) struct KeySets {
    sets: Vec<Option<Set>>,
    vacant: Vec<u16>,
    numbers: HashMap<KeyNames, u16>,
    /// Sets by their pointers. They hold what they point to, so that a pointer means one set.
    recent: [Option<(KeyNames, u16)>; RECENT_SETS],
    bytes: usize,
    /// Of these, bytes of sets that no message has.
    unused_bytes: usize,
}

impl KeySets {
    fn get(&self, number: u16) -> Option<&Set> {
        self.sets.get(usize::from(number.checked_sub(KEYS_FIRST)?))?.as_ref()
    }

    fn get_mut(&mut self, number: u16) -> Option<&mut Set> {
        self.sets.get_mut(usize::from(number.checked_sub(KEYS_FIRST)?))?.as_mut()
    }

    fn recent(&self, names: &KeyNames) -> Option<u16> {
        let (known, number) = self.recent[recent_at(names)].as_ref()?;
        Arc::ptr_eq(known, names).then_some(*number)
    }

    /// The number of a set, by its pointer or by what it holds.
    fn known(&self, names: &KeyNames) -> Option<u16> {
        self.recent(names).or_else(|| self.numbers.get(names).copied())
    }

    /// Bytes of the record that defines the set of a message that is put; 0 as a rule. It follows from what the set
    /// holds alone, and never from where that lies: batches end where it says.
    pub(super) fn definition_bytes(&self, keys: &Keys) -> usize {
        let Keys::OneOf(names) = keys else { return 0 };
        match self.known(names) {
            Some(number) => self.definition_bytes_of(number),
            None => Record::keys_head_bytes(names.iter().map(|name| 2 + name.len()).sum()),
        }
    }

    /// Bytes of the record of a set; none of what is no set.
    fn record_bytes(&self, number: u16) -> usize {
        self.get(number).map_or(0, |set| set.record(number).head_bytes())
    }

    /// Bytes of the record that defines a set, where the log does not define it yet.
    pub(super) fn definition_bytes_of(&self, number: u16) -> usize {
        self.get(number).filter(|set| !set.is_defined).map_or(0, |set| set.record(number).head_bytes())
    }

    /// The record that defines a set, where the log does not define it yet; it is to be written now.
    pub(super) fn define(&mut self, number: u16, write: impl FnOnce(&Record<'_>)) {
        if let Some(set) = self.get_mut(number).filter(|set| !set.is_defined) {
            set.is_defined = true;
            write(&set.record(number));
        }
    }

    /// The definitions that a checkpoint has: of the sets that messages have. The others count as not defined from here
    /// on.
    pub(super) fn write_used(&mut self, mut write: impl FnMut(&Record<'_>) -> bool) -> bool {
        for (number, set) in (KEYS_FIRST..).zip(&mut self.sets) {
            let Some(set) = set else { continue };
            if set.messages > 0 && !write(&set.record(number)) {
                return false;
            }
            set.is_defined = set.messages > 0;
        }
        true
    }

    /// Makes room where much of the table is not used: what no message has goes. Not within a unit of work: its sets
    /// may be among them. One compare as a rule.
    pub(super) fn tidy(&mut self) {
        if self.unused_bytes > UNUSED_BYTES_MAX {
            self.drop_unused();
        }
    }

    #[cold]
    fn drop_unused(&mut self) {
        for (number, place) in (KEYS_FIRST..).zip(&mut self.sets) {
            let Some(set) = place.take_if(|set| set.messages == 0) else { continue };
            self.bytes -= set.record(number).head_bytes();
            self.numbers.remove(&set.names);
            self.vacant.push(number);
        }
        self.unused_bytes = 0;
        self.recent = Default::default();
    }

    /// The number of what a message needs: for one that needs no key a compare, else a few and a look-up by pointer.
    /// `room`: bytes that the record of a new set may have.
    fn number_of(&mut self, keys: &Keys, room: usize) -> u16 {
        let names = match keys {
            Keys::None => return KEYS_NONE,
            Keys::Unknown => return KEYS_UNKNOWN,
            Keys::OneOf(names) => names,
        };
        if let Some(number) = self.recent(names) {
            return number;
        }
        let number = match self.numbers.get(names) {
            Some(number) => *number,
            None => match self.insert(names, room) {
                Some(number) => number,
                None => return KEYS_UNKNOWN,
            },
        };
        // One that the message alone holds does not come again.
        if Arc::strong_count(names) > 1 {
            self.recent[recent_at(names)] = Some((names.clone(), number));
        }
        number
    }

    /// Gives a new set a number, where there is room.
    fn insert(&mut self, names: &KeyNames, room: usize) -> Option<u16> {
        let encoded = encode_key_names(names)?;
        let set = Set { names: names.clone(), encoded, messages: 0, is_defined: false };
        let bytes = set.record(KEYS_FIRST).head_bytes();
        if bytes > room || self.bytes + bytes > KEY_SETS_BYTES_MAX {
            return None;
        }
        let number = match self.vacant.pop() {
            Some(number) => number,
            None => {
                let number = u16::try_from(self.sets.len()).ok()?.checked_add(KEYS_FIRST)?;
                self.sets.push(None);
                number
            }
        };
        self.sets[usize::from(number - KEYS_FIRST)] = Some(set);
        self.numbers.insert(names.clone(), number);
        self.bytes += bytes;
        self.unused_bytes += bytes;
        Some(number)
    }

    /// A set as the journal defines it; the last definition of a number counts.
    pub(super) fn replayed(&mut self, number: u16, names: &[u8]) {
        let Some(place) = number.checked_sub(KEYS_FIRST).map(usize::from) else { return };
        let set = Set {
            names: crate::record::key_names(names).map(Bytes::copy_from_slice).collect(),
            encoded: names.into(),
            messages: 0,
            is_defined: true,
        };
        if self.sets.len() <= place {
            self.sets.resize_with(place + 1, || None);
        }
        self.sets[place] = Some(set);
    }

    /// All of the journal was read, and its messages counted: sets are found by what they hold from here on. Those that
    /// no message has are forgotten.
    pub(super) fn ready(&mut self) {
        for (number, place) in (KEYS_FIRST..).zip(&mut self.sets) {
            place.take_if(|set| set.messages == 0);
            match place {
                Some(set) => {
                    self.bytes += set.record(number).head_bytes();
                    self.numbers.insert(set.names.clone(), number);
                }
                None => self.vacant.push(number),
            }
        }
    }

    /// Whether there is such a set, or the message needs none that is known.
    pub(super) fn has(&self, number: u16) -> bool {
        number <= KEYS_NONE || self.get(number).is_some()
    }

    /// So many messages of a queue have the set, by the journal.
    fn counted(&mut self, number: u16, messages: u32) {
        if let Some(set) = self.get_mut(number) {
            set.messages += messages;
        }
    }

    /// A message has the set.
    pub(super) fn came(&mut self, number: u16) {
        if number > KEYS_NONE
            && let Some(set) = self.get_mut(number)
        {
            set.messages += 1;
            if set.messages == 1 {
                self.unused_bytes -= set.record(number).head_bytes();
            }
        }
    }

    /// A message that had the set is gone. One compare where it needs no key.
    pub(super) fn went(&mut self, number: u16) {
        if number > KEYS_NONE
            && let Some(set) = self.get_mut(number)
        {
            set.messages -= 1;
            if set.messages == 0 {
                self.unused_bytes += set.record(number).head_bytes();
            }
        }
    }

    pub(super) fn keys(&self, number: u16) -> Keys {
        match number {
            KEYS_NONE => Keys::None,
            _ => self.get(number).map_or(Keys::Unknown, |set| Keys::OneOf(set.names.clone())),
        }
    }
}

fn recent_at(names: &KeyNames) -> usize {
    // Allocations of one size lie some multiple of 16 apart.
    let pointer = Arc::as_ptr(names).cast::<u8>() as usize;
    (pointer >> 4 ^ pointer >> 9) % RECENT_SETS
}

impl Store {
    /// Which keys open a message, wherever it stands; `None` where it is gone.
    #[must_use]
    pub fn needed_keys(&self, id: MessageId) -> Option<Keys> {
        Some(self.key_sets.keys(self.messages[self.messages.slot(id)?].keys))
    }

    /// Whether any message of a queue needs a key, or may. A look-up and a compare.
    #[must_use]
    pub fn needs_keys(&self, queue: QueueId) -> bool {
        self.queues.get(&queue).is_some_and(|queue| queue.needs.any())
    }

    /// What the messages of a queue need, by set of keys, in no order; those that need no key are left out. Looks at
    /// the sets of the queue, and where the oldest message of one is gone at those behind it, in one pass for all sets:
    /// a millisecond at most.
    pub fn key_use(&mut self, queue: QueueId) -> Vec<KeyUse> {
        let Some(found) = self.queues.get_mut(&queue) else { return Vec::new() };
        let mut needs = std::mem::take(&mut found.needs);
        let mut sought = Sought::default();
        for (set, need) in needs.all() {
            if !is_there(&self.messages, queue, set, need.first) {
                sought.add(set, need.first);
            }
        }
        sought.look(found, &self.messages);
        let uses = needs.all().map(|(set, need)| {
            need.first = sought.found(set).unwrap_or(need.first);
            let oldest = self.messages.slot(MessageId(need.first)).map(|slot| self.messages[slot].put_at_ms);
            let names = self.key_sets.get(set).map(|set| set.names.clone());
            KeyUse { names, messages: need.messages, bytes: need.bytes, oldest_put_ms: oldest }
        });
        let uses = uses.collect();
        found.needs = needs;
        uses
    }

    /// Says by what is told of a message of an older program, once its body is read back, which keys open it.
    pub fn tell_keys_by(&mut self, keys_of: fn(&crate::message::Chunks) -> Keys) {
        self.keys_of = Some(keys_of);
    }

    /// A message of which it was not known is read: it is known from now on, and noted when it is carried forward.
    #[cold]
    pub(super) fn learn_keys(&mut self, slot: crate::lane::Slot, body: &crate::message::Chunks) {
        let Some(keys_of) = self.keys_of else { return };
        let entry = &mut self.messages[slot];
        let Some(queue) = self.queues.get_mut(&entry.queue()) else { return };
        let set = self.key_sets.number_of(&keys_of(body), queue.needs.room());
        if set == KEYS_UNKNOWN || !queue.needs.takes(&self.key_sets, set) {
            return;
        }
        self.key_sets.came(set);
        queue.needs.went(KEYS_UNKNOWN, entry.body_bytes);
        queue.needs.came(&self.key_sets, set, entry.body_bytes, entry.id);
        entry.keys = set;
    }
}

/// The number under which a message for a queue counts.
pub(super) fn number_for(sets: &mut KeySets, queue: &mut Queue, keys: &Keys) -> u16 {
    let set = sets.number_of(keys, queue.needs.room());
    if set > KEYS_NONE && !queue.needs.takes(sets, set) {
        return KEYS_UNKNOWN;
    }
    sets.came(set);
    set
}

/// Whether a message of a queue is there and has the set.
fn is_there(messages: &Messages, queue: QueueId, set: u16, id: u64) -> bool {
    let entry = messages.slot(MessageId(id)).map(|slot| &messages[slot]);
    entry.is_some_and(|entry| entry.keys == set && entry.queue() == queue)
}

/// Sets whose oldest message on a queue is looked for.
#[derive(Default)]
struct Sought {
    /// The message that is the oldest of those seen, by set, and the number of the lane that it was last seen in.
    oldest: HashMap<u16, (Option<u64>, usize), IdBuildHasher>,
    /// None of the sets has a message with a lower id.
    from: Option<u64>,
}

impl Sought {
    fn add(&mut self, set: u16, first: u64) {
        self.from = Some(self.from.map_or(first, |from| from.min(first)));
        self.oldest.insert(set, (None, 0));
    }

    fn found(&self, set: u16) -> Option<u64> {
        self.oldest.get(&set)?.0
    }

    /// Looks through the lanes, each up to the first message of every set, or so far that those already seen in others
    /// are older.
    fn look(&mut self, queue: &Queue, messages: &Messages) {
        let Some(from) = self.from else { return };
        for (lane, number) in queue.lanes.iter().zip(1..) {
            let none_is_older = self.oldest.values().map(|(id, _)| id.unwrap_or(u64::MAX)).max().unwrap_or(0);
            let mut left = self.oldest.len();
            let mut passed = None;
            for (looks, (slot, _)) in lane.slots(Some(from.saturating_sub(1))).enumerate() {
                let entry = &messages[slot];
                passed = (looks + 1 == OLDEST_LOOKS_MAX).then_some(entry.id);
                if entry.id > none_is_older {
                    break;
                }
                if let Some((oldest, seen_in)) = self.oldest.get_mut(&entry.keys)
                    && *seen_in != number
                {
                    *oldest = Some(oldest.map_or(entry.id, |id| id.min(entry.id)));
                    *seen_in = number;
                    left -= 1;
                }
                if left == 0 || passed.is_some() {
                    break;
                }
            }
            let Some(passed) = passed.filter(|_| left > 0) else { continue };
            for (oldest, _) in self.oldest.values_mut().filter(|(_, seen_in)| *seen_in != number) {
                *oldest = Some(oldest.map_or(passed, |id| id.min(passed)));
            }
        }
    }
}

const _: () = assert!(KEY_NAMES_BYTES_MAX < QUEUE_KEY_SETS_BYTES_MAX);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

    use super::*;

    fn names() -> KeyNames {
        [Bytes::from_static(b"issuer and serial")].into_iter().collect()
    }

    /// What each queue needs, and how many messages have each set.
    type Counted = (Vec<Vec<(u16, u32, u64, u64)>>, Vec<u32>);

    fn counted(places: usize) -> Counted {
        let mut sets = KeySets::default();
        for number in 0..40_u16 {
            let name = Bytes::copy_from_slice(&number.to_le_bytes());
            sets.number_of(&Keys::OneOf([name].into_iter().collect()), usize::MAX);
        }
        let id = |number| QueueId::new(crate::message::StoreNumber::LOCAL, number);
        let new = |number| (id(number), Queue::new(id(number), "Q", crate::queue::QueueAttributes::default()));
        let mut queues: HashMap<QueueId, Queue> = (1..4).map(new).collect();
        let mut tallies = Tallies::new(places);
        for message in 0..1_000_u64 {
            let set = (message * message % 41) as u16;
            if set != KEYS_NONE {
                let queue = queues.get_mut(&id((message % 3) as u32 + 1)).unwrap();
                tallies.came(queue, &mut sets, set, 100 + set as u32, message);
            }
        }
        tallies.count(&mut queues, &mut sets);
        let needs = |number| {
            let needs = &mut queues.get_mut(&id(number)).unwrap().needs;
            let mut needs: Vec<_> =
                needs.all().map(|(set, need)| (set, need.messages, need.bytes, need.first)).collect();
            needs.sort_unstable();
            needs
        };
        ((1..4).map(needs).collect(), sets.sets.iter().flatten().map(|set| set.messages).collect())
    }

    #[test]
    fn what_finds_no_place_while_the_journal_is_read_counts_all_the_same() {
        let all = counted(TALLY_PLACES_MAX);
        let messages: u32 = all.0.iter().flatten().map(|(_, messages, ..)| messages).sum();
        let of_none = (0..1_000_u64).filter(|message| message * message % 41 == u64::from(KEYS_NONE)).count();
        assert_eq!(messages as usize, 1_000 - of_none);
        for places in [0, 1, 5, 30, 60, 100] {
            assert_eq!(counted(places), all, "{places} places");
        }
    }

    #[test]
    fn a_set_that_is_defined_needs_no_record_wherever_it_lies() {
        let (mut sets, held) = (KeySets::default(), names());
        let number = sets.number_of(&Keys::OneOf(held.clone()), usize::MAX);
        assert!(sets.definition_bytes(&Keys::OneOf(names())) > 0, "nothing is written yet");
        sets.define(number, |_| ());
        assert_eq!(sets.definition_bytes(&Keys::OneOf(held)), 0);
        // More of them than are found by their pointers.
        let same: Vec<KeyNames> = (0..4 * RECENT_SETS).map(|_| names()).collect();
        for names in &same {
            assert_eq!(sets.number_of(&Keys::OneOf(names.clone()), usize::MAX), number);
        }
        for names in same {
            assert_eq!(sets.definition_bytes(&Keys::OneOf(names)), 0);
        }
    }
}
