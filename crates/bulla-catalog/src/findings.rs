//! What a policy would do with the users, key rings and messages that are there, as it was found.

use crate::status::Stranded;
use bulla_seal::policy::Quality;
use bulla_seal::{OpenError, Policy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A certificate that ends within so long is told of.
pub const EXPIRY_NOTICE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Messages that are looked at where no number is given.
pub const MESSAGES_DEFAULT: usize = 1_000;

/// Payloads whose sealed length is told, in bytes.
pub const PAYLOADS: [usize; 5] = [100, 2_048, 65_536, 1 << 20, 4 << 20];

/// A word for the wire and the log, and one lower-case line.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Why {
    /// The sub-reason, as a refused put or get has it.
    pub cause: String,
    /// What is wrong.
    pub details: String,
}

/// A certificate that would be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Used {
    /// Its subject.
    pub dn: String,
    /// Its key, as `bulla cert create --key` has it: `rsa2048`, `p256`.
    pub key: String,
    /// When it ends, UTC.
    pub not_after: String,
    /// It ends within [`EXPIRY_NOTICE`], or has ended.
    pub ends_soon: bool,
    /// It has ended.
    pub ended: bool,
}

/// One user of the queue, or one with a key ring.
#[derive(Clone, Debug)]
pub struct UserFinding {
    /// The name.
    pub user: String,
    /// Whether authority lets it put by this name.
    pub may_put: bool,
    /// Whether authority lets it get by this name.
    pub may_get: bool,
    /// Why its ring can't be read: there is none, most of the time.
    pub ring: Result<(), Why>,
    /// Whether it could seal, with which certificate of its own; none where nothing is signed.
    pub seals: Result<Option<Used>, Why>,
    /// Whether it could open, with which certificate of its own; none where nothing is encrypted.
    pub opens: Result<Option<Used>, Why>,
}

/// A name of the policy's.
#[derive(Clone, Debug)]
pub struct NameFinding {
    /// True for SIGNER, false for RECIP.
    pub signs: bool,
    /// The name.
    pub dn: String,
    /// The newest certificate that a user may use, and in whose rings it is.
    pub found: Option<(Used, Vec<String>)>,
    /// Where it is missing or no good, and why: the users who put, or the signer's own ring.
    pub missing: Vec<(String, Why)>,
}

impl NameFinding {
    /// What to say where no key ring has a good certificate of the name. One that is no good is not a missing one.
    fn problem(&self, kind: &str) -> String {
        const ABSENT: &str = "unknown-dn";
        let bad = self.missing.iter().map(|(_, why)| why).find(|why| why.cause != ABSENT);
        match bad {
            Some(why) => {
                format!("no key ring has a good certificate of {kind}('{}'): {}: {}", self.dn, why.cause, why.details)
            }
            None => format!("no key ring has a good certificate of {kind}('{}')", self.dn),
        }
    }
}

/// A message that one user sealed and another one opened.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Who sealed.
    pub by: String,
    /// Who opened.
    pub for_whom: String,
    /// What came of it.
    pub result: Result<(), Why>,
}

/// What becomes of a message when it is got.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fate {
    /// It opens.
    Opens,
    /// It is clear, and goes to its reader as it is.
    Clear,
    /// It goes to the error queue.
    Defective(Why),
    /// It is for other readers, and stays.
    NotMine,
    /// It stays until what is missing is back.
    Stays(Why),
    /// Its form is as the policy wants it; no user here has a key to say more.
    Form,
}

/// Messages that a user would find the same.
#[derive(Clone, Debug)]
pub struct MessagesFinding {
    /// Who gets them; empty where no user with a key ring may.
    pub user: Option<String>,
    /// What becomes of them.
    pub fate: Fate,
    /// How many.
    pub count: u64,
    /// The number of the first.
    pub first: u64,
}

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// What was asked about.
    pub policy: Arc<Policy>,
    /// It is the one that is set, not a proposed one.
    pub in_force: bool,
    /// What messages are bound to: `QUEUE@QMGR`.
    pub destination: String,
    /// Why the name leads to no queue.
    pub no_queue: Option<String>,
    /// Why it can't stand beside another policy, the first such.
    pub conflict: Option<String>,
    /// Users, in the order of their names.
    pub users: Vec<UserFinding>,
    /// Names of the policy.
    pub names: Vec<NameFinding>,
    /// Trials.
    pub trials: Vec<Trial>,
    /// Bytes of payload, and bytes of the sealed message's body.
    pub sizes: Vec<(usize, usize)>,
    /// The longest payload whose seal is within MAXMSGL; header and properties take from it.
    pub payload_max: Option<usize>,
    /// Bytes by which a message that shares its signature is longer than one with its own, at most; none where the
    /// policy lets none share one, or no user seals.
    pub batch_bytes: Option<usize>,
    /// What becomes of the messages on the queue.
    pub messages: Vec<MessagesFinding>,
    /// Messages looked at.
    pub looked_at: u64,
    /// Messages on the queue that were not.
    pub left: u64,
    /// Users or trials that were left out, because there are too many.
    pub left_out: Vec<String>,
    /// Messages that are for no user who may get and has a key ring here, and the number of the first.
    pub for_no_user: (u64, u64),
    /// Messages that no key ring here can open, of all on the queue.
    pub stranded: Stranded,
    /// Messages that are opened elsewhere, as it is meant to be, of all on the queue.
    pub away: u64,
}

impl Findings {
    /// How many recipients a message is sent to by ML-KEM, and one that it is sent to by RSA or EC. Each recipient
    /// opens a message alone, so it is as strong as that one.
    #[must_use]
    pub fn post_quantum(&self) -> (usize, Option<&Used>) {
        let recipients = self.names.iter().filter(|name| !name.signs);
        let keys = recipients.filter_map(|name| name.found.as_ref().map(|(used, _)| used));
        let (modern, classical): (Vec<&Used>, Vec<&Used>) = keys.partition(|used| used.key.starts_with("ml-kem"));
        (modern.len(), classical.first().copied())
    }

    /// What does not work, one lower-case line each.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.no_queue.iter().chain(&self.conflict).cloned().collect();
        let quality = self.policy.quality();
        for user in &self.users {
            let mut says = |may: bool, what: &str, why: &Why| {
                if may && quality != Quality::None {
                    problems.push(format!("{} {what}: {}: {}", user.user, why.cause, why.details));
                }
            };
            if let Err(why) = &user.seals {
                says(user.may_put, "may put and can't seal", why);
            }
            if let Err(why) = &user.opens {
                says(user.may_get, "may get and can't open", why);
            }
        }
        for name in &self.names {
            let kind = if name.signs { "SIGNER" } else { "RECIP" };
            if name.found.is_none() {
                problems.push(name.problem(kind));
            }
        }
        if quality != Quality::None && !self.users.iter().any(|user| user.may_put && user.seals.is_ok()) {
            problems.push("no user who may put can seal".to_owned());
        }
        let failed = self.trials.iter().filter_map(|trial| trial.result.as_ref().err().map(|why| (trial, why)));
        for (Trial { by, for_whom, .. }, why) in failed {
            // Who is no recipient was told of already.
            if why.cause != OpenError::NotARecipient.cause() {
                problems.push(format!("what {by} seals does not open for {for_whom}: {}: {}", why.cause, why.details));
            }
        }
        let used = self.users.iter().flat_map(|user| [&user.seals, &user.opens]).filter_map(|used| used.as_ref().ok());
        let named = self.names.iter().filter_map(|name| name.found.as_ref().map(|(used, _)| used));
        let ends: BTreeSet<(&str, &str, bool)> = (used.flatten().chain(named))
            .filter(|used| used.ends_soon)
            .map(|used| (used.dn.as_str(), used.not_after.as_str(), used.ended))
            .collect();
        problems.extend(ends.into_iter().map(|(dn, at, ended)| {
            format!("the certificate of {dn} {} at {at}", if ended { "ended" } else { "ends" })
        }));
        let Stranded { no_key, locked, .. } = self.stranded;
        if no_key > 0 {
            problems.push(format!("no key ring here has a key that opens {}", messages(no_key)));
        }
        if locked > 0 {
            problems.push(format!("the key that opens {} is in a key ring that can't be read", messages(locked)));
        }
        for found in &self.messages {
            let whose = found.user.as_deref().unwrap_or("any user");
            match &found.fate {
                Fate::Defective(why) => problems.push(format!(
                    "{} would go to the error queue when {whose} gets: {}: {}",
                    messages(found.count),
                    why.cause,
                    why.details
                )),
                Fate::Stays(why) => problems.push(format!(
                    "{} can't be opened for {whose} now: {}: {}",
                    messages(found.count),
                    why.cause,
                    why.details
                )),
                _ => {}
            }
        }
        problems
    }
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}
