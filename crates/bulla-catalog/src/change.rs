//! Changes of what is defined.

use super::addresses::MappedTo;
use super::authority::{Administrators, Group, RecordKey, Rights, Rule, RuleKey};
use super::limits::Limit;
use super::{
    AliasQueue, ChannelDefinition, DeviceDefinition, LocalQueue, ModelQueue, Object, QueueManager, RemoteQueue, Sort,
};
use bulla_seal::Policy;
use std::sync::Arc;

/// What is to become true. Objects are whole: as they shall be, not what is different.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new object, or a replacement.
    Define {
        /// Its name.
        name: String,
        /// As it shall be.
        object: Object,
    },
    /// An existing object.
    Alter {
        /// Its name.
        name: String,
        /// As it shall be.
        object: Object,
    },
    /// No such object any more, nor the queue that goes with it ([`Definitions::queue_of`](super::Definitions::queue_of)).
    Delete {
        /// Its name.
        name: String,
        /// Which sort it is.
        sort: Sort,
    },
    /// A new queue, or, where one has the name, its replacement that keeps the messages.
    DefineLocal {
        /// Its name.
        name: String,
        /// As it shall be.
        queue: LocalQueue,
    },
    /// An existing queue.
    AlterLocal {
        /// Its name.
        name: String,
        /// As it shall be.
        queue: LocalQueue,
    },
    /// Refused with `AdminError::InUse` while it is open, with [`AdminError::NotEmpty`] unless `purge`.
    DeleteLocal {
        /// Its name.
        name: String,
        /// Its messages go too.
        purge: bool,
    },
    /// Its messages go. Refused with `AdminError::InUse` while it is open.
    ClearLocal {
        /// Its name.
        name: String,
    },
    /// A new alias, or a replacement.
    DefineAlias {
        /// Its name.
        name: String,
        /// As it shall be.
        alias: AliasQueue,
    },
    /// An existing alias.
    AlterAlias {
        /// Its name.
        name: String,
        /// As it shall be.
        alias: AliasQueue,
    },
    /// Refused with `AdminError::InUse` while it is open.
    DeleteAlias {
        /// Its name.
        name: String,
    },
    /// A new remote queue or queue-manager alias, or a replacement.
    DefineRemote {
        /// Its name.
        name: String,
        /// As it shall be.
        remote: RemoteQueue,
    },
    /// An existing remote queue or queue-manager alias.
    AlterRemote {
        /// Its name.
        name: String,
        /// As it shall be.
        remote: RemoteQueue,
    },
    /// A remote queue or queue-manager alias. Its transmission queue and what is on it stay.
    DeleteRemote {
        /// Its name.
        name: String,
    },
    /// A new model, or a replacement.
    DefineModel {
        /// Its name.
        name: String,
        /// As it shall be.
        model: ModelQueue,
    },
    /// An existing model.
    AlterModel {
        /// Its name.
        name: String,
        /// As it shall be.
        model: ModelQueue,
    },
    /// A model. The queues that were made of it stay.
    DeleteModel {
        /// Its name.
        name: String,
    },
    /// A new policy, or a replacement; it has been checked.
    SetPolicy(Arc<Policy>),
    /// No policy any more.
    DeletePolicy {
        /// Its name.
        name: String,
    },
    /// The queue manager.
    AlterManager(QueueManager),
    /// A new device, or the replacement of one that is stopped. It is not started.
    DefineDevice {
        /// Its name.
        name: String,
        /// As it shall be.
        device: DeviceDefinition,
    },
    /// An existing device; what is running goes on as it is until it is started anew.
    AlterDevice {
        /// Its name.
        name: String,
        /// As it shall be.
        device: DeviceDefinition,
    },
    /// A device that is stopped.
    DeleteDevice {
        /// Its name.
        name: String,
    },
    /// A new channel, or the replacement of one that does not run. It is not started.
    DefineChannel {
        /// Its name.
        name: String,
        /// As it shall be.
        channel: ChannelDefinition,
    },
    /// An existing channel; what is running goes on as it is until it is started anew.
    AlterChannel {
        /// Its name.
        name: String,
        /// As it shall be.
        channel: ChannelDefinition,
    },
    /// A channel that does not run.
    DeleteChannel {
        /// Its name.
        name: String,
    },
    /// Authority records, new or as they shall be.
    SetAuthority(Vec<(RecordKey, Rights)>),
    /// No such authority records any more.
    DeleteAuthority(Vec<RecordKey>),
    /// A new group, or a replacement.
    DefineGroup {
        /// Its name.
        name: String,
        /// As it shall be.
        group: Group,
    },
    /// An existing group.
    AlterGroup {
        /// Its name.
        name: String,
        /// As it shall be.
        group: Group,
    },
    /// A rule for connections, new or as it shall be.
    SetChannelRule(RuleKey, Rule),
    /// No such rule any more.
    DeleteChannelRule(RuleKey),
    /// What an address of clients stands for, new or as it shall be.
    SetAddressMap {
        /// The address, or a pattern of addresses.
        address: String,
        /// What it stands for.
        to: MappedTo,
    },
    /// No such address any more.
    DeleteAddressMap {
        /// The address, or a pattern of addresses.
        address: String,
    },
    /// A limit of users, new or as it shall be.
    SetLimit {
        /// The user, or the beginning of names.
        user: String,
        /// As it shall be.
        limit: Limit,
    },
    /// No such limit any more.
    DeleteLimit {
        /// The user, or the beginning of names.
        user: String,
    },
    /// New administrators, or a replacement.
    DefineAdministrators {
        /// Their name.
        name: String,
        /// As they shall be.
        administrators: Administrators,
    },
    /// Existing administrators.
    AlterAdministrators {
        /// Their name.
        name: String,
        /// As they shall be.
        administrators: Administrators,
    },
    /// No such administrators any more.
    DeleteAdministrators {
        /// Their name.
        name: String,
    },
    /// A group, and its authority records.
    DeleteGroup {
        /// Its name.
        name: String,
    },
}

impl Change {
    /// A new object, or a replacement.
    pub fn define(name: impl Into<String>, object: impl Into<Object>) -> Self {
        Change::Define { name: name.into(), object: object.into() }
    }

    /// No such object any more.
    pub fn delete(name: impl Into<String>, sort: Sort) -> Self {
        Change::Delete { name: name.into(), sort }
    }

    /// The sort and the name of the object that it defines, alters or deletes, where that is in the list of sorts.
    pub fn object(&self) -> Option<(Sort, &str)> {
        match self {
            Change::Define { name, object } | Change::Alter { name, object } => Some((object.sort(), name)),
            Change::Delete { name, sort } => Some((*sort, name)),
            _ => None,
        }
    }

    /// Whether it defines, alters or deletes an object of one of these sorts.
    pub fn is_of(&self, sorts: &[Sort]) -> bool {
        self.object().is_some_and(|(sort, _)| sorts.contains(&sort))
    }
}
