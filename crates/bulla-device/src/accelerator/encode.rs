//! RSA's paddings around a private or public operation that happens elsewhere (RFC 8017, 7 and 9).
//!
//! PKCS#1 v1.5 for signatures is a constant around the hash and is written here; the others are the library's.
//! What takes padding off a decrypted key is in `padding.rs`, and shared with the other devices.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar, c_void};

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::pkey::Public;
use openssl::rsa::RsaRef;

use crate::device::DeviceError;
use crate::digest::Digest;
use crate::work::{RsaPadding, RsaScheme};

unsafe extern "C" {
    // Part of libcrypto's public interface (<openssl/rsa.h>), absent from openssl-sys.
    fn RSA_padding_add_PKCS1_PSS_mgf1(
        rsa: *mut openssl_sys::RSA,
        to: *mut c_uchar,
        hash: *const c_uchar,
        digest: *const c_void,
        mgf1_digest: *const c_void,
        salt_len: c_int,
    ) -> c_int;
    fn RSA_verify_PKCS1_PSS_mgf1(
        rsa: *mut openssl_sys::RSA,
        hash: *const c_uchar,
        digest: *const c_void,
        mgf1_digest: *const c_void,
        encoded: *const c_uchar,
        salt_len: c_int,
    ) -> c_int;
    fn RSA_padding_add_PKCS1_OAEP_mgf1(
        to: *mut c_uchar,
        to_len: c_int,
        from: *const c_uchar,
        from_len: c_int,
        label: *const c_uchar,
        label_len: c_int,
        digest: *const c_void,
        mgf1_digest: *const c_void,
    ) -> c_int;
    fn RSA_padding_add_PKCS1_type_2(to: *mut c_uchar, to_len: c_int, from: *const c_uchar, from_len: c_int) -> c_int;
}

/// The salt is as long as the digest (`RSA_PSS_SALTLEN_DIGEST`).
const SALT_LIKE_DIGEST: c_int = -1;

/// What is raised to the private exponent for a signature: as long as the modulus, and below it.
///
/// # Errors
/// [`DeviceError::Library`] when the hash is not the digest's or does not fit the modulus.
pub(super) fn for_signature(
    to: &mut [u8],
    rsa: &RsaRef<Public>,
    scheme: RsaScheme,
    digest: Digest,
    hash: &[u8],
) -> Result<(), DeviceError> {
    if hash.len() != digest.hash_len() {
        return Err(DeviceError::Library { text: format!("a hash of {} bytes is not of {digest}", hash.len()) });
    }
    match scheme {
        RsaScheme::Pkcs1 => pkcs1(to, digest, hash),
        RsaScheme::Pss => {
            assert_eq!(to.len(), rsa.size() as usize, "an encoded message has the length of its modulus");
            let md = md(digest);
            // SAFETY: `to` is as long as the modulus and `hash` as the digest, both checked above; the key and
            // the digest tables are live.
            let answer = unsafe {
                RSA_padding_add_PKCS1_PSS_mgf1(rsa.as_ptr(), to.as_mut_ptr(), hash.as_ptr(), md, md, SALT_LIKE_DIGEST)
            };
            done(answer)
        }
    }
}

/// Whether a signature raised to the public exponent is the encoding of this hash. PKCS#1 v1.5 is compared whole,
/// so that there is one encoding and no parser.
pub(super) fn is_signature(
    encoded: &[u8],
    rsa: &RsaRef<Public>,
    scheme: RsaScheme,
    digest: Digest,
    hash: &[u8],
) -> bool {
    if hash.len() != digest.hash_len() || encoded.len() != rsa.size() as usize {
        return false;
    }
    match scheme {
        RsaScheme::Pkcs1 => {
            let mut expected = [0; super::library::RSA_BYTES_MAX];
            let Some(expected) = expected.get_mut(..encoded.len()) else { return false };
            pkcs1(expected, digest, hash).is_ok() && *expected == *encoded
        }
        RsaScheme::Pss => {
            let md = md(digest);
            // SAFETY: `encoded` is as long as the modulus and `hash` as the digest, both checked above; the key
            // and the digest tables are live.
            let answer = unsafe {
                RSA_verify_PKCS1_PSS_mgf1(rsa.as_ptr(), hash.as_ptr(), md, md, encoded.as_ptr(), SALT_LIKE_DIGEST)
            };
            done(answer).is_ok()
        }
    }
}

/// What is raised to the public exponent for a key transport: as long as the modulus, and below it.
///
/// # Errors
/// [`DeviceError::Library`] when the content key is too long for the modulus.
pub(super) fn for_wrap(to: &mut [u8], padding: RsaPadding, content_key: &[u8]) -> Result<(), DeviceError> {
    let too_long = |_| DeviceError::Library { text: "the content key is too long".to_owned() };
    let to_len = c_int::try_from(to.len()).map_err(too_long)?;
    let key_len = c_int::try_from(content_key.len()).map_err(too_long)?;
    let answer = match padding {
        // SAFETY: both buffers are live for the call and their lengths are theirs; the label may be null when its
        // length is 0; the digests are static.
        RsaPadding::Oaep { digest } => unsafe {
            RSA_padding_add_PKCS1_OAEP_mgf1(
                to.as_mut_ptr(),
                to_len,
                content_key.as_ptr(),
                key_len,
                std::ptr::null(),
                0,
                md(digest),
                md(digest),
            )
        },
        // SAFETY: both buffers are live for the call and their lengths are theirs.
        RsaPadding::Pkcs1 => unsafe {
            RSA_padding_add_PKCS1_type_2(to.as_mut_ptr(), to_len, content_key.as_ptr(), key_len)
        },
    };
    done(answer)
}

/// EMSA-PKCS1-v1_5 (RFC 8017, 9.2).
fn pkcs1(to: &mut [u8], digest: Digest, hash: &[u8]) -> Result<(), DeviceError> {
    let info = digest.info();
    let too_short = || DeviceError::Library { text: "the modulus is too short for the hash".to_owned() };
    let fill = to.len().checked_sub(3 + info.len() + hash.len()).filter(|fill| *fill >= 8).ok_or_else(too_short)?;
    let (head, rest) = to.split_at_mut(2 + fill);
    head.fill(0xff);
    head[..2].copy_from_slice(&[0, 1]);
    rest[0] = 0;
    rest[1..1 + info.len()].copy_from_slice(info);
    rest[1 + info.len()..].copy_from_slice(hash);
    Ok(())
}

/// The library's static table for it.
fn md(digest: Digest) -> *const c_void {
    digest.md().as_ptr().cast_const().cast()
}

fn done(answer: c_int) -> Result<(), DeviceError> {
    if answer == 1 { Ok(()) } else { Err(ErrorStack::get().into()) }
}
