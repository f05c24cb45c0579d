//! PKCS#11 URIs (RFC 7512): how a key ring names a key on a token, and a device its token.

use std::fmt::{self, Write};
use std::str::FromStr;

/// The longest URI that is read, in bytes.
pub const URI_BYTES_MAX: usize = 2048;
/// The scheme and its colon; upper and lower case are the same (RFC 3986, 3.1).
const SCHEME: &str = "pkcs11:";

/// A PKCS#11 URI. An attribute that is there must fit; one that is not is no condition.
///
/// Attributes that this program does not know are refused rather than ignored: one of them might be what
/// tells two keys apart (RFC 7512, 2.3). `pin-value` is refused too: a PIN has no place in a text that is copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Uri {
    /// `token`: the token's label.
    pub token: Option<String>,
    /// `manufacturer`: who made the token.
    pub manufacturer: Option<String>,
    /// `serial`: the token's serial number.
    pub serial: Option<String>,
    /// `model`: the token's model.
    pub model: Option<String>,
    /// `slot-id`: the slot's number.
    pub slot_id: Option<u64>,
    /// `object`: the label of the object, `CKA_LABEL`.
    pub object: Option<String>,
    /// `id`: `CKA_ID`, any bytes.
    pub id: Option<Vec<u8>>,
    /// `type`: the object's class.
    pub class: Option<ObjectClass>,
    /// `module-path`: read and shown, never loaded; which module is loaded is the device's definition.
    pub module_path: Option<String>,
    /// `pin-source`: `file:PATH` or a path.
    pub pin_source: Option<String>,
}

/// The classes of objects that a URI can ask for (RFC 7512, 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectClass {
    /// `cert`.
    Certificate,
    /// `data`.
    Data,
    /// `private`.
    Private,
    /// `public`.
    Public,
    /// `secret-key`.
    SecretKey,
}

impl ObjectClass {
    const ALL: [ObjectClass; 5] = [
        ObjectClass::Certificate,
        ObjectClass::Data,
        ObjectClass::Private,
        ObjectClass::Public,
        ObjectClass::SecretKey,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            ObjectClass::Certificate => "cert",
            ObjectClass::Data => "data",
            ObjectClass::Private => "private",
            ObjectClass::Public => "public",
            ObjectClass::SecretKey => "secret-key",
        }
    }
}

/// What a token says of itself (`CK_TOKEN_INFO`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenIdentity {
    /// Its label.
    pub token: String,
    /// Who made it.
    pub manufacturer: String,
    /// Its serial number.
    pub serial: String,
    /// Its model.
    pub model: String,
}

impl Uri {
    /// Whether the URI starts as one of these.
    pub fn looks_like_one(text: &str) -> bool {
        text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
    }

    /// Whether both can mean one token: no attribute of it is in both with different values.
    pub fn can_be_the_token_of(&self, other: &Uri) -> bool {
        fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        agree(&self.token, &other.token)
            && agree(&self.manufacturer, &other.manufacturer)
            && agree(&self.serial, &other.serial)
            && agree(&self.model, &other.model)
            && agree(&self.slot_id, &other.slot_id)
    }

    /// Whether this token, in this slot, is the one that is meant, or one of those.
    pub fn fits(&self, identity: &TokenIdentity, slot: Option<u64>) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        fits(&self.token, &identity.token)
            && fits(&self.manufacturer, &identity.manufacturer)
            && fits(&self.serial, &identity.serial)
            && fits(&self.model, &identity.model)
            && (self.slot_id.is_none() || slot.is_none() || self.slot_id == slot)
    }

    /// Without the query: what may be kept with a key.
    #[must_use]
    pub fn without_query(&self) -> Uri {
        Uri { module_path: None, pin_source: None, ..self.clone() }
    }

    fn set(&mut self, name: &str, value: Vec<u8>, in_query: bool) -> Result<(), UriError> {
        let text = |value: Vec<u8>| {
            String::from_utf8(value).map_err(|_| UriError::Value { attribute: name.to_owned(), why: "not UTF-8" })
        };
        let twice = || UriError::Twice { attribute: name.to_owned() };
        let slot = match (in_query, name) {
            (false, "token") => &mut self.token,
            (false, "manufacturer") => &mut self.manufacturer,
            (false, "serial") => &mut self.serial,
            (false, "model") => &mut self.model,
            (false, "object") => &mut self.object,
            (true, "module-path") => &mut self.module_path,
            (true, "pin-source") => &mut self.pin_source,
            (true, "pin-value") => return Err(UriError::PinValue),
            (false, "id") => {
                return if self.id.replace(value).is_some() { Err(twice()) } else { Ok(()) };
            }
            (false, "slot-id") => {
                let bad = || UriError::Value { attribute: name.to_owned(), why: "not a decimal number" };
                let digits = text(value)?;
                if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(bad());
                }
                let number = digits.parse().map_err(|_| bad())?;
                return if self.slot_id.replace(number).is_some() { Err(twice()) } else { Ok(()) };
            }
            (false, "type") => {
                let word = text(value)?;
                let class = ObjectClass::ALL.into_iter().find(|class| class.as_str() == word);
                let class = class.ok_or(UriError::Value {
                    attribute: name.to_owned(),
                    why: "not one of cert, data, private, public and secret-key",
                })?;
                return if self.class.replace(class).is_some() { Err(twice()) } else { Ok(()) };
            }
            _ => return Err(UriError::Unknown { attribute: name.to_owned() }),
        };
        if slot.replace(text(value)?).is_some() { Err(twice()) } else { Ok(()) }
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Uri, UriError> {
        if text.len() > URI_BYTES_MAX {
            return Err(UriError::TooLong);
        }
        if !Uri::looks_like_one(text) {
            return Err(UriError::Scheme);
        }
        let rest = text.get(SCHEME.len()..).unwrap_or_default();
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let mut uri = Uri::default();
        let path = path.split(';').filter(|_| !path.is_empty()).map(|attribute| (attribute, false));
        let query = query.into_iter().flat_map(|query| query.split('&')).map(|attribute| (attribute, true));
        for (attribute, in_query) in path.chain(query) {
            let (name, value) = attribute.split_once('=').ok_or(UriError::NotAnAttribute)?;
            // Before the value is looked at: the message of a bad one must not be made of a PIN.
            if name == "pin-value" {
                return Err(UriError::PinValue);
            }
            let value = decode(name, value, in_query)?;
            uri.set(name, value, in_query)?;
        }
        Ok(uri)
    }
}

/// Whether a byte may stand for itself (RFC 7512, 2.3: `pk11-pchar` and what path and query add).
fn stands_for_itself(byte: u8, in_query: bool) -> bool {
    match byte {
        b'-' | b'.' | b'_' | b'~' => true,
        b':' | b'[' | b']' | b'@' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b'=' => true,
        b'&' => !in_query,
        b'/' | b'?' | b'|' => in_query,
        byte => byte.is_ascii_alphanumeric(),
    }
}

fn decode(name: &str, text: &str, in_query: bool) -> Result<Vec<u8>, UriError> {
    let bad = |why| UriError::Value { attribute: name.to_owned(), why };
    let mut value = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = bytes.next().and_then(hex).zip(bytes.next().and_then(hex));
            let (high, low) = digits.ok_or(bad("% without two hexadecimal digits"))?;
            value.push(high << 4 | low);
        } else if stands_for_itself(byte, in_query) {
            value.push(byte);
        } else {
            return Err(bad("a character that must be written as % and two digits"));
        }
    }
    Ok(value)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

impl fmt::Display for Uri {
    /// The order of RFC 7512's examples; everything but letters, digits and `-._~` is percent-encoded, and the
    /// whole of `id` (RFC 7512, 2.3).
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(SCHEME)?;
        let mut separator = "";
        let path = [
            ("token", &self.token),
            ("manufacturer", &self.manufacturer),
            ("serial", &self.serial),
            ("model", &self.model),
        ];
        for (name, value) in path {
            if let Some(value) = value {
                attribute(out, &mut separator, ";", name, value)?;
            }
        }
        if let Some(slot) = self.slot_id {
            attribute(out, &mut separator, ";", "slot-id", &slot.to_string())?;
        }
        if let Some(id) = &self.id {
            write!(out, "{separator}id=")?;
            separator = ";";
            id.iter().try_for_each(|byte| write!(out, "%{byte:02X}"))?;
        }
        if let Some(object) = &self.object {
            attribute(out, &mut separator, ";", "object", object)?;
        }
        if let Some(class) = self.class {
            attribute(out, &mut separator, ";", "type", class.as_str())?;
        }
        let mut separator = "?";
        if let Some(source) = &self.pin_source {
            attribute(out, &mut separator, "&", "pin-source", source)?;
        }
        if let Some(path) = &self.module_path {
            attribute(out, &mut separator, "&", "module-path", path)?;
        }
        Ok(())
    }
}

fn attribute(
    out: &mut fmt::Formatter<'_>,
    separator: &mut &'static str,
    next: &'static str,
    name: &str,
    value: &str,
) -> fmt::Result {
    write!(out, "{separator}{name}=")?;
    *separator = next;
    value.bytes().try_for_each(|byte| match byte {
        b'-' | b'.' | b'_' | b'~' => out.write_char(char::from(byte)),
        byte if byte.is_ascii_alphanumeric() => out.write_char(char::from(byte)),
        byte => write!(out, "%{byte:02X}"),
    })
}

/// Why a text is no PKCS#11 URI of ours: the turn of who wrote it. Never shows a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriError {
    /// It does not begin with `pkcs11:`.
    Scheme,
    /// Longer than [`URI_BYTES_MAX`].
    TooLong,
    /// Something between separators is not `name=value`.
    NotAnAttribute,
    /// An attribute that is not known, or not at this place.
    Unknown {
        /// Its name.
        attribute: String,
    },
    /// An attribute that is there two times.
    Twice {
        /// Its name.
        attribute: String,
    },
    /// A value that can't be read.
    Value {
        /// The attribute's name.
        attribute: String,
        /// What is wrong.
        why: &'static str,
    },
    /// `pin-value`: the PIN belongs into a file of mode 0600, which `pin-source` or the device's definition names.
    PinValue,
}

impl std::error::Error for UriError {}

impl fmt::Display for UriError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriError::Scheme => out.write_str("a PKCS#11 URI begins with pkcs11:"),
            UriError::TooLong => write!(out, "a PKCS#11 URI has at most {URI_BYTES_MAX} bytes"),
            UriError::NotAnAttribute => out.write_str("PKCS#11 URI with a part that is not name=value"),
            UriError::Unknown { attribute } => write!(out, "PKCS#11 URI with the unknown attribute {attribute:?}"),
            UriError::Twice { attribute } => write!(out, "PKCS#11 URI with two values for {attribute}"),
            UriError::Value { attribute, why } => write!(out, "PKCS#11 URI with a bad value for {attribute:?}: {why}"),
            UriError::PinValue => {
                out.write_str("PKCS#11 URI with pin-value: a PIN is not written into a URI, name a file for it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, shown: &str) {
        let got = match text.parse::<Uri>() {
            Ok(uri) => uri.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, shown, "{text}");
    }

    #[test]
    fn examples_of_the_standard_are_read() {
        check("pkcs11:", "pkcs11:");
        check("PKCS11:object=my-pubkey;type=public", "pkcs11:object=my-pubkey;type=public");
        check(
            "pkcs11:object=my-key;type=private?pin-source=file:/etc/token",
            "pkcs11:object=my-key;type=private?pin-source=file%3A%2Fetc%2Ftoken",
        );
        check(
            "pkcs11:token=The%20Software%20PKCS%2311%20Softtoken;manufacturer=Snake%20Oil,%20Inc.;model=1.0;\
             object=my-certificate;type=cert;id=%69%95%3E%5C%F4%BD%EC%91",
            "pkcs11:token=The%20Software%20PKCS%2311%20Softtoken;manufacturer=Snake%20Oil%2C%20Inc.;model=1.0;\
             id=%69%95%3E%5C%F4%BD%EC%91;object=my-certificate;type=cert",
        );
        check("pkcs11:slot-id=327;id=~a", "pkcs11:slot-id=327;id=%7E%61");
        check("pkcs11:token=", "pkcs11:token=");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        check("pkcs12:token=a", "a PKCS#11 URI begins with pkcs11:");
        check("pkcs11:token", "PKCS#11 URI with a part that is not name=value");
        check("pkcs11:token=a;", "PKCS#11 URI with a part that is not name=value");
        check("pkcs11:token=a;token=a", "PKCS#11 URI with two values for token");
        check("pkcs11:id=a;id=b", "PKCS#11 URI with two values for id");
        check("pkcs11:colour=red", "PKCS#11 URI with the unknown attribute \"colour\"");
        check("pkcs11:?token=a", "PKCS#11 URI with the unknown attribute \"token\"");
        check("pkcs11:pin-source=a", "PKCS#11 URI with the unknown attribute \"pin-source\"");
        check("pkcs11:token=%4", "PKCS#11 URI with a bad value for \"token\": % without two hexadecimal digits");
        check("pkcs11:token=%FF", "PKCS#11 URI with a bad value for \"token\": not UTF-8");
        check(
            "pkcs11:token=a b",
            "PKCS#11 URI with a bad value for \"token\": a character that must be written as % and two digits",
        );
        check("pkcs11:slot-id=+1", "PKCS#11 URI with a bad value for \"slot-id\": not a decimal number");
        check(
            "pkcs11:type=key",
            "PKCS#11 URI with a bad value for \"type\": not one of cert, data, private, public and secret-key",
        );
        check(&format!("pkcs11:token={}", "a".repeat(2048)), "a PKCS#11 URI has at most 2048 bytes");
    }

    #[test]
    fn a_pin_is_refused_and_never_shown() {
        for text in ["pkcs11:token=a?pin-value=s3cr3t", "pkcs11:pin-value=s3cr3t", "pkcs11:?pin-value=s3cr3t%"] {
            let error = text.parse::<Uri>().expect_err("a PIN has no place here");
            assert_eq!(error, UriError::PinValue);
            assert!(!format!("{error} {error:?}").contains("s3cr3t"));
        }
    }

    #[test]
    fn a_key_is_on_the_token_that_no_attribute_contradicts() {
        let uri = |text: &str| text.parse::<Uri>().expect("a URI");
        let device = uri("pkcs11:token=hsm;model=x");
        for (key, same) in [
            ("pkcs11:object=k", true),
            ("pkcs11:token=hsm;object=k", true),
            ("pkcs11:token=hsm;serial=7;object=k", true),
            ("pkcs11:token=other;object=k", false),
            ("pkcs11:token=hsm;model=y", false),
        ] {
            assert_eq!(device.can_be_the_token_of(&uri(key)), same, "{key}");
        }
        let identity = TokenIdentity { token: "hsm".to_owned(), model: "x".to_owned(), ..TokenIdentity::default() };
        assert!(device.fits(&identity, Some(4)) && !uri("pkcs11:slot-id=5").fits(&identity, Some(4)));
        assert!(!uri("pkcs11:serial=7").fits(&identity, None));
    }

    proptest! {
        #[test]
        fn any_uri_is_read_back_as_it_was_shown(
            token in proptest::option::of(any::<String>()),
            object in proptest::option::of("\\PC{0,40}"),
            id in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
            slot_id in any::<Option<u64>>(),
            pin_source in proptest::option::of("[ -~]{0,40}"),
        ) {
            let uri = Uri { token, object, id, slot_id, pin_source, ..Uri::default() };
            let shown = uri.to_string();
            prop_assume!(shown.len() <= URI_BYTES_MAX);
            prop_assert_eq!(shown.parse::<Uri>().expect("what was shown"), uri);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(pkcs11:)?[ -~é]{0,80}") {
            if let Ok(uri) = text.parse::<Uri>() {
                prop_assert_eq!(uri.to_string().parse::<Uri>().expect("what was shown"), uri);
            }
        }
    }
}
