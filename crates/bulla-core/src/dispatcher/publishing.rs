//! What a link on which a client publishes has of its own, and whose each copy of a publication is.

use super::sealing::Sealings;
use crate::front::client::Introduction;
use crate::selector::Scratch;
use crate::topics::{Counts, Publisher, Target};
use std::sync::Arc;

/// What a link on which a client publishes keeps from one publication to the next.
#[derive(Default)]
pub struct Publishing {
    /// The link's topic; none for an anonymous relay.
    pub topic: Option<String>,
    /// The client's container, whose own subscriptions may leave its publications out.
    pub container: Option<String>,
    pub(crate) publisher: Option<Publisher>,
    /// What the policies of subscriptions seal with, by policy.
    pub sealings: Sealings,
    pub(crate) scratch: Scratch,
}

/// Whose a copy of a publication is.
pub struct Subscriber {
    pub(crate) counts: Arc<Counts>,
    /// The publication goes to the others where this one can't be put.
    pub is_spared: bool,
}

impl Subscriber {
    pub(crate) fn of(target: &Target, publisher: &Publisher, persistent: bool) -> Self {
        Self { counts: target.subscription.counts.clone(), is_spared: !publisher.needs(target, persistent) }
    }
}

impl Publishing {
    /// Of a link to that topic, or of a relay.
    pub fn new(opened: Option<&Introduction>, topic: Option<String>) -> Box<Self> {
        let container = opened.map(|said| said.container.clone());
        Box::new(Self { topic, container, ..Self::default() })
    }

    /// The topic that was published on last.
    pub fn published(&self) -> Option<&str> {
        self.publisher.as_ref().map(|publisher| publisher.topic.as_str())
    }

    /// The link's topic.
    pub fn topic(&self) -> Option<&str> {
        self.topic.as_deref()
    }
}
