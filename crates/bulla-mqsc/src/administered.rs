//! What the admin language works on: the queue manager, or a test's paper.

use super::diagnosis::DoctorQuestion;
use super::policy_check::PolicyQuestion;
use super::reseal::{ResealQuestion, Resealed};
use super::run::messages;
use bulla_catalog::authority::Role;
use bulla_catalog::calendar::moment;
use bulla_catalog::connections::{Connected, ConnectionId, Connections};
use bulla_catalog::diagnosis::Diagnosis;
use bulla_catalog::findings::Findings;
use bulla_catalog::limits::UserStatus;
use bulla_catalog::lockouts::InForce;
use bulla_catalog::log_ins::LoggedIn;
use bulla_catalog::status::{
    AlgorithmUse, ChannelState, ChannelStatus, CostSnapshot, DeviceState, DeviceStatus, EnrolmentStatus, GroupStatus,
    InitiatorStatus, KeyRotationStatus, KeyUseStatus, PolicyStatus, QueueStatus, Snapshot, StopChannel,
    SubscriptionStatus, TaskSnapshot, TopicStatus,
};
use bulla_catalog::{Change, DeadLetter, Definitions, QueueManager};
use std::fmt::{self, Display};

/// What the admin language works on.
pub trait Administered {
    /// What is defined now.
    fn definitions(&self) -> &Definitions;

    /// Makes `change` true: in the definitions ([`Definitions::apply`]), on disk, and in what is running. It is durable
    /// on return.
    ///
    /// # Errors
    /// Nothing is changed.
    fn apply(&mut self, change: Change) -> Result<Applied, AdminError>;

    /// Makes all changes true, in their order, as [`apply`](Self::apply) does one. Whatever keeps nothing refuses.
    ///
    /// # Errors
    /// The place of the change that can't be made. Nothing is changed.
    fn apply_all(&mut self, _changes: Vec<Change>) -> Result<Applied, (usize, AdminError)> {
        Err((0, AdminError::Failed { reason: 2102, detail: "changes are made one by one here".into() }))
    }

    /// Waits until `objects.mqsc` has what is defined. Whatever has no file has nothing to wait for.
    ///
    /// # Errors
    /// The file can't be written.
    fn write_definitions(&mut self) -> Result<(), AdminError> {
        Ok(())
    }

    /// Puts messages of an error or dead-letter queue back where they came from, each in one unit of work.
    ///
    /// # Errors
    /// Messages that were put back until then stay there.
    fn replay(&mut self, replay: &Replay) -> Result<Replayed, AdminError>;

    /// What lies on a local queue and can be got, oldest first, at most so many, as its labels describe it. Whatever
    /// holds no messages has none.
    ///
    /// # Errors
    /// There is no such queue, or the journal can't be read.
    fn dead_letters(&mut self, _queue: &str, _after: Option<u64>, _max: usize) -> Result<Vec<DeadLetter>, AdminError> {
        Ok(Vec::new())
    }

    /// What a policy would do with the users, key rings and messages that are there. Changes nothing. Whatever has none
    /// refuses.
    ///
    /// # Errors
    /// The journal can't be read.
    fn check_policy(&mut self, _question: &PolicyQuestion) -> Result<Findings, AdminError> {
        Err(AdminError::Failed { reason: 2102, detail: "there are no key rings here".into() })
    }

    /// Opens messages of a queue and seals them anew under the policy in force, each at its own place. What was done is
    /// durable on return. Whatever has no key rings refuses.
    ///
    /// # Errors
    /// No message can be sealed anew so; nothing is changed.
    fn reseal(&mut self, _question: &ResealQuestion) -> Result<Resealed, AdminError> {
        Err(AdminError::Failed { reason: 2102, detail: "there are no key rings here".into() })
    }

    /// What is wrong on the way from a put by a name to its get, or with the machine, the worst first. Changes nothing.
    /// Whatever has no queues refuses.
    ///
    /// # Errors
    /// The journal can't be read.
    fn diagnose(&mut self, _question: &DoctorQuestion) -> Result<Vec<Diagnosis>, AdminError> {
        Err(AdminError::Failed { reason: 2102, detail: "there is no queue manager here".into() })
    }

    /// What goes on at a local queue; none when there is no such queue.
    fn queue_status(&self, name: &str) -> Option<QueueStatus>;

    /// What was done under a policy. Whatever protects nothing has done nothing.
    fn policy_status(&self, _name: &str) -> PolicyStatus {
        PolicyStatus::default()
    }

    /// The key that opens a policy's messages most easily, of a policy that allows keys of both kinds for encryption;
    /// empty where it is not known.
    fn weakest_recipient(&self, _policy: &str) -> String {
        String::new()
    }

    /// Every subscription, as it stands. Whatever has no queues has none.
    fn subscription_status(&self) -> Vec<SubscriptionStatus> {
        Vec::new()
    }

    /// The topics that fit a pattern, as they stand, in the order of their names. Whatever has no queues has none.
    fn topic_status(&self, _pattern: &str) -> Vec<TopicStatus> {
        Vec::new()
    }

    /// Users that are connected, by name. None where the target has no connections.
    fn users(&self) -> Vec<UserStatus> {
        Vec::new()
    }

    /// Every connection with its links. Nothing is connected to whatever has no connections.
    ///
    /// # Errors
    /// A dispatcher did not answer in time.
    fn connections(&mut self) -> Result<Connections, AdminError> {
        Ok(Connections::default())
    }

    /// Ends a connection; none where it does not exist, else what it was.
    ///
    /// # Errors
    /// Its dispatcher did not answer in time.
    fn stop_connection(&mut self, _id: ConnectionId) -> Result<Option<Connected>, AdminError> {
        Ok(None)
    }

    /// Which keys the messages need that lie on queues, or are in units of work for them, where the queue's name is
    /// wanted. None where the target has no messages.
    ///
    /// # Errors
    /// It can't be found out now.
    fn key_use(&mut self, _is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<KeyUseStatus>, AdminError> {
        Ok(Vec::new())
    }

    /// What the messages that lie on queues are sealed with, where the queue's name is wanted, of each queue the first
    /// so many. None where the target has no messages.
    ///
    /// # Errors
    /// The journal can't be read.
    fn algorithm_use(
        &mut self,
        _is_wanted: &dyn Fn(&str) -> bool,
        _messages_max: u64,
    ) -> Result<Vec<AlgorithmUse>, AdminError> {
        Ok(Vec::new())
    }

    /// Changes of keys that are under way, where the user's name is wanted. None where the target has no key rings.
    ///
    /// # Errors
    /// It can't be found out now.
    fn key_rotations(&mut self, _is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<KeyRotationStatus>, AdminError> {
        Ok(Vec::new())
    }

    /// Certificates that renew by themselves, where the name is wanted. None where the target has no certificates.
    ///
    /// # Errors
    /// What is configured can't be used.
    fn enrolments(&mut self, _is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<EnrolmentStatus>, AdminError> {
        Ok(Vec::new())
    }

    /// Lockouts in force. None where the target has no connections.
    fn lockouts(&self) -> Vec<InForce> {
        Vec::new()
    }

    /// Ends those lockouts that it is told yes for; how many that were.
    fn end_lockouts(&mut self, _ends: &dyn Fn(&InForce) -> bool) -> usize {
        0
    }

    /// Log-ins over HTTP, by user and number. None where the target has no connections.
    fn log_ins(&self) -> Vec<LoggedIn> {
        Vec::new()
    }

    /// Ends those log-ins whose user and number it is told yes for; how many that were.
    fn end_log_ins(&mut self, _ends: &dyn Fn(&str, u64) -> bool) -> usize {
        0
    }

    /// Every local queue as it was kept last by a moment, milliseconds since 1970, UTC, in the order of names.
    ///
    /// # Errors
    /// [`AdminError::NotKept`] when nothing was kept by then any more, or yet.
    fn queues_at(&mut self, at_ms: u64) -> Result<Vec<(String, QueueStatus)>, AdminError> {
        Err(AdminError::NotKept { at_ms, oldest_ms: None })
    }

    /// The same of every policy.
    ///
    /// # Errors
    /// As [`queues_at`](Self::queues_at).
    fn policies_at(&mut self, at_ms: u64) -> Result<Vec<(String, PolicyStatus)>, AdminError> {
        Err(AdminError::NotKept { at_ms, oldest_ms: None })
    }

    /// Starts a defined device, as it is defined now. Returns once it is on its way:
    /// [`device_status`](Self::device_status) tells how far it came. One that runs already stays as it is. Whatever
    /// runs no devices refuses.
    ///
    /// # Errors
    /// Nothing is changed.
    fn start_device(&mut self, name: &str) -> Result<(), AdminError> {
        Err(AdminError::NoDevices { name: name.to_owned() })
    }

    /// Stops a defined device: jobs in service end, waiting ones go elsewhere. One that is stopped already stays so.
    /// Whatever runs no devices refuses.
    ///
    /// # Errors
    /// Nothing is changed.
    fn stop_device(&mut self, name: &str) -> Result<(), AdminError> {
        Err(AdminError::NoDevices { name: name.to_owned() })
    }

    /// What goes on at a device; none when there is no such device, or none run here.
    fn device_status(&self, _name: &str) -> Option<DeviceStatus> {
        None
    }

    /// Takes part in a defined group of shared queues. Returns once it is on its way:
    /// [`group_status`](Self::group_status) tells how far it came. Whatever shares no queues refuses.
    ///
    /// # Errors
    /// Nothing is changed.
    fn start_group(&mut self, name: &str) -> Result<(), AdminError> {
        Err(AdminError::NoGroups { name: name.to_owned() })
    }

    /// Takes no part in a group any more. Returns once its queues are not open here. Whatever shares no queues refuses.
    ///
    /// # Errors
    /// Nothing is changed.
    fn stop_group(&mut self, name: &str) -> Result<(), AdminError> {
        Err(AdminError::NoGroups { name: name.to_owned() })
    }

    /// Owns a group, also where another member owns it. Returns once that is on its way. A target without shared queues
    /// refuses.
    ///
    /// # Errors
    /// Nothing is changed.
    fn take_group_over(&mut self, name: &str) -> Result<(), AdminError> {
        Err(AdminError::NoGroups { name: name.to_owned() })
    }

    /// What goes on in a group, as this member sees it; none when there is no such group, or no queues are shared here.
    fn group_status(&self, _name: &str) -> Option<GroupStatus> {
        None
    }

    /// What every device has done: until now, or as it was kept last by a moment, milliseconds since 1970, UTC.
    ///
    /// # Errors
    /// [`AdminError::NotKept`] when nothing was kept by then any more, or yet.
    fn device_meters(&mut self, _at_ms: Option<u64>) -> Result<Snapshot, AdminError> {
        Ok(Snapshot::default())
    }

    /// What every task has done: until now, or as it was kept last by a moment, milliseconds since 1970, UTC.
    ///
    /// # Errors
    /// [`AdminError::NotKept`] when nothing was kept by then any more, or yet.
    fn task_meters(&mut self, _at_ms: Option<u64>) -> Result<TaskSnapshot, AdminError> {
        Ok(TaskSnapshot::default())
    }

    /// What every role has cost: until now, or as it was kept last by a moment, milliseconds since 1970, UTC.
    ///
    /// # Errors
    /// [`AdminError::NotKept`] when nothing was kept by then any more, or yet.
    fn cost_meters(&mut self, _at_ms: Option<u64>) -> Result<CostSnapshot, AdminError> {
        Ok(CostSnapshot::default())
    }

    /// Starts a defined channel, or, of a receiver that is STOPPED, lets partners in again. Returns once it is on its
    /// way: [`channel_status`](Self::channel_status) tells how far it came. Whatever runs no channels refuses.
    ///
    /// # Errors
    /// Nothing is changed.
    fn start_channel(&mut self, name: &str) -> Result<(), AdminError> {
        Err(AdminError::NoChannels { name: name.to_owned() })
    }

    /// Stops every instance of a defined channel. Returns once they are told. Whatever runs no channels refuses.
    ///
    /// # Errors
    /// Nothing is changed; [`AdminError::ChannelNotActive`] where it is to become INACTIVE and is.
    fn stop_channel(&mut self, name: &str, _how: StopChannel) -> Result<(), AdminError> {
        Err(AdminError::NoChannels { name: name.to_owned() })
    }

    /// Connects to the partner of a sending channel that does not run, as the channel would; gives who answered, in one
    /// line.
    ///
    /// # Errors
    /// It could not, and why.
    fn ping_channel(&mut self, name: &str) -> Result<String, AdminError> {
        Err(AdminError::NoChannels { name: name.to_owned() })
    }

    /// Sets the sequence number that a channel which does not run goes on with; says what was done.
    ///
    /// # Errors
    /// Nothing is changed; [`AdminError::ChannelInDoubt`] while messages are in doubt.
    fn reset_channel(&mut self, name: &str, _sequence: u64) -> Result<String, AdminError> {
        Err(AdminError::NoChannels { name: name.to_owned() })
    }

    /// Settles what a sending channel has in doubt: it was received and is removed (`commit`), or it was not and is
    /// sent again.
    ///
    /// # Errors
    /// Nothing is changed.
    fn resolve_channel(&mut self, name: &str, _commit: bool) -> Result<(), AdminError> {
        Err(AdminError::NoChannels { name: name.to_owned() })
    }

    /// What goes on at a channel: nothing where it was never started, one for each partner where it receives.
    fn channel_status(&self, _name: &str) -> Vec<ChannelStatus> {
        Vec::new()
    }

    /// What goes on at all channels together.
    fn initiator_status(&self) -> InitiatorStatus {
        let QueueManager { channels_max, active_channels_max, .. } = self.definitions().queue_manager;
        InitiatorStatus { channels_max, active_channels_max, ..InitiatorStatus::default() }
    }
}

/// Which messages are to be put back.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replay {
    /// The local queue that they lie on; it exists.
    pub from: String,
    /// Only those that came from this queue.
    pub origin: Option<String>,
    /// At most so many.
    pub count: Option<u64>,
    /// Only the one of this number; what follows is about it.
    pub number: Option<u64>,
    /// It goes to this local queue instead.
    pub to: Option<String>,
    /// It keeps its label.
    pub keeps_label: bool,
    /// It is deleted.
    pub discards: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replayed {
    /// Messages that were put back.
    pub moved: u64,
    /// Messages that were asked for and stay: their queue is gone, full, or not named.
    pub left: u64,
    /// Why they stay, one lower-case line each or for several.
    pub warnings: Vec<String>,
}

/// What [`Administered::apply`] has to say beside that it is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// What should be seen to, one lower-case line each: a policy that names a user whose certificate is nowhere, …
    pub warnings: Vec<String>,
}

/// Why a change was refused. The administrator's turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AdminError {
    /// Applications have it open: 2042.
    InUse {
        /// The queue or alias.
        name: String,
        /// Links that are attached to it.
        links: usize,
    },
    /// It holds messages: 2055.
    NotEmpty {
        /// The queue.
        name: String,
        /// How many.
        depth: u64,
    },
    /// It went away meanwhile: 2085.
    Unknown {
        /// What was named.
        name: String,
    },
    /// A device must be stopped for this: 2042.
    Running {
        /// The device.
        name: String,
        /// What it is doing.
        state: DeviceState,
    },
    /// No devices run here: 2102.
    NoDevices {
        /// The device.
        name: String,
    },
    /// No queues are shared here: 2102.
    NoGroups {
        /// The group.
        name: String,
    },
    /// A channel must not run for this: 4031.
    ChannelInUse {
        /// The channel.
        name: String,
        /// What it is doing.
        state: ChannelState,
    },
    /// There is no such channel: 4032.
    UnknownChannel {
        /// What was named.
        name: String,
    },
    /// The channel does not run: 4064.
    ChannelNotActive {
        /// The channel.
        name: String,
    },
    /// Messages of the channel are in doubt: 4025.
    ChannelInDoubt {
        /// The channel.
        name: String,
    },
    /// No channels run here: 2102.
    NoChannels {
        /// The channel.
        name: String,
    },
    /// It takes a greater role than its author has: 2035.
    NotAuthorised {
        /// The command.
        command: String,
        /// What it takes.
        needs: Role,
    },
    /// Nothing is kept of that time: 3200.
    NotKept {
        /// What was asked for, milliseconds since 1970, UTC.
        at_ms: u64,
        /// The oldest that is kept, if there is one.
        oldest_ms: Option<u64>,
    },
    /// The disk, the journal, a stopping queue manager: whatever has a reason code.
    Failed {
        /// MQ's reason code.
        reason: u32,
        /// One lower-case line.
        detail: String,
    },
}

impl AdminError {
    /// MQ's reason code.
    pub fn reason(&self) -> u32 {
        match self {
            AdminError::InUse { .. } => 2042,
            AdminError::NotAuthorised { .. } => 2035,
            AdminError::NotEmpty { .. } => 2055,
            AdminError::Unknown { .. } => 2085,
            AdminError::NotKept { .. } => 3200,
            AdminError::Running { .. } => 2042,
            AdminError::NoDevices { .. } | AdminError::NoChannels { .. } | AdminError::NoGroups { .. } => 2102,
            AdminError::ChannelInDoubt { .. } => 4025,
            AdminError::ChannelInUse { .. } => 4031,
            AdminError::UnknownChannel { .. } => 4032,
            AdminError::ChannelNotActive { .. } => 4064,
            AdminError::Failed { reason, .. } => *reason,
        }
    }
}

impl std::error::Error for AdminError {}

impl Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminError::InUse { name, links: 1 } => write!(f, "{name} is open on 1 link"),
            AdminError::InUse { name, links } => write!(f, "{name} is open on {links} links"),
            AdminError::NotEmpty { name, depth } => write!(f, "{name} holds {}", messages(*depth)),
            AdminError::Unknown { name } => write!(f, "{name} does not exist"),
            AdminError::NotAuthorised { command, needs } => write!(f, "{command} takes the role {needs}"),
            AdminError::Running { name, state } => write!(f, "device {name} is {state}"),
            AdminError::NoDevices { name } => write!(f, "no devices run here, {name} neither"),
            AdminError::NoGroups { name } => write!(f, "no queues are shared here, those of {name} neither"),
            AdminError::ChannelInUse { name, state } => write!(f, "channel {name} is {state}"),
            AdminError::UnknownChannel { name } => write!(f, "channel {name} does not exist"),
            AdminError::ChannelNotActive { name } => write!(f, "channel {name} is not active"),
            AdminError::ChannelInDoubt { name } => write!(f, "channel {name} has messages in doubt"),
            AdminError::NoChannels { name } => write!(f, "no channels run here, {name} neither"),
            AdminError::NotKept { at_ms, oldest_ms: None } => {
                write!(f, "no numbers are kept yet, of {} neither", moment(*at_ms))
            }
            AdminError::NotKept { at_ms, oldest_ms: Some(oldest) } => {
                write!(f, "no numbers are kept of {}: the oldest are of {}", moment(*at_ms), moment(*oldest))
            }
            AdminError::Failed { detail, .. } => f.write_str(detail),
        }
    }
}
