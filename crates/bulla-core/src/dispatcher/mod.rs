//! What a dispatcher does for its connections: links, puts, gets, units of work. No socket is read or written here.
//!
//! A turn ([`crate::core`]) works under the queues' lock: what happened on connections becomes puts and removals, what
//! is synced is confirmed, and queues are served to consumers that have credit.

pub mod attach;
pub mod authority;
pub mod connections;
pub mod consumer;
pub mod consumers;
pub mod deadlines;
pub mod elsewhere;
pub mod ending;
pub mod get;
pub mod left_stores;
pub mod local;
pub mod passed_over;
pub mod peer;
pub mod producer;
pub mod publish;
pub mod publishing;
pub mod put;
pub mod receiving;
pub mod resume;
pub mod returns;
pub mod sasl;
pub mod sealing;
pub mod selection;
pub mod sending;
pub mod serve_list;
pub mod shares;
pub mod sole;
pub mod subscribe;
pub mod subscription;
pub mod unit_of_work;

/// Connections of one dispatcher; more are refused with 2025.
pub const CONNECTIONS_MAX: usize = 10_000;
