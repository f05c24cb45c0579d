//! Certificates that are about to expire: those of the key rings and of TLS, looked at once a day and at the start.

use crate::enrolment::{Configuration, tls_certificate};
use crate::events::Event;
use crate::folders::{RINGS, TLS};
use crate::manager::Manager;
use crate::wall_clock::wall_ms;
use bulla_seal::certificate::Certificate;
use bulla_seal::ring::{self, PEM_CERTIFICATES_MAX};
use hashbrown::HashSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// From so long before its end on, a certificate is spoken of once a day; one that renews by itself not before the last
/// third of its lifetime, when it should have been renewed.
pub(crate) const WARN_BEFORE: Duration = Duration::from_secs(30 * SECONDS_A_DAY);
/// How often they are looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(SECONDS_A_DAY);
/// Most events of one look: many rings may hold many certificates of one dying authority.
const EVENTS_MAX: usize = 100;
/// Largest file of TLS that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
const SECONDS_A_DAY: u64 = 86_400;

/// Looks at every certificate and raises an event for each that expires within [`WARN_BEFORE`]. Reads every ring, and
/// holds the queues' lock for the events alone.
pub(crate) fn look(manager: &Manager, now: SystemTime) {
    let events = expiring(&manager.data, now);
    if events.is_empty() {
        return;
    }
    let mut state = manager.lock();
    for event in &events {
        state.raise(event, wall_ms(now));
    }
    drop(state);
    manager.ring_all();
}

/// The events of certificates under a data directory, each certificate once, the soonest first.
fn expiring(data: &Path, now: SystemTime) -> Vec<Event> {
    let mut found = Found { now, renewed: renewed(data), seen: HashSet::new(), events: Vec::new() };
    for path in files(&data.join(TLS)) {
        let is_small = std::fs::metadata(&path).is_ok_and(|facts| facts.is_file() && facts.len() <= FILE_BYTES_MAX);
        if !is_small || path.extension().is_none_or(|extension| extension != "pem") {
            continue;
        }
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let certificates = Certificate::all_from_pem(&bytes, PEM_CERTIFICATES_MAX).unwrap_or_default();
        let place = name_in(data, &path);
        certificates.iter().for_each(|certificate| found.note(&place, certificate));
    }
    for path in files(&data.join(RINGS)) {
        // A ring that does not load is reported when it is needed.
        let Ok(survey) = ring::survey(&path) else { continue };
        let place = name_in(data, &path);
        let in_files = [
            ("own", survey.own.iter().collect::<Vec<_>>()),
            ("people", survey.ring.people().iter().map(AsRef::as_ref).collect()),
        ];
        for (folder, people) in &in_files {
            for person in people {
                let place = format!("{place}/{folder}/{}", person.label);
                std::iter::once(&person.certificate).chain(&person.chain).for_each(|it| found.note(&place, it));
            }
        }
        let place = format!("{place}/trust");
        survey.ring.trust().iter().for_each(|certificate| found.note(&place, certificate));
    }
    let days = |event: &Event| if let Event::CertificateExpires { not_after, .. } = event { *not_after } else { 0 };
    found.events.sort_by_key(days);
    found.events.truncate(EVENTS_MAX);
    found.events
}

struct Found {
    now: SystemTime,
    /// Fingerprints of the certificates that renew by themselves.
    renewed: HashSet<[u8; 32]>,
    seen: HashSet<[u8; 32]>,
    events: Vec<Event>,
}

impl Found {
    fn note(&mut self, place: &str, certificate: &Certificate) {
        let end = certificate.not_after();
        let lifetime = end.duration_since(certificate.not_before()).unwrap_or_default();
        let is_renewed = self.renewed.contains(certificate.fingerprint());
        let warn_before = if is_renewed { WARN_BEFORE.min(lifetime / 3) } else { WARN_BEFORE };
        if end > self.now + warn_before || !self.seen.insert(*certificate.fingerprint()) {
            return;
        }
        self.events.push(Event::CertificateExpires {
            place: place.to_owned(),
            subject: certificate.dn().to_string(),
            serial: certificate.serial_hex(),
            not_after: end.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            days: days_until(end, self.now),
        });
    }
}

/// Fingerprints of the certificates that renew by themselves.
fn renewed(data: &Path) -> HashSet<[u8; 32]> {
    // What is wrong with the file is said where certificates are renewed.
    let configuration = Configuration::read(data).ok().flatten().unwrap_or_default();
    let rings = configuration.rings.keys().filter_map(|user| ring::survey(&data.join(RINGS).join(user)).ok());
    let own = rings.flat_map(|survey| survey.own).map(|own| own.certificate);
    let labels = configuration.certificates.keys();
    let tls = labels.filter_map(|label| tls_certificate::present(data, label).ok().flatten());
    own.chain(tls.map(|(certificate, _)| certificate)).map(|certificate| *certificate.fingerprint()).collect()
}

/// Whole days from `now` to `end`, rounded down.
fn days_until(end: SystemTime, now: SystemTime) -> i64 {
    let days = |span: Duration| i64::try_from(span.as_secs() / SECONDS_A_DAY).unwrap_or(i64::MAX);
    match end.duration_since(now) {
        Ok(left) => days(left),
        Err(over) => -1 - days(over.duration()),
    }
}

/// What is in a folder, by name; nothing where there is no folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    paths.sort();
    paths
}

/// A path as it stands in the data directory.
fn name_in(data: &Path, path: &Path) -> String {
    path.strip_prefix(data).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::first_start::{install_server_certificate, loopback_names, make_directories};
    use bulla_seal::certificate::authority::Authority;
    use bulla_seal::certificate::{Curve, KeySpec};

    #[test]
    fn a_certificate_is_spoken_of_in_its_last_month_and_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        make_directories(data).unwrap();
        let now = SystemTime::now();
        let dn = "CN=authority".parse().unwrap();
        let authority =
            Authority::create(&data.join("authorities/a"), &dn, KeySpec::Ec(Curve::P256), 3650, now).unwrap();
        install_server_certificate(data, &authority, loopback_names(), 90, now).unwrap();
        let day = Duration::from_secs(SECONDS_A_DAY);
        let said = |now: SystemTime| -> Vec<(String, i64)> {
            let of = |event: Event| match event {
                Event::CertificateExpires { place, days, .. } => (place, days),
                other => panic!("{other:?}"),
            };
            expiring(data, now).into_iter().map(of).collect()
        };
        assert_eq!(said(now), []);
        assert_eq!(said(now + 59 * day), []);
        assert_eq!(said(now + 61 * day), [("tls/server.pem".to_owned(), 28)]);
        assert_eq!(said(now + 90 * day + day / 2), [("tls/server.pem".to_owned(), -1)]);
        // The authority's own, which is in the same file and once more in ca.pem, comes once.
        assert_eq!(said(now + 3640 * day).len(), 2);
    }

    #[test]
    fn of_one_that_renews_by_itself_the_last_third_counts() {
        let directory = tempfile::tempdir().unwrap();
        make_directories(directory.path()).unwrap();
        let (now, day) = (SystemTime::now(), Duration::from_secs(SECONDS_A_DAY));
        let dn = "CN=authority".parse().unwrap();
        let folder = directory.path().join("authorities/a");
        let authority = Authority::create(&folder, &dn, KeySpec::Ec(Curve::P256), 3650, now).unwrap();
        install_server_certificate(directory.path(), &authority, loopback_names(), 9, now).unwrap();
        assert_eq!(expiring(directory.path(), now).len(), 1);
        let text = "[authorities.a]\ncommand = [\"/bin/false\"]\ntrust = \"ca.pem\"\n\
                    [certificates.server]\nauthority = \"a\"\n";
        std::fs::write(directory.path().join("enrolment.toml"), text).unwrap();
        assert_eq!(expiring(directory.path(), now + 5 * day).len(), 0);
        assert_eq!(expiring(directory.path(), now + 7 * day).len(), 1);
    }

    #[test]
    fn days_are_whole_and_the_day_after_is_minus_one() {
        let (now, day) = (SystemTime::now(), Duration::from_secs(SECONDS_A_DAY));
        for (end, days) in [(now + 2 * day, 2), (now + day / 2, 0), (now, 0), (now - day / 2, -1), (now - day, -2)] {
            assert_eq!(days_until(end, now), days);
        }
    }
}
