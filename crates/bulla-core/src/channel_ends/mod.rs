//! The two ends of a channel on their connections: who calls, how a link begins, and what goes over it.
//!
//! What they need of a connection is in `dispatcher/`, which knows their links as [`crate::dispatcher::sending`] and
//! [`crate::dispatcher::receiving`]. A dispatcher's turn ([`crate::core`]) calls both.

pub mod attaching;
pub mod caller;
pub mod receiver;
pub mod sender;
