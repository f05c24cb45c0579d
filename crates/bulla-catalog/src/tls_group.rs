//! Groups of TLS: by which two ends of a connection agree on its keys. One table; SSLGROUPS names its rows.

use std::fmt::{self, Write};

/// A group, by IANA's name (the registry *TLS Supported Groups*).
#[derive(Debug, Eq, PartialEq)]
pub struct TlsGroup {
    /// IANA's name, and OpenSSL's; case does not matter.
    pub name: &'static str,
    /// ML-KEM beside a curve: who records a connection and has a quantum computer one day can't read it.
    pub hybrid: bool,
}

const fn hybrid(name: &'static str) -> TlsGroup {
    TlsGroup { name, hybrid: true }
}

const fn curve(name: &'static str) -> TlsGroup {
    TlsGroup { name, hybrid: false }
}

/// Every group, those to be preferred first.
pub const ALL: &[TlsGroup] = &[
    hybrid("X25519MLKEM768"),
    hybrid("SecP256r1MLKEM768"),
    hybrid("SecP384r1MLKEM1024"),
    curve("x25519"),
    curve("secp256r1"),
    curve("secp384r1"),
    curve("secp521r1"),
    curve("x448"),
];

/// What is offered without SSLGROUPS: all of them. A caller sends a share of the two that are marked with its hello, so
/// that a partner without ML-KEM takes no round more. Whatever is before the `/` is preferred, even where it takes one;
/// of what is not parted by it, what the caller has sent a share of.
pub const DEFAULT_LIST: &str =
    "*X25519MLKEM768:SecP256r1MLKEM768:SecP384r1MLKEM1024/*x25519:secp256r1:secp384r1:secp521r1:x448";

/// The group of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static TlsGroup> {
    ALL.iter().find(|group| group.name.eq_ignore_ascii_case(name))
}

/// SSLGROUPS names no group of the table, or one twice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GroupsError {
    /// There is none of that name.
    Unknown(String),
    /// It stands there twice.
    Twice(&'static str),
}

impl std::error::Error for GroupsError {}

impl fmt::Display for GroupsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no group {name}"),
            Self::Twice(name) => write!(f, "it names {name} twice"),
        }
    }
}

/// The groups that a text names, with commas or colons between them; none for a blank one.
///
/// # Errors
/// [`GroupsError`].
pub fn parse(text: &str) -> Result<Vec<&'static TlsGroup>, GroupsError> {
    let mut groups = Vec::new();
    for name in text.split([',', ':']).map(str::trim).filter(|name| !name.is_empty()) {
        let group = find(name).ok_or_else(|| GroupsError::Unknown(name.to_owned()))?;
        if groups.contains(&group) {
            return Err(GroupsError::Twice(group.name));
        }
        groups.push(group);
    }
    Ok(groups)
}

/// The groups as SSLGROUPS shows them.
#[must_use]
pub fn text(groups: &[&TlsGroup]) -> String {
    groups.iter().map(|group| group.name).collect::<Vec<_>>().join(",")
}

/// OpenSSL's list of these groups, or of what is offered where there are none.
#[must_use]
pub fn list(groups: &[&TlsGroup]) -> String {
    if groups.is_empty() { DEFAULT_LIST.to_owned() } else { text(groups).replace(',', "/") }
}

/// The groups' part of the reference page.
pub(crate) fn page() -> String {
    let mut page = String::from(PREFACE);
    for group in ALL {
        let remark = if group.hybrid { "ML-KEM beside a curve" } else { "" };
        let _ = writeln!(page, "| `{}` | {remark} |", group.name);
    }
    page
}

const PREFACE: &str = "
## Groups

`SSLGROUPS` of a channel or of the queue manager names the groups by which the keys of a connection may be agreed on,
the first one preferred: `SSLGROUPS('X25519MLKEM768,SecP256r1MLKEM768')`. Blank is all of them, in this order. A channel
that names only groups with ML-KEM requires them.

`DISPLAY CHSTATUS` and `DISPLAY CONN` show the group that was agreed on in `SSLGROUP`. A partner that has none of them
is refused with reason 2400, `cause=group-mismatch`. The names are IANA's. Groups with ML-KEM are for TLS 1.3; with TLS
1.2 the curve of an EC certificate is to be among the groups, too.

| SSLGROUPS | |
| --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_found_and_shown_as_the_table_has_it() {
        let groups = parse(" x25519mlkem768 : SECP256R1,x448").unwrap();
        assert_eq!(text(&groups), "X25519MLKEM768,secp256r1,x448");
        assert_eq!(list(&groups), "X25519MLKEM768/secp256r1/x448");
        assert_eq!(parse(&text(&groups)).unwrap(), groups);
        assert_eq!(parse(" , ").unwrap(), Vec::<&TlsGroup>::new());
        assert_eq!(parse("x25519,MD5").unwrap_err().to_string(), "there is no group MD5");
        assert_eq!(parse("x25519,X25519").unwrap_err().to_string(), "it names x25519 twice");
    }

    #[test]
    fn without_a_word_all_are_offered_in_their_order() {
        assert_eq!(parse(&DEFAULT_LIST.replace('*', "").replace('/', ",")).unwrap(), ALL.iter().collect::<Vec<_>>());
        assert_eq!(list(&[]), DEFAULT_LIST);
    }
}
