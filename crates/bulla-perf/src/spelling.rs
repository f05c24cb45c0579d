//! How JSON names are spelled: words in lower case, joined by `_`.
//!
//! Versions before results of format 2 joined words by `-`. What was written then is read as if it were written now.
//! Profiles are TOML, and keep their `-`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Members that hold a map by something that has a name of its own: a device, a CipherSpec, a reason code. Those names
/// are values and stay as they are.
pub const MAPS_BY_VALUE: [&str; 10] = [
    "addresses",
    "cpu",
    "crt_us",
    "devices",
    "failures_by_cause",
    "me_us",
    "operations",
    "rejects_by_reason",
    "software",
    "tls",
];

/// The name as JSON has it.
#[must_use]
pub fn name(text: &str) -> String {
    text.replace('-', "_")
}

/// The same value with every name in it spelled so.
#[must_use]
pub fn respelled(json: Json) -> Json {
    match json {
        Json::Array(list) => list.into_iter().map(respelled).collect(),
        Json::Object(members) => {
            let member = |(key, value): (String, Json)| {
                let key = name(&key);
                let value = match value {
                    Json::Object(map) if MAPS_BY_VALUE.contains(&key.as_str()) => {
                        map.into_iter().map(|(key, value)| (key, respelled(value))).collect()
                    }
                    value => respelled(value),
                };
                (key, value)
            };
            Json::Object(members.into_iter().map(member).collect())
        }
        json => json,
    }
}

/// For `#[serde(with)]`: numbers by a name that tables and charts write with `-`.
pub mod by_name {
    use super::*;

    /// Writes the names with `_`.
    ///
    /// # Errors
    /// As the serializer has them.
    pub fn serialize<S: Serializer>(map: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
        map.iter().map(|(key, value)| (name(key), *value)).collect::<BTreeMap<_, _>>().serialize(serializer)
    }

    /// Reads both spellings.
    ///
    /// # Errors
    /// As the deserializer has them.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
        let map = BTreeMap::<String, f64>::deserialize(deserializer)?;
        Ok(map.into_iter().map(|(key, value)| (key.replace('_', "-"), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_respelled_at_every_depth_and_values_are_not() {
        let old = json!({"cpu-us": {"queue-manager": 1}, "devices": {"MY-CARD": {"lanes-filled": 2}}, "list": [{"at-a": "b-c"}]});
        let new = json!({"cpu_us": {"queue_manager": 1}, "devices": {"MY-CARD": {"lanes_filled": 2}}, "list": [{"at_a": "b-c"}]});
        assert_eq!(respelled(old), new);
    }
}
