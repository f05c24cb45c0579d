//! Policies, key rings, and the seal itself: CMS messages bound to their place.
//!
//! The crate knows messages and identities, not queues. A [`Policy`] says what a message needs, a
//! [`ring::Ring`] whose keys there are.

pub mod certificate;
pub mod dn;
pub mod policy;
pub mod ring;

pub use dn::Dn;
pub use policy::{Policy, PolicyError};
