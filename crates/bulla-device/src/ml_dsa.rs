//! ML-DSA signatures (FIPS 204), over a whole message with an empty context, as CMS has them (RFC 9882).

use std::fmt;

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{KeyType, PKey, PKeyRef, Private, Public};
use openssl::sign::{Signer, Verifier};

/// The parameter sets of ML-DSA (FIPS 204, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MlDsa {
    /// ML-DSA-44, security category 2.
    MlDsa44,
    /// ML-DSA-65, security category 3.
    MlDsa65,
    /// ML-DSA-87, security category 5.
    MlDsa87,
}

impl MlDsa {
    /// Every parameter set, smallest first.
    pub const ALL: &'static [MlDsa] = &[MlDsa::MlDsa44, MlDsa::MlDsa65, MlDsa::MlDsa87];

    /// The number in its name, which stands where other keys have their bits.
    pub const fn number(self) -> u32 {
        match self {
            MlDsa::MlDsa44 => 44,
            MlDsa::MlDsa65 => 65,
            MlDsa::MlDsa87 => 87,
        }
    }

    /// Bytes of a signature; each has as many (FIPS 204, table 2).
    pub const fn signature_len(self) -> usize {
        match self {
            MlDsa::MlDsa44 => 2420,
            MlDsa::MlDsa65 => 3309,
            MlDsa::MlDsa87 => 4627,
        }
    }

    /// Ones that the hints of a signature may have, ω, and the polynomials that they stand in, k (FIPS 204, table 1).
    pub const fn hints(self) -> (usize, usize) {
        match self {
            MlDsa::MlDsa44 => (80, 4),
            MlDsa::MlDsa65 => (55, 6),
            MlDsa::MlDsa87 => (75, 8),
        }
    }

    /// The library's name for it.
    pub fn key_type(self) -> KeyType {
        match self {
            MlDsa::MlDsa44 => KeyType::ML_DSA_44,
            MlDsa::MlDsa65 => KeyType::ML_DSA_65,
            MlDsa::MlDsa87 => KeyType::ML_DSA_87,
        }
    }

    /// The parameter set of a key; none for a key of another kind.
    pub fn of<T>(key: &PKeyRef<T>) -> Option<MlDsa> {
        MlDsa::ALL.iter().copied().find(|set| key.is_a(set.key_type()))
    }

    /// A new key from the system's randomness.
    ///
    /// # Errors
    /// The library's.
    pub fn generate(self) -> Result<PKey<Private>, ErrorStack> {
        generate_from_seed::<SEED_BYTES>(self.key_type())
    }
}

/// `ML-DSA-65`.
impl fmt::Display for MlDsa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ML-DSA-{}", self.number())
    }
}

/// Bytes of the seed that a key comes from (FIPS 204, algorithm 1).
const SEED_BYTES: usize = 32;

/// A key from a new seed of so many bytes.
pub(crate) fn generate_from_seed<const LEN: usize>(key_type: KeyType) -> Result<PKey<Private>, ErrorStack> {
    let mut seed = zeroize::Zeroizing::new([0; LEN]);
    openssl::rand::rand_priv_bytes(&mut *seed)?;
    PKey::private_key_from_seed(None, key_type, None, &*seed)
}

pub(crate) fn sign(key: &PKeyRef<Private>, message: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    Signer::new_without_digest(key)?.sign_oneshot_to_vec(message)
}

/// A refused signature and an unreadable one are the same here; the library's words are dropped.
pub(crate) fn verify(key: &PKeyRef<Public>, message: &[u8], signature: &[u8]) -> Result<bool, ErrorStack> {
    let good = matches!(Verifier::new_without_digest(key)?.verify_oneshot(signature, message), Ok(true));
    if !good {
        drop(ErrorStack::get());
    }
    Ok(good)
}

/// What stands for a digest where a key signs a message without one, as ML-DSA does: OpenSSL wants none at all then.
/// It is for calls that sign, and has no properties that could be asked for.
pub fn no_digest() -> MessageDigest {
    // SAFETY: the functions that sign certificates, requests and revocation lists take a null pointer for "no digest"
    // (X509_sign(3)); the type itself does nothing but hand the pointer on.
    unsafe { MessageDigest::from_ptr(std::ptr::null()) }
}
