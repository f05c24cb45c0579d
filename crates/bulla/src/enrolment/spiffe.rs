//! An authority whose agent is on this machine and gives certificates with their keys, and new ones before they end:
//! that of a SPIFFE trust domain. For TLS and signatures alone: a message that is sealed for a user is kept for
//! longer than such a certificate's hour.

use super::EnrolError;
use super::command::ANSWER_CERTIFICATES_MAX;
use super::safe_file::check_safe_socket;
use super::source::{Given, Question, Source};
use super::web::plain;
use bulla_seal::certificate::Certificate;
use bulla_spiffe::{FetchError, Svid, fetch};
use openssl::pkey::PKey;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most authorities of a trust domain.
pub const BUNDLE_CERTIFICATES_MAX: usize = 64;
/// What each SPIFFE ID begins with.
pub const ID: &str = "spiffe://";
/// Most bytes of one (SPIFFE-ID, section 2.3).
const ID_BYTES_MAX: usize = 2048;
/// What the address of an agent's socket begins with (SPIFFE Workload Endpoint, section 4).
const SOCKET: &str = "unix:";
/// PERMISSION_DENIED of gRPC: the agent has nothing for this process.
const PERMISSION_DENIED: u32 = 7;

/// The agent, as the configuration has it.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its socket.
    pub socket: PathBuf,
    /// How long an answer may take.
    pub within: Duration,
}

/// The path in an address as `unix:/run/spire/agent.sock` or `unix:///run/spire/agent.sock`.
///
/// # Errors
/// Why it is none, in words.
pub fn socket(address: &str) -> Result<PathBuf, String> {
    let path = address.strip_prefix(SOCKET).map(|rest| rest.strip_prefix("//").unwrap_or(rest));
    match path {
        Some(path) if Path::new(path).is_absolute() => Ok(path.into()),
        _ => Err(format!("{address:?} is no address as unix:/run/spire/agent.sock")),
    }
}

impl Source for Agent {
    fn certify(&self, _: &Question<'_>) -> Result<Vec<Certificate>, EnrolError> {
        Err(EnrolError::Refused { how: "an agent of SPIFFE takes no request".to_owned(), said: String::new() })
    }

    fn given(&self, id: Option<&str>, is_stopping: &dyn Fn() -> bool) -> Option<Result<Given, EnrolError>> {
        Some(self.ask(id, is_stopping))
    }
}

impl Agent {
    fn ask(&self, id: Option<&str>, is_stopping: &dyn Fn() -> bool) -> Result<Given, EnrolError> {
        let real = self.socket.canonicalize().map_err(EnrolError::file(&self.socket))?;
        check_safe_socket(&real)?;
        let mut all = fetch(&real, self.within, is_stopping).map_err(|error| self.failed(error))?;
        // The first is the one that is meant where no name is said (SPIFFE Workload API, section 5.2.1).
        let at = match id {
            None => (!all.is_empty()).then_some(0),
            Some(id) => all.iter().position(|svid| svid.id == id),
        };
        match at {
            Some(at) => given(all.swap_remove(at)),
            None => {
                let ids: Vec<_> = all.iter().map(|svid| svid.id.as_str()).collect();
                let said = plain(&match ids.is_empty() {
                    true => "it has none at all".to_owned(),
                    false => format!("it has {}", ids.join(", ")),
                });
                Err(EnrolError::NoIdentity { wanted: id.map(str::to_owned), said })
            }
        }
    }

    fn failed(&self, error: FetchError) -> EnrolError {
        let transfer = |why: String| EnrolError::Transfer { url: format!("{SOCKET}{}", self.socket.display()), why };
        match error {
            FetchError::Late => EnrolError::Late { seconds: self.within.as_secs() },
            FetchError::GivenUp => EnrolError::Stopping,
            FetchError::TooLong => EnrolError::TooLong { bytes_max: bulla_spiffe::ANSWER_BYTES_MAX },
            FetchError::Status { code: PERMISSION_DENIED, said } => {
                EnrolError::NoIdentity { wanted: None, said: plain(&said) }
            }
            FetchError::Status { code, said } => {
                EnrolError::Refused { how: format!("status {code} of gRPC"), said: plain(&said) }
            }
            FetchError::Protocol(why) => EnrolError::Protocol { why: plain(&why) },
            error => transfer(plain(&error.to_string())),
        }
    }
}

/// Reads what an agent gave. It is judged by whoever asked.
fn given(svid: Svid) -> Result<Given, EnrolError> {
    let bad = |what: &str, why: &dyn Display| EnrolError::Answer { why: format!("{what}: {why}") };
    let is_id =
        svid.id.starts_with(ID) && svid.id.len() <= ID_BYTES_MAX && svid.id.bytes().all(|b| b.is_ascii_graphic());
    if !is_id {
        return Err(bad("its name", &"no SPIFFE ID"));
    }
    let certificates = Certificate::all_from_der(&svid.certificates, ANSWER_CERTIFICATES_MAX);
    let certificates = certificates.map_err(|error| bad("its certificates", &error))?;
    // What OpenSSL says of a key that it can't read might quote it.
    let key = PKey::private_key_from_pkcs8(&svid.key).map_err(|_| bad("its key", &"not PKCS#8"))?;
    let trust = Certificate::all_from_der(&svid.bundle, BUNDLE_CERTIFICATES_MAX);
    let trust = trust.map_err(|error| bad("the authorities of its trust domain", &error))?;
    if trust.is_empty() || !trust.iter().all(Certificate::is_authority) {
        return Err(bad("the authorities of its trust domain", &"none, or one that is no authority"));
    }
    Ok(Given { id: svid.id, key, certificates, trust })
}
