//! Answers, and how they are written (RFC 9112, sections 4 and 6).

use crate::head::Persistence;
use crate::output::Output;
use crate::refusal::Refusal;
use bytes::Bytes;
use std::fmt;

/// Headers that say where a message ends and what becomes of the connection. They are the machine's own.
const OWN_HEADERS: [&str; 4] = ["connection", "content-length", "keep-alive", "transfer-encoding"];

/// The value of a header: without control characters, so that it can't begin another line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderValue(Bytes);

/// A text has a control character or is surrounded by white space: it is not the value of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAHeaderValue;

impl fmt::Display for NotAHeaderValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the value of a header")
    }
}

impl std::error::Error for NotAHeaderValue {}

impl HeaderValue {
    /// A value that is known when this is compiled.
    ///
    /// # Panics
    /// While compiling, where it is evaluated then: the text is no value.
    pub const fn from_static(text: &'static str) -> Self {
        assert!(is_value(text.as_bytes()), "not the value of a header");
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// A value (RFC 9110, section 5.5).
    ///
    /// # Errors
    /// It has a control character, or white space around it.
    pub fn new(text: impl Into<Bytes>) -> Result<Self, NotAHeaderValue> {
        let text = text.into();
        if is_value(&text) { Ok(Self(text)) } else { Err(NotAHeaderValue) }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<u64> for HeaderValue {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

const fn is_value(mut bytes: &[u8]) -> bool {
    if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = bytes {
        return false;
    }
    while let [byte, rest @ ..] = bytes {
        if !matches!(*byte, b'\t' | b' '..=b'~' | 0x80..) {
            return false;
        }
        bytes = rest;
    }
    true
}

/// Header lines that go with each answer of a connection: written once, shared by all.
#[derive(Clone, Debug, Default)]
pub struct HeaderLines(Bytes);

impl HeaderLines {
    /// These headers.
    pub fn new(headers: &[(&'static str, HeaderValue)]) -> Self {
        let mut lines = Vec::new();
        headers.iter().for_each(|(name, value)| write_line(&mut lines, name, value.as_bytes()));
        Self(lines.into())
    }
}

/// The body of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// None.
    #[default]
    Empty,
    /// One piece.
    One(Bytes),
    /// Several pieces, one after the other.
    Several(Vec<Bytes>),
}

impl Body {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(bytes) => bytes.len() as u64,
            Self::Several(pieces) => pieces.iter().map(|bytes| bytes.len() as u64).sum(),
        }
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::One(bytes)
    }
}

impl From<Vec<Bytes>> for Body {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self::Several(pieces)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::One(text.into())
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::One(Bytes::from_static(text.as_bytes()))
    }
}

/// An answer. Its length and what becomes of the connection are added when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status: 200 to 599.
    pub status: u16,
    /// Headers, with names that the program has chosen. `Connection`, `Content-Length`, `Keep-Alive` and
    /// `Transfer-Encoding` are left out: they are the machine's own.
    pub headers: Vec<(&'static str, HeaderValue)>,
    /// The body. The answer to HEAD is given the body that GET would have, for its length.
    pub body: Body,
}

impl Response {
    /// An answer of that status, without headers and body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Empty }
    }

    /// With another header.
    pub fn with(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// With that body.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// What the machine itself answers.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let Refusal { status, why } = refusal;
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        Self::new(status).with("content-type", text).body(format!("{status} {}: {why}\n", reason_phrase(status)))
    }
}

/// What an answer is written for.
pub(crate) struct Asked<'a> {
    /// Whether HEAD was the method.
    pub(crate) is_head: bool,
    pub(crate) persistence: Persistence,
    /// Whether the connection closes behind it.
    pub(crate) closes: bool,
    pub(crate) always: &'a HeaderLines,
}

/// Writes an answer.
pub(crate) fn write(output: &mut Output, response: Response, asked: &Asked<'_>) {
    // A status that is none would be an answer that no client can read.
    let status = if (200..600).contains(&response.status) { response.status } else { 500 };
    // RFC 9110, sections 15.3.5 and 15.4.5: no body; for 304 no length either, which would be that of another answer.
    let has_body = !matches!(status, 204 | 304);
    output.add(|out| {
        write_status(out, status);
        out.extend_from_slice(&asked.always.0);
        for (name, value) in &response.headers {
            if !OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                write_line(out, name, value.as_bytes());
            }
        }
        if has_body {
            out.extend_from_slice(b"content-length: ");
            write_number(out, response.body.len());
            out.extend_from_slice(b"\r\n");
        }
        match (asked.closes, asked.persistence) {
            (true, _) => write_line(out, "connection", b"close"),
            (false, Persistence::KeepIfSaid) => write_line(out, "connection", b"keep-alive"),
            (false, _) => {}
        }
        out.extend_from_slice(b"\r\n");
    });
    if !has_body || asked.is_head {
        return;
    }
    match response.body {
        Body::Empty => {}
        Body::One(bytes) => output.add_shared(bytes),
        Body::Several(pieces) => pieces.into_iter().for_each(|bytes| output.add_shared(bytes)),
    }
}

/// The client may send its body (RFC 9110, section 15.2.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn write_status(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write_number(out, status.into());
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    use std::io::Write;
    // A vector takes everything.
    let _ = write!(out, "{number}");
}

/// The phrase of a status (RFC 9110, section 15; RFC 6585). Empty for one that is not used here.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        303 => "See Other",
        304 => "Not Modified",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_can_not_begin_another_line() {
        for text in ["a\r\nb: c", "a\nb", "a\rb", "a\0", "\u{7f}", " a", "a ", "\ta"] {
            assert_eq!(HeaderValue::new(text), Err(NotAHeaderValue), "{text:?}");
        }
        for text in ["", "a", "a b\tc", "ünïcode", "0"] {
            assert!(HeaderValue::new(text).is_ok(), "{text:?}");
        }
    }
}
