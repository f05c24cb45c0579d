//! What ends soon, or has ended: certificates and revocation lists of key rings, and the listener's certificate.

use super::{Doctor, mend};
use crate::catalog::diagnosis::{Condition, DATES, Diagnoses, Diagnosis};
use crate::folders::{RINGS, TLS};
use bulla_seal::Policy;
use bulla_seal::certificate::{Certificate, utc};
use bulla_seal::ring::{self, Crl, PEM_CERTIFICATES_MAX, Ring, Survey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Most bytes of a file of TLS that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Rings that are looked at.
const RINGS_MAX: usize = 1_000;

/// Looks from now on so far ahead.
struct Ahead<'a> {
    now: SystemTime,
    ahead: Duration,
    /// The data directory.
    data: &'a Path,
    /// The names that are of interest; none for all.
    names: Option<BTreeSet<String>>,
    found: &'a mut Diagnoses,
}

/// A ring's certificates, and whose ring it is.
struct Whose<'a> {
    user: &'a str,
    ring: &'a Ring,
    own: Vec<(&'a Certificate, &'a [Certificate])>,
}

impl Ahead<'_> {
    /// Of several certificates of one name the one that lasts longest: the others are being replaced.
    fn certificates<'a>(
        &mut self,
        place: &str,
        certificates: impl Iterator<Item = &'a Certificate>,
        mend: impl Fn(&Certificate) -> Vec<String>,
    ) {
        let mut newest: BTreeMap<&str, &Certificate> = BTreeMap::new();
        let is_wanted = |it: &&Certificate| self.names.as_ref().is_none_or(|names| names.contains(it.dn().as_str()));
        // What an agent of SPIFFE gives always ends soon: how its renewal stands is told of by itself.
        let lasts = |it: &&Certificate| !it.dn().is_spiffe_id() || it.not_after() <= self.now;
        for certificate in certificates.filter(|it| it.is_authority() || is_wanted(it)).filter(lasts) {
            let longest = newest.entry(certificate.dn().as_str()).or_insert(certificate);
            if longest.not_after() < certificate.not_after() {
                *longest = certificate;
            }
        }
        for certificate in newest.into_values() {
            let what = format!("the certificate of {}", certificate.dn());
            self.end(place, &what, certificate.not_after(), self.ahead, || mend(certificate));
        }
    }

    /// Of several lists of one authority the newest. A list is made anew again and again: it is told of in the last
    /// quarter of its time.
    fn lists<'a>(&mut self, place: &str, lists: impl Iterator<Item = &'a Crl>, user: &str) {
        let mut newest: BTreeMap<&str, &Crl> = BTreeMap::new();
        for list in lists {
            let last = newest.entry(list.issuer().as_str()).or_insert(list);
            if last.next_update() < list.next_update() {
                *last = list;
            }
        }
        let data = self.data;
        for list in newest.into_values() {
            let lasts = list.next_update().duration_since(list.this_update()).unwrap_or_default();
            let what = format!("the revocation list of {}", list.issuer());
            let mend = || mend::fresh_list(data, user);
            self.end(place, &what, list.next_update(), self.ahead.min(lasts / 4), mend);
        }
    }

    fn end(&mut self, place: &str, what: &str, end: SystemTime, ahead: Duration, mend: impl FnOnce() -> Vec<String>) {
        let verb = match end {
            end if end <= self.now => "ended",
            end if end <= self.now + ahead => "ends",
            _ => return,
        };
        self.found.push(Diagnosis {
            check: &DATES,
            condition: Condition::Warning,
            about: place.to_owned(),
            cause: String::new(),
            details: format!("{what} {verb} at {}", utc(end)),
            mend: mend(),
        });
    }

    fn ring(&mut self, Whose { user, ring, own }: Whose<'_>) {
        let place = format!("{RINGS}/{user}");
        let data = self.data;
        let all = own.into_iter().flat_map(|(it, chain)| std::iter::once(it).chain(chain));
        self.certificates(&format!("{place}/own"), all, |it| vec![mend::new_key(data, user, it.dn().as_str())]);
        let people = ring.people().iter().flat_map(|person| std::iter::once(&person.certificate).chain(&person.chain));
        self.certificates(&format!("{place}/people"), people, |_| vec![mend::import(user, "person")]);
        self.certificates(&format!("{place}/trust"), ring.trust().iter(), |_| vec![mend::import(user, "trust")]);
        self.lists(&format!("{place}/crl"), ring.crls().iter().map(AsRef::as_ref), user);
    }

    fn done(self) {
        if !self.found.has(&DATES) {
            let days = self.ahead.as_secs() / 86_400;
            self.found.well(&DATES, "", format!("nothing ends within {days} days"));
        }
    }
}

/// What the rings of these users hold of a policy's names and of their own.
pub(super) fn of_rings(doctor: &mut Doctor<'_>, users: &[String], policy: &Policy, now: SystemTime) {
    let manager = doctor.manager;
    let named = policy.recipients.iter().chain(&policy.signers).map(|dn| dn.as_str().to_owned());
    let mut ahead = Ahead {
        now,
        ahead: doctor.question.ahead,
        data: &manager.data,
        names: Some(named.collect()),
        found: &mut doctor.found,
    };
    for user in users {
        let Ok(ring) = manager.ring(user, Instant::now()) else { continue };
        let own = ring.own().iter().map(|own| own.certificate.dn().as_str().to_owned());
        ahead.names.get_or_insert_default().extend(own);
        let own = ring.own().iter().map(|own| (&own.certificate, own.chain.as_slice())).collect();
        ahead.ring(Whose { user, ring: &ring, own });
    }
    ahead.done();
}

/// What the rings and the listener of a data directory hold, without opening a key.
pub(crate) fn of_directory(data: &Path, found: &mut Diagnoses, now: SystemTime, within: Duration) {
    let mut ahead = Ahead { now, ahead: within, data, names: None, found };
    let tls = std::fs::read_dir(data.join(TLS)).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in tls.filter(|path| path.extension().is_some_and(|extension| extension == "pem")) {
        // A pipe is never read to its end.
        let is_small = std::fs::metadata(&path).is_ok_and(|facts| facts.is_file() && facts.len() <= FILE_BYTES_MAX);
        let Some(bytes) = is_small.then(|| std::fs::read(&path).ok()).flatten() else { continue };
        let certificates = Certificate::all_from_pem(&bytes, PEM_CERTIFICATES_MAX).unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // How it is replaced depends on who signed it: the page on TLS says how.
        ahead.certificates(&format!("{TLS}/{name}"), certificates.iter(), |_| Vec::new());
    }
    let rings = std::fs::read_dir(data.join(RINGS)).into_iter().flatten().flatten().take(RINGS_MAX);
    for entry in rings {
        let Ok(Survey { ring, own }) = ring::survey(&entry.path()) else { continue };
        let own = own.iter().map(|person| (&person.certificate, person.chain.as_slice())).collect();
        ahead.ring(Whose { user: &entry.file_name().to_string_lossy(), ring: &ring, own });
    }
    ahead.done();
}
