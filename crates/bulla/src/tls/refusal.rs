//! Why a TLS connection was not made: one cause each, with MQ's reason code.

use crate::reason::{self, Reason, Refusal};
use bulla_seal::dn::Dn;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslRef};
use openssl::x509::{X509NameRef, X509VerifyResult};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Why TLS refused a partner, or was refused by it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TlsRefusal {
    /// The partner's turn: a certificate of its chain is past its end.
    Expired {
        /// Whose certificate it is.
        subject: String,
    },
    /// The partner's turn, or that of the owner of a wrong clock: a certificate of its chain is not valid yet.
    NotYetValid {
        /// Whose certificate it is.
        subject: String,
    },
    /// The partner's turn: its authority has revoked a certificate of its chain.
    Revoked {
        /// Whose certificate it is.
        subject: String,
        /// Whether a revocation list or a stapled OCSP answer says so.
        by: &'static str,
    },
    /// The operator's turn: whether a certificate is revoked can't be told, because the list is old or unreadable, or
    /// the stapled answer is missing, old, or of another certificate.
    RevocationUnknown {
        /// Whose certificate it is.
        subject: String,
        /// What is wrong.
        why: String,
    },
    /// The operator's turn where the authority is to be believed: no authority in `clients.pem` or `partners.pem`
    /// vouches for the certificate, or it is not meant for TLS.
    Untrusted {
        /// Whose certificate it is.
        subject: String,
        /// What the check of its chain found.
        why: String,
    },
    /// The partner's turn: it showed no certificate, and SSLCAUTH(REQUIRED) or SSLPEER asks for one.
    NoCertificate,
    /// The certificate is good, but of another subject than SSLPEER, or without it CONNAME, says.
    WrongName {
        /// Whose certificate it is.
        subject: String,
        /// SSLPEER's pattern, or the host of CONNAME.
        wanted: String,
    },
    /// SSLPEER is no pattern.
    Pattern(super::PatternError),
    /// SSLCIPH names nothing in the table.
    UnknownCipherSpec {
        /// What it says.
        name: String,
    },
    /// What was agreed, if anything, is not what SSLCIPH says.
    CipherMismatch {
        /// IANA's name of what was agreed; nothing where the two ends had nothing in common, or there is no TLS.
        agreed: Option<String>,
        /// SSLCIPH; nothing where this end offered what its listener offers.
        wanted: Option<String>,
    },
    /// The group by which keys were agreed on, if any, is not one of SSLGROUPS.
    GroupMismatch {
        /// The group; none where the two ends had none in common, or the keys were opened with RSA.
        agreed: Option<String>,
        /// SSLGROUPS of the channel; none where it is not known which end of it asks.
        wanted: Option<String>,
    },
    /// The partner refused, with this alert (RFC 8446, section 6). Its log says more.
    Partner {
        /// The alert in words.
        said: &'static str,
        /// The reason that fits it.
        reason: Reason,
    },
    /// The partner showed another certificate in a renegotiation than at first.
    Changed,
    /// The partner renews keys too often, or renegotiates where that is not allowed.
    TooManyResets,
    /// The operator's turn: a certificate, key or list of this queue manager is missing or unreadable.
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The bytes are not those of TLS, or the library failed.
    Library {
        /// What the library says.
        why: String,
    },
}

impl TlsRefusal {
    /// The cause in one word, as it stands in refusals.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "certificate-expired",
            Self::NotYetValid { .. } => "certificate-not-yet-valid",
            Self::Revoked { .. } => "certificate-revoked",
            Self::RevocationUnknown { .. } => "revocation-unknown",
            Self::Untrusted { .. } => "certificate-untrusted",
            Self::NoCertificate => "no-certificate",
            Self::WrongName { .. } => "wrong-peer-name",
            Self::Pattern(_) => "peer-pattern",
            Self::UnknownCipherSpec { .. } => "unknown-cipher-spec",
            Self::CipherMismatch { .. } => "cipher-mismatch",
            Self::GroupMismatch { .. } => "group-mismatch",
            Self::Partner { .. } => "refused-by-partner",
            Self::Changed => "certificate-changed",
            Self::TooManyResets => "too-many-key-resets",
            Self::File { .. } => "certificate-store",
            Self::Library { .. } => "tls-failed",
        }
    }

    /// MQ's reason code.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Revoked { .. } => reason::SSL_CERTIFICATE_REVOKED,
            Self::WrongName { .. } | Self::Changed => reason::SSL_PEER_NAME_MISMATCH,
            Self::Pattern(_) => reason::SSL_PEER_NAME_ERROR,
            Self::UnknownCipherSpec { .. } | Self::CipherMismatch { .. } | Self::GroupMismatch { .. } => {
                reason::UNSUPPORTED_CIPHER_SUITE
            }
            Self::File { .. } => reason::SSL_CERT_STORE_ERROR,
            Self::Partner { reason, .. } => *reason,
            _ => reason::SSL_INITIALIZATION_ERROR,
        }
    }

    /// The refusal as channels and clients are told of it.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Refusal { cause: Some(self.cause()), ..Refusal::new(self.reason(), self.to_string()) }
    }

    /// What an error of a socket says about TLS, if it does.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { subject } => write!(f, "the certificate of {subject} has expired"),
            Self::NotYetValid { subject } => write!(f, "the certificate of {subject} is not valid yet"),
            Self::Revoked { subject, by } => write!(f, "the certificate of {subject} is revoked, says {by}"),
            Self::RevocationUnknown { subject, why } => {
                write!(f, "whether the certificate of {subject} is revoked is not known: {why}")
            }
            Self::Untrusted { subject, why } => write!(f, "the certificate of {subject} is not trusted: {why}"),
            Self::NoCertificate => f.write_str("the partner showed no certificate"),
            Self::WrongName { subject, wanted } => {
                write!(f, "wrong peer name: the certificate is that of {subject}, not of {wanted}")
            }
            Self::Pattern(error) => write!(f, "SSLPEER: {error}"),
            Self::UnknownCipherSpec { name } => write!(f, "SSLCIPH({name}) is not in the table of CipherSpecs"),
            Self::CipherMismatch { agreed: None, wanted: None } => f.write_str(
                "cipher mismatch: the two ends have no cipher suite in common; a CipherSpec with RSA in its name needs an \
                 RSA certificate at the end that is called, one with ECDSA an EC certificate",
            ),
            Self::CipherMismatch { agreed, wanted } => {
                let agreed = agreed.as_deref().unwrap_or("no cipher suite");
                let wanted = wanted.as_deref().unwrap_or("what the listener offers");
                write!(f, "cipher mismatch: {agreed} was agreed on, wanted is {wanted}")
            }
            Self::GroupMismatch { wanted: None, .. } => {
                let said = "group mismatch: the two ends have no group in common; SSLGROUPS of channel and queue \
                            manager say which there are";
                f.write_str(said)
            }
            Self::GroupMismatch { agreed, wanted: Some(wanted) } => {
                let agreed = agreed.as_deref().unwrap_or("no group");
                write!(f, "group mismatch: {agreed} was agreed on, wanted is {wanted}")
            }
            Self::Partner { said, .. } => write!(f, "refused by the partner: {said}"),
            Self::Changed => f.write_str("the partner showed another certificate in a renegotiation than at first"),
            Self::TooManyResets => f.write_str("the partner renews keys where or more often than it may"),
            Self::File { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Library { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for TlsRefusal {}

impl From<ErrorStack> for TlsRefusal {
    fn from(error: ErrorStack) -> Self {
        Self::Library { why: error.to_string() }
    }
}

/// What callbacks leave at a session for its driver.
#[derive(Default)]
pub(super) struct Note {
    refusal: Mutex<Option<TlsRefusal>>,
    /// The first hello was looked at: a renegotiation changes no certificates and no settings.
    greeted: AtomicBool,
    /// The host that the certificate must name, where nothing else says whose it must be.
    host: Option<String>,
}

fn index() -> Option<Index<Ssl, Note>> {
    static INDEX: OnceLock<Option<Index<Ssl, Note>>> = OnceLock::new();
    *INDEX.get_or_init(|| Ssl::new_ex_index().ok())
}

/// Makes room for a note. A session without one is judged by what the library says alone.
pub(super) fn make_note(ssl: &mut SslRef, host: Option<String>) {
    if let Some(index) = index() {
        ssl.set_ex_data(index, Note { host, ..Note::default() });
    }
}

fn note(ssl: &SslRef) -> Option<&Note> {
    ssl.ex_data(index()?)
}

/// Leaves a refusal; the first one counts.
pub(super) fn leave(ssl: &SslRef, refusal: TlsRefusal) {
    if let Some(note) = note(ssl) {
        note.refusal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(refusal);
    }
}

/// Whether this is the first hello of a session.
pub(super) fn is_first_hello(ssl: &SslRef) -> bool {
    note(ssl).is_none_or(|note| !note.greeted.swap(true, Ordering::Relaxed))
}

/// The text of a certificate's name; one that can't be read is said so.
pub(super) fn name_text(name: &X509NameRef) -> String {
    Dn::from_x509_name(name).map_or_else(|_| "an unreadable name".into(), |dn| dn.to_string())
}

/// What the check of a chain found.
pub(super) fn of_chain(ssl: &SslRef, error: X509VerifyResult, subject: String) -> TlsRefusal {
    // The numbers are X509_V_ERR_… of x509_vfy.h.
    match error.as_raw() {
        10 => TlsRefusal::Expired { subject },
        9 => TlsRefusal::NotYetValid { subject },
        23 => TlsRefusal::Revoked { subject, by: "a revocation list" },
        3 | 5 | 8 | 11 | 12 | 15 | 16 | 33 | 35 | 36 | 44 | 54 => {
            TlsRefusal::RevocationUnknown { subject, why: error.error_string().into() }
        }
        62..=64 => TlsRefusal::WrongName { subject, wanted: host(ssl) },
        // No authority that is believed here is at the end of the chain.
        2 | 18..=21 => {
            let file = if ssl.is_server() { "tls/clients.pem" } else { "tls/partners.pem (or tls/clients.pem)" };
            TlsRefusal::Untrusted {
                subject,
                why: format!("{}; to believe it, put its authority into {file}", error.error_string()),
            }
        }
        _ => TlsRefusal::Untrusted { subject, why: error.error_string().into() },
    }
}

fn host(ssl: &SslRef) -> String {
    note(ssl).and_then(|note| note.host.clone()).unwrap_or_else(|| "the host in CONNAME".into())
}

/// Why a handshake, a read or a write failed: what a callback left, what the check of the chain found, what the library
/// or the partner says, in this order.
pub(crate) fn of_failure(ssl: &SslRef, error: &openssl::ssl::Error) -> TlsRefusal {
    if let Some(left) = note(ssl).and_then(|note| note.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()) {
        return left;
    }
    let errors = error.ssl_error().map(ErrorStack::errors).unwrap_or_default();
    let reasons = || errors.iter().filter(|error| error.library_code() == LIBRARY_SSL).map(|error| error.reason_code());
    if let Some(refusal) = reasons().find_map(of_alert) {
        return refusal;
    }
    if reasons().any(|reason| reason == NO_RENEGOTIATION) {
        let said = "no renegotiation: its SSLRKEYC for this channel is 0";
        return TlsRefusal::Partner { said, reason: reason::SSL_INITIALIZATION_ERROR };
    }
    if reasons().any(|reason| reason == PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        return TlsRefusal::NoCertificate;
    }
    if reasons().any(|reason| NOTHING_IN_COMMON.contains(&reason)) {
        return TlsRefusal::CipherMismatch { agreed: None, wanted: None };
    }
    if reasons().any(|reason| NO_GROUP_IN_COMMON.contains(&reason)) {
        return TlsRefusal::GroupMismatch { agreed: None, wanted: None };
    }
    if ssl.verify_result() != X509VerifyResult::OK {
        let subject = ssl.peer_certificate().map(|certificate| name_text(certificate.subject_name()));
        return of_chain(ssl, ssl.verify_result(), subject.unwrap_or_else(|| "the partner".into()));
    }
    TlsRefusal::Library {
        why: errors.iter().find_map(|error| error.reason()).map_or_else(|| error.to_string(), Into::into),
    }
}

/// ERR_LIB_SSL of err.h.
const LIBRARY_SSL: i32 = 20;
/// SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE of sslerr.h.
const PEER_DID_NOT_RETURN_A_CERTIFICATE: i32 = 199;
/// SSL_R_NO_RENEGOTIATION of sslerr.h.
const NO_RENEGOTIATION: i32 = 339;
/// SSL_R_NO_SHARED_CIPHER, UNSUPPORTED_PROTOCOL, NO_PROTOCOLS_AVAILABLE, WRONG_SSL_VERSION, NO_CIPHERS_AVAILABLE,
/// WRONG_CIPHER_RETURNED and NO_SUITABLE_SIGNATURE_ALGORITHM of sslerr.h.
const NOTHING_IN_COMMON: [i32; 7] = [193, 258, 191, 266, 181, 261, 118];
/// SSL_R_NO_SUITABLE_KEY_SHARE, NO_SUITABLE_GROUPS and BAD_KEY_SHARE of sslerr.h: the last where a caller is asked for
/// a share that it does not have.
const NO_GROUP_IN_COMMON: [i32; 3] = [101, 295, 108];
/// SSL_AD_REASON_OFFSET of ssl.h: the library adds it to an alert that arrived.
const ALERT_OFFSET: i32 = 1000;

fn of_alert(reason_code: i32) -> Option<TlsRefusal> {
    let (said, reason) = match reason_code - ALERT_OFFSET {
        40 => (
            "handshake failure: no cipher suite in common, as of an RSA CipherSpec with an EC certificate there, no \
             group in common (SSLGROUPS of the two ends), or a certificate is missing",
            reason::UNSUPPORTED_CIPHER_SUITE,
        ),
        42 => ("bad certificate", reason::SSL_INITIALIZATION_ERROR),
        43 => ("certificate of an unsupported kind", reason::SSL_INITIALIZATION_ERROR),
        44 => ("certificate revoked", reason::SSL_CERTIFICATE_REVOKED),
        45 => ("certificate expired", reason::SSL_INITIALIZATION_ERROR),
        46 => ("certificate not accepted", reason::SSL_INITIALIZATION_ERROR),
        48 => ("certificate of an unknown authority", reason::SSL_INITIALIZATION_ERROR),
        49 => ("access denied", reason::SSL_PEER_NAME_MISMATCH),
        51 => ("a signature of the handshake is wrong", reason::SSL_INITIALIZATION_ERROR),
        70 => ("protocol version not supported", reason::UNSUPPORTED_CIPHER_SUITE),
        71 => ("not secure enough", reason::UNSUPPORTED_CIPHER_SUITE),
        80 => ("internal error", reason::SSL_INITIALIZATION_ERROR),
        100 => ("no renegotiation", reason::SSL_INITIALIZATION_ERROR),
        112 => ("server name not known", reason::SSL_INITIALIZATION_ERROR),
        113 => ("bad stapled OCSP answer", reason::SSL_INITIALIZATION_ERROR),
        116 => ("certificate required", reason::SSL_INITIALIZATION_ERROR),
        10 | 20 | 21 | 22 | 30 | 41 | 47 | 50 | 60 | 86 | 90 | 109 | 110 | 120 => {
            ("the handshake broke a rule of TLS", reason::SSL_INITIALIZATION_ERROR)
        }
        _ => return None,
    };
    Some(TlsRefusal::Partner { said, reason })
}
