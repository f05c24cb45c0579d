//! The composite types of AMQP 1.0 as one table, modelled on the standard's own XML: descriptor, name,
//! and the fields in order with type and multiplicity. The table yields the structs, their encoders and
//! decoders, and their documentation.

use crate::codec::{Decode, DecodeError, Encode, Fields, ListWriter, Reader, code};
use crate::sasl::SaslSecret;
use crate::unsettled::UnsettledMap;
use crate::value::{Symbol, Value};
use bytes::Bytes;
use std::fmt;

/// The type of a field of the given multiplicity.
macro_rules! field_type {
    (required $type:ty) => { $type };
    (default $type:ty) => { $type };
    (optional $type:ty) => { Option<$type> };
    (multiple $type:ty) => { Vec<$type> };
}

macro_rules! field_decode {
    (required $fields:ident $of:ident $field:ident) => {
        match $fields.next_code()? {
            Some(code) => Decode::decode(&mut $fields.reader, code)?,
            None => return Err(DecodeError::Missing { of: stringify!($of), field: stringify!($field) }),
        }
    };
    (optional $fields:ident $of:ident $field:ident) => {
        match $fields.next_code()? {
            Some(code) => Some(Decode::decode(&mut $fields.reader, code)?),
            None => None,
        }
    };
    (multiple $fields:ident $of:ident $field:ident) => {
        match $fields.next_code()? {
            Some(code) => Decode::decode(&mut $fields.reader, code)?,
            None => Vec::new(),
        }
    };
    (default $fields:ident $of:ident $field:ident $default:expr) => {
        match $fields.next_code()? {
            Some(code) => Decode::decode(&mut $fields.reader, code)?,
            None => $default,
        }
    };
}

macro_rules! field_encode {
    (required $list:ident $out:ident $value:expr) => {{
        $value.encode($out);
        $list.present($out);
    }};
    (optional $list:ident $out:ident $value:expr) => {
        match &$value {
            Some(value) => {
                value.encode($out);
                $list.present($out);
            }
            None => $list.absent($out),
        }
    };
    (multiple $list:ident $out:ident $value:expr) => {
        if $value.is_empty() {
            $list.absent($out);
        } else {
            $value.encode($out);
            $list.present($out);
        }
    };
    (default $list:ident $out:ident $value:expr, $default:expr) => {
        if $value == $default {
            $list.absent($out);
        } else {
            $value.encode($out);
            $list.present($out);
        }
    };
}

#[cfg(test)]
macro_rules! field_sample {
    (required $random:ident) => {
        crate::tests::Sample::sample($random)
    };
    (optional $random:ident) => {
        $random.often().then(|| crate::tests::Sample::sample($random)).filter(crate::tests::is_not_null)
    };
    (multiple $random:ident) => {
        crate::tests::Sample::sample($random)
    };
    (default $random:ident $default:expr) => {
        if $random.often() { crate::tests::Sample::sample($random) } else { $default }
    };
}

macro_rules! composites {
    ($(
        $(#[$doc:meta])*
        $visibility:vis struct $name:ident = $code:literal $symbol:literal {
            $( $(#[$field_doc:meta])* $field:ident: $kind:ident $type:ty $(= $default:expr)?, )*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[doc = concat!("\n\nDescriptor ", stringify!($code), ", `", $symbol, "`.")]
            #[derive(Clone, Debug, PartialEq)]
            $visibility struct $name {
                $( $(#[$field_doc])* pub $field: field_type!($kind $type), )*
            }

            impl $name {
                /// The numeric descriptor.
                $visibility const CODE: u64 = $code;

                /// Reads the list, after the descriptor.
                #[inline]
                pub(crate) fn decode_list(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                    #[allow(unused_mut)]
                    let mut fields = Fields::open(reader)?;
                    let value = Self {
                        $( $field: field_decode!($kind fields $name $field $($default)?), )*
                    };
                    fields.finish()?;
                    Ok(value)
                }
            }

            impl Decode for $name {
                fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
                    if code != code::DESCRIBED {
                        return Err(DecodeError::Type { wanted: stringify!($name), code });
                    }
                    reader.nested(|reader| match reader.descriptor()? {
                        Self::CODE => Self::decode_list(reader),
                        code => Err(DecodeError::Descriptor { wanted: stringify!($name), code }),
                    })
                }
            }

            impl Encode for $name {
                #[inline]
                fn encode(&self, out: &mut Vec<u8>) {
                    out.extend_from_slice(&[code::DESCRIBED, code::ULONG8, $code]);
                    #[allow(unused_mut)]
                    let mut list = ListWriter::new(out);
                    $( field_encode!($kind list out self.$field $(, $default)?); )*
                    list.finish(out);
                }
            }
        )*

        $(
            #[cfg(test)]
            impl crate::tests::Sample for $name {
                fn sample(random: &mut crate::tests::Random) -> Self {
                    Self { $( $field: field_sample!($kind random $($default)?), )* }
                }
            }
        )*

        /// Each type of the table, encoded and decoded again.
        #[cfg(test)]
        pub(crate) fn check_all(random: &mut crate::tests::Random) {
            $( crate::tests::check_composite::<$name>(random); )*
        }

        /// The numeric descriptor that a symbolic one stands for.
        pub(crate) fn code_of(name: &[u8]) -> Option<u64> {
            const NAMES: &[(&str, u64)] = &[$(($symbol, $code)),*];
            NAMES.iter().chain(SECTION_NAMES).find(|(known, _)| known.as_bytes() == name).map(|(_, code)| *code)
        }
    };
}

/// Symbolic descriptors of the types that are not composites of the table.
const SECTION_NAMES: &[(&str, u64)] = &[
    ("amqp:accepted:list", 0x24),
    ("amqp:released:list", 0x26),
    ("amqp:delete-on-close:list", 0x2b),
    ("amqp:delete-on-no-links:list", 0x2c),
    ("amqp:delete-on-no-messages:list", 0x2d),
    ("amqp:delete-on-no-links-or-messages:list", 0x2e),
    ("amqp:delivery-annotations:map", 0x71),
    ("amqp:message-annotations:map", 0x72),
    ("amqp:application-properties:map", 0x74),
    ("amqp:data:binary", 0x75),
    ("amqp:amqp-sequence:list", 0x76),
    ("amqp:amqp-value:*", 0x77),
    ("amqp:footer:map", 0x78),
];

composites! {
    /// First frame of a connection: parameters for all that follows (part 2, section 2.7.1).
    pub struct Open = 0x10 "amqp:open:list" {
        /// Name of the sending container.
        container_id: required String,
        /// Host that the sender wants to reach.
        hostname: optional String,
        /// Largest frame the sender accepts, in bytes; at least 512.
        max_frame_size: default u32 = u32::MAX,
        /// Highest channel number the sender accepts.
        channel_max: default u16 = u16::MAX,
        /// Milliseconds of silence after which the sender gives up.
        idle_time_out: optional u32,
        /// Locales for text the sender can give.
        outgoing_locales: multiple Symbol,
        /// Locales for text the sender wants.
        incoming_locales: multiple Symbol,
        /// Extensions the sender supports.
        offered_capabilities: multiple Symbol,
        /// Extensions the sender would use if the peer supports them.
        desired_capabilities: multiple Symbol,
        /// Properties of the connection.
        properties: default Vec<(Symbol, Value)> = Vec::new(),
    }

    /// Begins a session on a channel (part 2, section 2.7.2).
    pub struct Begin = 0x11 "amqp:begin:list" {
        /// The peer's channel that this answers.
        remote_channel: optional u16,
        /// Transfer id of the first transfer frame to come.
        next_outgoing_id: required u32,
        /// Transfer frames the sender accepts.
        incoming_window: required u32,
        /// Transfer frames the sender may send.
        outgoing_window: required u32,
        /// Highest handle the sender accepts.
        handle_max: default u32 = u32::MAX,
        /// Extensions the sender supports.
        offered_capabilities: multiple Symbol,
        /// Extensions the sender would use if the peer supports them.
        desired_capabilities: multiple Symbol,
        /// Properties of the session.
        properties: default Vec<(Symbol, Value)> = Vec::new(),
    }

    /// Attaches a link to a session (part 2, section 2.7.3).
    pub struct Attach = 0x12 "amqp:attach:list" {
        /// Name of the link.
        name: required String,
        /// Handle by which the sender names the link in this session.
        handle: required u32,
        /// The sender's end of the link.
        role: required Role,
        /// How the sending end settles.
        snd_settle_mode: default SenderSettleMode = SenderSettleMode::Mixed,
        /// How the receiving end settles.
        rcv_settle_mode: default ReceiverSettleMode = ReceiverSettleMode::First,
        /// Where messages come from.
        source: optional Source,
        /// Where messages go to.
        target: optional AnyTarget,
        /// Unsettled deliveries of an earlier attachment.
        unsettled: optional UnsettledMap,
        /// Whether `unsettled` is cut short.
        incomplete_unsettled: default bool = false,
        /// Delivery count that the sending end starts with.
        initial_delivery_count: optional u32,
        /// Largest message the sender accepts on the link, in bytes; 0 is no limit.
        max_message_size: optional u64,
        /// Extensions the sender supports.
        offered_capabilities: multiple Symbol,
        /// Extensions the sender would use if the peer supports them.
        desired_capabilities: multiple Symbol,
        /// Properties of the link.
        properties: default Vec<(Symbol, Value)> = Vec::new(),
    }

    /// State of a session's windows and, with a handle, of a link's credit (part 2, section 2.7.4).
    pub struct Flow = 0x13 "amqp:flow:list" {
        /// Transfer id expected next; absent before the peer's begin was seen.
        next_incoming_id: optional u32,
        /// Transfer frames the sender accepts from `next_incoming_id` on.
        incoming_window: required u32,
        /// Transfer id of the next transfer frame to come.
        next_outgoing_id: required u32,
        /// Transfer frames the sender may send.
        outgoing_window: required u32,
        /// The link; absent for the session alone.
        handle: optional u32,
        /// Delivery count of the sending end.
        delivery_count: optional u32,
        /// Messages the receiving end takes from `delivery_count` on.
        link_credit: optional u32,
        /// Messages waiting at the sending end.
        available: optional u32,
        /// Send what is there, consume the rest of the credit.
        drain: default bool = false,
        /// Answer with a flow.
        echo: default bool = false,
        /// Properties of the link state.
        properties: default Vec<(Symbol, Value)> = Vec::new(),
    }

    /// A message or a piece of one; the payload follows the list (part 2, section 2.7.5).
    pub struct Transfer = 0x14 "amqp:transfer:list" {
        /// The link.
        handle: required u32,
        /// Id of the delivery in the session; mandatory in its first frame.
        delivery_id: optional u32,
        /// Name of the delivery on the link; mandatory in its first frame.
        delivery_tag: optional DeliveryTag,
        /// Format of the message; 0 is that of part 3.
        message_format: optional u32,
        /// Whether the sender has settled already.
        settled: optional bool,
        /// Whether further frames of this delivery follow.
        more: default bool = false,
        /// Overrides the link's mode for this delivery.
        rcv_settle_mode: optional ReceiverSettleMode,
        /// State of the delivery at the sender.
        state: optional DeliveryState,
        /// Whether a delivery of an earlier attachment is resumed.
        resume: default bool = false,
        /// Whether the delivery is given up.
        aborted: default bool = false,
        /// Hint: no hurry with the disposition.
        batchable: default bool = false,
    }

    /// State of deliveries, by range of ids (part 2, section 2.7.6).
    pub struct Disposition = 0x15 "amqp:disposition:list" {
        /// The sender's end.
        role: required Role,
        /// First delivery id.
        first: required u32,
        /// Last delivery id; absent for one alone.
        last: optional u32,
        /// Whether the sender has settled.
        settled: default bool = false,
        /// State of the deliveries.
        state: optional DeliveryState,
        /// Hint: no hurry with an answer.
        batchable: default bool = false,
    }

    /// Detaches a link (part 2, section 2.7.7).
    pub struct Detach = 0x16 "amqp:detach:list" {
        /// The link.
        handle: required u32,
        /// Whether the link ends for good.
        closed: default bool = false,
        /// Why.
        error: optional Error,
    }

    /// Ends a session (part 2, section 2.7.8).
    pub struct End = 0x17 "amqp:end:list" {
        /// Why.
        error: optional Error,
    }

    /// Closes the connection (part 2, section 2.7.9).
    pub struct Close = 0x18 "amqp:close:list" {
        /// Why.
        error: optional Error,
    }

    /// What went wrong (part 2, section 2.8.14).
    pub struct Error = 0x1d "amqp:error:list" {
        /// The kind of error, a name from [`condition`](crate::condition) or an extension.
        condition: required Symbol,
        /// Text for people.
        description: optional String,
        /// Facts for programs.
        info: default Vec<(Symbol, Value)> = Vec::new(),
    }

    /// Outcome fields of *received* (part 3, section 3.4.1).
    pub(crate) struct Received = 0x23 "amqp:received:list" {
        /// Section reached.
        section_number: required u32,
        /// Bytes of that section reached.
        section_offset: required u64,
    }

    /// Outcome fields of *rejected* (part 3, section 3.4.3).
    pub(crate) struct Rejected = 0x25 "amqp:rejected:list" {
        /// Why.
        error: optional Error,
    }

    /// Outcome fields of *modified* (part 3, section 3.4.5).
    pub(crate) struct Modified = 0x27 "amqp:modified:list" {
        /// Whether the attempt counts.
        delivery_failed: default bool = false,
        /// Whether this receiver must not get it again.
        undeliverable_here: default bool = false,
        /// Annotations to merge in.
        message_annotations: default Vec<(Value, Value)> = Vec::new(),
    }

    /// Where messages of a link come from (part 3, section 3.5.3).
    pub struct Source = 0x28 "amqp:source:list" {
        /// Address; absent when dynamic.
        address: optional String,
        /// What of the terminus survives.
        durable: default u32 = 0,
        /// When the terminus starts to expire.
        expiry_policy: default Symbol = SESSION_END,
        /// Seconds until an expiring terminus goes.
        timeout: default u32 = 0,
        /// Asks for a node made for this link.
        dynamic: default bool = false,
        /// Properties of that node, *lifetime-policy* among them.
        dynamic_node_properties: default Vec<(Symbol, Value)> = Vec::new(),
        /// `move` or `copy` (browse).
        distribution_mode: optional Symbol,
        /// Filters, by name.
        filter: default Vec<(Symbol, Value)> = Vec::new(),
        /// Outcome for deliveries settled without one.
        default_outcome: optional DeliveryState,
        /// Outcomes that can be used.
        outcomes: multiple Symbol,
        /// Extensions.
        capabilities: multiple Symbol,
    }

    /// Where messages of a link go to (part 3, section 3.5.4).
    pub struct Target = 0x29 "amqp:target:list" {
        /// Address; absent when dynamic, or when each message names its own (anonymous relay).
        address: optional String,
        /// What of the terminus survives.
        durable: default u32 = 0,
        /// When the terminus starts to expire.
        expiry_policy: default Symbol = SESSION_END,
        /// Seconds until an expiring terminus goes.
        timeout: default u32 = 0,
        /// Asks for a node made for this link.
        dynamic: default bool = false,
        /// Properties of that node, *lifetime-policy* among them.
        dynamic_node_properties: default Vec<(Symbol, Value)> = Vec::new(),
        /// Extensions.
        capabilities: multiple Symbol,
    }

    /// A target that controls transactions (part 4, section 4.5.1).
    pub struct Coordinator = 0x30 "amqp:coordinator:list" {
        /// What the coordinator can do.
        capabilities: multiple Symbol,
    }

    /// Asks a coordinator for a new transaction (part 4, section 4.5.2).
    pub struct Declare = 0x31 "amqp:declare:list" {
        /// Names a distributed transaction that this one is part of.
        global_id: optional Value,
    }

    /// Asks a coordinator to end a transaction (part 4, section 4.5.3).
    pub struct Discharge = 0x32 "amqp:discharge:list" {
        /// The transaction.
        txn_id: required Bytes,
        /// Whether it is to be backed out.
        fail: default bool = false,
    }

    /// Outcome fields of *declared* (part 4, section 4.5.5).
    pub(crate) struct Declared = 0x33 "amqp:declared:list" {
        /// The new transaction.
        txn_id: required Bytes,
    }

    /// Fields of *transactional-state* (part 4, section 4.5.8).
    pub(crate) struct TransactionalState = 0x34 "amqp:transactional-state:list" {
        /// The transaction.
        txn_id: required Bytes,
        /// The outcome once it commits.
        outcome: optional DeliveryState,
    }

    /// SASL mechanisms on offer (part 5, section 5.3.3.1).
    pub struct SaslMechanisms = 0x40 "amqp:sasl-mechanisms:list" {
        /// Their names, the preferred one first.
        sasl_server_mechanisms: multiple Symbol,
    }

    /// Mechanism chosen (part 5, section 5.3.3.2).
    pub struct SaslInit = 0x41 "amqp:sasl-init:list" {
        /// Its name.
        mechanism: required Symbol,
        /// First response of the mechanism.
        initial_response: optional SaslSecret,
        /// Host that the client wants to reach.
        hostname: optional String,
    }

    /// Challenge of the mechanism (part 5, section 5.3.3.3).
    pub struct SaslChallenge = 0x42 "amqp:sasl-challenge:list" {
        /// Its bytes.
        challenge: required Bytes,
    }

    /// Response to a challenge (part 5, section 5.3.3.4).
    pub struct SaslResponse = 0x43 "amqp:sasl-response:list" {
        /// Its bytes.
        response: required SaslSecret,
    }

    /// End of the exchange (part 5, section 5.3.3.5).
    pub struct SaslOutcome = 0x44 "amqp:sasl-outcome:list" {
        /// 0 ok, 1 wrong credentials, 2 system, 3 permanent, 4 temporary.
        code: required u8,
        /// Last data of the mechanism.
        additional_data: optional Bytes,
    }

    /// How a message is to be transferred (part 3, section 3.2.1).
    pub struct Header = 0x70 "amqp:header:list" {
        /// Whether the message survives a restart.
        durable: default bool = false,
        /// Relative importance, higher is more important.
        priority: default u8 = 4,
        /// Milliseconds for which the message is of use.
        ttl_ms: optional u32,
        /// Whether no one else had the message before.
        first_acquirer: default bool = false,
        /// Failed attempts to deliver so far.
        delivery_count: default u32 = 0,
    }

    /// The standard properties of a message, immutable on the way (part 3, section 3.2.4).
    pub struct Properties = 0x73 "amqp:properties:list" {
        /// The application's name for the message.
        message_id: optional MessageId,
        /// The user who made it.
        user_id: optional Bytes,
        /// The node it is meant for.
        to: optional String,
        /// Subject.
        subject: optional String,
        /// The node for replies.
        reply_to: optional String,
        /// The message it belongs to.
        correlation_id: optional MessageId,
        /// MIME type of the body.
        content_type: optional Symbol,
        /// MIME encoding of the body.
        content_encoding: optional Symbol,
        /// When it expires.
        absolute_expiry_time: optional Timestamp,
        /// When it was made.
        creation_time: optional Timestamp,
        /// Its group.
        group_id: optional String,
        /// Its place in the group.
        group_sequence: optional u32,
        /// The group for replies.
        reply_to_group_id: optional String,
    }
}

/// Default of a terminus' expiry policy.
pub const SESSION_END: Symbol = Symbol::from_static("session-end");

macro_rules! empty_default {
    ($($name:ident)*) => { $(
        /// All fields absent.
        impl Default for $name {
            fn default() -> Self {
                // An empty list has every field absent, and none of these types has a mandatory one.
                Self::decode_list(&mut Reader::new(&[code::LIST0])).expect("no field is mandatory")
            }
        }
    )* };
}
empty_default!(Header Properties Source Target Coordinator);

impl Error {
    /// An error with a condition and text.
    pub fn new(condition: Symbol, description: impl Into<String>) -> Self {
        Self { condition, description: Some(description.into()), info: Vec::new() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(text) => write!(f, "{}: {text}", self.condition),
            None => write!(f, "{}", self.condition),
        }
    }
}

impl std::error::Error for Error {}

impl Source {
    /// A source by its address.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }
}

impl Target {
    /// A target by its address.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }
}

/// An end of a link (part 2, section 2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Messages leave here.
    Sender,
    /// Messages arrive here.
    Receiver,
}

impl Role {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

impl Decode for Role {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        bool::decode(reader, code).map(|receiver| if receiver { Self::Receiver } else { Self::Sender })
    }
}

impl Encode for Role {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (*self == Self::Receiver).encode(out);
    }
}

macro_rules! settle_mode {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$variant_doc])* $variant = $code, )*
        }

        impl Decode for $name {
            fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
                match u8::decode(reader, code)? {
                    $( $code => Ok(Self::$variant), )*
                    _ => Err(DecodeError::Value { of: stringify!($name) }),
                }
            }
        }

        impl Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                (*self as u8).encode(out);
            }
        }
    };
}

settle_mode! {
    /// How the sending end settles (part 2, section 2.8.2).
    SenderSettleMode {
        /// All deliveries are sent unsettled.
        Unsettled = 0,
        /// All deliveries are sent settled.
        Settled = 1,
        /// Each as the sender likes.
        Mixed = 2,
    }
}

settle_mode! {
    /// How the receiving end settles (part 2, section 2.8.3).
    ReceiverSettleMode {
        /// At once, with the outcome.
        First = 0,
        /// After the sender has settled.
        Second = 1,
    }
}

/// Longest delivery tag, in bytes (part 2, section 2.8.7).
pub const DELIVERY_TAG_BYTES_MAX: usize = 32;

/// A sender's name for a delivery on its link: up to 32 bytes, kept in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryTag {
    length: u8,
    bytes: [u8; DELIVERY_TAG_BYTES_MAX],
}

impl DeliveryTag {
    /// A tag; none when it is longer than [`DELIVERY_TAG_BYTES_MAX`].
    pub fn new(tag: &[u8]) -> Option<Self> {
        let mut bytes = [0; DELIVERY_TAG_BYTES_MAX];
        bytes.get_mut(..tag.len())?.copy_from_slice(tag);
        Some(Self { length: u8::try_from(tag.len()).ok()?, bytes })
    }

    /// The tag of a delivery on a resumable sending link: its token, the same when it is resumed.
    pub fn of_token(token: u64) -> Self {
        let mut bytes = [0; DELIVERY_TAG_BYTES_MAX];
        let token = token.to_be_bytes();
        bytes[..token.len()].copy_from_slice(&token);
        Self { length: token.len() as u8, bytes }
    }

    /// The tag of a delivery on any other sending link: its id in the session.
    pub(crate) fn of_id(id: u32) -> Self {
        let mut bytes = [0; DELIVERY_TAG_BYTES_MAX];
        let id = id.to_be_bytes();
        bytes[..id.len()].copy_from_slice(&id);
        Self { length: id.len() as u8, bytes }
    }

    /// The token that [`DeliveryTag::of_token`] made this tag of; none for another tag.
    pub fn token(&self) -> Option<u64> {
        self.as_bytes().try_into().ok().map(u64::from_be_bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Debug for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.as_bytes())
    }
}

impl Decode for DeliveryTag {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        let bytes = match code {
            code::BINARY8 | code::BINARY32 => reader.sized(code == code::BINARY32)?,
            code => return Err(DecodeError::Type { wanted: "delivery-tag", code }),
        };
        Self::new(bytes).ok_or(DecodeError::Value { of: "delivery-tag" })
    }
}

impl Encode for DeliveryTag {
    fn encode(&self, out: &mut Vec<u8>) {
        crate::codec::encode_sized(out, code::BINARY8, code::BINARY32, self.as_bytes());
    }
}

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Decode for Timestamp {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::TIMESTAMP => reader.bytes().map(i64::from_be_bytes).map(Self),
            code => Err(DecodeError::Type { wanted: "timestamp", code }),
        }
    }
}

impl Encode for Timestamp {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(code::TIMESTAMP);
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// The application's name for a message (part 3, sections 3.2.11 to 3.2.14).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessageId {
    /// A number.
    Ulong(u64),
    /// RFC 4122.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(Bytes),
    /// Text.
    String(String),
}

impl Decode for MessageId {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::UUID => reader.bytes().map(Self::Uuid),
            code::ULONG | code::ULONG8 | code::ULONG0 => u64::decode(reader, code).map(Self::Ulong),
            code::BINARY8 | code::BINARY32 => Bytes::decode(reader, code).map(Self::Binary),
            code => String::decode(reader, code).map(Self::String),
        }
    }
}

impl Encode for MessageId {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ulong(n) => n.encode(out),
            Self::Uuid(bytes) => {
                out.push(code::UUID);
                out.extend_from_slice(bytes);
            }
            Self::Binary(bytes) => bytes.encode(out),
            Self::String(text) => text.encode(out),
        }
    }
}

/// What stands in the target field of an attach.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyTarget {
    /// A node, or none by name (anonymous relay).
    Target(Target),
    /// The transaction coordinator.
    Coordinator(Coordinator),
}

impl Decode for AnyTarget {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        if code != code::DESCRIBED {
            return Err(DecodeError::Type { wanted: "target", code });
        }
        reader.nested(|reader| match reader.descriptor()? {
            Target::CODE => Target::decode_list(reader).map(Self::Target),
            Coordinator::CODE => Coordinator::decode_list(reader).map(Self::Coordinator),
            code => Err(DecodeError::Descriptor { wanted: "target", code }),
        })
    }
}

impl Encode for AnyTarget {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Target(target) => target.encode(out),
            Self::Coordinator(coordinator) => coordinator.encode(out),
        }
    }
}

/// State of a delivery (part 3, section 3.4; part 4, section 4.5).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DeliveryState {
    /// Some of it has arrived; not an outcome.
    Received {
        /// Section reached.
        section_number: u32,
        /// Bytes of that section reached.
        section_offset: u64,
    },
    /// Outcome: taken.
    Accepted,
    /// Outcome: invalid, with the reason. It is in a box, because it is longer than all that is usual here, and states
    /// are part of each event.
    Rejected(Option<Box<Error>>),
    /// Outcome: not taken, as if never sent.
    Released,
    /// Outcome: not taken, and changed.
    Modified {
        /// Whether the attempt counts.
        delivery_failed: bool,
        /// Whether this receiver must not get it again.
        undeliverable_here: bool,
        /// Annotations to merge in.
        message_annotations: Vec<(Value, Value)>,
    },
    /// Part of a transaction.
    Transactional {
        /// The transaction.
        txn_id: Bytes,
        /// The outcome once it commits.
        outcome: Option<Box<DeliveryState>>,
    },
    /// Outcome of a *declare*: a new transaction.
    Declared {
        /// The transaction.
        txn_id: Bytes,
    },
    /// A state of another standard. Written as *released*, for want of its fields.
    Unknown {
        /// Its descriptor; `u64::MAX` when symbolic.
        code: u64,
    },
}

impl DeliveryState {
    /// Whether this ends the delivery (an outcome, part 3, section 3.4).
    pub fn is_outcome(&self) -> bool {
        !matches!(self, Self::Received { .. } | Self::Unknown { .. })
    }
}

/// Descriptor of *accepted*.
const ACCEPTED: u8 = 0x24;
/// Descriptor of *released*.
const RELEASED: u8 = 0x26;

impl Decode for DeliveryState {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        if code != code::DESCRIBED {
            return Err(DecodeError::Type { wanted: "delivery-state", code });
        }
        reader.nested(|reader| {
            let code = reader.descriptor()?;
            if code == u64::from(ACCEPTED) {
                Fields::open(reader)?.finish()?;
                return Ok(Self::Accepted);
            }
            other_state(reader, code)
        })
    }
}

fn other_state(reader: &mut Reader<'_>, code: u64) -> Result<DeliveryState, DecodeError> {
    Ok(match code {
        Received::CODE => {
            let state = Received::decode_list(reader)?;
            DeliveryState::Received { section_number: state.section_number, section_offset: state.section_offset }
        }
        Rejected::CODE => DeliveryState::Rejected(Rejected::decode_list(reader)?.error.map(Box::new)),
        Modified::CODE => {
            let state = Modified::decode_list(reader)?;
            DeliveryState::Modified {
                delivery_failed: state.delivery_failed,
                undeliverable_here: state.undeliverable_here,
                message_annotations: state.message_annotations,
            }
        }
        Declared::CODE => DeliveryState::Declared { txn_id: Declared::decode_list(reader)?.txn_id },
        TransactionalState::CODE => {
            let state = TransactionalState::decode_list(reader)?;
            DeliveryState::Transactional { txn_id: state.txn_id, outcome: state.outcome.map(Box::new) }
        }
        code if code == u64::from(RELEASED) => {
            Fields::open(reader)?.finish()?;
            DeliveryState::Released
        }
        code => {
            let value = reader.u8()?;
            reader.skip(value)?;
            DeliveryState::Unknown { code }
        }
    })
}

impl Encode for DeliveryState {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Accepted => out.extend_from_slice(&[code::DESCRIBED, code::ULONG8, ACCEPTED, code::LIST0]),
            Self::Released | Self::Unknown { .. } => {
                out.extend_from_slice(&[code::DESCRIBED, code::ULONG8, RELEASED, code::LIST0]);
            }
            Self::Received { section_number, section_offset } => {
                Received { section_number: *section_number, section_offset: *section_offset }.encode(out);
            }
            Self::Rejected(error) => Rejected { error: error.as_deref().cloned() }.encode(out),
            Self::Modified { delivery_failed, undeliverable_here, message_annotations } => Modified {
                delivery_failed: *delivery_failed,
                undeliverable_here: *undeliverable_here,
                message_annotations: message_annotations.clone(),
            }
            .encode(out),
            Self::Declared { txn_id } => Declared { txn_id: txn_id.clone() }.encode(out),
            Self::Transactional { txn_id, outcome } => {
                TransactionalState { txn_id: txn_id.clone(), outcome: outcome.as_deref().cloned() }.encode(out);
            }
        }
    }
}
