//! The JSON of a transit engine's HTTP API: what is asked, and what an answer says.
//!
//! The names are those of the published API of HashiCorp Vault and of OpenBao (*Transit secrets engine (API)*: *Sign
//! data*, *Decrypt data*, *Read key*, *Create key*).

use std::collections::BTreeMap;
use std::fmt::Write;

use base64ct::{Base64, Encoding};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::digest::Digest;
use crate::http::BadAnswer;
use crate::key::{Curve, KeyKind};
use crate::work::RsaScheme;

/// What a server says of why it refuses is cut to so many bytes.
pub const WHY_BYTES_MAX: usize = 256;
/// What stands before the version in signatures and ciphertexts.
const PREFIX: &str = "vault:v";

/// How jobs are signed that go into one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    /// RSA.
    Rsa(RsaScheme, Digest),
    /// ECDSA over a hash that is as long as this digest's.
    Ecdsa(Digest),
}

/// The word of a digest.
pub fn digest_word(digest: Digest) -> &'static str {
    match digest {
        Digest::Sha256 => "sha2-256",
        Digest::Sha384 => "sha2-384",
        Digest::Sha512 => "sha2-512",
    }
}

/// The word of a key's kind; none for a kind that a transit engine does not make.
pub fn key_type(kind: KeyKind, bits: u32) -> Option<&'static str> {
    match (kind, bits) {
        (KeyKind::Rsa, 2048) => Some("rsa-2048"),
        (KeyKind::Rsa, 3072) => Some("rsa-3072"),
        (KeyKind::Rsa, 4096) => Some("rsa-4096"),
        (KeyKind::Ec(Curve::P256), _) => Some("ecdsa-p256"),
        (KeyKind::Ec(Curve::P384), _) => Some("ecdsa-p384"),
        (KeyKind::Ec(Curve::P521), _) => Some("ecdsa-p521"),
        _ => None,
    }
}

/// The body of a request for signatures: all in one, by one version of the key.
pub fn sign(signing: Signing, version: u32, hashes: &[&[u8]]) -> Vec<u8> {
    let how = match signing {
        Signing::Rsa(RsaScheme::Pkcs1, _) => r#","signature_algorithm":"pkcs1v15""#,
        Signing::Rsa(RsaScheme::Pss, _) => r#","signature_algorithm":"pss","salt_length":"hash""#,
        Signing::Ecdsa(_) => r#","marshaling_algorithm":"asn1""#,
    };
    let mut text = format!(r#"{{"key_version":{version},"prehashed":true{how},"batch_input":["#);
    for (place, hash) in hashes.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, r#"{comma}{{"input":"{}"}}"#, Base64::encode_string(hash));
    }
    text.push_str("]}");
    text.into_bytes()
}

/// The body of a request to decrypt: all in one, by one version of the key.
pub fn decrypt(version: u32, wrapped: &[&[u8]]) -> Vec<u8> {
    let mut text = r#"{"batch_input":["#.to_owned();
    for (place, wrapped) in wrapped.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(text, r#"{comma}{{"ciphertext":"{PREFIX}{version}:{}"}}"#, Base64::encode_string(wrapped));
    }
    text.push_str("]}");
    text.into_bytes()
}

/// The body of a request for a new key.
pub fn create(key_type: &str) -> Vec<u8> {
    format!(r#"{{"type":"{key_type}"}}"#).into_bytes()
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: Option<Data<'a>>,
    errors: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    batch_results: Option<Vec<Item<'a>>>,
}

/// Base64 has nothing to be escaped, so secrets are never copied out of the body: a text with an escape is refused.
#[derive(Deserialize)]
struct Item<'a> {
    signature: Option<&'a str>,
    plaintext: Option<&'a str>,
    error: Option<String>,
}

/// What came of one of the jobs of a request.
#[derive(PartialEq, Eq)]
pub enum Outcome {
    /// A signature, or a content key.
    Bytes(Zeroizing<Vec<u8>>),
    /// The server could not do it, in its words.
    Failed(String),
}

/// The results of a request with `count` jobs, in their order; none where the answer has no results at all, because the
/// request as a whole was refused. `of_version` is the version whose signatures are asked for; without it, what was
/// decrypted is.
///
/// # Errors
/// [`BadAnswer`]: not this API's JSON, another number of results, or those of another version of the key.
pub fn results(body: &[u8], count: usize, of_version: Option<u32>) -> Result<Option<Vec<Outcome>>, BadAnswer> {
    let envelope: Envelope<'_> = read(body)?;
    let Some(items) = envelope.data.and_then(|data| data.batch_results) else { return Ok(None) };
    if items.len() != count {
        return Err(BadAnswer::Malformed { why: "it has another number of results than was asked for" });
    }
    let one = |item: &Item<'_>| {
        if let Some(error) = item.error.as_deref().filter(|error| !error.is_empty()) {
            return Ok(Outcome::Failed(fit_to_show(error)));
        }
        let text = match of_version {
            Some(version) => signature_text(item.signature, version)?,
            None => item.plaintext.ok_or(BadAnswer::Malformed { why: "a result is missing" })?,
        };
        let mut bytes = Zeroizing::new(vec![0; text.len()]);
        let decoded = Base64::decode(text, &mut bytes).map(<[u8]>::len);
        let len = decoded.map_err(|_| BadAnswer::Malformed { why: "a result is not in base64" })?;
        bytes.truncate(len);
        Ok(Outcome::Bytes(bytes))
    };
    items.iter().map(one).collect::<Result<_, _>>().map(Some)
}

/// The base64 of a signature that is of this version of the key.
fn signature_text(signature: Option<&str>, version: u32) -> Result<&str, BadAnswer> {
    let signature = signature.ok_or(BadAnswer::Malformed { why: "a signature is missing" })?;
    let parts = signature.strip_prefix(PREFIX).and_then(|rest| rest.split_once(':'));
    match parts {
        Some((number, text)) if number.parse() == Ok(version) => Ok(text),
        Some(_) => Err(BadAnswer::Malformed { why: "it signs with another version of the key than was asked for" }),
        None => Err(BadAnswer::Malformed { why: "a signature does not say of which version of the key it is" }),
    }
}

/// What an answer says of why it refuses, made fit to be shown; empty where it says nothing that can be read.
pub fn refusal(body: &[u8]) -> String {
    let errors = read::<Envelope<'_>>(body).ok().and_then(|envelope| envelope.errors).unwrap_or_default();
    fit_to_show(&errors.join("; "))
}

/// One line without control characters, cut to [`WHY_BYTES_MAX`]: it comes from a server, and goes into logs and to
/// terminals.
pub fn fit_to_show(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        let space = if shown.is_empty() { "" } else { " " };
        if shown.len() + space.len() + word.len() > WHY_BYTES_MAX {
            shown.push('…');
            break;
        }
        shown.push_str(space);
        shown.push_str(word);
    }
    shown
}

#[derive(Deserialize)]
struct KeyEnvelope {
    data: KeyData,
}

#[derive(Deserialize)]
struct KeyData {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    keys: BTreeMap<String, serde_json::Value>,
    latest_version: u32,
    #[serde(default)]
    derived: bool,
}

/// What a server says of a key.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// Its type, in the API's word.
    pub kind: String,
    /// The newest version.
    pub latest: u32,
    /// The public key of each version, PEM; none of a key without one.
    pub public: BTreeMap<u32, String>,
}

/// What an answer says of a key.
///
/// # Errors
/// [`BadAnswer`]: not this API's JSON.
pub fn key_facts(body: &[u8]) -> Result<KeyFacts, BadAnswer> {
    let KeyData { kind, keys, latest_version, derived } = read::<KeyEnvelope>(body)?.data;
    let of_version = |(version, value): (String, serde_json::Value)| {
        let public = value.get("public_key").and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
        Some((version.parse().ok()?, public?.to_owned()))
    };
    let public = if derived { BTreeMap::new() } else { keys.into_iter().filter_map(of_version).collect() };
    Ok(KeyFacts { kind: fit_to_show(&kind), latest: latest_version, public })
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, BadAnswer> {
    serde_json::from_slice(body).map_err(|_| BadAnswer::Malformed { why: "it is not the JSON of a transit engine" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn requests_are_those_of_the_published_api() {
        assert_eq!(
            text(sign(Signing::Rsa(RsaScheme::Pss, Digest::Sha256), 2, &[b"abc", b"d"])),
            r#"{"key_version":2,"prehashed":true,"signature_algorithm":"pss","salt_length":"hash","batch_input":[{"input":"YWJj"},{"input":"ZA=="}]}"#
        );
        assert_eq!(
            text(sign(Signing::Rsa(RsaScheme::Pkcs1, Digest::Sha512), 1, &[b"abc"])),
            r#"{"key_version":1,"prehashed":true,"signature_algorithm":"pkcs1v15","batch_input":[{"input":"YWJj"}]}"#
        );
        assert_eq!(
            text(sign(Signing::Ecdsa(Digest::Sha256), 1, &[b"abc"])),
            r#"{"key_version":1,"prehashed":true,"marshaling_algorithm":"asn1","batch_input":[{"input":"YWJj"}]}"#
        );
        assert_eq!(text(decrypt(3, &[b"abc"])), r#"{"batch_input":[{"ciphertext":"vault:v3:YWJj"}]}"#);
    }

    fn shown(body: &str, count: usize, of_version: Option<u32>) -> String {
        match results(body.as_bytes(), count, of_version) {
            Ok(None) => "none".to_owned(),
            Ok(Some(results)) => {
                let one = |result: &Outcome| match result {
                    Outcome::Bytes(bytes) => String::from_utf8(bytes.to_vec()).expect("text"),
                    Outcome::Failed(why) => format!("({why})"),
                };
                results.iter().map(one).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn results_come_in_order_and_each_may_have_failed() {
        let signed = r#"{"request_id":"x","data":{"batch_results":[
            {"signature":"vault:v2:YWJj","key_version":2,"reference":""},
            {"signature":"","error":"no\nsuch \u001b[31mkey","reference":""},
            {"signature":"vault:v2:ZA==","publickey":null}]},"warnings":null}"#;
        assert_eq!(shown(signed, 3, Some(2)), "abc (no such [31mkey) d");
        let opened =
            r#"{"data":{"batch_results":[{"plaintext":"YWJj","reference":""},{"plaintext":"","error":"bad"}]}}"#;
        assert_eq!(shown(opened, 2, None), "abc (bad)");
        assert_eq!(shown(r#"{"data":{"batch_results":[{"plaintext":""}]}}"#, 1, None), "");
        assert_eq!(shown(r#"{"errors":["permission denied"]}"#, 1, None), "none");
        assert_eq!(shown(r#"{"data":null}"#, 1, None), "none");
    }

    #[test]
    fn an_answer_that_does_not_fit_the_question_is_refused() {
        let signature = |text: &str| format!(r#"{{"data":{{"batch_results":[{{"signature":"{text}"}}]}}}}"#);
        for (body, why) in [
            (signature("vault:v3:YWJj"), "another version of the key"),
            (signature("vault:v02x:YWJj"), "another version of the key"),
            (signature("YWJj"), "does not say of which version"),
            (signature("vault:v2:YW"), "not in base64"),
            (signature("vault:v2:YWJj\\n"), "not the JSON of a transit engine"),
            (r#"{"data":{"batch_results":[{}]}}"#.to_owned(), "a signature is missing"),
            (r#"{"data":{"batch_results":[]}}"#.to_owned(), "another number of results"),
            (r#"{"data":{"batch_results":"x"}}"#.to_owned(), "not the JSON of a transit engine"),
            ("<html>".to_owned(), "not the JSON of a transit engine"),
            (String::new(), "not the JSON of a transit engine"),
            ("[".repeat(1000), "not the JSON of a transit engine"),
        ] {
            let got = shown(&body, 1, Some(2));
            assert!(got.contains(why), "{body}: {got}");
        }
        assert_eq!(
            shown(r#"{"data":{"batch_results":[{"signature":"vault:v2:YWJj"}]}}"#, 1, None),
            "a result is missing"
        );
    }

    #[test]
    fn what_a_server_says_is_one_short_line() {
        let body = br#"{"errors":["2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"]}"#;
        assert_eq!(refusal(body), "2 errors occurred: * permission denied * invalid token");
        assert_eq!(refusal(b"<html>"), "");
        assert_eq!(refusal(br#"{"errors":[]}"#), "");
        let long = fit_to_show(&"word ".repeat(100));
        assert!(long.len() <= WHY_BYTES_MAX + '…'.len_utf8() && long.ends_with('…'), "{long}");
        assert_eq!(fit_to_show(&"é".repeat(1000)), "…");
    }

    #[test]
    fn a_key_has_a_public_half_for_each_version() {
        let body = br#"{"data":{"type":"rsa-2048","latest_version":2,"supports_signing":true,
            "keys":{"1":{"name":"rsa-2048","public_key":"PEM1"},"2":{"public_key":"PEM2"}}}}"#;
        let facts = key_facts(body).expect("a key");
        assert_eq!((facts.kind.as_str(), facts.latest), ("rsa-2048", 2));
        assert_eq!(facts.public.into_iter().collect::<Vec<_>>(), [(1, "PEM1".to_owned()), (2, "PEM2".to_owned())]);
        let symmetric = br#"{"data":{"type":"aes256-gcm96","latest_version":1,"keys":{"1":1700000000}}}"#;
        assert!(key_facts(symmetric).expect("a key").public.is_empty());
        assert!(key_facts(br#"{"data":{}}"#).is_err());
    }
}
