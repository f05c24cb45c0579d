//! Certificates that renew by themselves, for Prometheus.

use super::{Family, OBJECTS_LABELLED_MAX, escaped};
use crate::catalog::status::EnrolmentStatus;

/// Their metrics as text, of [`OBJECTS_LABELLED_MAX`] names at most. Families without a sample are left out.
///
/// A ring may have several certificates, and serial numbers as labels would be new series with each renewal. So one
/// sample tells of all of a name: the most failures, and the earliest times.
pub fn enrolments_text(all: &[EnrolmentStatus]) -> String {
    type Value = fn(&EnrolmentStatus) -> Option<u64>;
    type Worse = fn(u64, u64) -> u64;
    let gauges: [(&str, &str, Value, Worse); 3] = [
        (
            "bulla_enrolment_failures",
            "Attempts to renew the certificate that failed since the last one that went well.",
            |one| Some(one.failures.into()),
            u64::max,
        ),
        (
            "bulla_enrolment_certificate_end_seconds",
            "When the certificate is not valid any more, seconds since 1970; none where there is no certificate.",
            |one| one.until_ms.map(|ms| ms / 1000),
            u64::min,
        ),
        (
            "bulla_enrolment_renewal_seconds",
            "When the certificate is renewed, or tried again, seconds since 1970.",
            |one| one.next_ms.map(|ms| ms / 1000),
            u64::min,
        ),
    ];
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    // Those of one name stand together.
    let names: Vec<&[EnrolmentStatus]> =
        all.chunk_by(|one, next| (one.place, &one.name) == (next.place, &next.name)).collect();
    for (name, help, value, worse) in gauges {
        family.begin(name, "gauge", help);
        for of_name in names.iter().take(OBJECTS_LABELLED_MAX) {
            let place = of_name[0].place.word().to_ascii_lowercase();
            if let Some(value) = of_name.iter().filter_map(value).reduce(worse) {
                family.sample("", &format!("place=\"{place}\",name=\"{}\"", escaped(&of_name[0].name)), value);
            }
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::catalog::status::{EnrolmentPlace, EnrolmentState};

    /// One that did not come, and one that is there.
    pub(in crate::metrics) fn two() -> Vec<EnrolmentStatus> {
        let missing = EnrolmentStatus {
            name: "billing".into(),
            place: EnrolmentPlace::Ring,
            authority: "company".into(),
            method: "COMMAND",
            state: EnrolmentState::Failing,
            subject: String::new(),
            serial: String::new(),
            until_ms: None,
            next_ms: Some(61_000),
            tried_ms: Some(1_000),
            failures: 1,
            why: "no answer within 60 s".into(),
        };
        let name = "server".into();
        let there =
            EnrolmentStatus { name, place: EnrolmentPlace::Tls, until_ms: Some(9_500), failures: 0, ..missing.clone() };
        vec![missing, there]
    }

    #[test]
    fn a_certificate_that_is_not_there_has_no_end() {
        let text = enrolments_text(&two());
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        has("bulla_enrolment_failures{place=\"ring\",name=\"billing\"} 1");
        has("bulla_enrolment_failures{place=\"tls\",name=\"server\"} 0");
        has("bulla_enrolment_certificate_end_seconds{place=\"tls\",name=\"server\"} 9");
        has("bulla_enrolment_renewal_seconds{place=\"ring\",name=\"billing\"} 61");
        assert_eq!(text.matches("bulla_enrolment_certificate_end_seconds{").count(), 1);
    }

    #[test]
    fn several_certificates_of_a_ring_are_one_series() {
        let [failing, server] = two().try_into().unwrap();
        let valid = EnrolmentStatus { until_ms: Some(8_000), next_ms: Some(5_000), failures: 0, ..failing.clone() };
        let later = EnrolmentStatus { until_ms: Some(9_000), ..valid.clone() };
        let text = enrolments_text(&[failing, valid, later, server]);
        let of = |family: &str| {
            let is_it = |line: &&str| line.starts_with(&format!("{family}{{place=\"ring\",name=\"billing\"}}"));
            text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("bulla_enrolment_failures"), ["1"]);
        assert_eq!(of("bulla_enrolment_certificate_end_seconds"), ["8"]);
        assert_eq!(of("bulla_enrolment_renewal_seconds"), ["5"]);
    }
}
