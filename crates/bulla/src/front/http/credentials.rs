//! Who a request says that it is from: its `Authorization` header, or the certificate of its connection.

use super::answers::Refused;
use crate::front::client::Proof;
use base64ct::{Base64, Encoding};
use bulla_http::Head;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use zeroize::Zeroizing;

/// Longest `Authorization` that is looked at, in bytes.
const BYTES_MAX: usize = 8 << 10;

/// Under which credentials a connection has signed in. Of passwords it keeps a digest under a key of its own.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Fingerprint(Option<Vec<u8>>);

/// The credentials of a request.
pub(super) fn fingerprint(head: &Head, key: &[u8; 32]) -> Result<Fingerprint, Refused> {
    let Some(said) = head.headers.get("authorization") else { return Ok(Fingerprint(None)) };
    let digest = || -> Result<Vec<u8>, openssl::error::ErrorStack> {
        let key = PKey::hmac(key)?;
        Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot_to_vec(said)
    };
    digest()
        .map(|digest| Fingerprint(Some(digest)))
        .map_err(|_| Refused::new(500, "unexpected", "no digest can be made"))
}

/// What a request proves its user by. `certificate` says that the connection has shown a verified one.
///
/// # Errors
/// 401 for what can't be read.
pub(super) fn proof(head: &Head, certificate: bool) -> Result<Proof, Refused> {
    let unreadable = || Refused::new(401, "unreadable-credentials", "the header Authorization can't be read");
    match head.headers.count("authorization") {
        0 if certificate => return Ok(Proof::Certificate { act_as: String::new() }),
        0 => return Ok(Proof::Nothing),
        1 => {}
        _ => return Err(unreadable()),
    }
    let said = head.headers.text("authorization").filter(|said| said.len() <= BYTES_MAX).ok_or_else(unreadable)?;
    let (scheme, rest) = said.split_once(' ').ok_or_else(unreadable)?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("basic") {
        let text = Base64::decode_vec(rest).ok().map(Zeroizing::new).ok_or_else(unreadable)?;
        let text = std::str::from_utf8(&text).map_err(|_| unreadable())?;
        // A user's name has no colon (RFC 7617, section 2).
        let (user, password) = text.split_once(':').ok_or_else(unreadable)?;
        let password = Zeroizing::new(password.to_owned());
        return Ok(Proof::Password { user: user.to_owned(), password, act_as: String::new() });
    }
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Proof::Token { token: Zeroizing::new(rest.to_owned()), act_as: String::new() });
    }
    Err(unreadable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::tests::head;

    fn with(authorization: &str) -> Box<Head> {
        head(&format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: {authorization}\r\n\r\n"))
    }

    #[test]
    fn a_header_says_who_it_is_from() {
        let Ok(Proof::Password { user, password, act_as }) = proof(&with("Basic YW5uYTphOmI="), true) else { panic!() };
        assert_eq!((&*user, &**password, &*act_as), ("anna", "a:b", ""));
        let Ok(Proof::Token { token, .. }) = proof(&with("bearer a.b.c"), false) else { panic!() };
        assert_eq!(&**token, "a.b.c");
        let bare = head("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(matches!(proof(&bare, true), Ok(Proof::Certificate { .. })));
        assert!(matches!(proof(&bare, false), Ok(Proof::Nothing)));
        let twice = "Basic YTpi\r\nAuthorization: Basic YTpi";
        for odd in ["Basic", "Basic !", "Basic YW5uYQ==", "Digest a=b", twice, &format!("Bearer {}", "x".repeat(9_000))]
        {
            assert_eq!(proof(&with(odd), false).unwrap_err().status, 401, "{odd}");
        }
    }

    #[test]
    fn other_credentials_are_told_from_these() {
        let print = |authorization: &str, key: u8| fingerprint(&with(authorization), &[key; 32]).unwrap();
        assert_eq!(print("Basic YTpi", 1), print("Basic YTpi", 1));
        assert_ne!(print("Basic YTpi", 1), print("Basic YTpj", 1));
        assert_ne!(print("Basic YTpi", 1), print("Basic YTpi", 2));
        let bare = fingerprint(&head("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), &[1; 32]).unwrap();
        assert_eq!(bare, Fingerprint::default());
    }
}
