//! Whether the queue manager is well, for Prometheus.

use super::Family;
use crate::readiness::Unready;

/// How it stands at one moment.
#[derive(Clone, Debug, Default)]
pub struct HealthSnapshot {
    /// Why clients should not come.
    pub unready: Vec<Unready>,
}

/// Its metrics as text.
pub fn health_text(snapshot: &HealthSnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin("bulla_unready", "gauge", "1 while clients should not come, by cause.");
    for cause in Unready::ALL {
        let is_there = snapshot.unready.contains(&cause);
        family.sample("", &format!("cause=\"{}\"", cause.cause()), u8::from(is_there));
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::read;
    use super::*;

    /// Something of everything.
    pub(crate) fn busy() -> HealthSnapshot {
        HealthSnapshot { unready: vec![Unready::Disk] }
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
    }
}
