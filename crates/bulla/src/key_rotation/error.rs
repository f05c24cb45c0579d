//! Why a key could not be changed.

use crate::audit::AuditError;
use bulla_seal::certificate::authority::AuthorityError;
use bulla_seal::certificate::create::CreateError;
use bulla_seal::certificate::{CertificateError, KeyError};
use bulla_seal::ring::RingError;
use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

/// Why a step was not done. What was done before it stays, and the same command goes on from there.
#[derive(Debug)]
#[non_exhaustive]
pub enum RotationError {
    /// Another process changes keys in this data directory. Try again.
    Busy,
    /// A record can't be read: the operator's turn.
    Record {
        /// Its file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system refused.
    File {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
    /// A file that must be one of its own is something else, as a symbolic link.
    NotAFile {
        /// Where.
        path: PathBuf,
    },
    /// A ring can't be read or written.
    Ring(RingError),
    /// A key could not be made or read.
    Key(KeyError),
    /// A request could not be made, or a file holds no certificates.
    Create(CreateError),
    /// The authority did not sign.
    Authority(AuthorityError),
    /// The user has no key.
    NoKey {
        /// The user.
        user: String,
    },
    /// The user has no key with this serial number.
    UnknownKey {
        /// The user.
        user: String,
        /// What was asked for.
        serial: String,
    },
    /// The user signs with one key and opens with another one, or has post-quantum ones beside: which of them is to be
    /// changed must be said.
    SeveralKeys {
        /// The user.
        user: String,
        /// Serial numbers of those that sign.
        signs: Vec<String>,
        /// Serial numbers of those that open.
        opens: Vec<String>,
    },
    /// The key is on a token, where this can't make another one.
    OnToken {
        /// The user.
        user: String,
        /// Serial number of its certificate.
        serial: String,
    },
    /// Another user's ring has the same private key, and would not have the new one.
    SharedKey {
        /// The other user.
        other: String,
        /// Serial number of the certificate.
        serial: String,
    },
    /// The key is being changed already, or was.
    Replaced {
        /// Serial number of its certificate.
        serial: String,
    },
    /// So many old keys of one user wait for their last message.
    TooMany {
        /// The user.
        user: String,
        /// The limit.
        max: usize,
    },
    /// A change is under way that was begun otherwise.
    Begun {
        /// The user.
        user: String,
        /// What differs, as it was begun.
        with: String,
    },
    /// Several changes are under way, and it is not said which is meant.
    SeveralChanges {
        /// The user.
        user: String,
        /// The serial numbers of the keys that are replaced.
        serials: Vec<String>,
    },
    /// There is no change under way that this could go on with.
    NotBegun {
        /// The user.
        user: String,
    },
    /// The change is too far on to be called off: messages may need the new key already.
    TooFar {
        /// The user.
        user: String,
    },
    /// There is no authority here that issued the old certificate.
    NoAuthority {
        /// Who issued it.
        issuer: String,
    },
    /// The change waits for a certificate that is signed elsewhere.
    CertificateAwaited {
        /// The user.
        user: String,
    },
    /// A certificate can't take the old one's place.
    Unfit {
        /// Why.
        why: String,
    },
    /// A ring that believed the old certificate does not believe the new one.
    NotBelieved {
        /// Whose ring.
        user: String,
        /// Why.
        error: CertificateError,
    },
    /// The ring's keys have a passphrase and none was given, or the other way round.
    Passphrase {
        /// The user.
        user: String,
        /// Whether one is needed.
        is_needed: bool,
    },
    /// The running queue manager did not say that it has read the new key.
    NotConfirmed {
        /// Why.
        why: String,
    },
    /// The audit log can't be told of a step. It is told with the next look.
    Audit(AuditError),
    /// It is the key that seals.
    InUse {
        /// The user.
        user: String,
        /// Serial number of its certificate.
        serial: String,
    },
    /// Another ring has the certificate of the old key, and not the one of the new key.
    NotShared {
        /// Whose key.
        user: String,
        /// Whose ring.
        other: String,
    },
    /// Messages need the key.
    Needed {
        /// Serial number of its certificate.
        serial: String,
        /// What needs it, in words.
        what: String,
    },
    /// A test ended here.
    #[cfg(test)]
    Stopped,
}

impl RotationError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> RotationError {
        let path = path.to_owned();
        move |error| RotationError::File { path, error }
    }

    /// What to do, where a command would mend it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            RotationError::Busy => "try again".to_owned(),
            RotationError::NoKey { user } => format!("`bulla cert create --ring {user} …` makes the first one"),
            RotationError::UnknownKey { user, .. } => format!("`bulla cert list --ring {user}` shows serial numbers"),
            RotationError::SeveralKeys { .. } | RotationError::SeveralChanges { .. } => {
                "--serial says which of them".to_owned()
            }
            RotationError::OnToken { .. } => {
                "make the new key on the token with `bulla cert create --device`, share its certificate, and take the \
                 old one out of use with `bulla key retire`"
                    .to_owned()
            }
            RotationError::SharedKey { other, .. } => {
                format!("give {other} a key of its own: `bulla cert create --ring {other} …`")
            }
            RotationError::TooMany { .. } => {
                "DISPLAY KEYROTATE shows what they wait for; `bulla key retire USER SERIAL --strand` ends one".to_owned()
            }
            RotationError::Begun { .. } => {
                "the command without options goes on with it; --cancel calls it off".to_owned()
            }
            RotationError::NoAuthority { .. } => {
                "--signer names an authority of this data directory; --request writes a request to be signed elsewhere"
                    .to_owned()
            }
            RotationError::CertificateAwaited { user } => {
                format!("`bulla key rotate {user} --certificate FILE` goes on with what the authority signed")
            }
            RotationError::NotBelieved { user, .. } => {
                format!("`bulla cert import FILE --ring {user} --as trust` puts an authority there")
            }
            RotationError::Passphrase { is_needed: true, .. } => {
                "--passphrase-file names the file with the passphrase".to_owned()
            }
            RotationError::Passphrase { is_needed: false, .. } => "leave the passphrase out".to_owned(),
            RotationError::NotConfirmed { .. } => "the same command goes on from there".to_owned(),
            RotationError::File { error, .. } if is_full(error.kind()) => FULL_HINT.to_owned(),
            RotationError::Ring(RingError::Io { kind, .. }) if is_full(*kind) => FULL_HINT.to_owned(),
            RotationError::InUse { user, .. } => format!("`bulla key rotate {user}` makes another one first"),
            RotationError::NotShared { user, other } => format!(
                "`bulla cert export LABEL --ring {user} --out FILE` and `bulla cert import FILE --ring {other}` share it"
            ),
            RotationError::Needed { .. } => {
                "it goes out of use by itself with the last of them; --strand takes it out now, and they can't be opened"
                    .to_owned()
            }
            RotationError::Authority(error) if error.is_locked() => {
                "--signer-passphrase-file names the file with its passphrase".to_owned()
            }
            _ => return None,
        })
    }
}

/// Of a full disk.
const FULL_HINT: &str = "the same command goes on from there once the disk has room";

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Display for RotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another command changes keys here"),
            Self::Record { path, why } => write!(f, "{}: {why}", path.display()),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::NotAFile { path } => {
                write!(f, "{} is a link or something else, and not a file or folder of its own", path.display())
            }
            Self::Ring(error) => error.fmt(f),
            Self::Key(error) => error.fmt(f),
            Self::Create(error) => error.fmt(f),
            Self::Authority(error) => error.fmt(f),
            Self::NoKey { user } => write!(f, "{user} has no key"),
            Self::UnknownKey { user, serial } => write!(f, "{user} has no key with serial number {serial}"),
            Self::SeveralKeys { user, signs, opens } => {
                let keys = |serials: &[String]| {
                    let word = if serials.len() == 1 { "key" } else { "keys" };
                    format!("the {word} {}", serials.join(", "))
                };
                write!(f, "{user} signs with {} and opens with {}", keys(signs), keys(opens))
            }
            Self::OnToken { user, serial } => {
                write!(f, "the key {serial} of {user} is on a token or in a transit engine")
            }
            Self::SharedKey { other, serial } => write!(f, "the ring of {other} has the private key {serial}, too"),
            Self::Replaced { serial } => write!(f, "the key {serial} is replaced already"),
            Self::TooMany { user, max } => write!(f, "{max} old keys of {user} wait for their last message"),
            Self::Begun { user, with } => write!(f, "a change of the key of {user} is under way, {with}"),
            Self::SeveralChanges { user, serials } => {
                write!(f, "changes of several keys of {user} are under way, of {}", serials.join(" and "))
            }
            Self::NotBegun { user } => write!(f, "no change of the key of {user} is under way"),
            Self::TooFar { user } => write!(f, "{user} has the new key already, and messages may need it"),
            Self::NoAuthority { issuer } => write!(f, "no authority here has issued certificates as {issuer}"),
            Self::CertificateAwaited { user } => write!(f, "the new certificate of {user} is not here yet"),
            Self::Unfit { why } => write!(f, "the new certificate can't take the old one's place: {why}"),
            Self::NotBelieved { user, error } => {
                write!(f, "the ring of {user} would not believe the new certificate: {}: {error}", error.cause())
            }
            Self::Passphrase { user, is_needed: true } => write!(f, "the keys of {user} have a passphrase"),
            Self::Passphrase { user, is_needed: false } => write!(f, "the keys of {user} have no passphrase"),
            Self::Audit(error) => error.fmt(f),
            Self::NotConfirmed { why } => write!(f, "the queue manager has not read the new key: {why}"),
            Self::InUse { user, serial } => write!(f, "{user} seals and opens with the key {serial}"),
            Self::NotShared { user, other } => {
                write!(f, "the ring of {other} would have no certificate of {user} any more")
            }
            Self::Needed { serial, what } => write!(f, "the key {serial} is needed: {what}"),
            #[cfg(test)]
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for RotationError {}

impl From<RingError> for RotationError {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl From<KeyError> for RotationError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<CreateError> for RotationError {
    fn from(error: CreateError) -> Self {
        Self::Create(error)
    }
}

impl From<AuthorityError> for RotationError {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error)
    }
}
