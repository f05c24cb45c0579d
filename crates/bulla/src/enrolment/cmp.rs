//! An authority that is asked by CMP (RFC 9810) over HTTP (RFC 9811).

use super::EnrolError;
use super::answer::{is_below, trusted};
use super::safe_file::secret_line;
use super::source::{Former, Question, Source};
use super::web::{Web, plain};
use bulla_device::cmp::{self, CmpError, CmpHost, CmpKind, CmpProof, CmpQuestion};
use bulla_device::http::Url;
use bulla_seal::certificate::{Certificate, MalformedError};
use bulla_seal::dn::Dn;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::{X509, X509KeyUsage, X509Req};
use std::path::PathBuf;
use std::time::Duration;

/// The media type of its messages (RFC 9811, section 3.4).
const MEDIA_TYPE: &str = "application/pkixcmp";

/// The authority, as the configuration has it.
#[derive(Clone, Debug)]
pub struct Cmp {
    /// Where it is.
    pub url: Url,
    /// Under which reference it knows the secret.
    pub reference: Option<String>,
    /// A file whose first line is the secret.
    pub secret_file: Option<PathBuf>,
    /// Its name, where it wants to read that.
    pub recipient: Option<Dn>,
    /// A PEM file of authorities whose signatures on answers are believed.
    pub trust: PathBuf,
    /// A PEM file of authorities of which one has issued the certificate of the server itself, over `https`.
    pub https_trust: PathBuf,
    /// How long all of it may take.
    pub within: Duration,
}

impl Source for Cmp {
    fn certify(&self, question: &Question<'_>) -> Result<Vec<Certificate>, EnrolError> {
        let broken = |why: &dyn std::fmt::Display| EnrolError::Protocol { why: why.to_string() };
        let request = X509Req::from_pem(question.request).map_err(|why| broken(&why))?;
        let recipient = self.recipient.as_ref().map(Dn::to_x509_name).transpose().map_err(|why| broken(&why))?;
        // A certificate of another authority's proves nothing here.
        let before = question.former.filter(|former| is_below(former.certificate, former.chain, &self.trust));
        let is_good =
            |certificate: &Certificate| can_sign(certificate) && certificate.check_dates(question.now).is_ok();
        let former = before.filter(|former| is_good(former.certificate));
        let chain: Vec<X509> =
            former.iter().flat_map(|former| former.chain).map(|certificate| certificate.x509().clone()).collect();
        let secret = match (&former, &self.reference, &self.secret_file) {
            (Some(_), ..) => None,
            (None, Some(reference), Some(path)) => Some((reference, secret_line(path)?)),
            (None, ..) => return Err(EnrolError::NotConfigured { what: "reference and secret_file".to_owned() }),
        };
        let kind = match (&former, &before) {
            (Some(_), _) => CmpKind::Update,
            (None, None) => CmpKind::First,
            (None, Some(_)) => CmpKind::Further,
        };
        let proof = match (&former, &secret) {
            (Some(Former { certificate, key, .. }), _) => {
                CmpProof::Signature { certificate: certificate.x509(), chain: &chain, key }
            }
            (None, Some((reference, secret))) => CmpProof::Secret { reference: reference.as_bytes(), secret },
            (None, None) => return Err(EnrolError::NotConfigured { what: "reference and secret_file".to_owned() }),
        };
        let asked = CmpQuestion {
            kind,
            request: &request,
            key: question.key,
            proof,
            trusted: self.trusted()?,
            recipient: recipient.as_deref(),
        };
        let web = Web::new(&self.url, &self.https_trust, self.within, question.is_stopping)?;
        let mut host = Transaction { url: &self.url, question, web, failed: None };
        let done = cmp::certify(asked, &mut host);
        if let Some(failed) = host.failed.take() {
            return Err(failed);
        }
        match done {
            Ok((certificate, others)) => certificates(&certificate, &others).map_err(unreadable),
            Err(_) if (question.is_stopping)() => Err(EnrolError::Stopping),
            Err(CmpError::Transfer { why }) => Err(EnrolError::Transfer { url: self.url.to_string(), why }),
            Err(CmpError::Waiting { check_after }) => {
                Err(EnrolError::NotYet { said: format!("to be asked again in {} s", check_after.as_secs()) })
            }
            Err(CmpError::Refused { status }) => Err(EnrolError::Refused { how: plain(&status), said: String::new() }),
            Err(CmpError::NotAccepted { why }) => Err(EnrolError::Answer { why }),
            Err(error) => Err(EnrolError::Protocol { why: plain(&error.to_string()) }),
        }
    }
}

impl Cmp {
    /// Those whose signatures on answers are believed.
    fn trusted(&self) -> Result<X509Store, EnrolError> {
        let broken = |why: openssl::error::ErrorStack| EnrolError::Answer { why: why.to_string() };
        let mut store = X509StoreBuilder::new().map_err(broken)?;
        for certificate in trusted(&self.trust)? {
            store.add_cert(certificate.x509().clone()).map_err(broken)?;
        }
        Ok(store.build())
    }
}

/// One transaction.
struct Transaction<'a> {
    url: &'a Url,
    question: &'a Question<'a>,
    web: Web<'a>,
    /// Why a message did not get there, or no answer came.
    failed: Option<EnrolError>,
}

impl Transaction<'_> {
    fn sent(&mut self, message: &[u8]) -> Result<Vec<u8>, EnrolError> {
        let media_type = MEDIA_TYPE.as_bytes();
        let fields = [("content-type", media_type), ("accept", media_type), ("connection", b"close")];
        // No message of a transaction may come twice.
        let answer = self.web.ask("POST", self.url, &fields, Some(message));
        self.web.hang_up();
        let mut answer = answer?;
        let bad = |why: String| EnrolError::Transfer { url: self.url.to_string(), why };
        if answer.status != 200 {
            return Err(bad(format!("HTTP status {}", answer.status)));
        }
        let is = answer.field("content-type").unwrap_or_default();
        if !is.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(MEDIA_TYPE) {
            return Err(bad(format!("the answer is {:?}, and not {MEDIA_TYPE}", plain(is))));
        }
        Ok(std::mem::take(&mut *answer.body))
    }
}

impl CmpHost for Transaction<'_> {
    fn transfer(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        self.sent(message).map_err(|error| {
            let why = error.to_string();
            self.failed = Some(error);
            why
        })
    }

    fn judge(&mut self, certificate: &X509, others: &[X509]) -> Result<(), String> {
        let all = certificates(certificate, others).map_err(|error| error.to_string())?;
        (self.question.is_good)(all).map_err(|error| match error {
            EnrolError::Answer { why } => why,
            error => error.to_string(),
        })
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.web.wait(time).unwrap_or(false)
    }
}

fn certificates(certificate: &X509, others: &[X509]) -> Result<Vec<Certificate>, MalformedError> {
    std::iter::once(certificate).chain(others).map(|one| Certificate::from_x509(one)).collect()
}

fn unreadable(why: MalformedError) -> EnrolError {
    EnrolError::Answer { why: why.to_string() }
}

/// Whether the certificate's key may sign messages of the protocol.
fn can_sign(certificate: &Certificate) -> bool {
    certificate.key_usage().is_none_or(|bits| bits.contains(X509KeyUsage::DIGITAL_SIGNATURE))
}
