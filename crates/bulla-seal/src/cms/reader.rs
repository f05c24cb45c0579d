//! DER in: every deviation has a name, nothing is copied.

use crate::certificate::tlv;

/// Why bytes are not the CMS of this profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Malformed> for crate::error::OpenError {
    fn from(malformed: Malformed) -> crate::error::OpenError {
        crate::error::OpenError::Malformed { what: malformed.0 }
    }
}

/// A place in an encoding, moving forward element by element.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(contents: &'a [u8]) -> Reader<'a> {
        Reader { rest: contents }
    }

    /// The contents of the one element that is all of `encoded`.
    pub(crate) fn only(encoded: &'a [u8], tag: u8, what: &'static str) -> Result<Reader<'a>, Malformed> {
        tlv::only(encoded, tag).map(|found| Reader { rest: found.value }).ok_or(Malformed(what))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag that comes next.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The contents of the next element, which must have this tag.
    pub(crate) fn value(&mut self, tag: u8, what: &'static str) -> Result<&'a [u8], Malformed> {
        tlv::expect(&mut self.rest, tag).map(|found| found.value).ok_or(Malformed(what))
    }

    /// The whole of the next element, which must have this tag.
    pub(crate) fn whole(&mut self, tag: u8, what: &'static str) -> Result<&'a [u8], Malformed> {
        tlv::expect(&mut self.rest, tag).map(|found| found.whole).ok_or(Malformed(what))
    }

    /// Into the next element.
    pub(crate) fn enter(&mut self, tag: u8, what: &'static str) -> Result<Reader<'a>, Malformed> {
        self.value(tag, what).map(Reader::new)
    }

    /// The contents of the next element if it has this tag. A broken element is an error later on:
    /// it is not taken.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        tlv::expect(&mut self.rest, tag).map(|found| found.value)
    }

    /// An INTEGER of one byte, which is all that versions and lengths need here.
    pub(crate) fn small_integer(&mut self, what: &'static str) -> Result<u8, Malformed> {
        match self.value(0x02, what)? {
            [value] if *value < 0x80 => Ok(*value),
            _ => Err(Malformed(what)),
        }
    }

    /// Nothing may follow.
    pub(crate) fn end(&self, what: &'static str) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed(what)) }
    }
}

/// How deep elements lie in one another in names, attributes and algorithms.
const DEPTH_MAX: u8 = 16;

/// Whether an element is DER to its innermost part: definite and shortest lengths, strings in one piece, sets and
/// sequences constructed, shortest integers, nothing cut. What identifiers and strings say is not looked at.
pub(crate) fn is_der(whole: &[u8]) -> bool {
    fn all(mut contents: &[u8], depth: u8) -> bool {
        while !contents.is_empty() {
            let Some(found) = tlv::next(&mut contents) else { return false };
            if !one(found.tag, found.value, depth) {
                return false;
            }
        }
        true
    }
    fn one(tag: u8, value: &[u8], depth: u8) -> bool {
        const CLASS: u8 = 0xc0;
        const CONSTRUCTED: u8 = 0x20;
        let universal = tag & CLASS == 0;
        let is_list = matches!(tag & !CONSTRUCTED, 0x08 | 0x0b | 0x10 | 0x11);
        match tag & CONSTRUCTED != 0 {
            true => (!universal || is_list) && depth < DEPTH_MAX && all(value, depth + 1),
            false if !universal => true,
            false => match tag {
                0x01 => matches!(value, [0x00 | 0xff]),
                tlv::INTEGER | 0x0a => is_integer(value),
                tlv::NULL => value.is_empty(),
                tlv::OID => is_oid(value),
                _ => !is_list,
            },
        }
    }
    all(whole, 0)
}

/// Whether an OBJECT IDENTIFIER's contents end where an arc ends, and no arc is padded.
fn is_oid(contents: &[u8]) -> bool {
    let padded = contents.first() == Some(&0x80) || contents.windows(2).any(|two| matches!(two, [0x00..=0x7f, 0x80]));
    !padded && contents.last().is_some_and(|last| *last < 0x80)
}

/// Whether an INTEGER's contents are the shortest, as DER asks, and not absurdly long.
pub(crate) fn is_integer(contents: &[u8]) -> bool {
    match contents {
        [] => false,
        [_] => true,
        [0x00, second, ..] => *second >= 0x80,
        [0xff, second, ..] => *second < 0x80,
        _ => true,
    }
}

/// Whether encodings stand in the order of a DER `SET OF` (X.690, 11.6), which compares them as byte
/// strings; equal neighbours are out of order too.
pub(crate) fn strictly_ascending(earlier: &[u8], later: &[u8]) -> bool {
    earlier < later
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_is_der_to_its_innermost_part() {
        // A name of one attribute: CN=a, as UTF8String.
        let name = [0x30, 12, 0x31, 10, 0x30, 8, 0x06, 3, 0x55, 4, 3, 0x0c, 1, b'a'];
        assert!(is_der(&name) && is_der(&[]) && is_der(&[0x80, 1, 0xff]) && is_der(&[0xa0, 2, 0x05, 0]));
        for (what, bad) in [
            ("a long form inside", &[0x30, 4, 0x0c, 0x81, 1, b'a'][..]),
            ("an indefinite length inside", &[0x30, 6, 0x31, 0x80, 0x05, 0, 0, 0]),
            ("a length that is too long", &[0x30, 3, 0x0c, 2, b'a']),
            ("a string in pieces", &[0x30, 5, 0x2c, 3, 0x0c, 1, b'a']),
            ("a sequence that is primitive", &[0x30, 2, 0x10, 0]),
            ("a long integer", &[0x30, 4, 0x02, 2, 0, 1]),
            ("a NULL of something", &[0x30, 3, 0x05, 1, 0]),
            ("an identifier that is cut", &[0x30, 3, 0x06, 1, 0x80]),
            ("a truth of another number", &[0x30, 3, 0x01, 1, 1]),
            ("bytes behind", &[0x05, 0, 0x30]),
        ] {
            assert!(!is_der(bad), "{what}");
        }
        let deep = (0..40).fold(vec![0x05, 0], |inside, _| [&[0x30, inside.len() as u8][..], &inside].concat());
        assert!(!is_der(&deep));
    }
}
