//! Messages on their way from one store to another: a publication whose subscribers' queues lie in two stores, a
//! message that goes to a dead-letter queue in another store, one that came by a channel.
//!
//! No unit of work spans two stores. What is for another store is put, in the unit of the first one, on a queue of that
//! store which no command and no client can name. From there all messages of the unit go on together, in one unit of
//! the second store, with a note of it. Once that is synced they are removed from the first store, and once that is
//! synced, too, the note goes. A start finds each unit in the first store, and by the note whether the second one has
//! it: so it comes there once.

use bulla_queue::{
    Chunks, DeliverySequence, Found, JournalError, Keys, MESSAGE_BYTES_MAX, Message, MessageId, PutError,
    QueueAttributes, QueueId, ReadError, Store, StoreNumber, Ticket,
};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the names of the queues begin with. No object's name does.
const QUEUE_PREFIX: &str = "*handover to ";
/// What the names of the notes begin with.
pub(super) const NOTE_PREFIX: &str = "handed/";
/// Messages that may wait for one store in another.
const DEPTH_MAX: u32 = 1_000_000;
/// Units that are under way between two stores.
const UNITS_MAX: usize = 256;
/// Units of which a queue takes no message now, and which keep no others waiting.
const REFUSED_MAX: usize = 1_024;
/// How often these are tried again.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// The version of a header.
const VERSION: u8 = 1;
/// Bytes of a header before the queue's name.
const HEADER_BYTES: usize = 20;

/// Whether a message asks to be told what becomes of it.
pub(super) type Asks = Option<fn(&Chunks) -> bool>;

/// The way from one store to another.
pub(super) struct Way {
    from: StoreNumber,
    to: StoreNumber,
    /// Where messages wait, in the first store.
    pub(super) queue: QueueId,
    /// What the names of the notes in the second store begin with.
    notes: String,
    /// Units that the second store has got, the oldest first.
    under_way: VecDeque<Unit>,
    /// Units that were refused, in their order; their messages are locked.
    refused: Vec<Refused>,
    retry_at: Option<Instant>,
}

/// Messages that are put together.
struct Unit {
    ids: Vec<MessageId>,
    note: Option<String>,
    stage: Stage,
}

/// A unit of which a queue takes no message now, and what is behind it for one of the same queues.
struct Refused {
    ids: Vec<MessageId>,
    queues: Vec<QueueId>,
}

enum Stage {
    /// They are in the second store, and durable there once it has synced that.
    Put(Ticket),
    /// They are no longer in the first one.
    Removed(Ticket),
}

/// Why a unit does not go on now.
enum NotYet {
    /// The second store's journal takes nothing, or the first one has to read first: what is behind it waits, too.
    All,
    /// One of its queues does not take its message, or one before it waits for that.
    Unit(Vec<QueueId>),
    /// It can't be read: it stays as it is until an operator has looked.
    Never,
}

/// Whether messages wait on the queue of that name on their way from one store to another.
pub(super) fn is_way(queue: &str) -> bool {
    queue.starts_with(QUEUE_PREFIX)
}

impl Way {
    /// The way between two stores that have been opened. What notes there are of units that were removed is removed.
    pub(super) fn new(from: &mut Store, to: &mut Store) -> Result<Self, JournalError> {
        let name = format!("{QUEUE_PREFIX}{}", identity(to));
        let attributes = QueueAttributes {
            max_depth: DEPTH_MAX,
            max_message_bytes: MESSAGE_BYTES_MAX,
            delivery_sequence: DeliverySequence::Fifo,
            ..QueueAttributes::default()
        };
        let failed = |reason: String| JournalError::Failed { reason };
        let queue = from.define(&name, attributes).map_err(|error| failed(error.to_string()))?;
        let notes = format!("{NOTE_PREFIX}{}/", identity(from));
        let is_over = |name: &&str| {
            let number = name.strip_prefix(&notes).and_then(|number| number.parse().ok());
            number.is_none_or(|number| from.find(MessageId::new(from.number(), number)).is_none())
        };
        let over: Vec<String> = to.notes(&notes).map(|(name, _)| name).filter(is_over).map(str::to_owned).collect();
        if !over.is_empty() {
            let gone: Vec<(&str, Option<&[u8]>)> = over.iter().map(|name| (name.as_str(), None)).collect();
            to.commit(Vec::new(), &[], &gone).map_err(|error| failed(error.to_string()))?;
        }
        let (from, to) = (from.number(), to.number());
        Ok(Self { from, to, queue, notes, under_way: VecDeque::new(), refused: Vec::new(), retry_at: None })
    }

    pub(super) fn is(&self, from: StoreNumber, to: StoreNumber) -> bool {
        (self.from, self.to) == (from, to)
    }

    /// Its two stores, by number.
    pub(super) fn ends(&self) -> (StoreNumber, StoreNumber) {
        (self.from, self.to)
    }

    /// Has units go on as far as they can. Whether either store has something to write.
    pub(super) fn go_on(&mut self, from: &mut Store, to: &mut Store, asks: Asks, now: Instant, now_ms: u64) -> bool {
        let mut did = self.finish(from, to);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            for Refused { ids, .. } in std::mem::take(&mut self.refused) {
                did |= self.begin(ids, from, to, asks, now).is_some_and(|put| put);
            }
        }
        while self.under_way.len() < UNITS_MAX && self.refused.len() < REFUSED_MAX {
            let Some(ids) = self.next(from, now_ms) else { break };
            let Some(put) = self.begin(ids, from, to, asks, now) else { break };
            did |= put;
        }
        did
    }

    /// Removes what the second store has, and then the notes of that.
    fn finish(&mut self, from: &mut Store, to: &mut Store) -> bool {
        let mut did = false;
        for unit in &mut self.under_way {
            if let Stage::Put(ticket) = unit.stage
                && to.is_synced(ticket)
                && let Ok(ticket) = from.commit(Vec::new(), &unit.ids, &[])
            {
                unit.stage = Stage::Removed(ticket);
                did = true;
            }
        }
        self.under_way.retain(|unit| {
            let Stage::Removed(ticket) = unit.stage else { return true };
            if !from.is_synced(ticket) {
                return true;
            }
            let Some(note) = &unit.note else { return false };
            let is_gone = to.commit(Vec::new(), &[], &[(note.as_str(), None)]).is_ok();
            did |= is_gone;
            !is_gone
        });
        did
    }

    /// Locks the messages of the next unit.
    fn next(&self, from: &mut Store, now_ms: u64) -> Option<Vec<MessageId>> {
        let mut ids = Vec::new();
        let away = loop {
            let Some(found) = from.lock_next(self.queue, None, now_ms) else { break None };
            match from.head(found.id, HEADER_BYTES) {
                Err(ReadError::Away { .. }) => break Some(found.id),
                head => {
                    ids.push(found.id);
                    // What can't be read, or is not of this version, ends a unit.
                    if !head.is_ok_and(|(head, _)| Header::goes_on(&head)) {
                        return Some(ids);
                    }
                }
            }
        };
        match away {
            Some(id) => from.set_aside(id),
            None if ids.is_empty() => return None,
            None => {}
        }
        ids.into_iter().for_each(|id| from.release(id, false));
        None
    }

    /// Puts a unit's messages, which are locked in the first store, in the second one. Whether that was done; none
    /// where no other unit is to be tried now, either.
    fn begin(
        &mut self,
        ids: Vec<MessageId>,
        from: &mut Store,
        to: &mut Store,
        asks: Asks,
        now: Instant,
    ) -> Option<bool> {
        let note = ids.first().map(|id| format!("{}{}", self.notes, id.number())).unwrap_or_default();
        let put = match to.note(&note) {
            // It was put before the last start.
            Some(_) => Ok((Ticket::NOW, Some(note))),
            None => self.read(&ids, from, to).and_then(|puts| self.put(puts, note, to, asks)),
        };
        match put {
            Ok((ticket, note)) => {
                self.under_way.push_back(Unit { ids, note, stage: Stage::Put(ticket) });
                Some(true)
            }
            Err(NotYet::Unit(queues)) => {
                self.refused.push(Refused { ids, queues });
                self.retry_at.get_or_insert(now + RETRY_EVERY);
                Some(false)
            }
            Err(NotYet::Never) => Some(false),
            Err(NotYet::All) => {
                ids.into_iter().for_each(|id| from.release(id, false));
                None
            }
        }
    }

    /// A unit's messages as they were. One whose queue is gone is left out: its subscription is over.
    fn read(&self, ids: &[MessageId], from: &mut Store, to: &Store) -> Result<Vec<(QueueId, Message)>, NotYet> {
        let mut puts = Vec::with_capacity(ids.len());
        for id in ids {
            let Some((_, found)) = from.find(*id) else { continue };
            let body = from.body(*id).map_err(|error| match error {
                ReadError::Away { .. } => NotYet::All,
                error => {
                    crate::warning!("a message between two stores can't be read, and stays: {error}");
                    NotYet::Never
                }
            })?;
            let keys = from.needed_keys(found.id).unwrap_or(Keys::Unknown);
            let Some((queue, message)) = Header::take_off(&body, &found, keys) else {
                crate::warning!("a message between two stores has no header of this version, and stays");
                return Err(NotYet::Never);
            };
            if let Some(queue) = to.queue(&queue) {
                puts.push((queue, message));
            }
        }
        Ok(puts)
    }

    /// Puts what was read, with a note where any of it is to outlive a crash.
    fn put(
        &self,
        puts: Vec<(QueueId, Message)>,
        note: String,
        to: &mut Store,
        asks: Asks,
    ) -> Result<(Ticket, Option<String>), NotYet> {
        let queues: Vec<QueueId> = puts.iter().map(|(queue, _)| *queue).collect();
        if self.refused.iter().any(|refused| refused.queues.iter().any(|queue| queues.contains(queue))) {
            return Err(NotYet::Unit(queues));
        }
        let note = puts.iter().any(|(_, message)| message.persistent).then_some(note);
        let asking: Vec<bool> = puts.iter().map(|(_, message)| asks.is_some_and(|asks| asks(&message.body))).collect();
        let first = to.newest().0 + 1;
        let noted: Vec<(&str, Option<&[u8]>)> = note.iter().map(|note| (note.as_str(), Some(&[][..]))).collect();
        let ticket = to.commit(puts, &[], &noted).map_err(|error| match error {
            PutError::Journal(_) | PutError::NotesFull { .. } => NotYet::All,
            _ => NotYet::Unit(queues),
        })?;
        let asking = (first..).zip(asking).filter(|(_, asks)| *asks);
        asking.for_each(|(id, _)| to.mark(MessageId(id), None));
        Ok((ticket, note))
    }
}

/// What stands before a message that is on its way.
struct Header;

impl Header {
    /// A message as it waits for another store; `goes_on` where the next one is of the same unit.
    fn put_on(queue: &str, message: Message, goes_on: bool) -> Message {
        let mut header = Vec::with_capacity(HEADER_BYTES + queue.len());
        header.extend_from_slice(&[VERSION, u8::from(goes_on)]);
        header.extend_from_slice(&(queue.len() as u16).to_le_bytes());
        header.extend_from_slice(&message.expires_at_ms.unwrap_or(u64::MAX).to_le_bytes());
        header.extend_from_slice(&message.available_at_ms.unwrap_or(0).to_le_bytes());
        header.extend_from_slice(queue.as_bytes());
        let chunks: Vec<Bytes> = std::iter::once(header.into()).chain(message.body.chunks().iter().cloned()).collect();
        // It expires, and is held back, where it is got.
        Message { body: chunks.into(), expires_at_ms: None, available_at_ms: None, ..message }
    }

    fn goes_on(head: &Chunks) -> bool {
        let first = head.chunks().first();
        first.is_some_and(|head| head.first() == Some(&VERSION) && head.get(1) == Some(&1))
    }

    /// The queue's name and the message as it was.
    fn take_off(body: &Chunks, found: &Found, keys: Keys) -> Option<(String, Message)> {
        let (first, rest) = body.chunks().split_first()?;
        let fixed: &[u8; HEADER_BYTES] = first.first_chunk()?;
        let [version, _, len @ ..] = fixed;
        let (len, times) = len.split_first_chunk::<2>()?;
        let (expires, available) = times.split_first_chunk::<8>()?;
        let end = HEADER_BYTES + usize::from(u16::from_le_bytes(*len));
        let queue = std::str::from_utf8(first.get(HEADER_BYTES..end)?).ok().filter(|_| *version == VERSION)?;
        let time = |bytes: [u8; 8], none: u64| Some(u64::from_le_bytes(bytes)).filter(|time| *time != none);
        let of_first = std::iter::once(first.slice(end..)).filter(|left| !left.is_empty());
        let chunks: Vec<Bytes> = of_first.chain(rest.iter().cloned()).collect();
        let message = Message {
            keys,
            priority: found.priority,
            persistent: found.persistent,
            expires_at_ms: time(*expires, u64::MAX),
            available_at_ms: time(*available.first_chunk()?, 0),
            put_at_ms: found.put_at_ms,
            user: found.user.clone(),
            body: chunks.into(),
        };
        Some((queue.to_owned(), message))
    }
}

/// What of a unit's puts is for other stores than `home` is put on the way there.
pub(super) fn send_on(
    home: StoreNumber,
    puts: Vec<(QueueId, Message)>,
    way: impl Fn(StoreNumber) -> Option<QueueId>,
    name: impl Fn(QueueId) -> Option<String>,
) -> Result<Vec<(QueueId, Message)>, PutError> {
    let mut last: Vec<(StoreNumber, usize)> = Vec::new();
    for (at, (queue, _)) in puts.iter().enumerate() {
        last.retain(|(store, _)| *store != queue.store());
        last.push((queue.store(), at));
    }
    let send = |(at, (queue, message)): (usize, (QueueId, Message))| {
        let store = queue.store();
        if store == home {
            return Ok((queue, message));
        }
        let (way, name) = way(store).zip(name(queue)).ok_or(PutError::Unknown)?;
        Ok((way, Header::put_on(&name, message, !last.contains(&(store, at)))))
    };
    puts.into_iter().enumerate().map(send).collect()
}

/// What a store is known by to others.
fn identity(store: &Store) -> String {
    store.identity().map_or_else(|| "unknown".to_owned(), |identity| base16ct::lower::encode_string(&identity))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

    use super::*;
    use crate::stores::{NamedStore, Stores};
    use bulla_queue::sim::{Manner, SimDisk, SimEngine};
    use bulla_queue::{FileSpill, Limits};

    fn opened(place: usize) -> Store {
        let (number, now) = (StoreNumber::new(place).unwrap(), Instant::now());
        let spill = Box::new(FileSpill::open(SimDisk::default(), 10_000).unwrap());
        let log = Box::new(SimEngine::default().log(Manner::Prompt));
        let mut store = Store::open_numbered(number, log, spill, Limits::default(), now).unwrap();
        store.ensure_identity([place as u8; 16], now).unwrap();
        store
    }

    fn message(number: u8) -> Message {
        Message::new(true, vec![number].into())
    }

    fn lying_on(stores: &mut Stores, queue: QueueId) -> Vec<u8> {
        let (mut numbers, mut after) = (Vec::new(), None);
        while let Some(found) = stores.browse_next(queue, after, 0) {
            numbers.extend_from_slice(&stores.body(found.id).unwrap().to_bytes());
            after = Some(found.place);
        }
        numbers
    }

    #[test]
    fn a_full_queue_keeps_only_units_waiting_that_are_for_it_or_behind_such() {
        let mut shared = opened(1);
        let small = QueueAttributes { max_depth: 1, ..QueueAttributes::default() };
        let [full, beside, apart] = [("FULL", small), ("BESIDE", QueueAttributes::default()), ("APART", small)]
            .map(|(name, attributes)| shared.define(name, attributes).unwrap());
        let further = vec![NamedStore { name: "GROUP".into(), store: shared }];
        let mut stores = Stores::new(opened(0), further).unwrap();
        let units: [&[QueueId]; 4] = [&[full, beside], &[full, beside], &[beside], &[apart]];
        for (number, queues) in units.into_iter().enumerate() {
            let puts = queues.iter().map(|queue| (*queue, message(number as u8))).collect();
            stores.commit_from(StoreNumber::LOCAL, puts, &[], &[]).unwrap();
        }
        let now = Instant::now();
        stores.sync(now).unwrap();
        (0..4).for_each(|_| stores.poll(now).unwrap());
        let lying = |stores: &mut Stores| [full, beside, apart].map(|queue| lying_on(stores, queue));
        assert_eq!(lying(&mut stores), [vec![0], vec![0], vec![3]]);
        let got = stores.lock_next(full, None, 0).unwrap();
        stores.acknowledge(got.id).unwrap();
        (0..4).for_each(|_| stores.poll(now).unwrap());
        assert_eq!(lying(&mut stores), [vec![], vec![0], vec![3]], "not before its time");
        (0..4).for_each(|_| stores.poll(now + RETRY_EVERY).unwrap());
        assert_eq!(lying(&mut stores), [vec![1], vec![0, 1, 2], vec![3]]);
        assert_eq!(stores.on_the_way(), 0);
    }

    #[test]
    fn a_message_is_the_same_when_its_header_is_off_again() {
        let was = Message { expires_at_ms: Some(7), available_at_ms: Some(5), ..message(1) };
        let mut store = opened(0);
        let queue = store.define("Q", QueueAttributes::default()).unwrap();
        store.put(queue, Header::put_on("ORDERS", was, true)).unwrap();
        store.sync(Instant::now()).unwrap();
        let found = store.lock_next(queue, None, u64::MAX - 1).unwrap();
        let body = store.body(found.id).unwrap();
        assert!(Header::goes_on(&body));
        let whole = Chunks::from(body.to_bytes());
        for body in [body, whole.clone()] {
            let (queue, message) = Header::take_off(&body, &found, Keys::Unknown).unwrap();
            assert_eq!((queue.as_str(), message.expires_at_ms, message.available_at_ms), ("ORDERS", Some(7), Some(5)));
            assert_eq!((message.persistent, message.body), (true, vec![1].into()));
            assert_eq!(message.keys, Keys::Unknown);
        }
        for end in 0..HEADER_BYTES + 6 {
            let cut = Chunks::from(whole.to_bytes().slice(..end));
            assert!(Header::take_off(&cut, &found, Keys::None).is_none(), "{end} bytes");
        }
    }
}
