//! Log-ins over HTTP as an administrator sees them.

use std::net::IpAddr;

/// How many log-ins there are and were.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogInCounts {
    /// Now.
    pub now: usize,
    /// Begun since the start.
    pub begun: u64,
    /// Ended since the start, by cause.
    pub ended: Vec<(&'static str, u64)>,
}

/// A user who has logged in. Nothing of the cookie is here.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LoggedIn {
    /// The user.
    pub user: String,
    /// Which log-in: they are numbered from the start of the queue manager on.
    pub number: u64,
    /// When it began, milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// When it was used last, milliseconds since 1970, UTC.
    pub used_ms: u64,
    /// When it ends unless it is used, milliseconds since 1970, UTC.
    pub until_ms: u64,
    /// From where it was used last; none where that is not known.
    pub address: Option<IpAddr>,
    /// Whether it was begun over TLS, and is taken over TLS alone.
    pub tls: bool,
}
