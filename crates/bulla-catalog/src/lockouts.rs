//! Lockouts as an administrator sees them.

use std::net::IpAddr;
use std::time::Duration;

/// A lockout in force.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct InForce {
    /// Who is locked out.
    pub whose: Whose,
    /// The user, unless it is about an address; none where what was given can't be a user's name.
    pub user: Option<String>,
    /// The address, unless it is about a user from everywhere; of IPv6 the first 64 bits.
    pub address: Option<IpAddr>,
    /// How long it still lasts.
    pub left: Duration,
    /// How many there were one after the other, this one included.
    pub lockouts: u32,
}

/// Who is locked out.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Whose {
    /// The user, from the address.
    Pair,
    /// All users from the address, but for those known there.
    Address,
    /// No one: the user is guarded.
    User,
}
