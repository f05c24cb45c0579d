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
