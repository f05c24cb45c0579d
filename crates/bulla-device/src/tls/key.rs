//! A private key for OpenSSL's TLS whose signatures are jobs: an `RSA_METHOD` and an `EC_KEY_METHOD`.

use std::os::raw::{c_char, c_int, c_long, c_uint, c_void};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

use foreign_types::ForeignTypeRef;
use openssl::ec::EcKey;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Rsa;

use super::aside;
use crate::cpu::CpuDevice;
use crate::device::DeviceError;
use crate::digest::Hash;
use crate::key::{KeyKind, PrivateKey};
use crate::work::{Job, Output, Work};

mod ffi {
    use std::os::raw::{c_char, c_int, c_long, c_uint, c_void};

    use openssl_sys::{BIGNUM, EC_KEY, RSA};

    /// RSA_METHOD and EC_KEY_METHOD, opaque here.
    pub(super) type Method = c_void;
    pub(super) type RsaPrivate = unsafe extern "C" fn(c_int, *const u8, *mut u8, *mut RSA, c_int) -> c_int;
    pub(super) type EcSign = unsafe extern "C" fn(
        c_int,
        *const u8,
        c_int,
        *mut u8,
        *mut c_uint,
        *const BIGNUM,
        *const BIGNUM,
        *mut EC_KEY,
    ) -> c_int;
    pub(super) type EcSetup =
        unsafe extern "C" fn(*mut EC_KEY, *mut c_void, *mut *mut BIGNUM, *mut *mut BIGNUM) -> c_int;
    pub(super) type EcSignPair =
        unsafe extern "C" fn(*const u8, c_int, *const BIGNUM, *const BIGNUM, *mut EC_KEY) -> *mut c_void;
    pub(super) type ExDup =
        unsafe extern "C" fn(*mut c_void, *const c_void, *mut *mut c_void, c_int, c_long, *mut c_void) -> c_int;
    pub(super) type ExFree = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, c_int, c_long, *mut c_void);

    unsafe extern "C" {
        pub(super) fn RSA_PKCS1_OpenSSL() -> *const Method;
        pub(super) fn RSA_meth_dup(method: *const Method) -> *mut Method;
        pub(super) fn RSA_meth_set1_name(method: *mut Method, name: *const c_char) -> c_int;
        pub(super) fn RSA_meth_set_priv_enc(method: *mut Method, operation: RsaPrivate) -> c_int;
        pub(super) fn RSA_set_method(rsa: *mut RSA, method: *const Method) -> c_int;
        pub(super) fn RSA_set_ex_data(rsa: *mut RSA, index: c_int, data: *mut c_void) -> c_int;
        pub(super) fn RSA_get_ex_data(rsa: *const RSA, index: c_int) -> *mut c_void;
        pub(super) fn RSA_padding_add_PKCS1_type_1(to: *mut u8, to_len: c_int, from: *const u8, len: c_int) -> c_int;

        pub(super) fn EC_KEY_OpenSSL() -> *const Method;
        pub(super) fn EC_KEY_METHOD_new(method: *const Method) -> *mut Method;
        pub(super) fn EC_KEY_METHOD_get_sign(
            method: *const Method,
            sign: *mut Option<EcSign>,
            setup: *mut Option<EcSetup>,
            pair: *mut Option<EcSignPair>,
        );
        pub(super) fn EC_KEY_METHOD_set_sign(
            method: *mut Method,
            sign: Option<EcSign>,
            setup: Option<EcSetup>,
            pair: Option<EcSignPair>,
        );
        pub(super) fn EC_KEY_set_method(key: *mut EC_KEY, method: *const Method) -> c_int;
        pub(super) fn EC_KEY_set_ex_data(key: *mut EC_KEY, index: c_int, data: *mut c_void) -> c_int;
        pub(super) fn EC_KEY_get_ex_data(key: *const EC_KEY, index: c_int) -> *mut c_void;

        pub(super) fn CRYPTO_get_ex_new_index(
            class: c_int,
            number: c_long,
            argument: *mut c_void,
            new: *const c_void,
            dup: Option<ExDup>,
            free: Option<ExFree>,
        ) -> c_int;
    }

    /// CRYPTO_EX_INDEX_EC_KEY and CRYPTO_EX_INDEX_RSA of crypto.h.
    pub(super) const EX_EC_KEY: c_int = 8;
    pub(super) const EX_RSA: c_int = 9;
    /// RSA_PKCS1_PADDING and RSA_NO_PADDING of rsa.h.
    pub(super) const PKCS1_PADDING: c_int = 1;
    pub(super) const NO_PADDING: c_int = 3;
}

/// The methods and the places of the keys behind them; made once, for as long as the process lives.
#[derive(Clone, Copy)]
struct Methods {
    rsa: *const ffi::Method,
    ec: *const ffi::Method,
    rsa_index: c_int,
    ec_index: c_int,
}

// SAFETY: the methods are written before they are shared and only read afterwards, also by the library.
unsafe impl Send for Methods {}
// SAFETY: as above.
unsafe impl Sync for Methods {}

fn methods() -> Result<Methods, ErrorStack> {
    static METHODS: OnceLock<Option<Methods>> = OnceLock::new();
    METHODS.get_or_init(make_methods).ok_or_else(ErrorStack::get)
}

fn make_methods() -> Option<Methods> {
    // SAFETY: the calls copy the library's own methods, which live as long as it does, and change the copies by
    // functions of the types that it calls; the places get functions that clone and free what `handshake_key` puts
    // there.
    unsafe {
        let rsa = ffi::RSA_meth_dup(ffi::RSA_PKCS1_OpenSSL());
        let ec = ffi::EC_KEY_METHOD_new(ffi::EC_KEY_OpenSSL());
        if rsa.is_null() || ec.is_null() {
            return None;
        }
        ffi::RSA_meth_set1_name(rsa, c"devices".as_ptr().cast::<c_char>());
        ffi::RSA_meth_set_priv_enc(rsa, rsa_private);
        let (mut sign, mut setup, mut pair) = (None, None, None);
        ffi::EC_KEY_METHOD_get_sign(ec, &raw mut sign, &raw mut setup, &raw mut pair);
        ffi::EC_KEY_METHOD_set_sign(ec, Some(ec_sign), setup, pair);
        let index = |class| {
            ffi::CRYPTO_get_ex_new_index(class, 0, ptr::null_mut(), ptr::null(), Some(clone_key), Some(free_key))
        };
        let (rsa_index, ec_index) = (index(ffi::EX_RSA), index(ffi::EX_EC_KEY));
        (rsa_index >= 0 && ec_index >= 0).then_some(Methods { rsa, ec, rsa_index, ec_index })
    }
}

/// The key as a TLS context takes it. A signature becomes a job that the driver of the handshake has done
/// ([`Aside`](super::Aside)); where the handshake can't be set aside it is computed in place. It does not decrypt a
/// TLS_RSA handshake's secret: for those suites a context takes the key as it is.
///
/// # Errors
/// The library's; also for a key that is not in this process.
pub fn handshake_key(key: &PrivateKey) -> Result<PKey<Private>, ErrorStack> {
    let methods = methods()?;
    let clear = key.exportable().ok_or_else(ErrorStack::get)?;
    let data = || Box::into_raw(Box::new(key.clone())).cast::<c_void>();
    match key.kind() {
        KeyKind::Rsa => {
            // A copy, because the key that computes in place must keep the library's own method.
            let rsa = Rsa::private_key_from_der(&zeroize::Zeroizing::new(clear.rsa()?.private_key_to_der()?))?;
            // SAFETY: `rsa` is live and not shared; the method lives as long as the process; the key put at the
            // index is what its functions expect, and is freed with `rsa`.
            let done = unsafe {
                ffi::RSA_set_method(rsa.as_ptr(), methods.rsa) == 1
                    && ffi::RSA_set_ex_data(rsa.as_ptr(), methods.rsa_index, data()) == 1
            };
            if done { PKey::from_rsa(rsa) } else { Err(ErrorStack::get()) }
        }
        KeyKind::Ec(_) => {
            let ec = EcKey::private_key_from_der(&zeroize::Zeroizing::new(clear.ec_key()?.private_key_to_der()?))?;
            // SAFETY: as for RSA.
            let done = unsafe {
                ffi::EC_KEY_set_method(ec.as_ptr(), methods.ec) == 1
                    && ffi::EC_KEY_set_ex_data(ec.as_ptr(), methods.ec_index, data()) == 1
            };
            if done { PKey::from_ec_key(ec) } else { Err(ErrorStack::get()) }
        }
        // The library has no method for these that could be put in its place: the handshake computes in place.
        KeyKind::MlDsa(_) | KeyKind::MlKem(_) => Ok(clear.to_owned()),
    }
}

unsafe extern "C" fn clone_key(
    _to: *mut c_void,
    _from: *const c_void,
    data: *mut *mut c_void,
    _index: c_int,
    _number: c_long,
    _argument: *mut c_void,
) -> c_int {
    // SAFETY: the library gives the place of a copy of the pointer, which is null or one of `handshake_key`; the copy
    // becomes a clone of its own, so that each is freed once.
    unsafe {
        if let Some(key) = (*data).cast::<PrivateKey>().as_ref() {
            *data = Box::into_raw(Box::new(key.clone())).cast();
        }
    }
    1
}

unsafe extern "C" fn free_key(
    _parent: *mut c_void,
    data: *mut c_void,
    _ex_data: *mut c_void,
    _index: c_int,
    _number: c_long,
    _argument: *mut c_void,
) {
    if !data.is_null() {
        // SAFETY: the pointer came from `Box::into_raw` in `handshake_key` or `clone_key`, and is given back once.
        drop(unsafe { Box::from_raw(data.cast::<PrivateKey>()) });
    }
}

/// RSA_private_encrypt: the padded block of a PSS signature, or the `DigestInfo` of a PKCS#1 one. -1 for a failure.
unsafe extern "C" fn rsa_private(
    len: c_int,
    from: *const u8,
    to: *mut u8,
    rsa: *mut openssl_sys::RSA,
    padding: c_int,
) -> c_int {
    const FAILED: c_int = -1;
    let (Ok(methods), Ok(len_bytes)) = (methods(), usize::try_from(len)) else { return FAILED };
    // SAFETY: the key was put there by `handshake_key` and lives as long as `rsa`, which the caller holds.
    let Some(key) = (unsafe { ffi::RSA_get_ex_data(rsa, methods.rsa_index).cast::<PrivateKey>().as_ref() }) else {
        return FAILED;
    };
    let size = key.public().size();
    let mut block = vec![0; size];
    // SAFETY: the caller gives `len` bytes at `from`; `block` has the length that is said.
    unsafe {
        match padding {
            ffi::NO_PADDING if len_bytes == size => block.copy_from_slice(slice::from_raw_parts(from, size)),
            ffi::PKCS1_PADDING => {
                let Ok(block_len) = c_int::try_from(size) else { return FAILED };
                if ffi::RSA_padding_add_PKCS1_type_1(block.as_mut_ptr(), block_len, from, len) != 1 {
                    return FAILED;
                }
            }
            _ => return FAILED,
        }
    }
    let Some(output) = carry_out(key, Work::RsaPrivate { block }) else { return FAILED };
    if output.len() != size {
        return FAILED;
    }
    // SAFETY: the caller gives room for RSA_size bytes at `to`.
    unsafe { ptr::copy_nonoverlapping(output.as_ptr(), to, size) };
    c_int::try_from(size).unwrap_or(FAILED)
}

/// ECDSA_sign: 1, or 0 for a failure.
unsafe extern "C" fn ec_sign(
    _kind: c_int,
    digest: *const u8,
    digest_len: c_int,
    signature: *mut u8,
    signature_len: *mut c_uint,
    _kinv: *const openssl_sys::BIGNUM,
    _r: *const openssl_sys::BIGNUM,
    ec: *mut openssl_sys::EC_KEY,
) -> c_int {
    let (Ok(methods), Ok(digest_len)) = (methods(), usize::try_from(digest_len)) else { return 0 };
    // SAFETY: the key was put there by `handshake_key` and lives as long as `ec`, which the caller holds; the caller
    // gives `digest_len` bytes at `digest`.
    let (key, digest) = unsafe {
        let key = ffi::EC_KEY_get_ex_data(ec, methods.ec_index).cast::<PrivateKey>().as_ref();
        (key, slice::from_raw_parts(digest, digest_len))
    };
    let Some(key) = key else { return 0 };
    let output = match Hash::from_bytes(digest) {
        Some(hash) => carry_out(key, Work::EcdsaSign { hash }),
        // A hash of another length than the devices know.
        None => sign_in_place(key, digest).ok(),
    };
    let Some(output) = output else { return 0 };
    let (Ok(len), true) = (c_uint::try_from(output.len()), output.len() <= key.public().size()) else { return 0 };
    // SAFETY: the caller gives room for ECDSA_size bytes at `signature`, which is the key's size, and a place for the
    // length.
    unsafe {
        ptr::copy_nonoverlapping(output.as_ptr(), signature, output.len());
        *signature_len = len;
    }
    1
}

/// Nothing where no device could do it; what the devices could not, the processor may.
fn carry_out(key: &PrivateKey, work: Work) -> Option<Output> {
    let job = Job::new(key.clone(), work);
    let in_place = |job: &Job| CpuDevice::new(crate::scheduler::CPU_NAME).compute(job).ok();
    match aside::ask(job.clone()) {
        Ok(Ok(output)) => Some(output),
        Ok(Err(DeviceError::Cancelled)) => None,
        Ok(Err(_)) | Err(_) => in_place(&job),
    }
}

fn sign_in_place(key: &PrivateKey, digest: &[u8]) -> Result<Output, ErrorStack> {
    let clear = key.exportable().ok_or_else(ErrorStack::get)?;
    let mut signer = PkeyCtx::new(clear)?;
    signer.sign_init()?;
    let mut signature = Vec::new();
    signer.sign_to_vec(digest, &mut signature)?;
    Ok(Output::new(signature))
}

#[cfg(test)]
mod tests {
    use openssl::ec::EcGroup;
    use openssl::hash::MessageDigest;
    use openssl::rsa::Padding;
    use openssl::sign::{RsaPssSaltlen, Signer, Verifier};

    use super::*;
    use crate::key::Curve;

    fn rsa() -> PrivateKey {
        PrivateKey::clear(PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn signatures_without_a_handshake_are_made_in_place_and_are_good() {
        let key = rsa();
        let theirs = handshake_key(&key).unwrap();
        for pss in [false, true] {
            let mut signer = Signer::new(MessageDigest::sha256(), &theirs).unwrap();
            let mut verifier = Verifier::new(MessageDigest::sha256(), key.public()).unwrap();
            if pss {
                signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
                signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
                verifier.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
            }
            let signature = signer.sign_oneshot_to_vec(b"hello").unwrap();
            assert!(verifier.verify_oneshot(&signature, b"hello").unwrap());
        }
        for curve in Curve::ALL {
            let group = EcGroup::from_curve_name(curve.nid()).unwrap();
            let key = PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap();
            let theirs = handshake_key(&key).unwrap();
            for digest in [MessageDigest::sha1(), MessageDigest::sha256(), MessageDigest::sha512()] {
                let signature = Signer::new(digest, &theirs).unwrap().sign_oneshot_to_vec(b"hello").unwrap();
                let mut verifier = Verifier::new(digest, key.public()).unwrap();
                assert!(verifier.verify_oneshot(&signature, b"hello").unwrap(), "{curve}");
            }
        }
    }

    #[test]
    fn the_key_lives_as_long_as_what_was_made_of_it() {
        let key = rsa();
        let theirs = handshake_key(&key).unwrap();
        let public = PKey::public_key_from_der(&key.public().public_key_to_der().unwrap()).unwrap();
        let again = theirs.clone();
        drop((key, theirs));
        let signature = Signer::new(MessageDigest::sha256(), &again).unwrap().sign_oneshot_to_vec(b"hello").unwrap();
        assert!(Verifier::new(MessageDigest::sha256(), &public).unwrap().verify_oneshot(&signature, b"hello").unwrap());
    }
}
