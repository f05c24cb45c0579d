//! `bulla plan`: what a system would do, computed from what its parts take.

pub mod profile;

pub use profile::Profile;
