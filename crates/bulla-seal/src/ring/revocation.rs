//! What the revocation lists of a ring say of a path.
//!
//! Where every list that matters is complete and signed by the authority in whose name it is, that is looked up here,
//! and each list's signature is verified once. All others (partitioned, delta and indirect lists, lists signed with a
//! separate key) are OpenSSL's business.

use std::time::SystemTime;

use bulla_device::{RevocationAnswer, RevocationQuestion, check_revocation};
use openssl::error::ErrorStack;
use openssl::x509::{X509, X509CrlRef};

use super::check::SECURITY_LEVEL;
use super::crl::Kind;
use super::{Crl, Ring};
use crate::certificate::{Certificate, CertificateError, time};
use crate::policy::Revocation;

/// What the lists say of a path on which nothing is revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unrevoked {
    /// The same lists say the same from here on …
    pub(super) from: Option<SystemTime>,
    /// … until just before this; without a list that matters there is no bound.
    pub(super) until: Option<SystemTime>,
    /// Places in the path of the certificates that no current list is about.
    pub(super) unknown: Vec<usize>,
}

impl Ring {
    /// Asks the ring's lists about each certificate of a path but the root. `offered` are certificates that may have
    /// signed lists, beside the ring's own.
    ///
    /// # Errors
    /// A certificate is revoked, or its state is in doubt: the lists about it are not current, can't be verified or
    /// understood, or are missing where they are [`Revocation::Required`].
    pub(super) fn check_revocation(
        &self,
        path: &[Certificate],
        offered: &[Certificate],
        asked: Revocation,
        now: SystemTime,
    ) -> Result<Unrevoked, CertificateError> {
        let (Some((_, below_root)), Some(leaf)) = (path.split_last(), path.first()) else {
            return Ok(Unrevoked::default());
        };
        if asked == Revocation::None || below_root.is_empty() {
            return Ok(Unrevoked::default());
        }
        let matters =
            |list: &&Crl| list.kind() == Kind::Indirect || below_root.iter().any(|one| list.is_of_issuer(one));
        let lists: Vec<&Crl> = self.crls.iter().map(AsRef::as_ref).filter(matters).collect();
        let review = Review { ring: self, leaf, path, offered, asked, now, lists };
        let unknown = match review.is_simple() {
            true => review.look_up()?,
            false => review.ask_openssl()?,
        };
        match unknown.first().and_then(|at| path.get(*at)) {
            Some(certificate) if asked == Revocation::Required => {
                Err(CertificateError::CrlMissing { dn: certificate.dn().clone(), issuer: certificate.issuer().clone() })
            }
            _ => Ok(Unrevoked { unknown, ..review.bounds() }),
        }
    }
}

/// What OpenSSL says of a path, asked with those lists that it can use. Places are places in the path.
enum Answer {
    Good { unknown: Vec<usize> },
    Revoked { at: usize },
    NotUnderstood { at: usize },
}

/// A path, and the lists that matter for it.
struct Review<'a> {
    ring: &'a Ring,
    leaf: &'a Certificate,
    path: &'a [Certificate],
    offered: &'a [Certificate],
    asked: Revocation,
    now: SystemTime,
    lists: Vec<&'a Crl>,
}

impl<'a> Review<'a> {
    /// Each certificate with its place and with the one that issued it.
    fn issued(&self) -> impl Iterator<Item = (usize, &'a Certificate, &'a Certificate)> {
        let pairs = self.path.iter().zip(self.path.iter().skip(1)).enumerate();
        pairs.map(|(at, (certificate, issuer))| (at, certificate, issuer))
    }

    fn lists_of(&self, certificate: &'a Certificate) -> impl Iterator<Item = &'a Crl> {
        self.lists.iter().copied().filter(|list| list.is_of_issuer(certificate))
    }

    fn is_simple(&self) -> bool {
        self.lists.iter().all(|list| list.kind() == Kind::Complete)
            && self.issued().all(|(_, certificate, issuer)| self.lists_of(certificate).all(|l| l.signed_by(issuer)))
    }

    /// The newest list of each authority decides.
    fn look_up(&self) -> Result<Vec<usize>, CertificateError> {
        let mut unknown = Vec::new();
        for (at, certificate, issuer) in self.issued() {
            match self.lists_of(certificate).max_by_key(|list| list.this_update()) {
                None => unknown.push(at),
                Some(newest) if !newest.is_current(self.now) => return Err(not_current(newest, issuer, self.now)),
                Some(newest) => newest.check(certificate)?,
            }
        }
        Ok(unknown)
    }

    fn ask_openssl(&self) -> Result<Vec<usize>, CertificateError> {
        let mut current: Vec<&Crl> = self.lists.iter().copied().filter(|list| list.is_current(self.now)).collect();
        let unknown = match self.ask(self.path, &mut current, Some(self.now))? {
            Answer::Good { unknown } => unknown,
            Answer::Revoked { at } => return Err(self.revoked(at)),
            Answer::NotUnderstood { at } => return Err(self.not_understood(at)),
        };
        for (at, certificate, issuer) in self.issued().filter(|(at, ..)| unknown.contains(at)) {
            self.doubt(at, certificate, issuer)?;
        }
        Ok(unknown)
    }

    /// Why no current list may be about a certificate, other than that there is none.
    fn doubt(&self, at: usize, certificate: &'a Certificate, issuer: &Certificate) -> Result<(), CertificateError> {
        let ended: Vec<&Crl> = self.lists.iter().copied().filter(|list| !list.is_current(self.now)).collect();
        if !ended.is_empty() {
            let path = self.path.get(at..).unwrap_or_default();
            let about_it = match self.ask(path, &mut ended.clone(), None)? {
                Answer::Good { unknown } => unknown.is_empty(),
                Answer::Revoked { .. } | Answer::NotUnderstood { .. } => true,
            };
            let newest = ended.iter().filter(|list| list.is_of_issuer(certificate)).max_by_key(|l| l.this_update());
            if let Some(newest) = newest.or(ended.first()).filter(|_| about_it) {
                return Err(not_current(newest, issuer, self.now));
            }
        }
        // A list that another key of that name signed revokes what it names, and says nothing of the rest.
        for list in self.lists_of(certificate) {
            if !self.keys_of(issuer).any(|key| list.signed_by(key)) {
                return Err(CertificateError::CrlUnverified { issuer: issuer.dn().clone() });
            }
            if list.is_current(self.now) {
                list.check(certificate)?;
            }
        }
        Ok(())
    }

    /// The certificate itself and those that the ring holds under its name.
    fn keys_of<'b>(&'b self, issuer: &'b Certificate) -> impl Iterator<Item = &'b Certificate> {
        let known = self.ring.authorities.get(&issuer.x509().subject_name_hash()).into_iter().flatten();
        let known = self.ring.trust.iter().chain(self.ring.domains.values().flatten()).chain(known);
        std::iter::once(issuer).chain(known.filter(|known| known.dn() == issuer.dn()))
    }

    /// Certificates that may have signed one of the lists.
    fn signers(&self) -> Vec<Certificate> {
        let mut signers: Vec<Certificate> = Vec::new();
        let held = self.ring.authorities.values().flatten();
        let named = held.filter(|held| self.lists.iter().any(|list| list.is_named_as(held)));
        for signer in named.chain(self.offered) {
            if signers.len() < SIGNERS_MAX && !signers.contains(signer) {
                signers.push(signer.clone());
            }
        }
        signers
    }

    /// Asks OpenSSL; lists that it can't use are taken out, and it is asked without them. With a time the whole path
    /// is asked about, without one its first certificate.
    fn ask(
        &self,
        path: &[Certificate],
        lists: &mut Vec<&Crl>,
        at: Option<SystemTime>,
    ) -> Result<Answer, CertificateError> {
        let path: Vec<X509> = path.iter().map(|one| one.x509().clone()).collect();
        let others: Vec<X509> = self.signers().iter().map(|one| one.x509().clone()).collect();
        loop {
            let asked: Vec<&X509CrlRef> = lists.iter().map(|list| list.x509().as_ref()).collect();
            let question = RevocationQuestion {
                path: &path,
                others: &others,
                lists: &asked,
                at: at.map(time::unix),
                whole_path: at.is_some(),
                lenient: self.asked < Revocation::Required,
                security_level: SECURITY_LEVEL,
            };
            match check_revocation(&question).map_err(failed)? {
                RevocationAnswer::Good { unknown } => return Ok(Answer::Good { unknown }),
                RevocationAnswer::Revoked { at } => return Ok(Answer::Revoked { at }),
                RevocationAnswer::NotUnderstood { at } => return Ok(Answer::NotUnderstood { at }),
                RevocationAnswer::Unusable { list } => drop(lists.remove(list)),
            }
        }
    }

    fn revoked(&self, at: usize) -> CertificateError {
        let certificate = self.at(at);
        CertificateError::Revoked {
            dn: certificate.dn().clone(),
            serial: certificate.serial_hex(),
            since: self.lists.iter().find_map(|list| list.entry(certificate)).flatten(),
        }
    }

    fn not_understood(&self, at: usize) -> CertificateError {
        CertificateError::CrlNotUnderstood { issuer: self.at(at).issuer().clone() }
    }

    /// The certificate at a place of the path that OpenSSL named; a place beyond it does not occur.
    fn at(&self, at: usize) -> &'a Certificate {
        self.path.get(at).unwrap_or(self.leaf)
    }

    /// Lists and their signers begin and end: between two such moments the answer is the same.
    fn bounds(&self) -> Unrevoked {
        let of_lists = self.lists.iter().flat_map(|list| [list.this_update(), list.next_update()]);
        let signers = if self.is_simple() { Vec::new() } else { self.signers() };
        let of_signers = signers.iter().flat_map(|signer| [signer.not_before(), signer.not_after()]);
        let moments: Vec<SystemTime> = of_lists.chain(of_signers).collect();
        Unrevoked {
            from: moments.iter().copied().filter(|moment| *moment <= self.now).max(),
            until: moments.iter().copied().filter(|moment| *moment > self.now).min(),
            unknown: Vec::new(),
        }
    }
}

/// The most certificates beside the path that are looked at for the signer of a list.
const SIGNERS_MAX: usize = 32;

fn not_current(list: &Crl, issuer: &Certificate, now: SystemTime) -> CertificateError {
    let issuer = issuer.dn().clone();
    if now < list.this_update() {
        CertificateError::CrlNotYetValid { issuer, this_update: list.this_update() }
    } else {
        CertificateError::CrlStale { issuer, next_update: list.next_update() }
    }
}

fn failed(stack: ErrorStack) -> CertificateError {
    CertificateError::Library { why: stack.to_string() }
}
