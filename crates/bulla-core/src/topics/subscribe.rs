//! Subscriptions come and go: a queue of their own, and their place among the others.

use super::matching::no_topic;
use super::{DURABLE_PREFIX, Live, NON_DURABLE_MAX, NON_DURABLE_PREFIX};
use crate::asker::Who;
use crate::authority::{ANONYMOUS, Right};
use crate::catalog::limits::Kept;
use crate::catalog::topic_names::check_pattern;
use crate::catalog::{Change, LocalQueue, OBJECTS_MAX, Sort, Subscription, Usage};
use crate::dynamic::problem;
use crate::limits::Passing;
use crate::manager::{State, attributes};
use crate::random::Random;
use crate::reason::{self, Refusal};
use crate::rights::no_right;
use crate::selector::Selector;
use bulla_queue::{QueueAttributes, QueueId};
use std::sync::Arc;

/// What a link asks for that subscribes.
#[derive(Debug)]
pub struct Wanted {
    /// The topic, wildcards included.
    pub topic: String,
    /// `CLIENT|NAME` of one that is durable or shared.
    pub name: Option<String>,
    /// It stays when its link ends.
    pub durable: bool,
    /// Several links may get from it.
    pub shared: bool,
    /// Which publications are wanted.
    pub selector: Option<Selector>,
    /// The text of that.
    pub selector_text: String,
    /// A client whose publications are left out.
    pub not_from: Option<String>,
}

/// The subscription that a link gets from.
#[derive(Debug)]
pub struct Subscribed {
    /// Its queue.
    pub queue: String,
    /// It was made for this link.
    pub is_new: bool,
}

impl State {
    /// Makes a subscription, or finds the one of that name. A durable one is on disk on return, which is waited for.
    ///
    /// # Errors
    /// 2425 for what is no topic, 2035 without SUB there or where it is another user's, 2503 and 2436 where the topic
    /// takes none, 2429 where it is in use and would have to become another one, 2017 where who asks has as many
    /// durable ones as it may, 2102 where there are too many.
    pub fn subscribe(&mut self, who: Who<'_>, wanted: Wanted, random: &mut Random) -> Result<Subscribed, Refusal> {
        check_pattern(&wanted.topic).map_err(|why| no_topic(&wanted.topic, why))?;
        self.check_topic(who, Right::Subscribe, &wanted.topic)?;
        let known = match (&wanted.name, wanted.durable) {
            (None, _) => None,
            (Some(name), true) => self.topics.defined.get(name),
            (Some(name), false) => self.topics.shared.get(name),
        };
        let mut replaced = None;
        if let Some(live) = known.and_then(|id| self.topics.live.get(id)).cloned() {
            if live.user.as_deref() != who.user {
                return Err(no_right(Right::Subscribe, &wanted.topic));
            }
            if self.is_same(&live, &wanted) {
                return Ok(Subscribed { queue: live.destination.clone(), is_new: false });
            }
            // Another topic or selector by the same name is another subscription (JMS 3.1, section 8.3.3).
            if self.is_open(&live.destination) {
                let name = wanted.name.as_deref().unwrap_or_default();
                let detail = format!("{name}: others get from it, with another topic or selector");
                return Err(Refusal::new(reason::SUBSCRIPTION_IN_USE, detail));
            }
            replaced = Some(live.destination.clone());
        }
        let standing = self.standing(&wanted.topic);
        if !standing.subscribe {
            return Err(Refusal::new(reason::SUB_INHIBITED, format!("{} has SUB(DISABLED)", wanted.topic)));
        }
        let model = if wanted.durable { standing.durable_model } else { standing.non_durable_model };
        let made_of = self.definitions.models.get(&model).map(|model| model.queue.clone());
        let made_of = made_of
            .ok_or_else(|| Refusal::new(reason::UNKNOWN_OBJECT_NAME, format!("there is no model queue {model}")))?;
        let queue = LocalQueue { usage: Usage::Normal, dynamic: false, share: true, ..made_of };
        if wanted.durable && wanted.name.is_some() && !standing.durable {
            return Err(Refusal::new(reason::DURABILITY_NOT_ALLOWED, format!("{} has DURSUB(NO)", wanted.topic)));
        }
        if wanted.durable && wanted.name.is_some() {
            if replaced.is_none() {
                self.clients.users.may_keep(who.user, Kept::Subscription)?;
            }
            self.clients.users.may_make(who.user, self.clock.now())?;
        }
        // Only now, when there will be a new one: what is on the queue of the old one goes with it.
        match (replaced, &wanted.name) {
            (Some(_), Some(name)) if wanted.durable => self.unsubscribe(name)?,
            (Some(destination), _) => self.end_non_durable(&destination),
            (None, _) => {}
        }
        match (&wanted.name, wanted.durable) {
            (Some(name), true) => self.define_durable(name.clone(), who, wanted, model, queue, random),
            _ => self.define_non_durable(who, wanted, model, queue, random),
        }
    }

    fn is_same(&self, live: &Live, wanted: &Wanted) -> bool {
        let is_shared = |name: &String| self.definitions.subscriptions.get(name).is_some_and(|known| known.shared);
        live.topic == wanted.topic
            && live.selector_text == wanted.selector_text
            && live.not_from == wanted.not_from
            && (!wanted.durable || wanted.name.as_ref().is_some_and(is_shared) == wanted.shared)
    }

    /// Whether a consumer gets from that queue.
    fn is_open(&self, queue: &str) -> bool {
        let usage = self.store.queue(queue).and_then(|queue| self.uses.get(&queue));
        usage.is_some_and(|usage| usage.getters > 0)
    }

    fn define_durable(
        &mut self,
        name: String,
        who: Who<'_>,
        wanted: Wanted,
        model: String,
        queue: LocalQueue,
        random: &mut Random,
    ) -> Result<Subscribed, Refusal> {
        if !self.definitions.has_room_for_a_queue() || self.definitions.subscriptions.len() >= OBJECTS_MAX {
            return Err(Refusal::new(reason::RESOURCE_PROBLEM, "there are as many queues as there may be"));
        }
        let destination = self.managed_name(DURABLE_PREFIX, random);
        let subscription = Subscription {
            string: wanted.topic,
            destination: destination.clone(),
            managed: true,
            selector: wanted.selector_text,
            user: who.user.map(str::to_owned),
            shared: wanted.shared,
            not_from: wanted.not_from,
            model: Some(model),
            ..Subscription::default()
        };
        let changes = [Change::define(&destination, queue), Change::define(name, subscription)];
        self.change_definitions(&changes)?;
        Ok(Subscribed { queue: destination, is_new: true })
    }

    fn define_non_durable(
        &mut self,
        who: Who<'_>,
        wanted: Wanted,
        model: String,
        local: LocalQueue,
        random: &mut Random,
    ) -> Result<Subscribed, Refusal> {
        let there_are = self.topics.non_durable();
        self.clients.users.may_take(who.user, Passing::NonDurableSubscription, there_are, NON_DURABLE_MAX)?;
        let user = who.user.unwrap_or(ANONYMOUS);
        let local = LocalQueue { maker: Some(user.to_owned()), ..local };
        let destination = self.managed_name(NON_DURABLE_PREFIX, random);
        let attributes = QueueAttributes { temporary: true, ..attributes(&destination, &local, &self.definitions) };
        let queue = self.store.define(&destination, attributes).map_err(problem)?;
        self.temporary.queues.insert(destination.clone(), (queue, local));
        let live = Live {
            topic: wanted.topic,
            destination: destination.clone(),
            selector: wanted.selector,
            selector_text: wanted.selector_text,
            not_from: wanted.not_from,
            durable: false,
            user: who.user.map(str::to_owned),
            model: Some(model),
            counts: Arc::default(),
        };
        self.clients.users.took(user, Passing::NonDurableSubscription);
        let id = self.topics.take_in(live, true);
        if let Some(name) = wanted.name {
            self.topics.shared.insert(name, id);
        }
        Ok(Subscribed { queue: destination, is_new: true })
    }

    /// A name that nothing has.
    fn managed_name(&self, prefix: &str, random: &mut Random) -> String {
        loop {
            let name = format!("{prefix}{}", random.name::<8>().to_uppercase());
            if self.store.queue(&name).is_none() && !self.definitions.queues.contains_key(&name) {
                return name;
            }
        }
    }

    /// An application's durable subscription of that name which is that user's: its topic and its queue.
    pub fn durable_of(&self, who: Who<'_>, name: &str) -> Option<(&str, &str)> {
        let live = self.topics.defined.get(name).and_then(|id| self.topics.live.get(id))?;
        let is_theirs = self.topics.by_queue.contains_key(&live.destination) && live.user.as_deref() == who.user;
        is_theirs.then_some((live.topic.as_str(), live.destination.as_str()))
    }

    /// A link that got from a subscription has gone: one that is not durable goes with its last link, a durable one
    /// where the link was closed for good and no other gets from it. What can't be deleted stays, and the log says so.
    pub fn left_subscription(&mut self, queue: QueueId, name: Option<&str>, is_closed: bool) {
        if self.uses.get(&queue).is_some_and(|usage| usage.takers > 0) {
            return;
        }
        match name {
            None => self.end_dynamic(queue),
            Some(name) if is_closed => {
                if let Err(refusal) = self.unsubscribe(name)
                    && self.notices.peer_lines.may_write(self.clock.now())
                {
                    crate::warning!("subscription {name} was to go, and stays: {refusal}");
                }
            }
            Some(_) => {}
        }
    }

    /// Ends an application's durable subscription with what is on its queue.
    ///
    /// # Errors
    /// 2428 where there is none, 2429 while a consumer gets from it; it stays then.
    pub fn unsubscribe(&mut self, name: &str) -> Result<(), Refusal> {
        let found = self.definitions.subscriptions.get(name).filter(|found| found.managed);
        let destination = found.map(|found| found.destination.clone());
        let destination = destination
            .ok_or_else(|| Refusal::new(reason::NO_SUBSCRIPTION, format!("there is no subscription {name}")))?;
        if self.is_open(&destination) {
            return Err(Refusal::new(reason::SUBSCRIPTION_IN_USE, format!("a consumer gets from {name}")));
        }
        self.change_definitions(&[Change::delete(name, Sort::Subscription)])
    }

    fn end_non_durable(&mut self, queue: &str) {
        if let Some(queue) = self.store.queue(queue) {
            self.end_dynamic(queue);
        }
    }
}
