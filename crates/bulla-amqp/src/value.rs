//! Values of any AMQP type: what maps and annotations hold.

use crate::codec::{self, Decode, DecodeError, Encode, Reader, code};
use bytes::Bytes;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A symbol: an ASCII name (part 1, section 1.6.21). Cheap to clone.
#[derive(Clone)]
pub struct Symbol(Name);

#[derive(Clone)]
enum Name {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Symbol {
    /// A symbol known when the program is compiled. It must be ASCII, which is checked there.
    pub const fn from_static(name: &'static str) -> Self {
        assert!(name.is_ascii(), "symbols are ASCII");
        Self(Name::Static(name))
    }

    /// A symbol made while running; none when `name` is not ASCII.
    pub fn new(name: &str) -> Option<Self> {
        name.is_ascii().then(|| Self(Name::Shared(name.into())))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Static(name) => name,
            Name::Shared(name) => name,
        }
    }
}

impl Deref for Symbol {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Symbol {}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl Hash for Symbol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.as_str())
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Decode for Symbol {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::SYMBOL8 | code::SYMBOL32 => {
                let bytes = reader.sized(code == code::SYMBOL32)?;
                let name = std::str::from_utf8(bytes).map_err(|_| DecodeError::Symbol)?;
                Symbol::new(name).ok_or(DecodeError::Symbol)
            }
            code => Err(DecodeError::Type { wanted: "symbol", code }),
        }
    }
}

impl Encode for Symbol {
    fn encode(&self, out: &mut Vec<u8>) {
        codec::encode_sized(out, code::SYMBOL8, code::SYMBOL32, self.as_bytes());
    }
}

/// A value of any AMQP type (part 1, section 1.6).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// Unsigned, 8 bits.
    Ubyte(u8),
    /// Unsigned, 16 bits.
    Ushort(u16),
    /// Unsigned, 32 bits.
    Uint(u32),
    /// Unsigned, 64 bits.
    Ulong(u64),
    /// Signed, 8 bits.
    Byte(i8),
    /// Signed, 16 bits.
    Short(i16),
    /// Signed, 32 bits.
    Int(i32),
    /// Signed, 64 bits.
    Long(i64),
    /// IEEE 754 binary32.
    Float(f32),
    /// IEEE 754 binary64.
    Double(f64),
    /// IEEE 754 decimal32, as its bytes.
    Decimal32([u8; 4]),
    /// IEEE 754 decimal64, as its bytes.
    Decimal64([u8; 8]),
    /// IEEE 754 decimal128, as its bytes.
    Decimal128([u8; 16]),
    /// One Unicode character.
    Char(char),
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    /// RFC 4122.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(Bytes),
    /// UTF-8 text.
    String(String),
    /// An ASCII name.
    Symbol(Symbol),
    /// Values of any types.
    List(Vec<Value>),
    /// Pairs of key and value, in the order they came.
    Map(Vec<(Value, Value)>),
    /// Values of one type.
    Array(Array),
    /// A descriptor and the value it describes.
    Described(Box<(Value, Value)>),
}

/// Values of one type, with one constructor on the wire (part 1, section 1.6.24).
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Array(Vec<Value>);

impl Array {
    /// An array; none when the values are not all of one type (described ones: with one descriptor),
    /// or are null: elements that take no bytes would let a small frame claim any number of them.
    pub fn new(values: Vec<Value>) -> Option<Self> {
        let alike = match values.split_first() {
            Some((first, rest)) => !is_null(first) && rest.iter().all(|value| same_constructor(first, value)),
            None => true,
        };
        alike.then_some(Self(values))
    }
}

fn is_null(value: &Value) -> bool {
    match value {
        Value::Described(both) => is_null(&both.1),
        value => *value == Value::Null,
    }
}

fn same_constructor(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Described(a), Value::Described(b)) => a.0 == b.0 && same_constructor(&a.1, &b.1),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

impl Deref for Array {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl Value {
    /// Decodes the one value that `bytes` hold.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let code = reader.u8()?;
        let value = Self::decode(&mut reader, code)?;
        if reader.is_empty() { Ok(value) } else { Err(DecodeError::Surplus) }
    }

    /// Appends the encoded value to `out`.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// The text of a string or symbol.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            Self::Symbol(name) => Some(name),
            _ => None,
        }
    }

    /// The number, for any integer type that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Ubyte(n) => Some(n.into()),
            Self::Ushort(n) => Some(n.into()),
            Self::Uint(n) => Some(n.into()),
            Self::Ulong(n) => Some(n),
            Self::Byte(n) => n.try_into().ok(),
            Self::Short(n) => n.try_into().ok(),
            Self::Int(n) => n.try_into().ok(),
            Self::Long(n) => n.try_into().ok(),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<Symbol> for Value {
    fn from(name: Symbol) -> Self {
        Self::Symbol(name)
    }
}

impl Decode for Value {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        Ok(match code {
            code::DESCRIBED => {
                reader.charge(2)?;
                let both = reader.nested(|reader| {
                    let descriptor = next(reader)?;
                    Ok((descriptor, next(reader)?))
                })?;
                Self::Described(Box::new(both))
            }
            code::NULL => Self::Null,
            code::TRUE | code::FALSE | code::BOOL => Self::Bool(bool::decode(reader, code)?),
            code::UBYTE => Self::Ubyte(reader.u8()?),
            code::USHORT => Self::Ushort(reader.u16()?),
            code::UINT0 | code::UINT8 | code::UINT => Self::Uint(u32::decode(reader, code)?),
            code::ULONG0 | code::ULONG8 | code::ULONG => Self::Ulong(u64::decode(reader, code)?),
            code::BYTE => Self::Byte(i8::from_be_bytes(reader.bytes()?)),
            code::SHORT => Self::Short(i16::from_be_bytes(reader.bytes()?)),
            code::INT => Self::Int(i32::from_be_bytes(reader.bytes()?)),
            code::INT8 => Self::Int(i8::from_be_bytes(reader.bytes()?).into()),
            code::LONG => Self::Long(i64::from_be_bytes(reader.bytes()?)),
            code::LONG8 => Self::Long(i8::from_be_bytes(reader.bytes()?).into()),
            code::FLOAT => Self::Float(f32::from_be_bytes(reader.bytes()?)),
            code::DOUBLE => Self::Double(f64::from_be_bytes(reader.bytes()?)),
            code::DECIMAL32 => Self::Decimal32(reader.bytes()?),
            code::DECIMAL64 => Self::Decimal64(reader.bytes()?),
            code::DECIMAL128 => Self::Decimal128(reader.bytes()?),
            code::CHAR => Self::Char(char::from_u32(reader.u32()?).ok_or(DecodeError::Text)?),
            code::TIMESTAMP => Self::Timestamp(i64::from_be_bytes(reader.bytes()?)),
            code::UUID => Self::Uuid(reader.bytes()?),
            code::BINARY8 | code::BINARY32 => Self::Binary(Bytes::decode(reader, code)?),
            code::STRING8 | code::STRING32 => Self::String(String::decode(reader, code)?),
            code::SYMBOL8 | code::SYMBOL32 => Self::Symbol(Symbol::decode(reader, code)?),
            code::LIST0 => Self::List(Vec::new()),
            code::LIST8 | code::LIST32 => {
                let (mut inner, count) = reader.compound(code == code::LIST32)?;
                inner.charge(count)?;
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(next(&mut inner)?);
                }
                reader.close(inner)?;
                Self::List(values)
            }
            code::MAP8 | code::MAP32 => Self::Map(pairs(reader, code)?),
            code::ARRAY8 | code::ARRAY32 => {
                let (mut inner, count) = reader.compound(code == code::ARRAY32)?;
                inner.charge(count)?;
                let values = elements(&mut inner, count)?;
                reader.close(inner)?;
                Self::Array(Array(values))
            }
            code => return Err(DecodeError::Type { wanted: "any", code }),
        })
    }
}

fn next(reader: &mut Reader<'_>) -> Result<Value, DecodeError> {
    let code = reader.u8()?;
    Value::decode(reader, code)
}

/// A map's pairs. An odd count is no map.
fn pairs<K: Decode>(reader: &mut Reader<'_>, code: u8) -> Result<Vec<(K, Value)>, DecodeError> {
    let wide = match code {
        code::MAP8 => false,
        code::MAP32 => true,
        code => return Err(DecodeError::Type { wanted: "map", code }),
    };
    let (mut inner, count) = reader.compound(wide)?;
    if count % 2 != 0 {
        return Err(DecodeError::Count);
    }
    inner.charge(count)?;
    let mut pairs = Vec::new();
    for _ in 0..count / 2 {
        let code = inner.u8()?;
        let key = K::decode(&mut inner, code)?;
        pairs.push((key, next(&mut inner)?));
    }
    reader.close(inner)?;
    Ok(pairs)
}

/// The elements of an array, after its count: one constructor, then that many values.
fn elements(reader: &mut Reader<'_>, count: u32) -> Result<Vec<Value>, DecodeError> {
    let mut code = reader.u8()?;
    let mut descriptors = Vec::new();
    while code == code::DESCRIBED {
        if descriptors.len() >= usize::from(codec::DEPTH_MAX) {
            return Err(DecodeError::Depth);
        }
        descriptors.push(next(reader)?);
        code = reader.u8()?;
    }
    if code == code::NULL && count > 0 {
        return Err(DecodeError::Count); // nothing to be counted
    }
    let mut values = Vec::new();
    for _ in 0..count {
        let mut value = Value::decode(reader, code)?;
        reader.charge(codec::clamp(descriptors.len()))?;
        for descriptor in descriptors.iter().rev() {
            value = Value::Described(Box::new((descriptor.clone(), value)));
        }
        values.push(value);
    }
    Ok(values)
}

impl Encode for Value {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(code::NULL),
            Self::Bool(value) => value.encode(out),
            Self::Uint(n) => n.encode(out),
            Self::Ulong(n) => n.encode(out),
            Self::Int(n) => match i8::try_from(*n) {
                Ok(small) => out.extend_from_slice(&[code::INT8, small.to_be_bytes()[0]]),
                Err(_) => self.encode_wide(out),
            },
            Self::Long(n) => match i8::try_from(*n) {
                Ok(small) => out.extend_from_slice(&[code::LONG8, small.to_be_bytes()[0]]),
                Err(_) => self.encode_wide(out),
            },
            Self::Binary(bytes) => bytes.encode(out),
            Self::String(text) => text.encode(out),
            Self::Symbol(name) => name.encode(out),
            Self::List(values) if values.is_empty() => out.push(code::LIST0),
            Self::List(values) => compound(out, code::LIST8, code::LIST32, values.len(), |out| {
                values.iter().for_each(|value| value.encode(out));
            }),
            Self::Map(pairs) => encode_pairs(pairs, out),
            Self::Array(array) => compound(out, code::ARRAY8, code::ARRAY32, array.len(), |out| array.encode_body(out)),
            Self::Described(both) => {
                out.push(code::DESCRIBED);
                both.0.encode(out);
                both.1.encode(out);
            }
            _ => self.encode_wide(out),
        }
    }
}

impl Value {
    /// Format code and value in the widest form of the type: the one that an array can share.
    fn encode_wide(&self, out: &mut Vec<u8>) {
        out.push(self.wide_code());
        self.encode_wide_body(out);
    }

    fn wide_code(&self) -> u8 {
        match self {
            Self::Null => code::NULL,
            Self::Bool(_) => code::BOOL,
            Self::Ubyte(_) => code::UBYTE,
            Self::Ushort(_) => code::USHORT,
            Self::Uint(_) => code::UINT,
            Self::Ulong(_) => code::ULONG,
            Self::Byte(_) => code::BYTE,
            Self::Short(_) => code::SHORT,
            Self::Int(_) => code::INT,
            Self::Long(_) => code::LONG,
            Self::Float(_) => code::FLOAT,
            Self::Double(_) => code::DOUBLE,
            Self::Decimal32(_) => code::DECIMAL32,
            Self::Decimal64(_) => code::DECIMAL64,
            Self::Decimal128(_) => code::DECIMAL128,
            Self::Char(_) => code::CHAR,
            Self::Timestamp(_) => code::TIMESTAMP,
            Self::Uuid(_) => code::UUID,
            Self::Binary(_) => code::BINARY32,
            Self::String(_) => code::STRING32,
            Self::Symbol(_) => code::SYMBOL32,
            Self::List(_) => code::LIST32,
            Self::Map(_) => code::MAP32,
            Self::Array(_) => code::ARRAY32,
            Self::Described(_) => code::DESCRIBED,
        }
    }

    /// The value in its widest form, without the format code (of a described one: the value alone).
    fn encode_wide_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => {}
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Ubyte(n) => out.push(*n),
            Self::Ushort(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Uint(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Ulong(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Byte(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Short(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Int(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Long(n) | Self::Timestamp(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Float(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Double(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Decimal32(bytes) => out.extend_from_slice(bytes),
            Self::Decimal64(bytes) => out.extend_from_slice(bytes),
            Self::Decimal128(bytes) | Self::Uuid(bytes) => out.extend_from_slice(bytes),
            Self::Char(c) => out.extend_from_slice(&u32::from(*c).to_be_bytes()),
            Self::Binary(bytes) => wide_bytes(out, bytes),
            Self::String(text) => wide_bytes(out, text.as_bytes()),
            Self::Symbol(name) => wide_bytes(out, name.as_bytes()),
            Self::List(values) => wide_compound(out, values.len(), |out| {
                values.iter().for_each(|value| value.encode(out));
            }),
            Self::Map(pairs) => wide_compound(out, pairs.len() * 2, |out| {
                for (key, value) in pairs {
                    key.encode(out);
                    value.encode(out);
                }
            }),
            Self::Array(array) => wide_compound(out, array.len(), |out| array.encode_body(out)),
            Self::Described(both) => both.1.encode_wide_body(out),
        }
    }
}

impl Array {
    /// Constructor and elements.
    fn encode_body(&self, out: &mut Vec<u8>) {
        let Some(mut constructor) = self.first() else {
            out.push(code::NULL); // an empty array has a type all the same
            return;
        };
        while let Value::Described(both) = constructor {
            out.push(code::DESCRIBED);
            both.0.encode(out);
            constructor = &both.1;
        }
        out.push(constructor.wide_code());
        self.iter().for_each(|value| value.encode_wide_body(out));
    }
}

fn wide_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&codec::clamp(bytes.len()).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Size and count in 32 bits, then what `body` writes.
fn wide_compound(out: &mut Vec<u8>, count: usize, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&codec::clamp(count).to_be_bytes());
    body(out);
    let size = codec::clamp(out.len() - start - 4);
    if let Some(at) = out.get_mut(start..start + 4) {
        at.copy_from_slice(&size.to_be_bytes());
    }
}

/// A compound with the shorter of two heads.
fn compound(out: &mut Vec<u8>, code8: u8, code32: u8, count: usize, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[code8, 0, 0]);
    body(out);
    match (u8::try_from(out.len() - start - 2), u8::try_from(count)) {
        (Ok(size), Ok(count)) => {
            if let Some(head) = out.get_mut(start + 1..start + 3) {
                head.copy_from_slice(&[size, count]);
            }
        }
        _ => codec::widen(out, start, code32, count),
    }
}

fn encode_pairs<K: Encode>(pairs: &[(K, Value)], out: &mut Vec<u8>) {
    compound(out, code::MAP8, code::MAP32, pairs.len() * 2, |out| {
        for (key, value) in pairs {
            key.encode(out);
            value.encode(out);
        }
    });
}

/// A map with symbols as keys (*fields*, *filter-set*, *node-properties*).
impl Decode for Vec<(Symbol, Value)> {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        pairs(reader, code)
    }
}

impl Encode for Vec<(Symbol, Value)> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_pairs(self, out);
    }
}

/// A map with keys of any type (*annotations*).
impl Decode for Vec<(Value, Value)> {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        pairs(reader, code)
    }
}

impl Encode for Vec<(Value, Value)> {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_pairs(self, out);
    }
}

/// A field marked *multiple*: one symbol, or an array of them. Written as an array always, which every
/// peer understands.
impl Decode for Vec<Symbol> {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        if code != code::ARRAY8 && code != code::ARRAY32 {
            return Ok(vec![Symbol::decode(reader, code)?]);
        }
        let (mut inner, count) = reader.compound(code == code::ARRAY32)?;
        inner.charge(count)?;
        let code = inner.u8()?;
        let mut symbols = Vec::new();
        for _ in 0..count {
            symbols.push(Symbol::decode(&mut inner, code)?);
        }
        reader.close(inner)?;
        Ok(symbols)
    }
}

impl Encode for Vec<Symbol> {
    fn encode(&self, out: &mut Vec<u8>) {
        compound(out, code::ARRAY8, code::ARRAY32, self.len(), |out| {
            out.push(code::SYMBOL32);
            self.iter().for_each(|symbol| wide_bytes(out, symbol.as_bytes()));
        });
    }
}
