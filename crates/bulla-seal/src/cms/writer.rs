//! DER out: lengths are computed first, so that everything is written once, into one buffer.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
/// `[n]` around or instead of something constructed.
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}
/// `[n] IMPLICIT` instead of something primitive.
pub(crate) const fn context_primitive(number: u8) -> u8 {
    0x80 | number
}

/// Bytes of a whole element whose contents have `len` bytes.
pub(crate) const fn element_len(len: usize) -> usize {
    1 + length_len(len) + len
}

const fn length_len(len: usize) -> usize {
    if len < 0x80 {
        return 1;
    }
    1 + significant_bytes(len)
}

const fn significant_bytes(len: usize) -> usize {
    (usize::BITS as usize - len.leading_zeros() as usize).div_ceil(8)
}

/// A buffer that grows by elements.
#[derive(Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Writer {
        Writer { out: Vec::with_capacity(bytes) }
    }

    /// Tag and length; the caller writes the contents next, exactly `len` bytes.
    pub(crate) fn header(&mut self, tag: u8, len: usize) {
        self.out.push(tag);
        if len < 0x80 {
            self.out.push(len as u8);
        } else {
            let count = significant_bytes(len);
            self.out.push(0x80 | count as u8);
            self.out.extend(len.to_be_bytes().iter().skip(size_of::<usize>() - count));
        }
    }

    pub(crate) fn element(&mut self, tag: u8, contents: &[u8]) {
        self.header(tag, contents.len());
        self.out.extend_from_slice(contents);
    }

    /// Bytes that are elements already.
    pub(crate) fn raw(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    pub(crate) fn small_integer(&mut self, value: u8) {
        self.element(INTEGER, &[value]);
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.out
    }

    pub(crate) fn as_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// One element around encoded parts, for what is made once and kept.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut writer = Writer::with_capacity(element_len(len));
    writer.header(tag, len);
    parts.iter().for_each(|part| writer.raw(part));
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::tlv;

    #[test]
    fn what_is_written_is_as_long_as_predicted_and_reads_back() {
        for size in [0, 1, 127, 128, 255, 256, 65_535, 65_536, 70_000] {
            let contents = vec![7; size];
            let written = element(OCTET_STRING, &[&contents]);
            assert_eq!(written.len(), element_len(size));
            assert_eq!(tlv::only(&written, OCTET_STRING).map(|t| t.value), Some(&*contents));
        }
    }
}
