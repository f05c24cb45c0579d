//! The queue manager as a library: the program is a thin `main` over it, and tests start it in-process.

mod accounting;
pub mod activity;
mod adapter;
pub mod authority;
pub mod channel;
pub mod cli;
pub mod client;
pub mod cost_activity;
mod devices;
pub mod dispatcher;
mod envelope;
pub mod log;
mod mailbox;
pub mod manager;
pub mod metrics;
pub mod mqsc;
pub mod random;
pub mod reason;
pub mod selector;
pub mod serve;
mod task;
pub mod task_activity;
pub mod tls;
pub mod traffic_activity;
pub mod users;
