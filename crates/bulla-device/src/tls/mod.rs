//! What the `openssl` crate does not offer of TLS: revocation lists in a store, the client's hello, extensions,
//! sessions that are taken up again, and keys that are renewed while a connection goes on.

mod aside;
mod client_session;
mod key;
mod stack;

pub use aside::{Aside, HANDSHAKES_ASIDE_MAX};
pub use client_session::{ClientSession, ClientSessions};
pub use key::handshake_key;

use std::ffi::{CStr, CString};
use std::os::raw::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslRef};
use openssl::x509::store::X509StoreBuilderRef;
use openssl::x509::{X509CrlRef, X509Ref};

mod ffi {
    use std::os::raw::{c_int, c_void};

    use openssl_sys::{SSL, X509_CRL, X509_STORE};

    /// Called with each message of the protocol, as it was sent (1) or received (0).
    pub(super) type MessageCallback =
        unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, usize, *mut SSL, *mut c_void);

    unsafe extern "C" {
        pub(super) fn SSL_renegotiate(ssl: *mut SSL) -> c_int;
        pub(super) fn SSL_renegotiate_pending(ssl: *const SSL) -> c_int;
        pub(super) fn SSL_key_update(ssl: *mut SSL, kind: c_int) -> c_int;
        pub(super) fn SSL_set_options(ssl: *mut SSL, options: u64) -> u64;
        pub(super) fn SSL_clear_options(ssl: *mut SSL, options: u64) -> u64;
        pub(super) fn SSL_set_msg_callback(ssl: *mut SSL, callback: Option<MessageCallback>);
        pub(super) fn SSL_set_default_read_buffer_len(ssl: *mut SSL, len: usize);
        pub(super) fn X509_STORE_add_crl(store: *mut X509_STORE, crl: *mut X509_CRL) -> c_int;
    }

    /// TLSEXT_TYPE_server_name (RFC 6066, section 3).
    pub(super) const EXTENSION_SERVER_NAME: u32 = 0;
    /// TLSEXT_TYPE_application_layer_protocol_negotiation (RFC 7301, section 3.1).
    pub(super) const EXTENSION_PROTOCOLS: u32 = 16;
    /// SSL_KEY_UPDATE_REQUESTED: the partner renews its keys, too.
    pub(super) const KEY_UPDATE_REQUESTED: c_int = 1;
    /// SSL_OP_ALLOW_CLIENT_RENEGOTIATION
    pub(super) const ALLOW_CLIENT_RENEGOTIATION: u64 = 1 << 8;
    /// SSL_OP_NO_RENEGOTIATION
    pub(super) const NO_RENEGOTIATION: u64 = 1 << 30;
    /// SSL3_RT_HANDSHAKE: the content type of handshake messages (RFC 8446, section 5.1).
    pub(super) const HANDSHAKE: c_int = 22;
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

/// Says by which groups a session may agree on its keys, in OpenSSL's words. To be called before its handshake, or
/// while the client's hello is looked at.
///
/// # Errors
/// The library's, for a list that it does not know.
pub fn set_groups(ssl: &mut SslRef, list: &str) -> Result<(), ErrorStack> {
    let Ok(list) = CString::new(list) else { return Err(ErrorStack::get()) };
    // SAFETY: the pointer comes from a live reference; the text ends with a zero and is copied.
    let done = unsafe { openssl_sys::SSL_set1_groups_list(ssl.as_ptr(), list.as_ptr()) };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// The group by which a session agreed on its keys, by OpenSSL's name; none before its handshake, and where the keys
/// were opened with RSA.
pub fn key_group(ssl: &SslRef) -> Option<&str> {
    // SAFETY: the pointer comes from a live reference; what is returned is null or a text that lives as long as the
    // library's table of groups, which is at least as long as the session.
    unsafe {
        let name = openssl_sys::SSL_get0_group_name(ssl.as_ptr());
        if name.is_null() { None } else { CStr::from_ptr(name).to_str().ok() }
    }
}

/// The host name in a client's hello. To be asked only while the hello is looked at, in the callback for it; nothing
/// otherwise, and where the client named none.
pub fn client_hello_server_name(ssl: &mut SslRef) -> Option<Vec<u8>> {
    client_hello_extension(ssl, ffi::EXTENSION_SERVER_NAME, |extension| server_name(extension).map(<[u8]>::to_vec))
}

/// Whether a client speaks this protocol and no other (RFC 7301). To be asked as the host name.
pub fn client_hello_speaks_only(ssl: &mut SslRef, protocol: &[u8]) -> bool {
    let speaks = |extension: &[u8]| Some(only_protocol(extension)? == protocol);
    client_hello_extension(ssl, ffi::EXTENSION_PROTOCOLS, speaks).unwrap_or(false)
}

fn client_hello_extension<T>(ssl: &mut SslRef, extension: u32, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let (mut data, mut len) = (ptr::null(), 0);
    // SAFETY: `ssl` is live; `data` and `len` are written only where the call answers 1. Outside the callback there is
    // no hello, and the call answers 0.
    let found = unsafe { openssl_sys::SSL_client_hello_get0_ext(ssl.as_ptr(), extension, &raw mut data, &raw mut len) };
    if found != 1 || data.is_null() {
        return None;
    }
    // SAFETY: the call above gave `len` bytes at `data` that belong to the hello, which lives as long as the callback;
    // nothing of them is kept when this function returns.
    read(unsafe { std::slice::from_raw_parts(data, len) })
}

/// The one name of a ProtocolNameList (RFC 7301, section 3.1); none where there are several.
fn only_protocol(extension: &[u8]) -> Option<&[u8]> {
    let (list_len, list) = extension.split_first_chunk::<2>()?;
    let (&[len], name) = list.split_first_chunk::<1>()?;
    let whole = usize::from(u16::from_be_bytes(*list_len)) == list.len() && usize::from(len) == name.len();
    whole.then_some(name)
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

/// Whether a certificate says that its holder always staples an OCSP answer (RFC 7633, *must-staple*). The extension
/// has no other use in practice, so its presence counts.
pub fn must_staple(certificate: &X509Ref) -> bool {
    // SAFETY: the pointer comes from a live reference, and -1 asks for the first such extension.
    unsafe { openssl_sys::X509_get_ext_by_NID(certificate.as_ptr(), ffi::NID_TLS_FEATURE, -1) >= 0 }
}

/// Whether the partner may begin a renegotiation (TLS 1.2). Where it may not it is told so, and the connection goes on.
pub fn allow_renegotiation(ssl: &SslRef, allowed: bool) {
    let (set, clear) = if allowed {
        (ffi::ALLOW_CLIENT_RENEGOTIATION, ffi::NO_RENEGOTIATION)
    } else {
        (ffi::NO_RENEGOTIATION, ffi::ALLOW_CLIENT_RENEGOTIATION)
    };
    // SAFETY: the pointer comes from a live reference, and options are words of the session that nothing refers to;
    // the session is used by the thread of its owner alone.
    unsafe {
        ffi::SSL_set_options(ssl.as_ptr(), set);
        ffi::SSL_clear_options(ssl.as_ptr(), clear);
    }
}

/// Asks for a renegotiation (TLS 1.2), which the next read begins. Nothing may be half written.
///
/// # Errors
/// The library's.
pub fn renegotiate(ssl: &SslRef) -> Result<(), ErrorStack> {
    // SAFETY: the pointer comes from a live reference that the thread of its owner alone uses; the calls set words of
    // the session. The option that refuses the partner's renegotiations refuses ours, too, at this call alone.
    let done = unsafe {
        let refused = ffi::SSL_clear_options(ssl.as_ptr(), 0) & ffi::NO_RENEGOTIATION;
        ffi::SSL_clear_options(ssl.as_ptr(), ffi::NO_RENEGOTIATION);
        let done = ffi::SSL_renegotiate(ssl.as_ptr());
        ffi::SSL_set_options(ssl.as_ptr(), refused);
        done
    };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Whether a renegotiation was asked for, or is under way, by either side.
pub fn is_renegotiating(ssl: &SslRef) -> bool {
    // SAFETY: the pointer comes from a live reference; the call reads a word.
    unsafe { ffi::SSL_renegotiate_pending(ssl.as_ptr()) != 0 }
}

/// Asks for new keys in both directions (TLS 1.3, RFC 8446 section 4.6.3); the next handshake call or write sends the
/// message. Nothing may be half written.
///
/// # Errors
/// The library's; also under TLS 1.2.
pub fn request_key_update(ssl: &SslRef) -> Result<(), ErrorStack> {
    // SAFETY: the pointer comes from a live reference that the thread of its owner alone uses.
    let done = unsafe { ffi::SSL_key_update(ssl.as_ptr(), ffi::KEY_UPDATE_REQUESTED) };
    if done == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// Bytes that a read takes from the socket, where it reads ahead. Counts from the session's next keys on.
pub fn set_read_buffer(ssl: &mut SslRef, len: usize) {
    // SAFETY: the pointer comes from a live reference; the call sets a word.
    unsafe { ffi::SSL_set_default_read_buffer_len(ssl.as_ptr(), len) }
}

/// What was heard of a session since [`watch`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Messages {
    /// Wishes of the partner for new keys: its hellos, the first included, and its key updates that ask for ours.
    pub resets: u32,
    /// Its key updates that ask for nothing: answers to ours, if it keeps to the rules.
    pub answers: u32,
}

#[derive(Default)]
struct Watched {
    resets: AtomicU32,
    answers: AtomicU32,
}

fn watched_index() -> Result<Index<Ssl, Watched>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Watched>> = OnceLock::new();
    if let Some(index) = INDEX.get() {
        return Ok(*index);
    }
    let index = Ssl::new_ex_index()?;
    Ok(*INDEX.get_or_init(|| index))
}

/// Counts the messages of a session from now on.
///
/// # Errors
/// The library's.
pub fn watch(ssl: &mut SslRef) -> Result<(), ErrorStack> {
    ssl.set_ex_data(watched_index()?, Watched::default());
    // SAFETY: the pointer comes from a live reference, and `heard` is a function of the type that the library calls.
    unsafe { ffi::SSL_set_msg_callback(ssl.as_ptr(), Some(heard)) };
    Ok(())
}

/// What was counted; zeros where no watch is set.
pub fn messages(ssl: &SslRef) -> Messages {
    let watched = watched_index().ok().and_then(|index| ssl.ex_data(index));
    watched.map_or(Messages::default(), |watched| Messages {
        resets: watched.resets.load(Ordering::Relaxed),
        answers: watched.answers.load(Ordering::Relaxed),
    })
}

unsafe extern "C" fn heard(
    sent: c_int,
    _version: c_int,
    content_type: c_int,
    bytes: *const c_void,
    len: usize,
    ssl: *mut openssl_sys::SSL,
    _argument: *mut c_void,
) {
    if sent != 0 || content_type != ffi::HANDSHAKE || bytes.is_null() || len == 0 {
        return;
    }
    // SAFETY: the library gives a live session and `len` bytes of a message, both for this call.
    let (ssl, message) = unsafe { (SslRef::from_ptr(ssl), std::slice::from_raw_parts(bytes.cast::<u8>(), len)) };
    let Some(watched) = watched_index().ok().and_then(|index| ssl.ex_data(index)) else { return };
    match kind(message, ssl.is_server()) {
        Some(Heard::Reset) => drop(watched.resets.fetch_add(1, Ordering::Relaxed)),
        Some(Heard::Answer) => drop(watched.answers.fetch_add(1, Ordering::Relaxed)),
        None => {}
    }
}

/// What a handshake message that was received has to do with keys.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Reset,
    Answer,
}

fn kind(message: &[u8], is_server: bool) -> Option<Heard> {
    const HELLO_REQUEST: u8 = 0;
    const CLIENT_HELLO: u8 = 1;
    const KEY_UPDATE: u8 = 24;
    match message {
        [HELLO_REQUEST, ..] if !is_server => Some(Heard::Reset),
        [CLIENT_HELLO, ..] if is_server => Some(Heard::Reset),
        [KEY_UPDATE, _, _, _, 1] => Some(Heard::Reset),
        [KEY_UPDATE, ..] => Some(Heard::Answer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_update_is_a_wish_or_an_answer() {
        assert_eq!(kind(&[24, 0, 0, 1, 1], true), Some(Heard::Reset));
        assert_eq!(kind(&[24, 0, 0, 1, 0], true), Some(Heard::Answer));
        assert_eq!(kind(&[1, 0, 0, 0], true), Some(Heard::Reset));
        assert_eq!((kind(&[1, 0, 0, 0], false), kind(&[20, 0, 0, 0], true), kind(&[], true)), (None, None, None));
    }

    #[test]
    fn a_protocol_is_read_where_it_is_the_only_one() {
        assert_eq!(only_protocol(b"\0\x03\x02h2"), Some(&b"h2"[..]));
        for other in [&b""[..], b"\0", b"\0\0", b"\0\x03\x01h2", b"\0\x04\x02h2", b"\0\x06\x02h2\x02h3"] {
            assert_eq!(only_protocol(other), None);
        }
    }

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
