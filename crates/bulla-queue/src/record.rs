//! The bytes of a batch: its header, the record headers, and the bodies behind them. `docs/formats/journal.md` is the
//! page.
//!
//! Little-endian; everything begins on eight bytes. The batch header and the record headers have one CRC-32C each a
//! batch, each body has its own.

use std::fmt;

use crate::message::{MESSAGE_NUMBER_MAX, MessageId, QueueId, StoreNumber};

/// The first four bytes of a batch.
pub const BATCH_MAGIC: [u8; 4] = *b"BATC";
/// Bytes of a batch header; a batch's record headers follow.
pub const BATCH_HEADER_BYTES: usize = 40;
/// Bytes of the fixed part of a put record's header.
pub const PUT_HEADER_BYTES: usize = 48;
/// Bytes of the record that says how long a message is not deliverable.
pub const DELAYED_BYTES: usize = 24;
/// Bytes of a user's name in a record.
pub const USER_BYTES_MAX: usize = 255;
/// Bytes of a queue's name in a record.
pub const QUEUE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a note's name in a record.
pub const NOTE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a note's value in a record. A record header is below 64 KiB.
pub const NOTE_VALUE_BYTES_MAX: usize = 48 << 10;
/// Bytes of the fixed part of a record that names a note.
const NOTE_HEADER_BYTES: usize = 16;
const _: () = assert!(
    NOTE_HEADER_BYTES + padded(NOTE_NAME_BYTES_MAX + NOTE_VALUE_BYTES_MAX) <= u16::MAX as usize,
    "a record's length is two bytes"
);
/// Bytes of an object's name in a record.
pub const OBJECT_NAME_BYTES_MAX: usize = 12 << 10;
/// Bytes of an object's definition, which is the body of its record.
pub const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Bytes of the names of one set of keys in a record, with the two bytes before each.
pub const KEY_NAMES_BYTES_MAX: usize = 16 << 10;
/// What a record says of the keys of a message that were not known when it was put. Older programs know nothing else.
pub const KEYS_UNKNOWN: u16 = 0;
/// What a record says of a message that needs no key.
pub const KEYS_NONE: u16 = 1;
/// The lowest number that a set of keys has.
pub const KEYS_FIRST: u16 = 2;
/// Records, bodies and batches begin on a multiple of this.
pub const ALIGN_BYTES: usize = 8;

const KIND_PUT: u8 = 1;
const KIND_MOVED: u8 = 2;
const KIND_REMOVED: u8 = 3;
const KIND_FAILED: u8 = 4;
const KIND_DEFINED: u8 = 5;
const KIND_DELETED: u8 = 6;
const KIND_CHECKPOINT: u8 = 7;
const KIND_NOTED: u8 = 8;
const KIND_UNNOTED: u8 = 9;
const KIND_DELAYED: u8 = 10;
const KIND_OBJECT: u8 = 11;
const KIND_OBJECT_GONE: u8 = 12;
const KIND_KEYS: u8 = 13;
const KIND_REPLACED: u8 = 14;
const EXPIRES_NEVER: u64 = u64::MAX;

/// How many bytes `bytes` take with their padding.
#[must_use]
pub const fn padded(bytes: usize) -> usize {
    bytes.saturating_add(ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES
}

/// What frames a batch: written by the engine, since only it knows the salt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchHeader {
    /// Bytes of record headers.
    pub head_bytes: u32,
    /// Bytes of bodies, padding included.
    pub body_bytes: u32,
    /// Where the batch begins. A reader rejects a batch found elsewhere: it is left over from a recycled segment.
    pub at: u64,
    /// Whose batch it is. A reader rejects a lower epoch after a higher one.
    pub epoch: u64,
    /// CRC-32C of the record headers.
    pub head_crc: u32,
}

impl BatchHeader {
    /// Bytes of the whole batch.
    #[must_use]
    pub fn batch_bytes(&self) -> u64 {
        BATCH_HEADER_BYTES as u64 + u64::from(self.head_bytes) + u64::from(self.body_bytes)
    }

    /// The header as bytes. The salt goes into the checksum, so that no message body can pose as a batch.
    #[must_use]
    pub fn encode(&self, salt: u64) -> [u8; BATCH_HEADER_BYTES] {
        let mut out = [0; BATCH_HEADER_BYTES];
        out[..4].copy_from_slice(&BATCH_MAGIC);
        out[4..8].copy_from_slice(&self.head_bytes.to_le_bytes());
        out[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.at.to_le_bytes());
        out[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        out[32..36].copy_from_slice(&self.head_crc.to_le_bytes());
        let crc = header_crc(&out, salt);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header, or `None` where the magic, the reserved field, an alignment or the checksum is not right.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<BATCH_HEADER_BYTES>()?;
        if bytes[..4] != BATCH_MAGIC || u32_at(bytes, 36)? != header_crc(bytes, salt) || u32_at(bytes, 12)? != 0 {
            return None;
        }
        let header = Self {
            head_bytes: u32_at(bytes, 4)?,
            body_bytes: u32_at(bytes, 8)?,
            at: u64_at(bytes, 16)?,
            epoch: u64_at(bytes, 24)?,
            head_crc: u32_at(bytes, 32)?,
        };
        let aligned = |bytes: u32| (bytes as usize).is_multiple_of(ALIGN_BYTES);
        (aligned(header.head_bytes) && aligned(header.body_bytes)).then_some(header)
    }
}

fn header_crc(bytes: &[u8; BATCH_HEADER_BYTES], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &bytes[..36])
}

/// The header of a message in the journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PutRecord<'a> {
    /// The message.
    pub id: MessageId,
    /// Its queue.
    pub queue: QueueId,
    /// 0 to 9.
    pub priority: u8,
    /// Bytes of its body, without padding.
    pub body_bytes: u32,
    /// CRC-32C of its body.
    pub body_crc: u32,
    /// Milliseconds of wall time since 1970.
    pub put_at_ms: u64,
    /// Milliseconds of wall time since 1970, or never.
    pub expires_at_ms: Option<u64>,
    /// Deliveries that failed.
    pub delivery_count: u32,
    /// Who put it.
    pub user: Option<&'a str>,
    /// The number of the set of keys that open it, [`KEYS_NONE`] or [`KEYS_UNKNOWN`].
    pub keys: u16,
}

/// One record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Record<'a> {
    /// A message was put.
    Put(PutRecord<'a>),
    /// A message that is still there, carried forward from an older place.
    Moved(PutRecord<'a>),
    /// A message that is still there has another body from here on, at its own place on its queue.
    Replaced(PutRecord<'a>),
    /// A message was got, expired, or was cleared away.
    Removed(MessageId),
    /// A delivery failed.
    Failed {
        /// Whose.
        id: MessageId,
        /// How many have failed by now.
        delivery_count: u32,
    },
    /// A queue came to be, or is still there.
    Defined {
        /// Its number.
        queue: QueueId,
        /// Its name.
        name: &'a str,
    },
    /// A queue went away with everything on it.
    Deleted(QueueId),
    /// Counters that outlive what they counted.
    Checkpoint {
        /// No message below has it.
        next_id: u64,
        /// No queue so far has it.
        next_queue: u32,
        /// The store was closed here, in order.
        clean: bool,
    },
    /// A note has this value from here on, or still has it.
    Noted {
        /// Its name.
        name: &'a str,
        /// Its value.
        value: &'a [u8],
    },
    /// A note is no more.
    Unnoted {
        /// Its name.
        name: &'a str,
    },
    /// An object is defined so from here on, or still is; the definition is the record's body.
    Object {
        /// Its name.
        name: &'a str,
        /// Bytes of its definition, without padding.
        body_bytes: u32,
        /// CRC-32C of its definition.
        body_crc: u32,
    },
    /// An object is no longer defined.
    ObjectGone {
        /// Its name.
        name: &'a str,
    },
    /// The message of the put before, in the same batch, is not deliverable at once.
    Delayed {
        /// Which.
        id: MessageId,
        /// From when on it is: milliseconds of wall time since 1970.
        until_ms: u64,
    },
    /// A set of keys has this number from here on, or still has it.
    Keys {
        /// Its number, at least [`KEYS_FIRST`].
        number: u16,
        /// The names of the keys, as [`encode_key_names`] writes them.
        names: &'a [u8],
    },
}

impl Record<'_> {
    /// Bytes of the header of a record that defines a set of keys, whose names take so many bytes.
    #[must_use]
    pub const fn keys_head_bytes(names: usize) -> usize {
        16 + padded(names)
    }

    /// Bytes of the record's header.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        match self {
            Record::Put(put) | Record::Moved(put) | Record::Replaced(put) => {
                PUT_HEADER_BYTES + padded(put.user.map_or(0, str::len))
            }
            Record::Removed(_) | Record::Deleted(_) => 16,
            Record::Failed { .. } | Record::Checkpoint { .. } | Record::Delayed { .. } => DELAYED_BYTES,
            Record::Defined { name, .. } => 16 + padded(name.len()),
            Record::Keys { names, .. } => Self::keys_head_bytes(names.len()),
            Record::Noted { name, value } => NOTE_HEADER_BYTES + padded(name.len() + value.len()),
            Record::Unnoted { name } | Record::Object { name, .. } | Record::ObjectGone { name } => {
                NOTE_HEADER_BYTES + padded(name.len())
            }
        }
    }

    /// Appends the record's header to `out`. Names and values must be within their limits; the store sees to it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Put(put) => encode_put(KIND_PUT, put, out),
            Record::Moved(put) => encode_put(KIND_MOVED, put, out),
            Record::Replaced(put) => encode_put(KIND_REPLACED, put, out),
            Record::Removed(id) => {
                start(KIND_REMOVED, 0, 16, 0, out);
                out.extend_from_slice(&id.number().to_le_bytes());
            }
            Record::Failed { id, delivery_count } => {
                start(KIND_FAILED, 0, 24, 0, out);
                out.extend_from_slice(&id.number().to_le_bytes());
                out.extend_from_slice(&u64::from(*delivery_count).to_le_bytes());
            }
            Record::Defined { queue, name } => {
                start(KIND_DEFINED, 0, self.head_bytes(), 0, out);
                out.extend_from_slice(&queue.number().to_le_bytes());
                out.extend_from_slice(&(name.len() as u32).to_le_bytes());
                out.extend_from_slice(name.as_bytes());
                pad(out, name.len());
            }
            Record::Deleted(queue) => {
                start(KIND_DELETED, 0, 16, 0, out);
                out.extend_from_slice(&u64::from(queue.number()).to_le_bytes());
            }
            Record::Checkpoint { next_id, next_queue, clean } => {
                start(KIND_CHECKPOINT, u8::from(*clean), 24, 0, out);
                out.extend_from_slice(&next_id.to_le_bytes());
                out.extend_from_slice(&u64::from(*next_queue).to_le_bytes());
            }
            Record::Noted { name, value } => encode_note(KIND_NOTED, name, value, out),
            Record::Unnoted { name } => encode_note(KIND_UNNOTED, name, &[], out),
            Record::Object { name, body_bytes, body_crc } => {
                start(KIND_OBJECT, 0, self.head_bytes(), *body_crc, out);
                out.extend_from_slice(&(name.len() as u32).to_le_bytes());
                out.extend_from_slice(&body_bytes.to_le_bytes());
                out.extend_from_slice(name.as_bytes());
                pad(out, name.len());
            }
            Record::ObjectGone { name } => encode_note(KIND_OBJECT_GONE, name, &[], out),
            Record::Delayed { id, until_ms } => {
                start(KIND_DELAYED, 0, DELAYED_BYTES, 0, out);
                out.extend_from_slice(&id.number().to_le_bytes());
                out.extend_from_slice(&until_ms.to_le_bytes());
            }
            Record::Keys { number, names } => {
                start(KIND_KEYS, 0, self.head_bytes(), 0, out);
                out.extend_from_slice(&u32::from(*number).to_le_bytes());
                out.extend_from_slice(&(names.len() as u32).to_le_bytes());
                out.extend_from_slice(names);
                pad(out, names.len());
            }
        }
    }

    /// Bytes and checksum of the body that belongs to the record, if one does.
    #[must_use]
    pub fn body(&self) -> Option<(u32, u32)> {
        match self {
            Record::Put(put) | Record::Moved(put) | Record::Replaced(put) => Some((put.body_bytes, put.body_crc)),
            Record::Object { body_bytes, body_crc, .. } => Some((*body_bytes, *body_crc)),
            _ => None,
        }
    }
}

/// Kind, a byte of its own meaning, bytes of the record, checksum of its body.
fn start(kind: u8, detail: u8, bytes: usize, body_crc: u32, out: &mut Vec<u8>) {
    let bytes = u16::try_from(bytes).expect("names and values are limited, so a record header is below 64 KiB");
    let [low, high] = bytes.to_le_bytes();
    let [a, b, c, d] = body_crc.to_le_bytes();
    out.extend_from_slice(&[kind, detail, low, high, a, b, c, d]);
}

fn encode_put(kind: u8, put: &PutRecord<'_>, out: &mut Vec<u8>) {
    let user = put.user.unwrap_or_default();
    let mut fixed = [0_u8; PUT_HEADER_BYTES - 8];
    fixed[..8].copy_from_slice(&put.id.number().to_le_bytes());
    fixed[8..12].copy_from_slice(&put.queue.number().to_le_bytes());
    fixed[12..16].copy_from_slice(&put.body_bytes.to_le_bytes());
    fixed[16..24].copy_from_slice(&put.put_at_ms.to_le_bytes());
    fixed[24..32].copy_from_slice(&put.expires_at_ms.unwrap_or(EXPIRES_NEVER).to_le_bytes());
    fixed[32..36].copy_from_slice(&put.delivery_count.to_le_bytes());
    fixed[36..38].copy_from_slice(&(user.len() as u16).to_le_bytes());
    fixed[38..40].copy_from_slice(&put.keys.to_le_bytes());
    start(kind, put.priority, PUT_HEADER_BYTES + padded(user.len()), put.body_crc, out);
    out.extend_from_slice(&fixed);
    if !user.is_empty() {
        out.extend_from_slice(user.as_bytes());
        pad(out, user.len());
    }
}

fn encode_note(kind: u8, name: &str, value: &[u8], out: &mut Vec<u8>) {
    let bytes = name.len() + value.len();
    start(kind, 0, NOTE_HEADER_BYTES + padded(bytes), 0, out);
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value);
    pad(out, bytes);
}

fn pad(out: &mut Vec<u8>, bytes: usize) {
    out.resize(out.len() + padded(bytes) - bytes, 0);
}

/// A record that is not one: where in the head it begins, and what is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordError {
    /// Bytes into the record headers.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record header at byte {} of its batch: {}", self.offset, self.what)
    }
}

impl std::error::Error for RecordError {}

/// Walks the record headers of a batch. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    head: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    /// The records in `head`, which is a batch's record headers without the batch header.
    #[must_use]
    pub fn new(head: &'a [u8]) -> Self {
        Self { head, offset: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.head.get(self.offset..).filter(|rest| !rest.is_empty())?;
        match decode(rest) {
            Ok((record, bytes)) => {
                self.offset += bytes;
                Some(Ok(record))
            }
            Err(what) => {
                let offset = std::mem::replace(&mut self.offset, self.head.len());
                Some(Err(RecordError { offset, what }))
            }
        }
    }
}

fn decode(rest: &[u8]) -> Result<(Record<'_>, usize), &'static str> {
    const SHORT: &str = "shorter than its kind needs";
    let (&[kind, detail, low, high, a, b, c, d], _) =
        rest.split_first_chunk::<8>().ok_or("shorter than eight bytes")?;
    let bytes = usize::from(u16::from_le_bytes([low, high]));
    if bytes < 16 || !bytes.is_multiple_of(ALIGN_BYTES) {
        return Err("a length that no record has");
    }
    let record = rest.get(..bytes).ok_or("longer than its batch")?;
    let decoded = match kind {
        KIND_PUT | KIND_MOVED | KIND_REPLACED => {
            let user_and_keys = u32_at(record, 44).ok_or(SHORT)?;
            let user_bytes = user_and_keys as usize & 0xffff;
            let expires_at_ms = u64_at(record, 32).ok_or(SHORT)?;
            let put = PutRecord {
                id: message_at(record, 8)?,
                queue: QueueId::new(StoreNumber::LOCAL, u32_at(record, 16).ok_or(SHORT)?),
                priority: detail,
                body_bytes: u32_at(record, 20).ok_or(SHORT)?,
                body_crc: u32::from_le_bytes([a, b, c, d]),
                put_at_ms: u64_at(record, 24).ok_or(SHORT)?,
                expires_at_ms: (expires_at_ms != EXPIRES_NEVER).then_some(expires_at_ms),
                delivery_count: u32_at(record, 40).ok_or(SHORT)?,
                user: match name_at(record, PUT_HEADER_BYTES, user_bytes, USER_BYTES_MAX)? {
                    "" => None,
                    user => Some(user),
                },
                keys: (user_and_keys >> 16) as u16,
            };
            if put.priority > crate::message::PRIORITY_MAX {
                return Err("a priority above nine");
            }
            match kind {
                KIND_PUT => Record::Put(put),
                KIND_MOVED => Record::Moved(put),
                _ => Record::Replaced(put),
            }
        }
        KIND_REMOVED => Record::Removed(message_at(record, 8)?),
        KIND_FAILED => Record::Failed { id: message_at(record, 8)?, delivery_count: u32_at(record, 16).ok_or(SHORT)? },
        KIND_DEFINED => Record::Defined {
            queue: QueueId::new(StoreNumber::LOCAL, u32_at(record, 8).ok_or(SHORT)?),
            name: name_at(record, 16, u32_at(record, 12).ok_or(SHORT)? as usize, QUEUE_NAME_BYTES_MAX)?,
        },
        KIND_DELETED => Record::Deleted(QueueId::new(StoreNumber::LOCAL, u32_at(record, 8).ok_or(SHORT)?)),
        KIND_CHECKPOINT => Record::Checkpoint {
            next_id: u64_at(record, 8).ok_or(SHORT)?,
            next_queue: u32_at(record, 16).ok_or(SHORT)?,
            clean: detail == 1,
        },
        KIND_NOTED => {
            let name = note_name(record)?;
            let value_bytes = u32_at(record, 12).ok_or(SHORT)? as usize;
            if value_bytes > NOTE_VALUE_BYTES_MAX {
                return Err("a value that is too long");
            }
            let value_at = NOTE_HEADER_BYTES + name.len();
            let value = record.get(value_at..value_at + value_bytes).ok_or("a value longer than its record")?;
            Record::Noted { name, value }
        }
        KIND_UNNOTED => Record::Unnoted { name: note_name(record)? },
        KIND_OBJECT => {
            let body_bytes = u32_at(record, 12).ok_or(SHORT)?;
            if body_bytes as usize > OBJECT_BYTES_MAX {
                return Err("a definition that is too long");
            }
            Record::Object { name: object_name(record)?, body_bytes, body_crc: u32::from_le_bytes([a, b, c, d]) }
        }
        KIND_OBJECT_GONE => Record::ObjectGone { name: object_name(record)? },
        KIND_DELAYED => Record::Delayed { id: message_at(record, 8)?, until_ms: u64_at(record, 16).ok_or(SHORT)? },
        KIND_KEYS => {
            let number = u16::try_from(u32_at(record, 8).ok_or(SHORT)?).ok().filter(|number| *number >= KEYS_FIRST);
            let bytes = u32_at(record, 12).ok_or(SHORT)? as usize;
            let names = record.get(16..).and_then(|rest| rest.get(..bytes)).ok_or("names longer than their record")?;
            if bytes > KEY_NAMES_BYTES_MAX || !are_key_names(names) {
                return Err("names of keys that are none");
            }
            Record::Keys { number: number.ok_or("a number that no set of keys has")?, names }
        }
        _ => return Err("a kind that this version does not know"),
    };
    if decoded.head_bytes() != bytes {
        return Err("a length that its kind does not have");
    }
    Ok((decoded, bytes))
}

/// The names of a set of keys as its record has them; `None` for no name at all, an empty one, or too many bytes.
#[must_use]
pub fn encode_key_names(names: &[bytes::Bytes]) -> Option<Box<[u8]>> {
    let mut out = Vec::new();
    for name in names {
        out.extend_from_slice(&u16::try_from(name.len()).ok().filter(|bytes| *bytes > 0)?.to_le_bytes());
        out.extend_from_slice(name);
        if out.len() > KEY_NAMES_BYTES_MAX {
            return None;
        }
    }
    (!out.is_empty()).then(|| out.into())
}

/// The names in a record that defines a set of keys. It ends before what is none.
pub fn key_names(mut names: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (bytes, rest) = names.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*bytes)))?;
        names = rest;
        (!name.is_empty()).then_some(name)
    })
}

fn are_key_names(names: &[u8]) -> bool {
    !names.is_empty() && key_names(names).map(|name| 2 + name.len()).sum::<usize>() == names.len()
}

/// A message's number. One that has a store in it is of no journal: each numbers the messages of its own store.
fn message_at(record: &[u8], offset: usize) -> Result<MessageId, &'static str> {
    let number = u64_at(record, offset).ok_or("shorter than its kind needs")?;
    if number < MESSAGE_NUMBER_MAX { Ok(MessageId(number)) } else { Err("a message number that can't be") }
}

fn note_name(record: &[u8]) -> Result<&str, &'static str> {
    let name_bytes = u32_at(record, 8).ok_or("shorter than its kind needs")? as usize;
    match name_at(record, NOTE_HEADER_BYTES, name_bytes, NOTE_NAME_BYTES_MAX)? {
        "" => Err("a note without a name"),
        name => Ok(name),
    }
}

fn object_name(record: &[u8]) -> Result<&str, &'static str> {
    let name_bytes = u32_at(record, 8).ok_or("shorter than its kind needs")? as usize;
    match name_at(record, NOTE_HEADER_BYTES, name_bytes, OBJECT_NAME_BYTES_MAX)? {
        "" => Err("an object without a name"),
        name => Ok(name),
    }
}

fn name_at(record: &[u8], offset: usize, bytes: usize, bytes_max: usize) -> Result<&str, &'static str> {
    if bytes > bytes_max {
        return Err("a name that is too long");
    }
    let name = record.get(offset..offset + bytes).ok_or("a name longer than its record")?;
    std::str::from_utf8(name).map_err(|_| "a name that is not UTF-8")
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// A body whose checksum is wrong, or that its batch has no bytes for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BodyError {
    /// Whose body it is: a message, or an object with its name.
    pub of: String,
    /// Bytes into the bodies of its batch.
    pub offset: u64,
}

/// Checks all bodies of a batch against their record headers; `wrong` hears of each that does not fit.
///
/// # Errors
/// The first record header that can't be read.
pub fn check_bodies(head: &[u8], bodies: &[u8], wrong: &mut dyn FnMut(BodyError)) -> Result<(), RecordError> {
    let mut offset = 0_usize;
    for record in Records::new(head) {
        let record = record?;
        let Some((bytes, crc)) = record.body() else { continue };
        let bytes = bytes as usize;
        let body = offset.checked_add(bytes).and_then(|end| bodies.get(offset..end));
        if body.is_none_or(|body| crc32c::crc32c(body) != crc) {
            let of = match record {
                Record::Object { name, .. } => format!("object {name}"),
                Record::Put(put) | Record::Moved(put) | Record::Replaced(put) => format!("message {}", put.id.number()),
                _ => continue,
            };
            wrong(BodyError { of, offset: offset as u64 });
        }
        offset = offset.saturating_add(padded(bytes));
    }
    Ok(())
}
