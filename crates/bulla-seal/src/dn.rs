//! Distinguished names as policies write them.
//!
//! The text form is `CN=orders,O=Demo,C=DE`: attribute types in upper case, separated by commas, in the
//! order in which the certificate holds them (RFC 4514 would turn them round), values escaped as
//! RFC 4514 section 2.4 says. Two names are equal when their text is equal, case included; whether the
//! certificate holds a value as PrintableString or UTF8String makes no difference.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use openssl::x509::{X509Name, X509NameRef};

use crate::certificate::tlv;
use crate::spiffe_id;

/// The longest text form accepted, in bytes.
pub const DN_TEXT_BYTES_MAX: usize = 4096;
/// What [`Dn::of_no_name`] shows.
const NO_NAME: &str = "(not one SPIFFE ID)";
/// The most attributes in one name.
pub const DN_ATTRIBUTES_MAX: usize = 64;

/// The name that a certificate goes by, its subject or, of an X.509-SVID, its SPIFFE ID: cheap to clone, compared and
/// ordered by its text. A text with a SPIFFE ID is never that of a distinguished name, which begins with a type and
/// `=`.
#[derive(Clone)]
pub struct Dn {
    text: Arc<str>,
}

/// Why a text or an encoding is no distinguished name. The writer's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnError {
    /// Nothing between two separators, or nothing at all.
    Empty,
    /// More than [`DN_TEXT_BYTES_MAX`] bytes or [`DN_ATTRIBUTES_MAX`] attributes.
    TooLong,
    /// An attribute without `=`.
    NoEquals {
        /// The attribute as it was written.
        attribute: String,
    },
    /// An attribute type that is neither a known name nor a dotted object identifier.
    UnknownType {
        /// The type as it was written.
        name: String,
    },
    /// A character that RFC 4514 wants escaped, a broken escape, or a broken `#hex` value.
    Value {
        /// The attribute type, in upper case.
        name: String,
    },
    /// It begins as a SPIFFE ID, and is none of a process.
    SpiffeId,
    /// The DER is not a Name.
    Encoding,
}

impl fmt::Display for DnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DnError::Empty => write!(f, "distinguished name with an empty attribute"),
            DnError::TooLong => {
                write!(f, "distinguished name over {DN_TEXT_BYTES_MAX} bytes or {DN_ATTRIBUTES_MAX} attributes")
            }
            DnError::NoEquals { attribute } => {
                write!(f, "attribute {attribute:?} of a distinguished name has no '='")
            }
            DnError::UnknownType { name } => {
                write!(f, "unknown attribute type {name:?} in a distinguished name")
            }
            DnError::Value { name } => {
                write!(f, "value of {name} in a distinguished name is not escaped as RFC 4514 says")
            }
            DnError::SpiffeId => {
                write!(
                    f,
                    "not the SPIFFE ID of a process, as spiffe://example.org/orders, in lower case up to its path"
                )
            }
            DnError::Encoding => write!(f, "distinguished name is not valid DER"),
        }
    }
}

impl std::error::Error for DnError {}

impl Dn {
    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of who may sign: a distinguished name, or the SPIFFE ID of a process.
    ///
    /// # Errors
    /// It is neither.
    pub fn of_signer(text: &str) -> Result<Dn, DnError> {
        match text.trim() {
            id if spiffe_id::is_of_process(id) => Ok(Dn { text: id.into() }),
            id if id.starts_with(spiffe_id::SCHEME) => Err(DnError::SpiffeId),
            name => name.parse(),
        }
    }

    /// The name of a certificate that has a SPIFFE ID among others, or one of no process. No text makes it.
    pub(crate) fn of_no_name() -> Dn {
        Dn { text: NO_NAME.into() }
    }

    /// Whether it is the SPIFFE ID of a process.
    pub fn is_spiffe_id(&self) -> bool {
        self.text.starts_with(spiffe_id::SCHEME)
    }

    /// Whether it is that of a certificate with a SPIFFE ID, whether that ID counts or not.
    pub(crate) fn is_of_svid(&self) -> bool {
        self.is_spiffe_id() || *self.text == *NO_NAME
    }

    /// The trust domain of a SPIFFE ID.
    pub fn trust_domain(&self) -> Option<&str> {
        spiffe_id::trust_domain(&self.text)
    }

    /// The name of a certificate's subject or issuer.
    pub fn from_x509_name(name: &X509NameRef) -> Result<Dn, DnError> {
        Dn::from_der(&name.to_der().map_err(|_| DnError::Encoding)?)
    }

    /// A Name (RFC 5280 section 4.1.2.4) from its DER. An empty sequence gives an empty text.
    pub fn from_der(der: &[u8]) -> Result<Dn, DnError> {
        let mut sets = tlv::only(der, tlv::SEQUENCE).ok_or(DnError::Encoding)?.value;
        let mut rdns = Vec::new();
        let mut count = 0_usize;
        while !sets.is_empty() {
            let mut set = tlv::expect(&mut sets, tlv::SET).ok_or(DnError::Encoding)?.value;
            let mut rdn = Vec::new();
            while !set.is_empty() {
                let mut pair = tlv::expect(&mut set, tlv::SEQUENCE).ok_or(DnError::Encoding)?.value;
                let oid = tlv::expect(&mut pair, tlv::OID).ok_or(DnError::Encoding)?.value;
                let value = tlv::next(&mut pair).ok_or(DnError::Encoding)?;
                if !pair.is_empty() {
                    return Err(DnError::Encoding);
                }
                count += 1;
                if count > DN_ATTRIBUTES_MAX {
                    return Err(DnError::TooLong);
                }
                rdn.push(Attribute::from_der(oid, value)?);
            }
            if rdn.is_empty() {
                return Err(DnError::Encoding);
            }
            rdns.push(rdn);
        }
        Dn::from_rdns(rdns)
    }

    /// The Name's DER, for a certificate that is being made: UTF8String, except where X.520 and
    /// RFC 5280 ask for PrintableString or IA5String and the value allows it.
    pub fn to_der(&self) -> Vec<u8> {
        // The text of a `Dn` has been through `parse` or came from `from_rdns`, whose output parses.
        let rdns = parse(&self.text).unwrap_or_default();
        let sets: Vec<Vec<u8>> = rdns
            .iter()
            .map(|rdn| {
                let mut pairs: Vec<Vec<u8>> = rdn.iter().map(Attribute::to_der).collect();
                pairs.sort(); // DER orders the members of a SET OF by their encoding
                element_of(tlv::SET, &pairs)
            })
            .collect();
        element_of(tlv::SEQUENCE, &sets)
    }

    /// The name as OpenSSL's object.
    ///
    /// # Errors
    /// It is a SPIFFE ID, which is no certificate's subject.
    pub fn to_x509_name(&self) -> Result<X509Name, DnError> {
        if self.is_of_svid() {
            return Err(DnError::SpiffeId);
        }
        X509Name::from_der(&self.to_der()).map_err(|_| DnError::Encoding)
    }

    /// The value of the first common name, unescaped, if there is one: for labels and file names only.
    pub fn common_name(&self) -> Option<String> {
        let rdns = parse(&self.text).ok()?;
        rdns.into_iter().flatten().find_map(|attribute| match attribute {
            Attribute { oid, value: Value::Text(text) } if oid == [0x55, 0x04, 0x03] => Some(text),
            _ => None,
        })
    }

    /// The attributes that have a named type and a text, as `(type, value)`, the type as in the text form and the
    /// value unescaped, in the certificate's order.
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        let attributes = parse(&self.text).unwrap_or_default().into_iter().flatten();
        attributes
            .filter_map(|attribute| match attribute {
                Attribute { oid, value: Value::Text(text) } => known(&oid).map(|(name, _)| (name, text)),
                Attribute { .. } => None,
            })
            .collect()
    }

    fn from_rdns(mut rdns: Vec<Vec<Attribute>>) -> Result<Dn, DnError> {
        let mut text = String::new();
        for rdn in &mut rdns {
            if !text.is_empty() {
                text.push(',');
            }
            // Attributes of one RDN are a set: one order, so that text and encoding agree.
            let mut parts: Vec<String> = rdn.iter().map(Attribute::text).collect();
            parts.sort();
            text.push_str(&parts.join("+"));
        }
        if text.len() > DN_TEXT_BYTES_MAX {
            return Err(DnError::TooLong);
        }
        Ok(Dn { text: text.into() })
    }
}

fn element_of(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    tlv::element(tag, &parts)
}

impl FromStr for Dn {
    type Err = DnError;

    /// Reads the text form. Types may be in lower case or dotted, and spaces may follow a separator:
    /// the result is the one canonical text.
    fn from_str(text: &str) -> Result<Dn, DnError> {
        if text.trim().is_empty() {
            return Err(DnError::Empty);
        }
        Dn::from_rdns(parse(text)?)
    }
}

impl fmt::Display for Dn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Dn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dn({})", self.text)
    }
}

impl PartialEq for Dn {
    fn eq(&self, other: &Dn) -> bool {
        self.text == other.text
    }
}

impl Eq for Dn {}

impl PartialOrd for Dn {
    fn partial_cmp(&self, other: &Dn) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Dn {
    fn cmp(&self, other: &Dn) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Dn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// Names of attribute types, their object identifiers, and the string type a certificate gets.
const TYPES: &[(&str, &[u8], u8)] = &[
    ("CN", &[0x55, 0x04, 0x03], tlv::UTF8_STRING),
    ("O", &[0x55, 0x04, 0x0a], tlv::UTF8_STRING),
    ("OU", &[0x55, 0x04, 0x0b], tlv::UTF8_STRING),
    ("C", &[0x55, 0x04, 0x06], tlv::PRINTABLE_STRING),
    ("L", &[0x55, 0x04, 0x07], tlv::UTF8_STRING),
    ("ST", &[0x55, 0x04, 0x08], tlv::UTF8_STRING),
    ("STREET", &[0x55, 0x04, 0x09], tlv::UTF8_STRING),
    ("SN", &[0x55, 0x04, 0x04], tlv::UTF8_STRING),
    ("SERIALNUMBER", &[0x55, 0x04, 0x05], tlv::PRINTABLE_STRING),
    ("TITLE", &[0x55, 0x04, 0x0c], tlv::UTF8_STRING),
    ("BUSINESSCATEGORY", &[0x55, 0x04, 0x0f], tlv::UTF8_STRING),
    ("POSTALCODE", &[0x55, 0x04, 0x11], tlv::UTF8_STRING),
    ("NAME", &[0x55, 0x04, 0x29], tlv::UTF8_STRING),
    ("GIVENNAME", &[0x55, 0x04, 0x2a], tlv::UTF8_STRING),
    ("INITIALS", &[0x55, 0x04, 0x2b], tlv::UTF8_STRING),
    ("GENERATIONQUALIFIER", &[0x55, 0x04, 0x2c], tlv::UTF8_STRING),
    ("DNQUALIFIER", &[0x55, 0x04, 0x2e], tlv::PRINTABLE_STRING),
    ("PSEUDONYM", &[0x55, 0x04, 0x41], tlv::UTF8_STRING),
    ("ORGANIZATIONIDENTIFIER", &[0x55, 0x04, 0x61], tlv::UTF8_STRING),
    ("EMAILADDRESS", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01], tlv::IA5_STRING),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19], tlv::IA5_STRING),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01], tlv::UTF8_STRING),
];

#[derive(Clone, Debug)]
struct Attribute {
    oid: Vec<u8>,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    /// A whole element that is no string, or whose type has no name here.
    Raw(Vec<u8>),
}

impl Attribute {
    fn from_der(oid: &[u8], value: tlv::Tlv<'_>) -> Result<Attribute, DnError> {
        tlv::oid_text(oid).ok_or(DnError::Encoding)?;
        let value = match string(value.tag, value.value) {
            Some(text) if known(oid).is_some() => Value::Text(text),
            _ => Value::Raw(value.whole.to_vec()),
        };
        Ok(Attribute { oid: oid.to_vec(), value })
    }

    fn to_der(&self) -> Vec<u8> {
        let value = match &self.value {
            Value::Raw(whole) => whole.clone(),
            Value::Text(text) => {
                let wanted = known(&self.oid).map_or(tlv::UTF8_STRING, |(_, tag)| tag);
                let tag = match wanted {
                    tlv::PRINTABLE_STRING if !text.bytes().all(printable) => tlv::UTF8_STRING,
                    tlv::IA5_STRING if !text.is_ascii() => tlv::UTF8_STRING,
                    tag => tag,
                };
                tlv::element(tag, &[text.as_bytes()])
            }
        };
        tlv::element(tlv::SEQUENCE, &[&tlv::element(tlv::OID, &[&self.oid]), &value])
    }

    fn text(&self) -> String {
        let mut out = match known(&self.oid) {
            Some((name, _)) => name.to_owned(),
            // `from_der` and `parse` let in only identifiers that have a dotted form.
            None => tlv::oid_text(&self.oid).unwrap_or_default(),
        };
        out.push('=');
        match &self.value {
            Value::Text(text) => escape(text, &mut out),
            Value::Raw(whole) => {
                out.push('#');
                for byte in whole {
                    out.push_str(&format!("{byte:02x}"));
                }
            }
        }
        out
    }
}

fn known(oid: &[u8]) -> Option<(&'static str, u8)> {
    TYPES.iter().find(|(_, known, _)| *known == oid).map(|(name, _, tag)| (*name, *tag))
}

/// X.680 section 41.4.
fn printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte)
}

fn string(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        tlv::UTF8_STRING => String::from_utf8(value.to_vec()).ok(),
        // NumericString, PrintableString, IA5String, VisibleString
        0x12 | tlv::PRINTABLE_STRING | tlv::IA5_STRING | 0x1a => {
            value.is_ascii().then(|| value.iter().map(|byte| char::from(*byte)).collect())
        }
        // TeletexString, which all programs fill with Latin-1
        0x14 => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        // UniversalString
        0x1c => {
            let chunks = value.chunks_exact(4);
            chunks.remainder().is_empty().then_some(())?;
            chunks
                .map(|four| Some(u32::from_be_bytes(four.try_into().ok()?)))
                .map(|code| char::from_u32(code?))
                .collect()
        }
        // BMPString
        0x1e => {
            let chunks = value.chunks_exact(2);
            chunks.remainder().is_empty().then_some(())?;
            let units: Option<Vec<u16>> = chunks.map(|two| Some(u16::from_be_bytes(two.try_into().ok()?))).collect();
            String::from_utf16(&units?).ok()
        }
        _ => None,
    }
}

fn escape(text: &str, out: &mut String) {
    let last = text.char_indices().next_back().map(|(at, _)| at);
    for (at, c) in text.char_indices() {
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '#' if at == 0 => out.push_str("\\#"),
            ' ' if at == 0 || Some(at) == last => out.push_str("\\ "),
            c if c.is_control() || is_invisible(c) => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("\\{byte:02X}"));
                }
            }
            c => out.push(c),
        }
    }
}

/// Characters that show as nothing or turn the text around them: a name must look like what it is.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text to RDNs, each a list of attributes.
fn parse(text: &str) -> Result<Vec<Vec<Attribute>>, DnError> {
    if text.len() > DN_TEXT_BYTES_MAX {
        return Err(DnError::TooLong);
    }
    let mut rdns = Vec::new();
    if text.is_empty() {
        return Ok(rdns);
    }
    let mut rdn = Vec::new();
    let mut count = 0_usize;
    let mut rest = text;
    loop {
        let (piece, separator, after) = split(rest);
        rdn.push(attribute(piece)?);
        count += 1;
        if count > DN_ATTRIBUTES_MAX {
            return Err(DnError::TooLong);
        }
        if separator != Some('+') {
            rdns.push(std::mem::take(&mut rdn));
        }
        if separator.is_none() {
            return Ok(rdns);
        }
        rest = after;
    }
}

/// Up to the next separator that is not escaped.
fn split(text: &str) -> (&str, Option<char>, &str) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' | '+' => {
                let (piece, rest) = text.split_at(at);
                return (piece, Some(c), rest.get(1..).unwrap_or_default());
            }
            _ => {}
        }
    }
    (text, None, "")
}

fn attribute(piece: &str) -> Result<Attribute, DnError> {
    let piece = piece.trim_start_matches(' ');
    if piece.trim().is_empty() {
        return Err(DnError::Empty);
    }
    let (name, value) = piece.split_once('=').ok_or_else(|| DnError::NoEquals { attribute: piece.to_owned() })?;
    let name = name.trim().to_ascii_uppercase();
    let oid = match TYPES.iter().find(|(known, _, _)| *known == name) {
        Some((_, oid, _)) => oid.to_vec(),
        None => tlv::oid_value(&name).ok_or_else(|| DnError::UnknownType { name: name.clone() })?,
    };
    let value = value.trim_start_matches(' ');
    let bad = || DnError::Value { name: name.clone() };
    if let Some(hex) = value.strip_prefix('#') {
        let whole = base16ct::mixed::decode_vec(hex.trim_end_matches(' ')).map_err(|_| bad())?;
        let mut rest = whole.as_slice();
        let element = tlv::next(&mut rest).ok_or_else(bad)?;
        if !rest.is_empty() {
            return Err(bad());
        }
        return Attribute::from_der(&oid, element);
    }
    let text = unescape(value).ok_or_else(bad)?;
    let value = if known(&oid).is_some() {
        Value::Text(text)
    } else {
        Value::Raw(tlv::element(tlv::UTF8_STRING, &[text.as_bytes()]))
    };
    Ok(Attribute { oid, value })
}

fn unescape(value: &str) -> Option<String> {
    let mut out: Vec<u8> = Vec::with_capacity(value.len());
    let mut keep = 0; // bytes up to here are escaped or no space: they stay
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let escaped = chars.next()?;
                if let Some(high) = escaped.to_digit(16) {
                    let low = chars.next()?.to_digit(16)?;
                    out.push(u8::try_from(high * 16 + low).ok()?);
                } else if " \"#+,;<=>\\".contains(escaped) {
                    out.push(u8::try_from(escaped).ok()?);
                } else {
                    return None;
                }
                keep = out.len();
            }
            '"' | ';' | '<' | '>' | '\0' => return None,
            ' ' => out.push(b' '),
            c => {
                let mut bytes = [0; 4];
                out.extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
                keep = out.len();
            }
        }
    }
    out.truncate(keep);
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, canonical: &str) {
        let dn: Dn = input.parse().unwrap();
        assert_eq!(dn.as_str(), canonical);
        assert_eq!(Dn::from_der(&dn.to_der()).unwrap().as_str(), canonical, "through DER");
        assert_eq!(canonical.parse::<Dn>().unwrap(), dn, "canonical text is a fixed point");
    }

    #[test]
    fn names_keep_their_order_and_get_upper_case_types() {
        check("CN=orders,O=Demo,C=DE", "CN=orders,O=Demo,C=DE");
        check("c=DE, o=Demo , cn = orders", "C=DE,O=Demo,CN=orders");
        check("2.5.4.3=orders", "CN=orders");
        check("EMAILADDRESS=a@b.example,DC=example", "EMAILADDRESS=a@b.example,DC=example");
    }

    #[test]
    fn special_characters_are_escaped_once() {
        check(r"CN=Before\0dAfter,O=Test", r"CN=Before\0DAfter,O=Test");
        check(r"CN=a\,b\+c\;d\<e\>f\\g\22", r#"CN=a\,b\+c\;d\<e\>f\\g\""#);
        check(r"CN=\#1,O=\ x\ ", r"CN=\#1,O=\ x\ ");
        check(r"CN=Lu\C4\8Di\C4\87", "CN=Lučić");
        check("CN=a\u{202e}b", r"CN=a\E2\80\AEb");
        check("CN=", "CN=");
        check("CN=a=b", "CN=a=b");
    }

    #[test]
    fn unknown_types_are_hex() {
        check("1.3.6.1.4.1.1466.0=#04024869", "1.3.6.1.4.1.1466.0=#04024869");
        check("1.2.3.4=hi", "1.2.3.4=#0c026869");
        check("CN=#0c026869", "CN=hi");
    }

    #[test]
    fn many_valued_parts_are_a_set() {
        check("OU=Sales+CN=J. Smith,DC=example", "CN=J. Smith+OU=Sales,DC=example");
    }

    #[test]
    fn comparison_is_exact() {
        let a: Dn = "CN=orders,O=Demo".parse().unwrap();
        for other in ["CN=Orders,O=Demo", "O=Demo,CN=orders", "CN=orders", "CN=orders,O=Demo,C=DE"] {
            assert_ne!(a, other.parse().unwrap(), "{other}");
        }
    }

    #[test]
    fn string_types_do_not_change_the_name() {
        let printable = [0x30, 13, 0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 3, 0x13, 2, b'h', b'i'];
        let bmp = [0x30, 15, 0x31, 13, 0x30, 11, 6, 3, 0x55, 4, 3, 0x1e, 4, 0, b'h', 0, b'i'];
        assert_eq!(Dn::from_der(&printable).unwrap(), "CN=hi".parse().unwrap());
        assert_eq!(Dn::from_der(&bmp).unwrap(), "CN=hi".parse().unwrap());
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for (bad, error) in [
            ("", DnError::Empty),
            ("CN=a,", DnError::Empty),
            ("CN=a,,O=b", DnError::Empty),
            ("CN", DnError::NoEquals { attribute: "CN".into() }),
            ("XX=a", DnError::UnknownType { name: "XX".into() }),
            ("CN=a\\", DnError::Value { name: "CN".into() }),
            ("CN=a\\zz", DnError::Value { name: "CN".into() }),
            ("CN=a;b", DnError::Value { name: "CN".into() }),
            ("CN=#0", DnError::Value { name: "CN".into() }),
            ("CN=#04", DnError::Value { name: "CN".into() }),
            ("CN=\\ff", DnError::Value { name: "CN".into() }),
        ] {
            assert_eq!(bad.parse::<Dn>(), Err(error), "{bad}");
        }
        assert_eq!(format!("CN={}", "a".repeat(5000)).parse::<Dn>(), Err(DnError::TooLong));
        assert_eq!(vec!["CN=a"; 65].join(",").parse::<Dn>(), Err(DnError::TooLong));
        for bad in [&[][..], &[0x30, 1], &[0x30, 2, 0x31, 0], &[0x31, 0]] {
            assert_eq!(Dn::from_der(bad), Err(DnError::Encoding), "{bad:02x?}");
        }
    }
}
