//! What is signed, what is read, and what is shown, each without an authority; the end-to-end tests have Pebble.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use super::directory::Directory;
use super::http_01::{Http01, answer};
use super::jws::{self, AccountKey};
use super::order::{Identifier, Proof};
use super::problem::Problem;
use super::request;
use super::tls_alpn_01::TlsAlpn01;
use crate::tls::proof;
use base64ct::{Base64UrlUnpadded, Encoding};
use bulla_device::http::{Answer, Url};
use bulla_seal::certificate::create::{AlternativeName, Asked};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::sha::sha256;
use openssl::x509::X509;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

fn bytes(text: &str) -> Vec<u8> {
    Base64UrlUnpadded::decode_vec(text).unwrap()
}

/// The key of RFC 7515, appendix A.3.1.
fn known_key() -> AccountKey {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let number = |text: &str| BigNum::from_slice(&bytes(text)).unwrap();
    let x = number("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
    let y = number("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    let private = number("jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI");
    let mut point = EcPoint::new(&group).unwrap();
    let mut room = openssl::bn::BigNumContext::new().unwrap();
    point.set_affine_coordinates_gfp(&group, &x, &y, &mut room).unwrap();
    let key = EcKey::from_private_components(&group, &private, &point).unwrap();
    AccountKey::new(PKey::from_ec_key(key).unwrap()).unwrap()
}

/// Header, payload and signature of a request, and what was signed.
fn taken_apart(jws: &Value) -> (Value, String, Vec<u8>, String) {
    let part = |name: &str| jws[name].as_str().unwrap().to_owned();
    let header = serde_json::from_slice(&bytes(&part("protected"))).unwrap();
    let payload = String::from_utf8(bytes(&part("payload"))).unwrap();
    (header, payload, bytes(&part("signature")), format!("{}.{}", part("protected"), part("payload")))
}

#[test]
fn a_request_is_signed_by_the_account_or_by_the_key_itself() {
    let key = known_key();
    let jwk = json!({
        "crv": "P-256", "kty": "EC",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
    });
    assert_eq!(key.jwk(), jwk);
    // RFC 7638, of this key.
    assert_eq!(key.thumbprint(), jws::base64url(&sha256(jwk.to_string().as_bytes())));
    let signed = key.signed("https://ca.example/order", "n0", Some("https://ca.example/1"), Some(&json!({ "a": 1 })));
    let jws: Value = serde_json::from_slice(&signed.unwrap()).unwrap();
    let (header, payload, signature, text) = taken_apart(&jws);
    assert_eq!(
        header,
        json!({ "alg": "ES256", "kid": "https://ca.example/1", "nonce": "n0", "url": "https://ca.example/order" })
    );
    assert_eq!((payload.as_str(), signature.len()), (r#"{"a":1}"#, 64));
    let half = |at: usize| BigNum::from_slice(&signature[at..at + 32]).unwrap();
    let signature = EcdsaSig::from_private_components(half(0), half(32)).unwrap();
    let public = PKey::public_key_from_der(&PKey::from_ec_key(ec_of(&key.jwk())).unwrap().public_key_to_der().unwrap());
    assert!(signature.verify(&sha256(text.as_bytes()), &public.unwrap().ec_key().unwrap()).unwrap());
    // Without an account the key is in the header; without a payload it only reads.
    let jws: Value = serde_json::from_slice(&key.signed("https://ca.example/x", "n1", None, None).unwrap()).unwrap();
    let (header, payload, ..) = taken_apart(&jws);
    assert_eq!((header["jwk"].clone(), header.get("kid"), payload.as_str()), (jwk, None, ""));
}

fn ec_of(jwk: &Value) -> EcKey<openssl::pkey::Public> {
    let number = |name: &str| BigNum::from_slice(&bytes(jwk[name].as_str().unwrap())).unwrap();
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    EcKey::from_public_key_affine_coordinates(&group, &number("x"), &number("y")).unwrap()
}

#[test]
fn an_account_is_bound_to_somebody_who_is_known() {
    let key = known_key();
    let bound = key.bound("https://ca.example/account", "kid-1", b"a shared secret of some length").unwrap();
    let (header, payload, signature, text) = taken_apart(&bound);
    assert_eq!(header, json!({ "alg": "HS256", "kid": "kid-1", "url": "https://ca.example/account" }));
    assert_eq!(serde_json::from_str::<Value>(&payload).unwrap(), key.jwk());
    let shared = PKey::hmac(b"a shared secret of some length").unwrap();
    let mut signer = openssl::sign::Signer::new(openssl::hash::MessageDigest::sha256(), &shared).unwrap();
    assert_eq!(signer.sign_oneshot_to_vec(text.as_bytes()).unwrap(), signature);
}

#[test]
fn another_kind_of_key_is_no_accounts() {
    for kind in ["rsa2048", "p384"] {
        let key = kind.parse::<bulla_seal::certificate::KeySpec>().unwrap().generate().unwrap();
        assert!(AccountKey::new(key).unwrap_err().to_string().contains("none of P-256"), "{kind}");
    }
}

#[test]
fn a_directory_leads_to_its_own_server_alone() {
    let at: Url = "https://ca.example:14000/dir".parse().unwrap();
    let text = r#"{"newNonce":"https://ca.example:14000/n","newAccount":"https://CA.example:14000/a",
                   "newOrder":"https://ca.example:14000/o","meta":{"termsOfService":"t","caaIdentities":["x"]}}"#;
    let read = |text: &str| Directory::read(text.as_bytes(), &at).map_err(|error| error.to_string());
    let directory = read(text).unwrap();
    assert_eq!(directory.new_account.to_string(), "https://ca.example:14000/a");
    assert_eq!(directory.meta.terms_of_service.as_deref(), Some("t"));
    for (from, to, says) in [
        ("https://ca.example:14000/o", "http://ca.example:14000/o", "another server"),
        ("https://ca.example:14000/o", "https://ca.example/o", "another server"),
        ("https://ca.example:14000/o", "https://ca.example.evil:14000/o", "another server"),
        ("https://ca.example:14000/o", "https://ca.example:14000@evil/o", "a user in it"),
        ("https://ca.example:14000/o", "/o", "neither http:// nor https://"),
        (r#""newOrder":"#, r#""other":"#, "missing field"),
        ("{", "[", "directory: "),
    ] {
        let why = read(&text.replace(from, to)).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn a_problem_is_told_in_a_line() {
    let told = |status, body: &str| {
        let body = body.as_bytes().to_vec().into();
        Problem::of(&Answer { status, fields: Vec::new(), body, closes: false }).refused().to_string()
    };
    let text = r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too\nmany"}"#;
    assert_eq!(told(429, text), "refused: rateLimited: too many");
    let text = r#"{"type":"urn:ietf:params:acme:error:compound","detail":"two",
                   "subproblems":[{"detail":"no","identifier":{"type":"dns","value":"a.example"}},{"detail":"nor"}]}"#;
    assert_eq!(told(400, text), "refused: compound: two; a.example: no; : nor");
    for text in ["", "<html>", "[]", r#"{"type":5}"#, r#"{"type":"about:blank"}"#] {
        assert_eq!(told(503, text), "refused: HTTP status 503", "{text}");
    }
    assert!(told(400, &format!(r#"{{"type":"x","detail":"{}"}}"#, "y".repeat(9999))).len() < 300);
}

fn of(name: &str) -> Identifier {
    Identifier::of(&name.parse().unwrap()).unwrap()
}

#[test]
fn a_name_is_proved_by_a_token_of_the_authority() {
    let proof = Proof::new(&of("dns:MQ.Example"), "abc-_9", "thumb").unwrap();
    assert_eq!((proof.text.as_str(), proof.server_name().as_str()), ("abc-_9.thumb", "mq.example"));
    let v4 = Proof::new(&of("ip:192.0.2.7"), "a", "t").unwrap();
    assert_eq!(v4.server_name(), "7.2.0.192.in-addr.arpa");
    let v6 = Proof::new(&of("ip:2001:db8::1"), "a", "t").unwrap();
    let zeros = "0.".repeat(22);
    assert_eq!(v6.server_name(), format!("1.{zeros}0.8.b.d.0.1.0.0.2.ip6.arpa"));
    for token in ["", "../a", "a b", "a\r\nb", "a=", &"a".repeat(257)] {
        assert!(Proof::new(&of("dns:a"), token, "t").is_err(), "{token:?}");
    }
    for name in ["dns:*.example", "uri:urn:x", "email:a@b"] {
        assert!(Identifier::of(&name.parse().unwrap()).is_err(), "{name}");
    }
}

#[test]
fn a_request_has_the_names_and_no_subject() {
    let key = jws::KEY.generate().unwrap();
    let names: Vec<AlternativeName> = ["dns:mq.example", "ip:192.0.2.7"].map(|name| name.parse().unwrap()).into();
    let asked = Asked::of(&request::der(&key, &names).unwrap()).unwrap();
    assert_eq!((asked.dn.as_str(), asked.names), ("", names));
}

#[test]
fn the_listener_shows_its_texts_and_nothing_else() {
    let texts = BTreeMap::from([("abc".to_owned(), "abc.thumb".to_owned())]);
    let said = |asked: &str| answer(asked.as_bytes(), &texts).map(|bytes| String::from_utf8(bytes).unwrap());
    let good = "GET /.well-known/acme-challenge/abc HTTP/1.1\r\nHost: mq.example\r\n\r\n";
    let whole = said(good).unwrap();
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("\r\n\r\nabc.thumb"), "{whole}");
    assert_eq!(said(&good[..good.len() - 2]), None);
    for other in [
        good.replace("/abc", "/abd"),
        good.replace("/abc", "/../abc"),
        good.replace("GET", "POST"),
        "nonsense\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(9000)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(65)),
    ] {
        assert!(said(&other).unwrap().starts_with("HTTP/1.1 404 "), "{other}");
    }
}

#[test]
fn callers_who_say_nothing_keep_nobody_from_the_proof() {
    let listener = Http01::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    listener.show(&Proof::new(&of("dns:mq.example"), "abc", "thumb").unwrap());
    let address = listener.address();
    let silent: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut caller = TcpStream::connect(address).unwrap();
    caller.write_all(b"GET /.well-known/acme-challenge/abc HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut said = String::new();
    caller.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("abc.thumb"), "{said}");
    drop((silent, listener));
    assert!(TcpStream::connect(address).is_err(), "it ends with its proof");
}

#[test]
fn a_certificate_of_a_proof_says_what_the_authority_reads() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("enrolment").join(proof::FOLDER);
    let shown = Proof::new(&of("dns:MQ.example"), "abc", "thumb").unwrap();
    let mut files = TlsAlpn01::new(folder.clone()).unwrap();
    files.show(&shown).unwrap();
    let pem = std::fs::read(folder.join("mq.example.pem")).unwrap();
    let certificate = X509::from_pem(&pem).unwrap();
    assert_eq!(certificate.subject_alt_names().unwrap()[0].dnsname(), Some("mq.example"));
    // Critical, by the extension's number, with the digest inside an OCTET STRING (RFC 8737, section 3).
    let der = certificate.to_der().unwrap();
    let digest = sha256(b"abc.thumb");
    let extension = [&[6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 31, 1, 1, 0xff, 4, 34, 4, 32][..], &digest].concat();
    assert!(der.windows(extension.len()).any(|window| window == extension));
    drop(files);
    assert!(!folder.exists());
}
