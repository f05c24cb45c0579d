//! Signing what X.509 has with a key that takes no digest before: ML-DSA signs all of it. OpenSSL wants none at all
//! then, which its binding has no value for.

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKeyRef, Private};
use openssl::x509::{X509Builder, X509CrlBuilder, X509ReqBuilder};

/// A digest, or a null pointer.
///
/// # Safety
/// Without a digest nothing may be asked of it: it is for `X509_sign`, `X509_REQ_sign` and `X509_CRL_sign`, which take
/// a null pointer for none (X509_sign(3)).
unsafe fn or_null(digest: Option<MessageDigest>) -> MessageDigest {
    // SAFETY: the caller hands it to those functions alone, which look whether it is null.
    digest.unwrap_or_else(|| unsafe { MessageDigest::from_ptr(std::ptr::null()) })
}

/// Signs a certificate, over a digest where the kind of key has one.
///
/// # Errors
/// The library's.
pub fn sign_certificate(
    builder: &mut X509Builder,
    key: &PKeyRef<Private>,
    digest: Option<MessageDigest>,
) -> Result<(), ErrorStack> {
    // SAFETY: `sign` calls X509_sign with it, and nothing else.
    builder.sign(key, unsafe { or_null(digest) })
}

/// Signs a request, over a digest where the kind of key has one.
///
/// # Errors
/// The library's.
pub fn sign_request(
    builder: &mut X509ReqBuilder,
    key: &PKeyRef<Private>,
    digest: Option<MessageDigest>,
) -> Result<(), ErrorStack> {
    // SAFETY: `sign` calls X509_REQ_sign with it, and nothing else.
    builder.sign(key, unsafe { or_null(digest) })
}

/// Signs a revocation list, over a digest where the kind of key has one.
///
/// # Errors
/// The library's.
pub fn sign_list(
    builder: &mut X509CrlBuilder,
    key: &PKeyRef<Private>,
    digest: Option<MessageDigest>,
) -> Result<(), ErrorStack> {
    // SAFETY: `sign` calls X509_CRL_sign with it, and nothing else.
    builder.sign(key, unsafe { or_null(digest) })
}
