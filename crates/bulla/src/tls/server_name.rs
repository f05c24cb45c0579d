//! The channel's name in the TLS server name (SNI, RFC 6066 section 3), so that the end that is called can choose the
//! channel's CipherSpec and certificate before anything is agreed.
//!
//! `QM1.TO.QM2` becomes `qm1-2eto-2eqm2.chl.bulla`: capital letters as small ones, because host names have no case;
//! digits as they are; any other character as `-` and the two hex digits of its byte.

use crate::catalog::CHANNEL_NAME_CHARS_MAX;

/// What follows the channel's name.
const SUFFIX: &str = ".chl.bulla";

const _: () = assert!(3 * CHANNEL_NAME_CHARS_MAX <= 63, "a label of a host name has 63 characters at most (RFC 1035)");

/// The server name of a channel.
pub(super) fn of_channel(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + SUFFIX.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' => out.push(char::from(byte.to_ascii_lowercase())),
            b'0'..=b'9' => out.push(char::from(byte)),
            _ => out.push_str(&format!("-{byte:02x}")),
        }
    }
    out.push_str(SUFFIX);
    out
}

/// The channel that a server name stands for, if it stands for one.
pub(super) fn to_channel(server_name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(server_name).ok()?.to_ascii_lowercase();
    let mut rest = text.strip_suffix(SUFFIX)?.bytes();
    let mut name = String::new();
    while let Some(byte) = rest.next() {
        let character = match byte {
            b'a'..=b'z' => byte.to_ascii_uppercase(),
            b'0'..=b'9' => byte,
            b'-' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            _ => return None,
        };
        name.push(char::from(character));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"./_%".contains(&byte);
    ((1..=CHANNEL_NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(fits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_name_comes_back_from_its_server_name() {
        for name in ["QM1.TO.QM2", "a", "Mixed/Case_%.9", "ZZZZZZZZZZZZZZZZZZZZ", "....................", "0"] {
            let server_name = of_channel(name);
            assert!(server_name.split('.').all(|label| (1..=63).contains(&label.len())), "{server_name}");
            assert_eq!(to_channel(server_name.to_uppercase().as_bytes()).as_deref(), Some(name));
        }
        assert_eq!(of_channel("QM1.TO.QM2"), "qm1-2eto-2eqm2.chl.bulla");
    }

    #[test]
    fn other_server_names_are_no_channel() {
        let too_long = format!("{}.chl.bulla", "a".repeat(21));
        for other in ["localhost", ".chl.bulla", "a.b.chl.bulla", "a-2.chl.bulla", "a-zz.chl.bulla", "-00.chl.bulla"] {
            assert_eq!(to_channel(other.as_bytes()), None, "{other}");
        }
        assert_eq!(to_channel(too_long.as_bytes()), None);
        assert_eq!(to_channel(b"\xff.chl.bulla"), None);
    }
}
