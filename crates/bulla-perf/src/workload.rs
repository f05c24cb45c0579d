//! What can be measured: each subcommand with the shape in which such numbers are published as its default.

pub mod channel;
mod ciphers;
mod clerk;
mod crossing;
pub mod devices;
mod drain;
mod fleet;
pub mod handshake;
pub(crate) mod interception;
mod island;
pub mod islands;
pub mod key_reuse;
pub mod key_size;
mod partners;
pub mod request_reply;
mod route;
pub mod stream;
pub mod tasks;
pub mod trade;
