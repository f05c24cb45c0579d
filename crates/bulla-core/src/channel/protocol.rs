//! What the two ends of a channel say to each other beside the messages: capabilities and properties of `open` and of
//! the link (AMQP part 2, sections 2.7.1 and 2.7.3).

use super::refused::Refused;
use crate::reason::{self, Refusal};
use bulla_amqp::{Symbol, Value};
use bytes::Bytes;

/// In the offered capabilities of `open`: this is Bulla, and speaks the channel protocol of version 1.
pub const CAPABILITY: &str = "bulla:channel";
/// In the offered capabilities of `open`, beside [`CAPABILITY`]: its sending end takes back a numbered message that the
/// receiving end has refused.
pub const REFUSALS: &str = "bulla:channel-refusals";
/// In the properties of a requester's `open`: the server channel that is to send.
pub const REQUEST: &str = "bulla:request";
/// In the properties of `open`, by the standard.
pub const PRODUCT: &str = "product";
/// In the properties of `open`, by the standard.
pub const VERSION: &str = "version";
/// What `product` says here.
pub const PRODUCT_NAME: &str = "Bulla";

/// The highest sequence number that is believed: far beyond what a channel can reach, and far below what can't be
/// counted on from.
pub const SEQUENCE_MAX: u64 = 1 << 62;

const CHANNEL: &str = "bulla:channel";
const MANAGER: &str = "bulla:manager";
const STORE: &str = "bulla:store";
const MARK: &str = "bulla:receiver";
const SEQUENCE: &str = "bulla:sequence";
const IN_DOUBT: &str = "bulla:in-doubt";
const RESET: &str = "bulla:reset";
const SEQUENCE_WRAP: &str = "bulla:sequence-wrap";
const BATCH_SIZE: &str = "bulla:batch-size";
const MESSAGE_BYTES_MAX: &str = "bulla:max-message-size";
const NON_PERSISTENT_FAST: &str = "bulla:non-persistent-fast";
const REFUSED: &str = "bulla:refused";

/// What the sending end says in its attach.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SenderGreeting {
    /// The channel's name, the same at both ends.
    pub channel: String,
    /// The sending queue manager.
    pub manager: String,
    /// Its store's identity.
    pub store: [u8; 16],
    /// The last number confirmed.
    pub sequence: u64,
    /// Messages in doubt: numbers above.
    pub in_doubt: u32,
    /// The receiver is to take `sequence` for its own, whatever it has.
    pub reset: bool,
    /// SEQWRAP; both ends' must be the same.
    pub sequence_wrap: u32,
    /// BATCHSZ.
    pub batch_size: u32,
    /// MAXMSGL in bytes.
    pub message_bytes_max: u64,
    /// NPMSPEED(FAST).
    pub non_persistent_fast: bool,
}

/// What the receiving end answers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReceiverGreeting {
    /// The receiving queue manager.
    pub manager: String,
    /// The store that the last number belongs to; zeros when none was ever committed, or after a RESET.
    pub store: [u8; 16],
    /// The last number committed, synced.
    pub sequence: u64,
    /// SEQWRAP.
    pub sequence_wrap: u32,
    /// BATCHSZ: the lower of both is in force.
    pub batch_size: u32,
    /// MAXMSGL in bytes: the lower of both is in force.
    pub message_bytes_max: u64,
    /// What this receiving end is told by from another of its name ([`mark_of`]); zeros from a version before that.
    pub mark: [u8; 16],
    /// Numbers up to `sequence` whose messages it has refused.
    pub refused: Refused,
}

/// What a receiving end is told by: the same at each attach, another one with another store or channel. It does not
/// tell the store's identity, which is what partners know a sending end by.
pub fn mark_of(store: [u8; 16], channel: &str) -> [u8; 16] {
    let digest = openssl::sha::sha256(&[&store[..], channel.as_bytes()].concat());
    std::array::from_fn(|place| digest[place])
}

/// Properties of a link or of `open`, as the engine has them.
pub type Properties = Vec<(Symbol, Value)>;

impl SenderGreeting {
    /// As link properties.
    pub fn to_properties(&self) -> Properties {
        vec![
            property(CHANNEL, Value::from(self.channel.as_str())),
            property(MANAGER, Value::from(self.manager.as_str())),
            property(STORE, Value::Uuid(self.store)),
            property(SEQUENCE, Value::Ulong(self.sequence)),
            property(IN_DOUBT, Value::Uint(self.in_doubt)),
            property(RESET, Value::Bool(self.reset)),
            property(SEQUENCE_WRAP, Value::Uint(self.sequence_wrap)),
            property(BATCH_SIZE, Value::Uint(self.batch_size)),
            property(MESSAGE_BYTES_MAX, Value::Ulong(self.message_bytes_max)),
            property(NON_PERSISTENT_FAST, Value::Bool(self.non_persistent_fast)),
        ]
    }

    /// From link properties; none where the link is no channel's, or one is missing or of another type.
    pub fn from_properties(properties: &[(Symbol, Value)]) -> Option<Self> {
        Some(Self {
            channel: text(properties, CHANNEL)?,
            manager: text(properties, MANAGER)?,
            store: uuid(properties, STORE)?,
            sequence: ulong(properties, SEQUENCE).filter(|sequence| *sequence <= SEQUENCE_MAX)?,
            in_doubt: uint(properties, IN_DOUBT)?,
            reset: boolean(properties, RESET)?,
            sequence_wrap: uint(properties, SEQUENCE_WRAP)?,
            batch_size: uint(properties, BATCH_SIZE)?,
            message_bytes_max: ulong(properties, MESSAGE_BYTES_MAX)?,
            non_persistent_fast: boolean(properties, NON_PERSISTENT_FAST)?,
        })
    }
}

impl ReceiverGreeting {
    /// As link properties.
    pub fn to_properties(&self) -> Properties {
        let mut refused = Vec::new();
        self.refused.encode(&mut refused);
        vec![
            property(MANAGER, Value::from(self.manager.as_str())),
            property(STORE, Value::Uuid(self.store)),
            property(SEQUENCE, Value::Ulong(self.sequence)),
            property(SEQUENCE_WRAP, Value::Uint(self.sequence_wrap)),
            property(BATCH_SIZE, Value::Uint(self.batch_size)),
            property(MESSAGE_BYTES_MAX, Value::Ulong(self.message_bytes_max)),
            property(MARK, Value::Uuid(self.mark)),
            property(REFUSED, Value::Binary(Bytes::from(refused))),
        ]
    }

    /// From link properties; none where one is missing or of another type. Mark and refused numbers may be missing.
    pub fn from_properties(properties: &[(Symbol, Value)]) -> Option<Self> {
        Some(Self {
            manager: text(properties, MANAGER)?,
            store: uuid(properties, STORE)?,
            sequence: ulong(properties, SEQUENCE).filter(|sequence| *sequence <= SEQUENCE_MAX)?,
            sequence_wrap: uint(properties, SEQUENCE_WRAP)?,
            batch_size: uint(properties, BATCH_SIZE)?,
            message_bytes_max: ulong(properties, MESSAGE_BYTES_MAX)?,
            mark: uuid(properties, MARK).unwrap_or_default(),
            refused: match find(properties, REFUSED) {
                None => Refused::default(),
                Some(Value::Binary(bytes)) => Refused::decode(bytes)?,
                Some(_) => return None,
            },
        })
    }
}

/// What this program says of itself in `open`.
pub fn identity() -> Properties {
    vec![property(PRODUCT, Value::from(PRODUCT_NAME)), property(VERSION, Value::from(env!("CARGO_PKG_VERSION")))]
}

/// The refusal of a channel on a connection whose protocol has no way out.
pub fn no_way_out() -> Refusal {
    Refusal::new(reason::CHANNEL_CONFIG_ERROR, "channels run over AMQP")
}

/// A property by its name.
pub fn property(name: &'static str, value: Value) -> (Symbol, Value) {
    (Symbol::from_static(name), value)
}

/// A property that is a string.
pub fn text(properties: &[(Symbol, Value)], name: &str) -> Option<String> {
    find(properties, name)?.as_str().map(printable)
}

/// A partner's words as they may stand on a screen and in a log: without line ends and other controls.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn uuid(properties: &[(Symbol, Value)], name: &str) -> Option<[u8; 16]> {
    match find(properties, name)? {
        Value::Uuid(uuid) => Some(*uuid),
        _ => None,
    }
}

fn ulong(properties: &[(Symbol, Value)], name: &str) -> Option<u64> {
    match find(properties, name)? {
        Value::Ulong(number) => Some(*number),
        _ => None,
    }
}

fn uint(properties: &[(Symbol, Value)], name: &str) -> Option<u32> {
    match find(properties, name)? {
        Value::Uint(number) => Some(*number),
        _ => None,
    }
}

fn boolean(properties: &[(Symbol, Value)], name: &str) -> Option<bool> {
    match find(properties, name)? {
        Value::Bool(flag) => Some(*flag),
        _ => None,
    }
}

fn find<'a>(properties: &'a [(Symbol, Value)], name: &str) -> Option<&'a Value> {
    properties.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value)
}

/// A sequence number as MQ shows it: 1 follows SEQWRAP.
pub fn shown(sequence: u64, wrap: u32) -> u64 {
    if sequence == 0 { 0 } else { (sequence - 1) % u64::from(wrap.max(1)) + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_read_back_and_lack_nothing() {
        let sender = SenderGreeting {
            channel: "A.B".into(),
            manager: "A".into(),
            store: [3; 16],
            sequence: 9,
            ..Default::default()
        };
        let properties = sender.to_properties();
        assert_eq!(SenderGreeting::from_properties(&properties), Some(sender));
        for gone in 0..properties.len() {
            let mut fewer = properties.clone();
            fewer.remove(gone);
            assert_eq!(SenderGreeting::from_properties(&fewer), None, "without {}", properties[gone].0.as_str());
        }
        let mut receiver = ReceiverGreeting { manager: "B".into(), sequence: 9, ..Default::default() };
        receiver.refused.note(8, 2063);
        let properties = receiver.to_properties();
        assert_eq!(ReceiverGreeting::from_properties(&properties), Some(receiver.clone()));
        // An older partner does not know of refused messages.
        let older: Properties = properties.into_iter().filter(|(name, _)| name.as_str() != REFUSED).collect();
        receiver.refused = Refused::default();
        assert_eq!(ReceiverGreeting::from_properties(&older), Some(receiver));
    }

    #[test]
    fn numbers_wrap_as_they_are_shown() {
        assert_eq!([0, 1, 3, 4, 7].map(|number| shown(number, 3)), [0, 1, 3, 1, 1]);
    }
}
