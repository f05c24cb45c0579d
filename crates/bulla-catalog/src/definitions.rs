//! Everything that is defined.

use super::authority::{ANONYMOUS, Entity};
use super::limits::Kept;
use super::objects::{Definitions, device};
use super::system_queues::{DEAD_LETTER_QUEUE, DEFAULT_MODEL, ERROR_QUEUE, QUEUES};
use super::{
    BASE_TOPIC, Change, ChannelDefinition, DEPTH_MAX, DeviceDefinition, Full, LocalQueue, MESSAGE_BYTES_MAX,
    ModelQueue, QueueManager, Sort, Topic,
};

/// Most queues, aliases and remote queues together, and most policies.
pub const OBJECTS_MAX: usize = 100_000;

impl Definitions {
    /// What a new queue manager has: itself, a dead-letter queue and an error queue, the processor and an accelerator.
    pub fn initial(name: &str) -> Self {
        let system = |description: &str| LocalQueue {
            description: description.into(),
            max_depth: u32::try_from(DEPTH_MAX).unwrap_or(u32::MAX),
            max_message_bytes: u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX),
            ..LocalQueue::default()
        };
        let mut definitions = Self::empty(name);
        definitions.queues.insert(DEAD_LETTER_QUEUE.into(), system("Messages that could not be delivered"));
        definitions.queues.insert(ERROR_QUEUE.into(), system("Messages whose protection is defective"));
        definitions.add_event_queues();
        definitions.add_initial_devices();
        definitions
    }

    /// The event queues, where nothing else has their names.
    pub fn add_event_queues(&mut self) {
        for (name, description) in QUEUES {
            if !self.queues.contains_key(name) && !self.is_alias_or_remote(name) {
                let queue = LocalQueue { description: description.into(), full: Full::Reject, ..LocalQueue::default() };
                self.queues.insert(name.into(), queue);
            }
        }
    }

    /// The accelerator that a new queue manager has.
    pub fn add_initial_devices(&mut self) {
        self.devices.insert(device::ACCELERATOR.into(), DeviceDefinition::accelerator());
    }

    /// A queue manager of that name with what is always there: the processor, the default model, the root topic.
    pub fn empty(name: &str) -> Self {
        let mut definitions = Self::of(QueueManager::new(name));
        definitions.models.insert(DEFAULT_MODEL.into(), ModelQueue::initial());
        definitions.topics.insert(BASE_TOPIC.into(), Topic::default());
        definitions.devices.insert(device::CPU.into(), DeviceDefinition::cpu());
        definitions
    }

    /// What there is of `now` before anything is defined: the queue manager's own attributes, and the processor.
    pub fn bare(now: &Self) -> Self {
        let mut bare = Self::empty(&now.queue_manager.name);
        bare.queue_manager = now.queue_manager.clone();
        if let Some(cpu) = now.devices.get(device::CPU) {
            bare.devices.insert(device::CPU.into(), cpu.clone());
        }
        if let Some(model) = now.models.get(DEFAULT_MODEL) {
            bare.models.insert(DEFAULT_MODEL.into(), model.clone());
        }
        if let Some(root) = now.topics.get(BASE_TOPIC) {
            bare.topics.insert(BASE_TOPIC.into(), root.clone());
        }
        bare
    }

    /// SSLRKEYC in force for a channel, in bytes: its own, or the queue manager's.
    pub fn key_reset_bytes(&self, channel: &ChannelDefinition) -> u32 {
        channel.key_reset_bytes.unwrap_or(self.queue_manager.key_reset_bytes)
    }

    /// Whether an alias or a remote queue has the name.
    pub fn is_alias_or_remote(&self, name: &str) -> bool {
        self.aliases.contains_key(name) || self.remotes.contains_key(name)
    }

    /// Takes a change over. It was made against these definitions, so it cannot fail.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Define { name, object } | Change::Alter { name, object } => self.set(name, object.clone()),
            Change::Delete { name, sort, .. } => {
                let queue = self.queue_of(*sort, name).map(str::to_owned);
                self.remove(*sort, name);
                if *sort == Sort::Group {
                    self.authorities.records.remove_all_of(&Entity::Group(name.clone()));
                }
                if let Some(queue) = queue {
                    self.queues.remove(&queue);
                }
            }
            Change::ClearLocal { .. } => {}
            Change::AlterManager(manager) => self.queue_manager = manager.clone(),
            Change::SetAuthority(records) => {
                records.iter().for_each(|(key, rights)| self.authorities.records.set(key.clone(), *rights));
            }
            Change::SetChannelRule(key, rule) => self.channel_rules.set(key.clone(), rule.clone()),
            Change::DeleteChannelRule(key) => self.channel_rules.remove(key),
            Change::DeleteAuthority(keys) => keys.iter().for_each(|key| self.authorities.records.remove(key)),
        }
    }

    /// The queue that goes with an object: an application's subscription has one of its own.
    pub fn queue_of(&self, sort: Sort, name: &str) -> Option<&str> {
        let subscription = self.subscriptions.get(name).filter(|found| sort == Sort::Subscription && found.managed)?;
        Some(&subscription.destination)
    }

    /// Whether there may be one more queue, alias, remote queue or model: they are counted together, here and when they
    /// are read.
    pub fn has_room_for_a_queue(&self) -> bool {
        self.queues.len() + self.aliases.len() + self.remotes.len() + self.models.len() < OBJECTS_MAX
    }

    /// What applications made that stays, a durable subscription or a permanent dynamic queue at a time: whose it is.
    pub fn kept(&self) -> impl Iterator<Item = (&str, Kept)> {
        let subscriptions = self.subscriptions.values().filter(|found| found.managed);
        let subscribers = subscriptions.map(|found| found.user.as_deref().unwrap_or(ANONYMOUS));
        let makers = self.queues.values().filter(|queue| queue.dynamic).filter_map(|queue| queue.maker.as_deref());
        subscribers.map(|user| (user, Kept::Subscription)).chain(makers.map(|user| (user, Kept::DynamicQueue)))
    }
}
