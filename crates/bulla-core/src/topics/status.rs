//! How topics and subscriptions stand, for DISPLAY TPSTATUS and DISPLAY SBSTATUS.

use super::{Counts, Index, Live, Topics};
use crate::catalog::status::{SubscriptionStatus, TopicStatus};
use crate::catalog::topic_names::check_topic;
use crate::manager::State;
use crate::maps::HashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

impl Counts {
    /// A publication was put on the subscription's queue.
    pub fn note_put(&self, wall_ms: u64) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.last_message_ms.store(wall_ms, Ordering::Relaxed);
    }
}

/// A moment that has come: none for the beginning of 1970.
fn moment(ms: &AtomicU64) -> Option<u64> {
    Some(ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
}

impl Topics {
    /// A link has come to the subscription of that queue.
    pub fn resumed(&self, queue: &str, wall_ms: u64) {
        if let Some(live) = self.of_queue(queue) {
            live.counts.resumed_ms.store(wall_ms, Ordering::Relaxed);
        }
    }

    /// A link publishes on that topic from now on.
    pub fn publisher_came(&mut self, topic: &str) {
        *self.publishers.entry_ref(topic).or_default() += 1;
    }

    /// One of them does no more.
    pub fn publisher_left(&mut self, topic: &str) {
        if let Some(count) = self.publishers.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                self.publishers.remove(topic);
            }
        }
    }
}

impl State {
    /// Every subscription, in no order.
    pub fn subscription_status(&self) -> Vec<SubscriptionStatus> {
        let defined = self.topics.defined.iter().map(|(name, id)| (*id, name.as_str()));
        let names: HashMap<u64, &str> =
            self.topics.shared.iter().map(|(name, id)| (*id, name.as_str())).chain(defined).collect();
        let status = |(id, live): (&u64, &std::sync::Arc<Live>)| {
            let name = names.get(id).copied().unwrap_or(&live.destination);
            let queue = self.store.queue(&live.destination);
            SubscriptionStatus {
                name: name.to_owned(),
                topic: live.topic.clone(),
                durable: live.durable,
                by_administrator: !self.topics.by_queue.contains_key(&live.destination),
                user: live.user.clone(),
                destination: live.destination.clone(),
                depth: queue.and_then(|queue| self.store.status(queue)).map(|status| status.depth),
                links: queue.and_then(|queue| self.uses.get(&queue)).map_or(0, |usage| usage.getters),
                messages: live.counts.messages.load(Ordering::Relaxed),
                last_message_ms: moment(&live.counts.last_message_ms),
                resumed_ms: moment(&live.counts.resumed_ms),
            }
        };
        self.topics.live.iter().map(status).collect()
    }

    /// The topics that a pattern fits and that are defined, published on or subscribed to; a topic without wildcards in
    /// any case. In the order of their names.
    pub fn topic_status(&self, pattern: &str) -> Vec<TopicStatus> {
        let mut asked = Index::default();
        asked.insert(pattern, 0);
        let is_asked = |topic: &str| topic == pattern || !asked.matching(topic).is_empty();
        let mut found: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        if check_topic(pattern).is_ok() {
            found.insert(pattern, (0, 0));
        }
        for topic in self.topics.objects.keys().filter(|topic| is_asked(topic)) {
            found.entry(topic).or_default();
        }
        for (topic, count) in self.topics.publishers.iter().filter(|(topic, _)| is_asked(topic)) {
            found.entry(topic).or_default().0 += count;
        }
        for live in self.topics.live.values().filter(|live| is_asked(&live.topic)) {
            found.entry(&live.topic).or_default().1 += 1;
        }
        let status = |(topic, (publishers, subscriptions)): (&str, (u32, u32))| {
            let standing = self.standing(topic);
            TopicStatus {
                topic: topic.to_owned(),
                object: self.topics.objects.get(topic).cloned(),
                publishers,
                subscriptions,
                publish: standing.publish,
                subscribe: standing.subscribe,
                durable: standing.durable,
                default_priority: standing.priority,
                default_persistent: standing.persistent,
                persistent_delivery: standing.persistent_delivery,
                non_persistent_delivery: standing.non_persistent_delivery,
                durable_model: standing.durable_model,
                non_durable_model: standing.non_durable_model,
            }
        };
        found.into_iter().map(status).collect()
    }
}
