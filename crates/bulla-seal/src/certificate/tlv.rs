//! The little DER that certificates need beside OpenSSL: split an encoding into its elements without
//! re-encoding any of them, and write names and key containers.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// One element: its tag, its contents, and the whole of it as it was encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tlv<'a> {
    pub(crate) tag: u8,
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// Takes the first element off `input`. `None` when there is none, when it is cut short, or when its
/// length is not written the one way DER allows. Tags of more than one byte do not occur in X.509.
pub(crate) fn next<'a>(input: &mut &'a [u8]) -> Option<Tlv<'a>> {
    let tag = *input.first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let first = *input.get(1)?;
    let (header, length) = if first < 0x80 {
        (2_usize, usize::from(first))
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let bytes = input.get(2..count.checked_add(2)?)?;
        let length =
            bytes.iter().try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add(usize::from(*byte)))?;
        if length < 0x80 || bytes.first() == Some(&0) {
            return None;
        }
        (count.checked_add(2)?, length)
    };
    let end = header.checked_add(length)?;
    let whole = input.get(..end)?;
    let value = input.get(header..end)?;
    *input = input.get(end..)?;
    Some(Tlv { tag, value, whole })
}

/// Takes the first element off `input` if it has this tag.
pub(crate) fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<Tlv<'a>> {
    let mut rest = *input;
    let found = next(&mut rest)?;
    if found.tag != tag {
        return None;
    }
    *input = rest;
    Some(found)
}

/// The element that makes up the whole of `input`, which must have this tag.
pub(crate) fn only(mut input: &[u8], tag: u8) -> Option<Tlv<'_>> {
    let found = expect(&mut input, tag)?;
    input.is_empty().then_some(found)
}

/// Writes one element around the given parts.
pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length.saturating_add(6));
    out.push(tag);
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let count = bytes.len() - zeros;
        out.push(0x80 | count as u8);
        out.extend(bytes.iter().skip(zeros));
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// An OID in dotted text from the contents of its element.
pub(crate) fn oid_text(value: &[u8]) -> Option<String> {
    let mut arcs: Vec<u64> = Vec::new();
    let mut arc: u64 = 0;
    let mut open = false;
    for byte in value {
        if !open && *byte == 0x80 {
            return None;
        }
        arc = arc.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        open = byte & 0x80 != 0;
        if !open {
            arcs.push(arc);
            arc = 0;
        }
    }
    if open || arcs.is_empty() {
        return None;
    }
    let first = arcs.remove(0);
    let top = (first / 40).min(2);
    let mut text = format!("{top}.{}", first - top * 40);
    for arc in arcs {
        text.push('.');
        text.push_str(&arc.to_string());
    }
    Some(text)
}

/// The contents of an OID's element from dotted text.
pub(crate) fn oid_value(text: &str) -> Option<Vec<u8>> {
    let arcs = text
        .split('.')
        .map(|arc| {
            let canonical = arc == "0" || !arc.starts_with('0');
            (canonical && arc.bytes().all(|b| b.is_ascii_digit())).then(|| arc.parse::<u64>().ok())?
        })
        .collect::<Option<Vec<u64>>>()?;
    let (top, second, rest) = match arcs.as_slice() {
        [top, second, rest @ ..] => (*top, *second, rest),
        _ => return None,
    };
    if top > 2 || (top < 2 && second > 39) {
        return None;
    }
    let mut out = Vec::new();
    push_arc(&mut out, top.checked_mul(40)?.checked_add(second)?);
    for arc in rest {
        push_arc(&mut out, *arc);
    }
    Some(out)
}

fn push_arc(out: &mut Vec<u8>, arc: u64) {
    let mut shift = 63;
    while shift > 0 && arc >> shift == 0 {
        shift -= 7;
    }
    while shift > 0 {
        out.push(0x80 | ((arc >> shift) & 0x7f) as u8);
        shift -= 7;
    }
    out.push((arc & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_form_only() {
        for bad in [
            &[0x04, 0x81, 0x05, 1, 2, 3, 4, 5][..],
            &[0x04, 0x80, 1, 0, 0],
            &[0x04, 0x82, 0x00, 0x81],
            &[0x04, 0x05, 1],
            &[0x1f, 0x81, 0x00],
            &[0x04],
            &[],
        ] {
            let mut input = bad;
            assert!(next(&mut input).is_none(), "{bad:02x?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for size in [0, 1, 127, 128, 255, 256, 70_000] {
            let value = vec![7_u8; size];
            let written = element(OCTET_STRING, &[&value]);
            let read = only(&written, OCTET_STRING).expect("well formed");
            assert_eq!(read.value, value);
            assert_eq!(read.whole, written);
        }
    }

    #[test]
    fn oids_go_both_ways() {
        for text in ["2.5.4.3", "1.2.840.113549.1.9.1", "2.25.4294967296", "0.9.2342.19200300.100.1.25"] {
            assert_eq!(oid_text(&oid_value(text).unwrap()).as_deref(), Some(text));
        }
        for bad in ["", "1", "3.1", "1.40", "1..2", "1.02", "a.b"] {
            assert!(oid_value(bad).is_none(), "{bad}");
        }
    }
}
