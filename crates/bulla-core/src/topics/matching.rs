//! Where publications on a topic go, and what may be done there.

use super::{MANAGED_PREFIX, Publisher, Standing, Target, check_topic, literal_part, upwards};
use crate::asker::Who;
use crate::authority::{ObjectType, Right, Rights};
use crate::catalog::Topic;
use crate::envelope::Defaults;
use crate::manager::{Route, State};
use crate::reason::{self, Refusal};
use crate::rights::no_right;
use bulla_seal::Policy;
use std::sync::Arc;

impl State {
    /// The topic objects at a topic and above it, nearest first.
    pub(super) fn objects_of<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = (&'a str, &'a Topic)> + Clone {
        let named = upwards(literal_part(topic)).filter_map(|string| self.topics.objects.get(string));
        named.filter_map(|name| self.definitions.topics.get_key_value(name)).map(|(name, topic)| (name.as_str(), topic))
    }

    /// Whether a user has a right on a topic: on its topic object, or on one above it. With wildcards, what is before
    /// the first one counts. Says nothing of who else is there.
    ///
    /// # Errors
    /// 2035.
    pub fn check_topic(&self, who: Who<'_>, right: Right, topic: &str) -> Result<(), Refusal> {
        let rights = |name: &str| self.definitions.authorities.rights(who.user, ObjectType::Topic, name);
        let all = self.objects_of(topic).fold(Rights::NONE, |all, (name, _)| all.with(rights(name)));
        if all.has(right) { Ok(()) } else { Err(no_right(right, topic)) }
    }

    pub(super) fn standing(&self, topic: &str) -> Standing {
        Standing::of(self.objects_of(topic).map(|(_, topic)| topic))
    }

    /// Where publications on a topic go now. A walk down the index, and a route for each subscription that matches.
    ///
    /// # Errors
    /// 2425 for what is no topic, 2051 where nothing may be published.
    pub fn publisher(&self, topic: &str) -> Result<Publisher, Refusal> {
        check_topic(topic).map_err(|why| no_topic(topic, why))?;
        let standing = self.standing(topic);
        if !standing.publish {
            return Err(Refusal::new(reason::PUT_INHIBITED, format!("{topic} has PUB(DISABLED)")));
        }
        let found = self.topics.index.matching(topic);
        let targets = found.into_iter().filter_map(|id| self.topics.live.get(&id)).map(|subscription| {
            let route = self.put_route(&subscription.destination).and_then(|route| match route.put_enabled {
                true => Ok(route),
                false => Err(Refusal::new(reason::PUT_INHIBITED, "a subscription's queue has PUT(DISABLED)")),
            });
            // What a publication without a header is like is the topic's to say, how long it may lie there the queue's.
            let route = route.map(|route| {
                let defaults =
                    Defaults { priority: standing.priority, persistent: standing.persistent, ..route.defaults };
                Arc::new(Route { defaults, ..route })
            });
            Target { subscription: subscription.clone(), route }
        });
        Ok(Publisher {
            topic: topic.to_owned(),
            targets: targets.collect(),
            defaults: Defaults { priority: standing.priority, persistent: standing.persistent, expiry_cap_ms: None },
            persistent_delivery: standing.persistent_delivery,
            non_persistent_delivery: standing.non_persistent_delivery,
            generation: self.generations.definitions,
            version: self.topics.version,
        })
    }

    /// The policy under which messages on a local queue are sealed; none where it has none.
    pub fn policy_on(&self, queue: &str) -> Option<Arc<Policy>> {
        self.definitions.policies.get(queue).cloned().or_else(|| self.policy_of_managed(queue))
    }

    /// The policy of a queue that was made for a subscription: that of the model's name.
    pub fn policy_of_managed(&self, queue: &str) -> Option<Arc<Policy>> {
        if !queue.starts_with(MANAGED_PREFIX) {
            return None;
        }
        let model = self.topics.of_queue(queue)?.model.as_ref()?;
        self.definitions.policies.get(model).cloned()
    }
}

/// What is wrong with a topic: 2425.
pub(super) fn no_topic(topic: &str, why: &str) -> Refusal {
    const SHOWN_CHARS_MAX: usize = 100;
    let shown: String = topic.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS_MAX).collect();
    Refusal::new(reason::TOPIC_STRING_ERROR, format!("the topic '{shown}' {why}"))
}
