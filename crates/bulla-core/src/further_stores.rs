//! Stores that come and go while the queue manager runs. What is defined in one comes and goes with it: it is the
//! owner's for as long as that is this queue manager.

use crate::catalog::objects::Redirect;
use crate::channel::supervisor;
use crate::group_rings;
use crate::groups_elsewhere::GroupElsewhere;
use crate::idempotency;
use crate::manager::{Manager, State, attributes};
use crate::mqsc::kept;
use crate::mqsc::objects::LoadError;
use crate::resumable::{Kept, PutOutcome};
use crate::stores::{NamedStore, StoresError};
use bulla_queue::{DefineError, JournalError, ReadError, StoreNumber};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A store that is about to join, with what is defined in it.
pub struct Joining {
    further: NamedStore,
    /// Commands by the names of their records.
    records: BTreeMap<String, String>,
}

/// Why a store can't join.
#[derive(Debug)]
pub enum JoinError {
    /// The administrator's turn: it has something in common with another one, or a journal takes nothing.
    Stores(StoresError),
    /// The operator's turn: its definitions can't be read back.
    Read {
        /// The object.
        object: String,
        /// Why.
        error: ReadError,
    },
    /// The administrator's turn: what is defined in it does not go with what is defined here.
    Definitions(LoadError),
    /// The operator's turn: something is defined in it that is about none of its queues. Who can write the log would
    /// define what this queue manager does.
    Foreign {
        /// The object.
        object: String,
    },
    /// The administrator's turn: a queue's attributes are not possible here.
    Queue {
        /// The queue.
        queue: String,
        /// Why.
        error: DefineError,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Stores(error) => error.fmt(f),
            JoinError::Read { object, error } => write!(f, "the definition of {object}: {error}"),
            JoinError::Definitions(error) => error.fmt(f),
            JoinError::Foreign { object } => write!(f, "its log defines {object}, which is about none of its queues"),
            JoinError::Queue { queue, error } => write!(f, "{queue}: {error}"),
        }
    }
}

impl std::error::Error for JoinError {}

impl Joining {
    /// Reads what is defined in a store. Waits for its log, so it is not for a thread that holds the queues.
    ///
    /// # Errors
    /// [`JoinError::Read`].
    pub fn read(mut further: NamedStore) -> Result<Self, JoinError> {
        let mut records = BTreeMap::new();
        let read = further.store.read_objects(&mut |name, text| {
            records.insert(name.to_owned(), String::from_utf8_lossy(text).into_owned());
        });
        read.map_err(|(object, error)| JoinError::Read { object, error })?;
        Ok(Self { further, records })
    }
}

impl State {
    /// A store is there from now on, with its queues, policies and rights. It was opened under a number that was free:
    /// [`Stores::free_number`](crate::stores::Stores::free_number). Costs a copy of all definitions and of their texts.
    ///
    /// # Errors
    /// [`JoinError`]; nothing is changed then, and the store is closed.
    pub fn join_store(&mut self, joining: Joining, path: &Path) -> Result<StoreNumber, JoinError> {
        let Joining { further, records } = joining;
        let definitions = kept::add(self.definitions.clone(), &records, path).map_err(JoinError::Definitions)?;
        let is_about_its_queues = |object: &String| {
            let queue = kept::queue_of(object).filter(|queue| further.store.queue(queue).is_some());
            let group = queue.and_then(|queue| definitions.queues.get(queue)?.group.as_ref());
            queue.is_some() && records.contains_key(object) && group.is_none_or(|group| *group == further.name)
        };
        let changed = kept::not_alike(&self.definitions, &definitions);
        if let Some(object) = changed.into_iter().find(|object| !is_about_its_queues(object)) {
            return Err(JoinError::Foreign { object });
        }
        let number = self.store.join(further).map_err(JoinError::Stores)?;
        self.forget_uses_of(number);
        let queues: Vec<String> = self.store.queues_of(number).map(|(_, name)| name.to_owned()).collect();
        for name in queues {
            let Some(local) = definitions.queues.get(&name) else { continue };
            let defined = self.store.define(&name, attributes(&name, local, &definitions));
            if let Err(error) = defined {
                self.store.leave(number);
                return Err(JoinError::Queue { queue: name, error });
            }
        }
        self.definitions = definitions;
        self.keys.learn(self.store.notes_of_all(idempotency::PREFIX).filter(|(store, ..)| *store == number));
        supervisor::joined(self, number);
        self.clients.users.follow_kept(self.definitions.kept());
        self.topics.follow(&self.definitions);
        self.generations.definitions += 1;
        self.generations.authority += 1;
        Ok(number)
    }

    /// A store is not there any more. Each dispatcher in `live`, a bit each, ends its links to it in its next turn.
    /// What the log has not confirmed is never confirmed.
    pub fn leave_store(&mut self, number: StoreNumber, live: u64) -> Option<NamedStore> {
        let left = self.store.leave(number)?;
        let is_here = |object: &str| left.store.has_object(object);
        let removals = kept::removals(&self.definitions, is_here);
        self.forget_defined(&removals);
        supervisor::left(self, &left.name);
        self.generations.authority += 1;
        self.unfinished.messages.retain(|stuck| stuck.id.store() != number);
        self.temporary.gone.retain(|(queue, _)| queue.store() != number);
        self.keys.forget(number);
        self.clients.users.forget_store(number);
        let is_of = |kept: &Kept| match kept {
            Kept::Gets(gets) => gets.route.queue.store() == number,
            Kept::Puts(puts) => puts.iter().any(|(_, outcome)| match outcome {
                PutOutcome::Put(ticket) => ticket.store() == number,
                PutOutcome::Known(_) => false,
            }),
        };
        // What these links held is gone with the store.
        self.clients.resumable.drop_suspended(is_of);
        let group = self.definitions.shared_groups.get(&left.name);
        let ends_connections = group.is_some_and(|group| group.redirect == Redirect::Connection);
        if let Some(group) = group {
            // To clients its queues are not gone, whichever member owns it next.
            let queues = left.store.queues().map(|(_, name)| name);
            let elsewhere = GroupElsewhere::new(group, String::new(), None, queues, left.store.object_names());
            let rings = group_rings::read(left.store.notes(group_rings::PREFIX));
            self.groups_elsewhere.set(&left.name, elsewhere.with_rings(rings));
        }
        self.left_stores.add(number, live, ends_connections);
        Some(left)
    }

    /// A dispatcher has ended its links to all stores that have left.
    pub(crate) fn ended_links_to_left(&mut self, dispatcher: usize) {
        for number in self.left_stores.ended_by(dispatcher) {
            self.forget_uses_of(number);
        }
    }

    /// No dispatcher has links to a store that has left: what was counted for its queues goes.
    fn forget_uses_of(&mut self, number: StoreNumber) {
        self.left_stores.forget(number);
        self.uses.retain(|queue, _| queue.store() != number);
    }
}

impl Manager {
    /// The dispatchers that there are, a bit each. One whose mailbox is closed has no links.
    pub fn live_dispatchers(&self) -> u64 {
        let mailboxes = self.workers.mailboxes.iter().enumerate();
        mailboxes.filter(|(_, mailbox)| !mailbox.is_closed()).fold(0, |live, (index, _)| live | 1 << index)
    }

    /// Stores whose logs take nothing more leave, and the log says why. A compare as a rule.
    pub fn let_failed_stores_go(&self, state: &mut State) {
        for (number, error) in state.store.take_failed() {
            let live = self.live_dispatchers();
            let Some(NamedStore { name, .. }) = state.leave_store(number, live) else { continue };
            match error {
                JournalError::Deposed { .. } => crate::note!("{name}: another queue manager is the owner now"),
                error => crate::alarm!("{name}: {error}; its queues are closed here"),
            }
            self.ring_all();
        }
    }
}
