//! Groups of shared queues, as this member sees them.

use std::fmt;

/// What this queue manager is in a group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GroupState {
    /// It takes no part: by command, or because it was never started.
    #[default]
    Stopped,
    /// It looks for the log.
    Connecting,
    /// It reads what the owner writes, and takes over when that one is gone.
    Standby,
    /// It has claimed the log, and its queues are about to be open here.
    Claiming,
    /// The group's queues are open here.
    Owner,
}

impl GroupState {
    /// As DISPLAY shows it.
    pub fn word(self) -> &'static str {
        match self {
            GroupState::Stopped => "STOPPED",
            GroupState::Connecting => "CONNECTING",
            GroupState::Standby => "STANDBY",
            GroupState::Claiming => "CLAIMING",
            GroupState::Owner => "OWNER",
        }
    }
}

/// A group of shared queues, as this member sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupStatus {
    /// What this queue manager is in it.
    pub state: GroupState,
    /// Since when, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// The queue manager that owns it; empty while that is not known.
    pub owner: String,
    /// Where the owner's clients reach it; empty while that is not known.
    pub owner_address: String,
    /// How often the group was claimed.
    pub epoch: u64,
    /// Where the log ends, in bytes since it began, as far as it was read or written here.
    pub position: u64,
    /// Bytes that wait for the log.
    pub waiting_bytes: u64,
    /// Messages on the group's queues, as far as the log was read here.
    pub messages: u64,
    /// At the owner, messages that wait for queues of a queue manager's own.
    pub crossing: u64,
    /// At the owner, bytes of the log that are not let go yet.
    pub log_bytes: u64,
    /// What a confirmation survives: PROCESS, POWER, MINORITYPOWER or UNKNOWN.
    pub survives: &'static str,
    /// Users' key rings that the group's owner uses, or the one before it used, and that can't be used here; by user.
    pub rings_missing: Vec<MissingRing>,
    /// Why it is not further: what failed last, and when that is over nothing.
    pub why: String,
}

/// A user's key ring that a member of a group needs and can't use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MissingRing {
    /// The user.
    pub user: String,
    /// Why it can't be used.
    pub why: String,
}

/// `billing: no key ring`
impl fmt::Display for MissingRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.user, self.why)
    }
}

/// The first of these rings, and how many there are besides.
pub fn listed_rings(rings: &[MissingRing], shown: usize, all: usize) -> String {
    let mut text = rings.iter().take(shown).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let more = all.saturating_sub(shown.min(rings.len()));
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}
