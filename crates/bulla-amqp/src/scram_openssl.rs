//! What SCRAM stands on, from OpenSSL.

use crate::ScramCrypto;
use openssl::hash::MessageDigest;
use openssl::sha::{Sha256, sha256};
use openssl::{base64, pkcs5, rand};

/// Bytes of a block of SHA-256 (RFC 2104).
const BLOCK_BYTES: usize = 64;

/// OpenSSL's primitives for SCRAM.
#[derive(Clone, Copy, Debug)]
pub struct Crypto;

impl ScramCrypto for Crypto {
    fn hmac(&self, key: &[u8], data: &[u8]) -> [u8; 32] {
        let hashed = (key.len() > BLOCK_BYTES).then(|| sha256(key));
        let mut block = [0; BLOCK_BYTES];
        for (padded, byte) in block.iter_mut().zip(hashed.as_ref().map_or(key, |hash| &hash[..])) {
            *padded = *byte;
        }
        let keyed = |pad: u8, data: &[u8]| {
            let mut hash = Sha256::new();
            hash.update(&block.map(|byte| byte ^ pad));
            hash.update(data);
            hash.finish()
        };
        keyed(0x5c, &keyed(0x36, data))
    }

    fn sha256(&self, data: &[u8]) -> [u8; 32] {
        sha256(data)
    }

    fn pbkdf2(&self, password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
        let mut key = [0; 32];
        let rounds = usize::try_from(iterations.max(1)).unwrap_or(1);
        pkcs5::pbkdf2_hmac(password, salt, rounds, MessageDigest::sha256(), &mut key)
            .expect("OpenSSL has SHA-256, and there is at least one round");
        key
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; 24];
        rand::rand_bytes(&mut bytes).expect("the system has randomness");
        base64::encode_block(&bytes)
    }
}
