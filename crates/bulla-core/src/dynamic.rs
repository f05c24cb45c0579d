//! Dynamic queues: made of a model for a link that asks for a queue of its own (AMQP part 3, section 3.5, *dynamic*;
//! inventory A2.4).
//!
//! A temporary one lives in memory and goes with its connection, or with its link where that asks for it. A permanent
//! one is a local queue like any other, and in `objects.mqsc`: it goes when a client that opened it asks for that on
//! closing, or by a command.

use crate::asker::Who;
use crate::authority::{ANONYMOUS, Right};
use crate::catalog::limits::Kept;
use crate::catalog::names::is_name;
use crate::catalog::system_queues::{DEFAULT_MODEL, SYSTEM_PREFIX};
use crate::catalog::{Change, LocalQueue, Sort, Usage};
use crate::front::link::QueueWish;
use crate::limits::Passing;
use crate::manager::{State, attributes};
use crate::mqsc::run::told;
use crate::random::Random;
use crate::reason::{self, Refusal};
use bulla_queue::{QueueAttributes, QueueId};

/// What a link that closes does to its permanent dynamic queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deletes {
    /// It goes where it is empty.
    Empty,
    /// It goes with its messages.
    WithMessages,
}

/// Temporary queues that may be open at once.
const TEMPORARY_QUEUES_MAX: usize = 10_000;
/// Longest stem of a name that ends in `*`, in characters, as MQ has it.
const STEM_CHARS_MAX: usize = 32;
/// The stem where none is asked for.
const STEM_DEFAULT: &str = "BULLA.DYNAMIC.";
/// A name that is taken is made anew so often.
const ATTEMPTS_MAX: usize = 8;
/// The queue that was made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// The queue, where it goes with its link or its connection.
    pub temporary: Option<QueueId>,
    /// It goes with its link.
    pub with_link: bool,
}

impl Made {
    /// The queue, where it goes with its link.
    pub fn ends_with_link(&self) -> Option<QueueId> {
        self.temporary.filter(|_| self.with_link)
    }
}

impl State {
    /// Whether a queue that is wished for may be made by the one who asks, for a link that needs `right`: that right is
    /// needed on the model. On a name that is given whole it takes PUT and GET: its maker may do both there.
    ///
    /// # Errors
    /// 2035 for a right that is missing, 2085 for a model that is not there.
    pub fn check_wish(&self, who: Who<'_>, right: Right, wish: &QueueWish) -> Result<(), Refusal> {
        self.check_model(who, right, wish.model.as_deref().unwrap_or(DEFAULT_MODEL))?;
        // Before the name is looked for: no user learns of a name without a right on it, nor takes one that others put
        // to.
        if let Some(name) = wish.name.as_deref().filter(|name| !name.ends_with('*')) {
            for right in [right, Right::Put, Right::Get] {
                self.check(who, right, name)?;
            }
        }
        match wish.model.as_ref().filter(|model| !self.definitions.models.contains_key(*model)) {
            Some(model) => Err(Refusal::new(reason::UNKNOWN_OBJECT_NAME, format!("there is no model queue {model}"))),
            None => Ok(()),
        }
    }

    /// Makes a queue of a model. A permanent one is durable when what its client is told goes out.
    ///
    /// # Errors
    /// 2011 for a name that can't be, 2100 for one that is taken, 2017 where who asks has as many permanent ones as it
    /// may, 2102 where there are too many.
    pub fn define_dynamic(&mut self, who: Who<'_>, wish: &QueueWish, random: &mut Random) -> Result<Made, Refusal> {
        let model = wish.model.as_deref().unwrap_or(DEFAULT_MODEL);
        let model = self
            .definitions
            .models
            .get(model)
            .cloned()
            .ok_or_else(|| Refusal::new(reason::UNKNOWN_OBJECT_NAME, format!("there is no model queue {model}")))?;
        let name = self.dynamic_name(wish.name.as_deref(), random)?;
        let local = LocalQueue { usage: Usage::Normal, dynamic: true, ..model.queue };
        if model.permanent {
            self.clients.users.may_keep(who.user, Kept::DynamicQueue)?;
            let local = LocalQueue { maker: Some(who.user.unwrap_or(ANONYMOUS).to_owned()), ..local };
            self.clients.users.may_make(who.user, self.clock.now())?;
            return self.define_permanent(name, local);
        }
        let there_are = self.temporary.queues.len().saturating_sub(self.topics.non_durable());
        self.clients.users.may_take(who.user, Passing::TemporaryQueue, there_are, TEMPORARY_QUEUES_MAX)?;
        let user = who.user.unwrap_or(ANONYMOUS);
        let local = LocalQueue { maker: Some(user.to_owned()), ..local };
        let attributes = QueueAttributes { temporary: true, ..attributes(&name, &local, &self.definitions) };
        let queue = self.store.define(&name, attributes).map_err(problem)?;
        self.temporary.queues.insert(name.clone(), (queue, local));
        self.clients.users.took(user, Passing::TemporaryQueue);
        Ok(Made { name, temporary: Some(queue), with_link: wish.with_link })
    }

    fn define_permanent(&mut self, name: String, queue: LocalQueue) -> Result<Made, Refusal> {
        if !self.definitions.has_room_for_a_queue() {
            return Err(Refusal::new(reason::RESOURCE_PROBLEM, "there are as many queues as there may be"));
        }
        self.change_definitions(&[Change::define(&name, queue)])?;
        Ok(Made { name, temporary: None, with_link: false })
    }

    /// Makes changes true that clients have caused. What answers a client goes out when the journal has synced them.
    ///
    /// # Errors
    /// The journal takes no more; nothing is changed then.
    pub fn change_definitions(&mut self, changes: &[Change]) -> Result<(), Refusal> {
        self.commit_definitions(changes, &[]).map_err(problem)?;
        for change in changes {
            if self.notices.peer_lines.may_write(self.clock.now()) {
                crate::note!("{}", told(change));
            }
        }
        Ok(())
    }

    /// A name that nothing has: the one that is asked for, one that begins so, or any.
    fn dynamic_name(&self, asked: Option<&str>, random: &mut Random) -> Result<String, Refusal> {
        let asked = asked.unwrap_or(STEM_DEFAULT.trim_end_matches('*'));
        let wrong = |why: &str| Refusal::new(reason::DYNAMIC_Q_NAME_ERROR, format!("{asked}: {why}"));
        let stem = match asked.strip_suffix('*') {
            Some(stem) => stem,
            None if asked == STEM_DEFAULT => asked,
            None => {
                let free = || Refusal::new(reason::OBJECT_ALREADY_EXISTS, format!("{asked} exists already"));
                is_name(asked).then_some(()).ok_or_else(|| wrong("is no queue's name"))?;
                not_ours(asked).then_some(()).ok_or_else(|| wrong("is the queue manager's own"))?;
                return (!self.is_taken(asked)).then(|| asked.to_owned()).ok_or_else(free);
            }
        };
        if stem.len() > STEM_CHARS_MAX || !(stem.is_empty() || is_name(stem)) {
            return Err(wrong("before the '*' there may be 32 characters of a queue's name"));
        }
        not_ours(stem).then_some(()).ok_or_else(|| wrong("is the queue manager's own"))?;
        let fresh = || format!("{stem}{}", random.name::<8>().to_uppercase());
        let found = std::iter::repeat_with(fresh).take(ATTEMPTS_MAX).find(|name| !self.is_taken(name));
        found.ok_or_else(|| Refusal::new(reason::RESOURCE_PROBLEM, "no name was found that is not taken"))
    }

    fn is_taken(&self, name: &str) -> bool {
        let known = &self.definitions;
        self.store.queue(name).is_some()
            || known.queues.contains_key(name)
            || known.aliases.contains_key(name)
            || known.remotes.contains_key(name)
            || known.models.contains_key(name)
    }

    /// Ends a temporary queue with all that is on it. Links that still get from it, or wait for room there, are ended
    /// in the next turn of their dispatchers.
    pub fn end_dynamic(&mut self, queue: QueueId) {
        if let Some(name) = self.store.name(queue) {
            let gone = self.temporary.queues.remove(name).and_then(|(_, local)| local.maker);
            let what = match self.topics.queue_is_gone(name) {
                true => Passing::NonDurableSubscription,
                false => Passing::TemporaryQueue,
            };
            if let Some(user) = gone {
                self.clients.users.gave_back(&user, what);
            }
        }
        self.temporary.owners.remove(&queue);
        let on = self.uses.remove(&queue).map_or(0, |usage| usage.consumers_on | usage.waiters_on);
        if on != 0 {
            self.temporary.gone.push((queue, on));
        }
        if let Err(error) = self.store.delete(queue, true) {
            crate::warning!("a dynamic queue could not be deleted: {error}");
        }
    }

    /// Deletes a permanent dynamic queue as the client that had it open asked for: with `purge` together with what is
    /// on it.
    ///
    /// # Errors
    /// 2042 while others have it open, 2055 for one that holds messages; it stays then.
    pub fn delete_permanent(&mut self, name: &str, purge: bool) -> Result<(), Refusal> {
        let unknown = || Refusal::new(reason::UNKNOWN_OBJECT_NAME, format!("{name} does not exist"));
        let queue = self.store.queue(name).ok_or_else(unknown)?;
        self.definitions.queues.get(name).filter(|local| local.dynamic).ok_or_else(unknown)?;
        if self.uses.get(&queue).is_some_and(|usage| usage.putters + usage.getters > 0) {
            return Err(Refusal::new(reason::OBJECT_IN_USE, format!("{name} is open elsewhere")));
        }
        let depth = self.store.status(queue).map_or(0, |status| status.depth);
        if depth > 0 && !purge {
            return Err(Refusal::new(reason::Q_NOT_EMPTY, format!("{name} holds {depth} messages")));
        }
        self.change_definitions(&[Change::Delete { name: name.to_owned(), sort: Sort::Local, purge }])
    }

    /// Deletes a queue with what is on it that no definition names any more. Where that fails it stays, and the next
    /// start tells of it.
    pub fn delete_undefined(&mut self, name: &str, queue: QueueId) {
        if let Err(error) = self.store.delete(queue, true) {
            crate::warning!("{name}, which nothing defines any more, could not be deleted: {error}");
        }
    }
}

/// Names of the queue manager's own are not given away.
fn not_ours(name: &str) -> bool {
    !name.starts_with(SYSTEM_PREFIX)
}

/// Something of the queue manager's own failed: 2102.
pub fn problem(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(reason::RESOURCE_PROBLEM, error.to_string())
}
