//! Where a request's body ends, and what must be there only once (RFC 9112, sections 3.2 and 6).
//!
//! Whatever another server could read in another way is refused.

use crate::head::{BodyLen, Headers, Version};
use crate::limits::Limits;
use crate::refusal::{self, Refusal};

/// Exactly one Host, which could be one (RFC 9112, section 3.2). HTTP/1.0 may leave it out.
pub(crate) fn check_host(headers: &Headers, version: Version) -> Result<(), Refusal> {
    let mut hosts = headers.all("host");
    match (hosts.next(), hosts.next(), version) {
        (Some(host), None, _) if is_host(host) => Ok(()),
        (Some(_), None, _) => Err(refusal::HOST_VALUE),
        (None, None, Version::Http10) => Ok(()),
        _ => Err(refusal::HOST_COUNT),
    }
}

/// Whether this is made of what a host and a port are made of (RFC 3986, section 3.2.2): neither a user nor a path. Of
/// what is allowed there the comma is left out: a list of hosts is none.
fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value.iter().rposition(|byte| *byte == b':') {
        Some(at) if !value.ends_with(b"]") => value.split_at(at),
        _ => (value, &b""[..]),
    };
    let port_is_good = port.get(1..).unwrap_or_default().iter().all(u8::is_ascii_digit);
    let literal = host.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let host_is_good = match literal {
        Some(address) => !address.is_empty() && address.iter().all(|byte| is_name_byte(*byte) || *byte == b':'),
        None => !host.is_empty() && host.iter().all(|byte| is_name_byte(*byte)),
    };
    host_is_good && port_is_good
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(&byte)
}

/// How long the body is.
pub(crate) fn body_len(headers: &Headers, version: Version, limits: &Limits) -> Result<BodyLen, Refusal> {
    let mut lengths = headers.all("content-length");
    let mut codings = headers.all("transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(BodyLen::None),
        (Some(_), Some(_)) => Err(refusal::LENGTH_AND_CODING),
        (Some(_), None) if lengths.next().is_some() => Err(refusal::LENGTH_TWICE),
        (Some(length), None) => counted(length, limits),
        (None, Some(_)) if version == Version::Http10 => Err(refusal::CODING_IN_OLD_VERSION),
        (None, Some(_)) if codings.next().is_some() => Err(refusal::CODING_TWICE),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyLen::Chunked),
        (None, Some(coding)) if is_another_coding(coding) => Err(refusal::CODING_UNKNOWN),
        (None, Some(_)) => Err(refusal::CODING_VALUE),
    }
}

/// Digits alone, without a sign, a blank, a list or zeros in front.
fn counted(value: &[u8], limits: &Limits) -> Result<BodyLen, Refusal> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if !is_number || (value.len() > 1 && value.starts_with(b"0")) {
        return Err(refusal::LENGTH_VALUE);
    }
    let digit = |number: u64, byte: &u8| number.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    match value.iter().try_fold(0, digit) {
        Some(length) if length <= limits.body_bytes_max => Ok(BodyLen::Counted(length)),
        _ => Err(refusal::BODY_TOO_LARGE),
    }
}

/// Whether these are codings that this side does not know, with or without `chunked` as the last one. Anything else
/// near `chunked` is a disguise.
fn is_another_coding(value: &[u8]) -> bool {
    let entries: Vec<&[u8]> = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let is_token = |entry: &&[u8]| !entry.is_empty() && entry.iter().all(|byte| is_token_byte(*byte));
    let is_chunked = |entry: &&[u8]| entry.eq_ignore_ascii_case(b"chunked");
    let Some((_, before)) = entries.split_last() else { return false };
    entries.iter().all(is_token) && !before.iter().any(is_chunked)
}

/// RFC 9110, section 5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the client waits before it sends the body (RFC 9110, section 10.1.1). HTTP/1.0 can't.
pub(crate) fn expects_continue(headers: &Headers, version: Version) -> Result<bool, Refusal> {
    let mut expectations = headers.all("expect");
    match (expectations.next(), version) {
        (None, _) | (_, Version::Http10) => Ok(false),
        (Some(first), Version::Http11) => {
            let is_known = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
            if is_known(first) && expectations.all(is_known) { Ok(true) } else { Err(refusal::EXPECTATION) }
        }
    }
}
