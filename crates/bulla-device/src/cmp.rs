//! A client of the Certificate Management Protocol (RFC 9810) over OpenSSL's, which the `openssl` crate does not offer:
//! one transaction that asks for a certificate. How messages get to the authority is the caller's.

use std::fmt::{self, Display};
use std::os::raw::{c_char, c_int, c_long, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::pkey::{PKeyRef, Private};
use openssl::stack::Stack;
use openssl::x509::store::X509Store;
use openssl::x509::{X509, X509NameRef, X509Ref, X509ReqRef};

mod ffi {
    use std::os::raw::{c_char, c_int, c_long, c_uchar, c_void};

    use openssl_sys::{EVP_PKEY, OSSL_LIB_CTX, X509, X509_NAME, X509_REQ, X509_STORE, stack_st_X509};

    pub(super) enum Context {}
    pub(super) enum Message {}

    /// Sends a message and returns the answer, which becomes the library's; null where there is none.
    pub(super) type Transfer = unsafe extern "C" fn(*mut Context, *const Message) -> *mut Message;
    /// Judges a certificate: 0 to accept it, else bits of PKIFailureInfo and a text.
    pub(super) type Confirm = unsafe extern "C" fn(*mut Context, *mut X509, c_int, *mut *const c_char) -> c_int;

    unsafe extern "C" {
        pub(super) fn OSSL_CMP_CTX_new(library: *mut OSSL_LIB_CTX, properties: *const c_char) -> *mut Context;
        pub(super) fn OSSL_CMP_CTX_free(context: *mut Context);
        pub(super) fn OSSL_CMP_CTX_set_transfer_cb(context: *mut Context, callback: Transfer) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set_transfer_cb_arg(context: *mut Context, argument: *mut c_void) -> c_int;
        pub(super) fn OSSL_CMP_CTX_get_transfer_cb_arg(context: *const Context) -> *mut c_void;
        pub(super) fn OSSL_CMP_CTX_set_certConf_cb(context: *mut Context, callback: Confirm) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set0_trustedStore(context: *mut Context, store: *mut X509_STORE) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_untrusted(context: *mut Context, certificates: *mut stack_st_X509) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_cert(context: *mut Context, certificate: *mut X509) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_pkey(context: *mut Context, key: *mut EVP_PKEY) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_referenceValue(
            context: *mut Context,
            reference: *const c_uchar,
            len: c_int,
        ) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_secretValue(context: *mut Context, secret: *const c_uchar, len: c_int)
        -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_recipient(context: *mut Context, name: *const X509_NAME) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set0_newPkey(context: *mut Context, private: c_int, key: *mut EVP_PKEY) -> c_int;
        pub(super) fn OSSL_CMP_CTX_set1_p10CSR(context: *mut Context, request: *const X509_REQ) -> c_int;
        pub(super) fn OSSL_CMP_try_certreq(
            context: *mut Context,
            kind: c_int,
            template: *const c_void,
            check_after: *mut c_int,
        ) -> c_int;
        pub(super) fn OSSL_CMP_CTX_get0_newCert(context: *const Context) -> *mut X509;
        pub(super) fn OSSL_CMP_CTX_get1_caPubs(context: *const Context) -> *mut stack_st_X509;
        pub(super) fn OSSL_CMP_CTX_get1_extraCertsIn(context: *const Context) -> *mut stack_st_X509;
        pub(super) fn OSSL_CMP_CTX_get_status(context: *const Context) -> c_int;
        pub(super) fn OSSL_CMP_CTX_snprint_PKIStatus(
            context: *const Context,
            buffer: *mut c_char,
            len: usize,
        ) -> *mut c_char;
        pub(super) fn OSSL_CMP_MSG_free(message: *mut Message);
        pub(super) fn d2i_OSSL_CMP_MSG(out: *mut *mut Message, from: *mut *const c_uchar, len: c_long) -> *mut Message;
        pub(super) fn i2d_OSSL_CMP_MSG(message: *const Message, to: *mut *mut c_uchar) -> c_int;
    }

    /// OSSL_CMP_PKISTATUS_rejection
    pub(super) const REJECTION: c_int = 2;
    /// The bit of OSSL_CMP_PKIFAILUREINFO_incorrectData.
    pub(super) const INCORRECT_DATA: c_int = 1 << 7;
}

/// Longest text of an authority's status, in bytes.
const STATUS_BYTES_MAX: usize = 1024;
/// What the authority is told of a certificate that is not accepted.
const NOT_ACCEPTED: &std::ffi::CStr = c"the certificate is not what was asked for";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpKind {
    /// A first certificate: `ir`.
    First,
    /// Another one, of someone whom the authority knows: `cr`.
    Further,
    /// One in the place of the certificate that signs the request: `kur`.
    Update,
}

impl CmpKind {
    fn number(self) -> c_int {
        match self {
            CmpKind::First => 0,
            CmpKind::Further => 2,
            CmpKind::Update => 7,
        }
    }
}

/// How a request proves who asks.
pub enum CmpProof<'a> {
    /// By a secret that the authority knows under this reference.
    Secret {
        /// The reference.
        reference: &'a [u8],
        /// The secret.
        secret: &'a [u8],
    },
    /// By a signature with a certificate of the authority's.
    Signature {
        /// The certificate.
        certificate: &'a X509Ref,
        /// The authorities above it.
        chain: &'a [X509],
        /// Its key.
        key: &'a PKeyRef<Private>,
    },
}

/// A question to an authority.
pub struct CmpQuestion<'a> {
    /// What is asked for.
    pub kind: CmpKind,
    /// Subject, extensions and key of the new certificate.
    pub request: &'a X509ReqRef,
    /// The new key.
    pub key: &'a PKeyRef<Private>,
    /// Who asks.
    pub proof: CmpProof<'a>,
    /// Whose signatures on answers are believed.
    pub trusted: X509Store,
    /// The authority's name, where it wants to read it in the message.
    pub recipient: Option<&'a X509NameRef>,
}

/// What the caller does while a question is asked. How long it may take is its business: nothing here waits.
pub trait CmpHost {
    /// Brings a message to the authority, and its answer here.
    ///
    /// # Errors
    /// Why there is none, in words.
    fn transfer(&mut self, message: &[u8]) -> Result<Vec<u8>, String>;

    /// Judges the new certificate before the authority is told that it is accepted. `others` came with it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn judge(&mut self, certificate: &X509, others: &[X509]) -> Result<(), String>;

    /// Waits as long as the authority says before it is asked again. False to give up.
    fn wait(&mut self, time: Duration) -> bool;
}

/// Why no certificate came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmpError {
    /// The authority refused, as its status says.
    Refused {
        /// Status, failure and text of the authority.
        status: String,
    },
    /// The authority has not decided.
    Waiting {
        /// When it wants to be asked again.
        check_after: Duration,
    },
    /// The message did not reach it, or no answer came.
    Transfer {
        /// Why.
        why: String,
    },
    /// The certificate that came is not accepted.
    NotAccepted {
        /// Why.
        why: String,
    },
    /// The answer can't be read, is not protected as it must be, or does not belong to the question.
    Answer {
        /// Why.
        why: String,
    },
}

impl Display for CmpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status } => write!(f, "refused: {status}"),
            Self::Waiting { check_after } => write!(f, "not decided; to be asked again in {} s", check_after.as_secs()),
            Self::Transfer { why } | Self::NotAccepted { why } | Self::Answer { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for CmpError {}

/// What the callbacks of one transaction use.
struct Callbacks<'a> {
    host: &'a mut dyn CmpHost,
    failed: Option<CmpError>,
}

/// A transaction, freed when it is dropped.
struct Context(*mut ffi::Context);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the pointer came from OSSL_CMP_CTX_new, and nothing else frees it.
        unsafe { ffi::OSSL_CMP_CTX_free(self.0) };
    }
}

/// Asks for a certificate, and returns it with what came beside it. The authority is told that it is accepted only
/// where the host's judgement is good.
///
/// # Errors
/// [`CmpError`]. Nothing is kept of the transaction.
pub fn certify(question: CmpQuestion<'_>, host: &mut dyn CmpHost) -> Result<(X509, Vec<X509>), CmpError> {
    let kind = question.kind.number();
    // Errors of what was done before are not this transaction's.
    drop(ErrorStack::get());
    let context = prepared(question).map_err(|stack| CmpError::Answer { why: in_words(&stack) })?;
    let mut callbacks = Callbacks { host, failed: None };
    loop {
        let argument = (&raw mut callbacks).cast::<c_void>();
        let mut check_after = 0;
        // SAFETY: the context is live; `callbacks` outlives the call, and nothing else uses it meanwhile. Both
        // callbacks read it from the context's argument, which is set anew before each call and cleared behind it.
        let done = unsafe {
            ffi::OSSL_CMP_CTX_set_transfer_cb_arg(context.0, argument);
            let done = ffi::OSSL_CMP_try_certreq(context.0, kind, ptr::null(), &raw mut check_after);
            ffi::OSSL_CMP_CTX_set_transfer_cb_arg(context.0, ptr::null_mut());
            done
        };
        if let Some(failed) = callbacks.failed.take() {
            drop(ErrorStack::get());
            return Err(failed);
        }
        match done {
            1 => return found(&context).ok_or_else(|| CmpError::Answer { why: "it has no certificate".to_owned() }),
            -1 => {
                let check_after = Duration::from_secs(u64::try_from(check_after).unwrap_or(0).max(1));
                if !callbacks.host.wait(check_after) {
                    return Err(CmpError::Waiting { check_after });
                }
            }
            _ => return Err(failure(&context)),
        }
    }
}

fn prepared(question: CmpQuestion<'_>) -> Result<Context, ErrorStack> {
    // SAFETY: null for both is the library's default.
    let context = Context(unsafe { ffi::OSSL_CMP_CTX_new(ptr::null_mut(), ptr::null()) });
    if context.0.is_null() {
        return Err(ErrorStack::get());
    }
    let trusted = question.trusted.as_ptr();
    // The context's from now on, also where something fails: it frees it.
    std::mem::forget(question.trusted);
    // SAFETY: the context is live, and so is every pointer that is passed, from references that outlive the calls. What
    // is set by `set1` is copied or counted by the library. Of the store the one reference is handed over, of the new
    // key one that is made for that.
    unsafe {
        good(ffi::OSSL_CMP_CTX_set0_trustedStore(context.0, trusted))?;
        good(ffi::OSSL_CMP_CTX_set_transfer_cb(context.0, transfer))?;
        good(ffi::OSSL_CMP_CTX_set_certConf_cb(context.0, confirm))?;
        good(ffi::OSSL_CMP_CTX_set1_p10CSR(context.0, question.request.as_ptr()))?;
        good(openssl_sys::EVP_PKEY_up_ref(question.key.as_ptr()))?;
        good(ffi::OSSL_CMP_CTX_set0_newPkey(context.0, 1, question.key.as_ptr()))?;
        if let Some(recipient) = question.recipient {
            good(ffi::OSSL_CMP_CTX_set1_recipient(context.0, recipient.as_ptr()))?;
        }
    }
    match question.proof {
        CmpProof::Secret { reference, secret } => {
            let len = |bytes: &[u8]| c_int::try_from(bytes.len()).unwrap_or(0);
            // SAFETY: as above; both lengths are those of their slices.
            unsafe {
                good(ffi::OSSL_CMP_CTX_set1_referenceValue(context.0, reference.as_ptr(), len(reference)))?;
                good(ffi::OSSL_CMP_CTX_set1_secretValue(context.0, secret.as_ptr(), len(secret)))?;
            }
        }
        CmpProof::Signature { certificate, chain, key } => {
            let mut above = Stack::new()?;
            for one in chain {
                above.push(one.clone())?;
            }
            // SAFETY: as above; of the stack's certificates the library counts its own references.
            unsafe {
                good(ffi::OSSL_CMP_CTX_set1_cert(context.0, certificate.as_ptr()))?;
                good(ffi::OSSL_CMP_CTX_set1_pkey(context.0, key.as_ptr()))?;
                good(ffi::OSSL_CMP_CTX_set1_untrusted(context.0, above.as_ptr()))?;
            }
        }
    }
    Ok(context)
}

fn good(done: c_int) -> Result<(), ErrorStack> {
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

fn found(context: &Context) -> Option<(X509, Vec<X509>)> {
    // SAFETY: the context is live and owns the certificate that it shows; it is counted once more for who gets it.
    let certificate = unsafe {
        let shown = ffi::OSSL_CMP_CTX_get0_newCert(context.0);
        if shown.is_null() {
            return None;
        }
        X509Ref::from_ptr(shown).to_owned()
    };
    Some((certificate, others(context.0)))
}

/// The certificates that came beside the new one.
fn others(context: *mut ffi::Context) -> Vec<X509> {
    let mut all = Vec::new();
    // SAFETY: the context is live. Each of the stacks is made for the caller, who frees it with its certificates; null
    // where there is none.
    for stack in unsafe { [ffi::OSSL_CMP_CTX_get1_caPubs(context), ffi::OSSL_CMP_CTX_get1_extraCertsIn(context)] } {
        if !stack.is_null() {
            // SAFETY: as above: it is not null, and nobody else has it.
            all.extend(unsafe { Stack::<X509>::from_ptr(stack) });
        }
    }
    all
}

fn failure(context: &Context) -> CmpError {
    let mut buffer = [0_u8; STATUS_BYTES_MAX];
    // SAFETY: the context is live; the buffer is as long as is said, and the library ends what it writes with a zero.
    let (status, text) = unsafe {
        let text = ffi::OSSL_CMP_CTX_snprint_PKIStatus(context.0, buffer.as_mut_ptr().cast::<c_char>(), buffer.len());
        (ffi::OSSL_CMP_CTX_get_status(context.0), !text.is_null())
    };
    let stack = ErrorStack::get();
    if status == ffi::REJECTION && text {
        let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
        return CmpError::Refused { status: String::from_utf8_lossy(&buffer[..end]).into_owned() };
    }
    CmpError::Answer { why: in_words(&stack) }
}

/// The library's reasons, the first one first.
fn in_words(stack: &ErrorStack) -> String {
    let reasons: Vec<String> = stack
        .errors()
        .iter()
        .filter_map(|error| {
            let reason = error.reason()?;
            Some(error.data().map_or_else(|| reason.to_owned(), |data| format!("{reason} ({data})")))
        })
        .collect();
    if reasons.is_empty() { "the library says nothing".to_owned() } else { reasons.join(", ") }
}

/// What the callbacks of this transaction use; none outside a transaction.
///
/// # Safety
/// The context is live, and nothing else uses its argument meanwhile.
unsafe fn callbacks<'a>(context: *mut ffi::Context) -> Option<&'a mut Callbacks<'a>> {
    // SAFETY: `certify` sets the argument to its `Callbacks` for the time of the call that leads here, or to null.
    unsafe { ffi::OSSL_CMP_CTX_get_transfer_cb_arg(context).cast::<Callbacks<'a>>().as_mut() }
}

unsafe extern "C" fn transfer(context: *mut ffi::Context, message: *const ffi::Message) -> *mut ffi::Message {
    // SAFETY: the library calls this inside `OSSL_CMP_try_certreq`, with its context.
    let Some(callbacks) = (unsafe { callbacks(context) }) else { return ptr::null_mut() };
    let Some(bytes) = encoded(message) else { return ptr::null_mut() };
    let came = catch_unwind(AssertUnwindSafe(|| callbacks.host.transfer(&bytes)));
    match came.unwrap_or_else(|_| Err("the transfer panicked".to_owned())) {
        Ok(answer) => match decoded(&answer) {
            Some(answer) => answer,
            None => {
                callbacks.failed = Some(CmpError::Answer { why: "it is no message of CMP".to_owned() });
                ptr::null_mut()
            }
        },
        Err(why) => {
            callbacks.failed = Some(CmpError::Transfer { why });
            ptr::null_mut()
        }
    }
}

unsafe extern "C" fn confirm(
    context: *mut ffi::Context,
    certificate: *mut openssl_sys::X509,
    failure: c_int,
    text: *mut *const c_char,
) -> c_int {
    if failure != 0 || certificate.is_null() {
        return if failure == 0 { ffi::INCORRECT_DATA } else { failure };
    }
    // SAFETY: as of `transfer`; the certificate is live for the time of this call, and counted once more here.
    let (callbacks, certificate) = unsafe { (callbacks(context), X509Ref::from_ptr(certificate).to_owned()) };
    let Some(callbacks) = callbacks else { return ffi::INCORRECT_DATA };
    let others = others(context);
    let judged = catch_unwind(AssertUnwindSafe(|| callbacks.host.judge(&certificate, &others)));
    match judged.unwrap_or_else(|_| Err("the judgement panicked".to_owned())) {
        Ok(()) => 0,
        Err(why) => {
            callbacks.failed = Some(CmpError::NotAccepted { why });
            if !text.is_null() {
                // SAFETY: the library passes the place of a pointer; the text is static.
                unsafe { *text = NOT_ACCEPTED.as_ptr() };
            }
            ffi::INCORRECT_DATA
        }
    }
}

fn encoded(message: *const ffi::Message) -> Option<Vec<u8>> {
    // SAFETY: the message is live for the time of the callback; without a place to write to only the length is told.
    let len = unsafe { ffi::i2d_OSSL_CMP_MSG(message, ptr::null_mut()) };
    let mut bytes = vec![0_u8; usize::try_from(len).ok().filter(|len| *len > 0)?];
    let mut at: *mut c_uchar = bytes.as_mut_ptr();
    // SAFETY: as above; it writes as many bytes as it has just said, and there is room for them.
    let written = unsafe { ffi::i2d_OSSL_CMP_MSG(message, &raw mut at) };
    (written == len).then_some(bytes)
}

/// Exactly one message, which becomes the caller's.
fn decoded(bytes: &[u8]) -> Option<*mut ffi::Message> {
    let mut at: *const c_uchar = bytes.as_ptr();
    let len = c_long::try_from(bytes.len()).ok()?;
    // SAFETY: `at` and `len` are those of the slice; a new message is made, or null returned.
    let message = unsafe { ffi::d2i_OSSL_CMP_MSG(ptr::null_mut(), &raw mut at, len) };
    if message.is_null() {
        return None;
    }
    if at != bytes.as_ptr_range().end {
        // SAFETY: it was made above, and nobody else has it.
        unsafe { ffi::OSSL_CMP_MSG_free(message) };
        return None;
    }
    Some(message)
}
