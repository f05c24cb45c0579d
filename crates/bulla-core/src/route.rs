//! Where a name that a client opens leads, and what its queue says of messages.

use crate::catalog::limits::QueueLimit;
use crate::channel::transmission::TransmissionHeader;
use crate::envelope::Defaults;
use bulla_queue::QueueId;
use bulla_seal::Policy;
use std::sync::Arc;

/// Where a name that a client opens leads.
#[derive(Clone)]
pub struct Route {
    /// The local queue it resolves to.
    pub queue: QueueId,
    /// That queue's name.
    pub queue_name: String,
    /// The policy of the name that was opened.
    pub policy: Option<Arc<Policy>>,
    /// GET(ENABLED), of the queue and of the alias.
    pub get_enabled: bool,
    /// PUT(ENABLED), of the queue and of the alias.
    pub put_enabled: bool,
    /// FULL(WAIT): at MAXDEPTH no more credit is granted.
    pub waits_when_full: bool,
    /// MAXMSGL in bytes, of the stored message; the smaller of the queue's and the queue manager's.
    pub message_bytes_max: usize,
    /// NOSHARE: one consumer at a time.
    pub takes_alone: bool,
    /// GROUPS(YES): messages of one group go to one link at a time.
    pub has_groups: bool,
    /// DEFSOPT(EXCL): a consumer that does not say is exclusive.
    pub default_exclusive: bool,
    /// MAXHANDS, UNACKED and MSGRATE.
    pub limit: QueueLimit,
    /// What a message without a header section gets.
    pub defaults: Defaults,
    /// Where it goes from there, for a transmission queue that was reached by a remote name.
    pub transmission: Option<Arc<TransmissionHeader>>,
    /// The definitions' generation this was looked up in.
    pub generation: u64,
}
