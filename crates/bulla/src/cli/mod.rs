//! The command line: each subcommand is a file. Results go to standard output, the rest to standard
//! error; each kind of failure has an exit code.

pub mod audit;
pub mod cert;
pub mod completions;
pub mod connection;
pub mod demo;
pub mod dlq;
pub mod doctor;
mod enrolment;
pub mod error;
pub mod get;
pub mod init;
pub mod journal;
pub mod key;
pub mod manual;
pub mod mqsc;
pub mod own_seal;
pub mod perf;
pub mod policy;
pub mod put;
pub mod report;
pub mod reseal;
pub mod seal;
pub mod secrecy;
mod service_manager;
pub mod start;
pub mod token;
pub mod token_helper;
pub mod trigger;
pub mod user;

pub use crate::catalog::exit_codes::*;

use bulla_client::ClientError;
use std::fmt;
use std::io;
use std::path::Path;

/// The data directory where `--data` names none.
pub const DATA_DEFAULT: &str = "bulla-data";

/// Why a command failed: one line, perhaps a hint, and an exit code.
#[derive(Debug)]
pub struct CliError {
    /// The exit code.
    pub code: u8,
    /// One lower-case line.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl CliError {
    /// With this exit code.
    #[must_use]
    pub fn new(code: u8, message: String) -> Self {
        Self { code, message, hint: None }
    }

    /// A failure that has no exit code of its own.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(EXIT_FAILED, message.into())
    }

    /// A wrong command line.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(EXIT_USAGE, message.into())
    }

    /// A file that can't be read or written.
    #[must_use]
    pub fn file(path: &Path, error: io::Error) -> Self {
        Self::failed(format!("{}: {error}", path.display()))
    }

    /// With a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let code = match error {
            ClientError::Refused(_) | ClientError::NotAuthenticated => EXIT_REFUSED,
            ClientError::Io(_)
            | ClientError::Unreachable { .. }
            | ClientError::NotInClear { .. }
            | ClientError::NoTls { .. }
            | ClientError::Untrusted { .. }
            | ClientError::OtherHost { .. }
            | ClientError::NoCipherSpec
            | ClientError::CertificateRefused
            | ClientError::Authorities { .. }
            | ClientError::Tls(_) => EXIT_UNREACHABLE,
            _ => EXIT_FAILED,
        };
        let hint = match &error {
            ClientError::Unreachable { error, .. } if error.kind() == io::ErrorKind::ConnectionRefused => {
                Some("is the queue manager started? `bulla start` starts one; --amqp names another address")
            }
            ClientError::Unreachable { .. } => Some("--amqp names another address, as HOST:PORT"),
            ClientError::NotInClear { .. } => Some(
                "on a TLS port, give --ca with the file of its authority (tls/ca.pem of the data directory); \
                 or give the clear port with --amqp",
            ),
            ClientError::NoTls { .. } => Some("leave --ca out, or give the TLS port with --amqp"),
            ClientError::Untrusted { .. } => {
                Some("give --ca with the file of the authority that signed it (tls/ca.pem of the data directory)")
            }
            ClientError::OtherHost { .. } => Some("give a host that the certificate is for with --amqp"),
            ClientError::NoCipherSpec => Some(
                "a CipherSpec with RSA in its name needs an RSA certificate at the server, one with ECDSA an EC one: \
                 see SSLCIPH and CERTLABL of the queue manager or channel",
            ),
            ClientError::CertificateRefused => {
                Some("give --cert with a certificate of an authority that is in tls/clients.pem of the data directory")
            }
            _ => None,
        };
        Self { code, message: error.to_string(), hint: hint.map(str::to_owned) }
    }
}
