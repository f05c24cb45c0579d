//! Message and correlation ids as JMS has them, and the numbers that a queue's index knows them by.
//!
//! JMS ids are strings, AMQP's may also be a UUID, a number or bytes. The mapping is that of Qpid JMS:
//! `ID:AMQP_UUID:…`, `ID:AMQP_ULONG:…`, `ID:AMQP_BINARY:…` (upper-case hexadecimal); a string is itself, but a message
//! id that does not begin with `ID:` is `ID:AMQP_NO_PREFIX:…`, and one that looks as if it were mapped is
//! `ID:AMQP_STRING:…`.

use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;

use super::fields::{CORRELATION_ID, GROUP_ID, MESSAGE_ID, front_properties};

const ID: &[u8] = b"ID:";
const UUID: &[u8] = b"AMQP_UUID:";
const ULONG: &[u8] = b"AMQP_ULONG:";
const BINARY: &[u8] = b"AMQP_BINARY:";
const STRING: &[u8] = b"AMQP_STRING:";
const NO_PREFIX: &[u8] = b"AMQP_NO_PREFIX:";

/// Which of a message's two ids.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Which {
    Message,
    Correlation,
}

/// Where the bytes of an id go.
pub(super) trait Sink {
    fn add(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn add(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for DefaultHasher {
    fn add(&mut self, bytes: &[u8]) {
        // Byte by byte as it were: how an id is cut must not matter, and this hasher sees no cuts.
        self.write(bytes);
    }
}

/// Gives the JMS form of an encoded id to `out`. False where there is none.
pub(super) fn write(which: Which, encoded: &[u8], out: &mut impl Sink) -> bool {
    match encoded {
        [0xa1, _, text @ ..] | [0xb1, _, _, _, _, text @ ..] => write_text(which, text, out),
        [0x98, uuid @ ..] if uuid.len() == 16 => {
            out.add(ID);
            out.add(UUID);
            for (place, byte) in uuid.iter().enumerate() {
                if matches!(place, 4 | 6 | 8 | 10) {
                    out.add(b"-");
                }
                out.add(&hexadecimal(*byte, b"0123456789abcdef"));
            }
        }
        [0x44] => write_number(0, out),
        [0x53, byte] => write_number(u64::from(*byte), out),
        [0x80, bytes @ ..] => match <[u8; 8]>::try_from(bytes) {
            Ok(bytes) => write_number(u64::from_be_bytes(bytes), out),
            Err(_) => return false,
        },
        [0xa0, _, bytes @ ..] | [0xb0, _, _, _, _, bytes @ ..] => {
            out.add(ID);
            out.add(BINARY);
            for byte in bytes {
                out.add(&hexadecimal(*byte, b"0123456789ABCDEF"));
            }
        }
        _ => return false,
    }
    true
}

/// The JMS form of an id that is a string.
fn write_text(which: Which, text: &[u8], out: &mut impl Sink) {
    match text.strip_prefix(ID) {
        None if which == Which::Message => {
            out.add(ID);
            out.add(NO_PREFIX);
        }
        Some(rest) if [UUID, ULONG, BINARY, STRING, NO_PREFIX].iter().any(|prefix| rest.starts_with(prefix)) => {
            out.add(ID);
            out.add(STRING);
        }
        _ => {}
    }
    out.add(text);
}

fn write_number(mut number: u64, out: &mut impl Sink) {
    out.add(ID);
    out.add(ULONG);
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.add(&digits[at..]);
}

fn hexadecimal(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// The key of an id as a selector writes it: in JMS form, or the AMQP string itself.
pub(super) fn key_of(which: Which, text: &str, is_jms_form: bool) -> u64 {
    let mut hasher = begin(which);
    if is_jms_form {
        hasher.add(text.as_bytes());
    } else {
        write_text(which, text.as_bytes(), &mut hasher);
    }
    end(&hasher)
}

/// The keys of a message's ids, 0 for one that it has not; `None` where the front of the message is not enough. For the
/// index of a queue (`bulla_queue::KeysOf`).
pub fn keys_of(body: &[Bytes]) -> Option<[u64; 2]> {
    let mut keys = [0; 2];
    front_properties(body, |encoded| {
        for (key, (which, field)) in
            keys.iter_mut().zip([(Which::Message, MESSAGE_ID), (Which::Correlation, CORRELATION_ID)])
        {
            let mut hasher = begin(which);
            if encoded.get(field).is_some_and(|encoded| write(which, encoded, &mut hasher)) {
                *key = end(&hasher);
            }
        }
    })?;
    Some(keys)
}

/// The number of a message's group, by its name; none for a message of no group. `None` where the front of the message
/// is not enough.
pub fn group_of(body: &[Bytes]) -> Option<Option<u64>> {
    let mut group = None;
    front_properties(body, |encoded| {
        let name = match encoded.get(GROUP_ID) {
            Some([0xa1, _, name @ ..] | [0xb1, _, _, _, _, name @ ..]) if !name.is_empty() => name,
            _ => return,
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(name);
        group = Some(hasher.finish());
    })?;
    Some(group)
}

fn begin(which: Which) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    hasher.write_u8(which as u8);
    hasher
}

fn end(hasher: &DefaultHasher) -> u64 {
    hasher.finish().max(1)
}
