//! What goes on at objects, and what was counted: what DISPLAY of a status shows.

mod algorithm_use;
mod channel;
mod cost;
mod device;
mod enrolment;
mod key_rotation;
mod key_use;
mod protection;
mod queue;
mod shared_group;
mod task;
mod topic;

pub use algorithm_use::{AlgorithmUse, MESSAGES_DEFAULT as ALGORITHM_MESSAGES_DEFAULT, SealedAs};
pub use channel::{ChannelState, ChannelStatus, InitiatorStatus, StopChannel, Tasks};
pub use cost::{CostSnapshot, PROCESS, ScratchUse, UNATTRIBUTED};
pub use device::{DeviceMeters, DeviceState, DeviceStatus, Snapshot};
pub use enrolment::{EnrolmentPlace, EnrolmentState, EnrolmentStatus};
pub use key_rotation::{KeyOfRotation, KeyRotationStatus};
pub use key_use::{KeyUseStatus, MissingKey, NeededKey, Stranded};
pub use protection::Deed;
pub use protection::{DeviceWait, ProtectionMeters};
pub use queue::{PolicySnapshot, PolicyStatus, QueueSnapshot, QueueStatus};
pub use shared_group::{GroupState, GroupStatus, MissingRing, listed_rings};
pub use task::{TaskKind, TaskMeters, TaskSnapshot};
pub use topic::{SubscriptionStatus, TopicStatus};

/// A short and a long average, as MQ shows them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TwoAverages {
    /// Over the last few.
    pub short: u64,
    /// Over many.
    pub long: u64,
}
