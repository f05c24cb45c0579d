//! A call to a channel's partner, until the channel runs.

use super::registry::InstanceId;
use crate::front::SessionId;
use crate::reason::Refusal;
use std::time::Instant;

/// A call that has not come to a running channel yet.
pub(crate) struct Calling {
    pub(crate) id: InstanceId,
    /// When it is given up; none once messages flow to a requester, whose call it stays.
    pub(crate) deadline: Option<Instant>,
    pub(crate) session: SessionId,
    /// Why it failed, where that is known.
    pub(crate) failure: Option<Refusal>,
}
