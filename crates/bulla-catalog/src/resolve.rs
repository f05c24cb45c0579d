//! Where an opened name leads.

use super::names::is_name;
use super::{Definitions, LocalQueue, RemoteQueue, Usage};
use bulla_seal::Policy;
use std::fmt::{self, Display};
use std::sync::Arc;

/// Where messages go that are put by an opened name.
#[derive(Clone, Debug)]
pub enum Destination<'a> {
    /// On a local queue.
    Local(Resolved<'a>),
    /// On a transmission queue, with a header that says where to.
    Remote(Transmission<'a>),
}

/// The way to a queue of another queue manager.
#[derive(Clone, Debug)]
pub struct Transmission<'a> {
    /// The transmission queue's name.
    pub queue: &'a str,
    /// The transmission queue.
    pub local: &'a LocalQueue,
    /// The queue's name at the other queue manager.
    pub remote_name: String,
    /// The other queue manager's name.
    pub remote_manager: String,
    /// The policy by the name that was opened; `QUEUE@QMGR` has none.
    pub policy: Option<&'a Arc<Policy>>,
    /// Nothing on the way forbids it, the transmission queue included.
    pub put_enabled: bool,
    /// DEFPRTY of the first definition on the way.
    pub default_priority: u8,
    /// DEFPSIST(YES) of the first definition on the way.
    pub default_persistent: bool,
}

/// What an opened name comes to.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<'a> {
    /// The local queue's name.
    pub queue: &'a str,
    /// The local queue.
    pub local: &'a LocalQueue,
    /// The policy by the name that was opened, not by the queue's.
    pub policy: Option<&'a Arc<Policy>>,
    /// Neither the queue nor the alias forbids it.
    pub get_enabled: bool,
    /// Neither the queue nor the alias forbids it.
    pub put_enabled: bool,
}

/// Why a name cannot be opened. The administrator's turn, or the application's to use another name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The alias stands for an alias: 2001.
    BaseIsAlias,
    /// Only puts go to a remote queue: 2045.
    NotForInput,
    /// The alias stands for a queue that does not exist: 2082.
    UnknownBase,
    /// No queue, alias or remote queue has the name: 2085.
    Unknown,
    /// No way leads to the queue manager, or it is not given: 2087.
    UnknownManager,
    /// A model is opened by a link that asks for no queue of its own: 2057.
    IsModel,
    /// What should be the transmission queue is no local queue: 2091.
    TransmissionQueueType,
    /// What should be the transmission queue is for applications: 2092.
    TransmissionQueueUsage,
    /// A queue-manager alias, opened as if it were a queue: 2184.
    NoRemoteName,
    /// XMITQ names no queue: 2196.
    UnknownTransmissionQueue,
    /// DEFXMITQ names no queue: 2197.
    UnknownDefaultTransmissionQueue,
    /// DEFXMITQ is no local queue: 2198.
    DefaultTransmissionQueueType,
    /// DEFXMITQ is for applications: 2199.
    DefaultTransmissionQueueUsage,
}

impl ResolveError {
    /// MQ's reason code.
    pub fn reason(self) -> u32 {
        match self {
            ResolveError::BaseIsAlias => 2001,
            ResolveError::NotForInput => 2045,
            ResolveError::UnknownBase => 2082,
            ResolveError::IsModel => 2057,
            ResolveError::Unknown => 2085,
            ResolveError::UnknownManager => 2087,
            ResolveError::TransmissionQueueType => 2091,
            ResolveError::TransmissionQueueUsage => 2092,
            ResolveError::NoRemoteName => 2184,
            ResolveError::UnknownTransmissionQueue => 2196,
            ResolveError::UnknownDefaultTransmissionQueue => 2197,
            ResolveError::DefaultTransmissionQueueType => 2198,
            ResolveError::DefaultTransmissionQueueUsage => 2199,
        }
    }
}

impl std::error::Error for ResolveError {}

impl Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResolveError::BaseIsAlias => "the alias stands for another alias",
            ResolveError::NotForInput => "a queue of another queue manager can be put to, not got from",
            ResolveError::UnknownBase => "the alias stands for a queue that does not exist",
            ResolveError::IsModel => "a model is opened by asking for a dynamic node",
            ResolveError::Unknown => "there is no queue of that name",
            ResolveError::UnknownManager => "no transmission queue leads to the queue manager",
            ResolveError::TransmissionQueueType => "the transmission queue is not a local queue",
            ResolveError::TransmissionQueueUsage => "the transmission queue is not of USAGE(XMITQ)",
            ResolveError::NoRemoteName => "a queue-manager alias is no queue: it has no RNAME",
            ResolveError::UnknownTransmissionQueue => "the transmission queue does not exist",
            ResolveError::UnknownDefaultTransmissionQueue => "the default transmission queue does not exist",
            ResolveError::DefaultTransmissionQueueType => "the default transmission queue is not a local queue",
            ResolveError::DefaultTransmissionQueueUsage => "the default transmission queue is not of USAGE(XMITQ)",
        })
    }
}

impl Destination<'_> {
    /// The same, with one more definition on the way that may forbid puts.
    fn unless_forbidden(mut self, allowed: bool) -> Self {
        match &mut self {
            Destination::Local(found) => found.put_enabled &= allowed,
            Destination::Remote(found) => found.put_enabled &= allowed,
        }
        self
    }
}

/// `QUEUE@QMGR` in two: no object's name has an `@`.
fn qualified(object: &str) -> Option<(&str, &str)> {
    object.split_once('@')
}

impl Definitions {
    /// Finds what an application that opens `name` to get is given: a queue or an alias, or `QUEUE@QMGR` with this
    /// queue manager's own name. Three look-ups, once for each link.
    ///
    /// # Errors
    /// The name, or what it stands for, is no local queue.
    pub fn resolve(&self, name: &str) -> Result<Resolved<'_>, ResolveError> {
        let name = match qualified(name) {
            Some((queue, manager)) if manager == self.queue_manager.name => queue,
            Some(_) => return Err(ResolveError::NotForInput),
            None => name,
        };
        let policy = self.policies.get(name);
        if let Some((queue, local)) = self.queues.get_key_value(name) {
            let (get_enabled, put_enabled) = (local.get_enabled, local.put_enabled);
            return Ok(Resolved { queue, local, policy, get_enabled, put_enabled });
        }
        let Some(alias) = self.aliases.get(name) else {
            return Err(match name {
                _ if self.remotes.contains_key(name) => ResolveError::NotForInput,
                _ if self.models.contains_key(name) => ResolveError::IsModel,
                _ => ResolveError::Unknown,
            });
        };
        let Some((queue, local)) = self.queues.get_key_value(&alias.target) else {
            return Err(if self.aliases.contains_key(&alias.target) {
                ResolveError::BaseIsAlias
            } else if self.remotes.contains_key(&alias.target) {
                ResolveError::NotForInput
            } else {
                ResolveError::UnknownBase
            });
        };
        let get_enabled = local.get_enabled && alias.get_enabled;
        let put_enabled = local.put_enabled && alias.put_enabled;
        Ok(Resolved { queue, local, policy, get_enabled, put_enabled })
    }

    /// Finds where messages go that an application puts by `object`: the name of a queue, an alias or a remote queue,
    /// or `QUEUE@QMGR`. The rules are MQ's name resolution: a remote queue's messages go on its XMITQ, or on the
    /// transmission queue named like the queue manager, or on DEFXMITQ. A few look-ups, once for each link.
    ///
    /// The policy is that of the name before the `@` where that is this queue manager's, and none where it is
    /// another's: policies are of names that are defined here.
    ///
    /// # Errors
    /// The name, or something on the way, is not what it should be.
    pub fn resolve_put(&self, object: &str) -> Result<Destination<'_>, ResolveError> {
        match qualified(object) {
            Some((queue, manager)) if manager == self.queue_manager.name => self.put_here(queue),
            Some((queue, manager)) => self.put_there(queue, manager),
            None => self.put_here(object),
        }
    }

    /// `name` is of this queue manager.
    fn put_here(&self, name: &str) -> Result<Destination<'_>, ResolveError> {
        let alias = self.aliases.get(name);
        let Some(remote) = self.remotes.get(alias.map_or(name, |alias| &alias.target)) else {
            return self.resolve(name).map(Destination::Local);
        };
        let remote_name = remote.remote_name.as_ref().ok_or(ResolveError::NoRemoteName)?;
        let remote_manager = remote.remote_manager.as_ref().ok_or(ResolveError::UnknownManager)?;
        if *remote_manager == self.queue_manager.name {
            return Err(ResolveError::UnknownManager);
        }
        let (queue, local) = self.transmission_queue(remote, remote_manager)?;
        Ok(Destination::Remote(Transmission {
            queue,
            local,
            remote_name: remote_name.clone(),
            remote_manager: remote_manager.clone(),
            policy: self.policies.get(name),
            put_enabled: local.put_enabled && remote.put_enabled && alias.is_none_or(|alias| alias.put_enabled),
            default_priority: remote.default_priority,
            default_persistent: remote.default_persistent,
        }))
    }

    /// `manager` is another queue manager, or an alias of one.
    fn put_there(&self, name: &str, manager: &str) -> Result<Destination<'_>, ResolveError> {
        if !(is_name(name) && is_name(manager)) {
            return Err(ResolveError::Unknown);
        }
        if let Some(remote) = self.remotes.get(manager) {
            if remote.remote_name.is_some() {
                return Err(ResolveError::UnknownManager);
            }
            let remote_manager = remote.remote_manager.as_ref().ok_or(ResolveError::UnknownManager)?;
            if *remote_manager == self.queue_manager.name {
                return self.put_here(name).map(|found| found.unless_forbidden(remote.put_enabled));
            }
            let (queue, local) = self.transmission_queue(remote, remote_manager)?;
            return Ok(Destination::Remote(Transmission {
                queue,
                local,
                remote_name: name.to_owned(),
                remote_manager: remote_manager.clone(),
                policy: None,
                put_enabled: local.put_enabled && remote.put_enabled,
                default_priority: remote.default_priority,
                default_persistent: remote.default_persistent,
            }));
        }
        let (queue, local) = match self.queues.get_key_value(manager) {
            Some((_, local)) if local.usage != Usage::Transmission => return Err(ResolveError::TransmissionQueueUsage),
            Some((queue, local)) => (queue.as_str(), local),
            None => self.default_transmission_queue()?,
        };
        Ok(Destination::Remote(Transmission {
            queue,
            local,
            remote_name: name.to_owned(),
            remote_manager: manager.to_owned(),
            policy: None,
            put_enabled: local.put_enabled,
            default_priority: local.default_priority,
            default_persistent: local.default_persistent,
        }))
    }

    /// The transmission queue of a remote queue or queue-manager alias whose RQMNAME is `manager`.
    pub fn transmission_queue(&self, remote: &RemoteQueue, manager: &str) -> Result<(&str, &LocalQueue), ResolveError> {
        let name = remote.transmission_queue.as_deref();
        match self.queues.get_key_value(name.unwrap_or(manager)) {
            Some((queue, local)) if local.usage == Usage::Transmission => Ok((queue, local)),
            Some(_) => Err(ResolveError::TransmissionQueueUsage),
            None if self.is_alias_or_remote(name.unwrap_or(manager)) => Err(ResolveError::TransmissionQueueType),
            None if name.is_some() => Err(ResolveError::UnknownTransmissionQueue),
            None => self.default_transmission_queue(),
        }
    }

    fn default_transmission_queue(&self) -> Result<(&str, &LocalQueue), ResolveError> {
        let name = self.queue_manager.default_transmission_queue.as_ref().ok_or(ResolveError::UnknownManager)?;
        match self.queues.get_key_value(name) {
            Some((queue, local)) if local.usage == Usage::Transmission => Ok((queue, local)),
            Some(_) => Err(ResolveError::DefaultTransmissionQueueUsage),
            None if self.is_alias_or_remote(name) => Err(ResolveError::DefaultTransmissionQueueType),
            None => Err(ResolveError::UnknownDefaultTransmissionQueue),
        }
    }
}
