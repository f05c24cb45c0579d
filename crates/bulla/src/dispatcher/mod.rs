//! What a dispatcher does for its connections: links, puts, gets, units of work. No socket is read or written here.
//!
//! A turn ([`core`]) works under the queues' lock: what happened on connections becomes puts and removals, what is synced
//! is confirmed, and queues are served to consumers that have credit.

pub(crate) mod attach;
pub(crate) mod authority;
#[cfg(test)]
mod backlog_tests;
#[cfg(test)]
mod caused_tests;
pub(crate) mod connections;
pub(crate) mod consumer;
pub(crate) mod consumers;
pub(crate) mod core;
pub(crate) mod ending;
#[cfg(test)]
mod error_queue_tests;
pub(crate) mod get;
#[cfg(test)]
pub(crate) mod harness;
pub(crate) mod local;
pub(crate) mod passed_over;
pub(crate) mod peer;
pub(crate) mod producer;
pub(crate) mod publish;
#[cfg(test)]
mod publish_model;
pub(crate) mod publishing;
pub(crate) mod put;
pub(crate) mod resume;
pub(crate) mod returns;
pub(crate) mod sasl;
pub(crate) mod sealing;
pub(crate) mod selection;
pub(crate) mod serve_list;
pub(crate) mod shares;
pub(crate) mod sole;
pub(crate) mod subscribe;
pub(crate) mod subscription;
pub(crate) mod unit_of_work;

/// Connections of one dispatcher; more are refused with 2025.
pub const CONNECTIONS_MAX: usize = 10_000;
