//! OCSP answers (RFC 6960) that a server staples to its handshake (RFC 6066 section 8, RFC 8446 section 4.4.2.1).

use super::refusal::{TlsRefusal, name_text};
use bulla_device::tls::must_staple;
use openssl::hash::MessageDigest;
use openssl::ocsp::{OcspBasicResponse, OcspCertId, OcspCertStatus, OcspFlag, OcspResponse, OcspResponseStatus};
use openssl::ssl::SslRef;
use openssl::stack::StackRef;
use openssl::x509::store::X509StoreRef;
use openssl::x509::{X509, X509Ref};

/// Seconds that clocks may be apart.
const CLOCK_SKEW_SECONDS: u32 = 300;

/// What an answer says about a certificate.
enum Said {
    Good,
    Revoked,
    Unknown,
}

/// Whether an answer about `certificate` is fresh and may be shown: the partner checks the rest.
pub(super) fn is_fresh(answer: &[u8], certificate: &X509Ref, chain: &[X509]) -> bool {
    let Some(issuer) = chain.first() else { return false };
    read(answer).and_then(|answer| said(&answer, certificate, issuer)).is_ok()
}

/// Judges what a server stapled. `authorities` are those of the store, without revocation lists.
pub(super) fn judge(ssl: &SslRef, authorities: &X509StoreRef) -> Result<(), TlsRefusal> {
    let Some(certificate) = ssl.peer_certificate() else { return Ok(()) };
    let subject = name_text(certificate.subject_name());
    let unknown = |why: &str| TlsRefusal::RevocationUnknown { subject: subject.clone(), why: why.into() };
    let Some(answer) = ssl.ocsp_status() else {
        if must_staple(&certificate) {
            return Err(unknown("its authority asks for a stapled OCSP answer, and there is none"));
        }
        return Ok(());
    };
    let chain = ssl.verified_chain().ok_or_else(|| unknown("there is no chain to check the stapled answer by"))?;
    let issuer = chain.get(1).or_else(|| chain.get(0)).ok_or_else(|| unknown("the certificate has no issuer"))?;
    let answer = read(answer).map_err(unknown)?;
    is_signed(&answer, chain, authorities).map_err(unknown)?;
    match said(&answer, &certificate, issuer).map_err(unknown)? {
        Said::Good => Ok(()),
        Said::Revoked => Err(TlsRefusal::Revoked { subject, by: "a stapled OCSP answer" }),
        Said::Unknown => Err(unknown("the stapled OCSP answer does not know it")),
    }
}

fn read(answer: &[u8]) -> Result<OcspBasicResponse, &'static str> {
    let answer = OcspResponse::from_der(answer).map_err(|_| "the stapled OCSP answer is not one")?;
    if answer.status() != OcspResponseStatus::SUCCESSFUL {
        return Err("the stapled OCSP answer says that its responder failed");
    }
    answer.basic().map_err(|_| "the stapled OCSP answer is of an unknown kind")
}

/// The answer is signed by the issuer or by whom the issuer named for it.
fn is_signed(
    answer: &OcspBasicResponse,
    chain: &StackRef<X509>,
    authorities: &X509StoreRef,
) -> Result<(), &'static str> {
    answer.verify(chain, authorities, OcspFlag::empty()).map_err(|_| "the stapled OCSP answer is not its authority's")
}

fn said(answer: &OcspBasicResponse, certificate: &X509Ref, issuer: &X509Ref) -> Result<Said, &'static str> {
    // The answer names the certificate by hashes, and chooses their kind.
    for digest in [MessageDigest::sha1(), MessageDigest::sha256()] {
        let id = OcspCertId::from_cert(digest, certificate, issuer).map_err(|_| "the certificate can't be named")?;
        let Some(status) = answer.find_status(&id) else { continue };
        // An answer without an end could be of any age.
        if status.next_update().is_none() || status.check_validity(CLOCK_SKEW_SECONDS, None).is_err() {
            return Err("the stapled OCSP answer is old");
        }
        return Ok(match status.status {
            OcspCertStatus::GOOD => Said::Good,
            OcspCertStatus::REVOKED => Said::Revoked,
            _ => Said::Unknown,
        });
    }
    Err("the stapled OCSP answer is about another certificate")
}
