//! Transactions (part 4): what is said to a coordinator, and what one can do.
//!
//! A coordinator's messages have one value for a body, *declare* or *discharge*. The answer to a declare is the outcome
//! [`DeliveryState::Declared`](crate::DeliveryState::Declared); transfers and outcomes name their transaction by
//! [`DeliveryState::Transactional`](crate::DeliveryState::Transactional).

use crate::codec::{Decode, DecodeError, Encode, Reader, code};
use crate::message::{BodyForm, Sections};
use crate::payload::Payload;
pub use crate::types::{Declare, Discharge};
use crate::value::Symbol;
use bytes::Bytes;

/// Longest id of a transaction, in bytes (part 4, section 4.5.7).
pub const TXN_ID_BYTES_MAX: usize = 32;

/// Capability: transactions within one coordinator (part 4, section 4.5.6).
pub const LOCAL_TRANSACTIONS: Symbol = Symbol::from_static("amqp:local-transactions");
/// Capability: several transactions at once in one session.
pub const MULTI_TXNS_PER_SSN: Symbol = Symbol::from_static("amqp:multi-txns-per-ssn");
/// Capability: one transaction over several sessions.
pub const MULTI_SSNS_PER_TXN: Symbol = Symbol::from_static("amqp:multi-ssns-per-txn");

/// Descriptor of an *amqp-value* section, as it stands in a message.
const VALUE_SECTION: [u8; 3] = [code::DESCRIBED, code::ULONG8, 0x77];

/// A message to a coordinator.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Begins a transaction.
    Declare(Declare),
    /// Ends one.
    Discharge(Discharge),
}

impl Control {
    /// Reads a message to a coordinator; whatever it has beside its body does not count.
    ///
    /// # Errors
    /// [`DecodeError`], the sender's turn: no message, or one whose body is neither *declare* nor *discharge*.
    pub fn read(message: &Payload) -> Result<Self, DecodeError> {
        const WANTED: &str = "declare or discharge";
        let sections = Sections::scan(message)?;
        let BodyForm::Sections(range) = sections.body else { return Err(DecodeError::Value { of: WANTED }) };
        let bytes = message.bytes_at(range);
        let mut reader = Reader::new(&bytes);
        // The scan has found a described section here: its own descriptor goes first.
        reader.u8()?;
        let section = reader.descriptor()?;
        if section != u64::from(VALUE_SECTION[2]) {
            return Err(DecodeError::Descriptor { wanted: "amqp-value", code: section });
        }
        let value = reader.u8()?;
        let descriptor = match value {
            code::DESCRIBED => reader.clone().descriptor()?,
            code => return Err(DecodeError::Type { wanted: WANTED, code }),
        };
        let control = match descriptor {
            Declare::CODE => Self::Declare(Declare::decode(&mut reader, value)?),
            Discharge::CODE => Self::Discharge(Discharge::decode(&mut reader, value)?),
            code => return Err(DecodeError::Descriptor { wanted: WANTED, code }),
        };
        if reader.is_empty() { Ok(control) } else { Err(DecodeError::Surplus) }
    }

    /// The message that says it.
    pub fn to_message(&self) -> Payload {
        let mut bytes = VALUE_SECTION.to_vec();
        match self {
            Self::Declare(declare) => declare.encode(&mut bytes),
            Self::Discharge(discharge) => discharge.encode(&mut bytes),
        }
        Payload::from(Bytes::from(bytes))
    }
}
