//! DER in: every deviation has a name, nothing is copied.

use crate::certificate::tlv;
use crate::error::OpenError;

/// Why bytes are not the CMS of this profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl From<Malformed> for OpenError {
    fn from(malformed: Malformed) -> OpenError {
        OpenError::Malformed { what: malformed.0 }
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

/// Whether elements are DER to their innermost parts: definite and shortest lengths, strings in one piece, sets and
/// sequences constructed, shortest integers, nothing cut. What identifiers and strings say is not looked at.
pub(crate) fn is_der(elements: &[u8]) -> bool {
    is_der_at(elements, 0)
}

fn is_der_at(mut rest: &[u8], depth: u8) -> bool {
    while let [first, len, behind @ ..] = rest {
        let (tag, contents);
        // Nearly every element has a tag and a length of one byte each.
        match behind.split_at_checked(usize::from(*len)) {
            Some((short, next)) if *len < 0x80 && *first & TAG_NUMBER != TAG_NUMBER => {
                (tag, contents, rest) = (*first, short, next);
            }
            _ => {
                let Some(found) = tlv::next(&mut rest) else { return false };
                (tag, contents) = (found.tag, found.value);
            }
        }
        let fits = match FORMS[usize::from(tag)] {
            Form::Any => true,
            Form::List => depth < DEPTH_MAX && is_der_at(contents, depth + 1),
            Form::Integer => is_integer(contents),
            Form::Identifier => is_oid(contents),
            Form::Null => contents.is_empty(),
            Form::Truth => matches!(contents, [0x00 | 0xff]),
            Form::Wrong => false,
        };
        if !fits {
            return false;
        }
    }
    rest.is_empty()
}

const CLASS: u8 = 0xc0;
const CONSTRUCTED: u8 = 0x20;
const TAG_NUMBER: u8 = 0x1f;

/// What an element with a certain tag may hold.
#[derive(Clone, Copy)]
enum Form {
    /// Bytes that are not looked at.
    Any,
    /// Elements.
    List,
    Integer,
    Identifier,
    Null,
    Truth,
    /// Nothing: DER has no such element.
    Wrong,
}

/// By tag.
static FORMS: [Form; 256] = {
    let mut forms = [Form::Wrong; 256];
    let mut tag = 0_u8;
    loop {
        forms[tag as usize] = form_of(tag);
        if tag == u8::MAX {
            break forms;
        }
        tag += 1;
    }
};

const fn form_of(tag: u8) -> Form {
    // Of the universal tags these hold elements and are constructed, and all others are not.
    let is_list = matches!(tag & !CONSTRUCTED, 0x08 | 0x0b | 0x10 | 0x11);
    match (tag & CONSTRUCTED != 0, tag & CLASS == 0) {
        (true, false) => Form::List,
        (false, false) => Form::Any,
        (constructed, true) if constructed != is_list => Form::Wrong,
        (true, true) => Form::List,
        (false, true) => match tag {
            0x01 => Form::Truth,
            tlv::INTEGER | 0x0a => Form::Integer,
            tlv::NULL => Form::Null,
            tlv::OID => Form::Identifier,
            _ => Form::Any,
        },
    }
}

/// What was read, if it could be: then every part of `whole` was looked at. Else why not, of which not being DER comes
/// first, whatever the reader stumbled over.
pub(crate) fn read_der<T>(whole: &[u8], not_der: &'static str, read: Result<T, OpenError>) -> Result<T, OpenError> {
    read.map_err(|error| if is_der(whole) { error } else { Malformed(not_der).into() })
}

/// Whether an OBJECT IDENTIFIER's contents end where an arc ends, and no arc is padded.
pub(crate) fn is_oid(contents: &[u8]) -> bool {
    let mut before = 0;
    for byte in contents {
        // An arc begins where the byte before ended one.
        if before < 0x80 && *byte == 0x80 {
            return false;
        }
        before = *byte;
    }
    !contents.is_empty() && before < 0x80
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
