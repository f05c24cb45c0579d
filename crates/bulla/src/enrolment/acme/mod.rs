//! An authority that is asked by ACME (RFC 8555), for certificates of TLS.
//!
//! A [`session`] is signed by the account's key ([`jws`], [`account`]) and leads from the [`directory`] to an
//! [`order`]; of each name that is ordered the authority wants a proof: by [`http_01`], a small listener of its own
//! that is open for so long, or by [`tls_alpn_01`], which the TLS listeners show.
//!
//! No library: those that there are (`instant-acme` and others) bring an HTTP client and cryptography of their own,
//! where this program has both already and its rules allow no second library of cryptography.

pub mod account;
pub mod directory;
pub mod http_01;
pub mod jws;
pub mod order;
pub mod problem;
mod request;
pub mod session;
pub mod tls_alpn_01;

use super::EnrolError;
use super::command::ANSWER_CERTIFICATES_MAX;
use super::source::{Question, Source};
use super::web::{Web, plain};
use account::Account;
use bulla_device::http::Url;
use bulla_seal::certificate::Certificate;
use bulla_seal::certificate::create::Asked;
use http_01::Http01;
use order::{Authorization, Identifier, Order, Proof, Status};
use serde::de::DeserializeOwned;
use serde_json::json;
use session::Session;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tls_alpn_01::TlsAlpn01;

/// The wait before an authority is asked again that does not say how long.
const POLL_AFTER: Duration = Duration::from_secs(1);
/// The longest wait before it is asked again, whatever it says.
const POLL_AFTER_MAX: Duration = Duration::from_secs(30);
/// The media type of a certificate and those above it (RFC 8555, section 9.1).
const CERTIFICATES: &str = "application/pem-certificate-chain";

/// How it is proved that a name is this queue manager's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Challenge {
    /// `http-01` (RFC 8555, section 8.3), by a listener at this address.
    Http01(SocketAddr),
    /// `tls-alpn-01` (RFC 8737), by the TLS listeners of a queue manager that runs. They find what they show there.
    TlsAlpn01(PathBuf),
}

impl Challenge {
    fn word(&self) -> &'static str {
        match self {
            Challenge::Http01(_) => "http-01",
            Challenge::TlsAlpn01(_) => "tls-alpn-01",
        }
    }
}

/// What is shown while the authority looks; gone when it is dropped.
enum Shown {
    Http01(Http01),
    TlsAlpn01(TlsAlpn01),
}

/// The authority, as the configuration has it.
#[derive(Clone, Debug)]
pub struct Acme {
    /// Where its directory is.
    pub directory: Url,
    /// A PEM file of authorities of which one has issued the certificate of the server itself.
    pub https_trust: PathBuf,
    /// Who asks.
    pub account: Account,
    /// How names are proved.
    pub challenge: Challenge,
    /// How long all of it may take.
    pub within: Duration,
}

impl Source for Acme {
    fn certify(&self, question: &Question<'_>) -> Result<Vec<Certificate>, EnrolError> {
        let names = Asked::of(question.request)?.names;
        let identifiers = names.iter().map(Identifier::of).collect::<Result<Vec<_>, _>>()?;
        let web = Web::new(&self.directory, &self.https_trust, self.within, question.is_stopping)?;
        let (key, is_new) = self.account.key()?;
        let mut session = Session::open(web, &self.directory, key)?;
        self.account.sign_in(&mut session, is_new)?;
        let answer =
            session.post(&session.directory.new_order.clone(), Some(&json!({ "identifiers": identifiers })))?;
        let at = session.location(&answer)?;
        let order: Order = read(&answer.body, "order")?;
        let mut shown = None;
        if order.authorizations.len() > identifiers.len() {
            return Err(EnrolError::Protocol { why: "the order asks for more than it was asked for".to_owned() });
        }
        for place in &order.authorizations {
            let place = session.place(place, "an authorization")?;
            self.prove(&mut session, &place, &identifiers, &mut shown)?;
        }
        // The last proof may have been taken a moment before the order knows of it.
        let order = poll(&mut session, &at, "order", Order::why, |order| order.status == Status::Pending)?;
        if order.status == Status::Ready {
            let csr = jws::base64url(&request::der(question.key, &names)?);
            let finalize = session.place(&order.finalize, "finalize")?;
            session.post(&finalize, Some(&json!({ "csr": csr })))?;
        }
        drop(shown);
        let order = poll(&mut session, &at, "order", Order::why, |order| {
            matches!(order.status, Status::Ready | Status::Processing)
        })?;
        let certificate = match (order.status, &order.certificate) {
            (Status::Valid, Some(certificate)) => session.place(certificate, "the certificate")?,
            _ => return Err(refused("order", order.status, order.error.as_ref())),
        };
        let answer = session.post_for(&certificate, None, CERTIFICATES)?;
        let all = Certificate::all_from_pem(&answer.body, ANSWER_CERTIFICATES_MAX);
        all.map_err(|error| EnrolError::Answer { why: error.to_string() })
    }

    /// The names alone are the authority's matter (RFC 8555, section 7.4).
    fn chooses_subject(&self) -> bool {
        true
    }
}

impl Acme {
    /// Proves one of the names.
    fn prove(
        &self,
        session: &mut Session<'_>,
        place: &Url,
        identifiers: &[Identifier],
        shown: &mut Option<Shown>,
    ) -> Result<(), EnrolError> {
        let answer = session.post(place, None)?;
        let authorization: Authorization = read(&answer.body, "authorization")?;
        let identifier = &authorization.identifier;
        if authorization.wildcard || !identifiers.contains(identifier) {
            let why = format!("it wants a proof for {}, which was not ordered", plain(&identifier.value));
            return Err(EnrolError::Protocol { why });
        }
        match authorization.status {
            Status::Valid => return Ok(()),
            Status::Pending => {}
            status => return Err(refused(&identifier.value, status, authorization.why())),
        }
        let word = self.challenge.word();
        let Some(challenge) = authorization.challenges.iter().find(|challenge| challenge.kind == word) else {
            let kinds: Vec<&str> = authorization.challenges.iter().map(|challenge| challenge.kind.as_str()).collect();
            let said = plain(&format!("it takes {}", kinds.join(", ")));
            return Err(EnrolError::Refused { how: format!("no {word} for {}", identifier.value), said });
        };
        let proof = Proof::new(identifier, &challenge.token, &session.thumbprint())?;
        match (&self.challenge, &mut *shown) {
            (Challenge::Http01(_), Some(Shown::Http01(listener))) => listener.show(&proof),
            (Challenge::Http01(address), _) => {
                let listener = Http01::listen(*address)?;
                listener.show(&proof);
                *shown = Some(Shown::Http01(listener));
            }
            (Challenge::TlsAlpn01(_), Some(Shown::TlsAlpn01(files))) => files.show(&proof)?,
            (Challenge::TlsAlpn01(folder), _) => {
                let mut files = TlsAlpn01::new(folder.clone())?;
                files.show(&proof)?;
                *shown = Some(Shown::TlsAlpn01(files));
            }
        }
        if challenge.status == Status::Pending {
            let at = session.place(&challenge.url, "a challenge")?;
            session.post(&at, Some(&json!({})))?;
        }
        let authorization =
            poll(session, place, &identifier.value, Authorization::why, |now| now.status == Status::Pending)?;
        match authorization.status {
            Status::Valid => Ok(()),
            status => Err(refused(&identifier.value, status, authorization.why())),
        }
    }
}

/// Asks again until it is not so any more, as often as the authority says. Some authorities let what has failed wait
/// for another try: `why` finds what they say of it.
fn poll<T: DeserializeOwned>(
    session: &mut Session<'_>,
    at: &Url,
    what: &str,
    why: impl Fn(&T) -> Option<&problem::Problem>,
    waits: impl Fn(&T) -> bool,
) -> Result<T, EnrolError> {
    loop {
        let answer = session.post(at, None)?;
        let now = read(&answer.body, what)?;
        if !waits(&now) {
            return Ok(now);
        }
        let said = answer.field("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let wait = said.unwrap_or(POLL_AFTER).clamp(POLL_AFTER, POLL_AFTER_MAX);
        if !session.web.wait(wait)? {
            let why = why(&now).map_or_else(String::new, |why| format!(": {}: {}", why.kind(), why.said()));
            return Err(EnrolError::NotYet { said: format!("{what} waits for the authority{why}") });
        }
    }
}

/// Reads what the authority says of something.
fn read<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, EnrolError> {
    let why = |error: serde_json::Error| format!("{what}: {}", plain(&error.to_string()));
    serde_json::from_slice(body).map_err(|error| EnrolError::Protocol { why: why(error) })
}

fn refused(what: &str, status: Status, why: Option<&problem::Problem>) -> EnrolError {
    match why {
        Some(problem) => {
            EnrolError::Refused { how: format!("{what} is {status}: {}", problem.kind()), said: problem.said() }
        }
        None => EnrolError::Refused { how: format!("{what} is {status}"), said: String::new() },
    }
}

#[cfg(test)]
mod tests;
