//! HTTP/1.1 of a client (RFC 9110, RFC 9112), in clear or over TLS: one request after another on one connection, each
//! within a time. Whoever asks a server over HTTP asks by this: `TRANSIT`, and enrolment by CMP and ACME.
//!
//! No redirect is followed and no proxy asked: where a server is, who asks has been told by its configuration.

mod address;
mod answer;
mod connection;
mod trust;

pub use address::{Address, BadUrl, Scheme, URL_BYTES_MAX, Url, host_and_port};
pub use answer::{Answer, AnswerReader, BadAnswer, HEAD_BYTES_MAX, Takes};
pub use connection::{Client, NoAnswer};
pub use trust::{CERTIFICATES_BYTES_MAX, believing};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The text of a request: its line, its fields and its body. A buffer of its own length: one that grows would leave a
/// copy of a secret behind.
pub fn request(
    method: &str,
    address: &Address,
    path: &str,
    fields: &[(&str, &[u8])],
    body: Option<&[u8]>,
) -> zeroize::Zeroizing<Vec<u8>> {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nuser-agent: bulla\r\n", address.authority());
    let length = body.map_or(String::new(), |body| format!("content-length: {}\r\n", body.len()));
    let field_bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let body = body.unwrap_or_default();
    let len = head.len() + length.len() + field_bytes + 2 + body.len();
    let mut text = zeroize::Zeroizing::new(Vec::with_capacity(len));
    text.extend_from_slice(head.as_bytes());
    for (name, value) in fields {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(length.as_bytes());
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text
}
