//! Requests that an account signs: JWS in its flattened form (RFC 7515, section 7.2.2), by ES256 (RFC 7518, section
//! 3.4).

use crate::enrolment::EnrolError;
use base64ct::{Base64UrlUnpadded, Encoding};
use bulla_seal::certificate::{Curve, KeySpec};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::sha::sha256;
use openssl::sign::Signer;
use serde_json::{Map, Value, json};

/// The kind of an account's key.
pub const KEY: KeySpec = KeySpec::Ec(Curve::P256);
/// Bytes of a coordinate of P-256, and of each half of a signature.
const FIELD_BYTES: i32 = 32;

/// In base64url without padding (RFC 7515, section 2).
pub fn base64url(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

/// Whether a text has characters of base64url alone, and one at least.
pub fn is_base64url(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The key of an account.
#[derive(Debug)]
pub struct AccountKey {
    key: PKey<Private>,
    /// Its public half (RFC 7517), with its members in the order of RFC 7638.
    jwk: String,
}

impl AccountKey {
    /// Of a private key.
    ///
    /// # Errors
    /// [`EnrolError::Protocol`] for a key that is not of P-256.
    pub fn new(key: PKey<Private>) -> Result<AccountKey, EnrolError> {
        let of_another_kind = || EnrolError::Protocol { why: "the account's key is none of P-256".to_owned() };
        let ec = key.ec_key().map_err(|_| of_another_kind())?;
        if ec.group().curve_name() != Some(Nid::X9_62_PRIME256V1) {
            return Err(of_another_kind());
        }
        let point = || -> Result<(Vec<u8>, Vec<u8>), ErrorStack> {
            let (mut x, mut y, mut room) = (BigNum::new()?, BigNum::new()?, BigNumContext::new()?);
            ec.public_key().affine_coordinates(ec.group(), &mut x, &mut y, &mut room)?;
            Ok((x.to_vec_padded(FIELD_BYTES)?, y.to_vec_padded(FIELD_BYTES)?))
        };
        let (x, y) = point().map_err(failed)?;
        let jwk = format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, base64url(&x), base64url(&y));
        Ok(AccountKey { key, jwk })
    }

    /// What names the key (RFC 7638).
    pub fn thumbprint(&self) -> String {
        base64url(&sha256(self.jwk.as_bytes()))
    }

    /// The public half, as it goes into a header.
    pub fn jwk(&self) -> Value {
        serde_json::from_str(&self.jwk).unwrap_or_default()
    }

    /// A request to `url`. `kid` is the account; without it the key itself is in the header. Without a payload it only
    /// reads (RFC 8555, section 6.3).
    ///
    /// # Errors
    /// The library's.
    pub fn signed(
        &self,
        url: &str,
        nonce: &str,
        kid: Option<&str>,
        payload: Option<&Value>,
    ) -> Result<Vec<u8>, EnrolError> {
        let mut header = Map::new();
        header.insert("alg".to_owned(), "ES256".into());
        match kid {
            Some(kid) => header.insert("kid".to_owned(), kid.into()),
            None => header.insert("jwk".to_owned(), self.jwk()),
        };
        header.insert("nonce".to_owned(), nonce.into());
        header.insert("url".to_owned(), url.into());
        let payload = payload.map_or(String::new(), Value::to_string);
        flattened(&Value::Object(header), payload.as_bytes(), |text| {
            let mut signer = Signer::new(MessageDigest::sha256(), &self.key)?;
            let signature = EcdsaSig::from_der(&signer.sign_oneshot_to_vec(text)?)?;
            let halves = [signature.r().to_vec_padded(FIELD_BYTES)?, signature.s().to_vec_padded(FIELD_BYTES)?];
            Ok(halves.concat())
        })
        .map(|jws| jws.to_string().into_bytes())
    }

    /// The proof that the customer whom the authority knows by `id` has this account (RFC 8555, section 7.3.4): the
    /// public half, authenticated with HMAC and the key that they share.
    ///
    /// # Errors
    /// The library's.
    pub fn bound(&self, url: &str, id: &str, shared: &[u8]) -> Result<Value, EnrolError> {
        let header = json!({ "alg": "HS256", "kid": id, "url": url });
        flattened(&header, self.jwk.as_bytes(), |text| {
            let key = PKey::hmac(shared)?;
            Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot_to_vec(text)
        })
    }
}

fn flattened(
    header: &Value,
    payload: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, ErrorStack>,
) -> Result<Value, EnrolError> {
    let (protected, payload) = (base64url(header.to_string().as_bytes()), base64url(payload));
    let signature = sign(format!("{protected}.{payload}").as_bytes()).map_err(failed)?;
    Ok(json!({ "protected": protected, "payload": payload, "signature": base64url(&signature) }))
}

pub(super) fn failed(errors: ErrorStack) -> EnrolError {
    EnrolError::Create(errors.into())
}
