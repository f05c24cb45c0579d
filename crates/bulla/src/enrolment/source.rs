//! Whoever issues certificates.

use super::EnrolError;
use bulla_seal::certificate::Certificate;
use openssl::pkey::{PKey, PKeyRef, Private};
use std::time::SystemTime;

/// The certificate that is renewed, with its key: it can prove who asks.
#[derive(Clone, Copy)]
pub struct Former<'a> {
    /// The certificate.
    pub certificate: &'a Certificate,
    /// The authorities above it.
    pub chain: &'a [Certificate],
    /// Its key.
    pub key: &'a PKeyRef<Private>,
}

/// What is asked.
pub struct Question<'a> {
    /// A request for the new certificate, PKCS#10 in PEM, signed by the new key.
    pub request: &'a [u8],
    /// The new key.
    pub key: &'a PKey<Private>,
    /// The certificate before, which may have expired, or be another authority's.
    pub former: Option<Former<'a>>,
    /// What the time is.
    pub now: SystemTime,
    /// Judges what came, for who tells the authority that it is accepted. It is judged again by whoever asked.
    pub is_good: &'a dyn Fn(Vec<Certificate>) -> Result<(), EnrolError>,
    /// Whether to give up because the queue manager stops.
    pub is_stopping: &'a dyn Fn() -> bool,
}

/// A certificate that came with its key.
pub struct Given {
    /// The name in it, a URI.
    pub id: String,
    /// Its key.
    pub key: PKey<Private>,
    /// The certificate and those above it.
    pub certificates: Vec<Certificate>,
    /// The authorities that whoever has such a certificate believes.
    pub trust: Vec<Certificate>,
}

/// An authority that is elsewhere. What it answers is not believed before [`super::answer`] has judged it.
pub trait Source {
    /// Asks for a certificate, and waits for it: the new one, and those above it, in any order.
    ///
    /// # Errors
    /// None came, in time and within the limits.
    fn certify(&self, question: &Question<'_>) -> Result<Vec<Certificate>, EnrolError>;

    /// The certificate that is in force now, with its key, of who makes keys as well: of that name, or the one that is
    /// meant where none is said. None where it is asked with a request.
    fn given(&self, _id: Option<&str>, _is_stopping: &dyn Fn() -> bool) -> Option<Result<Given, EnrolError>> {
        None
    }

    /// Whether the subject is the authority's matter, and the names alone are asked for.
    fn chooses_subject(&self) -> bool {
        false
    }
}
