//! What the `openssl` crate does not offer of certificate paths: an initial set of policies, and the check of a path
//! that was built and verified before against revocation lists, which knows partitioned, indirect and delta lists.

use std::marker::PhantomData;
use std::mem;
use std::os::raw::{c_int, c_void};
use std::ptr;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::asn1::Asn1Object;
use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam, X509VerifyParamRef};
use openssl::x509::{X509, X509CrlRef, X509StoreContext};
use openssl_sys::{OPENSSL_STACK, X509_CRL, X509_STORE_CTX, stack_st_X509, stack_st_X509_CRL};

mod ffi {
    use std::os::raw::{c_int, c_void};

    use openssl_sys::{ASN1_OBJECT, X509_CRL, X509_STORE_CTX, X509_VERIFY_PARAM, stack_st_X509, stack_st_X509_CRL};

    pub(super) type VerifyCallback = unsafe extern "C" fn(c_int, *mut X509_STORE_CTX) -> c_int;
    pub(super) type Check = unsafe extern "C" fn(*mut X509_STORE_CTX) -> c_int;

    unsafe extern "C" {
        pub(super) fn X509_VERIFY_PARAM_add0_policy(
            parameters: *mut X509_VERIFY_PARAM,
            policy: *mut ASN1_OBJECT,
        ) -> c_int;
        pub(super) fn X509_STORE_CTX_set0_verified_chain(context: *mut X509_STORE_CTX, chain: *mut stack_st_X509);
        pub(super) fn X509_STORE_CTX_set0_crls(context: *mut X509_STORE_CTX, lists: *mut stack_st_X509_CRL);
        pub(super) fn X509_STORE_CTX_set_verify_cb(context: *mut X509_STORE_CTX, callback: VerifyCallback);
        pub(super) fn X509_STORE_CTX_get_check_revocation(context: *const X509_STORE_CTX) -> Option<Check>;
        pub(super) fn X509_STORE_CTX_get0_current_crl(context: *const X509_STORE_CTX) -> *mut X509_CRL;
        pub(super) fn X509_STORE_CTX_set_ex_data(
            context: *mut X509_STORE_CTX,
            index: c_int,
            data: *mut c_void,
        ) -> c_int;
    }

    /// The place that OpenSSL leaves to the application (X509_STORE_CTX_set_app_data).
    pub(super) const APP_DATA: c_int = 0;
}

/// X509_V_ERR_UNABLE_TO_GET_CRL
const UNABLE_TO_GET_CRL: c_int = 3;
/// X509_V_ERR_CERT_REVOKED
const CERT_REVOKED: c_int = 23;
/// X509_V_ERR_UNHANDLED_CRITICAL_CRL_EXTENSION
const UNHANDLED_CRITICAL_CRL_EXTENSION: c_int = 36;

/// Has certificate policies processed (RFC 5280, section 6.1) with any policy in the initial set: a path is refused
/// where its own certificates ask for a policy that it does not have.
///
/// # Errors
/// OpenSSL's, when there is no memory.
pub fn process_policies(parameters: &mut X509VerifyParamRef) -> Result<(), ErrorStack> {
    const ANY_POLICY: &str = "2.5.29.32.0";
    parameters.set_flags(X509VerifyFlags::POLICY_CHECK)?;
    let policy = Asn1Object::from_str(ANY_POLICY)?;
    // SAFETY: both are live. The policy is given away where the call answers 1, and is freed here where it does not.
    unsafe {
        if ffi::X509_VERIFY_PARAM_add0_policy(parameters.as_ptr(), policy.as_ptr()) != 1 {
            return Err(ErrorStack::get());
        }
    }
    mem::forget(policy);
    Ok(())
}

/// A path, and the lists to ask about it.
#[derive(Clone, Copy)]
pub struct RevocationQuestion<'a> {
    /// From the certificate in question to its root, both included. Its signatures and dates are not looked at again.
    pub path: &'a [X509],
    /// Certificates that may have signed lists without standing on the path.
    pub others: &'a [X509],
    /// The lists.
    pub lists: &'a [&'a X509CrlRef],
    /// The time, in seconds since 1970, at which lists and their signers must be current; without it all of them are.
    pub at: Option<i64>,
    /// Whether the lists are asked about all certificates of the path but the root, or about the first alone.
    pub whole_path: bool,
    /// Whether a list counts whose signer's own path has no list.
    pub lenient: bool,
    /// OpenSSL's security level for the paths of those who signed lists.
    pub security_level: i32,
}

/// What the lists say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevocationAnswer {
    /// No list names a certificate of the path.
    Good {
        /// Places in the path of the certificates about which the lists don't say all, the root never among them.
        unknown: Vec<usize>,
    },
    /// A list names a certificate.
    Revoked {
        /// Its place in the path.
        at: usize,
    },
    /// A list that would have to be asked has a critical extension that OpenSSL does not know.
    NotUnderstood {
        /// The place in the path of the certificate it was to be asked about.
        at: usize,
    },
    /// A list can't be used, for its signature or its signer: the others may be asked without it.
    Unusable {
        /// Its place among the lists.
        list: usize,
    },
}

/// What the callback found out.
#[derive(Default)]
struct Notes {
    unknown: Vec<usize>,
    /// Where the check stopped: the error, the place in the path, and the list.
    stopped: Option<(c_int, usize, *mut X509_CRL)>,
}

/// Asks the lists about the certificates of a path. The root is never asked about.
///
/// # Errors
/// OpenSSL's, when it could not do its work.
pub fn check_revocation(question: &RevocationQuestion<'_>) -> Result<RevocationAnswer, ErrorStack> {
    let Some((leaf, root)) = question.path.first().zip(question.path.last()) else {
        return Ok(RevocationAnswer::Good { unknown: Vec::new() });
    };
    let mut store = X509StoreBuilder::new()?;
    store.add_cert(root.clone())?;
    let parameters = parameters(question)?;
    store.set_param(&parameters)?;
    let store = store.build();
    // In a store, OpenSSL looks for lists by the name of the certificate's issuer alone, and finds no indirect ones.
    let lists = Lists::of(question.lists)?;
    let mut untrusted = Stack::new()?;
    for certificate in question.path.iter().chain(question.others) {
        untrusted.push(certificate.clone())?;
    }
    let mut path = Stack::new()?;
    for certificate in question.path {
        path.push(certificate.clone())?;
    }

    let mut notes = Notes::default();
    // Declared last, so that it goes before everything it points to.
    let context = X509StoreContext::new()?;
    let callback = if question.lenient { note::<true> } else { note::<false> };
    // SAFETY: `store`, `leaf`, `untrusted` and `lists` are live and outlive `context`, which keeps pointers to them and
    // frees none of them. The chain is given away: `context` frees it. `notes` outlives `context` too, is reached by
    // the callback alone while the check runs, and is looked at here only after that.
    let done = unsafe {
        let context = context.as_ptr();
        if openssl_sys::X509_STORE_CTX_init(context, store.as_ptr(), leaf.as_ptr(), untrusted.as_ptr()) != 1 {
            return Err(ErrorStack::get());
        }
        ffi::X509_STORE_CTX_set0_verified_chain(context, path.as_ptr().cast::<stack_st_X509>());
        mem::forget(path);
        ffi::X509_STORE_CTX_set0_crls(context, lists.stack.cast::<stack_st_X509_CRL>());
        if ffi::X509_STORE_CTX_set_ex_data(context, ffi::APP_DATA, (&raw mut notes).cast::<c_void>()) != 1 {
            return Err(ErrorStack::get());
        }
        ffi::X509_STORE_CTX_set_verify_cb(context, callback);
        let Some(check) = ffi::X509_STORE_CTX_get_check_revocation(context) else {
            return Err(ErrorStack::get());
        };
        check(context)
    };
    drop(context);
    let library = ErrorStack::get();
    match notes.stopped {
        None if done == 1 => Ok(RevocationAnswer::Good { unknown: notes.unknown }),
        None => Err(library),
        Some((CERT_REVOKED, at, _)) => Ok(RevocationAnswer::Revoked { at }),
        Some((UNHANDLED_CRITICAL_CRL_EXTENSION, at, _)) => Ok(RevocationAnswer::NotUnderstood { at }),
        Some((_, _, list)) => {
            let list = question.lists.iter().position(|one| ptr::eq(one.as_ptr(), list));
            list.map(|list| RevocationAnswer::Unusable { list }).ok_or(library)
        }
    }
}

/// A stack of lists that belong to another: the `openssl` crate has none for them.
struct Lists<'a> {
    stack: *mut OPENSSL_STACK,
    lists: PhantomData<&'a X509CrlRef>,
}

impl<'a> Lists<'a> {
    fn of(lists: &[&'a X509CrlRef]) -> Result<Lists<'a>, ErrorStack> {
        // SAFETY: the stack keeps pointers alone, to lists that are borrowed for as long as it lives.
        unsafe {
            let made = Lists { stack: openssl_sys::OPENSSL_sk_new_null(), lists: PhantomData };
            let full =
                |list: &&X509CrlRef| openssl_sys::OPENSSL_sk_push(made.stack, list.as_ptr().cast::<c_void>()) > 0;
            if made.stack.is_null() || !lists.iter().all(full) { Err(ErrorStack::get()) } else { Ok(made) }
        }
    }
}

impl Drop for Lists<'_> {
    fn drop(&mut self) {
        // SAFETY: the stack is this value's own, or null, and is freed once; what it points to is left alone.
        unsafe { openssl_sys::OPENSSL_sk_free(self.stack) }
    }
}

fn parameters(question: &RevocationQuestion<'_>) -> Result<X509VerifyParam, ErrorStack> {
    let mut parameters = X509VerifyParam::new()?;
    let kinds = X509VerifyFlags::EXTENDED_CRL_SUPPORT | X509VerifyFlags::USE_DELTAS;
    parameters.set_flags(X509VerifyFlags::CRL_CHECK | kinds)?;
    if question.whole_path {
        parameters.set_flags(X509VerifyFlags::CRL_CHECK_ALL)?;
    }
    match question.at {
        Some(at) => parameters.set_time(at),
        None => parameters.set_flags(X509VerifyFlags::NO_CHECK_TIME)?,
    }
    parameters.set_auth_level(question.security_level);
    Ok(parameters)
}

/// Called with each thing that is wrong; the answer is whether to go on.
unsafe extern "C" fn note<const LENIENT: bool>(good: c_int, context: *mut X509_STORE_CTX) -> c_int {
    // SAFETY: OpenSSL calls with a live context. That of the path of a list's signer has no notes: its place for them
    // is null. That of the path in question has those of `check_revocation`, which wait until the check is over.
    unsafe {
        let error = openssl_sys::X509_STORE_CTX_get_error(context);
        let notes = openssl_sys::X509_STORE_CTX_get_ex_data(context, ffi::APP_DATA).cast::<Notes>();
        let Some(notes) = notes.as_mut() else {
            return c_int::from(good == 1 || (LENIENT && error == UNABLE_TO_GET_CRL));
        };
        if good == 1 {
            return 1;
        }
        let at = usize::try_from(openssl_sys::X509_STORE_CTX_get_error_depth(context)).unwrap_or(0);
        if error == UNABLE_TO_GET_CRL {
            notes.unknown.push(at);
            return 1;
        }
        notes.stopped = Some((error, at, ffi::X509_STORE_CTX_get0_current_crl(context)));
        0
    }
}
