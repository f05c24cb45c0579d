//! What is measured: a quality of protection, the key of signer and recipient, and how often a content key is reused.

use clap::ValueEnum;
use std::fmt;
use std::str::FromStr;

/// Keys for which there are goals.
pub(crate) const KEYS_OF_THE_GOALS: [&str; 5] = ["rsa1024", "rsa2048", "rsa4096", "p256", "p521"];
/// Reuses for which there are goals.
pub(crate) const REUSES_OF_THE_GOALS: [Reuse; 5] =
    [Reuse::Times(0), Reuse::Times(1), Reuse::Times(32), Reuse::Times(64), Reuse::Unlimited];

/// What a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Quality {
    None,
    Integrity,
    Privacy,
    Confidentiality,
}

/// KEYREUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// This often; 0 is a key for each message.
    Times(u32),
    /// Until the link ends, or a limit is reached.
    Unlimited,
}

impl Reuse {
    /// The share of messages that need a new content key. The limits that end an unlimited one are far away.
    pub(crate) fn fresh_share(self) -> f64 {
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

impl fmt::Display for Reuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reuse::Times(times) => write!(f, "{times}"),
            Reuse::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) quality: Quality,
    /// As `bulla cert create --key` takes it; empty where no key is needed.
    pub(crate) key: String,
    pub(crate) reuse: Reuse,
}

impl Case {
    /// A message as it is.
    pub(crate) fn unprotected() -> Case {
        Case { quality: Quality::None, key: String::new(), reuse: Reuse::Times(0) }
    }

    /// The name of its queue.
    pub(crate) fn queue(&self) -> String {
        let key = if self.key.is_empty() { "ANY" } else { &self.key };
        format!("{:?}.{key}.{}", self.quality, self.reuse).to_uppercase()
    }

    /// The policy of a queue on which the putter of this key puts for the getter, as MQSC; none for an unprotected one.
    pub(crate) fn policy(&self, queue: &str, putter: &str, getter: &str) -> Option<String> {
        let sign = format!("SIGNALG(SHA256) SIGNER('{}')", dn(putter));
        let encrypt = format!("ENCALG(AES256) RECIP('{}')", dn(getter));
        let reuse = match self.reuse {
            Reuse::Times(0) => String::new(),
            Reuse::Times(times) => format!("KEYREUSE({times})"),
            Reuse::Unlimited => "KEYREUSE(UNLIMITED)".to_owned(),
        };
        match self.quality {
            Quality::None => None,
            Quality::Integrity => Some(format!("SET POLICY({queue}) {sign}")),
            Quality::Privacy => Some(format!("SET POLICY({queue}) {sign} {encrypt}")),
            Quality::Confidentiality => Some(format!("SET POLICY({queue}) {encrypt} {reuse}")),
        }
    }

    /// What the users of this key are called.
    pub(crate) fn users(&self) -> (String, String) {
        let key = if self.key.is_empty() { "any" } else { &self.key };
        (format!("putter-{key}"), format!("getter-{key}"))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format!("{:?}", self.quality).to_lowercase())?;
        if !self.key.is_empty() {
            write!(f, " {}", self.key)?;
        }
        if self.quality == Quality::Confidentiality {
            write!(f, " reuse {}", self.reuse)?;
        }
        Ok(())
    }
}

/// A user's name in certificates.
pub(crate) fn dn(user: &str) -> String {
    format!("CN={user},O=Bench")
}

/// Every combination that means something: an unprotected message has no key, and only confidentiality reuses content keys.
pub(crate) fn product(qualities: &[Quality], keys: &[String], reuses: &[Reuse]) -> Vec<Case> {
    let mut cases = Vec::new();
    for quality in qualities.iter().copied() {
        match quality {
            Quality::None => cases.push(Case::unprotected()),
            Quality::Integrity | Quality::Privacy => {
                cases.extend(keys.iter().map(|key| Case { quality, key: key.clone(), reuse: Reuse::Times(0) }));
            }
            Quality::Confidentiality => {
                for key in keys {
                    cases.extend(reuses.iter().map(|reuse| Case { quality, key: key.clone(), reuse: *reuse }));
                }
            }
        }
    }
    cases
}
