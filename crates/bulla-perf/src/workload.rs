//! What can be measured: each subcommand with the shape in which such numbers are published as its default.

pub mod devices;
pub mod key_reuse;
pub mod key_size;
pub mod request_reply;
pub mod stream;
