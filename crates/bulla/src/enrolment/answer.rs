//! Judges what an authority answered, before anything of it is kept.

use super::EnrolError;
use super::safe_file::check_safe;
use crate::key_rotation::steps::AHEAD_MAX;
use bulla_seal::certificate::create::{AlternativeName, Profile};
use bulla_seal::certificate::{Certificate, KeyUse, Role, utc};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::{CHAIN_CERTIFICATES_MAX, PathQuestion, Ring, SingleFiles};
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509ExtendedKeyUsage, X509Ref};
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

/// A certificate that is what was asked for.
#[derive(Clone, Debug)]
pub struct Good {
    /// The certificate.
    pub certificate: Certificate,
    /// The authorities above it, without the root.
    pub chain: Vec<Certificate>,
    /// The root.
    pub root: Certificate,
}

impl Good {
    /// Certificate and chain as PEM.
    pub fn to_pem(&self) -> Vec<u8> {
        std::iter::once(&self.certificate).chain(&self.chain).flat_map(Certificate::to_pem).collect()
    }
}

/// Authorities that are believed.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those of a file, PEM.
    File(&'a Path),
    /// These.
    These(&'a [Certificate]),
}

/// What was asked for.
pub struct Wanted<'a> {
    /// The new key.
    pub key: &'a PKey<Private>,
    /// What the certificate shall say.
    pub profile: &'a Profile,
    /// The subject is the authority's matter.
    pub any_subject: bool,
    /// The path ends at one of them.
    pub trust: Trust<'a>,
    /// What the time is.
    pub now: SystemTime,
}

/// Finds the certificate among those that came, and judges it: key, subject, use, names, dates, and the path to a
/// trusted authority. What else came is dropped.
///
/// # Errors
/// [`EnrolError::Answer`] with the first thing that is wrong; the file of authorities can't be read.
pub fn judge(mut came: Vec<Certificate>, wanted: &Wanted<'_>) -> Result<Good, EnrolError> {
    let bad = |why: String| EnrolError::Answer { why };
    let at = came.iter().position(|one| one.public_key().public_eq(wanted.key));
    let Some(at) = at else {
        return Err(bad(format!("none of its {} certificates is for the key of the request", came.len())));
    };
    let certificate = came.swap_remove(at);
    let Profile { dn, uses, alternative_names, .. } = wanted.profile;
    if !wanted.any_subject && certificate.subject() != dn {
        return Err(bad(format!("it is for {}, and not for {dn}", certificate.subject())));
    }
    if certificate.is_authority() {
        return Err(bad("it is an authority's".to_owned()));
    }
    for usage in uses {
        let role = role_of(*usage);
        certificate.check_usage(role.usage(certificate.key_kind())).map_err(|error| bad(error.to_string()))?;
        if role == Role::Tls && !serves(certificate.x509()) {
            return Err(bad("its extended key usage has no serverAuth".to_owned()));
        }
    }
    let has = names(certificate.x509());
    if let Some(missing) = alternative_names.iter().find(|name| !has.iter().any(|other| is_same(name, other))) {
        return Err(bad(format!("it is not for {missing}")));
    }
    if certificate.not_before() > wanted.now + AHEAD_MAX {
        return Err(bad(format!("it is valid only from {}", utc(certificate.not_before()))));
    }
    // One that begins in a moment is judged as it will be then.
    let at = wanted.now.max(certificate.not_before());
    certificate.check_dates(at).map_err(|error| bad(error.to_string()))?;
    let trust = match wanted.trust {
        Trust::File(file) => trusting(file)?,
        Trust::These(all) => Ring::trusting(all.to_vec()),
    };
    let question = PathQuestion { usage: None, revocation: Revocation::None, at, now: wanted.now };
    came.truncate(CHAIN_CERTIFICATES_MAX);
    let proof = trust.prove(&certificate, &came, &question).map_err(|error| bad(error.to_string()))?;
    let mut chain = proof.path.into_iter().skip(1).collect::<Vec<_>>();
    let root = chain.pop().ok_or_else(|| bad("it is its own authority".to_owned()))?;
    Ok(Good { certificate, chain, root })
}

/// The authorities of a file, PEM.
///
/// # Errors
/// It can't be read, or others may write it.
pub fn trusted(file: &Path) -> Result<Vec<Certificate>, EnrolError> {
    Ok(trusting(file)?.trust().to_vec())
}

/// Whether a certificate was issued below one of a file's authorities, by the moment at which it began.
pub fn is_below(certificate: &Certificate, chain: &[Certificate], file: &Path) -> bool {
    let at = certificate.not_before();
    let question = PathQuestion { usage: None, revocation: Revocation::None, at, now: at };
    trusting(file).is_ok_and(|trust| trust.prove(certificate, chain, &question).is_ok())
}

fn trusting(file: &Path) -> Result<Ring, EnrolError> {
    let real = file.canonicalize().map_err(EnrolError::file(file))?;
    check_safe(&real)?;
    Ok(Ring::from_files(&SingleFiles { trust: &[real], ..SingleFiles::default() }, None)?)
}

fn role_of(usage: KeyUse) -> Role {
    match usage {
        KeyUse::Handshake => Role::Tls,
        KeyUse::DocSign | KeyUse::CertSign => Role::Sign,
        KeyUse::DataEncrypt | KeyUse::KeyAgree => Role::Encrypt,
    }
}

/// Whether a server may show it: no extended key usage allows all.
fn serves(certificate: &X509Ref) -> bool {
    let serving = X509ExtendedKeyUsage::SSL_SERVER | X509ExtendedKeyUsage::ANYEKU;
    certificate.extended_key_usage().is_none_or(|bits| bits.intersects(serving))
}

/// The alternative names of a certificate, of the kinds that can be asked for.
pub fn names(certificate: &X509Ref) -> Vec<AlternativeName> {
    let all = certificate.subject_alt_names();
    let name = |name: &openssl::x509::GeneralNameRef| {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let address = name.ipaddress().and_then(|octets| match octets.len() {
            4 => <[u8; 4]>::try_from(octets).map(IpAddr::from).ok(),
            _ => <[u8; 16]>::try_from(octets).map(IpAddr::from).ok(),
        });
        let host = text(name.dnsname()).map(AlternativeName::Dns);
        let host = host.or(address.map(AlternativeName::Ip));
        host.or(text(name.email()).map(AlternativeName::Email)).or(text(name.uri()).map(AlternativeName::Uri))
    };
    all.iter().flatten().filter_map(name).collect()
}

/// Hosts are the same in upper and lower case (RFC 4343).
fn is_same(one: &AlternativeName, other: &AlternativeName) -> bool {
    match (one, other) {
        (AlternativeName::Dns(one), AlternativeName::Dns(other)) => one.eq_ignore_ascii_case(other),
        _ => one == other,
    }
}
