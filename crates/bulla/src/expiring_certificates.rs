//! Certificates that are about to expire, and when those and revocation lists end: in key rings, of TLS, and of the
//! data directory's own authorities. Files are read again when they have changed, and once a day in any case.

mod survey;

use crate::enrolment::Configuration;
use crate::enrolment::signer_certificate::LABEL;
use crate::events::Event;
use crate::manager::Manager;
use crate::metrics::{CertificateEnd, Ends, KnownEnds, ListEnd, OBJECTS_LABELLED_MAX};
use crate::wall_clock::wall_ms;
use hashbrown::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use survey::{FoundCertificate, FoundList, Holder, Survey};

/// From so long before its end on, a certificate is spoken of once a day; one that renews by itself not before the last
/// third of its lifetime, when it should have been renewed.
pub(crate) const WARN_BEFORE: Duration = Duration::from_secs(30 * SECONDS_A_DAY);
/// How often files are looked at for changes: a `stat` a file.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often certificates are spoken of, and files are read again whether they have changed or not.
const SPEAK_EVERY: Duration = Duration::from_secs(SECONDS_A_DAY);
/// Most events of one look: many rings may hold many certificates of one dying authority.
const EVENTS_MAX: usize = 100;
const SECONDS_A_DAY: u64 = 86_400;

/// Looks again and again.
pub(crate) struct Watch {
    survey: Survey,
    renewing: Renewing,
    spoken: Option<Instant>,
    ends: Arc<KnownEnds>,
}

impl Watch {
    /// Says in `ends` what it finds.
    pub(crate) fn new(ends: Arc<KnownEnds>) -> Watch {
        Watch { survey: Survey::default(), renewing: Renewing::default(), spoken: None, ends }
    }

    /// Reads what has changed. Once a day it raises an event for each certificate that expires within [`WARN_BEFORE`],
    /// and holds the queues' lock for the events alone.
    pub(crate) fn look(&mut self, manager: &Manager, now: Instant, wall: SystemTime) {
        let speaks = self.spoken.is_none_or(|spoken| now.saturating_duration_since(spoken) >= SPEAK_EVERY);
        self.read(&manager.data, speaks);
        if !speaks {
            return;
        }
        self.spoken = Some(now);
        let events = expiring(&self.survey, &self.renewing, wall);
        manager.raise(&events, wall_ms(wall));
    }

    fn read(&mut self, data: &Path, everything: bool) {
        let renewing = Renewing::of(data);
        let changed = self.survey.look(data, everything);
        if changed || renewing != self.renewing {
            self.renewing = renewing;
            *self.ends.now() = ends(&self.survey, &self.renewing);
        }
    }
}

/// What renews by itself, by name.
#[derive(Default, Eq, PartialEq)]
struct Renewing {
    /// Folders of rings, as `rings/orders/own`.
    own: HashSet<String>,
    /// Of signers, as `rings/orders/own/svid`.
    signers: HashSet<String>,
    /// Files of TLS, as `tls/server.pem`.
    tls: HashSet<String>,
}

impl Renewing {
    fn of(data: &Path) -> Renewing {
        // What is wrong with the file is said where certificates are renewed.
        let configuration = Configuration::read(data).ok().flatten().unwrap_or_default();
        Renewing {
            own: configuration.rings.keys().map(|user| format!("rings/{user}/own")).collect(),
            signers: configuration.signers.keys().map(|user| format!("rings/{user}/own/{LABEL}")).collect(),
            tls: configuration.certificates.keys().map(|label| format!("tls/{label}.pem")).collect(),
        }
    }

    fn has(&self, found: &FoundCertificate) -> bool {
        match found.holder {
            Holder::Own => self.own.contains(&found.around) || self.signers.contains(&found.place),
            Holder::Tls => found.is_first && self.tls.contains(&found.around),
            Holder::Authority | Holder::Other => false,
        }
    }

    /// Fingerprints of the certificates that renew by themselves: they are in rings of others, too.
    fn fingerprints(&self, survey: &Survey) -> HashSet<[u8; 32]> {
        survey.certificates().filter(|found| self.has(found)).map(|found| found.fingerprint).collect()
    }
}

/// The events of certificates, each certificate once, the soonest first.
fn expiring(survey: &Survey, renewing: &Renewing, now: SystemTime) -> Vec<Event> {
    let (renewed, mut seen) = (renewing.fingerprints(survey), HashSet::new());
    let mut events: Vec<(SystemTime, Event)> = Vec::new();
    for found in survey.certificates() {
        let end = found.not_after;
        let is_renewed = renewed.contains(&found.fingerprint);
        let warn_before = if is_renewed { WARN_BEFORE.min(found.lifetime / 3) } else { WARN_BEFORE };
        if end > now + warn_before || !seen.insert(found.fingerprint) {
            continue;
        }
        let event = Event::CertificateExpires {
            place: found.place.clone(),
            subject: found.subject.clone(),
            serial: found.serial.clone(),
            not_after: seconds(end),
            days: days_until(end, now),
        };
        events.push((end, event));
    }
    events.sort_by_key(|(end, _)| *end);
    events.into_iter().map(|(_, event)| event).take(EVENTS_MAX).collect()
}

/// When all of it ends, the soonest first. Of certificates of one subject that are for the same at one place, and of
/// lists of one authority, the one counts that lasts longest: the others were replaced. What is in several places is in
/// the first of them alone.
fn ends(survey: &Survey, renewing: &Renewing) -> Ends {
    let renewed = renewing.fingerprints(survey);
    let mut last: HashMap<(&str, &str, &str), &FoundCertificate> = HashMap::new();
    for found in survey.certificates() {
        for purpose in &found.uses {
            let longest = last.entry((&found.around, purpose, &found.subject)).or_insert(found);
            if longest.not_after < found.not_after {
                *longest = found;
            }
        }
    }
    let mut last: Vec<(&'static str, &FoundCertificate)> = last
        .into_iter()
        .filter_map(|((_, purpose, _), found)| Some((*found.uses.iter().find(|of| **of == purpose)?, found)))
        .collect();
    last.sort_by(|(_, a), (_, b)| (a.holder, &a.around).cmp(&(b.holder, &b.around)));
    let mut seen = HashSet::new();
    last.retain(|(purpose, found)| seen.insert((*purpose, found.fingerprint)));
    let mut certificates: Vec<CertificateEnd> = last
        .into_iter()
        .map(|(purpose, found)| CertificateEnd {
            place: found.around.clone(),
            purpose,
            subject: found.subject.clone(),
            renews: renewed.contains(&found.fingerprint),
            not_after: seconds(found.not_after),
        })
        .collect();
    certificates.sort_by(|a, b| {
        let name = |of: &CertificateEnd| (of.not_after, of.place.clone(), of.purpose, of.subject.clone());
        name(a).cmp(&name(b))
    });

    let mut newest: HashMap<(&str, &str), &FoundList> = HashMap::new();
    for list in survey.lists() {
        let last = newest.entry((&list.around, &list.issuer)).or_insert(list);
        if last.next_update < list.next_update {
            *last = list;
        }
    }
    let mut lists: Vec<ListEnd> = newest
        .into_values()
        .map(|list| ListEnd {
            place: list.around.clone(),
            issuer: list.issuer.clone(),
            this_update: seconds(list.this_update),
            next_update: seconds(list.next_update),
        })
        .collect();
    lists.sort_by(|a, b| (a.next_update, &a.issuer, &a.place).cmp(&(b.next_update, &b.issuer, &b.place)));
    lists.dedup_by(|later, first| (later.next_update, &later.issuer) == (first.next_update, &first.issuer));

    let beyond = |count: usize| count.saturating_sub(OBJECTS_LABELLED_MAX);
    let (certificates_without_series, lists_without_series) = (beyond(certificates.len()), beyond(lists.len()));
    certificates.truncate(OBJECTS_LABELLED_MAX);
    lists.truncate(OBJECTS_LABELLED_MAX);
    Ends { certificates, lists, certificates_without_series, lists_without_series }
}

/// Seconds since 1970.
fn seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whole days from `now` to `end`, rounded down.
fn days_until(end: SystemTime, now: SystemTime) -> i64 {
    let days = |span: Duration| i64::try_from(span.as_secs() / SECONDS_A_DAY).unwrap_or(i64::MAX);
    match end.duration_since(now) {
        Ok(left) => days(left),
        Err(over) => -1 - days(over.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::first_start::{install_server_certificate, loopback_names, make_directories};
    use bulla_seal::certificate::authority::{Authority, CRL_DAYS, Request};
    use bulla_seal::certificate::{Curve, KeySpec, KeyUse};
    use bulla_seal::ring;

    const DAY: Duration = Duration::from_secs(SECONDS_A_DAY);

    fn authority(data: &Path, now: SystemTime) -> Authority {
        let dn = "CN=authority".parse().unwrap();
        Authority::create(&data.join("authorities/a"), &dn, KeySpec::Ec(Curve::P256), 3650, now).unwrap()
    }

    /// Puts a key and a certificate of `CN=orders` into the ring `orders`.
    fn install(data: &Path, authority: &Authority, label: &str, uses: &[KeyUse], days: u32, now: SystemTime) {
        let request = Request {
            dn: "CN=orders".parse().unwrap(),
            key: KeySpec::Ec(Curve::P256),
            uses: uses.to_vec(),
            days,
            alternative_names: Vec::new(),
            passphrase: None,
        };
        let (certificate, key) = authority.issue(&request, now).unwrap();
        let ring = data.join("rings/orders");
        if !ring.exists() {
            ring::create(&ring).unwrap();
        }
        ring::install_own(&ring, label, &certificate, &authority.chain(), &key).unwrap();
    }

    fn surveyed(data: &Path) -> (Survey, Renewing) {
        let mut survey = Survey::default();
        survey.look(data, true);
        (survey, Renewing::of(data))
    }

    fn expiring_in(data: &Path, now: SystemTime) -> Vec<Event> {
        let (survey, renewing) = surveyed(data);
        expiring(&survey, &renewing, now)
    }

    #[test]
    fn a_certificate_is_spoken_of_in_its_last_month_and_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        make_directories(data).unwrap();
        let now = SystemTime::now();
        install_server_certificate(data, &authority(data, now), loopback_names(), 90, now).unwrap();
        let said = |now: SystemTime| -> Vec<(String, i64)> {
            let of = |event: Event| match event {
                Event::CertificateExpires { place, days, .. } => (place, days),
                other => panic!("{other:?}"),
            };
            expiring_in(data, now).into_iter().map(of).collect()
        };
        assert_eq!(said(now), []);
        assert_eq!(said(now + 59 * DAY), []);
        assert_eq!(said(now + 61 * DAY), [("tls/server.pem".to_owned(), 28)]);
        assert_eq!(said(now + 90 * DAY + DAY / 2), [("tls/server.pem".to_owned(), -1)]);
        // The authority's own, which is in the same file and twice more in ca.pem, comes once.
        assert_eq!(said(now + 3640 * DAY).len(), 2);
    }

    #[test]
    fn of_one_that_renews_by_itself_the_last_third_counts() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        make_directories(data).unwrap();
        let now = SystemTime::now();
        install_server_certificate(data, &authority(data, now), loopback_names(), 9, now).unwrap();
        assert_eq!(expiring_in(data, now).len(), 1);
        let text = "[authorities.a]\ncommand = [\"/bin/false\"]\ntrust = \"ca.pem\"\n\
                    [certificates.server]\nauthority = \"a\"\n";
        std::fs::write(data.join("enrolment.toml"), text).unwrap();
        assert_eq!(expiring_in(data, now + 5 * DAY).len(), 0);
        assert_eq!(expiring_in(data, now + 7 * DAY).len(), 1);
        let (survey, renewing) = surveyed(data);
        let renews: Vec<_> = ends(&survey, &renewing).certificates.into_iter().map(|one| one.renews).collect();
        assert_eq!(renews, [true, false], "the listener's, and its authority's");
    }

    /// Place, purpose and days from `now` of each certificate with series.
    fn shown(ends: &Ends, now: SystemTime) -> Vec<(&str, &str, u64)> {
        let days = |end: u64| (end + SECONDS_A_DAY / 2 - seconds(now)) / SECONDS_A_DAY;
        ends.certificates.iter().map(|one| (one.place.as_str(), one.purpose, days(one.not_after))).collect()
    }

    #[test]
    fn each_use_of_a_ring_has_the_end_of_the_certificate_that_lasts_longest() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        make_directories(data).unwrap();
        let now = SystemTime::now();
        let authority = authority(data, now);
        let both = [KeyUse::DocSign, KeyUse::KeyAgree];
        install(data, &authority, "old", &both, 10, now);
        install(data, &authority, "new", &both, 300, now);
        let (survey, renewing) = surveyed(data);
        let own = "rings/orders/own";
        let authority_of_it = ("authorities/a/ca.pem", "authority", 3650);
        assert_eq!(
            shown(&ends(&survey, &renewing), now),
            [(own, "encrypt", 300), (own, "sign", 300), authority_of_it],
            "the old one was replaced"
        );
        install(data, &authority, "signs", &[KeyUse::DocSign], 400, now);
        let (survey, renewing) = surveyed(data);
        assert_eq!(shown(&ends(&survey, &renewing), now), [(own, "encrypt", 300), (own, "sign", 400), authority_of_it]);
    }

    #[test]
    fn what_others_have_of_a_certificate_is_shown_where_its_key_is() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        make_directories(data).unwrap();
        let now = SystemTime::now();
        let authority = authority(data, now);
        install(data, &authority, "key", &[KeyUse::DocSign], 10, now);
        let certificate = ring::survey(&data.join("rings/orders")).unwrap().own.remove(0).certificate;
        let other = data.join("rings/audit");
        ring::create(&other).unwrap();
        ring::install_person(&other, "orders", &certificate, &[]).unwrap();
        let (survey, renewing) = surveyed(data);
        let found = ends(&survey, &renewing);
        assert_eq!(shown(&found, now)[0], ("rings/orders/own", "sign", 10));
        assert_eq!(found.certificates.len(), 2, "and the authority");
    }

    #[test]
    fn a_revocation_list_has_the_end_of_the_newest_and_is_read_when_it_comes() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        make_directories(data).unwrap();
        let now = SystemTime::now();
        let authority = authority(data, now);
        install(data, &authority, "key", &[KeyUse::DocSign], 10, now);
        let known = Arc::new(KnownEnds::default());
        let mut watch = Watch::new(known.clone());
        watch.read(data, false);
        assert_eq!(known.now().lists, []);
        assert!(!watch.survey.look(data, false), "nothing has changed");
        for (label, days) in [("new", CRL_DAYS), ("old", 1)] {
            authority.write_crl(days, now).unwrap();
            ring::install_crl(&data.join("rings/orders"), label, &authority.crl().unwrap()).unwrap();
        }
        watch.read(data, false);
        let lists: Vec<_> = known.now().lists.iter().map(|list| (list.place.clone(), list.issuer.clone())).collect();
        assert_eq!(lists, [("rings/orders/crl".to_owned(), "CN=authority".to_owned())]);
        let list = known.now().lists[0].clone();
        assert_eq!((list.next_update - list.this_update) / SECONDS_A_DAY, u64::from(CRL_DAYS));
    }

    #[test]
    fn of_many_certificates_the_soonest_have_series() {
        let found = |number: usize| FoundCertificate {
            holder: Holder::Own,
            place: format!("rings/{number}/own/key"),
            around: format!("rings/{number}/own"),
            is_first: true,
            uses: vec!["sign"],
            subject: format!("CN={number}"),
            serial: String::new(),
            fingerprint: std::array::from_fn(|at| number.to_le_bytes().get(at).copied().unwrap_or_default()),
            lifetime: DAY,
            not_after: UNIX_EPOCH + Duration::from_secs(1_000_000 - number as u64),
        };
        let survey = Survey::of((0..OBJECTS_LABELLED_MAX + 3).map(found).collect());
        let ends = ends(&survey, &Renewing::default());
        assert_eq!((ends.certificates.len(), ends.certificates_without_series), (OBJECTS_LABELLED_MAX, 3));
        assert_eq!(ends.certificates[0].subject, format!("CN={}", OBJECTS_LABELLED_MAX + 2));
    }

    #[test]
    fn days_are_whole_and_the_day_after_is_minus_one() {
        let now = SystemTime::now();
        for (end, days) in [(now + 2 * DAY, 2), (now + DAY / 2, 0), (now, 0), (now - DAY / 2, -1), (now - DAY, -2)] {
            assert_eq!(days_until(end, now), days);
        }
    }
}
