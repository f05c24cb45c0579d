//! The keys that messages need, for Prometheus.

use super::{Family, OBJECTS_LABELLED_MAX, escaped};
use crate::catalog::status::NeededKey;

/// How it was when it was looked for last.
#[derive(Clone, Debug, Default)]
pub struct KeySnapshot {
    /// Private keys that are gone though messages need them.
    pub missing: usize,
    /// Keys that messages need, those with the most messages first; [`OBJECTS_LABELLED_MAX`] at most.
    pub needed: Vec<NeededKey>,
    /// How many are beyond.
    pub needed_without_series: usize,
}

impl KeySnapshot {
    /// Of keys in any order.
    pub fn new(missing: usize, needed: &[NeededKey]) -> Self {
        let mut needed = needed.to_vec();
        let name = |key: &NeededKey| (key.subject.clone(), key.serial.clone(), key.key_id.clone());
        needed.sort_by(|a, b| b.messages.cmp(&a.messages).then_with(|| name(a).cmp(&name(b))));
        let needed_without_series = needed.len().saturating_sub(OBJECTS_LABELLED_MAX);
        needed.truncate(OBJECTS_LABELLED_MAX);
        Self { missing, needed, needed_without_series }
    }
}

/// Their metrics as text. Families without a sample are left out.
pub fn keys_text(keys: &KeySnapshot) -> String {
    let mut out = String::new();
    let mut family = Family { out: &mut out, name: "", is_begun: false, kind: "", help: "" };
    let help = "Private keys that key rings here had, that messages need, and that are in no ring any more.";
    family.begin("bulla_missing_keys", "gauge", help);
    family.sample("", "", keys.missing);
    let labels = |key: &NeededKey| {
        let NeededKey { subject, serial, key_id, .. } = key;
        // Messages that name a key by its identifier alone have no serial number.
        let key = if serial.is_empty() { key_id } else { serial };
        format!("subject=\"{}\",key=\"{}\"", escaped(subject), escaped(key))
    };
    type Value = fn(&NeededKey) -> Option<u64>;
    let gauges: [(&str, &str, Value); 3] = [
        (
            "bulla_key_use_messages",
            "Messages on queues that the key opens; one that several keys open is counted with each.",
            |key| Some(key.messages),
        ),
        ("bulla_key_use_here", "1 where a key ring here has the private key and can be read.", |key| {
            Some(key.is_here.into())
        }),
        (
            "bulla_key_use_not_after_seconds",
            "When the key's certificate ends, seconds since 1970; none where no key ring here has it.",
            |key| key.not_after,
        ),
    ];
    for (name, help, value) in gauges {
        family.begin(name, "gauge", help);
        for key in &keys.needed {
            if let Some(value) = value(key) {
                family.sample("", &labels(key), value);
            }
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::read;
    use super::*;

    fn key(serial: usize, messages: u64) -> NeededKey {
        NeededKey {
            subject: "CN=billing".into(),
            serial: serial.to_string(),
            messages,
            is_here: true,
            not_after: Some(2_000_000_000),
            ..NeededKey::default()
        }
    }

    /// One that is here, and one of which next to nothing is known.
    pub(crate) fn busy() -> KeySnapshot {
        let unknown = NeededKey { key_id: "0a".into(), messages: 2, ..NeededKey::default() };
        KeySnapshot::new(2, &[unknown, key(7, 3)])
    }

    #[test]
    fn a_key_without_a_certificate_here_has_no_end() {
        let samples = read(&keys_text(&busy())).unwrap();
        let of = |wanted: &str| -> Vec<(&str, f64)> {
            let of_name = samples.iter().filter(|(name, ..)| name == wanted);
            of_name.map(|(_, labels, value)| (labels["key"].as_str(), *value)).collect()
        };
        assert_eq!(of("bulla_key_use_messages"), [("7", 3.0), ("0a", 2.0)]);
        assert_eq!(of("bulla_key_use_here"), [("7", 1.0), ("0a", 0.0)]);
        assert_eq!(of("bulla_key_use_not_after_seconds"), [("7", 2_000_000_000.0)]);
    }

    #[test]
    fn of_many_keys_those_with_the_most_messages_have_series() {
        let all: Vec<NeededKey> = (0..OBJECTS_LABELLED_MAX + 3).map(|number| key(number, number as u64)).collect();
        let keys = KeySnapshot::new(0, &all);
        assert_eq!((keys.needed.len(), keys.needed_without_series), (OBJECTS_LABELLED_MAX, 3));
        assert_eq!((keys.needed[0].messages, keys.needed[OBJECTS_LABELLED_MAX - 1].messages), (502, 3));
    }
}
