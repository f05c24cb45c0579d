//! Any set of keys, any response and any token: an answer or an error; a token that nobody signed signs nobody in, and
//! one that was signed is taken only with the claims that it must have.
//!
//! A line each: a set of keys, a header, claims; the rest is a response. Header and claims are signed with a key that
//! is known.

#![no_main]

use bulla::sign_in::key_set::KeySet;
use bulla::sign_in::token::{self, Expected};
use bulla::users;
use bulla_amqp::BearerResponse;
use libfuzzer_sys::fuzz_target;
use openssl::base64::encode_block;
use openssl::pkey::{Id, PKey, Private};
use openssl::sign::Signer;
use serde_json::{Value, json};
use std::sync::LazyLock;

const NOW: u64 = 1_795_296_295;

static KEY: LazyLock<PKey<Private>> = LazyLock::new(|| {
    PKey::private_key_from_raw_bytes(&[7; 32], Id::ED25519).expect("any 32 bytes are a key of Ed25519")
});
static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let public = encode(&KEY.raw_public_key().expect("it has a public part"));
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": public, "kid": "key" }] });
    KeySet::parse(set.to_string().as_bytes()).expect("a set of one key")
});
static EXPECTED: LazyLock<Expected> = LazyLock::new(|| Expected {
    issuer: "https://issuer.example".into(),
    audience: "queues".into(),
    user_claim: "sub".into(),
});

fn encode(bytes: &[u8]) -> String {
    encode_block(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(4, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (set, header, claims, response) = (next(), next(), next(), next());

    let other = KeySet::parse(set);
    if let Some(bearer) = BearerResponse::parse(response) {
        assert!(!bearer.token.is_empty());
        assert!(token::check(bearer.token, &KEYS, &EXPECTED, NOW).is_err(), "nobody else has the key");
        if let Ok(other) = &other {
            let _ = token::check(bearer.token, other, &EXPECTED, NOW);
        }
    }

    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = Signer::new_without_digest(&KEY).and_then(|mut signer| signer.sign_oneshot_to_vec(signed.as_bytes()));
    let token = format!("{signed}.{}", encode(&signature.expect("a key signs anything")));
    if let Ok(grant) = token::check(&token, &KEYS, &EXPECTED, NOW) {
        let header: Value = serde_json::from_slice(header).expect("a header that was read");
        let claims: Value = serde_json::from_slice(claims).expect("claims that were read");
        assert!(header["alg"] == "EdDSA" && header.get("crit").is_none());
        assert!(claims["iss"] == EXPECTED.issuer.as_str() && claims["sub"] == grant.user.as_str());
        assert!(claims["aud"] == "queues" || claims["aud"].as_array().is_some_and(|all| all.iter().any(|one| one == "queues")));
        assert!(users::is_valid_name(&grant.user) && grant.until > NOW);
    }
});
