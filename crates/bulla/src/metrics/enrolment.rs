//! Certificates that renew by themselves, for Prometheus.

use super::{Family, OBJECTS_LABELLED_MAX, escaped};
use crate::catalog::status::EnrolmentStatus;

/// Their metrics as text, of [`OBJECTS_LABELLED_MAX`] of them at most. Families without a sample are left out.
pub fn enrolments_text(all: &[EnrolmentStatus]) -> String {
    type Value = fn(&EnrolmentStatus) -> Option<u64>;
    let gauges: [(&str, &str, Value); 3] = [
        (
            "bulla_enrolment_failures",
            "Attempts to renew the certificate that failed since the last one that went well.",
            |one| Some(one.failures.into()),
        ),
        (
            "bulla_enrolment_certificate_end_seconds",
            "When the certificate is not valid any more, seconds since 1970; none where there is no certificate.",
            |one| one.until_ms.map(|ms| ms / 1000),
        ),
        (
            "bulla_enrolment_renewal_seconds",
            "When the certificate is renewed, or tried again, seconds since 1970.",
            |one| one.next_ms.map(|ms| ms / 1000),
        ),
    ];
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    for (name, help, value) in gauges {
        family.begin(name, "gauge", help);
        for one in all.iter().take(OBJECTS_LABELLED_MAX) {
            let place = one.place.word().to_ascii_lowercase();
            if let Some(value) = value(one) {
                family.sample("", &format!("place=\"{place}\",name=\"{}\"", escaped(&one.name)), value);
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
}
