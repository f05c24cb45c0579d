//! What takes the place of a content key that did not unwrap (implicit rejection).
//!
//! With OAEP that is a random key. With PKCS#1 v1.5 it is derived from the private key and the ciphertext: any sender
//! can make a ciphertext whose padding is right by chance, and sending it again must not tell, by another key each
//! time, that it was not. The construction is that of OpenSSL 3.2 and draft-irtf-cfrg-rsa-guidance in short: there is
//! one length that a content key may have, so none is derived.

use std::fmt;
use std::sync::OnceLock;

use openssl::error::ErrorStack;
use openssl::rsa::Rsa;
use openssl::sha::Sha256;
use zeroize::Zeroizing;

use crate::device::DeviceError;
use crate::random::{Random, RandomError, SystemRandom};

/// What keeps this hash of a private exponent apart from any other.
const OF_PRIVATE_KEY: &[u8] = b"bulla rejection secret";
/// Bytes of the longest content key.
const CONTENT_KEY_BYTES_MAX: usize = 32;

/// The secret from which the content keys of failed PKCS#1 v1.5 unwraps are derived. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct RejectionSecret(Zeroizing<[u8; RejectionSecret::LEN]>);

impl RejectionSecret {
    /// Its bytes.
    pub const LEN: usize = 32;

    /// One that was kept, for keys on tokens.
    pub fn new(bytes: Zeroizing<[u8; RejectionSecret::LEN]>) -> RejectionSecret {
        RejectionSecret(bytes)
    }

    /// A new one, to be kept.
    ///
    /// # Errors
    /// As [`Random::fill`].
    pub fn random() -> Result<RejectionSecret, RandomError> {
        let mut bytes = Zeroizing::new([0; RejectionSecret::LEN]);
        SystemRandom.fill(&mut *bytes)?;
        Ok(RejectionSecret(bytes))
    }

    /// One for as long as this process lives, where none can be kept.
    ///
    /// # Errors
    /// As [`Random::fill`].
    pub fn of_this_process() -> Result<RejectionSecret, RandomError> {
        static SECRET: OnceLock<RejectionSecret> = OnceLock::new();
        if let Some(secret) = SECRET.get() {
            return Ok(secret.clone());
        }
        let secret = RejectionSecret::random()?;
        Ok(SECRET.get_or_init(|| secret).clone())
    }

    /// That of a key whose private exponent is known.
    pub(crate) fn of_rsa<T: openssl::pkey::HasPrivate>(key: &Rsa<T>) -> Result<RejectionSecret, ErrorStack> {
        let len = i32::try_from(key.size()).unwrap_or(i32::MAX);
        let exponent = Zeroizing::new(key.d().to_vec_padded(len)?);
        let mut hash = Sha256::new();
        hash.update(OF_PRIVATE_KEY);
        hash.update(&exponent);
        Ok(RejectionSecret(Zeroizing::new(hash.finish())))
    }

    /// To be written down.
    pub fn as_bytes(&self) -> &[u8; RejectionSecret::LEN] {
        &self.0
    }

    /// The secret of one of the keys that share this one.
    pub(crate) fn of_key(&self, id: &[u8; 32]) -> RejectionSecret {
        RejectionSecret(self.hmac(&[id]))
    }

    /// The content key for this ciphertext: HMAC-SHA-256(secret, ciphertext ‖ length), cut to its length.
    ///
    /// # Errors
    /// [`DeviceError::WrongKey`] for a longer key than there is.
    pub(crate) fn content_key(&self, ciphertext: &[u8], len: usize) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
        if len > CONTENT_KEY_BYTES_MAX {
            return Err(DeviceError::WrongKey { why: "a content key has 32 bytes at most" });
        }
        let whole = self.hmac(&[ciphertext, &(len as u64).to_be_bytes()]);
        Ok(Zeroizing::new(whole.iter().copied().take(len).collect()))
    }

    /// HMAC-SHA-256 (RFC 2104); the secret is shorter than a block.
    fn hmac(&self, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        const BLOCK_BYTES: usize = 64;
        let padded = |pad: u8| {
            let mut block = Zeroizing::new([pad; BLOCK_BYTES]);
            for (byte, secret) in block.iter_mut().zip(&*self.0) {
                *byte ^= secret;
            }
            let mut hash = Sha256::new();
            hash.update(&*block);
            hash
        };
        let mut inner = padded(0x36);
        parts.iter().for_each(|part| inner.update(part));
        let mut outer = padded(0x5c);
        outer.update(&*Zeroizing::new(inner.finish()));
        Zeroizing::new(outer.finish())
    }
}

impl fmt::Debug for RejectionSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RejectionSecret")
    }
}

#[cfg(test)]
mod tests {
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::sign::Signer;

    use super::*;

    #[test]
    fn a_rejection_key_is_the_hmac_of_ciphertext_and_length() {
        let secret = RejectionSecret::new(Zeroizing::new([9; 32]));
        for len in [16, 24, 32] {
            let key = PKey::hmac(&[9; 32]).unwrap();
            let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
            signer.update(b"ciphertext").unwrap();
            signer.update(&(len as u64).to_be_bytes()).unwrap();
            let expected = signer.sign_to_vec().unwrap();
            assert_eq!(*secret.content_key(b"ciphertext", len).unwrap(), expected[..len]);
        }
        assert!(secret.content_key(b"ciphertext", 33).is_err());
    }

    #[test]
    fn a_secret_that_is_not_kept_lasts_for_the_process() {
        let secret = || RejectionSecret::of_this_process().unwrap();
        assert_eq!(secret().as_bytes(), secret().as_bytes());
        assert_ne!(secret().as_bytes(), RejectionSecret::random().unwrap().as_bytes());
        assert_ne!(secret().of_key(&[1; 32]).as_bytes(), secret().of_key(&[2; 32]).as_bytes());
        assert_eq!(format!("{:?}", secret()), "RejectionSecret");
    }
}
