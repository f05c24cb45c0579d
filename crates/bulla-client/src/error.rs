//! What ends a client's request, and what the TLS library's errors mean to whom they concern.

use crate::wire::refused;
use bulla_amqp::Error;
use openssl::error::ErrorStack;
use openssl::ssl::MidHandshakeSslStream;
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What ended a client's request.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The network's or the broker's turn: no connection, or it broke.
    Io(io::Error),
    /// The user's turn: nothing answers there.
    Unreachable {
        /// `HOST:PORT`.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The user's turn: the other side ended the connection at the first bytes of clear text, as a TLS port does.
    NotInClear {
        /// `HOST:PORT`.
        address: String,
    },
    /// The user's turn: the other side answered a TLS handshake in clear.
    NoTls {
        /// `HOST:PORT`.
        address: String,
    },
    /// The user's turn: no authority that is believed signed the server's certificate, or it is out of date.
    Untrusted {
        /// The file of authorities.
        authorities: PathBuf,
        /// What the check of its chain found.
        why: String,
    },
    /// The user's turn: the server's certificate is of other hosts.
    OtherHost {
        /// The host that was asked for.
        host: String,
    },
    /// The operator's turn: the two sides have no CipherSpec in common.
    NoCipherSpec,
    /// The user's turn: the server wants a certificate, and takes none that was shown.
    CertificateRefused,
    /// The user's turn: the file of authorities can't be read.
    Authorities {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// TLS did not come about.
    Tls(String),
    /// The user's turn: the broker did not believe the credentials.
    NotAuthenticated,
    /// The broker refused, or ended what was open, with this error.
    Refused(Box<Error>),
    /// The broker closed without a word.
    Closed,
    /// Nothing came within this time.
    TimedOut(Duration),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Unreachable { address, error } => write!(f, "{address}: {error}"),
            Self::NotInClear { address } => {
                write!(f, "{address} ended the connection at the first bytes: clear text may not be spoken there")
            }
            Self::NoTls { address } => write!(f, "{address} does not speak TLS"),
            Self::Untrusted { authorities, why } => {
                write!(f, "the server's certificate is not trusted by {}: {why}", authorities.display())
            }
            Self::OtherHost { host } => write!(f, "the server's certificate is not for {host}"),
            Self::NoCipherSpec => f.write_str("the server has no CipherSpec in common with this client"),
            Self::CertificateRefused => f.write_str("the server refused this client's certificate, or the lack of one"),
            Self::Authorities { path, error } => write!(f, "tls: {}: {error}", path.display()),
            Self::Tls(error) => write!(f, "tls: {error}"),
            Self::NotAuthenticated => f.write_str("user or password is wrong"),
            Self::Refused(error) => f.write_str(refused(error)),
            Self::Closed => f.write_str("the other side closed the connection"),
            Self::TimedOut(after) => write!(f, "no answer within {} s", after.as_secs()),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a handshake with a host failed.
pub(crate) fn of_handshake(
    failed: &MidHandshakeSslStream<TcpStream>,
    address: &str,
    host: &str,
    authorities: &Path,
) -> ClientError {
    let verified = failed.ssl().verify_result();
    match verified.as_raw() {
        HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH => ClientError::OtherHost { host: host.to_owned() },
        VERIFIED => {
            let known = failed.error().ssl_error().and_then(|errors| of_stack(errors, address));
            known.unwrap_or_else(|| ClientError::Tls(failed.error().to_string()))
        }
        _ => ClientError::Untrusted { authorities: authorities.to_owned(), why: verified.error_string().to_owned() },
    }
}

/// What an error of a TLS stream says that the user can mend: an alert that came after the handshake.
pub(crate) fn of_tls(error: &io::Error) -> Option<ClientError> {
    of_stack(error.get_ref()?.downcast_ref::<openssl::ssl::Error>()?.ssl_error()?, "")
}

/// What the library's errors say that the user can mend.
fn of_stack(errors: &ErrorStack, address: &str) -> Option<ClientError> {
    errors.errors().iter().find_map(|error| match error.reason_code() {
        WRONG_VERSION_NUMBER | HTTP_REQUEST => Some(ClientError::NoTls { address: address.to_owned() }),
        ALERT_HANDSHAKE_FAILURE | ALERT_INSUFFICIENT_SECURITY => Some(ClientError::NoCipherSpec),
        ALERT_BAD_CERTIFICATE..=ALERT_UNKNOWN_AUTHORITY | ALERT_CERTIFICATE_REQUIRED => {
            Some(ClientError::CertificateRefused)
        }
        _ => None,
    })
}

/// SSL_R_WRONG_VERSION_NUMBER of sslerr.h.
const WRONG_VERSION_NUMBER: i32 = 267;
/// SSL_R_HTTP_REQUEST of sslerr.h.
const HTTP_REQUEST: i32 = 156;
/// Alerts that arrived (RFC 8446, section 6), as the library counts them: SSL_AD_REASON_OFFSET of ssl.h is added.
const ALERT_HANDSHAKE_FAILURE: i32 = 1040;
const ALERT_BAD_CERTIFICATE: i32 = 1042;
const ALERT_UNKNOWN_AUTHORITY: i32 = 1048;
const ALERT_INSUFFICIENT_SECURITY: i32 = 1071;
const ALERT_CERTIFICATE_REQUIRED: i32 = 1116;

/// X509_V_OK of x509_vfy.h.
const VERIFIED: i32 = 0;
/// X509_V_ERR_HOSTNAME_MISMATCH of x509_vfy.h.
const HOSTNAME_MISMATCH: i32 = 62;
/// X509_V_ERR_IP_ADDRESS_MISMATCH of x509_vfy.h.
const IP_ADDRESS_MISMATCH: i32 = 64;
