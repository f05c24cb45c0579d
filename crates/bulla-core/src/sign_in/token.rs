//! Bearer tokens: a JWT (RFC 7519) in the compact form of a signature (RFC 7515), checked against the keys of its
//! issuer.
//!
//! The order of checks: form, header, signature; only then is a word of the content believed: issuer, audience, times,
//! user.

use super::key_set::{Algorithm, KeySet, base64url};
use crate::users;
use serde_json::{Map, Value};
use std::fmt;

/// Longest token in bytes; a SASL frame (`SASL_FRAME_BYTES_MAX`) has room for this and what stands around it.
pub const TOKEN_BYTES_MAX: usize = 7_680;
/// By how much clocks may differ, in seconds: `exp` and `nbf` are read with this much grace.
pub const LEEWAY_SECONDS: u64 = 60;
/// What `typ` may say of a token, where it says anything: RFC 7519 (section 5.1) and RFC 9068 (section 2.1).
const TYPES: [&str; 4] = ["JWT", "application/jwt", "at+jwt", "application/at+jwt"];

/// What a token must say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expected {
    /// `iss`, letter for letter.
    pub issuer: String,
    /// `aud`, or one of several.
    pub audience: String,
    /// The claim that is the user's name.
    pub user_claim: String,
}

/// What a good token gives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The user.
    pub user: String,
    /// Until when, seconds since 1970: `exp`, and the grace.
    pub until: u64,
}

/// Why a token is refused. The client's turn, but for `Key` and `NoKeys`, which may be the administrator's.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TokenError {
    /// Not three parts, or a part that is not what it must be.
    Malformed(&'static str),
    /// Signed in a way that is not taken, or not at all.
    Algorithm,
    /// No key for it, or more than one.
    Key,
    /// There are no keys to check it with.
    NoKeys,
    /// The signature is not of the key.
    Signature,
    /// From another issuer.
    Issuer,
    /// For another audience.
    Audience,
    /// `exp` is over.
    Expired,
    /// `nbf` is still to come.
    TooEarly,
    /// The claim for the user's name is missing, or cannot be one.
    User,
}

impl std::error::Error for TokenError {}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "the token has {what}"),
            Self::Algorithm => f.write_str("the token is signed in none of the ways RS256, PS256, ES256, EdDSA"),
            Self::Key => f.write_str("no single key of the set is the token's"),
            Self::NoKeys => f.write_str("there are no keys to check tokens with"),
            Self::Signature => f.write_str("the token's signature is not its issuer's"),
            Self::Issuer => f.write_str("the token is from another issuer"),
            Self::Audience => f.write_str("the token is for another audience"),
            Self::Expired => f.write_str("the token has expired"),
            Self::TooEarly => f.write_str("the token is not valid yet"),
            Self::User => f.write_str("the token's claim for the user is missing, or cannot be a user's name"),
        }
    }
}

/// Checks a token at `now`, seconds since 1970. Costs one verification.
///
/// # Errors
/// It is refused, by the first check that it fails.
pub fn check(token: &str, keys: &KeySet, expected: &Expected, now: u64) -> Result<Grant, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed("too many bytes"));
    }
    let mut parts = token.split('.');
    let (Some(header), Some(content), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Malformed("other than three parts"));
    };
    let (algorithm, key) = read_header(&object(header).ok_or(TokenError::Malformed("no header"))?)?;
    if keys.is_empty() {
        return Err(TokenError::NoKeys);
    }
    let signed = &token.as_bytes()[..header.len() + 1 + content.len()];
    let signature = base64url(signature).ok_or(TokenError::Malformed("no signature"))?;
    match keys.verify(key.as_deref(), algorithm, signed, &signature) {
        Some(true) => {}
        Some(false) => return Err(TokenError::Signature),
        None => return Err(TokenError::Key),
    }
    let claims = object(content).ok_or(TokenError::Malformed("no claims"))?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(&expected.issuer) {
        return Err(TokenError::Issuer);
    }
    let is_for_us = match claims.get("aud") {
        Some(Value::String(audience)) => *audience == expected.audience,
        Some(Value::Array(audiences)) => audiences.iter().any(|audience| *audience == expected.audience),
        _ => false,
    };
    if !is_for_us {
        return Err(TokenError::Audience);
    }
    // A NumericDate may have a fraction (RFC 7519, section 2): it is left out, which is within the grace.
    let until = time(&claims, "exp")?.ok_or(TokenError::Malformed("no exp"))?.saturating_add(LEEWAY_SECONDS);
    if now >= until {
        return Err(TokenError::Expired);
    }
    if time(&claims, "nbf")?.is_some_and(|from| from > now.saturating_add(LEEWAY_SECONDS)) {
        return Err(TokenError::TooEarly);
    }
    let user = text(&expected.user_claim).filter(|user| users::is_valid_name(user)).ok_or(TokenError::User)?;
    Ok(Grant { user: user.to_owned(), until })
}

/// The algorithm, and the key that is named. Keys that come along (`jwk`, `x5c`) or could be fetched (`jku`, `x5u`) are
/// not looked at: the forger of the token forged those.
fn read_header(header: &Map<String, Value>) -> Result<(Algorithm, Option<String>), TokenError> {
    if header.contains_key("crit") {
        return Err(TokenError::Malformed("a header that must be understood, and is not"));
    }
    match header.get("typ") {
        None => {}
        Some(Value::String(kind)) if TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)) => {}
        Some(_) => return Err(TokenError::Malformed("another type than JWT")),
    }
    let key = match header.get("kid") {
        None => None,
        Some(Value::String(key)) => Some(key.clone()),
        Some(_) => return Err(TokenError::Malformed("a kid that is no text")),
    };
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::of);
    Ok((algorithm.ok_or(TokenError::Algorithm)?, key))
}

/// A NumericDate in whole seconds; what lies before 1970 is 1970.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, TokenError> {
    match claims.get(name) {
        None => Ok(None),
        // Negative ones become 0, and those beyond u64 its end: `as` saturates.
        Some(value) => {
            value.as_f64().map(|seconds| Some(seconds as u64)).ok_or(TokenError::Malformed("a time that is none"))
        }
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    match serde_json::from_slice(&base64url(part)?) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_tokens::{Issuer, encode};
    use super::*;
    use serde_json::json;

    const NOW: u64 = 1_795_296_295;

    fn expected() -> Expected {
        Expected { issuer: "https://issuer.example".into(), audience: "queues".into(), user_claim: "sub".into() }
    }

    fn keys(issuers: &[Issuer]) -> KeySet {
        let keys: Vec<Value> = issuers.iter().map(Issuer::jwk).collect();
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    /// What the check of a token with these claims gives; null takes a claim away.
    fn with(changes: &Value) -> Result<Grant, TokenError> {
        let issuer = Issuer::ed25519("key");
        let mut claims = issuer.claims(NOW);
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        check(&issuer.token(&claims), &keys(&[issuer]), &expected(), NOW)
    }

    #[test]
    fn each_way_of_signing_is_taken_with_its_key_and_refused_with_any_byte_changed() {
        let issuers = Issuer::every_kind();
        let keys = keys(&issuers);
        for issuer in &issuers {
            let token = issuer.token(&issuer.claims(NOW));
            let grant = Grant { user: "orders".into(), until: NOW + 300 + LEEWAY_SECONDS };
            assert_eq!(check(&token, &keys, &expected(), NOW), Ok(grant), "{:?}", issuer.algorithm);
            for at in 0..token.len() {
                for change in [b'A', b'.', b'='] {
                    let mut other = token.clone().into_bytes();
                    if other[at] != change {
                        other[at] = change;
                        let other = String::from_utf8(other).unwrap();
                        assert!(check(&other, &keys, &expected(), NOW).is_err(), "{:?}: {other}", issuer.algorithm);
                    }
                }
                assert!(check(&token[..at], &keys, &expected(), NOW).is_err());
            }
        }
    }

    #[test]
    fn a_token_signed_by_nobody_or_with_a_public_key_as_a_secret_is_refused() {
        let issuer = Issuer::rsa("key", 2048, Algorithm::Rs256);
        let keys = keys(std::slice::from_ref(&issuer));
        let claims = issuer.claims(NOW);
        let refused = |token: &str| check(token, &keys, &expected(), NOW).unwrap_err();
        let unsigned = |alg: Value| {
            let header = json!({ "alg": alg, "kid": "key" });
            format!("{}.{}.", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()))
        };
        for name in ["none", "None", "NONE", "", "rs256", "RS1", "RS512", "ES256K"] {
            assert_eq!(refused(&unsigned(name.into())), TokenError::Algorithm, "{name}");
        }
        assert_eq!(refused(&unsigned(Value::Null)), TokenError::Algorithm);
        assert_eq!(refused(&unsigned(json!(["RS256"]))), TokenError::Algorithm);
        assert_eq!(refused(&unsigned("RS256".into())), TokenError::Signature, "an empty signature");
        // The public key, which is known to all, as the key of an HMAC.
        let signed = unsigned("HS256".into());
        let signed = signed.trim_end_matches('.');
        let secret = openssl::pkey::PKey::hmac(&issuer.key.public_key_to_pem().unwrap()).unwrap();
        let digest = openssl::hash::MessageDigest::sha256();
        let mac = openssl::sign::Signer::new(digest, &secret).unwrap().sign_oneshot_to_vec(signed.as_bytes()).unwrap();
        assert_eq!(refused(&format!("{signed}.{}", encode(&mac))), TokenError::Algorithm);
    }

    #[test]
    fn a_key_signs_only_in_its_own_way_and_by_its_own_name() {
        let issuers = Issuer::every_kind();
        let all = keys(&issuers);
        let [rsa, pss, p256, ed25519] = &issuers;
        let claims = rsa.claims(NOW);
        let header = |alg: &str, kid: Option<&str>| match kid {
            Some(kid) => json!({ "alg": alg, "kid": kid }),
            None => json!({ "alg": alg }),
        };
        let said = |token: &str| check(token, &all, &expected(), NOW).map(|_| ());
        assert_eq!(said(&rsa.signed(&header("RS256", None), &claims)), Ok(()), "the only key for RS256");
        assert_eq!(
            said(&rsa.signed(&header("RS256", Some("pss")), &claims)),
            Err(TokenError::Key),
            "that is for PS256"
        );
        assert_eq!(said(&rsa.signed(&header("PS256", Some("rsa")), &claims)), Err(TokenError::Key));
        assert_eq!(said(&pss.signed(&header("PS256", Some("other")), &claims)), Err(TokenError::Key));
        assert_eq!(said(&p256.signed(&header("EdDSA", Some("p256")), &claims)), Err(TokenError::Key));
        assert_eq!(said(&ed25519.signed(&header("ES256", Some("p256")), &claims)), Err(TokenError::Signature));
        let (one, other) = (Issuer::p256("same"), Issuer::p256("same"));
        let token = one.token(&claims);
        assert_eq!(check(&token, &keys(&[one, other]), &expected(), NOW), Err(TokenError::Key), "which of the two?");
        assert_eq!(check(&token, &KeySet::default(), &expected(), NOW), Err(TokenError::NoKeys));
        let other = Issuer::p256("p256");
        assert_eq!(said(&other.token(&claims)), Err(TokenError::Signature));
    }

    #[test]
    fn a_header_is_understood_or_refused() {
        let issuer = Issuer::ed25519("key");
        let keys = keys(std::slice::from_ref(&issuer));
        let said = |name: &str, value: Value| {
            let mut header = issuer.header();
            header[name] = value;
            check(&issuer.signed(&header, &issuer.claims(NOW)), &keys, &expected(), NOW).map(|grant| grant.user)
        };
        for kind in ["jwt", "JWT", "at+jwt", "application/at+JWT"] {
            assert_eq!(said("typ", kind.into()), Ok("orders".into()), "{kind}");
        }
        for (name, value) in [
            ("typ", json!("JOSE")),
            ("typ", json!(1)),
            ("crit", json!(["b64"])),
            ("crit", json!([])),
            ("kid", json!(7)),
        ] {
            let error = said(name, value.clone()).unwrap_err();
            assert!(matches!(error, TokenError::Malformed(_)), "{name}: {value}: {error:?}");
        }
        // A key inside the token is not trusted.
        let other = Issuer::ed25519("key");
        let mut header = other.header();
        header["jwk"] = other.jwk();
        let token = other.signed(&header, &other.claims(NOW));
        assert_eq!(check(&token, &keys, &expected(), NOW), Err(TokenError::Signature));
    }

    #[test]
    fn issuer_audience_times_and_user_are_each_asked_for() {
        let malformed = |said: &Result<Grant, TokenError>| matches!(said, Err(TokenError::Malformed(_)));
        assert!(with(&json!({})).is_ok());
        for issuer in [json!("https://issuer.example/"), json!("HTTPS://issuer.example"), json!(1), Value::Null] {
            assert_eq!(with(&json!({ "iss": issuer })), Err(TokenError::Issuer));
        }
        for audience in [json!("queue"), json!(["other"]), json!([]), json!({ "queues": 1 }), Value::Null] {
            assert_eq!(with(&json!({ "aud": audience })), Err(TokenError::Audience));
        }
        assert!(with(&json!({ "aud": "queues" })).is_ok());

        assert!(malformed(&with(&json!({ "exp": null }))), "one that never ends");
        assert!(malformed(&with(&json!({ "exp": "1795296295" }))) && malformed(&with(&json!({ "nbf": "x" }))));
        let ended = NOW - LEEWAY_SECONDS;
        assert_eq!(with(&json!({ "exp": ended })), Err(TokenError::Expired));
        assert_eq!(with(&json!({ "exp": ended + 1 })).map(|grant| grant.until), Ok(NOW + 1));
        assert_eq!(with(&json!({ "exp": -1 })), Err(TokenError::Expired));
        assert_eq!(with(&json!({ "exp": 1e300 })).map(|grant| grant.until), Ok(u64::MAX));
        assert!(with(&json!({ "exp": 1_795_296_300.5 })).is_ok());
        let soon = NOW + LEEWAY_SECONDS;
        assert!(with(&json!({ "nbf": soon })).is_ok() && with(&json!({ "nbf": null })).is_ok());
        assert_eq!(with(&json!({ "nbf": soon + 1 })), Err(TokenError::TooEarly));

        for user in
            [json!(""), json!("*"), json!("*ANONYMOUS"), json!("a b"), json!("../x"), json!(["orders"]), Value::Null]
        {
            assert_eq!(with(&json!({ "sub": user })), Err(TokenError::User));
        }
    }

    #[test]
    fn a_token_of_any_length_and_depth_is_an_answer() {
        let keys = KeySet::default();
        let deep = encode(format!("{{\"alg\":{}{}}}", "[".repeat(2_000), "]".repeat(2_000)).as_bytes());
        for token in ["", ".", "..", "...", "a.b.c", "e30.e30.e30", &format!("{deep}.e30.AA")] {
            assert!(check(token, &keys, &expected(), NOW).is_err(), "{token}");
        }
        let long = "A".repeat(TOKEN_BYTES_MAX + 1);
        assert_eq!(check(&long, &keys, &expected(), NOW), Err(TokenError::Malformed("too many bytes")));
    }
}
