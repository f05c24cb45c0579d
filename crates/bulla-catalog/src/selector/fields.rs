//! The fields that a selector looks at, and where they are in a message's bytes.
//!
//! JMS names stand for header fields and properties as Qpid JMS maps them, `amqp.` and a name for the fields of AMQP's
//! own sections (hyphens as underlines), and everything else for application properties.

use super::Key;
use super::expression::{Expression, Value};
use super::id::{self, Which};
use bulla_amqp::{Payload, Sections};
use bytes::Bytes;
use std::cell::Cell;

/// Fields of the properties section (AMQP part 3, section 3.2.4).
pub(super) const MESSAGE_ID: usize = 0;
const USER_ID: usize = 1;
const SUBJECT: usize = 3;
pub(super) const CORRELATION_ID: usize = 5;
const CREATION_TIME: usize = 9;
pub(super) const GROUP_ID: usize = 10;
const GROUP_SEQUENCE: usize = 11;
/// Their names after `amqp.`.
const STANDARD: [&str; 13] = [
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
];
/// Fields of the header section (AMQP part 3, section 3.2.1).
const DURABLE: usize = 0;
const TTL: usize = 2;
/// Header fields of JMS that may not stand in a selector (JMS 3.1, section 3.8.1.1).
const NOT_SELECTABLE: [&str; 5] =
    ["JMSDestination", "JMSReplyTo", "JMSRedelivered", "JMSExpiration", "JMSDeliveryTime"];

/// Steps that judging one message may take, each a character tried: some 0.2 ms. A comparison that would need more is
/// unknown, as one with a field that is not there; a text of 64 KiB is looked through for a word with half of them.
const STEPS_PER_MESSAGE_MAX: u32 = 131_072;
/// Steps that cost as much as looking at a message.
const STEPS_PER_LOOK: u32 = 256;
/// Bytes of a text that are compared with another in one step.
const BYTES_PER_STEP: usize = 64;
/// Application properties of one message that a selector looks at; what comes after is not there for it.
const PROPERTIES_LOOKED_AT_MAX: usize = 4_096;

/// Descriptors of the sections up to the body (AMQP part 3, section 3.2).
const HEADER: u8 = 0x70;
const PROPERTIES: u8 = 0x73;
const APPLICATION_PROPERTIES: u8 = 0x74;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    /// An application property.
    Property,
    /// A field of the properties section.
    Standard(usize),
    /// An id in its JMS form.
    JmsId(Which),
    Priority,
    Durable,
    DeliveryMode,
    TimeToLive,
    /// Failed deliveries, or the number of this one.
    DeliveryCount,
    DeliveryNumber,
}

#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: Box<str>,
    source: Source,
}

/// What a selector looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    fields: Vec<Field>,
    /// Operations so far, for the parser.
    pub(super) chained: usize,
    header: bool,
    /// How many fields of the properties section have to be walked over.
    standard: usize,
    /// The fields that are application properties, by name.
    properties: Vec<usize>,
}

/// What the queue knows of a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// 0 to 9.
    pub priority: u8,
    /// Whether it survives the end of the process; counts where the message has no header section.
    pub persistent: bool,
    /// How often a delivery failed.
    pub delivery_count: u32,
}

/// What judging needs from message to message.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Where each wanted field's encoding is, by its number; empty where the message has none.
    spans: Vec<(u32, u32)>,
    /// Ids in their JMS form.
    ids: [Vec<u8>; 2],
    /// The sections of a message that came in pieces.
    head: Vec<u8>,
    /// Steps that the last message took.
    pub(super) spent: u32,
}

/// A message as an expression sees it.
pub(super) struct Fields<'a> {
    wanted: &'a Wanted,
    bytes: &'a [u8],
    spans: &'a [(u32, u32)],
    ids: &'a [Vec<u8>; 2],
    facts: Facts,
    has_header: bool,
    steps_left: Cell<u32>,
}

impl Wanted {
    /// The number of the field of that name.
    pub(super) fn field(&mut self, name: &str) -> Result<usize, String> {
        let source = match name {
            "JMSMessageID" => Source::JmsId(Which::Message),
            "JMSCorrelationID" => Source::JmsId(Which::Correlation),
            "JMSPriority" | "amqp.priority" => Source::Priority,
            "JMSDeliveryMode" => Source::DeliveryMode,
            "JMSTimestamp" => Source::Standard(CREATION_TIME),
            "JMSType" => Source::Standard(SUBJECT),
            "JMSXGroupID" => Source::Standard(GROUP_ID),
            "JMSXGroupSeq" => Source::Standard(GROUP_SEQUENCE),
            "JMSXUserID" => Source::Standard(USER_ID),
            "JMSXDeliveryCount" => Source::DeliveryNumber,
            "amqp.durable" => Source::Durable,
            "amqp.ttl" => Source::TimeToLive,
            "amqp.delivery_count" => Source::DeliveryCount,
            _ if NOT_SELECTABLE.contains(&name) => return Err(format!("{name} may not stand in a selector")),
            _ => match name.strip_prefix("amqp.") {
                Some(field) => {
                    let known = STANDARD.iter().position(|known| *known == field);
                    Source::Standard(known.ok_or_else(|| format!("a message has no field {name}"))?)
                }
                None => Source::Property,
            },
        };
        Ok(self.number(name, source))
    }

    fn number(&mut self, name: &str, source: Source) -> usize {
        let same = |field: &Field| field.source == source && (source != Source::Property || *field.name == *name);
        self.fields.iter().position(same).unwrap_or_else(|| {
            self.fields.push(Field { name: name.into(), source });
            self.fields.len() - 1
        })
    }

    /// A message id in JMS form begins with `ID:`. A literal that does not means the AMQP string itself.
    pub(super) fn raw_ids(&mut self, left: Expression, right: Expression) -> (Expression, Expression) {
        let plain = |side: &Expression| matches!(side, Expression::Text(text) if !text.starts_with("ID:"));
        match (left, right) {
            (Expression::Field(field), right) if plain(&right) => (Expression::Field(self.raw_id(field)), right),
            (left, Expression::Field(field)) if plain(&left) => (left, Expression::Field(self.raw_id(field))),
            both => both,
        }
    }

    /// The AMQP string of a message id, for its JMS form.
    pub(super) fn raw_id(&mut self, field: usize) -> usize {
        match self.fields.get(field).map(|field| field.source) {
            Some(Source::JmsId(Which::Message)) => self.number("amqp.message_id", Source::Standard(MESSAGE_ID)),
            _ => field,
        }
    }

    /// After the last field: which sections have to be looked into.
    pub(super) fn prepare(&mut self) {
        for field in &self.fields {
            match field.source {
                Source::Property => {}
                Source::Standard(place) => self.standard = self.standard.max(place + 1),
                Source::JmsId(which) => self.standard = self.standard.max(place_of(which) + 1),
                Source::Durable | Source::DeliveryMode | Source::TimeToLive => self.header = true,
                Source::Priority | Source::DeliveryCount | Source::DeliveryNumber => {}
            }
        }
        let fields = &self.fields;
        self.properties = (0..fields.len()).filter(|field| fields[*field].source == Source::Property).collect();
        self.properties.sort_by(|left, right| fields[*left].name.cmp(&fields[*right].name));
    }

    /// The number of the application property of that name.
    fn property(&self, name: &[u8]) -> Option<usize> {
        let found = self.properties.binary_search_by(|field| self.fields[*field].name.as_bytes().cmp(name)).ok()?;
        Some(self.properties[found])
    }

    /// The index's key for `field = 'text'`.
    pub(super) fn key(&self, field: usize, text: &str) -> Option<Key> {
        let (which, is_jms_form) = match self.fields.get(field)?.source {
            Source::JmsId(which) => (which, true),
            Source::Standard(MESSAGE_ID) => (Which::Message, false),
            Source::Standard(CORRELATION_ID) => (Which::Correlation, false),
            _ => return None,
        };
        Some(Key { kind: which as usize, value: id::key_of(which, text, is_jms_form) })
    }
}

fn place_of(which: Which) -> usize {
    match which {
        Which::Message => MESSAGE_ID,
        Which::Correlation => CORRELATION_ID,
    }
}

impl Scratch {
    /// What judging the last message took beside looking at it: in messages.
    pub fn cost(&self) -> usize {
        (self.spent / STEPS_PER_LOOK) as usize
    }

    /// Notes where the wanted fields of a message are. `None` where its front is not enough.
    pub(super) fn find<'a>(
        &'a mut self,
        wanted: &'a Wanted,
        facts: Facts,
        body: &'a [Bytes],
        is_whole: bool,
    ) -> Option<Fields<'a>> {
        self.spans.clear();
        self.spans.resize(wanted.fields.len(), (0, 0));
        let first: &[u8] = body.first().map_or(&[], |first| first);
        let (heads, bytes) = match Heads::scan(first, is_whole && body.len() <= 1) {
            Some(heads) => (heads, first),
            None if !is_whole => return None,
            None => (Heads::gather(body, &mut self.head), &*self.head),
        };
        if wanted.header {
            let mut list = List::new(bytes, heads.header);
            for place in 0..=TTL {
                let Some(span) = list.next() else { break };
                for (field, noted) in wanted.fields.iter().zip(&mut self.spans) {
                    let is_here = match field.source {
                        Source::Durable | Source::DeliveryMode => place == DURABLE,
                        Source::TimeToLive => place == TTL,
                        _ => false,
                    };
                    if is_here {
                        *noted = span;
                    }
                }
            }
        }
        if wanted.standard > 0 {
            self.ids.iter_mut().for_each(Vec::clear);
            let mut list = List::new(bytes, heads.properties);
            for place in 0..wanted.standard {
                let Some(span) = list.next() else { break };
                for (field, noted) in wanted.fields.iter().zip(&mut self.spans) {
                    let is_here = match field.source {
                        Source::Standard(known) => known == place,
                        Source::JmsId(which) if place_of(which) == place => {
                            id::write(which, slice(bytes, span), &mut self.ids[which as usize])
                        }
                        _ => false,
                    };
                    if is_here {
                        *noted = span;
                    }
                }
            }
        }
        if !wanted.properties.is_empty() {
            find_properties(wanted, bytes, heads.application, &mut self.spans);
        }
        Some(Fields {
            wanted,
            bytes,
            spans: &self.spans,
            ids: &self.ids,
            facts,
            has_header: heads.header != 0,
            steps_left: Cell::new(STEPS_PER_MESSAGE_MAX),
        })
    }
}

/// Walks the application properties until all that are wanted are found, or [`PROPERTIES_LOOKED_AT_MAX`] were looked
/// at.
fn find_properties(wanted: &Wanted, bytes: &[u8], at: usize, spans: &mut [(u32, u32)]) {
    let mut left = wanted.properties.len();
    let mut map = List::new(bytes, at);
    for _ in 0..PROPERTIES_LOOKED_AT_MAX {
        let (Some(key), Some(value)) = (map.next(), map.next()) else { return };
        let name = match slice(bytes, key) {
            [0xa1 | 0xa3, _, name @ ..] | [0xb1 | 0xb3, _, _, _, _, name @ ..] => name,
            _ => continue,
        };
        if let Some(noted) = wanted.property(name).and_then(|field| spans.get_mut(field))
            && *noted == (0, 0)
        {
            *noted = value;
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// Where the values of the sections before the body begin; 0 where there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Heads {
    header: usize,
    properties: usize,
    application: usize,
}

impl Heads {
    /// Walks over the sections in one piece of a message. `None` where that piece ends before the body, and is not all;
    /// or where a section is named by a symbol.
    fn scan(bytes: &[u8], is_all: bool) -> Option<Self> {
        let mut heads = Self::default();
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + 3) {
            let &[0, 0x53, section] = head else { return None };
            let value = at + 3;
            match section {
                HEADER => heads.header = value,
                PROPERTIES => heads.properties = value,
                APPLICATION_PROPERTIES => heads.application = value,
                section if section > APPLICATION_PROPERTIES => return Some(heads),
                _ => {}
            }
            let length = bytes.get(value..).and_then(value_len)?;
            at = value + length;
        }
        (is_all && at == bytes.len()).then_some(heads)
    }

    /// The sections of a message in pieces, copied into one, or with symbols for names; none of one that is malformed.
    fn gather(body: &[Bytes], into: &mut Vec<u8>) -> Self {
        into.clear();
        let payload = Payload::from(body.to_vec());
        let Ok(sections) = Sections::scan(&payload) else { return Self::default() };
        let ranges = [&sections.header, &sections.properties, &sections.application_properties];
        let end = ranges.into_iter().flatten().map(|range| range.end).max().unwrap_or(0);
        for chunk in payload.slice(0..end).chunks() {
            into.extend_from_slice(chunk);
        }
        let value = |range: &Option<std::ops::Range<usize>>| {
            let start = range.as_ref()?.start + 1;
            Some(start + value_len(into.get(start..)?)?)
        };
        Self {
            header: value(&sections.header).unwrap_or(0),
            properties: value(&sections.properties).unwrap_or(0),
            application: value(&sections.application_properties).unwrap_or(0),
        }
    }
}

/// Gives the encodings of the properties section's fields to `look`. `None` where the front of the message is not
/// enough.
pub(super) fn front_properties(body: &[Bytes], look: impl FnOnce(&[&[u8]])) -> Option<()> {
    let first: &[u8] = body.first().map_or(&[], |first| first);
    let mut gathered = Vec::new();
    let (heads, bytes) = match Heads::scan(first, body.len() <= 1) {
        Some(heads) => (heads, first),
        // One piece that ends too soon is the front of a message; several are all of it.
        None if body.len() <= 1 && Sections::scan(&Payload::from(body.to_vec())).is_err() => return None,
        None => (Heads::gather(body, &mut gathered), &*gathered),
    };
    let mut fields: [&[u8]; STANDARD.len()] = [&[]; STANDARD.len()];
    let mut list = List::new(bytes, heads.properties);
    for field in &mut fields {
        let Some(span) = list.next() else { break };
        *field = slice(bytes, span);
    }
    look(&fields);
    Some(())
}

/// The items of an encoded list or map, one after the other; ends at the first that is malformed.
struct List<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> List<'a> {
    /// The list or map at `at`; an empty one where that is 0, or no list.
    fn new(bytes: &'a [u8], at: usize) -> Self {
        let none = Self { bytes: &[], at: 0, left: 0 };
        if at == 0 {
            return none;
        }
        let (first, left) = match bytes.get(at..) {
            Some([0xc0 | 0xc1, _, count, ..]) => (at + 3, u32::from(*count)),
            Some([0xd0 | 0xd1, _, _, _, _, a, b, c, d, ..]) => (at + 9, u32::from_be_bytes([*a, *b, *c, *d])),
            _ => return none,
        };
        // An item may not run on into what comes behind its list.
        let within = bytes.get(at..).and_then(value_len).and_then(|length| bytes.get(..at + length));
        within.map_or(none, |bytes| Self { bytes, at: first, left })
    }

    fn next(&mut self) -> Option<(u32, u32)> {
        self.left = self.left.checked_sub(1)?;
        let end = self.at + value_len(self.bytes.get(self.at..)?)?;
        let span = (u32::try_from(self.at).ok()?, u32::try_from(end).ok()?);
        self.at = end;
        Some(span)
    }
}

/// Walks an encoded map section, descriptor and all, and gives its whole numbers and timestamps to `look`, with their
/// names.
pub fn each_number(section: &[u8], mut look: impl FnMut(&[u8], i64)) {
    let Some(at) = section.get(1..).and_then(value_len) else { return };
    let mut map = List::new(section, 1 + at);
    while let (Some(key), Some(number)) = (map.next(), map.next()) {
        if let ([0xa3, _, name @ ..], Value::Long(number)) = (slice(section, key), value(slice(section, number))) {
            look(name, number);
        }
    }
}

fn slice(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

/// What it costs to compare that many bytes with as many others.
pub(super) fn steps_of(bytes: usize) -> u32 {
    1 + u32::try_from(bytes / BYTES_PER_STEP).unwrap_or(u32::MAX - 1)
}

impl<'a> Fields<'a> {
    /// Counts steps; whether there were as many left for this message.
    pub(super) fn spend(&self, steps: u32) -> bool {
        let left = self.steps_left.get().checked_sub(steps);
        self.steps_left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Steps that were counted.
    pub(super) fn spent(&self) -> u32 {
        STEPS_PER_MESSAGE_MAX - self.steps_left.get()
    }

    /// What the message has there.
    pub(super) fn value(&self, field: usize) -> Value<'a> {
        let Some(known) = self.wanted.fields.get(field) else { return Value::Null };
        let encoded = || slice(self.bytes, self.spans[field]);
        match known.source {
            Source::Property => value(encoded()),
            Source::Standard(USER_ID) => match encoded() {
                [0xa0, _, name @ ..] | [0xb0, _, _, _, _, name @ ..] => Value::Text(name),
                _ => Value::Null,
            },
            Source::Standard(_) | Source::TimeToLive => value(encoded()),
            Source::JmsId(which) if self.spans[field] != (0, 0) => Value::Text(&self.ids[which as usize]),
            Source::JmsId(_) => Value::Null,
            Source::Priority => Value::Long(i64::from(self.facts.priority)),
            Source::Durable => Value::Boolean(self.is_durable(encoded())),
            Source::DeliveryMode if self.is_durable(encoded()) => Value::Text(b"PERSISTENT"),
            Source::DeliveryMode => Value::Text(b"NON_PERSISTENT"),
            Source::DeliveryCount => Value::Long(i64::from(self.facts.delivery_count)),
            Source::DeliveryNumber => Value::Long(i64::from(self.facts.delivery_count) + 1),
        }
    }

    fn is_durable(&self, encoded: &[u8]) -> bool {
        if self.has_header { value(encoded) == Value::Boolean(true) } else { self.facts.persistent }
    }
}

/// A primitive as selectors know them (AMQP part 1, section 1.6): numbers of every width, booleans, strings and
/// symbols, timestamps as milliseconds. Unsigned numbers beyond 2^63 are approximate.
pub(super) fn value(encoded: &[u8]) -> Value<'_> {
    let wide = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).ok();
    let narrow = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).ok();
    match encoded {
        [0xa1 | 0xa3, _, text @ ..] | [0xb1 | 0xb3, _, _, _, _, text @ ..] => Value::Text(text),
        [0x41] | [0x56, 1] => Value::Boolean(true),
        [0x42] | [0x56, 0] => Value::Boolean(false),
        [0x43 | 0x44] => Value::Long(0),
        [0x50 | 0x52 | 0x53, byte] => Value::Long(i64::from(*byte)),
        [0x51 | 0x54 | 0x55, byte] => Value::Long(i64::from(byte.cast_signed())),
        [0x60, a, b] => Value::Long(i64::from(u16::from_be_bytes([*a, *b]))),
        [0x61, a, b] => Value::Long(i64::from(i16::from_be_bytes([*a, *b]))),
        [0x70, rest @ ..] => narrow(rest).map_or(Value::Null, |four| Value::Long(i64::from(u32::from_be_bytes(four)))),
        [0x71, rest @ ..] => narrow(rest).map_or(Value::Null, |four| Value::Long(i64::from(i32::from_be_bytes(four)))),
        [0x72, rest @ ..] => {
            narrow(rest).map_or(Value::Null, |four| Value::Double(f64::from(f32::from_be_bytes(four))))
        }
        [0x80, rest @ ..] => wide(rest).map_or(Value::Null, |eight| {
            let number = u64::from_be_bytes(eight);
            i64::try_from(number).map_or(Value::Double(number as f64), Value::Long)
        }),
        [0x81 | 0x83, rest @ ..] => wide(rest).map_or(Value::Null, |eight| Value::Long(i64::from_be_bytes(eight))),
        [0x82, rest @ ..] => wide(rest).map_or(Value::Null, |eight| Value::Double(f64::from_be_bytes(eight))),
        _ => Value::Null,
    }
}

/// Bytes of the encoding at the start of `bytes` (AMQP part 1, section 1.2: the high half of the format
/// code says how wide it is). Properties hold no described values.
pub fn value_len(bytes: &[u8]) -> Option<usize> {
    let code = *bytes.first()?;
    let len = match code >> 4 {
        0x4 => 1,
        0x5 => 2,
        0x6 => 3,
        0x7 => 5,
        0x8 => 9,
        0x9 => 17,
        0xa | 0xc | 0xe => 2 + usize::from(*bytes.get(1)?),
        0xb | 0xd | 0xf => 5usize.checked_add(u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize)?,
        _ => return None,
    };
    (len <= bytes.len()).then_some(len)
}
