//! What is measured or planned, in words that results, reports and the planner share.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a policy asks for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Quality {
    /// No policy: the message travels as it is.
    #[default]
    None,
    /// Signed.
    Integrity,
    /// Signed and encrypted, with a content key for each message.
    Privacy,
    /// Encrypted; a content key may be used again.
    Confidentiality,
}

impl Quality {
    /// Whether messages are signed.
    #[must_use]
    pub const fn signs(self) -> bool {
        matches!(self, Quality::Integrity | Quality::Privacy)
    }

    /// All of them, in the order of reports.
    pub const ALL: [Quality; 4] = [Quality::None, Quality::Integrity, Quality::Privacy, Quality::Confidentiality];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Quality::None => "none",
            Quality::Integrity => "integrity",
            Quality::Privacy => "privacy",
            Quality::Confidentiality => "confidentiality",
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// KEYREUSE: how often a content key is used again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Reuse {
    /// This often; 0 is a key for each message.
    Times(u32),
    /// Until the link ends, or a limit is reached.
    Unlimited,
}

impl Default for Reuse {
    fn default() -> Self {
        Reuse::Times(0)
    }
}

impl Reuse {
    /// The share of messages that need a new content key. The limits that end an unlimited one are far away.
    #[must_use]
    pub fn fresh_share(self) -> f64 {
        match self {
            Reuse::Times(times) => 1.0 / (f64::from(times) + 1.0),
            Reuse::Unlimited => 0.0,
        }
    }
}

impl FromStr for Reuse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" | "*" => Ok(Reuse::Unlimited),
            text => text.parse().map(Reuse::Times).map_err(|error| format!("a number, or unlimited: {error}")),
        }
    }
}

impl TryFrom<String> for Reuse {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Reuse> for String {
    fn from(reuse: Reuse) -> String {
        reuse.to_string()
    }
}

impl fmt::Display for Reuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reuse::Times(times) => write!(f, "{times}"),
            Reuse::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// What one configuration is: each field that does not matter to a workload keeps its default and is left out of files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Configuration {
    /// What the policy asks for.
    pub quality: Quality,
    /// The key of signer and recipient, as `bulla cert create --key` takes it (rsa2048, p256); empty where none is
    /// needed. Where nothing is sealed and TLS is spoken, the key of its certificates.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// How often a content key is used again.
    #[serde(skip_serializing_if = "is_default")]
    pub reuse: Reuse,
    /// SIGNBATCH: how many messages one signature may prove, 1 to 1024; 1 is a signature each. It matters where
    /// messages are signed.
    #[serde(skip_serializing_if = "is_one")]
    pub sign_batch: u32,
    /// Recipients of each message.
    #[serde(skip_serializing_if = "is_one")]
    pub recipients: u32,
    /// Payload of a message, in bytes.
    pub bytes: u64,
    /// Whether messages are persistent.
    #[serde(skip_serializing_if = "is_default")]
    pub persistent: bool,
    /// Pairs of a requester and a server, of a putter and a getter, or of channels.
    #[serde(skip_serializing_if = "is_one")]
    pub pairs: u32,
    /// Messages of a pair that may be under way at once.
    #[serde(skip_serializing_if = "is_one")]
    pub in_flight: u32,
    /// Messages a second that are to be held; 0 for as fast as it goes.
    #[serde(skip_serializing_if = "is_default")]
    pub target_rate: u64,
    /// Crypto devices beside the processor: `cpu` for none, `software` for the processor without its instructions, or
    /// `1a`, `2c`, `1a+1c`: so many accelerators (a) and coprocessors (c); with `modelled:` before, modelled ones.
    pub devices: String,
    /// CipherSpec of channels or clients; empty for no TLS.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cipher: String,
    /// The TLS client shows a certificate.
    #[serde(skip_serializing_if = "is_default")]
    pub client_certificates: bool,
    /// SSLRKEYC in bytes; 0 for never.
    #[serde(skip_serializing_if = "is_default")]
    pub reset_bytes: u64,
    /// Requests of a connection; 0 where there are none.
    #[serde(skip_serializing_if = "is_default")]
    pub requests: u32,
    /// TLS sessions are resumed.
    #[serde(skip_serializing_if = "is_default")]
    pub resumed: bool,
    /// CHIDISPS; 0 for the queue manager's default.
    #[serde(skip_serializing_if = "is_default")]
    pub dispatchers: u32,
    /// CHIADAPS; 0 for the queue manager's default.
    #[serde(skip_serializing_if = "is_default")]
    pub adapters: u32,
    /// Which islands, or which way a message goes: `local`, `channel`, `unprotected`, `end-to-end`, `one-side`,
    /// `two-authorities`.
    pub topology: String,
    /// How messages are got, and how many may wait for that.
    #[serde(flatten)]
    pub getting: Getting,
}

/// How messages are got, and how many may wait for that, where a workload varies it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Getting {
    /// Messages a second that the getters take together; 0 for as fast as they come.
    #[serde(skip_serializing_if = "is_default")]
    pub getter_rate: u64,
    /// The longest message that a getter takes, in bytes (AMQP's `max-message-size`); 0 for any.
    #[serde(skip_serializing_if = "is_default")]
    pub receiver_bytes: u64,
    /// MAXDEPTH of the queues; 0 for the workload's own.
    #[serde(skip_serializing_if = "is_default")]
    pub max_depth: u32,
    /// Memory for messages (`bulla start --memory`), MiB; 0 for the queue manager's default.
    #[serde(skip_serializing_if = "is_default")]
    pub memory_mib: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            quality: Quality::None,
            key: String::new(),
            reuse: Reuse::default(),
            sign_batch: 1,
            recipients: 1,
            bytes: 2048,
            persistent: false,
            pairs: 1,
            in_flight: 1,
            target_rate: 0,
            devices: "cpu".to_owned(),
            cipher: String::new(),
            client_certificates: false,
            reset_bytes: 0,
            requests: 0,
            resumed: false,
            dispatchers: 0,
            adapters: 0,
            topology: "local".to_owned(),
            getting: Getting::default(),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_comes_back_from_its_own_text() {
        let configuration = Configuration {
            quality: Quality::Confidentiality,
            key: "rsa2048".into(),
            reuse: Reuse::Unlimited,
            persistent: true,
            getting: Getting { max_depth: 5_000, ..Getting::default() },
            ..Configuration::default()
        };
        let text = serde_json::to_string(&configuration).unwrap();
        assert_eq!(serde_json::from_str::<Configuration>(&text).unwrap(), configuration, "{text}");
        assert!(text.contains("\"max_depth\":5000") && !text.contains("getter_rate"), "{text}");
        assert!(!text.contains("sign_batch"), "{text}");
        assert_eq!(serde_json::from_str::<Configuration>("{}").unwrap(), Configuration::default());
        let signed = Configuration { quality: Quality::Integrity, sign_batch: 64, ..Configuration::default() };
        let text = serde_json::to_string(&signed).unwrap();
        assert!(text.contains("\"sign_batch\":64"), "{text}");
        assert_eq!(serde_json::from_str::<Configuration>(&text).unwrap(), signed);
        assert!(serde_json::from_str::<Configuration>("{\"sign_batch\":-1}").is_err());
    }

    #[test]
    fn every_message_has_a_key_of_its_own_unless_it_is_reused() {
        assert_eq!("0".parse::<Reuse>().unwrap().fresh_share(), 1.0);
        assert_eq!("32".parse::<Reuse>().unwrap().fresh_share(), 1.0 / 33.0);
        assert_eq!("unlimited".parse::<Reuse>().unwrap().fresh_share(), 0.0);
        assert!("-1".parse::<Reuse>().is_err());
    }
}
