//! AMQP 1.0 (ISO/IEC 19464), both roles, as a machine without sockets and without a clock: bytes and
//! time in, events and bytes out.
//!
//! - [`Connection`] is the machine: the host feeds [`Connection::receive`], takes
//!   [`Connection::poll_event`], gives commands, and writes [`Connection::output_slices`].
//! - [`Sections`] finds the parts of a message without decoding them; [`Payload`] is a message's bytes,
//!   which travel from read buffer to write buffer as they arrived.
//! - [`types`] holds the performatives as one table, [`scram`] the one password exchange that never
//!   shows a password.

mod codec;
pub mod condition;
pub mod config;
mod connection;
mod deliveries;
mod event;
pub mod message;
mod output;
mod payload;
mod sasl;
pub mod scram;
mod slots;
#[cfg(test)]
mod tests;
pub mod types;
mod value;

pub use codec::{DEPTH_MAX, DecodeError, ELEMENTS_MAX};
pub use config::{Config, Limits};
pub use connection::{COPY_IN_BYTES_MAX, Connection, LINK_NAME_BYTES_MAX};
pub use event::{
    AttachReply, AttachRequest, Delivery, DeliveryId, Event, IncomingAttach, LinkId, LinkInfo, LinkOpened, SessionId,
};
pub use message::{BodyForm, MessageBody, MessageParts, Sections, with_header};
pub use payload::Payload;
pub use sasl::{Mechanism, PlainResponse, SaslClient, SaslOffer};
pub use scram::ScramCrypto;
pub use types::{
    AnyTarget, Coordinator, DeliveryState, Error, Header, MessageId, Open, Properties, ReceiverSettleMode, Role,
    SenderSettleMode, Source, Target, Timestamp,
};
pub use value::{Array, Symbol, Value};
