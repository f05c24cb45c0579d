//! AMQP 1.0 (ISO/IEC 19464), both roles, as a machine without sockets and without a clock: bytes and
//! time in, events and bytes out.
//!
//! - [`Connection`] is the machine: the host feeds [`Connection::receive`] or, out of room that it uses
//!   again, [`Connection::receive_copied`]; takes [`Connection::poll_event`], gives commands, and writes
//!   [`Connection::output_slices`].
//! - [`Sections`] finds the parts of a message without decoding them; [`Payload`] is a message's bytes,
//!   which travel from read buffer to write buffer as they arrived.
//! - [`types`] holds the performatives as one table, [`scram`] the one password exchange that never
//!   shows a password.
//!
//! A message is put together and taken apart without touching its body:
//!
//! ```
//! use bulla_amqp::{BodyForm, Header, MessageBody, MessageParts, Payload, Sections};
//! use bytes::Bytes;
//!
//! let body = Payload::from(Bytes::from_static(b"an order"));
//! let header = Header { durable: true, ..Header::default() };
//! let message = MessageParts { header: Some(header), body: MessageBody::Data(body), ..Default::default() }.build();
//!
//! let sections = Sections::scan(&message)?;
//! assert!(sections.decode_header(&message)?.durable);
//! let BodyForm::Data(range) = sections.body else { panic!("one data section was written") };
//! assert_eq!(message.slice(range).to_contiguous(), "an order");
//! # Ok::<(), bulla_amqp::DecodeError>(())
//! ```

mod codec;
pub mod condition;
pub mod config;
mod connection;
mod deliveries;
mod event;
mod lost;
pub mod message;
mod output;
mod payload;
mod sasl;
pub mod scram;
#[cfg(feature = "openssl")]
pub mod scram_openssl;
mod slots;
#[cfg(test)]
mod tests;
pub mod transaction;
pub mod types;
mod unsettled;
mod value;

pub use codec::{DEPTH_MAX, DecodeError, ELEMENTS_MAX};
pub use config::{Config, Limits};
pub use connection::{COPY_IN_BYTES_MAX, Connection, LINK_NAME_BYTES_MAX};
pub use event::{
    AttachReply, AttachRequest, Delivery, DeliveryId, Event, IncomingAttach, LinkId, LinkInfo, LinkOpened, SessionId,
};
pub use message::{BodyForm, MessageBody, MessageParts, Sections, check_body, with_header};
pub use payload::Payload;
pub use sasl::{BearerResponse, Mechanism, PlainResponse, SaslClient, SaslOffer, SaslSecret};
pub use scram::ScramCrypto;
pub use types::{
    AnyTarget, Coordinator, DeliveryState, DeliveryTag, Error, Header, MessageId, Open, Properties, ReceiverSettleMode,
    Role, SenderSettleMode, Source, Target, Timestamp,
};
pub use unsettled::{KeptOutcome, OUTCOMES_KEPT_MAX, UNSETTLED_ENTRIES_MAX, UnsettledMap};
pub use value::{Array, Symbol, Value};
