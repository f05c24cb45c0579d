//! An authority that is asked by CMP (RFC 9810) over HTTP (RFC 9811).

use super::EnrolError;
use super::answer::{is_below, trusted};
use super::http::{Post, Url};
use super::safe_file::check_safe;
use super::source::{Former, Question, Source};
use bulla_device::cmp::{self, CmpError, CmpHost, CmpKind, CmpProof, CmpQuestion};
use bulla_seal::certificate::{Certificate, MalformedError};
use bulla_seal::dn::Dn;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::{X509, X509KeyUsage, X509Req};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The media type of its messages (RFC 9811, section 3.4).
const MEDIA_TYPE: &str = "application/pkixcmp";
/// Largest file of a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 4096;
/// How often it is looked at a reason to give up while the authority wants time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
            (None, Some(reference), Some(path)) => Some((reference, secret(path)?)),
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
        let ends = Instant::now() + self.within;
        let mut host = Transaction { url: &self.url, question, ends, is_late: false };
        match cmp::certify(asked, &mut host) {
            Ok((certificate, others)) => certificates(&certificate, &others).map_err(unreadable),
            Err(_) if (question.is_stopping)() => Err(EnrolError::Stopping),
            Err(CmpError::Transfer { .. }) if host.is_late => Err(EnrolError::Late { seconds: self.within.as_secs() }),
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
    ends: Instant,
    is_late: bool,
}

impl CmpHost for Transaction<'_> {
    fn transfer(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let post = Post { url: self.url, media_type: MEDIA_TYPE, body: message, ends: self.ends };
        let sent = post.send(self.question.is_stopping);
        self.is_late = sent.is_err() && Instant::now() >= self.ends;
        sent
    }

    fn judge(&mut self, certificate: &X509, others: &[X509]) -> Result<(), String> {
        let all = certificates(certificate, others).map_err(|error| error.to_string())?;
        (self.question.is_good)(all).map_err(|error| match error {
            EnrolError::Answer { why } => why,
            error => error.to_string(),
        })
    }

    fn wait(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        if until >= self.ends {
            return false;
        }
        while Instant::now() < until {
            if (self.question.is_stopping)() {
                return false;
            }
            thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
        }
        true
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

/// The first line of a file that is for its owner alone.
fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, EnrolError> {
    const OTHERS: u32 = 0o077;
    check_safe(path)?;
    let facts = fs::metadata(path).map_err(EnrolError::file(path))?;
    let bad = |why: &str| EnrolError::Unsafe { path: path.to_owned(), why: why.to_owned() };
    if facts.permissions().mode() & OTHERS != 0 {
        return Err(bad("others may read it"));
    }
    if facts.len() > SECRET_BYTES_MAX {
        return Err(bad("it is too long for a secret"));
    }
    let text = Zeroizing::new(fs::read(path).map_err(EnrolError::file(path))?);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = Zeroizing::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    if line.is_empty() { Err(bad("its first line is empty")) } else { Ok(line) }
}

/// What the authority said, without what could disturb a log.
fn plain(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(CHARS_MAX).collect()
}
