//! The log of a shared group of queues: a replicated, fenced stream of NATS JetStream behind [`bulla_queue::Log`].
//!
//! Every rule of queues stays in `bulla-queue`, which hands batches to a [`Log`](bulla_queue::Log). One queue manager
//! at a time owns the log; another takes it over by writing a record with the next epoch, and from then on nothing of
//! the former owner enters. [`JetStreamLog`] has the connection on a thread of its own, with the only asynchronous
//! runtime and the only second TLS library of the program. `docs/formats/shared-log.md` says what lies in the stream.

mod append;
mod asker;
mod control;
mod engine;
pub mod frame;
mod log;
mod monitor;
mod options;
mod process;
mod shared;
mod table;

pub use asker::Asker;
pub use log::JetStreamLog;
pub use options::*;
pub use shared::Ownership;
