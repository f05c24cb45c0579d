//! ML-DSA signatures (FIPS 204), over a whole message with an empty context, as CMS has them (RFC 9882).

use std::ffi::CString;
use std::fmt;
use std::ptr;

use foreign_types::ForeignType;
use openssl::error::ErrorStack;
use openssl::pkey::{KeyType, PKey, PKeyRef, Private, Public};
use openssl::pkey_ctx::PkeyCtx;
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
        generate(&self.to_string())
    }
}

/// `ML-DSA-65`.
impl fmt::Display for MlDsa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ML-DSA-{}", self.number())
    }
}

/// A new key of the kind that the library knows by this name, from its own randomness: no seed of it passes through
/// memory that is not wiped.
pub(crate) fn generate(name: &str) -> Result<PKey<Private>, ErrorStack> {
    let name = CString::new(name).map_err(|_| ErrorStack::get())?;
    // SAFETY: the name ends in a zero byte and lives as long as the call; what it returns is a new context or null.
    let mut context = unsafe {
        let context = openssl_sys::EVP_PKEY_CTX_new_from_name(ptr::null_mut(), name.as_ptr(), ptr::null());
        if context.is_null() {
            return Err(ErrorStack::get());
        }
        PkeyCtx::<()>::from_ptr(context)
    };
    context.keygen_init()?;
    context.keygen()
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
