//! Certificates that come and renew by themselves: of key rings and of TLS, from authorities that are elsewhere.
//!
//! [`configuration`] says from where, [`source`] asks there ([`command`]: a program; [`cmp`] and [`acme`]: by a
//! protocol over [`web`]; [`spiffe`]: an agent on this machine), and [`answer`] judges what came before anything is
//! kept. [`ring_certificate`], [`signer_certificate`] and [`tls_certificate`] renew one certificate, for `bulla key
//! enrol` and `bulla cert renew` as well as for [`enroller`], the queue manager's part, which knows by [`due`] when.
//! The renewal of a ring's key is a change of that key ([`crate::key_rotation`]) whose certificate comes from
//! elsewhere.

pub mod acme;
pub mod answer;
pub mod cmp;
pub mod command;
pub mod configuration;
pub mod due;
pub mod enroller;
mod error;
pub mod ring_certificate;
pub mod safe_file;
pub mod signer_certificate;
pub mod source;
pub mod spiffe;
pub mod tls_certificate;
pub mod web;

pub use configuration::Configuration;
pub use enroller::Enroller;
pub use error::EnrolError;

#[cfg(test)]
mod tests;
