//! Log-ins over HTTP, for Prometheus.

use super::Family;
use crate::catalog::log_ins::LogInCounts;

/// Their metrics as text.
pub fn log_ins_text(counts: &LogInCounts) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    family.begin("bulla_http_logins", "gauge", "Log-ins over HTTP that go on, of all users.");
    family.sample("", "", counts.now);
    family.begin("bulla_http_logins_begun_total", "counter", "Log-ins over HTTP that began.");
    family.sample("", "", counts.begun);
    family.begin("bulla_http_logins_ended_total", "counter", "Log-ins over HTTP that ended, by cause.");
    for (cause, count) in &counts.ended {
        family.sample("", &format!("cause=\"{cause}\""), count);
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::read;
    use super::*;

    /// Some of each.
    pub(crate) fn some() -> LogInCounts {
        LogInCounts { now: 3, begun: 9, ended: vec![("idle", 4), ("stopped", 2)] }
    }

    #[test]
    fn what_ended_is_told_by_cause() {
        let samples = read(&log_ins_text(&some())).unwrap();
        let values: Vec<f64> = samples.iter().map(|(.., value)| *value).collect();
        assert_eq!(values, [3.0, 9.0, 4.0, 2.0]);
        assert_eq!(samples[3].1["cause"], "stopped");
    }
}
