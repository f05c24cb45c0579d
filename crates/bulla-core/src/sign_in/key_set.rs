//! Keys that sign tokens: a JWK Set (RFC 7517), the public keys of their issuers.
//!
//! Taken are RSA keys of 2048 to 8192 bits, P-256 and Ed25519. Keys of other kinds, for other uses and for other
//! algorithms are passed over, as RFC 7517 (section 5) has it; a key of these kinds that is none is an error, and so is
//! a private one.

use base64ct::{Base64UrlUnpadded, Encoding};
use openssl::bn::{BigNum, BigNumRef};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Verifier};
use serde_json::{Map, Value};
use std::fmt;

/// Longest file in bytes.
pub const BYTES_MAX: usize = 256 << 10;
/// Most keys of a set.
pub const KEYS_MAX: usize = 64;
/// Shortest and longest RSA modulus in bits.
pub const RSA_BITS: std::ops::RangeInclusive<i32> = 2048..=8192;
/// Longest public exponent of RSA in bits: a longer one only costs the verifier time.
const RSA_EXPONENT_BITS_MAX: i32 = 64;
/// Bytes of a coordinate of P-256, and of each half of its signature (RFC 7518, sections 6.2.1.2 and 3.4).
const P256_BYTES: usize = 32;

/// How a token is signed. `none` and the HMACs (`HS256` …) are not among them, so nothing can choose them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518, section 3.3).
    Rs256,
    /// RSASSA-PSS with SHA-256 and a salt as long (RFC 7518, section 3.5).
    Ps256,
    /// ECDSA with P-256 and SHA-256 (RFC 7518, section 3.4).
    Es256,
    /// Ed25519 (RFC 8037).
    EdDsa,
}

/// The keys of a set that can verify.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

struct Key {
    id: Option<String>,
    /// The one algorithm that it is for, where it says so.
    algorithm: Option<Algorithm>,
    key: PKey<Public>,
}

/// Why a set of keys is none. The administrator's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeySetError {
    /// Longer than [`BYTES_MAX`].
    TooLong,
    /// Not a JSON object with an array `keys` of at most [`KEYS_MAX`] objects.
    Malformed,
    /// A key's field is missing, or of no use.
    Key {
        /// Which, counted from 1.
        number: usize,
        /// The field, or what is wrong with the key.
        what: &'static str,
    },
    /// A private key: it is in the wrong hands here, and the issuer of tokens has to replace it.
    Private {
        /// Which, counted from 1.
        number: usize,
    },
}

impl std::error::Error for KeySetError {}

impl fmt::Display for KeySetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "longer than {BYTES_MAX} bytes"),
            Self::Malformed => write!(f, "not a JWK set of at most {KEYS_MAX} keys"),
            Self::Key { number, what } => write!(f, "key {number}: {what}"),
            Self::Private { number } => write!(f, "key {number} is a private key, and is to be replaced by its issuer"),
        }
    }
}

impl Algorithm {
    const EVERY: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// The registered name (RFC 7518, section 3.1; RFC 8037).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of that very name.
    pub fn of(name: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|algorithm| algorithm.name() == name)
    }

    fn key_type(self) -> Id {
        match self {
            Self::Rs256 | Self::Ps256 => Id::RSA,
            Self::Es256 => Id::EC,
            Self::EdDsa => Id::ED25519,
        }
    }
}

impl KeySet {
    /// Reads a JWK Set.
    ///
    /// # Errors
    /// It is none, or a key in it is none. Of a set with such a key nothing is taken.
    pub fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        if text.len() > BYTES_MAX {
            return Err(KeySetError::TooLong);
        }
        let set: Value = serde_json::from_slice(text).map_err(|_| KeySetError::Malformed)?;
        let keys = set.get("keys").and_then(Value::as_array).filter(|keys| keys.len() <= KEYS_MAX);
        let mut found = Vec::new();
        for (index, key) in keys.ok_or(KeySetError::Malformed)?.iter().enumerate() {
            let fields = key.as_object().ok_or(KeySetError::Malformed)?;
            found.extend(Key::parse(fields, index + 1)?);
        }
        Ok(Self { keys: found })
    }

    /// How many keys there are to verify with.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether `signature` over `signed` is by the key that `id` names, or without a name by the only one for the
    /// algorithm. None where there is no such key, or more than one. Costs one verification.
    pub fn verify(&self, id: Option<&str>, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> Option<bool> {
        let mut fit = self.keys.iter().filter(|key| key.fits(id, algorithm));
        let (key, other) = (fit.next()?, fit.next());
        if other.is_some() {
            return None;
        }
        // What OpenSSL cannot make sense of is no signature.
        Some(key.verify(algorithm, signed, signature).unwrap_or(false))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl Key {
    /// None for a key that is for something else.
    fn parse(fields: &Map<String, Value>, number: usize) -> Result<Option<Self>, KeySetError> {
        let wrong = |what| KeySetError::Key { number, what };
        let text = |name: &'static str| match fields.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(wrong(name)),
        };
        let kind = text("kty")?.ok_or(wrong("kty"))?;
        if kind != "oct" && fields.contains_key("d") {
            return Err(KeySetError::Private { number });
        }
        let verifies = match fields.get("key_ops") {
            None => true,
            Some(Value::Array(operations)) => operations.iter().any(|operation| operation == "verify"),
            Some(_) => return Err(wrong("key_ops")),
        };
        let algorithm = match text("alg")? {
            None => None,
            Some(name) => match Algorithm::of(name) {
                Some(algorithm) => Some(algorithm),
                None => return Ok(None),
            },
        };
        if !verifies || text("use")?.is_some_and(|purpose| purpose != "sig") {
            return Ok(None);
        }
        let part = |name: &'static str| text(name)?.and_then(base64url).ok_or(wrong(name));
        let key = match (kind, text("crv")?) {
            ("RSA", _) => rsa(&part("n")?, &part("e")?).map_err(wrong)?,
            ("EC", Some("P-256")) => p256(&part("x")?, &part("y")?).ok_or(wrong("not a point of P-256"))?,
            ("OKP", Some("Ed25519")) => {
                PKey::public_key_from_raw_bytes(&part("x")?, Id::ED25519).map_err(|_| wrong("not a key of Ed25519"))?
            }
            _ => return Ok(None),
        };
        if algorithm.is_some_and(|algorithm| algorithm.key_type() != key.id()) {
            return Err(wrong("alg is not one of its kty"));
        }
        Ok(Some(Self { id: text("kid")?.map(str::to_owned), algorithm, key }))
    }

    fn fits(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        self.key.id() == algorithm.key_type()
            && self.algorithm.is_none_or(|own| own == algorithm)
            && (id.is_none() || self.id.as_deref() == id)
    }

    fn verify(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> Result<bool, ErrorStack> {
        let digest = MessageDigest::sha256();
        match algorithm {
            Algorithm::EdDsa => Verifier::new_without_digest(&self.key)?.verify_oneshot(signature, signed),
            Algorithm::Es256 => {
                if signature.len() != 2 * P256_BYTES {
                    return Ok(false);
                }
                let (r, s) = signature.split_at(P256_BYTES);
                let pair = EcdsaSig::from_private_components(BigNum::from_slice(r)?, BigNum::from_slice(s)?)?;
                Verifier::new(digest, &self.key)?.verify_oneshot(&pair.to_der()?, signed)
            }
            Algorithm::Rs256 => Verifier::new(digest, &self.key)?.verify_oneshot(signature, signed),
            Algorithm::Ps256 => {
                let mut verifier = Verifier::new(digest, &self.key)?;
                verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                verifier.set_rsa_mgf1_md(digest)?;
                verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
                verifier.verify_oneshot(signature, signed)
            }
        }
    }
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<PKey<Public>, &'static str> {
    const NONE: &str = "not a key of RSA";
    let number = |bytes| BigNum::from_slice(bytes).map_err(|_| NONE);
    let (n, e) = (number(modulus)?, number(exponent)?);
    if !RSA_BITS.contains(&n.num_bits()) {
        return Err("RSA needs 2048 to 8192 bits");
    }
    let is_odd = |number: &BigNumRef| number.is_bit_set(0);
    if !is_odd(&n) || !is_odd(&e) || e.num_bits() < 2 || e.num_bits() > RSA_EXPONENT_BITS_MAX {
        return Err(NONE);
    }
    Rsa::from_public_components(n, e).and_then(PKey::from_rsa).map_err(|_| NONE)
}

fn p256(x: &[u8], y: &[u8]) -> Option<PKey<Public>> {
    if x.len() != P256_BYTES || y.len() != P256_BYTES {
        return None;
    }
    let made = || -> Result<PKey<Public>, ErrorStack> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let (x, y) = (BigNum::from_slice(x)?, BigNum::from_slice(y)?);
        let key = EcKey::from_public_key_affine_coordinates(&group, &x, &y)?;
        key.check_key()?;
        PKey::from_ec_key(key)
    };
    made().ok()
}

/// Base64 in the alphabet for URLs and without padding (RFC 7515, section 2), of one spelling only: surplus bits are
/// zero.
pub(super) fn base64url(text: &str) -> Option<Vec<u8>> {
    Base64UrlUnpadded::decode_vec(text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::test_tokens::{Issuer, encode};
    use super::*;
    use serde_json::json;

    fn parse(keys: &Value) -> Result<usize, KeySetError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).map(|set| set.len())
    }

    fn changed(issuer: &Issuer, name: &str, value: Value) -> Value {
        let mut jwk = issuer.jwk();
        jwk[name] = value;
        json!([jwk])
    }

    #[test]
    fn keys_for_something_else_are_passed_over() {
        let issuer = Issuer::p256("key");
        assert_eq!(parse(&json!([issuer.jwk()])), Ok(1));
        for (name, value) in [
            ("use", json!("enc")),
            ("key_ops", json!(["sign"])),
            ("alg", json!("ES512")),
            ("crv", json!("P-384")),
            ("kty", json!("quantum")),
        ] {
            assert_eq!(parse(&changed(&issuer, name, value)), Ok(0), "{name}");
        }
        let secret = json!({ "kty": "oct", "k": encode(b"a secret that both sides know") });
        assert_eq!(parse(&json!([secret, issuer.jwk()])), Ok(1), "an HMAC's key is never one");
        assert_eq!(parse(&changed(&issuer, "key_ops", json!(["verify", "sign"]))), Ok(1));
        assert_eq!(parse(&json!([])), Ok(0));
    }

    #[test]
    fn a_key_that_is_none_is_told_with_its_number() {
        let [rsa, _, p256, ed25519] = Issuer::every_kind();
        let refused = |jwk: Value| match KeySet::parse(json!({ "keys": [rsa.jwk(), jwk] }).to_string().as_bytes()) {
            Err(KeySetError::Key { number: 2, what }) => what,
            other => panic!("{other:?}"),
        };
        let of = |issuer: &Issuer, name: &str, value: Value| changed(issuer, name, value)[0].clone();
        assert_eq!(refused(of(&rsa, "n", Value::Null)), "n");
        assert_eq!(refused(of(&rsa, "e", encode(&[2]).into())), "not a key of RSA");
        assert_eq!(refused(of(&rsa, "e", encode(&[1]).into())), "not a key of RSA");
        assert_eq!(refused(of(&rsa, "e", encode(&[255; 9]).into())), "not a key of RSA");
        assert_eq!(refused(of(&rsa, "n", encode(&[255; 2_000]).into())), "RSA needs 2048 to 8192 bits");
        assert_eq!(refused(Issuer::rsa("short", 1024, Algorithm::Rs256).jwk()), "RSA needs 2048 to 8192 bits");
        assert_eq!(refused(of(&p256, "x", encode(&[1; 32]).into())), "not a point of P-256");
        assert_eq!(refused(of(&p256, "y", encode(&[1; 31]).into())), "not a point of P-256");
        assert_eq!(refused(of(&ed25519, "x", encode(&[1; 31]).into())), "not a key of Ed25519");
        assert_eq!(refused(of(&ed25519, "alg", "RS256".into())), "alg is not one of its kty");
        assert_eq!(refused(of(&p256, "kid", 7.into())), "kid");
        assert_eq!(refused(json!({})), "kty");
    }

    #[test]
    fn a_private_key_is_refused_with_everything_beside_it() {
        let issuer = Issuer::ed25519("key");
        let secret = encode(&issuer.key.raw_private_key().unwrap());
        assert_eq!(parse(&changed(&issuer, "d", secret.clone().into())), Err(KeySetError::Private { number: 1 }));
        let said = KeySet::parse(changed(&issuer, "d", secret.clone().into()).to_string().as_bytes());
        assert!(!format!("{said:?}").contains(&secret));
    }

    #[test]
    fn a_set_of_another_form_or_size_is_refused() {
        for text in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[1]}", "{\"keys\":[]", "keys"] {
            assert_eq!(KeySet::parse(text.as_bytes()).err(), Some(KeySetError::Malformed), "{text}");
        }
        let many: Vec<Value> = (0..=KEYS_MAX).map(|_| json!({ "kty": "oct" })).collect();
        assert_eq!(parse(&many.into()), Err(KeySetError::Malformed));
        assert_eq!(KeySet::parse(&vec![b' '; BYTES_MAX + 1]).err(), Some(KeySetError::TooLong));
    }

    #[test]
    fn base64_for_urls_has_one_spelling() {
        for bytes in [&b""[..], b"a", b"ab", b"abc", &[0xff; 5], &[0xfb, 0xef]] {
            assert_eq!(base64url(&encode(bytes)).as_deref(), Some(bytes));
        }
        for text in ["A", "AB", "AAB", "AA==", "+A", "/A", "A A", "AAAAA", "\u{e9}A"] {
            assert_eq!(base64url(text), None, "{text}");
        }
    }
}
