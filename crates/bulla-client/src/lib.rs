//! A blocking client of any AMQP 1.0 broker.
//!
//! [`Client`] puts and gets one message at a time, alone or in units of work. A program with a loop of its own, which
//! sends many messages in one system call, takes the parts: [`Wire`] is the socket with TLS, [`engine`] the protocol,
//! [`to_put`] and [`to_get`] open links.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect"))]

mod client;
mod error;
mod scram;
mod wire;

pub use client::{Attached, Client, Unit, property};
pub use error::ClientError;
pub use scram::{Crypto, Remembering};
pub use wire::{CONNECT_WITHIN, Endpoint, SEALED, Wire, engine, refused, to_get, to_put};
