//! Whether a user has a right on a name: what is asked of the definitions and of dynamic queues' makers.

use crate::asker::Who;
use crate::authority::{ObjectType, Right, Rights};
use crate::dynamic::Made;
use crate::manager::State;
use crate::reason::{self, Refusal};

impl State {
    /// Whether a user has a right on a name as it is opened; gives all rights that it has there. Says nothing of
    /// whether there is such a queue.
    ///
    /// # Errors
    /// 2035.
    pub fn check(&self, who: Who<'_>, right: Right, opened: &str) -> Result<Rights, Refusal> {
        // The store is not asked where there are no dynamic queues.
        let known = || self.store.queue(opened).and_then(|queue| self.temporary.owners.get(&queue));
        let owner = if self.temporary.owners.is_empty() { None } else { known() };
        let rights = match owner.is_some_and(|owner| who.owns(owner)) {
            true => ObjectType::Queue.rights(),
            false => self.definitions.authorities.rights(who.user, ObjectType::Queue, self.object_of(opened)),
        };
        if rights.has(right) { Ok(rights) } else { Err(no_right(right, opened)) }
    }

    /// The name whose profile counts for what is opened. Of `QUEUE@QMGR` it is the queue where that is of this queue
    /// manager, and otherwise the queue manager, whose transmission queue it is.
    fn object_of<'a>(&self, opened: &'a str) -> &'a str {
        let Some((queue, manager)) = opened.split_once('@') else { return opened };
        let own = &self.definitions.queue_manager.name;
        let leads_here = self.definitions.remotes.get(manager).is_some_and(|alias| {
            // An alias of this queue manager opens the queue itself: a right on the alias is none on that.
            alias.remote_name.is_none() && alias.remote_manager.as_ref() == Some(own)
        });
        if manager == own || leads_here { queue } else { manager }
    }

    /// Whether a message may go back on a queue in the name of the user who put it: by the queue's own name, by an
    /// alias of it, or by a topic with a subscription that delivers there.
    ///
    /// # Errors
    /// 2035.
    pub fn check_return(&self, user: Option<&str>, queue: &str) -> Result<(), Refusal> {
        let who = Who::of_message(user, None);
        let Err(refusal) = self.check(who, Right::Put, queue) else { return Ok(()) };
        let mut aliases = self.definitions.aliases.iter().filter(|(_, alias)| alias.target == queue);
        let by_alias = aliases.any(|(name, _)| self.check(who, Right::Put, name).is_ok());
        let by_topic =
            || self.topics.that_lead_to(queue).any(|topic| self.check_topic(who, Right::Publish, topic).is_ok());
        if by_alias || by_topic() { Ok(()) } else { Err(refusal) }
    }

    /// Whether a user may make a dynamic queue of a model for a link that needs `right`.
    ///
    /// # Errors
    /// 2035.
    pub fn check_model(&self, who: Who<'_>, right: Right, model: &str) -> Result<(), Refusal> {
        self.check(who, Right::Display, model)?;
        self.check(who, right, model).map(drop)
    }

    /// A dynamic queue is its maker's.
    pub fn own_dynamic(&mut self, who: Who<'_>, made: &Made) {
        let queue = made.temporary.or_else(|| self.store.queue(&made.name));
        if let Some((owner, queue)) = who.owner().zip(queue) {
            self.temporary.owners.insert(queue, owner);
        }
    }

    /// Whether a requester may have a server channel started; `user` is the channel's.
    ///
    /// # Errors
    /// 2035.
    pub fn check_start(&self, user: &str, channel: &str) -> Result<(), Refusal> {
        let rights = self.definitions.authorities.rights(Some(user), ObjectType::Channel, channel);
        if rights.has(Right::Control) { Ok(()) } else { Err(no_right(Right::Control, channel)) }
    }
}

/// A right is missing.
pub fn no_right(right: Right, name: &str) -> Refusal {
    Refusal::new(reason::NOT_AUTHORIZED, format!("{name}: no {right}"))
}

/// A message names another user than the one who puts it.
pub fn no_identity_right(opened: &str) -> Refusal {
    let detail = format!("{opened}: no {}, and the message's user-id is not the user's", Right::SetIdentity);
    Refusal::new(reason::NOT_AUTHORIZED, detail)
}
