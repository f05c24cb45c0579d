//! An issuer of tokens, for tests: keys of its own, and tokens good and bad.

use super::key_set::Algorithm;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer};
use serde_json::{Value, json};

/// One with one key.
pub(crate) struct Issuer {
    key_name: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: PKey<Private>,
}

impl Issuer {
    pub(crate) fn rsa(key_name: &str, bits: u32, algorithm: Algorithm) -> Self {
        let key = PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap();
        Self { key_name: key_name.into(), algorithm, key }
    }

    pub(crate) fn p256(key_name: &str) -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        Self { key_name: key_name.into(), algorithm: Algorithm::Es256, key }
    }

    pub(crate) fn ed25519(key_name: &str) -> Self {
        Self { key_name: key_name.into(), algorithm: Algorithm::EdDsa, key: PKey::generate_ed25519().unwrap() }
    }

    pub(crate) fn every_kind() -> [Self; 4] {
        [
            Self::rsa("rsa", 2048, Algorithm::Rs256),
            Self::rsa("pss", 2048, Algorithm::Ps256),
            Self::p256("p256"),
            Self::ed25519("ed25519"),
        ]
    }

    pub(crate) fn name(&self) -> String {
        "https://issuer.example".into()
    }

    /// The public key, as a JWK.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match self.algorithm {
            Algorithm::Rs256 | Algorithm::Ps256 => {
                let rsa = self.key.rsa().unwrap();
                json!({ "kty": "RSA", "n": encode(&rsa.n().to_vec()), "e": encode(&rsa.e().to_vec()) })
            }
            Algorithm::Es256 => {
                let ec = self.key.ec_key().unwrap();
                let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
                let mut context = BigNumContext::new().unwrap();
                ec.public_key().affine_coordinates(ec.group(), &mut x, &mut y, &mut context).unwrap();
                let [x, y] = [x, y].map(|number| encode(&number.to_vec_padded(32).unwrap()));
                json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y })
            }
            Algorithm::EdDsa => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(&self.key.raw_public_key().unwrap()) })
            }
        };
        jwk["kid"] = self.key_name.as_str().into();
        jwk["use"] = "sig".into();
        jwk["alg"] = self.algorithm.name().into();
        jwk
    }

    pub(crate) fn key_set(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    pub(crate) fn header(&self) -> Value {
        json!({ "alg": self.algorithm.name(), "typ": "JWT", "kid": self.key_name })
    }

    /// What a good token says at `now`.
    pub(crate) fn claims(&self, now: u64) -> Value {
        json!({
            "iss": self.name(), "aud": ["other", "queues"], "sub": "orders", "iat": now, "nbf": now, "exp": now + 300
        })
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.signed(&self.header(), claims)
    }

    pub(crate) fn signed(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        format!("{signed}.{}", encode(&self.sign(signed.as_bytes())))
    }

    fn sign(&self, signed: &[u8]) -> Vec<u8> {
        let digest = MessageDigest::sha256();
        match self.algorithm {
            Algorithm::EdDsa => Signer::new_without_digest(&self.key).unwrap().sign_oneshot_to_vec(signed).unwrap(),
            Algorithm::Rs256 => Signer::new(digest, &self.key).unwrap().sign_oneshot_to_vec(signed).unwrap(),
            Algorithm::Es256 => {
                let der = Signer::new(digest, &self.key).unwrap().sign_oneshot_to_vec(signed).unwrap();
                let pair = EcdsaSig::from_der(&der).unwrap();
                [pair.r(), pair.s()].map(|number| number.to_vec_padded(32).unwrap()).concat()
            }
            Algorithm::Ps256 => {
                let mut signer = Signer::new(digest, &self.key).unwrap();
                signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
                signer.set_rsa_mgf1_md(digest).unwrap();
                signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
                signer.sign_oneshot_to_vec(signed).unwrap()
            }
        }
    }
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    openssl::base64::encode_block(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}
