//! SPIFFE IDs, the names of processes in a trust domain: `spiffe://example.org/orders` (SPIFFE-ID, section 2).
//!
//! A certificate of one, an X.509-SVID, has it as its only URI among the alternative names, and a subject that says
//! nothing: every SVID of a trust domain may have the same one.

use crate::certificate::tlv;

/// What each SPIFFE ID begins with.
pub const SCHEME: &str = "spiffe://";
/// Most bytes of one (section 2.3).
const ID_BYTES_MAX: usize = 2048;
/// Most bytes of the name of a trust domain (section 2.3).
pub const TRUST_DOMAIN_BYTES_MAX: usize = 255;
/// `uniformResourceIdentifier` of GeneralName (RFC 5280, section 4.2.1.6).
pub(crate) const URI: u8 = 0x86;

/// Whether a text is the SPIFFE ID of a process, in the one form that is compared: with a path, which a trust domain's
/// own has not, in lower case up to it, and with nothing that a URI could have beside.
pub fn is_of_process(text: &str) -> bool {
    let Some((domain, path)) = text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')) else { return false };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_segment = |segment: &str| !["", ".", ".."].contains(&segment) && segment.bytes().all(is_plain);
    text.len() <= ID_BYTES_MAX && is_trust_domain(domain) && path.split('/').all(is_segment)
}

/// Whether a text is the name of a trust domain (section 2.1).
pub fn is_trust_domain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    (1..=TRUST_DOMAIN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The trust domain in a SPIFFE ID.
pub fn trust_domain(id: &str) -> Option<&str> {
    id.strip_prefix(SCHEME)?.split('/').next()
}

/// What the alternative names of a certificate say of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Named<'a> {
    /// Nothing of SPIFFE: it goes by its subject.
    BySubject,
    /// It is that process's.
    Process(&'a str),
    /// There is a SPIFFE ID beside another name, or one that is of no process: the certificate goes by no name.
    NoName,
}

/// Reads the value of subjectAltName, GeneralNames in DER; none where it is unreadable.
pub(crate) fn named(general_names: &[u8]) -> Option<Named<'_>> {
    let mut names = tlv::only(general_names, tlv::SEQUENCE)?.value;
    let mut uris = Vec::new();
    while !names.is_empty() {
        let name = tlv::next(&mut names)?;
        if name.tag == URI {
            uris.push(name.value);
        }
    }
    let scheme = SCHEME.strip_suffix("//").unwrap_or(SCHEME).as_bytes();
    let is_spiffe = |uri: &&[u8]| uri.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if !uris.iter().any(is_spiffe) {
        return Some(Named::BySubject);
    }
    let [only] = uris.as_slice() else { return Some(Named::NoName) };
    Some(match std::str::from_utf8(only) {
        Ok(text) if is_of_process(text) => Named::Process(text),
        _ => Named::NoName,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spiffe_id_has_one_form() {
        for good in ["spiffe://example.org/orders", "spiffe://a/B_c-d.e/1", "spiffe://1.2.3.4/x"] {
            assert!(is_of_process(good), "{good}");
            assert_eq!(trust_domain(good), good.split('/').nth(2));
        }
        for bad in [
            "",
            "spiffe://",
            "spiffe:///orders",
            "spiffe://example.org",
            "spiffe://example.org/",
            "spiffe://example.org/orders/",
            "spiffe://example.org//orders",
            "spiffe://example.org/./orders",
            "spiffe://example.org/a/..",
            "spiffe://Example.org/orders",
            "SPIFFE://example.org/orders",
            "spiffe://example.org:80/orders",
            "spiffe://me@example.org/orders",
            "spiffe://example.org/orders?a",
            "spiffe://example.org/orders#a",
            "spiffe://example.org/%6frders",
            "spiffe://example.org/örders",
            "spiffe://example.org/or\0ders",
            "https://example.org/orders",
            "CN=spiffe://example.org/orders",
        ] {
            assert!(!is_of_process(bad), "{bad}");
        }
        assert!(!is_of_process(&format!("spiffe://a/{}", "b".repeat(ID_BYTES_MAX))));
        assert!(!is_of_process(&format!("spiffe://{}/b", "a".repeat(TRUST_DOMAIN_BYTES_MAX + 1))));
    }

    #[test]
    fn a_certificate_with_more_than_one_uri_is_nobody_s_as_soon_as_one_is_of_spiffe() {
        const DNS: u8 = 0x82;
        let of = |names: &[(u8, &[u8])]| {
            let parts: Vec<Vec<u8>> = names.iter().map(|(tag, value)| tlv::element(*tag, &[value])).collect();
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            tlv::element(tlv::SEQUENCE, &parts)
        };
        let id = b"spiffe://example.org/orders".as_slice();
        let process = Some(Named::Process("spiffe://example.org/orders"));
        assert_eq!(named(&of(&[(URI, id)])), process);
        assert_eq!(named(&of(&[(DNS, b"mq.example.org"), (URI, id)])), process);
        assert_eq!(named(&of(&[(DNS, id)])), Some(Named::BySubject));
        assert_eq!(named(&of(&[(URI, b"https://example.org"), (URI, b"urn:x")])), Some(Named::BySubject));
        assert_eq!(named(&of(&[])), Some(Named::BySubject));
        for other in [id, b"spiffe://example.org/admin", b"https://example.org", b"\xff", b""] {
            assert_eq!(named(&of(&[(URI, id), (URI, other)])), Some(Named::NoName), "{other:?}");
            assert_eq!(named(&of(&[(URI, other), (URI, id)])), Some(Named::NoName), "{other:?}");
        }
        for bad in ["spiffe://example.org", "SPIFFE://example.org/orders", "spiffe:x", "spiffe://example.org/or\0ders"]
        {
            assert_eq!(named(&of(&[(URI, bad.as_bytes())])), Some(Named::NoName), "{bad}");
        }
        assert_eq!(named(b"\x30\x03\x86\x05s"), None);
    }
}
