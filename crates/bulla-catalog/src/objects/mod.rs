//! Objects as they are defined: a file for each sort.

mod alias;
mod channel;
pub mod device;
mod model;
mod process;
mod queue;
mod queue_manager;
mod remote;
mod shared_group;
mod sorts;
mod subscription;
mod topic;

pub use alias::AliasQueue;
pub use channel::{CHANNEL_NAME_CHARS_MAX, CHANNELS_MAX, ChannelDefinition, ChannelKind, Protection};
pub use device::{BaseProfile, DEVICES_MAX, DeviceDefinition, ModelSetup, Setup, TokenSetup, TransitSetup};
pub use model::ModelQueue;
pub use process::Process;
pub use queue::{Backout, DEPTH_MAX, Delivery, Full, LocalQueue, MESSAGE_BYTES_MAX, TriggerType, Usage};
pub use queue_manager::{ADAPTERS_MAX, DISPATCHERS_MAX, LOG_IN_IDLE_SECONDS, LOG_IN_LIFE_SECONDS, QueueManager};
pub use remote::RemoteQueue;
pub use shared_group::{
    Redirect, SHARED_GROUP_NAME_CHARS_MAX, SHARED_GROUPS_MAX, SHARED_LOG_BYTES_DEFAULT, SHARED_LOG_COPIES_DEFAULT,
    SharedGroup, is_shared_group_name,
};
pub use sorts::{Definitions, Named, Object, Sort};
pub use subscription::Subscription;
pub use topic::{BASE_TOPIC, Needed, Topic};
