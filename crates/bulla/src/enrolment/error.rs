//! Why no certificate came.

use super::configuration::FILE;
use crate::key_rotation::RotationError;
use bulla_seal::certificate::KeyError;
use bulla_seal::certificate::create::CreateError;
use bulla_seal::ring::RingError;
use std::fmt::{self, Display};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why no certificate came. What was there before stays as it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum EnrolError {
    /// The operator's turn: `enrolment.toml` can't be used.
    Configuration {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// `enrolment.toml` says nothing of it.
    NotConfigured {
        /// What is missing there, as `rings.billing`.
        what: String,
    },
    /// The system refused.
    File {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
    /// The operator's turn: others could change a file that decides what is run or believed.
    Unsafe {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The authority did not answer in time.
    Late {
        /// How long it had, in seconds.
        seconds: u64,
    },
    /// The answer was too long.
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// The authority refused, or the program failed.
    Refused {
        /// How: `exit status 1`, or the authority's status.
        how: String,
        /// What it said.
        said: String,
    },
    /// The agent has no certificate for this process.
    NoIdentity {
        /// Of which name.
        wanted: Option<String>,
        /// What it said, or has.
        said: String,
    },
    /// The operator's turn: a ring is to have certificates that end before what is sealed for them is read.
    ShortLived {
        /// The file.
        path: PathBuf,
        /// The ring's user.
        user: String,
    },
    /// The authority has not decided yet: it is asked again, with the same request.
    NotYet {
        /// What it said.
        said: String,
    },
    /// The authority could not be reached, or what came back is no answer.
    Transfer {
        /// Where it is.
        url: String,
        /// Why.
        why: String,
    },
    /// The answer breaks the protocol, or is not protected as it must be.
    Protocol {
        /// Why.
        why: String,
    },
    /// The answer is not the certificate that was asked for.
    Answer {
        /// Why.
        why: String,
    },
    /// The operator's turn: the authority has terms that the configuration does not agree to.
    TermsNotAgreed {
        /// Where they are.
        terms: String,
    },
    /// The operator's turn: nothing can be shown to the authority at that address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Another process changed the key or its certificate meanwhile.
    Overtaken,
    /// The queue manager stops.
    Stopping,
    /// The key could not be changed.
    Rotation(RotationError),
    /// A key could not be made or read.
    Key(KeyError),
    /// The request could not be made.
    Create(CreateError),
    /// A ring can't be read or written.
    Ring(RingError),
}

impl EnrolError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> EnrolError {
        let path = path.to_owned();
        move |error| EnrolError::File { path, error }
    }

    /// Whether nothing went wrong: another attempt soon is all that is due.
    pub fn is_passing(&self) -> bool {
        matches!(self, EnrolError::Overtaken | EnrolError::Stopping | EnrolError::Rotation(RotationError::Busy))
    }

    /// What to do, where something would mend it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            EnrolError::NotConfigured { .. } => format!("docs/operating/enrolment.md has an example of {FILE}"),
            EnrolError::Unsafe { path, .. } => {
                format!("`chmod go-w {}`, and give it to root or to the user of the queue manager", path.display())
            }
            EnrolError::NoIdentity { .. } => format!(
                "an entry at the server of SPIFFE must be for this process, as by the selector unix:uid:{}",
                rustix::process::geteuid().as_raw()
            ),
            EnrolError::ShortLived { .. } => {
                "signers in the place of rings has it sign with that; for what is sealed for it, let the ring have an authority with command or cmp".to_owned()
            }
            EnrolError::Late { .. } => "`seconds` of the authority gives it more time".to_owned(),
            EnrolError::TermsNotAgreed { .. } => {
                format!("read them; `terms_agreed = true` in {FILE} says that you agree")
            }
            EnrolError::Listen { .. } => {
                "http01_listen of the authority is to be an address that nothing else listens at".to_owned()
            }
            EnrolError::NotYet { .. } => "the same command asks again; a queue manager that runs does, too".to_owned(),
            EnrolError::Overtaken => "try again".to_owned(),
            EnrolError::Rotation(error) => return error.hint(),
            _ => return None,
        })
    }
}

impl Display for EnrolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration { path, why } => write!(f, "{}: {why}", path.display()),
            Self::NotConfigured { what } => write!(f, "{FILE} has no {what}"),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Unsafe { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Late { seconds } => write!(f, "no answer within {seconds} s"),
            Self::TooLong { bytes_max } => write!(f, "the answer has more than {bytes_max} bytes"),
            Self::Refused { how, said } if said.is_empty() => write!(f, "refused: {how}"),
            Self::Refused { how, said } => write!(f, "refused: {how}: {said}"),
            Self::NoIdentity { wanted: None, said } => write!(f, "the agent has no SVID for this process: {said}"),
            Self::NoIdentity { wanted: Some(id), said } => write!(f, "the agent has no {id} for this process: {said}"),
            Self::ShortLived { path, user } => write!(
                f,
                "{}: rings.{user}: a certificate of an hour can't be a recipient of stored messages",
                path.display()
            ),
            Self::NotYet { said } if said.is_empty() => f.write_str("not decided yet"),
            Self::NotYet { said } => write!(f, "not decided yet: {said}"),
            Self::Transfer { url, why } => write!(f, "{url}: {why}"),
            Self::Protocol { why } => write!(f, "the answer is not believed: {why}"),
            Self::Answer { why } => write!(f, "the answer is not the certificate that was asked for: {why}"),
            Self::TermsNotAgreed { terms } => write!(f, "nobody has agreed to the authority's terms: {terms}"),
            Self::Listen { address, error } => write!(f, "can't listen at {address}: {error}"),
            Self::Overtaken => f.write_str("the key or its certificate was changed meanwhile"),
            Self::Stopping => f.write_str("the queue manager stops"),
            Self::Rotation(error) => error.fmt(f),
            Self::Key(error) => error.fmt(f),
            Self::Create(error) => error.fmt(f),
            Self::Ring(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EnrolError {}

impl From<RotationError> for EnrolError {
    fn from(error: RotationError) -> Self {
        Self::Rotation(error)
    }
}

impl From<KeyError> for EnrolError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<CreateError> for EnrolError {
    fn from(error: CreateError) -> Self {
        Self::Create(error)
    }
}

impl From<RingError> for EnrolError {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}
