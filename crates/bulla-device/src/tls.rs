//! What the `openssl` crate does not offer of TLS: revocation lists in a store, the client's hello, extensions.

use std::ptr;

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ssl::SslRef;
use openssl::x509::store::X509StoreBuilderRef;
use openssl::x509::{X509CrlRef, X509Ref};

mod ffi {
    use std::os::raw::c_int;

    use openssl_sys::{X509_CRL, X509_STORE};

    unsafe extern "C" {
        pub(super) fn X509_STORE_add_crl(store: *mut X509_STORE, crl: *mut X509_CRL) -> c_int;
    }

    /// TLSEXT_TYPE_server_name (RFC 6066, section 3).
    pub(super) const EXTENSION_SERVER_NAME: u32 = 0;
    /// NID_tlsfeature (RFC 7633).
    pub(super) const NID_TLS_FEATURE: c_int = 1020;
}

/// Adds a revocation list to the certificates that it is about.
///
/// # Errors
/// The library's; the store is then as it was.
pub fn add_revocation_list(store: &mut X509StoreBuilderRef, list: &X509CrlRef) -> Result<(), ErrorStack> {
    // SAFETY: both pointers come from live references; the store takes a reference count of its own on the list.
    let done = unsafe { ffi::X509_STORE_add_crl(store.as_ptr(), list.as_ptr()) };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// The host name in a client's hello. To be asked only while the hello is looked at, in the callback for it; nothing
/// otherwise, and where the client named none.
pub fn client_hello_server_name(ssl: &mut SslRef) -> Option<Vec<u8>> {
    let (mut data, mut len) = (ptr::null(), 0);
    // SAFETY: `ssl` is live; `data` and `len` are written only where the call answers 1. Outside the callback there is
    // no hello, and the call answers 0.
    let found = unsafe {
        openssl_sys::SSL_client_hello_get0_ext(ssl.as_ptr(), ffi::EXTENSION_SERVER_NAME, &raw mut data, &raw mut len)
    };
    if found != 1 || data.is_null() {
        return None;
    }
    // SAFETY: the call above gave `len` bytes at `data` that belong to the hello, which lives as long as the callback;
    // they are copied before this function returns.
    let extension = unsafe { std::slice::from_raw_parts(data, len) };
    server_name(extension).map(<[u8]>::to_vec)
}

/// The first name of a ServerNameList (RFC 6066, section 3), which is the only one there may be.
fn server_name(extension: &[u8]) -> Option<&[u8]> {
    const HOST_NAME: u8 = 0;
    let (list_len, list) = extension.split_first_chunk::<2>()?;
    if usize::from(u16::from_be_bytes(*list_len)) != list.len() {
        return None;
    }
    let (&[kind, high, low], name) = list.split_first_chunk::<3>()?;
    let whole = kind == HOST_NAME && usize::from(u16::from_be_bytes([high, low])) == name.len();
    whole.then_some(name)
}

/// Whether a certificate says that its holder always staples an OCSP answer (RFC 7633, *must-staple*). The extension has
/// no other use in practice, so its presence counts.
pub fn must_staple(certificate: &X509Ref) -> bool {
    // SAFETY: the pointer comes from a live reference, and -1 asks for the first such extension.
    unsafe { openssl_sys::X509_get_ext_by_NID(certificate.as_ptr(), ffi::NID_TLS_FEATURE, -1) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_is_read_and_a_broken_one_is_none() {
        assert_eq!(server_name(b"\0\x0c\0\0\x09localhost"), Some(&b"localhost"[..]));
        for broken in [
            &b""[..],
            b"\0",
            b"\0\x0c\0\0\x0alocalhost",
            b"\0\x0d\0\0\x09localhost",
            b"\0\x0c\x01\0\x09localhost",
            b"\0\0",
        ] {
            assert_eq!(server_name(broken), None);
        }
    }
}
