//! The parts of a configuration, in the words of a report: what differs between configurations names them.

use super::group::Group;
use super::number::{bytes, with_decimals};
use crate::configuration::{Getting, Quality, Reuse};

/// A part of a configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Field {
    /// The quality of protection.
    Quality,
    /// The key.
    Key,
    /// How often a content key is used again.
    Reuse,
    /// How many messages one signature may prove.
    SignBatch,
    /// Recipients.
    Recipients,
    /// The payload.
    Bytes,
    /// Whether messages are persistent.
    Persistent,
    /// Pairs.
    Pairs,
    /// Messages under way.
    InFlight,
    /// The rate that is to be held.
    Target,
    /// Crypto devices.
    Devices,
    /// The CipherSpec.
    Cipher,
    /// Whether callers show certificates.
    Certificates,
    /// SSLRKEYC.
    Reset,
    /// Requests of a connection.
    Requests,
    /// Whether TLS sessions are resumed.
    Resumed,
    /// CHIDISPS.
    Dispatchers,
    /// CHIADAPS.
    Adapters,
    /// Which way a message goes.
    Topology,
    /// How messages are got, and how many may wait for that.
    Getting,
    /// The machine, the version and the target.
    Setting,
}

impl Field {
    /// All of them, in the order of a name.
    pub const ALL: [Field; 21] = [
        Field::Topology,
        Field::Quality,
        Field::Key,
        Field::Reuse,
        Field::SignBatch,
        Field::Recipients,
        Field::Bytes,
        Field::Persistent,
        Field::Pairs,
        Field::InFlight,
        Field::Target,
        Field::Devices,
        Field::Cipher,
        Field::Certificates,
        Field::Reset,
        Field::Requests,
        Field::Resumed,
        Field::Dispatchers,
        Field::Adapters,
        Field::Getting,
        Field::Setting,
    ];

    /// What an axis along which it lies measures.
    #[must_use]
    pub const fn measure(self) -> &'static str {
        match self {
            Field::Quality => "quality of protection",
            Field::Key => "key",
            Field::Reuse => "KEYREUSE",
            Field::SignBatch => "SIGNBATCH",
            Field::Recipients => "recipients",
            Field::Bytes => "payload",
            Field::Persistent => "persistence",
            Field::Pairs => "pairs",
            Field::InFlight => "messages in flight",
            Field::Target => "target",
            Field::Devices => "devices",
            Field::Cipher => "CipherSpec",
            Field::Certificates => "certificates",
            Field::Reset => "SSLRKEYC",
            Field::Requests => "requests of a connection",
            Field::Resumed => "TLS sessions",
            Field::Dispatchers => "dispatchers",
            Field::Adapters => "adapters",
            Field::Topology => "topology",
            Field::Getting => "getting",
            Field::Setting => "setting",
        }
    }

    /// As short as an axis has it.
    #[must_use]
    pub fn short(self, group: &Group) -> String {
        let configuration = &group.configuration;
        let or_default = |count: u32| if count == 0 { "default".to_owned() } else { count.to_string() };
        match self {
            Field::Reuse => configuration.reuse.to_string(),
            Field::SignBatch => configuration.sign_batch.to_string(),
            Field::Recipients => configuration.recipients.to_string(),
            Field::Pairs => configuration.pairs.to_string(),
            Field::InFlight => configuration.in_flight.to_string(),
            Field::Requests => configuration.requests.to_string(),
            Field::Dispatchers => or_default(configuration.dispatchers),
            Field::Adapters => or_default(configuration.adapters),
            field => field.text(group),
        }
    }

    /// As a name has it; empty where it says nothing.
    #[must_use]
    pub fn text(self, group: &Group) -> String {
        let configuration = &group.configuration;
        let counted =
            |count: u32, one: &str, more: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {more}") };
        let tasks = |count: u32, one: &str, more: &str| {
            if count == 0 { format!("{more} by default") } else { counted(count, one, more) }
        };
        match self {
            Field::Quality => match configuration.quality {
                Quality::None => "unprotected".to_owned(),
                quality => quality.to_string(),
            },
            Field::Key => key(&configuration.key),
            // Only confidentiality knows it.
            Field::Reuse if configuration.quality != Quality::Confidentiality => String::new(),
            Field::Reuse => format!("reuse {}", configuration.reuse),
            // Only what is signed knows it.
            Field::SignBatch if !configuration.quality.signs() => String::new(),
            Field::SignBatch => format!("batch {}", configuration.sign_batch),
            Field::Recipients => counted(configuration.recipients, "recipient", "recipients"),
            Field::Bytes => bytes(configuration.bytes),
            Field::Persistent => if configuration.persistent { "persistent" } else { "not persistent" }.to_owned(),
            Field::Pairs => counted(configuration.pairs, "pair", "pairs"),
            Field::InFlight => format!("{} in flight", configuration.in_flight),
            Field::Target if configuration.target_rate == 0 => "as fast as it goes".to_owned(),
            Field::Target => format!("{}/s", with_decimals(configuration.target_rate as f64, 0)),
            Field::Devices => devices(&configuration.devices),
            Field::Cipher if configuration.cipher.is_empty() => "no TLS".to_owned(),
            Field::Cipher => configuration.cipher.clone(),
            Field::Certificates if configuration.cipher.is_empty() => String::new(),
            Field::Certificates => {
                if configuration.client_certificates { "both show certificates" } else { "one certificate" }.to_owned()
            }
            Field::Reset if configuration.reset_bytes == 0 => "no key reset".to_owned(),
            Field::Reset => format!("keys reset after {}", bytes(configuration.reset_bytes)),
            Field::Requests if configuration.requests == 0 => String::new(),
            Field::Requests => format!("{} a connection", counted(configuration.requests, "request", "requests")),
            Field::Resumed if configuration.requests == 0 => String::new(),
            Field::Resumed => if configuration.resumed { "sessions resumed" } else { "whole handshakes" }.to_owned(),
            Field::Dispatchers => tasks(configuration.dispatchers, "dispatcher", "dispatchers"),
            Field::Adapters => tasks(configuration.adapters, "adapter", "adapters"),
            Field::Topology => configuration.topology.clone(),
            Field::Getting => getting(&configuration.getting),
            Field::Setting => format!("setting {}", group.setting + 1),
        }
    }

    /// Where it comes among others of its kind; those that are equal stay as they were measured.
    #[must_use]
    pub fn rank(self, group: &Group) -> f64 {
        let configuration = &group.configuration;
        match self {
            Field::Quality => {
                Quality::ALL.iter().position(|quality| *quality == configuration.quality).unwrap_or(0) as f64
            }
            Field::Key => {
                match configuration.key.trim_start_matches(|sign: char| !sign.is_ascii_digit()).parse::<f64>() {
                    Ok(bits) if configuration.key.starts_with('p') => 1e6 + bits,
                    Ok(bits) if configuration.key.starts_with("ml-") => 2e6 + bits,
                    Ok(bits) => bits,
                    Err(_) => -1.0,
                }
            }
            Field::Reuse => match configuration.reuse {
                Reuse::Times(times) => f64::from(times),
                Reuse::Unlimited => f64::INFINITY,
            },
            Field::SignBatch => f64::from(configuration.sign_batch),
            Field::Recipients => f64::from(configuration.recipients),
            Field::Bytes => configuration.bytes as f64,
            Field::Persistent => f64::from(u8::from(configuration.persistent)),
            Field::Pairs => f64::from(configuration.pairs),
            Field::InFlight => f64::from(configuration.in_flight),
            Field::Target => configuration.target_rate as f64,
            Field::Certificates => f64::from(u8::from(configuration.client_certificates)),
            Field::Reset => configuration.reset_bytes as f64,
            Field::Requests => f64::from(configuration.requests),
            Field::Resumed => f64::from(u8::from(configuration.resumed)),
            Field::Dispatchers => f64::from(configuration.dispatchers),
            Field::Adapters => f64::from(configuration.adapters),
            Field::Setting => group.setting as f64,
            Field::Getting => configuration.getting.getter_rate as f64,
            Field::Devices | Field::Cipher | Field::Topology => 0.0,
        }
    }
}

/// How messages are got, in words; empty where nothing was said of it.
fn getting(getting: &Getting) -> String {
    let Getting { getter_rate, receiver_bytes, max_depth, memory_mib } = *getting;
    let count = |count: u64| with_decimals(count as f64, 0);
    let words = [
        (getter_rate > 0).then(|| format!("getter takes {}/s", count(getter_rate))),
        (receiver_bytes > 0).then(|| format!("receiver takes {}", bytes(receiver_bytes))),
        (max_depth > 0).then(|| format!("MAXDEPTH {}", count(max_depth.into()))),
        (memory_mib > 0).then(|| format!("{} MiB of memory", count(memory_mib.into()))),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The fields in which groups differ.
#[must_use]
pub fn differing(groups: &[&Group]) -> Vec<Field> {
    let differs = |field: &Field| {
        let mut texts = groups.iter().map(|group| field.text(group)).filter(|text| !text.is_empty());
        let first = texts.next();
        texts.any(|text| Some(&text) != first.as_ref())
    };
    Field::ALL.into_iter().filter(differs).collect()
}

/// The fields in which they don't, in words; the setting is told elsewhere.
#[must_use]
pub fn common(groups: &[&Group]) -> String {
    let differing = differing(groups);
    let Some(group) = groups.first() else { return String::new() };
    let matters = |field: &Field| match field {
        Field::Setting => false,
        Field::SignBatch => groups.iter().any(|group| group.configuration.sign_batch != 1),
        Field::Recipients => group.configuration.recipients != 1,
        Field::Target => group.configuration.target_rate != 0,
        Field::Dispatchers => group.configuration.dispatchers != 0,
        Field::Adapters => group.configuration.adapters != 0,
        Field::Reset => group.configuration.reset_bytes != 0,
        Field::Cipher => !group.configuration.cipher.is_empty(),
        _ => true,
    };
    let fields = Field::ALL.into_iter().filter(|field| !differing.contains(field)).filter(matters);
    // A field that says something of some groups alone says it there.
    let texts = fields.filter_map(|field| groups.iter().map(|group| field.text(group)).find(|text| !text.is_empty()));
    texts.collect::<Vec<_>>().join(", ")
}

/// A group in the words of those fields.
#[must_use]
pub fn words(fields: &[Field], group: &Group) -> String {
    // The words of one field stay in one line.
    let texts = fields.iter().map(|field| field.text(group).replace(' ', "\u{a0}")).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join(" · ")
}

/// `RSA 2048`, `P-256`.
fn key(key: &str) -> String {
    if let Some((signs, reads)) = key.split_once(crate::site::BOTH) {
        return format!("{} + {}", self::key(signs), self::key(reads));
    }
    match (key.strip_prefix("rsa"), key.strip_prefix('p')) {
        _ if key.is_empty() => String::new(),
        (Some(bits), _) => format!("RSA {bits}"),
        (_, Some(bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => format!("P-{bits}"),
        _ => key.to_owned(),
    }
}

/// `2 accelerators (modelled)`.
fn devices(devices: &str) -> String {
    let (modelled, list) = devices.strip_prefix("modelled:").map_or((false, devices), |list| (true, list));
    let part = |part: &str| {
        let counted =
            |count: &str, what: &str| if count == "1" { format!("1 {what}") } else { format!("{count} {what}s") };
        match part {
            "" => "no device".to_owned(),
            "cpu" => "processor".to_owned(),
            "software" => "software alone".to_owned(),
            part => match (part.strip_suffix('a'), part.strip_suffix('c')) {
                (Some(count), _) if is_count(count) => counted(count, "accelerator"),
                (_, Some(count)) if is_count(count) => counted(count, "coprocessor"),
                _ => part.to_owned(),
            },
        }
    };
    let text = list.split('+').map(part).collect::<Vec<_>>().join(" + ");
    if modelled { format!("{text} (modelled)") } else { text }
}

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;

    fn group(configuration: Configuration) -> Group {
        Group { configuration, ..Group::default() }
    }

    #[test]
    fn what_differs_names_a_group_and_what_does_not_is_told_once() {
        let one =
            group(Configuration { quality: Quality::Integrity, key: "rsa2048".into(), ..Configuration::default() });
        let other = group(Configuration { quality: Quality::Privacy, key: "p256".into(), ..Configuration::default() });
        let groups = [&one, &other];
        assert_eq!(differing(&groups), [Field::Quality, Field::Key]);
        assert_eq!(words(&differing(&groups), &one), "integrity · RSA\u{a0}2048");
        assert_eq!(common(&groups), "local, 2 KB, not persistent, 1 pair, 1 in flight, processor");
    }

    #[test]
    fn how_many_share_a_signature_is_told_of_what_is_signed() {
        let of = |quality, sign_batch| {
            group(Configuration { quality, sign_batch, key: "p256".into(), ..Configuration::default() })
        };
        let (alone, shared) = (of(Quality::Integrity, 1), of(Quality::Integrity, 64));
        let other = of(Quality::Confidentiality, 1);
        let groups = [&alone, &shared, &other];
        assert_eq!(differing(&groups), [Field::Quality, Field::SignBatch]);
        assert_eq!(words(&differing(&groups), &shared), "integrity · batch\u{a0}64");
        assert_eq!(words(&differing(&groups), &other), "confidentiality");
        assert!(Field::SignBatch.rank(&alone) < Field::SignBatch.rank(&shared));
        assert!(!common(&[&alone]).contains("batch"), "a signature each is what there is without");
        assert!(common(&[&shared]).contains("batch 64"));
    }

    #[test]
    fn devices_are_told_in_words_and_modelled_ones_say_so() {
        for (text, told) in [
            ("cpu", "processor"),
            ("2a", "2 accelerators"),
            ("modelled:1a+2c", "1 accelerator + 2 coprocessors (modelled)"),
            ("token", "token"),
            ("c", "c"),
        ] {
            assert_eq!(devices(text), told);
        }
    }

    #[test]
    fn keys_come_in_the_order_of_their_strength_and_kind() {
        let rank = |key: &str| Field::Key.rank(&group(Configuration { key: key.into(), ..Configuration::default() }));
        assert!(rank("") < rank("rsa1024") && rank("rsa1024") < rank("rsa4096") && rank("rsa4096") < rank("p192"));
    }
}
