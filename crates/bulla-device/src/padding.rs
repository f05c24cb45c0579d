//! Taking the padding off a raw RSA result, by the library's constant-time functions.
//!
//! The safe interface offers decryption and padding only as one step. They are two here because the
//! raw result is checked with the public key in between.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar, c_void};

use foreign_types::ForeignTypeRef;
use zeroize::Zeroizing;

use crate::digest::Digest;
use crate::work::{Output, RsaPadding};

unsafe extern "C" {
    // Part of libcrypto's public interface (<openssl/rsa.h>), absent from openssl-sys.
    fn RSA_padding_check_PKCS1_OAEP_mgf1(
        to: *mut c_uchar,
        to_len: c_int,
        from: *const c_uchar,
        from_len: c_int,
        modulus_len: c_int,
        label: *const c_uchar,
        label_len: c_int,
        digest: *const c_void,
        mgf1_digest: *const c_void,
    ) -> c_int;
}

/// The content key in a raw result that was checked with the public key, or `rejected` where there is none of its
/// length. There is no branch on the padding's outcome: the key is picked byte by byte.
pub(crate) fn content_key(raw: &[u8], padding: RsaPadding, rejected: Zeroizing<Vec<u8>>) -> Output {
    let mut key = Zeroizing::new(vec![0; raw.len()]);
    let len = match padding {
        RsaPadding::Oaep { digest } => check_oaep(raw, digest, &mut key),
        RsaPadding::Pkcs1 => check_pkcs1(raw, &mut key),
    };
    pick(&key, len, rejected)
}

/// The first bytes of `key` if `len` says that there are as many as in `rejected`, else those of `rejected`.
pub(crate) fn pick(key: &[u8], len: i32, mut rejected: Zeroizing<Vec<u8>>) -> Output {
    let good = equal_mask(len, rejected.len());
    for (byte, real) in rejected.iter_mut().zip(key.iter()) {
        *byte = (*real & good) | (*byte & !good);
    }
    Output::new(std::mem::take(&mut *rejected))
}

/// 0xff when both are equal, else 0; the first one is secret.
fn equal_mask(secret: i32, expected: usize) -> u8 {
    let expected = i64::try_from(expected).unwrap_or(i64::MAX);
    let difference = i64::from(secret) ^ expected;
    // The top bit of `d | -d` is set exactly when d is not zero.
    let differs = (difference | difference.wrapping_neg()) >> 63;
    !(differs as u8)
}

/// OAEP (RFC 8017, 7.1.2 step 3) with an empty label. `raw` is the result of the private operation,
/// as long as the modulus; returns the length of the key in `to`, or a negative number.
fn check_oaep(raw: &[u8], digest: Digest, to: &mut [u8]) -> i32 {
    let (Ok(raw_len), Ok(to_len)) = (c_int::try_from(raw.len()), c_int::try_from(to.len())) else {
        return -1;
    };
    let md = digest.md().as_ptr().cast_const().cast();
    // SAFETY: both buffers are live for the call and their lengths are theirs; the label may be null
    // when its length is 0; the digests are static.
    let len = unsafe {
        RSA_padding_check_PKCS1_OAEP_mgf1(
            to.as_mut_ptr(),
            to_len,
            raw.as_ptr(),
            raw_len,
            raw_len,
            std::ptr::null(),
            0,
            md,
            md,
        )
    };
    forget_errors();
    len
}

/// PKCS#1 v1.5 block type 2 (RFC 8017, 7.2.2 step 3); the same conventions.
fn check_pkcs1(raw: &[u8], to: &mut [u8]) -> i32 {
    let (Ok(raw_len), Ok(to_len)) = (c_int::try_from(raw.len()), c_int::try_from(to.len())) else {
        return -1;
    };
    // SAFETY: both buffers are live for the call and their lengths are theirs.
    let len =
        unsafe { openssl_sys::RSA_padding_check_PKCS1_type_2(to.as_mut_ptr(), to_len, raw.as_ptr(), raw_len, raw_len) };
    forget_errors();
    len
}

/// What the library noted down is dropped without a look: reading it would take longer after a failure.
fn forget_errors() {
    // SAFETY: this clears the calling thread's own queue and takes no argument.
    unsafe { openssl_sys::ERR_clear_error() }
}
