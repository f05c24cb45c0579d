//! The stores of a queue manager, by name: the local one, and those of groups that it shares.
//!
//! A queue lies in one store and is found through its name. Each store has its own log, tickets, waiting commits and
//! limits. Ids and tickets carry their store's number ([`StoreNumber`]), so what is asked of them goes to the right one
//! by a compare. All are under one lock, which is held for no disk and no network; a store whose log is slow keeps only
//! those waiting who wait for it.

mod error;
mod handover;
mod left;
mod per_store;

use crate::mqsc::kept;
use bulla_queue::{
    Arrivals, Backlog, Chunks, Crossing, Cursor, DefineError, DefinitionUnit, Expired, Found, IDENTITY_BYTES,
    JournalError, KeyUse, Keys, KeysOf, LogStatus, Look, Looked, Marker, Message, MessageId, Place, PutError,
    QueueAttributes, QueueId, QueueStatus, ReadError, RemoveError, Replaced, ScratchTotals, Seen, Store, StoreNumber,
    Ticket, Totals,
};
pub use error::StoresError;
use handover::{Asks, Way};
pub use left::LeftStores;
pub use per_store::{PerStore, Tickets};
use std::fmt;
use std::time::Instant;

/// The name of the store that is always there.
pub const LOCAL_STORE: &str = "LOCAL";

/// A store beside the local one.
pub struct NamedStore {
    /// Its name.
    pub name: String,
    /// The store, opened under its number: 1 for the first one, and so on.
    pub store: Store,
}

/// The stores.
pub struct Stores {
    local: Store,
    /// By their numbers, from 1 on; none where a store has left.
    further: Vec<Option<NamedStore>>,
    /// Stores whose logs take nothing more, and why.
    failed: Vec<(StoreNumber, JournalError)>,
    /// How it is found out which keys a message needs.
    keys_of: Option<fn(&Chunks) -> Keys>,
    /// From each store to each other one.
    ways: Vec<Way>,
    /// Where messages wait in further stores for others, those of other queue managers included.
    waiting_places: Vec<QueueId>,
    /// Whether a message asks to be told what becomes of it.
    asks: Asks,
    /// The wall clock as it was read last, in milliseconds since 1970.
    wall_ms: u64,
}

impl From<Store> for Stores {
    fn from(local: Store) -> Self {
        Self {
            local,
            further: Vec::new(),
            failed: Vec::new(),
            keys_of: None,
            ways: Vec::new(),
            waiting_places: Vec::new(),
            asks: None,
            wall_ms: 0,
        }
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.numbered().map(|(_, name, store)| (name, store))).finish()
    }
}

impl Stores {
    /// The local store and `further` ones.
    ///
    /// # Errors
    /// Two of them have a name, a queue or an object of a definition in common, or a number is not that of its place.
    pub fn new(local: Store, further: Vec<NamedStore>) -> Result<Self, StoresError> {
        let mut stores = Self::from(local);
        further.into_iter().try_for_each(|further| stores.join(further).map(drop))?;
        Ok(stores)
    }

    /// The number that a further store is to be opened under; none where there are as many as there may be. Those in
    /// `kept` are not free yet, though their stores have left.
    pub fn free_number(&self, kept: &[StoreNumber]) -> Option<StoreNumber> {
        (1..).map_while(StoreNumber::new).find(|number| !self.is_there(*number) && !kept.contains(number))
    }

    /// Whether there is a store of that number.
    pub fn is_there(&self, number: StoreNumber) -> bool {
        match number.place().checked_sub(1) {
            None => true,
            Some(place) => self.further.get(place).is_some_and(Option::is_some),
        }
    }

    /// A further store is there from now on.
    ///
    /// # Errors
    /// Its name, its number, a queue or an object of a definition is in use; a journal takes nothing. It is closed
    /// then.
    pub fn join(&mut self, mut further: NamedStore) -> Result<StoreNumber, StoresError> {
        self.check(&further)?;
        let number = further.store.number();
        if let Some(asks) = self.asks {
            further.store.tell_marks_by(asks);
        }
        if let Some(keys_of) = self.keys_of {
            further.store.tell_keys_by(keys_of);
        }
        let others: Vec<StoreNumber> = self.all().map(Store::number).collect();
        let place = number.place() - 1;
        if self.further.len() <= place {
            self.further.resize_with(place + 1, || None);
        }
        self.further[place] = Some(further);
        let joined =
            others.into_iter().flat_map(|other| [(other, number), (number, other)]).try_for_each(|(from, to)| {
                let Some((from, to)) = self.two(from, to) else { return Ok(()) };
                let way = Way::new(from, to)?;
                self.ways.push(way);
                Ok(())
            });
        joined.map_err(|error| {
            self.leave(number);
            StoresError::Journal { error }
        })?;
        let places = self.of(number).queues().filter(|(_, name)| handover::is_way(name)).map(|(queue, _)| queue);
        let places: Vec<QueueId> = places.collect();
        self.waiting_places.extend(places);
        Ok(number)
    }

    /// A further store is not there any more, nor its queues. What is asked of them from now on is asked of queues that
    /// are nowhere, and its tickets are never synced. None where there was none.
    pub fn leave(&mut self, number: StoreNumber) -> Option<NamedStore> {
        let left = self.further.get_mut(number.place().checked_sub(1)?)?.take();
        self.ways.retain(|way| way.ends().0 != number && way.ends().1 != number);
        self.waiting_places.retain(|queue| queue.store() != number);
        self.failed.retain(|(failed, _)| *failed != number);
        left
    }

    /// Stores whose logs take nothing more since this was asked last, and why: another queue manager owns them now, or
    /// they failed. The local one is not among them.
    pub fn take_failed(&mut self) -> Vec<(StoreNumber, JournalError)> {
        std::mem::take(&mut self.failed)
    }

    /// Messages that wait in one store for another, and notes of such that are not removed yet.
    pub fn on_the_way(&self) -> usize {
        let depth = |way: &Way| self.status(way.queue).map_or(0, |status| status.depth as usize);
        let notes = self.all().map(|store| store.notes(handover::NOTE_PREFIX).count());
        self.ways.iter().map(depth).chain(notes).sum()
    }

    /// Messages of a further store that wait for queues of other ones: of this queue manager's, or another one's that
    /// has owned it before.
    pub fn waiting_for_others(&self, number: StoreNumber) -> u64 {
        let places = self.waiting_places.iter().filter(|queue| queue.store() == number);
        places.filter_map(|queue| self.status(*queue)).map(|status| u64::from(status.depth)).sum()
    }

    /// Two stores at once.
    fn two(&mut self, first: StoreNumber, second: StoreNumber) -> Option<(&mut Store, &mut Store)> {
        let Self { local, further, .. } = self;
        let mut found = [None, None];
        for store in std::iter::once(local).chain(further.iter_mut().flatten().map(|further| &mut further.store)) {
            match store.number() {
                number if number == first => found[0] = Some(store),
                number if number == second => found[1] = Some(store),
                _ => {}
            }
        }
        let [first, second] = found;
        first.zip(second)
    }

    /// What a further store has in common with those that are there.
    fn check(&self, further: &NamedStore) -> Result<(), StoresError> {
        let NamedStore { name, store } = further;
        if self.numbered().any(|(_, known, _)| known == name) {
            return Err(StoresError::Name { name: name.clone() });
        }
        if self.is_there(store.number()) {
            return Err(StoresError::Number { name: name.clone(), number: store.number().place() });
        }
        for (_, known, other) in self.numbered() {
            let stores = || [known.to_owned(), name.clone()];
            let is_shared = |queue: &&str| other.queue(queue).is_some() && !handover::is_way(queue);
            if let Some(queue) = store.queues().map(|(_, queue)| queue).find(is_shared) {
                return Err(StoresError::Queue { queue: queue.to_owned(), stores: stores() });
            }
            if let Some(object) = store.object_names().find(|object| other.has_object(object)) {
                return Err(StoresError::Object { object: object.to_owned(), stores: stores() });
            }
        }
        Ok(())
    }

    /// All stores, the local one first.
    fn numbered(&self) -> impl Iterator<Item = (StoreNumber, &str, &Store)> {
        let there = self.further.iter().flatten();
        let further = there.map(|further| (further.store.number(), further.name.as_str(), &further.store));
        std::iter::once((StoreNumber::LOCAL, LOCAL_STORE, &self.local)).chain(further)
    }

    fn all(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(&self.local).chain(self.further.iter().flatten().map(|further| &further.store))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Store> {
        std::iter::once(&mut self.local).chain(self.further.iter_mut().flatten().map(|further| &mut further.store))
    }

    /// The store of that number. What carries the number of none is unknown to the local one, too.
    fn of(&self, number: StoreNumber) -> &Store {
        match number.place().checked_sub(1) {
            None => &self.local,
            Some(place) => self.further_at(place),
        }
    }

    fn of_mut(&mut self, number: StoreNumber) -> &mut Store {
        match number.place().checked_sub(1) {
            None => &mut self.local,
            Some(place) => self.further_at_mut(place),
        }
    }

    #[cold]
    fn further_at(&self, place: usize) -> &Store {
        self.further.get(place).and_then(Option::as_ref).map_or(&self.local, |further| &further.store)
    }

    #[cold]
    fn further_at_mut(&mut self, place: usize) -> &mut Store {
        self.further.get_mut(place).and_then(Option::as_mut).map_or(&mut self.local, |further| &mut further.store)
    }

    /// Whether there is more than the local store.
    pub fn are_several(&self) -> bool {
        self.further.iter().any(Option::is_some)
    }

    /// The store of that name, if it is there.
    pub fn store_named(&self, name: &str) -> Option<StoreNumber> {
        self.numbered().find(|(_, known, _)| *known == name).map(|(number, ..)| number)
    }

    /// The store of that number, if it is there.
    pub fn store(&self, number: StoreNumber) -> Option<&Store> {
        self.is_there(number).then(|| self.of(number))
    }

    /// The name of a store.
    pub fn store_name(&self, number: StoreNumber) -> &str {
        let further = number.place().checked_sub(1).and_then(|place| self.further.get(place)?.as_ref());
        further.map_or(LOCAL_STORE, |further| &further.name)
    }

    /// As [`Store::log_status`]; none where there is no store of that number.
    pub fn log_status(&self, number: StoreNumber) -> Option<LogStatus> {
        self.is_there(number).then(|| self.of(number).log_status())
    }

    // ---- queues

    /// Creates a queue in the local store, or applies the attributes to the one of that name, wherever it lies.
    ///
    /// # Errors
    /// As [`Store::define`].
    pub fn define(&mut self, name: &str, attributes: QueueAttributes) -> Result<QueueId, DefineError> {
        let store = self.queue(name).map_or(StoreNumber::LOCAL, QueueId::store);
        self.of_mut(store).define(name, attributes)
    }

    /// As [`Store::alter`].
    ///
    /// # Errors
    /// As [`Store::alter`].
    pub fn alter(&mut self, queue: QueueId, attributes: QueueAttributes) -> Result<(), DefineError> {
        self.of_mut(queue.store()).alter(queue, attributes)
    }

    /// As [`Store::delete`].
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete(&mut self, queue: QueueId, purge: bool) -> Result<Ticket, DefineError> {
        self.of_mut(queue.store()).delete(queue, purge)
    }

    /// As [`Store::clear`].
    ///
    /// # Errors
    /// As [`Store::clear`].
    pub fn clear(&mut self, queue: QueueId) -> Result<Ticket, DefineError> {
        self.of_mut(queue.store()).clear(queue)
    }

    /// The queue of that name. One look-up where it is local.
    pub fn queue(&self, name: &str) -> Option<QueueId> {
        self.all().find_map(|store| store.queue(name))
    }

    /// All queues that can be named, in no order.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &str)> {
        self.all().flat_map(Store::queues).filter(|(_, name)| !handover::is_way(name))
    }

    /// The queues of a store that can be named, in no order.
    pub fn queues_of(&self, number: StoreNumber) -> impl Iterator<Item = (QueueId, &str)> {
        self.queues().filter(move |(queue, _)| queue.store() == number)
    }

    /// Whether messages wait there on their way to another store, this queue manager's or another one's.
    fn is_way(&self, queue: QueueId) -> bool {
        self.name(queue).is_some_and(handover::is_way)
    }

    /// As [`Store::name`].
    pub fn name(&self, queue: QueueId) -> Option<&str> {
        self.of(queue.store()).name(queue)
    }

    /// As [`Store::attributes`].
    pub fn attributes(&self, queue: QueueId) -> Option<&QueueAttributes> {
        self.of(queue.store()).attributes(queue)
    }

    /// As [`Store::status`].
    pub fn status(&self, queue: QueueId) -> Option<QueueStatus> {
        self.of(queue.store()).status(queue)
    }

    /// As [`Store::counted`].
    pub fn counted(&self, queue: QueueId) -> u32 {
        self.of(queue.store()).counted(queue)
    }

    /// What went through all queues of all stores.
    pub fn totals(&self) -> Totals {
        let sum = |sum: Totals, next: Totals| {
            let (scratch, more) = (sum.scratch, next.scratch);
            Totals {
                puts: sum.puts + next.puts,
                gets: sum.gets + next.gets,
                scratch: ScratchTotals {
                    messages: scratch.messages + more.messages,
                    bytes: scratch.bytes + more.bytes,
                    used: scratch.used + more.used,
                    wait: scratch.wait + more.wait,
                },
            }
        };
        self.all().map(Store::totals).fold(Totals::default(), sum)
    }

    // ---- definitions

    /// The store that an object's definition lies in, or would: that of the queue which it is about.
    pub fn store_of_object(&self, object: &str) -> StoreNumber {
        if !self.are_several() {
            return StoreNumber::LOCAL;
        }
        let there = self.all().find(|store| store.has_object(object)).map(Store::number);
        let queue = || kept::queue_of(object).and_then(|queue| self.queue(queue)).map(QueueId::store);
        there.or_else(queue).unwrap_or(StoreNumber::LOCAL)
    }

    /// Carries out a unit of definitions, all of them in one store. Notes are the local store's, and where that is
    /// another one its commit is the first.
    ///
    /// # Errors
    /// As [`Store::commit_definitions`]; notes in another store may have changed then.
    pub fn commit_definitions(&mut self, home: StoreNumber, unit: &DefinitionUnit<'_>) -> Result<Tickets, DefineError> {
        if home == StoreNumber::LOCAL {
            return self.local.commit_definitions(unit).map(Tickets::from);
        }
        let mut tickets = Tickets::default();
        if !unit.notes.is_empty() {
            let notes = DefinitionUnit { queues: &[], objects: &[], notes: unit.notes, reserve: unit.reserve };
            tickets.add(self.local.commit_definitions(&notes)?);
        }
        let unit = DefinitionUnit { queues: unit.queues, objects: unit.objects, notes: &[], reserve: unit.reserve };
        tickets.add(self.of_mut(home).commit_definitions(&unit)?);
        Ok(tickets)
    }

    /// How many objects are defined.
    pub fn objects(&self) -> usize {
        self.all().map(Store::objects).sum()
    }

    /// Whether an object is defined.
    pub fn has_object(&self, name: &str) -> bool {
        self.all().any(|store| store.has_object(name))
    }

    /// As [`Store::read_objects`], of all stores.
    ///
    /// # Errors
    /// As [`Store::read_objects`].
    pub fn read_objects(&mut self, each: &mut dyn FnMut(&str, &[u8])) -> Result<(), (String, ReadError)> {
        self.all_mut().try_for_each(|store| store.read_objects(each))
    }

    // ---- messages

    /// Whether messages of a queue may be sent to others now, as [`Store::may_send`] has it. A compare where it is
    /// local.
    pub fn may_send(&mut self, queue: QueueId) -> bool {
        queue.store() == StoreNumber::LOCAL || self.of_mut(queue.store()).may_send(queue)
    }

    /// As [`Store::put`].
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put(&mut self, queue: QueueId, message: Message) -> Result<Ticket, PutError> {
        self.of_mut(queue.store()).put(queue, message)
    }

    /// As [`Store::admits`].
    ///
    /// # Errors
    /// As [`Store::admits`].
    pub fn admits(&self, queue: QueueId, message: &Message, before: usize) -> Result<(), PutError> {
        self.of(queue.store()).admits(queue, message, before)
    }

    /// As [`Store::room`].
    pub fn room(&self, queue: QueueId) -> u32 {
        self.of(queue.store()).room(queue)
    }

    /// As [`Store::depth_room`].
    pub fn depth_room(&self, queue: QueueId) -> u32 {
        self.of(queue.store()).depth_room(queue)
    }

    /// How much waits for the disk of a queue's store; with no queue, of the store that has most to wait for.
    pub fn backlog(&self, queue: Option<QueueId>) -> Backlog {
        match queue {
            Some(queue) => self.of(queue.store()).backlog(),
            None if !self.are_several() => self.local.backlog(),
            None => self.all().map(Store::backlog).max().unwrap_or(Backlog::Usual),
        }
    }

    /// The message that was put last in a store.
    pub fn newest(&self, store: StoreNumber) -> MessageId {
        self.of(store).newest()
    }

    /// As [`Store::lock_next`].
    pub fn lock_next(&mut self, queue: QueueId, after: Option<Place>, now_ms: u64) -> Option<Found> {
        self.of_mut(queue.store()).lock_next(queue, after, now_ms)
    }

    /// As [`Store::lock`].
    pub fn lock(&mut self, id: MessageId) -> Option<Found> {
        self.of_mut(id.store()).lock(id)
    }

    /// As [`Store::browse_next`].
    pub fn browse_next(&self, queue: QueueId, after: Option<Place>, now_ms: u64) -> Option<Found> {
        self.of(queue.store()).browse_next(queue, after, now_ms)
    }

    /// As [`Store::body`].
    ///
    /// # Errors
    /// As [`Store::body`].
    pub fn body(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        self.of_mut(id.store()).body(id)
    }

    /// As [`Store::body_now`].
    ///
    /// # Errors
    /// As [`Store::body_now`].
    pub fn body_now(&mut self, id: MessageId) -> Result<Chunks, ReadError> {
        self.of_mut(id.store()).body_now(id)
    }

    /// As [`Store::head`].
    ///
    /// # Errors
    /// As [`Store::head`].
    pub fn head(&mut self, id: MessageId, bytes: usize) -> Result<(Chunks, bool), ReadError> {
        self.of_mut(id.store()).head(id, bytes)
    }

    /// As [`Store::set_aside`].
    pub fn set_aside(&mut self, id: MessageId) {
        self.of_mut(id.store()).set_aside(id);
    }

    /// As [`Store::find`].
    pub fn find(&self, id: MessageId) -> Option<(QueueId, Found)> {
        self.of(id.store()).find(id)
    }

    /// As [`Store::put_at_ms`].
    pub fn put_at_ms(&self, id: MessageId) -> Option<u64> {
        self.of(id.store()).put_at_ms(id)
    }

    /// As [`Store::is_locked`].
    pub fn is_locked(&self, id: MessageId) -> bool {
        self.of(id.store()).is_locked(id)
    }

    /// As [`Store::acknowledge`].
    ///
    /// # Errors
    /// As [`Store::acknowledge`].
    pub fn acknowledge(&mut self, id: MessageId) -> Result<Ticket, RemoveError> {
        self.of_mut(id.store()).acknowledge(id)
    }

    /// As [`Store::lying`].
    pub fn lying(&self, queue: QueueId, after: Option<Place>) -> impl Iterator<Item = (Found, bool)> + '_ {
        self.of(queue.store()).lying(queue, after)
    }

    /// As [`Store::replace`].
    ///
    /// # Errors
    /// As [`Store::replace`].
    pub fn replace(&mut self, id: MessageId, body: Chunks, keys: &Keys) -> Result<Replaced, PutError> {
        self.of_mut(id.store()).replace(id, body, keys)
    }

    /// As [`Store::release`].
    pub fn release(&mut self, id: MessageId, failed: bool) {
        self.of_mut(id.store()).release(id, failed);
    }

    /// As [`Store::release_failed`].
    pub fn release_failed(&mut self, id: MessageId, times: u32) {
        self.of_mut(id.store()).release_failed(id, times);
    }

    /// As [`Store::release_unheard`].
    pub fn release_unheard(&mut self, id: MessageId, cursor: &mut Cursor) {
        self.of_mut(id.store()).release_unheard(id, cursor);
    }

    /// As [`Store::transfer`]. A message for a queue of another store goes on from there.
    ///
    /// # Errors
    /// As [`Store::transfer`].
    pub fn transfer(&mut self, id: MessageId, to: QueueId, mut replacement: Message) -> Result<Ticket, PutError> {
        if to.store() == id.store() {
            return self.of_mut(id.store()).transfer(id, to, replacement);
        }
        self.admits(to, &replacement, 0)?;
        let (_, found) = self.find(id).ok_or(PutError::NotLocked { id })?;
        replacement.persistent |= found.persistent;
        if replacement.keys == Keys::None {
            replacement.keys = self.needed_keys(id).unwrap_or_default();
        }
        self.commit_from(id.store(), vec![(to, replacement)], &[id], &[])
    }

    /// As [`Store::commit`], in the store that the first put goes to, or the first removal; where there is neither, in
    /// the local one.
    ///
    /// # Errors
    /// As [`Store::commit`]; [`PutError::OtherStore`] where not all of it is of that store.
    pub fn commit(
        &mut self,
        puts: Vec<(QueueId, Message)>,
        removals: &[MessageId],
        notes: &[(&str, Option<&[u8]>)],
    ) -> Result<Ticket, PutError> {
        let put = puts.first().map(|(queue, _)| queue.store());
        let store = put.or_else(|| removals.first().map(|id| id.store())).unwrap_or(StoreNumber::LOCAL);
        self.of_mut(store).commit(puts, removals, notes)
    }

    /// As [`Store::commit`], in one store. What is put on queues of other ones goes on from there: all of it for one
    /// store together, once, and whatever happens. It is on those queues some time after the ticket is synced.
    ///
    /// # Errors
    /// As [`Store::commit`]; [`PutError::OtherStore`] where not all removals are of that store, and
    /// [`PutError::Unknown`] where there is none of that number.
    pub fn commit_from(
        &mut self,
        store: StoreNumber,
        puts: Vec<(QueueId, Message)>,
        removals: &[MessageId],
        notes: &[(&str, Option<&[u8]>)],
    ) -> Result<Ticket, PutError> {
        if !self.is_there(store) {
            return Err(PutError::Unknown);
        }
        let puts = match self.are_several() {
            false => puts,
            true => {
                let way = |to| self.ways.iter().find(|way| way.is(store, to)).map(|way| way.queue);
                handover::send_on(store, puts, way, |queue| self.name(queue).map(str::to_owned))?
            }
        };
        self.of_mut(store).commit(puts, removals, notes)
    }

    /// Changes notes of a store.
    ///
    /// # Errors
    /// As [`Store::commit`]; [`PutError::Unknown`] where there is no store of that number.
    pub fn commit_notes(&mut self, store: StoreNumber, notes: &[(&str, Option<&[u8]>)]) -> Result<Ticket, PutError> {
        match self.is_there(store) {
            true => self.of_mut(store).commit(Vec::new(), &[], notes),
            false => Err(PutError::Unknown),
        }
    }

    // ---- looks

    /// As [`Store::watch`].
    pub fn watch(&mut self, queue: QueueId) -> Cursor {
        self.of_mut(queue.store()).watch(queue)
    }

    /// As [`Store::unwatch`].
    pub fn unwatch(&mut self, queue: QueueId) {
        self.of_mut(queue.store()).unwatch(queue);
    }

    /// As [`Store::look`].
    pub fn look(
        &mut self,
        queue: QueueId,
        cursor: &mut Cursor,
        now_ms: u64,
        lock: bool,
        budget: &mut usize,
        show: impl FnMut(&Seen<'_>) -> Looked,
    ) -> Look {
        self.of_mut(queue.store()).look(queue, cursor, now_ms, lock, budget, show)
    }

    /// As [`Store::look_up`].
    pub fn look_up(
        &mut self,
        queue: QueueId,
        key: u64,
        now_ms: u64,
        lock: bool,
        budget: &mut usize,
        show: impl FnMut(&Seen<'_>) -> Looked,
    ) -> Option<Look> {
        self.of_mut(queue.store()).look_up(queue, key, now_ms, lock, budget, show)
    }

    /// As [`Store::index`].
    pub fn index(&mut self, queue: QueueId, keys_of: KeysOf, kind: usize) {
        self.of_mut(queue.store()).index(queue, keys_of, kind);
    }

    /// As [`Store::unindex`].
    pub fn unindex(&mut self, queue: QueueId) {
        self.of_mut(queue.store()).unindex(queue);
    }

    // ---- notes

    /// A note of the local store, as [`Store::note`].
    pub fn note(&self, name: &str) -> Option<&[u8]> {
        self.local.note(name)
    }

    /// Notes of the local store, as [`Store::notes`].
    pub fn notes<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.local.notes(prefix)
    }

    /// A note of a store; none where there is no store of that number.
    pub fn note_in(&self, store: StoreNumber, name: &str) -> Option<&[u8]> {
        self.store(store)?.note(name)
    }

    /// Notes of a store.
    pub fn notes_in<'a>(&'a self, store: StoreNumber, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.store(store).into_iter().flat_map(move |store| store.notes(prefix))
    }

    /// Notes of all stores.
    pub fn notes_of_all<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (StoreNumber, &'a str, &'a [u8])> {
        let of = move |store: &'a Store| store.notes(prefix).map(|(name, value)| (store.number(), name, value));
        self.all().flat_map(of)
    }

    /// The local store's, as [`Store::identity`]: what partners and the readable copy of definitions know.
    pub fn identity(&self) -> Option<[u8; IDENTITY_BYTES]> {
        self.local.identity()
    }

    /// A store's identity, as [`Store::identity`].
    pub fn identity_of(&self, store: StoreNumber) -> Option<[u8; IDENTITY_BYTES]> {
        self.store(store)?.identity()
    }

    // ---- marks

    /// As [`Store::tell_marks_by`], for all stores.
    pub fn tell_marks_by(&mut self, asks: fn(&Chunks) -> bool) {
        self.asks = Some(asks);
        self.all_mut().for_each(|store| store.tell_marks_by(asks));
    }

    /// As [`Store::tell_keys_by`], for all stores.
    pub fn tell_keys_by(&mut self, keys_of: fn(&Chunks) -> Keys) {
        self.keys_of = Some(keys_of);
        self.all_mut().for_each(|store| store.tell_keys_by(keys_of));
    }

    /// As [`Store::key_use`].
    pub fn key_use(&mut self, queue: QueueId) -> Vec<KeyUse> {
        self.of_mut(queue.store()).key_use(queue)
    }

    /// As [`Store::needs_keys`].
    pub fn needs_keys(&self, queue: QueueId) -> bool {
        self.of(queue.store()).needs_keys(queue)
    }

    /// As [`Store::needed_keys`].
    pub fn needed_keys(&self, id: MessageId) -> Option<Keys> {
        self.of(id.store()).needed_keys(id)
    }

    /// As [`Store::mark`].
    pub fn mark(&mut self, id: MessageId, marker: Option<Marker>) {
        self.of_mut(id.store()).mark(id, marker);
    }

    /// As [`Store::marker`].
    pub fn marker(&self, id: MessageId) -> Option<Marker> {
        self.of(id.store()).marker(id)
    }

    /// As [`Store::is_marked`].
    pub fn is_marked(&self, id: MessageId) -> bool {
        self.of(id.store()).is_marked(id)
    }

    // ---- time and the journals

    /// As [`Store::sweep`], `max` in each store.
    pub fn sweep(&mut self, now_ms: u64, max: usize) {
        self.all_mut().for_each(|store| store.sweep(now_ms, max));
    }

    /// As [`Store::takes_persistent`], of all stores.
    pub fn takes_persistent(&mut self) -> bool {
        self.all_mut().all(Store::takes_persistent)
    }

    /// As [`Store::expire_due`], `max` in each store.
    pub fn expire_due(&mut self, now_ms: u64, max: usize) -> bool {
        self.wall_ms = now_ms;
        self.all_mut().fold(false, |did, store| store.expire_due(now_ms, max) | did)
    }

    /// As [`Store::flush`], for the stores that `wants` names.
    ///
    /// # Errors
    /// As [`Store::flush`], of the local store.
    pub fn flush(&mut self, now: Instant, mut wants: impl FnMut(StoreNumber) -> bool) -> Result<(), JournalError> {
        if wants(StoreNumber::LOCAL) {
            self.local.flush(now)?;
        }
        self.each_further(|store| if wants(store.number()) { store.flush(now) } else { Ok(()) });
        Ok(())
    }

    /// As [`Store::poll`], for all stores. What waits in one for another goes on.
    ///
    /// # Errors
    /// As [`Store::poll`], of the local store.
    pub fn poll(&mut self, now: Instant) -> Result<(), JournalError> {
        self.local.poll(now)?;
        self.each_further(|store| store.poll(now));
        if self.ways.is_empty() { Ok(()) } else { self.hand_over(now) }
    }

    /// Does something with each further store. One whose log takes nothing more does not hold up the others.
    fn each_further(&mut self, mut each: impl FnMut(&mut Store) -> Result<(), JournalError>) {
        for NamedStore { store, .. } in self.further.iter_mut().flatten() {
            let number = store.number();
            if let Err(error) = each(store)
                && !self.failed.iter().any(|(failed, _)| *failed == number)
            {
                self.failed.push((number, error));
            }
        }
    }

    #[cold]
    fn hand_over(&mut self, now: Instant) -> Result<(), JournalError> {
        let (mut ways, asks, now_ms) = (std::mem::take(&mut self.ways), self.asks, self.wall_ms);
        let mut touched = Vec::new();
        for way in &mut ways {
            let (from, to) = way.ends();
            let Some((from, to)) = self.two(from, to) else { continue };
            if way.go_on(from, to, asks, now, now_ms) {
                touched.extend([from.number(), to.number()]);
            }
        }
        self.ways = ways;
        self.flush(now, |store| touched.contains(&store))
    }

    /// As [`Store::sync`], for all stores.
    ///
    /// # Errors
    /// As [`Store::sync`], of the local store.
    pub fn sync(&mut self, now: Instant) -> Result<(), JournalError> {
        self.local.sync(now)?;
        self.each_further(|store| store.sync(now));
        Ok(())
    }

    /// As [`Store::shut_down`], for all stores: each is shut down whatever becomes of the others.
    ///
    /// # Errors
    /// As [`Store::shut_down`], the first.
    pub fn shut_down(&mut self, now: Instant) -> Result<(), JournalError> {
        let mut result = Ok(());
        for store in self.all_mut() {
            let closed = store.shut_down(now);
            result = result.and(closed);
        }
        result
    }

    /// When everything written so far is durable, in all stores.
    pub fn written(&self) -> Tickets {
        Tickets(self.all().map(Store::written).collect())
    }

    /// Whether what a ticket stands for is durable.
    pub fn is_synced(&self, ticket: Ticket) -> bool {
        self.is_there(ticket.store()) && self.of(ticket.store()).is_synced(ticket)
    }

    /// Whether what all of these stand for is durable.
    pub fn are_synced(&self, tickets: &Tickets) -> bool {
        tickets.iter().all(|ticket| self.is_synced(ticket))
    }

    /// As [`Store::take_ready`], of all stores.
    pub fn take_ready(&mut self, into: &mut Vec<QueueId>) {
        self.all_mut().for_each(|store| store.take_ready(into));
        if !self.ways.is_empty() {
            into.retain(|queue| !self.is_way(*queue));
        }
    }

    /// As [`Store::take_freed`], of all stores.
    pub fn take_freed(&mut self, into: &mut Vec<QueueId>) {
        self.all_mut().for_each(|store| store.take_freed(into));
        if !self.ways.is_empty() {
            into.retain(|queue| !self.is_way(*queue));
        }
    }

    /// As [`Store::take_crossings`], of all stores.
    pub fn take_crossings(&mut self, into: &mut Vec<Crossing>) {
        self.all_mut().for_each(|store| store.take_crossings(into));
    }

    /// As [`Store::take_arrivals`], of all stores.
    pub fn take_arrivals(&mut self, into: &mut Vec<(QueueId, Arrivals)>) {
        self.all_mut().for_each(|store| store.take_arrivals(into));
    }

    /// As [`Store::take_expired`], of all stores.
    pub fn take_expired(&mut self, into: &mut Vec<Expired>) {
        self.all_mut().for_each(|store| store.take_expired(into));
    }
}
