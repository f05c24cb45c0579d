//! Where a private key is that is not in the ring: what stands in its place.

use std::fmt;
use std::str::FromStr;

use crate::coprocessor::Uri;
use crate::transit::TransitUri;

/// A key that never leaves its place, by the URI that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyUri {
    /// On a token, `pkcs11:` (RFC 7512), without its query: which module is loaded, and with which PIN, is the device's
    /// definition.
    Token(Box<Uri>),
    /// In a transit engine, `transit:`. Where its server is, is the device's definition.
    Transit(TransitUri),
}

impl KeyUri {
    /// Whether a text starts as one of these.
    pub fn looks_like_one(text: &str) -> bool {
        Uri::looks_like_one(text) || TransitUri::looks_like_one(text)
    }
}

impl FromStr for KeyUri {
    /// One lower-case line without any value.
    type Err = String;

    fn from_str(text: &str) -> Result<KeyUri, String> {
        if TransitUri::looks_like_one(text) {
            return text
                .parse()
                .map(KeyUri::Transit)
                .map_err(|error: crate::transit::TransitUriError| error.to_string());
        }
        let uri = text.parse::<Uri>().map_err(|error| error.to_string())?;
        Ok(KeyUri::from(uri))
    }
}

impl From<Uri> for KeyUri {
    fn from(uri: Uri) -> KeyUri {
        KeyUri::Token(Box::new(uri.without_query()))
    }
}

impl From<TransitUri> for KeyUri {
    fn from(uri: TransitUri) -> KeyUri {
        KeyUri::Transit(uri)
    }
}

impl fmt::Display for KeyUri {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyUri::Token(uri) => uri.fmt(out),
            KeyUri::Transit(uri) => uri.fmt(out),
        }
    }
}
