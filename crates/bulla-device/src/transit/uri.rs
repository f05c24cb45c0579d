//! How a key ring names a key in a transit engine, and how a device names its server.
//!
//! `transit:key=orders;version=2` has the key's name and version. Where the server is, is the device's definition
//! alone: a text that is copied with a ring, or that comes from elsewhere, leads to no address.

use std::fmt;
use std::str::FromStr;

use crate::http::{Address, Scheme, host_and_port};

/// The longest URI that is read, in bytes.
pub const URI_BYTES_MAX: usize = 512;
/// The longest name of a key, in bytes.
pub const KEY_NAME_BYTES_MAX: usize = 128;
/// The longest name of a device, in bytes.
const DEVICE_NAME_BYTES_MAX: usize = 48;
/// The longest path of an engine, and of a namespace, in bytes.
pub const PATH_BYTES_MAX: usize = 256;
/// The scheme and its colon; upper and lower case are the same (RFC 3986, 3.1).
const SCHEME: &str = "transit:";

/// A key in a transit engine: `transit:key=NAME;version=NUMBER`, and `;device=NAME` where it is at that device alone.
///
/// An attribute that is not known is refused: it might be what tells two keys apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TransitUri {
    /// `key`: the key's name in the engine.
    pub key: String,
    /// `version`: which one of it, 1 or more. A key that is rotated gets another version, and another certificate.
    pub version: u32,
    /// `device`: the device that has it, where several could.
    pub device: Option<String>,
}

impl TransitUri {
    /// Whether a text starts as one of these.
    pub fn looks_like_one(text: &str) -> bool {
        text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
    }

    /// Whether the device of that name can have the key.
    pub fn can_be_at(&self, device: &str) -> bool {
        self.device.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(device))
    }
}

/// Whether a name is one that a transit engine takes: letters, digits, `_`, and within them `-` and `.`.
pub fn is_key_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (first, last) = (name.bytes().next(), name.bytes().last());
    name.len() <= KEY_NAME_BYTES_MAX && outer(first) && outer(last) && name.bytes().all(inner)
}

/// Whether a text is the path of an engine or of a namespace: parts of letters, digits, `_`, `-` and `.`, joined by
/// `/`.
pub fn is_path(text: &str) -> bool {
    let part = |part: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        !matches!(part, "" | "." | "..") && part.bytes().all(known)
    };
    text.len() <= PATH_BYTES_MAX && text.split('/').all(part)
}

impl FromStr for TransitUri {
    type Err = TransitUriError;

    fn from_str(text: &str) -> Result<TransitUri, TransitUriError> {
        if text.len() > URI_BYTES_MAX {
            return Err(TransitUriError::TooLong);
        }
        if !TransitUri::looks_like_one(text) {
            return Err(TransitUriError::Scheme);
        }
        let (mut key, mut version, mut device) = (None, None, None);
        for attribute in text.get(SCHEME.len()..).unwrap_or_default().split(';') {
            let (name, value) = attribute.split_once('=').ok_or(TransitUriError::NotAnAttribute)?;
            let bad = |why| TransitUriError::Value { attribute: name.to_owned(), why };
            let is_twice = match name {
                "key" if !is_key_name(value) => return Err(bad("not a name of a key")),
                "key" => key.replace(value.to_owned()).is_some(),
                "version" => version.replace(version_of(value).ok_or_else(|| bad("not a number from 1"))?).is_some(),
                "device" if !is_device_name(value) => return Err(bad("not a name of a device")),
                "device" => device.replace(value.to_owned()).is_some(),
                _ => return Err(TransitUriError::Unknown { attribute: name.to_owned() }),
            };
            if is_twice {
                return Err(TransitUriError::Twice { attribute: name.to_owned() });
            }
        }
        let missing = |attribute| TransitUriError::Missing { attribute };
        Ok(TransitUri {
            key: key.ok_or_else(|| missing("key"))?,
            version: version.ok_or_else(|| missing("version"))?,
            device,
        })
    }
}

fn version_of(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

/// As MQSC's names of objects are.
fn is_device_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'%');
    !text.is_empty() && text.len() <= DEVICE_NAME_BYTES_MAX && text.bytes().all(known)
}

impl fmt::Display for TransitUri {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}key={};version={}", self.key, self.version)?;
        self.device.as_ref().map_or(Ok(()), |device| write!(out, ";device={device}"))
    }
}

/// Why a text is no URI of a key in a transit engine: the turn of who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransitUriError {
    /// It does not begin with `transit:`.
    Scheme,
    /// Longer than [`URI_BYTES_MAX`].
    TooLong,
    /// Something between semicolons is not `name=value`.
    NotAnAttribute,
    /// An attribute that is not known.
    Unknown {
        /// Its name.
        attribute: String,
    },
    /// An attribute that is there two times.
    Twice {
        /// Its name.
        attribute: String,
    },
    /// An attribute that must be there.
    Missing {
        /// Its name.
        attribute: &'static str,
    },
    /// A value that can't be read.
    Value {
        /// The attribute's name.
        attribute: String,
        /// What is wrong.
        why: &'static str,
    },
}

impl std::error::Error for TransitUriError {}

impl fmt::Display for TransitUriError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransitUriError::Scheme => out.write_str("a transit URI begins with transit:"),
            TransitUriError::TooLong => write!(out, "a transit URI has at most {URI_BYTES_MAX} bytes"),
            TransitUriError::NotAnAttribute => out.write_str("transit URI with a part that is not name=value"),
            TransitUriError::Unknown { attribute } => {
                write!(out, "transit URI with the unknown attribute {attribute:?}: it has key, version and device")
            }
            TransitUriError::Twice { attribute } => write!(out, "transit URI with two values for {attribute}"),
            TransitUriError::Missing { attribute } => write!(out, "transit URI without {attribute}"),
            TransitUriError::Value { attribute, why } => {
                write!(out, "transit URI with a bad value for {attribute:?}: {why}")
            }
        }
    }
}

/// `https://HOST` or `https://HOST:PORT`, nothing else.
impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let https = AddressError { why: "it does not begin with https://" };
        let rest = Scheme::Https.rest(text).ok_or(https)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(AddressError { why: "it has a user in it" });
        }
        if rest.contains(['/', '?', '#']) {
            return Err(AddressError { why: "it has more than host and port: MOUNT says where the engine is" });
        }
        host_and_port(Scheme::Https, rest).map_err(|why| AddressError { why })
    }
}

/// Why a text is no address of a server: the turn of who wrote it. Never shows the text, which may have a password in
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError {
    /// What is wrong.
    pub why: &'static str,
}

impl std::error::Error for AddressError {}

impl fmt::Display for AddressError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.why)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, shown: &str) {
        let got = match text.parse::<TransitUri>() {
            Ok(uri) => uri.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, shown, "{text}");
    }

    #[test]
    fn a_key_is_named_by_name_and_version_and_by_no_address() {
        check("transit:key=orders;version=2", "transit:key=orders;version=2");
        check("TRANSIT:version=7;device=VAULT;key=a-b.c_d", "transit:key=a-b.c_d;version=7;device=VAULT");
        check("pkcs11:token=a", "a transit URI begins with transit:");
        check("transit:", "transit URI with a part that is not name=value");
        check("transit:key=orders", "transit URI without version");
        check("transit:version=1", "transit URI without key");
        check("transit:key=a;key=b;version=1", "transit URI with two values for key");
        check(
            "transit:key=a;version=1;address=https",
            "transit URI with the unknown attribute \"address\": it has key, version and device",
        );
        for name in ["", "..", "a/b", "-a", "a-", "a%2Fb", "a b", "é", &"a".repeat(129)] {
            let text = format!("transit:key={name};version=1");
            check(&text, "transit URI with a bad value for \"key\": not a name of a key");
        }
        for version in ["0", "01", "-1", "+1", "4294967296", "x", ""] {
            let text = format!("transit:key=a;version={version}");
            check(&text, "transit URI with a bad value for \"version\": not a number from 1");
        }
        check(
            "transit:key=a;version=1;device=a b",
            "transit URI with a bad value for \"device\": not a name of a device",
        );
        check(&format!("transit:key={}", "a".repeat(512)), "a transit URI has at most 512 bytes");
    }

    #[test]
    fn a_key_of_a_named_device_is_at_no_other() {
        let uri = |text: &str| text.parse::<TransitUri>().expect("a URI");
        assert!(uri("transit:key=a;version=1").can_be_at("ANY"));
        let named = uri("transit:key=a;version=1;device=VAULT");
        assert!(named.can_be_at("VAULT") && named.can_be_at("vault") && !named.can_be_at("VAULT2"));
    }

    #[test]
    fn paths_lead_nowhere_but_down() {
        for path in ["transit", "team/a/transit", "a.b_c-d"] {
            assert!(is_path(path), "{path}");
        }
        for path in ["", "/transit", "transit/", "a//b", "../sys", "a/./b", "a b", "a?b", "a%2e", "a\r\nb"] {
            assert!(!is_path(path), "{path:?}");
        }
    }

    #[test]
    fn an_address_is_https_with_host_and_port_and_nothing_else() {
        let read = |text: &str| text.parse::<Address>();
        let shown = |text: &str| read(text).expect("an address").to_string();
        assert_eq!(shown("https://vault.example:8200"), "https://vault.example:8200");
        assert_eq!(shown("HTTPS://Vault.Example/"), "https://vault.example");
        assert_eq!(shown("https://[::1]:8200"), "https://[::1]:8200");
        assert_eq!(
            read("https://[::1]").expect("an address"),
            Address { scheme: Scheme::Https, host: "::1".to_owned(), port: 443 }
        );
        for (text, why) in [
            ("http://vault.example:8200", "does not begin with https://"),
            ("vault.example:8200", "does not begin with https://"),
            ("https://user:s3cr3t@vault.example", "has a user in it"),
            ("https://vault.example/v1/transit", "more than host and port"),
            ("https://vault.example?a=b", "more than host and port"),
            ("https://", "no host that can be read"),
            ("https://a b", "no host that can be read"),
            ("https://[::1", "no host that can be read"),
            ("https://[zz]", "no host that can be read"),
            ("https://vault.example:", "its port is no number"),
            ("https://vault.example:0", "its port is no number"),
            ("https://vault.example:65536", "its port is no number"),
            ("https://vault.example:1:2", "its port is no number"),
            ("https://[::1]8200", "its port is no number"),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.to_string().contains(why) && !format!("{error} {error:?}").contains("s3cr3t"),
                "{text}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "(transit:|https://)?[ -~é]{0,80}") {
            if let Ok(uri) = text.parse::<TransitUri>() {
                prop_assert_eq!(uri.to_string().parse::<TransitUri>().expect("what was shown"), uri);
            }
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse::<Address>().expect("what was shown"), address);
            }
        }
    }
}
