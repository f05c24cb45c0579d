//! Taking the padding off a raw RSA result, by the library's constant-time functions.
//!
//! The safe interface offers decryption and padding only as one step. They are two here because the
//! raw result is checked with the public key in between.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar, c_void};

use crate::digest::Digest;

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

/// OAEP (RFC 8017, 7.1.2 step 3) with an empty label. `raw` is the result of the private operation,
/// as long as the modulus; returns the length of the key in `to`, or a negative number.
pub(crate) fn check_oaep(raw: &[u8], digest: Digest, to: &mut [u8]) -> i32 {
    let (Ok(raw_len), Ok(to_len)) = (c_int::try_from(raw.len()), c_int::try_from(to.len())) else {
        return -1;
    };
    // SAFETY: these return pointers to static tables of the library.
    let md = unsafe {
        match digest {
            Digest::Sha256 => openssl_sys::EVP_sha256(),
            Digest::Sha384 => openssl_sys::EVP_sha384(),
            Digest::Sha512 => openssl_sys::EVP_sha512(),
        }
    };
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
            md.cast(),
            md.cast(),
        )
    };
    forget_errors();
    len
}

/// PKCS#1 v1.5 block type 2 (RFC 8017, 7.2.2 step 3); the same conventions.
pub(crate) fn check_pkcs1(raw: &[u8], to: &mut [u8]) -> i32 {
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
