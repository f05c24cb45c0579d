//! ML-KEM (FIPS 203): a secret for the owner of a key, and the ciphertext that it travels in.

use std::fmt;
use std::ptr;

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::pkey::{KeyType, PKey, PKeyRef, Private, Public};
use openssl::pkey_ctx::PkeyCtx;
use zeroize::Zeroizing;

use crate::ml_dsa::generate;

/// Bytes of a shared secret, of each parameter set (FIPS 203, section 8).
pub const ML_KEM_SECRET_BYTES: usize = 32;

/// The parameter sets of ML-KEM (FIPS 203, section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MlKem {
    /// ML-KEM-512, security category 1.
    MlKem512,
    /// ML-KEM-768, security category 3.
    MlKem768,
    /// ML-KEM-1024, security category 5.
    MlKem1024,
}

impl MlKem {
    /// Every parameter set, smallest first.
    pub const ALL: &'static [MlKem] = &[MlKem::MlKem512, MlKem::MlKem768, MlKem::MlKem1024];

    /// The number in its name, which stands where other keys have their bits.
    pub const fn number(self) -> u32 {
        match self {
            MlKem::MlKem512 => 512,
            MlKem::MlKem768 => 768,
            MlKem::MlKem1024 => 1024,
        }
    }

    /// Bytes of a ciphertext (FIPS 203, table 3).
    pub const fn ciphertext_len(self) -> usize {
        match self {
            MlKem::MlKem512 => 768,
            MlKem::MlKem768 => 1088,
            MlKem::MlKem1024 => 1568,
        }
    }

    /// The library's name for it.
    pub fn key_type(self) -> KeyType {
        match self {
            MlKem::MlKem512 => KeyType::ML_KEM_512,
            MlKem::MlKem768 => KeyType::ML_KEM_768,
            MlKem::MlKem1024 => KeyType::ML_KEM_1024,
        }
    }

    /// The parameter set of a key; none for a key of another kind.
    pub fn of<T>(key: &PKeyRef<T>) -> Option<MlKem> {
        MlKem::ALL.iter().copied().find(|set| key.is_a(set.key_type()))
    }

    /// A new key from the system's randomness.
    ///
    /// # Errors
    /// The library's.
    pub fn generate(self) -> Result<PKey<Private>, ErrorStack> {
        generate(&self.to_string())
    }
}

/// `ML-KEM-768`.
impl fmt::Display for MlKem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ML-KEM-{}", self.number())
    }
}

/// A new secret for the owner of the key: the ciphertext, and behind it the secret.
pub(crate) fn encapsulate(key: &PKeyRef<Public>, set: MlKem) -> Result<Vec<u8>, ErrorStack> {
    let context = PkeyCtx::new(key)?;
    let mut out = Zeroizing::new(vec![0; set.ciphertext_len() + ML_KEM_SECRET_BYTES]);
    let (ciphertext, secret) = out.split_at_mut(set.ciphertext_len());
    let (mut ciphertext_len, mut secret_len) = (ciphertext.len(), secret.len());
    // SAFETY: the context is live and not shared; both buffers are as long as is said beside them, and the library
    // writes no more than that.
    let done = unsafe {
        openssl_sys::EVP_PKEY_encapsulate_init(context.as_ptr(), ptr::null()) == 1
            && openssl_sys::EVP_PKEY_encapsulate(
                context.as_ptr(),
                ciphertext.as_mut_ptr(),
                &raw mut ciphertext_len,
                secret.as_mut_ptr(),
                &raw mut secret_len,
            ) == 1
    };
    if done && (ciphertext_len, secret_len) == (ciphertext.len(), secret.len()) {
        Ok(std::mem::take(&mut *out))
    } else {
        Err(ErrorStack::get())
    }
}

/// The secret in a ciphertext of the right length. One that was changed gives another secret, always the same
/// (FIPS 203, algorithm 18).
pub(crate) fn decapsulate(key: &PKeyRef<Private>, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, ErrorStack> {
    let context = PkeyCtx::new(key)?;
    let mut secret = Zeroizing::new(vec![0; ML_KEM_SECRET_BYTES]);
    let mut secret_len = secret.len();
    // SAFETY: as in `encapsulate`; the ciphertext is only read.
    let done = unsafe {
        openssl_sys::EVP_PKEY_decapsulate_init(context.as_ptr(), ptr::null()) == 1
            && openssl_sys::EVP_PKEY_decapsulate(
                context.as_ptr(),
                secret.as_mut_ptr(),
                &raw mut secret_len,
                ciphertext.as_ptr(),
                ciphertext.len(),
            ) == 1
    };
    if done && secret_len == secret.len() { Ok(secret) } else { Err(ErrorStack::get()) }
}
