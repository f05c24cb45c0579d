//! What is defined and what is known of it: definitions, one file for each sort of object, and how a name is resolved;
//! authority, limits, selectors, topic names; status rows; reasons, exit codes and moments as text.
//!
//! Definitions and answers only: no files, no sockets, no threads. Nothing here knows the admin language.

pub mod addresses;
pub mod authority;
pub mod calendar;
mod change;
pub mod cipher_spec;
pub mod connections;
mod dead_letter;
mod definitions;
pub mod diagnosis;
pub mod exit_codes;
pub mod findings;
pub mod limits;
pub mod lockouts;
pub mod log_ins;
pub mod names;
pub mod objects;
pub mod peer_name;
pub mod reason;
mod resolve;
pub mod selector;
pub mod status;
pub mod system_queues;
pub mod tls_group;
pub mod topic_names;

pub use change::Change;
pub use dead_letter::DeadLetter;
pub use definitions::OBJECTS_MAX;
pub use objects::{
    ADAPTERS_MAX, AliasQueue, BASE_TOPIC, Backout, BaseProfile, CHANNEL_NAME_CHARS_MAX, CHANNELS_MAX,
    ChannelDefinition, ChannelKind, DEPTH_MAX, DEVICES_MAX, DISPATCHERS_MAX, Definitions, Delivery, DeviceDefinition,
    Full, LOG_IN_IDLE_SECONDS, LOG_IN_LIFE_SECONDS, LocalQueue, MESSAGE_BYTES_MAX, ModelQueue, ModelSetup, Named,
    Needed, Object, Protection, QueueManager, RemoteQueue, Setup, SharedGroup, Sort, Subscription, TokenSetup, Topic,
    TransitSetup, TriggerType, Usage,
};
pub use resolve::{Destination, ResolveError, Resolved, Transmission};
