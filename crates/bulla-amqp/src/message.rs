//! Messages (part 3, section 3.2): where their sections are, and how one is put together, without
//! touching the body.

use crate::codec::{DEPTH_MAX, Decode, DecodeError, Encode, Reader, clamp, code};
use crate::payload::Payload;
use crate::types::{Header, Properties};
use crate::value::Value;
use bytes::Bytes;
use std::ops::Range;

/// Descriptors of the sections, in their order (part 3, section 3.2).
mod section {
    pub(super) const HEADER: u64 = 0x70;
    pub(super) const DELIVERY_ANNOTATIONS: u64 = 0x71;
    pub(super) const MESSAGE_ANNOTATIONS: u64 = 0x72;
    pub(super) const PROPERTIES: u64 = 0x73;
    pub(super) const APPLICATION_PROPERTIES: u64 = 0x74;
    pub(super) const DATA: u64 = 0x75;
    pub(super) const SEQUENCE: u64 = 0x76;
    pub(super) const VALUE: u64 = 0x77;
    pub(super) const FOOTER: u64 = 0x78;
}

/// Data or sequence sections in one body.
pub const BODY_SECTIONS_MAX: u32 = 65_536;

/// Where the sections of a message are: ranges of its bytes, each from the 0x00 of the descriptor to the
/// end of the value. Nothing is decoded; that each value is a well-formed one inside is not checked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sections {
    /// Header: durability, priority, time to live.
    pub header: Option<Range<usize>>,
    /// Annotations for the next hop alone.
    pub delivery_annotations: Option<Range<usize>>,
    /// Annotations for all who carry the message.
    pub message_annotations: Option<Range<usize>>,
    /// Standard properties.
    pub properties: Option<Range<usize>>,
    /// The application's properties.
    pub application_properties: Option<Range<usize>>,
    /// The body.
    pub body: BodyForm,
    /// All sections of the body, encoded.
    pub body_range: Range<usize>,
    /// Footer.
    pub footer: Option<Range<usize>>,
}

/// What the body is made of.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum BodyForm {
    /// One data section: its raw bytes.
    Data(Range<usize>),
    /// Something else (several data sections, sequences, a value): the encoded sections.
    Sections(Range<usize>),
    /// Nothing.
    #[default]
    Empty,
}

impl Sections {
    /// Finds the sections. They must come in the standard's order, each at most once (data and sequence
    /// sections may repeat, but not mix), and end with the payload. Costs some ten byte reads a section,
    /// in one chunk or across chunks.
    pub fn scan(payload: &Payload) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(payload);
        let mut sections = Self::default();
        let mut last = 0;
        let mut body_sections = 0;
        while let Some(first) = cursor.next_byte() {
            let start = cursor.at() - 1;
            if first != code::DESCRIBED {
                return Err(DecodeError::Type { wanted: "message section", code: first });
            }
            let section = cursor.descriptor()?;
            let repeats = section == last && matches!(section, section::DATA | section::SEQUENCE);
            let mixes = body_sections > 0 && !repeats && section < section::FOOTER;
            let known = (section::HEADER..=section::FOOTER).contains(&section);
            if section <= last && !repeats || mixes || !known {
                return Err(DecodeError::Section { code: section });
            }
            last = section;
            let value = cursor.byte()?;
            check_type(section, value)?;
            let content = cursor.skip_value(value, 0)?;
            let range = start..cursor.at();
            match section {
                section::HEADER => sections.header = Some(range),
                section::DELIVERY_ANNOTATIONS => sections.delivery_annotations = Some(range),
                section::MESSAGE_ANNOTATIONS => sections.message_annotations = Some(range),
                section::PROPERTIES => sections.properties = Some(range),
                section::APPLICATION_PROPERTIES => sections.application_properties = Some(range),
                section::FOOTER => sections.footer = Some(range),
                _ => {
                    if body_sections == BODY_SECTIONS_MAX {
                        return Err(DecodeError::Count);
                    }
                    if body_sections == 0 {
                        sections.body_range = range.clone();
                    }
                    sections.body_range.end = range.end;
                    body_sections += 1;
                    sections.body = if section == section::DATA && body_sections == 1 {
                        BodyForm::Data(content)
                    } else {
                        BodyForm::Sections(sections.body_range.clone())
                    };
                }
            }
        }
        Ok(sections)
    }

    /// The sections up to the message annotations, of a message of which only the front may be there; none where that
    /// ends before it is known where they are, or is no message.
    pub fn front(payload: &Payload) -> Option<Self> {
        let mut cursor = Cursor::new(payload);
        let mut sections = Self::default();
        loop {
            let start = cursor.at();
            if cursor.next_byte()? != code::DESCRIBED {
                return None;
            }
            let section = cursor.descriptor().ok()?;
            if section > section::MESSAGE_ANNOTATIONS {
                return Some(sections);
            }
            let value = cursor.byte().ok()?;
            check_type(section, value).ok()?;
            cursor.skip_value(value, 0).ok()?;
            let range = start..cursor.at();
            match section {
                section::HEADER => sections.header = Some(range),
                section::DELIVERY_ANNOTATIONS => sections.delivery_annotations = Some(range),
                section::MESSAGE_ANNOTATIONS => sections.message_annotations = Some(range),
                _ => return None,
            }
        }
    }

    /// The header; its defaults when there is none.
    pub fn decode_header(&self, payload: &Payload) -> Result<Header, DecodeError> {
        match &self.header {
            Some(range) => Header::decode_section(&payload.bytes_at(range.clone())),
            None => Ok(Header::default()),
        }
    }

    /// The properties; empty ones when there are none.
    pub fn decode_properties(&self, payload: &Payload) -> Result<Properties, DecodeError> {
        match &self.properties {
            Some(range) => Properties::decode_section(&payload.bytes_at(range.clone())),
            None => Ok(Properties::default()),
        }
    }

    /// The pairs of a map section: annotations, application properties, footer.
    pub fn decode_map(payload: &Payload, section: Option<&Range<usize>>) -> Result<Vec<(Value, Value)>, DecodeError> {
        let Some(range) = section else { return Ok(Vec::new()) };
        match Value::from_bytes(&payload.bytes_at(range.clone()))? {
            Value::Described(both) => match both.1 {
                Value::Map(pairs) => Ok(pairs),
                _ => Err(DecodeError::Value { of: "map section" }),
            },
            _ => Err(DecodeError::Value { of: "map section" }),
        }
    }

    /// The range of the bare message: what the sender wrote and no intermediary may change (part 3, section 3.2).
    pub fn bare(&self) -> Range<usize> {
        let first =
            [&self.properties, &self.application_properties].into_iter().flatten().map(|range| range.start).min();
        let body = (self.body != BodyForm::Empty).then(|| self.body_range.clone());
        let end = [&self.properties, &self.application_properties].into_iter().flatten().map(|range| range.end).max();
        match (first, body) {
            (Some(start), Some(body)) => start..body.end,
            (Some(start), None) => start..end.unwrap_or(start),
            (None, Some(body)) => body,
            (None, None) => 0..0,
        }
    }
}

/// The value of a section must be of its type.
/// Whether these bytes are the body of a message and nothing else: data sections, sequence sections or one value, each
/// well formed down to the innermost value, and at most a footer behind them. Nothing is copied.
///
/// # Errors
/// The first thing that is wrong; [`DecodeError::Truncated`] where there is no body section at all.
pub fn check_body(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut last = 0;
    let mut count = 0;
    while !reader.is_empty() {
        match reader.u8()? {
            code::DESCRIBED => {}
            code => return Err(DecodeError::Type { wanted: "message section", code }),
        }
        let section = reader.descriptor()?;
        let fits = match section {
            section::VALUE => last == 0,
            section::DATA | section::SEQUENCE => last == 0 || last == section,
            section::FOOTER => last != 0 && last != section::FOOTER,
            _ => false,
        };
        if !fits {
            return Err(DecodeError::Section { code: section });
        }
        count += 1;
        if count > BODY_SECTIONS_MAX + u32::from(section == section::FOOTER) {
            return Err(DecodeError::Count);
        }
        last = section;
        let value = reader.u8()?;
        check_type(section, value)?;
        check_value(&mut reader, value)?;
    }
    if last == 0 { Err(DecodeError::Truncated) } else { Ok(()) }
}

/// Passes over a value whose format code was just read, and looks at everything in it.
fn check_value(reader: &mut Reader<'_>, code: u8) -> Result<(), DecodeError> {
    let next = |reader: &mut Reader<'_>| {
        let code = reader.u8()?;
        check_value(reader, code)
    };
    match code {
        code::DESCRIBED => reader.nested(|reader| {
            next(reader)?;
            next(reader)
        }),
        code::LIST8 | code::LIST32 | code::MAP8 | code::MAP32 => {
            let (mut inner, count) = reader.compound(matches!(code, code::LIST32 | code::MAP32))?;
            if matches!(code, code::MAP8 | code::MAP32) && count % 2 != 0 {
                return Err(DecodeError::Count);
            }
            for _ in 0..count {
                next(&mut inner)?;
            }
            reader.close(inner)
        }
        code::ARRAY8 | code::ARRAY32 => {
            let (mut inner, count) = reader.compound(code == code::ARRAY32)?;
            let mut element = inner.u8()?;
            let mut descriptors = 0;
            while element == code::DESCRIBED {
                if descriptors == DEPTH_MAX {
                    return Err(DecodeError::Depth);
                }
                descriptors += 1;
                next(&mut inner)?;
                element = inner.u8()?;
            }
            for _ in 0..count {
                check_value(&mut inner, element)?;
            }
            reader.close(inner)
        }
        code::BINARY8 | code::BINARY32 => reader.sized(code == code::BINARY32).map(drop),
        code::STRING8 | code::STRING32 => {
            let text = reader.sized(code == code::STRING32)?;
            std::str::from_utf8(text).map(drop).map_err(|_| DecodeError::Text)
        }
        _ => Value::decode(reader, code).map(drop),
    }
}

fn check_type(section: u64, value: u8) -> Result<(), DecodeError> {
    let (wanted, fits) = match section {
        section::HEADER | section::PROPERTIES | section::SEQUENCE => {
            ("list", matches!(value, code::LIST0 | code::LIST8 | code::LIST32))
        }
        section::DATA => ("binary", matches!(value, code::BINARY8 | code::BINARY32)),
        section::VALUE => ("any", true),
        _ => ("map", matches!(value, code::MAP8 | code::MAP32)),
    };
    if fits { Ok(()) } else { Err(DecodeError::Type { wanted, code: value }) }
}

macro_rules! section_codec {
    ($($name:ident)*) => { $(
        impl $name {
            /// Decodes an encoded section, descriptor and all.
            pub fn decode_section(bytes: &[u8]) -> Result<Self, DecodeError> {
                use crate::codec::Decode;
                let mut reader = Reader::new(bytes);
                let code = reader.u8()?;
                let section = Self::decode(&mut reader, code)?;
                if reader.is_empty() { Ok(section) } else { Err(DecodeError::Surplus) }
            }

            /// Appends the encoded section, descriptor and all.
            pub fn encode_section(&self, out: &mut Vec<u8>) {
                self.encode(out);
            }
        }
    )* };
}
section_codec!(Header Properties);

/// The message with another header. Only the header's bytes are new.
pub fn with_header(message: &Payload, sections: &Sections, header: &Header) -> Payload {
    let mut encoded = Vec::with_capacity(32);
    header.encode_section(&mut encoded);
    let mut out = Payload::from(Bytes::from(encoded));
    let rest = sections.header.as_ref().map_or(0, |range| range.end);
    for chunk in message.slice(rest..message.len()).chunks() {
        out.push(chunk.clone());
    }
    out
}

/// Descriptor, format code and length of a data section (part 3, section 3.2.6).
const DATA_HEAD_BYTES_MAX: usize = 8;

/// What stands before the raw bytes of a data section of `length` bytes.
pub fn data_section_head(length: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(DATA_HEAD_BYTES_MAX);
    head.extend_from_slice(&[code::DESCRIBED, code::ULONG8, section::DATA as u8]);
    match u8::try_from(length) {
        Ok(short) => head.extend_from_slice(&[code::BINARY8, short]),
        Err(_) => {
            head.push(code::BINARY32);
            head.extend_from_slice(&clamp(length).to_be_bytes());
        }
    }
    head
}

/// The parts of a message to be put together. Sections are encoded ones, or empty.
#[derive(Clone, Debug, Default)]
pub struct MessageParts {
    /// The header; none is written when it is absent.
    pub header: Option<Header>,
    /// Encoded delivery annotations.
    pub delivery_annotations: Bytes,
    /// Encoded message annotations.
    pub message_annotations: Bytes,
    /// Encoded properties.
    pub properties: Bytes,
    /// Encoded application properties.
    pub application_properties: Bytes,
    /// The body.
    pub body: MessageBody,
    /// Encoded footer.
    pub footer: Bytes,
}

/// The body of a message to be put together.
#[derive(Clone, Debug)]
pub enum MessageBody {
    /// Raw bytes for one data section.
    Data(Payload),
    /// Encoded sections.
    Sections(Payload),
}

impl Default for MessageBody {
    fn default() -> Self {
        Self::Sections(Payload::new())
    }
}

impl MessageParts {
    /// Puts the message together. The sections before the body are copied, the body is not.
    pub fn build(&self) -> Payload {
        let parts =
            [&self.delivery_annotations, &self.message_annotations, &self.properties, &self.application_properties];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut head = Vec::with_capacity(length + 64);
        if let Some(header) = &self.header {
            header.encode_section(&mut head);
        }
        parts.iter().for_each(|part| head.extend_from_slice(part));
        let body = match &self.body {
            MessageBody::Data(body) => {
                head.extend_from_slice(&data_section_head(body.len()));
                body
            }
            MessageBody::Sections(body) => body,
        };
        let mut message = Payload::from(Bytes::from(head));
        body.chunks().iter().for_each(|chunk| message.push(chunk.clone()));
        message.push(self.footer.clone());
        message
    }
}

/// Encodes a map section with the given descriptor: 0x71 and 0x72 annotations, 0x74 application
/// properties, 0x78 footer.
pub fn encode_map_section(descriptor: u8, pairs: &[(Value, Value)], out: &mut Vec<u8>) {
    out.extend_from_slice(&[code::DESCRIBED, code::ULONG8, descriptor]);
    Value::Map(pairs.to_vec()).encode(out);
}

/// A place in the bytes of a payload, chunk after chunk.
struct Cursor<'a> {
    /// What is left of the current chunk.
    rest: &'a [u8],
    chunks: std::slice::Iter<'a, Bytes>,
    /// Where the current chunk ends in the payload.
    chunk_end: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    fn new(payload: &'a Payload) -> Self {
        Self { rest: &[], chunks: payload.chunks().iter(), chunk_end: 0, end: payload.len() }
    }

    fn at(&self) -> usize {
        self.chunk_end - self.rest.len()
    }

    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            if let Some((first, rest)) = self.rest.split_first() {
                self.rest = rest;
                return Some(*first);
            }
            self.next_chunk()?;
        }
    }

    fn next_chunk(&mut self) -> Option<()> {
        let chunk = self.chunks.next()?;
        self.rest = chunk;
        self.chunk_end += chunk.len();
        Some(())
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.next_byte().ok_or(DecodeError::Truncated)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        if let Some((word, rest)) = self.rest.split_first_chunk::<4>() {
            self.rest = rest;
            return Ok(u32::from_be_bytes(*word));
        }
        Ok(u32::from_be_bytes([self.byte()?, self.byte()?, self.byte()?, self.byte()?]))
    }

    fn skip(&mut self, count: usize) -> Result<(), DecodeError> {
        if count > self.end - self.at() {
            return Err(DecodeError::Truncated);
        }
        let mut left = count;
        while left > self.rest.len() {
            left -= self.rest.len();
            self.rest = &[];
            self.next_chunk().ok_or(DecodeError::Truncated)?;
        }
        self.rest = self.rest.get(left..).unwrap_or_default();
        Ok(())
    }

    fn descriptor(&mut self) -> Result<u64, DecodeError> {
        /// Longest symbolic descriptor that is known.
        const SYMBOL_BYTES_MAX: usize = 64;
        match self.byte()? {
            code::ULONG8 => self.byte().map(u64::from),
            code::ULONG => Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?)),
            code @ (code::SYMBOL8 | code::SYMBOL32) => {
                let length = if code == code::SYMBOL32 { self.u32()? as usize } else { usize::from(self.byte()?) };
                let mut name = [0; SYMBOL_BYTES_MAX];
                let name = name.get_mut(..length).ok_or(DecodeError::Section { code: u64::MAX })?;
                for byte in name.iter_mut() {
                    *byte = self.byte()?;
                }
                Ok(crate::types::code_of(name).unwrap_or(u64::MAX))
            }
            code => Err(DecodeError::Type { wanted: "descriptor", code }),
        }
    }

    /// Passes over a value of any type whose format code was just read. Returns the range of its
    /// content (of variable-width types: after the length).
    fn skip_value(&mut self, code: u8, depth: u8) -> Result<Range<usize>, DecodeError> {
        if code == code::DESCRIBED {
            if depth >= DEPTH_MAX {
                return Err(DecodeError::Depth);
            }
            let descriptor = self.byte()?;
            self.skip_value(descriptor, depth + 1)?;
            let value = self.byte()?;
            return self.skip_value(value, depth + 1);
        }
        let width = match code >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xa | 0xc | 0xe => usize::from(self.byte()?),
            0xb | 0xd | 0xf => self.u32()? as usize,
            _ => return Err(DecodeError::Type { wanted: "any", code }),
        };
        let start = self.at();
        self.skip(width)?;
        Ok(start..self.at())
    }
}
