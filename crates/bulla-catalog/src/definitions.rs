//! Everything that is defined.

use super::addresses::AddressMaps;
use super::authority::{ANONYMOUS, Authorities, ChannelRules, Entity};
use super::limits::{Kept, UserLimits};
use super::objects::device;
use super::system_queues::{DEAD_LETTER_QUEUE, DEFAULT_MODEL, ERROR_QUEUE, QUEUES};
use super::{
    AliasQueue, BASE_TOPIC, Change, ChannelDefinition, DEPTH_MAX, DeviceDefinition, Full, LocalQueue,
    MESSAGE_BYTES_MAX, ModelQueue, Objects, QueueManager, RemoteQueue, Subscription, Topic,
};
use bulla_seal::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most queues, aliases and remote queues together, and most policies.
pub const OBJECTS_MAX: usize = 100_000;

/// Everything that is defined.
#[derive(Clone, Debug, PartialEq)]
pub struct Definitions {
    /// The queue manager itself.
    pub queue_manager: QueueManager,
    /// Local queues by name.
    pub queues: BTreeMap<String, LocalQueue>,
    /// Aliases by name; no name is that of two sorts of queue.
    pub aliases: BTreeMap<String, AliasQueue>,
    /// Remote queues and queue-manager aliases by name.
    pub remotes: BTreeMap<String, RemoteQueue>,
    /// Models by name.
    pub models: BTreeMap<String, ModelQueue>,
    /// Objects of the sorts that are in one list.
    pub objects: Objects,
    /// Subscriptions that outlive their links, by name.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Policies by the name that is opened.
    pub policies: BTreeMap<String, Arc<Policy>>,
    /// Crypto devices by name; [`device::CPU`] is always there.
    pub devices: BTreeMap<String, DeviceDefinition>,
    /// Channels by name.
    pub channels: BTreeMap<String, ChannelDefinition>,
    /// Who may do what.
    pub authorities: Authorities,
    /// Who may use which channel, and as whom.
    pub channel_rules: ChannelRules,
    /// What users may have at once.
    pub user_limits: UserLimits,
    /// What clients' addresses stand for.
    pub address_maps: AddressMaps,
}

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
        Self {
            queue_manager: QueueManager {
                name: name.into(),
                description: String::new(),
                dead_letter_queue: Some(DEAD_LETTER_QUEUE.into()),
                max_message_bytes: u32::try_from(MESSAGE_BYTES_MAX).unwrap_or(u32::MAX),
                default_transmission_queue: None,
                key_reset_bytes: 0,
                certificate_label: None,
                adapters: None,
                dispatchers: None,
                channels_max: 200,
                active_channels_max: 200,
                max_uncommitted: 10_000,
                max_unit_age: 600,
                authority_events: false,
                performance_events: false,
                channel_events: false,
                trigger_interval_ms: 999_999_999,
                channel_authentication: true,
                sign_in_required: false,
                token_issuer: None,
                token_audience: None,
                token_user_claim: "sub".into(),
            },
            queues: BTreeMap::new(),
            aliases: BTreeMap::new(),
            remotes: BTreeMap::new(),
            models: BTreeMap::from([(DEFAULT_MODEL.into(), ModelQueue::initial())]),
            objects: Objects { topics: BTreeMap::from([(BASE_TOPIC.into(), Topic::default())]), ..Objects::default() },
            subscriptions: BTreeMap::new(),
            policies: BTreeMap::new(),
            devices: BTreeMap::from([(device::CPU.into(), DeviceDefinition::cpu())]),
            channels: BTreeMap::new(),
            authorities: Authorities::default(),
            channel_rules: ChannelRules::default(),
            address_maps: AddressMaps::default(),
            user_limits: UserLimits::default(),
        }
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
        if let Some(root) = now.objects.topics.get(BASE_TOPIC) {
            bare.objects.topics.insert(BASE_TOPIC.into(), root.clone());
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
            Change::Define { name, object } | Change::Alter { name, object } => self.objects.set(name, object.clone()),
            Change::Delete { name, sort } => self.objects.remove(*sort, name),
            Change::DefineLocal { name, queue } | Change::AlterLocal { name, queue } => {
                self.queues.insert(name.clone(), queue.clone());
            }
            Change::DeleteLocal { name, .. } => drop(self.queues.remove(name)),
            Change::ClearLocal { .. } => {}
            Change::DefineAlias { name, alias } | Change::AlterAlias { name, alias } => {
                self.aliases.insert(name.clone(), alias.clone());
            }
            Change::DeleteAlias { name } => drop(self.aliases.remove(name)),
            Change::DefineRemote { name, remote } | Change::AlterRemote { name, remote } => {
                self.remotes.insert(name.clone(), remote.clone());
            }
            Change::DeleteRemote { name } => drop(self.remotes.remove(name)),
            Change::DefineModel { name, model } | Change::AlterModel { name, model } => {
                self.models.insert(name.clone(), model.clone());
            }
            Change::DeleteModel { name } => drop(self.models.remove(name)),
            Change::DefineSubscription { name, subscription } | Change::AlterSubscription { name, subscription } => {
                self.subscriptions.insert(name.clone(), subscription.clone());
            }
            Change::DeleteSubscription { name } => {
                let gone = self.subscriptions.remove(name);
                if let Some(queue) = gone.filter(|gone| gone.managed).map(|gone| gone.destination) {
                    self.queues.remove(&queue);
                }
            }
            Change::SetPolicy(policy) => drop(self.policies.insert(policy.name.clone(), policy.clone())),
            Change::DeletePolicy { name } => drop(self.policies.remove(name)),
            Change::AlterManager(manager) => self.queue_manager = manager.clone(),
            Change::DefineDevice { name, device } | Change::AlterDevice { name, device } => {
                self.devices.insert(name.clone(), device.clone());
            }
            Change::DeleteDevice { name } => drop(self.devices.remove(name)),
            Change::DefineChannel { name, channel } | Change::AlterChannel { name, channel } => {
                self.channels.insert(name.clone(), channel.clone());
            }
            Change::DeleteChannel { name } => drop(self.channels.remove(name)),
            Change::SetAuthority(records) => {
                records.iter().for_each(|(key, rights)| self.authorities.records.set(key.clone(), *rights));
            }
            Change::SetChannelRule(key, rule) => self.channel_rules.set(key.clone(), rule.clone()),
            Change::DeleteChannelRule(key) => self.channel_rules.remove(key),
            Change::SetAddressMap { address, to } => self.address_maps.set(address, to.clone()),
            Change::DeleteAddressMap { address } => self.address_maps.remove(address),
            Change::SetLimit { user, limit } => self.user_limits.set(user, *limit),
            Change::DeleteLimit { user } => self.user_limits.remove(user),
            Change::DeleteAuthority(keys) => keys.iter().for_each(|key| self.authorities.records.remove(key)),
            Change::DefineGroup { name, group } | Change::AlterGroup { name, group } => {
                self.authorities.groups.set(name, group.clone());
            }
            Change::DefineAdministrators { name, administrators }
            | Change::AlterAdministrators { name, administrators } => {
                self.authorities.administrators.insert(name.clone(), administrators.clone());
            }
            Change::DeleteAdministrators { name } => drop(self.authorities.administrators.remove(name)),
            Change::DeleteGroup { name } => {
                self.authorities.groups.remove(name);
                self.authorities.records.remove_all_of(&Entity::Group(name.clone()));
            }
        }
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
