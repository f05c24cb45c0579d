//! Who a request says that it is from: its `Authorization` header, its cookie, or the certificate of its connection.

use super::answers::Refused;
use crate::front::client::Proof;
use crate::sign_in::sessions::LoginId;
use base64ct::{Base64, Base64UrlUnpadded, Encoding};
use bulla_http::{Head, HeaderValue};
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use serde::Deserialize;
use std::fmt;
use zeroize::Zeroizing;

/// Longest `Authorization` that is looked at, in bytes.
const BYTES_MAX: usize = 8 << 10;

/// The cookie that a log-in gives, by the name that programs know. Browsers give it back over TLS alone, to no page's
/// script, and not with what a page of another site asks for.
pub(super) const COOKIE: &str = "LtpaToken2";
/// Says to a client that its cookie is over.
pub(super) const NO_COOKIE: HeaderValue =
    HeaderValue::from_static("LtpaToken2=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");

/// The header that gives a client its token. It ends with the browser's session at the latest: no time stands in it.
pub(super) fn set_cookie(token: &[u8; 32]) -> HeaderValue {
    let text = Zeroizing::new(Base64UrlUnpadded::encode_string(token));
    let line = format!("{COOKIE}={}; Path=/; Secure; HttpOnly; SameSite=Strict", &*text);
    // Letters, digits, `-` and `_`.
    HeaderValue::new(line).unwrap_or(NO_COOKIE)
}

/// Under which credentials a connection has signed in. Of passwords it keeps a digest under a key of its own.
#[derive(Default, Eq, PartialEq)]
pub(super) enum Fingerprint {
    /// None.
    #[default]
    Nothing,
    /// A password in the body of a request.
    LogIn,
    /// A header `Authorization`.
    Header(Vec<u8>),
    /// A cookie.
    Session(LoginId),
}

/// Nothing of a credential comes into a log.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint")
    }
}

impl Fingerprint {
    /// Whether they are those of a browser: it may have others on a connection that it has kept.
    pub(super) fn is_of_browser(&self) -> bool {
        matches!(self, Self::Nothing | Self::Session(_))
    }
}

/// The credentials of a request.
///
/// # Errors
/// 400 for several of them, of which it is not said which one counts.
pub(super) fn fingerprint(head: &Head, key: &[u8; 32]) -> Result<Fingerprint, Refused> {
    let cookie = cookie(head)?;
    let Some(said) = head.headers.get("authorization") else {
        return Ok(cookie.map_or(Fingerprint::Nothing, Fingerprint::Session));
    };
    if cookie.is_some() {
        return Err(ambiguous("there are both a header Authorization and a cookie of a log-in"));
    }
    let digest = || -> Result<Vec<u8>, openssl::error::ErrorStack> {
        let key = PKey::hmac(key)?;
        Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot_to_vec(said)
    };
    digest().map(Fingerprint::Header).map_err(|_| Refused::new(500, "unexpected", "no digest can be made"))
}

fn ambiguous(why: &str) -> Refused {
    Refused::new(400, "ambiguous-credentials", why)
}

/// The log-in that a request's cookie is of (RFC 6265, section 5.4). A cookie that is none of ours is of a log-in that
/// there is not. An empty one is none.
///
/// # Errors
/// 400 for several of that name: a page of a neighbouring host can set one.
pub(super) fn cookie(head: &Head) -> Result<Option<LoginId>, Refused> {
    let pairs = head.headers.all("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
    let values = pairs.filter_map(|pair| {
        let (name, value) = pair.trim_ascii().split_at_checked(COOKIE.len())?;
        (name == COOKIE.as_bytes()).then_some(value)?.trim_ascii_start().strip_prefix(b"=").map(<[u8]>::trim_ascii)
    });
    let mut values = values.filter(|value| !value.is_empty());
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ambiguous("there are several cookies of a log-in"));
    }
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let mut token = Zeroizing::new([0; 32]);
    let is_token = Base64UrlUnpadded::decode(value, &mut *token).is_ok_and(|bytes| bytes.len() == 32);
    // No session has the token of zeros.
    Ok(Some(LoginId::of(if is_token { &token } else { &[0; 32] })))
}

/// What a log-in says in its body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    username: String,
    password: String,
}

/// User and password in the body of a log-in.
///
/// # Errors
/// 400. It repeats nothing of what was there.
pub(super) fn log_in(body: &[u8]) -> Result<(String, Zeroizing<String>), Refused> {
    let read: Result<Body, _> = serde_json::from_slice(body);
    let wrong =
        |_| Refused::new(400, "log-in", "the body has to be a JSON object with the texts username and password");
    read.map(|Body { username, password }| (username, Zeroizing::new(password))).map_err(wrong)
}

/// What a request proves its user by. `certificate` says that the connection has shown a verified one.
///
/// # Errors
/// 401 for what can't be read.
pub(super) fn proof(head: &Head, print: &Fingerprint, certificate: bool) -> Result<Proof, Refused> {
    let unreadable = || Refused::new(401, "unreadable-credentials", "the header Authorization can't be read");
    if let Fingerprint::Session(login) = print {
        return Ok(Proof::Session(*login));
    }
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
        let proof = |head: &Head, certificate| proof(head, &fingerprint(head, &[0; 32]).unwrap(), certificate);
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
        assert!(bare == Fingerprint::default());
    }

    fn cookies(lines: &str) -> Result<Option<LoginId>, u16> {
        let head = head(&format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
        cookie(&head).map_err(|refused| refused.status)
    }

    #[test]
    fn a_cookie_is_found_among_others_and_two_are_refused() {
        let set = set_cookie(&[7; 32]);
        let line = std::str::from_utf8(set.as_bytes()).unwrap();
        let (pair, attributes) = line.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; Secure; HttpOnly; SameSite=Strict");
        let token = pair.strip_prefix("LtpaToken2=").unwrap();
        let login = LoginId::of(&[7; 32]);
        for good in [
            format!("Cookie: {pair}\r\n"),
            format!("Cookie: a=b; {pair}; c\r\n"),
            format!("Cookie: a=b;LtpaToken2 = {token} ;\r\n"),
            format!("Cookie: LtpaToken2=\"{token}\"\r\n"),
            format!("Cookie: LtpaToken2=; {pair}\r\n"),
            format!("Cookie: a=b\r\nCookie: {pair}\r\n"),
        ] {
            assert_eq!(cookies(&good), Ok(Some(login)), "{good}");
        }
        for none in [
            "",
            "Cookie:\r\n",
            "Cookie: LtpaToken2=\r\n",
            "Cookie: ;;=;LtpaToken2\r\n",
            "Cookie: LtpaToken22=x\r\n",
            "Cookie: xLtpaToken2=x\r\n",
            "Cookie: ltpatoken2=x\r\n",
            "Cookie: \u{fc}=\u{fc}\r\n",
        ] {
            assert_eq!(cookies(none), Ok(None), "{none}");
        }
        for other in ["x", "x=y", "\"", "=====", "\u{fc}", &format!("{token}A"), &token[1..], &"A".repeat(6_000)] {
            let found = cookies(&format!("Cookie: LtpaToken2={other}\r\n"));
            assert!(matches!(found, Ok(Some(found)) if found != login), "{other}");
        }
        for two in [format!("Cookie: {pair}; {pair}\r\n"), format!("Cookie: {pair}\r\nCookie: LtpaToken2=x\r\n")] {
            assert_eq!(cookies(&two), Err(400), "{two}");
        }
        assert!(NO_COOKIE.as_bytes().starts_with(b"LtpaToken2=; ") && NO_COOKIE.as_bytes().ends_with(b"; Max-Age=0"));
    }

    #[test]
    fn a_cookie_and_a_header_together_are_refused_and_neither_passes_for_the_other() {
        let print = |lines: &str| fingerprint(&head(&format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n")), &[1; 32]);
        let set = set_cookie(&[7; 32]);
        let cookie = std::str::from_utf8(set.as_bytes()).unwrap().split(';').next().unwrap();
        let both = print(&format!("Authorization: Basic YTpi\r\nCookie: {cookie}\r\n"));
        assert!(both.is_err_and(|refused| (refused.status, refused.cause) == (400, "ambiguous-credentials")));
        let session = print(&format!("Cookie: {cookie}\r\n")).unwrap();
        assert!(session == Fingerprint::Session(LoginId::of(&[7; 32])) && session.is_of_browser());
        let header = print(&format!("Authorization: {cookie}\r\n")).unwrap();
        assert!(header != session && !header.is_of_browser());
        let bare = head("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(matches!(proof(&bare, &session, true), Ok(Proof::Session(_))), "before a certificate");
    }

    #[test]
    fn a_log_in_names_a_user_and_a_password_and_nothing_else() {
        let (user, password) = log_in(br#"{"username": "anna", "password": "a\"\u00fc"}"#).unwrap();
        assert_eq!((&*user, &**password), ("anna", "a\"\u{fc}"));
        for odd in [
            "",
            "[]",
            "{}",
            "null",
            r#"{"username": "a"}"#,
            r#"{"username": 5, "password": "secret"}"#,
            r#"{"username": "a", "password": 12345}"#,
            r#"{"username": "a", "password": "secret", "password": "b"}"#,
            r#"{"username": "a", "password": "secret", "role": "ALL"}"#,
            r#"{"username": "a", "password": "secret"} x"#,
            "{\"username\": \"a\", \"password\": \"\u{1}\"}",
        ] {
            let refused = log_in(odd.as_bytes()).unwrap_err();
            assert_eq!((refused.status, refused.cause), (400, "log-in"), "{odd}");
            let said = format!("{refused:?}");
            assert!(!said.contains("secret") && !said.contains("12345"), "{said}");
        }
        assert!(log_in(b"{\"username\": \"\xff\", \"password\": \"b\"}").is_err());
        assert_eq!(log_in("[".repeat(8_000).as_bytes()).unwrap_err().status, 400);
    }
}
