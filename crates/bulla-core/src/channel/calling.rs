//! A call to a channel's partner, until the channel runs.

use super::registry::InstanceId;
use crate::front::SessionId;
use crate::reason::Refusal;
use std::time::Instant;

/// A call that has not come to a running channel yet.
pub struct Calling {
    /// The channel's instance.
    pub id: InstanceId,
    /// When it is given up; none once messages flow to a requester, whose call it stays.
    pub deadline: Option<Instant>,
    /// The session that its links are to be in.
    pub session: SessionId,
    /// Why it failed, where that is known.
    pub failure: Option<Refusal>,
}
