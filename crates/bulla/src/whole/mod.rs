//! Tests of a whole queue manager in this process, with clients and partners of its own.

mod backlog;
mod caused;
pub(crate) mod channels;
mod direct;
mod error_queue;
pub(crate) mod harness;
mod publish_model;
mod stopped_channel;
mod units;
