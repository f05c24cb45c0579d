//! CMS (RFC 5652, RFC 5083), the part of it that the profile uses, in strict DER.
//!
//! Reading borrows from the message and refuses everything that has a second form: indefinite or long
//! lengths, strings in pieces, sets out of order, doubled or surplus fields. Writing computes every
//! length first, so a size predictor and the writer are the same code.

pub(crate) mod algorithm;
pub(crate) mod attributes;
pub(crate) mod enveloped;
pub(crate) mod reader;
pub(crate) mod signed;
pub(crate) mod writer;

use reader::Reader;
use writer::{OID, SEQUENCE, context};

use crate::error::OpenError;
use crate::oid;

/// How a signer or recipient is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// The whole `IssuerAndSerialNumber`.
    IssuerAndSerial(&'a [u8]),
    /// A subject key identifier; only foreign CMS uses it.
    Key(&'a [u8]),
}

/// The containers of the profile.
pub(crate) enum Container<'a> {
    /// A signed message.
    Signed(signed::SignedData<'a>),
    /// An envelope, authenticated or not.
    Enveloped(enveloped::Enveloped<'a>),
}

/// Reads a whole message. The payload of an envelope stays closed.
pub(crate) fn read(der: &[u8]) -> Result<Container<'_>, OpenError> {
    let (content_type, content) = content_info(der)?;
    match content_type {
        oid::SIGNED_DATA => signed::SignedData::read(content).map(Container::Signed),
        oid::AUTH_ENVELOPED_DATA => enveloped::Enveloped::read(content, true).map(Container::Enveloped),
        oid::ENVELOPED_DATA => enveloped::Enveloped::read(content, false).map(Container::Enveloped),
        _ => Err(OpenError::NotSealed),
    }
}

/// Reads a message that must be a `SignedData`.
pub(crate) fn read_signed(der: &[u8]) -> Result<signed::SignedData<'_>, OpenError> {
    match content_info(der)? {
        (oid::SIGNED_DATA, content) => signed::SignedData::read(content),
        _ => Err(OpenError::NotSealed),
    }
}

fn content_info(der: &[u8]) -> Result<(&[u8], &[u8]), OpenError> {
    if !looks_sealed(der) {
        return Err(OpenError::NotSealed);
    }
    const WHAT: &str = "a ContentInfo is unreadable, or something follows it";
    let mut fields = Reader::only(der, SEQUENCE, WHAT)?;
    let content_type = fields.value(OID, WHAT)?;
    let content = fields.value(context(0), WHAT)?;
    fields.end(WHAT)?;
    Ok((content_type, content))
}

/// Whether a body claims to be a sealed message: it begins like a CMS `ContentInfo` of a type that
/// the profile uses, be its length well written or not. A few compares; nothing is believed by it.
pub fn looks_sealed(body: &[u8]) -> bool {
    let after_length = match body {
        [SEQUENCE, length, rest @ ..] if *length <= 0x80 => rest,
        [SEQUENCE, length, rest @ ..] => match rest.get(usize::from(length & 0x7f)..) {
            Some(rest) if length & 0x7f <= 8 => rest,
            _ => return false,
        },
        _ => return false,
    };
    let [OID, len, rest @ ..] = after_length else { return false };
    let Some(found) = rest.get(..usize::from(*len)) else { return false };
    [oid::SIGNED_DATA, oid::AUTH_ENVELOPED_DATA, oid::ENVELOPED_DATA].contains(&found)
}
