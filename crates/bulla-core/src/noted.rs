//! Changes of definitions: units of records in the journal, together with their queues.
//!
//! Commands and clients change definitions alike. A change is one commit of the journal: the records of all objects
//! that it touches, the queues that come or go with them, and the number of the change. No dispatcher waits for it: the
//! journal's thread writes it, and what answers the command or the client goes out when it is synced.
//!
//! `objects.mqsc` is the readable copy. A thread of its own writes it soon after, from definitions of its own, without
//! the queues' lock. A start compares the two, and the journal wins.

use crate::catalog::{Change, Definitions, LocalQueue, Object, Sort};
use crate::manager::{Manager, State, attributes};
use crate::mqsc::kept;
use crate::stores::{Stores, Tickets};
use bulla_queue::{DefineError, DefinitionUnit, JournalError, QueueChange, QueueId, Reserve, StoreNumber, Ticket};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The note with the number of the last change, and of the last one that is known to be in the file.
pub const CHANGES_NOTE: &str = "objects.changes";
/// The least time between two writes of the file when no thread waits for one.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How long a wait for the journal lasts before it is looked at unasked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What the names of limits begin with in the journal: they can be set on a full disk.
const LIMITS: &str = "LIMIT ";

/// What the state knows of it.
#[derive(Debug, Default)]
pub struct Noted {
    /// The number of the last change.
    pub last: u64,
    /// Until when the answers of this turn have to wait.
    tickets: Option<Tickets>,
}

impl Noted {
    /// Goes on behind that number.
    pub fn after(last: u64) -> Self {
        Self { last, tickets: None }
    }

    /// Until when answers to what was done since the last call have to wait.
    pub fn take_tickets(&mut self) -> Option<Tickets> {
        self.tickets.take()
    }
}

/// From which state of which journal the file was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    /// The journal's identity.
    pub journal: String,
    /// The number of the last change that is in the file.
    pub change: u64,
}

/// The journal's identity as the file has it.
pub fn journal_name(identity: Option<[u8; bulla_queue::IDENTITY_BYTES]>) -> String {
    identity.map_or_else(|| "unknown".to_owned(), |identity| base16ct::lower::encode_string(&identity))
}

/// The value of [`CHANGES_NOTE`].
pub fn changes_note(last: u64, written: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&last.to_le_bytes());
    value[8..].copy_from_slice(&written.to_le_bytes());
    value
}

/// The numbers that [`changes_note`] has written: of the last change, and of the last one in the file.
pub fn read_changes_note(value: &[u8]) -> Option<(u64, u64)> {
    let (last, written) = value.split_first_chunk()?;
    Some((u64::from_le_bytes(*last), u64::from_le_bytes(*written.first_chunk()?)))
}

/// What changes do to local queues, all together.
#[derive(Debug, Default)]
struct QueueChanges<'a> {
    /// Queues that are there and go, and whether their messages do.
    gone: BTreeMap<&'a str, bool>,
    defined: BTreeMap<&'a str, &'a LocalQueue>,
}

impl<'a> QueueChanges<'a> {
    fn of(changes: &'a [Change], definitions: &'a Definitions, store: &Stores) -> Self {
        let mut all = Self::default();
        // Subscriptions that the same changes define, with their queues.
        let mut managed: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Define { name, object: Object::Local(queue) }
                | Change::Alter { name, object: Object::Local(queue) } => {
                    all.defined.insert(name, queue);
                }
                Change::Delete { name, sort: Sort::Local, purge } => all.delete(name, *purge, store),
                Change::Define { name, object: Object::Subscription(subscription) }
                | Change::Alter { name, object: Object::Subscription(subscription) } => {
                    managed.insert(name, Some(&*subscription.destination).filter(|_| subscription.managed));
                }
                Change::Delete { name, sort: Sort::Subscription, .. } => {
                    let known = definitions.queue_of(Sort::Subscription, name);
                    if let Some(queue) = managed.remove(name.as_str()).unwrap_or(known) {
                        all.delete(queue, true, store);
                    }
                }
                _ => {}
            }
        }
        all
    }

    fn delete(&mut self, name: &'a str, purge: bool, store: &Stores) {
        self.defined.remove(name);
        if store.queue(name).is_some() {
            *self.gone.entry(name).or_default() |= purge;
        }
    }
}

/// How much of the reserve a unit may use: what only takes away may use all of it, what alters or limits half of it,
/// and what defines something new nothing.
fn reserve(objects: &[(String, Option<String>)], store: &Stores) -> Reserve {
    let is_new = |name: &str| !store.has_object(name) && !name.starts_with(LIMITS);
    match objects {
        _ if objects.iter().all(|(_, text)| text.is_none()) => Reserve::Whole,
        _ if objects.iter().any(|(name, text)| text.is_some() && is_new(name)) => Reserve::Untouched,
        _ => Reserve::Half,
    }
}

impl State {
    /// Makes changes true, in their order and in one commit: in the journal, in the store's queues, and in what is
    /// defined. `notes` change in the same commit, or, where the changes are of another store than the local one, in
    /// one of the local store before. It is durable once synced past the tickets.
    ///
    /// # Errors
    /// The journal takes no more, a definition does not fit, or the changes are of two stores; nothing is changed then.
    pub fn commit_definitions(
        &mut self,
        changes: &[Change],
        notes: &[(&str, Option<&[u8]>)],
    ) -> Result<Tickets, DefineError> {
        let objects = kept::changed(&self.definitions, changes);
        let cleared = changes.iter().filter_map(|change| match change {
            Change::ClearLocal { name } => Some(name.as_str()),
            _ => None,
        });
        let cleared: Vec<&str> = cleared.collect();
        let queues = QueueChanges::of(changes, &self.definitions, &self.store);
        if objects.is_empty() && queues.gone.is_empty() {
            return self.clear(&cleared);
        }
        let home = self.home_of(&objects, &queues, &cleared)?;
        // What is defined in another store is in its log alone: the file is this queue manager's own.
        let is_own = home == StoreNumber::LOCAL;
        let gone: Vec<QueueId> = queues.gone.keys().filter_map(|name| self.store.queue(name)).collect();
        let cleared = cleared.iter().map(|name| QueueChange::Clear { name });
        let deleted = queues.gone.iter().map(|(&name, &purge)| QueueChange::Delete { name, purge });
        let defined = queues.defined.iter();
        let defined = defined
            .map(|(&name, queue)| QueueChange::Define { name, attributes: attributes(name, queue, &self.definitions) });
        let queues: Vec<QueueChange<'_>> = cleared.chain(deleted).chain(defined).collect();
        let number = changes_note(self.changes.noted.last + 1, self.changes.writer.written());
        let number = is_own.then_some((CHANGES_NOTE, Some(&number[..])));
        let notes: Vec<(&str, Option<&[u8]>)> = notes.iter().copied().chain(number).collect();
        let reserve = reserve(&objects, &self.store);
        let objects: Vec<(&str, Option<&[u8]>)> =
            objects.iter().map(|(name, text)| (name.as_str(), text.as_ref().map(|text| text.as_bytes()))).collect();
        let unit = DefinitionUnit { queues: &queues, objects: &objects, notes: &notes, reserve };
        let tickets = self.store.commit_definitions(home, &unit)?;
        self.changes.noted.last += u64::from(is_own);
        self.changes.noted.tickets.get_or_insert_default().extend(tickets.iter());
        for queue in gone {
            self.uses.remove(&queue);
            self.temporary.owners.remove(&queue);
        }
        self.take_over(changes);
        if is_own {
            self.changes.writer.changed(changes, self.changes.noted.last, &tickets);
        }
        Ok(tickets)
    }

    /// The store that all of this is of.
    fn home_of(
        &self,
        objects: &[(String, Option<String>)],
        queues: &QueueChanges<'_>,
        cleared: &[&str],
    ) -> Result<StoreNumber, DefineError> {
        // Where a queue lies, or is about to.
        let mut homes: BTreeMap<&str, StoreNumber> = BTreeMap::new();
        for (name, queue) in &queues.defined {
            let lies_in = self.store.queue(name).map(QueueId::store);
            let home = match (lies_in, &queue.group) {
                (Some(store), _) => store,
                (None, None) => StoreNumber::LOCAL,
                (None, Some(group)) => self.store.store_named(group).ok_or(DefineError::OtherStore)?,
            };
            homes.insert(name, home);
        }
        let of_object = |object: &str| {
            let queue = kept::queue_of(object).filter(|_| !self.store.has_object(object));
            let home = queue.and_then(|queue| homes.get(queue).copied());
            home.unwrap_or_else(|| self.store.store_of_object(object))
        };
        let of_queue = |name: &&str| self.store.queue(name).map_or(StoreNumber::LOCAL, QueueId::store);
        let of_queues = cleared.iter().chain(queues.gone.keys()).map(of_queue).chain(homes.values().copied());
        let mut stores = objects.iter().map(|(name, _)| of_object(name)).chain(of_queues);
        let home = stores.next().unwrap_or(StoreNumber::LOCAL);
        match stores.any(|store| store != home) {
            true => Err(DefineError::OtherStore),
            false => Ok(home),
        }
    }

    /// Clears queues, message by message: where nothing is defined with it, that needs no room for one large commit.
    fn clear(&mut self, queues: &[&str]) -> Result<Tickets, DefineError> {
        let mut tickets = Tickets::default();
        for name in queues {
            let queue = self.store.queue(name).ok_or(DefineError::Unknown)?;
            match self.store.clear(queue)? {
                Ticket::NOW => {}
                ticket => tickets.add(ticket),
            }
        }
        Ok(tickets)
    }

    /// The file has what is defined up to that change. The journal notes it, so that an older copy of the file is known
    /// for what it is. Where that can't be noted, it is with the next change.
    pub fn note_written(&mut self, change: u64) {
        self.changes.writer.has(change);
        let note = changes_note(self.changes.noted.last, change);
        let notes = [(CHANGES_NOTE, Some(&note[..]))];
        let unit = DefinitionUnit { notes: &notes, reserve: Reserve::Whole, ..DefinitionUnit::default() };
        if let Err(error) = self.store.commit_definitions(StoreNumber::LOCAL, &unit) {
            crate::warning!("that the file of definitions is written is not noted in the journal: {error}");
        }
    }

    /// What these changes delete is not defined any more. No record says so: it went with its store.
    pub(crate) fn forget_defined(&mut self, removals: &[Change]) {
        self.take_over(removals);
    }

    /// What is defined, and what follows from it, is that of after the changes.
    fn take_over(&mut self, changes: &[Change]) {
        let is_dynamic = |known: &Definitions, name: &String| known.queues.get(name).is_some_and(|queue| queue.dynamic);
        let mut keeps = false;
        let (mut has_topics, mut moves_attributes) = (false, false);
        for change in changes {
            keeps |= match change {
                Change::Define { name, object: Object::Local(queue) }
                | Change::Alter { name, object: Object::Local(queue) } => {
                    queue.dynamic || is_dynamic(&self.definitions, name)
                }
                Change::Delete { name, sort: Sort::Local, .. } => is_dynamic(&self.definitions, name),
                change => change.is_of(&[Sort::Subscription]),
            };
            self.definitions.apply(change);
            match change {
                change if change.is_of(&[Sort::Topic]) => has_topics = true,
                Change::AlterManager(_) => moves_attributes = true,
                change if change.is_of(&[Sort::Alias]) => moves_attributes = true,
                _ => {}
            }
        }
        for change in changes {
            if let Some((Sort::Subscription, name)) = change.object() {
                self.topics.follow_one(name, &self.definitions);
            }
        }
        if has_topics {
            self.topics.follow(&self.definitions);
        }
        let Self { clients, definitions, store, .. } = self;
        if keeps {
            clients.users.follow_kept(definitions.kept());
        }
        // The attributes of each depend on the queue manager's, and on where the name of the dead-letter queue leads.
        if moves_attributes {
            for (name, local) in &definitions.queues {
                let Some(queue) = store.queue(name) else { continue };
                if let Err(error) = store.alter(queue, attributes(name, local, definitions)) {
                    crate::warning!("{name} does not follow the queue manager's attributes: {error}");
                }
            }
        }
        self.generations.definitions += 1;
    }
}

/// Rung when the journal has written something: those who wait for it, without the queues' lock, look again.
#[derive(Debug, Default)]
pub struct Synced {
    times: Mutex<u64>,
    changed: Condvar,
}

impl Synced {
    /// The journal has written something.
    pub fn ring(&self) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    fn times(&self) -> u64 {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_beyond(&self, times: u64) {
        let held = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.changed.wait_timeout_while(held, LOOK_EVERY, |now| *now == times);
        drop(held.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Manager {
    /// Waits until the journals have synced past these tickets. The queues' lock is taken for looks alone.
    ///
    /// # Errors
    /// A journal takes nothing more.
    pub fn wait_until_synced(&self, tickets: &Tickets) -> Result<(), JournalError> {
        loop {
            let times = self.synced.times();
            let is_synced = {
                let store = &mut self.lock().store;
                store.poll(Instant::now())?;
                store.are_synced(tickets)
            };
            if is_synced {
                return Ok(());
            }
            self.synced.wait_beyond(times);
        }
    }
}

/// Writes `objects.mqsc`.
#[derive(Debug, Default)]
pub struct Writer {
    wanted: Mutex<Wanted>,
    wake: Condvar,
    /// The number of the last change that is in the file.
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct Wanted {
    /// What was changed and is not in the writer's definitions yet.
    changes: Vec<Change>,
    /// The number of the last of them, and when it is durable.
    last: u64,
    tickets: Tickets,
    /// A thread waits for the file.
    is_hurried: bool,
    /// Why the last write failed.
    failed: Option<String>,
    is_stopping: bool,
}

impl Writer {
    /// The number of the last change that is in the file.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The file has the changes up to that number.
    pub fn has(&self, written: u64) {
        self.written.store(written, Ordering::Release);
    }

    /// The file is to have these changes, too.
    fn changed(&self, changes: &[Change], last: u64, tickets: &Tickets) {
        let mut wanted = self.wanted();
        wanted.changes.extend_from_slice(changes);
        wanted.last = last;
        wanted.tickets.extend(tickets.iter());
        self.wake.notify_all();
    }

    /// Waits until the file has what is defined now.
    ///
    /// # Errors
    /// Why it could not be written.
    pub fn finish(&self) -> Result<(), String> {
        let mut wanted = self.wanted();
        let last = wanted.last;
        (wanted.is_hurried, wanted.failed) = (true, None);
        self.wake.notify_all();
        let waits = |wanted: &mut Wanted| self.written() < last && wanted.failed.is_none() && !wanted.is_stopping;
        let wanted = self.wake.wait_while(wanted, waits).unwrap_or_else(PoisonError::into_inner);
        wanted.failed.clone().map_or(Ok(()), Err)
    }

    /// The thread's life: has `write` write what is due, once a second at most unless a thread waits for it, until
    /// [`stop`](Self::stop); then for the last time.
    pub fn run(&self, manager: &Manager, write: impl Fn(&Definitions, &Origin) -> io::Result<()>) {
        let (mut definitions, journal) = {
            let state = manager.lock();
            let mut wanted = self.wanted();
            wanted.changes.clear();
            wanted.last = state.changes.noted.last;
            (state.definitions.clone(), journal_name(state.store.identity()))
        };
        let mut was_told = false;
        loop {
            let (last, tickets, is_last) = {
                let is_idle = |wanted: &mut Wanted| wanted.last <= self.written() && !wanted.is_stopping;
                let mut wanted = self.wake.wait_while(self.wanted(), is_idle).unwrap_or_else(PoisonError::into_inner);
                if wanted.last <= self.written() {
                    return;
                }
                wanted.is_hurried = false;
                std::mem::take(&mut wanted.changes).iter().for_each(|change| definitions.apply(change));
                (wanted.last, wanted.tickets.clone(), wanted.is_stopping)
            };
            // The file never has what the journal could forget.
            let done = manager
                .wait_until_synced(&tickets)
                .map_err(io::Error::other)
                .and_then(|()| write(&definitions, &Origin { journal: journal.clone(), change: last }));
            if done.is_ok() {
                manager.lock().note_written(last);
            }
            let mut wanted = self.wanted();
            match done {
                Ok(()) => was_told = false,
                Err(error) => {
                    wanted.failed = Some(error.to_string());
                    if !std::mem::replace(&mut was_told, true) {
                        crate::warning!("definitions are in the journal and not in their file yet: {error}");
                    }
                    if is_last {
                        return;
                    }
                }
            }
            self.wake.notify_all();
            let waits = |wanted: &mut Wanted| !wanted.is_stopping && !wanted.is_hurried;
            drop(self.wake.wait_timeout_while(wanted, WRITE_EVERY, waits).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends the thread when it has written what is due.
    pub fn stop(&self) {
        self.wanted().is_stopping = true;
        self.wake.notify_all();
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        // Each of its values stands for itself.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
