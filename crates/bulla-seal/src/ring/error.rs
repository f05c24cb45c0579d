//! Why there is no ring.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::certificate::{KeyError, MalformedError};

/// Why a ring could not be read or written. The turn of the ring's owner or the operator, who find the file named.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// There is no such directory.
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// A user's name that is empty, too long, or not made of letters, digits and `._@-`.
    UserName {
        /// The name.
        user: String,
    },
    /// A label for a file that is empty, too long, or not made of letters, digits and `._@-`.
    Label {
        /// The label.
        label: String,
    },
    /// Others can read, or change, what only the owner may. `chmod` is the remedy.
    Exposed {
        /// The file or directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The system refused.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What kind of refusal.
        kind: io::ErrorKind,
        /// The system's words.
        why: String,
    },
    /// A file is larger than it may be, or there are too many.
    TooLarge {
        /// The file or directory.
        path: PathBuf,
        /// The limit: bytes of a file, files of a directory.
        max: usize,
    },
    /// A certificate or CRL is damaged, or of a kind that is not used.
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        why: MalformedError,
    },
    /// A private key is missing, locked or damaged.
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        why: KeyError,
    },
    /// A file of `own` has no certificate for its private key, or one of `people` or `trust` has none at all.
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
}

impl RingError {
    pub(crate) fn io(path: &Path, error: &io::Error) -> RingError {
        RingError::Io { path: path.to_owned(), kind: error.kind(), why: error.to_string() }
    }

    /// The same for users of another machine, whom this one's directories are no business of: files by their names in
    /// the ring.
    pub fn without_directories(&self) -> RingError {
        let mut error = self.clone();
        match &mut error {
            RingError::UserName { .. } | RingError::Label { .. } => {}
            RingError::Missing { path }
            | RingError::Exposed { path, .. }
            | RingError::Io { path, .. }
            | RingError::TooLarge { path, .. }
            | RingError::Malformed { path, .. }
            | RingError::Key { path, .. }
            | RingError::NoCertificate { path } => *path = path.file_name().unwrap_or_default().into(),
        }
        error
    }

    /// Whether all it takes is the passphrase ([`super::Rings::unlock`]).
    pub fn is_locked(&self) -> bool {
        matches!(self, RingError::Key { why: KeyError::Locked, .. })
    }
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Missing { path } => write!(f, "no key ring at {}", path.display()),
            RingError::UserName { user } => write!(f, "user name {user:?} cannot have a key ring"),
            RingError::Label { label } => {
                write!(f, "label {label:?} must have 1 to 128 letters, digits or ._@- and not begin with a dot")
            }
            RingError::Exposed { path, mode } => {
                write!(f, "{} has mode {mode:04o}: others must not have access to a key ring", path.display())
            }
            RingError::Io { path, why, .. } => write!(f, "{}: {why}", path.display()),
            RingError::TooLarge { path, max } => {
                write!(f, "{} is over its limit of {max}", path.display())
            }
            RingError::Malformed { path, why } => write!(f, "{}: {why}", path.display()),
            RingError::Key { path, why } => write!(f, "{}: {why}", path.display()),
            RingError::NoCertificate { path } => {
                write!(f, "{}: no certificate that belongs there", path.display())
            }
        }
    }
}

impl std::error::Error for RingError {}
