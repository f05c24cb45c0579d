//! Which channel a transmission queue with TRIGGER starts.

use crate::catalog::{ChannelDefinition, Definitions, LocalQueue, Usage};
use crate::maps::HashMap;
use crate::stores::Stores;
use bulla_queue::QueueId;

/// Transmission queues with TRIGGER, and the channels that they start.
#[derive(Debug, Default)]
pub struct Triggers {
    pub(super) by_queue: HashMap<QueueId, String>,
    /// The definitions' generation this was made from.
    generation: u64,
}

impl Triggers {
    /// The channel that a transmission queue starts. After a change of definitions that is looked up again.
    pub fn of(&mut self, queue: QueueId, generation: u64, definitions: &Definitions, store: &Stores) -> Option<String> {
        self.look_up(generation, definitions, store);
        self.by_queue.get(&queue).cloned()
    }

    /// After a change of definitions the triggers are looked up again.
    pub fn look_up(&mut self, generation: u64, definitions: &Definitions, store: &Stores) {
        if self.generation == generation {
            return;
        }
        let queues = definitions.queues.iter().filter(|(_, queue)| queue.usage == Usage::Transmission && queue.trigger);
        let channel = |name: &String, data: &Option<String>| {
            let mut channels = definitions.channels.iter();
            let named = |channel: &ChannelDefinition| channel.transmission_queue.as_ref() == Some(name);
            data.clone().or_else(|| {
                channels.find(|(_, channel)| channel.kind.sends() && named(channel)).map(|(name, _)| name.clone())
            })
        };
        // Who can write a group's log starts no other channels by it.
        let is_of = |queue: &LocalQueue, channel: &String| {
            definitions.channels.get(channel).is_none_or(|channel| channel.group == queue.group)
        };
        self.by_queue = queues
            .filter_map(|(name, queue)| {
                let channel = channel(name, &queue.trigger_data).filter(|channel| is_of(queue, channel))?;
                Some((store.queue(name)?, channel))
            })
            .collect();
        self.generation = generation;
    }
}
