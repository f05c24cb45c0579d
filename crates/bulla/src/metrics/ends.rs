//! When certificates and revocation lists end, for Prometheus.

use super::{Family, escaped};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When a certificate ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateEnd {
    /// The file of TLS, or the folder of a ring or an authority, in the data directory.
    pub place: String,
    /// What it is for: `tls`, `sign`, `encrypt`, `authority`.
    pub purpose: &'static str,
    /// Its subject.
    pub subject: String,
    /// Whether it renews by itself.
    pub renews: bool,
    /// The first moment at which it is not valid, seconds since 1970.
    pub not_after: u64,
}

/// When a revocation list has to be replaced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListEnd {
    /// Its folder in the data directory.
    pub place: String,
    /// The authority in whose name it is.
    pub issuer: String,
    /// When it was made, seconds since 1970.
    pub this_update: u64,
    /// When it must have been replaced, seconds since 1970.
    pub next_update: u64,
}

/// What has series: of both the soonest ones.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ends {
    /// Certificates.
    pub certificates: Vec<CertificateEnd>,
    /// Revocation lists.
    pub lists: Vec<ListEnd>,
    /// Certificates that have none.
    pub certificates_without_series: usize,
    /// Revocation lists that have none.
    pub lists_without_series: usize,
}

/// As it was when files were looked at last.
#[derive(Debug, Default)]
pub struct KnownEnds(Mutex<Ends>);

impl KnownEnds {
    /// What is known now.
    pub fn now(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Their metrics as text. Families without a sample are left out.
pub fn ends_text(ends: &Ends) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin(
        "bulla_certificate_not_after_seconds",
        "gauge",
        "When the certificate is not valid any more, seconds since 1970; of several that replace one another the last.",
    );
    for CertificateEnd { place, purpose, subject, renews, not_after } in &ends.certificates {
        let renews = if *renews { "yes" } else { "no" };
        let (place, subject) = (escaped(place), escaped(subject));
        let labels = format!("where=\"{place}\",use=\"{purpose}\",subject=\"{subject}\",renews=\"{renews}\"");
        family.sample("", &labels, not_after);
    }
    type Value = fn(&ListEnd) -> u64;
    let gauges: [(&str, &str, Value); 2] = [
        ("bulla_crl_this_update_seconds", "When the revocation list was made, seconds since 1970.", |list| {
            list.this_update
        }),
        (
            "bulla_crl_next_update_seconds",
            "When the revocation list must have been replaced, seconds since 1970; of several the last.",
            |list| list.next_update,
        ),
    ];
    for (name, help, value) in gauges {
        family.begin(name, "gauge", help);
        for list in &ends.lists {
            let labels = format!("where=\"{}\",issuer=\"{}\"", escaped(&list.place), escaped(&list.issuer));
            family.sample("", &labels, value(list));
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::read;
    use super::*;

    /// One of each.
    pub(crate) fn two() -> Ends {
        let server = CertificateEnd {
            place: "tls/server.pem".into(),
            purpose: "tls",
            subject: "CN=a \"b\"".into(),
            renews: true,
            not_after: 2_000_000_000,
        };
        let issuer = "CN=authority".into();
        let list = ListEnd { place: "tls/crls".into(), issuer, this_update: 1_000_000, next_update: 1_086_400 };
        Ends { certificates: vec![server], lists: vec![list], ..Ends::default() }
    }

    #[test]
    fn each_end_is_a_sample_and_what_is_not_there_is_none() {
        let samples = read(&ends_text(&two())).unwrap();
        let values: Vec<(&str, f64)> = samples.iter().map(|(name, _, value)| (name.as_str(), *value)).collect();
        let wanted = [
            ("bulla_certificate_not_after_seconds", 2_000_000_000.0),
            ("bulla_crl_this_update_seconds", 1_000_000.0),
            ("bulla_crl_next_update_seconds", 1_086_400.0),
        ];
        assert_eq!(values, wanted);
        let labels = &samples[0].1;
        assert_eq!((labels["subject"].as_str(), labels["renews"].as_str()), ("CN=a \"b\"", "yes"));
        assert_eq!(ends_text(&Ends::default()), "");
    }
}
