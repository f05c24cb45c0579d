//! Whether the queue manager is well, for Prometheus.

use super::{Family, escaped};
use crate::readiness::Unready;

/// How it stands at one moment.
#[derive(Clone, Debug, Default)]
pub struct HealthSnapshot {
    /// Why clients should not come.
    pub unready: Vec<Unready>,
    /// Devices of TYPE(TRANSIT), and whether the server refuses the token.
    pub tokens: Vec<(String, bool)>,
}

/// Its metrics as text. Families without a sample are left out.
pub fn health_text(snapshot: &HealthSnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin("bulla_unready", "gauge", "1 while clients should not come, by cause.");
    for cause in Unready::ALL {
        let is_there = snapshot.unready.contains(&cause);
        family.sample("", &format!("cause=\"{}\"", cause.cause()), u8::from(is_there));
    }
    family.begin("bulla_device_token_refused", "gauge", "1 while the server with the keys refuses the device's token.");
    for (device, is_refused) in &snapshot.tokens {
        family.sample("", &format!("device=\"{}\"", escaped(device)), u8::from(*is_refused));
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::read;
    use super::*;

    /// Something of everything.
    pub(crate) fn busy() -> HealthSnapshot {
        HealthSnapshot { unready: vec![Unready::Disk], tokens: vec![("VAULT".into(), true)] }
    }

    #[test]
    fn each_cause_has_a_series_whether_it_is_there_or_not() {
        let samples = read(&health_text(&busy())).unwrap();
        let told: Vec<(&str, f64)> = samples
            .iter()
            .filter(|(name, ..)| name == "bulla_unready")
            .map(|(_, labels, value)| (labels["cause"].as_str(), *value))
            .collect();
        assert_eq!(told, [("journal-full", 0.0), ("disk-low", 1.0), ("key-rings-unusable", 0.0)]);
        let tokens = samples.iter().find(|(name, ..)| name == "bulla_device_token_refused").unwrap();
        assert_eq!((tokens.1["device"].as_str(), tokens.2), ("VAULT", 1.0));
    }
}
