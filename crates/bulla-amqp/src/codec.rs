//! The type system of AMQP 1.0, part 1: constructors and the primitives behind them.

use crate::sasl::SaslSecret;
use bytes::Bytes;
use std::fmt;

/// How deep described types, lists, maps and arrays may nest in one value.
pub const DEPTH_MAX: u8 = 32;
/// How many elements all lists, maps and arrays of one field may have together.
pub const ELEMENTS_MAX: u32 = 65_536;

/// Format codes, AMQP 1.0 part 1, section 1.6.
pub(crate) mod code {
    pub(crate) const DESCRIBED: u8 = 0x00;
    pub(crate) const NULL: u8 = 0x40;
    pub(crate) const TRUE: u8 = 0x41;
    pub(crate) const FALSE: u8 = 0x42;
    pub(crate) const UINT0: u8 = 0x43;
    pub(crate) const ULONG0: u8 = 0x44;
    pub(crate) const LIST0: u8 = 0x45;
    pub(crate) const UBYTE: u8 = 0x50;
    pub(crate) const BYTE: u8 = 0x51;
    pub(crate) const UINT8: u8 = 0x52;
    pub(crate) const ULONG8: u8 = 0x53;
    pub(crate) const INT8: u8 = 0x54;
    pub(crate) const LONG8: u8 = 0x55;
    pub(crate) const BOOL: u8 = 0x56;
    pub(crate) const USHORT: u8 = 0x60;
    pub(crate) const SHORT: u8 = 0x61;
    pub(crate) const UINT: u8 = 0x70;
    pub(crate) const INT: u8 = 0x71;
    pub(crate) const FLOAT: u8 = 0x72;
    pub(crate) const CHAR: u8 = 0x73;
    pub(crate) const DECIMAL32: u8 = 0x74;
    pub(crate) const ULONG: u8 = 0x80;
    pub(crate) const LONG: u8 = 0x81;
    pub(crate) const DOUBLE: u8 = 0x82;
    pub(crate) const TIMESTAMP: u8 = 0x83;
    pub(crate) const DECIMAL64: u8 = 0x84;
    pub(crate) const DECIMAL128: u8 = 0x94;
    pub(crate) const UUID: u8 = 0x98;
    pub(crate) const BINARY8: u8 = 0xa0;
    pub(crate) const STRING8: u8 = 0xa1;
    pub(crate) const SYMBOL8: u8 = 0xa3;
    pub(crate) const BINARY32: u8 = 0xb0;
    pub(crate) const STRING32: u8 = 0xb1;
    pub(crate) const SYMBOL32: u8 = 0xb3;
    pub(crate) const LIST8: u8 = 0xc0;
    pub(crate) const MAP8: u8 = 0xc1;
    pub(crate) const LIST32: u8 = 0xd0;
    pub(crate) const MAP32: u8 = 0xd1;
    pub(crate) const ARRAY8: u8 = 0xe0;
    pub(crate) const ARRAY32: u8 = 0xf0;
}

/// Why bytes are not the AMQP value they should be. It is the sender's turn: the bytes are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a value.
    Truncated,
    /// A value of another type stands where `wanted` belongs.
    Type {
        /// The type that belongs there.
        wanted: &'static str,
        /// The format code found (part 1, section 1.6).
        code: u8,
    },
    /// A described type with another descriptor stands where `wanted` belongs.
    Descriptor {
        /// The type that belongs there.
        wanted: &'static str,
        /// The descriptor found; `u64::MAX` for an unknown symbolic one.
        code: u64,
    },
    /// A mandatory field is absent.
    Missing {
        /// The composite type.
        of: &'static str,
        /// Its field.
        field: &'static str,
    },
    /// A list has more fields than its type, or a size leaves bytes over.
    Surplus,
    /// A count claims more elements than the bytes can hold, or than [`ELEMENTS_MAX`].
    Count,
    /// Nested deeper than [`DEPTH_MAX`].
    Depth,
    /// A string that is not UTF-8, or a char that is none.
    Text,
    /// A symbol with a byte beyond ASCII.
    Symbol,
    /// A value outside of what its type allows.
    Value {
        /// The restricted type.
        of: &'static str,
    },
    /// A message section out of order or there twice (part 3, section 3.2).
    Section {
        /// Its descriptor.
        code: u64,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "value is cut short"),
            Self::Type { wanted, code } => write!(f, "format code {code:#04x} is not of type {wanted}"),
            Self::Descriptor { wanted, code } => write!(f, "descriptor {code:#x} is not {wanted}"),
            Self::Missing { of, field } => write!(f, "{of} lacks its mandatory field {field}"),
            Self::Surplus => write!(f, "more fields or bytes than the type has"),
            Self::Count => write!(f, "element count is larger than its size or the limit"),
            Self::Depth => write!(f, "nested deeper than {DEPTH_MAX}"),
            Self::Text => write!(f, "string is not UTF-8"),
            Self::Symbol => write!(f, "symbol is not ASCII"),
            Self::Value { of } => write!(f, "value outside of {of}"),
            Self::Section { code } => write!(f, "message section {code:#x} out of order"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Takes values off the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    depth: u8,
    elements: u32,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, depth: 0, elements: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.array()
    }

    /// A size of one byte or four, then that many bytes.
    #[inline]
    pub(crate) fn sized(&mut self, wide: bool) -> Result<&'a [u8], DecodeError> {
        let size = if wide { self.u32()? as usize } else { usize::from(self.u8()?) };
        self.take(size)
    }

    /// Goes one level down: a reader of the next `size` bytes, told apart by `wide`, and the element
    /// count that stands first in them.
    #[inline]
    pub(crate) fn compound(&mut self, wide: bool) -> Result<(Reader<'a>, u32), DecodeError> {
        let body = self.sized(wide)?;
        let mut inner = Reader { rest: body, depth: self.deeper()?, elements: self.elements };
        let count = if wide { inner.u32()? } else { u32::from(inner.u8()?) };
        if count as usize > body.len() {
            return Err(DecodeError::Count);
        }
        Ok((inner, count))
    }

    pub(crate) fn deeper(&self) -> Result<u8, DecodeError> {
        if self.depth >= DEPTH_MAX { Err(DecodeError::Depth) } else { Ok(self.depth + 1) }
    }

    /// Runs `read` one level deeper.
    pub(crate) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let depth = self.depth;
        self.depth = self.deeper()?;
        let value = read(self)?;
        self.depth = depth;
        Ok(value)
    }

    /// Charges `count` elements against [`ELEMENTS_MAX`].
    pub(crate) fn charge(&mut self, count: u32) -> Result<(), DecodeError> {
        self.elements = self.elements.checked_add(count).ok_or(DecodeError::Count)?;
        if self.elements > ELEMENTS_MAX { Err(DecodeError::Count) } else { Ok(()) }
    }

    /// Ends the level that `inner` read: nothing may be left there, and its elements count here too.
    pub(crate) fn close(&mut self, inner: Reader<'_>) -> Result<(), DecodeError> {
        self.elements = inner.elements;
        if inner.is_empty() { Ok(()) } else { Err(DecodeError::Surplus) }
    }

    /// The descriptor of a described type, after its 0x00. A symbolic one that the tables don't know
    /// is `u64::MAX`.
    #[inline]
    pub(crate) fn descriptor(&mut self) -> Result<u64, DecodeError> {
        match self.u8()? {
            code::ULONG8 => self.u8().map(u64::from),
            code::ULONG => self.u64(),
            code::ULONG0 => Ok(0),
            code @ (code::SYMBOL8 | code::SYMBOL32) => {
                let name = self.sized(code == code::SYMBOL32)?;
                Ok(crate::types::code_of(name).unwrap_or(u64::MAX))
            }
            code => Err(DecodeError::Type { wanted: "descriptor", code }),
        }
    }

    /// Passes over one value of any type.
    pub(crate) fn skip(&mut self, code: u8) -> Result<(), DecodeError> {
        match code {
            code::DESCRIBED => self.nested(|reader| {
                let descriptor = reader.u8()?;
                reader.skip(descriptor)?;
                let value = reader.u8()?;
                reader.skip(value)
            }),
            _ => match code >> 4 {
                0x4 => Ok(()),
                0x5 => self.take(1).map(drop),
                0x6 => self.take(2).map(drop),
                0x7 => self.take(4).map(drop),
                0x8 => self.take(8).map(drop),
                0x9 => self.take(16).map(drop),
                0xa | 0xc | 0xe => self.sized(false).map(drop),
                0xb | 0xd | 0xf => self.sized(true).map(drop),
                _ => Err(DecodeError::Type { wanted: "any", code }),
            },
        }
    }
}

/// The fields of a composite type, one after another.
pub(crate) struct Fields<'a> {
    pub(crate) reader: Reader<'a>,
    left: u32,
}

impl<'a> Fields<'a> {
    /// Opens the list at the front of `reader`.
    #[inline]
    pub(crate) fn open(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (reader, left) = match reader.u8()? {
            code::LIST8 => reader.compound(false)?,
            code::LIST32 => reader.compound(true)?,
            code::LIST0 => (Reader { rest: &[], ..reader.clone() }, 0),
            code => return Err(DecodeError::Type { wanted: "list", code }),
        };
        Ok(Self { reader, left })
    }

    /// The format code of the next field; none when it is null or the list ends before it.
    #[inline]
    pub(crate) fn next_code(&mut self) -> Result<Option<u8>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let code = self.reader.u8()?;
        Ok((code != code::NULL).then_some(code))
    }

    #[inline]
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.left == 0 && self.reader.is_empty() { Ok(()) } else { Err(DecodeError::Surplus) }
    }
}

/// A type that can be read once its format code is known.
pub(crate) trait Decode: Sized {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError>;
}

/// A type that can be written, format code first.
pub(crate) trait Encode {
    fn encode(&self, out: &mut Vec<u8>);
}

/// Writes a list whose trailing absent fields are left out. Begun with [`ListWriter::new`], told of
/// each field, ended with [`ListWriter::finish`].
pub(crate) struct ListWriter {
    start: usize,
    count: usize,
    present: usize,
    end: usize,
}

/// Format code, size and count of a list8.
const LIST8_HEAD_BYTES: usize = 3;
/// What a list32's head has more than a list8's.
const LIST32_HEAD_EXTRA_BYTES: usize = 6;

impl ListWriter {
    #[inline]
    pub(crate) fn new(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[code::LIST8, 0, 0]);
        Self { start, count: 0, present: 0, end: start + LIST8_HEAD_BYTES }
    }

    #[inline]
    pub(crate) fn absent(&mut self, out: &mut Vec<u8>) {
        self.count += 1;
        out.push(code::NULL);
    }

    /// To be called after the field was written.
    #[inline]
    pub(crate) fn present(&mut self, out: &[u8]) {
        self.count += 1;
        self.present = self.count;
        self.end = out.len();
    }

    #[inline]
    pub(crate) fn finish(self, out: &mut Vec<u8>) {
        out.truncate(self.end);
        let size = self.end - self.start - 2; // all after the size byte
        if self.present == 0 {
            out.truncate(self.start);
            out.push(code::LIST0);
        } else if let (Ok(size), Ok(count)) = (u8::try_from(size), u8::try_from(self.present)) {
            if let Some(head) = out.get_mut(self.start + 1..self.start + LIST8_HEAD_BYTES) {
                head.copy_from_slice(&[size, count]);
            }
        } else {
            widen(out, self.start, code::LIST32, self.present);
        }
    }
}

/// Turns the compound that begins at `start` with an empty 8-bit head into one with a 32-bit head.
pub(crate) fn widen(out: &mut Vec<u8>, start: usize, code: u8, count: usize) {
    let body = start + LIST8_HEAD_BYTES;
    let size = out.len().saturating_sub(body) + 4; // the count is part of the size
    let mut head = [0; LIST8_HEAD_BYTES + LIST32_HEAD_EXTRA_BYTES];
    head[0] = code;
    head[1..5].copy_from_slice(&clamp(size).to_be_bytes());
    head[5..9].copy_from_slice(&clamp(count).to_be_bytes());
    out.splice(start..body, head);
}

/// A length as the wire's 32 bits. Nothing that is encoded here comes near 4 GiB: frames are far
/// smaller, and message bodies are not encoded at all.
pub(crate) fn clamp(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Writes variable-width bytes with the shorter of two codes.
pub(crate) fn encode_sized(out: &mut Vec<u8>, code8: u8, code32: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length) => out.extend_from_slice(&[code8, length]),
        Err(_) => {
            out.push(code32);
            out.extend_from_slice(&clamp(bytes.len()).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

impl Decode for bool {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::TRUE => Ok(true),
            code::FALSE => Ok(false),
            code::BOOL => match reader.u8()? {
                0 => Ok(false),
                1 => Ok(true),
                _ => Err(DecodeError::Value { of: "boolean" }),
            },
            code => Err(DecodeError::Type { wanted: "boolean", code }),
        }
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(if *self { code::TRUE } else { code::FALSE });
    }
}

impl Decode for u8 {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::UBYTE => reader.u8(),
            code => Err(DecodeError::Type { wanted: "ubyte", code }),
        }
    }
}

impl Encode for u8 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[code::UBYTE, *self]);
    }
}

impl Decode for u16 {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::USHORT => reader.u16(),
            code => Err(DecodeError::Type { wanted: "ushort", code }),
        }
    }
}

impl Encode for u16 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(code::USHORT);
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl Decode for u32 {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::UINT8 => reader.u8().map(u32::from),
            code::UINT => reader.u32(),
            code::UINT0 => Ok(0),
            code => Err(DecodeError::Type { wanted: "uint", code }),
        }
    }
}

impl Encode for u32 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            0 => out.push(code::UINT0),
            small @ 1..=0xff => out.extend_from_slice(&[code::UINT8, small as u8]),
            large => {
                let [a, b, c, d] = large.to_be_bytes();
                out.extend_from_slice(&[code::UINT, a, b, c, d]);
            }
        }
    }
}

impl Decode for u64 {
    #[inline]
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::ULONG8 => reader.u8().map(u64::from),
            code::ULONG => reader.u64(),
            code::ULONG0 => Ok(0),
            code => Err(DecodeError::Type { wanted: "ulong", code }),
        }
    }
}

impl Encode for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            0 => out.push(code::ULONG0),
            small @ 1..=0xff => out.extend_from_slice(&[code::ULONG8, small as u8]),
            large => {
                out.push(code::ULONG);
                out.extend_from_slice(&large.to_be_bytes());
            }
        }
    }
}

impl Decode for Bytes {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::BINARY8 | code::BINARY32 => reader.sized(code == code::BINARY32).map(Bytes::copy_from_slice),
            code => Err(DecodeError::Type { wanted: "binary", code }),
        }
    }
}

impl Encode for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_sized(out, code::BINARY8, code::BINARY32, self);
    }
}

impl Decode for SaslSecret {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        Bytes::decode(reader, code).map(SaslSecret)
    }
}

impl Encode for SaslSecret {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for String {
    fn decode(reader: &mut Reader<'_>, code: u8) -> Result<Self, DecodeError> {
        match code {
            code::STRING8 | code::STRING32 => {
                let bytes = reader.sized(code == code::STRING32)?;
                std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Text)
            }
            code => Err(DecodeError::Type { wanted: "string", code }),
        }
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_sized(out, code::STRING8, code::STRING32, self.as_bytes());
    }
}
