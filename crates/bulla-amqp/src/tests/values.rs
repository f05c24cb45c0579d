//! Encoding and decoding are inverse, and decoding survives anything.

use crate::codec::{Decode, Encode, Reader};
use crate::types::{
    self, AnyTarget, DeliveryState, DeliveryTag, Error, MessageId, ReceiverSettleMode, Role, SenderSettleMode,
    Timestamp,
};
use crate::{Array, DecodeError, SaslSecret, Symbol, Value};
use bytes::Bytes;
use proptest::prelude::*;
use std::fmt::Debug;

/// Random numbers of a seed, so that a failing seed replays the run.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    pub(crate) fn often(&mut self) -> bool {
        self.below(3) > 0
    }

    /// Edges of the encodings more often than chance would have them.
    fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => self.below(256),
            2 => 254 + self.below(4),
            3 => u64::MAX - self.below(2),
            _ => self.next(),
        }
    }

    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        let length = if self.below(20) == 0 { 250 + self.below(20) } else { self.below(12) };
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A type of which random values can be made.
pub(crate) trait Sample {
    fn sample(random: &mut Random) -> Self;
}

/// Whether a field's value can be told from an absent one.
pub(crate) fn is_not_null(value: &impl Encode) -> bool {
    let mut out = Vec::new();
    value.encode(&mut out);
    out != [crate::codec::code::NULL]
}

macro_rules! samples {
    ($($type:ty = |$random:ident| $value:expr;)*) => { $(
        impl Sample for $type {
            fn sample($random: &mut Random) -> Self { $value }
        }
    )* };
}

samples! {
    bool = |random| random.below(2) == 1;
    u8 = |random| random.number() as u8;
    u16 = |random| random.number() as u16;
    u32 = |random| random.number() as u32;
    u64 = |random| random.number();
    String = |random| random.bytes().iter().map(|byte| char::from(*byte)).collect();
    Bytes = |random| random.bytes().into();
    SaslSecret = |random| SaslSecret(Bytes::sample(random));
    Symbol = |random| {
        let name: String = random.bytes().iter().map(|byte| char::from(byte & 0x7f)).collect();
        Symbol::new(&name).unwrap()
    };
    Role = |random| if bool::sample(random) { Role::Sender } else { Role::Receiver };
    SenderSettleMode = |random| match random.below(3) {
        0 => SenderSettleMode::Unsettled,
        1 => SenderSettleMode::Settled,
        _ => SenderSettleMode::Mixed,
    };
    ReceiverSettleMode = |random| {
        if bool::sample(random) { ReceiverSettleMode::First } else { ReceiverSettleMode::Second }
    };
    DeliveryTag = |random| {
        let mut tag = random.bytes();
        tag.truncate(types::DELIVERY_TAG_BYTES_MAX);
        DeliveryTag::new(&tag).unwrap()
    };
    Timestamp = |random| Timestamp(random.number() as i64);
    MessageId = |random| match random.below(4) {
        0 => MessageId::Ulong(random.number()),
        1 => MessageId::Uuid(std::array::from_fn(|_| random.next() as u8)),
        2 => MessageId::Binary(Bytes::sample(random)),
        _ => MessageId::String(String::sample(random)),
    };
    AnyTarget = |random| {
        if random.often() { AnyTarget::Target(Sample::sample(random)) } else { AnyTarget::Coordinator(Sample::sample(random)) }
    };
    DeliveryState = |random| match random.below(8) {
        0 => DeliveryState::Received { section_number: u32::sample(random), section_offset: u64::sample(random) },
        1 => DeliveryState::Rejected(random.often().then(|| Box::new(Error::sample(random)))),
        2 => DeliveryState::Released,
        3 => DeliveryState::Modified {
            delivery_failed: bool::sample(random),
            undeliverable_here: bool::sample(random),
            message_annotations: Sample::sample(random),
        },
        4 => DeliveryState::Declared { txn_id: Bytes::sample(random) },
        5 => DeliveryState::Transactional {
            txn_id: Bytes::sample(random),
            outcome: random.often().then(|| Box::new(DeliveryState::Accepted)),
        },
        _ => DeliveryState::Accepted,
    };
    Value = |random| value(random, 3);
    Vec<Symbol> = |random| (0..random.below(4)).map(|_| Symbol::sample(random)).collect();
    Vec<(Symbol, Value)> = |random| (0..random.below(4)).map(|_| (Symbol::sample(random), Value::sample(random))).collect();
    Vec<(Value, Value)> = |random| (0..random.below(4)).map(|_| (Value::sample(random), Value::sample(random))).collect();
}

/// Number of the kinds of values that hold no others, null among them.
const SCALARS: u64 = 21;

fn value(random: &mut Random, depth: u32) -> Value {
    let kinds = if depth == 0 { SCALARS } else { SCALARS + 4 };
    let kind = random.below(kinds);
    value_of(random, kind, depth)
}

fn value_of(random: &mut Random, kind: u64, depth: u32) -> Value {
    let inner = depth.saturating_sub(1);
    match kind {
        0 => Value::Null,
        1 => Value::Bool(bool::sample(random)),
        2 => Value::Ubyte(random.number() as u8),
        3 => Value::Ushort(random.number() as u16),
        4 => Value::Uint(random.number() as u32),
        5 => Value::Ulong(random.number()),
        6 => Value::Byte(random.number() as i8),
        7 => Value::Short(random.number() as i16),
        8 => Value::Int(random.number() as i32),
        9 => Value::Long(random.number() as i64),
        10 => Value::Float(random.below(1 << 20) as f32 / 8.0),
        11 => Value::Double(random.below(1 << 40) as f64 / 8.0),
        12 => Value::Decimal32(std::array::from_fn(|_| random.next() as u8)),
        13 => Value::Decimal64(std::array::from_fn(|_| random.next() as u8)),
        14 => Value::Decimal128(std::array::from_fn(|_| random.next() as u8)),
        15 => Value::Char(char::from(random.next() as u8)),
        16 => Value::Timestamp(random.number() as i64),
        17 => Value::Uuid(std::array::from_fn(|_| random.next() as u8)),
        18 => Value::Binary(Bytes::sample(random)),
        19 => Value::String(String::sample(random)),
        20 => Value::Symbol(Symbol::sample(random)),
        21 => Value::List((0..random.below(5)).map(|_| value(random, inner)).collect()),
        22 => Value::Map((0..random.below(5)).map(|_| (value(random, inner), value(random, inner))).collect()),
        23 => {
            let kind = 1 + random.below(if inner == 0 { SCALARS - 1 } else { SCALARS + 2 });
            let descriptor = bool::sample(random).then(|| Value::Ulong(random.number()));
            let values = (0..random.below(5)).map(|_| {
                let value = value_of(random, kind, inner);
                match &descriptor {
                    Some(descriptor) => Value::Described(Box::new((descriptor.clone(), value))),
                    None => value,
                }
            });
            Value::Array(Array::new(values.collect()).unwrap())
        }
        _ => Value::Described(Box::new((value(random, inner), value(random, inner)))),
    }
}

/// Encodes a random value of the type and decodes it again.
pub(crate) fn check_composite<T: Sample + Encode + Decode + PartialEq + Debug>(random: &mut Random) {
    let value = T::sample(random);
    let mut encoded = Vec::new();
    value.encode(&mut encoded);
    let mut reader = Reader::new(&encoded);
    let code = reader.u8().unwrap();
    assert_eq!(T::decode(&mut reader, code).as_ref(), Ok(&value), "{encoded:02x?}");
    assert!(reader.is_empty());
    // The same with the symbolic descriptor and a cut: never a panic, never a value of less.
    for end in 0..encoded.len() {
        let mut reader = Reader::new(&encoded[..end]);
        assert!(reader.u8().and_then(|code| T::decode(&mut reader, code)).is_err(), "cut at {end}");
    }
}

proptest! {
    #[test]
    fn every_composite_survives_encoding(seed: u64) {
        types::check_all(&mut Random::new(seed));
    }

    #[test]
    fn every_value_survives_encoding(seed: u64) {
        let value = Value::sample(&mut Random::new(seed));
        let mut encoded = Vec::new();
        value.encode_to(&mut encoded);
        prop_assert_eq!(Value::from_bytes(&encoded), Ok(value));
    }

    #[test]
    fn decoding_any_bytes_is_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::from_bytes(&bytes);
    }

    #[test]
    fn a_changed_byte_is_a_value_or_an_error(seed: u64, at: u16, byte: u8) {
        let mut encoded = Vec::new();
        Value::sample(&mut Random::new(seed)).encode_to(&mut encoded);
        let at = usize::from(at) % encoded.len();
        encoded[at] = byte;
        let _ = Value::from_bytes(&encoded);
    }
}

fn refused(bytes: &[u8]) -> DecodeError {
    Value::from_bytes(bytes).unwrap_err()
}

#[test]
fn malformed_values_have_their_errors() {
    assert_eq!(refused(&[]), DecodeError::Truncated);
    assert_eq!(refused(&[0x70, 0, 0]), DecodeError::Truncated);
    assert_eq!(refused(&[0xa1, 2, 0xff, 0xfe]), DecodeError::Text);
    assert_eq!(refused(&[0xa3, 1, 0x80]), DecodeError::Symbol);
    assert_eq!(refused(&[0xa3, 2, 0xc3, 0xa9]), DecodeError::Symbol);
    assert_eq!(refused(&[0x73, 0, 0, 0xd8, 0]), DecodeError::Text);
    assert_eq!(refused(&[0x56, 2]), DecodeError::Value { of: "boolean" });
    assert_eq!(refused(&[0x40, 0x40]), DecodeError::Surplus);
    assert_eq!(refused(&[0xc0, 3, 1, 0x40, 0x40]), DecodeError::Surplus);
    assert_eq!(refused(&[0xc1, 2, 1, 0x40]), DecodeError::Count);
    assert_eq!(refused(&[0xd0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff]), DecodeError::Count);
    assert_eq!(refused(&[0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40]), DecodeError::Count);
    assert_eq!(refused(&[0x3f]), DecodeError::Type { wanted: "any", code: 0x3f });
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| {
        let mut bytes = vec![0x40];
        for _ in 0..depth {
            let size = u32::try_from(bytes.len() + 4).unwrap().to_be_bytes();
            bytes = [&[0xd0][..], &size, &[0, 0, 0, 1], &bytes].concat();
        }
        Value::from_bytes(&bytes)
    };
    assert!(nested(usize::from(crate::DEPTH_MAX)).is_ok());
    assert_eq!(nested(usize::from(crate::DEPTH_MAX) + 1), Err(DecodeError::Depth));
    assert_eq!(nested(2_000), Err(DecodeError::Depth));
    assert_eq!(refused(&[0; 100_000]), DecodeError::Depth);
}

#[test]
fn a_value_has_a_limited_number_of_elements() {
    let list = |count: u32| {
        let size = (count + 4).to_be_bytes();
        let head = [&[0xd0][..], &size, &count.to_be_bytes()].concat();
        Value::from_bytes(&[head, vec![0x40; count as usize]].concat())
    };
    assert!(list(crate::ELEMENTS_MAX).is_ok());
    assert_eq!(list(crate::ELEMENTS_MAX + 1), Err(DecodeError::Count));
}

#[test]
fn symbolic_descriptors_are_as_good_as_numeric_ones() {
    let bytes = [&[0x00, 0xa3, 18][..], b"amqp:accepted:list", &[0x45]].concat();
    let mut reader = Reader::new(&bytes);
    let code = reader.u8().unwrap();
    assert_eq!(DeliveryState::decode(&mut reader, code), Ok(DeliveryState::Accepted));
    let bytes = [&[0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x24][..], &[0xc0, 1, 0]].concat();
    let mut reader = Reader::new(&bytes);
    let code = reader.u8().unwrap();
    assert_eq!(DeliveryState::decode(&mut reader, code), Ok(DeliveryState::Accepted));
}

#[test]
fn a_multiple_field_may_be_one_symbol_or_an_array() {
    let decode = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        let code = reader.u8()?;
        Vec::<Symbol>::decode(&mut reader, code)
    };
    let one = vec![Symbol::from_static("PLAIN")];
    assert_eq!(decode(b"\xa3\x05PLAIN"), Ok(one.clone()));
    assert_eq!(decode(b"\xe0\x08\x01\xa3\x05PLAIN"), Ok(one));
}

#[test]
fn an_array_holds_values_of_one_type_that_take_bytes() {
    assert!(Array::new(vec![Value::Uint(1), Value::Uint(2)]).is_some());
    assert!(Array::new(vec![Value::Uint(1), Value::Int(2)]).is_none());
    assert!(Array::new(vec![Value::Null]).is_none());
    assert_eq!(refused(&[0xe0, 4, 2, 0x40, 0, 0]), DecodeError::Count);
    assert_eq!(refused(&[0xe0, 9, 9, 0, 0xa3, 1, 0x47, 0, 0x56, 0, 0x40]), DecodeError::Count);
    assert_eq!(Value::from_bytes(&[0xe0, 2, 0, 0x40]), Ok(Value::Array(Array::default())));
}
