//! Which channel a transmission queue with TRIGGER starts.

use crate::catalog::{ChannelDefinition, Usage};
use crate::manager::State;
use crate::maps::HashMap;
use bulla_queue::QueueId;

/// Transmission queues with TRIGGER, and the channels that they start.
#[derive(Debug, Default)]
pub(crate) struct Triggers {
    pub(super) by_queue: HashMap<QueueId, String>,
    /// The definitions' generation this was made from.
    generation: u64,
}

impl State {
    /// The channel that a transmission queue starts.
    pub(crate) fn triggered_by(&mut self, queue: QueueId) -> Option<String> {
        self.look_up_triggers();
        self.triggers.by_queue.get(&queue).cloned()
    }

    /// After a change of definitions the triggers are looked up again.
    pub(crate) fn look_up_triggers(&mut self) {
        if self.triggers.generation == self.generation {
            return;
        }
        let definitions = &self.definitions;
        let queues = definitions.queues.iter().filter(|(_, queue)| queue.usage == Usage::Transmission && queue.trigger);
        let channel = |name: &String, data: &Option<String>| {
            let mut channels = definitions.channels.iter();
            let named = |channel: &ChannelDefinition| channel.transmission_queue.as_ref() == Some(name);
            data.clone().or_else(|| {
                channels.find(|(_, channel)| channel.kind.sends() && named(channel)).map(|(name, _)| name.clone())
            })
        };
        self.triggers.by_queue = queues
            .filter_map(|(name, queue)| Some((self.store.queue(name)?, channel(name, &queue.trigger_data)?)))
            .collect();
        self.triggers.generation = self.generation;
    }
}
