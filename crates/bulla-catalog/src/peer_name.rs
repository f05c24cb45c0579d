//! SSLPEER: a pattern for the subject of the partner's certificate.
//!
//! `CN=QM2,OU=Payments,OU=*,O=Example*`: attributes separated by commas or semicolons, in any order. Each must be in
//! the certificate; what the pattern does not mention does not matter. A `*` at the beginning or the end of a value
//! stands for any characters, none included; `\` takes the meaning from the character behind it, and quotation marks
//! from the separators between them. Values are compared with case. Where a type stands several times, as OU does, the
//! first in the pattern is compared with the first in the certificate, which holds the highest unit first, the second
//! with the second, and so on.

use bulla_seal::dn::{DN_ATTRIBUTES_MAX, Dn};
use std::fmt;

/// Longest pattern in bytes, as MQ has it.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// A pattern that was understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerPattern {
    wanted: Vec<(&'static str, Value)>,
}

/// Why a text is no pattern. The turn of the author of SSLPEER.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PatternError {
    /// Nothing between two separators, or nothing at all.
    Empty,
    /// More than [`PATTERN_BYTES_MAX`] bytes or [`DN_ATTRIBUTES_MAX`] attributes.
    TooLong,
    /// An attribute without `=`.
    NoEquals {
        /// The attribute as it was written.
        attribute: String,
    },
    /// An attribute type that certificates are not compared by.
    UnknownType {
        /// The type as it was written.
        name: String,
    },
    /// A value that is empty, has a quotation mark without its partner, or ends in `\`.
    Value {
        /// The attribute type.
        name: &'static str,
    },
    /// A `*` inside a value; `\*` is the character.
    Wildcard {
        /// The attribute type.
        name: &'static str,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("pattern with an empty attribute"),
            Self::TooLong => {
                write!(f, "pattern over {PATTERN_BYTES_MAX} bytes or {DN_ATTRIBUTES_MAX} attributes")
            }
            Self::NoEquals { attribute } => write!(f, "attribute {attribute:?} of a pattern has no '='"),
            Self::UnknownType { name } => write!(f, "unknown attribute type {name:?} in a pattern"),
            Self::Value { name } => write!(f, "value of {name} in a pattern is empty or not closed"),
            Self::Wildcard { name } => {
                write!(f, "'*' inside the value of {name}: it stands at the beginning or the end")
            }
        }
    }
}

impl std::error::Error for PatternError {}

/// MQ's words for attribute types, and those of [`Dn`].
const TYPES: &[(&str, &str)] = &[
    ("CN", "CN"),
    ("T", "TITLE"),
    ("TITLE", "TITLE"),
    ("OU", "OU"),
    ("DC", "DC"),
    ("O", "O"),
    ("STREET", "STREET"),
    ("L", "L"),
    ("ST", "ST"),
    ("SP", "ST"),
    ("S", "ST"),
    ("PC", "POSTALCODE"),
    ("C", "C"),
    ("UID", "UID"),
    ("USERID", "UID"),
    ("E", "EMAILADDRESS"),
    ("MAIL", "EMAILADDRESS"),
    ("EMAILADDRESS", "EMAILADDRESS"),
    ("SERIALNUMBER", "SERIALNUMBER"),
    ("DNQ", "DNQUALIFIER"),
];

/// Attribute types in the order in which patterns are compared, the most telling first.
const PARTICULARITY: [&str; 14] = [
    "SERIALNUMBER",
    "EMAILADDRESS",
    "UID",
    "CN",
    "TITLE",
    "OU",
    "DC",
    "O",
    "STREET",
    "L",
    "ST",
    "POSTALCODE",
    "C",
    "DNQUALIFIER",
];

/// A value of the pattern: what must be there, and whether anything may stand around it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Value {
    text: String,
    any_before: bool,
    any_after: bool,
}

impl Value {
    fn matches(&self, value: &str) -> bool {
        match (self.any_before, self.any_after) {
            (false, false) => value == self.text,
            (false, true) => value.starts_with(&self.text),
            (true, false) => value.ends_with(&self.text),
            (true, true) => value.contains(&self.text),
        }
    }
}

impl PeerPattern {
    /// Understands a pattern.
    ///
    /// # Errors
    /// [`PatternError`]; nothing matches a pattern that is not understood.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let mut wanted = Vec::new();
        let mut rest = Some(text);
        while let Some(text) = rest {
            let (attribute, after) = split(text);
            wanted.push(parse_attribute(attribute.trim())?);
            if wanted.len() > DN_ATTRIBUTES_MAX {
                return Err(PatternError::TooLong);
            }
            rest = after;
        }
        Ok(Self { wanted })
    }

    /// How much the pattern says, the more the lesser: of each attribute type, in MQ's order, the value in full, a part
    /// of it, or nothing.
    pub fn particularity(&self) -> [u8; PARTICULARITY.len()] {
        PARTICULARITY.map(|kind| {
            let values = self.wanted.iter().filter(|(name, _)| *name == kind);
            values.map(|(_, value)| u8::from(value.any_before || value.any_after)).min().unwrap_or(2)
        })
    }

    /// Whether a certificate's subject is what the pattern asks for.
    #[must_use]
    pub fn matches(&self, subject: &Dn) -> bool {
        let subject = subject.attributes();
        self.wanted.iter().enumerate().all(|(index, (name, value))| {
            let nth = self.wanted[..index].iter().filter(|(earlier, _)| earlier == name).count();
            subject.iter().filter(|(found, _)| found == name).nth(nth).is_some_and(|(_, found)| value.matches(found))
        })
    }
}

/// Up to the next separator outside quotation marks, and what follows it.
fn split(text: &str) -> (&str, Option<&str>) {
    let (mut escaped, mut quoted) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ',' | ';' if !quoted => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

fn parse_attribute(attribute: &str) -> Result<(&'static str, Value), PatternError> {
    if attribute.is_empty() {
        return Err(PatternError::Empty);
    }
    let (name, value) =
        attribute.split_once('=').ok_or_else(|| PatternError::NoEquals { attribute: attribute.to_owned() })?;
    let name = name.trim();
    let known = TYPES.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
    let (_, name) = known.ok_or_else(|| PatternError::UnknownType { name: name.to_owned() })?;
    Ok((name, parse_value(name, value.trim_start())?))
}

/// A value without its quotation marks and escapes; only a bare `*` at either end is a wildcard.
fn parse_value(name: &'static str, value: &str) -> Result<Value, PatternError> {
    let bad = || PatternError::Value { name };
    // Each character, and whether it stands for itself whatever it is.
    let mut characters: Vec<(char, bool)> = Vec::with_capacity(value.len());
    let (mut quoted, mut input) = (false, value.chars());
    while let Some(c) = input.next() {
        match c {
            '\\' => characters.push((input.next().ok_or_else(bad)?, true)),
            '"' => quoted = !quoted,
            ' ' => characters.push((c, quoted)),
            c => characters.push((c, false)),
        }
    }
    while characters.last() == Some(&(' ', false)) {
        characters.pop();
    }
    if quoted || characters.is_empty() {
        return Err(bad());
    }
    let wildcard = ('*', false);
    let any_before = characters.first() == Some(&wildcard);
    if any_before {
        characters.remove(0);
    }
    let any_after = characters.last() == Some(&wildcard) || (any_before && characters.is_empty());
    if characters.last() == Some(&wildcard) {
        characters.pop();
    }
    if characters.contains(&wildcard) {
        return Err(PatternError::Wildcard { name });
    }
    Ok(Value { text: characters.into_iter().map(|(c, _)| c).collect(), any_before, any_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: &str = "C=DE,O=Example AG,OU=Payments,OU=Europe,CN=QM2.example.com";

    fn matches(pattern: &str, subject: &str) -> bool {
        PeerPattern::parse(pattern).unwrap().matches(&subject.parse().unwrap())
    }

    #[test]
    fn a_pattern_matches_what_it_names() {
        for pattern in [
            "CN=QM2.example.com",
            "cn = QM2.example.com , o = Example AG",
            "O=Example AG;CN=QM2*",
            "CN=*.example.com",
            "CN=*example*",
            "CN=*",
            "CN=**",
            "CN=\"QM2.example.com\"",
            "OU=Payments",
            "OU=Payments,OU=Europe",
            "OU=*,OU=Eur*",
            "OU=Pay*,CN=*,OU=*",
        ] {
            assert!(matches(pattern, SUBJECT), "{pattern}");
        }
        assert!(matches("CN=a\\*b", "CN=a*b"));
        assert!(matches("CN=\"a, b\"", "CN=a\\, b"));
        assert!(matches("CN=a\\, b", "CN=a\\, b"));
        assert!(matches("S=Bayern,E=a@b.de,T=Dr", "ST=Bayern,EMAILADDRESS=a@b.de,TITLE=Dr"));
    }

    #[test]
    fn anything_else_does_not_match() {
        for pattern in [
            "CN=QM2",
            "CN=qm2.example.com",
            "CN=QM2.example.com.evil",
            "CN=*.example.org",
            "OU=Europe",
            "OU=Europe,OU=Payments",
            "OU=Payments,OU=Europe,OU=*",
            "L=*",
            "CN=*,CN=*",
            "C=DE,O=Example",
            "CN=\\*",
        ] {
            assert!(!matches(pattern, SUBJECT), "{pattern}");
        }
        let empty = Dn::from_der(&[0x30, 0]).unwrap();
        assert!(!PeerPattern::parse("CN=*").unwrap().matches(&empty), "a certificate without a subject");
        assert!(!matches("CN=OU\\=Payments", "OU=Payments"), "a type is no value");
    }

    #[test]
    fn a_text_that_is_no_pattern_is_refused() {
        let cases = [
            ("", PatternError::Empty),
            ("CN=a,,O=b", PatternError::Empty),
            ("CN=a,", PatternError::Empty),
            ("QM2", PatternError::NoEquals { attribute: "QM2".into() }),
            ("SSN=1", PatternError::UnknownType { name: "SSN".into() }),
            ("CN=", PatternError::Value { name: "CN" }),
            ("CN=a\\", PatternError::Value { name: "CN" }),
            ("CN=\"a,O=b", PatternError::Value { name: "CN" }),
            ("CN=a*b", PatternError::Wildcard { name: "CN" }),
            ("O=*a*b*", PatternError::Wildcard { name: "O" }),
        ];
        for (text, error) in cases {
            assert_eq!(PeerPattern::parse(text), Err(error), "{text}");
        }
        assert_eq!(PeerPattern::parse(&"CN=a,".repeat(300)), Err(PatternError::TooLong));
        assert_eq!(PeerPattern::parse(&vec!["C=a"; 65].join(",")), Err(PatternError::TooLong));
    }
}
